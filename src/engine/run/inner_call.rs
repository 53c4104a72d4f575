//! Commands that run another command, given in their arguments: ONCE and GUARD. The inner command runs through [`call`]
//! inside the current unit, as the calls of a script do, and counts as a call of its own.
//!
//! The user's right to make the inner call was checked together with the outer call
//! ([`check`](crate::acl::check::check)), and its keys are known from the
//! [table](crate::spec::table::CommandTable::keys_of). Most other checks are made for the outer command: it changes
//! data, and is refused where nothing may be changed. The remaining checks are made here.

use super::dispatch::call;
use crate::engine::state::CommandTable;
use crate::engine::state::{Ctx, Origin, Run};
use crate::meters::Meters;
use crate::resp::request::{Argv, OwnedArgv};
use crate::script::store;
use crate::session::Restrictions;
use crate::spec::error::Error;
use crate::spec::table::Inner;
use crate::spec::{Flags, Runs};
use crate::wait::Wait;

impl Ctx<'_> {
    /// Returns the inner command, if it may run here. `argv` is the whole call.
    pub(crate) fn admit_inner<'a>(&mut self, argv: Argv<'a>) -> Result<Inner<'static, 'a, Run>, Error> {
        let table = self.server.table;
        let inner = table.inner_of(self.entry.command, argv)?.ok_or(Error::Syntax)?;
        if self.origin == Origin::Script && inner.entry.command.flags.contains(Flags::NOSCRIPT) {
            self.server.meters.count_rejected(self.server.table, inner.argv);
            return Err(Error::text("ERR This Redis command is not allowed from script"));
        }
        Ok(inner)
    }

    /// Makes everything that the inner command does revocable, until [`commit`](Self::commit) or
    /// [`roll_back`](Self::roll_back).
    pub(crate) fn begin_inner(&mut self, inner: &Inner<'_, '_, Run>) {
        // The script of an EVAL is kept beside the keys and not rolled back with them, so it is added before.
        if inner.entry.command.runs == Some(Runs::Text)
            && let Some(body) = inner.argv.get(inner.entry.name_args())
        {
            // EVAL itself reports what is wrong with the script.
            _ = self.server.programs.scripts.add(self.ks, body, store::ScriptOrigin::Eval);
        }
        self.ks.begin_undo();
        self.server.audience.hold_messages(self.server.persistence.tail.is_some(), true);
    }

    /// Runs the inner command, whose reply becomes that of the outer one. Returns `Some` when the inner command, and so
    /// the outer one, must wait.
    pub(crate) fn call_inner(&mut self, inner: &Inner<'static, '_, Run>) -> Option<Box<Wait>> {
        let &Inner { entry, argv, .. } = inner;
        // Commands without the BLOCKING flag wait for something that they began themselves, which must not go on
        // without their reply.
        let may_wait = self.may_wait() && entry.command.flags.contains(Flags::BLOCKING);
        let origin = match self.origin {
            Origin::Script => Origin::Script,
            _ if !may_wait => Origin::Inner,
            Origin::Retry | Origin::InnerRetry => Origin::InnerRetry,
            _ => Origin::InnerMayWait,
        };
        let Ctx { ks, server, session, reply, .. } = self;
        let is_observed = session.restrictions.intersects(Restrictions::OBSERVED | Restrictions::TRACKED);
        if is_observed && origin != Origin::InnerRetry {
            server.delivery().observe_begin(session, entry, argv, origin);
        }
        let wait = call(ks, server, session, entry, argv, reply, origin);
        match origin {
            _ if !is_observed => {}
            // The call was shown when it began to wait.
            Origin::InnerRetry => server.delivery().remember_read(ks, session, entry, argv),
            _ => server.delivery().observe_call(ks, session, entry, argv, origin),
        }
        if ks.effects().are_annotated() {
            // Further changes are made by the outer command.
            ks.note_command(self.entry.id.index() as u16);
        }
        wait
    }
}

impl Inner<'_, '_, Run> {
    /// Turns the wait of an inner command into a wait of the whole call `outer`: when the turn comes, the whole call is
    /// dispatched again.
    pub(crate) fn wait_as_part_of(&self, outer: Argv<'_>, wait: Wait) -> Wait {
        let again = wait.again.map(|inner| {
            let mut again = OwnedArgv::from_argv(outer.slice(0, self.at));
            inner.as_argv().iter().for_each(|arg| again.push(arg));
            again
        });
        Wait { again, ..wait }
    }
}

impl Meters {
    /// Counts an inner call that was refused.
    #[cold]
    pub(in crate::engine) fn count_rejected(&mut self, table: &CommandTable, argv: Argv<'_>) {
        if let Some(entry) = table.named_by(argv) {
            self.stats.commands[entry.id.index()].rejected += 1;
        }
    }
}
