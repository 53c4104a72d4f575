//! What goes into the [history](super::history): what a unit has done to grants, and which calls were refused.

use super::history::{Client, Past, Refusal, What};
use super::session::{Session, SessionKey};
use super::state::{Ctx, ServerState};
use super::wait::Parked;
use crate::keyspace::Keyspace;
use crate::keyspace::effect::Turn;

impl Ctx<'_> {
    /// Remembers that this call is refused.
    pub(crate) fn remember_refusal(&mut self, refusal: Refusal<'_>) {
        let Refusal { key, subject, reason, in_use, limit } = refusal;
        let what = What::Refused { command: self.name(), reason, in_use, limit };
        let (at_ms, db, client) = (self.now_ms(), self.db(), Client::of(self.session));
        self.server.history.add(Past { id: 0, at_ms, what, db, key, subject, note: b"", client });
    }
}

impl ServerState {
    /// Remembers what has become of grants in a unit that has ended. `out` are the sessions that are out of the registry: first the one
    /// whose command it was.
    #[inline(never)]
    pub(super) fn remember_grants(&mut self, ks: &Keyspace, out: &[&mut Session]) {
        let by = out.first().map_or(Client::default(), |session| Client::of(session));
        for turn in ks.effects().grant_turns() {
            let client = if turn.turn == Turn::Expired { Client::default() } else { by };
            let what = What::Turn { turn: turn.turn, token: turn.token, units: turn.units };
            let (at_ms, subject) = (ks.now_ms(), turn.holder);
            let (db, key, note) = (turn.db, turn.key, turn.note);
            self.history.add(Past { id: 0, at_ms, what, db, key, subject, note, client });
        }
    }

    /// Who is to hold the place that a call waits for.
    pub(crate) fn waiting_holder<'p>(&self, parked: &'p Parked) -> &'p [u8] {
        let argv = parked.argv.as_argv();
        // The call may be that of another command, which GUARD or ONCE runs.
        let inner = self.table.by_id(parked.command).command.inner.and_then(|find| find(argv));
        argv.get(inner.unwrap_or(0) + 2).unwrap_or_default()
    }

    /// Remembers that a call has waited for a place in vain.
    pub(super) fn remember_timeout(&mut self, session: SessionKey, at_ms: i64) {
        let Some(session) = self.sessions.get(session) else { return };
        let Some(parked) = session.parked.as_deref() else { return };
        let Some((key, reason)) = parked.keys.as_argv().iter().next().zip(parked.in_vain) else { return };
        let command = &self.table.by_id(parked.command).full_name;
        let what = What::Refused { command, reason, in_use: -1, limit: -1 };
        let (db, subject, client) = (parked.db, self.waiting_holder(parked), Client::of(session));
        self.history.add(Past { id: 0, at_ms, what, db, key, subject, note: b"", client });
    }
}
