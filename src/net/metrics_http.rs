//! Metrics over HTTP for Prometheus, and liveness and readiness checks for service managers.
//!
//! A dedicated thread accepts connections and gives each a short-lived thread, past tokio: liveness checks must succeed
//! while a script holds the engine. That thread answers `/health` itself, `/ready` and `/leader` from the engine's last
//! report, and `/metrics` by asking the engine through [`Questions`], for which it has
//! [some time](METRICS_ENGINE_PATIENCE), and [the system](process_metrics). Metrics are compressed for clients that
//! accept gzip. The number of connections, the bytes of a request and its time are bounded; each connection carries one
//! request.

use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use flate2::Compression;
use flate2::write::GzEncoder;
use tokio::sync::Notify;

use super::listener::resolve;
use super::process_metrics;
use super::serve::Shared;
use crate::engine::Engine;
use crate::net::limits::{
    METRICS_CONNECTIONS_MAX, METRICS_ENGINE_PATIENCE, METRICS_PATIENCE, METRICS_REQUEST_MAX_BYTES,
};
use crate::session::registry::{Readiness, Registry};

/// What the engine tells a scrape.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Answer {
    metrics: String,
    /// The folder of the data.
    dir: PathBuf,
}

/// Threads that wait for the engine's metrics.
#[derive(Default)]
pub(crate) struct Questions {
    waiting: Mutex<Vec<(u64, SyncSender<Answer>)>>,
    /// Distinguishes the waiting threads.
    last_id: AtomicU64,
    moved: Notify,
}

impl Questions {
    /// The engine's metrics; `None` when it is too busy to answer within `patience`.
    fn ask(&self, patience: Duration) -> Option<Answer> {
        // A capacity of one, so that the engine never blocks on a thread that has stopped listening.
        let (sender, receiver) = sync_channel(1);
        let id = self.last_id.fetch_add(1, Ordering::Relaxed);
        self.waiting().push((id, sender));
        self.moved.notify_one();
        let answer = receiver.recv_timeout(patience).ok();
        if answer.is_none() {
            // A script may hold the engine for hours, during which other threads ask.
            self.waiting().retain(|(other, _)| *other != id);
        }
        answer
    }

    fn waiting(&self) -> MutexGuard<'_, Vec<(u64, SyncSender<Answer>)>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Serves requests without end, as one of the tasks of the engine's thread. `render` makes the text.
    pub(crate) async fn answer(self: Arc<Questions>, shared: Rc<Shared>, render: fn(&mut Engine) -> String) {
        loop {
            self.moved.notified().await;
            let waiting = std::mem::take(&mut *self.waiting());
            if !waiting.is_empty() {
                let engine = &mut shared.engine.borrow_mut();
                let answer = Answer { metrics: render(engine), dir: engine.server.config.dir.clone() };
                // A thread that no longer listens has given up.
                waiting.iter().for_each(|(_, sender)| drop(sender.try_send(answer.clone())));
            }
        }
    }
}

/// Opens the sockets; an address that starts with `-` may fail. An error names the address that can't be listened on.
pub(crate) fn listen(addresses: &[String], port: u16) -> Result<Vec<TcpListener>, (String, io::Error)> {
    let mut listeners = Vec::new();
    for address in addresses {
        let host = address.strip_prefix('-').unwrap_or(address);
        match resolve(host, port).and_then(TcpListener::bind) {
            Ok(listener) => listeners.push(listener),
            Err(_) if address.starts_with('-') => {}
            Err(error) => return Err((format!("{host}:{port} (metrics)"), error)),
        }
    }
    Ok(listeners)
}

/// Serves each socket on a thread of its own, until the process ends.
pub(crate) fn start(
    listeners: Vec<TcpListener>,
    questions: &Arc<Questions>,
    registry: &Arc<Registry>,
) -> io::Result<()> {
    let crowd = Arc::<Crowd>::default();
    for listener in listeners {
        let site = Site { questions: Arc::clone(questions), registry: Arc::clone(registry), crowd: Arc::clone(&crowd) };
        std::thread::Builder::new().name("metrics".to_owned()).spawn(move || site.accept_all(&listener))?;
    }
    Ok(())
}

#[derive(Clone)]
struct Site {
    questions: Arc<Questions>,
    registry: Arc<Registry>,
    crowd: Arc<Crowd>,
}

/// Open connections: at most [`METRICS_CONNECTIONS_MAX`] without a request yet, and as many waiting for the engine.
#[derive(Default)]
struct Crowd {
    /// In order of arrival, oldest first.
    silent: Mutex<VecDeque<(u64, Arc<TcpStream>)>>,
    last_id: AtomicU64,
    answered: AtomicUsize,
}

impl Crowd {
    /// Admits a connection. If there are too many, closes the one silent for longest: if the newest were refused, a few
    /// connections that never send a request would keep all others out.
    fn enter(&self, stream: &Arc<TcpStream>) -> u64 {
        let id = self.last_id.fetch_add(1, Ordering::Relaxed);
        let mut silent = self.silent();
        silent.push_back((id, Arc::clone(stream)));
        if silent.len() > METRICS_CONNECTIONS_MAX
            && let Some((_, oldest)) = silent.pop_front()
        {
            // Its thread sees the end of the stream. If the peer has hung up, it has seen that already.
            let _ = oldest.shutdown(Shutdown::Both);
        }
        id
    }

    /// Removes a connection from the silent ones, whether by a request or by its end.
    fn has_spoken(&self, id: u64) {
        self.silent().retain(|(other, _)| *other != id);
    }

    fn silent(&self) -> MutexGuard<'_, VecDeque<(u64, Arc<TcpStream>)>> {
        self.silent.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A response: the rest of its status line, and its text.
type Response = (&'static str, String);

impl Site {
    fn accept_all(&self, listener: &TcpListener) {
        loop {
            let Ok((stream, _)) = listener.accept() else {
                // The process may be out of descriptors; a moment later some may be free.
                std::thread::sleep(Duration::from_millis(100));
                continue;
            };
            let stream = Arc::new(stream);
            let id = self.crowd.enter(&stream);
            let site = self.clone();
            // A broken connection is reported by its peer.
            let serve = move || drop(site.serve(id, &stream));
            if std::thread::Builder::new().name("metrics-client".to_owned()).spawn(serve).is_err() {
                self.crowd.has_spoken(id);
            }
        }
    }

    fn serve(&self, id: u64, stream: &TcpStream) -> io::Result<()> {
        let request = read_request(stream);
        self.crowd.has_spoken(id);
        let request = request?;
        let before = self.crowd.answered.fetch_add(1, Ordering::Relaxed);
        let (status, text) = match &request {
            Some(head) => self.respond(head, before < METRICS_CONNECTIONS_MAX),
            None => ("431 Request Header Fields Too Large", "the request is too long\n".to_owned()),
        };
        let compressed = request.as_deref().filter(|head| text.len() > PLAIN_MAX_BYTES && accepts_gzip(head));
        let (encoding, body) = match compressed.and_then(|_| gzip(&text).ok()) {
            Some(body) => ("Content-Encoding: gzip\r\n", body),
            None => ("", text.into_bytes()),
        };
        let (kind, length) = ("text/plain; version=0.0.4; charset=utf-8", body.len());
        let mut response = format!(
            "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\n{encoding}Vary: Accept-Encoding\r\n\
             Content-Length: {length}\r\nConnection: close\r\n\r\n"
        )
        .into_bytes();
        // HEAD gets the reply of GET without the text.
        if !request.is_some_and(|head| head.starts_with(b"HEAD ")) {
            response.extend(body);
        }
        let sent = write_response(stream, &response);
        self.crowd.answered.fetch_sub(1, Ordering::Relaxed);
        sent
    }

    /// The response to a request. `may_ask`: the engine may be asked, for which only a few may wait at a time.
    fn respond(&self, head: &[u8], may_ask: bool) -> Response {
        let text = |text: &str| text.to_owned();
        match request_path(head) {
            Err(status) => (status, format!("{status}\n")),
            Ok("/health") => ("200 OK", text("the server lives\n")),
            Ok("/ready") => match self.registry.readiness() {
                Readiness::Following => ("200 OK", text("ready: it follows the leader of its group\n")),
                readiness => told(readiness),
            },
            Ok("/leader") => told(self.registry.readiness()),
            Ok("/metrics") if !may_ask => ("503 Service Unavailable", text("too many ask at once\n")),
            Ok("/metrics") => match self.questions.ask(METRICS_ENGINE_PATIENCE) {
                Some(Answer { mut metrics, dir }) => {
                    process_metrics::write(&mut metrics, &dir);
                    ("200 OK", metrics)
                }
                None => ("503 Service Unavailable", text(BUSY)),
            },
            Ok(_) => ("404 Not Found", text("there are /metrics, /health, /ready and /leader\n")),
        }
    }
}

/// Tells whether a server takes changes.
fn told(readiness: Readiness) -> Response {
    let (status, text) = match readiness {
        Readiness::Ready => ("200 OK", "ready\n"),
        Readiness::Following => ("503 Service Unavailable", "another node leads the group\n"),
        Readiness::Loading => ("503 Service Unavailable", "the data is being loaded\n"),
        Readiness::Unlogged => ("503 Service Unavailable", "changes can't be saved\n"),
        Readiness::Busy => ("503 Service Unavailable", "a command or script holds the server\n"),
    };
    (status, text.to_owned())
}

/// Sends a whole response. A client that takes too long, however steadily, is cut off: it holds one of few places.
fn write_response(mut stream: &TcpStream, mut bytes: &[u8]) -> io::Result<()> {
    let deadline = Instant::now() + METRICS_PATIENCE;
    while !bytes.is_empty() {
        stream.set_write_timeout(Some(time_until(deadline)?))?;
        match stream.write(bytes)? {
            0 => return Err(io::ErrorKind::WriteZero.into()),
            n => bytes = &bytes[n..],
        }
    }
    Ok(())
}

fn time_until(deadline: Instant) -> io::Result<Duration> {
    let left = deadline.checked_duration_since(Instant::now()).filter(|left| !left.is_zero());
    left.ok_or(io::ErrorKind::TimedOut.into())
}

/// Texts up to this length are not compressed: that would not save a packet.
const PLAIN_MAX_BYTES: usize = 1_024;

/// Compresses a text, fast rather than small: about a fifth of the bytes are left.
fn gzip(text: &str) -> io::Result<Vec<u8>> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(text.as_bytes())?;
    encoder.finish()
}

/// Whether the head of a request names gzip among the encodings that its client accepts (RFC 9110, section 12.5.3).
fn accepts_gzip(head: &[u8]) -> bool {
    let head = String::from_utf8_lossy(head);
    let fields = head.lines().skip(1).filter_map(|line| line.split_once(':'));
    let accepted = fields.filter(|(name, _)| name.eq_ignore_ascii_case("accept-encoding"));
    accepted.flat_map(|(_, encodings)| encodings.split(',')).any(|encoding| {
        let (name, weight) = encoding.split_once(';').unwrap_or((encoding, ""));
        let weight = weight.trim().strip_prefix("q=").map_or(Ok(1.0), str::parse::<f32>);
        name.trim().eq_ignore_ascii_case("gzip") && weight.is_ok_and(|weight| weight > 0.0)
    })
}

/// Sent while the engine can't be asked.
const BUSY: &str = "# HELP tidegate_busy Whether a command or script is blocking the server, so no other metric is \
                    available.\n\
                    # TYPE tidegate_busy gauge\ntidegate_busy 1\n";

/// Reads up to the empty line behind a request's head; `None` if the head is too long. Taking too long is an error.
fn read_request(mut stream: &TcpStream) -> io::Result<Option<Vec<u8>>> {
    let deadline = Instant::now() + METRICS_PATIENCE;
    let mut head = Vec::new();
    let mut chunk = [0; 1_024];
    while !head.windows(4).any(|window| window == b"\r\n\r\n") {
        if head.len() > METRICS_REQUEST_MAX_BYTES {
            return Ok(None);
        }
        stream.set_read_timeout(Some(time_until(deadline)?))?;
        match stream.read(&mut chunk)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            n => head.extend_from_slice(&chunk[..n]),
        }
    }
    Ok(Some(head))
}

/// The path of a request, without the part from a question mark on; else the status that refuses it.
fn request_path(head: &[u8]) -> Result<&str, &'static str> {
    const BAD: &str = "400 Bad Request";
    let line = head.split(|&byte| byte == b'\r').next().unwrap_or_default();
    let mut words = std::str::from_utf8(line).map_err(|_| BAD)?.split(' ');
    let (Some(method), Some(path), Some(version), None) = (words.next(), words.next(), words.next(), words.next())
    else {
        return Err(BAD);
    };
    if !version.starts_with("HTTP/1.") || !path.starts_with('/') {
        return Err(BAD);
    }
    if !["GET", "HEAD"].contains(&method) {
        return Err("405 Method Not Allowed");
    }
    Ok(path.split('?').next().unwrap_or(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_parsed() {
        for (head, path) in [
            ("GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n", Ok("/metrics")),
            ("GET /ready?verbose HTTP/1.0\r\n\r\n", Ok("/ready")),
            ("HEAD /health HTTP/1.1\r\n\r\n", Ok("/health")),
            ("POST /metrics HTTP/1.1\r\n\r\n", Err("405 Method Not Allowed")),
            ("GET metrics HTTP/1.1\r\n\r\n", Err("400 Bad Request")),
            ("GET /a b HTTP/1.1\r\n\r\n", Err("400 Bad Request")),
            ("GET / SMTP\r\n\r\n", Err("400 Bad Request")),
            ("\r\n\r\n", Err("400 Bad Request")),
        ] {
            assert_eq!(request_path(head.as_bytes()), path, "{head}");
        }
        assert!(request_path(b"GET /\xff HTTP/1.1\r\n\r\n").is_err());
    }

    #[test]
    fn gzip_is_sent_to_clients_that_accept_it() {
        for (accepted, is_gzip) in [
            ("Accept-Encoding: gzip\r\n", true),
            ("accept-encoding: deflate, GZIP;q=0.5\r\n", true),
            ("Accept-Encoding: br\r\nAccept-Encoding: gzip\r\n", true),
            ("Accept-Encoding: gzip;q=0\r\n", false),
            ("Accept-Encoding: gzip; q=0.000\r\n", false),
            ("Accept-Encoding: x-gzip, identity\r\n", false),
            ("Accept: gzip\r\n", false),
            ("", false),
        ] {
            let head = format!("GET /metrics HTTP/1.1\r\n{accepted}\r\n");
            assert_eq!(accepts_gzip(head.as_bytes()), is_gzip, "{accepted}");
        }
    }

    #[test]
    fn a_client_that_hung_up_is_not_waited_for() {
        let questions = Questions::default();
        assert_eq!(questions.ask(Duration::ZERO), None, "there is no engine");
        assert!(questions.waiting().is_empty());
    }
}
