//! What the benches share that measure two servers beside each other: processes pinned to a core, and their books.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// What every one of these benches can be told.
#[derive(clap::Args)]
pub(crate) struct Setup {
    /// Launch command of the server to judge.
    #[arg(long, default_value = env!("CARGO_BIN_EXE_tidegate"))]
    server: String,
    /// Launch command of the server to compare with.
    #[arg(long, default_value = "redis-server")]
    peer: String,
    /// Rounds in which the servers take turns.
    #[arg(long, default_value_t = 7)]
    pub rounds: u64,
    /// Only what has this in its name.
    #[arg(long, default_value = "")]
    pub only: String,
    /// Core of the servers.
    #[arg(long, default_value_t = 0)]
    pub server_core: usize,
    /// Core of the client.
    #[arg(long, default_value_t = 1)]
    pub client_core: usize,
    /// Cargo passes this to every bench.
    #[arg(long, hide = true)]
    bench: bool,
}

/// The servers of the benches that take two peers.
#[derive(clap::Args)]
#[allow(dead_code, reason = "other benches take one peer")]
pub(crate) struct Contestants {
    /// Launch command of the server to judge.
    #[arg(long, default_value = env!("CARGO_BIN_EXE_tidegate"))]
    pub server: String,
    /// Launch command of a Redis to compare with.
    #[arg(long)]
    pub peer_redis: Option<String>,
    /// Launch command of a Valkey to compare with.
    #[arg(long)]
    pub peer_valkey: Option<String>,
    /// Cargo passes this to every bench.
    #[arg(long, hide = true)]
    bench: bool,
}

#[allow(dead_code, reason = "other benches take one peer")]
impl Contestants {
    /// The names and launch commands of the peers that were given.
    pub(crate) fn peers(&self) -> impl Iterator<Item = (&'static str, &str)> {
        let peers = [("Redis", &self.peer_redis), ("Valkey", &self.peer_valkey)];
        peers.into_iter().filter_map(|(name, command)| Some((name, command.as_deref()?)))
    }
}

/// Flags of a server that keeps nothing.
const UNLOGGED: &[&str] = &["--appendonly", "no"];

impl Setup {
    /// Starts both servers: the one to compare with, and the one to judge.
    pub(crate) fn start(&self) -> [Server; 2] {
        [&self.peer, &self.server].map(|command| Server::start(command, self.server_core))
    }

    /// Which of the two is measured first and which second in a round: it alternates, so that a machine that heats up
    /// favours neither.
    pub(crate) fn turns(round: u64) -> [usize; 2] {
        if round.is_multiple_of(2) { [0, 1] } else { [1, 0] }
    }
}

/// A server process, killed when dropped.
pub(crate) struct Server {
    child: Child,
    pub port: u16,
    _dir: tempfile::TempDir,
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Server {
    fn start(command: &str, core: usize) -> Server {
        Server::start_on(command, &core.to_string())
    }

    /// Starts a server that is kept to these cores, as taskset takes them.
    pub(crate) fn start_on(command: &str, cores: &str) -> Server {
        Server::start_with(command, cores, UNLOGGED, &[])
    }

    /// The same with other flags, and with variables of its environment. Its data lies in a temporary folder (`TMPDIR`).
    pub(crate) fn start_with(command: &str, cores: &str, flags: &[&str], environment: &[(&str, &str)]) -> Server {
        let dir = tempfile::tempdir().expect("a temporary folder");
        let probe = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let port = probe.local_addr().expect("a bound socket has an address").port();
        drop(probe);
        // taskset becomes the server (exec), so the child's id is the server's.
        let child = Command::new("taskset")
            .args(["-c", cores])
            .args(command.split_whitespace())
            .args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", "", "--dir"])
            .arg(dir.path())
            .args(flags)
            .envs(environment.iter().copied())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .unwrap_or_else(|e| panic!("cannot start {command}: {e}"));
        let deadline = Instant::now() + Duration::from_secs(10);
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            assert!(Instant::now() < deadline, "{command} does not listen");
            std::thread::sleep(Duration::from_millis(5));
        }
        Server { child, port, _dir: dir }
    }

    /// CPU time of the process in seconds.
    pub(crate) fn cpu_seconds(&self) -> f64 {
        cpu_seconds(self.child.id())
    }

    /// Resident memory of the process.
    #[allow(dead_code, reason = "not every bench asks")]
    pub(crate) fn resident_bytes(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).expect("the process lives");
        bytes_of(&status, "VmRSS:")
    }

    /// Resident memory of the process, and what processes that it has forked hold alone: pages that they share count once.
    #[allow(dead_code, reason = "not every bench asks")]
    pub(crate) fn memory_bytes(&self) -> u64 {
        let pid = self.child.id();
        let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
        let alone = |child: &str| {
            // It may have ended by now.
            let smaps = std::fs::read_to_string(format!("/proc/{child}/smaps_rollup")).unwrap_or_default();
            bytes_of(&smaps, "Private_Clean:") + bytes_of(&smaps, "Private_Dirty:")
        };
        self.resident_bytes() + children.split_whitespace().map(alone).sum::<u64>()
    }

    pub(crate) fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(("127.0.0.1", self.port)).expect("the server accepts");
        stream.set_nodelay(true).expect("a TCP socket");
        stream
    }

    /// What the server calls itself, with its version.
    pub(crate) fn version(&self) -> String {
        let mut stream = self.connect();
        stream.write_all(&encode(&["INFO", "server"])).expect("the server reads");
        let (mut info, mut piece) = (Vec::new(), [0; 4096]);
        let text = loop {
            let n = stream.read(&mut piece).expect("the server answers");
            assert!(n > 0, "the server hung up");
            info.extend_from_slice(&piece[..n]);
            let text = String::from_utf8_lossy(&info);
            let len = text.strip_prefix('$').and_then(|rest| rest.split_once("\r\n")?.0.parse::<usize>().ok());
            if len.is_some_and(|len| info.len() > len) {
                break text.into_owned();
            }
        };
        let field = |name: &str| text.lines().find_map(|line| line.strip_prefix(name));
        field("tidegate_version:")
            .map(|version| format!("tidegate {version}"))
            .or_else(|| field("valkey_version:").map(|version| format!("valkey {version}")))
            .or_else(|| field("redis_version:").map(|version| format!("redis {version}")))
            .unwrap_or_else(|| "unknown".to_owned())
    }
}

/// A field of a file in /proc that counts kB; 0 where it is not there.
fn bytes_of(text: &str, field: &str) -> u64 {
    let line = text.lines().find_map(|line| line.strip_prefix(field)).unwrap_or("0");
    line.trim().trim_end_matches(" kB").parse::<u64>().expect("a number of kB") * 1024
}

/// A command as clients send it.
pub(crate) fn encode(args: &[&str]) -> Vec<u8> {
    let words = args.iter().map(|arg| format!("${}\r\n{arg}\r\n", arg.len())).collect::<String>();
    format!("*{}\r\n{words}", args.len()).into_bytes()
}

pub(crate) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// CPU time of a process in seconds, all its threads, to the nanosecond.
pub(crate) fn cpu_seconds(pid: u32) -> f64 {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).expect("the process lives");
    let nanoseconds = |task: std::io::Result<std::fs::DirEntry>| -> u64 {
        let path = task.expect("a readable /proc").path().join("schedstat");
        // A thread may end between the listing and this line.
        let text = std::fs::read_to_string(path).unwrap_or_default();
        text.split(' ').next().and_then(|n| n.parse().ok()).unwrap_or(0)
    };
    tasks.map(nanoseconds).sum::<u64>() as f64 / 1e9
}

/// Keeps this process to one core.
pub(crate) fn pin_self(core: usize) {
    let pinned = Command::new("taskset")
        .args(["-a", "-c", "-p", &core.to_string(), &std::process::id().to_string()])
        .stdout(Stdio::null())
        .status();
    assert!(pinned.is_ok_and(|s| s.success()), "taskset (util-linux) cannot pin the client to core {core}");
}

pub(crate) fn cpu_model() -> String {
    let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = info.lines().find_map(|l| l.strip_prefix("model name")).and_then(|l| l.split_once(": "));
    model.map_or_else(|| "unknown CPU".to_owned(), |(_, name)| name.to_owned())
}
