//! The servers, the links between them, and the time that passes for all, in one order of events.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::mem;

use super::super::simulation::state_of;
use super::Reached;
use super::clients::Clients;
use super::faults::{Faults, Wire};
use super::judge::Judge;
use super::server::{Process, Server, Started};
use super::transfers::Transfers;
use crate::base::lsn::Lsn;
use crate::base::rng::Rng;
use crate::consensus::fetch::{Fetch, Gone};
use crate::consensus::limits::{MEMORY_BYTES, TICK};
use crate::consensus::message::Message;
use crate::log::replicated::entry::Entry;
use crate::log::replicated::members::Home;
use crate::log::replicated::types::NodeId;
use crate::log::snapshot::writer::remove_older;

/// Times are in microseconds.
pub(super) const MS: u64 = 1_000;
/// Faults happen up to this time.
pub(super) const FAULTS_END: u64 = 4_000 * MS;
/// From here on clients are silent, and the group comes to rest. Then all processes are killed, start once more, and
/// come to rest again.
const CLIENTS_END: u64 = FAULTS_END + 2_000 * MS;
/// The time after which the group must have come to rest.
const REST_MAX: u64 = 3_000 * MS;
/// Time between two ticks of an engine.
const ENGINE_TICK: u64 = 100 * MS;

/// An event at some time. Those of a process name the life that they belong to.
#[derive(Debug)]
pub(super) enum Event {
    /// The clock of the thread of the node.
    NodeTick(NodeId, u64),
    /// The thread of the node is woken.
    Turn(NodeId, u64),
    /// The clockwork of the server.
    EngineTick(NodeId, u64),
    /// The engine is woken.
    Engine(NodeId, u64),
    /// The log's threads write, and prepare segments.
    Write(NodeId, u64),
    Chore(NodeId, u64),
    /// The thread of a snapshot that is being made.
    Save(NodeId, u64),
    /// Entries are read from the files, and then there.
    Read(NodeId, u64, Fetch),
    Fetched(NodeId, u64, u64, Result<Vec<Entry>, Gone>),
    /// Snapshots before the Lsn are removed.
    RemoveOlder(NodeId, u64, Lsn),
    Deliver(Message),
    /// The next step of the transfer of a snapshot.
    Transfer(u64),
    /// A snapshot has its name, and its message is due.
    Installed(NodeId, u64, Message),
    /// The end of a transfer is known to its sender.
    Report(NodeId, u64, NodeId, bool),
    Client(usize),
    Fault,
    Start(NodeId),
    Heal(NodeId, NodeId, u64),
}

/// The stages of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// Things go wrong.
    Faults,
    /// The group comes back to life.
    Healed,
    /// Clients are silent.
    Quiet { since: u64 },
    /// All processes have started once more.
    Restarted { since: u64 },
}

/// See the file's header.
pub(super) struct World {
    pub(super) rng: Rng,
    pub(super) now: u64,
    events: BinaryHeap<Reverse<(u64, u64)>>,
    pending: BTreeMap<u64, Event>,
    sequence: u64,
    pub(super) servers: BTreeMap<NodeId, Server>,
    pub(super) founders: BTreeMap<NodeId, Home>,
    pub(super) wires: BTreeMap<(NodeId, NodeId), Wire>,
    pub(super) transfers: Transfers,
    pub(super) clients: Clients,
    pub(super) judge: Judge,
    pub(super) faults: Faults,
    pub(super) next_node: u64,
    pub(super) reached: Reached,
    pub(super) trace: u64,
    answered_at_heal: u64,
    /// How far the run has come.
    stage: Stage,
}

impl World {
    /// `focus` names faults that this run has in any case.
    pub(super) fn new(seed: u64, focus: fn(&mut Faults)) -> World {
        let mut rng = Rng::seeded(seed ^ 0x6e0d35);
        let voters = if rng.below(5) == 0 { 5 } else { 3 };
        let mut faults = Faults::draw(&mut rng);
        focus(&mut faults);
        let mut world = World {
            now: 0,
            events: BinaryHeap::new(),
            pending: BTreeMap::new(),
            sequence: 0,
            servers: BTreeMap::new(),
            founders: BTreeMap::new(),
            wires: BTreeMap::new(),
            transfers: Transfers::default(),
            clients: Clients::new(),
            judge: Judge::default(),
            faults,
            next_node: voters + 1,
            reached: Reached::default(),
            trace: seed,
            answered_at_heal: 0,
            stage: Stage::Faults,
            rng,
        };
        for id in (1..=voters).filter_map(NodeId::new) {
            world.add_server(id);
        }
        world.founders = world.servers.iter().map(|(id, server)| (*id, server.home())).collect();
        let ids: Vec<NodeId> = world.servers.keys().copied().collect();
        for id in ids {
            world.soon(20 * MS, Event::Start(id));
        }
        for client in 0..world.clients.count() {
            world.soon(300 * MS, Event::Client(client));
        }
        world.after(300 * MS, Event::Fault);
        world
    }

    pub(super) fn add_server(&mut self, id: NodeId) {
        let keep_bytes = [0, 20_000, 1 << 30][self.rng.below(3) as usize];
        let memory_bytes = if self.faults.memory { self.rng.below(5_000) } else { MEMORY_BYTES };
        let server = Server::new(id, self.now, keep_bytes, memory_bytes, &mut self.rng);
        self.servers.insert(id, server);
    }

    /// Runs until the end, and judges.
    pub(super) fn run(&mut self) {
        while let Some(Reverse((at, sequence))) = self.events.pop() {
            let Some(event) = self.pending.remove(&sequence) else { continue };
            self.now = self.now.max(at);
            self.judge.now = self.now;
            if self.is_over() {
                break;
            }
            self.trace = (self.trace ^ at).wrapping_mul(0x0000_0100_0000_01b3) ^ sequence;
            self.happen(event);
        }
        self.judge_end();
    }

    /// Goes on to the next stage when the time has come. Returns whether there is none.
    fn is_over(&mut self) -> bool {
        let (now, stage) = (self.now, self.stage);
        match stage {
            Stage::Faults if now >= FAULTS_END => {
                self.stage = Stage::Healed;
                self.heal();
                self.answered_at_heal = self.judge.answered;
            }
            Stage::Healed if now >= CLIENTS_END => self.stage = Stage::Quiet { since: now },
            Stage::Quiet { since } if self.is_at_rest(since) => {
                self.judge_rest();
                self.stage = Stage::Restarted { since: now };
                let ids: Vec<NodeId> = self.servers.keys().copied().collect();
                for id in ids {
                    self.stop(id, true);
                    self.soon(5 * MS, Event::Start(id));
                }
            }
            Stage::Restarted { since } => return self.is_at_rest(since),
            _ => {}
        }
        false
    }

    pub(super) fn after(&mut self, delay: u64, event: Event) {
        self.sequence += 1;
        self.events.push(Reverse((self.now + delay, self.sequence)));
        self.pending.insert(self.sequence, event);
    }

    /// Lets an event happen after at most `most`.
    pub(super) fn soon(&mut self, most: u64, event: Event) {
        let delay = 1 + self.rng.below(most);
        self.after(delay, event);
    }

    fn happen(&mut self, event: Event) {
        if let Some((id, is_of_engine)) = event.place()
            && let Some(server) = self.servers.get(&id)
        {
            // A process that stands still does everything later.
            let busy_until = if is_of_engine { server.busy_until } else { 0 };
            let waits_until = server.paused_until.max(busy_until);
            if waits_until > self.now {
                return self.after(waits_until - self.now, event);
            }
        }
        match event {
            Event::NodeTick(id, life) => {
                self.turn(id, life);
                let late = if self.rng.below(50) == 0 { self.rng.below(30 * MS) } else { self.rng.below(MS) };
                self.again(id, life, TICK.as_micros() as u64 + late, Event::NodeTick(id, life));
            }
            Event::Turn(id, life) => self.turn(id, life),
            Event::EngineTick(id, life) => {
                self.with(id, life, |_, process| _ = process.engine.tick());
                self.engine(id, life);
                self.again(id, life, ENGINE_TICK, Event::EngineTick(id, life));
            }
            Event::Engine(id, life) => self.engine(id, life),
            Event::Write(id, life) => self.write(id, life),
            Event::Chore(id, life) => {
                self.with(id, life, |_, process| _ = process.log.do_chore());
                let pause = 2 * MS + self.rng.below(20 * MS);
                self.again(id, life, pause, Event::Chore(id, life));
            }
            Event::Save(id, life) => self.save(id, life),
            Event::Read(id, life, fetch) => self.with(id, life, |world, process| {
                let read = process.fetcher.read(&process.log, &fetch);
                world.reached.fetches += u64::from(read.is_ok());
                world.soon(2 * MS, Event::Fetched(id, life, fetch.number, read));
            }),
            Event::Fetched(id, life, number, read) => self.with(id, life, |world, process| {
                process.arrived.fetched.push((number, read));
                world.wake_node(id, life, process, 50);
            }),
            Event::RemoveOlder(id, life, lsn) => {
                self.with(id, life, |_, process| remove_older(&process.directory, lsn));
            }
            Event::Deliver(message) => self.deliver(message),
            Event::Transfer(number) => self.transfer(number),
            Event::Installed(id, life, message) => self.with(id, life, |world, process| {
                world.reached.installs += 1;
                process.arrived.messages.push((message.from, message));
                world.wake_node(id, life, process, 50);
            }),
            Event::Report(id, life, to, has_arrived) => self.with(id, life, |world, process| {
                process.arrived.reports.push((to, has_arrived));
                world.wake_node(id, life, process, 50);
            }),
            Event::Client(client) => self.client(client, !matches!(self.stage, Stage::Faults | Stage::Healed)),
            Event::Fault => self.fault(),
            Event::Start(id) => self.start(id),
            Event::Heal(from, to, until) => {
                if let Some(wire) = self.wires.get_mut(&(from, to)).filter(|wire| wire.cut_until == until) {
                    wire.cut_until = 0;
                }
            }
        }
    }

    /// Lets a process do something, if it is still the one of this life. If the power has failed meanwhile, it ends.
    pub(super) fn with(&mut self, id: NodeId, life: u64, act: impl FnOnce(&mut World, &mut Process)) {
        let now = self.now;
        let Some(server) = self.servers.get_mut(&id).filter(|server| server.life == life) else { return };
        server.tell_time(now);
        let Some(mut process) = server.process.take() else { return };
        act(self, &mut process);
        let Some(server) = self.servers.get_mut(&id) else { return };
        server.process = Some(process);
        if server.disk.is_off() {
            self.reached.crashes_in_writes += 1;
            self.lose_power(id);
        }
    }

    /// Lets an event of a process come again, if the process is still there.
    fn again(&mut self, id: NodeId, life: u64, delay: u64, event: Event) {
        if self.servers.get_mut(&id).is_some_and(|server| server.process(life).is_some()) {
            self.after(delay, event);
        }
    }

    /// Wakes the thread of a node.
    pub(super) fn wake_node(&mut self, id: NodeId, life: u64, process: &mut Process, most: u64) {
        if !mem::replace(&mut process.awaits.turn, true) {
            self.soon(most, Event::Turn(id, life));
        }
    }

    /// Wakes an engine.
    pub(super) fn wake_engine(&mut self, id: NodeId, life: u64, process: &mut Process, most: u64) {
        if !mem::replace(&mut process.awaits.engine, true) {
            self.soon(most, Event::Engine(id, life));
        }
    }
}

impl Event {
    /// Returns the node whose process makes the event happen, and whether its engine does.
    fn place(&self) -> Option<(NodeId, bool)> {
        match self {
            Event::EngineTick(id, _) | Event::Engine(id, _) => Some((*id, true)),
            Event::NodeTick(id, _) | Event::Turn(id, _) | Event::Write(id, _) | Event::Chore(id, _) => {
                Some((*id, false))
            }
            Event::Save(id, _) | Event::Read(id, ..) | Event::Fetched(id, ..) => Some((*id, false)),
            Event::RemoveOlder(id, ..) | Event::Installed(id, ..) | Event::Report(id, ..) => Some((*id, false)),
            Event::Deliver(message) => Some((message.to, false)),
            Event::Transfer(_) | Event::Client(_) | Event::Fault | Event::Start(_) | Event::Heal(..) => None,
        }
    }
}

/// The threads of a server.
impl World {
    /// A turn of the thread of the node.
    fn turn(&mut self, id: NodeId, life: u64) {
        let mut is_over = false;
        self.with(id, life, |world, process| {
            process.awaits.turn = false;
            let done = match process.turns.turn(mem::take(&mut process.arrived)) {
                Ok(done) => done,
                Err(_) if world.servers[&id].disk.is_off() => return,
                Err(error) => panic!("node {id} has ended: {error}"),
            };
            assert!(done.refused.is_empty(), "node {id} has refused messages: {:?}", done.refused);
            if !process.turns.leads() {
                world.transfers.end_those_of(id);
            }
            for message in done.messages {
                world.send(message);
            }
            for message in done.streams {
                world.begin_transfer(id, life, message);
            }
            for fetch in done.fetches {
                world.soon(2 * MS, Event::Read(id, life, fetch));
            }
            if let Some(lsn) = done.outdated {
                world.soon(10 * MS, Event::RemoveOlder(id, life, lsn));
            }
            world.elect(id, process);
            if process.take_woken() {
                world.wake_engine(id, life, process, 200);
            }
            world.begin_write(id, life, process);
            is_over = process.turns.is_over();
        });
        if is_over {
            self.close(id);
        }
    }

    fn elect(&mut self, id: NodeId, process: &mut Process) {
        let leads = process.turns.leads();
        self.reached.elections += u64::from(leads && !process.led);
        self.trace ^= u64::from(leads != mem::replace(&mut process.led, leads)) << (id.get() % 60);
    }

    /// Lets the log's thread look for work, unless it will.
    fn begin_write(&mut self, id: NodeId, life: u64, process: &mut Process) {
        if mem::replace(&mut process.awaits.write, true) {
            return;
        }
        let server = &self.servers[&id];
        let (hangs_until, slow_by) = (server.hangs_until, server.slow_by);
        let takes = 60 + self.rng.below(250) + self.rng.below(slow_by + 1);
        let delay = takes + hangs_until.saturating_sub(self.now);
        self.after(delay, Event::Write(id, life));
    }

    fn write(&mut self, id: NodeId, life: u64) {
        let hangs_until = self.servers.get(&id).map_or(0, |server| server.hangs_until);
        if hangs_until > self.now {
            return self.after(hangs_until - self.now, Event::Write(id, life));
        }
        self.with(id, life, |world, process| {
            process.awaits.write = false;
            let before = process.log.durable();
            process.log.step();
            if process.log.durable() > before {
                world.wake_node(id, life, process, 30);
            }
        });
    }

    /// The server's own thread: follows the group, ends what waits too long, and sends what may leave.
    fn engine(&mut self, id: NodeId, life: u64) {
        self.with(id, life, |world, process| {
            process.awaits.engine = false;
            let was_loading = process.engine.server.persistence.loading.is_some();
            let mut has_more = true;
            for _ in 0..=world.rng.below(3) {
                match process.following.step(&mut process.engine) {
                    Ok(more) => has_more = more,
                    Err(_) if world.servers[&id].disk.is_off() => return,
                    Err(error) => panic!("node {id} can't follow its group: {error}"),
                }
            }
            let is_loading = process.engine.server.persistence.loading.is_some();
            if is_loading {
                world.take_time_to_load(id);
            }
            world.reached.loads += u64::from(was_loading && !is_loading);
            process.engine.time_out_waits();
            world.serve_clients(id, life, process);
            if process.engine.server.persistence.saving.is_wanted() {
                process.engine.save_slice();
                world.begin_save(id, life, process);
            }
            world.look_at(id, process, was_loading != is_loading);
            if process.take_woken() || has_more {
                world.wake_engine(id, life, process, 200);
            }
            world.wake_node(id, life, process, 100);
        });
    }

    /// Lets an engine do nothing else for as long as it takes to load a slice of its data.
    fn take_time_to_load(&mut self, id: NodeId) {
        let most = if self.faults.stuck { 60 * MS } else { MS };
        let until = self.now + self.rng.below(most);
        if let Some(server) = self.servers.get_mut(&id) {
            server.busy_until = server.busy_until.max(until);
        }
    }

    /// Compares the data of a node with that of others, now and then.
    fn look_at(&mut self, id: NodeId, process: &mut Process, always: bool) {
        if process.is_settled() && (always || self.rng.below(6) == 0) {
            let lsn = process.group().position().link.lsn.get();
            let state = state_of(&mut process.engine);
            self.judge.has(id, lsn, state);
        }
    }

    /// Lets the thread of a snapshot look for work, unless it will.
    fn begin_save(&mut self, id: NodeId, life: u64, process: &mut Process) {
        if !mem::replace(&mut process.awaits.save, true) {
            self.soon(3 * MS, Event::Save(id, life));
        }
    }

    fn save(&mut self, id: NodeId, life: u64) {
        self.with(id, life, |world, process| {
            process.awaits.save = false;
            let made = process.snapshots_made();
            process.engine.server.persistence.saving.step();
            process.engine.save_slice();
            world.reached.snapshots += process.snapshots_made() - made;
            if process.engine.server.persistence.saving.is_wanted() {
                world.begin_save(id, life, process);
            }
            world.wake_node(id, life, process, 100);
        });
    }
}

/// The lives of processes, and the links between them.
impl World {
    fn start(&mut self, id: NodeId) {
        let Some(mut server) = self.servers.remove(&id) else { return };
        if server.process.is_some() || server.is_gone {
            self.servers.insert(id, server);
            return;
        }
        server.tell_time(self.now);
        if self.faults.crashes && self.now > 0 && self.now < FAULTS_END && self.rng.below(6) == 0 {
            server.crash_in(self.rng.below(60));
        }
        let started = server.start(&self.founders, self.faults.leases, &mut self.rng);
        let life = server.life;
        self.servers.insert(id, server);
        match started {
            Started::Up => {
                self.soon(10 * MS, Event::NodeTick(id, life));
                self.soon(ENGINE_TICK, Event::EngineTick(id, life));
                self.soon(MS, Event::Engine(id, life));
                self.soon(5 * MS, Event::Chore(id, life));
            }
            Started::Down => {
                self.reached.crashes_at_start += 1;
                self.lose_power(id);
            }
            Started::Full => self.after(100 * MS, Event::Start(id)),
        }
    }

    /// Ends a process without a word.
    pub(super) fn stop(&mut self, id: NodeId, is_power_loss: bool) {
        let Some(server) = self.servers.get_mut(&id) else { return };
        server.disk.turn_off();
        // Those that bring something to it would tidy up.
        self.transfers.forget(id);
        server.stop(is_power_loss);
        self.clients.lose_server(id, &mut self.judge);
    }

    /// The power of a server has failed in the middle of something, and comes back.
    fn lose_power(&mut self, id: NodeId) {
        self.stop(id, true);
        let down = self.rng.below(300 * MS);
        self.after(1 + down, Event::Start(id));
    }

    /// A process has ended as it was told to.
    fn close(&mut self, id: NodeId) {
        self.reached.clean_ends += 1;
        self.transfers.forget(id);
        self.clients.lose_server(id, &mut self.judge);
        let Some(server) = self.servers.get_mut(&id) else { return };
        server.close();
        let down = self.rng.below(400 * MS);
        self.after(1 + down, Event::Start(id));
    }

    fn deliver(&mut self, message: Message) {
        if self.is_cut(message.from, message.to) {
            return;
        }
        let (id, life) = (message.to, self.servers.get(&message.to).map_or(0, |server| server.life));
        self.with(id, life, |world, process| {
            process.arrived.messages.push((message.from, message));
            world.wake_node(id, life, process, 50);
        });
    }
}

/// The end of a run.
impl World {
    pub(super) fn describe(&self) -> String {
        self.servers.values().map(Server::describe).collect::<Vec<_>>().join("; ")
    }

    /// Returns the leader, as the engines know it.
    pub(super) fn leader(&self) -> Option<NodeId> {
        let leads =
            |server: &&Server| server.process.as_ref().is_some_and(|process| process.leads() && process.turns.leads());
        self.servers.values().filter(leads).map(|server| server.id).next()
    }

    /// Whether all nodes have come to the same end, as they must after a while.
    fn is_at_rest(&mut self, since: u64) -> bool {
        if self.now < since + 200 * MS {
            return false;
        }
        let is_late = self.now > since + REST_MAX;
        let unrest = self.unrest();
        if let Some(why) = unrest.as_ref().filter(|_| is_late) {
            panic!("the group does not come to rest: {why}; {}", self.describe());
        }
        unrest.is_none()
    }

    /// Returns why the group has not come to rest.
    fn unrest(&self) -> Option<String> {
        let Some(leader) = self.leader() else { return Some("nobody leads".to_owned()) };
        let Some(process) = &self.servers[&leader].process else { return Some("the leader is gone".to_owned()) };
        let at = process.group().position();
        for id in process.turns.members().all() {
            let process = self.servers.get(&id).and_then(|server| server.process.as_ref());
            match process {
                Some(process) if process.is_settled() && process.group().position() == at => {}
                _ => return Some(format!("node {id}")),
            }
        }
        let waiting = self.clients.waiting();
        (waiting > 0).then(|| format!("{waiting} replies have not come"))
    }

    /// The group has come back to life, and all nodes have the same data.
    fn judge_rest(&mut self) {
        let answered = self.judge.answered - self.answered_at_heal;
        assert!(answered > 100, "the group did not come back to life: {answered} answers; {}", self.describe());
        self.judge_nodes();
    }

    fn judge_nodes(&mut self) {
        let leader = self.leader().expect("the group is at rest");
        let members: Vec<NodeId> = self.process(leader).turns.members().all().collect();
        for id in members {
            let process = self.process(id);
            let (at, state) = (process.group().position(), state_of(&mut process.engine));
            self.judge.has(id, at.link.lsn.get(), state);
        }
    }

    fn judge_end(&mut self) {
        self.judge_nodes();
        let Some(leader) = self.leader() else { return };
        let data = super::clients::read_all(self.process(leader));
        self.judge.finish(&data);
        let disks = self.servers.values().map(|server| server.disk.operations());
        self.trace =
            disks.fold(self.trace ^ self.judge.states(), |trace, operations| trace.rotate_left(7) ^ operations);
    }

    fn process(&mut self, id: NodeId) -> &mut Process {
        let process = self.servers.get_mut(&id).and_then(|server| server.process.as_mut());
        process.unwrap_or_else(|| panic!("node {id} is not up"))
    }
}
