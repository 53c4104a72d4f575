//! How much memory the Lua state may hold while a script runs.
//!
//! The state gets its memory from [`allocate`], which counts it. During a run growth beyond the limit is refused; Lua
//! raises that as an error which `pcall` could catch, so the script is also marked to die at its next instruction, like one
//! that is killed. From then on allocations succeed again: what still runs is the way out.
//!
//! **Garbage.** Lua collects when it holds twice of what it last needed, and cannot collect inside an allocation. So that
//! garbage alone ends no script, there is a second, lower mark: whoever passes it makes the hook come at the next
//! instruction, and that collects. The mark then lies halfway between what is left and the limit.
//!
//! **C functions** run to their end without a hook. What ours build outside of Lua, in the scratch buffer and in replies,
//! counts too ([`make_room`]).

use std::alloc::{Layout, alloc, dealloc, realloc};
use std::cell::Cell;
use std::ffi::c_void;

use super::lua::{Stack, ffi};
use super::vm::{interrupt, kill};

/// What of the headroom below the limit is too little to collect for: a script that is so close to it will pass it.
const LEAST_HEADROOM: usize = 64;

/// The account of a Lua state's memory, in bytes. The allocator writes to it inside of any call of Lua's, hence the cells.
pub(super) struct Memory {
    state: *mut ffi::lua_State,
    held: Cell<usize>,
    /// Growth beyond this is looked at; there is no such mark between runs.
    mark: Cell<usize>,
    /// Beyond this garbage is collected, in a run: at most the limit.
    collect_above: Cell<usize>,
    limit: Cell<usize>,
    collection_due: Cell<bool>,
    is_exhausted: Cell<bool>,
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
            collection_due: Cell::new(false),
            is_exhausted: Cell::new(false),
        }
    }

    /// Bytes that the state holds.
    pub(super) fn held(&self) -> usize {
        self.held.get()
    }

    /// Bytes that it may hold in a run.
    #[inline]
    pub(super) fn limit(&self) -> usize {
        self.limit.get()
    }

    /// The limit for the next runs; `usize::MAX` for none.
    #[inline]
    pub(super) fn set_limit(&self, limit: usize) {
        if limit != self.limit.get() {
            self.limit.set(limit);
            self.collect();
        }
    }

    /// A run begins.
    #[inline]
    pub(super) fn begin(&self) {
        if self.held.get() > self.collect_above.get() {
            self.collect();
        }
        self.mark.set(self.collect_above.get());
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
        // Each collection halves Lua's own string buffer and its table of strings.
        loop {
            let before = self.held();
            self.collect();
            if self.held() > before - before / 8 {
                return;
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
        let mark = self.mark.replace(usize::MAX);
        // SAFETY: the state is live; no finalizer of a script's exists, and nothing is refused meanwhile: nothing is raised.
        unsafe { ffi::lua_gc(self.state, ffi::LUA_GCCOLLECT, 0) };
        self.mark.set(mark);
        let limit = self.limit.get();
        let headroom = limit.saturating_sub(self.held());
        let is_worthwhile = headroom > limit / LEAST_HEADROOM;
        self.collect_above.set(if is_worthwhile { limit - headroom / 2 } else { limit });
    }

    /// Whether the state, which has reached the mark, may hold `total`.
    #[cold]
    fn admits(&self, total: usize) -> bool {
        let is_within = total <= self.limit.get();
        if is_within {
            self.collection_due.set(true);
            self.mark.set(self.limit.get());
        } else {
            self.exhaust();
        }
        interrupt(self.state);
        is_within
    }

    fn exhaust(&self) {
        self.is_exhausted.set(true);
        self.mark.set(usize::MAX);
    }
}

/// Sees to it that there is room for `bytes` that a C function is about to build, be it outside of Lua: collects garbage if
/// need be, and ends the script if that is of no use.
#[inline]
pub(super) fn make_room(stack: Stack<'_>, bytes: usize) {
    let memory = stack.memory();
    if memory.held().saturating_add(bytes) > memory.mark.get() {
        make_room_slowly(stack, bytes);
    }
}

#[cold]
fn make_room_slowly(stack: Stack<'_>, bytes: usize) {
    collect_for(stack, bytes);
    if stack.memory().held().saturating_add(bytes) > stack.memory().limit() {
        refuse(stack);
    }
}

/// Ends the script because it is about to take more memory than it may.
#[cold]
pub(super) fn refuse(stack: Stack<'_>) -> ! {
    stack.memory().exhaust();
    kill(stack, stack.ctx())
}

/// Collects garbage if `bytes` more would not fit otherwise.
#[inline]
pub(super) fn collect_for(stack: Stack<'_>, bytes: usize) {
    let memory = stack.memory();
    if memory.held().saturating_add(bytes) > memory.mark.get() {
        memory.collection_due.set(true);
        memory.collect_if_due();
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
    if new > old && total > memory.mark.get() && !memory.admits(total) {
        return std::ptr::null_mut();
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
                std::ptr::null_mut()
            }
            (false, _) => realloc(block.cast(), layout(old), new),
        };
        if !got.is_null() || new == 0 {
            memory.held.set(total);
        }
        got.cast()
    }
}

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
            "local s = ('x'):rep(1e6) return (('%s'):rep(100):format(unpack({s, s, s, s, s, s, s, s, s, s, s, s, s, s, s, s, s})))",
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
        assert!(run(1).starts_with("-ERR"), "even less than the state itself takes");
        assert_eq!(run(0), ":20000000\\r\\n");
    }
}
