//! Limits on a single command: each test asks for far more than the server should hold or spend time on.

use crate::harness::{Program, Raw, Server, Value};

const TOO_LONG: &str = "ERR reply exceeds maximum allowed size (proto-max-bulk-len)";

/// More than half of the largest allowed reply.
const LARGE: &str = "300000000";

fn start() -> (Server, Raw) {
    let server = Server::start(Program::Tidegate, &[]);
    let raw = server.raw();
    (server, raw)
}

#[test]
fn a_large_value_cannot_be_repeated_in_one_reply_without_limit() {
    let (_server, mut raw) = start();
    raw.command(&["SETRANGE", "large", LARGE, "x"]);
    raw.command(&["SET", "other", "1"]);
    let mut words = vec!["MGET"];
    words.extend([&"large"; 10_000]);
    assert_eq!(raw.command(&words), Value::error(TOO_LONG));
    // In a transaction all replies share one limit; commands that change data are still run and answered.
    raw.command(&["MULTI"]);
    raw.command(&words);
    raw.command(&["INCR", "other"]);
    raw.command(&["GET", "other"]);
    let expected = vec![Value::error(TOO_LONG), Value::Integer(2), Value::bulk("2")];
    assert_eq!(raw.command(&["EXEC"]), Value::Array(expected));
    raw.command(&["MULTI"]);
    (0..4).for_each(|_| drop(raw.command(&["GETEX", "large"])));
    let Value::Array(replies) = raw.command(&["EXEC"]) else { panic!("no replies") };
    let is_answered = replies.iter().map(|reply| matches!(reply, Value::Bulk(_)));
    assert_eq!(is_answered.collect::<Vec<_>>(), [true, true, false, false], "commands that may write, too");
    assert_eq!(replies[3], Value::error(TOO_LONG));
    // Through a SORT pattern, as a reply and as a weight.
    raw.command(&["RPUSH", "list", "large", "large", "large"]);
    for words in [&["SORT", "list", "BY", "nosort", "GET", "*"][..], &["SORT_RO", "list", "ALPHA", "GET", "*"]] {
        assert_eq!(raw.command(words), Value::error(TOO_LONG), "{words:?}");
    }
    let too_much = Value::error("ERR SORT would need too much memory");
    assert_eq!(raw.command(&["SORT", "list", "BY", "*", "ALPHA"]), too_much);
    assert_eq!(raw.command(&["SORT", "list", "BY", "nosort", "GET", "*", "STORE", "to"]), too_much);
    assert_eq!(raw.command(&["EXISTS", "to"]), Value::Integer(0));
    assert_eq!(raw.command(&["SORT", "list", "ALPHA", "LIMIT", "0", "1"]), Value::Array(vec![Value::bulk("large")]));
}

#[test]
fn a_large_field_cannot_be_repeated_in_one_reply_without_limit() {
    let (_server, mut raw) = start();
    raw.command(&["CONFIG", "SET", "script-memory-limit", "1gb"]);
    raw.command(&["SETRANGE", "large", LARGE, "x"]);
    let store = "redis.call('HSET', KEYS[2], 'f', redis.call('GET', KEYS[1])) return redis.call('DEL', KEYS[1])";
    assert_eq!(raw.command(&["EVAL", store, "2", "large", "hash"]), Value::Integer(1));
    assert_eq!(raw.command(&["HGETEX", "hash", "EX", "100", "FIELDS", "2", "f", "f"]), Value::error(TOO_LONG));
    assert_eq!(raw.command(&["HTTL", "hash", "FIELDS", "1", "f"]), Value::Array(vec![Value::Integer(-1)]));
    assert_eq!(raw.command(&["HMGET", "hash", "f", "f"]), Value::error(TOO_LONG));
}

#[test]
fn draws_are_bounded() {
    let (_server, mut raw) = start();
    raw.command(&["SADD", "set", "a"]);
    raw.command(&["HSET", "hash", "a", "1"]);
    raw.command(&["ZADD", "zset", "1", "a"]);
    for (command, key) in [("SRANDMEMBER", "set"), ("HRANDFIELD", "hash"), ("ZRANDMEMBER", "zset")] {
        let refused = Value::error("ERR value is out of range");
        assert_eq!(raw.command(&[command, key, "-500000000"]), refused, "{command}");
        assert_eq!(raw.command(&[command, key, "-2"]), Value::Array(vec![Value::bulk("a"), Value::bulk("a")]));
        assert_eq!(raw.command(&[command, "nosuch", "-500000000"]), Value::Array(Vec::new()));
    }
}

#[test]
fn migrated_keys_are_not_restored_by_a_failure() {
    let (target, mut to) = start();
    let (_source, mut from) = start();
    let port = target.port().to_string();
    for key in ["a", "b", "c"] {
        from.command(&["SET", key, "here"]);
    }
    to.command(&["SET", "b", "there"]);
    let busy = "ERR Target instance replied with error: BUSYKEY Target key name already exists.";
    let words = ["MIGRATE", "127.0.0.1", &port, "", "0", "5000", "KEYS", "a", "b", "c"];
    assert_eq!(from.command(&words), Value::error(busy));
    assert_eq!(from.command(&["EXISTS", "a", "b", "c"]), Value::Integer(1), "keys that have arrived are removed here");
    assert_eq!(
        to.command(&["MGET", "a", "b", "c"]),
        Value::Array(vec![Value::bulk("here"), Value::bulk("there"), Value::bulk("here")])
    );
    // A script's rollback could undo the deletion, and the key would exist in both places.
    let script = "return redis.pcall('MIGRATE', '127.0.0.1', ARGV[1], KEYS[1], '1', '5000', ARGV[2])";
    let refused = from.command(&["EVAL", script, "1", "b", &port, "REPLACE"]);
    assert_eq!(
        refused,
        Value::error("ERR MIGRATE without COPY is not allowed in a script or transaction that may be rolled back")
    );
    assert_eq!(from.command(&["EVAL", script, "1", "b", &port, "COPY"]), Value::status("OK"));
    assert_eq!(from.command(&["CONFIG", "SET", "script-rollback", "no"]), Value::status("OK"));
    assert_eq!(from.command(&["EVAL", script, "1", "b", &port, "REPLACE"]), Value::status("OK"));
    assert_eq!(from.command(&["EXISTS", "b"]), Value::Integer(0));
}

#[test]
fn a_rolled_back_highest_id_does_not_block_a_stream() {
    let (_server, mut raw) = start();
    raw.command(&["XGROUP", "CREATE", "s", "g", "$", "MKSTREAM"]);
    let script = "redis.call('XADD', KEYS[1], ARGV[1], 'a', 'b') error('no')";
    let highest = "18446744073709551615-18446744073709551615";
    assert!(matches!(raw.command(&["EVAL", script, "1", "s", highest]), Value::Error(_)));
    assert_eq!(raw.command(&["XADD", "s", "1-1", "a", "b"]), Value::bulk("1-1"));
    assert_eq!(raw.command(&["XLEN", "s"]), Value::Integer(1));
    let entry = Value::Array(vec![Value::bulk("1-1"), Value::Array(vec![Value::bulk("a"), Value::bulk("b")])]);
    assert_eq!(raw.command(&["XRANGE", "s", "-", "+"]), Value::Array(vec![entry]));
}
