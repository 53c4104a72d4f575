//! Periodic work, independent of what clients do.

use std::sync::Arc;

use crate::base::os::allocated::allocated_bytes;
use crate::engine::limits::READY_PATIENCE_MS;
use crate::engine::state::{Engine, ServerState};
use crate::persist::group::GroupLog;
use crate::persist::journal::Journal;
use crate::session::registry::Readiness;

impl ServerState {
    /// Returns what it can serve to clients whom no command keeps waiting.
    pub(crate) fn readiness(&self) -> Readiness {
        let journal = self.persistence.journal.as_ref().filter(|journal| journal.is_good());
        let group = journal.and_then(Journal::member).filter(|group| !group.leads());
        match () {
            () if !self.persistence.has_own_data() => Readiness::Loading,
            () if self.persistence.whose().given_to().is_some() => Readiness::Unlogged,
            () if group.is_some_and(GroupLog::is_member) => Readiness::Following,
            () if self.persistence.is_unlogged(&self.config) => Readiness::Unlogged,
            () => Readiness::Ready,
        }
    }
}

impl Engine {
    /// Does the periodic work, `hz` times a second: reclaims memory, updates statistics, closes idle clients. Returns
    /// whether there is more to reclaim than one slice handles.
    pub fn tick(&mut self) -> bool {
        let readiness = self.server.readiness();
        // A script keeps other clients waiting even if the threshold calls none busy.
        let busy_after_ms = match self.server.config.busy_reply_threshold_ms {
            ..=0 => READY_PATIENCE_MS,
            threshold_ms => threshold_ms as u64,
        };
        self.server.clients.registry.is(readiness, busy_after_ms);
        if self.server.switches.pauses_cron {
            // Clients that wait for the disk or for room must not wait for ever.
            self.server.maintain_journal();
            self.server.clients.make_room(
                &mut self.server.meters.stats,
                self.server.persistence.reach(&self.server.config),
                self.server.time.clock.steady_ms(),
            );
            return false;
        }
        let began_ticks = self.server.meters.stats.clock.raw();
        let steady_ms = self.server.time.clock.steady_ms();
        self.server.meters.stats.processed =
            self.server.meters.stats.commands.iter().map(|command| command.calls).sum();
        let turns = Arc::clone(&self.server.network.turns);
        self.server.meters.stats.sample(steady_ms, &turns);
        self.server.memory.peak_bytes = self.server.memory.peak_bytes.max(allocated_bytes());
        self.give_back_scratch();
        self.server.memory.freed.give_back(steady_ms);
        self.server.maintain_journal();
        self.server.persist(&mut self.ks, |persistence, ks, env| persistence.begin_due_snapshot(ks, env));
        self.server.clients.close_idle(&self.server.config, &self.server.meters.stats, self.server.persistence.safe());
        self.server.clients.check_soft_limits(
            &self.server.config,
            &mut self.server.meters.stats,
            self.server.persistence.reach(&self.server.config),
            self.server.time.clock.steady_ms(),
        );
        let (sessions, steady_ms) = (&self.server.clients.sessions, self.server.time.clock.steady_ms());
        self.server.persistence.tidy_feeds(steady_ms, |key| sessions.get(key).is_some());
        self.server.delivery().maintain_tracking_table();
        if self.server.config.tls_auto_reload_interval_s > 0
            && let Some(network) = &mut self.server.network.listeners
        {
            network.follow_files(&self.server.config, steady_ms);
        }
        self.server.meters.end_hotkeys_if_due(&self.server.config, &self.server.time.clock);
        self.server.clients.make_room(
            &mut self.server.meters.stats,
            self.server.persistence.reach(&self.server.config),
            steady_ms,
        );
        self.server.meters.stats.tick_ticks += self.server.meters.stats.clock.raw().saturating_sub(began_ticks);
        self.reclaim()
    }

    /// Does the next slice of a snapshot, between two units. Returns whether there is more to do at once; if not, the
    /// task that calls this is woken when there is.
    pub fn save_slice(&mut self) -> bool {
        if let Some(reload) = self.server.persistence.saving.reload.take() {
            self.reload(&reload);
        }
        let more = self.server.persist(&mut self.ks, |persistence, ks, env| {
            persistence.follow_feeds(env.clock.steady_ms());
            persistence.save_slice(ks, env)
        });
        self.server.go_on_ending(&self.ks);
        more
    }

    /// Frees the memory of reused buffers, so that a quiet server holds none of it.
    fn give_back_scratch(&mut self) {
        self.batch = None;
        self.ks.give_back_scratch(self.server.persistence.safe());
        self.server.persistence.give_back_buffers();
        let ServerState { programs, meters, clients, waits, .. } = &mut self.server;
        clients.sessions.give_back();
        clients.registry.give_back();
        waits.give_back();
        programs.scripts.give_back_scratch();
        meters.stats.scripts.forget_gone(programs.scripts.programs_len(), programs.scripts.programs());
    }

    /// Removes one slice of expired keys, of keys to evict and of the garbage of scripts, and shortens leases that are
    /// too long. Returns whether there may be more.
    pub fn reclaim(&mut self) -> bool {
        self.cut_long_leases();
        let more_keys = self.reclaim_expired();
        let more_to_evict = self.evict_slice();
        let more_garbage = self.server.programs.scripts.tidy();
        more_keys || more_to_evict || more_garbage
    }
}
