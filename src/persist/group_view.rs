//! The group as this node describes it to clients that look for the leader.

use super::group::GroupLog;
use crate::base::lsn::Lsn;
use crate::base::node_address::NodeAddress;
use crate::log::replicated::types::NodeId;

/// See the file's header.
#[derive(Debug)]
pub(crate) struct GroupView {
    /// The members, ordered by their numbers.
    pub(crate) members: Vec<MemberView>,
    /// The newest term that this node knows.
    pub(crate) term: u64,
}

/// A member, as clients are told of it.
#[derive(Debug)]
pub(crate) struct MemberView {
    pub(crate) number: u64,
    /// Where clients reach it, and its name of 40 hexadecimal digits, if the log says so.
    pub(crate) home: Option<(NodeAddress, String)>,
    pub(crate) leads: bool,
    pub(crate) votes: bool,
    pub(crate) is_own: bool,
    /// It can be reached from here, or is this node.
    pub(crate) is_connected: bool,
    /// The last unit that it has on disk, if this node leads and knows.
    pub(crate) lsn: Option<Lsn>,
    /// The port for clients of Sentinel; 0 if it has none, or was not heard of yet.
    pub(crate) sentinel_port: u16,
}

impl GroupView {
    /// Returns the leader to be named.
    pub(crate) fn leader(&self) -> Option<&MemberView> {
        self.members.iter().find(|member| member.leads)
    }

    /// Returns the members that do not lead.
    pub(crate) fn followers(&self) -> impl Iterator<Item = &MemberView> {
        self.members.iter().filter(|member| !member.leads)
    }

    /// Returns how many voters must agree.
    pub(crate) fn quorum(&self) -> usize {
        self.members.iter().filter(|member| member.votes).count() / 2 + 1
    }
}

impl GroupLog {
    /// Whether this node belongs to the group, as far as its own log says.
    pub(crate) fn is_member(&self) -> bool {
        self.facts().own.is_some_and(|own| self.members().contains(own))
    }

    /// Returns the group as clients are told of it.
    pub(crate) fn view(&self) -> GroupView {
        let (facts, leader) = (self.facts(), self.leader());
        let of_member = |node: NodeId| {
            let (is_own, peer) = (Some(node) == facts.own, facts.peer(node));
            let home = self.members().homes.get(&node);
            MemberView {
                number: node.get(),
                home: home.map(|home| (home.address.clone(), home.birth.name())),
                leads: Some(node) == leader && home.is_some(),
                votes: self.members().voters.contains(&node),
                is_own,
                is_connected: is_own || peer.is_some_and(|peer| peer.link.is_connected()),
                lsn: peer.and_then(|peer| peer.lsn),
                sentinel_port: peer.and_then(|peer| peer.contact.as_ref()).map_or(0, |contact| contact.sentinel_port),
            }
        };
        let mut members: Vec<MemberView> = self.members().all().map(of_member).collect();
        members.sort_by_key(|member| member.number);
        GroupView { members, term: facts.term.0 }
    }
}
