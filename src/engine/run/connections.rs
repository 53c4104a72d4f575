//! Opening and closing of connections.

use crate::engine::state::{Connections, Ctx, Engine, Origin, ServerState};
use crate::persist::journal::Journal;
use crate::persist::saving::Progress;
use crate::resp::reply::Reply;
use crate::session::wire::Course;
use crate::session::{Peer, Restrictions, Session, Sessions};
use crate::spec::session_key::SessionKey;

impl Engine {
    /// Forgets a connection and its subscriptions, watches and waiting calls.
    pub fn disconnect(&mut self, key: SessionKey) {
        self.server.connections().disconnect(key);
    }

    /// Inspects the server between two units, in the context of a command but without a client. The data seen may still
    /// be lost by a crash.
    pub fn inspect<A>(&mut self, inspect: impl FnOnce(&Ctx<'_>) -> A) -> A {
        let mut nobody = Sessions::default();
        let key = nobody.open(Peer::default(), false, self.server.meters.stats.clock.raw());
        let mut session = nobody.take(key).expect("it was opened just now");
        let entry = self.server.table.iter().next().expect("there are commands");
        let mut reply = Reply::new(session.form());
        let (ks, server) = (&mut self.ks, &mut self.server);
        inspect(&Ctx { ks, server, session: &mut session, reply: &mut reply, entry, origin: Origin::Client })
    }
}

impl ServerState {
    /// Accounts for the bytes that a socket has left unsent, and returns how its connection goes on. `is_stuck`: the
    /// socket takes no more for now, so the client's output limit is checked.
    #[inline]
    pub fn account_for_unsent(&mut self, key: SessionKey, is_stuck: bool) -> Course {
        let Some(session) = self.clients.sessions.get(key) else { return Course::Close };
        let held = session.outbox.held();
        if is_stuck || session.is_counted() {
            return self.count_and_limit_unsent(key, held, is_stuck);
        }
        self.clients.course_of(session, held)
    }

    fn count_and_limit_unsent(&mut self, key: SessionKey, held: usize, is_stuck: bool) -> Course {
        self.clients.count_unsent(&mut self.meters.stats, key);
        if is_stuck {
            self.clients.hold_to_output_limit(
                &self.config,
                &mut self.meters.stats,
                self.persistence.reach(&self.config),
                self.time.clock.steady_ms(),
                key,
            );
        }
        let Some(session) = self.clients.sessions.get(key) else { return Course::Close };
        self.clients.course_of(session, held)
    }

    /// Registers a connection.
    pub fn open_session(&mut self, peer: Peer) -> SessionKey {
        self.meters.stats.connections += 1;
        let stranger = !self.acl.is_open();
        let address = peer.address.clone();
        let key = self.clients.sessions.open(peer, stranger, self.meters.stats.clock.raw());
        let of_all = self.restrictions_of_all();
        let group = self.persistence.journal.as_ref().and_then(Journal::member);
        let is_late = group.is_some_and(|group| group.has_just_begun_to_follow(self.time.clock.steady()));
        if let Some(mut session) = self.clients.sessions.take(key) {
            session.is_late = is_late;
            session.restrict(of_all, true);
            session.restrict_to_user(&self.acl);
            self.clients.sessions.put(session);
        }
        self.clients.registry.connected(key, &address);
        key
    }

    /// The restrictions of every session that serves data, which follow from the state of the server.
    #[inline]
    pub fn restrictions_of_all(&self) -> Restrictions {
        let mut of_all = self.restrictions_set_by_others();
        of_all.set(Restrictions::METERED, self.config.maxmemory > 0);
        let is_receiving = self.persistence.whose().received().is_some();
        of_all.set(Restrictions::LOADING, self.persistence.loading.is_some() || is_receiving);
        of_all.set(Restrictions::FEW_FOLLOWERS, self.persistence.is_short_of_followers(&self.config));
        let is_follower = self.persistence.journal.as_ref().is_some_and(Journal::is_follower);
        of_all.set(Restrictions::FOLLOWING, is_follower || self.persistence.whose().given_to().is_some());
        of_all
    }

    /// Those of [`Restrictions::SET_BY_OTHERS`] that hold now.
    #[inline]
    pub(in crate::engine) fn restrictions_set_by_others(&self) -> Restrictions {
        let mut by_others = Restrictions::default();
        by_others.set(Restrictions::UNLOGGED, self.persistence.is_unlogged(&self.config));
        by_others.set(Restrictions::PAUSED, self.clients.pause.is_on());
        by_others.set(Restrictions::OBSERVED, self.audience.is_observed());
        by_others
    }

    /// Sets how far the data has been loaded; `None` when all of it is there.
    pub fn set_loading(&mut self, progress: Option<Progress>) {
        self.persistence.loading = progress;
        self.readers_changed();
        self.role_changed();
    }

    /// Whether the server loads, leads, or may change its data has changed: applies this to all sessions.
    pub(in crate::engine) fn role_changed(&mut self) {
        let of_all = self.restrictions_of_all();
        self.clients.set_role(of_all);
    }
}

impl Connections<'_> {
    /// Forgets a connection and its subscriptions, watches and waiting calls. Its task, if it has one, ends when it
    /// runs next.
    pub fn disconnect(&mut self, key: SessionKey) {
        let Some(mut session) = self.clients.sessions.close(key) else { return };
        self.clients.recount_unsent(session.counted_unsent, 0);
        self.clients.forget_weight(session.weight);
        self.release(&mut session);
        self.clients.registry.disconnected(key);
        session.outbox.wake();
    }

    /// Ends the subscriptions, watches and waiting calls of a session.
    fn release(&mut self, session: &mut Session) {
        self.audience.pubsub_of_mut(session.service).forget(session);
        self.audience.unwatch(session);
        self.audience.end_monitoring(&mut self.clients.sessions, session);
        self.audience.end_tracking(session);
        if let Some(ticket) = session.blocking_call() {
            self.give_up(session, ticket);
        }
        self.withdraw_all(session);
        if session.end_postponement() {
            self.clients.pause.forget(session.key);
        }
    }

    /// Closes a connection other than the one whose command runs.
    pub fn kill(&mut self, key: SessionKey) {
        let Some(mut session) = self.clients.sessions.take(key) else { return };
        self.release(&mut session);
        session.kill();
        self.clients.sessions.put(session);
    }
}
