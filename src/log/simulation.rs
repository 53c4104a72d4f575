//! The simulation of the log: one seed decides what is appended, what fails and where the power goes, and the same seed
//! always gives the same run. After each crash the log is recovered and compared with what was appended:
//!
//! - what had been durable is there, and so is what an earlier recovery has shown;
//! - what is there is a prefix of what was appended: whole units, in order, nothing invented;
//! - a crash alone never looks like damage.
//!
//! States that are rare are counted, and a run that has not reached them all fails. Planted bugs show that it can fail.

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use super::block::{ALIGN, Frame, Place};
use super::directory::{Directory, DirectoryId};
use super::disk::{Disk, read_all};
use super::error::LogError;
use super::group_commit::{Commit, Log, Options, State, SyncPolicy, tail};
use super::planted::{Bug, plant};
use super::scan::{End, Recovery};
use super::sim::{Faults, SimDisk};
use crate::base::lsn::Lsn;
use crate::base::rng::Rng;

const DIRECTORY: &str = "/data/tidegate";
const ID: DirectoryId = DirectoryId::new([0x5a; 16]);
/// Seeds of the test: some 3,000 crashes.
const SEEDS: u64 = 12;
const OPTIONS: Options = Options {
    policy: SyncPolicy::Always,
    segment_bytes: 16 * 1024,
    first_segment_bytes: 8 * 1024,
    prepared_segments: 2,
    reserve_bytes: 8 * 1024,
};

/// How often a run has been where bugs like to be.
#[derive(Clone, Copy, Debug, Default)]
struct Reached {
    crashes: u64,
    kills: u64,
    clean_ends: u64,
    recovered_units: u64,
    torn_tails: u64,
    torn_with_blocks_behind: u64,
    stale_blocks_at_the_end: u64,
    lost_unsynced_units: u64,
    crashes_in_recovery: u64,
    segments_recycled: u64,
    full: u64,
    healed: u64,
    stuck: u64,
    poisoned: u64,
    empty_starts: u64,
}

impl Reached {
    fn missing(&self) -> Vec<&'static str> {
        let all = [
            (self.crashes, "crashes"),
            (self.kills, "kills"),
            (self.clean_ends, "clean ends"),
            (self.recovered_units, "recovered units"),
            (self.torn_tails, "torn tails"),
            (self.torn_with_blocks_behind, "torn blocks with whole ones behind them"),
            (self.stale_blocks_at_the_end, "recycled segments with old blocks at the log's end"),
            (self.lost_unsynced_units, "lost units that were not durable"),
            (self.crashes_in_recovery, "crashes in recovery"),
            (self.segments_recycled, "recycled segments"),
            (self.full, "full disks"),
            (self.healed, "disks that have space again"),
            (self.stuck, "units that a full disk did not take"),
            (self.poisoned, "poisoned logs"),
            (self.empty_starts, "starts without a log"),
        ];
        all.iter().filter(|(count, _)| *count == 0).map(|(_, name)| *name).collect()
    }
}

/// One disk and what should be on it.
struct World {
    disk: SimDisk,
    rng: Rng,
    /// What was committed: the unit with Lsn n is at n - 1.
    units: Vec<Vec<u8>>,
    /// How many of them have been durable, or shown by a recovery.
    kept: u64,
    /// What a snapshot has.
    snapshot: Lsn,
    capacity: Option<u64>,
    was_closed: bool,
    reached: Reached,
}

/// What is wrong with the log.
type Verdict = Result<(), String>;

impl World {
    fn new(seed: u64) -> World {
        World {
            disk: SimDisk::new(seed),
            rng: Rng::seeded(seed ^ 0xda7a),
            units: Vec::new(),
            kept: 0,
            snapshot: Lsn::NONE,
            capacity: None,
            was_closed: false,
            reached: Reached::default(),
        }
    }

    /// From a start to a crash, a kill or a clean end.
    fn live(&mut self, actions: u64, faults: Faults) -> Verdict {
        let faults = Faults { capacity: self.capacity, sync_time: Duration::from_micros(100), ..faults };
        self.disk.set_faults(faults);
        match self.start()? {
            Some(log) => self.work(log, actions)?,
            None => self.reached.crashes_in_recovery += u64::from(self.disk.is_off()),
        }
        // What ends a life between two operations is the power, or kill -9.
        if self.rng.below(3) == 0 {
            self.disk.kill();
            self.reached.kills += 1;
        } else {
            self.disk.crash();
            self.reached.crashes += 1;
        }
        Ok(())
    }

    /// Recovers the log and compares it; `None` if the disk does not let it.
    fn start(&mut self) -> Result<Option<Log>, String> {
        let disk: Arc<dyn Disk> = Arc::new(self.disk.clone());
        let recovered = Directory::open(disk, Path::new(DIRECTORY), ID)
            .and_then(|directory| Recovery::open(directory, self.snapshot))
            .and_then(|mut recovery| {
                let found = read_units(&mut recovery)?;
                Ok((recovery, found))
            });
        let (recovery, found) = match recovered {
            Ok(recovered) => recovered,
            Err(LogError::Io { .. }) => return Ok(None),
            Err(error) => return Err(format!("refused after a mere crash: {error}")),
        };
        let end = recovery.end().ok_or("no end")?.clone();
        self.compare(&found, &end)?;
        self.count(&recovery, &found, &end)?;
        // From here on a segment may be there that nobody has closed.
        self.was_closed = false;
        match recovery.finish(OPTIONS, Arc::new(self.disk.clone()), Box::new(|| {})) {
            Ok(log) => {
                let last = end.lsn.get();
                self.reached.lost_unsynced_units += self.units.len() as u64 - last;
                self.reached.recovered_units += found.len() as u64;
                self.units.truncate(last as usize);
                self.kept = last;
                if (log.durable().get(), log.written().get()) != (last, last) {
                    return Err(format!("recovered {last}, then durable is {}", log.durable()));
                }
                Ok(Some(log))
            }
            Err(LogError::Io { .. }) => Ok(None),
            Err(error) => Err(format!("refused when it was opened: {error}")),
        }
    }

    fn compare(&self, found: &[(u64, Vec<u8>)], end: &End) -> Verdict {
        let first = self.snapshot.get() + 1;
        for ((lsn, effects), expected) in found.iter().zip(first..) {
            if *lsn != expected {
                return Err(format!("Lsn {lsn} where {expected} comes next"));
            }
            match self.units.get(*lsn as usize - 1) {
                Some(unit) if unit == effects => {}
                Some(_) => return Err(format!("another unit at Lsn {lsn}")),
                None => return Err(format!("Lsn {lsn} was invented")),
            }
        }
        let last = self.snapshot.get() + found.len() as u64;
        if last < self.kept {
            return Err(format!("{} had been durable, {last} is left", self.kept));
        }
        if self.was_closed && (!end.is_clean || end.torn.is_some() || last < self.units.len() as u64) {
            return Err(format!("was closed with {} units, and ends with {end:?}", self.units.len()));
        }
        Ok(())
    }

    fn count(&mut self, recovery: &Recovery, found: &[(u64, Vec<u8>)], end: &End) -> Verdict {
        let reached = &mut self.reached;
        reached.empty_starts += u64::from(found.is_empty());
        if let Some(torn) = &end.torn {
            reached.torn_tails += 1;
            reached.torn_with_blocks_behind += u64::from(torn.later_frames > 0);
        }
        let (path, offset) = recovery.position();
        let mut bytes = Vec::new();
        if let Ok(file) = self.disk.open(&path)
            && read_all(&*file, &mut bytes).is_ok()
            && let Some(number) = bytes.get(offset as usize + 16..offset as usize + 24)
        {
            let segment = u64::from_le_bytes(number.try_into().map_err(|_| "no number")?);
            let place = Place { directory: ID, segment, offset };
            let is_stale = Frame::read(&bytes[offset as usize..], &place).is_some();
            reached.stale_blocks_at_the_end += u64::from(is_stale && offset.is_multiple_of(ALIGN));
        }
        Ok(())
    }

    fn work(&mut self, log: Log, actions: u64) -> Verdict {
        let mut buffer = log.buffer();
        for _ in 0..actions {
            let (state, durable) = (log.state(), log.durable());
            match self.rng.below(20) {
                0..9 => buffer = self.commit(&log, buffer),
                9..11 => log.step(),
                11..15 => {
                    let began = self.disk.operations();
                    log.do_chore();
                    let renames = self.disk.trace(began).iter().filter(|event| event.operation == "rename").count();
                    self.reached.segments_recycled += u64::from(renames == 2);
                }
                15 => self.disk.advance(Duration::from_millis(400)),
                16 => self.cut(&log),
                17 => {
                    let policies = [SyncPolicy::Always, SyncPolicy::EverySec, SyncPolicy::No];
                    let _ = log.set_policy(policies[self.rng.below(3) as usize]);
                }
                18 => {
                    if log.drain().is_ok() && log.durable().get() < self.units.len() as u64 {
                        return Err("drained, and not durable".to_owned());
                    }
                }
                _ => self.fill_or_clear(),
            }
            if log.durable() < durable || log.durable() > log.written() {
                return Err(format!("durable went from {durable} to {} of {}", log.durable(), log.written()));
            }
            if state == State::Poisoned && log.durable() > durable {
                return Err("something became durable in a poisoned log".to_owned());
            }
            self.kept = self.kept.max(log.durable().get());
            self.reached.poisoned += u64::from(state != State::Poisoned && log.state() == State::Poisoned);
            self.reached.full += u64::from(state == State::Good && log.state() == State::Full);
            self.reached.healed += u64::from(state == State::Full && log.state() == State::Good);
            self.reached.stuck += u64::from(state == State::Full && log.backlog_bytes() > 0);
            if self.disk.is_off() {
                return Ok(());
            }
        }
        if self.rng.below(3) == 0 && log.close().is_ok() {
            self.kept = self.units.len() as u64;
            self.was_closed = true;
            self.reached.clean_ends += 1;
        }
        Ok(())
    }

    fn commit(&mut self, log: &Log, buffer: Vec<u8>) -> Vec<u8> {
        // The engine refuses what would change data; what was running when the disk filled up still comes.
        if log.state() == State::Full && self.rng.below(4) > 0 {
            return buffer;
        }
        let first = self.units.len();
        for _ in 0..=self.rng.below(4) {
            let len = if self.rng.below(10) == 0 { self.rng.below(6000) } else { self.rng.below(200) };
            let unit = (0..len.div_ceil(8)).flat_map(|_| self.rng.next_u64().to_le_bytes()).collect();
            self.units.push(unit);
        }
        let how = if self.rng.below(2) == 0 { Commit::InPlace } else { Commit::HandOver };
        log.commit(tail(buffer, Lsn::new(first as u64 + 1), &self.units[first..]), how)
    }

    /// A snapshot is complete: of something durable, or else a crash would leave it ahead of the log.
    fn cut(&mut self, log: &Log) {
        let durable = log.durable().get();
        let lsn = self.snapshot.get() + self.rng.below(durable - self.snapshot.get() + 1);
        self.snapshot = Lsn::new(lsn);
        log.cut(self.snapshot);
    }

    /// Others use up the disk, or give it back.
    fn fill_or_clear(&mut self) {
        let spare = self.rng.below(20 * 1024);
        self.capacity = match self.capacity {
            None => Some(self.disk.used_bytes() + spare),
            Some(_) => None,
        };
        self.disk.set_capacity(self.capacity);
    }
}

fn read_units(recovery: &mut Recovery) -> Result<Vec<(u64, Vec<u8>)>, LogError> {
    let mut found = Vec::new();
    while let Some(block) = recovery.next_block()? {
        found.extend(block.units().map(|unit| (unit.lsn.get(), unit.effects.to_vec())));
    }
    Ok(found)
}

/// A life that the power ends before its operation `crash_at`, a life before that so that there is something to recover, one
/// behind it with whatever faults the seed has, and a start to see what is left. Answers whether the first crash came, too.
fn run(seed: u64, crash_at: u64) -> Result<(World, bool), String> {
    let mut world = World::new(seed);
    let mut lives = || {
        let actions = 20 + world.rng.below(60);
        world.live(actions, Faults::default())?;
        let crash_at = world.disk.operations() + crash_at;
        world.live(60, Faults { crash_at: Some(crash_at), ..Faults::default() })?;
        let crashed = world.disk.operations() > crash_at;
        let at = Some(world.disk.operations() + world.rng.below(120));
        let faults = match world.rng.below(3) {
            0 => Faults { fail_at: at, ..Faults::default() },
            1 => Faults { crash_at: at, ..Faults::default() },
            _ => Faults::default(),
        };
        world.live(40, faults)?;
        world.capacity = None;
        world.live(0, Faults::default())?;
        Ok(crashed)
    };
    let crashed = lives().map_err(|error: String| format!("seed {seed}, crash at {crash_at}: {error}"))?;
    Ok((world, crashed))
}

/// The power fails before each operation of a life, for each of these seeds.
fn crash_everywhere(seeds: Range<u64>) -> Result<Reached, String> {
    let mut reached = Reached::default();
    for seed in seeds {
        for crash_at in 0.. {
            let (world, crashed) = run(seed, crash_at)?;
            reached.add(&world.reached);
            if !crashed {
                break;
            }
        }
    }
    Ok(reached)
}

impl Reached {
    fn add(&mut self, other: &Reached) {
        self.crashes += other.crashes;
        self.kills += other.kills;
        self.clean_ends += other.clean_ends;
        self.recovered_units += other.recovered_units;
        self.torn_tails += other.torn_tails;
        self.torn_with_blocks_behind += other.torn_with_blocks_behind;
        self.stale_blocks_at_the_end += other.stale_blocks_at_the_end;
        self.lost_unsynced_units += other.lost_unsynced_units;
        self.crashes_in_recovery += other.crashes_in_recovery;
        self.segments_recycled += other.segments_recycled;
        self.full += other.full;
        self.healed += other.healed;
        self.stuck += other.stuck;
        self.poisoned += other.poisoned;
        self.empty_starts += other.empty_starts;
    }
}

#[test]
fn crashes_lose_nothing_that_was_durable_and_invent_nothing() {
    let reached = crash_everywhere(0..SEEDS).unwrap_or_else(|error| panic!("{error}"));
    println!("{reached:?}");
    assert!(reached.crashes > 2_000, "{reached:?}");
    assert!(reached.missing().is_empty(), "not reached: {:?}", reached.missing());
}

/// What the simulation says about the log with this bug in it.
fn with(bug: Bug) -> String {
    plant(Some(bug));
    let found = crash_everywhere(0..SEEDS);
    plant(None);
    found.expect_err("the bug was not found")
}

#[test]
fn a_sync_that_is_left_out_is_found() {
    let error = with(Bug::NoSync);
    // The log may notice by itself, when a later block says that the lost one had been durable.
    assert!(error.contains("had been durable") || error.contains("refused after a mere crash"), "{error}");
}

#[test]
fn a_segment_number_that_is_not_checked_is_found() {
    let error = with(Bug::NoSegmentNumber);
    assert!(error.contains("refused after a mere crash"), "{error}");
}

#[test]
fn a_recovered_tail_that_is_not_copied_is_found() {
    let error = with(Bug::NoCopyOfTheTail);
    assert!(error.contains("had been durable") || error.contains("refused after a mere crash"), "{error}");
}

#[test]
fn a_seed_repeats_its_run() {
    for seed in 0..20 {
        let trace = || run(seed, 30).map(|(world, _)| world.disk.trace(0)).unwrap();
        assert_eq!(trace(), trace());
    }
}
