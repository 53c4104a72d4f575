//! MEMORY: where the server's memory is reported to be, and how much of it is given back.

use std::collections::BTreeMap;

use crate::harness::{Program, Raw, Server, Value, encode, until};
use crate::oracle::REDIS_SERVER;

const MIB: i64 = 1 << 20;

/// The fields of MEMORY STATS by name.
type Stats = BTreeMap<String, Value>;

fn text(value: &Value) -> String {
    String::from_utf8_lossy(value.bytes().unwrap_or_else(|| panic!("no text: {value:?}"))).into_owned()
}

fn pairs(value: Value) -> Stats {
    match value {
        Value::Map(pairs) => pairs.into_iter().map(|(name, value)| (text(&name), value)).collect(),
        Value::Array(items) => items.chunks_exact(2).map(|pair| (text(&pair[0]), pair[1].clone())).collect(),
        other => panic!("no map: {other:?}"),
    }
}

fn stats(raw: &mut Raw) -> Stats {
    pairs(raw.command(&["MEMORY", "STATS"]))
}

fn integer(stats: &Stats, name: &str) -> i64 {
    match stats.get(name) {
        Some(Value::Integer(number)) => *number,
        other => panic!("{name}: {other:?}"),
    }
}

/// A number in the form that INFO memory uses.
fn info(raw: &mut Raw, name: &str) -> i64 {
    let all = text(&raw.command(&["INFO", "memory"]));
    let value = all.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    value.unwrap_or_else(|| panic!("{name} is not there")).parse().unwrap_or_else(|_| panic!("{name} is no integer"))
}

/// Sets or deletes the keys `prefix:0` and up, as one pipeline.
fn for_keys(raw: &mut Raw, prefix: &str, numbers: impl Iterator<Item = usize>, value: Option<&str>) {
    let command = |number: usize| {
        let key = format!("{prefix}:{number}");
        value.map_or_else(|| encode(&["DEL", &key]), |value| encode(&["SET", &key, value]))
    };
    let commands: Vec<Vec<u8>> = numbers.map(command).collect();
    raw.send(&commands.concat());
    commands.iter().for_each(|_| assert!(!matches!(raw.reply().value, Value::Error(_))));
}

/// Returns the type of a field's value, in words.
fn shape(value: &Value) -> String {
    match value {
        Value::Map(pairs) => format!("map of {}", pairs.len()),
        Value::Array(items) => format!("array of {}", items.len()),
        Value::Integer(_) => "integer".to_owned(),
        Value::Double(_) => "double".to_owned(),
        Value::Bulk(text) => format!("number: {}", String::from_utf8_lossy(text).parse::<f64>().is_ok()),
        other => format!("{other:?}"),
    }
}

#[test]
fn stats_has_the_fields_and_types_of_redis() {
    if REDIS_SERVER.is_missing() {
        return;
    }
    for resp3 in [false, true] {
        let shapes = [Program::Redis, Program::Tidegate].map(|program| {
            let server = Server::start(program, &[]);
            let mut raw = server.raw();
            if resp3 {
                raw.hello3();
            }
            raw.command(&["SET", "k", "v", "PX", "100000"]);
            let mut stats = stats(&mut raw);
            // In 7.0 the reply covers the slots of a cluster, too.
            let database = pairs(stats.remove("db.0").expect("a database that holds a key"));
            let names = ["overhead.hashtable.main", "overhead.hashtable.expires"];
            names.iter().for_each(|name| assert!(integer(&database, name) > 0, "{name}"));
            stats.iter().map(|(name, value)| (name.clone(), shape(value))).collect::<BTreeMap<_, _>>()
        });
        let [theirs, ours] = shapes;
        for (name, shape) in &theirs {
            assert_eq!(ours.get(name), Some(shape), "{name}, RESP3: {resp3}");
        }
    }
}

#[test]
fn stats_and_info_agree_and_their_parts_add_up() {
    let server = Server::start(Program::Tidegate, &[]);
    let mut raw = server.raw();
    for_keys(&mut raw, "k", 0..20_000, Some("a value of some length"));
    raw.command(&["SELECT", "3"]);
    raw.command(&["SET", "k", "v"]);
    let all = stats(&mut raw);
    let of = |name: &str| integer(&all, name);
    assert_eq!(of("keys.count"), 20_001);
    assert_eq!(of("overhead.total") + of("dataset.bytes"), of("total.allocated"));
    assert_eq!(of("allocator.active") - of("allocator.allocated"), of("allocator-fragmentation.bytes"));
    assert!(of("startup.allocated") < of("total.allocated") && of("total.allocated") <= of("peak.allocated"));
    assert!((29..48).contains(&of("keys.bytes-per-key")), "key, value and what rounds them up: {all:?}");
    let databases: Vec<&String> = all.keys().filter(|name| name.starts_with("db.") && name.len() == 4).collect();
    assert_eq!(databases, ["db.0", "db.3"]);
    for (name, in_info) in [
        ("startup.allocated", "used_memory_startup"),
        ("allocator-fragmentation.bytes", "allocator_frag_bytes"),
        ("replication.backlog", "mem_replication_backlog"),
    ] {
        assert_eq!(of(name), info(&mut raw, in_info), "{name}");
    }
    let near = |name: &str, other: i64| assert!((of(name) - other).abs() < MIB, "{name}: {} and {other}", of(name));
    near("total.allocated", info(&mut raw, "used_memory"));
    near("overhead.total", info(&mut raw, "used_memory_overhead"));
    near("dataset.bytes", info(&mut raw, "used_memory_dataset"));
    near("allocator.resident", info(&mut raw, "allocator_resident"));
}

/// Memory held by clients is reported under clients.
#[test]
fn queued_commands_count_as_memory_of_clients() {
    let server = Server::start(Program::Tidegate, &[]);
    let mut raw = server.raw();
    let before = integer(&stats(&mut raw), "clients.normal");
    let mut queueing = server.raw();
    queueing.command(&["MULTI"]);
    queueing.command(&["SET", "k", &"x".repeat(3 << 20)]);
    let held = integer(&stats(&mut raw), "clients.normal") - before;
    assert!((3 * MIB..4 * MIB).contains(&held), "{held}");
    assert!(integer(&stats(&mut raw), "overhead.total") > 3 * MIB);
}

/// Holes between keys are reported as fragmentation, not as memory in use; without keys they are given back.
#[test]
fn overhead_is_not_counted_as_data() {
    let server = Server::start(Program::Tidegate, &["--slowlog-log-slower-than", "-1"]);
    let (mut raw, mut other) = (server.raw(), server.raw());
    let long = "x".repeat(MIB as usize);
    let many = |number: usize| format!("{number}{}", "y".repeat(250));
    type Step<'a> = (&'static str, &'static str, Box<dyn Fn(&mut Raw) + 'a>);
    let steps: Vec<Step<'_>> = vec![
        ("a user's name", "mem_acl", Box::new(|raw| drop(raw.command(&["ACL", "SETUSER", &long])))),
        (
            "a user's pattern",
            "mem_acl",
            Box::new(|raw| drop(raw.command(&["ACL", "SETUSER", "u", &format!("~{long}")]))),
        ),
        ("a client's name", "mem_clients_normal", Box::new(|raw| drop(raw.command(&["CLIENT", "SETNAME", &long])))),
        (
            "names that were refused",
            "mem_acl",
            Box::new(|raw| (0..100).for_each(|number| drop(raw.command(&["AUTH", &many(number), "no"])))),
        ),
        (
            "commands that took long",
            "mem_history",
            Box::new(|raw| {
                raw.command(&["CONFIG", "SET", "slowlog-log-slower-than", "0"]);
                (0..127).for_each(|number| drop(raw.command(&["GET", &many(number)])));
                raw.command(&["CONFIG", "SET", "slowlog-log-slower-than", "-1"]);
            }),
        ),
        (
            "grants that were given",
            "mem_history",
            Box::new(|raw| {
                (0..1_000).for_each(|number| {
                    raw.command(&["LOCK.ACQUIRE", "lock", &many(number), "PX", "60000"]);
                    raw.command(&["LOCK.RELEASE", "lock", &many(number)]);
                });
            }),
        ),
    ];
    for (what, field, step) in &steps {
        let (used, held) = (info(&mut other, "used_memory"), info(&mut other, field));
        let dataset = info(&mut other, "used_memory_dataset");
        step(&mut raw);
        let (grown, told) = (info(&mut other, "used_memory") - used, info(&mut other, field) - held);
        assert!(told > grown * 3 / 4 && grown > MIB / 32, "{what}: {told} of {grown}");
        let added = info(&mut other, "used_memory_dataset") - dataset;
        assert!(added < grown / 4, "{what}: {added} of {grown} count as data");
    }
}

/// The peak of resident memory, as the kernel reports it. It also covers peaks in the middle of a command.
fn most_resident_bytes(server: &Server) -> i64 {
    let text = std::fs::read_to_string(format!("/proc/{}/status", server.pid())).unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap_or_default();
    line.split_whitespace().next().and_then(|kib| kib.parse::<i64>().ok()).expect("a number of KiB") * 1024
}

#[test]
fn a_reply_that_is_too_long_is_not_built_to_its_end() {
    let server = Server::start(Program::Tidegate, &[]);
    let mut raw = server.raw();
    let large = "x".repeat(4 * MIB as usize);
    raw.command(&["SET", "k", &large]);
    raw.command(&["HSET", "h", "k", &large]);
    fn line(words: &str) -> Vec<&str> {
        words.split(' ').collect()
    }
    let ask = |times: usize| [&["MGET"][..], &vec!["k"; times]].concat();
    let of_a_hash = [&["HMGET", "h"][..], &vec!["k"; 200]].concat();
    for call in ["SADD of-a-set", "ZADD of-a-zset 1", "RPUSH list"] {
        raw.command(&[&line(call)[..], &[&large]].concat());
    }
    raw.command(&["RPUSH", "numbers", "1", "2"]);
    raw.command(&["HSET", "hash", "f", &large]);
    raw.command(&["SET", "w1", &large]);
    let gets = ["GET", "w*"].repeat(200);
    let by_field = ["GET", "*->k"].repeat(100);
    raw.command(&["RPUSH", "names", "h", "h"]);
    let calls = [
        line("SRANDMEMBER of-a-set -200"),
        line("ZRANDMEMBER of-a-zset -200 WITHSCORES"),
        line("HRANDFIELD hash -200 WITHVALUES"),
        [&["SORT", "numbers"][..], &gets].concat(),
        [&["SORT_RO", "names", "BY", "nosort"][..], &by_field].concat(),
        ask(200),
        of_a_hash,
    ];
    for too_long in calls {
        let refusal = raw.command(&too_long);
        let is_refused = refusal.bytes().is_some_and(|text| text.starts_with(b"ERR reply exceeds"));
        assert!(is_refused, "{} is answered", too_long[0]);
        let peak = most_resident_bytes(&server);
        assert!(peak < 250 * MIB, "{peak} after {}", too_long[0]);
    }
    // A range that fits is returned in full, even a long one, and each key counts once.
    raw.command(&["CONFIG", "RESETSTAT"]);
    let Value::Array(strings) = raw.command(&ask(20)) else { panic!("MGET answers an array") };
    assert!(strings.iter().all(|string| string.bytes().is_some_and(|bytes| bytes.len() == 4 * MIB as usize)));
    assert_eq!(strings.len(), 20);
    let told = raw.command(&["INFO", "stats"]);
    assert!(String::from_utf8_lossy(told.bytes().unwrap()).contains("keyspace_hits:20\r\n"), "{told:?}");
    let Value::Array(drawn) = raw.command(&line("SRANDMEMBER of-a-set -20")) else { panic!("an array") };
    assert!(drawn.len() == 20 && drawn.iter().all(|member| member.bytes() == Some(large.as_bytes())));
    raw.command(&["CONFIG", "RESETSTAT"]);
    let sort = [&["SORT", "numbers"][..], &["GET", "w*"].repeat(10)].concat();
    let Value::Array(found) = raw.command(&sort) else { panic!("SORT answers an array") };
    assert!(found[..10].iter().all(|value| value.bytes() == Some(large.as_bytes())));
    assert!(found[10..].iter().all(|value| *value == Value::Null) && found.len() == 20);
    let told = raw.command(&["INFO", "stats"]);
    // The list, and each key once.
    assert!(String::from_utf8_lossy(told.bytes().unwrap()).contains("keyspace_hits:11\r\n"), "{told:?}");
}

#[test]
fn free_slots_are_reported_and_given_back() {
    let server = Server::start(Program::Tidegate, &[]);
    let mut raw = server.raw();
    for_keys(&mut raw, "k", 0..100_000, Some("a value of some length"));
    let full = integer(&stats(&mut raw), "allocator-fragmentation.bytes");
    assert!(full < MIB, "{full}");
    for_keys(&mut raw, "k", (0..100_000).filter(|number| number % 2 == 1), None);
    let half = integer(&stats(&mut raw), "allocator-fragmentation.bytes");
    assert!(half > 3 * MIB / 2, "{half}");
    for_keys(&mut raw, "k", (0..100_000).filter(|number| *number > 0 && number % 2 == 0), None);
    let kept = integer(&stats(&mut raw), "allocator-fragmentation.bytes");
    assert_eq!(raw.command(&["MEMORY", "PURGE"]), Value::status("OK"));
    let one = integer(&stats(&mut raw), "allocator-fragmentation.bytes");
    // Of two chunks without keys one was kept.
    assert!(one < kept && one < MIB / 8, "{kept} and {one}");
}

/// Freed memory goes back to the system, even when the server is idle afterwards.
#[test]
fn freed_memory_is_returned_without_a_purge() {
    resident_falls(20_000, 15 * MIB, &[]);
}

/// A small reserve is kept for later allocations, unless MEMORY PURGE asks for it.
#[test]
fn purge_returns_the_small_reserve() {
    resident_falls(3_000, 2 * MIB, &["MEMORY", "PURGE"]);
}

/// Deletes `values` values of 1 kB, sends `then`, and waits until the process is smaller by `bytes`.
fn resident_falls(values: usize, bytes: i64, then: &[&str]) {
    let server = Server::start(Program::Tidegate, &[]);
    let mut raw = server.raw();
    for_keys(&mut raw, "k", 0..values, Some(&"x".repeat(1_000)));
    let full = info(&mut raw, "used_memory_rss");
    for_keys(&mut raw, "k", 0..values, None);
    if !then.is_empty() {
        assert_eq!(raw.command(then), Value::status("OK"));
    }
    until(|| info(&mut raw, "used_memory_rss") < full - bytes, "the process becomes smaller");
}

/// A script that fails after MEMORY PURGE is undone like any other: its keys return to their places.
#[test]
fn purge_keeps_memory_that_a_rollback_may_need() {
    let server = Server::start(Program::Tidegate, &[]);
    let mut raw = server.raw();
    for_keys(&mut raw, "k", 0..10_000, Some("v"));
    let script = "for i = 0, 9999 do redis.call('DEL', 'k:' .. i) end redis.call('MEMORY', 'PURGE') \
                  for i = 0, 99 do redis.call('SET', 'new:' .. i, 'v') end redis.call('nosuchcommand')";
    assert!(matches!(raw.command(&["EVAL", script, "0"]), Value::Error(_)));
    assert_eq!(raw.command(&["DBSIZE"]), Value::Integer(10_000));
    assert_eq!(raw.command(&["GET", "k:9999"]), Value::bulk("v"));
    assert_eq!(raw.command(&["EXISTS", "new:0"]), Value::Integer(0));
}

#[test]
fn the_doctor_reports_fragmentation_and_peaks() {
    let server = Server::start(Program::Tidegate, &[]);
    let mut raw = server.raw();
    let mut report = || text(&raw.command(&["MEMORY", "DOCTOR"]));
    assert!(report().contains("too little"), "{}", report());
    let mut writer = server.raw();
    for_keys(&mut writer, "k", 0..250_000, Some(&"x".repeat(100)));
    assert!(!report().contains("Places between keys"), "{}", report());
    for_keys(&mut writer, "k", (0..250_000).filter(|number| number % 2 == 1), None);
    assert!(report().contains("* Places between keys: "), "{}", report());
    for_keys(&mut writer, "k", (0..250_000).filter(|number| number % 2 == 0 && number % 4 != 0), None);
    until(|| report().contains("* Peak: "), "the peak stands out");
}

#[test]
fn malloc_stats_shows_the_allocators_report() {
    let server = Server::start(Program::Tidegate, &[]);
    let mut raw = server.raw();
    raw.hello3();
    let Value::Verbatim(text) = raw.command(&["MEMORY", "MALLOC-STATS"]) else { panic!("a text") };
    let text = String::from_utf8_lossy(&text).into_owned();
    assert!(["reserved", "committed", "threads"].iter().all(|word| text.contains(word)), "{text}");
}
