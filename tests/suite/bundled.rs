//! The scripts of `lua/`: each kind of reply, bad arguments, expiry, repetition, and invariants under a crowd of
//! clients.
//!
//! Every test runs on Redis too, since the scripts are promised to work there unchanged.

use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};

use redis::{Connection, Value};

use crate::crowd::{CROWD, Lua, at_once, now_ms, on_both, run, try_run};
use crate::harness::{Program, Server};

on_both!(
    headers_are_contracts,
    bad_arguments_say_what_to_do_and_change_nothing,
    functions_reply_like_the_scripts,
    wrong_types_change_nothing,
    gate_distinguishes_the_last_grant_from_a_refusal,
    gate_release_reports_when_no_place_was_held,
    gate_takes_over_lapsed_leases_only_when_full,
    gate_takes_over_the_counter_of_the_older_script,
    gate_is_never_over_its_limit,
    lease_gate_reports_each_outcome,
    lease_gate_frees_lapsed_leases,
    lease_gate_is_never_over_its_limit,
    stock_asks_one_caller_to_refill,
    stock_segments_are_added_once_and_in_order,
    stock_survives_crashes_of_refillers,
    funnel_passes_refuses_and_leaks,
    funnel_lets_no_more_than_its_capacity_pass,
    daily_limit_counts_only_allowed_calls,
    daily_limit_is_exact_under_a_crowd,
    lock_belongs_to_its_owner,
    lock_excludes_and_its_tokens_grow,
    seckill_reports_each_outcome,
    seckill_sells_each_unit_once,
    ids_are_unique_and_encode_time_and_number,
);

/// The text of the script with this name, from `lua/`.
pub(crate) fn bundled(name: &str) -> Lua {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("lua").join(format!("{name}.lua"));
    Lua::new(std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display())))
}

/// The names of all files in `lua/`, sorted.
fn names() -> Vec<String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("lua");
    let mut names: Vec<String> = std::fs::read_dir(folder)
        .expect("the folder lua/ is part of the package")
        .map(|entry| entry.expect("a readable folder").file_name().into_string().expect("names are plain"))
        .map(|file| file.strip_suffix(".lua").expect("only scripts are in lua/").to_owned())
        .collect();
    names.sort();
    names
}

fn start(program: Program) -> (Server, Connection) {
    let server = Server::start(program, &[]);
    let connection = server.client();
    (server, connection)
}

/// Checks each header: `-- name: purpose`, then these sections in this order; Leaves and Moving are optional. The
/// example is a working call that touches only declared keys: on Redis, which has ACLs, it runs as a user without
/// access to any other key.
fn headers_are_contracts(program: Program) {
    const SECTIONS: [(&str, bool); 8] = [
        ("KEYS:", true),
        ("ARGV:", true),
        ("Reply:", true),
        ("Holds:", true),
        ("Cures:", true),
        ("Leaves:", false),
        ("Moving:", false),
        ("Example:", true),
    ];
    let (_server, mut c) = start(program);
    assert_eq!(names().len(), 15);
    for name in names() {
        let script = bundled(&name);
        let header: Vec<&str> =
            script.text().lines().map_while(|line| line.strip_prefix("--")).map(str::trim_start).collect();
        assert!(header[0].starts_with(&format!("{name}: ")), "{name}: line 1 names the script");
        assert!(script.text().lines().all(|line| line.len() <= 200), "{name}: a line is too long to read");

        let mut last = 0;
        for (section, required) in SECTIONS {
            match header.iter().position(|line| line.starts_with(section)) {
                Some(at) => {
                    assert!(at > last, "{name}: {section} is out of order");
                    last = at;
                }
                None => assert!(!required, "{name}: {section} is missing"),
            }
        }

        assert!(header[last].starts_with("Example: "), "{name}: the example ends the header");
        let (keys, args) = example(&script);
        let (keys, args) = (&keys[..], &args[..]);
        let _: () = run(&mut c, "FLUSHALL");
        if program != Program::Tidegate {
            let patterns: String = keys.iter().map(|key| format!(" ~{key}")).collect();
            let _: () = run(&mut c, &format!("ACL SETUSER narrow reset on nopass +@all{patterns}"));
            let _: () = run(&mut c, "AUTH narrow any");
        }
        let _: Value = script.call(&mut c, keys, args);
        let touched: Vec<String> = run(&mut c, "KEYS *");
        assert!(touched.iter().all(|key| keys.contains(&key.as_str())), "{name} made {touched:?}");
    }
}

/// Keys and arguments of the call at the end of a script's header.
fn example(script: &Lua) -> (Vec<&str>, Vec<&str>) {
    let mut calls = script.text().lines().filter_map(|line| line.strip_prefix("-- Example: EVALSHA <sha1> "));
    let words: Vec<&str> = calls.next().expect("a header has an example").split(' ').collect();
    let count: usize = words[0].parse().expect("the number of keys");
    let (keys, args) = words[1..].split_at(count);
    (keys.to_vec(), args.to_vec())
}

/// Invalid calls, and the expected errors.
const BAD: [(&str, &[&str], &[&str], &str); 57] = [
    ("gate_acquire", &["g"], &[], "limit, a whole number from 1"),
    ("gate_acquire", &["g"], &["0"], "limit, a whole number from 1"),
    ("gate_acquire", &["g"], &["-1"], "limit, a whole number from 1"),
    ("gate_acquire", &["g"], &["sixty"], "limit, a whole number from 1"),
    ("gate_acquire", &["g"], &["6.5"], "limit, a whole number from 1"),
    ("gate_acquire", &["g"], &["nan"], "limit, a whole number from 1"),
    ("gate_acquire", &["g"], &["9007199254740993"], "limit, a whole number from 1"),
    ("gate_acquire", &[], &["60"], "pass one key"),
    ("gate_acquire", &["g", "60"], &["60"], "pass one key"),
    ("gate_acquire", &["g"], &["60", "0"], "lease_ms"),
    ("gate_acquire", &["g"], &["60", "315360000001"], "lease_ms"),
    ("gate_release", &[], &[], "pass one key"),
    ("lease_gate_acquire", &["g"], &["", "2", "10"], "holder"),
    ("lease_gate_acquire", &["g"], &["a", "2"], "holder, limit, lease_ms"),
    ("lease_gate_acquire", &["g"], &["a", "0", "10"], "limit"),
    ("lease_gate_acquire", &["g"], &["a", "2", "inf"], "lease_ms"),
    ("lease_gate_acquire", &[], &["a", "2", "10"], "pass one key"),
    ("lease_gate_renew", &["g"], &["a"], "holder, lease_ms"),
    ("lease_gate_renew", &["g"], &["", "10"], "holder, lease_ms"),
    ("lease_gate_renew", &["g"], &["a", "0"], "lease_ms"),
    ("lease_gate_release", &["g"], &[], "holder"),
    ("lease_gate_release", &["g"], &[""], "holder"),
    ("lease_gate_release", &["g", "h"], &["a"], "pass one key"),
    ("lock_acquire", &["l"], &["a", "10"], "pass two keys"),
    ("lock_acquire", &["l", "f"], &["a"], "owner, lease_ms"),
    ("lock_acquire", &["l", "f"], &["", "10"], "owner, lease_ms"),
    ("lock_acquire", &["l", "f"], &["a", "1e3"], "lease_ms"),
    ("lock_extend", &["l"], &["a"], "owner, lease_ms"),
    ("lock_extend", &["l"], &["a", "x"], "lease_ms"),
    ("lock_extend", &["l"], &["a", "0"], "lease_ms"),
    ("lock_release", &["l"], &[], "owner"),
    ("lock_release", &["l"], &[""], "owner"),
    ("stock_deduct", &["s"], &["1", "2", "3"], "units, low, segment, refill_ms"),
    ("stock_deduct", &["s"], &["0", "2", "3", "4"], "whole numbers"),
    ("stock_deduct", &["s"], &["1", "-2", "3", "4"], "whole numbers"),
    ("stock_deduct", &["s"], &["1", "2", "0", "4"], "whole numbers"),
    ("stock_deduct", &["s"], &["1", "2", "3", ""], "whole numbers"),
    ("stock_deduct", &[], &["1", "2", "3", "4"], "pass one key"),
    ("stock_refill", &["s"], &["1"], "segment, units"),
    ("stock_refill", &["s"], &["0", "5"], "segment must be"),
    ("stock_refill", &["s"], &["1", "-5"], "units from 0"),
    ("stock_refill", &["s"], &["1", "5", "yes"], "last 0 or 1"),
    ("stock_refill", &["s"], &["2", "5"], "segment 2 is ahead of the next one, 1"),
    ("funnel", &["f"], &["1"], "capacity, rate"),
    ("funnel", &["f"], &["0", "1"], "above 0"),
    ("funnel", &["f"], &["1", "1/0"], "above 0"),
    ("funnel", &["f"], &["1", "1/"], "above 0"),
    ("funnel", &["f"], &["1", "0x10"], "above 0"),
    ("funnel", &["f"], &["1", "1", "2"], "never passes"),
    ("daily_limit", &["d"], &["60"], "not as KEYS"),
    ("daily_limit", &["d", "60", "5"], &[], "not as KEYS"),
    ("daily_limit", &["d"], &["0", "5"], "ttl"),
    ("daily_limit", &["d"], &["60", "5", "0"], "count from 1"),
    ("seckill_v1", &["s", "b"], &["voucher", "user"], "ARGV[1] = user"),
    ("seckill_v2", &["s", "b"], &["v", "u", "o"], "pass three keys"),
    ("seckill_v2", &["s", "b", "o"], &["v", "", "o"], "voucher, user, order"),
    ("next_id", &["icr", "x"], &[], "pass one key"),
];

fn bad_arguments_say_what_to_do_and_change_nothing(program: Program) {
    let (_server, mut c) = start(program);
    for (name, keys, args, advice) in BAD {
        let error = bundled(name).try_call::<Value>(&mut c, keys, args).expect_err(name);
        assert_eq!(error.code(), Some("ERR"), "{name} {keys:?} {args:?}: {error}");
        let text = error.to_string();
        assert!(text.contains(&format!("{name}: ")) && text.contains(advice), "{name} {keys:?} {args:?}: {text}");
        assert_eq!(run::<usize>(&mut c, "DBSIZE"), 0, "{name} {keys:?} {args:?} wrote something");
    }
    let tried: HashSet<&str> = BAD.iter().map(|(name, ..)| *name).collect();
    assert_eq!(tried.len(), names().len(), "a script without a bad call");
}

fn functions_reply_like_the_scripts(program: Program) {
    let (_server, mut c) = start(program);
    if program != Program::Tidegate {
        let library = tidegate::script::bundled::library_code();
        let name: String = redis::cmd("FUNCTION").arg("LOAD").arg(library).query(&mut c).expect("Redis loads it");
        assert_eq!(name, "tidegate");
    }
    let fcall = |c: &mut Connection, name: &str, keys: &[&str], args: &[&str]| {
        redis::cmd("FCALL").arg(name).arg(keys.len()).arg(keys).arg(args).query::<Value>(c)
    };
    for (name, keys, args, _) in BAD {
        let as_script = bundled(name).try_call::<Value>(&mut c, keys, args).expect_err(name);
        let as_function = fcall(&mut c, name, keys, args).expect_err(name);
        assert_eq!(as_function.to_string(), as_script.to_string());
    }
    for name in names() {
        let script = bundled(&name);
        let (keys, args) = example(&script);
        let _: () = run(&mut c, "FLUSHALL");
        let as_script: Value = script.call(&mut c, &keys, &args);
        let _: () = run(&mut c, "FLUSHALL");
        let as_function = fcall(&mut c, &name.to_uppercase(), &keys, &args).unwrap_or_else(|e| panic!("{name}: {e}"));
        match name.as_str() {
            // An ID encodes the second in which it was issued.
            "next_id" => assert!(matches!(as_function, Value::BulkString(_)), "{as_function:?}"),
            _ => assert_eq!(as_function, as_script, "{name}"),
        }
    }
}

fn wrong_types_change_nothing(program: Program) {
    const CALLS: [(&str, &[&str], &[&str]); 16] = [
        ("gate_acquire", &["set"], &["60"]),
        ("gate_release", &["set"], &[]),
        ("lease_gate_acquire", &["set"], &["a", "2", "1000"]),
        ("lease_gate_renew", &["set"], &["a", "1000"]),
        ("lease_gate_release", &["set"], &["a"]),
        ("lock_acquire", &["set", "fence"], &["a", "1000"]),
        ("lock_extend", &["set"], &["a", "1000"]),
        ("lock_release", &["set"], &["a"]),
        ("stock_deduct", &["set"], &["1", "2", "3", "4"]),
        ("stock_refill", &["set"], &["1", "5"]),
        ("funnel", &["set"], &["1", "1"]),
        ("daily_limit", &["set"], &["60", "5"]),
        ("seckill_v1", &["set", "buyers"], &["user"]),
        ("seckill_v2", &["set", "buyers", "orders"], &["v", "u", "o"]),
        ("seckill_v2", &["number", "buyers", "set"], &["v", "u", "o"]),
        ("next_id", &["set"], &[]),
    ];
    const TEXTS: [(&str, &[&str], &[&str]); 4] = [
        ("seckill_v1", &["text", "buyers"], &["user"]),
        ("seckill_v2", &["text", "buyers", "orders"], &["v", "u", "o"]),
        ("daily_limit", &["text"], &["60", "5"]),
        ("gate_acquire", &["text"], &["60"]),
    ];
    let (_server, mut c) = start(program);
    let _: () = run(&mut c, "SADD set member");
    let _: () = run(&mut c, "SET number 5");
    let _: () = run(&mut c, "SET text five");
    for (name, keys, args) in CALLS.iter().chain(&TEXTS) {
        let error = bundled(name).try_call::<Value>(&mut c, keys, args).expect_err(name).to_string();
        let expected = if keys.contains(&"text") { name } else { &"WRONGTYPE" };
        assert!(error.contains(expected), "{name}: {error}");
        assert_eq!(run::<usize>(&mut c, "DBSIZE"), 3, "{name} wrote something");
        assert_eq!(run::<usize>(&mut c, "SCARD set"), 1);
        assert_eq!(run::<i64>(&mut c, "GET number"), 5, "{name} sold what it could not queue");
    }
}

// --- gates ---

fn gate_distinguishes_the_last_grant_from_a_refusal(program: Program) {
    let (_server, mut c) = start(program);
    let acquire = bundled("gate_acquire");
    for place in 1..=60 {
        assert_eq!(acquire.call::<i64>(&mut c, &["gate"], &["60"]), place);
    }
    let before: Vec<String> = run(&mut c, "LRANGE gate 0 -1");
    assert_eq!(acquire.call::<i64>(&mut c, &["gate"], &["60"]), 61);
    assert_eq!(run::<Vec<String>>(&mut c, "LRANGE gate 0 -1"), before, "a refusal changes nothing");
    assert_eq!(acquire.call::<i64>(&mut c, &["gate"], &["30"]), 61, "a lowered limit refuses until places come back");
    assert_eq!(acquire.call::<i64>(&mut c, &["gate"], &["61"]), 61);

    let left_ms: i64 = run(&mut c, "PTTL gate");
    assert!((3_500_000..=3_600_000).contains(&left_ms), "an idle gate goes after twelve leases, not in {left_ms} ms");
    assert_eq!(acquire.call::<i64>(&mut c, &["short"], &["1", "1000"]), 1);
    assert!((1..=12_000).contains(&run::<i64>(&mut c, "PTTL short")));
}

fn gate_release_reports_when_no_place_was_held(program: Program) {
    let (_server, mut c) = start(program);
    let (acquire, release) = (bundled("gate_acquire"), bundled("gate_release"));
    assert_eq!(release.call::<Option<i64>>(&mut c, &["gate"], &[]), None);
    for _ in 0..3 {
        let _: i64 = acquire.call(&mut c, &["gate"], &["3"]);
    }
    for left in [2, 1, 0] {
        assert_eq!(release.call::<Option<i64>>(&mut c, &["gate"], &[]), Some(left));
    }
    assert_eq!(release.call::<Option<i64>>(&mut c, &["gate"], &[]), None);
    assert_eq!(acquire.call::<i64>(&mut c, &["gate"], &["3"]), 1, "never below 0");
}

fn gate_takes_over_lapsed_leases_only_when_full(program: Program) {
    let (_server, mut c) = start(program);
    let (acquire, release) = (bundled("gate_acquire"), bundled("gate_release"));
    let later = now_ms(&mut c) + 100_000;
    let _: () = run(&mut c, &format!("RPUSH gate 1 2 {later}"));
    assert_eq!(acquire.call::<i64>(&mut c, &["gate"], &["4"]), 4, "not full: overrunning jobs keep their places");
    assert_eq!(run::<i64>(&mut c, "LINDEX gate 0"), 1);
    assert_eq!(acquire.call::<i64>(&mut c, &["gate"], &["4"]), 4, "full: the oldest lapsed lease is taken over");
    assert_eq!(run::<i64>(&mut c, "LINDEX gate 0"), 2);
    assert_eq!(release.call::<i64>(&mut c, &["gate"], &[]), 3, "a late release uses up the lapsed lease");
    assert_eq!(run::<u64>(&mut c, "LINDEX gate 0"), later);

    let _: () = run(&mut c, "DEL gate");
    let _: () = run(&mut c, &format!("RPUSH gate 1 2 3 4 {later}"));
    assert_eq!(acquire.call::<i64>(&mut c, &["gate"], &["2"]), 2, "a lowered limit takes over as many as it needs");
    assert_eq!(acquire.call::<i64>(&mut c, &["gate"], &["2"]), 3);
}

fn gate_takes_over_the_counter_of_the_older_script(program: Program) {
    let (_server, mut c) = start(program);
    let (acquire, release) = (bundled("gate_acquire"), bundled("gate_release"));
    let _: () = run(&mut c, "SET gate 3 EX 300");
    assert_eq!(release.call::<i64>(&mut c, &["gate"], &[]), 2);
    assert_eq!(acquire.call::<i64>(&mut c, &["gate"], &["3"]), 3);
    assert_eq!(acquire.call::<i64>(&mut c, &["gate"], &["3"]), 4);
    assert_eq!(release.call::<i64>(&mut c, &["gate"], &[]), 2);

    let _: () = run(&mut c, "SET full 1000000000 EX 300");
    assert_eq!(acquire.call::<i64>(&mut c, &["full"], &["5"]), 6, "a refusal, and no billion leases");
    assert!(run::<i64>(&mut c, "PTTL full") > 300_000);
    let _: () = run(&mut c, "SET idle 0");
    assert_eq!(release.call::<i64>(&mut c, &["idle"], &[]), 0);
    assert_eq!(acquire.call::<i64>(&mut c, &["idle"], &["5"]), 1);
}

fn gate_is_never_over_its_limit(program: Program) {
    const LIMIT: i64 = 7;
    let (server, mut c) = start(program);
    let (acquire, release) = (bundled("gate_acquire"), bundled("gate_release"));
    let (inside, granted) = (AtomicI64::new(0), AtomicUsize::new(0));
    at_once(&server, |_, c| {
        for _ in 0..100 {
            if acquire.call::<i64>(c, &["gate"], &["7"]) <= LIMIT {
                assert!(inside.fetch_add(1, Ordering::SeqCst) < LIMIT);
                granted.fetch_add(1, Ordering::SeqCst);
                std::thread::yield_now();
                inside.fetch_sub(1, Ordering::SeqCst);
                assert!(release.call::<Option<i64>>(c, &["gate"], &[]).is_some(), "a place in use was gone");
            }
        }
    });
    assert!(granted.into_inner() >= 100);
    assert_eq!(run::<i64>(&mut c, "EXISTS gate"), 0, "all places came back");
}

fn lease_gate_reports_each_outcome(program: Program) {
    let (_server, mut c) = start(program);
    let (acquire, renew) = (bundled("lease_gate_acquire"), bundled("lease_gate_renew"));
    let release = bundled("lease_gate_release");
    let mut ask = |holder: &str, lease_ms: &str| acquire.call::<[i64; 3]>(&mut c, &["gate"], &[holder, "2", lease_ms]);
    assert_eq!(ask("a", "90000"), [1, 1, 90_000]);
    assert_eq!(ask("b", "60000"), [1, 2, 60_000]);
    assert_eq!(ask("b", "50000"), [2, 2, 50_000], "the same holder again takes no second place");
    let [outcome, holders, wait_ms] = ask("c", "60000");
    assert_eq!((outcome, holders), (0, 2));
    assert!((1..=50_000).contains(&wait_ms), "b's lease ends first, not in {wait_ms} ms");
    assert!((50_001..=90_000).contains(&run::<i64>(&mut c, "PTTL gate")), "the key stays until the last lease ends");

    assert_eq!(renew.call::<[i64; 2]>(&mut c, &["gate"], &["a", "120000"]), [1, 2]);
    assert!((90_001..=120_000).contains(&run::<i64>(&mut c, "PTTL gate")));
    assert_eq!(renew.call::<[i64; 2]>(&mut c, &["gate"], &["c", "120000"]), [0, 2]);
    assert_eq!(
        acquire.call::<[i64; 3]>(&mut c, &["gate"], &["a", "1", "60000"])[..2],
        [2, 2],
        "a lower limit does not take the place away"
    );
    assert_eq!(release.call::<[i64; 2]>(&mut c, &["gate"], &["c"]), [0, 2], "not a holder");
    assert_eq!(release.call::<[i64; 2]>(&mut c, &["gate"], &["b"]), [1, 1]);
    assert_eq!(release.call::<[i64; 2]>(&mut c, &["gate"], &["b"])[0], 0, "only once");
}

fn lease_gate_frees_lapsed_leases(program: Program) {
    let (_server, mut c) = start(program);
    let acquire = bundled("lease_gate_acquire");
    let later = now_ms(&mut c) + 100_000;
    let lapse = format!("ZADD gate 1 lost 2 late {later} running");

    let _: () = run(&mut c, &lapse);
    assert_eq!(bundled("lease_gate_release").call::<[i64; 2]>(&mut c, &["gate"], &["late"]), [0, 1]);
    let _: () = run(&mut c, &lapse);
    assert_eq!(bundled("lease_gate_renew").call::<[i64; 2]>(&mut c, &["gate"], &["late", "1000"]), [0, 1]);
    let _: () = run(&mut c, &lapse);
    assert_eq!(acquire.call::<[i64; 3]>(&mut c, &["gate"], &["new", "2", "1000"]), [1, 2, 1000]);
    assert_eq!(run::<Vec<String>>(&mut c, "ZRANGE gate 0 -1"), ["new", "running"]);
}

fn lease_gate_is_never_over_its_limit(program: Program) {
    const LIMIT: i64 = 7;
    let (server, mut c) = start(program);
    let (acquire, release) = (bundled("lease_gate_acquire"), bundled("lease_gate_release"));
    let (inside, granted) = (AtomicI64::new(0), AtomicUsize::new(0));
    at_once(&server, |client, c| {
        for job in 0..100 {
            let holder = format!("{client}:{job}");
            let [outcome, holders, _]: [i64; 3] = acquire.call(c, &["gate"], &[&holder, "7", "600000"]);
            assert!(holders <= LIMIT);
            if outcome == 1 {
                assert!(inside.fetch_add(1, Ordering::SeqCst) < LIMIT);
                granted.fetch_add(1, Ordering::SeqCst);
                std::thread::yield_now();
                inside.fetch_sub(1, Ordering::SeqCst);
                assert_eq!(release.call::<[i64; 2]>(c, &["gate"], &[&holder])[0], 1);
            }
        }
    });
    assert!(granted.into_inner() >= 100);
    assert_eq!(run::<i64>(&mut c, "EXISTS gate"), 0, "all places came back");
}

// --- stock ---

fn stock_asks_one_caller_to_refill(program: Program) {
    let (server, mut c) = start(program);
    let (deduct, refill) = (bundled("stock_deduct"), bundled("stock_refill"));
    let named = at_once(&server, |_, c| {
        let [outcome, left, segment, units, wait_ms]: [i64; 5] =
            deduct.call(c, &["stock"], &["1", "20", "100", "600000"]);
        assert_eq!((outcome, left), (0, 0), "nothing is there yet");
        assert_eq!((segment > 0, wait_ms > 0), (units == 100, units == 0), "either refill or wait");
        segment
    });
    assert_eq!(named.iter().filter(|segment| **segment == 1).count(), 1);
    assert_eq!(named.iter().filter(|segment| **segment == 0).count(), CROWD - 1);

    let take =
        |units: &str, c: &mut Connection| deduct.call::<[i64; 5]>(c, &["stock"], &[units, "20", "100", "600000"]);
    assert_eq!(refill.call::<[i64; 2]>(&mut c, &["stock"], &["1", "100"]), [1, 100]);
    assert_eq!(take("80", &mut c), [1, 20, 0, 0, 0], "20 left is not below 20");
    assert_eq!(take("1", &mut c), [1, 19, 2, 100, 0], "low: this caller refills while others go on selling");
    let [outcome, left, segment, units, wait_ms] = take("1", &mut c);
    assert_eq!([outcome, left, segment, units], [1, 18, 0, 0]);
    assert!((1..=600_000).contains(&wait_ms));
    let [outcome, left, segment, ..] = take("19", &mut c);
    assert_eq!([outcome, left, segment], [0, 18, 0], "all units or none");

    let _: () = run(&mut c, "HSET stock refill_end 1");
    assert_eq!(
        take("500", &mut c),
        [0, 18, 2, 482, 0],
        "the lease lapsed: the same segment, large enough for this call"
    );
    assert_eq!(refill.call::<[i64; 2]>(&mut c, &["stock"], &["2", "5", "1"]), [1, 23], "the last of the database");
    assert_eq!(take("24", &mut c), [-1, 23, 0, 0, 0]);
    assert_eq!(take("23", &mut c), [1, 0, 0, 0, 0]);
    assert_eq!(take("1", &mut c), [-1, 0, 0, 0, 0]);
    assert_eq!(refill.call::<[i64; 2]>(&mut c, &["stock"], &["3", "50"]), [1, 50], "new goods open the sale again");
    assert_eq!(take("40", &mut c), [1, 10, 4, 100, 0]);
}

fn stock_segments_are_added_once_and_in_order(program: Program) {
    let (server, mut c) = start(program);
    let refill = bundled("stock_refill");
    for segment in ["1", "2", "3"] {
        let outcomes = at_once(&server, |_, c| refill.call::<[i64; 2]>(c, &["stock"], &[segment, "100"])[0]);
        assert_eq!(outcomes.iter().sum::<i64>(), 1, "one of them adds it");
    }
    assert_eq!(run::<i64>(&mut c, "HGET stock left"), 300);
    let error = refill.try_call::<Value>(&mut c, &["stock"], &["5", "100"]).expect_err("a gap").to_string();
    assert!(error.contains("segment 5 is ahead of the next one, 4"), "{error}");
    assert_eq!(refill.call::<[i64; 2]>(&mut c, &["stock"], &["1", "100"]), [0, 300]);

    let error = refill.try_call::<Value>(&mut c, &["stock"], &["4", "9007199254740991"]).expect_err("too many");
    assert!(error.to_string().contains("2^53"), "{error}");
    let _: () = run(&mut c, "HSET stock left -1");
    for (name, args) in [("stock_refill", &["4", "1"][..]), ("stock_deduct", &["1", "1", "1", "1"])] {
        let error = bundled(name).try_call::<Value>(&mut c, &["stock"], args).expect_err("a spoiled stock");
        assert!(error.to_string().contains("set them right with HSET"), "{error}");
    }
}

/// The database of the protocol in stock_deduct: a row of units, and segments taken from it by unique number.
struct Database {
    row: i64,
    segments: HashMap<i64, i64>,
}

impl Database {
    /// One transaction: deducts this segment's units from the row unless that was done before.
    fn take_segment(&mut self, segment: i64, wanted: i64) -> i64 {
        let row = &mut self.row;
        *self.segments.entry(segment).or_insert_with(|| {
            let units = wanted.min(*row);
            *row -= units;
            units
        })
    }
}

/// Two of three refillers crash, before or after the database commits; a refill lease of 1 ms makes several refill the
/// same segment at once. Still, exactly the row's units are sold.
fn stock_survives_crashes_of_refillers(program: Program) {
    const UNITS: i64 = 5_000;
    let (server, mut c) = start(program);
    let (deduct, refill) = (bundled("stock_deduct"), bundled("stock_refill"));
    let database = Mutex::new(Database { row: UNITS, segments: HashMap::new() });
    let refills = AtomicUsize::new(0);
    let sold = at_once(&server, |client, c| {
        let units = (client % 3 + 1) as i64;
        let mut sold = 0;
        loop {
            let [outcome, left, segment, wanted, _] =
                deduct.call::<[i64; 5]>(c, &["stock"], &[&units.to_string(), "50", "200", "1"]);
            assert!(left >= 0);
            match outcome {
                1 => sold += units,
                0 => std::thread::yield_now(),
                _ => return sold,
            }
            let fate = refills.fetch_add(usize::from(segment > 0), Ordering::SeqCst) % 3;
            if segment == 0 || fate == 0 {
                continue;
            }
            let (given, last) = {
                let mut database = database.lock().expect("no client panicked inside");
                (database.take_segment(segment, wanted), database.row == 0)
            };
            if fate == 2 {
                let args = [segment.to_string(), given.to_string(), u8::from(last).to_string()];
                let _: [i64; 2] = refill.call(c, &["stock"], &[&args[0], &args[1], &args[2]]);
            }
        }
    });
    let left: i64 = run(&mut c, "HGET stock left");
    assert_eq!(sold.iter().sum::<i64>() + left, UNITS);
    assert!(left < 3, "sold out means that nobody's order fits");
    assert_eq!(database.into_inner().expect("no client panicked inside").row, 0);
}

// --- limits ---

fn funnel_passes_refuses_and_leaks(program: Program) {
    let (_server, mut c) = start(program);
    let funnel = bundled("funnel");
    let sms = |c: &mut Connection| funnel.call::<[i64; 3]>(c, &["sms"], &["1", "1/1800"]);
    assert_eq!(sms(&mut c), [1, 0, 0]);
    let before: HashMap<String, String> = run(&mut c, "HGETALL sms");
    let [outcome, left, wait_ms] = sms(&mut c);
    assert_eq!([outcome, left], [0, 0]);
    assert!((1_700_000..=1_800_000).contains(&wait_ms));
    assert_eq!(run::<HashMap<String, String>>(&mut c, "HGETALL sms"), before, "a refusal changes nothing");
    let mut fields: Vec<&String> = before.keys().collect();
    fields.sort();
    assert_eq!(fields, ["capacity", "leakingRate", "leakingTs", "leftQuota"]);
    assert!(
        (1_800_001..=1_810_000).contains(&run::<i64>(&mut c, "PTTL sms")),
        "the key lives until the funnel is empty, plus 10 s"
    );

    let ago = |c: &mut Connection, ms: u64| {
        let since = now_ms(c) - ms;
        let _: () = run(c, &format!("HSET sms leakingTs {since}"));
    };
    ago(&mut c, 1_000_000);
    assert_eq!(sms(&mut c)[0], 0, "the funnel is still full");
    ago(&mut c, 1_800_000);
    assert_eq!(sms(&mut c)[0], 1, "1800 s later, to the millisecond");
    ago(&mut c, 9_000_000);
    assert_eq!((sms(&mut c)[0], sms(&mut c)[0]), (1, 0), "a long rest makes no more room than the capacity");
    let ahead = now_ms(&mut c) + 5_000_000;
    let _: () = run(&mut c, &format!("HSET sms leakingTs {ahead} leftQuota 1"));
    assert_eq!(sms(&mut c)[0], 1, "a clock that ran ahead makes nothing leak backwards");

    let now = now_ms(&mut c);
    let _: () = run(&mut c, &format!("HSET theirs capacity 3.0 leftQuota 2 leakingTs {now} leakingRate 1.0E-6"));
    assert_eq!(funnel.call::<[i64; 3]>(&mut c, &["theirs"], &["3", "0.000001"]), [1, 1, 0], "the users' hash goes on");

    let mut take = |quota: &str| funnel.call::<[i64; 3]>(&mut c, &["f"], &["10", "0.001", quota]);
    assert_eq!(take("2.5"), [1, 7, 0]);
    assert_eq!(take("7.5"), [1, 0, 0]);
    let [outcome, left, wait_ms] = take("10");
    assert_eq!([outcome, left], [0, 0]);
    assert!((9_900_000..=10_000_000).contains(&wait_ms));
    let _: () = run(&mut c, "HSET f leftQuota x");
    let error = funnel.try_call::<Value>(&mut c, &["f"], &["10", "1"]).expect_err("a spoiled funnel");
    assert!(error.to_string().contains("must be numbers"), "{error}");
}

fn funnel_lets_no_more_than_its_capacity_pass(program: Program) {
    let (server, _c) = start(program);
    let funnel = bundled("funnel");
    let passed = at_once(&server, |_, c| {
        (0..20).map(|_| funnel.call::<[i64; 3]>(c, &["f"], &["100", "1/1000000"])[0]).sum::<i64>()
    });
    assert_eq!(passed.iter().sum::<i64>(), 100);
}

fn daily_limit_counts_only_allowed_calls(program: Program) {
    let (_server, mut c) = start(program);
    let limit = bundled("daily_limit");
    let send = |c: &mut Connection, args: &[&str]| limit.call::<String>(c, &["day"], args);
    assert_eq!(send(&mut c, &["86400", "2"]), "0");
    assert!((86_000..=86_400).contains(&run::<i64>(&mut c, "TTL day")));
    let _: () = run(&mut c, "EXPIRE day 1000");
    assert_eq!(send(&mut c, &["86400", "2"]), "0");
    assert!(run::<i64>(&mut c, "TTL day") <= 1000, "only the first sets the expiry");
    assert_eq!(send(&mut c, &["86400", "2"]), "1");
    assert_eq!(run::<i64>(&mut c, "GET day"), 2, "a refused send does not count");
    assert_eq!(send(&mut c, &["86400", "5", "4"]), "1", "all units or none");
    assert_eq!(send(&mut c, &["86400", "5", "3"]), "0", "a raised limit works at once");
    let _: () = run(&mut c, "SET day 1");
    assert_eq!(send(&mut c, &["60", "5"]), "0");
    assert!(run::<i64>(&mut c, "TTL day") > 0, "a counter without expiry gets one");
    assert_eq!(send(&mut c, &["60", "0"]), "1");
}

fn daily_limit_is_exact_under_a_crowd(program: Program) {
    let (server, mut c) = start(program);
    let limit = bundled("daily_limit");
    let allowed = at_once(&server, |_, c| {
        (0..40).filter(|_| limit.call::<String>(c, &["day"], &["86400", "1000"]) == "0").count()
    });
    assert_eq!(allowed.iter().sum::<usize>(), 1000);
    assert_eq!(run::<usize>(&mut c, "GET day"), 1000);
}

// --- locks ---

fn lock_belongs_to_its_owner(program: Program) {
    let (_server, mut c) = start(program);
    let (acquire, extend, release) = (bundled("lock_acquire"), bundled("lock_extend"), bundled("lock_release"));
    let take = |c: &mut Connection, owner: &str| acquire.call::<[i64; 3]>(c, &["lock", "fence"], &[owner, "60000"]);
    assert_eq!(take(&mut c, "a"), [1, 1, 60_000]);
    assert_eq!(take(&mut c, "a"), [1, 1, 60_000], "the same owner, the same token");
    let [outcome, token, wait_ms] = take(&mut c, "b");
    assert_eq!([outcome, token], [0, 0]);
    assert!((1..=60_000).contains(&wait_ms));

    assert_eq!(extend.call::<i64>(&mut c, &["lock"], &["b", "90000"]), 0);
    assert_eq!(extend.call::<i64>(&mut c, &["lock"], &["a", "90000"]), 1);
    assert!((60_001..=90_000).contains(&run::<i64>(&mut c, "PTTL lock")));
    assert_eq!(release.call::<i64>(&mut c, &["lock"], &["b"]), 0);
    assert_eq!(release.call::<i64>(&mut c, &["lock"], &["a"]), 1);
    assert_eq!(release.call::<i64>(&mut c, &["lock"], &["a"]), 0);
    assert_eq!(extend.call::<i64>(&mut c, &["lock"], &["a", "90000"]), 0);
    assert_eq!(take(&mut c, "b"), [1, 2, 60_000]);

    let _: () = run(&mut c, "PERSIST lock");
    assert_eq!(take(&mut c, "a"), [0, 0, -1], "a lock without lease");
    let _: () = run(&mut c, "SET lock client NX PX 60000 GET");
    assert_eq!(release.call::<i64>(&mut c, &["lock"], &["b"]), 1, "a plain SET NX lock works with it");
    assert_eq!(run::<i64>(&mut c, "TTL fence"), -1, "tokens never start again");
}

fn lock_excludes_and_its_tokens_grow(program: Program) {
    let (server, _c) = start(program);
    let (acquire, release) = (bundled("lock_acquire"), bundled("lock_release"));
    let (inside, last_token) = (AtomicI64::new(0), AtomicI64::new(0));
    at_once(&server, |client, c| {
        for attempt in 0..10 {
            let owner = format!("{client}:{attempt}");
            let token = loop {
                let [outcome, token, _]: [i64; 3] = acquire.call(c, &["lock", "fence"], &[&owner, "600000"]);
                if outcome == 1 {
                    break token;
                }
                std::thread::yield_now();
            };
            assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "two owners at once");
            assert!(last_token.swap(token, Ordering::SeqCst) < token, "a token that did not grow");
            inside.fetch_sub(1, Ordering::SeqCst);
            assert_eq!(release.call::<i64>(c, &["lock"], &[&owner]), 1);
        }
    });
    assert_eq!(last_token.into_inner(), CROWD as i64 * 10);
}

// --- flash sale ---

fn seckill_reports_each_outcome(program: Program) {
    let (_server, mut c) = start(program);
    let (v1, v2) = (bundled("seckill_v1"), bundled("seckill_v2"));
    let buy1 = |c: &mut Connection, user: &str| v1.call::<i64>(c, &["stock", "buyers"], &[user]);
    let buy2 =
        |c: &mut Connection, user: &str| v2.call::<i64>(c, &["stock", "buyers", "orders"], &["9", user, "order-7"]);
    assert_eq!((buy1(&mut c, "a"), buy2(&mut c, "a")), (1, 1), "no such voucher");
    let _: () = run(&mut c, "SET stock 3");
    assert_eq!((buy1(&mut c, "a"), buy1(&mut c, "a"), buy2(&mut c, "a")), (0, 2, 2));
    assert_eq!((buy2(&mut c, "b"), buy2(&mut c, "b"), buy1(&mut c, "b")), (0, 2, 2));
    assert_eq!((buy1(&mut c, "c"), buy1(&mut c, "d"), buy2(&mut c, "a")), (0, 1, 1), "sold out is said first");
    assert_eq!(run::<i64>(&mut c, "GET stock"), 0);
    let orders: Vec<(String, Vec<String>)> = run(&mut c, "XRANGE orders - +");
    assert_eq!(orders.len(), 1);
    assert_eq!(orders[0].1, ["userId", "b", "voucherId", "9", "id", "order-7"]);
    for spoiled in ["007", "1.5", "99999999999999999999", "x"] {
        let _: () = run(&mut c, &format!("SET stock {spoiled}"));
        for keys in [&["stock", "buyers", "orders"][..2], &["stock", "buyers", "orders"]] {
            let (script, args) = if keys.len() == 2 { (&v1, &["e"][..]) } else { (&v2, &["9", "e", "o"][..]) };
            let error = script.try_call::<Value>(&mut c, keys, args).expect_err(spoiled).to_string();
            assert!(error.contains("the stock must be a whole number"), "{error}");
        }
    }
    let _: () = run(&mut c, "SET stock -3");
    assert_eq!(buy1(&mut c, "e"), 1);
}

fn seckill_sells_each_unit_once(program: Program) {
    let (server, mut c) = start(program);
    for (script, keys) in [("seckill_v1", &["stock", "buyers"][..]), ("seckill_v2", &["stock", "buyers", "orders"])] {
        let script = bundled(script);
        let _: () = run(&mut c, "DEL buyers");
        let _: () = run(&mut c, "SET stock 100");
        let bought = at_once(&server, |client, c| {
            let mut bought = Vec::new();
            for step in 0..150 {
                let user = ((client * 7 + step) % 150).to_string();
                let args: &[&str] = if keys.len() == 2 { &[&user] } else { &["9", &user, &user] };
                if script.call::<i64>(c, keys, args) == 0 {
                    bought.push(user);
                }
            }
            bought
        });
        let users: HashSet<&String> = bought.iter().flatten().collect();
        assert_eq!((bought.iter().flatten().count(), users.len()), (100, 100), "each unit once, each user once");
        assert_eq!((run::<i64>(&mut c, "GET stock"), run::<i64>(&mut c, "SCARD buyers")), (0, 100));
    }
    assert_eq!(run::<i64>(&mut c, "XLEN orders"), 100);
}

// --- IDs ---

fn ids_are_unique_and_encode_time_and_number(program: Program) {
    const EPOCH: u64 = 1_672_531_200;
    let (server, mut c) = start(program);
    let next = bundled("next_id");
    let started = now_ms(&mut c) / 1000;
    let ids = at_once(&server, |_, c| {
        let ids: Vec<u64> =
            (0..100).map(|_| next.call::<String>(c, &["icr:order"], &[]).parse().expect("a number")).collect();
        assert!(ids.is_sorted(), "IDs grow with time");
        ids
    });
    let ended = now_ms(&mut c) / 1000;
    let mut ids: Vec<u64> = ids.into_iter().flatten().collect();
    ids.sort_unstable();
    assert!(ids.iter().all(|id| (started..=ended).contains(&((id >> 32) + EPOCH))), "the upper half is the time");
    ids.dedup();
    assert_eq!(ids.len(), CROWD * 100);

    let days: HashMap<String, u64> = run(&mut c, "HGETALL icr:order");
    assert_eq!(days.values().sum::<u64>(), CROWD as u64 * 100, "numbers start at 1 each day");
    if days.len() == 1 {
        assert!(ids.iter().map(|id| id & 0xffff_ffff).collect::<HashSet<_>>().len() == ids.len());
    }
    for day in days.keys() {
        let _: () = run(&mut c, &format!("HSET icr:order {day} 4294967294"));
    }
    if started / 86_400 == (now_ms(&mut c) / 1000) / 86_400 {
        let last: u64 = next.call::<String>(&mut c, &["icr:order"], &[]).parse().expect("a number");
        assert_eq!(last & 0xffff_ffff, 0xffff_ffff, "no bit is lost near 2^32");
        assert!(next.try_call::<Value>(&mut c, &["icr:order"], &[]).is_err(), "the day is full");
    }
    assert_decimals(&mut c, next.text());
    assert_dates(&mut c, next.text());
}

/// The script's own arithmetic at both ends of its range, where a double would lose bits or drop a zero.
fn assert_decimals(c: &mut Connection, text: &str) {
    let from = text.find("local low =").expect("the arithmetic of next_id");
    let decimal = Lua::new(format!("local seconds, number = tonumber(ARGV[1]), tonumber(ARGV[2])\n{}", &text[from..]));
    for seconds in [1, 2, 1_000_000, 122_664_000, 500_000_000, u64::from(u32::MAX >> 1)] {
        for number in [1, 2, 31_250, 704_002, 1_000_000, u64::from(u32::MAX)] {
            let id: String = decimal.call(c, &[], &[&seconds.to_string(), &number.to_string()]);
            assert_eq!(id, (seconds << 32 | number).to_string());
        }
    }
}

/// The script's own calendar against the one of the C library's `date`, over leap years and centuries.
fn assert_dates(c: &mut Connection, text: &str) {
    let from = text.find("local function date_of").expect("the calendar of next_id");
    let calendar = &text[from..from + text[from..].find("\nend\n").expect("its end") + 5];
    let dates = Lua::new(format!("{calendar}\nreturn date_of(tonumber(ARGV[1]))"));
    for (day, date) in [
        (0, "1970:01:01"),
        (11_016, "2000:02:29"),
        (19_358, "2023:01:01"),
        (19_781, "2024:02:28"),
        (19_782, "2024:02:29"),
        (19_783, "2024:03:01"),
        (20_088, "2024:12:31"),
        (20_089, "2025:01:01"),
        (47_540, "2100:02:28"),
        (47_541, "2100:03:01"),
    ] {
        assert_eq!(dates.call::<String>(c, &[], &[&day.to_string()]), date);
    }
}

// --- features of this server alone ---

/// The server knows every bundled script before any client sends it, and keeps it when the users' scripts are flushed.
#[test]
fn the_server_has_them_loaded() {
    if std::env::var_os("SUITE_SERVER").is_some() {
        eprintln!("SUITE_SERVER names another server, which does not load these scripts by itself");
        return;
    }
    let (_server, mut c) = start(Program::Tidegate);
    for _ in 0..2 {
        for name in names() {
            // Called without keys, each script refuses by its own name; an unknown script would give NOSCRIPT.
            let call = format!("EVALSHA {} 0", bundled(&name).sha1());
            let error = try_run::<Value>(&mut c, &call).expect_err("no script works without keys").to_string();
            assert!(error.contains(&format!("{name}: ")), "{name}: {error}");
        }
        let _: () = run(&mut c, "SCRIPT FLUSH");
    }
}

/// `tidegate scripts` lists the commands, then each script's name, SHA1 and purpose; `tidegate scripts NAME` prints the
/// file.
#[test]
fn the_scripts_subcommand_lists_and_prints_them() {
    let scripts = |args: &[&str]| {
        let program = env!("CARGO_BIN_EXE_tidegate");
        Command::new(program).arg("scripts").args(args).output().expect("the program of this build starts")
    };
    let list = scripts(&[]);
    assert!(list.status.success());
    let list = String::from_utf8(list.stdout).expect("the list is text");
    for name in names() {
        let script = bundled(&name);
        let first = script.text().lines().next().expect("a header");
        let purpose = first.split_once(": ").expect("-- name: purpose").1;
        let shown = |line: &str| [&name, script.sha1(), purpose].iter().all(|part| line.contains(part));
        assert!(list.lines().any(shown), "{name} is not in the list:\n{list}");
        assert_eq!(String::from_utf8(scripts(&[&name]).stdout).expect("a script is text"), script.text());
    }
    let place = |start: &str| list.lines().position(|line| line.starts_with(start)).expect("it is listed");
    assert!(place("GATE.ACQUIRE ") < place("Scripts, ") && place("Scripts, ") < place("gate_acquire "), "{list}");
    let server = Server::start(Program::Tidegate, &[]);
    let mut link = server.raw();
    for command in list.lines().skip(2).take_while(|line| !line.is_empty()) {
        let (name, summary) = command.split_once(' ').expect("a name and what it does");
        assert!(!summary.trim().is_empty(), "{name}");
        let docs = link.command(&["COMMAND", "DOCS", name]);
        assert!(format!("{docs:?}").contains(summary.trim().trim_end_matches('.')), "{name}: {docs:?}");
        assert!(list.lines().filter(|line| line.contains(name)).count() >= 2, "{name} has a script");
    }
    assert!(!scripts(&["no_such_script"]).status.success());
}
