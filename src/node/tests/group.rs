//! A group under test, and the model of an engine.

use std::collections::{BTreeMap, VecDeque};
use std::path::PathBuf;
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use tempfile::TempDir;

use super::node;
use crate::base::clock::Clock;
use crate::base::lsn::Lsn;
use crate::base::rng::Rng;
use crate::consensus::message::Round;
use crate::consensus::output::Order;
use crate::log::block::unit_head;
use crate::log::directory::Directory;
use crate::log::error::LogError;
use crate::log::replicated::block::{BLOCK_HEAD_BYTES, Block};
use crate::log::replicated::mark::Mark;
use crate::log::replicated::members::{Home, MemberChange, Members};
use crate::log::replicated::types::{Link, Position, Term};
use crate::log::restore::Restore;
use crate::log::snapshot::writer::{Begin, Sizes, SnapshotWriter};
use crate::node::door::{Answer, Call, Door, News};
use crate::node::error::NodeError;
use crate::node::loopback::{self, Hosts};
use crate::node::thread::NodeThread;

/// Executes blocks of one unit while it leads, and applies what is committed.
struct Engine {
    directory: Arc<Directory>,
    /// The committed units.
    units: Vec<Vec<u8>>,
    position: Position,
    members: Members,
    reign: Option<Term>,
    /// The end of what was executed.
    executed: Link,
    unconfirmed: VecDeque<Block>,
    committed: Lsn,
    confirmed: Option<Round>,
    orders: Vec<Order>,
    /// Whether a snapshot is wanted, and the one under way.
    wants_snapshot: bool,
    snapshot: Arc<Mutex<Option<SnapshotWriter>>>,
}

impl Engine {
    /// Begins with the data as of an entry, or without any if a newer snapshot has just taken the place of the files,
    /// which is loaded next.
    fn load(directory: Arc<Directory>, mark: &Mark) -> Engine {
        let restored = Restore::open_until(Arc::clone(&directory), mark.at.link.lsn);
        let units = match restored.and_then(|mut restore| restore.effects()) {
            Err(LogError::Missing { .. }) => Vec::new(),
            restored => restored.unwrap_or_else(|error| panic!("{error}")),
        };
        Engine {
            directory,
            units,
            position: mark.at,
            members: mark.members.clone(),
            reign: None,
            executed: Link::default(),
            unconfirmed: VecDeque::new(),
            committed: Lsn::NONE,
            confirmed: None,
            orders: Vec::new(),
            wants_snapshot: false,
            snapshot: Arc::default(),
        }
    }

    /// Goes on with a snapshot, or begins one that is wanted.
    fn save(&mut self, door: &Door) {
        let mut under_way = self.snapshot.lock().unwrap();
        match under_way.as_ref().map(SnapshotWriter::outcome) {
            Some(None) => {}
            Some(Some(outcome)) => {
                *under_way = None;
                door.call(Call::SnapshotMade(outcome.unwrap().end.mark.unwrap()));
            }
            None if self.wants_snapshot => {
                self.wants_snapshot = false;
                let units: Vec<u8> = self.units.iter().flat_map(|unit| encoded(unit)).collect();
                let (count, at, members) = (self.units.len() as u32, self.position, self.members.clone());
                let begin = Begin {
                    serial: Rng::from_entropy().next_u64().max(1),
                    time_ms: 1,
                    sizes: Sizes::default(),
                    notify: Box::new(|| {}),
                };
                let place = Arc::clone(&self.snapshot);
                let begun = move |mut writer: SnapshotWriter| {
                    writer.start().unwrap();
                    writer.push(units, count);
                    writer.finish_at(at, members, 1);
                    *place.lock().unwrap() = Some(writer);
                };
                door.call(Call::Snapshot(begin, Box::new(begun)));
            }
            None => {}
        }
    }

    /// Returns the number of own units that are committed now.
    fn follow(&mut self, news: &News) -> usize {
        for (_, order) in &news.orders {
            self.orders.push(order.clone());
            match order {
                Order::Load(mark) => {
                    let orders = std::mem::take(&mut self.orders);
                    *self = Engine { orders, ..Engine::load(Arc::clone(&self.directory), mark) };
                }
                Order::Apply { at, block } => {
                    if let Some(own) = self.unconfirmed.pop_front() {
                        assert_eq!(own.link(), block.link(), "another block was committed than was executed");
                    }
                    assert!(block.follows(self.position.link));
                    self.units.extend(block.units().map(|unit| unit.effects.to_vec()));
                    self.position = *at;
                }
                Order::Members { at, members } => (self.position, self.members) = (*at, members.clone()),
                Order::Lead(term) => {
                    assert!(self.unconfirmed.is_empty());
                    (self.reign, self.executed) = (Some(*term), self.position.link);
                    self.committed = self.position.link.lsn;
                }
                Order::Deposed { term, .. } => {
                    assert_eq!(self.reign.take(), Some(*term));
                    self.unconfirmed.clear();
                }
            }
        }
        self.confirmed = news.confirmed.or(self.confirmed);
        let committed = news.committed.filter(|(term, _)| self.reign == Some(*term)).map_or(self.committed, |it| it.1);
        let before = std::mem::replace(&mut self.committed, committed);
        (committed.get() - before.get()) as usize
    }

    fn execute(&mut self, unit: &str) -> Option<Block> {
        let reign = self.reign?;
        let mut body = vec![0; BLOCK_HEAD_BYTES];
        body.extend(encoded(unit.as_bytes()));
        let block = Block::seal(body, reign, self.executed, 1, 0).unwrap();
        self.executed = block.link();
        self.unconfirmed.push_back(block.clone());
        Some(block)
    }
}

fn encoded(unit: &[u8]) -> Vec<u8> {
    [&unit_head(1, 1, unit.len() as u32)[..], unit].concat()
}

/// A node that runs.
struct Server {
    _thread: NodeThread,
    door: Arc<Door>,
    engine: Engine,
    failure: Option<NodeError>,
}

/// See the module's header.
pub(super) struct Group {
    folder: TempDir,
    hosts: Hosts,
    founders: u64,
    servers: BTreeMap<u64, Server>,
    /// The node whose engine does nothing.
    held: Option<u64>,
    /// Units that clients were told of as done.
    pub(super) acknowledged: usize,
}

impl Group {
    pub(super) fn new(founders: u64) -> Group {
        let hosts = Hosts::take();
        let folder = tempfile::tempdir().unwrap();
        Group { folder, hosts, founders, servers: BTreeMap::new(), held: None, acknowledged: 0 }
    }

    fn directory(&self, number: u64) -> PathBuf {
        self.folder.path().join(number.to_string())
    }

    pub(super) fn start(&mut self, number: u64) {
        let founders = (1..=self.founders).map(|number| (node(number), self.hosts.address(number))).collect();
        let address = self.hosts.address(number);
        let (mut settings, directory) = loopback::open(node(number), address, founders, &self.directory(number));
        settings.bounds.engine_stuck_after = Duration::from_secs(3);
        let door = Arc::new(Door::new(Clock::system(), Box::new(|| {})));
        let engine = Engine::load(Arc::clone(&directory), &Mark::default());
        let thread = NodeThread::start(settings, directory, Arc::clone(&door)).unwrap();
        let server = Server { _thread: thread, door, engine, failure: None };
        assert!(self.servers.insert(number, server).is_none());
    }

    /// Lets the engine of one node, or of none, do nothing.
    pub(super) fn hold_engine(&mut self, number: Option<u64>) {
        self.held = number;
    }

    pub(super) fn stop(&mut self, number: u64) {
        self.servers.remove(&number).unwrap();
    }

    pub(super) fn lose_directory(&self, number: u64) {
        std::fs::remove_dir_all(self.directory(number)).unwrap();
    }

    /// Lets all engines follow their news.
    fn follow(&mut self) {
        for (_, server) in self.servers.iter_mut().filter(|(number, _)| Some(**number) != self.held) {
            server.door.engine_is_here();
            let news = server.door.take_news();
            self.acknowledged += server.engine.follow(&news);
            if let Some((last, _)) = news.orders.last() {
                server.door.call(Call::Handled(*last));
            }
            server.engine.wants_snapshot |= news.wants_snapshot;
            server.engine.save(&server.door);
            server.failure = server.failure.take().or(news.failure);
        }
    }

    /// Lets the group work until something is true.
    pub(super) fn until(&mut self, what: &str, is_true: impl Fn(&Group) -> bool) {
        let begin = Instant::now();
        self.follow();
        while !is_true(self) {
            assert!(begin.elapsed() < Duration::from_secs(60), "it did not come to this: {what}");
            thread::sleep(Duration::from_millis(1));
            self.follow();
        }
    }

    pub(super) fn run_for(&mut self, time: Duration) {
        let end = Instant::now() + time;
        while Instant::now() < end {
            thread::sleep(Duration::from_millis(1));
            self.follow();
        }
    }

    /// Waits for a leader, and returns its number.
    pub(super) fn until_led(&mut self) -> u64 {
        self.until("a node leads", |group| group.leader().is_some());
        self.leader().unwrap()
    }

    pub(super) fn leader(&self) -> Option<u64> {
        self.servers.iter().find(|(_, server)| server.engine.reign.is_some()).map(|(number, _)| *number)
    }

    pub(super) fn propose(&mut self, number: u64, unit: &str) {
        let server = self.servers.get_mut(&number).unwrap();
        let block = server.engine.execute(unit).unwrap();
        server.door.call(Call::Propose(block));
    }

    /// Proposes units one after the other, and waits until all are committed.
    pub(super) fn propose_and_wait(&mut self, number: u64, count: usize) {
        let all = self.acknowledged + count;
        for unit in 0..count {
            // Some of them fill a segment, so that the log is cut.
            self.propose(number, &format!("unit {unit} of node {number}{}", ".".repeat(8 * 1024)));
        }
        self.until("the units are committed", |group| group.acknowledged >= all);
    }

    /// Proposes a unit, again after each change of the leader, which a long unit may bring about on a busy machine.
    pub(super) fn propose_until_committed(&mut self, unit: &str) {
        let all = self.acknowledged + 1;
        while self.acknowledged < all {
            let leader = self.until_led();
            let term = self.term_of(leader);
            self.propose(leader, unit);
            self.until("the unit is committed, or the leader gone", |group| {
                group.acknowledged >= all || group.term_of(leader) != term
            });
        }
    }

    /// Asks a node, and waits for its answer.
    pub(super) fn ask<T: Send + 'static>(&self, number: u64, call: impl FnOnce(Answer<T>) -> Call) -> T {
        let (sender, receiver) = channel();
        self.door(number).call(call(Box::new(move |answer| sender.send(answer).unwrap())));
        receiver.recv_timeout(Duration::from_secs(60)).unwrap()
    }

    /// Changes the members, as soon as the leader takes the change.
    pub(super) fn change(&mut self, change: &MemberChange) {
        let begin = Instant::now();
        loop {
            let leader = self.until_led();
            let term = self.term_of(leader).unwrap();
            match self.ask(leader, |answer| Call::Change(term, change.clone(), answer)) {
                Ok(()) => return,
                Err(refusal) => assert!(begin.elapsed() < Duration::from_secs(60), "{change:?}: {refusal}"),
            }
            self.run_for(Duration::from_millis(20));
        }
    }

    /// Returns where a node is, and which directory it has.
    pub(super) fn home(&self, number: u64) -> Home {
        Home { address: self.hosts.address(number), birth: self.servers[&number].engine.directory.id().birth() }
    }

    /// Makes a snapshot of a node, and gives up the log before it.
    pub(super) fn save(&mut self, number: u64) {
        let before = self.snapshots(number);
        self.servers.get_mut(&number).unwrap().engine.wants_snapshot = true;
        self.until("the snapshot is there", |group| group.snapshots(number) != before);
        self.until("it is known", |group| group.servers[&number].engine.snapshot.lock().unwrap().is_none());
    }

    /// Returns the Lsns of the snapshots in the directory of a node.
    pub(super) fn snapshots(&self, number: u64) -> Vec<Lsn> {
        self.servers[&number].engine.directory.snapshots().unwrap()
    }

    /// Whether a snapshot is being written in the directory of a node.
    pub(super) fn has_unfinished_snapshot(&self, number: u64) -> bool {
        let mut files = std::fs::read_dir(self.directory(number)).unwrap();
        files.any(|file| {
            let name = file.unwrap().file_name().into_string().unwrap();
            name.starts_with("snapshot") && name.ends_with(".tmp")
        })
    }

    pub(super) fn members_of(&self, number: u64) -> &Members {
        &self.servers[&number].engine.members
    }

    pub(super) fn door(&self, number: u64) -> &Door {
        &self.servers[&number].door
    }

    pub(super) fn units(&self, number: u64) -> usize {
        self.servers[&number].engine.units.len()
    }

    pub(super) fn term_of(&self, number: u64) -> Option<Term> {
        self.servers[&number].engine.reign
    }

    pub(super) fn confirmed_of(&self, number: u64) -> Option<Round> {
        self.servers[&number].engine.confirmed
    }

    pub(super) fn orders_of(&self, number: u64) -> &[Order] {
        &self.servers[&number].engine.orders
    }

    pub(super) fn failure_of(&self, number: u64) -> Option<&NodeError> {
        self.servers[&number].failure.as_ref()
    }

    pub(super) fn check_that_all_agree(&self) {
        let mut engines = self.servers.values().map(|server| &server.engine);
        let first = engines.next().unwrap();
        assert!(engines.all(|other| other.units == first.units && other.position.link == first.position.link));
    }
}
