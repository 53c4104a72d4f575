//! Random sequences of FUNCTION and FCALL: libraries are loaded, replaced, dropped and restored under a few names, so
//! that they and their functions collide; each part is sometimes broken.
//!
//! Payloads of FUNCTION RESTORE are this server's own, so this also checks that Redis reads them; Redis' payloads are
//! read in [`payloads`](crate::payloads). The functions' bodies avoid errors that the two Lua machines word
//! differently.

use super::generate::Dice;
use super::script::Args;

/// Calls in a sequence.
const LENGTH: usize = 96;

/// A sequence of calls.
pub(super) fn sequence(dice: &mut Dice) -> Vec<Args> {
    let mut calls = vec![words(&["HSET", "h", "f", "v"]), words(&["SET", "s", "7"])];
    while calls.len() < LENGTH {
        calls.push(call(dice));
    }
    calls
}

/// A call about functions.
pub(crate) fn call(dice: &mut Dice) -> Args {
    let call = match dice.below(20) {
        0..7 => load(dice),
        7..13 => call_function(dice),
        13 => words(&["FUNCTION", "DELETE", name(dice, LIBRARIES)]),
        14 | 15 => list(dice),
        16 => words(&["FUNCTION", "STATS"]),
        17 => words(&["FUNCTION", "DUMP"]),
        18 => restore(dice),
        _ if dice.once_in(4) => words(&["FUNCTION", "FLUSH", one(dice, &["SYNC", "async", "now"])]),
        _ => words(&["FUNCTION", one(dice, &["KILL", "FLUSH", "NOSUCH", "HELP"])]),
    };
    perhaps_too_long(call, dice)
}

const LIBRARIES: &[&str] = &["a", "b", "B", "lib_3"];
/// No two names differ by case alone: of two such functions in one library Redis keeps both and calls either.
const FUNCTIONS: &[&str] = &["f", "G", "h", "f_1"];
const CALLED: &[&str] = &["f", "g", "h", "F", "f_1", "nosuch"];
const BROKEN_NAMES: &[&str] = &["", "a-b", "a b", "ä", "name=", "'", "*"];

fn name(dice: &mut Dice, names: &[&'static str]) -> &'static str {
    let names = if dice.once_in(20) { BROKEN_NAMES } else { names };
    one(dice, names)
}

fn one<'a>(dice: &mut Dice, of: &[&'a str]) -> &'a str {
    of[dice.below(of.len())]
}

fn words(words: &[&str]) -> Args {
    words.iter().map(|word| word.as_bytes().to_vec()).collect()
}

fn perhaps_too_long(mut call: Args, dice: &mut Dice) -> Args {
    if dice.once_in(40) {
        call.push(b"more".to_vec());
    }
    if dice.once_in(60) {
        call.pop();
    }
    call
}

fn load(dice: &mut Dice) -> Args {
    let mut call = words(&["FUNCTION", "LOAD"]);
    if dice.once_in(2) {
        call.push(one(dice, &["REPLACE", "replace", "REPLACE", "RPLACE"]).as_bytes().to_vec());
    }
    call.push(library(dice).into_bytes());
    call
}

fn list(dice: &mut Dice) -> Args {
    let mut call = words(&["FUNCTION", "LIST"]);
    for _ in 0..dice.below(4) {
        match dice.below(8) {
            0..4 => call.push(b"WITHCODE".to_vec()),
            4 => call.push(b"libraryname".to_vec()),
            5 => call.push(b"nosuch".to_vec()),
            _ => call.extend(words(&["LIBRARYNAME", one(dice, &["a", "A", "*", "lib*", "[ab]", "?", ""])])),
        }
    }
    call
}

fn call_function(dice: &mut Dice) -> Args {
    let command = if dice.once_in(3) { "FCALL_RO" } else { "FCALL" };
    let count = one(dice, &["0", "1", "1", "1", "2", "3", "-1", "x", "9999999999999999999", "01", ""]);
    let mut call = words(&[command, name(dice, CALLED), count]);
    call.extend((0..dice.below(4)).map(|_| one(dice, &["s", "h", "nosuch", "5"]).as_bytes().to_vec()));
    call
}

fn restore(dice: &mut Dice) -> Args {
    let texts: Vec<String> = (0..dice.below(4)).map(|_| library(dice)).collect();
    let mut payload = tidegate::rdb::libraries::dump(texts.iter().map(String::as_bytes));
    if dice.once_in(10) {
        let at = dice.below(payload.len());
        payload[at] ^= 1;
    }
    let mut call = words(&["FUNCTION", "RESTORE"]);
    call.push(payload);
    if !dice.once_in(4) {
        call.push(one(dice, &["FLUSH", "APPEND", "REPLACE", "append", "MERGE"]).as_bytes().to_vec());
    }
    call
}

/// The text of a library.
fn library(dice: &mut Dice) -> String {
    if dice.once_in(12) {
        return one(dice, BROKEN_LIBRARIES).to_owned();
    }
    let engine = if dice.once_in(20) { one(dice, &["js", "", "Lua", "lua5"]) } else { "lua" };
    let mut text = format!("#!{engine} name={}", name(dice, LIBRARIES));
    if dice.once_in(20) {
        text += one(dice, &[" name=b", " flags=no-writes", " x", " 'NAME=c'", " \"open", "\r"]);
    }
    text += "\nlocal n = 0\n";
    for _ in 0..dice.below(4) {
        text += &registration(dice);
        text.push('\n');
    }
    text
}

/// Texts that are not libraries, or fail when they are loaded.
const BROKEN_LIBRARIES: &[&str] = &[
    "",
    "#!",
    "#!lua name=a",
    "#!lua\nreturn 1",
    "return 1",
    "#!lua name=a\nreturn 1",
    "#!lua name=a\nsyntax error here",
    "#!lua name=a\nredis.register_function('f', function() return 1 end) error('boo')",
    "#!lua name=a\nredis.register_function('f', function() return 1 end) error({err='CODE boo'})",
    "#!lua name=a\nreturn redis.call('ping')",
    "#!lua name=a\nreturn redis.pcall('ping')",
    "#!lua name=a\nx = 1",
    "#!lua name=a\nreturn math.random()",
    "#!lua name=a\nredis.register_function = 1",
    "#!lua name=a\nredis.setresp(3)",
    "#!lua name=a\nredis.log(redis.LOG_DEBUG, 'loading') redis.register_function('g', function() return 1 end)",
    "#!lua name=a\nredis.register_function('g', function() return redis.sha1hex('') end)",
    "#!lua name=a\nreturn redis.sha1hex('')",
    "#!lua name=a\nreturn KEYS",
    "#!lua name=a\nreturn pairs({})",
];

fn registration(dice: &mut Dice) -> String {
    if dice.once_in(10) {
        return format!("redis.register_function({})", one(dice, BROKEN_ARGUMENTS));
    }
    let (name, body) = (name(dice, FUNCTIONS), one(dice, BODIES));
    if dice.once_in(2) {
        return format!("redis.register_function('{name}', function(keys, args) {body} end)");
    }
    let mut parts = vec![
        format!("{} = '{name}'", one(dice, &["function_name", "function_name", "Function_Name"])),
        format!("callback = function(keys, args) {body} end"),
    ];
    if dice.once_in(2) {
        let texts = &["'what it does'", "''", "5", "'\\0\\255'", "nil"];
        parts.push(format!("description = {}", one(dice, texts)));
    }
    if dice.once_in(2) {
        let flags: Vec<&str> = (0..dice.below(4)).map(|_| one(dice, FLAGS)).collect();
        parts.push(format!("flags = {{{}}}", flags.join(", ")));
    }
    format!("redis.register_function{{{}}}", parts.join(", "))
}

const FLAGS: &[&str] = &[
    "'no-writes'",
    "'no-writes'",
    "'allow-oom'",
    "'allow-stale'",
    "'no-cluster'",
    "'allow-cross-slot-keys'",
    "'NO-WRITES'",
];

/// One fault in each: of several, the reported one depends on the order of a Lua table.
const BROKEN_ARGUMENTS: &[&str] = &[
    "",
    "'f'",
    "5, function() return 1 end",
    "nil, function() return 1 end",
    "'f', 'g'",
    "'f', nil",
    "{}, {}",
    "'f', function() end, 1",
    "{}",
    "{function_name = 'f'}",
    "{callback = function() end}",
    "{function_name = {}, callback = function() end}",
    "{function_name = 5, callback = function() return 5 end}",
    "{function_name = 'f', callback = 'g'}",
    "{function_name = 'f', callback = function() end, nosuch = 1}",
    "{function_name = 'f', callback = function() end, flags = 'no-writes'}",
    "{function_name = 'f', callback = function() end, flags = {5}}",
    "{function_name = 'f', callback = function() end, flags = {'no-writes', ''}}",
    "{function_name = 'f', callback = function() end, description = {}}",
    "{function_name = 'f', callback = function() return 2 end, flags = {x = 'nosuch'}}",
    "{function_name = 'f', callback = function() end, description = function() end}",
    "{'f'}",
    "{[true] = 1}",
];

const BODIES: &[&str] = &[
    "return {keys[1], args[1], #keys, #args}",
    "return redis.call('set', 's', 5)",
    "return redis.call('incr', keys[1])",
    "return redis.pcall('incr', keys[1])",
    "return redis.call('get', 's')",
    "return redis.call('nosuch')",
    "return redis.call('fcall', 'f', 0)",
    "return redis.call('function', 'list')",
    "return redis.call('eval', 'return 1', 0)",
    "return redis.register_function('q', function() end)",
    "redis.setresp(3) return redis.call('hgetall', 'h')",
    "return redis.call('hgetall', 'h')",
    "redis.setresp(3) return {double = 1.5}",
    "redis.setresp(3) return {map = {a = 1}, x = 2}",
    "return {ok = 'fine'}",
    "return {err = 'MY oops'}",
    "return redis.error_reply('oops')",
    "return redis.error_reply('-CODE oops')",
    "error('boo')",
    "error({err = 'CODE boo'})",
    "error(redis.error_reply('CODE boo'))",
    "return {pcall(error, {err = 'CODE boo'})}",
    "x = 1",
    "return x",
    "return KEYS",
    "n = n + 1 return n",
    "return 3.99",
    "return true",
    "return false",
    "return nil",
    "return",
    "return {1, 2, nil, 4}",
    "return {{{'deep'}}}",
    "return cjson.encode({keys, args})",
    "return cmsgpack.unpack(cmsgpack.pack(keys))",
    "return redis.sha1hex('x')",
    "return string.rep('ab', 5)",
    "return redis.REDIS_VERSION ~= nil",
    "redis.log(redis.LOG_DEBUG, 'called') return 1",
];
