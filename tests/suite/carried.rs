//! Each way for data to leave one server and enter another, times each type and feature: which arrive whole, which with
//! losses, and which not at all. Between servers of this kind nothing is lost; Redis' formats carry only data that
//! Redis has.

use std::path::Path;

use crate::harness::{Program, Raw, Server, Value};
use crate::moving::{import, run, start, text, url};

/// A type or feature: its name, the calls that make it, the call that shows it, and the result for each of [`WAYS`], in
/// their order: `=` unchanged, `<` present with losses, `-` left out.
struct Feature(&'static str, &'static [&'static str], &'static [&'static str], &'static str);

/// The ways, by their names in messages.
const WAYS: [&str; 6] =
    ["import from a server", "SYNC as a file", "export", "rdb-export", "DUMP and RESTORE", "MIGRATE"];

const FEATURES: &[Feature] = &[
    Feature("text", &["SET text hello PXAT 4102444800000"], &["GET text", "EXPIRETIME text"], "======"),
    Feature("list", &["RPUSH list a b 3"], &["LRANGE list 0 -1"], "======"),
    Feature("set", &["SADD set a b 3"], &["DUMP set"], "======"),
    Feature(
        "members that expire",
        &["SADD mortal a b", "SPEXPIREAT mortal 4102444800000 MEMBERS 1 a"],
        &["SPEXPIRETIME mortal MEMBERS 2 a b"],
        "=<<<<<",
    ),
    Feature("sorted set", &["ZADD zset 1 a 2.5 b"], &["ZRANGE zset 0 -1 WITHSCORES"], "======"),
    Feature("hash", &["HSET hash f v g w"], &["HGETALL hash"], "======"),
    Feature(
        "fields that expire",
        &["HSET fields f v g w", "HPEXPIREAT fields 4102444800000 FIELDS 1 f"],
        &["HPEXPIRETIME fields FIELDS 2 f g"],
        "======",
    ),
    Feature(
        "stream",
        &[
            "XADD stream 1-1 f v",
            "XADD stream 2-1 f w",
            "XDEL stream 1-1",
            "XGROUP CREATE stream g 0",
            "XREADGROUP GROUP g c STREAMS stream >",
        ],
        &["XRANGE stream - +", "XINFO GROUPS stream", "XPENDING stream g"],
        "======",
    ),
    Feature(
        "counters of a stream",
        &["XADD counted 1-1 f v", "XDEL counted 1-1", "XSETID counted 9-9 ENTRIESADDED 7 MAXDELETEDID 5-5"],
        &["XINFO STREAM counted"],
        "======",
    ),
    Feature(
        "who was active",
        &["XADD active 1-1 f v", "XGROUP CREATE active g 0", "XREADGROUP GROUP g c STREAMS active >"],
        &["XINFO STREAM active FULL"],
        "======",
    ),
    Feature(
        "given back",
        &[
            "XADD back 1-1 f v",
            "XGROUP CREATE back g 0",
            "XREADGROUP GROUP g c STREAMS back >",
            "XNACK back g FAIL IDS 1 1-1",
        ],
        &["XPENDING back g - + 9"],
        "=<<<<<",
    ),
    Feature(
        "producers",
        &["XADD produced IDMP p i1 * f v"],
        &["XADD produced IDMP p i1 * f v", "XLEN produced"],
        "=<<<<<",
    ),
    Feature(
        "policy",
        &["XGROUP CREATE jobs g 0 MKSTREAM", "XGROUP SETPOLICY jobs g IDLE 30000 MAXDELIVERIES 5 DLQ jobs:dead"],
        &["DUMP jobs", "XINFO GROUPS jobs"],
        "=<<<==",
    ),
    Feature("delayed messages", &["XADD later DELAY 600000 * f v"], &["DUMP later"], "=<<<=="),
    Feature("lock", &["LOCK.ACQUIRE lock o PX 600000 NOTE n"], &["DUMP lock"], "=---=="),
    Feature(
        "shared lock",
        &["LOCK.ACQUIRE shared a SHARED PX 600000", "LOCK.ACQUIRE shared b SHARED PX 600000"],
        &["DUMP shared"],
        "=---==",
    ),
    Feature("gate", &["GATE.LIMIT gate 5", "GATE.ACQUIRE gate h UNITS 2 PX 600000"], &["DUMP gate"], "=---=="),
    Feature(
        "stock",
        &[
            "STOCK.SET stock 100",
            "STOCK.RESERVE stock o1 UNITS 2 PX 600000 PER ann 4",
            "STOCK.RESERVE stock o2 PX 600000",
            "STOCK.COMMIT stock o2",
        ],
        &["DUMP stock"],
        "=---==",
    ),
    Feature(
        "limit",
        &["LIMIT.TAKE RULES 2 caller GCRA 10 3600000 20 tenant CALENDAR 1000 day 60"],
        &["DUMP caller", "DUMP tenant"],
        "======",
    ),
    Feature(
        "ids",
        &["ID.NEXT ids COUNT 10", "ID.NEXT invoices SHAPE counter"],
        &["DUMP ids", "DUMP invoices"],
        "======",
    ),
    Feature("once", &["ONCE order EX 86400 INCR total"], &["ONCE order EX 86400 INCR total", "DUMP order"], "======"),
    Feature(
        "a library",
        &["FUNCTION LOAD #!lua§name=l\nredis.register_function('answer',function()§return§42§end)"],
        &["FCALL answer 0"],
        "====--",
    ),
    Feature("the last token", &["LOCK.ACQUIRE brief o PX 60000", "LOCK.RELEASE brief o"], &["TOKEN.LAST"], "=---<<"),
];

/// Parses a call from a line; § represents a space within a word.
fn words(line: &str) -> Vec<String> {
    line.split(' ').map(|word| word.replace('§', " ")).collect()
}

fn said(raw: &mut Raw, lines: &[&str]) -> Vec<Value> {
    lines.iter().map(|line| raw.command(&words(line))).collect()
}

/// A server with every type and feature.
fn filled(dir: &Path, flags: &[&str]) -> Server {
    let server = start(Program::Tidegate, dir, flags);
    let mut raw = server.raw();
    for Feature(name, makes, ..) in FEATURES {
        for (line, reply) in makes.iter().zip(said(&mut raw, makes)) {
            assert!(!matches!(reply, Value::Error(_)), "{name}: {line}: {reply:?}");
        }
    }
    server
}

/// The names of all keys.
fn keys(raw: &mut Raw) -> Vec<String> {
    let Value::Array(keys) = raw.command(&["KEYS", "*"]) else { panic!("KEYS answers an array") };
    keys.iter().map(|key| String::from_utf8(key.bytes().expect("a name").to_vec()).expect("plain names")).collect()
}

/// Carries everything in `from` to a new server by one of [`WAYS`], with `dir` for files.
fn carry(way: &str, from: &Server, dir: &Path) -> Server {
    let into = Server::start(Program::Tidegate, &[]);
    let file = dir.join("dump.rdb");
    match way {
        "import from a server" => _ = import(&url(from), &into, &[]).unwrap(),
        "SYNC as a file" => {
            let mut replica = from.raw();
            assert_eq!(replica.command(&["REPLCONF", "capa", "eof"]), Value::status("OK"));
            replica.send_command(&["SYNC"]);
            let sent = replica.read_to_end();
            // Between the first line and the mark at the end.
            std::fs::write(&file, &sent[5 + 40 + 2..sent.len() - 40]).unwrap();
            import(text(&file), &into, &[]).unwrap();
        }
        "export" => {
            run(&["export", text(&file), "--from", &url(from)]).unwrap();
            import(text(&file), &into, &[]).unwrap();
        }
        "rdb-export" => {
            assert_eq!(from.raw().command(&["SAVE"]), Value::status("OK"));
            import(text(&file), &into, &[]).unwrap();
        }
        "DUMP and RESTORE" => {
            let (mut here, mut there) = (from.raw(), into.raw());
            for key in keys(&mut here) {
                let payload = here.command(&["DUMP", &key]);
                let Value::Integer(at_ms) = here.command(&["PEXPIRETIME", &key]) else { panic!("a time") };
                let at_ms = at_ms.max(0).to_string();
                let restore = [b"RESTORE", key.as_bytes(), at_ms.as_bytes(), payload.bytes().unwrap(), b"ABSTTL"];
                assert_eq!(there.command(&restore), Value::status("OK"), "{key}");
            }
        }
        "MIGRATE" => {
            let mut here = from.raw();
            for key in keys(&mut here) {
                let port = into.port().to_string();
                let migrate = ["MIGRATE", "127.0.0.1", &port, &key, "0", "5000"];
                assert_eq!(here.command(&migrate), Value::status("OK"), "{key}");
            }
        }
        _ => unreachable!("{way}"),
    }
    into
}

#[test]
fn each_way_carries_the_features_that_the_table_lists() {
    let mut differences = Vec::new();
    for (column, way) in WAYS.into_iter().enumerate() {
        let dir = tempfile::tempdir().unwrap();
        let from = filled(dir.path(), &["--rdb-export", "yes"]);
        let mut here = from.raw();
        let wanted: Vec<Vec<Value>> = FEATURES.iter().map(|Feature(_, _, shows, _)| said(&mut here, shows)).collect();
        let into = carry(way, &from, dir.path());
        let mut there = into.raw();
        for (Feature(name, _, shows, becomes), wanted) in FEATURES.iter().zip(wanted) {
            let arrived = said(&mut there, shows);
            let key = words(shows[0])[1..].first().cloned().unwrap_or_default();
            let is_there = there.command(&["EXISTS", &key]) == Value::Integer(1);
            let is_raised = *name == "the last token" && arrived != [Value::Integer(0)];
            let became = match () {
                () if wanted == arrived => b'=',
                () if is_there || is_raised => b'<',
                () => b'-',
            };
            let expected = becomes.as_bytes()[column];
            if expected != became {
                let became = became as char;
                differences.push(format!("{name}, by {way}: {became}: {wanted:?} became {arrived:?}"));
            }
        }
    }
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}
