//! Listening sockets: TCP and unix.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use socket2::{Domain, Protocol, SockRef, Socket, TcpKeepalive, Type};
use tokio::net::{TcpListener, TcpStream, UnixListener};

use super::conn::{Conn, Stream};
use super::serve::Shared;
use crate::engine::session::Peer;

/// A socket that takes connections.
pub enum Listener {
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
    pub fn tcp(address: SocketAddr, backlog: i32) -> io::Result<Listener> {
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
    pub fn unix(path: &Path, permissions: u32, backlog: i32) -> io::Result<Listener> {
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

    /// Accepts for ever.
    pub(super) async fn accept_all(self, shared: Rc<Shared>) {
        loop {
            let accepted = match &self {
                Listener::Tcp(listener) => listener.accept().await.map(|(stream, _)| admit_tcp(&shared, stream)),
                Listener::Unix(listener, path) => listener.accept().await.map(|(stream, _)| {
                    let address = format!("{}:0", path.display());
                    let peer = Peer { address: address.clone(), local_address: address, fd: stream.as_raw_fd() };
                    admit(&shared, stream, peer);
                }),
            };
            if let Err(error) = accepted {
                tracing::warn!(%error, "could not accept a connection");
                tokio::time::sleep(ACCEPT_RETRY).await;
            }
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

fn admit_tcp(shared: &Rc<Shared>, stream: TcpStream) {
    let keepalive_s = shared.engine.borrow().server.config.tcp_keepalive_s;
    // A socket that the peer has reset already takes no options; reading from it will say so.
    let _ = stream.set_nodelay(true);
    if keepalive_s > 0 {
        let keepalive = TcpKeepalive::new()
            .with_time(Duration::from_secs(keepalive_s.into()))
            .with_interval(Duration::from_secs((keepalive_s / 3).max(1).into()))
            .with_retries(3);
        let _ = SockRef::from(&stream).set_tcp_keepalive(&keepalive);
    }
    let remote = stream.peer_addr().ok();
    let show = |address: Option<SocketAddr>| address.map_or_else(|| "?:0".to_owned(), |address| address.to_string());
    let peer = Peer { address: show(remote), local_address: show(stream.local_addr().ok()), fd: stream.as_raw_fd() };
    if is_denied(shared, remote.map(|address| address.ip())) {
        return turn_away(stream, PROTECTED_MODE);
    }
    admit(shared, stream, peer);
}

/// Whether protected mode keeps this peer out: it is remote, and nothing else guards the server.
fn is_denied(shared: &Shared, remote: Option<IpAddr>) -> bool {
    let engine = shared.engine.borrow();
    let config = &engine.server.config;
    let is_local = remote.is_some_and(|ip| ip.to_canonical().is_loopback());
    config.protected_mode && config.requirepass.is_empty() && !is_local
}

fn admit(shared: &Rc<Shared>, stream: impl Stream, peer: Peer) {
    let mut engine = shared.engine.borrow_mut();
    if engine.server.sessions.len() >= engine.server.config.maxclients as usize {
        engine.server.stats.rejected_connections += 1;
        return turn_away(stream, b"-ERR max number of clients reached\r\n");
    }
    let key = engine.connect(peer);
    drop(engine);
    tokio::task::spawn_local(Conn::new(shared.clone(), key, stream));
}

/// Says why and closes, without waiting for a peer that does not read.
fn turn_away(mut stream: impl Stream, reason: &[u8]) {
    let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
    let _ = std::pin::Pin::new(&mut stream).poll_write(&mut cx, reason);
}
