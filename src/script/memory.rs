//! The limit on the memory of a running script.
//!
//! The state gets its memory from [`allocate`], which counts it. A script that asks for more than the limit is marked
//! to die, like a killed one, so that no `pcall` saves it. The limit applies to the memory that a run takes beyond that
//! of the state when it was last free of garbage. So neither the sandbox nor cached scripts reduce the room of a run.
//!
//! **Where it dies.** A refusal raises an error inside LuaJIT, and that is not safe everywhere (see [`Caller`]):
//!
//! | Request of | Result | Death |
//! |---|---|---|
//! | a C function | refused | there |
//! | a Lua instruction, a large block: a long concatenation, a growing table | refused | there |
//! | a Lua instruction, a small block | granted | at the next instruction, by the hook |
//! | a fast function in assembler | granted | at the next instruction, by the hook |
//!
//! So the limit is exceeded at most by the need of one instruction, or of the fast functions that run until the next
//! check. The fast functions within reach of scripts make small blocks only: those of the string library that make
//! large ones are replaced by C functions of ours. Once a script must die, allocations succeed again, because the code
//! that still runs is on its way out. If the system itself has no memory, the process ends with a line that says so.
//!
//! **Copies count.** A large block that grows is copied, so for a moment there are two. The limit applies to both
//! together.
//!
//! **Garbage.** Lua collects garbage when it holds twice the memory it last needed, and it cannot collect inside an
//! allocation. So that garbage hardly ever ends a script, there is a second, lower mark. A request beyond it makes
//! LuaJIT call the hook at the next instruction, and the hook collects. The new mark lies halfway between the memory
//! still held and the limit. The garbage of a finished script is collected later, in slices between other work
//! ([`Memory::tidy`]).
//!
//! **Our own tables** that outlive the script, the registry above all, grow without a limit ([`Memory::granted`]).
//!
//! **C functions** run to their end without a hook. Memory that our own functions use outside of Lua counts, too
//! ([`make_room`](super::room::make_room)): the scratch buffer, the arguments of a command, and the script's reply. The
//! replies of commands have bounds of their own.

use std::alloc::{Layout, alloc, dealloc, realloc};
use std::cell::Cell;
use std::ffi::{c_int, c_void};

use super::alarm::{self, interrupt};
use super::lua::ffi;
use super::luajit::{Caller, caller};
use crate::script::limits::{SCRIPT_GARBAGE_KEEP_BYTES, SCRIPT_LARGE_BLOCK_BYTES};

/// Headroom below this share of the limit is not worth a collection: a script this close to the limit will pass it.
const LEAST_HEADROOM: usize = 64;

/// The most requests to skip between two useless collections.
const PATIENCE_MAX: u32 = 63;

/// The share of the limit that a run has at least when it begins, as a divisor.
const LEAST_ROOM: usize = 2;

/// The share of the state's memory that a collection cycle must free to be worth another one, as a divisor.
const WORTHWHILE_SHARE: usize = 8;

/// Collection cycles until all earlier garbage is gone: the first one may already have been half done.
const THOROUGH_CYCLES: u32 = 2;

/// The account of a Lua state's memory, in bytes. The allocator writes to it inside any call of Lua, hence the cells.
pub(super) struct Memory {
    state: *mut ffi::lua_State,
    held: Cell<usize>,
    /// Growth beyond this mark is examined. Between runs there is no mark.
    mark: Cell<usize>,
    /// In a run, garbage is collected beyond this: at most the ceiling.
    collect_above: Cell<usize>,
    /// The most that a run may add to `floor`.
    limit: Cell<usize>,
    /// Memory held when the state was last free of garbage between two runs.
    floor: Cell<usize>,
    patience: Cell<Patience>,
    collection_due: Cell<bool>,
    is_exhausted: Cell<bool>,
    /// Between runs, the garbage of earlier ones is collected beyond this.
    tidy_above: Cell<usize>,
    /// The collection in progress between two runs.
    tidying: Cell<Option<Tidying>>,
    #[cfg(test)]
    pub(super) faults: Faults,
}

/// A collection that continues until a cycle frees little.
#[derive(Clone, Copy)]
struct Tidying {
    /// Memory held when the cycle began.
    held: usize,
    /// Number of finished cycles.
    cycles: u32,
}

/// Spaces out the collections of a run whose C functions build large data again and again beyond the mark: collecting
/// each time when there is hardly any garbage would take nearly all of its time.
#[derive(Clone, Copy, Default)]
struct Patience {
    /// Requests to skip before the next one collects.
    wait: u32,
    waited: u32,
}

/// Refusals ordered by tests.
#[cfg(test)]
pub(super) struct Faults {
    /// Number of requests to grant before one is refused; `None` if none is to be refused, or one has been.
    pub(super) left: Cell<Option<u64>>,
    /// Number of requests so far.
    pub(super) requests: Cell<u64>,
    /// The least size of a large block, in bytes.
    pub(super) large: Cell<usize>,
}

#[cfg(test)]
impl Default for Faults {
    fn default() -> Faults {
        Faults { left: Cell::new(None), requests: Cell::new(0), large: Cell::new(SCRIPT_LARGE_BLOCK_BYTES) }
    }
}

impl Memory {
    /// Returns an account without a limit for a state that already holds `held` bytes.
    pub(super) fn new(state: *mut ffi::lua_State, held: usize) -> Memory {
        Memory {
            state,
            held: Cell::new(held),
            mark: Cell::new(usize::MAX),
            collect_above: Cell::new(usize::MAX),
            limit: Cell::new(usize::MAX),
            floor: Cell::new(held),
            patience: Cell::default(),
            collection_due: Cell::new(false),
            is_exhausted: Cell::new(false),
            tidy_above: Cell::new(usize::MAX),
            tidying: Cell::new(None),
            #[cfg(test)]
            faults: Faults::default(),
        }
    }

    /// Bytes held by the state.
    pub(super) fn held(&self) -> usize {
        self.held.get()
    }

    /// The most that the state may hold during a run.
    fn ceiling(&self) -> usize {
        self.floor.get().saturating_add(self.limit.get())
    }

    /// Bytes that the state may still take.
    #[inline]
    pub(super) fn room(&self) -> usize {
        self.ceiling().saturating_sub(self.held.get())
    }

    /// Sets the limit of the next runs; `usize::MAX` for none.
    #[inline]
    pub(super) fn set_limit(&self, limit: usize) {
        if limit != self.limit.get() {
            self.limit.set(limit);
            self.collect();
            self.is_tidy();
        }
    }

    /// Notes that a run begins.
    #[inline]
    pub(super) fn begin(&self) {
        self.patience.set(Patience::default());
        let held = self.held.get();
        if held <= self.collect_above.get() {
            return self.mark.set(self.collect_above.get());
        }
        // There is garbage of earlier runs that `tidy` has not yet collected.
        if self.room() < self.limit.get() / LEAST_ROOM {
            // It would leave no room even for a single block of this run.
            self.collect();
            self.is_tidy();
            self.mark.set(self.collect_above.get());
        } else {
            // It is collected if this run needs the room.
            self.mark.set(held + self.room() / 2);
        }
    }

    /// Notes that the run is over.
    #[inline]
    pub(super) fn end(&self) {
        self.mark.set(usize::MAX);
    }

    /// Whether the script has asked for more than its limit, so that it must die.
    #[inline]
    pub(super) fn is_exhausted(&self) -> bool {
        self.is_exhausted.get()
    }

    /// Frees the memory of a script that died because it exhausted its limit.
    pub(super) fn recover(&self) {
        self.is_exhausted.set(false);
        self.collection_due.set(false);
        self.collect_all();
    }

    /// Collects all garbage at once.
    pub(super) fn collect_all(&self) {
        // Each collection also halves Lua's string buffer and its string table.
        loop {
            let before = self.held();
            self.collect();
            if self.held() > before - before / WORTHWHILE_SHARE {
                return self.is_tidy();
            }
        }
    }

    /// Collects garbage if the hook was called for that.
    pub(super) fn collect_if_due(&self) {
        if self.collection_due.replace(false) {
            self.collect();
            self.mark.set(self.collect_above.get());
        }
    }

    fn collect(&self) {
        self.let_collect(ffi::LUA_GCCOLLECT);
        self.collected();
    }

    /// Runs the collector's action `what`, as in `lua_gc`. The memory that it needs to free more must not be refused.
    pub(super) fn let_collect(&self, what: c_int) -> c_int {
        // SAFETY: the state is live. No script has a finalizer, and nothing is refused during the call, so nothing is
        // raised.
        self.granted(|| unsafe { ffi::lua_gc(self.state, what, 0) })
    }

    /// Runs `act` without a limit. For changes to a table that outlives the script: a table grows by two blocks, and if
    /// the second one is refused, LuaJIT leaves elements in the table that can't be found any more.
    #[inline]
    pub(super) fn granted<A>(&self, act: impl FnOnce() -> A) -> A {
        let mark = self.mark.replace(usize::MAX);
        let answer = act();
        self.mark.set(mark);
        answer
    }

    /// Computes the mark after a collection: the state now holds no garbage.
    fn collected(&self) {
        let ceiling = self.ceiling();
        let headroom = self.room();
        let is_worthwhile = headroom > self.limit.get() / LEAST_HEADROOM;
        self.collect_above.set(if is_worthwhile { ceiling - headroom / 2 } else { ceiling });
    }

    /// Collects garbage that may be scarce: less often after collections that freed little.
    fn collect_patiently(&self) {
        let Patience { wait, waited } = self.patience.get();
        if waited < wait {
            return self.patience.set(Patience { wait, waited: waited + 1 });
        }
        let before = self.held();
        self.collection_due.set(true);
        self.collect_if_due();
        let is_of_use = before.saturating_sub(self.held()) > self.limit.get() / LEAST_HEADROOM;
        let wait = if is_of_use { 0 } else { (2 * wait + 1).min(PATIENCE_MAX) };
        self.patience.set(Patience { wait, waited: 0 });
    }

    /// Whether `bytes` more would pass the mark.
    #[inline]
    pub(super) fn would_pass_mark(&self, bytes: usize) -> bool {
        self.held().saturating_add(bytes) > self.mark.get()
    }

    /// Collects garbage if `bytes` more would not fit otherwise, or if they pass the mark and there may be garbage.
    #[cold]
    pub(super) fn collect_for(&self, bytes: usize) {
        if bytes > self.room() {
            self.collection_due.set(true);
            self.collect_if_due();
        } else if self.would_pass_mark(bytes) {
            self.collect_patiently();
        }
    }

    /// Whether earlier runs may have left enough garbage to collect it before Lua itself does.
    #[inline]
    pub(super) fn is_littered(&self) -> bool {
        self.held.get() > self.tidy_above.get()
    }

    /// Between two runs: collects garbage in steps of some microseconds while `goes_on` returns true. Returns whether
    /// more may be left.
    pub(super) fn tidy(&self, mut goes_on: impl FnMut() -> bool) -> bool {
        let begin = || self.is_littered().then(|| Tidying { held: self.held(), cycles: 0 });
        let Some(mut tidying) = self.tidying.get().or_else(begin) else { return false };
        while goes_on() {
            // SAFETY: the state is live; between two runs nothing is refused, and no script has a finalizer.
            let is_cycle_done = unsafe { ffi::lua_gc(self.state, ffi::LUA_GCSTEP, 0) } == 1;
            if !is_cycle_done {
                continue;
            }
            tidying.cycles += 1;
            let is_worthwhile = self.held() <= tidying.held - tidying.held / WORTHWHILE_SHARE;
            if tidying.cycles >= THOROUGH_CYCLES && !is_worthwhile {
                self.tidying.set(None);
                self.is_tidy();
                return false;
            }
            tidying.held = self.held();
        }
        self.tidying.set(Some(tidying));
        true
    }

    /// Notes that there is no garbage and nothing runs.
    fn is_tidy(&self) {
        self.floor.set(self.held());
        self.collected();
        self.tidy_above.set(self.held() + SCRIPT_GARBAGE_KEEP_BYTES.max(self.held() / 2));
    }

    /// Whether the state, which has reached the mark, may grow by `growth` bytes to `total`, copies included.
    #[cold]
    fn admits(&self, growth: usize, total: usize) -> bool {
        if total <= self.ceiling() {
            self.collection_due.set(true);
            self.mark.set(self.ceiling());
            interrupt(self.state);
            return true;
        }
        self.exhaust();
        interrupt(self.state);
        // SAFETY: the state is live, because it asks.
        match unsafe { caller(self.state) } {
            Caller::C => false,
            Caller::Lua => growth < self.large_block(),
            Caller::Assembler => true,
        }
    }

    /// The least size of a large block, in bytes.
    fn large_block(&self) -> usize {
        #[cfg(test)]
        return self.faults.large.get();
        #[cfg(not(test))]
        SCRIPT_LARGE_BLOCK_BYTES
    }

    pub(super) fn exhaust(&self) {
        self.is_exhausted.set(true);
        // For C functions that call one another, with no instruction in between.
        alarm::note_due();
        self.mark.set(usize::MAX);
    }
}

/// Lua's allocator. Its data is the [`Memory`]. Its blocks are compatible with those of mlua's allocator, which serves
/// the state before and after it.
pub(super) unsafe extern "C" fn allocate(
    memory: *mut c_void,
    block: *mut c_void,
    old: usize,
    new: usize,
) -> *mut c_void {
    // SAFETY: the state was given a `Memory` that outlives it.
    let memory = unsafe { &*memory.cast::<Memory>() };
    let total = memory.held.get() - old + new;
    if new > old {
        let copied = if new >= SCRIPT_LARGE_BLOCK_BYTES { old } else { 0 };
        #[cfg(test)]
        if memory.is_at_fault() && !memory.admits(new - old, usize::MAX) {
            return std::ptr::null_mut();
        }
        if total + copied > memory.mark.get() && !memory.admits(new - old, total + copied) {
            return std::ptr::null_mut();
        }
    }
    // SAFETY: a block of Lua has the size that Lua passes, and came from here with this alignment; Lua requests less
    // than `isize::MAX`.
    unsafe {
        let layout = |size| Layout::from_size_align_unchecked(size, ffi::SYS_MIN_ALIGN);
        let got = match (block.is_null(), new) {
            (true, 0) => return block,
            (true, _) => alloc(layout(new)),
            (false, 0) => {
                dealloc(block.cast(), layout(old));
                memory.held.set(total);
                return std::ptr::null_mut();
            }
            (false, _) => realloc(block.cast(), layout(old), new),
        };
        if got.is_null() {
            // Raising an error is not safe everywhere. Rust's own collections, too, end the process in this case.
            std::alloc::handle_alloc_error(layout(new));
        }
        memory.held.set(total);
        got.cast()
    }
}

#[cfg(test)]
impl Memory {
    /// Counts a request for more memory in a run. Returns whether it is the one that a test wants refused.
    fn is_at_fault(&self) -> bool {
        let Faults { left, requests, .. } = &self.faults;
        if self.mark.get() == usize::MAX {
            return false;
        }
        requests.set(requests.get() + 1);
        let before = left.get();
        left.set(before.and_then(|left| left.checked_sub(1)));
        before == Some(0)
    }
}

#[cfg(test)]
#[path = "memory_faults.rs"]
mod faults;

#[cfg(test)]
mod tests {
    use super::super::tests::{Toy, eval, vm};
    use super::super::*;
    use crate::resp::reply::{Form, Reply};
    use crate::resp::request::Argv;

    const LIMIT: usize = 16 << 20;

    /// A host that answers each command with 32 strings of 1 MiB.
    struct Generous;

    impl Host for Generous {
        fn call(&mut self, _: Argv<'_>, reply: &mut Reply) {
            reply.array(32);
            (0..32).for_each(|i| reply.bulk(&[i; 1 << 20]));
        }

        fn interrupted(&mut self) -> Verdict {
            Verdict::Continue
        }

        fn log(&mut self, _: LogLevel, _: &[u8]) {}

        fn set_resp(&mut self, _: u8) {}
    }

    fn limited() -> Vm {
        let mut vm = vm();
        vm.set_memory_limit(LIMIT);
        vm
    }

    #[test]
    fn a_script_that_takes_too_much_is_ended_and_its_memory_freed() {
        let mut vm = limited();
        let before = vm.memory_bytes();
        let many = "local s = ('x'):rep(1e6) local t = {} for i = 1, 1000 do t[i] = s end ";
        let shared = "local t = {1} for i = 1, 60 do t = {t, t} end ";
        for script in [
            "local t = {} for i = 1, 1e9 do t[i] = i end",
            "local t = {} while true do t[#t + 1] = {} end",
            "local s = 'x' while true do s = s .. s end",
            "return ('x'):rep(1e8)",
            "pcall(string.rep, 'x', 1e8) return 1",
            "while true do pcall(string.rep, 'x', 1e8) end",
            "local t = {} while true do pcall(function() while true do t[#t + 1] = {} end end) end",
            "local t = {} while true do xpcall(function() while true do t[#t + 1] = {} end end, \
             function() return 1 end) end",
            "xpcall(string.rep, function() return ('x'):rep(1e8) end) \
             xpcall(error, function() return ('x'):rep(1e8) end)",
            "coroutine.wrap(function() local t = {} while true do t[#t + 1] = {} end end)()",
            "coroutine.resume(coroutine.create(function() return ('x'):rep(1e8) end)) return 1",
            "local t = {} while true do t[#t + 1] = coroutine.create(function() end) end",
            "local function f(s) return f(s .. s) end return f('x')",
            "local t = setmetatable({}, {__index = function(t, k) return t[k .. k] end}) return t.x",
            "return (('x'):rep(1e6):gsub('x', ('y'):rep(1000)))",
            "return (('x'):rep(1e6):gsub('x', function() return ('y'):rep(1000) end))",
            "local s, t = ('x'):rep(1e6), {} for i = 1, 100 do t[i] = s end return (('%s'):rep(100):format(unpack(t)))",
            "return #cjson.decode('[' .. ('[],'):rep(1e6) .. '[]]')",
            "return #cmsgpack.unpack('\\221\\0\\15\\0\\0' .. ('\\144'):rep(983040))",
            &format!("{many} return table.concat(t)"),
            &format!("{many} return cjson.encode(t)"),
            &format!("{many} return cmsgpack.pack(t)"),
            &format!("{many} return struct.pack(('c0'):rep(100), unpack(t, 1, 100))"),
            &format!("{many} return t"),
            &format!("{shared} return cjson.encode(t)"),
            &format!("{shared} return t"),
        ] {
            let got = eval(&mut vm, &mut Toy::default(), Form::Resp2, script);
            assert!(got.starts_with("-ERR Script used more than script-memory-limit."), "{script}: {got:.200}");
            assert!(vm.memory_bytes() < before + (1 << 20), "{script} leaves {} bytes", vm.memory_bytes() - before);
            assert_eq!(eval(&mut vm, &mut Toy::default(), Form::Resp2, "return #('x'):rep(1e6)"), ":1000000\\r\\n");
        }
    }

    #[test]
    fn refusals_in_fast_functions_harm_nothing() {
        let mut vm = vm();
        for make in ["tostring(i)", "{i, tostring(i)}", "{i, ('x'):upper()}", "{i, tostring(i):reverse(), 1}"] {
            let script = format!("local t = {{}} for i = 1, 2000 do t[i] = {make} end");
            for room in (6_000..40_000).step_by(61) {
                vm.set_memory_limit(room);
                let got = eval(&mut vm, &mut Toy::default(), Form::Resp2, &script);
                assert!(got.starts_with("-ERR Script used more than script-memory-limit."), "{script}: {got:.200}");
            }
        }
    }

    #[test]
    fn garbage_ends_no_script() {
        let mut vm = limited();
        for script in [
            "for i = 1, 300 do local s = ('x'):rep(1e6) .. i end return 1",
            "local kept = ('x'):rep(4e6) for i = 1, 300 do local s = ('x'):rep(1e6) .. i end return 1",
            "local a = ('x'):rep(2.5e5) for i = 1, 300 do local s = table.concat({a, i, a}) end return 1",
            "for i = 1, 3e5 do local t = {{}, {}, i} end return 1",
            "collectgarbage('stop') collectgarbage('setpause', 1e9) \
             for i = 1, 100 do local s = ('x'):rep(1e6) .. i end return 1",
            "for i = 1, 30 do local t = cjson.decode('[' .. ('[],'):rep(3e4) .. '[]]') end return 1",
            "for i = 1, 300 do coroutine.wrap(function() local s = ('x'):rep(1e6) .. i end)() end return 1",
        ] {
            assert_eq!(eval(&mut vm, &mut Toy::default(), Form::Resp2, script), ":1\\r\\n", "{script}");
        }
    }

    #[test]
    fn garbage_of_scripts_is_collected_in_slices() {
        let mut vm = vm();
        let before = vm.memory_bytes();
        for script in [
            "local t = {} for i = 1, 1e5 do t[i] = {i} end return 1",
            "local t = {} for i = 1, 1e5 do t[i] = 'string ' .. i end return 1",
            "return 1, #('x'):rep(1e8)",
        ] {
            assert_eq!(eval(&mut vm, &mut Toy::default(), Form::Resp2, script), ":1\\r\\n");
            assert!(vm.is_littered(), "{script} leaves {} bytes", vm.memory_bytes());
            let mut slices = 1;
            while vm.ctx.memory.tidy(one_step()) {
                slices += 1;
                assert!(slices < 1_000_000, "{script}: the collection does not end");
            }
            assert!(slices > 10, "{script}: {slices}");
            assert!(!vm.is_littered() && vm.memory_bytes() < before + (1 << 17), "{script}: {}", vm.memory_bytes());
            assert_eq!(eval(&mut vm, &mut Toy::default(), Form::Resp2, "return 1"), ":1\\r\\n");
            assert!(!vm.is_littered(), "a short script leaves no litter");
        }
    }

    /// Permits one step.
    fn one_step() -> impl FnMut() -> bool {
        let mut steps = 0;
        move || {
            steps += 1;
            steps == 1
        }
    }

    #[test]
    fn garbage_of_the_script_before_ends_no_script() {
        let mut vm = limited();
        let fill = "local t, s = {}, ('x'):rep(1e6) for i = 1, 13 do t[i] = s .. i end return 1";
        for script in [
            "local s = ('x'):rep(1e6) return #(s .. s .. s .. s)",
            "local s, t = ('x'):rep(1e6), {} for i = 1, 4 do t[i] = s end return #table.concat(t)",
        ] {
            assert_eq!(eval(&mut vm, &mut Toy::default(), Form::Resp2, fill), ":1\\r\\n");
            assert_eq!(eval(&mut vm, &mut Toy::default(), Form::Resp2, script), ":4000000\\r\\n", "{script}");
        }
    }

    #[test]
    fn replies_and_arguments_of_commands_count() {
        let mut vm = limited();
        let program = vm.compile(b"while true do local reply = redis.pcall('big') end").expect("a script");
        let mut reply = Reply::new(Form::Resp2);
        let (keys, args) = (Argv::new(&[], &[]), Argv::new(&[], &[]));
        let invocation = Invocation { program, passing: Passing::Globals, name: b"f", keys, args };
        assert_eq!(vm.run(invocation, &mut Generous, &mut reply), Outcome::Raised(Fault::Script));
        assert!(reply.as_bytes().starts_with(b"-ERR Script used more than script-memory-limit."));

        let script =
            "local s = ('x'):rep(1e6) return redis.call('echo', s, s, s, s, s, s, s, s, s, s, s, s, s, s, s, s, s)";
        let got = eval(&mut vm, &mut Toy::default(), Form::Resp2, script);
        assert!(got.starts_with("-ERR Lua redis lib command arguments are too long"), "{got}");
    }

    #[test]
    fn compiled_and_loaded_code_counts() {
        let mut vm = limited();
        let huge = format!("return {{{}}}", "{1},".repeat(1_000_000));
        assert_eq!(vm.compile(huge.as_bytes()), Err(ScriptError::TooLarge));
        let error = vm.load_library(b"local t = {} while true do t[#t + 1] = {} end", &mut Toy::default()).unwrap_err();
        assert!(error.to_string().contains("Script used more than script-memory-limit"), "{error}");
        assert_eq!(eval(&mut vm, &mut Toy::default(), Form::Resp2, "return 1"), ":1\\r\\n");
    }

    #[test]
    fn cached_scripts_leave_a_run_its_room() {
        let mut vm = vm();
        vm.set_memory_limit(100_000);
        for i in 0..500 {
            let script = format!("local t = {{{i}, '{}'}} return #t[2]", "x".repeat(2_000));
            vm.compile(script.as_bytes()).expect("there is room");
        }
        assert_eq!(eval(&mut vm, &mut Toy::default(), Form::Resp2, "return #('x'):rep(3e4)"), ":30000\\r\\n");
    }

    #[test]
    fn the_limit_can_be_changed_and_lifted() {
        let mut vm = vm();
        let script = "return #('x'):rep(2e7)";
        let mut run = |limit: usize| {
            vm.set_memory_limit(limit);
            eval(&mut vm, &mut Toy::default(), Form::Resp2, script)
        };
        assert_eq!(run(0), ":20000000\\r\\n");
        assert!(run(LIMIT).starts_with("-ERR Script used more"));
        assert_eq!(run(64 << 20), ":20000000\\r\\n");
        assert!(run(1).starts_with("-ERR"), "compiling the script takes more memory");
        assert_eq!(run(0), ":20000000\\r\\n");
    }
}
