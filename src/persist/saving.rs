//! State of the current snapshot: its purpose, its stage and the clients that wait for it.
//!
//! A snapshot is a stream of effects that rebuilds the data from nothing ([`super::snapshot_stream`]). A thread of its
//! own writes it to a file ([`crate::log::snapshot`]). It is made while the server works: between two units a slice of
//! the data is copied, and the changes of each unit are appended behind it. It ends with the number of the last unit
//! that it holds, and the journal up to that unit is dropped. Only one snapshot is made at a time:
//!
//! ```text
//! Wanted ----> Copying ----> Ending ----> concluded: reported in the log and in INFO; waiting clients get replies
//!        slices,       the file's  |     (a failure in any stage leads there, and leaves earlier files unchanged)
//!        units         thread ends |
//!                            Beginning: opens the journal that follows the snapshot, if there is none yet
//!                            Exporting: writes the same data as RDB, if `rdb-export` asks for it
//! ```
//!
//! Work that depends on the disk's speed is left to threads: one writes the snapshot's file, one serves each of the two
//! lower stages, and one opens the directory ([`Home`]), for which the first snapshot waits.
//!
//! This file holds the state; [`super::save_slices`] advances it, and [`super::save_triggers`] decides when a snapshot
//! starts without a request.

use std::path::PathBuf;
use std::sync::mpsc::Receiver;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use super::rdb_export::Exporting;
use super::snapshot_stream::SnapshotStream;
use super::tail::{EFFECTS_FORMAT, UnitOrigin};
use crate::base::clock::Clock;
use crate::base::lsn::Lsn;
use crate::base::rng::Rng;
use crate::keyspace::Keyspace;
use crate::keyspace::effect::EffectWriter;
use crate::log::block::unit_head;
use crate::log::directory::Directory;
use crate::log::group_commit::Log;
use crate::log::limits::SAVE_SLICE_BYTES;
use crate::log::platform::{Ending, Job, Platform};
use crate::log::snapshot::writer::SnapshotWriter;
use crate::persist::limits::SNAPSHOT_GIVE_UP_BYTES;
use crate::spec::session_key::SessionKey;
use crate::spec::table::CommandId;

/// The data folder, below `dir`.
pub const DATA_DIR: &str = "tidegate-data";

/// The purpose of a snapshot, which decides how INFO reports it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// To save the data: SAVE, BGSAVE, the points of `save`, the end of the server.
    Save,
    /// To drop the journal before it, or to begin one behind it: BGREWRITEAOF, a grown journal, `appendonly yes`.
    Rewrite,
}

/// Statistics on the snapshots of one purpose.
#[derive(Clone, Copy, Debug)]
pub struct History {
    /// Whether the last snapshot succeeded; true if there was none.
    pub is_ok: bool,
    /// How long the last snapshot took, in seconds.
    pub last_s: Option<u64>,
    /// When the last snapshot began, in ms of the steady clock.
    pub tried_ms: i64,
    /// Snapshots that have succeeded.
    pub done: u64,
    /// Snapshots that have failed since the last success.
    pub failures_in_a_row: u32,
}

impl History {
    /// Records the outcome of a snapshot.
    pub(crate) fn end(&mut self, is_ok: bool) {
        self.is_ok = is_ok;
        self.failures_in_a_row = if is_ok { 0 } else { self.failures_in_a_row + 1 };
    }
}

impl Default for History {
    fn default() -> History {
        History { is_ok: true, last_s: None, tried_ms: 0, done: 0, failures_in_a_row: 0 }
    }
}

/// Wakes a task from any thread.
pub type Wake = Arc<dyn Fn() + Send + Sync>;

/// Location of the data.
pub(crate) enum Home {
    /// None: the server keeps no data, as in a test or a benchmark.
    None,
    /// In this folder, which nothing has needed yet.
    At(PathBuf),
    /// In this folder, which is being opened. Opening continues even if the snapshot that needed it is cancelled.
    Opening(PathBuf, Job<Arc<Directory>>),
    /// In this directory, which is locked.
    Open(Arc<Directory>),
}

/// State of snapshots, current and past. See the module's header.
pub struct Saving {
    pub(crate) home: Home,
    pub(crate) platform: Platform,
    /// Draws the serial numbers of snapshots.
    pub(crate) rng: Rng,
    /// Without a journal: the last unit that the directory knows of.
    pub(crate) last: Lsn,
    pub(crate) run: Option<Run>,
    /// Snapshots to make after the current one, by purpose.
    scheduled: [bool; 2],
    history: [History; 2],
    /// When the last snapshot was complete and, if `rdb-export` asks for it, written as RDB; at first, when the server
    /// started. Unix ms.
    pub(crate) saved_ms: i64,
    /// Changes counted up to [`Saving::saved_ms`].
    pub(crate) saved_changes: u64,
    /// Start of the seconds that the points of `save` count, in ms of the steady clock. This is [`Saving::saved_ms`],
    /// or the end of a snapshot that a client cancelled or that could not be written as RDB, so that the next one does
    /// not start at once.
    pub(crate) points_since_ms: i64,
    /// Whether the last snapshot that should have been written as RDB could not be.
    pub(crate) has_export_failed: bool,
    /// Keys present when the server had started.
    pub(crate) loaded_keys: usize,
    /// Bytes of the newest snapshot's file.
    pub(crate) base_bytes: u64,
    /// Added to the journal's count of written bytes, gives the bytes behind the newest snapshot.
    pub(crate) log_bytes_offset: i64,
    /// A journal that was given up and that a thread is closing. The next one must not be opened before it has ended.
    pub(crate) ended_log: Option<Ending>,
    /// Held by the thread that writes a snapshot as RDB.
    pub(crate) export_turn: Arc<Mutex<()>>,
    /// Clients that wait for the current snapshot.
    pub(crate) waiting: Vec<(SessionKey, CommandId)>,
    /// Clients that wait for the snapshot after the current one.
    pub(crate) waiting_for_next: Vec<(SessionKey, CommandId)>,
    /// A pending DEBUG RELOAD or DEBUG LOADAOF.
    pub(crate) reload: Option<Reload>,
    /// Snapshots that have ended so far, successfully or not.
    pub(crate) concluded: u64,
    /// The error of the last snapshot, if it failed.
    pub(crate) failure: Option<String>,
    /// Wakes the task that calls [`Engine::save_slice`](crate::engine::Engine::save_slice).
    pub(crate) wake: Wake,
    /// Wakes the task that calls [`ServerState::maintain_journal`](crate::engine::ServerState::maintain_journal).
    pub(crate) wake_for_log: Wake,
}

/// A request to read the data from disk again.
pub struct Reload {
    /// The client to reply to afterwards, and its command.
    pub client: (SessionKey, CommandId),
    /// Make a snapshot first.
    pub save: bool,
    /// Keep the current data beside the data read.
    pub keep: bool,
    /// Data read replaces current data of the same names.
    pub merge: bool,
    /// The client's reply if the reload fails.
    pub failed: &'static str,
}

/// How far loading has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// When loading began.
    pub began: Instant,
    /// Bytes of the files read so far.
    pub read: u64,
    /// Approximate bytes in all.
    pub all: u64,
    /// Whether all data is loaded, so that [`Loading::finish`](crate::engine::persistence::recovery::Loading::finish)
    /// has nothing left to read.
    pub is_complete: bool,
}

/// The current snapshot.
pub(crate) struct Run {
    pub(crate) purpose: Purpose,
    /// Whether a client or the end of the server wants the data saved, so that `rdb-export` applies: true for a
    /// [`Purpose::Save`], and for a [`Purpose::Rewrite`] that SAVE or the end of the server has joined.
    pub(crate) wants_rdb: bool,
    pub(crate) began: Instant,
    pub(crate) stage: Stage,
}

/// A journal that a thread is opening.
pub(crate) type Opening = Job<Log>;

pub(crate) enum Stage {
    /// Begins with the next slice, between two units. The first snapshot waits until the directory is open.
    Wanted,
    /// The node of this server was asked for the writer.
    Asked(Receiver<SnapshotWriter>),
    Copying(Box<Copying>),
    /// Everything is copied. The snapshot counts once the group has committed all of it.
    Agreeing(Box<SnapshotWriter>, Ended),
    Ending(Box<SnapshotWriter>, Ended),
    /// The snapshot is complete, and the journal that follows it is being opened.
    Beginning(Opening, Ended),
    /// The snapshot is complete, and is being written as RDB, too.
    Exporting(Exporting, Ended),
}

/// Outcome of the RDB file that `rdb-export` asks for behind a complete snapshot.
pub(crate) enum Rdb {
    NotAskedFor,
    Written,
    /// The error.
    Failed(String),
}

/// Facts about a snapshot, known once everything has been copied.
#[derive(Clone, Copy)]
pub(crate) struct Ended {
    pub(crate) lsn: Lsn,
    pub(crate) keys: usize,
    /// Changes counted up to the end of the copy.
    pub(crate) changes: u64,
    /// Bytes that the journal had written up to the end of the copy.
    pub(crate) log_bytes: u64,
    /// Whether a journal begins behind it.
    pub(crate) begins_log: bool,
}

/// A copy in progress, and its destination.
pub(crate) struct Copying {
    pub(crate) writer: SnapshotWriter,
    pub(crate) stream: SnapshotStream,
    units: Vec<u8>,
    count: u32,
    pub(crate) began: Instant,
    /// When copying may continue; later than `began` only with `rdb-key-save-delay`.
    pub(crate) rests_until: Instant,
}

impl Copying {
    pub(crate) fn new(writer: SnapshotWriter, stream: SnapshotStream) -> Copying {
        let now = Instant::now();
        Copying { writer, stream, units: Vec::new(), count: 0, began: now, rests_until: now }
    }

    /// Adds the changes of the unit just committed, as far as they concern data already copied.
    #[inline(never)]
    fn follow(&mut self, origin: UnitOrigin, ks: &Keyspace) {
        let mut effects = EffectWriter::default();
        self.stream.follow(ks, &mut effects);
        self.add(origin, &effects);
    }

    /// Adds effects as a unit.
    pub(crate) fn add(&mut self, origin: UnitOrigin, effects: &EffectWriter) {
        if effects.is_empty() {
            return;
        }
        // Effects whose length does not fit in a u32 are too long for the writer, too.
        let len = u32::try_from(effects.len()).unwrap_or(u32::MAX);
        self.units.extend_from_slice(&unit_head(EFFECTS_FORMAT, origin as u8, len));
        self.units.extend_from_slice(effects.as_bytes());
        self.count += 1;
        if self.units.len() >= SAVE_SLICE_BYTES {
            self.hand_over();
        }
    }

    /// Hands the gathered units to the writer.
    pub(crate) fn hand_over(&mut self) {
        if self.count > 0 {
            self.writer.push(std::mem::take(&mut self.units), std::mem::take(&mut self.count));
        }
    }
}

impl Saving {
    /// Returns the directory if it is open.
    pub(crate) fn opened(&self) -> Option<Arc<Directory>> {
        match &self.home {
            Home::Open(directory) => Some(Arc::clone(directory)),
            Home::None | Home::At(_) | Home::Opening(..) => None,
        }
    }

    /// Creates a state that saves nothing until [`Saving::lives_at`] or a journal names the folder.
    pub(crate) fn new(clock: &Clock) -> Saving {
        Saving {
            home: Home::None,
            platform: Platform::default(),
            rng: Rng::from_entropy(),
            last: Lsn::NONE,
            run: None,
            scheduled: [false; 2],
            history: [History::default(); 2],
            saved_ms: clock.now_ms(),
            saved_changes: 0,
            points_since_ms: clock.steady_ms(),
            has_export_failed: false,
            loaded_keys: 0,
            base_bytes: 0,
            log_bytes_offset: 0,
            ended_log: None,
            export_turn: Arc::default(),
            waiting: Vec::new(),
            waiting_for_next: Vec::new(),
            reload: None,
            concluded: 0,
            failure: None,
            wake: Arc::new(|| {}),
            wake_for_log: Arc::new(|| {}),
        }
    }

    /// Sets the functions that wake the two maintenance tasks: `wake` for snapshots, `wake_for_log` for a journal that
    /// begins while the server runs.
    pub fn wakes(&mut self, wake: Wake, wake_for_log: Wake) {
        self.wake = wake;
        self.wake_for_log = wake_for_log;
    }

    /// Sets the platform for the journal and its snapshots. Must be called before there are any.
    pub fn runs_on(&mut self, platform: Platform) {
        self.platform = platform;
    }

    /// Makes the writer hurry: a client waits for the snapshot, and no others are served until it is done.
    pub(crate) fn hurry(&self) {
        match self.run.as_ref().map(|run| &run.stage) {
            Some(Stage::Copying(copying)) => copying.writer.hurry(),
            Some(Stage::Agreeing(writer, _) | Stage::Ending(writer, _)) => writer.hurry(),
            _ => {}
        }
    }

    /// Does the work of the snapshot's thread on platforms without threads.
    pub fn step(&mut self) {
        match self.run.as_mut().map(|run| &mut run.stage) {
            Some(Stage::Copying(copying)) => copying.writer.step(),
            Some(Stage::Agreeing(writer, _) | Stage::Ending(writer, _)) => writer.step(),
            _ => {}
        }
    }

    /// Sends snapshots to this folder, which is created when the first one begins.
    pub fn lives_at(&mut self, data: PathBuf) {
        self.home = Home::At(data);
    }

    /// Sends snapshots to `directory`, from which `keys` keys were loaded: from a snapshot of `snapshot_bytes` and a
    /// journal of `log_bytes` behind it, up to unit `last`.
    pub(crate) fn resume(
        &mut self,
        directory: Arc<Directory>,
        last: Lsn,
        keys: usize,
        snapshot_bytes: u64,
        log_bytes: u64,
    ) {
        self.home = Home::Open(directory);
        self.last = last;
        self.loaded_keys = keys;
        self.base_bytes = snapshot_bytes;
        self.log_bytes_offset = i64::try_from(log_bytes).unwrap_or(i64::MAX);
    }

    /// Requests a snapshot at `steady_ms` of the steady clock. None may be under way.
    pub(crate) fn begin(&mut self, purpose: Purpose, steady_ms: i64) {
        self.scheduled[purpose as usize] = false;
        self.history[purpose as usize].tried_ms = steady_ms;
        self.waiting.append(&mut self.waiting_for_next);
        let wants_rdb = purpose == Purpose::Save || !self.waiting.is_empty();
        self.run = Some(Run { purpose, wants_rdb, began: Instant::now(), stage: Stage::Wanted });
        (self.wake)();
    }

    /// Requests a snapshot that holds all changes up to now: the current one if it still can, else the next one.
    pub(crate) fn save_again(&mut self, steady_ms: i64) {
        if self.is_ending() {
            self.schedule(Purpose::Save);
        } else {
            self.begin_or_join(steady_ms);
        }
    }

    /// Whether a snapshot is under way, or one that saves the data is scheduled.
    pub(crate) fn is_wanted(&self) -> bool {
        self.run.is_some() || self.is_scheduled(Purpose::Save)
    }

    /// Requests a snapshot as soon as the current one has ended.
    pub(crate) fn schedule(&mut self, purpose: Purpose) {
        self.scheduled[purpose as usize] = true;
        (self.wake)();
    }

    /// Takes the next scheduled snapshot.
    pub(crate) fn take_scheduled(&mut self) -> Option<Purpose> {
        let next = [Purpose::Save, Purpose::Rewrite].into_iter().find(|purpose| self.is_scheduled(*purpose))?;
        self.scheduled[next as usize] = false;
        Some(next)
    }

    /// Whether a snapshot of this purpose is scheduled after the current one.
    pub(crate) fn is_scheduled(&self, purpose: Purpose) -> bool {
        self.scheduled[purpose as usize]
    }

    /// Cancels a scheduled snapshot. Returns whether there was one.
    pub(crate) fn unschedule(&mut self, purpose: Purpose) -> bool {
        std::mem::take(&mut self.scheduled[purpose as usize])
    }

    /// Returns the purpose of the current snapshot.
    pub(crate) fn under_way(&self) -> Option<Purpose> {
        self.run.as_ref().map(|run| run.purpose)
    }

    /// Whether keys are being copied, and whether one of them has been copied only in part.
    #[cfg(test)]
    pub(crate) fn copying(&self) -> (bool, bool) {
        match self.run.as_ref().map(|run| &run.stage) {
            Some(Stage::Copying(copying)) => (true, copying.stream.is_inside_value()),
            _ => (false, false),
        }
    }

    /// Whether the snapshot is complete and the journal that follows it is being opened.
    #[cfg(test)]
    pub(crate) fn begins_log(&self) -> bool {
        matches!(&self.run, Some(Run { stage: Stage::Beginning(..), .. }))
    }

    /// Returns the age in seconds of the current snapshot, if it has this purpose.
    pub(crate) fn running_s(&self, purpose: Purpose) -> Option<u64> {
        self.run.as_ref().filter(|run| run.purpose == purpose).map(|run| run.began.elapsed().as_secs())
    }

    /// Returns the keys copied and the keys in all; zeros when no snapshot is under way.
    pub(crate) fn progress(&self, ks: &Keyspace) -> (usize, usize) {
        match self.run.as_ref().map(|run| &run.stage) {
            Some(Stage::Copying(copying)) => copying.stream.progress(ks),
            Some(Stage::Agreeing(_, ended) | Stage::Ending(_, ended) | Stage::Exporting(_, ended)) => {
                (ended.keys, ended.keys)
            }
            Some(Stage::Wanted | Stage::Asked(_) | Stage::Beginning(..)) | None => (0, 0),
        }
    }

    /// Returns the statistics on snapshots of this purpose.
    pub(crate) fn history(&self, purpose: Purpose) -> &History {
        &self.history[purpose as usize]
    }

    pub(crate) fn history_mut(&mut self, purpose: Purpose) -> &mut History {
        &mut self.history[purpose as usize]
    }

    /// Returns [`Saving::saved_ms`] in Unix seconds.
    pub(crate) fn saved_s(&self) -> i64 {
        self.saved_ms / 1_000
    }

    /// Returns the number of changes since the last snapshot.
    pub(crate) fn changes(&self, ks: &Keyspace) -> u64 {
        ks.effects().count().saturating_sub(self.saved_changes)
    }

    /// Returns the number of keys present when the server had started.
    pub(crate) fn loaded_keys(&self) -> usize {
        self.loaded_keys
    }

    /// Returns the bytes of the newest snapshot's file.
    pub(crate) fn base_bytes(&self) -> u64 {
        self.base_bytes
    }

    /// Whether the current snapshot will lack changes made from now on.
    pub(crate) fn is_ending(&self) -> bool {
        let Some(run) = &self.run else { return false };
        matches!(run.stage, Stage::Agreeing(..) | Stage::Ending(..) | Stage::Beginning(..) | Stage::Exporting(..))
    }

    /// Requests a snapshot of all current data, and lets a client wait for it.
    pub(crate) fn save_for(&mut self, client: SessionKey, command: CommandId, steady_ms: i64) {
        if self.is_ending() {
            self.waiting_for_next.push((client, command));
            self.schedule(Purpose::Save);
            return;
        }
        self.waiting.push((client, command));
        self.begin_or_join(steady_ms);
    }

    /// Requests the data to be saved by the current snapshot, which must not be ending, or by a new one.
    pub(crate) fn begin_or_join(&mut self, steady_ms: i64) {
        match &mut self.run {
            Some(run) => run.wants_rdb = true,
            None => self.begin(Purpose::Save, steady_ms),
        }
    }

    /// Requests the data to be read again, between two units. Returns false if another client's request is still
    /// pending.
    pub(crate) fn reload(&mut self, reload: Reload) -> bool {
        let is_free = self.reload.is_none();
        self.reload.get_or_insert(reload);
        (self.wake)();
        is_free
    }

    /// Waits until a journal that was given up has ended, because it changes the directory until then.
    pub(crate) fn await_ended_log(&self) {
        if let Some(ended) = &self.ended_log {
            ended.wait();
        }
    }

    /// Whether the disk cannot even keep up with the changes made during the copy, so that the snapshot must be given
    /// up.
    pub(crate) fn is_too_slow(&self) -> bool {
        let Some(Run { stage: Stage::Copying(copying), .. }) = &self.run else { return false };
        copying.writer.backlog() > SNAPSHOT_GIVE_UP_BYTES
    }

    /// Whether a copy pauses with `rdb-key-save-delay`, and nothing else will wake it.
    pub(crate) fn rests(&self) -> bool {
        let Some(Run { stage: Stage::Copying(copying), .. }) = &self.run else { return false };
        copying.rests_until > copying.began
    }

    /// Whether every unit must be recorded in full.
    #[inline]
    pub(crate) fn is_copying(&self) -> bool {
        matches!(&self.run, Some(Run { stage: Stage::Copying(_), .. }))
    }

    /// Takes the changes of the unit just committed.
    #[inline]
    pub(crate) fn follow(&mut self, origin: UnitOrigin, ks: &Keyspace) {
        if let Some(Run { stage: Stage::Copying(copying), .. }) = &mut self.run {
            copying.follow(origin, ks);
        }
    }
}
