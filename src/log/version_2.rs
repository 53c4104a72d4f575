//! Version 2 of the format, the log of a group, as originally defined: files that never change, and that every later
//! version must read.

use std::path::Path;
use std::sync::Arc;

use super::block::unit_head;
use super::directory::{Directory, DirectoryId};
use super::disk::{Disk, read_all};
use super::error::LogError;
use super::group_commit::{Options, State};
use super::identity::Owner;
use super::names;
use super::replicated::block::tests::block;
use super::replicated::entry::{Entry, Payload};
use super::replicated::log::EntryLog;
use super::replicated::mark::Mark;
use super::replicated::members::tests::{joining, of_voters};
use super::replicated::recovery::{EntryRecovery, newest_snapshot};
use super::replicated::types::{Ballot, Index, Link, NodeId, Position, Term, some_owner};
use super::replicated::write::Write;
use super::scan::Recovery;
use super::segment::HEADER_BYTES;
use super::sim::SimDisk;
use super::snapshot::reader::SnapshotReader;
use super::snapshot::writer::tests::begin;
use super::snapshot::writer::{LogBeside, SnapshotError, SnapshotWriter};
use crate::base::lsn::Lsn;

const FILES: [&[u8]; 3] = [
    include_bytes!("fixtures/v2/log-0000000000000001.seg"),
    include_bytes!("fixtures/v2/log-0000000000000002.seg"),
    include_bytes!("fixtures/v2/log-0000000000000003.seg"),
];

fn node(number: u64) -> NodeId {
    NodeId::new(number).unwrap()
}

fn directory(disk: &SimDisk) -> Directory {
    let disk: Arc<dyn Disk> = Arc::new(disk.clone());
    Directory::open_as(some_owner(), disk, Path::new("/log"), DirectoryId::new([0x11; 16])).unwrap()
}

fn read(disk: &SimDisk) -> EntryRecovery {
    EntryRecovery::read(directory(disk), Mark::first(of_voters(&[node(1), node(2), node(3)]))).unwrap()
}

fn open(disk: &SimDisk) -> EntryLog {
    let options = Options { first_segment_bytes: HEADER_BYTES + 1024, ..Options::default() };
    read(disk).finish(options, Arc::new(disk.clone()), Box::new(|| {})).unwrap()
}

fn ballot(term: u64, vote: u64) -> Ballot {
    Ballot { term: Term(term), vote: NodeId::new(vote) }
}

fn entry(index: u64, term: u64, payload: Payload) -> Entry {
    Entry { index: Index(index), term: Term(term), payload }
}

fn write(log: &EntryLog, number: u64, ballot: Option<Ballot>, entries: Vec<Entry>, committed: u64) {
    log.write(Write { number, ballot, install: None, entries, committed: Index(committed) });
    assert_eq!((log.step(), log.durable()), (State::Good, number));
}

const SNAPSHOT: &[u8] = include_bytes!("fixtures/v2/snapshot-0000000000000003.snap");

/// What the snapshot covers: everything up to the last block.
fn mark() -> Mark {
    let Payload::Block(last) = &entries()[3].payload else { unreachable!("it is a block") };
    let at = Position { index: Index(5), term: Term(2), link: last.link() };
    let mut members = of_voters(&[node(1), node(2), node(3)]);
    members.note(&joining(node(4)));
    members.learners.push(node(4));
    Mark { at, members, serial: 7 }
}

/// Makes the snapshot, and returns the bytes of its file.
fn snapshot() -> Vec<u8> {
    let directory = Arc::new(directory(&SimDisk::new(0)));
    let mut writer = SnapshotWriter::begin(Arc::clone(&directory), LogBeside::none(), begin(7));
    writer.push([&unit_head(1, 5, 4)[..], b"data"].concat(), 1);
    writer.finish_at(mark().at, mark().members, 1_700_000_001_000);
    while writer.outcome().is_none() {
        writer.step();
    }
    assert_eq!(writer.outcome().unwrap().unwrap().end.mark, Some(mark()));
    bytes_of(&**directory.disk(), &directory.snapshot(Lsn::new(3)))
}

fn bytes_of(disk: &dyn Disk, path: &Path) -> Vec<u8> {
    let mut bytes = Vec::new();
    read_all(&*disk.open(path).unwrap(), &mut bytes, u64::MAX).unwrap();
    bytes
}

#[test]
fn snapshots_are_written_as_version_2_defines() {
    assert!(snapshot() == SNAPSHOT);
}

/// Every node of the group can read it, in its own directory.
#[test]
fn version_2_snapshots_can_still_be_read() {
    let disk: Arc<dyn Disk> = Arc::new(SimDisk::new(0));
    let open = || Directory::open_as(some_owner(), Arc::clone(&disk), Path::new("/log"), DirectoryId::new([0x22; 16]));
    let directory = open().unwrap();
    assert_eq!(newest_snapshot(&directory).unwrap(), None);
    let path = directory.snapshot(Lsn::new(3));
    disk.create(&path).unwrap().write_at(SNAPSHOT, 0).unwrap();
    assert_eq!(newest_snapshot(&directory).unwrap(), Some(mark()));
    let mut reader = SnapshotReader::open(&directory, Lsn::new(3)).unwrap();
    assert!(reader.advance().unwrap());
    assert_eq!(reader.units().map(|unit| unit.effects.to_vec()).collect::<Vec<_>>(), [b"data"]);
    assert!(!reader.advance().unwrap());
    for at in 0..SNAPSHOT.len() {
        let mut bytes = SNAPSHOT.to_vec();
        bytes[at] ^= 1 << (at % 8);
        disk.remove(&path).unwrap();
        disk.create(&path).unwrap().write_at(&bytes, 0).unwrap();
        let read = SnapshotReader::open(&directory, Lsn::new(3)).and_then(|mut reader| {
            while reader.advance()? {}
            Ok(())
        });
        assert!(matches!(read, Err(LogError::Snapshot { .. })), "{at}: {read:?}");
    }
}

#[test]
fn a_directory_takes_snapshots_of_its_own_kind_only() {
    let writer = |owner| {
        let disk = Arc::new(SimDisk::new(0));
        let directory = Directory::open_as(owner, disk, Path::new("/log"), DirectoryId::new([1; 16])).unwrap();
        SnapshotWriter::begin(Arc::new(directory), LogBeside::none(), begin(7))
    };
    let mut of_node = writer(some_owner());
    of_node.finish(Lsn::new(3), 0);
    let mut of_server = writer(Owner::Server);
    of_server.finish_at(mark().at, mark().members, 0);
    for mut writer in [of_node, of_server] {
        writer.step();
        assert!(matches!(writer.outcome(), Some(Err(SnapshotError::Kind { .. }))));
    }
}

/// The entries of the log in the end: those of term 2, and one of term 5 in the place of another.
fn entries() -> Vec<Entry> {
    let first = block(2, Link::default(), &[b"first", b""]);
    let link = first.link();
    let second = block(2, link, &[b"third"]);
    vec![
        entry(2, 2, Payload::Start),
        entry(3, 2, Payload::Block(first)),
        entry(4, 2, Payload::Change(joining(node(4)))),
        entry(5, 2, Payload::Block(second)),
        entry(6, 5, Payload::Start),
    ]
}

/// Three starts: a reign, a kill; an entry that is not committed and a vote, a kill; a cut, a clean end.
fn written() -> SimDisk {
    let disk = SimDisk::new(0);
    let entries = entries();
    let log = open(&disk);
    write(&log, 1, Some(ballot(2, 1)), entries[..2].to_vec(), 1);
    write(&log, 2, None, entries[2..4].to_vec(), 3);
    drop(log);
    let log = open(&disk);
    let link = match &entries[3].payload {
        Payload::Block(block) => block.link(),
        _ => Link::default(),
    };
    write(&log, 1, None, vec![entry(6, 2, Payload::Block(block(2, link, &[b"lost"])))], 5);
    write(&log, 2, Some(ballot(4, 0)), Vec::new(), 5);
    write(&log, 3, Some(ballot(5, 3)), entries[4..].to_vec(), 6);
    assert_eq!(log.close(), State::Good);
    disk
}

#[test]
fn logs_are_written_as_version_2_defines() {
    let disk = written();
    for (number, expected) in (1..).zip(FILES) {
        let bytes = bytes_of(&disk, &Path::new("/log").join(names::segment(number)));
        assert!(bytes == expected, "segment {number} differs");
    }
}

#[test]
fn version_2_logs_can_still_be_read() {
    let disk = SimDisk::new(0);
    drop(directory(&disk));
    for (number, bytes) in (1..).zip(FILES) {
        disk.create(&Path::new("/log").join(names::segment(number))).unwrap().write_at(bytes, 0).unwrap();
    }
    let found = read(&disk).take();
    let terms = |at: &Position| (at.index.0, at.term.0);
    assert_eq!(found.covered.iter().map(terms).collect::<Vec<_>>(), [(1, 1), (2, 2), (6, 5)]);
    assert_eq!((found.ballot, found.committed.at.index, found.entries), (ballot(5, 3), Index(6), Vec::new()));
    assert_eq!(found.committed.members.learners, [node(4)]);
    let mut recovery = Recovery::open(directory(&disk), Lsn::NONE).unwrap();
    let mut units = Vec::new();
    while let Some(block) = recovery.next_block().unwrap() {
        units.extend(block.units().map(|unit| (unit.lsn.get(), unit.effects.to_vec())));
    }
    assert_eq!(units, [(1, b"first".to_vec()), (2, Vec::new()), (3, b"third".to_vec())]);
    assert!(recovery.end().unwrap().is_clean);
    drop(recovery);
    let log = open(&disk);
    let mut reader = log.read_after(Index(1), Index(6));
    assert_eq!(std::iter::from_fn(|| reader.next_entry().unwrap()).collect::<Vec<_>>(), entries());
}

#[test]
fn a_segment_of_the_other_version_is_no_part_of_a_directory() {
    let disk = written();
    let server = SimDisk::new(0);
    let open =
        |disk: &SimDisk| Directory::open(Arc::new(disk.clone()), Path::new("/log"), DirectoryId::new([0x11; 16]));
    drop(open(&server).unwrap());
    server.create(&Path::new("/log").join(names::segment(1))).unwrap().write_at(FILES[0], 0).unwrap();
    let error = Recovery::open(open(&server).unwrap(), Lsn::NONE).map(|_| ()).unwrap_err();
    assert!(matches!(error, LogError::Foundling { .. }), "{error}");
    assert!(matches!(open(&disk), Err(LogError::Owner { .. })));
    let error = EntryRecovery::read(open(&SimDisk::new(0)).unwrap(), Mark::default()).map(|_| ()).unwrap_err();
    assert!(matches!(error, LogError::Owner { .. }), "{error}");
}

#[test]
fn every_flipped_byte_is_refused_or_does_not_count() {
    let expected = read(&written()).take();
    let (mut refused, mut same) = (0, 0);
    for (number, bytes) in (1..).zip(FILES) {
        let path = Path::new("/log").join(names::segment(number));
        for at in 0..bytes.len() {
            let disk = written();
            disk.flip(&path, at as u64, 1 << (at % 8));
            match EntryRecovery::read(directory(&disk), Mark::first(of_voters(&[node(1), node(2), node(3)]))) {
                Ok(mut found) => {
                    let found = found.take();
                    assert_eq!((found.ballot, &found.entries), (expected.ballot, &expected.entries), "{number}: {at}");
                    same += 1;
                }
                Err(LogError::Corrupt { path: named, .. }) => {
                    assert_eq!(named, path, "{at}");
                    refused += 1;
                }
                Err(error) => panic!("{number}: {at}: {error}"),
            }
        }
    }
    assert!(refused > 900 && same > 10_000, "{refused} refused, {same} the same");
}
