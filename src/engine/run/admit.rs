//! Admission: the checks before a command runs. Each check is a function of its subject (users, journal, memory,
//! pause); this file lists which checks apply to which caller:
//!
//! - a client whose session has restrictions: not authenticated, limited rights, inside MULTI, subscribed to channels,
//!   under a memory limit, with a journal that takes nothing, on a follower of a group or on a leader with too few of
//!   them, or while the data is loaded ([`ServerState::admit`]).
//!   Commands that EXEC runs were checked when they were queued; only the user's rights are checked again, since they
//!   may have changed ([`Access::admit_queued`](crate::engine::client::access));
//! - a call that waited and is dispatched again ([`ServerState::admit_retry`]);
//! - a script or function ([`ServerState::admit_in_script`]); the checks of the session were made for its own call.

use crate::acl::log::Context;
use crate::config::Config;
use crate::engine::state::{Entry, ServerState};
use crate::keyspace::Keyspace;
use crate::resp::request::Argv;
use crate::script::UNDO_IS_FULL;
use crate::script::store::ScriptFlags;
use crate::session::{Restrictions, Session};
use crate::spec::error::Error;
use crate::spec::{Flags, Group};

/// How an admitted command proceeds.
pub(in crate::engine) enum Admission {
    /// The command runs now.
    Run,
    /// The command is queued for EXEC.
    Queue,
}

/// A script or function that calls commands.
#[derive(Clone, Copy)]
pub(in crate::engine) struct Caller {
    pub(in crate::engine) flags: ScriptFlags,
    /// Whether it must not change anything.
    pub(in crate::engine) read_only: bool,
}

impl ServerState {
    /// Checks a command whose name and arity are right.
    pub(in crate::engine) fn admit(
        &mut self,
        session: &Session,
        entry: &Entry,
        argv: Argv<'_>,
    ) -> Result<Admission, Error> {
        let flags = entry.command.flags;
        if session.restrictions.contains(Restrictions::UNAUTHENTICATED) && !flags.contains(Flags::NO_AUTH) {
            return Err(Error::text("NOAUTH Authentication required."));
        }
        if session.restrictions.contains(Restrictions::LIMITED) {
            let is_queued = session.restrictions.contains(Restrictions::QUEUEING);
            let context = if is_queued { Context::Multi } else { Context::Toplevel };
            self.access().admit_user(session, entry, argv, context)?;
        }
        if session.restrictions.contains(Restrictions::FOLLOWING) {
            self.admit_on_follower(session, entry, argv)?;
        }
        // A node that follows its group is UNLOGGED, too: FOLLOWING says how its keys are read.
        if session.restrictions.contains(Restrictions::UNLOGGED) {
            self.persistence.admit_logged(&self.config, session.flags_to_run(entry.command.flags))?;
        }
        if session.restrictions.contains(Restrictions::FOLLOWING) {
            let may_be_old = session.may_find_old_data(flags);
            self.persistence.admit_following(&self.config, may_be_old, entry.command.group)?;
        }
        if session.restrictions.contains(Restrictions::FEW_FOLLOWERS) {
            session.admit_short_of_followers(session.flags_to_run(flags))?;
        }
        if session.restrictions.contains(Restrictions::METERED) {
            self.memory.admit(self.programs.running.is_some(), session, entry)?;
        }
        if session.restrictions.contains(Restrictions::SUBSCRIBER) && !flags.contains(Flags::WHILE_SUBSCRIBED) {
            return Err(Error::owned(format!(
                "ERR Can't execute '{}': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are allowed in \
                 this context",
                entry.full_name
            )));
        }
        if session.restrictions.contains(Restrictions::LOADING) {
            self.admit_while_filled(entry)?;
        }
        if session.is_monitor && flags.intersects(Flags::READONLY | Flags::WRITE | Flags::MAY_REPLICATE) {
            // In Redis such a session counts as a replica and may not do this.
            return Err(Error::text("ERR Replica can't interact with the keyspace"));
        }
        if session.restrictions.contains(Restrictions::QUEUEING) && !flags.contains(Flags::WHILE_QUEUEING) {
            if flags.contains(Flags::PROTECTED) {
                session.debug_allowed(&self.config)?;
            }
            if flags.contains(Flags::NO_MULTI) {
                return Err(Error::text("ERR Command not allowed inside a transaction"));
            }
            return Ok(Admission::Queue);
        }
        Ok(Admission::Run)
    }

    /// Refuses what needs the data while that is loaded, or received from another server. In the second case messages
    /// would also reach only those who are here.
    #[cold]
    fn admit_while_filled(&self, entry: &Entry) -> Result<(), Error> {
        let needs_data = !entry.command.flags.contains(Flags::LOADING);
        match self.persistence.whose().received() {
            Some(received) if needs_data || entry.command.group == Group::Pubsub => Err(received.refusal()),
            None if needs_data => Err(Error::text("LOADING Redis is loading the dataset in memory")),
            _ => Ok(()),
        }
    }

    /// Checks a call that waited and is dispatched again: the journal may have failed in between, or the user's rights
    /// may have changed.
    pub(in crate::engine) fn admit_retry(
        &mut self,
        session: &Session,
        entry: &Entry,
        argv: Argv<'_>,
    ) -> Result<(), Error> {
        if session.restrictions.contains(Restrictions::LIMITED) {
            self.access().admit_user(session, entry, argv, Context::Toplevel)?;
        }
        self.persistence.admit_logged(&self.config, entry.command.flags)?;
        session.admit_short_of_followers(entry.command.flags)
    }

    /// Checks a command that a script or function calls.
    #[inline]
    pub(in crate::engine) fn admit_in_script(
        &mut self,
        ks: &Keyspace,
        session: &Session,
        caller: Caller,
        entry: &Entry,
        argv: Argv<'_>,
    ) -> Result<(), Error> {
        let flags = entry.command.flags;
        // Most commands of most scripts only read.
        if flags.intersects(Flags::NOSCRIPT | Flags::WRITE | Flags::MAY_REPLICATE | Flags::DENYOOM) {
            self.admit_change_in_script(ks, caller, entry)?;
        }
        self.persistence.admit_logged(&self.config, flags)?;
        if session.restrictions.intersects(Restrictions::FOLLOWING | Restrictions::FEW_FOLLOWERS) {
            session.admit_short_of_followers(flags)?;
            if session.restrictions.contains(Restrictions::FOLLOWING) {
                let may_be_old = flags.contains(Flags::STALE);
                self.persistence.admit_following(&self.config, may_be_old, entry.command.group)?;
            }
        }
        if session.restrictions.contains(Restrictions::LIMITED) {
            self.access().admit_user(session, entry, argv, Context::Lua)?;
        }
        Ok(())
    }

    /// The checks of [`admit_in_script`](Self::admit_in_script) for commands that do more than read.
    #[inline]
    fn admit_change_in_script(&self, ks: &Keyspace, caller: Caller, entry: &Entry) -> Result<(), Error> {
        let flags = entry.command.flags;
        let is_let_through = self.switches.debug_in_scripts && flags.contains(Flags::PROTECTED);
        if flags.contains(Flags::NOSCRIPT) && !is_let_through {
            return Err(Error::text("ERR This Redis command is not allowed from script"));
        }
        if caller.read_only && flags.intersects(Flags::WRITE | Flags::MAY_REPLICATE) {
            return Err(Error::text("ERR Write commands are not allowed from read-only scripts."));
        }
        if flags.contains(Flags::WRITE) && undo_is_full(&self.config, ks) {
            return Err(Error::text(UNDO_IS_FULL));
        }
        self.memory.admit_call(self.programs.running.as_ref(), caller.flags, entry)
    }
}

/// Whether the undo record of a script fills the memory that scripts may use.
#[inline]
pub(in crate::engine) fn undo_is_full(config: &Config, ks: &Keyspace) -> bool {
    let limit = config.script_memory_limit;
    limit > 0 && ks.undo_bytes() > limit
}

impl Session {
    /// Whether `enable-debug-command` lets this client use DEBUG.
    pub fn debug_allowed(&self, config: &Config) -> Result<(), Error> {
        if config.enable_debug_command.allows(self.is_local) {
            return Ok(());
        }
        Err(Error::text(
            "ERR DEBUG command not allowed. If the enable-debug-command option is set to \"local\", you can run it \
             from a local connection, otherwise you need to set this option in the configuration file, and then \
             restart the server.",
        ))
    }
}
