//! The nodes, the links between them, the clients, and what goes wrong, in one order of events.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use super::super::codec::{decode, encode};
use super::super::fetch::{Fetch, Gone};
use super::super::limits::{LEASE, MEMORY_BYTES, VOTERS_MIN, VOTING_PAUSE};
use super::super::message::{Body, Message, Round};
use super::super::output::Order;
use super::Reached;
use super::judge::Judge;
use super::node::{Cut, Data, Node};
use crate::base::rng::Rng;
use crate::log::planted::{self, Bug};
use crate::log::replicated::block::Block;
use crate::log::replicated::entry::Entry;
use crate::log::replicated::mark::Mark;
use crate::log::replicated::members::MemberChange;
use crate::log::replicated::members::tests::{joining, of_voters};
use crate::log::replicated::types::{GroupId, NodeId, Term};

const MS: u64 = 1000;
/// Faults happen up to this time, in microseconds.
const FAULTS_END: u64 = 6_000 * MS;
/// By this time the group must have come back to life.
const END: u64 = FAULTS_END + 5_000 * MS;
/// The time after which the shell of a node calls its engine stuck.
const STUCK: u64 = 400 * MS;
/// The most bytes of entries in the memory of a node that keeps few: those of some tenths of a second.
const MEMORY_BYTES_FEW: u64 = 10_000;

/// An event at some time. Those of a node name the life of its process that they belong to.
#[derive(Debug)]
enum Event {
    Tick(NodeId, u64),
    /// The write at the head of the queue is durable.
    Written(NodeId, u64),
    Deliver(Message),
    /// A snapshot has arrived, or was lost on its way.
    Arrive {
        message: Message,
        arrives: bool,
    },
    /// The engine follows its orders, seals a block and answers.
    Engine(NodeId, u64),
    Propose(NodeId, u64, Block),
    Confirm(NodeId, u64, Round),
    Handled(NodeId, u64, u64),
    /// Older entries are read from the files, in the reign that has asked for them.
    Read(NodeId, u64, Term, Fetch),
    Fetched(NodeId, u64, Term, u64, Result<Vec<Entry>, Gone>),
    Client,
    Fault,
    Start(NodeId),
    /// A node is killed, and is back at once.
    Restart(NodeId),
    Heal(NodeId, NodeId, u64),
}

/// The way from one node to another.
#[derive(Default)]
struct Wire {
    /// It is cut until this time.
    cut_until: u64,
    /// Messages take up to this much longer until then.
    slow_until: u64,
    slow_by: u64,
}

/// The kinds of faults of a run. Each run has only some of them, so that each kind also has runs of its own.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Faults {
    pub(super) crashes: bool,
    pub(super) links: bool,
    pub(super) slowness: bool,
    pub(super) disks: bool,
    pub(super) pauses: bool,
    pub(super) transfers: bool,
    pub(super) stuck: bool,
    pub(super) members: bool,
    pub(super) wipes: bool,
    /// Nodes keep few entries in memory.
    pub(super) memory: bool,
    /// Older entries are read slowly and not always, and the core is not told when files go.
    pub(super) files: bool,
    /// Reads trust the lease where there is one.
    pub(super) leases: bool,
    pub(super) loss_in_1000: u64,
}

pub(super) struct World {
    rng: Rng,
    now: u64,
    events: BinaryHeap<Reverse<(u64, u64)>>,
    pending: BTreeMap<u64, Event>,
    sequence: u64,
    nodes: BTreeMap<NodeId, Node>,
    wires: BTreeMap<(NodeId, NodeId), Wire>,
    files: BTreeMap<u64, Data>,
    judge: Judge,
    faults: Faults,
    voters: usize,
    next_node: u64,
    next_id: u64,
    reigns: BTreeMap<Term, NodeId>,
    acked_at_heal: u64,
    /// This node gets no writes until then: a follower that is cut off keeps a log that is new enough for an election.
    only_read: (Option<NodeId>, u64),
    pub(super) reached: Reached,
    pub(super) trace: u64,
}

impl World {
    /// `focus` names faults that this run has in any case.
    pub(super) fn new(seed: u64, focus: fn(&mut Faults)) -> World {
        let mut rng = Rng::seeded(seed);
        let voters = if rng.below(3) == 0 { 5 } else { 3 };
        let one_in = |rng: &mut Rng, n: u64| rng.below(n) == 0;
        let mut faults = Faults {
            crashes: one_in(&mut rng, 2),
            links: one_in(&mut rng, 2),
            slowness: one_in(&mut rng, 3),
            disks: one_in(&mut rng, 3),
            pauses: one_in(&mut rng, 3),
            transfers: one_in(&mut rng, 3),
            stuck: one_in(&mut rng, 3),
            members: one_in(&mut rng, 2),
            wipes: one_in(&mut rng, 3),
            memory: one_in(&mut rng, 2),
            files: one_in(&mut rng, 2),
            leases: one_in(&mut rng, 2),
            loss_in_1000: if one_in(&mut rng, 2) { rng.below(60) } else { 0 },
        };
        focus(&mut faults);
        let ids: Vec<NodeId> = (1..=voters).filter_map(NodeId::new).collect();
        let mut world = World {
            now: 0,
            events: BinaryHeap::new(),
            pending: BTreeMap::new(),
            sequence: 0,
            nodes: BTreeMap::new(),
            wires: BTreeMap::new(),
            files: BTreeMap::from([(0, Data::default())]),
            judge: Judge::default(),
            faults,
            voters: voters as usize,
            next_node: voters + 1,
            next_id: 1,
            reigns: BTreeMap::new(),
            acked_at_heal: 0,
            only_read: (None, 0),
            reached: Reached::default(),
            trace: seed,
            rng,
        };
        for id in &ids {
            let node = world.new_node(*id, Mark::first(of_voters(&ids)));
            world.nodes.insert(*id, node);
            world.start(*id);
        }
        world.after(5 * MS, Event::Client);
        world.after(50 * MS, Event::Fault);
        world
    }

    fn new_node(&mut self, id: NodeId, snapshot: Mark) -> Node {
        let memory_bytes = if self.faults.memory { self.rng.below(MEMORY_BYTES_FEW) } else { MEMORY_BYTES };
        Node::new(id, snapshot, memory_bytes, &mut self.rng)
    }

    /// Runs until the end, and judges.
    pub(super) fn run(&mut self) {
        let mut is_healed = false;
        while let Some(Reverse((at, sequence))) = self.events.pop() {
            let Some(event) = self.pending.remove(&sequence) else { continue };
            self.now = self.now.max(at);
            if self.now >= FAULTS_END && !is_healed {
                is_healed = true;
                self.heal();
            }
            if self.now >= END {
                break;
            }
            self.trace = (self.trace ^ at).wrapping_mul(0x0000_0100_0000_01b3) ^ sequence;
            self.happen(event);
        }
        self.judge_end();
    }

    fn after(&mut self, delay: u64, event: Event) {
        self.sequence += 1;
        self.events.push(Reverse((self.now + delay, self.sequence)));
        self.pending.insert(self.sequence, event);
    }

    fn happen(&mut self, event: Event) {
        // A process that stands still does everything later.
        let of = match &event {
            Event::Tick(id, _) | Event::Engine(id, _) | Event::Written(id, _) | Event::Handled(id, ..) => Some(*id),
            Event::Propose(id, ..) | Event::Confirm(id, ..) => Some(*id),
            Event::Read(id, ..) | Event::Fetched(id, ..) => Some(*id),
            Event::Deliver(message) | Event::Arrive { message, .. } => Some(message.to),
            _ => None,
        };
        let paused = of.and_then(|id| self.nodes.get(&id)).map_or(0, |node| node.paused_until);
        if paused > self.now {
            self.after(paused - self.now, event);
            return;
        }
        match event {
            Event::Tick(id, life) => self.tick(id, life),
            Event::Written(id, life) => self.written(id, life),
            Event::Deliver(message) => self.deliver(message),
            Event::Arrive { message, arrives } => self.arrive(message, arrives),
            Event::Engine(id, life) => self.engine(id, life),
            Event::Propose(id, life, block) => self.with(id, life, |world, node| world.propose(node, block)),
            Event::Confirm(id, life, round) => self.with(id, life, |world, node| {
                let clock = node.clock(world.now);
                if let Some(core) = &mut node.core {
                    core.confirm(round, clock);
                }
            }),
            Event::Handled(id, life, number) => self.with(id, life, |_, node| {
                if let Some(core) = &mut node.core {
                    core.handled(number);
                }
            }),
            Event::Read(id, life, term, fetch) => self.with(id, life, |world, node| world.read(node, term, &fetch)),
            Event::Fetched(id, life, term, number, read) => self.fetched(id, life, term, number, read),
            Event::Client => self.client(),
            Event::Fault => self.fault(),
            Event::Start(id) => self.start(id),
            Event::Restart(id) => {
                let queued = self.nodes.get(&id).map_or(0, |node| node.disk.queue.len());
                self.stop(id, queued);
                self.soon(4 * MS, Event::Start(id));
            }
            Event::Heal(from, to, until) => {
                if let Some(wire) = self.wires.get_mut(&(from, to)).filter(|wire| wire.cut_until == until) {
                    wire.cut_until = 0;
                }
            }
        }
    }

    /// Lets a node that is up do something, and then what its core asks for.
    fn with(&mut self, id: NodeId, life: u64, act: impl FnOnce(&mut World, &mut Node)) {
        let Some(mut node) = self.nodes.remove(&id) else { return };
        if node.life == life && node.core.is_some() {
            act(self, &mut node);
            self.drain(&mut node);
        }
        self.nodes.insert(id, node);
    }

    /// Does what the core of a node asks for.
    fn drain(&mut self, node: &mut Node) {
        let Some(core) = &mut node.core else { return };
        let output = core.take_output();
        node.known.lease_until = output.lease_until.filter(|_| self.faults.leases);
        node.known.committed = output.committed.map(|(term, lsn)| (term, lsn.get())).or(node.known.committed);
        node.known.confirmed = output.confirmed.or(node.known.confirmed);
        if planted::is(Bug::ReplyOfAnotherReign)
            && let (Some(term), Some(at)) = (node.engine.reign, core.at(core.committed()))
        {
            node.known.committed = Some((term, at.link.lsn.get()));
        }
        for message in output.messages {
            self.judge.sent(&message, &node.disk.durable);
            if matches!(message.body, Body::Heard { .. }) && !node.disk.queue.is_empty() {
                self.reached.early_heartbeats += 1;
            }
            self.send(message);
        }
        for message in output.streams {
            let to = message.to;
            let arrives = !self.is_cut(node.id, to) && self.rng.below(8) != 0;
            let takes = 5 * MS + self.rng.below(300 * MS);
            self.after(takes, Event::Arrive { message, arrives });
        }
        for write in output.writes {
            if write.entries.first().is_some_and(|first| first.index <= node.disk.durable.last()) {
                self.reached.cuts += 1;
            }
            let is_slow = self.faults.disks && self.rng.below(12) == 0;
            let takes = 100 + self.rng.below(if is_slow { 40 * MS } else { 400 });
            let from = node.disk.busy_until.max(self.now).max(node.disk.hangs_until);
            node.disk.busy_until = from + takes;
            node.disk.queue.push_back(write);
            self.after(node.disk.busy_until - self.now, Event::Written(node.id, node.life));
        }
        let term = core.term();
        for fetch in output.fetches {
            self.soon(300, Event::Read(node.id, node.life, term, fetch));
        }
        for (number, order) in output.orders {
            if let Order::Lead(term) = &order {
                let other = self.reigns.insert(*term, node.id);
                assert_eq!(other, None, "two reigns in term {term}");
                let has_data = |(_, order): &(u64, Order)| !matches!(order, Order::Load(_) | Order::Deposed { .. });
                assert!(node.engine.orders.iter().all(has_data), "node {} leads before it has its data", node.id);
                self.reached.elections += 1;
            }
            // The first order of each life loads what the disk has.
            self.reached.installs += u64::from(matches!(order, Order::Load(_)) && number > 1);
            node.engine.orders.push_back((number, order));
            self.soon(300, Event::Engine(node.id, node.life));
        }
        if output.committed.is_some() || output.confirmed.is_some() {
            self.soon(100, Event::Engine(node.id, node.life));
        }
        if output.wants_snapshot && !node.engine.orders.iter().any(|(_, order)| matches!(order, Order::Load(_))) {
            self.snapshot(node);
        }
    }

    /// Lets an event happen after at most `most`.
    fn soon(&mut self, most: u64, event: Event) {
        let delay = 1 + self.rng.below(most);
        self.after(delay, event);
    }

    fn tick(&mut self, id: NodeId, life: u64) {
        let now = self.now;
        self.with(id, life, |world, node| {
            let clock = node.clock(now);
            if let Some(core) = &mut node.core {
                core.time(clock);
                if node.engine.busy_until > now + STUCK {
                    world.reached.stuck += u64::from(core.leads() && !node.stuck_reported);
                    core.engine_is_stuck();
                    node.stuck_reported = true;
                }
            }
            let late = if world.rng.below(50) == 0 { world.rng.below(30 * MS) } else { world.rng.below(MS) };
            world.after(10 * MS + late, Event::Tick(id, life));
        });
    }

    fn written(&mut self, id: NodeId, life: u64) {
        let now = self.now;
        self.with(id, life, |world, node| {
            if node.disk.hangs_until > now {
                world.after(node.disk.hangs_until - now, Event::Written(id, life));
                return;
            }
            if let Some(number) = node.disk.finish_one()
                && let Some(core) = &mut node.core
            {
                core.persisted(number);
            }
        });
    }

    fn read(&mut self, node: &mut Node, term: Term, fetch: &Fetch) {
        let is_damaged = self.faults.files && self.rng.below(100) == 0;
        // A follower that catches up needs several of these.
        let part = Fetch { bytes: fetch.bytes.min(self.rng.below(8 * 1024)), ..*fetch };
        let read = if is_damaged { Err(Gone { covered: fetch.after.next() }) } else { node.disk.read(&part) };
        self.reached.gone_fetches += u64::from(!is_damaged && read.is_err());
        let is_slow = self.faults.files && self.rng.below(3) == 0;
        self.soon(if is_slow { 800 * MS } else { 300 }, Event::Fetched(node.id, node.life, term, fetch.number, read));
    }

    fn fetched(&mut self, id: NodeId, life: u64, term: Term, number: u64, read: Result<Vec<Entry>, Gone>) {
        let core = self.nodes.get(&id).filter(|node| node.life == life).and_then(|node| node.core.as_ref());
        let is_late = core.is_none_or(|core| core.term() != term);
        self.reached.late_fetches += u64::from(is_late);
        self.reached.fetches += u64::from(!is_late && read.is_ok());
        self.with(id, life, |_, node| {
            if let Some(core) = &mut node.core {
                core.fetched(number, read);
            }
        });
    }

    fn is_cut(&self, from: NodeId, to: NodeId) -> bool {
        self.wires.get(&(from, to)).is_some_and(|wire| wire.cut_until > self.now)
    }

    fn send(&mut self, message: Message) {
        let mut bytes = Vec::new();
        encode(GroupId(0), &message, &mut bytes);
        let decoded = decode(bytes.into(), message.from, message.to);
        assert_eq!(decoded, Ok((GroupId(0), message.clone())), "the bytes of a message say something else");
        let key = (message.from, message.to);
        if self.is_cut(key.0, key.1) || self.rng.below(1000) < self.faults.loss_in_1000 {
            return;
        }
        let slow = self.wires.get(&key).filter(|wire| wire.slow_until > self.now).map_or(0, |wire| wire.slow_by);
        let mut delay = 30 + self.rng.below(300);
        if slow > 0 && self.rng.below(3) == 0 {
            delay += self.rng.below(slow);
            self.reached.late_messages += u64::from(delay > VOTING_PAUSE.as_micros() as u64);
        }
        if slow > 0 && self.rng.below(20) == 0 {
            self.reached.duplicates += 1;
            self.soon(delay + slow, Event::Deliver(message.clone()));
        }
        self.after(delay, Event::Deliver(message));
    }

    fn deliver(&mut self, message: Message) {
        let (from, to) = (message.from, message.to);
        if self.is_cut(from, to) {
            return;
        }
        let Some(life) = self.nodes.get(&to).map(|node| node.life) else { return };
        let now = self.now;
        self.with(to, life, |world, node| {
            let clock = node.clock(now);
            if let Some(core) = &mut node.core {
                let is_unforced = matches!(message.body, Body::Stand { forced: false, .. });
                world.reached.paused_votes += u64::from(is_unforced && core.owes_silence(clock));
                if let Err(refusal) = core.receive(from, message, clock) {
                    panic!("node {to} refused a message of {from}: {refusal}");
                }
            }
        });
    }

    fn arrive(&mut self, message: Message, arrives: bool) {
        let (from, to) = (message.from, message.to);
        let life_of = |world: &World, id| world.nodes.get(&id).map_or(0, |node| node.life);
        let arrives = arrives && self.nodes.get(&to).is_some_and(|node| node.core.is_some());
        self.reached.failed_streams += u64::from(!arrives);
        let life = life_of(self, from);
        self.with(from, life, |_, node| {
            if let Some(core) = &mut node.core {
                core.reported(to, arrives);
            }
        });
        if !arrives {
            return;
        }
        if planted::is(Bug::InstallOverNewerLog)
            && let Body::Install(mark) = message.body
        {
            if let Some(node) = self.nodes.get_mut(&to) {
                node.disk.queue.clear();
                node.disk.install(mark);
            }
            self.stop(to, 0);
            self.start(to);
            return;
        }
        self.deliver(message);
    }

    fn propose(&mut self, node: &mut Node, block: Block) {
        let Some(core) = &mut node.core else { return };
        if self.faults.stuck && self.rng.below(300) == 0 {
            // Whatever the cause: once a block is refused, its reign must be over.
            self.reached.lost_blocks += 1;
            return;
        }
        let (reign, last) = (block.reign, core.last());
        self.reached.stale_blocks += u64::from(core.term() != reign);
        core.propose(block);
        self.reached.refused_blocks += u64::from(core.last() == last);
    }

    fn engine(&mut self, id: NodeId, life: u64) {
        let now = self.now;
        self.with(id, life, |world, node| {
            if node.engine.busy_until > now {
                world.after(node.engine.busy_until - now, Event::Engine(id, life));
                return;
            }
            if planted::is(Bug::FollowerExpires) && node.engine.reign.is_none() {
                let wall = node.wall(now);
                node.engine.expire(wall);
            }
            if std::mem::take(&mut node.stuck_reported) {
                world.after(1, Event::Handled(id, life, node.engine.last_handled));
            }
            // It may answer before it sees its next orders, or after.
            world.answer(node);
            let (engine, disk) = (&mut node.engine, &node.disk.durable);
            while let Some((number, takes)) =
                engine.follow_one(id, &world.files, disk, &mut world.judge, &mut world.rng)
            {
                engine.busy_until = now + takes;
                world.after(takes + 1, Event::Handled(id, life, number));
                if takes > MS {
                    world.after(takes + 1, Event::Engine(id, life));
                    break;
                }
            }
            world.answer(node);
            if let Some(block) = node.engine.seal() {
                let is_late = world.rng.below(if world.faults.stuck { 40 } else { 400 }) == 0;
                let delay = if is_late { world.rng.below(400 * MS) } else { world.rng.below(200) };
                node.engine.proposed_at = node.engine.proposed_at.max(now + delay) + 1;
                world.after(node.engine.proposed_at - now, Event::Propose(id, life, block));
            }
        });
    }

    fn answer(&mut self, node: &mut Node) {
        let clock = node.clock(self.now);
        if let Some(round) = node.engine.answer(clock, &node.known, &mut self.judge, &mut self.reached.leases) {
            self.reached.rounds += 1;
            self.soon(200, Event::Confirm(node.id, node.life, round));
        }
    }

    /// A client calls some node that takes itself for the leader.
    fn client(&mut self) {
        // What is acknowledged last has to be applied somewhere before the end.
        if self.now >= END - 1_000 * MS {
            return;
        }
        let is_quiet = self.rng.below(200) == 0;
        self.soon(if is_quiet { 300 * MS } else { 4 * MS }, Event::Client);
        let now = self.now;
        let leaders: Vec<NodeId> = self
            .nodes
            .values()
            .filter(|node| node.core.is_some() && node.paused_until <= now && node.engine.busy_until <= now)
            .filter(|node| node.engine.reign.is_some())
            .map(|node| node.id)
            .collect();
        if leaders.is_empty() {
            return;
        }
        let id = leaders[self.rng.below(leaders.len() as u64) as usize];
        let life = self.nodes[&id].life;
        let only_reads = self.only_read.0 == Some(id) && now < self.only_read.1;
        let is_read = only_reads || self.rng.below(2) == 0;
        self.with(id, life, |world, node| {
            let wall = node.wall(now);
            // Now and then a call takes long, and orders wait for its end.
            if world.rng.below(60) == 0 {
                node.engine.busy_until = now + world.rng.below(100 * MS);
            }
            if is_read {
                node.engine.read(&world.judge);
            } else {
                let lease = 20 * MS + world.rng.below(2000 * MS);
                world.next_id += 1;
                world.reached.expired += node.engine.write(world.next_id, wall, lease, &world.judge);
            }
            world.soon(100, Event::Engine(id, life));
        });
    }

    fn start(&mut self, id: NodeId) {
        let seed = self.rng.next_u64();
        let now = self.now;
        let Some(node) = self.nodes.get_mut(&id).filter(|node| node.core.is_none() && !node.is_gone) else { return };
        node.start(now, seed);
        let life = node.life;
        self.after(1, Event::Tick(id, life));
        self.with(id, life, |_, _| {});
    }

    /// Stops a node; the first `survive` of its writes survive.
    fn stop(&mut self, id: NodeId, survive: usize) {
        let Some(node) = self.nodes.get_mut(&id) else { return };
        node.core = None;
        node.life += 1;
        node.disk.crash(survive);
    }

    fn snapshot(&mut self, node: &mut Node) {
        let serial = self.rng.next_u64() | 1;
        let (mark, data) = node.engine.snapshot(serial);
        self.files.insert(serial, data);
        let is_untold = self.faults.files && self.rng.below(2) == 0;
        let cut =
            if is_untold { Cut::Untold } else { [Cut::Nothing, Cut::Files, Cut::All][self.rng.below(3) as usize] };
        node.keep_snapshot(mark, cut);
    }
}

fn core_term(node: &Node) -> Term {
    node.core.as_ref().map_or(Term(0), |core| core.term())
}

/// Faults.
impl World {
    fn some_node(&mut self) -> NodeId {
        let up: Vec<NodeId> = self.nodes.values().filter(|node| !node.is_gone).map(|node| node.id).collect();
        up[self.rng.below(up.len() as u64) as usize]
    }

    fn leader(&self) -> Option<NodeId> {
        let leaders = self.nodes.values().filter(|node| node.core.as_ref().is_some_and(|core| core.leads()));
        leaders.max_by_key(|node| core_term(node)).map(|node| node.id)
    }

    fn some_target(&mut self) -> NodeId {
        match self.leader() {
            Some(leader) if self.rng.below(2) == 0 => leader,
            _ => self.some_node(),
        }
    }

    fn fault(&mut self) {
        if self.now >= FAULTS_END {
            return;
        }
        self.soon(200 * MS, Event::Fault);
        let faults = self.faults;
        let target = self.some_target();
        match self.rng.below(10) {
            0 if faults.crashes && faults.leases && self.rng.below(2) == 0 => self.restart_in_lease(),
            0 if faults.crashes => self.crash(),
            1 | 2 if faults.links => self.cut(target),
            3 if faults.slowness => self.slow(target),
            4 if faults.disks => {
                let hangs = self.rng.below(1500 * MS);
                let count = 1 + self.rng.below(2);
                for _ in 0..count {
                    let id = self.some_node();
                    if let Some(node) = self.nodes.get_mut(&id) {
                        node.disk.hangs_until = self.now + hangs;
                    }
                }
                self.reached.hung_disks += u64::from(hangs > VOTING_PAUSE.as_micros() as u64);
            }
            5 if faults.pauses => {
                let pause = self.rng.below(600 * MS);
                self.reached.pauses += u64::from(pause > LEASE.as_micros() as u64);
                if let Some(node) = self.nodes.get_mut(&target) {
                    node.paused_until = self.now + pause;
                }
            }
            6 if faults.transfers => self.transfer(),
            7 if faults.stuck => {
                // A script that writes, and then takes its time.
                let busy = self.rng.below(2500 * MS);
                self.next_id += 1;
                let (id, now) = (self.next_id, self.now);
                if let Some(node) = self.nodes.get_mut(&target).filter(|node| node.core.is_some()) {
                    let wall = node.wall(now);
                    self.reached.expired += node.engine.write(id, wall, 100 * MS, &self.judge);
                    node.engine.busy_until = node.engine.busy_until.max(now + busy);
                    let life = node.life;
                    self.after(busy + 1, Event::Engine(target, life));
                }
            }
            8 if faults.members => self.change_members(),
            8 | 9 => {
                if let Some(life) = self.nodes.get(&target).map(|node| node.life) {
                    self.with(target, life, |world, node| world.snapshot(node));
                }
            }
            _ => {}
        }
    }

    fn crash(&mut self) {
        let all = self.rng.below(8) == 0;
        let ids: Vec<NodeId> = if all { self.nodes.keys().copied().collect() } else { vec![self.some_target()] };
        self.reached.all_down += u64::from(all);
        let is_kill = self.rng.below(3) == 0;
        for id in ids {
            let Some(node) = self.nodes.get(&id).filter(|node| node.core.is_some()) else { continue };
            let queued = node.disk.queue.len();
            let survive = if is_kill { queued } else { self.rng.below(queued as u64 + 1) as usize };
            self.reached.kills += u64::from(survive == queued);
            self.reached.crashes += u64::from(survive < queued);
            self.stop(id, survive);
            if self.faults.wipes && !all && self.rng.below(4) == 0 && self.may_lose_a_disk() {
                self.wipe(id);
                continue;
            }
            let down = if self.rng.below(2) == 0 { self.rng.below(20 * MS) } else { self.rng.below(600 * MS) };
            self.after(down, Event::Start(id));
        }
    }

    /// Cuts one follower off from the leader, and restarts another one when the first stands for election: a voter that
    /// has forgotten what it heard of the leader.
    fn restart_in_lease(&mut self) {
        let Some(leader) = self.leader() else { return };
        let others: Vec<NodeId> =
            self.nodes.values().filter(|node| node.id != leader && node.core.is_some()).map(|node| node.id).collect();
        if others.len() < 2 {
            return;
        }
        let alone = others[self.rng.below(others.len() as u64) as usize];
        self.cut_until(&[(leader, alone), (alone, leader)], self.now + 500 * MS);
        self.only_read = (Some(leader), self.now + 500 * MS);
        for id in others.into_iter().filter(|id| *id != alone) {
            self.reached.restarts_in_lease += 1;
            let delay = 140 * MS + self.rng.below(200 * MS);
            self.after(delay, Event::Restart(id));
        }
    }

    fn cut_until(&mut self, pairs: &[(NodeId, NodeId)], until: u64) {
        for (from, to) in pairs {
            self.wires.entry((*from, *to)).or_default().cut_until = until;
            self.after(until - self.now, Event::Heal(*from, *to, until));
        }
    }

    /// Whether all members still have their disks, as far as the leader knows: the group survives the loss of one.
    fn may_lose_a_disk(&self) -> bool {
        let members = self.leader().and_then(|id| self.nodes[&id].core.as_ref()).map(|core| core.members().clone());
        let is_whole = |id: &NodeId| self.nodes.get(id).is_some_and(|node| !node.is_gone);
        members.is_some_and(|members| members.voters.len() >= 3 && members.voters.iter().all(is_whole))
            && self.nodes.values().all(|node| !node.is_gone || !self.is_member_somewhere(node.id))
    }

    fn is_member_somewhere(&self, id: NodeId) -> bool {
        self.nodes.values().any(|node| node.core.as_ref().is_some_and(|core| core.members().contains(id)))
    }

    fn wipe(&mut self, id: NodeId) {
        self.reached.wipes += 1;
        if planted::is(Bug::WipedNodeKeepsId) {
            let ids: Vec<NodeId> = (1..=self.voters as u64).filter_map(NodeId::new).collect();
            let node = self.new_node(id, Mark::first(of_voters(&ids)));
            let life = self.nodes[&id].life;
            self.nodes.insert(id, Node { life, ..node });
            self.start(id);
            return;
        }
        if let Some(node) = self.nodes.get_mut(&id) {
            node.is_gone = true;
        }
    }

    fn cut(&mut self, target: NodeId) {
        let until = self.now + 20 * MS + self.rng.below(1500 * MS);
        let others: Vec<NodeId> = self.nodes.keys().copied().filter(|id| *id != target).collect();
        let shape = self.rng.below(4);
        let mut pairs = Vec::new();
        match shape {
            // The target alone, or deaf, or mute.
            0 => pairs.extend(others.iter().flat_map(|other| [(target, *other), (*other, target)])),
            1 => pairs.extend(others.iter().map(|other| (*other, target))),
            2 => pairs.extend(others.iter().map(|other| (target, *other))),
            // Two sides.
            _ => {
                let (left, right): (Vec<NodeId>, Vec<NodeId>) =
                    self.nodes.keys().copied().collect::<Vec<_>>().into_iter().partition(|_| self.rng.below(2) == 0);
                pairs.extend(left.iter().flat_map(|a| right.iter().flat_map(|b| [(*a, *b), (*b, *a)])));
            }
        }
        self.reached.one_way += u64::from(shape == 1 || shape == 2);
        self.cut_until(&pairs, until);
    }

    fn slow(&mut self, target: NodeId) {
        let (until, by) = (self.now + self.rng.below(1500 * MS), self.rng.below(2000 * MS));
        let others: Vec<NodeId> = self.nodes.keys().copied().filter(|id| *id != target).collect();
        for other in others {
            for key in [(target, other), (other, target)] {
                if self.rng.below(2) == 0 {
                    let wire = self.wires.entry(key).or_default();
                    (wire.slow_until, wire.slow_by) = (until, by);
                }
            }
        }
    }

    fn transfer(&mut self) {
        let (Some(leader), to) = (self.leader(), self.some_node()) else { return };
        let life = self.nodes[&leader].life;
        self.with(leader, life, |world, node| {
            if let Some(core) = &mut node.core
                && core.transfer(to)
            {
                world.reached.transfers += 1;
            }
        });
        let is_down = self.nodes.get(&to).is_none_or(|node| node.core.is_none());
        self.reached.transfer_failures += u64::from(is_down || self.is_cut(leader, to));
    }

    /// One step towards a whole group of the size that it had at first.
    fn change_members(&mut self) {
        let Some(leader) = self.leader() else { return };
        let Some(core) = self.nodes[&leader].core.as_ref() else { return };
        let (term, members) = (core.term(), core.members().clone());
        let gone = |id: &&NodeId| self.nodes.get(id).is_none_or(|node| node.is_gone);
        let lost = members.voters.iter().chain(&members.learners).find(gone).copied();
        let change = if let Some(lost) = lost {
            MemberChange::Remove(lost)
        } else if members.voters.len() < self.voters || self.rng.below(4) == 0 && members.voters.len() < 6 {
            match members.learners.first() {
                Some(learner) => MemberChange::Promote(*learner),
                None if self.next_node > 12 => return,
                None => {
                    let Some(id) = NodeId::new(self.next_node) else { return };
                    self.next_node += 1;
                    let node = self.new_node(id, Mark::default());
                    self.nodes.insert(id, node);
                    self.start(id);
                    joining(id)
                }
            }
        } else if members.voters.len() > self.voters || self.rng.below(3) == 0 && members.voters.len() > VOTERS_MIN + 1
        {
            let others: Vec<NodeId> = members.voters.iter().copied().filter(|id| *id != leader).collect();
            MemberChange::Remove(others[self.rng.below(others.len() as u64) as usize])
        } else {
            return;
        };
        let life = self.nodes[&leader].life;
        self.with(leader, life, |world, node| {
            let Some(core) = &mut node.core else { return };
            if core.change(term, change.clone()).is_ok() {
                // The node that is removed may lead before it knows, or this one may fall.
                if let MemberChange::Remove(id) = change
                    && world.rng.below(3) == 0
                {
                    core.transfer(id);
                    world.nodes.entry(id).and_modify(|node| node.disk.hangs_until = world.now + 50 * MS);
                    world.soon(2 * MS, Event::Restart(leader));
                }
                match change {
                    MemberChange::AddLearner(..) => world.reached.learners += 1,
                    MemberChange::Promote(_) => world.reached.promotions += 1,
                    MemberChange::Remove(_) => world.reached.removals += 1,
                }
            }
        });
    }

    /// Ends all faults, but for a minority that stays broken in a third of the runs.
    fn heal(&mut self) {
        let now = self.now;
        self.faults = Faults { loss_in_1000: 0, disks: false, files: false, ..self.faults };
        for wire in self.wires.values_mut() {
            *wire = Wire::default();
        }
        for node in self.nodes.values_mut() {
            node.paused_until = node.paused_until.min(now);
            node.disk.hangs_until = node.disk.hangs_until.min(now);
        }
        let ids: Vec<NodeId> = self.nodes.keys().copied().collect();
        for id in ids {
            self.start(id);
        }
        self.acked_at_heal = self.judge.acked();
        if self.rng.below(3) == 0 {
            self.break_one();
        }
    }

    /// Breaks one node for good: it is down, deaf, mute, or its disk hangs.
    fn break_one(&mut self) {
        let gone_members = self.nodes.values().filter(|node| node.is_gone && self.is_member_somewhere(node.id)).count();
        let all_have = |node: &Node| node.core.as_ref().is_none_or(|core| core.members().voters.len() >= 3);
        if gone_members > 0 || !self.nodes.values().filter(|node| !node.is_gone).all(all_have) {
            return;
        }
        self.reached.minorities += 1;
        let id = self.some_target();
        let others: Vec<NodeId> = self.nodes.keys().copied().filter(|other| *other != id).collect();
        match self.rng.below(4) {
            0 => {
                self.stop(id, 0);
                if let Some(node) = self.nodes.get_mut(&id) {
                    node.is_gone = true;
                }
            }
            1 => others.iter().for_each(|other| self.wires.entry((*other, id)).or_default().cut_until = u64::MAX),
            2 => others.iter().for_each(|other| self.wires.entry((id, *other)).or_default().cut_until = u64::MAX),
            _ => {
                if let Some(node) = self.nodes.get_mut(&id) {
                    node.disk.hangs_until = u64::MAX / 2;
                }
            }
        }
    }

    fn judge_end(&mut self) {
        let acked = self.judge.acked() - self.acked_at_heal;
        let states: Vec<String> = self.nodes.values().map(Node::describe).collect();
        assert!(acked > 50, "the group did not come back to life: {acked} writes acknowledged; {}", states.join("; "));
        let voters =
            self.leader().and_then(|id| self.nodes[&id].core.as_ref()).map(|core| core.members().voters.clone());
        let have_all = |id: &&NodeId| self.nodes.get(id).is_some_and(|node| node.engine.data.lsn >= self.judge.shown());
        let voters = voters.unwrap_or_default();
        let whole = voters.iter().filter(have_all).count();
        assert!(2 * whole > voters.len(), "only {whole} of {voters:?} have all data; {}", states.join("; "));
        self.judge.finish();
    }
}
