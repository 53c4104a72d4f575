//! Consumer groups: the entries that were delivered and not acknowledged, with their consumers.

use std::collections::BTreeMap;
use std::collections::btree_set::{self, BTreeSet};
use std::ops::Bound;

use slab::Slab;

use super::id::StreamId;
use super::policy::{Policy, Schedule};

/// A consumer group.
///
/// The pending entries are kept in up to three orders: by id, as every reply lists them; those owned by a consumer, by
/// delivery time, to find the ones that have been idle too long; and those that were given back, in the order of their
/// return. If the group has a policy, its [`Schedule`] orders them as well.
#[derive(Clone, Debug, Default)]
pub struct Group {
    pub(super) last_delivered: StreamId,
    pub(super) entries_read: Option<u64>,
    pending: BTreeMap<StreamId, Nack>,
    by_time: BTreeSet<(u64, StreamId)>,
    released: BTreeMap<u64, StreamId>,
    consumers: Slab<Consumer>,
    by_name: BTreeMap<Box<[u8]>, usize>,
    pub(super) schedule: Option<Box<Schedule>>,
}

/// An unacknowledged delivery.
#[derive(Clone, Copy, Debug)]
struct Nack {
    owner: Owner,
    deliveries: u64,
}

impl Nack {
    /// The time since when a consumer has owned the entry, Unix ms.
    fn since_ms(&self) -> Option<u64> {
        match self.owner {
            Owner::Consumer { since_ms, .. } => Some(since_ms),
            Owner::Nobody { .. } => None,
        }
    }
}

/// The state of a delivery, for undoing a change.
#[derive(Clone, Copy, Debug)]
pub(super) struct PendingState {
    nack: Nack,
    held_until_ms: Option<u64>,
}

#[derive(Clone, Copy, Debug)]
enum Owner {
    Consumer {
        number: u32,
        since_ms: u64,
    },
    /// Given back, with its turn among the entries given back.
    Nobody {
        turn: u64,
    },
}

/// An entry that was delivered and not acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pending<'a> {
    /// The entry; it may have been deleted from the stream since.
    pub id: StreamId,
    /// The owner; `None` if the entry was given back.
    pub consumer: Option<&'a [u8]>,
    /// The time of the last delivery, ms since the Unix epoch; 0 if it was given back.
    pub time_ms: u64,
    /// The number of deliveries.
    pub deliveries: u64,
}

/// A member of a group.
#[derive(Clone, Debug)]
pub struct Consumer {
    name: Box<[u8]>,
    pub(super) seen_ms: u64,
    pub(super) active_ms: Option<u64>,
    pending: BTreeSet<StreamId>,
}

impl Group {
    /// A group without consumers that has been given the entries up to `last_delivered`.
    pub fn new(last_delivered: StreamId, entries_read: Option<u64>) -> Group {
        Group { last_delivered, entries_read, ..Group::default() }
    }

    /// The last entry that was given to a consumer.
    pub fn last_delivered(&self) -> StreamId {
        self.last_delivered
    }

    /// The number of entries ever appended up to `last_delivered`, if known.
    pub fn entries_read(&self) -> Option<u64> {
        self.entries_read
    }

    /// The number of pending entries.
    pub fn pending_len(&self) -> usize {
        self.pending.len()
    }

    /// The number of elements: the group itself, its consumers, its pending entries.
    pub fn weight(&self) -> usize {
        1 + self.consumers.len() + self.pending.len()
    }

    /// The lowest and the highest pending id.
    pub fn pending_edges(&self) -> Option<(StreamId, StreamId)> {
        Some((*self.pending.first_key_value()?.0, *self.pending.last_key_value()?.0))
    }

    /// The delivery of one entry.
    pub fn pending(&self, id: StreamId) -> Option<Pending<'_>> {
        self.pending.get(&id).map(|nack| self.resolve(id, nack))
    }

    /// The pending entries from `start` to `end`, both inclusive.
    pub fn pending_range(&self, start: StreamId, end: StreamId) -> impl Iterator<Item = Pending<'_>> {
        let range = (start <= end).then(|| self.pending.range(start..=end));
        range.into_iter().flatten().map(|(&id, nack)| self.resolve(id, nack))
    }

    /// The number of pending entries that were given back and have not been delivered again.
    pub fn released_len(&self) -> usize {
        self.released.len()
    }

    /// The pending entries that were given back, in the order of their return, followed by those delivered at `time_ms`
    /// or before, the longest idle first.
    pub fn delivered_until(&self, time_ms: Option<u64>) -> impl Iterator<Item = Pending<'_>> {
        let idle = self.by_time.iter().take_while(move |(since_ms, _)| Some(*since_ms) <= time_ms).map(|&(_, id)| id);
        self.released.values().copied().chain(idle).filter_map(|id| self.pending(id))
    }

    /// The delivery time of the pending entry that has been idle for longest, ms since the Unix epoch; 0 if one was
    /// given back.
    pub fn oldest_delivery_ms(&self) -> Option<u64> {
        match self.released.is_empty() {
            false => Some(0),
            true => self.by_time.first().map(|(since_ms, _)| *since_ms),
        }
    }

    /// The consumers by name, in byte order.
    pub fn consumers(&self) -> impl ExactSizeIterator<Item = &Consumer> {
        self.by_name.values().map(|&number| &self.consumers[number])
    }

    /// The consumers after this name in byte order, or all consumers for `None`.
    pub fn consumers_after(&self, name: Option<&[u8]>) -> impl Iterator<Item = &Consumer> {
        let from = name.map_or(Bound::Unbounded, Bound::Excluded);
        self.by_name.range::<[u8], _>((from, Bound::Unbounded)).map(|(_, &number)| &self.consumers[number])
    }

    /// The pending entries that were given back, each with its turn and ordered by turn, from `turn` on.
    pub fn released_from(&self, turn: u64) -> impl Iterator<Item = (u64, Pending<'_>)> {
        self.released.range(turn..).filter_map(|(&turn, &id)| Some((turn, self.pending(id)?)))
    }

    /// The consumer of this name.
    pub fn consumer(&self, name: &[u8]) -> Option<&Consumer> {
        self.by_name.get(name).map(|&number| &self.consumers[number])
    }

    /// The policy for deliveries that are not acknowledged.
    pub fn policy(&self) -> Option<&Policy> {
        self.schedule.as_deref().map(Schedule::policy)
    }

    /// The pending entries that the policy will deliver again and that were due at `time_ms` or before, the longest due
    /// first.
    pub fn due_until(&self, time_ms: u64) -> impl Iterator<Item = Pending<'_>> {
        let due = self.schedule.iter().flat_map(move |schedule| schedule.due_until(time_ms));
        due.filter_map(|id| self.pending(id))
    }

    /// The time when the first entry is due to be delivered again, Unix ms.
    pub fn first_due_ms(&self) -> Option<u64> {
        self.schedule.as_ref()?.first_due_ms()
    }

    /// The dead letters due at `time_ms` or before: pending entries that were delivered as often as the policy allows.
    pub fn exhausted_until(&self, time_ms: u64) -> impl Iterator<Item = StreamId> {
        self.schedule.iter().flat_map(move |schedule| schedule.exhausted_until(time_ms))
    }

    /// The time when the first dead letter is due to be moved, Unix ms.
    pub(super) fn first_exhausted_ms(&self) -> Option<u64> {
        self.schedule.as_ref()?.first_exhausted_ms()
    }

    /// Puts off the check of dead letters until this time, Unix ms, unless the policy changes.
    pub(super) fn put_off(&mut self, until_ms: u64) {
        if let Some(schedule) = &mut self.schedule {
            schedule.put_off(until_ms);
        }
    }

    /// The number of pending entries that were delivered as often as the policy allows, due or not.
    pub fn exhausted_len(&self) -> usize {
        self.schedule.as_ref().map_or(0, |schedule| schedule.exhausted_len())
    }

    /// The time when an entry that was given back is due under the policy, Unix ms; `None`: at once.
    pub fn held_until_ms(&self, id: StreamId) -> Option<u64> {
        self.schedule.as_ref()?.held_until_ms(id)
    }

    /// Sets or removes the policy.
    pub fn set_policy(&mut self, policy: Option<Policy>) {
        let mut before = self.schedule.take();
        self.schedule = policy.map(|policy| Box::new(Schedule::new(policy)));
        let Some(schedule) = &mut self.schedule else { return };
        for (&id, nack) in &self.pending {
            schedule.add(id, nack.since_ms(), nack.deliveries);
            if let Some(until_ms) = before.as_mut().and_then(|before| before.held_until_ms(id)) {
                schedule.hold(id, until_ms, nack.deliveries);
            }
        }
    }

    /// Makes an entry that was given back due at this time, Unix ms, instead of at once. Returns false if it was not
    /// given back or there is no policy.
    pub fn hold(&mut self, id: StreamId, until_ms: u64) -> bool {
        match (&mut self.schedule, self.pending.get(&id)) {
            (Some(schedule), Some(&Nack { owner: Owner::Nobody { .. }, deliveries })) => {
                schedule.hold(id, until_ms, deliveries);
                true
            }
            _ => false,
        }
    }

    /// Keeps the schedule in step with a change of an entry's delivery.
    #[inline]
    fn reschedule(&mut self, id: StreamId, before: Option<Nack>, after: Option<Nack>) {
        let Some(schedule) = &mut self.schedule else { return };
        if let Some(before) = before {
            schedule.remove(id, before.since_ms(), before.deliveries);
        }
        if let Some(after) = after {
            schedule.add(id, after.since_ms(), after.deliveries);
        }
    }

    fn resolve(&self, id: StreamId, nack: &Nack) -> Pending<'_> {
        let (consumer, time_ms) = match nack.owner {
            Owner::Consumer { number, since_ms } => (Some(self.consumers[number as usize].name()), since_ms),
            Owner::Nobody { .. } => (None, 0),
        };
        Pending { id, consumer, time_ms, deliveries: nack.deliveries }
    }

    pub(super) fn consumer_mut(&mut self, name: &[u8]) -> Option<&mut Consumer> {
        self.consumers.get_mut(*self.by_name.get(name)?)
    }

    pub(super) fn create_consumer(&mut self, name: &[u8], now_ms: u64) -> bool {
        if self.by_name.contains_key(name) {
            return false;
        }
        let consumer = Consumer { name: name.into(), seen_ms: now_ms, active_ms: None, pending: BTreeSet::new() };
        self.by_name.insert(name.into(), self.consumers.insert(consumer));
        true
    }

    /// Adds a consumer with its pending entries: id, delivery time, deliveries. Returns false if the name is taken. The
    /// name is looked up only once, since it may be long and the entries many.
    pub fn add_consumer(
        &mut self,
        name: &[u8],
        seen_ms: u64,
        active_ms: Option<u64>,
        pending: impl IntoIterator<Item = (StreamId, u64, u64)>,
    ) -> bool {
        if !self.create_consumer(name, seen_ms) {
            return false;
        }
        let number = self.by_name[name];
        self.consumers[number].active_ms = active_ms;
        for (id, time_ms, deliveries) in pending {
            self.give(id, number, time_ms, deliveries);
        }
        true
    }

    pub(super) fn delete_consumer(&mut self, name: &[u8]) -> Option<usize> {
        let number = self.by_name.remove(name)?;
        let ids = std::mem::take(&mut self.consumers[number].pending);
        for &id in &ids {
            self.ack(id);
        }
        self.consumers.remove(number);
        Some(ids.len())
    }

    pub(super) fn set_pending(&mut self, id: StreamId, consumer: &[u8], time_ms: u64, deliveries: u64) -> bool {
        let Some(&number) = self.by_name.get(consumer) else { return false };
        self.give(id, number, time_ms, deliveries);
        true
    }

    /// Makes an entry pending for the consumer with this number.
    fn give(&mut self, id: StreamId, number: usize, time_ms: u64, deliveries: u64) {
        let owner = Owner::Consumer { number: number as u32, since_ms: time_ms };
        let new = Nack { owner, deliveries };
        let old = self.pending.insert(id, new);
        self.reschedule(id, old, Some(new));
        match old.map(|old| old.owner) {
            // Delivered again to the consumer that already owns it.
            Some(Owner::Consumer { number: old, since_ms }) if old as usize == number => {
                self.by_time.remove(&(since_ms, id));
            }
            old => {
                self.forget(id, old);
                self.consumers[number].pending.insert(id);
            }
        }
        self.by_time.insert((time_ms, id));
    }

    /// Makes an entry pending without an owner, with a turn after all others given back.
    pub fn release(&mut self, id: StreamId, deliveries: u64) {
        let turn = self.released.last_key_value().map_or(0, |(turn, _)| turn + 1);
        let new = Nack { owner: Owner::Nobody { turn }, deliveries };
        let old = self.pending.insert(id, new);
        self.reschedule(id, old, Some(new));
        self.forget(id, old.map(|old| old.owner));
        self.released.insert(turn, id);
    }

    pub(super) fn ack(&mut self, id: StreamId) -> bool {
        let Some(nack) = self.pending.remove(&id) else { return false };
        self.reschedule(id, Some(nack), None);
        self.forget(id, Some(nack.owner));
        true
    }

    /// Removes an entry from the orders that its owner determines.
    fn forget(&mut self, id: StreamId, owner: Option<Owner>) {
        match owner {
            Some(Owner::Consumer { number, since_ms }) => {
                self.consumers[number as usize].pending.remove(&id);
                self.by_time.remove(&(since_ms, id));
            }
            Some(Owner::Nobody { turn }) => {
                self.released.remove(&turn);
            }
            None => {}
        }
    }

    /// The state of a pending entry, for undoing a change.
    pub(super) fn pending_state(&self, id: StreamId) -> Option<PendingState> {
        let &nack = self.pending.get(&id)?;
        Some(PendingState { nack, held_until_ms: self.held_until_ms(id) })
    }

    /// Restores the state of an entry, pending or not. The consumers must be those of that time.
    pub(super) fn put_back_pending(&mut self, id: StreamId, before: Option<PendingState>) {
        self.ack(id);
        let Some(PendingState { nack, held_until_ms }) = before else { return };
        self.pending.insert(id, nack);
        self.reschedule(id, None, Some(nack));
        match nack.owner {
            Owner::Consumer { number, since_ms } => {
                self.consumers[number as usize].pending.insert(id);
                self.by_time.insert((since_ms, id));
            }
            Owner::Nobody { turn } => _ = self.released.insert(turn, id),
        }
        if let Some(until_ms) = held_until_ms {
            self.hold(id, until_ms);
        }
    }

    /// Restores the times of a consumer, or removes it; it then has no pending entries.
    pub(super) fn put_back_consumer(&mut self, name: &[u8], before: Option<(u64, Option<u64>)>) {
        match (before, self.consumer_mut(name)) {
            (Some((seen_ms, active_ms)), Some(consumer)) => {
                consumer.seen_ms = seen_ms;
                consumer.active_ms = active_ms;
            }
            (None, Some(_)) => _ = self.delete_consumer(name),
            (_, None) => {}
        }
    }

    pub(super) fn mem_bytes(&self) -> usize {
        // Each pending entry is in three B-trees, whose nodes are about two thirds full.
        let pending = self.pending.len() * (size_of::<StreamId>() * 3 + 8 + size_of::<Nack>()) * 3 / 2;
        let names: usize = self.by_name.keys().map(|name| 2 * name.len()).sum();
        let schedule = self.schedule.as_ref().map_or(0, |schedule| schedule.mem_bytes());
        size_of::<Group>() + pending + schedule + names + self.consumers.capacity() * size_of::<Consumer>()
    }
}

impl Consumer {
    /// The consumer's name.
    pub fn name(&self) -> &[u8] {
        &self.name
    }

    /// The time of its last request, ms since the Unix epoch.
    pub fn seen_ms(&self) -> u64 {
        self.seen_ms
    }

    /// The last time it received something, ms since the Unix epoch.
    pub fn active_ms(&self) -> Option<u64> {
        self.active_ms
    }

    /// The number of its pending entries.
    pub fn pending_len(&self) -> usize {
        self.pending.len()
    }

    /// The ids of its pending entries from `start` to `end`, both inclusive.
    pub fn pending_range(&self, start: StreamId, end: StreamId) -> impl Iterator<Item = StreamId> {
        let range: Option<btree_set::Range<'_, StreamId>> = (start <= end).then(|| self.pending.range(start..=end));
        range.into_iter().flatten().copied()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[derive(Clone, Debug)]
    enum Step {
        Give { id: u64, consumer: usize, at_ms: u64, deliveries: u64 },
        Release { id: u64, deliveries: u64 },
        Ack { id: u64 },
        DeleteConsumer(usize),
    }

    fn step() -> impl Strategy<Value = Step> {
        let id = || 0u64..12;
        prop_oneof![
            4 => (id(), 0usize..3, 0u64..6, 0u64..4)
                .prop_map(|(id, consumer, at_ms, deliveries)| Step::Give { id, consumer, at_ms, deliveries }),
            2 => (id(), 0u64..4).prop_map(|(id, deliveries)| Step::Release { id, deliveries }),
            2 => id().prop_map(|id| Step::Ack { id }),
            1 => (0usize..3).prop_map(Step::DeleteConsumer),
        ]
    }

    const NAMES: [&[u8]; 3] = [b"ann", b"bob", b"eve"];

    /// A pending entry of the model: id, owner, time of delivery (without an owner: its turn), deliveries.
    type Row = (StreamId, Option<usize>, u64, u64);

    fn check(group: &Group, model: &[Row]) -> Result<(), TestCaseError> {
        let time = |row: &Row| row.1.map_or(0, |_| row.2);
        let mut by_id: Vec<Row> = model.to_vec();
        by_id.sort_unstable();
        let wanted: Vec<_> =
            by_id.iter().map(|row| (row.0, row.1.map(|number| NAMES[number]), time(row), row.3)).collect();
        let all = group.pending_range(StreamId::MIN, StreamId::MAX);
        prop_assert_eq!(all.map(|p| (p.id, p.consumer, p.time_ms, p.deliveries)).collect::<Vec<_>>(), wanted);
        prop_assert_eq!(group.pending_len(), model.len());
        prop_assert_eq!(group.released_len(), model.iter().filter(|row| row.1.is_none()).count());
        prop_assert_eq!(group.oldest_delivery_ms(), model.iter().map(time).min());
        for until in [None, Some(0), Some(3), Some(9)] {
            let mut idle: Vec<_> = model.iter().filter(|row| row.1.is_none() || Some(row.2) <= until).collect();
            idle.sort_unstable_by_key(|row| (row.1.is_some(), row.2, row.0));
            let ids = group.delivered_until(until).map(|pending| pending.id);
            prop_assert_eq!(ids.collect::<Vec<_>>(), idle.iter().map(|row| row.0).collect::<Vec<_>>());
        }
        for consumer in group.consumers() {
            let ids = consumer.pending_range(StreamId::MIN, StreamId::MAX).collect::<Vec<_>>();
            let of = by_id.iter().filter(|row| row.1.is_some_and(|number| NAMES[number] == consumer.name()));
            prop_assert_eq!(ids, of.map(|row| row.0).collect::<Vec<_>>());
        }
        Ok(())
    }

    proptest! {
        #[test]
        fn follows_a_list_of_rows(steps in proptest::collection::vec(step(), 1..80)) {
            let mut group = Group::default();
            let mut model: Vec<Row> = Vec::new();
            let mut turns = 0;
            for step in steps {
                match step {
                    Step::Give { id, consumer, at_ms, deliveries } => {
                        let id = StreamId { ms: id, seq: 0 };
                        group.create_consumer(NAMES[consumer], 0);
                        prop_assert!(group.set_pending(id, NAMES[consumer], at_ms, deliveries));
                        model.retain(|row| row.0 != id);
                        model.push((id, Some(consumer), at_ms, deliveries));
                    }
                    Step::Release { id, deliveries } => {
                        let id = StreamId { ms: id, seq: 0 };
                        group.release(id, deliveries);
                        model.retain(|row| row.0 != id);
                        turns += 1;
                        model.push((id, None, turns, deliveries));
                    }
                    Step::Ack { id } => {
                        let id = StreamId { ms: id, seq: 0 };
                        prop_assert_eq!(group.ack(id), model.iter().any(|row| row.0 == id));
                        model.retain(|row| row.0 != id);
                    }
                    Step::DeleteConsumer(number) => {
                        let had = model.iter().filter(|row| row.1 == Some(number)).count();
                        let exists = group.consumer(NAMES[number]).is_some();
                        prop_assert_eq!(group.delete_consumer(NAMES[number]), exists.then_some(had));
                        model.retain(|row| row.1 != Some(number));
                    }
                }
                check(&group, &model)?;
            }
        }
    }

    fn policy(number: u64) -> Policy {
        let max_deliveries = number % 4;
        let dead_letters: &[u8] = if max_deliveries > 0 { b"d" } else { b"" };
        let (backoff_base_ms, backoff_max_ms) = if number > 4 { (2, 5) } else { (0, 0) };
        Policy { idle_ms: 3, max_deliveries, dead_letters: dead_letters.into(), backoff_base_ms, backoff_max_ms }
    }

    /// The expected schedule, computed from all pending entries: the due time of each, first of those to be delivered
    /// again.
    fn scheduled(group: &Group, held: &BTreeMap<StreamId, u64>) -> [Vec<(u64, StreamId)>; 2] {
        let mut orders = [Vec::new(), Vec::new()];
        let Some(policy) = group.policy() else { return orders };
        for pending in group.pending_range(StreamId::MIN, StreamId::MAX) {
            let due_ms = match pending.consumer {
                Some(_) => pending.time_ms + policy.idle_ms + policy.backoff_ms(pending.deliveries),
                None => held.get(&pending.id).copied().unwrap_or(0),
            };
            let is_exhausted = policy.max_deliveries > 0 && pending.deliveries >= policy.max_deliveries;
            orders[usize::from(is_exhausted)].push((due_ms, pending.id));
        }
        orders.iter_mut().for_each(|order| order.sort_unstable());
        orders
    }

    proptest! {
        /// Whatever happens to deliveries and the policy, each pending entry is scheduled exactly once and for the
        /// right time. The same is true after the last change is undone.
        #[test]
        fn a_policy_schedules_all_pending_entries(
            steps in proptest::collection::vec((step(), 0..9u64, proptest::option::of(0..9u64)), 1..60),
        ) {
            let mut group = Group::default();
            let mut held = BTreeMap::new();
            for name in NAMES {
                group.create_consumer(name, 0);
            }
            for (step, number, until) in steps {
                if number == 8 {
                    group.set_policy(until.map(policy));
                    if until.is_none() {
                        held.clear();
                    }
                }
                let id = match step {
                    Step::Give { id, .. } | Step::Release { id, .. } | Step::Ack { id } => StreamId { ms: id, seq: 0 },
                    Step::DeleteConsumer(number) => {
                        group.delete_consumer(NAMES[number]);
                        group.create_consumer(NAMES[number], 0);
                        StreamId::MIN
                    }
                };
                let before = group.pending_state(id);
                let (order, was_held) = (scheduled(&group, &held), held.clone());
                for _ in 0..2 {
                    match step {
                        Step::Give { consumer, at_ms, deliveries, .. } => {
                            prop_assert!(group.set_pending(id, NAMES[consumer], at_ms, deliveries));
                        }
                        Step::Release { deliveries, .. } => group.release(id, deliveries),
                        Step::Ack { .. } => _ = group.ack(id),
                        Step::DeleteConsumer(_) => {}
                    }
                    held.remove(&id);
                    if let (Step::Release { .. }, Some(until_ms)) = (&step, until) {
                        prop_assert_eq!(group.hold(id, until_ms), group.policy().is_some());
                        held.extend(group.policy().map(|_| (id, until_ms)));
                    }
                    let [due, exhausted] = scheduled(&group, &held);
                    let ids = |order: &[(u64, StreamId)], until_ms| -> Vec<StreamId> {
                        order.iter().filter(|(due_ms, _)| *due_ms <= until_ms).map(|(_, id)| *id).collect()
                    };
                    for until_ms in [0, 4, 8, u64::MAX] {
                        let found = group.due_until(until_ms).map(|pending| pending.id);
                        prop_assert_eq!(found.collect::<Vec<_>>(), ids(&due, until_ms));
                        let found = group.exhausted_until(until_ms);
                        prop_assert_eq!(found.collect::<Vec<_>>(), ids(&exhausted, until_ms));
                    }
                    prop_assert_eq!(group.first_due_ms(), due.first().map(|(due_ms, _)| *due_ms));
                    prop_assert_eq!(group.first_exhausted_ms(), exhausted.first().map(|(due_ms, _)| *due_ms));
                    prop_assert_eq!(group.exhausted_len(), exhausted.len());
                    if matches!(step, Step::DeleteConsumer(_)) {
                        break;
                    }
                    let after = held.clone();
                    group.put_back_pending(id, before);
                    held = was_held.clone();
                    prop_assert_eq!(scheduled(&group, &held), order.clone());
                    held = after;
                    held.remove(&id);
                    held.extend(was_held.get(&id).map(|until_ms| (id, *until_ms)));
                }
            }
        }
    }
}
