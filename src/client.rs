//! Connections that this program makes itself, as a client: for `tidegate ping`, `import` and `export`.
//!
//! They use the `redis-protocol` crate, so the client shares no code with the server it queries. A connection leads to
//! a socket or to an engine in this process; anything that speaks the protocol will do.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use bytes::{Buf, BytesMut};
use redis_protocol::resp2::decode::decode_bytes_mut;
use redis_protocol::resp2::encode::extend_encode_borrowed;
use redis_protocol::resp2::types::{BorrowedFrame, BytesFrame};
use url::Url;

use crate::base::excerpt;
use crate::base::limits::{CLIENT_REPLY_MAX_DEPTH, CLIENT_REPLY_MAX_ITEMS, CLIENT_STATUS_MAX_BYTES, READ_CHUNK_BYTES};
use crate::base::num::parse_i64;
use crate::client_tls::{TlsFlags, TlsStream};

/// The port used when an address names none.
const DEFAULT_PORT: u16 = 6379;

/// The environment variable that holds the password of a Tidegate whose address carries none, because every user of a
/// machine can see command lines.
pub const TIDEGATE_AUTH: &str = "TIDEGATE_AUTH";

/// The environment variable that holds the password of the server an import reads; redis-cli reads the same one.
pub const REDIS_AUTH: &str = "REDISCLI_AUTH";

/// The form of every address.
pub const ADDRESSES: &str = "redis://[[USER]:PASSWORD@]HOST[:PORT], rediss://... for TLS, or unix:///PATH";

/// The address of a server and how to connect to it.
#[derive(Clone, Copy, Debug)]
pub struct Address<'a> {
    /// The address, in the form given by [`ADDRESSES`].
    pub url: &'a str,
    /// The TLS settings for servers that use TLS.
    pub tls: &'a TlsFlags,
}

/// Reasons why a server can't be queried.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The address can't be read.
    #[error("{0}: an address is {ADDRESSES}")]
    Url(String),
    /// Nothing answers at this address, or the connection was lost.
    #[error("no answer from {0}: {1}")]
    Io(String, io::Error),
    /// The server accepts the connection but sends no reply in time.
    #[error("no answer from {0} within {1} s")]
    Silent(String, u64),
    /// The reply is not valid protocol.
    #[error("the reply of {0} is not in the Redis protocol")]
    Protocol(String),
    /// The reply is longer or more deeply nested than allowed.
    #[error(
        "the reply of {0} exceeds {1} bytes, {CLIENT_REPLY_MAX_ITEMS} items or {CLIENT_REPLY_MAX_DEPTH} nested lists"
    )]
    TooLong(String, usize),
    /// The server replied with an error.
    #[error("{0} answered: {1}")]
    Refused(String, String),
}

impl ClientError {
    /// Whether the server may answer soon: nothing listens yet, it has no data yet, or it is busy or crowded.
    pub(crate) fn may_pass(&self) -> bool {
        match self {
            ClientError::Io(..) | ClientError::Silent(..) => true,
            ClientError::Refused(_, text) => {
                let passing = ["LOADING ", "MASTERDOWN ", "BUSY ", "CROWDED ", "ERR max number of clients"];
                passing.iter().any(|start| text.starts_with(start))
            }
            ClientError::Url(_) | ClientError::Protocol(_) | ClientError::TooLong(..) => false,
        }
    }
}

impl ClientError {
    /// Whether another node of the server's group leads by now, or soon.
    pub(crate) fn is_of_change_of_leader(&self) -> bool {
        let codes = ["READONLY You can't write", "TRYAGAIN ", "CLUSTERDOWN "];
        matches!(self, ClientError::Refused(_, text) if codes.iter().any(|code| text.starts_with(code)))
    }
}

/// The byte stream beneath a connection.
pub(crate) trait Stream: Read + Write {
    /// Sets the time limit of a single read or write. A read or write that exceeds it fails with
    /// [`ErrorKind::WouldBlock`] or [`ErrorKind::TimedOut`].
    fn set_timeout(&mut self, timeout: Duration) -> io::Result<()>;
}

impl Stream for TcpStream {
    fn set_timeout(&mut self, timeout: Duration) -> io::Result<()> {
        self.set_read_timeout(Some(timeout))?;
        self.set_write_timeout(Some(timeout))
    }
}

impl Stream for UnixStream {
    fn set_timeout(&mut self, timeout: Duration) -> io::Result<()> {
        self.set_read_timeout(Some(timeout))?;
        self.set_write_timeout(Some(timeout))
    }
}

impl Stream for TlsStream {
    fn set_timeout(&mut self, timeout: Duration) -> io::Result<()> {
        TlsStream::set_timeout(self, timeout)
    }
}

/// A client connection.
pub(crate) struct Connection<'s> {
    stream: Box<dyn Stream + 's>,
    /// The server's address for error messages, without the password.
    peer: String,
    /// Bytes received but not yet consumed.
    received: BytesMut,
    /// The scan for the end of the first reply in `received`.
    scan: ReplyScan,
    /// Longest reply accepted, in bytes.
    reply_max_bytes: usize,
    timeout: Duration,
}

impl<'s> Connection<'s> {
    /// Connects to the server at an address and authenticates with the address's password or, failing that, with the
    /// one in the environment variable `auth`. `timeout` limits connecting and each read and write. Replies may have at
    /// most [`CLIENT_STATUS_MAX_BYTES`].
    pub(crate) fn open(
        address: Address<'_>,
        auth: &str,
        timeout: Duration,
    ) -> Result<Connection<'static>, ClientError> {
        let parsed = Url::parse(address.url).map_err(|error| ClientError::Url(error.to_string()))?;
        if let Some(part) = unused_part(&parsed) {
            return Err(ClientError::Url(format!("{part} has no meaning here")));
        }
        let stream = match parsed.scheme() {
            "unix" if address.tls.always => {
                return Err(ClientError::Url("--tls has no meaning for a unix socket".to_owned()));
            }
            "unix" => unix(parsed.path(), timeout),
            "rediss" => secure(&parsed, address.tls, timeout),
            "redis" if address.tls.always => secure(&parsed, address.tls, timeout),
            "redis" => tcp(&parsed, timeout).map(|stream| Box::new(stream) as Box<dyn Stream>),
            other => return Err(ClientError::Url(format!("the scheme {other} is not known"))),
        };
        let peer = without_password(&parsed);
        let stream = stream.map_err(|error| match error.kind() {
            ErrorKind::WouldBlock | ErrorKind::TimedOut => ClientError::Silent(peer.clone(), timeout.as_secs()),
            _ => ClientError::Io(peer.clone(), error),
        })?;
        let mut connection = Connection { timeout, ..Connection::through(stream, &peer) };
        if let Some(password) = parsed.password().map(percent_decode).or_else(|| std::env::var(auth).ok()) {
            let user = percent_decode(parsed.username());
            let words: [&[u8]; 3] = [b"AUTH", user.as_bytes(), password.as_bytes()];
            if user.is_empty() {
                connection.call(&[words[0], words[2]])?
            } else {
                connection.call(&words)?
            };
        }
        Ok(connection)
    }

    /// Makes a connection over `stream`; errors name the server as `peer`.
    pub(crate) fn through(stream: Box<dyn Stream + 's>, peer: &str) -> Connection<'s> {
        Connection {
            stream,
            peer: peer.to_owned(),
            received: BytesMut::new(),
            scan: ReplyScan::default(),
            reply_max_bytes: CLIENT_STATUS_MAX_BYTES,
            timeout: Duration::MAX,
        }
    }

    /// Sets the longest reply accepted, in bytes.
    pub(crate) fn set_reply_max_bytes(&mut self, bytes: usize) {
        self.reply_max_bytes = bytes;
    }

    /// Returns the server's address without the password.
    pub(crate) fn peer(&self) -> &str {
        &self.peer
    }

    /// Sets the time limit of a single read or write.
    pub(crate) fn set_timeout(&mut self, timeout: Duration) -> Result<(), ClientError> {
        self.timeout = timeout;
        self.stream.set_timeout(timeout).map_err(|error| self.failed(error))
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

    /// Reads the next reply, even if it is an error.
    pub(crate) fn reply(&mut self) -> Result<BytesFrame, ClientError> {
        loop {
            // The decoder starts over on each call and recurses as deep as its input, so it is given only complete
            // replies.
            match self.scan.advance(&self.received, self.reply_max_bytes) {
                Ok(true) => break,
                Ok(false) => self.receive().map_err(|error| self.failed(error))?,
                Err(Unacceptable::Malformed) => return Err(self.not_the_protocol()),
                Err(Unacceptable::TooLong) => {
                    return Err(ClientError::TooLong(self.peer.clone(), self.reply_max_bytes));
                }
            }
        }
        self.scan = ReplyScan::default();
        match decode_bytes_mut(&mut self.received) {
            Ok(Some((frame, ..))) => Ok(frame),
            _ => Err(self.not_the_protocol()),
        }
    }

    /// Reads the next line, without its line ending, from a server that replies in lines instead of protocol frames.
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

    /// Wraps a read or write error with the server's address.
    pub(crate) fn failed(&self, error: io::Error) -> ClientError {
        match error.kind() {
            ErrorKind::WouldBlock | ErrorKind::TimedOut => {
                ClientError::Silent(self.peer.clone(), self.timeout.as_secs())
            }
            _ => ClientError::Io(self.peer.clone(), error),
        }
    }

    /// Makes the error for a request that the server refused.
    pub(crate) fn refused(&self, text: &str) -> ClientError {
        ClientError::Refused(self.peer.clone(), excerpt::of_text(text))
    }

    /// Makes the error for a reply that is not valid protocol.
    pub(crate) fn not_the_protocol(&self) -> ClientError {
        ClientError::Protocol(self.peer.clone())
    }

    /// Reads more bytes.
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

/// Reads the bytes that follow the replies and lines consumed so far.
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
    // Encoding fails only when the buffer is full, and this buffer grows.
    let _ = extend_encode_borrowed(request, &BorrowedFrame::Array(&words), false);
}

fn unix(path: &str, timeout: Duration) -> io::Result<Box<dyn Stream>> {
    let mut stream = UnixStream::connect(path)?;
    stream.set_timeout(timeout)?;
    Ok(Box::new(stream))
}

fn host(url: &Url) -> &str {
    url.host_str().unwrap_or("127.0.0.1").trim_matches(['[', ']'])
}

fn secure(url: &Url, tls: &TlsFlags, timeout: Duration) -> io::Result<Box<dyn Stream>> {
    Ok(Box::new(tls.connect(host(url), tcp(url, timeout)?)?))
}

fn tcp(url: &Url, timeout: Duration) -> io::Result<TcpStream> {
    let mut last = io::Error::other("the name has no address");
    for address in (host(url), url.port().unwrap_or(DEFAULT_PORT)).to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, timeout) {
            Ok(mut stream) => {
                stream.set_timeout(timeout)?;
                stream.set_nodelay(true)?;
                return Ok(stream);
            }
            Err(error) => last = error,
        }
    }
    Err(last)
}

fn without_password(url: &Url) -> String {
    let mut url = url.clone();
    // Fails only for an address that can't carry a password, and such an address has none.
    let _ = url.set_password(None);
    url.to_string()
}

/// Returns a part of the address that would be ignored.
fn unused_part(url: &Url) -> Option<String> {
    let database = Some(url.path()).filter(|path| url.scheme() != "unix" && !matches!(*path, "" | "/"));
    let query = url.query().map(|query| format!("?{query}"));
    let fragment = url.fragment().map(|fragment| format!("#{fragment}"));
    database.map(str::to_owned).or(query).or(fragment)
}

/// Decodes percent escapes: `url` keeps user and password as written, with `%40` for `@`.
fn percent_decode(text: &str) -> String {
    let query = text.replace('+', "%2B");
    url::form_urlencoded::parse(query.as_bytes()).next().map_or_else(String::new, |(key, _)| key.into_owned())
}

/// Reasons to reject a reply.
#[derive(Debug, PartialEq, Eq)]
enum Unacceptable {
    Malformed,
    TooLong,
}

/// Finds the end of a reply, and resumes where it stopped when more bytes arrive.
#[derive(Debug, Default)]
struct ReplyScan {
    /// Offset of the next element.
    position: usize,
    items: usize,
    /// Elements still missing from each open list.
    open: Vec<usize>,
}

impl ReplyScan {
    /// Returns whether `received` begins with a complete reply.
    fn advance(&mut self, received: &[u8], max_bytes: usize) -> Result<bool, Unacceptable> {
        use Unacceptable::{Malformed, TooLong};
        loop {
            let unread = &received[self.position..];
            let Some(end) = memchr::memchr(b'\n', unread) else {
                return if received.len() > max_bytes { Err(TooLong) } else { Ok(false) };
            };
            let line = unread[..end].strip_suffix(b"\r").ok_or(Malformed)?;
            let (kind, rest) = line.split_first().ok_or(Malformed)?;
            // A null is a string or list of length -1.
            let len = || parse_i64(rest).filter(|len| *len >= -1).ok_or(Malformed);
            let (mut bytes, mut parts) = (end + 1, 0);
            match kind {
                b'+' | b'-' | b':' => {}
                b'$' => match usize::try_from(len()?) {
                    Ok(len) if len > max_bytes => return Err(TooLong),
                    Ok(len) => bytes += len + 2,
                    Err(_) => {}
                },
                b'*' => parts = usize::try_from(len()?).unwrap_or(0),
                _ => return Err(Malformed),
            }
            if self.position + bytes > max_bytes || parts > CLIENT_REPLY_MAX_ITEMS - self.items {
                return Err(TooLong);
            }
            if unread.len() < bytes {
                return Ok(false);
            }
            self.position += bytes;
            self.items += parts;
            if parts > 0 {
                if self.open.len() == CLIENT_REPLY_MAX_DEPTH {
                    return Err(TooLong);
                }
                self.open.push(parts);
                continue;
            }
            // A complete element may also complete the lists that it ends.
            loop {
                match self.open.last_mut() {
                    None => return Ok(true),
                    Some(missing) if *missing > 1 => {
                        *missing -= 1;
                        break;
                    }
                    Some(_) => drop(self.open.pop()),
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passwords_are_decoded_and_not_disclosed() {
        assert_eq!(percent_decode("p%40ss+word%21"), "p@ss+word!");
        let url = Url::parse("redis://ann:secret@host:7000/2").unwrap();
        assert_eq!(without_password(&url), "redis://ann@host:7000/2");
    }

    /// Scans a reply that arrives byte by byte.
    fn scan(reply: &[u8]) -> Result<bool, Unacceptable> {
        let mut scan = ReplyScan::default();
        for len in 0..reply.len() {
            assert!(!scan.advance(&reply[..len], 100)?, "{len}");
        }
        scan.advance(reply, 100)
    }

    #[test]
    fn replies_are_complete_and_bounded() {
        let nested = |depth: usize| [b"*1\r\n".repeat(depth), b"+OK\r\n".to_vec()].concat();
        for whole in ["+OK\r\n", "$2\r\n\r\n\r\n", "$-1\r\n", "*0\r\n", "*-1\r\n", "*2\r\n*1\r\n:1\r\n$0\r\n\r\n"] {
            assert_eq!(scan(whole.as_bytes()), Ok(true), "{whole:?}");
        }
        assert_eq!(scan(&nested(CLIENT_REPLY_MAX_DEPTH)), Ok(true));
        assert_eq!(scan(&nested(CLIENT_REPLY_MAX_DEPTH + 1)), Err(Unacceptable::TooLong));
        let many = format!("*{}\r\n", CLIENT_REPLY_MAX_ITEMS + 1);
        for long in [&"+".repeat(101)[..], "$101\r\n", "*2\r\n$60\r\n", &many] {
            let long =
                if long.starts_with("*2") { format!("{long}{}\r\n$60\r\n", "x".repeat(60)) } else { long.to_owned() };
            assert_eq!(scan(long.as_bytes()), Err(Unacceptable::TooLong), "{long:?}");
        }
        for bad in ["\r\n", "OK\r\n", "$x\r\n", "*-2\r\n", "+OK\n"] {
            assert_eq!(scan(bad.as_bytes()), Err(Unacceptable::Malformed), "{bad:?}");
        }
    }

    #[test]
    fn bad_addresses_are_reported() {
        let unused = ["redis://localhost/5", "redis://localhost?db=5", "redis://localhost#5"];
        let open = |url, tls: &TlsFlags| Connection::open(Address { url, tls }, TIDEGATE_AUTH, Duration::from_secs(1));
        for url in unused.into_iter().chain(["", "127.0.0.1:6379", "http://localhost", "rediss://localhost/5"]) {
            assert!(matches!(open(url, &TlsFlags::default()), Err(ClientError::Url(_))), "{url}");
        }
        let always = TlsFlags { always: true, ..TlsFlags::default() };
        assert!(matches!(open("unix:///nosuch", &always), Err(ClientError::Url(_))));
    }
}
