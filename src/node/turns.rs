//! The turns of a node that has its data: each takes what has arrived since the one before, and lets the core decide.
//!
//! A turn has no socket, no thread and no clock of its own, so a test can run it as the thread does.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use super::door::{Call, Door};
use super::error::NodeError;
use super::facts::GroupFacts;
use crate::base::lsn::Lsn;
use crate::consensus::core::Core;
use crate::consensus::fetch::{Fetch, Gone};
use crate::consensus::message::{Body, Message};
use crate::consensus::output::{Order, Output, Refusal, Settings, StartError, Unwanted};
use crate::log::group_commit::State;
use crate::log::replicated::entry::Entry;
use crate::log::replicated::log::EntryLog;
use crate::log::replicated::mark::{FOUNDING, Mark};
use crate::log::replicated::members::Members;
use crate::log::replicated::types::{Index, NodeId, Term};
use crate::log::replicated::write::Recovered;
use crate::log::snapshot::arriving::ArrivingSnapshot;

/// Bytes of blocks that the engine may be behind before no more are taken from the leader. They stay in memory, which
/// holds as many entries anyway: the disk of a node that catches up may be faster than its engine.
const GIVEN_MAX_BYTES: usize = 32 * 1024 * 1024;

/// How long a leader that ends waits for another node to take over: it may lack a little of the log.
const HAND_OVER_MAX: Duration = Duration::from_millis(500);

/// How long a node that was turned away counts as such. It dials again every second.
const TURNED_AWAY_FOR: Duration = Duration::from_secs(5);

/// Silence of a leader after which a node that was turned away counts as removed: several elections.
const REMOVED_AFTER: Duration = Duration::from_secs(1);

/// The bounds that a node keeps.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    /// Bytes of log to keep for followers beyond the newest snapshot.
    pub(crate) keep_bytes: u64,
    /// Bytes of the newest entries to keep in memory for followers.
    pub(crate) memory_bytes: u64,
    /// A leader whose engine follows no orders for this long hands leadership over.
    pub(crate) engine_stuck_after: Duration,
    /// A leader whose disk has not finished a write for this long hands leadership over.
    pub(crate) disk_stuck_after: Duration,
}

/// See the module's header.
pub(crate) struct Turns {
    core: Core,
    log: Arc<EntryLog>,
    door: Arc<Door>,
    bounds: Bounds,
    /// The last entry that a snapshot of this node covers.
    covered: Index,
    /// The newest snapshot of another node, until the log and the engine have it.
    installing: Option<Installing>,
    /// The orders up to this number are followed.
    handled: u64,
    /// Blocks that the engine was given and has not followed: the order of each, and its bytes.
    given: VecDeque<(u64, usize)>,
    given_bytes: usize,
    /// The leader that the engine was told of, and its term.
    leader: Option<(NodeId, Term)>,
    /// When a member last said that this node is none.
    turned_away_at: Option<Duration>,
    /// The engine was told that this node was removed from its group.
    is_removed: bool,
    /// The core was told that the engine is stuck.
    is_stuck: bool,
    /// The disk has no space for the log.
    is_full: bool,
    /// The engine has asked for the end, which waits no longer than until then.
    end_by: Option<Duration>,
}

/// A snapshot that takes the place of everything.
struct Installing {
    lsn: Lsn,
    /// The write that begins the log behind it, and the order by which the engine loads it.
    write: u64,
    order: u64,
}

/// What has arrived for a turn.
#[derive(Debug, Default)]
pub(crate) struct Arrived {
    pub(crate) messages: Vec<(NodeId, Message)>,
    /// The transfers of snapshots that have ended: to which node, and whether it has taken the snapshot.
    pub(crate) reports: Vec<(NodeId, bool)>,
    /// Entries that were read from the files, each part with the number of its fetch.
    pub(crate) fetched: Vec<(u64, Result<Vec<Entry>, Gone>)>,
    /// A member of the group does not count this node as one.
    pub(crate) is_turned_away: bool,
}

/// What a turn leaves to its caller.
#[derive(Debug, Default)]
pub(crate) struct Done {
    pub(crate) messages: Vec<Message>,
    /// Snapshots to send, each with the message that follows it.
    pub(crate) streams: Vec<Message>,
    /// Entries to read from the files, on another thread.
    pub(crate) fetches: Vec<Fetch>,
    /// Snapshots before this Lsn are needed no more.
    pub(crate) outdated: Option<Lsn>,
    /// Messages that were refused, each with the node that sent it.
    pub(crate) refused: Vec<(NodeId, Refusal)>,
}

impl Turns {
    /// Continues with what was recovered, and with its log. `seed` decides the random parts of election timeouts.
    pub(crate) fn new(
        node: NodeId,
        recovered: Recovered,
        log: Arc<EntryLog>,
        door: Arc<Door>,
        bounds: Bounds,
        seed: u64,
    ) -> Result<Turns, StartError> {
        let Bounds { disk_stuck_after, memory_bytes, .. } = bounds;
        if recovered.committed.at.index > FOUNDING {
            door.set_may_have_led();
        }
        let covered = recovered.snapshot.at.index;
        let core = Core::new(node, recovered, Settings { seed, disk_stuck_after, memory_bytes }, door.now())?;
        Ok(Turns {
            core,
            log,
            door,
            bounds,
            covered,
            installing: None,
            handled: 0,
            given: VecDeque::new(),
            given_bytes: 0,
            leader: None,
            turned_away_at: None,
            is_removed: false,
            is_stuck: false,
            is_full: false,
            end_by: None,
        })
    }

    /// Returns the members of the group, as this node knows them.
    pub(crate) fn members(&self) -> &Members {
        self.core.members()
    }

    /// Judges a snapshot of so many bytes that a peer offers. Returns what its file is written to. Once that has its
    /// name, the message is due.
    pub(crate) fn offered(
        &mut self,
        peer: NodeId,
        message: &Message,
        bytes: u64,
    ) -> Result<ArrivingSnapshot, Unwanted> {
        match (self.core.wants(peer, message), &message.body) {
            (Ok(()), Body::Install(mark)) => Ok(self.log.arriving(mark.clone(), bytes)),
            (Ok(()), _) => Err(Refusal::Malformed.into()),
            (Err(unwanted), _) => {
                if unwanted == Unwanted::Covered {
                    // The core tells the leader what is here, which needs no file.
                    let _ = self.core.receive(peer, message.clone(), self.door.now());
                }
                Err(unwanted)
            }
        }
    }

    /// Whether this node leads its group, as far as it knows.
    pub(crate) fn leads(&self) -> bool {
        self.core.leads()
    }

    /// Returns the newest term that this node knows.
    pub(crate) fn term(&self) -> Term {
        self.core.term()
    }

    /// See [`Core::progress_of`].
    pub(crate) fn progress_of(&self, node: NodeId) -> Option<(u64, Option<Lsn>)> {
        self.core.progress_of(node)
    }

    /// Makes known what this node knows of its group.
    pub(crate) fn make_known(&self, facts: GroupFacts) {
        self.door.set_facts(facts);
    }

    /// Takes everything that has arrived, then the time. The writes and the news are on their way when this returns;
    /// the messages and the snapshots are the caller's to send.
    pub(crate) fn turn(&mut self, arrived: Arrived) -> Result<Done, NodeError> {
        let mut done = Done::default();
        let now = self.door.now();
        self.core.persisted(self.log.durable());
        for (to, has_arrived) in arrived.reports {
            self.core.reported(to, has_arrived);
        }
        for (number, read) in arrived.fetched {
            self.core.fetched(number, read);
        }
        for (peer, message) in arrived.messages {
            if self.is_too_much(&message) {
                continue;
            }
            if let Err(refusal) = self.core.receive(peer, message, now) {
                done.refused.push((peer, refusal));
            }
        }
        let calls = self.door.take_calls();
        self.core.want_copies(self.door.copies());
        for call in calls {
            self.take_call(call, now);
        }
        self.watch_engine();
        self.core.time(self.door.now());
        self.follow(&mut done);
        if arrived.is_turned_away {
            self.turned_away_at = Some(now);
        }
        self.watch_membership(now);
        done.outdated = self.take_outdated();
        let state = self.log.state();
        self.tell_of_space(state);
        match (state, self.log.failure()) {
            (State::Poisoned, Some(failure)) => Err(NodeError::Failed(failure.to_string())),
            _ => Ok(done),
        }
    }

    /// Looks whether this node was removed from its group. Often it never gets to know the change that removes it, but
    /// no leader speaks to it any more, and members turn it away. One that lags does so, too, if it has not heard of a
    /// new node yet; but then the leader speaks to that.
    fn watch_membership(&mut self, now: Duration) {
        let was_turned_away = self.turned_away_at.is_some_and(|at| now < at + TURNED_AWAY_FOR);
        // A node that has no data yet was no member, and waits to be one.
        let was_member = self.members().count() > 0;
        // Once it is removed, only a leader's word takes it back.
        let is_removed = was_member && (self.is_removed || was_turned_away) && self.core.silence() >= REMOVED_AFTER;
        match std::mem::replace(&mut self.is_removed, is_removed) {
            false if is_removed => tracing::error!(
                "this node was removed from its group, and refuses reads: end it, or add it again with `tidegate node \
                 add`"
            ),
            true if !is_removed => tracing::warn!("this node is in contact with its group again"),
            _ => {}
        }
        self.door.set_removed(is_removed);
    }

    fn tell_of_space(&mut self, state: State) {
        let is_full = state == State::Full;
        match std::mem::replace(&mut self.is_full, is_full) {
            false if is_full => tracing::error!(
                "the disk of this node is full: it takes nothing from the group, and can't lead for long, until there \
                 is space"
            ),
            true if !is_full => tracing::warn!("the disk of this node takes the log of the group again"),
            _ => {}
        }
    }

    fn take_call(&mut self, call: Call, now: Duration) {
        match call {
            Call::Propose(block) => self.core.propose(block),
            Call::Handled(number) => {
                self.handled = self.handled.max(number);
                while let Some((_, bytes)) = self.given.pop_front_if(|(order, _)| *order <= number) {
                    self.given_bytes -= bytes;
                }
                self.core.handled(number);
            }
            Call::Confirm(round) => self.core.confirm(round, now),
            Call::Snapshot(begin, answer) => answer(self.log.snapshot(begin)),
            Call::SnapshotMade(mark) => self.keep(mark),
            Call::Transfer(to, answer) => answer(self.core.transfer(to)),
            Call::Change(term, change, answer) => answer(self.core.change(term, change)),
            Call::Stop => self.end_by = Some(now + HAND_OVER_MAX),
        }
    }

    /// Whether a message brings entries while the engine is far behind with those before. They are dropped as if the
    /// network had lost them, and the leader sends them again.
    fn is_too_much(&self, message: &Message) -> bool {
        let has_entries = matches!(&message.body, Body::Append { entries, .. } if !entries.is_empty());
        has_entries && self.given_bytes > GIVEN_MAX_BYTES
    }

    /// Looks whether the engine still follows orders. Heartbeats go on while a script runs for seconds, but not for
    /// ever.
    fn watch_engine(&mut self) {
        if self.door.engine_is_away_for() >= self.bounds.engine_stuck_after {
            self.is_stuck = true;
            self.core.engine_is_stuck();
        } else if std::mem::take(&mut self.is_stuck) {
            self.core.handled(self.handled);
        }
    }

    /// Gives up the log that a snapshot covers, as far as no follower wants it.
    fn keep(&mut self, mark: Mark) {
        self.covered = mark.at.index;
        self.core.snapshot_made(mark);
        self.log.retire(self.covered, self.core.wanted(), self.bounds.keep_bytes);
        if let Some(index) = self.log.begins_behind() {
            self.core.cut(index);
        }
    }

    /// Does what the core has decided, in the order that its contract asks for.
    fn follow(&mut self, done: &mut Done) {
        let Output {
            lease_until,
            fresh_at,
            messages,
            streams,
            writes,
            orders,
            committed,
            copied,
            confirmed,
            wants_snapshot,
            fetches,
        } = self.core.take_output();
        self.door.set_lease(lease_until);
        self.door.set_fresh(fresh_at);
        self.door.set_reign(self.core.open_term());
        done.messages = messages;
        done.streams = streams;
        done.fetches = fetches;
        for write in &writes {
            if let Some(mark) = &write.install {
                let loads = |order: &Order| matches!(order, Order::Load(loaded) if loaded == mark);
                let order = orders.iter().rfind(|(_, order)| loads(order)).map_or(u64::MAX, |(number, _)| *number);
                self.installing = Some(Installing { lsn: mark.at.link.lsn, write: write.number, order });
            }
        }
        for (number, order) in &orders {
            if let Order::Apply { block, .. } = order {
                self.given.push_back((*number, block.body().len()));
                self.given_bytes += block.body().len();
            }
        }
        let leader = self.core.leader().map(|leader| (leader, self.core.term()));
        let leader = (std::mem::replace(&mut self.leader, leader) != leader).then_some(leader);
        let has_news = !orders.is_empty() || wants_snapshot || leader.is_some();
        if has_news || committed.is_some() || copied.is_some() || confirmed.is_some() {
            self.door.tell(|news| {
                news.orders.extend(orders);
                news.committed = committed.or(news.committed);
                news.copied = copied.or(news.copied);
                news.confirmed = confirmed.or(news.confirmed);
                news.wants_snapshot |= wants_snapshot;
                news.leader = leader.or(news.leader);
            });
        }
        // Whoever reads files that a snapshot has replaced knows the order that loads the snapshot.
        writes.into_iter().for_each(|write| self.log.write(write));
    }

    /// Returns the Lsn of a snapshot of another node once this node needs no older one. Until the log begins behind it,
    /// a crash may leave the old log, which goes with an older snapshot; and the engine may have that one open until it
    /// has loaded the newer.
    fn take_outdated(&mut self) -> Option<Lsn> {
        let durable = self.log.durable();
        let is_done = |of: &mut Installing| of.write <= durable && of.order <= self.handled;
        self.installing.take_if(is_done).map(|of| of.lsn)
    }

    /// Whether the engine has asked for the end, and nothing is left to do before it. A leader hands over first.
    pub(crate) fn is_over(&mut self) -> bool {
        let Some(end_by) = self.end_by else { return false };
        if self.door.now() >= end_by {
            return true;
        }
        self.core.step_aside();
        !self.core.leads()
    }

    /// Ends the log cleanly.
    pub(crate) fn close(self) {
        // A reader that is still at work keeps the log. Then only the mark of a clean end is missing.
        if let Some(log) = Arc::into_inner(self.log) {
            log.close();
        }
    }
}
