//! The journal as the engine sees it: the contract of whatever keeps its units.
//!
//! | Call | Contract |
//! |---|---|
//! | [`append`](Journal::append) | takes the next units in order; waits for the disk only [in place](Commit::InPlace) |
//! | [`safe`](Journal::safe) | the last unit that nothing can take away, as far as `appendfsync` promises; only grows |
//! | [`state`](Journal::state) | whether units are taken: yes, not for now, or never again |
//! | [`begin_sync`](Journal::begin_sync) | makes all units durable soon, whatever `appendfsync` says; does not wait |
//! | [`source`](Journal::source) | reads the units after an Lsn, in order, byte for byte; none can still be lost |
//! | [`cut`](Journal::cut) | gives up the units that a durable snapshot covers |
//!
//! There are two kinds: the local one, which the tests in `conformance.rs` judge by this table, with threads and
//! without them, as the simulations run it; and that of a node, whose units the [group](super::group) keeps. Whoever
//! waits for a unit is parked and woken by [`follow`](Journal::follow). The few callers that wait in place use
//! [`in_place`](super::in_place).

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::group::{Given, GroupLog};
use super::tail::Tail;
use crate::base::lsn::Lsn;
use crate::config::AppendFsync;
use crate::log::block::HEAD_BYTES;
use crate::log::follow::UnitSource;
use crate::log::group_commit::{self, Commit, Log, State, SyncPolicy};
use crate::log::replicated::block::Block;
use crate::log::replicated::types::Position;
use crate::persist::limits::{LOG_BEHIND_MAX_BYTES, LOG_SYNC_ALONE_MAX, LOG_SYNC_IN_PLACE_MAX};
use crate::spec::session_key::SessionKey;

/// The journal and its progress.
pub(crate) struct Journal {
    pub(super) keeper: Keeper,
    /// The last unit handed to the journal.
    last: Lsn,
    /// The journal's state when last checked.
    state: State,
    /// Sessions to wake, ordered by the Lsn they wait for.
    waiting: BinaryHeap<Reverse<(Lsn, SessionKey)>>,
    /// Sessions to wake when the group has confirmed a round.
    waiting_for_round: Vec<(u64, SessionKey)>,
    held: Held,
    /// Length of `waiting` at which entries of closed connections are removed.
    waiting_max: usize,
    /// The last unit handed to the journal when buffers were last freed.
    last_at_rest: Lsn,
}

/// What keeps the units.
pub(crate) enum Keeper {
    /// The files of this machine.
    Local(Log),
    /// The group of nodes that this one belongs to.
    Group(Box<GroupLog>),
}

/// A change of the journal's state that clients are affected by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// It takes units again.
    Good,
    /// It takes none until there is space on the disk.
    Full,
    /// It takes none any more, and those after `safe` are lost.
    Failed { safe: Lsn },
}

/// Bytes that were given a fence since the engine last waited; an upper bound of the bytes held back.
#[derive(Default)]
struct Held {
    /// Once this unit is safe, the bytes before it have been sent.
    mark: Lsn,
    before: usize,
    /// The newest unit that any of the bytes wait for.
    newest: Lsn,
    since: usize,
}

impl Held {
    fn bytes(&self) -> usize {
        self.before + self.since
    }
}

/// See [`Journal::waiting_max`].
const WAITING_MIN: usize = 1024;

impl Journal {
    /// Continues after unit `last`, the last one in the journal.
    pub(crate) fn new(keeper: Keeper, last: Lsn) -> Journal {
        Journal {
            keeper,
            last,
            state: State::Good,
            waiting: BinaryHeap::new(),
            waiting_for_round: Vec::new(),
            held: Held::default(),
            waiting_max: WAITING_MIN,
            last_at_rest: last,
        }
    }

    /// Takes the units of the tail, which follow the last one taken. `how` chooses the thread that writes them: see
    /// [`Commit`]. A journal that is full keeps them until there is space; one that has failed drops them.
    pub(crate) fn append(&mut self, tail: &mut Tail, how: Commit) {
        let Tail { bytes, units, time_ms } = std::mem::replace(tail, Tail::new(Vec::new()));
        let first_lsn = self.last.next();
        self.last = self.last.plus(u64::from(units));
        *tail = Tail::new(match &mut self.keeper {
            Keeper::Local(log) => log.commit(group_commit::Tail { bytes, first_lsn, units, time_ms }, how),
            Keeper::Group(group) => {
                group.propose(bytes, units, time_ms);
                vec![0; HEAD_BYTES]
            }
        });
    }

    /// Returns the last unit that is as safe as `appendfsync` asks.
    #[inline]
    pub(crate) fn safe(&self) -> Lsn {
        match &self.keeper {
            Keeper::Local(log) if log.policy() == SyncPolicy::Always => log.durable(),
            Keeper::Local(log) => log.written(),
            Keeper::Group(group) => group.safe(),
        }
    }

    /// Returns the state as of the last [`follow`](Self::follow): what clients have been told.
    pub(crate) fn state(&self) -> State {
        self.state
    }

    /// Begins to make all units durable that were taken so far, whatever `appendfsync` says.
    pub(crate) fn begin_sync(&self) {
        // With `always`, and in a group, a sync is on its way anyway.
        if !self.syncs_always()
            && let Some(log) = self.local()
        {
            log.begin_sync();
        }
    }

    /// Returns the files of this machine, in which [units are read](UnitSource::read_after); `None` in a group, where
    /// they belong to the node.
    pub(super) fn source(&self) -> Option<UnitSource> {
        self.local().map(Log::source)
    }

    /// Gives up the units up to `snapshot`, as far as whole segments hold nothing else. A durable snapshot that covers
    /// them must exist. Snapshots of this server do so by themselves when they are complete.
    #[cfg_attr(not(test), expect(dead_code, reason = "snapshots that come from elsewhere cut from here"))]
    pub(crate) fn cut(&self, snapshot: Lsn) {
        if let Some(log) = self.local() {
            log.cut(snapshot);
        }
    }

    /// Chooses the thread that writes the next units. If replies do not wait for a sync, it is the calling thread.
    /// Otherwise it is the calling thread while syncs are so fast that handing the units over would cost as much, or,
    /// with a single client, so fast that a newly connecting client would not notice. The duration of the next sync is
    /// unknown: a disk that suddenly stalls holds up the engine once.
    pub(crate) fn committer(&self, clients: usize) -> Commit {
        let longest = if clients > 1 { LOG_SYNC_IN_PLACE_MAX } else { LOG_SYNC_ALONE_MAX };
        let holds_others_up = self.local().is_none_or(|log| self.syncs_always() && log.sync_time() > longest);
        if holds_others_up { Commit::HandOver } else { Commit::InPlace }
    }

    /// Notes that a session waits for unit `lsn`. `is_open` tells whether a session still exists.
    pub(crate) fn wait_for(&mut self, lsn: Lsn, key: SessionKey, mut is_open: impl FnMut(SessionKey) -> bool) {
        if self.waiting.len() >= self.waiting_max {
            self.waiting.retain(|Reverse((_, key))| is_open(*key));
            self.waiting_max = WAITING_MIN.max(2 * self.waiting.len());
        }
        self.waiting.push(Reverse((lsn, key)));
    }

    /// Calls `wake` for each session that waits for a unit which is safe by now, and returns the change of the state
    /// since the last call. Must be called when the journal's own thread has advanced.
    pub(crate) fn follow(&mut self, mut wake: impl FnMut(SessionKey)) -> Option<Change> {
        if let Keeper::Group(group) = &mut self.keeper {
            group.follow();
            self.waiting_for_round
                .extract_if(.., |(round, _)| group.is_confirmed(*round))
                .for_each(|(_, key)| wake(key));
        }
        // The order matters: what is safe when the journal is seen to have failed was safe before.
        let (state, safe) = (self.state_now(), self.safe());
        self.release_held();
        while self.waiting.peek().is_some_and(|Reverse((lsn, _))| *lsn <= safe) {
            let Some(Reverse((_, key))) = self.waiting.pop() else { break };
            wake(key);
        }
        if state == self.state {
            return None;
        }
        self.state = state;
        Some(match state {
            State::Good => {
                tracing::warn!("the journal is written again: commands that write are accepted");
                Change::Good
            }
            State::Full => {
                match &self.keeper {
                    Keeper::Local(_) => tracing::error!(
                        "the journal's disk is full: commands that write are refused until there is space"
                    ),
                    Keeper::Group(_) => tracing::error!(
                        "the group is far behind this leader: commands that write are refused until it has caught up"
                    ),
                }
                Change::Full
            }
            State::Poisoned => {
                let why = self.failure().unwrap_or_default();
                tracing::error!("{why}: commands that write are refused until a restart");
                self.last = safe;
                self.waiting = BinaryHeap::new();
                Change::Failed { safe }
            }
        })
    }

    /// Counts bytes of replies that wait for unit `fence`, unless the unit is safe. Returns whether so many wait that
    /// the caller must [wait](super::Persistence::wait_until_safe), too.
    pub(crate) fn hold(&mut self, bytes: usize, fence: Lsn) -> bool {
        // A group is not waited for in place.
        if fence <= self.safe() || self.local().is_none() {
            return false;
        }
        self.held.since += bytes;
        self.held.newest = self.held.newest.max(fence);
        if self.held.bytes() > LOG_BEHIND_MAX_BYTES {
            self.release_held();
        }
        let is_too_much = self.held.bytes() > LOG_BEHIND_MAX_BYTES;
        if is_too_much {
            self.held = Held::default();
        }
        is_too_much
    }

    /// Stops counting held bytes whose units are safe.
    fn release_held(&mut self) {
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

    /// Frees the buffers if nothing was handed to the journal since the last call and nothing waits.
    pub(crate) fn give_back(&mut self, tail: &mut Tail) {
        if self.last == self.last_at_rest && self.is_safe() {
            tail.give_back();
            self.waiting.shrink_to_fit();
            if let Some(log) = self.local() {
                log.give_back();
            }
        }
        self.last_at_rest = self.last;
    }

    /// Whether each unit is synced before its reply leaves (`appendfsync always`).
    pub(crate) fn syncs_always(&self) -> bool {
        self.local().is_none_or(|log| log.policy() == SyncPolicy::Always)
    }

    pub(crate) fn is_safe(&self) -> bool {
        self.safe() >= self.last
    }

    /// Whether the journal works.
    pub(crate) fn is_good(&self) -> bool {
        self.state == State::Good
    }

    /// Whether the journal lacks space, or the group is far behind.
    pub(crate) fn is_full(&self) -> bool {
        self.state == State::Full
    }

    /// Whether the journal accepts changes of clients.
    pub(crate) fn takes_changes(&self) -> bool {
        self.is_good() && !self.is_follower()
    }

    /// Whether it belongs to a node that does not lead its group.
    pub(crate) fn is_follower(&self) -> bool {
        matches!(&self.keeper, Keeper::Group(group) if !group.leads())
    }

    /// Returns the last unit handed to the journal.
    pub(crate) fn last(&self) -> Lsn {
        self.last
    }

    /// Returns the files and threads of this machine, for reports about them; `None` in a group, where they belong to
    /// the node.
    pub(crate) fn local(&self) -> Option<&Log> {
        match &self.keeper {
            Keeper::Local(log) => Some(log),
            Keeper::Group(_) => None,
        }
    }

    /// Returns the group's side of the journal, to read.
    pub(crate) fn member(&self) -> Option<&GroupLog> {
        match &self.keeper {
            Keeper::Local(_) => None,
            Keeper::Group(group) => Some(group),
        }
    }

    /// Returns the group's side of the journal.
    pub(crate) fn group(&mut self) -> Option<&mut GroupLog> {
        match &mut self.keeper {
            Keeper::Local(_) => None,
            Keeper::Group(group) => Some(group),
        }
    }

    /// Notes a committed block of the group, and says what the engine has to do with it.
    pub(crate) fn given(&mut self, at: Position, block: &Block) -> Given {
        let Keeper::Group(group) = &mut self.keeper else { return Given::New };
        let given = group.given(at, block);
        self.last = self.last.max(at.link.lsn);
        given
    }

    /// Goes on from data that ends at this entry of the group's log.
    pub(crate) fn loaded(&mut self, at: Position) {
        if let Keeper::Group(group) = &mut self.keeper {
            group.loaded(at);
            self.last = at.link.lsn;
        }
    }

    /// Notes that replies to a session must not leave before a round of the group is confirmed.
    pub(crate) fn wait_for_round(&mut self, round: u64, key: SessionKey) {
        self.waiting_for_round.push((round, key));
    }

    /// Returns why units are not taken any more, if that is so.
    pub(crate) fn failure(&self) -> Option<String> {
        match &self.keeper {
            Keeper::Local(log) => log.failure().map(ToString::to_string),
            Keeper::Group(group) => group.failure().map(str::to_owned),
        }
    }

    /// Returns the state of whatever keeps the units.
    fn state_now(&self) -> State {
        match &self.keeper {
            Keeper::Local(log) => log.state(),
            Keeper::Group(group) if group.failure().is_some() => State::Poisoned,
            Keeper::Group(group) if group.is_full() => State::Full,
            Keeper::Group(_) => State::Good,
        }
    }

    /// Makes the thread that writes look for work.
    pub(crate) fn nudge(&self) {
        if let Some(log) = self.local() {
            log.nudge();
        }
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
