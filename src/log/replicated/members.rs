//! The nodes of a group, the changes of them, and the bytes of both.
//!
//! All numbers are little-endian. docs/log-format.md has the tables: a home is a birth, two ports and a host; a member
//! is its number and its home, which is all zeros if it is unknown.
//!
//! | What | Bytes |
//! |---|---|
//! | members | history (16), number of voters (4), of learners (4), the voters, the learners, each ascending |
//! | a change | kind (1), zeros (7), number of the node (8), in kind 1 its home |
//!
//! The kinds: 1 a node joins as a learner, 2 it becomes a voter, 3 it is removed.

use std::collections::BTreeMap;
use std::num::NonZeroU64;

use sha2::{Digest as _, Sha256};

use super::types::NodeId;
use crate::base::hex::hex;
use crate::base::node_address::NodeAddress;

/// The most members of a group, learners included. A snapshot names them all at its end, where a reader must find them.
pub(crate) const MEMBERS_MAX: usize = 16;

/// A number that follows from the identity of a node's directory, so that a node with another directory is found out:
/// without its data it must not vote. Never 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Birth(pub(crate) NonZeroU64);

impl Birth {
    /// Returns the name of the node for clients in Cluster mode: 40 hexadecimal digits.
    pub(crate) fn name(self) -> String {
        name_of(b"tidegate node ", &self.0.get().to_le_bytes())
    }
}

/// What tells a group from any other, even from one with the same numbers and addresses: it follows from the births of
/// the nodes that founded the group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct History(pub(crate) [u8; 16]);

impl History {
    /// The history of a node that has no data yet.
    pub(crate) const UNKNOWN: History = History([0; 16]);

    /// Whether both are known and differ.
    pub(crate) fn is_other_than(self, other: History) -> bool {
        self != other && ![self, other].contains(&History::UNKNOWN)
    }

    /// Returns the name of the group for clients in Cluster mode: 40 hexadecimal digits.
    pub(crate) fn name(self) -> String {
        name_of(b"tidegate shard ", &self.0)
    }

    fn of(founders: &BTreeMap<NodeId, Home>) -> History {
        let mut hash = Sha256::new_with_prefix(b"tidegate history ");
        for (node, home) in founders {
            hash.update(node.get().to_le_bytes());
            hash.update(home.birth.0.get().to_le_bytes());
        }
        let digest: [u8; 32] = hash.finalize().into();
        History(digest.first_chunk().copied().unwrap_or_default())
    }
}

/// Returns a name that follows from an identity. The identity does not follow from it.
fn name_of(kind: &[u8], identity: &[u8]) -> String {
    hex(&Sha256::digest([kind, identity].concat())[..20])
}

/// Where a node is, and which directory it has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Home {
    pub(crate) address: NodeAddress,
    pub(crate) birth: Birth,
}

impl Home {
    fn encode(home: Option<&Home>, out: &mut Vec<u8>) {
        let Some(Home { address, birth }) = home else {
            out.extend([0; 13]);
            return;
        };
        out.extend(birth.0.get().to_le_bytes());
        out.extend(address.port.to_le_bytes());
        out.extend(address.node_port.to_le_bytes());
        out.push(address.host().len() as u8);
        out.extend(address.host().as_bytes());
    }

    /// Takes a home off the start of `bytes`; `Some(None)` is an unknown one.
    fn take(bytes: &mut &[u8]) -> Option<Option<Home>> {
        let birth = NonZeroU64::new(u64::from_le_bytes(*take(bytes)?));
        let [port, node_port] = [*take(bytes)?, *take(bytes)?].map(u16::from_le_bytes);
        let [host_bytes] = *take(bytes)?;
        let host = str::from_utf8(bytes.split_off(..usize::from(host_bytes))?).ok()?;
        let Some(birth) = birth else {
            return (host.is_empty() && port == 0 && node_port == 0).then_some(None);
        };
        Some(Some(Home { address: NodeAddress::new(host, port, node_port)?, birth: Birth(birth) }))
    }
}

/// The nodes of a group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Members {
    pub(crate) history: History,
    /// Nodes that vote, and of which more than half make a quorum.
    pub(crate) voters: Vec<NodeId>,
    /// Nodes that only follow.
    pub(crate) learners: Vec<NodeId>,
    /// The homes of the members, as far as the log says.
    pub(crate) homes: BTreeMap<NodeId, Home>,
}

impl Members {
    /// Returns the members of a new group.
    pub(crate) fn of(founders: BTreeMap<NodeId, Home>) -> Members {
        let history = History::of(&founders);
        Members { history, voters: founders.keys().copied().collect(), learners: Vec::new(), homes: founders }
    }

    /// Whether the node is a voter or a learner.
    pub(crate) fn contains(&self, node: NodeId) -> bool {
        self.voters.contains(&node) || self.learners.contains(&node)
    }

    /// Returns all members.
    pub(crate) fn all(&self) -> impl Iterator<Item = NodeId> {
        self.voters.iter().chain(&self.learners).copied()
    }

    /// Returns the number of members.
    pub(crate) fn count(&self) -> usize {
        self.voters.len() + self.learners.len()
    }

    /// Appends the bytes of the members.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        out.extend(self.history.0);
        out.extend((self.voters.len() as u32).to_le_bytes());
        out.extend((self.learners.len() as u32).to_le_bytes());
        for node in self.all() {
            out.extend(node.get().to_le_bytes());
            Home::encode(self.homes.get(&node), out);
        }
    }

    /// Takes members off the start of `bytes`, at most [`MEMBERS_MAX`] of them. Each group of members has one form.
    pub(crate) fn take(bytes: &mut &[u8]) -> Option<Members> {
        let history = History(*take(bytes)?);
        let [voters, learners] =
            [take(bytes)?, take(bytes)?].map(|count: &[u8; 4]| u32::from_le_bytes(*count) as usize);
        if voters.max(learners) > MEMBERS_MAX || voters + learners > MEMBERS_MAX {
            return None;
        }
        let mut members = Members { history, ..Members::default() };
        for number in 0..voters + learners {
            let node = NodeId::new(u64::from_le_bytes(*take(bytes)?))?;
            let list = if number < voters { &mut members.voters } else { &mut members.learners };
            if list.last().is_some_and(|last| *last >= node) {
                return None;
            }
            list.push(node);
            if let Some(home) = Home::take(bytes)? {
                members.homes.insert(node, home);
            }
        }
        members.learners.iter().all(|node| !members.voters.contains(node)).then_some(members)
    }

    /// Makes a change, as the group does once it is committed.
    pub(crate) fn make(&mut self, change: &MemberChange) {
        let (MemberChange::AddLearner(node, _) | MemberChange::Promote(node) | MemberChange::Remove(node)) = change;
        self.voters.retain(|voter| voter != node);
        self.learners.retain(|learner| learner != node);
        let joined = match change {
            MemberChange::AddLearner(..) => Some(&mut self.learners),
            MemberChange::Promote(_) => Some(&mut self.voters),
            MemberChange::Remove(_) => None,
        };
        if let Some(nodes) = joined {
            nodes.insert(nodes.partition_point(|other| other < node), *node);
        }
        self.note(change);
    }

    /// Notes what a change, which has happened, says of homes.
    pub(crate) fn note(&mut self, change: &MemberChange) {
        match change {
            MemberChange::AddLearner(node, home) => {
                self.homes.insert(*node, home.clone());
            }
            MemberChange::Remove(node) => {
                self.homes.remove(node);
            }
            MemberChange::Promote(_) => {}
        }
    }
}

/// One step in the membership of a group. Each step changes one node, so that every quorum before it meets every quorum
/// after it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum MemberChange {
    AddLearner(NodeId, Home),
    /// Makes a learner a voter.
    Promote(NodeId),
    Remove(NodeId),
}

const ADD_LEARNER: u8 = 1;
const PROMOTE: u8 = 2;
const REMOVE: u8 = 3;

impl MemberChange {
    /// Appends the bytes of the change.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        let (kind, node) = match self {
            MemberChange::AddLearner(node, _) => (ADD_LEARNER, node),
            MemberChange::Promote(node) => (PROMOTE, node),
            MemberChange::Remove(node) => (REMOVE, node),
        };
        out.extend([kind, 0, 0, 0, 0, 0, 0, 0]);
        out.extend(node.get().to_le_bytes());
        if let MemberChange::AddLearner(_, home) = self {
            Home::encode(Some(home), out);
        }
    }

    /// Whether members are as after the change.
    pub(crate) fn is_made_in(&self, members: &Members) -> bool {
        match self {
            MemberChange::AddLearner(node, _) => members.contains(*node),
            MemberChange::Promote(node) => members.voters.contains(node),
            MemberChange::Remove(node) => !members.contains(*node),
        }
    }

    /// Reads a change that fills `bytes`.
    pub(crate) fn read(mut bytes: &[u8]) -> Option<MemberChange> {
        let [kind, zeros @ ..] = take::<8>(&mut bytes)?;
        let node = NodeId::new(u64::from_le_bytes(*take(&mut bytes)?))?;
        let change = match *kind {
            ADD_LEARNER => MemberChange::AddLearner(node, Home::take(&mut bytes)??),
            PROMOTE => MemberChange::Promote(node),
            REMOVE => MemberChange::Remove(node),
            _ => return None,
        };
        (bytes.is_empty() && *zeros == [0; 7]).then_some(change)
    }
}

fn take<'a, const N: usize>(bytes: &mut &'a [u8]) -> Option<&'a [u8; N]> {
    bytes.split_off(..N)?.first_chunk()
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Returns the change by which a node joins, at a home of tests.
    pub(crate) fn joining(node: NodeId) -> MemberChange {
        MemberChange::AddLearner(node, home_of(node))
    }

    /// Returns a home of tests.
    pub(crate) fn home_of(node: NodeId) -> Home {
        let address = NodeAddress::new(&format!("node-{node}.test"), 6379, 16379).unwrap();
        Home { address, birth: Birth(NonZeroU64::new(node.get()).unwrap()) }
    }

    /// Returns the members of a new group of tests.
    pub(crate) fn of_voters(voters: &[NodeId]) -> Members {
        Members::of(voters.iter().map(|node| (*node, home_of(*node))).collect())
    }

    fn node(number: u64) -> NodeId {
        NodeId::new(number).unwrap()
    }

    #[test]
    fn members_and_changes_have_one_form() {
        let mut members = of_voters(&[node(3), node(1), node(2)]);
        members.note(&joining(node(9)));
        members.learners = vec![node(9)];
        members.homes.remove(&node(2));
        let mut bytes = Vec::new();
        members.encode(&mut bytes);
        assert_eq!(Members::take(&mut &bytes[..]), Some(members));
        for len in 0..bytes.len() {
            assert_eq!(Members::take(&mut &bytes[..len]), None, "{len}");
        }
        for change in [joining(node(7)), MemberChange::Promote(node(7)), MemberChange::Remove(node(7))] {
            let mut bytes = Vec::new();
            change.encode(&mut bytes);
            assert_eq!(MemberChange::read(&bytes), Some(change));
            for at in 0..8 {
                let mut other = bytes.clone();
                other[at] ^= 0x40;
                assert_eq!(MemberChange::read(&other), None, "{at}");
            }
            bytes.push(0);
            assert_eq!(MemberChange::read(&bytes), None);
        }
    }

    #[test]
    fn changes_are_made_one_after_the_other() {
        let mut members = of_voters(&[node(1), node(2), node(5)]);
        let mut after = |change| {
            members.make(&change);
            assert!(change.is_made_in(&members));
            let numbers = |nodes: &[NodeId]| nodes.iter().map(|node| node.get()).collect::<Vec<_>>();
            let homes = members.homes.keys().map(|node| node.get()).collect::<Vec<_>>();
            (numbers(&members.voters), numbers(&members.learners), homes)
        };
        assert_eq!(after(joining(node(4))), (vec![1, 2, 5], vec![4], vec![1, 2, 4, 5]));
        assert_eq!(after(joining(node(3))), (vec![1, 2, 5], vec![3, 4], vec![1, 2, 3, 4, 5]));
        assert_eq!(after(MemberChange::Promote(node(4))), (vec![1, 2, 4, 5], vec![3], vec![1, 2, 3, 4, 5]));
        assert_eq!(after(MemberChange::Remove(node(3))), (vec![1, 2, 4, 5], vec![], vec![1, 2, 4, 5]));
        assert_eq!(after(MemberChange::Remove(node(2))), (vec![1, 4, 5], vec![], vec![1, 4, 5]));
    }

    #[test]
    fn names_stay_the_same_in_all_versions() {
        assert_eq!(home_of(node(1)).birth.name(), "41ce55e7bc8f5abe0ef80555da582b38557fe4ff");
        assert_eq!(History([1; 16]).name(), "0003c364fba4f9e6703b74931d9ae87195873a34");
    }

    #[test]
    fn a_history_depends_on_the_births_of_the_founders_alone() {
        let of = |numbers: &[u64]| of_voters(&numbers.iter().copied().map(node).collect::<Vec<_>>()).history;
        let others = [of(&[1, 2]), of(&[1, 2, 4]), History::UNKNOWN];
        assert!(!others.contains(&of(&[1, 2, 3])));
        let mut homes = of_voters(&[node(1), node(2), node(3)]).homes;
        homes.get_mut(&node(1)).unwrap().address = "elsewhere:1@2".parse().unwrap();
        assert_eq!(Members::of(homes.clone()).history, of(&[1, 2, 3]));
        homes.get_mut(&node(1)).unwrap().birth = home_of(node(9)).birth;
        assert_ne!(Members::of(homes).history, of(&[1, 2, 3]));
    }

    #[test]
    fn members_that_no_group_has_are_refused() {
        let encoded = |voters: &[u64], learners: &[u64]| {
            let nodes = |numbers: &[u64]| numbers.iter().copied().map(node).collect();
            let mut bytes = Vec::new();
            Members { voters: nodes(voters), learners: nodes(learners), ..Members::default() }.encode(&mut bytes);
            Members::take(&mut &bytes[..])
        };
        assert!(encoded(&[1, 2, 3], &[4]).is_some());
        for (voters, learners) in [(&[2, 1][..], &[][..]), (&[1, 1], &[]), (&[1, 2], &[2])] {
            assert_eq!(encoded(voters, learners), None, "{voters:?} {learners:?}");
        }
        let all: Vec<u64> = (1..=MEMBERS_MAX as u64 + 1).collect();
        assert!(encoded(&all[1..], &[]).is_some());
        assert_eq!(encoded(&all, &[]), None);
        assert_eq!(encoded(&all[1..], &all[..1]), None);
    }
}
