//! Changes of the members of the group.

use raft::eraftpb::{ConfChange, ConfChangeType};

use super::super::entries::{change_bytes, set_members};
use super::super::limits::{PROMOTE_LAG_MAX, VOTERS_MIN};
use super::super::output::{ChangeRefusal, Order, Why};
use super::Core;
use crate::log::replicated::members::{MEMBERS_MAX, MemberChange, Members};
use crate::log::replicated::types::{Position, Term};

impl Core {
    /// Proposes a change of the members, in the reign `term`. `Order::Members` tells when it holds.
    pub(crate) fn change(&mut self, term: Term, change: MemberChange) -> Result<(), ChangeRefusal> {
        if self.reign.open().is_none_or(|open| open.term != term) {
            return Err(ChangeRefusal::NotLeader);
        }
        if self.raft.raft.has_pending_conf() {
            return Err(ChangeRefusal::Pending);
        }
        self.judge(&change)?;
        let proposed = self.raft.propose_conf_change(change_bytes(&change).to_vec(), conf_change(&change)).is_ok();
        // The crate puts an empty entry in the place of a change that it does not accept.
        if !proposed || self.raft.raft.pending_conf_index != self.raft.raft.raft_log.last_index() {
            self.resign(Why::Refused);
            return Err(ChangeRefusal::NotLeader);
        }
        self.after_step();
        Ok(())
    }

    fn judge(&self, change: &MemberChange) -> Result<(), ChangeRefusal> {
        let Members { voters, learners, .. } = &self.members;
        match change {
            MemberChange::AddLearner(node, _) if self.members.contains(*node) => Err(ChangeRefusal::Member),
            MemberChange::AddLearner(..) if self.members.count() >= MEMBERS_MAX => Err(ChangeRefusal::TooMany),
            MemberChange::AddLearner(..) => Ok(()),
            MemberChange::Promote(node) if !learners.contains(node) => Err(ChangeRefusal::NoLearner),
            MemberChange::Promote(node) => {
                let has = self.raft.raft.prs().get(node.get()).map_or(0, |progress| progress.matched);
                let is_near = has > 0 && has + PROMOTE_LAG_MAX >= self.raft.raft.raft_log.last_index();
                if is_near { Ok(()) } else { Err(ChangeRefusal::Behind) }
            }
            MemberChange::Remove(node) if *node == self.id => Err(ChangeRefusal::Leader),
            MemberChange::Remove(node) if !self.members.contains(*node) => Err(ChangeRefusal::NoMember),
            MemberChange::Remove(node) if voters.contains(node) && voters.len() <= VOTERS_MIN => {
                Err(ChangeRefusal::TooFewVoters)
            }
            MemberChange::Remove(_) => Ok(()),
        }
    }

    pub(super) fn change_members(&mut self, at: Position, change: &MemberChange) {
        // The crate refuses a change that no sound leader proposes, on every node in the same way.
        match self.raft.apply_conf_change(&conf_change(change)) {
            Ok(state) => {
                set_members(&mut self.members, &state);
                self.members.note(change);
            }
            Err(error) => tracing::error!("the group can't make the change {change:?}: {error}"),
        }
        // A node can be elected before it learns that it was removed. The crate would let it lead on, outside the
        // group.
        if self.leads() && !self.members.voters.contains(&self.id) {
            self.close(Why::Removed);
            let term = self.raft.raft.term;
            self.raft.raft.become_follower(term, 0);
        }
        let members = self.members.clone();
        let number = self.order(Order::Members { at, members });
        self.orders.entries.push_back((number, at.index));
    }
}

fn conf_change(change: &MemberChange) -> ConfChange {
    let (change_type, node) = match change {
        MemberChange::AddLearner(node, _) => (ConfChangeType::AddLearnerNode, node),
        MemberChange::Promote(node) => (ConfChangeType::AddNode, node),
        MemberChange::Remove(node) => (ConfChangeType::RemoveNode, node),
    };
    ConfChange { change_type, node_id: node.get(), ..ConfChange::default() }
}
