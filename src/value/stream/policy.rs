//! A group's [`Policy`] for deliveries that are not acknowledged, and the order in which they fall due.
//!
//! A delivery is due when its consumer has been silent for `idle_ms` plus the backoff: `backoff_base_ms` after the
//! first delivery, doubled by each further one, at most `backoff_max_ms`. An entry without an owner, because it was
//! given back, is due at once or at a time set for it. A due entry is delivered again to the next reader. After
//! `max_deliveries`, however, it is a *dead letter* and moves to another stream. So there are two orders: the entries
//! that wait for a reader, and those that will not be read again.

use std::collections::{BTreeMap, BTreeSet};

use super::delayed::Delayed;
use super::id::StreamId;
use super::node::Entry;
use crate::base::num::parse_i64;

/// The policy of a group, as set by XGROUP SETPOLICY.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    /// The time for which a consumer may be silent about an entry, ms.
    pub idle_ms: u64,
    /// The number of deliveries after which an entry is a dead letter; 0: never.
    pub max_deliveries: u64,
    /// The key of the stream that receives dead letters; empty exactly if there are none.
    pub dead_letters: Box<[u8]>,
    /// The additional time after the first delivery, ms.
    pub backoff_base_ms: u64,
    /// The most additional time, ms.
    pub backoff_max_ms: u64,
}

impl Policy {
    /// Whether nothing is set, so that there is no policy.
    pub fn is_none(&self) -> bool {
        let &Policy { idle_ms, max_deliveries, ref dead_letters, backoff_base_ms, backoff_max_ms } = self;
        [idle_ms, max_deliveries, backoff_base_ms, backoff_max_ms] == [0; 4] && dead_letters.is_empty()
    }

    /// Whether the settings are consistent.
    pub fn is_sound(&self) -> bool {
        let &Policy { idle_ms, max_deliveries, ref dead_letters, backoff_base_ms, backoff_max_ms } = self;
        idle_ms > 0
            && (max_deliveries > 0) != dead_letters.is_empty()
            && backoff_base_ms <= backoff_max_ms
            && (backoff_base_ms > 0) == (backoff_max_ms > 0)
    }

    /// The time beyond `idle_ms` after this many deliveries, ms.
    pub fn backoff_ms(&self, deliveries: u64) -> u64 {
        let Some(doublings) = deliveries.checked_sub(1) else { return 0 };
        let factor = u32::try_from(doublings).ok().and_then(|doublings| 1u64.checked_shl(doublings));
        factor
            .map_or(self.backoff_max_ms, |factor| self.backoff_base_ms.saturating_mul(factor).min(self.backoff_max_ms))
    }

    /// The time when an entry that a consumer received at `since_ms` is due, Unix ms.
    fn due_ms(&self, since_ms: u64, deliveries: u64) -> u64 {
        since_ms.saturating_add(self.idle_ms).saturating_add(self.backoff_ms(deliveries))
    }

    /// Whether an entry with this many deliveries becomes a dead letter when it is due.
    pub fn is_exhausted(&self, deliveries: u64) -> bool {
        self.max_deliveries > 0 && deliveries >= self.max_deliveries
    }

    fn mem_bytes(&self) -> usize {
        self.dead_letters.len()
    }
}

/// A policy, and the due times of the group's pending entries.
#[derive(Clone)]
pub(super) struct Schedule {
    policy: Policy,
    /// The entries to be delivered again, by due time.
    due: BTreeSet<(u64, StreamId)>,
    /// The entries that were delivered often enough, by due time.
    exhausted: BTreeSet<(u64, StreamId)>,
    /// The due times of entries without an owner; those not listed are due at once.
    held: BTreeMap<StreamId, u64>,
    /// The exhausted entries are not checked before this time, because they cannot be moved. Like the times in
    /// [`Attendance`], it is not part of the stream's value.
    put_off_until_ms: u64,
}

impl std::fmt::Debug for Schedule {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Schedule { policy, due, exhausted, held, put_off_until_ms: _ } = self;
        let mut shown = f.debug_struct("Schedule");
        shown.field("policy", policy).field("due", due).field("exhausted", exhausted).field("held", held).finish()
    }
}

impl Schedule {
    pub(super) fn new(policy: Policy) -> Schedule {
        Schedule {
            policy,
            due: BTreeSet::new(),
            exhausted: BTreeSet::new(),
            held: BTreeMap::new(),
            put_off_until_ms: 0,
        }
    }

    pub(super) fn policy(&self) -> &Policy {
        &self.policy
    }

    /// Adds an entry that has become pending: delivered to a consumer at this time, or given back (`None`).
    pub(super) fn add(&mut self, id: StreamId, since_ms: Option<u64>, deliveries: u64) {
        let due_ms = self.due_ms(id, since_ms, deliveries);
        self.order(deliveries).insert((due_ms, id));
    }

    /// Removes an entry whose pending state is about to change.
    pub(super) fn remove(&mut self, id: StreamId, since_ms: Option<u64>, deliveries: u64) {
        let due_ms = self.due_ms(id, since_ms, deliveries);
        self.order(deliveries).remove(&(due_ms, id));
        self.held.remove(&id);
    }

    /// Makes an entry that was given back and added due no earlier than this time.
    pub(super) fn hold(&mut self, id: StreamId, until_ms: u64, deliveries: u64) {
        self.remove(id, None, deliveries);
        self.held.insert(id, until_ms);
        self.add(id, None, deliveries);
    }

    /// The due time of an entry that was given back, unless it is due at once.
    pub(super) fn held_until_ms(&self, id: StreamId) -> Option<u64> {
        self.held.get(&id).copied()
    }

    pub(super) fn first_due_ms(&self) -> Option<u64> {
        self.due.first().map(|(due_ms, _)| *due_ms)
    }

    /// The time when the first exhausted entry is to be moved: its due time, or later if that was put off.
    pub(super) fn first_exhausted_ms(&self) -> Option<u64> {
        self.exhausted.first().map(|(due_ms, _)| (*due_ms).max(self.put_off_until_ms))
    }

    /// Puts off the exhausted entries until this time, Unix ms.
    pub(super) fn put_off(&mut self, until_ms: u64) {
        self.put_off_until_ms = until_ms;
    }

    pub(super) fn due_until(&self, time_ms: u64) -> impl Iterator<Item = StreamId> {
        self.due.iter().take_while(move |(due_ms, _)| *due_ms <= time_ms).map(|(_, id)| *id)
    }

    pub(super) fn exhausted_until(&self, time_ms: u64) -> impl Iterator<Item = StreamId> {
        self.exhausted.iter().take_while(move |(due_ms, _)| *due_ms <= time_ms).map(|(_, id)| *id)
    }

    pub(super) fn exhausted_len(&self) -> usize {
        self.exhausted.len()
    }

    pub(super) fn mem_bytes(&self) -> usize {
        let orders = (self.due.len() + self.exhausted.len() + self.held.len()) * size_of::<(u64, StreamId)>() * 3 / 2;
        size_of::<Schedule>() + self.policy.mem_bytes() + orders
    }

    fn due_ms(&self, id: StreamId, since_ms: Option<u64>, deliveries: u64) -> u64 {
        match since_ms {
            Some(since_ms) => self.policy.due_ms(since_ms, deliveries),
            None => self.held_until_ms(id).unwrap_or(0),
        }
    }

    fn order(&mut self, deliveries: u64) -> &mut BTreeSet<(u64, StreamId)> {
        if self.policy.is_exhausted(deliveries) { &mut self.exhausted } else { &mut self.due }
    }
}

/// The tasks that a stream needs done as time passes: moving dead letters, where groups have policies, and releasing
/// delayed messages. The times here are not part of the stream's value; they only coordinate with the code that checks
/// it.
#[derive(Clone, Default)]
pub(super) struct Attendance {
    /// The number of groups that have a policy.
    pub(super) policies: usize,
    /// Messages held back until they are due.
    pub(super) delayed: Delayed,
    /// Dead letters need no action before this time, Unix ms.
    pub(super) wanted_ms: Option<i64>,
    /// The time of the planned check, if any.
    pub(super) timer_ms: Option<i64>,
}

impl Attendance {
    /// Whether anything needs attention.
    pub(super) fn is_needed(&self) -> bool {
        self.policies > 0 || !self.delayed.is_empty()
    }

    /// Records that an action may be needed from this time on.
    pub(super) fn want(&mut self, at_ms: Option<u64>) {
        let at_ms = at_ms.and_then(as_time);
        self.wanted_ms = self.wanted_ms.into_iter().chain(at_ms).min();
    }
}

impl std::fmt::Debug for Attendance {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Attendance { policies, delayed, .. } = self;
        f.debug_struct("Attendance").field("policies", policies).field("delayed", delayed).finish_non_exhaustive()
    }
}

/// A time that a client may have chosen, Unix ms; `None` if it will never come.
pub(super) fn as_time(ms: u64) -> Option<i64> {
    i64::try_from(ms).ok().filter(|ms| *ms < i64::MAX)
}

/// The fields that a dead letter has behind its own: its origin, and the number of times it has become a dead letter.
pub const HISTORY: [&str; 7] =
    ["dlq-stream", "dlq-group", "dlq-id", "dlq-consumer", "dlq-deliveries", "dlq-time", "dlq-hops"];

/// The number of [`HISTORY`] fields in dead letters written before `dlq-hops` existed.
const HISTORY_WITHOUT_HOPS: usize = HISTORY.len() - 1;

/// The origin of a dead letter, according to its fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Origin<'a> {
    /// The key of the stream.
    pub stream: &'a [u8],
    /// The group that failed to process it.
    pub group: &'a [u8],
    /// The number of times it has become a dead letter: once for each stream in a chain. 0 if the field is not a
    /// number.
    pub hops: u64,
    /// The number of pairs that belong to the entry itself.
    pub own: usize,
}

impl<'a> Origin<'a> {
    /// The origin of an entry; `None` if it is not a dead letter.
    pub fn of(entry: &Entry<'a>) -> Option<Origin<'a>> {
        Origin::with_history(entry, HISTORY.len()).or_else(|| Origin::with_history(entry, HISTORY_WITHOUT_HOPS))
    }

    /// The origin of an entry whose last fields are the first `fields` of [`HISTORY`].
    fn with_history(entry: &Entry<'a>, fields: usize) -> Option<Origin<'a>> {
        let own = entry.pairs.len().checked_sub(fields).filter(|own| *own > 0)?;
        // A dead letter without a count has become one at least once.
        let mut values = [&b""[..], b"", b"", b"", b"", b"", b"1"];
        for ((name, value), (field, text)) in HISTORY.iter().zip(&mut values).zip(entry.pairs.clone().skip(own)) {
            if field != name.as_bytes() {
                return None;
            }
            *value = text;
        }
        let [stream, group, .., hops] = values;
        let hops = parse_i64(hops).and_then(|hops| u64::try_from(hops).ok()).unwrap_or(0);
        Some(Origin { stream, group, hops, own })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy(backoff: (u64, u64)) -> Policy {
        let (backoff_base_ms, backoff_max_ms) = backoff;
        Policy { idle_ms: 100, max_deliveries: 3, dead_letters: (*b"dlq").into(), backoff_base_ms, backoff_max_ms }
    }

    #[test]
    fn the_backoff_doubles_up_to_its_bound() {
        let waits = |backoff| [0, 1, 2, 3, 4, 64, 65, 66, u64::MAX].map(|n| policy(backoff).backoff_ms(n));
        assert_eq!(waits((10, 70)), [0, 10, 20, 40, 70, 70, 70, 70, 70]);
        assert_eq!(waits((0, 0)), [0; 9]);
        assert_eq!(policy((3, u64::MAX)).backoff_ms(64), u64::MAX);
        assert_eq!(policy((10, 70)).due_ms(u64::MAX - 5, 1), u64::MAX);
    }

    #[test]
    fn inconsistent_policies_are_detected() {
        assert!(policy((0, 0)).is_sound() && policy((5, 5)).is_sound());
        for unsound in [
            Policy { idle_ms: 0, ..policy((0, 0)) },
            Policy { max_deliveries: 0, ..policy((0, 0)) },
            Policy { dead_letters: Box::default(), ..policy((0, 0)) },
            policy((6, 5)),
            policy((0, 5)),
        ] {
            assert!(!unsound.is_sound(), "{unsound:?}");
        }
    }
}
