//! The peers of a node and the tasks that serve them: the state that all tasks of the links share.
//!
//! The table owns the tasks. A task that is taken out of it is aborted, so a link ends with its entry.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::future::Future;
use std::rc::Rc;

use tokio::task::{JoinHandle, spawn_local};

use super::facts::{ConnectionRecord, Failures, PeerFacts};
use super::greeting::{Greeted, Verdict};
use super::limits::HANDSHAKES_MAX;
use super::offer::Offer;
use super::queue::Queue;
use super::security::Guard;
use super::settings::{Identity, LinkSettings, PeerHome};
use crate::consensus::message::Message;
use crate::log::replicated::members::Birth;
use crate::log::replicated::types::NodeId;

/// The part of the node that gets the messages of its peers. Its methods may send messages and change the peers.
pub(crate) trait Receiver {
    /// A message has come from `peer`, which has proved that it is a node of the group.
    fn received(&self, peer: NodeId, message: Message);

    /// A peer offers a snapshot, and waits for the answer. Its message is received once the file has its name.
    fn offered(&self, offer: Offer);

    /// A node has shaken hands, on either of the two connections with it.
    fn greeted(&self, greeted: Greeted);

    /// A node that is no peer has dialled this one, and proved that it knows the secret or has a certificate.
    fn knocked(&self, stranger: Greeted);

    /// A node that this one has dialled does not count it among its peers, or only another one with its number.
    fn turned_away(&self, by: Greeted, why: Verdict);

    /// Messages to `peer` are sent from now on.
    fn connected(&self, peer: NodeId);

    /// Messages to `peer` are dropped from now on, and some of those before may be lost.
    fn disconnected(&self, peer: NodeId);
}

/// A task that ends when this is dropped.
pub(super) struct Task(JoinHandle<()>);

impl Task {
    pub(super) fn spawn(future: impl Future<Output = ()> + 'static) -> Task {
        Task(spawn_local(future))
    }
}

impl Drop for Task {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Distinguishes accepted connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ConnectionId(u64);

/// A peer, as its tasks see it.
pub(super) struct Peer {
    pub(super) node: NodeId,
    /// Host and port. A peer that moves becomes a new one.
    pub(super) address: String,
    /// The directory that it must have, if that is known.
    birth: Cell<Option<Birth>>,
    pub(super) queue: Queue,
    pub(super) sending: ConnectionRecord,
    pub(super) receiving: ConnectionRecord,
    /// Snapshots to the peer and from it.
    pub(super) outgoing: ConnectionRecord,
    pub(super) incoming: ConnectionRecord,
}

/// Reports the end of a transfer once, however its task ends.
pub(super) struct Report(Cell<Option<Done>>);

/// Takes whether the peer has taken the snapshot.
type Done = Box<dyn FnOnce(bool)>;

impl Report {
    pub(super) fn new(done: impl FnOnce(bool) + 'static) -> Rc<Report> {
        Rc::new(Report(Cell::new(Some(Box::new(done)))))
    }

    pub(super) fn end(&self, has_arrived: bool) {
        if let Some(done) = self.0.take() {
            done(has_arrived);
        }
    }

    /// Reports nothing: a newer transfer has taken the place of this one, and its end is what counts.
    fn forget(&self) {
        self.0.take();
    }
}

impl Drop for Report {
    fn drop(&mut self) {
        self.end(false);
    }
}

struct Entry {
    peer: Rc<Peer>,
    /// Dials and sends, for as long as the entry is there.
    _sender: Task,
    /// Reads the newest connection that the peer has dialled.
    reader: Option<(ConnectionId, Task)>,
    /// Sends the newest snapshot that the peer is to get.
    outgoing: Option<(Rc<Report>, Task)>,
    /// Takes the newest snapshot that the peer sends.
    incoming: Option<(ConnectionId, Task)>,
}

/// See the module's header.
pub(super) struct Peers {
    pub(super) settings: LinkSettings,
    pub(super) identity: Cell<Identity>,
    pub(super) guard: Guard,
    pub(super) receiver: Rc<dyn Receiver>,
    /// The failures of accepted connections before it is known which node has dialled.
    pub(super) failures: Failures,
    entries: RefCell<BTreeMap<NodeId, Entry>>,
    handshakes: RefCell<VecDeque<(ConnectionId, Task)>>,
    last_id: Cell<u64>,
}

impl Peers {
    pub(super) fn new(settings: LinkSettings, guard: Guard, receiver: Rc<dyn Receiver>) -> Peers {
        Peers {
            identity: Cell::new(settings.identity),
            settings,
            guard,
            receiver,
            failures: Failures::default(),
            entries: RefCell::default(),
            handshakes: RefCell::default(),
            last_id: Cell::new(0),
        }
    }

    /// Removes the peers that are not in `homes`, and adds those that are new by `sender`'s task. A peer with another
    /// address is a new one.
    pub(super) fn set(&self, homes: &[PeerHome], sender: impl Fn(Rc<Peer>) -> Task) {
        let mut entries = self.entries.borrow_mut();
        entries
            .retain(|node, entry| homes.iter().any(|home| (home.node, &home.address) == (*node, &entry.peer.address)));
        for home in homes.iter().filter(|home| home.node != self.settings.node) {
            let entry = entries.entry(home.node).or_insert_with(|| {
                let peer = Rc::new(Peer {
                    node: home.node,
                    address: home.address.clone(),
                    birth: Cell::default(),
                    queue: Queue::default(),
                    sending: ConnectionRecord::default(),
                    receiving: ConnectionRecord::default(),
                    outgoing: ConnectionRecord::default(),
                    incoming: ConnectionRecord::default(),
                });
                let (outgoing, incoming) = Default::default();
                Entry { peer: Rc::clone(&peer), _sender: sender(peer), reader: None, outgoing, incoming }
            });
            entry.peer.birth.set(home.birth);
        }
    }

    /// Judges a node by the birth that it states.
    pub(super) fn judge(&self, node: NodeId, birth: Birth) -> Verdict {
        match self.entries.borrow().get(&node).map(|entry| entry.peer.birth.get()) {
            None => Verdict::NoPeer,
            Some(expected) if expected.is_some_and(|expected| expected != birth) => Verdict::Birth,
            Some(_) => Verdict::Welcome,
        }
    }

    /// Queues a message for its peer; a message to another node is dropped.
    pub(super) fn send(&self, message: Message) {
        if let Some(entry) = self.entries.borrow().get(&message.to) {
            entry.peer.queue.push(message);
        }
    }

    /// Starts the task of a transfer to a peer, in the place of an older one. Without such a peer the transfer fails.
    pub(super) fn begin_transfer(
        &self,
        to: NodeId,
        report: Rc<Report>,
        task: impl FnOnce(Rc<Peer>, Rc<Report>) -> Task,
    ) {
        if let Some(entry) = self.entries.borrow_mut().get_mut(&to) {
            if let Some((older, _)) = entry.outgoing.take() {
                older.forget();
            }
            entry.outgoing = Some((Rc::clone(&report), task(Rc::clone(&entry.peer), report)));
        }
    }

    /// Ends all transfers to peers, and reports nothing.
    pub(super) fn end_transfers(&self) {
        for entry in self.entries.borrow_mut().values_mut() {
            if let Some((report, _)) = entry.outgoing.take() {
                report.forget();
            }
        }
    }

    pub(super) fn facts(&self) -> Vec<PeerFacts> {
        let facts = |entry: &Entry| PeerFacts {
            node: entry.peer.node,
            address: entry.peer.address.clone(),
            sending: entry.peer.sending.facts(),
            receiving: entry.peer.receiving.facts(),
            outgoing: entry.peer.outgoing.facts(),
            incoming: entry.peer.incoming.facts(),
            dropped: entry.peer.queue.dropped(),
        };
        self.entries.borrow().values().map(facts).collect()
    }

    /// Starts the task of an accepted connection. Closes the oldest handshake if there are too many.
    pub(super) fn begin_handshake(&self, task: impl FnOnce(ConnectionId) -> Task) {
        let id = ConnectionId(self.last_id.get() + 1);
        self.last_id.set(id.0);
        let mut handshakes = self.handshakes.borrow_mut();
        handshakes.push_back((id, task(id)));
        if handshakes.len() > HANDSHAKES_MAX {
            handshakes.pop_front();
        }
    }

    /// Makes a connection, whose handshake is over, the one that `node` sends on. An older one is closed: the peer has
    /// given it up. Returns `None`, and ends the task of the connection, if the node is no peer any more.
    pub(super) fn adopt(&self, id: ConnectionId, node: NodeId) -> Option<Rc<Peer>> {
        let task = self.end_handshake(id)?;
        let mut entries = self.entries.borrow_mut();
        let entry = entries.get_mut(&node)?;
        entry.reader = Some((id, task));
        Some(Rc::clone(&entry.peer))
    }

    /// Makes a connection, whose handshake is over, the one on which `node` sends a snapshot; otherwise as
    /// [`adopt`](Self::adopt).
    pub(super) fn adopt_transfer(&self, id: ConnectionId, node: NodeId) -> Option<Rc<Peer>> {
        let task = self.end_handshake(id)?;
        let mut entries = self.entries.borrow_mut();
        let entry = entries.get_mut(&node)?;
        entry.incoming = Some((id, task));
        Some(Rc::clone(&entry.peer))
    }

    /// Takes the task of a connection out of those in a handshake.
    pub(super) fn end_handshake(&self, id: ConnectionId) -> Option<Task> {
        let mut handshakes = self.handshakes.borrow_mut();
        let at = handshakes.iter().position(|(other, _)| *other == id)?;
        handshakes.remove(at).map(|(_, task)| task)
    }

    /// Ends all tasks.
    pub(super) fn close(&self) {
        self.entries.borrow_mut().clear();
        self.handshakes.borrow_mut().clear();
    }
}
