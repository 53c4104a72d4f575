//! Programs on two servers: asked in pipelines, with their answers as text, and the differences that are allowed.

use std::time::{Duration, Instant};

use crate::harness::{Program, REPLY_DEADLINE, Raw, Server, Value, encode};

/// How a program is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum How {
    /// By the [`RUNNER`], which shows all results.
    UnderPcall,
    /// By EVAL.
    Plainly,
}

/// A program and how it is called.
pub(super) type Call = (How, String);

/// Compiles its argument, runs it under `pcall`, and returns its results as text: tables in the order of `next`, each
/// with its length, numbers to the last digit.
pub(super) const RUNNER: &str = r#"
local seen = {}
local function escaped(s) return (string.gsub(s, '[^ -~]', function(c) return '\\' .. string.byte(c) .. '.' end)) end
local function shown(v, depth)
  local kind = type(v)
  if kind == 'table' then
    if seen[v] then return '<again>' end
    if depth > 6 then return '<deep>' end
    seen[v] = true
    local parts = {}
    local k, x = next(v)
    while k ~= nil and #parts < 300 do
      parts[#parts + 1] = shown(k, depth + 1) .. '=' .. shown(x, depth + 1)
      k, x = next(v, k)
    end
    return '{' .. table.concat(parts, ',') .. '}#' .. #v
  elseif kind == 'number' then return tostring(v) .. '/' .. string.format('%.17g', v)
  elseif kind == 'string' then return "'" .. escaped(v) .. "'"
  elseif kind == 'nil' or kind == 'boolean' then return tostring(v)
  else return kind end
end
local function counted(...) return select('#', ...), {...} end
local program, fault = loadstring(ARGV[1], '@user_script')
if not program then return 'C ' .. escaped(tostring(fault)) end
local n, results = counted(pcall(program))
local parts = {}
for i = 1, n do parts[i] = shown(results[i], 0) end
return 'R ' .. table.concat(parts, ' ')
"#;

/// Two answers to one program, without addresses.
pub(super) struct Answers<'a> {
    ours: &'a str,
    theirs: &'a str,
    program: &'a str,
}

/// An allowed difference: the reason, and the test that recognizes it.
pub(super) type Allowed = (&'static str, fn(&Answers<'_>) -> bool);

/// All allowed differences; `docs/compatibility.md` lists them for users.
pub(super) const ALLOWED: &[Allowed] = &[
    ("keys are tables or functions, whose order is that of their addresses", |answers| {
        [answers.ours, answers.theirs].iter().all(|answer| has_key_by_address(answer))
    }),
    ("recursion may go deeper than in Redis, and end with the other of two texts", |answers| {
        [answers.ours, answers.theirs].iter().any(|answer| answer.contains("stack overflow"))
    }),
    ("metamethods and iterators may yield", |answers| {
        answers.theirs.contains("attempt to yield across metamethod/C-call boundary")
    }),
    ("the error for a program that does not compile shows bytes that are not UTF-8 as U+FFFD", |answers| {
        answers.ours.contains("Error compiling script") && answers.ours.contains(r"\xef\xbf\xbd")
    }),
    ("the name that stands by chance for the iterator of a `for`, which is no function", |answers| {
        answers.program.contains(" in ") && unnamed_calls(answers.ours) == unnamed_calls(answers.theirs)
    }),
];

/// Whether an answer shows a key that is a table, a function or a coroutine, or a text with an address.
fn has_key_by_address(answer: &str) -> bool {
    let is_length = |text: &str| {
        let before = text.trim_end_matches(|c: char| c.is_ascii_digit());
        before.len() < text.len() && before.ends_with("}#")
    };
    let is_by_address = |key: &str| {
        is_length(key)
            || ["function", "thread", "userdata", "ADDRESS'", "<again>", "<deep>"].iter().any(|end| key.ends_with(end))
    };
    answer.match_indices('=').any(|(at, _)| is_by_address(&answer[..at]))
}

/// An answer whose errors give the kind of the called value, but not its name.
fn unnamed_calls(answer: &str) -> String {
    const BEFORE: &str = "attempt to call ";
    let mut unnamed = String::new();
    let mut rest = answer;
    while let Some(at) = rest.find(BEFORE) {
        let (before, after) = rest.split_at(at + BEFORE.len());
        unnamed += before;
        rest = after;
        let is_named = ["local", "upvalue", "field", "method", "global"].iter().any(|kind| after.starts_with(kind));
        if let (true, Some(from)) = (is_named, after.find('(')) {
            let value = &after[from + 1..];
            let to = value.find(')').unwrap_or(value.len());
            unnamed += &value[..to];
            rest = value.get(to + 1..).unwrap_or_default();
        }
    }
    unnamed + rest
}

/// An answer as text, with each address replaced by the word ADDRESS.
fn without_addresses(answer: &Value) -> String {
    let text = format!("{answer:?}");
    let mut parts = text.split("0x");
    let mut plain = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let has_kind = ["table: ", "function: ", "thread: ", "userdata: "].iter().any(|kind| plain.ends_with(kind));
        let digits = part.find(|c: char| !c.is_ascii_hexdigit()).unwrap_or(part.len());
        plain += if has_kind { "ADDRESS" } else { "0x" };
        plain += if has_kind { &part[digits..] } else { part };
    }
    plain
}

/// One server, which runs programs.
pub(super) struct Side {
    program: Program,
    server: Server,
    caller: Raw,
    /// The SHA1 of the [`RUNNER`] there.
    runner: String,
    killed: usize,
}

impl Side {
    /// Starts a server that soon reports a slow script as busy, so that the script can be killed.
    pub(super) fn start(program: Program) -> Side {
        let server = Server::start(program, &["--busy-reply-threshold", "500"]);
        let caller = server.raw();
        let mut side = Side { program, server, caller, runner: String::new(), killed: 0 };
        side.runner = side.load_runner();
        side
    }

    fn load_runner(&mut self) -> String {
        // On Redis a table that lost keys and got them again has another order after a collection.
        let before = if self.program == Program::Tidegate { "" } else { "collectgarbage('stop')" };
        let sha = self.command(&["SCRIPT", "LOAD", &format!("{before}{RUNNER}")]);
        String::from_utf8_lossy(sha.bytes().expect("a SHA1")).into_owned()
    }

    /// Any command.
    pub(super) fn command(&mut self, args: &[&str]) -> Value {
        let reply = self.caller.command(args);
        if args == ["SCRIPT", "FLUSH"] {
            self.load_runner();
        }
        reply
    }

    /// Runs these programs, and returns the answer of each.
    pub(super) fn ask(&mut self, calls: &[Call]) -> Vec<String> {
        self.send(calls);
        calls.iter().map(|call| self.answer(call)).collect()
    }

    fn send(&mut self, calls: &[Call]) {
        let encoded = calls.iter().flat_map(|(how, text)| match how {
            How::UnderPcall => encode(&["EVALSHA", &self.runner, "0", text]),
            How::Plainly => encode(&["EVAL", text, "0"]),
        });
        self.caller.send(&encoded.collect::<Vec<u8>>());
    }

    /// The next answer. A program that does not end is killed: shrinking may make such programs.
    fn answer(&mut self, (_, text): &Call) -> String {
        let begun = Instant::now();
        loop {
            match self.caller.try_reply(Duration::from_secs(2)) {
                Ok(reply) => {
                    let answer = without_addresses(&reply.value);
                    if is_killed(&answer) {
                        self.killed += 1;
                        eprintln!("this program did not end by itself:\n{text}");
                    }
                    return answer;
                }
                Err(why) if why.starts_with("silence") && begun.elapsed() < REPLY_DEADLINE => {
                    let mut killer = self.server.raw();
                    killer.send_command(&["SCRIPT", "KILL"]);
                    let killed = killer.try_reply(REPLY_DEADLINE);
                    assert!(killed.is_ok(), "it can't be ended:\n{text}");
                }
                Err(why) => panic!("{why}; the program was\n{text}"),
            }
        }
    }
}

/// Whether a program was killed.
fn is_killed(answer: &str) -> bool {
    answer.contains("Script killed by user")
}

/// The server under test and Redis.
pub(super) struct Sides {
    ours: Side,
    theirs: Side,
    /// How often each of [`ALLOWED`] occurred.
    allowed: Vec<usize>,
    /// How many of the differing programs SCRIPT LINT warns of.
    warned: usize,
}

impl Sides {
    pub(super) fn start() -> Sides {
        let (ours, theirs) = (Side::start(Program::Tidegate), Side::start(Program::Redis8));
        Sides { ours, theirs, allowed: vec![0; ALLOWED.len()], warned: 0 }
    }

    /// Places of the calls whose answers differ without a reason.
    pub(super) fn differing(&mut self, calls: &[Call]) -> Vec<usize> {
        // Both servers work at once.
        self.ours.send(calls);
        self.theirs.send(calls);
        let answers = calls.iter().map(|call| (self.ours.answer(call), self.theirs.answer(call)));
        let answers: Vec<(String, String)> = answers.collect();
        (0..calls.len()).filter(|&at| !self.is_fine(&calls[at].1, &answers[at])).collect()
    }

    fn is_fine(&mut self, program: &str, (ours, theirs): &(String, String)) -> bool {
        if ours == theirs || is_killed(ours) || is_killed(theirs) {
            return true;
        }
        let answers = Answers { ours, theirs, program };
        let reason = ALLOWED.iter().position(|(_, holds)| holds(&answers));
        if let Some(reason) = reason {
            self.allowed[reason] += 1;
        }
        reason.is_some()
    }

    /// Both answers, ours first, if they differ without a reason.
    pub(super) fn answers(&mut self, call: &Call) -> Option<(String, String)> {
        let calls = std::slice::from_ref(call);
        let answers = (self.ours.ask(calls).remove(0), self.theirs.ask(calls).remove(0));
        (!self.is_fine(&call.1, &answers)).then_some(answers)
    }

    /// Whether SCRIPT LINT warns of the order of keys in this differing program. Only a shrunk program should be asked
    /// about: in a large one the warning may have another reason.
    pub(super) fn is_warned_of(&mut self, program: &str) -> bool {
        let warnings = self.ours.command(&["SCRIPT", "LINT", program]);
        let warnings = format!("{warnings:?}");
        let is_warned = ["this loop over pairs", "depends on their addresses"].iter().any(|why| warnings.contains(why));
        self.warned += usize::from(is_warned);
        is_warned
    }

    /// How many programs had to be killed.
    pub(super) fn killed(&self) -> usize {
        self.ours.killed + self.theirs.killed
    }

    /// Counts of the tolerated differences, with the reasons.
    pub(super) fn summary(&self) -> String {
        let passed = ALLOWED.iter().zip(&self.allowed).filter(|(_, times)| **times > 0);
        let passed: Vec<String> = passed.map(|((reason, _), times)| format!("{times} times {reason}")).collect();
        format!("killed: {}; LINT warns of: {}; allowed: {}", self.killed(), self.warned, passed.join("; "))
    }
}

#[test]
fn differences_that_are_allowed_are_recognised() {
    let is_allowed = |ours, theirs, program| {
        let answers = Answers { ours, theirs, program };
        ALLOWED.iter().any(|(_, holds)| holds(&answers))
    };
    assert!(is_allowed("R {{}#0=1,function=2}#0", "R {function=2,{}#0=1}#0", ""));
    assert!(!is_allowed("R {'a'=1/1,'b'={}#0}#0", "R {'b'={}#0,'a'=1/1}#0", ""));
    let (named, plain) = ("1: attempt to call local 'b' (a table value)'", "1: attempt to call a table value'");
    assert!(is_allowed(named, plain, "for a in b do end"));
    assert!(!is_allowed(named, plain, "b()"));
    assert!(!is_allowed(named, "1: attempt to call a nil value'", "for a in b do end"));
    let address = Value::bulk("table: 0x55aa77: 0xff");
    assert_eq!(without_addresses(&address), "\"table: ADDRESS: 0xff\"");
}
