//! A reader of the feed: what docs/feed.md specifies, from the other side.

use std::num::NonZeroU64;
use std::time::{Duration, Instant};

use bytes::Bytes;
use redis_protocol::resp2::types::{BytesFrame, Resp2Frame};

use crate::base::limits::IMPORT_TIMEOUT;
use crate::base::lsn::Lsn;
use crate::client::{Address, ClientError, Connection};
use crate::log::limits::LOG_BLOCK_MAX_BYTES;

/// Bytes of changes to ask for at once.
const PART_BYTES: &[u8] = b"1048576";

/// Bytes of a reply besides one block of any length.
const REPLY_MORE_BYTES: usize = 16 * 1024 * 1024;

/// Why the feed can't be read on.
#[derive(Debug, thiserror::Error)]
pub enum FeedError {
    /// The server does not respond, or refuses.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// The server has replaced its journal by a newer snapshot.
    #[error("the server no longer has the changes after {after}: it keeps them only until its next snapshot")]
    Gone {
        /// The last change that was read.
        after: Lsn,
    },
    /// The server has not written these changes.
    #[error("the server has not written the change {after}, which was read from it: it was set back")]
    Ahead {
        /// The last change that was read.
        after: Lsn,
    },
}

pub(crate) struct Feed {
    server: Connection<'static>,
    pace: Option<Pace>,
}

/// Lets so many bytes a second pass.
struct Pace {
    bytes_per_second: NonZeroU64,
    /// When all bytes have had their time.
    is_over_at: Instant,
}

impl Pace {
    /// Waits until these bytes have had their time, too.
    fn spend(&mut self, bytes: u64) {
        let now = Instant::now();
        let time = Duration::from_secs_f64(bytes as f64 / self.bytes_per_second.get() as f64);
        self.is_over_at = self.is_over_at.max(now) + time;
        std::thread::sleep(self.is_over_at - now);
    }
}

/// Which data it is, and how far it goes.
pub(crate) struct State {
    pub(crate) history: String,
    pub(crate) last: Lsn,
}

/// The beginning of a snapshot.
#[derive(Clone, Copy)]
pub(crate) struct Begun {
    pub(crate) lsn: Lsn,
    pub(crate) time_ms: i64,
    /// Bytes of the server's file.
    pub(crate) bytes: u64,
}

/// Units of a snapshot.
pub(crate) struct Part {
    /// Bytes of the file read so far.
    pub(crate) read: u64,
    pub(crate) units: Bytes,
}

/// Units that were made at one time.
pub(crate) struct Block {
    pub(crate) first: Lsn,
    pub(crate) time_ms: i64,
    pub(crate) units: Bytes,
}

impl Feed {
    /// Connects to a server. The environment variable `auth` has the password if the address has none.
    pub(crate) fn open(from: Address<'_>, auth: &str) -> Result<Feed, ClientError> {
        let mut server = Connection::open(from, auth, IMPORT_TIMEOUT)?;
        server.set_reply_max_bytes(LOG_BLOCK_MAX_BYTES + REPLY_MORE_BYTES);
        Ok(Feed { server, pace: None })
    }

    /// Reads at most so many bytes of snapshots and changes a second.
    pub(crate) fn set_max_rate(&mut self, bytes_per_second: NonZeroU64) {
        self.pace = Some(Pace { bytes_per_second, is_over_at: Instant::now() });
    }

    fn spend(&mut self, bytes: u64) {
        if let Some(pace) = &mut self.pace {
            pace.spend(bytes);
        }
    }

    /// Returns the connection, for other commands between the calls.
    pub(crate) fn server(&mut self) -> &mut Connection<'static> {
        &mut self.server
    }

    pub(crate) fn state(&mut self) -> Result<State, FeedError> {
        let mut fields = self.array(&[b"FEED", b"STATE"])?.unwrap_or_default().into_iter();
        let (mut history, mut last) = (None, None);
        while let (Some(name), Some(value)) = (fields.next(), fields.next()) {
            match name.as_bytes() {
                Some(b"history") => history = value.as_str().map(str::to_owned),
                Some(b"last") => last = lsn(&value),
                _ => {}
            }
        }
        let state = history.zip(last).map(|(history, last)| State { history, last });
        Ok(state.ok_or_else(|| self.server.not_the_protocol())?)
    }

    /// Begins to read the newest snapshot; `None` if there is none.
    pub(crate) fn snapshot(&mut self) -> Result<Option<Begun>, FeedError> {
        let Some(fields) = self.array(&[b"FEED", b"SNAPSHOT"])? else { return Ok(None) };
        let begun = match &*fields {
            [at, BytesFrame::Integer(time_ms), BytesFrame::Integer(bytes)] => {
                lsn(at).map(|lsn| Begun { lsn, time_ms: *time_ms, bytes: bytes.unsigned_abs() })
            }
            _ => None,
        };
        begun.map(Some).ok_or_else(|| self.server.not_the_protocol().into())
    }

    /// Returns the next part of the snapshot; `None` at its end.
    pub(crate) fn part(&mut self) -> Result<Option<Part>, FeedError> {
        match &*self.array(&[b"FEED", b"PART"])?.unwrap_or_default() {
            [BytesFrame::Integer(read), BytesFrame::BulkString(units)] => {
                self.spend(units.len() as u64);
                Ok(Some(Part { read: read.unsigned_abs(), units: units.clone() }))
            }
            [BytesFrame::Integer(_), BytesFrame::Null] => Ok(None),
            _ => Err(self.server.not_the_protocol().into()),
        }
    }

    /// Returns blocks of changes after `after`, in order; none if there are none within `patience`.
    pub(crate) fn read(&mut self, after: Lsn, patience: Duration) -> Result<Vec<Block>, FeedError> {
        let (after_text, patience_ms) = (after.get().to_string(), patience.as_millis().to_string());
        let mut words: Vec<&[u8]> = vec![b"FEED", b"READ", after_text.as_bytes(), b"COUNT", PART_BYTES];
        if !patience.is_zero() {
            words.extend([&b"BLOCK"[..], patience_ms.as_bytes()]);
        }
        let fields = match self.array(&words) {
            Err(FeedError::Client(ClientError::Refused(_, text))) if text.starts_with("GONE ") => {
                return Err(FeedError::Gone { after });
            }
            Err(FeedError::Client(ClientError::Refused(_, text))) if text.starts_with("AHEAD ") => {
                return Err(FeedError::Ahead { after });
            }
            fields => fields?,
        };
        let Some(fields) = fields else { return Ok(Vec::new()) };
        let blocks: Option<Vec<Block>> = match &*fields {
            [BytesFrame::Integer(_), BytesFrame::Array(blocks)] => blocks.iter().map(block).collect(),
            _ => None,
        };
        let blocks = blocks.ok_or_else(|| self.server.not_the_protocol())?;
        self.spend(blocks.iter().map(|block| block.units.len() as u64).sum());
        Ok(blocks)
    }

    /// Returns the elements of a reply that is an array or null.
    fn array(&mut self, words: &[&[u8]]) -> Result<Option<Vec<BytesFrame>>, FeedError> {
        match self.server.call(words)? {
            BytesFrame::Array(elements) => Ok(Some(elements)),
            BytesFrame::Null => Ok(None),
            BytesFrame::Error(text) => Err(self.server.refused(&text).into()),
            _ => Err(self.server.not_the_protocol().into()),
        }
    }
}

fn block(frame: &BytesFrame) -> Option<Block> {
    let BytesFrame::Array(fields) = frame else { return None };
    match &**fields {
        [first, BytesFrame::Integer(time_ms), BytesFrame::BulkString(units)] => {
            Some(Block { first: lsn(first)?, time_ms: *time_ms, units: units.clone() })
        }
        _ => None,
    }
}

fn lsn(frame: &BytesFrame) -> Option<Lsn> {
    match frame {
        BytesFrame::Integer(number) => u64::try_from(*number).ok().map(Lsn::new),
        _ => None,
    }
}
