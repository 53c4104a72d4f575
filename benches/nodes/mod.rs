//! Servers as the nodes of one group: each is a process with a folder of its own, and all share this machine.

#![allow(dead_code, reason = "each bench takes what it needs")]

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::ops::Range;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use crate::peer::{Server, free_ports};
use crate::requests::{Requests, encode};

/// The nodes that found a group.
pub(crate) const FOUNDERS: usize = 3;

/// Longer than an election, a handover, or the loading of all data takes.
const PATIENCE: Duration = Duration::from_secs(600);

/// The pause between two questions while something is awaited.
const STEP: Duration = Duration::from_millis(5);

/// How long a node may take to reply to a question. One that is stopped never does.
const REPLY_MAX: Duration = Duration::from_millis(500);

/// A group of nodes, which are called by their places from 0.
pub(crate) struct Group {
    command: String,
    flags: Vec<String>,
    places: Vec<Place>,
    /// The folders of the nodes, removed with the group.
    root: tempfile::TempDir,
}

/// What a node keeps when its process is started again.
struct Place {
    ports: Ports,
    server: Option<Server>,
}

#[derive(Clone, Copy)]
struct Ports {
    of_clients: u16,
    of_nodes: u16,
}

impl Group {
    /// Founds a group, and waits for its leader.
    pub(crate) fn start(command: &str, flags: &[&str]) -> Group {
        let root = tempfile::tempdir().expect("a temporary folder");
        let flags = flags.iter().map(|flag| (*flag).to_owned()).collect();
        let ports: [u16; 2 * FOUNDERS] = free_ports();
        let place = |ports: &[u16]| Place { ports: Ports { of_clients: ports[0], of_nodes: ports[1] }, server: None };
        let places = ports.chunks(2).map(place).collect();
        let mut group = Group { command: command.to_owned(), flags, places, root };
        (0..FOUNDERS).for_each(|place| group.launch(place));
        group.leader();
        group.await_all();
        group
    }

    /// Launches a node, again or for the first time, and does not wait for it.
    pub(crate) fn launch(&mut self, place: usize) {
        let folder = self.folder(place);
        std::fs::create_dir_all(&folder).expect("a folder for a node");
        let nodes: Vec<String> = (0..FOUNDERS).map(|founder| self.home(founder)).collect();
        let (id, nodes, log) = ((place + 1).to_string(), nodes.join(" "), folder.join("text.log"));
        let home = self.home(place);
        let announced = home.split_once('=').expect("a home has a number").1;
        let mut flags = vec!["--node-id", &id, "--nodes", &nodes, "--node-announce", announced];
        flags.extend(["--logfile", log.to_str().expect("a folder in UTF-8")]);
        flags.extend(self.flags.iter().map(String::as_str));
        let port = self.places[place].ports.of_clients;
        self.places[place].server = Some(Server::launch(&folder, &self.command, port, &flags, &[]));
    }

    /// Launches one more node, which asks to join, and returns its place. It is no member yet.
    pub(crate) fn launch_another(&mut self) -> usize {
        let ([of_clients, of_nodes], place) = (free_ports(), self.places.len());
        self.places.push(Place { ports: Ports { of_clients, of_nodes }, server: None });
        self.launch(place);
        self.await_that("a node replies", |group| group.info(place).is_some());
        place
    }

    /// Has the leader do a step of NODE with a node. Returns whether it has.
    pub(crate) fn admin(&self, step: &str, place: usize) -> bool {
        self.client(self.leader()).is_ok_and(|mut client| client.ask(&["NODE", step, &(place + 1).to_string()]).is_ok())
    }

    fn folder(&self, place: usize) -> PathBuf {
        self.root.path().join(format!("node-{}", place + 1))
    }

    /// A node as in the parameter `nodes`.
    fn home(&self, place: usize) -> String {
        let Ports { of_clients, of_nodes } = self.places[place].ports;
        format!("{}=127.0.0.1:{of_clients}@{of_nodes}", place + 1)
    }

    /// The number of nodes.
    pub(crate) fn len(&self) -> usize {
        self.places.len()
    }

    /// The server of a node that was launched.
    pub(crate) fn server(&self, place: usize) -> &Server {
        self.places[place].server.as_ref().expect("the node was launched")
    }

    /// Makes the group the servers of its leader and of its followers. The leader must not outlive them.
    pub(crate) fn into_servers(mut self) -> (Server, Vec<Server>) {
        let leader = self.places.remove(self.leader()).server.expect("a leader was launched");
        let mut followers: Vec<Server> = self.places.into_iter().filter_map(|place| place.server).collect();
        // The last one to end keeps the folder.
        let last = followers.pop().map(|last| last.keeping(self.root));
        followers.extend(last);
        (leader, followers)
    }

    /// The servers of all nodes.
    pub(crate) fn servers(&self) -> impl Iterator<Item = &Server> {
        self.places.iter().filter_map(|place| place.server.as_ref())
    }

    /// Ends a node without notice.
    pub(crate) fn kill(&mut self, place: usize) {
        self.places[place].server = None;
    }

    /// Ends a node in order. A leader hands over first.
    pub(crate) fn stop(&mut self, place: usize) {
        self.places[place].server.take().expect("the node was launched").stop();
    }

    /// The end of what a node has written to its text log, for the reader of a failure.
    fn text_log(&self, place: usize) -> String {
        let text = std::fs::read_to_string(self.folder(place).join("text.log")).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(10)..].join("\n")
    }

    /// The place of the leader, once there is one.
    pub(crate) fn leader(&self) -> usize {
        self.leader_but(usize::MAX)
    }

    /// As [`leader`](Self::leader), passing over a node that may believe to lead.
    pub(crate) fn leader_but(&self, other: usize) -> usize {
        let mut found = None;
        self.await_that("a node leads", |group| {
            let leads = |place: &usize| *place != other && group.info(*place).is_some_and(|info| info.leads());
            found = (0..group.len()).find(leads);
            found.is_some()
        });
        found.expect("just found")
    }

    /// Waits until all other nodes have caught up with the leader.
    pub(crate) fn await_all(&self) {
        self.await_that("all nodes have caught up", |group| {
            let leader = group.leader();
            (0..group.len()).all(|place| place == leader || group.has_caught_up(place))
        });
    }

    /// Whether a node follows the leader and has everything that the leader had a moment ago.
    pub(crate) fn has_caught_up(&self, place: usize) -> bool {
        self.has_caught_up_with(place, self.leader())
    }

    /// As [`has_caught_up`](Self::has_caught_up), with this leader.
    pub(crate) fn has_caught_up_with(&self, place: usize, leader: usize) -> bool {
        let Some(leader) = self.info(leader) else { return false };
        self.info(place).is_some_and(|info| info.follows() && info.units() >= leader.units())
    }

    /// Waits until something is true of the group.
    pub(crate) fn await_that(&self, what: &str, mut is_true: impl FnMut(&Group) -> bool) {
        let begin = Instant::now();
        while !is_true(self) {
            if begin.elapsed() > PATIENCE {
                let logs: Vec<String> = (0..self.len()).map(|place| self.text_log(place)).collect();
                panic!("waiting until {what} takes too long:\n{}", logs.join("\n\n"));
            }
            std::thread::sleep(STEP);
        }
    }

    /// Has the group take a request for each number of a range, `at_once` at a time, whichever node leads. Those in
    /// flight when the leader changes are sent again.
    pub(crate) fn fill(&self, range: Range<u64>, at_once: u64, request: &[u8]) {
        let (mut client, mut next) = (None, range.start);
        while next < range.end {
            let count = at_once.min(range.end - next);
            let batch = Requests::new(request, count as usize).numbered(next).to_vec();
            client = client.or_else(|| self.client(self.leader()).ok()?.with_patience(PATIENCE).ok());
            match client.as_mut().map(|client: &mut Client| client.pipeline(&batch, count)) {
                Some(Ok(())) => next += count,
                _ => client = None,
            }
        }
    }

    /// What INFO says of a node; `None` if the node does not reply.
    pub(crate) fn info(&self, place: usize) -> Option<Info> {
        self.client(place).ok()?.ask(&["INFO", "replication", "persistence"]).ok().map(Info)
    }

    /// A client of a node.
    pub(crate) fn client(&self, place: usize) -> io::Result<Client> {
        self.places[place].server.as_ref().map_or(Err(io::ErrorKind::NotConnected.into()), Client::new)
    }
}

/// A reply to INFO.
pub(crate) struct Info(String);

impl Info {
    fn field(&self, name: &str) -> &str {
        let mut fields = self.0.lines().filter_map(|line| line.split_once(':'));
        fields.find(|(field, _)| *field == name).map_or("", |(_, value)| value)
    }

    pub(crate) fn has(&self, name: &str, value: &str) -> bool {
        self.field(name) == value
    }

    pub(crate) fn leads(&self) -> bool {
        self.has("role", "master")
    }

    /// Whether the node follows a leader, and has loaded its data.
    fn follows(&self) -> bool {
        !self.leads() && self.has("master_link_status", "up") && self.has("loading", "0")
    }

    /// Snapshots that the node has made on request.
    pub(crate) fn snapshots(&self) -> u64 {
        self.field("rdb_saves").parse().unwrap_or(0)
    }

    /// Units that the node has: the Lsn of the last one.
    pub(crate) fn units(&self) -> u64 {
        self.field("master_repl_offset").parse().unwrap_or(0)
    }
}

/// A client with one connection, which takes nothing amiss: nodes end, hang, and refuse calls.
pub(crate) struct Client {
    stream: TcpStream,
}

impl Client {
    pub(crate) fn new(server: &Server) -> io::Result<Client> {
        let stream = TcpStream::connect(("127.0.0.1", server.port))?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(REPLY_MAX))?;
        Ok(Client { stream })
    }

    /// Limits the time that a reply may take.
    pub(crate) fn with_patience(self, patience: Duration) -> io::Result<Client> {
        self.stream.set_read_timeout(Some(patience))?;
        Ok(self)
    }

    /// Sends requests that are all answered by OK, and waits for that. Another reply is an error.
    fn pipeline(&mut self, requests: &[u8], replies: u64) -> io::Result<()> {
        const OK: &[u8] = b"+OK\r\n";
        self.stream.write_all(requests)?;
        let mut reply = vec![0; OK.len() * replies as usize];
        self.stream.read_exact(&mut reply)?;
        if reply.chunks(OK.len()).all(|reply| reply == OK) { Ok(()) } else { Err(io::ErrorKind::InvalidData.into()) }
    }

    /// Sends a command. Returns the text of its reply, which is a single line or a bulk string. An error in reply is an
    /// error here.
    pub(crate) fn ask(&mut self, words: &[&str]) -> io::Result<String> {
        self.stream.write_all(&encode(words))?;
        let (mut reply, mut piece) = (Vec::new(), [0; 4096]);
        loop {
            match self.stream.read(&mut piece)? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                n => reply.extend_from_slice(&piece[..n]),
            }
            let Some(head) = reply.windows(2).position(|two| two == b"\r\n") else { continue };
            let (kind, line) = (reply[0], String::from_utf8_lossy(&reply[1..head]).into_owned());
            match (kind, line.parse::<usize>()) {
                (b'-', _) => return Err(io::Error::other(line)),
                (b'$', Ok(len)) if reply.len() < head + 2 + len + 2 => {}
                (b'$', Ok(len)) => return Ok(String::from_utf8_lossy(&reply[head + 2..head + 2 + len]).into_owned()),
                _ => return Ok(line),
            }
        }
    }
}
