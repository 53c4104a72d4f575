//! Any moment: what holds behind each change holds in whatever is restored.
//!
//! Clients work in scripts and transactions, each of which keeps some equations. Their changes are followed into
//! several copies. Then moments are drawn, by their change or by their time, and restored; a server on each must agree
//! with the equations. Ordered by their change, no counter goes back, and equal changes have equal counters.
//!
//! `SUITE_ROUNDS` sets the number of moments, and `SUITE_SEED` draws them and the work.

use std::collections::BTreeMap;
use std::process::Stdio;

use tidegate::base::calendar::utc;
use tidegate::base::rng::Rng;

use super::{Bench, Helper, digest, integer, last_lsn, ok, run, serve};
use crate::differential::search::env_number;
use crate::harness::{Raw, Server, Value, until};

/// Moments that are named by a change.
const MOMENTS: u64 = 100;
/// Moments that are named by a time.
const TIMES: u64 = 10;

const COPIES: usize = 4;
const CLIENTS: u64 = 3;
const STEPS: u64 = 120;

const ACCOUNTS: u64 = 6;
const MONEY: i64 = 6_000;
const UNITS: i64 = 100_000;

const LEASE_MS: &str = "3000000";

const TRANSFER: &str = "redis.call('DECRBY', KEYS[1], ARGV[1]) \
    redis.call('INCRBY', KEYS[2], ARGV[1]) \
    return redis.call('INCR', KEYS[3])";

/// Takes the lock, and notes the token that came with it. Who holds it already gets the same token.
const LOCK: &str = "local got = redis.call('LOCK.ACQUIRE', KEYS[1], ARGV[1], 'PX', ARGV[2]) \
    if got[1] == 0 or redis.call('GET', KEYS[2]) == tostring(got[3]) then return 0 end \
    redis.call('SET', KEYS[2], got[3]) \
    return redis.call('INCR', KEYS[3])";

const UNLOCK: &str = "if redis.call('LOCK.RELEASE', KEYS[1], ARGV[1])[1] == 0 then return 0 end \
    return redis.call('INCR', KEYS[2])";

/// Counters that only grow.
const COUNTERS: [&str; 9] =
    ["transfers", "entries", "reserved", "sold", "payments", "delayed", "locked", "unlocked", "token"];

fn call(raw: &mut Raw, words: &[&str]) -> Value {
    let reply = raw.command(words);
    assert!(!matches!(reply, Value::Error(_)), "{words:?}: {reply:?}");
    reply
}

/// Two calls, of which the second one counts the first.
fn both(raw: &mut Raw, first: &[&str], counter: &str) {
    for words in [&["MULTI"], first, &["INCR", counter], &["EXEC"]] {
        call(raw, words);
    }
}

fn step(raw: &mut Raw, rng: &mut Rng, client: u64, n: u64) {
    let name = format!("{client}-{n}");
    match rng.below(8) {
        0 | 1 => {
            let [from, to] = [0; 2].map(|_| format!("account:{}", rng.below(ACCOUNTS)));
            let amount = (1 + rng.below(20)).to_string();
            call(raw, &["EVAL", TRANSFER, "3", &from, &to, "transfers", &amount]);
        }
        2 => both(raw, &["XADD", "events", "*", "n", &name], "entries"),
        3 => {
            both(raw, &["STOCK.RESERVE", "stock", &name, "PX", LEASE_MS], "reserved");
            if rng.below(2) == 0 {
                both(raw, &["STOCK.COMMIT", "stock", &name], "sold");
            }
        }
        4 => {
            let request = ["ONCE", &format!("request:{name}"), "PX", LEASE_MS, "INCR", "payments"];
            assert_eq!(call(raw, &request), call(raw, &request), "it happens once");
        }
        5 => both(raw, &["XADD", "jobs", "DELAY", LEASE_MS, "*", "n", &name], "delayed"),
        6 => _ = call(raw, &["EVAL", LOCK, "3", "lock", "token", "locked", &client.to_string(), LEASE_MS]),
        _ => _ = call(raw, &["EVAL", UNLOCK, "2", "lock", "unlocked", &client.to_string()]),
    }
}

/// The fields of a reply, by name.
fn fields(reply: &Value) -> BTreeMap<String, i64> {
    let Value::Array(items) = reply else { panic!("{reply:?}") };
    let items = if items.len() % 2 == 1 { &items[1..] } else { &items[..] };
    let number = |value: &Value| match value {
        Value::Integer(number) => Some(*number),
        _ => None,
    };
    let name = |value: &Value| String::from_utf8(value.bytes().unwrap_or_default().to_vec()).expect("plain text");
    items.chunks_exact(2).filter_map(|pair| Some((name(&pair[0]), number(&pair[1])?))).collect()
}

/// Checks what holds behind each change. Returns the counters.
fn examine(server: &Server, moment: &str) -> Vec<i64> {
    let mut raw = server.raw();
    let counters: BTreeMap<&str, i64> = COUNTERS.map(|name| (name, integer(&mut raw, &["GET", name]))).into();
    let money: i64 = (0..ACCOUNTS).map(|n| integer(&mut raw, &["GET", &format!("account:{n}")])).sum();
    assert_eq!(money, MONEY, "{moment}");
    assert_eq!(integer(&mut raw, &["XLEN", "events"]), counters["entries"], "{moment}");
    let stock = fields(&call(&mut raw, &["STOCK.INFO", "stock"]));
    assert_eq!(stock["total"], UNITS, "{moment}: {stock:?}");
    assert_eq!(stock["available"] + stock["held"] + stock["sold"], UNITS, "{moment}: {stock:?}");
    assert_eq!((stock["held"] + stock["sold"], stock["sold"]), (counters["reserved"], counters["sold"]), "{moment}");
    let Value::Array(requests) = call(&mut raw, &["KEYS", "request:*"]) else { panic!("KEYS answers an array") };
    assert_eq!(requests.len() as i64, counters["payments"], "{moment}");
    let jobs =
        if counters["delayed"] == 0 { 0 } else { fields(&call(&mut raw, &["XINFO", "STREAM", "jobs"]))["delayed"] };
    assert_eq!(jobs, counters["delayed"], "{moment}");
    let lock = call(&mut raw, &["LOCK.INFO", "lock"]);
    let is_held = counters["locked"] > counters["unlocked"];
    let shows_token = format!("{lock:?}").contains(&format!("\"token\", {}", counters["token"]));
    assert_eq!(counters["locked"] - counters["unlocked"], i64::from(is_held), "{moment}");
    assert_eq!(shows_token, is_held, "{moment}: {counters:?}, {lock:?}");
    COUNTERS.map(|name| counters[name]).to_vec()
}

/// Lets all clients work. In the middle of it a snapshot is made.
fn work(bench: &Bench, rng: &mut Rng, phase: u64) {
    std::thread::scope(|scope| {
        for client in 0..CLIENTS {
            let (mut raw, mut rng) = (bench.server().raw(), Rng::seeded(rng.next_u64()));
            scope.spawn(move || {
                for n in 0..STEPS {
                    step(&mut raw, &mut rng, client, phase * STEPS + n);
                    if (client, n) == (0, STEPS / 2) {
                        call(&mut raw, &["SAVE"]);
                    }
                }
            });
        }
    });
}

/// The present, as `--until` takes it.
fn time(ms: i64) -> String {
    format!("{}.{:03}Z", utc(ms).trim_end_matches('Z'), ms % 1_000)
}

fn now_ms(server: &Server) -> i64 {
    integer(
        &mut server.raw(),
        &["EVAL", "local t = redis.call('TIME') return t[1] * 1000 + math.floor(t[2] / 1000)", "0"],
    )
}

#[test]
fn every_moment_is_consistent() {
    let bench = Bench::new();
    let rng = &mut Rng::seeded(env_number("SUITE_SEED").unwrap_or(1));
    let mut raw = bench.server().raw();
    for n in 0..ACCOUNTS {
        call(&mut raw, &["SET", &format!("account:{n}"), &(MONEY / ACCOUNTS as i64).to_string()]);
    }
    call(&mut raw, &["STOCK.SET", "stock", &UNITS.to_string()]);
    let (first, begun_ms) = (last_lsn(bench.server()), now_ms(bench.server()));
    for phase in 0..COPIES as u64 {
        if phase > 0 {
            ok(&run(&mut bench.backup(&[])));
        }
        let copying = Helper(bench.backup(&["--follow"]).stdout(Stdio::null()).spawn().expect("it starts"));
        until(|| bench.copies().len() == phase as usize + 1, "there is a copy to follow");
        work(&bench, rng, phase);
        let (name, last) = (format!("phase {phase}"), last_lsn(bench.server()).to_string());
        until(|| bench.restore(&name, &["--until", &last]).is_good, "the copy has everything");
        drop(copying);
    }
    let (last, ended_ms) = (last_lsn(bench.server()), now_ms(bench.server()));
    let count = env_number("SUITE_ROUNDS").unwrap_or(MOMENTS);
    let mut moments = vec![last.to_string()];
    moments.extend((1..count).map(|_| (first + rng.below((last - first + 1) as u64) as i64).to_string()));
    moments.extend((0..TIMES).map(|_| time(begun_ms + 2 + rng.below((ended_ms - begun_ms) as u64) as i64)));
    let mut found = BTreeMap::new();
    for moment in &moments {
        let said = bench.restore("moment", &["--until", moment]);
        let lsn = ok(&said).strip_prefix("restored up to Lsn ").and_then(|rest| rest.split(',').next());
        let lsn: i64 = lsn.expect("it says so").parse().expect("a number");
        assert!(moment.parse().is_ok_and(|named: i64| named == lsn) || moment.contains('T'), "{moment}: {lsn}");
        let restored = serve(&bench.path("moment"));
        let counters = examine(&restored, moment);
        if lsn == last {
            assert_eq!(digest(&restored), digest(bench.server()));
        }
        drop(restored);
        std::fs::remove_dir_all(bench.path("moment")).expect("it is ours");
        assert_eq!(found.entry(lsn).or_insert_with(|| counters.clone()), &counters, "{moment}");
    }
    for ((lsn, earlier), (next, later)) in found.iter().zip(found.iter().skip(1)) {
        assert!(earlier.iter().zip(later).all(|(one, next)| one <= next), "{lsn}: {earlier:?}, {next}: {later:?}");
    }
    assert!(found[&last].iter().all(|counter| *counter > 0), "{:?}", found[&last]);
}
