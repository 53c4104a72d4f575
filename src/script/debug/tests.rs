//! The debugger with a scripted client.

use super::*;
use crate::resp::reply::Form;
use crate::script::store::sha1_hex;
use crate::script::tests::{Toy, vm};
use crate::script::{Invocation, Passing, Vm};

/// A client that sends these commands and records the lines it is shown.
#[derive(Default)]
struct Client {
    toy: Toy,
    says: Vec<String>,
    shown: Vec<String>,
    overdue_after: Option<usize>,
}

impl Host for Client {
    fn call(&mut self, argv: Argv<'_>, reply: &mut Reply) {
        self.toy.call(argv, reply);
    }

    fn interrupted(&mut self) -> Verdict {
        self.toy.interrupted()
    }

    fn log(&mut self, level: LogLevel, message: &[u8]) {
        self.toy.log(level, message);
    }

    fn set_resp(&mut self, version: u8) {
        self.toy.set_resp(version);
    }
}

impl Console for Client {
    fn prompt(&mut self, lines: Vec<Vec<u8>>) -> Answer {
        self.finish(lines);
        if self.says.is_empty() {
            return Answer::End("ERR the client is gone");
        }
        let mut command = OwnedArgv::default();
        let line = self.says.remove(0);
        self.shown.push(format!("> {line}"));
        line.split(' ').for_each(|word| command.push(word.as_bytes()));
        Answer::Command(command)
    }

    fn is_overdue(&mut self) -> bool {
        self.overdue_after.is_some_and(|n| self.toy.asked >= n)
    }

    fn finish(&mut self, lines: Vec<Vec<u8>>) {
        self.shown.extend(lines.iter().map(|line| String::from_utf8_lossy(line).into_owned()));
    }
}

fn run(vm: &mut Vm, client: &mut Client, script: &str) -> String {
    let program = match vm.compile(script.as_bytes()) {
        Ok(program) => program,
        Err(error) => return error.to_string(),
    };
    let (mut keys, mut args) = (OwnedArgv::default(), OwnedArgv::default());
    keys.push(b"k1");
    args.push(b"a1");
    let mut reply = Reply::new(Form::Resp2);
    let name = sha1_hex(script.as_bytes());
    let (keys, args) = (keys.as_argv(), args.as_argv());
    let invocation = Invocation { program, passing: Passing::Globals, name: &name, keys, args };
    vm.debug(invocation, script.as_bytes(), client, &mut reply);
    vm.release(program);
    reply.as_bytes().escape_ascii().to_string()
}

/// Returns a script's reply to a client that sends these commands, one per line.
pub(in super::super) fn session_on(vm: &mut Vm, script: &str, says: &str) -> String {
    let mut client = Client { says: says.lines().map(str::to_owned).collect(), ..Client::default() };
    run(vm, &mut client, script)
}

/// Returns the lines shown to a client that sends these commands, one per line, and the script's reply.
fn session(script: &str, says: &str) -> (Vec<String>, String) {
    let mut client = Client { says: says.lines().map(str::to_owned).collect(), ..Client::default() };
    let answer = run(&mut vm(), &mut client, script);
    (client.shown, answer)
}

/// Returns the lines shown after the commands, without the first stop.
fn shown(script: &str, says: &str) -> Vec<String> {
    let (shown, _) = session(script, says);
    shown.into_iter().skip(2).filter(|line| !line.starts_with("> ")).collect()
}

#[test]
fn steps_show_lines_and_commands() {
    let (shown, answer) = session("local x = redis.call('INCR', 'n')\nx = x + 1\nreturn x", "s\nn\ns");
    let want = [
        "* Stopped at 1, stop reason = step over",
        "-> 1   local x = redis.call('INCR', 'n')",
        "> s",
        "<redis> INCR n",
        "<reply> 1",
        "* Stopped at 2, stop reason = step over",
        "-> 2   x = x + 1",
        "> n",
        "* Stopped at 3, stop reason = step over",
        "-> 3   return x",
        "> s",
    ];
    assert_eq!(shown, want);
    assert_eq!(answer, ":2\\r\\n");
}

#[test]
fn stepping_stops_once_at_a_line_that_calls_functions() {
    let script = "local function double(n)\n  return n * 2\nend\nlocal a = double(1) + double(2)\nreturn a";
    let stops: Vec<String> = shown(script, &["s"; 8].join("\n"))
        .into_iter()
        .filter(|line| line.starts_with("->"))
        .map(|line| line[3..4].to_owned())
        .collect();
    assert_eq!(stops, ["4", "2", "2", "5"]);
}

#[test]
fn kills_abort_whatever_the_script_catches() {
    let script = "while true do\n  pcall(function()\n    local x = 1\n  end)\nend";
    for (says, words) in
        [("a", "script aborted for user request"), ("s\ns\na", "script aborted"), ("s", "the client is gone")]
    {
        let (_, answer) = session(script, says);
        assert!(answer.contains(words), "{says}: {answer}");
    }
}

#[test]
fn endless_code_of_the_client_can_be_ended() {
    let mut vm = vm();
    let mut client = Client { says: vec!["e while true do end".to_owned()], ..Client::default() };
    client.toy.kill_after = Some(3);
    let answer = run(&mut vm, &mut client, "return 1");
    assert!(answer.starts_with("-ERR Script killed by user"), "{answer}");
    let mut client = Client { says: vec!["c".to_owned()], ..Client::default() };
    assert_eq!(run(&mut vm, &mut client, "return 1"), ":1\\r\\n", "the next run is like any other");
}

#[test]
fn a_loop_that_looks_endless_stops() {
    let mut client = Client { says: vec!["c".to_owned(), "a".to_owned()], ..Client::default() };
    client.overdue_after = Some(2);
    run(&mut vm(), &mut client, "while true do end");
    let stop = client.shown.iter().find(|line| line.contains("infinite"));
    assert_eq!(stop.map(String::as_str), Some("* Stopped at 1, stop reason = timeout reached, infinite loop?"));
}

#[test]
fn code_evaluated_by_the_client_does_not_outlive_its_run() {
    let mut vm = vm();
    let says = ["e KEYS[2]='x'", "e ARGV[1]='y'", "p KEYS", "c"].map(str::to_owned).to_vec();
    let mut client = Client { says, ..Client::default() };
    run(&mut vm, &mut client, "return 1");
    assert!(client.shown.contains(&"<value> {\"k1\"; \"x\"}".to_owned()), "{:?}", client.shown);
    let mut toy = Toy::default();
    let answer =
        crate::script::tests::eval(&mut vm, &mut toy, Form::Resp2, "return {#KEYS, ARGV[1], redis.breakpoint()}");
    assert_eq!(answer, "*3\\r\\n:2\\r\\n$2\\r\\na1\\r\\n$-1\\r\\n");
}

#[test]
fn lines_are_reported_even_after_a_garbage_collection() {
    let script = "local garbage = ('x'):rep(6e6)\ngarbage = nil\nlocal a = 1\nreturn a";
    let mut vm = vm();
    vm.set_memory_limit(16 << 20);
    let mut client = Client { says: vec!["s".to_owned(); 4], ..Client::default() };
    assert_eq!(run(&mut vm, &mut client, script), ":1\\r\\n");
    let stops = client.shown.iter().filter_map(|line| line.strip_prefix("-> ")).map(|line| &line[..1]);
    assert_eq!(stops.collect::<Vec<_>>(), ["1", "2", "3", "4"]);
}

#[test]
fn values_are_shown_as_in_redis() {
    let cases = [
        ("KEYS[1]", "<retval> \"k1\""),
        ("", "<retval> nil"),
        ("1.5", "<retval> 1.5"),
        ("2^53", "<retval> 9.007199254741e+15"),
        ("{1, 2, {x = 1}}", "<retval> {1; 2; {[\"x\"]=1}}"),
        ("{nil, true}", "<retval> {[2]=true}"),
        ("{}", "<retval> {}"),
        ("'a\\0b\\1\\255\\r\\n'", "<retval> \"a\\x00b\\x01\\xff\\r\\n\""),
        ("cjson.null", "<retval> \"light-userdata@(nil)\""),
        ("redis.call('INCR', 'n')", "<retval> 1"),
        (
            "redis.pcall('INCR', 'list').err",
            "<retval> \"WRONGTYPE Operation against a key holding the wrong kind of value\"",
        ),
        ("for i = 1, 2 do end", "<retval> nil"),
        ("error('no')", "<error> ldb_eval:1: no"),
        ("error({err='no'})", "<error> no"),
        ("redis.call('INCR', 'list')", "<error> WRONGTYPE"),
        ("nosuch", "<error> ldb_eval:1: Script attempted to access nonexistent global variable 'nosuch'"),
        ("x = 1", "<error> ldb_eval:1: Attempt to modify a readonly table"),
        ("(", "<error> ldb_eval:1: unexpected symbol near '<eof>'"),
        ("coroutine.yield()", "<error> "),
    ];
    for (code, want) in cases {
        let shown = shown("return 1", &format!("e {code}\nc"));
        assert!(shown[0].starts_with(want), "{code}: {shown:?}");
    }
    let nested = "(function() local t = {} for i = 1, 100 do t[i] = t end return t end)()";
    let shown = shown("return 1", &format!("maxlen 0\ne {nested}\nc"));
    assert!(
        shown[1].ends_with(" ...") && shown[1].len() < DEBUG_SCREEN_MAX_BYTES + 100,
        "it grows a hundredfold at each level"
    );
    assert!(shown[1].contains("<max recursion level reached! Nested table?>"));
}

#[test]
fn screens_are_bounded() {
    let script =
        "local line = string.rep('x', 100000)\nfor i = 1, 100 do redis.debug(line) end\nredis.breakpoint()\nreturn 1";
    let shown = shown(script, "c\nc");
    assert!(shown.iter().map(String::len).sum::<usize>() < DEBUG_SCREEN_MAX_BYTES + 1_000);
    assert!(shown.iter().any(|line| line.starts_with("<hint> 6") && line.ends_with("more lines were dropped.")));
}
