//! The debugger of scripts: the protocol of redis-cli's `--ldb`, against this server and against redis-server.
//!
//! A session is a transcript: the client's input follows `> `, and all other lines are output. `...` at the end of a
//! line matches anything. Lines that begin with `*` or `+` are replies that are not a screen of the debugger.

use std::io::Write;
use std::process::{Command, Stdio};

use crate::crowd::on_both;
use crate::harness::{Program, Raw, Server, Value};
use crate::oracle::REDIS_CLI;

on_both!(
    steps_show_lines_variables_and_commands,
    breakpoints_stop_and_can_be_removed,
    functions_are_traced_and_scripts_can_set_breakpoints,
    listings_and_replies_are_bounded,
    the_client_can_evaluate_code_and_run_commands,
    replies_are_shown_in_resp3,
    errors_end_the_session,
    calls_that_cannot_start_a_session_are_refused_or_run_normally,
    sync_keeps_changes,
    rollback_drops_changes,
    redis_cli_debugs_a_file,
);

/// Runs a session against a fresh server, with one key `k` and one argument `a`, and compares the output.
fn transcript(program: Program, script: &str, session: &str) {
    let server = Server::start(program, &[]);
    let mut raw = server.raw();
    assert_eq!(raw.command(&["SCRIPT", "DEBUG", "YES"]), Value::status("OK"));
    let mut seen = see(&mut raw, &["EVAL", script, "1", "k", "a"]);
    for line in session.lines().filter_map(|line| line.trim_start().strip_prefix("> ")) {
        seen.push(format!("> {line}"));
        seen.extend(see(&mut raw, &line.split(' ').collect::<Vec<_>>()));
    }
    let wanted: Vec<&str> = session
        .lines()
        .map(|line| line.strip_prefix("        ").unwrap_or(line))
        .filter(|line| !line.is_empty())
        .collect();
    let fits = |(wanted, seen): (&&str, &String)| match wanted.strip_suffix("...") {
        Some(start) => seen.starts_with(start),
        None => wanted == seen,
    };
    let all_fit = wanted.len() == seen.len() && wanted.iter().zip(&seen).all(fits);
    assert!(all_fit, "{program:?} shows:\n{}", seen.join("\n"));
}

/// Sends a command and returns the output; at the end of the session also the script's reply, after which the server
/// must hang up.
fn see(raw: &mut Raw, command: &[&str]) -> Vec<String> {
    let Value::Array(lines) = raw.command(command) else { panic!("{command:?} answers no screen") };
    let mut shown: Vec<String> = lines
        .iter()
        .map(|line| match line {
            Value::Status(text) => String::from_utf8(text.clone()).expect("lines of text"),
            other => panic!("{command:?} shows {other:?}"),
        })
        .collect();
    if shown.last().is_some_and(|line| line == "<endsession>") {
        shown.push(format!("{:?}", raw.reply().value));
        assert_eq!(raw.read_to_end(), b"");
    }
    shown
}

fn steps_show_lines_variables_and_commands(program: Program) {
    let script = "local key = KEYS[1]
local n = 0
for i = 1, 2 do
  n = n + i
  redis.call('SET', key, n)
end
local t = {1, 2}
local u = {a = {true, 'x\\n\"y'}}
return redis.call('GET', key)";
    transcript(
        program,
        script,
        r#"
        * Stopped at 1, stop reason = step over
        -> 1   local key = KEYS[1]
        > p
        No local variables in the current context.
        > s
        * Stopped at 2, stop reason = step over
        -> 2   local n = 0
        > next
        * Stopped at 3, stop reason = step over
        -> 3   for i = 1, 2 do
        > STEP
        * Stopped at 4, stop reason = step over
        -> 4     n = n + i
        > print
        <value> key = "k"
        <value> n = 0
        <value> (for index) = 1
        <value> (for limit) = 2
        <value> (for step) = 1
        <value> i = 1
        > p n
        <value> 0
        > p KEYS
        <value> {"k"}
        > p ARGV
        <value> {"a"}
        > p nosuch
        No such variable.
        > p redis
        No such variable.
        > s
        * Stopped at 5, stop reason = step over
        -> 5     redis.call('SET', key, n)
        > s
        <redis> SET k 1
        <reply> "+OK"
        * Stopped at 3, stop reason = step over
        -> 3   for i = 1, 2 do
        > b 8
           7   local t = {1, 2}
          #8   local u = {a = {true, 'x\n"y'}}
           9   return redis.call('GET', key)
        > c
        * Stopped at 8, stop reason = break point
        ->#8   local u = {a = {true, 'x\n"y'}}
        > s
        * Stopped at 9, stop reason = step over
        -> 9   return redis.call('GET', key)
        > p t
        <value> {1; 2}
        > p u
        <value> {["a"]={true; "x\n\"y"}}
        > s
        <redis> GET k
        <reply> "3"
        <endsession>
        "3"
        "#,
    );
}

fn breakpoints_stop_and_can_be_removed(program: Program) {
    transcript(
        program,
        "local x = 1\nx = x + 1\nx = x + 1\nreturn x",
        "
        * Stopped at 1, stop reason = step over
        -> 1   local x = 1
        > b
        No breakpoints set. Use 'b <line>' to add one.
        > b 3 9
           2   x = x + 1
          #3   x = x + 1
           4   return x
        Wrong line number.
        > b
        1 breakpoints set:
          #3   x = x + 1
        > b -2
        No breakpoint in the specified line.
        > b x
        Invalid argument:'x'
        > c
        * Stopped at 3, stop reason = break point
        ->#3   x = x + 1
        > b -3
        Breakpoint removed.
        > b 4
        -> 3   x = x + 1
          #4   return x
        > b 0
        All breakpoints removed.
        > c
        <endsession>
        3
        ",
    );
}

fn functions_are_traced_and_scripts_can_set_breakpoints(program: Program) {
    let script = "local f = 0
f = function(n)
  redis.breakpoint()
  return n * 2
end
redis.debug('hello', 1, {1, 2}, nil, true)
local r = f(20) + f(1)
if redis.breakpoint() then r = r + 1 end
return r";
    transcript(
        program,
        script,
        r#"
        * Stopped at 1, stop reason = step over
        -> 1   local f = 0
        > c
        <debug> line 6: "hello", 1, {1; 2}, nil, true
        * Stopped at 4, stop reason = redis.breakpoint() called
        -> 4     return n * 2
        > trace
        In f:
        -> 4     return n * 2
        From top level:
           7   local r = f(20) + f(1)
        > p
        <value> n = 20
        > p f
        <value> "function@...
        > c
        * Stopped at 4, stop reason = redis.breakpoint() called
        -> 4     return n * 2
        > s
        * Stopped at 8, stop reason = step over
        -> 8   if redis.breakpoint() then r = r + 1 end
        > c
        * Stopped at 9, stop reason = redis.breakpoint() called
        -> 9   return r
        > abort
        <endsession>
        (error) ERR script aborted for user request script: ...
        "#,
    );
}

fn listings_and_replies_are_bounded(program: Program) {
    let mut script = "local x = string.rep('x', 300)\n".to_owned();
    script.extend((2..=12).map(|n| format!("-- {n}\n")));
    script.push_str("return x\n");
    let long = |n: usize| "x".repeat(n);
    let session = format!(
        r#"
        * Stopped at 1, stop reason = step over
        -> 1   local x = string.rep('x', 300)
        > s
        * Stopped at 13, stop reason = step over
        -> 13  return x
        > l
           8   -- 8
           9   -- 9
           10  -- 10
           11  -- 11
           12  -- 12
        -> 13  return x
        > list 3 1
           2   -- 2
           3   -- 3
           4   -- 4
        > l 0 0
        -> 13  return x
        > l 50
        > p x
        <value> "{}...
        <hint> ...
        > p x
        <value> "{}...
        > maxlen
        <value> replies are truncated at 256 bytes.
        > maxlen 10
        <value> replies are truncated at 60 bytes.
        > p x
        <value> "{} ...
        > m 0
        <value> replies are unlimited.
        > p x
        <value> "{}"
        > nonsense
        <error> Unknown Redis Lua debugger command or wrong number of arguments.
        > c
        <endsession>
        "{}"
        "#,
        long(247),
        long(247),
        long(51),
        long(300),
        long(300)
    );
    transcript(program, &script, &session);
}

fn the_client_can_evaluate_code_and_run_commands(program: Program) {
    transcript(
        program,
        "local x = 1\nreturn x",
        r#"
        * Stopped at 1, stop reason = step over
        -> 1   local x = 1
        > eval KEYS[1]
        <retval> "k"
        > e
        <retval> nil
        > e {1, {x = 2}}
        <retval> {1; {["x"]=2}}
        > e for i = 1, 3 do redis.call('INCR', KEYS[1]) end
        <retval> nil
        > e redis.call('GET', KEYS[1])
        <retval> "3"
        > e x = 1
        <error> ldb_eval:1: Attempt to modify a readonly table
        > e x
        <error> ldb_eval:1: Script attempted to access nonexistent global variable 'x'
        > e error('no')
        <error> ldb_eval:1: no
        > e redis.debug(2)
        <debug> line 1: 2
        <retval> nil
        > r
        <error> Unknown Redis Lua debugger command or wrong number of arguments.
        > r get k
        <redis> get k
        <reply> "3"
        > redis rpush l a b
        <redis> rpush l a b
        <reply> 2
        > r lrange l 0 -1
        <redis> lrange l 0 -1
        <reply> ["a","b"]
        > r get nosuch
        <redis> get nosuch
        <reply> NULL
        > r incr l
        <redis> incr l
        <error> -WRONGTYPE Operation against a key holding the wrong kind of value
        <reply> "-WRONGTYPE Operation against a key holding the wrong kind of value"
        > r mget 1 2 3 4 5 6 7 8 9 10 11
        <redis> mget 1 2 3 4 5 6 7 8 9 ... (...
        <reply> [NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL]
        > e redis.breakpoint()
        <retval> true
        > c
        * Stopped at 2, stop reason = redis.breakpoint() called
        -> 2   return x
        > c
        <endsession>
        1
        "#,
    );
}

fn replies_are_shown_in_resp3(program: Program) {
    transcript(
        program,
        "redis.setresp(3)\nreturn 1",
        r#"
        * Stopped at 1, stop reason = step over
        -> 1   redis.setresp(3)
        > s
        * Stopped at 2, stop reason = step over
        -> 2   return 1
        > r hset h f v
        <redis> hset h f v
        <reply> 1
        > r hgetall h
        <redis> hgetall h
        <reply> {"f" => "v"}
        > r sadd s m
        <redis> sadd s m
        <reply> 1
        > r smembers s
        <redis> smembers s
        <reply> ~("m")
        > r zadd z 1.5 m
        <redis> zadd z 1.5 m
        <reply> 1
        > r zscore z m
        <redis> zscore z m
        <reply> (double) 1.5
        > r get nosuch
        <redis> get nosuch
        <reply> (null)
        > c
        <endsession>
        1
        "#,
    );
}

fn errors_end_the_session(program: Program) {
    transcript(
        program,
        "local x = 1\nerror('boo')",
        "
        * Stopped at 1, stop reason = step over
        -> 1   local x = 1
        > s
        * Stopped at 2, stop reason = step over
        -> 2   error('boo')
        > s
        <endsession>
        (error) ERR user_script:2: boo script: ...
        ",
    );
    let server = Server::start(program, &[]);
    for (eval, error) in [
        (
            ["EVAL", "return (", "0"],
            "ERR Error compiling script (new function): user_script:1: unexpected symbol near '<eof>'",
        ),
        (["EVAL", "return 1", "5"], "ERR Number of keys can't be greater than number of args"),
    ] {
        let mut raw = server.raw();
        raw.command(&["SCRIPT", "DEBUG", "SYNC"]);
        assert_eq!(see(&mut raw, &eval), ["<endsession>".to_owned(), format!("(error) {}", error.escape_default())]);
    }
}

fn calls_that_cannot_start_a_session_are_refused_or_run_normally(program: Program) {
    let server = Server::start(program, &[]);
    let mut raw = server.raw();
    let sha = raw.command(&["SCRIPT", "LOAD", "return 1"]);
    let sha = String::from_utf8(sha.bytes().expect("a name").to_vec()).expect("of hexadecimal digits");
    assert_eq!(raw.command(&["SCRIPT", "DEBUG", "maybe"]), Value::error("ERR Use SCRIPT DEBUG YES/SYNC/NO"));
    assert_eq!(raw.command(&["SCRIPT", "DEBUG", "yes"]), Value::status("OK"));
    for command in ["EVALSHA", "EVALSHA_RO"] {
        let refusal = Value::error("ERR Please use EVAL instead of EVALSHA for debugging");
        assert_eq!(raw.command(&[command, &sha, "0"]), refusal);
    }
    let library = "#!lua name=l\nredis.register_function('f', function() return {redis.breakpoint == nil, 5} end)";
    raw.command(&["FUNCTION", "LOAD", library]);
    assert_eq!(raw.command(&["FCALL", "f", "0"]), Value::Array(vec![Value::Integer(1), Value::Integer(5)]));
    assert_eq!(raw.command(&["SCRIPT", "DEBUG", "no"]), Value::status("OK"));
    let eval = ["EVAL", "redis.debug(1) return redis.breakpoint()", "0"];
    assert_eq!(raw.command(&eval), Value::Null);
    raw.send(b"PING\r\nSCRIPT DEBUG YES\r\n");
    assert_eq!(raw.reply().value, Value::status("PONG"));
    let refusal = Value::error("ERR SCRIPT DEBUG must be called outside a pipeline");
    assert_eq!(raw.reply().value, refusal);
    raw.command(&["MULTI"]);
    raw.command(&["SCRIPT", "DEBUG", "YES"]);
    assert_eq!(raw.command(&["EXEC"]), Value::Array(vec![refusal]));
}

/// The reply of a session that writes, and another client's view of the data after its end.
fn written_by_a_session(program: Program, mode: &str) -> (Value, Value) {
    let server = Server::start(program, &[]);
    let mut other = server.raw();
    other.command(&["RPUSH", "list", "a", "b"]);
    let mut raw = server.raw();
    raw.command(&["SCRIPT", "DEBUG", mode]);
    see(&mut raw, &["EVAL", "redis.call('SET', 'written', 1)\nredis.call('DEL', 'list')\nreturn 1", "0"]);
    see(&mut raw, &["redis", "set", "typed", "2"]);
    assert_eq!(see(&mut raw, &["c"]).last().map(String::as_str), Some("1"));
    (other.command(&["MGET", "written", "typed"]), other.command(&["LLEN", "list"]))
}

fn sync_keeps_changes(program: Program) {
    let both = Value::Array(vec![Value::bulk("1"), Value::bulk("2")]);
    assert_eq!(written_by_a_session(program, "SYNC"), (both, Value::Integer(0)));
}

fn rollback_drops_changes(program: Program) {
    let neither = Value::Array(vec![Value::Null, Value::Null]);
    assert_eq!(written_by_a_session(program, "YES"), (neither, Value::Integer(2)));
}

/// A session stopped at its first line, on a server where other clients soon get -BUSY.
fn stopped(script: &str) -> (Server, Raw) {
    let server = Server::start(Program::Tidegate, &["--busy-reply-threshold", "1"]);
    let mut raw = server.raw();
    raw.command(&["SCRIPT", "DEBUG", "SYNC"]);
    see(&mut raw, &["EVAL", script, "0"]);
    (server, raw)
}

#[test]
fn other_clients_wait_and_may_end_a_session() {
    let (server, mut raw) = stopped("redis.call('SET', 'k', 1)\nreturn 1");
    see(&mut raw, &["s"]);
    let mut other = server.raw();
    let busy = other.command(&["GET", "k"]);
    assert!(busy.bytes().is_some_and(|text| text.starts_with(b"BUSY ")), "{busy:?}");
    assert_eq!(other.command(&["SCRIPT", "KILL"]), Value::status("OK"));
    let Value::Array(lines) = raw.reply().value else { panic!("no screen") };
    assert_eq!(lines, [Value::status("<endsession>")]);
    let killed = raw.reply().value;
    assert!(killed.bytes().is_some_and(|text| text.starts_with(b"ERR Script killed by user")), "{killed:?}");
    assert_eq!(other.command(&["GET", "k"]), Value::Null, "it was rolled back");
}

#[test]
fn a_client_that_hangs_up_ends_its_session() {
    // While the script is stopped, and while it runs endlessly.
    for says in [None, Some("c")] {
        let (server, mut raw) = stopped("while true do end");
        says.into_iter().for_each(|command| raw.send_command(&[command]));
        drop(raw);
        // Until the server has noticed the hang-up, it is busy.
        let mut other = server.raw();
        while other.command(&["PING"]) != Value::status("PONG") {}
    }
}

#[test]
fn commands_that_were_sent_ahead_are_read_one_by_one() {
    let server = Server::start(Program::Tidegate, &[]);
    let mut raw = server.raw();
    raw.command(&["SCRIPT", "DEBUG", "YES"]);
    see(&mut raw, &["EVAL", "local x = 1\nlocal y = 2\nreturn x", "0"]);
    raw.send(b"s\r\np\r\n*1\r\n$1\r\nc\r\n");
    let screens: Vec<String> = (0..3).map(|_| format!("{:?}", raw.reply().value)).collect();
    let want =
        ["[+* Stopped at 2, stop reason = step over, +-> 2   local y = 2]", "[+<value> x = 1]", "[+<endsession>]"];
    assert_eq!(screens, want);
    assert_eq!(raw.reply().value, Value::Integer(1));
}

#[test]
fn a_protocol_error_ends_a_session() {
    let (_server, mut raw) = stopped("return 1");
    raw.send(b"*1\r\nx\r\n");
    raw.reply();
    let error = raw.reply().value;
    assert!(error.bytes().is_some_and(|text| text.starts_with(b"ERR protocol error")), "{error:?}");
    assert_eq!(raw.read_to_end(), b"");
}

#[test]
fn transactions_are_not_debugged() {
    let server = Server::start(Program::Tidegate, &[]);
    let mut raw = server.raw();
    raw.command(&["SCRIPT", "DEBUG", "YES"]);
    raw.command(&["MULTI"]);
    raw.command(&["EVAL", "return 1", "0"]);
    raw.command(&["SET", "k", "v"]);
    let refusal = Value::error("ERR A transaction can't be debugged, call EVAL outside of MULTI");
    assert_eq!(raw.command(&["EXEC"]), Value::Array(vec![refusal, Value::status("OK")]));
    raw.command(&["RESET"]);
    assert_eq!(raw.command(&["EVAL", "return redis.breakpoint()", "0"]), Value::Null);
}

/// The output of redis-cli, without colours, when it debugs a file and reads `input`.
fn redis_cli(server: &Server, mode: &str, input: &str) -> String {
    let mut file = tempfile::NamedTempFile::new().expect("a file");
    let script =
        "local key = KEYS[1]\nlocal n = tonumber(ARGV[1])\nfor i = 1, 2 do\n  n = n + i\nend\nreturn {key, n}\n";
    file.write_all(script.as_bytes()).expect("a short text");
    let mut cli = Command::new("redis-cli")
        .args(["-p", &server.port().to_string(), mode, "--eval"])
        .arg(file.path())
        .args(["key", ",", "40"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("redis-cli, of Debian's redis-tools");
    cli.stdin.take().expect("a pipe").write_all(input.as_bytes()).expect("room for a few lines");
    let output = cli.wait_with_output().expect("it ends when its input does");
    assert!(output.status.success());
    let mut text = String::from_utf8(output.stdout).expect("text");
    while let Some(start) = text.find('\x1b') {
        let end = start + text[start..].find('m').expect("a colour ends");
        text.replace_range(start..=end, "");
    }
    text
}

fn redis_cli_debugs_a_file(program: Program) {
    if REDIS_CLI.is_missing() {
        return;
    }
    let server = Server::start(program, &[]);
    let printed = redis_cli(&server, "--ldb", "n\nb 4\nc\np n\nrestart\nc\n");
    let started = "* Stopped at 1, stop reason = step over\n-> 1   local key = KEYS[1]\n";
    let steps = "* Stopped at 2, stop reason = step over\n\
                 -> 2   local n = tonumber(ARGV[1])\n   3   for i = 1, 2 do\n  #4     n = n + i\n   5   end\n\
                 * Stopped at 4, stop reason = break point\n\
                 ->#4     n = n + i\n\
                 <value> 40\n";
    assert!(printed.contains(&(started.to_owned() + steps)), "{printed}");
    let reply = "\n1) \"key\"\n2) (integer) 43\n";
    // Breakpoints belong to a session: the second session runs through.
    let again = format!("{started}{reply}\n(Lua debugging session ended -- dataset changes rolled back)\n");
    assert!(printed.contains(&again), "{printed}");
    let printed = redis_cli(&server, "--ldb-sync-mode", "c\nPING\n");
    assert!(printed.contains(&format!("{reply}\n(Lua debugging session ended)\n\nPONG\n")), "{printed}");
}
