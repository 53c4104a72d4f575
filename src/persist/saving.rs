//! The snapshot that is being made: who wants one, and how far it is.
//!
//! A snapshot is a stream of effects that make the data of nothing ([`super::snapshot_stream`]), written to a file by a
//! thread of its own ([`crate::log::snapshot`]). It is made while the server works: a slice of the copy between two
//! units, and what each unit changes in the meantime behind it. It ends with the number of the last unit that it holds,
//! and the log up to there is given up. There is one snapshot at a time:
//!
//! ```text
//! Wanted ----> Copying ----> Ending ----> concluded: told in the server's log and in INFO; those who wait are answered
//!        slices,       the file's  |     (a failure leads there from everywhere, and changes nothing that was there before)
//!        units         thread ends |
//!                            Beginning: the log that follows upon the snapshot, if there is none yet
//!                            Exporting: the same data as RDB, if `rdb-export` asks for it
//! ```
//!
//! What takes as long as a disk does is left to threads: the file's, those of the two in the lower lines, and the one
//! that opens the directory ([`Home`]), for which the first snapshot waits.
//!
//! This file holds the state; [`super::save_slices`] moves it on, [`super::save_triggers`] says when one is made that
//! nobody has asked for.

use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use super::rdb_export::Exporting;
use super::snapshot_stream::SnapshotStream;
use super::tail::{EFFECTS_FORMAT, UnitOrigin};
use crate::base::clock::Clock;
use crate::base::limits::{SAVE_SLICE_BYTES, SNAPSHOT_GIVE_UP_BYTES};
use crate::base::lsn::Lsn;
use crate::keyspace::Keyspace;
use crate::keyspace::effect::EffectWriter;
use crate::log::block::unit_head;
use crate::log::directory::Directory;
use crate::log::group_commit::Log;
use crate::log::platform::{Ending, Job, Platform};
use crate::log::snapshot::writer::SnapshotWriter;
use crate::spec::session_key::SessionKey;
use crate::spec::table::CommandId;

/// The folder of the data, below `dir`.
pub const DATA_DIR: &str = "tidegate-data";

/// What a snapshot is made for. It decides what INFO tells of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// To have the data in it: SAVE, BGSAVE, the points of `save`, the end of the server.
    Save,
    /// To give up the log before it, or to begin one behind it: BGREWRITEAOF, a log that has grown, `appendonly yes`.
    Rewrite,
}

/// What became of the snapshots of one purpose.
#[derive(Clone, Copy, Debug)]
pub struct History {
    /// Whether the last one succeeded, or there was none.
    pub is_ok: bool,
    /// How long the last one took.
    pub last_s: Option<u64>,
    /// When the last one began, by the steady clock.
    pub tried_ms: i64,
    /// How many have succeeded.
    pub done: u64,
    /// How many have failed since.
    pub failures_in_a_row: u32,
}

impl History {
    /// Notes how one has ended.
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

/// Where the data lies.
pub(crate) enum Home {
    /// This server keeps nothing: a test or a benchmark.
    None,
    /// In this folder, which has not been needed yet.
    At(PathBuf),
    /// In this folder, which is being opened. That goes on when the snapshot is cancelled that it was needed for.
    Opening(PathBuf, Job<Arc<Directory>>),
    /// In this one, which is locked.
    Open(Arc<Directory>),
}

/// See the module's header.
pub struct Saving {
    pub(crate) home: Home,
    pub(crate) platform: Platform,
    /// Without a log: the last unit that the directory knows of.
    pub(crate) last: Lsn,
    pub(crate) run: Option<Run>,
    /// Which are to follow upon the one under way.
    scheduled: [bool; 2],
    history: [History; 2],
    /// When the last one was complete, and where `rdb-export` asks for that, written as RDB; or when the server
    /// started: Unix ms.
    pub(crate) saved_ms: i64,
    /// Changes that had been counted by then.
    pub(crate) saved_changes: u64,
    /// Since when the points of `save` count their seconds, by the steady clock: from [`Saving::saved_ms`] on, or from
    /// the end of one that a client has cancelled or that could not be written as RDB, so that the next one is not made
    /// at once.
    pub(crate) points_since_ms: i64,
    /// Whether the last one that was to be written as RDB could not be.
    pub(crate) has_export_failed: bool,
    /// Keys that were there when the server had started.
    pub(crate) loaded_keys: usize,
    /// Bytes of the newest snapshot's file.
    pub(crate) base_bytes: u64,
    /// What the log's count of written bytes must be corrected by to be those behind the newest snapshot.
    pub(crate) log_bytes_offset: i64,
    /// A log that was given up, whose end a thread brings about: the next one must not be opened before.
    pub(crate) ended_log: Option<Ending>,
    /// Is held by the thread that writes one as RDB.
    pub(crate) export_turn: Arc<Mutex<()>>,
    /// Clients that wait for the one that is under way.
    pub(crate) waiting: Vec<(SessionKey, CommandId)>,
    /// Clients that wait for the one after that.
    pub(crate) waiting_for_next: Vec<(SessionKey, CommandId)>,
    /// DEBUG RELOAD and DEBUG LOADAOF.
    pub(crate) reload: Option<Reload>,
    /// How many have ended so far, well or not.
    pub(crate) concluded: u64,
    /// Why the last one failed, if it did.
    pub(crate) failure: Option<String>,
    /// Wakes who calls [`Engine::save_slice`](crate::engine::Engine::save_slice).
    pub(crate) wake: Wake,
    /// Wakes who calls [`ServerState::look_after_journal`](crate::engine::ServerState::look_after_journal).
    pub(crate) wake_for_log: Wake,
}

/// Data to be read again from disk.
pub struct Reload {
    /// Who is answered then.
    pub client: (SessionKey, CommandId),
    /// Make a snapshot first.
    pub save: bool,
    /// Keep what is there beside what is read.
    pub keep: bool,
    /// What is read replaces what is there under the same names.
    pub merge: bool,
    /// What the client is answered if that fails.
    pub failed: &'static str,
}

/// How far the data has been loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// When it began.
    pub began: Instant,
    /// Bytes of the files that have been read.
    pub read: u64,
    /// Bytes that there are, about.
    pub all: u64,
    /// Whether all is there, so that [`Loading::finish`](crate::engine::persistence::recovery::Loading::finish) has
    /// nothing left to read.
    pub is_complete: bool,
}

/// A snapshot under way.
pub(crate) struct Run {
    pub(crate) purpose: Purpose,
    /// Whether somebody wants the data saved, so that `rdb-export` concerns it: a [`Purpose::Save`], or SAVE or the end
    /// of the server that has joined a [`Purpose::Rewrite`].
    pub(crate) wants_rdb: bool,
    pub(crate) began: Instant,
    pub(crate) stage: Stage,
}

/// A journal that a thread is opening.
pub(crate) type Opening = Job<Log>;

pub(crate) enum Stage {
    /// It begins with the next slice: between two units. The first one waits until the directory is open.
    Wanted,
    Copying(Box<Copying>),
    Ending(Box<SnapshotWriter>, Ended),
    /// The snapshot is complete. The log that begins behind it is opened.
    Beginning(Opening, Ended),
    /// The snapshot is complete. It is written as RDB, too.
    Exporting(Exporting, Ended),
}

/// What became of the file that `rdb-export` asks for, behind a snapshot that is complete.
pub(crate) enum Rdb {
    NotAskedFor,
    Written,
    /// Why not.
    Failed(String),
}

/// What is known when all has been copied.
#[derive(Clone, Copy)]
pub(crate) struct Ended {
    pub(crate) lsn: Lsn,
    pub(crate) keys: usize,
    /// Changes that were counted up to then.
    pub(crate) changes: u64,
    /// Bytes that the log had written by then.
    pub(crate) log_bytes: u64,
    /// Whether a log is to begin behind it.
    pub(crate) begins_log: bool,
}

/// A copy under way, with where it goes.
pub(crate) struct Copying {
    pub(crate) writer: SnapshotWriter,
    pub(crate) stream: SnapshotStream,
    units: Vec<u8>,
    count: u32,
    pub(crate) began: Instant,
    /// When it may go on; later than `began` only with `rdb-key-save-delay`.
    pub(crate) rests_until: Instant,
}

impl Copying {
    pub(crate) fn new(writer: SnapshotWriter, stream: SnapshotStream) -> Copying {
        let now = Instant::now();
        Copying { writer, stream, units: Vec::new(), count: 0, began: now, rests_until: now }
    }

    /// Adds what the unit has changed that was just committed, as far as it concerns what has been copied.
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
        // One whose length can't be told is too long for the writer, too.
        let len = u32::try_from(effects.len()).unwrap_or(u32::MAX);
        self.units.extend_from_slice(&unit_head(EFFECTS_FORMAT, origin as u8, len));
        self.units.extend_from_slice(effects.as_bytes());
        self.count += 1;
        if self.units.len() >= SAVE_SLICE_BYTES {
            self.hand_over();
        }
    }

    /// Hands over what was gathered to be written.
    pub(crate) fn hand_over(&mut self) {
        if self.count > 0 {
            self.writer.push(std::mem::take(&mut self.units), std::mem::take(&mut self.count));
        }
    }
}

impl Saving {
    /// Nothing is saved before [`Saving::lives_at`] or a log says where.
    pub(crate) fn new(clock: &Clock) -> Saving {
        Saving {
            home: Home::None,
            platform: Platform::default(),
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

    /// Says who is to be woken when there is something to do: for snapshots, and for a log that begins while the server
    /// runs.
    pub fn wakes(&mut self, wake: Wake, wake_for_log: Wake) {
        self.wake = wake;
        self.wake_for_log = wake_for_log;
    }

    /// Has the log and its snapshots run on this. To be said before there are any.
    pub fn runs_on(&mut self, platform: Platform) {
        self.platform = platform;
    }

    /// Somebody waits for the snapshot, and nobody is served meanwhile.
    pub(crate) fn hurry(&self) {
        match self.run.as_ref().map(|run| &run.stage) {
            Some(Stage::Copying(copying)) => copying.writer.hurry(),
            Some(Stage::Ending(writer, _)) => writer.hurry(),
            _ => {}
        }
    }

    /// Does what the thread of the snapshot does, where there are no threads.
    pub fn step(&mut self) {
        match self.run.as_mut().map(|run| &mut run.stage) {
            Some(Stage::Copying(copying)) => copying.writer.step(),
            Some(Stage::Ending(writer, _)) => writer.step(),
            _ => {}
        }
    }

    /// Snapshots go to this folder, which is made when the first one begins.
    pub fn lives_at(&mut self, data: PathBuf) {
        self.home = Home::At(data);
    }

    /// Snapshots go to this directory, from which so many keys were loaded: of a snapshot of so many bytes, and of a
    /// log behind it, up to unit `last`.
    pub(crate) fn goes_on(
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

    /// Asks for a snapshot, which must not be under way, at this time of the steady clock.
    pub(crate) fn begin(&mut self, purpose: Purpose, steady_ms: i64) {
        self.scheduled[purpose as usize] = false;
        self.history[purpose as usize].tried_ms = steady_ms;
        self.waiting.append(&mut self.waiting_for_next);
        let wants_rdb = purpose == Purpose::Save || !self.waiting.is_empty();
        self.run = Some(Run { purpose, wants_rdb, began: Instant::now(), stage: Stage::Wanted });
        (self.wake)();
    }

    /// Asks for a snapshot that holds all changes up to now: the one under way, if it still can, else the next one.
    pub(crate) fn save_again(&mut self, steady_ms: i64) {
        if self.is_ending() {
            self.schedule(Purpose::Save);
        } else {
            self.begin_or_join(steady_ms);
        }
    }

    /// Whether one is under way, or is to follow that somebody wants to have the data in.
    pub(crate) fn is_wanted(&self) -> bool {
        self.run.is_some() || self.is_scheduled(Purpose::Save)
    }

    /// Asks for a snapshot as soon as the one under way has ended.
    pub(crate) fn schedule(&mut self, purpose: Purpose) {
        self.scheduled[purpose as usize] = true;
        (self.wake)();
    }

    /// Takes the next one that was scheduled.
    pub(crate) fn take_scheduled(&mut self) -> Option<Purpose> {
        let next = [Purpose::Save, Purpose::Rewrite].into_iter().find(|purpose| self.is_scheduled(*purpose))?;
        self.scheduled[next as usize] = false;
        Some(next)
    }

    /// Whether one is to follow upon the one under way.
    pub(crate) fn is_scheduled(&self, purpose: Purpose) -> bool {
        self.scheduled[purpose as usize]
    }

    /// Forgets what was scheduled. Answers whether it was.
    pub(crate) fn unschedule(&mut self, purpose: Purpose) -> bool {
        std::mem::take(&mut self.scheduled[purpose as usize])
    }

    /// What the one is made for that is under way.
    pub(crate) fn under_way(&self) -> Option<Purpose> {
        self.run.as_ref().map(|run| run.purpose)
    }

    /// Whether keys are being copied, and whether only a part of one of them has been.
    #[cfg(test)]
    pub(crate) fn copying(&self) -> (bool, bool) {
        match self.run.as_ref().map(|run| &run.stage) {
            Some(Stage::Copying(copying)) => (true, copying.stream.is_inside_value()),
            _ => (false, false),
        }
    }

    /// Whether one is complete, and the log that follows upon it is opened.
    #[cfg(test)]
    pub(crate) fn begins_log(&self) -> bool {
        matches!(&self.run, Some(Run { stage: Stage::Beginning(..), .. }))
    }

    /// For how many seconds one of this purpose has been under way.
    pub(crate) fn running_s(&self, purpose: Purpose) -> Option<u64> {
        self.run.as_ref().filter(|run| run.purpose == purpose).map(|run| run.began.elapsed().as_secs())
    }

    /// Keys that were copied, of how many; 0 when none is under way.
    pub(crate) fn progress(&self, ks: &Keyspace) -> (usize, usize) {
        match self.run.as_ref().map(|run| &run.stage) {
            Some(Stage::Copying(copying)) => copying.stream.progress(ks),
            Some(Stage::Ending(_, ended) | Stage::Exporting(_, ended)) => (ended.keys, ended.keys),
            Some(Stage::Wanted | Stage::Beginning(..)) | None => (0, 0),
        }
    }

    /// What became of those of this purpose.
    pub(crate) fn history(&self, purpose: Purpose) -> &History {
        &self.history[purpose as usize]
    }

    pub(crate) fn history_mut(&mut self, purpose: Purpose) -> &mut History {
        &mut self.history[purpose as usize]
    }

    /// When the last one was complete, as [`Saving::saved_ms`] says: Unix seconds.
    pub(crate) fn saved_s(&self) -> i64 {
        self.saved_ms / 1_000
    }

    /// Changes since the last one.
    pub(crate) fn changes(&self, ks: &Keyspace) -> u64 {
        ks.effects().count().saturating_sub(self.saved_changes)
    }

    /// Keys that were there when the server had started.
    pub(crate) fn loaded_keys(&self) -> usize {
        self.loaded_keys
    }

    /// Bytes of the newest snapshot's file.
    pub(crate) fn base_bytes(&self) -> u64 {
        self.base_bytes
    }

    /// Whether the one under way lacks what changes from now on.
    pub(crate) fn is_ending(&self) -> bool {
        matches!(&self.run, Some(Run { stage: Stage::Ending(..) | Stage::Beginning(..) | Stage::Exporting(..), .. }))
    }

    /// Asks for one that holds all that there is now, and lets a client wait for it.
    pub(crate) fn save_for(&mut self, client: SessionKey, command: CommandId, steady_ms: i64) {
        if self.is_ending() {
            self.waiting_for_next.push((client, command));
            self.schedule(Purpose::Save);
            return;
        }
        self.waiting.push((client, command));
        self.begin_or_join(steady_ms);
    }

    /// Asks for the data to be saved: by the snapshot under way, which must not be ending, or by one that begins.
    pub(crate) fn begin_or_join(&mut self, steady_ms: i64) {
        match &mut self.run {
            Some(run) => run.wants_rdb = true,
            None => self.begin(Purpose::Save, steady_ms),
        }
    }

    /// Asks for the data to be read again, between two units. Answers whether it will be: not if somebody else waits
    /// for that.
    pub(crate) fn reload(&mut self, reload: Reload) -> bool {
        let is_free = self.reload.is_none();
        self.reload.get_or_insert(reload);
        (self.wake)();
        is_free
    }

    /// Waits until a log that was given up has ended: it changes the directory until then.
    pub(crate) fn await_ended_log(&self) {
        if let Some(ended) = &self.ended_log {
            ended.wait();
        }
    }

    /// Whether the disk does not keep up even with what changes while it is copied, so that it must be given up.
    pub(crate) fn is_too_slow(&self) -> bool {
        let Some(Run { stage: Stage::Copying(copying), .. }) = &self.run else { return false };
        copying.writer.backlog() > SNAPSHOT_GIVE_UP_BYTES
    }

    /// Whether a copy rests that nobody else wakes.
    pub(crate) fn rests(&self) -> bool {
        let Some(Run { stage: Stage::Copying(copying), .. }) = &self.run else { return false };
        copying.rests_until > copying.began
    }

    /// Whether every unit must be recorded in full.
    #[inline]
    pub(crate) fn is_copying(&self) -> bool {
        matches!(&self.run, Some(Run { stage: Stage::Copying(_), .. }))
    }

    /// Takes what the unit has changed that was just committed.
    #[inline]
    pub(crate) fn follow(&mut self, origin: UnitOrigin, ks: &Keyspace) {
        if let Some(Run { stage: Stage::Copying(copying), .. }) = &mut self.run {
            copying.follow(origin, ks);
        }
    }
}
