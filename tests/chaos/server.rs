//! The server under attack: started on a free port with small limits, watched through `/proc`, and ended.

use std::fs::File;
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use super::wire::{Connection, Reply, encode, words};

/// Time a server may take to reply to its first PING. Generous: machines are shared.
const START_PATIENCE: Duration = Duration::from_secs(30);
/// Files for the TLS port.
const CERTIFICATE: &str = "certificate.pem";
const KEY: &str = "key.pem";
/// Lines of the log that a failure shows.
const LOG_LINES: usize = 60;

/// Limits so small that a minute of chaos reaches them, and settings that let chaos in.
const FLAGS: [&str; 28] = [
    "--save",
    "",
    "--appendonly",
    "no",
    "--enable-debug-command",
    "local",
    "--databases",
    "4",
    "--maxclients",
    "300",
    "--maxmemory",
    "100mb",
    "--proto-max-bulk-len",
    "4mb",
    "--client-query-buffer-limit",
    "16mb",
    "--busy-reply-threshold",
    "20",
    "--script-time-limit",
    "300",
    "--script-debug-timeout",
    "1",
    "--script-cache-max-bytes",
    "1mb",
    "--client-output-buffer-limit",
    "normal 32mb 16mb 5 replica 0 0 0 pubsub 8mb 2mb 5",
    "--script-slow-threshold",
    "100",
];

pub(crate) struct Server {
    child: Child,
    dir: tempfile::TempDir,
    pub port: u16,
    pub doors: Doors,
}

/// Ports beside the protocol's.
#[derive(Clone, Copy)]
pub(crate) struct Doors {
    pub metrics: u16,
    pub tls: u16,
}

impl Server {
    /// Starts `program` and waits until it replies. `more` comes after, and so overrides, the flags of this file.
    pub(crate) fn start(program: &str, more: &[String]) -> Result<Server, String> {
        let dir = tempfile::tempdir().map_err(|e| e.to_string())?;
        let [port, metrics, tls] = free_ports()?;
        let doors = Doors { metrics, tls };
        certify(dir.path())?;
        let log = File::create(dir.path().join("log")).map_err(|e| e.to_string())?;
        let child = Command::new(program)
            .args(["--port", &port.to_string(), "--bind", "127.0.0.1"])
            .args(["--metrics-port", &metrics.to_string(), "--tls-port", &tls.to_string(), "--tls-auth-clients", "no"])
            .arg("--tls-cert-file")
            .arg(dir.path().join(CERTIFICATE))
            .arg("--tls-key-file")
            .arg(dir.path().join(KEY))
            .args(merged(more))
            .arg("--dir")
            .arg(dir.path())
            .env("RUST_BACKTRACE", "1")
            .stdin(Stdio::null())
            .stderr(log.try_clone().map_err(|e| e.to_string())?)
            .stdout(log)
            .spawn()
            .map_err(|e| format!("cannot start {program:?}: {e}"))?;
        let mut server = Server { child, dir, port, doors };
        let deadline = Instant::now() + START_PATIENCE;
        while !server.answers() {
            if let Some(status) = server.exit_status() {
                return Err(format!("the server ended at once: {status}\n{}", server.log_tail()));
            }
            if Instant::now() > deadline {
                return Err(format!("the server does not answer PING\n{}", server.log_tail()));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(server)
    }

    fn answers(&self) -> bool {
        let mut ping = Vec::new();
        encode(&words(&["PING"]), &mut ping);
        let Ok(mut connection) = Connection::open(self.port) else { return false };
        let answer = connection.send(&ping).and_then(|()| connection.reply(Duration::from_secs(2)));
        matches!(answer, Ok(Some(Reply::Status(_))))
    }

    /// Returns its exit status, if it has ended.
    pub(crate) fn exit_status(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().ok().flatten()
    }

    /// Its process, whose CPU time, state and memory can be read.
    pub(crate) fn process(&self) -> Process {
        Process(self.child.id())
    }

    pub(crate) fn log(&self) -> String {
        String::from_utf8_lossy(&std::fs::read(self.dir.path().join("log")).unwrap_or_default()).into_owned()
    }

    pub(crate) fn log_tail(&self) -> String {
        let log = self.log();
        let lines: Vec<&str> = log.lines().collect();
        format!("--- end of the log ---\n{}\n---", lines[lines.len().saturating_sub(LOG_LINES)..].join("\n"))
    }
}

/// Returns distinct ports on which nothing listens.
fn free_ports<const N: usize>() -> Result<[u16; N], String> {
    let listener = |_| TcpListener::bind(("127.0.0.1", 0)).map_err(|e| e.to_string());
    let listeners: Vec<TcpListener> = (0..N).map(listener).collect::<Result<_, _>>()?;
    let mut ports = [0; N];
    for (port, listener) in ports.iter_mut().zip(&listeners) {
        *port = listener.local_addr().map_err(|e| e.to_string())?.port();
    }
    Ok(ports)
}

/// Writes a certificate, which no client needs to trust, and its key.
fn certify(dir: &Path) -> Result<(), String> {
    let key = rcgen::KeyPair::generate().map_err(|e| e.to_string())?;
    let params = rcgen::CertificateParams::new(vec!["localhost".to_owned()]).map_err(|e| e.to_string())?;
    let certificate = params.self_signed(&key).map_err(|e| e.to_string())?;
    std::fs::write(dir.join(CERTIFICATE), certificate.pem()).map_err(|e| e.to_string())?;
    std::fs::write(dir.join(KEY), key.serialize_pem()).map_err(|e| e.to_string())
}

impl Drop for Server {
    fn drop(&mut self) {
        // Both fail only when the process has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns the flags of this file, except those that `more` overrides, followed by `more`.
fn merged(more: &[String]) -> Vec<String> {
    let own = FLAGS.chunks_exact(2).filter(|pair| !more.iter().any(|flag| flag == pair[0]));
    own.flatten().map(|&word| word.to_owned()).chain(more.iter().cloned()).collect()
}

/// A process by its number, seen through `/proc`.
#[derive(Clone, Copy)]
pub(crate) struct Process(pub u32);

impl Process {
    /// CPU time of the process's first thread, which runs all commands.
    pub(crate) fn cpu(self) -> Duration {
        // SAFETY: asking for a constant of the system has no conditions.
        let ticks_per_s = unsafe { libc::sysconf(libc::_SC_CLK_TCK) }.max(1) as u64;
        let field = |at: usize| self.stat().get(at).and_then(|text| text.parse::<u64>().ok()).unwrap_or(0);
        Duration::from_millis((field(11) + field(12)) * 1_000 / ticks_per_s)
    }

    /// The state of the process's first thread: `R`, `S`, `D` and so on.
    pub(crate) fn state(self) -> String {
        self.stat().first().cloned().unwrap_or_default()
    }

    /// Resident bytes.
    pub(crate) fn rss_bytes(self) -> u64 {
        let text = std::fs::read_to_string(format!("/proc/{}/status", self.0)).unwrap_or_default();
        let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap_or_default();
        line.split_whitespace().next().and_then(|kib| kib.parse::<u64>().ok()).unwrap_or(0) * 1024
    }

    /// Kills it at once.
    pub(crate) fn kill(self) {
        // SAFETY: sending a signal has no conditions; the process is a child that has not been waited for.
        unsafe { libc::kill(self.0 as libc::pid_t, libc::SIGKILL) };
    }

    /// The fields of `/proc/PID/task/PID/stat` from the third on: those before hold a name with any characters.
    fn stat(self) -> Vec<String> {
        let text = std::fs::read_to_string(format!("/proc/{0}/task/{0}/stat", self.0)).unwrap_or_default();
        let fields = text.rsplit_once(") ").map_or("", |(_, fields)| fields);
        fields.split_whitespace().map(str::to_owned).collect()
    }
}
