//! The door between the engine and the thread of the node. Neither waits for the other: each leaves its word and wakes
//! the other one.

use std::collections::VecDeque;
use std::mem;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;

use super::error::NodeError;
use super::facts::GroupFacts;
use crate::base::clock::Clock;
use crate::base::lsn::Lsn;
use crate::consensus::message::Round;
use crate::consensus::output::{ChangeRefusal, Order};
use crate::log::replicated::block::Block;
use crate::log::replicated::mark::Mark;
use crate::log::replicated::members::MemberChange;
use crate::log::replicated::types::{NodeId, Term};
use crate::log::snapshot::writer::{Begin, SnapshotWriter};

/// What the engine, and operators through it, ask of the node.
pub(crate) enum Call {
    /// The next block of the reign.
    Propose(Block),
    /// All orders up to this number are followed.
    Handled(u64),
    /// Asks whether this node still leads.
    Confirm(Round),
    /// Begins a snapshot of this node. The engine starts its thread, and hands over its units.
    Snapshot(Begin, Answer<SnapshotWriter>),
    /// A snapshot of this node is durable.
    SnapshotMade(Mark),
    /// Hands leadership over. The answer is false if that can't be done now.
    Transfer(NodeId, Answer<bool>),
    /// Changes the members, in a reign.
    Change(Term, MemberChange, Answer<Result<(), ChangeRefusal>>),
    /// Ends the thread.
    Stop,
}

/// Takes an answer, on the thread of the node.
pub(crate) type Answer<T> = Box<dyn FnOnce(T) + Send>;

/// What the node has for the engine.
#[derive(Debug, Default)]
pub(crate) struct News {
    /// Orders with their numbers. The engine says when it has followed them.
    pub(crate) orders: Vec<(u64, Order)>,
    /// The open reign and the last of its units that is committed, if that has changed.
    pub(crate) committed: Option<(Term, Lsn)>,
    /// The open reign and the last unit that [enough](Door::want_copies) other nodes have on disk, likewise.
    pub(crate) copied: Option<(Term, Lsn)>,
    /// The last round that was answered, if there is a new one.
    pub(crate) confirmed: Option<Round>,
    /// A node needs a newer snapshot than there is.
    pub(crate) wants_snapshot: bool,
    /// The leader that this node knows, and its term, if that has changed; `Some(None)` if it knows none any more.
    pub(crate) leader: Option<Option<(NodeId, Term)>>,
    /// Why the node has ended.
    pub(crate) failure: Option<NodeError>,
}

/// See the module's header.
pub(crate) struct Door {
    calls: Mutex<VecDeque<Call>>,
    news: Mutex<News>,
    clock: Clock,
    /// The end of the lease in nanoseconds of the steady clock; 0 without one.
    lease_until: AtomicU64,
    /// The term of the open reign; 0 without one.
    reign: AtomicU64,
    /// The time as of which the data of a follower is complete, in nanoseconds of the steady clock; 0 if it is
    /// not known.
    fresh_at: AtomicU64,
    /// A leader is to tell which units this many other nodes have on disk.
    copies: AtomicUsize,
    /// This node was removed from its group.
    is_removed: AtomicBool,
    /// Before it was started, this node may have led its group.
    may_have_led: AtomicBool,
    facts: Mutex<Arc<GroupFacts>>,
    /// When the engine was last ready to follow orders, in nanoseconds of the steady clock.
    looked_at: AtomicU64,
    wake_node: Arc<Notify>,
    wake_engine: Box<dyn Fn() + Send + Sync>,
}

impl Door {
    /// Makes a door. `wake_engine` is called on the thread of the node when there is news; it should return at once.
    pub(crate) fn new(clock: Clock, wake_engine: Box<dyn Fn() + Send + Sync>) -> Door {
        Door {
            calls: Mutex::default(),
            news: Mutex::default(),
            lease_until: AtomicU64::new(0),
            reign: AtomicU64::new(0),
            fresh_at: AtomicU64::new(0),
            copies: AtomicUsize::new(0),
            is_removed: AtomicBool::new(false),
            may_have_led: AtomicBool::new(false),
            facts: Mutex::default(),
            looked_at: AtomicU64::new(nanoseconds(clock.steady())),
            clock,
            wake_node: Arc::default(),
            wake_engine,
        }
    }

    // The engine's side.

    /// Leaves a call for the node.
    pub(crate) fn call(&self, call: Call) {
        lock(&self.calls).push_back(call);
        self.wake_node.notify_one();
    }

    /// Takes the news since the last call.
    pub(crate) fn take_news(&self) -> News {
        mem::take(&mut *lock(&self.news))
    }

    /// Makes the engine look for news. May be called on any thread.
    pub(crate) fn wake_engine(&self) {
        (self.wake_engine)();
    }

    /// Tells the node that the engine follows orders.
    pub(crate) fn engine_is_here(&self) {
        self.looked_at.store(nanoseconds(self.now()), Ordering::Release);
    }

    /// Makes the node, while it leads, tell which units this many other nodes have on disk; with 0 it tells nothing.
    /// That holds for all blocks of later calls.
    pub(crate) fn want_copies(&self, copies: usize) {
        self.copies.store(copies, Ordering::Release);
        self.wake_node.notify_one();
    }

    /// Returns for how long no other node can lead. It must be asked after the read that depends on it has run.
    pub(crate) fn lease_left(&self) -> Duration {
        let until = self.lease_until.load(Ordering::Acquire);
        // Without a lease the clock need not be read.
        if until == 0 { Duration::ZERO } else { Duration::from_nanos(until).saturating_sub(self.now()) }
    }

    /// Whether the reign of this term is open. An engine that has no time to follow orders learns from it that it leads
    /// no more.
    pub(crate) fn is_open(&self, term: Term) -> bool {
        self.reign.load(Ordering::Acquire) == term.0
    }

    /// Returns how old the data of a follower is at most, as far as a leader has told it; `None` if none has.
    pub(crate) fn age(&self) -> Option<Duration> {
        let at = self.fresh_at.load(Ordering::Acquire);
        (at > 0).then(|| self.now().saturating_sub(Duration::from_nanos(at)))
    }

    /// Whether this node may have led its group until it was ended, as far as it can tell since its start.
    pub(crate) fn may_have_led(&self) -> bool {
        self.may_have_led.load(Ordering::Acquire)
    }

    /// Whether this node was removed from its group, as far as it can tell.
    pub(crate) fn is_removed(&self) -> bool {
        self.is_removed.load(Ordering::Acquire)
    }

    /// Returns what the node knows of its group.
    pub(crate) fn facts(&self) -> Arc<GroupFacts> {
        Arc::clone(&lock(&self.facts))
    }

    // The node's side.

    /// Returns how many other nodes are to have units before they are told of.
    pub(super) fn copies(&self) -> usize {
        self.copies.load(Ordering::Acquire)
    }

    /// Returns the time of the steady clock, by which consensus measures.
    pub(super) fn now(&self) -> Duration {
        self.clock.steady()
    }

    /// Wakes the node.
    pub(super) fn wake_node(&self) -> Arc<Notify> {
        Arc::clone(&self.wake_node)
    }

    pub(super) fn take_calls(&self) -> VecDeque<Call> {
        mem::take(&mut *lock(&self.calls))
    }

    /// Makes the lease known. No message that breaks it may leave before this returns.
    pub(super) fn set_lease(&self, until: Option<Duration>) {
        self.lease_until.store(until.map_or(0, nanoseconds), Ordering::Release);
    }

    /// Makes known what the node knows of its group.
    pub(super) fn set_facts(&self, facts: GroupFacts) {
        *lock(&self.facts) = Arc::new(facts);
    }

    /// Makes known whether a reign is open.
    pub(super) fn set_reign(&self, term: Option<Term>) {
        self.reign.store(term.map_or(0, |term| term.0), Ordering::Release);
    }

    /// Makes known as of which time the data is complete.
    pub(super) fn set_fresh(&self, at: Option<Duration>) {
        self.fresh_at.store(at.map_or(0, nanoseconds), Ordering::Release);
    }

    /// Makes known that this node may have led its group until it was ended.
    pub(super) fn set_may_have_led(&self) {
        self.may_have_led.store(true, Ordering::Release);
    }

    /// Makes known whether this node was removed from its group.
    pub(super) fn set_removed(&self, is_removed: bool) {
        self.is_removed.store(is_removed, Ordering::Release);
    }

    /// Returns for how long the engine has not followed orders, which it does several times a second.
    pub(super) fn engine_is_away_for(&self) -> Duration {
        self.now().saturating_sub(Duration::from_nanos(self.looked_at.load(Ordering::Acquire)))
    }

    /// Leaves news for the engine.
    pub(super) fn tell(&self, change: impl FnOnce(&mut News)) {
        change(&mut lock(&self.news));
        self.wake_engine();
    }
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
