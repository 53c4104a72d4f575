//! How the bytes of a connection travel. Whatever is sent to a client or read from one passes through here, whoever does it: the
//! connection's task, the poller beside busy scripts, the script debugger, and a large string that leaves past the outbox.

use std::io::{self, IoSlice};
use std::os::fd::RawFd;
use std::task::{Context, Poll};

use super::socket::Socket;

/// See the module's header.
pub(crate) enum Transport {
    /// As they are.
    Plain(Socket),
}

/// For the connection's task.
impl Transport {
    /// Reads what is there; 0 at the end.
    #[inline]
    pub(super) fn poll_read(&mut self, cx: &mut Context<'_>, input: &mut [u8]) -> Poll<io::Result<usize>> {
        match self {
            Transport::Plain(socket) => socket.poll_read(cx, input),
        }
    }

    /// Sends some of `bytes`.
    #[inline]
    pub(super) fn poll_write(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self {
            Transport::Plain(socket) => socket.poll_write(cx, bytes),
        }
    }

    /// Makes the socket known to tokio, unless it is.
    pub(super) fn adopt(self) -> io::Result<Transport> {
        match self {
            Transport::Plain(socket) => Ok(Transport::Plain(socket.adopt()?)),
        }
    }
}

/// Past tokio. None of these calls waits.
impl Transport {
    /// The socket's descriptor.
    pub(super) fn raw_fd(&self) -> RawFd {
        match self {
            Transport::Plain(socket) => socket.raw_fd(),
        }
    }

    /// Reads what is there; 0 at the end.
    pub(super) fn read_now(&mut self, input: &mut [u8]) -> io::Result<usize> {
        match self {
            Transport::Plain(socket) => socket.read_now(input),
        }
    }

    /// Sends some of `bytes`.
    pub(super) fn send_now(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Transport::Plain(socket) => socket.send_now(bytes),
        }
    }

    /// Sends some of `parts`, from the beginning on.
    pub(super) fn send_parts_now(&mut self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        match self {
            Transport::Plain(socket) => socket.send_parts_now(parts),
        }
    }
}
