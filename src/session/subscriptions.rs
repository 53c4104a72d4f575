//! The subscriptions of one session.

use std::collections::HashSet;

/// The namespace of a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Space {
    /// The global channels, which patterns match as well.
    Global,
    /// The sharded channels, which patterns do not match. In Redis Cluster each belongs to a slot, as a key does, and
    /// its messages stay on the servers that hold the slot.
    Sharded,
}

/// The kind of a subscription.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SubscriptionKind {
    /// A channel by name.
    Channel(Space),
    /// All global channels that match a glob.
    Pattern,
}

impl SubscriptionKind {
    /// All kinds.
    pub const ALL: [SubscriptionKind; 3] = [
        SubscriptionKind::Channel(Space::Global),
        SubscriptionKind::Pattern,
        SubscriptionKind::Channel(Space::Sharded),
    ];
}

/// Names of channels and patterns. Most sessions have none and pay only for a pointer.
#[derive(Default)]
pub struct Subscriptions {
    /// `None` if there are none.
    names: Option<Box<Names>>,
}

/// The names of each kind.
#[derive(Default)]
struct Names {
    channels: HashSet<Box<[u8]>>,
    patterns: HashSet<Box<[u8]>>,
    sharded: HashSet<Box<[u8]>>,
    /// Bytes of all names.
    bytes: usize,
}

/// Approximate bytes of a subscription besides its name: its place here and among the subscribers.
const SUBSCRIPTION_BYTES: usize = 4 * size_of::<Box<[u8]>>();

impl Names {
    fn of(&self, kind: SubscriptionKind) -> &HashSet<Box<[u8]>> {
        match kind {
            SubscriptionKind::Channel(Space::Global) => &self.channels,
            SubscriptionKind::Pattern => &self.patterns,
            SubscriptionKind::Channel(Space::Sharded) => &self.sharded,
        }
    }

    fn of_mut(&mut self, kind: SubscriptionKind) -> &mut HashSet<Box<[u8]>> {
        match kind {
            SubscriptionKind::Channel(Space::Global) => &mut self.channels,
            SubscriptionKind::Pattern => &mut self.patterns,
            SubscriptionKind::Channel(Space::Sharded) => &mut self.sharded,
        }
    }

    fn count(&self) -> usize {
        self.channels.len() + self.patterns.len() + self.sharded.len()
    }
}

impl Subscriptions {
    /// The names of one kind, in no particular order.
    pub fn of(&self, kind: SubscriptionKind) -> impl Iterator<Item = &[u8]> {
        self.names.iter().flat_map(move |names| names.of(kind)).map(|name| &**name)
    }

    /// The number of subscriptions of one kind.
    pub fn count(&self, kind: SubscriptionKind) -> usize {
        self.names.as_ref().map_or(0, |names| names.of(kind).len())
    }

    /// Adds a name; false when it is there already.
    pub(crate) fn add(&mut self, kind: SubscriptionKind, name: &[u8]) -> bool {
        let names = self.names.get_or_insert_default();
        let is_new = names.of_mut(kind).insert(name.into());
        names.bytes += if is_new { name.len() } else { 0 };
        is_new
    }

    /// Removes a name; false when it is not there.
    pub(crate) fn remove(&mut self, kind: SubscriptionKind, name: &[u8]) -> bool {
        let Some(names) = &mut self.names else { return false };
        let was_there = names.of_mut(kind).remove(name);
        names.bytes -= if was_there { name.len() } else { 0 };
        if names.count() == 0 {
            self.names = None;
        }
        was_there
    }

    /// The number of subscriptions in the space of a kind: replies to the client show the sum.
    pub fn count_beside(&self, kind: SubscriptionKind) -> usize {
        match kind {
            SubscriptionKind::Channel(Space::Global) | SubscriptionKind::Pattern => {
                self.count(SubscriptionKind::Channel(Space::Global)) + self.count(SubscriptionKind::Pattern)
            }
            SubscriptionKind::Channel(Space::Sharded) => self.count(kind),
        }
    }

    /// Approximate bytes of the subscriptions.
    pub fn mem_bytes(&self) -> usize {
        let held = |names: &Names| size_of::<Names>() + names.count() * SUBSCRIPTION_BYTES + names.bytes;
        self.names.as_ref().map_or(0, |names| held(names))
    }

    /// Whether there are no subscriptions.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.names.is_none()
    }
}
