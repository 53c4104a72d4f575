//! Messages that wait to be sent to one peer, within bounds.
//!
//! Appends keep their order: one that overtook another would be refused for its gap. All other messages are short, and
//! they go first. Behind entries of seconds, a heartbeat would come after the election that it should prevent. Each
//! kind has a bound of its own, so that no number of entries leaves a vote without room.
//!
//! A message without room is dropped, the newest first. Consensus repeats what matters.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;

use tokio::sync::Notify;

use super::limits::{QUEUED_APPENDS_MAX, QUEUED_ENTRIES_MAX_BYTES, QUEUED_SMALL_MAX};
use crate::consensus::message::{Body, Message};
use crate::log::replicated::entry::Payload;

/// See the module's header.
#[derive(Default)]
pub(super) struct Queue {
    waiting: RefCell<Waiting>,
    is_filled: Notify,
    dropped: Cell<u64>,
}

#[derive(Default)]
struct Waiting {
    /// Whether there is a connection. Without one, messages would be stale before they leave.
    is_open: bool,
    appends: VecDeque<Message>,
    /// Bytes of the entries in them.
    bytes: usize,
    small: VecDeque<Message>,
}

impl Queue {
    /// Adds a message, or drops it.
    pub(super) fn push(&self, message: Message) {
        let mut waiting = self.waiting.borrow_mut();
        let bytes = entry_bytes(&message);
        let is_append = matches!(message.body, Body::Append { .. });
        let has_room = match is_append {
            // A single append may be longer than the bound.
            true => {
                let fits = bytes == 0 || waiting.bytes == 0 || waiting.bytes + bytes <= QUEUED_ENTRIES_MAX_BYTES;
                fits && waiting.appends.len() < QUEUED_APPENDS_MAX
            }
            false => waiting.small.len() < QUEUED_SMALL_MAX,
        };
        if !waiting.is_open || !has_room {
            self.dropped.set(self.dropped.get() + 1);
            return;
        }
        if is_append {
            waiting.bytes += bytes;
            waiting.appends.push_back(message);
        } else {
            waiting.small.push_back(message);
        }
        self.is_filled.notify_one();
    }

    /// Takes the next message to send.
    pub(super) fn pop(&self) -> Option<Message> {
        let mut waiting = self.waiting.borrow_mut();
        if let Some(message) = waiting.small.pop_front() {
            return Some(message);
        }
        let message = waiting.appends.pop_front()?;
        waiting.bytes -= entry_bytes(&message);
        Some(message)
    }

    /// Waits until there is a message.
    pub(super) async fn filled(&self) {
        while self.is_empty() {
            self.is_filled.notified().await;
        }
    }

    fn is_empty(&self) -> bool {
        let waiting = self.waiting.borrow();
        waiting.small.is_empty() && waiting.appends.is_empty()
    }

    /// Accepts messages from now on.
    pub(super) fn open(&self) {
        self.waiting.borrow_mut().is_open = true;
    }

    /// Drops all messages, and those that are added until it is opened again.
    pub(super) fn close(&self) {
        let Waiting { appends, small, .. } = self.waiting.take();
        self.dropped.set(self.dropped.get() + (appends.len() + small.len()) as u64);
    }

    /// Returns the number of messages dropped so far.
    pub(super) fn dropped(&self) -> u64 {
        self.dropped.get()
    }
}

/// Returns the bytes of a message's entries. They share their memory with the entries that the core keeps.
fn entry_bytes(message: &Message) -> usize {
    let Body::Append { entries, .. } = &message.body else { return 0 };
    let bytes = entries.iter().map(|entry| match &entry.payload {
        Payload::Block(block) => block.body().len(),
        Payload::Start | Payload::Change(_) => 0,
    });
    bytes.sum()
}

#[cfg(test)]
mod tests {
    use super::super::tests::{append, heartbeat};
    use super::*;

    #[test]
    fn heartbeats_fit_beside_any_number_of_entries_and_go_first() {
        let queue = Queue::default();
        queue.open();
        let long = append(1, 40 * 1024 * 1024);
        queue.push(long.clone());
        queue.push(append(2, 40 * 1024 * 1024));
        assert_eq!(queue.dropped(), 1, "the newest append has no room");
        for number in 0..=QUEUED_SMALL_MAX as u64 {
            queue.push(heartbeat(number));
        }
        assert_eq!(queue.dropped(), 2, "heartbeats have a bound of their own");
        assert_eq!(queue.pop(), Some(heartbeat(0)));
        while queue.pop().is_some_and(|message| message != long) {}
        assert_eq!((queue.pop(), queue.waiting.borrow().bytes), (None, 0));
    }

    #[test]
    fn appends_keep_their_order_and_one_may_exceed_the_bound() {
        let queue = Queue::default();
        queue.open();
        let messages = [append(1, QUEUED_ENTRIES_MAX_BYTES + 1), append(2, 0), append(3, 0)];
        messages.iter().for_each(|message| queue.push(message.clone()));
        queue.push(append(4, 1));
        assert_eq!(queue.dropped(), 1);
        messages.into_iter().for_each(|message| assert_eq!(queue.pop(), Some(message)));
    }

    #[test]
    fn appends_without_entries_are_bounded() {
        let queue = Queue::default();
        queue.open();
        (0..=QUEUED_APPENDS_MAX as u64).for_each(|index| queue.push(append(index, 0)));
        assert_eq!(queue.dropped(), 1);
    }

    #[test]
    fn without_a_connection_nothing_is_kept() {
        let queue = Queue::default();
        queue.push(heartbeat(1));
        queue.open();
        assert_eq!((queue.pop(), queue.dropped()), (None, 1));
        queue.push(heartbeat(2));
        queue.close();
        queue.push(heartbeat(3));
        assert_eq!((queue.pop(), queue.dropped()), (None, 3));
    }
}
