//! Trimming: removing the oldest entries, either all of them or those that no group needs.

use std::collections::BTreeSet;

use super::Stream;
use super::group::Group;
use super::id::StreamId;
use super::node::{Node, NodeEntries};
use super::trim_plan::{AckedTrim, Keep};

impl Stream {
    /// The argument for [`Stream::trim_through`] that keeps `keep`, or `None` if nothing has to be removed.
    ///
    /// Either exact, or (`whole_nodes`, the `~` of commands) limited to the oldest nodes that go entirely; in the
    /// latter case at most `limit` entries go (0: no limit).
    pub fn plan_trim(&self, keep: Keep, whole_nodes: bool, limit: u64) -> Option<StreamId> {
        let mut removed = 0;
        let mut through = None;
        for (&first, node) in &self.nodes {
            let live = u64::from(node.live);
            let done = match keep {
                Keep::Newest(count) => self.len - removed <= count,
                Keep::From(id) => first >= id,
            };
            if done || (limit != 0 && removed + live > limit) {
                break;
            }
            let last = node.last_id(first);
            let goes_entirely = match keep {
                Keep::Newest(count) => self.len - removed - live >= count,
                Keep::From(id) => last < id,
            };
            if goes_entirely {
                removed += live;
                through = Some(last);
                continue;
            }
            if !whole_nodes {
                let part = NodeEntries::new(first, node).filter(|raw| !raw.deleted);
                let goes = part.map(|raw| raw.id).take_while(|&id| {
                    let goes = match keep {
                        Keep::Newest(count) => self.len - removed > count,
                        Keep::From(bound) => id < bound,
                    };
                    removed += u64::from(goes);
                    goes
                });
                through = goes.last().or(through);
            }
            break;
        }
        through
    }

    /// Like [`Stream::plan_trim`], but spares entries that some group has not been given yet or has pending. `limit`
    /// counts the entries examined.
    pub fn plan_acked_trim(&self, keep: Keep, whole_nodes: bool, limit: u64) -> AckedTrim {
        let delivered = self.groups.values().map(|group| group.last_delivered).min().unwrap_or(StreamId::MAX);
        let mut plan = AckedTrim::default();
        let (mut removed, mut seen, mut spared) = (0, 0, false);
        for (&first, node) in &self.nodes {
            let live = u64::from(node.live);
            let goes_entirely = match keep {
                Keep::Newest(count) => self.len - removed - live.min(self.len - removed) >= count,
                Keep::From(id) => node.last_id(first) < id,
            };
            if (limit != 0 && seen + live > limit) || (whole_nodes && !goes_entirely) {
                break;
            }
            seen += live;
            let pending = self.pending_in(first, node);
            for raw in NodeEntries::new(first, node).filter(|raw| !raw.deleted) {
                let is_kept = match keep {
                    Keep::Newest(count) => self.len - removed <= count,
                    Keep::From(bound) => raw.id >= bound,
                };
                if is_kept || raw.id > delivered {
                    return plan;
                }
                if pending.contains(&raw.id) {
                    spared = true;
                    continue;
                }
                removed += 1;
                match spared {
                    false => plan.through = Some(raw.id),
                    true => plan.single.push(raw.id),
                }
            }
        }
        plan
    }

    /// The entries of a node that are pending in any group.
    fn pending_in(&self, first: StreamId, node: &Node) -> BTreeSet<StreamId> {
        let last = node.last_id(first);
        let ranges = self.groups.values().flat_map(|group| group.pending_range(first, last));
        ranges.map(|pending| pending.id).collect()
    }

    /// The pending entries of each group up to and including `last`; ids whose entries are already gone are left out.
    pub fn pending_through(&self, last: StreamId) -> Vec<(Box<[u8]>, Vec<StreamId>)> {
        let first = self.first_id();
        let of = |(name, group): (&[u8], &Group)| {
            let ids: Vec<StreamId> = group.pending_range(first, last).map(|pending| pending.id).collect();
            (name.into(), ids.into_iter().filter(|&id| self.entry(id).is_some()).collect())
        };
        self.groups().map(of).collect()
    }

    /// Removes all entries up to and including `last`. Returns how many were removed. Unlike [`Stream::delete`], this
    /// leaves no trace in `max_deleted_id`, since no gap arises between the entries that stay.
    pub fn trim_through(&mut self, last: StreamId) -> u64 {
        let before = self.len;
        while let Some(mut oldest) = self.nodes.first_entry() {
            let first = *oldest.key();
            if first > last {
                break;
            }
            let node = oldest.get_mut();
            if node.last_id(first) <= last {
                self.len -= u64::from(node.live);
                oldest.remove();
                continue;
            }
            self.len -= node.delete_through(first, last);
            if node.live == 0 {
                oldest.remove();
            }
            break;
        }
        before - self.len
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::super::StreamLimits;
    use super::*;

    fn id(ms: u64) -> StreamId {
        StreamId { ms, seq: 0 }
    }

    /// A group: the last entry given to it, and its pending entries up to there.
    type GroupPlan = (u64, BTreeSet<u64>);

    /// A stream of `count` entries in nodes of three, without those in `gone`.
    fn stream(count: u64, gone: &BTreeSet<u64>, groups: &[GroupPlan]) -> Stream {
        let mut stream = Stream::new();
        for ms in 1..=count {
            let limits = StreamLimits { node_max_entries: 3, node_max_bytes: 0 };
            stream.append(id(ms), [(&b"f"[..], &b"v"[..])].into_iter(), limits);
        }
        for (number, (delivered, pending)) in groups.iter().enumerate() {
            let name = [number as u8];
            stream.group_create(&name, id(*delivered), None);
            stream.consumer_create(&name, b"c", 0);
            for &ms in pending.iter().filter(|ms| *ms <= delivered) {
                stream.pending_set(&name, id(ms), b"c", 0, 1);
            }
        }
        for &ms in gone {
            stream.delete(id(ms));
        }
        stream
    }

    fn ids(stream: &Stream) -> Vec<u64> {
        stream.range(StreamId::MIN, StreamId::MAX).map(|entry| entry.id.ms).collect()
    }

    fn run(stream: &mut Stream, plan: AckedTrim) -> Vec<u64> {
        plan.through.map(|through| stream.trim_through(through));
        plan.single.into_iter().for_each(|id| assert!(stream.delete(id), "a plan names existing entries"));
        ids(stream)
    }

    fn few() -> impl Strategy<Value = BTreeSet<u64>> {
        proptest::collection::btree_set(1u64..20, 0..8)
    }

    proptest! {
        #[test]
        fn spares_entries_that_groups_need(
            count in 1u64..20,
            gone in few(),
            groups in proptest::collection::vec((0u64..20, few()), 0..3),
            keep in prop_oneof![(0u64..20).prop_map(Keep::Newest), (0u64..22).prop_map(|ms| Keep::From(id(ms)))],
            limit in 0u64..12,
        ) {
            let mut exact = stream(count, &gone, &groups);
            let before = ids(&exact);
            let needed = |ms: u64| groups.iter().any(|(delivered, pending)| ms > *delivered || pending.contains(&ms));
            before.iter().for_each(|&ms| assert_eq!(exact.is_needed(id(ms)), needed(ms)));
            let mut wanted = before.clone();
            for &ms in &before {
                let goes = match keep {
                    Keep::Newest(count) => wanted.len() as u64 > count,
                    Keep::From(bound) => id(ms) < bound,
                };
                if goes && !needed(ms) {
                    wanted.retain(|other| *other != ms);
                }
            }
            let plan = exact.plan_acked_trim(keep, false, 0);
            prop_assert_eq!(run(&mut exact, plan), wanted.clone());
            prop_assert_eq!(exact.plan_acked_trim(keep, false, 0), AckedTrim::default());

            // By whole nodes, and with a limit on the entries examined, the plan is the oldest part of the full one.
            for (whole_nodes, limit) in [(true, 0), (true, limit), (false, limit)] {
                let mut some = stream(count, &gone, &groups);
                let plan = some.plan_acked_trim(keep, whole_nodes, limit);
                let left = run(&mut some, plan);
                let removed: Vec<u64> = before.iter().copied().filter(|ms| !left.contains(ms)).collect();
                let may_go: Vec<u64> = before.iter().copied().filter(|ms| !wanted.contains(ms)).collect();
                prop_assert!(may_go.starts_with(&removed), "{:?} of {:?}", removed, may_go);
                prop_assert!(limit == 0 || removed.len() as u64 <= limit);
            }

            // The pending entries up to a given one.
            let through = stream(count, &gone, &groups);
            for (name, pending) in through.pending_through(id(10)) {
                let (delivered, all) = &groups[usize::from(name[0])];
                let live = all.iter().filter(|ms| *ms <= delivered && **ms <= 10 && before.contains(ms));
                prop_assert_eq!(pending.iter().map(|id| id.ms).collect::<Vec<_>>(), live.copied().collect::<Vec<_>>());
            }
            for &ms in &before {
                let holders = through.holders(id(ms)).count();
                let pending = groups.iter().filter(|(delivered, all)| ms <= *delivered && all.contains(&ms)).count();
                prop_assert_eq!(holders, pending);
            }
        }
    }
}
