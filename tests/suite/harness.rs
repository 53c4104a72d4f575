//! Servers and connections for the black-box tests.
//!
//! A [`Server`] is a process of its own on a free port with a folder of its own; it is ready once it has answered a
//! PING, and it is killed when the value is dropped. A [`Raw`] connection sends bytes unchanged and reads replies as
//! [`Value`]s, decoded by the `redis-protocol` crate: a judge that shares no code with the server. Every wait has a
//! deadline, so a test against a silent server fails instead of hanging.

use std::fmt;
use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use redis_protocol::resp2::types::RangeFrame as Frame2;
use redis_protocol::resp3::types::RangeFrame as Frame3;
use redis_protocol::{resp2, resp3};

/// How long a server may take to answer its first PING. Generous: test machines are shared.
const START_DEADLINE: Duration = Duration::from_secs(60);
/// How long any single reply may take.
pub(crate) const REPLY_DEADLINE: Duration = Duration::from_secs(60);

/// Environment variables for a server, besides those of this process.
pub(crate) type Environment = Vec<(&'static str, String)>;

/// Which program to start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Program {
    /// The server under test.
    Tidegate,
    /// Debian's redis-server, the oracle.
    Redis,
    /// Redis 8.0, the other oracle.
    Redis8,
    /// Valkey 9.1, for its descriptions of commands.
    Valkey,
}

/// A running server, killed (by SIGKILL) when dropped. Its log is printed when the test fails.
pub(crate) struct Server {
    child: Child,
    program: Program,
    port: u16,
    dir: tempfile::TempDir,
}

impl Server {
    /// Starts `program` with nothing saved to disk, plus `flags`, and waits until it answers.
    pub(crate) fn start(program: Program, flags: &[&str]) -> Server {
        Server::start_in(&Environment::new(), program, flags)
    }

    /// Like [`Server::start`], in an environment.
    pub(crate) fn start_in(environment: &Environment, program: Program, flags: &[&str]) -> Server {
        // Between finding a free port and the server's bind another process may take it: then the server exits, and
        // the next port is tried.
        for _ in 0..5 {
            if let Some(server) = Server::try_start(environment, program, flags) {
                return server;
            }
        }
        panic!("{program:?} ended at once, five times, with the flags {flags:?}; its log is above");
    }

    fn try_start(environment: &Environment, program: Program, flags: &[&str]) -> Option<Server> {
        let dir = tempfile::tempdir().expect("a temporary folder");
        let port = free_port();
        let log = File::create(dir.path().join("log")).expect("a log file in a fresh folder");
        let command_line = launch_command(program);
        let child = Command::new(&command_line[0])
            .args(&command_line[1..])
            .args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--dir"])
            .arg(dir.path())
            .args(flags)
            .envs(environment.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null())
            .stderr(log.try_clone().expect("the log's second handle"))
            .stdout(log)
            .spawn()
            .unwrap_or_else(|e| panic!("cannot start {:?}: {e}. {}", command_line[0], advice(program)));
        let mut server = Server { child, program, port, dir };
        let deadline = Instant::now() + START_DEADLINE;
        loop {
            if server.child.try_wait().expect("the state of our own child").is_some() {
                eprintln!("{}", server.log_tail());
                return None;
            }
            if server.answers_ping() && server.is_the_listener() {
                return Some(server);
            }
            assert!(Instant::now() < deadline, "{program:?} does not answer PING\n{}", server.log_tail());
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// Any reply counts except that the data is being loaded: a server that asks for a password has started, too, and
    /// one that receives its data from another server.
    fn answers_ping(&self) -> bool {
        let Ok(mut stream) = TcpStream::connect(("127.0.0.1", self.port)) else {
            return false;
        };
        let mut first = [0u8; 14];
        stream.set_read_timeout(Some(Duration::from_secs(2))).is_ok()
            && stream.write_all(b"PING\r\n").is_ok()
            && matches!(stream.read(&mut first), Ok(1..))
            && &first != b"-LOADING Redis"
    }

    /// Whether the port belongs to this process: another one may have taken it and answer instead. Without `/proc` this
    /// is assumed.
    fn is_the_listener(&self) -> bool {
        let Ok(table) = std::fs::read_to_string("/proc/net/tcp") else { return true };
        let Ok(descriptors) = std::fs::read_dir(format!("/proc/{}/fd", self.child.id())) else { return true };
        let own: Vec<_> = descriptors.flatten().filter_map(|fd| std::fs::read_link(fd.path()).ok()).collect();
        let (port, listening) = (format!(":{:04X}", self.port), "0A");
        table.lines().map(|line| line.split_whitespace().collect::<Vec<_>>()).any(|socket| match socket[..] {
            [_, local, _, state, _, _, _, _, _, inode, ..] => {
                let is_own = || own.iter().any(|fd| fd.as_os_str() == format!("socket:[{inode}]").as_str());
                local.ends_with(&port) && state == listening && is_own()
            }
            _ => false,
        })
    }

    /// A server with default settings, and a client of it.
    pub(crate) fn with_client(program: Program) -> (Server, Raw) {
        let server = Server::start(program, &[]);
        let raw = server.raw();
        (server, raw)
    }

    /// The port it listens on, at 127.0.0.1.
    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// The process id.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// A new connection for raw bytes.
    pub(crate) fn raw(&self) -> Raw {
        Raw::connect(self.port)
    }

    /// A new connection of the `redis` crate.
    pub(crate) fn client(&self) -> redis::Connection {
        redis::Client::open(format!("redis://127.0.0.1:{}/", self.port))
            .and_then(|client| client.get_connection())
            .expect("the redis crate connects to a server that has answered")
    }

    /// Whether the process has ended. A crash must not look like a refusal.
    pub(crate) fn has_ended(&mut self) -> bool {
        self.child.try_wait().expect("the state of our own child").is_some()
    }

    /// Waits until the process has ended by itself; returns whether it reported success.
    pub(crate) fn ends_well(&mut self) -> bool {
        until(|| self.has_ended(), "the server ends");
        self.child.wait().expect("the state of our own child").success()
    }

    /// The process' standard output and standard error so far.
    pub(crate) fn log(&self) -> String {
        let log = std::fs::read(self.dir.path().join("log")).unwrap_or_default();
        String::from_utf8_lossy(&log).into_owned()
    }

    fn log_tail(&self) -> String {
        let log = self.log();
        let lines: Vec<&str> = log.lines().collect();
        let tail = &lines[lines.len().saturating_sub(40)..];
        format!("--- log of {:?} on port {} ---\n{}\n---", self.program, self.port, tail.join("\n"))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{}", self.log_tail());
        }
        // Both fail only if the process has already ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A port of this machine that is free for now.
pub(crate) fn free_port() -> u16 {
    TcpListener::bind(("127.0.0.1", 0)).and_then(|l| l.local_addr()).expect("a free port on the loopback").port()
}

/// The program and the first arguments that start it.
pub(crate) fn launch_command(program: Program) -> Vec<String> {
    let command = match program {
        Program::Tidegate => {
            std::env::var("SUITE_SERVER").unwrap_or_else(|_| env!("CARGO_BIN_EXE_tidegate").to_owned())
        }
        Program::Redis => std::env::var("SUITE_REDIS").unwrap_or_else(|_| "redis-server".to_owned()),
        Program::Redis8 => std::env::var("SUITE_REDIS_8").unwrap_or_default(),
        Program::Valkey => std::env::var("SUITE_VALKEY").unwrap_or_default(),
    };
    command.split_whitespace().map(str::to_owned).collect()
}

fn advice(program: Program) -> &'static str {
    match program {
        Program::Tidegate => "SUITE_SERVER, when set, must name a server to start",
        Program::Redis => {
            "SUITE_REDIS, when set, must name a redis-server; a test asks the oracle whether there is one before it \
             starts it: apt-get install redis-server redis-tools"
        }
        Program::Redis8 => {
            "SUITE_REDIS_8 must name a redis-server of Redis 8.0; a test asks the oracle whether it does"
        }
        Program::Valkey => {
            "SUITE_VALKEY must name a valkey-server of Valkey 9.1; a test asks the oracle whether it does"
        }
    }
}

/// A reply, equal for RESP2 and RESP3. Maps are sorted lists of pairs: the decoder does not keep their order.
#[derive(Clone, PartialEq)]
pub(crate) enum Value {
    /// A simple string, such as OK.
    Status(Vec<u8>),
    /// An error, without the leading minus.
    Error(Vec<u8>),
    /// An integer.
    Integer(i64),
    /// A bulk string.
    Bulk(Vec<u8>),
    /// Null of any kind; [`Reply::raw`] tells the kinds apart.
    Null,
    /// An array.
    Array(Vec<Value>),
    /// A RESP3 map.
    Map(Vec<(Value, Value)>),
    /// A RESP3 set.
    Set(Vec<Value>),
    /// A RESP3 push.
    Push(Vec<Value>),
    /// A RESP3 double.
    Double(f64),
    /// A RESP3 boolean.
    Boolean(bool),
    /// A RESP3 big number.
    BigNumber(Vec<u8>),
    /// A RESP3 verbatim string.
    Verbatim(Vec<u8>),
}

impl Value {
    /// The status of most commands that succeed, for comparisons.
    pub(crate) fn ok() -> Value {
        Value::status("OK")
    }

    /// A status, for comparisons.
    pub(crate) fn status(text: &str) -> Value {
        Value::Status(text.as_bytes().to_vec())
    }

    /// An error, for comparisons.
    pub(crate) fn error(text: &str) -> Value {
        Value::Error(text.as_bytes().to_vec())
    }

    /// A bulk string, for comparisons.
    pub(crate) fn bulk(text: &str) -> Value {
        Value::Bulk(text.as_bytes().to_vec())
    }

    /// The bytes of a string of any kind.
    pub(crate) fn bytes(&self) -> Option<&[u8]> {
        match self {
            Value::Status(b) | Value::Error(b) | Value::Bulk(b) | Value::Verbatim(b) | Value::BigNumber(b) => Some(b),
            _ => None,
        }
    }
}

/// Reads like a line of redis-cli: short, binary-safe, on one line.
impl fmt::Debug for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Status(text) => write!(f, "+{}", text.escape_ascii()),
            Value::Error(text) => write!(f, "(error) {}", text.escape_ascii()),
            Value::Integer(n) => write!(f, "{n}"),
            Value::Bulk(text) => write!(f, "\"{}\"", text.escape_ascii()),
            Value::Null => write!(f, "(nil)"),
            Value::Array(items) => f.debug_list().entries(items).finish(),
            Value::Map(pairs) => {
                write!(f, "%")?;
                f.debug_map().entries(pairs.iter().map(|(k, v)| (k, v))).finish()
            }
            Value::Set(items) => write!(f, "~").and_then(|()| f.debug_set().entries(items).finish()),
            Value::Push(items) => write!(f, ">").and_then(|()| f.debug_list().entries(items).finish()),
            Value::Double(d) => write!(f, "(double) {d}"),
            Value::Boolean(b) => write!(f, "({b})"),
            Value::BigNumber(text) => write!(f, "(big) {}", text.escape_ascii()),
            Value::Verbatim(text) => write!(f, "(verbatim) \"{}\"", text.escape_ascii()),
        }
    }
}

/// One reply: its meaning and its bytes.
#[derive(Clone, Debug)]
pub(crate) struct Reply {
    /// The meaning.
    pub value: Value,
    /// The bytes as they came.
    pub raw: Vec<u8>,
}

/// How a connection's bytes travel.
enum Stream {
    Plain(TcpStream),
    Tls(Box<rustls::StreamOwned<rustls::ClientConnection, TcpStream>>),
}

impl Stream {
    fn socket(&self) -> &TcpStream {
        match self {
            Stream::Plain(stream) => stream,
            Stream::Tls(tls) => &tls.sock,
        }
    }

    fn both(&mut self) -> &mut (dyn ReadWrite + '_) {
        match self {
            Stream::Plain(stream) => stream,
            Stream::Tls(tls) => tls,
        }
    }
}

trait ReadWrite: Read + Write {}

impl<T: Read + Write> ReadWrite for T {}

/// A connection that sends bytes unchanged.
pub(crate) struct Raw {
    stream: Stream,
    received: Vec<u8>,
    resp3: bool,
}

impl Raw {
    /// Connects to a server on this machine.
    pub(crate) fn connect(port: u16) -> Raw {
        Raw::over(TcpStream::connect(("127.0.0.1", port)).expect("the server accepts a connection"))
    }

    /// Uses a connected socket.
    pub(crate) fn over(stream: TcpStream) -> Raw {
        stream.set_nodelay(true).expect("TCP_NODELAY on a fresh socket");
        stream.set_read_timeout(Some(REPLY_DEADLINE)).expect("a read deadline on a fresh socket");
        stream.set_write_timeout(Some(REPLY_DEADLINE)).expect("a write deadline on a fresh socket");
        Raw { stream: Stream::Plain(stream), received: Vec::new(), resp3: false }
    }

    /// Continues encrypted; the handshake comes with the first bytes.
    pub(crate) fn with_tls(self, client: rustls::ClientConnection) -> Raw {
        match self.stream {
            Stream::Plain(socket) => {
                Raw { stream: Stream::Tls(Box::new(rustls::StreamOwned::new(client, socket))), ..self }
            }
            Stream::Tls(_) => panic!("it is encrypted already"),
        }
    }

    /// The client's end of TLS.
    pub(crate) fn tls(&mut self) -> &mut rustls::StreamOwned<rustls::ClientConnection, TcpStream> {
        match &mut self.stream {
            Stream::Tls(tls) => tls,
            Stream::Plain(_) => panic!("it is not encrypted"),
        }
    }

    /// Says HELLO 3; from here on replies are read as RESP3.
    pub(crate) fn hello3(&mut self) -> Value {
        self.resp3 = true;
        self.command(&["HELLO", "3"])
    }

    /// Reads later replies as RESP2, after a RESET that the caller sent.
    pub(crate) fn back_to_resp2(&mut self) {
        self.resp3 = false;
    }

    /// Sends bytes. A server that has hung up is not an error here: the next read will fail.
    pub(crate) fn send(&mut self, bytes: &[u8]) {
        match self.stream.both().write_all(bytes) {
            Err(e) if matches!(self.stream, Stream::Tls(_)) && e.kind() == ErrorKind::InvalidData => {}
            Err(e) if !matches!(e.kind(), ErrorKind::BrokenPipe | ErrorKind::ConnectionReset) => {
                panic!("cannot send {} bytes: {e}", bytes.len())
            }
            _ => {}
        }
    }

    /// Sends a command as an array of bulk strings, without waiting for its reply.
    pub(crate) fn send_command<A: AsRef<[u8]>>(&mut self, args: &[A]) {
        self.send(&encode(args));
    }

    /// Sends a command and reads its reply.
    pub(crate) fn command<A: AsRef<[u8]>>(&mut self, args: &[A]) -> Value {
        self.send_command(args);
        self.reply().value
    }

    /// The next reply. Panics when none comes in time, when the server hangs up, or when it is not RESP.
    pub(crate) fn reply(&mut self) -> Reply {
        self.try_reply(REPLY_DEADLINE).unwrap_or_else(|why| {
            let port = self.stream.socket().peer_addr().map(|address| address.port());
            panic!("no reply from port {port:?}: {why}")
        })
    }

    /// The next reply, or why there is none: hung up, silent for this long, or bytes that are not RESP.
    pub(crate) fn try_reply(&mut self, patience: Duration) -> Result<Reply, String> {
        let deadline = Instant::now() + patience;
        loop {
            if let Some((value, used)) = decode(&self.received, self.resp3)? {
                let raw = self.received.drain(..used).collect();
                return Ok(Reply { value, raw });
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(format!("silence; unread so far: \"{}\"", self.received.escape_ascii()));
            }
            self.stream.socket().set_read_timeout(Some(left)).expect("a read deadline that is not zero");
            let mut chunk = [0u8; 65536];
            match self.stream.both().read(&mut chunk) {
                Ok(0) => {
                    return Err(format!("hung up; unread so far: \"{}\"", self.received.escape_ascii()));
                }
                Ok(n) => self.received.extend_from_slice(&chunk[..n]),
                Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
                Err(e) => return Err(format!("hung up: {e}")),
            }
        }
    }

    /// The next reply; `None` if the server hangs up before it begins. Panics if it is silent, or not RESP.
    pub(crate) fn reply_unless_closed(&mut self) -> Option<Value> {
        match self.try_reply(REPLY_DEADLINE) {
            Ok(reply) => Some(reply.value),
            Err(why) if why.starts_with("hung up") && self.received.is_empty() => None,
            Err(why) => panic!("no reply: {why}"),
        }
    }

    /// Shuts down the sending side of the connection.
    pub(crate) fn send_no_more(&mut self) {
        self.stream.socket().shutdown(std::net::Shutdown::Write).expect("it is open");
    }

    /// All bytes until the server closes the connection.
    pub(crate) fn read_to_end(&mut self) -> Vec<u8> {
        self.stream.socket().set_read_timeout(Some(REPLY_DEADLINE)).expect("a read deadline");
        let mut bytes = std::mem::take(&mut self.received);
        match self.stream.both().read_to_end(&mut bytes) {
            Ok(_) => {}
            // If a server closes with our bytes unread, the connection is reset; its earlier output has been read.
            Err(e) if e.kind() == ErrorKind::ConnectionReset => {}
            Err(e) => panic!("the server does not close: {e}; so far: \"{}\"", bytes.escape_ascii()),
        }
        bytes
    }
}

/// The first reply in `buf` and its length in bytes, decoded by the redis-protocol crate; `None` while it is
/// incomplete.
pub(crate) fn decode(buf: &[u8], resp3: bool) -> Result<Option<(Value, usize)>, String> {
    if buf.is_empty() {
        return Ok(None);
    }
    let decoded = if resp3 {
        resp3::decode::complete::decode_range(buf).map(|f| f.map(|(f, used)| (from_resp3(buf, f), used)))
    } else {
        resp2::decode::decode_range(buf).map(|f| f.map(|(f, used)| (from_resp2(buf, f), used)))
    };
    decoded.map_err(|e| format!("not RESP: {e}: \"{}\"", buf[..buf.len().min(200)].escape_ascii()))
}

/// A command as an array of bulk strings.
pub(crate) fn encode<A: AsRef<[u8]>>(args: &[A]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", args.len()).into_bytes();
    for arg in args {
        let arg = arg.as_ref();
        bytes.extend_from_slice(format!("${}\r\n", arg.len()).as_bytes());
        bytes.extend_from_slice(arg);
        bytes.extend_from_slice(b"\r\n");
    }
    bytes
}

fn from_resp2(buf: &[u8], frame: Frame2) -> Value {
    let cut = |(from, to): (usize, usize)| buf[from..to].to_vec();
    match frame {
        Frame2::SimpleString(range) => Value::Status(cut(range)),
        Frame2::Error(range) => Value::Error(cut(range)),
        Frame2::Integer(n) => Value::Integer(n),
        Frame2::BulkString(range) => Value::Bulk(cut(range)),
        Frame2::Array(items) => Value::Array(items.into_iter().map(|i| from_resp2(buf, i)).collect()),
        Frame2::Null => Value::Null,
    }
}

fn from_resp3(buf: &[u8], frame: Frame3) -> Value {
    let cut = |(from, to): (usize, usize)| buf[from..to].to_vec();
    let all = |items: Vec<Frame3>| items.into_iter().map(|i| from_resp3(buf, i)).collect::<Vec<_>>();
    match frame {
        Frame3::BlobString { data, .. } => Value::Bulk(cut(data)),
        Frame3::BlobError { data, .. } | Frame3::SimpleError { data, .. } => Value::Error(cut(data)),
        Frame3::SimpleString { data, .. } => Value::Status(cut(data)),
        Frame3::Boolean { data, .. } => Value::Boolean(data),
        Frame3::Null => Value::Null,
        Frame3::Number { data, .. } => Value::Integer(data),
        Frame3::Double { data, .. } => Value::Double(data),
        Frame3::BigNumber { data, .. } => Value::BigNumber(cut(data)),
        Frame3::VerbatimString { data, .. } => Value::Verbatim(cut(data)),
        Frame3::Array { data, .. } => Value::Array(all(data)),
        Frame3::Push { data, .. } => Value::Push(all(data)),
        Frame3::Set { data, .. } => Value::Set(sorted(all(data.into_iter().collect()))),
        Frame3::Map { data, .. } => {
            let mut pairs: Vec<(Value, Value)> =
                data.into_iter().map(|(k, v)| (from_resp3(buf, k), from_resp3(buf, v))).collect();
            pairs.sort_by_cached_key(|pair| format!("{pair:?}"));
            Value::Map(pairs)
        }
        Frame3::Hello { .. } | Frame3::ChunkedString(_) => {
            panic!("a server does not send {frame:?}")
        }
    }
}

/// Values in a fixed, arbitrary order, to compare unordered replies.
pub(crate) fn sorted(mut values: Vec<Value>) -> Vec<Value> {
    values.sort_by_cached_key(|value| format!("{value:?}"));
    values
}

/// Repeats a check until it holds.
pub(crate) fn until(mut holds: impl FnMut() -> bool, what: &str) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < Duration::from_secs(60), "waited in vain: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}
