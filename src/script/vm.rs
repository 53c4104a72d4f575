//! The Lua state, which compiles and runs scripts.
//!
//! One state serves all scripts of the server. One thread uses it, for one script at a time. LuaJIT is built without
//! its just-in-time compiler: compiled code does not check the hook, so an endless loop in it could not be stopped.
//!
//! A run is one protected call of the C function `enter`, which sets KEYS and ARGV, calls the script and writes its
//! result. So every error on the way, lack of memory included, arrives in one place ([`Vm::run`]). The message handler
//! `explain` sees the error before the stack is unwound, and notes its text and position in the context.
//!
//! Mutable state is in one boxed [`Ctx`], which every C function reaches through its first upvalue.

use std::ffi::{c_int, c_void};
use std::ptr::NonNull;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use mlua::{Lua, LuaOptions, StdLib};

use super::alarm::Alarm;
use super::chunk::{CHUNK_NAME, LIBRARY_CHUNK_NAME, load};
use super::context::{Altered, Ctx, Run};
use super::convert::{self, write_reply};
use super::debug::hook as debugging;
use super::debug::{Console, Debugger};
use super::failure::{Failure, is_of_command, set_text};
use super::host::{Host, ServerVersion, Verdict};
use super::interrupt::{HOOK_KEY, hook};
use super::library::Function;
use super::lists::{LISTS, push_list, set_list};
use super::lua::{Kind, REGISTRY, Stack, ffi, native, upvalue};
use super::luajit::let_chunks_load_constant_functions;
use super::memory::{self, Memory};
use super::names::Names;
use super::program::{Fault, Handle, Invocation, LoadError, Outcome, Passing, ScriptError};
use super::random::Lrand48;
use super::room::refuse;
use super::sandbox;
use crate::resp::reply::{Form, Reply};
use crate::script::limits::{SCRIPT_EVAL_CACHE_MAX, SCRIPT_LIST_KEEP_ELEMENTS, SCRIPT_TIDY_SLICE};

/// The Lua state with all compiled scripts. See the module's header.
pub struct Vm {
    state: *mut ffi::lua_State,
    compile: c_int,
    load: c_int,
    evaluate: c_int,
    // Before `ctx`: the state must be closed while the data its functions point to is alive.
    lua: Lua,
    pub(super) ctx: Box<Ctx>,
    /// mlua's own allocator, which must free its own blocks at the end.
    own_allocator: Option<OwnAllocator>,
}

/// The allocator that mlua gave a state, with its data.
struct OwnAllocator {
    state: *mut ffi::lua_State,
    allocate: ffi::lua_Alloc,
    data: *mut c_void,
}

impl Drop for Vm {
    fn drop(&mut self) {
        if let Some(OwnAllocator { state, allocate, data }) = self.own_allocator {
            // SAFETY: the state is live until `lua` is dropped; either allocator may free the blocks of the other.
            unsafe { ffi::lua_setallocf(state, allocate, data) };
        }
    }
}

impl Vm {
    /// Creates a state whose `math.random` starts at `seed`.
    pub fn new(version: ServerVersion<'_>, seed: u32) -> Result<Vm, ScriptError> {
        let libraries = StdLib::STRING | StdLib::TABLE | StdLib::MATH | StdLib::BIT;
        let lua = Lua::new_with(libraries, LuaOptions::new()).map_err(state_error)?;
        let ctx = Box::new(Ctx {
            host: None,
            run: None,
            lists: Default::default(),
            args: Vec::new(),
            spans: Vec::new(),
            names: Names::NONE,
            tape: Reply::new(Form::Tape2),
            resp3: false,
            buffer: Vec::new(),
            frames: Vec::new(),
            random: Lrand48::seeded(seed),
            cjson: std::ptr::null_mut(),
            altered: Altered::default(),
            c_base: 0,
            loading: None,
            handles: 0,
            debugger: None,
            own_last_words: None,
            alarm: Alarm::new(hook).map_err(|error| ScriptError::State(error.to_string()))?,
            memory: Rc::new(Memory::new(std::ptr::null_mut(), 0)),
            killed: false,
            verdict: Verdict::Continue,
            failure: Failure::default(),
            outcome: Outcome::Value,
        });
        let mut vm =
            Vm { state: std::ptr::null_mut(), compile: 0, load: 0, evaluate: 0, lua, ctx, own_allocator: None };
        vm.furnish(version)?;
        vm.collect();
        Ok(vm)
    }

    /// Compiles a script.
    pub fn compile(&mut self, body: &[u8]) -> Result<Handle, ScriptError> {
        let stack = self.stack();
        let top = stack.top();
        stack.raw_get_at(REGISTRY, self.compile);
        stack.push_light(body.as_ptr().cast_mut().cast());
        stack.push_number(body.len() as f64);
        self.begin();
        // SAFETY: a protected call of a function with two arguments; `body` outlives it.
        let status = unsafe { ffi::lua_pcall(self.state, 2, 2, 0) };
        self.end();
        let is_compiled = status == ffi::LUA_OK && stack.kind(-2) == Kind::Number;
        let result = if is_compiled {
            let handle = self.ctx.handle(stack.number(-2) as c_int, stack.boolean(-1));
            if self.ctx.memory.is_exhausted() {
                self.release(handle);
                Err(ScriptError::TooLarge)
            } else {
                Ok(handle)
            }
        } else if self.ctx.memory.is_exhausted() {
            Err(ScriptError::TooLarge)
        } else if status != ffi::LUA_OK {
            Err(ScriptError::State(lossy(stack.text(-1).unwrap_or_default())))
        } else {
            Err(ScriptError::Syntax(lossy(stack.text(-1).unwrap_or_default())))
        };
        stack.set_top(top);
        self.recover();
        result
    }

    /// Releases a script or a function that is no longer needed.
    pub fn release(&mut self, handle: Handle) {
        // SAFETY: the handle is a reference that `compile` or a registration made.
        unsafe { ffi::luaL_unref(self.state, REGISTRY, handle.reference) };
    }

    /// Collects all garbage, released programs included.
    pub fn collect(&mut self) {
        self.ctx.memory.collect_all();
    }

    /// Whether scripts may have left so much garbage that a collection pays off.
    pub fn is_littered(&self) -> bool {
        self.ctx.memory.is_littered()
    }

    /// Collects garbage left by scripts, for [`SCRIPT_TIDY_SLICE`] at most. Returns whether more may be left.
    pub fn tidy(&mut self) -> bool {
        let until = Instant::now() + SCRIPT_TIDY_SLICE;
        self.ctx.memory.tidy(|| Instant::now() < until)
    }

    /// Frees the buffers shared by calls.
    pub fn give_back_scratch(&mut self) {
        let ctx = &mut self.ctx;
        ctx.spans = Vec::new();
        ctx.frames = Vec::new();
        for buffer in [&mut ctx.args, &mut ctx.buffer, ctx.tape.buffer_mut(), &mut ctx.failure.text] {
            *buffer = Vec::new();
        }
    }

    /// Runs a script or function and writes its one reply, or its error, to `reply`, which has a client's form.
    #[inline]
    pub fn run(&mut self, invocation: Invocation<'_>, host: &mut dyn Host, reply: &mut Reply) -> Outcome {
        let start = reply.len();
        self.ctx.c_base = &raw const start as usize;
        // SAFETY: `enter` uses both only until the protected call below returns.
        let (invocation_, host) = unsafe {
            (
                std::mem::transmute::<Invocation<'_>, Invocation<'static>>(invocation),
                std::mem::transmute::<NonNull<dyn Host + '_>, NonNull<dyn Host>>(NonNull::from(host)),
            )
        };
        self.ctx.host = Some(host);
        self.ctx.run = Some(Run { invocation: invocation_, reply: NonNull::from(&mut *reply) });
        if self.ctx.resp3 {
            self.ctx.resp3 = false;
            self.ctx.tape.set_form(Form::Tape2);
        }
        let stack = self.stack();
        let top = stack.top();
        stack.push_value(ENTER);
        self.begin();
        // SAFETY: a protected call of a function without arguments.
        let status = unsafe { ffi::lua_pcall(self.state, 0, 0, EXPLAIN) };
        self.end();
        self.ctx.host = None;
        self.ctx.run = None;
        if status != ffi::LUA_OK {
            let of_command = status == ffi::LUA_ERRRUN && self.ctx.failure.of_command;
            self.ctx.outcome = Outcome::Raised(if of_command { Fault::Command } else { Fault::Script });
            reply.truncate(start);
            self.write_failure(status, invocation.name, reply);
        }
        stack.set_top(top);
        self.recover();
        self.ctx.outcome
    }

    /// Runs a script as [`run`](Vm::run) does, under the debugger. `source` is its text, from which the debugger shows
    /// lines.
    pub fn debug(
        &mut self,
        mut invocation: Invocation<'_>,
        source: &[u8],
        console: &mut dyn Console,
        reply: &mut Reply,
    ) -> Outcome {
        // Code evaluated by the client may change or keep KEYS and ARGV.
        invocation.program.may_keep_lists = true;
        let mut debugger = Debugger::new(console, source, self.evaluate);
        let debugger = NonNull::from(&mut debugger);
        // SAFETY: the context loses the debugger before this function returns.
        self.ctx.debugger =
            Some(unsafe { std::mem::transmute::<NonNull<Debugger<'_>>, NonNull<Debugger<'static>>>(debugger) });
        debugging::begin(self.state);
        // SAFETY: this function owns the debugger. The hook also borrows from it, but never at the same time.
        let outcome = self.run(invocation, unsafe { &mut *debugger.as_ptr() }, reply);
        self.ctx.debugger = None;
        // SAFETY: as above.
        unsafe { &mut *debugger.as_ptr() }.finish();
        outcome
    }

    /// Compiles a library, runs it once, and returns the functions that it registers. While it runs, `host` is asked
    /// whether it may go on. If loading fails, none of the functions is kept.
    pub fn load_library(&mut self, code: &[u8], host: &mut dyn Host) -> Result<Vec<Arc<Function>>, LoadError> {
        let base = 0u8;
        self.ctx.c_base = &raw const base as usize;
        // SAFETY: the state uses the host only until the protected call below returns.
        let host = unsafe { std::mem::transmute::<NonNull<dyn Host + '_>, NonNull<dyn Host>>(NonNull::from(host)) };
        self.ctx.host = Some(host);
        self.ctx.loading = Some(Vec::new());
        let stack = self.stack();
        let top = stack.top();
        stack.raw_get_at(REGISTRY, self.load);
        stack.push_light(code.as_ptr().cast_mut().cast());
        stack.push_number(code.len() as f64);
        self.begin();
        // SAFETY: a protected call of a function with two arguments; `code` outlives it.
        let status = unsafe { ffi::lua_pcall(self.state, 2, 1, EXPLAIN) };
        self.end();
        self.ctx.host = None;
        let registered = self.ctx.loading.take().unwrap_or_default();
        let is_exhausted = self.ctx.memory.is_exhausted();
        let outcome = match status {
            ffi::LUA_OK if is_exhausted => Err(LoadError::Failed(lossy(self.ctx.last_words()))),
            ffi::LUA_OK if stack.kind(-1) == Kind::Nil => Ok(()),
            ffi::LUA_OK => Err(LoadError::Syntax(lossy(stack.text(-1).unwrap_or_default()))),
            _ => {
                self.note_failure(status);
                Err(LoadError::Failed(lossy(&self.ctx.failure.text)))
            }
        };
        stack.set_top(top);
        if outcome.is_err() {
            registered.iter().for_each(|function| self.release(function.handle));
        }
        self.recover();
        outcome.map(|()| registered)
    }

    /// Whether scripts have a global of this name.
    pub fn has_global(&self, name: &[u8]) -> bool {
        let stack = self.stack();
        let top = stack.top();
        stack.raw_get_at(REGISTRY, self.compile);
        // SAFETY: the function on top is `compile`, whose second upvalue is the table of globals.
        unsafe { ffi::lua_getupvalue(self.state, -1, 2) };
        let globals = stack.top();
        // By a walk, which needs no memory: an error here would not be caught.
        stack.push_nil();
        let mut is_there = false;
        while !is_there && stack.next(globals) {
            stack.pop(1);
            is_there = stack.kind(-1) == Kind::String && stack.bytes(-1) == name;
        }
        stack.set_top(top);
        is_there
    }

    /// Bytes held by Lua: scripts and their data.
    pub fn memory_bytes(&self) -> usize {
        self.ctx.memory.held()
    }

    /// Sets the bytes that a run may take beyond what Lua holds at rest; 0 for no limit.
    pub fn set_memory_limit(&mut self, bytes: usize) {
        self.ctx.memory.set_limit(if bytes == 0 { usize::MAX } else { bytes });
    }

    /// Starts a garbage collection, so that the next run meets the collector as often as possible.
    #[cfg(test)]
    pub(super) fn start_collection(&mut self) {
        // SAFETY: the state is live, and nothing runs.
        unsafe { ffi::lua_gc(self.state, ffi::LUA_GCRESTART, 0) };
    }

    /// The refusals of memory ordered by a test.
    #[cfg(test)]
    pub(super) fn faults(&self) -> &memory::Faults {
        &self.ctx.memory.faults
    }

    fn stack(&self) -> Stack<'static> {
        // SAFETY: the state lives as long as `self.lua`; values borrowed from the stack are used before they are
        // popped.
        unsafe { Stack::new(self.state) }
    }

    /// Builds the sandbox and the C functions through which everything runs.
    fn furnish(&mut self, version: ServerVersion<'_>) -> Result<(), ScriptError> {
        self.take_over_memory()?;
        let ctx: *mut Ctx = &mut *self.ctx;
        let mut out = (std::ptr::null_mut(), [0; 5]);
        // SAFETY: the closure runs protected; it pushes and pops on a live state, and holds no value that must be
        // freed.
        unsafe {
            self.lua
                .exec_raw::<()>((), |state| {
                    let stack = Stack::new(state);
                    sandbox::build(stack, ctx, &version);
                    // On top are now the environment and its protected stand-in `_G`, the environment of chunks that
                    // assign globals.
                    let (env, guarded) = (stack.top() - 1, stack.top());
                    convert::push_names(stack, ctx);
                    stack.push_value(env);
                    LISTS.iter().for_each(|list| stack.push_bytes(list.name));
                    LISTS.iter().for_each(|_| stack.new_table(SCRIPT_LIST_KEEP_ELEMENTS, 0));
                    stack.push_closure(enter, convert::UPVALUES + 5);
                    out.1[0] = ffi::luaL_ref(state, REGISTRY);
                    stack.push_function(ctx, explain);
                    out.1[1] = ffi::luaL_ref(state, REGISTRY);
                    stack.push_light(ctx.cast());
                    stack.push_value(env);
                    stack.push_value(guarded);
                    stack.push_closure(compile, 3);
                    out.1[2] = ffi::luaL_ref(state, REGISTRY);
                    stack.push_light(ctx.cast());
                    stack.push_value(env);
                    stack.push_value(guarded);
                    stack.push_closure(debugging::evaluate, 3);
                    out.1[4] = ffi::luaL_ref(state, REGISTRY);
                    sandbox::build_for_functions(stack, ctx, env, &version);
                    let function_env = stack.top() - 1;
                    stack.push_light(ctx.cast());
                    sandbox::build_for_loading(stack, ctx, &version);
                    stack.push_value(function_env);
                    stack.push_closure(load_library, 3);
                    out.1[3] = ffi::luaL_ref(state, REGISTRY);
                    stack.push_light(HOOK_KEY.as_ptr().cast_mut().cast());
                    stack.push_light(ctx.cast());
                    stack.raw_set(REGISTRY);
                    // Makes room for programs, so that the registry does not grow later, which would be permanent.
                    let programs = [(); PROGRAMS_FORESEEN].map(|()| {
                        stack.push_boolean(true);
                        ffi::luaL_ref(state, REGISTRY)
                    });
                    programs.iter().rev().for_each(|program| ffi::luaL_unref(state, REGISTRY, *program));
                    stack.set_top(0);
                    out.0 = state;
                })
                .map_err(state_error)?;
        }
        self.state = out.0;
        let (enter, explain);
        [enter, explain, self.compile, self.load, self.evaluate] = out.1;
        let stack = self.stack();
        stack.raw_get_at(REGISTRY, explain);
        stack.raw_get_at(REGISTRY, enter);
        debug_assert_eq!(stack.top(), ENTER, "nothing lies below them");
        Ok(())
    }

    /// Gives the state an allocator that bounds its memory.
    fn take_over_memory(&mut self) -> Result<(), ScriptError> {
        let held = self.lua.used_memory();
        let mut own = None;
        // SAFETY: nothing in the closure can raise. Both allocators take their blocks from one source.
        unsafe {
            self.lua
                .exec_raw::<()>((), |state| {
                    let mut data = std::ptr::null_mut();
                    let allocate = ffi::lua_getallocf(state, &mut data);
                    own = Some(OwnAllocator { state, allocate, data });
                })
                .map_err(state_error)?;
            if let Some(OwnAllocator { state, .. }) = own {
                self.ctx.memory = Rc::new(Memory::new(state, held));
                ffi::lua_setallocf(state, memory::allocate, Rc::as_ptr(&self.ctx.memory).cast_mut().cast());
            }
            self.own_allocator = own;
        }
        Ok(())
    }

    /// Notes that Lua begins to compile or run code of clients.
    #[inline]
    fn begin(&mut self) {
        self.ctx.alarm.begin(self.state);
        self.ctx.memory.begin();
    }

    /// Notes that Lua has finished.
    #[inline]
    fn end(&mut self) {
        self.ctx.memory.end();
        self.ctx.alarm.end();
    }

    /// After a run: restores shared state, so that this run has no effect on the next script.
    #[inline]
    fn recover(&mut self) {
        let Altered { cjson, random } = &mut self.ctx.altered;
        if std::mem::take(cjson) {
            // SAFETY: the sandbox set the pointer; the state is live, and none of its functions runs.
            unsafe { (*self.ctx.cjson).reset() };
        }
        if let Some(random) = random.take() {
            self.ctx.random = random;
        }
        if self.ctx.is_dying() {
            self.revive();
        }
    }

    /// Makes the state usable again after the death of a script.
    #[cold]
    fn revive(&mut self) {
        self.ctx.killed = false;
        self.ctx.own_last_words = None;
        if self.ctx.memory.is_exhausted() {
            self.ctx.memory.recover();
        }
    }

    /// Completes the failure with errors that `explain` could not see.
    fn note_failure(&mut self, status: c_int) {
        let last_words = self.ctx.last_words();
        let is_exhausted = self.ctx.memory.is_exhausted();
        let failure = &mut self.ctx.failure;
        match status {
            // A coroutine passes on Lua's own message.
            ffi::LUA_ERRRUN if is_exhausted => last_words.clone_into(&mut failure.text),
            ffi::LUA_ERRRUN => {}
            _ if is_exhausted => set_text(failure, last_words),
            ffi::LUA_ERRMEM => set_text(failure, b"ERR not enough memory"),
            _ => set_text(failure, b"ERR error in error handling"),
        }
    }

    #[cold]
    fn write_failure(&mut self, status: c_int, name: &[u8], reply: &mut Reply) {
        self.note_failure(status);
        let failure = &mut self.ctx.failure;
        if failure.source.is_empty() {
            return reply.error(&failure.text);
        }
        let text = &mut failure.text;
        text.extend_from_slice(b" script: ");
        text.extend_from_slice(name);
        text.extend_from_slice(b", on ");
        text.extend_from_slice(&failure.source);
        text.push(b':');
        text.extend_from_slice(itoa::Buffer::new().format(failure.line).as_bytes());
        text.push(b'.');
        reply.error(text);
    }
}

fn state_error(error: mlua::Error) -> ScriptError {
    ScriptError::State(error.to_string())
}

fn lossy(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

// The bottom of the state's stack: the message handler, and the function that each run calls.
const EXPLAIN: c_int = 1;
const ENTER: c_int = 2;

/// Programs for which the registry has room from the start: those that EVAL keeps, and some loaded ones. LuaJIT rounds
/// up to a power of two.
const PROGRAMS_FORESEEN: usize = SCRIPT_EVAL_CACHE_MAX + 100;

native! {
    /// The message handler: notes the error and its position.
    fn explain(stack: Stack) -> c_int {
        // SAFETY: the context outlives the state, and nothing else uses it while an error is raised.
        unsafe { (*stack.ctx()).failure.note(stack) };
        stack.set_top(1);
        1
    }

    /// Sets KEYS and ARGV or passes them, calls the script or function, and writes its result.
    fn enter(stack: Stack) -> c_int {
        let ctx = stack.ctx();
        // SAFETY: `Vm::run` set the run, which stays valid until `enter` returns.
        let Some(run) = (unsafe { (*ctx).run }) else { return 0 };
        let Invocation { program, passing, keys, args, .. } = run.invocation;
        match passing {
            Passing::Globals => {
                // SAFETY: the context outlives the state; setting globals does not come back here.
                let [keys_state, args_state] = unsafe { &mut (*ctx).lists };
                set_list(stack, &LISTS[0], keys, keys_state, program.may_keep_lists);
                set_list(stack, &LISTS[1], args, args_state, program.may_keep_lists);
                stack.raw_get_at(REGISTRY, program.reference);
                stack.call(0, 1);
            }
            Passing::Arguments => {
                stack.raw_get_at(REGISTRY, program.reference);
                push_list(stack, keys);
                push_list(stack, args);
                stack.call(2, 1);
            }
        }
        // The last instruction may have exceeded the limit.
        // SAFETY: the context outlives the state.
        if unsafe { (*ctx).memory.is_exhausted() } {
            refuse(stack);
        }
        // Writing pops the value.
        stack.push_value(-1);
        // SAFETY: the caller owns the reply and waits; nothing else uses the frames. If this raises, no destructor is
        // skipped.
        unsafe {
            let reply = &mut *run.reply.as_ptr();
            let start = reply.len();
            write_reply(stack, &mut (*ctx).frames, (*ctx).resp3, reply);
            (*ctx).outcome = match reply.error_from(start).is_some() {
                false => Outcome::Value,
                true if is_of_command(stack, stack.top()) => Outcome::Returned(Fault::Command),
                true => Outcome::Returned(Fault::Script),
            };
        }
        0
    }

    /// Compiles the bytes at a light userdata (1) with a length (2). Returns a reference to the function and whether it
    /// may keep KEYS and ARGV, or nil and a message.
    fn compile(stack: Stack) -> c_int {
        // SAFETY: `Vm::compile` passes a slice that outlives this call.
        let body = unsafe {
            std::slice::from_raw_parts(ffi::lua_touserdata(stack.raw(), 1).cast::<u8>(), stack.number(2) as usize)
        };
        if let Some(traits) = load(stack, body, CHUNK_NAME, upvalue(2), upvalue(3)) {
            let reference = stack.refer();
            stack.push_number(f64::from(reference));
            stack.push_boolean(traits.may_keep_lists());
        } else {
            stack.push_nil();
            stack.insert(-2);
        }
        2
    }

    /// Compiles the library at a light userdata (1) with a length (2) and runs it, then gives it the globals of
    /// functions. Returns nil, or the message of the compiler.
    fn load_library(stack: Stack) -> c_int {
        // SAFETY: `Vm::load_library` passes a slice that outlives this call.
        let code = unsafe {
            std::slice::from_raw_parts(ffi::lua_touserdata(stack.raw(), 1).cast::<u8>(), stack.number(2) as usize)
        };
        sandbox::push_library_globals(stack, stack.ctx(), upvalue(2));
        // A library has no `redis.call` while it is loaded.
        let_chunks_load_constant_functions(stack, false);
        let is_compiled = load(stack, code, LIBRARY_CHUNK_NAME, 3, 4).is_some();
        let_chunks_load_constant_functions(stack, true);
        if !is_compiled {
            return 1;
        }
        stack.call(0, 0);
        sandbox::copy_fields(stack, upvalue(3), 3);
        stack.push_nil();
        1
    }
}
