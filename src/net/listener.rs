//! Listening sockets: TCP, with TLS or without, and unix.

use std::cell::RefCell;
use std::fmt;
use std::future::poll_fn;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::task::{Poll, Waker};
use std::time::Duration;

use socket2::{Domain, Protocol, SockRef, Socket, TcpKeepalive, Type};
use tokio::net::{TcpListener, UnixListener};

use super::inside::Arrival;
use super::serve::Shared;
use super::socket::Socket as Connected;
use super::socket_table::{Connection, SocketTable};
use super::transport::Transport;
use crate::config::Config;
use crate::engine::ServerState;
use crate::engine::client::audit::not_let_in;
use crate::net::limits::{INSIDE_RESERVED, TLS_CONNECTION_BYTES};
use crate::session::{Peer, Service};
use crate::spec::session_key::SessionKey;

/// Whether connections over TCP are encrypted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Security {
    /// Not encrypted.
    Plain,
    /// Encrypted by TLS.
    Tls,
}

/// Where to listen, as the configuration gives it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// At an address or name, `*` for every IPv4 and `::*` for every IPv6 address, and a port.
    Tcp { host: String, port: u16, security: Security, service: Service },
    /// At a path, which is removed when the listener closes.
    Unix(PathBuf),
}

impl Place {
    /// Its port, if it has one.
    pub(super) fn port(&self) -> Option<u16> {
        match self {
            Place::Tcp { port, .. } => Some(*port),
            Place::Unix(_) => None,
        }
    }

    /// Whether its connections are encrypted.
    fn is_secure(&self) -> bool {
        matches!(self, Place::Tcp { security: Security::Tls, .. })
    }

    /// Returns the service of the connections that come in here.
    fn service(&self) -> Service {
        match self {
            Place::Tcp { service, .. } => *service,
            Place::Unix(_) => Service::Data,
        }
    }

    /// How many connections to accept there at a time before others have their turn.
    fn accepted_in_turn(&self, config: &Config) -> u32 {
        if self.is_secure() { config.max_new_tls_connections_per_cycle } else { config.max_new_connections_per_cycle }
    }
}

/// Formats the place as log lines show it.
impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::Tcp { host, port, .. } => write!(f, "{host}:{port}"),
            Place::Unix(path) => path.display().fmt(f),
        }
    }
}

/// A socket that takes connections.
pub(crate) struct Listener {
    place: Place,
    /// Borrowed for the length of one call. `None` once it is closed.
    socket: RefCell<Option<Bound>>,
    /// The waker of the task that accepts.
    waker: RefCell<Option<Waker>>,
}

enum Bound {
    Tcp(TcpListener),
    Unix(UnixListener),
}

/// How long to wait when the system has no more descriptors.
const ACCEPT_RETRY: Duration = Duration::from_millis(100);

/// Sent to a remote peer when no password guards a server that listens on all addresses.
const PROTECTED_MODE: &[u8] = b"-DENIED Tidegate runs in protected mode: no password is set, so only clients on this \
machine are served. Set a password (CONFIG SET requirepass, or --requirepass at start), or, where the network itself \
is trusted, turn the protection off (CONFIG SET protected-mode no, or --protected-mode no).\r\n";

impl Listener {
    /// Listens at `place`. `permissions` are those of a unix socket.
    pub(crate) fn open(place: Place, backlog: i32, permissions: u32) -> io::Result<Listener> {
        let bound = match &place {
            Place::Tcp { host, port, .. } => Bound::Tcp(bind_tcp(resolve(host, *port)?, backlog)?),
            Place::Unix(path) => Bound::Unix(bind_unix(path, permissions, backlog)?),
        };
        Ok(Listener { place, socket: RefCell::new(Some(bound)), waker: RefCell::default() })
    }

    /// Listens again at a port that has just been closed, before its task has noticed.
    pub(super) fn reopen(&self, backlog: i32) -> io::Result<()> {
        if let Place::Tcp { host, port, .. } = &self.place {
            let bound = Bound::Tcp(bind_tcp(resolve(host, *port)?, backlog)?);
            self.socket.replace(Some(bound));
        }
        Ok(())
    }

    /// Whether the listener is still open.
    pub(super) fn is_open(&self) -> bool {
        self.socket.borrow().is_some()
    }

    /// Sets the mark for the system's packet filters on connections over TCP, if `id` is not 0. Only on Linux.
    pub(crate) fn mark(&self, id: u32) -> io::Result<()> {
        match &*self.socket.borrow() {
            #[cfg(target_os = "linux")]
            Some(Bound::Tcp(listener)) if id != 0 => SockRef::from(listener).set_mark(id),
            _ => Ok(()),
        }
    }

    /// Where it listens.
    pub(crate) fn place(&self) -> &Place {
        &self.place
    }

    /// The place, as the start-up line shows it.
    pub(crate) fn address(&self) -> String {
        match (&*self.socket.borrow(), &self.place) {
            (Some(Bound::Tcp(listener)), Place::Tcp { security, service, .. }) => {
                let address = listener.local_addr().map_or_else(|_| "?".to_owned(), |address| address.to_string());
                let suffix = match (service, security) {
                    (Service::Data, Security::Plain) => "",
                    (Service::Data, Security::Tls) => " (TLS)",
                    (Service::Sentinel, Security::Plain) => " (Sentinel)",
                    (Service::Sentinel, Security::Tls) => " (Sentinel, TLS)",
                };
                address + suffix
            }
            (_, place) => place.to_string(),
        }
    }

    /// Closes the listener; its task ends. Established connections stay.
    pub(crate) fn close(&self) {
        if let (Some(Bound::Unix(_)), Place::Unix(path)) = (self.socket.take(), &self.place) {
            // It does not matter if the file is gone already.
            let _ = std::fs::remove_file(path);
        }
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }

    /// Its descriptor; a negative number once it is closed.
    pub(super) fn raw_fd(&self) -> RawFd {
        match &*self.socket.borrow() {
            Some(Bound::Tcp(listener)) => listener.as_raw_fd(),
            Some(Bound::Unix(listener)) => listener.as_raw_fd(),
            None => -1,
        }
    }

    /// Accepts a connection past tokio, if there is one.
    pub(super) fn accept_now(&self) -> io::Result<Connected> {
        let accepted = match &*self.socket.borrow() {
            Some(Bound::Tcp(listener)) => SockRef::from(listener).accept(),
            Some(Bound::Unix(listener)) => SockRef::from(listener).accept(),
            None => Err(io::ErrorKind::NotConnected.into()),
        };
        let (socket, _) = accepted?;
        socket.set_nonblocking(true)?;
        Ok(Connected::Accepted { fd: socket.into(), is_unix: matches!(self.place, Place::Unix(_)) })
    }

    /// The next connection; `None` once the listener is closed.
    async fn accept(&self) -> Option<io::Result<Connected>> {
        poll_fn(|cx| {
            self.waker.replace(Some(cx.waker().clone()));
            match &*self.socket.borrow() {
                Some(Bound::Tcp(listener)) => {
                    listener.poll_accept(cx).map(|accepted| Some(accepted.map(|(stream, _)| Connected::Tcp(stream))))
                }
                Some(Bound::Unix(listener)) => {
                    listener.poll_accept(cx).map(|accepted| Some(accepted.map(|(stream, _)| Connected::Unix(stream))))
                }
                None => Poll::Ready(None),
            }
        })
        .await
    }

    /// Accepts connections until the listener is closed.
    pub(super) async fn accept_all(self: Rc<Listener>, shared: Rc<Shared>) {
        let mut accepted_in_turn = 0;
        while let Some(accepted) = self.accept().await {
            accepted_in_turn += 1;
            if accepted_in_turn >= self.place.accepted_in_turn(&shared.engine.borrow().server.config) {
                accepted_in_turn = 0;
                tokio::task::yield_now().await;
            }
            match accepted {
                Ok(socket) => {
                    let opened = open(&mut shared.engine.borrow_mut().server, &shared.sockets, socket, &self);
                    if let Some((key, connection)) = opened {
                        shared.spawn(key, connection);
                    }
                }
                // The client was gone before it was served.
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
                Err(error) => {
                    tracing::warn!(%error, "could not accept a connection");
                    tokio::time::sleep(ACCEPT_RETRY).await;
                }
            }
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.close();
    }
}

fn bind_tcp(address: SocketAddr, backlog: i32) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    if address.is_ipv6() {
        socket.set_only_v6(true)?;
    }
    socket.set_reuse_address(true)?;
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    socket.listen(backlog)?;
    TcpListener::from_std(socket.into())
}

/// A socket that a server left at the path is replaced; another file is not.
fn bind_unix(path: &Path, permissions: u32, backlog: i32) -> io::Result<UnixListener> {
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
    UnixListener::from_std(OwnedFd::from(socket).into())
}

/// Resolves a host to its address; `*` and `::*` mean all addresses of the machine.
pub(crate) fn resolve(host: &str, port: u16) -> io::Result<SocketAddr> {
    let ip = match host {
        "*" => IpAddr::from([0, 0, 0, 0]),
        "::*" => IpAddr::from([0; 16]),
        host => match host.parse() {
            Ok(ip) => ip,
            Err(_) => return first_address(host, port),
        },
    };
    Ok(SocketAddr::new(ip, port))
}

fn first_address(host: &str, port: u16) -> io::Result<SocketAddr> {
    use std::net::ToSocketAddrs;
    (host, port).to_socket_addrs()?.next().ok_or_else(|| io::Error::other("the name has no address"))
}

/// Turns a socket that `listener` accepted into a connection with a session, or tells its peer why not and closes it.
pub(super) fn open(
    server: &mut ServerState,
    table: &SocketTable,
    socket: Connected,
    listener: &Listener,
) -> Option<(SessionKey, Rc<Connection>)> {
    let path = match listener.place() {
        Place::Tcp { .. } => None,
        Place::Unix(path) => Some(path.display().to_string()),
    };
    let is_secure = listener.place().is_secure();
    let refusal = greet(&SockRef::from(&socket), path.is_some(), server);
    if matches!(refusal, Some(Refusal::Protected)) {
        not_let_in(&peer_of(&SockRef::from(&socket), None).address);
    }
    match refusal {
        // A TLS client can read the refusal only after the handshake; until then it counts as a connection.
        Some(Refusal::Protected) if is_secure && !is_full(server, 0) => {}
        Some(refusal) => {
            server.meters.stats.rejected_connections += 1;
            if !is_secure {
                // The text fits any socket's buffer, and a peer that has left does not miss it.
                let _ = SockRef::from(&socket).send(refusal.text());
            }
            return None;
        }
        None => {}
    }
    let needs_task = matches!(socket, Connected::Accepted { .. });
    // tokio could not release the socket: it is closed, and its peer may try again.
    let socket = table.relay(socket).inspect_err(|error| tracing::warn!(%error, "dropped a connection")).ok()?;
    let transport_bytes = if is_secure { TLS_CONNECTION_BYTES } else { 0 };
    let io_thread = socket.thread();
    let service = listener.place().service();
    let peer = Peer { transport_bytes, io_thread, service, ..peer_of(&SockRef::from(&socket), path.as_deref()) };
    let transport = match is_secure {
        false => Transport::Plain(socket),
        // Without an acceptor the server no longer listens for TLS.
        true => Transport::Tls(Box::new(table.acceptor()?.accept(socket).ok()?)),
    };
    let key = server.open_session(peer);
    if let Some(refusal) = refusal {
        server.clients.turn_away(key, refusal.text());
        server.meters.stats.rejected_connections += 1;
    }
    let connection = table.add(key, transport, needs_task);
    if is_secure {
        table.bound_handshakes(server);
    }
    Some((key, connection))
}

/// Opens the connections that have come from inside the process. Each needs a task.
pub(super) fn open_from_inside(server: &mut ServerState, table: &SocketTable) {
    while let Some(Arrival { socket, address, like }) = table.take_from_inside() {
        // A name of its own means that a proxy stands in front, whose address says nothing of where somebody is.
        let is_local = address.ip().to_canonical().is_loopback() && server.config.console_hosts.is_empty();
        if let Some(refusal) = refusal_of(server, is_local, INSIDE_RESERVED) {
            if matches!(refusal, Refusal::Protected) {
                not_let_in(&address.to_string());
            }
            server.meters.stats.rejected_connections += 1;
            // The text fits the buffer of a new socket.
            let _ = SockRef::from(&socket).send(refusal.text());
            continue;
        }
        let peer = Peer {
            address: address.to_string(),
            local_address: "console:0".to_owned(),
            fd: socket.as_raw_fd(),
            is_local,
            is_inside: true,
            ..Peer::default()
        };
        let accepted = Connected::Accepted { fd: socket.into(), is_unix: true };
        // As for other sockets: its peer finds it closed.
        let Ok(socket) = table.relay(accepted) else { continue };
        let key = server.open_session(Peer { io_thread: socket.thread(), ..peer });
        if like.is_some_and(|like| !server.connections().act_like(key, like.client, &like.password)) {
            server.clients.turn_away(key, b"-NOAUTH the session has ended\r\n");
        }
        table.add(key, Transport::Plain(socket), true);
    }
}

/// Why a peer is not served.
#[derive(Clone, Copy)]
enum Refusal {
    Protected,
    Full,
}

impl Refusal {
    fn text(self) -> &'static [u8] {
        match self {
            Refusal::Protected => PROTECTED_MODE,
            Refusal::Full => b"-ERR max number of clients reached\r\n",
        }
    }
}

/// Sets an accepted socket's options. Returns the reason if the peer is not to be served.
fn greet(socket: &Socket, is_unix: bool, server: &ServerState) -> Option<Refusal> {
    let config = &server.config;
    if !is_unix {
        // A socket that the peer has already reset takes no options; reading from it will report that.
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
        return refusal_of(server, is_local, 0);
    }
    refusal_of(server, true, 0)
}

/// Returns the reason not to serve a peer, if there is one. `beyond` is the number of clients that there may be beyond
/// `maxclients`.
fn refusal_of(server: &ServerState, is_local: bool, beyond: usize) -> Option<Refusal> {
    if server.config.protected_mode && server.acl.has_open_default() && !is_local {
        return Some(Refusal::Protected);
    }
    is_full(server, beyond).then_some(Refusal::Full)
}

fn is_full(server: &ServerState, beyond: usize) -> bool {
    server.clients.sessions.len() >= server.config.maxclients as usize + beyond
}

/// The peer of an accepted socket, as CLIENT LIST shows it; `path` is that of a unix socket.
fn peer_of(socket: &Socket, path: Option<&str>) -> Peer {
    let fd = socket.as_raw_fd();
    if let Some(path) = path {
        let address = format!("{path}:0");
        return Peer { address: address.clone(), local_address: address, fd, is_local: true, ..Peer::default() };
    }
    let remote = socket.peer_addr().ok().and_then(|address| address.as_socket());
    let local = socket.local_addr().ok().and_then(|address| address.as_socket());
    let show = |address: Option<SocketAddr>| address.map_or_else(|| "?:0".to_owned(), |address| address.to_string());
    let is_local = remote.is_some_and(|address| address.ip().to_canonical().is_loopback());
    Peer { address: show(remote), local_address: show(local), fd, is_local, ..Peer::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn handshakes_have_a_limit_of_their_own() {
        let config =
            Config { max_new_connections_per_cycle: 7, max_new_tls_connections_per_cycle: 3, ..Config::default() };
        let tcp = |security| {
            let place = Place::Tcp { host: "*".to_owned(), port: 1, security, service: Service::Data };
            place.accepted_in_turn(&config)
        };
        let unix = Place::Unix(PathBuf::from("/x")).accepted_in_turn(&config);
        assert_eq!((tcp(Security::Plain), tcp(Security::Tls), unix), (7, 3, 7));
    }
}
