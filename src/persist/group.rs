//! The journal of a node in a group, as the engine sees it: units become blocks of the group's log, and are safe once
//! the group has committed them.
//!
//! Only a leader hands units over, between the orders [`Lead`](Order::Lead) and [`Deposed`](Order::Deposed), and a
//! reply that shows data needs more than that its units are committed: the node must still have led after the reply was
//! made. Each turn of the server has a *round* for this. The round is confirmed when the group commits a block that was
//! proposed later, or, without one, when a quorum of the nodes answers.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use super::copies::Copies;
use super::group_requests::{Requests, Waiter};
use super::milestones::Milestones;
use crate::base::lsn::Lsn;
use crate::base::node_address::NodeAddress;
use crate::consensus::message::Round;
use crate::consensus::output::{ChangeRefusal, Order, Why};
use crate::log::block::HEAD_BYTES;
use crate::log::planted::{self, Bug};
use crate::log::replicated::block::{BLOCK_HEAD_BYTES, Block};
use crate::log::replicated::mark::Mark;
use crate::log::replicated::members::{MemberChange, Members};
use crate::log::replicated::types::{Link, NodeId, Position, Term};
use crate::log::snapshot::writer::{Begin, SnapshotWriter};
use crate::node::door::{Call, Door, News};
use crate::node::facts::GroupFacts;
use crate::persist::limits::{LATE_CLIENT_MAX, LOG_BEHIND_MAX_BYTES};

/// See the module's header.
pub(crate) struct GroupLog {
    door: Arc<Door>,
    /// The open reign, and the end of what was proposed in it.
    reign: Option<(Term, Link)>,
    /// The last entry that was given back as committed.
    position: Position,
    /// The time of the last change that was given back, or loaded.
    time_ms: i64,
    /// Blocks of the reign that were not given back.
    unconfirmed: VecDeque<(Link, usize)>,
    unconfirmed_bytes: usize,
    /// So much is unconfirmed that no more is taken.
    is_full: bool,
    /// The last unit that is committed.
    committed: Lsn,
    /// The last unit that replies may show.
    safe: Lsn,
    copies: Copies,
    rounds: Rounds,
    orders: VecDeque<(u64, Order)>,
    /// The members as of `position`.
    members: Members,
    /// The leader that the node has told of.
    leader: Option<NodeId>,
    /// The reigns of this node since its start that have begun, and why they have ended.
    reigns: u64,
    ends: BTreeMap<Why, u64>,
    /// When the engine began, by the steady clock.
    began_at: Duration,
    /// When this node's last reign since then has ended.
    deposed_at: Option<Duration>,
    /// The last leader that this node knew, and its term.
    last_leader: Option<(NodeId, Term)>,
    /// Bytes of the blocks that were handed over or given back since the start.
    written_bytes: u64,
    /// A node needs a newer snapshot than there is.
    wants_snapshot: bool,
    requests: Requests,
    milestones: Milestones,
    /// When it was last told that replies are overdue.
    overdue_at_ms: i64,
    /// The last unit of a snapshot that is made, and the entry that it turned out to be in.
    awaited: Option<(Lsn, Option<(Position, Members)>)>,
    failure: Option<String>,
}

/// The least pause between two looks at which clients have waited for too long.
const OVERDUE_EVERY_MS: i64 = 100;

/// The rounds of this node. Their numbers grow over all reigns.
#[derive(Debug)]
struct Rounds {
    /// The round that confirms the replies made now.
    current: u64,
    confirmed: u64,
    /// Rounds that a block confirms, each with its last unit.
    by_block: VecDeque<(Lsn, u64)>,
}

impl Rounds {
    /// Ends the current round, and returns its number.
    fn end(&mut self) -> u64 {
        self.current += 1;
        self.current - 1
    }

    fn committed(&mut self, lsn: Lsn) {
        while let Some((_, round)) = self.by_block.pop_front_if(|(last, _)| *last <= lsn) {
            self.confirmed = self.confirmed.max(round);
        }
    }
}

/// How an applied block relates to what the engine has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Given {
    /// The engine has executed it itself.
    Own,
    /// The engine must apply it.
    New,
    /// The engine has executed something else in its place, and must load its data again.
    Fork,
}

impl GroupLog {
    /// Makes the journal of a node that has no data yet.
    pub(crate) fn new(door: Arc<Door>, now: Duration) -> GroupLog {
        GroupLog {
            door,
            reign: None,
            position: Position::default(),
            time_ms: 0,
            unconfirmed: VecDeque::new(),
            unconfirmed_bytes: 0,
            is_full: false,
            committed: Lsn::NONE,
            safe: Lsn::NONE,
            copies: Copies::default(),
            rounds: Rounds { current: 1, confirmed: 0, by_block: VecDeque::new() },
            orders: VecDeque::new(),
            members: Members::default(),
            leader: None,
            reigns: 0,
            ends: BTreeMap::new(),
            began_at: now,
            deposed_at: None,
            last_leader: None,
            written_bytes: 0,
            wants_snapshot: false,
            requests: Requests::default(),
            milestones: Milestones::default(),
            overdue_at_ms: 0,
            awaited: None,
            failure: None,
        }
    }

    /// Returns the last unit that replies may show: it is committed, and on disk on as many other nodes as
    /// [asked for](Self::want_copies).
    #[inline]
    pub(super) fn safe(&self) -> Lsn {
        match self.reign {
            Some((_, executed)) if planted::is(Bug::ReplyBeforeCommit) => executed.lsn,
            _ => self.safe,
        }
    }

    /// Makes changes of this node, while it leads, wait until this many other nodes have them on disk; with 0, the
    /// quorum decides alone. What replies could show before, they still can.
    pub(crate) fn want_copies(&mut self, wanted: usize) {
        if self.copies.want(wanted) {
            self.door.want_copies(wanted);
            self.judge_safe();
        }
    }

    /// Looks which nodes follow and are up to date. Must be called several times a second; `now_ms` is a time of the
    /// steady clock.
    pub(crate) fn observe_followers(&mut self, now_ms: i64, max_lag_ms: i64) {
        let Some((_, executed)) = self.reign else { return };
        let facts = self.door.facts();
        let connected = facts.peers.iter().filter(|peer| peer.link.is_connected());
        self.copies.observe(connected.map(|peer| (peer.link.node, peer.lsn)), executed.lsn, now_ms, max_lag_ms);
    }

    /// Returns how many nodes follow and are up to date.
    pub(crate) fn good_followers(&self) -> usize {
        self.copies.good()
    }

    /// Whether this node leads, and fewer nodes follow than must have each change.
    pub(crate) fn is_short_of_followers(&self) -> bool {
        self.leads() && self.copies.are_short()
    }

    fn judge_safe(&mut self) {
        let shown = if self.leads() { self.copies.shown_of(self.committed) } else { self.committed };
        self.safe = self.safe.max(shown);
    }

    /// Returns in which turn this node saves its data when its log has grown. The nodes of a group have equal data, and
    /// would all be held up at once. The leader comes last.
    pub(super) fn save_turn(&self) -> u64 {
        let own = self.facts().own;
        let before = self.members.all().filter(|node| own.is_some_and(|own| *node < own)).count();
        if self.leads() { self.members.count() as u64 } else { before as u64 }
    }

    /// Whether this node leads, as far as the engine knows.
    pub(crate) fn leads(&self) -> bool {
        self.reign.is_some()
    }

    /// Returns the open reign.
    #[cfg(test)]
    pub(crate) fn reign(&self) -> Option<Term> {
        self.reign.map(|(term, _)| term)
    }

    /// Whether the group is so far behind that no more changes are taken.
    pub(super) fn is_full(&self) -> bool {
        self.is_full
    }

    /// Changes are refused above the bound, until half of it is confirmed.
    fn judge_room(&mut self) {
        let bound = if self.is_full { LOG_BEHIND_MAX_BYTES / 2 } else { LOG_BEHIND_MAX_BYTES };
        self.is_full = self.unconfirmed_bytes > bound;
    }

    /// Returns why the node has ended, if it has.
    pub(crate) fn failure(&self) -> Option<&str> {
        self.failure.as_deref()
    }

    /// Proposes units, which lie behind the [room](HEAD_BYTES) for a head. Without a reign they are dropped: nobody was
    /// told of them.
    pub(super) fn propose(&mut self, bytes: Vec<u8>, units: u32, time_ms: i64) {
        let Some((term, executed)) = &mut self.reign else { return };
        let Ok(block) = Block::seal_behind(bytes, HEAD_BYTES - BLOCK_HEAD_BYTES, *term, *executed, units, time_ms)
        else {
            debug_assert!(false, "the tail holds whole units");
            return;
        };
        *executed = block.link();
        self.written_bytes += block.body().len() as u64;
        self.unconfirmed.push_back((block.link(), block.body().len()));
        self.unconfirmed_bytes += block.body().len();
        self.judge_room();
        let round = self.rounds.end();
        self.rounds.by_block.push_back((block.link().lsn, round));
        self.door.call(Call::Propose(block));
    }

    /// Returns the round that must be confirmed before replies made now may leave.
    #[inline]
    pub(crate) fn current_round(&self) -> u64 {
        self.rounds.current
    }

    /// Whether the round is confirmed.
    #[inline]
    pub(crate) fn is_confirmed(&self, round: u64) -> bool {
        round <= self.rounds.confirmed
    }

    /// Asks for the confirmation of a round, unless it was asked for.
    pub(crate) fn ask_for(&mut self, round: u64) {
        if round == self.rounds.current
            && let Some((term, _)) = self.reign
        {
            let number = self.rounds.end();
            self.door.call(Call::Confirm(Round { term, number }));
        }
    }

    /// Returns the last unit and the last round that replies have waited for longer than `wait_ms`, if there is one;
    /// not more often than ten times a second, although changes that too few nodes have stay overdue until those are
    /// back.
    /// Must be called several times a second; `now_ms` is a time of the steady clock.
    pub(crate) fn overdue(&mut self, now_ms: i64, wait_ms: i64) -> Option<(Lsn, u64)> {
        let (_, executed) = self.reign?;
        let now = (executed.lsn, self.rounds.current - 1);
        let overdue = self.milestones.overdue(now, (self.safe, self.rounds.confirmed), now_ms, wait_ms);
        // The caller goes through all clients.
        let overdue = overdue.filter(|_| now_ms - self.overdue_at_ms >= OVERDUE_EVERY_MS)?;
        self.overdue_at_ms = now_ms;
        Some(overdue)
    }

    /// Returns how old the data is at most, as far as a leader has told; `None` if none has. A leader's is not.
    pub(crate) fn age(&self) -> Option<Duration> {
        if self.leads() { Some(Duration::ZERO) } else { self.door.age() }
    }

    /// Whether this node was removed from its group, as far as it can tell.
    pub(super) fn is_removed(&self) -> bool {
        self.door.is_removed()
    }

    /// For how long no other node can lead. It must be asked after the read that depends on it has run.
    pub(crate) fn lease_left(&self) -> Duration {
        self.door.lease_left()
    }

    /// Takes the node's news.
    pub(super) fn follow(&mut self) {
        let News { orders, committed, copied, confirmed, failure, wants_snapshot, leader } = self.door.take_news();
        self.wants_snapshot |= wants_snapshot;
        if let Some(leader) = leader {
            self.leader = leader.map(|(node, _)| node);
            self.last_leader = leader.or(self.last_leader);
        }
        self.orders.extend(orders);
        if let (Some((term, _)), Some((of, lsn))) = (self.reign, committed)
            && term == of
        {
            self.advance(lsn);
        }
        if let (Some((term, _)), Some((of, lsn))) = (self.reign, copied)
            && term == of
        {
            self.copies.note(lsn);
            self.judge_safe();
        }
        if let (Some((term, _)), Some(round)) = (self.reign, confirmed)
            && term == round.term
        {
            self.rounds.confirmed = self.rounds.confirmed.max(round.number);
        }
        if let Some(failure) = failure {
            self.failure = Some(failure.to_string());
        }
        self.requests.follow(&self.door, self.rounds.confirmed);
        // The reply of whoever asked for a new leader may have left under a lease, or may not be wanted.
        if let Some(round) = self.requests.awaited_round() {
            self.ask_for(round);
        }
    }

    fn advance(&mut self, lsn: Lsn) {
        self.committed = self.committed.max(lsn);
        self.rounds.committed(lsn);
        self.judge_safe();
    }

    /// Tells the node that the engine follows orders.
    pub(crate) fn engine_is_here(&self) {
        self.door.engine_is_here();
    }

    /// Passes over the orders before the last one that loads other data. Returns whether there is such an order.
    pub(crate) fn pass_over_to_load(&mut self) -> bool {
        let at = self.orders.iter().rposition(|(_, order)| matches!(order, Order::Load(_)));
        drop(self.orders.drain(..at.unwrap_or(0)));
        at.is_some()
    }

    /// Takes the next order. The engine must follow it, and then say that it is [handled](Self::handled).
    pub(crate) fn take_order(&mut self) -> Option<(u64, Order)> {
        self.orders.pop_front()
    }

    /// Notes that all orders up to this one are followed.
    pub(crate) fn handled(&self, number: u64) {
        self.door.call(Call::Handled(number));
    }

    /// Begins a reign. Returns the time of the last change before it, in Unix ms.
    pub(crate) fn lead(&mut self, term: Term) -> i64 {
        self.reign = Some((term, self.position.link));
        self.reigns += 1;
        self.copies.begin_reign();
        self.time_ms
    }

    /// Ends the reign. Blocks that were proposed may still be given back.
    pub(crate) fn deposed(&mut self, why: Why, now: Duration) {
        self.deposed_at = Some(now);
        *self.ends.entry(why).or_default() += 1;
        (self.reign, self.requests, self.milestones) = Default::default();
        self.copies.begin_reign();
        self.rounds.by_block.clear();
        self.judge_safe();
    }

    /// Whether a client that connects now may take this node for the leader, if it [has led](Self::may_have_led): that
    /// was a moment ago, or before a start that was.
    pub(crate) fn has_just_begun_to_follow(&self, now: Duration) -> bool {
        now.saturating_sub(self.deposed_at.unwrap_or(self.began_at)) <= LATE_CLIENT_MAX
    }

    /// Whether this node may have led its group, also before it was started.
    pub(crate) fn may_have_led(&self) -> bool {
        self.deposed_at.is_some() || self.door.may_have_led()
    }

    /// Whether the reign has ended, and the engine was too busy to follow the order that says so.
    pub(crate) fn is_deposed_unheard(&self) -> bool {
        self.reign.is_some_and(|(term, _)| !self.door.is_open(term))
    }

    /// Notes a committed block, and says what the engine has to do with it.
    pub(crate) fn given(&mut self, at: Position, block: &Block) -> Given {
        let own = self.unconfirmed.pop_front();
        self.unconfirmed_bytes -= own.map_or(0, |(_, bytes)| bytes);
        self.judge_room();
        let given = match own {
            None => {
                self.written_bytes += block.body().len() as u64;
                Given::New
            }
            Some((own, _)) if own == block.link() => Given::Own,
            Some(_) => Given::Fork,
        };
        self.position = at;
        self.note_time(block.time_ms);
        self.advance(at.link.lsn);
        self.find_awaited();
        given
    }

    /// Notes the time of changes that were given back, or loaded.
    pub(crate) fn note_time(&mut self, ms: i64) {
        self.time_ms = self.time_ms.max(ms);
    }

    /// Returns the last entry that was given back.
    pub(crate) fn position(&self) -> Position {
        self.position
    }

    /// Notes a committed change of the members.
    pub(crate) fn changed(&mut self, at: Position, members: Members) {
        (self.position, self.members) = (at, members);
        self.requests.note_members(&self.members);
    }

    /// Begins to change the members for a client, whose [answer](Self::take_answer) comes when that is committed.
    /// Returns false, and does nothing, without a reign or while something else is being done.
    pub(super) fn change(&mut self, change: MemberChange, client: Waiter) -> bool {
        let Some((term, _)) = self.reign.filter(|_| self.requests.are_done()) else { return false };
        self.requests.change(&self.door, term, change, client);
        true
    }

    /// Begins to hand leadership over, once the replies made now may leave; otherwise as [`change`](Self::change).
    pub(super) fn hand_over(&mut self, to: NodeId) -> bool {
        let may = self.reign.is_some() && self.requests.are_done();
        if may {
            self.requests.hand_over(self.rounds.current, to);
        }
        may
    }

    /// Takes the answer to a client that has asked for a change of the members.
    pub(crate) fn take_answer(&mut self) -> Option<(Waiter, Result<(), ChangeRefusal>)> {
        self.requests.take_answer()
    }

    /// Returns what the node knows of its group.
    pub(crate) fn facts(&self) -> Arc<GroupFacts> {
        self.door.facts()
    }

    /// Returns the members as of the last entry that was given back.
    pub(crate) fn members(&self) -> &Members {
        &self.members
    }

    /// Returns how many reigns of this node have begun since its start.
    pub(crate) fn reigns(&self) -> u64 {
        self.reigns
    }

    /// Returns why reigns of this node have ended since its start, each reason with their number.
    pub(crate) fn ends(&self) -> impl Iterator<Item = (&'static str, u64)> {
        Why::ALL.into_iter().map(|why| (why.name(), self.ends.get(&why).copied().unwrap_or_default()))
    }

    /// Returns the leader that this node knows. It names itself only while its engine leads: before, and from the end
    /// of the reign on, it serves nobody.
    pub(crate) fn leader(&self) -> Option<NodeId> {
        self.leader.filter(|leader| self.leads() || Some(*leader) != self.facts().own)
    }

    /// Returns the last leader that this node knew, and its term.
    pub(super) fn last_leader(&self) -> Option<(NodeId, Term)> {
        self.last_leader
    }

    /// Returns where clients reach the leader, if this node knows.
    pub(crate) fn leader_address(&self) -> Option<&NodeAddress> {
        self.members.homes.get(&self.leader()?).map(|home| &home.address)
    }

    /// Whether the engine has executed something that was not given back.
    pub(crate) fn is_ahead(&self) -> bool {
        !self.unconfirmed.is_empty()
    }

    /// Starts anew from data that ends at this entry.
    pub(crate) fn loaded(&mut self, at: Position) {
        self.position = at;
        self.unconfirmed.clear();
        self.unconfirmed_bytes = 0;
        self.judge_room();
        (self.committed, self.safe) = (at.link.lsn, at.link.lsn);
        self.awaited = None;
    }

    /// Begins a snapshot beside the node's log. `done` is called on the node's thread when the writer is there.
    pub(super) fn begin_snapshot(
        &self,
        begin: Begin,
        done: impl FnOnce() + Send + 'static,
    ) -> Receiver<SnapshotWriter> {
        let (sender, receiver) = channel();
        let answer = move |writer| {
            // The snapshot may have been cancelled.
            let _ = sender.send(writer);
            done();
        };
        self.door.call(Call::Snapshot(begin, Box::new(answer)));
        receiver
    }

    /// Begins to wait for the entry that ends with the unit `lsn`, the last one of a block.
    pub(super) fn await_entry(&mut self, lsn: Lsn) {
        self.awaited = Some((lsn, None));
        self.find_awaited();
    }

    fn find_awaited(&mut self) {
        if let Some((lsn, found @ None)) = &mut self.awaited
            && (*lsn == self.position.link.lsn || planted::is(Bug::SnapshotBeforeCommit))
        {
            *found = Some((self.position, self.members.clone()));
        }
    }

    /// Whether the entry that was waited for is committed.
    pub(crate) fn has_awaited(&self) -> bool {
        matches!(self.awaited, Some((_, Some(_))))
    }

    /// Takes the entry that was [waited for](Self::await_entry), with the members as of it, once it is committed.
    pub(super) fn take_awaited(&mut self) -> Option<(Position, Members)> {
        let (_, entry) = self.awaited.take_if(|(_, entry)| entry.is_some())?;
        entry
    }

    /// Tells the node of a durable snapshot.
    pub(super) fn snapshot_made(&self, mark: Mark) {
        self.door.call(Call::SnapshotMade(mark));
    }

    /// Whether a node needs a newer snapshot than there was since this was last asked.
    pub(crate) fn take_wants_snapshot(&mut self) -> bool {
        std::mem::take(&mut self.wants_snapshot)
    }

    /// Returns the bytes of the blocks that were handed over or given back since the start.
    pub(super) fn written_bytes(&self) -> u64 {
        self.written_bytes
    }
}
