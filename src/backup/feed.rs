//! A reader of the feed: what docs/feed.md specifies, from the other side.

use std::time::Duration;

use bytes::Bytes;
use redis_protocol::resp2::types::{BytesFrame, Resp2Frame};

use super::error::BackupError;
use crate::base::limits::IMPORT_TIMEOUT;
use crate::base::lsn::Lsn;
use crate::client::{Address, ClientError, Connection, TIDEGATE_AUTH};
use crate::log::limits::LOG_BLOCK_MAX_BYTES;

/// Bytes of changes to ask for at once.
const PART_BYTES: &[u8] = b"1048576";

/// Bytes of a reply besides one block of any length.
const REPLY_MORE_BYTES: usize = 16 * 1024 * 1024;

pub(super) struct Feed {
    server: Connection<'static>,
}

/// Which data it is, and how far it goes.
pub(super) struct State {
    pub(super) history: String,
    pub(super) last: Lsn,
}

/// The beginning of a snapshot.
#[derive(Clone, Copy)]
pub(super) struct Begun {
    pub(super) lsn: Lsn,
    pub(super) time_ms: i64,
    /// Bytes of the server's file.
    pub(super) bytes: u64,
}

/// Units of a snapshot.
pub(super) struct Part {
    /// Bytes of the file read so far.
    pub(super) read: u64,
    pub(super) units: Bytes,
}

/// Units that were made at one time.
pub(super) struct Block {
    pub(super) first: Lsn,
    pub(super) time_ms: i64,
    pub(super) units: Bytes,
}

impl Feed {
    pub(super) fn open(from: Address<'_>) -> Result<Feed, ClientError> {
        let mut server = Connection::open(from, TIDEGATE_AUTH, IMPORT_TIMEOUT)?;
        server.set_reply_max_bytes(LOG_BLOCK_MAX_BYTES + REPLY_MORE_BYTES);
        Ok(Feed { server })
    }

    pub(super) fn state(&mut self) -> Result<State, BackupError> {
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
    pub(super) fn snapshot(&mut self) -> Result<Option<Begun>, BackupError> {
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
    pub(super) fn part(&mut self) -> Result<Option<Part>, BackupError> {
        match &*self.array(&[b"FEED", b"PART"])?.unwrap_or_default() {
            [BytesFrame::Integer(read), BytesFrame::BulkString(units)] => {
                Ok(Some(Part { read: read.unsigned_abs(), units: units.clone() }))
            }
            [BytesFrame::Integer(_), BytesFrame::Null] => Ok(None),
            _ => Err(self.server.not_the_protocol().into()),
        }
    }

    /// Returns blocks of changes after `after`, in order; none if there are none within `patience`.
    pub(super) fn read(&mut self, after: Lsn, patience: Duration) -> Result<Vec<Block>, BackupError> {
        let (after_text, patience_ms) = (after.get().to_string(), patience.as_millis().to_string());
        let mut words: Vec<&[u8]> = vec![b"FEED", b"READ", after_text.as_bytes(), b"COUNT", PART_BYTES];
        if !patience.is_zero() {
            words.extend([&b"BLOCK"[..], patience_ms.as_bytes()]);
        }
        let fields = match self.array(&words) {
            Err(BackupError::Client(ClientError::Refused(_, text))) if text.starts_with("GONE ") => {
                return Err(BackupError::Gone { after });
            }
            Err(BackupError::Client(ClientError::Refused(_, text))) if text.starts_with("AHEAD ") => {
                return Err(BackupError::Ahead { after });
            }
            fields => fields?,
        };
        let Some(fields) = fields else { return Ok(Vec::new()) };
        let blocks = match &*fields {
            [BytesFrame::Integer(_), BytesFrame::Array(blocks)] => blocks.iter().map(block).collect(),
            _ => None,
        };
        blocks.ok_or_else(|| self.server.not_the_protocol().into())
    }

    /// Returns the elements of a reply that is an array or null.
    fn array(&mut self, words: &[&[u8]]) -> Result<Option<Vec<BytesFrame>>, BackupError> {
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
