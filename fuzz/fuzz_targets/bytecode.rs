//! Scripts as they run, with their bytecode rewritten, and as LuaJIT compiled them: both answer the same, call the same
//! commands and log the same.
//!
//! The bytes choose a program of what the rewriting looks for: `redis.call` by all ways, tail calls, KEYS and ARGV,
//! jumps, closures. Programs that run for long are ended at a moment that differs, and are not compared. Neither are
//! the places and functions that errors name: that rewritten tail calls keep them is what they are rewritten for.
#![no_main]

use std::cell::RefCell;

use libfuzzer_sys::fuzz_target;
use tidegate::resp::reply::{Form, Reply};
use tidegate::resp::request::{Argv, OwnedArgv};
use tidegate::script::{Handle, Host, Invocation, LogLevel, Passing, ServerVersion, Verdict, Vm};

thread_local! {
    static STATES: RefCell<[Vm; 2]> = RefCell::new([(); 2].map(|()| {
        Vm::new(ServerVersion { text: "7.0.15", number: 0x0007_000f }, 0).expect("a fresh state")
    }));
}

fuzz_target!(|data: &[u8]| {
    let text = program(data);
    STATES.with_borrow_mut(|[rewriting, plain]| {
        let compiled = (rewriting.compile(text.as_bytes()), plain.compile_as_written(text.as_bytes()));
        let (rewritten, written) = match compiled {
            (Ok(rewritten), Ok(written)) => (rewritten, written),
            (one, other) => return assert_eq!(one.map(drop), other.map(drop), "{text}"),
        };
        let (one, other) = (run(rewriting, rewritten), run(plain, written));
        if let (Some(one), Some(other)) = (one, other) {
            assert_eq!(one, other, "{text}");
        }
        rewriting.release(rewritten);
        plain.release(written);
    });
});

/// What a run did and answered; `None` when it was ended.
fn run(vm: &mut Vm, program: Handle) -> Option<(String, Recorder)> {
    let (mut keys, mut args) = (OwnedArgv::default(), OwnedArgv::default());
    [b"k1".as_slice(), b"k2"].into_iter().for_each(|key| keys.push(key));
    [b"a1".as_slice(), b"2"].into_iter().for_each(|arg| args.push(arg));
    let mut recorder = Recorder::default();
    let mut reply = Reply::new(Form::Resp2);
    let (keys, args) = (keys.as_argv(), args.as_argv());
    let invocation = Invocation { program, passing: Passing::Globals, name: b"f", keys, args };
    vm.run(invocation, &mut recorder, &mut reply);
    (!recorder.ended).then(|| (without_places(&reply.as_bytes().escape_ascii().to_string()), recorder))
}

/// An answer without what may differ: lines of the script, names, addresses, and the length that counts them.
fn without_places(text: &str) -> String {
    let mut kept = String::new();
    let mut rest = text;
    while let Some(at) = rest.find(|c: char| c.is_ascii_digit() || c == '$') {
        kept.push_str(&rest[..at]);
        let end =
            rest[at + 1..].find(|c: char| !c.is_ascii_hexdigit() && c != 'x').map_or(rest.len(), |end| at + 1 + end);
        let is_place =
            rest[..at].ends_with("user_script:") || rest[at..].starts_with("0x") || rest[at..].starts_with('$');
        kept.push_str(if is_place { "N" } else { &rest[at..end] });
        rest = &rest[end..];
    }
    kept.push_str(rest);
    let kept = kept.replace("user_script:N: ", "").replace(" script: f, on @user_script:N.", "");
    // What an error calls a function or variable stands in quotes, behind what it is.
    let unquoted = kept.split("\\'").step_by(2).collect::<Vec<_>>().join("N");
    ["local", "global", "field", "upvalue", "method"]
        .iter()
        .fold(unquoted, |text, kind| text.replace(&format!("{kind} N"), "N"))
}

/// An engine that notes what is asked of it.
#[derive(Debug, Default, PartialEq)]
struct Recorder {
    calls: Vec<String>,
    ended: bool,
}

impl Host for Recorder {
    fn call(&mut self, argv: Argv<'_>, reply: &mut Reply) {
        let words: Vec<String> = argv.iter().map(|arg| without_places(&arg.escape_ascii().to_string())).collect();
        self.calls.push(words.join(" "));
        match (argv[0].to_ascii_lowercase().as_slice(), argv.len()) {
            (b"echo", 2) => reply.bulk(&argv[1]),
            (b"time", 1) => {
                reply.array(2);
                reply.bulk(b"1700000000");
                reply.bulk(b"42");
            }
            (b"incr", 2) => reply.integer(self.calls.len() as i64),
            (b"set", 3) => reply.ok(),
            (b"get", 2) => reply.null(),
            _ => reply.error(b"ERR Unknown Redis command called from script"),
        }
    }

    fn interrupted(&mut self) -> Verdict {
        self.ended = true;
        Verdict::Kill
    }

    fn log(&mut self, _: LogLevel, message: &[u8]) {
        self.calls.push(without_places(&message.escape_ascii().to_string()));
    }

    fn set_resp(&mut self, version: u8) {
        self.calls.push(format!("RESP{version}"));
    }
}

/// Names that programs use. Their `tostring` tells no address, of which a hash would differ from state to state.
const PROLOGUE: &str = "local a, b, c = KEYS[1], 2, nil
local r = redis
local f = redis.call
local text = tostring
local function tostring(v)
    local kind = type(v)
    return (kind == 'table' or kind == 'function') and kind or text(v)
end
";

/// How deep blocks and expressions nest.
const MAX_DEPTH: usize = 5;

/// A program that the bytes choose. When they are used up, the simplest of all follows.
fn program(data: &[u8]) -> String {
    let mut writer = Writer { choices: data.iter(), text: String::new(), depth: 0 };
    writer.text.push_str(PROLOGUE);
    writer.block();
    writer.text
}

struct Writer<'a> {
    choices: std::slice::Iter<'a, u8>,
    text: String,
    depth: usize,
}

impl Writer<'_> {
    fn below(&mut self, n: u8) -> u8 {
        self.choices.next().map_or(0, |byte| byte % n)
    }

    fn pick(&mut self, from: &[&str]) {
        let at = self.below(from.len() as u8);
        self.text.push_str(from[usize::from(at)]);
    }

    fn put(&mut self, text: &str) {
        self.text.push_str(text);
    }

    /// Statements, up to one that must be the last of its block.
    fn block(&mut self) {
        self.depth += 1;
        for _ in 0..6 {
            if self.choices.len() == 0 || self.statement() {
                break;
            }
        }
        self.depth -= 1;
    }

    /// Writes one statement; answers whether it ends its block.
    fn statement(&mut self) -> bool {
        let kinds = if self.depth < MAX_DEPTH { 15 } else { 5 };
        match self.below(kinds) {
            0 => {
                self.pick(&["local a", "local b", "local c", "local f", "a", "b", "c", "f", "a, b", "local a, b, c"]);
                self.put(" = ");
                self.expressions();
            }
            1 | 2 => self.call(),
            3 => {
                self.put("return ");
                self.expressions();
                self.put("\n");
                return true;
            }
            4 => {
                self.put("return ");
                self.call();
                self.put("\n");
                return true;
            }
            5 => {
                self.put("if ");
                self.expression();
                self.put(" then\n");
                self.block();
                if self.below(2) == 1 {
                    self.put("else\n");
                    self.block();
                }
                self.put("end");
            }
            6 => {
                self.pick(&[
                    "for i = 1, 3",
                    "for i = 3, 1, -1",
                    "for _, i in ipairs(KEYS)",
                    "for i in string.gmatch('ab', '.')",
                ]);
                self.put(" do\n");
                self.block();
                self.put("end");
            }
            7 => {
                self.put("local function g(...)\nlocal a, b = ...\n");
                self.block();
                self.put("end\n");
                self.pick(&["g(1)", "return g(a, b)", "c = g", "pcall(g, 1)", "b = g()"]);
            }
            8 => {
                self.put("while b do\n");
                self.block();
                self.put("b = nil\nend");
            }
            9 => {
                self.put("do\nlocal up = ");
                self.expression();
                self.put("\nc = function(...) up = up or ... ");
                self.put("return ");
                self.call();
                self.put(" end\n");
                self.block();
                self.put("end");
            }
            10 => {
                self.put("repeat\nlocal a = ");
                self.expression();
                self.put("\nif a then break end\n");
                self.block();
                self.put("until true");
            }
            11 => {
                self.put("if not r then goto done end\ndo\n");
                self.block();
                self.put("end\n::done::");
            }
            12 => self.pick(&["redis.log(redis.LOG_NOTICE, tostring(b))", "redis.setresp(3)", "redis.setresp(2)"]),
            13 => self.pick(&[
                "KEYS[1] = 'x'",
                "ARGV[3] = b",
                "KEYS = {}",
                "c = KEYS",
                "x = 1",
                "redis = nil",
                "redis.call = f",
            ]),
            _ => {
                self.put("a = pcall(function(...)\n");
                self.block();
                self.put("end)");
            }
        }
        self.put("\n");
        // `return g(a, b)` above may end a block, too; a text that does not compile is compared as well.
        false
    }

    fn call(&mut self) {
        self.pick(&[
            "redis.call(",
            "redis.pcall(",
            "server.call(",
            "r.call(",
            "f(",
            "(c or redis).call(",
            "(r and redis.call or redis.pcall)(",
            "redis['call'](",
            "tostring(",
            "select('#', ",
            "pcall(redis.call, ",
            "pcall(error, ",
            "unpack({}, ",
            "type(",
            "c(",
            "server.pcall(",
            "redis.sha1hex(",
            "redis.error_reply(",
            "cjson.encode(",
        ]);
        self.arguments();
        self.put(")");
    }

    fn arguments(&mut self) {
        match self.below(6) {
            0 => self.put("'echo', 'x'"),
            1 => {
                self.put("'ECHO', ");
                self.expression();
            }
            2 => self.put("'incr', KEYS[1]"),
            3 => {
                self.pick(&["'set', KEYS[1], ", "'get', ", "'time', ", "'nosuch', "]);
                self.expressions();
            }
            _ => self.expressions(),
        }
    }

    fn expressions(&mut self) {
        self.expression();
        while self.below(4) == 3 {
            self.put(", ");
            self.expression();
        }
    }

    fn expression(&mut self) {
        self.depth += 1;
        match self.below(if self.depth < MAX_DEPTH + 2 { 12 } else { 4 }) {
            0 => self.pick(&["a", "b", "c", "nil", "true", "false"]),
            1 => self.pick(&["1", "0", "-1", "1.5", "2^53", "'x'", "''", "'k1'"]),
            2 => {
                self.pick(&["KEYS[1]", "KEYS[2]", "#KEYS", "#ARGV", "ARGV[1]", "ARGV[2]", "ARGV[b]", "KEYS.x", "(...)"])
            }
            3 => self.pick(&[
                "redis",
                "server",
                "redis.call",
                "server.pcall",
                "f",
                "r.pcall",
                "redis.nosuch",
                "KEYS",
                "_G",
            ]),
            4..=6 => self.call(),
            7 => {
                self.put("{");
                self.expressions();
                self.put("}");
            }
            8 => {
                self.put("(function(...) ");
                self.pick(&["return ", "local a = ", "if b then return 1 end return "]);
                self.call();
                self.put(" end)(");
                self.expressions();
                self.put(")");
            }
            9 => {
                self.expression();
                self.pick(&[" and ", " or ", " == ", " ~= "]);
                self.expression();
            }
            10 => {
                self.put("string.sub(tostring(");
                self.expression();
                self.put(") .. 'z', 1, 40)");
            }
            _ => {
                self.put("not ");
                self.expression();
            }
        }
        self.depth -= 1;
    }
}
