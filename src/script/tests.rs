//! Scripts on a toy engine, compared with replies of Redis 7.0.15 (`golden/`, recorded by `golden/record.py`).

use std::collections::HashMap;
use std::path::Path;

use super::*;
use crate::resp::reply::{Form, Reply};
use crate::resp::request::{Argv, OwnedArgv};

/// A few commands on a map.
#[derive(Default)]
pub(super) struct Toy {
    strings: HashMap<Vec<u8>, Vec<u8>>,
    pub(super) calls: usize,
    pub(super) asked: usize,
    pub(super) kill_after: Option<usize>,
    pub(super) logged: Vec<(LogLevel, Vec<u8>)>,
}

impl Host for Toy {
    fn call(&mut self, argv: Argv<'_>, reply: &mut Reply) {
        self.calls += 1;
        match (argv[0].to_ascii_lowercase().as_slice(), argv.len()) {
            (b"echo", 2) => reply.bulk(&argv[1]),
            (b"get", 2) => reply.bulk_or_null(self.strings.get(&argv[1]).map(Vec::as_slice)),
            (b"set", 3) => {
                self.strings.insert(argv[1].to_vec(), argv[2].to_vec());
                reply.ok();
            }
            (b"incr", 2) if &argv[1] == b"list" => {
                reply.error(b"WRONGTYPE Operation against a key holding the wrong kind of value");
            }
            (b"incr", 2) => {
                let value = self.strings.entry(argv[1].to_vec()).or_default();
                let next = std::str::from_utf8(value).unwrap().parse::<i64>().unwrap_or(0) + 1;
                *value = next.to_string().into_bytes();
                reply.integer(next);
            }
            (b"expire", 3) => reply.integer(1),
            (b"hgetall", 2) => reply.map(0),
            _ => reply.error(b"ERR Unknown Redis command called from script"),
        }
    }

    fn interrupted(&mut self) -> Verdict {
        self.asked += 1;
        if self.kill_after.is_some_and(|n| self.asked > n) { Verdict::Kill } else { Verdict::Continue }
    }

    fn log(&mut self, level: LogLevel, message: &[u8]) {
        self.logged.push((level, message.to_vec()));
    }

    fn set_resp(&mut self, _version: u8) {}
}

pub(super) fn vm() -> Vm {
    Vm::new(ServerVersion { text: "7.0.15", number: 0x0007_000f }, 0).expect("a fresh state")
}

/// Runs a script like EVAL, with the keys and arguments of the transcripts.
pub(super) fn eval(vm: &mut Vm, toy: &mut Toy, form: Form, script: &str) -> String {
    let program = match vm.compile(script.as_bytes()) {
        Ok(program) => program,
        Err(error) => return format!("-{error}\\r\\n").replace('\'', "\\'").replace('"', "\\\""),
    };
    let answer = run(vm, toy, form, program, &store::sha1_hex(script.as_bytes()));
    vm.release(program);
    answer
}

/// Runs a compiled script.
pub(super) fn run(vm: &mut Vm, toy: &mut Toy, form: Form, program: Handle, name: &[u8]) -> String {
    let (mut keys, mut args) = (OwnedArgv::default(), OwnedArgv::default());
    [b"k1".as_slice(), b"k2"].into_iter().for_each(|key| keys.push(key));
    [b"a1".as_slice(), b"2"].into_iter().for_each(|arg| args.push(arg));
    let mut reply = Reply::new(form);
    let (keys, args) = (keys.as_argv(), args.as_argv());
    vm.run(Invocation { program, passing: Passing::Globals, name, keys, args }, toy, &mut reply);
    reply.as_bytes().escape_ascii().to_string()
}

struct Case {
    script: String,
    two: String,
    three: Option<String>,
}

/// Reads a transcript. A text after `=` replaces the reply of Redis. Cases marked `?` are left out.
fn read_cases(path: &Path) -> Vec<Case> {
    let text = std::fs::read_to_string(path).expect("a transcript of this repository");
    let mut cases = Vec::new();
    for block in text.split("\n\n") {
        let lines =
            |prefix: &str| -> Vec<&str> { block.lines().filter_map(|line| line.strip_prefix(prefix)).collect() };
        let script = lines("> ").join("\n");
        if script.is_empty() || block.lines().any(|line| line.starts_with('?')) {
            continue;
        }
        let one = |ours: &str, redis: &str| {
            lines(ours).first().or(lines(redis).first()).map(|line| line.trim_end_matches('\n').to_owned())
        };
        let two = one("=2 ", "2 ").expect("each case has its answer");
        let three = if lines("=2 ").is_empty() {
            one("=3 ", "3 ")
        } else {
            lines("=3 ").first().map(|line| (*line).to_owned())
        };
        cases.push(Case { script, two, three });
    }
    cases
}

/// The transcripts, one file each.
fn transcripts() -> impl Iterator<Item = Vec<Case>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/script/golden");
    let files = std::fs::read_dir(folder).expect("the folder of transcripts");
    let paths = files.map(|entry| entry.expect("a readable folder").path());
    paths.filter(|path| path.extension().is_some_and(|extension| extension == "txt")).map(|path| read_cases(&path))
}

/// The scripts of all transcripts.
pub(super) fn transcribed_scripts() -> Vec<String> {
    transcripts().flatten().map(|case| case.script).collect()
}

#[test]
fn replies_equal_those_of_redis() {
    let mut failures = Vec::new();
    let mut count = 0;
    for cases in transcripts() {
        let mut vm = vm();
        for case in cases {
            for (form, want) in [(Form::Resp2, &case.two), (Form::Resp3, case.three.as_ref().unwrap_or(&case.two))] {
                count += 1;
                let got = eval(&mut vm, &mut Toy::default(), form, &case.script);
                if got != *want {
                    failures.push(format!("{:?} {}\n  redis {want}\n  ours  {got}", form, case.script));
                }
            }
        }
    }
    assert!(count > 0);
    assert!(failures.is_empty(), "{} of {count} differ:\n{}", failures.len(), failures.join("\n"));
}

/// Attempts to leave the sandbox or to change shared state. Each script must fail, or return `ok`.
pub(super) const ESCAPES: &[&str] = &[
    "redis.call = function() return 'evil' end",
    "redis = nil",
    "_G.redis = nil",
    "_G['tonumber'] = nil",
    "local g = _G g.x = 1",
    "rawset(_G, 'x', 1)",
    "rawset(redis, 'call', 1)",
    "rawset(string, 'len', 1)",
    "setmetatable(_G, {})",
    "setmetatable(redis, {__index = {}})",
    "setmetatable(string, nil)",
    "getmetatable(_G).__index = nil",
    "getmetatable('').__index = {}",
    "rawset(getmetatable(''), '__index', {})",
    "rawset(getmetatable(_G), '__index', {})",
    "getmetatable(redis).__newindex = nil",
    "table.insert(redis, 1)",
    "table.insert(_G, 1, 2)",
    "local n, t = pairs(redis) rawset(t, 'call', 1)",
    "local n, t = pairs(_G) t.x = 1",
    "local n, t = ipairs(string) t.x = 1",
    "for k in pairs(redis) do redis[k] = nil end",
    "table.foreach(redis, function(k) redis[k] = 1 end)",
    "loadstring('x = 1')()",
    "loadstring('redis.call = 1')()",
    "load(function() return nil end) x = 1",
    "setfenv(1, {})",
    "getfenv(1).x = 1",
    "debug.getregistry()",
    "require('ffi')",
    "jit.on()",
    "ffi.cdef('int x')",
    "package.loadlib('x', 'y')",
    "io.open('/etc/passwd')",
    "os.execute('true')",
    "dofile('/etc/passwd')",
    "loadfile('/etc/passwd')",
    "newproxy(true)",
    "print('x')",
    "module('x')",
    "local f = loadstring(string.dump(function() end)) f()",
    "local f = assert(loadstring('\\27LJ\\2\\0'))",
    "local f = load(function() return '\\27LJ' end) f()",
    "return 42LL",
    "local x = 1i",
    "coroutine.wrap(function() redis.call = 1 end)()",
    "coroutine.wrap(function() x = 1 end)()",
    "local t = setmetatable({}, {__index = _G}) t.redis.call = 1",
    "local t = setmetatable({}, {__newindex = redis}) t.call = 1",
    "local t = setmetatable({}, getmetatable('')) if t.len then return 'ok' end error()",
    "table.sort(redis) table.remove(redis) string.foo = 1",
    "cjson.encode = nil",
    "cjson.null.x = 1",
    "cmsgpack.pack = nil",
    "struct.pack = nil",
    "bit.band = nil",
    "math.random = nil",
    "coroutine.create = nil",
    "os.clock = nil",
    "KEYS = {}",
    "ARGV = nil",
    "for k, v in pairs(getmetatable(_G)) do getmetatable(_G)[k] = nil end",
    "xpcall(function() error() end, function() redis.call = 1 end) error('still here')",
    "string.gsub('x', 'x', function() x = 1 end)",
    "redis.foo.bar = 1",
    "local ok, e = pcall(function() return undeclared end) error(e)",
    "rawset(os, 'x', 1)",
];

#[test]
fn nothing_leaves_the_sandbox() {
    let mut vm = vm();
    for form in [Form::Resp2, Form::Resp3] {
        for script in ESCAPES {
            let got = eval(&mut vm, &mut Toy::default(), form, script);
            assert!(got.starts_with('-') || got == "$2\\r\\nok\\r\\n", "{script}: {got}");
            // The next script must find everything in place.
            let check = "local n = 0 for k in pairs(redis) do n = n + 1 end
                assert(n > 20 and redis.call('echo', 'x') == 'x' and ('x'):len() == 1 and rawget(_G, 'x') == nil)
                assert(tonumber('1') == 1 and type(math.random()) == 'number' and #redis == 0 and next(string) ~= nil)
                assert(cjson.encode({1}) == '[1]' and #cmsgpack.pack(1) == 1 and struct.size('i') == 4)
                return #KEYS + #ARGV";
            assert_eq!(eval(&mut vm, &mut Toy::default(), form, check), ":4\\r\\n", "after {script}");
        }
    }
}

#[test]
fn globals_are_those_of_redis() {
    let list = "local t = {} for k in pairs(_G) do t[#t + 1] = k end table.sort(t) return table.concat(t, ' ')";
    let got = eval(&mut vm(), &mut Toy::default(), Form::Resp2, list);
    let want = "ARGV KEYS _G _VERSION assert bit cjson cmsgpack collectgarbage coroutine error gcinfo getmetatable \
                ipairs load loadstring math next os pairs pcall rawequal rawget rawset redis select server \
                setmetatable string struct table tonumber tostring type unpack xpcall";
    assert_eq!(got, format!("${}\\r\\n{want}\\r\\n", want.len()));
}

#[test]
fn a_killed_script_ends_whatever_errors_it_catches() {
    let mut vm = vm();
    let scripts = [
        "while true do end",
        "while true do pcall(function() while true do end end) end",
        "while true do pcall(redis.call, 'get', 'x') end",
        "local co = coroutine.wrap(function() while true do end end) while true do pcall(co) end",
        "xpcall(function() while true do end end, function() while true do end end)",
        "xpcall(function() error('x') end, function() while true do end end)",
        "while true do local co = coroutine.create(function() while true do coroutine.yield() end end)
         while true do coroutine.resume(co) end end",
        "local t = setmetatable({}, {__index = function(t, k) while true do end end}) return t.x",
        "table.sort({1, 2, 3}, function() while true do end end)",
        "('x'):gsub('x', function() while true do end end)",
        "return loadstring('while true do end')()",
        "local n = 0 load(function() n = n + 1 while n > 3 do end return ' ' end)",
        "local s = ('a'):rep(100000) return s:find('.-.-.-.-b')",
        "local s = ('a'):rep(100000) while true do pcall(string.find, s, '.-.-.-.-b') end",
        "for w in (('a'):rep(100000)):gmatch('.-.-.-.-b') do end",
        "local function f() return f() end f()",
        "repeat until false",
        "local function f() pcall(f) pcall(f) end while true do f() end",
        "local t = {1} for i = 1, 60 do t = {t, t} end return cjson.encode(t)",
        "local t = {{}} for i = 1, 60 do t = {t, t} end return t",
        "local t = {{}} for i = 1, 14 do local s = {} for j = 1, 1000 do s[j] = t end t = s end \
         return cmsgpack.pack(t)",
        "table.insert({}, -2147483647, 1)",
        "local t = {} for i = 1, 2e5 do t[i] = i * 7919 % 200003 end while true do table.sort(t) end",
        "local s = '[' .. ('0,'):rep(2e6) .. '0]' while true do cjson.decode(s) end",
        "local s = '\\221\\0\\30\\0\\0' .. ('\\1'):rep(1966080) while true do cmsgpack.unpack(s) end",
    ];
    for script in scripts {
        let mut toy = Toy { kill_after: Some(2), ..Toy::default() };
        let got = eval(&mut vm, &mut toy, Form::Resp2, script);
        assert!(got.starts_with("-ERR Script killed by user with SCRIPT KILL..."), "{script}: {got}");
        assert_eq!(eval(&mut vm, &mut Toy::default(), Form::Resp2, "return 1"), ":1\\r\\n", "after {script}");
    }
}

/// How often the engine is asked about a script while the clock ticks without pause.
fn times_asked(script: &str) -> usize {
    let (mut vm, mut toy) = (vm(), Toy::default());
    let got = super::alarm::tests::ring_always(|| eval(&mut vm, &mut toy, Form::Resp2, script));
    assert!(!got.starts_with('-'), "{script}: {got}");
    toy.asked
}

#[test]
fn each_library_call_checks_for_the_end() {
    // The clock sets no hook here: the functions themselves ask.
    for call in [
        "redis.call('echo', 'x')",
        "redis.pcall('nosuch')",
        "redis.log(redis.LOG_DEBUG, 'x')",
        "string.upper('x')",
        "string.find('x', 'x', 1, true)",
        "table.insert({}, 1)",
        "rawget({}, 1)",
        "cjson.encode(1)",
        "cmsgpack.pack(1)",
        "struct.size('b')",
        "loadstring('')",
    ] {
        let asked = times_asked(&format!("for i = 1, 1000 do {call} end return 1"));
        assert!(asked >= 1000, "{call} is asked {asked} times");
    }
}

#[test]
fn a_hook_leaves_the_stack_unchanged() {
    let (mut vm, mut toy) = (vm(), Toy::default());
    for script in [
        "return math.max(unpack({3, 1, 4, 1, 5, 9, 2, 6, 5, 3}))",
        "return math.max(7, 8, unpack({3, 1, 4, 1, 5, 9, 2, 6, 5, 3}))",
        "local max = math.max return max(unpack({3, 1, 4, 1, 5, 9, 2, 6, 5, 3}))",
        "return redis.call(unpack({'echo', 'x'}))",
        "return select('#', unpack({3, 1, 4, 1, 5, 9, 2, 6, 5, 3}))",
        // The first return precedes the first closure.
        "local function most(early, ...) local sum = 0 if early then return math.max(unpack({...})) end
         local function add(n) sum = sum + n end add(10) return math.max(sum, unpack({...})) end
         return {most(true, 3, 1, 4, 1, 5, 9, 2), most(false, 3, 1, 4, 1, 5, 9, 2)}",
        "local function list(...) return {...} end return list(unpack({3, 1, 4, 1, 5, 9, 2, 6, 5, 3}))",
        "local function pass(...) return 0, unpack({...}) end return {pass(3, 1, 4, 1, 5, 9, 2, 6, 5, 3)}",
        "return math.max(unpack({3, 1, 4, 1, 5, 9, 2, 6, 5, 3}), unpack({2, 7, 1, 8, 2, 8, 1, 8, 2, 8}))",
    ] {
        // After the first check, the hook runs at each instruction.
        let script = format!("redis.call('echo', 'x') {script}");
        let wanted = eval(&mut vm, &mut toy, Form::Resp2, &script);
        assert!(!wanted.starts_with('-'), "{script}: {wanted}");
        let asked = toy.asked;
        let got = super::alarm::tests::hook_always(|| eval(&mut vm, &mut toy, Form::Resp2, &script));
        assert_eq!(got, wanted, "{script}");
        assert!(toy.asked > asked + 5, "{script} was asked {} times", toy.asked - asked);
    }
}

#[test]
fn c_functions_that_call_others_check_for_the_end_in_between() {
    // No Lua instruction runs in between; the last function of each pair is LuaJIT's own.
    let elements = "local t = {} for i = 1, 1000 do t[i] = 'echo' end ";
    for script in [
        "(('echo x '):rep(1000):gsub('(%a+) (%a)', redis.call))",
        "(('x'):rep(1000):gsub('.', string.len))",
        "(('x'):rep(1000):gsub('.', setmetatable({}, {__index = rawequal})))",
        &format!("(function() {elements} pcall(table.sort, t, redis.pcall) return 1 end)()"),
        &format!("(function() {elements} pcall(table.sort, t, rawequal) return 1 end)()"),
    ] {
        let asked = times_asked(&format!("return {script}"));
        assert!(asked >= 1000, "{script} is asked {asked} times");
    }
}

#[test]
fn long_work_inside_one_function_checks_for_the_end() {
    for (script, at_least) in [
        ("#('ab'):rep(1e7)", 60),
        ("#('x'):rep(1e7):upper()", 60),
        ("#('x'):rep(1e7):lower()", 60),
        ("#('x'):rep(1e7):reverse()", 60),
        ("redis.sha1hex(('x'):rep(1e7))", 60),
        ("#cjson.encode(('x'):rep(1e6))", 200),
        ("#cjson.decode('\"' .. ('\\\\n'):rep(1e5) .. '\"')", 100_000),
        ("#cjson.decode((' '):rep(1e5) .. '[]')", 100_000),
        ("struct.size(('<'):rep(1e5))", 100_000),
        ("struct.unpack(('<'):rep(1e5) .. 'b', 'x')", 100_000),
        ("tostring(('x'):rep(1000):find('[' .. ('y'):rep(1e4) .. ']'))", 1_000),
        ("tostring(('x'):rep(1000):find('%f[' .. ('y'):rep(1e4) .. ']'))", 1_000),
        ("tostring((('a'):rep(2e4) .. 'b'):find('(a*)%1c'))", 1_000),
        ("#(('x'):rep(100):gsub('', ('%0'):rep(1000)))", 100_000),
        ("#string.format(('%%'):rep(1e5))", 100_000),
        (
            "(function() local n = 0 load(function() n = n + 1 if n < 1000 then return ' ' end end) return n end)()",
            1_000,
        ),
        ("(function() local t = {} for i = 1, 1e4 do t[i] = i end return t end)()", 20_000),
    ] {
        let asked = times_asked(&format!("return {script}"));
        assert!(asked >= at_least, "{script} is asked {asked} times");
    }
}

/// The stack may end anywhere in a frame; there must be room for the message.
#[test]
fn a_stack_overflow_is_reported_for_frames_of_every_size() {
    let mut vm = vm();
    for locals in 0..24 {
        for arguments in ["", "1", "1, 1", "1, 1, 1"] {
            let names: String = (0..locals).map(|i| format!("local x{i} = 1 ")).collect();
            let script = format!("local function f(...) {names} return f({arguments}) + 1 end return f()");
            let reply = eval(&mut vm, &mut Toy::default(), Form::Resp2, &script);
            assert!(reply.starts_with("-ERR user_script:1: stack overflow"), "{script}\n{reply}");
        }
    }
}

#[test]
fn deep_recursion_is_an_error() {
    let mut vm = vm();
    let scripts = [
        "local function f() return f() + 1 end return f()",
        "local function f() return ('x'):gsub('x', f) end return f()",
        "local function f() coroutine.wrap(f)() end f()",
        "local function f() local co = coroutine.create(f) return 1 + coroutine.resume(co) end f() error('ok')",
        "local function f() table.sort({1, 2, 3}, f) end f()",
        "local function f() return load(f) end f() error('ok')",
        "local t = setmetatable({}, {}) \
         getmetatable(t).__tostring = function() return tostring(t) end return tostring(t)",
        "local t = setmetatable({}, {}) getmetatable(t).__index = function(_, k) return t[k] .. 'x' end return t.x",
        "local t = setmetatable({}, {}) getmetatable(t).__concat = function() return t .. t end return t .. t",
        "local t = setmetatable({}, {}) getmetatable(t).__lt = function() return t < t end return t < t",
        "local function f() return xpcall(f, f) end f() error('ok')",
        "local function f(k, v) table.foreach({1}, f) end f()",
        "local t = {} t[1] = t return cjson.encode(t)",
        "cjson.encode_max_depth(1e8) local t = {} t[1] = t local ok, e = pcall(cjson.encode, t)
         cjson.encode_max_depth(1000) error(e)",
        "cjson.decode_max_depth(1e8) local ok, e = pcall(cjson.decode, ('['):rep(1e6))
         cjson.decode_max_depth(1000) error(e)",
        "return cmsgpack.unpack(('\\145'):rep(1e6))",
        "return ('a'):rep(300000):find(('a?'):rep(300000) .. 'b')",
        "return ('a'):rep(300000):find(('('):rep(300000))",
        "return loadstring('return ' .. ('('):rep(100000) .. (')'):rep(100000))()",
        "return ('x'):rep(1e10)",
        "local s = ('x'):rep(1e6) return (s:gsub('x', s))",
        "return unpack({}, 1, 1e6)",
        "return redis.call(unpack({}, 1, 7000))",
    ];
    for script in scripts {
        let got = eval(&mut vm, &mut Toy::default(), Form::Resp2, script);
        assert!(got.starts_with('-'), "{script}: {}", &got[..got.len().min(200)]);
        assert_eq!(eval(&mut vm, &mut Toy::default(), Form::Resp2, "return 1"), ":1\\r\\n", "after {script}");
    }
}

/// The depths are those of Redis, which counts values on Lua's stack.
#[test]
fn replies_nest_as_deep_as_in_redis() {
    let mut vm = vm();
    for (script, head, depth, tail) in [
        ("local a = {} a[1] = a return a", "*1\\r\\n", 7995, "-"),
        ("local a = {1} a[2] = a return a", "*2\\r\\n:1\\r\\n", 7994, "*2\\r\\n--"),
        ("local a = {map = {}} a.map.x = a return a", "*2\\r\\n$1\\r\\nx\\r\\n", 2664, "*2\\r\\n--"),
        ("local a = {map = {}} a.map[a] = 1 return a", "*2\\r\\n", 1998, "*2\\r\\n--"),
        ("local a = {set = {}} a.set[a] = true return a", "*1\\r\\n", 2665, "-"),
    ] {
        let mut got = eval(&mut vm, &mut Toy::default(), Form::Resp2, script);
        got = got.replace("-ERR reached lua stack limit\\r\\n", "-");
        let values = if script.contains("= 1") { ":1\\r\\n".repeat(depth) } else { String::new() };
        assert!(got == head.repeat(depth) + tail + &values, "{script}: {} heads", got.matches(head).count());
    }
}

#[test]
fn logs_reach_the_engine() {
    let mut toy = Toy::default();
    eval(&mut vm(), &mut toy, Form::Resp2, "redis.log(redis.LOG_WARNING, 'a', 1, {}, 'b')");
    assert_eq!(toy.logged, [(LogLevel::Warning, b"a 1 b".to_vec())]);
}

#[test]
fn released_scripts_are_collected() {
    let (mut vm, mut toy) = (vm(), Toy::default());
    let many = |vm: &mut Vm, toy: &mut Toy| {
        (0..200).for_each(|i| assert_eq!(eval(vm, toy, Form::Resp2, &format!("return {i}")), format!(":{i}\\r\\n")));
        vm.collect();
        vm.memory_bytes()
    };
    let before = many(&mut vm, &mut toy);
    assert!(many(&mut vm, &mut toy) < before + 4 * 1024);
}

#[test]
fn each_script_sees_its_own_keys_and_arguments() {
    let (mut vm, mut toy) = (vm(), Toy::default());
    let program =
        vm.compile(b"return {KEYS[1] or '-', KEYS[5] or '-', #KEYS, ARGV[1] or '-', ARGV[2] or '-', #ARGV}").unwrap();
    // Short and long elements, some of which are repeated at their place.
    let texts: Vec<String> =
        [0, 1, 1, 2, 30, 31, 32, 40].iter().zip('a'..).map(|(&n, c)| c.to_string().repeat(n)).collect();
    let mut rng = crate::base::rng::Rng::seeded(7);
    let mut pick = |most: u64| -> Vec<&str> {
        (0..rng.below(most)).map(|_| texts[rng.below(texts.len() as u64) as usize].as_str()).collect()
    };
    for round in 0..20_000 {
        let (keys, args) = (pick(if round % 100 == 0 { 90 } else { 7 }), pick(4));
        let mut want = Reply::new(Form::Resp2);
        want.array(6);
        let bulk = |want: &mut Reply, list: &[&str], i: usize| want.bulk(list.get(i).unwrap_or(&"-").as_bytes());
        [0, 4].into_iter().for_each(|i| bulk(&mut want, &keys, i));
        want.integer(keys.len() as i64);
        [0, 1].into_iter().for_each(|i| bulk(&mut want, &args, i));
        want.integer(args.len() as i64);
        let [mut owned_keys, mut owned_args] = [OwnedArgv::default(), OwnedArgv::default()];
        keys.iter().for_each(|key| owned_keys.push(key.as_bytes()));
        args.iter().for_each(|arg| owned_args.push(arg.as_bytes()));
        let (keys, args) = (owned_keys.as_argv(), owned_args.as_argv());
        let mut reply = Reply::new(Form::Resp2);
        vm.run(Invocation { program, passing: Passing::Globals, name: b"", keys, args }, &mut toy, &mut reply);
        assert_eq!(reply.as_bytes().escape_ascii().to_string(), want.as_bytes().escape_ascii().to_string());
    }
}

#[test]
fn equal_objects_are_encoded_equally_whatever_ran_before() {
    let mut vm = vm();
    let script = "for fields = 0, 40 do \
          local names, others = {}, {} \
          for i = 1, fields do names[i] = '\"name' .. i * 7919 .. '\":' .. i end \
          for i = 1, 40 - fields do others[i] = '\"other' .. i .. '\":' .. i end \
          local one, other = '{' .. table.concat(names, ',') .. '}', '{' .. table.concat(others, ',') .. '}' \
          local all = cjson.decode('[' .. \
            table.concat({one, one, other, one, '{}', one, '[' .. one .. ']'}, ',') .. ']') \
          for _, same in ipairs({all[2], all[4], all[6], all[7][1]}) do \
            if cjson.encode(same) ~= cjson.encode(all[1]) then return fields end \
          end \
        end return 'equal'";
    assert_eq!(eval(&mut vm, &mut Toy::default(), Form::Resp2, script), "$5\\r\\nequal\\r\\n");
}

#[test]
fn no_script_sees_the_keys_of_another() {
    let (mut vm, mut toy) = (vm(), Toy::default());
    let mut run = |script: &str, count: usize| {
        let (mut keys, args) = (OwnedArgv::default(), OwnedArgv::default());
        (0..count).for_each(|i| keys.push(format!("k{i}").as_bytes()));
        let program = vm.compile(script.as_bytes()).unwrap();
        let mut reply = Reply::new(Form::Resp2);
        let (keys, args) = (keys.as_argv(), args.as_argv());
        vm.run(Invocation { program, passing: Passing::Globals, name: b"", keys, args }, &mut toy, &mut reply);
        reply.as_bytes().escape_ascii().to_string()
    };
    let reads = "return {#KEYS, KEYS[1], KEYS[3] or 'none'}";
    let seen = |n: usize, first: &str, third: &str| {
        let bulk = |text: &str| format!("${}\\r\\n{text}\\r\\n", text.len());
        format!("*3\\r\\n:{n}\\r\\n{}{}", bulk(first), bulk(third))
    };
    assert_eq!(run(reads, 5), seen(5, "k0", "k2"));
    assert_eq!(run(reads, 2), seen(2, "k0", "none"));
    assert_eq!(run(reads, 100), seen(100, "k0", "k2"));
    assert_eq!(run(reads, 1), seen(1, "k0", "none"));
    for spoils in [
        "KEYS[3] = 'x' KEYS.a = 1",
        "local k = KEYS k[3] = 'x'",
        "local k = KEYS local a = k[1] k[3] = a",
        "local f = function() return KEYS end f()[3] = 'x'",
        "setmetatable(KEYS, {__index = function() return 'x' end})",
        "rawset(KEYS, 3, 'x')",
        "table.insert(KEYS, 3, 'x')",
        "_G.KEYS[3] = 'x'",
        "_G['KEYS'][3] = 'x'",
        "loadstring('KEYS[3] = 1')()",
        "local k = (KEYS[9] or KEYS) k[3] = 'x'",
        "local k = #KEYS and KEYS k[3] = 'x'",
    ] {
        assert!(!run(spoils, 1).starts_with('-'), "{spoils}");
        assert_eq!(run(reads, 1), seen(1, "k0", "none"), "after {spoils}");
        assert_eq!(run("local n = 0 for k in pairs(KEYS) do n = n + 1 end return n", 1), ":1\\r\\n", "after {spoils}");
    }
}

#[test]
fn calls_are_loaded_directly_only_where_they_are_written_so() {
    let (mut vm, mut toy) = (vm(), Toy::default());
    let echo = "$1\\r\\nx\\r\\n";
    for script in [
        "return redis.call('echo', 'x')",
        "return redis.pcall('echo', 'x')",
        "return (redis).call('echo', 'x')",
        "return (false or redis).call('echo', 'x')",
        "return ({call = function() return 'x' end} or redis).call('echo', 'y')",
        "local r = KEYS[9] and redis or {call = function() return 'x' end} return r.call('echo', 'y')",
        "return (KEYS[1] and {call = function() return 'x' end} or redis).call('echo', 'y')",
        "local redis = {call = function() return 'x' end} return redis.call('echo', 'y')",
        "local f = function() return redis.call end return f()('echo', 'x')",
        "local c, p = redis.call, redis.pcall return c == p and 'y' or c('echo', 'x')",
        "for i = 1, 3 do redis.call('echo', i) end while true do return redis.call('echo', 'x') end",
    ] {
        assert_eq!(eval(&mut vm, &mut toy, Form::Resp2, script), echo, "{script}");
    }
}

#[test]
fn errors_of_calls_returned_before_a_closure_is_made_are_located() {
    let script = "if KEYS[1] then\n return redis.call('incr', 'list') end\n local a = 1\n\
                  local f = function() return a end\n return f()";
    let answer = eval(&mut vm(), &mut Toy::default(), Form::Resp2, script);
    assert!(answer.ends_with("on @user_script:2.\\r\\n"), "{answer}");
}

#[test]
fn a_script_of_very_many_calls_compiles() {
    // This takes linear time. A search through the whole script for each call took minutes.
    let script = format!("local f = function() {} end return 1", "redis.call() ".repeat(50_000));
    assert_eq!(eval(&mut vm(), &mut Toy::default(), Form::Resp2, &script), ":1\\r\\n");
}

#[test]
fn scripts_that_assign_globals_fail_only_where_they_do() {
    let mut vm = vm();
    let script = "if ARGV[1] == 'no' then x = 1 end return redis.call('echo', KEYS[1])";
    assert_eq!(eval(&mut vm, &mut Toy::default(), Form::Resp2, script), "$2\\r\\nk1\\r\\n");
}

/// Loads a library and returns its functions, or the error.
fn load(vm: &mut Vm, toy: &mut Toy, code: &str) -> Result<Vec<std::sync::Arc<library::Function>>, String> {
    vm.load_library(code.as_bytes(), toy).map_err(|error| error.to_string())
}

fn fcall(vm: &mut Vm, function: &library::Function) -> String {
    let (mut keys, mut args) = (OwnedArgv::default(), OwnedArgv::default());
    keys.push(b"k1");
    args.push(b"a1");
    let mut reply = Reply::new(Form::Resp2);
    let (program, name) = (function.handle, function.name.as_bytes());
    let (keys, args) = (keys.as_argv(), args.as_argv());
    vm.run(Invocation { program, passing: Passing::Arguments, name, keys, args }, &mut Toy::default(), &mut reply);
    reply.as_bytes().escape_ascii().to_string()
}

#[test]
fn functions_get_keys_and_arguments_and_keep_their_librarys_locals() {
    let (mut vm, mut toy) = (vm(), Toy::default());
    let code = "
        local count = 0
        redis.register_function('f', function(keys, args) count = count + 1 return {keys[1], args[1], count} end)
        redis.register_function{function_name='g', description='d', flags={'no-writes'}, \
          callback=function() return KEYS end}
        redis.register_function('h', function() \
          return {count, type(redis.call), type(redis.register_function), type(math)} end)
        redis.register_function('i', function() count = nil x = 1 end)";
    let functions = load(&mut vm, &mut toy, code).unwrap();
    assert_eq!(functions.iter().map(|function| &*function.name).collect::<String>(), "fghi");
    assert_eq!((functions[1].description.as_deref(), functions[1].flags.no_writes), (Some(b"d".as_slice()), true));
    assert_eq!(fcall(&mut vm, &functions[0]), "*3\\r\\n$2\\r\\nk1\\r\\n$2\\r\\na1\\r\\n:1\\r\\n");
    // A function does not see a script's KEYS.
    eval(&mut vm, &mut toy, Form::Resp2, "return KEYS[1]");
    let error = "-ERR user_function:4: Script attempted to access nonexistent global variable \\'KEYS\\' \
                 script: g, on @user_function:4.\\r\\n";
    assert_eq!(fcall(&mut vm, &functions[1]), error);
    let types = "*4\\r\\n:1\\r\\n$8\\r\\nfunction\\r\\n$3\\r\\nnil\\r\\n$5\\r\\ntable\\r\\n";
    assert_eq!(fcall(&mut vm, &functions[2]), types);
    let error = "-ERR user_function:6: Attempt to modify a readonly table script: i, on @user_function:6.\\r\\n";
    assert_eq!(fcall(&mut vm, &functions[3]), error);
}

#[test]
fn a_library_that_fails_to_load_leaves_nothing() {
    let mut vm = vm();
    let register = "redis.register_function('f', function() end)\n";
    for (code, error) in [
        ("x x", "ERR Error compiling function: user_function:2: '=' expected near 'x'"),
        ("x = 1", "ERR Error registering functions: ERR user_function:2: Attempt to modify a readonly table"),
        (
            "redis.call('ping')",
            "ERR Error registering functions: ERR user_function:2: Script attempted to access nonexistent global \
             variable 'call'",
        ),
        (
            "redis.register_function('F', function() end)",
            "ERR Error registering functions: ERR Function already exists in the library",
        ),
        (
            "redis.register_function('a b', function() end)",
            "ERR Error registering functions: ERR Library names can only contain letters, numbers, or underscores(_) \
             and must be at least one character long",
        ),
    ] {
        let mut toy = Toy::default();
        assert_eq!(load(&mut vm, &mut toy, &format!("{register}{code}")).unwrap_err(), error);
        assert_eq!(toy.calls, 0);
    }
    let mut slow = Toy { kill_after: Some(3), ..Toy::default() };
    let error = load(&mut vm, &mut slow, &format!("{register}while true do end")).unwrap_err();
    assert_eq!(error, "ERR Error registering functions: ERR FUNCTION LOAD timeout");
    // The state is as good as new, and registered functions are collected: repeated loading does not grow it.
    let load_many = |vm: &mut Vm| {
        (0..200).for_each(|_| assert!(load(vm, &mut Toy::default(), &format!("{register}x = 1")).is_err()));
        vm.collect();
        vm.memory_bytes()
    };
    let before = load_many(&mut vm);
    assert!(load_many(&mut vm) < before + 16 * 1024);
}

#[test]
fn server_is_another_name_for_redis() {
    let (mut vm, mut toy) = (vm(), Toy::default());
    let script = "if server ~= redis or server.call ~= redis.call then return 'other' end
        local ok, e = pcall(server.call, 'nosuch') return {server.call('echo', 'x'), server.pcall('nosuch').err, e}";
    let unknown = "$44\\r\\nERR Unknown Redis command called from script\\r\\n";
    assert_eq!(eval(&mut vm, &mut toy, Form::Resp2, script), format!("*3\\r\\n$1\\r\\nx\\r\\n{unknown}{unknown}"));
    let got = eval(&mut vm, &mut toy, Form::Resp2, "local x\nreturn server.call('nosuch')");
    assert!(got.ends_with(", on @user_script:2.\\r\\n"), "{got}");
    let functions =
        load(&mut vm, &mut toy, "server.register_function('f', function() return server.call('echo', 'y') end)");
    assert_eq!(functions.map(|functions| functions.len()), Ok(1));
}

#[test]
fn settings_changed_by_a_script_are_restored() {
    let (mut vm, mut toy) = (vm(), Toy::default());
    let script = "cjson.encode_max_depth(1) cjson.decode_invalid_numbers('off') \
                  cjson.new().decode_max_depth(1) return cjson.encode_max_depth()";
    assert_eq!(eval(&mut vm, &mut toy, Form::Resp2, script), ":1\\r\\n");
    let script = "return {cjson.encode_max_depth(), cjson.decode_max_depth(), cjson.encode({{1}}), \
                  cjson.decode('[inf]')[1] > 1}";
    let kept = ":1000\\r\\n:1000\\r\\n$5\\r\\n[[1]]\\r\\n:1\\r\\n";
    assert_eq!(eval(&mut vm, &mut toy, Form::Resp2, script), format!("*4\\r\\n{kept}"));
    let mut draw = |seed: &str| eval(&mut vm, &mut toy, Form::Resp2, &format!("{seed} return math.random(1e9)"));
    let (first, seeded) = (draw(""), draw("math.randomseed(7) math.randomseed(8)"));
    let second = draw("");
    assert_eq!(draw("math.randomseed(8)"), seeded);
    assert_ne!((&first, &second), (&seeded, &seeded));
    let (mut other, mut toy) = (self::vm(), Toy::default());
    let mut draw = || eval(&mut other, &mut toy, Form::Resp2, "return math.random(1e9)");
    assert_eq!((draw(), draw()), (first, second), "another script's seed has no effect");
}
