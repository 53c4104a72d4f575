//! A node of the simulation: its journal on a simulated disk, its core, and an engine that is small but keeps all
//! rules.

use std::collections::{BTreeMap, VecDeque};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use super::super::core::Core;
use super::super::fetch::{Fetch, Fetcher, Gone};
use super::super::message::Round;
use super::super::output::{Order, Settings};
use super::judge::Judge;
use crate::base::lsn::Lsn;
use crate::base::rng::Rng;
use crate::log::block::unit_head;
use crate::log::directory::{Directory, DirectoryId};
use crate::log::disk;
use crate::log::group_commit::{Options, State, SyncPolicy};
use crate::log::planted::{self, Bug};
use crate::log::replicated::block::{BLOCK_HEAD_BYTES, Block};
use crate::log::replicated::entry::{Entry, Payload};
use crate::log::replicated::log::EntryLog;
use crate::log::replicated::mark::Mark;
use crate::log::replicated::members::Members;
use crate::log::replicated::recovery::EntryRecovery;
use crate::log::replicated::types::{Ballot, Index, Link, NodeId, Position, Term, some_owner};
use crate::log::replicated::write::{Recovered, Write};
use crate::log::sim::SimDisk;

/// The durable contents of a disk.
#[derive(Clone, Debug, Default)]
pub(super) struct Durable {
    pub(super) ballot: Ballot,
    snapshot: Mark,
    /// Those behind the snapshot.
    entries: Vec<Entry>,
    committed: Index,
}

impl Durable {
    pub(super) fn new(snapshot: Mark) -> Durable {
        let ballot = Ballot { term: snapshot.at.term, vote: None };
        Durable { ballot, committed: snapshot.at.index, snapshot, entries: Vec::new() }
    }

    pub(super) fn last(&self) -> Index {
        self.entries.last().map_or(self.snapshot.at.index, |entry| entry.index)
    }

    fn write(&mut self, write: &Write) {
        if let Some(ballot) = write.ballot {
            self.ballot = ballot;
        }
        if let Some(mark) = &write.install {
            self.install(mark.clone());
        }
        if let Some(first) = write.entries.first() {
            self.entries.retain(|entry| entry.index < first.index);
            self.entries.extend(write.entries.iter().cloned());
        }
        self.committed = write.committed;
    }

    fn install(&mut self, mark: Mark) {
        self.entries.clear();
        (self.committed, self.snapshot) = (mark.at.index, mark);
    }

    /// Whether the journal has this, which may know of fewer commits.
    fn is(&self, found: &Recovered) -> bool {
        let committed = found.committed.at;
        let covers = |at: &Position| at.index <= committed.index && at.term <= committed.term;
        found.ballot == self.ballot
            && found.covered.iter().all(covers)
            && found.entries.iter().eq(self.entries.iter().filter(|entry| entry.index > committed.index))
            && committed.index <= self.committed.max(self.snapshot.at.index)
    }

    /// Returns the blocks behind the snapshot up to a unit, as a load reads them, and where each is.
    fn blocks_until(&self, lsn: Lsn) -> impl Iterator<Item = (Position, &Block)> {
        let blocks = self.entries.iter().filter_map(|entry| match &entry.payload {
            Payload::Block(block) => {
                Some((Position { index: entry.index, term: entry.term, link: block.link() }, block))
            }
            Payload::Start | Payload::Change(_) => None,
        });
        blocks.take_while(move |(at, _)| at.link.lsn <= lsn)
    }
}

/// The journal of a node, on a disk of its own.
struct Journal {
    disk: SimDisk,
    /// `None` while the node is down.
    log: Option<EntryLog>,
    fetcher: Fetcher,
}

const DIRECTORY: &str = "/node";
const OPTIONS: Options = Options {
    policy: SyncPolicy::Always,
    segment_bytes: 12 * 1024,
    first_segment_bytes: 6 * 1024,
    prepared_segments: 1,
    reserve_bytes: 0,
    may_wait_for_space: true,
};

impl Journal {
    fn new(seed: u64) -> Journal {
        Journal { disk: SimDisk::new(seed), log: None, fetcher: Fetcher::default() }
    }

    fn start(&mut self, snapshot: Mark) -> Recovered {
        let disk: Arc<dyn disk::Disk> = Arc::new(self.disk.clone());
        let directory = Directory::open_as(some_owner(), disk, Path::new(DIRECTORY), DirectoryId::new([7; 16]));
        let read = directory.and_then(|directory| EntryRecovery::read(directory, snapshot));
        let mut recovery = read.unwrap_or_else(|error| panic!("the journal is refused: {error}"));
        let found = recovery.take();
        let log = recovery.finish(OPTIONS, Arc::new(self.disk.clone()), Box::new(|| {}));
        self.log = Some(log.unwrap_or_else(|error| panic!("the journal can't be written: {error}")));
        found
    }

    fn write(&mut self, write: Write) {
        let Some(log) = &self.log else { return };
        let number = write.number;
        log.write(write);
        assert_eq!((log.step(), log.durable()), (State::Good, number));
        log.do_chore();
    }

    /// Ends the process. Nothing that was reported durable is lost with the power.
    fn stop(&mut self) {
        (self.log, self.fetcher) = (None, Fetcher::default());
        self.disk.crash();
    }
}

/// A disk with writes on their way. They become durable in order.
pub(super) struct Disk {
    pub(super) durable: Durable,
    journal: Journal,
    pub(super) queue: VecDeque<Write>,
    /// No write ends before this time.
    pub(super) hangs_until: u64,
    pub(super) busy_until: u64,
}

impl Disk {
    fn new(snapshot: Mark, seed: u64) -> Disk {
        let durable = Durable::new(snapshot);
        Disk { durable, journal: Journal::new(seed), queue: VecDeque::new(), hangs_until: 0, busy_until: 0 }
    }

    /// The next write is durable. Returns its number.
    pub(super) fn finish_one(&mut self) -> Option<u64> {
        let write = self.queue.pop_front()?;
        self.durable.write(&write);
        let number = write.number;
        self.journal.write(write);
        Some(number)
    }

    /// Reads entries from the journal, and compares them with what was written.
    pub(super) fn read(&mut self, fetch: &Fetch) -> Result<Vec<Entry>, Gone> {
        let Journal { log, fetcher, .. } = &mut self.journal;
        let log = log.as_ref().expect("the node is up");
        let read = fetcher.read(log, fetch)?;
        for entry in &read {
            let written = self.durable.entries.iter().find(|written| written.index == entry.index);
            assert!(written.is_none_or(|written| written == entry), "read {entry:?} instead of {written:?}");
        }
        Ok(read)
    }

    /// Puts a snapshot in the place of the log at once.
    pub(super) fn install(&mut self, mark: Mark) {
        let committed = mark.at.index;
        let (number, ballot, entries, install) = (u64::MAX, None, Vec::new(), Some(mark));
        self.queue.push_front(Write { number, ballot, install, entries, committed });
        self.finish_one();
    }

    /// The process was killed or the power failed: only the first `survive` writes are there.
    pub(super) fn crash(&mut self, survive: usize) {
        for _ in 0..survive {
            self.finish_one();
        }
        self.queue.clear();
        self.busy_until = 0;
        self.journal.stop();
    }

    fn start(&mut self) -> Recovered {
        let found = self.journal.start(self.durable.snapshot.clone());
        assert!(self.durable.is(&found), "the journal has {found:?} instead of {:?}", self.durable);
        self.durable.committed = found.committed.at.index;
        found
    }
}

/// All data: a lease for each name, and a digest of everything that happened.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Data {
    pub(super) lsn: u64,
    link: Link,
    /// The time up to which leases have ended; it never goes back.
    stamp: u64,
    leases: BTreeMap<u64, u64>,
    history: u64,
}

/// A change: a lease is taken until a time, or has ended.
const TAKE: u8 = 1;
const END: u8 = 2;

impl Data {
    pub(super) fn digest(&self) -> u64 {
        let leases = self.leases.iter().fold(self.history, |digest, (id, until)| mix(mix(digest, *id), *until));
        mix(leases, self.stamp)
    }

    /// Returns the write that a unit belongs to.
    pub(super) fn written_by(effects: &[u8]) -> Option<u64> {
        effects.strip_prefix(&[TAKE])?.first_chunk().map(|id| u64::from_le_bytes(*id))
    }

    fn apply(&mut self, lsn: u64, effects: &[u8]) {
        let (kind, numbers) = effects.split_first().expect("a unit has effects");
        let number = |at: usize| u64::from_le_bytes(numbers[at..at + 8].try_into().expect("eight bytes"));
        let (id, stamp, until) = (number(0), number(8), number(16));
        assert!(stamp >= self.stamp, "time went back from {} to {stamp} at {lsn}", self.stamp);
        match *kind {
            TAKE => {
                self.leases.insert(id, until);
            }
            _ => {
                let until = self.leases.remove(&id);
                assert!(until.is_some_and(|until| until <= stamp), "lease {id} until {until:?} ended at {stamp}");
            }
        }
        assert_eq!(lsn, self.lsn + 1, "a unit was left out");
        (self.lsn, self.stamp, self.history) = (lsn, stamp, mix(mix(self.history, id), u64::from(*kind)));
    }
}

fn mix(digest: u64, number: u64) -> u64 {
    (digest ^ number).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29)
}

/// A reply that waits.
struct Held {
    fence: u64,
    shown_before: u64,
    answer: Answer,
}

enum Answer {
    Written { id: u64 },
    Read { digest: u64, round: u64 },
}

/// News of the core's thread that the engine reads when a reply is due.
#[derive(Clone, Copy, Default)]
pub(super) struct Known {
    pub(super) committed: Option<(Term, u64)>,
    pub(super) confirmed: Option<Round>,
    pub(super) lease_until: Option<Duration>,
}

/// Executes commands while it leads, and applies what is committed.
#[derive(Default)]
pub(super) struct Engine {
    pub(super) orders: VecDeque<(u64, Order)>,
    /// Committed data.
    pub(super) data: Data,
    position: Position,
    /// The data with everything that was executed in this reign.
    executed: Data,
    pub(super) reign: Option<Term>,
    /// Blocks that were executed here and not given back as committed.
    unconfirmed: VecDeque<Block>,
    tail: Vec<Vec<u8>>,
    held: Vec<Held>,
    /// The number of the last read, and of the last round asked for.
    round: u64,
    asked: u64,
    pub(super) last_handled: u64,
    pub(super) busy_until: u64,
    /// When the last block reached the core: blocks stay in order.
    pub(super) proposed_at: u64,
    /// The members as of `position`.
    members: Members,
}

impl Engine {
    /// Executes a write, before which the leases end that have expired. Returns how many.
    pub(super) fn write(&mut self, id: u64, wall: u64, lease: u64, judge: &Judge) -> u64 {
        if self.reign.is_none() {
            return 0;
        }
        let stamp = wall.max(self.executed.stamp);
        let ended: Vec<u64> =
            self.executed.leases.iter().filter(|(_, until)| **until <= stamp).map(|(id, _)| *id).collect();
        for id in &ended {
            self.execute(END, *id, stamp, 0);
        }
        self.execute(TAKE, id, stamp, stamp + lease);
        let held = Held { fence: self.executed.lsn, shown_before: judge.shown(), answer: Answer::Written { id } };
        self.held.push(held);
        ended.len() as u64
    }

    fn execute(&mut self, kind: u8, id: u64, stamp: u64, until: u64) {
        let mut effects = vec![kind];
        for number in [id, stamp, until] {
            effects.extend(number.to_le_bytes());
        }
        self.executed.apply(self.executed.lsn + 1, &effects);
        self.tail.push(effects);
    }

    /// Executes a read. A round that begins later has to confirm it, or a lease.
    pub(super) fn read(&mut self, judge: &Judge) {
        if self.reign.is_some() {
            self.round += 1;
            let answer = Answer::Read { digest: self.executed.digest(), round: self.round };
            self.held.push(Held { fence: self.executed.lsn, shown_before: judge.shown(), answer });
        }
    }

    /// Seals what was executed since the last block.
    pub(super) fn seal(&mut self) -> Option<Block> {
        let term = self.reign.filter(|_| !self.tail.is_empty())?;
        let mut body = vec![0; BLOCK_HEAD_BYTES];
        for effects in &self.tail {
            body.extend(unit_head(1, 1, effects.len() as u32));
            body.extend(effects);
        }
        let units = self.tail.len() as u32;
        self.tail.clear();
        let block = Block::seal(body, term, self.executed.link, units, 0).expect("the units fill it");
        self.executed.link = block.link();
        self.unconfirmed.push_back(block.clone());
        Some(block)
    }

    /// Lets the replies go that wait for nothing any more. Returns a round to ask for if reads wait for one.
    pub(super) fn answer(
        &mut self,
        now: Duration,
        known: &Known,
        judge: &mut Judge,
        leased_reads: &mut u64,
    ) -> Option<Round> {
        let term = self.reign?;
        // Checked after the reads have run.
        let is_leased = known.lease_until.is_some_and(|until| now < until) || planted::is(Bug::NoRound);
        let committed = known.committed.filter(|(of, _)| *of == term).map_or(self.data.lsn, |(_, lsn)| lsn);
        let committed = committed.max(self.data.lsn);
        let confirmed = known.confirmed.filter(|round| round.term == term).map_or(0, |round| round.number);
        self.held.retain(|held| {
            let waits_for_round = matches!(held.answer, Answer::Read { round, .. } if round > confirmed) && !is_leased;
            if (held.fence > committed && !planted::is(Bug::ReplyBeforeCommit)) || waits_for_round {
                return true;
            }
            match held.answer {
                Answer::Written { id } => judge.write_acked(held.fence, id, held.shown_before),
                Answer::Read { digest, round } => {
                    *leased_reads += u64::from(round > confirmed);
                    judge.read_done(held.fence, digest, held.shown_before);
                }
            }
            false
        });
        let asked = self.asked;
        let waits = |held: &Held| matches!(held.answer, Answer::Read { round, .. } if round > asked);
        if !self.held.iter().any(waits) {
            return None;
        }
        self.asked = self.round;
        Some(Round { term, number: self.round })
    }

    /// Follows the next order. Returns its number, and how long that takes in microseconds.
    pub(super) fn follow_one(
        &mut self,
        node: NodeId,
        files: &BTreeMap<u64, Data>,
        disk: &Durable,
        judge: &mut Judge,
        rng: &mut Rng,
    ) -> Option<(u64, u64)> {
        let (number, order) = self.orders.pop_front()?;
        self.last_handled = number;
        let takes = match order {
            Order::Load(mark) => {
                self.forget();
                self.data = files.get(&mark.serial).cloned().unwrap_or_default();
                for (at, block) in disk.blocks_until(mark.at.link.lsn) {
                    // The snapshot may have it.
                    if at.link.lsn.get() > self.data.lsn {
                        self.add(node, at, block, judge);
                    }
                }
                if self.data.link != mark.at.link {
                    // A newer snapshot has taken the place of the log. Whoever finds that out knows the order that
                    // loads it.
                    let newer = self.orders.iter().position(|(_, order)| matches!(order, Order::Load(_)));
                    self.orders.drain(..newer.expect("the data is not what its mark says"));
                    return self.follow_one(node, files, disk, judge, rng);
                }
                judge.loaded(node, &self.data);
                (self.position, self.members) = (mark.at, mark.members);
                5_000 + rng.below(150_000)
            }
            Order::Apply { at, block } => {
                self.apply(node, at, &block, judge);
                rng.below(300)
            }
            Order::Members { at, members } => {
                (self.position, self.members) = (at, members);
                rng.below(300)
            }
            Order::Lead(term) => {
                assert!(self.unconfirmed.is_empty(), "a reign begins on top of what is not committed");
                (self.executed, self.reign) = (self.data.clone(), Some(term));
                (self.round, self.asked) = (0, 0);
                rng.below(300)
            }
            Order::Deposed { .. } if planted::is(Bug::NoReload) => {
                self.data = self.executed.clone();
                self.forget();
                rng.below(300)
            }
            Order::Deposed { term, .. } => {
                assert_eq!(self.reign, Some(term), "another reign ends than has begun");
                self.forget();
                5_000 + rng.below(100_000)
            }
        };
        Some((number, takes))
    }

    /// Forgets what is not committed, and with it all clients.
    fn forget(&mut self) {
        self.reign = None;
        self.unconfirmed.clear();
        self.tail.clear();
        self.held.clear();
    }

    fn apply(&mut self, node: NodeId, at: Position, block: &Block, judge: &mut Judge) {
        if let Some(own) = self.unconfirmed.pop_front() {
            assert_eq!(own.link(), block.link(), "node {node} has executed another block than it committed");
        }
        self.add(node, at, block, judge);
        self.position = at;
    }

    /// Adds a committed block to the data.
    fn add(&mut self, node: NodeId, at: Position, block: &Block, judge: &mut Judge) {
        judge.block_applied(node, at);
        for unit in block.units() {
            self.data.apply(unit.lsn.get(), unit.effects);
            judge.unit_applied(node, unit.lsn.get(), unit.effects, &self.data);
        }
        self.data.link = block.link();
    }

    /// Removes what has expired by this node's own clock: a bug.
    pub(super) fn expire(&mut self, wall: u64) {
        self.data.leases.retain(|_, until| *until > wall);
    }

    /// Returns a snapshot of the committed data.
    pub(super) fn snapshot(&self, serial: u64) -> (Mark, Data) {
        (Mark { at: self.position, members: self.members.clone(), serial }, self.data.clone())
    }
}

/// One node.
pub(super) struct Node {
    pub(super) id: NodeId,
    /// `None` while it is down.
    pub(super) core: Option<Core>,
    /// Counts the lives of the process: what an earlier one has begun does not reach a later one.
    pub(super) life: u64,
    pub(super) disk: Disk,
    pub(super) engine: Engine,
    pub(super) known: Known,
    /// The process does nothing before this time.
    pub(super) paused_until: u64,
    /// The disk was lost: the node never comes back.
    pub(super) is_gone: bool,
    /// Speed of the clock, in millionths of the true one.
    pub(super) clock_rate: u64,
    pub(super) wall_offset: u64,
    pub(super) stuck_reported: bool,
    /// Bytes of entries that it keeps in memory.
    pub(super) memory_bytes: u64,
}

/// How much of its log a node gives up when it has a snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cut {
    Nothing,
    /// Its files, and the core has to find out.
    Untold,
    /// Its files.
    Files,
    /// Everything that the snapshot covers.
    All,
}

impl Node {
    pub(super) fn new(id: NodeId, snapshot: Mark, memory_bytes: u64, rng: &mut Rng) -> Node {
        Node {
            id,
            core: None,
            life: 0,
            disk: Disk::new(snapshot, id.get()),
            engine: Engine::default(),
            known: Known::default(),
            paused_until: 0,
            is_gone: false,
            clock_rate: 936_000 + rng.below(128_000),
            wall_offset: rng.below(400_000),
            stuck_reported: false,
            memory_bytes,
        }
    }

    /// Returns what the node's own clock shows.
    pub(super) fn clock(&self, now: u64) -> Duration {
        Duration::from_micros(now * self.clock_rate / 1_000_000)
    }

    pub(super) fn describe(&self) -> String {
        let Node { id, is_gone, engine, .. } = self;
        let Some(core) = &self.core else { return format!("node {id} down (gone: {is_gone})") };
        let (term, leader, last, committed) = (core.term(), core.leader(), core.last(), core.committed());
        let (reign, orders) = (engine.reign, engine.orders.len());
        format!(
            "node {id}: term {term}, leader {leader:?}, last {}, committed {committed}, {:?}, reign {reign:?}, \
             {orders} orders, {} writes",
            last.index,
            core.members(),
            self.disk.queue.len()
        )
    }

    pub(super) fn wall(&self, now: u64) -> u64 {
        now + self.wall_offset
    }

    pub(super) fn start(&mut self, now: u64, seed: u64) {
        let recovered = self.disk.start();
        self.life += 1;
        (self.engine, self.known, self.stuck_reported) = (Engine::default(), Known::default(), false);
        let clock = self.clock(now);
        let memory_bytes = self.memory_bytes;
        let settings = Settings { seed, disk_stuck_after: Duration::from_secs(1), memory_bytes };
        self.core = Some(Core::new(self.id, recovered, settings, clock).unwrap_or_else(|error| panic!("{error}")));
    }

    /// Puts a snapshot of this node on its disk, and cuts the log behind it.
    pub(super) fn keep_snapshot(&mut self, mark: Mark, cut: Cut) {
        let (Some(core), Some(log)) = (&mut self.core, &self.disk.journal.log) else { return };
        let durable = &mut self.disk.durable;
        if mark.at.index > durable.last() || mark.at.index <= durable.snapshot.at.index {
            return;
        }
        core.snapshot_made(mark.clone());
        durable.entries.retain(|entry| entry.index > mark.at.index);
        if cut != Cut::Nothing {
            log.retire(mark.at.index, mark.at.index, u64::MAX);
        }
        match cut {
            Cut::Nothing | Cut::Untold => {}
            Cut::Files => core.cut(log.begins_behind().expect("the log has a segment")),
            Cut::All => core.cut(mark.at.index),
        }
        durable.snapshot = mark;
    }
}
