//! Who looks on behind a call: MONITOR, and the [table](crate::engine::observe::tracking) of what clients cache, which remembers what they read.
//!
//! A call is shown when it has run, and one that runs a script or another command before, so that it stands above what that calls. Nobody looks on
//! at what costs: a session whose calls somebody wants to see has a restriction ([`OBSERVED`](Restrictions::OBSERVED), or
//! [`TRACKED`](Restrictions::TRACKED)), and goes the way of those who have any; EXEC and scripts find out once.
//!
//! With a log nobody is shown what a crash may take back. What a client called is shown with the fence of what it was
//! answered. What EXEC and scripts call waits until their unit is over, for only then is it known which one that is; what belongs
//! to a script that was rolled back is shown, too: it was called.

use crate::base::lsn::Lsn;
use crate::engine::observe::audience::Audience;
use crate::engine::observe::monitor::{Caller, Held, line};
use crate::engine::session::caching::CachingClient;
use crate::engine::session::output_limits::PushLimits;
use crate::engine::session::{Restrictions, Session};
use crate::engine::state::{Entry, Origin, ServerState};
use crate::keyspace::Keyspace;
use crate::resp::request::Argv;
use crate::spec::secrets::REDACTED;
use crate::spec::{Flags, Group};

impl Audience {
    /// Whether somebody wants to see what all sessions call.
    pub(in crate::engine) fn is_observed(&self) -> bool {
        !self.monitors.is_empty()
    }

    /// Lets a session that tracks keys be told of these prefixes, too.
    pub fn track_prefixes(&mut self, session: &mut Session, prefixes: &[&[u8]]) {
        if let Some(client) = &mut session.tracking {
            prefixes.iter().for_each(|prefix| self.tracking.add_prefix(session.key.id, client, prefix));
        }
    }
}

impl ServerState {
    /// Tells all sessions whether somebody wants to see what they call. `current` is one that is out of the registry.
    fn refresh_observed(&mut self, current: &mut Session) {
        let is_observed = self.audience.is_observed();
        for session in self.clients.sessions.iter_mut().chain(std::iter::once(current)) {
            session.restrictions.set(Restrictions::OBSERVED, is_observed);
        }
    }

    /// Lets a session track keys, as `ask` says.
    pub fn begin_tracking(&mut self, session: &mut Session, ask: impl FnOnce(&mut CachingClient)) {
        if session.tracking.is_none() {
            self.audience.tracking.add_client();
            self.readers_changed();
        }
        let client = session.tracking.get_or_insert_default();
        ask(client);
        session.restrictions.set(Restrictions::TRACKED, !client.broadcasts);
    }

    /// Ends that a session tracks keys, if it does.
    pub fn end_tracking(&mut self, session: &mut Session) {
        if let Some(client) = session.tracking.take() {
            self.audience.tracking.remove_client(session.key.id, &client);
            session.restrictions.set(Restrictions::TRACKED, false);
        }
    }

    /// Ends what CLIENT CACHING said, behind a call of the session, unless it still waits or is followed by the rest of a
    /// transaction. CLIENT's own calls do not count.
    pub(in crate::engine) fn end_caching(&mut self, session: &mut Session, entry: Option<&Entry>) {
        let is_of_client = entry.is_some_and(|entry| entry.name_args() > 1 && entry.command.group == Group::Connection);
        if session.transaction.is_none()
            && session.blocking.is_none()
            && !is_of_client
            && let Some(client) = &mut session.tracking
        {
            client.is_exception = false;
        }
    }

    /// Keeps the table of what clients cache small, `hz` times a second.
    pub(in crate::engine) fn look_after_tracking(&mut self) {
        if !self.audience.tracking.reads_changes() {
            return;
        }
        self.limit_tracked_keys(None);
        self.audience.tracking.end_unless_used();
        if !self.audience.tracking.reads_changes() {
            self.readers_changed();
        }
    }

    /// Lets a session see what all call.
    pub fn begin_monitoring(&mut self, session: &mut Session) {
        let is_first = self.audience.monitors.is_empty();
        session.is_monitor = true;
        self.audience.monitors.add(session.key);
        if is_first {
            self.refresh_observed(session);
        }
    }

    /// Ends that, if it has begun.
    pub fn end_monitoring(&mut self, session: &mut Session) {
        if std::mem::take(&mut session.is_monitor) {
            self.audience.monitors.remove(session.key);
            if self.audience.monitors.is_empty() {
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
    pub(crate) fn observe_call(
        &mut self,
        ks: &Keyspace,
        session: &mut Session,
        entry: &Entry,
        argv: Argv<'_>,
        origin: Origin,
    ) {
        match origin {
            Origin::Client => self.show_held(session),
            _ => self.remember_read(ks, session, entry, argv),
        }
        if !entry.command.flags.has(Flags::SKIP_MONITOR) {
            self.show(session, entry, argv, origin);
        }
        // Who looked on may have left while this session was out of the registry.
        session.restrictions.set(Restrictions::OBSERVED, self.audience.is_observed());
    }

    /// Shows a call that was no unit of its own: it was refused, and has ended a transaction all the same, or ran beside a busy
    /// script.
    #[cold]
    pub(in crate::engine) fn observe_beside(&mut self, session: &mut Session, entry: &Entry, argv: Argv<'_>) {
        self.show(session, entry, argv, Origin::Client);
    }

    /// Remembers what a call has read that has just run, if its client tracks keys. Of one that runs a script those commands count
    /// which that calls.
    #[cold]
    pub(in crate::engine) fn remember_read(&mut self, ks: &Keyspace, session: &Session, entry: &Entry, argv: Argv<'_>) {
        let reads = entry.command.flags.has(Flags::READONLY) && entry.command.group != Group::Scripting;
        if !reads || !session.tracking.as_ref().is_some_and(|client| client.caches()) {
            return;
        }
        // What the unit has touched before, the client has seen.
        self.audience.see_touched(ks);
        let (max_keys, sessions) = (self.config.tracking_table_max_keys, &self.clients.sessions);
        for key in self.table.keys_of(entry.command, argv).unwrap_or_default() {
            if self.audience.tracking.remember(&argv[key.index], session.key.id, max_keys, |id| sessions.is_open(id)) {
                self.audience.tracking.drop_all();
            }
        }
    }

    /// Shows a call to those who want to see all. What administrators call is nobody else's business.
    fn show(&mut self, session: &mut Session, entry: &Entry, argv: Argv<'_>, origin: Origin) {
        if self.audience.monitors.is_empty()
            || self.persistence.loading.is_some()
            || entry.command.flags.has(Flags::ADMIN)
        {
            return;
        }
        let caller = if origin == Origin::Script { Caller::Script } else { Caller::Client(&session.address) };
        let is_secret = self.table.secrets_of(entry.command, argv);
        let args = argv.iter().enumerate();
        let args = args.map(|(at, arg)| if is_secret.get(at) == Some(&true) { REDACTED } else { arg });
        let line = line(self.time.clock.now_us(), session.db, caller, args);
        if origin != Origin::Client && self.persistence.journal.is_some() {
            self.audience.monitors.hold(&line);
        } else {
            self.push_to_monitors(session, &line, session.fence);
        }
    }

    /// Shows what was held back until the unit of this session's call was over.
    fn show_held(&mut self, session: &mut Session) {
        if self.audience.monitors.holds_nothing() {
            return;
        }
        let Held { lines, are_too_many } = self.audience.monitors.take_held();
        if !are_too_many {
            return self.push_to_monitors(session, &lines, session.fence);
        }
        for key in self.audience.monitors.sessions().to_vec() {
            if let Some(monitor) = self.clients.sessions.get_mut(key).filter(|monitor| !monitor.killed) {
                tracing::warn!(
                    client = key.id,
                    "closed: a script or transaction has called more than MONITOR can show"
                );
                self.meters.stats.output_limit_disconnections += 1;
                monitor.close_at_once();
            }
        }
    }

    /// `current` is the session whose call is shown, which is not among [`sessions`](ServerState::sessions).
    fn push_to_monitors(&mut self, current: &mut Session, lines: &[u8], fence: Lsn) {
        if self.persistence.is_lost(fence) {
            return;
        }
        let reach = self.persistence.reach(&self.config);
        for key in self.audience.monitors.sessions() {
            let monitor = match self.clients.sessions.get_mut(*key) {
                Some(monitor) => monitor,
                None if *key == current.key => &mut *current,
                None => continue,
            };
            if !monitor.killed {
                monitor.outbox.push(lines, fence);
                let (config, stats, limits_due) = (&self.config, &mut self.meters.stats, &mut self.clients.limits_due);
                PushLimits { config, stats, limits_due, reach }.hold(monitor);
            }
        }
        for at in 0..self.audience.monitors.sessions().len() {
            self.clients.weigh(&mut self.meters.stats, self.audience.monitors.sessions()[at]);
        }
        self.hold(lines.len() * self.audience.monitors.sessions().len(), fence);
    }
}
