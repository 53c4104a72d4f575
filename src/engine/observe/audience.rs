//! The clients that observe what other clients do: subscribers, monitors, watchers and caching clients.

use super::group_watch::GroupWatch;
use super::history::History;
use super::monitor::Monitors;
use super::pubsub::{HeldMessages, PubSub};
use super::readers::Readers;
use super::tracking::TrackingTable;
use super::watches::Watches;
use crate::config::{Config, Ranking};
use crate::keyspace::effect::Recording;
use crate::persist::Persistence;
use crate::session::{Service, Session};
use crate::wait::wait_queues::Waits;

/// See the module's header.
pub struct Audience {
    /// Subscribers of channels.
    pub pubsub: PubSub,
    /// Subscribers of the channels of Sentinel's port.
    pub(super) of_sentinel: PubSub,
    /// What they were told.
    pub(crate) group_watch: GroupWatch,
    /// Clients that are shown each call.
    pub(in crate::engine) monitors: Monitors,
    /// Clients that may cache keys.
    pub tracking: TrackingTable,
    /// Watched keys.
    pub watches: Watches,
    /// The recent past of locks and gates, and the holders that they refused.
    pub(crate) history: History,
    /// Messages of the running script, if it may be rolled back.
    pub(super) held_messages: HeldMessages,
    /// Readers of effects: see [`Audience::set_reader`].
    pub(super) readers: Readers,
    /// How much a unit records for the readers.
    pub(in crate::engine) recording: Recording,
}

impl Audience {
    /// Makes an audience without clients.
    pub(in crate::engine) fn new(now_ms: i64) -> Audience {
        Audience {
            pubsub: PubSub::default(),
            of_sentinel: PubSub::default(),
            group_watch: GroupWatch::default(),
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

impl Audience {
    /// Returns the subscribers of the channels of a service.
    pub fn pubsub_of(&self, service: Service) -> &PubSub {
        match service {
            Service::Data => &self.pubsub,
            Service::Sentinel => &self.of_sentinel,
        }
    }

    /// Returns the subscribers of the channels of a service.
    pub fn pubsub_of_mut(&mut self, service: Service) -> &mut PubSub {
        match service {
            Service::Data => &mut self.pubsub,
            Service::Sentinel => &mut self.of_sentinel,
        }
    }
}

/// The readers of effects.
impl Audience {
    /// Notes whether there are such readers. Must be called wherever a reader comes or goes.
    pub(in crate::engine) fn set_reader(&mut self, reader: Readers, is_there: bool) {
        self.readers.set(reader, is_there);
        self.recording = self.readers.recording();
    }

    /// Finds all readers anew, for changes that may concern several of them.
    pub(in crate::engine) fn find_readers(&mut self, config: &Config, persistence: &Persistence, waits: &Waits) {
        self.readers = self.readers_now(config, persistence, waits);
        self.recording = self.readers.recording();
    }

    /// Whether some reader needs whole effects.
    pub(in crate::engine) fn reads_whole_effects(&self) -> bool {
        self.readers.intersects(Readers::OF_ALL)
    }

    fn readers_now(&self, config: &Config, persistence: &Persistence, waits: &Waits) -> Readers {
        // Loading the data is not a change and publishes no events.
        let publishes_events = config.notify_keyspace_events.publish_any() && !persistence.is_filling();
        let mut readers = Readers::empty();
        readers.set(Readers::LOG, persistence.tail.is_some());
        readers.set(Readers::SNAPSHOT, persistence.saving.is_copying());
        readers.set(Readers::WATCH, !self.watches.is_empty());
        readers.set(Readers::WAIT, !waits.is_empty());
        readers.set(Readers::TRACKING, self.tracking.reads_changes());
        readers.set(Readers::USAGE, config.maxmemory_policy.ranking() == Some(Ranking::Change));
        readers.set(Readers::EVENTS, publishes_events);
        readers
    }

    /// Checks that no reader came or went without [`Self::set_reader`] or [`Self::find_readers`]: in the worst case a
    /// change would miss the journal.
    #[inline]
    pub(in crate::engine) fn assert_readers_are_known(
        &self,
        config: &Config,
        persistence: &Persistence,
        waits: &Waits,
    ) {
        let now = || self.readers_now(config, persistence, waits);
        debug_assert_eq!(self.readers, now(), "a reader came or went without an update of the set");
        debug_assert_eq!(self.recording, self.readers.recording());
    }

    /// Makes a session watch a key of its database; `existed` says whether the key exists now.
    pub fn watch(&mut self, session: &mut Session, key: &[u8], existed: bool) {
        self.watches.add(session, key, existed);
        self.set_reader(Readers::WATCH, !self.watches.is_empty());
    }

    /// Unwatches all keys of a session.
    pub fn unwatch(&mut self, session: &mut Session) {
        if self.watches.clear(session) {
            self.set_reader(Readers::WATCH, !self.watches.is_empty());
        }
    }
}
