//! What a node knows of its group beside the data: for people, and for clients that look for the leader.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::link::Greeted;
use super::link::facts::PeerFacts;
use super::link::settings::Contact;
use crate::base::lsn::Lsn;
use crate::log::replicated::types::{NodeId, Term};
use crate::log::times::Times;

/// Nodes that ask to join. One more takes the place of the one that has been silent for the longest.
const STRANGERS_MAX: usize = 16;

/// How long a node that asked to join counts as one that still does. It asks every second.
const ASKS_FOR: Duration = Duration::from_secs(5);

/// What a node knows, renewed several times a second.
#[derive(Clone, Debug, Default)]
pub(crate) struct GroupFacts {
    /// The node itself, once it has told.
    pub(crate) own: Option<NodeId>,
    /// The newest term that the node knows.
    pub(crate) term: Term,
    /// The other members, ordered by their numbers.
    pub(crate) peers: Vec<PeerState>,
    /// Nodes that are no members and ask to join, ordered likewise.
    pub(crate) strangers: Vec<Greeted>,
    /// How long its own disk takes.
    pub(crate) times: Arc<Times>,
    /// When the certificate that it shows to the others expires, in seconds since 1970; `None` if it has none.
    pub(crate) certificate_expires_s: Option<i64>,
}

/// What a node knows of a peer.
#[derive(Clone, Debug)]
pub(crate) struct PeerState {
    pub(crate) link: PeerFacts,
    /// Where it said to be when it was last heard of.
    pub(crate) contact: Option<Contact>,
    /// Entries of the log that it lacks, if this node leads and has heard so.
    pub(crate) missing: Option<u64>,
    /// The last unit that it has on disk, if this node leads and knows.
    pub(crate) lsn: Option<Lsn>,
}

impl GroupFacts {
    /// Returns what is known of a peer.
    pub(crate) fn peer(&self, node: NodeId) -> Option<&PeerState> {
        self.peers.iter().find(|peer| peer.link.node == node)
    }
}

/// What nodes have said in their greetings.
#[derive(Debug, Default)]
pub(crate) struct Acquaintances {
    peers: BTreeMap<NodeId, Contact>,
    strangers: BTreeMap<NodeId, (Instant, Greeted)>,
}

impl Acquaintances {
    /// Notes the greeting of a peer.
    pub(crate) fn greeted(&mut self, peer: &Greeted) {
        self.strangers.remove(&peer.node);
        self.peers.insert(peer.node, peer.contact.clone());
    }

    /// Notes that a node which is no peer wants to be one.
    pub(crate) fn knocked(&mut self, stranger: Greeted) {
        self.peers.remove(&stranger.node);
        self.strangers.insert(stranger.node, (Instant::now(), stranger));
        if self.strangers.len() > STRANGERS_MAX
            && let Some(silent) = self.strangers.iter().min_by_key(|(_, (at, _))| *at).map(|(node, _)| *node)
        {
            self.strangers.remove(&silent);
        }
    }

    /// Returns what a peer has said.
    pub(crate) fn contact(&self, peer: NodeId) -> Option<Contact> {
        self.peers.get(&peer).cloned()
    }

    /// Returns the nodes that still ask to join.
    pub(crate) fn strangers(&mut self) -> Vec<Greeted> {
        self.strangers.retain(|_, (at, _)| at.elapsed() < ASKS_FOR);
        self.strangers.values().map(|(_, stranger)| stranger.clone()).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU64;

    use super::*;
    use crate::log::replicated::members::{Birth, History};
    use crate::node::link::settings::{Agreed, Identity};

    fn greeted(number: u64) -> Greeted {
        Greeted {
            node: NodeId::new(number).unwrap(),
            identity: Identity { birth: Birth(NonZeroU64::MAX), history: History::UNKNOWN },
            contact: Contact { address: "host:1@2".parse().unwrap(), sentinel_port: 0 },
            agreed: Agreed { protocol: 1, log: 1, effects: 1 },
        }
    }

    #[test]
    fn a_stranger_asks_until_it_is_a_peer_and_a_peer_may_become_one() {
        let mut known = Acquaintances::default();
        known.knocked(greeted(7));
        assert_eq!((known.strangers(), known.contact(greeted(7).node)), (vec![greeted(7)], None));
        known.greeted(&greeted(7));
        assert_eq!((known.strangers(), known.contact(greeted(7).node)), (vec![], Some(greeted(7).contact)));
        known.knocked(greeted(7));
        assert_eq!((known.strangers(), known.contact(greeted(7).node)), (vec![greeted(7)], None));
    }

    #[test]
    fn few_strangers_are_remembered() {
        let mut known = Acquaintances::default();
        (1..=STRANGERS_MAX as u64 + 5).for_each(|number| known.knocked(greeted(number)));
        let numbers: Vec<u64> = known.strangers().iter().map(|stranger| stranger.node.get()).collect();
        assert_eq!(numbers, (6..=STRANGERS_MAX as u64 + 5).collect::<Vec<_>>());
    }
}
