//! Scripts in the engine: the cache, the Lua state, and what a running script may ask of the server.
//!
//! A script is one unit: every command that it calls runs through [`call`] inside the unit of the call that started it,
//! and the observers see the effects when all is done. While Lua runs no borrow of the keyspace is held: each
//! `redis.call` borrows anew, through the context of the command that started the script.

use super::busy::RunningScript;
use super::ctx::{Ctx, Origin};
use super::dispatch::call;
use super::error::Error;
use super::spec::{Done, Flags};
use crate::base::version::REDIS_VERSION;
use crate::resp::reply::Reply;
use crate::resp::request::Argv;
use crate::script::bundled::BUNDLED;
use crate::script::store::{self, Script, Store};
use crate::script::{Host, LogLevel, ScriptError, ServerVersion, Sha1Hex, Verdict, Vm};

const NO_SCRIPT: Error = Error::text("NOSCRIPT No matching script. Please use EVAL.");

/// All scripts, and the state that runs them.
pub struct Scripts {
    store: Store,
    /// Out while a script runs.
    vm: Option<Box<Vm>>,
}

impl Scripts {
    /// The bundled scripts, compiled.
    pub fn new(seed: u64) -> Result<Scripts, Error> {
        let vm = Vm::new(ServerVersion { text: REDIS_VERSION, number: version_number() }, seed as u32);
        let mut scripts = Scripts { store: Store::new(seed), vm: Some(Box::new(vm.map_err(script_error)?)) };
        for script in BUNDLED {
            scripts.add(script.body.as_bytes(), store::Origin::Bundled)?;
        }
        Ok(scripts)
    }

    /// Compiles and keeps a script. Answers its name.
    pub fn add(&mut self, body: &[u8], origin: store::Origin) -> Result<Sha1Hex, Error> {
        let sha = store::sha1_hex(body);
        let script = Script::parse(body, origin).map_err(|error| Error::owned(error.to_string()))?;
        let vm = self.vm.as_mut().ok_or(NESTED)?;
        vm.compile(&sha, script.code()).map_err(script_error)?;
        if let Some(evicted) = self.store.insert(sha, script) {
            vm.forget(&evicted);
        }
        Ok(sha)
    }

    /// Whether a script of this name is there.
    pub fn has(&self, sha: &[u8]) -> bool {
        store::parse_sha1(sha).is_some_and(|sha| self.store.find(&sha).is_some())
    }

    /// Drops all scripts but the bundled ones.
    pub fn flush(&mut self) {
        self.store.flush();
        if let Some(vm) = &mut self.vm {
            let store = &self.store;
            vm.retain(|sha| store.find(sha).is_some());
        }
    }

    /// How many scripts there are.
    pub fn len(&self) -> usize {
        self.store.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.store.is_empty()
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

const NESTED: Error = Error::text("ERR a script can't run another one");

fn script_error(error: ScriptError) -> Error {
    Error::owned(error.to_string())
}

/// The version as one number: 0x00MMmmpp.
fn version_number() -> u32 {
    REDIS_VERSION.split('.').fold(0, |number, part| number << 8 | part.parse::<u32>().unwrap_or(0))
}

/// Runs the script called `sha` with its keys and arguments and writes its reply. `read_only`: it must not write.
pub fn run(ctx: &mut Ctx<'_>, sha: &Sha1Hex, keys: Argv<'_>, args: Argv<'_>, read_only: bool) -> Done {
    let flags = ctx.server.scripts.store.use_script(sha).ok_or(NO_SCRIPT)?.flags;
    if read_only && flags.declared && !flags.no_writes {
        return Err(Error::text("ERR Can not execute a script with write flag using *_ro command."));
    }
    let mut vm = ctx.server.scripts.vm.take().ok_or(NESTED)?;
    let started = ctx.server.stats.clock.raw();
    ctx.server.running_script = Some(RunningScript::new(*sha, ctx.session.key, started));
    let db = ctx.session.db;
    let mut reply = std::mem::replace(ctx.reply, Reply::new(ctx.reply.form()));
    let mut host = ScriptHost { ctx: &mut *ctx, read_only: read_only || flags.no_writes };
    let found = vm.run(sha, keys, args, &mut host, &mut reply);
    *ctx.reply = reply;
    // SELECT inside a script is the script's own.
    ctx.session.db = db;
    ctx.server.running_script = None;
    ctx.server.scripts.vm = Some(vm);
    if found { Ok(()) } else { Err(NO_SCRIPT) }
}

/// The engine, as a running script sees it.
struct ScriptHost<'h, 'c> {
    ctx: &'h mut Ctx<'c>,
    read_only: bool,
}

impl ScriptHost<'_, '_> {
    /// What the one gate of clients is for them: admits a command that a script calls.
    #[inline]
    fn admit(&self, argv: Argv<'_>) -> Result<&'static super::table::Entry, Error> {
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
        Ok(entry)
    }
}

impl Host for ScriptHost<'_, '_> {
    fn call(&mut self, argv: Argv<'_>, reply: &mut Reply) {
        let entry = match self.admit(argv) {
            Ok(entry) => entry,
            Err(error) => {
                let text = error.to_string();
                self.ctx.server.stats.count_error(text.as_bytes());
                return reply.error(text.as_bytes());
            }
        };
        if entry.command.flags.has(Flags::WRITE)
            && let Some(script) = &mut self.ctx.server.running_script
        {
            script.has_written = true;
        }
        let Ctx { ks, server, session, .. } = &mut *self.ctx;
        // Nothing waits in a script: the call times out at once.
        let _ = call(ks, server, session, entry, argv, reply, Origin::Script);
    }

    fn interrupted(&mut self) -> Verdict {
        if self.ctx.server.script_interrupted(self.ctx.ks) { Verdict::Continue } else { Verdict::Kill }
    }

    fn log(&mut self, level: LogLevel, message: &[u8]) {
        let message = String::from_utf8_lossy(message);
        match level {
            LogLevel::Debug => tracing::trace!("{message}"),
            LogLevel::Verbose => tracing::debug!("{message}"),
            LogLevel::Notice => tracing::info!("{message}"),
            LogLevel::Warning => tracing::warn!("{message}"),
        }
    }

    fn set_resp(&mut self, _: u8) {
        // The tape that the state hands to `call` has the right form already.
    }
}
