//! Locks and gates: guarantees beyond those that the model of [`histories`](crate::histories) checks. The engine runs
//! in this process, with a clock that is moved by hand.

use std::collections::VecDeque;

use crate::differential::script::split_line;
use crate::harness::{Program, Raw, Server, Value, decode, encode, until};
use crate::in_process::{Bench, words};
use crate::protocol::raise_descriptor_limit;

/// The strings and numbers of a reply, without the structure around them.
pub(crate) fn flat(reply: &[u8]) -> String {
    let text = String::from_utf8_lossy(reply).into_owned();
    let lines = text.split("\r\n").filter(|line| !line.is_empty() && !line.starts_with(['*', '$', '%', '>']));
    lines.map(|line| line.trim_start_matches(':')).collect::<Vec<_>>().join(" ")
}

/// Runs a line as a client; returns the [`flat`] reply.
pub(crate) fn call(bench: &mut Bench, client: usize, line: &str) -> String {
    let reply = bench.call(client, &split_line(line).expect("plain words"));
    flat(&reply)
}

/// The replies and pushes in the output of a RESP3 client, each [`flat`].
pub(crate) fn parts(mut sent: &[u8]) -> Vec<String> {
    let mut parts = Vec::new();
    while let Some((_, used)) = decode(sent, true).expect("RESP3") {
        let (part, rest) = sent.split_at(used);
        parts.push(flat(part));
        sent = rest;
    }
    assert!(sent.is_empty(), "half a message");
    parts
}

/// The DUMP payload of a key.
pub(crate) fn dump(bench: &mut Bench, key: &str) -> Vec<u8> {
    let payload = bench.call(0, &words(&["DUMP", key]));
    let start = payload.iter().position(|byte| *byte == b'\n').expect("a bulk string") + 1;
    payload[start..payload.len() - 2].to_vec()
}

/// Output that a client received while waiting, since the last look.
pub(crate) fn heard(bench: &mut Bench, client: usize) -> String {
    flat(&bench.heard(client))
}

/// A thousand clients wait for one lock: each gets it once, in order of arrival, and clients that hang up delay no
/// others.
#[test]
fn a_lock_is_handed_on_in_order_of_arrival() {
    const CROWD: usize = 1_000;
    let mut bench = Bench::new(CROWD + 1);
    assert!(call(&mut bench, CROWD, "LOCK.ACQUIRE l first PX 60000").starts_with("1 token"));
    for client in 0..CROWD {
        assert_eq!(call(&mut bench, client, &format!("LOCK.ACQUIRE l c{client} PX 60000 BLOCK 0")), "");
    }
    (0..CROWD).filter(|client| client % 10 == 3).for_each(|client| bench.reconnect(client));
    assert_eq!(call(&mut bench, CROWD, "LOCK.ACQUIRE l late PX 1"), "0 reason held waiting 900 retry-after-ms 60000");
    let mut holder = "first".to_owned();
    let mut last_token = 0;
    for client in (0..CROWD).filter(|client| client % 10 != 3) {
        assert!(call(&mut bench, CROWD, &format!("LOCK.RELEASE l {holder}")).starts_with("1 token"));
        let reply = heard(&mut bench, client);
        let token: u64 = reply.split(' ').nth(2).expect("a token").parse().expect("a number");
        assert!(reply.starts_with("1 token") && token > last_token, "{client}: {reply}");
        (holder, last_token) = (format!("c{client}"), token);
    }
    assert!((0..CROWD).all(|client| heard(&mut bench, client).is_empty()));
}

/// As above, through real connections. A client that asks again queues behind all clients that have not had the lock
/// yet, for two rounds; clients that hang up delay no others.
#[test]
fn a_thousand_real_clients_take_turns_in_order_of_arrival() {
    const CROWD: usize = 1_000;
    assert!(raise_descriptor_limit(3 * CROWD as u64) > 2 * CROWD as u64, "each has a connection of its own");
    let (server, mut control) = Server::with_client(Program::Tidegate);
    let mut until_wait = |many: usize| {
        let wanted = format!("\"waiting\", {many},");
        until(|| format!("{:?}", control.command(&["LOCK.INFO", "l"])).contains(&wanted), &wanted);
    };
    let mut first = server.raw();
    first.command(&["LOCK.ACQUIRE", "l", "first", "PX", "600000"]);
    let mut line: VecDeque<(usize, Raw)> = VecDeque::new();
    for number in 0..CROWD {
        let mut client = server.raw();
        client.send_command(&["LOCK.ACQUIRE", "l", &format!("c{number}"), "PX", "600000", "BLOCK", "0"]);
        line.push_back((number, client));
        until_wait(number + 1);
    }
    first.command(&["LOCK.RELEASE", "l", "first"]);
    let mut served = Vec::new();
    while served.len() < CROWD / 2 {
        served.push(serve_first(&mut line));
    }
    // A tenth of the clients hang up, both served ones and waiting ones.
    let stays = |number: &usize| number % 10 != 3;
    line.retain(|(number, _)| stays(number));
    until_wait(line.len() - 1);
    for _ in 0..2 * line.len() {
        served.push(serve_first(&mut line));
    }
    let round = || (CROWD / 2..CROWD).chain(0..CROWD / 2).filter(stays);
    let wanted = (0..CROWD / 2).chain(round()).chain(round());
    assert!(served.iter().map(|(number, _)| *number).eq(wanted), "{served:?}");
    assert!(served.is_sorted_by(|(_, one), (_, next)| one < next), "tokens grow: {served:?}");
}

/// The first in line has the lock, releases it, and queues again behind the others. Returns its number and its token.
fn serve_first(line: &mut VecDeque<(usize, Raw)>) -> (usize, i64) {
    let (number, mut client) = line.pop_front().expect("no client gives up waiting");
    let name = format!("c{number}");
    let granted = client.reply().value;
    let token = match &granted {
        Value::Array(words) if words[..2] == [Value::Integer(1), Value::bulk("token")] => &words[2],
        _ => panic!("{name}: {granted:?}"),
    };
    let Value::Integer(token) = *token else { panic!("{name}: {granted:?}") };
    // In one pipeline, so that no other client comes in between.
    let again = encode(&["LOCK.ACQUIRE", "l", &name, "PX", "600000", "BLOCK", "0"]);
    client.send(&[encode(&["LOCK.RELEASE", "l", &name]), again].concat());
    let released = client.reply().value;
    assert!(matches!(&released, Value::Array(words) if words[0] == Value::Integer(1)), "{name}: {released:?}");
    line.push_back((number, client));
    (number, token)
}

/// Waiters cost nothing while nothing happens, and a freed place wakes only one of them.
#[test]
fn waiters_cost_nothing_until_a_place_is_free() {
    const CROWD: usize = 3_000;
    let mut bench = Bench::new(CROWD + 1);
    call(&mut bench, CROWD, "LOCK.ACQUIRE l first PX 100");
    for client in 0..CROWD {
        call(&mut bench, client, &format!("LOCK.ACQUIRE l c{client} PX 100 BLOCK 0"));
    }
    for client in 0..20 {
        bench.pass(99);
        assert!(bench.engine.server.next_deadline_ms().is_some(), "the first waiter checks when the lease ends");
        assert!(heard(&mut bench, client).is_empty());
        bench.pass(1);
        assert!(heard(&mut bench, client).starts_with("1 token"), "{client}");
    }
    assert_eq!(bench.engine.server.waits.len(), CROWD - 20);
}

/// Holders of a shared lock do not starve waiters for the exclusive one.
#[test]
fn readers_do_not_starve_writers() {
    let mut bench = Bench::new(4);
    assert!(call(&mut bench, 0, "LOCK.ACQUIRE l r1 PX 1000 SHARED").starts_with("1 "));
    assert!(call(&mut bench, 0, "LOCK.ACQUIRE l r2 PX 1000 SHARED").starts_with("1 "));
    assert_eq!(call(&mut bench, 1, "LOCK.ACQUIRE l w PX 1000 BLOCK 0"), "");
    assert_eq!(call(&mut bench, 0, "LOCK.ACQUIRE l r3 PX 1000 SHARED"), "0 reason queue waiting 1 retry-after-ms 1000");
    assert_eq!(call(&mut bench, 2, "LOCK.ACQUIRE l r3 PX 1000 SHARED BLOCK 0"), "");
    assert_eq!(call(&mut bench, 3, "LOCK.ACQUIRE l r4 PX 1000 SHARED BLOCK 0"), "");
    call(&mut bench, 0, "LOCK.RELEASE l r1");
    assert!(heard(&mut bench, 1).is_empty());
    call(&mut bench, 0, "LOCK.RELEASE l r2");
    assert!(heard(&mut bench, 1).starts_with("1 ") && heard(&mut bench, 2).is_empty());
    call(&mut bench, 0, "LOCK.RELEASE l w");
    assert!(heard(&mut bench, 2).starts_with("1 ") && heard(&mut bench, 3).starts_with("1 "));
}

/// A lease may be given in all forms of a deadline that SET knows. A lease in the past is never granted, ends the held
/// one, and allows no waiting.
#[test]
fn a_lease_can_end_at_an_absolute_time() {
    let mut bench = Bench::new(2);
    let now_ms = bench.engine.ks.now_ms();
    let (at_ms, at_s) = (now_ms + 500, now_ms / 1_000 + 60);
    assert_eq!(call(&mut bench, 0, &format!("LOCK.ACQUIRE l a PXAT {at_ms}")), "1 token 1 depth 1 lease-ms 500");
    assert_eq!(call(&mut bench, 0, &format!("LOCK.EXTEND l a EXAT {at_s}")), "1 token 1 depth 1 lease-ms 60000");
    // Waiting ends at the end of the requested lease.
    assert_eq!(call(&mut bench, 1, &format!("LOCK.ACQUIRE l b PXAT {at_ms} BLOCK 0")), "");
    bench.pass(500);
    assert_eq!(heard(&mut bench, 1), "0 reason timeout");
    assert_eq!(call(&mut bench, 1, &format!("LOCK.ACQUIRE l b PXAT {at_ms} BLOCK 0")), "0 reason over");
    // A lease that is set to a time in the past ends at once, and the next waiter is served.
    assert_eq!(call(&mut bench, 1, "LOCK.ACQUIRE l b PX 1000 BLOCK 0"), "");
    assert_eq!(call(&mut bench, 0, &format!("LOCK.EXTEND l a PXAT {at_ms}")), "1 token 1 depth 1 lease-ms 0");
    assert_eq!(heard(&mut bench, 1), "1 token 2 depth 1 lease-ms 1000");
    assert_eq!(call(&mut bench, 0, &format!("LOCK.EXTEND l a PXAT {at_ms}")), "0 reason not-held");
    // A late retry with the same time, now past, does not end the grant of a later call.
    assert_eq!(call(&mut bench, 1, &format!("LOCK.ACQUIRE l b PXAT {at_ms}")), "1 token 2 depth 1 lease-ms 1000");
    assert_eq!(call(&mut bench, 0, "GATE.ACQUIRE g a LIMIT 1 EXAT 1"), "0 reason over");
    assert_eq!(call(&mut bench, 0, "EXISTS g"), "0");
    let too_far_ms = now_ms + 500 + 366 * 24 * 60 * 60 * 1_000 + 1;
    for option in
        ["PXAT 0", "PXAT -1", "EXAT 0", "EX 0", "PX -5", "EXAT 9223372036854775807", &format!("PXAT {too_far_ms}")]
    {
        let reply = call(&mut bench, 0, &format!("GATE.ACQUIRE g a LIMIT 1 {option}"));
        assert_eq!(reply, "-ERR invalid expire time in 'gate.acquire' command", "{option}");
    }
    for options in ["PX 5 PX 5", "PX 5 EXAT 5", "PXAT"] {
        let reply = call(&mut bench, 0, &format!("GATE.ACQUIRE g a LIMIT 1 {options}"));
        assert!(reply.starts_with("-ERR syntax error: the call should be GATE.ACQUIRE key holder"), "{options}");
    }
    assert_eq!(call(&mut bench, 0, "LOCK.EXTEND l b PXAT x"), "-ERR value is not an integer or out of range");
}

/// A script or a transaction neither waits nor overtakes, and a failed one has taken nothing.
#[test]
fn scripts_and_transactions_do_not_wait() {
    let mut bench = Bench::new(3);
    call(&mut bench, 0, "LOCK.ACQUIRE l a PX 1000");
    let refused = "0 reason held waiting 0 retry-after-ms 1000";
    let script = "EVAL \"return redis.call('lock.acquire', KEYS[1], 'b', 'px', 1000, 'block', 0)\" 1 l";
    assert_eq!(call(&mut bench, 1, script), refused);
    assert!(call(&mut bench, 1, "MULTI").contains("OK"));
    call(&mut bench, 1, "LOCK.ACQUIRE l b PX 1000 BLOCK 0");
    assert_eq!(call(&mut bench, 1, "EXEC"), refused);
    assert_eq!(call(&mut bench, 1, "LOCK.ACQUIRE l b PX 1000 BLOCK 0"), "");
    // A release followed by an acquisition in one unit queues behind the waiters.
    let swap = "EVAL \"redis.call('lock.release', KEYS[1], 'a') \
                return redis.call('lock.acquire', KEYS[1], 'c', 'px', 1000)\" 1 l";
    assert_eq!(call(&mut bench, 2, swap), "0 reason queue waiting 1 retry-after-ms -1");
    assert!(heard(&mut bench, 1).starts_with("1 token"));
    let fails = "EVAL \"redis.call('lock.release', KEYS[1], 'b') \
                 redis.call('gate.acquire', 'g', 'h', 'limit', 1, 'px', 9) error('no')\" 2 l g";
    assert!(call(&mut bench, 2, fails).starts_with('-'));
    assert!(call(&mut bench, 0, "LOCK.INFO l").contains("owner b") && call(&mut bench, 0, "EXISTS g") == "0");
}

/// Changes to the lock's key by other commands affect the waiters.
#[test]
fn any_command_that_frees_the_key_serves_a_waiter() {
    for (line, is_free) in [
        ("DEL l", true),
        ("UNLINK l", true),
        ("PEXPIRE l 0", true),
        ("RENAME l other", true),
        ("MOVE l 1", true),
        ("FLUSHDB", true),
        ("SWAPDB 0 1", true),
        ("LOCK.BREAK l", true),
        ("LOCK.BREAK l a", true),
        ("LOCK.BREAK l nobody", false),
        ("COPY l other", false),
        ("SET l v NX", false),
        ("LOCK.EXTEND l a PX 1", false),
    ] {
        let mut bench = Bench::new(2);
        call(&mut bench, 0, "LOCK.ACQUIRE l a PX 1000");
        call(&mut bench, 1, "LOCK.ACQUIRE l b PX 1000 BLOCK 0");
        call(&mut bench, 0, line);
        assert_eq!(heard(&mut bench, 1).starts_with("1 token"), is_free, "{line}");
    }
    let mut bench = Bench::new(2);
    call(&mut bench, 0, "LOCK.ACQUIRE l a PX 1000");
    call(&mut bench, 1, "LOCK.ACQUIRE l b PX 1000 BLOCK 0");
    call(&mut bench, 0, "DEL l");
    call(&mut bench, 0, "SET l v");
    call(&mut bench, 1, "LOCK.ACQUIRE l c PX 1000 BLOCK 0");
    call(&mut bench, 0, "RPUSH list x");
    call(&mut bench, 0, "RENAME list l");
    assert!(heard(&mut bench, 1).contains("WRONGTYPE"), "another type never becomes a lock by itself");
}

/// A call whose own cleanup serves other waiters is served as well, if there is a place for it.
#[test]
fn a_call_whose_own_cleanup_frees_places_gets_one() {
    let mut bench = Bench::new(4);
    for name in ["x", "y"] {
        assert!(call(&mut bench, 0, &format!("GATE.ACQUIRE g {name} LIMIT 2 PX 500")).starts_with("1 token"));
    }
    assert_eq!(call(&mut bench, 1, "GATE.ACQUIRE g b LIMIT 2 PX 60000 BLOCK 0"), "");
    // The expired lease has not been noticed yet.
    bench.clock.advance_ms(500);
    assert_eq!(call(&mut bench, 2, "GATE.ACQUIRE g a LIMIT 2 PX 60000 BLOCK 0"), "");
    bench.engine.time_out_waits();
    assert!([1, 2].iter().all(|client| heard(&mut bench, *client).starts_with("1 token")));

    // The waiter that was next takes nothing.
    let lease = call(&mut bench, 0, "LOCK.ACQUIRE guard x PX 500");
    let token = lease.split(' ').nth(2).expect("a token").to_owned();
    assert!(call(&mut bench, 0, "LOCK.ACQUIRE l x PX 500").starts_with("1 token"));
    assert_eq!(call(&mut bench, 1, &format!("GUARD guard {token} LOCK.ACQUIRE l b PX 60000 BLOCK 0")), "");
    bench.clock.advance_ms(500);
    assert_eq!(call(&mut bench, 2, "LOCK.ACQUIRE l a PX 60000 BLOCK 0"), "");
    bench.engine.time_out_waits();
    assert!(heard(&mut bench, 1).starts_with("-STALE"));
    assert!(heard(&mut bench, 2).starts_with("1 token"));
}

/// While expiry is off, ended leases are checked for now and then, not all the time.
#[test]
fn a_guard_whose_lease_cannot_end_causes_no_busy_checks() {
    let mut bench = Bench::new(2);
    assert_eq!(call(&mut bench, 1, "CONFIG SET import-mode yes"), "+OK");
    assert_eq!(call(&mut bench, 1, "CLIENT IMPORT-SOURCE ON"), "+OK");
    assert!(call(&mut bench, 0, "LOCK.ACQUIRE l x PX 500").starts_with("1 token 1 "));
    assert_eq!(call(&mut bench, 0, "GUARD l 1 BLPOP q 0"), "");
    bench.clock.advance_ms(600);
    assert!(!bench.engine.time_out_waits(), "no timer is due now");
    assert!(heard(&mut bench, 0).is_empty());
    assert_eq!(call(&mut bench, 1, "CLIENT IMPORT-SOURCE OFF"), "+OK");
    bench.pass(1_000);
    assert!(heard(&mut bench, 0).starts_with("-STALE"));
}

/// A lock taken by `SET NX PX` and one of LOCK exclude each other, and both expire.
#[test]
fn locks_taken_by_set_and_by_lock_exclude_each_other() {
    let mut bench = Bench::new(2);
    assert_eq!(call(&mut bench, 0, "SET l token NX PX 500"), "+OK");
    assert_eq!(call(&mut bench, 0, "LOCK.ACQUIRE l a PX 1000"), "0 reason held waiting 0 retry-after-ms 500");
    assert_eq!(call(&mut bench, 1, "LOCK.ACQUIRE l a PX 1000 BLOCK 0"), "");
    bench.pass(500);
    assert!(heard(&mut bench, 1).starts_with("1 token"));
    assert_eq!(call(&mut bench, 0, "SET l token NX PX 500"), "");
    assert!(call(&mut bench, 0, "GET l").contains("WRONGTYPE"));
    call(&mut bench, 0, "LOCK.RELEASE l a");
    assert_eq!(call(&mut bench, 0, "SET l token NX PX 500"), "+OK");
}

/// Units that scripts have counted in a plain counter are kept by the gate that replaces the counter.
#[test]
fn a_gate_keeps_the_units_of_the_counter_that_it_replaces() {
    let mut bench = Bench::new(1);
    call(&mut bench, 0, "SET g 2 PX 500");
    assert_eq!(
        call(&mut bench, 0, "GATE.ACQUIRE g a LIMIT 2 PX 1000"),
        "0 reason full in-use 2 limit 2 waiting 0 retry-after-ms 500"
    );
    assert_eq!(call(&mut bench, 0, "TYPE g"), "+string");
    assert_eq!(call(&mut bench, 0, "GATE.ACQUIRE g a LIMIT 3 PX 1000"), "1 token 2 in-use 3 limit 3 lease-ms 1000");
    assert_eq!(call(&mut bench, 0, "TYPE g"), "+gate");
    assert_eq!(call(&mut bench, 0, "TTL g"), "-1");
    bench.pass(500);
    assert!(call(&mut bench, 0, "GATE.INFO g").starts_with("1 in-use 1 "));
    for (value, answer) in [("text", "-WRONGTYPE"), ("0", "1 token 3 in-use 1"), ("-5", "1 token 4 in-use 1")] {
        call(&mut bench, 0, &format!("SET g {value}"));
        let reply = call(&mut bench, 0, "GATE.ACQUIRE g a LIMIT 3 PX 1000");
        assert!(reply.starts_with(answer), "{value}: {reply}");
    }
}

/// Tokens grow no matter what happens to the key.
#[test]
fn tokens_are_never_issued_twice() {
    let mut bench = Bench::new(1);
    let mut last = 0;
    for line in [
        "DEL l",
        "FLUSHALL",
        "FLUSHALL SYNC",
        "LOCK.RELEASE l a",
        "SWAPDB 0 1",
        "EVAL \"redis.call('flushall') error('x')\" 0",
    ] {
        let reply = call(&mut bench, 0, "LOCK.ACQUIRE l a PX 1000");
        let token: u64 = reply.split(' ').nth(2).expect("a token").parse().expect("a number");
        assert!(token > last, "{line}");
        last = token;
        call(&mut bench, 0, line);
    }
}

/// DUMP and RESTORE carry the whole value; a damaged payload is refused.
#[test]
fn grants_are_dumped_and_restored() {
    let mut from = Bench::new(1);
    call(&mut from, 0, "GATE.ACQUIRE g a LIMIT 3 PX 1000 NOTE why");
    call(&mut from, 0, "GATE.ACQUIRE g b LIMIT 3 PX 2000");
    let payload = dump(&mut from, "g");
    let payload = &payload[..];
    let mut bench = Bench::new(1);
    let restore = |bench: &mut Bench, payload: &[u8]| {
        let mut args = words(&["RESTORE", "copy", "0"]);
        args.push(payload.to_vec());
        flat(&bench.call(0, &args))
    };
    assert_eq!(restore(&mut bench, payload), "+OK");
    let told = |bench: &mut Bench, key: &str| call(bench, 0, &format!("GATE.HOLDERS {key} 0"));
    let (original, copy) = (told(&mut from, "g"), told(&mut bench, "copy"));
    assert!(original == copy && original.contains("note why"), "{original}\n{copy}");
    assert_eq!(call(&mut from, 0, "DEBUG DIGEST-VALUE g"), call(&mut bench, 0, "DEBUG DIGEST-VALUE copy"));
    bench.pass(1500);
    assert!(call(&mut bench, 0, "GATE.INFO copy").starts_with("1 in-use 1 limit 3"));
    let mut damaged = payload.to_vec();
    damaged[3] ^= 1;
    assert!(restore(&mut bench, &damaged).starts_with('-'));
}

/// A held lock takes little memory, whatever happens to its key, and gives it back.
#[test]
fn a_held_lock_takes_little_memory() {
    let mut bench = Bench::new(1);
    let owner = "7f0b1a2c-3d4e-4f5a-8b6c-000001234567";
    let used = |bench: &mut Bench, key: &str| call(bench, 0, &format!("MEMORY USAGE {key}"));
    assert!(call(&mut bench, 0, &format!("LOCK.ACQUIRE lock:1234567 {owner} PX 1000")).starts_with("1 token 1 "));
    // A slot of 32 bytes, its share of the index, and a block of 64.
    assert_eq!(used(&mut bench, "lock:1234567"), "104");
    assert!(call(&mut bench, 0, &format!("LOCK.ACQUIRE lock:7654321 {owner} PX 1000")).starts_with("1 token 2 "));
    assert_eq!(call(&mut bench, 0, "RENAME lock:1234567 lock:0000000"), "+OK");
    assert_eq!(
        (used(&mut bench, "lock:7654321"), used(&mut bench, "lock:0000000")),
        ("104".to_owned(), "104".to_owned())
    );
    assert_eq!(call(&mut bench, 0, "OBJECT ENCODING lock:0000000"), "grants");
    // A failed script has done nothing.
    let told = |bench: &mut Bench| {
        ["lock:0000000", "lock:7654321"].map(|key| (call(bench, 0, &format!("LOCK.INFO {key}")), used(bench, key)))
    };
    let before = told(&mut bench);
    assert!(before.iter().all(|(info, bytes)| info.contains(owner) && bytes == "104"), "{before:?}");
    for commands in [
        "'LOCK.EXTEND', KEYS[1], ARGV[1], 'PX', 9000",
        "'LOCK.RELEASE', KEYS[1], ARGV[1]",
        "'LOCK.BREAK', KEYS[1]",
        "'RENAME', KEYS[1], KEYS[2]",
        "'COPY', KEYS[1], KEYS[2], 'REPLACE'",
    ] {
        let script = format!("redis.call({commands}) redis.call('LOCK.ACQUIRE', KEYS[1], 'b', 'PX', 5000) error('no')");
        let args = words(&["EVAL", &script, "2", "lock:0000000", "lock:7654321", owner]);
        let reply = flat(&bench.call(0, &args));
        assert!(reply.starts_with('-') && reply.contains("no"), "{commands}: {reply}");
        assert_eq!(told(&mut bench), before, "{commands}");
    }
    bench.pass(999);
    assert_eq!(call(&mut bench, 0, "DBSIZE"), "2");
    bench.pass(1);
    assert!(call(&mut bench, 0, "LOCK.INFO lock:0000000").starts_with("0 mode free"));
    assert!(call(&mut bench, 0, "LOCK.INFO lock:7654321").starts_with("0 mode free"));
    assert_eq!(call(&mut bench, 0, "DBSIZE"), "0");
}

/// WATCH sees grants come and go, by expiry as well.
#[test]
fn watch_sees_grants_begin_and_end() {
    for (line, fails) in [
        ("LOCK.ACQUIRE l b PX 5", true),
        ("LOCK.RELEASE l a", true),
        ("LOCK.EXTEND l a PX 50", true),
        ("LOCK.RELEASE l b", false),
        ("LOCK.INFO l", false),
    ] {
        let mut bench = Bench::new(2);
        if line.contains("ACQUIRE") {
            call(&mut bench, 0, "LOCK.ACQUIRE other a PX 1000");
        } else {
            call(&mut bench, 0, "LOCK.ACQUIRE l a PX 1000");
        }
        call(&mut bench, 0, "WATCH l");
        call(&mut bench, 1, line);
        call(&mut bench, 0, "MULTI");
        call(&mut bench, 0, "PING");
        assert_eq!(call(&mut bench, 0, "EXEC") != "+PONG", fails, "{line}");
    }
}

/// Grants survive a crash, and no token is issued twice.
#[test]
fn grants_survive_a_crash() {
    let dir = tempfile::tempdir().expect("a folder");
    let flags = ["--dir", dir.path().to_str().expect("plain text"), "--appendonly", "yes"];
    let mut tokens = Vec::new();
    for round in 0..3 {
        let server = Server::start(Program::Tidegate, &flags);
        let mut c = server.raw();
        for key in ["g", "h"] {
            let reply =
                c.command(&["GATE.ACQUIRE", key, &format!("r{round}"), "LIMIT", "9", "PX", "600000", "NOTE", "n"]);
            let Value::Array(words) = &reply else { panic!("{reply:?}") };
            assert_eq!(words[..2], [Value::Integer(1), Value::bulk("token")]);
            let Value::Integer(token) = words[2] else { panic!("{reply:?}") };
            tokens.push(token);
        }
        // A retry after the crash gets the first answer again.
        let again = c.command(&["GATE.ACQUIRE", "g", "r0", "LIMIT", "9", "PX", "600000"]);
        assert!(format!("{again:?}").starts_with(&format!("[1, \"token\", {}", tokens[0])), "{again:?}");
        assert_eq!(c.command(&["DEL", "h"]), Value::Integer(1));
        if round == 1 {
            // The journal is rewritten, and its records of tokens are gone.
            assert_eq!(c.command(&["SAVE"]), Value::ok());
        }
        // Ends by SIGKILL.
        drop(server);
    }
    assert!(tokens.windows(2).all(|pair| pair[0] < pair[1]), "{tokens:?}");
    let server = Server::start(Program::Tidegate, &flags);
    let mut c = server.raw();
    c.hello3();
    let info = format!("{:?}", c.command(&["GATE.INFO", "g"]));
    assert!(info.starts_with("[1, %{") && info.contains("\"in-use\": 3"), "{info}");
    let holders = format!("{:?}", c.command(&["GATE.HOLDERS", "g", "0", "COUNT", "2"]));
    assert!(holders.contains("\"note\": \"n\"") && !holders.starts_with("[\"0\""), "{holders}");
}
