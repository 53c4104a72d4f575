//! How a stream's delayed messages come, go, and become entries. Their storage is in [`delayed`](super::delayed).

use super::delayed::{Delayed, entry, pack};
use super::policy::as_time;
use super::{Entry, Stream, StreamId, StreamLimits};

/// Delayed messages.
impl Stream {
    fn delayed_messages(&self) -> Option<&Delayed> {
        self.attendance.as_deref().map(|attendance| &attendance.delayed)
    }

    /// The number of messages held back.
    pub fn delayed_len(&self) -> usize {
        self.delayed_messages().map_or(0, Delayed::len)
    }

    /// The messages from `start` on, in the order in which they fall due.
    pub fn delayed_from(&self, start: StreamId) -> impl Iterator<Item = Entry<'_>> {
        self.delayed_messages().into_iter().flat_map(move |delayed| delayed.from(start))
    }

    /// The message with this id.
    pub fn delayed(&self, id: StreamId) -> Option<Entry<'_>> {
        self.delayed_messages()?.get(id)
    }

    /// The last ticket given to a message; 0 before the first.
    pub fn delay_tickets(&self) -> u64 {
        self.delayed_messages().map_or(0, Delayed::tickets)
    }

    /// The time when the first message is due, Unix ms.
    pub fn first_delayed_ms(&self) -> Option<u64> {
        self.delayed_messages()?.first_ms()
    }

    /// The time when the first message can become an entry, Unix ms: its due time, unless the stream has run out of
    /// ids.
    #[inline]
    pub fn release_ms(&self) -> Option<i64> {
        let due_ms = self.first_delayed_ms()?;
        as_time(due_ms).filter(|_| self.last_id != StreamId::MAX)
    }

    /// The last id of a message that is due in the same millisecond as this id.
    #[inline]
    pub(super) fn last_delayed_within(&self, id: StreamId) -> Option<StreamId> {
        self.delayed_messages()?.last_within(id.ms)
    }

    /// The id for the next message that is due at this time; `None` if there are no tickets left.
    pub fn delay_id(&self, due_ms: u64) -> Option<StreamId> {
        Some(StreamId { ms: due_ms, seq: self.delay_tickets().checked_add(1)? })
    }

    /// Holds a message back. Returns false, and changes nothing, if the message has no pairs or another message has the
    /// id.
    pub fn delay<'a>(&mut self, id: StreamId, pairs: impl Iterator<Item = (&'a [u8], &'a [u8])> + Clone) -> bool {
        let Some(message) = pack(pairs).filter(|_| self.delayed(id).is_none()) else { return false };
        self.attendance.get_or_insert_default().delayed.add(id, message);
        true
    }

    /// Marks the tickets up to `last` as given out.
    pub fn set_delay_tickets(&mut self, last: u64) {
        self.attendance.get_or_insert_default().delayed.give_tickets(last);
        self.dismiss_idle();
    }

    /// Cancels a message. Returns false if there is none with this id.
    pub fn cancel_delayed(&mut self, id: StreamId) -> bool {
        self.take_delayed(id).is_some()
    }

    /// The id under which a message becomes an entry: its own if that is above the stream's last id, otherwise the next
    /// one. `None` if the stream has run out of ids.
    pub fn release_id(&self, id: StreamId) -> Option<StreamId> {
        if id > self.last_id { Some(id) } else { self.last_id.next() }
    }

    /// Turns a message into an entry with the id `as_id`. Returns false, and changes nothing, if there is no such
    /// message or `as_id` is not above the last id.
    pub fn release(&mut self, id: StreamId, as_id: StreamId, limits: StreamLimits) -> bool {
        if as_id <= self.last_id {
            return false;
        }
        let Some(message) = self.take_delayed(id) else { return false };
        self.append(as_id, entry(id, &message).pairs, limits)
    }

    fn take_delayed(&mut self, id: StreamId) -> Option<Box<[u8]>> {
        let message = self.attendance.as_mut()?.delayed.remove(id);
        self.dismiss_idle();
        message
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;
    use crate::value::stream::NewId;

    type Pair = (Vec<u8>, Vec<u8>);

    fn id(ms: u64, seq: u64) -> StreamId {
        StreamId { ms, seq }
    }

    fn owned(entry: Entry<'_>) -> (StreamId, Vec<Pair>) {
        (entry.id, entry.pairs.map(|(field, value)| (field.to_vec(), value.to_vec())).collect())
    }

    fn as_pairs(pairs: &[Pair]) -> impl Iterator<Item = (&[u8], &[u8])> + Clone {
        pairs.iter().map(|(field, value)| (&**field, &**value))
    }

    #[test]
    fn a_message_keeps_its_id_unless_the_stream_has_passed_it() {
        let pairs = [(&b"f"[..], &b"v"[..])];
        let mut stream = Stream::new();
        for ms in [50, 20, 20, 90] {
            let id = stream.delay_id(ms).expect("there are tickets");
            assert!(stream.delay(id, pairs.into_iter()) && !stream.delay(id, pairs.into_iter()));
        }
        assert_eq!((stream.len(), stream.delayed_len(), stream.release_ms()), (0, 4, Some(20)));
        let ids = |stream: &Stream| stream.delayed_from(id(20, 3)).map(|entry| entry.id).collect::<Vec<_>>();
        assert_eq!(ids(&stream), [id(20, 3), id(50, 1), id(90, 4)]);
        let limits = StreamLimits::default();
        assert_eq!(stream.release_id(id(20, 2)), Some(id(20, 2)));
        assert!(!stream.release(id(20, 1), id(20, 1), limits) && stream.release(id(20, 2), id(20, 2), limits));
        assert!(stream.append(id(60, 0), pairs.into_iter(), limits));
        assert_eq!(stream.release_id(id(50, 1)), Some(id(60, 1)));
        assert!(!stream.release(id(50, 1), id(50, 1), limits) && stream.release(id(50, 1), id(60, 1), limits));
        // A ticket is given out only once, whatever happens to its message.
        assert!(stream.cancel_delayed(id(90, 4)) && !stream.cancel_delayed(id(90, 4)));
        assert_eq!(stream.delay_id(90), Some(id(90, 5)));
        stream.set_delay_tickets(u64::MAX);
        assert_eq!(stream.delay_id(90), None);
        // Once the ids have run out, no message can become an entry.
        stream.set_counters(StreamId::MAX, None, None);
        assert_eq!((stream.release_id(id(20, 3)), stream.release_ms()), (None, None));
        assert_eq!(stream.next_id(NewId::Auto, 5).ok(), None);
        assert!(!Stream::new().delay(id(1, 1), std::iter::empty()));
    }

    #[derive(Clone, Debug)]
    enum Step {
        Delay(u64, Vec<Pair>),
        Cancel(usize),
        Release(usize),
    }

    fn step() -> impl Strategy<Value = Step> {
        let text = || proptest::collection::vec(any::<u8>(), 0..200);
        let pairs = proptest::collection::vec((text(), text()), 1..4);
        prop_oneof![
            4 => (0..9u64, pairs).prop_map(|(ms, pairs)| Step::Delay(ms, pairs)),
            1 => any::<usize>().prop_map(Step::Cancel),
            2 => any::<usize>().prop_map(Step::Release),
        ]
    }

    proptest! {
        /// Messages follow a naive map, and each step is undone from its pre-image.
        #[test]
        fn follows_a_map(steps in proptest::collection::vec(step(), 1..60)) {
            let mut stream = Stream::new();
            let mut model: BTreeMap<StreamId, Vec<Pair>> = BTreeMap::new();
            let mut entries: Vec<(StreamId, Vec<Pair>)> = Vec::new();
            for step in steps {
                let nth = |at: usize| model.keys().nth(at % (model.len() + 1)).copied().unwrap_or(id(3, 999));
                let one = match &step {
                    Step::Delay(ms, _) => stream.delay_id(*ms).expect("there are tickets"),
                    Step::Cancel(at) | Step::Release(at) => nth(*at),
                };
                let (before, text) = (stream.before_delayed(one), format!("{stream:?}"));
                let tail = stream.before_append();
                let as_id = stream.release_id(one).expect("there are ids");
                let apply = |stream: &mut Stream| match &step {
                    Step::Delay(_, pairs) => stream.delay(one, as_pairs(pairs)),
                    Step::Cancel(_) => stream.cancel_delayed(one),
                    Step::Release(_) => stream.release(one, as_id, StreamLimits::default()),
                };
                let was_there = model.contains_key(&one);
                let done = apply(&mut stream);
                if done && matches!(step, Step::Release(_)) {
                    stream.cut_to(tail);
                }
                stream.put_back(before);
                prop_assert_eq!(format!("{:?}", stream), text);
                prop_assert_eq!(apply(&mut stream), done);
                match step {
                    Step::Delay(_, pairs) => {
                        prop_assert!(done && model.insert(one, pairs).is_none(), "each id is new");
                    }
                    Step::Cancel(_) => prop_assert_eq!(model.remove(&one).is_some(), done),
                    Step::Release(_) => {
                        prop_assert_eq!(was_there, done);
                        entries.extend(model.remove(&one).map(|pairs| (as_id, pairs)));
                    }
                }
                let packed = model.values().map(|pairs| pack(as_pairs(pairs)).expect("there are pairs"));
                let bytes: usize = packed.map(|message| message.len()).sum();
                prop_assert_eq!(stream.delayed_messages().map_or(0, Delayed::bytes), bytes);
                let delayed: BTreeMap<_, _> = stream.delayed_from(StreamId::MIN).map(owned).collect();
                prop_assert_eq!(delayed, model.clone());
                let all: Vec<_> = stream.range(StreamId::MIN, StreamId::MAX).map(owned).collect();
                prop_assert_eq!(all, entries.clone());
            }
        }
    }
}
