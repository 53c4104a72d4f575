//! Dead letters: messages that have been delivered as often as a group's policy permits move to another stream, without
//! any request.
//!
//! The entry is appended there, with its [`HISTORY`], and stops being pending in its group; both happen in one unit. It
//! stays in its own stream, as an acknowledged entry does, because other groups may need it. A timer of the
//! [wheel](crate::keyspace) fires when the first entry is due.
//!
//! **Nothing is lost.** Sometimes the entry cannot be appended: the key holds another type, is the stream itself, or
//! its stream has no further ID. The entry then stays pending, is delivered to no consumer, and is retried a little
//! later. An entry that is too long for a unit together with its history is treated the same way, and others of its
//! group go first. An entry that has been deleted from its stream cannot be moved, and just stops being pending.
//!
//! **No circle lasts.** Each letter records how often it has become one. After [`DEAD_LETTER_MAX_HOPS`] hops it stops
//! being pending and stays where it is: a dead letter among dead letters, which can be put back by hand. This is
//! reported as an event and logged as a warning. XGROUP SETPOLICY refuses circles, but cannot prevent those that arise
//! later, as by RENAME.
//!
//! Each attempt uses up budget, whether or not it succeeds, and a group without a movable letter is put off. So slices
//! are short however many groups there are, and each group gets its turn.

use crate::keyspace::any_value::ValueRef;
use crate::keyspace::effect::{Family, GrantTurn, Turn};
use crate::keyspace::limits::{
    DEAD_LETTER_EFFECT_BYTES, DEAD_LETTER_MAX_HOPS, DEAD_LETTER_RETRY_MS, DEAD_LETTERS_MAX_BYTES, GRANT_NOTE_MAX_BYTES,
    HOLDER_MAX_BYTES, UNIT_MAX_BYTES,
};
use crate::keyspace::{DbIndex, Keyspace, Slot};
use crate::value::stream::{Entry, HISTORY, NewId, Origin, Pending, Stream, StreamId};

/// The outcome for a dead letter.
enum Moved {
    /// It is no longer pending; this many bytes were moved.
    Yes(usize),
    /// It no longer fits into the current unit.
    Later,
    /// It does not fit into any unit.
    TooLong,
    /// No letter of its group can be moved at present.
    Stuck,
}

/// An entry with its history.
type Letter = Vec<(Box<[u8]>, Box<[u8]>)>;

impl Keyspace {
    /// Moves due dead letters of the value at `slot`, if it is a stream. Returns the share of `budget` spent: one for
    /// each attempt, or all of it if the letters were so long that the unit should end. Called for a timer, in a unit
    /// of its own.
    pub(in crate::keyspace) fn move_dead_letters(&mut self, db: DbIndex, slot: Slot, budget: usize) -> usize {
        let ValueRef::Stream(stream) = self.value(db, slot) else { return 0 };
        if !stream.has_policies() {
            return 0;
        }
        let now_ms = self.now_ms.max(0) as u64;
        // Each group takes at least one attempt.
        let groups: Vec<Box<[u8]>> = stream.with_dead_letters(now_ms).take(budget).map(Into::into).collect();
        let (mut spent, mut bytes) = (0, 0);
        for group in &groups {
            let (mut moved, mut too_long, mut is_done) = (0, 0, false);
            while !is_done && spent < budget && bytes < DEAD_LETTERS_MAX_BYTES {
                let Ok(stream) = self.stream(db, slot) else { return spent };
                let due = stream.group(group).and_then(|group| group.exhausted_until(now_ms).nth(too_long));
                let Some(id) = due else {
                    is_done = too_long > 0;
                    break;
                };
                spent += 1;
                match self.move_dead_letter(db, slot, group, id) {
                    Moved::Yes(letter_bytes) => {
                        moved += 1;
                        bytes += letter_bytes;
                    }
                    Moved::Later => bytes = DEAD_LETTERS_MAX_BYTES,
                    Moved::TooLong => too_long += 1,
                    Moved::Stuck => is_done = true,
                }
            }
            // If only oversized letters lie within reach of the budget, the next look would find no others.
            let is_fruitless = too_long > 0 && moved == 0 && spent == budget;
            if (is_done || is_fruitless)
                && let Ok(stream) = self.stream_mut(db, slot)
            {
                stream.put_off(group, now_ms.saturating_add(DEAD_LETTER_RETRY_MS));
            }
        }
        if let Ok(stream) = self.stream_mut(db, slot) {
            stream.was_attended();
        }
        if bytes < DEAD_LETTERS_MAX_BYTES { spent } else { budget }
    }

    /// Tries to move one letter. Copies nothing before it is certain that the move succeeds.
    fn move_dead_letter(&mut self, db: DbIndex, slot: Slot, group: &[u8], id: StreamId) -> Moved {
        let Ok(stream) = self.stream(db, slot) else { return Moved::Stuck };
        let Some(entry) = stream.entry(id) else { return self.give_up(db, slot, group, id) };
        if hops(&entry) >= DEAD_LETTER_MAX_HOPS {
            self.note_dead_letter(db, slot, group, id, Turn::DeadLetterStays);
            return self.give_up(db, slot, group, id);
        }
        let Some(policy) = stream.group(group).and_then(|group| group.policy()) else { return Moved::Stuck };
        let to = policy.dead_letters.clone();
        let target = self.find(db, &to);
        if target == Some(slot) {
            // A rename has made the stream its own target: each letter would be delivered again as a new entry.
            return Moved::Stuck;
        }
        if let Some(target) = target {
            self.release_all_due(db, target);
        }
        let next_id = match target.map(|target| self.stream(db, target)) {
            None => Stream::new().next_id(NewId::Auto, self.now_ms.max(0) as u64),
            Some(Ok(stream)) => stream.next_id(NewId::Auto, self.now_ms.max(0) as u64),
            Some(Err(_)) => return Moved::Stuck,
        };
        let (Ok(next_id), Ok(stream)) = (next_id, self.stream(db, slot)) else { return Moved::Stuck };
        let key = self.entry(db, slot).key();
        let Some(bytes) = effect_bytes(stream, key, group, id) else { return Moved::Stuck };
        if bytes > UNIT_MAX_BYTES {
            return Moved::TooLong;
        }
        if bytes > UNIT_MAX_BYTES.saturating_sub(self.effects().as_bytes().len()) {
            return Moved::Later;
        }
        let Some(pairs) = letter(stream, key, group, id, self.now_ms) else { return Moved::Stuck };
        let pairs = pairs.iter().map(|(field, value)| (&**field, &**value));
        if !matches!(self.stream_append(db, &to, target, next_id, pairs), Ok(Some(_))) {
            return Moved::Stuck;
        }
        // The append to the other key has not moved this entry: entries stay in place while others are added.
        self.note_dead_letter(db, slot, group, id, Turn::DeadLettered);
        let is_done = self.pending_ack(db, slot, group, id);
        debug_assert_eq!(is_done, Ok(true), "it was pending");
        Moved::Yes(bytes)
    }

    /// Ends the pending state of an entry without moving it.
    fn give_up(&mut self, db: DbIndex, slot: Slot, group: &[u8], id: StreamId) -> Moved {
        if self.pending_ack(db, slot, group, id) == Ok(true) { Moved::Yes(0) } else { Moved::Stuck }
    }

    /// Notes the fate of an exhausted message while it is still pending. Long names are abridged.
    fn note_dead_letter(&mut self, db: DbIndex, slot: Slot, group: &[u8], id: StreamId, turn: Turn) {
        let entry = self.dbs[db as usize].entry(slot);
        let ValueRef::Stream(stream) = entry.value() else { return };
        let Some(pending) = stream.group(group).and_then(|group| group.pending(id)) else { return };
        let group = &group[..group.len().min(GRANT_NOTE_MAX_BYTES)];
        let note = [id.to_text().as_bytes(), b" ", group].concat();
        let consumer = pending.consumer.unwrap_or_default();
        self.effects.add_grant_turn(GrantTurn {
            turn,
            family: Family::Queue,
            db,
            key: entry.key(),
            holder: &consumer[..consumer.len().min(HOLDER_MAX_BYTES)],
            token: 0,
            units: pending.deliveries,
            note: &note,
        });
    }
}

/// How often an entry has become a dead letter.
fn hops(entry: &Entry<'_>) -> u64 {
    Origin::of(entry).map_or(0, |origin| origin.hops)
}

/// The bytes of a dead letter in the journal: appended to its stream, and no longer pending in its group.
fn effect_bytes(stream: &Stream, key: &[u8], group: &[u8], id: StreamId) -> Option<usize> {
    let state = stream.group(group)?;
    let consumer = state.pending(id)?.consumer.unwrap_or_default();
    let own: usize = stream.entry(id)?.pairs.map(|(field, value)| field.len() + value.len()).sum();
    let names = state.policy()?.dead_letters.len() + consumer.len() + 2 * (key.len() + group.len());
    Some(DEAD_LETTER_EFFECT_BYTES + own + names)
}

/// The dead letter to append, or `None` if its entry no longer exists.
fn letter(stream: &Stream, key: &[u8], group: &[u8], id: StreamId, now_ms: i64) -> Option<Letter> {
    let Pending { consumer, deliveries, .. } = stream.group(group)?.pending(id)?;
    let entry = stream.entry(id)?;
    let (id, deliveries, time) = (id.to_text(), deliveries.to_string(), now_ms.to_string());
    let (consumer, hops) = (consumer.unwrap_or_default(), (hops(&entry) + 1).to_string());
    let history: [&[u8]; HISTORY.len()] =
        [key, group, id.as_bytes(), consumer, deliveries.as_bytes(), time.as_bytes(), hops.as_bytes()];
    let history = HISTORY.iter().zip(history).map(|(field, value)| (field.as_bytes(), value));
    Some(entry.pairs.chain(history).map(|(field, value)| (field.into(), value.into())).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::rng::Rng;
    use crate::keyspace::effect::Recording;
    use crate::value::stream::Policy;

    const NOW_MS: i64 = 100_000;
    const RETRY_AT_MS: i64 = NOW_MS + DEAD_LETTER_RETRY_MS as i64;

    fn id(seq: u64) -> StreamId {
        StreamId { ms: 1, seq }
    }

    /// Creates a stream with these values as entries, delivered in each of these groups, which make them dead letters.
    fn keyspace(values: &[&[u8]], groups: &[(String, &[u8])]) -> (Keyspace, Slot) {
        let mut ks = Keyspace::new(1, Rng::seeded(1));
        ks.begin_unit(NOW_MS, Recording::Full);
        let slot = ks.stream_create(0, b"s");
        for (value, n) in values.iter().zip(1..) {
            let pairs = std::iter::once((&b"f"[..], *value));
            assert_eq!(ks.stream_append(0, b"s", Some(slot), id(n), pairs), Ok(Some(slot)));
        }
        for (name, dead_letters) in groups {
            let name = name.as_bytes();
            let (backoff_base_ms, backoff_max_ms) = (0, 0);
            let dead_letters = (*dead_letters).into();
            let policy = Policy { idle_ms: 1, max_deliveries: 1, dead_letters, backoff_base_ms, backoff_max_ms };
            assert_eq!(ks.group_create(0, slot, name, id(values.len() as u64), None), Ok(true));
            assert_eq!(ks.group_set_policy(0, slot, name, Some(&policy)), Ok(true));
            assert!(ks.consumer_create(0, slot, name, b"c", 1).is_ok());
            for n in 1..=values.len() as u64 {
                assert_eq!(ks.pending_set(0, slot, (name, b"c"), id(n), 1, 1), Ok(true));
            }
        }
        ks.begin_unit(NOW_MS, Recording::Full);
        (ks, slot)
    }

    fn attention_ms(ks: &Keyspace, slot: Slot) -> Option<i64> {
        ks.stream(0, slot).ok().and_then(Stream::attention_ms)
    }

    fn pending(ks: &Keyspace, slot: Slot, group: &str) -> Vec<StreamId> {
        let group = ks.stream(0, slot).ok().and_then(|stream| stream.group(group.as_bytes())).expect("it is there");
        group.pending_range(StreamId::MIN, StreamId::MAX).map(|pending| pending.id).collect()
    }

    #[test]
    fn letters_too_long_for_a_unit_do_not_block_others() {
        let long = vec![b'x'; UNIT_MAX_BYTES - DEAD_LETTER_EFFECT_BYTES];
        for budget in [2, 100] {
            let (mut ks, slot) = keyspace(&[&long, b"short", b"other"], &[("g".to_owned(), b"d")]);
            for _ in 0..5 {
                if attention_ms(&ks, slot).is_some_and(|at_ms| at_ms <= NOW_MS) {
                    assert!((1..=budget).contains(&ks.move_dead_letters(0, slot, budget)));
                }
            }
            assert_eq!(pending(&ks, slot, "g"), [id(1)]);
            assert_eq!(attention_ms(&ks, slot), Some(RETRY_AT_MS));
            let dead = ks.find(0, b"d").expect("a stream");
            assert_eq!(ks.stream(0, dead).map(Stream::len), Ok(2));
        }
    }

    /// Immovable letters take one attempt each, and are not retried before their time.
    #[test]
    fn stuck_groups_take_a_bounded_time() {
        let mut groups: Vec<(String, &[u8])> = (0..5).map(|n| (format!("a{n}"), &b"s"[..])).collect();
        groups.push(("z".to_owned(), b"d"));
        let (mut ks, slot) = keyspace(&[b"one", b"two"], &groups);
        let mut spent = Vec::new();
        while attention_ms(&ks, slot).is_some_and(|at_ms| at_ms <= NOW_MS) {
            spent.push(ks.move_dead_letters(0, slot, 2));
            assert!(spent.len() < 10, "it ends");
        }
        assert_eq!(spent.iter().sum::<usize>(), 7, "{spent:?}");
        assert!(spent.iter().all(|spent| *spent <= 2), "{spent:?}");
        assert_eq!(attention_ms(&ks, slot), Some(RETRY_AT_MS));
        assert_eq!(pending(&ks, slot, "z"), []);
        assert_eq!(pending(&ks, slot, "a0"), [id(1), id(2)]);
        // Other changes of a stuck group are not a reason to retry sooner; another policy is.
        assert_eq!(ks.pending_set(0, slot, (b"a0", b"c"), id(2), 2, 1), Ok(true));
        assert_eq!(attention_ms(&ks, slot), Some(RETRY_AT_MS));
        let stream = ks.stream(0, slot).ok().and_then(|stream| stream.group(b"a0"));
        let policy = stream.and_then(|group| group.policy().cloned()).expect("it has one");
        let policy = Policy { dead_letters: (*b"d").into(), ..policy };
        assert_eq!(ks.group_set_policy(0, slot, b"a0", Some(&policy)), Ok(true));
        assert!(attention_ms(&ks, slot).is_some_and(|at_ms| at_ms <= NOW_MS));
        assert_eq!(ks.move_dead_letters(0, slot, 100), 2);
        assert_eq!(pending(&ks, slot, "a0"), []);
    }
}
