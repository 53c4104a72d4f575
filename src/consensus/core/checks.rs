//! Messages that are refused: no sound node sends them, and the crate would bring this node down or take them for true.

use std::mem;

use super::super::limits::{INDEX_MAX, TERM_JUMP_MAX, VOTERS_MIN};
use super::super::message::{Body, Message, SentEntry};
use super::super::output::Refusal;
use super::Core;
use crate::log::replicated::entry::Payload;
use crate::log::replicated::mark::Mark;
use crate::log::replicated::members::MEMBERS_MAX;
use crate::log::replicated::types::{Index, Link, Term};

impl Core {
    /// Refuses a message that contradicts itself, its sender's earlier ones, or this node's log.
    pub(super) fn check(&self, message: &Message) -> Result<(), Refusal> {
        let (term, last) = (self.term(), self.last().index);
        let is_current = message.term >= term;
        let is_sound = message.term.0 <= term.0.saturating_add(TERM_JUMP_MAX).min(INDEX_MAX)
            && match &message.body {
                Body::Append { after, entries, committed } => {
                    is_place(*after) && committed.0 <= INDEX_MAX && are_sound(*after, entries, message.term)
                }
                Body::Appended { index, .. } => !(message.term == term && self.leads() && *index > last),
                Body::Refused { index, hint, .. } => index.0 <= INDEX_MAX && hint.0 <= *index,
                Body::Stand { last, committed, .. } => is_place(*last) && is_place(*committed) && committed.0 <= last.0,
                Body::Vote { committed, .. } => committed.0.0 <= INDEX_MAX,
                Body::Install(mark) => is_mark(mark) && mark.at.term <= message.term,
                Body::Heartbeat { .. } | Body::Heard { .. } | Body::TakeOver => true,
            };
        if !is_sound {
            return Err(Refusal::Malformed);
        }
        match &message.body {
            Body::Append { after, entries, .. } if is_current => self.check_fork(*after, entries),
            Body::Install(mark) if is_current => self.check_mark(mark),
            Body::Heartbeat { committed, .. } if is_current && *committed > last => {
                Err(Refusal::DataLost { committed: *committed, last })
            }
            _ => Ok(()),
        }
    }

    /// Refuses entries that differ from what is committed here, or whose blocks do not continue the chain.
    fn check_fork(&self, (before, term): (Index, Term), entries: &[SentEntry]) -> Result<(), Refusal> {
        let differs = |index: Index, term: Term| {
            let own = self.at_or_before_committed(index);
            own.is_some_and(|own| own != term)
        };
        if differs(before, term) {
            return Err(Refusal::Fork(before));
        }
        // The chain is known as long as the entries are in memory.
        let at = self.raft.store().at(before).filter(|at| at.term == term);
        let mut link: Option<Link> = at.map(|at| at.link);
        let mut index = before;
        for entry in entries {
            index = index.next();
            if differs(index, entry.term) {
                return Err(Refusal::Fork(index));
            }
            if let (Some(before), Payload::Block(block)) = (link, &entry.payload) {
                if !block.follows(before) {
                    return Err(Refusal::Fork(index));
                }
                link = Some(block.link());
            }
            // The crate passes over an entry that is here already, judged by its term alone.
            let own = self.raft.store().at(index).filter(|own| own.term == entry.term);
            if link.zip(own).is_some_and(|(link, own)| link != own.link) {
                return Err(Refusal::Fork(index));
            }
        }
        Ok(())
    }

    fn check_mark(&self, mark: &Mark) -> Result<(), Refusal> {
        match self.at_or_before_committed(mark.at.index) {
            Some(own) if own != mark.at.term => Err(Refusal::Fork(mark.at.index)),
            _ => Ok(()),
        }
    }

    /// Returns the term of a committed entry, if it is known.
    fn at_or_before_committed(&self, index: Index) -> Option<Term> {
        self.raft.store().term_of(index).filter(|_| index <= self.committed())
    }
}

/// Whether an entry can have this index and term: only the place before the first one has the term 0.
fn is_place((index, term): (Index, Term)) -> bool {
    index.0 <= INDEX_MAX && (index == Index(0)) == (term == Term(0))
}

/// Whether the terms of entries ascend up to that of their message, and each block names the term of its entry.
fn are_sound((index, mut before): (Index, Term), entries: &[SentEntry], term: Term) -> bool {
    let is_sound = |entry: &SentEntry| {
        let is_sorted = mem::replace(&mut before, entry.term) <= entry.term;
        let is_own = match &entry.payload {
            Payload::Block(block) => block.reign == entry.term && block.first_lsn.get() <= INDEX_MAX,
            Payload::Start | Payload::Change(_) => true,
        };
        is_sorted && is_own && entry.term > Term(0) && entry.term <= term
    };
    index.0 + entries.len() as u64 <= INDEX_MAX && entries.iter().all(is_sound)
}

fn is_mark(mark: &Mark) -> bool {
    let (at, voters, learners) = (mark.at, &mark.members.voters, &mark.members.learners);
    is_place((at.index, at.term))
        && at.index > Index(0)
        && at.link.lsn.get() <= INDEX_MAX
        && voters.len() >= VOTERS_MIN
        && voters.is_sorted_by(|a, b| a < b)
        && learners.is_sorted_by(|a, b| a < b)
        && learners.iter().all(|node| !voters.contains(node))
        && mark.members.count() <= MEMBERS_MAX
        && mark.members.homes.keys().all(|node| mark.members.contains(*node))
}
