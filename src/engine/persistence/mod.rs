//! The engine's side of persistence; see [`persist`](crate::persist).

pub mod bulk_load;
pub(crate) mod following;
mod handover;
pub mod recovery;
pub(crate) mod release;
pub(crate) mod reload;
pub(crate) mod transfer_slices;

use super::state::ServerState;
use crate::keyspace::Keyspace;
use crate::persist::journal::Journal;
use crate::persist::{Env, News, Persistence};
use crate::session::{Restrictions, Session};

impl ServerState {
    /// Runs `act` on the persistence, then applies the consequences to the other parts.
    pub(crate) fn persist<A>(
        &mut self,
        ks: &mut Keyspace,
        act: impl FnOnce(&mut Persistence, &mut Keyspace, &Env<'_>) -> A,
    ) -> A {
        let env = Env { config: &self.config, clock: &self.time.clock, scripts: &self.programs.scripts };
        let outcome = act(&mut self.persistence, ks, &env);
        self.follow_persistence(ks);
        outcome
    }

    fn follow_persistence(&mut self, ks: &Keyspace) {
        self.readers_changed();
        self.follow_journal();
        let News { answers, changes_admission, releases_all, has_freed_memory } =
            std::mem::take(&mut self.persistence.news);
        if has_freed_memory {
            // The memory counts of this thread do not show it.
            self.memory.freed.want();
        }
        for ((client, command), answer) in answers {
            if let Some(call) = self.waits.blocking_call(&self.clients.sessions, client, command) {
                self.end_waiting(ks, call, |_, reply| answer(reply));
            }
        }
        if changes_admission {
            self.clients.set_unlogged(self.persistence.is_unlogged(&self.config));
        }
        if releases_all {
            self.clients.sessions.iter_mut().for_each(|session| session.outbox.wake());
        }
    }

    /// `save` or `stop-writes-on-bgsave-error` has changed. `session` is out of the registry.
    pub(crate) fn saving_rules_changed(&mut self, session: &mut Session) {
        let is_unlogged = self.persistence.is_unlogged(&self.config);
        self.clients.set_unlogged(is_unlogged);
        session.restrict(Restrictions::UNLOGGED, is_unlogged);
    }

    /// `min-replicas-to-write` or `min-replicas-max-lag` has changed. `session` is out of the registry.
    pub(crate) fn copies_changed(&mut self, session: &mut Session) {
        self.want_copies();
        let is_short = self.persistence.is_short_of_followers(&self.config);
        self.clients.set_short_of_followers(is_short);
        session.restrict(Restrictions::FEW_FOLLOWERS, is_short);
    }

    /// Makes a group keep the copies that the configuration asks for, and looks which nodes follow.
    pub(in crate::engine) fn want_copies(&mut self) {
        let wanted = self.config.copies_wanted();
        if let Some(group) = self.persistence.journal.as_mut().and_then(Journal::group) {
            group.want_copies(wanted);
            if wanted > 0 {
                let max_lag_ms = 1_000 * i64::from(self.config.min_replicas_max_lag_s);
                group.observe_followers(self.time.clock.steady_ms(), max_lag_ms);
            }
        }
    }
}
