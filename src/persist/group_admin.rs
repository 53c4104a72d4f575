//! The nodes of a group, as administrators see and change them.

use super::group::GroupLog;
use super::group_requests::Waiter;
use crate::base::lsn::Lsn;
use crate::base::node_address::NodeAddress;
use crate::consensus::output::ChangeRefusal;
use crate::log::replicated::members::{Home, MemberChange};
use crate::log::replicated::types::NodeId;
use crate::node::link::facts::PeerFacts;

/// Why the nodes of a group are not changed.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum AdminRefusal {
    #[error("the number of a node is 1 or more")]
    NoNumber,
    #[error("this node does not lead, and knows no leader")]
    NoLeader,
    #[error("this node does not lead: ask node {0} at {1}")]
    Elsewhere(NodeId, String),
    #[error(
        "node {0} does not ask to join: start it with `node-id {0}`, an empty `dir` and the nodes of this group in its \
         `nodes`"
    )]
    NotWaiting(NodeId),
    #[error("node {0} has the address {1} already")]
    SameAddress(NodeId, String),
    #[error(
        "then the voters that answer would be no more than half: bring those back that do not, or remove them first"
    )]
    NoQuorum,
    #[error("another change is not finished")]
    Pending,
    #[error(transparent)]
    Change(#[from] ChangeRefusal),
    #[error("this node leads already")]
    Leads,
    #[error("only a voter can lead")]
    NoVoter,
    #[error("this node has no connection with that one")]
    Unreachable,
}

/// What is known of a node.
#[derive(Debug)]
pub(crate) struct NodeRow {
    pub(crate) number: u64,
    /// `None` if the group does not say.
    pub(crate) address: Option<NodeAddress>,
    pub(crate) role: Role,
    pub(crate) reach: Reach,
    /// Entries of the log that it lacks, if this node leads and has heard so.
    pub(crate) missing: Option<u64>,
    /// The last unit that it has on disk, likewise.
    pub(crate) lsn: Option<Lsn>,
    /// Bytes that went to it and came from it, snapshots included, and messages to it that were dropped.
    pub(crate) traffic: Traffic,
}

/// See [`NodeRow::traffic`].
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Traffic {
    pub(crate) sent_bytes: u64,
    pub(crate) received_bytes: u64,
    pub(crate) dropped: u64,
}

impl Traffic {
    fn of(link: &PeerFacts) -> Traffic {
        Traffic {
            sent_bytes: link.sending.bytes + link.outgoing.bytes,
            received_bytes: link.receiving.bytes + link.incoming.bytes,
            dropped: link.dropped,
        }
    }
}

/// What a node is in its group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    Leader,
    /// It votes, and follows.
    Voter,
    /// It follows only.
    Learner,
    /// It is no member, and asks to join.
    Waiting,
}

impl NodeRow {
    /// Whether the node votes and is not connected with this one.
    pub(crate) fn is_missing_voter(&self) -> bool {
        matches!(self.role, Role::Leader | Role::Voter) && self.reach == Reach::Disconnected
    }
}

/// Whether a node can be reached from this one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reach {
    /// It is this one.
    Own,
    Connected,
    Disconnected,
}

impl GroupLog {
    /// Returns the members and the nodes that ask to join, ordered by their numbers.
    pub(crate) fn nodes(&self) -> Vec<NodeRow> {
        let facts = self.facts();
        let of_member = |node: NodeId| {
            let (peer, home) = (facts.peer(node), self.members().homes.get(&node));
            let role = match self.members().voters.contains(&node) {
                true if Some(node) == self.leader() => Role::Leader,
                true => Role::Voter,
                false => Role::Learner,
            };
            NodeRow {
                number: node.get(),
                address: home.map(|home| home.address.clone()),
                role,
                reach: match peer {
                    _ if Some(node) == facts.own => Reach::Own,
                    Some(peer) if peer.link.is_connected() => Reach::Connected,
                    _ => Reach::Disconnected,
                },
                missing: if role == Role::Leader { Some(0) } else { peer.and_then(|peer| peer.missing) },
                lsn: peer.and_then(|peer| peer.lsn),
                traffic: peer.map(|peer| Traffic::of(&peer.link)).unwrap_or_default(),
            }
        };
        let mut rows: Vec<NodeRow> = self.members().all().map(of_member).collect();
        rows.extend(facts.strangers.iter().filter(|stranger| !self.members().contains(stranger.node)).map(
            |stranger| NodeRow {
                number: stranger.node.get(),
                address: Some(stranger.contact.address.clone()),
                role: Role::Waiting,
                reach: Reach::Disconnected,
                missing: None,
                lsn: None,
                traffic: Traffic::default(),
            },
        ));
        rows.sort_by_key(|row| row.number);
        rows
    }

    /// Returns the nodes that follow this one and are connected, each with its address and the last unit that it has on
    /// disk, as far as this one knows; none if it does not lead.
    pub(crate) fn replicas(&self) -> Vec<(NodeAddress, Lsn)> {
        let is_replica = |row: &NodeRow| self.leads() && row.reach == Reach::Connected;
        let told = |row: NodeRow| Some((row.address?, row.lsn.unwrap_or(Lsn::NONE)));
        self.nodes().into_iter().filter(is_replica).filter_map(told).collect()
    }

    /// Adds a node that asks to join, for a client. Its [answer](GroupLog::take_answer) comes when that is committed.
    pub(crate) fn add(&mut self, number: u64, client: Waiter) -> Result<(), AdminRefusal> {
        self.must_lead()?;
        let node = numbered(number)?;
        if self.members().contains(node) {
            return Err(ChangeRefusal::Member.into());
        }
        let facts = self.facts();
        let stranger = facts.strangers.iter().find(|stranger| stranger.node == node);
        let stranger = stranger.ok_or(AdminRefusal::NotWaiting(node))?;
        let home = Home { address: stranger.contact.address.clone(), birth: stranger.identity.birth };
        let place = home.address.for_nodes();
        if let Some(other) = self.members().homes.iter().find(|(_, other)| other.address.for_nodes() == place) {
            return Err(AdminRefusal::SameAddress(*other.0, place));
        }
        self.begin(MemberChange::AddLearner(node, home), client)
    }

    /// Makes a learner a voter; otherwise as [`add`](Self::add).
    pub(crate) fn promote(&mut self, number: u64, client: Waiter) -> Result<(), AdminRefusal> {
        self.must_lead()?;
        self.begin(MemberChange::Promote(numbered(number)?), client)
    }

    /// Removes a member; otherwise as [`add`](Self::add).
    pub(crate) fn remove(&mut self, number: u64, client: Waiter) -> Result<(), AdminRefusal> {
        self.must_lead()?;
        self.begin(MemberChange::Remove(numbered(number)?), client)
    }

    fn begin(&mut self, change: MemberChange, client: Waiter) -> Result<(), AdminRefusal> {
        if !self.keeps_quorum(&change) {
            return Err(AdminRefusal::NoQuorum);
        }
        if self.change(change, client) { Ok(()) } else { Err(AdminRefusal::Pending) }
    }

    /// Whether more than half of the voters would answer after a change.
    fn keeps_quorum(&self, change: &MemberChange) -> bool {
        let mut voters = self.members().voters.clone();
        match change {
            MemberChange::AddLearner(..) => return true,
            // Refused in any case.
            MemberChange::Remove(node) if Some(*node) == self.leader() => return true,
            MemberChange::Promote(node) => voters.push(*node),
            MemberChange::Remove(node) => voters.retain(|voter| voter != node),
        }
        let facts = self.facts();
        // This node itself is no peer.
        let answers = |node: &&NodeId| facts.peer(**node).is_none_or(|peer| peer.link.is_connected());
        2 * voters.iter().filter(answers).count() > voters.len()
    }

    /// Begins to hand leadership over, once the replies made now may leave.
    pub(crate) fn transfer(&mut self, number: u64) -> Result<(), AdminRefusal> {
        self.must_lead()?;
        let to = numbered(number)?;
        match self.facts().peer(to) {
            _ if self.leader() == Some(to) => Err(AdminRefusal::Leads),
            _ if !self.members().voters.contains(&to) => Err(AdminRefusal::NoVoter),
            Some(peer) if !peer.link.is_connected() => Err(AdminRefusal::Unreachable),
            _ if self.hand_over(to) => Ok(()),
            _ => Err(AdminRefusal::Pending),
        }
    }

    /// Returns the number of a voter that could take over: the one that clients reach at a host and port, or else the
    /// one that has most of the log.
    pub(crate) fn heir(&self, target: Option<(&[u8], i64)>) -> Option<u64> {
        let facts = self.facts();
        let can_lead = |node: &&NodeId| facts.peer(**node).is_some_and(|peer| peer.link.is_connected());
        let is_meant = |node: &&NodeId| match (target, self.members().homes.get(*node)) {
            (None, _) => true,
            (Some((host, port)), Some(home)) => {
                (home.address.host().as_bytes(), i64::from(home.address.port)) == (host, port)
            }
            (Some(_), None) => false,
        };
        let lacks = |node: &&NodeId| facts.peer(**node).and_then(|peer| peer.missing).unwrap_or(u64::MAX);
        let heir = self.members().voters.iter().filter(can_lead).filter(is_meant).min_by_key(lacks)?;
        Some(heir.get())
    }

    fn must_lead(&self) -> Result<(), AdminRefusal> {
        match self.leader().zip(self.leader_address()) {
            _ if self.leads() => Ok(()),
            Some((leader, address)) => Err(AdminRefusal::Elsewhere(leader, address.for_clients())),
            None => Err(AdminRefusal::NoLeader),
        }
    }
}

fn numbered(number: u64) -> Result<NodeId, AdminRefusal> {
    NodeId::new(number).ok_or(AdminRefusal::NoNumber)
}
