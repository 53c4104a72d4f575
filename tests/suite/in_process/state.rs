//! The data of an engine, for comparison with another engine's: as values, which is cheap. It is turned into text only
//! to show a difference.

use std::borrow::Cow;
use std::fmt;

use tidegate::keyspace::Keyspace;
use tidegate::keyspace::any_value::ValueRef;
use tidegate::keyspace::entry::Entry as KeyEntry;
use tidegate::value::grants::{Grant, Grants};
use tidegate::value::packed::Item;
use tidegate::value::stock::{Memory, Remembered, Stock, Terms};
use tidegate::value::stream::{Entry, Group, Pending, Policy, Stream, StreamId};

/// The detail of a value's description.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Told {
    /// All of the value's state.
    Everything,
    /// Only the state that clients can see.
    Seen,
}

/// All keys of all databases that have any.
#[derive(PartialEq)]
pub(crate) struct State<'a>(Vec<Database<'a>>);

#[derive(PartialEq)]
struct Database<'a> {
    number: u16,
    /// Keys, keys with a deadline, and keys whose elements have deadlines.
    counts: (usize, usize, usize),
    /// Sorted by name.
    keys: Vec<Key<'a>>,
}

/// A key with all of its data.
#[derive(PartialEq)]
struct Key<'a> {
    name: &'a [u8],
    kind: &'static str,
    encoding: &'static str,
    expires_at_ms: Option<i64>,
    content: Content<'a>,
}

#[derive(PartialEq, Debug)]
enum Content<'a> {
    String(Bytes<'a>),
    /// With its nodes, since a list's later layout depends on them.
    List(Vec<Vec<Bytes<'a>>>),
    /// Members with the bits of their scores.
    ZSet(Vec<(Bytes<'a>, u64)>),
    /// Members, or fields and values, each with its deadline.
    Elements(Vec<(Element<'a>, Option<Element<'a>>, Option<i64>)>),
    Grants(GrantsState<'a>),
    Stream(StreamState<'a>),
}

/// An element of a set or a hash. If only client-visible state counts, numbers are kept as bytes.
#[derive(PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Element<'a> {
    Int(i64),
    Bytes(Bytes<'a>),
}

/// Bytes, readable if they are text.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Bytes<'a>(Cow<'a, [u8]>);

impl<'a> From<&'a [u8]> for Bytes<'a> {
    fn from(bytes: &'a [u8]) -> Bytes<'a> {
        Bytes(Cow::Borrowed(bytes))
    }
}

impl fmt::Debug for Bytes<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0.escape_ascii())
    }
}

#[derive(PartialEq, Debug)]
struct GrantsState<'a> {
    limit: u64,
    is_fixed: bool,
    grants: Vec<Grant<'a>>,
    /// The data of a stock beside its holds.
    stock: Option<(&'a Terms, [Memories<'a>; Memory::ALL.len()])>,
}

/// A stock's memories, by name.
type Memories<'a> = Vec<(Bytes<'a>, Remembered)>;

type Pairs<'a> = Vec<(Bytes<'a>, Bytes<'a>)>;

/// The client-visible state of a stream. Its nodes and the internal numbers of its consumers depend on how it was made,
/// so they are included only if requested.
#[derive(PartialEq, Debug)]
struct StreamState<'a> {
    entries: Vec<(StreamId, Pairs<'a>)>,
    last_id: StreamId,
    max_deleted_id: StreamId,
    entries_added: u64,
    groups: Vec<(Bytes<'a>, GroupState<'a>)>,
    requests: Option<String>,
    delayed: Vec<(StreamId, Pairs<'a>)>,
    delay_tickets: u64,
    /// Its internal state, if requested.
    inside: Option<Inside<'a>>,
}

#[derive(PartialEq, Debug)]
struct GroupState<'a> {
    last_delivered: StreamId,
    entries_read: Option<u64>,
    /// Names, when they were seen, and when they were active.
    consumers: Vec<(Bytes<'a>, u64, Option<u64>)>,
    pending: Vec<Pending<'a>>,
    in_turn: Vec<StreamId>,
    policy: Option<&'a Policy>,
    first_due_ms: Option<u64>,
    due: Vec<StreamId>,
    exhausted: Vec<StreamId>,
}

impl<'a> State<'a> {
    pub(super) fn of(ks: &'a Keyspace, told: Told) -> State<'a> {
        let database = |number: u16| {
            let db = ks.db(number);
            if db.is_empty() {
                return None;
            }
            let mut keys: Vec<Key<'_>> = ks.entries(number).map(|entry| Key::of(entry, ks.now_ms(), told)).collect();
            keys.sort_unstable_by_key(|key| key.name);
            Some(Database { number, counts: (db.len(), db.volatile(), db.partly_volatile()), keys })
        };
        State((0..ks.databases()).filter_map(database).collect())
    }
}

impl<'a> Key<'a> {
    fn of(entry: KeyEntry<'a>, now_ms: i64, told: Told) -> Key<'a> {
        let value = entry.value();
        Key {
            name: entry.key(),
            kind: value.type_name(),
            encoding: value.encoding(),
            expires_at_ms: entry.expires_at_ms(),
            content: Content::of(value, now_ms, told),
        }
    }
}

impl<'a> Content<'a> {
    fn of(value: ValueRef<'a>, now_ms: i64, told: Told) -> Content<'a> {
        match value {
            ValueRef::String(text) => Content::String(Bytes(text.text())),
            ValueRef::List(list) => Content::List(list.nodes().map(|node| node.map(Bytes::from).collect()).collect()),
            ValueRef::ZSet(zset) => {
                Content::ZSet(zset.iter().map(|(member, score)| (member.into(), score.to_bits())).collect())
            }
            ValueRef::Stream(stream) => Content::Stream(StreamState::of(stream, told)),
            ValueRef::Grants(grants) => Content::Grants(GrantsState::of(grants, now_ms)),
            ValueRef::Set(set) => {
                let members = set.iter().map(|member| (member, None));
                Content::elements(members, value, now_ms, told)
            }
            ValueRef::Hash(hash) => {
                let fields = hash.iter().map(|(field, value)| (field, Some(value)));
                Content::elements(fields, value, now_ms, told)
            }
        }
    }

    fn elements(
        elements: impl Iterator<Item = (Item<'a>, Option<Item<'a>>)>,
        value: ValueRef<'a>,
        now_ms: i64,
        told: Told,
    ) -> Content<'a> {
        let shown = |item: Item<'a>| match (told, item) {
            (Told::Seen, item) => Element::Bytes(Bytes(Cow::Owned(item.to_vec()))),
            (Told::Everything, Item::Int(number)) => Element::Int(number),
            (Told::Everything, Item::Bytes(bytes)) => Element::Bytes(bytes.into()),
        };
        let until_ms = |element: Item<'_>| value.deadlines().and_then(|deadlines| deadlines.at(&element.to_vec()));
        let mut elements: Vec<_> = elements
            .map(|(element, of_it)| (shown(element), of_it.map(shown), until_ms(element)))
            .filter(|(.., until_ms)| until_ms.is_none_or(|until_ms| until_ms > now_ms))
            .collect();
        // A hash table's elements have no order.
        if value.encoding() == "hashtable" {
            elements.sort_unstable();
        }
        Content::Elements(elements)
    }
}

impl<'a> GrantsState<'a> {
    fn of(grants: &'a Grants, now_ms: i64) -> GrantsState<'a> {
        let memories = |stock: &'a Stock| {
            Memory::ALL
                .map(|memory| stock.memory_from(memory, 0).map(|(_, name, of_it)| (name.into(), of_it)).collect())
        };
        GrantsState {
            limit: grants.limit(),
            is_fixed: grants.is_fixed(),
            grants: grants.from(0).filter(|grant| grant.until_ms > now_ms).collect(),
            stock: grants.stock().map(|stock| (&stock.terms, memories(stock))),
        }
    }
}

impl<'a> StreamState<'a> {
    fn of(stream: &'a Stream, told: Told) -> StreamState<'a> {
        let content =
            |entry: Entry<'a>| (entry.id, entry.pairs.map(|(name, value)| (name.into(), value.into())).collect());
        StreamState {
            entries: stream.range(FIRST, LAST).map(content).collect(),
            last_id: stream.last_id(),
            max_deleted_id: stream.max_deleted_id(),
            entries_added: stream.entries_added(),
            groups: stream.groups().map(|(name, group)| (name.into(), GroupState::of(group))).collect(),
            // A slab shows its content only in its debug output.
            requests: stream.idempotency().map(|requests| format!("{requests:#?}").split_whitespace().collect()),
            delayed: stream.delayed_from(FIRST).map(content).collect(),
            delay_tickets: stream.delay_tickets(),
            inside: (told == Told::Everything).then_some(Inside(stream)),
        }
    }
}

const FIRST: StreamId = StreamId { ms: 0, seq: 0 };
const LAST: StreamId = StreamId { ms: u64::MAX, seq: u64::MAX };

impl<'a> GroupState<'a> {
    fn of(group: &'a Group) -> GroupState<'a> {
        let consumers = group.consumers();
        GroupState {
            last_delivered: group.last_delivered(),
            entries_read: group.entries_read(),
            consumers: consumers.map(|own| (own.name().into(), own.seen_ms(), own.active_ms())).collect(),
            pending: group.pending_range(FIRST, LAST).collect(),
            in_turn: group.delivered_until(Some(u64::MAX)).map(|pending| pending.id).collect(),
            policy: group.policy(),
            first_due_ms: group.first_due_ms(),
            due: group.due_until(u64::MAX).map(|pending| pending.id).collect(),
            exhausted: group.exhausted_until(u64::MAX).collect(),
        }
    }
}

/// All of a stream's internal state.
struct Inside<'a>(&'a Stream);

impl Inside<'_> {
    /// Whether the stream has had nothing but entries.
    fn is_plain(&self) -> bool {
        self.0.groups().len() == 0 && self.0.idempotency().is_none() && self.0.delay_tickets() == 0
    }
}

impl PartialEq for Inside<'_> {
    fn eq(&self, other: &Inside<'_>) -> bool {
        self.0.is_laid_out_as(other.0)
            && self.0.len() == other.0.len()
            && (self.is_plain() && other.is_plain() || format!("{self:?}") == format!("{other:?}"))
    }
}

/// Without the spare room of tables.
impl fmt::Debug for Inside<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = format!("{:?}", self.0);
        let mut parts = text.split(", cap: ");
        parts.next().map_or(Ok(()), |first| f.write_str(first))?;
        parts.try_for_each(|part| f.write_str(part.trim_start_matches(|c: char| c.is_ascii_digit())))
    }
}

/// A key a line.
impl fmt::Display for State<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for Database { number, counts, keys } in &self.0 {
            writeln!(f, "db {number}: keys, volatile, partly: {counts:?}")?;
            keys.iter().try_for_each(|key| writeln!(f, "{key}"))?;
        }
        Ok(())
    }
}

impl fmt::Display for Key<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Key { name, kind, encoding, expires_at_ms, content } = self;
        write!(f, "{}: {kind} {encoding} until {expires_at_ms:?} {content:?}", name.escape_ascii())
    }
}
