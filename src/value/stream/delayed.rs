//! Messages that a stream holds back until they are due.
//!
//! A message is identified by an id, `<due>-<ticket>`. The milliseconds give the time when it is due, so that ids are
//! in the order in which messages fall due. The ticket is a number that a stream never gives out twice as long as it
//! exists, so cancelling an id a second time never hits another message. When the message is due, it becomes an entry
//! with that id, or with the stream's next id if the stream is already past it.
//!
//! Layout of a message: the number of its pairs, then fields and values alternating, each with its length. Numbers are
//! LEB128, as in nodes, so that a message reads like an entry.

use std::collections::BTreeMap;

use super::id::StreamId;
use super::node::{Entry, Pairs};
use crate::value::leb128::{put_bytes, put_number};

/// The part of [`Attendance`](super::policy::Attendance) about messages that are not due yet.
#[derive(Clone, Debug, Default)]
pub(super) struct Delayed {
    messages: BTreeMap<StreamId, Box<[u8]>>,
    /// Bytes of all messages.
    bytes: usize,
    /// The last ticket given out.
    tickets: u64,
}

/// The former state of a message, and the last ticket given out by then.
pub(super) struct DelayedState {
    id: StreamId,
    before: Option<Box<[u8]>>,
    tickets: u64,
}

impl DelayedState {
    /// The state of a message when the stream has never had any.
    pub(super) fn none(id: StreamId) -> DelayedState {
        DelayedState { id, before: None, tickets: 0 }
    }

    pub(super) fn mem_bytes(&self) -> usize {
        self.before.as_ref().map_or(0, |message| message.len())
    }
}

impl Delayed {
    pub(super) fn is_empty(&self) -> bool {
        self.messages.is_empty()
    }

    /// Whether there is nothing to record: no message was ever held back.
    pub(super) fn is_blank(&self) -> bool {
        self.messages.is_empty() && self.tickets == 0
    }

    pub(super) fn len(&self) -> usize {
        self.messages.len()
    }

    /// The time when the first message is due, Unix ms.
    pub(super) fn first_ms(&self) -> Option<u64> {
        self.messages.first_key_value().map(|(id, _)| id.ms)
    }

    pub(super) fn get(&self, id: StreamId) -> Option<Entry<'_>> {
        self.messages.get(&id).map(|message| entry(id, message))
    }

    /// The messages from `start` on, in the order in which they fall due.
    pub(super) fn from(&self, start: StreamId) -> impl Iterator<Item = Entry<'_>> {
        self.messages.range(start..).map(|(&id, message)| entry(id, message))
    }

    /// The last id of a message that is due in this millisecond.
    pub(super) fn last_within(&self, ms: u64) -> Option<StreamId> {
        let within = StreamId { ms, seq: 0 }..=StreamId { ms, seq: u64::MAX };
        self.messages.range(within).next_back().map(|(&id, _)| id)
    }

    /// The last ticket given out.
    pub(super) fn tickets(&self) -> u64 {
        self.tickets
    }

    /// Marks the tickets up to `last` as given out.
    pub(super) fn give_tickets(&mut self, last: u64) {
        self.tickets = self.tickets.max(last);
    }

    /// Adds a packed message.
    pub(super) fn add(&mut self, id: StreamId, message: Box<[u8]>) {
        self.insert(id, message);
        self.give_tickets(id.seq);
    }

    /// The state of the message with this id, for undoing a change.
    pub(super) fn state(&self, id: StreamId) -> DelayedState {
        DelayedState { id, before: self.messages.get(&id).cloned(), tickets: self.tickets }
    }

    pub(super) fn put_back(&mut self, state: DelayedState) {
        match state.before {
            Some(message) => self.insert(state.id, message),
            None => _ = self.remove(state.id),
        }
        self.tickets = state.tickets;
    }

    fn insert(&mut self, id: StreamId, message: Box<[u8]>) {
        self.bytes += message.len();
        if let Some(old) = self.messages.insert(id, message) {
            self.bytes -= old.len();
        }
    }

    pub(super) fn remove(&mut self, id: StreamId) -> Option<Box<[u8]>> {
        let message = self.messages.remove(&id)?;
        self.bytes -= message.len();
        Some(message)
    }

    #[cfg(test)]
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(super) fn mem_bytes(&self) -> usize {
        self.bytes + self.messages.len() * size_of::<(StreamId, Box<[u8]>)>() * 3 / 2
    }
}

/// Packs the pairs of a message. `None` if there are none.
pub(super) fn pack<'a>(pairs: impl Iterator<Item = (&'a [u8], &'a [u8])> + Clone) -> Option<Box<[u8]>> {
    let count = pairs.clone().count();
    let mut message = Vec::new();
    put_number(&mut message, count as u64);
    for text in pairs.flat_map(|(field, value)| [field, value]) {
        put_bytes(&mut message, text);
    }
    (count > 0).then(|| message.into())
}

/// A packed message as the entry that it will become.
pub(super) fn entry(id: StreamId, message: &[u8]) -> Entry<'_> {
    Entry { id, pairs: Pairs::counted(message) }
}
