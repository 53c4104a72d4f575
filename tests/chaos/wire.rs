//! Bytes to and from the server: requests written, replies read. A decoder of its own, which shares no code with the
//! server.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

/// A command with its arguments.
pub(crate) type Args = Vec<Vec<u8>>;

/// Time the kernel may take to accept a connection or bytes: longer than any tolerated pause of the server.
const SOCKET_PATIENCE: Duration = Duration::from_secs(5);
/// Maximum depth of nested arrays; deeper ones are taken for a defect.
const MAX_DEPTH: usize = 10_000;

/// Bytes of an argument that are shown: enough for a script.
const SHOWN_BYTES: usize = 2_000;

/// Returns words as a command.
pub(crate) fn words(words: &[&str]) -> Args {
    words.iter().map(|word| word.as_bytes().to_vec()).collect()
}

/// Appends a command as an array of bulk strings.
pub(crate) fn encode(args: &[Vec<u8>], out: &mut Vec<u8>) {
    out.extend_from_slice(format!("*{}\r\n", args.len()).as_bytes());
    for arg in args {
        out.extend_from_slice(format!("${}\r\n", arg.len()).as_bytes());
        out.extend_from_slice(arg);
        out.extend_from_slice(b"\r\n");
    }
}

/// A command as one line for people, long arguments cut.
pub(crate) fn show(args: &[Vec<u8>]) -> String {
    let word = |arg: &Vec<u8>| {
        let cut = arg.len().min(SHOWN_BYTES);
        let more = if cut < arg.len() { format!("...({} bytes)", arg.len()) } else { String::new() };
        format!("\"{}{more}\"", arg[..cut].escape_ascii())
    };
    let more = if args.len() > 20 { format!(" ...({} arguments)", args.len()) } else { String::new() };
    args.iter().take(20).map(word).collect::<Vec<_>>().join(" ") + &more
}

/// A reply. Types that RESP3 adds are read as their nearest relative: maps and sets as arrays, doubles as strings.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Reply {
    Status(String),
    Error(String),
    Integer(i64),
    Bulk(Vec<u8>),
    Null,
    Array(Vec<Reply>),
}

impl Reply {
    /// Returns its integer.
    pub(crate) fn integer(&self) -> Option<i64> {
        if let Reply::Integer(number) = self { Some(*number) } else { None }
    }

    /// Returns the text that it is or holds.
    pub(crate) fn text(&self) -> Option<String> {
        match self {
            Reply::Status(text) => Some(text.clone()),
            Reply::Bulk(bytes) => Some(String::from_utf8_lossy(bytes).into_owned()),
            _ => None,
        }
    }

    /// Returns the items of an array.
    pub(crate) fn items(&self) -> Option<&[Reply]> {
        if let Reply::Array(items) = self { Some(items) } else { None }
    }
}

/// Returns the first reply in `bytes`, with its length; `None` while it is incomplete. The error describes bytes that
/// are not RESP.
pub(crate) fn parse(bytes: &[u8], depth: usize) -> Result<Option<(Reply, usize)>, String> {
    let Some((line, mut used)) = first_line(bytes)? else { return Ok(None) };
    let (kind, rest) = (line[0], &line[1..]);
    let text = || String::from_utf8_lossy(rest).into_owned();
    let reply = match kind {
        b'+' => Reply::Status(text()),
        b'-' => Reply::Error(text()),
        b':' => Reply::Integer(number(rest)?),
        b'_' => Reply::Null,
        b',' | b'(' => Reply::Bulk(rest.to_vec()),
        b'#' => Reply::Integer(i64::from(rest == b"t")),
        b'$' | b'=' | b'!' => {
            let len = number(rest)?;
            let Ok(len) = usize::try_from(len) else { return Ok(Some((Reply::Null, used))) };
            let Some(body) = bytes.get(used..used + len + 2) else { return Ok(None) };
            used += len + 2;
            if !body.ends_with(b"\r\n") {
                return Err("a bulk string without its end".to_owned());
            }
            Reply::Bulk(body[..len].to_vec())
        }
        _ => {
            let Some(count) = item_count(kind, number(rest)?)? else { return Ok(Some((Reply::Null, used))) };
            if depth >= MAX_DEPTH {
                return Err("arrays nested too deep".to_owned());
            }
            let mut items = Vec::new();
            for _ in 0..count {
                let Some((item, len)) = parse(&bytes[used..], depth + 1)? else { return Ok(None) };
                used += len;
                items.push(item);
            }
            Reply::Array(items)
        }
    };
    Ok(Some((reply, used)))
}

/// Returns how many items follow the head of an aggregate; `None`: it is null.
fn item_count(kind: u8, count: i64) -> Result<Option<usize>, String> {
    let Ok(count) = usize::try_from(count) else { return Ok(None) };
    match kind {
        b'*' | b'~' | b'>' => Ok(Some(count)),
        b'%' => Ok(Some(count * 2)),
        // An attribute, and the value it belongs to.
        b'|' => Ok(Some(count * 2 + 1)),
        _ => Err(format!("a reply that begins with '{}'", kind.escape_ascii())),
    }
}

/// The first line, without its end and with its length.
fn first_line(bytes: &[u8]) -> Result<Option<(&[u8], usize)>, String> {
    match bytes.windows(2).position(|pair| pair == b"\r\n") {
        Some(0) => Err("an empty line".to_owned()),
        Some(end) => Ok(Some((&bytes[..end], end + 2))),
        None => Ok(None),
    }
}

fn number(text: &[u8]) -> Result<i64, String> {
    let text = String::from_utf8_lossy(text);
    text.parse().map_err(|_| format!("a length or integer that is none: {text:?}"))
}

/// Counts whole replies in a stream of bytes without keeping them: its memory does not grow with the bytes received.
#[derive(Default)]
pub(crate) struct Counter {
    /// Items still to come, of the innermost aggregate last.
    open: Vec<usize>,
    /// Bytes of a string still to come, including its end.
    body: usize,
    line: Vec<u8>,
    /// Whole replies so far.
    pub replies: usize,
}

impl Counter {
    pub(crate) fn feed(&mut self, mut bytes: &[u8]) -> Result<(), String> {
        while !bytes.is_empty() {
            if self.body > 0 {
                let taken = self.body.min(bytes.len());
                self.body -= taken;
                bytes = &bytes[taken..];
                if self.body == 0 {
                    self.item_is_whole();
                }
                continue;
            }
            let end = bytes.iter().position(|&byte| byte == b'\n').map_or(bytes.len(), |end| end + 1);
            self.line.extend_from_slice(&bytes[..end]);
            bytes = &bytes[end..];
            if self.line.ends_with(b"\r\n") {
                let line = std::mem::take(&mut self.line);
                self.read_line(&line[..line.len() - 2])?;
            }
        }
        Ok(())
    }

    fn read_line(&mut self, line: &[u8]) -> Result<(), String> {
        let Some((&kind, rest)) = line.split_first() else { return Err("an empty line".to_owned()) };
        match kind {
            b'+' | b'-' | b'_' | b',' | b'(' | b'#' => self.item_is_whole(),
            b':' => {
                number(rest)?;
                self.item_is_whole();
            }
            b'$' | b'=' | b'!' => match usize::try_from(number(rest)?) {
                Ok(len) => self.body = len + 2,
                Err(_) => self.item_is_whole(),
            },
            _ => match item_count(kind, number(rest)?)? {
                None | Some(0) => self.item_is_whole(),
                Some(_) if self.open.len() >= MAX_DEPTH => return Err("arrays nested too deep".to_owned()),
                Some(count) => self.open.push(count),
            },
        }
        Ok(())
    }

    fn item_is_whole(&mut self) {
        while let Some(left) = self.open.last_mut() {
            *left -= 1;
            if *left > 0 {
                return;
            }
            self.open.pop();
        }
        self.replies += 1;
    }
}

/// A connection that returns errors instead of panicking.
pub(crate) struct Connection {
    stream: TcpStream,
    received: Vec<u8>,
}

impl Connection {
    pub(crate) fn open(port: u16) -> std::io::Result<Connection> {
        let stream = TcpStream::connect_timeout(&SocketAddr::from(([127, 0, 0, 1], port)), SOCKET_PATIENCE)?;
        stream.set_nodelay(true)?;
        stream.set_write_timeout(Some(SOCKET_PATIENCE))?;
        Ok(Connection { stream, received: Vec::new() })
    }

    /// Returns the port by which the server's log names it.
    pub(crate) fn local_port(&self) -> u16 {
        self.stream.local_addr().map_or(0, |address| address.port())
    }

    pub(crate) fn send(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        self.stream.write_all(bytes)
    }

    /// Returns the bytes that come within `patience`; none means silence. An error: the connection is over.
    pub(crate) fn receive(&mut self, chunk: &mut [u8], patience: Duration) -> std::io::Result<usize> {
        self.stream.set_read_timeout(Some(patience.max(Duration::from_millis(1))))?;
        match self.stream.read(chunk) {
            Ok(0) => Err(ErrorKind::UnexpectedEof.into()),
            Ok(len) => Ok(len),
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => Ok(0),
            Err(error) => Err(error),
        }
    }

    /// The next reply; `None`: none within `patience`.
    pub(crate) fn reply(&mut self, patience: Duration) -> std::io::Result<Option<Reply>> {
        let deadline = Instant::now() + patience;
        let mut chunk = [0; 16 * 1024];
        loop {
            let parsed = parse(&self.received, 0).map_err(|why| std::io::Error::new(ErrorKind::InvalidData, why))?;
            if let Some((reply, used)) = parsed {
                self.received.drain(..used);
                return Ok(Some(reply));
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(None);
            }
            let len = self.receive(&mut chunk, left)?;
            self.received.extend_from_slice(&chunk[..len]);
        }
    }

    /// Closes by a reset, as a machine that loses its power seems to, or a process that is killed with data unread.
    pub(crate) fn reset(self) {
        let _ = socket2::SockRef::from(&self.stream).set_linger(Some(Duration::ZERO));
    }
}
