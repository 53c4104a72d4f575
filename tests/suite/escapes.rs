//! A catalogue of attempts to escape the scripts' sandbox: published ones by their number, and others of our own.
//!
//! All run in turn on one server. After each the server must answer, nothing may have been written, and a fresh script
//! must find everything as it was before the first: unchanged globals, functions, tables and settings, and no keys or
//! arguments of others.

use crate::harness::{Program, Raw, Server, Value};

/// The required result of an attempt.
enum Fate {
    /// The attempt fails with an error that contains this text.
    Fails(&'static str),
    /// The attempt succeeds and returns this text.
    Gets(&'static str),
    /// The attempt may end in any way, as long as nothing of it remains.
    Vanishes,
}
use Fate::{Fails, Gets, Vanishes};

/// Name, source (the number of the publication, or the idea), script, and required result.
type Attempt = (&'static str, &'static str, &'static str, Fate);

const READONLY: &str = "Attempt to modify a readonly table";
const OUT_OF_TIME: &str = "ERR Script ran longer than script-time-limit.";
const OUT_OF_MEMORY: &str = "ERR Script used more than script-memory-limit.";

/// A low limit for the attempts to fill the memory.
const MEMORY_LIMIT: [&str; 2] = ["--script-memory-limit", "64mb"];

/// A short limit for the attempts to hang, in ms. The others have all the time that they need.
const TIME_LIMIT: &str = "100";

const BYTECODE: &[Attempt] = &[
    (
        "bytecode of LuaJIT",
        "CVE-2015-4335",
        r"assert(loadstring('\27LJ\2\2'))()",
        Fails("unexpected symbol near '<\\27>'"),
    ),
    (
        "bytecode of Lua 5.1",
        "CVE-2015-4335",
        r"assert(loadstring('\27Lua\81\0\1\4\8\4\8\0'))()",
        Fails("unexpected symbol"),
    ),
    (
        "own function, dumped",
        "CVE-2015-4335",
        "assert(loadstring(string.dump(function() end)))()",
        Fails("unexpected symbol"),
    ),
    (
        "dumped, changed, loaded",
        "CVE-2015-4335",
        "local s = string.dump(function() local a = {} return a end):gsub('.', '%0', 1) \
         return assert(loadstring(s))()",
        Fails("unexpected symbol"),
    ),
    (
        "bytecode piece by piece",
        "CVE-2015-4335",
        r"local i, s = 0, string.dump(function() end)
          assert(load(function() i = i + 1 if i <= #s then return s:sub(i, i) end end))()",
        Fails("unexpected symbol"),
    ),
    ("bytecode as the script", "CVE-2015-4335", "\x1bLJ\x02\x02", Fails("ERR Error compiling script")),
    ("bytecode behind a blank", "CVE-2015-4335", r"assert(loadstring(' \27LJ\2\2'))()", Fails("unexpected symbol")),
    (
        "bytecode behind a first line",
        "CVE-2015-4335",
        r"assert(loadstring('#!lua\n\27LJ\2'))()",
        Fails("unexpected symbol near '#'"),
    ),
    (
        "bytecode as the script, behind its first line",
        "CVE-2015-4335",
        "#!lua\n\x1bLJ\x02\x02",
        Fails("ERR Error compiling script"),
    ),
    ("literals that make cdata", "LuaJIT", "return 42LL", Fails("malformed number")),
    ("cdata by loadstring", "LuaJIT", "return assert(loadstring('return 1i'))()", Fails("malformed number")),
];

const LIBRARIES: &[Attempt] = &[
    (
        "package",
        "CVE-2022-0543",
        "return package.loadlib('/lib/liblua5.1.so', 'luaopen_io')",
        Fails("variable 'package'"),
    ),
    ("io", "CVE-2022-0543", "return io.popen('id'):read('*a')", Fails("variable 'io'")),
    ("os.execute", "CVE-2022-0543", "return os.execute('id')", Fails("field 'execute'")),
    ("os.getenv", "CVE-2022-0543", "return os.getenv('PATH')", Fails("field 'getenv'")),
    ("os.exit", "the host", "os.exit(0)", Fails("field 'exit'")),
    ("os.remove", "the host", "os.remove('/etc/passwd')", Fails("field 'remove'")),
    ("require", "CVE-2022-0543", "return require('ffi')", Fails("variable 'require'")),
    ("ffi", "LuaJIT", "ffi.cdef('int system(const char *)')", Fails("variable 'ffi'")),
    ("jit", "LuaJIT", "jit.on()", Fails("variable 'jit'")),
    ("dofile", "the host", "dofile('/etc/passwd')", Fails("variable 'dofile'")),
    ("loadfile", "the host", "loadfile('/etc/passwd')", Fails("variable 'loadfile'")),
    ("print", "the host", "print('x')", Fails("variable 'print'")),
    ("module", "the host", "module('m')", Fails("variable 'module'")),
    ("debug.getregistry", "debug", "return debug.getregistry()", Fails("variable 'debug'")),
    ("debug.sethook", "debug", "debug.sethook()", Fails("variable 'debug'")),
    ("debug by the table of globals", "debug", "return _G['debug']", Fails("variable 'debug'")),
    ("getfenv", "environments", "getfenv(1).redis = nil", Fails("variable 'getfenv'")),
    ("setfenv", "environments", "setfenv(1, {})", Fails("variable 'setfenv'")),
    ("setfenv of another's function", "environments", "setfenv(redis.call, {})", Fails("variable 'setfenv'")),
    (
        "newproxy",
        "finalizers",
        "getmetatable(newproxy(true)).__gc = function() redis.call('set', 'x', 1) end",
        Fails("variable 'newproxy'"),
    ),
];

const SHARED_TABLES: &[Attempt] = &[
    ("a global", "CVE-2022-24735", "evil = 1", Fails(READONLY)),
    ("a global by loadstring", "CVE-2022-24735", "loadstring('evil = 1')()", Fails(READONLY)),
    ("a global in a coroutine", "CVE-2022-24735", "coroutine.wrap(function() evil = 1 end)()", Fails(READONLY)),
    ("a global of the sandbox", "CVE-2022-24735", "tonumber = function() return 7 end", Fails(READONLY)),
    ("by _G", "CVE-2022-24735", "_G.evil = 1", Fails(READONLY)),
    ("by rawset", "CVE-2022-24735", "rawset(_G, 'evil', 1)", Fails(READONLY)),
    (
        "another metatable of _G",
        "CVE-2022-24735",
        "setmetatable(_G, {__index = function() return 7 end})",
        Fails(READONLY),
    ),
    ("the metatable of _G", "CVE-2022-24735", "getmetatable(_G).__index = function() return 7 end", Fails(READONLY)),
    ("rawset on the metatable of _G", "CVE-2022-24735", "rawset(getmetatable(_G), '__index', 7)", Fails(READONLY)),
    (
        "_G by next",
        "CVE-2022-24735",
        "for k, v in next, _G do if type(v) == 'table' then rawset(v, 1, 1) end end",
        Fails(READONLY),
    ),
    ("_G by a proxy", "CVE-2022-24735", "setmetatable({}, {__newindex = _G}).evil = 1", Fails(READONLY)),
    (
        "rawequal finds no real table",
        "rawequal",
        "for _, v in pairs(_G) do if v ~= _G and rawequal(v, _G) then return 'found' end end return 'none'",
        Gets("none"),
    ),
    ("redis.call", "shared tables", "redis.call = function() return 'evil' end", Fails(READONLY)),
    ("server.call", "shared tables", "server.call = nil", Fails(READONLY)),
    ("redis.call, as it is found in one step", "shared tables", "rawset(_G, 'redis.call', 1)", Fails(READONLY)),
    ("a new field of redis", "shared tables", "redis.evil = 1", Fails(READONLY)),
    ("redis by rawset", "shared tables", "rawset(redis, 'call', 1)", Fails(READONLY)),
    ("the metatable of redis", "shared tables", "getmetatable(redis).__newindex = nil", Fails("")),
    ("another metatable of redis", "shared tables", "setmetatable(redis, nil)", Fails(READONLY)),
    ("string.len", "shared tables", "string.len = nil", Fails(READONLY)),
    ("math.pi", "shared tables", "math.pi = 3", Fails(READONLY)),
    ("table.insert into redis", "shared tables", "table.insert(redis, 1)", Fails(READONLY)),
    (
        "table.sort and remove of what is shared",
        "shared tables",
        "table.sort(redis) table.remove(string) table.remove(_G, 1)",
        Vanishes,
    ),
    ("table.foreach", "shared tables", "table.foreach(math, function(k) math[k] = nil end)", Fails(READONLY)),
    ("cjson.decode", "shared tables", "cjson.decode = nil", Fails(READONLY)),
    (
        "cmsgpack, struct, bit",
        "shared tables",
        "pcall(rawset, cmsgpack, 'pack', 1) pcall(rawset, struct, 'pack', 1) bit.band = nil",
        Fails(READONLY),
    ),
    (
        "settings of cjson",
        "other scripts",
        "cjson.encode_max_depth(1) cjson.decode_max_depth(1) cjson.encode_number_precision(3)
        cjson.encode_sparse_array(true, 1, 1) cjson.encode_invalid_numbers('null') cjson.decode_invalid_numbers(false)",
        Vanishes,
    ),
    ("KEYS and ARGV replaced", "other scripts", "KEYS = {'leak'}", Fails(READONLY)),
    (
        "KEYS and ARGV filled",
        "other scripts",
        "KEYS[1] = 'leak' rawset(ARGV, 1, 'leak') KEYS.leak = 1 table.insert(ARGV, 'leak')",
        Vanishes,
    ),
    ("a metatable of KEYS", "other scripts", "setmetatable(KEYS, {__index = function() return 'leak' end})", Vanishes),
    (
        "KEYS kept by a closure",
        "other scripts",
        "local k = KEYS return coroutine.wrap(function() k[1] = 'leak' coroutine.yield() end)()",
        Vanishes,
    ),
];

const BASIC_TYPES: &[Attempt] = &[
    (
        "methods of strings",
        "CVE-2025-46818",
        "getmetatable('').__index = function() return 'evil' end",
        Fails(READONLY),
    ),
    (
        "arithmetic on strings",
        "CVE-2025-46818",
        "getmetatable('').__add = function() return redis end",
        Fails(READONLY),
    ),
    ("calls of strings", "CVE-2025-46818", "rawset(getmetatable(''), '__call', 1)", Fails(READONLY)),
    ("string by its metatable", "CVE-2025-46818", "getmetatable('').__index.len = nil", Fails(READONLY)),
    (
        "another metatable of strings",
        "CVE-2025-46818",
        "setmetatable('', {})",
        Fails("bad argument #1 to 'setmetatable'"),
    ),
    ("the metatable of nil", "CVE-2025-46818", "getmetatable(nil).__index = {}", Fails("attempt to index")),
    (
        "the metatable of numbers",
        "CVE-2025-46818",
        "setmetatable(1, {__index = {}})",
        Fails("bad argument #1 to 'setmetatable'"),
    ),
    ("the metatable of functions", "CVE-2025-46818", "getmetatable(tostring).__index = {}", Fails("attempt to index")),
    (
        "the metatable of coroutines",
        "CVE-2025-46818",
        "getmetatable(coroutine.create(function() end)).__gc = 1",
        Fails("attempt to index"),
    ),
    (
        "the metatable of cjson.null",
        "CVE-2025-46818",
        "getmetatable(cjson.null).__index = {}",
        Fails("attempt to index"),
    ),
    (
        "__metatable hides nothing",
        "metatables",
        "local t = setmetatable({}, {__metatable = 'locked'}) setmetatable(t, {})",
        Fails("cannot change a protected metatable"),
    ),
    (
        "__gc of a table",
        "CVE-2024-46981",
        "setmetatable({}, {__gc = function() redis.call('set', 'x', 1) end}) collectgarbage() collectgarbage()",
        Vanishes,
    ),
    (
        "__gc set later",
        "CVE-2024-46981",
        "local m = {} for i = 1, 100 do setmetatable({}, m) end m.__gc = error collectgarbage()",
        Vanishes,
    ),
    (
        "__tostring of an error",
        "metatables",
        "error(setmetatable({}, {__tostring = function() redis.call('set', 'x', 1) end}))",
        Fails(""),
    ),
    (
        "__index of an error",
        "metatables",
        "error(setmetatable({}, {__index = function() redis.call('set', 'x', 1) return 'x' end}))",
        Fails(""),
    ),
    (
        "__index of a reply",
        "metatables",
        "return setmetatable({}, {__index = function() redis.call('set', 'x', 1) return 'x' end})",
        Vanishes,
    ),
    (
        "__pairs, __len",
        "metatables",
        "local t = setmetatable({}, {__len = function() return 2e9 end, __pairs = error}) return #t",
        Gets("0"),
    ),
];

const PARSER: &[Attempt] = &[
    (
        "collection while a chunk is compiled",
        "CVE-2025-49844",
        "local n = 0 for i = 1, 50 do
        load(function() n = n + 1 collectgarbage() return n % 5 > 0 and ' local x' .. n .. ' = {}' or nil end, \
        ('n'):rep(3000) .. i)
        end return 'alive'",
        Gets("alive"),
    ),
    (
        "the name of a chunk, collected",
        "CVE-2025-49844",
        "for i = 1, 200 do loadstring('return (', ('n'):rep(1000) .. i) \
         collectgarbage('step') end return 'alive'",
        Gets("alive"),
    ),
    (
        "long brackets",
        "CVE-2025-46819",
        "local f, e = loadstring('return [' .. ('='):rep(500000) .. '[x') return type(e)",
        Gets("string"),
    ),
    (
        "long brackets, never opened",
        "CVE-2025-46819",
        "local f, e = loadstring('return [' .. ('='):rep(500000)) return type(e)",
        Gets("string"),
    ),
    (
        "a long comment",
        "CVE-2025-46819",
        "local f, e = loadstring('--[' .. ('='):rep(500000) .. '[') return type(e)",
        Gets("string"),
    ),
    (
        "a crafted chunk",
        "CVE-2022-24736",
        "return assert(loadstring(('local function f() '):rep(300) .. ('end '):rep(300)))()",
        Fails(""),
    ),
    (
        "a chunk of brackets",
        "CVE-2022-24736",
        "return assert(loadstring('return ' .. ('('):rep(100000) .. (')'):rep(100000)))()",
        Fails(""),
    ),
    (
        "too many locals",
        "CVE-2022-24736",
        "local t = {} for i = 1, 300 do t[i] = 'local a' .. i .. ' = 1' end \
         return assert(loadstring(table.concat(t, ' ')))()",
        Fails("more than 200 local variables"),
    ),
    ("a chunk without end", "load", "return load(function() return ' ' end)", Fails("")),
    ("goto is a name", "goto", "local goto = 'there' return goto", Gets("there")),
    ("goto into a block", "goto", "goto inside do ::inside:: end", Fails("ERR Error compiling script")),
];

const RANGES: &[Attempt] = &[
    ("unpack, everything", "CVE-2025-46817", "return unpack({}, -2147483648, 2147483647)", Fails("too many results")),
    ("unpack, to the end", "CVE-2025-46817", "return unpack({1, 2, 3}, -2, 2147483647)", Fails("too many results")),
    ("unpack, around the end", "CVE-2025-46817", "return {unpack({1, 2, 3}, 2147483647, -2147483648)}", Vanishes),
    ("unpack, 64 bits", "CVE-2025-46817", "return unpack({}, 0, 2 ^ 53)", Vanishes),
    (
        "unpack fills the stack",
        "CVE-2025-46817",
        "local t = {} for i = 1, 7900 do t[i] = i end return redis.call('echo', unpack(t))",
        Fails("Wrong number of args"),
    ),
    ("bit.tohex", "CVE-2024-31449", "return bit.tohex(65535, -2147483648)", Gets("0000FFFF")),
    ("bit.tohex, 64 bits", "CVE-2024-31449", "return bit.tohex(-1, 2 ^ 62)", Gets("")),
    ("bit, shifted far", "CVE-2024-31449", "return bit.tohex(bit.lshift(1, 2 ^ 31 + 1))", Gets("00000002")),
    ("string.rep, negative", "ranges", "return ('x'):rep(-2147483648) .. 'none'", Gets("none")),
    ("string.sub, far out", "ranges", "return ('abc'):sub(-2147483648, 2147483647)", Gets("abc")),
    ("string.byte, far out", "ranges", "return {('abc'):byte(-2147483648, 2147483647)}", Vanishes),
    (
        "table.concat, far out",
        "ranges",
        "return table.concat({}, 'x', -2147483648, 2147483647)",
        Fails("invalid value"),
    ),
    ("table.insert, far out", "ranges", "table.insert({}, -2147483647, 1)", Fails(OUT_OF_TIME)),
    ("string.format, wide", "ranges", "return ('%99999d'):format(1)", Fails("invalid")),
    ("string.format, precise", "ranges", "return ('%.99999f'):format(1)", Fails("invalid")),
    ("string.format, by position", "ranges", "return ('%2147483648$s'):format(1)", Fails("invalid")),
    ("string.char", "ranges", "return string.char(2 ^ 40 + 256)", Fails("bad argument #1 to 'char'")),
    ("struct, sizes", "CVE-2018-11219", "return struct.pack('>I2147483648', 1)", Fails("")),
    ("struct, sizes that wrap", "CVE-2018-11219", "return struct.unpack('c4294967296c4294967295', 'x')", Fails("")),
    ("struct, alignment", "CVE-2018-11219", "return struct.unpack('!2147483648i4', 'xxxx')", Fails("")),
    ("struct, offset", "CVE-2018-11219", "return struct.unpack('i4', 'xxxx', 2 ^ 62)", Fails("data string too short")),
    (
        "struct, a length from the data",
        "CVE-2018-11219",
        r"return struct.unpack('I4c0', '\255\255\255\255')",
        Fails("data string too short"),
    ),
    (
        "cmsgpack, arguments",
        "CVE-2018-11218",
        "local t = {} for i = 1, 7900 do t[i] = {} end return #cmsgpack.pack(unpack(t))",
        Gets("7900"),
    ),
    (
        "cmsgpack, a promised array",
        "CVE-2018-11218",
        r"return cmsgpack.unpack('\221\255\255\255\255')",
        Fails("Missing bytes in input"),
    ),
    (
        "cmsgpack, a promised string",
        "CVE-2018-11218",
        r"return cmsgpack.unpack('\219\255\255\255\255x')",
        Fails("Missing bytes in input"),
    ),
    (
        "cmsgpack, limits",
        "CVE-2018-11218",
        "return cmsgpack.unpack_limit('x', 2147483647, 2147483647)",
        Fails("greater than input length"),
    ),
    ("cmsgpack, nesting", "CVE-2018-11218", r"return cmsgpack.unpack(('\145'):rep(1000000))", Fails("")),
    ("cmsgpack, a circle", "CVE-2018-11218", "local t = {} t[1] = t return #cmsgpack.pack(t)", Gets("17")),
    ("cjson, nesting", "CVE-2022-24834", "return cjson.decode(('['):rep(1000000))", Fails("too many nested")),
    (
        "cjson, any nesting",
        "CVE-2022-24834",
        "cjson.decode_max_depth(2147483647) return cjson.decode(('{\"a\":['):rep(500000))",
        // Either Lua's stack overflows first or C's, depending on the frame size that the compiler chooses.
        Fails(""),
    ),
    ("cjson, a circle", "CVE-2022-24834", "local t = {} t[1] = t return cjson.encode(t)", Fails("excessive nesting")),
    (
        "cjson, escapes beyond bounds",
        "CVE-2022-24834",
        r"return cjson.encode({('\1'):rep(30000000)})",
        Fails(OUT_OF_MEMORY),
    ),
    ("cjson, half a surrogate", "cjson", r#"return cjson.decode('["\\ud800"]')"#, Fails("")),
    ("cjson, an index far out", "cjson", "return cjson.encode({[2147483647] = 1})", Fails("excessively sparse")),
];

const EXHAUSTION: &[Attempt] = &[
    ("a loop", "hangs", "while true do end", Fails(OUT_OF_TIME)),
    ("a loop of pcall", "hangs", "while true do pcall(function() while true do end end) end", Fails(OUT_OF_TIME)),
    (
        "a handler that catches the end",
        "hangs",
        "xpcall(function() while true do end end, function() while true do end end)",
        Fails(OUT_OF_TIME),
    ),
    ("handlers in handlers", "hangs", "local function f() while true do xpcall(error, f) end end f()", Fails("")),
    (
        "coroutines that catch the end",
        "hangs",
        "while true do \
        local w = coroutine.wrap(function() while true do pcall(function() while true do end end) end end)
        pcall(w) end",
        Fails(OUT_OF_TIME),
    ),
    (
        "coroutines that yield to one another",
        "hangs",
        "local function f() while true do coroutine.yield() end end
        local a = coroutine.wrap(f) while true do a() end",
        Fails(OUT_OF_TIME),
    ),
    (
        "an endless __index",
        "hangs",
        "return setmetatable({}, {__index = function(t, k) while true do end end}).x",
        Fails(OUT_OF_TIME),
    ),
    ("an endless comparison", "hangs", "table.sort({1, 2, 3}, function() while true do end end)", Fails(OUT_OF_TIME)),
    ("an endless replacement", "hangs", "('x'):gsub('x', function() while true do end end)", Fails(OUT_OF_TIME)),
    ("a pattern without end", "hangs", "return ('a'):rep(100000):find('.-.-.-.-b')", Fails(OUT_OF_TIME)),
    ("a pattern of captures", "hangs", "return ('a'):rep(50):match(('(a*)'):rep(30) .. 'b')", Fails(OUT_OF_TIME)),
    (
        "a pattern without end, plainly caught",
        "hangs",
        "while true do pcall(string.gsub, ('a'):rep(100000), '.-.-.-b', '') end",
        Fails(OUT_OF_TIME),
    ),
    ("a write, then a loop", "hangs", "redis.call('set', 'x', 1) while true do end", Fails(OUT_OF_TIME)),
    ("a write, then too much", "memory", "redis.call('set', 'x', 1) return ('x'):rep(1e8)", Fails(OUT_OF_MEMORY)),
    ("calls of commands", "hangs", "while true do redis.pcall('ping') end", Fails(OUT_OF_TIME)),
    ("a reply without end", "hangs", "local t = {{}} for i = 1, 60 do t = {t, t} end return t", Fails("")),
    ("JSON without end", "hangs", "local t = {{}} for i = 1, 60 do t = {t, t} end return cjson.encode(t)", Fails("")),
    ("recursion", "the stack", "local function f() return 1 + f() end return f()", Fails("stack overflow")),
    ("recursion by pcall", "the stack", "local function f() return pcall(f) end return tostring(f())", Vanishes),
    (
        "recursion by gsub",
        "the stack",
        "local function f() return (('x'):gsub('x', f)) end return f()",
        Fails("C stack overflow"),
    ),
    ("recursion by sort", "the stack", "local function f() table.sort({1, 2}, f) end f()", Fails("stack overflow")),
    ("recursion by coroutines", "the stack", "local function f() coroutine.wrap(f)() end f()", Fails("")),
    ("recursion by load", "the stack", "local function f() assert(load(f)) end f()", Fails("C stack overflow")),
    (
        "recursion by metamethods",
        "the stack",
        "local t = setmetatable({}, {}) getmetatable(t).__index = function(_, k) return t[k] end \
         return t.x",
        Fails(""),
    ),
    (
        "a pattern of choices",
        "the stack",
        "return ('a'):rep(300000):find(('a?'):rep(300000) .. 'b')",
        Fails("pattern too complex"),
    ),
    ("string.rep", "memory", "return ('x'):rep(2 ^ 31 - 1)", Fails("resulting string too large")),
    ("string.rep, caught", "memory", "while true do pcall(string.rep, 'x', 1e8) end", Fails(OUT_OF_MEMORY)),
    ("doubling", "memory", "local s = 'x' while true do s = s .. s end", Fails(OUT_OF_MEMORY)),
    ("tables", "memory", "local t = {} while true do t[#t + 1] = {} end", Fails(OUT_OF_MEMORY)),
    (
        "tables, caught",
        "memory",
        "local t = {} while true do pcall(function() while true do t[#t + 1] = {t} end end) end",
        Fails(OUT_OF_MEMORY),
    ),
    (
        "coroutines",
        "memory",
        "local t = {} while true do t[#t + 1] = coroutine.create(function() end) end",
        Fails(OUT_OF_MEMORY),
    ),
    ("gsub", "memory", "return (('x'):rep(1e6):gsub('x', ('y'):rep(1e3)))", Fails(OUT_OF_MEMORY)),
    (
        "table.concat",
        "memory",
        "local t, s = {}, ('x'):rep(1e6) for i = 1, 1000 do t[i] = s end return table.concat(t)",
        Fails(OUT_OF_MEMORY),
    ),
    (
        "the collector, stopped",
        "collectgarbage",
        "collectgarbage('stop') \
        collectgarbage('setpause', 1e9) collectgarbage('setstepmul', 0)
        for i = 1, 300 do local s = ('x'):rep(1e6) .. i end return 'alive'",
        Gets("alive"),
    ),
];

const COMMANDS: &[Attempt] = &[
    ("a script in a script", "commands", "return redis.call('eval', 'return 1', 0)", Fails("not allowed from script")),
    ("a command that kills", "commands", "return redis.call('shutdown', 'nosave')", Fails("not allowed from script")),
    (
        "configuration",
        "commands",
        "return redis.call('config', 'set', 'script-time-limit', '0')",
        Fails("not allowed from script"),
    ),
    ("subscriptions", "commands", "return redis.call('subscribe', 'x')", Fails("not allowed from script")),
    ("transactions", "commands", "return redis.call('multi')", Fails("not allowed from script")),
    (
        "writes in spite of no-writes",
        "flags",
        "#!lua flags=no-writes\nreturn redis.pcall('set', 'x', 1)",
        Fails("Write commands are not allowed"),
    ),
    (
        "writes that are not recorded",
        "set_repl",
        "redis.set_repl(redis.REPL_NONE) return redis.call('set', 'x')",
        Fails("Wrong number of args"),
    ),
    ("functions from a script", "functions", "redis.register_function('f', function() end)", Fails("")),
];

/// The environment of a fresh script: all globals and all functions of all libraries by their addresses, metatables,
/// settings.
const VIEW: &str = r"
local out = {}
local function note(name, t)
  local fields = {}
  for k, v in pairs(t) do
    fields[#fields + 1] = tostring(k) .. '=' .. (type(v) == 'table' and 'table' or tostring(v))
  end
  table.sort(fields)
  out[#out + 1] = name .. ': ' .. table.concat(fields, ', ')
end
note('_G', _G)
local tables = {'redis', 'server', 'string', 'table', 'math', 'bit', 'cjson', 'cmsgpack', 'struct', 'coroutine', 'os'}
for _, name in ipairs(tables) do
  note(name, _G[name])
  out[#out + 1] = tostring(getmetatable(_G[name]))
end
note('of strings', getmetatable(''))
out[#out + 1] = tostring(('x').rep == string.rep) .. ('x'):upper() .. tostring(redis.call == server.call)
out[#out + 1] = #KEYS .. #ARGV .. tostring(KEYS[1]) .. tostring(ARGV[1])
  .. tostring(KEYS.leak) .. tostring(getmetatable(KEYS))
for _, setting in ipairs({'encode_max_depth', 'decode_max_depth', 'encode_number_precision', 'encode_keep_buffer'}) do
  out[#out + 1] = setting .. '=' .. tostring(cjson[setting]())
end
out[#out + 1] = tostring(cjson.encode_invalid_numbers()) .. tostring(cjson.decode_invalid_numbers())
local convert, ratio, safe = cjson.encode_sparse_array()
out[#out + 1] = tostring(convert) .. ratio .. ' ' .. safe
out[#out + 1] = cjson.encode({1, {a = cjson.null}, 'x/y'}) .. cmsgpack.unpack(cmsgpack.pack('x')) .. struct.size('i4')
return table.concat(out, '\n')";

fn view(raw: &mut Raw) -> String {
    let seen = raw.command(&["EVAL", VIEW, "0"]);
    assert!(matches!(seen, Value::Bulk(_)), "{seen:?}");
    String::from_utf8_lossy(seen.bytes().unwrap_or_default()).into_owned()
}

fn meets(got: &Value, fate: &Fate) -> bool {
    let text = match got {
        Value::Integer(n) => n.to_string(),
        other => String::from_utf8_lossy(other.bytes().unwrap_or_default()).into_owned(),
    };
    match fate {
        Fails(words) => matches!(got, Value::Error(_)) && text.contains(words),
        Gets(answer) => !matches!(got, Value::Error(_)) && text == *answer,
        Vanishes => true,
    }
}

fn limit_time(raw: &mut Raw, source: &str, fate: &Fate) {
    let hangs = source == "hangs" || matches!(fate, Fails(OUT_OF_TIME));
    let limit = if hangs { TIME_LIMIT } else { "0" };
    assert_eq!(raw.command(&["CONFIG", "SET", "script-time-limit", limit]), Value::status("OK"));
}

/// The server under attack; never the oracle, which some of these attempts crash.
fn server() -> Option<Server> {
    std::env::var("SUITE_SERVER").is_err().then(|| Server::start(Program::Tidegate, &MEMORY_LIMIT))
}

#[test]
fn no_script_escapes_the_sandbox() {
    let Some(mut server) = server() else { return };
    let mut raw = server.raw();
    let before = view(&mut raw);
    let sections = [BYTECODE, LIBRARIES, SHARED_TABLES, BASIC_TYPES, PARSER, RANGES, EXHAUSTION, COMMANDS];
    let attempts: Vec<&Attempt> = sections.into_iter().flatten().collect();
    assert!(attempts.len() >= 60);
    let mut faults = Vec::new();
    for (name, source, script, fate) in attempts {
        limit_time(&mut raw, source, fate);
        let got = raw.command(&["EVAL", script, "0"]);
        if !meets(&got, fate) {
            faults.push(format!("{name} ({source}): {got:?}"));
        }
        assert!(!server.has_ended(), "{name} ({source}) has ended the server");
        assert_eq!(raw.command(&["DBSIZE"]), Value::Integer(0), "{name} ({source}) wrote");
        assert_eq!(view(&mut raw), before, "{name} ({source}) left something behind");
    }
    assert!(faults.is_empty(), "{} attempts end otherwise:\n{}", faults.len(), faults.join("\n"));
}

/// Libraries: name, code after the first line, and the required result of loading it, or else of calling its function
/// `f`.
const LIBRARY_ATTEMPTS: &[(&str, &str, Fate)] = &[
    ("commands while it is loaded", "redis.call('set', 'x', 1)", Fails("nonexistent global variable 'call'")),
    ("globals while it is loaded", "evil = 1", Fails(READONLY)),
    ("the API while it is loaded", "redis.register_function = nil", Fails(READONLY)),
    ("a loop while it is loaded", "while true do end", Fails("FUNCTION LOAD timeout")),
    ("memory while it is loaded", "local s = ('x'):rep(1e8)", Fails("script-memory-limit")),
    ("strings while it is loaded", "getmetatable('').__index = {}", Fails("")),
    ("globals while it runs", "redis.register_function('f', function() evil = 1 end)", Fails(READONLY)),
    (
        "registering while it runs",
        "local r = redis.register_function r('f', function() r('g', function() end) end)",
        Fails("can only be called on FUNCTION LOAD"),
    ),
    ("keys as globals", "redis.register_function('f', function() return KEYS end)", Fails("variable 'KEYS'")),
    (
        "a loop while it runs",
        "redis.register_function('f', function() while true do pcall(error) end end)",
        Fails(OUT_OF_TIME),
    ),
    (
        "memory while it runs",
        "redis.register_function('f', function() while true do pcall(string.rep, 'x', 1e8) end end)",
        Fails(OUT_OF_MEMORY),
    ),
    (
        "writes in spite of no-writes",
        "redis.register_function{function_name = 'f', flags = {'no-writes'}, \
         callback = function() return redis.call('set', 'x', 1) end}",
        Fails("Write commands are not allowed"),
    ),
];

#[test]
fn no_library_escapes_the_sandbox() {
    let Some(server) = server() else { return };
    let mut raw = server.raw();
    let before = view(&mut raw);
    for (name, code, fate) in LIBRARY_ATTEMPTS {
        limit_time(&mut raw, "", fate);
        let mut got = raw.command(&["FUNCTION", "LOAD", "REPLACE", &format!("#!lua name=attempt\n{code}")]);
        if got == Value::bulk("attempt") {
            got = raw.command(&["FCALL", "f", "0"]);
        }
        assert!(meets(&got, fate), "{name}: {got:?}");
        assert_eq!(raw.command(&["DBSIZE"]), Value::Integer(0), "{name}");
        assert_eq!(view(&mut raw), before, "{name}");
    }
}
