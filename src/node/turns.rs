//! The turns of a node that has its data: each takes what has arrived since the one before, and lets the core decide.
//!
//! A turn has no socket, no thread and no clock of its own, so a test can run it as the thread does.

use std::sync::Arc;
use std::time::Duration;

use super::door::{Call, Door};
use super::error::NodeError;
use crate::consensus::core::Core;
use crate::consensus::message::Message;
use crate::consensus::output::{Output, Refusal};
use crate::log::group_commit::State;
use crate::log::replicated::log::EntryLog;
use crate::log::replicated::mark::Mark;
use crate::log::replicated::members::Members;
use crate::log::replicated::types::{Index, NodeId};

/// See the module's header.
pub(crate) struct Turns {
    core: Core,
    log: EntryLog,
    door: Arc<Door>,
    /// Bytes of log to keep for followers beyond the newest snapshot.
    keep_bytes: u64,
    /// The last entry that a snapshot of this node covers.
    covered: Index,
}

/// What a turn leaves to its caller.
#[derive(Debug, Default)]
pub(crate) struct Done {
    pub(crate) messages: Vec<Message>,
    /// Messages that were refused, each with the node that sent it.
    pub(crate) refused: Vec<(NodeId, Refusal)>,
    /// The engine has asked for the end.
    pub(crate) stops: bool,
}

impl Turns {
    /// Continues with a core whose newest snapshot is `snapshot`, and with its log.
    pub(crate) fn new(core: Core, log: EntryLog, door: Arc<Door>, snapshot: &Mark, keep_bytes: u64) -> Turns {
        Turns { core, log, door, keep_bytes, covered: snapshot.at.index }
    }

    /// Returns the members of the group, as this node knows them.
    pub(crate) fn members(&self) -> &Members {
        self.core.members()
    }

    /// Takes everything that has arrived, then the time. The writes and the news are on their way when this returns;
    /// the messages are the caller's to send.
    pub(crate) fn turn(&mut self, received: Vec<(NodeId, Message)>) -> Result<Done, NodeError> {
        let mut done = Done::default();
        let now = self.door.now();
        self.core.persisted(self.log.durable());
        for (peer, message) in received {
            if let Err(refusal) = self.core.receive(peer, message, now) {
                done.refused.push((peer, refusal));
            }
        }
        for call in self.door.take_calls() {
            done.stops |= self.take_call(call, now);
        }
        self.core.time(self.door.now());
        self.follow(&mut done);
        match (self.log.state(), self.log.failure()) {
            (State::Poisoned, Some(failure)) => Err(NodeError::Failed(failure.to_string())),
            _ => Ok(done),
        }
    }

    /// Returns whether the call asks for the end.
    fn take_call(&mut self, call: Call, now: Duration) -> bool {
        match call {
            Call::Propose(block) => self.core.propose(block),
            Call::Handled(number) => self.core.handled(number),
            Call::Confirm(round) => self.core.confirm(round, now),
            Call::Stuck => self.core.engine_is_stuck(),
            Call::SnapshotMade(mark) => self.keep(mark),
            Call::Transfer(to, answer) => answer(self.core.transfer(to)),
            Call::Change(term, change, answer) => answer(self.core.change(term, change)),
            Call::Stop => return true,
        }
        false
    }

    /// Gives up the log that a snapshot covers, as far as no follower wants it.
    fn keep(&mut self, mark: Mark) {
        self.covered = mark.at.index;
        self.core.snapshot_made(mark);
        self.log.retire(self.covered, self.core.wanted(), self.keep_bytes);
        self.core.cut(self.covered);
    }

    /// Does what the core has decided, in the order that its contract asks for.
    fn follow(&mut self, done: &mut Done) {
        let Output { lease_until, messages, streams, writes, orders, committed, confirmed, wants_snapshot } =
            self.core.take_output();
        self.door.set_lease(lease_until);
        done.messages = messages;
        for write in writes {
            self.log.write(write);
        }
        for stream in streams {
            // There is no way for snapshots to travel yet; the core tries again.
            self.core.reported(stream.to, false);
        }
        if !orders.is_empty() || committed.is_some() || confirmed.is_some() || wants_snapshot {
            self.door.tell(|news| {
                news.orders.extend(orders);
                news.committed = committed.or(news.committed);
                news.confirmed = confirmed.or(news.confirmed);
                news.wants_snapshot |= wants_snapshot;
            });
        }
    }

    /// Ends the log cleanly.
    pub(crate) fn close(self) -> State {
        self.log.close()
    }
}
