//! Persistence: units that wait for the journal, snapshots of the keyspace, and the files that a start reads.

#[cfg(test)]
mod conformance;
mod copies;
pub mod error;
pub(crate) mod feed;
mod feed_steps;
pub(crate) mod fences;
pub(crate) mod group;
pub(crate) mod group_admin;
pub(crate) mod group_requests;
pub(crate) mod group_view;
pub(crate) mod handover;
mod in_place;
pub(crate) mod journal;
pub mod limits;
pub(crate) mod load_pieces;
mod milestones;
pub(crate) mod rdb_export;
mod resume;
mod save_slices;
mod save_triggers;
pub mod saving;
pub(crate) mod shard;
pub mod snapshot_stream;
pub mod tail;
pub mod transfer;

use self::feed::Feeds;
use self::group_requests::Waiter;
use self::handover::Handover;
use self::journal::Journal;
use crate::base::clock::Clock;
use crate::config::Config;
use crate::programs::scripts::Scripts;
use crate::resp::reply::Reply;
use saving::{Progress, Saving};
use tail::Tail;

/// The journal, the snapshots, and the progress of loading.
pub struct Persistence {
    /// Units recorded since they were last taken; `None` while nobody keeps the whole stream. The engine
    /// [sets](crate::engine::ServerState::set_tail) it, so that its readers of effects are known.
    pub tail: Option<Tail>,
    /// The journal, which takes the tail; `None` with `appendonly no`.
    pub(crate) journal: Option<Journal>,
    /// The snapshot that is being made.
    pub saving: Saving,
    /// The connections that read the feed.
    pub(crate) feeds: Feeds,
    /// How far the data has been loaded, until it is there.
    pub loading: Option<Progress>,
    /// Whose the data is. See [`whose`](Self::whose).
    pub(crate) handover: Handover,
    /// News for the other parts of the server, which the engine takes after each call.
    pub(crate) news: News,
}

/// Writes the reply to a client that has waited.
pub(crate) type Answer = Box<dyn FnOnce(&mut Reply)>;

/// The parts of the server that a call on [`Persistence`] reads.
pub(crate) struct Env<'a> {
    pub(crate) config: &'a Config,
    pub(crate) clock: &'a Clock,
    pub(crate) scripts: &'a Scripts,
}

/// Consequences of a call on [`Persistence`] for the other parts of the server.
#[derive(Default)]
pub(crate) struct News {
    /// Clients to answer, each with its call and the reply to it.
    pub(crate) answers: Vec<(Waiter, Answer)>,
    /// Commands that write may be admitted where they were refused, or the other way round.
    pub(crate) changes_admission: bool,
    /// The journal has ended: replies that were held for it may leave.
    pub(crate) releases_all: bool,
    /// Another thread has freed much memory.
    pub(crate) has_freed_memory: bool,
}

impl News {
    /// Tells clients how that has ended for which they have waited.
    pub(crate) fn tell(&mut self, clients: impl IntoIterator<Item = Waiter>, outcome: &Result<(), String>) {
        for client in clients {
            let outcome = outcome.clone();
            let answer = move |reply: &mut Reply| match outcome {
                Ok(()) => reply.ok(),
                Err(error) => reply.error(format!("ERR {error}").replace(['\r', '\n'], " ").as_bytes()),
            };
            self.answers.push((client, Box::new(answer)));
        }
    }
}

impl Persistence {
    /// Returns whose the data is. While it is loaded, that is as open as the rest.
    #[inline]
    pub(crate) fn whose(&self) -> &Handover {
        const UNKNOWN: &Handover = &Handover::Own(None);
        if self.loading.is_some() { UNKNOWN } else { &self.handover }
    }

    /// Whether this is only a part of the data: it is being loaded, or another server is filling it.
    pub(crate) fn is_filling(&self) -> bool {
        self.loading.is_some() || self.handover.is_incomplete()
    }

    /// Whether the data is all there and this server makes its changes. Otherwise it is being loaded or received:
    /// values and scripts grow within the limits under which the changes were made.
    pub(crate) fn has_own_data(&self) -> bool {
        self.loading.is_none() && self.handover.received().is_none()
    }

    /// Makes one without a journal and without a directory.
    pub(crate) fn new(clock: &Clock) -> Persistence {
        let (feeds, handover, news) = Default::default();
        Persistence { tail: None, journal: None, saving: Saving::new(clock), feeds, loading: None, handover, news }
    }
}
