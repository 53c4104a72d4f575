//! The observers of calls: MONITOR, and the [table](crate::engine::observe::tracking) of keys that clients cache, which
//! remembers the keys that they read.
//!
//! A call is shown after it has run. A call that runs a script or another command is shown before it runs, so that it
//! precedes the calls that it makes. Without observers this costs nothing: an observed session has a restriction
//! ([`OBSERVED`](Restrictions::OBSERVED) or [`TRACKED`](Restrictions::TRACKED)) and leaves the hot path, as with any
//! restriction; EXEC and scripts check once.
//!
//! With a journal, no observer sees a call that a crash may take back. A client's call is shown with the fence of its
//! reply. Calls of EXEC and of scripts are held back until their unit is over, since only then the Lsn of the unit is
//! known. Calls of a script that was rolled back are shown, too, since they were made.

use crate::base::lsn::Lsn;
use crate::engine::observe::audience::Audience;
use crate::engine::observe::monitor::{Caller, Held, line};
use crate::engine::observe::readers::Readers;
use crate::engine::state::{Delivery, Entry, Origin};
use crate::keyspace::Keyspace;
use crate::resp::request::Argv;
use crate::session::caching::CachingClient;
use crate::session::output_limits::PushLimits;
use crate::session::{Restrictions, Session, Sessions};
use crate::spec::secrets::REDACTED;
use crate::spec::{Flags, Group};

impl Audience {
    /// Whether some client sees the calls of all sessions.
    #[inline]
    pub(in crate::engine) fn is_observed(&self) -> bool {
        !self.monitors.is_empty()
    }

    /// Adds prefixes whose keys are announced to a tracking session.
    pub fn track_prefixes(&mut self, session: &mut Session, prefixes: &[&[u8]]) {
        if let Some(client) = &mut session.tracking {
            prefixes.iter().for_each(|prefix| self.tracking.add_prefix(session.key.id, client, prefix));
        }
    }

    /// Updates in all sessions whether their calls are observed. `current` is the session that is out of the registry.
    fn refresh_observed(&self, sessions: &mut Sessions, current: &mut Session) {
        let is_observed = self.is_observed();
        for session in sessions.iter_mut().chain(std::iter::once(current)) {
            session.restrict(Restrictions::OBSERVED, is_observed);
        }
    }

    /// Makes a session track keys, as `ask` says.
    pub fn begin_tracking(&mut self, session: &mut Session, ask: impl FnOnce(&mut CachingClient)) {
        if session.tracking.is_none() {
            self.tracking.add_client();
            self.set_reader(Readers::TRACKING, true);
        }
        let client = session.tracking.get_or_insert_default();
        ask(client);
        session.restrictions.set(Restrictions::TRACKED, !client.broadcasts);
    }

    /// Stops the tracking of keys by a session, if it tracks any.
    pub fn end_tracking(&mut self, session: &mut Session) {
        if let Some(client) = session.tracking.take() {
            self.tracking.remove_client(session.key.id, &client);
            session.restrictions.set(Restrictions::TRACKED, false);
        }
    }

    /// Makes a session a monitor, which sees all calls.
    pub fn begin_monitoring(&mut self, sessions: &mut Sessions, session: &mut Session) {
        let is_first = self.monitors.is_empty();
        session.is_monitor = true;
        self.monitors.add(session.key);
        if is_first {
            self.refresh_observed(sessions, session);
        }
    }

    /// Ends the monitoring by a session, if it is a monitor.
    pub fn end_monitoring(&mut self, sessions: &mut Sessions, session: &mut Session) {
        if std::mem::take(&mut session.is_monitor) {
            self.monitors.remove(session.key);
            if self.monitors.is_empty() {
                self.refresh_observed(sessions, session);
            }
        }
    }
}

impl Session {
    /// Ends the effect of CLIENT CACHING after a call, unless the call still waits or the rest of a
    /// transaction follows. Calls of CLIENT itself do not count.
    pub(in crate::engine) fn end_caching(&mut self, entry: Option<&Entry>) {
        let is_of_client = entry.is_some_and(|entry| entry.name_args() > 1 && entry.command.group == Group::Connection);
        if self.transaction.is_none()
            && self.blocking_call().is_none()
            && !is_of_client
            && let Some(client) = &mut self.tracking
        {
            client.is_exception = false;
        }
    }
}

impl Delivery<'_> {
    /// Keeps the table of cached keys within its limit, `hz` times a second.
    pub(in crate::engine) fn maintain_tracking_table(&mut self) {
        if !self.audience.tracking.reads_changes() {
            return;
        }
        self.limit_tracked_keys();
        self.audience.tracking.end_unless_used();
        self.audience.set_reader(Readers::TRACKING, self.audience.tracking.reads_changes());
    }

    /// Notes that a call of an observed session begins.
    #[cold]
    pub(crate) fn observe_begin(&mut self, session: &mut Session, entry: &Entry, argv: Argv<'_>, origin: Origin) {
        if entry.command.flags.contains(Flags::SKIP_MONITOR) {
            self.show(session, entry, argv, origin);
        }
    }

    /// Notes that a call of an observed session has run. A call directly from the client is committed already.
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
        if !entry.command.flags.contains(Flags::SKIP_MONITOR) {
            self.show(session, entry, argv, origin);
        }
    }

    /// Shows a call that was not a unit: it was refused but ended a transaction all the same, or it ran beside a busy
    /// script.
    #[cold]
    pub(in crate::engine) fn observe_beside(&mut self, session: &mut Session, entry: &Entry, argv: Argv<'_>) {
        self.show(session, entry, argv, Origin::Client);
    }

    /// Remembers the keys that the last call read, if its client tracks keys. For a call that runs a script, the
    /// script's own calls count instead.
    #[cold]
    pub(in crate::engine) fn remember_read(&mut self, ks: &Keyspace, session: &Session, entry: &Entry, argv: Argv<'_>) {
        let reads = entry.command.flags.contains(Flags::READONLY) && entry.command.group != Group::Scripting;
        if !reads || !session.tracking.as_ref().is_some_and(|client| client.caches()) {
            return;
        }
        // The client has already seen the changes that the unit made before this read.
        self.audience.see_touched(ks);
        let (max_keys, sessions) = (self.config.tracking_table_max_keys, &self.clients.sessions);
        for key in self.table.keys_of(entry.command, argv).unwrap_or_default() {
            if self.audience.tracking.remember(&argv[key.index], session.key.id, max_keys, |id| sessions.is_open(id)) {
                self.audience.tracking.drop_all();
            }
        }
    }

    /// Shows a call to the monitors. Administrative commands are not shown.
    fn show(&mut self, session: &mut Session, entry: &Entry, argv: Argv<'_>, origin: Origin) {
        if self.audience.monitors.is_empty()
            || self.persistence.loading.is_some()
            || entry.command.flags.contains(Flags::ADMIN)
        {
            return;
        }
        let caller = if origin == Origin::Script { Caller::Script } else { Caller::Client(&session.address) };
        let is_secret = self.table.secrets_of(entry.command, argv);
        let args = argv.iter().enumerate();
        let args = args.map(|(at, arg)| if is_secret.get(at) == Some(&true) { REDACTED } else { arg });
        let line = line(self.clock.now_us(), session.db, caller, args);
        if origin != Origin::Client && self.persistence.journal.is_some() {
            self.audience.monitors.hold(&line);
        } else {
            self.push_to_monitors(session, &line, session.fence);
        }
    }

    /// Shows the calls that were held back until the unit of this session's call was over.
    fn show_held(&mut self, session: &mut Session) {
        if self.audience.monitors.holds_nothing() {
            return;
        }
        let Held { lines, are_too_many } = self.audience.monitors.take_held();
        if !are_too_many {
            return self.push_to_monitors(session, &lines, session.fence);
        }
        for key in self.audience.monitors.sessions().to_vec() {
            if let Some(monitor) = self.clients.sessions.get_mut(key).filter(|monitor| !monitor.is_killed()) {
                tracing::warn!(
                    client = key.id,
                    "closed: a script or transaction made more calls than MONITOR can show"
                );
                self.stats.output_limit_disconnections += 1;
                monitor.close_at_once();
            }
        }
    }

    /// Pushes lines to all monitors. `current` is the session whose call is shown, which is out of the registry.
    fn push_to_monitors(&mut self, current: &mut Session, lines: &[u8], fence: Lsn) {
        if self.persistence.is_lost(fence) {
            return;
        }
        let reach = self.persistence.reach(self.config);
        for key in self.audience.monitors.sessions() {
            let monitor = match self.clients.sessions.get_mut(*key) {
                Some(monitor) => monitor,
                None if *key == current.key => &mut *current,
                None => continue,
            };
            if !monitor.is_killed() {
                monitor.outbox.push(lines, fence);
                let (config, stats, limits_due) = (self.config, &mut *self.stats, &mut self.clients.limits_due);
                PushLimits { config, stats, limits_due, reach }.hold(monitor);
            }
        }
        for at in 0..self.audience.monitors.sessions().len() {
            self.clients.weigh(self.stats, self.audience.monitors.sessions()[at]);
        }
        self.hold(lines.len() * self.audience.monitors.sessions().len(), fence);
    }
}
