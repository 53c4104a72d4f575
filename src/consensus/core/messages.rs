//! Messages: what is ignored, sent, and held back.

use raft::eraftpb::{Message as RaftMessage, MessageType};

use super::super::fuse::{self, Fuse};
use super::super::message::{Body, Message};
use super::{Core, Durable};
use crate::log::planted::{self, Bug};
use crate::log::replicated::types::Ballot;

impl Core {
    /// Whether a message has no effect now.
    pub(super) fn is_ignored(&self, message: &Message) -> bool {
        match &message.body {
            // A leader counts on the silence of the nodes that have heard of it, even if they have seen a new term
            // since: the crate forgets the leader then. A node that has just started may have promised as much.
            Body::Stand { forced, .. } => !forced && self.owes_silence(self.now) && !planted::is(Bug::NoVotingPause),
            Body::TakeOver => {
                !self.may_stand() || !self.orders.engine_is_ready() && !planted::is(Bug::StandWhileLoading)
            }
            // Nobody was asked for a vote before this node's own is durable.
            Body::Vote { pre: false, .. } => {
                self.durable.ballot != Ballot { term: message.term, vote: Some(self.id) } && !is_early_planted()
            }
            _ => false,
        }
    }

    /// Sends a message, unless this node must not stand for election.
    pub(super) fn send(&mut self, message: &RaftMessage) {
        let mut message = match Message::of(message) {
            Ok(message) => message,
            Err(error) => fuse::blow(Fuse::Forwarding, &error.to_string()),
        };
        match &mut message.body {
            Body::Heartbeat { all, stamp, .. } => {
                *all = self.committed();
                // Before an entry of its own term is committed, a leader does not know all that its predecessor has
                // committed.
                if self.raft.raft.raft_log.term(all.0).is_ok_and(|term| term == self.raft.raft.term) {
                    *stamp = self.freshness.stamp_of(message.to);
                }
            }
            Body::Heard { stamp, .. } => *stamp = self.freshness.stamp(self.now),
            _ => {}
        }
        let may_stand = self.orders.engine_is_ready() || planted::is(Bug::StandWhileLoading);
        if matches!(message.body, Body::Stand { .. }) && !may_stand {
            return;
        }
        fuse::check(Fuse::Durable, self.is_durable(&message), || format!("{message:?}, durable {:?}", self.durable));
        if let Body::Install(mark) = &message.body {
            let committed = self.committed();
            fuse::check(Fuse::Snapshot, mark.at.index <= committed, || format!("{mark:?}, committed {committed}"));
            self.out.streams.push(message);
        } else {
            self.out.messages.push(message);
        }
    }

    /// Whether the disk has everything that a message states.
    fn is_durable(&self, message: &Message) -> bool {
        let Durable { ballot, last, .. } = self.durable;
        let has_voted = |node| ballot == Ballot { term: message.term, vote: Some(node) };
        if is_early_planted() {
            return true;
        }
        match message.body {
            Body::Stand { pre: true, .. } | Body::Vote { pre: true, .. } => true,
            Body::Stand { pre: false, .. } => has_voted(self.id),
            Body::Vote { pre: false, granted: true, .. } => has_voted(message.to),
            Body::Appended { index, .. } => index <= last && message.term <= ballot.term,
            _ => message.term <= ballot.term,
        }
    }

    /// Whether a message of a follower need not wait for the writes before it. Answers to heartbeats vouch for nothing
    /// but the term. If they waited behind entries, a healthy leader would fall whenever the disks of its followers
    /// hang.
    pub(super) fn is_urgent(&self, message: &RaftMessage) -> bool {
        let kind = message.msg_type;
        kind == MessageType::MsgHeartbeatResponse
            && (self.durable.ballot.term.0 == message.term || planted::is(Bug::UndurableHeartbeat))
            && !planted::is(Bug::LateHeartbeat)
            || planted::is(Bug::SendBeforePersist)
            || kind == MessageType::MsgRequestVoteResponse && planted::is(Bug::VoteBeforeDurable)
            || kind == MessageType::MsgAppendResponse && planted::is(Bug::AckBeforePersist)
    }
}

/// Whether a planted bug lets messages go too early, so that the judge has to find it.
fn is_early_planted() -> bool {
    let bugs = [Bug::SendBeforePersist, Bug::VoteBeforeDurable, Bug::AckBeforePersist, Bug::UndurableHeartbeat];
    bugs.into_iter().any(planted::is)
}
