//! Verbs on streams. A stream stays when it has no entries. A group's notes about its consumers are part of the stream.

use super::check::{ensure, slot_of};
use super::group::group_policy;
use crate::keyspace::any_value::{Value, ValueMut, ValueRef};
use crate::keyspace::effect::{Effect, Pairs};
use crate::keyspace::pre_image::PreImage;
use crate::keyspace::{DbIndex, Keyspace, Misfit, Slot, WrongType};
use crate::value::stream::{Policy, Stream, StreamId};

impl Keyspace {
    /// The stream at `slot`.
    #[inline]
    pub fn stream(&self, db: DbIndex, slot: Slot) -> Result<&Stream, WrongType> {
        match self.value(db, slot) {
            ValueRef::Stream(stream) => Ok(stream),
            _ => Err(WrongType),
        }
    }

    /// Creates a stream without entries under a key that does not exist.
    pub fn stream_create(&mut self, db: DbIndex, key: &[u8]) -> Slot {
        self.effects.record(db, Effect::StreamCreate { key });
        self.create(db, key, Value::Stream(Box::new(Stream::new())).into())
    }

    /// Appends an entry to a stream and creates the stream if necessary. Returns `None`, with nothing changed, unless
    /// `id` is above the stream's last ID.
    pub fn stream_append<'a>(
        &mut self,
        db: DbIndex,
        key: &[u8],
        slot: Option<Slot>,
        id: StreamId,
        pairs: impl Iterator<Item = (&'a [u8], &'a [u8])> + Clone,
    ) -> Result<Option<Slot>, WrongType> {
        let slot = match slot {
            Some(slot) => slot,
            None if id == StreamId::MIN => return Ok(None),
            None => self.create(db, key, Value::Stream(Box::new(Stream::new())).into()),
        };
        // An ID that is not above the last one is refused, and leaves nothing to undo.
        if self.stream(db, slot)?.last_id() < id {
            self.note_change(db, slot, PreImage::tail);
        }
        let limits = self.limits.stream;
        if !self.stream_mut(db, slot)?.append(id, pairs.clone(), limits) {
            return Ok(None);
        }
        let mut encoded = Vec::new();
        self.record_on(db, slot, || {
            pairs.for_each(|(field, value)| Pairs::put(&mut encoded, field, value));
            Effect::StreamAppend { key, id, pairs: &encoded }
        });
        Ok(Some(slot))
    }

    /// Deletes an entry. Returns false if there is none.
    pub fn stream_delete(&mut self, db: DbIndex, slot: Slot, id: StreamId) -> Result<bool, WrongType> {
        self.note_change(db, slot, |value| PreImage::stream(value, |stream| stream.before_delete(id)));
        let done = self.stream_mut(db, slot)?.delete(id);
        if done {
            self.record_at(db, slot, |key| Effect::StreamDelete { key, id });
        }
        Ok(done)
    }

    /// Removes all entries up to and including `through`. Returns how many were removed.
    pub fn stream_trim(&mut self, db: DbIndex, slot: Slot, through: StreamId) -> Result<u64, WrongType> {
        self.note_change(db, slot, |value| PreImage::stream(value, |stream| stream.before_trim(through)));
        let removed = self.stream_mut(db, slot)?.trim_through(through);
        if removed > 0 {
            self.record_at(db, slot, |key| Effect::StreamTrim { key, through });
            self.effects.recount(removed as i64 - 1);
        }
        Ok(removed)
    }

    /// Sets those counters of a stream that are given. The caller has checked them against the entries.
    pub fn stream_counters(
        &mut self,
        db: DbIndex,
        slot: Slot,
        last_id: StreamId,
        entries_added: Option<u64>,
        max_deleted_id: Option<StreamId>,
    ) -> Result<(), WrongType> {
        self.note_change(db, slot, |value| PreImage::stream(value, |stream| stream.before_counters()));
        let stream = self.stream_mut(db, slot)?;
        stream.set_counters(last_id, entries_added, max_deleted_id);
        let (entries_added, max_deleted_id) = (stream.entries_added(), stream.max_deleted_id());
        // IDs for delayed messages may be available again.
        self.follow_policies(db, slot);
        self.record_at(db, slot, |key| Effect::StreamCounters { key, last_id, entries_added, max_deleted_id });
        Ok(())
    }

    /// Creates a group that has received the entries up to `last_delivered`. Returns false if the name is taken.
    pub fn group_create(
        &mut self,
        db: DbIndex,
        slot: Slot,
        group: &[u8],
        last_delivered: StreamId,
        entries_read: Option<u64>,
    ) -> Result<bool, WrongType> {
        let must_note = self.must_note(db, slot, |_| false);
        let done = self.stream_mut(db, slot)?.group_create(group, last_delivered, entries_read);
        if done {
            if must_note {
                self.note_pre_image(db, slot, PreImage::Stream(Box::new(Stream::group_was(group, None))));
            }
            self.record_at(db, slot, |key| Effect::GroupCreate { key, group, last_delivered, entries_read });
        }
        Ok(done)
    }

    /// Removes a group. Returns false if there is none.
    pub fn group_destroy(&mut self, db: DbIndex, slot: Slot, group: &[u8]) -> Result<bool, WrongType> {
        let must_note = self.must_note(db, slot, |_| false);
        let Some(taken) = self.stream_mut(db, slot)?.group_take(group) else { return Ok(false) };
        self.follow_policies(db, slot);
        self.record_at(db, slot, |key| Effect::GroupDestroy { key, group });
        if must_note {
            self.note_pre_image(db, slot, PreImage::Stream(Box::new(Stream::group_was(group, Some(taken)))));
        } else {
            // Pending entries of many consumers take long to free. A stream of their own lets the disposal thread free
            // them.
            let mut hearse = Stream::new();
            hearse.group_insert(group, taken);
            self.disposal.free(Value::Stream(Box::new(hearse)));
        }
        Ok(true)
    }

    /// Moves a group's position. Returns false if there is no such group.
    pub fn group_set_id(
        &mut self,
        db: DbIndex,
        slot: Slot,
        group: &[u8],
        last_delivered: StreamId,
        entries_read: Option<u64>,
    ) -> Result<bool, WrongType> {
        self.note_change(db, slot, |value| PreImage::stream(value, |stream| stream.before_position(group)));
        let done = self.stream_mut(db, slot)?.group_set_id(group, last_delivered, entries_read);
        if done {
            self.record_at(db, slot, |key| Effect::GroupSetId { key, group, last_delivered, entries_read });
        }
        Ok(done)
    }

    /// Sets the policy of a group for deliveries that stay unacknowledged; `None` removes it. Returns false, with
    /// nothing changed, if the group is missing or already has this policy.
    pub fn group_set_policy(
        &mut self,
        db: DbIndex,
        slot: Slot,
        group: &[u8],
        policy: Option<&Policy>,
    ) -> Result<bool, WrongType> {
        if self.stream(db, slot)?.group(group).is_none_or(|group| group.policy() == policy) {
            return Ok(false);
        }
        self.note_change(db, slot, |value| PreImage::stream(value, |stream| stream.before_policy(group)));
        self.stream_mut(db, slot)?.group_set_policy(group, policy.cloned());
        self.follow_policies(db, slot);
        self.record_at(db, slot, |key| group_policy(key, group, policy));
        Ok(true)
    }

    /// Creates a consumer. Returns false if the group is missing or the name taken.
    pub fn consumer_create(
        &mut self,
        db: DbIndex,
        slot: Slot,
        group: &[u8],
        consumer: &[u8],
        at_ms: u64,
    ) -> Result<bool, WrongType> {
        self.note_change(db, slot, |value| PreImage::stream(value, |stream| stream.before_consumer(group, consumer)));
        let done = self.stream_mut(db, slot)?.consumer_create(group, consumer, at_ms);
        if done {
            self.record_at(db, slot, |key| Effect::ConsumerCreate { key, group, consumer, at_ms });
        }
        Ok(done)
    }

    /// Removes a consumer. Returns how many entries it had pending, or `None` if there was no such consumer.
    pub fn consumer_delete(
        &mut self,
        db: DbIndex,
        slot: Slot,
        group: &[u8],
        consumer: &[u8],
    ) -> Result<Option<usize>, WrongType> {
        if self.stream(db, slot)?.group(group).is_none_or(|group| group.consumer(consumer).is_none()) {
            return Ok(None);
        }
        self.note_change(db, slot, |value| PreImage::stream(value, |stream| stream.before_group(group)));
        let pending = self.stream_mut(db, slot)?.consumer_delete(group, consumer);
        if pending.is_some() {
            self.record_at(db, slot, |key| Effect::ConsumerDelete { key, group, consumer });
        }
        Ok(pending)
    }

    /// Notes that a consumer made a request, and whether it received anything. Returns false if the consumer is
    /// missing.
    pub fn consumer_seen(
        &mut self,
        db: DbIndex,
        slot: Slot,
        group: &[u8],
        consumer: &[u8],
        at_ms: u64,
        active: bool,
    ) -> Result<bool, WrongType> {
        self.note_change(db, slot, |value| PreImage::stream(value, |stream| stream.before_consumer(group, consumer)));
        let done = self.stream_mut(db, slot)?.consumer_seen(group, consumer, at_ms, active);
        if done {
            self.record_at(db, slot, |key| Effect::ConsumerSeen { key, group, consumer, at_ms, active });
            // The mere request of a consumer is not a change to be saved.
            self.effects.recount(-1);
        }
        Ok(done)
    }

    /// Makes an entry pending for a consumer. Returns false if the group or the consumer is missing.
    pub fn pending_set(
        &mut self,
        db: DbIndex,
        slot: Slot,
        (group, consumer): (&[u8], &[u8]),
        id: StreamId,
        time_ms: u64,
        deliveries: u64,
    ) -> Result<bool, WrongType> {
        self.note_change(db, slot, |value| PreImage::stream(value, |stream| stream.before_pending(group, id)));
        let done = self.stream_mut(db, slot)?.pending_set(group, id, consumer, time_ms, deliveries);
        if done {
            self.follow_policies(db, slot);
            self.record_at(db, slot, |key| Effect::PendingSet { key, group, consumer, id, time_ms, deliveries });
        }
        Ok(done)
    }

    /// Makes an entry pending without a consumer. Returns false if the group is missing.
    pub fn pending_release(
        &mut self,
        db: DbIndex,
        slot: Slot,
        group: &[u8],
        id: StreamId,
        deliveries: u64,
    ) -> Result<bool, WrongType> {
        self.note_change(db, slot, |value| PreImage::stream(value, |stream| stream.before_pending(group, id)));
        let done = self.stream_mut(db, slot)?.pending_release(group, id, deliveries);
        if done {
            self.follow_policies(db, slot);
            self.record_at(db, slot, |key| Effect::PendingRelease { key, group, id, deliveries });
        }
        Ok(done)
    }

    /// Makes a pending entry without a consumer due by the group's policy at this time, Unix ms. Returns false if it is
    /// no such entry, or if there is no policy.
    pub fn pending_hold(
        &mut self,
        db: DbIndex,
        slot: Slot,
        group: &[u8],
        id: StreamId,
        until_ms: u64,
    ) -> Result<bool, WrongType> {
        self.note_change(db, slot, |value| PreImage::stream(value, |stream| stream.before_pending(group, id)));
        let done = self.stream_mut(db, slot)?.pending_hold(group, id, until_ms);
        if done {
            self.follow_policies(db, slot);
            self.record_at(db, slot, |key| Effect::PendingHold { key, group, id, until_ms });
        }
        Ok(done)
    }

    /// Ends the pending state of an entry. Returns false if it was not pending.
    pub fn pending_ack(&mut self, db: DbIndex, slot: Slot, group: &[u8], id: StreamId) -> Result<bool, WrongType> {
        self.note_change(db, slot, |value| PreImage::stream(value, |stream| stream.before_pending(group, id)));
        let done = self.stream_mut(db, slot)?.pending_ack(group, id);
        if done {
            self.record_at(db, slot, |key| Effect::PendingAck { key, group, id });
        }
        Ok(done)
    }

    /// Sets for how many seconds producers' requests are remembered, and how many of each producer. A change forgets
    /// all requests.
    pub fn request_limits(&mut self, db: DbIndex, slot: Slot, duration_s: u32, max_iids: u32) -> Result<(), WrongType> {
        self.note_requests(db, slot);
        self.stream_mut(db, slot)?.idempotency_configure(duration_s, max_iids);
        self.record_at(db, slot, |key| Effect::RequestLimits { key, duration_s, max_iids });
        Ok(())
    }

    /// Remembers that a producer's request appended an entry. Returns false before the limits are set.
    pub fn request_add(
        &mut self,
        db: DbIndex,
        slot: Slot,
        producer: &[u8],
        iid: &[u8],
        id: StreamId,
    ) -> Result<bool, WrongType> {
        self.note_requests(db, slot);
        let done = self.stream_mut(db, slot)?.idempotency_add(producer, iid, id);
        if done {
            self.record_at(db, slot, |key| Effect::RequestAdd { key, producer, iid, id });
        }
        Ok(done)
    }

    /// Forgets the oldest requests of a producer. Returns false if there is no such producer.
    pub fn request_forget(&mut self, db: DbIndex, slot: Slot, producer: &[u8], count: u64) -> Result<bool, WrongType> {
        self.note_requests(db, slot);
        let done = self.stream_mut(db, slot)?.idempotency_forget(producer, count);
        if done {
            self.record_at(db, slot, |key| Effect::RequestForget { key, producer, count });
        }
        Ok(done)
    }

    /// Counts a repeated request. Returns false before the limits are set.
    pub fn request_repeated(&mut self, db: DbIndex, slot: Slot) -> Result<bool, WrongType> {
        self.note_requests(db, slot);
        let done = self.stream_mut(db, slot)?.idempotency_duplicate();
        if done {
            self.record_at(db, slot, |key| Effect::RequestRepeated { key });
        }
        Ok(done)
    }

    /// Sets how many requests have been remembered and how many repeated ones recognized so far. Returns false before
    /// the limits are set.
    pub(super) fn request_counters(
        &mut self,
        db: DbIndex,
        slot: Slot,
        added: u64,
        duplicates: u64,
    ) -> Result<bool, WrongType> {
        self.note_requests(db, slot);
        let done = self.stream_mut(db, slot)?.idempotency_counters(added, duplicates);
        if done {
            self.record_at(db, slot, |key| Effect::RequestCounters { key, added, duplicates });
        }
        Ok(done)
    }

    /// Sets the timer of a stream for its dead letters and delayed messages, after a change of pending entries, delayed
    /// messages or a policy.
    #[inline]
    pub(super) fn follow_policies(&mut self, db: DbIndex, slot: Slot) {
        let entry = self.entry(db, slot);
        let before = entry.elements_expire();
        if before || entry.value().elements_expire() {
            self.dbs[db as usize].follow_elements(slot, before);
        }
    }

    pub(super) fn stream_mut(&mut self, db: DbIndex, slot: Slot) -> Result<&mut Stream, WrongType> {
        match self.value_mut(db, slot) {
            Some(ValueMut::Stream(stream)) => Ok(stream),
            _ => Err(WrongType),
        }
    }
}

/// Replays a recorded change of a stream.
pub(super) fn apply(ks: &mut Keyspace, db: DbIndex, effect: &Effect<'_>) -> Result<(), Misfit> {
    let find = |ks: &Keyspace, key: &[u8]| ks.dbs[db as usize].find(key);
    match *effect {
        Effect::StreamCreate { key } => {
            ensure(find(ks, key).is_none(), Misfit::Exists)?;
            ks.stream_create(db, key);
            return Ok(());
        }
        Effect::StreamAppend { key, id, pairs } => {
            let slot = find(ks, key);
            let appended = ks.stream_append(db, key, slot, id, Pairs::new(pairs))?;
            return ensure(appended.is_some(), Misfit::Exists);
        }
        _ => {}
    }
    let slot = slot_of(ks, db, effect.key().ok_or(Misfit::Elsewhere)?)?;
    let fits = match *effect {
        Effect::GroupCreate { group, last_delivered, entries_read, .. } => {
            let is_new = ks.group_create(db, slot, group, last_delivered, entries_read)?;
            return ensure(is_new, Misfit::Exists);
        }
        Effect::StreamDelete { id, .. } => ks.stream_delete(db, slot, id)?,
        // A stream built in parts may have none of the entries yet.
        Effect::StreamTrim { through, .. } => ks.stream_trim(db, slot, through)? > 0 || ks.is_workshop,
        Effect::StreamCounters { last_id, entries_added, max_deleted_id, .. } => {
            ks.stream_counters(db, slot, last_id, Some(entries_added), Some(max_deleted_id))?;
            true
        }
        Effect::GroupDestroy { group, .. } => ks.group_destroy(db, slot, group)?,
        Effect::GroupSetId { group, last_delivered, entries_read, .. } => {
            ks.group_set_id(db, slot, group, last_delivered, entries_read)?
        }
        Effect::ConsumerCreate { group, consumer, at_ms, .. } => {
            ks.consumer_create(db, slot, group, consumer, at_ms)?
        }
        Effect::ConsumerDelete { group, consumer, .. } => ks.consumer_delete(db, slot, group, consumer)?.is_some(),
        Effect::ConsumerSeen { group, consumer, at_ms, active, .. } => {
            ks.consumer_seen(db, slot, group, consumer, at_ms, active)?
        }
        Effect::PendingSet { group, consumer, id, time_ms, deliveries, .. } => {
            ks.pending_set(db, slot, (group, consumer), id, time_ms, deliveries)?
        }
        Effect::PendingAck { group, id, .. } => ks.pending_ack(db, slot, group, id)?,
        Effect::PendingRelease { group, id, deliveries, .. } => ks.pending_release(db, slot, group, id, deliveries)?,
        Effect::PendingHold { group, id, until_ms, .. } => ks.pending_hold(db, slot, group, id, until_ms)?,
        Effect::GroupPolicy {
            group, idle_ms, max_deliveries, dead_letters, backoff_base_ms, backoff_max_ms, ..
        } => {
            let dead_letters = dead_letters.into();
            let policy = Policy { idle_ms, max_deliveries, dead_letters, backoff_base_ms, backoff_max_ms };
            ensure(policy.is_none() || policy.is_sound(), Misfit::BadBytes)?;
            ks.group_set_policy(db, slot, group, Some(&policy).filter(|policy| !policy.is_none()))?
        }
        Effect::RequestLimits { duration_s, max_iids, .. } => {
            ks.request_limits(db, slot, duration_s, max_iids)?;
            true
        }
        Effect::RequestAdd { producer, iid, id, .. } => ks.request_add(db, slot, producer, iid, id)?,
        Effect::RequestForget { producer, count, .. } => ks.request_forget(db, slot, producer, count)?,
        Effect::RequestRepeated { .. } => ks.request_repeated(db, slot)?,
        Effect::RequestCounters { added, duplicates, .. } => ks.request_counters(db, slot, added, duplicates)?,
        _ => return Err(Misfit::Elsewhere),
    };
    ensure(fits, Misfit::Absent)
}

#[cfg(test)]
mod tests {
    use super::super::tests::replays;
    use super::*;

    fn id(ms: u64) -> StreamId {
        StreamId { ms, seq: 0 }
    }

    #[test]
    fn replaying_gives_the_same_streams() {
        replays(|ks| {
            let pair = [(&b"field"[..], &b"value"[..])];
            let slot = ks.stream_append(0, b"s", None, id(1), pair.into_iter())?.expect("the id is above 0-0");
            for ms in 2..8 {
                ks.stream_append(0, b"s", Some(slot), id(ms), pair.into_iter())?;
            }
            assert_eq!(ks.stream_append(0, b"s", Some(slot), id(7), pair.into_iter())?, None);
            ks.stream_delete(0, slot, id(4))?;
            ks.stream_trim(0, slot, id(2))?;
            ks.stream_counters(0, slot, id(9), Some(50), None)?;
            ks.group_create(0, slot, b"g", id(2), Some(2))?;
            ks.group_create(0, slot, b"gone", StreamId::MIN, None)?;
            ks.group_destroy(0, slot, b"gone")?;
            for consumer in [&b"ann"[..], b"bob", b"eve"] {
                ks.consumer_create(0, slot, b"g", consumer, 10)?;
            }
            ks.pending_set(0, slot, (b"g", b"ann"), id(3), 20, 1)?;
            ks.pending_set(0, slot, (b"g", b"ann"), id(5), 20, 1)?;
            ks.pending_set(0, slot, (b"g", b"bob"), id(5), 30, 2)?;
            ks.pending_ack(0, slot, b"g", id(3))?;
            ks.consumer_seen(0, slot, b"g", b"bob", 30, true)?;
            ks.consumer_delete(0, slot, b"g", b"eve")?;
            ks.group_set_id(0, slot, b"g", id(5), None)?;
            ks.pending_release(0, slot, b"g", id(5), 7)?;
            ks.pending_release(0, slot, b"g", id(3), 0)?;
            assert!(!ks.pending_hold(0, slot, b"g", id(3), 700)?, "without a policy nothing is due");
            let dead_letters = (*b"dlq").into();
            let policy = Policy { idle_ms: 50, max_deliveries: 7, dead_letters, backoff_base_ms: 0, backoff_max_ms: 0 };
            assert!(ks.group_set_policy(0, slot, b"g", Some(&policy))?);
            assert!(!ks.group_set_policy(0, slot, b"g", Some(&policy))?, "it has that policy");
            assert!(ks.pending_hold(0, slot, b"g", id(3), 700)?);
            ks.copy(0, slot, 3, b"copy");
            assert!(ks.group_set_policy(0, slot, b"g", None)? && !ks.group_set_policy(0, slot, b"x", Some(&policy))?);
            assert!(!ks.request_add(0, slot, b"p", b"r", id(7))?, "without limits nothing is remembered");
            ks.request_limits(0, slot, 100, 2)?;
            for (iid, ms) in [(b"a", 5), (b"b", 6), (b"a", 7), (b"c", 7)] {
                ks.request_add(0, slot, b"p", iid, id(ms))?;
            }
            ks.request_add(0, slot, b"q", b"a", id(7))?;
            ks.request_repeated(0, slot)?;
            ks.request_forget(0, slot, b"p", 1)?;
            ks.request_forget(0, slot, b"q", 9)?;
            assert!(!ks.request_forget(0, slot, b"q", 1)?);
            ks.stream_create(2, b"empty");
            Ok(())
        });
    }
}
