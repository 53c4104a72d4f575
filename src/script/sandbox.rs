//! The sandbox: the names within reach of a script, and protection from changes.
//!
//! **Globals** are those of Redis. It is an error to read any other name, or to assign a global.
//!
//! **Read-only tables** are empty stand-ins: see [`stand_in`](super::stand_in).
//!
//! **Speed.** A chunk's environment is the *real* table of globals, so `KEYS`, `tonumber` and `redis` take one lookup.
//! Scripts can't reach that table as a value: `_G` is its stand-in, and `getfenv` and `debug` are absent. The only
//! other way to write to it is the instruction that assigns a global. A chunk with such an instruction gets the
//! stand-in as its environment ([`chunk::load`](super::chunk::load)), where the assignment fails when it is executed.
//! Library tables are stand-ins, so their functions cost a metatable access. For `redis.call` written in this form the
//! compiler saves it ([`make_calls_constant`]).
//!
//! **The C stack.** LuaJIT does not bound calls from C back into Lua. Our own functions that make such calls fail once
//! they are [`SCRIPT_C_STACK_BYTES`] below `Vm::run`.

use std::ffi::{CStr, c_int};

use super::chunk::load;
use super::context::Ctx;
use super::host::ServerVersion;
use super::interrupt::library;
use super::lua::{CFunction, Kind, Stack, ffi, until_nul, upvalue};
use super::luajit::set_constant_functions;
use super::register;
use super::room::check_c_stack;
use super::stand_in::{MARK, SHOWN, protect, push_key, push_real, refuse_protected, unwrap_stand_in};
use super::{cjson, cmsgpack, control, redis, strings, structs, tables};
use crate::script::limits::{SCRIPT_C_STACK_BYTES, SCRIPT_LOAD_MAX_BYTES};

/// Registers all functions and pushes two tables: the globals, and their stand-in. May raise for lack of memory.
pub(super) fn build(stack: Stack<'_>, ctx: *mut Ctx, version: &ServerVersion<'_>) {
    stack.new_table(0, 64);
    let env = stack.top();
    push_guard(stack, ctx, env);
    let guarded = stack.top();
    copy_builtins(stack, ffi::LUA_GLOBALSINDEX, env, BUILTINS);
    stack.push_value(guarded);
    stack.raw_set_field(env, b"_G");

    for library in LIBRARIES {
        push_library(stack, ctx, library);
        add_library(stack, ctx, env, library.0);
    }
    redis::push_table(stack, ctx, version);
    make_calls_constant(stack);
    add_api(stack, ctx, env);
    cjson::push_shared_table(stack, ctx);
    add_library(stack, ctx, env, b"cjson");
    cmsgpack::push_table(stack, ctx);
    add_library(stack, ctx, env, b"cmsgpack");
    structs::push_table(stack, ctx);
    add_library(stack, ctx, env, b"struct");

    register(stack, ctx, env, NATIVES);
    register_with_env(stack, ctx, env, guarded);
    register_iterators(stack, ctx, env);
    guard_strings(stack, ctx, env);
    register(stack, ctx, env, control::GLOBALS);
    stack.set_top(guarded);
}

/// Pushes the globals of functions and their stand-in, derived from the scripts' globals at `env`. Those must not have
/// KEYS and ARGV yet, which functions get as arguments. May raise for lack of memory.
pub(super) fn build_for_functions(stack: Stack<'_>, ctx: *mut Ctx, env: c_int, version: &ServerVersion<'_>) {
    stack.new_table(0, 64);
    let own = stack.top();
    push_guard(stack, ctx, own);
    let guarded = stack.top();
    copy_fields(stack, env, own);
    stack.push_value(guarded);
    stack.raw_set_field(own, b"_G");
    redis::push_function_table(stack, ctx, version);
    // The functions of scripts, because compiled code refers to those.
    let api = stack.top();
    stack.raw_get_field(env, API[0]);
    push_real(stack, -1);
    for name in CALLS {
        stack.raw_get_field(stack.top(), name);
        stack.raw_set_field(api, name);
    }
    stack.set_top(api);
    add_api(stack, ctx, own);
    register_with_env(stack, ctx, own, guarded);
    stack.set_top(guarded);
}

/// Pushes the stand-in of the `redis` table for libraries that are being loaded. May raise for lack of memory.
pub(super) fn build_for_loading(stack: Stack<'_>, ctx: *mut Ctx, version: &ServerVersion<'_>) {
    redis::push_load_table(stack, ctx, version);
    register::add_to(stack, ctx);
    let table = stack.top();
    refuse_missing(stack, ctx, table);
    protect(stack, ctx);
}

/// Pushes the globals of one library and their stand-in. They have only the `redis` table at `api`, under both of its
/// names. After loading, [`copy_fields`] adds the globals of functions. May raise for lack of memory.
pub(super) fn push_library_globals(stack: Stack<'_>, ctx: *mut Ctx, api: c_int) {
    stack.new_table(0, 64);
    let own = stack.top();
    push_guard(stack, ctx, own);
    for name in API {
        stack.push_value(api);
        stack.raw_set_field(own, name);
    }
}

/// Copies all fields of the table at `from` to the one at `to` (absolute or pseudo-indices).
pub(super) fn copy_fields(stack: Stack<'_>, from: c_int, to: c_int) {
    stack.push_nil();
    while stack.next(from) {
        stack.push_value(-2);
        stack.insert(-2);
        stack.raw_set(to);
    }
}

/// LuaJIT's functions that scripts get unchanged.
const BUILTINS: &[&[u8]] =
    &[b"_VERSION", b"error", b"ipairs", b"rawequal", b"select", b"tonumber", b"tostring", b"type", b"unpack"];

/// Our own functions, equal to LuaJIT's or stricter.
const NATIVES: &[(&[u8], CFunction)] = &[
    (b"assert", assert),
    (b"collectgarbage", collectgarbage),
    (b"gcinfo", gcinfo),
    (b"rawget", rawget),
    (b"rawset", rawset),
    (b"setmetatable", setmetatable),
];

/// A library: its name; its fields in the order in which Lua 5.1 sets them, because scripts may iterate over it; the
/// number of functions with which Lua 5.1 creates the table; and our own functions. The others are LuaJIT's.
type Library = (&'static [u8], &'static [&'static [u8]], usize, &'static [(&'static [u8], CFunction)]);

const LIBRARIES: &[Library] = &[
    (
        b"string",
        &[
            b"byte", b"char", b"dump", b"find", b"format", b"gfind", b"gmatch", b"gsub", b"len", b"lower", b"match",
            b"rep", b"reverse", b"sub", b"upper",
        ],
        15,
        strings::FUNCTIONS,
    ),
    (
        b"table",
        &[b"concat", b"foreach", b"foreachi", b"getn", b"maxn", b"insert", b"remove", b"setn", b"sort"],
        9,
        tables::FUNCTIONS,
    ),
    (
        b"math",
        &[
            b"abs",
            b"acos",
            b"asin",
            b"atan2",
            b"atan",
            b"ceil",
            b"cosh",
            b"cos",
            b"deg",
            b"exp",
            b"floor",
            b"fmod",
            b"frexp",
            b"ldexp",
            b"log10",
            b"log",
            b"max",
            b"min",
            b"modf",
            b"pow",
            b"rad",
            b"random",
            b"randomseed",
            b"sinh",
            b"sin",
            b"sqrt",
            b"tanh",
            b"tan",
            b"pi",
            b"huge",
            b"mod",
        ],
        28,
        &[(b"deg", math_deg), (b"rad", math_rad), (b"random", math_random), (b"randomseed", math_randomseed)],
    ),
    (
        b"bit",
        &[
            b"tobit", b"bnot", b"band", b"bor", b"bxor", b"lshift", b"rshift", b"arshift", b"rol", b"ror", b"bswap",
            b"tohex",
        ],
        12,
        &[(b"tohex", bit_tohex)],
    ),
    (b"coroutine", &[b"create", b"resume", b"running", b"status", b"wrap", b"yield"], 6, control::COROUTINE),
    (b"os", &[b"clock"], 1, &[(b"clock", os_clock)]),
];

/// Pushes the table of a library. May raise for lack of memory.
fn push_library(stack: Stack<'_>, ctx: *mut Ctx, (name, fields, functions, natives): &Library) {
    stack.new_table(0, *functions);
    let library = stack.top();
    stack.raw_get_field(ffi::LUA_GLOBALSINDEX, name);
    let original = stack.top();
    for field in *fields {
        if let Some((_, function)) = natives.iter().find(|native| native.0 == *field) {
            stack.push_function(ctx, *function);
        } else if (*name, *field) == (b"string", b"format") {
            strings::push_format(stack, ctx, original);
        } else {
            // `math.mod` is the old name of `math.fmod`.
            stack.raw_get_field(original, if *field == b"mod" { b"fmod" } else { field });
        }
        stack.raw_set_field(library, field);
    }
    stack.set_top(library);
}

fn copy_builtins(stack: Stack<'_>, from: c_int, to: c_int, names: &[&[u8]]) {
    for name in names {
        stack.raw_get_field(from, name);
        stack.raw_set_field(to, name);
    }
}

fn register(stack: Stack<'_>, ctx: *mut Ctx, table: c_int, functions: &[(&[u8], CFunction)]) {
    for (name, function) in functions {
        stack.push_function(ctx, *function);
        stack.raw_set_field(table, name);
    }
}

/// Pops a table and sets the global `name` to its stand-in.
fn add_library(stack: Stack<'_>, ctx: *mut Ctx, env: c_int, name: &[u8]) {
    protect(stack, ctx);
    stack.raw_set_field(env, name);
}

/// The names of the `redis` table.
const API: [&[u8]; 2] = [b"redis", b"server"];

/// Functions of that table which compiled chunks refer to directly: a look-up through the stand-in takes 200
/// instructions.
const CALLS: [&[u8]; 2] = [b"call", b"pcall"];

/// Makes chunks compiled from here on refer directly to functions of the `redis` table on top.
fn make_calls_constant(stack: Stack<'_>) {
    let api = stack.top();
    stack.new_table(0, API.len());
    stack.new_table(0, CALLS.len());
    for name in CALLS {
        stack.raw_get_field(api, name);
        stack.raw_set_field(api + 2, name);
    }
    for name in API {
        stack.push_value(api + 2);
        stack.raw_set_field(api + 1, name);
    }
    stack.pop(1);
    set_constant_functions(stack);
}

/// Pops a `redis` table and sets the globals of both of its names to its stand-in.
fn add_api(stack: Stack<'_>, ctx: *mut Ctx, env: c_int) {
    let api = stack.top();
    protect(stack, ctx);
    for name in API {
        stack.push_value(api);
        stack.raw_set_field(env, name);
    }
    stack.pop(1);
}

/// Pushes the stand-in of the globals at `env`, and makes it an error to read a missing global.
fn push_guard(stack: Stack<'_>, ctx: *mut Ctx, env: c_int) {
    refuse_missing(stack, ctx, env);
    stack.push_metatable(env);
    // `getmetatable(_G)` returns that metatable, read-only as well.
    protect(stack, ctx);
    stack.push_value(env);
    protect(stack, ctx);
    stack.push_metatable(-1);
    push_key(stack, &SHOWN);
    stack.push_value(env + 1);
    stack.raw_set(-3);
    stack.pop(1);
    stack.remove(env + 1);
}

/// Makes it an error to read a missing field of the table at `i`.
fn refuse_missing(stack: Stack<'_>, ctx: *mut Ctx, i: c_int) {
    stack.new_table(0, 1);
    let meta = stack.top();
    stack.push_function(ctx, refuse_name);
    stack.raw_set_field(meta, b"__index");
    stack.set_metatable(i);
}

/// Registers `loadstring` and `load`, whose upvalues are the environments of chunks.
fn register_with_env(stack: Stack<'_>, ctx: *mut Ctx, env: c_int, guarded: c_int) {
    for (name, function) in [(b"loadstring".as_slice(), loadstring as CFunction), (b"load", load_pieces)] {
        stack.push_light(ctx.cast());
        stack.push_value(env);
        stack.push_value(guarded);
        stack.push_closure(function, 3);
        stack.raw_set_field(env, name);
    }
}

/// Registers `next` and `pairs`. For ordinary tables `pairs` returns LuaJIT's own `next`, whose loops are fast.
fn register_iterators(stack: Stack<'_>, ctx: *mut Ctx, env: c_int) {
    register(stack, ctx, env, &[(b"next", next)]);
    stack.push_light(ctx.cast());
    stack.raw_get_field(ffi::LUA_GLOBALSINDEX, b"next");
    stack.raw_get_field(env, b"next");
    stack.push_closure(pairs, 3);
    stack.raw_set_field(env, b"pairs");
}

/// Takes the methods of strings from our `string`, and makes `getmetatable('')` return a read-only metatable.
fn guard_strings(stack: Stack<'_>, ctx: *mut Ctx, env: c_int) {
    stack.push_bytes(b"");
    stack.new_table(0, 1);
    stack.raw_get_field(env, b"string");
    push_real(stack, -1);
    stack.remove(-2);
    stack.raw_set_field(stack.top() - 1, b"__index");
    stack.set_metatable(-2);
    stack.pop(1);

    stack.push_light(ctx.cast());
    stack.new_table(0, 1);
    stack.raw_get_field(env, b"string");
    stack.raw_set_field(stack.top() - 1, b"__index");
    protect(stack, ctx);
    stack.push_closure(getmetatable, 2);
    stack.raw_set_field(env, b"getmetatable");
}

const RADIANS_PER_DEGREE: f64 = std::f64::consts::PI / 180.0;

/// A number as 32 bits for `bit`: the low bits of the nearest integer.
fn low_bits(number: f64) -> u32 {
    // Adding 2^52 + 2^51 leaves the integer in the low bits.
    (number + 6_755_399_441_055_744.0).to_bits() as u32
}

library! {
    /// `__index` of the globals.
    fn refuse_name(stack: Stack) -> c_int {
        let buffer = stack.buffer();
        buffer.extend(b"Script attempted to access nonexistent global variable '");
        buffer.extend(stack.text(2).unwrap_or(b"(null)"));
        buffer.push(b'\'');
        stack.push_where(1);
        buffer.push_to(stack);
        stack.concat(2);
        stack.raise_top()
    }

    fn assert(stack: Stack) -> c_int {
        stack.check_any(1);
        if stack.boolean(1) {
            return stack.top();
        }
        let message = match stack.kind(2) {
            Kind::None | Kind::Nil => b"assertion failed!",
            _ => stack.check_bytes(2),
        };
        // A NUL byte ends the message, as in C.
        stack.raise(until_nul(message))
    }

    fn rawget(stack: Stack) -> c_int {
        stack.check_table(1);
        stack.check_any(2);
        stack.set_top(2);
        unwrap_stand_in(stack, 1);
        stack.raw_get(1);
        1
    }

    fn rawset(stack: Stack) -> c_int {
        stack.check_table(1);
        stack.check_any(2);
        stack.check_any(3);
        stack.set_top(3);
        refuse_protected(stack, 1);
        stack.raw_set(1);
        1
    }

    fn next(stack: Stack) -> c_int {
        stack.check_table(1);
        stack.set_top(2);
        unwrap_stand_in(stack, 1);
        if stack.next(1) {
            return 2;
        }
        stack.push_nil();
        1
    }

    fn pairs(stack: Stack) -> c_int {
        stack.check_table(1);
        let protected = push_real(stack, 1);
        stack.push_value(upvalue(if protected { 3 } else { 2 }));
        stack.push_value(1);
        stack.push_nil();
        3
    }

    fn setmetatable(stack: Stack) -> c_int {
        stack.check_table(1);
        if !matches!(stack.kind(2), Kind::Nil | Kind::Table) {
            stack.raise_argument(2, &[b"nil or table expected"]);
        }
        stack.set_top(2);
        refuse_protected(stack, 1);
        if stack.push_metatable(1) {
            stack.raw_get_field(3, b"__metatable");
            if stack.kind(-1) != Kind::Nil {
                stack.raise(b"cannot change a protected metatable");
            }
            stack.set_top(2);
        }
        stack.set_metatable(1);
        1
    }

    fn getmetatable(stack: Stack) -> c_int {
        stack.check_any(1);
        if stack.kind(1) == Kind::String {
            stack.push_value(upvalue(2));
            return 1;
        }
        if !stack.push_metatable(1) {
            stack.push_nil();
            return 1;
        }
        let meta = stack.top();
        push_key(stack, &MARK);
        stack.raw_get(meta);
        if stack.kind(-1) != Kind::Nil {
            push_key(stack, &SHOWN);
            stack.raw_get(meta);
            return 1;
        }
        stack.raw_get_field(meta, b"__metatable");
        if stack.kind(-1) == Kind::Nil {
            stack.push_value(meta);
        }
        1
    }

    fn collectgarbage(stack: Stack) -> c_int {
        let option = if stack.top() == 0 { b"collect" } else { stack.check_bytes(1) };
        let collect = |what| stack.memory().let_collect(what);
        match option {
            b"count" => stack.push_number(
                f64::from(collect(ffi::LUA_GCCOUNT)) + f64::from(collect(ffi::LUA_GCCOUNTB)) / 1024.0,
            ),
            b"collect" => {
                collect(ffi::LUA_GCCOLLECT);
                stack.push_number(0.0);
            }
            b"step" => stack.push_boolean(collect(ffi::LUA_GCSTEP) != 0),
            // The server owns the collector's settings: one script must not stop it for all others.
            b"stop" | b"restart" => stack.push_number(0.0),
            b"setpause" | b"setstepmul" => stack.push_number(200.0),
            _ => stack.raise_argument(1, &[b"invalid option '", option, b"'"]),
        }
        1
    }

    fn gcinfo(stack: Stack) -> c_int {
        // SAFETY: reads a counter.
        stack.push_number(f64::from(unsafe { ffi::lua_gc(stack.raw(), ffi::LUA_GCCOUNT, 0) }));
        1
    }

    fn math_random(stack: Stack) -> c_int {
        // SAFETY: the context outlives the state.
        let unit = unsafe { (*stack.ctx()).random.next_unit() };
        // Bounds are C ints, as in Lua 5.1.
        let bound = |i| f64::from(stack.check_c_int(i));
        let (low, high, at) = match stack.top() {
            0 => {
                stack.push_number(unit);
                return 1;
            }
            1 => (1.0, bound(1), 1),
            2 => (bound(1), bound(2), 2),
            _ => stack.raise(b"wrong number of arguments"),
        };
        if low > high {
            stack.raise_argument(at, &[b"interval is empty"]);
        }
        stack.push_number((unit * (high - low + 1.0)).floor() + low);
        1
    }

    fn math_deg(stack: Stack) -> c_int {
        let angle = stack.check_number(1);
        stack.push_number(angle / RADIANS_PER_DEGREE);
        1
    }

    fn math_rad(stack: Stack) -> c_int {
        let angle = stack.check_number(1);
        stack.push_number(angle * RADIANS_PER_DEGREE);
        1
    }

    fn math_randomseed(stack: Stack) -> c_int {
        let seed = stack.check_c_int(1) as u32;
        // SAFETY: as above.
        unsafe {
            let ctx = stack.ctx();
            (*ctx).altered.random.get_or_insert((*ctx).random);
            (*ctx).random = super::random::Lrand48::seeded(seed);
        }
        0
    }

    /// At most 8 digits, as in Redis' library. LuaJIT's own function handles 64-bit numbers.
    fn bit_tohex(stack: Stack) -> c_int {
        let number = stack.check_number(1);
        let digits = if stack.kind(2) == Kind::None { 8 } else { low_bits(stack.check_number(2)) as i32 };
        let alphabet: &[u8; 16] = if digits < 0 { b"0123456789ABCDEF" } else { b"0123456789abcdef" };
        let bits = low_bits(number);
        let text: [u8; 8] = std::array::from_fn(|i| alphabet[(bits >> (28 - 4 * i)) as usize & 15]);
        stack.push_bytes(&text[8 - digits.unsigned_abs().min(8) as usize..]);
        1
    }

    fn os_clock(stack: Stack) -> c_int {
        let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: fills the given record.
        unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &mut time) };
        // Microseconds, as C's `clock` counts.
        stack.push_number(time.tv_sec as f64 + (time.tv_nsec / 1_000) as f64 / 1e6);
        1
    }

    fn loadstring(stack: Stack) -> c_int {
        let text = stack.check_bytes(1);
        if text.len() > SCRIPT_LOAD_MAX_BYTES {
            stack.raise(b"chunk too large");
        }
        let name = if matches!(stack.kind(2), Kind::None | Kind::Nil) { text } else { stack.check_bytes(2) };
        answer_chunk(stack, text, c_name(name))
    }

    /// `load`, which gets the text piece by piece from a function.
    fn load_pieces(stack: Stack) -> c_int {
        stack.check_function(1);
        let name =
            if matches!(stack.kind(2), Kind::None | Kind::Nil) { c"=(load)" } else { c_name(stack.check_bytes(2)) };
        stack.set_top(2);
        check_c_stack(stack, SCRIPT_C_STACK_BYTES);
        stack.new_table(0, 0);
        let (mut pieces, mut bytes) = (0, 0);
        loop {
            if bytes > SCRIPT_LOAD_MAX_BYTES {
                stack.raise(b"chunk too large");
            }
            stack.tick();
            stack.push_value(1);
            stack.call(0, 1);
            match stack.text(-1) {
                Some(b"") => break,
                Some(piece) => {
                    bytes += piece.len();
                    pieces += 1;
                    stack.raw_set_at(3, pieces);
                }
                None if stack.kind(-1) == Kind::Nil => break,
                None => stack.raise(b"reader function must return a string"),
            }
        }
        stack.set_top(3);
        let buffer = stack.buffer();
        for piece in 1..=pieces {
            stack.tick();
            stack.raw_get_at(3, piece);
            buffer.extend(stack.bytes(-1));
            stack.pop(1);
        }
        buffer.push_to(stack);
        let text = stack.bytes(-1);
        answer_chunk(stack, text, name)
    }
}

/// A Lua string up to its first NUL byte.
fn c_name(lua_string: &[u8]) -> &CStr {
    // SAFETY: a NUL byte follows the bytes of a Lua string and lives as long.
    unsafe { CStr::from_ptr(lua_string.as_ptr().cast()) }
}

/// Pushes the compiled chunk, or nil and the message.
fn answer_chunk(stack: Stack<'_>, text: &[u8], name: &CStr) -> c_int {
    if load(stack, text, name, upvalue(2), upvalue(3)).is_some() {
        return 1;
    }
    stack.push_nil();
    stack.insert(-2);
    2
}
