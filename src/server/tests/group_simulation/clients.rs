//! Clients: each has one connection, to a server that leads or to any other, and a few requests on their way.

use std::collections::VecDeque;

use super::super::logged::send;
use super::judge::{Asked, Final, Judge};
use super::requests::{COUNTER, Kind, LEFT, LIST, QUEUE, RIGHT, Request, Value, draw};
use super::server::Process;
use super::world::{Event, MS, World};
use crate::base::rng::Rng;
use crate::engine::{Engine, Fed};
use crate::log::replicated::types::NodeId;
use crate::resp::reply::{Form, Reply};
use crate::resp::request::Decoder;
use crate::session::Peer;
use crate::spec::session_key::SessionKey;

const CLIENTS: usize = 6;
/// Requests of a client that have no answer yet.
const PIPELINED_MAX: usize = 4;
/// A client asks for the newest of these keys.
const KNOWN_MAX: usize = 8;

/// All clients.
pub(super) struct Clients {
    all: Vec<Client>,
    last_number: u64,
    /// The newest keys that are kept for a while.
    known: VecDeque<u64>,
}

/// A client.
#[derive(Default)]
struct Client {
    connection: Option<Connection>,
}

struct Connection {
    to: NodeId,
    key: SessionKey,
    /// Replies that have not come: `None` are those of which nothing is expected.
    expected: VecDeque<Option<Asked>>,
    received: Vec<u8>,
}

impl Clients {
    pub(super) fn new() -> Clients {
        Clients { all: (0..CLIENTS).map(|_| Client::default()).collect(), last_number: 0, known: VecDeque::new() }
    }

    pub(super) fn count(&self) -> usize {
        self.all.len()
    }

    /// Returns the number of requests without an answer.
    pub(super) fn waiting(&self) -> usize {
        self.all.iter().filter_map(|client| client.connection.as_ref()).map(|to| to.expected.len()).sum()
    }

    /// Ends the connections to a server that is gone.
    pub(super) fn lose_server(&mut self, id: NodeId, judge: &mut Judge) {
        for client in &mut self.all {
            if let Some(connection) = client.connection.take_if(|connection| connection.to == id) {
                connection.lose(judge);
            }
        }
    }

    /// Runs a command whose reply nobody reads.
    pub(super) fn line(&self, engine: &mut Engine, words: &[&str]) {
        let key = engine.server.open_session(Peer::default());
        let _ = ask(engine, key, &super::requests::encode_one(words));
        engine.disconnect(key);
    }

    fn draw(&mut self, rng: &mut Rng, only_reads: bool) -> Request {
        self.last_number += 1;
        let known = self.known.get(rng.below(self.known.len() as u64) as usize).copied().unwrap_or(0);
        let request = draw(rng, self.last_number, known, only_reads);
        if let Kind::Keep { number, .. } = request.kind {
            self.known.push_front(number);
            self.known.truncate(KNOWN_MAX);
        }
        request
    }
}

impl Connection {
    /// Nobody knows what has become of the requests that have no answer.
    fn lose(self, judge: &mut Judge) {
        self.expected.iter().flatten().for_each(|asked| judge.lose(asked));
    }

    /// Takes what has come.
    fn receive(&mut self, sent: &[u8], judge: &mut Judge) {
        self.received.extend_from_slice(sent);
        let mut rest = &self.received[..];
        while !rest.is_empty()
            && let Some(reply) = Value::take(&mut rest)
        {
            let expected = self.expected.pop_front().unwrap_or_else(|| panic!("{reply:?} answers nothing"));
            if let Some(asked) = expected {
                judge.answer(&asked, &reply);
            }
        }
        let left = rest.len();
        self.received.drain(..self.received.len() - left);
    }
}

impl World {
    /// Lets a client send a request, or connect first.
    pub(super) fn client(&mut self, number: usize, is_quiet: bool) {
        let pause = if self.rng.below(100) == 0 { 200 * MS } else { 12 * MS };
        self.soon(pause, Event::Client(number));
        if is_quiet {
            return;
        }
        let Some(to) = self.choose(number) else { return };
        let server = &self.servers[&to];
        if server.paused_until.max(server.busy_until) > self.now {
            return;
        }
        let life = server.life;
        self.with(to, life, |world, process| {
            world.ask(number, to, process);
            // Its task sends when it has read all that there was, or others' tasks run first.
            if world.rng.below(2) == 0 {
                world.serve_clients(to, life, process);
                world.wake_node(to, life, process, 100);
            } else {
                world.wake_engine(to, life, process, 3 * MS);
            }
        });
    }

    /// Returns the server that a client is connected to, or connects to now.
    fn choose(&mut self, number: usize) -> Option<NodeId> {
        let leads = |id: &NodeId| self.servers[id].process.as_ref().is_some_and(Process::leads);
        let all: Vec<NodeId> =
            self.servers.values().filter(|server| server.process.is_some()).map(|server| server.id).collect();
        let leaders: Vec<NodeId> = all.iter().copied().filter(leads).collect();
        if let Some(connection) = &self.clients.all[number].connection {
            let to = connection.to;
            // Now and then it goes away by itself, to find a leader. Of two leaders, one leads no more and does not
            // know: then some clients are here and some there.
            let stays = match leaders.len() {
                2.. => self.rng.below(4) > 0,
                _ => leaders.contains(&to) || connection.expected.iter().any(Option::is_some) || self.rng.below(10) > 0,
            };
            if stays {
                return Some(to);
            }
            if let Some(connection) = self.clients.all[number].connection.take() {
                let life = self.servers[&to].life;
                self.with(to, life, |_, process| process.engine.disconnect(connection.key));
                connection.lose(&mut self.judge);
            }
        }
        let from = if leaders.is_empty() || self.rng.below(8) == 0 { all } else { leaders };
        (!from.is_empty()).then(|| from[self.rng.below(from.len() as u64) as usize])
    }

    fn ask(&mut self, number: usize, to: NodeId, process: &mut Process) {
        let engine = &mut process.engine;
        let connection = self.clients.all[number].connection.get_or_insert_with(|| Connection {
            to,
            key: engine.server.open_session(Peer::default()),
            expected: VecDeque::new(),
            received: Vec::new(),
        });
        let key = connection.key;
        let is_free = connection.expected.len() < PIPELINED_MAX;
        let sessions = &mut process.engine.server.clients.sessions;
        if !is_free || sessions.get_mut(key).is_none_or(|session| session.is_suspended() || session.is_killed()) {
            return;
        }
        let leads = process.leads();
        let only_reads = !leads && self.rng.below(3) > 0;
        let request = self.clients.draw(&mut self.rng, only_reads);
        let asked = self.judge.ask(request.kind, leads);
        if let Some(connection) = &mut self.clients.all[number].connection {
            connection.expected.extend((0..request.before).map(|_| None));
            connection.expected.push_back(Some(asked));
        }
        ask(&mut process.engine, key, &request.bytes);
    }

    /// Lets the sockets of a server take what may leave, and ends the connections that it has ended.
    pub(super) fn serve_clients(&mut self, id: NodeId, life: u64, process: &mut Process) {
        for client in &mut self.clients.all {
            let Some(connection) = client.connection.as_mut().filter(|connection| connection.to == id) else {
                continue;
            };
            let sent = send(&mut process.engine.server, connection.key);
            let sessions = &mut process.engine.server.clients.sessions;
            let session = sessions.get_mut(connection.key);
            self.reached.held += u64::from(session.as_ref().is_some_and(|session| session.has_unsent()));
            let is_gone =
                session.is_none_or(|session| session.is_killed() || session.is_leaving() && !session.has_unsent());
            connection.receive(&sent, &mut self.judge);
            if is_gone && let Some(connection) = client.connection.take() {
                self.reached.disconnected += 1;
                process.engine.disconnect(connection.key);
                connection.lose(&mut self.judge);
            }
        }
        if process.take_woken() {
            self.wake_engine(id, life, process, 200);
        }
    }
}

/// Feeds a request. What its replies are is in the outbox then.
fn ask(engine: &mut Engine, key: SessionKey, request: &[u8]) -> Option<()> {
    let mut decoder = Decoder::new();
    loop {
        let mut out = Reply::new(Form::Resp2);
        let fed = engine.feed(key, &mut decoder, request, &mut out);
        engine.server.clients.sessions.get_mut(key)?.reply(&mut out);
        if !matches!(fed, Fed::Paused) {
            return Some(());
        }
    }
}

/// Reads all data that the judge compares.
pub(super) fn read_all(process: &mut Process) -> Final {
    let mut read = |words: &[&str]| {
        let key = process.engine.server.open_session(Peer::default());
        let mut out = Reply::new(Form::Resp2);
        process.engine.feed(key, &mut Decoder::new(), &super::requests::encode_one(words), &mut out);
        let reply = Value::take(&mut out.as_bytes()).expect("a reply");
        process.engine.disconnect(key);
        reply
    };
    let mut list = |name| read(&["LRANGE", name, "0", "-1"]).items().iter().map(Value::number).collect::<Vec<u64>>();
    let (list, left, right, queue) = (list(LIST), list(LEFT), list(RIGHT), list(QUEUE));
    Final { list, left, right, queue, counter: read(&["GET", COUNTER]).number() }
}
