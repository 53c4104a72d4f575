//! Which keys are evicted when memory is full, and how clients learn of it. `maxmemory` covers the commands that still
//! run then. The same tests run against Redis, where it has the policies.

use crate::crowd::on_both;
use crate::harness::{Program, Raw, Server, Value, encode, until};

on_both!(
    each_policy_keeps_the_limit_and_evicts_no_protected_key,
    used_keys_outlast_unused_ones,
    keys_that_expire_last_are_evicted_last,
    transactions_and_scripts_find_everything_that_they_wrote,
    eviction_of_a_watched_key_aborts_the_transaction,
    object_freq_and_idletime_report_use_of_keys,
    nothing_is_evicted_without_a_limit,
);

const MIB: u64 = 1 << 20;

/// The policies of a program.
fn policies(program: Program) -> Vec<&'static str> {
    let mut policies = vec![
        "allkeys-lru",
        "allkeys-lfu",
        "allkeys-random",
        "volatile-lru",
        "volatile-lfu",
        "volatile-random",
        "volatile-ttl",
    ];
    if program == Program::Tidegate {
        policies.extend(["allkeys-lrm", "volatile-lrm"]);
    }
    policies
}

fn field(raw: &mut Raw, section: &str, name: &str) -> u64 {
    number_in(&raw.command(&["INFO", section]), name)
}

fn number_in(info: &Value, name: &str) -> u64 {
    let info = String::from_utf8_lossy(info.bytes().expect("text"));
    info.lines().find_map(|line| line.strip_prefix(name)).expect("INFO tells").parse().expect("a number")
}

fn evicted(raw: &mut Raw) -> u64 {
    field(raw, "stats", "evicted_keys:")
}

fn used(raw: &mut Raw) -> u64 {
    field(raw, "memory", "used_memory:")
}

fn set(raw: &mut Raw, name: &str, value: &str) {
    assert_eq!(raw.command(&["CONFIG", "SET", name, value]), Value::status("OK"));
}

/// A server with a policy whose `maxmemory` lies this many bytes above its use.
fn start(program: Program, policy: &str, more: u64) -> (Server, Raw) {
    let server = Server::start(program, &["--maxmemory-policy", policy]);
    let mut raw = server.raw();
    let limit = used(&mut raw) + more;
    set(&mut raw, "maxmemory", &limit.to_string());
    (server, raw)
}

/// Sends commands in one pipeline; returns how many were refused.
fn send_all(raw: &mut Raw, commands: impl Iterator<Item = Vec<String>>) -> usize {
    let (mut sent, mut request) = (0, Vec::new());
    for words in commands {
        request.extend(encode(&words));
        sent += 1;
    }
    raw.send(&request);
    (0..sent).filter(|_| matches!(raw.reply().value, Value::Error(_))).count()
}

/// SETs of 1 KiB values under `prefix` and a number, with `also` appended.
fn sets<'a>(
    prefix: &'a str,
    keys: std::ops::Range<u32>,
    also: &'a [&'a str],
) -> impl Iterator<Item = Vec<String>> + 'a {
    let value = "x".repeat(1_024);
    keys.map(move |n| {
        let mut words = vec!["SET".to_owned(), format!("{prefix}{n}"), value.clone()];
        words.extend(also.iter().map(|word| (*word).to_owned()));
        words
    })
}

/// How many of these keys exist.
fn there(raw: &mut Raw, prefix: &str, keys: std::ops::Range<u32>) -> usize {
    let mut words = vec!["EXISTS".to_owned()];
    words.extend(keys.map(|n| format!("{prefix}{n}")));
    let Value::Integer(n) = raw.command(&words) else { panic!("no number") };
    n as usize
}

fn each_policy_keeps_the_limit_and_evicts_no_protected_key(program: Program) {
    for policy in policies(program) {
        let (_server, mut raw) = start(program, policy, 4 * MIB);
        let limit = field(&mut raw, "memory", "maxmemory:");
        assert_eq!(send_all(&mut raw, sets("stays:", 0..1_000, &[])), 0, "{policy}");
        for part in 0..10 {
            let keys = part * 1_000..(part + 1) * 1_000;
            assert_eq!(send_all(&mut raw, sets("goes:", keys, &["EX", "10000"])), 0, "{policy}");
        }
        assert!(used(&mut raw) < limit + MIB / 2, "{policy}: {} of {limit}", used(&mut raw));
        let gone = evicted(&mut raw);
        assert!((5_000..11_000).contains(&gone), "{policy}: {gone} keys were evicted");
        assert_eq!(raw.command(&["DBSIZE"]), Value::Integer(11_000 - gone as i64));
        let stays = there(&mut raw, "stays:", 0..1_000);
        if policy.starts_with("volatile") {
            assert_eq!(stays, 1_000, "{policy}");
            // When no evictable key is left, commands are refused.
            let refused = send_all(&mut raw, sets("too much:", 0..6_000, &[]));
            assert!((1..6_000).contains(&refused), "{policy}: {refused}");
            assert_eq!(there(&mut raw, "goes:", 0..10_000), 0, "{policy}");
            assert_eq!(there(&mut raw, "stays:", 0..1_000), 1_000, "{policy}");
        } else {
            assert!(stays < 1_000, "{policy}: {stays}");
        }
        set(&mut raw, "maxmemory-policy", "noeviction");
        let gone = evicted(&mut raw);
        assert!(send_all(&mut raw, sets("more:", 0..5_000, &[])) > 0);
        assert_eq!(evicted(&mut raw), gone);
        raw.command(&["CONFIG", "RESETSTAT"]);
        assert_eq!(evicted(&mut raw), 0);
    }
}

fn used_keys_outlast_unused_ones(program: Program) {
    for policy in ["allkeys-lru", "allkeys-lfu"] {
        let (_server, mut raw) = start(program, policy, 4 * MIB);
        assert_eq!(send_all(&mut raw, sets("hot:", 0..200, &[])), 0);
        let touch = || (0..200).map(|n| vec!["GET".to_owned(), format!("hot:{n}")]);
        // The frequency must exceed that of a new key.
        (0..40).for_each(|_| assert_eq!(send_all(&mut raw, touch()), 0));
        for part in 0..40 {
            send_all(&mut raw, sets("cold:", part * 250..(part + 1) * 250, &[]));
            send_all(&mut raw, touch());
            if policy == "allkeys-lru" {
                // Redis measures idle time in seconds.
                std::thread::sleep(std::time::Duration::from_millis(if program == Program::Tidegate {
                    10
                } else {
                    150
                }));
            }
        }
        let (hot, cold) = (there(&mut raw, "hot:", 0..200), there(&mut raw, "cold:", 0..10_000));
        assert!(hot > 170, "{policy}: {hot} of 200 that were used are there, and {cold} of 10000 that were not");
        assert!(cold < 5_000);
    }
}

fn keys_that_expire_last_are_evicted_last(program: Program) {
    let (_server, mut raw) = start(program, "volatile-ttl", 4 * MIB);
    let value = "x".repeat(1_024);
    let commands = (0..10_000u32).map(|n| {
        // In no order of their deadlines.
        let seconds = 1_000 + n * 7_919 % 10_000;
        vec!["SET".to_owned(), format!("{seconds}"), value.clone(), "EX".to_owned(), seconds.to_string()]
    });
    assert_eq!(send_all(&mut raw, commands), 0);
    let (early, late) = (there(&mut raw, "", 1_000..3_000), there(&mut raw, "", 9_000..11_000));
    assert!(
        early < 200 && late > 1_000,
        "{early} of 2000 that expire soon are there, and {late} of 2000 that expire late"
    );
}

fn transactions_and_scripts_find_everything_that_they_wrote(program: Program) {
    let (_server, mut raw) = start(program, "allkeys-random", 4 * MIB);
    send_all(&mut raw, sets("old:", 0..10_000, &[]));
    raw.command(&["MULTI"]);
    send_all(&mut raw, sets("new:", 0..2_000, &[]));
    raw.command(&["EVAL", "return redis.call('EXISTS', unpack(KEYS))", "3", "new:0", "new:1000", "new:1999"]);
    let Value::Array(replies) = raw.command(&["EXEC"]) else { panic!("no transaction") };
    assert_eq!((replies.len(), replies.last()), (2_001, Some(&Value::Integer(3))));
    let script = "for n = 1, 3000 do redis.call('SET', 'script:' .. n, ('x'):rep(1024)) end \
                  local there = 0 for n = 1, 3000 do there = there + redis.call('EXISTS', 'script:' .. n) end \
                  return there";
    assert_eq!(raw.command(&["EVAL", script, "0"]), Value::Integer(3_000));
    // The next command evicts the excess.
    let limit = field(&mut raw, "memory", "maxmemory:");
    until(
        || {
            raw.command(&["PING"]);
            used(&mut raw) < limit + MIB / 2
        },
        "memory is freed",
    );
}

fn eviction_of_a_watched_key_aborts_the_transaction(program: Program) {
    let (server, mut raw) = start(program, "allkeys-random", 4 * MIB);
    let mut other = server.raw();
    other.command(&["SET", "watched", "v"]);
    assert_eq!(other.command(&["WATCH", "watched"]), Value::status("OK"));
    assert_eq!(other.command(&["MULTI"]), Value::status("OK"));
    assert_eq!(other.command(&["SET", "seen", "v"]), Value::status("QUEUED"));
    let mut part = 0;
    while raw.command(&["EXISTS", "watched"]) == Value::Integer(1) {
        send_all(&mut raw, sets("key:", part * 1_000..(part + 1) * 1_000, &[]));
        part += 1;
        assert!(part < 500, "the key was never evicted");
    }
    assert_eq!(other.command(&["EXEC"]), Value::Null);
}

fn object_freq_and_idletime_report_use_of_keys(program: Program) {
    let server = Server::start(program, &[]);
    let mut raw = server.raw();
    let (no_lfu, lfu) = ("ERR An LFU maxmemory policy is not selected", "ERR An LFU maxmemory policy is selected");
    let fails = |reply: Value, with: &str| matches!(reply, Value::Error(text) if text.starts_with(with.as_bytes()));
    raw.command(&["SET", "k", "v"]);
    let Value::Bulk(payload) = raw.command(&["DUMP", "k"]) else { panic!("no payload") };
    let restore = |raw: &mut Raw, option: &str, number: &str| {
        let words = [&b"RESTORE"[..], b"r", b"0", &payload, b"REPLACE", option.as_bytes(), number.as_bytes()];
        assert_eq!(raw.command(&words), Value::status("OK"));
    };
    assert!(fails(raw.command(&["OBJECT", "FREQ", "k"]), no_lfu));
    restore(&mut raw, "IDLETIME", "1000");
    assert!(matches!(raw.command(&["OBJECT", "IDLETIME", "r"]), Value::Integer(1_000..=1_010)));
    set(&mut raw, "maxmemory-policy", "allkeys-lfu");
    assert!(fails(raw.command(&["OBJECT", "IDLETIME", "k"]), lfu));
    assert_eq!(raw.command(&["OBJECT", "FREQ", "none"]), Value::Null);
    restore(&mut raw, "FREQ", "100");
    assert_eq!(raw.command(&["OBJECT", "FREQ", "r"]), Value::Integer(100));
    // Neither OBJECT FREQ nor TTL counts as a use.
    raw.command(&["TTL", "r"]);
    assert_eq!(raw.command(&["OBJECT", "FREQ", "r"]), Value::Integer(100));
    raw.command(&["SET", "new", "v"]);
    assert!(matches!(raw.command(&["OBJECT", "FREQ", "new"]), Value::Integer(5 | 6)));
    set(&mut raw, "lfu-log-factor", "0");
    for _ in 0..300 {
        raw.command(&["GET", "new"]);
    }
    assert_eq!(raw.command(&["OBJECT", "FREQ", "new"]), Value::Integer(255));
}

fn nothing_is_evicted_without_a_limit(program: Program) {
    let server = Server::start(program, &["--maxmemory-policy", "allkeys-lru"]);
    let mut raw = server.raw();
    assert_eq!(send_all(&mut raw, sets("key:", 0..10_000, &[])), 0);
    assert_eq!((raw.command(&["DBSIZE"]), evicted(&mut raw)), (Value::Integer(10_000), 0));
    // A limit that is set later is kept from then on, even without commands.
    let limit = used(&mut raw) / 2;
    set(&mut raw, "maxmemory", &limit.to_string());
    until(|| used(&mut raw) < limit + MIB / 2, "the excess is evicted");
    assert!(evicted(&mut raw) > 1_000);
}

/// As in Redis 8.6: a read does not save a key, a change does.
#[test]
fn under_lrm_changed_keys_outlast_read_ones() {
    let (_server, mut raw) = start(Program::Tidegate, "allkeys-lrm", 4 * MIB);
    send_all(&mut raw, sets("read:", 0..200, &[]));
    send_all(&mut raw, sets("changed:", 0..200, &[]));
    for part in 0..40 {
        send_all(&mut raw, sets("cold:", part * 250..(part + 1) * 250, &[]));
        send_all(&mut raw, (0..200).map(|n| vec!["GET".to_owned(), format!("read:{n}")]));
        send_all(&mut raw, (0..200).map(|n| vec!["APPEND".to_owned(), format!("changed:{n}"), "y".to_owned()]));
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    let (read, changed) = (there(&mut raw, "read:", 0..200), there(&mut raw, "changed:", 0..200));
    assert!(read < 50 && changed > 170, "{read} that were read are there, and {changed} that were changed");
}

/// Evicted keys stay gone after a crash, and the others stay; a snapshot runs at the same time.
#[test]
fn evicted_keys_stay_gone_after_a_crash() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let dir = folder.path().to_str().expect("a plain path");
    let flags = ["--appendonly", "yes", "--appendfsync", "no", "--dir", dir, "--maxmemory-policy", "allkeys-lru"];
    let contents = |raw: &mut Raw| {
        let Value::Array(keys) = raw.command(&["KEYS", "*"]) else { panic!("no keys") };
        let mut keys: Vec<Vec<u8>> = keys.iter().filter_map(|key| key.bytes().map(<[u8]>::to_vec)).collect();
        keys.sort();
        keys
    };
    let before = {
        let server = Server::start(Program::Tidegate, &flags);
        let mut raw = server.raw();
        let limit = used(&mut raw) + 4 * MIB;
        set(&mut raw, "maxmemory", &limit.to_string());
        for part in 0..10 {
            assert_eq!(send_all(&mut raw, sets("key:", part * 1_000..(part + 1) * 1_000, &[])), 0);
            if part % 4 == 2 {
                raw.command(&["BGSAVE"]);
            }
        }
        assert!(evicted(&mut raw) > 5_000);
        until(|| field(&mut raw, "persistence", "rdb_bgsave_in_progress:") == 0, "the snapshot is complete");
        set(&mut raw, "maxmemory", "0");
        contents(&mut raw)
    };
    assert!(
        before.len() > 1_000,
        "data waiting for the disk caused too many evictions: {} keys are left",
        before.len()
    );
    let server = Server::start(Program::Tidegate, &flags);
    assert_eq!(contents(&mut server.raw()), before);
}

/// A client waiting for a group of an evicted stream gets an error; one waiting for an element keeps waiting.
#[test]
fn a_client_waiting_for_an_evicted_group_gets_an_error() {
    let (server, mut raw) = start(Program::Tidegate, "allkeys-random", 4 * MIB);
    let (mut reader, mut popper) = (server.raw(), server.raw());
    raw.command(&["XGROUP", "CREATE", "stream", "group", "$", "MKSTREAM"]);
    reader.send_command(&["XREADGROUP", "GROUP", "group", "me", "BLOCK", "0", "STREAMS", "stream", ">"]);
    popper.send_command(&["BLPOP", "list", "0"]);
    until(|| field(&mut raw, "clients", "blocked_clients:") == 2, "both clients wait");
    let mut part = 0;
    while raw.command(&["EXISTS", "stream"]) == Value::Integer(1) {
        send_all(&mut raw, sets("key:", part * 1_000..(part + 1) * 1_000, &[]));
        part += 1;
        assert!(part < 500, "the key was never evicted");
    }
    assert!(matches!(reader.reply().value, Value::Error(_)));
    raw.command(&["RPUSH", "list", "element"]);
    assert_eq!(popper.reply().value, Value::Array(vec![Value::bulk("list"), Value::bulk("element")]));
}

/// A large evicted value is freed on another thread, and until then must not cause other evictions.
#[test]
fn a_large_evicted_value_causes_no_other_evictions() {
    let (_server, mut raw) = start(Program::Tidegate, "allkeys-lru", 48 * MIB);
    let script = "for n = 1, 400 do local t = {} for m = 1, 1000 do t[m] = n * 1000 + m .. ('x'):rep(60) end \
                  redis.call('SADD', KEYS[1], unpack(t)) end return redis.call('SCARD', KEYS[1])";
    assert_eq!(raw.command(&["EVAL", script, "1", "large"]), Value::Integer(400_000));
    // Few keys, so that it is sampled soon.
    let value = "x".repeat(32 * 1_024);
    let add = |raw: &mut Raw, keys: std::ops::Range<u32>| {
        for n in keys {
            assert_eq!(raw.command(&["SET", &format!("small:{n}"), &value]), Value::status("OK"));
        }
    };
    add(&mut raw, 0..160);
    assert_eq!(there(&mut raw, "small:", 0..160), 160, "no key was evicted");
    // Now the large value is the longest unused: its eviction makes room for many others.
    add(&mut raw, 160..960);
    assert_eq!(raw.command(&["EXISTS", "large"]), Value::Integer(0));
    let gone = evicted(&mut raw);
    assert!(gone < 300, "{gone} keys were evicted");
}

/// A large eviction takes several turns, and others are served between them.
#[test]
fn a_large_excess_is_evicted_in_slices() {
    let server = Server::start(Program::Tidegate, &["--maxmemory-policy", "allkeys-random"]);
    let mut raw = server.raw();
    send_all(&mut raw, sets("key:", 0..30_000, &[]));
    let limit = used(&mut raw) / 4;
    set(&mut raw, "maxmemory-eviction-tenacity", "0");
    set(&mut raw, "maxmemory", &limit.to_string());
    // No command is refused during the eviction.
    while used(&mut raw) > limit {
        assert_eq!(raw.command(&["SET", "k", "v"]), Value::status("OK"));
    }
    assert_eq!(field(&mut raw, "stats", "current_eviction_exceeded_time:"), 0);
    assert!(evicted(&mut raw) > 10_000);
}

/// Growth of the server's own tables is made up for by the next command, even if its time slice is short: on a busy
/// machine another process may take that time.
#[test]
fn a_small_excess_is_evicted_before_one_command() {
    let server = Server::start(Program::Tidegate, &["--maxmemory-policy", "allkeys-random"]);
    let mut raw = server.raw();
    send_all(&mut raw, sets("key:", 0..1_000, &[]));
    set(&mut raw, "maxmemory-eviction-tenacity", "0");
    let limit = (used(&mut raw) - 64 * 1_024).to_string();
    // In one pipeline, so that no slice comes between.
    raw.send(&[encode(&["CONFIG", "SET", "maxmemory", &limit]), encode(&["INFO", "stats"])].concat());
    assert_eq!(raw.reply().value, Value::status("OK"));
    let gone = number_in(&raw.reply().value, "evicted_keys:");
    assert!(gone >= 50, "{gone} keys were evicted");
}
