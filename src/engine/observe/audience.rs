//! The clients that observe what other clients do: subscribers, monitors, watchers and caching clients.

use super::history::History;
use super::monitor::Monitors;
use super::pubsub::{HeldMessages, PubSub};
use super::readers::Readers;
use super::tracking::TrackingTable;
use super::watches::Watches;
use crate::keyspace::effect::Recording;

/// See the module's header.
pub struct Audience {
    /// Subscribers of channels.
    pub pubsub: PubSub,
    /// Clients that are shown each call.
    pub monitors: Monitors,
    /// Clients that may cache keys.
    pub tracking: TrackingTable,
    /// Watched keys.
    pub watches: Watches,
    /// The recent past of locks and gates, and the holders that they refused.
    pub(crate) history: History,
    /// Messages of the running script, if it may be rolled back.
    pub(in crate::engine) held_messages: HeldMessages,
    /// Readers of effects: see [`readers_changed`](crate::engine::ServerState::readers_changed).
    pub(in crate::engine) readers: Readers,
    /// How much a unit records for the readers.
    pub(in crate::engine) recording: Recording,
}

impl Audience {
    /// Makes an audience without clients.
    pub(in crate::engine) fn new(now_ms: i64) -> Audience {
        Audience {
            pubsub: PubSub::default(),
            monitors: Monitors::default(),
            tracking: TrackingTable::default(),
            watches: Watches::default(),
            history: History::new(now_ms),
            held_messages: HeldMessages::default(),
            readers: Readers::default(),
            recording: Recording::Nothing,
        }
    }
}
