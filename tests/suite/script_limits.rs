//! `script-time-limit`, SCRIPT KILL and `script-memory-limit`, as callers of scripts and functions see them.

use crate::harness::{Program, Raw, Server, Value};
use crate::slow_turns::{TURNS, endless, fill};

const OUT_OF_TIME: &str = "ERR Script ran longer than script-time-limit.";
const OUT_OF_MEMORY: &str = "ERR Script used more than script-memory-limit.";

/// Starts a server, unless the suite runs against Redis, which has no such limits.
fn server() -> Option<Server> {
    std::env::var("SUITE_SERVER").is_err().then(|| Server::start(Program::Tidegate, &[]))
}

fn set(raw: &mut Raw, parameter: &str, value: &str) {
    assert_eq!(raw.command(&["CONFIG", "SET", parameter, value]), Value::status("OK"));
}

fn assert_fails(got: &Value, with: &str) {
    let text = String::from_utf8_lossy(got.bytes().unwrap_or_default()).into_owned();
    assert!(matches!(got, Value::Error(_)) && text.starts_with(with), "{got:?}");
}

#[test]
fn limits_have_the_documented_defaults() {
    let Some(server) = server() else { return };
    let mut raw = server.raw();
    let pair = |name, value| Value::Array(vec![Value::bulk(name), Value::bulk(value)]);
    assert_eq!(raw.command(&["CONFIG", "GET", "script-time-limit"]), pair("script-time-limit", "0"));
    assert_eq!(raw.command(&["CONFIG", "GET", "script-memory-limit"]), pair("script-memory-limit", "536870912"));
}

#[test]
fn scripts_and_functions_end_at_the_time_limit() {
    let Some(server) = server() else { return };
    let mut raw = server.raw();
    set(&mut raw, "script-time-limit", "20");
    let library = "#!lua name=l\nredis.register_function('hang', function() while true do pcall(error) end end)";
    assert_eq!(raw.command(&["FUNCTION", "LOAD", library]), Value::bulk("l"));
    assert_fails(&raw.command(&["EVAL", "while true do end", "0"]), OUT_OF_TIME);
    assert_fails(&raw.command(&["FCALL", "hang", "0"]), OUT_OF_TIME);
    // Inside EXEC only this command fails.
    raw.command(&["MULTI"]);
    raw.command(&["SET", "a", "1"]);
    raw.command(&["EVAL", "while true do end", "0"]);
    raw.command(&["SET", "b", "2"]);
    let Value::Array(replies) = raw.command(&["EXEC"]) else { panic!("EXEC answers an array") };
    assert_eq!((&replies[0], &replies[2]), (&Value::status("OK"), &Value::status("OK")));
    assert_fails(&replies[1], OUT_OF_TIME);
    // The position of the script is reported.
    let got = raw.command(&["EVAL", "local x = 1\nwhile true do x = x + 1 end", "0"]);
    assert!(String::from_utf8_lossy(got.bytes().unwrap_or_default()).ends_with(", on @user_script:2."), "{got:?}");
    // A limit beyond the threshold of -BUSY holds as well.
    set(&mut raw, "busy-reply-threshold", "1");
    assert_fails(&raw.command(&["EVAL", "while true do end", "0"]), OUT_OF_TIME);
    set(&mut raw, "script-time-limit", "0");
    assert_eq!(raw.command(&["EVAL", "for i = 1, 1e6 do end return 1", "0"]), Value::Integer(1));
}

#[test]
fn scripts_and_functions_end_at_the_memory_limit() {
    let Some(server) = server() else { return };
    let mut raw = server.raw();
    set(&mut raw, "script-memory-limit", "16mb");
    let library = "#!lua name=l\nredis.register_function('fill', function() return ('x'):rep(2e7) end)";
    assert_eq!(raw.command(&["FUNCTION", "LOAD", library]), Value::bulk("l"));
    for call in [&["EVAL", "return ('x'):rep(2e7)", "0"][..], &["FCALL", "fill", "0"]] {
        assert_fails(&raw.command(call), OUT_OF_MEMORY);
    }
    // A command's reply counts, and so do its arguments.
    let value = "x".repeat(1 << 20);
    for _ in 0..20 {
        raw.command(&["RPUSH", "list", &value]);
    }
    assert_fails(&raw.command(&["EVAL", "return redis.call('lrange', 'list', 0, -1)", "0"]), OUT_OF_MEMORY);
    assert_eq!(raw.command(&["EVAL", "return #redis.call('lrange', 'list', 0, 4)", "0"]), Value::Integer(5));
    let script = "local s = redis.call('lindex', 'list', 0) local t = {} for i = 1, 20 do t[i] = s end
        return redis.pcall('rpush', 'copy', unpack(t))";
    assert_fails(&raw.command(&["EVAL", script, "0"]), "ERR Lua redis lib command arguments are too long");
    // A limit below the size of the Lua state is too small for any script; a larger one lets them run again.
    set(&mut raw, "script-memory-limit", "1");
    assert_fails(&raw.command(&["EVAL", "return {1, {2}}", "0"]), "ERR ");
    set(&mut raw, "script-memory-limit", "0");
    assert_eq!(raw.command(&["EVAL", "return #(('x'):rep(2e7))", "0"]), Value::Integer(20_000_000));
}

#[test]
fn memory_kept_to_undo_a_script_is_bounded() {
    let Some(server) = server() else { return };
    let mut raw = server.raw();
    raw.command(&["RPUSH", "list", "first"]);
    set(&mut raw, "script-memory-limit", "16mb");
    let turn = "redis.call('RPUSH', 'list', v) redis.call('LPOP', 'list')";
    let long = |turn: &str| format!("local v = ('x'):rep(1e5) for i = 1, 1e9 do {turn} end");
    let caught = long(&format!("pcall(function() {turn} end)"));
    for script in [long(turn), caught] {
        assert_fails(&raw.command(&["EVAL", &script, "0"]), "ERR Script changed more than could be undone");
        assert_eq!(raw.command(&["LRANGE", "list", "0", "-1"]), Value::Array(vec![Value::bulk("first")]));
    }
    // Memory that the script itself brought need not be kept, and reading goes on.
    let own = "local v = ('x'):rep(1e6) for i = 1, 40 do redis.call('SET', i, v) redis.call('DEL', i) end \
        return redis.call('LLEN', 'list')";
    assert_eq!(raw.command(&["EVAL", own, "0"]), Value::Integer(1));
    // Nothing is kept when nothing can be undone.
    set(&mut raw, "script-rollback", "no");
    let many = long(turn).replace("1e9", "300");
    assert_eq!(raw.command(&["EVAL", &many, "0"]), Value::Null);
}

/// Enough for a turn of some milliseconds.
const SCALE: usize = 1;

fn filled() -> Option<Server> {
    let server = server()?;
    let mut raw = server.raw();
    for script in fill(SCALE) {
        assert_eq!(raw.command(&["EVAL", &script, "0"]), Value::Null);
    }
    Some(server)
}

#[test]
fn slow_calls_end_at_the_time_limit() {
    let Some(server) = filled() else { return };
    let mut raw = server.raw();
    set(&mut raw, "script-time-limit", "20");
    for turn in TURNS {
        let got = raw.command(&["EVAL", &endless(turn, SCALE), "0"]);
        let text = String::from_utf8_lossy(got.bytes().unwrap_or_default()).into_owned();
        assert!(matches!(got, Value::Error(_)) && text.starts_with(OUT_OF_TIME), "{turn}: {got:?}");
    }
}

#[test]
fn other_clients_are_answered_during_slow_calls_and_can_end_them() {
    let Some(server) = filled() else { return };
    let (mut caller, mut other) = (server.raw(), server.raw());
    set(&mut caller, "busy-reply-threshold", "1");
    for turn in TURNS {
        caller.send_command(&["EVAL", &endless(turn, SCALE), "0"]);
        // Until the script has arrived and run for a millisecond, PING gets its normal reply.
        while other.command(&["PING"]) == Value::status("PONG") {}
        assert_eq!(other.command(&["SCRIPT", "KILL"]), Value::status("OK"), "{turn}");
        let got = caller.reply().value;
        let text = String::from_utf8_lossy(got.bytes().unwrap_or_default()).into_owned();
        assert!(text.starts_with("ERR Script killed by user with SCRIPT KILL..."), "{turn}: {got:?}");
    }
}
