//! Making a snapshot, slice by slice. See [`crate::persist::saving`].

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::TryRecvError;
use std::time::{Duration, Instant};

use super::group::GroupLog;
use super::in_place::OF_GROUP;
use super::journal::{Journal, Keeper};
use super::rdb_export::{Export, Exported, Exporting};
use super::saving::{Copying, Ended, Home, Opening, Purpose, Rdb, Run, Saving, Stage};
use super::snapshot_stream::SnapshotStream;
use super::tail::{Tail, UnitOrigin};
use super::{Env, Persistence};
use crate::base::lsn::Lsn;
use crate::base::rng::Rng;
use crate::config::{Config, rest_per_key};
use crate::keyspace::effect::EffectWriter;
use crate::keyspace::snapshot::Snapshot;
use crate::keyspace::{DbIndex, Keyspace};
use crate::log::directory::{Directory, DirectoryId};
use crate::log::disk::ignore_file_size_signal;
use crate::log::error::LogError;
use crate::log::group_commit::{Commit, Log, Options};
use crate::log::limits::SNAPSHOT_PAUSE_BYTES;
use crate::log::platform::Job;
use crate::log::restore::Restore;
use crate::log::scan::Recovery;
use crate::log::snapshot::writer::{Begin, Done, LogBeside, Sizes, SnapshotWriter};
use crate::persist::limits::SNAPSHOT_GIVE_UP_BYTES;
use crate::spec::session_key::SessionKey;
use crate::spec::table::CommandId;

/// How often the server polls a snapshot while it does nothing but wait for it.
const WAIT_STEP: Duration = Duration::from_millis(1);

impl Persistence {
    /// Moves the snapshot on by a slice, or begins the next one. Returns whether there is more to do at once.
    pub(crate) fn save_slice(&mut self, ks: &Keyspace, env: &Env<'_>) -> bool {
        if self.handover.is_incomplete() && self.cancel_save() {
            return true;
        }
        let Some(run) = &mut self.saving.run else {
            // What is loaded is shown to no snapshot.
            let next = if self.is_filling() { None } else { self.saving.take_scheduled() };
            if let Some(purpose) = next {
                self.saving.begin(purpose, env.clock.steady_ms());
            }
            return next.is_some();
        };
        let slice_bytes = self.saving.platform.slice_bytes;
        let outcome = match &mut run.stage {
            Stage::Wanted => match self.begin_copy(ks, env) {
                Ok(has_begun) => return has_begun,
                Err(error) => Err(error),
            },
            Stage::Asked(receiver) => match receiver.try_recv() {
                Ok(writer) => match self.copy_to(writer, ks) {
                    Ok(()) => return true,
                    Err(error) => Err(error),
                },
                Err(TryRecvError::Empty) => return false,
                Err(TryRecvError::Disconnected) => Err("the node has ended".to_owned()),
            },
            Stage::Copying(copying) => match copying.writer.outcome() {
                Some(Ok(_)) => Err("it ended too early".to_owned()),
                Some(Err(error)) => Err(error.to_string()),
                None => match copy_on(copying, ks, env, slice_bytes) {
                    Ok(Slice::More) => return true,
                    Ok(Slice::Pause) => return false,
                    Ok(Slice::Complete) => {
                        self.end_copy(ks, env);
                        return true;
                    }
                    Err(error) => Err(error),
                },
            },
            Stage::Agreeing(writer, _) if writer.outcome().is_some() => Err("it ended too early".to_owned()),
            Stage::Agreeing(..) => return self.agree(env),
            Stage::Ending(writer, _) => match writer.outcome() {
                Some(Ok(done)) => {
                    self.complete(ks, env, &done);
                    return true;
                }
                Some(Err(error)) => Err(error.to_string()),
                None => return false,
            },
            Stage::Beginning(job, ended) => match job.outcome() {
                Some(opened) => {
                    let ended = *ended;
                    let begun = opened.and_then(|log| self.begin_log(env, log, ended.lsn));
                    self.export_or_conclude(ks, env, ended, begun);
                    return true;
                }
                None => return false,
            },
            Stage::Exporting(exporting, ended) => {
                let Some(exported) = exporting.outcome() else { return false };
                // The snapshot's thread has freed its memory, which this thread's counts do not show.
                self.news.has_freed_memory = true;
                match exported {
                    Ok(Exported { path, keys }) => {
                        tracing::info!("{}: {keys} keys, up to Lsn {}", path.display(), ended.lsn);
                        Ok((*ended, Rdb::Written))
                    }
                    Err(error) => Ok((*ended, Rdb::not_written(&error))),
                }
            }
        };
        self.conclude(env, outcome, Ok(()));
        true
    }

    /// Begins the copy. Returns whether the directory is ready for it.
    fn begin_copy(&mut self, ks: &Keyspace, env: &Env<'_>) -> Result<bool, String> {
        let Some(directory) = self.saving.directory()? else { return Ok(false) };
        let wake = Arc::clone(&self.saving.wake);
        let begin = Begin {
            serial: self.saving.rng.next_u64(),
            time_ms: env.clock.now_ms(),
            sizes: Sizes::default(),
            notify: Box::new(move || wake()),
        };
        let writer = match self.journal.as_ref().map(|journal| &journal.keeper) {
            Some(Keeper::Local(log)) => log.snapshot(begin),
            Some(Keeper::Group(group)) => {
                let wake = Arc::clone(&self.saving.wake);
                let receiver = group.begin_snapshot(begin, move || wake());
                if let Some(run) = &mut self.saving.run {
                    run.stage = Stage::Asked(receiver);
                }
                return Ok(false);
            }
            None => SnapshotWriter::begin(directory, LogBeside::none(), begin),
        };
        self.copy_to(writer, ks).map(|()| true)
    }

    fn copy_to(&mut self, mut writer: SnapshotWriter, ks: &Keyspace) -> Result<(), String> {
        if self.saving.platform.has_threads {
            writer.start().map_err(no_thread)?;
        }
        let keys = Snapshot::begin_with_parts(ks, self.saving.platform.part_min_bytes);
        let stream = SnapshotStream::of(keys).of_whom(&self.handover);
        let copying = Copying::new(writer, stream);
        if let Some(run) = &mut self.saving.run {
            run.stage = Stage::Copying(Box::new(copying));
        }
        Ok(())
    }

    /// Ends the copy: everything is copied, as of the last committed unit.
    fn end_copy(&mut self, ks: &Keyspace, env: &Env<'_>) {
        // The snapshot of a group ends with a block.
        self.commit_by(Commit::HandOver);
        let log_bytes = self.log_written_bytes();
        let begins_log = self.wants_log(env.config);
        let lsn = self.last_lsn();
        let keys = (0..ks.databases()).map(|db| ks.db(db).len()).sum();
        let Some(run) = &mut self.saving.run else { return };
        if let Stage::Copying(mut copying) = std::mem::replace(&mut run.stage, Stage::Wanted) {
            copying.hand_over();
            let mut writer = Box::new(copying.writer);
            let ended = Ended { lsn, keys, changes: ks.effects().count(), log_bytes, begins_log };
            run.stage = match self.journal.as_mut().and_then(Journal::group) {
                Some(group) => {
                    group.await_entry(lsn);
                    Stage::Agreeing(writer, ended)
                }
                None => {
                    writer.finish(lsn, env.clock.now_ms());
                    Stage::Ending(writer, ended)
                }
            };
        }
        if begins_log {
            // Later changes are not in the snapshot: the journal begins with them.
            self.tail = Some(Tail::default());
        }
    }

    /// Ends the writing once the group has committed everything in the snapshot. Returns whether it has.
    fn agree(&mut self, env: &Env<'_>) -> bool {
        let entry = self.journal.as_mut().and_then(Journal::group).and_then(GroupLog::take_awaited);
        let (Some((at, members)), Some(run)) = (entry, &mut self.saving.run) else { return false };
        if let Stage::Agreeing(mut writer, ended) = std::mem::replace(&mut run.stage, Stage::Wanted) {
            writer.finish_at(at, members, env.clock.now_ms());
            run.stage = Stage::Ending(writer, ended);
        }
        true
    }

    /// Begins a snapshot because a node of the group needs a newer one, unless one is being made.
    pub(crate) fn save_for_group(&mut self, env: &Env<'_>) {
        if !self.is_filling() && self.saving.run.is_none() {
            self.saving.begin(Purpose::Rewrite, env.clock.steady_ms());
        }
    }

    /// Returns the Lsn for a snapshot of all committed units: the last unit's or, without a journal, a new one.
    pub(crate) fn last_lsn(&self) -> Lsn {
        match (&self.journal, &self.tail) {
            (Some(journal), Some(tail)) => journal.lsn_of(tail),
            (Some(journal), None) => journal.last(),
            (None, _) => self.saving.last.next(),
        }
    }

    /// Returns whether `appendonly` asks for a journal that does not exist yet.
    pub(crate) fn wants_log(&self, config: &Config) -> bool {
        config.appendonly && self.journal.is_none() && !matches!(self.saving.home, Home::None)
    }

    /// Completes the current snapshot. It is concluded at once, or when the journal that follows it has begun.
    fn complete(&mut self, ks: &Keyspace, env: &Env<'_>, done: &Done) {
        let Some(Run { began, stage: Stage::Ending(_, ended), .. }) = &self.saving.run else { return };
        let (took, ended) = (began.elapsed(), *ended);
        if let (Some(group), Some(mark)) = (self.journal.as_mut().and_then(Journal::group), &done.end.mark) {
            group.snapshot_made(mark.clone());
        }
        self.base_replaced(done, &ended, took);
        if !ended.begins_log || !self.wants_log(env.config) {
            self.drop_unattached_tail();
            return self.export_or_conclude(ks, env, ended, Ok(()));
        }
        match self.open_log(env.config, ended.lsn) {
            Ok(job) => {
                if let Some(run) = &mut self.saving.run {
                    run.stage = Stage::Beginning(job, ended);
                }
            }
            Err(error) => self.export_or_conclude(ks, env, ended, Err(error)),
        }
    }

    /// The current snapshot is complete, and the journal that follows it has begun, or `begun` gives the error.
    /// Continues with the file that `rdb-export` asks for, if any.
    fn export_or_conclude(&mut self, ks: &Keyspace, env: &Env<'_>, ended: Ended, begun: Result<(), String>) {
        let is_asked_for = env.config.rdb_export && self.saving.run.as_ref().is_some_and(|run| run.wants_rdb);
        match begun {
            _ if !is_asked_for => self.conclude(env, Ok((ended, Rdb::NotAskedFor)), begun),
            Ok(()) => match self.begin_export(env.config, ended.lsn, ks.databases()) {
                Ok(exporting) => {
                    if let Some(run) = &mut self.saving.run {
                        run.stage = Stage::Exporting(exporting, ended);
                    }
                }
                Err(error) => self.conclude(env, Ok((ended, Rdb::not_written(&error))), Ok(())),
            },
            Err(_) => {
                let rdb = Rdb::not_written("the journal behind the snapshot could not begin");
                self.conclude(env, Ok((ended, rdb)), begun);
            }
        }
    }

    /// Starts to write the snapshot up to `lsn` as RDB.
    fn begin_export(&self, config: &Config, lsn: Lsn, databases: DbIndex) -> Result<Exporting, String> {
        let saving = &self.saving;
        let Home::Open(directory) = &saving.home else { return Err("there is no directory for it".to_owned()) };
        let export = Export {
            directory: Arc::clone(directory),
            lsn,
            databases,
            name: config.dbfilename.clone(),
            turn: Arc::clone(&saving.export_turn),
            is_well: match self.local_log() {
                Some(log) => log.wellness(),
                None => LogBeside::none().is_well,
            },
        };
        let wake = Arc::clone(&saving.wake);
        Exporting::begin(export, &saving.platform, move || wake()).map_err(no_thread)
    }

    /// Concludes the current snapshot: reports the outcome of the snapshot, of the journal that was to follow it and of
    /// the RDB file, and acts on it.
    pub(crate) fn conclude(&mut self, env: &Env<'_>, outcome: Result<(Ended, Rdb), String>, begun: Result<(), String>) {
        let Some(Run { purpose, wants_rdb, began, .. }) = self.saving.run.take() else { return };
        self.saving.concluded += 1;
        if outcome.is_err() || begun.is_err() {
            self.drop_unattached_tail();
        }
        let history = self.saving.history_mut(purpose);
        history.last_s = Some(began.elapsed().as_secs());
        if purpose == Purpose::Save || begun.is_ok() {
            history.end(outcome.is_ok());
        }
        if let Err(error) = &outcome {
            let safe = match &self.journal {
                Some(_) => "All data is still in the journal",
                None => "Changes since the last snapshot are in memory only",
            };
            tracing::error!("no snapshot was made: {error}. {safe}; remove the cause and call BGSAVE");
        }
        if let Err(error) = begun {
            let history = self.saving.history_mut(Purpose::Rewrite);
            history.tried_ms = env.clock.steady_ms();
            history.end(false);
            tracing::error!("the journal could not begin: {error}. Until it begins, changes are in memory only");
        }
        self.saving.failure = outcome.as_ref().err().cloned();
        let told = outcome.and_then(|(ended, rdb)| self.note_saved(env, purpose, wants_rdb, &ended, rdb));
        let waiting = std::mem::take(&mut self.saving.waiting);
        self.answer(waiting, &told);
        self.news.changes_admission = true;
    }

    /// Records a complete snapshot. Returns whether it fulfils everything that was requested.
    fn note_saved(
        &mut self,
        env: &Env<'_>,
        purpose: Purpose,
        wants_rdb: bool,
        ended: &Ended,
        rdb: Rdb,
    ) -> Result<(), String> {
        let saving = &mut self.saving;
        if wants_rdb {
            saving.has_export_failed = matches!(rdb, Rdb::Failed(_));
        }
        if let Rdb::Failed(error) = rdb {
            tracing::error!("{error}. The snapshot is complete and will be read; remove the cause and call BGSAVE");
            saving.points_since_ms = env.clock.steady_ms();
            return Err(error);
        }
        saving.history_mut(purpose).done += 1;
        // With `rdb-export`, the time of the last save gives the age of the RDB file, which other snapshots do not
        // write.
        if matches!(rdb, Rdb::Written) || !env.config.rdb_export {
            saving.saved_ms = env.clock.now_ms();
            saving.points_since_ms = env.clock.steady_ms();
            saving.saved_changes = ended.changes;
        }
        Ok(())
    }

    /// Makes this snapshot the base from which a start loads.
    fn base_replaced(&mut self, done: &Done, ended: &Ended, took: Duration) {
        tracing::info!(
            "snapshot: {} keys, {} bytes, up to Lsn {}, in {:.1} s",
            ended.keys,
            done.file_bytes,
            ended.lsn,
            took.as_secs_f64()
        );
        let saving = &mut self.saving;
        saving.base_bytes = done.file_bytes;
        saving.log_bytes_offset = -i64::try_from(ended.log_bytes).unwrap_or(i64::MAX);
        // The journal may have continued, and been closed, since the copy ended.
        saving.last = saving.last.max(ended.lsn);
    }

    /// Records the outcome for the clients that wait for a snapshot.
    fn answer(&mut self, waiting: Vec<(SessionKey, CommandId)>, outcome: &Result<(), String>) {
        self.news.tell(waiting, outcome);
    }

    /// Drops the tail if there is no journal: it was kept for one that has not begun.
    fn drop_unattached_tail(&mut self) {
        if self.journal.is_none() {
            self.tail = None;
        }
    }

    /// Cancels the current snapshot. Returns whether it was in time: a complete snapshot stays.
    pub(crate) fn cancel_save(&mut self) -> bool {
        // Dropping the writer tells its thread to stop.
        // A snapshot that begins the journal can't be cancelled.
        let is_cancelled = |run: &mut Run| !matches!(run.stage, Stage::Beginning(..));
        if self.saving.run.take_if(is_cancelled).is_none() {
            return false;
        }
        self.drop_unattached_tail();
        tracing::warn!("the snapshot was cancelled");
        // A waiter may have no other way to notice the end.
        (self.saving.wake)();
        let waiting = std::mem::take(&mut self.saving.waiting);
        self.answer(waiting, &Err("the snapshot was cancelled".to_owned()));
        true
    }

    /// Cancels the snapshot scheduled after the current one. Returns whether there was one.
    pub(crate) fn cancel_scheduled_save(&mut self) -> bool {
        let waiting = std::mem::take(&mut self.saving.waiting_for_next);
        self.answer(waiting, &Err("the snapshot was cancelled".to_owned()));
        self.saving.unschedule(Purpose::Save)
    }

    /// Makes a snapshot of all data while no clients are served, or completes the current one if it will hold all data.
    /// Must not be called within a unit that has changed data. [`Saving::has_export_failed`] tells whether the RDB file
    /// could be written.
    pub(crate) fn save_at_once(&mut self, ks: &Keyspace, env: &Env<'_>) -> Result<(), String> {
        if self.saving.is_ending() {
            // The current snapshot may lack recent changes.
            self.complete_save(ks, env);
        }
        self.saving.begin_or_join(env.clock.steady_ms());
        self.complete_save(ks, env);
        self.saving.failure.clone().map_or(Ok(()), Err)
    }

    fn complete_save(&mut self, ks: &Keyspace, env: &Env<'_>) {
        if self.saving.run.is_some() && self.journal.as_ref().is_some_and(|journal| journal.member().is_some()) {
            // The node's thread answers only between two turns of this one.
            let error = "a snapshot of a node takes the group's agreement, which can't be waited for in place";
            return self.conclude(env, Err(error.to_owned()), Ok(()));
        }
        while self.saving.run.is_some() {
            self.saving.hurry();
            if !self.save_slice(ks, env) {
                match self.saving.platform.has_threads {
                    true => std::thread::sleep(WAIT_STEP),
                    false => self.saving.step(),
                }
            }
        }
    }

    /// Starts to open the journal that follows the snapshot up to `lsn`. Changes made in the meantime gather in the
    /// tail.
    pub(crate) fn open_log(&mut self, config: &Config, lsn: Lsn) -> Result<Opening, String> {
        ignore_file_size_signal();
        let Home::Open(directory) = &self.saving.home else {
            return Err("there is no directory for it".to_owned());
        };
        let (directory, platform) = (Arc::clone(directory), self.saving.platform.clone());
        let ended = self.saving.ended_log.clone();
        // Until there is space for the journal, the server continues as before.
        let options = Options { policy: config.appendfsync.into(), may_wait_for_space: false, ..platform.options };
        let (wake, done) = (Arc::clone(&self.saving.wake_for_log), Arc::clone(&self.saving.wake));
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
                    return Err(format!(
                        "there is a journal already, which ends with Lsn {}, not {lsn}",
                        log.durable()
                    ));
                }
                if platform.has_threads {
                    log.start().map_err(no_thread)?;
                }
                Ok(log)
            }
        };
        platform.begin("log-begin", work, move || done()).map_err(no_thread)
    }

    /// Continues with the journal opened after the snapshot up to `lsn`, and hands it the changes gathered since.
    pub(crate) fn begin_log(&mut self, env: &Env<'_>, log: Log, lsn: Lsn) -> Result<(), String> {
        if !self.wants_log(env.config) {
            self.tail = None;
            self.end_beside(move || drop(log));
            return Ok(());
        }
        let tail = self.tail.take();
        let Some(tail) = tail else {
            self.end_beside(move || drop(log));
            return Err("the disk was too slow for the changes made meanwhile".to_owned());
        };
        let policy = env.config.appendfsync.into();
        if log.policy() != policy {
            // It has been set since.
            log.set_policy(policy).map_err(|error| error.to_string())?;
        }
        self.journal = Some(Journal::new(Keeper::Local(log), lsn));
        self.tail = Some(tail);
        self.saving.log_bytes_offset = 0;
        tracing::info!("the journal has begun behind Lsn {lsn}: from now on it has changes before replies leave");
        Ok(())
    }

    /// Ends a journal that takes no more writes. Its threads may be busy on a slow disk, so a further thread waits for
    /// them.
    pub(crate) fn end_beside(&mut self, end: impl FnOnce() + Send + 'static) {
        let before = self.saving.ended_log.take();
        self.saving.ended_log = Some(self.saving.platform.begin_or_do("log-end", move || {
            if let Some(before) = before {
                before.wait();
            }
            end();
        }));
    }

    /// CONFIG SET appendonly no: makes everything durable and closes the journal. On failure the journal stays open.
    pub(crate) fn end_log(&mut self, ks: &mut Keyspace) -> Result<(), String> {
        if self.journal.as_mut().and_then(Journal::group).is_some() {
            return Err(OF_GROUP.to_owned());
        }
        // Draining comes first: it can fail, and then nothing must have changed.
        if self.journal.is_some() && !self.drain() {
            let failure = self.journal.as_ref().and_then(Journal::failure);
            return Err(failure.unwrap_or_else(|| "No space left on device".to_owned()));
        }
        if self.saving.run.as_ref().is_some_and(|run| run.purpose == Purpose::Rewrite) {
            self.cancel_save();
        }
        if self.journal.is_none() {
            return Ok(());
        }
        self.saving.last = self.last_lsn();
        self.tail = None;
        if let Some(Keeper::Local(log)) = self.journal.take().map(|journal| journal.keeper) {
            self.end_beside(move || {
                if let Err(error) = log.close() {
                    // All is durable: only the mark is missing that says that nothing follows.
                    tracing::warn!("the journal could not be marked as closed: {error}");
                }
            });
        }
        ks.forget_in_flight();
        self.news.changes_admission = true;
        self.news.releases_all = true;
        tracing::warn!("the journal was closed: from now on changes are in memory only, until a snapshot is made");
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

/// Copies one slice of about `slice_bytes`.
fn copy_on(copying: &mut Copying, ks: &Keyspace, env: &Env<'_>, slice_bytes: usize) -> Result<Slice, String> {
    let key_delay_us = env.config.rdb_key_save_delay_us;
    let backlog = copying.writer.backlog();
    if backlog > SNAPSHOT_GIVE_UP_BYTES {
        return Err(format!("the disk is too slow for the changes made meanwhile: {backlog} bytes wait to be written"));
    }
    if backlog > SNAPSHOT_PAUSE_BYTES {
        return Ok(Slice::Pause);
    }
    if key_delay_us != 0 && copying.rests_until > Instant::now() {
        return Ok(Slice::Pause);
    }
    let mut effects = EffectWriter::default();
    let before = copying.stream.progress(ks).0;
    // With a delay per key, one key at a time.
    let bytes = if key_delay_us == 0 { slice_bytes } else { 1 };
    let is_complete = copying.stream.copy_slice(ks, env.scripts, bytes, &mut effects);
    copying.add(UnitOrigin::Snapshot, &effects);
    copying.hand_over();
    if key_delay_us != 0 {
        let keys = copying.stream.progress(ks).0.saturating_sub(before);
        copying.rests_until += rest_per_key(key_delay_us) * u32::try_from(keys).unwrap_or(u32::MAX);
        // The next slice decides whether the copy is complete, because it runs after the pause.
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
    /// Returns the directory of the snapshots and of the journal. The first call starts to open it; until it is open,
    /// there is none.
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
            let opened = Directory::open(disk, &path, DirectoryId::random(&mut Rng::from_entropy()));
            let directory = Arc::new(opened.map_err(|error| error.to_string())?);
            // Another process may have put data there after this server started without any.
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
