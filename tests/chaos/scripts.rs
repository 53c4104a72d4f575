//! Random scripts: every function of the sandbox with unexpected values, loops, recursion, errors in errors, and
//! commands. Most calls are caught, so that a script goes on to the next.

use std::fmt::Write;

use super::calls::Calls;
use super::dice::Dice;
use super::wire::Args;

/// Functions that `pairs` does not show because their tables are protected.
const HIDDEN: [&str; 12] = [
    "redis.call",
    "redis.pcall",
    "redis.error_reply",
    "redis.status_reply",
    "redis.sha1hex",
    "redis.log",
    "redis.setresp",
    "redis.replicate_commands",
    "redis.set_repl",
    "redis.breakpoint",
    "redis.debug",
    "server.pcall",
];

/// Lists the functions that scripts can reach, sorted.
pub(crate) const LISTING: &str = "local found = {} \
    for name, value in pairs(_G) do \
      if type(value) == 'function' then found[#found + 1] = name end \
      if type(value) == 'table' and name ~= '_G' then \
        for field, inner in pairs(value) do \
          if type(inner) == 'function' then found[#found + 1] = name .. '.' .. field end \
        end \
      end \
    end \
    table.sort(found) return found";

/// Values in Lua's notation: edges of numbers, strings with meaning, tables of strange shapes, functions.
const VALUES: [&str; 52] = [
    "nil",
    "true",
    "false",
    "0",
    "-0",
    "1",
    "2",
    "-1",
    "3.7",
    "1e308",
    "-1e308",
    "1/0",
    "-1/0",
    "0/0",
    "2^31",
    "2^32",
    "2^53",
    "2^63",
    "-2^63",
    "-2^31",
    "100000",
    "''",
    "'a'",
    "'%'",
    "'%s%d%99.99f%c%q'",
    "'%1'",
    "'(.-)(%w*)()'",
    "'%f[%a]%b()'",
    "'[^]'",
    "'(a*)*b'",
    "'>I16 <i8 s d f !8 x z c0'",
    "'9999999999'",
    "'0x1p99'",
    "'\\0\\255\\128'",
    "'[1,2,{\"a\":null},1e999]'",
    "'[[[[[[[[[[[[[[[[[[[[[[[[['",
    "'\\\\ud800\\\\udfff'",
    "string.rep('a', 3000)",
    "string.rep('[', 2000)",
    "string.rep('\\145', 2000)",
    "{}",
    "{1, 2, 3}",
    "{a = 1, [2] = {}, [3.5] = 'x'}",
    "{nil, 2, nil, 4}",
    "{ok = 'fine'}",
    "{err = {}}",
    "{double = 'x', map = 7}",
    "loop",
    "deep",
    "print",
    "function(...) return ... end",
    "function(a, b) error({a, b}) end",
];

/// A short script, for commands that take one as an argument.
pub(crate) fn small(dice: &mut Dice) -> String {
    let texts = [
        "return 1",
        "return redis.call('INCR', KEYS[1])",
        "return {KEYS, ARGV, 1.5, {err = 'ERR x'}}",
        "return redis.pcall('LPUSH', KEYS[1], ARGV[1])",
        "local x <",
        "error({})",
        "error('x', 0)",
        "return cjson.decode(ARGV[1])",
        "while true do end",
        "#!lua flags=no-writes\nreturn redis.call('SET', KEYS[1], 'x')",
        "#!lua flags=allow-oom,nosuch\nreturn 1",
        "",
        "for i = 1, 1000 do redis.call('RPUSH', KEYS[1], i) end error('undone')",
        "redis.call('DEL', KEYS[1]) redis.call('SELECT', 2) redis.call('SET', 'chaos:string:0', 1) \
         return redis.pcall('NO')",
    ];
    (*dice.pick(&texts)).to_owned()
}

/// A library of functions, valid or not.
pub(crate) fn library(dice: &mut Dice) -> String {
    let name = dice.below(3);
    let body = small(dice);
    match dice.below(8) {
        0 => "#!lua name=\nreturn".to_owned(),
        1 => format!("#!lua name=chaos{name}\nwhile true do end"),
        2 => format!("#!lua name=chaos{name}\nredis.register_function('f{name}', 7)"),
        3 => format!("#!nosuch name=chaos{name}\n"),
        4 => format!(
            "#!lua name=chaos{name}\nfor i = 1, 300 do redis.register_function('g' .. i, function() return i end) end"
        ),
        _ => format!(
            "#!lua name=chaos{name}\nredis.register_function{{function_name = 'f{name}', flags = {{'allow-oom'}}, \
             callback = function(KEYS, ARGV) {} end}}",
            body.lines().last().unwrap_or_default()
        ),
    }
}

/// Makes scripts from the contents of the server's sandbox.
pub(crate) struct Scripts {
    functions: Vec<String>,
    endless: Vec<&'static str>,
    large: Vec<&'static str>,
}

impl Scripts {
    /// Uses the functions that the server listed; `without` names some to leave out, with the lines of [`ENDLESS`] and
    /// [`LARGE`] that use them.
    pub(crate) fn new(listed: Vec<String>, without: &[String]) -> Scripts {
        let mut functions: Vec<String> = HIDDEN.iter().map(|&name| name.to_owned()).chain(listed).collect();
        functions.sort();
        functions.dedup();
        functions.retain(|name| !without.contains(name));
        let is_in = |line: &&&str| !without.iter().any(|word| line.contains(word.as_str()));
        let endless = ENDLESS.iter().filter(is_in).copied().collect();
        let is_without_large = without.iter().any(|word| word == "large-values");
        let large = LARGE.iter().filter(is_in).filter(|_| !is_without_large).copied().collect();
        Scripts { functions, endless, large }
    }

    /// Returns the number of functions.
    pub(crate) fn len(&self) -> usize {
        self.functions.len()
    }

    /// A script of some statements.
    pub(crate) fn script(&self, calls: &Calls, dice: &mut Dice) -> String {
        let mut text =
            String::from("local loop = {} loop.loop = loop local deep = {} for i = 1, 200 do deep = {deep} end\n");
        if dice.once_in(12) {
            text.insert_str(
                0,
                dice.pick::<&str>(&["#!lua\n", "#!lua flags=no-writes\n", "#!lua flags=allow-oom,allow-stale\n"]),
            );
        }
        for _ in 0..1 + dice.below(8) {
            self.statement(calls, dice, &mut text);
            text.push('\n');
        }
        let _ = write!(text, "return {}", self.value(dice));
        text
    }

    fn statement(&self, calls: &Calls, dice: &mut Dice, text: &mut String) {
        let call = self.call(dice);
        let value = self.value(dice);
        let command = lua_arguments(&calls.about_data(dice));
        let _ = match dice.below(40) {
            0..12 => write!(text, "pcall(function() loop.x = {call} end)"),
            12 => write!(text, "{call}"),
            13..20 => write!(text, "loop.y = redis.pcall({command})"),
            20 => write!(text, "redis.call({command})"),
            21 => write!(text, "for i = 1, {} do redis.pcall({command}) end", 10usize.pow(dice.below(4) as u32)),
            22 => write!(text, "for i = 1, {} do pcall(function() loop.z = {call} end) end", 1 + dice.below(300)),
            23 => write!(text, "redis.pcall('PUBLISH', 'chaos-channel-1', string.rep('m', {}))", dice.below(5_000)),
            24 => write!(text, "local function f(n) return 1 + f(n + 1) end pcall(f, 1)"),
            25 => write!(text, "local function f() return pcall(f) end f()"),
            26 => write!(text, "pcall(error, setmetatable({{}}, {{__tostring = function() error({value}) end}}))"),
            27 => write!(text, "pcall(function() error(error) end) pcall(pcall, error, {value})"),
            28 => write!(
                text,
                "local t = setmetatable({{}}, {{__index = function(t, k) return t[k .. 'x'] end}}) \
                 pcall(function() return t.a end)"
            ),
            29 => write!(
                text,
                "pcall(string.gsub, string.rep('a', 200), '.', function(c) return (string.gsub(c, '.', {value})) end)"
            ),
            30 => write!(text, "pcall(table.sort, {{3, 1, 2, 5, 4, 9, 7}}, function(a, b) return {value} end)"),
            31 => write!(text, "pcall(function() return cjson.decode(cjson.encode({value})) end)"),
            32 => write!(
                text,
                "pcall(function() return cmsgpack.unpack(cmsgpack.pack({value}, {})) end)",
                self.value(dice)
            ),
            33 => write!(
                text,
                "pcall(function() return struct.unpack({value}, struct.pack({value}, {})) end)",
                self.value(dice)
            ),
            34 => write!(
                text,
                "local d = redis.pcall('DUMP', '{}') \
                 if type(d) == 'string' then redis.pcall('RESTORE', 'chaos:string:1', 0, d, 'REPLACE') end",
                super::calls::key("", dice)
            ),
            35 => write!(text, "loop.co = coroutine and coroutine.wrap(function() {call} end)"),
            36 if dice.once_in(3) && !self.endless.is_empty() => write!(text, "{}", dice.pick(&self.endless)),
            37 if !self.large.is_empty() => write!(text, "{}", dice.pick(&self.large)),
            38 => write!(
                text,
                "local s = {{}} for i = 1, 5000 do s[i] = i .. 'x' end \
                 pcall(function() loop.s = table.concat(s, {value}) end)"
            ),
            _ => write!(text, "if {value} then loop[{}] = {value} end", dice.below(9)),
        };
    }

    fn call(&self, dice: &mut Dice) -> String {
        let function = dice.pick(&self.functions).clone();
        let args: Vec<String> = (0..dice.below(5)).map(|_| self.value(dice)).collect();
        format!("{function}({})", args.join(", "))
    }

    fn value(&self, dice: &mut Dice) -> String {
        match dice.below(12) {
            0 => self.functions[dice.below(self.functions.len())].clone(),
            1 => format!("{{{}, {}}}", dice.pick(&VALUES), dice.pick(&VALUES)),
            2 => format!("(pcall(function() return {} .. '' end))", dice.pick(&VALUES)),
            _ => (*dice.pick(&VALUES)).to_owned(),
        }
    }
}

/// Statements that only a limit or SCRIPT KILL ends.
const ENDLESS: [&str; 6] = [
    "while true do end",
    "while true do pcall(function() while true do end end) end",
    "repeat redis.call('INCR', 'chaos:string:3') until false",
    "while true do redis.pcall('NOSUCH') end",
    "local s = string.rep('a', 100) while true do string.find(s, '(a*)*b') end",
    "for i = 1, 1e15 do redis.call('SET', 'chaos:string:' .. i % 4, i) end",
];

/// Statements that ask for much memory.
const LARGE: [&str; 8] = [
    "pcall(string.rep, 'x', 2^29)",
    "local s = 'x' pcall(function() while true do s = s .. s end end)",
    "local t = {} pcall(function() for i = 1, 1e9 do t[i] = i end end)",
    "local t = {} pcall(function() for i = 1, 1e7 do t[i] = {i} end end)",
    "pcall(function() return table.concat({string.rep('x', 2^24), string.rep('y', 2^24)}, ',') end)",
    "pcall(function() return cjson.encode({string.rep('\\1', 2^24)}) end)",
    "pcall(function() return (string.gsub(string.rep('a', 2^20), 'a', string.rep('b', 2^10))) end)",
    "for i = 1, 1000 do redis.pcall('RPUSH', 'chaos:list:1', string.rep('v', 2^16)) end",
];

/// A command as the arguments of `redis.call`.
fn lua_arguments(args: &Args) -> String {
    args.iter().map(|arg| lua_string(arg)).collect::<Vec<_>>().join(", ")
}

fn lua_string(bytes: &[u8]) -> String {
    if bytes.len() > 10_000 {
        return format!("string.rep('x', {})", bytes.len());
    }
    let mut text = String::from("'");
    for &byte in bytes {
        match byte {
            b'\'' | b'\\' => text.extend(['\\', byte as char]),
            b' '..=b'~' => text.push(byte as char),
            _ => text += &format!("\\{byte:03}"),
        }
    }
    text + "'"
}
