//! TLS. The client is rustls, which the server uses as well, or redis-cli with OpenSSL, where it was built with TLS.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, KeyPair};
use rustls::crypto::ring::default_provider;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, HandshakeKind, ProtocolVersion, RootCertStore};

use crate::harness::{Program, Raw, Server, Value, encode, free_port, launch_command, until};
use crate::oracle::{OPENSSL, OTHER_ADDRESS, REDIS_CLI_TLS, other_address};

/// An authority and the certificates it has issued, as files in a folder.
struct Authority {
    dir: tempfile::TempDir,
    certificate: rcgen::Certificate,
    key: KeyPair,
}

/// A certificate and its key.
struct Identity {
    certificate: CertificateDer<'static>,
    key: PrivateKeyDer<'static>,
    certificate_file: PathBuf,
    key_file: PathBuf,
}

impl Authority {
    fn new() -> Authority {
        let mut params = CertificateParams::new(Vec::new()).expect("no names");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, "the authority of a test");
        let key = KeyPair::generate().expect("a key");
        let certificate = params.self_signed(&key).expect("a certificate");
        let dir = tempfile::tempdir().expect("a temporary folder");
        std::fs::write(dir.path().join("ca.pem"), certificate.pem()).expect("a file in it");
        Authority { dir, certificate, key }
    }

    fn file(&self) -> PathBuf {
        self.dir.path().join("ca.pem")
    }

    /// Certifies `name`.
    fn certify(&self, name: &str) -> Identity {
        let mut params = CertificateParams::new(vec!["localhost".to_owned()]).expect("a name");
        params.distinguished_name.push(DnType::CommonName, name);
        let key = KeyPair::generate().expect("a key");
        let certificate = params.signed_by(&key, &self.certificate, &self.key).expect("a certificate");
        let [certificate_file, key_file] = ["crt", "key"].map(|end| self.dir.path().join(format!("{name}.{end}")));
        std::fs::write(&certificate_file, certificate.pem()).expect("a file");
        std::fs::write(&key_file, key.serialize_pem()).expect("a file");
        let key = PrivateKeyDer::try_from(key.serialize_der()).expect("a key");
        Identity { certificate: certificate.der().clone(), key, certificate_file, key_file }
    }

    /// The configuration of a client that trusts this authority.
    fn client(&self, identity: Option<&Identity>) -> Arc<ClientConfig> {
        self.client_with(identity, rustls::ALL_VERSIONS)
    }

    fn client_with(
        &self,
        identity: Option<&Identity>,
        versions: &[&'static rustls::SupportedProtocolVersion],
    ) -> Arc<ClientConfig> {
        let mut roots = RootCertStore::empty();
        roots.add(self.certificate.der().clone()).expect("an authority");
        let config = ClientConfig::builder_with_provider(Arc::new(default_provider()))
            .with_protocol_versions(versions)
            .expect("known versions")
            .with_root_certificates(roots);
        Arc::new(match identity {
            Some(identity) => config
                .with_client_auth_cert(vec![identity.certificate.clone()], identity.key.clone_key())
                .expect("a key that fits"),
            None => config.with_no_client_auth(),
        })
    }
}

/// A server that also speaks TLS.
pub(crate) struct TlsServer {
    server: Server,
    port: u16,
    authority: Authority,
    plain: Raw,
}

impl TlsServer {
    /// It asks clients for no certificate.
    pub(crate) fn start(flags: &[&str]) -> TlsServer {
        let authority = Authority::new();
        let own = authority.certify("server");
        let port = free_port();
        let texts = [port.to_string(), text(&own.certificate_file), text(&own.key_file), text(&authority.file())];
        let names = ["--tls-port", "--tls-cert-file", "--tls-key-file", "--tls-ca-cert-file"];
        let mut all: Vec<&str> = names.iter().zip(&texts).flat_map(|(name, text)| [*name, text.as_str()]).collect();
        all.extend(["--tls-auth-clients", "no"]);
        all.extend(flags);
        let server = Server::start(Program::Tidegate, &all);
        let plain = server.raw();
        TlsServer { server, port, authority, plain }
    }

    fn client(&self) -> Raw {
        self.client_as(&self.authority.client(None))
    }

    fn client_as(&self, config: &Arc<ClientConfig>) -> Raw {
        Raw::connect(self.port).with_tls(session(config))
    }

    fn set(&mut self, pairs: &[&str]) {
        assert_eq!(self.try_set(pairs), Value::status("OK"), "{pairs:?}");
    }

    fn try_set(&mut self, pairs: &[&str]) -> Value {
        self.plain.command(&[&["CONFIG", "SET"], pairs].concat())
    }

    /// Returns whether a client of this kind is served, or the text of the failure.
    fn serves(&self, config: &Arc<ClientConfig>) -> Result<(), String> {
        let mut client = self.client_as(config);
        client.send(&encode(&["PING"]));
        client.try_reply(Duration::from_secs(60)).map(|reply| assert_eq!(reply.value, Value::status("PONG")))
    }

    /// A field of the CLIENT LIST line of the client with this id.
    fn field(&mut self, id: i64, field: &str) -> Option<u64> {
        let list = self.plain.command(&["CLIENT", "LIST", "ID", &id.to_string()]);
        let list = String::from_utf8_lossy(list.bytes()?).into_owned();
        list.split(' ').find_map(|pair| pair.strip_prefix(field)?.strip_prefix('=')?.parse().ok())
    }
}

fn session(config: &Arc<ClientConfig>) -> ClientConnection {
    let name = ServerName::try_from("localhost").expect("a name");
    ClientConnection::new(Arc::clone(config), name).expect("a client")
}

fn text(path: &Path) -> String {
    path.to_str().expect("a path of plain letters").to_owned()
}

fn id(client: &mut Raw) -> i64 {
    match client.command(&["CLIENT", "ID"]) {
        Value::Integer(id) => id,
        other => panic!("{other:?} is no id"),
    }
}

fn id_of_plain(server: &mut TlsServer) -> i64 {
    id(&mut server.plain)
}

fn is_busy(reply: &Value) -> bool {
    matches!(reply, Value::Error(text) if text.starts_with(b"BUSY"))
}

#[test]
fn tls_and_plain_text_are_served_side_by_side() {
    let mut server = TlsServer::start(&[]);
    for version in [&rustls::version::TLS12, &rustls::version::TLS13] {
        let mut client = server.client_as(&server.authority.client_with(None, &[version]));
        assert_eq!(client.command(&["SET", "key", "value"]), Value::status("OK"));
        assert_eq!(client.tls().conn.protocol_version(), Some(version.version));
        assert_eq!(server.plain.command(&["GET", "key"]), Value::bulk("value"));
        let many = b"INCR n\r\n".repeat(1_000);
        client.send(&many);
        let last = (0..1_000).map(|_| client.reply().value).last();
        assert!(matches!(last, Some(Value::Integer(1_000 | 2_000))), "{last:?}");
        assert!(matches!(client.hello3(), Value::Map(_)));
        let id = id(&mut client);
        let list = server.plain.command(&["CLIENT", "LIST", "ID", &id.to_string()]);
        let list = String::from_utf8_lossy(list.bytes().expect("text")).into_owned();
        assert!(list.contains(&format!(" laddr=127.0.0.1:{} ", server.port)), "{list}");
        let of_tls = server.field(id, "tot-mem").expect("a number");
        let plain = id_of_plain(&mut server);
        assert!(of_tls > server.field(plain, "tot-mem").expect("a number") + 8_000, "{of_tls}");
        // The end of the connection cannot be forged: rustls would call it unexpected.
        client.send(b"QUIT\r\n");
        assert_eq!(client.read_to_end(), b"+OK\r\n");
    }
}

#[test]
fn tls_auth_clients_decides_whether_clients_need_certificates() {
    let mut server = TlsServer::start(&[]);
    let (own, stranger) = (server.authority.certify("client"), Authority::new().certify("stranger"));
    let kinds = [None, Some(&own), Some(&stranger)].map(|identity| server.authority.client(identity));
    for (asked, served) in
        [("no", [true, true, true]), ("optional", [true, true, false]), ("yes", [false, true, false])]
    {
        server.set(&["tls-auth-clients", asked]);
        assert_eq!(kinds.each_ref().map(|kind| server.serves(kind).is_ok()), served, "{asked}");
    }
    // The authorities may also lie in a folder, among other files.
    let folder = tempfile::tempdir().expect("a temporary folder");
    std::fs::write(folder.path().join("README"), "not a certificate").expect("a file in it");
    assert_eq!(
        server.try_set(&["tls-ca-cert-file", "", "tls-ca-cert-dir", &text(folder.path())]),
        refused("tls-ca-cert-file")
    );
    std::fs::copy(server.authority.file(), folder.path().join("ca.pem")).expect("a file in it");
    server.set(&["tls-ca-cert-file", "", "tls-ca-cert-dir", &text(folder.path())]);
    assert_eq!(kinds.each_ref().map(|kind| server.serves(kind).is_ok()), [false, true, false]);
}

fn refused(name: &str) -> Value {
    Value::error(&format!(
        "ERR CONFIG SET failed (possibly related to argument '{name}') - Unable to update TLS configuration. Check \
         server logs."
    ))
}

#[test]
fn new_certificates_are_loaded_without_a_restart() {
    let mut server = TlsServer::start(&[]);
    let mut old = server.client();
    assert_eq!(old.command(&["PING"]), Value::status("PONG"));
    let shown = |client: &mut Raw| {
        assert_eq!(client.command(&["PING"]), Value::status("PONG"));
        client.tls().conn.peer_certificates().expect("the server shows one")[0].clone().into_owned()
    };
    let before = shown(&mut old);
    let renewed = server.authority.certify("renewed");
    let [certificate, key] = [&renewed.certificate_file, &renewed.key_file].map(|path| text(path));
    // A certificate does not match another key, and nothing changes.
    assert_eq!(server.try_set(&["tls-cert-file", &certificate]), refused("tls-cert-file"));
    assert_eq!(server.try_set(&["hz", "20", "tls-key-file", "/nonexistent"]), refused("tls-key-file"));
    assert_eq!(server.try_set(&["tls-ciphers", "RC4-MD5"]), refused("tls-ciphers"));
    let hz = server.plain.command(&["CONFIG", "GET", "hz"]);
    assert_eq!(hz, Value::Array(vec![Value::bulk("hz"), Value::bulk("10")]));
    assert_eq!(shown(&mut server.client()), before);
    server.set(&["tls-cert-file", &certificate, "tls-key-file", &key]);
    assert_eq!(shown(&mut server.client()), renewed.certificate);
    assert_eq!(old.command(&["PING"]), Value::status("PONG"));
    // New contents under the same file names.
    let again = server.authority.certify("renewed");
    assert_eq!(shown(&mut server.client()), renewed.certificate);
    server.set(&["tls-cert-file", &certificate]);
    assert_eq!(shown(&mut server.client()), again.certificate);
}

#[test]
fn new_certificates_are_loaded_automatically_if_configured() {
    let server = TlsServer::start(&["--tls-auto-reload-interval", "1"]);
    let shown = |server: &TlsServer| {
        let mut client = server.client();
        assert_eq!(client.command(&["PING"]), Value::status("PONG"));
        client.tls().conn.peer_certificates().expect("the server shows one")[0].clone().into_owned()
    };
    let (before, mut old) = (shown(&server), server.client());
    assert_eq!(old.command(&["PING"]), Value::status("PONG"));
    // The certificate is replaced before its key: a check between the two finds a mismatch, and keeps the current pair.
    let renewed = server.authority.certify("renewed");
    let replace = |from: &Path, name| {
        std::fs::copy(from, server.authority.dir.path().join(name)).expect("a file in place of another");
    };
    replace(&renewed.certificate_file, "server.crt");
    until(|| server.server.log().contains("the settings of TLS stay as they were"), "the server checks the files");
    assert_eq!(shown(&server), before);
    replace(&renewed.key_file, "server.key");
    until(|| shown(&server) == renewed.certificate, "the server loads the new key as well");
    assert_eq!(old.command(&["PING"]), Value::status("PONG"), "connected clients stay connected");
}

#[test]
fn protocols_and_ciphers_follow_the_configuration() {
    let mut server = TlsServer::start(&[]);
    let agreed = |server: &TlsServer, versions: &[&'static rustls::SupportedProtocolVersion]| {
        let mut client = server.client_as(&server.authority.client_with(None, versions));
        client.send(b"PING\r\n");
        client.try_reply(Duration::from_secs(60)).ok()?;
        let suite = client.tls().conn.negotiated_cipher_suite()?.suite().as_str()?;
        Some((client.tls().conn.protocol_version()?, suite))
    };
    let (old, new) = (&[&rustls::version::TLS12][..], &[&rustls::version::TLS13][..]);
    assert_eq!(agreed(&server, rustls::ALL_VERSIONS).map(|(version, _)| version), Some(ProtocolVersion::TLSv1_3));
    server.set(&["tls-protocols", "TLSv1.2"]);
    assert_eq!(agreed(&server, new), None);
    assert_eq!(agreed(&server, rustls::ALL_VERSIONS).map(|(version, _)| version), Some(ProtocolVersion::TLSv1_2));
    server.set(&["tls-ciphers", "ECDHE-ECDSA-AES128-GCM-SHA256:ECDHE-ECDSA-CHACHA20-POLY1305"]);
    // The preference of rustls, as a client, among these two.
    let suite = |suite| Some((ProtocolVersion::TLSv1_2, suite));
    let (aes, chacha) = ("TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256", "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256");
    assert_eq!(agreed(&server, old), suite(aes));
    server.set(&["tls-ciphers", "ECDHE-ECDSA-CHACHA20-POLY1305:ECDHE-ECDSA-AES128-GCM-SHA256"]);
    assert_eq!(agreed(&server, old), suite(aes));
    server.set(&["tls-prefer-server-ciphers", "yes"]);
    assert_eq!(agreed(&server, old), suite(chacha));
    server.set(&["tls-protocols", "TLSv1.3", "tls-ciphersuites", "TLS_CHACHA20_POLY1305_SHA256"]);
    assert_eq!(agreed(&server, old), None);
    assert_eq!(agreed(&server, new), Some((ProtocolVersion::TLSv1_3, "TLS13_CHACHA20_POLY1305_SHA256")));
    assert_eq!(server.try_set(&["tls-protocols", "TLSv1.1"]), refused("tls-protocols"));
}

#[test]
fn sessions_are_resumed_if_caching_is_on() {
    let mut server = TlsServer::start(&[]);
    for version in [&rustls::version::TLS12, &rustls::version::TLS13] {
        let handshakes = |server: &TlsServer| {
            let config = server.authority.client_with(None, &[version]);
            [0, 1].map(|_| {
                let mut client = server.client_as(&config);
                assert_eq!(client.command(&["PING"]), Value::status("PONG"));
                client.tls().conn.handshake_kind()
            })
        };
        server.set(&["tls-session-caching", "yes"]);
        assert_eq!(handshakes(&server), [Some(HandshakeKind::Full), Some(HandshakeKind::Resumed)]);
        server.set(&["tls-session-caching", "no"]);
        assert_eq!(handshakes(&server), [Some(HandshakeKind::Full); 2]);
    }
}

#[test]
fn a_handshake_can_arrive_in_pieces() {
    let server = TlsServer::start(&[]);
    let mut tls = session(&server.authority.client(None));
    let mut socket = TcpStream::connect(("127.0.0.1", server.port)).expect("the server accepts");
    socket.set_nodelay(true).expect("an option");
    while tls.is_handshaking() {
        let mut flight = Vec::new();
        while tls.wants_write() {
            tls.write_tls(&mut flight).expect("memory");
        }
        for byte in flight {
            socket.write_all(&[byte]).expect("the server listens");
        }
        if tls.wants_read() {
            tls.read_tls(&mut socket).expect("the server answers");
            tls.process_new_packets().expect("TLS");
        }
    }
    let mut stream = rustls::StreamOwned::new(tls, socket);
    stream.write_all(b"PING\r\n").expect("the server listens");
    let mut answer = [0; 7];
    stream.read_exact(&mut answer).expect("an answer");
    assert_eq!(&answer, b"+PONG\r\n");
}

#[test]
fn connections_without_tls_are_closed() {
    let server = TlsServer::start(&["--maxclients", "20"]);
    for words in [&b"PING\r\n"[..], b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\xff\xff", &[0; 10_000]] {
        for _ in 0..30 {
            let mut socket = TcpStream::connect(("127.0.0.1", server.port)).expect("the server accepts");
            socket.write_all(words).expect("a fresh socket takes it");
            let mut answer = Vec::new();
            // Unread bytes reset the connection.
            let _ = socket.read_to_end(&mut answer);
            // An alert only where the client would understand one.
            let may_read = if words[0] == 0x16 { &[0x15][..] } else { &[] };
            assert!(answer.iter().take(1).all(|first| may_read.contains(first)), "{}", answer.escape_ascii());
        }
    }
    assert_eq!(server.client().command(&["PING"]), Value::status("PONG"));
}

#[test]
fn unfinished_handshakes_are_bounded() {
    const MOST: usize = 1_000;
    let limit = libc::rlimit { rlim_cur: 4_096, rlim_max: 4_096 };
    // SAFETY: the call reads the struct that it is given. If it fails, the test fails for lack of descriptors.
    let _ = unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &limit) };
    let server = TlsServer::start(&[]);
    let mut served = server.client();
    assert_eq!(served.command(&["PING"]), Value::status("PONG"));
    let connect = || TcpStream::connect(("127.0.0.1", server.port)).expect("the server accepts");
    let mut silent: Vec<TcpStream> = (0..MOST + 3).map(|_| connect()).collect();
    for (at, socket) in silent.iter_mut().enumerate().take(3) {
        assert!(is_closed(socket, Duration::from_secs(60)), "the {at}th");
    }
    assert!(!is_closed(&mut silent[3], Duration::from_millis(1)));
    // Clients that have finished the handshake neither count nor are closed.
    assert_eq!(served.command(&["PING"]), Value::status("PONG"));
    assert_eq!(server.client().command(&["PING"]), Value::status("PONG"));
}

fn is_closed(socket: &mut TcpStream, patience: Duration) -> bool {
    socket.set_read_timeout(Some(patience)).expect("a timeout");
    match socket.read(&mut [0; 64]) {
        Ok(0) => true,
        // A last alert.
        Ok(_) => is_closed(socket, patience),
        Err(error) => error.kind() == ErrorKind::ConnectionReset,
    }
}

#[test]
fn refusals_say_nothing_in_plain_text() {
    let server = TlsServer::start(&["--maxclients", "2"]);
    let mut second = server.client();
    assert_eq!(second.command(&["PING"]), Value::status("PONG"));
    let mut third = TcpStream::connect(("127.0.0.1", server.port)).expect("the kernel accepts");
    let mut answer = Vec::new();
    third.read_to_end(&mut answer).expect("it is closed");
    assert_eq!(answer, b"");
}

#[test]
fn busy_scripts_answer_over_tls() {
    let server = TlsServer::start(&["--busy-reply-threshold", "20"]);
    let mut before = server.client();
    assert_eq!(before.command(&["PING"]), Value::status("PONG"));
    let mut runner = server.client();
    runner.send_command(&["EVAL", "while true do end", "0"]);
    let mut other = server.server.raw();
    until(|| is_busy(&other.command(&["PING"])), "the script is busy");
    // Two records: one read takes more than the poller has room for, so the rest has already left the socket.
    before.send(&b"PING\r\n".repeat(5_000));
    for _ in 0..5_000 {
        assert!(is_busy(&before.reply().value));
    }
    let mut newcomer = server.client();
    newcomer.send(&b"PING\r\n".repeat(100));
    assert!((0..100).all(|_| is_busy(&newcomer.reply().value)));
    assert_eq!(newcomer.command(&["SCRIPT", "KILL"]), Value::status("OK"));
    assert!(matches!(runner.reply().value, Value::Error(_)));
    for client in [&mut before, &mut newcomer, &mut runner] {
        assert_eq!(client.command(&["PING"]), Value::status("PONG"));
    }
}

#[test]
fn the_debugger_works_over_tls() {
    let server = TlsServer::start(&[]);
    let mut client = server.client();
    assert_eq!(client.command(&["SCRIPT", "DEBUG", "YES"]), Value::status("OK"));
    let screen = |value: Value| match value {
        Value::Array(lines) => {
            lines.iter().map(|line| String::from_utf8_lossy(line.bytes().unwrap_or_default()).into_owned()).collect()
        }
        other => vec![format!("{other:?}")],
    };
    let first: Vec<String> = screen(client.command(&["EVAL", "local a = 1\nreturn a + 1", "0"]));
    assert_eq!(first, ["* Stopped at 1, stop reason = step over", "-> 1   local a = 1"]);
    // Both in one record.
    client.send(&[encode(&["step"]), encode(&["print", "a"])].concat());
    let next: Vec<String> = screen(client.reply().value);
    assert_eq!(next, ["* Stopped at 2, stop reason = step over", "-> 2   return a + 1"]);
    assert_eq!(screen(client.reply().value), ["<value> 1"]);
    let last: Vec<String> = screen(client.command(&["continue"]));
    assert_eq!(last.last().map(String::as_str), Some("<endsession>"), "{last:?}");
    assert_eq!(client.read_to_end(), b":2\r\n");
}

#[test]
fn slow_readers_get_large_replies_whole() {
    const MIB: usize = 1 << 20;
    let mut server = TlsServer::start(&[]);
    let value: Vec<u8> = (0..64 * MIB).map(|at| (at >> 3) as u8).collect();
    let mut client = server.client();
    assert_eq!(client.command(&[b"SET".as_slice(), b"big", &value]), Value::status("OK"));
    let id = id(&mut client);
    client.send(&[encode(&["GET", "big"]), encode(&["PING"])].concat());
    // Bytes that the socket has not accepted are held for the client, and counted as unread.
    until(|| server.field(id, "omem").is_some_and(|held| held > 50 << 20), "the reply waits to be read");
    assert_eq!(server.client().command(&["PING"]), Value::status("PONG"));
    assert!(client.reply().value == Value::Bulk(value), "the value arrives unchanged");
    assert_eq!(client.reply().value, Value::status("PONG"));
    until(|| server.field(id, "omem") == Some(0), "no output is held any more");
}

#[test]
fn a_client_that_does_not_read_is_closed() {
    let mut server = TlsServer::start(&["--client-output-buffer-limit", "normal 1mb 0 0"]);
    server.plain.command(&[b"SET".as_slice(), b"big", &vec![b'x'; 20 << 20]]);
    let mut client = server.client();
    let id = id(&mut client);
    client.send_command(&["MGET", "big", "big"]);
    until(|| server.field(id, "id").is_none(), "the client is closed");
}

#[test]
fn waiters_subscribers_and_half_closed_clients_are_served() {
    let mut server = TlsServer::start(&[]);
    let mut waiter = server.client();
    waiter.send_command(&["BLPOP", "list", "0"]);
    let mut listener = server.client();
    listener.command(&["SUBSCRIBE", "news"]);
    until(
        || {
            String::from_utf8_lossy(server.plain.command(&["INFO", "clients"]).bytes().unwrap_or_default())
                .contains("blocked_clients:1")
        },
        "the client waits",
    );
    server.plain.command(&["RPUSH", "list", "element"]);
    server.plain.command(&["PUBLISH", "news", "today"]);
    assert_eq!(waiter.reply().value, Value::Array(vec![Value::bulk("list"), Value::bulk("element")]));
    let message = ["message", "news", "today"].map(Value::bulk);
    assert_eq!(listener.reply().value, Value::Array(message.to_vec()));
    // A client that closes its sending side still gets the replies to its requests.
    let mut last = server.client();
    let id = id(&mut last);
    last.send(b"PING\r\n");
    last.tls().conn.send_close_notify();
    last.tls().flush().expect("the server listens");
    assert_eq!(last.read_to_end(), b"+PONG\r\n");
    until(|| server.field(id, "id").is_none(), "the client is forgotten");
    // A waiting client that hangs up, announced or not, waits no more.
    for says_so in [true, false] {
        let mut gone = server.client();
        let id = self::id(&mut gone);
        gone.send_command(&["BLPOP", "list", "0"]);
        until(|| server.field(id, "id").is_some(), "it is there");
        if says_so {
            gone.tls().conn.send_close_notify();
            gone.tls().flush().expect("the server listens");
        } else {
            drop(gone);
        }
        until(|| server.field(id, "id").is_none(), "the client is forgotten");
    }
}

#[test]
fn a_start_without_valid_files_fails_and_says_why() {
    let authority = Authority::new();
    let (one, other) = (authority.certify("one"), authority.certify("other"));
    let [one_file, one_key, other_key] = [&one.certificate_file, &one.key_file, &other.key_file].map(|path| text(path));
    let fails = |flags: &[&str], why: &str| {
        let dir = tempfile::tempdir().expect("a temporary folder");
        let program = launch_command(Program::Tidegate);
        let done = Command::new(&program[0])
            .args(&program[1..])
            .args(["--port", "0", "--tls-port", &free_port().to_string(), "--appendonly", "no", "--dir"])
            .arg(dir.path())
            .args(flags)
            .output()
            .expect("it runs");
        let told = String::from_utf8_lossy(&done.stderr).into_owned();
        assert!(!done.status.success() && told.contains(why), "{flags:?}: {told}");
    };
    let [cert, key] = ["--tls-cert-file", "--tls-key-file"];
    fails(&[], "cannot serve TLS: tls-port needs tls-c");
    fails(&[cert, &one_file], "tls-port needs tls-");
    fails(&[cert, &one_file, key, &one_key], "tls-port needs tls-ca-cert-file or tls-ca-cert-dir");
    fails(&[cert, &one_file, key, &other_key, "--tls-auth-clients", "no"], "it is not the key of the certificate");
    fails(&[cert, &one_key, key, &one_key, "--tls-auth-clients", "no"], "there is no certificate in it");
    fails(&[cert, &one_file, key, "nowhere", "--tls-auth-clients", "no"], "No such file");
    fails(
        &[cert, &one_file, key, &one_key, "--tls-auth-clients", "no", "--tls-protocols", "TLSv1"],
        "\"TLSv1\" is not",
    );
}

#[test]
fn the_port_of_sentinel_can_use_tls() {
    let (authority, dir, port) = (Authority::new(), tempfile::tempdir().expect("a temporary folder"), free_port());
    let own = authority.certify("server");
    let nodes = format!("1=127.0.0.1:{}@{} 2=127.0.0.1:1@2", free_port(), free_port());
    let program = launch_command(Program::Tidegate);
    let mut node = Command::new(&program[0])
        .args(&program[1..])
        .args(["--port", "0", "--unixsocket", "socket", "--bind", "127.0.0.1", "--node-id", "1", "--nodes", &nodes])
        .args(["--sentinel-port", &port.to_string(), "--sentinel-tls", "yes", "--tls-auth-clients", "no"])
        .args(["--tls-cert-file", &text(&own.certificate_file), "--tls-key-file", &text(&own.key_file), "--dir"])
        .arg(dir.path())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("it starts");
    until(|| TcpStream::connect(("127.0.0.1", port)).is_ok(), "it listens");
    let mut client = Raw::connect(port).with_tls(session(&authority.client(None)));
    client.send(&encode(&["PING"]));
    let reply = client.try_reply(Duration::from_secs(60)).map(|reply| reply.value);
    // It has no other end.
    let _ = node.kill();
    let _ = node.wait();
    assert_eq!(reply, Ok(Value::status("PONG")));
}

#[test]
fn a_certificate_can_replace_a_password() {
    let mut server = TlsServer::start(&["--requirepass", "secret", "--tls-auth-clients", "optional"]);
    assert_eq!(server.plain.command(&["AUTH", "secret"]), Value::status("OK"));
    let identities = ["default", "nobody"].map(|name| server.authority.certify(name));
    let [user, nobody] = identities.each_ref().map(|identity| server.authority.client(Some(identity)));
    let stranger = server.authority.client(None);
    let (served, refused) = (Value::status("PONG"), Value::error("NOAUTH Authentication required."));
    let asked = |server: &TlsServer| {
        [&user, &nobody, &stranger].map(|config| {
            let mut client = server.client_as(config);
            // Both in one record, after the end of the handshake.
            client.send(b"PING\r\nPING\r\n");
            let (first, second) = (client.reply().value, client.reply().value);
            assert_eq!(first, second);
            first
        })
    };
    assert_eq!(asked(&server), [refused.clone(), refused.clone(), refused.clone()]);
    server.set(&["tls-auth-clients-user", "CN"]);
    assert_eq!(asked(&server), [served, refused.clone(), refused.clone()]);
    // Also with a resumed session, and while a script is busy.
    let mut runner = server.client_as(&user);
    assert_eq!(runner.tls().conn.handshake_kind(), None);
    server.set(&["busy-reply-threshold", "20"]);
    runner.send_command(&["EVAL", "while true do end", "0"]);
    until(|| is_busy(&server.plain.command(&["PING"])), "the script is busy");
    let mut resumed = server.client_as(&user);
    assert!(is_busy(&resumed.command(&["PING"])));
    assert_eq!(resumed.tls().conn.handshake_kind(), Some(HandshakeKind::Resumed));
    assert_eq!(server.client_as(&nobody).command(&["PING"]), refused);
    assert_eq!(resumed.command(&["SCRIPT", "KILL"]), Value::status("OK"));
    assert!(matches!(runner.reply().value, Value::Error(_)));
    server.set(&["tls-auth-clients-user", "URI"]);
    assert_eq!(asked(&server), [refused.clone(), refused.clone(), refused]);
}

#[test]
fn certificates_can_name_users() {
    let mut server = TlsServer::start(&["--tls-auth-clients", "optional", "--tls-auth-clients-user", "CN"]);
    let rules = ["ACL", "SETUSER", "alice", "on", "+@read", "+acl|whoami", "~*"];
    assert_eq!(server.plain.command(&rules), Value::status("OK"));
    let clients = ["alice", "bob"].map(|name| server.authority.client(Some(&server.authority.certify(name))));
    let [mut alice, mut bob] = clients.each_ref().map(|config| server.client_as(config));
    assert_eq!(alice.command(&["ACL", "WHOAMI"]), Value::bulk("alice"));
    let denied = Value::error("NOPERM User alice has no permissions to run the 'set' command");
    assert_eq!(alice.command(&["SET", "key", "value"]), denied);
    assert_eq!(bob.command(&["ACL", "WHOAMI"]), Value::bulk("default"));
    let Value::Array(log) = server.plain.command(&["ACL", "LOG"]) else { panic!("ACL LOG answers a list") };
    let seen = format!("{log:?}");
    assert!(seen.contains(r#""reason", "tls-cert""#) && seen.contains(r#""username", "bob""#), "{seen}");
    let info = server.plain.command(&["INFO", "stats"]);
    let info = String::from_utf8_lossy(info.bytes().expect("text")).into_owned();
    assert!(info.contains("acl_access_denied_tls_cert:1\r\n"), "{info}");
    let told = r#"user="bob" reason="the certificate names no user that is on""#;
    until(|| server.server.log().contains(told), "the audit tells of it");
    // A disabled user can't log in; a client that is logged in stays logged in.
    assert_eq!(server.plain.command(&["ACL", "SETUSER", "alice", "off"]), Value::status("OK"));
    assert_eq!(server.client_as(&clients[0]).command(&["ACL", "WHOAMI"]), Value::bulk("default"));
    assert_eq!(alice.command(&["ACL", "WHOAMI"]), Value::bulk("alice"));
}

#[test]
fn protected_mode_explains_itself_after_the_handshake() {
    if OTHER_ADDRESS.is_missing() {
        return;
    }
    let address = other_address().expect("it is there");
    let mut server = TlsServer::start(&[]);
    server.set(&["bind", "*"]);
    let stranger = TcpStream::connect((address, server.port)).expect("it listens everywhere");
    let mut stranger = Raw::over(stranger).with_tls(session(&server.authority.client(None)));
    stranger.send(b"PING\r\n");
    let told = stranger.read_to_end();
    assert!(told.starts_with(b"-DENIED Tidegate runs in protected mode"), "{}", told.escape_ascii());
    server.set(&["protected-mode", "no"]);
    let stranger = TcpStream::connect((address, server.port)).expect("it listens everywhere");
    let mut stranger = Raw::over(stranger).with_tls(session(&server.authority.client(None)));
    assert_eq!(stranger.command(&["PING"]), Value::status("PONG"));
}

#[test]
fn encrypted_keys_need_their_password() {
    if OPENSSL.is_missing() {
        return;
    }
    let mut server = TlsServer::start(&[]);
    let dir = tempfile::tempdir().expect("a temporary folder");
    let own = server.authority.certify("guarded");
    // With PBKDF2 and AES-256-CBC.
    let guarded = dir.path().join("guarded.key");
    let done = Command::new("openssl")
        .args(["pkcs8", "-topk8", "-v2", "aes-256-cbc", "-passout", "pass:1234", "-in"])
        .arg(&own.key_file)
        .arg("-out")
        .arg(&guarded)
        .output()
        .expect("openssl runs");
    assert!(done.status.success(), "{done:?}");
    let [certificate, key] = [&own.certificate_file, &guarded].map(|path| text(path));
    let files = ["tls-cert-file", certificate.as_str(), "tls-key-file", key.as_str()];
    assert_eq!(server.try_set(&files), refused("tls-cert-file"));
    assert_eq!(server.try_set(&[&files[..], &["tls-key-file-pass", "4321"]].concat()), refused("tls-cert-file"));
    server.set(&[&files[..], &["tls-key-file-pass", "1234"]].concat());
    let mut client = server.client();
    assert_eq!(client.command(&["PING"]), Value::status("PONG"));
    let shown = client.tls().conn.peer_certificates().expect("the server shows one")[0].clone();
    assert_eq!(shown, own.certificate);
    // A key without a password ignores it.
    let other = server.authority.certify("other");
    server.set(&["tls-cert-file", &text(&other.certificate_file), "tls-key-file", &text(&other.key_file)]);
}

#[test]
fn the_tls_port_can_change() {
    let mut server = TlsServer::start(&[]);
    let mut old = server.client();
    assert_eq!(old.command(&["PING"]), Value::status("PONG"));
    let (first, second) = (server.port, free_port());
    server.set(&["tls-port", &second.to_string()]);
    assert!(TcpStream::connect(("127.0.0.1", first)).is_err(), "no server listens there");
    server.port = second;
    assert_eq!(server.client().command(&["PING"]), Value::status("PONG"));
    // A port changes from plain text to TLS and back.
    let plain = server.server.port();
    let mut over_tls = server.client();
    let ok = Value::status("OK");
    assert_eq!(over_tls.command(&["CONFIG", "SET", "port", "0", "tls-port", &plain.to_string()]), ok);
    assert!(TcpStream::connect(("127.0.0.1", second)).is_err(), "no server listens there");
    server.port = plain;
    assert_eq!(server.client().command(&["PING"]), Value::status("PONG"));
    let mut swap = server.client();
    assert_eq!(swap.command(&["CONFIG", "SET", "port", &plain.to_string(), "tls-port", "0"]), ok);
    assert_eq!(Raw::connect(plain).command(&["PING"]), Value::status("PONG"));
    for client in [&mut old, &mut over_tls, &mut swap] {
        assert_eq!(client.command(&["PING"]), Value::status("PONG"));
    }
    // Where TLS is off, its settings are not checked until it is on.
    server.set(&["tls-cert-file", "/nonexistent"]);
    assert_eq!(server.try_set(&["tls-port", &second.to_string()]), refused("tls-port"));
}

#[test]
fn redis_cli_connects_over_tls() {
    if REDIS_CLI_TLS.is_missing() {
        return;
    }
    let mut server = TlsServer::start(&[]);
    let own = server.authority.certify("client");
    let port = server.port.to_string();
    let ca = text(&server.authority.file());
    let [certificate, key] = [&own.certificate_file, &own.key_file].map(|path| text(path));
    let ask = |more: &[&str], words: &[&str]| {
        let done = Command::new("redis-cli")
            .args(["-p", &port, "--tls", "--cacert", &ca, "--sni", "localhost"])
            .args(more)
            .args(words)
            .output()
            .expect("redis-cli runs");
        String::from_utf8_lossy(&done.stdout).trim_end().to_owned()
    };
    assert_eq!(ask(&[], &["SET", "key", &"v".repeat(100_000)]), "OK");
    assert_eq!(ask(&[], &["GET", "key"]).len(), 100_000);
    server.set(&["tls-auth-clients", "yes"]);
    assert_ne!(ask(&[], &["PING"]), "PONG");
    assert_eq!(ask(&["--cert", &certificate, "--key", &key], &["PING"]), "PONG");
}

/// Runs one of the program's own clients. Returns whether it succeeded, and its output.
fn tidegate(args: &[&str]) -> (bool, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_tidegate")).args(args).env("SSL_CERT_FILE", "/nonexistent").output();
    let output = output.expect("the program of this build");
    (output.status.success(), String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned())
}

#[test]
fn the_programs_own_clients_speak_tls() {
    let mut server = TlsServer::start(&[]);
    let (port, ca) = (server.port.to_string(), text(&server.authority.file()));
    let ping = |more: &[&str]| tidegate(&[&["ping", "-p", &port], more].concat());
    let pong = (true, "PONG\n".to_owned());
    let trust = ["--tls", "--cacert", ca.as_str()];
    assert_eq!(ping(&[&trust[..], &["--sni", "localhost"]].concat()), pong);
    assert_eq!(ping(&["--tls", "--insecure"]), pong);
    for (more, why) in [
        (&trust[..], "is not for 127.0.0.1, but for localhost"),
        (&[&trust[..], &["--sni", "elsewhere"]].concat(), "is not for elsewhere, but for localhost"),
        (&["--tls"], "/nonexistent"),
        (&["--tls", "--cacert", "/nonexistent/ca.pem"], "/nonexistent/ca.pem"),
        (&["--tls", "--insecure", "--cert", "x"], "--key"),
        (&["--sni", "localhost"], "add --tls"),
        (&[], "no answer"),
    ] {
        let (is_well, said) = ping(more);
        assert!(!is_well && said.contains(why), "{more:?}: {said}");
    }
    let stranger = Authority::new();
    let (is_well, said) = ping(&["--tls", "--cacert", &text(&stranger.file()), "--sni", "localhost"]);
    assert!(!is_well && said.contains("not signed by the trusted authority of this name"), "{said}");
    // A client that must show a certificate does.
    server.set(&["tls-auth-clients", "yes"]);
    let own = server.authority.certify("client");
    let (cert, key) = (text(&own.certificate_file), text(&own.key_file));
    let url = format!("rediss://127.0.0.1:{port}");
    let shown = ["--cacert", &ca, "--sni", "localhost", "--cert", &cert, "--key", &key];
    assert_eq!(tidegate(&[&["ping", "--url", &url], &shown[..]].concat()), pong);
    assert!(!tidegate(&[&["ping", "--url", &url], &shown[..4]].concat()).0, "it shows none");
    // The authority's folder also holds other files than certificates.
    let folder = text(server.authority.dir.path());
    let shown = ["--cacertdir", &folder, "--sni", "localhost", "--cert", &cert, "--key", &key];
    assert_eq!(tidegate(&[&["ping", "--url", &url], &shown[..]].concat()), pong);
    // Data is exported and imported over TLS, more than fits one record.
    let large = "x".repeat(300_000);
    assert_eq!(server.plain.command(&["SET", "large", &large]), Value::status("OK"));
    let dir = tempfile::tempdir().expect("a temporary folder");
    let file = text(&dir.path().join("dump.rdb"));
    let (is_well, said) = tidegate(&[&["export", &file, "--from", &url], &shown[..]].concat());
    assert!(is_well, "{said}");
    let other = Server::start(Program::Tidegate, &[]);
    let into = format!("redis://127.0.0.1:{}", other.port());
    let (is_well, said) = tidegate(&[&["import", &url, "--into", &into], &shown[..]].concat());
    assert!(is_well, "{said}");
    assert_eq!(other.raw().command(&["GET", "large"]), Value::bulk(&large));
    assert_eq!(server.plain.command(&["FLUSHALL"]), Value::status("OK"));
    let (is_well, said) = tidegate(&[&["import", &file, "--into", &url], &shown[..]].concat());
    assert!(is_well, "{said}");
    assert_eq!(server.plain.command(&["GET", "large"]), Value::bulk(&large));
}

/// The recipes of docs/tls.md run exactly as printed, except for the port.
#[test]
fn the_recipes_for_certificates_work() {
    if OPENSSL.is_missing() {
        return;
    }
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/tls.md");
    let page = std::fs::read_to_string(page).expect("a page is text");
    let folder = tempfile::tempdir().expect("a temporary folder");
    let bin = Path::new(env!("CARGO_BIN_EXE_tidegate")).parent().expect("it lies in a folder");
    let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap_or_default());
    let shell = |line: &str| {
        let mut command = Command::new("sh");
        command.args(["-c", line]).current_dir(folder.path()).env("PATH", &path).stdin(std::process::Stdio::null());
        command
    };
    let mut pongs = 0;
    for block in page.split("```sh\n").skip(1).filter_map(|rest| rest.split("```").next()) {
        let port = free_port();
        let mut server = None;
        for line in block.lines().map(|line| line.replace("6380", &port.to_string())) {
            if line.starts_with("tidegate --") {
                let log = std::fs::File::create(folder.path().join("log")).expect("a file");
                server = Some(Ended(shell(&format!("exec {line}")).stdout(log).spawn().expect("a shell")));
                until(|| TcpStream::connect(("127.0.0.1", port)).is_ok(), "the server listens");
            } else if !line.starts_with("redis-cli") || !REDIS_CLI_TLS.is_missing() {
                let done = shell(&line).output().expect("a shell");
                let said = String::from_utf8_lossy(&[done.stdout, done.stderr].concat()).into_owned();
                assert!(done.status.success(), "{line}: {said}");
                let asks = line.contains("ping");
                assert!(!asks || said == "PONG\n", "{line}: {said}");
                pongs += u32::from(asks);
            }
        }
        assert!(server.is_some(), "each recipe has a server");
    }
    assert!(pongs >= 3, "{pongs}");
}

/// A process that ends with its owner.
struct Ended(std::process::Child);

impl Drop for Ended {
    fn drop(&mut self) {
        // Both fail only when it has ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A self-signed certificate, as an authority has, for these names and years.
fn own_authority(name: &str, alternatives: &[&str], years: (i32, i32)) -> (tempfile::TempDir, String, String) {
    let names: Vec<String> = alternatives.iter().map(|name| (*name).to_owned()).collect();
    let mut params = CertificateParams::new(names).expect("names");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.distinguished_name.push(DnType::CommonName, name);
    params.not_before = rcgen::date_time_ymd(years.0, 1, 1);
    params.not_after = rcgen::date_time_ymd(years.1, 1, 1);
    let key = KeyPair::generate().expect("a key");
    let certificate = params.self_signed(&key).expect("a certificate");
    let dir = tempfile::tempdir().expect("a temporary folder");
    let [certificate_file, key_file] = ["crt", "key"].map(|end| dir.path().join(end));
    std::fs::write(&certificate_file, certificate.pem()).expect("a file");
    std::fs::write(&key_file, key.serialize_pem()).expect("a file");
    (dir, text(&certificate_file), text(&key_file))
}

/// A self-signed certificate is trusted if it is named itself, for its names and its period, and every failure is
/// explained in words.
#[test]
fn self_signed_certificates_are_trusted_if_named() {
    let mut server = TlsServer::start(&[]);
    let port = server.port.to_string();
    let ping = |more: &[&str]| tidegate(&[&["ping", "-p", &port, "--tls"], more].concat());
    let serve = |server: &mut TlsServer, (_, certificate, key): &(tempfile::TempDir, String, String)| {
        server.set(&["tls-cert-file", certificate, "tls-key-file", key]);
    };
    let own = own_authority("server", &["localhost"], (2020, 2120));
    serve(&mut server, &own);
    assert_eq!(ping(&["--cacert", &own.1, "--sni", "localhost"]), (true, "PONG\n".to_owned()));
    let fails = |more: &[&str], why: &str| {
        let (is_well, said) = ping(more);
        assert!(!is_well && said.contains(why), "{more:?}: {said}");
        let is_debug = ["CaUsedAsEndEntity", "NotValid", "Unknown", "(", "{"].iter().any(|word| said.contains(word));
        assert!(!is_debug || said.contains("(CA:TRUE)") || said.contains("(--cert"), "{said}");
    };
    fails(&["--cacert", &own.1, "--sni", "elsewhere"], "is not for elsewhere, but for localhost");
    let nameless = own_authority("server", &[], (2020, 2120));
    serve(&mut server, &nameless);
    fails(&["--cacert", &nameless.1, "--sni", "localhost"], "has no name");
    let other = own_authority("server", &["localhost"], (2020, 2120));
    serve(&mut server, &other);
    // A certificate with the same name and another key.
    fails(&["--cacert", &own.1, "--sni", "localhost"], "its certificate");
    let past = own_authority("server", &["localhost"], (2020, 2021));
    serve(&mut server, &past);
    fails(&["--cacert", &past.1, "--sni", "localhost"], "has expired, at 2021-01-01T00:00:00Z");
    let future = own_authority("server", &["localhost"], (2120, 2121));
    serve(&mut server, &future);
    fails(&["--cacert", &future.1, "--sni", "localhost"], "is not valid before 2120-01-01T00:00:00Z");
    serve(&mut server, &own);
    let stranger = Authority::new();
    fails(&["--cacert", &text(&stranger.file()), "--sni", "localhost"], "its certificate");
    let plain = server.server.port().to_string();
    let (is_well, said) = tidegate(&["ping", "-p", &plain, "--tls", "--cacert", &own.1, "--sni", "localhost"]);
    assert!(!is_well && said.contains("is this its port for TLS?"), "{said}");

    // Clients, too.
    let trust = ["--cacert", own.1.as_str(), "--sni", "localhost"];
    let client = own_authority("client", &[], (2020, 2120));
    server.set(&["tls-ca-cert-file", &client.1, "tls-auth-clients", "yes"]);
    fails(&trust, "it wants a certificate");
    let shown = |identity: &(tempfile::TempDir, String, String)| {
        [&trust[..], &["--cert", &identity.1, "--key", &identity.2]].concat().join(" ")
    };
    let with = |words: &str| ping(&words.split(' ').collect::<Vec<_>>());
    assert_eq!(with(&shown(&client)), (true, "PONG\n".to_owned()));
    for other in [own_authority("client", &[], (2020, 2120)), own_authority("stranger", &[], (2020, 2120))] {
        let (is_well, said) = with(&shown(&other));
        assert!(!is_well && said.contains("it does not take the certificate"), "{said}");
    }
    let past = own_authority("client", &[], (2020, 2021));
    server.set(&["tls-ca-cert-file", &past.1]);
    let (is_well, said) = with(&shown(&past));
    assert!(!is_well && said.contains("it does not take the certificate"), "{said}");
}
