//! Type codes: the kind of a value and its layout.
//!
//! Redis and Valkey share the codes up to 21. From 22 on, each assigns its own, so a code has a meaning only together
//! with the [`Dialect`] of its file or payload. [`known`] combines the two into one code: in this program,
//! [`VALKEY_HASH_2`] is Valkey's 22.

/// The version that is written: Redis 7.0's.
pub const VERSION: u16 = 10;

/// The version of values that Redis 7.0 does not know: hashes with fields that expire, introduced by Redis 7.4.
pub const VERSION_OF_EXPIRING_FIELDS: u16 = 12;

/// The newest version that can be read: Redis 8's. Features of it that are not known here are refused by their types.
pub const NEWEST_VERSION: u16 = 15;

/// Valkey's own range of versions, in use since Valkey 9; earlier versions are those of Redis.
pub const OLDEST_VALKEY_VERSION: u16 = 80;
/// See [`OLDEST_VALKEY_VERSION`].
pub const NEWEST_VALKEY_VERSION: u16 = 80;

pub(super) const STRING: u8 = 0;
pub(super) const LIST: u8 = 1;
pub(super) const SET: u8 = 2;
pub(super) const ZSET: u8 = 3;
pub(super) const HASH: u8 = 4;
/// Scores are doubles instead of text.
pub(super) const ZSET_2: u8 = 5;
/// Values of modules, without and with the marks that let others skip them.
pub(super) const MODULE_PREVIEW: u8 = 6;
pub(super) const MODULE_2: u8 = 7;
pub(super) const HASH_ZIPMAP: u8 = 9;
pub(super) const LIST_ZIPLIST: u8 = 10;
pub(super) const SET_INTSET: u8 = 11;
pub(super) const ZSET_ZIPLIST: u8 = 12;
pub(super) const HASH_ZIPLIST: u8 = 13;
/// The nodes are ziplists.
pub(super) const LIST_QUICKLIST: u8 = 14;
pub(super) const STREAM_1: u8 = 15;
pub(super) const HASH_LISTPACK: u8 = 16;
pub(super) const ZSET_LISTPACK: u8 = 17;
/// The nodes are listpacks, or one large element each.
pub(super) const LIST_QUICKLIST_2: u8 = 18;
/// Adds the counters from which the lag of groups follows.
pub(super) const STREAM_2: u8 = 19;
pub(super) const SET_LISTPACK: u8 = 20;
/// Adds the time when a consumer last received something.
pub(super) const STREAM_3: u8 = 21;
/// A hash with fields that expire, as the release candidates of Redis 7.4 wrote it.
pub(super) const HASH_METADATA_PREVIEW: u8 = 22;
pub(super) const HASH_LISTPACK_EX_PREVIEW: u8 = 23;
/// A hash with fields that expire.
pub(super) const HASH_METADATA: u8 = 24;
pub(super) const HASH_LISTPACK_EX: u8 = 25;
/// Adds the requests of idempotent producers, since Redis 8.6.
pub(super) const STREAM_4: u8 = 26;
/// Adds the entries that were given back to their group, since Redis 8.8.
pub(super) const STREAM_5: u8 = 27;
/// Valkey's 22, with fields that expire.
pub(super) const VALKEY_HASH_2: u8 = 22 | VALKEY;

/// Locks, gates and stocks, which neither Redis nor Valkey has. Both refuse a payload of this type, and none of their
/// versions comes near the number.
pub(super) const GRANTS: u8 = 120;

/// Streams with groups that have a policy, in payloads of DUMP: the policies, followed by a [`STREAM_2`]. Files hold
/// just the [`STREAM_2`].
pub(super) const STREAM_WITH_POLICIES: u8 = 121;

/// Streams with delayed messages, in payloads of DUMP: the policies (possibly none), the messages, then a [`STREAM_2`].
/// Files hold just the [`STREAM_2`].
pub(super) const STREAM_WITH_DELAYED: u8 = 122;

/// Complete streams, as one server of this kind sends them to another: policies, delayed messages, entries that are
/// held back, then a [`STREAM_5`].
pub(super) const STREAM_WHOLE: u8 = 123;

/// Sets with members that expire, as one server of this kind sends them to another.
pub(super) const SET_METADATA: u8 = 124;

/// The bit that marks Valkey's own codes.
const VALKEY: u8 = 0x80;

/// The first code that the two use differently, and the last code of each.
const FIRST_OF_OWN: u8 = 22;
const LAST_OF_REDIS: u8 = STREAM_5;
const LAST_OF_VALKEY: u8 = 22;

/// The project whose codes are meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    /// Redis, and Valkey up to 8.
    Redis,
    /// Valkey from 9 on.
    Valkey,
}

impl Dialect {
    /// The dialect of a version of RDB; `None` if the version is not known.
    pub(super) fn of_version(version: u16) -> Option<Dialect> {
        match version {
            ..=NEWEST_VERSION => Some(Dialect::Redis),
            OLDEST_VALKEY_VERSION..=NEWEST_VALKEY_VERSION => Some(Dialect::Valkey),
            _ => None,
        }
    }
}

/// The code used in this program for `dialect`'s `code`; `None` if that is not a known type.
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
