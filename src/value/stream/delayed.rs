//! Messages that a stream keeps until their time.
//!
//! A message is known by an id, `<due>-<ticket>`. The milliseconds say when it is due, so that the order of ids is the order in which
//! messages are due. The ticket is a number that the stream gives out once, for as long as it exists: whoever cancels an id a second
//! time never meets another message there. When it is due, the message becomes an entry by that id, or by the next one where the stream has reached the id already.
//!
//! Layout of a message: the number of its pairs, then fields and values in turn, each with its length. Numbers are LEB128, as in
//! nodes, so that a message reads as an entry.

use std::collections::BTreeMap;

use super::id::StreamId;
use super::node::{Entry, Pairs};
use crate::value::leb128::{put_bytes, put_number};

/// What [`Attendance`](super::policy::Attendance) knows of messages that are not due yet.
#[derive(Clone, Debug, Default)]
pub(super) struct Delayed {
    messages: BTreeMap<StreamId, Box<[u8]>>,
    /// Bytes of all messages.
    bytes: usize,
    /// The last ticket that was given out.
    tickets: u64,
}

/// A message as it was, and the tickets that had been given out.
pub(super) struct DelayedState {
    id: StreamId,
    before: Option<Box<[u8]>>,
    tickets: u64,
}

impl DelayedState {
    /// That of a message where there was never any.
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

    /// Whether it says nothing: no message was ever kept.
    pub(super) fn is_blank(&self) -> bool {
        self.messages.is_empty() && self.tickets == 0
    }

    pub(super) fn len(&self) -> usize {
        self.messages.len()
    }

    /// When the first is due, Unix ms.
    pub(super) fn first_ms(&self) -> Option<u64> {
        self.messages.first_key_value().map(|(id, _)| id.ms)
    }

    pub(super) fn get(&self, id: StreamId) -> Option<Entry<'_>> {
        self.messages.get(&id).map(|message| entry(id, message))
    }

    /// The messages from this id on, the first due first.
    pub(super) fn from(&self, start: StreamId) -> impl Iterator<Item = Entry<'_>> {
        self.messages.range(start..).map(|(&id, message)| entry(id, message))
    }

    /// The last id of a message that is due in this millisecond.
    pub(super) fn last_within(&self, ms: u64) -> Option<StreamId> {
        let within = StreamId { ms, seq: 0 }..=StreamId { ms, seq: u64::MAX };
        self.messages.range(within).next_back().map(|(&id, _)| id)
    }

    /// The last ticket that was given out.
    pub(super) fn tickets(&self) -> u64 {
        self.tickets
    }

    /// Tickets up to this one have been given out.
    pub(super) fn give_tickets(&mut self, last: u64) {
        self.tickets = self.tickets.max(last);
    }

    /// Keeps a packed message.
    pub(super) fn add(&mut self, id: StreamId, message: Box<[u8]>) {
        self.insert(id, message);
        self.give_tickets(id.seq);
    }

    /// The message of this id as it is, to be put back.
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

/// Packs the pairs of a message. `None` without any.
pub(super) fn pack<'a>(pairs: impl Iterator<Item = (&'a [u8], &'a [u8])> + Clone) -> Option<Box<[u8]>> {
    let count = pairs.clone().count();
    let mut message = Vec::new();
    put_number(&mut message, count as u64);
    for text in pairs.flat_map(|(field, value)| [field, value]) {
        put_bytes(&mut message, text);
    }
    (count > 0).then(|| message.into())
}

/// A packed message as the entry that it will be.
pub(super) fn entry(id: StreamId, message: &[u8]) -> Entry<'_> {
    Entry { id, pairs: Pairs::counted(message) }
}
