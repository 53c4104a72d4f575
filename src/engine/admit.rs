//! Admission of commands of clients whose session is not in its usual state: not authenticated, not allowed everything, inside MULTI,
//! listening to channels, held to a limit on memory, before a log that takes nothing, or there before the data is.

use super::acl::log::Context;
use super::error::Error;
use super::session::{Restrictions, Session};
use super::spec::Flags;
use super::state::{Entry, ServerState};
use crate::resp::request::Argv;

/// What happens to an admitted command.
pub(super) enum Admission {
    /// It runs now.
    Run,
    /// It is kept for EXEC.
    Queue,
}

impl ServerState {
    /// Decides about a command whose name and arity are right.
    pub(super) fn admit(&mut self, session: &Session, entry: &Entry, argv: Argv<'_>) -> Result<Admission, Error> {
        let flags = entry.command.flags;
        if session.restrictions.has(Restrictions::UNAUTHENTICATED) && !flags.has(Flags::NO_AUTH) {
            return Err(Error::text("NOAUTH Authentication required."));
        }
        if session.restrictions.has(Restrictions::LIMITED) {
            let is_queued = session.restrictions.has(Restrictions::QUEUEING);
            let context = if is_queued { Context::Multi } else { Context::Toplevel };
            self.admit_user(session, entry, argv, context)?;
        }
        if session.restrictions.has(Restrictions::UNLOGGED) {
            self.admit_to_log(session, entry)?;
        }
        if session.restrictions.has(Restrictions::METERED) {
            self.admit_memory(session, entry)?;
        }
        if session.restrictions.has(Restrictions::SUBSCRIBER) && !flags.has(Flags::WHILE_SUBSCRIBED) {
            return Err(Error::owned(format!(
                "ERR Can't execute '{}': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are allowed in this context",
                entry.full_name
            )));
        }
        if session.restrictions.has(Restrictions::LOADING) && !flags.has(Flags::LOADING) {
            return Err(Error::text("LOADING Redis is loading the dataset in memory"));
        }
        if session.is_monitor && flags.has(Flags::READONLY | Flags::WRITE | Flags::MAY_REPLICATE) {
            // In Redis it counts as a replica, and may do no more.
            return Err(Error::text("ERR Replica can't interact with the keyspace"));
        }
        if session.restrictions.has(Restrictions::QUEUEING) && !flags.has(Flags::WHILE_QUEUEING) {
            if flags.has(Flags::PROTECTED) {
                self.debug_allowed(session)?;
            }
            if flags.has(Flags::NO_MULTI) {
                return Err(Error::text("ERR Command not allowed inside a transaction"));
            }
            return Ok(Admission::Queue);
        }
        Ok(Admission::Run)
    }

    /// Decides about a call that waited and is dispatched again: the log may have failed meanwhile, and its user's rights have changed.
    pub(super) fn admit_retry(&mut self, session: &Session, entry: &Entry, argv: Argv<'_>) -> Result<(), Error> {
        if session.restrictions.has(Restrictions::LIMITED) {
            self.admit_user(session, entry, argv, Context::Toplevel)?;
        }
        self.admit_logged(entry.command.flags)
    }

    /// Whether `enable-debug-command` lets this client use DEBUG.
    pub fn debug_allowed(&self, session: &Session) -> Result<(), Error> {
        if self.config.enable_debug_command.allows(session.is_local) {
            return Ok(());
        }
        Err(Error::text(
            "ERR DEBUG command not allowed. If the enable-debug-command option is set to \"local\", you can run it from a \
             local connection, otherwise you need to set this option in the configuration file, and then restart the server.",
        ))
    }
}
