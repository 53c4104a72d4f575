//! The links between the nodes of a group.
//!
//! Each node dials each of its peers and only sends on that connection; the other end only reads once both have greeted
//! each other. So two nodes have two connections, and never the same one twice.
//!
//! ```text
//!   send -> queue -> connection that this node dials ====> connection that the peer accepts -> Receiver
//! ```
//!
//! A link may lose messages, because consensus repeats what matters. It never delivers one that was changed on the way
//! or comes from another node than it says. It drops a message rather than deliver it late: nothing is queued without
//! a connection, and a connection that stalls is closed with what it holds.
//!
//! Each snapshot has a connection of its own, which ends with it: `outgoing` and `incoming` are its ends, and `offer`
//! is what they say to each other.
//!
//! `sending` and `receiving` are the two ends of a connection, and `peers` is what they share. A connection begins
//! with [`security`], then a `greeting`; after that come frames ([`mod@frame`]) with the messages of
//! [`codec`](crate::consensus::codec).
//!
//! Everything runs on one thread, inside a `LocalSet`.

pub(crate) mod error;
pub(crate) mod facts;
mod frame;
mod greeting;
mod handshake;
mod incoming;
mod limits;
mod offer;
mod outgoing;
mod peers;
mod queue;
mod receiving;
mod secret;
mod security;
mod sending;
pub(crate) mod settings;
#[cfg(test)]
mod tests;

use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;

use tokio::net::{TcpListener, lookup_host};

use crate::consensus::message::Message;
use crate::log::directory::Directory;
use crate::log::replicated::members::History;
use error::StartError;
use facts::PeerFacts;
use peers::{Peers, Report, Task};
use security::Guard;
use settings::{Identity, LinkSettings, PeerHome};

pub(crate) use greeting::{Greeted, Verdict};
pub(crate) use offer::Offer;
pub(crate) use peers::Receiver;

/// The links of a node. They end when this is dropped.
pub(crate) struct Links {
    peers: Rc<Peers>,
    address: SocketAddr,
    _listener: Task,
}

impl Links {
    /// Listens for peers on an address, a host and a port. There are no peers yet. Without security, only a loopback
    /// address is accepted.
    pub(crate) async fn start(
        settings: LinkSettings,
        address: &str,
        receiver: Rc<dyn Receiver>,
    ) -> Result<Links, StartError> {
        let guard = Guard::new(&settings.security)?;
        let failed = |reason| StartError::Listen { address: address.to_owned(), reason };
        let addresses: Vec<SocketAddr> = lookup_host(address).await.map_err(failed)?.collect();
        if let Some(exposed) = addresses.iter().find(|address| !guard.allows(**address)) {
            return Err(StartError::Exposed(*exposed));
        }
        let listener = TcpListener::bind(&addresses[..]).await.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let peers = Rc::new(Peers::new(settings, guard, receiver));
        let listener = Task::spawn(receiving::accept_all(Rc::clone(&peers), listener));
        Ok(Links { peers, address, _listener: listener })
    }

    /// Returns the address that peers reach this node at, if it listens on a single one.
    #[cfg_attr(not(test), expect(dead_code, reason = "only tests listen on any free port"))]
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Tells the history of the group to nodes that are greeted from now on.
    pub(crate) fn set_history(&self, history: History) {
        self.peers.identity.set(Identity { history, ..self.peers.identity.get() });
    }

    /// Sets the peers. This node itself is passed over. New peers are dialled; the links with those that are gone, or
    /// have moved, are closed without a word to the receiver. What is said of births holds for new connections.
    pub(crate) fn set_peers(&self, peers: &[PeerHome]) {
        self.peers.set(peers, |peer| Task::spawn(sending::serve(Rc::clone(&self.peers), peer)));
    }

    /// Queues a message for a peer. Drops it without a connection, or without room in the queue.
    pub(crate) fn send(&self, message: Message) {
        self.peers.send(message);
    }

    /// Sends a peer the snapshot that an `install` message names, from this directory, and then the message. `done` is
    /// called once, with whether the peer has taken both. It is not called if a newer snapshot to that peer takes the
    /// place of this one, or if all [end](Self::end_transfers). It must not change the links.
    pub(crate) fn transfer(&self, message: Message, directory: Arc<Directory>, done: impl FnOnce(bool) + 'static) {
        self.peers.begin_transfer(message.to, Report::new(done), |peer, report| {
            Task::spawn(outgoing::serve(Rc::clone(&self.peers), peer, message, directory, report))
        });
    }

    /// Ends all transfers of snapshots to peers.
    pub(crate) fn end_transfers(&self) {
        self.peers.end_transfers();
    }

    /// Returns the state of the link with each peer, ordered by node.
    pub(crate) fn facts(&self) -> Vec<PeerFacts> {
        self.peers.facts()
    }
}

impl Drop for Links {
    fn drop(&mut self) {
        // Each task keeps the peers alive.
        self.peers.close();
    }
}
