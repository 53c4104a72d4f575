//! The calls that wait beside a session: their tickets, and what they take. The calls themselves stand in the
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
    /// How many there are.
    pub fn len(&self) -> usize {
        self.tickets.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.tickets.is_empty()
    }

    /// Bytes that their calls take, wherever these stand.
    pub fn mem_bytes(&self) -> usize {
        self.bytes
    }

    pub(in crate::engine) fn has(&self, ticket: Ticket) -> bool {
        self.tickets.contains(&ticket)
    }

    /// All of them, in the order in which they came.
    pub(in crate::engine) fn into_all(self) -> impl Iterator<Item = Ticket> {
        self.tickets.into_iter()
    }

    /// A call that takes so many bytes waits from now on.
    pub(in crate::engine) fn add(&mut self, ticket: Ticket, bytes: usize) {
        self.tickets.insert(ticket);
        self.bytes += bytes;
    }

    /// That call waits no longer.
    pub(in crate::engine) fn remove(&mut self, ticket: Ticket, bytes: usize) {
        if self.tickets.remove(&ticket) {
            self.bytes -= bytes;
        }
    }
}
