//! Delayed messages of streams. A message waits for its time, and then becomes an entry unless it was cancelled.
//!
//! Nothing but time makes a message an entry. A lookup of the key turns due messages into entries, so no command sees a
//! stream without them. A timer of the [wheel](crate::keyspace) finds due messages in streams that nobody looks up. The
//! effect names the entry's ID, so a follower needs no clock.
//!
//! **Nothing is lost.** A message that becomes due while the stream has no further ID stays as it is, and can be listed
//! and cancelled. It becomes an entry once XSETID has made room. Messages also stay while the journal accepts no
//! changes.

use super::check::{ensure, slot_of};
use crate::keyspace::any_value::Value;
use crate::keyspace::effect::{Effect, Pairs};
use crate::keyspace::limits::{
    DELAYED_RELEASE_EFFECT_BYTES, DELAYED_RELEASED_BEFORE_APPEND_MAX, DELAYED_RELEASED_MAX, DELAYED_RELEASED_MAX_BYTES,
    UNIT_MAX_BYTES,
};
use crate::keyspace::pre_image::PreImage;
use crate::keyspace::{DbIndex, Keyspace, Misfit, Slot, WrongType};
use crate::value::stream::{Stream, StreamId};

impl Keyspace {
    /// Keeps a message in a stream until the time that its ID names. Creates the stream if necessary. Returns `None`,
    /// with nothing changed, if the message has no pair or its ID is taken.
    pub fn stream_delay<'a>(
        &mut self,
        db: DbIndex,
        key: &[u8],
        slot: Option<Slot>,
        id: StreamId,
        pairs: impl Iterator<Item = (&'a [u8], &'a [u8])> + Clone,
    ) -> Result<Option<Slot>, WrongType> {
        let slot = match slot {
            Some(slot) => slot,
            None if pairs.clone().next().is_none() => return Ok(None),
            None => self.create(db, key, Value::Stream(Box::new(Stream::new())).into()),
        };
        if self.stream(db, slot)?.delayed(id).is_none() {
            self.note_change(db, slot, |value| PreImage::stream(value, |stream| stream.before_delayed(id)));
        }
        if !self.stream_mut(db, slot)?.delay(id, pairs.clone()) {
            return Ok(None);
        }
        self.follow_policies(db, slot);
        let mut encoded = Vec::new();
        self.record_on(db, slot, || {
            pairs.for_each(|(field, value)| Pairs::put(&mut encoded, field, value));
            Effect::StreamDelay { key, id, pairs: &encoded }
        });
        Ok(Some(slot))
    }

    /// Cancels a delayed message. Returns false if there is none of this ID.
    pub fn stream_cancel_delayed(&mut self, db: DbIndex, slot: Slot, id: StreamId) -> Result<bool, WrongType> {
        if self.stream(db, slot)?.delayed(id).is_none() {
            return Ok(false);
        }
        self.note_change(db, slot, |value| PreImage::stream(value, |stream| stream.before_delayed(id)));
        self.stream_mut(db, slot)?.cancel_delayed(id);
        self.follow_policies(db, slot);
        self.record_at(db, slot, |key| Effect::StreamCancel { key, id });
        Ok(true)
    }

    /// Turns a delayed message into an entry. Returns false, with nothing changed, if there is no such message or the
    /// entry's ID is not above the stream's last ID.
    fn stream_release(&mut self, db: DbIndex, slot: Slot, id: StreamId, as_id: StreamId) -> Result<bool, WrongType> {
        let stream = self.stream(db, slot)?;
        if stream.delayed(id).is_none() || as_id <= stream.last_id() {
            return Ok(false);
        }
        self.note_change(db, slot, |value| PreImage::stream(value, |stream| stream.before_delayed(id)));
        self.note_change(db, slot, PreImage::tail);
        let limits = self.limits.stream;
        let is_done = self.stream_mut(db, slot)?.release(id, as_id, limits);
        debug_assert!(is_done, "its existence has been checked");
        self.follow_policies(db, slot);
        self.record_at(db, slot, |key| Effect::StreamRelease { key, id, as_id });
        Ok(is_done)
    }

    /// Notes that tickets of delayed messages up to this one have been issued.
    fn stream_tickets(&mut self, db: DbIndex, slot: Slot, last: u64) -> Result<(), WrongType> {
        let nobody = StreamId { ms: 0, seq: 0 };
        self.note_change(db, slot, |value| PreImage::stream(value, |stream| stream.before_delayed(nobody)));
        self.stream_mut(db, slot)?.set_delay_tickets(last);
        self.record_at(db, slot, |key| Effect::StreamTickets { key, last });
        Ok(())
    }

    /// Turns due messages of the stream at `slot` into entries, in the order of their times. Returns the share of
    /// `budget` spent: one for each message, or all of it if the messages were so long that the others should wait for
    /// the next lookup.
    pub(super) fn release_due(&mut self, db: DbIndex, slot: Slot, budget: usize) -> usize {
        let (mut released, mut bytes) = (0, 0);
        while released < DELAYED_RELEASED_MAX
            && let Some(message_bytes) = self.release_first_due(db, slot)
        {
            released += 1;
            bytes += message_bytes;
            if bytes >= DELAYED_RELEASED_MAX_BYTES {
                return budget.max(released);
            }
        }
        released
    }

    /// Turns all due messages of the stream at `slot` into entries before an append, since they come first. Bounded,
    /// but the bound covers a backlog of days. Does not count as a change made by the command.
    #[inline]
    pub fn release_all_due(&mut self, db: DbIndex, slot: Slot) {
        if self.stream(db, slot).is_ok_and(|stream| stream.first_delayed_ms().is_some()) {
            self.release_due_before_append(db, slot);
        }
    }

    #[cold]
    fn release_due_before_append(&mut self, db: DbIndex, slot: Slot) {
        let effects_before = self.effects.count();
        let mut released = 0;
        while released < DELAYED_RELEASED_BEFORE_APPEND_MAX && self.release_first_due(db, slot).is_some() {
            released += 1;
        }
        self.count_no_change(effects_before);
    }

    /// Turns the first message into an entry if it is due. Returns its length in bytes, or `None` if no message is due
    /// or if it has to stay for now.
    fn release_first_due(&mut self, db: DbIndex, slot: Slot) -> Option<usize> {
        if self.keeps_messages_delayed() {
            return None;
        }
        let stream = self.stream(db, slot).ok()?;
        stream.release_ms().filter(|due_ms| *due_ms <= self.expired_until_ms())?;
        let first = stream.delayed_from(StreamId::MIN).next()?;
        let as_id = stream.release_id(first.id)?;
        let id = first.id;
        let effect_bytes = DELAYED_RELEASE_EFFECT_BYTES + self.entry(db, slot).key().len();
        if effect_bytes > UNIT_MAX_BYTES.saturating_sub(self.effects.as_bytes().len()) {
            return None;
        }
        let bytes = first.pairs.map(|(field, value)| field.len() + value.len()).sum();
        (self.stream_release(db, slot, id, as_id) == Ok(true)).then_some(bytes)
    }
}

/// Replays a recorded change of delayed messages.
pub(super) fn apply(ks: &mut Keyspace, db: DbIndex, effect: &Effect<'_>) -> Result<(), Misfit> {
    if let Effect::StreamDelay { key, id, pairs } = *effect {
        let slot = ks.dbs[db as usize].find(key);
        let kept = ks.stream_delay(db, key, slot, id, Pairs::new(pairs))?;
        return ensure(kept.is_some(), Misfit::Exists);
    }
    let slot = slot_of(ks, db, effect.key().ok_or(Misfit::Elsewhere)?)?;
    let fits = match *effect {
        Effect::StreamCancel { id, .. } => ks.stream_cancel_delayed(db, slot, id)?,
        Effect::StreamRelease { id, as_id, .. } => ks.stream_release(db, slot, id, as_id)?,
        Effect::StreamTickets { last, .. } => {
            ks.stream_tickets(db, slot, last)?;
            true
        }
        _ => return Err(Misfit::Elsewhere),
    };
    ensure(fits, Misfit::Absent)
}

#[cfg(test)]
mod tests {
    use super::super::tests::replays;
    use super::*;
    use crate::base::rng::Rng;
    use crate::keyspace::UnitMode;
    use crate::keyspace::effect::Recording;
    use crate::value::stream::NewId;

    const PAIR: [(&[u8], &[u8]); 1] = [(b"field", b"value")];

    fn id(ms: u64, seq: u64) -> StreamId {
        StreamId { ms, seq }
    }

    fn delay(ks: &mut Keyspace, key: &[u8], slot: Option<Slot>, id: StreamId) -> Slot {
        ks.stream_delay(0, key, slot, id, PAIR.into_iter()).ok().flatten().expect("it is new in a stream")
    }

    #[test]
    fn replaying_gives_the_same_messages() {
        replays(|ks| {
            let slot = delay(ks, b"s", None, id(2_000, 1));
            assert_eq!(ks.stream_delay(0, b"s", Some(slot), id(2_000, 1), PAIR.into_iter())?, None);
            assert_eq!(ks.stream_delay(0, b"x", None, id(1, 1), std::iter::empty())?, None);
            delay(ks, b"s", Some(slot), id(500, 2));
            delay(ks, b"s", Some(slot), id(900, 3));
            delay(ks, b"s", Some(slot), id(3_000, 4));
            assert!(
                ks.stream_cancel_delayed(0, slot, id(3_000, 4))? && !ks.stream_cancel_delayed(0, slot, id(3_000, 4))?
            );
            assert!(!ks.stream_release(0, slot, id(7, 7), id(9_000, 0))?);
            assert_eq!(ks.release_due(0, slot, 100), 2);
            assert!(!ks.stream_release(0, slot, id(2_000, 1), id(900, 3))?, "the stream has that id");
            ks.copy(0, slot, 3, b"copy");
            let slot = delay(ks, b"given-up", None, id(5_000, 1));
            assert!(ks.stream_cancel_delayed(0, slot, id(5_000, 1))?);
            ks.copy(0, slot, 0, b"tickets");
            Ok(())
        });
    }

    #[test]
    fn a_lookup_releases_due_messages_unless_they_are_kept() {
        let mut ks = Keyspace::new(1, Rng::seeded(1));
        ks.begin_unit(1_000, Recording::Full);
        delay(&mut ks, b"s", None, id(2_000, 1));
        let len = |ks: &mut Keyspace| ks.find(0, b"s").and_then(|slot| ks.stream(0, slot).ok()).map(Stream::len);
        ks.begin_unit(1_999, Recording::Full);
        assert!(len(&mut ks) == Some(0) && !ks.has_due_message(0, b"s"));
        ks.begin_unit_in(UnitMode::KEEPS_DELAYED, 2_000, Recording::Full);
        assert!(len(&mut ks) == Some(0) && !ks.has_due_message(0, b"s"));
        ks.end_unit();
        let hold = ks.hold_expiry();
        assert!(len(&mut ks) == Some(0) && !ks.has_due_message(0, b"s"));
        drop(hold);
        assert!(ks.has_due_message(0, b"s") && ks.effects().is_empty());
        assert_eq!((len(&mut ks), ks.db(0).partly_volatile()), (Some(1), 0));
        let released = Effect::StreamRelease { key: b"s", id: id(2_000, 1), as_id: id(2_000, 1) };
        assert!(ks.effects().iter().eq([(0, released)]) && ks.has_changed());
    }

    /// An append comes after all due messages, however many there are; a reader turns only a bounded number into
    /// entries.
    #[test]
    fn an_append_comes_after_all_due_messages() {
        let mut ks = Keyspace::new(1, Rng::seeded(1));
        ks.begin_unit(1_000, Recording::Full);
        let messages = 3 * DELAYED_RELEASED_MAX as u64;
        let mut slot = None;
        for seq in 1..=messages {
            slot = Some(delay(&mut ks, b"s", slot, id(2_000, seq)));
        }
        ks.begin_unit(2_000, Recording::Full);
        let slot = ks.find(0, b"s").expect("it is there");
        let stream = ks.stream(0, slot).expect("a stream");
        assert_eq!(stream.len(), DELAYED_RELEASED_MAX as u64);
        // Otherwise the ID would be that of a message.
        assert_eq!(stream.next_id(NewId::Auto, 2_000), Ok(id(2_000, messages + 1)));
        let before = ks.changes_by_commands();
        ks.release_all_due(0, slot);
        assert_eq!(ks.changes_by_commands(), before);
        let stream = ks.stream(0, slot).expect("a stream");
        assert!(stream.range(StreamId::MIN, StreamId::MAX).map(|entry| entry.id.seq).eq(1..=messages));
        assert_eq!(stream.next_id(NewId::Auto, 2_000), Ok(id(2_000, messages + 1)));
        assert_eq!(stream.next_id(NewId::Auto, 1_990), Ok(id(2_000, messages + 1)));
    }

    /// A full unit takes no more messages; the others follow in the next unit.
    #[test]
    fn a_full_unit_leaves_the_rest() {
        let mut ks = Keyspace::new(1, Rng::seeded(1));
        ks.begin_unit(1_000, Recording::Full);
        let slot = delay(&mut ks, b"s", None, id(2_000, 1));
        ks.begin_unit(2_000, Recording::Full);
        let room = DELAYED_RELEASE_EFFECT_BYTES;
        ks.put(0, b"large", &vec![b'x'; UNIT_MAX_BYTES - room]);
        ks.release_all_due(0, slot);
        assert_eq!(ks.stream(0, slot).map(Stream::len), Ok(0));
        ks.begin_unit(2_000, Recording::Full);
        ks.release_all_due(0, slot);
        assert_eq!(ks.stream(0, slot).map(Stream::len), Ok(1));
        assert!(ks.effects().as_bytes().len() <= room);
    }

    /// A timer set for a message that is gone, in an entry that has moved, does not count for the next message.
    #[test]
    fn each_message_has_a_timer() {
        let mut ks = Keyspace::new(1, Rng::seeded(1));
        ks.begin_unit(1_000, Recording::Full);
        let slot = delay(&mut ks, b"s", None, id(2_000, 1));
        assert_eq!(ks.stream_cancel_delayed(0, slot, id(2_000, 1)), Ok(true));
        ks.rename(0, slot, b"renamed");
        let slot = ks.find(0, b"renamed").expect("it was renamed");
        delay(&mut ks, b"renamed", Some(slot), id(3_000, 2));
        ks.begin_unit(3_000, Recording::Full);
        assert!(!ks.reclaim_expired(100));
        assert_eq!(ks.stream(0, slot).map(|stream| (stream.len(), stream.delayed_len())), Ok((1, 0)));
    }

    #[test]
    fn unfit_changes_are_refused() {
        let mut ks = Keyspace::new(1, Rng::seeded(1));
        ks.begin_unit(1_000, Recording::Full);
        let slot = delay(&mut ks, b"s", None, id(2_000, 1));
        assert!(ks.stream_append(0, b"s", Some(slot), id(50, 0), PAIR.into_iter()).is_ok());
        ks.put(0, b"text", b"v");
        for (effect, misfit) in [
            (Effect::StreamDelay { key: b"s", id: id(2_000, 1), pairs: b"\x01f\x01v" }, Misfit::Exists),
            (Effect::StreamDelay { key: b"s", id: id(2_000, 2), pairs: b"" }, Misfit::Exists),
            (Effect::StreamDelay { key: b"text", id: id(2_000, 2), pairs: b"\x01f\x01v" }, Misfit::WrongType),
            (Effect::StreamCancel { key: b"s", id: id(2_000, 2) }, Misfit::Absent),
            (Effect::StreamRelease { key: b"s", id: id(2_000, 2), as_id: id(60, 0) }, Misfit::Absent),
            (Effect::StreamRelease { key: b"s", id: id(2_000, 1), as_id: id(50, 0) }, Misfit::Absent),
            (Effect::StreamTickets { key: b"nosuch", last: 5 }, Misfit::NoKey),
        ] {
            assert_eq!(ks.apply(0, &effect), Err(misfit), "{effect:?}");
        }
    }
}
