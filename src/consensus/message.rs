//! Messages between nodes: only the kinds that a node may send, each with only the fields that it has.
//!
//! The crate's own type has kinds that bring down the node that receives them, and fields that contradict each other. A
//! [`Message`] can state none of that. What depends on the state of the receiver is checked in [`Core::receive`].
//!
//! [`Core::receive`]: super::core::Core::receive

use bytes::Bytes;
use raft::eraftpb::{Message as RaftMessage, MessageType};

use super::entries::{foreign, mark_of, own, snapshot_of};
use super::freshness::Stamp;
use crate::log::replicated::block::BlockError;
use crate::log::replicated::entry::{Entry, Payload};
use crate::log::replicated::mark::Mark;
use crate::log::replicated::types::{Index, NodeId, Term};

/// A message from one node to another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Message {
    pub(crate) from: NodeId,
    pub(crate) to: NodeId,
    /// The term of the sender; in a pre-vote, the term that it would stand for.
    pub(crate) term: Term,
    pub(crate) body: Body,
}

/// An entry without its index: it lies behind the one before it, so a message can have no gap.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SentEntry {
    pub(crate) term: Term,
    pub(crate) payload: Payload,
}

/// The content of a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Body {
    /// The leader's entries behind one that the follower should have.
    Append {
        after: (Index, Term),
        entries: Vec<SentEntry>,
        committed: Index,
    },
    /// The follower has everything up to `index`.
    Appended {
        index: Index,
        committed: Index,
    },
    /// The follower lacks the entry `index`, or has another one there. Its log may agree up to `hint`.
    Refused {
        index: Index,
        hint: (Index, Term),
        committed: Index,
    },
    /// Asks for a vote. A node that was told to take over is `forced`, and does not wait for the leader's silence.
    Stand {
        pre: bool,
        last: (Index, Term),
        committed: (Index, Term),
        forced: bool,
    },
    Vote {
        pre: bool,
        granted: bool,
        committed: (Index, Term),
    },
    /// The leader is there. `round` asks for a confirmation that it still leads. `committed` is a part of the
    /// follower's log; `all` is all that the leader knows to be committed, some time after the follower made `stamp`.
    Heartbeat {
        committed: Index,
        round: Option<Round>,
        all: Index,
        stamp: Stamp,
    },
    Heard {
        committed: Index,
        round: Option<Round>,
        stamp: Stamp,
    },
    /// Follows a snapshot whose file the receiver has got by another way.
    Install(Mark),
    /// Tells a follower with the whole log to take over at once.
    TakeOver,
}

/// A round of questions by which a leader confirms that it still leads. The numbers of a reign grow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Round {
    pub(crate) term: Term,
    pub(crate) number: u64,
}

/// A context that asks voters not to wait for the leader's silence, as the crate writes it.
const FORCED: &[u8] = b"CampaignTransfer";

/// Why the crate's message has no place among ours. Each is a mistake in this program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Unsendable {
    #[error("a message of the kind {0:?} is no message between nodes")]
    Kind(MessageType),
    #[error("a message names node 0")]
    Node,
    #[error("an entry is malformed: {0}")]
    Entry(#[from] BlockError),
    #[error("a snapshot is malformed")]
    Snapshot,
}

impl Message {
    /// Returns a message of the crate in our own form. Of what the crate does not know nothing is set.
    pub(super) fn of(message: &RaftMessage) -> Result<Message, Unsendable> {
        let committed = Index(message.commit);
        let committed_in_term = (committed, Term(message.commit_term));
        let round = Round::read(&message.context);
        let place = (Index(message.index), Term(message.log_term));
        let body = match message.msg_type {
            MessageType::MsgAppend => {
                let sent = |entry| own(entry).map(|Entry { term, payload, .. }| SentEntry { term, payload });
                Body::Append {
                    after: place,
                    entries: message.entries.iter().map(sent).collect::<Result<_, _>>()?,
                    committed,
                }
            }
            MessageType::MsgAppendResponse if message.reject => {
                Body::Refused { index: place.0, hint: (Index(message.reject_hint), Term(message.log_term)), committed }
            }
            MessageType::MsgAppendResponse => Body::Appended { index: place.0, committed },
            MessageType::MsgRequestVote | MessageType::MsgRequestPreVote => Body::Stand {
                pre: message.msg_type == MessageType::MsgRequestPreVote,
                last: place,
                committed: committed_in_term,
                forced: message.context == FORCED,
            },
            MessageType::MsgRequestVoteResponse | MessageType::MsgRequestPreVoteResponse => Body::Vote {
                pre: message.msg_type == MessageType::MsgRequestPreVoteResponse,
                granted: !message.reject,
                committed: committed_in_term,
            },
            MessageType::MsgHeartbeat => Body::Heartbeat { committed, round, all: Index(0), stamp: Stamp::default() },
            MessageType::MsgHeartbeatResponse => Body::Heard { committed, round, stamp: Stamp::default() },
            MessageType::MsgSnapshot => Body::Install(mark_of(message.get_snapshot()).ok_or(Unsendable::Snapshot)?),
            MessageType::MsgTimeoutNow => Body::TakeOver,
            kind => return Err(Unsendable::Kind(kind)),
        };
        let node = |number| NodeId::new(number).ok_or(Unsendable::Node);
        Ok(Message { from: node(message.from)?, to: node(message.to)?, term: Term(message.term), body })
    }

    /// Returns the message in the form of the crate. The index of the last entry must not overflow.
    pub(super) fn foreign(&self) -> RaftMessage {
        let mut message =
            RaftMessage { from: self.from.get(), to: self.to.get(), term: self.term.0, ..RaftMessage::default() };
        match &self.body {
            Body::Append { after: (index, term), entries, committed } => {
                message.msg_type = MessageType::MsgAppend;
                (message.index, message.log_term, message.commit) = (index.0, term.0, committed.0);
                let mut index = *index;
                let entries = entries.iter().map(|SentEntry { term, payload }| {
                    index = index.next();
                    foreign(&Entry { index, term: *term, payload: payload.clone() })
                });
                message.entries = entries.collect::<Vec<_>>().into();
            }
            Body::Appended { index, committed } => {
                message.msg_type = MessageType::MsgAppendResponse;
                (message.index, message.commit) = (index.0, committed.0);
            }
            Body::Refused { index, hint: (hint, term), committed } => {
                message.msg_type = MessageType::MsgAppendResponse;
                message.reject = true;
                (message.index, message.reject_hint, message.log_term) = (index.0, hint.0, term.0);
                message.commit = committed.0;
            }
            Body::Stand { pre, last, committed, forced } => {
                message.msg_type = if *pre { MessageType::MsgRequestPreVote } else { MessageType::MsgRequestVote };
                (message.index, message.log_term) = (last.0.0, last.1.0);
                (message.commit, message.commit_term) = (committed.0.0, committed.1.0);
                message.context = Bytes::from_static(if *forced { FORCED } else { b"" });
            }
            Body::Vote { pre, granted, committed } => {
                message.msg_type =
                    if *pre { MessageType::MsgRequestPreVoteResponse } else { MessageType::MsgRequestVoteResponse };
                message.reject = !granted;
                (message.commit, message.commit_term) = (committed.0.0, committed.1.0);
            }
            Body::Heartbeat { committed, round, .. } => {
                message.msg_type = MessageType::MsgHeartbeat;
                message.commit = committed.0;
                message.context = round.map_or(Bytes::new(), Round::bytes);
            }
            Body::Heard { committed, round, .. } => {
                message.msg_type = MessageType::MsgHeartbeatResponse;
                message.commit = committed.0;
                message.context = round.map_or(Bytes::new(), Round::bytes);
            }
            Body::Install(mark) => {
                message.msg_type = MessageType::MsgSnapshot;
                message.set_snapshot(snapshot_of(mark));
            }
            Body::TakeOver => message.msg_type = MessageType::MsgTimeoutNow,
        }
        message
    }
}

impl Round {
    /// Returns the round as the context of the crate's messages.
    pub(super) fn bytes(self) -> Bytes {
        [self.term.0.to_le_bytes(), self.number.to_le_bytes()].concat().into()
    }

    pub(super) fn read(bytes: &[u8]) -> Option<Round> {
        let (term, number) = bytes.split_first_chunk::<8>()?;
        Some(Round { term: Term(u64::from_le_bytes(*term)), number: u64::from_le_bytes(number.try_into().ok()?) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::replicated::block::tests::block;
    use crate::log::replicated::members::tests::{joining, of_voters};
    use crate::log::replicated::types::{Link, Position};

    fn node(number: u64) -> NodeId {
        NodeId::new(number).unwrap()
    }

    #[test]
    fn messages_keep_their_form_both_ways() {
        let payloads =
            [Payload::Start, Payload::Block(block(2, Link::default(), &[b"x"])), Payload::Change(joining(node(3)))];
        let entries: Vec<_> = payloads.map(|payload| SentEntry { term: Term(2), payload }).into();
        let (at, committed) = ((Index(7), Term(2)), (Index(5), Term(1)));
        let round = Some(Round { term: Term(3), number: 9 });
        let mark = Mark {
            at: Position { index: Index(4), term: Term(1), link: Link::default() },
            members: of_voters(&[node(1), node(2)]),
            serial: 8,
        };
        let mut bodies = vec![
            Body::Append { after: at, entries, committed: Index(5) },
            Body::Append { after: at, entries: vec![], committed: Index(5) },
            Body::Appended { index: Index(7), committed: Index(5) },
            Body::Refused { index: Index(7), hint: (Index(6), Term(1)), committed: Index(5) },
            Body::Install(mark),
            Body::TakeOver,
        ];
        for yes in [false, true] {
            bodies.push(Body::Stand { pre: yes, last: at, committed, forced: !yes });
            bodies.push(Body::Vote { pre: yes, granted: !yes, committed });
            let (round, stamp) = (round.filter(|_| yes), Stamp::default());
            bodies.push(Body::Heartbeat { committed: Index(5), round, all: Index(0), stamp });
            bodies.push(Body::Heard { committed: Index(5), round, stamp });
        }
        for body in bodies {
            let message = Message { from: node(1), to: node(2), term: Term(3), body };
            assert_eq!(Message::of(&message.foreign()), Ok(message));
        }
    }

    #[test]
    fn kinds_that_stay_within_a_node_are_never_sent() {
        let kinds = [
            MessageType::MsgPropose,
            MessageType::MsgHup,
            MessageType::MsgBeat,
            MessageType::MsgReadIndex,
            MessageType::MsgReadIndexResp,
            MessageType::MsgTransferLeader,
            MessageType::MsgUnreachable,
            MessageType::MsgSnapStatus,
            MessageType::MsgCheckQuorum,
        ];
        for kind in kinds {
            let message = RaftMessage { msg_type: kind, from: 1, to: 2, ..RaftMessage::default() };
            assert_eq!(Message::of(&message), Err(Unsendable::Kind(kind)));
        }
        let message = RaftMessage { msg_type: MessageType::MsgTimeoutNow, from: 1, ..RaftMessage::default() };
        assert_eq!(Message::of(&message), Err(Unsendable::Node));
    }
}
