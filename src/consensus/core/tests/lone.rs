//! One core whose writes and messages a test controls one by one, and whose peers may say anything.

use super::*;

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
        let core = start(node(id), Mark::first(of_voters(&voters)), Duration::ZERO).unwrap();
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
    let heartbeat = |committed| Body::Heartbeat {
        committed: Index(committed),
        round: None,
        all: Index(committed),
        stamp: Stamp::default(),
    };
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
        ..Members::default()
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

#[test]
fn a_snapshot_is_judged_before_its_file_counts() {
    let mut lone = Lone::new(2, &[1, 2, 3]);
    let mut link = Link::default();
    let entries = blocks(2, 3, &mut link);
    lone.get(1, 2, Body::Append { after: (Index(1), Term(1)), entries, committed: Index(3) });
    lone.write_all();
    let judged = |lone: &Lone, from: u64, term: u64, body: Body| {
        let message = Message { from: node(from), to: node(2), term: Term(term), body };
        lone.core.wants(node(1), &message)
    };
    let install = |index, term, voters: &[u64]| {
        let voters: Vec<NodeId> = voters.iter().map(|id| node(*id)).collect();
        let at = Position { index: Index(index), term: Term(term), link: Link::default() };
        Body::Install(Mark { at, members: of_voters(&voters), serial: 1 })
    };
    let all = [1, 2, 3];
    assert_eq!(judged(&lone, 1, 2, install(9, 2, &all)), Ok(()));
    assert_eq!(judged(&lone, 1, 1, install(9, 1, &all)), Err(Unwanted::Outdated));
    assert_eq!(judged(&lone, 1, 2, install(3, 2, &all)), Err(Unwanted::Covered));
    assert_eq!(judged(&lone, 1, 2, install(9, 2, &[1, 3])), Err(Unwanted::NoMember));
    assert_eq!(judged(&lone, 3, 2, install(9, 2, &all)), Err(Refusal::Address.into()));
    assert_eq!(judged(&lone, 1, 2, install(9, 3, &all)), Err(Refusal::Malformed.into()));
    assert_eq!(judged(&lone, 1, 2, install(3, 1, &all)), Err(Refusal::Fork(Index(3)).into()));
    assert_eq!(judged(&lone, 1, 2, Body::TakeOver), Err(Refusal::Malformed.into()));
    // Nothing has become of it.
    lone.drain();
    assert!(lone.unwritten.is_empty());
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
    let members = Members { voters: (1..=5).map(node).collect(), ..Members::default() };
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
            lone.get(id, 2, Body::Heard { committed: Index(1), round: None, stamp: Stamp::default() });
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
                1 => Payload::Change([joining, MemberChange::Promote, MemberChange::Remove][rng.below(3) as usize](
                    node(1 + rng.below(5)),
                )),
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
        6 => {
            Body::Heartbeat { committed: index(rng), round: round(rng), all: index(rng), stamp: Stamp(rng.next_u64()) }
        }
        7 => Body::Heard { committed: index(rng), round: round(rng), stamp: Stamp(rng.next_u64()) },
        _ if yes(rng) => Body::TakeOver,
        _ => {
            let (index, term) = place(rng);
            let mut voters: Vec<NodeId> = (1..4).map(node).collect();
            voters.truncate(rng.below(4) as usize);
            let members =
                Members { voters, learners: if yes(rng) { vec![node(5)] } else { vec![] }, ..Members::default() };
            let at = Position { index, term, link: Link { lsn: Lsn::new(near(rng, last.link.lsn.get())), crc: 7 } };
            Body::Install(Mark { at, members, serial: rng.below(9) })
        }
    }
}
