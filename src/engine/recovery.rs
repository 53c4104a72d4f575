//! From the files of the log back to the keyspace, when the server starts.
//!
//! [`Loading`] reads the newest snapshot and the log behind it in slices, so that whoever owns the thread can answer others
//! between two of them.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::rdb_export::remove_leftovers;
use super::saving::Progress;
use super::tail::{EFFECTS_FORMAT, UnitOrigin};
use super::{Engine, Server};
use crate::base::limits::{LOAD_AHEAD_KEYS, RECOVERY_SLICE_BYTES, SNAPSHOT_FRAME_BYTES};
use crate::base::lsn::Lsn;
use crate::config::rest_per_key;
use crate::keyspace::effect::{Effect, EffectReader, Recording};
use crate::keyspace::{DbIndex, ValueLimits};
use crate::log::block::{UNIT_HEAD_BYTES, Unit};
use crate::log::directory::Directory;
use crate::log::error::LogError;
use crate::log::group_commit::Options;
use crate::log::restore::{Part, Restore};
use crate::log::scan::{End, TornTail};

/// How often a long recovery tells how far it is.
const PROGRESS_EVERY: Duration = Duration::from_secs(5);

/// Why the data can't be had again. Nothing has been changed on disk.
#[derive(Debug, thiserror::Error)]
pub enum RecoveryError {
    /// The files can't be read.
    #[error(transparent)]
    Log(#[from] LogError),
    /// The files are whole, and what they say does not fit what they said before.
    #[error("{}: effect {index} of Lsn {lsn}, in the block that ends at offset {offset}, {what}", path.display())]
    Misfit {
        /// The segment.
        path: PathBuf,
        /// Where the block ends.
        offset: u64,
        /// The unit.
        lsn: Lsn,
        /// Which of its effects, from 0.
        index: usize,
        /// What is wrong with it.
        what: String,
    },
    /// The same, in a snapshot.
    #[error("{}: effect {index} of a unit in the frame that ends at offset {offset} {what}", path.display())]
    SnapshotMisfit {
        /// The snapshot.
        path: PathBuf,
        /// Where the frame ends.
        offset: u64,
        /// Which effect of the unit, from 0.
        index: usize,
        /// What is wrong with it.
        what: String,
    },
    /// The threads of the log can't be started.
    #[error("cannot start the log's threads: {0}")]
    Threads(std::io::Error),
    /// What was loaded from elsewhere can't be saved.
    #[error("the data that was loaded can't be saved: {0}")]
    Unsaved(String),
}

/// What is left to do after a slice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// The next slice.
    More,
    /// The next slice, when the disk has had some time.
    Wait,
    /// Nothing: all is there.
    Complete,
}

/// What was recovered.
#[derive(Debug)]
pub struct Recovered {
    /// The last unit.
    pub last: Lsn,
    /// How many keys there are.
    pub keys: usize,
    /// Whether the log had been closed by the server before.
    pub is_clean: bool,
    /// What a crash has left, and was cut off.
    pub torn: Option<TornTail>,
    /// What is wrong with the newest snapshot, if what it had replaced was read in its place.
    pub passed_over: Option<String>,
}

/// The data of a directory on its way into an engine that is empty.
pub struct Loading {
    restore: Restore,
    began: Instant,
    /// When it was last told how far it is.
    told: Instant,
    is_complete: bool,
    /// Bytes of the units of the log that were loaded.
    log_bytes: u64,
}

impl Loading {
    /// Begins to load what is in `directory` into `engine`, whose keyspace is empty.
    pub fn begin(engine: &mut Engine, directory: impl Into<Arc<Directory>>) -> Result<Loading, RecoveryError> {
        let restore = Restore::open(directory)?;
        // The files say which limits their effects were made under: their first units set them.
        engine.ks.set_limits(ValueLimits::default());
        // What was kept is kept, though it may have been brought under a greater limit.
        engine.server.scripts.set_memory_limit(0);
        Ok(Loading { restore, began: Instant::now(), told: Instant::now(), is_complete: false, log_bytes: 0 })
    }

    /// Whether there is nothing to load: the directory is new, or what would have been put there never was complete.
    pub fn is_empty(&self) -> bool {
        self.restore.progress().1 == 0
    }

    /// Gives up to load from the directory, which is empty, and removes what is not complete in it.
    pub fn into_directory(self) -> Result<Arc<Directory>, RecoveryError> {
        Ok(self.restore.finish_without_log()?)
    }

    /// Loads at least `bytes` bytes of effects if there are so many, and not much more than one block of the log beyond them.
    pub fn step(&mut self, engine: &mut Engine, bytes: usize) -> Result<Progress, RecoveryError> {
        let mut loaded = 0;
        while !self.is_complete && loaded < bytes.max(1) {
            loaded += self.load_part(engine)?;
        }
        let (read, all) = self.restore.progress();
        if !self.is_complete && self.told.elapsed() >= PROGRESS_EVERY {
            self.told = Instant::now();
            tracing::info!("loading: {}% of {} MB", read * 100 / all.max(1), all >> 20);
        }
        Ok(Progress { began: self.began, read, all, is_complete: self.is_complete })
    }

    /// Loads what is read in one go. Answers for how many bytes that counts.
    fn load_part(&mut self, engine: &mut Engine) -> Result<usize, RecoveryError> {
        let mut bytes = 0;
        let mut count = |unit: &Unit<'_>| bytes += UNIT_HEAD_BYTES + unit.effects.len();
        // A unit that does not fit is told with its place, which the part in hand does not let the files say.
        let (is_snapshot, repeated) = match self.restore.next_part()? {
            // As much as a frame of a snapshot holds.
            Some(Part::Checked) => return Ok(SNAPSHOT_FRAME_BYTES),
            Some(Part::Snapshot(frame)) => (true, engine.repeat(frame.units().inspect(&mut count), frame.begun_ms())),
            Some(Part::Block(block)) => (false, engine.repeat(block.units().inspect(&mut count), block.time_ms())),
            None => {
                self.is_complete = true;
                return Ok(0);
            }
        };
        if !is_snapshot {
            self.log_bytes += bytes as u64;
        }
        // A frame may hold nothing but a part of one long unit.
        let counts = if bytes == 0 { SNAPSHOT_FRAME_BYTES } else { bytes };
        let Err(Unfit { lsn, index, what }) = repeated else { return Ok(counts) };
        let (path, offset) = self.restore.position();
        Err(if is_snapshot {
            RecoveryError::SnapshotMisfit { path, offset, index, what }
        } else {
            RecoveryError::Misfit { path, offset, lsn, index, what }
        })
    }

    /// Loads the rest, and has the engine go on behind it with a log. `notify` is called, on any thread, when
    /// [`Server::look_after_log`](super::Server::look_after_log) has something to do.
    pub fn finish(
        mut self,
        engine: &mut Engine,
        notify: Box<dyn Fn() + Send + Sync>,
    ) -> Result<Recovered, RecoveryError> {
        while !self.step(engine, usize::MAX)?.is_complete {}
        let (end, passed_over) = self.told_of_files();
        self.tell_saving(engine, end.lsn);
        let platform = engine.server.saving.platform.clone();
        let options = Options { policy: engine.server.config.appendfsync.into(), ..platform.options };
        let mut log = self.restore.finish(options, platform.clock, notify)?;
        if platform.has_threads {
            log.start().map_err(RecoveryError::Threads)?;
        }
        engine.server.attach_log(log, end.lsn);
        engine.begin_own_time();
        Ok(Recovered::new(engine, end, passed_over))
    }

    /// Loads the rest, and has the engine go on in memory only. Answers the directory, too, in which snapshots can be made.
    pub fn finish_without_log(mut self, engine: &mut Engine) -> Result<(Recovered, Arc<Directory>), RecoveryError> {
        while !self.step(engine, usize::MAX)?.is_complete {}
        let (end, passed_over) = self.told_of_files();
        self.tell_saving(engine, end.lsn);
        let directory = self.restore.finish_without_log()?;
        engine.begin_own_time();
        Ok((Recovered::new(engine, end, passed_over), directory))
    }

    /// Snapshots go on in this directory.
    fn tell_saving(&self, engine: &mut Engine, last: Lsn) {
        let keys = count_keys(engine);
        let directory = Arc::clone(self.restore.directory());
        if engine.server.config.rdb_export {
            remove_leftovers(&directory, &engine.server.config.dbfilename);
        }
        engine.server.saving.goes_on(directory, last, keys, self.restore.snapshot_bytes(), self.log_bytes);
    }

    fn told_of_files(&self) -> (End, Option<String>) {
        let nothing = End { lsn: Lsn::NONE, is_clean: true, torn: None };
        (self.restore.end().cloned().unwrap_or(nothing), self.restore.passed_over().map(ToString::to_string))
    }
}

impl Recovered {
    fn new(engine: &Engine, end: End, passed_over: Option<String>) -> Recovered {
        Recovered { last: end.lsn, keys: count_keys(engine), is_clean: end.is_clean, torn: end.torn, passed_over }
    }
}

/// How many keys there are, in all databases.
pub(crate) fn count_keys(engine: &Engine) -> usize {
    (0..engine.ks.databases()).map(|db| engine.ks.db(db).len()).sum()
}

impl Server {
    /// How long a start rests behind so many keys that it has loaded: `key-load-delay`.
    pub(crate) fn rest_behind(&self, keys: usize) -> Duration {
        rest_per_key(self.config.key_load_delay_us).saturating_mul(u32::try_from(keys).unwrap_or(u32::MAX))
    }
}

impl Engine {
    /// Repeats all that the snapshot and the log in `directory` hold, and goes on behind it. For a keyspace that is empty.
    /// `notify` is as for [`Loading::finish`].
    pub fn recover(
        &mut self,
        directory: Directory,
        notify: Box<dyn Fn() + Send + Sync>,
    ) -> Result<Recovered, RecoveryError> {
        let mut loading = Loading::begin(self, directory)?;
        while !loading.step(self, RECOVERY_SLICE_BYTES)?.is_complete {}
        loading.finish(self, notify)
    }

    /// The past has been repeated: from here on time and limits are the server's own.
    pub(super) fn begin_own_time(&mut self) {
        self.ks.set_now_ms(self.server.clock.now_ms());
        self.ks.fit();
        let unit = self.begin(UnitOrigin::Start);
        let Engine { ks, server, .. } = self;
        ks.set_limits(ValueLimits::from(&server.config));
        server.scripts.set_memory_limit(server.config.script_memory_limit);
        server.scripts.limit_cache(ks, server.config.script_cache_max_bytes);
        self.commit(unit, &mut []);
    }

    /// Repeats these units. Some effects are read ahead, so that their keys can be [warmed](crate::keyspace::Keyspace::warm) together.
    fn repeat<'u>(&mut self, units: impl Iterator<Item = Unit<'u>>, time_ms: i64) -> Result<(), Unfit> {
        self.ks.begin_unit(time_ms, Recording::Nothing);
        let mut effects = units.flat_map(decoded);
        let mut ahead = Vec::with_capacity(LOAD_AHEAD_KEYS);
        loop {
            ahead.extend(effects.by_ref().take(LOAD_AHEAD_KEYS));
            if ahead.is_empty() {
                return Ok(());
            }
            for decoded in &ahead {
                if let Ok((db, effect)) = decoded.effect
                    && let Some(key) = effect.key()
                {
                    self.ks.warm(db, key);
                }
            }
            for Decoded { lsn, index, effect } in ahead.drain(..) {
                let unfit = |what| Unfit { lsn, index, what };
                let (db, effect) = effect.map_err(unfit)?;
                self.apply(db, &effect).map_err(|misfit| unfit(misfit.to_string()))?;
            }
        }
    }
}

/// An effect of a unit, or why there is none.
struct Decoded<'u> {
    lsn: Lsn,
    /// Which effect of the unit, from 0.
    index: usize,
    effect: Result<(DbIndex, Effect<'u>), String>,
}

/// A unit that does not fit what is there.
struct Unfit {
    lsn: Lsn,
    /// Which of its effects, from 0.
    index: usize,
    what: String,
}

/// The effects of a unit. The last of them is an error if what is left of the unit is none.
fn decoded(unit: Unit<'_>) -> impl Iterator<Item = Decoded<'_>> {
    let Unit { lsn, format, effects, .. } = unit;
    let is_known = format == EFFECTS_FORMAT;
    let mut effects = EffectReader::new(if is_known { effects } else { &[] });
    let mut unread = match is_known {
        true => None,
        false => Some(format!("has format {format}, which this version does not know")),
    };
    (0..).map_while(move |index| {
        let effect = match (effects.next(), effects.is_empty()) {
            (Some(effect), _) => Ok(effect),
            (None, true) => Err(unread.take()?),
            (None, false) => {
                effects = EffectReader::new(&[]);
                Err("can't be read".to_owned())
            }
        };
        Some(Decoded { lsn, index, effect })
    })
}
