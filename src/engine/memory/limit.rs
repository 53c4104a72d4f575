//! `maxmemory`: what a command may do when the server holds more memory than it should, and how unneeded memory is
//! given back.
//!
//! While a limit is set, every session is [admitted](crate::engine::run::admit) command by command. Before that the
//! allocated memory is compared with the limit, and keys are [evicted](super::evict). The result holds for the whole
//! command, even a script or EXEC: if memory is full because no key may go, commands that may need memory are refused.

use super::Memory;
use crate::base::os::allocated::allocated_bytes;
use crate::engine::session::{Restrictions, Session};
use crate::engine::state::{Entry, ServerState};
use crate::keyspace::Keyspace;
use crate::keyspace::usage::Usage;
use crate::programs::running::RunningScript;
use crate::script::store::ScriptFlags;
use crate::spec::Flags;
use crate::spec::error::Error;

/// The error for a command that may need memory.
const OUT_OF_MEMORY: Error = Error::text("OOM command not allowed when used memory > 'maxmemory'.");

impl Memory {
    /// Refuses a client's command that may need memory when memory is full.
    pub(in crate::engine) fn admit(
        &mut self,
        script_runs: bool,
        session: &Session,
        entry: &Entry,
    ) -> Result<(), Error> {
        // While a script is busy, the result from its beginning holds.
        if script_runs {
            return Ok(());
        }
        if self.is_full && needs_memory(session, entry) { Err(OUT_OF_MEMORY) } else { Ok(()) }
    }

    /// Refuses, when memory is full, to start a script that declares its flags without `allow-oom`. `queued`: EXEC runs
    /// it.
    #[inline]
    pub(in crate::engine) fn admit_script(&self, flags: ScriptFlags, queued: bool) -> Result<(), Error> {
        if !self.is_full || !flags.declared || flags.allow_oom || flags.no_writes {
            return Ok(());
        }
        if queued {
            return Err(Error::text(
                "OOM allow-oom flag is not set on the script, can not run it when used memory > 'maxmemory'",
            ));
        }
        Err(OUT_OF_MEMORY)
    }

    /// Refuses a script's command that may need memory when memory is full, unless the script has written before: such
    /// a script must not end half-way.
    #[inline]
    pub(in crate::engine) fn admit_call(
        &self,
        running: Option<&RunningScript>,
        flags: ScriptFlags,
        entry: &Entry,
    ) -> Result<(), Error> {
        let is_denied = self.is_full && !flags.allow_oom && entry.command.flags.contains(Flags::DENYOOM);
        if is_denied && !running.is_some_and(|script| script.has_written) {
            return Err(OUT_OF_MEMORY);
        }
        Ok(())
    }
}

impl ServerState {
    /// Applies a new `maxmemory`. `current` is the session whose command set it. Excess memory is evicted in slices.
    pub fn memory_limit_changed(&mut self, ks: &Keyspace, current: &mut Session) {
        self.memory.is_full = false;
        let is_limited = self.config.maxmemory > 0;
        self.memory.eviction_is_behind = is_limited && self.is_over_limit(ks);
        if self.memory.eviction_is_behind {
            tracing::warn!(
                maxmemory = self.config.maxmemory,
                used = allocated_bytes(),
                "maxmemory is less than the memory in use: keys are evicted, or commands refused (maxmemory-policy)"
            );
        }
        for session in self.clients.sessions.iter_mut().chain(std::iter::once(current)) {
            session.restrictions.set(Restrictions::METERED, is_limited);
        }
    }

    /// Whether more memory is allocated than allowed. [Uncounted](Self::not_counted_bytes) bytes are left out, and the
    /// garbage of scripts is freed first if there is much.
    #[inline]
    pub(in crate::engine) fn is_over_limit(&mut self, ks: &Keyspace) -> bool {
        allocated_bytes() > self.config.maxmemory && self.is_over_counted(ks)
    }

    #[cold]
    fn is_over_counted(&mut self, ks: &Keyspace) -> bool {
        let is_over = |server: &ServerState| server.counted_bytes(ks) > server.config.maxmemory;
        is_over(self) && (!self.programs.scripts.collect_litter() || is_over(self))
    }

    /// Whether memory is over the limit where no key may go: the buffers of scripts are freed first, too.
    pub(in crate::engine) fn is_over_limit_for_good(&mut self, ks: &Keyspace) -> bool {
        self.programs.scripts.give_back_scratch();
        self.is_over_limit(ks)
    }

    /// Bytes that are allocated and [count](Self::not_counted_bytes).
    pub(in crate::engine) fn counted_bytes(&self, ks: &Keyspace) -> u64 {
        allocated_bytes().saturating_sub(self.not_counted_bytes(ks))
    }

    /// Allocated bytes that become free by themselves: changes that wait for the journal, and removed values that wait
    /// to be freed. Evicted keys add to both, which must not cause more eviction.
    pub fn not_counted_bytes(&self, ks: &Keyspace) -> u64 {
        self.persistence.buffer_bytes() as u64 + ks.bytes_to_free()
    }

    /// Applies a new `maxmemory-policy` or its parameters.
    pub fn eviction_policy_changed(&mut self, ks: &mut Keyspace) {
        self.readers_changed();
        ks.set_usage(Usage::from(&self.config));
    }

    /// Requests the return of all unused memory, from the next tick on. Inside a script, or while changes may be taken
    /// back, less is returned.
    pub fn purge(&mut self, ks: &mut Keyspace) {
        ks.release_free();
        self.programs.scripts.give_back_scratch();
        self.programs.scripts.collect_litter();
        self.memory.freed.want();
    }
}

/// Whether a command may need memory: EXEC if one of its commands does.
fn needs_memory(session: &Session, entry: &Entry) -> bool {
    let flags = entry.command.flags;
    match &session.transaction {
        Some(transaction) if flags.contains(Flags::RUNS_QUEUE) => transaction.needs_memory,
        _ => flags.contains(Flags::DENYOOM),
    }
}
