//! One connection: read, let the engine answer, write.
//!
//! A connection is one future on the one thread. It reads into a buffer that all connections share, the engine answers
//! everything complete in it, and the answers go to the session's outbox. What is left of an unfinished command, and what is
//! unsent, is the only memory a connection holds: an idle one holds none.
//!
//! ```text
//!            +---- unfinished input ----+
//!            v                          |
//! socket -> input (shared) -> Engine::feed -> out (shared) -> session.outbox -> socket
//!                                                                    ^
//!                                            what others publish ----+
//! ```
//!
//! The outbox is sent at the future's next turn, after all others that are ready have been fed. A send that finds its reader
//! asleep must wake it, which costs as much as several commands; many sends in a row wake a client of many connections once.
//! Who takes long on purpose, a slow script or MIGRATE, lets what is unsent go first
//! ([`Server::send_unsent`](crate::engine::Server::send_unsent)); another command that takes long holds it up, as in Redis.
//!
//! A client that sends and does not read fills its outbox; beyond [`OUTBOX_PAUSE_BYTES`] nothing more is read from it until
//! it has read.

use std::cell::RefCell;
use std::future::Future;
use std::os::fd::AsRawFd;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::serve::Shared;
use crate::base::limits::{OUTBOX_PAUSE_BYTES, READ_CHUNK_BYTES};
use crate::engine::session::SessionKey;
use crate::engine::{Engine, Fed};
use crate::resp::reply::Reply;
use crate::resp::request::Decoder;

/// Any stream socket.
pub trait Stream: AsyncRead + AsyncWrite + AsRawFd + Unpin + 'static {}
impl<S: AsyncRead + AsyncWrite + AsRawFd + Unpin + 'static> Stream for S {}

/// What a connection keeps of its input between two reads.
#[derive(Default)]
pub struct Inbox {
    /// How far the input was understood.
    pub decoder: Decoder,
    /// Bytes that were read and not yet consumed.
    pub pending: Vec<u8>,
    /// Whether `pending` may hold a whole command that was left for later.
    unfed: bool,
}

impl Inbox {
    /// Adds what was read.
    pub fn keep(&mut self, input: &[u8]) {
        if let Some(wanted) = self.decoder.wants() {
            // A large argument: allocate in few steps, but no more than twice what has really come.
            let more = wanted.saturating_sub(self.pending.len());
            self.pending.reserve(more.min(self.pending.len() + input.len()).max(input.len()));
        }
        self.pending.extend_from_slice(input);
        self.unfed = true;
    }

    /// Drops what the decoder has consumed of `pending`; `drained`: nothing whole is left in it.
    pub fn consumed(&mut self, drained: bool) {
        self.unfed = !drained;
        // While more of the buffer is to be fed, leave it in place: moving it after every pause would be quadratic.
        if drained {
            self.pending.drain(..self.decoder.keep_from());
            self.decoder.rebase();
            if self.pending.is_empty() {
                self.pending = Vec::new();
            }
        }
    }
}

/// A connection's future. Ends when the peer or the server has closed it.
pub struct Conn<S: Stream> {
    shared: Rc<Shared>,
    key: SessionKey,
    stream: S,
    inbox: Rc<RefCell<Inbox>>,
}

impl<S: Stream> Conn<S> {
    /// The future of a connection that is registered under `key`, and of which `inbox` was read already.
    pub fn new(shared: Rc<Shared>, key: SessionKey, stream: S, inbox: Rc<RefCell<Inbox>>) -> Conn<S> {
        shared.roster.connections.borrow_mut().insert(key, (stream.as_raw_fd(), inbox.clone()));
        Conn { shared, key, stream, inbox }
    }
}

impl<S: Stream> Drop for Conn<S> {
    fn drop(&mut self) {
        self.shared.roster.connections.borrow_mut().remove(&self.key);
        if let Ok(mut engine) = self.shared.engine.try_borrow_mut() {
            engine.disconnect(self.key);
        }
    }
}

/// Why the loop stops for now.
enum Next {
    Continue,
    /// There is more to do, but others come first.
    Yield,
    Wait,
    Close,
}

impl<S: Stream> Future for Conn<S> {
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
                    if let Some(session) = engine.server.sessions.get_mut(self.key) {
                        session.outbox.set_waker(cx.waker());
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

impl<S: Stream> Conn<S> {
    /// One round: write what is unsent, then feed what is left, else read.
    fn turn(&mut self, cx: &mut Context<'_>, engine: &mut Engine, buffers: &mut Buffers) -> Next {
        let Some(session) = engine.server.sessions.get_mut(self.key) else { return Next::Close };
        if session.killed {
            // What was answered before, if the socket takes it.
            let _ = Pin::new(&mut self.stream).poll_write(cx, session.outbox.bytes());
            return Next::Close;
        }
        while !session.outbox.is_empty() {
            match Pin::new(&mut self.stream).poll_write(cx, session.outbox.bytes()) {
                Poll::Ready(Ok(sent)) if sent > 0 => engine.server.stats.bytes_out += session.sent(sent),
                Poll::Ready(_) => return Next::Close,
                Poll::Pending => {
                    engine.server.hold_to_output_limit(self.key);
                    break;
                }
            }
        }
        let Some(session) = engine.server.sessions.get_mut(self.key) else { return Next::Close };
        if session.closing {
            return if session.outbox.is_empty() { Next::Close } else { Next::Wait };
        }
        if session.outbox.len() > OUTBOX_PAUSE_BYTES {
            return Next::Wait;
        }
        let suspended = session.is_suspended();
        let inbox = Rc::clone(&self.inbox);
        let mut inbox = inbox.borrow_mut();
        if inbox.unfed && !suspended {
            return self.feed_pending(engine, &mut buffers.out, &mut inbox);
        }
        match self.poll_read(cx, &mut buffers.input) {
            Poll::Pending => Next::Wait,
            Poll::Ready(Err(_) | Ok(0)) => Next::Close,
            Poll::Ready(Ok(n)) => {
                session.bytes_in += n as u64;
                engine.server.stats.bytes_in += n as u64;
                let input = &buffers.input[..n];
                if !inbox.pending.is_empty() || suspended {
                    return self.keep(engine, &mut buffers.out, &mut inbox, input, suspended);
                }
                let fed = engine.feed(self.key, &mut inbox.decoder, input, &mut buffers.out);
                let keep_from = inbox.decoder.keep_from();
                if keep_from < n {
                    inbox.pending.extend_from_slice(&input[keep_from..]);
                }
                inbox.decoder.rebase();
                inbox.unfed = fed != Fed::Drained;
                let next = self.post(engine, &mut buffers.out);
                // Who fills the whole buffer has more on the way: it must not keep the others waiting.
                if matches!(next, Next::Continue) && n == READ_CHUNK_BYTES { Next::Yield } else { next }
            }
        }
    }

    /// Adds what was read to what is pending, and feeds it unless the session waits.
    fn keep(&mut self, engine: &mut Engine, out: &mut Reply, inbox: &mut Inbox, input: &[u8], suspended: bool) -> Next {
        inbox.keep(input);
        let limit = engine.server.config.query_limit_bytes();
        if inbox.pending.len() + inbox.decoder.mem_bytes() > limit {
            tracing::warn!(client = self.key.id, bytes = inbox.pending.len(), "closed: its command is too large");
            engine.server.stats.query_limit_disconnections += 1;
            return Next::Close;
        }
        if suspended {
            return Next::Continue;
        }
        self.feed_pending(engine, out, inbox)
    }

    fn feed_pending(&mut self, engine: &mut Engine, out: &mut Reply, inbox: &mut Inbox) -> Next {
        let fed = engine.feed(self.key, &mut inbox.decoder, &inbox.pending, out);
        inbox.consumed(fed == Fed::Drained);
        let next = self.post(engine, out);
        if matches!(next, Next::Continue) { Next::Yield } else { next }
    }

    /// Hands the replies over to be sent.
    fn post(&mut self, engine: &mut Engine, out: &mut Reply) -> Next {
        if out.is_empty() {
            return Next::Continue;
        }
        let Some(session) = engine.server.sessions.get_mut(self.key) else { return Next::Close };
        session.outbox.append(out.buffer_mut());
        out.buffer_mut().shrink_to(REPLY_KEEP_BYTES);
        Next::Yield
    }

    fn poll_read(&mut self, cx: &mut Context<'_>, input: &mut [u8]) -> Poll<std::io::Result<usize>> {
        let mut buf = ReadBuf::new(input);
        ready!(Pin::new(&mut self.stream).poll_read(cx, &mut buf))?;
        Poll::Ready(Ok(buf.filled().len()))
    }
}

/// Bytes of the shared reply buffer that are kept from batch to batch.
const REPLY_KEEP_BYTES: usize = 1024 * 1024;

/// The buffers that all connections share, one at a time.
pub struct Buffers {
    /// What was read.
    pub input: Box<[u8]>,
    /// What is answered.
    pub out: Reply,
}

impl Default for Buffers {
    fn default() -> Buffers {
        Buffers {
            input: vec![0; READ_CHUNK_BYTES].into_boxed_slice(),
            out: Reply::new(crate::resp::reply::Form::Resp2),
        }
    }
}
