//! Every socket of the server, each owned here and nowhere else.
//!
//! A connection's task borrows its transport for the length of one read or write; so does the [raw poller](super::raw_poller)
//! while tokio's tasks can't run. Either may close it: that takes the transport out of its [`Connection`], after which no
//! descriptor is left that anybody could use, or close once more when its number belongs to another connection.

use std::cell::RefCell;
use std::collections::{BTreeSet, HashMap};
use std::io::{self, ErrorKind, IoSlice};
use std::os::fd::RawFd;
use std::rc::Rc;
use std::task::{Context, Poll};

use super::conn::Inbox;
use super::listener::Listener;
use super::transport::Transport;
use crate::base::fit::fit_map;
use crate::engine::ServerState;
use crate::engine::session::SessionKey;

/// See the module's header.
#[derive(Default)]
pub(crate) struct SocketTable {
    connections: RefCell<HashMap<SessionKey, Rc<Connection>>>,
    listeners: RefCell<Vec<Rc<Listener>>>,
    /// Connections that were accepted while tokio's tasks could not run, and have none yet.
    without_task: RefCell<BTreeSet<SessionKey>>,
}

impl SocketTable {
    /// Adds a connection whose session is `key`. Until it has a task, somebody must give it one if it `needs_task`.
    pub(crate) fn add(&self, key: SessionKey, transport: Transport, needs_task: bool) -> Rc<Connection> {
        if needs_task {
            self.without_task.borrow_mut().insert(key);
        }
        let connection = Rc::new(Connection { inbox: RefCell::default(), transport: RefCell::new(Some(transport)) });
        self.connections.borrow_mut().insert(key, connection.clone());
        connection
    }

    /// All connections, in no order that means anything.
    pub(crate) fn connections(&self) -> Vec<(SessionKey, Rc<Connection>)> {
        self.connections.borrow().iter().map(|(key, connection)| (*key, connection.clone())).collect()
    }

    /// The connection of a session.
    pub(crate) fn connection(&self, key: SessionKey) -> Option<Rc<Connection>> {
        self.connections.borrow().get(&key).cloned()
    }

    /// Closes a connection: its socket, and its session with all that belongs to it.
    pub(crate) fn close(&self, server: &mut ServerState, key: SessionKey) {
        self.remove(key);
        server.disconnect(key);
    }

    /// Closes a connection's socket.
    pub(crate) fn remove(&self, key: SessionKey) {
        let mut connections = self.connections.borrow_mut();
        let removed = connections.remove(&key);
        fit_map(&mut connections);
        drop(connections);
        self.without_task.borrow_mut().remove(&key);
        if let Some(connection) = removed {
            connection.transport.take();
        }
    }

    /// Whether there are connections that need a task.
    #[inline]
    pub(crate) fn has_without_task(&self) -> bool {
        !self.without_task.borrow().is_empty()
    }

    /// The connections that need a task, in the order in which they came.
    pub(crate) fn take_without_task(&self) -> BTreeSet<SessionKey> {
        self.without_task.take()
    }

    /// Adds a listening socket.
    pub(crate) fn listen(&self, listener: Rc<Listener>) {
        self.listeners.borrow_mut().push(listener);
    }

    /// The listening sockets.
    pub(crate) fn listeners(&self) -> Vec<Rc<Listener>> {
        self.listeners.borrow().clone()
    }

    /// Lets go of the listening sockets.
    pub(crate) fn stop_listening(&self) {
        self.listeners.take();
    }
}

/// A connection's transport and what has come by it.
pub(crate) struct Connection {
    /// What was read and not answered yet.
    pub inbox: RefCell<Inbox>,
    /// Borrowed for the length of one call. `None` once it is closed.
    transport: RefCell<Option<Transport>>,
}

/// For its task.
impl Connection {
    /// Reads what is there; 0 at the end, which a connection has reached that was closed here.
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

    /// Makes the socket known to tokio. When that fails it is closed.
    pub(crate) fn adopt(&self) -> io::Result<()> {
        let transport = self.transport.take().map(Transport::adopt).transpose()?;
        *self.transport.borrow_mut() = transport;
        Ok(())
    }
}

/// Past tokio. None of these calls waits.
impl Connection {
    /// Its descriptor; a negative number, which poll(2) passes over, once it is closed.
    pub(crate) fn raw_fd(&self) -> RawFd {
        self.transport.borrow().as_ref().map_or(-1, Transport::raw_fd)
    }

    /// Reads what is there; 0 at the end.
    pub(crate) fn read_now(&self, input: &mut [u8]) -> io::Result<usize> {
        self.transport.borrow_mut().as_mut().map_or(Ok(0), |transport| transport.read_now(input))
    }

    /// Sends some of `bytes`.
    pub(crate) fn send_now(&self, bytes: &[u8]) -> io::Result<usize> {
        self.open(|transport| transport.send_now(bytes))
    }

    /// Sends some of `parts`, from the beginning on.
    pub(crate) fn send_parts_now(&self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        self.open(|transport| transport.send_parts_now(parts))
    }

    fn open(&self, act: impl FnOnce(&mut Transport) -> io::Result<usize>) -> io::Result<usize> {
        self.transport.borrow_mut().as_mut().map_or(Err(ErrorKind::NotConnected.into()), act)
    }
}
