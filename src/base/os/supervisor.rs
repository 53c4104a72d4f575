//! Notifies the service manager that started this process when it is ready to serve, and when it ends.
//!
//! systemd gives the address of a datagram socket in `NOTIFY_SOCKET` (sd_notify(3)): a path or, after `@`, a name
//! without a file. upstart (`UPSTART_JOB`) waits until the process stops itself.

use std::io;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::sync::OnceLock;

/// The address of systemd's socket, once [`Manager::follow`] was called for systemd.
static SYSTEMD: OnceLock<SocketAddr> = OnceLock::new();

/// The service manager that started this process.
#[derive(Clone, Debug)]
pub enum Manager {
    /// systemd, with the address of its socket.
    Systemd(SocketAddr),
    /// upstart.
    Upstart,
}

impl Manager {
    /// Returns systemd, if it started this process and wants to be notified.
    pub fn systemd() -> Option<Manager> {
        let name = std::env::var("NOTIFY_SOCKET").ok()?;
        let address = match name.strip_prefix('@') {
            Some(name) => abstract_address(name),
            None => SocketAddr::from_pathname(&name).ok(),
        };
        address.map(Manager::Systemd)
    }

    /// Returns upstart, if it started this process.
    pub fn upstart() -> Option<Manager> {
        std::env::var_os("UPSTART_JOB").map(|_| Manager::Upstart)
    }

    /// Makes [`ready`] and [`stopping`] notify this manager from now on. For upstart, which waits for it, stops the
    /// process at once.
    pub fn follow(self) {
        match self {
            // Only the first address counts, and there is only one.
            Manager::Systemd(address) => drop(SYSTEMD.set(address)),
            // SAFETY: takes no pointers. The process goes on when upstart lets it.
            Manager::Upstart => drop(unsafe { libc::raise(libc::SIGSTOP) }),
        }
    }
}

/// Returns an address without a file, which only Linux has.
fn abstract_address(name: &str) -> Option<SocketAddr> {
    #[cfg(target_os = "linux")]
    return <SocketAddr as std::os::linux::net::SocketAddrExt>::from_abstract_name(name).ok();
    #[cfg(not(target_os = "linux"))]
    return Some(name).and(None);
}

/// Reports that the server is ready.
pub fn ready() {
    notify_systemd("READY=1\nSTATUS=Ready to accept connections");
}

/// Reports that the server is about to end.
pub fn stopping() {
    notify_systemd("STOPPING=1\nSTATUS=Ending");
}

fn notify_systemd(state: &str) {
    let Some(address) = SYSTEMD.get() else { return };
    if let Err(error) = send(address, state) {
        tracing::warn!("could not send {state:?} to systemd: {error}");
    }
}

fn send(address: &SocketAddr, state: &str) -> io::Result<()> {
    UnixDatagram::unbound()?.send_to_addr(state.as_bytes(), address).map(drop)
}
