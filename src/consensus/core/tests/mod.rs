//! Cores without disks and engines: [`Group`] joins several, `lone` has one.

mod lone;

use std::collections::BTreeSet;

use super::super::freshness::Stamp;
use super::super::limits::{MEMORY_BYTES, PROMOTE_LAG_MAX};
use super::super::message::SentEntry;
use super::super::output::{ChangeRefusal, Order, Unwanted};
use super::*;
use crate::base::lsn::Lsn;
use crate::log::replicated::block::tests::block;
use crate::log::replicated::entry::{Entry, Payload};
use crate::log::replicated::members::MemberChange;
use crate::log::replicated::members::tests::{joining, of_voters};
use crate::log::replicated::types::Link;

fn node(number: u64) -> NodeId {
    NodeId::new(number).unwrap()
}

const SETTINGS: Settings = Settings { seed: 1, disk_stuck_after: Duration::from_secs(1), memory_bytes: MEMORY_BYTES };

/// Cores whose messages arrive at once and whose writes are durable at once, but for those that a test holds up.
struct Group {
    cores: Vec<Core>,
    orders: Vec<Vec<Order>>,
    committed: Vec<Option<(Term, Lsn)>>,
    copied: Vec<Option<(Term, Lsn)>>,
    sent: Vec<Message>,
    now: Duration,
    /// Numbers of nodes: these disks write nothing, these engines follow no orders, these nodes hear and say nothing.
    hung: BTreeSet<u64>,
    loading: BTreeSet<u64>,
    cut: BTreeSet<u64>,
    unwritten: Vec<Vec<u64>>,
    /// The node whose disk hangs once it has voted for another.
    hangs_after_vote: Option<u64>,
}

impl Group {
    fn new(nodes: u64) -> Group {
        let ids: Vec<NodeId> = (1..=nodes).map(node).collect();
        let empty = Group {
            cores: Vec::new(),
            orders: Vec::new(),
            committed: Vec::new(),
            copied: Vec::new(),
            sent: Vec::new(),
            now: Duration::ZERO,
            hung: BTreeSet::new(),
            loading: BTreeSet::new(),
            cut: BTreeSet::new(),
            unwritten: Vec::new(),
            hangs_after_vote: None,
        };
        ids.iter().fold(empty, |mut group, id| {
            group.add(*id, Mark::first(of_voters(&ids)));
            group
        })
    }

    fn add(&mut self, id: NodeId, snapshot: Mark) {
        self.cores.push(start(id, snapshot, self.now).unwrap());
        self.orders.push(Vec::new());
        self.committed.push(None);
        self.copied.push(None);
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
                self.copied[at] = output.copied.or(self.copied[at]);
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
                    if self.hangs_after_vote == Some(id)
                        && matches!(message.body, Body::Vote { pre: false, granted: true, .. })
                    {
                        self.hung.insert(id);
                    }
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
    let disk = Recovered::at(snapshot, Ballot::default());
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
fn a_leader_tells_what_as_many_others_as_wanted_have_on_disk() {
    let (mut group, leader) = Group::led(3);
    let at = leader as usize - 1;
    let term = group.core(leader).term();
    group.propose(leader);
    assert_eq!(group.copied[at], None, "nobody wants to know");
    group.core(leader).want_copies(2);
    group.settle();
    assert_eq!(group.copied[at], Some((term, Lsn::new(1))));
    let hung = leader % 3 + 1;
    group.hung.insert(hung);
    group.propose(leader);
    assert_eq!(group.committed[at], Some((term, Lsn::new(2))));
    assert_eq!(group.copied[at], Some((term, Lsn::new(1))), "one disk hangs");
    group.core(leader).want_copies(1);
    group.settle();
    assert_eq!(group.copied[at], Some((term, Lsn::new(2))));
    group.core(leader).want_copies(2);
    group.settle();
    assert_eq!(group.copied[at], Some((term, Lsn::new(1))));
    group.hung.clear();
    group.settle();
    assert_eq!(group.copied[at], Some((term, Lsn::new(2))));
    for (copies, told) in [(3, None), (0, None), (2, Some((term, Lsn::new(2))))] {
        group.copied[at] = None;
        group.core(leader).want_copies(copies);
        group.settle();
        assert_eq!(group.copied[at], told, "{copies}");
    }
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
    let mut core = start(node(1), Mark::first(of_voters(&[node(1), node(2), node(3)])), Duration::ZERO).unwrap();
    assert_eq!(stand(&mut core, 5, false, Duration::from_millis(1)), Term(1));
    assert_eq!(stand(&mut core, 5, false, VOTING_PAUSE), Term(5));
    assert_eq!(core.ballot.vote, Some(node(2)));
    let heartbeat = Body::Heartbeat { committed: Index(0), round: None, all: Index(0), stamp: Stamp::default() };
    let message = Message { from: node(3), to: node(1), term: Term(6), body: heartbeat };
    core.receive(node(3), message, VOTING_PAUSE).unwrap();
    assert_eq!(stand(&mut core, 7, false, 2 * VOTING_PAUSE - Duration::from_micros(1)), Term(6));
    assert_eq!(stand(&mut core, 7, true, VOTING_PAUSE), Term(7));
}

#[test]
fn missed_ticks_are_not_caught_up() {
    let mut core = start(node(1), Mark::first(of_voters(&[node(1), node(2), node(3)])), Duration::ZERO).unwrap();
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
    group.core(leader).change(term, joining(id)).unwrap();
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
    assert_eq!(change(&mut group, joining(other)), ChangeRefusal::Member);
    assert_eq!(change(&mut group, MemberChange::Promote(other)), ChangeRefusal::NoLearner);
    assert_eq!(change(&mut group, MemberChange::Remove(node(9))), ChangeRefusal::NoMember);
    assert_eq!(change(&mut group, MemberChange::Remove(node(leader))), ChangeRefusal::Leader);
    let follower = group.core(other.get()).change(term, joining(node(9)));
    assert_eq!(follower, Err(ChangeRefusal::NotLeader));
    let stale = group.core(leader).change(Term(0), joining(node(9)));
    assert_eq!(stale, Err(ChangeRefusal::NotLeader));
    group.core(leader).change(term, MemberChange::Remove(other)).unwrap();
    assert_eq!(change(&mut group, joining(node(9))), ChangeRefusal::Pending);
    group.run(100);
    let last = node((1..=3).find(|id| *id != leader && *id != other.get()).unwrap());
    assert_eq!(change(&mut group, MemberChange::Remove(last)), ChangeRefusal::TooFewVoters);
    group.core(leader).change(term, joining(node(9))).unwrap();
    for _ in 0..=PROMOTE_LAG_MAX {
        group.propose(leader);
    }
    assert_eq!(change(&mut group, MemberChange::Promote(node(9))), ChangeRefusal::Behind);
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

#[test]
fn a_node_starts_only_with_sound_data() {
    let mark = Mark::first(of_voters(&[node(1), node(2), node(3)]));
    let new = |disk| Core::new(node(1), disk, SETTINGS, Duration::ZERO).err().map(|error| error.to_string());
    let alone = Mark::first(of_voters(&[node(1)]));
    let disk = Recovered::at(alone, Ballot::default());
    assert_eq!(new(disk).as_deref(), Some("a group needs at least 2 voters"));
    let ballot = Ballot { term: Term(1), vote: None };
    let apart = vec![Entry { index: Index(3), term: Term(1), payload: Payload::Start }];
    let disk = Recovered { entries: apart, ..Recovered::at(mark, ballot) };
    assert_eq!(new(disk).as_deref(), Some("the log is damaged: entry 3 leaves a gap"));
}

/// Each fuse that no input can reach is blown from inside.
mod fuses {
    use super::*;

    fn core() -> Core {
        let mut core = start(node(1), Mark::first(of_voters(&[node(1), node(2), node(3)])), Duration::ZERO).unwrap();
        core.take_output();
        core
    }

    #[test]
    #[should_panic(expected = "fuse Term")]
    fn the_log_knows_no_term_that_the_ballot_lacks() {
        let snapshot = Mark::first(of_voters(&[node(1), node(2), node(3)]));
        let entries = vec![Entry { index: Index(2), term: Term(4), payload: Payload::Start }];
        let ballot = Ballot { term: Term(3), vote: None };
        let disk = Recovered { entries, ..Recovered::at(snapshot, ballot) };
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
        send(Body::Heard { committed: Index(0), round: None, stamp: Stamp::default() });
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

#[test]
fn a_snapshot_that_is_made_again_is_the_one_to_send() {
    let first = Mark::first(of_voters(&[node(1), node(2), node(3)]));
    let mut core = start(node(1), first.clone(), Duration::ZERO).unwrap();
    core.snapshot_made(Mark { serial: 7, ..first });
    assert_eq!(core.raft.store().newest_snapshot().serial, 7);
}

#[test]
fn a_followers_data_is_fresh_after_an_election_without_changes() {
    let mut group = Group::new(3);
    group.run(2_000);
    let leader = group.leader();
    for id in (1..=3).filter(|id| *id != leader) {
        let fresh_at = group.core(id).take_output().fresh_at;
        assert!(fresh_at.is_some_and(|at| group.now - at < Duration::from_millis(200)), "{fresh_at:?}");
    }
}

#[test]
fn a_new_leader_says_nothing_of_freshness_before_it_knows_what_is_committed() {
    let mut group = Group::new(3);
    group.run(1_000);
    let old = group.leader();
    group.propose(old);
    group.run(100);
    let (lagging, next) = (old % 3 + 1, (old + 1) % 3 + 1);
    group.cut.insert(lagging);
    group.propose(old);
    group.settle();
    let (committed, committed_at) = (group.core(old).committed(), group.now);
    // The node that lags elects the other one, and does not write its first entry.
    group.cut = BTreeSet::from([old]);
    group.hangs_after_vote = Some(lagging);
    group.run(900);
    let next = group.core(next);
    assert!(next.leads() && !matches!(next.reign, Reign::Open(_)));
    let fresh_at = group.core(lagging).take_output().fresh_at;
    assert!(group.core(lagging).orders.applied < committed, "it lacks what was acknowledged");
    assert!(fresh_at.is_none_or(|at| at <= committed_at), "{fresh_at:?} after {committed_at:?}");
}
