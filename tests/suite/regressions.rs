//! Faults that were found once and must not come back: each test describes the fault.

use std::time::Duration;

use crate::harness::{Program, Raw, Server, Value, encode, until};
use crate::in_process::{Bench, words};

fn start(flags: &[&str]) -> Server {
    Server::start(Program::Tidegate, flags)
}

fn info(raw: &mut Raw, field: &str) -> u64 {
    let text = raw.command(&["INFO", "everything"]);
    let text = String::from_utf8_lossy(text.bytes().expect("INFO answers text")).into_owned();
    let line = text.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':')).expect("the field is there");
    line.parse().expect("a number")
}

#[test]
fn watch_sees_changes_by_woken_calls_of_other_clients() {
    let server = start(&[]);
    let (mut watcher, mut waiter) = (server.raw(), server.raw());
    waiter.send_command(&["BLMOVE", "queue", "watched", "LEFT", "RIGHT", "0"]);
    until(|| info(&mut watcher, "blocked_clients") == 1, "the client blocks");
    watcher.command(&["WATCH", "watched"]);
    // This push wakes the other client, whose move changes the watched key before anything else runs.
    assert_eq!(watcher.command(&["LPUSH", "queue", "x"]), Value::Integer(1));
    watcher.command(&["MULTI"]);
    watcher.command(&["PING"]);
    assert_eq!(watcher.command(&["EXEC"]), Value::Null);
}

#[test]
fn keys_that_expire_during_a_transaction_wake_no_client() {
    let server = start(&["--enable-debug-command", "yes"]);
    let (mut pusher, mut waiter) = (server.raw(), server.raw());
    pusher.command(&["DEBUG", "SET-ACTIVE-EXPIRE", "0"]);
    waiter.send_command(&["BLPOP", "jobs", "0"]);
    until(|| info(&mut pusher, "blocked_clients") == 1, "the client blocks");
    for line in ["MULTI", "RPUSH jobs late", "PEXPIRE jobs 5", "DEBUG SLEEP 0.03", "EXEC", "RPUSH jobs job"] {
        pusher.command(&line.split(' ').collect::<Vec<_>>());
    }
    assert_eq!(waiter.reply().value, Value::Array(vec![Value::bulk("jobs"), Value::bulk("job")]));
}

#[test]
fn time_stands_still_in_a_script() {
    let server = start(&["--enable-debug-command", "yes"]);
    let mut raw = server.raw();
    let script = "local t = redis.call('TIME') redis.call('DEBUG', 'SLEEP', '0.002') local u = redis.call('TIME')
        return t[1] == u[1] and t[2] == u[2]";
    assert!(matches!(raw.command(&["EVAL", script, "0"]), Value::Error(_)), "DEBUG is not for scripts");
    raw.command(&["DEBUG", "SET-DISABLE-DENY-SCRIPTS", "1"]);
    assert_eq!(raw.command(&["EVAL", script, "0"]), Value::Integer(1));
    // Nothing else is allowed.
    assert!(matches!(raw.command(&["EVAL", "return redis.call('SUBSCRIBE', 'c')", "0"]), Value::Error(_)));
    raw.hello3();
    let attribute = "redis.setresp(3) return redis.call('DEBUG', 'PROTOCOL', 'attrib')";
    assert_eq!(raw.command(&["EVAL", attribute, "0"]), Value::bulk("Some real reply following the attribute"));
    raw.command(&["DEBUG", "SET-DISABLE-DENY-SCRIPTS", "0"]);
    assert!(matches!(raw.command(&["EVAL", script, "0"]), Value::Error(_)));
}

#[test]
fn time_advances_in_a_busy_script_but_nothing_expires() {
    let server = start(&["--busy-reply-threshold", "1"]);
    let mut raw = server.raw();
    // If time stands still, the script gives up after half a minute of processor time.
    let script = "redis.call('SET', KEYS[1], 'v', 'PX', '1')
        local first, now, began = redis.call('TIME'), nil, os.clock()
        repeat now = redis.call('TIME')
        until now[1] * 1e6 + now[2] > first[1] * 1e6 + first[2] + 2e3 or os.clock() > began + 30
        return {now[1] * 1e6 + now[2] > first[1] * 1e6 + first[2], redis.call('PTTL', KEYS[1])}";
    let moved = Value::Array(vec![Value::Integer(1), Value::Integer(1)]);
    assert_eq!(raw.command(&["EVAL", script, "1", "k"]), moved);
    assert_eq!(raw.command(&["EXISTS", "k"]), Value::Integer(0), "the key has expired after the script");
}

#[test]
fn time_stands_still_in_a_transaction() {
    let server = start(&["--enable-debug-command", "yes"]);
    let mut raw = server.raw();
    let asks = [
        &["MULTI"][..],
        &["TIME"],
        &["DEBUG", "SLEEP", "0.002"],
        &["TIME"],
        &["EVAL", "return redis.call('TIME')", "0"],
    ];
    let _queued = asks.map(|ask| raw.command(ask));
    let Value::Array(replies) = raw.command(&["EXEC"]) else { panic!("EXEC answers an array") };
    let [before, _, after, in_script] = &replies[..] else { panic!("{replies:?}") };
    assert_eq!([before, before], [after, in_script]);
    assert_ne!(raw.command(&["TIME"]), *before, "time advances again after EXEC");
}

#[test]
fn info_and_client_list_count_subscribers_watchers_and_waiters() {
    let server = start(&[]);
    let (mut c, mut one, mut other) = (server.raw(), server.raw(), server.raw());
    let counted = |c: &mut Raw| {
        [
            "pubsub_clients",
            "watching_clients",
            "total_watched_keys",
            "total_blocking_keys",
            "total_blocking_keys_on_nokey",
        ]
        .map(|field| info(c, field))
    };
    assert_eq!(counted(&mut c), [0; 5]);
    c.command(&["WATCH", "a", "b", "a"]);
    one.command(&["WATCH", "a"]);
    let described = one.command(&["CLIENT", "INFO"]);
    assert!(String::from_utf8_lossy(described.bytes().expect("a text")).contains(" watch=1 "), "{described:?}");
    other.command(&["SUBSCRIBE", "news"]);
    assert_eq!(counted(&mut c), [1, 2, 2, 0, 0]);
    c.command(&["XGROUP", "CREATE", "stream", "group", "$", "MKSTREAM"]);
    let (mut reads, mut pops) = (server.raw(), server.raw());
    reads.send_command(&["XREADGROUP", "GROUP", "group", "ann", "BLOCK", "0", "STREAMS", "stream", ">"]);
    pops.send_command(&["BLPOP", "list", "other", "0"]);
    until(|| info(&mut c, "blocked_clients") == 2, "both clients wait");
    assert_eq!(counted(&mut c), [1, 2, 2, 3, 1]);
    c.command(&["DEL", "stream"]);
    assert!(matches!(reads.reply().value, Value::Error(_)));
    assert_eq!(counted(&mut c), [1, 2, 2, 2, 0]);
}

#[test]
fn config_resetstat_resets_all_counters() {
    let server = start(&[]);
    let (mut c, mut waits) = (server.raw(), server.raw());
    // One text more than the limit on kept texts.
    for n in 0..=500 {
        c.command(&["EVAL", &format!("return {n}"), "0"]);
    }
    c.command(&["EVAL", "for i = 1, 2000 do redis.call('RPUSH', KEYS[1], i) end", "1", "large"]);
    c.command(&["DEL", "large"]);
    c.command(&["SET", "short", "v", "PX", "1"]);
    let Value::Integer(id) = waits.command(&["CLIENT", "ID"]) else { panic!("an id is a number") };
    waits.send_command(&["BLPOP", "queue", "0"]);
    until(|| info(&mut c, "blocked_clients") == 1, "the client waits");
    c.command(&["CLIENT", "UNBLOCK", &id.to_string(), "ERROR"]);
    assert!(matches!(waits.reply().value, Value::Error(_)));
    let counted = |c: &mut Raw| ["evicted_scripts", "lazyfreed_objects", "expired_keys"].map(|field| info(c, field));
    until(|| counted(&mut c) == [2, 1, 1], "every event is counted");
    let text = |c: &mut Raw| {
        let text = c.command(&["INFO", "everything"]);
        String::from_utf8_lossy(text.bytes().expect("INFO answers text")).into_owned()
    };
    let told = text(&mut c);
    let blpop = told.lines().find(|line| line.starts_with("cmdstat_blpop:")).expect("it was called");
    assert!(told.contains("errorstat_UNBLOCKED:count=1") && blpop.ends_with("failed_calls=1"), "{blpop}");
    assert_eq!(c.command(&["CONFIG", "RESETSTAT"]), Value::status("OK"));
    assert_eq!(counted(&mut c), [0; 3]);
    let told = text(&mut c);
    assert!(!told.contains("errorstat_") && !told.contains("cmdstat_blpop"), "{told}");
}

#[test]
fn a_waiting_client_that_leaves_takes_no_element() {
    let server = start(&[]);
    let mut other = server.raw();
    let mut leaver = server.raw();
    leaver.send_command(&["BLPOP", "queue", "0"]);
    until(|| info(&mut other, "blocked_clients") == 1, "the client blocks");
    // More than one read takes: the end of the connection lies behind it.
    leaver.send("PING\r\n".repeat(40_000).as_bytes());
    drop(leaver);
    until(|| info(&mut other, "blocked_clients") == 0, "the client's disconnection is noticed");
    assert_eq!(other.command(&["RPUSH", "queue", "x"]), Value::Integer(1));
    assert_eq!(other.command(&["LLEN", "queue"]), Value::Integer(1));
}

#[test]
fn a_signal_ends_an_endless_script() {
    let mut server = start(&["--busy-reply-threshold", "50"]);
    let (mut runner, mut other) = (server.raw(), server.raw());
    runner.send_command(&["EVAL", "while true do end", "0"]);
    until(|| matches!(other.command(&["PING"]), Value::Error(_)), "the script is busy");
    let pid = i32::try_from(server.pid()).expect("a process id");
    // SAFETY: a signal to a process that this test has started.
    assert_eq!(unsafe { libc::kill(pid, libc::SIGTERM) }, 0);
    until(|| server.has_ended(), "the server ends");
}

#[test]
fn a_reply_does_not_wait_for_another_clients_slow_script() {
    // No client is served beside a script.
    let server = start(&["--busy-reply-threshold", "0", "--enable-debug-command", "yes"]);
    let (mut holder, mut quick, mut slow) = (server.raw(), server.raw(), server.raw());
    // Both come while the server sleeps, so that it finds both at once.
    holder.send_command(&["DEBUG", "SLEEP", "0.3"]);
    quick.send_command(&["SET", "key", "value"]);
    slow.send_command(&["EVAL", "while true do end", "0"]);
    assert_eq!(holder.reply().value, Value::status("OK"));
    assert_eq!(quick.reply().value, Value::status("OK"));
    assert!(slow.try_reply(Duration::from_millis(100)).is_err(), "the script is endless");
}

#[test]
fn a_migrate_in_a_script_gives_up_when_the_target_does_not_read() {
    let server = start(&["--proto-max-bulk-len", "64mb"]);
    let deaf = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let port = deaf.local_addr().expect("its address").port().to_string();
    let mut raw = server.raw();
    raw.command(&["SETRANGE", "key", "40000000", "x"]);
    let script = "return redis.pcall('MIGRATE', '127.0.0.1', ARGV[1], KEYS[1], '0', '200', 'COPY')";
    let moved = raw.command(&["EVAL", script, "1", "key", &port]);
    assert_eq!(moved, Value::error("IOERR error or timeout writing to target instance"));
    drop(deaf);
}

/// Bytes that a target has taken are not also held here, although the rest can't be sent.
#[test]
fn a_key_that_has_arrived_is_moved_even_if_the_next_one_fails() {
    let server = start(&["--proto-max-bulk-len", "64mb"]);
    let target = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let port = target.local_addr().expect("its address").port().to_string();
    let mut raw = server.raw();
    raw.command(&["SET", "first", "v"]);
    raw.command(&["SETRANGE", "second", "40000000", "x"]);
    let deaf = std::thread::spawn(move || {
        let (mut stream, _) = target.accept().expect("a connection");
        std::io::Write::write_all(&mut stream, b"+OK\r\n+OK\r\n").expect("SELECT and the first key are answered");
        stream
    });
    let moved = raw.command(&["MIGRATE", "127.0.0.1", &port, "", "0", "300", "KEYS", "first", "second"]);
    assert_eq!(moved, Value::error("IOERR error or timeout writing to target instance"));
    assert_eq!(raw.command(&["EXISTS", "first"]), Value::Integer(0));
    assert_eq!(raw.command(&["EXISTS", "second"]), Value::Integer(1));
    drop(deaf.join());
}

#[test]
fn a_closed_client_gets_its_earlier_replies() {
    let server = start(&[]);
    let mut raw = server.raw();
    raw.send(b"SET key value\r\nPOST / HTTP/1.1\r\n\r\n");
    assert_eq!(raw.read_to_end(), b"+OK\r\n");
}

#[test]
fn ordinary_clients_are_closed_at_their_output_limit() {
    let server = start(&["--client-output-buffer-limit", "normal", "1mb", "0", "0"]);
    let mut other = server.raw();
    other.command(&["SETRANGE", "big", "1000000", "x"]);
    let mut greedy = server.raw();
    greedy.send("GET big\r\n".repeat(60).as_bytes());
    until(
        || info(&mut other, "client_output_buffer_limit_disconnections") == 1,
        "the client that does not read is closed",
    );
}

#[test]
fn an_aborted_transaction_keeps_no_queued_commands() {
    let server = start(&[]);
    let mut raw = server.raw();
    raw.command(&["MULTI"]);
    raw.command(&["NOSUCH"]);
    let long = "x".repeat(100_000);
    for _ in 0..50 {
        assert_eq!(raw.command(&["SET", "k", &long]), Value::status("QUEUED"));
    }
    let mut other = server.raw();
    let list = other.command(&["CLIENT", "LIST"]);
    let list = String::from_utf8_lossy(list.bytes().expect("text")).into_owned();
    let held = list.split(" multi-mem=").skip(1).filter_map(|rest| rest.split(' ').next()?.parse::<u64>().ok());
    assert!(held.max().expect("the field is there") < 10_000, "{list}");
}

#[test]
fn subscribing_to_and_watching_very_many_names_is_fast() {
    let server = start(&[]);
    let names: Vec<String> = (0..200_000).map(|i| format!("name{i}*")).collect();
    let command =
        |verb: &str| -> Vec<String> { std::iter::once(verb.to_owned()).chain(names.iter().cloned()).collect() };
    let (mut listener, mut other) = (server.raw(), server.raw());
    listener.send_command(&command("PSUBSCRIBE"));
    until(|| other.command(&["PUBSUB", "NUMPAT"]) == Value::Integer(200_000), "all are subscribed");
    drop(listener);
    until(|| other.command(&["PUBSUB", "NUMPAT"]) == Value::Integer(0), "all are unsubscribed");
    assert_eq!(other.command(&command("WATCH")), Value::status("OK"));
    assert_eq!(other.command(&["SET", "name199999*", "x"]), Value::status("OK"));
    other.command(&["MULTI"]);
    assert_eq!(other.command(&["EXEC"]), Value::Null);
}

#[test]
fn commands_queued_for_exec_count_toward_the_query_limit() {
    let server = start(&["--client-query-buffer-limit", "1mb"]);
    let mut raw = server.raw();
    raw.command(&["MULTI"]);
    let long = "x".repeat(100_000);
    let queue = encode(&["SET", "k", &long]).repeat(10);
    raw.send(&queue);
    (0..10).for_each(|_| assert_eq!(raw.reply().value, Value::status("QUEUED")));
    raw.send(&queue);
    raw.read_to_end();
    let mut other = server.raw();
    assert_eq!(info(&mut other, "client_query_buffer_limit_disconnections"), 1);
    // Short commands weigh their memory, not their bytes on the wire.
    other.command(&["MULTI"]);
    other.send("PING\r\n".repeat(30_000).as_bytes());
    other.read_to_end();
    let mut third = server.raw();
    assert_eq!(info(&mut third, "client_query_buffer_limit_disconnections"), 2);
}

#[test]
fn protections_stay_active_while_a_script_is_busy() {
    let server = start(&["--busy-reply-threshold", "50"]);
    let (mut runner, mut other, mut muted) = (server.raw(), server.raw(), server.raw());
    muted.send_command(&["CLIENT", "REPLY", "OFF"]);
    let mut browser = server.raw();
    assert_eq!(browser.command(&["PING"]), Value::status("PONG"));
    runner.send_command(&["EVAL", "while true do end", "0"]);
    until(|| matches!(other.command(&["PING"]), Value::Error(_)), "the script is busy");
    browser.send(b"POST / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\nSCRIPT KILL\r\n");
    assert!(matches!(other.command(&["GET"]), Value::Error(_)));
    muted.send(b"GET a\r\nNOSUCH\r\n");
    assert_eq!(other.command(&["SCRIPT", "KILL"]), Value::status("OK"));
    assert!(matches!(runner.reply().value, Value::Error(_)));
    assert_eq!(browser.read_to_end(), b"", "no part of an HTTP request is run as a command");
    muted.send_command(&["CLIENT", "REPLY", "ON"]);
    assert_eq!(muted.reply().value, Value::status("OK"));
    let stats = other.command(&["INFO", "commandstats"]);
    let stats = String::from_utf8_lossy(stats.bytes().expect("text")).into_owned();
    let get = stats.lines().find(|line| line.starts_with("cmdstat_get:")).expect("GET was refused");
    assert!(get.ends_with("rejected_calls=2,failed_calls=0"), "{get}");
}

#[test]
fn client_list_returns_the_requested_ids() {
    let server = start(&[]);
    let (mut one, mut two) = (server.raw(), server.raw());
    let id = |raw: &mut Raw| match raw.command(&["CLIENT", "ID"]) {
        Value::Integer(id) => id.to_string(),
        other => panic!("{other:?}"),
    };
    let (first, second) = (id(&mut one), id(&mut two));
    let list = one.command(&["CLIENT", "LIST", "ID", &second, &first, &second, "999999"]);
    let list = String::from_utf8_lossy(list.bytes().expect("text")).into_owned();
    let ids: Vec<&str> = list.lines().filter_map(|line| line.strip_prefix("id=")?.split(' ').next()).collect();
    assert_eq!(ids, [&second, &first, &second]);
}

/// LuaJIT's fast functions must not be refused memory: the error overwrote a frame, and the server ended with a signal.
#[test]
fn scripts_can_run_out_of_memory_in_fast_functions() {
    let mut server = start(&["--script-memory-limit", "110000"]);
    let mut raw = server.raw();
    for make in ["{i, tostring(i)}", "{i, ('x' .. i):upper()}", "{('x' .. i):reverse(), i}"] {
        for pad in 0..60 {
            let script =
                format!("local pad = ('x'):rep({pad}) local t = {{}} for i = 1, 3000 do t[i] = {make} end return #t");
            let answer = raw.command(&["EVAL", &script, "0"]);
            let Value::Error(text) = &answer else { panic!("{script}: {answer:?}") };
            assert!(text.starts_with(b"ERR"), "{}", text.escape_ascii());
        }
    }
    assert!(!server.has_ended());
}

/// The second of two calls that waited at once for no key kept its deadline for ever, and the server did nothing else
/// from then on.
#[test]
fn two_clients_can_wait_for_replicas_at_once() {
    let server = start(&[]);
    let (mut first, mut second) = (server.raw(), server.raw());
    first.send_command(&["WAIT", "1", "50"]);
    second.send_command(&["WAIT", "1", "51"]);
    for raw in [&mut first, &mut second] {
        assert_eq!(raw.reply().value, Value::Integer(0));
        assert_eq!(raw.command(&["PING"]), Value::status("PONG"));
    }
}

/// Deadlines were wall-clock times: when the clock was set back by an hour, waiters were kept for an hour longer.
#[test]
fn timeouts_of_waiters_do_not_follow_the_wall_clock() {
    let mut bench = Bench::new(2);
    let hour_ms = 3_600_000;
    assert_eq!(bench.call(0, &words(&["BLPOP", "queue", "2"])), b"");
    assert_eq!(bench.call(1, &words(&["WAIT", "1", "2000"])), b"");
    bench.set_clock(hour_ms);
    assert!(bench.is_suspended(0) && bench.is_suspended(1), "an hour passed on the wall clock only");
    bench.set_clock(-2 * hour_ms);
    bench.pass(1_999);
    assert!(bench.is_suspended(0) && bench.is_suspended(1));
    bench.pass(1);
    assert!(!bench.is_suspended(0) && !bench.is_suspended(1));
}

/// LuaJIT skipped a first line that begins with `#`, and over a byte order mark, as it does in files.
#[test]
fn a_script_is_compiled_from_its_first_byte_on() {
    let mut bench = Bench::new(1);
    for (script, answer) in [
        ("#return 1", "-ERR Error compiling script (new function): user_script:1: unexpected symbol near '#'"),
        (
            "#return 1\nreturn 2",
            "-ERR Error compiling script (new function): user_script:1: unexpected symbol near '#'",
        ),
        ("\u{feff}return 1", "-ERR Error compiling script (new function): user_script:1: "),
        ("return loadstring('#return 1')", "$-1"),
        ("#!lua\nreturn 1", ":1"),
    ] {
        let reply = bench.call(0, &words(&["EVAL", script, "0"]));
        assert!(String::from_utf8_lossy(&reply).starts_with(answer), "{script}: {}", reply.escape_ascii());
    }
    let reply = bench.call(0, &words(&["SCRIPT", "LINT", "#return 1"]));
    assert!(reply.starts_with(b"-ERR Error compiling script"), "{}", reply.escape_ascii());
}

/// Commands of a pipeline were decoded up to 32 at a time, and the time that the last of these took was forgotten: the
/// commands behind it ran as if that time had not passed. Commands written inline are decoded one at a time.
#[test]
fn time_passes_within_a_pipeline() {
    let server = start(&["--enable-debug-command", "yes"]);
    let mut raw = server.raw();
    raw.send(b"DEBUG SLEEP 0.05\r\nTIME\r\nSET k v PX 60000\r\nPEXPIRETIME k\r\n");
    assert_eq!(raw.reply().value, Value::status("OK"));
    let Value::Array(time) = raw.reply().value else { panic!("TIME answers two numbers") };
    let number = |value: &Value| -> i64 {
        String::from_utf8_lossy(value.bytes().expect("text")).parse().expect("TIME answers two numbers")
    };
    let slept_ms = number(&time[0]) * 1_000 + number(&time[1]) / 1_000;
    assert_eq!(raw.reply().value, Value::status("OK"));
    let Value::Integer(expires_ms) = raw.reply().value else { panic!("PEXPIRETIME answers a time") };
    assert!(expires_ms - 60_000 >= slept_ms - 2, "{expires_ms} is less than 60 s after {slept_ms}");
}

/// A clock set forward by an hour had all idle clients closed, and one set back kept them for an hour longer.
#[test]
fn idle_time_does_not_follow_the_wall_clock() {
    let mut bench = Bench::new(2);
    let (clock, ticks) = quanta::Clock::mock();
    bench.engine.server.meters.stats.clock = clock;
    bench.engine.server.config.timeout_s = 10;
    let idle = |bench: &mut Bench| String::from_utf8_lossy(&bench.call(1, &words(&["CLIENT", "LIST"]))).into_owned();
    for by_ms in [3_600_000, -7_200_000] {
        bench.call(0, &words(&["PING"]));
        bench.set_clock(by_ms);
        ticks.increment(Duration::from_secs(10));
        let list = idle(&mut bench);
        assert!(list.contains(" idle=10 ") && list.contains(" idle=0 "), "{list}");
        bench.engine.tick();
        assert!(!bench.is_suspended(0), "an hour passed on the wall clock only");
    }
    ticks.increment(Duration::from_millis(1));
    bench.engine.tick();
    assert!(bench.is_suspended(0) && !bench.is_suspended(1));
}

/// An entry becomes claimable by the wall clock, and a waiter for it is called again for as long as that takes.
#[test]
fn a_waiter_for_a_claim_checks_again_after_the_clock_was_set() {
    let mut bench = Bench::new(2);
    let args = |line: &str| words(&line.split(' ').collect::<Vec<_>>());
    for command in ["XGROUP CREATE s g 0 MKSTREAM", "XADD s 1-1 f v", "XREADGROUP GROUP g a STREAMS s >"] {
        bench.call(0, &args(command));
    }
    assert_eq!(bench.call(1, &args("XREADGROUP GROUP g b BLOCK 60000 CLAIM 1000 STREAMS s >")), b"");
    bench.set_clock(-500);
    bench.pass(1_000);
    assert!(bench.is_suspended(1), "it has been idle for half a second");
    bench.pass(500);
    assert!(!bench.is_suspended(1));
}

/// While expiry is held, the earliest possible deadline nevertheless removed a key. From a deadline close to it INFO
/// computed a time to live that overflowed: hundreds of millions of years, or an assertion that ended the server in
/// builds that have them.
#[test]
fn imported_keys_may_have_any_deadline() {
    let server = start(&["--import-mode", "yes"]);
    let mut raw = server.raw();
    raw.command(&["CLIENT", "IMPORT-SOURCE", "ON"]);
    for at_ms in [i64::MIN, i64::MIN + 1, -1] {
        raw.command(&["SET", "k", "v"]);
        assert_eq!(raw.command(&["PEXPIREAT", "k", &at_ms.to_string()]), Value::Integer(1));
        assert_eq!(raw.command(&["GET", "k"]), Value::bulk("v"), "{at_ms}");
        let keyspace = raw.command(&["INFO", "keyspace"]);
        let keyspace = String::from_utf8_lossy(keyspace.bytes().expect("INFO answers text")).into_owned();
        assert!(keyspace.contains("db0:keys=1,expires=1,avg_ttl=0,"), "{at_ms}: {keyspace}");
    }
    raw.command(&["CLIENT", "IMPORT-SOURCE", "OFF"]);
    assert_eq!(raw.command(&["GET", "k"]), Value::Null);
}

/// A client that tracks by broadcast and does not read was sent the changes of others without end.
#[test]
fn a_client_that_does_not_read_its_invalidations_is_closed() {
    let server = start(&["--client-output-buffer-limit", "replica 1mb 0 0"]);
    let mut writer = server.raw();
    let mut deaf = server.raw();
    deaf.hello3();
    assert_eq!(deaf.command(&["CLIENT", "TRACKING", "ON", "BCAST"]), Value::status("OK"));
    let key = "k".repeat(100_000);
    until(
        || {
            writer.command(&["SET", &key, "v"]);
            info(&mut writer, "client_output_buffer_limit_disconnections") == 1
        },
        "the client is closed once its socket is full",
    );
    // Replies that a client has asked for are not bounded in length.
    let mut reader = server.raw();
    reader.hello3();
    reader.command(&["SET", "long", &"v".repeat(10_000_000)]);
    reader.command(&["CLIENT", "TRACKING", "ON", "BCAST"]);
    (0..5).for_each(|_| reader.send_command(&["GET", "long"]));
    writer.command(&["SET", &key, "w"]);
    for _ in 0..5 {
        let value = loop {
            match reader.reply().value {
                Value::Push(_) => {}
                value => break value,
            }
        };
        assert_eq!(value.bytes().map(<[u8]>::len), Some(10_000_000));
    }
}

/// A name of many megabytes was copied for each command in the slow log, and for each refusal in the ACL log.
#[test]
fn long_names_are_not_kept_once_per_log_entry() {
    let server = start(&["--slowlog-log-slower-than", "0"]);
    let mut raw = server.raw();
    raw.command(&["CLIENT", "SETNAME", &"n".repeat(1_000_000)]);
    raw.command(&["AUTH", &"u".repeat(1_000_000), "x"]);
    for log in [&["SLOWLOG", "GET", "-1"][..], &["ACL", "LOG"]] {
        raw.send_command(log);
        let reply = raw.reply();
        assert!(reply.raw.len() < 100_000, "{log:?}: {}", reply.raw.len());
    }
}

/// ACL DRYRUN showed the password in the call that it checked.
#[test]
fn acl_dryrun_does_not_show_the_checked_call() {
    let server = start(&["--slowlog-log-slower-than", "0"]);
    let mut raw = server.raw();
    raw.command(&["ACL", "DRYRUN", "default", "AUTH", "secret"]);
    let log = format!("{:?}", raw.command(&["SLOWLOG", "GET", "-1"]));
    assert!(log.contains("(redacted)") && !log.contains("secret"), "{log}");
}
