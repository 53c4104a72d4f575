//! The door between a connection and its session: bytes in, bytes out, and how the connection goes on.
//!
//! A connection owns a socket and moves bytes. The session owns the replies and decides. A socket is served either by
//! its own task or, while a script holds the thread, by the raw poller. Both use the calls below, so that they decide
//! alike, and neither reads or sets a field of the session:
//!
//! 1. [`Session::received`] counts input. [`Engine::feed`](crate::engine::Engine::feed) runs its commands, and
//!    [`Session::reply`] takes over their replies.
//! 2. [`ServerState::sendable`](crate::engine::ServerState::sendable) returns how many bytes may leave now, and
//!    [`Session::unsent`] shows them.
//! 3. [`Session::sent`] drops the bytes that the socket has taken, and
//!    [`ServerState::account_for_unsent`](crate::engine::ServerState::account_for_unsent) accounts for the rest.
//! 4. The [`Course`] says how the connection goes on.
//!
//! A connection that has nothing to do leaves its waker with [`Session::wake_by`].

use std::task::Waker;

use super::clients::Clients;
use super::{Closing, HeldUp, Restrictions, Session};
use crate::base::lsn::Lsn;
use crate::meters::stats::Stats;
use crate::resp::reply::Reply;
use crate::session::limits::{OUTBOX_PAUSE_BYTES, OUTBOX_TAKE_OVER_BYTES, TRANSFER_AHEAD_BYTES};
use crate::spec::session_key::SessionKey;

/// How a connection goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Course {
    /// It reads, and the commands run.
    Run,
    /// It reads, and keeps the input: the next command must wait.
    Keep,
    /// It only writes. Either the client must read some of its replies first, or the session is closed once they are
    /// sent.
    WriteOnly,
    /// It is closed now.
    Close,
}

impl Session {
    /// How the connection goes on, as far as the session alone decides.
    #[inline]
    pub fn course(&self) -> Course {
        match self.closing {
            Closing::Now => Course::Close,
            Closing::WhenSent => Course::WriteOnly,
            Closing::Not if self.held_up != HeldUp::No || self.transfer.is_some() => Course::Keep,
            Closing::Not => Course::Run,
        }
    }

    /// Counts bytes received; returns their number.
    #[inline]
    pub fn received(&mut self, bytes: usize) -> u64 {
        self.bytes_in += bytes as u64;
        bytes as u64
    }

    /// Takes over replies to be sent, and leaves `replies` empty.
    #[inline]
    pub fn reply(&mut self, replies: &mut Reply) {
        self.outbox.append(replies.buffer_mut());
    }

    /// Sends bytes that show no data.
    pub fn push(&mut self, bytes: &[u8]) {
        self.outbox.push(bytes, Lsn::NONE);
    }

    /// The first of the `free` bytes that may leave: all of them, or those in the first chunk.
    #[inline]
    pub fn unsent(&self, free: usize) -> &[u8] {
        self.outbox.first(free)
    }

    /// How many bytes are unsent.
    pub fn unsent_bytes(&self) -> usize {
        self.outbox.len()
    }

    /// Whether some bytes are unsent.
    #[inline]
    pub fn has_unsent(&self) -> bool {
        !self.outbox.is_empty()
    }

    /// Whether some unsent bytes wait for the journal.
    #[inline]
    pub fn waits_for_journal(&self) -> bool {
        self.outbox.is_fenced()
    }

    /// Drops bytes that the socket has taken from the front of the unsent ones; returns their number.
    #[inline]
    pub fn sent(&mut self, bytes: usize) -> u64 {
        self.outbox.sent(bytes);
        self.bytes_out += bytes as u64;
        bytes as u64
    }

    /// Takes out all unsent bytes, whatever they wait for. For tests that have no socket.
    pub fn take_unsent(&mut self) -> Vec<u8> {
        self.outbox.take_from(0)
    }

    /// Whether a client that sends no more still gets replies: some wait for the journal, or, if `is_relayed`, for an
    /// I/O thread. While the journal takes no changes, the wait may never end.
    pub fn owes_replies(&self, is_relayed: bool) -> bool {
        (self.outbox.is_fenced() || !self.rounds.are_none()) && !self.restrictions.contains(Restrictions::UNLOGGED)
            || is_relayed && self.has_unsent()
    }

    /// Whether the next part of a transfer should be made: little of the earlier parts is unsent.
    #[inline]
    pub fn wants_transfer(&self) -> bool {
        self.transfer.is_some() && self.outbox.held() < TRANSFER_AHEAD_BYTES
    }

    /// Remembers the task to wake when there is something to send, or when the session may go on.
    #[inline]
    pub fn wake_by(&mut self, waker: &Waker) {
        self.outbox.set_waker(waker);
    }

    /// Wakes the connection's task.
    pub fn wake(&mut self) {
        self.outbox.wake();
    }
}

impl Clients {
    /// Notes how much input a connection keeps whose next command must wait.
    pub fn keep_input(&mut self, stats: &mut Stats, key: SessionKey, bytes: usize) {
        if let Some(session) = self.sessions.get_mut(key) {
            session.pending_input = bytes;
        }
        self.weigh(stats, key);
    }

    /// Accounts for the replies just taken over. Returns whether all of them are sent; `None` if the session is gone.
    #[inline]
    pub fn account_for_replies(&mut self, stats: &mut Stats, key: SessionKey) -> Option<bool> {
        let session = self.sessions.get(key)?;
        let are_sent = !session.has_unsent();
        if session.outbox.held() >= OUTBOX_TAKE_OVER_BYTES {
            self.count_unsent(stats, key);
        }
        self.weigh(stats, key);
        Some(are_sent)
    }

    /// Bytes that all clients together have left unsent.
    pub fn unsent_bytes(&self) -> usize {
        self.sessions.iter().map(Session::unsent_bytes).sum()
    }

    /// Wakes the tasks of all connections.
    pub fn wake_all(&mut self) {
        self.sessions.iter_mut().for_each(Session::wake);
    }
}

impl Clients {
    /// How a connection goes on whose outbox holds this much memory.
    #[inline]
    pub(crate) fn course_of(&self, session: &Session, held: usize) -> Course {
        match session.course() {
            Course::Run | Course::Keep if self.is_over_share(held) || held > OUTBOX_PAUSE_BYTES => Course::WriteOnly,
            course => course,
        }
    }

    /// Tells a client that has just connected why it is not served, and closes its session once this is sent.
    pub fn turn_away(&mut self, key: SessionKey, refusal: &[u8]) {
        if let Some(session) = self.sessions.get_mut(key) {
            session.push(refusal);
            session.close_when_sent();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::clock::Clock;
    use crate::base::rng::Rng;
    use crate::config::Config;
    use crate::engine::{CommandTable, Engine, ServerState};
    use crate::session::Peer;

    fn connected() -> (Engine, SessionKey) {
        let table = Box::leak(Box::new(CommandTable::new(&[])));
        let mut engine =
            Engine::new(Config::default(), table, Clock::manual(0), Rng::seeded(1)).expect("memory for Lua");
        let key = engine.server.open_session(Peer::default());
        (engine, key)
    }

    #[test]
    fn each_reason_to_wait_ends_by_itself_and_a_closed_session_stays_closed() {
        let (mut engine, key) = connected();
        let session = engine.server.clients.sessions.get_mut(key).expect("it is connected");
        assert_eq!(session.course(), Course::Run);
        session.wait_for_room();
        session.unblock();
        assert_eq!((session.course(), session.is_blocked(), session.end_postponement()), (Course::Keep, false, false));
        assert_eq!((session.end_wait_for_room(), session.course()), (true, Course::Run));
        session.postpone();
        assert_eq!((session.course(), session.is_blocked(), session.end_wait_for_room()), (Course::Keep, true, false));
        session.close_when_sent();
        assert_eq!((session.end_postponement(), session.course()), (true, Course::WriteOnly));
        session.kill();
        session.close_when_sent();
        assert_eq!(session.course(), Course::Close);
    }

    #[test]
    fn a_client_that_reads_too_little_is_not_read_from_and_is_closed_over_its_limit() {
        let (mut engine, key) = connected();
        let server = &mut engine.server;
        let push = |server: &mut ServerState, bytes: usize| {
            server.clients.sessions.get_mut(key).expect("it is connected").push(&vec![b'x'; bytes]);
        };
        push(server, OUTBOX_PAUSE_BYTES / 2);
        assert_eq!([false, true].map(|is_stuck| server.account_for_unsent(key, is_stuck)), [Course::Run; 2]);
        push(server, OUTBOX_PAUSE_BYTES / 2 + 1);
        assert_eq!([false, true].map(|is_stuck| server.account_for_unsent(key, is_stuck)), [Course::WriteOnly; 2]);
        let limit = (&b"client-output-buffer-limit"[..], &b"normal 1mb 0 0"[..]);
        server.config.set([limit], Default::default()).expect("a limit");
        assert_eq!(server.account_for_unsent(key, false), Course::WriteOnly, "only a socket that takes no more counts");
        assert_eq!(server.account_for_unsent(key, true), Course::Close);
    }
}
