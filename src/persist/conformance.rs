//! Judges every kind of journal by the contract of [`journal`](super::journal).
//!
//! A [`Kind`] makes a journal on a simulated disk and gives its threads time to work. Each test runs for all kinds.

use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use super::journal::{Change, Journal, Keeper};
use super::tail::{Tail, UnitOrigin};
use crate::base::lsn::Lsn;
use crate::log::directory::{Directory, DirectoryId};
use crate::log::follow::{ReadError, UnitReader};
use crate::log::group_commit::{Commit, Options, State, SyncPolicy};
use crate::log::scan::Recovery;
use crate::log::sim::{Faults, SimDisk};

/// A kind of journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// The journal of one machine, with the threads that write and prepare files.
    Local,
    /// The journal of one machine without threads: the caller does their work.
    LocalWithoutThreads,
}

const KINDS: [Kind; 2] = [Kind::Local, Kind::LocalWithoutThreads];

/// Small segments, so that a test passes many of them.
const OPTIONS: Options = Options {
    policy: SyncPolicy::Always,
    segment_bytes: 16 * 1024,
    first_segment_bytes: 16 * 1024,
    prepared_segments: 1,
    reserve_bytes: 8 * 1024,
    may_wait_for_space: true,
};

/// A journal under test, and the effects of its units: those of unit 1 first.
struct Bench {
    kind: Kind,
    disk: SimDisk,
    journal: Journal,
    tail: Tail,
    appended: Vec<Vec<u8>>,
}

impl Bench {
    fn new(kind: Kind, policy: SyncPolicy) -> Bench {
        let disk = SimDisk::new(7);
        let directory = Directory::open(Arc::new(disk.clone()), Path::new("/journal"), DirectoryId::new([1; 16]));
        let recovery = Recovery::open(directory.expect("nobody has it"), Lsn::NONE).expect("it is empty");
        let options = Options { policy, ..OPTIONS };
        let mut log = recovery.finish(options, Arc::new(disk.clone()), Box::new(|| {})).expect("there is space");
        if kind == Kind::Local {
            log.start().expect("there are threads");
        }
        let tail = Tail::new(log.buffer());
        Bench { kind, disk, journal: Journal::new(Keeper::Local(log), Lsn::NONE), tail, appended: Vec::new() }
    }

    /// Appends a unit of this many bytes, and returns its Lsn.
    fn append(&mut self, bytes: usize, how: Commit) -> Lsn {
        let number = self.appended.len() as u64 + 1;
        let effects: Vec<u8> = number.to_be_bytes().into_iter().cycle().take(bytes).collect();
        self.tail.append(UnitOrigin::Command, &effects, 1_000);
        self.appended.push(effects);
        self.journal.append(&mut self.tail, how);
        Lsn::new(number)
    }

    /// Gives the journal time to work.
    fn work(&self) {
        match self.kind {
            Kind::Local => thread::sleep(Duration::from_millis(1)),
            Kind::LocalWithoutThreads => {
                self.journal.local().expect("it is on this machine").nudge();
                while self.journal.local().expect("it is on this machine").do_chore() {}
            }
        }
    }

    /// Lets the journal work until `is_done`.
    fn work_until(&self, what: &str, is_done: impl Fn(&Journal) -> bool) {
        for _ in 0..20_000 {
            if is_done(&self.journal) {
                return;
            }
            self.work();
        }
        panic!("{:?}: {what}: safe is {}", self.kind, self.journal.safe());
    }

    /// Appends many units of different sizes, which fill several segments.
    fn append_many(&mut self) {
        for at in 0..60 {
            let how = if at % 3 == 0 { Commit::InPlace } else { Commit::HandOver };
            self.append(1 + at * 37 % 2_000, how);
            self.work();
        }
        self.work_until("all units become safe", |journal| journal.is_safe());
    }

    /// Reads all units after `lsn` and compares them with those that were appended. Returns the last one read.
    fn check_read(&self, lsn: Lsn) -> Lsn {
        let mut reader = self.read_after(lsn).unwrap_or_else(|error| panic!("{:?}: {error}", self.kind));
        self.check_rest(&mut reader, lsn)
    }

    fn read_after(&self, lsn: Lsn) -> Result<UnitReader, ReadError> {
        self.journal.source().expect("it is on this machine").read_after(lsn, Lsn::MAX)
    }

    fn check_rest(&self, reader: &mut UnitReader, lsn: Lsn) -> Lsn {
        let mut last = lsn;
        while let Some(block) = reader.next_block().unwrap_or_else(|error| panic!("{:?}: {error}", self.kind)) {
            for unit in block.units() {
                assert_eq!(unit.lsn, last.next(), "{:?}: units come in order", self.kind);
                assert!(unit.effects == self.appended[last.get() as usize], "{:?}: unit {}", self.kind, unit.lsn);
                last = unit.lsn;
            }
        }
        assert_eq!(last, reader.until().max(lsn), "{:?}: the reader reaches its end", self.kind);
        last
    }
}

fn lsn(number: u64) -> Lsn {
    Lsn::new(number)
}

#[test]
fn what_is_read_after_an_lsn_is_what_was_appended() {
    for kind in KINDS {
        let mut bench = Bench::new(kind, SyncPolicy::Always);
        assert_eq!(bench.check_read(Lsn::NONE), Lsn::NONE, "an empty journal has no units");
        bench.append_many();
        assert!(bench.journal.local().expect("it is on this machine").segments() > 2, "several segments are read");
        for from in [0, 1, 17, 59, 60, 1_000] {
            assert_eq!(bench.check_read(lsn(from)), lsn(from.max(60)), "{kind:?}");
        }
    }
}

#[test]
fn a_reader_goes_on_with_what_is_appended_later() {
    for kind in KINDS {
        let mut bench = Bench::new(kind, SyncPolicy::Always);
        let mut reader = bench.read_after(Lsn::NONE).expect("it is empty");
        let mut last = Lsn::NONE;
        for round in 0..60 {
            // Some of it lies in one segment, some spans several.
            for at in 0..1 + round % 13 {
                bench.append(1 + at * 97 % 3_000, Commit::HandOver);
            }
            bench.work();
            reader.go_on_until(Lsn::MAX);
            last = bench.check_rest(&mut reader, last);
        }
        bench.work_until("all units become safe", |journal| journal.is_safe());
        reader.go_on_until(Lsn::MAX);
        assert_eq!(bench.check_rest(&mut reader, last), lsn(bench.appended.len() as u64), "{kind:?}");
    }
}

#[test]
fn a_unit_is_safe_only_when_the_disk_has_it_and_safe_only_grows() {
    for kind in KINDS {
        let mut bench = Bench::new(kind, SyncPolicy::Always);
        bench.disk.hold(Some("sync"));
        let first = bench.append(100, Commit::HandOver);
        if kind == Kind::Local {
            let is_stuck = || bench.disk.is_awaited("sync", "");
            bench.work_until("the thread syncs", |_| is_stuck());
        }
        assert!(bench.journal.safe() < first, "{kind:?}");
        assert_eq!(bench.check_read(Lsn::NONE), Lsn::NONE, "{kind:?}: a unit that could be lost is shown to nobody");
        bench.disk.hold(None);
        bench.work_until("the unit becomes safe", |journal| journal.safe() >= first);
        let mut safe = Lsn::NONE;
        for _ in 0..50 {
            let last = bench.append(500, Commit::HandOver);
            let now = bench.journal.safe();
            assert!(safe <= now && now <= last, "{kind:?}: from {safe} to {now}, of {last}");
            assert!(bench.check_read(Lsn::NONE) <= last);
            safe = now;
        }
        bench.work_until("all units become safe", |journal| journal.is_safe());
        assert_eq!(bench.check_read(Lsn::NONE), lsn(51), "{kind:?}");
    }
}

#[test]
fn a_sync_that_was_asked_for_makes_units_durable_under_any_policy() {
    for kind in KINDS {
        for policy in [SyncPolicy::Always, SyncPolicy::EverySec, SyncPolicy::No] {
            let mut bench = Bench::new(kind, policy);
            let last = bench.append(100, Commit::HandOver);
            bench.journal.begin_sync();
            bench.work_until("the unit becomes durable", |journal| {
                journal.local().expect("it is on this machine").durable() >= last
            });
            bench.disk.crash();
            let directory =
                Directory::open(Arc::new(bench.disk.clone()), Path::new("/journal"), DirectoryId::new([1; 16]));
            let mut recovery =
                Recovery::open(directory.expect("a crash ends the lock"), Lsn::NONE).expect("it is whole");
            while recovery.next_block().expect("it is whole").is_some() {}
            assert_eq!(recovery.end().map(|end| end.lsn), Some(last), "{kind:?}, {policy:?}");
        }
    }
}

#[test]
fn what_is_cut_is_gone_and_the_rest_stays() {
    for kind in KINDS {
        let mut bench = Bench::new(kind, SyncPolicy::Always);
        bench.append_many();
        let begun = bench.read_after(Lsn::NONE).expect("all units are there");
        bench.journal.cut(lsn(40));
        for _ in 0..20 {
            bench.work();
        }
        let Err(ReadError::Gone { covered }) = bench.read_after(Lsn::NONE) else { panic!("{kind:?}") };
        assert!(Lsn::NONE < covered && covered <= lsn(40), "{kind:?}: {covered}");
        assert_eq!(bench.check_read(covered), lsn(60), "{kind:?}");
        // A reader that had begun before reads on, or learns that the units are gone: never other ones.
        let mut begun = begun;
        let mut last = Lsn::NONE;
        loop {
            match begun.next_block() {
                Ok(Some(block)) => {
                    for unit in block.units() {
                        assert!(unit.lsn == last.next() && unit.effects == bench.appended[last.get() as usize]);
                        last = unit.lsn;
                    }
                }
                Ok(None) => break assert_eq!(last, lsn(60)),
                Err(ReadError::Gone { covered }) => break assert!(last < covered, "{kind:?}"),
                Err(ReadError::Log(error)) => panic!("{kind:?}: {error}"),
            }
        }
        // Units that come later are read behind the cut, too.
        bench.append_many();
        assert_eq!(bench.check_read(lsn(50)), lsn(120), "{kind:?}");
    }
}

#[test]
fn a_full_disk_refuses_units_in_time_and_loses_none() {
    for kind in KINDS {
        let mut bench = Bench::new(kind, SyncPolicy::Always);
        bench.append(100, Commit::InPlace);
        bench.disk.set_faults(Faults { capacity: Some(bench.disk.used_bytes()), ..Faults::default() });
        let mut change = None;
        for _ in 0..2_000 {
            bench.append(200, Commit::HandOver);
            bench.work();
            change = bench.journal.follow(|_| {});
            if change.is_some() {
                break;
            }
        }
        assert_eq!((change, bench.journal.state()), (Some(Change::Full), State::Full), "{kind:?}");
        bench.disk.set_faults(Faults::default());
        for _ in 0..20_000 {
            bench.journal.local().expect("it is on this machine").nudge();
            bench.work();
            change = bench.journal.follow(|_| {});
            if change.is_some() {
                break;
            }
        }
        assert_eq!((change, bench.journal.state()), (Some(Change::Good), State::Good), "{kind:?}");
        bench.work_until("all units become safe", |journal| journal.is_safe());
        assert_eq!(bench.check_read(Lsn::NONE), lsn(bench.appended.len() as u64), "{kind:?}");
    }
}

#[test]
fn a_failed_disk_ends_the_journal_behind_the_last_safe_unit() {
    for kind in KINDS {
        let mut bench = Bench::new(kind, SyncPolicy::Always);
        let safe = bench.append(100, Commit::InPlace);
        bench.work_until("the unit becomes safe", |journal| journal.is_safe());
        bench.disk.set_faults(Faults { fail_at: Some(bench.disk.operations()), ..Faults::default() });
        bench.append(100, Commit::HandOver);
        bench.work_until("the failure is noticed", |journal| {
            journal.local().expect("it is on this machine").state() == State::Poisoned
        });
        assert_eq!(bench.journal.follow(|_| {}), Some(Change::Failed { safe }), "{kind:?}");
        bench.append(100, Commit::HandOver);
        for _ in 0..20 {
            bench.work();
        }
        assert_eq!((bench.journal.safe(), bench.journal.follow(|_| {})), (safe, None), "{kind:?}");
        assert_eq!(bench.check_read(Lsn::NONE), safe, "{kind:?}: what is safe can still be read");
    }
}
