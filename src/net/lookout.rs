//! Serves the other connections while a script holds the thread.
//!
//! tokio can't run its tasks then: the thread is inside one of them. So the lookout works on the bare sockets: it polls
//! them, reads into the connections' own inboxes, lets the engine answer (mostly -BUSY), and accepts newcomers, who become
//! ordinary connections once the script has ended. tokio's readiness stays right: what it believes readable and is not
//! answers "would block", and what it does not know yet it learns from the kernel afterwards.

use std::cell::RefCell;
use std::collections::HashMap;
use std::io::{self, ErrorKind, Read};
use std::net::TcpStream;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::rc::Rc;
use std::time::Duration;

use socket2::{SockRef, Socket};

use super::conn::Inbox;
use super::listener::{greet, peer_of};
use crate::base::limits::BYSTANDER_CHUNK_BYTES;
use crate::engine::busy::Bystanders;
use crate::engine::session::SessionKey;
use crate::engine::{Fed, Server};
use crate::keyspace::Keyspace;
use crate::resp::reply::{Form, Reply};

/// Every socket of the server, by descriptor.
///
/// A descriptor stands here only while its owner keeps the socket open: a `Conn` takes it off the roster when it is
/// dropped, and a `Listener` listens until the process ends.
#[derive(Default)]
pub struct Roster {
    /// Connections with their inboxes.
    pub connections: RefCell<HashMap<SessionKey, Connection>>,
    /// Listening sockets, with the path of unix ones.
    pub listeners: RefCell<Vec<(RawFd, Option<String>)>>,
    /// Connections accepted while a script was busy, to be taken over when it has ended.
    pub newcomers: RefCell<Vec<Newcomer>>,
}

/// A connection's socket and what it has sent.
pub type Connection = (RawFd, Rc<RefCell<Inbox>>);

/// A connection that is not a task yet.
pub struct Newcomer {
    /// Its session.
    pub key: SessionKey,
    /// Its socket.
    pub stream: StdStream,
    /// What it has sent so far.
    pub inbox: Rc<RefCell<Inbox>>,
}

/// A socket outside of tokio, non-blocking.
pub enum StdStream {
    /// Over TCP.
    Tcp(TcpStream),
    /// Over a unix socket.
    Unix(UnixStream),
}

/// See the module's header.
pub struct Lookout {
    roster: Rc<Roster>,
    chunk: Box<[u8]>,
    out: Reply,
}

impl Lookout {
    /// Watches the sockets of `roster`.
    pub fn new(roster: Rc<Roster>) -> Lookout {
        Lookout { roster, chunk: vec![0; BYSTANDER_CHUNK_BYTES].into(), out: Reply::new(Form::Resp2) }
    }

    fn accept_all(&mut self, server: &mut Server) {
        let listeners: Vec<(RawFd, Option<String>)> = self.roster.listeners.borrow().clone();
        let readable = readable(listeners.iter().map(|(fd, _)| *fd));
        for ((fd, path), _) in listeners.iter().zip(readable).filter(|(_, is_readable)| *is_readable) {
            // SAFETY: the roster holds only open descriptors (see `Roster`), and nothing closes one during this call.
            let listener = unsafe { BorrowedFd::borrow_raw(*fd) };
            while let Ok((socket, _)) = SockRef::from(&listener).accept() {
                self.take_in(server, socket, path.as_deref());
            }
        }
    }

    fn take_in(&mut self, server: &mut Server, socket: Socket, path: Option<&str>) {
        if socket.set_nonblocking(true).is_err() {
            return;
        }
        let peer = peer_of(&socket, path);
        if let Err(reason) = greet(&socket, path.is_some(), server) {
            // The refusal fits any socket's buffer; a peer that has left does not miss it.
            let _ = socket.send(reason);
            return;
        }
        let key = server.open_session(peer);
        let fd = OwnedFd::from(socket);
        let stream = match path {
            None => StdStream::Tcp(fd.into()),
            Some(_) => StdStream::Unix(fd.into()),
        };
        let inbox = Rc::<RefCell<Inbox>>::default();
        self.roster.connections.borrow_mut().insert(key, (stream.as_raw_fd(), inbox.clone()));
        self.roster.newcomers.borrow_mut().push(Newcomer { key, stream, inbox });
    }

    fn serve_one(
        &mut self,
        ks: &mut Keyspace,
        server: &mut Server,
        key: SessionKey,
        fd: RawFd,
        inbox: &RefCell<Inbox>,
    ) {
        // The connection whose script is running has its inbox in use, and waits anyway.
        let Ok(mut inbox) = inbox.try_borrow_mut() else { return };
        // The limits of `Conn`: who waits, or does not read, or sends too much, is left alone until its task runs again.
        let Some(session) = server.sessions.get_mut(key) else { return };
        let limit = server.config.query_limit_bytes();
        if session.is_suspended() || !session.outbox.is_empty() || inbox.pending.len() > limit {
            return;
        }
        // SAFETY: the roster holds only open descriptors (see `Roster`), and nothing closes one during this call.
        let socket = unsafe { BorrowedFd::borrow_raw(fd) };
        let socket = SockRef::from(&socket);
        match (&*socket).read(&mut self.chunk) {
            // Its own task will see the end again and close it.
            Ok(0) | Err(_) => return,
            Ok(n) => inbox.keep(&self.chunk[..n]),
        }
        self.out.truncate(0);
        let inbox = &mut *inbox;
        let fed = server.feed_while_busy(ks, key, &mut inbox.decoder, &inbox.pending, &mut self.out);
        inbox.consumed(fed == Fed::Drained);
        if let Some(session) = server.sessions.get_mut(key) {
            session.outbox.push(self.out.as_bytes());
        }
    }
}

impl Bystanders for Lookout {
    fn send_unsent(&mut self, server: &mut Server) {
        for (key, (fd, _)) in self.roster.connections.borrow().iter() {
            let Some(session) = server.sessions.get_mut(*key) else { continue };
            if session.outbox.is_empty() || session.killed {
                continue;
            }
            // SAFETY: the roster holds only open descriptors (see `Roster`), and nothing closes one during this call.
            let socket = unsafe { BorrowedFd::borrow_raw(*fd) };
            // Whoever has hung up is found out by its own task.
            let sent = SockRef::from(&socket).send(session.outbox.bytes()).unwrap_or(0);
            server.stats.bytes_out += session.sent(sent);
        }
    }

    fn serve(&mut self, ks: &mut Keyspace, server: &mut Server) {
        self.send_unsent(server);
        self.accept_all(server);
        let roster = self.roster.connections.borrow();
        let connections: Vec<(SessionKey, Connection)> =
            roster.iter().map(|(key, connection)| (*key, connection.clone())).collect();
        drop(roster);
        let readable = readable(connections.iter().map(|(_, (fd, _))| *fd));
        for ((key, (fd, inbox)), _) in connections.iter().zip(readable).filter(|(_, is_readable)| *is_readable) {
            self.serve_one(ks, server, *key, *fd, inbox);
        }
        self.send_unsent(server);
    }

    fn exchange(&mut self, key: SessionKey, unsent: &mut Vec<u8>, received: &mut Vec<u8>, patience: Duration) -> bool {
        let Some(fd) = self.roster.connections.borrow().get(&key).map(|(fd, _)| *fd) else { return false };
        let events = if unsent.is_empty() { libc::POLLIN } else { libc::POLLIN | libc::POLLOUT };
        let mut poll = libc::pollfd { fd, events, revents: 0 };
        // SAFETY: the pointer is that of one live record, which the call fills in place.
        unsafe { libc::poll(&mut poll, 1, patience.as_millis() as libc::c_int) };
        // SAFETY: the roster holds only open descriptors (see `Roster`), and nothing closes one during this call.
        let socket = unsafe { BorrowedFd::borrow_raw(fd) };
        let socket = SockRef::from(&socket);
        if !unsent.is_empty() {
            match socket.send(unsent) {
                Ok(sent) => drop(unsent.drain(..sent)),
                Err(error) if is_for_later(&error) => {}
                Err(_) => return false,
            }
        }
        match (&*socket).read(&mut self.chunk) {
            Ok(0) => false,
            Ok(n) => {
                received.extend_from_slice(&self.chunk[..n]);
                true
            }
            Err(error) => is_for_later(&error),
        }
    }
}

/// Whether a socket has not failed, but has nothing to do now.
fn is_for_later(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted)
}

impl AsRawFd for StdStream {
    fn as_raw_fd(&self) -> RawFd {
        match self {
            StdStream::Tcp(stream) => stream.as_raw_fd(),
            StdStream::Unix(stream) => stream.as_raw_fd(),
        }
    }
}

/// For each descriptor whether it can be read (or has ended) now.
fn readable(fds: impl Iterator<Item = RawFd>) -> impl Iterator<Item = bool> {
    let mut polls: Vec<libc::pollfd> = fds.map(|fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 }).collect();
    // SAFETY: the pointer and the length are those of a live vector, which the call fills in place.
    let ready = unsafe { libc::poll(polls.as_mut_ptr(), polls.len() as libc::nfds_t, 0) };
    polls.into_iter().map(move |poll| ready > 0 && poll.revents != 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn who_has_sent_something_is_told_by_its_place() {
        let pairs: Vec<_> = (0..5).map(|_| UnixStream::pair().expect("a pair of sockets")).collect();
        for at in [1, 4] {
            (&pairs[at].1).write_all(b"x").expect("there is room for a byte");
        }
        let ready: Vec<bool> = readable(pairs.iter().map(|(here, _)| here.as_raw_fd())).collect();
        assert_eq!(ready, [false, true, false, false, true]);
    }
}
