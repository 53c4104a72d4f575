//! Connections that another thread of this process makes to the engine.
//!
//! The console runs commands for people, each over such a connection, so that rights, limits, the audit, MONITOR and a
//! busy script treat them like the commands of any client. One end of a pair of sockets waits here until the engine's
//! thread takes it. From then on it is an ordinary connection, whose address is that of the person's browser.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::os::unix::net::UnixStream;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use crate::net::limits::INSIDE_WAITING_MAX;

/// A connection that the engine's thread has not taken yet.
pub(super) struct Arrival {
    pub(super) socket: UnixStream,
    /// The address of the person for whom it is made.
    pub(super) address: SocketAddr,
    /// The client whose user it acts as; `None` for a connection that signs in by itself.
    pub(super) like: Option<Like>,
}

/// A client that has signed in, whose rights another connection gets.
#[derive(Clone, Copy)]
pub(crate) struct Like {
    /// The client's id.
    pub(crate) client: u64,
    /// The SHA-256 of the password by which it signed in, empty without one. When the user accepts it no longer, there
    /// are no rights to get.
    pub(crate) password: [u8; 32],
}

/// See the file's header.
#[derive(Default)]
pub(crate) struct Inside {
    waiting: Mutex<VecDeque<Arrival>>,
    arrived: Notify,
}

impl Inside {
    /// Connects to the engine, for a person at this address: as a newcomer, or with the rights that a client has.
    /// Returns this end of the connection, in non-blocking mode.
    pub(crate) fn connect(&self, address: SocketAddr, like: Option<Like>) -> io::Result<UnixStream> {
        let (here, socket) = UnixStream::pair()?;
        here.set_nonblocking(true)?;
        socket.set_nonblocking(true)?;
        let mut waiting = self.waiting();
        if waiting.len() >= INSIDE_WAITING_MAX {
            return Err(io::Error::other("too many calls wait for the engine"));
        }
        waiting.push_back(Arrival { socket, address, like });
        self.arrived.notify_one();
        Ok(here)
    }

    /// Waits until there may be a connection to take.
    pub(super) async fn arrived(&self) {
        self.arrived.notified().await;
    }

    /// Takes the connection that has waited longest.
    pub(super) fn take(&self) -> Option<Arrival> {
        self.waiting().pop_front()
    }

    fn waiting(&self) -> MutexGuard<'_, VecDeque<Arrival>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
