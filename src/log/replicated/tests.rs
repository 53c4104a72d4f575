//! Writes that a log refuses, and the votes and entries that it keeps on full and damaged disks.

use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::channel;

use super::entry::{Entry, Payload};
use super::log::EntryLog;
use super::mark::Mark;
use super::members::Members;
use super::members::tests::of_voters;
use super::recovery::EntryRecovery;
use super::simulation::OPTIONS;
use super::types::{Ballot, Index, Link, NodeId, Position, Term, some_owner};
use super::write::{Recovered, Write};
use crate::base::lsn::Lsn;
use crate::log::block::Damage;
use crate::log::directory::{Directory, DirectoryId};
use crate::log::disk::{Disk, RealClock, RealDisk};
use crate::log::error::LogError;
use crate::log::group_commit::State;
use crate::log::names;
use crate::log::sim::{Faults, SimDisk};
use crate::log::snapshot::writer::tests::begin;

const DIRECTORY: &str = "/data";
fn mark(index: u64, term: u64, lsn: u64, serial: u64) -> Mark {
    let at = Position { index: Index(index), term: Term(term), link: Link { lsn: Lsn::new(lsn), crc: 0 } };
    Mark { at, members: Members::default(), serial }
}

fn first() -> Mark {
    mark(1, 1, 0, 0)
}

fn open(disk: &SimDisk, snapshot: &Mark) -> Result<(Recovered, EntryLog), LogError> {
    let directory =
        Directory::open_as(some_owner(), Arc::new(disk.clone()), Path::new(DIRECTORY), DirectoryId::new([9; 16]))?;
    let mut recovery = EntryRecovery::read(directory, snapshot.clone())?;
    let found = recovery.take();
    Ok((found, recovery.finish(OPTIONS, Arc::new(disk.clone()), Box::new(|| {}))?))
}

fn write(number: u64) -> Write {
    Write { number, ballot: None, install: None, entries: Vec::new(), committed: Index(0) }
}

fn ballot(term: u64, vote: u64) -> Option<Ballot> {
    Some(Ballot { term: Term(term), vote: NodeId::new(vote) })
}

fn start(index: u64, term: u64) -> Entry {
    Entry { index: Index(index), term: Term(term), payload: Payload::Start }
}

/// Returns a disk with the log of one ballot, of term 3, and the entries 2 to 9.
fn written() -> (SimDisk, EntryLog) {
    written_on(SimDisk::new(1))
}

fn written_on(disk: SimDisk) -> (SimDisk, EntryLog) {
    let (_, log) = open(&disk, &first()).unwrap();
    let entries = (2..=9).map(|index| start(index, 3)).collect();
    log.write(Write { ballot: ballot(3, 1), entries, ..write(1) });
    assert_eq!((log.step(), log.durable()), (State::Good, 1));
    (disk, log)
}

fn segment(number: u64) -> std::path::PathBuf {
    Path::new(DIRECTORY).join(names::segment(number))
}

#[test]
fn a_vote_outlives_its_log_on_a_full_disk() {
    let (disk, log) = written();
    drop(log);
    disk.crash();
    // The file of a snapshot is durable, its install is not; the disk is full at the start.
    let newer = mark(50, 6, 40, 1);
    disk.set_faults(Faults { capacity: Some(disk.used_bytes()), ..Faults::default() });
    let (found, log) = open(&disk, &newer).unwrap();
    assert_eq!((found.ballot.term, found.covered.len(), found.entries.len()), (Term(6), 0, 0));
    while log.do_chore() {}
    drop(log);
    disk.kill();
    disk.set_faults(Faults::default());
    assert!(disk.list(Path::new(DIRECTORY)).unwrap().contains(&names::segment(1)), "the old log is still there");
    let (found, log) = open(&disk, &mark(50, 2, 40, 1)).unwrap();
    assert_eq!(Some(found.ballot), ballot(3, 1));
    log.write(Write { entries: vec![start(51, 3)], committed: Index(51), ..write(1) });
    assert_eq!((log.step(), log.durable()), (State::Good, 1));
}

#[test]
fn a_log_that_is_gone_is_missed() {
    let (disk, log) = written();
    log.write(Write { install: Some(mark(50, 3, 40, 1)), committed: Index(50), ..write(2) });
    assert_eq!(log.step(), State::Good);
    drop(log);
    for name in disk.list(Path::new(DIRECTORY)).unwrap() {
        if names::segment_number(&name).is_some() {
            disk.remove(&Path::new(DIRECTORY).join(name)).unwrap();
        }
    }
    assert!(matches!(open(&disk, &mark(50, 3, 40, 1)), Err(LogError::Missing { .. })));
}

#[test]
fn a_new_log_needs_space_for_its_first_segment() {
    let disk = SimDisk::new(1);
    drop(open(&disk, &first()).unwrap());
    let disk = SimDisk::new(1);
    disk.set_faults(Faults { capacity: Some(200), ..Faults::default() });
    let error = open(&disk, &first()).map(|_| ()).unwrap_err();
    assert!(matches!(&error, LogError::Io { source, .. } if crate::log::disk::is_full(source)), "{error}");
}

#[test]
fn a_damaged_header_takes_no_vote_and_no_cut_back() {
    let header_of = |disk: &SimDisk, number| {
        disk.crash();
        disk.flip(&segment(number), 60, 1);
        let error = open(disk, &first()).map(|_| ()).unwrap_err();
        assert!(matches!(error, LogError::Corrupt { offset: 0, damage: Damage::Header, .. }), "{error}");
    };
    let (disk, log) = written();
    drop(log);
    header_of(&disk, 1);
    let (disk, log) = written();
    log.write(Write { ballot: ballot(9, 2), entries: vec![start(3, 9)], ..write(2) });
    assert_eq!((log.step(), log.segments()), (State::Good, 2));
    drop(log);
    header_of(&disk, 2);
}

#[test]
fn writes_that_no_core_asks_for_are_refused() {
    let refused = |wrong: Write| {
        let (disk, log) = written();
        log.write(Write { committed: Index(4), entries: vec![start(10, 3)], ..write(2) });
        assert_eq!(log.step(), State::Good);
        log.write(wrong);
        assert_eq!((log.step(), log.durable()), (State::Poisoned, 2));
        assert_eq!(log.close(), State::Poisoned);
        disk.crash();
        let (found, _) = open(&disk, &first()).unwrap();
        assert_eq!((Some(found.ballot), found.committed.at.index, found.entries.len()), (ballot(3, 1), Index(4), 6));
    };
    refused(Write { ballot: ballot(2, 1), ..write(3) });
    refused(Write { ballot: ballot(3, 2), ..write(3) });
    refused(Write { entries: vec![start(4, 3)], ..write(3) });
    refused(Write { entries: vec![start(12, 3)], ..write(3) });
    refused(Write { entries: vec![start(11, 4)], ..write(3) });
    refused(Write { entries: vec![start(11, 2)], ..write(3) });
    refused(Write { install: Some(mark(4, 3, 0, 1)), committed: Index(4), ..write(3) });
}

#[test]
fn nothing_is_cut_behind_a_snapshot() {
    let (_, log) = written();
    log.write(Write { install: Some(mark(50, 3, 0, 1)), entries: vec![start(5, 3)], ..write(2) });
    assert_eq!(log.step(), State::Poisoned);
    let (disk, log) = written();
    drop(log);
    let (found, log) = open(&disk, &mark(8, 3, 0, 1)).unwrap();
    assert_eq!(found.committed.at.index, Index(8));
    log.write(Write { entries: vec![start(5, 3)], ..write(3) });
    assert_eq!(log.step(), State::Poisoned);
}

#[test]
fn a_snapshot_of_another_history_is_refused() {
    let (disk, log) = written();
    log.write(Write { committed: Index(9), entries: vec![start(10, 3)], ..write(2) });
    assert_eq!(log.step(), State::Good);
    drop(log);
    let error = open(&disk, &mark(8, 2, 0, 1)).map(|_| ()).unwrap_err();
    assert!(matches!(error, LogError::Corrupt { damage: Damage::History, .. }), "{error}");
}

#[test]
fn the_greatest_index_does_no_harm() {
    let disk = SimDisk::new(1);
    let (_, log) = open(&disk, &mark(u64::MAX, 1, 0, 0)).unwrap();
    log.write(Write { ballot: ballot(3, 1), entries: vec![start(u64::MAX, 3)], ..write(1) });
    assert_eq!(log.step(), State::Poisoned);
}

#[test]
fn a_cut_that_a_start_has_seen_is_durable_even_on_a_full_disk() {
    let cut = || Write { ballot: ballot(9, 2), entries: vec![start(3, 9)], ..write(2) };
    let (disk, log) = written();
    let before = disk.operations();
    log.write(cut());
    assert_eq!(log.step(), State::Good);
    let header = disk.trace(before).iter().position(|event| event.bytes == crate::log::segment::FIELD_BYTES);
    // The process is killed when the header of the cut is written and not synced. The next start sees it. Whether a
    // power loss leaves what is not synced, is up to the disk.
    for seed in 0..20 {
        let (disk, log) = written_on(SimDisk::new(seed));
        disk.set_faults(Faults { crash_at: Some(before + header.unwrap() as u64 + 1), ..Faults::default() });
        log.write(cut());
        assert_eq!(log.step(), State::Poisoned);
        drop(log);
        disk.kill();
        disk.set_faults(Faults { capacity: Some(disk.used_bytes()), ..Faults::default() });
        let (found, log) = open(&disk, &first()).unwrap();
        assert_eq!((Some(found.ballot), found.entries.len()), (ballot(9, 2), 1));
        assert!(!log.has_segment());
        drop(log);
        disk.crash();
        disk.set_faults(Faults::default());
        let (again, _) = open(&disk, &first()).unwrap();
        assert_eq!((again.ballot, again.entries), (found.ballot, found.entries), "{seed}");
    }
}

#[test]
fn threads_write_to_a_real_disk_and_call_when_it_is_durable() {
    let dir = tempfile::tempdir().unwrap();
    let read = || {
        let directory =
            Directory::open_as(some_owner(), Arc::new(RealDisk), dir.path(), DirectoryId::new([9; 16])).unwrap();
        EntryRecovery::read(directory, first()).unwrap()
    };
    let (sender, receiver) = channel();
    let notify = Box::new(move || {
        let _ = sender.send(());
    });
    let mut log = read().finish(OPTIONS, Arc::new(RealClock::default()), notify).unwrap();
    log.start().unwrap();
    for number in 1..=100 {
        log.write(Write { ballot: ballot(3, 1), entries: vec![start(number + 1, 3)], ..write(number) });
    }
    while log.durable() < 100 {
        receiver.recv().unwrap();
    }
    log.write(Write { entries: vec![start(102, 3)], ..write(101) });
    assert_eq!(log.close(), State::Good);
    assert_eq!(read().take().entries.len(), 101);
}

/// The log is kept for followers.
#[test]
fn a_snapshot_beside_the_log_does_not_cut_it() {
    let (_, log) = written();
    let mut writer = log.snapshot(begin(7));
    let members = of_voters(&[1, 2].map(|number| NodeId::new(number).unwrap()));
    writer.finish_at(Position { index: Index(9), term: Term(3), ..Position::default() }, members, 0);
    while writer.outcome().is_none() {
        writer.step();
    }
    let done = writer.outcome().unwrap().unwrap();
    assert_eq!((done.end.mark.unwrap().serial, log.segments()), (7, 1));
}

#[test]
fn the_log_is_kept_for_followers_as_long_as_it_is_not_too_long() {
    let (_, log) = written();
    let mut last = 9;
    while log.segments() < 6 {
        log.write(Write { entries: (last + 1..=last + 100).map(|index| start(index, 3)).collect(), ..write(last) });
        last += 100;
        assert_eq!(log.step(), State::Good);
        while log.do_chore() {}
    }
    let (none, all) = (Index(0), Index(last));
    assert_eq!(log.retire(none, all, 0), 0, "no snapshot covers it");
    assert_eq!(log.retire(all, none, u64::MAX), 0, "a follower wants it");
    assert_eq!(log.retire(Index(10), all, u64::MAX), 0, "the first segment has more");
    let two = 2 * OPTIONS.segment_bytes;
    assert!(log.retire(all, none, two) > 0 && log.segments() > 1, "it is too long");
    log.retire(all, all, u64::MAX);
    assert_eq!(log.segments(), 1);
}
