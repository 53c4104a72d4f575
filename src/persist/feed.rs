//! The feed: the data as of a snapshot, and from there on all changes as they become safe, for readers outside the
//! server. docs/feed.md specifies it.
//!
//! A reader asks, and gets one part; so it is never sent more than it takes. What it gets is read from the snapshot and
//! the journal on a thread of its connection, and costs the engine no more than the reply. Between two questions the
//! open files are kept, so that a reader that goes on need not search; every question could as well be the first one.
//!
//! A question without an answer yet is parked as any waiting call, with its deadline. Once a thread reads for it, there
//! is no deadline any more: a part that was read must reach its reader, or a slow disk would keep it where it is.
//!
//! This file holds the state, and what a thread does; [`super::feed_steps`] advances it.

use std::io;

use super::group_requests::Waiter;
use super::limits::FEED_READERS_MAX;
use crate::base::lsn::Lsn;
use crate::log::error::LogError;
use crate::log::follow::{ReadError, UnitReader, UnitSource};
use crate::log::platform::{Job, Worker};
use crate::log::snapshot::reader::SnapshotReader;
use crate::resp::reply::{Form, Reply};
use crate::spec::session_key::SessionKey;

/// What a reader asks for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Question {
    /// The newest snapshot, from its beginning.
    Snapshot,
    /// The next part of that snapshot.
    Part,
    /// The units after this one, some bytes of reply with them.
    Units { after: Lsn, bytes: usize },
}

impl Question {
    /// Whether there is something to read, if the feed shows the units up to `last`.
    pub(super) fn is_due(self, last: Lsn) -> bool {
        !matches!(self, Question::Units { after, .. } if after >= last)
    }
}

/// Why a question is refused.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FeedRefusal {
    #[error("the feed is read from the journal: set appendonly yes")]
    NoJournal,
    #[error("no more than {FEED_READERS_MAX} connections can read the feed at a time")]
    Crowded,
    #[error("no snapshot is being read: FEED SNAPSHOT begins with one")]
    NoSnapshot,
    #[error("the last change is {last}: what is after {after} was not written here")]
    Ahead { after: Lsn, last: Lsn },
    #[error("no thread can be started to read the feed: {0}")]
    NoThread(#[from] io::Error),
}

/// A part of the feed.
pub(super) enum Part {
    /// There is no snapshot: the journal has all changes.
    NoSnapshot,
    /// A snapshot begins: its Lsn, the time as of which it is, and the bytes of its file.
    Snapshot { lsn: Lsn, time_ms: i64, bytes: u64 },
    /// The snapshot has ended, with this byte of its file.
    EndOfSnapshot(u64),
    /// Units of a snapshot or of the journal, as the reply, which is long and the same in both protocols: the thread
    /// that reads makes it.
    Units(Vec<u8>),
    /// The journal begins behind this unit.
    Gone(Lsn),
}

/// The open files of a reader.
#[derive(Default)]
pub(super) struct Readers {
    pub(super) snapshot: Option<Box<SnapshotReader>>,
    /// With the last unit that it has read.
    pub(super) units: Option<Box<(Lsn, UnitReader)>>,
}

/// What a connection does.
pub(super) enum Step {
    /// Nothing: it was answered.
    Rests(Readers),
    /// It waits until its question can be answered.
    Waits(Readers, Question),
    /// A thread reads. A question that has come in the meantime is the next: whoever asked the one before has given it
    /// up.
    Reads(Job<(Readers, Part)>, Option<Question>),
}

/// A connection that reads.
pub(super) struct Feed {
    pub(super) client: Waiter,
    /// The thread that reads for it; `None` until there is something to read, and after a rest.
    pub(super) worker: Option<Worker>,
    pub(super) step: Step,
    /// When it has asked, or was answered, in ms of the steady clock.
    pub(super) seen_ms: i64,
}

/// The connections that read the feed.
#[derive(Default)]
pub(crate) struct Feeds {
    pub(super) feeds: Vec<Feed>,
    /// When the journal was synced for readers that wait, in ms of the steady clock.
    pub(super) synced_ms: i64,
}

impl Feeds {
    /// Forgets connections that are closed, except while a thread reads for them: a connection that takes their place
    /// would add to its work.
    pub(super) fn forget_closed(&mut self, is_open: impl Fn(SessionKey) -> bool) {
        self.feeds.retain(|feed| matches!(feed.step, Step::Reads(..)) || is_open(feed.client.0));
    }
}

impl Readers {
    /// Answers a question, on a thread of its own.
    pub(super) fn answer(
        mut self,
        source: &UnitSource,
        question: Question,
        until: Lsn,
    ) -> Result<(Readers, Part), String> {
        let part = match question {
            Question::Snapshot => self.begin_snapshot(source),
            Question::Part if self.snapshot.is_none() => return Err(FeedRefusal::NoSnapshot.to_string()),
            Question::Part => self.part(),
            Question::Units { after, bytes } => self.blocks(source, after, bytes, until),
        };
        match part {
            Ok(part) => Ok((self, part)),
            Err(ReadError::Gone { covered }) => Ok((self, Part::Gone(covered))),
            Err(error) => Err(error.to_string()),
        }
    }

    fn begin_snapshot(&mut self, source: &UnitSource) -> Result<Part, ReadError> {
        self.snapshot = None;
        loop {
            let Some(lsn) = source.directory().snapshots()?.pop() else { return Ok(Part::NoSnapshot) };
            let reader = match SnapshotReader::open(source.directory(), lsn) {
                // A newer one has just taken its place.
                Err(LogError::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => continue,
                opened => self.snapshot.insert(Box::new(opened?)),
            };
            return Ok(Part::Snapshot { lsn, time_ms: reader.end().time_ms, bytes: reader.progress().1 });
        }
    }

    fn part(&mut self) -> Result<Part, ReadError> {
        let Some(mut reader) = self.snapshot.take() else { return Ok(Part::NoSnapshot) };
        while reader.advance()? {
            let read = reader.progress().0;
            let units = reader.units();
            // A frame may hold only a part of a long unit.
            if !units.bytes().is_empty() {
                let mut reply = Reply::new(Form::Resp2);
                reply.array(2);
                reply.integer(read as i64);
                reply.bulk(units.bytes());
                self.snapshot = Some(reader);
                return Ok(Part::Units(reply.into_bytes()));
            }
        }
        Ok(Part::EndOfSnapshot(reader.progress().0))
    }

    fn blocks(&mut self, source: &UnitSource, after: Lsn, bytes: usize, until: Lsn) -> Result<Part, ReadError> {
        let kept = self.units.take().filter(|kept| kept.0 == after && kept.1.source().is_same(source));
        let (mut last, mut reader) = match kept.map(|kept| *kept) {
            Some((last, mut reader)) => {
                reader.go_on_until(until);
                (last, reader)
            }
            None => (after, source.read_after(after, until)?),
        };
        let mut reply = Reply::new(Form::Resp2);
        reply.array(2);
        integer(&mut reply, reader.until());
        let (begun, mut blocks) = (reply.begin(), 0);
        while (blocks == 0 || reply.len() < bytes)
            && let Some(block) = reader.next_block()?
        {
            reply.array(3);
            integer(&mut reply, block.first_lsn());
            reply.integer(block.time_ms());
            reply.bulk(block.unit_bytes());
            (last, blocks) = (block.last_lsn(), blocks + 1);
        }
        reply.end_array(begun, blocks);
        self.units = Some(Box::new((last, reader)));
        Ok(Part::Units(reply.into_bytes()))
    }
}

/// Writes a part as a reply.
pub(super) fn write(part: Result<Part, String>, reply: &mut Reply) {
    match part {
        Ok(Part::NoSnapshot) => reply.null_array(),
        Ok(Part::Snapshot { lsn, time_ms, bytes }) => {
            reply.array(3);
            integer(reply, lsn);
            reply.integer(time_ms);
            reply.integer(bytes as i64);
        }
        Ok(Part::EndOfSnapshot(read)) => {
            reply.array(2);
            reply.integer(read as i64);
            reply.null();
        }
        Ok(Part::Units(units)) => {
            // Only calls that other calls overtake are answered within something else, and FEED is none of them.
            debug_assert!(reply.is_empty());
            *reply.buffer_mut() = units;
        }
        Ok(Part::Gone(covered)) => reply.error(
            format!("GONE a snapshot has taken the place of the changes up to {covered}: begin with FEED SNAPSHOT")
                .as_bytes(),
        ),
        Err(error) => reply.error(format!("ERR {error}").replace(['\r', '\n'], " ").as_bytes()),
    }
}

fn integer(reply: &mut Reply, lsn: Lsn) {
    reply.integer(i64::try_from(lsn.get()).unwrap_or(i64::MAX));
}
