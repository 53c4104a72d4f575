//! Groups of whole nodes in one process: real threads, sockets on loopback and files, and engines that are small but
//! keep all rules.

mod group;

use std::time::Duration;

use self::group::Group;
use super::door::Call;
use super::error::NodeError;
use crate::base::rng::Rng;
use crate::consensus::message::Round;
use crate::consensus::output::{ChangeRefusal, Order, Why};
use crate::log::replicated::members::MemberChange;
use crate::log::replicated::types::NodeId;

fn node(number: u64) -> NodeId {
    NodeId::new(number).unwrap()
}

#[test]
fn three_empty_nodes_found_a_group_and_agree_on_every_block() {
    let mut group = Group::new(3);
    (1..=3).for_each(|number| group.start(number));
    let leader = group.until_led();
    for number in 0..100 {
        group.propose(leader, &format!("unit {number}"));
    }
    group.until("all have 100 units", |group| (1..=3).all(|number| group.units(number) == 100));
    assert_eq!(group.acknowledged, 100);
    group.check_that_all_agree();
}

#[test]
fn no_node_founds_a_group_before_it_knows_all_founders() {
    let mut group = Group::new(3);
    group.start(1);
    group.start(2);
    group.run_for(Duration::from_millis(600));
    assert!(group.leader().is_none() && group.orders_of(1).is_empty() && group.orders_of(2).is_empty());
    group.start(3);
    group.until_led();
}

#[test]
fn the_others_go_on_without_the_leader_and_it_catches_up() {
    let mut group = Group::new(3);
    (1..=3).for_each(|number| group.start(number));
    for round in 0..3 {
        let leader = group.until_led();
        group.propose_and_wait(leader, 20);
        group.stop(leader);
        let next = group.until_led();
        assert_ne!(next, leader);
        group.propose_and_wait(next, 20);
        group.start(leader);
        let units = 40 * (round + 1);
        group.until("all have all units", |group| (1..=3).all(|number| group.units(number) == units));
    }
    group.check_that_all_agree();
    // All are killed at once.
    (1..=3).for_each(|number| group.stop(number));
    (1..=3).for_each(|number| group.start(number));
    let leader = group.until_led();
    assert_eq!(group.units(leader), 120);
    group.propose_and_wait(leader, 1);
}

#[test]
fn a_leader_without_a_quorum_steps_down() {
    let mut group = Group::new(3);
    (1..=3).for_each(|number| group.start(number));
    let leader = group.until_led();
    group.propose_and_wait(leader, 1);
    (1..=3).filter(|number| *number != leader).for_each(|number| group.stop(number));
    group.propose(leader, "it reaches nobody");
    group.until("it has stepped down", |group| group.leader().is_none());
    assert!(group.orders_of(leader).iter().any(|order| matches!(order, Order::Deposed { why: Why::Lost, .. })));
    assert_eq!(group.acknowledged, 1);
    (1..=3).filter(|number| *number != leader).for_each(|number| group.start(number));
    let next = group.until_led();
    group.propose_and_wait(next, 1);
    group.until("all have the same", |group| (1..=3).all(|number| group.units(number) == group.units(next)));
    group.check_that_all_agree();
}

#[test]
fn leadership_is_handed_over_on_request() {
    let mut group = Group::new(3);
    (1..=3).for_each(|number| group.start(number));
    let leader = group.until_led();
    group.propose_and_wait(leader, 5);
    let other = leader % 3 + 1;
    assert!(group.ask(leader, |answer| Call::Transfer(node(other), answer)));
    group.until("the other one leads", |group| group.leader() == Some(other));
    assert!(!group.ask(leader, |answer| Call::Transfer(node(other), answer)), "it leads no more");
    group.propose_and_wait(other, 5);
}

#[test]
fn a_leader_whose_engine_is_stuck_hands_over() {
    let mut group = Group::new(3);
    (1..=3).for_each(|number| group.start(number));
    let leader = group.until_led();
    group.propose_and_wait(leader, 5);
    group.hold_engine(Some(leader));
    group
        .until("another node leads", |group| (1..=3).any(|number| number != leader && group.term_of(number).is_some()));
    group.hold_engine(None);
    let is_deposed = |order: &Order| matches!(order, Order::Deposed { why: Why::Stuck, .. });
    group.until("it is deposed", |group| group.orders_of(leader).iter().any(is_deposed));
    let next = group.until_led();
    group.propose_and_wait(next, 5);
    group.until("it has all units", |group| group.units(leader) == 10);
}

#[test]
fn rounds_are_confirmed_and_give_a_lease() {
    let mut group = Group::new(3);
    (1..=3).for_each(|number| group.start(number));
    let leader = group.until_led();
    let term = group.term_of(leader).unwrap();
    for number in 1..=20 {
        group.door(leader).call(Call::Confirm(Round { term, number }));
        group.until("the round is confirmed", |group| {
            group.confirmed_of(leader).is_some_and(|round| round.number >= number)
        });
    }
    (1..=3).filter(|number| *number != leader).for_each(|number| group.stop(number));
    group.until("the lease has ended", |group| group.door(leader).lease_left().is_zero());
    group.until("it has stepped down", |group| group.leader().is_none());
    assert!(group.door(leader).lease_left().is_zero());
}

#[test]
fn members_change_in_an_open_reign_only() {
    let mut group = Group::new(3);
    (1..=3).for_each(|number| group.start(number));
    let leader = group.until_led();
    let term = group.term_of(leader).unwrap();
    let other = leader % 3 + 1;
    let remove = |number: u64| move |answer| Call::Change(term, MemberChange::Remove(node(number)), answer);
    assert_eq!(group.ask(other, remove(other)), Err(ChangeRefusal::NotLeader));
    assert_eq!(group.ask(leader, remove(leader)), Err(ChangeRefusal::Leader));
    assert_eq!(group.ask(leader, remove(other)), Ok(()));
    group.until("it is removed", |group| {
        group
            .orders_of(leader)
            .iter()
            .any(|order| matches!(order, Order::Members { members, .. } if members.count() == 2))
    });
    group.propose_and_wait(leader, 5);
    let third = 6 - leader - other;
    group.until("the third has all", |group| group.units(third) == 5);
}

#[test]
fn a_node_that_has_lost_its_directory_is_not_taken_back_under_its_number() {
    let mut group = Group::new(3);
    (1..=3).for_each(|number| group.start(number));
    let leader = group.until_led();
    group.propose_and_wait(leader, 5);
    let lost = leader % 3 + 1;
    group.stop(lost);
    group.lose_directory(lost);
    group.start(lost);
    group.until("it has ended", |group| group.failure_of(lost).is_some());
    let failure = group.failure_of(lost).unwrap();
    assert!(matches!(failure, NodeError::TooLate(_)), "{failure}");
    let leader = group.until_led();
    group.propose_and_wait(leader, 5);
}

#[test]
fn a_node_joins_by_a_snapshot_and_makes_up_for_one_that_stops() {
    let mut group = Group::new(3);
    (1..=3).for_each(|number| group.start(number));
    let leader = group.until_led();
    group.propose_and_wait(leader, 50);
    group.start(4);
    group.run_for(Duration::from_millis(300));
    assert_eq!(group.units(4), 0, "nobody has added it");
    group.change(&MemberChange::AddLearner(node(4), group.home(4)));
    let leader = group.until_led();
    group.propose_and_wait(leader, 20);
    group.until("it has all units", |group| group.units(4) == 70);
    group.change(&MemberChange::Promote(node(4)));
    group.until("it is a voter", |group| group.members_of(4).voters.len() == 4);
    let others: Vec<u64> = (1..=3).filter(|number| *number != group.until_led()).collect();
    group.stop(others[0]);
    group.change(&MemberChange::Remove(node(others[0])));
    let leader = group.until_led();
    group.until("there are three", |group| group.members_of(leader).voters.len() == 3);
    group.stop(others[1]);
    let leader = group.until_led();
    group.propose_and_wait(leader, 20);
    group.until("it has all units", |group| group.units(4) == 90);
    group.check_that_all_agree();
    // It comes back from its own files.
    group.stop(4);
    group.start(4);
    group.until("it has all units again", |group| group.units(4) == 90);
}

#[test]
fn a_node_that_was_away_while_the_log_was_cut_comes_back_by_a_snapshot() {
    let mut group = Group::new(3);
    (1..=3).for_each(|number| group.start(number));
    let leader = group.until_led();
    let away = leader % 3 + 1;
    group.propose_and_wait(leader, 1);
    group.stop(away);
    for round in 1..=3 {
        let leader = group.until_led();
        // More than two segments.
        group.propose_and_wait(leader, 70);
        (1..=3).filter(|number| *number != away).for_each(|number| group.save(number));
        let leader = group.until_led();
        group.propose_and_wait(leader, 10);
        group.start(away);
        let units = 1 + 80 * round;
        group.until("it has all units", |group| group.units(away) == units);
        let loads = group.orders_of(away).iter().filter(|order| matches!(order, Order::Load(_))).count();
        assert_eq!(loads, 2, "its own snapshot, then that of the leader");
        group.until("older snapshots are removed", |group| group.snapshots(away).len() == 1);
        group.check_that_all_agree();
        group.stop(away);
    }
    group.start(away);
    group.until("it has all units", |group| group.units(away) == 241);
}

#[test]
fn a_node_that_stops_while_a_snapshot_arrives_gets_it_when_it_is_back() {
    let mut group = Group::new(3);
    (1..=3).for_each(|number| group.start(number));
    let leader = group.until_led();
    let away = leader % 3 + 1;
    group.propose_and_wait(leader, 10);
    group.stop(away);
    let mut rng = Rng::seeded(1);
    let long: String = (0..1 << 20).map(|_| char::from(b'0' + rng.below(64) as u8)).collect();
    (0..16).for_each(|_| group.propose_until_committed(&long));
    (1..=3).filter(|number| *number != away).for_each(|number| group.save(number));
    group.start(away);
    group.until("the snapshot is on its way", |group| group.has_unfinished_snapshot(away));
    group.stop(away);
    group.start(away);
    let leader = group.until_led();
    group.until("it has all units", |group| group.units(away) == group.units(leader));
    assert!(!group.has_unfinished_snapshot(away));
    group.check_that_all_agree();
}
