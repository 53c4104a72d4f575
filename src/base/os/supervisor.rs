//! Telling the service manager that started this process when it serves, and when it ends.
//!
//! systemd gives the address of a datagram socket in `NOTIFY_SOCKET` (sd_notify(3)): a path, or, after `@`, a name without a file.
//! upstart (`UPSTART_JOB`) waits until the process stops itself.

use std::io;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::sync::OnceLock;

/// Where systemd listens, once [`Manager::follow`] was called for it.
static SYSTEMD: OnceLock<SocketAddr> = OnceLock::new();

/// Who started this process.
#[derive(Clone, Debug)]
pub enum Manager {
    /// systemd, and where it listens.
    Systemd(SocketAddr),
    /// upstart.
    Upstart,
}

impl Manager {
    /// systemd, if it started this process and wants to hear from it.
    pub fn systemd() -> Option<Manager> {
        let name = std::env::var("NOTIFY_SOCKET").ok()?;
        let address = match name.strip_prefix('@') {
            Some(name) => abstract_address(name),
            None => SocketAddr::from_pathname(&name).ok(),
        };
        address.map(Manager::Systemd)
    }

    /// upstart, if it started this process.
    pub fn upstart() -> Option<Manager> {
        std::env::var_os("UPSTART_JOB").map(|_| Manager::Upstart)
    }

    /// From now on it hears from [`ready`] and [`stopping`]. upstart waits for a stop of the process, at once.
    pub fn follow(self) {
        match self {
            // Only the first one counts, and there is one.
            Manager::Systemd(address) => drop(SYSTEMD.set(address)),
            // SAFETY: takes no pointers. The process goes on when upstart lets it.
            Manager::Upstart => drop(unsafe { libc::raise(libc::SIGSTOP) }),
        }
    }
}

/// An address without a file, which only Linux has.
fn abstract_address(name: &str) -> Option<SocketAddr> {
    #[cfg(target_os = "linux")]
    return <SocketAddr as std::os::linux::net::SocketAddrExt>::from_abstract_name(name).ok();
    #[cfg(not(target_os = "linux"))]
    return Some(name).and(None);
}

/// The server answers.
pub fn ready() {
    tell("READY=1\nSTATUS=Ready to accept connections");
}

/// The server is going to end.
pub fn stopping() {
    tell("STOPPING=1\nSTATUS=Ending");
}

fn tell(state: &str) {
    let Some(address) = SYSTEMD.get() else { return };
    if let Err(error) = send(address, state) {
        tracing::warn!("systemd could not be told that {state:?}: {error}");
    }
}

fn send(address: &SocketAddr, state: &str) -> io::Result<()> {
    UnixDatagram::unbound()?.send_to_addr(state.as_bytes(), address).map(drop)
}
