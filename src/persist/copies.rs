//! The copies of changes that `min-replicas-to-write` asks for, beyond those of the quorum.
//!
//! Replies wait for them as for the quorum: the last unit of which there are enough copies bounds what may leave. While
//! too few nodes follow that could make copies, changes are not even begun. When a reign begins, the connected nodes
//! count as up to date at first, since replies wait for their copies anyway. One that connects later counts once it has
//! what there was then.

use std::collections::BTreeMap;

use crate::base::lsn::Lsn;
use crate::log::replicated::types::NodeId;

/// See the file's header.
#[derive(Debug, Default)]
pub(super) struct Copies {
    /// So many other nodes must have a unit on disk; 0 if the quorum decides alone.
    wanted: usize,
    /// The last unit that so many have.
    made: Lsn,
    followers: BTreeMap<NodeId, Follower>,
    /// Nodes that follow and are up to date.
    good: usize,
    /// Nodes have been observed in this reign.
    has_observed: bool,
}

/// How up to date a connected node is.
#[derive(Debug)]
struct Follower {
    /// It is known to have had all units of this time, by the steady clock.
    fresh_at_ms: Option<i64>,
    /// A later time, and the last unit of that time.
    next: (i64, Lsn),
}

impl Copies {
    /// Asks for so many copies. Returns whether that is another number than before.
    pub(super) fn want(&mut self, wanted: usize) -> bool {
        let is_other = wanted != self.wanted;
        if is_other {
            *self = Copies { wanted, ..Copies::default() };
        }
        is_other
    }

    /// Notes the last unit of which there are enough copies.
    pub(super) fn note(&mut self, made: Lsn) {
        self.made = self.made.max(made);
    }

    /// Forgets the copies of another reign.
    pub(super) fn begin_reign(&mut self) {
        *self = Copies { wanted: self.wanted, ..Copies::default() };
    }

    /// Returns the last unit that may be shown, of those up to `committed`.
    pub(super) fn shown_of(&self, committed: Lsn) -> Lsn {
        if self.wanted == 0 { committed } else { committed.min(self.made) }
    }

    /// Notes which nodes are connected and the last unit that each has on disk, if that is known. `last` is the last
    /// unit there is.
    pub(super) fn observe(
        &mut self,
        connected: impl Iterator<Item = (NodeId, Option<Lsn>)>,
        last: Lsn,
        now_ms: i64,
        max_lag_ms: i64,
    ) {
        let mut before = std::mem::take(&mut self.followers);
        for (node, has) in connected {
            let first = (!self.has_observed).then_some(now_ms);
            let mut follower = before.remove(&node).unwrap_or(Follower { fresh_at_ms: first, next: (now_ms, last) });
            if has >= Some(follower.next.1) {
                let fresh_at_ms = if has >= Some(last) { now_ms } else { follower.next.0 };
                follower = Follower { fresh_at_ms: Some(fresh_at_ms), next: (now_ms, last) };
            }
            self.followers.insert(node, follower);
        }
        self.has_observed = true;
        let is_good = |node: &&Follower| node.fresh_at_ms.is_some_and(|at_ms| now_ms - at_ms <= max_lag_ms);
        self.good = self.followers.values().filter(is_good).count();
    }

    /// Returns the number of nodes that follow and are up to date, as of the last observation.
    pub(super) fn good(&self) -> usize {
        self.good
    }

    /// Whether too few nodes can make copies now.
    pub(super) fn are_short(&self) -> bool {
        self.good < self.wanted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(number: u64) -> NodeId {
        NodeId::new(number).unwrap()
    }

    #[test]
    fn what_is_shown_has_enough_copies() {
        let mut copies = Copies::default();
        assert_eq!(copies.shown_of(Lsn::new(9)), Lsn::new(9));
        assert_eq!([copies.want(2), copies.want(2)], [true, false]);
        assert_eq!(copies.shown_of(Lsn::new(9)), Lsn::NONE);
        copies.note(Lsn::new(7));
        copies.note(Lsn::new(5));
        assert_eq!([6, 9].map(|lsn| copies.shown_of(Lsn::new(lsn))), [Lsn::new(6), Lsn::new(7)]);
        copies.begin_reign();
        assert_eq!(copies.shown_of(Lsn::new(9)), Lsn::NONE);
    }

    #[test]
    fn a_node_counts_while_it_had_everything_not_long_ago() {
        let mut copies = Copies::default();
        copies.want(2);
        assert!(copies.are_short(), "nobody is known to follow");
        let mut good = |nodes: &[(u64, Option<u64>)], last: u64, now_ms| {
            let nodes = nodes.iter().map(|(number, has)| (node(*number), has.map(Lsn::new)));
            copies.observe(nodes, Lsn::new(last), now_ms, 1_000);
            (copies.good(), copies.are_short())
        };
        assert_eq!(good(&[(2, Some(5)), (3, None)], 9, 0), (2, false), "both have just connected");
        assert_eq!(good(&[(2, Some(9)), (3, Some(4))], 20, 900), (2, false));
        assert_eq!(good(&[(2, Some(19)), (3, Some(8))], 30, 1_000), (2, false));
        assert_eq!(good(&[(2, Some(25)), (3, Some(8))], 40, 1_900), (1, true), "node 2 has what there was at 900");
        assert_eq!(good(&[(2, Some(39)), (3, Some(40))], 40, 1_950), (1, true), "node 3 has everything");
        assert_eq!(good(&[(3, Some(40))], 40, 2_050), (1, true), "node 2 is not connected");
        assert_eq!(good(&[(2, None), (3, Some(40))], 40, 2_100), (1, true), "it is connected again");
        assert_eq!(good(&[(2, Some(39)), (3, Some(41))], 41, 2_200), (1, true));
        assert_eq!(good(&[(2, Some(40)), (3, Some(42))], 42, 2_300), (2, false), "it has what there was at 2100");
    }
}
