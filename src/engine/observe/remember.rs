//! Fills the [history](super::history) with the changes of grants by units, and with refused calls.

use super::history::{Client, Past, Refusal, What, split_note};
use crate::base::key_prefixes::KeyPrefixes;
use crate::config::Config;
use crate::engine::limits::HISTORY_NAME_MAX_BYTES;
use crate::engine::observe::audience::Audience;
use crate::engine::state::{CommandTable, Ctx};
use crate::keyspace::Keyspace;
use crate::keyspace::effect::{Family, Turn};
use crate::keyspace::limits::DEAD_LETTER_MAX_HOPS;
use crate::meters::Meters;
use crate::meters::stats::Stats;
use crate::persist::tail::UnitOrigin;
use crate::resp::request::{Argv, abridge};
use crate::session::{Session, Sessions};
use crate::wait::wait_queues::Parked;

impl Ctx<'_> {
    /// Counts and remembers a refusal.
    pub(crate) fn remember_refusal(&mut self, refusal: Refusal<'_>) {
        let Refusal { family, key, subject, reason, in_use, limit } = refusal;
        self.count_refusal(family, key);
        let what = What::Refused { command: self.name(), reason, in_use, limit };
        let (at_ms, db, client) = (self.now_ms(), self.db(), Client::of(self.session));
        self.server.audience.history.add(Past { id: 0, at_ms, what, db, key, subject, note: b"", client });
    }

    /// Counts a refusal by a key.
    pub(crate) fn count_refusal(&mut self, family: Family, key: &[u8]) {
        let group = self.ks.counted_prefixes().group_of(key);
        self.server.meters.stats.coordination.of(family, group).refusals += 1;
    }
}

impl Audience {
    /// Counts and remembers the changes of grants by a finished unit. `out` are the sessions that are out of the
    /// registry, first the one whose command it was.
    #[inline(never)]
    pub(in crate::engine) fn remember_grants(
        &mut self,
        stats: &mut Stats,
        origin: UnitOrigin,
        ks: &Keyspace,
        out: &[&mut Session],
    ) {
        stats.coordination.add_all(ks.effects().tallies());
        if ks.effects().grant_turns().next().is_none() {
            // Grants of limiters are not remembered.
            return;
        }
        // An eviction is not attributed to the client whose command found no room.
        let by = out
            .first()
            .filter(|_| origin != UnitOrigin::Eviction)
            .map_or(Client::default(), |session| Client::of(session));
        let mut is_circle = false;
        for (_, turn) in ks.effects().grant_turns() {
            is_circle |= turn.turn == Turn::DeadLetterStays;
            let client = if turn.turn == Turn::Expired { Client::default() } else { by };
            let what = What::Turn { turn: turn.turn, token: turn.token, units: turn.units };
            let (at_ms, subject) = (ks.now_ms(), turn.holder);
            let (db, key, note) = (turn.db, turn.key, turn.note);
            self.history.add(Past { id: 0, at_ms, what, db, key, subject, note, client });
        }
        if is_circle {
            warn_of_circle(ks);
        }
    }
}

impl Meters {
    /// Starts the counts anew, by the prefixes that the configuration names.
    pub(crate) fn key_prefixes_changed(&mut self, config: &Config, ks: &mut Keyspace) {
        ks.count_by(KeyPrefixes::new(config.metrics_key_prefixes.iter().map(String::as_bytes)));
        self.stats.coordination.reset();
    }
}

impl Parked {
    /// The holder for whom the call waits for a place.
    pub(crate) fn holder(&self, table: &'static CommandTable) -> &[u8] {
        let (argv, _) = self.innermost(table);
        argv.get(2).unwrap_or_default()
    }

    /// Returns the waiting call and its name: the inner one for commands that run another.
    fn innermost(&self, table: &'static CommandTable) -> (Argv<'_>, &'static str) {
        let (mut argv, mut entry) = (self.argv.as_argv(), table.by_id(self.command));
        while let Some(at) = entry.command.inner.and_then(|find| find(argv))
            && let Some(inner) = table.named_by(argv.skip(at))
        {
            (argv, entry) = (argv.skip(at), inner);
        }
        (argv, &entry.full_name)
    }
}

impl Audience {
    /// Counts and remembers that a call waited for a place in vain, unless only its client leaves.
    pub(crate) fn remember_timeout(
        &mut self,
        stats: &mut Stats,
        table: &'static CommandTable,
        sessions: &Sessions,
        ks: &Keyspace,
        parked: &Parked,
    ) {
        let Some(session) = sessions.get(parked.session).filter(|session| !session.is_leaving()) else {
            return;
        };
        let Some((key, counted)) = parked.keys.as_argv().iter().next().zip(parked.counted) else { return };
        stats.coordination.of(counted.family, ks.counted_prefixes().group_of(key)).refusals += 1;
        let (_, command) = parked.innermost(table);
        let (at_ms, what) = (ks.now_ms(), What::Refused { command, reason: parked.in_vain, in_use: -1, limit: -1 });
        let (db, subject, client) = (parked.db, parked.holder(table), Client::of(session));
        self.history.add(Past { id: 0, at_ms, what, db, key, subject, note: b"", client });
    }
}

/// Warns of messages that were passed from one stream of dead letters to the next too often; once per unit, which may
/// have many.
#[cold]
fn warn_of_circle(ks: &Keyspace) {
    let mut staying = ks.effects().grant_turns().filter(|(_, turn)| turn.turn == Turn::DeadLetterStays);
    let Some((_, first)) = staying.next() else { return };
    let (message, group) = split_note(first.note);
    tracing::warn!(
        db = first.db,
        stream = %abridged(first.key),
        group = %abridged(group),
        message = %abridged(message),
        others = staying.count(),
        "dead letters stay where they are: they have moved {DEAD_LETTER_MAX_HOPS} times already. Check whether streams \
         are each other's DLQ; XDLQ.REDRIVE puts them back"
    );
}

/// A name for a line of the text log, readable and short.
fn abridged(name: &[u8]) -> String {
    abridge(name, HISTORY_NAME_MAX_BYTES).escape_ascii().to_string()
}
