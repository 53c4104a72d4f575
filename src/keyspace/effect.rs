//! Effects: every change of the keyspace as data.
//!
//! A verb applies one change and records it here, encoded from borrowed bytes into one buffer. Whoever must know of change
//! reads this stream: WATCH, waiting clients, and whatever keeps the data or copies it elsewhere. Replaying the stream into
//! an empty keyspace gives the same keyspace, without commands, scripts or a clock.
//!
//! The scripts and libraries that are kept beside the keys change in the same stream; their owner records and repeats that
//! (`engine::scripts`). Such effects have no key, and their database means nothing.
//!
//! Layout: one byte that says which effect, two bytes of database number, then the fields in order. Numbers are
//! little-endian, byte strings carry their length as a varint. The list below is the only place that names an effect.

use std::collections::{BTreeSet, HashSet};

use crate::base::limits::{SCRATCH_KEEP_BYTES, TOUCHES_MAX_BYTES};
use crate::value::leb128::{bytes_len, put_number};
use crate::value::stream::StreamId;

/// A value that stands in an effect.
pub trait Field<'a>: Sized {
    /// Appends the encoded value.
    fn put(&self, out: &mut Vec<u8>);
    /// Takes an encoded value off the front; `None` when the bytes end or make no sense.
    fn take(input: &mut &'a [u8]) -> Option<Self>;
    /// The value for people.
    fn shown(&self) -> Shown<'a>;
}

/// A field of an effect, for people.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Shown<'a> {
    /// A byte string.
    Bytes(&'a [u8]),
    /// A count, a time, or a truth value as 0 or 1.
    Integer(i64),
    /// A score.
    Double(f64),
    /// An entry of a stream.
    Id(StreamId),
    /// It is not known.
    Nothing,
}

impl<'a> Field<'a> for StreamId {
    fn put(&self, out: &mut Vec<u8>) {
        self.ms.put(out);
        self.seq.put(out);
    }
    fn take(input: &mut &'a [u8]) -> Option<Self> {
        Some(StreamId { ms: u64::take(input)?, seq: u64::take(input)? })
    }
    fn shown(&self) -> Shown<'a> {
        Shown::Id(*self)
    }
}

impl<'a> Field<'a> for Option<u64> {
    fn put(&self, out: &mut Vec<u8>) {
        self.is_some().put(out);
        self.unwrap_or(0).put(out);
    }
    fn take(input: &mut &'a [u8]) -> Option<Self> {
        let is_known = bool::take(input)?;
        let value = u64::take(input)?;
        Some(is_known.then_some(value))
    }
    fn shown(&self) -> Shown<'a> {
        self.map_or(Shown::Nothing, |value| value.shown())
    }
}

/// Byte strings in pairs inside one field: each with its length, one behind the other.
#[derive(Clone, Copy, Debug)]
pub struct Pairs<'a> {
    rest: &'a [u8],
}

impl<'a> Pairs<'a> {
    /// Reads what [`put`](Self::put) wrote.
    pub fn new(encoded: &'a [u8]) -> Pairs<'a> {
        Pairs { rest: encoded }
    }

    /// Appends one pair.
    pub fn put(out: &mut Vec<u8>, first: &'a [u8], second: &'a [u8]) {
        first.put(out);
        second.put(out);
    }
}

impl<'a> Iterator for Pairs<'a> {
    type Item = (&'a [u8], &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        Some((Field::take(&mut self.rest)?, Field::take(&mut self.rest)?))
    }
}

macro_rules! fixed_width {
    ($($type:ident as $shown:ident($as:ty)),*) => {$(
        impl<'a> Field<'a> for $type {
            #[inline]
            fn put(&self, out: &mut Vec<u8>) {
                out.extend_from_slice(&self.to_le_bytes());
            }
            #[inline]
            fn take(input: &mut &'a [u8]) -> Option<Self> {
                let (bytes, rest) = input.split_first_chunk()?;
                *input = rest;
                Some(<$type>::from_le_bytes(*bytes))
            }
            fn shown(&self) -> Shown<'a> {
                Shown::$shown(*self as $as)
            }
        }
    )*};
}
fixed_width!(
    u8 as Integer(i64),
    u16 as Integer(i64),
    u32 as Integer(i64),
    u64 as Integer(i64),
    i64 as Integer(i64),
    f64 as Double(f64)
);

impl<'a> Field<'a> for bool {
    fn put(&self, out: &mut Vec<u8>) {
        out.push(u8::from(*self));
    }
    fn take(input: &mut &'a [u8]) -> Option<Self> {
        match u8::take(input)? {
            0 => Some(false),
            1 => Some(true),
            _ => None,
        }
    }
    fn shown(&self) -> Shown<'a> {
        Shown::Integer(i64::from(*self))
    }
}

/// A number of seven bits per byte, least significant first; the top bit of a byte says that another one follows.
pub struct Varint(pub u64);

impl<'a> Field<'a> for Varint {
    #[inline]
    fn put(&self, out: &mut Vec<u8>) {
        put_number(out, self.0);
    }
    fn take(input: &mut &'a [u8]) -> Option<Self> {
        let mut value = 0;
        for shift in (0..u64::BITS).step_by(7) {
            let byte = u8::take(input)?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Some(Varint(value));
            }
        }
        None
    }
    fn shown(&self) -> Shown<'a> {
        self.0.shown()
    }
}

impl<'a> Field<'a> for &'a [u8] {
    #[inline]
    fn put(&self, out: &mut Vec<u8>) {
        Varint(self.len() as u64).put(out);
        out.extend_from_slice(self);
    }
    fn take(input: &mut &'a [u8]) -> Option<Self> {
        let Varint(len) = Varint::take(input)?;
        let (bytes, rest) = input.split_at_checked(usize::try_from(len).ok()?)?;
        *input = rest;
        Some(bytes)
    }
    fn shown(&self) -> Shown<'a> {
        Shown::Bytes(self)
    }
}

/// Declares the effects once: the enum, its encoding and its decoding.
macro_rules! effects {
    ($($(#[$doc:meta])* $code:literal $name:ident { $($field:ident : $type:ty),* $(,)? })*) => {
        /// One change of one database. The codes are part of the stream's format: never reuse one.
        #[derive(Clone, Copy, Debug, PartialEq)]
        pub enum Effect<'a> {
            $($(#[$doc])* $name { $(#[allow(missing_docs)] $field: $type),* },)*
        }

        impl<'a> Effect<'a> {
            /// Appends the encoded effect on database `db`.
            #[inline]
            pub fn encode(&self, db: u16, out: &mut Vec<u8>) {
                match self {
                    $(Effect::$name { $($field),* } => {
                        out.push($code);
                        db.put(out);
                        $($field.put(out);)*
                    })*
                }
            }

            /// Its name, and its fields with theirs, for people.
            pub fn describe(&self) -> (&'static str, Vec<(&'static str, Shown<'a>)>) {
                match self {
                    $(Effect::$name { $($field),* } => {
                        (stringify!($name), vec![$((stringify!($field), $field.shown())),*])
                    })*
                }
            }

            /// Takes one effect and its database off the front of `input`; `None` when the bytes make no sense.
            pub fn decode(input: &mut &'a [u8]) -> Option<(u16, Effect<'a>)> {
                let code = u8::take(input)?;
                let db = u16::take(input)?;
                Some((db, match code {
                    $($code => Effect::$name { $($field: Field::take(input)?),* },)*
                    _ => return None,
                }))
            }
        }
    };
}

effects! {
    /// The key holds this string and never expires, whatever was there before.
    1 Put { key: &'a [u8], value: &'a [u8] }
    /// The key holds this string; its expiry stays.
    2 Replace { key: &'a [u8], value: &'a [u8] }
    /// The key is gone.
    3 Del { key: &'a [u8] }
    /// The key expires at this Unix time in milliseconds; `i64::MAX`: never.
    4 ExpireAt { key: &'a [u8], at_ms: i64 }
    /// The string has these bytes from this offset on, zeroes before when it was shorter.
    5 SetRange { key: &'a [u8], offset: u64, bytes: &'a [u8] }
    /// The value and expiry moved to another key, replacing what was there.
    6 Rename { key: &'a [u8], to: &'a [u8] }
    /// The value and expiry are copied to a key of a database, replacing what was there.
    7 Copy { key: &'a [u8], to_db: u16, to: &'a [u8] }
    /// The key moved to another database, where it did not exist.
    8 Move { key: &'a [u8], to_db: u16 }
    /// The database is empty.
    9 Flush {}
    /// The database and another changed places.
    10 Swap { with_db: u16 }
    /// The key holds the value that these effects, encoded one behind another, make of nothing under a key without a name;
    /// it never expires, whatever was there before.
    11 Build { key: &'a [u8], steps: &'a [u8] }

    /// The field of the hash has this value and never expires; field and hash may be new.
    20 HashSet { key: &'a [u8], field: &'a [u8], value: &'a [u8] }
    /// The field is gone from the hash, and the key with the last one.
    21 HashRemove { key: &'a [u8], field: &'a [u8] }
    /// The field, which is there, has this value; its deadline stays.
    22 HashUpdate { key: &'a [u8], field: &'a [u8], value: &'a [u8] }

    /// The member is in the set, which may be new.
    30 SetAdd { key: &'a [u8], member: &'a [u8] }
    /// The member is gone from the set, and the key with the last one.
    31 SetRemove { key: &'a [u8], member: &'a [u8] }
    /// The key holds a set of these members, each behind its length as fields are, and never expires.
    32 SetPut { key: &'a [u8], members: &'a [u8] }
    /// A list got an element at its front or back; the key is created if it was absent.
    40 ListPush { key: &'a [u8], front: bool, value: &'a [u8] }
    /// A list lost so many elements at its front or back.
    41 ListPop { key: &'a [u8], front: bool, count: u64 }
    /// The element at this index of a list is replaced.
    42 ListSet { key: &'a [u8], index: u64, value: &'a [u8] }
    /// A list got an element before this index.
    43 ListInsert { key: &'a [u8], index: u64, value: &'a [u8] }
    /// A list lost so many elements equal to this one, counted from its front or back.
    44 ListRemove { key: &'a [u8], value: &'a [u8], count: u64, from_back: bool }
    /// The element at one end of a list moved to an end of the same list.
    45 ListRotate { key: &'a [u8], from_front: bool, to_front: bool }
    /// A member of a sorted set has this score; the key is created if it was absent.
    50 ZSetAdd { key: &'a [u8], member: &'a [u8], score: f64 }
    /// A sorted set lost this member.
    51 ZSetRemove { key: &'a [u8], member: &'a [u8] }
    /// A sorted set lost the members from rank `start` on and before rank `end`.
    52 ZSetRemoveRanks { key: &'a [u8], start: u64, end: u64 }
    /// The key holds a stream without entries, where nothing was.
    60 StreamCreate { key: &'a [u8] }
    /// A stream got an entry; the key is created if it was absent. `pairs` reads as [`Pairs`].
    61 StreamAppend { key: &'a [u8], id: StreamId, pairs: &'a [u8] }
    /// A stream lost this entry.
    62 StreamDelete { key: &'a [u8], id: StreamId }
    /// A stream lost all entries up to this one and with it.
    63 StreamTrim { key: &'a [u8], through: StreamId }
    /// A stream's counters have these values.
    64 StreamCounters { key: &'a [u8], last_id: StreamId, entries_added: u64, max_deleted_id: StreamId }
    /// A stream has a new consumer group.
    65 GroupCreate { key: &'a [u8], group: &'a [u8], last_delivered: StreamId, entries_read: Option<u64> }
    /// A consumer group is gone.
    66 GroupDestroy { key: &'a [u8], group: &'a [u8] }
    /// A consumer group's position is this.
    67 GroupSetId { key: &'a [u8], group: &'a [u8], last_delivered: StreamId, entries_read: Option<u64> }
    /// A consumer group has a new consumer.
    68 ConsumerCreate { key: &'a [u8], group: &'a [u8], consumer: &'a [u8], at_ms: u64 }
    /// A consumer is gone, and what it had pending.
    69 ConsumerDelete { key: &'a [u8], group: &'a [u8], consumer: &'a [u8] }
    /// A consumer asked for entries at this time, and got some if `active`.
    70 ConsumerSeen { key: &'a [u8], group: &'a [u8], consumer: &'a [u8], at_ms: u64, active: bool }
    /// An entry is pending for this consumer since this time, delivered so many times.
    71 PendingSet { key: &'a [u8], group: &'a [u8], consumer: &'a [u8], id: StreamId, time_ms: u64, deliveries: u64 }
    /// An entry is not pending any more.
    72 PendingAck { key: &'a [u8], group: &'a [u8], id: StreamId }
    /// An entry is pending that no consumer has, delivered so many times.
    73 PendingRelease { key: &'a [u8], group: &'a [u8], id: StreamId, deliveries: u64 }
    /// A stream remembers requests of producers for so long, and so many of each. A change forgets all.
    74 RequestLimits { key: &'a [u8], duration_s: u32, max_iids: u32 }
    /// A stream remembers that a producer's request appended this entry.
    75 RequestAdd { key: &'a [u8], producer: &'a [u8], iid: &'a [u8], id: StreamId }
    /// A stream forgot the oldest requests of a producer, so many.
    76 RequestForget { key: &'a [u8], producer: &'a [u8], count: u64 }
    /// A stream recognized a repeated request.
    77 RequestRepeated { key: &'a [u8] }
    /// A stream has a new consumer group with consumers and pending entries, packed as `verb::group` says.
    78 GroupAdd {
        key: &'a [u8],
        group: &'a [u8],
        last_delivered: StreamId,
        entries_read: Option<u64>,
        content: &'a [u8],
    }

    /// The field of a hash or member of a set expires at this Unix time in milliseconds; `i64::MAX`: never.
    110 ElementExpireAt { key: &'a [u8], element: &'a [u8], at_ms: i64 }

    /// So many bytes of the string from this offset on are replaced by others.
    120 Splice { key: &'a [u8], offset: u64, removed: u64, bytes: &'a [u8] }

    /// The script cache holds this text; `loaded`: until it is flushed, not only while there is room.
    200 ScriptPut { body: &'a [u8], loaded: bool }
    /// The script of this name left the cache, to make room.
    201 ScriptDrop { sha1: &'a [u8] }
    /// The script cache is empty.
    202 ScriptFlush {}
    /// This library of functions is there, in place of the one of the same name.
    203 LibraryPut { code: &'a [u8] }
    /// The library of this name is gone.
    204 LibraryDelete { name: &'a [u8] }
    /// There are no libraries.
    205 LibraryFlush {}
}

/// A key with its database.
type DbKey<'a> = (u16, &'a [u8]);

/// What of an effect those need to know who watch keys or wait for them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Touch<'a> {
    /// This key of a database may hold something else now.
    Key {
        /// The database.
        db: u16,
        /// The key.
        key: &'a [u8],
        /// It was removed.
        is_deletion: bool,
    },
    /// Every key of this database may.
    Database(u16),
}

impl<'a> Touch<'a> {
    fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Touch::Key { db, key, is_deletion } => {
                u8::from(*is_deletion).put(out);
                db.put(out);
                key.put(out);
            }
            Touch::Database(db) => {
                2u8.put(out);
                db.put(out);
            }
        }
    }

    fn db(&self) -> u16 {
        match *self {
            Touch::Key { db, .. } | Touch::Database(db) => db,
        }
    }

    fn encoded_len(&self) -> usize {
        let head = size_of::<u8>() + size_of::<u16>();
        match self {
            Touch::Key { key, .. } => head + bytes_len(key),
            Touch::Database(_) => head,
        }
    }

    fn decode(input: &mut &'a [u8]) -> Option<Touch<'a>> {
        let kind = u8::take(input)?;
        let db = u16::take(input)?;
        match kind {
            0 | 1 => Some(Touch::Key { db, key: Field::take(input)?, is_deletion: kind == 1 }),
            _ => Some(Touch::Database(db)),
        }
    }
}

impl<'a> Effect<'a> {
    /// Whether those who watch the key or wait for it take it as a change: what a group notes about deliveries is none, unless
    /// it makes entries available.
    fn is_change(&self) -> bool {
        use Effect::{
            ConsumerCreate, ConsumerDelete, ConsumerSeen, PendingAck, PendingSet, RequestForget, RequestRepeated,
        };
        !matches!(
            self,
            ConsumerCreate { .. }
                | ConsumerDelete { .. }
                | ConsumerSeen { .. }
                | PendingAck { .. }
                | PendingSet { .. }
                | RequestForget { .. }
                | RequestRepeated { .. }
        )
    }

    /// What those learn of it who watch keys or wait for them.
    pub fn touches(&self, db: u16) -> impl Iterator<Item = Touch<'a>> {
        let is_deletion = matches!(self, Effect::Del { .. });
        let touched = match (self.is_change(), self.keys(db)) {
            (false, _) => [None, None],
            (true, Some(keys)) => keys.map(|key| key.map(|(db, key)| Touch::Key { db, key, is_deletion })),
            (true, None) => {
                let other = if let Effect::Swap { with_db } = self { Some(Touch::Database(*with_db)) } else { None };
                [Some(Touch::Database(db)), other]
            }
        };
        touched.into_iter().flatten()
    }

    /// Every key that it touches, with the database; `None` for those that touch whole databases.
    pub(super) fn keys(&self, db: u16) -> Option<[Option<DbKey<'a>>; 2]> {
        Some(match *self {
            Effect::Rename { key, to } => [Some((db, key)), Some((db, to))],
            Effect::Copy { to_db, to, .. } => [Some((to_db, to)), None],
            Effect::Move { key, to_db } => [Some((db, key)), Some((to_db, key))],
            Effect::Flush {} | Effect::Swap { .. } => return None,
            Effect::ScriptPut { .. }
            | Effect::ScriptDrop { .. }
            | Effect::ScriptFlush {}
            | Effect::LibraryPut { .. }
            | Effect::LibraryDelete { .. }
            | Effect::LibraryFlush {} => [None, None],
            Effect::Put { key, .. }
            | Effect::Replace { key, .. }
            | Effect::Del { key }
            | Effect::ExpireAt { key, .. }
            | Effect::SetRange { key, .. }
            | Effect::Build { key, .. }
            | Effect::Splice { key, .. }
            | Effect::HashSet { key, .. }
            | Effect::HashRemove { key, .. }
            | Effect::HashUpdate { key, .. }
            | Effect::SetAdd { key, .. }
            | Effect::SetRemove { key, .. }
            | Effect::SetPut { key, .. }
            | Effect::ListPush { key, .. }
            | Effect::ListPop { key, .. }
            | Effect::ListSet { key, .. }
            | Effect::ListInsert { key, .. }
            | Effect::ListRemove { key, .. }
            | Effect::ListRotate { key, .. }
            | Effect::ZSetAdd { key, .. }
            | Effect::ZSetRemove { key, .. }
            | Effect::ZSetRemoveRanks { key, .. }
            | Effect::StreamCreate { key }
            | Effect::StreamAppend { key, .. }
            | Effect::StreamDelete { key, .. }
            | Effect::StreamTrim { key, .. }
            | Effect::StreamCounters { key, .. }
            | Effect::GroupCreate { key, .. }
            | Effect::GroupDestroy { key, .. }
            | Effect::GroupSetId { key, .. }
            | Effect::ConsumerCreate { key, .. }
            | Effect::ConsumerDelete { key, .. }
            | Effect::ConsumerSeen { key, .. }
            | Effect::PendingSet { key, .. }
            | Effect::PendingAck { key, .. }
            | Effect::PendingRelease { key, .. }
            | Effect::RequestLimits { key, .. }
            | Effect::RequestAdd { key, .. }
            | Effect::RequestForget { key, .. }
            | Effect::RequestRepeated { key }
            | Effect::GroupAdd { key, .. }
            | Effect::ElementExpireAt { key, .. } => [Some((db, key)), None],
        })
    }
}

/// How much of its effects a unit records: as much as there are readers for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Recording {
    /// Changes are only counted.
    #[default]
    Nothing,
    /// What was [touched](Touch), without values: for those who watch keys or wait for them.
    Keys,
    /// The whole effects, from which the change can be repeated.
    Full,
}

/// A place in the record of a unit.
#[derive(Clone, Copy, Debug, Default)]
struct Mark {
    bytes: usize,
    count: u64,
}

/// The effects of the unit that is underway.
#[derive(Default)]
pub struct Effects {
    /// Encoded touches or effects, as `recording` says.
    buf: Vec<u8>,
    recording: Recording,
    count: u64,
    /// Where the script began that may be rolled back.
    kept: Mark,
    /// The record of touches is condensed when it has grown by [`TOUCHES_MAX_BYTES`] from here.
    condensed_to: usize,
}

impl Effects {
    /// Begins a unit.
    #[inline]
    pub(super) fn begin(&mut self, recording: Recording) {
        self.buf.clear();
        self.buf.shrink_to(SCRATCH_KEEP_BYTES);
        self.recording = recording;
    }

    /// Records from here on, if nothing was to be recorded when the unit began.
    pub(super) fn record_from_now(&mut self, recording: Recording) {
        if self.recording == Recording::Nothing {
            self.recording = recording;
        }
    }

    /// Records whole effects from here on, if nothing was recorded yet in another form.
    pub(super) fn record_in_full(&mut self) {
        if self.buf.is_empty() {
            self.recording = Recording::Full;
        }
    }

    /// Notes one change.
    #[inline]
    pub(super) fn record(&mut self, db: u16, effect: Effect<'_>) {
        self.record_with(db, || effect);
    }

    /// As [`record`](Self::record), for an effect that costs something to make: it is made only when somebody reads it.
    #[inline]
    pub(super) fn record_with<'a>(&mut self, db: u16, effect: impl FnOnce() -> Effect<'a>) {
        self.count += 1;
        if self.recording != Recording::Nothing {
            self.write(db, effect());
        }
    }

    /// Not inlined: mostly nobody reads what happened, and then changes should pay for no more than the look at that.
    #[inline(never)]
    fn write(&mut self, db: u16, effect: Effect<'_>) {
        if self.recording == Recording::Full {
            return effect.encode(db, &mut self.buf);
        }
        effect.touches(db).for_each(|touch| touch.encode(&mut self.buf));
        if self.buf.len() > self.condensed_to + TOUCHES_MAX_BYTES {
            self.condense();
        }
    }

    /// What comes from here on can be [cut](Self::cut) off.
    #[inline]
    pub(super) fn keep(&mut self) {
        self.kept = Mark { bytes: self.buf.len(), count: self.count };
        self.condensed_to = self.kept.bytes;
    }

    /// Forgets what came since [`keep`](Self::keep).
    pub(super) fn cut(&mut self) {
        self.buf.truncate(self.kept.bytes);
        self.count = self.kept.count;
    }

    /// Nothing will be cut off any more.
    #[inline]
    pub(super) fn release(&mut self) {
        self.kept = Mark::default();
        self.condensed_to = 0;
        if self.recording == Recording::Keys && self.buf.len() > TOUCHES_MAX_BYTES {
            // What several scripts of one unit have touched, each less than that.
            self.condense();
        }
    }

    /// Goes on without whole effects: nobody reads them any more.
    pub(super) fn record_keys_only(&mut self) {
        if self.recording != Recording::Full {
            return;
        }
        let touches = |rest: &[u8]| {
            let mut buf = Vec::new();
            Touches { rest, recording: Recording::Full, second: None }.for_each(|touch| touch.encode(&mut buf));
            buf
        };
        let (before, after) = self.buf.split_at(self.kept.bytes);
        let (before, after) = (touches(before), touches(after));
        self.kept.bytes = before.len();
        self.buf = [before, after].concat();
        self.recording = Recording::Keys;
        self.condense();
    }

    /// Shortens the record of touches since the script began.
    #[cold]
    fn condense(&mut self) {
        let fresh = self.buf.split_off(self.kept.bytes);
        let (mut seen, mut databases) = (HashSet::new(), BTreeSet::new());
        let mut rest = &fresh[..];
        while let Some(touch) = Touch::decode(&mut { rest }) {
            let len = touch.encoded_len();
            if seen.insert(&rest[..len]) {
                self.buf.extend_from_slice(&rest[..len]);
            }
            databases.insert(touch.db());
            rest = &rest[len..];
        }
        if self.buf.len() - self.kept.bytes > TOUCHES_MAX_BYTES / 2 {
            self.buf.truncate(self.kept.bytes);
            databases.into_iter().for_each(|db| Touch::Database(db).encode(&mut self.buf));
            self.buf.shrink_to(self.kept.bytes + SCRATCH_KEEP_BYTES);
        }
        // So that half the bytes must come anew before that is done again.
        self.condensed_to = self.buf.len().saturating_sub(TOUCHES_MAX_BYTES / 2);
    }

    /// Whether the unit has recorded nothing so far.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.buf.is_empty()
    }

    /// What the unit has touched so far, as far as it was recorded.
    pub fn touches(&self) -> Touches<'_> {
        Touches { rest: &self.buf, recording: self.recording, second: None }
    }

    /// The encoded changes of the unit so far; empty unless they are recorded in full.
    #[inline]
    pub fn as_bytes(&self) -> &[u8] {
        if self.recording == Recording::Full { &self.buf } else { &[] }
    }

    /// Changes since the server started.
    #[inline]
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The changes of the unit so far, decoded; none unless they are recorded in full.
    pub fn iter(&self) -> EffectReader<'_> {
        EffectReader { rest: self.as_bytes() }
    }
}

/// Reads what a unit has touched.
pub struct Touches<'a> {
    rest: &'a [u8],
    recording: Recording,
    /// Of an effect that touches two keys, the one not yet told of.
    second: Option<Touch<'a>>,
}

impl<'a> Iterator for Touches<'a> {
    type Item = Touch<'a>;

    fn next(&mut self) -> Option<Touch<'a>> {
        if self.recording == Recording::Keys {
            return Touch::decode(&mut self.rest);
        }
        if let Some(second) = self.second.take() {
            return Some(second);
        }
        loop {
            let (db, effect) = Effect::decode(&mut self.rest)?;
            let mut touches = effect.touches(db);
            if let Some(first) = touches.next() {
                self.second = touches.next();
                return Some(first);
            }
        }
    }
}

/// Reads a stream of effects.
pub struct EffectReader<'a> {
    rest: &'a [u8],
}

impl<'a> EffectReader<'a> {
    /// Reads `stream` from its start.
    pub fn new(stream: &'a [u8]) -> EffectReader<'a> {
        EffectReader { rest: stream }
    }

    /// Whether all was read; otherwise what comes next can't be.
    pub fn is_at_end(&self) -> bool {
        self.rest.is_empty()
    }
}

impl<'a> Iterator for EffectReader<'a> {
    type Item = (u16, Effect<'a>);

    fn next(&mut self) -> Option<(u16, Effect<'a>)> {
        Effect::decode(&mut self.rest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn effects_read_back_and_cut_ones_do_not() {
        let long = vec![7u8; 70_000];
        let effects = [
            (0, Effect::Put { key: b"k", value: &long }),
            (15, Effect::ExpireAt { key: b"", at_ms: i64::MAX }),
            (1, Effect::Copy { key: b"a", to_db: 3, to: b"b" }),
            (2, Effect::Flush {}),
        ];
        let mut stream = Vec::new();
        effects.iter().for_each(|(db, effect)| effect.encode(*db, &mut stream));
        assert_eq!(EffectReader::new(&stream).collect::<Vec<_>>(), effects);
        for cut in 0..40.min(stream.len()) {
            assert!(EffectReader::new(&stream[..cut]).next().is_none());
        }
    }

    #[test]
    fn the_record_of_touched_keys_is_bounded() {
        let name = |i: usize| format!("{i:01000}").into_bytes();
        let turns = 3 * TOUCHES_MAX_BYTES / 1_000;
        let mut effects = Effects::default();
        effects.begin(Recording::Keys);
        effects.record(3, Effect::Put { key: b"before", value: b"" });
        effects.keep();
        // A few keys again and again are noted once.
        for i in 0..turns {
            effects.record(0, Effect::Put { key: &name(i % 10), value: b"" });
            assert!(effects.buf.len() <= TOUCHES_MAX_BYTES + 2_000);
        }
        effects.condense();
        let key = |db, key| Touch::Key { db, key, is_deletion: false };
        let names: Vec<Vec<u8>> = (0..10).map(name).collect();
        let expected: Vec<Touch<'_>> =
            [key(3, b"before")].into_iter().chain(names.iter().map(|name| key(0, name))).collect();
        assert_eq!(effects.touches().collect::<Vec<_>>(), expected);
        // Of very many keys only the database is.
        for i in 0..turns {
            effects.record(0, Effect::Del { key: &name(i) });
            assert!(effects.buf.len() <= TOUCHES_MAX_BYTES + 2_000);
        }
        effects.condense();
        assert!(effects.touches().any(|touch| touch == Touch::Database(0)));
        effects.cut();
        assert_eq!(effects.touches().collect::<Vec<_>>(), [key(3, b"before")]);
    }

    #[test]
    fn the_record_of_several_scripts_is_bounded() {
        let mut effects = Effects::default();
        effects.begin(Recording::Keys);
        let key = vec![b'k'; TOUCHES_MAX_BYTES / 4];
        for _ in 0..20 {
            effects.keep();
            (0..3).for_each(|_| effects.record(0, Effect::Put { key: &key, value: b"" }));
            effects.release();
            assert!(effects.buf.len() <= 2 * TOUCHES_MAX_BYTES);
        }
    }

    #[test]
    fn a_record_in_full_can_go_on_with_keys_alone() {
        let mut effects = Effects::default();
        effects.begin(Recording::Full);
        effects.record(0, Effect::Put { key: b"a", value: b"long value" });
        effects.keep();
        effects.record(0, Effect::Rename { key: b"b", to: b"c" });
        effects.record_keys_only();
        effects.record(0, Effect::Del { key: b"d" });
        let key = |key, is_deletion| Touch::Key { db: 0, key, is_deletion };
        let expected = [key(b"a", false), key(b"b", false), key(b"c", false), key(b"d", true)];
        assert_eq!((effects.touches().collect::<Vec<_>>(), effects.as_bytes()), (expected.to_vec(), &b""[..]));
        effects.cut();
        assert_eq!(effects.touches().collect::<Vec<_>>(), expected[..1]);
    }

    #[test]
    fn effects_are_told_to_people() {
        let id = StreamId { ms: 1, seq: 2 };
        let effect = Effect::GroupSetId { key: b"s", group: b"g", last_delivered: id, entries_read: None };
        let fields = [
            ("key", Shown::Bytes(b"s")),
            ("group", Shown::Bytes(b"g")),
            ("last_delivered", Shown::Id(id)),
            ("entries_read", Shown::Nothing),
        ];
        assert_eq!(effect.describe(), ("GroupSetId", fields.to_vec()));
        let effect = Effect::ListPush { key: b"l", front: true, value: b"v" };
        assert_eq!(effect.describe().1[1], ("front", Shown::Integer(1)));
        let effect = Effect::ZSetAdd { key: b"z", member: b"m", score: 0.5 };
        assert_eq!(effect.describe().1[2], ("score", Shown::Double(0.5)));
    }

    #[test]
    fn those_who_watch_learn_the_same_from_either_recording() {
        let long = vec![7u8; 70_000];
        let (mut keys, mut full) = (Effects::default(), Effects::default());
        keys.begin(Recording::Keys);
        full.begin(Recording::Full);
        for effects in [&mut keys, &mut full] {
            effects.record(0, Effect::Put { key: b"k", value: &long });
            effects.record(1, Effect::Del { key: b"gone" });
            effects.record(2, Effect::PendingAck { key: b"s", group: b"g", id: StreamId { ms: 1, seq: 1 } });
            effects.record(3, Effect::Move { key: b"m", to_db: 4 });
            effects.record(5, Effect::Swap { with_db: 6 });
        }
        let key = |db, key, is_deletion| Touch::Key { db, key, is_deletion };
        let touched = [
            key(0, b"k", false),
            key(1, b"gone", true),
            key(3, b"m", false),
            key(4, b"m", false),
            Touch::Database(5),
            Touch::Database(6),
        ];
        assert_eq!(keys.touches().collect::<Vec<_>>(), touched);
        assert_eq!(full.touches().collect::<Vec<_>>(), touched);
        assert_eq!((keys.iter().count(), full.iter().count(), keys.as_bytes()), (0, 5, &b""[..]));
        assert!(keys.buf.len() < 100, "no value is copied for those who want keys");
        // Who begins to watch in the middle of a unit sees what comes after.
        keys.begin(Recording::Nothing);
        keys.record(0, Effect::Del { key: b"before" });
        keys.record_from_now(Recording::Keys);
        keys.record(0, Effect::Del { key: b"after" });
        assert_eq!(keys.touches().collect::<Vec<_>>(), [key(0, b"after", true)]);
    }
}
