//! The effect of a [pause](crate::session::pause): which commands it holds up, and how it begins and ends for
//! all sessions.
//!
//! During a pause of writes the data does not change: no command changes it, nothing expires and nothing is evicted. An
//! expired key is hidden from readers but stays in place. So an operator who moves clients from one server to another
//! finds equal data on both, and a server that shuts down has saved its last changes.

use crate::engine::state::{CommandTable, Entry};
use crate::programs::Programs;
use crate::resp::request::Argv;
use crate::script::store::{ScriptFlags, parse_sha1, parse_shebang};
use crate::session::clients::Clients;
use crate::session::pause::Paused;
use crate::session::{Restrictions, Session};
use crate::spec::{Flags, Runs};

impl Clients {
    /// CLIENT PAUSE: holds commands up until `until_ms`, by the steady clock. `current` is the session that sent it.
    /// The running command, perhaps EXEC, runs to its end.
    pub fn pause(&mut self, paused: Paused, until_ms: i64, current: &mut Session) {
        let before = self.pause.paused();
        self.pause.begin(paused, until_ms);
        self.pause_changed(before, Some(current));
    }

    /// CLIENT UNPAUSE.
    pub fn unpause(&mut self, current: &mut Session) {
        let before = self.pause.paused();
        self.pause.end();
        self.pause_changed(before, Some(current));
    }

    /// Pauses writes when a shutdown begins, and ends that pause when the shutdown is called off. `current` is the
    /// session whose command does this, if a command does.
    pub(in crate::engine) fn pause_for_ending(&mut self, is_ending: bool, current: Option<&mut Session>) {
        let before = self.pause.paused();
        self.pause.set_ending(is_ending);
        self.pause_changed(before, current);
    }

    /// Applies a changed pause to all sessions. If the pause is milder than `before`, the postponed sessions go on;
    /// sessions that are still held up are postponed again, in the same order.
    fn pause_changed(&mut self, before: Paused, current: Option<&mut Session>) {
        let is_on = self.pause.is_on();
        for session in self.sessions.iter_mut().chain(current) {
            session.restrict(Restrictions::PAUSED, is_on);
        }
        if self.pause.paused() < before {
            for key in self.pause.take_postponed() {
                if let Some(session) = self.sessions.get_mut(key) {
                    session.end_postponement();
                    session.outbox.wake();
                }
            }
        }
    }

    /// Ends the pause when its time is over.
    pub(in crate::engine) fn end_pause_in_time(&mut self, steady_ms: i64) {
        if self.pause.ends_ms().is_some_and(|at_ms| at_ms <= steady_ms) {
            let before = self.pause.paused();
            self.pause.end();
            self.pause_changed(before, None);
        }
    }

    /// Makes a session wait for the end of the pause, if the pause holds up its command. The command runs after the
    /// pause.
    pub(in crate::engine) fn postpones(
        &mut self,
        table: &CommandTable,
        programs: &Programs,
        session: &mut Session,
        entry: &Entry,
        argv: Argv<'_>,
    ) -> bool {
        let is_held_up = match self.pause.paused() {
            Paused::Nothing => false,
            Paused::Writes => programs.may_change(table, session, entry, argv),
            Paused::All => true,
        };
        if is_held_up {
            session.postpone();
            self.pause.postpone(session.key);
        }
        is_held_up
    }
}

impl Programs {
    /// Returns the declared flags of the script that a command runs, if the script is known and declares any.
    pub(super) fn declared(&self, entry: &Entry, argv: Argv<'_>) -> Option<ScriptFlags> {
        let name = argv.get(entry.name_args())?;
        let flags = match entry.command.runs? {
            Runs::Text => parse_shebang(name).ok()?.0,
            Runs::Sha1 => self.scripts.store.find(&parse_sha1(name)?)?.flags,
            Runs::Function => self.scripts.function(name)?.flags,
        };
        flags.declared.then_some(flags)
    }

    /// Whether a command other than EXEC may change data or publish.
    fn may_change_by_itself(&self, entry: &Entry, argv: Argv<'_>) -> bool {
        let may = entry.command.flags.intersects(Flags::WRITE | Flags::MAY_REPLICATE);
        may && !self.declared(entry, argv).is_some_and(|flags| flags.no_writes)
    }

    /// Whether a command may change data or publish. EXEC may if any of its commands may; a script may unless it
    /// declares otherwise. The queue is judged when it is about to run, because a library that declares a function
    /// otherwise may have been loaded since a call of the function was queued.
    fn may_change(&self, table: &CommandTable, session: &Session, entry: &Entry, argv: Argv<'_>) -> bool {
        match &session.transaction {
            Some(transaction) if entry.command.flags.contains(Flags::RUNS_QUEUE) => transaction
                .commands
                .iter()
                .any(|(command, argv)| self.may_change_by_itself(table.by_id(*command), argv.as_argv())),
            _ => self.may_change_by_itself(entry, argv),
        }
    }
}
