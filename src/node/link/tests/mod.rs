//! Links over real sockets on loopback. Deadlines are generous where they must not be reached, and short where they
//! must.

mod attacks;
mod connections;
mod proofs;
mod transfers;

use std::cell::RefCell;
use std::future::Future;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;
use tokio::task::LocalSet;
use tokio::time::timeout;

use super::settings::{
    Agreed, Contact, Deadlines, Identity, LinkSettings, PROTOCOL, PeerHome, Security, VersionRange, Versions,
};
use super::{Greeted, Links, Offer, Receiver};
use crate::consensus::freshness::Stamp;
use crate::consensus::message::{Body, Message, Round, SentEntry};
use crate::log::directory::Directory;
use crate::log::replicated::block::tests::block;
use crate::log::replicated::entry::Payload;
use crate::log::replicated::members::tests::home_of;
use crate::log::replicated::members::{History, MemberChange};
use crate::log::replicated::types::{GroupId, Index, Link, NodeId, Term};
use crate::log::snapshot::arriving::ArrivingSnapshot;

fn node(number: u64) -> NodeId {
    NodeId::new(number).unwrap()
}

fn message(body: Body) -> Message {
    Message { from: node(1), to: node(2), term: Term(3), body }
}

/// Returns an append of an entry behind `index`, with a block of so many bytes of effects; 0 for no entry.
pub(super) fn append(index: u64, bytes: usize) -> Message {
    let payload = || Payload::Block(block(3, Link::default(), &[&vec![b'x'; bytes]]));
    let entries = if bytes == 0 { Vec::new() } else { vec![SentEntry { term: Term(3), payload: payload() }] };
    message(Body::Append { after: (Index(index), Term(3)), entries, committed: Index(0) })
}

/// Returns a heartbeat that names a committed entry.
pub(super) fn heartbeat(committed: u64) -> Message {
    let (all, stamp) = (Index(committed), Stamp::default());
    message(Body::Heartbeat { committed: Index(committed), round: None, all, stamp })
}

/// Returns a message of every kind from node 1 to node 2, but for the one that follows a snapshot.
fn every_kind() -> Vec<Message> {
    let place = (Index(7), Term(2));
    let committed = Index(5);
    let payloads = [
        Payload::Start,
        Payload::Block(block(2, Link::default(), &[b"one", b"two"])),
        Payload::Block(block(2, Link::default(), &[&[7; 300_000]])),
        Payload::Change(MemberChange::Promote(node(3))),
    ];
    let entries: Vec<_> = payloads.map(|payload| SentEntry { term: Term(2), payload }).into();
    let round = Some(Round { term: Term(3), number: 9 });
    let bodies = vec![
        Body::Append { after: place, entries, committed },
        Body::Append { after: place, entries: Vec::new(), committed },
        Body::Appended { index: Index(7), committed },
        Body::Refused { index: Index(7), hint: place, committed },
        Body::Stand { pre: true, last: place, committed: place, forced: false },
        Body::Vote { pre: false, granted: true, committed: place },
        Body::Heartbeat { committed, round, all: Index(9), stamp: Stamp(3) },
        Body::Heard { committed, round, stamp: Stamp(4) },
        Body::TakeOver,
    ];
    bodies.into_iter().map(message).collect()
}

/// A call that a receiver got.
#[derive(Debug, PartialEq)]
enum Told {
    Message(NodeId, Message),
    Greeted(NodeId, Agreed),
    Knocked(Greeted),
    TurnedAway(Greeted),
    Connected(NodeId),
    Disconnected(NodeId),
}

#[derive(Default)]
struct Recorder {
    told: RefCell<Vec<Told>>,
    /// Where offered snapshots go; without one they are refused.
    directory: RefCell<Option<Arc<Directory>>>,
}

impl Receiver for Recorder {
    fn received(&self, peer: NodeId, message: Message) {
        self.told.borrow_mut().push(Told::Message(peer, message));
    }

    fn offered(&self, offer: Offer) {
        let directory = self.directory.borrow().clone();
        let Body::Install(mark) = offer.message.body else { panic!("it has no mark") };
        let arriving =
            directory.map(|directory| ArrivingSnapshot::begin(directory, Box::new(|| true), mark, offer.bytes));
        let _ = offer.answer.send(arriving.ok_or("there is no room here".to_owned()));
    }

    fn greeted(&self, greeted: Greeted) {
        self.told.borrow_mut().push(Told::Greeted(greeted.node, greeted.agreed));
    }

    fn knocked(&self, stranger: Greeted) {
        self.told.borrow_mut().push(Told::Knocked(stranger));
    }

    fn turned_away(&self, by: Greeted, _: super::Verdict) {
        self.told.borrow_mut().push(Told::TurnedAway(by));
    }

    fn connected(&self, peer: NodeId) {
        self.told.borrow_mut().push(Told::Connected(peer));
    }

    fn disconnected(&self, peer: NodeId) {
        self.told.borrow_mut().push(Told::Disconnected(peer));
    }
}

/// The links of a node, and what its receiver was told.
struct Node {
    links: Links,
    told: Rc<Recorder>,
}

impl Node {
    async fn start(settings: LinkSettings) -> Node {
        Node::start_at(settings, "127.0.0.1:0").await
    }

    async fn start_at(settings: LinkSettings, address: &str) -> Node {
        let told = Rc::new(Recorder::default());
        let links = Links::start(settings, address, told.clone()).await.unwrap_or_else(|error| panic!("{error}"));
        Node { links, told }
    }

    fn address(&self) -> String {
        format!("localhost:{}", self.links.address().port())
    }

    /// Makes a node, by its number, the only peer.
    fn set_peer(&self, number: u64, address: &str) {
        self.links.set_peers(&[PeerHome { node: node(number), address: address.to_owned(), birth: None }]);
    }

    fn is_connected(&self) -> bool {
        self.links.facts().iter().any(|facts| facts.sending.connected_since.is_some())
    }

    fn is_received_from(&self) -> bool {
        self.links.facts().iter().any(|facts| facts.receiving.connected_since.is_some())
    }

    /// Returns the last failure of the connection that this node dials.
    fn failure(&self) -> String {
        self.links.facts().into_iter().find_map(|facts| facts.sending.last_error).unwrap_or_default()
    }

    fn messages(&self) -> Vec<Message> {
        let told = self.told.told.borrow();
        let message = |told: &Told| match told {
            Told::Message(from, message) => {
                assert_eq!(*from, message.from);
                Some(message.clone())
            }
            _ => None,
        };
        told.iter().filter_map(message).collect()
    }
}

fn settings(number: u64) -> LinkSettings {
    let range = VersionRange { oldest: 1, newest: 1 };
    // No test may pass because of a deadline that it does not shorten.
    let patient = Duration::from_secs(3_600);
    LinkSettings {
        group: GroupId(0),
        node: node(number),
        identity: Identity { birth: home_of(node(number)).birth, history: History::UNKNOWN },
        contact: Contact { address: home_of(node(number)).address, sentinel_port: number as u16 },
        versions: Versions { protocol: PROTOCOL, log: range, effects: range },
        security: Security::Plain,
        deadlines: Deadlines {
            connect: patient,
            handshake: patient,
            stall: patient,
            silence: patient,
            retry_first: Duration::from_millis(5),
            retry_max: Duration::from_millis(20),
            ..Deadlines::default()
        },
    }
}

/// Starts nodes 1 and 2, and makes each the peer of the other.
async fn pair(one: LinkSettings, two: LinkSettings) -> (Node, Node) {
    let (one, two) = (Node::start(one).await, Node::start(two).await);
    one.set_peer(2, &two.address());
    two.set_peer(1, &one.address());
    (one, two)
}

/// Runs a test on a runtime like a node's.
fn run(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    LocalSet::new().block_on(&runtime, test);
}

/// How long a test waits for something that is to happen at once.
const PATIENCE: Duration = Duration::from_secs(30);

/// Whether the other end closes a connection soon.
async fn is_closed(stream: &mut TcpStream) -> bool {
    timeout(PATIENCE, stream.read_to_end(&mut Vec::new())).await.is_ok()
}

/// Lets the links work until something is true.
async fn until(what: &str, mut is_true: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !is_true() {
        assert!(begin.elapsed() < PATIENCE, "it did not come to this: {what}");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}
