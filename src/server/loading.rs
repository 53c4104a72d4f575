//! How a server comes back from a snapshot and the log behind it, slice by slice: over a simulated disk.

use std::path::Path;
use std::sync::Arc;

use crate::base::clock::Clock;
use crate::base::lsn::Lsn;
use crate::base::rng::Rng;
use crate::command;
use crate::config::Config;
use crate::engine::Engine;
use crate::engine::recovery::{Loading, RecoveryError};
use crate::engine::session::{Peer, SessionKey};
use crate::engine::tail::{EFFECTS_FORMAT, Tail};
use crate::log::block::unit_head;
use crate::log::directory::{Directory, DirectoryId};
use crate::log::group_commit::{self, Commit, Log, Options};
use crate::log::restore::Restore;
use crate::log::sim::SimDisk;
use crate::log::snapshot::writer::{Begin, Sizes};
use crate::resp::reply::{Form, Reply};
use crate::resp::request::Decoder;

/// A server without sockets, whose units a test takes to where it wants them.
struct Bench {
    engine: Engine,
    client: SessionKey,
}

impl Bench {
    fn new() -> Bench {
        let clock = Clock::manual(1_000_000);
        let mut engine = Engine::new(Config::default(), command::table(), clock, Rng::seeded(1)).expect("memory");
        engine.server.tail = Some(Tail::default());
        let client = engine.server.open_session(Peer::default());
        Bench { engine, client }
    }

    fn line(&mut self, line: &str) -> String {
        let words: Vec<&str> = line.split(' ').collect();
        let mut request = format!("*{}\r\n", words.len());
        words.iter().for_each(|word| request += &format!("${}\r\n{word}\r\n", word.len()));
        let mut reply = Reply::new(Form::Resp2);
        self.engine.feed(self.client, &mut Decoder::new(), request.as_bytes(), &mut reply);
        reply.as_bytes().escape_ascii().to_string()
    }

    /// The units that came up since the last time: their bytes, and how many there are.
    fn units(&mut self) -> (Vec<u8>, u32) {
        let tail = self.engine.server.tail.replace(Tail::default()).expect("it is kept");
        let (mut bytes, mut count) = (Vec::new(), 0);
        for effects in tail.units() {
            bytes.extend_from_slice(&unit_head(EFFECTS_FORMAT, 0, effects.len() as u32));
            bytes.extend_from_slice(effects);
            count += 1;
        }
        (bytes, count)
    }
}

fn directory(disk: &SimDisk) -> Directory {
    Directory::open(Arc::new(disk.clone()), Path::new("/data"), DirectoryId::new([1; 16])).expect("it can be locked")
}

fn open(disk: &SimDisk) -> Log {
    let restore = Restore::open(directory(disk)).expect("it is sound");
    let options = Options { first_segment_bytes: 64 * 1024, prepared_segments: 0, ..Options::default() };
    restore.finish(options, Arc::new(disk.clone()), Box::new(|| {})).expect("there is space")
}

fn begin() -> Begin {
    let sizes = Sizes { frame_bytes: 1_000, ..Sizes::default() };
    Begin { serial: 1, time_ms: 1_000_000, sizes, notify: Box::new(|| {}) }
}

/// Makes a snapshot of these units, which are all up to `lsn`.
fn snapshot(log: &Log, (units, count): (Vec<u8>, u32), lsn: Lsn) {
    let mut writer = log.snapshot(begin());
    writer.push(units, count);
    writer.finish(lsn, 1_000_000);
    while writer.outcome().is_none() {
        writer.step();
    }
    writer.outcome().expect("it has ended").expect("it is complete");
}

fn commit(log: &Log, (units, count): (Vec<u8>, u32), first_lsn: Lsn) {
    let bytes = [log.buffer(), units].concat();
    log.commit(group_commit::Tail { bytes, first_lsn, units: count, time_ms: 1_000_000 }, Commit::InPlace);
}

/// 300 keys in a snapshot, ten more and a change in the log behind it.
fn written() -> SimDisk {
    let (disk, mut bench) = (SimDisk::new(1), Bench::new());
    let log = open(&disk);
    (0..300).for_each(|n| assert_eq!(bench.line(&format!("SET key:{n} value:{n}")), "+OK\\r\\n"));
    let (units, count) = bench.units();
    let last = Lsn::new(u64::from(count));
    commit(&log, (units.clone(), count), Lsn::FIRST);
    snapshot(&log, (units, count), last);
    (300..310).for_each(|n| assert_eq!(bench.line(&format!("SET key:{n} value:{n}")), "+OK\\r\\n"));
    bench.line("APPEND key:0 more");
    commit(&log, bench.units(), last.next());
    disk
}

fn assert_loaded(bench: &mut Bench) {
    assert_eq!(bench.line("DBSIZE"), ":310\\r\\n");
    assert_eq!(bench.line("GET key:0"), "$11\\r\\nvalue:0more\\r\\n");
    assert_eq!(bench.line("GET key:309"), "$9\\r\\nvalue:309\\r\\n");
}

#[test]
fn data_is_loaded_slice_by_slice() {
    let disk = written();
    let mut bench = Bench::new();
    let mut loading = Loading::begin(&mut bench.engine, directory(&disk)).unwrap();
    let (mut slices, mut before) = (0, 0);
    loop {
        let progress = loading.step(&mut bench.engine, 1).unwrap();
        assert!(progress.read >= before && progress.read <= progress.all, "{progress:?} after {before}");
        before = progress.read;
        if progress.is_complete {
            break;
        }
        slices += 1;
    }
    assert!(slices > 10, "{slices}");
    let (recovered, directory) = loading.finish_without_log(&mut bench.engine).unwrap();
    assert_eq!((recovered.keys, recovered.passed_over), (310, None));
    assert!(recovered.last.get() >= 311, "{}", recovered.last);
    assert_loaded(&mut bench);
    assert_eq!(directory.path(), Path::new("/data"));
}

#[test]
fn a_server_goes_on_behind_a_snapshot_and_its_log() {
    let disk = written();
    let mut bench = Bench::new();
    let first = bench.engine.recover(directory(&disk), Box::new(|| {})).unwrap();
    assert_loaded(&mut bench);
    assert_eq!(bench.line("SET later v"), "+OK\\r\\n");
    bench.engine.server.close_log().unwrap();
    drop(bench);
    let mut bench = Bench::new();
    let second = bench.engine.recover(directory(&disk), Box::new(|| {})).unwrap();
    assert!(second.last > first.last && second.is_clean);
    assert_eq!(bench.line("GET later"), "$1\\r\\nv\\r\\n");
}

#[test]
fn what_does_not_fit_in_a_snapshot_is_named() {
    let (disk, mut bench) = (SimDisk::new(1), Bench::new());
    let log = open(&disk);
    bench.line("SET k v");
    bench.units();
    bench.line("DEL k");
    snapshot(&log, bench.units(), Lsn::FIRST);
    drop(log);
    let refused = Bench::new().engine.recover(directory(&disk), Box::new(|| {})).unwrap_err();
    assert!(matches!(refused, RecoveryError::SnapshotMisfit { index: 0, .. }), "{refused}");
    let said = refused.to_string();
    assert!(
        said.starts_with("/data/snapshot-0000000000000001.snap: effect 0 of a unit in the frame that ends at"),
        "{said}"
    );
}
