//! What one session listens to.

use std::collections::HashSet;

/// Which channels a name is looked up among.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Space {
    /// Those that patterns match as well.
    Global,
    /// The sharded ones, which patterns do not match. In Redis Cluster each belongs to a slot as a key does, and its messages stay
    /// on the servers that hold the slot.
    Sharded,
}

/// What a subscription is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A channel by name.
    Channel(Space),
    /// All global channels that match a glob.
    Pattern,
}

impl Kind {
    /// All kinds.
    pub const ALL: [Kind; 3] = [Kind::Channel(Space::Global), Kind::Pattern, Kind::Channel(Space::Sharded)];
}

/// Names of channels and patterns.
#[derive(Default)]
pub struct Subscriptions {
    channels: HashSet<Box<[u8]>>,
    patterns: HashSet<Box<[u8]>>,
    sharded: HashSet<Box<[u8]>>,
    /// Bytes of all names.
    name_bytes: usize,
}

/// Bytes that a subscription takes beside its name, about: its place here, and among those who listen.
const SUBSCRIPTION_BYTES: usize = 4 * size_of::<Box<[u8]>>();

impl Subscriptions {
    /// The names of one kind.
    pub fn of(&self, kind: Kind) -> &HashSet<Box<[u8]>> {
        match kind {
            Kind::Channel(Space::Global) => &self.channels,
            Kind::Pattern => &self.patterns,
            Kind::Channel(Space::Sharded) => &self.sharded,
        }
    }

    fn of_mut(&mut self, kind: Kind) -> &mut HashSet<Box<[u8]>> {
        match kind {
            Kind::Channel(Space::Global) => &mut self.channels,
            Kind::Pattern => &mut self.patterns,
            Kind::Channel(Space::Sharded) => &mut self.sharded,
        }
    }

    /// Adds a name; false when it is there already.
    pub(super) fn add(&mut self, kind: Kind, name: &[u8]) -> bool {
        let is_new = self.of_mut(kind).insert(name.into());
        self.name_bytes += if is_new { name.len() } else { 0 };
        is_new
    }

    /// Removes a name; false when it is not there.
    pub(super) fn remove(&mut self, kind: Kind, name: &[u8]) -> bool {
        let was_there = self.of_mut(kind).remove(name);
        self.name_bytes -= if was_there { name.len() } else { 0 };
        was_there
    }

    /// How many there are in the space that a kind belongs to: a client is told the sum.
    pub fn count_beside(&self, kind: Kind) -> usize {
        match kind {
            Kind::Channel(Space::Global) | Kind::Pattern => self.channels.len() + self.patterns.len(),
            Kind::Channel(Space::Sharded) => self.sharded.len(),
        }
    }

    /// Bytes that they take, about.
    pub fn mem_bytes(&self) -> usize {
        let all = self.channels.len() + self.patterns.len() + self.sharded.len();
        all * SUBSCRIPTION_BYTES + self.name_bytes
    }

    /// Whether there is none.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.channels.is_empty() && self.patterns.is_empty() && self.sharded.is_empty()
    }
}
