//! `maxmemory`: what a command may do when the server holds more memory than it should, and how unneeded memory is
//! given back.
//!
//! While a limit is set, every session is [admitted](crate::engine::run::admit) command by command. Before that the
//! allocated memory is compared with the limit, and keys are [evicted](super::evict). The result holds for the whole
//! command, even a script or EXEC: if memory is full because no key may go, commands that may need memory are refused.

use super::Memory;
use crate::base::os::allocated::allocated_bytes;
use crate::config::Config;
use crate::engine::state::Entry;
use crate::keyspace::Keyspace;
use crate::persist::Persistence;
use crate::programs::Programs;
use crate::programs::running::RunningScript;
use crate::script::store::ScriptFlags;
use crate::session::clients::Clients;
use crate::session::{Restrictions, Session};
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

    /// Applies a new `maxmemory`. Excess memory is evicted in slices.
    pub fn limit_changed(
        &mut self,
        config: &Config,
        programs: &mut Programs,
        persistence: &Persistence,
        ks: &Keyspace,
    ) {
        self.is_full = false;
        self.eviction_is_behind = config.maxmemory > 0 && is_over_limit(config, programs, persistence, ks);
        if self.eviction_is_behind {
            tracing::warn!(
                maxmemory = config.maxmemory,
                used = allocated_bytes(),
                "maxmemory is less than the memory in use: keys are evicted, or commands refused (maxmemory-policy)"
            );
        }
    }

    /// Requests the return of all unused memory, from the next tick on. Inside a script, or while changes may be taken
    /// back, less is returned.
    pub fn purge(&mut self, programs: &mut Programs, ks: &mut Keyspace) {
        ks.release_free();
        programs.scripts.give_back_scratch();
        programs.scripts.collect_litter();
        self.freed.want();
    }
}

impl Clients {
    /// Sets in all sessions whether memory has a limit. `current` is out of the registry.
    pub fn set_metered(&mut self, is_limited: bool, current: &mut Session) {
        for session in self.sessions.iter_mut().chain(std::iter::once(current)) {
            session.restrict(Restrictions::METERED, is_limited);
        }
    }
}

/// Whether more memory is allocated than allowed. [Uncounted](not_counted_bytes) bytes are left out, and the garbage of
/// scripts is freed first if there is much.
#[inline]
pub(super) fn is_over_limit(
    config: &Config,
    programs: &mut Programs,
    persistence: &Persistence,
    ks: &Keyspace,
) -> bool {
    allocated_bytes() > config.maxmemory && is_over_counted(config, programs, persistence, ks)
}

#[cold]
fn is_over_counted(config: &Config, programs: &mut Programs, persistence: &Persistence, ks: &Keyspace) -> bool {
    let is_over = || counted_bytes(persistence, ks) > config.maxmemory;
    is_over() && (!programs.scripts.collect_litter() || is_over())
}

/// Bytes that are allocated and [count](not_counted_bytes).
pub(super) fn counted_bytes(persistence: &Persistence, ks: &Keyspace) -> u64 {
    allocated_bytes().saturating_sub(not_counted_bytes(persistence, ks))
}

/// Allocated bytes that become free by themselves: changes that wait for the journal, and removed values that wait to
/// be freed. Evicted keys add to both, which must not cause more eviction.
pub(crate) fn not_counted_bytes(persistence: &Persistence, ks: &Keyspace) -> u64 {
    persistence.buffer_bytes() as u64 + ks.bytes_to_free()
}

/// Whether a command may need memory: EXEC if one of its commands does.
fn needs_memory(session: &Session, entry: &Entry) -> bool {
    let flags = entry.command.flags;
    match &session.transaction {
        Some(transaction) if flags.contains(Flags::RUNS_QUEUE) => transaction.needs_memory,
        _ => flags.contains(Flags::DENYOOM),
    }
}
