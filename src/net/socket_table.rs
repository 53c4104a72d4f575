//! Every socket of the server, each owned here and nowhere else.
//!
//! A connection's task borrows its transport for the length of one read or write; so does the [raw
//! poller](super::raw_poller) while tokio's tasks can't run. Either may close the connection, which takes the transport
//! out of its [`Connection`]. After that, no descriptor is left to use, or to close once more when its number belongs
//! to another connection.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeSet, HashMap, VecDeque};
use std::io::{self, ErrorKind, IoSlice};
use std::os::fd::RawFd;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Instant;

use super::conn::Inbox;
use super::inside::{Arrival, Inside};
use super::io_threads::IoThreads;
use super::listener::Listener;
use super::socket::Socket;
use super::tls::Acceptor;
use super::transport::Transport;
use crate::base::fit::{fit_map, fit_queue};
use crate::engine::ServerState;
use crate::net::limits::{TLS_HANDSHAKE_MAX, TLS_HANDSHAKES_MAX};
use crate::spec::session_key::SessionKey;

/// See the module's header.
#[derive(Default)]
pub(crate) struct SocketTable {
    connections: RefCell<HashMap<SessionKey, Rc<Connection>>>,
    listeners: RefCell<Vec<Rc<Listener>>>,
    /// `without_task` or `not_accepting` has entries.
    needs_tasks: Cell<bool>,
    /// Connections that were accepted while tokio's tasks could not run, and have no task yet.
    without_task: RefCell<BTreeSet<SessionKey>>,
    /// Listeners that have no task yet.
    not_accepting: RefCell<Vec<Rc<Listener>>>,
    /// The TLS acceptor; `None` if the server does not listen for TLS.
    acceptor: RefCell<Option<Acceptor>>,
    /// The I/O threads beside the engine's thread, if there are any.
    io_threads: RefCell<Option<Rc<IoThreads>>>,
    /// Connections from inside the process, if any part of it may make them.
    inside: RefCell<Option<Arc<Inside>>>,
    /// Connections that began a handshake, and when, oldest first. Finished handshakes are removed now and then.
    handshakes: RefCell<VecDeque<(SessionKey, Instant)>>,
}

impl SocketTable {
    /// Adds a connection whose session is `key`. If it `needs_task`, it is listed until it is given a task.
    pub(crate) fn add(&self, key: SessionKey, transport: Transport, needs_task: bool) -> Rc<Connection> {
        if needs_task {
            self.needs_tasks.set(true);
            self.without_task.borrow_mut().insert(key);
        }
        if transport.is_handshaking() {
            self.handshakes.borrow_mut().push_back((key, Instant::now()));
        }
        let connection = Rc::new(Connection {
            inbox: RefCell::default(),
            is_relayed: transport.thread() != 0,
            transport: RefCell::new(Some(transport)),
        });
        self.connections.borrow_mut().insert(key, connection.clone());
        connection
    }

    /// All connections, in no particular order.
    pub(crate) fn connections(&self) -> Vec<(SessionKey, Rc<Connection>)> {
        self.connections.borrow().iter().map(|(key, connection)| (*key, connection.clone())).collect()
    }

    /// The connection of a session.
    pub(crate) fn connection(&self, key: SessionKey) -> Option<Rc<Connection>> {
        self.connections.borrow().get(&key).cloned()
    }

    /// Closes a connection: its socket, and its session with everything that belongs to it.
    pub(crate) fn close(&self, server: &mut ServerState, key: SessionKey) {
        self.remove(key);
        server.connections().disconnect(key);
    }

    /// Closes a connection's socket.
    pub(crate) fn remove(&self, key: SessionKey) {
        let mut connections = self.connections.borrow_mut();
        let removed = connections.remove(&key);
        fit_map(&mut connections);
        drop(connections);
        self.without_task.borrow_mut().remove(&key);
        if let Some(transport) = removed.and_then(|connection| connection.transport.take()) {
            transport.close();
        }
    }

    /// Whether there may be connections or listeners that need a task.
    #[inline]
    pub(crate) fn needs_tasks(&self) -> bool {
        self.needs_tasks.get()
    }

    /// Takes the connections that need a task, in order of arrival, and the listeners that need one.
    pub(crate) fn take_without_task(&self) -> (BTreeSet<SessionKey>, Vec<Rc<Listener>>) {
        self.needs_tasks.set(false);
        (self.without_task.take(), self.not_accepting.take())
    }

    /// Sets the TLS acceptor for sockets accepted from now on.
    pub(crate) fn set_acceptor(&self, acceptor: Option<Acceptor>) {
        *self.acceptor.borrow_mut() = acceptor;
    }

    /// See [`set_acceptor`](Self::set_acceptor).
    pub(crate) fn acceptor(&self) -> Option<Acceptor> {
        self.acceptor.borrow().clone()
    }

    /// Lets these threads receive and send for sockets accepted from now on.
    pub(crate) fn set_io_threads(&self, threads: Rc<IoThreads>) {
        *self.io_threads.borrow_mut() = Some(threads);
    }

    /// Lets other threads of this process connect.
    pub(crate) fn set_inside(&self, inside: Arc<Inside>) {
        *self.inside.borrow_mut() = Some(inside);
    }

    /// Takes a connection that comes from inside the process.
    pub(super) fn take_from_inside(&self) -> Option<Arrival> {
        self.inside.borrow().as_ref().and_then(|inside| inside.take())
    }

    /// Prepares an accepted socket for serving: hands it to an I/O thread, if there are any.
    pub(super) fn relay(&self, socket: Socket) -> io::Result<Socket> {
        match &*self.io_threads.borrow() {
            Some(threads) => socket.relay(threads),
            None => Ok(socket),
        }
    }

    /// Exchanges notifications with the I/O threads. Otherwise that happens only after other tasks have had their turn.
    pub(super) fn exchange(&self) {
        if let Some(threads) = &*self.io_threads.borrow() {
            threads.exchange();
        }
    }

    /// How many bytes of replies the I/O threads still have to send.
    pub(super) fn unsent(&self) -> usize {
        self.connections.borrow().values().map(|connection| connection.unsent()).sum()
    }

    /// Closes connections whose handshake takes longer than [`TLS_HANDSHAKE_MAX`], and the oldest beyond
    /// [`TLS_HANDSHAKES_MAX`] of them.
    pub(crate) fn bound_handshakes(&self, server: &mut ServerState) {
        if self.handshakes.borrow().len() > TLS_HANDSHAKES_MAX {
            self.handshakes.borrow_mut().retain(|&(key, _)| self.is_handshaking(key));
        }
        while let Some(key) = self.take_overdue_handshake() {
            if self.is_handshaking(key) {
                tracing::debug!(client = key.id, "closed: its TLS handshake takes too long, or there are too many");
                self.close(server, key);
            }
        }
        fit_queue(&mut self.handshakes.borrow_mut());
    }

    fn take_overdue_handshake(&self) -> Option<SessionKey> {
        let mut handshakes = self.handshakes.borrow_mut();
        let &(key, began) = handshakes.front()?;
        let is_overdue = handshakes.len() > TLS_HANDSHAKES_MAX || began.elapsed() > TLS_HANDSHAKE_MAX;
        is_overdue.then(|| {
            handshakes.pop_front();
            key
        })
    }

    fn is_handshaking(&self, key: SessionKey) -> bool {
        let connections = self.connections.borrow();
        let transport = connections.get(&key).map(|connection| connection.transport.borrow());
        transport.is_some_and(|transport| transport.as_ref().is_some_and(Transport::is_handshaking))
    }

    /// Replaces the listening sockets. Those in `not_accepting` need a task each.
    pub(crate) fn listen_anew(&self, listeners: Vec<Rc<Listener>>, not_accepting: Vec<Rc<Listener>>) {
        self.needs_tasks.set(true);
        self.listeners.replace(listeners);
        self.not_accepting.borrow_mut().extend(not_accepting);
    }

    /// The listening sockets.
    pub(crate) fn listeners(&self) -> Vec<Rc<Listener>> {
        self.listeners.borrow().clone()
    }

    /// Closes the listening sockets.
    pub(crate) fn stop_listening(&self) {
        for listener in self.listeners.take() {
            listener.close();
        }
    }
}

/// A connection's transport and its input.
pub(crate) struct Connection {
    /// Input that was read and not answered yet.
    pub inbox: RefCell<Inbox>,
    /// Whether an I/O thread sends the bytes that are written.
    pub is_relayed: bool,
    /// Borrowed for the length of one call. `None` once it is closed.
    transport: RefCell<Option<Transport>>,
}

/// For its task.
impl Connection {
    /// Reads available bytes; 0 at the end, and after the connection was closed on this side.
    #[inline]
    pub(crate) fn poll_read(&self, cx: &mut Context<'_>, input: &mut [u8]) -> Poll<io::Result<usize>> {
        match &mut *self.transport.borrow_mut() {
            Some(transport) => transport.poll_read(cx, input),
            None => Poll::Ready(Ok(0)),
        }
    }

    /// Sends some of `bytes`.
    #[inline]
    pub(crate) fn poll_write(&self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match &mut *self.transport.borrow_mut() {
            Some(transport) => transport.poll_write(cx, bytes),
            None => Poll::Ready(Err(ErrorKind::NotConnected.into())),
        }
    }

    /// Whether the system has taken every byte written.
    pub(crate) fn poll_sent(&self, cx: &mut Context<'_>) -> Poll<()> {
        self.transport.borrow().as_ref().map_or(Poll::Ready(()), |transport| transport.poll_sent(cx))
    }

    /// Continues the handshake, unless it has ended. The next reader gets an error as well.
    pub(crate) fn poll_handshake(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.transport.borrow_mut().as_mut().map_or(Poll::Ready(Ok(())), |transport| transport.poll_handshake(cx))
    }

    /// Registers the socket with tokio. If that fails the socket is closed.
    pub(crate) fn adopt(&self) -> io::Result<()> {
        let transport = self.transport.take().map(Transport::adopt).transpose()?;
        *self.transport.borrow_mut() = transport;
        Ok(())
    }
}

/// For callers past tokio. None of these calls waits.
impl Connection {
    /// The certificate that the client has shown. Returned once, as soon as it is known.
    pub(crate) fn take_certificate(&self) -> Option<Vec<u8>> {
        self.transport.borrow_mut().as_mut().and_then(Transport::take_certificate)
    }

    /// Whether it uses TLS.
    pub(crate) fn is_tls(&self) -> bool {
        matches!(&*self.transport.borrow(), Some(Transport::Tls(_)))
    }

    /// Whether there may be input even if poll(2) reports none for the descriptor.
    pub(crate) fn has_more(&self) -> bool {
        self.transport.borrow().as_ref().is_some_and(Transport::has_more)
    }

    /// How many of the written bytes the system does not have yet.
    pub(crate) fn unsent(&self) -> usize {
        self.transport.borrow().as_ref().map_or(0, Transport::unsent)
    }

    /// Its descriptor; a negative number, which poll(2) ignores, once it is closed.
    pub(crate) fn raw_fd(&self) -> RawFd {
        self.transport.borrow().as_ref().map_or(-1, Transport::raw_fd)
    }

    /// Reads available bytes; 0 at the end.
    pub(crate) fn read_now(&self, input: &mut [u8]) -> io::Result<usize> {
        self.transport.borrow_mut().as_mut().map_or(Ok(0), |transport| transport.read_now(input))
    }

    /// Sends some of `bytes`.
    pub(crate) fn send_now(&self, bytes: &[u8]) -> io::Result<usize> {
        self.open(|transport| transport.send_now(bytes))
    }

    /// Sends some of `parts`, from the beginning on; if `more_follows`, in full packets.
    pub(crate) fn send_parts_now(&self, parts: &[IoSlice<'_>], more_follows: bool) -> io::Result<usize> {
        self.open(|transport| transport.send_parts_now(parts, more_follows))
    }

    fn open(&self, act: impl FnOnce(&mut Transport) -> io::Result<usize>) -> io::Result<usize> {
        self.transport.borrow_mut().as_mut().map_or(Err(ErrorKind::NotConnected.into()), act)
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;
    use std::time::Duration;

    use rustls::crypto::ring::default_provider;
    use rustls::server::ResolvesServerCertUsingSni;

    use super::*;
    use crate::base::clock::Clock;
    use crate::base::rng::Rng;
    use crate::config::Config;
    use crate::engine::{CommandTable, Engine};
    use crate::net::socket::Socket;
    use crate::session::Peer;

    /// An acceptor without a certificate: no handshake is finished in these tests.
    fn acceptor() -> Acceptor {
        let rules = rustls::ServerConfig::builder_with_provider(Arc::new(default_provider()))
            .with_safe_default_protocol_versions()
            .expect("the defaults fit each other")
            .with_no_client_auth()
            .with_cert_resolver(Arc::new(ResolvesServerCertUsingSni::new()));
        Acceptor::new(rules, None)
    }

    #[test]
    fn handshakes_end_when_they_take_too_long() {
        let table = Box::leak(Box::new(CommandTable::new(&[])));
        let mut engine =
            Engine::new(Config::default(), table, Clock::manual(0), Rng::seeded(1)).expect("memory for Lua");
        let (sockets, acceptor, server) = (SocketTable::default(), acceptor(), &mut engine.server);
        let mut clients = Vec::new();
        for _ in 0..3 {
            let (here, there) = UnixStream::pair().expect("a pair of sockets");
            let key = server.open_session(Peer::default());
            let tls = acceptor.accept(Socket::Accepted { fd: here.into(), is_unix: true }).expect("a session of TLS");
            sockets.add(key, Transport::Tls(Box::new(tls)), true);
            clients.push((key, there));
        }
        // Two handshakes began long ago.
        let long_ago = Instant::now().checked_sub(TLS_HANDSHAKE_MAX + Duration::from_secs(1)).expect("an earlier time");
        sockets.handshakes.borrow_mut().iter_mut().take(2).for_each(|(_, began)| *began = long_ago);
        // One of these clients has left.
        sockets.close(server, clients[0].0);
        sockets.bound_handshakes(server);
        let is_there = |(key, _): &(SessionKey, UnixStream)| sockets.connection(*key).is_some();
        assert_eq!(clients.iter().map(is_there).collect::<Vec<_>>(), [false, false, true]);
        assert_eq!((server.clients.sessions.len(), sockets.handshakes.borrow().len()), (1, 1));
    }
}
