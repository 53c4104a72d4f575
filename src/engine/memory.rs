//! `maxmemory`: what a command may do when the server holds more memory than it should; and giving back what it does not need.
//!
//! While a limit is set every session is [admitted](super::admit) command by command, where what is allocated is compared with it. What is
//! found there holds for the whole command, be it a script or EXEC. No key is evicted yet, so that beyond the limit commands
//! that may need memory are refused, whatever `maxmemory-policy` says.

use super::error::Error;
use super::session::{Restrictions, Session};
use super::spec::Flags;
use super::state::{Entry, ServerState};
use crate::base::allocated::allocated_bytes;
use crate::keyspace::Keyspace;
use crate::script::store::ScriptFlags;

/// What a client reads whose command may need memory.
const OUT_OF_MEMORY: Error = Error::text("OOM command not allowed when used memory > 'maxmemory'.");

impl ServerState {
    /// Acts on a new `maxmemory`. `current` is the session whose command set it.
    pub fn memory_limit_changed(&mut self, current: &mut Session) {
        self.memory_is_full = false;
        let is_limited = self.config.maxmemory > 0;
        for session in self.sessions.iter_mut().chain(std::iter::once(current)) {
            session.restrictions.set(Restrictions::METERED, is_limited);
        }
    }

    /// Refuses a client's command when memory is full and it may need some.
    pub(super) fn admit_memory(&mut self, session: &Session, entry: &Entry) -> Result<(), Error> {
        // While a script is busy what was found at its begin holds.
        if self.running_script.is_some() {
            return Ok(());
        }
        self.memory_is_full = self.is_over_limit();
        if self.memory_is_full && needs_memory(session, entry) { Err(OUT_OF_MEMORY) } else { Ok(()) }
    }

    /// Whether more is allocated than may be. What scripts have left does not count: buffers and garbage are given back first.
    fn is_over_limit(&mut self) -> bool {
        let is_over = || allocated_bytes() > self.config.maxmemory;
        if !is_over() {
            return false;
        }
        self.scripts.give_back_scratch();
        is_over() && (!self.scripts.collect_litter() || is_over())
    }

    /// Has all memory given back that holds nothing, at the next tick. In a script, or where changes may be taken back, less of it.
    pub fn purge(&mut self, ks: &mut Keyspace) {
        ks.release_free();
        self.scripts.give_back_scratch();
        self.scripts.collect_litter();
        self.freed.want();
    }

    /// Refuses to start a script that declares its flags and not `allow-oom` when memory is full. `queued`: EXEC runs it.
    #[inline]
    pub(super) fn admit_script_memory(&self, flags: ScriptFlags, queued: bool) -> Result<(), Error> {
        if !self.memory_is_full || !flags.declared || flags.allow_oom || flags.no_writes {
            return Ok(());
        }
        if queued {
            return Err(Error::text(
                "OOM allow-oom flag is not set on the script, can not run it when used memory > 'maxmemory'",
            ));
        }
        Err(OUT_OF_MEMORY)
    }

    /// Refuses a script's command when memory is full and it may need some, unless the script has written before: it must
    /// not end half-way.
    #[inline]
    pub(super) fn admit_call_memory(&self, flags: ScriptFlags, entry: &Entry) -> Result<(), Error> {
        let is_denied = self.memory_is_full && !flags.allow_oom && entry.command.flags.has(Flags::DENYOOM);
        if is_denied && !self.running_script.as_ref().is_some_and(|script| script.has_written) {
            return Err(OUT_OF_MEMORY);
        }
        Ok(())
    }
}

/// Whether a command may need memory. To queue one needs some, and EXEC needs what its commands need.
fn needs_memory(session: &Session, entry: &Entry) -> bool {
    match (&session.transaction, entry.full_name.as_str()) {
        (Some(transaction), "exec") => transaction.needs_memory,
        (Some(_), name) => !matches!(name, "discard" | "quit" | "reset"),
        (None, _) => entry.command.flags.has(Flags::DENYOOM),
    }
}
