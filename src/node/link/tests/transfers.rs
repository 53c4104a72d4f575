//! Snapshots on their way, and everything that may befall them.

use std::cell::Cell;
use std::path::Path;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::super::frame::{self, FrameReader};
use super::super::greeting::{Greeting, Purpose, Verdict};
use super::super::limits::TRANSFER_CHUNK_BYTES;
use super::super::offer::{decode_answer, encode_offer};
use super::*;
use crate::log::directory::DirectoryId;
use crate::log::disk::Disk as _;
use crate::log::identity::Owner;
use crate::log::replicated::mark::Mark;
use crate::log::sim::SimDisk;
use crate::log::snapshot::arriving::tests::{samples, snapshot};
use crate::log::snapshot::departing::DepartingSnapshot;

const FOLDER: &str = "/d";

fn directory(disk: &SimDisk, number: u64) -> Arc<Directory> {
    let owner = Owner::Node { group: GroupId(0), node: node(number) };
    let id = DirectoryId::new([number as u8; 16]);
    Arc::new(Directory::open_as(owner, Arc::new(disk.clone()), Path::new(FOLDER), id).unwrap())
}

/// A snapshot of some MiB in the directory of node 1.
struct Source {
    directory: Arc<Directory>,
    mark: Mark,
}

impl Source {
    fn new() -> Source {
        let directory = directory(&SimDisk::new(1), 1);
        let mark = snapshot(&directory, 7, 70, &samples(800, 5_000));
        Source { directory, mark }
    }

    fn message(&self) -> Message {
        message(Body::Install(self.mark.clone()))
    }

    fn bytes(&self) -> Vec<u8> {
        bytes_of(&self.directory, &self.mark)
    }

    /// Sends the snapshot from node 1, and returns where the end of the transfer is reported.
    fn send(&self, one: &Node) -> Rc<Cell<Option<bool>>> {
        let done = Rc::new(Cell::new(None));
        let report = Rc::clone(&done);
        one.links.transfer(self.message(), Arc::clone(&self.directory), move |arrived| report.set(Some(arrived)));
        done
    }
}

fn bytes_of(directory: &Directory, mark: &Mark) -> Vec<u8> {
    let file = DepartingSnapshot::open(directory, mark).unwrap();
    let mut bytes = vec![0; file.bytes() as usize];
    file.read(&mut bytes, 0).unwrap();
    bytes
}

/// Node 2 with its disk.
struct Target {
    node: Node,
    disk: SimDisk,
    directory: Arc<Directory>,
}

impl Target {
    async fn start(settings: LinkSettings) -> Target {
        let disk = SimDisk::new(2);
        let directory = directory(&disk, 2);
        let node = Node::start(settings).await;
        node.told.directory.replace(Some(Arc::clone(&directory)));
        node.set_peer(1, "localhost:1");
        Target { node, disk, directory }
    }

    fn files(&self) -> Vec<String> {
        let names = self.disk.list(Path::new(FOLDER)).unwrap();
        names.into_iter().filter(|name| name.starts_with("snapshot")).collect()
    }

    fn failure(&self) -> String {
        self.node.links.facts()[0].incoming.last_error.clone().unwrap_or_default()
    }

    /// Checks that a snapshot arrives whole from a node 1.
    async fn takes(&self, source: &Source) {
        let one = Node::start(settings(1)).await;
        one.set_peer(2, &self.node.address());
        let done = source.send(&one);
        until("reported", || done.get().is_some()).await;
        assert_eq!(done.get(), Some(true), "{:?}", one.links.facts()[0].outgoing);
        assert!(self.node.messages().contains(&source.message()));
        assert!(bytes_of(&self.directory, &source.mark) == source.bytes());
        assert_eq!(self.files().len(), 1, "{:?}", self.files());
    }
}

/// Settings with short times for transfers.
fn hasty(number: u64) -> LinkSettings {
    let mut settings = settings(number);
    settings.deadlines.transfer_retry = Duration::from_millis(10);
    settings
}

/// Dials node 2 as node 1 would to send it a snapshot.
async fn dial(two: &Node) -> TcpStream {
    let mut stream = TcpStream::connect(two.address()).await.unwrap();
    let own = settings(1);
    let greeting = Greeting::of(&own, own.identity, node(2), Purpose::Snapshot, Verdict::Welcome).bytes();
    stream.write_all(&greeting).await.unwrap();
    stream.read_exact(&mut vec![0; greeting.len()]).await.unwrap();
    stream
}

/// Accepts a connection as node 2 would.
async fn accept(listener: &TcpListener) -> TcpStream {
    let (mut stream, _) = listener.accept().await.unwrap();
    let own = settings(2);
    let greeting = Greeting::of(&own, own.identity, node(1), Purpose::Snapshot, Verdict::Welcome).bytes();
    stream.read_exact(&mut vec![0; greeting.len()]).await.unwrap();
    stream.write_all(&greeting).await.unwrap();
    stream
}

/// Returns the frames by which a file travels that was announced with a length.
fn frames(message: &Message, announced: u64, file: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    frame::append(&mut bytes, |out| encode_offer(GroupId(0), message, announced, out));
    for chunk in file.chunks(TRANSFER_CHUNK_BYTES) {
        frame::append(&mut bytes, |out| out.extend(chunk));
    }
    bytes
}

/// Sends bytes in the place of a snapshot, and returns the answer, if there is one before the connection ends.
async fn send_to(two: &Node, bytes: &[u8]) -> Option<String> {
    let mut stream = dial(two).await;
    // The other end may refuse, and close, before it has all.
    let _ = stream.write_all(bytes).await;
    let _ = stream.shutdown().await;
    let mut frames = FrameReader::default();
    loop {
        if let Some(payload) = frames.next().unwrap() {
            return decode_answer(&payload).err().map(|error| error.to_string());
        }
        if stream.read_buf(frames.room()).await.is_ok_and(|read| read > 0) {
            continue;
        }
        return None;
    }
}

/// Lets a snapshot and messages go to node 2.
async fn send_among_messages(security: Security) {
    let with = |number| LinkSettings { security: security.clone(), ..settings(number) };
    let source = Source::new();
    let (one, two) = (Node::start(with(1)).await, Target::start(with(2)).await);
    one.set_peer(2, &two.node.address());
    two.node.set_peer(1, &one.address());
    until("connected", || one.is_connected() && two.node.is_received_from()).await;
    let done = source.send(&one);
    let mut sent = 0;
    until("reported", || {
        sent += 1;
        one.links.send(heartbeat(sent));
        done.get().is_some()
    })
    .await;
    assert_eq!(done.get(), Some(true));
    assert!(bytes_of(&two.directory, &source.mark) == source.bytes());
    let messages = two.node.messages();
    let at = messages.iter().position(|message| *message == source.message()).unwrap();
    assert!(at > 2, "messages have come before it: {at} of {sent}");
    let (outgoing, incoming) = (one.links.facts()[0].outgoing.clone(), two.node.links.facts()[0].incoming.clone());
    assert!(outgoing.bytes > 4_000_000 && incoming.bytes > outgoing.bytes, "the offer comes on top");
    assert_eq!(one.links.facts()[0].dropped, 0);
}

#[test]
fn a_snapshot_arrives_byte_for_byte_while_messages_flow() {
    let folder = tempfile::tempdir().unwrap();
    for security in [Security::Plain, proofs::secret(&folder, "both")] {
        run(send_among_messages(security));
    }
}

#[test]
fn a_short_snapshot_arrives() {
    run(async {
        let directory = directory(&SimDisk::new(1), 1);
        let mark = snapshot(&directory, 7, 70, &[]);
        let two = Target::start(settings(2)).await;
        for _ in 0..20 {
            two.takes(&Source { directory: Arc::clone(&directory), mark: mark.clone() }).await;
        }
    });
}

#[test]
fn a_file_that_is_not_what_was_announced_is_refused_and_leaves_nothing() {
    run(async {
        let (source, two) = (Source::new(), Target::start(hasty(2)).await);
        let (message, bytes) = (source.message(), source.bytes());
        let len = bytes.len() as u64;
        let flipped = {
            let mut bytes = bytes.clone();
            bytes[2_000_000] ^= 1;
            frames(&message, len, &bytes)
        };
        let damaged_frame = {
            let mut sent = frames(&message, len, &bytes);
            sent[2_000_000] ^= 1;
            sent
        };
        let mut other = source.mark.clone();
        other.at.index = Index(8);
        let other = super::message(Body::Install(other));
        let long_frame = {
            let mut sent = frames(&message, len, &[]);
            frame::append(&mut sent, |out| out.resize(out.len() + TRANSFER_CHUNK_BYTES + 1, 0));
            sent
        };
        let cases = [
            (frames(&message, len - 1, &bytes), "was announced with"),
            (frames(&message, len - 1, &bytes[..bytes.len() - 1]), "is damaged"),
            (frames(&message, 0, &bytes), "was announced with"),
            (flipped, "is damaged"),
            (frames(&other, len, &bytes), "another one than was announced"),
            (frames(&message, len + 1, &bytes), "closed the connection"),
            (frames(&message, u64::MAX, &bytes), "closed the connection"),
            (frames(&message, len, &bytes[..2_000_000]), "closed the connection"),
            (damaged_frame, "another checksum"),
            (long_frame, "262145 bytes"),
            (frames(&heartbeat(1), len, &bytes), "without its file"),
            (vec![0xff; 100], "4294967295 bytes"),
        ];
        for (sent, reason) in cases {
            let answer = send_to(&two.node, &sent).await;
            until(reason, || two.failure().contains(reason)).await;
            until("removed", || two.files().is_empty()).await;
            assert!(answer.is_none_or(|answer| answer.contains(reason)));
        }
        assert!(two.node.messages().is_empty());
        two.takes(&source).await;
    });
}

#[test]
fn a_full_disk_fails_a_transfer_and_nothing_else() {
    run(async {
        let (source, two) = (Source::new(), Target::start(hasty(2)).await);
        let one = Node::start(hasty(1)).await;
        one.set_peer(2, &two.node.address());
        let outgoing = || one.links.facts()[0].outgoing.last_error.clone().unwrap_or_default();
        two.disk.set_capacity(Some(1_000_000));
        let done = source.send(&one);
        until("reported", || done.get().is_some()).await;
        assert_eq!(done.get(), Some(false));
        assert!(outgoing().contains("no storage space"), "{}", outgoing());
        assert!(two.files().is_empty());
        two.disk.set_capacity(None);
        two.node.told.directory.take();
        let done = source.send(&one);
        until("reported", || done.get().is_some()).await;
        assert!(outgoing().contains("there is no room here"), "{}", outgoing());
        two.node.told.directory.replace(Some(Arc::clone(&two.directory)));
        two.takes(&source).await;
    });
}

#[test]
fn a_transfer_to_a_peer_that_reads_nothing_or_answers_nothing_fails() {
    run(async {
        let source = Source::new();
        let mut impatient = hasty(1);
        impatient.deadlines.transfer_stall = Duration::from_millis(200);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let one = Node::start(impatient).await;
        let address = listener.local_addr().unwrap().to_string();
        for (reads, reason) in [(false, "took nothing"), (true, "silent for too long")] {
            // Without the entry, the connection for messages would come in between.
            let done = {
                one.set_peer(2, &address);
                source.send(&one)
            };
            let mut held = Vec::new();
            let serve = async {
                loop {
                    let mut stream = accept(&listener).await;
                    if reads {
                        let mut sink = vec![0; 1 << 20];
                        while tokio::time::timeout(Duration::from_millis(100), stream.read(&mut sink))
                            .await
                            .is_ok_and(|read| read.is_ok_and(|read| read > 0))
                        {}
                    }
                    held.push(stream);
                }
            };
            tokio::select! {
                () = serve => {}
                () = until("reported", || done.get().is_some()) => {}
            }
            assert_eq!(done.get(), Some(false));
            let failure = one.links.facts()[0].outgoing.last_error.clone().unwrap_or_default();
            assert!(failure.contains(reason), "{failure}");
            one.links.set_peers(&[]);
        }
    });
}

#[test]
fn a_transfer_from_a_peer_that_stalls_ends_and_leaves_nothing() {
    run(async {
        let mut impatient = hasty(2);
        impatient.deadlines.transfer_stall = Duration::from_millis(200);
        let (source, two) = (Source::new(), Target::start(impatient).await);
        let mut stream = dial(&two.node).await;
        let sent = frames(&source.message(), source.bytes().len() as u64, &source.bytes()[..1_000_000]);
        stream.write_all(&sent).await.unwrap();
        until("begun", || two.files().len() == 1).await;
        until("ended", || two.failure().contains("silent for too long")).await;
        until("removed", || two.files().is_empty()).await;
        two.takes(&source).await;
    });
}

#[test]
fn a_newer_transfer_takes_the_place_of_an_older_one() {
    run(async {
        let (source, two) = (Source::new(), Target::start(hasty(2)).await);
        let one = Node::start(hasty(1)).await;
        one.set_peer(2, &two.node.address());
        let older = source.send(&one);
        let newer = source.send(&one);
        until("reported", || newer.get().is_some()).await;
        assert_eq!((older.get(), newer.get()), (None, Some(true)), "only the newer one is reported");
        // The same at the other end.
        let mut stream = dial(&two.node).await;
        let sent = frames(&source.message(), source.bytes().len() as u64, &source.bytes()[..1_000_000]);
        stream.write_all(&sent).await.unwrap();
        until("begun", || two.files().len() == 2).await;
        let newer = source.send(&one);
        until("reported", || newer.get().is_some()).await;
        assert_eq!(newer.get(), Some(true));
        until("the older one is gone", || two.files().len() == 1).await;
        assert!(matches!(stream.read(&mut [0]).await, Ok(0) | Err(_)), "it is closed");
    });
}

#[test]
fn the_end_of_a_transfer_is_reported_when_the_peer_goes() {
    run(async {
        let (source, two) = (Source::new(), Target::start(hasty(2)).await);
        let one = Node::start(hasty(1)).await;
        let done = source.send(&one);
        assert_eq!(done.get(), Some(false), "there is no such peer");
        one.set_peer(2, &two.node.address());
        let done = source.send(&one);
        one.set_peer(2, "localhost:1");
        until("reported", || done.get().is_some()).await;
        assert_eq!(done.get(), Some(false));
        until("removed", || two.files().is_empty()).await;
        one.set_peer(2, &two.node.address());
        let done = source.send(&one);
        one.links.end_transfers();
        tokio::time::sleep(Duration::from_millis(100)).await;
        assert_eq!(done.get(), None, "this node no longer leads, and nobody asks");
    });
}

#[test]
fn a_message_that_follows_a_snapshot_is_not_taken_without_its_file() {
    run(async {
        let (one, two) = pair(settings(1), settings(2)).await;
        until("connected", || one.is_connected() && two.is_received_from()).await;
        one.links.send(Source::new().message());
        let failure = || two.links.facts()[0].receiving.last_error.clone().unwrap_or_default();
        until("closed", || failure().contains("without its file")).await;
        assert!(two.messages().is_empty());
    });
}
