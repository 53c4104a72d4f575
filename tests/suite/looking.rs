//! SCRIPT LIST, SHOW, STATS, SLOW, LINT and TRACE: the server's information about its scripts and functions.

use std::collections::BTreeMap;
use std::path::Path;

use crate::harness::{Program, Raw, Server, Value, sorted, until};

/// The fields of a map, in either protocol's form.
fn fields(value: &Value) -> BTreeMap<String, &Value> {
    match value {
        Value::Map(pairs) => pairs.iter().map(|(name, value)| (text(name), value)).collect(),
        _ => items(value).chunks_exact(2).map(|pair| (text(&pair[0]), &pair[1])).collect(),
    }
}

fn items(value: &Value) -> &[Value] {
    match value {
        Value::Array(items) | Value::Set(items) => items,
        other => panic!("no list: {other:?}"),
    }
}

fn text(value: &Value) -> String {
    String::from_utf8_lossy(value.bytes().unwrap_or_else(|| panic!("no text: {value:?}"))).into_owned()
}

fn number(value: &Value) -> f64 {
    match value {
        Value::Integer(number) => *number as f64,
        Value::Double(number) => *number,
        other => text(other).parse().unwrap_or_else(|_| panic!("no number: {other:?}")),
    }
}

/// The row of SCRIPT LIST with this name and origin.
fn row<'v>(list: &'v Value, name: &str, origin: &str) -> BTreeMap<String, &'v Value> {
    let rows = items(list).iter().map(fields);
    let mut rows = rows.filter(|row| text(row["name"]) == name && text(row["origin"]) == origin);
    rows.next().unwrap_or_else(|| panic!("{name} is not listed as {origin}"))
}

fn connect(server: &Server, resp3: bool) -> Raw {
    let mut raw = server.raw();
    if resp3 {
        raw.hello3();
    }
    raw
}

#[test]
fn calls_are_counted_by_script_and_function() {
    for resp3 in [false, true] {
        let server = Server::start(Program::Tidegate, &[]);
        let mut raw = connect(&server, resp3);
        let body = "if ARGV[1] == 'fail' then return redis.call('INCR') end return 1";
        let sha = text(&raw.command(&["SCRIPT", "LOAD", body]));
        let library = "#!lua name=mine\nredis.register_function{function_name='one', callback=function() return 1 end, \
                       description='answers one', flags={'no-writes'}}";
        raw.command(&["FUNCTION", "LOAD", library]);
        raw.command(&["EVALSHA", &sha, "0"]);
        raw.command(&["EVALSHA", &sha, "0", "fail"]);
        raw.command(&["EVAL", body, "0"]);
        raw.command(&["EVAL", "return 2", "0"]);
        raw.command(&["FCALL", "one", "0"]);
        let list = raw.command(&["SCRIPT", "LIST"]);
        let mine = row(&list, &sha, "loaded");
        assert_eq!(
            (text(mine["sha1"]), mine["calls"], mine["errors"]),
            (sha.clone(), &Value::Integer(3), &Value::Integer(1))
        );
        assert_eq!(mine["library"], &Value::Null);
        let times = ["p50_us", "p99_us", "max_us"].map(|name| number(mine[name]));
        assert!(0.0 < times[0] && times[0] <= times[1] && times[1] <= times[2], "{times:?}");
        assert!(number(mine["last_call_ms"]) > 1.6e12, "it is Unix time");
        let function = row(&list, "one", "function");
        assert_eq!((text(function["library"]), function["calls"]), ("mine".to_owned(), &Value::Integer(1)));
        assert_eq!(function["sha1"], &Value::Null);
        let unused = row(&list, "gate_acquire", "bundled");
        assert_eq!((unused["calls"], unused["last_call_ms"]), (&Value::Integer(0), &Value::Null));
        assert_eq!(number(unused["p99_us"]), 0.0);

        let stats = raw.command(&["SCRIPT", "STATS"]);
        let stats = fields(&stats);
        let of = |name: &str| number(stats[name]) as u64;
        assert_eq!([of("scripts_loaded"), of("scripts_eval"), of("functions"), of("libraries")], [1, 1, 1, 1]);
        assert_eq!(of("scripts"), of("scripts_bundled") + 2);
        assert_eq!([of("calls"), of("errors"), of("rollbacks"), of("kills"), of("scripts_evicted")], [5, 1, 1, 0, 0]);
        assert!(of("lua_bytes") > 10_000 && of("scripts_bytes") > body.len() as u64);
        assert_eq!((of("libraries_bytes"), stats["running_script"]), (library.len() as u64, &Value::Null));

        // A script that was dropped and comes back starts from zero.
        raw.command(&["SCRIPT", "FLUSH"]);
        raw.command(&["SCRIPT", "LOAD", body]);
        assert_eq!(row(&raw.command(&["SCRIPT", "LIST"]), &sha, "loaded")["calls"], &Value::Integer(0));
        raw.command(&["EVALSHA", &sha, "0"]);
        assert_eq!(raw.command(&["CONFIG", "RESETSTAT"]), Value::status("OK"));
        assert_eq!(row(&raw.command(&["SCRIPT", "LIST"]), &sha, "loaded")["calls"], &Value::Integer(0));
        assert_eq!(fields(&raw.command(&["SCRIPT", "STATS"]))["calls"], &Value::Integer(0));
    }
}

#[test]
fn texts_of_scripts_are_shown() {
    for resp3 in [false, true] {
        let server = Server::start(Program::Tidegate, &[]);
        let mut raw = connect(&server, resp3);
        let body = "#!lua flags=no-writes,allow-stale\nreturn 'a\\0b'";
        let sha = text(&raw.command(&["SCRIPT", "LOAD", body]));
        let library = "#!lua name=mine\nredis.register_function('one', function() return 1 end)";
        raw.command(&["FUNCTION", "LOAD", library]);
        for (name, origin, wanted) in [
            (sha.to_uppercase(), "loaded", body.to_owned()),
            ("One".to_owned(), "function", library.to_owned()),
            ("funnel".to_owned(), "bundled", lua("funnel")),
        ] {
            let shown = raw.command(&["SCRIPT", "SHOW", &name]);
            let shown = fields(&shown);
            assert_eq!((text(shown["body"]), text(shown["origin"])), (wanted.clone(), origin.to_owned()), "{name}");
            assert_eq!(shown["bytes"], &Value::Integer(wanted.len() as i64));
        }
        let shown = raw.command(&["SCRIPT", "SHOW", &sha]);
        let flags: Vec<Value> = ["allow-stale", "no-writes"].map(Value::status).into();
        assert_eq!(sorted(items(fields(&shown)["flags"]).to_vec()), flags);
        let gone = Value::error("NOSCRIPT No script or function with this name.");
        assert_eq!(raw.command(&["SCRIPT", "SHOW", "nosuch"]), gone);
        assert_eq!(raw.command(&["SCRIPT", "SHOW", &"0".repeat(40)]), gone);
    }
}

#[test]
fn the_slowest_calls_are_kept_with_their_commands() {
    for resp3 in [false, true] {
        let server = Server::start(Program::Tidegate, &["--script-slow-threshold", "0", "--script-slow-max-len", "2"]);
        let mut raw = connect(&server, resp3);
        raw.command(&["CLIENT", "SETNAME", "me"]);
        let body = "redis.call('SET', KEYS[1], ARGV[1]); return redis.call('GET', KEYS[1])";
        let value = "v".repeat(200);
        raw.command(&["EVAL", body, "1", "k", &value]);
        let calls = raw.command(&["SCRIPT", "SLOW"]);
        let call = fields(&items(&calls)[0]);
        let arguments = |value: &Value| items(value).iter().map(text).collect::<Vec<_>>();
        let long = format!("{}... (72 more bytes)", "v".repeat(128));
        assert_eq!(arguments(call["command"]), ["EVAL", body, "1", "k", &long]);
        assert_eq!((text(call["client_name"]), call["trail_omitted"]), ("me".to_owned(), &Value::Integer(0)));
        assert!(text(call["client_address"]).starts_with("127.0.0.1:"));
        let steps: Vec<_> = items(call["trail"]).iter().map(fields).collect();
        let long = format!("{}... (136 more bytes)", "v".repeat(64));
        assert_eq!(arguments(steps[0]["command"]), ["SET", "k", &long]);
        assert_eq!(arguments(steps[1]["command"]), ["GET", "k"]);
        let ends = |step: &BTreeMap<String, &Value>| number(step["at_us"]) + number(step["took_us"]);
        assert!(ends(&steps[0]) <= number(steps[1]["at_us"]) + 1.0, "{steps:?}");
        assert!(ends(&steps[1]) <= number(call["duration_us"]) + 1.0);

        // More than there is room for: the slowest calls stay, sorted.
        for rounds in ["10", "20000000", "1000", "100"] {
            raw.command(&["EVAL", "for i = 1, tonumber(ARGV[1]) do local x = i * i end", "0", rounds]);
        }
        assert_eq!(raw.command(&["SCRIPT", "SLOW", "LEN"]), Value::Integer(2));
        let calls = raw.command(&["SCRIPT", "SLOW", "GET", "-1"]);
        let durations: Vec<f64> = items(&calls).iter().map(|call| number(fields(call)["duration_us"])).collect();
        assert!(durations[0] >= durations[1], "{durations:?}");
        assert_eq!(items(fields(&items(&calls)[0])["command"]).last(), Some(&Value::bulk("20000000")));
        assert_eq!(items(&raw.command(&["SCRIPT", "SLOW", "GET", "1"])).len(), 1);
        assert_eq!(raw.command(&["SCRIPT", "SLOW", "RESET"]), Value::status("OK"));
        assert_eq!(raw.command(&["SCRIPT", "SLOW", "LEN"]), Value::Integer(0));

        // Off, and on again.
        for (parameter, value, kept) in
            [("script-slow-threshold", "-1", 0), ("script-slow-threshold", "0", 1), ("script-slow-max-len", "0", 0)]
        {
            assert_eq!(raw.command(&["CONFIG", "SET", parameter, value]), Value::status("OK"));
            raw.command(&["EVAL", body, "1", "k", "v"]);
            assert_eq!(raw.command(&["SCRIPT", "SLOW", "LEN"]), Value::Integer(kept), "{parameter} {value}");
        }
        for bad in [["GET", "-2"], ["GET", "x"]] {
            let refused = Value::error("ERR count should be greater than or equal to -1");
            assert_eq!(raw.command(&[&["SCRIPT", "SLOW"], &bad[..]].concat()), refused);
        }
        for bad in [&["LEN", "1"][..], &["GETS"], &["GET", "1", "2"]] {
            assert_eq!(raw.command(&[&["SCRIPT", "SLOW"], bad].concat()), Value::error("ERR syntax error"));
        }
    }
}

/// A bundled script's text.
fn lua(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("lua").join(format!("{name}.lua"));
    std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// User text in the form of the server's own lines is not taken for one.
#[test]
fn user_text_cannot_pass_for_a_log_line() {
    let (server, mut raw) = Server::with_client(Program::Tidegate);
    raw.command(&["EVAL", "redis.log(redis.LOG_WARNING, 'said\\n2026 WARN forged\\r\\27[31mred')", "0"]);
    until(|| server.log().contains("said"), "the call is logged");
    assert!(server.log().contains("said 2026 WARN forged  [31mred\n"), "{}", server.log());
}

/// The rules that a script breaks, each after its line number.
fn linted(raw: &mut Raw, script: &str) -> Vec<String> {
    let reply = raw.command(&["SCRIPT", "LINT", script]);
    let warnings = items(&reply).iter().map(fields);
    warnings.map(|warning| format!("{}:{}", number(warning["line"]), text(warning["rule"]))).collect()
}

#[test]
fn bundled_scripts_are_clean() {
    // The loops that release lapsed leases: they have as many rounds as there are lapsed leases.
    let explained = BTreeMap::from([("gate_acquire", "write-after-loop")]);
    let server = Server::start(Program::Tidegate, &[]);
    let mut raw = server.raw();
    let list = raw.command(&["SCRIPT", "LIST"]);
    let bundled: Vec<String> = items(&list).iter().map(fields).map(|row| text(row["name"])).collect();
    assert!(bundled.len() >= 15, "{bundled:?}");
    for name in bundled {
        let found = linted(&mut raw, &name);
        let rules: Vec<&str> = found.iter().map(|warning| warning.split_once(':').expect("a line").1).collect();
        assert_eq!(rules, Vec::from_iter(explained.get(&*name).copied()), "{name}: {found:?}");
    }
}

#[test]
fn lint_finds_common_traps() {
    let server = Server::start(Program::Tidegate, &[]);
    let mut raw = connect(&server, true);
    // A flash sale that builds its keys from ARGV.
    let sale = "local stockKey = 'seckill:stock:' .. ARGV[1]\nlocal orderKey = 'seckill:order:' .. ARGV[1]\n\
                if (redis.call('sismember', orderKey, ARGV[2]) == 1) then\nreturn 2\nend\n\
                redis.call('incrby', stockKey, -1)\nredis.call('sadd', orderKey, ARGV[2])\n\
                redis.call('xadd', 'stream.orders', '*', 'userId', ARGV[2])\nreturn 0";
    let wanted = ["3:computed-key", "6:computed-key", "7:computed-key", "8:undeclared-key"];
    assert_eq!(linted(&mut raw, sale), wanted);
    // A daily limit that gets its arguments as KEYS, by which a cluster routes.
    let limit = "local key = KEYS[1]\nlocal seconds = tonumber(KEYS[2])\nlocal limit = tonumber(KEYS[3])\n\
                 local val = redis.call('INCRBY', key, 1)\nif val == 1 then\nredis.call('EXPIRE', key, seconds)\nend\n\
                 return val > limit and '1' or '0'";
    assert_eq!(linted(&mut raw, limit), ["2:key-as-argument", "3:key-as-argument"]);
    let proper = limit.replace("KEYS[2]", "ARGV[1]").replace("KEYS[3]", "ARGV[2]");
    assert_eq!(linted(&mut raw, &proper), [""; 0]);
    let sweep = "for _, key in ipairs(redis.call('KEYS', 'a*')) do\nredis.call('DEL', key)\nend\nx = 1";
    assert_eq!(linted(&mut raw, sweep), ["1:write-after-loop", "1:whole-keyspace", "2:computed-key", "4:global"]);
    // A script is named directly, and a library by one of its functions.
    let sha = text(&raw.command(&["SCRIPT", "LOAD", sale]));
    assert_eq!(linted(&mut raw, &sha), wanted);
    let library =
        "#!lua name=mine\nredis.register_function('f', function(keys, args)\nreturn redis.call('GET', args[1])\nend)";
    raw.command(&["FUNCTION", "LOAD", library]);
    assert_eq!(linted(&mut raw, "F"), ["3:argv-as-key"]);
    let warning = raw.command(&["SCRIPT", "LINT", "return redis.call('GET', 'a')"]);
    let message = text(fields(&items(&warning)[0])["message"]);
    assert_eq!(message, "the key 'a' of GET is not declared: pass it in KEYS");
    for (script, error) in [
        ("return (", "ERR Error compiling script (new function): user_script:1: unexpected symbol near '<eof>'"),
        (&"0".repeat(40), "NOSCRIPT No script or function with this name."),
        (&" ".repeat((1 << 20) + 1), "ERR LINT examines scripts of at most 1048576 bytes"),
    ] {
        assert_eq!(raw.command(&["SCRIPT", "LINT", script]), Value::error(error));
    }
}

#[test]
fn a_traced_call_leaves_nothing_unless_it_is_committed() {
    for (resp3, rollback) in [(false, "yes"), (true, "no")] {
        let server = Server::start(Program::Tidegate, &["--script-rollback", rollback]);
        let (mut raw, mut listener) = (connect(&server, resp3), server.raw());
        listener.command(&["SUBSCRIBE", "news"]);
        raw.command(&["SET", "k", "1"]);
        let body = "redis.call('INCR', KEYS[1]) redis.call('HSET', KEYS[2], 'f', ARGV[1], 'g', 'w')\n\
                    redis.call('PUBLISH', 'news', 'traced') return redis.pcall('LPUSH', KEYS[1], 'x')";
        let call = [body, "2", "k", "h", "v"];
        let traced = raw.command(&[&["SCRIPT", "TRACE"], &call[..]].concat());
        let traced = fields(&traced);
        let wrong = Value::error("WRONGTYPE Operation against a key holding the wrong kind of value");
        assert_eq!(traced["reply"], &wrong);
        let is_true = |value: &Value| matches!(value, Value::Boolean(true) | Value::Integer(1));
        assert!(is_true(traced["rolled_back"]), "{rollback}");
        let commands: Vec<_> = items(traced["commands"]).iter().map(fields).collect();
        let called = commands.iter().map(|step| items(step["command"]).iter().map(text).collect::<Vec<_>>().join(" "));
        assert_eq!(called.collect::<Vec<_>>(), ["INCR k", "HSET h f v g w", "PUBLISH news traced", "LPUSH k x"]);
        let replies: Vec<&Value> = commands.iter().map(|step| step["reply"]).collect();
        assert_eq!(replies, [&Value::Integer(2), &Value::Integer(2), &Value::Integer(1), &wrong]);
        assert!(commands.iter().all(|step| number(step["took_us"]) <= number(traced["took_us"]) + 1.0));
        let effects: Vec<Vec<String>> =
            commands.iter().map(|step| items(step["effects"]).iter().map(effect).collect()).collect();
        assert_eq!(
            effects,
            [
                vec!["SetInteger 0 key=k value=2"],
                vec!["HashSet 0 field=f key=h value=v", "HashSet 0 field=g key=h value=w"],
                vec![],
                vec![]
            ]
        );
        assert_eq!(raw.command(&["MGET", "k", "h"]), Value::Array(vec![Value::bulk("1"), Value::Null]));
        let listed = raw.command(&["SCRIPT", "LIST"]);
        assert!(
            items(&listed).iter().all(|row| text(fields(row)["origin"]) != "eval"),
            "the traced script is not kept"
        );

        let committed = raw.command(&[&["SCRIPT", "TRACE", "COMMIT"], &call[..]].concat());
        let committed = fields(&committed);
        assert!(!is_true(committed["rolled_back"]));
        assert_eq!(items(committed["commands"]).len(), 4);
        assert_eq!(raw.command(&["GET", "k"]), Value::bulk("2"));
        assert_eq!(raw.command(&["HGET", "h", "f"]), Value::bulk("v"));
        // The first message that arrives is the committed call's only one.
        raw.command(&["PUBLISH", "news", "after"]);
        let heard = [listener.reply().value, listener.reply().value].map(|message| text(&items(&message)[2]));
        assert_eq!(heard, ["traced", "after"]);
    }
}

/// An effect in one line: its name, its database, its fields sorted by name.
fn effect(value: &Value) -> String {
    let mut fields = fields(value);
    let head = ["effect", "db"].map(|name| shown(fields.remove(name).expect("every effect has it")));
    let fields = fields.iter().map(|(name, value)| format!("{name}={}", shown(value)));
    head.into_iter().chain(fields).collect::<Vec<_>>().join(" ")
}

fn shown(value: &Value) -> String {
    value.bytes().map_or_else(|| format!("{value:?}"), |_| text(value))
}

#[test]
fn traces_explain_refusals() {
    let server = Server::start(Program::Tidegate, &[]);
    let mut raw = server.raw();
    let call = ["gate_acquire", "1", "gate:devices", "1"];
    let mut trace = |words: &[&str]| raw.command(&[&["SCRIPT", "TRACE"], words].concat());
    assert_eq!(fields(&trace(&[&["COMMIT"], &call[..]].concat()))["reply"], &Value::Integer(1));
    let refused = trace(&call);
    let refused = fields(&refused);
    let commands: Vec<String> =
        items(refused["commands"]).iter().map(|step| shown(&items(fields(step)["command"])[0])).collect();
    assert_eq!(
        (refused["reply"], &commands[..]),
        (&Value::Integer(2), &["TIME", "LLEN", "LINDEX"].map(String::from)[..])
    );
    // A stream's entries, a refused command, a failed script, a missing one.
    let entry = trace(&["return redis.call('XADD', KEYS[1], '1-1', 'f', 'v')", "1", "s"]);
    let step = fields(&items(fields(&entry)["commands"])[0]);
    assert_eq!(effect(&items(step["effects"])[0]), "StreamAppend 0 id=1-1 key=s pairs=[\"f\", \"v\"]");
    let failed = trace(&["redis.call('SET', KEYS[1], 1) redis.call('EVAL', 'return 1', 0)", "1", "k"]);
    let failed = fields(&failed);
    let refusal = Value::error("ERR This Redis command is not allowed from script");
    assert_eq!(fields(&items(failed["commands"])[1])["reply"], &refusal);
    assert!(matches!(failed["reply"], Value::Error(_)));
    let missing = Value::error("NOSCRIPT No script or function with this name.");
    assert_eq!(trace(&[&"0".repeat(40), "0"]), missing);
    assert_eq!(trace(&["return 1", "1"]), Value::error("ERR Number of keys can't be greater than number of args"));
    let broken = trace(&["return (", "0"]);
    assert!(matches!(&broken, Value::Error(text) if text.starts_with(b"ERR Error compiling script")), "{broken:?}");
    assert_eq!(raw.command(&["DBSIZE"]), Value::Integer(1), "only the committed changes are there");
    let library = "#!lua name=mine\n\
                   redis.register_function('put', function(keys, args) return redis.call('SET', keys[1], args[1]) end)";
    raw.command(&["FUNCTION", "LOAD", library]);
    let put = raw.command(&["SCRIPT", "TRACE", "put", "1", "k", "v"]);
    let step = fields(&items(fields(&put)["commands"])[0]);
    assert_eq!(effect(&items(step["effects"])[0]), "Put 0 key=k value=v");
    let stats = raw.command(&["SCRIPT", "STATS"]);
    for counter in ["calls", "errors", "rollbacks"] {
        assert_eq!(fields(&stats)[counter], &Value::Integer(0), "{counter}: traces are not counted");
    }
    // A watching client sees the committed changes and no others.
    let mut other = server.raw();
    for (commit, fails) in [(&[][..], false), (&["COMMIT"], true)] {
        other.command(&["WATCH", "k"]);
        raw.command(&[&["SCRIPT", "TRACE"], commit, &["put", "1", "k", "w"]].concat());
        other.command(&["MULTI"]);
        assert_eq!(other.command(&["EXEC"]) == Value::Null, fails, "{commit:?}");
    }
    raw.command(&["MULTI"]);
    assert!(matches!(raw.command(&["SCRIPT", "TRACE", "return 1", "0"]), Value::Error(_)));
}
