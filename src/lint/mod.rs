//! SCRIPT LINT: finds mistakes in a script without running it.
//!
//! The linter walks the program's tree and follows values from their sources (KEYS, ARGV, literals, replies) through
//! locals, parameters and results of local functions to the places that use them. The command table says which
//! arguments of a command are keys. The linter walks the tree several times, because the arguments that calls pass to a
//! local function are known only in the next walk. Values that it can't follow (fields of tables, functions it doesn't
//! know) are assumed to be right.
//!
//! `walk` follows the values; `keys`, `flow`, `commands` and `differences` judge what it meets. Each [`Rule`] names a
//! habit that works on one server and fails on another.

mod commands;
mod differences;
mod flow;
mod keys;
pub mod limits;
pub(crate) mod parse;
mod value;
mod walk;
mod warning;

use std::collections::BTreeSet;

use self::parse::SyntaxError;
use self::parse::parser::parse;
use crate::script::library;
use crate::spec::table::CommandTable;
use walk::Linter;
pub use warning::{Rule, Warning};

/// Number of walks. Each one follows arguments one local function further.
const WALKS: usize = 3;

/// Checks the text of a script or a library. `is_global` says which globals exist besides KEYS and ARGV. Returns the
/// warnings in the order of their lines.
pub fn lint<R>(
    text: &[u8],
    table: &CommandTable<R>,
    is_global: &dyn Fn(&[u8]) -> bool,
) -> Result<BTreeSet<Warning>, SyntaxError> {
    let program = parse(text)?;
    let is_library = library::parse_header(text).is_ok();
    let mut linter = Linter::new(table, is_global, is_library);
    for _ in 0..WALKS {
        linter.walk(&program);
    }
    Ok(linter.into_warnings())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::script::bundled::Bundled;
    use crate::spec::{Access, AnswersAll, Command, Flags, KeySpec};

    const fn command(name: &'static str, arity: i32, flags: Flags, keys: &'static [KeySpec]) -> Command<()> {
        Command { name, arity, flags, keys, ..Command::new(()) }
    }

    const ONE: &[KeySpec] = &[KeySpec::one(1, Access::Update)];
    const ALL: &[KeySpec] = &[KeySpec::rest(1, 1, Access::Delete)];
    const STORE: &[KeySpec] = &[KeySpec::one(1, Access::Overwrite), KeySpec::counted(2, Access::Read)];
    const COMMANDS: &[Command<()>] = &[
        command("get", 2, Flags::READONLY, ONE),
        command("set", -3, Flags::WRITE, ONE),
        command("del", -2, Flags::WRITE, ALL),
        Command { answers_all: AnswersAll::Always, ..command("smembers", 2, Flags::READONLY, ONE) },
        Command { answers_all: AnswersAll::ToTheLast, ..command("lrange", 4, Flags::READONLY, ONE) },
        command("zunionstore", -4, Flags::WRITE, STORE),
        Command {
            answers_all: AnswersAll::Always,
            ..command("keys", 2, Flags::READONLY.union(Flags::VISITS_ALL_KEYS), &[])
        },
        command("publish", 3, Flags::NONE, &[]),
        command("eval", -3, Flags::NOSCRIPT, &[]),
    ];

    /// The violated rules, each as `line:rule`.
    fn found(text: &str) -> String {
        let table = CommandTable::new(&[COMMANDS]);
        let globals =
            ["ipairs", "pairs", "next", "unpack", "tonumber", "tostring", "pcall", "string", "table", "cjson", "math"];
        let globals = globals.into_iter().chain(["setmetatable", "rawset", "coroutine", "collectgarbage"]);
        let warnings = lint(text.as_bytes(), &table, &|name| globals.clone().any(|global| global.as_bytes() == name));
        let warnings = warnings.unwrap_or_else(|error| panic!("{text}: {error}"));
        warnings.iter().map(|warning| format!("{}:{}", warning.line, warning.rule.name())).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn keys_are_followed_to_where_they_are_used() {
        for (text, wanted) in [
            ("return redis.call('get', KEYS[1])", ""),
            ("return redis.call('get', 'a')", "1:undeclared-key"),
            ("return redis.call('get', 'a' .. ARGV[1])", "1:computed-key"),
            ("return redis.call('get', ('a%s'):format(ARGV[1]))", "1:computed-key"),
            ("return redis.call('get', string.format('a%s', ARGV[1]))", "1:computed-key"),
            ("return redis.call('get', ARGV[1])", "1:argv-as-key"),
            ("local id = ARGV[1] or 'none'\nreturn redis.call('get', id)", "2:argv-as-key"),
            ("return redis.call('get', redis.call('get', KEYS[1]))", "1:computed-key"),
            ("return redis.call('get', cjson.decode(ARGV[1]).key)", "1:computed-key"),
            ("return redis.call('del', KEYS[1], 'b', KEYS[2])", "1:undeclared-key"),
            ("return redis.call('del', unpack(KEYS))", ""),
            ("return redis.call('del', unpack(ARGV))", "1:argv-as-key"),
            ("for _, key in ipairs(KEYS) do redis.call('get', key) end", ""),
            ("for i = 1, #KEYS do redis.call('get', KEYS[i]) end", ""),
            ("for _, key in ipairs(ARGV) do redis.call('get', key) end", "1:argv-as-key"),
            ("local call, key = redis.call, KEYS[1]\nreturn call('get', key .. ':lock')", "2:computed-key"),
            ("return pcall(redis.call, 'get', 'a')", "1:undeclared-key"),
            ("return server.pcall('GET', 'a')", "1:undeclared-key 1:differs-on-redis"),
            ("local k\nif ARGV[1] then k = KEYS[1] else k = 'x' end\nreturn redis.call('get', k)", ""),
            ("local k = KEYS[1]\nk = k .. ':1'\nreturn redis.call('get', k)", "3:computed-key"),
            ("return redis.call('zunionstore', KEYS[1], 2, KEYS[2], 'b')", "1:undeclared-key"),
            ("return redis.call('zunionstore', KEYS[1], #KEYS - 1, unpack(KEYS, 2))", ""),
            ("return redis.call(ARGV[1], 'a')", ""),
            ("local t = {'a'}\nreturn redis.call('get', t[1])", ""),
        ] {
            assert_eq!(found(text), wanted, "{text}");
        }
    }

    #[test]
    fn local_functions_are_seen_through() {
        for (text, wanted) in [
            ("local function get(key)\nreturn redis.call('get', key)\nend\nreturn get(KEYS[1])", ""),
            ("local function get(key)\nreturn redis.call('get', key)\nend\nreturn get('a')", "2:undeclared-key"),
            (
                "local get = function(key)\nreturn redis.call('get', key)\nend\nlocal function both(a)\nreturn get(a)\n\
                 end\n\
                 return both(ARGV[1])",
                "2:argv-as-key",
            ),
            (
                "local function name(id) return 'a:' .. id end\nreturn redis.call('get', name(ARGV[1]))",
                "2:computed-key",
            ),
            ("local function same(key) return key end\nreturn redis.call('get', same(KEYS[1]))", ""),
            ("local function f(n) if n then return f(n - 1) end end", ""),
            (
                "local function f(n)\nreturn n and f(n - 1) or redis.call('get', 'x')\nend\nreturn f(3)",
                "2:undeclared-key",
            ),
        ] {
            assert_eq!(found(text), wanted, "{text}");
        }
    }

    #[test]
    fn arguments_in_keys_should_be_keys() {
        for (text, wanted) in [
            ("return redis.call('set', KEYS[1], KEYS[2])", "1:key-as-argument"),
            ("redis.call('get', KEYS[2])\nreturn redis.call('set', KEYS[1], KEYS[2])", ""),
            ("if tonumber(KEYS[2]) > 1 then return redis.call('get', KEYS[1]) end", "1:key-as-argument"),
            ("local a, b = KEYS[1], KEYS[2]\nreturn redis.call('get', a)", "1:unused-key"),
            ("redis.call('get', KEYS[1])\nreturn redis.call('get', KEYS[3])", "2:unused-key"),
            ("if #KEYS ~= 2 then return 1 end\nreturn redis.call('get', KEYS[1])", "1:unused-key"),
            ("if #KEYS ~= 1 then return 1 end\nreturn redis.call('get', KEYS[1])", ""),
            ("local t = {}\nt[1] = KEYS[1]\nreturn redis.call('del', unpack(t))", ""),
            ("return redis.call('publish', KEYS[1], 'x')", "1:key-as-argument"),
            ("return KEYS[4000000000]", "1:key-as-argument 1:unused-key"),
        ] {
            assert_eq!(found(text), wanted, "{text}");
        }
    }

    #[test]
    fn loops_without_bound_should_not_come_before_writes() {
        for (text, wanted) in [
            ("while true do\nredis.call('get', KEYS[1])\nend", ""),
            ("while true do\nredis.call('set', KEYS[1], 1)\nend\nredis.call('set', KEYS[1], 1)", "1:write-after-loop"),
            ("redis.call('set', KEYS[1], 1)\nrepeat local x = 1 until x", ""),
            ("repeat local x = 1 until x\nredis.call('set', KEYS[1], 1)", "1:write-after-loop"),
            ("for i = 1, 10 do redis.call('set', KEYS[1], i) end", ""),
            ("for _, v in ipairs(ARGV) do redis.call('set', KEYS[1], v) end", ""),
            (
                "local all = redis.call('smembers', KEYS[1])\nfor i = 1, #all do\nredis.call('set', KEYS[1], all[i])\n\
                 end",
                "2:write-after-loop",
            ),
            (
                "for _, v in ipairs(redis.call('lrange', KEYS[1], 0, -1)) do redis.call('set', KEYS[1], v) end",
                "1:write-after-loop",
            ),
            ("for _, v in ipairs(redis.call('lrange', KEYS[1], 0, 9)) do redis.call('set', KEYS[1], v) end", ""),
            (
                "local function drain()\nwhile redis.call('get', KEYS[1]) do end\nend\ndrain()\n\
                 redis.call('del', KEYS[1])",
                "2:write-after-loop",
            ),
            (
                "local function put() redis.call('set', KEYS[1], 1) end\nwhile KEYS[1] do end\nput()",
                "2:write-after-loop",
            ),
        ] {
            assert_eq!(found(text), wanted, "{text}");
        }
    }

    #[test]
    fn globals_and_commands_are_checked() {
        for (text, wanted) in [
            ("x = 1", "1:global"),
            ("function f() end", "1:global"),
            ("return os", "1:global"),
            ("return redis.call('keys', '*')", "1:whole-keyspace"),
            ("return redis.call('nosuch', KEYS[1])", "1:bad-command"),
            ("return redis.call('eval', 'return 1', 0)", "1:bad-command"),
            ("return redis.call('get')", "1:bad-command"),
            ("return redis.call('set', KEYS[1], unpack(ARGV))", ""),
        ] {
            assert_eq!(found(text), wanted, "{text}");
        }
    }

    #[test]
    fn differences_from_redis_are_reported() {
        const DIFFERS: &str = "1:differs-on-redis";
        for (text, wanted) in [
            ("return server.call('get', KEYS[1])", DIFFERS),
            ("return string.dump(function() end)", DIFFERS),
            ("redis.set_repl(redis.REPL_ALL)", DIFFERS),
            ("math.randomseed(1)", DIFFERS),
            ("return math.random()", ""),
            ("cjson.encode_max_depth(5)", DIFFERS),
            ("return cjson.encode_max_depth()", ""),
            ("collectgarbage('stop')", DIFFERS),
            ("collectgarbage()", ""),
            // Keys by address.
            ("local t = {} t[{}] = 1", DIFFERS),
            ("return {[function() end] = 1}", DIFFERS),
            ("local t, k = {}, coroutine.create(tostring) t[k] = 1", DIFFERS),
            ("local function new() return {} end local t = {} t[new()] = 1", DIFFERS),
            ("local t, k = {}, 'a' t[k] = {} t.b = function() end return {{}}", ""),
            // New keys in a loop over the table.
            ("local t = {} for k, v in pairs(t) do t[v] = k end", DIFFERS),
            ("local t = {} for k in next, t do t.x = 1 end", DIFFERS),
            ("local t = {} for k in pairs(t) do table.insert(t, k) end", DIFFERS),
            ("local t = {} for k in pairs(t) do rawset(t, k .. 'x', 1) end", DIFFERS),
            ("local t = {} for a in pairs({}) do for b in pairs(t) do t[a] = b end end", DIFFERS),
            ("local t = {} for k, v in pairs(t) do t[k] = v + 1 rawset(t, k, v) t[v] = nil end t.x = 1", ""),
            ("local t = {} for i, v in ipairs(t) do t[i + 1] = v end", ""),
            ("local t, u = {}, {} for k, v in pairs(t) do u[v] = k local t = {} t[v] = k end", ""),
            // Functions that may not yield.
            ("return setmetatable({}, {__index = function() coroutine.yield() end})", DIFFERS),
            ("local m = {} function m.__lt() coroutine.yield() end", DIFFERS),
            ("local m = {} function m.__call() coroutine.yield() end", ""),
            ("local t = {} for a in pairs(t) do for b in pairs(t) do t[b] = 1 end end", ""),
            ("local pairs, t = ipairs, {} for i in pairs(t) do t[i + 1] = 1 end", ""),
            ("local function y() coroutine.yield() end for _ in function() y() end do end", DIFFERS),
            ("for _ in coroutine.wrap(function() coroutine.yield(1) end) do end", ""),
            ("local t = {index = function() coroutine.yield() end}", ""),
        ] {
            assert_eq!(found(text), wanted, "{text}");
        }
    }

    #[test]
    fn functions_of_libraries_have_their_own_keys() {
        for (text, wanted) in [
            (
                "#!lua name=a\nredis.register_function('f', function(keys, args)\nreturn redis.call('get', keys[1])\n\
                 end)",
                "",
            ),
            (
                "#!lua name=a\nlocal function f(keys, args)\nreturn redis.call('get', args[1])\nend\n\
                 redis.register_function('f', f)",
                "3:argv-as-key",
            ),
            (
                "#!lua name=a\nredis.register_function{function_name='f', callback=function(keys)\n\
                 return redis.call('set', keys[1], keys[2])\nend}",
                "3:key-as-argument",
            ),
            ("#!lua name=a\nredis.register_function('f', function() return KEYS[1] end)", "2:global"),
        ] {
            assert_eq!(found(text), wanted, "{text}");
        }
    }

    #[test]
    fn linting_hostile_texts_ends() {
        let nested = format!("return {}1{}", "f(".repeat(150), ")".repeat(150));
        let chain = format!("return KEYS{}", "[1]".repeat(50_000));
        let functions = "local function f(a) return f(a) end\n".repeat(3_000);
        let iterators = format!("local a = ipairs(KEYS) {}", "a = ipairs(a) ".repeat(50_000));
        let fields = format!("local a = string {}", "a = a.b ".repeat(50_000));
        let signs = format!("local a = 1 {}", "a = -a ".repeat(50_000));
        let spreads = format!("local a = unpack(KEYS) {}", "a = unpack(a) ".repeat(50_000));
        for text in [nested, chain, functions, iterators, fields, signs, spreads] {
            found(&text);
        }
        let table = CommandTable::new(&[COMMANDS]);
        for script in crate::script::bundled::BUNDLED.iter().map(|bundled: &Bundled| bundled.body) {
            for cut in (0..script.len()).step_by(97) {
                let _ = lint(script.as_bytes().get(..cut).unwrap_or_default(), &table, &|_| true);
            }
        }
    }
}
