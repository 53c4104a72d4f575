//! The bounds of the users and their log that are not configuration parameters, each with its reason.

/// Last refusals among which ACL LOG looks for one like a new refusal, which is then only counted: as in Redis.
pub const ACL_LOG_MERGE_AMONG: usize = 10;

/// Age of a refusal up to which ACL LOG counts a similar one with it, in ms.
pub const ACL_LOG_MERGE_WITHIN_MS: i64 = 60_000;

/// Bytes of each text that ACL LOG keeps of a refusal: the object asked for, the name of the user and the line about
/// the client.
pub const ACL_LOG_MAX_TEXT_BYTES: usize = 4 * 1024;
