//! The state, before a change, of the part of a stream that the change touches. [`undo`](super::undo) takes and
//! restores it.

use super::delayed::DelayedState;
use super::group::{Group, PendingState};
use super::id::StreamId;
use super::idempotency::Idempotency;
use super::node::Node;
use super::policy::Schedule;

/// The part of a stream that a change is about to touch.
pub struct StreamPreImage(pub(super) Part);

pub(super) enum Part {
    /// One of several entries in a node is deleted.
    Entry { counters: Counters, id: StreamId },
    /// Whole nodes.
    Nodes { counters: Counters, nodes: Vec<(StreamId, Node)> },
    /// The counters alone.
    Counters(Counters),
    /// A whole group; `None` if there was none with this name.
    Group { name: Box<[u8]>, before: Option<Group> },
    /// The position of a group.
    Position { group: Box<[u8]>, last_delivered: StreamId, entries_read: Option<u64> },
    /// The times when a consumer was seen and active; `None` if there was none with this name.
    Consumer { group: Box<[u8]>, name: Box<[u8]>, before: Option<(u64, Option<u64>)> },
    /// A group's policy for deliveries that are not acknowledged.
    Policy { group: Box<[u8]>, before: Option<Box<Schedule>> },
    /// The pending state of an entry.
    Pending { group: Box<[u8]>, id: StreamId, before: Option<PendingState> },
    /// A delayed message.
    Delayed(DelayedState),
    /// The record of producers' requests.
    Requests(Option<Box<Idempotency>>),
}

/// The numbers that a stream keeps beside its entries.
#[derive(Clone, Copy)]
pub(super) struct Counters {
    pub(super) len: u64,
    pub(super) last_id: StreamId,
    pub(super) max_deleted_id: StreamId,
    pub(super) entries_added: u64,
}

/// The end of a stream before an entry is appended.
#[derive(Clone, Copy)]
pub struct StreamTail {
    pub(super) last_id: StreamId,
    pub(super) entries_added: u64,
    /// The fill of the last node; meaningless if there is none.
    pub(super) bytes: usize,
    pub(super) total: u32,
    pub(super) live: u32,
}

impl StreamPreImage {
    /// Bytes taken, approximately.
    pub fn mem_bytes(&self) -> usize {
        let content = match &self.0 {
            Part::Entry { .. } | Part::Counters(_) => 0,
            Part::Nodes { nodes, .. } => {
                nodes.iter().map(|(_, node)| size_of::<(StreamId, Node)>() + node.bytes.len()).sum()
            }
            Part::Group { name, before } => name.len() + before.as_ref().map_or(0, Group::mem_bytes),
            Part::Position { group, .. } | Part::Pending { group, .. } => group.len(),
            Part::Policy { group, before } => group.len() + before.as_deref().map_or(0, Schedule::mem_bytes),
            Part::Consumer { group, name, .. } => group.len() + name.len(),
            Part::Delayed(state) => state.mem_bytes(),
            Part::Requests(requests) => requests.as_ref().map_or(0, |requests| requests.mem_bytes()),
        };
        size_of::<StreamPreImage>() + content
    }
}
