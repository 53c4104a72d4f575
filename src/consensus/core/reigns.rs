//! The reign of this node and its end, and the orders that tell the engine.

use std::mem;

use raft::eraftpb::{Entry as RaftEntry, Message as RaftMessage, MessageType};

use super::super::output::{Order, Why};
use super::super::reign::{Open, Reign};
use super::Core;
use crate::log::planted::{self, Bug};
use crate::log::replicated::mark::Mark;
use crate::log::replicated::types::{NodeId, Term};

impl Core {
    /// Appends an entry as the leader. Returns whether the crate took it.
    pub(super) fn append(&mut self, entry: RaftEntry) -> bool {
        let mut message =
            RaftMessage { msg_type: MessageType::MsgPropose, from: self.id.get(), ..RaftMessage::default() };
        message.set_entries(vec![entry].into());
        self.raft.raft.step(message).is_ok()
    }

    /// Ends the reign and lets another node take over when it has the whole log.
    pub(super) fn hand_over(&mut self, to: NodeId, why: Why) {
        self.close(why);
        self.reign = Reign::Leaving { term: self.term() };
        self.raft.transfer_leader(to.get());
        self.after_step();
    }

    /// Ends the reign. Leadership goes to a follower with the whole log; without one it is given up.
    pub(super) fn leave(&mut self, why: Why) {
        let last = self.raft.raft.raft_log.last_index();
        let has_all = |node: &NodeId| self.raft.raft.prs().get(node.get()).is_some_and(|pr| pr.matched == last);
        // A change that is not finished could remove the other node.
        let can_lead = |node: &NodeId| *node != self.id && has_all(node) && !self.raft.raft.has_pending_conf();
        match self.members.voters.iter().copied().find(can_lead) {
            Some(to) => self.hand_over(to, why),
            None => self.resign(why),
        }
    }

    /// Ends the reign, and gives up leadership if this node still has it.
    pub(super) fn resign(&mut self, why: Why) {
        if planted::is(Bug::OnAfterRefusal) && why == Why::Refused {
            return;
        }
        self.close(why);
        if self.leads() {
            let term = self.raft.raft.term;
            self.raft.raft.become_follower(term, 0);
        }
        self.after_step();
    }

    /// Ends the reign. From here on no block of it is taken, and nothing of it is published.
    pub(super) fn close(&mut self, why: Why) {
        if let Reign::Open(open) = mem::replace(&mut self.reign, Reign::None) {
            let number = self.order(Order::Deposed { term: open.term, why });
            self.orders.ready_after = number;
        }
    }

    /// Gives the engine its data from a snapshot.
    pub(super) fn load(&mut self, mark: Mark) {
        self.orders.last = mark.at;
        self.members = mark.members.clone();
        let index = mark.at.index;
        let number = self.order(Order::Load(mark));
        self.orders.ready_after = number;
        self.orders.entries.push_back((number, index));
    }

    pub(super) fn order(&mut self, order: Order) -> u64 {
        self.orders.issued += 1;
        self.out.orders.push((self.orders.issued, order));
        self.orders.issued
    }

    pub(super) fn lead(&mut self, term: Term) {
        self.order(Order::Lead(term));
        self.reign = Reign::Open(Open::new(term));
    }
}
