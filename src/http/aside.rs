//! Work that would keep the connections of a site waiting.

use tokio::task::{JoinError, spawn_blocking};

use super::limits::ASIDE_MIN_BYTES;

/// Works on this many bytes, on another thread if they are many. An error says that the process ends.
pub(super) async fn aside<T: Send + 'static>(
    bytes: usize,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, JoinError> {
    if bytes < ASIDE_MIN_BYTES { Ok(work()) } else { spawn_blocking(work).await }
}
