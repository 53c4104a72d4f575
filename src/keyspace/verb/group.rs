//! Encodes a consumer group of a stream as a whole, with its consumers and everything pending. Whole streams are built
//! from such groups.
//!
//! Released deliveries come first, in the order of their release, with 0 for the time. The consumers follow by name:
//! the name, when the consumer was last seen and last active, and its deliveries. So each name appears once, however
//! many entries are pending.
//!
//! Deliveries are a byte string of four numbers each: the differences of the two ID parts and of the time from the
//! previous delivery (the first one: from 0), and the delivery count. If entries came in batches, this takes about five
//! bytes.

use std::collections::HashMap;

use super::check::{ensure, slot_of};
use crate::keyspace::any_value::ValueMut;
use crate::keyspace::effect::{Effect, EffectWriter, Field, Strings};
use crate::keyspace::{DbIndex, Keyspace, Misfit};
use crate::value::stream::{Group, Pending, Policy, StreamId};

/// Encodes the effect that adds a group to the stream under `key`.
pub(super) fn encode(key: &[u8], name: &[u8], group: &Group, out: &mut EffectWriter) {
    let (mut content, mut deliveries) = (Vec::new(), Vec::new());
    pack(group.delivered_until(None), &mut deliveries);
    deliveries.as_slice().put(&mut content);
    for consumer in group.consumers() {
        let ids = consumer.pending_range(StreamId::MIN, StreamId::MAX);
        deliveries.clear();
        pack(ids.filter_map(|id| group.pending(id)), &mut deliveries);
        consumer.name().put(&mut content);
        consumer.seen_ms().put(&mut content);
        consumer.active_ms().put(&mut content);
        deliveries.as_slice().put(&mut content);
    }
    let (last_delivered, entries_read) = (group.last_delivered(), group.entries_read());
    out.write(0, &Effect::GroupAdd { key, group: name, last_delivered, entries_read, content: &content });
    if group.policy().is_some() {
        out.write(0, &group_policy(key, name, group.policy()));
        for pending in group.delivered_until(None) {
            if let Some(until_ms) = group.held_until_ms(pending.id) {
                out.write(0, &Effect::PendingHold { key, group: name, id: pending.id, until_ms });
            }
        }
    }
}

/// The effect that sets or removes the policy of a group.
pub(in crate::keyspace) fn group_policy<'a>(key: &'a [u8], group: &'a [u8], policy: Option<&'a Policy>) -> Effect<'a> {
    let Some(policy) = policy else {
        let dead_letters = &b""[..];
        let (idle_ms, max_deliveries, backoff_base_ms, backoff_max_ms) = (0, 0, 0, 0);
        return Effect::GroupPolicy {
            key,
            group,
            idle_ms,
            max_deliveries,
            dead_letters,
            backoff_base_ms,
            backoff_max_ms,
        };
    };
    let &Policy { idle_ms, max_deliveries, ref dead_letters, backoff_base_ms, backoff_max_ms } = policy;
    Effect::GroupPolicy { key, group, idle_ms, max_deliveries, dead_letters, backoff_base_ms, backoff_max_ms }
}

/// Replays a recorded change: adds a group whose name is free to a stream, or pending entries to a group.
pub(super) fn apply(ks: &mut Keyspace, db: DbIndex, effect: &Effect<'_>) -> Result<(), Misfit> {
    let slot = slot_of(ks, db, effect.key().ok_or(Misfit::Elsewhere)?)?;
    let Some(ValueMut::Stream(stream)) = ks.value_mut(db, slot) else { return Err(Misfit::WrongType) };
    match *effect {
        Effect::GroupAdd { group: name, last_delivered, entries_read, content, .. } => {
            let group = decode(Group::new(last_delivered, entries_read), content).ok_or(Misfit::BadBytes)?;
            ensure(stream.group_insert(name, group), Misfit::Exists)?;
        }
        Effect::PendingAdd { group, consumers, deliveries, .. } => {
            for pending in unpack_of_many(consumers, deliveries).ok_or(Misfit::BadBytes)? {
                let Pending { id, consumer, time_ms, deliveries } = pending;
                let done = match consumer {
                    Some(consumer) => stream.pending_set(group, id, consumer, time_ms, deliveries),
                    None => stream.pending_release(group, id, deliveries),
                };
                ensure(done, Misfit::Absent)?;
            }
        }
        _ => return Err(Misfit::Elsewhere),
    }
    ks.follow_policies(db, slot);
    ks.effects.record(db, *effect);
    Ok(())
}

/// Pending entries of one group in ID order, packed, with each consumer's name once.
#[derive(Default)]
pub(in crate::keyspace) struct PendingPack<'g> {
    numbers: HashMap<&'g [u8], u64>,
    consumers: Vec<u8>,
    deliveries: Vec<u8>,
    before: [u64; 3],
}

impl<'g> PendingPack<'g> {
    /// Adds a pending entry.
    pub(in crate::keyspace) fn add(&mut self, pending: &Pending<'g>) {
        let next = self.numbers.len() as u64 + 1;
        let consumers = &mut self.consumers;
        let number = pending.consumer.map_or(0, |consumer| {
            *self.numbers.entry(consumer).or_insert_with(|| {
                consumer.put(consumers);
                next
            })
        });
        number.put(&mut self.deliveries);
        put_delivery(pending, &mut self.before, &mut self.deliveries);
    }

    /// The packed length in bytes.
    pub(in crate::keyspace) fn len(&self) -> usize {
        self.consumers.len() + self.deliveries.len()
    }

    /// Writes the effect that adds the entries, if there are any.
    pub(in crate::keyspace) fn write(&self, key: &[u8], group: &[u8], out: &mut EffectWriter) {
        if !self.deliveries.is_empty() {
            let (consumers, deliveries) = (&self.consumers[..], &self.deliveries[..]);
            out.write(0, &Effect::PendingAdd { key, group, consumers, deliveries });
        }
    }
}

/// Reads a [`PendingPack`]. Returns `None` if the bytes make no sense.
fn unpack_of_many<'a>(consumers: &'a [u8], mut packed: &'a [u8]) -> Option<Vec<Pending<'a>>> {
    let mut strings = Strings::new(consumers);
    let names: Vec<&[u8]> = strings.by_ref().collect();
    strings.is_empty().then_some(())?;
    let mut all = Vec::new();
    let mut here = [0; 3];
    while !packed.is_empty() {
        let consumer = match u64::take(&mut packed)?.checked_sub(1) {
            Some(number) => Some(*names.get(usize::try_from(number).ok()?)?),
            None => None,
        };
        let (id, time_ms, deliveries) = take_delivery(&mut here, &mut packed)?;
        all.push(Pending { id, consumer, time_ms, deliveries });
    }
    Some(all)
}

/// Adds the packed consumers and deliveries to a group. Returns `None` if the bytes make no sense.
fn decode(mut group: Group, mut content: &[u8]) -> Option<Group> {
    let released = unpack(Field::take(&mut content)?)?;
    released.into_iter().for_each(|(id, _, deliveries)| group.release(id, deliveries));
    while !content.is_empty() {
        let consumer = Field::take(&mut content)?;
        let (seen_ms, active_ms) = (u64::take(&mut content)?, Field::take(&mut content)?);
        let deliveries = unpack(Field::take(&mut content)?)?;
        group.add_consumer(consumer, seen_ms, active_ms, deliveries).then_some(())?;
    }
    Some(group)
}

fn pack<'g>(deliveries: impl Iterator<Item = Pending<'g>>, out: &mut Vec<u8>) {
    let mut before = [0; 3];
    deliveries.for_each(|pending| put_delivery(&pending, &mut before, out));
}

fn put_delivery(pending: &Pending<'_>, before: &mut [u64; 3], out: &mut Vec<u8>) {
    let here = [pending.id.ms, pending.id.seq, pending.time_ms];
    for (here, before) in here.into_iter().zip(*before) {
        zigzag(here.wrapping_sub(before) as i64).put(out);
    }
    pending.deliveries.put(out);
    *before = here;
}

/// Returns ID, time and count of each delivery, or `None` if the bytes make no sense.
fn unpack(mut packed: &[u8]) -> Option<Vec<(StreamId, u64, u64)>> {
    let mut all = Vec::new();
    let mut here = [0u64; 3];
    while !packed.is_empty() {
        all.push(take_delivery(&mut here, &mut packed)?);
    }
    Some(all)
}

fn take_delivery(here: &mut [u64; 3], packed: &mut &[u8]) -> Option<(StreamId, u64, u64)> {
    for part in here.iter_mut() {
        *part = part.wrapping_add(unzigzag(u64::take(packed)?) as u64);
    }
    let deliveries = u64::take(packed)?;
    let [ms, seq, time_ms] = *here;
    Some((StreamId { ms, seq }, time_ms, deliveries))
}

/// Maps numbers near 0 to small ones: 0, -1, 1, -2, ... become 0, 1, 2, 3, ...
fn zigzag(n: i64) -> u64 {
    ((n << 1) ^ (n >> 63)) as u64
}

fn unzigzag(n: u64) -> i64 {
    (n >> 1) as i64 ^ -((n & 1) as i64)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::base::rng::Rng;
    use crate::keyspace::effect::{EffectReader, Recording};
    use crate::value::stream::Stream;

    fn keyspace() -> Keyspace {
        let mut ks = Keyspace::new(1, Rng::seeded(1));
        ks.begin_unit(1_000, Recording::Full);
        ks
    }

    /// A stream with one group as a consumer sees it, without numbers of slots or turns.
    fn shown(stream: &Stream) -> Vec<String> {
        let show = |(name, group): (&[u8], &Group)| {
            let consumer = |c: &crate::value::stream::Consumer| {
                let ids: Vec<_> = c.pending_range(StreamId::MIN, StreamId::MAX).collect();
                format!("{:?} {} {:?} {ids:?}", c.name(), c.seen_ms(), c.active_ms())
            };
            format!(
                "{name:?} {:?} {:?} {:?} {:?} {:?} {:?}",
                group.last_delivered(),
                group.entries_read(),
                group.pending_range(StreamId::MIN, StreamId::MAX).collect::<Vec<_>>(),
                group.delivered_until(Some(u64::MAX)).collect::<Vec<_>>(),
                (group.policy(), group.first_due_ms(), group.due_until(u64::MAX).collect::<Vec<_>>()),
                group.consumers().map(consumer).collect::<Vec<_>>(),
            )
        };
        stream.groups().map(show).collect()
    }

    /// The stream that results from applying the group's effect to one without groups.
    fn repeated(name: &[u8], group: &Group) -> (Keyspace, Vec<u8>) {
        let mut encoded = EffectWriter::default();
        encode(b"s", name, group, &mut encoded);
        let encoded = encoded.into_bytes();
        let mut ks = keyspace();
        ks.stream_create(0, b"s");
        let created = ks.effects().as_bytes().len();
        ks.record_apart();
        assert!(EffectReader::new(&encoded).all(|(db, effect)| ks.apply(db, &effect).is_ok()));
        assert_eq!(ks.effects().as_bytes()[created..], encoded, "applying records the same");
        (ks, encoded)
    }

    const NAMES: [&[u8]; 3] = [b"eve", b"", b"bob"];

    #[derive(Clone, Debug)]
    enum Step {
        Give(StreamId, usize, u64, u64),
        Release(StreamId, u64),
        Hold(StreamId, u64),
        Ack(StreamId),
        Delete(usize),
        Seen(usize, u64, bool),
    }

    fn number() -> impl Strategy<Value = u64> {
        prop_oneof![0..4u64, Just(1 << 41), Just(i64::MAX as u64), Just(u64::MAX)]
    }

    fn step() -> impl Strategy<Value = Step> {
        let id = || (number(), number()).prop_map(|(ms, seq)| StreamId { ms, seq });
        prop_oneof![
            6 => (id(), 0..3usize, number(), number()).prop_map(|(id, name, ms, n)| Step::Give(id, name, ms, n)),
            3 => (id(), number()).prop_map(|(id, n)| Step::Release(id, n)),
            1 => (id(), number()).prop_map(|(id, until_ms)| Step::Hold(id, until_ms)),
            1 => id().prop_map(Step::Ack),
            1 => (0..3usize).prop_map(Step::Delete),
            2 => (0..3usize, number(), any::<bool>()).prop_map(|(name, ms, active)| Step::Seen(name, ms, active)),
        ]
    }

    proptest! {
        /// Pending entries come back with their consumers, times and order, whatever happened to the group.
        #[test]
        fn a_group_is_repeated(
            steps in proptest::collection::vec(step(), 0..40),
            read in proptest::option::of(number()),
            idle_ms in proptest::option::of(1..9u64),
        ) {
            let mut stream = Stream::new();
            stream.group_create(b"g", StreamId { ms: 7, seq: u64::MAX }, read);
            let policy = idle_ms.map(|idle_ms| Policy {
                idle_ms,
                max_deliveries: 3,
                dead_letters: (*b"d").into(),
                backoff_base_ms: 0,
                backoff_max_ms: 0,
            });
            stream.group_set_policy(b"g", policy);
            for step in steps {
                match step {
                    Step::Give(id, name, time_ms, deliveries) => {
                        stream.consumer_create(b"g", NAMES[name], 5);
                        stream.pending_set(b"g", id, NAMES[name], time_ms, deliveries);
                    }
                    Step::Release(id, deliveries) => _ = stream.pending_release(b"g", id, deliveries),
                    Step::Hold(id, until_ms) => {
                        stream.pending_release(b"g", id, 1);
                        stream.pending_hold(b"g", id, until_ms);
                    }
                    Step::Ack(id) => _ = stream.pending_ack(b"g", id),
                    Step::Delete(name) => _ = stream.consumer_delete(b"g", NAMES[name]),
                    Step::Seen(name, at_ms, active) => _ = stream.consumer_seen(b"g", NAMES[name], at_ms, active),
                }
            }
            let (mut ks, _) = repeated(b"g", stream.group(b"g").expect("it was created"));
            let slot = ks.find(0, b"s").expect("it was created");
            prop_assert_eq!(shown(ks.stream(0, slot).expect("a stream")), shown(&stream));
        }

        #[test]
        fn any_bytes_are_read_or_refused(content in proptest::collection::vec(any::<u8>(), 0..40)) {
            let mut ks = keyspace();
            ks.stream_create(0, b"s");
            let (group, last_delivered) = (&b"g"[..], StreamId::MIN);
            let effect = Effect::GroupAdd { key: b"s", group, last_delivered, entries_read: None, content: &content };
            let is_applied = ks.apply(0, &effect).is_ok();
            let slot = ks.find(0, b"s").expect("it was created");
            prop_assert_eq!(ks.stream(0, slot).expect("a stream").group(b"g").is_some(), is_applied);
        }
    }

    /// Long names and many pending entries take about as many bytes as the entries need.
    #[test]
    fn names_are_encoded_once() {
        const ENTRIES: u64 = 100_000;
        let name = |who: u8| [who; 10_000];
        let mut group = Group::new(StreamId::MIN, None);
        for who in [b'a', b'b'] {
            let ids = (0..ENTRIES / 2).map(|n| StreamId { ms: 1_700_000_000_000 + 3 * n, seq: u64::from(who & 1) });
            let deliveries = ids.map(|id| (id, 1_700_000_500_000 + id.ms % 2_000, 1));
            assert!(group.add_consumer(&name(who), 1_700_000_900_000, None, deliveries));
        }
        let (_, encoded) = repeated(&name(b'g'), &group);
        let names = 3 * 10_000;
        assert!(encoded.len() - names < 5 * ENTRIES as usize + 200, "{} bytes", encoded.len());
    }

    #[test]
    fn malformed_groups_are_refused() {
        let mut group = Group::new(StreamId::MIN, None);
        let id = StreamId { ms: 1, seq: 2 };
        assert!(group.add_consumer(b"ann", 7, None, [(id, 3, 4)]));
        let (mut ks, encoded) = repeated(b"g", &group);
        let (_, effect) = EffectReader::new(&encoded).next().expect("it was encoded");
        let Effect::GroupAdd { group, last_delivered, entries_read, content, .. } = effect else {
            panic!("{effect:?}")
        };
        let mut refused = |key: &[u8], group: &[u8], content: &[u8]| {
            ks.apply(0, &Effect::GroupAdd { key, group, last_delivered, entries_read, content }).err()
        };
        assert_eq!(refused(b"s", group, content), Some(Misfit::Exists));
        assert_eq!(refused(b"nosuch", b"other", content), Some(Misfit::NoKey));
        let twice = [content, &content[1..]].concat();
        assert_eq!(refused(b"s", b"other", &twice), Some(Misfit::BadBytes), "a consumer appears once");
        // A cut behind the released deliveries leaves a whole group without consumers.
        let mut cuts = (0..content.len()).filter(|cut| *cut != 1);
        assert!(cuts.all(|cut| refused(b"s", b"other", &content[..cut]) == Some(Misfit::BadBytes)));
        assert_eq!(refused(b"s", b"other", content), None);
        ks.put(0, b"string", b"text");
        let effect = Effect::GroupAdd { key: b"string", group, last_delivered, entries_read, content };
        assert_eq!(ks.apply(0, &effect), Err(Misfit::WrongType));
    }
}
