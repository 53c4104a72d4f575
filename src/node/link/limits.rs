//! Times and bounds of the links between nodes, each with its reason.

use std::time::Duration;

use crate::log::limits::LOG_BLOCK_MAX_BYTES;

/// How long opening a connection may take, looking up the name included.
pub(super) const CONNECT_MAX: Duration = Duration::from_secs(1);

/// How long a handshake may take, that of TLS included: a few round trips and signatures.
pub(super) const HANDSHAKE_MAX: Duration = Duration::from_secs(2);

/// How long a connection may take no byte, or leave bytes without acknowledgement. Messages behind such a stall are
/// older than several elections.
pub(super) const STALL_MAX: Duration = Duration::from_secs(2);

/// Interval at which an idle connection sends an empty frame, so that both ends notice a dead one.
pub(super) const KEEP_ALIVE_EVERY: Duration = Duration::from_secs(1);

/// How long a connection that carries a snapshot may take or bring no byte. The disk at either end may hang for
/// seconds; nothing waits behind, and to begin anew costs more than to wait.
pub(super) const TRANSFER_STALL_MAX: Duration = Duration::from_secs(10);

/// How long a failed transfer of a snapshot waits before it is reported. Consensus tries again as soon as it knows.
pub(super) const TRANSFER_RETRY: Duration = Duration::from_secs(1);

/// How long an accepted connection may bring no byte. Several empty frames were due in that time.
pub(super) const SILENCE_MAX: Duration = Duration::from_secs(5);

/// The pause before a failed connection is dialled again; each failure doubles it, up to [`RETRY_MAX`].
pub(super) const RETRY_FIRST: Duration = Duration::from_millis(50);

/// The longest pause between two attempts. A node that comes back must not be missed for long.
pub(super) const RETRY_MAX: Duration = Duration::from_secs(1);

/// How long a connection must have lasted to count as sound. One that fails sooner is dialled again with the longer
/// pause, and the same reason is not logged again.
pub(super) const SOUND_AFTER: Duration = Duration::from_secs(1);

/// How long the listener waits when no connection can be accepted, as when descriptors are used up.
pub(super) const ACCEPT_RETRY: Duration = Duration::from_millis(100);

/// Accepted connections in a handshake. One more closes the oldest: honest handshakes are over in moments, and
/// strangers must not exhaust the descriptors.
pub(super) const HANDSHAKES_MAX: usize = 64;

/// Failures of strangers that are remembered, so that each is logged once.
pub(super) const REMEMBERED_FAILURES: usize = 16;

/// Bytes of a greeting behind its head. This version's takes 65 and the host; a later one may append fields.
pub(super) const GREETING_MAX_BYTES: usize = 512;

/// Bytes of a frame's payload: the longest block, and room for the fields around it. Consensus puts up to 1 MiB of
/// entries into a message, or a single longer one.
pub(super) const FRAME_MAX_BYTES: usize = LOG_BLOCK_MAX_BYTES + 2 * 1024 * 1024;

const _: () = assert!(FRAME_MAX_BYTES <= u32::MAX as usize, "the length of a frame has 32 bits");

/// Room made in a buffer at a time before a read.
pub(super) const READ_CHUNK_BYTES: usize = 64 * 1024;

/// Bytes of a payload from which it stays in the buffer that it was read into. A shorter one is copied: its blocks may
/// be kept for long, and would keep the whole buffer in memory.
pub(super) const SHARED_FRAME_MIN_BYTES: usize = READ_CHUNK_BYTES / 2;

/// Bytes of frames that one write begins with. Messages that wait are joined up to this length; one may be longer.
pub(super) const WRITE_BATCH_BYTES: usize = 256 * 1024;

/// Bytes of entries that wait for one peer: those of 64 messages of 1 MiB, which is all that consensus sends before
/// the peer answers.
pub(super) const QUEUED_ENTRIES_MAX_BYTES: usize = 64 * 1024 * 1024;

/// Appends that wait for one peer. Those without entries count for nothing in [`QUEUED_ENTRIES_MAX_BYTES`].
pub(super) const QUEUED_APPENDS_MAX: usize = 4_096;

/// Heartbeats, votes and answers that wait for one peer: those of a minute.
pub(super) const QUEUED_SMALL_MAX: usize = 4_096;

/// Bytes of a snapshot in one frame: few enough that a message gets its turn on the thread between two frames.
pub(super) const TRANSFER_CHUNK_BYTES: usize = 256 * 1024;

/// Frames of a snapshot that wait between the connection and the disk, at either end.
pub(super) const TRANSFER_CHUNKS_WAITING: usize = 4;

/// Bytes of the text by which a snapshot is refused.
pub(super) const REFUSAL_MAX_BYTES: usize = 1024;

/// Bytes of the file of a secret. It holds some dozens.
pub(super) const SECRET_FILE_MAX_BYTES: u64 = 4 * 1024;

/// Bytes of a secret, without the blanks around it: 32 random bytes in base64 are 44, and in hexadecimal 64.
pub(super) const SECRET_MIN_BYTES: usize = 32;
