//! Streams: an append-only sequence of entries by id, and consumer groups that read it.
//!
//! # Entries
//! Entries are packed in *nodes* of some 100 entries or 4 KB, in a B-tree keyed by each node's first id. Appending
//! touches the last node, a range by id starts with one lookup, and trimming drops whole nodes. See `node` for their
//! layout.
//!
//! # Groups
//! A group keeps its pending entries by id, and each consumer keeps the ids that it owns. Both are ordered, as every
//! reply is. References to an entry are looked up group by group: one lookup in each, and for a trim one range per node
//! and group. See `policy` for groups that deliver unacknowledged entries again by themselves.
//!
//! # Delayed messages
//! Messages that will become entries later are kept beside the entries, in the order of their times. See `delayed` and
//! `release`.
//!
//! # Changes
//! Each `&mut` method is one deterministic step on plain arguments, without clock or choice, so that steps can be
//! recorded and replayed. Every decision (the next id, the entries to trim, the read counter) is made by a `&self`
//! method that returns the argument for a step.

mod delayed;
mod group;
mod id;
mod idempotency;
mod node;
mod policy;
mod pre_image;
mod release;
mod trim;
mod trim_plan;
mod undo;

pub use group::{Consumer, Group, Pending};
pub use id::{IdText, NewId, NewIdError, StreamId};
pub use idempotency::Idempotency;
pub use node::{Entries, EntriesRev, Entry, Pairs, StreamLimits};
pub use policy::{HISTORY, Origin, Policy};
pub use pre_image::{StreamPreImage, StreamTail};
pub use trim_plan::{AckedTrim, Keep};

use std::collections::BTreeMap;
use std::ops::Bound;

use node::{Node, NodeEntries};
use policy::{Attendance, as_time};

use crate::base::fit::fit;

/// A stream.
#[derive(Clone, Debug, Default)]
pub struct Stream {
    nodes: BTreeMap<StreamId, Node>,
    len: u64,
    last_id: StreamId,
    max_deleted_id: StreamId,
    entries_added: u64,
    groups: BTreeMap<Box<[u8]>, Group>,
    idempotency: Option<Box<Idempotency>>,
    /// `Some` exactly if a group has a policy or a message was ever held back.
    attendance: Option<Box<Attendance>>,
}

impl Stream {
    /// An empty stream that has never had an entry.
    pub fn new() -> Stream {
        Stream::default()
    }

    /// The number of entries.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether there are no entries. A stream without entries stays.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The highest id ever appended or set; `0-0` before that.
    pub fn last_id(&self) -> StreamId {
        self.last_id
    }

    /// The highest id ever deleted, not counting trims; `0-0` before that.
    pub fn max_deleted_id(&self) -> StreamId {
        self.max_deleted_id
    }

    /// The number of entries ever appended.
    pub fn entries_added(&self) -> u64 {
        self.entries_added
    }

    /// The number of nodes that hold the entries.
    pub fn node_count(&self) -> usize {
        self.nodes.len()
    }

    /// Whether both streams have equal entries in equal nodes, including deleted entries that are still stored.
    pub fn is_laid_out_as(&self, other: &Stream) -> bool {
        self.nodes == other.nodes
    }

    /// The oldest entry.
    pub fn first(&self) -> Option<Entry<'_>> {
        self.range(StreamId::MIN, StreamId::MAX).next()
    }

    /// The newest entry.
    pub fn last(&self) -> Option<Entry<'_>> {
        self.range_rev(StreamId::MIN, StreamId::MAX).next()
    }

    /// The id of the oldest entry, or `0-0` if there is none.
    pub fn first_id(&self) -> StreamId {
        self.first().map_or(StreamId::MIN, |entry| entry.id)
    }

    /// The entry with this id.
    pub fn entry(&self, id: StreamId) -> Option<Entry<'_>> {
        self.range(id, id).next()
    }

    /// The entries from `start` to `end`, both inclusive, oldest first.
    pub fn range(&self, start: StreamId, end: StreamId) -> Entries<'_> {
        Entries::new(&self.nodes, start, end)
    }

    /// The entries from `start` to `end`, both inclusive, newest first.
    pub fn range_rev(&self, start: StreamId, end: StreamId) -> EntriesRev<'_> {
        self.range(start, end).rev()
    }

    /// The id that an appended entry gets. `now_ms` is the time of the unit.
    pub fn next_id(&self, wanted: NewId, now_ms: u64) -> Result<StreamId, NewIdError> {
        let exhausted = self.last_id == StreamId::MAX;
        let id = match wanted {
            _ if exhausted => return Err(NewIdError::Exhausted),
            NewId::Auto => {
                let is_ahead = now_ms > self.last_id.ms;
                let next = if is_ahead { Some(StreamId { ms: now_ms, seq: 0 }) } else { self.last_id.next() };
                self.behind_delayed(next.ok_or(NewIdError::Exhausted)?).ok_or(NewIdError::Exhausted)?
            }
            NewId::AutoSeq(ms) if ms == self.last_id.ms => {
                let seq = self.last_id.seq.checked_add(1).ok_or(NewIdError::NotAboveLast)?;
                StreamId { ms, seq }
            }
            NewId::AutoSeq(ms) => StreamId { ms, seq: 0 },
            NewId::Exact(id) => id,
        };
        if id > self.last_id { Ok(id) } else { Err(NewIdError::NotAboveLast) }
    }

    /// This id, or the first one after it that has not been promised to a delayed message of its millisecond.
    fn behind_delayed(&self, id: StreamId) -> Option<StreamId> {
        match self.last_delayed_within(id) {
            Some(last) if last >= id => last.next(),
            _ => Some(id),
        }
    }

    /// Appends an entry, which must have at least one pair. Returns false, and changes nothing, unless `id` is above
    /// the last one.
    pub fn append<'a>(
        &mut self,
        id: StreamId,
        pairs: impl Iterator<Item = (&'a [u8], &'a [u8])> + Clone,
        limits: StreamLimits,
    ) -> bool {
        if id <= self.last_id {
            return false;
        }
        let content: usize = pairs.clone().map(|(field, value)| field.len() + value.len()).sum();
        let open = self.nodes.last_entry().filter(|node| node.get().has_room(content, limits));
        match open {
            Some(mut node) => {
                let first = *node.key();
                node.get_mut().push(first, id, pairs);
            }
            None => {
                if let Some(mut full) = self.nodes.last_entry() {
                    fit(&mut full.get_mut().bytes);
                }
                let mut node = Node::with_master(pairs.clone());
                node.push(id, id, pairs);
                self.nodes.insert(id, node);
            }
        }
        self.len += 1;
        self.entries_added = self.entries_added.saturating_add(1);
        self.last_id = id;
        true
    }

    /// Deletes the entry with this id. Returns false if there is none.
    pub fn delete(&mut self, id: StreamId) -> bool {
        let Some((&first, node)) = self.nodes.range_mut(..=id).next_back() else { return false };
        let found = NodeEntries::new(first, node).find(|raw| raw.id >= id);
        let Some(raw) = found.filter(|raw| raw.id == id && !raw.deleted) else { return false };
        node.mark_deleted(raw.flags_at);
        if node.live == 0 {
            self.nodes.remove(&first);
        }
        self.len -= 1;
        self.max_deleted_id = self.max_deleted_id.max(id);
        true
    }

    /// Sets the counters, as XSETID does. The caller has checked them against the entries.
    pub fn set_counters(&mut self, last_id: StreamId, entries_added: Option<u64>, max_deleted_id: Option<StreamId>) {
        self.last_id = last_id;
        self.entries_added = entries_added.unwrap_or(self.entries_added);
        self.max_deleted_id = max_deleted_id.unwrap_or(self.max_deleted_id);
    }

    /// An estimate of the heap memory held, in bytes.
    pub fn mem_bytes(&self) -> usize {
        let node = size_of::<StreamId>() + size_of::<Node>();
        let nodes: usize = self.nodes.values().map(|n| node + n.bytes.capacity()).sum();
        let groups: usize = self.groups.iter().map(|(name, group)| name.len() + group.mem_bytes()).sum();
        let attendance = self.attendance.as_ref();
        let attendance = attendance.map_or(0, |own| size_of::<Attendance>() + own.delayed.mem_bytes());
        nodes + groups + attendance + self.idempotency.as_ref().map_or(0, |idempotency| idempotency.mem_bytes())
    }
}

/// Idempotent production.
impl Stream {
    /// The record of producers' requests; `None` before the first.
    pub fn idempotency(&self) -> Option<&Idempotency> {
        self.idempotency.as_deref()
    }

    /// Sets the number of seconds for which a request is remembered, and the number of requests per producer. A change
    /// forgets all requests.
    pub fn idempotency_configure(&mut self, duration_s: u32, max_iids: u32) {
        match &mut self.idempotency {
            Some(idempotency) => idempotency.configure(duration_s, max_iids),
            None => self.idempotency = Some(Box::new(Idempotency::new(duration_s, max_iids))),
        }
    }

    /// Records that a request appended entry `id`. Returns false if the bounds have not been set.
    pub fn idempotency_add(&mut self, producer: &[u8], iid: &[u8], id: StreamId) -> bool {
        self.idempotency.as_mut().map(|idempotency| idempotency.add(producer, iid, id)).is_some()
    }

    /// Forgets the oldest `count` requests of a producer. Returns false if there is no such producer.
    pub fn idempotency_forget(&mut self, producer: &[u8], count: u64) -> bool {
        self.idempotency.as_mut().is_some_and(|idempotency| idempotency.forget(producer, count))
    }

    /// Counts a repeated request. Returns false if the bounds have not been set.
    pub fn idempotency_duplicate(&mut self) -> bool {
        self.idempotency.as_mut().map(|idempotency| idempotency.count_duplicate()).is_some()
    }

    /// Sets the counters of idempotent production. Returns false if the bounds have not been set.
    pub fn idempotency_counters(&mut self, added: u64, duplicates: u64) -> bool {
        self.idempotency.as_mut().map(|idempotency| idempotency.set_counters(added, duplicates)).is_some()
    }
}

/// Consumer groups.
impl Stream {
    /// The groups by name, in byte order.
    pub fn groups(&self) -> impl ExactSizeIterator<Item = (&[u8], &Group)> {
        self.groups.iter().map(|(name, group)| (&**name, group))
    }

    /// The groups after this name in byte order, or all groups for `None`.
    pub fn groups_after(&self, name: Option<&[u8]>) -> impl Iterator<Item = (&[u8], &Group)> {
        let from = name.map_or(Bound::Unbounded, Bound::Excluded);
        self.groups.range::<[u8], _>((from, Bound::Unbounded)).map(|(name, group)| (&**name, group))
    }

    /// The group of this name.
    pub fn group(&self, name: &[u8]) -> Option<&Group> {
        self.groups.get(name)
    }

    /// The groups in which entry `id` is pending. One lookup per group.
    pub fn holders(&self, id: StreamId) -> impl Iterator<Item = &[u8]> {
        self.groups().filter(move |(_, group)| group.pending(id).is_some()).map(|(name, _)| name)
    }

    /// Whether some group has not been given entry `id` yet, or has it pending.
    pub fn is_needed(&self, id: StreamId) -> bool {
        self.groups.values().any(|group| group.last_delivered < id || group.pending(id).is_some())
    }

    /// The number of entries that the group has not been given yet; `None` if deleted entries make it unknown.
    pub fn lag(&self, group: &Group) -> Option<u64> {
        if self.entries_added == 0 || self.len == 0 {
            return Some(0);
        }
        let first = self.first_id();
        if group.last_delivered < first && self.max_deleted_id < first {
            return Some(self.len);
        }
        let read = match group.entries_read {
            Some(read) if !self.may_miss_entries_from(group.last_delivered) => read,
            _ => self.entries_read_at(group.last_delivered)?,
        };
        Some(self.entries_added.saturating_sub(read))
    }

    /// The number of entries ever appended up to and including `id`; `None` if deleted entries make it unknown.
    pub fn entries_read_at(&self, id: StreamId) -> Option<u64> {
        self.entries_read_up_to(id, self.first_id())
    }

    /// As above, for callers that know the first id.
    fn entries_read_up_to(&self, id: StreamId, first: StreamId) -> Option<u64> {
        if self.entries_added == 0 {
            return Some(0);
        }
        if (self.len == 0 && id <= self.last_id) || id == self.last_id {
            return Some(self.entries_added);
        }
        if id > self.last_id || (id != StreamId::MIN && id < self.max_deleted_id) {
            return None;
        }
        if self.max_deleted_id != StreamId::MIN && self.max_deleted_id >= first {
            return None;
        }
        let before_first = self.entries_added.saturating_sub(self.len);
        match id.cmp(&first) {
            std::cmp::Ordering::Less => Some(before_first),
            std::cmp::Ordering::Equal => Some(before_first + 1),
            std::cmp::Ordering::Greater => None,
        }
    }

    /// Returns a function that computes the read counter of a group at (`last_delivered`, `entries_read`) when it is
    /// given its next new entry. It is called for each entry of a read in turn; everything that stays constant is
    /// computed once.
    pub fn read_counter(
        &self,
        mut last_delivered: StreamId,
        mut entries_read: Option<u64>,
    ) -> impl FnMut(StreamId) -> Option<u64> {
        let first = self.first_id();
        move |id| {
            entries_read = match entries_read {
                Some(read) if last_delivered >= first && !self.may_miss_entries_from(last_delivered) => {
                    Some(read.saturating_add(1))
                }
                _ if self.entries_added > 0 => self.entries_read_up_to(id, first),
                _ => entries_read,
            };
            last_delivered = id;
            entries_read
        }
    }

    /// Whether an entry at or after `id` may have been deleted.
    fn may_miss_entries_from(&self, id: StreamId) -> bool {
        self.len > 0 && self.max_deleted_id != StreamId::MIN && id <= self.max_deleted_id
    }

    /// Creates a group that has been given the entries up to `last_delivered`. Returns false if the name is taken.
    pub fn group_create(&mut self, name: &[u8], last_delivered: StreamId, entries_read: Option<u64>) -> bool {
        self.group_insert(name, Group::new(last_delivered, entries_read))
    }

    /// Adds an existing group. Returns false if the name is taken.
    pub fn group_insert(&mut self, name: &[u8], group: Group) -> bool {
        let is_new = !self.groups.contains_key(name);
        if is_new {
            self.put_group(name, Some(group));
        }
        is_new
    }

    /// Removes and returns a group with its consumers and pending entries.
    pub fn group_take(&mut self, name: &[u8]) -> Option<Group> {
        self.put_group(name, None)
    }

    /// Replaces the group under a name. Returns the previous one.
    fn put_group(&mut self, name: &[u8], group: Option<Group>) -> Option<Group> {
        let after = group.as_ref().is_some_and(|group| group.policy().is_some());
        let old = match group {
            Some(group) => self.groups.insert(name.into(), group),
            None => self.groups.remove(name),
        };
        let before = old.as_ref().is_some_and(|group| group.policy().is_some());
        self.follow_policy(name, before, after);
        old
    }

    /// Sets or removes a group's policy. Returns false if there is no such group.
    pub fn group_set_policy(&mut self, name: &[u8], policy: Option<Policy>) -> bool {
        let Some(group) = self.groups.get_mut(name) else { return false };
        let (before, after) = (group.policy().is_some(), policy.is_some());
        group.set_policy(policy);
        self.follow_policy(name, before, after);
        true
    }

    /// Moves a group's position. Returns false if there is no such group.
    pub fn group_set_id(&mut self, name: &[u8], last_delivered: StreamId, entries_read: Option<u64>) -> bool {
        let Some(group) = self.groups.get_mut(name) else { return false };
        group.last_delivered = last_delivered;
        group.entries_read = entries_read;
        true
    }

    /// Creates a consumer that was last seen at `now_ms` and never active. Returns false if the group does not exist or
    /// the name is taken.
    pub fn consumer_create(&mut self, group: &[u8], consumer: &[u8], now_ms: u64) -> bool {
        self.groups.get_mut(group).is_some_and(|group| group.create_consumer(consumer, now_ms))
    }

    /// Removes a consumer and its pending entries. Returns how many entries were pending, or `None` if there is no such
    /// consumer.
    pub fn consumer_delete(&mut self, group: &[u8], consumer: &[u8]) -> Option<usize> {
        self.groups.get_mut(group)?.delete_consumer(consumer)
    }

    /// Records that a consumer made a request (`seen`), and whether it received something (`active`). Returns false if
    /// there is no such consumer.
    pub fn consumer_seen(&mut self, group: &[u8], consumer: &[u8], now_ms: u64, active: bool) -> bool {
        let Some(consumer) = self.groups.get_mut(group).and_then(|group| group.consumer_mut(consumer)) else {
            return false;
        };
        consumer.seen_ms = now_ms;
        if active {
            consumer.active_ms = Some(now_ms);
        }
        true
    }

    /// Makes entry `id` pending for a consumer, taking it from its present owner. The entry itself need not exist.
    /// Returns false if the group or the consumer does not exist.
    pub fn pending_set(&mut self, group: &[u8], id: StreamId, consumer: &[u8], time_ms: u64, deliveries: u64) -> bool {
        self.change_pending(group, |group| group.set_pending(id, consumer, time_ms, deliveries))
    }

    /// Makes entry `id` pending without an owner, taking it from any owner it has. Returns false if the group does not
    /// exist.
    pub fn pending_release(&mut self, group: &[u8], id: StreamId, deliveries: u64) -> bool {
        self.change_pending(group, |group| {
            group.release(id, deliveries);
            true
        })
    }

    /// Sets the time when entry `id`, which was given back, is due under the group's policy, Unix ms. Returns false if
    /// the entry has an owner or there is no policy.
    pub fn pending_hold(&mut self, group: &[u8], id: StreamId, until_ms: u64) -> bool {
        self.change_pending(group, |group| group.hold(id, until_ms))
    }

    /// Ends the pending state of entry `id`. Returns false if it was not pending.
    pub fn pending_ack(&mut self, group: &[u8], id: StreamId) -> bool {
        self.groups.get_mut(group).is_some_and(|group| group.ack(id))
    }

    fn change_pending(&mut self, name: &[u8], change: impl FnOnce(&mut Group) -> bool) -> bool {
        let Some(group) = self.groups.get_mut(name) else { return false };
        let done = change(group);
        if let Some(attendance) = &mut self.attendance {
            attendance.want(group.first_exhausted_ms());
        }
        done
    }
}

/// Attention to dead letters and delayed messages.
impl Stream {
    /// Whether a group has a policy.
    #[inline]
    pub fn has_policies(&self) -> bool {
        self.attendance.as_ref().is_some_and(|attendance| attendance.policies > 0)
    }

    /// Whether the passing of time may require an action on the stream.
    #[inline]
    pub fn needs_attendance(&self) -> bool {
        self.attendance.as_ref().is_some_and(|attendance| attendance.is_needed())
    }

    /// The groups that have policies, each with its policy.
    pub fn policies(&self) -> impl Iterator<Item = (&[u8], &Group, &Policy)> {
        let groups = self.has_policies().then(|| self.groups()).into_iter().flatten();
        groups.filter_map(|(name, group)| Some((name, group, group.policy()?)))
    }

    /// The time by which the stream must be checked, Unix ms: at the latest when the next dead letter or delayed
    /// message is due.
    pub fn attention_ms(&self) -> Option<i64> {
        let wanted_ms = self.attendance.as_ref()?.wanted_ms;
        wanted_ms.into_iter().chain(self.release_ms()).min()
    }

    /// Sets the time of the next check; `None` if no check is planned.
    pub fn set_timer_ms(&mut self, timer_ms: Option<i64>) {
        if let Some(attendance) = &mut self.attendance {
            attendance.timer_ms = timer_ms;
        }
    }

    /// Whether the stream must be checked before the planned check.
    pub fn needs_timer(&self) -> bool {
        let timer_ms = self.attendance.as_ref().and_then(|attendance| attendance.timer_ms);
        self.attention_ms().is_some_and(|wanted_ms| timer_ms.is_none_or(|timer_ms| wanted_ms < timer_ms))
    }

    /// The groups whose first dead letter is due to be moved by now.
    pub fn with_dead_letters(&self, now_ms: u64) -> impl Iterator<Item = &[u8]> {
        let is_due = move |group: &Group| group.first_exhausted_ms().is_some_and(|due_ms| due_ms <= now_ms);
        self.policies().filter(move |(_, group, _)| is_due(group)).map(|(name, ..)| name)
    }

    /// Records that a group's dead letters cannot be moved: no check is needed before this time, Unix ms, unless its
    /// policy changes.
    pub fn put_off(&mut self, group: &[u8], until_ms: u64) {
        if let Some(group) = self.groups.get_mut(group) {
            group.put_off(until_ms);
        }
    }

    /// Records that the stream was checked. The next action is due with the next dead letter that was not put off.
    pub fn was_attended(&mut self) {
        let wanted_ms = self.policies().filter_map(|(_, group, _)| as_time(group.first_exhausted_ms()?)).min();
        if let Some(attendance) = &mut self.attendance {
            attendance.wanted_ms = wanted_ms;
            attendance.timer_ms = None;
        }
    }

    /// Updates the count of policies after a group may have gained or lost one, and schedules a check of its dead
    /// letters.
    fn follow_policy(&mut self, name: &[u8], before: bool, after: bool) {
        if before != after {
            let attendance = self.attendance.get_or_insert_default();
            attendance.policies = attendance.policies + usize::from(after) - usize::from(before);
            self.dismiss_idle();
        }
        self.attend(name);
    }

    /// Cancels the checks if there is nothing left to do.
    fn dismiss_idle(&mut self) {
        let Some(attendance) = &mut self.attendance else { return };
        if attendance.policies == 0 {
            attendance.wanted_ms = None;
        }
        if !attendance.is_needed() {
            // The timer may be lost when nothing waits for it.
            attendance.timer_ms = None;
            if attendance.delayed.is_blank() {
                self.attendance = None;
            }
        }
    }

    /// Schedules a check of a group's dead letters.
    fn attend(&mut self, name: &[u8]) {
        if let (Some(attendance), Some(group)) = (&mut self.attendance, self.groups.get(name)) {
            attendance.want(group.first_exhausted_ms());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn id(ms: u64, seq: u64) -> StreamId {
        StreamId { ms, seq }
    }

    #[test]
    fn next_ids() {
        let mut stream = Stream::new();
        assert_eq!(stream.next_id(NewId::Auto, 5), Ok(id(5, 0)));
        assert_eq!(stream.next_id(NewId::AutoSeq(0), 5), Ok(id(0, 1)));
        assert_eq!(stream.next_id(NewId::Exact(id(0, 0)), 5), Err(NewIdError::NotAboveLast));
        stream.set_counters(id(9, u64::MAX), None, None);
        assert_eq!(stream.next_id(NewId::Auto, 5), Ok(id(10, 0)));
        assert_eq!(stream.next_id(NewId::AutoSeq(9), 5), Err(NewIdError::NotAboveLast));
        assert_eq!(stream.next_id(NewId::AutoSeq(8), 5), Err(NewIdError::NotAboveLast));
        stream.set_counters(StreamId::MAX, None, None);
        assert_eq!(stream.next_id(NewId::Auto, 5), Err(NewIdError::Exhausted));
    }

    type Pair = (Vec<u8>, Vec<u8>);

    fn append(stream: &mut Stream, id: StreamId, pairs: &[Pair], limits: StreamLimits) -> bool {
        stream.append(id, pairs.iter().map(|(field, value)| (field.as_slice(), value.as_slice())), limits)
    }

    fn numbered(count: u64) -> Stream {
        let mut stream = Stream::new();
        for n in 1..=count {
            assert!(append(&mut stream, id(n, 0), &[(b"f".to_vec(), vec![b'v'])], StreamLimits::default()));
        }
        stream
    }

    #[test]
    fn trims_by_whole_nodes() {
        let mut stream = numbered(1000);
        assert_eq!(stream.node_count(), 10);
        assert_eq!(stream.plan_trim(Keep::Newest(950), true, 0), None);
        assert_eq!(stream.plan_trim(Keep::Newest(550), true, 0), Some(id(400, 0)));
        assert_eq!(stream.plan_trim(Keep::Newest(550), true, 250), Some(id(200, 0)));
        assert_eq!(stream.plan_trim(Keep::From(id(301, 0)), true, 0), Some(id(300, 0)));
        assert_eq!(stream.plan_trim(Keep::From(id(399, 0)), true, 0), Some(id(300, 0)));
        assert_eq!(stream.plan_trim(Keep::Newest(0), false, 0), Some(id(1000, 0)));
        let through = stream.plan_trim(Keep::Newest(555), false, 0).expect("there is something to trim");
        assert_eq!(stream.trim_through(through), 445);
        assert_eq!((stream.len(), stream.first_id(), stream.entries_added()), (555, id(446, 0), 1000));
        assert_eq!(stream.max_deleted_id(), StreamId::MIN);
    }

    /// The rules of Redis 8 for a group's known position.
    #[test]
    fn lag_and_read_counter() {
        let mut stream = numbered(5);
        assert!(stream.group_create(b"g", StreamId::MIN, None));
        let lag = |stream: &Stream| stream.lag(stream.group(b"g").expect("it was created"));
        assert_eq!(lag(&stream), Some(5));
        let mut counter = stream.read_counter(StreamId::MIN, None);
        assert_eq!((counter(id(1, 0)), counter(id(2, 0))), (Some(1), Some(2)));
        assert_eq!(stream.read_counter(id(1, 0), None)(id(2, 0)), None);
        drop(counter);
        assert!(stream.group_set_id(b"g", id(2, 0), Some(2)));
        assert_eq!(lag(&stream), Some(3));
        assert!(stream.delete(id(4, 0)));
        assert_eq!(lag(&stream), None);
        assert!(stream.group_set_id(b"g", id(5, 0), None));
        assert_eq!(lag(&stream), Some(0));
        assert!(stream.group_set_id(b"g", id(1, 0), Some(1)));
        stream.trim_through(id(4, 0));
        assert_eq!(lag(&stream), Some(1));
        assert!(!stream.group_set_id(b"none", id(1, 0), None));
    }

    /// Behind many deleted entries in one node, the first live one is far away: a read must search for it once, not for
    /// each entry.
    #[test]
    fn counting_reads_past_deleted_entries_takes_linear_time() {
        let limits = StreamLimits { node_max_entries: 0, node_max_bytes: 0 };
        let mut stream = Stream::new();
        for ms in 1..=120_000 {
            assert!(stream.append(id(ms, 0), [(&b"f"[..], &b""[..])].into_iter(), limits));
        }
        stream.trim_through(id(60_000, 0));
        let began = std::time::Instant::now();
        let mut count = stream.read_counter(StreamId::MIN, None);
        for ms in 60_001..=120_000 {
            assert_eq!(count(id(ms, 0)), Some(ms));
        }
        // A twentieth of a second when run alone. A third as many entries took ten seconds when each one searched.
        assert!(began.elapsed().as_secs() < 30);
    }

    #[test]
    fn pending_entries_move_and_end() {
        let mut stream = numbered(3);
        stream.group_create(b"g", StreamId::MIN, None);
        assert!(!stream.group_create(b"g", StreamId::MAX, None));
        assert!(stream.consumer_create(b"g", b"bob", 10) && stream.consumer_create(b"g", b"ann", 10));
        assert!(!stream.consumer_create(b"g", b"ann", 11) && !stream.consumer_create(b"x", b"ann", 11));
        for n in 1..=3 {
            assert!(stream.pending_set(b"g", id(n, 0), b"ann", 20, 1));
        }
        assert!(stream.pending_set(b"g", id(2, 0), b"bob", 30, 2));
        assert!(!stream.pending_set(b"g", id(2, 0), b"eve", 30, 2));
        assert!(stream.consumer_seen(b"g", b"bob", 30, true));
        let group = stream.group(b"g").expect("it was created");
        let names: Vec<_> = group.consumers().map(|c| (c.name(), c.pending_len(), c.active_ms())).collect();
        assert_eq!(names, [(&b"ann"[..], 2, None), (&b"bob"[..], 1, Some(30))]);
        assert_eq!(group.pending_edges(), Some((id(1, 0), id(3, 0))));
        let second = Pending { id: id(2, 0), consumer: Some(b"bob"), time_ms: 30, deliveries: 2 };
        assert_eq!(group.pending(id(2, 0)), Some(second));
        assert_eq!(group.pending_range(id(2, 0), id(2, 5)).collect::<Vec<_>>(), [second]);
        assert_eq!(group.pending_range(id(3, 0), id(2, 5)).count(), 0);
        let ann = group.consumer(b"ann").expect("it was created");
        assert_eq!(ann.pending_range(StreamId::MIN, StreamId::MAX).collect::<Vec<_>>(), [id(1, 0), id(3, 0)]);
        assert!(stream.pending_ack(b"g", id(1, 0)) && !stream.pending_ack(b"g", id(1, 0)));
        assert_eq!(stream.consumer_delete(b"g", b"ann"), Some(1));
        assert_eq!(stream.consumer_delete(b"g", b"ann"), None);
        assert_eq!(stream.group(b"g").map(Group::pending_len), Some(1));
        assert!(stream.group_take(b"g").is_some() && stream.group_take(b"g").is_none());
        assert!(stream.mem_bytes() > 0);
    }

    #[derive(Clone, Debug)]
    enum Step {
        Append(StreamId, Vec<Pair>),
        Delete(usize),
        Trim(Keep, bool, u64),
    }

    fn pairs() -> impl Strategy<Value = Vec<Pair>> {
        let fixed = (any::<u8>(), 0usize..300)
            .prop_map(|(byte, len)| vec![(b"order".to_vec(), vec![byte]), (b"user".to_vec(), vec![byte; len])]);
        let text = || proptest::collection::vec(any::<u8>(), 0..4);
        prop_oneof![3 => fixed, 1 => proptest::collection::vec((text(), text()), 1..4)]
    }

    fn any_id() -> impl Strategy<Value = StreamId> {
        prop_oneof![
            (0u64..60, 0u64..3).prop_map(|(ms, seq)| id(ms, seq)),
            Just(StreamId::MAX),
            Just(id(1 << 40, u64::MAX)),
        ]
    }

    fn step() -> impl Strategy<Value = Step> {
        let keep = prop_oneof![(0u64..40).prop_map(Keep::Newest), any_id().prop_map(Keep::From)];
        prop_oneof![
            12 => ((0u64..3, 0u64..3), pairs()).prop_map(|((ms, seq), pairs)| Step::Append(id(ms, seq), pairs)),
            3 => any::<usize>().prop_map(Step::Delete),
            1 => (keep, any::<bool>(), 0u64..10).prop_map(|(keep, nodes, limit)| Step::Trim(keep, nodes, limit)),
        ]
    }

    fn owned(entry: Entry<'_>) -> (StreamId, Vec<Pair>) {
        (entry.id, entry.pairs.map(|(field, value)| (field.to_vec(), value.to_vec())).collect())
    }

    proptest! {
        #[test]
        fn follows_a_vector(
            steps in proptest::collection::vec(step(), 1..120),
            entries in prop_oneof![Just(0usize), 1usize..8],
            bytes in prop_oneof![Just(0usize), 1usize..600],
            ranges in proptest::collection::vec((any_id(), any_id()), 6),
        ) {
            let limits = StreamLimits { node_max_entries: entries, node_max_bytes: bytes };
            let mut stream = Stream::new();
            let mut model: Vec<(StreamId, Vec<Pair>)> = Vec::new();
            let (mut last, mut max_deleted, mut added) = (StreamId::MIN, StreamId::MIN, 0);
            for step in steps {
                match step {
                    Step::Append(by, pairs) => {
                        let id = if by.ms == 0 { id(last.ms, last.seq + by.seq) } else { id(last.ms + by.ms, by.seq) };
                        prop_assert_eq!(append(&mut stream, id, &pairs, limits), id > last);
                        if id > last {
                            model.push((id, pairs));
                            last = id;
                            added += 1;
                        }
                    }
                    Step::Delete(at) => {
                        let at = at % (model.len() + 1);
                        let id = model.get(at).map_or(id(1, 77), |entry| entry.0);
                        prop_assert_eq!(stream.delete(id), at < model.len());
                        if at < model.len() {
                            model.remove(at);
                            max_deleted = max_deleted.max(id);
                        }
                        prop_assert!(!stream.delete(id));
                    }
                    Step::Trim(keep, nodes, limit) => {
                        let extra = match keep {
                            Keep::Newest(count) => model.len().saturating_sub(count as usize),
                            Keep::From(id) => model.iter().filter(|entry| entry.0 < id).count(),
                        };
                        let limit = if nodes { limit } else { 0 };
                        let plan = stream.plan_trim(keep, nodes, limit);
                        let removed = plan.map_or(0, |last| stream.trim_through(last)) as usize;
                        if nodes {
                            prop_assert!(removed <= extra && (limit == 0 || removed <= limit as usize));
                        } else {
                            prop_assert_eq!(removed, extra);
                        }
                        prop_assert_eq!(plan.is_some(), removed > 0);
                        model.drain(..removed);
                    }
                }
                prop_assert_eq!(stream.len(), model.len() as u64);
                prop_assert_eq!(stream.first_id(), model.first().map_or(StreamId::MIN, |entry| entry.0));
            }
            prop_assert_eq!(stream.last_id(), last);
            prop_assert_eq!(stream.max_deleted_id(), max_deleted);
            prop_assert_eq!(stream.entries_added(), added);
            for (start, end) in ranges.into_iter().chain([(StreamId::MIN, StreamId::MAX)]) {
                let mut expected: Vec<_> =
                    model.iter().filter(|entry| entry.0 >= start && entry.0 <= end).cloned().collect();
                prop_assert_eq!(&stream.range(start, end).map(owned).collect::<Vec<_>>(), &expected);
                expected.reverse();
                prop_assert_eq!(&stream.range_rev(start, end).map(owned).collect::<Vec<_>>(), &expected);
            }
            for node in stream.nodes.values() {
                prop_assert!(node.live > 0 && (entries == 0 || node.total as usize <= entries));
            }
        }
    }
}
