//! The log that the engine writes, how far it is, and who waits for that. [`crate::engine::persistence::release`] acts on it.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::tail::Tail;
use crate::base::limits::LOG_BEHIND_MAX_BYTES;
use crate::base::lsn::Lsn;
use crate::config::AppendFsync;
use crate::log::group_commit::{self, Commit, Log, State, SyncPolicy};
use crate::spec::session_key::SessionKey;

/// The log, and what of the data it has.
pub(crate) struct Journal {
    pub(crate) log: Log,
    /// The last unit that the log was given.
    pub(crate) last: Lsn,
    /// What the log was found to be when it was last looked at.
    pub(crate) state: State,
    /// Who is to be woken when the log has reached which unit, the nearest first.
    pub(crate) waiting: BinaryHeap<Reverse<(Lsn, SessionKey)>>,
    pub(crate) held: Held,
    /// With so many entries in `waiting` it is looked through for those of connections that have gone.
    pub(crate) waiting_max: usize,
    /// The last unit that the log had been given when buffers were last given back.
    last_at_rest: Lsn,
}

/// Bytes that were given a fence since the engine waited last: no fewer than those that are held back.
#[derive(Default)]
pub(crate) struct Held {
    /// When this unit is safe, the bytes before it have left.
    mark: Lsn,
    before: usize,
    /// The last unit that any of them waits for.
    pub(crate) newest: Lsn,
    pub(crate) since: usize,
}

impl Held {
    pub(crate) fn bytes(&self) -> usize {
        self.before + self.since
    }
}

/// See [`Journal::waiting_max`].
pub(crate) const WAITING_MIN: usize = 1024;

impl Journal {
    /// Goes on behind unit `last`, the last one in the log.
    pub(crate) fn new(log: Log, last: Lsn) -> Journal {
        Journal {
            log,
            last,
            state: State::Good,
            waiting: BinaryHeap::new(),
            held: Held::default(),
            waiting_max: WAITING_MIN,
            last_at_rest: last,
        }
    }

    /// Forgets the held bytes that wait for nothing any more.
    pub(crate) fn release_held(&mut self) {
        let safe = self.safe();
        if safe >= self.held.mark {
            let Held { newest, since, .. } = self.held;
            self.held = Held { mark: newest, newest, before: since, since: 0 };
        }
        if safe >= self.held.newest {
            self.held = Held::default();
        }
    }

    /// The number of the last unit of the tail.
    #[inline]
    pub(crate) fn lsn_of(&self, tail: &Tail) -> Lsn {
        self.last.plus(u64::from(tail.units))
    }

    /// Gives the units of the tail to the log.
    pub(crate) fn commit(&mut self, tail: &mut Tail, how: Commit) {
        let Tail { bytes, units, time_ms } = std::mem::replace(tail, Tail::new(Vec::new()));
        let first_lsn = self.last.next();
        self.last = self.last.plus(u64::from(units));
        *tail = Tail::new(self.log.commit(group_commit::Tail { bytes, first_lsn, units, time_ms }, how));
    }

    /// Gives back the memory of buffers if the log was given nothing since the last call, and nothing waits.
    pub(crate) fn give_back(&mut self, tail: &mut Tail) {
        if self.last == self.last_at_rest && self.is_safe() {
            tail.give_back();
            self.waiting.shrink_to_fit();
            self.log.give_back();
        }
        self.last_at_rest = self.last;
    }

    /// The last unit that is as safe as `appendfsync` asks.
    #[inline]
    pub(crate) fn safe(&self) -> Lsn {
        match self.log.policy() {
            SyncPolicy::Always => self.log.durable(),
            SyncPolicy::EverySec | SyncPolicy::No => self.log.written(),
        }
    }

    pub(crate) fn is_safe(&self) -> bool {
        self.safe() >= self.last
    }

    /// Waits for the disk if too much waits to be written.
    pub(crate) fn bound_backlog(&self) {
        if self.log.backlog_bytes() > LOG_BEHIND_MAX_BYTES {
            // Of a disk that is full, or has failed, the state tells.
            let _ = self.log.settle();
        }
    }

    /// Whether the log takes changes.
    pub(crate) fn is_good(&self) -> bool {
        self.state == State::Good
    }

    /// The last unit that the log was given.
    pub(crate) fn last(&self) -> Lsn {
        self.last
    }

    /// The log, for those who tell of it.
    pub(crate) fn log(&self) -> &Log {
        &self.log
    }
}

impl From<AppendFsync> for SyncPolicy {
    fn from(policy: AppendFsync) -> SyncPolicy {
        match policy {
            AppendFsync::Always => SyncPolicy::Always,
            AppendFsync::EverySecond => SyncPolicy::EverySec,
            AppendFsync::No => SyncPolicy::No,
        }
    }
}
