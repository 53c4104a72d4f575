//! Loads foreign data when the server starts. The data goes directly into the keyspace and, with a journal, at the same
//! time into a snapshot, after which the journal begins.
//!
//! The reader of the foreign data adds keys slice by slice; a thread has prepared them together with the effects that
//! make them. Each slice is a unit, and its effects go to the writer of the snapshot, which works in parallel, so
//! nothing is read or made twice. The file has a temporary name until it is complete and durable. A directory therefore
//! holds all of the data or, after an earlier crash, none of it; then the next start finds an empty directory and
//! begins again.
//!
//! Nothing else changes the keyspace during the load, and nothing expires before all of the data is there.

use std::sync::Arc;

use super::recovery::count_keys;
use crate::base::lsn::Lsn;
use crate::base::rng::Rng;
use crate::engine::limits::LOAD_AHEAD_KEYS;
use crate::engine::state::Engine;
use crate::keyspace::effect::EffectWriter;
use crate::keyspace::prepared::PreparedKey;
use crate::keyspace::{DbIndex, ExpiryHold, Keyspace, ValueLimits};
use crate::log::directory::Directory;
use crate::log::limits::SNAPSHOT_PAUSE_BYTES;
use crate::log::snapshot::writer::{Begin, LogBeside, Sizes, SnapshotWriter};
use crate::persist::error::RecoveryError;
use crate::persist::limits::LOAD_AHEAD_KEEP_BYTES;
use crate::persist::saving::Opening;
use crate::persist::tail::Tail;
use crate::persist::tail::UnitOrigin;

/// Data on its way into an empty engine. See the module's header.
pub struct BulkLoad {
    saved: Option<Saved>,
    /// The journal that is opened for the time after the load, and the Lsn after which it begins.
    beginning: Option<(Opening, Lsn)>,
    /// Overdue keys expire once everything is loaded, as if they had always been here.
    _hold: ExpiryHold,
}

/// The snapshot that is written in parallel.
struct Saved {
    directory: Arc<Directory>,
    writer: SnapshotWriter,
    /// The snapshot's Lsn, once everything has been handed over.
    lsn: Option<Lsn>,
}

/// Keys that are added together, and the effects that say so to the journal's readers.
#[derive(Default)]
pub struct Batch {
    /// The keys, each with the seconds since its last use, if known.
    keys: Vec<(PreparedKey, Option<u64>)>,
    /// The effects that make them.
    effects: EffectWriter,
    /// The number of effects.
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

    /// Empties the batch for reuse.
    fn clear(&mut self) {
        self.keys.clear();
        self.effects.clear(LOAD_AHEAD_KEEP_BYTES);
        self.effect_count = 0;
    }
}

/// A key that was refused.
#[derive(Debug)]
pub struct Refused {
    /// The number of its database.
    pub db: u64,
    /// Its name.
    pub name: Vec<u8>,
    /// Why it was refused.
    pub why: NotAdded,
}

/// Why a key was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotAdded {
    /// There is no such database.
    #[error("its database does not exist: raise `databases`")]
    NoDatabase,
    /// A key of this name was added before.
    #[error("it occurs twice")]
    Exists,
}

impl BulkLoad {
    /// Begins to load into `engine`, which is empty. If an empty directory is given, the data is saved in it.
    pub fn begin(engine: &mut Engine, directory: Option<Arc<Directory>>) -> Result<BulkLoad, RecoveryError> {
        let saved = match directory {
            None => None,
            Some(directory) => {
                let begin = Begin {
                    serial: Rng::from_entropy().next_u64(),
                    time_ms: engine.server.time.clock.now_ms(),
                    sizes: Sizes::default(),
                    // The caller checks again by itself.
                    notify: Box::new(|| {}),
                };
                let mut writer = SnapshotWriter::begin(Arc::clone(&directory), LogBeside::none(), begin);
                let what = "the thread that writes the snapshot";
                // No client is served before everything is loaded.
                writer.hurry();
                writer.start().map_err(|error| RecoveryError::Thread { what, error })?;
                engine.server.set_tail(Some(Tail::new(Vec::new())));
                // A snapshot is read under these limits until its first unit sets others.
                engine.ks.set_limits(ValueLimits::default());
                Some(Saved { directory, writer, lsn: None })
            }
        };
        engine.begin_own_time();
        Ok(BulkLoad { saved, beginning: None, _hold: engine.ks.hold_expiry() })
    }

    /// Runs `add` as one unit. After an error the engine must not be used any more.
    pub fn slice<T>(&mut self, engine: &mut Engine, add: impl FnOnce(&mut Slice<'_>) -> T) -> T {
        engine.ks.set_now_ms(engine.server.time.clock.now_ms());
        let unit = engine.begin(UnitOrigin::Snapshot);
        let answer = add(&mut Slice { engine });
        engine.commit(unit, &mut []);
        self.hand_over(engine);
        answer
    }

    /// Hands the changes since the last slice over to be saved, for callers that change the data in other ways.
    pub fn hand_over(&mut self, engine: &mut Engine) {
        let (Some(saved), Some(tail)) = (&mut self.saved, &mut engine.server.persistence.tail) else { return };
        if tail.units > 0 {
            let Tail { bytes, units, .. } = std::mem::replace(tail, Tail::new(Vec::new()));
            saved.writer.push(bytes, units);
        }
    }

    /// Whether the disk lags behind, so that the next slice should wait. Fails if nothing can be saved.
    pub fn is_behind(&self) -> Result<bool, RecoveryError> {
        let Some(Saved { writer, .. }) = &self.saved else { return Ok(false) };
        match writer.outcome() {
            Some(Err(error)) => Err(RecoveryError::Unsaved(error.to_string())),
            _ => Ok(writer.backlog() > SNAPSHOT_PAUSE_BYTES),
        }
    }

    /// Finishes the load. Returns whether everything is saved; if not, it must be called again.
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
            // Changes by clients during the load, such as limits, are the first in the journal.
            server.set_tail(Some(Tail::default()));
            lsn
        });
        let done = match writer.outcome() {
            None => return Ok(false),
            Some(outcome) => outcome.map_err(|error| RecoveryError::Unsaved(error.to_string()))?,
        };
        let (directory, keys) = (Arc::clone(directory), count_keys(engine));
        let (server, changes) = (&mut engine.server, engine.ks.effects().count());
        server.persistence.saving.resume(directory, lsn, keys, done.file_bytes, 0);
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

/// A unit that adds keys and libraries.
pub struct Slice<'e> {
    engine: &'e mut Engine,
}

impl Slice<'_> {
    /// Announces about how many keys will be added to a database. Only a hint.
    pub fn expect(&mut self, db: u64, keys: u64) {
        let ks = &mut self.engine.ks;
        if let Some(db) = DbIndex::try_from(db).ok().filter(|db| *db < ks.databases() && ks.db(*db).is_empty()) {
            ks.expect(db, keys);
        }
    }

    /// Makes fencing tokens begin above `to`, which is another server's last one.
    pub fn raise_tokens(&mut self, to: u64) {
        self.engine.ks.raise_tokens(to);
    }

    /// Adds keys, up to the first one that is refused. The keys are looked up in groups, so that their cache misses
    /// overlap.
    pub fn add(&mut self, batch: &mut Batch) -> Result<(), Refused> {
        let ks = &mut self.engine.ks;
        let mut keys = std::mem::take(&mut batch.keys);
        for together in keys.chunks_mut(LOAD_AHEAD_KEYS) {
            ks.warm(together.iter().map(|(key, _)| (key.db(), key.hash())));
            together.iter_mut().try_for_each(|(key, idle_s)| add(ks, key, *idle_s))?;
        }
        ks.record_encoded(batch.effects.as_bytes(), batch.effect_count);
        // Its memory is reused.
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
