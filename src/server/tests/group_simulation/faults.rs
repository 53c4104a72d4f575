//! What goes wrong: which kinds of faults a run has, and when each of them strikes.

use super::server::{STUCK_AFTER, Server};
use super::world::{Event, FAULTS_END, MS, World};
use crate::base::rng::Rng;
use crate::consensus::limits::{LEASE, VOTERS_MIN, VOTING_PAUSE};
use crate::consensus::message::Message;
use crate::log::replicated::members::MemberChange;
use crate::log::replicated::types::NodeId;
use crate::node::door::Call;

/// The kinds of faults of a run. Each run has only some of them, so that each kind also has runs of its own.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Faults {
    pub(super) crashes: bool,
    pub(super) ends: bool,
    pub(super) links: bool,
    pub(super) slowness: bool,
    pub(super) disks: bool,
    pub(super) full: bool,
    pub(super) pauses: bool,
    pub(super) stuck: bool,
    pub(super) transfers: bool,
    pub(super) members: bool,
    pub(super) clocks: bool,
    pub(super) snapshots: bool,
    /// Nodes keep few entries in memory.
    pub(super) memory: bool,
    /// Transfers of snapshots break off.
    pub(super) transfers_break: bool,
    /// Leaders answer reads under a lease.
    pub(super) leases: bool,
    pub(super) loss_in_1000: u64,
}

/// The way from one node to another.
#[derive(Default)]
pub(super) struct Wire {
    /// It is cut until this time.
    pub(super) cut_until: u64,
    /// Messages take up to this much longer until then.
    slow_until: u64,
    slow_by: u64,
}

impl Faults {
    pub(super) fn draw(rng: &mut Rng) -> Faults {
        let mut one_in = |n: u64| rng.below(n) == 0;
        Faults {
            crashes: one_in(2),
            ends: one_in(3),
            links: one_in(2),
            slowness: one_in(3),
            disks: one_in(3),
            full: one_in(5),
            pauses: one_in(3),
            stuck: one_in(3),
            transfers: one_in(3),
            members: one_in(3),
            clocks: one_in(3),
            snapshots: one_in(2),
            memory: one_in(2),
            transfers_break: one_in(2),
            leases: one_in(2),
            loss_in_1000: if one_in(2) { rng.below(60) } else { 0 },
        }
    }
}

impl World {
    pub(super) fn is_cut(&self, from: NodeId, to: NodeId) -> bool {
        self.wires.get(&(from, to)).is_some_and(|wire| wire.cut_until > self.now)
    }

    /// Sends a message, unless it is lost.
    pub(super) fn send(&mut self, message: Message) {
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
        self.after(delay, Event::Deliver(message));
    }

    fn some_server(&mut self) -> NodeId {
        let there: Vec<NodeId> =
            self.servers.values().filter(|server| !server.is_gone).map(|server| server.id).collect();
        there[self.rng.below(there.len() as u64) as usize]
    }

    fn some_target(&mut self) -> NodeId {
        match self.leader() {
            Some(leader) if self.rng.below(2) == 0 => leader,
            _ => self.some_server(),
        }
    }

    fn with_server(&mut self, id: NodeId, act: impl FnOnce(&mut World, &mut Server)) {
        if let Some(mut server) = self.servers.remove(&id) {
            act(self, &mut server);
            self.servers.insert(id, server);
        }
    }

    /// Lets something go wrong.
    pub(super) fn fault(&mut self) {
        if self.now >= FAULTS_END {
            return;
        }
        self.soon(120 * MS, Event::Fault);
        let mut has_struck = false;
        for _ in 0..3 {
            has_struck = has_struck || self.strike();
        }
    }

    /// Chooses a kind of fault. Returns whether this run has it.
    fn strike(&mut self) -> bool {
        let (faults, target) = (self.faults, self.some_target());
        match self.rng.below(14) {
            0 if faults.crashes => self.crash(),
            1 if faults.crashes => {
                let operations = self.rng.below(40);
                self.with_server(target, |_, server| server.crash_in(operations));
            }
            2 if faults.ends => {
                self.with_process(target, |_, process| process.door.call(Call::Stop));
            }
            3 | 4 if faults.links => self.cut(target),
            5 if faults.slowness => self.slow(target),
            6 if faults.disks => {
                let hangs = self.rng.below(1_500 * MS);
                self.reached.hung_disks += u64::from(hangs > STUCK_AFTER.as_micros() as u64);
                let slow_by = if self.rng.below(2) == 0 { self.rng.below(30 * MS) } else { 0 };
                let count = 1 + self.rng.below(2);
                for _ in 0..count {
                    let id = self.some_server();
                    self.with_server(id, |world, server| {
                        (server.hangs_until, server.slow_by) = (world.now + hangs, slow_by);
                    });
                }
            }
            7 if faults.full => self.with_server(target, |world, server| {
                let is_full = world.rng.below(2) == 0;
                world.reached.full_disks += u64::from(is_full);
                server.disk.set_capacity(is_full.then(|| server.disk.used_bytes() + world.rng.below(2_000)));
            }),
            8 if faults.pauses => self.with_server(target, |world, server| {
                let pause = world.rng.below(600 * MS);
                world.reached.pauses += u64::from(pause > LEASE.as_micros() as u64);
                server.paused_until = world.now + pause;
            }),
            9 if faults.stuck => self.with_server(target, |world, server| {
                let busy = world.rng.below(1_200 * MS);
                let leads = server.process.as_ref().is_some_and(|process| process.leads());
                world.reached.stuck += u64::from(leads && busy > STUCK_AFTER.as_micros() as u64);
                server.busy_until = world.now + busy;
            }),
            10 if faults.transfers => self.hand_over(),
            11 if faults.members => self.change_members(),
            12 if faults.clocks => self.with_server(target, |world, server| {
                world.reached.clock_jumps += 1;
                server.clock.set_wall_by_ms(world.rng.below(6_000) as i64 - 3_000);
            }),
            13 if faults.snapshots => self.with_process(target, |world, process| {
                world.clients.line(&mut process.engine, &["BGSAVE"]);
            }),
            _ => return false,
        }
        true
    }

    /// Lets a process do something, if the server is up.
    fn with_process(&mut self, id: NodeId, act: impl FnOnce(&mut World, &mut super::server::Process)) {
        let life = self.servers.get(&id).map_or(0, |server| server.life);
        self.with(id, life, |world, process| {
            act(world, process);
            world.wake_engine(id, life, process, 200);
            world.wake_node(id, life, process, 100);
        });
    }

    fn crash(&mut self) {
        let ids: Vec<NodeId> = match self.rng.below(8) {
            0 => self.servers.keys().copied().collect(),
            1 => vec![self.some_server(), self.some_server()],
            _ => vec![self.some_target()],
        };
        self.reached.all_down += u64::from(ids.len() == self.servers.len());
        let is_power_loss = self.rng.below(3) > 0;
        for id in ids {
            if self.servers.get(&id).is_none_or(|server| server.process.is_none()) {
                continue;
            }
            self.reached.power_losses += u64::from(is_power_loss);
            self.reached.kills += u64::from(!is_power_loss);
            self.stop(id, is_power_loss);
            let down = if self.rng.below(2) == 0 { self.rng.below(20 * MS) } else { self.rng.below(700 * MS) };
            self.after(1 + down, Event::Start(id));
        }
    }

    fn cut(&mut self, target: NodeId) {
        let until = self.now + 20 * MS + self.rng.below(1_200 * MS);
        let ids: Vec<NodeId> = self.servers.keys().copied().collect();
        let others = ids.iter().copied().filter(|id| *id != target);
        let shape = self.rng.below(4);
        let pairs: Vec<(NodeId, NodeId)> = match shape {
            // The target alone, or deaf, or mute.
            0 => others.flat_map(|other| [(target, other), (other, target)]).collect(),
            1 => others.map(|other| (other, target)).collect(),
            2 => others.map(|other| (target, other)).collect(),
            // Two sides.
            _ => {
                let (left, right): (Vec<NodeId>, Vec<NodeId>) = ids.iter().partition(|_| self.rng.below(2) == 0);
                left.iter().flat_map(|a| right.iter().flat_map(|b| [(*a, *b), (*b, *a)])).collect()
            }
        };
        self.reached.one_way += u64::from(shape == 1 || shape == 2);
        for (from, to) in pairs {
            self.wires.entry((from, to)).or_default().cut_until = until;
            self.after(until - self.now, Event::Heal(from, to, until));
        }
    }

    fn slow(&mut self, target: NodeId) {
        let (until, by) = (self.now + self.rng.below(1_500 * MS), self.rng.below(1_500 * MS));
        let others: Vec<NodeId> = self.servers.keys().copied().filter(|id| *id != target).collect();
        for key in others.into_iter().flat_map(|other| [(target, other), (other, target)]) {
            if self.rng.below(2) == 0 {
                let wire = self.wires.entry(key).or_default();
                (wire.slow_until, wire.slow_by) = (until, by);
            }
        }
    }

    /// Asks the leader to hand over.
    fn hand_over(&mut self) {
        let (Some(leader), to) = (self.leader(), self.some_server()) else { return };
        self.with_process(leader, |_, process| process.door.call(Call::Transfer(to, Box::new(|_| {}))));
        self.reached.hand_overs += 1;
    }

    /// One step towards a whole group of the size that it had at first.
    fn change_members(&mut self) {
        let Some(leader) = self.leader() else { return };
        let Some(process) = self.servers[&leader].process.as_ref() else { return };
        let (members, term) = (process.turns.members().clone(), process.group().reign());
        let Some(term) = term else { return };
        let size = self.founders.len();
        let change = if members.voters.len() <= size && self.rng.below(2) == 0 {
            match members.learners.first() {
                Some(learner) => MemberChange::Promote(*learner),
                None if self.next_node > 9 => return,
                None => {
                    let Some(id) = NodeId::new(self.next_node) else { return };
                    self.next_node += 1;
                    self.add_server(id);
                    self.soon(5 * MS, Event::Start(id));
                    MemberChange::AddLearner(id, self.servers[&id].home())
                }
            }
        } else if members.voters.len() > VOTERS_MIN + 1 && members.voters.len() > size {
            let others: Vec<NodeId> = members.voters.iter().copied().filter(|id| *id != leader).collect();
            MemberChange::Remove(others[self.rng.below(others.len() as u64) as usize])
        } else {
            return;
        };
        match change {
            MemberChange::AddLearner(..) => self.reached.learners += 1,
            MemberChange::Promote(_) | MemberChange::Remove(_) => self.reached.voters_changed += 1,
        }
        self.with_process(leader, |_, process| process.door.call(Call::Change(term, change, Box::new(|_| {}))));
    }

    /// Ends all faults.
    pub(super) fn heal(&mut self) {
        let now = self.now;
        self.faults = Faults { memory: self.faults.memory, leases: self.faults.leases, ..Faults::default() };
        self.wires.clear();
        for server in self.servers.values_mut() {
            server.paused_until = server.paused_until.min(now);
            server.busy_until = server.busy_until.min(now);
            (server.hangs_until, server.slow_by) = (server.hangs_until.min(now), 0);
            server.disk.set_capacity(None);
            server.stay_up();
        }
        let ids: Vec<NodeId> = self.servers.keys().copied().collect();
        for id in ids {
            self.soon(5 * MS, Event::Start(id));
        }
    }
}
