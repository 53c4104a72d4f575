//! Persistence: units that wait for the journal, snapshots of the keyspace, and the files that a start reads.

#[cfg(test)]
mod conformance;
mod copies;
pub mod error;
pub(crate) mod fences;
pub(crate) mod group;
pub(crate) mod group_admin;
pub(crate) mod group_requests;
pub(crate) mod group_view;
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

use self::journal::Journal;
use crate::base::clock::Clock;
use crate::config::Config;
use crate::programs::scripts::Scripts;
use crate::spec::session_key::SessionKey;
use crate::spec::table::CommandId;
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
    /// How far the data has been loaded, until it is there.
    pub loading: Option<Progress>,
    /// News for the other parts of the server, which the engine takes after each call.
    pub(crate) news: News,
}

/// The parts of the server that a call on [`Persistence`] reads.
pub(crate) struct Env<'a> {
    pub(crate) config: &'a Config,
    pub(crate) clock: &'a Clock,
    pub(crate) scripts: &'a Scripts,
}

/// Consequences of a call on [`Persistence`] for the other parts of the server.
#[derive(Default)]
pub(crate) struct News {
    /// Clients to answer, each with its call and the outcome of what it waited for.
    pub(crate) answers: Vec<((SessionKey, CommandId), Result<(), String>)>,
    /// Commands that write may be admitted where they were refused, or the other way round.
    pub(crate) changes_admission: bool,
    /// The journal has ended: replies that were held for it may leave.
    pub(crate) releases_all: bool,
    /// Another thread has freed much memory.
    pub(crate) has_freed_memory: bool,
}

impl Persistence {
    /// Makes one without a journal and without a directory.
    pub(crate) fn new(clock: &Clock) -> Persistence {
        Persistence { tail: None, journal: None, saving: Saving::new(clock), loading: None, news: News::default() }
    }
}
