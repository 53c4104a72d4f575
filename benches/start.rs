//! How long a server takes to start with its data: `cargo bench --bench start`.
//!
//! For each server and each of its ways to keep data, the same keys are stored once, and then the server is started again and
//! again from the files, all of which the system has in memory. Measured is the time from the launch until a command that needs the
//! data is answered. Each round starts every server once, in turn, so that what the machine does besides hits all; told are medians
//! as a Markdown table, and the ratio to the best of the others is that of the medians.
//!
//! | Case | What the server finds |
//! |---|---|
//! | Tidegate, snapshot | its own snapshot, and an empty log behind it |
//! | Tidegate, log | nothing but its log, one unit for each key |
//! | Tidegate, dump.rdb | the file of Redis; when it answers, all of it is in its own snapshot, and synced |
//! | Redis and Valkey, dump.rdb | their own file |
//! | Redis and Valkey, AOF | one command for each key |
//!
//! ```sh
//! cargo bench --bench start -- --keys 2000000 --peer-redis redis-server --peer-valkey valkey-server
//! ```
//!
//! Without a peer the dump.rdb is made by Tidegate. No server is pinned to a core: each may use what it can.

#[allow(dead_code, reason = "not every bench asks for everything")]
mod peer;

use std::io::{BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use clap::Parser;

use peer::{Contestants, cpu_model, encode, median};

/// Measures how long servers take to start, and prints a Markdown table.
#[derive(Parser)]
struct Options {
    /// Keys, each a string of 32 bytes.
    #[arg(long, default_value_t = 10_000_000)]
    keys: u64,
    /// Rounds in which the servers take turns.
    #[arg(long, default_value_t = 3)]
    rounds: u64,
    #[command(flatten)]
    contestants: Contestants,
    /// Folder for the data, of which there will be several times that of the keys. A temporary one if not given.
    #[arg(long)]
    dir: Option<PathBuf>,
}

/// Commands in flight while keys are stored.
const PIPELINE: u64 = 1_000;

/// Longer than any start here.
const PATIENCE: Duration = Duration::from_secs(600);

/// A way to start.
struct Case {
    name: String,
    command: String,
    dir: PathBuf,
    flags: &'static [&'static str],
    /// What the start makes and the next one must not find.
    made: Option<PathBuf>,
    seconds: Vec<f64>,
}

const LOGGED: &[&str] = &["--appendonly", "yes", "--save", "", "--auto-aof-rewrite-percentage", "0"];
const UNLOGGED: &[&str] = &["--appendonly", "no", "--save", ""];

fn main() {
    let options = Options::parse();
    let temporary = tempfile::tempdir().expect("a temporary folder");
    let root = options.dir.clone().unwrap_or_else(|| temporary.path().to_owned());
    let folder = |name: &str| {
        let folder = root.join(name);
        std::fs::create_dir_all(&folder).expect("a folder for data");
        folder
    };
    let mut cases = Vec::new();
    let ours = options.contestants.server.as_str();
    let mut add = |name: String, command: &str, dir: PathBuf, flags, made| {
        cases.push(Case { name, command: command.to_owned(), dir, flags, made, seconds: Vec::new() });
    };
    let mut dump = None;
    for (name, command) in options.contestants.peers() {
        let (aof, rdb) = (folder(&format!("{name}-aof")), folder(&format!("{name}-rdb")));
        let server = Running::start(command, &aof, LOGGED);
        server.store(options.keys);
        server.call(&["SAVE"]);
        server.stop();
        std::fs::rename(aof.join("dump.rdb"), rdb.join("dump.rdb")).expect("SAVE has made it");
        if name == "Redis" || dump.is_none() {
            dump = Some(rdb.join("dump.rdb"));
        }
        add(format!("{name}, dump.rdb"), command, rdb, UNLOGGED, None);
        add(format!("{name}, AOF"), command, aof, LOGGED, None);
    }
    let (log, snapshot, import) = (folder("log"), folder("snapshot"), folder("import"));
    let server = Running::start(ours, &log, LOGGED);
    server.store(options.keys);
    if dump.is_none() {
        export(ours, server.port, &import.join("dump.rdb"));
    }
    server.stop();
    copy(&log.join("tidegate-data"), &snapshot.join("tidegate-data"));
    let server = Running::start(ours, &snapshot, LOGGED);
    server.call(&["SAVE"]);
    server.stop();
    if let Some(dump) = dump {
        std::fs::copy(dump, import.join("dump.rdb")).expect("space for the file");
    }
    let made = import.join("tidegate-data");
    add("Tidegate, snapshot".to_owned(), ours, snapshot, LOGGED, None);
    add("Tidegate, log".to_owned(), ours, log, LOGGED, None);
    add("Tidegate, dump.rdb".to_owned(), ours, import, LOGGED, Some(made));

    for _ in 0..options.rounds {
        for case in &mut cases {
            if let Some(made) = case.made.as_ref().filter(|made| made.exists()) {
                std::fs::remove_dir_all(made).expect("it can be removed");
            }
            let begun = Instant::now();
            let server = Running::start(&case.command, &case.dir, case.flags);
            case.seconds.push(begun.elapsed().as_secs_f64());
            assert_eq!(server.call(&["DBSIZE"]), format!(":{}", options.keys), "{}", case.name);
        }
    }
    report(&options, &cases);
}

fn report(options: &Options, cases: &[Case]) {
    let seconds = |case: &Case| median(case.seconds.clone());
    let best = |what: &str| {
        let others = cases.iter().filter(|case| case.name.ends_with(what) && !case.name.starts_with("Tidegate"));
        others.map(seconds).min_by(f64::total_cmp)
    };
    println!("{} keys, {} rounds, {}\n", options.keys, options.rounds, cpu_model());
    println!("| Start from | s | slowest s | to the best of the others |");
    println!("|---|--:|--:|--:|");
    for case in cases {
        let (median, slowest) = (seconds(case), case.seconds.iter().copied().fold(0.0, f64::max));
        // A log is held against an AOF, all else against a dump.rdb.
        let other = best(if case.name.ends_with(", log") { "AOF" } else { "dump.rdb" });
        let ratio = match other.filter(|_| case.name.starts_with("Tidegate")) {
            Some(other) => format!("{:.2}", median / other),
            None => String::new(),
        };
        println!("| {} | {median:.2} | {slowest:.2} | {ratio} |", case.name);
    }
}

/// A server, killed when dropped.
struct Running {
    child: Child,
    port: u16,
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Running {
    /// Starts a server, and waits until it has its data.
    fn start(command: &str, dir: &Path, flags: &[&str]) -> Running {
        let probe = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let port = probe.local_addr().expect("a bound socket has an address").port();
        drop(probe);
        let mut words = command.split_whitespace();
        let child = Command::new(words.next().expect("a launch command"))
            .args(words)
            .args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--dir"])
            .arg(dir)
            .args(flags)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap_or_else(|error| panic!("cannot start {command}: {error}"));
        let mut server = Running { child, port };
        let begun = Instant::now();
        loop {
            let answer = TcpStream::connect(("127.0.0.1", port)).ok().and_then(|stream| call(stream, &["DBSIZE"]));
            if answer.is_some_and(|answer| answer.starts_with(':')) {
                return server;
            }
            let ended = server.child.try_wait().expect("the state of our own child");
            assert!(ended.is_none() && begun.elapsed() < PATIENCE, "{command} in {} does not start", dir.display());
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn connect(&self) -> TcpStream {
        TcpStream::connect(("127.0.0.1", self.port)).expect("the server accepts")
    }

    /// The first line of what a command is answered.
    fn call(&self, words: &[&str]) -> String {
        call(self.connect(), words).unwrap_or_else(|| panic!("{words:?} is not answered"))
    }

    /// Stores so many keys.
    fn store(&self, keys: u64) {
        let mut stream = self.connect();
        let mut replies = BufReader::new(stream.try_clone().expect("a second handle"));
        let mut answered = vec![0; 5 * PIPELINE as usize];
        for first in (0..keys).step_by(PIPELINE as usize) {
            let last = (first + PIPELINE).min(keys);
            let mut request = Vec::new();
            for n in first..last {
                request.extend_from_slice(&encode(&["SET", &format!("key:{n:012}"), &format!("value:{n:026}")]));
            }
            stream.write_all(&request).expect("the server reads");
            let answered = &mut answered[..5 * (last - first) as usize];
            replies.read_exact(answered).expect("the server answers");
            assert!(answered.chunks(5).all(|reply| reply == b"+OK\r\n"), "a SET was refused");
        }
    }

    /// Ends it in order.
    fn stop(mut self) {
        let pid = i32::try_from(self.child.id()).expect("a process number");
        // SAFETY: a signal to a child of this process, which was not waited for yet.
        unsafe { libc::kill(pid, libc::SIGTERM) };
        let status = self.child.wait().expect("our own child");
        assert!(status.success(), "it did not end well");
    }
}

/// The first line of what a command is answered; `None` if nothing comes.
fn call(mut stream: TcpStream, words: &[&str]) -> Option<String> {
    stream.write_all(&encode(words)).ok()?;
    let (mut line, mut byte) = (Vec::new(), [0]);
    while !line.ends_with(b"\r\n") {
        stream.read_exact(&mut byte).ok()?;
        line.push(byte[0]);
    }
    Some(String::from_utf8_lossy(&line).trim_end().to_owned())
}

/// A dump.rdb of what the server at `port` holds.
fn export(command: &str, port: u16, to: &Path) {
    let mut words = command.split_whitespace();
    let status = Command::new(words.next().expect("a launch command"))
        .args(["export".as_ref(), to.as_os_str(), "--from".as_ref(), format!("redis://127.0.0.1:{port}").as_ref()])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    assert!(status.is_ok_and(|status| status.success()), "tidegate export failed");
}

/// Copies a folder of files.
fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).expect("a folder for data");
    for entry in std::fs::read_dir(from).expect("a readable folder").flatten() {
        std::fs::copy(entry.path(), to.join(entry.file_name())).expect("space for the file");
    }
}
