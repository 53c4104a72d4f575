//! The file that `rdb-export` asks for: the data at one point in time, whole or not at all.

use std::path::Path;
use std::time::Duration;

use super::{Bench, Release, until};
use crate::base::rng::Rng;
use crate::config::{Config, SavePoint};
use crate::keyspace::DbIndex;
use crate::keyspace::any_value::ValueRef;
use crate::log::disk::Disk;
use crate::log::sim::SimDisk;
use crate::persist::saving::Purpose;
use crate::rdb;
use crate::rdb::file::{Reader, Record};

const FILE: &str = "/dump.rdb";

fn start(seed: u64) -> Bench {
    start_on(&SimDisk::new(seed))
}

fn start_on(disk: &SimDisk) -> Bench {
    Bench::start_with(disk, Config { appendonly: false, rdb_export: true, ..Config::default() })
}

fn bytes(disk: &SimDisk) -> Vec<u8> {
    let file = disk.open(Path::new(FILE)).expect("it is there");
    let mut bytes = vec![0; usize::try_from(file.size().unwrap()).unwrap()];
    assert_eq!(file.read_at(&mut bytes, 0).unwrap(), bytes.len());
    bytes
}

fn has(disk: &SimDisk, suffix: &str) -> bool {
    disk.list(Path::new("/"))
        .unwrap()
        .iter()
        .chain(&disk.list(Path::new("/data")).unwrap())
        .any(|name| name.ends_with(suffix))
}

/// A server that has loaded the file, the number of its keys, and the texts of its libraries.
fn load(disk: &SimDisk) -> (Bench, usize, Vec<Vec<u8>>) {
    let mut bench = Bench::start(&SimDisk::new(1), false);
    let bytes = bytes(disk);
    let mut reader = Reader::new(&bytes[..]).unwrap();
    let (mut keys, mut libraries) = (0, Vec::new());
    let ks = &mut bench.engine.ks;
    loop {
        match reader.next_record().unwrap() {
            Record::End => break,
            Record::Library(text) => libraries.push(text.into_owned()),
            Record::Key(record) => {
                let db = DbIndex::try_from(record.db).unwrap();
                assert!(ks.find(db, &record.key).is_none(), "{} is there twice", record.key.escape_ascii());
                let value = rdb::load_value(record.dialect, record.code, record.value, ks.limits()).unwrap();
                let slot = ks.put_value(db, &record.key, value);
                if let Some(at_ms) = record.expires_at_ms {
                    _ = ks.expire_at(db, slot, at_ms);
                }
                keys += 1;
            }
            _ => {}
        }
    }
    (bench, keys, libraries)
}

/// A key: its database, its name, its deadline in Unix ms, and its value.
type Held = (DbIndex, Vec<u8>, Option<i64>, Vec<u8>);

/// The value of each key, in a form that does not depend on the order of hashes and sets.
fn contents(bench: &mut Bench) -> Vec<Held> {
    let ks = &bench.engine.ks;
    let mut all = Vec::new();
    for db in 0..ks.databases() {
        for entry in ks.entries(db) {
            let mut elements: Vec<Vec<u8>> = match entry.value() {
                ValueRef::Hash(hash) => {
                    hash.iter().map(|(field, value)| [field.to_vec(), value.to_vec()].join(&b"="[..])).collect()
                }
                ValueRef::Set(set) => set.iter().map(|member| member.to_vec()).collect(),
                ValueRef::List(list) => list.iter().map(|element| element.to_vec()).collect(),
                value => vec![rdb::dump(value)],
            };
            if !matches!(entry.value(), ValueRef::List(_)) {
                elements.sort();
            }
            all.push((db, entry.key().to_vec(), entry.expires_at_ms(), elements.join(&b"\n"[..])));
        }
    }
    all.sort();
    all
}

fn fill(bench: &mut Bench) {
    for n in 0..1_500 {
        let text = "x".repeat(n % 200);
        bench.line(&format!("SET s{n} {n}{text}"));
        bench.line(&format!("RPUSH l{n} a b {text}c"));
        bench.line(&format!("HSET h{n} f v g {text}w"));
    }
    for kind in ["HSET large:hash", "ZADD large:zset", "RPUSH large:list"] {
        for batch in 0..60 {
            let pairs: String = (0..400).map(|n| format!(" {}{n} {batch}.{n}", batch * 400)).collect();
            bench.line(&format!("{kind}{pairs}"));
        }
    }
    for n in 0..8_000 {
        bench.line(&format!("XADD large:stream {}-1 field {n}", n + 1));
    }
    assert_eq!(bench.line("XGROUP CREATE large:stream group 0"), "+OK\\r\\n");
    assert_eq!(bench.line("SELECT 1"), "+OK\\r\\n");
    (0..300).for_each(|n| _ = bench.line(&format!("SET s{n} one{n}")));
    assert_eq!(bench.line("SELECT 0"), "+OK\\r\\n");
}

/// Makes a random change, including changes of large values and of names.
fn change(bench: &mut Bench, rng: &mut Rng, databases_too: bool) {
    let (n, m) = (rng.below(1_500), rng.below(1_500));
    let kind = ["s", "l", "h"][rng.below(3) as usize];
    let (field, large) = (rng.below(24_000), ["hash", "zset", "list", "stream"][rng.below(4) as usize]);
    let line = match rng.below(20) {
        _ if databases_too && rng.below(80) == 0 => {
            ["SWAPDB 1 2", "SWAPDB 0 1", "FLUSHDB"][rng.below(3) as usize].to_owned()
        }
        0..3 => format!("SET s{n} new{m}"),
        3 => format!("DEL {kind}{n}"),
        4 | 5 => format!("RENAME {kind}{n} {kind}{m}"),
        6 => format!("COPY {kind}{n} {kind}{m} REPLACE"),
        7 => format!("MOVE {kind}{n} 1"),
        8 => format!("COPY {kind}{n} {kind}{m} DB 2 REPLACE"),
        9 => format!("HSET large:hash new{field} {m}"),
        10 => format!("HDEL large:hash {field}"),
        11 => format!("ZADD large:zset {m} {n}"),
        12 => format!("RPUSH large:list {n}"),
        13 => "LPOP large:list 3".to_owned(),
        14 => format!("XADD large:stream * n {m}"),
        15 => format!("PEXPIREAT {kind}{n} {}", 4_102_444_800_000 + m),
        16 => format!("RENAME large:{large} moved:{large}"),
        17 => format!("RENAME moved:{large} large:{large}"),
        18 => format!("COPY large:{large} {kind}{m} REPLACE"),
        _ => format!("LPUSH l{n} {m}"),
    };
    bench.line(&line);
}

#[test]
fn an_export_holds_one_point_in_time_whatever_changes() {
    for seed in 0..6 {
        let mut rng = Rng::seeded(seed);
        let mut bench = start(seed);
        fill(&mut bench);
        bench.line("FUNCTION LOAD #!lua\tname=first\nredis.register_function('f',function()return\t1\tend)");
        assert!(bench.line("BGSAVE").starts_with("+Background"));
        let mut slices = 0;
        while !bench.engine.server.persistence.saving.is_ending() {
            (0..rng.below(12)).for_each(|_| change(&mut bench, &mut rng, seed % 2 == 1));
            bench.engine.save_slice();
            slices += 1;
            if slices == 10 {
                bench.line("FUNCTION LOAD #!lua\tname=other\nredis.register_function('g',function()return\t2\tend)");
                bench.line("FUNCTION DELETE first");
            }
            assert!(slices < 100_000, "the save does not end");
            std::thread::yield_now();
        }
        assert!(slices > if seed % 2 == 1 { 3 } else { 20 }, "{slices}: too few to change anything in between");
        let wanted = contents(&mut bench);
        // This change is no longer part of the file.
        bench.line("SET s1 later");
        until(|| {
            while bench.engine.save_slice() {}
            bench.engine.server.persistence.saving.under_way().is_none()
        });
        assert!(bench.engine.server.persistence.saving.history(Purpose::Save).is_ok);
        let (mut loaded, keys, libraries) = load(&bench.disk);
        let found = contents(&mut loaded);
        let differs = wanted.iter().zip(&found).find(|(one, other)| one != other);
        let differs =
            differs.map(|(one, other)| (one.1.escape_ascii().to_string(), other.1.escape_ascii().to_string()));
        assert_eq!(differs, None, "seed {seed}");
        assert_eq!((wanted.len(), found.len()), (keys, keys), "seed {seed}");
        assert_eq!(libraries.len(), 1);
        assert!(libraries[0].starts_with(b"#!lua\tname=other"), "{}", libraries[0].escape_ascii());
        assert!(!has(&bench.disk, ".part"));
    }
}

#[test]
fn a_save_that_cannot_write_the_export_fails() {
    let mut bench = start(1);
    bench.line("SET a 1");
    bench.save();
    let before = bytes(&bench.disk);
    let saved_s = bench.engine.server.persistence.saving.saved_s();
    bench.engine.server.config.save = vec![SavePoint { seconds: 60, changes: 1 }];
    bench.clock.advance_ms(5_000);
    // The snapshot is compressed, so there is space for it.
    bench.line(&format!("SET b {}", "x".repeat(300_000)));
    bench.disk.set_capacity(Some(bench.disk.used_bytes() + 100_000));
    assert_eq!(bench.line("SAVE"), "");
    bench.release_snapshot();
    let heard = bench.heard();
    assert!(heard.starts_with("-ERR the snapshot could not be written as RDB: /dump.rdb.save-0.part: "), "{heard}");
    assert!(bench.line("INFO persistence").contains("rdb_last_bgsave_status:err"));
    assert_eq!(bench.engine.server.persistence.saving.saved_s(), saved_s);
    assert!(bench.engine.server.persistence.saving.changes(&bench.engine.ks) > 0, "the file lacks them");
    // The snapshot has the keys, so nothing is at risk.
    bench.ok("SET c 1");
    assert_eq!(bench.line("DEL c"), ":1\\r\\n");
    assert_eq!(bench.line("SHUTDOWN SAVE"), "");
    bench.release_snapshot();
    assert!(bench.heard().starts_with("-ERR Errors trying to SHUTDOWN"));
    assert!(bench.ends_by_signal());
    bench.engine.server.ending.shutdown = None;
    bench.ok("SHUTDOWN ABORT");
    for (seconds, is_due) in [(56, false), (5, true)] {
        bench.clock.advance_ms(seconds * 1_000);
        bench.engine.tick();
        assert_eq!(bench.engine.server.persistence.saving.under_way().is_some(), is_due, "after {seconds} s");
    }
    bench.release_snapshot();
    bench.engine.server.config.save.clear();
    assert_eq!(bytes(&bench.disk), before);
    assert!(!has(&bench.disk, ".part"), "its space is free again");
    bench.disk.set_capacity(None);
    bench.save();
    assert_eq!(load(&bench.disk).1, 2);
    assert_eq!(bench.engine.server.persistence.saving.saved_s(), saved_s + 66);
    assert!(bench.line("INFO persistence").contains("rdb_last_bgsave_status:ok"));
}

/// A client that ends the server must lose nothing; one that sends SAVE relies on the file.
#[test]
fn a_server_ends_without_an_export_unless_told_to_save() {
    for (command, ends) in [("SHUTDOWN", true), ("SHUTDOWN SAVE", false), ("SHUTDOWN SAVE FORCE", true)] {
        let mut bench = start(6);
        bench.engine.server.config.save = vec![SavePoint { seconds: 60, changes: 1 }];
        bench.line(&format!("SET a {}", "x".repeat(300_000)));
        // The snapshot is compressed, so there is space for it.
        bench.disk.set_capacity(Some(bench.disk.used_bytes() + 100_000));
        let mut said = bench.line(command);
        bench.release_snapshot();
        said += &bench.heard();
        assert_eq!(bench.engine.server.ending.shutdown.is_some(), ends, "{command}: {said}");
        assert_eq!(said.is_empty(), ends, "{command}: {said}");
        assert!(bench.engine.server.persistence.saving.has_export_failed, "{command}");
        assert!(!has(&bench.disk, ".rdb") && !has(&bench.disk, ".part"), "{command}");
        bench.disk.set_capacity(None);
        let bench = bench.restart(false);
        assert_eq!(bench.engine.ks.db(0).len(), 1, "{command}: nothing is lost");
    }
}

#[test]
fn a_rewrite_leaves_the_export_alone_and_does_not_count_as_one() {
    let mut bench = start(5);
    bench.line("SET a 1");
    bench.save();
    let saved_s = bench.engine.server.persistence.saving.saved_s();
    for is_exported in [true, false] {
        bench.engine.server.config.rdb_export = is_exported;
        bench.engine.server.config.save = vec![SavePoint { seconds: 60, changes: 1 }];
        bench.line("SET b 2");
        bench.clock.advance_ms(50_000);
        assert!(bench.line("BGREWRITEAOF").starts_with("+Background"));
        bench.release_snapshot();
        assert_eq!(load(&bench.disk).1, 1);
        assert_eq!(
            bench.engine.server.persistence.saving.saved_s() == saved_s,
            is_exported,
            "it tells of this file, or of any"
        );
        bench.clock.advance_ms(11_000);
        bench.engine.tick();
        assert_eq!(bench.engine.server.persistence.saving.under_way().is_some(), is_exported);
        if is_exported {
            assert_eq!(bench.line("BGSAVE CANCEL"), "+Background saving cancelled\\r\\n");
        }
    }
}

#[test]
fn a_crashed_or_cancelled_export_leaves_the_previous_file() {
    let mut bench = start(2);
    bench.line("SET a 1");
    bench.save();
    let before = bytes(&bench.disk);
    for is_crash in [false, true] {
        bench.line(&format!("SET b {is_crash}"));
        bench.hold_snapshot();
        // The snapshot gets its name; the export gets its own later.
        bench.disk.hold(Some("create"));
        bench.until_awaited("create", ".part");
        if is_crash {
            bench.disk.hold(Some("rename"));
            until(|| bench.disk.is_awaited("rename", ".part"));
            let disk = bench.disk.clone();
            drop(bench);
            disk.kill();
            assert!(has(&disk, ".part"), "the crash has left the partial file");
            bench = start_on(&disk);
            assert!(!has(&disk, ".part"), "the start removes the partial file");
            assert_eq!(bench.line("GET b"), "$4\\r\\ntrue\\r\\n", "the snapshot is there");
        } else {
            assert_eq!(bench.engine.server.persistence.saving.under_way(), Some(Purpose::Save));
            assert_eq!(bench.line("BGSAVE CANCEL"), "+Background saving cancelled\\r\\n");
            bench.disk.hold(None);
            until(|| !bench.disk.is_awaited("create", ".part"));
        }
    }
    assert_eq!(bytes(&bench.disk), before);
}

#[test]
fn a_save_that_joins_another_snapshot_writes_the_export_too() {
    // SAVE and SHUTDOWN SAVE arrive while another snapshot is copying, or too near its end to join it, so that they
    // wait for the next one.
    for (command, is_ending) in [("SAVE", false), ("SAVE", true), ("SHUTDOWN SAVE", false), ("SHUTDOWN SAVE", true)] {
        let mut bench = start(3);
        bench.line("SET a 1");
        if is_ending {
            bench.hold_snapshot_by("BGREWRITEAOF");
        } else {
            assert!(bench.line("BGREWRITEAOF").starts_with("+Background"));
        }
        bench.line("SET b 2");
        let release = Release::after(&bench.disk, Duration::from_millis(20));
        let said = bench.line(command);
        release.wait();
        bench.release_snapshot();
        assert_eq!(load(&bench.disk).1, 2, "{command}, {is_ending}: {said}");
        if command == "SAVE" {
            assert_eq!(bench.heard(), "+OK\\r\\n");
        }
    }
}

#[test]
fn a_waiter_for_the_next_export_is_served_even_after_a_rewrite() {
    let mut bench = start(4);
    bench.line("SET a 1");
    bench.hold_snapshot_by("BGREWRITEAOF");
    assert_eq!(bench.line("SAVE"), "");
    bench.disk.hold(None);
    until(|| {
        bench.engine.save_slice();
        bench.engine.server.persistence.saving.under_way().is_none()
    });
    // Rewriting a grown journal comes before the scheduled SAVE.
    let steady_ms = bench.clock.steady_ms();
    bench.engine.server.persistence.saving.begin(Purpose::Rewrite, steady_ms);
    until(|| {
        bench.engine.save_slice();
        bench.engine.server.persistence.saving.under_way().is_none()
    });
    assert_eq!(bench.heard(), "+OK\\r\\n");
    assert_eq!(load(&bench.disk).1, 1);
}
