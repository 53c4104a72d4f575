//! Simulation of a node's log on a disk that loses, tears and fails. One seed decides what is written and when the
//! power goes. After each start the log must be what some prefix of the writes has left: all of those that were
//! durable, whole entries in order, the vote of the newest term, and nothing invented.

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use super::block::tests::block;
use super::entry::{Entry, Payload};
use super::log::EntryLog;
use super::mark::Mark;
use super::members::tests::{joining, of_voters};
use super::members::{MemberChange, Members};
use super::recovery::EntryRecovery;
use super::types::{Ballot, Index, Link, NodeId, Position, Term, some_owner};
use super::write::{Recovered, Write};
use crate::base::lsn::Lsn;
use crate::base::rng::Rng;
use crate::log::directory::{Directory, DirectoryId};
use crate::log::disk::Disk;
use crate::log::error::LogError;
use crate::log::group_commit::{Options, State, SyncPolicy};
use crate::log::planted::{Bug, plant};
use crate::log::reached::{reached, seeds};
use crate::log::sim::{Faults, SimDisk};

const DIRECTORY: &str = "/data/tidegate";
const ID: DirectoryId = DirectoryId::new([0x5a; 16]);
const SEEDS: u64 = 60;
/// Seeds within which each planted bug must be found.
const BUG_SEEDS: u64 = 400;
const LIVES: usize = 12;
/// Small segments, so that a short log has many.
pub(super) const OPTIONS: Options = Options {
    policy: SyncPolicy::Always,
    segment_bytes: 12 * 1024,
    first_segment_bytes: 6 * 1024,
    prepared_segments: 2,
    reserve_bytes: 0,
    may_wait_for_space: true,
};

reached! {
    crashes "power losses"
    kills "kills"
    clean_ends "clean ends"
    crashes_at_start "crashes in a start"
    full_starts "starts without space for a segment"
    torn "torn tails"
    lost "writes that were lost"
    in_part "writes of which a part was left"
    cuts "cuts"
    long_cuts "cuts behind an earlier segment"
    lost_cuts "cuts that were lost"
    installs "snapshots in the place of the log"
    lost_installs "logs that a start replaced by the snapshot"
    ballots "ballots"
    changes "changes of the segment"
    retired "retired segments"
    full "writes that found the disk full"
    healed "writes that went on after the disk was full"
    failed "disks that failed"
}

/// The data of a node.
#[derive(Clone, Debug)]
struct Model {
    ballot: Ballot,
    /// The snapshot in whose place the log began.
    base: Position,
    entries: Vec<Entry>,
    committed: Index,
    /// The part of that which is written with an entry or a ballot, and is durable when they are.
    stated: Index,
}

impl Model {
    fn behind(mark: &Mark, ballot: Ballot) -> Model {
        let least = Ballot { term: mark.at.term, vote: None };
        let ballot = if ballot.term < least.term { least } else { ballot };
        let committed = mark.at.index;
        Model { ballot, base: mark.at, entries: Vec::new(), committed, stated: committed }
    }

    fn last(&self) -> Position {
        self.at(self.base.index.0 + self.entries.len() as u64)
    }

    fn at(&self, index: u64) -> Position {
        let mut at = self.base;
        for entry in &self.entries[..(index - self.base.index.0) as usize] {
            let link = match &entry.payload {
                Payload::Block(block) => block.link(),
                Payload::Start | Payload::Change(_) => at.link,
            };
            at = Position { index: entry.index, term: entry.term, link };
        }
        at
    }

    fn cut(&mut self, first: Index) {
        self.entries.truncate((first.0 - self.base.index.0 - 1) as usize);
    }

    fn describe(&self) -> String {
        let entries: Vec<String> = self.entries.iter().map(|entry| format!("{}:{}", entry.index, entry.term)).collect();
        let (at, last) = (self.base, self.last());
        format!("{:?} behind {at:?}: {} up to {last:?}, committed {}", self.ballot, entries.join(" "), self.committed)
    }

    /// Returns all states that a write passes through.
    fn steps(&self, write: &Write) -> Vec<Model> {
        let mut next = self.clone();
        let mut steps = Vec::new();
        if let Some(mark) = &write.install {
            next = Model::behind(mark, write.ballot.unwrap_or(self.ballot));
            steps.push(next.clone());
        }
        if let Some(first) = write.entries.first()
            && first.index <= next.last().index
        {
            next.cut(first.index);
            next.ballot = write.ballot.unwrap_or(next.ballot);
            steps.push(next.clone());
        }
        next.committed = next.committed.max(write.committed.min(next.last().index));
        steps.push(next.clone());
        if let Some(ballot) = write.ballot {
            next.ballot = ballot;
            next.stated = next.committed;
            steps.push(next.clone());
        }
        for entry in &write.entries {
            next.entries.push(entry.clone());
            next.committed = next.committed.max(write.committed.min(entry.index));
            next.stated = next.committed;
            steps.push(next.clone());
        }
        steps
    }

    /// Returns the entry `first` and the first one of each later term, up to `last`.
    fn terms_from(&self, first: Index, last: Index) -> Vec<Position> {
        let mut terms: Vec<Position> = (first.0..=last.0).map(|index| self.at(index)).collect();
        terms.dedup_by_key(|at| at.term);
        terms
    }

    /// Returns the members of a snapshot after the changes up to `last`.
    fn members_behind(&self, snapshot: &Mark, last: Index) -> Members {
        let mut members = snapshot.members.clone();
        for entry in self.entries.iter().filter(|entry| entry.index > snapshot.at.index && entry.index <= last) {
            if let Payload::Change(change) = &entry.payload {
                members.make(change);
            }
        }
        members
    }

    /// Whether a start may find this where the model's newest state is `self`.
    fn allows(&self, found: &Recovered) -> bool {
        let (snapshot, committed) = (found.snapshot.at, &found.committed);
        let log = self.base.index..=self.last().index;
        let newer = self.entries.iter().skip_while(|entry| entry.index <= committed.at.index);
        found.ballot == self.ballot
            && log.contains(&snapshot.index)
            && snapshot == self.at(snapshot.index.0)
            && committed.at.index >= self.stated
            && committed.at.index <= self.committed.max(snapshot.index)
            && committed.at == self.at(committed.at.index.0)
            && committed.members == self.members_behind(&found.snapshot, committed.at.index)
            && found.covered.first().is_none_or(|first| {
                log.contains(&first.index) && found.covered == self.terms_from(first.index, committed.at.index)
            })
            && found.entries.iter().eq(newer)
    }
}

struct World {
    disk: SimDisk,
    rng: Rng,
    /// The states that a start may find, the newest last. The first one is durable.
    states: Vec<Model>,
    /// The newest snapshot, whose file is durable.
    snapshot: Mark,
    number: u64,
    /// The state behind each write that is not durable yet.
    unsynced: Vec<(u64, usize)>,
    was_replaced: bool,
    reached: Reached,
}

type Verdict = Result<(), String>;

fn node(number: u64) -> NodeId {
    NodeId::new(number).expect("not 0")
}

impl World {
    fn new(seed: u64) -> World {
        let members = of_voters(&[node(1), node(2), node(3)]);
        let at = Position { index: Index(1), term: Term(1), link: Link::default() };
        let snapshot = Mark { at, members, serial: 0 };
        World {
            disk: SimDisk::new(seed),
            rng: Rng::seeded(seed ^ 0xba11),
            states: vec![Model::behind(&snapshot, Ballot::default())],
            snapshot,
            number: 0,
            unsynced: Vec::new(),
            was_replaced: false,
            reached: Reached::default(),
        }
    }

    fn newest(&self) -> &Model {
        self.states.last().expect("there is a state")
    }

    /// Runs one life: a start, writes, and an end of some kind.
    fn live(&mut self) -> Verdict {
        let operations = self.disk.operations();
        let some = |rng: &mut Rng, most: u64| Some(operations + rng.below(most));
        let faults = match self.rng.below(6) {
            0 => Faults { crash_at: some(&mut self.rng, 15), ..Faults::default() },
            1 | 2 => Faults { crash_at: some(&mut self.rng, 150), ..Faults::default() },
            3 => Faults { fail_at: some(&mut self.rng, 150), ..Faults::default() },
            _ => Faults::default(),
        };
        let capacity = (self.rng.below(5) == 0).then(|| self.disk.used_bytes() + self.rng.below(6000));
        self.disk.set_faults(Faults { sync_time: Duration::from_micros(100), capacity, ..faults });
        if let Some(log) = self.start()? {
            let actions = self.rng.below(60);
            self.work(&log, actions)?;
            if self.rng.below(4) == 0 && log.close() == State::Good {
                self.reached.clean_ends += 1;
                self.settle();
            }
        } else {
            self.reached.crashes_at_start += u64::from(self.disk.is_off());
        }
        if self.rng.below(3) == 0 {
            self.disk.kill();
            self.reached.kills += 1;
        } else {
            self.disk.crash();
            self.reached.crashes += 1;
        }
        Ok(())
    }

    fn read(&self) -> Result<EntryRecovery, LogError> {
        let disk: Arc<dyn Disk> = Arc::new(self.disk.clone());
        let directory = Directory::open_as(some_owner(), disk, Path::new(DIRECTORY), ID)?;
        EntryRecovery::read(directory, self.snapshot.clone())
    }

    /// Reads the log and compares it; `None` if the disk prevents that.
    fn start(&mut self) -> Result<Option<EntryLog>, String> {
        let mut recovery = match self.read() {
            Ok(recovery) => recovery,
            Err(LogError::Io { .. }) => return Ok(None),
            Err(error) => return Err(format!("refused after a mere crash: {error}")),
        };
        let found = recovery.take();
        let is_replaced = found.covered.is_empty();
        let which = self.states.iter().rposition(|state| state.allows(&found));
        let Some(which) = which else {
            let states: Vec<String> = self.states.iter().map(Model::describe).collect();
            let found = Model {
                ballot: found.ballot,
                base: found.committed.at,
                entries: found.entries,
                committed: found.committed.at.index,
                stated: found.committed.at.index,
            };
            return Err(format!("found {}\ninstead of one of\n{}", found.describe(), states.join("\n")));
        };
        let ends = |at: usize| self.unsynced.iter().any(|(_, end)| *end == at);
        self.reached.lost += u64::from(which + 1 < self.states.len());
        self.reached.in_part += u64::from(which > 0 && which + 1 < self.states.len() && !ends(which));
        self.reached.lost_cuts += u64::from(self.newest().last().index < self.states[which].last().index);
        let is_torn = recovery.end().is_some_and(|end| end.torn.is_some());
        match recovery.finish(OPTIONS, Arc::new(self.disk.clone()), Box::new(|| {})) {
            Ok(log) => {
                self.reached.full_starts += u64::from(!log.has_segment());
                self.reached.torn += u64::from(is_torn);
                self.reached.lost_installs += u64::from(is_replaced && self.was_replaced);
                let mut state = self.states[which].clone();
                state.committed = found.committed.at.index;
                state.stated = found.committed.at.index;
                self.states = vec![state];
                self.settle();
                Ok(Some(log))
            }
            Err(LogError::Io { .. }) => Ok(None),
            Err(error) => Err(format!("refused when it was opened: {error}")),
        }
    }

    /// Everything so far is durable.
    fn settle(&mut self) {
        self.states.drain(..self.states.len() - 1);
        self.unsynced.clear();
        self.was_replaced = false;
    }

    fn work(&mut self, log: &EntryLog, actions: u64) -> Verdict {
        let mut limited = false;
        for _ in 0..actions {
            if log.state() == State::Poisoned {
                self.reached.failed += u64::from(log.failure().is_some() && !self.disk.is_off());
                break;
            }
            match self.rng.below(20) {
                0..=8 => {
                    let write = self.some_write();
                    self.submit(log, write);
                }
                9..=13 => {
                    let segments = log.segments();
                    let state = log.step();
                    self.reached.changes += u64::from(log.segments() > segments);
                    self.reached.long_cuts += u64::from(log.segments() < segments);
                    self.reached.full += u64::from(state == State::Full);
                    self.reached.healed += u64::from(state == State::Good && std::mem::take(&mut limited));
                    limited |= state == State::Full;
                    self.note_durable(log.durable());
                }
                14 | 15 => {
                    log.do_chore();
                }
                16 => self.take_snapshot(log),
                17 if !limited => self.disk.set_capacity(Some(self.disk.used_bytes() + self.rng.below(9000))),
                18 => self.disk.set_capacity(None),
                _ => {}
            }
        }
        self.disk.set_capacity(None);
        if self.rng.below(2) == 0 && log.step() == State::Good {
            self.note_durable(log.durable());
        }
        Ok(())
    }

    fn note_durable(&mut self, number: u64) {
        let Some((_, end)) = self.unsynced.iter().rfind(|(write, _)| *write <= number).copied() else { return };
        self.states.drain(..end);
        self.unsynced.retain(|(write, _)| *write > number);
        for (_, state) in &mut self.unsynced {
            *state -= end;
        }
    }

    fn submit(&mut self, log: &EntryLog, write: Write) {
        if let Some(mark) = &write.install {
            // The file of the snapshot is durable first. From now on a start that finds the old log replaces it.
            self.snapshot = mark.clone();
            self.was_replaced = true;
            for state in &mut self.states {
                *state = Model::behind(mark, state.ballot);
            }
        }
        let steps = self.newest().steps(&write);
        self.states.extend(steps);
        self.unsynced.push((write.number, self.states.len() - 1));
        log.write(write);
    }

    /// Makes up what a core may ask for.
    fn some_write(&mut self) -> Write {
        let mut model = self.newest().clone();
        self.number += 1;
        let mut write =
            Write { number: self.number, ballot: None, install: None, entries: Vec::new(), committed: model.committed };
        let kind = self.rng.below(12);
        if kind < 4 || model.ballot.term < Term(2) {
            let term = Term(model.ballot.term.0.max(1) + 1 + self.rng.below(2));
            let vote = NodeId::new(self.rng.below(4));
            model.ballot = Ballot { term, vote };
            write.ballot = Some(model.ballot);
            self.reached.ballots += 1;
        }
        let term = model.ballot.term;
        match kind {
            0 => {
                let index = Index(model.committed.0 + 1 + self.rng.below(30));
                let lsn = Lsn::new(model.at(model.committed.0).link.lsn.get() + self.rng.below(50));
                let link = Link { lsn, crc: self.rng.below(1 << 32) as u32 };
                let at = Position { index, term, link };
                let mark = Mark { at, members: self.snapshot.members.clone(), serial: self.rng.next_u64() };
                model = Model { base: at, entries: Vec::new(), committed: index, ..model };
                write.install = Some(mark);
                self.reached.installs += 1;
            }
            1 | 2 if model.last().index > model.committed => {
                let uncommitted = model.last().index.0 - model.committed.0;
                model.cut(Index(model.committed.0 + 1 + self.rng.below(uncommitted)));
                self.reached.cuts += 1;
            }
            _ => {}
        }
        let count = if (1..=2).contains(&kind) { 1 + self.rng.below(4) } else { self.rng.below(5) };
        for _ in 0..count {
            let entry = self.some_entry(model.last(), term);
            model.entries.push(entry.clone());
            write.entries.push(entry);
        }
        let uncommitted = model.last().index.0 - model.committed.0;
        write.committed = Index(model.committed.0 + self.rng.below(uncommitted + 1) * self.rng.below(2));
        write
    }

    fn some_entry(&mut self, last: Position, term: Term) -> Entry {
        let payload = match self.rng.below(8) {
            0 => Payload::Start,
            1 => {
                let kind = [joining, MemberChange::Promote][self.rng.below(2) as usize];
                Payload::Change(kind(node(1 + self.rng.below(9))))
            }
            kind => {
                let bytes = if kind == 2 { self.rng.below(5000) } else { self.rng.below(300) };
                let units: Vec<Vec<u8>> =
                    (0..1 + self.rng.below(3)).map(|_| vec![self.rng.below(256) as u8; bytes as usize]).collect();
                let units: Vec<&[u8]> = units.iter().map(Vec::as_slice).collect();
                Payload::Block(block(term.0, last.link, &units))
            }
        };
        Entry { index: last.index.next(), term, payload }
    }

    /// The engine has made a snapshot of something committed and durable.
    fn take_snapshot(&mut self, log: &EntryLog) {
        let durable = &self.states[0];
        let committed = durable.committed.min(durable.last().index);
        if committed <= self.snapshot.at.index || self.was_replaced {
            return;
        }
        let index = self.snapshot.at.index.0 + 1 + self.rng.below(committed.0 - self.snapshot.at.index.0);
        let at = durable.at(index);
        self.snapshot = Mark { at, members: self.snapshot.members.clone(), serial: self.rng.next_u64() };
        self.reached.retired += log.retire(at.index, at.index, u64::MAX) as u64;
    }
}

/// Runs one seed.
fn run(seed: u64) -> Result<World, String> {
    let mut world = World::new(seed);
    let mut lives = || {
        for _ in 0..LIVES {
            world.live()?;
        }
        world.disk.set_faults(Faults::default());
        world.start()?.map(|_| ()).ok_or("the last start failed".to_owned())
    };
    lives().map_err(|error| format!("SUITE_SEED={seed}: {error}"))?;
    Ok(world)
}

#[test]
fn a_node_finds_its_log_and_its_vote_again() {
    let mut reached = Reached::default();
    let Range { start, end } = seeds(SEEDS);
    for seed in start..end {
        reached.add(&run(seed).unwrap_or_else(|error| panic!("{error}")).reached);
    }
    println!("{reached:?}");
    if end - start >= SEEDS {
        assert_eq!(reached.missing(), Vec::<&str>::new(), "{reached:?}");
    }
}

#[test]
fn planted_bugs_are_found() {
    let bugs = [
        Bug::NoSync,
        Bug::NoCopyOfTheTail,
        Bug::NoSyncOfTheCut,
        Bug::NoBallotInTheHeader,
        Bug::NothingCommitted,
        Bug::NoSegmentNumber,
    ];
    for bug in bugs {
        plant(Some(bug));
        let found = (0..BUG_SEEDS).find_map(|seed| run(seed).err().map(|error| (seed, error)));
        plant(None);
        let (seed, found) = found.unwrap_or_else(|| panic!("{bug:?} was not found"));
        run(seed).unwrap_or_else(|error| panic!("without {bug:?}: {error}"));
        println!("{bug:?}: {}", found.lines().next().unwrap_or_default());
    }
}

#[test]
fn a_seed_repeats_its_run() {
    for seed in 0..5 {
        let trace = || run(seed).map(|world| world.disk.trace(0));
        assert_eq!(trace(), trace());
    }
}
