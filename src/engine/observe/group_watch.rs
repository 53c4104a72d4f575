//! What the subscribers at Sentinel's port are told of the group. The events have the channels and words of Redis
//! Sentinel, as far as they are true here:
//!
//! | Channel | Message | When |
//! |---|---|---|
//! | `+switch-master` | NAME HOST PORT HOST PORT | another node leads than the last one that was known |
//! | `+slave` | slave HOST:PORT HOST PORT @ NAME HOST PORT | a node follows; after a switch, each does anew |
//! | `+sdown`, `-sdown` | master NAME HOST PORT, or as above | a node can't be reached from here, or can be again |
//!
//! **A switch is repeated** to subscribers that may have missed it: a client asks for the leader, and subscribes only
//! after the leader has changed. That is a client that was connected when it changed. A later one has asked since then,
//! and must not be told: ioredis takes each message of the channel for a new failover, so it would connect and
//! subscribe again without end. Subscribers of patterns are told in any case: Lettuce subscribes again after a lost
//! connection, without asking.

use std::collections::{BTreeMap, BTreeSet};

use crate::base::glob;
use crate::base::node_address::NodeAddress;
use crate::engine::limits::{DOWN_AFTER_MS, GROUP_WATCH_EVERY_MS};
use crate::persist::group_view::{GroupView, MemberView};
use crate::session::subscriptions::SubscriptionKind;

pub(super) const SWITCH: &[u8] = b"+switch-master";

/// See the module's header. Nodes are known by their numbers; times are those of the steady clock.
#[derive(Default)]
pub(crate) struct GroupWatch {
    /// The last leader that was known.
    leader: Option<Leader>,
    switch: Option<Switch>,
    /// The nodes that are known to follow this leader.
    followers: BTreeSet<u64>,
    unreachable: BTreeMap<u64, Unreachable>,
    looked_ms: i64,
}

#[derive(Clone)]
struct Leader {
    number: u64,
    address: NodeAddress,
    since_ms: i64,
}

struct Switch {
    message: String,
    /// The newest client at the time.
    client: u64,
}

struct Unreachable {
    since_ms: i64,
    /// It has lasted for [`DOWN_AFTER_MS`].
    is_down: bool,
}

/// A message and its channel.
pub(super) type Event = (&'static [u8], String);

impl GroupWatch {
    /// Returns since when the last leader is known to lead.
    pub(crate) fn leads_since_ms(&self) -> i64 {
        self.leader.as_ref().map_or(0, |leader| leader.since_ms)
    }

    /// Returns since when a node can't be reached, if it counts as down.
    pub(crate) fn down_since_ms(&self, number: u64) -> Option<i64> {
        self.unreachable.get(&number).filter(|unreachable| unreachable.is_down).map(|unreachable| unreachable.since_ms)
    }

    /// Whether the group should be looked at again, given the leader to be named.
    pub(super) fn is_due(&self, leader: Option<u64>, now_ms: i64) -> bool {
        let is_new = leader.is_some() && leader != self.leader.as_ref().map(|leader| leader.number);
        is_new || now_ms - self.looked_ms >= GROUP_WATCH_EVERY_MS
    }

    /// Returns the events since the last look at the group of this name. `client` is the newest client.
    pub(super) fn look(&mut self, view: &GroupView, name: &str, client: u64, now_ms: i64) -> Vec<Event> {
        let mut events = Vec::new();
        self.looked_ms = now_ms;
        self.look_at_leader(view, name, client, now_ms, &mut events);
        if let Some(leader) = self.leader.clone() {
            self.look_at_followers(view, name, &leader, &mut events);
            self.look_at_connections(view, name, &leader, now_ms, &mut events);
        }
        events
    }

    fn look_at_leader(&mut self, view: &GroupView, name: &str, client: u64, now_ms: i64, events: &mut Vec<Event>) {
        let Some(MemberView { number, home: Some((address, _)), .. }) = view.leader() else { return };
        if self.leader.as_ref().is_some_and(|known| known.number == *number && known.address == *address) {
            return;
        }
        let leader = Leader { number: *number, address: address.clone(), since_ms: now_ms };
        if let Some(before) = self.leader.replace(leader) {
            let message = format!("{name} {} {}", words(&before.address), words(address));
            self.switch = Some(Switch { message: message.clone(), client });
            events.push((SWITCH, message));
        }
        self.followers.clear();
    }

    fn look_at_followers(&mut self, view: &GroupView, name: &str, leader: &Leader, events: &mut Vec<Event>) {
        let follow = |member: &&MemberView| member.number != leader.number;
        let followers: BTreeSet<u64> = view.members.iter().filter(follow).map(|member| member.number).collect();
        for member in view.members.iter().filter(follow) {
            if let Some((address, _)) = &member.home
                && !self.followers.contains(&member.number)
            {
                events.push((b"+slave", follower(name, address, leader)));
            }
        }
        self.followers = followers;
    }

    fn look_at_connections(
        &mut self,
        view: &GroupView,
        name: &str,
        leader: &Leader,
        now_ms: i64,
        events: &mut Vec<Event>,
    ) {
        self.unreachable.retain(|number, _| view.members.iter().any(|member| member.number == *number));
        for member in &view.members {
            let Some((address, _)) = &member.home else { continue };
            let channel: &[u8] = if member.is_connected {
                let Some(Unreachable { is_down: true, .. }) = self.unreachable.remove(&member.number) else { continue };
                b"-sdown"
            } else {
                let fresh = Unreachable { since_ms: now_ms, is_down: false };
                let unreachable = self.unreachable.entry(member.number).or_insert(fresh);
                let is_over = now_ms - unreachable.since_ms >= DOWN_AFTER_MS;
                if !is_over || std::mem::replace(&mut unreachable.is_down, true) {
                    continue;
                }
                b"+sdown"
            };
            let message = match member.number == leader.number {
                true => format!("master {name} {}", words(&leader.address)),
                false => follower(name, address, leader),
            };
            events.push((channel, message));
        }
    }

    /// Returns the last switch if a client that now subscribes to this may have missed it.
    pub(super) fn missed_switch(&self, client: u64, kind: SubscriptionKind, name: &[u8]) -> Option<&str> {
        let switch = self.switch.as_ref()?;
        let is_missed = match kind {
            SubscriptionKind::Pattern => glob::matches(name, SWITCH),
            SubscriptionKind::Channel(_) => name == SWITCH && client <= switch.client,
        };
        is_missed.then_some(&switch.message)
    }
}

/// A host and a port as two words.
fn words(address: &NodeAddress) -> String {
    format!("{} {}", address.host(), address.port)
}

fn follower(name: &str, address: &NodeAddress, leader: &Leader) -> String {
    format!("slave {}:{} {} @ {name} {}", address.host(), address.port, words(address), words(&leader.address))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::subscriptions::Space;

    /// A view of the nodes 1, 2 and 3, of which one leads, or none (0), and some are connected.
    fn view(leader: u64, connected: &[u64]) -> GroupView {
        let member = |number| MemberView {
            number,
            home: Some((NodeAddress::new("h", number as u16, 9).unwrap(), number.to_string())),
            leads: number == leader,
            votes: true,
            is_own: number == 1,
            is_connected: connected.contains(&number),
            lsn: None,
            sentinel_port: 0,
        };
        GroupView { members: (1..=3).map(member).collect(), term: 1 }
    }

    #[test]
    fn events_tell_what_has_changed() {
        let mut watch = GroupWatch::default();
        let mut look = |leader, connected: &[u64], now_ms| {
            let events = watch.look(&view(leader, connected), "m", 7, now_ms).into_iter();
            events.map(|(channel, message)| format!("{} {message}", channel.escape_ascii())).collect::<Vec<_>>()
        };
        assert!(look(0, &[1], 0).is_empty(), "no leader is known yet");
        assert_eq!(look(2, &[1, 2, 3], 100), ["+slave slave h:1 h 1 @ m h 2", "+slave slave h:3 h 3 @ m h 2"]);
        assert!(look(0, &[1, 3], 200).is_empty(), "it may come back");
        assert!(look(2, &[1, 2, 3], 300).is_empty());
        assert!(look(0, &[1, 3], 400).is_empty());
        assert_eq!(look(0, &[1, 3], 400 + DOWN_AFTER_MS), ["+sdown master m h 2"]);
        let switched = ["+switch-master m h 2 h 3", "+slave slave h:1 h 1 @ m h 3", "+slave slave h:2 h 2 @ m h 3"];
        assert_eq!(look(3, &[1, 3], 800), switched);
        assert_eq!(look(3, &[1, 2, 3], 900), ["-sdown slave h:2 h 2 @ m h 3"]);
        assert_eq!((watch.leads_since_ms(), watch.down_since_ms(2)), (800, None));
    }

    #[test]
    fn only_those_that_may_have_missed_a_switch_are_told() {
        let channel = SubscriptionKind::Channel(Space::Global);
        let mut watch = GroupWatch::default();
        watch.look(&view(2, &[]), "m", 7, 0);
        assert_eq!(watch.missed_switch(7, SubscriptionKind::Pattern, b"*"), None, "there was none");
        watch.look(&view(3, &[]), "m", 7, 0);
        let missed = |client, kind, name: &str| watch.missed_switch(client, kind, name.as_bytes()).is_some();
        assert!(missed(7, channel, "+switch-master") && missed(8, SubscriptionKind::Pattern, "*"));
        assert!(!missed(8, channel, "+switch-master") && !missed(7, channel, "+sdown"));
        assert!(!missed(7, SubscriptionKind::Pattern, "+sdown*"));
    }
}
