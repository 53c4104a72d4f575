//! Making a snapshot, slice by slice. See [`crate::persist::saving`].

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::base::limits::{SNAPSHOT_GIVE_UP_BYTES, SNAPSHOT_PAUSE_BYTES};
use crate::base::lsn::Lsn;
use crate::base::rng::Rng;
use crate::config::rest_per_key;
use crate::engine::ServerState;
use crate::keyspace::effect::EffectWriter;
use crate::keyspace::snapshot::Snapshot;
use crate::keyspace::{DbIndex, Keyspace};
use crate::log::directory::{Directory, DirectoryId};
use crate::log::disk::ignore_file_size_signal;
use crate::log::error::LogError;
use crate::log::group_commit::{Log, Options};
use crate::log::platform::Job;
use crate::log::restore::Restore;
use crate::log::scan::Recovery;
use crate::log::snapshot::writer::{Begin, Done, LogBeside, Sizes, SnapshotWriter};
use crate::persist::rdb_export::{Export, Exported, Exporting};
use crate::persist::saving::{Copying, Ended, Home, Purpose, Rdb, Run, Saving, Stage};
use crate::persist::snapshot_stream::SnapshotStream;
use crate::persist::tail::{Tail, UnitOrigin};
use crate::programs::scripts::Scripts;
use crate::spec::session_key::SessionKey;
use crate::spec::table::CommandId;

/// How often a snapshot that the whole server waits for is looked at.
const WAIT_STEP: Duration = Duration::from_millis(1);

impl ServerState {
    /// See [`Engine::save_slice`](crate::engine::Engine::save_slice).
    pub(in crate::engine) fn save_slice(&mut self, ks: &mut Keyspace) -> bool {
        let Some(run) = &mut self.persistence.saving.run else {
            let next = self.persistence.saving.take_scheduled();
            if let Some(purpose) = next {
                self.persistence.saving.begin(purpose, self.time.clock.steady_ms());
            }
            return next.is_some();
        };
        let slice_bytes = self.persistence.saving.platform.slice_bytes;
        let outcome = match &mut run.stage {
            Stage::Wanted => match self.begin_copy(ks) {
                Ok(has_begun) => return has_begun,
                Err(error) => Err(error),
            },
            Stage::Copying(copying) => match copying.writer.outcome() {
                Some(Ok(_)) => Err("it ended too early".to_owned()),
                Some(Err(error)) => Err(error.to_string()),
                None => {
                    match copy_on(copying, ks, &self.programs.scripts, slice_bytes, self.config.rdb_key_save_delay_us) {
                        Ok(Slice::More) => return true,
                        Ok(Slice::Pause) => return false,
                        Ok(Slice::Complete) => {
                            self.end_copy(ks);
                            return true;
                        }
                        Err(error) => Err(error),
                    }
                }
            },
            Stage::Ending(writer, _) => match writer.outcome() {
                Some(Ok(done)) => {
                    self.complete(ks, &done);
                    return true;
                }
                Some(Err(error)) => Err(error.to_string()),
                None => return false,
            },
            Stage::Beginning(job, ended) => match job.outcome() {
                Some(opened) => {
                    let ended = *ended;
                    let begun = opened.and_then(|log| self.begin_log(log, ended.lsn));
                    self.export_or_conclude(ks, ended, begun);
                    return true;
                }
                None => return false,
            },
            Stage::Exporting(exporting, ended) => {
                let Some(exported) = exporting.outcome() else { return false };
                // Its thread has freed what it worked with, of which the counts of this one tell nothing.
                self.memory.freed.want();
                match exported {
                    Ok(Exported { path, keys }) => {
                        tracing::info!("{}: {keys} keys, up to Lsn {}", path.display(), ended.lsn);
                        Ok((*ended, Rdb::Written))
                    }
                    Err(error) => Ok((*ended, Rdb::not_written(&error))),
                }
            }
        };
        self.conclude(ks, outcome, Ok(()));
        true
    }

    /// Begins the copy. Answers whether the directory is there for it.
    fn begin_copy(&mut self, ks: &Keyspace) -> Result<bool, String> {
        let Some(directory) = self.persistence.saving.directory()? else { return Ok(false) };
        let wake = Arc::clone(&self.persistence.saving.wake);
        let begin = Begin {
            serial: Rng::from_entropy().next_u64(),
            time_ms: self.time.clock.now_ms(),
            sizes: Sizes::default(),
            notify: Box::new(move || wake()),
        };
        let mut writer = match &self.persistence.durability {
            Some(durability) => durability.log().snapshot(begin),
            None => SnapshotWriter::begin(directory, LogBeside::none(), begin),
        };
        if self.persistence.saving.platform.has_threads {
            writer.start().map_err(no_thread)?;
        }
        let stream =
            SnapshotStream::of(Snapshot::begin_with_parts(ks, self.persistence.saving.platform.part_min_bytes));
        let copying = Copying::new(writer, stream);
        if let Some(run) = &mut self.persistence.saving.run {
            run.stage = Stage::Copying(Box::new(copying));
        }
        self.readers_changed();
        Ok(true)
    }

    /// All has been copied, as of the last unit that was committed.
    fn end_copy(&mut self, ks: &Keyspace) {
        let log_bytes = self.persistence.durability.as_ref().map_or(0, |durability| durability.log().written_bytes());
        let begins_log = self.wants_log();
        let lsn = self.last_lsn();
        let keys = (0..ks.databases()).map(|db| ks.db(db).len()).sum();
        let Some(run) = &mut self.persistence.saving.run else { return };
        if let Stage::Copying(mut copying) = std::mem::replace(&mut run.stage, Stage::Wanted) {
            copying.hand_over();
            let mut writer = copying.writer;
            writer.finish(lsn, self.time.clock.now_ms());
            run.stage = Stage::Ending(
                Box::new(writer),
                Ended { lsn, keys, changes: ks.effects().count(), log_bytes, begins_log },
            );
        }
        if begins_log {
            // What changes from here on is not in the snapshot: the log begins with it.
            self.persistence.tail = Some(Tail::default());
        }
        self.readers_changed();
    }

    /// The number that a snapshot of all that was committed has: that of the last unit, or, without a log, a new one.
    pub(crate) fn last_lsn(&self) -> Lsn {
        match (&self.persistence.durability, &self.persistence.tail) {
            (Some(durability), Some(tail)) => durability.lsn_of(tail),
            (Some(durability), None) => durability.last(),
            (None, _) => self.persistence.saving.last.next(),
        }
    }

    /// Whether `appendonly` asks for a log that is not there.
    pub(crate) fn wants_log(&self) -> bool {
        self.config.appendonly
            && self.persistence.durability.is_none()
            && !matches!(self.persistence.saving.home, Home::None)
    }

    /// The snapshot under way is complete. It is concluded at once, or when the log has begun that is to follow upon it.
    fn complete(&mut self, ks: &mut Keyspace, done: &Done) {
        let Some(Run { began, stage: Stage::Ending(_, ended), .. }) = &self.persistence.saving.run else { return };
        let (took, ended) = (began.elapsed(), *ended);
        self.base_replaced(done, &ended, took);
        if !ended.begins_log || !self.wants_log() {
            self.drop_unattached_tail();
            return self.export_or_conclude(ks, ended, Ok(()));
        }
        match self.open_log(ended.lsn) {
            Ok(job) => {
                if let Some(run) = &mut self.persistence.saving.run {
                    run.stage = Stage::Beginning(job, ended);
                }
            }
            Err(error) => self.export_or_conclude(ks, ended, Err(error)),
        }
    }

    /// The snapshot under way is complete, and so is, or `begun` says why not, what had to follow upon it at once. What is left
    /// to do is the file that `rdb-export` asks for.
    fn export_or_conclude(&mut self, ks: &mut Keyspace, ended: Ended, begun: Result<(), String>) {
        let is_asked_for =
            self.config.rdb_export && self.persistence.saving.run.as_ref().is_some_and(|run| run.wants_rdb);
        match begun {
            _ if !is_asked_for => self.conclude(ks, Ok((ended, Rdb::NotAskedFor)), begun),
            Ok(()) => match self.begin_export(ended.lsn, ks.databases()) {
                Ok(exporting) => {
                    if let Some(run) = &mut self.persistence.saving.run {
                        run.stage = Stage::Exporting(exporting, ended);
                    }
                }
                Err(error) => self.conclude(ks, Ok((ended, Rdb::not_written(&error))), Ok(())),
            },
            Err(_) => {
                let rdb = Rdb::not_written("the log behind it could not be begun");
                self.conclude(ks, Ok((ended, rdb)), begun);
            }
        }
    }

    /// Has the snapshot up to `lsn` written as RDB.
    fn begin_export(&self, lsn: Lsn, databases: DbIndex) -> Result<Exporting, String> {
        let saving = &self.persistence.saving;
        let Home::Open(directory) = &saving.home else { return Err("there is no directory for it".to_owned()) };
        let export = Export {
            directory: Arc::clone(directory),
            lsn,
            databases,
            name: self.config.dbfilename.clone(),
            turn: Arc::clone(&saving.export_turn),
            is_well: match &self.persistence.durability {
                Some(durability) => durability.log().wellness(),
                None => LogBeside::none().is_well,
            },
        };
        let wake = Arc::clone(&saving.wake);
        Exporting::begin(export, &saving.platform, move || wake()).map_err(no_thread)
    }

    /// Ends the snapshot under way: tells what became of it, of the log that was to begin behind it, and of the file for Redis, and
    /// acts on that.
    pub(in crate::engine) fn conclude(
        &mut self,
        ks: &mut Keyspace,
        outcome: Result<(Ended, Rdb), String>,
        begun: Result<(), String>,
    ) {
        let Some(Run { purpose, wants_rdb, began, .. }) = self.persistence.saving.run.take() else { return };
        self.readers_changed();
        self.persistence.saving.concluded += 1;
        if outcome.is_err() || begun.is_err() {
            self.drop_unattached_tail();
        }
        let history = self.persistence.saving.history_mut(purpose);
        history.last_s = Some(began.elapsed().as_secs());
        if purpose == Purpose::Save || begun.is_ok() {
            history.end(outcome.is_ok());
        }
        if let Err(error) = &outcome {
            let safe = match &self.persistence.durability {
                Some(_) => "All data is in the log still",
                None => "What has changed since the last one is in memory only",
            };
            tracing::error!("no snapshot was made: {error}. {safe}; mend that, and call BGSAVE");
        }
        if let Err(error) = begun {
            let history = self.persistence.saving.history_mut(Purpose::Rewrite);
            history.tried_ms = self.time.clock.steady_ms();
            history.end(false);
            tracing::error!("the log could not be begun: {error}. What changes is in memory only until it has");
        }
        self.persistence.saving.failure = outcome.as_ref().err().cloned();
        let told = outcome.and_then(|(ended, rdb)| self.note_saved(purpose, wants_rdb, &ended, rdb));
        let waiting = std::mem::take(&mut self.persistence.saving.waiting);
        self.answer_waiting(ks, waiting, &told);
        self.update_gates();
    }

    /// A snapshot is complete. Answers whether that is all that was asked for.
    fn note_saved(&mut self, purpose: Purpose, wants_rdb: bool, ended: &Ended, rdb: Rdb) -> Result<(), String> {
        let saving = &mut self.persistence.saving;
        if wants_rdb {
            saving.has_export_failed = matches!(rdb, Rdb::Failed(_));
        }
        if let Rdb::Failed(error) = rdb {
            tracing::error!("{error}. The snapshot is complete, and a start reads it; mend that, and call BGSAVE");
            saving.points_since_ms = self.time.clock.steady_ms();
            return Err(error);
        }
        saving.history_mut(purpose).done += 1;
        // With `rdb-export`, when the last one was made tells how old the file is, which others do not write.
        if matches!(rdb, Rdb::Written) || !self.config.rdb_export {
            saving.saved_ms = self.time.clock.now_ms();
            saving.points_since_ms = self.time.clock.steady_ms();
            saving.saved_changes = ended.changes;
        }
        Ok(())
    }

    /// A start reads this snapshot from now on.
    fn base_replaced(&mut self, done: &Done, ended: &Ended, took: Duration) {
        tracing::info!(
            "snapshot: {} keys, {} bytes, up to Lsn {}, in {:.1} s",
            ended.keys,
            done.file_bytes,
            ended.lsn,
            took.as_secs_f64()
        );
        let saving = &mut self.persistence.saving;
        saving.base_bytes = done.file_bytes;
        saving.log_bytes_offset = -i64::try_from(ended.log_bytes).unwrap_or(i64::MAX);
        // The log may have gone on, and been closed, since all was copied.
        saving.last = saving.last.max(ended.lsn);
    }

    /// Answers those who wait for a snapshot that has ended.
    fn answer_waiting(&mut self, ks: &Keyspace, waiting: Vec<(SessionKey, CommandId)>, outcome: &Result<(), String>) {
        for (client, command) in waiting {
            if let Some(call) = self.blocking_call(client, command) {
                self.end_waiting(ks, call, |_, reply| match outcome {
                    Ok(()) => reply.ok(),
                    Err(error) => reply.error(format!("ERR {error}").replace(['\r', '\n'], " ").as_bytes()),
                });
            }
        }
    }

    /// Gives up the snapshot under way. Answers whether there was time for that: one that is complete stays.
    pub(crate) fn cancel_save(&mut self, ks: &Keyspace) -> bool {
        // The thread that writes is told when its writer is dropped.
        // That which begins the log can't be called back.
        let is_cancelled = |run: &mut Run| !matches!(run.stage, Stage::Beginning(..));
        if self.persistence.saving.run.take_if(is_cancelled).is_none() {
            return false;
        }
        self.drop_unattached_tail();
        self.readers_changed();
        tracing::warn!("the snapshot was cancelled");
        // Somebody may wait for it who is not told otherwise.
        (self.persistence.saving.wake)();
        let waiting = std::mem::take(&mut self.persistence.saving.waiting);
        self.answer_waiting(ks, waiting, &Err("the snapshot was cancelled".to_owned()));
        true
    }

    /// Forgets the snapshot that is to follow upon the one under way. Answers whether there was one.
    pub(crate) fn cancel_scheduled_save(&mut self, ks: &Keyspace) -> bool {
        let waiting = std::mem::take(&mut self.persistence.saving.waiting_for_next);
        self.answer_waiting(ks, waiting, &Err("the snapshot was cancelled".to_owned()));
        self.persistence.saving.unschedule(Purpose::Save)
    }

    /// Makes a snapshot of all that is there, or completes the one under way if it will hold that, while nobody is served. Not
    /// inside of a unit that has changed something. Whether it could be written as RDB says [`Saving::has_export_failed`].
    pub(crate) fn save_at_once(&mut self, ks: &mut Keyspace) -> Result<(), String> {
        if self.persistence.saving.is_ending() {
            // It may lack what has changed of late.
            self.complete_save(ks);
        }
        self.persistence.saving.begin_or_join(self.time.clock.steady_ms());
        self.complete_save(ks);
        self.persistence.saving.failure.clone().map_or(Ok(()), Err)
    }

    fn complete_save(&mut self, ks: &mut Keyspace) {
        while self.persistence.saving.run.is_some() {
            self.persistence.saving.hurry();
            if !self.save_slice(ks) {
                match self.persistence.saving.platform.has_threads {
                    true => std::thread::sleep(WAIT_STEP),
                    false => self.persistence.saving.step(),
                }
            }
        }
    }

    /// Has the log opened that begins behind the snapshot up to `lsn`. What changes meanwhile gathers in the tail.
    pub(in crate::engine) fn open_log(&mut self, lsn: Lsn) -> Result<Job<Log>, String> {
        ignore_file_size_signal();
        let Home::Open(directory) = &self.persistence.saving.home else {
            return Err("there is no directory for it".to_owned());
        };
        let (directory, platform) = (Arc::clone(directory), self.persistence.saving.platform.clone());
        let ended = self.persistence.saving.ended_log.clone();
        // Until there is space for it the server goes on as before.
        let options = Options { policy: self.config.appendfsync.into(), may_wait_for_space: false, ..platform.options };
        let (wake, done) =
            (Arc::clone(&self.persistence.saving.wake_for_log), Arc::clone(&self.persistence.saving.wake));
        let work = {
            let platform = platform.clone();
            move || {
                let text = |error: LogError| error.to_string();
                if let Some(ended) = ended {
                    ended.wait();
                }
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
    pub(in crate::engine) fn begin_log(&mut self, log: Log, lsn: Lsn) -> Result<(), String> {
        if !self.wants_log() {
            self.set_tail(None);
            self.end_beside(move || drop(log));
            return Ok(());
        }
        let tail = self.persistence.tail.take();
        self.readers_changed();
        let Some(tail) = tail else {
            self.end_beside(move || drop(log));
            return Err("the disk was too slow for what has changed meanwhile".to_owned());
        };
        let policy = self.config.appendfsync.into();
        if log.policy() != policy {
            // It has been set since.
            log.set_policy(policy).map_err(|error| error.to_string())?;
        }
        self.attach_log(log, lsn);
        self.set_tail(Some(tail));
        self.persistence.saving.log_bytes_offset = 0;
        tracing::info!("the log has begun behind Lsn {lsn}: from here on changes are in it before they are answered");
        Ok(())
    }

    /// Ends a log that nobody writes to any more. Its threads may be at work on a disk that is slow, so another one waits for them.
    pub(crate) fn end_beside(&mut self, end: impl FnOnce() + Send + 'static) {
        let before = self.persistence.saving.ended_log.take();
        self.persistence.saving.ended_log = Some(self.persistence.saving.platform.begin_or_do("log-end", move || {
            if let Some(before) = before {
                before.wait();
            }
            end();
        }));
    }

    /// CONFIG SET appendonly no: all is made durable and the log closed. Fails, and leaves it open, if that can't be.
    pub(crate) fn end_log(&mut self, ks: &mut Keyspace) -> Result<(), String> {
        // First: it can fail, and then nothing must have happened.
        if self.persistence.durability.is_some() && !self.drain_log() {
            let failure = self.persistence.durability.as_ref().and_then(|durability| durability.log().failure());
            return Err(failure.map_or_else(|| "No space left on device".to_owned(), ToString::to_string));
        }
        if self.persistence.saving.run.as_ref().is_some_and(|run| run.purpose == Purpose::Rewrite) {
            self.cancel_save(ks);
        }
        if self.persistence.durability.is_none() {
            return Ok(());
        }
        self.persistence.saving.last = self.last_lsn();
        self.set_tail(None);
        if let Some(durability) = self.persistence.durability.take() {
            self.end_beside(move || {
                if let Err(error) = durability.log.close() {
                    // All is durable: only the mark is missing that says that nothing follows.
                    tracing::warn!("the log could not be marked as closed: {error}");
                }
            });
        }
        ks.forget_in_flight();
        self.update_gates();
        // What was held for it may leave.
        self.clients.sessions.iter_mut().for_each(|session| session.outbox.wake());
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

/// Copies one slice of about so many bytes. `key_delay_us` is `rdb-key-save-delay`.
fn copy_on(
    copying: &mut Copying,
    ks: &Keyspace,
    scripts: &Scripts,
    slice_bytes: usize,
    key_delay_us: i32,
) -> Result<Slice, String> {
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
    let bytes = if key_delay_us == 0 { slice_bytes } else { 1 };
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

impl Rdb {
    fn not_written(error: &str) -> Rdb {
        Rdb::Failed(format!("the snapshot could not be written as RDB: {error}"))
    }
}

impl Saving {
    /// The directory that snapshots go to, and the log behind them. When it is needed for the first time, it is opened, and there
    /// is none until then.
    fn directory(&mut self) -> Result<Option<Arc<Directory>>, String> {
        if let Home::At(path) = &self.home {
            let path = path.clone();
            let job = self.open_directory(path.clone())?;
            self.home = Home::Opening(path, job);
        }
        if let Home::Opening(path, job) = &self.home {
            match job.outcome() {
                Some(Ok(directory)) => self.home = Home::Open(directory),
                Some(Err(error)) => {
                    self.home = Home::At(path.clone());
                    return Err(error);
                }
                None => return Ok(None),
            }
        }
        match &self.home {
            Home::Open(directory) => Ok(Some(Arc::clone(directory))),
            _ => Err("this server has no directory for data".to_owned()),
        }
    }

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
