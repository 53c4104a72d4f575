//! A connected TCP or unix socket: registered with tokio, not yet registered, or served by an I/O thread. All are
//! non-blocking.
//!
//! Each socket has two users, never at the same time. One is the connection's task, which is woken when there is
//! something to do. The other is the [raw poller](super::raw_poller), which works without tasks. [`Way`] says which of
//! them is calling, for code that serves both. Neither notices that the I/O thread of a relayed socket works beside it.

use std::io::{self, ErrorKind, IoSlice};
use std::num::NonZeroUsize;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::{TcpStream, UnixStream};

use super::io_threads::{IoThreads, Relayed};
use super::system_call;
use crate::session::limits::SEND_REST_MAX_BYTES;

/// The caller of an operation.
pub(super) enum Way<'a, 'b> {
    /// The connection's task, which is woken when the socket can be read, or written.
    Task(&'a mut Context<'b>),
    /// A caller that works past tokio and does not wait.
    Now,
}

/// See the module's header.
pub(crate) enum Socket {
    /// Over TCP.
    Tcp(TcpStream),
    /// Over a unix socket.
    Unix(UnixStream),
    /// Not registered with tokio yet.
    Accepted {
        /// The socket.
        fd: OwnedFd,
        /// Over a unix socket, not over TCP.
        is_unix: bool,
    },
    /// Served by an I/O thread.
    Relayed(Relayed),
}

impl Socket {
    /// Registers the socket with tokio, if it is not registered.
    pub(super) fn adopt(self) -> io::Result<Socket> {
        match self {
            Socket::Accepted { fd, is_unix: false } => Ok(Socket::Tcp(TcpStream::from_std(fd.into())?)),
            Socket::Accepted { fd, is_unix: true } => Ok(Socket::Unix(UnixStream::from_std(fd.into())?)),
            known => Ok(known),
        }
    }

    /// Hands the socket over to an I/O thread.
    pub(super) fn relay(self, threads: &Rc<IoThreads>) -> io::Result<Socket> {
        let fd: OwnedFd = match self {
            Socket::Tcp(stream) => stream.into_std()?.into(),
            Socket::Unix(stream) => stream.into_std()?.into(),
            Socket::Accepted { fd, .. } => fd,
            relayed @ Socket::Relayed(_) => return Ok(relayed),
        };
        Ok(Socket::Relayed(threads.relay(fd)))
    }

    /// The number of the I/O thread that serves it; 0 for the engine's thread.
    pub(super) fn thread(&self) -> u8 {
        if let Socket::Relayed(relayed) = self { relayed.thread() } else { 0 }
    }

    /// Whether there may be input even if poll(2) reports none for the descriptor.
    pub(super) fn has_more(&self) -> bool {
        matches!(self, Socket::Relayed(relayed) if relayed.has_incoming())
    }

    /// For its task: whether the system has taken every byte accepted so far.
    pub(super) fn poll_sent(&self, cx: &mut Context<'_>) -> Poll<()> {
        if let Socket::Relayed(relayed) = self { relayed.poll_sent(cx) } else { Poll::Ready(()) }
    }

    /// How many bytes were accepted but not yet handed to the system.
    pub(super) fn unsent(&self) -> usize {
        if let Socket::Relayed(relayed) = self { relayed.unsent() } else { 0 }
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
            Socket::Relayed(relayed) => relayed.as_fd(),
        }
    }
}

/// For its task.
impl Socket {
    /// Reads available bytes; 0 at the end.
    #[inline]
    pub(super) fn poll_read(&mut self, cx: &mut Context<'_>, input: &mut [u8]) -> Poll<io::Result<usize>> {
        let all = input.len();
        match self {
            Socket::Tcp(stream) => {
                when_ready(stream, Interest::READABLE, cx, all, |fd| system_call::receive(fd, input))
            }
            Socket::Unix(stream) => {
                when_ready(stream, Interest::READABLE, cx, all, |fd| system_call::receive(fd, input))
            }
            Socket::Accepted { .. } => Poll::Ready(Err(ErrorKind::NotConnected.into())),
            Socket::Relayed(relayed) => relayed.poll_read(cx, input),
        }
    }

    /// Sends some of `bytes`.
    #[inline]
    pub(super) fn poll_write(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let all = bytes.len();
        match self {
            Socket::Tcp(stream) => when_ready(stream, Interest::WRITABLE, cx, all, |fd| system_call::send(fd, bytes)),
            Socket::Unix(stream) => when_ready(stream, Interest::WRITABLE, cx, all, |fd| system_call::send(fd, bytes)),
            Socket::Accepted { .. } => Poll::Ready(Err(ErrorKind::NotConnected.into())),
            Socket::Relayed(relayed) => relayed.poll_write(cx, bytes),
        }
    }
}

/// For callers past tokio. None of these calls waits.
impl Socket {
    /// Reads available bytes; 0 at the end.
    pub(super) fn read_now(&self, input: &mut [u8]) -> io::Result<usize> {
        match self {
            Socket::Relayed(relayed) => relayed.read_now(input),
            socket => system_call::receive(socket, input),
        }
    }

    /// Sends some of `bytes`.
    pub(super) fn send_now(&self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Socket::Relayed(relayed) => {
                relayed.send_now(&[IoSlice::new(bytes)], |socket| system_call::send(socket, bytes))
            }
            socket => system_call::send(socket, bytes),
        }
    }

    /// Sends some of `parts`, from the beginning on.
    pub(super) fn send_parts_now(&self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        match self {
            Socket::Relayed(relayed) => relayed.send_now(parts, |socket| socket.send_vectored(parts)),
            socket => SockRef::from(socket).send_vectored(parts),
        }
    }

    /// As [`send_parts_now`](Self::send_parts_now), where more follows right away: a few bytes at the end that would
    /// not fill a packet are left for the next call.
    pub(super) fn send_full_packets_now(&self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        let all = parts.iter().map(|part| part.len()).sum::<usize>();
        let rest = self.packet_bytes().map_or(0, |packet| all % packet);
        if rest > SEND_REST_MAX_BYTES {
            return self.send_parts_now(parts);
        }
        let mut left = all - rest;
        let full_packets = parts.iter().map(|part| {
            let bytes = part.len().min(left);
            left -= bytes;
            IoSlice::new(&part[..bytes])
        });
        self.send_parts_now(&full_packets.collect::<Vec<_>>())
    }

    /// How many bytes a packet can carry, where the system reports it.
    fn packet_bytes(&self) -> Option<NonZeroUsize> {
        match self {
            Socket::Tcp(_) | Socket::Relayed(_) => NonZeroUsize::new(SockRef::from(self).tcp_mss().ok()? as usize),
            Socket::Unix(_) | Socket::Accepted { .. } => None,
        }
    }
}

/// For both callers. A socket that has no input, or takes no output, is `Pending`.
impl Socket {
    /// Reads available bytes; nothing at the end.
    pub(super) fn read(&mut self, way: &mut Way<'_, '_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match (way, self) {
            // Reads straight into the buffer, which must not be cleared first.
            (Way::Task(cx), Socket::Tcp(stream)) => Pin::new(stream).poll_read(cx, buf),
            (Way::Task(cx), Socket::Unix(stream)) => Pin::new(stream).poll_read(cx, buf),
            (Way::Task(_), Socket::Accepted { .. }) => Poll::Ready(Err(ErrorKind::NotConnected.into())),
            (Way::Task(cx), Socket::Relayed(relayed)) => {
                // No more is cleared than is read. An empty read would look like the end, so there is always room for a
                // byte.
                let most = relayed.unread().clamp(1, buf.remaining());
                let read = ready!(relayed.poll_read(cx, buf.initialize_unfilled_to(most)))?;
                buf.advance(read);
                Poll::Ready(Ok(()))
            }
            (Way::Now, socket) => {
                let read = ready!(unless_blocked(socket.read_now(buf.initialize_unfilled())))?;
                buf.advance(read);
                Poll::Ready(Ok(()))
            }
        }
    }

    /// Sends some of `parts`, from the beginning on.
    pub(super) fn write_parts(&mut self, way: &mut Way<'_, '_>, parts: &[IoSlice<'_>]) -> Poll<io::Result<usize>> {
        match (way, self) {
            (Way::Task(cx), Socket::Tcp(stream)) => Pin::new(stream).poll_write_vectored(cx, parts),
            (Way::Task(cx), Socket::Unix(stream)) => Pin::new(stream).poll_write_vectored(cx, parts),
            (Way::Task(_), Socket::Accepted { .. }) => Poll::Ready(Err(ErrorKind::NotConnected.into())),
            (Way::Task(cx), Socket::Relayed(relayed)) => relayed.poll_write_parts(cx, parts),
            (Way::Now, socket) => unless_blocked(socket.send_parts_now(parts)),
        }
    }
}

/// The operations common to tokio's streams.
trait Stream: AsFd {
    /// Waits until the stream is ready, as far as tokio knows.
    fn poll_ready(&self, interest: Interest, cx: &mut Context<'_>) -> Poll<io::Result<()>>;

    /// Makes a call. If it would block, the stream counts as not ready until the system reports it ready again.
    fn try_io(&self, interest: Interest, call: impl FnOnce() -> io::Result<usize>) -> io::Result<usize>;
}

macro_rules! streams {
    ($($stream:ty),*) => {$(
        impl Stream for $stream {
            #[inline]
            fn poll_ready(&self, interest: Interest, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
                if interest.is_readable() { self.poll_read_ready(cx) } else { self.poll_write_ready(cx) }
            }

            #[inline]
            fn try_io(&self, interest: Interest, call: impl FnOnce() -> io::Result<usize>) -> io::Result<usize> {
                self.try_io(interest, call)
            }
        }
    )*};
}
streams!(TcpStream, UnixStream);

/// Makes a system call that moves up to `all` bytes, as soon as the socket is ready for it.
#[inline]
fn when_ready<S: Stream>(
    socket: &S,
    interest: Interest,
    cx: &mut Context<'_>,
    all: usize,
    mut call: impl FnMut(BorrowedFd<'_>) -> io::Result<usize>,
) -> Poll<io::Result<usize>> {
    loop {
        ready!(socket.poll_ready(interest, cx))?;
        let mut some = None;
        let done = socket.try_io(interest, || {
            let done = call(socket.as_fd())?;
            if 0 < done && done < all {
                // A transfer shorter than asked for has emptied the receive buffer, or filled the send buffer (see
                // epoll(7)): another call would only find that out.
                some = Some(done);
                return Err(ErrorKind::WouldBlock.into());
            }
            Ok(done)
        });
        match (some, done) {
            (Some(some), _) => return Poll::Ready(Ok(some)),
            (None, Err(error)) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
            (None, done) => return Poll::Ready(done),
        }
    }
}

fn unless_blocked(done: io::Result<usize>) -> Poll<io::Result<usize>> {
    match done {
        Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => Poll::Pending,
        done => Poll::Ready(done),
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::io::{Read, Write};
    use std::net::Shutdown;
    use std::task::Waker;

    use socket2::{Domain, Type};
    use tokio::net::TcpListener;
    use tokio::time::timeout;

    use super::*;

    /// TCP and unix sockets that are registered with tokio, and their blocking peers.
    fn pairs() -> [(Socket, socket2::Socket); 2] {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
        let peer = std::net::TcpStream::connect(listener.local_addr().expect("it is bound")).expect("it listens");
        let tcp = (socket2::Socket::from(listener.accept().expect("a connection").0), peer.into());
        let unix = socket2::Socket::pair(Domain::UNIX, Type::STREAM, None).expect("descriptors");
        [(tcp, false), (unix, true)].map(|((socket, peer), is_unix)| {
            socket.set_nonblocking(true).expect("it is open");
            (Socket::Accepted { fd: socket.into(), is_unix }.adopt().expect("tokio takes it"), peer)
        })
    }

    async fn read(socket: &mut Socket, most: usize) -> Vec<u8> {
        let mut input = vec![0; most];
        let read = timeout(PATIENCE, poll_fn(|cx| socket.poll_read(cx, &mut input))).await.expect("it is woken");
        input.truncate(read.expect("it is connected"));
        input
    }

    fn has_nothing(socket: &mut Socket) -> bool {
        socket.poll_read(&mut Context::from_waker(Waker::noop()), &mut [0; 9]).is_pending()
    }

    const PATIENCE: std::time::Duration = std::time::Duration::from_secs(60);

    #[tokio::test]
    async fn input_after_everything_was_read_is_noticed() {
        for (mut socket, peer) in pairs() {
            // Fewer bytes than there is room for; exactly as many; then none that tokio knows of.
            for most in [9, 3, 1] {
                (&peer).write_all(b"abc").expect("room");
                assert_eq!(read(&mut socket, most).await, b"abc"[..most.min(3)]);
                if most == 1 {
                    assert_eq!(read(&mut socket, 1).await, b"b");
                }
                assert_eq!(socket.read_now(&mut [0; 9]).ok(), (most == 1).then_some(1));
                assert!(has_nothing(&mut socket));
            }
            (&peer).write_all(b"end").expect("room");
            peer.shutdown(Shutdown::Write).expect("it is connected");
            assert_eq!(read(&mut socket, 9).await, b"end");
            assert_eq!(read(&mut socket, 9).await, b"");
            assert_eq!(read(&mut socket, 9).await, b"");
        }
    }

    #[tokio::test]
    async fn bytes_that_do_not_fit_are_sent_when_there_is_room() {
        for (mut socket, peer) in pairs() {
            let bytes = vec![b'x'; 100_000];
            let mut sent = 0;
            let mut cx = Context::from_waker(Waker::noop());
            while let Poll::Ready(taken) = socket.poll_write(&mut cx, &bytes) {
                sent += taken.expect("it is connected");
                // As if others had their turn: tokio limits how much a task may do at once.
                tokio::task::yield_now().await;
            }
            let reader = std::thread::spawn(move || {
                let mut received = Vec::new();
                (&peer).read_to_end(&mut received).map(|_| received.len())
            });
            for _ in 0..10 {
                let taken = timeout(PATIENCE, poll_fn(|cx| socket.poll_write(cx, &bytes))).await.expect("it is woken");
                sent += taken.expect("it is connected");
            }
            drop(socket);
            assert_eq!(reader.join().expect("it ends").ok(), Some(sent));
        }
    }

    #[tokio::test]
    async fn a_few_bytes_beyond_full_packets_wait_for_more() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("it is bound");
        let most = SEND_REST_MAX_BYTES;
        for (beyond, left) in [(0, 0), (1, 1), (most, most), (most + 1, 0)] {
            let _reader = TcpStream::connect(address).await.expect("somebody listens");
            let socket = Socket::Tcp(listener.accept().await.expect("a connection").0);
            let packet = socket.packet_bytes().expect("it is connected").get();
            let bytes = vec![b'x'; packet + beyond];
            let (begin, end) = bytes.split_at(packet - 100);
            let parts = [IoSlice::new(b""), IoSlice::new(begin), IoSlice::new(end)];
            let sent = socket.send_full_packets_now(&parts).expect("there is room");
            assert_eq!(sent, packet + beyond - left, "{beyond} bytes beyond a packet of {packet}");
        }
    }
}
