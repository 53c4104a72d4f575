//! Simulation of the journal. One seed decides which units are appended, which operations fail and when the power goes,
//! so the same seed always gives the same run. After each crash the journal is recovered and compared with the appended
//! units:
//!
//! - units that had been durable, or that an earlier recovery has shown, must be there;
//! - the recovered units must be a prefix of the appended ones: whole units, in order, nothing invented;
//! - a crash alone must never look like damage.
//!
//! Snapshots are taken during the run. Their content is simply all units up to their Lsn, so the result does not depend
//! on whether a unit is read from a snapshot or from the journal. At some starts the newest snapshot is damaged, to
//! check that this is handled.
//!
//! Rare states are counted, and a run that has not reached all of them fails. Planted bugs show that it can fail.

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use super::block::{ALIGN, Frame, FrameSeed, Place};
use super::directory::{Directory, DirectoryId};
use super::disk::{Disk, is_full, read_all};
use super::error::LogError;
use super::group_commit::{Commit, Log, Options, State, SyncPolicy, tail};
use super::names;
use super::planted::{Bug, plant};
use super::reached::{reached, seeds};
use super::restore::Restore;
use super::scan::{End, TornTail};
use super::sim::{Faults, SimDisk};
use super::snapshot::writer::tests::units_of;
use super::snapshot::writer::{Begin, Sizes, SnapshotError, SnapshotWriter};
use crate::base::lsn::Lsn;
use crate::base::rng::Rng;

const DIRECTORY: &str = "/data/tidegate";
const ID: DirectoryId = DirectoryId::new([0x5a; 16]);
/// Number of seeds of the test, which make some 3,000 crashes. `SUITE_ROUNDS` says how many others to run, from
/// `SUITE_SEED` on.
const SEEDS: u64 = 12;
const OPTIONS: Options = Options {
    policy: SyncPolicy::Always,
    segment_bytes: 16 * 1024,
    first_segment_bytes: 8 * 1024,
    prepared_segments: 2,
    reserve_bytes: 8 * 1024,
    may_wait_for_space: true,
};

const SIZES: Sizes = Sizes { frame_bytes: 4 * 1024, sync_bytes: 16 * 1024, unit_bytes: 1024 * 1024 };

reached! {
    crashes "crashes"
    kills "kills"
    clean_ends "clean ends"
    recovered_units "recovered units"
    torn_tails "torn tails"
    torn_with_blocks_behind "torn blocks with whole ones behind them"
    stale_blocks_at_the_end "recycled segments with old blocks at the journal's end"
    lost_unsynced_units "lost units that were not durable"
    crashes_in_recovery "crashes in recovery"
    segments_recycled "recycled segments"
    segments_left_behind "old segments that could not be removed or recycled"
    full "full disks"
    healed "disks with space again"
    stuck "units rejected by a full disk"
    poisoned "poisoned journals"
    empty_starts "starts without a journal"
    snapshots "complete snapshots"
    snapshots_read "starts from a snapshot"
    snapshots_ahead "snapshots ahead of the durable part of the journal"
    snapshots_failed "snapshots ended by a failing disk"
    snapshots_full "snapshots ended by a full disk"
    snapshots_abandoned "abandoned snapshots"
    snapshots_cut_off "snapshots interrupted by a crash"
    crashes_before_the_cut "crashes between the name of a snapshot and the cut"
    crashes_in_the_cut "crashes between the cut of two segments"
    substitutes "damaged snapshots with an intact substitute"
    no_substitutes "damaged snapshots without an intact substitute"
}

/// One disk and its expected contents.
struct World {
    disk: SimDisk,
    rng: Rng,
    /// The committed units: the unit with Lsn n is at n - 1.
    units: Vec<Vec<u8>>,
    /// Number of units that have been durable, or shown by a recovery.
    kept: u64,
    /// Lsn of the newest complete snapshot.
    snapshot: Lsn,
    cut: Cut,
    capacity: Option<u64>,
    was_closed: bool,
    /// The disk was limited in the life that closed the journal. Without space, or without a segment made since, only
    /// the mark of the clean end is missing.
    may_lack_mark: bool,
    /// The torn tail that the last start found. Without space for a segment, it stays where it is.
    torn: Option<TornTail>,
    reached: Reached,
}

/// Files that the last snapshot has cut off: those already removed, and those left.
#[derive(Clone, Copy, Default)]
struct Cut {
    gone: usize,
    left: usize,
}

/// A snapshot under way.
struct Taking {
    writer: SnapshotWriter,
    pushed: usize,
    is_finished: bool,
}

/// The data found in a directory.
struct Found {
    snapshot: Lsn,
    units: Vec<Vec<u8>>,
    end: End,
    is_substitute: bool,
}

/// The fault of the journal, if any.
type Verdict = Result<(), String>;

impl World {
    fn new(seed: u64) -> World {
        World {
            disk: SimDisk::new(seed),
            rng: Rng::seeded(seed ^ 0xda7a),
            units: Vec::new(),
            kept: 0,
            snapshot: Lsn::NONE,
            cut: Cut::default(),
            capacity: None,
            was_closed: false,
            may_lack_mark: false,
            torn: None,
            reached: Reached::default(),
        }
    }

    /// Runs one life, from a start to a crash, a kill or a clean end.
    fn live(&mut self, actions: u64, faults: Faults) -> Verdict {
        let faults = Faults { capacity: self.capacity, sync_time: Duration::from_micros(100), ..faults };
        self.disk.set_faults(faults);
        match self.start()? {
            Some(log) => self.work(log, actions)?,
            None => self.reached.crashes_in_recovery += u64::from(self.disk.is_off()),
        }
        self.reached.crashes_in_the_cut += u64::from(self.cut.gone > 0 && self.cut.left > 0);
        self.cut = Cut::default();
        // Between two operations, a life can only end by a power loss or by `kill -9`.
        if self.rng.below(3) == 0 {
            self.disk.kill();
            self.reached.kills += 1;
        } else {
            self.disk.crash();
            self.reached.crashes += 1;
        }
        Ok(())
    }

    /// Recovers the journal and compares it; `None` if the disk prevents that.
    fn start(&mut self) -> Result<Option<Log>, String> {
        self.damage_the_newest()?;
        let (restore, found) = match self.restore() {
            Ok(restored) => restored,
            Err(LogError::Io { .. }) => return Ok(None),
            Err(error) => return Err(format!("refused after a mere crash: {error}")),
        };
        if found.is_substitute {
            return Err("a snapshot was damaged by a mere crash".to_owned());
        }
        self.compare(&found)?;
        self.count(&restore, &found)?;
        // From here on there may be a segment without the mark of a clean end.
        (self.was_closed, self.may_lack_mark) = (false, self.capacity.is_some());
        self.torn.clone_from(&found.end.torn);
        match restore.finish(OPTIONS, Arc::new(self.disk.clone()), Box::new(|| {})) {
            Ok(log) => {
                let last = found.end.lsn.get();
                self.reached.lost_unsynced_units += self.units.len() as u64 - last;
                self.reached.recovered_units += found.units.len() as u64;
                self.units.truncate(last as usize);
                self.kept = last;
                self.snapshot = found.snapshot;
                if (log.durable().get(), log.written().get()) != (last, last) {
                    return Err(format!("recovered up to {last}, but durable is {}", log.durable()));
                }
                Ok(Some(log))
            }
            Err(LogError::Io { .. }) => Ok(None),
            Err(error) => Err(format!("refused when it was opened: {error}")),
        }
    }

    fn restore(&self) -> Result<(Restore, Found), LogError> {
        let disk: Arc<dyn Disk> = Arc::new(self.disk.clone());
        let mut restore = Restore::open(Directory::open(disk, Path::new(DIRECTORY), ID)?)?;
        let units = restore.effects()?;
        let end = restore.end().cloned().expect("everything has been read");
        let (snapshot, is_substitute) = (restore.snapshot(), restore.passed_over().is_some());
        Ok((restore, Found { snapshot, units, end, is_substitute }))
    }

    /// At times, damages the newest snapshot and checks the outcome: all data, or a refusal that names the snapshot.
    /// Repairs it afterwards.
    fn damage_the_newest(&mut self) -> Verdict {
        let snapshots = self.snapshots_on_disk();
        let Some(newest) = snapshots.last().filter(|_| self.rng.below(3) == 0) else { return Ok(()) };
        let path = Path::new(DIRECTORY).join(names::snapshot(*newest));
        let size = self.disk.open(&path).and_then(|file| file.size()).unwrap_or(0);
        let at = self.rng.below(size.max(1));
        self.disk.flip(&path, at, 4);
        let verdict = match self.restore() {
            Ok((_, found)) => {
                self.reached.substitutes += u64::from(found.is_substitute);
                let is_reported = found.is_substitute || size == 0;
                if is_reported { self.compare(&found) } else { Err(format!("silence about {}", path.display())) }
            }
            Err(LogError::Io { .. }) => Ok(()),
            Err(LogError::Snapshot { path: named, .. }) if named == path => {
                self.reached.no_substitutes += 1;
                Ok(())
            }
            Err(error) => Err(format!("{} is damaged, but the error reported is: {error}", path.display())),
        };
        self.disk.flip(&path, at, 4);
        verdict
    }

    fn snapshots_on_disk(&self) -> Vec<Lsn> {
        let names = self.disk.list(Path::new(DIRECTORY)).unwrap_or_default();
        let mut snapshots: Vec<Lsn> = names.iter().filter_map(|name| names::snapshot_lsn(name)).collect();
        snapshots.sort_unstable();
        snapshots
    }

    fn compare(&self, found: &Found) -> Verdict {
        let last = found.units.len() as u64;
        if found.end.lsn.get() != last {
            return Err(format!("{last} units, but the last is Lsn {}", found.end.lsn));
        }
        match self.units.get(..found.units.len()) {
            Some(units) if units == found.units => {}
            Some(_) => return Err("the units are not those that were appended".to_owned()),
            None => return Err(format!("Lsn {last} was invented")),
        }
        if last < self.kept {
            return Err(format!("{} had been durable, but only {last} is left", self.kept));
        }
        if found.snapshot < self.snapshot && !found.is_substitute {
            return Err(format!("the snapshot of Lsn {} was complete, but {} is read", self.snapshot, found.snapshot));
        }
        let is_marked = found.end.is_clean || self.may_lack_mark;
        let is_newly_torn = found.end.torn.is_some() && !(self.may_lack_mark && found.end.torn == self.torn);
        if self.was_closed && (!is_marked || is_newly_torn || last < self.units.len() as u64) {
            return Err(format!("closed with {} units, but ends with {:?}", self.units.len(), found.end));
        }
        Ok(())
    }

    fn count(&mut self, restore: &Restore, found: &Found) -> Verdict {
        let snapshots = self.snapshots_on_disk().len() as u64;
        let reached = &mut self.reached;
        reached.empty_starts += u64::from(found.units.is_empty());
        reached.snapshots_read += u64::from(found.snapshot > Lsn::NONE);
        reached.crashes_before_the_cut += u64::from(snapshots > 1);
        if let Some(torn) = &found.end.torn {
            reached.torn_tails += 1;
            reached.torn_with_blocks_behind += u64::from(torn.later_frames > 0);
        }
        let (path, offset) = restore.position().find(restore.directory());
        let mut bytes = Vec::new();
        if let Ok(file) = self.disk.open(&path)
            && read_all(&*file, &mut bytes, u64::MAX).is_ok()
            && let Some(number) = bytes.get(offset as usize + 16..offset as usize + 24)
        {
            let segment = u64::from_le_bytes(number.try_into().map_err(|_| "no number")?);
            let place = Place { seed: FrameSeed::of(ID), segment, offset };
            let is_stale = Frame::read(&bytes[offset as usize..], &place).is_some();
            reached.stale_blocks_at_the_end += u64::from(is_stale && offset.is_multiple_of(ALIGN));
        }
        Ok(())
    }

    fn work(&mut self, log: Log, actions: u64) -> Verdict {
        let mut buffer = log.buffer();
        let mut taking = None;
        for _ in 0..actions {
            let (state, durable) = (log.state(), log.durable());
            match self.rng.below(24) {
                0..9 => buffer = self.commit(&log, buffer),
                9..11 => log.step(),
                11..15 => {
                    let began = self.disk.operations();
                    log.do_chore();
                    let done =
                        |name: &str| self.disk.trace(began).iter().filter(|event| event.operation == name).count();
                    let (renames, removes) = (done("rename"), done("remove"));
                    self.reached.segments_recycled += u64::from(renames == 2);
                    let has_failed =
                        self.disk.trace(began).iter().any(|event| event.failed == Some(std::io::ErrorKind::Other));
                    self.reached.segments_left_behind += u64::from(has_failed && log.state() == State::Good);
                    if (renames == 2 || removes == 1) && self.cut.left > 0 {
                        self.cut = Cut { gone: self.cut.gone + 1, left: self.cut.left - 1 };
                    }
                }
                15 => self.disk.advance(Duration::from_millis(400)),
                16 | 20..24 => taking = self.snapshot(&log, taking)?,
                17 => {
                    let policies = [SyncPolicy::Always, SyncPolicy::EverySec, SyncPolicy::No];
                    let _ = log.set_policy(policies[self.rng.below(3) as usize]);
                }
                18 => {
                    if log.drain().is_ok() && log.durable().get() < self.units.len() as u64 {
                        return Err("drained, but not durable".to_owned());
                    }
                }
                _ => self.fill_or_clear(),
            }
            if log.durable() < durable || log.durable() > log.written() {
                return Err(format!("durable went from {durable} to {} of {}", log.durable(), log.written()));
            }
            if state == State::Poisoned && log.durable() > durable {
                return Err("a unit became durable in a poisoned journal".to_owned());
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
        drop(taking);
        if self.rng.below(3) == 0 && log.close().is_ok() {
            self.kept = self.units.len() as u64;
            self.was_closed = true;
            self.reached.clean_ends += 1;
        }
        Ok(())
    }

    fn commit(&mut self, log: &Log, buffer: Vec<u8>) -> Vec<u8> {
        // The engine refuses commands that would change data, but units of commands that were running still come.
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

    /// Begins, continues, ends or abandons a snapshot.
    fn snapshot(&mut self, log: &Log, taking: Option<Taking>) -> Result<Option<Taking>, String> {
        let begin = || Begin { serial: self.disk.operations(), time_ms: 0, sizes: SIZES, notify: Box::new(|| {}) };
        let mut taking =
            taking.unwrap_or_else(|| Taking { writer: log.snapshot(begin()), pushed: 0, is_finished: false });
        if !taking.is_finished {
            self.push(&mut taking);
        }
        if self.rng.below(20) == 0 {
            taking.writer.abandon();
        }
        let segments = log.segments();
        let durable = log.durable();
        taking.writer.step();
        match taking.writer.outcome() {
            None => return Ok(Some(taking)),
            Some(Ok(done)) => {
                self.reached.snapshots += 1;
                self.reached.snapshots_ahead += u64::from(done.end.lsn > durable);
                self.snapshot = done.end.lsn;
                self.kept = self.kept.max(done.end.lsn.get());
                self.cut = Cut { gone: 0, left: self.cut.left + segments - log.segments() };
            }
            Some(Err(SnapshotError::Abandoned)) => self.reached.snapshots_abandoned += 1,
            Some(Err(SnapshotError::LogFirst { .. })) => self.reached.snapshots_full += 1,
            Some(Err(SnapshotError::Io { source, .. })) if is_full(&source) => self.reached.snapshots_full += 1,
            Some(Err(SnapshotError::Io { .. })) if self.disk.is_off() => self.reached.snapshots_cut_off += 1,
            Some(Err(SnapshotError::Io { .. })) => self.reached.snapshots_failed += 1,
            Some(Err(
                error @ (SnapshotError::NoUnits { .. }
                | SnapshotError::LongUnit { .. }
                | SnapshotError::Kind { .. }
                | SnapshotError::Overtaken { .. }),
            )) => return Err(error.to_string()),
        }
        Ok(None)
    }

    /// Hands over some more units, or all of them and the end.
    fn push(&mut self, taking: &mut Taking) {
        taking.is_finished = self.rng.below(3) == 0;
        let some = taking.pushed + self.rng.below(20) as usize;
        let until = if taking.is_finished { self.units.len() } else { self.units.len().min(some) };
        let units = &self.units[taking.pushed..until];
        taking.writer.push(units_of(units), units.len() as u32);
        taking.pushed = until;
        if taking.is_finished {
            taking.writer.finish(Lsn::new(until as u64), 0);
        }
    }

    /// Lets other programs use up the disk, or give space back.
    fn fill_or_clear(&mut self) {
        let spare = self.rng.below(20 * 1024);
        self.capacity = match self.capacity {
            None => Some(self.disk.used_bytes() + spare),
            Some(_) => None,
        };
        self.disk.set_capacity(self.capacity);
        self.may_lack_mark = true;
    }
}

/// Runs four lives. The first makes data to recover. In the second the power fails before its operation `crash_at`. The
/// third has whatever faults the seed gives. The last is a start that checks the remains. Returns whether the second
/// life did reach `crash_at`.
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

/// Lets the power fail before each operation of a life, for each of these seeds.
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

#[test]
fn crashes_lose_nothing_that_was_durable_and_invent_nothing() {
    let reached = crash_everywhere(seeds(SEEDS)).unwrap_or_else(|error| panic!("{error}"));
    println!("{reached:?}");
    assert!(reached.crashes > 2_000, "{reached:?}");
    assert!(reached.missing().is_empty(), "not reached: {:?}", reached.missing());
}

/// Returns the simulation's verdict on the journal with this bug in it.
fn with(bug: Bug) -> String {
    plant(Some(bug));
    let found = crash_everywhere(0..SEEDS);
    plant(None);
    found.expect_err("the bug was not found")
}

#[test]
fn a_sync_that_is_left_out_is_found() {
    let error = with(Bug::NoSync);
    // The journal may notice the loss itself, when a later block says that the lost one had been durable.
    assert!(error.contains("had been durable") || error.contains("refused after a mere crash"), "{error}");
}

#[test]
fn a_segment_number_that_is_not_checked_is_found() {
    let error = with(Bug::NoSegmentNumber);
    // The remains of an older segment may also show up where the snapshot before them is damaged.
    assert!(error.contains("refused after a mere crash") || error.contains("but the error reported is"), "{error}");
}

#[test]
fn a_recovered_tail_that_is_not_copied_is_found() {
    let error = with(Bug::NoCopyOfTheTail);
    // The missing units may also show up where the snapshot before them is damaged.
    assert!(
        ["had been durable", "refused after a mere crash", "but the error reported is"]
            .iter()
            .any(|why| error.contains(why)),
        "{error}"
    );
}

#[test]
fn a_snapshot_whose_bytes_are_not_synced_is_found() {
    let error = with(Bug::NoSyncOfTheSnapshot);
    assert!(error.contains("damaged by a mere crash") || error.contains("refused after a mere crash"), "{error}");
}

#[test]
fn a_cut_before_the_snapshot_is_durable_is_found() {
    let error = with(Bug::CutBeforeTheSnapshot);
    // The gap may also show up where the snapshot before it is damaged.
    assert!(
        ["refused after a mere crash", "had been durable", "are missing"].iter().any(|why| error.contains(why)),
        "{error}"
    );
}

#[test]
fn a_seed_repeats_its_run() {
    for seed in 0..20 {
        let trace = || run(seed, 30).map(|(world, _)| world.disk.trace(0)).unwrap();
        assert_eq!(trace(), trace());
    }
}
