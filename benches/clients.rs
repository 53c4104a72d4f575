//! The cost of many clients, compared with peers: `cargo bench --bench clients`.
//!
//! | Table | What is measured |
//! |---|---|
//! | `fan_out` | one client publishes, a thousand subscribers read: CPU time of the server per message delivered |
//! | `crowd` | 10,000 connections, one request per second each: memory per connection, and one more client's waits |
//! | `handshakes` | connections that open with TLS, send a PING, and close: CPU time of the server for each |
//! | `tls` | GET and SET over TLS from 50 connections, 16 in flight each |
//!
//! The server has one core for all its threads; the client has the other. Both sides of a TLS connection speak TLS 1.3
//! with keys of the same kind; no session is resumed.

mod figures;
mod peer;
mod probe;
mod requests;

use std::collections::VecDeque;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::Parser;
use rustls::client::Resumption;
use rustls::crypto::ring::default_provider;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use figures::{Quantity, Recorder};
use peer::{Server, Setup, UNLOGGED, connection::Connection, pin_self};
use probe::probe_while;
use requests::{Random, encode};

/// Measures the cost of many clients: fan-out, ten thousand connections, TLS. Takes some 5 minutes in full with two
/// peers; the limit of open files must allow for ten thousand (it is raised where the system allows it).
#[derive(Parser)]
struct Options {
    #[command(flatten)]
    setup: Setup,
}

const SUBSCRIBERS: u64 = 1_000;
const MESSAGES: u64 = 2_000;
const MESSAGE: &str = "an order has come: 0123456789012345678901234567890123456789012345";

/// Connections of the crowd, the interval at which each sends a request, and the seconds of the measurement.
const CROWD: u64 = 10_000;
const CROWD_INTERVAL: Duration = Duration::from_secs(1);
const CROWD_S: f64 = 10.0;

/// Flags with which a server admits the whole crowd and the measuring connections.
const MANY_CLIENTS: &[&str] = &["--maxclients", "10100"];

const HANDSHAKES: u64 = 1_000;
const TLS_CONNECTIONS: usize = 50;
const TLS_DEPTH: usize = 16;
const TLS_S: f64 = 1.0;
const TLS_KEYS: u64 = 100_000;

fn main() {
    let Options { setup } = Options::parse();
    pin_self(setup.client_core);
    allow_many_files();
    let commands = setup.commands();
    let mut recorder = Recorder::new("clients", &setup);
    fan_out(&mut recorder, &setup, &commands);
    crowd(&mut recorder, &setup, &commands);
    tls(&mut recorder, &setup, &commands);
    recorder.finish();
}

/// Raises the limit of open files as far as the system allows.
fn allow_many_files() {
    let wanted = libc::rlimit { rlim_cur: CROWD + 1_000, rlim_max: CROWD + 1_000 };
    // SAFETY: a struct that outlives the call.
    let raised = unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const wanted) };
    assert_eq!(raised, 0, "the limit of open files can't be raised: {}", std::io::Error::last_os_error());
}

fn fan_out(recorder: &mut Recorder, setup: &Setup, commands: &[String]) {
    let subscribers = setup.scaled(SUBSCRIBERS);
    let quantities = [Quantity::more("deliveries/s", 0), Quantity::less("CPU us/delivery", 3)];
    recorder.table("fan_out", "messages published at a time", quantities);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a tokio runtime");
    for at_once in [1, 16] {
        recorder.case(&at_once.to_string(), None, |server| {
            let server = setup.start(&commands[server]);
            let messages = setup.scaled(MESSAGES).next_multiple_of(at_once);
            let (seconds, cpu) = runtime.block_on(publish(&server, subscribers, messages, at_once));
            let deliveries = (subscribers * messages) as f64;
            [deliveries / seconds, cpu * 1e6 / deliveries]
        });
    }
}

/// Publishes to subscribers that read as fast as they can. Returns the seconds until all have read everything, and the
/// server's CPU seconds.
async fn publish(server: &Server, subscribers: u64, messages: u64, at_once: u64) -> (f64, f64) {
    let message = encode(&["message", "orders", MESSAGE]);
    let mut readers = Vec::new();
    for _ in 0..subscribers {
        let mut stream = tokio::net::TcpStream::connect(("127.0.0.1", server.port)).await.expect("the server accepts");
        stream.write_all(&encode(&["SUBSCRIBE", "orders"])).await.expect("the server reads");
        let confirmation = b"*3\r\n$9\r\nsubscribe\r\n$6\r\norders\r\n:1\r\n";
        let mut answer = vec![0; confirmation.len()];
        stream.read_exact(&mut answer).await.expect("the server answers");
        assert_eq!(answer, confirmation);
        readers.push(stream);
    }
    let mut publisher = tokio::net::TcpStream::connect(("127.0.0.1", server.port)).await.expect("the server accepts");
    publisher.set_nodelay(true).expect("a TCP socket");
    let expected = message.len() * messages as usize;
    let (cpu, begin) = (server.cpu_seconds(), Instant::now());
    let reading: Vec<_> = readers.into_iter().map(|stream| tokio::spawn(read_all(stream, expected))).collect();
    let request = encode(&["PUBLISH", "orders", MESSAGE]).repeat(at_once as usize);
    let reply = format!(":{subscribers}\r\n").repeat(at_once as usize);
    let mut answer = vec![0; reply.len()];
    for _ in 0..messages / at_once {
        publisher.write_all(&request).await.expect("the server reads");
        publisher.read_exact(&mut answer).await.expect("the server answers");
        assert_eq!(answer, reply.as_bytes());
    }
    for reader in reading {
        let last = reader.await.expect("a reader does not panic");
        assert!(last.ends_with(MESSAGE.as_bytes()), "the last message is not the one that was published");
    }
    (begin.elapsed().as_secs_f64(), server.cpu_seconds() - cpu)
}

/// Reads `expected` bytes. Returns the last of them, without the end of the line.
async fn read_all(mut stream: tokio::net::TcpStream, mut expected: usize) -> Vec<u8> {
    let mut piece = vec![0; 16 * 1024];
    loop {
        let n = stream.read(&mut piece).await.expect("the server writes");
        assert!(n > 0, "the server hung up");
        expected = expected.checked_sub(n).expect("the subscriber received more than was published");
        if expected == 0 {
            piece.truncate(n.saturating_sub(2));
            return piece;
        }
    }
}

fn crowd(recorder: &mut Recorder, setup: &Setup, commands: &[String]) {
    let crowd = setup.scaled(CROWD);
    let waits = ["p50 ms", "p99 ms", "p99.9 ms", "longest ms"].map(|name| Quantity::less(name, 3));
    let [p50, p99, p999, longest] = waits;
    let quantities = [
        Quantity::less("bytes/idle connection", 0),
        Quantity::less("bytes/connection that asks", 0),
        Quantity::less("CPU us/request", 2),
        p50,
        p99,
        p999,
        longest,
    ];
    recorder.table("crowd", "connections", quantities);
    recorder.case(&crowd.to_string(), None, |server| {
        let flags = [UNLOGGED, MANY_CLIENTS].concat();
        let server = Server::start_with(&commands[server], &setup.server_core.to_string(), &flags, &[]);
        let empty = server.steady_bytes();
        let mut connections: Vec<Connection> = (0..crowd).map(|_| Connection::new(&server)).collect();
        let connected = Connection::new(&server).ask(&["INFO", "clients"]);
        assert!(connected.contains(&format!("connected_clients:{}", crowd + 1)), "some were refused: {connected}");
        let each = |bytes: u64| bytes.saturating_sub(empty) as f64 / crowd as f64;
        let idle = each(server.steady_bytes());
        let cpu = server.cpu_seconds();
        let length = setup.seconds(CROWD_S);
        let (waits, requests) = probe_while(&server, || ask_in_turn(&mut connections, length));
        // The probe sends one request per millisecond.
        let cpu_us = (server.cpu_seconds() - cpu) * 1e6 / (requests as f64 + length.as_secs_f64() * 1e3);
        let [p50, p99, p999] = [50.0, 99.0, 99.9].map(|percent| waits.percentile(percent));
        [idle, each(server.steady_bytes()), cpu_us, p50, p99, p999, waits.longest()]
    });
}

/// Sends one request per interval on each connection, one connection after the other. Returns the number of requests.
fn ask_in_turn(connections: &mut [Connection], length: Duration) -> u64 {
    let request = encode(&["GET", "key"]);
    let step = CROWD_INTERVAL / connections.len() as u32;
    let (begin, mut asked) = (Instant::now(), 0u32);
    let mut open = VecDeque::new();
    while begin.elapsed() < length {
        let number = asked as usize % connections.len();
        connections[number].send(&request);
        open.push_back(number);
        asked += 1;
        let due = begin + step * asked;
        let now = Instant::now();
        if now < due {
            std::thread::sleep((due - now).max(Duration::from_millis(1)));
            open.drain(..).for_each(|number| connections[number].receive(1));
        }
    }
    open.drain(..).for_each(|number| connections[number].receive(1));
    u64::from(asked)
}

/// The requests sent over TLS, and their replies.
struct TlsLoad {
    name: &'static str,
    request: fn(&str) -> Vec<u8>,
    reply: &'static str,
}

const TLS_VALUE: &str = "xxx";
const TLS_LOADS: [TlsLoad; 2] = [
    TlsLoad { name: "GET", request: |key| encode(&["GET", key]), reply: "$3\r\nxxx\r\n" },
    TlsLoad { name: "SET", request: |key| encode(&["SET", key, TLS_VALUE]), reply: "+OK\r\n" },
];

fn tls(recorder: &mut Recorder, setup: &Setup, commands: &[String]) {
    let identity = Identity::new();
    let handshakes = setup.scaled(HANDSHAKES);
    recorder.table(
        "handshakes",
        "new connections",
        [Quantity::more("connections/s", 0), Quantity::less("CPU us/connection", 0)],
    );
    recorder.case(&format!("{handshakes} connections, one after the other"), None, |server| {
        let server = identity.start(setup, &commands[server]);
        let (cpu, begin) = (server.plain.cpu_seconds(), Instant::now());
        for _ in 0..handshakes {
            let mut stream = identity.connect(&server);
            ask(&mut stream, &encode(&["PING"]), b"+PONG\r\n".len());
        }
        let (cpu, seconds) = (server.plain.cpu_seconds() - cpu, begin.elapsed().as_secs_f64());
        [handshakes as f64 / seconds, cpu * 1e6 / handshakes as f64]
    });
    recorder.table(
        "tls",
        "command",
        [Quantity::more("requests/s", 0), Quantity::less("CPU us/op", 3), Quantity::neither("client busy %", 0)],
    );
    for TlsLoad { name, request, reply } in TLS_LOADS {
        recorder.case(&format!("{name}, P={TLS_DEPTH}"), None, |server| {
            let server = identity.start(setup, &commands[server]);
            let filling = encode(&["SET", &format!("key:{}", requests::NUMBER), TLS_VALUE]);
            Connection::new(&server.plain).fill(0..setup.scaled(TLS_KEYS), 1_000, &filling);
            let mut streams: Vec<_> = (0..TLS_CONNECTIONS).map(|_| identity.connect(&server)).collect();
            let mut random = Random::new(1);
            let mut turn = |streams: &mut [TlsStream]| {
                for stream in &mut *streams {
                    let key = |_| format!("key:{:012}", random.below(setup.scaled(TLS_KEYS)));
                    let batch: Vec<u8> = (0..TLS_DEPTH).map(key).flat_map(|key| request(&key)).collect();
                    stream.write_all(&batch).expect("the server reads");
                }
                let mut replies = vec![0; reply.len() * TLS_DEPTH];
                for stream in streams {
                    stream.read_exact(&mut replies).expect("the server answers");
                    assert_eq!(replies, reply.repeat(TLS_DEPTH).as_bytes());
                }
            };
            turn(&mut streams);
            let length = setup.seconds(TLS_S);
            let busy = peer::cpu_seconds(std::process::id());
            let (cpu, begin, mut turns) = (server.plain.cpu_seconds(), Instant::now(), 0);
            while begin.elapsed() < length {
                turn(&mut streams);
                turns += 1;
            }
            let (cpu, seconds) = (server.plain.cpu_seconds() - cpu, begin.elapsed().as_secs_f64());
            let busy = peer::cpu_seconds(std::process::id()) - busy;
            let requests = f64::from(turns) * (TLS_CONNECTIONS * TLS_DEPTH) as f64;
            [requests / seconds, cpu * 1e6 / requests, 100.0 * busy / seconds]
        });
    }
}

type TlsStream = StreamOwned<ClientConnection, TcpStream>;

/// Sends a request and reads a reply of `reply_len` bytes.
fn ask(stream: &mut TlsStream, request: &[u8], reply_len: usize) {
    stream.write_all(request).expect("the server reads");
    let mut reply = vec![0; reply_len];
    stream.read_exact(&mut reply).expect("the server answers");
    assert_ne!(reply.first(), Some(&b'-'), "an error: {}", reply.escape_ascii());
}

/// A server that also speaks TLS.
struct TlsServer {
    plain: Server,
    tls_port: u16,
}

/// A self-signed certificate, in a folder of its own, and a client that trusts it.
struct Identity {
    dir: tempfile::TempDir,
    client: Arc<ClientConfig>,
}

impl Identity {
    fn new() -> Identity {
        let rcgen::CertifiedKey { cert, key_pair } =
            rcgen::generate_simple_self_signed(["localhost".to_owned()]).expect("a certificate");
        let dir = tempfile::tempdir().expect("a temporary folder");
        std::fs::write(dir.path().join("server.crt"), cert.pem()).expect("a file");
        std::fs::write(dir.path().join("server.key"), key_pair.serialize_pem()).expect("a file");
        let mut roots = RootCertStore::empty();
        roots.add(cert.der().clone()).expect("a certificate");
        let mut client = ClientConfig::builder_with_provider(Arc::new(default_provider()))
            .with_protocol_versions(&[&rustls::version::TLS13])
            .expect("a known version")
            .with_root_certificates(roots)
            .with_no_client_auth();
        client.resumption = Resumption::disabled();
        Identity { dir, client: Arc::new(client) }
    }

    fn start(&self, setup: &Setup, command: &str) -> TlsServer {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
        let tls_port = listener.local_addr().expect("a bound socket has an address").port();
        drop(listener);
        let path = |name: &str| -> String {
            let path: &Path = self.dir.path();
            path.join(name).to_str().expect("a temporary folder in UTF-8").to_owned()
        };
        let (port, crt, key) = (tls_port.to_string(), path("server.crt"), path("server.key"));
        let flags = ["--tls-port", &port, "--tls-cert-file", &crt, "--tls-key-file", &key, "--tls-auth-clients", "no"];
        let flags = [UNLOGGED, &flags, &["--tls-ca-cert-file", &crt]].concat();
        let plain = Server::start_with(command, &setup.server_core.to_string(), &flags, &[]);
        TlsServer { plain, tls_port }
    }

    /// Connects and shakes hands.
    fn connect(&self, server: &TlsServer) -> TlsStream {
        let name = ServerName::try_from("localhost").expect("a name");
        let session = ClientConnection::new(Arc::clone(&self.client), name).expect("a configuration that fits");
        let socket = TcpStream::connect(("127.0.0.1", server.tls_port)).expect("the server accepts");
        socket.set_nodelay(true).expect("a TCP socket");
        let mut stream = StreamOwned::new(session, socket);
        stream.conn.complete_io(&mut stream.sock).expect("a handshake");
        stream
    }
}
