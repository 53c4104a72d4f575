//! The scripts and functions that are there: the cache, the libraries, and the Lua state that holds what they compile to.
//!
//! Running them is [`super::scripting`]'s.

use std::collections::BTreeSet;
use std::time::Duration;

use quanta::Clock;

use super::error::Error;
use super::lint::{Warning, lint};
use super::table::CommandTable;
use crate::base::limits::{LIBRARY_LOAD_MAX, SCRIPT_LINT_MAX_BYTES};
use crate::base::version::REDIS_VERSION;
use crate::resp::reply::Reply;
use crate::resp::request::Argv;
use crate::script::bundled::BUNDLED;
use crate::script::library::{self, Libraries, Library, LibraryError};
use crate::script::store::{self, ScriptFlags, Store};
use crate::script::{Handle, Host, LogLevel, ScriptError, ServerVersion, Sha1Hex, Verdict, Vm};

/// All scripts, and the state that runs them.
pub struct Scripts {
    pub(super) store: Store,
    libraries: Libraries,
    /// Scripts that made room for others.
    evicted: u64,
    /// Out while a script runs.
    pub(super) vm: Option<Box<Vm>>,
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
        let (flags, program) = self.compile(body)?;
        if let Some(evicted) = self.store.insert(sha, body, flags, program, origin) {
            self.forget(evicted.program);
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

    /// Acts on a new `script-memory-limit`; 0 for no limit.
    pub fn set_memory_limit(&mut self, bytes: usize) {
        // While a script runs, nobody can change it.
        if let Some(vm) = &mut self.vm {
            vm.set_memory_limit(bytes);
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

    /// Compiles a script that is not kept: give it back by [`forget`](Self::forget).
    pub fn compile(&mut self, body: &[u8]) -> Result<(ScriptFlags, Handle), Error> {
        let (flags, start) = store::parse_shebang(body).map_err(|error| Error::owned(error.to_string()))?;
        let vm = self.vm.as_mut().ok_or(NESTED)?;
        let program = vm.compile(body.get(start..).unwrap_or_default()).map_err(script_error)?;
        Ok((flags, program))
    }

    /// Gives the state back what [`compile`](Self::compile) made.
    pub fn forget(&mut self, program: Handle) {
        if let Some(vm) = &mut self.vm {
            vm.release(program);
        }
    }

    /// What SCRIPT LINT finds in the text of a script or a library.
    pub fn lint(&mut self, text: &[u8], table: &CommandTable) -> Result<BTreeSet<Warning>, Error> {
        if text.len() > SCRIPT_LINT_MAX_BYTES {
            return Err(Error::owned(format!("ERR LINT looks at scripts of at most {SCRIPT_LINT_MAX_BYTES} bytes")));
        }
        let vm = self.vm.as_mut().ok_or(NESTED)?;
        // Whoever wrote it knows the compiler's own words.
        let start = if text.starts_with(b"#") { memchr::memchr(b'\n', text).unwrap_or(text.len()) } else { 0 };
        let program = vm.compile(&text[start..]).map_err(script_error)?;
        vm.release(program);
        let found = lint(text, table, &|name| vm.has_global(name));
        found.map_err(|error| Error::owned(format!("ERR LINT can't read the script: {error}")))
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

pub(super) const NESTED: Error = Error::text("ERR a script can't run another one");

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

/// `redis.log`.
pub(super) fn log(level: LogLevel, message: &[u8]) {
    let message = String::from_utf8_lossy(message);
    match level {
        LogLevel::Debug => tracing::trace!("{message}"),
        LogLevel::Verbose => tracing::debug!("{message}"),
        LogLevel::Notice => tracing::info!("{message}"),
        LogLevel::Warning => tracing::warn!("{message}"),
    }
}
