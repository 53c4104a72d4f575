//! Version 1 of the format as originally defined: files that never change, and that every later version must read.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::directory::{Directory, DirectoryId};
use super::disk::{Disk, read_all};
use super::group_commit::{Commit, Log, Options, tail};
use super::names;
use super::scan::Recovery;
use super::segment::HEADER_BYTES;
use super::sim::SimDisk;
use super::snapshot::reader::SnapshotReader;
use super::snapshot::writer::tests::{begin, take};
use super::snapshot::writer::{LogBeside, SnapshotWriter};
use crate::base::lsn::Lsn;

const FILES: [&[u8]; 2] =
    [include_bytes!("fixtures/v1/log-0000000000000001.seg"), include_bytes!("fixtures/v1/log-0000000000000002.seg")];

/// The first holds its units uncompressed; the second holds them compressed, one of them in several frames.
const SNAPSHOTS: [&[u8]; 2] = [
    include_bytes!("fixtures/v1/snapshot-0000000000000003.snap"),
    include_bytes!("fixtures/v1/snapshot-0000000000000009.snap"),
];

fn recovery(disk: &SimDisk, from: u64) -> Recovery {
    let disk: Arc<dyn Disk> = Arc::new(disk.clone());
    let directory = Directory::open(disk, Path::new("/log"), DirectoryId::new([0x11; 16])).unwrap();
    Recovery::open(directory, Lsn::new(from)).unwrap()
}

fn segment_path(number: u64) -> PathBuf {
    Path::new("/log").join(names::segment(number))
}

/// Two starts: three units in two blocks, a kill, another unit, a clean end.
#[test]
fn journals_are_written_as_version_1_defines() {
    let disk = SimDisk::new(0);
    let open = || -> Log {
        let options = Options { first_segment_bytes: HEADER_BYTES + 512, ..Options::default() };
        recovery(&disk, 0).finish(options, Arc::new(disk.clone()), Box::new(|| {})).unwrap()
    };
    let log = open();
    log.commit(tail(log.buffer(), Lsn::FIRST, &[&b"first"[..], b""]), Commit::InPlace);
    log.commit(tail(log.buffer(), Lsn::new(3), &[b"third"]), Commit::InPlace);
    drop(log);
    let log = open();
    log.commit(tail(log.buffer(), Lsn::new(4), &[b"fourth, after a start"]), Commit::InPlace);
    log.close().unwrap();
    for (number, expected) in (1..).zip(FILES) {
        let mut bytes = Vec::new();
        read_all(&*disk.open(&segment_path(number)).unwrap(), &mut bytes, u64::MAX).unwrap();
        assert!(bytes == expected, "segment {number} differs");
    }
}

#[test]
fn version_1_journals_can_still_be_read() {
    let disk = SimDisk::new(0);
    drop(recovery(&disk, 0));
    for (number, bytes) in (1..).zip(FILES) {
        disk.create(&segment_path(number)).unwrap().write_at(bytes, 0).unwrap();
    }
    let mut recovery = recovery(&disk, 0);
    let mut units = Vec::new();
    while let Some(block) = recovery.next_block().unwrap() {
        let time_ms = block.time_ms();
        units.extend(
            block.units().map(|unit| (unit.lsn.get(), time_ms, unit.format, unit.origin, unit.effects.to_vec())),
        );
    }
    let expected = [&b"first"[..], b"", b"third", b"fourth, after a start"];
    let expected: Vec<_> =
        (1..).zip(expected).map(|(lsn, effects)| (lsn, 1_700_000_000_000, 1, 1, effects.to_vec())).collect();
    assert_eq!(units, expected);
    let end = recovery.end().unwrap();
    assert!(end.is_clean && end.torn.is_none() && end.lsn == Lsn::new(4));
}

fn directory(disk: &SimDisk) -> Arc<Directory> {
    let disk: Arc<dyn Disk> = Arc::new(disk.clone());
    Arc::new(Directory::open(disk, Path::new("/log"), DirectoryId::new([0x11; 16])).unwrap())
}

/// Returns the Lsn of each snapshot, and its units.
fn snapshots() -> [(Lsn, Vec<Vec<u8>>); 2] {
    let plain = vec![b"first".to_vec(), Vec::new(), b"third".to_vec()];
    let long = vec![b"a".to_vec(), b"compressible ".repeat(100), b"z".to_vec()];
    [(Lsn::new(3), plain), (Lsn::new(9), long)]
}

/// The compressed bytes of the second one are up to the library, which may improve one day.
#[test]
fn snapshots_are_written_as_version_1_defines() {
    let directory = directory(&SimDisk::new(0));
    let [(lsn, units), _] = snapshots();
    let done = take(SnapshotWriter::begin(Arc::clone(&directory), LogBeside::none(), begin(7)), &units, lsn.get());
    let mut bytes = Vec::new();
    read_all(&*directory.disk().open(&done.unwrap().path).unwrap(), &mut bytes, u64::MAX).unwrap();
    assert!(bytes == SNAPSHOTS[0]);
}

#[test]
fn version_1_snapshots_can_still_be_read() {
    let directory = directory(&SimDisk::new(0));
    for (bytes, (lsn, expected)) in SNAPSHOTS.into_iter().zip(snapshots()) {
        directory.disk().create(&directory.snapshot(lsn)).unwrap().write_at(bytes, 0).unwrap();
        let mut reader = SnapshotReader::open(&directory, lsn).unwrap();
        let mut units = Vec::new();
        while reader.advance().unwrap() {
            units.extend(reader.units().map(|unit| (unit.format, unit.origin, unit.effects.to_vec())));
        }
        assert_eq!(units, expected.into_iter().map(|effects| (1, 1, effects)).collect::<Vec<_>>());
        assert_eq!((reader.begun_ms(), reader.end().time_ms), (1_700_000_000_000, 1_700_000_000_001));
        assert_eq!((reader.end().units, reader.end().frames), (3, if lsn == Lsn::new(3) { 1 } else { 3 }));
    }
}
