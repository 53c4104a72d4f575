//! Data that comes from elsewhere when the server starts. It is put into the keyspace directly and, with a log, into a
//! snapshot at the same time, behind which the log begins.
//!
//! Whoever reads the foreign data adds keys slice by slice, which a thread has made ready with the effects that make
//! them. Each slice is a unit, and its effects go to the writer of the snapshot, which works beside: so nothing is read
//! or made a second time. The file has a temporary name until all is in it and durable. A directory therefore holds all
//! of the data or, after a crash at any point before that, nothing of it; then the next start finds an empty directory
//! and begins again.
//!
//! Nobody else changes the keyspace meanwhile: the server is loading. Nothing expires before all is there.

use std::sync::Arc;

use super::recovery::{RecoveryError, count_keys};
use crate::base::limits::{LOAD_AHEAD_KEEP_BYTES, LOAD_AHEAD_KEYS, SNAPSHOT_PAUSE_BYTES};
use crate::base::lsn::Lsn;
use crate::base::rng::Rng;
use crate::engine::state::Engine;
use crate::keyspace::effect::EffectWriter;
use crate::keyspace::prepared::PreparedKey;
use crate::keyspace::{DbIndex, ExpiryHold, Keyspace, ValueLimits};
use crate::log::directory::Directory;
use crate::log::group_commit::Log;
use crate::log::platform::Job;
use crate::log::snapshot::writer::{Begin, LogBeside, Sizes, SnapshotWriter};
use crate::persist::tail::Tail;
use crate::persist::tail::UnitOrigin;

/// Data on its way into an engine that is empty. See the module's header.
pub struct BulkLoad {
    saved: Option<Saved>,
    /// The log that is opened behind it, and the Lsn it begins behind.
    beginning: Option<(Job<Log>, Lsn)>,
    /// What is overdue expires when all is there, as if it had been here before.
    _hold: ExpiryHold,
}

/// The snapshot that is written beside.
struct Saved {
    directory: Arc<Directory>,
    writer: SnapshotWriter,
    /// The number that it gets, once all has been handed over.
    lsn: Option<Lsn>,
}

/// Keys that are added together, and what says the same to those who follow.
#[derive(Default)]
pub struct Batch {
    /// Each with the seconds since it was used last, where that is known.
    keys: Vec<(PreparedKey, Option<u64>)>,
    /// The effects that make them.
    effects: EffectWriter,
    /// How many effects these are.
    effect_count: u64,
}

impl Batch {
    /// Adds a key.
    pub fn push(&mut self, key: PreparedKey, idle_s: Option<u64>) {
        self.effect_count += key.encode(&mut self.effects);
        self.keys.push((key, idle_s));
    }

    /// Bytes of the effects that make the keys.
    pub fn effect_bytes(&self) -> usize {
        self.effects.len()
    }

    /// Forgets all, to be filled again.
    fn clear(&mut self) {
        self.keys.clear();
        self.effects.clear(LOAD_AHEAD_KEEP_BYTES);
        self.effect_count = 0;
    }
}

/// A key that is not added.
#[derive(Debug)]
pub struct Refused {
    /// The number of its database.
    pub db: u64,
    /// Its name.
    pub name: Vec<u8>,
    /// Why not.
    pub why: NotAdded,
}

/// Why a key is not added.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotAdded {
    /// There is no such database.
    #[error("there is no such database: see `databases`")]
    NoDatabase,
    /// A key of this name has been added before.
    #[error("it is there twice")]
    Exists,
}

impl BulkLoad {
    /// Begins to load into `engine`, which is empty. With a directory, which is empty, too, what comes is saved in it.
    pub fn begin(engine: &mut Engine, directory: Option<Arc<Directory>>) -> Result<BulkLoad, RecoveryError> {
        let saved = match directory {
            None => None,
            Some(directory) => {
                let begin = Begin {
                    serial: Rng::from_entropy().next_u64(),
                    time_ms: engine.server.time.clock.now_ms(),
                    sizes: Sizes::default(),
                    // Whoever loads looks again by itself.
                    notify: Box::new(|| {}),
                };
                let mut writer = SnapshotWriter::begin(Arc::clone(&directory), LogBeside::none(), begin);
                let what = "the thread that writes the snapshot";
                // Nobody is served before all is loaded.
                writer.hurry();
                writer.start().map_err(|error| RecoveryError::Thread { what, error })?;
                engine.server.set_tail(Some(Tail::new(Vec::new())));
                // A snapshot is read under these limits, until its first unit sets others.
                engine.ks.set_limits(ValueLimits::default());
                Some(Saved { directory, writer, lsn: None })
            }
        };
        engine.begin_own_time();
        Ok(BulkLoad { saved, beginning: None, _hold: engine.ks.hold_expiry() })
    }

    /// Adds what `add` adds, as one unit. After an error the engine is not to be used any more.
    pub fn slice<T>(&mut self, engine: &mut Engine, add: impl FnOnce(&mut Slice<'_>) -> T) -> T {
        engine.ks.set_now_ms(engine.server.time.clock.now_ms());
        let unit = engine.begin(UnitOrigin::Snapshot);
        let answer = add(&mut Slice { engine });
        engine.commit(unit, &mut []);
        self.hand_over(engine);
        answer
    }

    /// Hands what has changed since the last slice over to be saved. For those who change the data by other ways.
    pub fn hand_over(&mut self, engine: &mut Engine) {
        let (Some(saved), Some(tail)) = (&mut self.saved, &mut engine.server.persistence.tail) else { return };
        if tail.units > 0 {
            let Tail { bytes, units, .. } = std::mem::replace(tail, Tail::new(Vec::new()));
            saved.writer.push(bytes, units);
        }
    }

    /// Whether the disk is behind, so that the next slice should wait. Fails if nothing can be saved.
    pub fn is_behind(&self) -> Result<bool, RecoveryError> {
        let Some(Saved { writer, .. }) = &self.saved else { return Ok(false) };
        match writer.outcome() {
            Some(Err(error)) => Err(RecoveryError::Unsaved(error.to_string())),
            _ => Ok(writer.backlog() > SNAPSHOT_PAUSE_BYTES),
        }
    }

    /// All has been added. Answers whether it is saved; if not, it must be asked again.
    pub fn finish(&mut self, engine: &mut Engine) -> Result<bool, RecoveryError> {
        if let Some((job, lsn)) = &self.beginning {
            let Some(opened) = job.outcome() else { return Ok(false) };
            let begun = opened.and_then(|log| {
                engine.server.persist(&mut engine.ks, |persistence, _, env| persistence.begin_log(env, log, *lsn))
            });
            self.beginning = None;
            return begun.map(|()| true).map_err(RecoveryError::Unsaved);
        }
        engine.ks.fit();
        if self.saved.as_ref().is_some_and(|saved| saved.lsn.is_none()) {
            self.hand_over(engine);
        }
        let Some(Saved { directory, writer, lsn }) = &mut self.saved else {
            engine.server.persistence.saving.loaded_keys = count_keys(engine);
            return Ok(true);
        };
        let lsn = *lsn.get_or_insert_with(|| {
            let server = &mut engine.server;
            let lsn = server.persistence.last_lsn();
            writer.finish(lsn, server.time.clock.now_ms());
            // What clients change while data is loaded, such as limits, is what the log begins with.
            server.set_tail(Some(Tail::default()));
            lsn
        });
        let done = match writer.outcome() {
            None => return Ok(false),
            Some(outcome) => outcome.map_err(|error| RecoveryError::Unsaved(error.to_string()))?,
        };
        let (directory, keys) = (Arc::clone(directory), count_keys(engine));
        let (server, changes) = (&mut engine.server, engine.ks.effects().count());
        server.persistence.saving.goes_on(directory, lsn, keys, done.file_bytes, 0);
        server.persistence.saving.saved_changes = changes;
        self.saved = None;
        if !server.persistence.wants_log(&server.config) {
            server.set_tail(None);
            return Ok(true);
        }
        self.beginning = Some((server.persistence.open_log(&server.config, lsn).map_err(RecoveryError::Unsaved)?, lsn));
        Ok(false)
    }
}

/// A unit in which keys and libraries are added.
pub struct Slice<'e> {
    engine: &'e mut Engine,
}

impl Slice<'_> {
    /// About so many keys are to come in a database. No more than a hint.
    pub fn expect(&mut self, db: u64, keys: u64) {
        let ks = &mut self.engine.ks;
        if let Some(db) = DbIndex::try_from(db).ok().filter(|db| *db < ks.databases() && ks.db(*db).is_empty()) {
            ks.expect(db, keys);
        }
    }

    /// Gives out no fencing token up to this one, which is another server's.
    pub fn raise_tokens(&mut self, to: u64) {
        self.engine.ks.raise_tokens(to);
    }

    /// Adds keys, all but those behind one that is refused. What the processor has to wait for to find their places is
    /// waited for once for some of them.
    pub fn add(&mut self, batch: &mut Batch) -> Result<(), Refused> {
        let ks = &mut self.engine.ks;
        let mut keys = std::mem::take(&mut batch.keys);
        for together in keys.chunks_mut(LOAD_AHEAD_KEYS) {
            ks.warm(together.iter().map(|(key, _)| (key.db(), key.hash())));
            together.iter_mut().try_for_each(|(key, idle_s)| add(ks, key, *idle_s))?;
        }
        ks.record_encoded(batch.effects.as_bytes(), batch.effect_count);
        // Its memory is used again.
        batch.keys = keys;
        batch.clear();
        Ok(())
    }

    /// Adds a library of functions.
    pub fn add_library(&mut self, code: &[u8]) -> Result<(), String> {
        let Engine { ks, server, .. } = &mut *self.engine;
        let loaded = server.programs.scripts.load_library(ks, code, false, &server.meters.stats.clock);
        loaded.map(drop).map_err(|error| error.to_string())
    }
}

fn add(ks: &mut Keyspace, key: &mut PreparedKey, idle_s: Option<u64>) -> Result<(), Refused> {
    let db = key.db();
    let added =
        if db < ks.databases() { ks.add_prepared(key).ok_or(NotAdded::Exists) } else { Err(NotAdded::NoDatabase) };
    let slot = added.map_err(|why| Refused { db: db.into(), name: key.name().to_vec(), why })?;
    if let Some(seconds) = idle_s {
        ks.set_idle(db, slot, i64::try_from(seconds).unwrap_or(i64::MAX));
    }
    Ok(())
}
