//! The numbers of types: what a value is and how it is laid out.
//!
//! Redis and Valkey share the numbers up to 21. From 22 on each counts for itself, so that a number means something only
//! together with the [`Dialect`] of the file or payload it stands in. [`known`] makes one number of the two: in this program
//! [`VALKEY_HASH_2`] stands for Valkey's 22.

/// The newest version that is read: that of Redis 8. What it has that is not known here is refused by its type.
pub const NEWEST_VERSION: u16 = 15;

/// The versions that Valkey counts for itself, since its 9; those before it are Redis'.
pub const OLDEST_VALKEY_VERSION: u16 = 80;
/// See [`OLDEST_VALKEY_VERSION`].
pub const NEWEST_VALKEY_VERSION: u16 = 80;

pub(super) const STRING: u8 = 0;
pub(super) const LIST: u8 = 1;
pub(super) const SET: u8 = 2;
pub(super) const ZSET: u8 = 3;
pub(super) const HASH: u8 = 4;
/// Scores as doubles instead of text.
pub(super) const ZSET_2: u8 = 5;
/// Values of modules, without and with marks that let others skip them.
pub(super) const MODULE_PREVIEW: u8 = 6;
pub(super) const MODULE_2: u8 = 7;
pub(super) const HASH_ZIPMAP: u8 = 9;
pub(super) const LIST_ZIPLIST: u8 = 10;
pub(super) const SET_INTSET: u8 = 11;
pub(super) const ZSET_ZIPLIST: u8 = 12;
pub(super) const HASH_ZIPLIST: u8 = 13;
/// Nodes that are ziplists.
pub(super) const LIST_QUICKLIST: u8 = 14;
pub(super) const STREAM_1: u8 = 15;
pub(super) const HASH_LISTPACK: u8 = 16;
pub(super) const ZSET_LISTPACK: u8 = 17;
/// Nodes that are listpacks, or one large element.
pub(super) const LIST_QUICKLIST_2: u8 = 18;
/// With what lets the lag of groups be told.
pub(super) const STREAM_2: u8 = 19;
pub(super) const SET_LISTPACK: u8 = 20;
/// With the time when a consumer last got something.
pub(super) const STREAM_3: u8 = 21;
/// With fields that expire, as the release candidates of Redis 7.4 wrote it.
pub(super) const HASH_METADATA_PREVIEW: u8 = 22;
pub(super) const HASH_LISTPACK_EX_PREVIEW: u8 = 23;
/// With fields that expire.
pub(super) const HASH_METADATA: u8 = 24;
pub(super) const HASH_LISTPACK_EX: u8 = 25;
/// With the requests of idempotent producers, since Redis 8.6.
pub(super) const STREAM_4: u8 = 26;
/// With the entries that were given back to their group, since Redis 8.8.
pub(super) const STREAM_5: u8 = 27;
/// Valkey's 22, with fields that expire.
pub(super) const VALKEY_HASH_2: u8 = 22 | VALKEY;

/// Locks and gates, which neither Redis nor Valkey has: both refuse a payload of this type, and no version of theirs is near the number.
pub(super) const GRANTS: u8 = 120;

/// Streams with groups that have a policy, as payloads of DUMP: the policies, then what a [`STREAM_2`] is. In files they are that.
pub(super) const STREAM_WITH_POLICIES: u8 = 121;

/// Streams with delayed messages: policies, of which there may be none, then the messages, then what a [`STREAM_2`] is. As above.
pub(super) const STREAM_WITH_DELAYED: u8 = 122;

/// Streams with all that this server has of them, in what it sends to another one: policies, delayed messages, entries that are held back, and
/// then what a [`STREAM_5`] is.
pub(super) const STREAM_WHOLE: u8 = 123;

/// Sets with members that expire, in what this server sends to another one.
pub(super) const SET_METADATA: u8 = 124;

/// Set in the numbers here that are Valkey's own.
const VALKEY: u8 = 0x80;

/// The first number that the two use for different things, and the last one that each has.
const FIRST_OF_OWN: u8 = 22;
const LAST_OF_REDIS: u8 = STREAM_5;
const LAST_OF_VALKEY: u8 = 22;

/// Whose numbers are meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    /// Redis, and Valkey up to 8.
    Redis,
    /// Valkey from 9 on.
    Valkey,
}

impl Dialect {
    /// Who writes this version of RDB; `None` if it is not known.
    pub(super) fn of_version(version: u16) -> Option<Dialect> {
        match version {
            ..=NEWEST_VERSION => Some(Dialect::Redis),
            OLDEST_VALKEY_VERSION..=NEWEST_VALKEY_VERSION => Some(Dialect::Valkey),
            _ => None,
        }
    }
}

/// The number that stands here for what `dialect` calls `code`; `None` if that is no type that is known.
pub(super) fn known(dialect: Dialect, code: u8) -> Option<u8> {
    match (dialect, code) {
        (_, STRING..=MODULE_2 | HASH_ZIPMAP..FIRST_OF_OWN) | (Dialect::Redis, FIRST_OF_OWN..=LAST_OF_REDIS) => {
            Some(code)
        }
        (Dialect::Valkey, FIRST_OF_OWN..=LAST_OF_VALKEY) => Some(code | VALKEY),
        (_, GRANTS..=SET_METADATA) => Some(code),
        _ => None,
    }
}
