//! One connection: read, let the engine answer, write.
//!
//! A connection is one future on the one thread. It reads into a buffer that all connections share, the engine runs
//! every complete command in it, and the replies go to the session's outbox. Unfinished input and unsent replies are
//! the only memory a connection holds: an idle one holds none.
//!
//! ```text
//!            +---- unfinished input ----+
//!            v                          |
//! socket -> input (shared) -> Engine::feed -> out (shared) -> session.outbox -> socket
//!                                                                    ^
//!                                            what others publish ----+
//! ```
//!
//! The outbox is sent at the future's next turn, after all other ready connections have been fed. A send that finds its
//! reader asleep must wake it, which costs as much as several commands; many sends in a row wake a client with many
//! connections once. Replies for an [I/O thread](super::io_threads) are handed over at once, since that thread is
//! notified once for all connections together. Large replies are sent at once too ([`OUTBOX_TAKE_OVER_BYTES`]): waking
//! costs little beside them, and they are still in the cache. A command that is slow on purpose, a slow script or
//! MIGRATE, sends unsent replies first ([`ServerState::send_unsent`](crate::engine::ServerState::send_unsent)); any
//! other slow command holds them up, as in Redis. Replies that wait for the journal stay in the outbox, and the journal
//! wakes the future once they may leave ([`ServerState::sendable`](crate::engine::ServerState::sendable)); further
//! input is read and executed in the meantime.
//!
//! A client that sends without reading fills its outbox; beyond
//! [`OUTBOX_PAUSE_BYTES`](crate::session::limits::OUTBOX_PAUSE_BYTES) nothing more is read from it until it has read.
//! When all outboxes together hold more than
//! [`OUTBOX_TOTAL_PAUSE_BYTES`](crate::session::limits::OUTBOX_TOTAL_PAUSE_BYTES), the limit for each client is its
//! share of that total. The session decides both: [`Course`] says whether its connection reads.

use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};

use super::serve::Shared;
use super::socket_table::Connection;
use crate::base::limits::READ_CHUNK_BYTES;
use crate::engine::{Engine, Fed, ServerState};
use crate::net::limits::{READ_BEHIND_BYTES, READ_LARGE_BYTES};
use crate::resp::reply::Reply;
use crate::resp::request::Decoder;
use crate::session::limits::{OUTBOX_TAKE_OVER_BYTES, SEND_SLICE_BYTES};
use crate::session::wire::Course;
use crate::spec::session_key::SessionKey;

/// Input that a connection keeps between two reads.
#[derive(Default)]
pub(crate) struct Inbox {
    /// How far the input has been decoded.
    pub decoder: Decoder,
    /// Bytes read but not yet consumed.
    pub pending: Vec<u8>,
    /// Whether `pending` may hold a whole command that was left for later.
    unfed: bool,
}

impl Inbox {
    /// Adds bytes just read.
    pub(crate) fn keep(&mut self, input: &[u8]) {
        if let Some(wanted) = self.decoder.wants() {
            // For a large argument, allocate in few steps, but never more than twice the bytes that have arrived.
            let more = wanted.saturating_sub(self.pending.len());
            self.pending.reserve(more.min(self.pending.len() + input.len()).max(input.len()));
        }
        self.pending.extend_from_slice(input);
        self.unfed = true;
    }

    /// Keeps the bytes of `input` that the decoder has not consumed. `input` began with the bytes kept before;
    /// `drained`: it holds no more whole commands.
    fn keep_rest(&mut self, input: &[u8], drained: bool) {
        self.unfed = !drained;
        self.pending.clear();
        self.pending.extend_from_slice(&input[self.decoder.keep_from()..]);
        self.decoder.rebase();
        self.shrink();
    }

    /// Releases the memory of a large command, so that a small remainder does not keep it.
    fn shrink(&mut self) {
        if self.pending.is_empty() {
            self.pending = Vec::new();
        } else if self.pending.len() < READ_CHUNK_BYTES {
            self.pending.shrink_to(2 * READ_CHUNK_BYTES);
        }
    }

    /// Whether `pending` may hold a whole command that was left for later.
    pub(crate) fn is_unfed(&self) -> bool {
        self.unfed
    }

    /// Whether the pending input exceeds the bytes one client may send ahead of its replies. If so, the connection of
    /// the session `key` must be closed.
    pub(crate) fn is_too_large(&self, server: &mut ServerState, key: SessionKey) -> bool {
        let is_too_large = self.pending.len() + self.decoder.mem_bytes() > server.config.query_limit_bytes();
        if is_too_large {
            tracing::warn!(client = key.id, bytes = self.pending.len(), "closed: its command is too large");
            server.meters.stats.query_limit_disconnections += 1;
        }
        is_too_large
    }

    /// Drops the bytes of `pending` that the decoder has consumed; `drained`: no whole command is left.
    pub(crate) fn consumed(&mut self, drained: bool) {
        self.unfed = !drained;
        // While more of the buffer is still to be fed, leave it in place: moving it after every pause would be
        // quadratic.
        if drained {
            self.pending.drain(..self.decoder.keep_from());
            self.decoder.rebase();
            self.shrink();
        }
    }
}

/// A connection's future. Ends when the peer or the server has closed it.
pub(crate) struct Conn {
    shared: Rc<Shared>,
    key: SessionKey,
    connection: Rc<Connection>,
}

impl Conn {
    /// Makes the future of the connection whose key in the socket table is `key`.
    pub(crate) fn new(shared: Rc<Shared>, key: SessionKey, connection: Rc<Connection>) -> Conn {
        Conn { shared, key, connection }
    }
}

impl Drop for Conn {
    fn drop(&mut self) {
        self.shared.sockets.remove(self.key);
        if let Ok(mut engine) = self.shared.engine.try_borrow_mut() {
            engine.disconnect(self.key);
        }
    }
}

/// Why the loop stops for now.
enum Next {
    Continue,
    /// There is more to do, but other connections come first.
    Yield,
    Wait,
    Close,
}

impl Future for Conn {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let shared = self.shared.clone();
        let mut engine = shared.engine.borrow_mut();
        let mut buffers = shared.buffers.borrow_mut();
        loop {
            match self.turn(cx, &mut engine, &mut buffers) {
                Next::Continue => {}
                Next::Yield => {
                    shared.after_feed(&engine);
                    cx.waker().wake_by_ref();
                    return Poll::Pending;
                }
                Next::Wait => {
                    if let Some(session) = engine.server.clients.sessions.get_mut(self.key) {
                        session.wake_by(cx.waker());
                    }
                    shared.after_feed(&engine);
                    return Poll::Pending;
                }
                Next::Close => {
                    shared.after_feed(&engine);
                    drop(engine);
                    return Poll::Ready(());
                }
            }
        }
    }
}

impl Conn {
    /// Runs one round: writes unsent replies, then feeds input left over, else reads.
    fn turn(&mut self, cx: &mut Context<'_>, engine: &mut Engine, buffers: &mut Buffers) -> Next {
        if let Some(next) = self.send(cx, engine) {
            return next;
        }
        let Some(session) = engine.server.clients.sessions.get_mut(self.key) else { return Next::Close };
        if session.wants_transfer() {
            return if engine.continue_transfer(self.key) { Next::Yield } else { Next::Wait };
        }
        if engine.server.ending.stop_signal.load(Ordering::Relaxed) {
            // The server ends as soon as it is asked to: no new input may hold that up.
            return Next::Wait;
        }
        let suspended = session.is_suspended();
        let connection = Rc::clone(&self.connection);
        let mut inbox = connection.inbox.borrow_mut();
        if inbox.unfed && !suspended {
            return self.feed_pending(cx, engine, &mut buffers.out, &mut inbox);
        }
        // The kept part of a command is placed in front of the new input, unless it is too long for that.
        let is_short = !suspended && inbox.pending.len() <= READ_BEHIND_BYTES;
        let kept = if is_short { inbox.pending.len() } else { 0 };
        let end = if inbox.decoder.wants().is_some() { READ_LARGE_BYTES } else { kept + READ_CHUNK_BYTES };
        match connection.poll_read(cx, &mut buffers.input[kept..end]) {
            Poll::Pending => Next::Wait,
            // The client sends no more, but may still read.
            Poll::Ready(Ok(0)) if session.owes_replies(connection.is_relayed) => {
                engine.server.connections().close_when_sent(self.key);
                Next::Wait
            }
            Poll::Ready(Err(_) | Ok(0)) => Next::Close,
            Poll::Ready(Ok(n)) => {
                engine.server.meters.stats.received(session.received(n));
                // Moving the kept bytes must not cost more than the bytes just read, of which there may be only one.
                if !is_short || n < kept {
                    let input = &buffers.input[kept..kept + n];
                    return self.keep(cx, engine, &mut buffers.out, &mut inbox, input, suspended);
                }
                let input = &mut buffers.input[..kept + n];
                input[..kept].copy_from_slice(&inbox.pending);
                let fed = engine.feed(self.key, &mut inbox.decoder, input, &mut buffers.out);
                inbox.keep_rest(input, fed == Fed::Drained);
                if inbox.is_too_large(&mut engine.server, self.key) {
                    return Next::Close;
                }
                let next = self.post(cx, engine, &mut buffers.out, fed);
                // A client that fills the whole buffer has more on the way: it must not keep the others waiting.
                if matches!(next, Next::Continue) && kept + n == end { Next::Yield } else { next }
            }
        }
    }

    /// Writes as much of the unsent replies as may leave. Returns `None` when the session may go on.
    fn send(&mut self, cx: &mut Context<'_>, engine: &mut Engine) -> Option<Next> {
        let mut free = engine.server.sendable(self.key);
        let Some(session) = engine.server.clients.sessions.get_mut(self.key) else { return Some(Next::Close) };
        if session.course() == Course::Close {
            // Tries to send earlier replies; whether the socket takes them does not matter here.
            let _ = self.connection.poll_write(cx, session.unsent(free));
            return Some(Next::Close);
        }
        let (mut slice, mut is_stuck) = (SEND_SLICE_BYTES, false);
        let has_free = free > 0;
        while free > 0 && slice > 0 {
            match self.connection.poll_write(cx, session.unsent(free)) {
                Poll::Ready(Ok(sent)) if sent > 0 => {
                    engine.server.meters.stats.sent(session.sent(sent));
                    slice = slice.saturating_sub(sent);
                    free -= sent;
                }
                Poll::Ready(_) => return Some(Next::Close),
                Poll::Pending => {
                    is_stuck = true;
                    break;
                }
            }
        }
        let has_unsent = session.has_unsent();
        match engine.server.account_for_unsent(self.key, is_stuck) {
            Course::Close => Some(Next::Close),
            _ if has_unsent && slice == 0 => Some(Next::Yield),
            // The rest waits for the journal, which must first learn of it.
            _ if has_unsent && has_free && !is_stuck => Some(Next::Continue),
            // Bytes not yet handed to the system would be lost by closing.
            Course::WriteOnly if !has_unsent && self.connection.poll_sent(cx).is_ready() => Some(Next::Close),
            Course::WriteOnly => Some(Next::Wait),
            Course::Run | Course::Keep => None,
        }
    }

    /// Adds input just read to the pending bytes, and feeds it unless the session waits.
    fn keep(
        &mut self,
        cx: &mut Context<'_>,
        engine: &mut Engine,
        out: &mut Reply,
        inbox: &mut Inbox,
        input: &[u8],
        suspended: bool,
    ) -> Next {
        inbox.keep(input);
        if inbox.is_too_large(&mut engine.server, self.key) {
            return Next::Close;
        }
        if suspended {
            engine.server.clients.keep_input(&mut engine.server.meters.stats, self.key, inbox.pending.len());
            return Next::Continue;
        }
        self.feed_pending(cx, engine, out, inbox)
    }

    fn feed_pending(&mut self, cx: &mut Context<'_>, engine: &mut Engine, out: &mut Reply, inbox: &mut Inbox) -> Next {
        let fed = engine.feed(self.key, &mut inbox.decoder, &inbox.pending, out);
        inbox.consumed(fed == Fed::Drained);
        let next = self.post(cx, engine, out, fed);
        if matches!(next, Next::Continue) { Next::Yield } else { next }
    }

    /// Hands the replies over to be sent. Large replies are sent at once: they are still in the processor's cache, and
    /// waking their reader costs little in comparison.
    fn post(&mut self, cx: &mut Context<'_>, engine: &mut Engine, out: &mut Reply, fed: Fed) -> Next {
        if out.is_empty() {
            return if engine.server.pipeline.has_sent_past() { Next::Yield } else { Next::Continue };
        }
        let Some(session) = engine.server.clients.sessions.get_mut(self.key) else { return Next::Close };
        // An I/O thread sends at its own pace, and this thread does not wait for it.
        let is_sent_elsewhere = self.connection.is_relayed;
        let are_many = out.len() >= OUTBOX_TAKE_OVER_BYTES;
        session.reply(out);
        if (are_many || is_sent_elsewhere)
            && !session.waits_for_journal()
            && let Some(Next::Close) = self.send(cx, engine)
        {
            return Next::Close;
        }
        let accounted = engine.server.clients.account_for_replies(&mut engine.server.meters.stats, self.key);
        let Some(is_sent) = accounted else { return Next::Close };
        let is_done =
            is_sent && fed == Fed::Drained && !engine.server.pipeline.has_sent_past() && !self.connection.has_more();
        if is_sent_elsewhere && is_done { Next::Continue } else { Next::Yield }
    }
}

/// The buffers that all connections share, one at a time.
pub(crate) struct Buffers {
    /// Input just read.
    pub input: Box<[u8]>,
    /// Replies being written.
    pub out: Reply,
}

impl Buffers {
    /// Gives back memory that large replies took.
    pub(crate) fn give_back(&mut self) {
        self.out.buffer_mut().shrink_to(0);
    }
}

impl Default for Buffers {
    fn default() -> Buffers {
        Buffers {
            input: vec![0; READ_LARGE_BYTES].into_boxed_slice(),
            out: Reply::new(crate::resp::reply::Form::Resp2),
        }
    }
}
