//! From the files of the log back to the keyspace, when the server starts.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::Engine;
use super::tail::EFFECTS_FORMAT;
use super::unit::Origin;
use crate::base::lsn::Lsn;
use crate::keyspace::ValueLimits;
use crate::keyspace::effect::{EffectReader, Recording};
use crate::log::directory::Directory;
use crate::log::disk::RealClock;
use crate::log::error::LogError;
use crate::log::group_commit::Options;
use crate::log::scan::{Recovery, TornTail};

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
    /// The threads of the log can't be started.
    #[error("cannot start the log's threads: {0}")]
    Threads(std::io::Error),
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
}

impl Engine {
    /// Repeats all that the log in `directory` holds, and goes on behind it. For a keyspace that is empty. `notify` is called,
    /// on any thread, when [`Server::follow_log`](super::Server::follow_log) has something to do.
    pub fn recover(
        &mut self,
        directory: Directory,
        notify: Box<dyn Fn() + Send + Sync>,
    ) -> Result<Recovered, RecoveryError> {
        let mut recovery = Recovery::open(directory, Lsn::NONE)?;
        // The log says which limits its effects were made under: its first unit sets them.
        self.ks.set_limits(ValueLimits::default());
        // What was kept is kept, though it may have been brought under a greater limit.
        self.server.scripts.set_memory_limit(0);
        let mut told = Instant::now();
        while let Some(block) = recovery.next_block()? {
            // A unit that does not fit is told with its place, which the block in hand does not let the recovery say.
            let misfit = block.units().find_map(|unit| {
                let (index, what) = self.repeat(unit.format, unit.effects, block.time_ms()).err()?;
                Some((unit.lsn, index, what))
            });
            if let Some((lsn, index, what)) = misfit {
                let (path, offset) = recovery.position();
                return Err(RecoveryError::Misfit { path, offset, lsn, index, what });
            }
            if told.elapsed() >= PROGRESS_EVERY {
                told = Instant::now();
                let (read, all) = recovery.progress();
                tracing::info!("loading: {}% of {} MB", read * 100 / all.max(1), all >> 20);
            }
        }
        let end = recovery.end().cloned();
        let options = Options { policy: self.server.config.appendfsync.into(), ..Options::default() };
        let mut log = recovery.finish(options, Arc::new(RealClock::default()), notify)?;
        log.start().map_err(RecoveryError::Threads)?;
        let last = log.durable();
        self.server.attach_log(log, last);
        self.ks.set_now_ms(self.server.clock.now_ms());
        let unit = self.begin(Origin::Start);
        let Engine { ks, server, .. } = self;
        ks.set_limits(ValueLimits::from(&server.config));
        server.scripts.set_memory_limit(server.config.script_memory_limit);
        server.scripts.limit_cache(ks, server.config.script_cache_max_bytes);
        self.commit(unit, &mut []);
        let keys = (0..self.ks.databases()).map(|db| self.ks.db(db).len()).sum();
        let (is_clean, torn) = end.map_or((true, None), |end| (end.is_clean, end.torn));
        Ok(Recovered { last, keys, is_clean, torn })
    }

    /// Repeats one unit. If it does not fit: which of its effects, and why.
    fn repeat(&mut self, format: u8, effects: &[u8], time_ms: i64) -> Result<(), (usize, String)> {
        if format != EFFECTS_FORMAT {
            return Err((0, format!("has format {format}, which this version does not know")));
        }
        self.ks.begin_unit(time_ms, Recording::Nothing);
        let mut effects = EffectReader::new(effects);
        for index in 0.. {
            let Some((db, effect)) = effects.next() else { break };
            self.apply(db, &effect).map_err(|misfit| (index, misfit.to_string()))?;
        }
        if effects.is_empty() { Ok(()) } else { Err((0, "can't be read".to_owned())) }
    }
}
