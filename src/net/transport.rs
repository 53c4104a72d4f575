//! How the bytes of a connection travel. All bytes sent to a client or read from one pass through here, whichever code
//! moves them: the connection's task, the poller beside busy scripts, the script debugger, or a large string sent past
//! the outbox.

use std::io::{self, ErrorKind, IoSlice};
use std::os::fd::RawFd;
use std::task::{Context, Poll};

use super::socket::{Socket, Way};
use super::tls::Tls;

/// See the module's header.
pub(crate) enum Transport {
    /// Unencrypted.
    Plain(Socket),
    /// Encrypted.
    Tls(Box<Tls>),
}

impl Transport {
    /// Whether the connection can't carry data of a session yet.
    pub(super) fn is_handshaking(&self) -> bool {
        matches!(self, Transport::Tls(tls) if tls.is_handshaking())
    }

    /// Whether there may be input even if poll(2) reports none for the socket.
    pub(super) fn has_more(&self) -> bool {
        match self {
            Transport::Plain(socket) => socket.has_more(),
            Transport::Tls(tls) => tls.has_more() || tls.socket().has_more(),
        }
    }

    /// How many bytes were accepted but not yet handed to the system.
    pub(super) fn unsent(&self) -> usize {
        self.socket().unsent()
    }

    /// The number of the I/O thread that serves it; 0 for the engine's thread.
    pub(super) fn thread(&self) -> u8 {
        self.socket().thread()
    }

    fn socket(&self) -> &Socket {
        match self {
            Transport::Plain(socket) => socket,
            Transport::Tls(tls) => tls.socket(),
        }
    }

    /// The certificate that the client has shown. Returned once, as soon as it is known.
    pub(super) fn take_certificate(&mut self) -> Option<Vec<u8>> {
        match self {
            Transport::Plain(_) => None,
            Transport::Tls(tls) => tls.take_certificate(),
        }
    }

    /// Closes it.
    pub(super) fn close(self) {
        match self {
            Transport::Plain(socket) => drop(socket),
            Transport::Tls(tls) => tls.close(),
        }
    }
}

/// For the connection's task.
impl Transport {
    /// Continues the handshake, unless it has ended.
    pub(super) fn poll_handshake(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Transport::Plain(_) => Poll::Ready(Ok(())),
            Transport::Tls(tls) => tls.shake_hands(&mut Way::Task(cx)),
        }
    }

    /// Reads available bytes; 0 at the end.
    #[inline]
    pub(super) fn poll_read(&mut self, cx: &mut Context<'_>, input: &mut [u8]) -> Poll<io::Result<usize>> {
        match self {
            Transport::Plain(socket) => socket.poll_read(cx, input),
            Transport::Tls(tls) => tls.read(&mut Way::Task(cx), input),
        }
    }

    /// Sends some of `bytes`.
    #[inline]
    pub(super) fn poll_write(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self {
            Transport::Plain(socket) => socket.poll_write(cx, bytes),
            Transport::Tls(tls) => tls.write(&mut Way::Task(cx), bytes),
        }
    }

    /// Whether the system has taken every byte accepted so far.
    pub(super) fn poll_sent(&self, cx: &mut Context<'_>) -> Poll<()> {
        self.socket().poll_sent(cx)
    }

    /// Registers the socket with tokio, if it is not registered.
    pub(super) fn adopt(self) -> io::Result<Transport> {
        match self {
            Transport::Plain(socket) => Ok(Transport::Plain(socket.adopt()?)),
            Transport::Tls(tls) => Ok(Transport::Tls(Box::new(tls.adopt()?))),
        }
    }
}

/// For callers past tokio. None of these calls waits.
impl Transport {
    /// The socket's descriptor.
    pub(super) fn raw_fd(&self) -> RawFd {
        self.socket().raw_fd()
    }

    /// Reads available bytes; 0 at the end.
    pub(super) fn read_now(&mut self, input: &mut [u8]) -> io::Result<usize> {
        match self {
            Transport::Plain(socket) => socket.read_now(input),
            Transport::Tls(tls) => at_once(tls.read(&mut Way::Now, input)),
        }
    }

    /// Sends some of `bytes`.
    pub(super) fn send_now(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Transport::Plain(socket) => socket.send_now(bytes),
            Transport::Tls(tls) => at_once(tls.write(&mut Way::Now, bytes)),
        }
    }

    /// Sends some of `parts`, from the beginning on; if `more_follows`, in full packets.
    pub(super) fn send_parts_now(&mut self, parts: &[IoSlice<'_>], more_follows: bool) -> io::Result<usize> {
        match self {
            Transport::Plain(socket) if more_follows => socket.send_full_packets_now(parts),
            Transport::Plain(socket) => socket.send_parts_now(parts),
            Transport::Tls(tls) => at_once(tls.write_parts(&mut Way::Now, parts)),
        }
    }
}

fn at_once(done: Poll<io::Result<usize>>) -> io::Result<usize> {
    match done {
        Poll::Ready(done) => done,
        Poll::Pending => Err(ErrorKind::WouldBlock.into()),
    }
}
