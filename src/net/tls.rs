//! The server's end of a TLS connection: between the ciphertext of a socket and the plaintext of a connection.
//!
//! rustls does the protocol, but no input or output. Reading feeds it ciphertext from the socket, answers a handshake
//! on the way, and passes on the resulting plaintext. So only the reader drives a handshake, or the writer if there is
//! something to send unasked. Nothing is read or sent for the session before the handshake is over.
//!
//! **Bytes held by rustls count as unsent.** At most [`TLS_UNSENT_MAX_BYTES`] are encrypted at a time, and they are
//! reported as sent only when the socket has taken all of them. Until then they stay in the session's outbox, where the
//! code that bounds unsent replies, waits for them or closes behind them already looks. The next sender offers the same
//! bytes again. They are not encrypted twice: `ahead` says how many of them are on their way. That relies on a rule
//! that holds for any socket: bytes that were offered and not taken are offered next, by any sender. Bytes left to an
//! [I/O thread](super::io_threads), which are bounded, count as taken.
//!
//! Bytes that rustls has decrypted and the reader had no room for are no longer in the socket, so poll(2) does not
//! report them. Code that polls asks [`Tls::has_more`] as well.

use std::io::{self, ErrorKind, IoSlice, Read, Write};
use std::mem::MaybeUninit;
use std::sync::Arc;
use std::task::{Poll, ready};

use rustls::{Error, InvalidMessage, ServerConfig, ServerConnection};
use tokio::io::ReadBuf;

use super::socket::{Socket, Way};
use crate::net::limits::{TLS_FRUITLESS_READS_MAX, TLS_READ_CHUNK_BYTES, TLS_UNSENT_MAX_BYTES};
use crate::session::limits::SEND_SLICE_BYTES;

/// Makes TLS connections from sockets: holds the certificate with its key, and the demands on clients.
#[derive(Clone)]
pub(crate) struct Acceptor {
    config: Arc<ServerConfig>,
    expires_s: Option<i64>,
}

impl Acceptor {
    /// Makes an acceptor with the rules of `config`, whose certificate expires then, in seconds since 1970.
    pub(super) fn new(config: ServerConfig, expires_s: Option<i64>) -> Acceptor {
        Acceptor { config: Arc::new(config), expires_s }
    }

    /// When the server's certificate, or one of those that it comes with, expires, in seconds since 1970; `None` if
    /// they can't be read.
    pub(super) fn expires_s(&self) -> Option<i64> {
        self.expires_s
    }

    /// The server's end of TLS on an accepted socket. The client speaks first.
    pub(super) fn accept(&self, socket: Socket) -> io::Result<Tls> {
        let mut session = ServerConnection::new(Arc::clone(&self.config)).map_err(io::Error::other)?;
        session.set_buffer_limit(Some(TLS_UNSENT_MAX_BYTES));
        Ok(Tls {
            socket,
            session,
            unopened: Vec::new(),
            has_more: false,
            ahead: 0,
            has_ended: false,
            has_failed: false,
            is_tls: true,
            is_known: false,
        })
    }
}

/// See the module's header.
pub(crate) struct Tls {
    socket: Socket,
    session: ServerConnection,
    /// Ciphertext that was read but did not fit into rustls.
    unopened: Vec<u8>,
    /// rustls may hold plaintext.
    has_more: bool,
    /// How many of the bytes offered last are encrypted and not yet reported as sent.
    ahead: usize,
    /// The client sends no more.
    has_ended: bool,
    /// The client's input was invalid, or its certificate not trusted.
    has_failed: bool,
    /// The client's input looks like TLS so far.
    is_tls: bool,
    /// The client's certificate, if any, was looked at.
    is_known: bool,
}

impl Tls {
    /// Whether the handshake is not over yet.
    pub(super) fn is_handshaking(&self) -> bool {
        self.session.is_handshaking()
    }

    /// Whether there is work to do even if the socket has no input.
    pub(super) fn has_more(&self) -> bool {
        self.has_more || !self.unopened.is_empty()
    }

    /// Its socket.
    pub(super) fn socket(&self) -> &Socket {
        &self.socket
    }

    /// Registers its socket with tokio, if it is not registered.
    pub(super) fn adopt(self) -> io::Result<Tls> {
        Ok(Tls { socket: self.socket.adopt()?, ..self })
    }

    /// Closes the connection with a notice, so that the client can tell it from a connection that was cut.
    pub(super) fn close(mut self) {
        self.session.send_close_notify();
        let _ = self.flush(&mut Way::Now);
    }

    /// Reads plaintext; 0 at the end. Also pending while the input belongs only to a handshake.
    pub(super) fn read(&mut self, way: &mut Way<'_, '_>, input: &mut [u8]) -> Poll<io::Result<usize>> {
        let done = self.read_plaintext(way, input);
        if let Poll::Ready(Err(_)) = &done {
            // An alert tells the client the reason, if it listens.
            let _ = self.flush(way);
        }
        done
    }

    /// The certificate that the client has shown in the handshake. Returned once, when the handshake is over.
    pub(super) fn take_certificate(&mut self) -> Option<Vec<u8>> {
        if self.is_known || self.session.is_handshaking() {
            return None;
        }
        self.is_known = true;
        self.session.peer_certificates()?.first().map(|certificate| certificate.to_vec())
    }

    /// Reads available input of the handshake and answers it.
    pub(super) fn shake_hands(&mut self, way: &mut Way<'_, '_>) -> Poll<io::Result<()>> {
        while self.session.is_handshaking() {
            ready!(self.flush(way))?;
            let mut chunk = [MaybeUninit::uninit(); TLS_READ_CHUNK_BYTES];
            let mut read = ReadBuf::uninit(&mut chunk);
            ready!(self.socket.read(way, &mut read))?;
            let mut ciphertext = read.filled();
            if ciphertext.is_empty() {
                return Poll::Ready(Err(ErrorKind::UnexpectedEof.into()));
            }
            while !ciphertext.is_empty() && self.session.is_handshaking() {
                self.feed(&mut ciphertext)?;
            }
            // Bytes behind the handshake may have been read already.
            (self.has_more, self.unopened) = (true, ciphertext.to_vec());
        }
        // The end of the handshake, too, is sent before anything else.
        self.flush(way)
    }

    /// Gives some of the ciphertext to rustls.
    fn feed(&mut self, ciphertext: &mut &[u8]) -> io::Result<()> {
        self.session.read_tls(ciphertext)?;
        self.session.process_new_packets().map(drop).map_err(|error| {
            tracing::debug!(%error, "a TLS connection failed");
            self.has_failed = true;
            self.is_tls &= !matches!(error, Error::InvalidMessage(InvalidMessage::InvalidContentType));
            io::Error::new(ErrorKind::InvalidData, error)
        })
    }

    fn read_plaintext(&mut self, way: &mut Way<'_, '_>, input: &mut [u8]) -> Poll<io::Result<usize>> {
        for _ in 0..TLS_FRUITLESS_READS_MAX {
            // Parts of a handshake, or a ticket, that the socket had no room for.
            if let Poll::Ready(Err(error)) = self.flush(way) {
                return Poll::Ready(Err(error));
            }
            if self.has_failed {
                return Poll::Ready(Err(ErrorKind::InvalidData.into()));
            }
            if self.has_ended {
                return Poll::Ready(Ok(0));
            }
            let unopened = std::mem::take(&mut self.unopened);
            let filled = self.open(&unopened, input)?;
            if filled > 0 || self.has_ended {
                return Poll::Ready(Ok(filled));
            }
            let mut chunk = [MaybeUninit::uninit(); TLS_READ_CHUNK_BYTES];
            let mut read = ReadBuf::uninit(&mut chunk);
            ready!(self.socket.read(way, &mut read))?;
            if read.filled().is_empty() {
                self.has_ended = true;
                return Poll::Ready(Ok(0));
            }
            let filled = self.open(read.filled(), input)?;
            if filled > 0 {
                return Poll::Ready(Ok(filled));
            }
        }
        // Other connections come first. The rest is found in the socket later.
        if let Way::Task(cx) = way {
            cx.waker().wake_by_ref();
        }
        Poll::Pending
    }

    /// Decrypts until all ciphertext is consumed or `input` is full.
    fn open(&mut self, mut ciphertext: &[u8], input: &mut [u8]) -> io::Result<usize> {
        let mut filled = 0;
        loop {
            match self.session.reader().read(&mut input[filled..]) {
                Ok(0) if filled < input.len() => {
                    // The client has closed its side; nothing behind that is read.
                    (self.has_ended, self.has_more) = (true, false);
                    return Ok(filled);
                }
                Ok(read) => filled += read,
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    if ciphertext.is_empty() {
                        self.has_more = false;
                        return Ok(filled);
                    }
                    self.feed(&mut ciphertext)?;
                }
                Err(error) => return Err(error),
            }
            if filled == input.len() {
                self.has_more = true;
                self.unopened = ciphertext.to_vec();
                return Ok(filled);
            }
        }
    }

    /// Sends some of `bytes`.
    pub(super) fn write(&mut self, way: &mut Way<'_, '_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.write_by(way, |session| session.writer().write(bytes))
    }

    /// Sends some of `parts`, from the beginning on.
    pub(super) fn write_parts(&mut self, way: &mut Way<'_, '_>, parts: &[IoSlice<'_>]) -> Poll<io::Result<usize>> {
        let mut parts = parts.to_vec();
        let (mut left, mut sent) = (&mut parts[..], 0);
        while !left.is_empty() && sent < SEND_SLICE_BYTES {
            match self.write_by(way, |session| session.writer().write_vectored(left)) {
                Poll::Ready(Ok(taken)) => {
                    IoSlice::advance_slices(&mut left, taken);
                    sent += taken;
                }
                // The next send reports the error.
                _ if sent > 0 => break,
                failed => return failed,
            }
        }
        Poll::Ready(Ok(sent))
    }

    /// Sends the bytes that `encrypt` gives to rustls, or those left from the last call. During a handshake it
    /// continues that first.
    fn write_by(
        &mut self,
        way: &mut Way<'_, '_>,
        encrypt: impl FnOnce(&mut ServerConnection) -> io::Result<usize>,
    ) -> Poll<io::Result<usize>> {
        ready!(self.shake_hands(way))?;
        if self.ahead == 0 {
            self.ahead = encrypt(&mut self.session)?;
            ready!(self.flush(way))?;
        }
        Poll::Ready(Ok(std::mem::take(&mut self.ahead)))
    }

    /// Sends all bytes that rustls holds. A client that does not speak TLS would take them for a reply.
    fn flush(&mut self, way: &mut Way<'_, '_>) -> Poll<io::Result<()>> {
        while self.is_tls && self.session.wants_write() {
            let mut sender = Sender { socket: &mut self.socket, way };
            match self.session.write_tls(&mut sender) {
                Ok(0) => return Poll::Ready(Err(ErrorKind::WriteZero.into())),
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Poll::Pending,
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
        Poll::Ready(Ok(()))
    }
}

/// Adapts a socket to the writer that rustls expects.
struct Sender<'s, 'w, 'a, 'b> {
    socket: &'s mut Socket,
    way: &'w mut Way<'a, 'b>,
}

impl Write for Sender<'_, '_, '_, '_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.write_vectored(&[IoSlice::new(bytes)])
    }

    fn write_vectored(&mut self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        match self.socket.write_parts(self.way, parts) {
            Poll::Ready(done) => done,
            Poll::Pending => Err(ErrorKind::WouldBlock.into()),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
