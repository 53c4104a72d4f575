//! The codes that can take the place of a type in a file but are not types.

/// Redis since version 13: module metadata of a key. Valkey: slots being moved between nodes.
pub(super) const KEY_META: u8 = 0xf3;
/// See [`KEY_META`].
pub(super) const SLOT_IMPORT: u8 = 0xf3;
pub(super) const SLOT_INFO: u8 = 0xf4;
pub(super) const LIBRARY: u8 = 0xf5;
/// A library as written by the release candidates of Redis 7.0.
pub(super) const LIBRARY_PREVIEW: u8 = 0xf6;
pub(super) const MODULE_AUX: u8 = 0xf7;
pub(super) const IDLE: u8 = 0xf8;
pub(super) const FREQ: u8 = 0xf9;
pub(super) const AUX: u8 = 0xfa;
pub(super) const RESIZE_DB: u8 = 0xfb;
pub(super) const EXPIRES_AT_MS: u8 = 0xfc;
pub(super) const EXPIRES_AT_S: u8 = 0xfd;
pub(super) const SELECT_DB: u8 = 0xfe;
pub(super) const END: u8 = 0xff;

/// The marks of the parts of a module's data.
pub(super) const MARKED_END: u64 = 0;
pub(super) const MARKED_SIGNED: u64 = 1;
pub(super) const MARKED_UNSIGNED: u64 = 2;
pub(super) const MARKED_FLOAT: u64 = 3;
pub(super) const MARKED_DOUBLE: u64 = 4;
pub(super) const MARKED_STRING: u64 = 5;

/// The first version with a checksum at the end.
pub(super) const FIRST_WITH_CHECKSUM: u16 = 5;
