//! CLIENT PAUSE: the pauses in force, and the sessions that wait for their end. [`crate::engine::run::postpone`]
//! applies a pause to commands.
//!
//! There are two reasons for a pause: a client asked for one, or the server is about to end. Both hold independently,
//! and the stricter one counts. A command that a pause holds up stays unread in its connection's input, and its session
//! is *postponed*: none of its commands runs until the pause is over. Then the postponed sessions go on in the order in
//! which they were postponed.

use std::collections::VecDeque;

use crate::spec::session_key::SessionKey;

/// The commands that a pause holds up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Paused {
    /// None: there is no pause.
    #[default]
    Nothing,
    /// Commands that may change something.
    Writes,
    /// All commands.
    All,
}

/// See the module's header.
#[derive(Debug, Default)]
pub struct Pause {
    /// The pause of CLIENT PAUSE and its end, by the steady clock.
    by_client: Option<(Paused, i64)>,
    /// Whether the server is about to end, which pauses writes.
    by_ending: bool,
    /// The postponed sessions, in the order in which they were postponed.
    postponed: VecDeque<SessionKey>,
}

impl Pause {
    /// The commands held up now.
    pub fn paused(&self) -> Paused {
        let by_client = self.by_client.map_or(Paused::Nothing, |(paused, _)| paused);
        if self.by_ending { by_client.max(Paused::Writes) } else { by_client }
    }

    /// Whether there is a pause.
    #[inline]
    pub fn is_on(&self) -> bool {
        self.by_ending || self.by_client.is_some()
    }

    /// Begins a client's pause until `until_ms`, by the steady clock. An earlier pause gets neither shorter nor milder.
    pub(crate) fn begin(&mut self, paused: Paused, until_ms: i64) {
        let (before, until_before_ms) = self.by_client.unwrap_or((paused, until_ms));
        self.by_client = Some((paused.max(before), until_ms.max(until_before_ms)));
    }

    /// Ends the pause that a client has asked for.
    pub(crate) fn end(&mut self) {
        self.by_client = None;
    }

    /// When the client's pause ends by itself, by the steady clock.
    pub(crate) fn ends_ms(&self) -> Option<i64> {
        self.by_client.map(|(_, until_ms)| until_ms)
    }

    /// Sets whether the server is about to end.
    pub(crate) fn set_ending(&mut self, is_ending: bool) {
        self.by_ending = is_ending;
    }

    /// How many sessions are postponed.
    pub fn postponed(&self) -> usize {
        self.postponed.len()
    }

    /// Postpones a session.
    pub(crate) fn postpone(&mut self, session: SessionKey) {
        self.postponed.push_back(session);
    }

    /// Forgets a postponed session, if it is one.
    pub(crate) fn forget(&mut self, session: SessionKey) {
        self.postponed.retain(|postponed| *postponed != session);
    }

    /// Takes all postponed sessions, in the order in which they were postponed.
    pub(crate) fn take_postponed(&mut self) -> VecDeque<SessionKey> {
        std::mem::take(&mut self.postponed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_pause_makes_the_first_neither_shorter_nor_milder() {
        let mut pause = Pause::default();
        assert_eq!((pause.paused(), pause.is_on(), pause.ends_ms()), (Paused::Nothing, false, None));
        pause.begin(Paused::Writes, 100);
        pause.begin(Paused::Writes, 50);
        assert_eq!((pause.paused(), pause.ends_ms()), (Paused::Writes, Some(100)));
        pause.begin(Paused::All, 50);
        pause.begin(Paused::Writes, 200);
        assert_eq!((pause.paused(), pause.ends_ms()), (Paused::All, Some(200)));
        pause.set_ending(true);
        pause.end();
        assert_eq!((pause.paused(), pause.is_on(), pause.ends_ms()), (Paused::Writes, true, None));
        pause.set_ending(false);
        assert!(!pause.is_on());
    }
}
