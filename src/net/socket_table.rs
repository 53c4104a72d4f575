//! Every socket of the server, each owned here and nowhere else.
//!
//! A connection's task borrows its socket for the length of one read or write; so does the [raw poller](super::raw_poller)
//! while tokio's tasks can't run. Either may close it: that takes the socket out of its [`Connection`], after which no
//! descriptor is left that anybody could use, or close once more when its number belongs to another connection.

use std::cell::RefCell;
use std::collections::{BTreeSet, HashMap};
use std::io::{self, ErrorKind, IoSlice, Read};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, UnixStream};

use super::conn::Inbox;
use super::listener::Listener;
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
    /// Adds a socket whose session is `key`.
    pub(crate) fn add(&self, key: SessionKey, socket: Socket) -> Rc<Connection> {
        if let Socket::Accepted { .. } = socket {
            self.without_task.borrow_mut().insert(key);
        }
        let connection = Rc::new(Connection { inbox: RefCell::default(), socket: RefCell::new(Some(socket)) });
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
            connection.socket.take();
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

/// The socket of a connection. All are non-blocking.
pub(crate) enum Socket {
    /// Over TCP.
    Tcp(TcpStream),
    /// Over a unix socket.
    Unix(UnixStream),
    /// Not known to tokio yet.
    Accepted {
        /// The socket.
        fd: OwnedFd,
        /// Over a unix socket, not over TCP.
        is_unix: bool,
    },
}

impl Socket {
    /// Makes it known to tokio, unless it is.
    fn adopt(self) -> io::Result<Socket> {
        match self {
            Socket::Accepted { fd, is_unix: false } => Ok(Socket::Tcp(TcpStream::from_std(fd.into())?)),
            Socket::Accepted { fd, is_unix: true } => Ok(Socket::Unix(UnixStream::from_std(fd.into())?)),
            known => Ok(known),
        }
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Socket::Tcp(stream) => stream.as_fd(),
            Socket::Unix(stream) => stream.as_fd(),
            Socket::Accepted { fd, .. } => fd.as_fd(),
        }
    }
}

/// A connection's socket and what it has sent.
pub(crate) struct Connection {
    /// What was read and not answered yet.
    pub inbox: RefCell<Inbox>,
    /// Borrowed for the length of one call. `None` once it is closed.
    socket: RefCell<Option<Socket>>,
}

/// For its task.
impl Connection {
    /// Reads what is there; 0 at the end, which a connection has reached that was closed here.
    #[inline]
    pub(crate) fn poll_read(&self, cx: &mut Context<'_>, input: &mut [u8]) -> Poll<io::Result<usize>> {
        let mut buf = ReadBuf::new(input);
        match &mut *self.socket.borrow_mut() {
            Some(Socket::Tcp(stream)) => ready!(Pin::new(stream).poll_read(cx, &mut buf))?,
            Some(Socket::Unix(stream)) => ready!(Pin::new(stream).poll_read(cx, &mut buf))?,
            Some(Socket::Accepted { .. }) | None => {}
        }
        Poll::Ready(Ok(buf.filled().len()))
    }

    /// Sends some of `bytes`.
    #[inline]
    pub(crate) fn poll_write(&self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match &mut *self.socket.borrow_mut() {
            Some(Socket::Tcp(stream)) => Pin::new(stream).poll_write(cx, bytes),
            Some(Socket::Unix(stream)) => Pin::new(stream).poll_write(cx, bytes),
            Some(Socket::Accepted { .. }) | None => Poll::Ready(Err(ErrorKind::NotConnected.into())),
        }
    }

    /// Makes the socket known to tokio. When that fails it is closed.
    pub(crate) fn adopt(&self) -> io::Result<()> {
        let socket = self.socket.take().map(Socket::adopt).transpose()?;
        *self.socket.borrow_mut() = socket;
        Ok(())
    }
}

/// Past tokio. None of these calls waits.
impl Connection {
    /// Its descriptor; a negative number, which poll(2) passes over, once it is closed.
    pub(crate) fn raw_fd(&self) -> RawFd {
        self.socket.borrow().as_ref().map_or(-1, |socket| socket.as_fd().as_raw_fd())
    }

    /// Reads what is there; 0 at the end.
    pub(crate) fn read_now(&self, input: &mut [u8]) -> io::Result<usize> {
        let socket = self.socket.borrow();
        let Some(socket) = &*socket else { return Ok(0) };
        (&*SockRef::from(socket)).read(input)
    }

    /// Sends some of `bytes`.
    pub(crate) fn send_now(&self, bytes: &[u8]) -> io::Result<usize> {
        let socket = self.socket.borrow();
        let Some(socket) = &*socket else { return Err(ErrorKind::NotConnected.into()) };
        SockRef::from(socket).send(bytes)
    }

    /// Sends some of `parts`, from the beginning on.
    pub(crate) fn send_parts_now(&self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        let socket = self.socket.borrow();
        let Some(socket) = &*socket else { return Err(ErrorKind::NotConnected.into()) };
        SockRef::from(socket).send_vectored(parts)
    }
}
