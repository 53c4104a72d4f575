//! The language of scripts, judged by random programs: each must have its Redis meaning here.
//!
//! The programs come from [`programs`]; [`sides`] runs them on both servers. Most run under `pcall` inside
//! [`sides::RUNNER`], whose answer shows more than a reply can: the order of a table, its length, fractions, each
//! result. Some run plainly by EVAL, as clients call them. A program whose answers differ is shrunk, line by line and
//! then token by token, and printed with its seed.
//!
//! Each seed gives [`PROGRAMS_PER_SEED`] programs. `SUITE_SEED` is the first seed, `SUITE_ROUNDS` the number of seeds;
//! 0 goes on without end. Allowed differences are listed in [`sides::ALLOWED`], each with its reason;
//! `docs/compatibility.md` lists them for users.

mod programs;
mod sides;

use std::collections::BTreeSet;

use crate::differential::generate::Dice;
use crate::differential::search::{env_number, shrink};
use crate::harness::{Program, Raw, Server, Value};
use crate::oracle::REDIS_SERVER_8;
use sides::{Call, How, Sides};

/// Programs from one seed.
const PROGRAMS_PER_SEED: usize = 1000;
/// Programs in one pipeline.
const PIPELINE: usize = 50;
/// Differences reported before a search ends: one fault often shows in many ways.
const REPORTS: usize = 12;
/// The most steps of one shrinking; a difference by chance must not keep it busy for ever.
const SHRINK_MAX_STEPS: usize = 4000;

/// The stack of the thread that compares.
const DEEP_STACK_BYTES: usize = 1 << 29;
/// Bytes shown of either end of an answer.
const SHOWN_END: usize = 400;

/// The seeds requested by the environment.
fn seeds(rounds: u64) -> std::ops::Range<u64> {
    let first = env_number("SUITE_SEED").unwrap_or(20_260_101);
    match env_number("SUITE_ROUNDS").unwrap_or(rounds) {
        0 => first..u64::MAX,
        rounds => first..first.saturating_add(rounds),
    }
}

/// Programs of one seed; every eighth is broken.
fn programs(seed: u64) -> Vec<String> {
    let dice = &mut Dice(seed);
    let mut next = || {
        let program = programs::program(dice);
        if dice.once_in(8) { programs::broken(&program, dice) } else { program }
    };
    (0..PROGRAMS_PER_SEED).map(|_| next()).collect()
}

#[test]
fn programs_mean_the_same_as_on_redis() {
    if REDIS_SERVER_8.is_missing() {
        return;
    }
    // A table that holds itself becomes a reply of thousands of levels, which is decoded and compared by recursion.
    let search = std::thread::Builder::new().stack_size(DEEP_STACK_BYTES).spawn(search);
    search.expect("a thread").join().expect("the search has printed why it failed");
}

fn search() {
    let mut sides = Sides::start();
    let (mut compared, mut reports, mut told) = (0, Vec::new(), BTreeSet::new());
    'search: for seed in seeds(3) {
        let how = |number| if number % 3 == 2 { How::Plainly } else { How::UnderPcall };
        let calls: Vec<Call> = programs(seed).into_iter().enumerate().map(|(i, text)| (how(i), text)).collect();
        for pipeline in calls.chunks(PIPELINE) {
            compared += pipeline.len();
            let differing: Vec<&Call> = sides.differing(pipeline).into_iter().map(|at| &pipeline[at]).collect();
            for call in differing {
                // A difference of a known kind is not news.
                if let Some((kind, report)) = shrunk(&mut sides, call)
                    && told.insert(kind)
                {
                    reports.push(format!("SUITE_SEED={seed} SUITE_ROUNDS=1 repeats this\n{report}"));
                    eprintln!("{}", reports[reports.len() - 1]);
                }
                if reports.len() == REPORTS {
                    break 'search;
                }
            }
        }
        if (seed + 1).is_multiple_of(20) {
            eprintln!("{compared} programs so far, the last seed was {seed}; {}", sides.summary());
        }
    }
    eprintln!("{compared} programs; {}", sides.summary());
    assert!(reports.is_empty(), "{} kinds of programs differ:\n{}", reports.len(), reports.join("\n\n"));
    assert!(sides.killed() * 1000 <= compared, "programs end by themselves: {}", sides.summary());
}

/// The smallest program that still differs, with both answers, and the kind of the difference. `None` if it does not
/// differ again, or if SCRIPT LINT warns of it.
fn shrunk(sides: &mut Sides, (how, text): &Call) -> Option<(String, String)> {
    let mut steps = 0;
    let mut differs = |text: String| {
        steps += 1;
        steps <= SHRINK_MAX_STEPS && !sides.differing(&[(*how, text)]).is_empty()
    };
    let mut least = text.clone();
    loop {
        let before = least.len();
        least = shrink(owned(least.split_inclusive('\n')), |part| differs(part.concat())).concat();
        least = shrink(owned(programs::tokens(&least)), |part| differs(part.concat())).concat();
        if least.len() == before {
            break;
        }
    }
    let (ours, theirs) = sides.answers(&(*how, least.clone()))?;
    if sides.is_warned_of(&least) {
        return None;
    }
    let kind = format!("{} {}", kind_of(&ours), kind_of(&theirs));
    Some((kind, format!("{how:?}:\n{least}\n Redis: {}\n here:  {}", shown(&theirs), shown(&ours))))
}

/// Both ends of a long answer: a table that holds itself gives a megabyte.
fn shown(answer: &str) -> String {
    if answer.len() < 3 * SHOWN_END {
        return answer.to_owned();
    }
    let head: String = answer.chars().take(SHOWN_END).collect();
    let tail: Vec<char> = answer.chars().rev().take(SHOWN_END).collect();
    let tail: String = tail.into_iter().rev().collect();
    format!("{head} ... ({} bytes) ... {tail}", answer.len())
}

fn owned<'a>(parts: impl IntoIterator<Item = &'a str>) -> Vec<String> {
    parts.into_iter().map(str::to_owned).collect()
}

/// The beginning of an answer, without numbers and quoted names.
fn kind_of(answer: &str) -> String {
    let unquoted = answer.split("\\'").step_by(2).collect::<String>();
    unquoted.chars().filter(|c| !c.is_ascii_digit()).take(70).collect()
}

/// LINT reads exactly the texts that the server compiles: it refuses a text if and only if SCRIPT LOAD does, and at the
/// same line.
#[test]
fn load_and_lint_find_errors_in_the_same_line() {
    let (_server, mut raw) = Server::with_client(Program::Tidegate);
    let mut faults = Vec::new();
    for (number, text) in seeds(2).flat_map(programs).enumerate() {
        let dice = &mut Dice(number as u64);
        let text = if dice.once_in(2) { programs::broken(&text, dice) } else { text };
        let loaded = line_of_error(&raw.command(&["SCRIPT", "LOAD", &text]));
        let linted = line_of_error(&raw.command(&["SCRIPT", "LINT", &text]));
        if loaded != linted {
            faults.push(format!("LOAD: {loaded:?}, LINT: {linted:?}\n{text}"));
        }
        if number % PROGRAMS_PER_SEED == 0 {
            raw.command(&["SCRIPT", "FLUSH"]);
        }
    }
    faults.sort_by_key(String::len);
    assert!(faults.is_empty(), "{} texts are read differently, such as\n{}", faults.len(), faults[0]);
}

/// The line named by an error, 0 if it names none; `None` if the reply is not an error.
fn line_of_error(reply: &Value) -> Option<(u32, String)> {
    let Value::Error(text) = reply else { return None };
    let text = String::from_utf8_lossy(text).into_owned();
    let line = ["user_script:", "line "].iter().find_map(|before| {
        let rest = &text[text.find(before)? + before.len()..];
        rest[..rest.find(|c: char| !c.is_ascii_digit())?].parse().ok()
    });
    let refuser = if text.contains("LINT can't read") { text } else { String::new() };
    Some((line.unwrap_or(0), refuser))
}

/// The order of a table depends on its insertions, not on the server or on earlier scripts.
#[test]
fn tables_iterate_in_the_same_order_whatever_ran_before() {
    let (mut fresh, mut worn, mut crowded) = (here(), here(), here());
    for text in programs(4).iter().take(200) {
        worn.ask(&[(How::Plainly, text.clone())]);
        worn.command(&["SCRIPT", "LOAD", text]);
    }
    worn.command(&["SCRIPT", "FLUSH"]);
    // Libraries stay, and so do the strings that they keep.
    let strings = "local kept = {} for i = 1, 50000 do kept['k' .. i] = 'key' .. i end";
    let library = format!("#!lua name=kept\n{strings} redis.register_function('kept', function() return #kept end)");
    assert_eq!(crowded.command(&["FUNCTION", "LOAD", &library]), Value::bulk("kept"));
    let mut redis = (!REDIS_SERVER_8.is_missing()).then(|| sides::Side::start(Program::Redis8));
    for seed in seeds(1) {
        let dice = &mut Dice(seed);
        let calls: Vec<Call> = (0..1000).map(|_| (How::UnderPcall, programs::table_program(dice))).collect();
        for (number, pipeline) in calls.chunks(PIPELINE).enumerate() {
            if number % 4 == 0 {
                let garbage = "local t = {} for i = 1, 1000 do t['x' .. i] = {i} end collectgarbage() return #t";
                worn.command(&["EVAL", garbage, "0"]);
            }
            let [here, after_others, among_strings] =
                [&mut fresh, &mut worn, &mut crowded].map(|side| side.ask(pipeline));
            let redis = redis.as_mut().map_or_else(|| here.clone(), |redis| redis.ask(pipeline));
            for (at, (_, program)) in pipeline.iter().enumerate() {
                assert!(here[at].starts_with("\"R true"), "a plain table fails nothing: {}\n{program}", here[at]);
                assert_eq!(here[at], after_others[at], "after other scripts:\n{program}");
                assert_eq!(here[at], among_strings[at], "beside many strings:\n{program}");
                assert_eq!(redis[at], here[at], "Redis and here:\n{program}");
            }
        }
    }
}

fn here() -> sides::Side {
    sides::Side::start(Program::Tidegate)
}

/// The reply to EVAL without keys.
fn eval(raw: &mut Raw, text: &str) -> Value {
    raw.command(&["EVAL", text, "0"])
}

/// The smallest inputs on which Redis' Lua differs from LuaJIT and from later Luas, with Redis' answers.
#[test]
fn known_differences_of_luajit_are_hidden() {
    let (_server, mut raw) = Server::with_client(Program::Tidegate);
    for (text, wanted) in VALUES {
        let wanted = match wanted.parse::<i64>() {
            Ok(number) if number.to_string() == *wanted => Value::Integer(number),
            _ => Value::bulk(wanted),
        };
        assert_eq!(eval(&mut raw, text), wanted, "{text}");
    }
    for (text, wanted) in NOT_COMPILED {
        let wanted = format!("ERR Error compiling script (new function): user_script:1: {wanted}");
        assert_eq!(eval(&mut raw, text), Value::error(&wanted), "{text}");
    }
    // The last item of a constructor is evaluated at its closing brace.
    let late = eval(&mut raw, "local t = {} return {t.x.y,\n}");
    assert!(
        matches!(&late, Value::Error(text) if text.starts_with(b"ERR user_script:2: attempt to index")),
        "{late:?}"
    );
    for (text, wanted) in FAILURES {
        let reply = eval(&mut raw, text);
        let Value::Error(error) = &reply else { panic!("{text} must fail, but returned {reply:?}") };
        let error = String::from_utf8_lossy(error);
        assert!(error.starts_with(&format!("ERR user_script:1: {wanted} script: ")), "{text}: {error}");
    }
}

/// Programs and their results; a number if the result is one.
const VALUES: &[(&str, &str)] = &[
    // A field of an expression that is one of two values.
    ("local a,b=nil,{x={y=5}} return (a or b).x.y", "5"),
    ("local a,b={x=6},true return (b and a).x", "6"),
    ("local a,b=nil,{x=function() return 7 end} return (a or b).x()", "7"),
    ("local a,b=nil,{x={}} (a or b).x.y = 8 return b.x.y", "8"),
    ("local function f() end local a={x=9} return (f() or a).x", "9"),
    // Functions written in C have addresses, too; cjson.null's address is not one of a function.
    ("return (tostring(tostring):gsub('0x%x+$', 'X'))", "function: X"),
    ("return (tostring(pcall) .. tostring(string.rep)):find('#') or 0", "0"),
    ("return tostring(cjson.null)", "userdata: (nil)"),
    // The first number stays unless a later one exceeds it.
    ("return tostring(math.min(0/0, 56)) .. tostring(math.max(0/0, 56))", "-nan-nan"),
    ("return math.min(5, 0/0, 3) .. ' ' .. math.max(3, 0/0, 5)", "3 5"),
    ("return 1 / math.min(0, tonumber('-0')) .. ' ' .. 1 / math.max(tonumber('-0'), 0)", "inf -inf"),
    // A vararg function without `...` in its body has the table `arg`.
    ("local function f(...) return arg.n end return f(1,nil,3)", "3"),
    ("local function f(...) return #arg end return f(1,2)", "2"),
    ("local arg = 5 return (function(...) local n = select('#', ...) return tostring(arg) end)(1)", "nil"),
    // An unknown escape means its character.
    (r"return '\.'", "."),
    (r"return '\q\%\e'", "q%e"),
    (r#"return "\x23""#, "x23"),
    (r"return '\z  a'", "z  a"),
    (r"return '\u{48}'", "u{48}"),
    // 0 and -0 are one constant: the first one.
    ("local t = {[0] = {17, -0}} return tostring(1 / t[0][2])", "inf"),
    // A NUL byte ends a pattern.
    (r"return ('abc'):match('b\0c')", "b"),
    // The border that `#` finds in a table with holes.
    ("return #{1,nil,3}", "3"),
    ("return #{1,nil,nil,4}", "4"),
    ("return #{nil,nil,3}", "3"),
    ("local function n(...) local t={...} return #t end return n(1,nil,3)", "3"),
    ("local t = {1,nil,3} return select('#', unpack(t))", "3"),
    // Positional items are set last.
    ("local t={6,[1]=5} return t[1]", "6"),
    ("local t={[1]=5,6} return t[1]", "6"),
    // Numbers as text and from text.
    ("return tostring(0/0)", "-nan"),
    ("return tostring(-(0/0))", "nan"),
    ("return tostring(-0)", "-0"),
    ("return tostring(tonumber('inf'))", "inf"),
    ("return tostring(tonumber('nan'))", "nan"),
    (r"return tonumber('1\0')", "1"),
    ("return tostring(tonumber('0b11'))", "nil"),
    ("return tonumber('0x1p4')", "16"),
    ("return 0x1p4", "16"),
    // Numbers too large for an integer.
    ("return ('%x'):format(1e308) .. ('%u'):format(1e19) .. ('%c'):format(2^32 + 65)", "010000000000000000000"),
    ("return math.ldexp(5, 2^32 + 3)", "40"),
    ("return ('%f|%.3f'):format(5e-324, -1e-200)", "0.000000|-0.000"),
    ("return ('x'):rep(2^32 + 2)", "xx"),
    ("return struct.unpack('I8', struct.pack('I8', 1e21))", "0"),
    // A string that was once a key is found again, whenever garbage is collected.
    (
        "local function keys(collect) local t, o = {}, {} for i = 1, 30 do t['k' .. i] = i end \
         for i = 1, 30 do t['k' .. i] = nil end if collect then collectgarbage() end \
         for i = 30, 1, -1 do t['k' .. i] = i end \
         for k in pairs(t) do o[#o + 1] = k end return table.concat(o) end return tostring(keys(false) == keys(true))",
        "true",
    ),
    // A numeric `for` begins one step before its first value.
    ("for i = -0, 1 do return tostring(1 / i) end", "inf"),
    ("for i = 0.1, 2 do return ('%.17g'):format(i) end", "0.099999999999999978"),
    ("for i = 1, 2, 1/0 do return 'entered' end return 'not entered'", "not entered"),
    ("for i = 1, 5, 0 do return 'entered' end return 'not entered'", "not entered"),
    ("for i = 5, 1, 0 do return 'entered' end return 'not entered'", "entered"),
    // `goto` is a name.
    ("local goto = 7 return goto", "7"),
    // The order of texts as keys.
    (
        r#"return cjson.encode(cjson.decode('{"name":1,"age":2,"id":3,"city":4,"zip":5}'))"#,
        r#"{"name":1,"zip":5,"id":3,"age":2,"city":4}"#,
    ),
    ("return cjson.encode({a=1,b=2,c=3,d=4,e=5})", r#"{"a":1,"c":3,"b":2,"e":5,"d":4}"#),
    (
        "local t = {} for i=1,10 do t['k'..i]=i end local s='' for k in pairs(t) do s=s..k..' ' end return s",
        "k9 k8 k1 k3 k2 k10 k6 k7 k4 k5 ",
    ),
];

/// Texts that a later Lua, LuaJIT or one of its relatives would compile, and Redis' errors for them.
const NOT_COMPILED: &[(&str, &str)] = &[
    ("return 1<<3", "unexpected symbol near '<'"),
    ("return 8>>1", "unexpected symbol near '>'"),
    ("return 3&1", "'<eof>' expected near '&'"),
    ("return 3|1", "'<eof>' expected near '|'"),
    ("return ~1", "unexpected symbol near '~'"),
    ("return 3//1", "unexpected symbol near '/'"),
    ("local a return a!=1", "'<eof>' expected near '!'"),
    ("local a=1 a+=1", "'=' expected near '+'"),
    ("return nil ?? 1", "'<eof>' expected near '?'"),
    ("local a return a?.b", "'<eof>' expected near '?'"),
    ("goto x", "'=' expected near 'x'"),
    ("::x:: return 1", "unexpected symbol near ':'"),
    ("return 0b11", "malformed number near '0b11'"),
    ("return 1LL", "malformed number near '1LL'"),
    ("return 1i", "malformed number near '1i'"),
    ("local a <const> = 1", "unexpected symbol near '<'"),
];

/// Programs that fail, and their errors, with the names that Lua finds.
const FAILURES: &[(&str, &str)] = &[
    ("return {} + setmetatable({}, {__add = ''})", "attempt to call a string value"),
    ("return cjson.encode(getmetatable(''))", "Cannot serialise function: type not supported"),
    ("local b = {} do local c = 3, 'x', b end b.ok()", "attempt to call field 'ok' (a nil value)"),
    ("return (ipairs({}))(nil)", "bad argument #2 to '?' (number expected, got no value)"),
    ("setmetatable({}, {__newindex = rawset})[nil] = 1", "table index is nil"),
    ("return cjson.encode({math})", "Cannot serialise function: type not supported"),
    ("local t={{}} t[1].x.y = 1", "attempt to index field 'x' (a nil value)"),
    ("local t={} local k='x' return t[k].y", "attempt to index field '?' (a nil value)"),
    ("local t={} return t[1].y", "attempt to index field '?' (a nil value)"),
    ("local t={} t.x()", "attempt to call field 'x' (a nil value)"),
    ("local t={} t:x()", "attempt to call method 'x' (a nil value)"),
    // A surplus value before a field does not make it a method.
    ("local t={} local a=1,t t.x()", "attempt to call field 'x' (a nil value)"),
    ("local t={} local a=1,t return -t.x", "attempt to perform arithmetic on field 'x' (a nil value)"),
    ("return #nil", "attempt to get length of a nil value"),
    ("return {} .. 'x'", "attempt to concatenate a table value"),
    ("return {} < {}", "attempt to compare two table values"),
    ("return 1 < 'x'", "attempt to compare number with string"),
    ("local s = 'x' return s + 1", "attempt to perform arithmetic on local 's' (a string value)"),
    ("return string.format('%y', 1)", "invalid option '%y' to 'format'"),
    ("return table.concat({1,{},3})", "invalid value (table) at index 2 in table for 'concat'"),
    ("return load('return 1')", "bad argument #1 to 'load' (function expected, got string)"),
    ("return jit", "Script attempted to access nonexistent global variable 'jit'"),
];

/// A function may have as many constants as its text holds, and calls nest as deep as in C Lua.
#[test]
fn large_functions_and_deep_calls_run() {
    let (_server, mut raw) = Server::with_client(Program::Tidegate);
    for count in [65_537, 70_000] {
        let items: String = (1..=count).map(|i| format!("{i}.5,")).collect();
        let text = format!("local t = {{{items}}} return {{#t, tostring(t[{count}]), tostring(t[1])}}");
        let wanted = vec![Value::Integer(count), Value::bulk(&format!("{count}.5")), Value::bulk("1.5")];
        assert_eq!(eval(&mut raw, &text), Value::Array(wanted), "{count} constants");
    }
    // A call as the last item, whose position is then a constant too large for any instruction's operand.
    let numbers: String = (1..=61_500).map(|i| format!("a={i}.5 ")).collect();
    let items = "1,".repeat(299);
    let calls = format!(
        "local function f() return 7, 8 end local a = '' local b = {{{}}} {numbers} \
         local t = {{{items}f()}} return {{#t, t[300], t[301], a}}",
        (0..300).map(|i| format!("'s{i}',")).collect::<String>()
    );
    let wanted = [301, 7, 8, 61_500].map(Value::Integer).to_vec();
    assert_eq!(eval(&mut raw, &calls), Value::Array(wanted));
    let deep = format!("local function f(...) return ... end return {}7{}", "f(".repeat(150), ")".repeat(150));
    assert_eq!(eval(&mut raw, &deep), Value::Integer(7));
    let recursion = "local function f(n) if n == 0 then return 0 end return 1 + f(n - 1) end return f(15000)";
    assert_eq!(eval(&mut raw, recursion), Value::Integer(15_000));
}
