//! How a server recovers from a snapshot and the journal after it, slice by slice, over a simulated disk.

use std::path::Path;
use std::sync::Arc;

use crate::base::clock::Clock;
use crate::base::lsn::Lsn;
use crate::base::rng::Rng;
use crate::command;
use crate::config::Config;
use crate::engine::Engine;
use crate::engine::persistence::recovery::Loading;
use crate::keyspace::effect::{Effect, EffectWriter};
use crate::log::block::unit_head;
use crate::log::directory::{Directory, DirectoryId};
use crate::log::disk::Disk;
use crate::log::group_commit::{self, Commit, Log, Options};
use crate::log::platform::Platform;
use crate::log::restore::Restore;
use crate::log::sim::SimDisk;
use crate::log::snapshot::writer::{Begin, Sizes};
use crate::persist::error::RecoveryError;
use crate::persist::tail::{EFFECTS_FORMAT, Tail};
use crate::resp::reply::{Form, Reply};
use crate::resp::request::Decoder;
use crate::session::Peer;
use crate::spec::session_key::SessionKey;
use crate::value::Layout;

/// A server without sockets, whose units a test writes where it wants them.
struct Bench {
    engine: Engine,
    client: SessionKey,
}

impl Bench {
    fn new() -> Bench {
        let clock = Clock::manual(1_000_000);
        let mut engine = Engine::new(Config::default(), command::table(), clock, Rng::seeded(1)).expect("memory");
        engine.server.set_tail(Some(Tail::default()));
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

    /// The units recorded since the last call: their bytes, and their number.
    fn units(&mut self) -> (Vec<u8>, u32) {
        let tail = self.engine.server.persistence.tail.replace(Tail::default()).expect("it is kept");
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

/// Makes a snapshot of these units, the last of which is `lsn`.
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

/// 300 keys in a snapshot, then ten more and a change in the journal.
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
fn a_server_continues_after_a_snapshot_and_its_journal() {
    let disk = written();
    let mut bench = Bench::new();
    let first = bench.engine.recover(directory(&disk), Box::new(|| {})).unwrap();
    assert_loaded(&mut bench);
    assert_eq!(bench.line("SET later v"), "+OK\\r\\n");
    bench.engine.server.persistence.close().unwrap();
    drop(bench);
    let mut bench = Bench::new();
    let second = bench.engine.recover(directory(&disk), Box::new(|| {})).unwrap();
    assert!(second.last > first.last && second.is_clean);
    assert_eq!(bench.line("GET later"), "$1\\r\\nv\\r\\n");
}

#[test]
fn inapplicable_effects_in_a_snapshot_are_named() {
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

/// As [`Bench::new`], with or without threads to read ahead.
fn reader(has_threads: bool) -> Bench {
    let mut bench = Bench::new();
    bench.engine.server.set_tail(None);
    bench.engine.server.persistence.saving.runs_on(Platform { has_threads, ..Platform::default() });
    bench
}

/// Makes a snapshot of the effects of these commands.
fn snapshot_of(disk: &SimDisk, lines: &[&str]) -> Bench {
    let mut bench = Bench::new();
    for line in lines {
        let answer = bench.line(line);
        assert!(!answer.starts_with('-'), "{line}: {answer}");
    }
    let log = open(disk);
    snapshot(&log, bench.units(), Lsn::FIRST);
    bench
}

/// Makes a journal of the effects of these commands, with a block for each.
fn log_of(disk: &SimDisk, lines: &[&str]) -> Bench {
    log_in_blocks(disk, lines.chunks(1))
}

/// Makes a journal of the effects of these commands, in a single block.
fn log_in_one_block(disk: &SimDisk, lines: &[&str]) -> Bench {
    log_in_blocks(disk, [lines])
}

fn log_in_blocks<'l>(disk: &SimDisk, blocks: impl IntoIterator<Item = &'l [&'l str]>) -> Bench {
    let (mut bench, log, mut next) = (Bench::new(), open(disk), Lsn::FIRST);
    for lines in blocks {
        for line in lines {
            let answer = bench.line(line);
            assert!(!answer.starts_with('-'), "{line}: {answer}");
        }
        let (units, count) = bench.units();
        if count > 0 {
            commit(&log, (units, count), next);
            next = next.plus(u64::from(count));
        }
    }
    bench
}

#[test]
fn keys_prepared_ahead_equal_the_original_ones() {
    let lines = [
        "SET text value",
        "SET long a-value-that-does-not-lie-in-its-entry",
        "SET number 17",
        "SET mortal soon PX 4000000000",
        "SET twice first PX 4000000000",
        "SET twice second",
        "SET later value",
        "PEXPIREAT later 5000000000",
        "SET counter 5 PX 4000000000",
        "INCR counter",
        "SET decimal 1 PX 4000000000",
        "INCRBYFLOAT decimal 0.5",
        "SET kept 5 PX 4000000000",
        "INCR kept",
        "PERSIST kept",
        "SET fraction 5 PX 4000000000",
        "INCRBYFLOAT fraction 0.5",
        "PERSIST fraction",
        "SET prolonged 5 PX 4000000000",
        "INCR prolonged",
        "PEXPIREAT prolonged 6000000000",
        "SET reset 5 PX 4000000000",
        "INCR reset",
        "SET reset 7",
        "INCR reset",
        "INCR created",
        "RPUSH becomes list",
        "SET becomes 1",
        "SET edited abc",
        "APPEND edited def",
        "HSET hash f 1 g 2",
        "HEXPIRE hash 4000000 FIELDS 1 f",
        "RPUSH list a b c",
        "SADD numbers 1 2 3",
        "CONFIG SET set-max-listpack-entries 1",
        "SADD members a b c",
        "ZADD zset 1.5 a 2 b",
        "XADD stream 1-1 f v",
        "XGROUP CREATE stream g 0",
        "SUNIONSTORE built numbers members",
        "RENAME list renamed",
        "COPY hash copied",
        "DEL zset",
        "SELECT 3",
        "SET text elsewhere",
        "SORT renamed ALPHA STORE sorted",
        "ZADD zset 3 c",
    ];
    let reads = [
        "DBSIZE",
        "GET text",
        "GET long",
        "GET number",
        "PEXPIRETIME mortal",
        "GET twice",
        "PTTL twice",
        "PEXPIRETIME later",
        "GET counter",
        "PEXPIRETIME counter",
        "OBJECT ENCODING counter",
        "GET decimal",
        "PEXPIRETIME decimal",
        "GET kept",
        "PTTL kept",
        "GET fraction",
        "PTTL fraction",
        "GET prolonged",
        "PEXPIRETIME prolonged",
        "GET reset",
        "PTTL reset",
        "GET created",
        "GET becomes",
        "GET edited",
        "OBJECT ENCODING edited",
        "HGETALL hash",
        "HPEXPIRETIME copied FIELDS 2 f g",
        "LRANGE renamed 0 -1",
        "OBJECT ENCODING numbers",
        "OBJECT ENCODING members",
        "SCARD built",
        "OBJECT ENCODING built",
        "EXISTS zset list",
        "XINFO GROUPS stream",
        "XRANGE stream - +",
        "SELECT 3",
        "DBSIZE",
        "GET text",
        "ZRANGE zset 0 -1 WITHSCORES",
    ];
    for write in [snapshot_of, log_of, log_in_one_block] {
        let disk = SimDisk::new(1);
        let mut before = write(&disk, &lines);
        before.line("SELECT 0");
        let expected: Vec<String> = reads.iter().map(|line| before.line(line)).collect();
        for has_threads in [false, true] {
            let mut after = reader(has_threads);
            after.engine.recover(directory(&disk), Box::new(|| {})).unwrap();
            let found: Vec<String> = reads.iter().map(|line| after.line(line)).collect();
            for (line, (expected, found)) in reads.iter().zip(expected.iter().zip(found)) {
                assert_eq!(&found, expected, "{line}, with threads: {has_threads}");
            }
            after.engine.server.persistence.close().unwrap();
        }
    }
}

/// How far a start gets, and the reason it stops.
fn outcome(disk: &SimDisk, has_threads: bool) -> (String, usize) {
    let mut bench = reader(has_threads);
    let refused = bench.engine.recover(directory(disk), Box::new(|| {})).unwrap_err();
    (refused.to_string(), bench.engine.ks.db(0).len())
}

#[test]
fn errors_are_reported_alike_with_and_without_a_thread() {
    let path = Path::new("/data/snapshot-0000000000000001.snap");
    let many: Vec<String> = (0..500).map(|n| format!("SET key:{n} value:{n:0100}")).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    let sound = || {
        let disk = SimDisk::new(1);
        snapshot_of(&disk, &many);
        disk
    };
    // After some keys: an effect on an absent key, an unreadable effect, and an unknown future format.
    let unfit = |format: u8, effects: &[u8]| {
        let (disk, mut bench) = (SimDisk::new(1), Bench::new());
        many.iter().for_each(|line| drop(bench.line(line)));
        let (mut units, count) = bench.units();
        units.extend_from_slice(&unit_head(format, 0, effects.len() as u32));
        units.extend_from_slice(effects);
        let log = open(&disk);
        snapshot(&log, (units, count + 1), Lsn::FIRST);
        disk
    };
    let mut effects = EffectWriter::default();
    effects.write(0, &Effect::Put { key: b"one", value: b"v" });
    let unread = [effects.as_bytes(), &[250]].concat();
    effects.write(0, &Effect::Replace { key: b"absent", value: b"v" });
    let flipped = || {
        let disk = sound();
        disk.flip(path, disk.open(path).unwrap().size().unwrap() / 2, 1);
        disk
    };
    // Without a journal that could replace it, a snapshot is loaded before all of it has been checked.
    let without_log = flipped();
    for name in disk_names(&without_log).iter().filter(|name| name.ends_with(".seg")) {
        without_log.remove(&Path::new("/data").join(name)).unwrap();
    }
    let cases = [
        (flipped(), "offset", 0..1),
        (without_log, "offset", 1..500),
        (unfit(EFFECTS_FORMAT, effects.as_bytes()), "effect 1 of a unit in the frame that ends at offset", 501..502),
        (unfit(EFFECTS_FORMAT, &unread), "can't be read", 501..502),
        (unfit(9, effects.as_bytes()), "effect 0 of a unit", 500..501),
    ];
    for (disk, why, loaded) in cases {
        let (error, keys) = outcome(&disk, true);
        assert!(error.contains(why), "{error}, not {why}");
        assert!(loaded.contains(&keys), "{keys}: {error}");
        assert_eq!(outcome(&disk, false), (error, keys));
    }
}

#[test]
fn errors_in_a_journal_are_reported_after_the_valid_part_is_loaded() {
    // More than fits in one piece.
    let many: Vec<String> = (0..3_000).map(|n| format!("SET key:{n} value:{n:0150}")).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    let segment = |disk: &SimDisk| {
        let name = disk_names(disk).into_iter().filter(|name| name.ends_with(".seg")).min();
        Path::new("/data").join(name.expect("there is a log"))
    };
    let sound = SimDisk::new(1);
    log_of(&sound, &many);
    let flipped = SimDisk::new(1);
    log_of(&flipped, &many);
    flipped.flip(&segment(&flipped), 40_000, 1);
    // After the keys: an effect on an absent key, an unreadable effect, and an unknown future format; then more damage.
    let unfit = |format: u8, effects: &[u8]| {
        let (disk, last) = (SimDisk::new(1), Lsn::new(many.len() as u64));
        log_of(&disk, &many);
        let log = open(&disk);
        let mut units = unit_head(format, 0, effects.len() as u32).to_vec();
        units.extend_from_slice(effects);
        commit(&log, (units, 1), last.next());
        drop(log);
        disk
    };
    let mut effects = EffectWriter::default();
    effects.write(0, &Effect::Put { key: b"one", value: b"v" });
    let unread = [effects.as_bytes(), &[250]].concat();
    effects.write(0, &Effect::Replace { key: b"absent", value: b"v" });
    // These bytes are unreadable as well.
    let mut elsewhere = EffectWriter::default();
    elsewhere.write(99, &Effect::Build { key: b"k", layout: Layout::Compact, steps: &[250] });
    let cases = [
        (unfit(EFFECTS_FORMAT, elsewhere.as_bytes()), "no such database", 3_000..3_001),
        (flipped, "the block's checksum does not match", 10..1_000),
        (
            unfit(EFFECTS_FORMAT, effects.as_bytes()),
            "effect 1 of Lsn 3001, in the block that ends at offset",
            3_001..3_002,
        ),
        (unfit(EFFECTS_FORMAT, &unread), "effect 1 of Lsn 3001", 3_001..3_002),
        (unfit(9, effects.as_bytes()), "effect 0 of Lsn 3001", 3_000..3_001),
    ];
    for (disk, why, loaded) in cases {
        let (error, keys) = outcome(&disk, true);
        assert!(error.contains(why) && error.contains("/data/log-"), "{error}, not {why}");
        assert!(loaded.contains(&keys), "{keys}: {error}");
        assert_eq!(outcome(&disk, false), (error, keys));
    }
    let mut bench = reader(true);
    bench.engine.recover(directory(&sound), Box::new(|| {})).unwrap();
    assert_eq!(bench.line("DBSIZE"), ":3000\\r\\n");
    // Reserving room for keys in advance did not count as a change.
    assert_eq!(bench.engine.ks.changes_by_commands(), 3_000);
}

fn disk_names(disk: &SimDisk) -> Vec<String> {
    disk.list(Path::new("/data")).unwrap()
}

#[test]
fn an_aborted_start_leaves_no_thread_with_the_files() {
    let many: Vec<String> = (0..500).map(|n| format!("SET key:{n} value:{n:0100}")).collect();
    for write in [snapshot_of, log_of, log_in_one_block] {
        let disk = SimDisk::new(1);
        write(&disk, &many.iter().map(String::as_str).collect::<Vec<_>>());
        let mut bench = reader(true);
        for _ in 0..100 {
            let mut loading = Loading::begin(&mut bench.engine, directory(&disk)).unwrap();
            assert!(!loading.step(&mut bench.engine, 1).unwrap().is_complete);
            // The next loader can then lock the directory.
            drop(loading);
        }
        let mut bench = reader(true);
        bench.engine.recover(directory(&disk), Box::new(|| {})).unwrap();
        assert_eq!(bench.line("DBSIZE"), ":500\\r\\n");
    }
}
