//! The core of consensus: inputs in, one [`Output`] out. It has no thread, no clock, no socket and no file.
//!
//! # The contract with the engine
//!
//! The engine is given [orders](super::output::Order), which it must follow in this order, and answers each with
//! [`handled`](Core::handled). It executes commands only between `Lead(T)` and `Deposed(T)`, and hands each block of
//! that reign to [`propose`](Core::propose), stamped with T.
//!
//! 1. `Lead(T)` comes behind all entries before the reign: the engine has everything that was ever acknowledged.
//! 2. A block is taken only if its reign is open, this node leads in that term, and the block is the next one. The
//!    check and the proposal are one step.
//! 3. The first refusal, whatever its cause, closes the reign: `Deposed(T)`. No later block of T is taken, because its
//!    units were executed on top of those that were refused.
//! 4. After every step the role and the term are compared. Any change closes the reign before anything else happens.
//! 5. After `Deposed(T)` the engine forgets what it has executed and not been given as `Apply`. What it had not
//!    answered is unknown to its clients.
//! 6. Until the engine has its data, this node votes and stores, but does not stand for election.
//! 7. A reply leaves once [`committed`](super::output::Output::committed) of its own reign covers its fence. A read
//!    also needs a round of questions that began after the read ran, or a lease that still holds after it.
//! 8. Followers apply committed blocks only.
//!
//! # The contract with the disk and the network
//!
//! The caller takes an [`Output`] after each input, and does what it says: first it makes `lease_until` known to the
//! engine, then it sends the messages, passes the orders on, and starts the writes. Writes may take their time but
//! happen in order, and [`persisted`](Core::persisted) says how far they are durable. Messages that depend on a write
//! appear only after that.
//!
//! The newest entries are in memory. When a follower needs older ones, [`fetches`](super::output::Output::fetches) asks
//! for them, and [`fetched`](Core::fetched) brings them, or says that they are gone.

mod checks;
mod members;
mod messages;
mod reigns;
mod steps;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::mem;
use std::time::Duration;

use raft::eraftpb::{Entry as RaftEntry, Message as RaftMessage};
use raft::{Config, RawNode, SnapshotStatus, StateRole};

use super::entries::{Entries, foreign};
use super::fetch::Gone;
use super::freshness::Freshness;
use super::fuse::{self, Fuse};
use super::limits::{
    ELECTION_TICKS, HEARTBEAT_TICKS, MESSAGE_BYTES, MESSAGES_IN_FLIGHT, TICK, VOTERS_MIN, VOTING_PAUSE,
};
use super::logger::logger;
use super::message::{Body, Message, Round};
use super::output::{Output, Refusal, Settings, StartError, Unwanted, Why};
use super::reign::Reign;
use crate::base::lsn::Lsn;
use crate::base::rng::Rng;
use crate::log::planted::{self, Bug};
use crate::log::replicated::block::Block;
use crate::log::replicated::entry::Entry;
use crate::log::replicated::mark::Mark;
use crate::log::replicated::members::Members;
use crate::log::replicated::types::{Ballot, Index, NodeId, Position, Term};
use crate::log::replicated::write::Recovered;

/// Messages and news that wait until the disk has what they state.
struct Pending {
    since: Duration,
    ready: u64,
    /// The write that all of this waits for.
    after_write: u64,
    ballot: Option<Ballot>,
    installed: Option<Index>,
    /// The first entry written, and the end of the log behind them.
    first: Option<Index>,
    last: Index,
    messages: Vec<RaftMessage>,
}

/// The durable state of the disk.
#[derive(Clone, Copy, Debug)]
struct Durable {
    ballot: Ballot,
    last: Index,
    write: u64,
}

/// Orders to the engine, and how far it has followed them.
#[derive(Debug, Default)]
struct Orders {
    issued: u64,
    handled: u64,
    /// The engine has its data once it has handled this order.
    ready_after: u64,
    /// It does not answer.
    is_stuck: bool,
    /// Orders that carry an entry, not handled so far.
    entries: VecDeque<(u64, Index)>,
    /// The last entry handed to the engine, and the last one that it has handled.
    last: Position,
    applied: Index,
}

impl Orders {
    fn engine_is_ready(&self) -> bool {
        self.handled >= self.ready_after && !self.is_stuck
    }
}

/// The consensus of one node in one group.
pub(crate) struct Core {
    id: NodeId,
    raft: RawNode<Entries>,
    reign: Reign,
    orders: Orders,
    durable: Durable,
    pending: VecDeque<Pending>,
    last_write: u64,
    /// The ballot and the committed entry as last seen; neither ever falls.
    ballot: Ballot,
    committed: Index,
    published: Lsn,
    /// How many other nodes are to have a unit on disk before it is told of as copied; 0 to tell nothing.
    copies: usize,
    members: Members,
    now: Duration,
    next_tick: Duration,
    /// When a leader was last heard of, or this node started.
    heard_at: Duration,
    freshness: Freshness,
    rng: Rng,
    disk_stuck_after: Duration,
    role: (u64, StateRole),
    out: Output,
}

impl Core {
    /// Continues with what is on the disk. `now` is the time since any fixed moment. The first order loads the data
    /// that is known to be committed.
    pub(crate) fn new(id: NodeId, disk: Recovered, settings: Settings, now: Duration) -> Result<Core, StartError> {
        let Recovered { mut ballot, snapshot, committed, covered, entries: recovered } = disk;
        let members = committed.members.clone();
        if !members.voters.is_empty() && members.voters.len() < VOTERS_MIN {
            return Err(StartError::TooFewVoters);
        }
        // The start of a group has its own term before anybody has voted. It need not be written: each start says so
        // again.
        if ballot.term < committed.at.term && recovered.is_empty() {
            ballot = Ballot { term: committed.at.term, vote: None };
        }
        let mut entries = Entries::new(snapshot, &committed, &covered, settings.memory_bytes);
        entries.append(&recovered.iter().map(foreign).collect::<Vec<_>>()).map_err(StartError::Log)?;
        let last = entries.last();
        fuse::check(Fuse::Term, last.term <= ballot.term, || {
            format!("entry {} has term {}, but the ballot {}", last.index, last.term, ballot.term)
        });
        entries.set_ballot(ballot);
        let config = Config {
            id: id.get(),
            election_tick: ELECTION_TICKS,
            heartbeat_tick: HEARTBEAT_TICKS,
            applied: committed.at.index.0,
            max_size_per_msg: MESSAGE_BYTES,
            max_inflight_msgs: MESSAGES_IN_FLIGHT,
            check_quorum: true,
            pre_vote: true,
            skip_bcast_commit: true,
            ..Config::default()
        };
        let raft = RawNode::new(&config, entries, &logger())?;
        let mut core = Core {
            id,
            role: (raft.raft.term, raft.raft.state),
            raft,
            reign: Reign::None,
            orders: Orders { last: committed.at, applied: committed.at.index, ..Orders::default() },
            durable: Durable { ballot, last: last.index, write: 0 },
            pending: VecDeque::new(),
            last_write: 0,
            ballot,
            committed: committed.at.index,
            published: Lsn::NONE,
            copies: 0,
            members,
            now,
            next_tick: now,
            heard_at: now,
            freshness: Freshness::new(Rng::seeded(settings.seed).next_u64()),
            rng: Rng::seeded(settings.seed),
            disk_stuck_after: settings.disk_stuck_after,
            out: Output::default(),
        };
        core.draw_timeout();
        core.load(committed);
        core.after_step();
        Ok(core)
    }

    /// Takes what has to be done since the last call.
    pub(crate) fn take_output(&mut self) -> Output {
        Output {
            lease_until: self.reign.open().and_then(|open| open.lease_until()),
            wants_snapshot: self.raft.store().take_wants_snapshot(),
            fetches: self.raft.store().take_fetches(),
            fresh_at: self.freshness.reached(self.orders.applied),
            ..mem::take(&mut self.out)
        }
    }

    /// Tells the time. It counts as at most one tick, and as none if the last one was less than [`TICK`] ago. The
    /// caller must take everything that has arrived between two calls.
    pub(crate) fn time(&mut self, now: Duration) {
        self.now = self.now.max(now);
        if self.now < self.next_tick || !self.may_stand() {
            return;
        }
        self.next_tick = self.now + TICK;
        let is_hung = |pending: &Pending| self.now >= pending.since + self.disk_stuck_after;
        if matches!(self.reign, Reign::Coming { .. } | Reign::Open(_)) && self.pending.front().is_some_and(is_hung) {
            self.leave(Why::Disk);
        }
        self.raft.tick();
        if self.raft.raft.election_elapsed == 0 && !self.leads() {
            self.draw_timeout();
        }
        self.after_step();
    }

    /// Takes a message that the connection of `peer` has brought.
    pub(crate) fn receive(&mut self, peer: NodeId, message: Message, now: Duration) -> Result<(), Refusal> {
        self.now = self.now.max(now);
        if message.from != peer || message.to != self.id || message.term == Term(0) {
            return Err(Refusal::Address);
        }
        self.check(&message)?;
        if self.is_ignored(&message) {
            return Ok(());
        }
        let is_from_leader = matches!(message.body, Body::Append { .. } | Body::Heartbeat { .. } | Body::Install(_));
        if is_from_leader && message.term >= Term(self.raft.raft.term) {
            self.heard_at = self.now;
        }
        match &message.body {
            Body::Heartbeat { all, stamp, .. } if message.term >= self.term() => {
                self.freshness.told(*all, *stamp, self.now);
            }
            Body::Heard { stamp, .. } => self.freshness.stamped(peer, *stamp),
            _ => {}
        }
        // The crate refuses answers of nodes that were removed from the group; nobody waits for them.
        let _ = self.raft.step(message.foreign());
        self.after_step();
        Ok(())
    }

    /// Judges a snapshot that a peer offers by the message that would follow it. A file that has got its name counts at
    /// the next start, whatever becomes of the message, so it is judged before.
    pub(crate) fn wants(&self, peer: NodeId, message: &Message) -> Result<(), Unwanted> {
        if message.from != peer || message.to != self.id || message.term == Term(0) {
            return Err(Refusal::Address.into());
        }
        self.check(message)?;
        match &message.body {
            Body::Install(_) if message.term < self.term() => Err(Unwanted::Outdated),
            Body::Install(mark) if mark.at.index <= self.committed() => Err(Unwanted::Covered),
            Body::Install(mark) if !mark.members.contains(self.id) => Err(Unwanted::NoMember),
            Body::Install(_) => Ok(()),
            _ => Err(Refusal::Malformed.into()),
        }
    }

    /// Takes the next block of the engine's reign. A block that can't be taken is dropped and ends its reign.
    pub(crate) fn propose(&mut self, block: Block) {
        let Some(open) = self.reign.open() else {
            if planted::is(Bug::ProposeAnywhere) {
                self.append(entry_of(&block));
            }
            return;
        };
        if block.reign != open.term && !planted::is(Bug::NoTermCheck) {
            return;
        }
        let (term, end) = (open.term, block.link().lsn);
        let before = self.last();
        let is_next = block.follows(before.link) && self.leads() && self.raft.raft.term == term.0;
        if !is_next || !self.append(entry_of(&block)) {
            self.resign(Why::Refused);
            return;
        }
        let last = Index(self.raft.raft.raft_log.last_index());
        let is_proposed = last == before.index.next() && self.raft.raft.raft_log.last_term() == term.0;
        fuse::check(Fuse::Proposal, is_proposed, || format!("entry {last} behind {before:?} in term {term}"));
        if let Some(open) = self.reign.open() {
            open.push(last, end);
        }
        self.after_step();
    }

    /// Notes that the writes up to `number` are durable.
    pub(crate) fn persisted(&mut self, number: u64) {
        self.durable.write = self.durable.write.max(number);
        self.after_step();
    }

    /// Notes that the engine has followed the orders up to `number`. It has followed `Order::Load` when it has loaded
    /// the data, and `Order::Deposed` when it has only committed data again.
    pub(crate) fn handled(&mut self, number: u64) {
        self.orders.is_stuck = false;
        self.orders.handled = self.orders.handled.max(number);
        while let Some((order, index)) = self.orders.entries.front()
            && *order <= self.orders.handled
        {
            self.orders.applied = *index;
            self.orders.entries.pop_front();
        }
        self.trim();
    }

    /// Asks the followers whether this node still leads. The number must be greater than any before it in this reign;
    /// `Output::confirmed` is the answer. There is none if the reign ends first.
    pub(crate) fn confirm(&mut self, round: Round, now: Duration) {
        self.now = self.now.max(now);
        let Some(open) = self.reign.open().filter(|open| open.term == round.term) else { return };
        open.ask(round.number);
        self.begin_round();
        self.after_step();
    }

    /// Makes this node, while it leads, tell which units this many other nodes have on disk: voters or learners. With 0
    /// it tells nothing.
    pub(crate) fn want_copies(&mut self, copies: usize) {
        if mem::replace(&mut self.copies, copies) == copies {
            return;
        }
        if let Some(open) = self.reign.open() {
            open.count_copies_anew();
        }
        self.after_step();
    }

    /// Hands leadership over to a voter: ends the reign, waits until that node has the whole log, and lets it stand. If
    /// it has not taken over after an election timeout, leadership is given up. Returns false, and changes nothing, if
    /// this node does not lead, the other one can't, or a change of the members is not finished: it could remove the
    /// other one.
    pub(crate) fn transfer(&mut self, to: NodeId) -> bool {
        let can_lead = to != self.id && self.members.voters.contains(&to) && !self.raft.raft.has_pending_conf();
        if !can_lead || !self.leads() || matches!(self.reign, Reign::None | Reign::Leaving { .. }) {
            return false;
        }
        self.hand_over(to, Why::Transfer);
        true
    }

    /// Hands leadership over to the voter that has most of the log, because this node is about to end. Does nothing if
    /// this node does not lead, or hands over already.
    pub(crate) fn step_aside(&mut self) {
        let matched = |node: &NodeId| self.raft.raft.prs().get(node.get()).map_or(0, |progress| progress.matched);
        let others = self.members.voters.iter().copied().filter(|node| *node != self.id);
        if let Some(next) = others.max_by_key(matched) {
            self.transfer(next);
        }
    }

    /// Ends the reign because the engine has not answered for too long. Leadership goes to a follower with the whole
    /// log if there is one. This node does not stand for election before the engine has handled all orders given so
    /// far, and has called [`handled`](Self::handled) to say that it is back. May be called again and again.
    pub(crate) fn engine_is_stuck(&mut self) {
        self.orders.is_stuck = true;
        if matches!(self.reign, Reign::Coming { .. } | Reign::Open(_)) {
            self.leave(Why::Stuck);
        }
    }

    /// Notes the end of a transfer that `Output::streams` has asked for.
    pub(crate) fn reported(&mut self, to: NodeId, arrived: bool) {
        self.raft.report_snapshot(to.get(), if arrived { SnapshotStatus::Finish } else { SnapshotStatus::Failure });
        self.after_step();
    }

    /// Notes a durable snapshot of this node. Everything in it must be committed.
    pub(crate) fn snapshot_made(&mut self, mark: Mark) {
        let (at, term) = (self.raft.store().at(mark.at.index), self.raft.store().term_of(mark.at.index));
        let is_known = at.is_none_or(|at| at == mark.at) && term.is_none_or(|term| term == mark.at.term);
        let is_committed = mark.at.index <= self.orders.last.index && is_known;
        fuse::check(Fuse::Snapshot, is_committed, || format!("{mark:?}, committed {:?}", self.orders.last));
        // One that covers the same has taken the place of the other file.
        if mark.at.index >= self.raft.store().newest_snapshot().at.index {
            self.raft.mut_store().set_snapshot(mark);
        }
    }

    /// Notes that the files no longer have the entries up to `index`. Followers that need them get a snapshot, unless
    /// they are still in memory.
    pub(crate) fn cut(&mut self, index: Index) {
        self.raft.mut_store().cut(index);
    }

    /// Takes the entries that a fetch has read: as many as there was room for, but one at least.
    pub(crate) fn fetched(&mut self, number: u64, read: Result<Vec<Entry>, Gone>) {
        for waiting in self.raft.mut_store().fetched(number, read) {
            self.raft.on_entries_fetched(waiting);
        }
        self.raft.mut_store().forget_fetched();
        self.after_step();
    }

    /// Lets the oldest entries leave memory, but none that may still be needed at once.
    fn trim(&mut self) {
        let settled = self.orders.applied.min(self.durable.last).min(self.committed());
        let settled = if planted::is(Bug::TrimTooEarly) { self.last().index } else { settled };
        self.raft.mut_store().trim(settled);
    }

    /// Returns the last entry that all other members have, as far as a leader knows; a node that does not lead knows
    /// nothing of them.
    pub(crate) fn wanted(&self) -> Index {
        let matched = |node: NodeId| self.raft.raft.prs().get(node.get()).map_or(0, |progress| progress.matched);
        let others = self.members.all().filter(|node| *node != self.id);
        Index(if self.leads() { others.map(matched).min().unwrap_or(0) } else { 0 })
    }

    /// Whether the crate may let this node stand for election. While a snapshot is on its way to the disk, it would
    /// look for entries that the snapshot has replaced. A group of one voter, which no sound leader makes, would be led
    /// at once, whatever is on the disk.
    fn may_stand(&self) -> bool {
        !self.is_installing() && self.members.voters.len() >= VOTERS_MIN
    }

    /// Whether a snapshot is on its way to the disk.
    fn is_installing(&self) -> bool {
        self.pending.iter().any(|pending| pending.installed.is_some())
    }

    /// Returns for how long this node has heard of no leader, or has run without one; a leader hears itself.
    pub(crate) fn silence(&self) -> Duration {
        if self.leads() { Duration::ZERO } else { self.now.saturating_sub(self.heard_at) }
    }

    /// Whether this node owes a leader its silence.
    pub(super) fn owes_silence(&self, now: Duration) -> bool {
        now < self.heard_at + VOTING_PAUSE
    }

    /// Returns the place of an entry that is in memory.
    #[cfg(test)]
    pub(super) fn at(&self, index: Index) -> Option<Position> {
        self.raft.store().at(index)
    }

    /// Whether this node leads its group, as far as it knows.
    pub(crate) fn leads(&self) -> bool {
        self.raft.raft.state == StateRole::Leader
    }

    /// Returns the newest term that this node knows.
    pub(crate) fn term(&self) -> Term {
        Term(self.raft.raft.term)
    }

    /// Returns the leader that this node follows, or this node, for as long as it serves clients, as far as this node
    /// knows: from when an entry of its term is committed, until it hands over.
    pub(crate) fn leader(&self) -> Option<NodeId> {
        let log = &self.raft.raft.raft_log;
        let leader = NodeId::new(self.raft.raft.leader_id)?;
        let serves = match leader == self.id {
            true => self.open_term().is_some(),
            false => log.term(log.committed).is_ok_and(|term| term == self.raft.raft.term),
        };
        serves.then_some(leader)
    }

    /// Returns the term of the reign of this node, if it is open.
    pub(crate) fn open_term(&self) -> Option<Term> {
        match &self.reign {
            Reign::Open(open) => Some(open.term),
            _ => None,
        }
    }

    /// Returns how many entries of the log another node lacks, if this one leads and knows, and the last unit that it
    /// has, if that is in memory.
    pub(crate) fn progress_of(&self, node: NodeId) -> Option<(u64, Option<Lsn>)> {
        let has = self.raft.raft.prs().get(node.get()).filter(|_| self.leads())?.matched;
        let lsn = self.raft.store().at(Index(has)).map(|at| at.link.lsn);
        (has > 0).then(|| (self.last().index.0.saturating_sub(has), lsn))
    }

    /// Returns the last entry that this node knows to be committed.
    pub(crate) fn committed(&self) -> Index {
        Index(self.raft.raft.raft_log.committed)
    }

    /// Returns the members as of the last entry handed to the engine.
    pub(crate) fn members(&self) -> &Members {
        &self.members
    }

    /// Returns the end of the log in memory.
    pub(crate) fn last(&self) -> Position {
        self.raft.store().last()
    }
}

fn entry_of(block: &Block) -> RaftEntry {
    RaftEntry { data: block.body().clone(), ..RaftEntry::default() }
}
