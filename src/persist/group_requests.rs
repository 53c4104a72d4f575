//! What clients have asked of a group itself, until it is done: a change of the members, or a change of the leader.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};

use crate::consensus::output::ChangeRefusal;
use crate::log::replicated::members::{MemberChange, Members};
use crate::log::replicated::types::{NodeId, Term};
use crate::node::door::{Call, Door};
use crate::spec::session_key::SessionKey;
use crate::spec::table::CommandId;

/// A client that waits, and its call.
pub(crate) type Waiter = (SessionKey, CommandId);

/// See the file's header. At most one thing is asked at a time.
#[derive(Default)]
pub(super) struct Requests {
    change: Option<Change>,
    /// The node that gets leadership once the round is confirmed, and with it the reply to whoever asked for that.
    heir: Option<(u64, NodeId)>,
}

/// A change of the members, until it is committed or refused.
struct Change {
    change: MemberChange,
    client: Waiter,
    /// Says whether the change was proposed.
    answer: Receiver<Result<(), ChangeRefusal>>,
    outcome: Option<Result<(), ChangeRefusal>>,
}

impl Requests {
    /// Whether nothing is asked.
    pub(super) fn are_done(&self) -> bool {
        self.change.is_none() && self.heir.is_none()
    }

    /// Asks the node for a change of the members, in the reign `term`.
    pub(super) fn change(&mut self, door: &Arc<Door>, term: Term, change: MemberChange, client: Waiter) {
        let ((sender, answer), its_door) = (channel(), Arc::clone(door));
        let tell = move |answer| {
            // The reign may have ended.
            let _ = sender.send(answer);
            its_door.wake_engine();
        };
        door.call(Call::Change(term, change.clone(), Box::new(tell)));
        self.change = Some(Change { change, client, answer, outcome: None });
    }

    /// Begins to hand leadership over, once a round is confirmed.
    pub(super) fn hand_over(&mut self, round: u64, to: NodeId) {
        self.heir = Some((round, to));
    }

    /// Returns the round that a change of the leader waits for.
    pub(super) fn awaited_round(&self) -> Option<u64> {
        self.heir.map(|(round, _)| round)
    }

    /// Notes the members as of the last entry.
    pub(super) fn note_members(&mut self, members: &Members) {
        if let Some(asked) = self.change.as_mut().filter(|asked| asked.change.is_made_in(members)) {
            asked.outcome = Some(Ok(()));
        }
    }

    /// Follows what the node has answered, and hands leadership over when that is due: all rounds up to `confirmed` are
    /// confirmed.
    pub(super) fn follow(&mut self, door: &Door, confirmed: u64) {
        if let Some(asked) = &mut self.change
            && let Ok(Err(refusal)) = asked.answer.try_recv()
        {
            asked.outcome = Some(Err(refusal));
        }
        if let Some((_, to)) = self.heir.take_if(|(round, _)| *round <= confirmed) {
            let answer = move |has_begun: bool| {
                if !has_begun {
                    tracing::warn!("leadership could not be handed to node {to}: try again");
                }
            };
            door.call(Call::Transfer(to, Box::new(answer)));
        }
    }

    /// Takes the answer to a client that has asked for a change.
    pub(super) fn take_answer(&mut self) -> Option<(Waiter, Result<(), ChangeRefusal>)> {
        let Change { client, outcome, .. } = self.change.take_if(|asked| asked.outcome.is_some())?;
        Some((client, outcome?))
    }
}
