//! Tests of scripts that run out of memory at every possible place.
//!
//! Each script of a corpus runs once to count its requests for more memory. Then it runs once for each of these
//! requests, which is refused. In every case the client must get an error, the state must be as sound as before, and
//! nothing may be left of the run. In a sanitizer's build, damage by a refusal shows at once; in every test build
//! LuaJIT checks its own assertions.

use super::super::debug::tests as debugger;
use super::super::tests::{ESCAPES, Toy, eval, run, transcribed_scripts, vm};
use super::super::*;
use crate::resp::reply::Form;
use crate::script::limits::SCRIPT_LARGE_BLOCK_BYTES;

/// Bytes that hundreds of runs may leave: tables and buffers that Lua keeps enlarged for the next script.
const KEPT_BYTES: usize = 32 * 1024;

/// The least size of a large block in the second round, in bytes. The blocks that LuaJIT can't do without when it
/// creates a closure with upvalues (`lj_func_newL_gc`) are smaller.
const LARGE_BYTES: usize = 256;

/// A limit that is never reached, so that only the ordered faults refuse.
const NO_LIMIT: usize = 1 << 40;

/// Cases missing from the transcripts: the insides of C functions, deep and wide values, errors during errors.
const SCRIPTS: &[&str] = &[
    "local t = {} for i = 1, 50 do t[i] = {i, tostring(i)} end return #t",
    "local t = {} for i = 1, 50 do t['k' .. i] = i end return t.k50",
    "local t = {} for i = 1, 40 do t = {t} end return t",
    "local t = {} for i = 1, 30 do t[i] = {('x'):upper(), ('yz'):reverse(), ('Q'):lower(), ('abc'):sub(2)} end \
     return #t",
    "local function f(n) if n == 0 then return 0 end return 1 + f(n - 1) end return f(300)",
    "local function f(...) return select('#', ...) end return f(unpack({1, 2, 3, 4, 5, 6, 7, 8, 9, 10}, 1, 200))",
    "local s = '' for i = 1, 30 do s = s .. i .. 'abcdefgh' end return s",
    "local t = {} for i = 1, 30 do t[#t + 1] = ('%d %s %q %5.2f'):format(i, 'x', 'y\\n', i / 3) end \
     return table.concat(t, ',')",
    "return (('x'):rep(3000):gsub('x', 'yz'))",
    "return (('abc def'):gsub('%w+', function(w) return w:upper() .. #w end))",
    "return (('abc def'):gsub('%w+', {abc = 'x', def = {}}))",
    "local t = {} for k, v in ('a=1, b=2, c=3'):gmatch('(%w+)=(%w+)') do t[#t + 1] = k .. v end return t",
    "return {('key = value'):find('(%w+)%s*=%s*(%w+)')}",
    "local t = {} for i = 1, 60 do t[i] = (i * 7919) % 61 end table.sort(t) return t",
    "local t = {'b', 'a', 'c'} \
     table.sort(t, function(a, b) return tostring(a) .. 'x' < tostring(b) .. 'x' end) return t",
    "return pcall(table.sort, {3, 2, 1}, function() error('no order') end)",
    "local c = coroutine.wrap(function(a) for i = 1, 10 do a = coroutine.yield(a .. i) end return a end) \
     local s = 'x' for i = 1, 10 do s = c(s) end return s",
    "local t = {} for i = 1, 20 do t[i] = coroutine.create(function(x) return {x, i} end) end \
     for i = 1, 20 do coroutine.resume(t[i], i) end return #t",
    "local c = coroutine.create(function() error({err = 'E in a coroutine'}) end) \
     return {coroutine.resume(c), coroutine.status(c)}",
    "local c = coroutine.wrap(function() \
     local c = coroutine.wrap(function() return ('x'):rep(100) .. tostring({}) end) return c() end) return #c()",
    "return cjson.encode({1, 'two', {three = 3, four = {4, 4.5, true, cjson.null}}, ('x'):rep(200)})",
    "return cjson.decode('[1,\"two\",{\"three\":3,\"four\":[4,4.5,true,null]},\"\\\\u00e9\\\\n\"]')[3].four[2]",
    "local t = {} for i = 1, 40 do t[i] = {id = i, name = 'n' .. i} end return #cjson.decode(cjson.encode(t))",
    "return pcall(cjson.decode, '[1,2,{\"a\":')",
    "return pcall(cjson.encode, {[1] = 1, [1000000] = 2})",
    "local t = {} t.t = t return pcall(cjson.encode, t)",
    "cjson.encode_keep_buffer(false) return cjson.encode({1, {}, {a = {}}})",
    "return cmsgpack.pack({1, 'two', {three = 3}, 1.5, -70000, true}, 'again', ('y'):rep(300))",
    "return {cmsgpack.unpack(cmsgpack.pack({1, {2, {3}}}, 'x', {a = {b = 'c'}}))}",
    "return {cmsgpack.unpack_limit(cmsgpack.pack(1, 2, 3), 2, 0)}",
    "return pcall(cmsgpack.unpack, '\\147\\1\\2')",
    "return {struct.unpack('>I2i4dsc3', struct.pack('>I2i4dsc3', 1, -2, 3.5, 'four', 'fiv'))}",
    "return pcall(struct.unpack, '>I4', 'ab')",
    "return {bit.tohex(255), bit.bor(1, 2), tostring(2^53), 1e100 .. ''}",
    "error('plain')",
    "error({err = 'MY error', extra = {}})",
    "error(setmetatable({}, {__tostring = function() return ('x'):rep(50) .. 'y' end}))",
    "return redis.error_reply('MY ' .. ('x'):rep(40))",
    "return {ok = 'FINE ' .. 1}",
    "return redis.status_reply('FINE')",
    "return pcall(function() local t = nil return t.x end)",
    "return {pcall(error, {err = 'caught ' .. 1})}",
    "return {xpcall(function() error('x' .. 1) end, function(e) return 'handled ' .. e .. tostring({}) end)}",
    "return {xpcall(function() error('x') end, function(e) error('in the handler') end)}",
    "return {pcall(pcall, error, 'x')}",
    "local t = setmetatable({}, {__index = function(t, k) return k .. k end, \
     __newindex = function(t, k, v) rawset(t, k .. '!', v) end}) t.a = t.b return t['a!']",
    "local mt = {__add = function(a, b) return 'sum' .. 1 end, __concat = function(a, b) return 'con' .. 2 end, \
     __eq = function() return true end, __lt = function() return true end, \
     __call = function(self, x) return x .. 'called' end, __len = function() return 7 end, \
     __unm = function() return {} end} \
     local a = setmetatable({}, mt) return {a + 1, a .. 'x', a('y'), tostring(a < a)}",
    "local t = {} for i = 1, 20 do t[i] = function() return i .. 'th' end end return t[7]()",
    "return assert(loadstring('local a = ... return a .. 1, {a}'))('x')",
    "return {loadstring('not lua at all')}",
    "local n = 0 return load(function() n = n + 1 return ({'return ', '4', '2'})[n] end)()",
    "return pcall(string.rep, 'x', -1)",
    "return pcall(string.format, '%d', 'x')",
    "return {pcall(string.gsub, 'x', '(', '')}",
    "return redis.call('echo', ('x'):rep(500) .. 1)",
    "for i = 1, 20 do redis.call('set', 'key:' .. i, 'value ' .. i) end return redis.call('get', 'key:20')",
    "redis.call('set', 'n', 1) for i = 1, 10 do redis.call('incr', 'n') end return redis.call('get', 'n')",
    "return redis.pcall('incr', 'list')",
    "return redis.call('incr', 'list')",
    "return {pcall(redis.call, 'nosuch')}",
    "return redis.pcall('echo').err",
    "redis.setresp(3) return {redis.call('hgetall', 'x'), redis.sha1hex('x' .. 1)}",
    "redis.log(redis.LOG_WARNING, 'a' .. 1) return {KEYS[1], ARGV[1], #KEYS, #ARGV}",
    "KEYS[3] = 'x' .. 1 ARGV[9] = {} return {KEYS, #ARGV}",
    "local t = {} for _, k in ipairs(KEYS) do t[#t + 1] = k .. ':' end \
     for k, v in pairs(ARGV) do t[#t + 1] = k .. v end return t",
    "math.randomseed(7) return {math.random(100), math.random(5, 10), tostring(math.random())}",
    "table.foreach({a = 1, b = 2}, function(k, v) return nil end) \
     return table.foreachi({1, 2}, function(i, v) if v == 2 then return 'two' .. v end end)",
    "local t = {1, 2, 3} table.insert(t, 4) table.insert(t, 1, 0) table.remove(t, 2) return table.concat(t, '-')",
    "return string.char(104, 105, 33) .. string.byte('x') .. #string.dump(function() return 1 end)",
    "return tostring(nil) .. tostring(true) .. tostring(1.5) .. type(tostring(print))",
    "local s = ('long string '):rep(300) local t = {} for i = 1, 10 do t[i] = s .. i end return #table.concat(t)",
    "return {1, 'two', {3, {4, {5}}}, true, false, {ok = 'status'}, {err = 'ERR inner'}}",
    "return {double = 3.5}",
    "return {map = {a = 1, b = {c = 2}}}",
    "return {set = {x = true, y = true}}",
    "collectgarbage() return {collectgarbage('count') > 0}",
    "collectgarbage('step') local t = {} for i = 1, 20 do t[i] = {} end return #t",
];

/// The least sizes of large blocks: the server's, and a smaller one.
const BOTH_KINDS: [usize; 2] = [SCRIPT_LARGE_BLOCK_BYTES, LARGE_BYTES];

/// Runs `attempt` with a refusal at each of its requests in turn, once for each least size of `large` blocks. Returns
/// the number of refusals.
fn at_every_request(vm: &mut Vm, what: &str, large: &[usize], mut attempt: impl FnMut(&mut Vm) -> String) -> u64 {
    vm.set_memory_limit(NO_LIMIT);
    let mut injected = 0;
    for &large in large {
        attempt(vm);
        vm.collect();
        let before = vm.memory_bytes();
        vm.faults().requests.set(0);
        attempt(vm);
        let requests = vm.faults().requests.get();
        vm.faults().large.set(large);
        for granted in 0..requests {
            vm.start_collection();
            vm.faults().left.set(Some(granted));
            let answer = attempt(vm);
            // Lua's collector works a little differently each time, so the last requests may not occur.
            let was_refused = vm.faults().left.take().is_none();
            let is_reported = answer.contains("script-memory-limit");
            assert!(is_reported == was_refused, "{what}\nrefused after {granted} of {requests}: {answer:.300}");
            injected += 1;
        }
        vm.faults().large.set(SCRIPT_LARGE_BLOCK_BYTES);
        assert_eq!(eval(vm, &mut Toy::default(), Form::Resp2, "return #KEYS + #ARGV"), ":4\\r\\n", "after {what}");
        vm.collect();
        let stays = vm.memory_bytes().saturating_sub(before);
        assert!(stays < KEPT_BYTES, "{what}\nleaves {stays} bytes");
    }
    injected
}

#[test]
fn scripts_end_at_each_request_for_memory() {
    let mut vm = vm();
    let transcribed = transcribed_scripts();
    let own = SCRIPTS.iter().map(|script| ((*script).to_owned(), &BOTH_KINDS[..]));
    let others = ESCAPES.iter().map(|script| (*script).to_owned()).chain(transcribed);
    let (mut count, mut injected) = (0, 0);
    for (script, large) in own.chain(others.map(|script| (script, &BOTH_KINDS[..1]))) {
        count += 1;
        injected += at_every_request(&mut vm, &script, large, |vm| eval(vm, &mut Toy::default(), Form::Resp3, &script));
    }
    assert!(count >= 200 && injected > 10_000, "{count} scripts, {injected} refusals");
}

#[test]
fn bundled_scripts_and_libraries_end_at_each_request_for_memory() {
    let mut vm = vm();
    for script in bundled::BUNDLED {
        at_every_request(&mut vm, script.name, &BOTH_KINDS, |vm| {
            eval(vm, &mut Toy::default(), Form::Resp2, script.body)
        });
    }
    for library in [
        "redis.register_function('f', function(keys, args) return {keys, args} end)",
        "local shared = {} for i = 1, 30 do shared[i] = {i} end \
         redis.register_function{function_name = 'f', \
         callback = function() return shared end, flags = {'no-writes'}, description = 'x'}",
        "redis.register_function('f', 1)",
        "error('not today')",
        "local t = {} t.x()",
    ] {
        at_every_request(&mut vm, library, &BOTH_KINDS, |vm| {
            match vm.load_library(library.as_bytes(), &mut Toy::default()) {
                Ok(functions) => {
                    functions.iter().for_each(|function| vm.release(function.handle));
                    String::new()
                }
                Err(error) => error.to_string(),
            }
        });
    }
}

#[test]
fn refusals_leave_every_program_its_place() {
    let mut vm = vm();
    vm.set_memory_limit(NO_LIMIT);
    // Enough for the table of programs to grow a few times, each after a refusal at every request.
    let programs: Vec<_> = (0..600)
        .map(|i| {
            let script = format!("return {i}");
            let program = (0..1_000).find_map(|granted| {
                vm.faults().left.set(Some(granted));
                vm.compile(script.as_bytes()).ok()
            });
            vm.faults().left.set(None);
            program.expect("it compiles when nothing is refused")
        })
        .collect();
    for (i, program) in programs.into_iter().enumerate() {
        assert_eq!(run(&mut vm, &mut Toy::default(), Form::Resp2, program, &[]), format!(":{i}\\r\\n"));
    }
}

#[test]
fn the_debugger_ends_at_each_request_for_memory() {
    let mut vm = vm();
    let script = "local t = {1, 'x', {y = KEYS[1]}}\nlocal s = 'a' .. #t\nredis.call('set', 'k', s)\n\
                  return redis.call('get', 'k')";
    let says = "b 4\np\np t\ne t[4] = {s}\ne error('x')\nr echo hello\nt\nl\nw\ns\nm 100\nc";
    for says in [says, "s\ns\ns\ns", "e ('x'):rep(100)\ne return t.x.y\nc", "c"] {
        at_every_request(&mut vm, says, &BOTH_KINDS, |vm| debugger::session_on(vm, script, says));
    }
}
