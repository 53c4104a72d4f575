//! The common part of benches that compare servers: which servers, on which cores, in how many rounds; processes pinned
//! to a core, and their resource usage.

#![allow(dead_code, reason = "each bench takes what it needs")]

pub(crate) mod connection;

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use connection::Connection;

use crate::requests::encode;

/// Options of every comparing bench.
#[derive(clap::Args)]
pub(crate) struct Setup {
    /// Launch command of the server under test.
    #[arg(long, default_value = env!("CARGO_BIN_EXE_tidegate"))]
    pub server: String,
    /// Launch commands of the servers to compare with; if not given, redis-server and valkey-server where they are in
    /// PATH.
    #[arg(long = "peer", value_delimiter = ',')]
    given_peers: Vec<String>,
    /// Rounds in which the servers take turns.
    #[arg(long, default_value_t = 5)]
    pub rounds: usize,
    /// Share of the full sizes and times: at 0.01 a bench takes seconds, and its figures mean little.
    #[arg(long, default_value_t = 1.0)]
    scale: f64,
    /// Only cases whose name contains this.
    #[arg(long, default_value = "")]
    pub only: String,
    /// Core of the servers.
    #[arg(long, default_value_t = 0)]
    pub server_core: usize,
    /// Core of the client.
    #[arg(long, default_value_t = 1)]
    pub client_core: usize,
    /// Folder in which to keep the figures, as `NAME.json`, for the report; this run's figures replace earlier ones.
    #[arg(long)]
    pub data: Option<PathBuf>,
    /// Cargo passes this to every bench.
    #[arg(long, hide = true)]
    bench: bool,
}

/// Flags of a server without persistence.
pub(crate) const UNLOGGED: &[&str] = &["--appendonly", "no"];

/// The peers looked for in PATH.
const KNOWN_PEERS: [&str; 2] = ["redis-server", "valkey-server"];

impl Setup {
    /// The launch commands of the peers.
    pub(crate) fn peers(&self) -> Vec<String> {
        if !self.given_peers.is_empty() {
            return self.given_peers.clone();
        }
        let path = std::env::var_os("PATH").unwrap_or_default();
        let is_there = |name: &&str| std::env::split_paths(&path).any(|folder| folder.join(name).is_file());
        KNOWN_PEERS.into_iter().filter(is_there).map(str::to_owned).collect()
    }

    /// The launch commands of all servers: those of the peers, then that of the server under test.
    pub(crate) fn commands(&self) -> Vec<String> {
        let mut commands = self.peers();
        commands.push(self.server.clone());
        commands
    }

    /// Starts a server without persistence on the servers' core.
    pub(crate) fn start(&self, command: &str) -> Server {
        Server::start_on(command, &self.server_core.to_string())
    }

    /// The names of all servers with their versions, in the order of [`Setup::commands`]. Starts each server to ask it.
    pub(crate) fn names(&self) -> Vec<String> {
        self.commands().iter().map(|command| self.start(command).version()).collect()
    }

    /// Scales a number of keys or elements.
    pub(crate) fn scaled(&self, number: u64) -> u64 {
        ((number as f64 * self.scale) as u64).max(1)
    }

    /// Scales a measurement's duration, but keeps it long enough to measure something.
    pub(crate) fn seconds(&self, seconds: f64) -> Duration {
        Duration::from_secs_f64((seconds * self.scale).max(seconds.min(0.2)))
    }
}

/// A server process, killed when dropped.
pub(crate) struct Server {
    child: Child,
    pub port: u16,
    /// The folder of the server's data, if it is temporary.
    _dir: Option<tempfile::TempDir>,
}

/// Longer than any start takes.
const START_MAX: Duration = Duration::from_secs(600);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Server {
    /// Starts a server without persistence, pinned to these cores, given as taskset takes them.
    pub(crate) fn start_on(command: &str, cores: &str) -> Server {
        Server::start_with(command, cores, UNLOGGED, &[])
    }

    /// As [`start_on`](Self::start_on), with other flags and with environment variables. The data lies in a temporary
    /// folder (`TMPDIR`).
    pub(crate) fn start_with(command: &str, cores: &str, flags: &[&str], environment: &[(&str, &str)]) -> Server {
        let dir = tempfile::tempdir().expect("a temporary folder");
        // taskset becomes the server (exec), so the child's id is the server's.
        Server::start_in(dir.path(), &format!("taskset -c {cores} {command}"), flags, environment).keeping(dir)
    }

    /// Starts a server on the data of a folder, and waits until it is loaded.
    pub(crate) fn start_in(dir: &Path, command: &str, flags: &[&str], environment: &[(&str, &str)]) -> Server {
        let [port] = free_ports();
        let mut server = Server::launch(dir, command, port, flags, environment);
        server.await_data();
        server
    }

    /// Launches a server on the data of a folder, and does not wait for it.
    pub(crate) fn launch(dir: &Path, command: &str, port: u16, flags: &[&str], environment: &[(&str, &str)]) -> Server {
        let mut words = command.split_whitespace();
        let child = Command::new(words.next().expect("a launch command"))
            .args(words)
            .args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", "", "--dir"])
            .arg(dir)
            .args(flags)
            .envs(environment.iter().copied())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .unwrap_or_else(|e| panic!("cannot start {command}: {e}"));
        Server { child, port, _dir: None }
    }

    /// Keeps a temporary folder for as long as the server lives.
    pub(crate) fn keeping(mut self, dir: tempfile::TempDir) -> Server {
        self._dir = Some(dir);
        self
    }

    /// Waits until the server has loaded its data.
    pub(crate) fn await_data(&mut self) {
        let begin = Instant::now();
        while !self.has_data() {
            let ended = self.child.try_wait().expect("the state of our own child");
            assert!(ended.is_none() && begin.elapsed() < START_MAX, "the server at port {} does not start", self.port);
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Whether the server answers a command that needs the data; while it is loading, it replies with an error.
    fn has_data(&self) -> bool {
        let Ok(mut stream) = TcpStream::connect(("127.0.0.1", self.port)) else { return false };
        let mut first = [0];
        stream.write_all(&encode(&["DBSIZE"])).is_ok() && stream.read_exact(&mut first).is_ok() && first == *b":"
    }

    /// Stops the process: not every idle server leaves its cores to others.
    pub(crate) fn pause(&self) {
        self.signal(libc::SIGSTOP);
    }

    /// Lets the process continue.
    pub(crate) fn go_on(&self) {
        self.signal(libc::SIGCONT);
    }

    fn signal(&self, signal: i32) {
        let pid = i32::try_from(self.child.id()).expect("a process number");
        // SAFETY: a signal to a child of this process, which was not waited for yet.
        unsafe { libc::kill(pid, signal) };
    }

    /// Asks the server to end in order, and does not wait for it.
    pub(crate) fn end(&self) {
        self.signal(libc::SIGTERM);
    }

    /// Ends the server in order.
    pub(crate) fn stop(mut self) {
        self.end();
        let status = self.child.wait().expect("our own child");
        assert!(status.success(), "the server ended with an error");
    }

    /// The process id.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// CPU time of the process in seconds.
    pub(crate) fn cpu_seconds(&self) -> f64 {
        cpu_seconds(self.child.id())
    }

    /// CPU time of its threads of this name in seconds.
    pub(crate) fn cpu_seconds_of(&self, thread: &str) -> f64 {
        cpu_seconds_of(self.child.id(), |name| name == thread)
    }

    /// Resident memory of the process.
    pub(crate) fn resident_bytes(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).expect("the process lives");
        bytes_of(&status, "VmRSS:")
    }

    /// The most resident memory that the process has had since [`forget_peak`](Self::forget_peak).
    pub(crate) fn peak_bytes(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).expect("the process lives");
        bytes_of(&status, "VmHWM:")
    }

    /// Lets the peak of the resident memory begin anew.
    pub(crate) fn forget_peak(&self) {
        // The 5 stands for that, in proc(5).
        std::fs::write(format!("/proc/{}/clear_refs", self.child.id()), "5").expect("a process of this user");
    }

    /// Resident memory of the process, plus memory that only its forked processes hold: shared pages count once.
    pub(crate) fn memory_bytes(&self) -> u64 {
        let pid = self.child.id();
        let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
        let alone = |child: &str| {
            // The child may have ended by now.
            let smaps = std::fs::read_to_string(format!("/proc/{child}/smaps_rollup")).unwrap_or_default();
            bytes_of(&smaps, "Private_Clean:") + bytes_of(&smaps, "Private_Dirty:")
        };
        self.resident_bytes() + children.split_whitespace().map(alone).sum::<u64>()
    }

    /// The name and version that the server gives itself, as in "Redis 8.0.6".
    pub(crate) fn version(&self) -> String {
        let info = Connection::new(self).ask(&["INFO", "server"]);
        // Our name comes first: the server also reports a Redis version for compatibility, as Valkey does.
        let names = [("tidegate_version:", "Tidegate"), ("valkey_version:", "Valkey"), ("redis_version:", "Redis")];
        let version =
            |(field, name)| Some(format!("{name} {}", info.lines().find_map(|line| line.strip_prefix(field))?));
        names.into_iter().find_map(version).unwrap_or_else(|| "unknown".to_owned())
    }

    /// Resident memory once it no longer changes, or after ten seconds of changes.
    pub(crate) fn steady_bytes(&self) -> u64 {
        const STILL: Duration = Duration::from_millis(500);
        let deadline = Instant::now() + Duration::from_secs(10);
        let (mut bytes, mut since) = (self.resident_bytes(), Instant::now());
        while since.elapsed() < STILL && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(50));
            let now = self.resident_bytes();
            if now.abs_diff(bytes) > bytes / 1_000 {
                (bytes, since) = (now, Instant::now());
            }
        }
        self.resident_bytes()
    }
}

/// Ports that no process listens on, all different.
pub(crate) fn free_ports<const N: usize>() -> [u16; N] {
    let probes = [(); N].map(|()| TcpListener::bind("127.0.0.1:0").expect("a free port"));
    probes.each_ref().map(|probe| probe.local_addr().expect("a bound socket has an address").port())
}

/// A field in kB from the text of a file in /proc, in bytes; 0 if absent.
fn bytes_of(text: &str, field: &str) -> u64 {
    let line = text.lines().find_map(|line| line.strip_prefix(field)).unwrap_or("0");
    line.trim().trim_end_matches(" kB").parse::<u64>().expect("a number of kB") * 1024
}

pub(crate) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// CPU time of a process in seconds, all its threads, to the nanosecond.
pub(crate) fn cpu_seconds(pid: u32) -> f64 {
    cpu_seconds_of(pid, |_| true)
}

/// CPU time of those threads of a process whose names are wanted.
fn cpu_seconds_of(pid: u32, wants: impl Fn(&str) -> bool) -> f64 {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).expect("the process lives");
    let nanoseconds = |task: std::io::Result<std::fs::DirEntry>| -> u64 {
        let folder = task.expect("a readable /proc").path();
        // A thread may end between the listing and this line.
        let text = |file: &str| std::fs::read_to_string(folder.join(file)).unwrap_or_default();
        if !wants(text("comm").trim_end()) {
            return 0;
        }
        text("schedstat").split(' ').next().and_then(|n| n.parse().ok()).unwrap_or(0)
    };
    tasks.map(nanoseconds).sum::<u64>() as f64 / 1e9
}

/// Pins this process to one core.
pub(crate) fn pin_self(core: usize) {
    pin_self_to(&core.to_string());
}

/// Pins this process to these cores, given as taskset takes them.
pub(crate) fn pin_self_to(cores: &str) {
    let pinned = Command::new("taskset")
        .args(["-a", "-c", "-p", cores, &std::process::id().to_string()])
        .stdout(Stdio::null())
        .status();
    assert!(pinned.is_ok_and(|s| s.success()), "taskset (util-linux) cannot pin the client to {cores}");
}

/// The machine that the figures were measured on.
pub(crate) fn machine() -> String {
    let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = info.lines().find_map(|l| l.strip_prefix("model name")).and_then(|l| l.split_once(": "));
    let model = model.map_or("unknown CPU", |(_, name)| name);
    // Not the cores of this process, which is pinned to one.
    let cores = info.lines().filter(|line| line.starts_with("processor")).count();
    let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    format!(
        "{model}, {cores} cores, Linux {}, temporary files on {}",
        kernel.trim(),
        file_system(&std::env::temp_dir())
    )
}

/// Processes that wanted a core in the last minute, as the system counts them: those of others distort the results.
pub(crate) fn load_average() -> String {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ').next().unwrap_or("unknown").to_owned()
}

/// The type of a folder's file system, as in "ext4".
fn file_system(folder: &Path) -> String {
    let mounts = std::fs::read_to_string("/proc/mounts").unwrap_or_default();
    let holds = |line: &str| {
        let mut words = line.split(' ').skip(1);
        let (point, kind) = (words.next()?, words.next()?);
        folder.starts_with(point).then(|| (point.len(), kind.to_owned()))
    };
    // Of several mounts on the same point the last one counts.
    let nearest = mounts.lines().filter_map(holds).max_by_key(|(length, _)| *length);
    nearest.map_or("an unknown file system".to_owned(), |(_, kind)| kind)
}
