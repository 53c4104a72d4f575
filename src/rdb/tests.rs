use proptest::prelude::*;
use proptest::strategy::ValueTree as _;

use super::*;
use crate::rdb::limits::RDB_PACKED_MAX_ITEMS;
use crate::value::hash::Hash;
use crate::value::list::List;
use crate::value::packed::Item;
use crate::value::set::Set;
use crate::value::stream::{Policy, Stream, StreamId};
use crate::value::string::{Digits, StringValue};
use crate::value::zset::ZSet;

fn dump(value: &Value) -> Vec<u8> {
    super::dump(value.as_ref())
}

/// The content of a value as a client can read it; unordered elements are sorted.
pub(super) fn content(value: &Value) -> Vec<String> {
    let show = |bytes: &[u8]| bytes.escape_ascii().to_string();
    let mut unordered = Vec::new();
    match value.as_ref() {
        ValueRef::String(string) => return vec![show(string.as_bytes(&mut Digits::new()))],
        ValueRef::List(list) => return list.iter().map(show).collect(),
        ValueRef::ZSet(zset) => {
            return zset.iter().map(|(member, score)| format!("{} {score:?}", show(member))).collect();
        }
        ValueRef::Stream(stream) => return stream_content(stream),
        ValueRef::Grants(grants) => return vec![format!("{grants:?}")],
        ValueRef::Set(set) => unordered.extend(set.iter().map(|member| show(&member.to_vec()))),
        ValueRef::Hash(hash) => {
            let text = |(field, value): (Item<'_>, Item<'_>)| {
                let at_ms = hash.deadlines().and_then(|deadlines| deadlines.at(&field.to_vec()));
                let at_ms = at_ms.map_or(String::new(), |at_ms| format!(" until {at_ms}"));
                show(&[field.to_vec(), value.to_vec()].join(&b'=')) + &at_ms
            };
            unordered.extend(hash.iter().map(text));
        }
    }
    unordered.sort();
    unordered
}

fn stream_content(stream: &Stream) -> Vec<String> {
    let mut shown =
        vec![format!("{} {} {} {}", stream.len(), stream.last_id(), stream.max_deleted_id(), stream.entries_added())];
    for entry in stream.range(StreamId::MIN, StreamId::MAX) {
        shown.push(format!("{} {:?}", entry.id, entry.pairs.collect::<Vec<_>>()));
    }
    for (name, group) in stream.groups() {
        shown.push(format!("{name:?} {} {:?}", group.last_delivered(), group.entries_read()));
        shown.extend(group.pending_range(StreamId::MIN, StreamId::MAX).map(|pending| format!("{pending:?}")));
        for consumer in group.consumers() {
            shown.push(format!("{:?} {} {}", consumer.name(), consumer.seen_ms(), consumer.pending_len()));
        }
    }
    shown
}

fn limits(small: bool) -> ValueLimits {
    let mut limits = ValueLimits::default();
    if small {
        limits.hash.max_listpack_entries = 2;
        limits.set.max_intset_entries = 2;
        limits.zset.max_entries = 2;
        limits.list.max_listpack_size = 2;
    }
    limits
}

fn text() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        3 => any::<i64>().prop_map(|value| value.to_string().into_bytes()),
        3 => (-300i64..70_000).prop_map(|value| value.to_string().into_bytes()),
        3 => proptest::collection::vec(any::<u8>(), 0..90),
        1 => (any::<u8>(), 0usize..20_000).prop_map(|(byte, len)| vec![byte; len]),
    ]
}

fn texts() -> impl Strategy<Value = Vec<Vec<u8>>> {
    proptest::collection::vec(text(), 1..40)
}

fn score() -> impl Strategy<Value = f64> {
    prop_oneof![any::<f64>().prop_filter("a score", |score| !score.is_nan()), (-9i32..9).prop_map(f64::from)]
}

/// A value that prints its content when a test fails.
#[derive(Clone)]
struct Sample(Value);

impl std::fmt::Debug for Sample {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {} {:?}", self.0.as_ref().type_name(), self.0.as_ref().encoding(), content(&self.0))
    }
}

fn any_value() -> impl Strategy<Value = Sample> {
    let string = text().prop_map(|text| Sample(Value::String(StringValue::new(&text))));
    let list = (texts(), any::<bool>()).prop_map(|(texts, small)| {
        let mut list = List::new();
        texts.iter().for_each(|text| list.push_back(text, limits(small).list));
        Sample(Value::List(list))
    });
    let set = (texts(), any::<bool>()).prop_map(|(texts, small)| {
        let mut set = Set::new();
        texts.iter().for_each(|text| _ = set.insert(text, &limits(small).set));
        Sample(Value::Set(set))
    });
    let integers = (proptest::collection::vec(any::<i32>(), 1..40), 0u32..4).prop_map(|(integers, scale)| {
        let mut set = Set::new();
        for integer in integers {
            set.insert((i64::from(integer) >> (8 * scale)).to_string().as_bytes(), &limits(false).set);
        }
        Sample(Value::Set(set))
    });
    let zset = (proptest::collection::vec((text(), score()), 1..40), any::<bool>()).prop_map(|(members, small)| {
        let mut zset = ZSet::new();
        members.iter().for_each(|(member, score)| _ = zset.insert(member, *score, limits(small).zset));
        Sample(Value::ZSet(zset))
    });
    let deadline = proptest::option::weighted(0.3, 1i64..1 << 48);
    let pairs = proptest::collection::vec((text(), text(), deadline), 1..40);
    let hash = (pairs, any::<bool>(), any::<bool>()).prop_map(|(pairs, small, mortal)| {
        let mut hash = Hash::new();
        for (field, value, at_ms) in &pairs {
            hash.insert(field, value, &limits(small).hash);
            if let Some(at_ms) = at_ms.filter(|at_ms| mortal && *at_ms < (1 << 48) - 1) {
                hash.set_deadline(field, at_ms);
            }
        }
        Sample(Value::Hash(hash))
    });
    prop_oneof![string, list, set, integers, zset, hash, any_stream()]
}

fn any_stream() -> impl Strategy<Value = Sample> {
    let entry = (0u64..5, 0u64..3, proptest::collection::vec((text(), text()), 1..4), 0u8..3);
    let group = (text(), 0u64..9, proptest::option::of(0u64..100), proptest::collection::vec((0u64..20, 0u8..3), 0..9));
    (proptest::collection::vec(entry, 0..150), proptest::collection::vec(group, 0..3)).prop_map(|(entries, groups)| {
        let mut stream = Stream::new();
        let mut last = StreamId::MIN;
        let usual = [(&b"order"[..], &b"17"[..]), (b"user", b"ann")];
        for (ms, seq, pairs, kind) in entries {
            last = StreamId { ms: last.ms + ms, seq: if ms == 0 { last.seq + seq + 1 } else { seq } };
            let pairs: Vec<_> = pairs.iter().map(|(field, value)| (&field[..], &value[..])).collect();
            let pairs = if kind == 0 { &pairs[..] } else { &usual };
            assert!(stream.append(last, pairs.iter().copied(), ValueLimits::default().stream));
            if kind == 2 {
                stream.delete(last);
            }
        }
        for (name, ms, read, pending) in groups {
            stream.group_create(&name, StreamId { ms, seq: 1 }, read);
            for (ms, consumer) in pending {
                stream.consumer_create(&name, &[b'c', consumer], ms);
                stream.consumer_seen(&name, &[b'c', consumer], ms, true);
                stream.pending_set(&name, StreamId { ms, seq: 0 }, &[b'c', consumer], 1_000 + ms, ms);
            }
        }
        Sample(Value::Stream(Box::new(stream)))
    })
}

/// A group's policy is stored in a payload of this server's own type; a file holds the stream without it.
#[test]
fn policies_of_groups_are_in_payloads_only() {
    let mut stream = Stream::new();
    let id = |ms| StreamId { ms, seq: 1 };
    assert!(stream.append(id(5), [(&b"f"[..], &b"v"[..])].into_iter(), ValueLimits::default().stream));
    let plain = super::dump(ValueRef::Stream(&stream));
    let policy = |max_deliveries, dead_letters: &[u8]| Policy {
        idle_ms: 300,
        max_deliveries,
        dead_letters: dead_letters.into(),
        backoff_base_ms: 0,
        backoff_max_ms: 0,
    };
    for (group, policy) in [(&b"a"[..], Some(policy(3, b"12"))), (b"b", None), (b"c", Some(policy(0, b"")))] {
        stream.group_create(group, id(5), None);
        stream.consumer_create(group, b"ann", 7);
        stream.pending_set(group, id(5), b"ann", 8, 4);
        stream.group_set_policy(group, policy);
    }
    let payload = super::dump(ValueRef::Stream(&stream));
    assert_ne!(payload[0], plain[0]);
    let Ok(Value::Stream(read)) = load(&payload, &ValueLimits::default()) else { panic!("it holds a stream") };
    assert_eq!(
        format!("{:?}", read.policies().collect::<Vec<_>>()),
        format!("{:?}", stream.policies().collect::<Vec<_>>())
    );
    assert_eq!(super::dump(ValueRef::Stream(&read)), payload);
    let (_, content) = open(&payload).expect("it is whole");
    let without = value::without_own_part(content).expect("it is whole");
    let read = load_value(Dialect::Redis, without[0], &without[1..], &ValueLimits::default());
    let Ok(Value::Stream(read)) = read else { panic!("it holds a stream") };
    assert_eq!((stream_content(&read), read.has_policies()), (stream_content(&stream), false));
    let (_, content) = open(&plain).expect("it is whole");
    assert_eq!(value::without_own_part(content).as_deref(), Some(content));
    // Truncated payloads, and a policy that is inconsistent.
    for len in 1..payload.len() - FOOTER_BYTES {
        assert!(load(&resealed(&payload[..len]), &ValueLimits::default()).is_err(), "{len}");
    }
    let with = |policies: &[u8]| {
        let mut bytes = vec![payload[0]];
        wire::put_bytes(&mut bytes, policies);
        bytes.extend_from_slice(&without[1..]);
        seal(&mut bytes, VERSION);
        load(&bytes, &ValueLimits::default()).is_ok()
    };
    assert!(with(b"\x01\x01a\x05\x00\x00\x00\x00"));
    for unsound in [
        &b"\x00"[..],
        b"\x01\x01a\x00\x00\x00\x00\x00",
        b"\x01\x01a\x05\x01\x00\x00\x00",
        b"\x01\x01x\x05\x00\x00\x00\x00",
        b"\x01\x01a\x05\x00\x00\x00\x00\x00",
        b"\x02\x01a\x05\x00\x00\x00\x00\x01a\x05\x00\x00\x00\x00",
    ] {
        assert!(!with(unsound), "{}", unsound.escape_ascii());
    }
}

/// A value sent to another server of this kind is complete, and is refused if any part is missing.
#[test]
fn streams_and_sets_move_whole_between_servers_of_this_kind() {
    let id = |ms| StreamId { ms, seq: 0 };
    let pairs = [(&b"f"[..], &b"12"[..])];
    let mut stream = Stream::new();
    for ms in 1..6 {
        assert!(stream.append(id(ms), pairs.into_iter(), ValueLimits::default().stream));
    }
    stream.set_counters(id(9), Some(7), Some(id(2)));
    for group in [&b"g"[..], b"h"] {
        stream.group_create(group, id(4), Some(3));
        for (consumer, active) in [(&b"ann"[..], true), (b"bob", false)] {
            stream.consumer_create(group, consumer, 70);
            stream.consumer_seen(group, consumer, 90, active);
        }
        stream.pending_set(group, id(1), b"ann", 80, 4);
    }
    let dead_letters = (*b"dead").into();
    let policy = Policy { idle_ms: 300, max_deliveries: 9, dead_letters, backoff_base_ms: 5, backoff_max_ms: 50 };
    stream.group_set_policy(b"g", Some(policy));
    assert!(stream.pending_release(b"g", id(1), 3) && stream.pending_hold(b"g", id(1), 5_000));
    stream.idempotency_configure(7, 8);
    for (producer, iid) in [(&b"p"[..], &b"1"[..]), (b"q", b"1"), (b"p", b"2")] {
        stream.idempotency_add(producer, iid, id(3));
    }
    stream.idempotency_duplicate();
    assert!(
        stream.delay(StreamId { ms: 900, seq: 1 }, pairs.into_iter())
            && stream.delay(StreamId { ms: 800, seq: 2 }, pairs.into_iter())
    );
    assert!(stream.cancel_delayed(StreamId { ms: 800, seq: 2 }));
    let mut set = Set::new();
    for member in [&b"1"[..], b"two", b"3"] {
        set.insert(member, &ValueLimits::default().set);
    }
    set.set_deadline(b"two", 4_102_444_800_000, &ValueLimits::default().set);
    let shown = |value: ValueRef<'_>| match value {
        ValueRef::Stream(stream) => format!("{stream:?}"),
        ValueRef::Set(set) => format!("{set:?}"),
        _ => String::new(),
    };
    let mut empty = Stream::new();
    empty.group_create(b"g", id(0), None);
    for value in [Value::Stream(Box::new(stream)), Value::Stream(Box::new(empty)), Value::Set(set)] {
        let value = value.as_ref();
        let (code, mut bytes) = (value::whole_type_code(value), Vec::new());
        value::encode_whole(value, &mut bytes);
        let load = |bytes: &[u8]| load_value(Dialect::Redis, code, bytes, &ValueLimits::default());
        let read = load(&bytes).expect("it is whole");
        assert_eq!(shown(read.as_ref()), shown(value));
        for len in 0..bytes.len() {
            assert!(load(&bytes[..len]).is_err(), "{len} of {}", bytes.len());
        }
        // As it is found in a file, which does not state its length.
        let mut file = b"REDIS0010".to_vec();
        file.extend_from_slice(&[&[code, 1, b'k'][..], &bytes, &[0xff], &[0; 8]].concat());
        let mut reader = file::Reader::new(&file[..]).expect("it begins like one");
        let Ok(file::Record::Key(record)) = reader.next_record() else { panic!("it has a key") };
        assert_eq!((record.code, record.value), (code, &bytes[..]));
        assert!(matches!(reader.next_record(), Ok(file::Record::End)));
    }
}

/// As with policies, whether the stream has any or not.
#[test]
fn delayed_messages_are_in_payloads_only() {
    let pairs = [(&b"f"[..], &b"12"[..]), (b"g", &[b'x'; 100])];
    let id = |ms, seq| StreamId { ms, seq };
    for has_policy in [false, true] {
        let mut stream = Stream::new();
        assert!(stream.append(id(5, 0), pairs.into_iter(), ValueLimits::default().stream));
        let plain = super::dump(ValueRef::Stream(&stream));
        if has_policy {
            let dead_letters = (*b"").into();
            let policy =
                Policy { idle_ms: 300, max_deliveries: 0, dead_letters, backoff_base_ms: 0, backoff_max_ms: 0 };
            stream.group_create(b"a", id(5, 0), None);
            stream.group_set_policy(b"a", Some(policy));
        }
        for seq in 1..5 {
            assert!(stream.delay(id(900 - seq, seq), pairs.into_iter()));
        }
        assert!(stream.cancel_delayed(id(896, 4)));
        let payload = super::dump(ValueRef::Stream(&stream));
        let Ok(Value::Stream(read)) = load(&payload, &ValueLimits::default()) else { panic!("it holds a stream") };
        assert_eq!(format!("{read:?}"), format!("{stream:?}"));
        let (_, content) = open(&payload).expect("it is whole");
        let without = value::without_own_part(content).expect("it is whole");
        assert_eq!(without[0], plain[0]);
        let read = load_value(Dialect::Redis, without[0], &without[1..], &ValueLimits::default());
        let Ok(Value::Stream(read)) = read else { panic!("it holds a stream") };
        assert_eq!((read.len(), read.delayed_len(), read.has_policies()), (1, 0, false));
        for len in 1..payload.len() - FOOTER_BYTES {
            assert!(load(&resealed(&payload[..len]), &ValueLimits::default()).is_err(), "{len}");
        }
        let with = |delayed: &[u8]| {
            let mut bytes = vec![payload[0]];
            wire::put_bytes(&mut bytes, b"\x00");
            wire::put_bytes(&mut bytes, delayed);
            bytes.extend_from_slice(&plain[1..plain.len() - FOOTER_BYTES]);
            seal(&mut bytes, VERSION);
            load(&bytes, &ValueLimits::default()).is_ok()
        };
        assert!(with(b"\x02\x02\x07\x01\x01\x01f\x01v\x07\x02\x01\x01f\x01v"));
        for unsound in [
            // Without messages; without pairs; with a ticket that was not given out; with a duplicate; with trailing
            // data.
            &b"\x02\x00"[..],
            b"\x02\x01\x07\x01\x00",
            b"\x00\x01\x07\x01\x01\x01f\x01v",
            b"\x02\x02\x07\x01\x01\x01f\x01v\x07\x01\x01\x01f\x01v",
            b"\x02\x01\x07\x01\x01\x01f\x01v\x00",
        ] {
            assert!(!with(unsound), "{}", unsound.escape_ascii());
        }
        // Empty texts, of which a few bytes could encode very many.
        let of_empty = |pairs: usize| {
            let mut delayed = b"\x01\x01\x07\x01".to_vec();
            wire::put_number(&mut delayed, pairs as u64);
            delayed.resize(delayed.len() + 2 * pairs, 0);
            with(&delayed)
        };
        assert!(of_empty(1_000) && !of_empty(RDB_PACKED_MAX_ITEMS / 2 + 1));
    }
}

/// Replaces the footer, so that damaged data gets past the checksum.
fn resealed(payload: &[u8]) -> Vec<u8> {
    let mut payload = payload.to_vec();
    seal(&mut payload, VERSION);
    payload
}

/// Values of all kinds; each call returns equal ones.
pub(super) fn samples(count: usize) -> Vec<Value> {
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let strategy = any_value();
    (0..count).map(|_| strategy.new_tree(&mut runner).expect("nothing is filtered for long").current().0).collect()
}

proptest! {
    #[test]
    fn dumped_values_load(Sample(value) in any_value(), small in any::<bool>()) {
        let payload = dump(&value);
        let loaded = load(&payload, &limits(small)).expect("it was just dumped");
        prop_assert_eq!(content(&loaded), content(&value));
        prop_assert_eq!(loaded.as_ref().type_name(), value.as_ref().type_name());
        for cut in [0, 1, payload.len() / 2, payload.len() - 1] {
            prop_assert_eq!(load(&payload[..cut], &limits(small)).err(), Some(Refused::Envelope));
        }
    }

    #[test]
    fn damage_is_refused_or_makes_a_sound_value(
        Sample(value) in any_value(),
        flips in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        cut in proptest::option::of(any::<prop::sample::Index>()),
    ) {
        let mut content_bytes = dump(&value);
        content_bytes.truncate(content_bytes.len() - FOOTER_BYTES);
        for (at, byte) in flips {
            let at = at.index(content_bytes.len());
            content_bytes[at] = byte;
        }
        if let Some(cut) = cut {
            content_bytes.truncate(cut.index(content_bytes.len()));
        }
        if let Ok(loaded) = load(&resealed(&content_bytes), &limits(false)) {
            let again = load(&dump(&loaded), &limits(false)).expect("it was just dumped");
            prop_assert_eq!(content(&again), content(&loaded));
            prop_assert_eq!(dump(&again).len(), dump(&loaded).len());
        }
    }

    #[test]
    fn any_bytes_are_refused_or_make_a_value(code in 0u8..30, bytes in proptest::collection::vec(any::<u8>(), 0..60)) {
        let _ = load(&resealed(&[&[code], &bytes[..]].concat()), &limits(false));
    }
}

/// Payloads returned by redis-server 7.0.15.
#[test]
fn payloads_are_those_of_redis() {
    let packed = b"\x00\xc3\x0f@A\x01aa\xe0(\x00\x01bc\xe0\x01\x02\x01bc\n\x00\xab\x00\xdd'\x89pE*";
    let repeated = format!("{}{}", "a".repeat(50), "abc".repeat(5));
    assert_eq!(load(packed, &limits(false)).map(|value| content(&value)), Ok(vec![repeated]));
    let same: [(&[u8], &[&str]); 3] = [
        (b"\x00\xc0\n\n\x00n\x9fWE\x0e\xaec\xbb", &["10"]),
        (
            b"\x11\x14\x14\x00\x00\x00\x04\x00\x81a\x02\x831.5\x04\x81b\x02\x03\x01\xff\n\x00\xe4\xdf\x12\xbe$\xfd\
              \x83V",
            &["a 1.5", "b 3.0"],
        ),
        (
            b"\x0b\x14\x04\x00\x00\x00\x03\x00\x00\x00\x01\x00\x00\x00\x02\x00\x00\x00\xe0\x93\x04\x00\n\x00t/3HHlj9",
            &["1", "2", "300000"],
        ),
    ];
    for (payload, wanted) in same {
        let value = load(payload, &limits(false)).expect("Redis made it");
        assert_eq!(
            (content(&value), dump(&value)),
            (wanted.iter().map(|text| (*text).to_owned()).collect(), payload.to_vec())
        );
    }
}

/// Payloads returned by redis-server 8.0.6.
#[test]
fn payloads_of_redis_8_load() {
    let shown = |payload: &[u8]| load(payload, &limits(false)).map(|value| content(&value));
    let set = b"\x14\x0f\x0f\x00\x00\x00\x03\x00\x81a\x02\x81b\x02\x0c\x01\xff\x0c\x00q\xc0\xca\x82zK\x13\xc6";
    assert_eq!(shown(set), Ok(["12", "a", "b"].map(str::to_owned).to_vec()));
    let stream = b"\x15\x01\x10\x00\x00\x00\x00\x00\x00\x00\x05\x00\x00\x00\x00\x00\x00\x00\x01\x1d\x1d\x00\x00\x00\n\
        \x00\x01\x01\x00\x01\x01\x01\x81f\x02\x00\x01\x02\x01\x00\x01\x00\x01\x81v\x02\x04\x01\xff\x01\x05\x01\x05\x01\
        \x00\x00\x01\x01\x01g\x05\x01\x01\x01\x00\x00\x00\x00\x00\x00\x00\x05\x00\x00\x00\x00\x00\x00\x00\x01;]\x9c\
        \xfa\xa1\x01\x00\x00\x01\x02\x01c;]\x9c\xfa\xa1\x01\x00\x00;]\x9c\xfa\xa1\x01\x00\x00\x01\x00\x00\x00\x00\x00\
        \x00\x00\x05\x00\x00\x00\x00\x00\x00\x00\x01\x04idleI]\x9c\xfa\xa1\x01\x00\x00\xff\xff\xff\xff\xff\xff\xff\xff\
        \x00\x0c\x00\x00in\n\xda)\xbdg";
    let Ok(Value::Stream(stream)) = load(stream, &limits(false)) else { panic!("it holds a stream") };
    assert_eq!((stream.len(), stream.last_id()), (1, StreamId { ms: 5, seq: 1 }));
    let group = stream.group(b"g").expect("it was created");
    let active: Vec<_> = group.consumers().map(|consumer| (consumer.name(), consumer.active_ms())).collect();
    assert_eq!(active, [(&b"c"[..], Some(1_795_205_913_915)), (b"idle", None)]);
    let once_with_times =
        b"\x19\xc0\x9f\xab\xfa\xa1\x01\x00\x00\x17\x17\x00\x00\x00\x06\x00\x81g\x02\x81w\x02\x00\x01\x81f\
        \x02\x81v\x02\x00\x01\xff\x0c\x00`3\xdf\xf1;\xd8\x05\x87";
    assert_eq!(shown(once_with_times), Ok(["f=v", "g=w"].map(str::to_owned).to_vec()));
    let fields_expire: [&[u8]; 2] = [
        b"\x19\xe0iL\xa6,\x1e\x00\x00\x1f\x1f\x00\x00\x00\x06\x00\x81f\x02\x81v\x02\xf4\xe0iL\xa6,\x1e\x00\x00\t\x81g\
         \x02\x81w\x02\x00\x01\xff\x0c\x00\x9cdb\xb8y\")q",
        b"\x18\xe5iL\xa6,\x1e\x00\x00\x02\x01\x01f\x01v\x00\x01g\xc3\t@d\x01xx\xe0W\x00\x01xx\x0c\x00Q\x84b\x11\x8b\
         \xeer\xb3",
    ];
    let at_ms = "33177117420000 33177117420005".split(' ');
    let long = "x".repeat(100);
    for ((payload, at_ms), g) in fields_expire.into_iter().zip(at_ms).zip(["w", &long]) {
        assert_eq!(shown(payload), Ok(vec![format!("f=v until {at_ms}"), format!("g={g}")]));
    }
    let small = load(fields_expire[0], &limits(false)).expect("Redis made it");
    assert_eq!(dump(&small), fields_expire[0]);
}

/// A stream without entries in the fourth or fifth version, including its type. Its group has two deliveries, one of
/// which has no owner in the fifth version. A producer has made two requests.
pub(super) fn stream_of_version(version: u8) -> Vec<u8> {
    let id = |ms: u64| (u128::from(ms) << 64).to_be_bytes();
    let mut bytes = vec![if version == 4 { 26 } else { 27 }];
    // No listpacks, length, last id, first id, largest deleted id, entries added; one group, its last id, entries read.
    bytes.extend_from_slice(&[0, 0, 9, 0, 0, 0, 0, 0, 0, 1, 1, b'g', 0, 0, 0]);
    bytes.push(2);
    for (ms, time_ms, deliveries) in [(1, 500u64, 3), (2, 0, 4)] {
        bytes.extend_from_slice(&[&id(ms)[..], &time_ms.to_le_bytes(), &[deliveries]].concat());
    }
    bytes.extend_from_slice(&[&[1, 1, b'c'][..], &600u64.to_le_bytes(), &500u64.to_le_bytes()].concat());
    match version {
        4 => bytes.extend_from_slice(&[&[2][..], &id(1), &id(2)].concat()),
        _ => bytes.extend_from_slice(&[&[1][..], &id(1), &[1], &id(2)].concat()),
    }
    // Seconds, requests per producer, producers; requests, each with its id; number ever added, number repeated.
    bytes.extend_from_slice(&[50, 7, 1, 1, b'p', 2, 1, b'a', 3, 0, 1, b'b', 4, 0, 5, 1]);
    bytes
}

/// The layouts that Redis 8.6 and 8.8 write. No server of these versions was available.
#[test]
fn streams_of_redis_8_6_and_8_8_load() {
    let decoded = |bytes: &[u8]| value::decode(bytes[0], &mut Input::new(&bytes[1..], 0), &limits(false));
    for version in [4, 5] {
        let bytes = stream_of_version(version);
        let Ok(Value::Stream(stream)) = decoded(&bytes) else { panic!("it holds a stream") };
        let group = stream.group(b"g").expect("it exists");
        let pending = group.pending_range(StreamId::MIN, StreamId::MAX);
        let pending: Vec<_> = pending.map(|one| (one.id.ms, one.consumer, one.deliveries)).collect();
        let second = if version == 4 { Some(&b"c"[..]) } else { None };
        assert_eq!(pending, [(1, Some(&b"c"[..]), 3), (2, second, 4)]);
        let memory = stream.idempotency().expect("there are producers");
        assert_eq!((memory.duration_s, memory.max_iids, memory.added(), memory.duplicates()), (50, 7, 5, 1));
        assert_eq!(memory.find(b"p", b"b", 0), Some(StreamId { ms: 4, seq: 0 }));
        assert_eq!(memory.requests().count(), 2);
        for cut in 1..bytes.len() {
            assert_eq!(decoded(&bytes[..cut]).err(), Some(Corrupt), "cut at {cut}");
        }
    }
    // Given back and yet owned by a consumer.
    let mut both = stream_of_version(5);
    let released = both.windows(16).rposition(|id| id == (2u128 << 64).to_be_bytes()).expect("it exists");
    both[released + 7] = 1;
    assert_eq!(decoded(&both).err(), Some(Corrupt));
    // Without producers and with Redis' own limits, this server's limits apply.
    let plain = [&stream_of_version(5)[..stream_of_version(5).len() - 16], &[0x40, 100, 0x40, 100, 0, 0, 0]].concat();
    let Ok(Value::Stream(stream)) = decoded(&plain) else { panic!("it holds a stream") };
    assert!(stream.idempotency().is_none());
}

#[test]
fn the_envelope_is_checked() {
    let refused = |payload: &[u8]| load(payload, &limits(false)).err();
    let good = dump(&Value::String(StringValue::new(b"text")));
    let mut newer = good[..good.len() - FOOTER_BYTES].to_vec();
    newer.extend_from_slice(&(NEWEST_VERSION + 1).to_le_bytes());
    let sum = crc64(&newer).to_le_bytes();
    newer.extend_from_slice(&sum);
    assert_eq!(refused(&newer), Some(Refused::Envelope));
    assert_eq!(refused(b""), Some(Refused::Envelope));
    assert_eq!(refused(&resealed(b"")), Some(Refused::Content));
    assert_eq!(refused(&resealed(b"\0\x01ab")), Some(Refused::Content), "a byte is left over");
}

/// Data that Redis does not write either.
#[test]
fn empty_values_and_duplicates_are_refused() {
    let cases: [(&str, &[u8]); 12] = [
        ("an empty list", b"\x01\0"),
        ("an empty set", b"\x02\0"),
        ("an empty sorted set", b"\x05\0"),
        ("an empty hash", b"\x04\0"),
        ("an empty quicklist", b"\x12\0"),
        ("a member twice", b"\x02\x02\x01a\x01a"),
        ("a field twice", b"\x04\x02\x01a\x01x\x01a\x01y"),
        ("a scored member twice", b"\x03\x02\x01a\x011\x01a\x012"),
        ("a score that is not a number", b"\x03\x01\x01a\xfd"),
        ("an integer twice", b"\x0b\x0c\x02\0\0\0\x02\0\0\0\x07\0\x07\0"),
        ("a module's value", b"\x07\x01\0"),
        ("more elements than bytes", b"\x01\x81\x7f\xff\xff\xff\xff\xff\xff\xff\x01a"),
    ];
    for (what, bytes) in cases {
        assert_eq!(load(&resealed(bytes), &limits(false)).err(), Some(Refused::Content), "{what}");
    }
}

/// Representations that are only read.
#[test]
fn older_and_newer_representations_load() {
    let listpack = |texts: &[&[u8]]| {
        let mut writer = listpack::Writer::new();
        texts.iter().for_each(|text| writer.push(text));
        let mut out = Vec::new();
        wire::put_bytes(&mut out, &writer.finish());
        out
    };
    let with = |code: u8, rest: &[u8]| [&[code], rest].concat();
    let ziplist = b"\x18\x18\0\0\0\x13\0\0\0\x04\0\0\x02ab\x04\xfe\x80\x03\xf1\x02\xc0\x2c\x01\xff";
    let mut quicklist = vec![2];
    quicklist.extend_from_slice(ziplist);
    quicklist.extend_from_slice(ziplist);
    let zipmap = b"\x0e\x02\x01f\x01\0v\x01g\x02\x01xx_\xff";
    let fields: &[&[u8]] = &[b"f", b"v", b"0", b"g", b"w", b"0"];
    let with_time = |time: &'static [u8]| [&[0; 8][..], &listpack(&[b"f", b"v", time])].concat();
    let cases: [(Vec<u8>, Option<&[&str]>); 15] = [
        (with(1, b"\x02\x01a\xc0\x05"), Some(&["a", "5"])),
        (with(10, ziplist), Some(&["ab", "-128", "0", "300"])),
        (with(14, &quicklist), Some(&["ab", "-128", "0", "300", "ab", "-128", "0", "300"])),
        (with(13, ziplist), Some(&["0=300", "ab=-128"])),
        (with(12, ziplist), Some(&["ab -128.0", "0 300.0"])),
        (with(9, zipmap), Some(&["f=v", "g=xx"])),
        (with(3, b"\x02\x01a\x031.5\x01b\xff"), Some(&["b -inf", "a 1.5"])),
        (with(20, &listpack(&[b"b", b"7"])), Some(&["7", "b"])),
        (with(18, &[&[1, 1][..], b"\x03abc"].concat()), Some(&["abc"])),
        (with(24, &[&[9; 8][..], b"\x01\0\x01f\x01v"].concat()), Some(&["f=v"])),
        (with(24, &[&[9, 0, 0, 0, 0, 0, 0, 0][..], b"\x01\x02\x01f\x01v"].concat()), Some(&["f=v until 10"])),
        (with(24, &[&[9; 8][..], b"\x01\x01\x01f\x01v"].concat()), None),
        (with(25, &[&[0; 8][..], &listpack(fields)].concat()), Some(&["f=v", "g=w"])),
        (with(25, &with_time(b"0")), Some(&["f=v"])),
        (with(25, &with_time(b"99")), Some(&["f=v until 99"])),
    ];
    for (bytes, wanted) in cases {
        let loaded = load(&resealed(&bytes), &limits(false)).ok().map(|value| content(&value));
        assert_eq!(loaded, wanted.map(|texts| texts.iter().map(|text| (*text).to_owned()).collect()), "{bytes:?}");
    }
}

#[test]
fn shared_names_are_not_repeated_endlessly() {
    let mut node = listpack::Writer::new();
    let name = vec![b'n'; 1 << 20];
    let entries = 2_000;
    [entries, 0, 1].iter().for_each(|value| node.push_int(*value));
    node.push(&name);
    node.push_int(0);
    for at in 0..entries {
        [2, at + 1, 0, 5, 4].iter().for_each(|value| node.push_int(*value));
    }
    let mut bytes = vec![21, 1];
    wire::put_bytes(&mut bytes, &[0; 16]);
    wire::put_bytes(&mut bytes, &node.finish());
    let budget = |max| {
        let mut input = Input::new(&bytes[1..], max);
        value::decode(21, &mut input, &limits(false)).err()
    };
    assert_eq!(budget(100 << 20), Some(Corrupt));
}

/// Names may be packed, so that a short payload can hold long ones. They are looked up once, not for every pending
/// entry; otherwise this would take minutes.
#[test]
fn long_names_of_groups_and_consumers_cost_nothing_for_each_entry() {
    const NAME_BYTES: usize = 32 << 20;
    const ENTRIES: u64 = 20_000;
    // Version 3, no listpacks, length, last id, first id, largest deleted id, entries added; one group.
    let mut bytes = vec![21, 0, 0, 9, 0, 0, 0, 0, 0, 0, 1];
    let name = vec![b'n'; NAME_BYTES];
    wire::put_bytes(&mut bytes, &name);
    bytes.extend_from_slice(&[0, 0, 0]);
    wire::put_number(&mut bytes, ENTRIES);
    let ids = || (0..ENTRIES).map(|ms| (u128::from(ms) << 64).to_be_bytes());
    ids().for_each(|id| bytes.extend_from_slice(&[&id[..], &[0; 9]].concat()));
    bytes.push(1);
    wire::put_bytes(&mut bytes, &name);
    bytes.extend_from_slice(&[0; 16]);
    wire::put_number(&mut bytes, ENTRIES);
    ids().for_each(|id| bytes.extend_from_slice(&id));
    let begun = std::time::Instant::now();
    let Ok(Value::Stream(stream)) = value::decode(21, &mut Input::new(&bytes[1..], 0), &limits(false)) else {
        panic!("it holds a stream")
    };
    let (_, group) = stream.groups().next().expect("it has a group");
    assert_eq!(
        (group.pending_len() as u64, group.consumers().map(|c| c.pending_len() as u64).sum()),
        (ENTRIES, ENTRIES)
    );
    assert!(begun.elapsed().as_secs() < 20, "{:?}", begun.elapsed());
}
