//! Three servers as the nodes of a group: processes of their own, on loopback addresses of their own, with a secret.

use std::fs::{File, Permissions, set_permissions, write};
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::harness::{Program, launch_command};

/// How long anything may take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// The nodes of a group, by number from 1.
struct Group {
    folder: tempfile::TempDir,
    hosts: Vec<String>,
    nodes: Vec<Option<Child>>,
}

/// Each group of a process has hosts of its own.
static GROUPS: AtomicU32 = AtomicU32::new(0);

impl Group {
    fn new() -> Group {
        let [.., high, low] = std::process::id().to_be_bytes();
        let group = GROUPS.fetch_add(1, Ordering::Relaxed);
        let hosts = (1..=3).map(|number| format!("127.{high}.{low}.{}", 8 * group + number)).collect();
        let folder = tempfile::tempdir().expect("a folder");
        let secret = folder.path().join("secret");
        write(&secret, "only the nodes of this test know these words").expect("a secret");
        set_permissions(&secret, Permissions::from_mode(0o600)).expect("it is ours");
        let mut group = Group { folder, hosts, nodes: vec![None, None, None] };
        (1..=3).for_each(|number| group.start(number));
        group
    }

    fn dir(&self, number: usize) -> PathBuf {
        self.folder.path().join(number.to_string())
    }

    fn start(&mut self, number: usize) {
        let dir = self.dir(number);
        std::fs::create_dir_all(&dir).expect("a folder");
        let nodes: Vec<String> =
            (1..=3).map(|number| format!("{number}={}:6379@16379", self.hosts[number - 1])).collect();
        let log = File::options().create(true).append(true).open(dir.join("log")).expect("a log");
        let command = launch_command(Program::Tidegate);
        let child = Command::new(&command[0])
            .args(&command[1..])
            .args(["--bind", &self.hosts[number - 1], "--port", "6379", "--protected-mode", "no"])
            .args(["--node-id", &number.to_string(), "--nodes", &nodes.join(" "), "--node-secret-file"])
            .arg(self.folder.path().join("secret"))
            .arg("--dir")
            .arg(&dir)
            .stdout(log.try_clone().expect("a second handle"))
            .stderr(log)
            .spawn()
            .expect("it starts");
        self.nodes[number - 1] = Some(child);
    }

    /// Ends a node by a signal, and waits for its end.
    fn end(&mut self, number: usize, signal: i32) {
        let mut child = self.nodes[number - 1].take().expect("it runs");
        // SAFETY: the process is a child that nobody has waited for.
        unsafe { libc::kill(child.id() as i32, signal) };
        child.wait().expect("it ends");
    }

    fn connect(&self, number: usize) -> Option<Client> {
        let stream = TcpStream::connect((self.hosts[number - 1].as_str(), 6379)).ok()?;
        stream.set_read_timeout(Some(PATIENCE)).ok()?;
        Some(Client(BufReader::new(stream)))
    }

    /// Increments a counter on whichever node leads. Returns its number and the new value.
    fn increment(&self) -> (usize, u64) {
        let begin = Instant::now();
        loop {
            for number in (1..=3).filter(|number| self.nodes[number - 1].is_some()) {
                let reply = self.connect(number).and_then(|mut client| client.call("INCR counter"));
                if let Some(value) = reply.and_then(|reply| reply.strip_prefix(':')?.parse().ok()) {
                    return (number, value);
                }
            }
            assert!(begin.elapsed() < PATIENCE, "no node leads: {}", self.logs());
            sleep(Duration::from_millis(5));
        }
    }

    fn logs(&self) -> String {
        (1..=3).map(|number| std::fs::read_to_string(self.dir(number).join("log")).unwrap_or_default()).collect()
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        for child in self.nodes.iter_mut().flatten() {
            // It may have ended.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// A connection for commands whose replies are one line.
struct Client(BufReader<TcpStream>);

impl Client {
    /// Returns the reply; `None` if the connection ends before it.
    fn call(&mut self, command: &str) -> Option<String> {
        self.0.get_mut().write_all(format!("{command}\r\n").as_bytes()).ok()?;
        let mut line = String::new();
        self.0.read_line(&mut line).ok()?;
        Some(line.strip_suffix("\r\n")?.to_owned())
    }
}

#[test]
fn a_counter_never_goes_back_whoever_leads() {
    let mut group = Group::new();
    let mut last = 0;
    for round in 0..6 {
        let mut leader = 0;
        for _ in 0..10 {
            let (number, value) = group.increment();
            assert!(value > last, "{value} after {last}: {}", group.logs());
            (leader, last) = (number, value);
        }
        group.end(leader, if round % 2 == 0 { libc::SIGKILL } else { libc::SIGTERM });
        let (next, value) = group.increment();
        assert!(value > last && next != leader, "{value} after {last}: {}", group.logs());
        last = value;
        group.start(leader);
    }
    (1..=3).for_each(|number| group.end(number, libc::SIGKILL));
    (1..=3).for_each(|number| group.start(number));
    assert!(group.increment().1 > last, "{}", group.logs());
    let logs = group.logs();
    assert!(!logs.contains("panicked") && !logs.contains("please report"), "{logs}");
}

#[test]
fn a_client_of_a_leader_that_hands_over_is_disconnected() {
    let mut group = Group::new();
    let (leader, _) = group.increment();
    let mut client = group.connect(leader).expect("it runs");
    assert_eq!(client.call("SET key value").as_deref(), Some("+OK"));
    group.end(leader, libc::SIGTERM);
    assert_eq!(client.call("GET key"), None);
    let (next, _) = group.increment();
    let mut client = group.connect(next).expect("it runs");
    assert_eq!(client.call("GET key").as_deref(), Some("$5"));
}

/// Runs a server with these flags until it ends by itself, and returns what it says.
fn refused(flags: &[&str]) -> String {
    let folder = tempfile::tempdir().expect("a folder");
    let command = launch_command(Program::Tidegate);
    let output = Command::new(&command[0])
        .args(&command[1..])
        .args(["--port", "0", "--unixsocket", "socket", "--dir"])
        .arg(folder.path())
        .args(flags)
        .current_dir(folder.path())
        .stdin(Stdio::null())
        .output()
        .expect("it runs");
    assert!(!output.status.success(), "it has started");
    [output.stdout, output.stderr].concat().escape_ascii().to_string()
}

#[test]
fn a_node_that_can_t_be_one_says_why() {
    let nodes = "1=127.0.0.1:1@2 2=127.0.0.1:3@4";
    for (flags, why) in [
        (&["--node-id", "1"][..], "`nodes` names no group"),
        (&["--nodes", nodes], "`node-id` does not say"),
        (&["--nodes", nodes, "--node-id", "3"], "say with `node-announce`"),
        (&["--nodes", nodes, "--node-id", "1", "--appendonly", "no"], "needs `appendonly yes`"),
        (&["--nodes", nodes, "--node-id", "1", "--node-tls-key-file", "key"], "node-tls-ca-cert-file"),
        (&["--nodes", "1=there"], "number=host:port@port"),
        (&["--nodes", "1=10.0.0.1:1@2 2=10.0.0.2:1@2", "--node-id", "1"], "give the nodes a secret"),
        (&["--nodes", nodes, "--node-id", "1", "--node-secret-file", "missing"], "missing"),
    ] {
        let said = refused(flags);
        assert!(said.contains(why), "{flags:?}: {said}");
    }
}
