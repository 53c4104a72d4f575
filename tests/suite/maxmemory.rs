//! What commands, transactions and scripts may do when memory is full. The same tests run against Redis.

use crate::harness::{Program, Raw, Server, Value};

const OOM: &str = "OOM command not allowed when used memory > 'maxmemory'.";

macro_rules! on_both {
    ($($name:ident),* $(,)?) => {
        mod on_tidegate { $( #[test] fn $name() { super::$name(super::Program::Tidegate); } )* }
        mod on_redis { $( #[test] fn $name() { super::$name(super::Program::Redis); } )* }
    };
}

on_both!(commands_are_refused, transactions_are_refused, scripts_are_refused, the_limit_holds_and_is_lifted);

fn limit(raw: &mut Raw, bytes: &str) {
    assert_eq!(raw.command(&["CONFIG", "SET", "maxmemory", bytes]), Value::status("OK"));
}

fn commands_are_refused(program: Program) {
    let server = Server::start(program, &[]);
    let (mut raw, mut other) = (server.raw(), server.raw());
    raw.command(&["RPUSH", "list", "a", "b"]);
    limit(&mut raw, "1");
    let mut newcomer = server.raw();
    for client in [&mut raw, &mut other, &mut newcomer] {
        assert_eq!(client.command(&["SET", "k", "v"]), Value::error(OOM));
        assert_eq!(client.command(&["RESET"]), Value::status("RESET"));
        assert_eq!(client.command(&["LPUSH", "list", "c"]), Value::error(OOM));
        assert_eq!(client.command(&["GET", "k"]), Value::Null);
        assert_eq!(client.command(&["DEL", "k"]), Value::Integer(0));
    }
    assert_eq!(raw.command(&["LPOP", "list"]), Value::bulk("a"));
    // CLIENT REPLY counts the same commands.
    raw.send_command(&["CLIENT", "REPLY", "SKIP"]);
    raw.send_command(&["SET", "k", "v"]);
    assert_eq!(raw.command(&["LLEN", "list"]), Value::Integer(1));
    limit(&mut raw, "0");
    assert_eq!(other.command(&["SET", "k", "v"]), Value::status("OK"));
}

fn transactions_are_refused(program: Program) {
    let server = Server::start(program, &[]);
    let (mut raw, mut other) = (server.raw(), server.raw());
    // Queued before memory was full: EXEC looks at what it would run.
    raw.command(&["MULTI"]);
    raw.command(&["SET", "k", "v"]);
    limit(&mut other, "1");
    let aborted = Value::error(&format!("EXECABORT Transaction discarded because of: {OOM}"));
    assert_eq!(raw.command(&["EXEC"]), aborted);
    assert_eq!(raw.command(&["GET", "k"]), Value::Null);
    limit(&mut other, "0");
    raw.command(&["MULTI"]);
    raw.command(&["GET", "k"]);
    limit(&mut other, "1");
    assert_eq!(raw.command(&["EXEC"]), Value::Array(vec![Value::Null]));
    // Queued since: nothing is.
    assert_eq!(raw.command(&["MULTI"]), Value::status("OK"));
    assert_eq!(raw.command(&["GET", "k"]), Value::error(OOM));
    let broken = Value::error("EXECABORT Transaction discarded because of previous errors.");
    assert_eq!(raw.command(&["EXEC"]), broken);
    assert_eq!(raw.command(&["MULTI"]), Value::status("OK"));
    assert_eq!(raw.command(&["DISCARD"]), Value::status("OK"));
}

fn scripts_are_refused(program: Program) {
    let server = Server::start(program, &[]);
    let (mut raw, mut other) = (server.raw(), server.raw());
    raw.command(&["SET", "old", "v"]);
    let library = "#!lua name=l\nredis.register_function('f', function() return 1 end)\n\
                   redis.register_function{function_name='g', callback=function() return 2 end, flags={'no-writes'}}";
    assert_eq!(raw.command(&["FUNCTION", "LOAD", library]), Value::bulk("l"));
    raw.command(&["MULTI"]);
    raw.command(&["EVAL", "#!lua\nreturn 1", "0"]);
    limit(&mut other, "1");
    // Redis refuses the whole transaction.
    let script = "OOM allow-oom flag is not set on the script, can not run it when used memory > 'maxmemory'";
    let expected = match program {
        Program::Tidegate => Value::Array(vec![Value::error(script)]),
        Program::Redis => Value::error(&format!("EXECABORT Transaction discarded because of: {OOM}")),
    };
    assert_eq!(raw.command(&["EXEC"]), expected);
    let mut eval = |script: &str| raw.command(&["EVAL", script, "0"]);
    let Value::Error(text) = eval("return redis.call('set', 'k', 'v')") else { panic!("no error") };
    assert!(text.starts_with(OOM.as_bytes()), "{}", text.escape_ascii());
    assert_eq!(eval("return redis.pcall('set', 'k', 'v').err"), Value::bulk(OOM));
    assert_eq!(eval("return redis.call('get', 'k')"), Value::Null);
    // Who has written goes on: nothing must be left half done.
    assert_eq!(
        eval("redis.call('del', 'old') redis.call('set', 'k', 'v') return redis.call('get', 'k')"),
        Value::bulk("v")
    );
    assert_eq!(eval("#!lua\nreturn 1"), Value::error(OOM));
    assert_eq!(eval("#!lua flags=no-writes\nreturn 1"), Value::Integer(1));
    assert_eq!(eval("#!lua flags=allow-oom\nreturn redis.call('set', 'k', 'w')"), Value::status("OK"));
    assert_eq!(raw.command(&["FCALL", "f", "0"]), Value::error(OOM));
    assert_eq!(raw.command(&["FCALL", "g", "0"]), Value::Integer(2));
    assert_eq!(raw.command(&["FUNCTION", "LOAD", "REPLACE", library]), Value::error(OOM));
}

fn the_limit_holds_and_is_lifted(program: Program) {
    const MIB: u64 = 1 << 20;
    let server = Server::start(program, &[]);
    let mut raw = server.raw();
    let info = raw.command(&["INFO", "memory"]);
    let info = String::from_utf8_lossy(info.bytes().expect("text")).into_owned();
    let used = info.lines().find_map(|line| line.strip_prefix("used_memory:")).expect("INFO tells").to_owned();
    let used: u64 = used.parse().expect("a number");
    limit(&mut raw, &(used + 40 * MIB).to_string());
    let mebibyte = "x".repeat(MIB as usize);
    let stored =
        (0..100).take_while(|i| raw.command(&["SET", &i.to_string(), &mebibyte]) == Value::status("OK")).count();
    assert!((25..=60).contains(&stored), "{stored} MiB fit below a limit of 40");
    assert_eq!(raw.command(&["FLUSHALL"]), Value::status("OK"));
    assert_eq!(raw.command(&["SET", "k", "v"]), Value::status("OK"));
}
