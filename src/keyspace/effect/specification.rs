//! Keeps `docs/effects.md` correct: its list must match the declaration, with an encoded example of each effect.

use super::{Cause, Effect, EffectReader, EffectWriter};
use crate::value::Layout;
use crate::value::grants::Kind;
use crate::value::stock::Memory;
use crate::value::stream::StreamId;

/// A declared effect.
struct Declared {
    code: u8,
    name: &'static str,
    meaning: &'static [&'static str],
    has_key: bool,
    roles: &'static str,
    /// Names and types of the fields except the key.
    fields: &'static [(&'static str, &'static str)],
}

macro_rules! list {
    ($(
        $(#[doc = $doc:literal])*
        $code:literal $name:ident $(($key:ident))? $family:ident
        $roles:tt
        { $($field:ident : $type:ty),* $(,)? }
    )*) => {
        const DECLARED: &[Declared] = &[$(Declared {
            code: $code,
            name: stringify!($name),
            meaning: &[$($doc),*],
            has_key: !stringify!($($key)?).is_empty(),
            roles: stringify!($roles),
            fields: &[$((stringify!($field), stringify!($type))),*],
        }),*];
    };
}
super::for_each_effect!(list);

impl Declared {
    /// The effect's paragraph in the document.
    fn text(&self, example: &Effect<'_>) -> String {
        let key = self.has_key.then(|| "key".to_owned());
        let fields = self.fields.iter().map(|(name, kind)| format!("{name}: {}", kind_in_words(kind)));
        let fields: Vec<String> = key.into_iter().chain(fields).collect();
        let roles = self.roles.trim_matches(['[', ']']).to_lowercase();
        let roles = if roles.is_empty() { "no key".to_owned() } else { roles };
        let meaning: Vec<&str> = self.meaning.iter().map(|line| line.trim()).collect();
        let hex: Vec<String> = encoded(example).iter().map(|byte| format!("{byte:02x}")).collect();
        let (_, values) = example.describe();
        let values: Vec<String> = values.iter().map(|(name, value)| format!("{name} = {}", value.spelled())).collect();
        let values = if values.is_empty() { "no fields".to_owned() } else { values.join(", ") };
        format!(
            "{} {}({})   {roles}\n    {}\n    {}   {values}\n",
            self.code,
            self.name,
            fields.join(", "),
            meaning.join("\n    "),
            hex.join(" "),
        )
    }
}

impl super::Shown<'_> {
    fn spelled(&self) -> String {
        match self {
            super::Shown::Bytes(bytes) => format!("\"{}\"", bytes.escape_ascii()),
            super::Shown::Integer(value) => value.to_string(),
            super::Shown::Double(value) => format!("{value:?}"),
            super::Shown::Id(id) => format!("{}-{}", id.ms, id.seq),
            super::Shown::Nothing => "nothing".to_owned(),
        }
    }
}

fn kind_in_words(kind: &str) -> &'static str {
    match kind.replace(' ', "").as_str() {
        "&'a[u8]" => "bytes",
        "u16" | "u32" | "u64" => "number",
        "i64" => "i64",
        "f64" => "f64",
        "bool" => "bool",
        "StreamId" => "id",
        "Option<u64>" => "optional number",
        "Cause" => "cause",
        "Layout" => "layout",
        "Kind" => "kind",
        "Memory" => "memory",
        other => panic!("say what {other} is"),
    }
}

fn encoded(effect: &Effect<'_>) -> Vec<u8> {
    let mut out = EffectWriter::default();
    out.write(0, effect);
    out.into_bytes()
}

/// One example of each effect, in the order of declaration.
fn examples() -> Vec<Effect<'static>> {
    let key: &[u8] = b"k";
    let (group, consumer): (&[u8], &[u8]) = (b"g", b"c");
    let id = StreamId { ms: 300, seq: 1 };
    let cause = Cause::Command;
    vec![
        Effect::Put { key, value: b"v" },
        Effect::Replace { key, value: b"w" },
        Effect::Del { key, cause: Cause::Expiry },
        Effect::ExpireAt { key, at_ms: 1_000 },
        Effect::SetRange { key, offset: 300, bytes: b"v" },
        Effect::Rename { key, to: b"l" },
        Effect::Copy { key, to_db: 3, to: b"l" },
        Effect::Move { key, to_db: 3 },
        Effect::Flush {},
        Effect::Swap { with_db: 3 },
        // ListPush, front: false, value: "v".
        Effect::Build { key, layout: Layout::Compact, steps: b"\x28\x00\x00\x00\x01v" },
        Effect::Relayout { key, layout: Layout::Large },
        Effect::Limits {
            hash_entries: 512,
            hash_value: 64,
            set_integers: 512,
            set_entries: 128,
            set_value: 64,
            zset_entries: 128,
            zset_value: 64,
            list_size: -2,
            stream_bytes: 4096,
            stream_entries: 100,
        },
        Effect::SetInteger { key, value: -7 },
        Effect::SetText { key, value: b"10" },
        Effect::Splice { key, offset: 1, removed: 2, bytes: b"v" },
        // HashSet, field: "f", value: "v".
        Effect::Part { fresh: true, layout: Layout::Large, steps: b"\x14\x00\x00\x01f\x01v" },
        Effect::Complete { key, layout: Layout::Large, at_ms: i64::MAX },
        Effect::Expect { keys: 300 },
        Effect::HashSet { key, field: b"f", value: b"v" },
        Effect::HashRemove { key, field: b"f", cause, emptied: true },
        Effect::HashUpdate { key, field: b"f", value: b"w" },
        Effect::ElementExpireAt { key, element: b"f", at_ms: i64::MAX },
        Effect::SetAdd { key, member: b"m" },
        Effect::SetRemove { key, member: b"m", cause: Cause::Expiry, emptied: false },
        Effect::ListPush { key, front: true, value: b"v" },
        Effect::ListPop { key, front: false, count: 2, emptied: true },
        Effect::ListSet { key, index: 1, value: b"v", first: false },
        Effect::ListInsert { key, index: 1, value: b"v", first: true },
        Effect::ListRemove { key, value: b"v", count: 1, from_back: true, emptied: false },
        Effect::ListRotate { key, from_front: false, to_front: true },
        Effect::ListNode { key, elements: b"\x01v\x01w" },
        Effect::ListRemoveAt { key, indexes: b"\x01\x02" },
        Effect::ZSetAdd { key, member: b"m", score: 1.5 },
        Effect::ZSetRemove { key, member: b"m", emptied: false },
        Effect::ZSetRemoveRanks { key, start: 0, end: 2, emptied: true },
        Effect::StreamCreate { key },
        Effect::StreamAppend { key, id, pairs: b"\x01f\x01v" },
        Effect::StreamDelete { key, id },
        Effect::StreamTrim { key, through: id },
        Effect::StreamCounters { key, last_id: id, entries_added: 5, max_deleted_id: StreamId::MIN },
        Effect::GroupCreate { key, group, last_delivered: id, entries_read: Some(5) },
        Effect::GroupDestroy { key, group },
        Effect::GroupSetId { key, group, last_delivered: id, entries_read: None },
        Effect::ConsumerCreate { key, group, consumer, at_ms: 1_000 },
        Effect::ConsumerDelete { key, group, consumer },
        Effect::ConsumerSeen { key, group, consumer, at_ms: 1_000, active: true },
        Effect::PendingSet { key, group, consumer, id, time_ms: 1_000, deliveries: 1 },
        Effect::PendingAck { key, group, id },
        Effect::PendingRelease { key, group, id, deliveries: 1 },
        Effect::RequestLimits { key, duration_s: 60, max_iids: 100 },
        Effect::RequestAdd { key, producer: b"p", iid: b"i", id },
        Effect::RequestForget { key, producer: b"p", count: 1 },
        Effect::RequestRepeated { key },
        // Nothing was released; the consumer "c", seen at 1,000 and never active, has 300-1 since 1,000, delivered
        // once.
        Effect::GroupAdd {
            key,
            group,
            last_delivered: id,
            entries_read: None,
            content: b"\x00\x01c\xe8\x07\x00\x00\x06\xd8\x04\x02\xd0\x0f\x01",
        },
        Effect::RequestCounters { key, added: 5, duplicates: 1 },
        // The first consumer, "c", has 300-1 since 1,000, delivered once; no consumer has 301-1, delivered twice.
        Effect::PendingAdd {
            key,
            group,
            consumers: b"\x01c",
            deliveries: b"\x01\xd8\x04\x02\xd0\x0f\x01\x00\x02\x00\xcf\x0f\x02",
        },
        Effect::GroupPolicy {
            key,
            group,
            idle_ms: 30_000,
            max_deliveries: 5,
            dead_letters: b"d",
            backoff_base_ms: 1_000,
            backoff_max_ms: 60_000,
        },
        Effect::PendingHold { key, group, id, until_ms: 1_000 },
        Effect::StreamDelay { key, id, pairs: b"\x01f\x01v" },
        Effect::StreamCancel { key, id },
        Effect::StreamRelease { key, id, as_id: StreamId { ms: 301, seq: 0 } },
        Effect::StreamTickets { key, last: 300 },
        Effect::ScriptPut { body: b"return 1", loaded: true },
        Effect::ScriptDrop { sha1: b"e0e1f9fabfc9d4800c877a703b823ac0578ff8db" },
        Effect::ScriptFlush {},
        Effect::LibraryPut { code: b"#!lua name=l\n" },
        Effect::LibraryDelete { name: b"l" },
        Effect::LibraryFlush {},
        Effect::GrantsCreate { key, kind: Kind::Gate, limit: 60, fixed: false },
        Effect::GrantSet {
            key,
            holder: b"h",
            token: 300,
            units: 1,
            since_ms: 1_000,
            until_ms: 31_000,
            entered: 1,
            shared: false,
            note: b"n",
        },
        Effect::GrantEnd { key, holder: b"h", token: 300, cause: Cause::Expiry, emptied: false },
        Effect::GrantsLimit { key, limit: 10, fixed: true },
        Effect::Tokens { last: 300 },
        Effect::StockSet {
            key,
            total: 500,
            sold: 20,
            low: 10,
            refill_ms: 5_000,
            period_ms: 0,
            stream: b"s",
            refiller: b"o",
            refill_until_ms: 6_000,
        },
        Effect::StockAdd { key, id: b"i", units: 300, at_ms: 1_000 },
        Effect::StockSold { key, order: b"o", token: 300, at_ms: 1_000 },
        Effect::StockNote { key, memory: Memory::Buyers, name: b"u", units: 2, at_ms: 1_000 },
        Effect::TokensRaise { to: 300 },
        Effect::HandoverReceive { from: b"old:6379", history: b"1f2e", last: 300, complete: true, given: false },
        Effect::HandoverGive { to: b"new:6379" },
        Effect::HandoverEnd { history: b"1f2e", last: 300 },
    ]
}

#[test]
fn the_document_matches_the_declarations() {
    let (document, examples) = (include_str!("../../../docs/effects.md"), examples());
    assert_eq!(examples.len(), DECLARED.len());
    let paragraphs: Vec<String> =
        DECLARED.iter().zip(&examples).map(|(declared, example)| declared.text(example)).collect();
    let list = paragraphs.join("\n");
    assert!(document.contains(&format!("```text\n{list}```\n")), "docs/effects.md should have\n```text\n{list}```");
}

#[test]
fn each_effect_reads_back_whole_or_not_at_all() {
    for (declared, effect) in DECLARED.iter().zip(examples()) {
        assert_eq!(
            (declared.name, declared.code),
            (effect.describe().0, effect.code_and_key().0),
            "the examples are in order"
        );
        let bytes = encoded(&effect);
        assert_eq!(EffectReader::new(&bytes).collect::<Vec<_>>(), [(0, effect)]);
        for cut in 0..bytes.len() {
            let mut reader = EffectReader::new(&bytes[..cut]);
            assert_eq!((reader.next(), reader.is_empty()), (None, cut == 0), "{effect:?}, {cut} bytes");
        }
    }
}

#[test]
fn the_same_key_is_named_once() {
    let mut out = EffectWriter::default();
    let long = [b'k'; 1_000];
    let hash_set = Effect::HashSet { key: &long, field: b"f", value: b"v" };
    let effects = [(300, hash_set), (300, hash_set), (300, Effect::Flush {}), (300, hash_set), (301, hash_set)];
    effects.iter().for_each(|(db, effect)| out.write(*db, effect));
    let bytes = out.into_bytes();
    assert_eq!(EffectReader::new(&bytes).collect::<Vec<_>>(), effects);
    assert_eq!(bytes.len(), 2 * (1 + 2 + 2 + 1_000 + 4) + 2 * 5 + 3);
    // No earlier effect has a key; and an effect without a key cannot repeat one.
    for bytes in [&b"\xbc"[..], b"\x3c\x00\x01k\x89"] {
        let mut reader = EffectReader::new(bytes);
        assert!(reader.by_ref().count() < 2 && !reader.is_empty());
    }
}
