//! The loaded scripts and functions: the cache, the libraries, and the Lua state that holds their compiled code.
//! [`crate::engine::run::scripting`] runs them.
//!
//! Scripts and libraries are as durable as data: each addition and removal is recorded in the stream of effects, and
//! [`Scripts::apply`] replays it.
//! - A script enters the stream when it enters the cache, that is, once it compiles, whatever its first run returns. A
//!   script whose run fails stays cached, as in Redis; its text alone changes no data.
//! - Adding a cached script again records nothing, unless SCRIPT LOAD makes it stay longer.
//! - An eviction is recorded. The least recently used script depends on calls, and the room on this server's
//!   configuration, and the stream contains neither. Replay therefore never evicts on its own.
//! - A library is loaded again from its text by the same steps, but without the time limit on loading.
//!
//! The bundled scripts are in no stream, because every server ships its own.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use quanta::Clock;
use tracing::Level;
use tracing::level_filters::LevelFilter;

use crate::base::os::logging::BY_SCRIPTS;
use crate::base::version::REDIS_VERSION;
use crate::keyspace::effect::Effect;
use crate::keyspace::{Keyspace, Misfit};
use crate::lint::{Warning, lint};
use crate::programs::limits::{LIBRARY_LOAD_MAX, LOG_SCRIPT_MESSAGE_MAX_BYTES, SCRIPT_LINT_MAX_BYTES};
use crate::resp::reply::Reply;
use crate::resp::request::{Argv, abridge};
use crate::script::bundled::{self, BUNDLED};
use crate::script::library::{self, Function, Libraries, Library, LibraryError};
use crate::script::store::{self, Script, ScriptFlags, Store};
use crate::script::{Handle, Host, LogLevel, Passing, ScriptError, ServerVersion, Sha1Hex, Verdict, Vm};
use crate::spec::error::Error;
use crate::spec::table::CommandTable;

/// All scripts and the Lua state that runs them. See the module's header.
pub struct Scripts {
    pub(crate) store: Store,
    /// Limit on the texts cached by EVAL, in bytes.
    cache_max_bytes: usize,
    libraries: Libraries,
    /// The bundled scripts as functions; clients' functions take precedence.
    bundled: Libraries,
    /// Scripts evicted from the cache.
    evicted: u64,
    /// The last script or function returned an error of its own, instead of being ended by one. The caller resets this
    /// to false before the call.
    pub has_answered_error: bool,
    /// The Lua state; taken out while a script runs.
    pub(crate) vm: Option<Box<Vm>>,
}

impl Scripts {
    /// Compiles the bundled scripts. Texts from EVAL are cached up to `cache_max_bytes`.
    pub fn new(seed: u64, cache_max_bytes: usize) -> Result<Scripts, Error> {
        let vm = Vm::new(ServerVersion { text: REDIS_VERSION, number: version_number() }, seed as u32);
        let mut scripts = Scripts {
            store: Store::new(seed),
            cache_max_bytes,
            libraries: Libraries::new(seed),
            bundled: Libraries::new(seed),
            evicted: 0,
            has_answered_error: false,
            vm: Some(Box::new(vm.map_err(script_error)?)),
        };
        let functions = BUNDLED.iter().map(|script| {
            let body = script.body.as_bytes();
            let (flags, handle) = scripts.compile(body)?;
            scripts.store.insert(script.sha1(), body, flags, handle, store::ScriptOrigin::Bundled);
            let (name, description) = (script.name.into(), Some(script.summary().as_bytes().into()));
            Ok(Arc::new(Function { name, description, flags, handle, passing: Passing::Globals }))
        });
        let functions = functions.collect::<Result<Vec<_>, Error>>()?;
        let code = bundled::library_code().into_bytes().into();
        let library = Library { name: bundled::LIBRARY.into(), code, functions };
        scripts.bundled.insert(library).map_err(|(error, _)| library_error(error))?;
        Ok(scripts)
    }

    /// Replays a change to scripts or libraries; returns `None` for any other effect.
    pub fn apply(&mut self, ks: &mut Keyspace, effect: &Effect<'_>) -> Option<Result<(), Misfit>> {
        Some(match *effect {
            Effect::ScriptPut { body, loaded } => {
                let origin = if loaded { store::ScriptOrigin::Loaded } else { store::ScriptOrigin::Eval };
                self.keep(ks, body, origin).map(drop).map_err(|_| Misfit::Refused)
            }
            Effect::ScriptDrop { sha1 } => match store::parse_sha1(sha1) {
                Some(sha) => {
                    let dropped = self.store.remove(&sha).map(|script| self.drop_script(ks, &sha, &script));
                    dropped.map(drop).ok_or(Misfit::Absent)
                }
                None => Err(Misfit::BadBytes),
            },
            Effect::ScriptFlush {} => {
                self.flush(ks);
                Ok(())
            }
            Effect::LibraryPut { code } => {
                self.put_library(ks, code, true, None).map(drop).map_err(|_| Misfit::Refused)
            }
            Effect::LibraryDelete { name } => self.delete_library(ks, name).then_some(()).ok_or(Misfit::Absent),
            Effect::LibraryFlush {} => {
                self.flush_libraries(ks);
                Ok(())
            }
            _ => return None,
        })
    }

    /// Compiles and caches a script, evicting others if necessary. Returns its name.
    pub fn add(&mut self, ks: &mut Keyspace, body: &[u8], origin: store::ScriptOrigin) -> Result<Sha1Hex, Error> {
        let (sha, is_news) = self.keep(ks, body, origin)?;
        if is_news {
            self.make_room(ks);
        }
        Ok(sha)
    }

    /// Compiles and caches a script without evicting others. Returns its name and whether anything changed.
    fn keep(&mut self, ks: &mut Keyspace, body: &[u8], origin: store::ScriptOrigin) -> Result<(Sha1Hex, bool), Error> {
        let sha = store::sha1_hex(body);
        let is_news = match self.store.renew(&sha, origin) {
            Some(lives_longer) => lives_longer,
            None => {
                let (flags, program) = self.compile(body)?;
                self.store.insert(sha, body, flags, program, origin);
                true
            }
        };
        if is_news {
            ks.record_beside(Effect::ScriptPut { body, loaded: origin == store::ScriptOrigin::Loaded });
        }
        Ok((sha, is_news))
    }

    /// Applies a new `script-cache-max-bytes`.
    pub fn limit_cache(&mut self, ks: &mut Keyspace, max_bytes: usize) {
        self.set_cache_max_bytes(max_bytes);
        self.make_room(ks);
    }

    /// Sets `script-cache-max-bytes` before any client has loaded a script.
    pub(crate) fn set_cache_max_bytes(&mut self, max_bytes: usize) {
        self.cache_max_bytes = max_bytes;
    }

    fn make_room(&mut self, ks: &mut Keyspace) {
        while let Some((sha, script)) = self.store.evict(self.cache_max_bytes) {
            self.drop_script(ks, &sha, &script);
            self.evicted += 1;
        }
    }

    /// Records that a script is gone and releases its compiled code.
    fn drop_script(&mut self, ks: &mut Keyspace, sha: &Sha1Hex, gone: &Script) {
        ks.record_beside(Effect::ScriptDrop { sha1: sha });
        self.forget(gone.program);
    }

    /// Returns whether a script of this name is cached.
    pub fn has(&self, sha: &[u8]) -> bool {
        store::parse_sha1(sha).is_some_and(|sha| self.store.find(&sha).is_some())
    }

    /// SCRIPT FLUSH: drops all scripts except the bundled ones.
    pub fn flush(&mut self, ks: &mut Keyspace) {
        let gone = self.store.flush();
        if gone.is_empty() {
            return;
        }
        ks.record_beside(Effect::ScriptFlush {});
        if let Some(vm) = &mut self.vm {
            gone.iter().for_each(|script| vm.release(script.program));
            vm.collect();
        }
    }

    /// Drops all scripts and libraries of clients and everything they left behind. The state is then as new, except for
    /// the numbers that `math.random` has already given.
    pub(crate) fn forget_clients(&mut self, ks: &mut Keyspace) {
        self.flush(ks);
        self.flush_libraries(ks);
        (self.evicted, self.has_answered_error) = (0, false);
    }

    /// Applies a new `script-memory-limit`, in bytes; 0 means no limit.
    pub fn set_memory_limit(&mut self, bytes: usize) {
        // The limit can't change while a script runs.
        if let Some(vm) = &mut self.vm {
            vm.set_memory_limit(bytes);
        }
    }

    /// Returns the libraries loaded by clients.
    pub fn libraries(&self) -> &Libraries {
        &self.libraries
    }

    /// Returns the bundled scripts as a library, unless a client has loaded a library of that name.
    pub fn bundled_library(&self) -> Option<&Library> {
        self.bundled.iter().find(|library| !self.libraries.has(&library.name))
    }

    /// Returns the function to call: a client's function, or else a bundled script's.
    #[inline]
    pub fn function(&self, name: &[u8]) -> Option<&Arc<Function>> {
        self.libraries.function(name).or_else(|| self.bundled.function(name))
    }

    /// FUNCTION LOAD: compiles and runs a library and keeps the functions it registers. Returns its name. A failure
    /// changes nothing.
    pub fn load_library(
        &mut self,
        ks: &mut Keyspace,
        code: &[u8],
        replace: bool,
        clock: &Clock,
    ) -> Result<Box<str>, Error> {
        self.put_library(ks, code, replace, Some(clock))
    }

    fn put_library(
        &mut self,
        ks: &mut Keyspace,
        code: &[u8],
        replace: bool,
        clock: Option<&Clock>,
    ) -> Result<Box<str>, Error> {
        let is_free = |name: &str, scripts: &Scripts| replace || !scripts.libraries.has(name);
        let library = self.compile_library(code, clock, is_free)?;
        let name = library.name.clone();
        let replaced = self.libraries.insert(library).map_err(|(error, refused)| self.refuse(error, &[refused]))?;
        ks.record_beside(Effect::LibraryPut { code });
        self.release(replaced.as_slice());
        Ok(name)
    }

    /// FUNCTION RESTORE: loads all these libraries. If one fails, nothing changes.
    pub fn restore_libraries<C: AsRef<[u8]>>(
        &mut self,
        ks: &mut Keyspace,
        codes: &[C],
        policy: RestorePolicy,
        clock: &Clock,
    ) -> Result<(), Error> {
        let mut fresh = self.libraries.like();
        let compiled = codes.iter().try_for_each(|code| {
            let library = self.compile_library(code.as_ref(), Some(clock), |name, _| !fresh.has(name))?;
            fresh.insert(library).map(drop).map_err(|(error, refused)| self.refuse(error, &[refused]))
        });
        let taken = fresh.iter().find(|library| policy == RestorePolicy::Append && self.libraries.has(&library.name));
        let refused = match (compiled, taken) {
            (Err(error), _) => Some(error),
            (Ok(()), Some(taken)) => Some(Error::owned(format!("ERR Library {} already exists", taken.name))),
            (Ok(()), None) => None,
        };
        let fresh = fresh.take_all();
        if let Some(error) = refused {
            self.release(&fresh);
            return Err(error);
        }
        let replaced = match policy {
            RestorePolicy::Flush => self.libraries.take_all(),
            _ => fresh.iter().filter_map(|library| self.libraries.remove(&library.name)).collect(),
        };
        if let Err((error, gone)) = self.libraries.insert_all(fresh) {
            // This can't fail: these libraries coexisted before.
            let _ = self.libraries.insert_all(replaced);
            return Err(self.refuse(error, &gone));
        }
        // Old libraries are removed before new ones are added, because a function may have moved between libraries.
        match policy {
            RestorePolicy::Flush if replaced.is_empty() => {}
            RestorePolicy::Flush => ks.record_beside(Effect::LibraryFlush {}),
            _ => replaced.iter().for_each(|old| ks.record_beside(Effect::LibraryDelete { name: old.name.as_bytes() })),
        }
        codes.iter().for_each(|code| ks.record_beside(Effect::LibraryPut { code: code.as_ref() }));
        self.release(&replaced);
        Ok(())
    }

    /// Compiles and runs a library if `is_free` accepts its name; without a clock there is no time limit.
    fn compile_library(
        &mut self,
        code: &[u8],
        clock: Option<&Clock>,
        is_free: impl Fn(&str, &Scripts) -> bool,
    ) -> Result<Library, Error> {
        let (name, start) = library::parse_header(code).map_err(library_error)?;
        if !is_free(&name, self) {
            return Err(library_error(LibraryError::Exists(name.into())));
        }
        let vm = self.vm.as_mut().ok_or(NESTED)?;
        let mut host = LoadHost { started: clock.map(|clock| (clock, clock.raw())) };
        let program = code.get(start..).unwrap_or_default();
        let functions = vm.load_library(program, &mut host).map_err(|error| Error::owned(error.to_string()))?;
        Ok(Library { name, code: code.into(), functions })
    }

    /// FUNCTION DELETE: drops a library; returns false if there is none of this name.
    pub fn delete_library(&mut self, ks: &mut Keyspace, name: &[u8]) -> bool {
        let gone = std::str::from_utf8(name).ok().and_then(|name| self.libraries.remove(name));
        if gone.is_some() {
            ks.record_beside(Effect::LibraryDelete { name });
        }
        self.release(gone.as_slice());
        gone.is_some()
    }

    /// FUNCTION FLUSH: drops all libraries except that of the bundled scripts.
    pub fn flush_libraries(&mut self, ks: &mut Keyspace) {
        let gone = self.libraries.take_all();
        if gone.is_empty() {
            return;
        }
        ks.record_beside(Effect::LibraryFlush {});
        self.release(&gone);
        if let Some(vm) = &mut self.vm {
            vm.collect();
        }
    }

    /// Drops libraries that can't be kept, and returns the reason as an error.
    fn refuse(&mut self, why: LibraryError, refused: &[Library]) -> Error {
        self.release(refused);
        library_error(why)
    }

    /// Releases the compiled code of removed libraries.
    fn release(&mut self, gone: &[Library]) {
        if let Some(vm) = &mut self.vm {
            gone.iter().flat_map(|library| &library.functions).for_each(|function| vm.release(function.handle));
        }
    }

    /// Replaces these scripts and libraries with another server's without recording a change; both sets must be equal.
    pub fn take_over(&mut self, other: Scripts) {
        self.store = other.store;
        self.libraries = other.libraries;
        self.bundled = other.bundled;
        self.vm = other.vm;
    }

    /// Returns the script cache.
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// Counts the programs: scripts, and functions of libraries.
    pub(crate) fn programs_len(&self) -> usize {
        self.store.len() + self.libraries.functions_len() + self.bundled.functions_len()
    }

    /// Iterates over all programs. A bundled script occurs twice, because it is also a function.
    pub(crate) fn programs(&self) -> impl Iterator<Item = Handle> {
        let libraries = self.libraries.iter().chain(self.bundled.iter());
        let functions = libraries.flat_map(|library| &library.functions).map(|function| function.handle);
        self.store.iter().map(|(_, script)| script.program).chain(functions)
    }

    /// Counts the scripts loaded by clients.
    pub fn cached_len(&self) -> usize {
        self.store.cached_len()
    }

    /// Compiles a script without caching it; release it with [`forget`](Self::forget).
    pub fn compile(&mut self, body: &[u8]) -> Result<(ScriptFlags, Handle), Error> {
        let (flags, start) = store::parse_shebang(body).map_err(|error| Error::owned(error.to_string()))?;
        let vm = self.vm.as_mut().ok_or(NESTED)?;
        let program = vm.compile(body.get(start..).unwrap_or_default()).map_err(script_error)?;
        Ok((flags, program))
    }

    /// Releases a program made by [`compile`](Self::compile).
    pub fn forget(&mut self, program: Handle) {
        if let Some(vm) = &mut self.vm {
            vm.release(program);
        }
    }

    /// SCRIPT LINT: returns the findings for the text of a script or a library.
    pub fn lint<R>(&mut self, text: &[u8], table: &CommandTable<R>) -> Result<BTreeSet<Warning>, Error> {
        if text.len() > SCRIPT_LINT_MAX_BYTES {
            return Err(Error::owned(format!("ERR LINT examines scripts of at most {SCRIPT_LINT_MAX_BYTES} bytes")));
        }
        let vm = self.vm.as_mut().ok_or(NESTED)?;
        // Compile errors are reported in the compiler's own words, which script authors know.
        let start = if text.starts_with(b"#!") { memchr::memchr(b'\n', text).unwrap_or(text.len()) } else { 0 };
        let program = vm.compile(&text[start..]).map_err(script_error)?;
        vm.release(program);
        let found = lint(text, table, &|name| vm.has_global(name));
        found.map_err(|error| Error::owned(format!("ERR LINT can't read the script: {error}")))
    }

    /// Counts the scripts evicted from the cache.
    pub fn evicted(&self) -> u64 {
        self.evicted
    }

    /// Resets the eviction counter.
    pub fn reset_stats(&mut self) {
        self.evicted = 0;
    }

    /// Collects garbage left by scripts, for half a millisecond. Returns whether more may remain.
    pub fn tidy(&mut self) -> bool {
        self.vm.as_mut().is_some_and(|vm| vm.tidy())
    }

    /// Collects all garbage at once if there is much. Returns whether there was.
    pub fn collect_litter(&mut self) -> bool {
        let littered = self.vm.as_mut().filter(|vm| vm.is_littered());
        littered.map(|vm| vm.collect()).is_some()
    }

    /// Frees the buffers that carry arguments and replies.
    pub fn give_back_scratch(&mut self) {
        self.vm.iter_mut().for_each(|vm| vm.give_back_scratch());
    }

    /// Returns the bytes that Lua holds; 0 while a script runs.
    pub fn memory_bytes(&self) -> usize {
        self.vm.as_ref().map_or(0, |vm| vm.memory_bytes())
    }

    /// Returns the bytes of the scripts' texts.
    pub fn text_bytes(&self) -> usize {
        self.store.bytes()
    }
}

/// How FUNCTION RESTORE treats existing libraries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RestorePolicy {
    /// Existing libraries stay; a name collision is an error.
    Append,
    /// Existing libraries of the same name are replaced; others stay.
    Replace,
    /// Existing libraries are removed.
    Flush,
}

pub(crate) const NESTED: Error = Error::text("ERR a script can't run another one");

fn script_error(error: ScriptError) -> Error {
    Error::owned(error.to_string())
}

/// Returns the version as one number: 0x00MMmmpp.
fn version_number() -> u32 {
    REDIS_VERSION.split('.').fold(0, |number, part| number << 8 | part.parse::<u32>().unwrap_or(0))
}

fn library_error(error: LibraryError) -> Error {
    Error::owned(error.to_string())
}

/// The host of a library while it loads: it offers only a clock, and that only if loading time is limited.
struct LoadHost<'a> {
    /// The clock, and its reading when loading began.
    started: Option<(&'a Clock, u64)>,
}

impl Host for LoadHost<'_> {
    fn call(&mut self, _: Argv<'_>, reply: &mut Reply) {
        reply.error(b"ERR redis.call/pcall can only be called inside a script invocation");
    }

    fn interrupted(&mut self) -> Verdict {
        let ran_ns = self.started.map_or(0, |(clock, started)| clock.delta_as_nanos(started, clock.raw()));
        if Duration::from_nanos(ran_ns) < LIBRARY_LOAD_MAX { Verdict::Continue } else { Verdict::Kill }
    }

    fn log(&mut self, level: LogLevel, message: &[u8]) {
        log(level, message);
    }

    fn set_resp(&mut self, _: u8) {}
}

/// Implements `redis.log`.
pub(crate) fn log(level: LogLevel, message: &[u8]) {
    let severity = match level {
        LogLevel::Debug => Level::TRACE,
        LogLevel::Verbose => Level::DEBUG,
        LogLevel::Notice => Level::INFO,
        LogLevel::Warning => Level::WARN,
    };
    if severity > LevelFilter::current() {
        return;
    }
    // Each call writes one line, so that a script can't forge another log line.
    let message = abridge(message, LOG_SCRIPT_MESSAGE_MAX_BYTES);
    let message = String::from_utf8_lossy(&message).replace(char::is_control, " ");
    match level {
        LogLevel::Debug => tracing::trace!(target: BY_SCRIPTS, "{message}"),
        LogLevel::Verbose => tracing::debug!(target: BY_SCRIPTS, "{message}"),
        LogLevel::Notice => tracing::info!(target: BY_SCRIPTS, "{message}"),
        LogLevel::Warning => tracing::warn!(target: BY_SCRIPTS, "{message}"),
    }
}
