//! The bounds of RDB that are not configuration parameters, each with its reason.

/// Bytes of all packed strings of one RDB value after unpacking, and of the names that its stream entries share: twice
/// the longest string. A payload can't take more memory than clients can honestly fill with a few commands.
pub const RDB_UNPACKED_MAX_BYTES: usize = 1024 * 1024 * 1024;

/// Entries of one listpack, ziplist or zipmap of an RDB value. They are listed before a value is built from them, and
/// the list takes twelve times the bytes of the smallest entries. Redis makes far shorter ones.
pub const RDB_PACKED_MAX_ITEMS: usize = 1 << 22;

/// Bytes of one value in an imported file or stream: the most that RESTORE takes with the default `proto-max-bulk-len`,
/// less the framing.
pub const RDB_VALUE_MAX_BYTES: usize = 512 * 1024 * 1024 - 64;

/// Bytes of an RDB file gathered before they are written.
pub const RDB_WRITE_BYTES: usize = 256 * 1024;

/// Bytes of an RDB file read at a time.
pub const RDB_READ_BYTES: usize = 256 * 1024;
