//! Commands, transactions and scripts when memory is full. The same tests run against Redis.

use crate::crowd::on_both;
use crate::harness::{Program, Raw, Server, Value, encode, until};

const OOM: &str = "OOM command not allowed when used memory > 'maxmemory'.";

on_both!(
    commands_are_refused_when_memory_is_full,
    transactions_are_refused_when_memory_is_full,
    scripts_are_refused_when_memory_is_full,
    the_limit_holds_until_it_is_raised,
    garbage_of_scripts_is_collected_before_commands_are_refused,
);

fn limit(raw: &mut Raw, bytes: &str) {
    assert_eq!(raw.command(&["CONFIG", "SET", "maxmemory", bytes]), Value::status("OK"));
}

fn commands_are_refused_when_memory_is_full(program: Program) {
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
    // CLIENT REPLY counts these commands as well.
    raw.send_command(&["CLIENT", "REPLY", "SKIP"]);
    raw.send_command(&["SET", "k", "v"]);
    assert_eq!(raw.command(&["LLEN", "list"]), Value::Integer(1));
    limit(&mut raw, "0");
    assert_eq!(other.command(&["SET", "k", "v"]), Value::status("OK"));
}

fn transactions_are_refused_when_memory_is_full(program: Program) {
    let server = Server::start(program, &[]);
    let (mut raw, mut other) = (server.raw(), server.raw());
    // Queued before memory was full: EXEC checks the commands that it would run.
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
    // While memory is full no command that may need memory is queued, and in 7.0 no command at all.
    assert_eq!(raw.command(&["MULTI"]), Value::status("OK"));
    let queued = if program == Program::Redis { Value::error(OOM) } else { Value::status("QUEUED") };
    assert_eq!(raw.command(&["GET", "k"]), queued);
    assert_eq!(raw.command(&["SET", "k", "v"]), Value::error(OOM));
    let broken = Value::error("EXECABORT Transaction discarded because of previous errors.");
    assert_eq!(raw.command(&["EXEC"]), broken);
    assert_eq!(raw.command(&["MULTI"]), Value::status("OK"));
    assert_eq!(raw.command(&["DISCARD"]), Value::status("OK"));
}

fn scripts_are_refused_when_memory_is_full(program: Program) {
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
        Program::Redis | Program::Redis8 | Program::Valkey => {
            Value::error(&format!("EXECABORT Transaction discarded because of: {OOM}"))
        }
    };
    assert_eq!(raw.command(&["EXEC"]), expected);
    let mut eval = |script: &str| raw.command(&["EVAL", script, "0"]);
    let Value::Error(text) = eval("return redis.call('set', 'k', 'v')") else { panic!("no error") };
    assert!(text.starts_with(OOM.as_bytes()), "{}", text.escape_ascii());
    assert_eq!(eval("return redis.pcall('set', 'k', 'v').err"), Value::bulk(OOM));
    assert_eq!(eval("return redis.call('get', 'k')"), Value::Null);
    // A script that has written goes on, since it must not be left half done.
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

const MIB: u64 = 1 << 20;

fn used_memory(raw: &mut Raw) -> u64 {
    let info = raw.command(&["INFO", "memory"]);
    let info = String::from_utf8_lossy(info.bytes().expect("text")).into_owned();
    let used = info.lines().find_map(|line| line.strip_prefix("used_memory:")).expect("INFO tells").to_owned();
    used.parse().expect("a number")
}

/// Garbage of a script is collected before a command is refused for lack of memory. If no command needs the memory, it
/// is collected a little later.
fn garbage_of_scripts_is_collected_before_commands_are_refused(program: Program) {
    if program == Program::Redis8 {
        // It refuses the command, and collects the garbage later.
        return;
    }
    let server = Server::start(program, &[]);
    let mut raw = server.raw();
    let used = used_memory(&mut raw);
    limit(&mut raw, &(used + 40 * MIB).to_string());
    for script in [
        "return #('x'):rep(1e8)",
        "local t = {} for i = 1, 1e6 do t[i] = {} end return 100000000",
        "local t = {} for i = 1, 5e5 do t[i] = 'string ' .. i end return 100000000",
    ] {
        assert_eq!(raw.command(&["EVAL", script, "0"]), Value::Integer(100_000_000));
        assert_eq!(raw.command(&["SET", "k", "v"]), Value::status("OK"), "after {script}");
        assert_eq!(raw.command(&["EVAL", script, "0"]), Value::Integer(100_000_000));
        if program == Program::Tidegate {
            until(|| used_memory(&mut raw) < used + 3 * MIB, "the garbage is collected");
        }
    }
}

fn the_limit_holds_until_it_is_raised(program: Program) {
    let server = Server::start(program, &[]);
    let mut raw = server.raw();
    let used = used_memory(&mut raw);
    limit(&mut raw, &(used + 40 * MIB).to_string());
    let mebibyte = "x".repeat(MIB as usize);
    let stored =
        (0..100).take_while(|i| raw.command(&["SET", &i.to_string(), &mebibyte]) == Value::status("OK")).count();
    assert!((25..=60).contains(&stored), "{stored} MiB fit below a limit of 40");
    assert_eq!(raw.command(&["FLUSHALL"]), Value::status("OK"));
    assert_eq!(raw.command(&["SET", "k", "v"]), Value::status("OK"));
}

/// Returns how many values of 1 kB fit below the limit, under new keys.
fn fitting(raw: &mut Raw, prefix: &str) -> usize {
    let value = "x".repeat(1_000);
    let mut stored = 0;
    loop {
        let batch: Vec<[String; 3]> =
            (0..500).map(|i| ["SET".into(), format!("{prefix}{}", stored + i), value.clone()]).collect();
        let refused = send_all(raw, &batch);
        stored += batch.len() - refused;
        if refused > 0 {
            return stored;
        }
    }
}

/// Sends the commands as one pipeline; returns how many were refused.
fn send_all(raw: &mut Raw, commands: &[[String; 3]]) -> usize {
    let request: Vec<u8> = commands.iter().flat_map(|words| encode(words)).collect();
    raw.send(&request);
    commands.iter().filter(|_| raw.reply().value == Value::error(OOM)).count()
}

/// Adds small keys until memory is full; returns how many.
fn fill_with_small_keys(raw: &mut Raw) -> usize {
    let mut stored = 0;
    loop {
        let batch: Vec<[String; 3]> =
            (0..1_000).map(|i| ["SET".into(), format!("small:{}", stored + i), "1".into()]).collect();
        if send_all(raw, &batch) > 0 {
            return stored;
        }
        stored += batch.len();
    }
}

/// Ways to remove many small keys.
type Way<'a> = &'a dyn Fn(&mut Raw, usize);

/// Memory freed by small keys can be used for large values, however the keys were removed.
#[test]
fn memory_freed_by_small_keys_serves_large_values() {
    let fits_after = |go: Way<'_>| {
        let server = Server::start(Program::Tidegate, &["--maxmemory", "24mb", "--enable-debug-command", "yes"]);
        let mut raw = server.raw();
        let keys = fill_with_small_keys(&mut raw);
        go(&mut raw, keys);
        fitting(&mut raw, "large:")
    };
    let fresh = {
        let server = Server::start(Program::Tidegate, &["--maxmemory", "24mb"]);
        fitting(&mut server.raw(), "large:")
    };
    assert!(fresh > 10_000, "{fresh} values fit into a fresh server");
    let delete = |raw: &mut Raw, which: &mut dyn Iterator<Item = usize>| {
        let keys: Vec<String> = which.map(|i| format!("small:{i}")).collect();
        for keys in keys.chunks(1_000) {
            let mut words = vec!["DEL"];
            words.extend(keys.iter().map(String::as_str));
            assert_eq!(raw.command(&words), Value::Integer(keys.len() as i64));
        }
    };
    let ways: [(&str, Way<'_>); 4] = [
        ("DEL", &|raw, keys| delete(raw, &mut (0..keys))),
        ("DEL of all but some", &|raw, keys| delete(raw, &mut (0..keys).filter(|i| i % 500 != 0))),
        ("FLUSHALL", &|raw, _| assert_eq!(raw.command(&["FLUSHALL", "SYNC"]), Value::status("OK"))),
        ("a script", &|raw, _| {
            let script = "local n = 0 repeat local keys = redis.call('SCAN', '0', 'COUNT', 1000)[2] \
                          for _, key in ipairs(keys) do n = n + redis.call('DEL', key) end until #keys == 0 return n";
            assert!(matches!(raw.command(&["EVAL", script, "0"]), Value::Integer(_)));
        }),
    ];
    for (name, go) in ways {
        let fits = fits_after(go);
        assert!(fits * 20 >= fresh * 19, "after {name} {fits} values fit, and {fresh} into a fresh server");
    }
}
