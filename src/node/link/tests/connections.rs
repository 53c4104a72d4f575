//! Connections come, go and come back.

use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use super::super::error::StartError;
use super::super::frame;
use super::super::greeting::{Greeting, Purpose, Verdict};
use super::super::limits::{QUEUED_ENTRIES_MAX_BYTES, QUEUED_SMALL_MAX};
use super::*;
use crate::consensus::codec::encode;

/// Dials a node as node 1 would, and reads its answer.
async fn dial_as_node_1(two: &Node) -> TcpStream {
    let mut stream = TcpStream::connect(two.address()).await.unwrap();
    let greeting =
        Greeting::of(&settings(1), settings(1).identity, node(2), Purpose::Messages, Verdict::Welcome).bytes();
    stream.write_all(&greeting).await.unwrap();
    stream.read_exact(&mut vec![0; greeting.len()]).await.unwrap();
    stream
}

/// Accepts a connection as node 2 would, and answers its greeting.
async fn accept_as_node_2(listener: &TcpListener) -> TcpStream {
    let (mut stream, _) = listener.accept().await.unwrap();
    let greeting =
        Greeting::of(&settings(2), settings(2).identity, node(1), Purpose::Messages, Verdict::Welcome).bytes();
    stream.read_exact(&mut vec![0; greeting.len()]).await.unwrap();
    stream.write_all(&greeting).await.unwrap();
    stream
}

fn frame_of(message: &Message) -> Vec<u8> {
    let mut bytes = Vec::new();
    frame::append(&mut bytes, |out| encode(GroupId(0), message, out));
    bytes
}

#[test]
fn only_loopback_is_listened_on_without_security() {
    run(async {
        let start = |address| Links::start(settings(1), address, Rc::new(Recorder::default()));
        assert!(matches!(start("0.0.0.0:0").await, Err(StartError::Exposed(_))));
        assert!(matches!(start("[::]:0").await, Err(StartError::Exposed(_))));
        assert!(matches!(start("no port").await, Err(StartError::Listen { .. })));
        assert!(start("127.0.0.1:0").await.is_ok());
    });
}

#[test]
fn only_loopback_is_dialled_without_security() {
    run(async {
        let one = Node::start(settings(1)).await;
        one.set_peer(2, "192.0.2.1:1");
        until("refused", || one.failure().contains("no loopback address")).await;
    });
}

#[test]
fn a_node_that_comes_back_is_connected_again() {
    run(async {
        let (one, two) = pair(settings(1), settings(2)).await;
        until("connected", || one.is_connected() && two.is_connected()).await;
        let address = two.address();
        drop(two);
        until("lost", || !one.is_connected()).await;
        one.links.send(heartbeat(1));
        assert_eq!(one.links.facts()[0].dropped, 1, "nothing is queued without a connection");
        let two = Node::start_at(settings(2), &address).await;
        two.set_peer(1, &one.address());
        until("connected again", || one.is_connected() && two.is_received_from()).await;
        one.links.send(heartbeat(2));
        until("a message", || !two.messages().is_empty()).await;
        assert_eq!(two.messages(), [heartbeat(2)]);
        let agreed = Agreed { protocol: 1, log: 1, effects: 1 };
        let told = one.told.told.take();
        let (greeted, told): (Vec<_>, Vec<_>) = told.into_iter().partition(|told| matches!(told, Told::Greeted(..)));
        assert!(greeted.len() >= 2 && greeted.iter().all(|told| *told == Told::Greeted(node(2), agreed)));
        let connected = || Told::Connected(node(2));
        assert_eq!(told, [connected(), Told::Disconnected(node(2)), connected()]);
    });
}

#[test]
fn peers_are_closed_when_they_are_gone_or_have_moved() {
    run(async {
        let (one, two) = pair(settings(1), settings(2)).await;
        until("connected", || one.is_connected() && two.is_connected() && one.is_received_from()).await;
        one.set_peer(1, &one.address());
        assert!(one.links.facts().is_empty(), "a node is not its own peer");
        until("lost", || !two.is_connected() && !two.is_received_from()).await;
        until("refused", || two.failure().contains("it does not count the dialling node among its peers")).await;
        one.set_peer(2, "localhost:1");
        until("dialled", || !one.failure().is_empty()).await;
        let facts = &one.links.facts()[0];
        assert_eq!((facts.node, &*facts.address), (node(2), "localhost:1"));
        one.set_peer(2, &two.address());
        until("connected", || one.is_connected() && two.is_connected()).await;
    });
}

#[test]
fn a_newer_connection_replaces_the_older() {
    run(async {
        let two = Node::start(settings(2)).await;
        two.set_peer(1, "localhost:1");
        let mut older = dial_as_node_1(&two).await;
        older.write_all(&frame_of(&heartbeat(1))).await.unwrap();
        until("a message", || two.messages().len() == 1).await;
        let mut newer = dial_as_node_1(&two).await;
        newer.write_all(&frame_of(&heartbeat(2))).await.unwrap();
        until("a message", || two.messages().len() == 2).await;
        assert!(is_closed(&mut older).await);
        newer.write_all(&frame_of(&heartbeat(3))).await.unwrap();
        until("a message", || two.messages() == [1, 2, 3].map(heartbeat)).await;
    });
}

#[test]
fn the_link_to_a_peer_that_reads_nothing_is_bounded_and_closed() {
    run(async {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut impatient = settings(1);
        impatient.deadlines.stall = Duration::from_millis(300);
        let one = Node::start(impatient).await;
        one.set_peer(2, &listener.local_addr().unwrap().to_string());
        let _silent = accept_as_node_2(&listener).await;
        until("connected", || one.is_connected()).await;
        let long = append(1, 8 * 1024 * 1024);
        let enough = QUEUED_ENTRIES_MAX_BYTES / (8 * 1024 * 1024) + 4;
        (0..enough).for_each(|_| one.links.send(long.clone()));
        let dropped = one.links.facts()[0].dropped;
        assert!(dropped >= 4, "appends have a bound");
        (0..QUEUED_SMALL_MAX as u64).for_each(|number| one.links.send(heartbeat(number)));
        assert_eq!(one.links.facts()[0].dropped, dropped, "heartbeats fit beside them");
        until("closed", || one.failure().contains("took nothing for too long")).await;
        assert!(one.links.facts()[0].dropped > dropped + 4, "what waited is dropped");
    });
}

#[test]
fn a_silent_connection_is_closed_and_signs_of_life_keep_one_open() {
    run(async {
        let mut impatient = settings(2);
        impatient.deadlines.silence = Duration::from_millis(400);
        let two = Node::start(impatient).await;
        two.set_peer(1, "localhost:1");
        let mut silent = dial_as_node_1(&two).await;
        assert!(is_closed(&mut silent).await);
        let failure = two.links.facts()[0].receiving.last_error.clone();
        assert_eq!(failure.as_deref(), Some("the other end was silent for too long"));

        let mut lively = settings(1);
        lively.deadlines.keep_alive = Duration::from_millis(20);
        let one = Node::start(lively).await;
        one.set_peer(2, &two.address());
        until("connected", || two.is_received_from()).await;
        let bytes = || two.links.facts()[0].receiving.bytes;
        until("signs of life", || bytes() >= 8 * 40).await;
        assert!(one.is_connected() && two.is_received_from());
    });
}

#[test]
fn bytes_from_the_end_that_only_receives_close_the_connection() {
    run(async {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let one = Node::start(settings(1)).await;
        one.set_peer(2, &listener.local_addr().unwrap().to_string());
        let mut stream = accept_as_node_2(&listener).await;
        stream.write_all(b"x").await.unwrap();
        until("closed", || one.failure().contains("should only receive")).await;
    });
}

#[test]
fn frames_that_no_node_sends_close_the_connection() {
    run(async {
        let two = Node::start(settings(2)).await;
        two.set_peer(1, "localhost:1");
        let good = frame_of(&heartbeat(1));
        let mut other_group = Vec::new();
        frame::append(&mut other_group, |out| encode(GroupId(5), &heartbeat(1), out));
        let mut no_kind = Vec::new();
        frame::append(&mut no_kind, |out| {
            encode(GroupId(0), &heartbeat(1), out);
            out[12] = 200;
        });
        let mut flipped = good.clone();
        *flipped.last_mut().unwrap() ^= 1;
        let too_long = [[0xff; 4], [0; 4]].concat();
        let faults = [
            (other_group, "a message is for group 5"),
            (no_kind, "kind 200"),
            (flipped, "another checksum"),
            (too_long, "4294967295 bytes"),
        ];
        for (bytes, reason) in faults {
            let mut stream = dial_as_node_1(&two).await;
            stream.write_all(&[&good[..], &bytes].concat()).await.unwrap();
            assert!(is_closed(&mut stream).await);
            until(reason, || {
                let failure = two.links.facts()[0].receiving.last_error.clone();
                failure.is_some_and(|failure| failure.contains(reason))
            })
            .await;
        }
        assert_eq!(two.messages().len(), 4, "the good frames before them have arrived");
    });
}
