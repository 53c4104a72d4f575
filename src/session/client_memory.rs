//! `maxmemory-clients`: the memory that all clients together may hold.
//!
//! A client holds its unanswered input, its queue for EXEC, the names of its watched keys and subscriptions, and its
//! unread output ([`Session::mem_bytes`]). While there is a limit, each session is *weighed* whenever it has been fed
//! and whenever something was pushed to it. The sum is kept; above the limit the clients that hold most are closed
//! until the rest fits. So neither a crowd of clients nor a few greedy ones can take the memory of the data and have
//! the data evicted.
//!
//! CLIENT NO-EVICT protects a client: its memory counts, but it is not closed.

use super::Session;
use super::clients::Clients;
use crate::config::Config;
use crate::meters::stats::Stats;
use crate::spec::session_key::SessionKey;

impl Clients {
    /// Subtracts the weight of a session that is gone.
    pub(crate) fn forget_weight(&mut self, weight: usize) {
        self.bytes = self.bytes.saturating_sub(weight as u64);
    }

    /// Weighs a session whose memory may have changed, if there is a limit, and closes clients if the sum is too large.
    #[inline]
    pub fn weigh(&mut self, stats: &mut Stats, key: SessionKey) {
        if self.limit > 0 {
            self.weigh_against_limit(stats, key);
        }
    }

    /// Weighs a session that has `input` bytes of input, before its complete commands run: a single command may be too
    /// large.
    #[inline]
    pub(crate) fn weigh_input(&mut self, stats: &mut Stats, key: SessionKey, bytes: usize) {
        if self.limit > 0 {
            if let Some(session) = self.sessions.get_mut(key) {
                session.pending_input = bytes;
            }
            self.weigh_against_limit(stats, key);
        }
    }

    #[cold]
    fn weigh_against_limit(&mut self, stats: &mut Stats, key: SessionKey) {
        let Some(session) = self.sessions.get_mut(key) else { return };
        let weight = if session.is_killed() { 0 } else { session.mem_bytes() };
        let before = std::mem::replace(&mut session.weight, weight);
        self.bytes = self.bytes + weight as u64 - before as u64;
        if self.bytes > self.limit {
            self.evict(stats);
        }
    }

    /// Closes the clients that hold most until the rest fits.
    fn evict(&mut self, stats: &mut Stats) {
        while self.limit > 0 && self.bytes > self.limit {
            let may_go = self.sessions.iter_mut().filter(|session| !session.no_evict && !session.is_killed());
            let Some(most) = may_go.max_by_key(|session| session.weight) else { return };
            let weight = std::mem::take(&mut most.weight);
            tracing::warn!(client = most.key.id, held = weight, "closed: clients exceed maxmemory-clients");
            most.close_at_once();
            self.bytes -= weight as u64;
            stats.evicted_clients += 1;
        }
    }

    /// Applies a new `maxmemory-clients`, or a new `maxmemory` if the limit is a share of it. `current` is the session
    /// whose command set it; the session is weighed after that command.
    pub fn limit_changed(&mut self, config: &Config, stats: &mut Stats, current: &mut Session) {
        self.limit = config.maxmemory_clients.bytes(config.maxmemory);
        self.bytes = 0;
        current.weight = 0;
        let is_limited = self.limit > 0;
        for session in self.sessions.iter_mut() {
            session.weight = if is_limited && !session.is_killed() { session.mem_bytes() } else { 0 };
            self.bytes += session.weight as u64;
        }
        self.evict(stats);
    }
}

#[cfg(test)]
mod tests {
    use crate::base::clock::Clock;
    use crate::base::lsn::Lsn;
    use crate::base::rng::Rng;
    use crate::config::Config;
    use crate::engine::{CommandTable, Engine};
    use crate::session::Peer;
    use crate::spec::session_key::SessionKey;

    #[test]
    fn the_largest_clients_are_closed_until_the_rest_fits() {
        let table = Box::leak(Box::new(CommandTable::new(&[])));
        let mut engine =
            Engine::new(Config::default(), table, Clock::manual(0), Rng::seeded(1)).expect("memory for Lua");
        let server = &mut engine.server;
        let keys: Vec<SessionKey> = (0..6).map(|_| server.open_session(Peer::default())).collect();
        let hold = |server: &mut crate::engine::ServerState, at: usize, bytes: usize| {
            server
                .clients
                .sessions
                .get_mut(keys[at])
                .expect("it is connected")
                .outbox
                .push(&vec![b'x'; bytes], Lsn::NONE);
            server.clients.weigh(&mut server.meters.stats, keys[at]);
        };
        let gone = |server: &mut crate::engine::ServerState| {
            (0..6)
                .filter(|at| server.clients.sessions.get_mut(keys[*at]).is_none_or(|session| session.is_killed()))
                .collect::<Vec<_>>()
        };
        hold(server, 0, 100_000);
        let limit = |server: &mut crate::engine::ServerState, bytes: &str| {
            server.config.set([(&b"maxmemory-clients"[..], bytes.as_bytes())], Default::default()).expect("a limit");
            // The session of the running command was not weighed yet.
            let mut current = server.clients.sessions.take(keys[5]).expect("it is connected");
            server.clients.limit_changed(&server.config, &mut server.meters.stats, &mut current);
            server.clients.sessions.put(current);
            server.clients.weigh(&mut server.meters.stats, keys[5]);
        };
        // Memory held before the limit was set counts at once.
        limit(server, "1000000");
        hold(server, 1, 300_000);
        hold(server, 2, 300_000);
        server.clients.sessions.get_mut(keys[3]).expect("it is connected").no_evict = true;
        hold(server, 3, 200_000);
        assert_eq!((gone(server), server.meters.stats.evicted_clients), (vec![], 0));
        hold(server, 4, 250_000);
        assert_eq!(gone(server).len(), 1);
        assert!(gone(server)[0] == 1 || gone(server)[0] == 2);
        let first = gone(server)[0];
        let first = keys[first];
        server.connections().disconnect(first);
        limit(server, "250000");
        assert!(
            gone(server).len() >= 4 && !gone(server).contains(&3) && !gone(server).contains(&5),
            "{:?}",
            gone(server)
        );
        let closed = gone(server).len() as u64;
        assert_eq!(server.meters.stats.evicted_clients, closed);
        limit(server, "1");
        assert!(!gone(server).contains(&3));
        limit(server, "0");
        hold(server, 3, 1_000_000);
        assert!(!gone(server).contains(&3));
    }
}
