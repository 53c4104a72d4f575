use std::collections::BTreeSet;

use super::super::block::tests::block;
use super::super::entry::{Entry, Payload};
use super::super::limits::PROMOTE_LAG_MAX;
use super::super::message::SentEntry;
use super::super::output::{ChangeRefusal, Order};
use super::super::types::MemberChange;
use super::*;
use crate::base::lsn::Lsn;

fn node(number: u64) -> NodeId {
    NodeId::new(number).unwrap()
}

const SETTINGS: Settings = Settings { seed: 1, disk_stuck_after: Duration::from_secs(1) };

/// Cores whose messages arrive at once and whose writes are durable at once, but for those that a test holds up.
struct Group {
    cores: Vec<Core>,
    orders: Vec<Vec<Order>>,
    committed: Vec<Option<(Term, Lsn)>>,
    sent: Vec<Message>,
    now: Duration,
    /// Numbers of nodes: these disks write nothing, these engines follow no orders, these nodes hear and say nothing.
    hung: BTreeSet<u64>,
    loading: BTreeSet<u64>,
    cut: BTreeSet<u64>,
    unwritten: Vec<Vec<u64>>,
}

impl Group {
    fn new(nodes: u64) -> Group {
        let ids: Vec<NodeId> = (1..=nodes).map(node).collect();
        let empty = Group {
            cores: Vec::new(),
            orders: Vec::new(),
            committed: Vec::new(),
            sent: Vec::new(),
            now: Duration::ZERO,
            hung: BTreeSet::new(),
            loading: BTreeSet::new(),
            cut: BTreeSet::new(),
            unwritten: Vec::new(),
        };
        ids.iter().fold(empty, |mut group, id| {
            group.add(*id, Mark::first(&ids));
            group
        })
    }

    fn add(&mut self, id: NodeId, snapshot: Mark) {
        self.cores.push(start(id, snapshot, self.now).unwrap());
        self.orders.push(Vec::new());
        self.committed.push(None);
        self.unwritten.push(Vec::new());
    }

    /// Lets time pass, a millisecond at a time.
    fn run(&mut self, ms: u64) {
        for _ in 0..ms {
            self.now += Duration::from_millis(1);
            for at in 0..self.cores.len() {
                self.cores[at].time(self.now);
            }
            self.settle();
        }
    }

    /// Delivers all messages and writes.
    fn settle(&mut self) {
        let mut is_busy = true;
        while is_busy {
            is_busy = false;
            for at in 0..self.cores.len() {
                let id = at as u64 + 1;
                let output = self.cores[at].take_output();
                self.committed[at] = output.committed.or(self.committed[at]);
                self.unwritten[at].extend(output.writes.iter().map(|write| write.number));
                for (number, order) in output.orders {
                    self.orders[at].push(order);
                    if !self.loading.contains(&id) {
                        self.cores[at].handled(number);
                    }
                }
                if !self.hung.contains(&id)
                    && let Some(number) = self.unwritten[at].pop()
                {
                    self.unwritten[at].clear();
                    self.cores[at].persisted(number);
                    is_busy = true;
                }
                let messages: Vec<Message> = output.messages.into_iter().chain(output.streams).collect();
                self.sent.extend(messages.iter().cloned());
                for message in messages {
                    let to = message.to.get();
                    if self.cut.contains(&id) || self.cut.contains(&to) || to as usize > self.cores.len() {
                        continue;
                    }
                    is_busy = true;
                    let install = matches!(message.body, Body::Install(_));
                    self.cores[to as usize - 1].receive(node(id), message, self.now).unwrap();
                    if install {
                        self.cores[at].reported(node(to), true);
                    }
                }
            }
        }
    }

    /// Returns the number of the only leader.
    fn leader(&self) -> u64 {
        let leaders: Vec<u64> = (1..).zip(&self.cores).filter(|(_, core)| core.leads()).map(|(id, _)| id).collect();
        assert_eq!(leaders.len(), 1, "leaders: {leaders:?}");
        leaders[0]
    }

    fn core(&mut self, id: u64) -> &mut Core {
        &mut self.cores[id as usize - 1]
    }

    fn orders(&self, id: u64) -> &[Order] {
        &self.orders[id as usize - 1]
    }

    /// Returns the next block of a leader's reign.
    fn next_block(&mut self, id: u64) -> Block {
        let core = self.core(id);
        block(core.term().0, core.last().link, &[b"unit"])
    }

    fn propose(&mut self, id: u64) {
        let block = self.next_block(id);
        self.core(id).propose(block);
        self.settle();
    }

    /// Returns a group with a leader, and the leader's number.
    fn led(nodes: u64) -> (Group, u64) {
        let mut group = Group::new(nodes);
        group.run(600);
        let leader = group.leader();
        (group, leader)
    }
}

fn start(id: NodeId, snapshot: Mark, now: Duration) -> Result<Core, StartError> {
    let disk = Recovered { before: snapshot.at, snapshot, ..Recovered::default() };
    Core::new(id, disk, Settings { seed: id.get(), ..SETTINGS }, now)
}

fn deposed(term: Term, why: Why) -> Order {
    Order::Deposed { term, why }
}

#[test]
fn a_leader_is_elected_and_its_blocks_are_committed_and_applied() {
    let (mut group, leader) = Group::led(3);
    let term = group.core(leader).term();
    assert_eq!(group.orders(leader).last(), Some(&Order::Lead(term)));
    group.propose(leader);
    group.propose(leader);
    assert_eq!(group.committed[leader as usize - 1], Some((term, Lsn::new(2))));
    group.run(100);
    let applied = |orders: &[Order]| orders.iter().filter(|order| matches!(order, Order::Apply { .. })).count();
    assert_eq!([1, 2, 3].map(|id| applied(group.orders(id))), [2; 3]);
}

#[test]
fn the_first_refusal_ends_the_reign() {
    let (mut group, leader) = Group::led(3);
    let term = group.core(leader).term();
    let (first, second) = {
        let first = group.next_block(leader);
        let second = block(term.0, first.link(), &[b"second"]);
        (first, second)
    };
    // The first one is lost, so the second one is not the next.
    group.core(leader).propose(second.clone());
    group.settle();
    assert_eq!(group.orders(leader).last(), Some(&deposed(term, Why::Refused)));
    assert!(!group.core(leader).leads(), "it gives leadership up, too");
    let last = group.core(leader).last();
    for block in [first, second] {
        group.core(leader).propose(block);
    }
    assert_eq!(group.core(leader).last(), last, "no later block of the reign is taken");
}

#[test]
fn a_block_of_an_ended_reign_is_dropped_in_the_next_one() {
    let (mut group, leader) = Group::led(3);
    let old = group.next_block(leader);
    for _ in 0..20 {
        group.core(leader).engine_is_stuck();
        group.run(600);
        if group.leader() == leader {
            break;
        }
        let (other, to) = (group.leader(), node(leader));
        group.core(other).transfer(to);
        group.run(600);
    }
    assert_eq!(group.leader(), leader);
    let before = group.core(leader).last();
    group.core(leader).propose(old);
    assert_eq!(group.core(leader).last(), before);
    assert!(group.core(leader).leads(), "a stale block does not end the new reign");
}

#[test]
fn a_leader_without_a_quorum_steps_down() {
    let (mut group, leader) = Group::led(3);
    let term = group.core(leader).term();
    group.cut.insert(leader);
    group.propose(leader);
    group.run(700);
    assert!(!group.core(leader).leads());
    assert!(group.orders(leader).contains(&deposed(term, Why::Lost)));
    assert_eq!(group.committed[leader as usize - 1], None, "nobody else has the block");
    let successor = group.leader();
    group.propose(successor);
    group.cut.clear();
    group.run(300);
    let (old, new) = (group.core(leader).last(), group.core(successor).last());
    assert_eq!(old, new, "the block of the old reign was cut off");
}

#[test]
fn a_transfer_ends_the_reign_first_and_the_other_node_leads() {
    let (mut group, leader) = Group::led(3);
    let (term, to) = (group.core(leader).term(), leader % 3 + 1);
    for unable in [leader, 9] {
        assert!(!group.core(leader).transfer(node(unable)));
    }
    assert!(!group.core(to).transfer(node(leader)), "a follower has nothing to hand over");
    group.settle();
    assert_eq!(group.orders(leader).last(), Some(&Order::Lead(term)), "nothing has changed");
    assert!(group.core(leader).transfer(node(to)));
    group.settle();
    assert_eq!(group.orders(leader).last(), Some(&deposed(term, Why::Transfer)));
    assert_eq!(group.leader(), to);
}

#[test]
fn a_transfer_to_a_dead_node_gives_leadership_up() {
    let (mut group, leader) = Group::led(3);
    let (term, to) = (group.core(leader).term(), leader % 3 + 1);
    group.cut.insert(to);
    group.propose(leader);
    assert!(group.core(leader).transfer(node(to)));
    group.propose(leader);
    let last = group.core(leader).last();
    group.run(200);
    assert!(!group.core(leader).leads() || group.core(leader).term() > term, "this reign never takes blocks again");
    assert_eq!(last.link.lsn, Lsn::new(1), "no block is taken during a transfer");
    group.run(800);
    group.leader();
}

#[test]
fn leadership_moves_away_from_a_stuck_engine_until_it_has_followed_its_orders() {
    let (mut group, leader) = Group::led(3);
    let term = group.core(leader).term();
    group.loading.insert(leader);
    group.core(leader).engine_is_stuck();
    group.settle();
    assert_eq!(group.orders(leader).last(), Some(&deposed(term, Why::Stuck)));
    let successor = group.leader();
    assert_ne!(successor, leader);
    // Nobody else can lead now, and this node does not stand.
    group.cut.extend((1..=3).filter(|id| *id != leader && *id != successor));
    group.loading.insert(successor);
    group.core(successor).engine_is_stuck();
    group.sent.clear();
    group.run(1000);
    let stands = |message: &&Message| matches!(message.body, Body::Stand { .. }) && message.from == node(leader);
    assert_eq!(group.sent.iter().find(stands), None);
    let number = group.core(leader).orders.issued;
    group.core(leader).handled(number);
    group.loading.remove(&leader);
    group.run(600);
    assert!(group.core(leader).leads());
}

#[test]
fn hung_disks_of_all_followers_do_not_depose_a_leader() {
    let hang = || {
        let (mut group, leader) = Group::led(3);
        group.hung = (1..=3).filter(|id| *id != leader).collect();
        let term = group.core(leader).term();
        group.propose(leader);
        group.run(400);
        group.core(leader).leads() && group.core(leader).term() == term
    };
    assert!(hang());
    planted::plant(Some(Bug::LateHeartbeat));
    let stays = hang();
    planted::plant(None);
    assert!(!stays, "their answers to heartbeats would wait for their disks");
}

#[test]
fn leadership_moves_away_from_a_hung_disk() {
    let (mut group, leader) = Group::led(3);
    let term = group.core(leader).term();
    group.hung.insert(leader);
    group.propose(leader);
    group.run(900);
    assert_eq!(group.committed[leader as usize - 1], Some((term, Lsn::new(1))), "the others have the block");
    assert!(group.core(leader).leads());
    group.run(200);
    assert_eq!(group.orders(leader).last(), Some(&deposed(term, Why::Disk)));
    group.run(1000);
    assert_ne!(group.leader(), leader, "a vote for itself could not become durable");
}

#[test]
fn a_node_that_loads_is_not_told_to_take_over() {
    let (mut group, leader) = Group::led(3);
    let to = leader % 3 + 1;
    group.core(to).orders.ready_after = u64::MAX;
    group.core(leader).transfer(node(to));
    group.settle();
    assert!(!group.core(to).leads());
}

#[test]
fn a_node_that_just_started_or_hears_a_leader_gives_no_vote_unless_it_is_forced() {
    let stand = |core: &mut Core, term, forced, now| {
        let place = (Index(1), Term(1));
        let body = Body::Stand { pre: false, last: place, committed: place, forced };
        core.receive(node(2), Message { from: node(2), to: node(1), term: Term(term), body }, now).unwrap();
        core.term()
    };
    let mut core = start(node(1), Mark::first(&[node(1), node(2), node(3)]), Duration::ZERO).unwrap();
    assert_eq!(stand(&mut core, 5, false, Duration::from_millis(1)), Term(1));
    assert_eq!(stand(&mut core, 5, false, VOTING_PAUSE), Term(5));
    assert_eq!(core.ballot.vote, Some(node(2)));
    let heartbeat = Body::Heartbeat { committed: Index(0), round: None };
    let message = Message { from: node(3), to: node(1), term: Term(6), body: heartbeat };
    core.receive(node(3), message, VOTING_PAUSE).unwrap();
    assert_eq!(stand(&mut core, 7, false, 2 * VOTING_PAUSE - Duration::from_micros(1)), Term(6));
    assert_eq!(stand(&mut core, 7, true, VOTING_PAUSE), Term(7));
}

#[test]
fn missed_ticks_are_not_caught_up() {
    let mut core = start(node(1), Mark::first(&[node(1), node(2), node(3)]), Duration::ZERO).unwrap();
    let elapsed = |core: &Core| core.raft.raft.election_elapsed;
    core.time(Duration::ZERO);
    assert_eq!(elapsed(&core), 1);
    core.time(TICK - Duration::from_micros(1));
    assert_eq!(elapsed(&core), 1, "too early");
    for _ in 0..3 {
        core.time(Duration::from_secs(10));
    }
    assert_eq!(elapsed(&core), 2, "one tick for ten seconds");
}

#[test]
fn a_learner_joins_with_a_snapshot_and_becomes_a_voter() {
    let (mut group, leader) = Group::led(3);
    let term = group.core(leader).term();
    group.propose(leader);
    let id = node(4);
    group.add(id, Mark::default());
    group.core(leader).change(term, MemberChange::AddLearner(id)).unwrap();
    group.settle();
    assert_eq!(group.core(leader).change(term, MemberChange::Promote(id)), Err(ChangeRefusal::Behind));
    let at = group.core(leader).orders.last;
    let members = group.core(leader).members().clone();
    group.core(leader).snapshot_made(Mark { at, members, serial: 77 });
    group.core(leader).cut(at.index);
    group.run(400);
    assert!(group.orders(4).iter().any(|order| matches!(order, Order::Load(mark) if mark.serial == 77)));
    group.core(leader).change(term, MemberChange::Promote(id)).unwrap();
    group.run(100);
    assert_eq!(group.core(4).members().voters, (1..=4).map(node).collect::<Vec<_>>());
    assert_eq!(group.core(4).last(), group.core(leader).last());
}

#[test]
fn changes_of_the_members_that_would_do_harm_are_refused() {
    let (mut group, leader) = Group::led(3);
    let (term, other) = (group.core(leader).term(), node(leader % 3 + 1));
    let change = |group: &mut Group, change| group.core(leader).change(term, change).unwrap_err();
    assert_eq!(change(&mut group, MemberChange::AddLearner(other)), ChangeRefusal::Member);
    assert_eq!(change(&mut group, MemberChange::Promote(other)), ChangeRefusal::NoLearner);
    assert_eq!(change(&mut group, MemberChange::Remove(node(9))), ChangeRefusal::NoMember);
    assert_eq!(change(&mut group, MemberChange::Remove(node(leader))), ChangeRefusal::Leader);
    let follower = group.core(other.get()).change(term, MemberChange::AddLearner(node(9)));
    assert_eq!(follower, Err(ChangeRefusal::NotLeader));
    let stale = group.core(leader).change(Term(0), MemberChange::AddLearner(node(9)));
    assert_eq!(stale, Err(ChangeRefusal::NotLeader));
    group.core(leader).change(term, MemberChange::Remove(other)).unwrap();
    assert_eq!(change(&mut group, MemberChange::AddLearner(node(9))), ChangeRefusal::Pending);
    group.run(100);
    let last = node((1..=3).find(|id| *id != leader && *id != other.get()).unwrap());
    assert_eq!(change(&mut group, MemberChange::Remove(last)), ChangeRefusal::TooFewVoters);
    group.core(leader).change(term, MemberChange::AddLearner(node(9))).unwrap();
    for _ in 0..=PROMOTE_LAG_MAX {
        group.propose(leader);
    }
    assert_eq!(change(&mut group, MemberChange::Promote(node(9))), ChangeRefusal::Behind);
}

/// A follower of term 2, with two blocks that are committed and one that is not. It refuses what no sound node sends,
/// and goes on.
#[test]
fn messages_that_no_sound_node_sends_are_refused() {
    let mut lone = Lone::new(2, &[1, 2, 3]);
    let mut link = Link::default();
    let entries = blocks(2, 3, &mut link);
    let sent = entries.clone();
    lone.get(1, 2, Body::Append { after: (Index(1), Term(1)), entries, committed: Index(3) });
    lone.write_all();
    let is_refused = |lone: &mut Lone, from: u64, term: u64, body: Body| {
        let message = Message { from: node(from), to: node(2), term: Term(term), body };
        lone.core.receive(node(from), message, lone.now).err()
    };
    let heartbeat = |committed| Body::Heartbeat { committed: Index(committed), round: None };
    let lost = Refusal::DataLost { committed: Index(5), last: Index(4) };
    assert_eq!(is_refused(&mut lone, 1, 2, heartbeat(5)), Some(lost));
    assert_eq!(is_refused(&mut lone, 1, 0, heartbeat(1)), Some(Refusal::Address));
    for (from, to) in [(3, 2), (1, 3)] {
        let message = Message { from: node(from), to: node(to), term: Term(2), body: heartbeat(1) };
        assert_eq!(lone.core.receive(node(1), message, lone.now), Err(Refusal::Address));
    }
    let append = |after: (u64, u64), entries| Body::Append {
        after: (Index(after.0), Term(after.1)),
        entries,
        committed: Index(after.0),
    };
    let start = |term| SentEntry { term: Term(term), payload: Payload::Start };
    let block_of = |term, reign, before| {
        vec![SentEntry { term: Term(term), payload: Payload::Block(block(reign, before, &[b"unit"])) }]
    };
    let members = |voters: &[u64], learners: &[u64]| Members {
        voters: voters.iter().map(|id| node(*id)).collect(),
        learners: learners.iter().map(|id| node(*id)).collect(),
    };
    let install = |index, term, members| {
        let at = Position { index: Index(index), term: Term(term), link: Link::default() };
        Body::Install(Mark { at, members, serial: 1 })
    };
    let all = || members(&[1, 2, 3], &[]);
    let malformed = [
        append((u64::MAX, 2), vec![start(2)]),
        append((1 << 62, 2), vec![start(2)]),
        append((4, 2), vec![start(1)]),
        append((4, 2), vec![start(3)]),
        append((100, 0), vec![]),
        append((100, 0), vec![start(0)]),
        append((0, 2), vec![]),
        append((4, 2), block_of(2, 1, link)),
        Body::Refused { index: Index(3), hint: (Index(u64::MAX), Term(1)), committed: Index(1) },
        install(0, 0, all()),
        install(9, 0, all()),
        install(9, 3, all()),
        install(u64::MAX, 2, all()),
        install(9, 2, members(&[], &[])),
        install(9, 2, members(&[2], &[1])),
        install(9, 2, members(&[3, 2, 1], &[])),
        install(9, 2, members(&[1, 1, 2], &[])),
        install(9, 2, members(&[1, 2, 3], &[2])),
    ];
    for body in malformed {
        assert_eq!(is_refused(&mut lone, 1, 2, body.clone()), Some(Refusal::Malformed), "{body:?}");
    }
    for term in [u64::MAX, 1 << 62, 1 << 40] {
        assert_eq!(is_refused(&mut lone, 1, term, heartbeat(1)), Some(Refusal::Malformed), "term {term}");
    }
    let forks = [
        (append((2, 2), vec![start(3)]), 3),
        (append((3, 1), vec![]), 3),
        (append((4, 2), block_of(3, 3, Link::default())), 5),
        (install(3, 3, all()), 3),
    ];
    for (body, index) in forks {
        assert_eq!(is_refused(&mut lone, 1, 3, body.clone()), Some(Refusal::Fork(Index(index))), "{body:?}");
    }
    assert_eq!((lone.core.term(), lone.core.last().index), (Term(2), Index(4)), "nothing has changed");
    lone.get(1, 2, append((1, 1), sent));
    assert_eq!(lone.core.last().index, Index(4));
}

#[test]
fn a_leader_refuses_an_answer_about_what_it_never_sent() {
    let (mut group, leader) = Group::led(3);
    let (from, to) = (node(leader % 3 + 1), node(leader));
    let now = group.now;
    let core = group.core(leader);
    let body = Body::Appended { index: core.last().index.next(), committed: Index(0) };
    let message = Message { from, to, term: core.term(), body };
    assert_eq!(core.receive(from, message, now), Err(Refusal::Malformed));
}

/// One core whose writes and messages a test controls one by one.
struct Lone {
    core: Core,
    now: Duration,
    unwritten: VecDeque<u64>,
    sent: Vec<Message>,
    orders: Vec<Order>,
}

impl Lone {
    fn new(id: u64, voters: &[u64]) -> Lone {
        let voters: Vec<NodeId> = voters.iter().map(|id| node(*id)).collect();
        let core = start(node(id), Mark::first(&voters), Duration::ZERO).unwrap();
        let mut lone =
            Lone { core, now: Duration::ZERO, unwritten: VecDeque::new(), sent: Vec::new(), orders: Vec::new() };
        lone.drain();
        lone
    }

    fn drain(&mut self) {
        let output = self.core.take_output();
        self.unwritten.extend(output.writes.iter().map(|write| write.number));
        self.sent.extend(output.messages);
        for (number, order) in output.orders {
            self.orders.push(order);
            self.core.handled(number);
        }
    }

    fn get(&mut self, from: u64, term: u64, body: Body) {
        let message = Message { from: node(from), to: self.core.id, term: Term(term), body };
        self.core.receive(node(from), message, self.now).unwrap();
        self.drain();
    }

    fn write_one(&mut self) {
        if let Some(number) = self.unwritten.pop_front() {
            self.core.persisted(number);
            self.drain();
        }
    }

    fn write_all(&mut self) {
        while !self.unwritten.is_empty() {
            self.write_one();
        }
    }

    /// Lets this node stand, with votes of another node.
    fn be_elected(&mut self, rng: &mut Rng) {
        for pre in [true, false] {
            self.ticks(if pre { 30 } else { 0 });
            self.write_all();
            let term = Term(self.core.term().0 + u64::from(pre));
            let body = Body::Vote { pre, granted: true, committed: Default::default() };
            let _ = self.core.receive(node(3), Message { from: node(3), to: node(2), term, body }, self.now);
            self.drain();
            if !pre || rng.below(4) > 0 {
                self.write_all();
            }
        }
    }

    fn ticks(&mut self, count: u32) {
        for _ in 0..count {
            self.now += TICK;
            self.core.time(self.now);
            self.drain();
        }
    }
}

/// Returns entries of a term, with one block each, and moves `link` behind them.
fn blocks(term: u64, count: u64, link: &mut Link) -> Vec<SentEntry> {
    let entry = |_| {
        let block = block(term, *link, &[b"unit"]);
        *link = block.link();
        SentEntry { term: Term(term), payload: Payload::Block(block) }
    };
    (0..count).map(entry).collect()
}

/// Lets node 2 take over from node 1 with an entry in its log that removes it.
fn removed_while_it_takes_over() -> Lone {
    let mut lone = Lone::new(2, &[1, 2, 3]);
    let removal = SentEntry { term: Term(2), payload: Payload::Change(MemberChange::Remove(node(2))) };
    let entries = vec![SentEntry { term: Term(2), payload: Payload::Start }, removal];
    lone.get(1, 2, Body::Append { after: (Index(1), Term(1)), entries, committed: Index(2) });
    lone.write_all();
    lone.get(1, 2, Body::TakeOver);
    lone.write_all();
    lone.get(3, 3, Body::Vote { pre: false, granted: true, committed: Default::default() });
    assert!(lone.core.leads());
    lone
}

#[test]
fn a_node_that_learns_of_its_removal_as_a_leader_steps_down() {
    for is_disk_quick in [true, false] {
        let mut lone = removed_while_it_takes_over();
        if is_disk_quick {
            lone.write_all();
        }
        for id in [1, 3] {
            lone.get(id, 3, Body::Appended { index: Index(4), committed: Index(2) });
        }
        lone.write_all();
        assert_eq!(lone.core.members().voters, [node(1), node(3)]);
        assert!(!lone.core.leads());
        lone.ticks(100);
        assert!(!lone.core.leads());
    }
}

/// Entries of an old write come back behind a snapshot, while all writes are on their way.
#[test]
fn a_late_write_does_not_vouch_for_entries_that_came_back_after_it() {
    let mut lone = Lone::new(2, &[1, 2, 3, 4, 5]);
    let (mut link, mut at, mut other) = (Link::default(), Link::default(), Link::default());
    let first = blocks(2, 10, &mut link);
    blocks(2, 6, &mut at);
    let append = |after, entries, committed| Body::Append { after, entries, committed: Index(committed) };
    lone.get(1, 2, append((Index(1), Term(1)), first.clone(), 1));
    lone.get(3, 3, append((Index(1), Term(1)), blocks(3, 2, &mut other), 1));
    let members = Members { voters: (1..=5).map(node).collect(), learners: vec![] };
    let mark = Mark { at: Position { index: Index(7), term: Term(2), link: at }, members, serial: 1 };
    lone.get(1, 4, Body::Install(mark));
    let mut rest = first[6..].to_vec();
    rest.extend(blocks(4, 1, &mut link));
    lone.get(1, 4, append((Index(7), Term(2)), rest, 12));
    let applied = |lone: &Lone| lone.orders.iter().filter(|order| matches!(order, Order::Apply { .. })).count();
    while lone.unwritten.len() > 1 {
        lone.write_one();
        assert_eq!(applied(&lone), 0, "not all of this is on the disk: {:?} to go", lone.unwritten);
    }
    lone.write_one();
    assert_eq!(applied(&lone), 5);
}

#[test]
fn a_disk_that_hangs_right_after_an_election_does_not_hold_up_the_group() {
    let mut lone = Lone::new(2, &[1, 2, 3]);
    lone.get(1, 1, Body::TakeOver);
    lone.write_all();
    lone.get(3, 2, Body::Vote { pre: false, granted: true, committed: Default::default() });
    assert!(lone.core.leads());
    // The others have its first entry and commit it; its own disk never gets there.
    for _ in 0..150 {
        lone.ticks(1);
        for id in [1, 3] {
            if !lone.core.leads() {
                continue;
            }
            lone.get(id, 2, Body::Appended { index: Index(2), committed: Index(1) });
            lone.get(id, 2, Body::Heard { committed: Index(1), round: None });
        }
    }
    assert!(!lone.core.leads());
    assert!(!lone.orders.contains(&Order::Lead(Term(2))));
}

#[test]
fn a_vote_that_nobody_asked_for_elects_nobody() {
    let mut lone = Lone::new(2, &[1, 2, 3]);
    lone.get(1, 2, Body::Append { after: (Index(1), Term(1)), entries: vec![], committed: Index(1) });
    lone.write_all();
    lone.get(1, 2, Body::TakeOver);
    let vote = || Body::Vote { pre: false, granted: true, committed: Default::default() };
    lone.get(3, 3, vote());
    assert!(!lone.core.leads(), "its own vote is not durable");
    lone.write_all();
    lone.get(3, 3, vote());
    assert!(lone.core.leads());
}

#[test]
fn a_node_starts_only_with_sound_data() {
    let mark = Mark::first(&[node(1), node(2), node(3)]);
    let new = |disk| Core::new(node(1), disk, SETTINGS, Duration::ZERO).err().map(|error| error.to_string());
    let alone = Mark::first(&[node(1)]);
    let disk = Recovered { before: alone.at, snapshot: alone, ..Recovered::default() };
    assert_eq!(new(disk).as_deref(), Some("a group needs at least 2 voters"));
    let behind = Position { index: Index(5), ..mark.at };
    let disk = Recovered { before: behind, snapshot: mark, ..Recovered::default() };
    assert_eq!(new(disk).as_deref(), Some("the snapshot up to entry 1 does not belong to this log"));
}

/// A node whose peers say anything at all, in any order, while its disk is slow. It may lose what they make it lose,
/// but it never goes down: each message is taken, ignored or refused.
#[test]
fn no_message_brings_a_node_down() {
    let (mut led, mut refused) = (0, 0);
    for seed in 0..300 {
        let mut rng = Rng::seeded(seed);
        let mut lone = Lone::new(2, &[1, 2, 3]);
        for _ in 0..400 {
            match rng.below(10) {
                0 => lone.ticks(1 + rng.below(20) as u32),
                1 => lone.write_one(),
                2 => lone.write_all(),
                4 => lone.be_elected(&mut rng),
                3 if lone.core.leads() => {
                    let block = block(lone.core.term().0, lone.core.last().link, &[b"unit"]);
                    lone.core.propose(block);
                    lone.drain();
                }
                _ => {
                    let from = node(if rng.below(2) == 0 { 1 } else { 3 });
                    let body = any_body(&mut rng, &lone.core);
                    let term = Term((lone.core.term().0 + rng.below(3)).saturating_sub(rng.below(2)));
                    let message = Message { from, to: node(2), term, body };
                    led += u64::from(lone.core.leads());
                    refused += u64::from(lone.core.receive(from, message, lone.now).is_err());
                    lone.drain();
                }
            }
        }
    }
    assert!(led > 1_000 && refused > 1_000, "{led} messages to a leader, {refused} refused");
}

/// Returns any message, with numbers near those that the core knows.
fn any_body(rng: &mut Rng, core: &Core) -> Body {
    let last = core.last();
    let near = |rng: &mut Rng, number: u64| {
        let far = [0, 1, u64::MAX, 1 << 62];
        if rng.below(20) == 0 { far[rng.below(4) as usize] } else { (number + rng.below(4)).saturating_sub(2) }
    };
    let index = |rng: &mut Rng| Index(near(rng, last.index.0));
    let place = |rng: &mut Rng| (Index(near(rng, last.index.0)), Term(near(rng, last.term.0)));
    let round = |rng: &mut Rng| (rng.below(2) == 0).then(|| Round { term: core.term(), number: rng.below(4) });
    let yes = |rng: &mut Rng| rng.below(2) == 0;
    match rng.below(9) {
        0 | 1 => {
            let after = if rng.below(3) == 0 { place(rng) } else { (last.index, last.term) };
            let mut link = core.raft.store().at(after.0).map_or(last.link, |at| at.link);
            let term = Term(near(rng, core.term().0));
            let payload = |rng: &mut Rng, link: &mut Link| match rng.below(4) {
                0 => Payload::Start,
                1 => Payload::Change([MemberChange::AddLearner, MemberChange::Promote, MemberChange::Remove]
                    [rng.below(3) as usize](node(1 + rng.below(5)))),
                _ => {
                    let block = block(term.0, *link, &[b"unit"]);
                    *link = block.link();
                    Payload::Block(block)
                }
            };
            let entries = (0..rng.below(4)).map(|_| SentEntry { term, payload: payload(rng, &mut link) }).collect();
            Body::Append { after, entries, committed: index(rng) }
        }
        2 => Body::Appended { index: index(rng), committed: index(rng) },
        3 => Body::Refused { index: index(rng), hint: place(rng), committed: index(rng) },
        4 => Body::Stand { pre: yes(rng), last: place(rng), committed: place(rng), forced: yes(rng) },
        5 => Body::Vote { pre: yes(rng), granted: yes(rng), committed: place(rng) },
        6 => Body::Heartbeat { committed: index(rng), round: round(rng) },
        7 => Body::Heard { committed: index(rng), round: round(rng) },
        _ if yes(rng) => Body::TakeOver,
        _ => {
            let (index, term) = place(rng);
            let mut voters: Vec<NodeId> = (1..4).map(node).collect();
            voters.truncate(rng.below(4) as usize);
            let members = Members { voters, learners: if yes(rng) { vec![node(5)] } else { vec![] } };
            let at = Position { index, term, link: Link { lsn: Lsn::new(near(rng, last.link.lsn.get())), crc: 7 } };
            Body::Install(Mark { at, members, serial: rng.below(9) })
        }
    }
}

/// Each fuse that no input can reach is blown from inside.
mod fuses {
    use super::*;

    fn core() -> Core {
        let mut core = start(node(1), Mark::first(&[node(1), node(2), node(3)]), Duration::ZERO).unwrap();
        core.take_output();
        core
    }

    #[test]
    #[should_panic(expected = "fuse Term")]
    fn the_log_knows_no_term_that_the_ballot_lacks() {
        let snapshot = Mark::first(&[node(1), node(2), node(3)]);
        let entries = vec![Entry { index: Index(2), term: Term(4), payload: Payload::Start }];
        let ballot = Ballot { term: Term(3), vote: None };
        let disk = Recovered { ballot, before: snapshot.at, snapshot, entries, committed: Index(0) };
        let _ = Core::new(node(1), disk, SETTINGS, Duration::ZERO);
    }

    #[test]
    #[should_panic(expected = "fuse Forwarding")]
    fn a_proposal_is_never_sent() {
        let kind = raft::eraftpb::MessageType::MsgPropose;
        core().send(&RaftMessage { msg_type: kind, from: 1, to: 2, ..RaftMessage::default() });
    }

    /// Sends what the disk does not have.
    fn send(body: Body) {
        core().send(&Message { from: node(1), to: node(2), term: Term(2), body }.foreign());
    }

    #[test]
    #[should_panic(expected = "fuse Durable")]
    fn a_vote_is_durable_before_it_is_sent() {
        send(Body::Vote { pre: false, granted: true, committed: Default::default() });
    }

    #[test]
    #[should_panic(expected = "fuse Durable")]
    fn a_node_votes_for_itself_before_it_stands() {
        let mut core = core();
        core.handled(1);
        let stand = Body::Stand { pre: false, last: Default::default(), committed: Default::default(), forced: false };
        core.send(&Message { from: node(1), to: node(2), term: Term(2), body: stand }.foreign());
    }

    #[test]
    #[should_panic(expected = "fuse Durable")]
    fn an_entry_is_durable_before_it_is_acknowledged() {
        let body = Body::Appended { index: Index(2), committed: Index(0) };
        core().send(&Message { from: node(1), to: node(2), term: Term(1), body }.foreign());
    }

    #[test]
    #[should_panic(expected = "fuse Durable")]
    fn a_term_is_durable_before_it_is_named() {
        send(Body::Heard { committed: Index(0), round: None });
    }

    #[test]
    #[should_panic(expected = "fuse Snapshot")]
    fn a_snapshot_holds_only_committed_entries() {
        let at = Position { index: Index(2), term: Term(1), link: Link::default() };
        core().snapshot_made(Mark { at, ..Mark::default() });
    }

    #[test]
    #[should_panic(expected = "fuse Apply")]
    fn no_entry_is_applied_twice() {
        let mut core = core();
        let first = RaftEntry { index: 1, term: 1, ..RaftEntry::default() };
        core.apply(&[first]);
    }

    #[test]
    #[should_panic(expected = "fuse Cut")]
    fn no_committed_entry_is_replaced() {
        let mut core = core();
        core.committed = Index(9);
        let entries = vec![SentEntry { term: Term(2), payload: Payload::Start }];
        let body = Body::Append { after: (Index(1), Term(1)), entries, committed: Index(1) };
        let _ = core.receive(node(2), Message { from: node(2), to: node(1), term: Term(2), body }, Duration::ZERO);
    }

    #[test]
    #[should_panic(expected = "fuse Publish")]
    fn what_was_published_stays_so() {
        let (mut group, leader) = Group::led(3);
        group.core(leader).published = Lsn::new(10);
        group.propose(leader);
    }
}
