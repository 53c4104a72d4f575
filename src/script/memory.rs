//! How much memory a script may take while it runs.
//!
//! The state gets its memory from [`allocate`], which counts it. A script that asks for more than the limit is marked to die,
//! as one that is killed, so that no `pcall` saves it. The limit is for what a run adds to what the state held when it was
//! last free of garbage: neither the sandbox nor the scripts that are cached leave a run less room.
//!
//! **Where it dies.** A refusal raises an error from inside LuaJIT, and that is not safe everywhere (see [`Caller`]):
//!
//! | Asked by | It gets | It dies |
//! |---|---|---|
//! | a C function | nothing | there |
//! | an instruction of Lua, a large block: a long concatenation, a table that grows | nothing | there |
//! | an instruction of Lua, a small block | the block | at its next instruction, by the hook |
//! | a fast function in assembler | the block | at its next instruction, by the hook |
//!
//! What lets more through than the limit is thus one instruction's need, or that of fast functions until the script is next
//! asked. Fast functions that scripts
//! can reach make small blocks only: those of the string library that make large ones are replaced by C functions of ours.
//! When a script is to die, allocations succeed again: what still runs is the way out. If the system itself has no memory,
//! the process ends with a line that says so.
//!
//! **Copies count.** A large block that grows is copied, so for a moment there are two; the limit is for both together.
//!
//! **Garbage.** Lua collects when it holds twice of what it last needed, and cannot collect inside an allocation. So that
//! garbage hardly ever ends a script, there is a second, lower mark: whoever passes it makes the hook come at the next
//! instruction, and that collects. The mark then lies halfway between what is left and the limit. What a script leaves
//! behind is collected after it, in slices between other work ([`Memory::tidy`]).
//!
//! **Tables of ours** that outlive the script, the registry above all, grow without a limit ([`Memory::granted`]).
//!
//! **C functions** run to their end without a hook. What ours build outside of Lua, in the scratch buffer, as arguments of a
//! command and as the script's reply, counts too ([`make_room`]); what a command answers is bounded by itself.

use std::alloc::{Layout, alloc, dealloc, realloc};
use std::cell::Cell;
use std::ffi::{c_int, c_void};

use super::alarm::{self, interrupt};
use super::lua::ffi;
use super::luajit::{Caller, caller};
use crate::base::limits::{SCRIPT_GARBAGE_KEEP_BYTES, SCRIPT_LARGE_BLOCK_BYTES};

/// What of the headroom below the limit is too little to collect for: a script that is so close to it will pass it.
const LEAST_HEADROOM: usize = 64;

/// The most requests that pass by between two collections which are of no use.
const PATIENCE_MAX: u32 = 63;

/// The share of the limit that a run has at least when it begins.
const LEAST_ROOM: usize = 2;

/// Of what the state holds, the share that a cycle of collection must free so that it is worth another one.
const WORTHWHILE_SHARE: usize = 8;

/// Cycles of collection until all that was garbage before them is gone: one may have been half done when it began.
const THOROUGH_CYCLES: u32 = 2;

/// The account of a Lua state's memory, in bytes. The allocator writes to it inside of any call of Lua's, hence the cells.
pub(super) struct Memory {
    state: *mut ffi::lua_State,
    held: Cell<usize>,
    /// Growth beyond this is looked at; there is no such mark between runs.
    mark: Cell<usize>,
    /// Beyond this garbage is collected, in a run: at most the ceiling.
    collect_above: Cell<usize>,
    /// What a run may add to `floor`.
    limit: Cell<usize>,
    /// What the state held when it was last free of garbage between two runs.
    floor: Cell<usize>,
    patience: Cell<Patience>,
    collection_due: Cell<bool>,
    is_exhausted: Cell<bool>,
    /// Beyond this the garbage of earlier runs is collected between two runs.
    tidy_above: Cell<usize>,
    /// The collection between two runs that is under way.
    tidying: Cell<Option<Tidying>>,
    #[cfg(test)]
    pub(super) faults: Faults,
}

/// A collection that goes on until a cycle frees little.
#[derive(Clone, Copy)]
struct Tidying {
    /// What the state held when the cycle began.
    held: usize,
    /// Cycles that are done.
    cycles: u32,
}

/// Of a run whose C functions build something large, again and again, beyond the mark: to collect garbage each time, where there
/// is hardly any, would take nearly all of its time.
#[derive(Clone, Copy, Default)]
struct Patience {
    /// How many such requests pass by before the next one collects.
    wait: u32,
    waited: u32,
}

/// Refusals that tests ask for.
#[cfg(test)]
pub(super) struct Faults {
    /// How many more requests for more memory are granted until one is too much; nothing when none is to be, or one was.
    pub(super) left: Cell<Option<u64>>,
    /// How many were made.
    pub(super) requests: Cell<u64>,
    /// Bytes from which on a block is large.
    pub(super) large: Cell<usize>,
}

#[cfg(test)]
impl Default for Faults {
    fn default() -> Faults {
        Faults { left: Cell::new(None), requests: Cell::new(0), large: Cell::new(SCRIPT_LARGE_BLOCK_BYTES) }
    }
}

impl Memory {
    /// The account of a state that holds so much already, without a limit.
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

    /// Bytes that the state holds.
    pub(super) fn held(&self) -> usize {
        self.held.get()
    }

    /// What it may hold while something runs.
    fn ceiling(&self) -> usize {
        self.floor.get().saturating_add(self.limit.get())
    }

    /// Bytes that it may still take.
    #[inline]
    pub(super) fn room(&self) -> usize {
        self.ceiling().saturating_sub(self.held.get())
    }

    /// The limit for the next runs; `usize::MAX` for none.
    #[inline]
    pub(super) fn set_limit(&self, limit: usize) {
        if limit != self.limit.get() {
            self.limit.set(limit);
            self.collect();
            self.is_tidy();
        }
    }

    /// A run begins.
    #[inline]
    pub(super) fn begin(&self) {
        self.patience.set(Patience::default());
        let held = self.held.get();
        if held <= self.collect_above.get() {
            return self.mark.set(self.collect_above.get());
        }
        // There is garbage of earlier runs, which `tidy` has not come to.
        if self.room() < self.limit.get() / LEAST_ROOM {
            // A single block of this run would find no room because of it.
            self.collect();
            self.is_tidy();
            self.mark.set(self.collect_above.get());
        } else {
            // It is collected when this run needs the room, if it ever does.
            self.mark.set(held + self.room() / 2);
        }
    }

    /// The run is over.
    #[inline]
    pub(super) fn end(&self) {
        self.mark.set(usize::MAX);
    }

    /// The script has asked for more than there is: it must die.
    #[inline]
    pub(super) fn is_exhausted(&self) -> bool {
        self.is_exhausted.get()
    }

    /// After the death of a script that exhausted the memory: gives back what it took.
    pub(super) fn recover(&self) {
        self.is_exhausted.set(false);
        self.collection_due.set(false);
        self.collect_all();
    }

    /// Collects all garbage at once.
    pub(super) fn collect_all(&self) {
        // Each collection halves Lua's own string buffer and its table of strings.
        loop {
            let before = self.held();
            self.collect();
            if self.held() > before - before / WORTHWHILE_SHARE {
                return self.is_tidy();
            }
        }
    }

    /// Collects garbage if that is what the hook was called for.
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

    /// Lets the collector do `what`, as `collectgarbage` asks. It must not be refused what it takes to free more.
    pub(super) fn let_collect(&self, what: c_int) -> c_int {
        // SAFETY: the state is live; no finalizer of a script's exists, and nothing is refused meanwhile: nothing is raised.
        self.granted(|| unsafe { ffi::lua_gc(self.state, what, 0) })
    }

    /// Lets `act` have whatever memory it takes. For what changes a table that outlives the script: where LuaJIT is refused the
    /// second of the two blocks that a table grows by, it leaves elements that nobody finds any more.
    #[inline]
    pub(super) fn granted<A>(&self, act: impl FnOnce() -> A) -> A {
        let mark = self.mark.replace(usize::MAX);
        let answer = act();
        self.mark.set(mark);
        answer
    }

    /// Sets the mark anew: what the state holds now is no garbage.
    fn collected(&self) {
        let ceiling = self.ceiling();
        let headroom = self.room();
        let is_worthwhile = headroom > self.limit.get() / LEAST_HEADROOM;
        self.collect_above.set(if is_worthwhile { ceiling - headroom / 2 } else { ceiling });
    }

    /// Collects what may be of no use: less often when it was of little before.
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

    /// Whether `bytes` more would go beyond the mark.
    #[inline]
    pub(super) fn would_pass_mark(&self, bytes: usize) -> bool {
        self.held().saturating_add(bytes) > self.mark.get()
    }

    /// Collects garbage if `bytes` more would not fit otherwise, or if they go beyond the mark and there may be some.
    #[inline]
    pub(super) fn collect_for(&self, bytes: usize) {
        if bytes > self.room() {
            self.collection_due.set(true);
            self.collect_if_due();
        } else if self.would_pass_mark(bytes) {
            self.collect_patiently();
        }
    }

    /// Whether earlier runs may have left so much garbage that it should be collected before Lua does so itself.
    #[inline]
    pub(super) fn is_littered(&self) -> bool {
        self.held.get() > self.tidy_above.get()
    }

    /// Between two runs: collects garbage while `goes_on` says so, in steps of some microseconds. Answers whether there may be
    /// more.
    pub(super) fn tidy(&self, mut goes_on: impl FnMut() -> bool) -> bool {
        let begin = || self.is_littered().then(|| Tidying { held: self.held(), cycles: 0 });
        let Some(mut tidying) = self.tidying.get().or_else(begin) else { return false };
        while goes_on() {
            // SAFETY: the state is live; between two runs nothing is refused, and no finalizer of a script's exists.
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

    /// Notes that there is no garbage now, and that nothing runs.
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
        // SAFETY: the state is live, for it asks.
        match unsafe { caller(self.state) } {
            Caller::C => false,
            Caller::Lua => growth < self.large_block(),
            Caller::Assembler => true,
        }
    }

    /// Bytes from which on a block is large.
    fn large_block(&self) -> usize {
        #[cfg(test)]
        return self.faults.large.get();
        #[cfg(not(test))]
        SCRIPT_LARGE_BLOCK_BYTES
    }

    pub(super) fn exhaust(&self) {
        self.is_exhausted.set(true);
        // C functions that call one another see this, where no instruction comes in between.
        alarm::note_due();
        self.mark.set(usize::MAX);
    }
}

/// Lua's allocator, whose data is the [`Memory`]. The blocks are those of mlua's own allocator, which it follows and precedes.
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
    // SAFETY: a block of Lua's has the size that Lua says and came from here with this alignment; Lua asks for less than
    // `isize::MAX`.
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
            // Raising an error is not safe everywhere, and Rust's own collections end the process in this case, too.
            std::alloc::handle_alloc_error(layout(new));
        }
        memory.held.set(total);
        got.cast()
    }
}

#[cfg(test)]
impl Memory {
    /// Counts a request for more memory in a run; answers whether it is the one that a test wants to be too much.
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

    /// Answers each command with 32 strings of 1 MiB.
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
    fn who_takes_too_much_dies_and_gives_it_back() {
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
            "local t = {} while true do xpcall(function() while true do t[#t + 1] = {} end end, function() return 1 end) end",
            "xpcall(string.rep, function() return ('x'):rep(1e8) end) xpcall(error, function() return ('x'):rep(1e8) end)",
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
            "collectgarbage('stop') collectgarbage('setpause', 1e9) for i = 1, 100 do local s = ('x'):rep(1e6) .. i end return 1",
            "for i = 1, 30 do local t = cjson.decode('[' .. ('[],'):rep(3e4) .. '[]]') end return 1",
            "for i = 1, 300 do coroutine.wrap(function() local s = ('x'):rep(1e6) .. i end)() end return 1",
        ] {
            assert_eq!(eval(&mut vm, &mut Toy::default(), Form::Resp2, script), ":1\\r\\n", "{script}");
        }
    }

    #[test]
    fn what_scripts_leave_is_collected_in_slices() {
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
                assert!(slices < 1_000_000, "{script}: it comes to no end");
            }
            assert!(slices > 10, "{script}: {slices}");
            assert!(!vm.is_littered() && vm.memory_bytes() < before + (1 << 17), "{script}: {}", vm.memory_bytes());
            assert_eq!(eval(&mut vm, &mut Toy::default(), Form::Resp2, "return 1"), ":1\\r\\n");
            assert!(!vm.is_littered(), "what a short script leaves is no litter");
        }
    }

    /// Lets one step be done.
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
    fn what_is_compiled_and_loaded_counts() {
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
        assert!(run(1).starts_with("-ERR"), "compiling it takes more");
        assert_eq!(run(0), ":20000000\\r\\n");
    }
}
