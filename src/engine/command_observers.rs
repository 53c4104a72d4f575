//! Who looks on behind a call: MONITOR.
//!
//! A call is shown when it has run, and one that runs a script before, so that it stands above what the script calls. Nobody looks on
//! at what costs: a session whose calls somebody wants to see has a [restriction](Restrictions::OBSERVED), and goes the way
//! of those who have any; EXEC and scripts find out once.
//!
//! With a log nobody is shown what a crash may take back. What a client called is shown with the fence of what it was
//! answered. What EXEC and scripts call waits until their unit is over, for only then is it known which one that is; what belongs
//! to a script that was rolled back is shown, too: it was called.

use super::monitor::{Caller, Held, line};
use super::output_limits::PushLimits;
use super::secrets::{REDACTED, secrets_of};
use super::session::{Restrictions, Session};
use super::spec::Flags;
use super::state::{Entry, Origin, ServerState};
use crate::base::lsn::Lsn;
use crate::resp::request::Argv;

impl ServerState {
    /// Whether somebody wants to see what all sessions call.
    pub(super) fn is_observed(&self) -> bool {
        !self.monitors.is_empty()
    }

    /// Tells all sessions whether somebody wants to see what they call. `current` is one that is out of the registry.
    fn refresh_observed(&mut self, current: &mut Session) {
        let is_observed = self.is_observed();
        for session in self.sessions.iter_mut().chain(std::iter::once(current)) {
            session.restrictions.set(Restrictions::OBSERVED, is_observed);
        }
    }

    /// Lets a session see what all call.
    pub fn begin_monitoring(&mut self, session: &mut Session) {
        let is_first = self.monitors.is_empty();
        session.is_monitor = true;
        self.monitors.add(session.key);
        if is_first {
            self.refresh_observed(session);
        }
    }

    /// Ends that, if it has begun.
    pub fn end_monitoring(&mut self, session: &mut Session) {
        if std::mem::take(&mut session.is_monitor) {
            self.monitors.remove(session.key);
            if self.monitors.is_empty() {
                self.refresh_observed(session);
            }
        }
    }

    /// A call of a session that is observed begins.
    #[cold]
    pub(crate) fn observe_begin(&mut self, session: &mut Session, entry: &Entry, argv: Argv<'_>, origin: Origin) {
        if entry.command.flags.has(Flags::SKIP_MONITOR) {
            self.show(session, entry, argv, origin);
        }
    }

    /// A call of a session that is observed has run. One that came from its client directly is committed.
    #[cold]
    pub(crate) fn observe_call(&mut self, session: &mut Session, entry: &Entry, argv: Argv<'_>, origin: Origin) {
        if origin == Origin::Client {
            self.show_held(session);
        }
        if !entry.command.flags.has(Flags::SKIP_MONITOR) {
            self.show(session, entry, argv, origin);
        }
        // Who looked on may have left while this session was out of the registry.
        session.restrictions.set(Restrictions::OBSERVED, self.is_observed());
    }

    /// Shows a call that was no unit of its own: it was refused, and has ended a transaction all the same, or ran beside a busy
    /// script.
    #[cold]
    pub(super) fn observe_beside(&mut self, session: &mut Session, entry: &Entry, argv: Argv<'_>) {
        self.show(session, entry, argv, Origin::Client);
    }

    /// Shows a call to those who want to see all. What administrators call is nobody else's business.
    fn show(&mut self, session: &mut Session, entry: &Entry, argv: Argv<'_>, origin: Origin) {
        if self.monitors.is_empty() || self.loading.is_some() || entry.command.flags.has(Flags::ADMIN) {
            return;
        }
        let caller = if origin == Origin::Script { Caller::Script } else { Caller::Client(&session.address) };
        let is_secret = secrets_of(entry.command, argv);
        let args = argv.iter().enumerate();
        let args = args.map(|(at, arg)| if is_secret.get(at) == Some(&true) { REDACTED } else { arg });
        let line = line(self.clock.now_us(), session.db, caller, args);
        if origin != Origin::Client && self.durability.is_some() {
            self.monitors.hold(&line);
        } else {
            self.push_to_monitors(session, &line, session.fence);
        }
    }

    /// Shows what was held back until the unit of this session's call was over.
    fn show_held(&mut self, session: &mut Session) {
        if self.monitors.holds_nothing() {
            return;
        }
        let Held { lines, are_too_many } = self.monitors.take_held();
        if !are_too_many {
            return self.push_to_monitors(session, &lines, session.fence);
        }
        for key in self.monitors.sessions().to_vec() {
            if let Some(monitor) = self.sessions.get_mut(key).filter(|monitor| !monitor.killed) {
                tracing::warn!(
                    client = key.id,
                    "closed: a script or transaction has called more than MONITOR can show"
                );
                self.stats.output_limit_disconnections += 1;
                monitor.close_at_once();
            }
        }
    }

    /// `current` is the session whose call is shown, which is not among [`sessions`](ServerState::sessions).
    fn push_to_monitors(&mut self, current: &mut Session, lines: &[u8], fence: Lsn) {
        if self.is_lost(fence) {
            return;
        }
        let (safe, is_unlogged) = (self.safe(), self.is_unlogged());
        for key in self.monitors.sessions() {
            let monitor = match self.sessions.get_mut(*key) {
                Some(monitor) => monitor,
                None if *key == current.key => &mut *current,
                None => continue,
            };
            if !monitor.killed {
                monitor.outbox.push(lines, fence);
                let (config, stats, limits_due) = (&self.config, &mut self.stats, &mut self.limits_due);
                PushLimits { config, stats, limits_due, safe, is_unlogged }.hold(monitor);
            }
        }
        self.hold(lines.len() * self.monitors.sessions().len(), fence);
    }
}
