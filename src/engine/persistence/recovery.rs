//! Recovers the keyspace from the journal's files when the server starts.
//!
//! [`Loading`] reads the newest snapshot and the journal after it in slices, so that the owner of the thread can serve
//! clients in between.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::base::ahead::{Ahead, Piece as _, Source};
use crate::base::lsn::Lsn;
use crate::engine::limits::{LOAD_AHEAD_BYTES, LOAD_AHEAD_KEYS, RECOVERY_SLICE_BYTES};
use crate::engine::{Engine, ServerState};
use crate::keyspace::effect::Recording;
use crate::keyspace::{Keyspace, ValueLimits};
use crate::log::directory::Directory;
use crate::log::restore::{Position, Restore};
use crate::log::scan::{End, TornTail};
use crate::persist::error::RecoveryError;
use crate::persist::load_pieces::{Change, LoadPieces, Piece, What};
use crate::persist::rdb_export::remove_leftovers;
use crate::persist::saving::Progress;
use crate::persist::tail::UnitOrigin;

/// How often a long recovery reports its progress.
const PROGRESS_EVERY: Duration = Duration::from_secs(5);

/// The work left after a slice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// The next slice.
    More,
    /// The next slice, after the disk has had some time.
    Wait,
    /// None: everything is loaded.
    Complete,
}

/// The result of a recovery.
#[derive(Debug)]
pub struct Recovered {
    /// The last unit.
    pub last: Lsn,
    /// The number of keys.
    pub keys: usize,
    /// Whether the server had closed the journal cleanly.
    pub is_clean: bool,
    /// The torn tail that a crash left and that was cut off.
    pub torn: Option<TornTail>,
    /// The damage of the newest snapshot, if the files that it had replaced were read instead.
    pub passed_over: Option<String>,
}

/// The data of a directory on its way into an empty engine.
pub struct Loading {
    /// Snapshot and journal, read ahead.
    pieces: Ahead<LoadPieces>,
    directory: Arc<Directory>,
    /// The position after the frame or block that is being loaded.
    position: Position,
    began: Instant,
    /// When the progress was last reported.
    reported: Instant,
    /// Bytes loaded so far, and bytes in all.
    progress: (u64, u64),
    is_complete: bool,
    /// Bytes of the journal's units that were loaded.
    log_bytes: u64,
    /// The time of the last unit that was loaded.
    time_ms: i64,
}

impl Loading {
    /// Begins to load `directory` into `engine`, whose keyspace is empty.
    pub fn begin(engine: &mut Engine, directory: impl Into<Arc<Directory>>) -> Result<Loading, RecoveryError> {
        Loading::begin_from(engine, Restore::open(directory)?)
    }

    /// Begins to load what `restore` reads into `engine`, whose keyspace is empty.
    pub(super) fn begin_from(engine: &mut Engine, restore: Restore) -> Result<Loading, RecoveryError> {
        // The first units of the files set the limits under which their effects were made.
        engine.ks.set_limits(ValueLimits::default());
        // Stored scripts are kept, even if they were added under a greater limit.
        engine.server.programs.scripts.set_memory_limit(0);
        let (progress, position) = (restore.progress(), restore.position());
        let directory = Arc::clone(restore.directory());
        let pieces = LoadPieces::new(restore, engine.server.persistence.saving.platform.load_piece_bytes);
        // An empty directory may be given up and handed back, so nothing may be read ahead from it.
        let pieces = if progress.1 == 0 { Ahead::here(pieces) } else { engine.read_ahead(pieces)? };
        let began = Instant::now();
        let (reported, is_complete, log_bytes, time_ms) = (began, false, 0, 0);
        Ok(Loading { pieces, directory, position, began, reported, progress, is_complete, log_bytes, time_ms })
    }

    /// Whether there is nothing to load: the directory is new, or an earlier load into it was never completed.
    pub fn is_empty(&self) -> bool {
        self.progress.1 == 0
    }

    /// Gives up the load from the directory, which is empty, and removes incomplete files from it.
    pub fn into_directory(self) -> Result<Arc<Directory>, RecoveryError> {
        Ok(self.pieces.into_source().restore.finish_without_log()?)
    }

    /// Loads pieces until they have taken `bytes` bytes of memory, and at least one: up to
    /// [`load_piece_bytes`](crate::log::platform::Platform::load_piece_bytes) and an effect more than that.
    pub fn step(&mut self, engine: &mut Engine, bytes: usize) -> Result<Progress, RecoveryError> {
        let mut loaded = 0;
        while !self.is_complete && loaded < bytes.max(1) {
            loaded += self.load_piece(engine)?;
        }
        let ((read, all), is_complete) = (self.progress, self.is_complete);
        if !is_complete && self.reported.elapsed() >= PROGRESS_EVERY {
            self.reported = Instant::now();
            tracing::info!("loading: {}% of {} MB", read * 100 / all.max(1), all >> 20);
        }
        Ok(Progress { began: self.began, read, all, is_complete })
    }

    /// Whether the last loaded piece ends inside a unit, not at the end of a block or frame.
    #[cfg(test)]
    pub(crate) fn is_inside_unit(&mut self) -> Option<bool> {
        self.pieces.source().is_inside_unit()
    }

    /// Loads a piece. Returns the number of bytes that it counts for.
    fn load_piece(&mut self, engine: &mut Engine) -> Result<usize, RecoveryError> {
        let Some(mut piece) = self.pieces.next_piece() else {
            self.is_complete = true;
            return Ok(0);
        };
        self.progress = piece.progress;
        if let Err(Unfit { lsn, index, what }) = engine.repeat(&mut piece, &mut self.position) {
            let (path, offset) = self.position.find(&self.directory);
            return Err(match self.position {
                Position::Snapshot(..) => RecoveryError::SnapshotMisfit { path, offset, index, what },
                Position::Segment(..) => RecoveryError::Misfit { path, offset, lsn, index, what },
            });
        }
        if let Some(error) = piece.error.take() {
            return Err(error.into());
        }
        self.time_ms = engine.ks.now_ms();
        self.log_bytes += piece.log_bytes as u64;
        let weight = piece.weight();
        // The piece is cleared now, not before it is filled again, since it may have been huge.
        piece.clear();
        self.pieces.give_back(piece);
        Ok(weight)
    }

    /// Loads the rest, and makes the engine go on with a journal. `notify` is called, on any thread, when
    /// [`ServerState::maintain_journal`](crate::engine::ServerState::maintain_journal) has something to do.
    pub fn finish(
        mut self,
        engine: &mut Engine,
        notify: Box<dyn Fn() + Send + Sync>,
    ) -> Result<Recovered, RecoveryError> {
        while !self.step(engine, usize::MAX)?.is_complete {}
        let restore = self.pieces.into_source().restore;
        let (end, passed_over) = end_of_files(&restore);
        resume_saving(engine, &restore, end.lsn, self.log_bytes);
        engine.server.persist(&mut engine.ks, |persistence, _, env| {
            persistence.resume_journal(env.config, restore, end.lsn, notify)
        })?;
        engine.begin_own_time();
        Ok(Recovered::new(engine, end, passed_over))
    }

    /// Ends the load of a node, everything of which is loaded. Snapshots will be made in the same directory. Returns
    /// the time of the last unit.
    pub(super) fn finish_for_group(self, engine: &mut Engine, last: Lsn) -> i64 {
        let restore = self.pieces.into_source().restore;
        resume_saving(engine, &restore, last, self.log_bytes);
        engine.ks.fit();
        self.time_ms
    }

    /// Loads the rest, and makes the engine go on in memory only. Also returns the directory, in which snapshots can be
    /// made.
    pub fn finish_without_log(mut self, engine: &mut Engine) -> Result<(Recovered, Arc<Directory>), RecoveryError> {
        while !self.step(engine, usize::MAX)?.is_complete {}
        let restore = self.pieces.into_source().restore;
        let (end, passed_over) = end_of_files(&restore);
        resume_saving(engine, &restore, end.lsn, self.log_bytes);
        let directory = restore.finish_without_log()?;
        engine.begin_own_time();
        Ok((Recovered::new(engine, end, passed_over), directory))
    }
}

/// Makes later snapshots go to the restored directory.
fn resume_saving(engine: &mut Engine, restore: &Restore, last: Lsn, log_bytes: u64) {
    let keys = count_keys(engine);
    let directory = Arc::clone(restore.directory());
    if engine.server.config.rdb_export {
        remove_leftovers(&directory, &engine.server.config.dbfilename);
    }
    let written_bytes = engine.server.persistence.log_written_bytes();
    let saving = &mut engine.server.persistence.saving;
    saving.resume(directory, last, keys, restore.snapshot_bytes(), log_bytes);
    // The journal of a node that loads again has counted before, and goes on.
    saving.log_bytes_offset = saving.log_bytes_offset.saturating_sub_unsigned(written_bytes);
}

fn end_of_files(restore: &Restore) -> (End, Option<String>) {
    let nothing = End { lsn: Lsn::NONE, is_clean: true, torn: None };
    (restore.end().cloned().unwrap_or(nothing), restore.passed_over().map(ToString::to_string))
}

impl Recovered {
    fn new(engine: &Engine, end: End, passed_over: Option<String>) -> Recovered {
        Recovered { last: end.lsn, keys: count_keys(engine), is_clean: end.is_clean, torn: end.torn, passed_over }
    }
}

/// The number of keys in all databases.
pub(crate) fn count_keys(engine: &Engine) -> usize {
    (0..engine.ks.databases()).map(|db| engine.ks.db(db).len()).sum()
}

impl Engine {
    /// Replays the snapshot and the journal in `directory` into an empty keyspace, and goes on after them. `notify` is
    /// as for [`Loading::finish`].
    pub fn recover(
        &mut self,
        directory: Directory,
        notify: Box<dyn Fn() + Send + Sync>,
    ) -> Result<Recovered, RecoveryError> {
        let mut loading = Loading::begin(self, directory)?;
        while !loading.step(self, RECOVERY_SLICE_BYTES)?.is_complete {}
        loading.finish(self, notify)
    }

    /// Reads ahead on a thread of its own, where there are threads.
    pub(crate) fn read_ahead<S: Source>(&self, source: S) -> Result<Ahead<S>, RecoveryError> {
        if !self.server.persistence.saving.platform.has_threads {
            return Ok(Ahead::here(source));
        }
        let what = "the thread that reads data ahead";
        Ahead::on_thread("load", LOAD_AHEAD_BYTES, source).map_err(|error| RecoveryError::Thread { what, error })
    }

    /// Ends the replay: from here on time and limits are the server's own.
    pub(in crate::engine) fn begin_own_time(&mut self) {
        self.ks.set_now_ms(self.server.time.clock.now_ms());
        self.ks.fit();
        self.server.role_changed();
        self.server.persistence.handover.warn();
        if self.server.persistence.handover.received().is_some() {
            // The values still grow as they do at the server that changes them.
            return;
        }
        let unit = self.begin(UnitOrigin::Start);
        self.server.begin_own_limits(&mut self.ks);
        self.commit(unit, &mut []);
    }

    /// Replays a piece and updates `position`. The lookups of several keys begin together.
    fn repeat(&mut self, piece: &mut Piece, position: &mut Position) -> Result<(), Unfit> {
        // Clients may be served between two pieces, and replayed units have their own time.
        self.server.time.expire_clock_reading();
        let mut changes = std::mem::take(&mut piece.changes);
        for together in changes.chunks_mut(LOAD_AHEAD_KEYS) {
            self.ks.warm(together.iter().filter_map(Change::key));
            // The changes are read in place: moved data could not be read before the processor's earlier writes are
            // done.
            for Change { lsn, index, what } in together {
                let unfit = |index, what| Unfit { lsn: *lsn, index, what };
                match what {
                    What::Begin { time_ms, position: behind } => {
                        self.ks.begin_unit(*time_ms, Recording::Nothing);
                        *position = *behind;
                        let databases = self.ks.databases();
                        for (db, keys) in piece.expected.drain(..).filter(|(db, _)| *db < databases) {
                            self.ks.expect(db, keys);
                        }
                    }
                    What::Key(key) => {
                        self.ks.put_prepared(key).map_err(|misfit| unfit(*index, misfit.to_string()))?;
                    }
                    What::Effects { at, .. } => {
                        for (behind, (db, effect)) in piece.effects(at.clone()).enumerate() {
                            let applied = self.apply(db, &effect);
                            applied.map_err(|misfit| unfit(*index + behind, misfit.to_string()))?;
                        }
                    }
                    What::Unfit(what) => return Err(unfit(*index, std::mem::take(what))),
                }
            }
        }
        changes.clear();
        // Its memory is reused.
        piece.changes = changes;
        Ok(())
    }
}

impl ServerState {
    /// Makes values and scripts grow within this server's limits from here on.
    pub(crate) fn begin_own_limits(&mut self, ks: &mut Keyspace) {
        ks.set_limits(ValueLimits::from(&self.config));
        self.programs.scripts.set_memory_limit(self.config.script_memory_limit);
        self.programs.scripts.limit_cache(ks, self.config.script_cache_max_bytes);
    }
}

/// A unit that does not fit the data.
struct Unfit {
    lsn: Lsn,
    /// Which of its effects, from 0.
    index: usize,
    what: String,
}
