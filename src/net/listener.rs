//! Listening sockets: TCP and unix.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use socket2::{Domain, Protocol, SockRef, Socket, TcpKeepalive, Type};
use tokio::net::{TcpListener, UnixListener};

use super::conn::Conn;
use super::serve::Shared;
use super::socket::Socket as Connected;
use super::socket_table::{Connection, SocketTable};
use super::transport::Transport;
use crate::engine::ServerState;
use crate::engine::session::{Peer, SessionKey};

/// A socket that takes connections.
pub(crate) enum Listener {
    /// On an address and port.
    Tcp(TcpListener),
    /// On a path, which is removed at the end.
    Unix(UnixListener, PathBuf),
}

/// How long to wait when the system has no more descriptors.
const ACCEPT_RETRY: Duration = Duration::from_millis(100);

/// What a remote peer reads when no password guards a server that listens to the world.
const PROTECTED_MODE: &[u8] = b"-DENIED Tidegate runs in protected mode: no password is set, so only clients on this \
machine are served. Set a password (CONFIG SET requirepass, or --requirepass at start), or, where the network itself is \
trusted, turn the protection off (CONFIG SET protected-mode no, or --protected-mode no).\r\n";

impl Listener {
    /// Listens on a TCP address.
    pub(crate) fn tcp(address: SocketAddr, backlog: i32) -> io::Result<Listener> {
        let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
        if address.is_ipv6() {
            socket.set_only_v6(true)?;
        }
        socket.set_reuse_address(true)?;
        socket.set_nonblocking(true)?;
        socket.bind(&address.into())?;
        socket.listen(backlog)?;
        Ok(Listener::Tcp(TcpListener::from_std(socket.into())?))
    }

    /// Listens on a path. A socket that a server left there is replaced; another file is not.
    pub(crate) fn unix(path: &Path, permissions: u32, backlog: i32) -> io::Result<Listener> {
        if std::fs::symlink_metadata(path).is_ok_and(|meta| meta.file_type().is_socket()) {
            std::fs::remove_file(path)?;
        }
        let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
        socket.set_nonblocking(true)?;
        socket.bind(&socket2::SockAddr::unix(path)?)?;
        if permissions != 0 {
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(permissions))?;
        }
        socket.listen(backlog)?;
        let listener = std::os::unix::net::UnixListener::from(std::os::fd::OwnedFd::from(socket));
        Ok(Listener::Unix(UnixListener::from_std(listener)?, path.to_owned()))
    }

    /// Where it listens, as the start-up line tells it.
    pub(crate) fn address(&self) -> String {
        match self {
            Listener::Tcp(listener) => {
                listener.local_addr().map_or_else(|_| "?".to_owned(), |address| address.to_string())
            }
            Listener::Unix(_, path) => path.display().to_string(),
        }
    }

    /// Accepts for ever.
    pub(super) async fn accept_all(self: Rc<Listener>, shared: Rc<Shared>) {
        loop {
            let accepted = match &*self {
                Listener::Tcp(listener) => listener.accept().await.map(|(stream, _)| Connected::Tcp(stream)),
                Listener::Unix(listener, _) => listener.accept().await.map(|(stream, _)| Connected::Unix(stream)),
            };
            match accepted {
                Ok(socket) => {
                    let opened = open(&mut shared.engine.borrow_mut().server, &shared.sockets, socket, &self);
                    if let Some((key, connection)) = opened {
                        tokio::task::spawn_local(Conn::new(shared.clone(), key, connection));
                    }
                }
                Err(error) => {
                    tracing::warn!(%error, "could not accept a connection");
                    tokio::time::sleep(ACCEPT_RETRY).await;
                }
            }
        }
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Listener::Tcp(listener) => listener.as_fd(),
            Listener::Unix(listener, _) => listener.as_fd(),
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let Listener::Unix(_, path) = self {
            // Nothing is lost when the file is gone already.
            let _ = std::fs::remove_file(path);
        }
    }
}

/// Makes a socket that `listener` accepted a connection with a session; or tells its peer why not, and closes it.
pub(super) fn open(
    server: &mut ServerState,
    table: &SocketTable,
    socket: Connected,
    listener: &Listener,
) -> Option<(SessionKey, Rc<Connection>)> {
    let path = match listener {
        Listener::Tcp(_) => None,
        Listener::Unix(_, path) => Some(path.display().to_string()),
    };
    if let Err(reason) = greet(&SockRef::from(&socket), path.is_some(), server) {
        // The refusal fits any socket's buffer; a peer that has left does not miss it.
        let _ = SockRef::from(&socket).send(reason);
        return None;
    }
    let key = server.open_session(peer_of(&SockRef::from(&socket), path.as_deref()));
    let needs_task = matches!(socket, Connected::Accepted { .. });
    Some((key, table.add(key, Transport::Plain(socket), needs_task)))
}

/// Sets an accepted socket's options and decides whether it is served; else answers what to tell it.
fn greet(socket: &Socket, is_unix: bool, server: &mut ServerState) -> Result<(), &'static [u8]> {
    let config = &server.config;
    if !is_unix {
        // A socket that the peer has reset already takes no options; reading from it will say so.
        let _ = socket.set_tcp_nodelay(true);
        if config.tcp_keepalive_s > 0 {
            let keepalive = TcpKeepalive::new()
                .with_time(Duration::from_secs(config.tcp_keepalive_s.into()))
                .with_interval(Duration::from_secs((config.tcp_keepalive_s / 3).max(1).into()))
                .with_retries(3);
            let _ = socket.set_tcp_keepalive(&keepalive);
        }
        let remote = socket.peer_addr().ok().and_then(|address| address.as_socket());
        let is_local = remote.is_some_and(|address| address.ip().to_canonical().is_loopback());
        if config.protected_mode && config.requirepass.is_empty() && !is_local {
            server.stats.rejected_connections += 1;
            return Err(PROTECTED_MODE);
        }
    }
    if server.sessions.len() >= server.config.maxclients as usize {
        server.stats.rejected_connections += 1;
        return Err(b"-ERR max number of clients reached\r\n");
    }
    Ok(())
}

/// What CLIENT LIST tells of an accepted socket; `path` is that of a unix socket.
fn peer_of(socket: &Socket, path: Option<&str>) -> Peer {
    let fd = socket.as_raw_fd();
    if let Some(path) = path {
        let address = format!("{path}:0");
        return Peer { address: address.clone(), local_address: address, fd, is_local: true };
    }
    let remote = socket.peer_addr().ok().and_then(|address| address.as_socket());
    let local = socket.local_addr().ok().and_then(|address| address.as_socket());
    let show = |address: Option<SocketAddr>| address.map_or_else(|| "?:0".to_owned(), |address| address.to_string());
    let is_local = remote.is_some_and(|address| address.ip().to_canonical().is_loopback());
    Peer { address: show(remote), local_address: show(local), fd, is_local }
}
