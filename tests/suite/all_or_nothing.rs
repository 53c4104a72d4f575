//! All or nothing, as clients see it: what others learn of a failed script, and which failures undo nothing.

use crate::harness::{Program, Raw, Server, Value};

/// A server with the data that the scripts below need, and two connections to it.
fn server(flags: &[&str]) -> (Server, Raw, Raw) {
    let server = Server::start(Program::Tidegate, flags);
    let (one, other) = (server.raw(), server.raw());
    (server, one, other)
}

const HALF_A_SALE: &str = "redis.call('DECR', KEYS[1]) redis.call('SADD', KEYS[2], 'ann') \
    redis.call('PUBLISH', 'sold', 'ann') error('no paper in the printer')";

#[test]
fn a_failed_script_is_invisible_to_watchers_waiters_and_subscribers() {
    let (server, mut one, mut other) = server(&[]);
    let (mut waiting, mut listening) = (server.raw(), server.raw());
    one.command(&["SET", "stock", "10"]);
    assert_eq!(
        listening.command(&["SUBSCRIBE", "sold"]),
        Value::Array(vec![Value::bulk("subscribe"), Value::bulk("sold"), Value::Integer(1)])
    );
    other.command(&["WATCH", "stock", "buyers"]);
    waiting.send_command(&["BLPOP", "queue", "0"]);
    while one.command(&["INFO", "clients"]).bytes().is_some_and(|info| !contains(info, b"blocked_clients:1")) {}
    let script = format!("redis.call('RPUSH', 'queue', 'order') {HALF_A_SALE}");
    let told = one.command(&["EVAL", &script, "2", "stock", "buyers"]);
    assert!(told.bytes().is_some_and(|text| contains(text, b"no paper in the printer")), "{told:?}");
    other.command(&["MULTI"]);
    other.command(&["GET", "stock"]);
    assert_eq!(other.command(&["EXEC"]), Value::Array(vec![Value::bulk("10")]), "no watched key was touched");
    assert_eq!(one.command(&["EXISTS", "buyers", "queue"]), Value::Integer(0));
    // The first message that either client receives comes from the later call.
    one.command(&["EVAL", "redis.call('RPUSH', 'queue', 'a') return redis.call('PUBLISH', 'sold', 'bob')", "0"]);
    assert_eq!(waiting.reply().value, Value::Array(vec![Value::bulk("queue"), Value::bulk("a")]));
    assert_eq!(
        listening.reply().value,
        Value::Array(vec![Value::bulk("message"), Value::bulk("sold"), Value::bulk("bob")])
    );
}

fn contains(text: &[u8], part: &[u8]) -> bool {
    text.windows(part.len()).any(|window| window == part)
}

#[test]
fn errors_that_a_script_catches_or_returns_undo_nothing_else() {
    let (_server, mut one, _) = server(&[]);
    let caught = "redis.call('SET', 'a', '1') redis.pcall('LPUSH', 'a', 'x') pcall(error, 'mine') \
        redis.call('SET', 'b', '2') return redis.error_reply('REFUSED for a reason')";
    assert_eq!(one.command(&["EVAL", caught, "0"]), Value::error("REFUSED for a reason"));
    assert_eq!(one.command(&["MGET", "a", "b"]), Value::Array(vec![Value::bulk("1"), Value::bulk("2")]));
    // A transaction continues after a failed script, all of whose changes are undone.
    one.command(&["MULTI"]);
    one.command(&["SET", "a", "5"]);
    one.command(&["EVAL", "redis.call('SET', 'a', '6') error('x')", "0"]);
    one.command(&["INCR", "a"]);
    one.command(&["EXEC"]);
    assert_eq!(one.command(&["GET", "a"]), Value::bulk("6"));
}

#[test]
fn a_message_that_is_too_long_fails_only_its_own_publish() {
    let (_server, mut one, mut listening) = server(&[]);
    listening.command(&["SUBSCRIBE", "news"]);
    let script = "local told = redis.pcall('PUBLISH', 'news', ('x'):rep(65 * 1024 * 1024)) \
        redis.call('PUBLISH', 'news', 'short') return told.err";
    let told = one.command(&["EVAL", script, "0"]);
    assert!(told.bytes().is_some_and(|text| contains(text, b"64 MB")), "{told:?}");
    assert_eq!(one.command(&["EVAL", "return redis.call('PUBLISH', 'news', 'later')", "0"]), Value::Integer(1));
    for message in ["short", "later"] {
        let heard = Value::Array(vec![Value::bulk("message"), Value::bulk("news"), Value::bulk(message)]);
        assert_eq!(listening.reply().value, heard);
    }
}

#[test]
fn functions_are_all_or_nothing_too() {
    let (_server, mut one, _) = server(&[]);
    let library = "#!lua name=l\nredis.register_function('f', function(keys) \
        redis.call('SET', keys[1], 'v') redis.call('INCR', keys[1]) end)";
    one.command(&["FUNCTION", "LOAD", library]);
    let told = one.command(&["FCALL", "f", "1", "k"]);
    assert!(told.bytes().is_some_and(|text| contains(text, b"not an integer")), "{told:?}");
    assert_eq!(one.command(&["EXISTS", "k"]), Value::Integer(0));
}

#[test]
fn a_script_that_wrote_can_be_killed_and_leaves_nothing() {
    let (_server, mut one, mut other) = server(&["--busy-reply-threshold", "1"]);
    one.command(&["SET", "k", "before"]);
    one.send_command(&["EVAL", "redis.call('SET', 'k', 'half') while true do pcall(error) end", "0"]);
    while other.command(&["SCRIPT", "KILL"]) != Value::status("OK") {}
    let told = one.reply().value;
    assert!(told.bytes().is_some_and(|text| contains(text, b"Script killed by user")), "{told:?}");
    assert_eq!(other.command(&["GET", "k"]), Value::bulk("before"));
}

#[test]
fn with_rollback_off_scripts_behave_as_in_redis() {
    let (_server, mut one, mut other) = server(&["--script-rollback", "no", "--busy-reply-threshold", "1"]);
    one.command(&["SET", "stock", "10"]);
    one.command(&["EVAL", HALF_A_SALE, "2", "stock", "buyers"]);
    assert_eq!(one.command(&["GET", "stock"]), Value::bulk("9"));
    one.send_command(&["EVAL", "redis.call('SET', 'k', 'half') while true do end", "0"]);
    let mut told = other.command(&["SCRIPT", "KILL"]);
    while told.bytes().is_some_and(|text| text.starts_with(b"NOTBUSY")) {
        told = other.command(&["SCRIPT", "KILL"]);
    }
    assert!(told.bytes().is_some_and(|text| text.starts_with(b"UNKILLABLE")), "{told:?}");
}
