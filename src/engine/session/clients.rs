//! Clients come and go: they are registered, forgotten, and closed when they are idle.

use std::sync::Arc;

use std::time::Duration;

use super::pause::Pause;
use super::registry::Registry;
use super::room::Room;
use super::{Peer, Restrictions, Session, Sessions};
use crate::engine::state::{Ctx, Engine, Origin, ServerState};
use crate::persist::saving::Progress;
use crate::resp::reply::Reply;
use crate::spec::session_key::SessionKey;

/// The connections, and what they take together.
#[derive(Default)]
pub struct Clients {
    /// All sessions but the one whose command runs.
    pub sessions: Sessions,
    /// Facts of clients that other threads may read.
    pub registry: Arc<Registry>,
    /// CLIENT PAUSE.
    pub pause: Pause,
    /// Unsent bytes of all clients together.
    pub(in crate::engine) room: Room,
    /// Sessions whose unsent output grew and must be held against its limit.
    pub limits_due: Vec<SessionKey>,
    /// Most bytes that all clients together may hold; 0 for no limit.
    pub(in crate::engine) limit: u64,
    /// Bytes that all clients together hold, as far as they were weighed.
    pub(in crate::engine) bytes: u64,
}

impl Engine {
    /// Forgets a connection and all it was subscribed to, watched or waited for.
    pub fn disconnect(&mut self, key: SessionKey) {
        self.server.disconnect(key);
    }

    /// Looks at the server between two units, as a command does, but for nobody. What is seen may still be lost.
    pub fn look<A>(&mut self, look: impl FnOnce(&Ctx<'_>) -> A) -> A {
        let mut nobody = Sessions::default();
        let key = nobody.open(Peer::default(), false, self.server.meters.stats.clock.raw());
        let mut session = nobody.take(key).expect("it was opened just now");
        let entry = self.server.table.iter().next().expect("there are commands");
        let mut reply = Reply::new(session.form());
        let (ks, server) = (&mut self.ks, &mut self.server);
        look(&Ctx { ks, server, session: &mut session, reply: &mut reply, entry, origin: Origin::Client })
    }
}

impl ServerState {
    /// Registers a connection.
    pub fn open_session(&mut self, peer: Peer) -> SessionKey {
        self.meters.stats.connections += 1;
        let stranger = !self.acl.is_open();
        let address = peer.address.clone();
        let key = self.clients.sessions.open(peer, stranger, self.meters.stats.clock.raw());
        let of_all = self.restrictions_of_all();
        if let Some(mut session) = self.clients.sessions.take(key) {
            session.restrictions.set(of_all, true);
            self.restrict_to_user(&mut session);
            self.clients.sessions.put(session);
        }
        self.clients.registry.connected(key, &address);
        key
    }

    /// What the state of the server, and not its own, keeps every session from.
    pub fn restrictions_of_all(&self) -> Restrictions {
        let mut of_all = Restrictions::default();
        of_all.set(Restrictions::METERED, self.config.maxmemory > 0);
        of_all.set(Restrictions::UNLOGGED, self.persistence.is_unlogged(&self.config));
        of_all.set(Restrictions::LOADING, self.persistence.loading.is_some());
        of_all.set(Restrictions::PAUSED, self.clients.pause.is_on());
        of_all.set(Restrictions::OBSERVED, self.is_observed());
        of_all
    }

    /// The data has been loaded so far; `None`: all of it is there.
    pub fn set_loading(&mut self, progress: Option<Progress>) {
        self.persistence.loading = progress;
        self.readers_changed();
        for session in self.clients.sessions.iter_mut() {
            session.restrictions.set(Restrictions::LOADING, progress.is_some());
        }
    }

    /// Forgets a connection and all it was subscribed to, watched or waited for. Its task, if it has one, ends when it runs
    /// next.
    pub fn disconnect(&mut self, key: SessionKey) {
        let Some(mut session) = self.clients.sessions.close(key) else { return };
        self.recount_unsent(session.counted_unsent, 0);
        self.forget_weight(session.weight);
        self.release(&mut session);
        self.clients.registry.disconnected(key);
        session.outbox.wake();
    }

    /// Ends all that a session subscribed to, watched or waited for.
    fn release(&mut self, session: &mut Session) {
        self.audience.pubsub.forget(session);
        self.unwatch(session);
        self.end_monitoring(session);
        self.end_tracking(session);
        if let Some(ticket) = session.blocking {
            self.give_up(session, ticket);
        }
        self.withdraw_all(session);
        if std::mem::take(&mut session.is_postponed) {
            self.clients.pause.forget(session.key);
        }
    }

    /// Closes another connection than the one whose command runs.
    pub fn kill(&mut self, key: SessionKey) {
        let Some(mut session) = self.clients.sessions.take(key) else { return };
        self.release(&mut session);
        session.kill();
        self.clients.sessions.put(session);
    }

    /// Closes clients that neither sent a command nor wait for one to be answered for `timeout` seconds.
    pub(in crate::engine) fn close_idle(&mut self) {
        if self.config.timeout_s == 0 {
            return;
        }
        let timeout = Duration::from_secs(self.config.timeout_s.into());
        let (clock, now_ticks, safe) =
            (&self.meters.stats.clock, self.meters.stats.clock.raw(), self.persistence.safe());
        for session in self.clients.sessions.iter_mut() {
            let waits_for_log = session.outbox.sendable(safe) < session.outbox.len();
            let waits = waits_for_log
                || session.is_blocked()
                || session.tickets.is_some()
                || session.transfer.is_some()
                || session.is_monitor
                || !session.subscriptions.is_empty();
            if !waits && clock.delta(session.active_ticks, now_ticks) > timeout {
                session.kill();
            }
        }
    }
}
