//! The bounds of connections that are not configuration parameters, each with its reason.

use std::time::Duration;

use crate::base::limits::READ_CHUNK_BYTES;

/// Bytes read from a socket at once, including the part already received, while a large command is known to be
/// incomplete.
pub(crate) const READ_LARGE_BYTES: usize = 256 * 1024;

/// Bytes of an unfinished command that can be placed in front of the next read. A longer part stays where it is kept,
/// and the bytes read are appended to it.
pub(crate) const READ_BEHIND_BYTES: usize = 128 * 1024;

/// Bytes of one connection beyond which an I/O thread receives nothing more ahead of the engine's thread; it may hold
/// one [`READ_CHUNK_BYTES`] more. This is also the number of bytes that the
/// engine's thread hands to an I/O thread before the socket takes them.
pub(crate) const RELAY_BYTES: usize = READ_CHUNK_BYTES;

/// Value used in place of [`RELAY_BYTES`] once all connections together hold more than [`RELAY_TOTAL_BYTES`] in buffers
/// of I/O threads. Each connection may still add this many bytes.
pub(crate) const RELAY_LEAST_BYTES: usize = 16 * 1024;

/// Bytes in the buffers of all I/O threads' connections beyond which each gets only [`RELAY_LEAST_BYTES`].
pub(crate) const RELAY_TOTAL_BYTES: usize = 64 * 1024 * 1024;

/// Size in bytes up to which a buffer does not count towards [`RELAY_TOTAL_BYTES`]: most requests and replies are
/// shorter.
pub(crate) const RELAY_UNCOUNTED_BYTES: usize = 4 * 1024;

/// Bytes of a relay buffer that a connection keeps while the buffer is empty.
pub(crate) const RELAY_KEPT_BYTES: usize = 256;

/// Events that an I/O thread takes from the system at a time.
pub(crate) const IO_EVENTS_MAX: usize = 256;

/// Bytes read at a time from one of the connections served while a script is busy.
pub(crate) const BUSY_READ_CHUNK_BYTES: usize = 16 * 1024;

/// How long a TLS handshake may take: several round trips on the worst of networks. The client has not authenticated
/// yet.
pub(crate) const TLS_HANDSHAKE_MAX: Duration = Duration::from_secs(10);

/// Unfinished TLS handshakes at a time, each of some 10 to 20 KiB. One more closes the oldest: honest handshakes are
/// over in moments.
pub(crate) const TLS_HANDSHAKES_MAX: usize = 1_000;

/// Bytes that an idle TLS connection takes beyond a plain one: its keys and rustls' buffers, as measured on x86-64.
pub(crate) const TLS_CONNECTION_BYTES: u32 = 9 * 1024;

/// Bytes of ciphertext read at a time from a TLS connection: two records of the largest size.
pub(crate) const TLS_READ_CHUNK_BYTES: usize = 32 * 1024;

/// Reads from a TLS connection's socket in one turn that bring no data for the session, as in a handshake.
pub(crate) const TLS_FRUITLESS_READS_MAX: usize = 8;

/// Encrypted but unsent bytes of one client. They are held beside their plaintext, so TLS at most doubles the memory
/// for unread replies.
pub(crate) const TLS_UNSENT_MAX_BYTES: usize = 64 * 1024;

/// TLS sessions remembered for resumption, whatever `tls-session-cache-size` allows: some 1 KiB each, more with client
/// certificates.
pub(crate) const TLS_SESSIONS_MAX: usize = 1 << 20;

/// Connections accepted at a time from one listener while a script is busy, so that existing connections get their
/// turn.
pub(crate) const BUSY_ACCEPTS_MAX: usize = 1_000;

/// How long the server waits at its end for clients that do not read their replies.
pub(crate) const END_PATIENCE: Duration = Duration::from_secs(1);

/// Interval at which the ending server checks whether clients have read their replies.
pub(crate) const END_CHECK_EVERY: Duration = Duration::from_millis(5);

// Behind the kept part of a command there must be room for an ordinary read.
const _: () = assert!(READ_BEHIND_BYTES + READ_CHUNK_BYTES <= READ_LARGE_BYTES);

/// Connections from inside the process that the engine's thread has not taken yet: it is busy, and more would only wait
/// as well.
pub(crate) const INSIDE_WAITING_MAX: usize = 64;

/// Connections from inside the process beyond `maxclients`: when it is reached, people must be able to look why.
pub(crate) const INSIDE_RESERVED: usize = 64;

/// Longest time that a snapshot leaves the engine to requests between two slices. A slice takes far less, unless the
/// process was stopped during it.
pub(crate) const SAVE_REST_MAX: Duration = Duration::from_millis(50);

/// How long a start waits before it checks again a disk that is behind.
pub(crate) const LOAD_PAUSE: Duration = Duration::from_millis(1);
