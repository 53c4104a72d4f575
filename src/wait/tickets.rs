//! The calls that wait beside a session: their tickets and memory. The calls themselves are kept in the
//! [queues](super::wait_queues).

use std::collections::BTreeSet;

use super::Ticket;

/// See the module's header.
#[derive(Debug, Default)]
pub struct Tickets {
    /// In the order in which they came.
    tickets: BTreeSet<Ticket>,
    bytes: usize,
}

impl Tickets {
    /// The number of calls.
    pub fn len(&self) -> usize {
        self.tickets.len()
    }

    /// Whether no call waits.
    pub fn is_empty(&self) -> bool {
        self.tickets.is_empty()
    }

    /// Bytes that the calls take in the queues and here.
    pub fn mem_bytes(&self) -> usize {
        self.bytes
    }

    pub(crate) fn has(&self, ticket: Ticket) -> bool {
        self.tickets.contains(&ticket)
    }

    /// Returns all tickets, in the order in which the calls came.
    pub(crate) fn into_all(self) -> impl Iterator<Item = Ticket> {
        self.tickets.into_iter()
    }

    /// Adds a waiting call that takes this many bytes.
    pub(crate) fn add(&mut self, ticket: Ticket, bytes: usize) {
        self.tickets.insert(ticket);
        self.bytes += bytes;
    }

    /// Removes a call that waits no longer.
    pub(crate) fn remove(&mut self, ticket: Ticket, bytes: usize) {
        if self.tickets.remove(&ticket) {
            self.bytes -= bytes;
        }
    }
}
