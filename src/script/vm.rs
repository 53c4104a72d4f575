//! The Lua state: compiles scripts, runs them, interrupts and kills them, and words their errors as Redis does.
//!
//! One state serves all scripts of the server; it is used by one thread, one script at a time. LuaJIT runs with its
//! compiler **off**: compiled code does not meet the hook, so an endless loop in it could not be stopped.
//!
//! A run is one protected call of the C function `enter`, which sets KEYS and ARGV, calls the script and writes what it
//! returns; so whatever raises on the way, lack of memory included, arrives in one place ([`Vm::run`]). The message
//! handler `explain` sees the error while the stack still stands and notes its text and position in the context.
//!
//! **Interrupts.** Every few milliseconds a clock (`alarm`) has the script that runs ask the engine whether it may go on: at its
//! next instruction, from a hook, or at the next step or end of the C function that it is in. The engine serves other
//! clients and may say [`Verdict::Kill`]. Then an error is raised, and a hook is set that fires at each instruction, so that a
//! script that catches the error dies at its next step, in whatever coroutine.
//!
//! Mutable state lies in one boxed [`Ctx`] that every C function reaches through its first upvalue.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::mem::MaybeUninit;
use std::ptr::NonNull;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use mlua::{Lua, LuaOptions, StdLib};

use super::alarm::{self, Alarm};
use super::bytecode::{self, Traits};
use super::cjson;
use super::convert::{self, Frame, write_reply};
use super::debug::{self, Console, Debugger};
use super::frame::Layout;
use super::library::Function;
use super::lua::{Kind, REGISTRY, Stack, ffi, native, upvalue};
use super::memory::{self, Memory};
use super::names::{CommandId, Names};
use super::random::Lrand48;
use super::raw;
use super::sandbox;
use crate::base::limits::{
    SCRATCH_KEEP_BYTES, SCRIPT_EVAL_CACHE_MAX, SCRIPT_LIST_KEEP_ELEMENTS, SCRIPT_LIST_KNOWN_ELEMENTS, SCRIPT_TIDY_SLICE,
};
use crate::resp::reply::{Form, Reply};
use crate::resp::request::{Argv, Span};

/// A script's name: the SHA-1 of its text in 40 lower-case hexadecimal digits.
pub type Sha1Hex = [u8; 40];

/// What a running script asks of the server. The engine implements it. No method may come back into the [`Vm`].
pub trait Host {
    /// Runs one command for `redis.call` or `redis.pcall` and writes its one reply, errors included, to `reply`, which is a
    /// tape.
    fn call(&mut self, argv: Argv<'_>, reply: &mut Reply);
    /// As [`call`](Self::call), of a command whose name [`command_id`](Self::command_id) knew.
    fn call_known(&mut self, _: CommandId, argv: Argv<'_>, reply: &mut Reply) {
        self.call(argv, reply);
    }
    /// The number of the command of this name, if there is one: the same as long as the state lives.
    fn command_id(&mut self, _name: &[u8]) -> Option<CommandId> {
        None
    }
    /// Asked every few milliseconds once a script has run for some, between any two of its calls: whether it may go on.
    /// May serve other clients meanwhile.
    fn interrupted(&mut self) -> Verdict;
    /// `redis.log`.
    fn log(&mut self, level: LogLevel, message: &[u8]);
    /// `redis.setresp`: the script reads later replies as RESP `version`, 2 or 3. Every script begins with 2.
    fn set_resp(&mut self, version: u8);
}

/// What a script reads, or answers, that ends by [`Verdict::UndoIsFull`].
pub const UNDO_IS_FULL: &str = "ERR Script changed more than could be undone within script-memory-limit. Change less at a time, raise the limit by CONFIG SET, or turn script-rollback off";

/// What becomes of a script that is asked about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It goes on.
    Continue,
    /// It ends with an error, whatever it catches: somebody asked for its end.
    Kill,
    /// It ends with an error, whatever it catches: it has had its time.
    OutOfTime,
    /// It ends with an error, whatever it catches: it has changed more than can be kept to take it back.
    UndoIsFull,
}

/// The levels of `redis.log`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogLevel {
    /// `redis.LOG_DEBUG`.
    Debug,
    /// `redis.LOG_VERBOSE`.
    Verbose,
    /// `redis.LOG_NOTICE`.
    Notice,
    /// `redis.LOG_WARNING`.
    Warning,
}

impl LogLevel {
    pub(super) fn from_number(number: f64) -> Option<LogLevel> {
        [LogLevel::Debug, LogLevel::Verbose, LogLevel::Notice, LogLevel::Warning]
            .get(usize::try_from(number as i64).ok()?)
            .copied()
    }
}

/// How a script or function ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Outcome {
    /// With a reply that is no error.
    #[default]
    Value,
    /// With an error as the value that it chose to return.
    Returned(Fault),
    /// By an error: it failed, or was ended.
    Raised(Fault),
}

/// Whose an error is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The script's own, or Lua's.
    Script,
    /// A command's that it called, and counted there.
    Command,
}

/// Which Redis scripts are told they run on: `redis.REDIS_VERSION` and `redis.REDIS_VERSION_NUM`.
#[derive(Clone, Copy, Debug)]
pub struct ServerVersion<'a> {
    /// As `7.0.15`.
    pub text: &'a str,
    /// Major, minor and patch in one byte each: 0x00MMmmpp.
    pub number: u32,
}

/// Why a script could not be had.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ScriptError {
    /// The text is not a Lua program. The payload says where and why, as Lua words it.
    #[error("ERR Error compiling script (new function): {0}")]
    Syntax(String),
    /// The state could not be made or is out of memory.
    #[error("ERR Lua: {0}")]
    State(String),
    /// Compiling it takes more memory than scripts may have.
    #[error("ERR Compiling the script takes more than script-memory-limit")]
    TooLarge,
}

/// Why a library could not be loaded.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LoadError {
    /// The text is not a Lua program. The payload says where and why, as Lua words it.
    #[error("ERR Error compiling function: {0}")]
    Syntax(String),
    /// The program failed. The payload is the error that it raised, its code included.
    #[error("ERR Error registering functions: {0}")]
    Failed(String),
}

/// A compiled script, or a function that a library registered, as the state keeps it until [`Vm::release`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Handle {
    reference: c_int,
    /// Tells programs apart whose slot is the same, one after the other.
    serial: u32,
    /// It might change the tables KEYS and ARGV, or keep them.
    may_keep_lists: bool,
}

/// One run of a script or function.
#[derive(Clone, Copy)]
pub struct Invocation<'a> {
    /// What runs.
    pub program: Handle,
    /// How it gets its keys and arguments.
    pub passing: Passing,
    /// What it is called in its errors: a script's SHA-1, a function's name.
    pub name: &'a [u8],
    /// The keys.
    pub keys: Argv<'a>,
    /// The other arguments.
    pub args: Argv<'a>,
}

/// How keys and arguments are passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Passing {
    /// As the globals KEYS and ARGV: to scripts.
    Globals,
    /// As two arguments: to functions.
    Arguments,
}

impl Handle {
    /// A small number that no other program has at the same time: an index for what is kept of each.
    #[inline]
    pub fn slot(self) -> usize {
        self.reference.unsigned_abs() as usize
    }

    /// A number that no other program of this slot has had.
    #[inline]
    pub fn serial(self) -> u32 {
        self.serial
    }

    #[cfg(test)]
    pub(crate) fn for_tests(slot: u16, serial: u32) -> Handle {
        Handle { reference: slot.into(), serial, may_keep_lists: true }
    }
}

/// The Lua state with all compiled scripts. See the module's header.
pub struct Vm {
    state: *mut ffi::lua_State,
    enter: c_int,
    explain: c_int,
    compile: c_int,
    load: c_int,
    evaluate: c_int,
    // Before `ctx`: closing the state may not outlive what its functions point to.
    lua: Lua,
    pub(super) ctx: Box<Ctx>,
    /// mlua's own allocator, which frees what belongs to it.
    own_allocator: Option<OwnAllocator>,
}

/// The allocator that mlua gave a state, with its data.
struct OwnAllocator {
    state: *mut ffi::lua_State,
    allocate: ffi::lua_Alloc,
    data: *mut c_void,
}

/// What C functions need beside the Lua state.
pub(super) struct Ctx {
    /// The engine, while a script runs.
    pub(super) host: Option<NonNull<dyn Host>>,
    /// The run that is under way.
    run: Option<Run>,
    /// How the shared tables of KEYS and ARGV stand.
    lists: [ListState; 2],
    /// Bytes and spans of a command's arguments.
    pub(super) args: Vec<u8>,
    pub(super) spans: Vec<Span>,
    /// Names of commands that need no look-up.
    pub(super) names: Names,
    /// The reply of the last command.
    pub(super) tape: Reply,
    /// Whether the script chose `redis.setresp(3)`.
    pub(super) resp3: bool,
    /// Whether `redis.call` reads its arguments where LuaJIT keeps them: see `raw`.
    pub(super) reads_raw: bool,
    /// Scratch of the libraries.
    pub(super) buffer: Vec<u8>,
    pub(super) frames: Vec<Frame>,
    pub(super) random: Lrand48,
    /// The settings of the global `cjson`.
    pub(super) cjson: *mut cjson::Settings,
    /// Chunks run as `bytecode` rewrites them: false only in [`Vm::compile_as_written`].
    rewrites: bool,
    pub(super) altered: Altered,
    /// The address of the C stack where the script began.
    pub(super) c_base: usize,
    /// What the library that is being loaded has registered.
    pub(super) loading: Option<Vec<Arc<Function>>>,
    /// How many handles were given out.
    handles: u32,
    /// The debugger, while it has a script.
    pub(super) debugger: Option<NonNull<Debugger<'static>>>,
    /// What a script that is to die answers, where the verdict does not say it.
    pub(super) own_last_words: Option<&'static str>,
    /// Brings the hook to a run that is long.
    pub(super) alarm: Alarm,
    /// The account of the state's memory.
    pub(super) memory: Rc<Memory>,
    /// The engine said that the script is to end, and why.
    pub(super) killed: bool,
    verdict: Verdict,
    failure: Failure,
    outcome: Outcome,
}

/// What a script has changed of what all share; it is put back after the run.
#[derive(Default)]
pub(super) struct Altered {
    /// The settings of the global `cjson`.
    pub(super) cjson: bool,
    /// The generator of `math.random` as it was before `math.randomseed`.
    pub(super) random: Option<Lrand48>,
}

/// What `enter` works on. All of it is borrowed from the caller of `Vm::run`, until that returns.
#[derive(Clone, Copy)]
struct Run {
    invocation: Invocation<'static>,
    reply: NonNull<Reply>,
}

/// An error as `explain` found it.
#[derive(Default)]
struct Failure {
    text: Vec<u8>,
    /// The chunk's name and line; empty when the error arose nowhere in a script.
    source: Vec<u8>,
    line: c_int,
    /// A command answered it.
    of_command: bool,
}

impl Ctx {
    /// A handle on the function that the registry holds under `reference`.
    pub(super) fn handle(&mut self, reference: c_int, may_keep_lists: bool) -> Handle {
        self.handles = self.handles.wrapping_add(1);
        Handle { reference, serial: self.handles, may_keep_lists }
    }

    pub(super) fn log(&mut self, level: LogLevel) {
        if let Some(mut host) = self.host {
            let message = &self.buffer;
            // SAFETY: the host is the one that `Vm::run` was lent, and that call has not returned.
            unsafe { host.as_mut() }.log(level, message);
        }
    }

    pub(super) fn set_resp(&mut self, version: u8) {
        self.resp3 = version == 3;
        self.tape.set_form(if self.resp3 { Form::Tape3 } else { Form::Tape2 });
        if let Some(mut host) = self.host {
            // SAFETY: as in `log`.
            unsafe { host.as_mut() }.set_resp(version);
        }
    }

    /// Asks the engine whether the script may go on.
    pub(super) fn ask(&mut self) -> Verdict {
        alarm::note_asked();
        let Some(mut host) = self.host else { return Verdict::Continue };
        // SAFETY: as in `log`.
        self.verdict = unsafe { host.as_mut() }.interrupted();
        self.verdict
    }

    /// Whether the script is on its way out, whatever it catches.
    #[inline]
    pub(super) fn is_dying(&self) -> bool {
        self.killed || self.memory.is_exhausted()
    }

    /// What a script that dies answers.
    fn last_words(&self) -> &'static [u8] {
        if self.memory.is_exhausted() {
            return b"ERR Script used more than script-memory-limit. Let it hold less at a time, or raise the limit by CONFIG SET";
        }
        if let Some(words) = self.own_last_words {
            return words.as_bytes();
        }
        match self.verdict {
            _ if self.loading.is_some() => b"ERR FUNCTION LOAD timeout",
            Verdict::OutOfTime => {
                b"ERR Script ran longer than script-time-limit. Split its work into several calls, or raise the limit by CONFIG SET"
            }
            Verdict::UndoIsFull => UNDO_IS_FULL.as_bytes(),
            _ => b"ERR Script killed by user with SCRIPT KILL...",
        }
    }
}

impl Drop for Vm {
    fn drop(&mut self) {
        if let Some(OwnAllocator { state, allocate, data }) = self.own_allocator {
            // SAFETY: the state is live until `lua` is dropped; blocks of one allocator may be freed by the other.
            unsafe { ffi::lua_setallocf(state, allocate, data) };
        }
    }
}

impl Vm {
    /// A fresh state whose `math.random` starts at `seed`.
    pub fn new(version: ServerVersion<'_>, seed: u32) -> Result<Vm, ScriptError> {
        Vm::build(version, seed, true)
    }

    /// The same; `reads_raw` allows what `raw` does, if LuaJIT's layout is the known one.
    pub(super) fn build(version: ServerVersion<'_>, seed: u32, reads_raw: bool) -> Result<Vm, ScriptError> {
        let libraries = StdLib::STRING | StdLib::TABLE | StdLib::MATH | StdLib::BIT | StdLib::JIT;
        let lua = Lua::new_with(libraries, LuaOptions::new()).map_err(state_error)?;
        lua.load("jit.off()").exec().map_err(state_error)?;
        let ctx = Box::new(Ctx {
            host: None,
            run: None,
            lists: Default::default(),
            args: Vec::new(),
            spans: Vec::new(),
            names: Names::NONE,
            tape: Reply::new(Form::Tape2),
            resp3: false,
            reads_raw,
            buffer: Vec::new(),
            frames: Vec::new(),
            random: Lrand48::seeded(seed),
            cjson: std::ptr::null_mut(),
            rewrites: true,
            altered: Altered::default(),
            c_base: 0,
            loading: None,
            handles: 0,
            debugger: None,
            own_last_words: None,
            alarm: Alarm::new().map_err(|error| ScriptError::State(error.to_string()))?,
            memory: Rc::new(Memory::new(std::ptr::null_mut(), 0)),
            killed: false,
            verdict: Verdict::Continue,
            failure: Failure::default(),
            outcome: Outcome::Value,
        });
        let mut vm = Vm {
            state: std::ptr::null_mut(),
            enter: 0,
            explain: 0,
            compile: 0,
            load: 0,
            evaluate: 0,
            lua,
            ctx,
            own_allocator: None,
        };
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

    /// As [`compile`](Vm::compile), with the bytecode left as LuaJIT made it. The fuzz target `bytecode` compares the two.
    #[doc(hidden)]
    pub fn compile_as_written(&mut self, body: &[u8]) -> Result<Handle, ScriptError> {
        self.ctx.rewrites = false;
        let result = self.compile(body);
        self.ctx.rewrites = true;
        result
    }

    /// Gives back a script or a function that is no more.
    pub fn release(&mut self, handle: Handle) {
        // SAFETY: the handle is a reference that `compile` or a registration made.
        unsafe { ffi::luaL_unref(self.state, REGISTRY, handle.reference) };
    }

    /// Collects the memory of what was released, and all garbage.
    pub fn collect(&mut self) {
        self.ctx.memory.collect_all();
    }

    /// Whether scripts may have left so much garbage that it should be collected.
    pub fn is_littered(&self) -> bool {
        self.ctx.memory.is_littered()
    }

    /// Collects garbage that scripts have left, for [`SCRIPT_TIDY_SLICE`] at most. Answers whether there may be more.
    pub fn tidy(&mut self) -> bool {
        let until = Instant::now() + SCRIPT_TIDY_SLICE;
        self.ctx.memory.tidy(|| Instant::now() < until)
    }

    /// Gives back the memory of the buffers that calls share.
    pub fn give_back_scratch(&mut self) {
        let ctx = &mut self.ctx;
        ctx.spans = Vec::new();
        ctx.frames = Vec::new();
        for buffer in [&mut ctx.args, &mut ctx.buffer, ctx.tape.buffer_mut(), &mut ctx.failure.text] {
            *buffer = Vec::new();
        }
    }

    /// Runs a script or function and writes its one reply, or its error reply, to `reply`, which is of a client's form.
    #[inline]
    pub fn run(&mut self, invocation: Invocation<'_>, host: &mut dyn Host, reply: &mut Reply) -> Outcome {
        let start = reply.len();
        self.ctx.c_base = &raw const start as usize;
        // SAFETY: `enter` uses these only until the protected call below returns.
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
        stack.raw_get_at(REGISTRY, self.explain);
        stack.raw_get_at(REGISTRY, self.enter);
        self.begin();
        // SAFETY: a protected call of a function without arguments, with its message handler below it.
        let status = unsafe { ffi::lua_pcall(self.state, 0, 0, top + 1) };
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

    /// Runs a script as [`run`](Vm::run) does, under the debugger. `source` is its text, of which the debugger shows lines.
    pub fn debug(
        &mut self,
        mut invocation: Invocation<'_>,
        source: &[u8],
        console: &mut dyn Console,
        reply: &mut Reply,
    ) -> Outcome {
        // What the client evaluates may change KEYS and ARGV, or keep them.
        invocation.program.may_keep_lists = true;
        let mut debugger = Debugger::new(console, source, self.evaluate);
        let debugger = NonNull::from(&mut debugger);
        // SAFETY: the context forgets the debugger before this function is left.
        self.ctx.debugger =
            Some(unsafe { std::mem::transmute::<NonNull<Debugger<'_>>, NonNull<Debugger<'static>>>(debugger) });
        debug::begin(self.state);
        // SAFETY: the debugger is this function's. The hook, which borrows from it too, runs while nothing else does.
        let outcome = self.run(invocation, unsafe { &mut *debugger.as_ptr() }, reply);
        self.ctx.debugger = None;
        // SAFETY: as above.
        unsafe { &mut *debugger.as_ptr() }.finish();
        outcome
    }

    /// Compiles a library and runs it once; answers the functions that it registers. Meanwhile `host` is asked whether it
    /// may go on. If that fails, nothing of it stays.
    pub fn load_library(&mut self, code: &[u8], host: &mut dyn Host) -> Result<Vec<Arc<Function>>, LoadError> {
        let base = 0u8;
        self.ctx.c_base = &raw const base as usize;
        // SAFETY: the state uses the host only until the protected call below returns.
        let host = unsafe { std::mem::transmute::<NonNull<dyn Host + '_>, NonNull<dyn Host>>(NonNull::from(host)) };
        self.ctx.host = Some(host);
        self.ctx.loading = Some(Vec::new());
        let stack = self.stack();
        let top = stack.top();
        stack.raw_get_at(REGISTRY, self.explain);
        stack.raw_get_at(REGISTRY, self.load);
        stack.push_light(code.as_ptr().cast_mut().cast());
        stack.push_number(code.len() as f64);
        self.begin();
        // SAFETY: a protected call of a function with two arguments, its message handler below it; `code` outlives it.
        let status = unsafe { ffi::lua_pcall(self.state, 2, 1, top + 1) };
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

    /// Whether scripts find a global of this name.
    pub fn has_global(&self, name: &[u8]) -> bool {
        let stack = self.stack();
        let top = stack.top();
        stack.raw_get_at(REGISTRY, self.compile);
        // SAFETY: the function on top is `compile`, whose second upvalue is the table of globals.
        unsafe { ffi::lua_getupvalue(self.state, -1, 2) };
        let globals = stack.top();
        // By visiting: that takes no memory, for lack of which nothing may raise here.
        stack.push_nil();
        let mut is_there = false;
        while !is_there && stack.next(globals) {
            stack.pop(1);
            is_there = stack.kind(-1) == Kind::String && stack.bytes(-1) == name;
        }
        stack.set_top(top);
        is_there
    }

    /// Bytes that Lua holds, scripts and their data together.
    pub fn memory_bytes(&self) -> usize {
        self.ctx.memory.held()
    }

    /// Bytes that what runs may take beyond what Lua holds at rest; 0 for no limit.
    pub fn set_memory_limit(&mut self, bytes: usize) {
        self.ctx.memory.set_limit(if bytes == 0 { usize::MAX } else { bytes });
    }

    /// Begins a collection of garbage: what runs next meets the collector wherever it can.
    #[cfg(test)]
    pub(super) fn start_collection(&mut self) {
        // SAFETY: the state is live, and nothing runs.
        unsafe { ffi::lua_gc(self.state, ffi::LUA_GCRESTART, 0) };
    }

    /// The refusals of memory that a test asks for.
    #[cfg(test)]
    pub(super) fn faults(&self) -> &memory::Faults {
        &self.ctx.memory.faults
    }

    fn stack(&self) -> Stack<'static> {
        // SAFETY: the state lives as long as `self.lua`; what is borrowed from the stack is used before it is popped.
        unsafe { Stack::new(self.state) }
    }

    /// Makes the sandbox and the C functions that everything runs through.
    fn furnish(&mut self, version: ServerVersion<'_>) -> Result<(), ScriptError> {
        self.take_over_memory()?;
        let ctx: *mut Ctx = &mut *self.ctx;
        let mut out = (std::ptr::null_mut(), [0; 5]);
        // SAFETY: the closure runs protected; it pushes and pops on a live state, and holds nothing that must be freed.
        unsafe {
            self.lua
                .exec_raw::<()>((), |state| {
                    let stack = Stack::new(state);
                    stack.push_function(ctx, check_luajit);
                    stack.call(0, 0);
                    stack.push_function(ctx, learn_layout);
                    stack.call(0, 0);
                    sandbox::build(stack, ctx, &version);
                    // Above: the environment, and its protected stand-in `_G`, which is the environment of chunks that
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
                    stack.push_closure(debug::evaluate, 3);
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
                    // Room for the programs to come, so that the registry need not grow, and keep that, when there are many.
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
        [self.enter, self.explain, self.compile, self.load, self.evaluate] = out.1;
        Ok(())
    }

    /// Lets the state get its memory from an allocator that bounds it.
    fn take_over_memory(&mut self) -> Result<(), ScriptError> {
        let held = self.lua.used_memory();
        let mut own = None;
        // SAFETY: the closure does nothing that could raise. Both allocators take their blocks from the same place.
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

    /// Lua is about to compile or run what others wrote.
    #[inline]
    fn begin(&mut self) {
        self.ctx.alarm.begin(self.state);
        self.ctx.memory.begin();
    }

    /// It has done so.
    #[inline]
    fn end(&mut self) {
        self.ctx.memory.end();
        self.ctx.alarm.end();
    }

    /// After a run: the next script runs as ever, whatever became of this one.
    #[inline]
    fn recover(&mut self) {
        let Altered { cjson, random } = &mut self.ctx.altered;
        if std::mem::take(cjson) {
            // SAFETY: the sandbox has noted the pointer; the state is live.
            unsafe { cjson::reset(self.ctx.cjson) };
        }
        if let Some(random) = random.take() {
            self.ctx.random = random;
        }
        if self.ctx.is_dying() {
            self.revive();
        }
    }

    /// After a death.
    #[cold]
    fn revive(&mut self) {
        self.ctx.killed = false;
        self.ctx.own_last_words = None;
        if self.ctx.memory.is_exhausted() {
            self.ctx.memory.recover();
        }
    }

    /// Sees to it that the failure tells of errors that `explain` could not see.
    fn note_failure(&mut self, status: c_int) {
        let last_words = self.ctx.last_words();
        let is_exhausted = self.ctx.memory.is_exhausted();
        let failure = &mut self.ctx.failure;
        match status {
            // A coroutine hands on what Lua said.
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

/// Whether the value at `i` is the error that a command answered.
fn is_of_command(stack: Stack<'_>, i: c_int) -> bool {
    if stack.kind(i) != Kind::Table {
        return false;
    }
    stack.raw_get_field(i, b"ignore_error_stats_update");
    let is = stack.boolean(-1);
    stack.pop(1);
    is
}

fn set_text(failure: &mut Failure, text: &[u8]) {
    failure.text.clear();
    failure.text.extend_from_slice(text);
    failure.source.clear();
}

fn state_error(error: mlua::Error) -> ScriptError {
    ScriptError::State(error.to_string())
}

fn lossy(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The address under which the registry holds the context, for the hook, which has no upvalues.
static HOOK_KEY: [u8; 1] = [0];

/// Programs for which the registry has room from the start: those that EVAL keeps, and some that were loaded. LuaJIT makes room for a
/// power of two.
const PROGRAMS_FORESEEN: usize = SCRIPT_EVAL_CACHE_MAX + 100;

/// The name of the chunk that every script is.
const CHUNK_NAME: &CStr = c"@user_script";
/// The name of the chunk that every library is.
const LIBRARY_CHUNK_NAME: &CStr = c"@user_function";

// Upvalues of `enter`.
const ENV: c_int = upvalue(convert::UPVALUES + 1);
const LISTS: [List; 2] = [
    List { name: b"KEYS", key: upvalue(convert::UPVALUES + 2), table: upvalue(convert::UPVALUES + 4) },
    List { name: b"ARGV", key: upvalue(convert::UPVALUES + 3), table: upvalue(convert::UPVALUES + 5) },
];

/// A global list of scripts', with where its name and its shared table are found. That table serves all scripts that can
/// neither change nor keep it; others get one of their own.
struct List {
    name: &'static [u8],
    key: c_int,
    table: c_int,
}

#[derive(Default)]
struct ListState {
    /// Whether the global is the shared table.
    is_shared: bool,
    /// How many elements the shared table holds.
    len: usize,
    /// What its first elements are: those that come again, a limit or the one gate of a program, need not be made again.
    known: [Known; SCRIPT_LIST_KNOWN_ELEMENTS],
}

/// An element of a shared table, if it is short.
#[derive(Clone, Copy, Default)]
struct Known {
    /// One more than the length; 0 if it is not known.
    len_and_one: u8,
    bytes: [u8; 31],
}

impl Known {
    #[inline]
    fn is(&self, bytes: &[u8]) -> bool {
        usize::from(self.len_and_one) == bytes.len() + 1 && self.bytes[..bytes.len()] == *bytes
    }

    #[inline]
    fn note(&mut self, bytes: &[u8]) {
        self.len_and_one = 0;
        if let Some(room) = self.bytes.get_mut(..bytes.len()) {
            room.copy_from_slice(bytes);
            self.len_and_one = bytes.len() as u8 + 1;
        }
    }
}

native! {
    /// Sets KEYS and ARGV or passes them, calls the script or function, writes its value.
    fn enter(stack: Stack) -> c_int {
        let ctx = stack.ctx();
        // SAFETY: `Vm::run` set the run, and it holds until `enter` is left.
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
        // The last instruction may have taken what was too much.
        // SAFETY: the context outlives the state.
        if unsafe { (*ctx).memory.is_exhausted() } {
            memory::refuse(stack);
        }
        // Writing takes the value away.
        stack.push_value(-1);
        // SAFETY: the reply is the caller's, which waits; the frames are used by nothing else. Raising frees nothing.
        unsafe {
            let reply = &mut *run.reply.as_ptr();
            let start = reply.len();
            write_reply(stack, &mut (*ctx).frames, (*ctx).resp3, reply);
            let is_error = reply.as_bytes().get(start) == Some(&b'-');
            (*ctx).outcome = match is_error {
                false => Outcome::Value,
                true if is_of_command(stack, stack.top()) => Outcome::Returned(Fault::Command),
                true => Outcome::Returned(Fault::Script),
            };
        }
        0
    }

    /// The message handler: notes what failed, and where.
    fn explain(stack: Stack) -> c_int {
        // SAFETY: the context outlives the state, and nothing else uses it while an error is raised.
        let failure = unsafe { &mut (*stack.ctx()).failure };
        failure.text.clear();
        failure.source.clear();
        failure.of_command = is_of_command(stack, 1);
        match stack.kind(1) {
            Kind::Table => {
                stack.raw_get_field(1, b"err");
                match stack.text(-1) {
                    Some(text) => failure.text.extend_from_slice(text),
                    None => failure.text.extend_from_slice(b"ERR unknown error"),
                }
            }
            _ => {
                failure.text.extend_from_slice(b"ERR ");
                push_text(stack, 1);
                failure.text.extend_from_slice(stack.bytes(-1));
            }
        }
        locate(stack, failure);
        stack.set_top(1);
        1
    }

    /// Compiles the bytes at a light userdata (1) of a length (2): answers a reference to the function and whether it may
    /// keep KEYS and ARGV, or nil and why not.
    fn compile(stack: Stack) -> c_int {
        // SAFETY: `Vm::compile` passes a slice that outlives this call.
        let body = unsafe {
            std::slice::from_raw_parts(ffi::lua_touserdata(stack.raw(), 1).cast::<u8>(), stack.number(2) as usize)
        };
        if let Some(traits) = load(stack, body, CHUNK_NAME, upvalue(2), upvalue(3)) {
            let reference = stack.refer();
            stack.push_number(f64::from(reference));
            stack.push_boolean(traits.may_keep_lists);
        } else {
            stack.push_nil();
            stack.insert(-2);
        }
        2
    }

    /// Compiles the library at a light userdata (1) of a length (2) and runs it; then gives it the globals of functions.
    /// Answers nil, or why it does not compile.
    fn load_library(stack: Stack) -> c_int {
        // SAFETY: `Vm::load_library` passes a slice that outlives this call.
        let code = unsafe {
            std::slice::from_raw_parts(ffi::lua_touserdata(stack.raw(), 1).cast::<u8>(), stack.number(2) as usize)
        };
        sandbox::push_library_globals(stack, stack.ctx(), upvalue(2));
        if load(stack, code, LIBRARY_CHUNK_NAME, 3, 4).is_none() {
            return 1;
        }
        stack.call(0, 0);
        sandbox::copy_fields(stack, upvalue(3), 3);
        stack.push_nil();
        1
    }

    /// Learns to tell apart what asks for memory.
    fn learn_layout(stack: Stack) -> c_int {
        let layout = Layout::learn(stack);
        debug_assert!(layout.is_some(), "this LuaJIT is built in, and its layout is known");
        stack.memory().set_layout(layout);
        0
    }

    /// Notes whether the built-in LuaJIT keeps values as `raw` reads them. Raises unless it compiles to the bytecode that
    /// `bytecode` knows: the sandbox depends on that.
    fn check_luajit(stack: Stack) -> c_int {
        if !raw::is_known(stack) {
            tracing::debug!("this LuaJIT's values are unknown: scripts pass them through Lua's C interface");
            // SAFETY: the context outlives the state.
            unsafe { (*stack.ctx()).reads_raw = false };
        }
        for (source, opcodes) in bytecode::SAMPLES {
            // SAFETY: a constant chunk is loaded and dumped into a buffer of the context's.
            let known = unsafe {
                let ctx = stack.ctx();
                ffi::luaL_loadbuffer(stack.raw(), source.as_ptr().cast(), source.len(), c"=".as_ptr());
                (*ctx).buffer.clear();
                ffi::lua_dump_(stack.raw(), write_dump, (&raw mut (*ctx).buffer).cast());
                bytecode::matches(&(*ctx).buffer, opcodes)
            };
            if !known {
                stack.raise(b"this LuaJIT's bytecode is unknown");
            }
        }
        0
    }
}

/// Compiles a text as a chunk of name `name` and pushes the function, whose environment is the one at `env`, or the one at
/// `guarded` if it assigns globals. Otherwise pushes the message and answers nothing. Bytecode is no text.
pub(super) fn load(stack: Stack<'_>, text: &[u8], name: &CStr, env: c_int, guarded: c_int) -> Option<Traits> {
    let ctx = stack.ctx();
    let traits;
    if text.first() == Some(&0x1b) {
        stack.push_bytes(b"unexpected symbol near '<\\27>'");
        return None;
    }
    // SAFETY: the text and the name outlive the call; the dump and its copy lie in buffers that only this function uses now.
    unsafe {
        if ffi::luaL_loadbuffer(stack.raw(), text.as_ptr().cast(), text.len(), name.as_ptr()) != ffi::LUA_OK {
            return None;
        }
        let (dump, rewritten) = (&raw mut (*ctx).buffer, &raw mut (*ctx).args);
        (*dump).clear();
        ffi::lua_dump_(stack.raw(), write_dump, dump.cast());
        traits = match bytecode::rewrite(&*dump, &mut *rewritten) {
            Some(traits) => traits,
            None => {
                stack.push_bytes(b"unknown bytecode");
                return None;
            }
        };
        if traits.rewritten && (*ctx).rewrites {
            stack.pop(1);
            let len = (*rewritten).len();
            if ffi::luaL_loadbuffer(stack.raw(), (*rewritten).as_ptr().cast(), len, name.as_ptr()) != ffi::LUA_OK {
                return None;
            }
        }
    }
    if traits.has_cdata_literals {
        // Behind the `@` of its name.
        stack.push_bytes(name.to_bytes().get(1..).unwrap_or_default());
        stack.push_bytes(b":1: malformed number");
        stack.concat(2);
        return None;
    }
    stack.push_value(if traits.assigns_globals { guarded } else { env });
    stack.set_env(-2);
    Some(traits)
}

/// Appends a piece of a dump to the `Vec<u8>` at `out`.
unsafe extern "C-unwind" fn write_dump(
    _: *mut ffi::lua_State,
    piece: *const c_void,
    len: usize,
    out: *mut c_void,
) -> c_int {
    // SAFETY: `out` is the buffer that `lua_dump_` was given, the piece is `len` bytes of LuaJIT's.
    unsafe { (*out.cast::<Vec<u8>>()).extend_from_slice(std::slice::from_raw_parts(piece.cast(), len)) };
    0
}

/// Sets one of the lists that scripts find as globals. May raise for lack of memory.
#[inline]
fn set_list(stack: Stack<'_>, list: &List, elements: Argv<'static>, shared: &mut ListState, may_keep: bool) {
    if may_keep || elements.len() > SCRIPT_LIST_KEEP_ELEMENTS || elements.bytes() > SCRATCH_KEEP_BYTES {
        shared.is_shared = false;
        stack.push_value(list.key);
        push_list(stack, elements);
        return stack.memory().granted(|| stack.raw_set(ENV));
    }
    if !shared.is_shared {
        stack.push_value(list.key);
        stack.push_value(list.table);
        stack.memory().granted(|| stack.raw_set(ENV));
        shared.is_shared = true;
    }
    // Until all is set: what is raised on the way leaves the table anyhow.
    let held = std::mem::replace(&mut shared.len, SCRIPT_LIST_KEEP_ELEMENTS);
    for (i, bytes) in elements.iter().enumerate() {
        let known = shared.known.get_mut(i);
        if known.as_ref().is_some_and(|known| known.is(bytes)) {
            continue;
        }
        stack.push_bytes(bytes);
        stack.raw_set_at(list.table, i as c_int + 1);
        known.into_iter().for_each(|known| known.note(bytes));
    }
    for i in elements.len()..held {
        stack.push_nil();
        stack.raw_set_at(list.table, i as c_int + 1);
        shared.known.get_mut(i).into_iter().for_each(|known| *known = Known::default());
    }
    shared.len = elements.len();
}

#[inline]
fn push_list(stack: Stack<'_>, list: Argv<'static>) {
    stack.new_table(list.len(), 0);
    for (i, bytes) in list.iter().enumerate() {
        stack.push_bytes(bytes);
        stack.raw_set_at(-2, i as c_int + 1);
    }
}

/// Pushes the value at `i` as text, without calling a script's metamethods. May raise for lack of memory.
pub(super) fn push_text(stack: Stack<'_>, i: c_int) {
    match stack.kind(i) {
        Kind::String | Kind::Number => {
            stack.push_value(i);
            stack.text(-1);
        }
        Kind::None | Kind::Nil => stack.push_bytes(b"nil"),
        Kind::Boolean => stack.push_bytes(if stack.boolean(i) { b"true" } else { b"false" }),
        _ => {
            let mut address = [0u8; 16];
            let mut value = stack.pointer(i) as usize;
            for digit in address.iter_mut().rev() {
                *digit = b"0123456789abcdef"[value & 15];
                value >>= 4;
            }
            stack.push_bytes(stack.kind_name(i).as_bytes());
            stack.push_bytes(b": 0x");
            stack.push_bytes(&address);
            stack.concat(3);
        }
    }
}

/// Notes where the error arose: the innermost function, or its caller if that one is written in C. Functions of the
/// sandbox that happen to be written in Lua are passed over.
fn locate(stack: Stack<'_>, failure: &mut Failure) {
    let mut c_functions = 0;
    for level in 1.. {
        // SAFETY: the record is filled by `lua_getstack` and `lua_getinfo` before it is read; its strings are Lua's.
        unsafe {
            let mut record = MaybeUninit::<ffi::lua_Debug>::zeroed();
            if ffi::lua_getstack(stack.raw(), level, record.as_mut_ptr()) == 0
                || ffi::lua_getinfo(stack.raw(), c"Sl".as_ptr(), record.as_mut_ptr()) == 0
            {
                return;
            }
            let record = record.assume_init();
            if c_bytes(record.source) == sandbox::PRELUDE_NAME.to_bytes() {
                continue;
            }
            if c_bytes(record.what) == b"C" {
                c_functions += 1;
                if c_functions == 2 {
                    return;
                }
                continue;
            }
            failure.source.clear();
            failure.source.extend_from_slice(c_bytes(record.source));
            failure.line = record.currentline;
        }
        return;
    }
}

/// Whether a function whose source the record tells (`S`) stands in a script, not in the sandbox.
pub(super) fn is_script(record: &ffi::lua_Debug) -> bool {
    // SAFETY: the source is a string of Lua's that lives as long as the function.
    unsafe { c_bytes(record.source) == CHUNK_NAME.to_bytes() }
}

/// # Safety
/// `text` must be null or a C string that lives as long as the answer is used.
pub(super) unsafe fn c_bytes<'a>(text: *const c_char) -> &'a [u8] {
    // SAFETY: the caller's promise.
    if text.is_null() { b"" } else { unsafe { CStr::from_ptr(text) }.to_bytes() }
}

/// Lua calls this at the instruction after a tick of the clock, or after memory has run short, and at each one once the script
/// is to die.
pub(super) unsafe extern "C-unwind" fn hook(state: *mut ffi::lua_State, _: *mut ffi::lua_Debug) {
    // SAFETY: Lua calls this with a live state; the registry holds the context, which outlives it.
    unsafe {
        let stack = Stack::new(state);
        let ctx = hook_context(stack);
        if ctx.is_null() {
            return;
        }
        if !(*ctx).is_dying() {
            // Before it asks: what comes meanwhile sets it again.
            alarm::change_hook(state, None, 0, 0);
            (*ctx).memory.collect_if_due();
            if (*ctx).ask() == Verdict::Continue {
                return;
            }
        }
        kill(stack, ctx)
    }
}

/// The context, as a hook finds it; null before there is one.
#[inline]
pub(super) fn hook_context(stack: Stack<'_>) -> *mut Ctx {
    stack.push_light(HOOK_KEY.as_ptr().cast_mut().cast());
    stack.raw_get(REGISTRY);
    // SAFETY: the registry holds the context under this key, or nothing.
    let ctx = unsafe { ffi::lua_touserdata(stack.raw(), -1).cast() };
    stack.pop(1);
    ctx
}

/// Makes the hook come at the next instruction and at each one from there on. May be called inside of an allocation.
pub(super) fn interrupt(state: *mut ffi::lua_State) {
    // SAFETY: the state is live, for the allocator is asked by it.
    unsafe {
        // The debugger's stays its own.
        let hook = ffi::lua_gethook(state).unwrap_or(hook);
        alarm::change_hook(state, Some(hook), ffi::lua_gethookmask(state) | ffi::LUA_MASKCOUNT, 1);
    }
}

/// Asks the engine, from inside a C function, whether the script may go on, and ends it if not.
#[cold]
pub(super) fn ask_or_die(stack: Stack<'_>) {
    let ctx = stack.ctx();
    // SAFETY: the context outlives the state; the engine does not come back into the VM.
    if unsafe { (*ctx).is_dying() || (*ctx).ask() != Verdict::Continue } {
        // What the function has pushed may fill the stack.
        stack.set_top(0);
        kill(stack, ctx);
    }
}

/// Raises the error that a killed script ends with, and sees to it that catching it is of no use.
pub(super) fn kill(stack: Stack<'_>, ctx: *mut Ctx) -> ! {
    // SAFETY: the context outlives the state, which is live.
    unsafe {
        (*ctx).killed = true;
        (*ctx).memory.end();
    }
    interrupt(stack.raw());
    stack.new_table(0, 1);
    stack.push_bytes(b"err");
    // SAFETY: as above.
    stack.push_bytes(unsafe { (*ctx).last_words() });
    stack.raw_set(-3);
    stack.raise_top()
}
