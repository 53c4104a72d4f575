//! State shared by the engine, the journal's thread and the thread that prepares segments: queue, counters, condition.

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use super::block::HEAD_BYTES;
use super::directory::Directory;
use super::disk::{Clock, is_full};
use super::segments::{Filled, Filling, Prepared, Segments, Task, recycle, remove};
use super::times::Times;
use super::types::{Options, State, SyncPolicy, Tail};
use crate::base::lsn::{AtomicLsn, Lsn};
use crate::log::limits::{
    LOG_EVERY_SEC, LOG_FILL_PAUSE, LOG_FULL_RETRY, LOG_MERGE_MAX_BYTES, LOG_SEGMENT_GROWTH, LOG_SPARE_BUFFERS,
    LOG_SPARE_MAX_BYTES,
};

/// Why the journal takes no more units.
#[derive(Clone, Debug)]
pub struct Failure {
    /// The action that failed, and its file.
    pub action: String,
    /// The system's error message.
    pub error: String,
    /// The last unit that is known to be durable.
    pub durable: Lsn,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}; nothing after Lsn {} is known to be on disk", self.action, self.error, self.durable)
    }
}

/// Units that wait to be written.
#[derive(Default)]
pub(super) struct Queue {
    pub(super) tails: VecDeque<Tail>,
    spares: Vec<Vec<u8>>,
}

/// Everything that a journal is opened with.
pub(super) struct Opening {
    pub(super) directory: Arc<Directory>,
    pub(super) options: Options,
    pub(super) clock: Arc<dyn Clock>,
    /// Called when more units are written or durable, or when the state changes.
    pub(super) notify: Box<dyn Fn() + Send + Sync>,
    pub(super) segments: Segments,
    /// The last unit in the journal; it is durable.
    pub(super) end: Lsn,
}

/// See the module's header.
pub(super) struct Shared {
    pub(super) directory: Arc<Directory>,
    pub(super) options: Options,
    pub(super) clock: Arc<dyn Clock>,
    notify: Box<dyn Fn() + Send + Sync>,
    pub(super) written: AtomicLsn,
    pub(super) durable: AtomicLsn,
    state: AtomicU8,
    policy: AtomicU8,
    failure: OnceLock<Failure>,
    queue: Mutex<Queue>,
    /// Where the journal's thread waits for something to write, with the lock of the queue.
    work: Condvar,
    segments: Mutex<Segments>,
    /// Where the thread that prepares segments waits for work, with the lock of the segments.
    chores: Condvar,
    is_closing: AtomicBool,
    /// Prefilled bytes left in the segment being written.
    room: AtomicU64,
    /// Whether written blocks must be synced, whatever the policy.
    is_sync_wanted: AtomicBool,
    /// Whether a write has failed for lack of space.
    is_stuck: AtomicBool,
    /// Bytes that are queued or stuck.
    backlog: AtomicUsize,
    pub(super) written_bytes: AtomicU64,
    sync_ns: AtomicU64,
    /// The longest write and the longest sync since the last [`take_longest`](Self::take_longest), in ns.
    longest_write_ns: AtomicU64,
    longest_sync_ns: AtomicU64,
    times: Arc<Times>,
}

impl Shared {
    pub(super) fn new(opening: Opening) -> Shared {
        let Opening { directory, options, clock, notify, segments, end } = opening;
        Shared {
            directory,
            policy: AtomicU8::new(options.policy as u8),
            options,
            clock,
            notify,
            written: AtomicLsn::new(end),
            durable: AtomicLsn::new(end),
            state: AtomicU8::new(State::Good as u8),
            failure: OnceLock::new(),
            queue: Mutex::default(),
            work: Condvar::new(),
            segments: Mutex::new(segments),
            chores: Condvar::new(),
            is_closing: AtomicBool::new(false),
            room: AtomicU64::new(u64::MAX),
            is_sync_wanted: AtomicBool::new(false),
            is_stuck: AtomicBool::new(false),
            backlog: AtomicUsize::new(0),
            written_bytes: AtomicU64::new(0),
            sync_ns: AtomicU64::new(0),
            longest_write_ns: AtomicU64::new(0),
            longest_sync_ns: AtomicU64::new(0),
            times: Arc::default(),
        }
    }

    pub(super) fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn segments(&self) -> MutexGuard<'_, Segments> {
        self.segments.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the segments, and wakes the thread that prepares them.
    pub(super) fn with_segments<T>(&self, change: impl FnOnce(&mut Segments) -> T) -> T {
        let changed = change(&mut self.segments());
        self.chores.notify_one();
        changed
    }

    pub(super) fn notify(&self) {
        (self.notify)();
    }

    // The threads.

    pub(super) fn wake_writer(&self) {
        self.work.notify_one();
    }

    /// Ends the threads.
    pub(super) fn close(&self) {
        self.is_closing.store(true, Ordering::Release);
        // By now, each thread either waits or will see the flag before it waits: the lock rules out that a thread looks
        // before the flag is set and falls asleep after the notice.
        drop(self.queue());
        self.work.notify_all();
        drop(self.segments());
        self.chores.notify_all();
    }

    pub(super) fn is_closing(&self) -> bool {
        self.is_closing.load(Ordering::Acquire)
    }

    /// Sleeps until there may be something to write or to sync. Returns false when the journal is being closed.
    pub(super) fn wait_for_work(&self, is_stuck: bool) -> bool {
        let queue = self.queue();
        if self.is_closing() {
            return false;
        }
        let pause = match self.policy() {
            _ if is_stuck => Some(LOG_FULL_RETRY),
            _ if !queue.tails.is_empty() || self.is_sync_wanted.load(Ordering::Acquire) => return true,
            // Commits in place do not wake this thread, so it has to look.
            SyncPolicy::EverySec => Some(LOG_EVERY_SEC / 4),
            SyncPolicy::Always | SyncPolicy::No => None,
        };
        wait(&self.work, queue, pause);
        !self.is_closing()
    }

    /// Sleeps until there may be something to prepare. Returns false when the journal is being closed.
    pub(super) fn wait_for_chores(&self) -> bool {
        let segments = self.segments();
        if self.is_closing() {
            return false;
        }
        if !segments.has_task(self.options.prepared_segments) || self.state() == State::Poisoned {
            wait(&self.chores, segments, None);
        } else if segments.is_short {
            wait(&self.chores, segments, Some(LOG_FULL_RETRY));
        }
        !self.is_closing()
    }

    // The queue.

    /// Adds units to the queue. Small ones join the last block that waits there, if it is small, too.
    pub(super) fn enqueue(&self, tail: Tail) {
        self.backlog.fetch_add(tail.bytes.len(), Ordering::Relaxed);
        let mut queue = self.queue();
        if let Some(last) = queue.tails.back_mut()
            && last.bytes.len() + tail.bytes.len() <= LOG_MERGE_MAX_BYTES
            && last.end() == tail.first_lsn
        {
            last.bytes.extend_from_slice(tail.bytes.get(HEAD_BYTES..).unwrap_or_default());
            last.units += tail.units;
            last.time_ms = tail.time_ms;
            self.backlog.fetch_sub(tail.bytes.len().min(HEAD_BYTES), Ordering::Relaxed);
            queue.keep(tail.bytes);
        } else {
            queue.tails.push_back(tail);
        }
    }

    /// Takes units off the backlog that have been written or never will be.
    pub(super) fn done_with(&self, tail: Tail) {
        self.backlog.fetch_sub(tail.bytes.len(), Ordering::Relaxed);
        self.queue().keep(tail.bytes);
    }

    /// Returns an empty buffer with head room, a used one if there is any.
    pub(super) fn spare(&self) -> Vec<u8> {
        let used_before = self.queue().spares.pop();
        used_before.unwrap_or_else(|| emptied(Vec::new()))
    }

    pub(super) fn backlog_bytes(&self) -> usize {
        self.backlog.load(Ordering::Relaxed)
    }

    // The state.

    pub(super) fn state(&self) -> State {
        match self.state.load(Ordering::Acquire) {
            0 => State::Good,
            1 => State::Full,
            _ => State::Poisoned,
        }
    }

    pub(super) fn failure(&self) -> Option<&Failure> {
        self.failure.get()
    }

    /// Declares that a write or a sync has failed, after which the journal is trusted no more. The first failure is the
    /// one that counts.
    pub(super) fn poison(&self, action: String, error: &io::Error) {
        let failure = Failure { action, error: error.to_string(), durable: self.durable.load() };
        if self.failure.set(failure).is_ok() {
            self.state.store(State::Poisoned as u8, Ordering::Release);
            self.notify();
        }
    }

    pub(super) fn set_stuck(&self, is_stuck: bool) {
        self.is_stuck.store(is_stuck, Ordering::Relaxed);
    }

    /// Notes how many prefilled bytes are left in the segment being written.
    #[inline]
    pub(super) fn set_room(&self, bytes: u64) {
        self.room.store(bytes, Ordering::Relaxed);
    }

    /// Whether the journal works and has the space that it wants. If not, other users of the disk must leave the
    /// remaining space to it.
    pub(super) fn is_well(&self) -> bool {
        self.state() == State::Good && !self.segments().is_short
    }

    /// Retires the segments that hold nothing after `lsn`. Returns the number of segments retired.
    pub(super) fn cut(&self, lsn: Lsn) -> usize {
        self.with_segments(|segments| segments.retire_before(lsn.next()))
    }

    /// Judges whether there is space for the units still to come, and announces a change.
    pub(super) fn judge_space(&self) {
        let lacks =
            |prepared: u64| self.room.load(Ordering::Relaxed).saturating_add(prepared) < self.options.reserve_bytes;
        let lacks_room = || {
            let segments = self.segments();
            segments.is_short && lacks(segments.prepared_bytes())
        };
        let is_full = self.is_stuck.load(Ordering::Relaxed) || (lacks(0) && lacks_room());
        let (from, to) = if is_full { (State::Good, State::Full) } else { (State::Full, State::Good) };
        if self.state() != from {
            return;
        }
        let changed = self.state.compare_exchange(from as u8, to as u8, Ordering::AcqRel, Ordering::Acquire);
        if changed.is_ok() {
            self.notify();
        }
    }

    // Syncs.

    pub(super) fn policy(&self) -> SyncPolicy {
        match self.policy.load(Ordering::Acquire) {
            0 => SyncPolicy::Always,
            1 => SyncPolicy::EverySec,
            _ => SyncPolicy::No,
        }
    }

    pub(super) fn set_policy(&self, policy: SyncPolicy) {
        self.policy.store(policy as u8, Ordering::Release);
        drop(self.queue());
        self.work.notify_one();
    }

    /// Requests one sync of all written blocks, whatever the policy.
    pub(super) fn want_sync(&self) {
        self.is_sync_wanted.store(true, Ordering::Release);
        drop(self.queue());
        self.work.notify_one();
    }

    /// Whether a sync was [wanted](Self::want_sync) since the last call.
    pub(super) fn take_wanted_sync(&self) -> bool {
        self.is_sync_wanted.load(Ordering::Relaxed) && self.is_sync_wanted.swap(false, Ordering::AcqRel)
    }

    /// Records how long a sync took. A slow sync raises the estimate at once, and fast ones lower it slowly: if the
    /// disk is slow at times, the engine's thread must not be caught by it a second time.
    pub(super) fn learn_sync_time(&self, took: Duration) {
        self.times.syncs.add(took);
        let took = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        self.longest_sync_ns.fetch_max(took, Ordering::Relaxed);
        let before = self.sync_ns.load(Ordering::Relaxed);
        self.sync_ns.store(took.max(before - before / 8), Ordering::Relaxed);
    }

    /// Records how long a write took.
    pub(super) fn learn_write_time(&self, took: Duration) {
        self.times.writes.add(took);
        let took = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        self.longest_write_ns.fetch_max(took, Ordering::Relaxed);
    }

    pub(super) fn take_longest(&self) -> (Duration, Duration) {
        let take = |longest: &AtomicU64| Duration::from_nanos(longest.swap(0, Ordering::Relaxed));
        (take(&self.longest_write_ns), take(&self.longest_sync_ns))
    }

    pub(super) fn times(&self) -> &Arc<Times> {
        &self.times
    }

    pub(super) fn sync_time(&self) -> Duration {
        Duration::from_nanos(self.sync_ns.load(Ordering::Relaxed))
    }

    // Chores.

    /// Fills one piece of a file, or reuses or removes a file, if there is a reason to. Returns whether there was work
    /// and it succeeded.
    pub(super) fn do_chore(&self) -> bool {
        if self.state() == State::Poisoned {
            return false;
        }
        let lengths = self.options.first_segment_bytes.saturating_mul(LOG_SEGMENT_GROWTH)..=self.options.segment_bytes;
        let Some(task) = self.segments().task(self.options.prepared_segments, lengths) else { return false };
        let worked = match task {
            Task::Make(temporary, capacity) => self.fill(Filling::begin(&self.directory, temporary, capacity)),
            Task::Fill(filling) => self.fill(Ok(filling)),
            Task::Recycle(old, number, lengths) => match recycle(&self.directory, old, number, &lengths) {
                Ok(None) => self.has_freed_space(),
                // If syncing the names fails, the fate of earlier names is unknown, too.
                Ok(Some(prepared)) => match self.directory.sync() {
                    Ok(()) => self.add_prepared(prepared),
                    Err(error) => self.chore_failed("sync the names of the journal's segments", &error),
                },
                Err(error) => self.leave_behind(old, &error),
            },
            Task::Remove(old) => match remove(&self.directory, old) {
                Ok(()) => self.has_freed_space(),
                Err(error) => self.leave_behind(old, &error),
            },
        };
        self.judge_space();
        worked
    }

    fn fill(&self, filling: io::Result<Filling>) -> bool {
        let number = || self.segments().take_number();
        match filling.and_then(|filling| filling.step(&self.directory, number)) {
            Ok(Filled::Whole(prepared)) => self.add_prepared(prepared),
            // Space for one piece does not prove that there is space for the next.
            Ok(Filled::InPart(filling)) => {
                self.segments().go_on_with(filling);
                true
            }
            Err(error) => self.chore_failed("prepare a segment of the journal", &error),
        }
    }

    fn add_prepared(&self, prepared: Prepared) -> bool {
        self.segments().add_prepared(prepared);
        self.has_freed_space()
    }

    fn has_freed_space(&self) -> bool {
        self.segments().is_short = false;
        true
    }

    /// Leaves the disk to others after a chore that took this long, unless the journal may soon need a prepared
    /// segment.
    pub(super) fn rest_after_chore(&self, took: Duration) {
        let segments = self.segments();
        if segments.has_prepared() && !self.is_closing() {
            wait(&self.chores, segments, Some(took * LOG_FILL_PAUSE));
        }
    }

    fn chore_failed(&self, action: &str, error: &io::Error) -> bool {
        match is_full(error) {
            true => self.segments().is_short = true,
            false => self.poison(action.to_owned(), error),
        }
        false
    }

    /// Leaves the file of an unneeded segment in place for now. The journal does not depend on it.
    fn leave_behind(&self, old: u64, error: &io::Error) -> bool {
        let mut segments = self.segments();
        segments.leave_behind(old);
        segments.is_short |= is_full(error);
        let path = self.directory.segment(old);
        tracing::warn!(
            "{}: a segment that is no longer needed can't be removed or used again: {error}; the server \
             tries again when the journal is truncated, and at the next start",
            path.display()
        );
        false
    }
}

/// Empties a buffer down to its head room, and limits the memory that it keeps.
pub(super) fn emptied(mut bytes: Vec<u8>) -> Vec<u8> {
    bytes.resize(HEAD_BYTES, 0);
    if bytes.capacity() > LOG_SPARE_MAX_BYTES {
        bytes.shrink_to(LOG_SPARE_MAX_BYTES);
    }
    bytes
}

fn wait<T>(condition: &Condvar, guard: MutexGuard<'_, T>, pause: Option<Duration>) {
    match pause {
        Some(pause) => drop(condition.wait_timeout(guard, pause).unwrap_or_else(PoisonError::into_inner)),
        None => drop(condition.wait(guard).unwrap_or_else(PoisonError::into_inner)),
    }
}

impl Queue {
    /// Frees the memory that is kept for later units.
    pub(super) fn give_back(&mut self) {
        self.spares = Vec::new();
        self.tails.shrink_to_fit();
    }

    fn keep(&mut self, bytes: Vec<u8>) {
        if self.spares.len() < LOG_SPARE_BUFFERS {
            self.spares.push(emptied(bytes));
        }
    }
}
