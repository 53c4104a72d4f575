//! A connected socket, TCP or unix, as tokio knows it or before tokio knows it. All are non-blocking.
//!
//! Each has two users, never at the same time: the connection's task, whom tokio wakes, and the [raw poller](super::raw_poller),
//! which works past tokio.

use std::io::{self, ErrorKind, IoSlice, Read};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, UnixStream};

/// See the module's header.
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
    pub(super) fn adopt(self) -> io::Result<Socket> {
        match self {
            Socket::Accepted { fd, is_unix: false } => Ok(Socket::Tcp(TcpStream::from_std(fd.into())?)),
            Socket::Accepted { fd, is_unix: true } => Ok(Socket::Unix(UnixStream::from_std(fd.into())?)),
            known => Ok(known),
        }
    }

    /// Its descriptor.
    pub(super) fn raw_fd(&self) -> RawFd {
        self.as_fd().as_raw_fd()
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

/// For its task.
impl Socket {
    /// Reads what is there; 0 at the end.
    #[inline]
    pub(super) fn poll_read(&mut self, cx: &mut Context<'_>, input: &mut [u8]) -> Poll<io::Result<usize>> {
        let mut buf = ReadBuf::new(input);
        match self {
            Socket::Tcp(stream) => ready!(Pin::new(stream).poll_read(cx, &mut buf))?,
            Socket::Unix(stream) => ready!(Pin::new(stream).poll_read(cx, &mut buf))?,
            Socket::Accepted { .. } => {}
        }
        Poll::Ready(Ok(buf.filled().len()))
    }

    /// Sends some of `bytes`.
    #[inline]
    pub(super) fn poll_write(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self {
            Socket::Tcp(stream) => Pin::new(stream).poll_write(cx, bytes),
            Socket::Unix(stream) => Pin::new(stream).poll_write(cx, bytes),
            Socket::Accepted { .. } => Poll::Ready(Err(ErrorKind::NotConnected.into())),
        }
    }
}

/// Past tokio. None of these calls waits.
impl Socket {
    /// Reads what is there; 0 at the end.
    pub(super) fn read_now(&self, input: &mut [u8]) -> io::Result<usize> {
        (&*SockRef::from(self)).read(input)
    }

    /// Sends some of `bytes`.
    pub(super) fn send_now(&self, bytes: &[u8]) -> io::Result<usize> {
        SockRef::from(self).send(bytes)
    }

    /// Sends some of `parts`, from the beginning on.
    pub(super) fn send_parts_now(&self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        SockRef::from(self).send_vectored(parts)
    }
}
