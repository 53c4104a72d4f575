//! Servers as the nodes of a group: processes of their own, on loopback addresses of their own, with a secret. Three of
//! them found it.

use std::fs::{File, Permissions, set_permissions, write};
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::harness::{Environment, Program, Raw, Value, launch_command};
use crate::metrics::{self, Metrics};
use crate::slow_disk::environment;

/// How long anything may take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// Ports that no server on all addresses is likely to have.
pub(crate) const PORT: u16 = 16_377;
pub(crate) const NODE_PORT: u16 = 26_377;
const METRICS_PORT: u16 = 19_377;

/// The highest number of a node here.
const NODES_MAX: u32 = 5;

/// The nodes of a group, by number from 1. Each has a host of its own.
pub(crate) struct Group {
    folder: tempfile::TempDir,
    pub(crate) hosts: Vec<String>,
    nodes: Vec<Option<Child>>,
    /// Flags of all nodes.
    flags: Vec<&'static str>,
    /// Their disks are slow, and hang on request.
    has_slow_disks: bool,
    /// What else is in their environment.
    environment: Environment,
}

/// Each group of a process has hosts of its own.
static GROUPS: AtomicU32 = AtomicU32::new(0);

impl Group {
    pub(crate) fn new() -> Group {
        Group::with(&[], false)
    }

    pub(crate) fn with(flags: &[&'static str], has_slow_disks: bool) -> Group {
        let mut group = Group::unstarted(flags, has_slow_disks);
        (1..=3).for_each(|number| group.start(number));
        group
    }

    /// Two of three nodes, whose data was made by nodes on these hosts: `furnish` writes the data folder of each.
    pub(crate) fn on(hosts: &[String], environment: Environment, furnish: impl Fn(usize, &Path)) -> Group {
        let mut group = Group::unstarted(&[], false);
        (group.hosts, group.environment) = (hosts.to_vec(), environment);
        for number in [1, 2] {
            furnish(number, &group.dir(number).join("tidegate-data"));
            group.start(number);
        }
        group
    }

    fn unstarted(flags: &[&'static str], has_slow_disks: bool) -> Group {
        let [.., high, low] = std::process::id().to_be_bytes();
        let group = GROUPS.fetch_add(1, Ordering::Relaxed);
        let hosts = (1..=NODES_MAX).map(|number| format!("127.{high}.{low}.{}", 8 * group + number)).collect();
        let folder = tempfile::tempdir().expect("a folder");
        let secret = folder.path().join("secret");
        write(&secret, "only the nodes of this test know these words").expect("a secret");
        set_permissions(&secret, Permissions::from_mode(0o600)).expect("it is ours");
        let nodes = (1..=NODES_MAX).map(|_| None).collect();
        Group { folder, hosts, nodes, flags: flags.to_vec(), has_slow_disks, environment: Environment::new() }
    }

    pub(crate) fn dir(&self, number: usize) -> PathBuf {
        self.folder.path().join(number.to_string())
    }

    /// Starts one of the founders.
    pub(crate) fn start(&mut self, number: usize) {
        self.start_with(number, &[1, 2, 3]);
    }

    /// Starts a node that is told of these ones.
    fn start_with(&mut self, number: usize, nodes: &[usize]) {
        let dir = self.dir(number);
        std::fs::create_dir_all(&dir).expect("a folder");
        let address = |number: &usize| format!("{}:{PORT}@{NODE_PORT}", self.hosts[number - 1]);
        let nodes: Vec<String> = nodes.iter().map(|number| format!("{number}={}", address(number))).collect();
        let log = File::options().create(true).append(true).open(dir.join("log")).expect("a log");
        let command = launch_command(Program::Tidegate);
        let child = Command::new(&command[0])
            .args(&command[1..])
            .args(["--bind", &self.hosts[number - 1], "--port", &PORT.to_string(), "--protected-mode", "no"])
            .args(["--node-id", &number.to_string(), "--nodes", &nodes.join(" "), "--node-secret-file"])
            .arg(self.folder.path().join("secret"))
            .args(["--node-announce", &address(&number)])
            .args(["--metrics-bind", &self.hosts[number - 1], "--metrics-port", &METRICS_PORT.to_string()])
            .args(&self.flags)
            .envs(if self.has_slow_disks { environment(&self.switch(number)) } else { Vec::new() })
            .envs(self.environment.iter().map(|(name, value)| (name, value)))
            .arg("--dir")
            .arg(&dir)
            .stdout(log.try_clone().expect("a second handle"))
            .stderr(log)
            .spawn()
            .expect("it starts");
        self.nodes[number - 1] = Some(child);
    }

    /// The disk of a node hangs while this file is there.
    fn switch(&self, number: usize) -> PathBuf {
        self.dir(number).join("hangs")
    }

    /// Ends a node by a signal, and waits for its end.
    pub(crate) fn end(&mut self, number: usize, signal: i32) {
        let mut child = self.nodes[number - 1].take().expect("it runs");
        // SAFETY: the process is a child that nobody has waited for.
        unsafe { libc::kill(child.id() as i32, signal) };
        child.wait().expect("it ends");
    }

    /// Whether a node takes connections.
    pub(crate) fn listens(&self, number: usize) -> bool {
        self.connect(number).is_some()
    }

    /// Returns the host of a node.
    pub(crate) fn host(&self, number: usize) -> &str {
        &self.hosts[number - 1]
    }

    /// Gets a path of the metrics port of a node. Returns the status; `None` before the node listens.
    fn get(&self, number: usize, path: &str) -> Option<u16> {
        let address = format!("{}:{METRICS_PORT}", self.host(number)).parse().expect("an address");
        TcpStream::connect(address).ok().map(|_| metrics::get(address, path).0)
    }

    /// Returns the metrics of a node that runs.
    pub(crate) fn metrics(&self, number: usize) -> Metrics {
        metrics::metrics(format!("{}:{METRICS_PORT}", self.host(number)).parse().expect("an address"))
    }

    fn connect(&self, number: usize) -> Option<Client> {
        let stream = TcpStream::connect((self.hosts[number - 1].as_str(), PORT)).ok()?;
        stream.set_read_timeout(Some(PATIENCE)).ok()?;
        Some(Client(BufReader::new(stream)))
    }

    /// A connection to a port of a node that runs.
    pub(crate) fn raw(&self, number: usize, port: u16) -> Raw {
        Raw::over(TcpStream::connect((self.hosts[number - 1].as_str(), port)).expect("it runs"))
    }

    /// Sends a command to a node over a new connection. Returns the reply; `None` if the node does not listen, or hangs
    /// up first, as one does that no longer leads or begins with a snapshot.
    pub(crate) fn ask(&self, number: usize, command: &[&str]) -> Option<Value> {
        let mut raw = Raw::over(TcpStream::connect((self.host(number), PORT)).ok()?);
        raw.send_command(command);
        raw.reply_unless_closed()
    }

    /// Increments a counter on whichever node leads. Returns its number and the new value.
    pub(crate) fn increment(&self) -> (usize, u64) {
        let begin = Instant::now();
        loop {
            for number in (1..=self.nodes.len()).filter(|number| self.nodes[number - 1].is_some()) {
                let reply = self.connect(number).and_then(|mut client| client.call("INCR counter"));
                if let Some(value) = reply.and_then(|reply| reply.strip_prefix(':')?.parse().ok()) {
                    return (number, value);
                }
            }
            assert!(begin.elapsed() < PATIENCE, "no node leads: {}", self.logs());
            sleep(Duration::from_millis(5));
        }
    }

    pub(crate) fn logs(&self) -> String {
        let log = |number| std::fs::read_to_string(self.dir(number).join("log")).unwrap_or_default();
        (1..=self.nodes.len()).map(log).collect()
    }

    /// Runs `tidegate node` with these words, by way of a node. Returns what it says, and whether it has succeeded.
    fn manage(&self, at: usize, words: &[&str]) -> (String, bool) {
        let command = launch_command(Program::Tidegate);
        let url = format!("redis://{}:{PORT}", self.hosts[at - 1]);
        let output =
            Command::new(&command[0]).args(&command[1..]).arg("node").args(words).args(["--url", &url]).output();
        let output = output.expect("it runs");
        (String::from_utf8([output.stdout, output.stderr].concat()).expect("text"), output.status.success())
    }

    /// As [`manage`](Self::manage), and expects success.
    fn managed(&self, at: usize, words: &[&str]) -> String {
        let (said, is_done) = self.manage(at, words);
        assert!(is_done, "{words:?}: {said}{}", self.logs());
        said
    }

    /// Waits until `tidegate node list` at a node has a line with these words.
    fn until_listed(&self, at: usize, words: &[&str]) {
        let begin = Instant::now();
        loop {
            let (said, _) = self.manage(at, &["list"]);
            let is_it = |line: &str| words.iter().all(|word| line.split_whitespace().any(|other| other == *word));
            if said.lines().any(is_it) {
                return;
            }
            assert!(begin.elapsed() < PATIENCE, "{words:?} is not in\n{said}{}", self.logs());
            sleep(Duration::from_millis(50));
        }
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

/// Whether a folder of a node holds a snapshot that is not the one that each node begins with.
fn has_own_snapshot(dir: &Path) -> bool {
    let names = std::fs::read_dir(dir.join("tidegate-data")).expect("a folder").flatten();
    let names = names.map(|entry| entry.file_name().into_string().expect("names are text"));
    names.filter(|name| name.ends_with(".snap")).any(|name| name != "snapshot-0000000000000000.snap")
}

/// A connection for commands whose replies are one line.
struct Client(BufReader<TcpStream>);

impl Client {
    /// Sends a command; `None` if the connection has ended.
    fn send(&mut self, command: &str) -> Option<()> {
        self.0.get_mut().write_all(format!("{command}\r\n").as_bytes()).ok()
    }

    /// Returns the reply; `None` if the connection ends before it.
    fn call(&mut self, command: &str) -> Option<String> {
        self.send(command)?;
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

/// The log of a follower that made no snapshot would grow without end.
#[test]
fn each_node_makes_a_snapshot_when_its_log_has_grown() {
    let group = Group::with(&["--auto-aof-rewrite-min-size", "64kb"], false);
    let (leader, _) = group.increment();
    let mut client = group.connect(leader).expect("it runs");
    let value = "x".repeat(1_000);
    for number in 0..100 {
        assert_eq!(client.call(&format!("SET key:{number} {value}")).as_deref(), Some("+OK"), "{}", group.logs());
    }
    let begin = Instant::now();
    while !(1..=3).all(|number| has_own_snapshot(&group.dir(number))) {
        assert!(begin.elapsed() < PATIENCE, "{}", group.logs());
        sleep(Duration::from_millis(20));
    }
}

/// A service manager must see that a follower does well, and a load balancer which node takes changes.
#[test]
fn followers_are_ready_and_one_node_leads() {
    let mut group = Group::new();
    let mut leader = group.increment().0;
    for _ in 0..2 {
        let begin = Instant::now();
        let expected = |number: usize| (Some(200), Some(if number == leader { 200 } else { 503 }));
        while !(1..=3).all(|number| (group.get(number, "/ready"), group.get(number, "/leader")) == expected(number)) {
            assert!(begin.elapsed() < PATIENCE, "{}", group.logs());
            sleep(Duration::from_millis(20));
        }
        group.end(leader, libc::SIGTERM);
        let old = std::mem::replace(&mut leader, group.increment().0);
        group.start(old);
    }
}

#[test]
fn a_client_of_a_leader_that_hands_over_is_disconnected() {
    let mut group = Group::new();
    let (leader, _) = group.increment();
    let mut client = group.connect(leader).expect("it runs");
    assert_eq!(client.call("SET key value").as_deref(), Some("+OK"));
    for kind in ["replica", "master"] {
        assert_eq!(client.call(&format!("CLIENT KILL TYPE {kind}")).as_deref(), Some(":0"), "nodes are no clients");
    }
    let mut follower = group.connect(leader % 3 + 1).expect("it runs");
    assert_eq!(follower.call("PING").as_deref(), Some("+PONG"), "a follower is well");
    assert_eq!(follower.call("DEL key").as_deref(), Some("-READONLY You can't write against a read only replica."));
    group.end(leader, libc::SIGTERM);
    assert_eq!(client.call("GET key"), None);
    let (next, _) = group.increment();
    let mut client = group.connect(next).expect("it runs");
    assert_eq!(client.call("GET key").as_deref(), Some("$5"));
}

#[test]
fn nodes_come_and_go_while_the_group_works() {
    let mut group = Group::new();
    let (leader, mut last) = group.increment();
    let mut next = |group: &Group| {
        let (number, value) = group.increment();
        assert!(value > last, "{value} after {last}: {}", group.logs());
        last = value;
        number
    };
    // A lost node is replaced. The new one may be in its own list of nodes, or not.
    let lost = if leader == 3 { 2 } else { 3 };
    group.end(lost, libc::SIGKILL);
    group.until_listed(leader, &[&lost.to_string(), "disconnected"]);
    let (said, is_done) = group.manage(leader, &["add", "4"]);
    assert!(!is_done && said.contains("node 4 does not ask to join: start it"), "{said}");
    group.start_with(4, &[1, 2, 3, 4]);
    group.until_listed(leader, &["4", "waiting"]);
    assert_eq!(group.get(4, "/ready"), Some(503), "it follows nobody");
    let other = 6 - leader - lost;
    let said = group.managed(other, &["add", "4"]);
    assert!(said.contains("node 4 is a member") && said.ends_with("node 4 votes\n"), "{said}");
    let (said, is_done) = group.manage(other, &["add", "4"]);
    assert!(!is_done && said.contains("is a voter already"), "{said}");
    assert!(group.managed(4, &["remove", &lost.to_string()]).contains("is no member any more"));
    next(&group);
    // It can't come back: the group has forgotten its number.
    group.start(lost);
    group.until_listed(leader, &[&lost.to_string(), "waiting"]);
    group.end(lost, libc::SIGKILL);
    // A node that only follows.
    group.start_with(5, &[leader, other, 4]);
    group.until_listed(leader, &["5", "waiting"]);
    group.managed(leader, &["add", "5", "--learner"]);
    group.until_listed(leader, &["5", "learner", "connected"]);
    let leader = next(&group);
    let begin = Instant::now();
    let mut follower = loop {
        // What it had before it got the leader's snapshot ends with its clients.
        let mut follower = group.connect(5).expect("it runs");
        if follower.call("EXISTS counter").as_deref() == Some(":1") {
            break follower;
        }
        assert!(begin.elapsed() < PATIENCE, "{}", group.logs());
        sleep(Duration::from_millis(20));
    };
    assert!(follower.call("INCR counter").expect("a reply").starts_with("-READONLY"));
    assert!(group.logs().contains("INFO audit: nodes of the group changed client="), "{}", group.logs());
    let (said, is_done) = group.manage(leader, &["transfer", "5"]);
    assert!(!is_done && said.contains("only a voter can lead"), "{said}");
    // Leadership goes where it is wanted, and a leader that is removed hands over first.
    let heir = if leader == 4 { other } else { 4 };
    assert_eq!(group.managed(5, &["transfer", &heir.to_string()]), format!("node {heir} leads\n"));
    group.until_listed(heir, &[&heir.to_string(), "leader", "self"]);
    assert_eq!(next(&group), heir);
    group.managed(5, &["promote", "5"]);
    let said = group.managed(heir, &["remove", &heir.to_string()]);
    assert!(said.contains(" leads\n") && said.contains(&format!("node {heir} is no member")), "{said}");
    assert_ne!(next(&group), heir);
    // It still runs, but shows no old data.
    let mut removed = group.connect(heir).expect("it runs");
    let begin = Instant::now();
    while removed.call("EXISTS counter").as_deref() != Some("-MASTERDOWN This node was removed from its group.") {
        assert!(begin.elapsed() < PATIENCE, "{}", group.logs());
        sleep(Duration::from_millis(50));
    }
    assert!(removed.call("LASTSAVE").is_some_and(|reply| reply.starts_with(':')), "it still tells of itself");
    let leader = next(&group);
    group.until_listed(leader, &[&heir.to_string(), "waiting"]);
    group.managed(leader, &["add", &heir.to_string()]);
    while removed.call("EXISTS counter").as_deref() != Some(":1") {
        assert!(begin.elapsed() < PATIENCE, "{}", group.logs());
        removed = group.connect(heir).expect("it runs");
        sleep(Duration::from_millis(50));
    }
    group.end(heir, libc::SIGTERM);
    next(&group);
}

#[test]
fn a_change_that_would_stop_the_group_is_refused() {
    let mut group = Group::new();
    let (leader, _) = group.increment();
    let others: Vec<usize> = (1..=3).filter(|number| *number != leader).collect();
    let mut client = group.connect(leader).expect("it runs");
    group.end(others[0], libc::SIGKILL);
    group.until_listed(leader, &[&others[0].to_string(), "disconnected"]);
    let refused = client.call(&format!("NODE REMOVE {}", others[1])).expect("a reply");
    assert!(refused.starts_with("-ERR then the voters that answer would be no more than half"), "{refused}");
    for (command, why) in [
        (format!("NODE REMOVE {leader}"), "a leader can't remove itself"),
        ("NODE REMOVE 9".to_owned(), "not a member"),
        ("NODE PROMOTE 9".to_owned(), "only a learner"),
        ("NODE ADD 2".to_owned(), "already a member"),
        ("NODE ADD 0".to_owned(), "is 1 or more"),
        ("NODE ADD 9223372036854775808".to_owned(), "not an integer"),
        (format!("NODE TRANSFER {leader}"), "leads already"),
        (format!("NODE TRANSFER {}", others[0]), "no connection"),
        ("NODE TRANSFER 9".to_owned(), "only a voter"),
    ] {
        let refused = client.call(&command).expect("a reply");
        assert!(refused.starts_with('-') && refused.contains(why), "{command}: {refused}");
    }
    let mut follower = group.connect(others[1]).expect("it runs");
    let refused = follower.call(&format!("NODE REMOVE {}", others[0])).expect("a reply");
    assert!(refused.starts_with(&format!("-ERR this node does not lead: ask node {leader} at 127.")), "{refused}");
    assert_eq!(client.call(&format!("NODE REMOVE {}", others[0])).as_deref(), Some("+OK"), "{}", group.logs());
    assert_eq!(
        client.call(&format!("NODE REMOVE {}", others[1])).as_deref(),
        Some("-ERR a group needs at least 2 voters")
    );
    let host = group.hosts[others[1] - 1].clone();
    for (command, why) in [
        ("FAILOVER TO 127.0.0.1 1".to_owned(), "target HOST and PORT is not a replica"),
        (format!("FAILOVER TO {host} {PORT} FORCE TIMEOUT 9"), "can't be forced"),
        ("FAILOVER ABORT".to_owned(), "No failover in progress"),
    ] {
        let refused = client.call(&command).expect("a reply");
        assert!(refused.starts_with('-') && refused.contains(why), "{command}: {refused}");
    }
    // The reply leaves before the reign ends.
    assert_eq!(client.call(&format!("NODE TRANSFER {}", others[1])).as_deref(), Some("+OK"));
    assert_eq!(client.call("PING"), None);
    assert_eq!(group.increment().0, others[1]);
    let mut client = group.connect(others[1]).expect("it runs");
    group.until_listed(others[1], &[&leader.to_string(), "connected"]);
    assert_eq!(client.call("FAILOVER").as_deref(), Some("+OK"));
    assert_eq!(client.call("PING"), None);
    assert_eq!(group.increment().0, leader);
    let mut client = group.connect(others[1]).expect("it runs");
    let refused = client.call("FAILOVER").expect("a reply");
    assert_eq!(refused, "-ERR FAILOVER is not valid when server is a replica.");
}

#[test]
fn leadership_is_handed_over_although_no_reply_waits() {
    let group = Group::with(&["--read-lease", "yes"], false);
    let (leader, _) = group.increment();
    // The list gives the leader its lease, so the reply to the handover leaves at once.
    let heir = leader % 3 + 1;
    group.until_listed(leader, &[&heir.to_string(), "connected"]);
    assert_eq!(group.managed(leader, &["transfer", &heir.to_string()]), format!("node {heir} leads\n"));
    let next = heir % 3 + 1;
    group.until_listed(heir, &[&next.to_string(), "connected"]);
    let mut client = group.connect(heir).expect("it runs");
    client.send("CLIENT REPLY OFF");
    client.send(&format!("NODE TRANSFER {next}"));
    group.until_listed(next, &[&next.to_string(), "leader", "self"]);
}

#[test]
fn clients_of_a_leader_that_a_script_keeps_busy_are_disconnected() {
    let mut group = Group::with(&["--busy-reply-threshold", "50", "--stuck-leader-timeout", "500"], false);
    let (leader, _) = group.increment();
    let [mut script, mut other] = [(); 2].map(|()| group.connect(leader).expect("it runs"));
    script.send("EVAL 'while true do end' 0");
    let begin = Instant::now();
    // It is told that the server is busy, until another node leads.
    while let Some(reply) = other.call("PING") {
        assert!(reply == "+PONG" || reply.starts_with("-BUSY"), "{reply}");
        assert!(begin.elapsed() < PATIENCE, "{}", group.logs());
        sleep(Duration::from_millis(5));
    }
    let others: Vec<usize> = (1..=3).filter(|number| *number != leader).collect();
    let leads = |number: &usize| group.connect(*number)?.call("SET key value").filter(|reply| reply == "+OK");
    while others.iter().find_map(leads).is_none() {
        assert!(begin.elapsed() < PATIENCE, "{}", group.logs());
        sleep(Duration::from_millis(5));
    }
    group.end(leader, libc::SIGKILL);
}

#[test]
fn a_write_without_a_quorum_is_given_up_after_a_while() {
    let group = Group::with(&["--quorum-wait", "300"], true);
    let (leader, value) = group.increment();
    let others = (1..=3).filter(|number| *number != leader);
    for number in others.clone() {
        std::fs::write(group.switch(number), "").expect("a file");
    }
    // The others still vouch for the leader, so it goes on, and answers reads.
    let [mut writer, mut reader] = [(); 2].map(|()| group.connect(leader).expect("it runs"));
    assert_eq!(writer.call("INCR counter"), None);
    assert_eq!(reader.call("EXISTS nothing").as_deref(), Some(":0"));
    let mut writer = group.connect(leader).expect("it runs");
    assert_eq!(writer.call("SET other 1"), None, "it waits anew");
    assert_eq!(reader.call("PING").as_deref(), Some("+PONG"));
    for number in others {
        std::fs::remove_file(group.switch(number)).expect("the file is there");
    }
    // Nobody was told whether it would happen. It has, unless a busy machine has made another node lead.
    let (next, after) = group.increment();
    assert!(after == value + 2 || next != leader && after == value + 1, "{after} after {value}: {}", group.logs());
    assert!(group.logs().contains("the group takes longer than `quorum-wait`"));
}

#[test]
fn changes_wait_for_as_many_other_nodes_as_asked_for_and_are_refused_once_one_lags() {
    let flags = ["--min-replicas-to-write", "2", "--min-replicas-max-lag", "1", "--quorum-wait", "300"];
    let group = Group::with(&flags, true);
    let (leader, value) = group.increment();
    let hung = leader % 3 + 1;
    std::fs::write(group.switch(hung), "").expect("a file");
    let mut writer = group.connect(leader).expect("it runs");
    assert_eq!(writer.call("INCR counter"), None, "the other two have it");
    let begin = Instant::now();
    let refused = loop {
        let mut writer = group.connect(leader).expect("it runs");
        match writer.call("INCR counter") {
            Some(reply) if reply.starts_with('-') => break reply,
            reply => assert_eq!(reply, None),
        }
        assert!(begin.elapsed() < PATIENCE, "{}", group.logs());
    };
    let mut reader = group.connect(leader).expect("it runs");
    assert_eq!(refused, "-NOREPLICAS Not enough good replicas to write.");
    assert_eq!(reader.call("EXISTS nothing").as_deref(), Some(":0"));
    assert_eq!(reader.call("PING").as_deref(), Some("+PONG"));
    std::fs::remove_file(group.switch(hung)).expect("the file is there");
    assert!(group.increment().1 > value + 1, "what was not acknowledged has happened");
    assert!(group.logs().contains("fewer nodes follow than `min-replicas-to-write` asks for"));
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
        (&["--sentinel-port", "1"], "this server is in none"),
        (&["--sentinel-master-name", "my master"], "letters, digits"),
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
