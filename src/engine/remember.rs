//! What goes into the [history](super::history): what a unit has done to grants, and which calls were refused.

use super::coordination_stats::CoordinationStats;
use super::history::{Client, Past, Refusal, What};
use super::session::{Session, SessionKey};
use super::state::{Ctx, ServerState};
use super::tail::UnitOrigin;
use super::wait::Parked;
use crate::base::key_prefixes::KeyPrefixes;
use crate::keyspace::Keyspace;
use crate::keyspace::effect::{Family, Turn};
use crate::resp::request::Argv;

impl Ctx<'_> {
    /// Counts and remembers that this call is refused.
    pub(crate) fn remember_refusal(&mut self, refusal: Refusal<'_>) {
        let Refusal { family, key, subject, reason, in_use, limit } = refusal;
        self.count_refusal(family, key);
        let what = What::Refused { command: self.name(), reason, in_use, limit };
        let (at_ms, db, client) = (self.now_ms(), self.db(), Client::of(self.session));
        self.server.history.add(Past { id: 0, at_ms, what, db, key, subject, note: b"", client });
    }

    /// Counts that this call is refused by a key.
    pub(crate) fn count_refusal(&mut self, family: Family, key: &[u8]) {
        let group = self.ks.counted_prefixes().group_of(key);
        self.server.stats.coordination.of(family, group).refusals += 1;
    }
}

impl ServerState {
    /// Counts by the prefixes that the configuration names, from nothing on.
    pub(crate) fn key_prefixes_changed(&mut self, ks: &mut Keyspace) {
        ks.count_by(KeyPrefixes::new(self.config.metrics_key_prefixes.iter().map(String::as_bytes)));
        self.stats.coordination = CoordinationStats::default();
    }

    /// Counts and remembers what has become of grants in a unit that has ended. `out` are the sessions that are out of the registry: first the one
    /// whose command it was.
    #[inline(never)]
    pub(super) fn remember_grants(&mut self, origin: UnitOrigin, ks: &Keyspace, out: &[&mut Session]) {
        self.stats.coordination.add_all(ks.effects().tallies());
        if ks.effects().grant_turns().next().is_none() {
            // What limiters have granted leaves nothing to remember.
            return;
        }
        // What is evicted is nobody's doing, whose command it was that found no room.
        let by = out
            .first()
            .filter(|_| origin != UnitOrigin::Eviction)
            .map_or(Client::default(), |session| Client::of(session));
        for (_, turn) in ks.effects().grant_turns() {
            let client = if turn.turn == Turn::Expired { Client::default() } else { by };
            let what = What::Turn { turn: turn.turn, token: turn.token, units: turn.units };
            let (at_ms, subject) = (ks.now_ms(), turn.holder);
            let (db, key, note) = (turn.db, turn.key, turn.note);
            self.history.add(Past { id: 0, at_ms, what, db, key, subject, note, client });
        }
    }

    /// Who is to hold the place that a call waits for.
    pub(crate) fn waiting_holder<'p>(&self, parked: &'p Parked) -> &'p [u8] {
        let (argv, _) = self.innermost(parked);
        argv.get(2).unwrap_or_default()
    }

    /// The call that waits: of commands that run another one, that one, and its name.
    fn innermost<'p>(&self, parked: &'p Parked) -> (Argv<'p>, &'static str) {
        let (mut argv, mut entry) = (parked.argv.as_argv(), self.table.by_id(parked.command));
        while let Some(at) = entry.command.inner.and_then(|find| find(argv))
            && let Some(inner) = self.table.named_by(argv.skip(at))
        {
            (argv, entry) = (argv.skip(at), inner);
        }
        (argv, &entry.full_name)
    }

    /// Remembers that a call has waited for a place in vain, and not only because its client leaves.
    pub(crate) fn remember_timeout(&mut self, session: SessionKey, at_ms: i64) {
        let Some(session) = self.sessions.get(session).filter(|session| !session.is_leaving()) else { return };
        let Some(parked) = session.parked.as_deref() else { return };
        let Some((key, reason)) = parked.keys.as_argv().iter().next().zip(parked.in_vain) else { return };
        let (_, command) = self.innermost(parked);
        let what = What::Refused { command, reason, in_use: -1, limit: -1 };
        let (db, subject, client) = (parked.db, self.waiting_holder(parked), Client::of(session));
        self.history.add(Past { id: 0, at_ms, what, db, key, subject, note: b"", client });
    }
}
