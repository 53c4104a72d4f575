//! HOTKEYS: the keys that use the most resources. The replies follow the documentation of Redis 8.6, since no such
//! server is available for comparison.

use crate::harness::{Program, Raw, Server, Value, until};

/// Returns the reply of HOTKEYS GET by the names of its fields; `None` if there is nothing to report.
fn found(raw: &mut Raw) -> Option<Vec<(String, Value)>> {
    let reply = match raw.command(&["HOTKEYS", "GET"]) {
        Value::Null => return None,
        reply => reply,
    };
    let Value::Array(nodes) = reply else { panic!("not an array: {reply:?}") };
    let [Value::Array(fields)] = nodes.as_slice() else { panic!("not one node: {nodes:?}") };
    let pairs = fields.as_chunks::<2>().0.iter();
    Some(pairs.map(|[name, value]| (text(name), value.clone())).collect())
}

fn text(value: &Value) -> String {
    String::from_utf8_lossy(value.bytes().expect("text")).into_owned()
}

fn field(raw: &mut Raw, name: &str) -> Value {
    let fields = found(raw).expect("a collection");
    fields.into_iter().find(|(known, _)| known == name).unwrap_or_else(|| panic!("no {name}")).1
}

fn number(raw: &mut Raw, name: &str) -> i64 {
    match field(raw, name) {
        Value::Integer(number) => number,
        other => panic!("{name} is {other:?}"),
    }
}

/// The keys of one of the lists, with their shares.
fn keys(raw: &mut Raw, name: &str) -> Vec<(String, i64)> {
    let Value::Array(list) = field(raw, name) else { panic!("{name} is no list") };
    let pairs = list.as_chunks::<2>().0.iter();
    let amount = |value: &Value| if let Value::Integer(amount) = value { *amount } else { panic!("{value:?}") };
    pairs.map(|[key, value]| (text(key), amount(value))).collect()
}

fn ok(raw: &mut Raw, call: &[&str]) {
    assert_eq!(raw.command(call), Value::status("OK"), "{call:?}");
}

#[test]
fn bytes_are_attributed_to_the_keys_of_their_commands() {
    let server = Server::start(Program::Tidegate, &[]);
    let mut raw = server.raw();
    assert_eq!((found(&mut raw), raw.command(&["HOTKEYS", "STOP"])), (None, Value::Null));
    raw.command(&["SET", "before", "x"]);
    ok(&mut raw, &["HOTKEYS", "START", "METRICS", "2", "CPU", "NET", "COUNT", "3"]);
    raw.command(&["SET", "a", "0123456789"]);
    raw.command(&["GET", "a"]);
    raw.command(&["DEL", "nosuch", "b"]);
    raw.command(&["PING"]);
    raw.command(&["INCR", "a"]);
    // "*3 $3 SET $1 a $10 0123456789" and "+OK"; "*2 $3 GET $1 a" and "$10 0123456789"; "*3 $3 DEL $6 nosuch $1 b" and
    // ":0"; the error of INCR.
    let (set, get, del) = (4 + 9 + 7 + 17 + 5, 4 + 9 + 7 + 17, 4 + 9 + 12 + 7 + 4);
    let incr = 4 + 10 + 7 + "-ERR value is not an integer or out of range\r\n".len() as i64;
    let sums = [("a", set + get + incr), ("nosuch", del / 2), ("b", del / 2)];
    let sums: Vec<(String, i64)> = sums.into_iter().map(|(key, bytes)| (key.to_owned(), bytes)).collect();
    assert_eq!(keys(&mut raw, "by-net-bytes"), sums);
    assert_eq!(number(&mut raw, "net-bytes-all-commands-all-slots"), set + get + del + incr);
    assert_eq!(number(&mut raw, "total-net-bytes"), set + get + del + incr);
    let by_time = keys(&mut raw, "by-cpu-time-us");
    assert_eq!(by_time.len(), 3);
    assert!(by_time.iter().map(|(_, micros)| micros).sum::<i64>() <= number(&mut raw, "all-commands-all-slots-us"));
    assert_eq!((number(&mut raw, "tracking-active"), number(&mut raw, "sample-ratio")), (1, 1));
    ok(&mut raw, &["HOTKEYS", "STOP"]);
    raw.command(&["GET", "a"]);
    assert_eq!((number(&mut raw, "tracking-active"), keys(&mut raw, "by-net-bytes")), (0, sums));
    let (took, took_later) = (field(&mut raw, "collection-duration-ms"), field(&mut raw, "collection-duration-ms"));
    assert_eq!(took, took_later, "time stands still");
    ok(&mut raw, &["HOTKEYS", "RESET"]);
    assert_eq!(found(&mut raw), None);
    ok(&mut raw, &["HOTKEYS", "RESET"]);
}

#[test]
fn slow_keys_are_found_by_their_time() {
    let server = Server::start(Program::Tidegate, &[]);
    let mut raw = server.raw();
    let spin = "local n = 0 for i = 1, 2000000 do n = n + i end return redis.call('SET', KEYS[1], n)";
    ok(&mut raw, &["HOTKEYS", "START", "METRICS", "1", "CPU"]);
    (0..20).for_each(|_| assert_eq!(raw.command(&["SET", "quick", "x"]), Value::status("OK")));
    assert_eq!(raw.command(&["EVAL", spin, "1", "slow"]), Value::status("OK"));
    let by_time = keys(&mut raw, "by-cpu-time-us");
    assert_eq!(by_time.iter().map(|(key, _)| key.as_str()).collect::<Vec<_>>(), ["slow", "quick"]);
    assert!(by_time[0].1 > 1_000, "{by_time:?}");
    let names: Vec<String> = found(&mut raw).expect("a collection").into_iter().map(|(name, _)| name).collect();
    let wanted = [
        "tracking-active",
        "sample-ratio",
        "selected-slots",
        "all-commands-all-slots-us",
        "net-bytes-all-commands-all-slots",
        "collection-start-time-unix-ms",
        "collection-duration-ms",
        "total-cpu-time-user-ms",
        "total-cpu-time-sys-ms",
        "by-cpu-time-us",
    ];
    assert_eq!(names, wanted);
    raw.hello3();
    let Value::Array(nodes) = raw.command(&["HOTKEYS", "GET"]) else { panic!("not an array") };
    assert!(matches!(nodes.as_slice(), [Value::Map(fields)] if fields.len() == wanted.len()), "{nodes:?}");
}

#[test]
fn transactions_are_counted_by_command_and_scripts_as_a_whole() {
    let server = Server::start(Program::Tidegate, &[]);
    let (mut raw, mut waiting) = (server.raw(), server.raw());
    ok(&mut raw, &["HOTKEYS", "START", "METRICS", "1", "NET"]);
    for call in [&["MULTI"][..], &["SET", "t", "1"], &["SET", "u", "1"], &["SET", "t", "2"], &["EXEC"]] {
        raw.command(call);
    }
    raw.command(&["EVAL", "redis.call('SET', 'undeclared', 1) return redis.call('SET', KEYS[1], 1)", "1", "s"]);
    waiting.send_command(&["BLPOP", "queue", "0"]);
    until(|| text(&raw.command(&["INFO", "clients"])).contains("blocked_clients:1\r"), "the client waits");
    raw.command(&["RPUSH", "queue", "x"]);
    waiting.reply();
    let mut seen: Vec<String> = keys(&mut raw, "by-net-bytes").into_iter().map(|(key, _)| key).collect();
    let bytes = |key: &str, raw: &mut Raw| {
        keys(raw, "by-net-bytes").into_iter().find(|(known, _)| known == key).expect("seen").1
    };
    assert_eq!(bytes("t", &mut raw), 2 * bytes("u", &mut raw));
    // "*3 $5 BLPOP $5 queue $1 0" and "*2 $5 queue $1 x"; "*3 $5 RPUSH $5 queue $1 x" and ":1".
    assert_eq!(bytes("queue", &mut raw), (4 + 11 + 11 + 7) + (4 + 11 + 7) + (4 + 11 + 11 + 7) + 4);
    seen.sort();
    assert_eq!(seen, ["queue", "s", "t", "u"]);
}

#[test]
fn a_collection_ends_when_its_time_is_over() {
    let server = Server::start(Program::Tidegate, &[]);
    let mut raw = server.raw();
    ok(&mut raw, &["HOTKEYS", "START", "METRICS", "1", "NET", "DURATION", "1"]);
    until(|| number(&mut raw, "tracking-active") == 0, "the collection ends");
    assert!(number(&mut raw, "collection-duration-ms") >= 1_000);
    assert_eq!(raw.command(&["HOTKEYS", "STOP"]), Value::Null);
    ok(&mut raw, &["HOTKEYS", "START", "METRICS", "1", "NET"]);
}

#[test]
fn the_slow_log_is_unaffected_by_a_collection() {
    let server = Server::start(Program::Tidegate, &["--slowlog-log-slower-than", "3600000000"]);
    let mut raw = server.raw();
    ok(&mut raw, &["HOTKEYS", "START", "METRICS", "1", "NET"]);
    raw.command(&["SET", "a", "x"]);
    // A change of the parameters must not end the collection.
    ok(&mut raw, &["CONFIG", "SET", "slowlog-max-len", "5"]);
    raw.command(&["SET", "b", "x"]);
    assert_eq!(keys(&mut raw, "by-net-bytes").len(), 2);
    assert_eq!(raw.command(&["SLOWLOG", "LEN"]), Value::Integer(0));
    assert_eq!(raw.command(&["COMMANDLOG", "LEN", "LARGE-REPLY"]), Value::Integer(0));
}

#[test]
fn invalid_calls_are_refused() {
    let server = Server::start(Program::Tidegate, &[]);
    let mut raw = server.raw();
    let start = |raw: &mut Raw, words: &str| {
        let call: Vec<&str> = ["HOTKEYS", "START"].into_iter().chain(words.split_whitespace()).collect();
        text(&raw.command(&call))
    };
    for (words, refusal) in [
        ("", "ERR METRICS parameter is required"),
        ("COUNT 3", "ERR METRICS parameter is required"),
        ("METRICS 0", "ERR METRICS count must be > 0 and <= 2"),
        ("METRICS x CPU", "ERR METRICS count must be > 0 and <= 2"),
        ("METRICS 3 CPU NET GPU", "ERR METRICS count must be > 0 and <= 2"),
        ("METRICS 2 CPU", "ERR METRICS count does not match number of metric types provided"),
        ("METRICS 2 CPU cpu", "ERR METRICS CPU defined more than once!"),
        ("METRICS 2 NET NET", "ERR METRICS NET defined more than once!"),
        ("METRICS 1 GPU", "ERR METRICS no valid metrics passed. Supported: CPU|NET"),
        ("METRICS 1 CPU NET", "ERR syntax error"),
        ("METRICS 1 CPU COUNT", "ERR syntax error"),
        ("METRICS 1 CPU COUNT 0", "ERR COUNT must be between 1 and 64"),
        ("METRICS 1 CPU COUNT 65", "ERR COUNT must be between 1 and 64"),
        ("METRICS 1 CPU DURATION 0", "ERR DURATION must be between 1 and 1000000"),
        ("METRICS 1 CPU SAMPLE 0", "ERR SAMPLE ratio must be positive"),
        ("METRICS 1 CPU SLOTS 1 0", "ERR SLOTS parameter cannot be used in non-cluster mode"),
    ] {
        assert_eq!(start(&mut raw, words), refusal, "{words}");
    }
    // A metric that later versions may have.
    ok(&mut raw, &["HOTKEYS", "START", "METRICS", "2", "GPU", "CPU", "SAMPLE", "2147483647"]);
    assert_eq!(start(&mut raw, "METRICS 1 NET"), "ERR hotkey tracking session already in progress");
    let refusal = "ERR hotkey tracking session in progress, stop tracking first";
    assert_eq!(raw.command(&["HOTKEYS", "RESET"]), Value::error(refusal));
}
