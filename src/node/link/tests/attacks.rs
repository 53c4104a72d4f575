//! Strangers who connect to the port of the nodes.

use std::time::Duration;

use tokio::io::AsyncWriteExt;

use super::super::greeting::{Greeting, Purpose, Verdict};
use super::super::limits::HANDSHAKES_MAX;
use super::*;
use crate::base::rng::Rng;

/// Two nodes by a secret, of which node 2 waits a short time for handshakes.
async fn secured(folder: &tempfile::TempDir) -> (Node, Node) {
    use std::os::unix::fs::PermissionsExt;
    let path = folder.path().join("secret");
    std::fs::write(&path, [b's'; 40]).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
    let with = |number| LinkSettings { security: Security::Secret(path.clone()), ..settings(number) };
    let mut impatient = with(2);
    impatient.deadlines.handshake = Duration::from_millis(300);
    pair(with(1), impatient).await
}

#[test]
fn strangers_are_closed_and_disturb_nobody() {
    let folder = tempfile::tempdir().unwrap();
    run(async {
        for is_plain in [true, false] {
            let (one, two) = match is_plain {
                true => {
                    let mut impatient = settings(2);
                    impatient.deadlines.handshake = Duration::from_millis(300);
                    pair(settings(1), impatient).await
                }
                false => secured(&folder).await,
            };
            until("connected", || one.is_connected() && two.is_received_from()).await;
            let mut rng = Rng::seeded(7);
            for round in 0..20 {
                let mut stream = TcpStream::connect(two.address()).await.unwrap();
                let mut bytes: Vec<u8> = (0..rng.below(2_000)).map(|_| rng.next_u64() as u8).collect();
                if round % 2 == 0 {
                    // A head of a TLS record, with a length.
                    bytes.splice(..0, [22, 3, 1, 0x3f, 0xff]);
                }
                // The other end may have closed it already.
                let _ = stream.write_all(&bytes).await;
                assert!(is_closed(&mut stream).await);
            }
            one.links.send(heartbeat(1));
            until("a message", || two.messages() == [heartbeat(1)]).await;
            assert!(one.is_connected(), "the first connection still stands");
        }
    });
}

#[test]
fn a_greeting_that_comes_byte_by_byte_has_one_deadline() {
    run(async {
        let mut impatient = settings(2);
        impatient.deadlines.handshake = Duration::from_millis(300);
        let two = Node::start(impatient).await;
        let greeting =
            Greeting::of(&settings(1), settings(1).identity, node(2), Purpose::Messages, Verdict::Welcome).bytes();
        let mut stream = TcpStream::connect(two.address()).await.unwrap();
        let begin = Instant::now();
        for byte in greeting.iter().cycle() {
            if stream.write_all(&[*byte]).await.is_err() {
                break;
            }
            assert!(begin.elapsed() < PATIENCE, "it is never closed");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    });
}

#[test]
fn one_handshake_too_many_closes_the_oldest() {
    run(async {
        let (one, two) = pair(settings(1), settings(2)).await;
        until("connected", || one.is_connected() && two.is_received_from()).await;
        let mut strangers = Vec::new();
        for _ in 0..HANDSHAKES_MAX + 10 {
            strangers.push(TcpStream::connect(two.address()).await.unwrap());
        }
        for stranger in &mut strangers[..10] {
            assert!(is_closed(stranger).await);
        }
        // A node gets in although all places are taken.
        one.links.set_peers(&[]);
        until("gone", || !two.is_received_from()).await;
        one.set_peer(2, &two.address());
        until("connected", || one.is_connected() && two.is_received_from()).await;
        drop(strangers);
    });
}
