//! Dead letters: what a group's policy has let be delivered often enough goes to another stream, without anybody who asks.
//!
//! The entry is appended there, with its [`HISTORY`], and is no longer pending in its group; both are in one unit. It stays in its own stream,
//! as what is acknowledged does: other groups may need it. A timer of the [wheel](crate::keyspace) comes when the first is due.
//!
//! **Nothing is lost.** Where the entry can't be appended, because the key holds something else or its stream has no further id, it stays
//! pending, is delivered to nobody, and is tried again a little later. What was deleted from its stream meanwhile has nothing to be moved: it is
//! no longer pending then.

use crate::base::limits::{DEAD_LETTER_EFFECT_BYTES, DEAD_LETTER_RETRY_MS, DEAD_LETTERS_MAX_BYTES, UNIT_MAX_BYTES};
use crate::keyspace::any_value::ValueRef;
use crate::keyspace::{DbIndex, Keyspace, Slot};
use crate::value::stream::{HISTORY, NewId, Pending, Stream, StreamId};

/// What became of a dead letter.
enum Moved {
    /// It is no longer pending; so many bytes were moved.
    Yes(usize),
    /// It does not fit into the unit any more.
    Later,
    /// It can't be moved as things stand.
    Stuck,
}

/// An entry with its history.
type Letter = Vec<(Box<[u8]>, Box<[u8]>)>;

impl Keyspace {
    /// Moves dead letters of the stream at `slot`, if it is one, which are due. Answers how much of `budget` that took: one for each, and
    /// all of it when they were so long that the unit should end. For a timer, in a unit of its own.
    pub(in crate::keyspace) fn move_dead_letters(&mut self, db: DbIndex, slot: Slot, budget: usize) -> usize {
        let ValueRef::Stream(stream) = self.value(db, slot) else { return 0 };
        if !stream.has_policies() {
            return 0;
        }
        let now_ms = self.now_ms;
        let groups: Vec<Box<[u8]>> = stream.policies().map(|(name, ..)| name.into()).collect();
        let (mut moved, mut bytes, mut stuck) = (0, 0, Vec::new());
        for group in &groups {
            while moved < budget && bytes < DEAD_LETTERS_MAX_BYTES {
                let Ok(stream) = self.stream(db, slot) else { return moved };
                let due = stream.group(group).and_then(|group| group.exhausted_until(now_ms.max(0) as u64).next());
                let Some(id) = due else { break };
                match self.move_dead_letter(db, slot, group, id) {
                    Moved::Yes(letter_bytes) => {
                        moved += 1;
                        bytes += letter_bytes;
                    }
                    Moved::Later => bytes = DEAD_LETTERS_MAX_BYTES,
                    Moved::Stuck => {
                        stuck.push(group);
                        break;
                    }
                }
            }
        }
        if let Ok(stream) = self.stream_mut(db, slot) {
            let again_ms = now_ms.saturating_add(DEAD_LETTER_RETRY_MS);
            stream.was_attended(again_ms, |group| stuck.iter().any(|name| ***name == *group));
        }
        if bytes < DEAD_LETTERS_MAX_BYTES { moved } else { budget }
    }

    fn move_dead_letter(&mut self, db: DbIndex, slot: Slot, group: &[u8], id: StreamId) -> Moved {
        let Ok(stream) = self.stream(db, slot) else { return Moved::Stuck };
        let letter = letter(stream, self.entry(db, slot).key(), group, id, self.now_ms);
        let Some((to, pairs)) = letter else {
            return if self.pending_ack(db, slot, group, id) == Ok(true) { Moved::Yes(0) } else { Moved::Stuck };
        };
        let texts: usize = pairs.iter().map(|(field, value)| field.len() + value.len()).sum();
        let bytes = DEAD_LETTER_EFFECT_BYTES + texts + to.len() + group.len();
        if bytes > UNIT_MAX_BYTES.saturating_sub(self.effects().as_bytes().len()) {
            // What does not fit into any unit was accepted by none, so there is one for it.
            return if self.effects().as_bytes().is_empty() { Moved::Stuck } else { Moved::Later };
        }
        let target = self.find(db, &to);
        let next_id = match target.map(|target| self.stream(db, target)) {
            None => Stream::new().next_id(NewId::Auto, self.now_ms.max(0) as u64),
            Some(Ok(stream)) => stream.next_id(NewId::Auto, self.now_ms.max(0) as u64),
            Some(Err(_)) => return Moved::Stuck,
        };
        let Ok(next_id) = next_id else { return Moved::Stuck };
        let pairs = pairs.iter().map(|(field, value)| (&**field, &**value));
        if !matches!(self.stream_append(db, &to, target, next_id, pairs), Ok(Some(_))) {
            return Moved::Stuck;
        }
        // The other key has not moved this one: entries stay where they are while others come.
        let is_done = self.pending_ack(db, slot, group, id);
        debug_assert_eq!(is_done, Ok(true), "it was pending");
        Moved::Yes(bytes)
    }
}

/// The stream for an entry, and what is appended to it; `None` if there is no such entry any more.
fn letter(stream: &Stream, key: &[u8], group: &[u8], id: StreamId, now_ms: i64) -> Option<(Box<[u8]>, Letter)> {
    let state = stream.group(group)?;
    let (policy, Pending { consumer, deliveries, .. }) = (state.policy()?, state.pending(id)?);
    let entry = stream.entry(id)?;
    let (id, deliveries, time) = (id.to_text(), deliveries.to_string(), now_ms.to_string());
    let history: [&[u8]; HISTORY.len()] =
        [key, group, id.as_bytes(), consumer.unwrap_or_default(), deliveries.as_bytes(), time.as_bytes()];
    let history = HISTORY.iter().zip(history).map(|(field, value)| (field.as_bytes(), value));
    let pairs = entry.pairs.chain(history).map(|(field, value)| (field.into(), value.into())).collect();
    Some((policy.dead_letters.clone(), pairs))
}
