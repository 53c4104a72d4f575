//! Scripts and functions in the engine: the cache, the libraries, the Lua state, and what a running script may ask of the
//! server.
//!
//! A script is one unit: every command that it calls runs through [`call`] inside the unit of the call that started it,
//! and the observers see the effects when all is done. While Lua runs no borrow of the keyspace is held: each
//! `redis.call` borrows anew, through the context of the command that started the script.

use std::time::Duration;

use quanta::Clock;

use super::busy::{RunningScript, ScriptKind, Subject};
use super::ctx::{Ctx, Origin};
use super::dispatch::call;
use super::error::Error;
use super::script_stats::EndedCall;
use super::spec::{Done, Flags};
use super::table::Entry;
use crate::base::limits::{LIBRARY_LOAD_MAX, SCRIPT_FAST_MAX_ARGS};
use crate::base::version::REDIS_VERSION;
use crate::resp::reply::Reply;
use crate::resp::request::{Argv, OwnedArgv};
use crate::script::bundled::BUNDLED;
use crate::script::library::{self, Function, Libraries, Library, LibraryError};
use crate::script::store::{self, Script, ScriptFlags, Store};
use crate::script::{Host, Invocation, LogLevel, Outcome, Passing, ScriptError, ServerVersion, Sha1Hex, Verdict, Vm};

const NO_SCRIPT: Error = Error::text("NOSCRIPT No matching script. Please use EVAL.");

/// All scripts, and the state that runs them.
pub struct Scripts {
    store: Store,
    libraries: Libraries,
    /// Scripts that made room for others.
    evicted: u64,
    /// Out while a script runs.
    vm: Option<Box<Vm>>,
}

impl Scripts {
    /// The bundled scripts, compiled.
    pub fn new(seed: u64) -> Result<Scripts, Error> {
        let vm = Vm::new(ServerVersion { text: REDIS_VERSION, number: version_number() }, seed as u32);
        let vm = Some(Box::new(vm.map_err(script_error)?));
        let mut scripts = Scripts { store: Store::new(seed), libraries: Libraries::new(seed), evicted: 0, vm };
        for script in BUNDLED {
            scripts.add(script.body.as_bytes(), store::Origin::Bundled)?;
        }
        Ok(scripts)
    }

    /// Compiles and keeps a script. Answers its name.
    pub fn add(&mut self, body: &[u8], origin: store::Origin) -> Result<Sha1Hex, Error> {
        let sha = store::sha1_hex(body);
        if self.store.renew(&sha, origin) {
            return Ok(sha);
        }
        let (flags, start) = store::parse_shebang(body).map_err(|error| Error::owned(error.to_string()))?;
        let vm = self.vm.as_mut().ok_or(NESTED)?;
        let program = vm.compile(body.get(start..).unwrap_or_default()).map_err(script_error)?;
        if let Some(evicted) = self.store.insert(sha, body, flags, program, origin) {
            vm.release(evicted.program);
            self.evicted += 1;
        }
        Ok(sha)
    }

    /// Whether a script of this name is there.
    pub fn has(&self, sha: &[u8]) -> bool {
        store::parse_sha1(sha).is_some_and(|sha| self.store.find(&sha).is_some())
    }

    /// Drops all scripts but the bundled ones.
    pub fn flush(&mut self) {
        let gone = self.store.flush();
        if let Some(vm) = &mut self.vm {
            gone.iter().for_each(|script| vm.release(script.program));
            vm.collect();
        }
    }

    /// The libraries of functions.
    pub fn libraries(&self) -> &Libraries {
        &self.libraries
    }

    /// FUNCTION LOAD: compiles and runs a library and keeps the functions that it registers. Answers its name. If that
    /// fails, everything is as before.
    pub fn load_library(&mut self, code: &[u8], replace: bool, clock: &Clock) -> Result<Box<str>, Error> {
        let library = self.compile_library(code, clock, |name, scripts| replace || !scripts.libraries.has(name))?;
        let name = library.name.clone();
        let (outcome, gone) = match self.libraries.insert(library) {
            Ok(replaced) => (Ok(name), replaced),
            Err((error, refused)) => (Err(library_error(error)), Some(refused)),
        };
        self.release(gone.as_slice());
        outcome
    }

    /// FUNCTION RESTORE: loads all these libraries. If one fails, everything is as before.
    pub fn restore_libraries(&mut self, codes: &[Vec<u8>], policy: RestorePolicy, clock: &Clock) -> Result<(), Error> {
        let mut fresh: Vec<Library> = Vec::with_capacity(codes.len());
        for code in codes {
            let is_free = |name: &str, _: &Scripts| fresh.iter().all(|other| &*other.name != name);
            match self.compile_library(code, clock, is_free) {
                Ok(library) if library.functions.is_empty() => {
                    self.release(&fresh);
                    return Err(library_error(LibraryError::Empty));
                }
                Ok(library) => fresh.push(library),
                Err(error) => {
                    self.release(&fresh);
                    return Err(error);
                }
            }
        }
        if policy == RestorePolicy::Append
            && let Some(taken) = fresh.iter().find(|library| self.libraries.has(&library.name))
        {
            let text = format!("ERR Library {} already exists", taken.name);
            self.release(&fresh);
            return Err(Error::owned(text));
        }
        let replaced = match policy {
            RestorePolicy::Flush => self.libraries.take_all(),
            _ => fresh.iter().filter_map(|library| self.libraries.remove(&library.name)).collect(),
        };
        let names: Vec<Box<str>> = fresh.iter().map(|library| library.name.clone()).collect();
        let mut fresh = fresh.into_iter();
        while let Some(library) = fresh.next() {
            if let Err((error, refused)) = self.libraries.insert(library) {
                let mut gone: Vec<Library> = names.iter().filter_map(|name| self.libraries.remove(name)).collect();
                gone.push(refused);
                gone.extend(fresh);
                self.release(&gone);
                for library in replaced {
                    // They stood together before.
                    let _ = self.libraries.insert(library);
                }
                return Err(library_error(error));
            }
        }
        self.release(&replaced);
        Ok(())
    }

    /// Compiles and runs a library, if its name `is_free`.
    fn compile_library(
        &mut self,
        code: &[u8],
        clock: &Clock,
        is_free: impl Fn(&str, &Scripts) -> bool,
    ) -> Result<Library, Error> {
        let (name, start) = library::parse_header(code).map_err(library_error)?;
        if !is_free(&name, self) {
            return Err(library_error(LibraryError::Exists(name.into())));
        }
        let vm = self.vm.as_mut().ok_or(NESTED)?;
        let mut host = LoadHost { clock, started_ticks: clock.raw() };
        let program = code.get(start..).unwrap_or_default();
        let functions = vm.load_library(program, &mut host).map_err(|error| Error::owned(error.to_string()))?;
        Ok(Library { name, code: code.into(), functions })
    }

    /// FUNCTION DELETE: drops a library; false if there is none of this name.
    pub fn delete_library(&mut self, name: &[u8]) -> bool {
        let gone = std::str::from_utf8(name).ok().and_then(|name| self.libraries.remove(name));
        self.release(gone.as_slice());
        gone.is_some()
    }

    /// FUNCTION FLUSH: drops all libraries.
    pub fn flush_libraries(&mut self) {
        let gone = self.libraries.take_all();
        self.release(&gone);
        if let Some(vm) = &mut self.vm {
            vm.collect();
        }
    }

    /// Gives the state back what libraries that are gone had in it.
    fn release(&mut self, gone: &[Library]) {
        if let Some(vm) = &mut self.vm {
            gone.iter().flat_map(|library| &library.functions).for_each(|function| vm.release(function.handle));
        }
    }

    /// All scripts.
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// How many scripts clients have brought.
    pub fn cached_len(&self) -> usize {
        self.store.cached_len()
    }

    /// How many scripts have made room for others.
    pub fn evicted(&self) -> u64 {
        self.evicted
    }

    /// Bytes that Lua holds; 0 while a script runs.
    pub fn memory_bytes(&self) -> usize {
        self.vm.as_ref().map_or(0, |vm| vm.memory_bytes())
    }

    /// Bytes of the scripts' texts.
    pub fn text_bytes(&self) -> usize {
        self.store.bytes()
    }
}

/// What FUNCTION RESTORE does with the libraries that are there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RestorePolicy {
    /// They stay; names may not collide.
    Append,
    /// Those of the same name go, the others stay.
    Replace,
    /// They go.
    Flush,
}

const NESTED: Error = Error::text("ERR a script can't run another one");

fn script_error(error: ScriptError) -> Error {
    Error::owned(error.to_string())
}

/// The version as one number: 0x00MMmmpp.
fn version_number() -> u32 {
    REDIS_VERSION.split('.').fold(0, |number, part| number << 8 | part.parse::<u32>().unwrap_or(0))
}

fn library_error(error: LibraryError) -> Error {
    Error::owned(error.to_string())
}

/// Runs the script called `sha` with its keys and arguments and writes its reply. `read_only`: it must not write.
/// `command` is the whole call.
pub fn run(
    ctx: &mut Ctx<'_>,
    sha: &Sha1Hex,
    keys: Argv<'_>,
    args: Argv<'_>,
    read_only: bool,
    command: Argv<'_>,
) -> Done {
    let &Script { flags, program, .. } = ctx.server.scripts.store.use_script(sha).ok_or(NO_SCRIPT)?;
    let invocation = Invocation { program, passing: Passing::Globals, name: sha, keys, args };
    enter(ctx, Call { kind: ScriptKind::Script, command, flags, read_only }, invocation)
}

/// Runs a function of a library with its keys and arguments and writes its reply. `read_only`: it must not write.
/// `command` is the whole call.
pub fn run_function(
    ctx: &mut Ctx<'_>,
    function: &Function,
    keys: Argv<'_>,
    args: Argv<'_>,
    read_only: bool,
    command: Argv<'_>,
) -> Done {
    let &Function { ref name, handle: program, flags, .. } = function;
    let invocation = Invocation { program, passing: Passing::Arguments, name: name.as_bytes(), keys, args };
    enter(ctx, Call { kind: ScriptKind::Function, command, flags, read_only }, invocation)
}

/// One call of a script or function.
#[derive(Clone, Copy)]
struct Call<'a> {
    kind: ScriptKind,
    /// The client's command.
    command: Argv<'a>,
    flags: ScriptFlags,
    read_only: bool,
}

/// Lends the state and the server to a call, and takes them back.
#[inline]
fn enter(ctx: &mut Ctx<'_>, call: Call<'_>, invocation: Invocation<'_>) -> Done {
    let flags = call.flags;
    if call.read_only && flags.declared && !flags.no_writes {
        return Err(Error::text("ERR Can not execute a script with write flag using *_ro command."));
    }
    ctx.server.admit_script_memory(flags, ctx.origin == Origin::Exec)?;
    let mut vm = ctx.server.scripts.vm.take().ok_or(NESTED)?;
    // The reading that the duration of the client's command begins with.
    let started = ctx.server.last_ticks;
    ctx.server.running_script = Some(RunningScript::new(call.kind, ctx.session.key, started));
    let db = ctx.session.db;
    let mut reply = std::mem::replace(ctx.reply, Reply::new(ctx.reply.form()));
    let watched_from = started.saturating_add(ctx.server.stats.scripts.slow.trail_after_ticks);
    let read_only = call.read_only || flags.no_writes;
    let mut host = ScriptHost { ctx: &mut *ctx, call, name: invocation.name, read_only, started, watched_from };
    let start = reply.len();
    let outcome = vm.run(invocation, &mut host, &mut reply);
    count_outcome(ctx, outcome, reply.as_bytes().get(start..).unwrap_or_default());
    *ctx.reply = reply;
    // SELECT inside a script is the script's own.
    ctx.session.db = db;
    let script = ctx.server.running_script.take();
    ctx.server.scripts.vm = Some(vm);
    let ticks = ctx.server.stats.clock.raw().saturating_sub(started);
    let is_killed = script.is_some_and(|script| script.kill_requested);
    let ended = EndedCall { is_error: outcome != Outcome::Value, is_killed, ticks, began_ms: ctx.now_ms() };
    let stats = &mut ctx.server.stats.scripts;
    stats.count(invocation.program, ended);
    if ticks >= stats.slow.trail_after_ticks {
        let session = &*ctx.session;
        let client = || (session.address.as_str().into(), session.name.as_slice().into());
        stats.slow.end(ticks, ended.began_ms, || (invocation.name, call.command, client()));
    }
    Ok(())
}

/// Counts a script that answered an error as failed. What a command answered was counted there.
#[inline]
fn count_outcome(ctx: &mut Ctx<'_>, outcome: Outcome, reply: &[u8]) {
    if outcome == Outcome::Value {
        return;
    }
    let stats = &mut ctx.server.stats;
    stats.commands[ctx.entry.id].failed += 1;
    if outcome == Outcome::Error {
        let line = reply.split(|&byte| byte == b'\r').next().unwrap_or_default();
        stats.count_error(line.strip_prefix(b"-").unwrap_or(line));
    }
}

/// The engine, as a running script sees it.
struct ScriptHost<'h, 'c> {
    ctx: &'h mut Ctx<'c>,
    call: Call<'h>,
    /// The script's SHA1 or the function's name.
    name: &'h [u8],
    read_only: bool,
    /// When it began, by the processor's clock.
    started: u64,
    /// From when on its commands are noted in a trail; see [`script_slow`](super::script_slow).
    watched_from: u64,
}

impl ScriptHost<'_, '_> {
    /// What the one gate of clients is for them: admits a command that a script calls.
    #[inline]
    fn admit(&self, argv: Argv<'_>) -> Result<&'static Entry, Error> {
        let table = self.ctx.server.table;
        let entry = match table.resolve(argv) {
            Ok(entry) => entry,
            Err(Error::Arity(_)) => {
                return Err(Error::text("ERR Wrong number of args calling Redis command from script"));
            }
            Err(_) => return Err(Error::text("ERR Unknown Redis command called from script")),
        };
        let flags = entry.command.flags;
        if flags.has(Flags::NOSCRIPT) {
            return Err(Error::text("ERR This Redis command is not allowed from script"));
        }
        if self.read_only && flags.has(Flags::WRITE | Flags::MAY_REPLICATE) {
            return Err(Error::text("ERR Write commands are not allowed from read-only scripts."));
        }
        self.ctx.server.admit_call_memory(self.call.flags, entry)?;
        Ok(entry)
    }
}

impl Host for ScriptHost<'_, '_> {
    fn call(&mut self, argv: Argv<'_>, reply: &mut Reply) {
        let entry = match self.admit(argv) {
            Ok(entry) => entry,
            Err(error) => {
                let text = error.to_string();
                let server = &mut *self.ctx.server;
                server.stats.count_error(text.as_bytes());
                if let Some(entry) = server.table.named_by(argv) {
                    server.stats.commands[entry.id].rejected += 1;
                }
                return reply.error(text.as_bytes());
            }
        };
        if entry.command.flags.has(Flags::WRITE)
            && let Some(script) = &mut self.ctx.server.running_script
        {
            script.has_written = true;
        }
        let Ctx { ks, server, session, .. } = &mut *self.ctx;
        let is_timed = server.last_ticks >= self.watched_from || may_be_slow(entry, argv);
        if is_timed {
            server.last_ticks = server.stats.clock.raw();
        }
        let began = server.last_ticks;
        // Nothing waits in a script: the call times out at once.
        let _ = call(ks, server, session, entry, argv, reply, Origin::Script);
        if is_timed && server.last_ticks >= self.watched_from {
            let at_ticks = began.saturating_sub(self.started);
            let ticks = server.last_ticks.saturating_sub(began);
            server.stats.scripts.slow.note_step(argv, at_ticks, ticks);
        }
    }

    fn interrupted(&mut self) -> Verdict {
        // Only a script that runs for long is ever asked about.
        if let Some(script) = &mut self.ctx.server.running_script
            && script.subject.is_none()
        {
            let command = OwnedArgv::from_argv(self.call.command);
            script.subject = Some(Subject { name: self.name.into(), command });
        }
        if self.ctx.server.script_interrupted(self.ctx.ks) { Verdict::Continue } else { Verdict::Kill }
    }

    fn log(&mut self, level: LogLevel, message: &[u8]) {
        log(level, message);
    }

    fn set_resp(&mut self, _: u8) {
        // The tape that the state hands to `call` has the right form already.
    }
}

/// Whether a command's time can be worth reading the clock before it.
#[inline]
fn may_be_slow(entry: &Entry, argv: Argv<'_>) -> bool {
    !entry.command.flags.has(Flags::FAST) || argv.len() > SCRIPT_FAST_MAX_ARGS
}

/// The engine, as a library sees it while it is loaded: nothing but a clock.
struct LoadHost<'a> {
    clock: &'a Clock,
    started_ticks: u64,
}

impl Host for LoadHost<'_> {
    fn call(&mut self, _: Argv<'_>, reply: &mut Reply) {
        reply.error(b"ERR redis.call/pcall can only be called inside a script invocation");
    }

    fn interrupted(&mut self) -> Verdict {
        let ran_ns = self.clock.delta_as_nanos(self.started_ticks, self.clock.raw());
        if Duration::from_nanos(ran_ns) < LIBRARY_LOAD_MAX { Verdict::Continue } else { Verdict::Kill }
    }

    fn log(&mut self, level: LogLevel, message: &[u8]) {
        log(level, message);
    }

    fn set_resp(&mut self, _: u8) {}
}

fn log(level: LogLevel, message: &[u8]) {
    let message = String::from_utf8_lossy(message);
    match level {
        LogLevel::Debug => tracing::trace!("{message}"),
        LogLevel::Verbose => tracing::debug!("{message}"),
        LogLevel::Notice => tracing::info!("{message}"),
        LogLevel::Warning => tracing::warn!("{message}"),
    }
}
