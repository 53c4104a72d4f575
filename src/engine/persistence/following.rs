//! The engine of a node in a group: it follows the orders of consensus.
//!
//! While the node leads, the engine executes commands as that of a single server does, and the group commits what it
//! hands over. Otherwise it applies what others have executed. Nothing else changes its data then: no key expires, no
//! key is evicted and no client writes.
//!
//! **The end of a reign.** All clients are disconnected, and no reply that was held leaves. What was executed and not
//! given back as committed may be part of the group's log or not. If the next blocks that the group commits are these,
//! the data is right as it is, as after a planned transfer. At the first other block, or after a while without any, the
//! data is loaded again from this node's disk, up to the last block that was given back.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::handover::Kind;
use super::recovery::Loading;
use crate::base::hasher::hash_bytes;
use crate::base::lsn::Lsn;
use crate::base::rng::Rng;
use crate::consensus::output::{Order, Why};
use crate::engine::Engine;
use crate::engine::limits::{LOAD_AHEAD_KEYS, RECOVERY_SLICE_BYTES};
use crate::engine::state::ServerState;
use crate::keyspace::effect::EffectReader;
use crate::keyspace::{DbIndex, Misfit};
use crate::log::block::{HEAD_BYTES, Unit as LogUnit, Units};
use crate::log::directory::Directory;
use crate::log::planted::{self, Bug};
use crate::log::replicated::block::Block;
use crate::log::replicated::types::{Position, Term};
use crate::log::restore::Restore;
use crate::node::door::Door;
use crate::node::thread::NodeThread;
pub(crate) use crate::persist::error::RecoveryError;
use crate::persist::group::{Given, GroupLog};
use crate::persist::handover::Handover;
use crate::persist::journal::{Journal, Keeper};
use crate::persist::saving::Progress;
use crate::persist::tail::{Tail, UnitOrigin};
use crate::session::Service;
use crate::spec::session_key::SessionKey;

/// How long a node that was deposed waits for the fate of what it has executed. Until its data is what the group has
/// committed, it can't lead, and perhaps no other can, either.
const RESOLVE_MAX: Duration = Duration::from_millis(100);

/// Makes an engine follow the orders of its node. See the module's header.
pub(crate) struct Following {
    directory: Arc<Directory>,
    /// The data that is being loaded, and the entry that it ends at.
    loading: Option<(Loading, Position)>,
    /// A load was given up, and the next order loads other data.
    will_load: bool,
    /// When the data is loaded again if the fate of what was executed is still unknown, by the steady clock.
    resolve_at: Option<Duration>,
    /// The last order that was followed, and the last one that the node was told of.
    followed: u64,
    told: u64,
    /// Bytes of data to take between other work.
    slice_bytes: usize,
    /// An order could not be followed. The server ends; until then, nothing is followed any more.
    has_failed: bool,
    /// Ends with this. A simulation of nodes has no threads.
    _node: Option<NodeThread>,
}

impl Following {
    /// Makes `engine` that of a node. It has no data, and lets no client in, before the first order.
    pub(crate) fn begin(
        engine: &mut Engine,
        directory: Arc<Directory>,
        door: Arc<Door>,
        node: Option<NodeThread>,
    ) -> Following {
        let group = Keeper::Group(Box::new(GroupLog::new(door, engine.server.time.clock.steady())));
        engine.server.persistence.journal = Some(Journal::new(group, Lsn::NONE));
        engine.server.want_copies();
        engine.role_changed();
        engine.server.set_loading(Some(nothing_yet()));
        let (loading, will_load, resolve_at, followed, told, has_failed) = Default::default();
        let slice_bytes = RECOVERY_SLICE_BYTES;
        Following { directory, loading, will_load, resolve_at, followed, told, slice_bytes, has_failed, _node: node }
    }

    /// Makes the slices smaller than they are on a server.
    #[cfg(test)]
    pub(crate) fn set_slice_bytes(&mut self, bytes: usize) {
        self.slice_bytes = bytes;
    }

    /// Follows the orders that the node has given so far, a slice of them. Returns whether there are more.
    pub(crate) fn step(&mut self, engine: &mut Engine) -> Result<bool, RecoveryError> {
        engine.server.follow_journal();
        if let Some(failure) = engine.group().and_then(|group| group.failure()) {
            let failure = failure.to_owned();
            self.has_failed = true;
            return Err(RecoveryError::Node(failure));
        }
        if let Some(group) = engine.group() {
            group.engine_is_here();
        }
        if self.has_failed {
            return Ok(false);
        }
        let more = self.follow_orders(engine).inspect_err(|_| self.has_failed = true)?;
        engine.server.follow_feeds();
        engine.server.watch_group();
        if self.is_settled() && self.told < self.followed {
            self.told = self.followed;
            if let Some(group) = engine.group() {
                group.handled(self.told);
            }
        }
        engine.watch_followers();
        engine.give_up_overdue();
        if let Some((client, outcome)) = engine.group().and_then(GroupLog::take_answer) {
            let outcome = outcome.map_err(|refusal| refusal.to_string());
            engine.server.persist(&mut engine.ks, |persistence, _, _| persistence.news.tell([client], &outcome));
        }
        if engine.group().is_some_and(|group| group.has_awaited()) {
            (engine.server.persistence.saving.wake)();
        }
        if engine.group().is_some_and(GroupLog::take_wants_snapshot) {
            engine.server.persist(&mut engine.ks, |persistence, _, env| persistence.save_for_group(env));
        }
        Ok(more)
    }

    fn follow_orders(&mut self, engine: &mut Engine) -> Result<bool, RecoveryError> {
        let mut bytes = 0;
        while bytes < self.slice_bytes {
            if let Some((mut loading, at)) = self.loading.take() {
                match loading.step(engine, self.slice_bytes) {
                    Ok(progress) if !progress.is_complete => {
                        self.loading = Some((loading, at));
                        return Ok(true);
                    }
                    Ok(_) => {}
                    Err(error) => {
                        self.give_up_load(engine, error)?;
                        continue;
                    }
                }
                let time_ms = loading.finish_for_group(engine, at.link.lsn);
                engine.server.time.clock.not_before(time_ms);
                if let Some(group) = engine.group() {
                    group.note_time(time_ms);
                }
                self.show(engine);
            }
            if self.resolve_at.is_some_and(|at| at <= engine.server.time.clock.steady()) {
                let at = engine.group().map_or(Position::default(), |group| group.position());
                self.load(engine, at)?;
                continue;
            }
            let Some((number, order)) = engine.group().and_then(GroupLog::take_order) else { return Ok(false) };
            self.followed = number;
            bytes += self.follow(engine, order)?;
        }
        Ok(true)
    }

    /// Follows an order. Returns the bytes that it counts for.
    fn follow(&mut self, engine: &mut Engine, order: Order) -> Result<usize, RecoveryError> {
        match order {
            Order::Load(mark) => {
                self.load(engine, mark.at)?;
                if let Some(group) = engine.group() {
                    group.changed(mark.at, mark.members);
                }
            }
            Order::Apply { at, block } => {
                self.take(engine, at, &block)?;
                return Ok(block.body().len());
            }
            Order::Members { at, members } => {
                if let Some(group) = engine.group() {
                    group.changed(at, members);
                }
            }
            Order::Lead(_) if !self.is_settled() => return Err(RecoveryError::Unresolved),
            Order::Lead(term) => engine.lead(term),
            Order::Deposed { term, why } => {
                engine.deposed(term, why);
                self.settle(engine);
            }
        }
        Ok(0)
    }

    fn take(&mut self, engine: &mut Engine, at: Position, block: &Block) -> Result<(), RecoveryError> {
        let Some(journal) = &mut engine.server.persistence.journal else { return Ok(()) };
        match journal.given(at, block) {
            Given::Own => self.settle(engine),
            Given::New => engine.apply_block(block)?,
            // The block is on this node's disk, too, so it is loaded together with those before it.
            Given::Fork if planted::is(Bug::NoReload) => self.settle(engine),
            Given::Fork => self.load(engine, at)?,
        }
        Ok(())
    }

    /// Looks whether the data is what the group has committed, and if not, until when to wait for that.
    fn settle(&mut self, engine: &mut Engine) {
        let is_ahead = engine.group().is_some_and(|group| group.is_ahead() && !group.leads());
        self.resolve_at = match self.resolve_at {
            _ if !is_ahead => None,
            None => Some(engine.server.time.clock.steady() + RESOLVE_MAX),
            known => known,
        };
        self.show(engine);
    }

    /// Drops all data, and begins to load that of the group up to an entry.
    fn load(&mut self, engine: &mut Engine, at: Position) -> Result<(), RecoveryError> {
        engine.drop_data()?;
        if let Some(journal) = &mut engine.server.persistence.journal {
            journal.loaded(at);
        }
        (self.resolve_at, self.will_load) = (None, false);
        let restore = Restore::open_until(Arc::clone(&self.directory), at.link.lsn);
        match restore.map_err(RecoveryError::from).and_then(|restore| Loading::begin_from(engine, restore)) {
            Ok(loading) => {
                self.loading = Some((loading, at));
                self.show(engine);
                Ok(())
            }
            Err(error) => self.give_up_load(engine, error),
        }
    }

    /// Gives up a load that has failed. That is no fault if a newer snapshot has taken the place of the files: it is
    /// loaded next, and the orders before it would find no data.
    fn give_up_load(&mut self, engine: &mut Engine, error: RecoveryError) -> Result<(), RecoveryError> {
        // The order may have come just now.
        engine.server.follow_journal();
        self.will_load = engine.group().is_some_and(GroupLog::pass_over_to_load);
        self.show(engine);
        if self.will_load { Ok(()) } else { Err(error) }
    }

    /// Whether the data is what the group has committed, apart from the blocks of an open reign.
    fn is_settled(&self) -> bool {
        self.loading.is_none() && self.resolve_at.is_none() && !self.will_load
    }

    /// Lets clients in only while the data is settled.
    fn show(&self, engine: &mut Engine) {
        let is_loading = !self.is_settled();
        if is_loading != engine.server.persistence.loading.is_some() {
            engine.server.set_loading(is_loading.then(nothing_yet));
            // A snapshot may have been scheduled meanwhile.
            (engine.server.persistence.saving.wake)();
        }
    }
}

impl Engine {
    /// Begins a reign: from here on clients' changes are handed to the group.
    fn lead(&mut self, term: Term) {
        tracing::info!("this node leads its group, in term {term}");
        if let Some(group) = self.group() {
            let time_ms = group.lead(term);
            self.server.time.clock.begin_at(time_ms);
        }
        self.server.want_copies();
        self.server.set_tail(Some(Tail::new(vec![0; HEAD_BYTES])));
        self.role_changed();
        self.begin_own_time();
    }

    /// Ends a reign: no reply leaves any more, apart from those that may leave already, and no client stays.
    fn deposed(&mut self, term: Term, why: Why) {
        tracing::warn!("this node does not lead its group any more, in term {term}: {why}");
        self.server.with_raw_sockets(|sockets, server| sockets.send_unsent(server));
        // Nobody takes these units any more. But they are executed, so they count as the others that may be lost.
        if !planted::is(Bug::KeepsUnproposed) {
            self.server.persistence.hand_over_tail();
        }
        let now = self.server.time.clock.steady();
        if let Some(group) = self.group() {
            group.deposed(why, now);
        }
        self.server.set_tail(None);
        self.server.disconnect_all();
        self.server.programs.scripts.set_memory_limit(0);
        self.role_changed();
    }

    /// Applies the units of a block that another node has executed.
    fn apply_block(&mut self, block: &Block) -> Result<(), RecoveryError> {
        // Replayed units have their own time.
        self.server.time.expire_clock_reading();
        self.server.time.clock.not_before(block.time_ms);
        self.ks.set_now_ms(block.time_ms);
        let (mut ahead, mut units) = (block.units(), block.units());
        let mut keys = Vec::with_capacity(LOAD_AHEAD_KEYS);
        loop {
            // Each lookup alone would wait for memory, which is most of what it takes to apply a unit.
            let together = hash_keys(&mut ahead, &mut keys);
            self.ks.warm(keys.iter().copied());
            for unit in units.by_ref().take(together) {
                self.apply_unit(&unit)?;
            }
            if together == 0 {
                return Ok(());
            }
        }
    }

    fn apply_unit(&mut self, unit: &LogUnit<'_>) -> Result<(), RecoveryError> {
        let whose = Kind::of(&self.server.persistence.handover);
        let open = self.begin(UnitOrigin::of(unit.origin));
        for (index, (db, effect)) in EffectReader::new(unit.effects).enumerate() {
            let misfit = |what: Misfit| RecoveryError::GroupMisfit { lsn: unit.lsn, index, what: what.to_string() };
            self.apply(db, &effect).map_err(misfit)?;
        }
        self.commit(open, &mut []);
        self.server.follow_handover(&self.ks, whose);
        // Reads may wait here, too.
        self.wake(None);
        Ok(())
    }

    /// Drops all keys, scripts and libraries.
    fn drop_data(&mut self) -> Result<(), RecoveryError> {
        let (config, clock) = (self.server.config.clone(), self.server.time.clock.clone());
        let rng = Rng::seeded(self.ks.rng.next_u64());
        let empty = Engine::new(config, self.server.table, clock, rng);
        let empty = empty.map_err(|error| RecoveryError::Unsaved(error.to_string()))?;
        // Their watches, caches and waiting calls are about keys that are gone.
        self.server.disconnect_all();
        // A snapshot in progress can't go on with other tables.
        self.server.persist(&mut self.ks, |persistence, _, _| persistence.cancel_save());
        self.ks.take_over(empty.ks);
        // Replies need not wait for units that are forgotten.
        self.ks.forget_in_flight();
        if !planted::is(Bug::KeepsTokens) {
            self.ks.forget_tokens();
        }
        self.server.programs.scripts.take_over(empty.server.programs.scripts);
        self.server.persistence.handover = Handover::default();
        // Scripts are counted by their places in a Lua state that is gone.
        self.server.meters.stats.scripts.reset();
        Ok(())
    }

    /// Looks whether enough nodes follow for changes to be admitted.
    fn watch_followers(&mut self) {
        let was_short = self.server.persistence.is_short_of_followers(&self.server.config);
        self.server.want_copies();
        let is_short = self.server.persistence.is_short_of_followers(&self.server.config);
        if is_short != was_short {
            match is_short {
                true => {
                    tracing::error!("fewer nodes follow than `min-replicas-to-write` asks for: changes are refused")
                }
                false => tracing::warn!("enough nodes follow again: changes are accepted"),
            }
            self.server.clients.set_short_of_followers(is_short);
        }
    }

    /// Disconnects the clients whose replies have waited for the group for longer than `quorum-wait`.
    fn give_up_overdue(&mut self) {
        let wait_ms = i64::try_from(self.server.config.quorum_wait_ms).unwrap_or(i64::MAX);
        let now_ms = self.server.time.clock.steady_ms();
        let Some((lsn, round)) = self.group().and_then(|group| group.overdue(now_ms, wait_ms)) else { return };
        let safe = self.server.persistence.safe();
        let journal = self.server.persistence.journal.as_ref();
        let is_confirmed = |round| journal.and_then(Journal::member).is_none_or(|group| group.is_confirmed(round));
        let mut given_up = Vec::new();
        for session in self.server.clients.sessions.iter_mut().filter(|session| !session.is_killed()) {
            let waits_for_unit = session.outbox.waits_for().is_some_and(|fence| fence > safe && fence <= lsn);
            let first = session.rounds.first();
            if waits_for_unit || first > 0 && first <= round && !is_confirmed(first) {
                given_up.push(session.key);
            }
        }
        if !given_up.is_empty() {
            tracing::warn!("the group takes longer than `quorum-wait`: {} clients are disconnected", given_up.len());
        }
        self.server.close_at_once(given_up);
    }

    /// Applies a change of the role to all sessions.
    fn role_changed(&mut self) {
        self.server.role_changed();
        self.server.readers_changed();
    }

    fn group(&mut self) -> Option<&mut GroupLog> {
        self.server.persistence.journal.as_mut().and_then(Journal::group)
    }
}

impl ServerState {
    /// Disconnects the clients of a leader that was deposed while a script keeps the engine busy: nobody else would
    /// tell them for as long as that runs.
    pub(in crate::engine) fn leave_if_deposed(&mut self) {
        let group = self.persistence.journal.as_ref().and_then(Journal::member);
        if group.is_some_and(GroupLog::is_deposed_unheard) {
            self.disconnect_all();
        }
    }

    /// Disconnects all clients of the data. Nothing is sent any more: what they wait for may never have happened.
    fn disconnect_all(&mut self) {
        let sessions = self.clients.sessions.iter().filter(|session| session.service == Service::Data);
        let keys = sessions.map(|session| session.key).collect();
        self.close_at_once(keys);
    }

    fn close_at_once(&mut self, keys: Vec<SessionKey>) {
        for key in keys {
            if let Some(session) = self.clients.sessions.get_mut(key) {
                session.close_at_once();
            }
            self.connections().kill(key);
        }
    }
}

/// Puts into `keys` the hashes of the keys of the next units, about [`LOAD_AHEAD_KEYS`] of them. Returns the number of
/// these units.
fn hash_keys(units: &mut Units<'_>, keys: &mut Vec<(DbIndex, u64)>) -> usize {
    keys.clear();
    let mut count = 0;
    while keys.len() < LOAD_AHEAD_KEYS
        && let Some(unit) = units.next()
    {
        count += 1;
        let hashed = EffectReader::new(unit.effects).filter_map(|(db, effect)| Some((db, hash_bytes(effect.key()?))));
        keys.extend(hashed.take(LOAD_AHEAD_KEYS));
    }
    count
}

/// The progress of a load that has just begun.
fn nothing_yet() -> Progress {
    Progress { began: Instant::now(), read: 0, all: 1, is_complete: false }
}
