//! What a group does about deliveries that nobody acknowledges: its [`Policy`], and in which order they are due.
//!
//! A delivery is due when its consumer has been silent for `idle_ms`, and for the backoff beyond: `backoff_base_ms` after the first
//! delivery, doubled by each further one, at most `backoff_max_ms`. What nobody has, because it was given back, is due at once or when it
//! was said to be. Then it is delivered again to whoever reads next; but after `max_deliveries` it is a *dead letter*, and goes to another
//! stream. So there are two orders: of those that wait for a reader, and of those that nobody is to read any more.

use std::collections::{BTreeMap, BTreeSet};

use super::delayed::Delayed;
use super::id::StreamId;
use super::node::Entry;
use crate::base::num::parse_i64;

/// What XGROUP SETPOLICY says of a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    /// How long a consumer may be silent about an entry, ms.
    pub idle_ms: u64,
    /// After so many deliveries an entry is a dead letter; 0: never.
    pub max_deliveries: u64,
    /// The key of the stream that gets dead letters; empty exactly if there are none.
    pub dead_letters: Box<[u8]>,
    /// How much longer it takes after the first delivery, ms.
    pub backoff_base_ms: u64,
    /// How much longer it takes at most, ms.
    pub backoff_max_ms: u64,
}

impl Policy {
    /// Whether it stands for none: nothing is set.
    pub fn is_none(&self) -> bool {
        let &Policy { idle_ms, max_deliveries, ref dead_letters, backoff_base_ms, backoff_max_ms } = self;
        [idle_ms, max_deliveries, backoff_base_ms, backoff_max_ms] == [0; 4] && dead_letters.is_empty()
    }

    /// Whether it can be followed.
    pub fn is_sound(&self) -> bool {
        let &Policy { idle_ms, max_deliveries, ref dead_letters, backoff_base_ms, backoff_max_ms } = self;
        idle_ms > 0
            && (max_deliveries > 0) != dead_letters.is_empty()
            && backoff_base_ms <= backoff_max_ms
            && (backoff_base_ms > 0) == (backoff_max_ms > 0)
    }

    /// How much longer than `idle_ms` it takes after so many deliveries, ms.
    pub fn backoff_ms(&self, deliveries: u64) -> u64 {
        let Some(doublings) = deliveries.checked_sub(1) else { return 0 };
        let factor = u32::try_from(doublings).ok().and_then(|doublings| 1u64.checked_shl(doublings));
        factor
            .map_or(self.backoff_max_ms, |factor| self.backoff_base_ms.saturating_mul(factor).min(self.backoff_max_ms))
    }

    /// When what a consumer got at this time is due, Unix ms.
    fn due_ms(&self, since_ms: u64, deliveries: u64) -> u64 {
        since_ms.saturating_add(self.idle_ms).saturating_add(self.backoff_ms(deliveries))
    }

    /// Whether what was delivered so often is a dead letter when it is due.
    pub fn is_exhausted(&self, deliveries: u64) -> bool {
        self.max_deliveries > 0 && deliveries >= self.max_deliveries
    }

    fn mem_bytes(&self) -> usize {
        self.dead_letters.len()
    }
}

/// A policy, and when which of the group's pending entries is due.
#[derive(Clone)]
pub(super) struct Schedule {
    policy: Policy,
    /// Those that are to be delivered again, by the time when they are due.
    due: BTreeSet<(u64, StreamId)>,
    /// Those that were delivered often enough.
    exhausted: BTreeSet<(u64, StreamId)>,
    /// When those are due that nobody has; at once where nothing is said.
    held: BTreeMap<StreamId, u64>,
    /// Before this time nobody looks at the exhausted: they can't be moved. An arrangement with whoever looks, as in [`Attendance`].
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

    /// An entry has become pending: delivered to a consumer at this time, or given back (`None`).
    pub(super) fn add(&mut self, id: StreamId, since_ms: Option<u64>, deliveries: u64) {
        let due_ms = self.due_ms(id, since_ms, deliveries);
        self.order(deliveries).insert((due_ms, id));
    }

    /// An entry is about to be no longer pending as it was.
    pub(super) fn remove(&mut self, id: StreamId, since_ms: Option<u64>, deliveries: u64) {
        let due_ms = self.due_ms(id, since_ms, deliveries);
        self.order(deliveries).remove(&(due_ms, id));
        self.held.remove(&id);
    }

    /// What was given back and added is not due before this time.
    pub(super) fn hold(&mut self, id: StreamId, until_ms: u64, deliveries: u64) {
        self.remove(id, None, deliveries);
        self.held.insert(id, until_ms);
        self.add(id, None, deliveries);
    }

    /// When an entry is due that was given back, if that is not at once.
    pub(super) fn held_until_ms(&self, id: StreamId) -> Option<u64> {
        self.held.get(&id).copied()
    }

    pub(super) fn first_due_ms(&self) -> Option<u64> {
        self.due.first().map(|(due_ms, _)| *due_ms)
    }

    /// When the first of the exhausted is to be moved: when it is due, or later where that was put off.
    pub(super) fn first_exhausted_ms(&self) -> Option<u64> {
        self.exhausted.first().map(|(due_ms, _)| (*due_ms).max(self.put_off_until_ms))
    }

    /// Puts off the exhausted until this time, Unix ms.
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

/// What somebody has to look after in a stream: dead letters, where some groups have policies, and messages that are not due yet. The
/// times say nothing about the stream; they are an arrangement with whoever looks.
#[derive(Clone, Default)]
pub(super) struct Attendance {
    /// How many of the groups have a policy.
    pub(super) policies: usize,
    /// Messages that wait for their time.
    pub(super) delayed: Delayed,
    /// Before this time there is nothing to do about dead letters, Unix ms.
    pub(super) wanted_ms: Option<i64>,
    /// Somebody looks then, if `Some`.
    pub(super) timer_ms: Option<i64>,
}

impl Attendance {
    /// Whether there is anything to look after.
    pub(super) fn is_needed(&self) -> bool {
        self.policies > 0 || !self.delayed.is_empty()
    }

    /// Something may be to do from this time on.
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

/// A time that a client may have chosen, Unix ms; `None` if it does not come.
pub(super) fn as_time(ms: u64) -> Option<i64> {
    i64::try_from(ms).ok().filter(|ms| *ms < i64::MAX)
}

/// The fields that a dead letter has behind its own: where it comes from, and how often it has become one.
pub const HISTORY: [&str; 7] =
    ["dlq-stream", "dlq-group", "dlq-id", "dlq-consumer", "dlq-deliveries", "dlq-time", "dlq-hops"];

/// How many of these fields dead letters have that were written before there was `dlq-hops`.
const HISTORY_WITHOUT_HOPS: usize = HISTORY.len() - 1;

/// Where a dead letter comes from, as it says itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Origin<'a> {
    /// The key of the stream.
    pub stream: &'a [u8],
    /// The group that did not get it done.
    pub group: &'a [u8],
    /// How often it has become a dead letter: along a chain of streams, once for each. 0 if what it says is no number.
    pub hops: u64,
    /// How many fields and values are the entry's own.
    pub own: usize,
}

impl<'a> Origin<'a> {
    /// That of an entry; `None` if it is no dead letter.
    pub fn of(entry: &Entry<'a>) -> Option<Origin<'a>> {
        Origin::with_history(entry, HISTORY.len()).or_else(|| Origin::with_history(entry, HISTORY_WITHOUT_HOPS))
    }

    /// That of an entry whose last fields are the first `fields` of [`HISTORY`].
    fn with_history(entry: &Entry<'a>, fields: usize) -> Option<Origin<'a>> {
        let own = entry.pairs.len().checked_sub(fields).filter(|own| *own > 0)?;
        // A dead letter that does not say how often it has become one has done so once at least.
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
    fn what_can_not_be_followed_is_known() {
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
