//! The declaration of the effects: the only place that names each of them. All code that handles each effect is derived
//! from it.

use super::field::{Cause, Field, Shown};
use crate::value::Layout;
use crate::value::grants::Kind;
use crate::value::stock::Memory;
use crate::value::stream::StreamId;

/// Passes the list of effects to a macro. Each effect has a code, which is part of the format and never reused; a name,
/// with `(key)` if the effect is about a key; the file of verbs that replays it; its roles for keys or databases (`@`
/// names the database if it is not the effect's own); and its fields.
macro_rules! for_each_effect {
    ($derive:ident) => {
        $derive! {
            /// Sets the key to this string, stored as a number if it is one. The key never expires. Replaces any
            /// previous value.
            1 Put(key) string [Changes key] { value: &'a [u8] }
            /// Sets the existing key to this string, stored as a number if it is one. Keeps the expiry.
            2 Replace(key) string [Changes key] { value: &'a [u8] }
            /// Removes the key.
            3 Del(key) key [Removes key] { cause: Cause }
            /// Makes the key expire at this Unix time in milliseconds; the greatest number means never.
            4 ExpireAt(key) key [Changes key] { at_ms: i64 }
            /// Writes these bytes into the string from this offset on, padding with zeroes if it was shorter. The key
            /// may be new.
            5 SetRange(key) string [Changes key] { offset: u64, bytes: &'a [u8] }
            /// Moves value and expiry to another key, replacing any previous value there.
            6 Rename(key) key [Removes key, Changes to] { to: &'a [u8] }
            /// Copies value and expiry to a key of a database, replacing any previous value there.
            7 Copy(key) key [Reads key, Changes to @ to_db] { to_db: u16, to: &'a [u8] }
            /// Moves the key to another database, where it did not exist.
            8 Move(key) key [Removes key, Changes key @ to_db] { to_db: u16 }
            /// Empties the database.
            9 Flush key [Changes database] {}
            /// Swaps the database with another.
            10 Swap key [Changes database, Changes database @ with_db] { with_db: u16 }
            /// Sets the key to the value in this layout that these effects build from nothing under a key without a
            /// name in database 0. The key never expires. Replaces any previous value.
            11 Build(key) put_value [Changes key] { layout: Layout, steps: &'a [u8] }
            /// Changes the layout of the value but not its content.
            12 Relayout(key) put_value [Notes key] { layout: Layout }
            /// From here on, values grow within these limits, which come from the configuration.
            13 Limits put_value [] {
                hash_entries: u64,
                hash_value: u64,
                set_integers: u64,
                set_entries: u64,
                set_value: u64,
                zset_entries: u64,
                zset_value: u64,
                list_size: i64,
                stream_bytes: u64,
                stream_entries: u64,
            }
            /// Sets the key, which may be new, to this number as a string. Keeps the expiry.
            14 SetInteger(key) string [Changes key] { value: i64 }
            /// Sets the key, which may be new, to this string as text, even if it looks like a number. Keeps the
            /// expiry.
            15 SetText(key) string [Changes key] { value: &'a [u8] }
            /// Replaces `removed` bytes of the string from this offset on by others.
            16 Splice(key) string [Changes key] { offset: u64, removed: u64, bytes: &'a [u8] }

            /// Continues building a value in parts, outside the keys, with these effects and in this layout. If
            /// `fresh`, a value begun before is discarded first; without effects, no value is being built afterwards.
            17 Part part [] { fresh: bool, layout: Layout, steps: &'a [u8] }
            /// Sets the key to the value that was built in parts, in this layout. The key expires at this Unix time in
            /// milliseconds; the greatest number means never. Replaces any previous value.
            18 Complete(key) part [Changes key] { layout: Layout, at_ms: i64 }
            /// Announces about `keys` keys for the empty database. Changes nothing; a reader may make room for them.
            19 Expect key [] { keys: u64 }

            /// Sets the field of the hash to this value, without expiry. Field and hash may be new.
            20 HashSet(key) hash [Changes key] { field: &'a [u8], value: &'a [u8] }
            /// Removes the field from the hash, and the key with the last field.
            21 HashRemove(key) hash [Changes key] { field: &'a [u8], cause: Cause, emptied: bool }
            /// Sets the field, which expires, to this value. Keeps its deadline.
            22 HashUpdate(key) hash [Changes key] { field: &'a [u8], value: &'a [u8] }
            /// Makes the field of a hash or member of a set expire at this Unix time in milliseconds; the greatest
            /// number means never.
            23 ElementExpireAt(key) element [Changes key] { element: &'a [u8], at_ms: i64 }

            /// Adds the new member to the set, which may be new.
            30 SetAdd(key) set [Changes key] { member: &'a [u8] }
            /// Removes the member from the set, and the key with the last member.
            31 SetRemove(key) set [Changes key] { member: &'a [u8], cause: Cause, emptied: bool }

            /// Adds an element at the front or back of the list, which may be new.
            40 ListPush(key) list [Changes key] { front: bool, value: &'a [u8] }
            /// Removes `count` elements at the front or back of the list, and the key with the last element. If `count`
            /// is 0, the list only counts as changed for its watchers.
            41 ListPop(key) list [Changes key] { front: bool, count: u64, emptied: bool }
            /// Replaces the element at this index of the list. `first`: the new element is the first of its node.
            42 ListSet(key) list [Changes key] { index: u64, value: &'a [u8], first: bool }
            /// Inserts an element before this index of the list. `first`: the element is the first of its node.
            43 ListInsert(key) list [Changes key] { index: u64, value: &'a [u8], first: bool }
            /// Removes `count` elements equal to this one from the list, counted from its front or back, and the key
            /// with the last element.
            44 ListRemove(key) list [Changes key] { value: &'a [u8], count: u64, from_back: bool, emptied: bool }
            /// Moves the element at one end of the list to an end of that list.
            45 ListRotate(key) list [Changes key] { from_front: bool, to_front: bool }
            /// Adds a node of these elements at the back of the list, which may be new and takes the large layout. The
            /// elements are byte strings, one after the other.
            46 ListNode(key) list [Changes key] { elements: &'a [u8] }
            /// Removes the elements at these indexes from the list, which keeps others. The indexes ascend; each is
            /// stored as the difference from the previous one.
            47 ListRemoveAt(key) list [Changes key] { indexes: &'a [u8] }

            /// Sets the score of the member of the sorted set. Member and set may be new.
            50 ZSetAdd(key) zset [Changes key] { member: &'a [u8], score: f64 }
            /// Removes the member from the sorted set, and the key with the last member.
            51 ZSetRemove(key) zset [Changes key] { member: &'a [u8], emptied: bool }
            /// Removes the members from rank `start` to before rank `end` from the sorted set, and the key with the
            /// last member.
            52 ZSetRemoveRanks(key) zset [Changes key] { start: u64, end: u64, emptied: bool }

            /// Creates a stream without entries under a key that did not exist.
            60 StreamCreate(key) stream [Changes key] {}
            /// Appends an entry of these fields and values to the stream, which may be new. They are byte strings, one
            /// after the other.
            61 StreamAppend(key) stream [Changes key] { id: StreamId, pairs: &'a [u8] }
            /// Deletes this entry of the stream.
            62 StreamDelete(key) stream [Changes key] { id: StreamId }
            /// Removes all entries of the stream up to and including this one.
            63 StreamTrim(key) stream [Changes key] { through: StreamId }
            /// Sets the stream's counters.
            64 StreamCounters(key) stream [Changes key] {
                last_id: StreamId,
                entries_added: u64,
                max_deleted_id: StreamId,
            }
            /// Creates a consumer group of the stream.
            65 GroupCreate(key) stream [Changes key] {
                group: &'a [u8],
                last_delivered: StreamId,
                entries_read: Option<u64>,
            }
            /// Removes the consumer group.
            66 GroupDestroy(key) stream [Changes key] { group: &'a [u8] }
            /// Sets the consumer group's position.
            67 GroupSetId(key) stream [Changes key] {
                group: &'a [u8],
                last_delivered: StreamId,
                entries_read: Option<u64>,
            }
            /// Creates a consumer in the consumer group.
            68 ConsumerCreate(key) stream [Notes key] { group: &'a [u8], consumer: &'a [u8], at_ms: u64 }
            /// Removes the consumer and its pending entries.
            69 ConsumerDelete(key) stream [Notes key] { group: &'a [u8], consumer: &'a [u8] }
            /// Notes that the consumer asked for entries at this Unix time in milliseconds; `active`: it received some.
            70 ConsumerSeen(key) stream [Notes key] {
                group: &'a [u8],
                consumer: &'a [u8],
                at_ms: u64,
                active: bool,
            }
            /// Makes the entry pending for this consumer since this Unix time in milliseconds, with this number of
            /// deliveries.
            71 PendingSet(key) stream [Notes key] {
                group: &'a [u8],
                consumer: &'a [u8],
                id: StreamId,
                time_ms: u64,
                deliveries: u64,
            }
            /// Ends the pending state of the entry.
            72 PendingAck(key) stream [Notes key] { group: &'a [u8], id: StreamId }
            /// Makes the entry pending without a consumer, with this number of deliveries.
            73 PendingRelease(key) stream [Changes key] { group: &'a [u8], id: StreamId, deliveries: u64 }
            /// Sets how long the stream remembers requests of producers, and how many of each. A change forgets all
            /// requests.
            74 RequestLimits(key) stream [Changes key] { duration_s: u32, max_iids: u32 }
            /// Makes the stream remember that a producer's request appended this entry.
            75 RequestAdd(key) stream [Changes key] { producer: &'a [u8], iid: &'a [u8], id: StreamId }
            /// Makes the stream forget the `count` oldest requests of a producer.
            76 RequestForget(key) stream [Notes key] { producer: &'a [u8], count: u64 }
            /// Counts a repeated request that the stream recognized.
            77 RequestRepeated(key) stream [Notes key] {}
            /// Creates a consumer group of the stream with consumers and pending entries, packed.
            78 GroupAdd(key) group [Changes key] {
                group: &'a [u8],
                last_delivered: StreamId,
                entries_read: Option<u64>,
                content: &'a [u8],
            }
            /// Sets how many requests of the stream's producers have been remembered, and how many repeated ones
            /// recognized, so far.
            79 RequestCounters(key) stream [Notes key] { added: u64, duplicates: u64 }
            /// Makes these entries pending, packed, either for consumers of the group, each named once, or without a
            /// consumer.
            80 PendingAdd(key) group [Notes key] { group: &'a [u8], consumers: &'a [u8], deliveries: &'a [u8] }
            /// Sets the policy of the consumer group. An entry is due after `idle_ms` without an acknowledgement, plus
            /// a backoff that grows from `backoff_base_ms` to `backoff_max_ms`. After `max_deliveries` deliveries, 0
            /// for no limit, it moves to the stream under the key `dead_letters`. If `idle_ms` is 0, the group has no
            /// policy, and the other fields are 0 or empty.
            81 GroupPolicy(key) stream [Changes key] {
                group: &'a [u8],
                idle_ms: u64,
                max_deliveries: u64,
                dead_letters: &'a [u8],
                backoff_base_ms: u64,
                backoff_max_ms: u64,
            }
            /// Makes the entry, which has no consumer, due by the group's policy at this Unix time in milliseconds
            /// instead of at once.
            82 PendingHold(key) stream [Notes key] { group: &'a [u8], id: StreamId, until_ms: u64 }
            /// Makes the stream, which may be new, keep a message of these fields and values until the time in its id,
            /// a Unix time in milliseconds. The sequence of the id is a ticket; tickets up to it have been issued.
            83 StreamDelay(key) delayed [Changes key] { id: StreamId, pairs: &'a [u8] }
            /// Cancels the stream's delayed message of this id.
            84 StreamCancel(key) delayed [Changes key] { id: StreamId }
            /// Turns the delayed message of this id, which is due, into an entry with the id `as_id`.
            85 StreamRelease(key) delayed [Changes key] { id: StreamId, as_id: StreamId }
            /// Notes that the stream has issued tickets for delayed messages up to this one.
            86 StreamTickets(key) delayed [Notes key] { last: u64 }

            /// Puts this text into the script cache. `loaded`: it stays until the cache is flushed, rather than only
            /// while there is room.
            100 ScriptPut beside [] { body: &'a [u8], loaded: bool }
            /// Removes the script of this name from the cache to make room.
            101 ScriptDrop beside [] { sha1: &'a [u8] }
            /// Empties the script cache.
            102 ScriptFlush beside [] {}
            /// Adds this library of functions, replacing any of the same name.
            103 LibraryPut beside [] { code: &'a [u8] }
            /// Removes the library of this name.
            104 LibraryDelete beside [] { name: &'a [u8] }
            /// Removes all libraries.
            105 LibraryFlush beside [] {}

            /// Creates a lock, gate or stock of this limit, without grants, under a key that did not exist. `fixed`:
            /// the limit is its own, and the key lasts without grants. A stock's limit is 0, and a stock always lasts.
            110 GrantsCreate(key) grants [Changes key] { kind: Kind, limit: u64, fixed: bool }
            /// Gives the holder this grant, replacing the holder's grant of this token. The times are Unix times in
            /// milliseconds. All tokens issued later, under any key, are greater than this one.
            111 GrantSet(key) grants [Changes key] {
                holder: &'a [u8],
                token: u64,
                units: u64,
                since_ms: i64,
                until_ms: i64,
                entered: u64,
                shared: bool,
                note: &'a [u8],
            }
            /// Ends the holder's grant, which has this token. Removes the key with the last grant unless its limit is
            /// its own.
            112 GrantEnd(key) grants [Changes key] { holder: &'a [u8], token: u64, cause: Cause, emptied: bool }
            /// Sets the limit. `fixed`: the limit is the gate's own.
            113 GrantsLimit(key) grants [Changes key] { limit: u64, fixed: bool }
            /// Notes that tokens up to this one have been issued.
            114 Tokens grants [] { last: u64 }

            /// Sets the stock's amounts and rules. Units of the total that are neither held nor sold are available.
            /// `stream` is the key of the stream in which ends of holds are reported, empty for none. `refiller` is the
            /// order whose caller should refill the stock, empty for none, until the Unix time `refill_until_ms` in
            /// milliseconds.
            115 StockSet(key) stock [Changes key] {
                total: u64,
                sold: u64,
                low: u64,
                refill_ms: u64,
                period_ms: u64,
                stream: &'a [u8],
                refiller: &'a [u8],
                refill_until_ms: i64,
            }
            /// Adds a refill to the stock's total, remembers its id, and ends the current refill duty.
            116 StockAdd(key) stock [Changes key] { id: &'a [u8], units: u64, at_ms: i64 }
            /// Ends the order's hold, which has this token, and sells its units to its subject, if it has one. The
            /// stock remembers order and subject.
            117 StockSold(key) stock [Changes key] { order: &'a [u8], token: u64, at_ms: i64 }
            /// Makes the stock remember this about a refill, a sold order, or a subject that has bought.
            118 StockNote(key) stock [Changes key] { memory: Memory, name: &'a [u8], units: u64, at_ms: i64 }

            /// Makes sure that no token up to this one is issued from now on. Tokens not issued here belong to another
            /// server, whose values may bring them.
            119 TokensRaise grants [] { to: u64 }

            /// Notes that this data is another server's: that of the history `history`, which the server at the address
            /// `from` still changes unless it has `given` it away. Changes up to the Lsn `last` are here if it is
            /// `complete`.
            120 HandoverReceive beside [] {
                from: &'a [u8],
                history: &'a [u8],
                last: u64,
                complete: bool,
                given: bool,
            }
            /// Notes that this data has been given to the server at this address. No change of the data follows, unless
            /// it is taken back or replaced.
            121 HandoverGive beside [] { to: &'a [u8] }
            /// Notes that this data is this server's own from now on. If it was taken over, `last` is the last change
            /// of the history `history` that came from there; otherwise that is empty.
            122 HandoverEnd beside [] { history: &'a [u8], last: u64 }
        }
    };
}
pub(in crate::keyspace) use for_each_effect;

impl<'a> Effect<'a> {
    /// The encoded effects from which it builds a value, if it does.
    pub fn steps(&self) -> Option<&'a [u8]> {
        match *self {
            Effect::Build { steps, .. } | Effect::Part { steps, .. } => Some(steps),
            _ => None,
        }
    }

    /// Whether it is about building a value. Such an effect is never a step of another one.
    pub fn builds(&self) -> bool {
        self.steps().is_some() || matches!(self, Effect::Complete { .. })
    }
}

/// The role of an effect for a key or a database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// It needs the content and leaves it unchanged.
    Reads,
    /// It changes the content.
    Changes,
    /// It removes the content.
    Removes,
    /// It does not count as a change for watchers and waiters, like a group's notes about deliveries.
    Notes,
}

/// The target of an effect.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Target<'a> {
    /// A key of a database.
    Key(u16, &'a [u8]),
    /// A whole database.
    Database(u16),
}

macro_rules! target {
    ($own_db:ident, database) => {
        Target::Database($own_db)
    };
    ($own_db:ident, database @ $db:ident) => {
        Target::Database($db)
    };
    ($own_db:ident, $key:ident) => {
        Target::Key($own_db, $key)
    };
    ($own_db:ident, $key:ident @ $db:ident) => {
        Target::Key($db, $key)
    };
}

/// Whether an effect changes the key that it is about, in any way, and nothing else.
const fn is_own_key_only(targets: &[(Role, &str)]) -> bool {
    match targets {
        [(Role::Reads, _)] => false,
        [(_, what)] => matches!(what.as_bytes(), b"key"),
        _ => false,
    }
}

/// Up to two values.
macro_rules! pair {
    () => {
        [None, None]
    };
    ($first:expr) => {
        [Some($first), None]
    };
    ($first:expr, $second:expr) => {
        [Some($first), Some($second)]
    };
}

macro_rules! declare {
    ($(
        $(#[doc = $doc:literal])*
        $code:literal $name:ident $(($key:ident))? $family:ident
        [$($role:ident $what:ident $(@ $db:ident)?),*]
        { $($field:ident : $type:ty),* $(,)? }
    )*) => {
        /// One change of one database.
        #[derive(Clone, Copy, Debug, PartialEq)]
        #[allow(missing_docs)]
        pub enum Effect<'a> {
            $($(#[doc = $doc])* $name { $($key: &'a [u8],)? $($field: $type),* },)*
        }

        impl<'a> Effect<'a> {
            /// Its code, and its key, if it has one.
            #[inline(always)]
            pub(super) fn code_and_key(&self) -> (u8, Option<&'a [u8]>) {
                match *self {
                    $(Effect::$name { $($key,)? .. } => ($code, None::<&'a [u8]>$(.or(Some($key)))?),)*
                }
            }

            /// Its key, if it has one.
            #[inline]
            pub fn key(&self) -> Option<&'a [u8]> {
                self.code_and_key().1
            }

            /// This effect with another key name. Unchanged if it has no key.
            #[allow(unused_variables, reason = "an effect has other fields, and need not have a key")]
            pub(in crate::keyspace) fn with_key(&self, new_key: &'a [u8]) -> Effect<'a> {
                match *self {
                    $(Effect::$name { $($key: _,)? $($field),* } => Effect::$name { $($key: new_key,)? $($field),* },)*
                }
            }

            /// Its roles for keys and databases, if it is an effect on database `own_db`.
            #[allow(unused_variables, reason = "an effect has fields that are no target")]
            pub fn targets(&self, own_db: u16) -> [Option<(Role, Target<'a>)>; 2] {
                match *self {
                    $(Effect::$name { $($key,)? $($field),* } => {
                        pair!($((Role::$role, target!(own_db, $what $(@ $db)?))),*)
                    })*
                }
            }

            /// Whether it changes its own key and nothing else.
            #[inline]
            pub(super) fn changes_own_key_only(&self) -> bool {
                match self {
                    $(Effect::$name { .. } => const {
                        is_own_key_only(&[$((Role::$role, stringify!($what $(@ $db)?))),*])
                    },)*
                }
            }

            /// Whether it removes something whose time was over.
            pub fn is_expiry(&self) -> bool {
                match *self {
                    Effect::Del { cause, .. }
                    | Effect::HashRemove { cause, .. }
                    | Effect::SetRemove { cause, .. }
                    | Effect::GrantEnd { cause, .. } => cause == Cause::Expiry,
                    _ => false,
                }
            }

            /// Its name, and its fields with their names, for display.
            pub fn describe(&self) -> (&'static str, Vec<(&'static str, Shown<'a>)>) {
                match self {
                    $(Effect::$name { $($key,)? $($field),* } => (
                        stringify!($name),
                        vec![$((stringify!($key), $key.shown()),)? $((stringify!($field), $field.shown())),*],
                    ),)*
                }
            }

            /// Appends the encoded fields except the key.
            #[inline(always)]
            pub(super) fn put_fields(&self, out: &mut Vec<u8>) {
                match self {
                    $(Effect::$name { $($field,)* .. } => { $($field.put(out);)* })*
                }
            }

            /// Takes the fields off the front of `input`, including the key unless it is known. Returns `None` if the
            /// bytes cannot be decoded.
            pub(super) fn take(code: u8, known_key: Option<&'a [u8]>, input: &mut &'a [u8]) -> Option<Effect<'a>> {
                Some(match code {
                    $($code => Effect::$name {
                        $($key: match known_key {
                            Some(key) => key,
                            None => Field::take(input)?,
                        },)?
                        $($field: Field::take(input)?),*
                    },)*
                    _ => return None,
                })
            }
        }
    };
}
for_each_effect!(declare);
