//! The declaration of the effects: the only place that names each of them. All code that must know each effect is derived from it.

use super::field::{Cause, Field, Shown};
use crate::value::Layout;
use crate::value::grants::Kind;
use crate::value::stock::Memory;
use crate::value::stream::StreamId;

/// Hands the list of effects to a macro. Of each: the code, which is part of the format and never used again; the name, with
/// `(key)` where it is about one; the file of verbs that repeats it; what it does to which keys or databases (`@` names the
/// database where it is not the effect's own); the fields.
macro_rules! for_each_effect {
    ($derive:ident) => {
        $derive! {
            /// The key holds this string, as a number if it is one, and never expires, whatever was there before.
            1 Put(key) string [Changes key] { value: &'a [u8] }
            /// The key, which is there, holds this string, as a number if it is one; its expiry stays.
            2 Replace(key) string [Changes key] { value: &'a [u8] }
            /// The key is gone.
            3 Del(key) key [Removes key] { cause: Cause }
            /// The key expires at this Unix time in milliseconds; the greatest number: never.
            4 ExpireAt(key) key [Changes key] { at_ms: i64 }
            /// The string has these bytes from this offset on, zeroes before when it was shorter; the key may be new.
            5 SetRange(key) string [Changes key] { offset: u64, bytes: &'a [u8] }
            /// The value and expiry moved to another key, replacing what was there.
            6 Rename(key) key [Removes key, Changes to] { to: &'a [u8] }
            /// The value and expiry are copied to a key of a database, replacing what was there.
            7 Copy(key) key [Reads key, Changes to @ to_db] { to_db: u16, to: &'a [u8] }
            /// The key moved to another database, where it did not exist.
            8 Move(key) key [Removes key, Changes key @ to_db] { to_db: u16 }
            /// The database is empty.
            9 Flush key [Changes database] {}
            /// The database and another changed places.
            10 Swap key [Changes database, Changes database @ with_db] { with_db: u16 }
            /// The key holds the value, laid out like this, that these effects make of nothing under a key without a name of
            /// database 0; it never expires, whatever was there before.
            11 Build(key) put_value [Changes key] { layout: Layout, steps: &'a [u8] }
            /// The value is laid out like this; what it says stays.
            12 Relayout(key) put_value [Notes key] { layout: Layout }
            /// From here on values grow within these limits, which are those of the configuration.
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
            /// The key, which may be new, holds this number as a string; its expiry stays.
            14 SetInteger(key) string [Changes key] { value: i64 }
            /// The key, which may be new, holds this string as text, though it may say a number; its expiry stays.
            15 SetText(key) string [Changes key] { value: &'a [u8] }
            /// So many bytes of the string from this offset on are replaced by others.
            16 Splice(key) string [Changes key] { offset: u64, removed: u64, bytes: &'a [u8] }

            /// These effects go on building the value that is built in parts, beside the keys and laid out like this. If `fresh`, what
            /// was built before is forgotten, and without effects nothing is built any more.
            17 Part part [] { fresh: bool, layout: Layout, steps: &'a [u8] }
            /// The key holds the value that was built in parts, laid out like this, and expires at this Unix time in milliseconds, the
            /// greatest number: never; whatever was there before.
            18 Complete(key) part [Changes key] { layout: Layout, at_ms: i64 }
            /// About so many keys are to come in the database, which is empty: nothing changes, and there may be room for them.
            19 Expect key [] { keys: u64 }

            /// The field of the hash has this value and never expires; field and hash may be new.
            20 HashSet(key) hash [Changes key] { field: &'a [u8], value: &'a [u8] }
            /// The field is gone from the hash, and the key with the last one.
            21 HashRemove(key) hash [Changes key] { field: &'a [u8], cause: Cause, emptied: bool }
            /// The field, which expires, has this value; its deadline stays.
            22 HashUpdate(key) hash [Changes key] { field: &'a [u8], value: &'a [u8] }
            /// The field of a hash or member of a set expires at this Unix time in milliseconds; the greatest number: never.
            23 ElementExpireAt(key) element [Changes key] { element: &'a [u8], at_ms: i64 }

            /// The member is new in the set, which may be new.
            30 SetAdd(key) set [Changes key] { member: &'a [u8] }
            /// The member is gone from the set, and the key with the last one.
            31 SetRemove(key) set [Changes key] { member: &'a [u8], cause: Cause, emptied: bool }

            /// The list, which may be new, got an element at its front or back.
            40 ListPush(key) list [Changes key] { front: bool, value: &'a [u8] }
            /// The list lost so many elements at its front or back, and the key is gone with the last one. Without any it only counts as
            /// changed for those who watch it.
            41 ListPop(key) list [Changes key] { front: bool, count: u64, emptied: bool }
            /// The element at this index of the list is replaced; `first`: the new one is the first of its node.
            42 ListSet(key) list [Changes key] { index: u64, value: &'a [u8], first: bool }
            /// The list got an element before this index; `first`: it is the first of its node.
            43 ListInsert(key) list [Changes key] { index: u64, value: &'a [u8], first: bool }
            /// The list lost so many elements equal to this one, counted from its front or back, and the key is gone with the
            /// last one.
            44 ListRemove(key) list [Changes key] { value: &'a [u8], count: u64, from_back: bool, emptied: bool }
            /// The element at one end of the list moved to an end of the same list.
            45 ListRotate(key) list [Changes key] { from_front: bool, to_front: bool }
            /// The list, which may be new, is laid out as large and got a node of these elements at its back: byte strings, one behind
            /// the other.
            46 ListNode(key) list [Changes key] { elements: &'a [u8] }
            /// The list, which has others, lost the elements at these indexes, which ascend: numbers, each by how much it exceeds the
            /// one before.
            47 ListRemoveAt(key) list [Changes key] { indexes: &'a [u8] }

            /// The member of the sorted set has this score; member and set may be new.
            50 ZSetAdd(key) zset [Changes key] { member: &'a [u8], score: f64 }
            /// The member is gone from the sorted set, and the key with the last one.
            51 ZSetRemove(key) zset [Changes key] { member: &'a [u8], emptied: bool }
            /// The members from rank `start` on and before rank `end` are gone from the sorted set, and the key with the last.
            52 ZSetRemoveRanks(key) zset [Changes key] { start: u64, end: u64, emptied: bool }

            /// The key holds a stream without entries, where nothing was.
            60 StreamCreate(key) stream [Changes key] {}
            /// The stream, which may be new, got an entry of these fields and values: byte strings, one behind the other.
            61 StreamAppend(key) stream [Changes key] { id: StreamId, pairs: &'a [u8] }
            /// The stream lost this entry.
            62 StreamDelete(key) stream [Changes key] { id: StreamId }
            /// The stream lost all entries up to this one and with it.
            63 StreamTrim(key) stream [Changes key] { through: StreamId }
            /// The stream's counters have these values.
            64 StreamCounters(key) stream [Changes key] {
                last_id: StreamId,
                entries_added: u64,
                max_deleted_id: StreamId,
            }
            /// The stream has a new consumer group.
            65 GroupCreate(key) stream [Changes key] {
                group: &'a [u8],
                last_delivered: StreamId,
                entries_read: Option<u64>,
            }
            /// The consumer group is gone.
            66 GroupDestroy(key) stream [Changes key] { group: &'a [u8] }
            /// The consumer group's position is this.
            67 GroupSetId(key) stream [Changes key] {
                group: &'a [u8],
                last_delivered: StreamId,
                entries_read: Option<u64>,
            }
            /// The consumer group has a new consumer.
            68 ConsumerCreate(key) stream [Notes key] { group: &'a [u8], consumer: &'a [u8], at_ms: u64 }
            /// The consumer is gone, and what it had pending.
            69 ConsumerDelete(key) stream [Notes key] { group: &'a [u8], consumer: &'a [u8] }
            /// The consumer asked for entries at this Unix time in milliseconds, and got some if `active`.
            70 ConsumerSeen(key) stream [Notes key] {
                group: &'a [u8],
                consumer: &'a [u8],
                at_ms: u64,
                active: bool,
            }
            /// The entry is pending for this consumer since this Unix time in milliseconds, delivered so many times.
            71 PendingSet(key) stream [Notes key] {
                group: &'a [u8],
                consumer: &'a [u8],
                id: StreamId,
                time_ms: u64,
                deliveries: u64,
            }
            /// The entry is not pending any more.
            72 PendingAck(key) stream [Notes key] { group: &'a [u8], id: StreamId }
            /// The entry is pending, but no consumer has it; it was delivered so many times.
            73 PendingRelease(key) stream [Changes key] { group: &'a [u8], id: StreamId, deliveries: u64 }
            /// The stream remembers requests of producers for so long, and so many of each. A change forgets all.
            74 RequestLimits(key) stream [Changes key] { duration_s: u32, max_iids: u32 }
            /// The stream remembers that a producer's request appended this entry.
            75 RequestAdd(key) stream [Changes key] { producer: &'a [u8], iid: &'a [u8], id: StreamId }
            /// The stream forgot the oldest requests of a producer, so many.
            76 RequestForget(key) stream [Notes key] { producer: &'a [u8], count: u64 }
            /// The stream recognized a repeated request.
            77 RequestRepeated(key) stream [Notes key] {}
            /// The stream has a new consumer group with consumers and pending entries, packed.
            78 GroupAdd(key) group [Changes key] {
                group: &'a [u8],
                last_delivered: StreamId,
                entries_read: Option<u64>,
                content: &'a [u8],
            }
            /// So many requests of the stream's producers have been remembered so far, and so many repeated ones recognized.
            79 RequestCounters(key) stream [Notes key] { added: u64, duplicates: u64 }
            /// These entries are pending, for consumers of the group that are named once or for nobody, packed.
            80 PendingAdd(key) group [Notes key] { group: &'a [u8], consumers: &'a [u8], deliveries: &'a [u8] }
            /// The consumer group has this policy: after so many milliseconds without an acknowledgement, and a backoff that begins and
            /// ends with so many, an entry is due; after so many deliveries, 0 for any number, it goes to the stream under the key
            /// `dead_letters`. If `idle_ms` is 0 it has none, and all else is 0 and empty.
            81 GroupPolicy(key) stream [Changes key] {
                group: &'a [u8],
                idle_ms: u64,
                max_deliveries: u64,
                dead_letters: &'a [u8],
                backoff_base_ms: u64,
                backoff_max_ms: u64,
            }
            /// The entry, which no consumer has, is due by the group's policy at this Unix time in milliseconds, and not at once.
            82 PendingHold(key) stream [Notes key] { group: &'a [u8], id: StreamId, until_ms: u64 }
            /// The stream, which may be new, keeps a message of these fields and values until the time that its id says, as Unix time in
            /// milliseconds. The sequence of the id is a ticket; those up to it have been given out.
            83 StreamDelay(key) delayed [Changes key] { id: StreamId, pairs: &'a [u8] }
            /// The stream has given up the delayed message of this id.
            84 StreamCancel(key) delayed [Changes key] { id: StreamId }
            /// The delayed message of this id is due, and has become an entry by the other one.
            85 StreamRelease(key) delayed [Changes key] { id: StreamId, as_id: StreamId }
            /// The stream has given out tickets for delayed messages up to this one.
            86 StreamTickets(key) delayed [Notes key] { last: u64 }

            /// The script cache holds this text; `loaded`: until it is flushed, not only while there is room.
            100 ScriptPut beside [] { body: &'a [u8], loaded: bool }
            /// The script of this name left the cache, to make room.
            101 ScriptDrop beside [] { sha1: &'a [u8] }
            /// The script cache is empty.
            102 ScriptFlush beside [] {}
            /// This library of functions is there, in place of the one of the same name.
            103 LibraryPut beside [] { code: &'a [u8] }
            /// The library of this name is gone.
            104 LibraryDelete beside [] { name: &'a [u8] }
            /// There are no libraries.
            105 LibraryFlush beside [] {}

            /// The key holds a lock, gate or stock of this limit, without grants, where nothing was; `fixed`: the limit is its own, and it lasts
            /// without grants. A stock's limit is 0, and it always lasts.
            110 GrantsCreate(key) grants [Changes key] { kind: Kind, limit: u64, fixed: bool }
            /// The holder has this grant, in place of the one of this token that it had. The times are Unix times in milliseconds. No token that is given
            /// out later, under whatever key, is as small as this one.
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
            /// The holder's grant, which has this token, is over, and the key is gone with the last one unless its limit is its own.
            112 GrantEnd(key) grants [Changes key] { holder: &'a [u8], token: u64, cause: Cause, emptied: bool }
            /// The limit is this one from now on; `fixed`: it is the gate's own.
            113 GrantsLimit(key) grants [Changes key] { limit: u64, fixed: bool }
            /// Tokens up to this one have been given out.
            114 Tokens grants [] { last: u64 }

            /// The stock has these amounts and rules. What is neither held nor sold of the total is available. `stream`: the key of the stream that
            /// is told how holds end, empty for none. `refiller`: the order whose caller is to refill, empty for none, until that Unix time in
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
            /// The stock's total has grown by a refill, whose id is remembered, and nobody is to refill any more.
            116 StockAdd(key) stock [Changes key] { id: &'a [u8], units: u64, at_ms: i64 }
            /// The order's hold, which has this token, is over, and its units are sold: to its subject, if it has one. Both are remembered.
            117 StockSold(key) stock [Changes key] { order: &'a [u8], token: u64, at_ms: i64 }
            /// The stock remembers this of a refill, an order that was sold, or a subject that has bought.
            118 StockNote(key) stock [Changes key] { memory: Memory, name: &'a [u8], units: u64, at_ms: i64 }

            /// No token up to this one will be given out any more. Those that were not are another server's, which its values may bring.
            119 TokensRaise grants [] { to: u64 }
        }
    };
}
pub(in crate::keyspace) use for_each_effect;

impl<'a> Effect<'a> {
    /// The encoded effects of which it builds a value, if it does.
    pub fn steps(&self) -> Option<&'a [u8]> {
        match *self {
            Effect::Build { steps, .. } | Effect::Part { steps, .. } => Some(steps),
            _ => None,
        }
    }

    /// Whether it has to do with values that are built: no such effect is itself a step of one.
    pub fn builds(&self) -> bool {
        self.steps().is_some() || matches!(self, Effect::Complete { .. })
    }
}

/// What an effect does to a key or a database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// It needs what is there, and leaves it.
    Reads,
    /// Something else is there now.
    Changes,
    /// Nothing is there now.
    Removes,
    /// What those who watch it or wait for it take for no change, as what a group notes about deliveries.
    Notes,
}

/// What an effect is about.
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

/// Whether this is all that an effect does: to change, in whatever way, the key that it is about.
const fn is_own_key_only(targets: &[(Role, &str)]) -> bool {
    match targets {
        [(Role::Reads, _)] => false,
        [(_, what)] => matches!(what.as_bytes(), b"key"),
        _ => false,
    }
}

/// Up to two.
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
            /// Its code, and the key that it is about, if it is about one.
            #[inline(always)]
            pub(super) fn code_and_key(&self) -> (u8, Option<&'a [u8]>) {
                match *self {
                    $(Effect::$name { $($key,)? .. } => ($code, None::<&'a [u8]>$(.or(Some($key)))?),)*
                }
            }

            /// The key that it is about, if it is about one.
            #[inline]
            pub fn key(&self) -> Option<&'a [u8]> {
                self.code_and_key().1
            }

            /// The same effect on the key of this name; itself if it has no key.
            #[allow(unused_variables, reason = "an effect has other fields, and need not have a key")]
            pub(in crate::keyspace) fn with_key(&self, new_key: &'a [u8]) -> Effect<'a> {
                match *self {
                    $(Effect::$name { $($key: _,)? $($field),* } => Effect::$name { $($key: new_key,)? $($field),* },)*
                }
            }

            /// What it does to which keys and databases, when it is one of database `own_db`.
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
                    $(Effect::$name { .. } => const { is_own_key_only(&[$((Role::$role, stringify!($what $(@ $db)?))),*]) },)*
                }
            }

            /// Whether it removes what was over anyway.
            pub fn is_expiry(&self) -> bool {
                match *self {
                    Effect::Del { cause, .. }
                    | Effect::HashRemove { cause, .. }
                    | Effect::SetRemove { cause, .. }
                    | Effect::GrantEnd { cause, .. } => cause == Cause::Expiry,
                    _ => false,
                }
            }

            /// Its name, and its fields with theirs, for people.
            pub fn describe(&self) -> (&'static str, Vec<(&'static str, Shown<'a>)>) {
                match self {
                    $(Effect::$name { $($key,)? $($field),* } => (
                        stringify!($name),
                        vec![$((stringify!($key), $key.shown()),)? $((stringify!($field), $field.shown())),*],
                    ),)*
                }
            }

            /// Appends the encoded fields but the key.
            #[inline(always)]
            pub(super) fn put_fields(&self, out: &mut Vec<u8>) {
                match self {
                    $(Effect::$name { $($field,)* .. } => { $($field.put(out);)* })*
                }
            }

            /// Takes the fields off the front of `input`, the key only where none is given; `None` when the bytes make no sense.
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
