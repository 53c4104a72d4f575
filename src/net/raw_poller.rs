//! Serves the other connections while a script holds the thread.
//!
//! tokio can't run its tasks then: the thread is inside one of them. So the raw poller works on the bare sockets. It
//! polls them, reads into the connections' own inboxes and lets the engine answer (mostly -BUSY). It accepts newcomers,
//! which become ordinary connections once the script has ended, and closes connections that have ended, so that neither
//! descriptors nor places under `maxclients` run out. tokio's readiness stays right: a socket wrongly believed readable
//! returns "would block", and readiness tokio has missed it learns from the kernel afterwards.
//!
//! Every socket is owned by the [`SocketTable`]. A descriptor's number is used only while its socket is borrowed from
//! the table: for the length of one call, in which nothing closes it. When a connection is closed here, its task is
//! woken, finds its session gone, and ends.
//!
//! The inbox of a relayed connection is filled from the bytes its I/O thread has received, so poll(2) may report
//! nothing although there is input. Its task is woken afterwards as it would have been.

use std::io::{self, ErrorKind, IoSlice};
use std::os::fd::RawFd;
use std::rc::Rc;
use std::time::Duration;

use super::listener::{open, open_from_inside};
use super::sign_in::sign_in;
use super::socket_table::{Connection, SocketTable};
use crate::engine::{Fed, RawSockets, ServerState};
use crate::keyspace::Keyspace;
use crate::net::limits::{BUSY_ACCEPTS_MAX, BUSY_READ_CHUNK_BYTES};
use crate::resp::reply::{Form, Reply};
use crate::session::wire::Course;
use crate::spec::session_key::SessionKey;

/// Events requested from poll(2) for connections: input, and a peer that sends no more. poll(2) reports failures
/// unasked.
const EVENTS: libc::c_short = libc::POLLIN | libc::POLLRDHUP;

/// Events of a connection that has ended: its peer no longer waits for a reply.
const ENDED: libc::c_short = libc::POLLRDHUP | libc::POLLHUP | libc::POLLERR;

/// How long the debugger waits for a line that an I/O thread may have received already.
const RELAYED_RETRY: Duration = Duration::from_millis(1);

/// See the module's header.
pub(crate) struct RawPoller {
    table: Rc<SocketTable>,
    chunk: Box<[u8]>,
    out: Reply,
}

/// Whether a connection stays.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stay {
    Open,
    Close,
}

impl RawPoller {
    /// Serves the sockets of `table`.
    pub(crate) fn new(table: Rc<SocketTable>) -> RawPoller {
        RawPoller { table, chunk: vec![0; BUSY_READ_CHUNK_BYTES].into(), out: Reply::new(Form::Resp2) }
    }

    fn accept_all(&mut self, server: &mut ServerState) {
        let listeners = self.table.listeners();
        let ready = poll_now(listeners.iter().map(|listener| listener.raw_fd()));
        for (listener, _) in listeners.iter().zip(ready).filter(|(_, events)| *events != 0) {
            for _ in 0..BUSY_ACCEPTS_MAX {
                let Ok(socket) = listener.accept_now() else { break };
                // The connection is served from the table; no other code needs to know of it.
                let _ = open(server, &self.table, socket, listener);
            }
        }
        open_from_inside(server, &self.table);
    }

    /// Reads from a connection and answers it. `events` are those poll(2) reported for it.
    fn serve_one(
        &mut self,
        ks: &mut Keyspace,
        server: &mut ServerState,
        key: SessionKey,
        connection: &Connection,
        events: libc::c_short,
    ) -> Stay {
        // The connection whose script is running is not among the sessions, and has its inbox in use: it waits.
        let Some(session) = server.clients.sessions.get_mut(key) else { return Stay::Open };
        let Ok(mut inbox) = connection.inbox.try_borrow_mut() else { return Stay::Open };
        if session.blocking_call().is_some() {
            return if events & ENDED != 0 { Stay::Close } else { Stay::Open };
        }
        // A client that does not read gets no more replies. If it is gone, sending to it will fail.
        if session.is_suspended() || session.has_unsent() {
            return Stay::Open;
        }
        let inbox = &mut *inbox;
        if !inbox.is_unfed() {
            match connection.read_now(&mut self.chunk) {
                Ok(0) => return Stay::Close,
                Ok(n) => {
                    server.meters.stats.received(session.received(n));
                    inbox.keep(&self.chunk[..n]);
                    sign_in(server, key, connection);
                }
                Err(error) if is_for_later(&error) => return Stay::Open,
                Err(_) => return Stay::Close,
            }
        }
        if inbox.is_too_large(server, key) {
            return Stay::Close;
        }
        let fed = server.feed_while_busy(ks, key, &mut inbox.decoder, &inbox.pending, &mut self.out);
        inbox.consumed(fed == Fed::Drained);
        if let Some(session) = server.clients.sessions.get_mut(key) {
            session.reply(&mut self.out);
            session.wake();
        }
        *self.out.buffer_mut() = Vec::new();
        Stay::Open
    }

    /// Sends a connection's replies. A connection that must be closed afterwards, or whose socket has failed, does not
    /// stay.
    fn send_to(server: &mut ServerState, key: SessionKey, connection: &Connection) -> Stay {
        let mut stay = Stay::Open;
        let mut free = server.sendable(key);
        let Some(session) = server.clients.sessions.get_mut(key) else { return Stay::Open };
        while free > 0 {
            match connection.send_now(session.unsent(free)) {
                Ok(sent) => {
                    server.meters.stats.sent(session.sent(sent));
                    free -= sent;
                }
                Err(error) if is_for_later(&error) => break,
                Err(_) => {
                    stay = Stay::Close;
                    break;
                }
            }
        }
        match session.course() {
            Course::Close => stay = Stay::Close,
            Course::WriteOnly if !session.has_unsent() && connection.unsent() == 0 => stay = Stay::Close,
            _ => {}
        }
        server.clients.count_unsent(&mut server.meters.stats, key);
        stay
    }
}

impl RawSockets for RawPoller {
    fn send_unsent(&mut self, server: &mut ServerState) {
        for (key, connection) in self.table.connections() {
            // A connection to be closed is closed by its own task, or when it is served.
            let _ = RawPoller::send_to(server, key, &connection);
        }
        self.table.exchange();
    }

    fn serve(&mut self, ks: &mut Keyspace, server: &mut ServerState) {
        self.accept_all(server);
        self.table.bound_handshakes(server);
        let connections = self.table.connections();
        let ready = poll_now(connections.iter().map(|(_, connection)| connection.raw_fd()));
        for ((key, connection), events) in connections.iter().zip(ready) {
            let mut stay = RawPoller::send_to(server, *key, connection);
            let has_unfed = connection.inbox.try_borrow().is_ok_and(|inbox| inbox.is_unfed());
            let has_work = events != 0 || has_unfed || connection.has_more();
            if stay == Stay::Open && has_work {
                stay = self.serve_one(ks, server, *key, connection, events);
                if stay == Stay::Open {
                    stay = RawPoller::send_to(server, *key, connection);
                }
            }
            if stay == Stay::Close {
                self.table.close(server, *key);
            }
        }
        self.table.exchange();
    }

    fn send_past(&mut self, key: SessionKey, parts: &[IoSlice<'_>], more_follows: bool) -> usize {
        let Some(connection) = self.table.connection(key) else { return 0 };
        connection.send_parts_now(parts, more_follows).unwrap_or(0)
    }

    fn exchange(
        &mut self,
        key: SessionKey,
        unsent: &mut Vec<u8>,
        received: Option<&mut Vec<u8>>,
        patience: Duration,
    ) -> bool {
        let Some(connection) = self.table.connection(key) else { return false };
        let to_send = if unsent.is_empty() { 0 } else { libc::POLLOUT };
        let events = if received.is_some() { to_send | libc::POLLIN } else { to_send };
        let mut poll = libc::pollfd { fd: connection.raw_fd(), events, revents: 0 };
        // Bytes that an I/O thread takes out of the socket at this moment are found the next time.
        let patience = if connection.is_relayed { patience.min(RELAYED_RETRY) } else { patience };
        let patience = if received.is_some() && connection.has_more() { Duration::ZERO } else { patience };
        // SAFETY: the pointer is that of one live record, which the call fills in place.
        unsafe { libc::poll(&mut poll, 1, patience.as_millis() as libc::c_int) };
        if !unsent.is_empty() {
            match connection.send_now(unsent) {
                Ok(sent) => drop(unsent.drain(..sent)),
                Err(error) if is_for_later(&error) => {}
                Err(_) => return false,
            }
        }
        let Some(received) = received else {
            self.table.exchange();
            return poll.revents & (libc::POLLHUP | libc::POLLERR) == 0;
        };
        let read = connection.read_now(&mut self.chunk);
        // No other task exchanges with the I/O threads until the script has ended.
        self.table.exchange();
        match read {
            Ok(0) => false,
            Ok(n) => {
                received.extend_from_slice(&self.chunk[..n]);
                true
            }
            Err(error) => is_for_later(&error),
        }
    }
}

/// Whether the error only means that the socket has nothing to do now.
fn is_for_later(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted)
}

/// The events poll(2) reports now for each descriptor: [`EVENTS`] and failures.
fn poll_now(fds: impl Iterator<Item = RawFd>) -> impl Iterator<Item = libc::c_short> {
    let mut polls: Vec<libc::pollfd> = fds.map(|fd| libc::pollfd { fd, events: EVENTS, revents: 0 }).collect();
    // SAFETY: the pointer and the length are those of a live vector, which the call fills in place.
    let ready = unsafe { libc::poll(polls.as_mut_ptr(), polls.len() as libc::nfds_t, 0) };
    polls.into_iter().map(move |poll| if ready > 0 { poll.revents } else { 0 })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::os::fd::AsRawFd;
    use std::os::unix::net::UnixStream;

    #[test]
    fn sockets_with_input_or_an_end_are_reported_by_position() {
        let mut pairs: Vec<_> = (0..5).map(|_| UnixStream::pair().expect("a pair of sockets")).collect();
        for at in [1, 4] {
            (&pairs[at].1).write_all(b"x").expect("there is room for a byte");
        }
        pairs[2].1.shutdown(std::net::Shutdown::Write).expect("an end of what is sent");
        let (gone, _) = pairs.pop().expect("there are five");
        let fds = pairs.iter().map(|(here, _)| here.as_raw_fd()).chain([gone.as_raw_fd(), -1]);
        let events: Vec<_> = poll_now(fds).map(|events| (events & libc::POLLIN != 0, events & ENDED != 0)).collect();
        let (nothing, input, end) = ((false, false), (true, false), (true, true));
        assert_eq!(events, [nothing, input, end, nothing, end, nothing]);
    }
}
