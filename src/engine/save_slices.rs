//! Making a snapshot, slice by slice. See [`super::saving`].

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::Server;
use super::saving::{Copying, Ended, Home, Purpose, Run, Saving, Stage};
use super::scripts::Scripts;
use super::session::SessionKey;
use super::snapshot_stream::SnapshotStream;
use super::table::CommandId;
use super::tail::{Tail, UnitOrigin};
use crate::base::limits::{SAVE_SLICE_BYTES, SNAPSHOT_GIVE_UP_BYTES, SNAPSHOT_PAUSE_BYTES};
use crate::base::lsn::Lsn;
use crate::base::rng::Rng;
use crate::keyspace::Keyspace;
use crate::keyspace::effect::EffectWriter;
use crate::log::directory::{Directory, DirectoryId};
use crate::log::disk::ignore_file_size_signal;
use crate::log::error::LogError;
use crate::log::group_commit::{Log, Options};
use crate::log::platform::Job;
use crate::log::restore::Restore;
use crate::log::scan::Recovery;
use crate::log::snapshot::writer::{Begin, Done, LogBeside, Sizes, SnapshotWriter};

/// How often a snapshot that the whole server waits for is looked at.
const WAIT_STEP: Duration = Duration::from_millis(1);

impl Server {
    /// See [`Engine::save_slice`](super::Engine::save_slice).
    pub(super) fn save_slice(&mut self, ks: &mut Keyspace) -> bool {
        let Some(run) = &mut self.saving.run else {
            let next = self.saving.take_scheduled();
            if let Some(purpose) = next {
                self.saving.begin(purpose, self.clock.now_ms());
            }
            return next.is_some();
        };
        let outcome = match &mut run.stage {
            Stage::Wanted => match self.begin_copy(ks) {
                Ok(()) => return true,
                Err(error) => Err(error),
            },
            Stage::Opening(job) => match job.outcome() {
                Some(Ok(directory)) => {
                    self.saving.home = Home::Open(directory);
                    run.stage = Stage::Wanted;
                    return true;
                }
                Some(Err(error)) => Err(error),
                None => return false,
            },
            Stage::Copying(copying) => match copying.writer.outcome() {
                Some(Ok(_)) => Err("it ended too early".to_owned()),
                Some(Err(error)) => Err(error.to_string()),
                None => match copy_on(copying, ks, &self.scripts, self.config.rdb_key_save_delay_us) {
                    Ok(Slice::More) => return true,
                    Ok(Slice::Pause) => return false,
                    Ok(Slice::Complete) => {
                        self.end_copy(ks);
                        return true;
                    }
                    Err(error) => Err(error),
                },
            },
            Stage::Ending(writer, _) => match writer.outcome() {
                Some(Ok(done)) => {
                    self.complete(ks, &done);
                    return true;
                }
                Some(Err(error)) => Err(error.to_string()),
                None => return false,
            },
            Stage::Beginning(job, lsn) => match job.outcome() {
                Some(opened) => {
                    let lsn = *lsn;
                    let begun = opened.and_then(|log| self.begin_log(log, lsn));
                    self.conclude(ks, Ok(()), begun);
                    return true;
                }
                None => return false,
            },
        };
        self.conclude(ks, outcome, Ok(()));
        true
    }

    fn begin_copy(&mut self, ks: &Keyspace) -> Result<(), String> {
        let directory = match &self.saving.home {
            Home::Open(directory) => Arc::clone(directory),
            Home::At(path) => {
                let job = self.saving.open_directory(path.clone())?;
                if let Some(run) = &mut self.saving.run {
                    run.stage = Stage::Opening(job);
                }
                return Ok(());
            }
            Home::None => return Err("this server has no directory for data".to_owned()),
        };
        let wake = Arc::clone(&self.saving.wake);
        let begin = Begin {
            serial: Rng::from_entropy().next_u64(),
            time_ms: self.clock.now_ms(),
            sizes: Sizes::default(),
            notify: Box::new(move || wake()),
        };
        let mut writer = match &self.durability {
            Some(durability) => durability.log().snapshot(begin),
            None => SnapshotWriter::begin(directory, LogBeside::none(), begin),
        };
        if self.saving.platform.has_threads {
            writer.start().map_err(no_thread)?;
        }
        let copying = Copying::new(writer, SnapshotStream::begin(ks));
        if let Some(run) = &mut self.saving.run {
            run.stage = Stage::Copying(Box::new(copying));
        }
        Ok(())
    }

    /// All has been copied, as of the last unit that was committed.
    fn end_copy(&mut self, ks: &Keyspace) {
        let log_bytes = self.durability.as_ref().map_or(0, |durability| durability.log().written_bytes());
        let begins_log = self.wants_log();
        let lsn = self.last_lsn();
        let keys = (0..ks.databases()).map(|db| ks.db(db).len()).sum();
        let Some(run) = &mut self.saving.run else { return };
        if let Stage::Copying(mut copying) = std::mem::replace(&mut run.stage, Stage::Wanted) {
            copying.hand_over();
            let mut writer = copying.writer;
            writer.finish(lsn, self.clock.now_ms());
            run.stage = Stage::Ending(
                Box::new(writer),
                Ended { lsn, keys, changes: ks.effects().count(), log_bytes, begins_log },
            );
        }
        if begins_log {
            // What changes from here on is not in the snapshot: the log begins with it.
            self.tail = Some(Tail::default());
        }
    }

    /// The number that a snapshot of all that was committed has: that of the last unit, or, without a log, a new one.
    pub(crate) fn last_lsn(&self) -> Lsn {
        match (&self.durability, &self.tail) {
            (Some(durability), Some(tail)) => durability.last().plus(u64::from(tail.units)),
            (Some(durability), None) => durability.last(),
            (None, _) => self.saving.last.next(),
        }
    }

    /// Whether `appendonly` asks for a log that is not there.
    pub(crate) fn wants_log(&self) -> bool {
        self.config.appendonly && self.durability.is_none() && !matches!(self.saving.home, Home::None)
    }

    /// The snapshot under way is complete. It is concluded at once, or when the log has begun that is to follow upon it.
    fn complete(&mut self, ks: &mut Keyspace, done: &Done) {
        let Some(Run { purpose, began, stage: Stage::Ending(_, ended) }) = &self.saving.run else { return };
        let (purpose, took, ended) = (*purpose, began.elapsed(), *ended);
        self.saved(done, &ended, purpose, took);
        if !ended.begins_log || !self.wants_log() {
            self.tail.take_if(|_| self.durability.is_none());
            return self.conclude(ks, Ok(()), Ok(()));
        }
        match self.open_log(ended.lsn) {
            Ok(job) => {
                if let Some(run) = &mut self.saving.run {
                    run.stage = Stage::Beginning(job, ended.lsn);
                }
            }
            Err(error) => self.conclude(ks, Ok(()), Err(error)),
        }
    }

    /// Ends the snapshot under way: tells what became of it, and of the log that was to begin behind it, and acts on that.
    pub(super) fn conclude(&mut self, ks: &mut Keyspace, outcome: Result<(), String>, begun: Result<(), String>) {
        let Some(Run { purpose, began, .. }) = self.saving.run.take() else { return };
        if outcome.is_err() || begun.is_err() {
            self.tail.take_if(|_| self.durability.is_none());
        }
        let history = self.saving.history_mut(purpose);
        history.last_s = Some(began.elapsed().as_secs());
        if purpose == Purpose::Save || begun.is_ok() {
            history.end(outcome.is_ok());
        }
        if let Err(error) = &outcome {
            let safe = match &self.durability {
                Some(_) => "All data is in the log still",
                None => "What has changed since the last one is in memory only",
            };
            tracing::error!("no snapshot was made: {error}. {safe}; mend that, and call BGSAVE");
        }
        if let Err(error) = begun {
            let history = self.saving.history_mut(Purpose::Rewrite);
            history.tried_ms = self.clock.now_ms();
            history.end(false);
            tracing::error!("the log could not be begun: {error}. What changes is in memory only until it has");
        }
        let waiting = std::mem::take(&mut self.saving.waiting);
        self.answer_waiting(ks, waiting, &outcome);
        self.saving.failure = outcome.err();
        self.update_gates();
    }

    fn saved(&mut self, done: &Done, ended: &Ended, purpose: Purpose, took: Duration) {
        tracing::info!(
            "snapshot: {} keys, {} bytes, up to Lsn {}, in {:.1} s",
            ended.keys,
            done.file_bytes,
            ended.lsn,
            took.as_secs_f64()
        );
        let saving = &mut self.saving;
        saving.history_mut(purpose).done += 1;
        saving.saved_ms = self.clock.now_ms();
        saving.saved_changes = ended.changes;
        saving.base_bytes = done.file_bytes;
        saving.log_bytes_offset = -i64::try_from(ended.log_bytes).unwrap_or(i64::MAX);
        // The log may have gone on, and been closed, since all was copied.
        saving.last = saving.last.max(ended.lsn);
    }

    /// Answers those who wait for a snapshot that has ended.
    fn answer_waiting(&mut self, ks: &Keyspace, waiting: Vec<(SessionKey, CommandId)>, outcome: &Result<(), String>) {
        for (client, command) in waiting {
            let Some(session) = self.sessions.get_mut(client) else { continue };
            // CLIENT UNBLOCK may have ended its waiting, and it may wait for something else by now.
            if session.parked.as_ref().is_some_and(|parked| parked.command == command) {
                self.end_waiting(ks, client, |_, reply| match outcome {
                    Ok(()) => reply.ok(),
                    Err(error) => reply.error(format!("ERR {error}").replace(['\r', '\n'], " ").as_bytes()),
                });
            }
        }
    }

    /// Gives up the snapshot under way. Answers whether there was time for that: one that is complete stays.
    pub(crate) fn cancel_save(&mut self, ks: &Keyspace) -> bool {
        // The thread that writes is told when its writer is dropped.
        // That of the stages around it can't be called back, and holds the directory.
        let is_cancelled = |run: &mut Run| !matches!(run.stage, Stage::Opening(_) | Stage::Beginning(..));
        if self.saving.run.take_if(is_cancelled).is_none() {
            return false;
        }
        self.tail.take_if(|_| self.durability.is_none());
        tracing::warn!("the snapshot was cancelled");
        let waiting = std::mem::take(&mut self.saving.waiting);
        self.answer_waiting(ks, waiting, &Err("the snapshot was cancelled".to_owned()));
        true
    }

    /// Forgets the snapshot that is to follow upon the one under way. Answers whether there was one.
    pub(crate) fn cancel_scheduled_save(&mut self, ks: &Keyspace) -> bool {
        let waiting = std::mem::take(&mut self.saving.waiting_for_next);
        self.answer_waiting(ks, waiting, &Err("the snapshot was cancelled".to_owned()));
        self.saving.unschedule(Purpose::Save)
    }

    /// Makes a snapshot of all that is there, or completes the one under way if it will hold that, while nobody is served. Not
    /// inside of a unit that has changed something.
    pub(crate) fn save_at_once(&mut self, ks: &mut Keyspace) -> Result<(), String> {
        if self.saving.is_ending() {
            // It may lack what has changed of late.
            self.complete_save(ks);
        }
        if self.saving.run.is_none() {
            self.saving.begin(Purpose::Save, self.clock.now_ms());
        }
        self.complete_save(ks);
        self.saving.failure.clone().map_or(Ok(()), Err)
    }

    fn complete_save(&mut self, ks: &mut Keyspace) {
        while self.saving.run.is_some() {
            if !self.save_slice(ks) {
                match self.saving.platform.has_threads {
                    true => std::thread::sleep(WAIT_STEP),
                    false => self.saving.step(),
                }
            }
        }
    }

    /// Has the log opened that begins behind the snapshot up to `lsn`. What changes meanwhile gathers in the tail.
    pub(super) fn open_log(&mut self, lsn: Lsn) -> Result<Job<Log>, String> {
        ignore_file_size_signal();
        let Home::Open(directory) = &self.saving.home else { return Err("there is no directory for it".to_owned()) };
        let (directory, platform) = (Arc::clone(directory), self.saving.platform.clone());
        let options = Options { policy: self.config.appendfsync.into(), ..platform.options };
        let (wake, done) = (Arc::clone(&self.saving.wake_for_log), Arc::clone(&self.saving.wake));
        let work = {
            let platform = platform.clone();
            move || {
                let text = |error: LogError| error.to_string();
                let recovery = Recovery::open(directory, lsn).map_err(text)?;
                let mut log = recovery.finish(options, platform.clock, Box::new(move || wake())).map_err(text)?;
                if log.durable() != lsn {
                    return Err(format!("there is a log already, which ends with Lsn {}, not {lsn}", log.durable()));
                }
                if platform.has_threads {
                    log.start().map_err(no_thread)?;
                }
                Ok(log)
            }
        };
        platform.begin("log-begin", work, move || done()).map_err(no_thread)
    }

    /// Goes on with the log that was opened behind the snapshot up to `lsn`, and with what has gathered since.
    pub(super) fn begin_log(&mut self, log: Log, lsn: Lsn) -> Result<(), String> {
        if !self.wants_log() {
            self.tail = None;
            self.discard_log(log);
            return Ok(());
        }
        let Some(tail) = self.tail.take() else {
            self.discard_log(log);
            return Err("the disk was too slow for what has changed meanwhile".to_owned());
        };
        let policy = self.config.appendfsync.into();
        if log.policy() != policy {
            // It has been set since.
            log.set_policy(policy).map_err(|error| error.to_string())?;
        }
        self.attach_log(log, lsn);
        self.tail = Some(tail);
        self.saving.log_bytes_offset = 0;
        tracing::info!("the log has begun behind Lsn {lsn}: from here on changes are in it before they are answered");
        Ok(())
    }

    /// Gives up a log that nobody has written to. Its threads may be at work on a disk that is slow, so another one waits for them.
    fn discard_log(&self, log: Log) {
        let end = move || {
            drop(log);
            Ok(())
        };
        // Without a thread it is done here.
        let _ = self.saving.platform.begin("log-end", end, || {});
    }

    /// CONFIG SET appendonly no: all is made durable and the log closed. Fails, and leaves it open, if that can't be.
    pub(crate) fn end_log(&mut self, ks: &mut Keyspace) -> Result<(), String> {
        if self.saving.run.as_ref().is_some_and(|run| run.purpose == Purpose::Rewrite) {
            self.cancel_save(ks);
        }
        if self.durability.is_none() {
            return Ok(());
        }
        if !self.drain_log() {
            let failure = self.durability.as_ref().and_then(|durability| durability.log().failure());
            return Err(failure.map_or_else(|| "No space left on device".to_owned(), ToString::to_string));
        }
        self.saving.last = self.last_lsn();
        if let Err(error) = self.close_log() {
            // All is durable: only the mark is missing that says that nothing follows.
            tracing::warn!("the log could not be marked as closed: {error}");
        }
        self.tail = None;
        ks.forget_in_flight();
        self.update_gates();
        // What was held for it may leave.
        self.sessions.iter_mut().for_each(|session| session.outbox.wake());
        tracing::warn!("the log was closed: from here on changes are in memory only, until a snapshot is made");
        Ok(())
    }
}

/// How a slice ended.
enum Slice {
    More,
    /// The disk is behind.
    Pause,
    Complete,
}

/// Copies one slice. `key_delay_us` is `rdb-key-save-delay`.
fn copy_on(copying: &mut Copying, ks: &Keyspace, scripts: &Scripts, key_delay_us: i32) -> Result<Slice, String> {
    let backlog = copying.writer.backlog();
    if backlog > SNAPSHOT_GIVE_UP_BYTES {
        return Err(format!("the disk is too slow for what changes meanwhile: {backlog} bytes wait to be written"));
    }
    if backlog > SNAPSHOT_PAUSE_BYTES {
        return Ok(Slice::Pause);
    }
    if key_delay_us != 0 && copying.rests_until > Instant::now() {
        return Ok(Slice::Pause);
    }
    let mut effects = EffectWriter::default();
    let before = copying.stream.progress(ks).0;
    // One key at a time where it rests for each.
    let bytes = if key_delay_us == 0 { SAVE_SLICE_BYTES } else { 1 };
    let is_complete = copying.stream.copy_slice(ks, scripts, bytes, &mut effects);
    copying.add(UnitOrigin::Snapshot, &effects);
    copying.hand_over();
    if key_delay_us != 0 {
        let keys = copying.stream.progress(ks).0.saturating_sub(before);
        copying.rests_until += rest_per_key(key_delay_us) * u32::try_from(keys).unwrap_or(u32::MAX);
        // Complete is what is complete when it goes on.
        return Ok(if is_complete && keys == 0 { Slice::Complete } else { Slice::More });
    }
    Ok(if is_complete { Slice::Complete } else { Slice::More })
}

/// What `rdb-key-save-delay` means: microseconds for each key, or, below zero, one for so many keys.
fn rest_per_key(key_delay_us: i32) -> Duration {
    let parts = u64::from(key_delay_us.unsigned_abs());
    Duration::from_nanos(if key_delay_us > 0 { 1_000 * parts } else { 1_000 / parts })
}

impl Saving {
    /// Has the directory opened that snapshots go to, and the log behind them.
    fn open_directory(&self, path: PathBuf) -> Result<Job<Arc<Directory>>, String> {
        let disk = Arc::clone(&self.platform.disk);
        let work = move || {
            let mut random = Rng::from_entropy();
            let id = u128::from(random.next_u64()) << 64 | u128::from(random.next_u64());
            let opened = Directory::open(disk, &path, DirectoryId::new(id.to_be_bytes()));
            let directory = Arc::new(opened.map_err(|error| error.to_string())?);
            // Somebody may have put data there since this server has started, which knows nothing of it.
            let found = Restore::open(Arc::clone(&directory)).map_err(|error| error.to_string())?;
            if found.progress().1 > 0 {
                return Err(format!("{}: holds the data of another server", path.display()));
            }
            Ok(directory)
        };
        let wake = Arc::clone(&self.wake);
        self.platform.begin("directory", work, move || wake()).map_err(no_thread)
    }
}

fn no_thread(error: io::Error) -> String {
    format!("cannot start a thread: {error}")
}
