//! Connections that this program makes itself, as a client: for `tidegate ping`, `import` and `export`.
//!
//! They stand on the `redis-protocol` crate, so that what asks a server shares no code with the server that it asks. A
//! connection may lead to a socket, or to an engine in this process: to whoever speaks the protocol.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use bytes::{Buf, BytesMut};
use redis_protocol::resp2::decode::decode_bytes_mut;
use redis_protocol::resp2::encode::extend_encode_borrowed;
use redis_protocol::resp2::types::{BorrowedFrame, BytesFrame};
use url::Url;

use crate::base::limits::READ_CHUNK_BYTES;

/// The port where an address names none.
const DEFAULT_PORT: u16 = 6379;

/// What every address must look like.
pub const ADDRESSES: &str = "redis://[[USER]:PASSWORD@]HOST[:PORT] or unix:///PATH";

/// Why a server can't be asked.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The address can't be read.
    #[error("{0}: want {ADDRESSES}")]
    Url(String),
    /// Nothing answers there, or no longer.
    #[error("no answer from {0}: {1}")]
    Io(String, io::Error),
    /// What came back is not the protocol.
    #[error("{0} answered something that is not the Redis protocol")]
    Protocol(String),
    /// The server refused.
    #[error("{0} answered: {1}")]
    Refused(String, String),
}

/// What a connection leads through.
pub(crate) trait Stream: Read + Write {
    /// How long a single read or write may take. Longer ones fail with [`ErrorKind::WouldBlock`] or
    /// [`ErrorKind::TimedOut`].
    fn set_patience(&mut self, patience: Duration) -> io::Result<()>;
}

impl Stream for TcpStream {
    fn set_patience(&mut self, patience: Duration) -> io::Result<()> {
        self.set_read_timeout(Some(patience))?;
        self.set_write_timeout(Some(patience))
    }
}

impl Stream for UnixStream {
    fn set_patience(&mut self, patience: Duration) -> io::Result<()> {
        self.set_read_timeout(Some(patience))?;
        self.set_write_timeout(Some(patience))
    }
}

/// A connection that asks.
pub(crate) struct Connection<'s> {
    stream: Box<dyn Stream + 's>,
    /// Who answers, as errors tell it: without the password.
    peer: String,
    /// What was read and not taken yet.
    received: BytesMut,
}

impl<'s> Connection<'s> {
    /// Connects to the server at `url`, and authenticates if that carries a password. `patience` is how long connecting and
    /// each read and write may take.
    pub(crate) fn open(url: &str, patience: Duration) -> Result<Connection<'static>, ClientError> {
        let parsed = Url::parse(url).map_err(|error| ClientError::Url(error.to_string()))?;
        let stream = match parsed.scheme() {
            "unix" => unix(parsed.path(), patience),
            "redis" => tcp(&parsed, patience),
            other => return Err(ClientError::Url(format!("the scheme {other} is not known"))),
        };
        let peer = without_password(&parsed);
        let stream = stream.map_err(|error| ClientError::Io(peer.clone(), error))?;
        let mut connection = Connection { stream, peer, received: BytesMut::new() };
        if let Some(password) = parsed.password() {
            let (user, password) = (percent_decode(parsed.username()), percent_decode(password));
            let words: [&[u8]; 3] = [b"AUTH", user.as_bytes(), password.as_bytes()];
            if user.is_empty() {
                connection.call(&[words[0], words[2]])?
            } else {
                connection.call(&words)?
            };
        }
        Ok(connection)
    }

    /// A connection through `stream` to `peer`, as errors tell it.
    pub(crate) fn through(stream: Box<dyn Stream + 's>, peer: &str) -> Connection<'s> {
        Connection { stream, peer: peer.to_owned(), received: BytesMut::new() }
    }

    /// Who answers: the address without a password.
    pub(crate) fn peer(&self) -> &str {
        &self.peer
    }

    /// Sets how long a single read or write may take.
    pub(crate) fn set_patience(&mut self, patience: Duration) -> Result<(), ClientError> {
        self.stream.set_patience(patience).map_err(|error| self.failed(error))
    }

    /// Sends a command and reads its reply, which must not be an error.
    pub(crate) fn call(&mut self, words: &[&[u8]]) -> Result<BytesFrame, ClientError> {
        let mut request = BytesMut::new();
        put_command(&mut request, words);
        self.send(&request)?;
        match self.reply()? {
            BytesFrame::Error(text) => Err(self.refused(&text)),
            frame => Ok(frame),
        }
    }

    /// Sends bytes.
    pub(crate) fn send(&mut self, bytes: &[u8]) -> Result<(), ClientError> {
        self.stream.write_all(bytes).map_err(|error| self.failed(error))
    }

    /// The next reply, whatever it says.
    pub(crate) fn reply(&mut self) -> Result<BytesFrame, ClientError> {
        loop {
            match decode_bytes_mut(&mut self.received) {
                Ok(Some((frame, ..))) => return Ok(frame),
                Ok(None) => self.receive().map_err(|error| self.failed(error))?,
                Err(_) => return Err(self.not_the_protocol()),
            };
        }
    }

    /// The next line, without its end: what answers in lines and not in the protocol's frames.
    pub(crate) fn line(&mut self, max_bytes: usize) -> Result<Vec<u8>, ClientError> {
        loop {
            if let Some(len) = memchr::memchr(b'\n', &self.received) {
                let line = self.received.split_to(len + 1);
                return Ok(line.strip_suffix(b"\r\n").unwrap_or(&line[..len]).to_vec());
            }
            if self.received.len() > max_bytes {
                return Err(self.not_the_protocol());
            }
            self.receive().map_err(|error| self.failed(error))?;
        }
    }

    /// An error of reading or writing, with the name of who should have answered.
    pub(crate) fn failed(&self, error: io::Error) -> ClientError {
        ClientError::Io(self.peer.clone(), error)
    }

    /// The error that says that the server refused.
    pub(crate) fn refused(&self, text: &str) -> ClientError {
        ClientError::Refused(self.peer.clone(), text.to_owned())
    }

    /// The error for a reply that is none.
    pub(crate) fn not_the_protocol(&self) -> ClientError {
        ClientError::Protocol(self.peer.clone())
    }

    /// Reads some more.
    fn receive(&mut self) -> io::Result<()> {
        let start = self.received.len();
        self.received.resize(start + READ_CHUNK_BYTES, 0);
        let read = read_some(&mut *self.stream, &mut self.received[start..]);
        self.received.truncate(start + *read.as_ref().unwrap_or(&0));
        match read? {
            0 => Err(ErrorKind::UnexpectedEof.into()),
            _ => Ok(()),
        }
    }
}

/// The bytes behind what was taken as replies and lines.
impl Read for Connection<'_> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        if self.received.is_empty() {
            return read_some(&mut *self.stream, out);
        }
        let len = out.len().min(self.received.len());
        self.received.copy_to_slice(&mut out[..len]);
        Ok(len)
    }
}

fn read_some(stream: &mut dyn Stream, out: &mut [u8]) -> io::Result<usize> {
    loop {
        match stream.read(out) {
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            read => return read,
        }
    }
}

/// Appends a command.
pub(crate) fn put_command(request: &mut BytesMut, words: &[&[u8]]) {
    let words: Vec<BorrowedFrame<'_>> = words.iter().map(|word| BorrowedFrame::BulkString(word)).collect();
    // It fails only where there is no room, and this buffer grows.
    let _ = extend_encode_borrowed(request, &BorrowedFrame::Array(&words), false);
}

fn unix(path: &str, patience: Duration) -> io::Result<Box<dyn Stream>> {
    let mut stream = UnixStream::connect(path)?;
    stream.set_patience(patience)?;
    Ok(Box::new(stream))
}

fn tcp(url: &Url, patience: Duration) -> io::Result<Box<dyn Stream>> {
    let host = url.host_str().unwrap_or("127.0.0.1").trim_matches(['[', ']']);
    let mut last = io::Error::other("the name has no address");
    for address in (host, url.port().unwrap_or(DEFAULT_PORT)).to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, patience) {
            Ok(mut stream) => {
                stream.set_patience(patience)?;
                stream.set_nodelay(true)?;
                return Ok(Box::new(stream));
            }
            Err(error) => last = error,
        }
    }
    Err(last)
}

fn without_password(url: &Url) -> String {
    let mut url = url.clone();
    // An address that can't carry a password has none.
    let _ = url.set_password(None);
    url.to_string()
}

/// `url` keeps user and password as they were written; `%40` is `@`.
fn percent_decode(text: &str) -> String {
    let query = text.replace('+', "%2B");
    url::form_urlencoded::parse(query.as_bytes()).next().map_or_else(String::new, |(key, _)| key.into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passwords_are_decoded_and_not_told() {
        assert_eq!(percent_decode("p%40ss+word%21"), "p@ss+word!");
        let url = Url::parse("redis://ann:secret@host:7000/2").unwrap();
        assert_eq!(without_password(&url), "redis://ann@host:7000/2");
    }

    #[test]
    fn bad_addresses_are_told() {
        for url in ["", "127.0.0.1:6379", "http://localhost"] {
            assert!(matches!(Connection::open(url, Duration::from_secs(1)), Err(ClientError::Url(_))), "{url}");
        }
    }
}
