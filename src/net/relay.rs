//! A connection whose bytes an I/O thread receives and sends, and the engine's thread reads and writes.
//!
//! ```text
//!           I/O thread                        engine's thread
//! socket -> receive --> incoming bytes -----> read
//! socket <- send <----- outgoing bytes <----- write
//! ```
//!
//! Each side holds a lock only while it copies bytes, never during a system call. Neither waits for the other: the side
//! that has left something notifies the other ([`io_threads`](super::io_threads)). The bytes in a relay are bounded for
//! each connection, and more tightly when all relays together hold much.

use std::io::{self, ErrorKind, IoSlice};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use socket2::Socket;

use super::system_call;
use crate::net::limits::{RELAY_BYTES, RELAY_KEPT_BYTES, RELAY_LEAST_BYTES, RELAY_TOTAL_BYTES, RELAY_UNCOUNTED_BYTES};

/// See the module's header.
pub(super) struct Relay {
    socket: Socket,
    /// The number of its I/O thread, from 0.
    pub thread: usize,
    /// Index of its task among those that the engine's thread can wake.
    pub place: usize,
    /// See [`Number`].
    number: AtomicUsize,
    /// Whether the relay is in the list of those that its I/O thread is to look at.
    is_posted: AtomicBool,
    /// The engine's thread has made room for bytes that may still be in the socket.
    has_room_again: AtomicBool,
    /// Bytes in large buffers, over all relays.
    total: Arc<AtomicUsize>,
    incoming: Mutex<Incoming>,
    outgoing: Mutex<Outgoing>,
}

/// The number by which an I/O thread knows one of its relays. Used by that thread only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Number {
    /// The I/O thread has not seen the relay yet.
    New,
    Given(usize),
    /// The I/O thread has let the relay go.
    Gone,
}

impl Number {
    fn raw(self) -> usize {
        match self {
            Number::New => usize::MAX,
            Number::Gone => usize::MAX - 1,
            Number::Given(number) => number,
        }
    }
}

/// Bytes on their way.
#[derive(Default)]
struct Buffer {
    bytes: Vec<u8>,
    /// How many bytes of `total` belong to this relay.
    counted: usize,
}

impl Buffer {
    /// Updates `total` by the bytes now held.
    fn recount(&mut self, total: &AtomicUsize) {
        let capacity = self.bytes.capacity();
        let now = if capacity > RELAY_UNCOUNTED_BYTES { capacity } else { 0 };
        if now != self.counted {
            total.fetch_add(now.wrapping_sub(self.counted), Ordering::Relaxed);
            self.counted = now;
        }
    }
}

#[derive(Default)]
struct Incoming {
    buffer: Buffer,
    /// How many of the bytes the engine's thread has read.
    read: usize,
    /// How the stream ended, after these bytes.
    end: Option<End>,
    /// The engine's thread has been notified of input.
    is_notified: bool,
    /// There is no room: the socket may hold more.
    is_full: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// The client sends no more.
    Closed,
    Failed(ErrorKind),
}

#[derive(Default)]
struct Outgoing {
    buffer: Buffer,
    /// The I/O thread is sending bytes that come before these.
    sending: usize,
    failed: Option<ErrorKind>,
    /// The connection's task waits for room.
    wants_room: bool,
    /// The connection's task waits until all bytes are sent.
    wants_end: bool,
    /// Nothing more is written, or read.
    is_closed: bool,
}

impl Outgoing {
    fn unsent(&self) -> usize {
        if self.failed.is_some() { 0 } else { self.sending + self.buffer.bytes.len() }
    }
}

/// The outcome of a look at a connection's outgoing bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sent {
    /// The connection's task must be woken.
    pub notifies: bool,
    /// The connection was closed on this side.
    pub is_closed: bool,
    /// Bytes wait for the socket to take them.
    pub is_waiting: bool,
}

impl Relay {
    /// Around a socket that does not block. `total` counts for all relays.
    pub(super) fn new(socket: OwnedFd, thread: usize, place: usize, total: Arc<AtomicUsize>) -> Relay {
        let (is_posted, has_room_again) = (AtomicBool::new(false), AtomicBool::new(false));
        let (incoming, outgoing) = (Mutex::default(), Mutex::default());
        let (socket, number) = (socket.into(), AtomicUsize::new(Number::New.raw()));
        Relay { socket, thread, place, number, is_posted, has_room_again, total, incoming, outgoing }
    }

    /// Its descriptor.
    pub(super) fn raw_fd(&self) -> RawFd {
        self.socket.as_raw_fd()
    }

    fn incoming(&self) -> MutexGuard<'_, Incoming> {
        self.incoming.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn outgoing(&self) -> MutexGuard<'_, Outgoing> {
        self.outgoing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many bytes may wait in either direction.
    fn limit(&self) -> usize {
        if self.total.load(Ordering::Relaxed) > RELAY_TOTAL_BYTES { RELAY_LEAST_BYTES } else { RELAY_BYTES }
    }

    /// Marks the relay as posted. Returns whether it must be added to the list of those that its I/O thread is to look
    /// at.
    pub(super) fn begin_post(&self) -> bool {
        !self.is_posted.swap(true, Ordering::AcqRel)
    }

    /// Marks the relay as no longer posted; it is about to be looked at.
    pub(super) fn end_post(&self) {
        // Not just a store: the I/O thread must see changes made before the caller that found the relay posted already.
        self.is_posted.swap(false, Ordering::AcqRel);
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        let counted = self.incoming().buffer.counted + self.outgoing().buffer.counted;
        self.total.fetch_sub(counted, Ordering::Relaxed);
    }
}

impl AsFd for Relay {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// The outcome of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Written {
    /// This many bytes went into the socket at once.
    Sent(usize),
    /// This many bytes were left to the I/O thread, which must be notified.
    Left(usize),
}

/// For the engine's thread. With nothing to read, or no room to write, calls return `WouldBlock`, and the connection's
/// task is woken once that changes.
impl Relay {
    /// Reads received bytes; 0 at the end. Also returns whether the I/O thread has room again and must be notified.
    pub(super) fn read(&self, input: &mut [u8]) -> (io::Result<usize>, bool) {
        let mut incoming = self.incoming();
        let unread = &incoming.buffer.bytes[incoming.read..];
        if unread.is_empty() {
            incoming.is_notified = false;
            let nothing = match incoming.end {
                None => Err(ErrorKind::WouldBlock.into()),
                Some(End::Closed) => Ok(0),
                Some(End::Failed(kind)) => Err(kind.into()),
            };
            return (nothing, false);
        }
        let read = unread.len().min(input.len());
        input[..read].copy_from_slice(&unread[..read]);
        incoming.read += read;
        if incoming.read < incoming.buffer.bytes.len() {
            return (Ok(read), false);
        }
        incoming.read = 0;
        empty(&mut incoming.buffer.bytes);
        incoming.buffer.recount(&self.total);
        let has_room_again = std::mem::take(&mut incoming.is_full);
        if has_room_again {
            self.has_room_again.store(true, Ordering::Release);
        }
        (Ok(read), has_room_again)
    }

    /// Whether there are bytes, or the end of the stream, to read.
    pub(super) fn has_incoming(&self) -> bool {
        let incoming = self.incoming();
        incoming.read < incoming.buffer.bytes.len() || incoming.end.is_some()
    }

    /// How many bytes there are to read.
    pub(super) fn unread(&self) -> usize {
        let incoming = self.incoming();
        incoming.buffer.bytes.len() - incoming.read
    }

    /// Leaves some of `bytes` to the I/O thread.
    pub(super) fn write(&self, bytes: &[u8]) -> io::Result<usize> {
        self.leave(&mut self.outgoing(), &[IoSlice::new(bytes)])
    }

    /// Leaves some of `parts`, from the beginning on, to the I/O thread.
    pub(super) fn write_parts(&self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        self.leave(&mut self.outgoing(), parts)
    }

    fn leave(&self, outgoing: &mut Outgoing, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        if let Some(kind) = outgoing.failed {
            return Err(kind.into());
        }
        let room = self.limit().saturating_sub(outgoing.unsent());
        if room == 0 {
            outgoing.wants_room = true;
            return Err(ErrorKind::WouldBlock.into());
        }
        let mut left = room;
        for part in parts {
            let taken = &part[..part.len().min(left)];
            outgoing.buffer.bytes.extend_from_slice(taken);
            left -= taken.len();
        }
        outgoing.buffer.recount(&self.total);
        Ok(room - left)
    }

    /// Sends some bytes by `send` at once if none wait before them; otherwise leaves some of `parts`.
    pub(super) fn send_or_leave(
        &self,
        parts: &[IoSlice<'_>],
        send: impl FnOnce(&Socket) -> io::Result<usize>,
    ) -> io::Result<Written> {
        let mut outgoing = self.outgoing();
        match outgoing.failed {
            Some(kind) => Err(kind.into()),
            None if outgoing.unsent() > 0 => self.leave(&mut outgoing, parts).map(Written::Left),
            None => {
                // The I/O thread sends only bytes that this side has left there.
                drop(outgoing);
                send(&self.socket).map(Written::Sent)
            }
        }
    }

    /// How many bytes wait to be sent; 0 after sending has failed.
    pub(super) fn unsent(&self) -> usize {
        self.outgoing().unsent()
    }

    /// Whether no bytes wait to be sent. If some do, the connection's task is woken once all are sent.
    pub(super) fn is_sent(&self) -> bool {
        let mut outgoing = self.outgoing();
        outgoing.wants_end = outgoing.unsent() > 0;
        !outgoing.wants_end
    }

    /// Ends reading and writing. The I/O thread sends as much as the socket takes now, and lets the relay go.
    pub(super) fn close(&self) {
        self.outgoing().is_closed = true;
    }
}

/// For the I/O thread.
impl Relay {
    /// The number by which the I/O thread knows the relay.
    pub(super) fn number(&self) -> Number {
        let number = self.number.load(Ordering::Relaxed);
        [Number::New, Number::Gone].into_iter().find(|state| state.raw() == number).unwrap_or(Number::Given(number))
    }

    /// See [`number`](Self::number).
    pub(super) fn set_number(&self, number: Number) {
        self.number.store(number.raw(), Ordering::Relaxed);
    }

    /// Receives bytes from the socket by way of `chunk`, as far as there is room. `has_ended`: the system has reported
    /// an end, which may come after bytes still in the socket. Returns how many times something was received, and
    /// whether to notify the engine's thread.
    pub(super) fn receive(&self, chunk: &mut [u8], has_ended: bool) -> (u64, bool) {
        let mut reads = 0;
        loop {
            let mut incoming = self.incoming();
            if incoming.end.is_some() {
                return (reads, false);
            }
            let limit = self.limit();
            if incoming.buffer.bytes.len() >= limit {
                incoming.is_full = true;
                return (reads, mark_notified(&mut incoming));
            }
            drop(incoming);
            let most = limit.min(chunk.len());
            let received = system_call::receive(&self.socket, &mut chunk[..most]);
            let mut incoming = self.incoming();
            match received {
                Ok(0) => incoming.end = Some(End::Closed),
                Ok(n) => {
                    reads += 1;
                    incoming.buffer.bytes.extend_from_slice(&chunk[..n]);
                    incoming.buffer.recount(&self.total);
                    // Bytes that arrive after this produce an event of their own.
                    if n == most || has_ended {
                        continue;
                    }
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    let is_new = incoming.read < incoming.buffer.bytes.len() && mark_notified(&mut incoming);
                    return (reads, is_new);
                }
                Err(error) => incoming.end = Some(End::Failed(error.kind())),
            }
            return (reads, mark_notified(&mut incoming));
        }
    }

    /// Whether [`receive`](Self::receive) had stopped for lack of room and has room now. Returns true only once.
    pub(super) fn has_room_again(&self) -> bool {
        self.has_room_again.load(Ordering::Relaxed) && self.has_room_again.swap(false, Ordering::Acquire)
    }

    /// Sends the bytes left by the engine's thread, as far as the socket takes them. `bytes` is empty before and after;
    /// it serves to exchange buffers. Returns how many times something was sent, and the outcome.
    pub(super) fn send(&self, bytes: &mut Vec<u8>) -> (u64, Sent) {
        let mut outgoing = self.outgoing();
        if outgoing.buffer.bytes.is_empty() || outgoing.failed.is_some() {
            return (0, Sent { notifies: false, is_closed: outgoing.is_closed, is_waiting: false });
        }
        std::mem::swap(&mut outgoing.buffer.bytes, bytes);
        outgoing.buffer.recount(&self.total);
        outgoing.sending = bytes.len();
        drop(outgoing);
        let (mut writes, mut sent) = (0, 0);
        let failed = loop {
            match system_call::send(&self.socket, &bytes[sent..]) {
                Ok(n) => {
                    writes += 1;
                    sent += n;
                    if sent == bytes.len() {
                        break None;
                    }
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => break None,
                Err(error) => break Some(error.kind()),
            }
        };
        let mut outgoing = self.outgoing();
        outgoing.sending = 0;
        outgoing.failed = failed;
        if failed.is_some() {
            outgoing.buffer.bytes = Vec::new();
        } else if sent < bytes.len() {
            bytes.drain(..sent);
            bytes.append(&mut outgoing.buffer.bytes);
            std::mem::swap(&mut outgoing.buffer.bytes, bytes);
        }
        outgoing.buffer.recount(&self.total);
        let unsent = outgoing.unsent();
        let has_room = unsent < self.limit() && std::mem::take(&mut outgoing.wants_room);
        let are_all_sent = unsent == 0 && std::mem::take(&mut outgoing.wants_end);
        let sent = Sent { notifies: has_room || are_all_sent, is_closed: outgoing.is_closed, is_waiting: unsent > 0 };
        drop(outgoing);
        empty(bytes);
        (writes, sent)
    }

    /// Ends the relay with an error: the I/O thread cannot serve it.
    pub(super) fn fail(&self, kind: ErrorKind) {
        self.incoming().end = Some(End::Failed(kind));
        self.outgoing().failed = Some(kind);
    }
}

/// Marks the engine's thread as notified of input. Returns whether it must now be notified.
fn mark_notified(incoming: &mut Incoming) -> bool {
    !std::mem::replace(&mut incoming.is_notified, true)
}

/// Empties a buffer. A buffer that has grown is freed: an idle connection holds little.
fn empty(bytes: &mut Vec<u8>) {
    if bytes.capacity() > RELAY_KEPT_BYTES {
        *bytes = Vec::new();
    } else {
        bytes.clear();
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;

    use super::*;
    use crate::base::limits::READ_CHUNK_BYTES;

    /// A relay, and its peer.
    fn pair() -> (Relay, UnixStream) {
        let (here, there) = UnixStream::pair().expect("a pair of sockets");
        here.set_nonblocking(true).expect("a socket");
        there.set_nonblocking(true).expect("a socket");
        (Relay::new(here.into(), 0, 0, Arc::default()), there)
    }

    fn kind<T>(done: io::Result<T>) -> Option<ErrorKind> {
        done.err().map(|error| error.kind())
    }

    /// All bytes that the peer has received.
    fn arrived(mut peer: &UnixStream) -> Vec<u8> {
        let mut bytes = Vec::new();
        assert_eq!(kind(peer.read_to_end(&mut bytes)), Some(ErrorKind::WouldBlock));
        bytes
    }

    #[test]
    fn an_idle_reader_is_notified_once_of_new_input() {
        let (relay, mut peer) = pair();
        let (mut chunk, mut input) = ([0; 16], [0; 16]);
        assert_eq!((kind(relay.read(&mut input).0), relay.has_incoming()), (Some(ErrorKind::WouldBlock), false));
        // Woken with nothing to receive.
        assert_eq!(relay.receive(&mut chunk, false), (0, false));
        peer.write_all(b"abc").expect("there is room");
        assert_eq!((relay.receive(&mut chunk, false), relay.has_incoming()), ((1, true), true));
        peer.write_all(b"de").expect("there is room");
        assert_eq!(relay.receive(&mut chunk, false), (1, false));
        let (read, has_room_again) = relay.read(&mut input[..4]);
        assert_eq!((read.ok(), has_room_again, &input[..4]), (Some(4), false, &b"abcd"[..]));
        assert_eq!((relay.read(&mut input).0.ok(), input[0]), (Some(1), b'e'));
        // A side that has read everything without knowing it need not be notified.
        peer.write_all(b"f").expect("there is room");
        assert_eq!(relay.receive(&mut chunk, false), (1, false));
        assert_eq!(relay.read(&mut input).0.ok(), Some(1));
        assert_eq!(kind(relay.read(&mut input).0), Some(ErrorKind::WouldBlock));
        peer.write_all(b"g").expect("there is room");
        assert_eq!(relay.receive(&mut chunk, false), (1, true));
    }

    #[test]
    fn bytes_before_the_end_are_read_before_it() {
        for has_ended in [false, true] {
            let (relay, mut peer) = pair();
            let (mut chunk, mut input) = ([0; 4], [0; 16]);
            peer.write_all(b"abcdef").expect("there is room");
            drop(peer);
            // A chunk that was filled is not the last one.
            assert_eq!(relay.receive(&mut chunk, has_ended), (2, true));
            assert_eq!(relay.read(&mut input).0.ok(), Some(6));
            if !has_ended {
                // The end arrives as an event of its own.
                assert_eq!(kind(relay.read(&mut input).0), Some(ErrorKind::WouldBlock));
                assert_eq!(relay.receive(&mut chunk, true), (0, true));
            }
            for _ in 0..2 {
                assert_eq!((relay.read(&mut input).0.ok(), relay.has_incoming()), (Some(0), true));
            }
        }
    }

    #[test]
    fn no_more_bytes_are_received_than_fit() {
        let (relay, mut peer) = pair();
        let (mut chunk, mut input) = (vec![0; READ_CHUNK_BYTES], vec![0; READ_CHUNK_BYTES]);
        let mut sent = 0;
        let mut fill = || {
            while let Ok(n) = peer.write(&[7; 4_096]) {
                sent += n
            }
        };
        for _ in 0..10 {
            fill();
            relay.receive(&mut chunk, false);
        }
        assert!(relay.incoming().buffer.bytes.len() < RELAY_BYTES + READ_CHUNK_BYTES);
        assert!(!relay.has_room_again());
        let (mut read, mut times) = (0, 0);
        loop {
            match relay.read(&mut input) {
                (Ok(n), has_room_again) => {
                    read += n;
                    assert_eq!([relay.has_room_again(), relay.has_room_again()], [has_room_again, false]);
                    if has_room_again {
                        assert!(!relay.has_incoming());
                        times += 1;
                        relay.receive(&mut chunk, true);
                    }
                }
                (Err(error), _) => break assert_eq!(error.kind(), ErrorKind::WouldBlock),
            }
        }
        assert!(times > 0);
        assert_eq!((read, relay.incoming().buffer.bytes.capacity()), (sent, 0));
        assert_eq!(relay.total.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn bytes_are_sent_in_order_from_either_thread() {
        let (relay, peer) = pair();
        let at_once = |bytes: &[u8]| relay.send_or_leave(&[IoSlice::new(bytes)], |socket| socket.send(bytes)).ok();
        let mut spare = Vec::new();
        let nothing = Sent { notifies: false, is_closed: false, is_waiting: false };
        assert_eq!(relay.send(&mut spare), (0, nothing));
        assert_eq!(at_once(b"a"), Some(Written::Sent(1)));
        assert_eq!(relay.write(b"b").ok(), Some(1));
        assert_eq!(at_once(b"c"), Some(Written::Left(1)));
        assert_eq!(relay.write_parts(&[IoSlice::new(b"d"), IoSlice::new(b"e")]).ok(), Some(2));
        assert_eq!((relay.unsent(), arrived(&peer)), (4, b"a".to_vec()));
        assert_eq!((relay.send(&mut spare), relay.unsent()), ((1, nothing), 0));
        assert_eq!(at_once(b"f"), Some(Written::Sent(1)));
        assert_eq!(arrived(&peer), b"bcdef");
    }

    #[test]
    fn a_writer_without_room_is_notified_when_there_is_some() {
        let (relay, peer) = pair();
        let mut spare = Vec::new();
        let (mut written, mut got) = (0, Vec::new());
        // Fills the socket, then the relay.
        let last = loop {
            match relay.write(&[7; 10_000]) {
                Ok(n) => written += n,
                Err(error) => break error.kind(),
            }
            relay.send(&mut spare);
        };
        assert_eq!((last, relay.unsent()), (ErrorKind::WouldBlock, RELAY_BYTES));
        let (writes, sent) = relay.send(&mut spare);
        assert_eq!((writes, sent), (0, Sent { notifies: false, is_closed: false, is_waiting: true }));
        let mut notified = 0;
        while got.len() < written {
            got.extend(arrived(&peer));
            notified += u64::from(relay.send(&mut spare).1.notifies);
        }
        assert_eq!((notified, got.len(), relay.unsent()), (1, written, 0));
        assert!(relay.outgoing().buffer.bytes.capacity() <= RELAY_KEPT_BYTES && spare.capacity() <= RELAY_KEPT_BYTES);
    }

    #[test]
    fn a_waiter_is_notified_when_everything_is_sent() {
        let (relay, peer) = pair();
        let mut spare = Vec::new();
        assert!(relay.is_sent());
        while relay.unsent() == 0 {
            assert!(relay.write(&[7; 10_000]).is_ok());
            relay.send(&mut spare);
        }
        assert!(!relay.is_sent());
        let mut notified = 0;
        while relay.unsent() > 0 {
            assert_eq!(notified, 0);
            arrived(&peer);
            notified += u64::from(relay.send(&mut spare).1.notifies);
        }
        assert_eq!((notified, relay.is_sent()), (1, true));
    }

    #[test]
    fn each_relay_holds_little_when_all_hold_much() {
        let (relay, mut peer) = pair();
        let mut chunk = vec![0; READ_CHUNK_BYTES];
        relay.total.store(RELAY_TOTAL_BYTES + 1, Ordering::Relaxed);
        while peer.write(&[7; 4_096]).is_ok() {}
        relay.receive(&mut chunk, false);
        assert_eq!(relay.incoming().buffer.bytes.len(), RELAY_LEAST_BYTES);
        assert_eq!(relay.write(&[7; RELAY_BYTES]).ok(), Some(RELAY_LEAST_BYTES));
        let total = Arc::clone(&relay.total);
        assert!(total.load(Ordering::Relaxed) >= RELAY_TOTAL_BYTES + 2 * RELAY_LEAST_BYTES);
        drop(relay);
        assert_eq!(total.load(Ordering::Relaxed), RELAY_TOTAL_BYTES + 1);
    }

    #[test]
    fn writing_to_a_closed_peer_fails() {
        let (relay, peer) = pair();
        drop(peer);
        assert_eq!(relay.write(b"a").ok(), Some(1));
        relay.close();
        let closed = Sent { notifies: false, is_closed: true, is_waiting: false };
        assert_eq!((relay.send(&mut Vec::new()), relay.unsent()), ((0, closed), 0));
        assert_eq!(kind(relay.write(b"b")), Some(ErrorKind::BrokenPipe));
        assert_eq!(kind(relay.send_or_leave(&[], |_| Ok(0))), Some(ErrorKind::BrokenPipe));
    }

    #[test]
    fn a_relay_is_posted_once_until_it_is_processed() {
        let (relay, _peer) = pair();
        assert_eq!([relay.begin_post(), relay.begin_post()], [true, false]);
        relay.end_post();
        assert!(relay.begin_post());
        for number in [Number::Given(0), Number::Given(7), Number::Gone, Number::New] {
            relay.set_number(number);
            assert_eq!(relay.number(), number);
        }
    }
}
