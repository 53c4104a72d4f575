//! The journal that the engine writes, its progress, and the sessions waiting for it.
//! [`crate::engine::persistence::release`] acts on this state.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::tail::Tail;
use crate::base::limits::LOG_BEHIND_MAX_BYTES;
use crate::base::lsn::Lsn;
use crate::config::AppendFsync;
use crate::log::group_commit::{self, Commit, Log, State, SyncPolicy};
use crate::spec::session_key::SessionKey;

/// The journal and its progress.
pub(crate) struct Journal {
    pub(crate) log: Log,
    /// The last unit handed to the journal.
    pub(crate) last: Lsn,
    /// The journal's state when last checked.
    pub(crate) state: State,
    /// Sessions to wake, ordered by the Lsn they wait for.
    pub(crate) waiting: BinaryHeap<Reverse<(Lsn, SessionKey)>>,
    pub(crate) held: Held,
    /// Length of `waiting` at which entries of closed connections are removed.
    pub(crate) waiting_max: usize,
    /// The last unit handed to the journal when buffers were last freed.
    last_at_rest: Lsn,
}

/// Bytes that were given a fence since the engine last waited; an upper bound of the bytes held back.
#[derive(Default)]
pub(crate) struct Held {
    /// Once this unit is safe, the bytes before it have been sent.
    mark: Lsn,
    before: usize,
    /// The newest unit that any of the bytes wait for.
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
    /// Continues after unit `last`, the last one in the journal.
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

    /// Stops counting held bytes whose units are safe.
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

    /// Returns the Lsn of the last unit of the tail.
    #[inline]
    pub(crate) fn lsn_of(&self, tail: &Tail) -> Lsn {
        self.last.plus(u64::from(tail.units))
    }

    /// Hands the units of the tail to the journal.
    pub(crate) fn commit(&mut self, tail: &mut Tail, how: Commit) {
        let Tail { bytes, units, time_ms } = std::mem::replace(tail, Tail::new(Vec::new()));
        let first_lsn = self.last.next();
        self.last = self.last.plus(u64::from(units));
        *tail = Tail::new(self.log.commit(group_commit::Tail { bytes, first_lsn, units, time_ms }, how));
    }

    /// Frees the buffers if nothing was handed to the journal since the last call and nothing waits.
    pub(crate) fn give_back(&mut self, tail: &mut Tail) {
        if self.last == self.last_at_rest && self.is_safe() {
            tail.give_back();
            self.waiting.shrink_to_fit();
            self.log.give_back();
        }
        self.last_at_rest = self.last;
    }

    /// Returns the last unit that is as safe as `appendfsync` asks.
    #[inline]
    pub(crate) fn safe(&self) -> Lsn {
        match self.log.policy() {
            SyncPolicy::Always => self.log.durable(),
            SyncPolicy::EverySec | SyncPolicy::No => self.log.written(),
        }
    }

    /// Whether each unit is synced before its reply leaves (`appendfsync always`).
    pub(crate) fn syncs_always(&self) -> bool {
        self.log.policy() == SyncPolicy::Always
    }

    pub(crate) fn is_safe(&self) -> bool {
        self.safe() >= self.last
    }

    /// Waits for the disk if the write backlog is too large.
    pub(crate) fn bound_backlog(&self) {
        if self.log.backlog_bytes() > LOG_BEHIND_MAX_BYTES {
            // A full or failed disk shows in the state.
            let _ = self.log.settle();
        }
    }

    /// Returns whether the journal accepts changes.
    pub(crate) fn is_good(&self) -> bool {
        self.state == State::Good
    }

    /// Returns the last unit handed to the journal.
    pub(crate) fn last(&self) -> Lsn {
        self.last
    }

    /// Returns the underlying log, for reports about it.
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
