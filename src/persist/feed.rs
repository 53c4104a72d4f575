//! The feed: the data as of a snapshot, and from there on all changes as they become safe, for readers outside the
//! server. docs/feed.md specifies it.
//!
//! A reader asks, and gets one part; so it is never sent more than it takes. What it gets is read from the snapshot and
//! the journal on a thread of its own, and costs the engine no more than the reply. Between two questions the open
//! files are kept, so that a reader that goes on need not search; every question could as well be the first one.

use std::io;
use std::sync::Arc;

use super::Persistence;
use super::group_requests::Waiter;
use super::journal::{Journal, Keeper};
use super::limits::{FEED_READERS_MAX, FEED_REST};
use crate::base::lsn::Lsn;
use crate::log::follow::{ReadError, UnitReader, UnitSource};
use crate::log::platform::Job;
use crate::log::snapshot::reader::SnapshotReader;
use crate::resp::reply::Reply;
use crate::spec::session_key::SessionKey;

/// What a reader asks for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Question {
    /// The newest snapshot, from its beginning.
    Snapshot,
    /// The next part of that snapshot.
    Part,
    /// The units after this one, some bytes of them.
    Units { after: Lsn, bytes: usize },
}

/// Why a question is refused at once.
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
enum Part {
    /// There is no snapshot: the journal has all changes.
    NoSnapshot,
    /// A snapshot begins: its Lsn, the time as of which it is, and the bytes of its file.
    Snapshot { lsn: Lsn, time_ms: i64, bytes: u64 },
    /// Units of a snapshot, none at its end, and the bytes of the file that have been read.
    OfSnapshot { read: u64, units: Option<Vec<u8>> },
    /// Blocks of units in order, and the last unit that could be read.
    Blocks { blocks: Vec<Units>, last: Lsn },
    /// The journal begins behind this unit.
    Gone(Lsn),
}

/// Units that were made at one time.
struct Units {
    first: Lsn,
    time_ms: i64,
    bytes: Vec<u8>,
}

/// The open files of a reader.
#[derive(Default)]
struct Readers {
    snapshot: Option<Box<SnapshotReader>>,
    /// With the last unit that it has read.
    units: Option<Box<(Lsn, UnitReader)>>,
}

/// What a connection does.
enum Step {
    /// Nothing: it was answered.
    Rests(Readers),
    /// It waits for a unit after this one.
    Waits { readers: Readers, after: Lsn, bytes: usize },
    /// A thread reads for it.
    Reads(Job<(Readers, Part)>),
}

struct Feed {
    client: Waiter,
    step: Step,
    /// When it was answered, in ms of the steady clock.
    rests_since_ms: i64,
}

/// The connections that read the feed.
#[derive(Default)]
pub(crate) struct Feeds {
    feeds: Vec<Feed>,
}

impl Persistence {
    /// Begins to answer a reader, who waits.
    pub(crate) fn ask_feed(&mut self, client: Waiter, question: Question) -> Result<(), FeedRefusal> {
        let source = self.units_source().ok_or(FeedRefusal::NoJournal)?;
        let last = source.durable_until(self.safe());
        if let Question::Units { after, .. } = question
            && after > last
        {
            return Err(FeedRefusal::Ahead { after, last });
        }
        let place = self.feeds.feeds.iter().position(|feed| feed.client.0 == client.0);
        let readers = match place.map(|place| self.feeds.feeds.swap_remove(place).step) {
            Some(Step::Rests(readers) | Step::Waits { readers, .. }) => readers,
            // Its call has timed out. What it has asked for is no longer wanted.
            Some(Step::Reads(_)) => Readers::default(),
            None if self.feeds.feeds.len() >= FEED_READERS_MAX => return Err(FeedRefusal::Crowded),
            None => Readers::default(),
        };
        if matches!(question, Question::Part) && readers.snapshot.is_none() {
            return Err(FeedRefusal::NoSnapshot);
        }
        let step = match question {
            Question::Units { after, bytes } if after == last => Step::Waits { readers, after, bytes },
            _ => Step::Reads(self.read(source, readers, question)?),
        };
        self.feeds.feeds.push(Feed { client, step, rests_since_ms: 0 });
        Ok(())
    }

    /// Returns the last unit that the feed shows; `None` without a journal.
    pub(crate) fn feed_end(&self) -> Option<Lsn> {
        self.units_source().map(|source| source.durable_until(self.safe()))
    }

    /// Returns the name of the history of changes: of all those that were made in one folder, or in one group.
    pub(crate) fn history(&self) -> String {
        match self.journal.as_ref().and_then(Journal::member) {
            Some(group) => group.members().history.name(),
            None => self.lasting_name().unwrap_or_default(),
        }
    }

    fn units_source(&self) -> Option<UnitSource> {
        match &self.journal.as_ref()?.keeper {
            Keeper::Local(log) => Some(log.source()),
            Keeper::Group(_) => self.saving.opened().map(UnitSource::of_node),
        }
    }

    /// Whether a reader waits for the next unit.
    pub(crate) fn has_waiting_feeds(&self) -> bool {
        self.feeds.feeds.iter().any(|feed| matches!(feed.step, Step::Waits { .. }))
    }

    /// Begins to answer the readers that wait for units that are safe now.
    #[cold]
    pub(crate) fn begin_due_feeds(&mut self) {
        let Some(source) = self.units_source() else { return };
        let last = source.durable_until(self.safe());
        for mut feed in std::mem::take(&mut self.feeds.feeds) {
            feed.step = match feed.step {
                Step::Waits { readers, after, bytes } if after < last => {
                    match self.read(source.clone(), readers, Question::Units { after, bytes }) {
                        Ok(job) => Step::Reads(job),
                        Err(error) => {
                            let error = FeedRefusal::from(error).to_string();
                            self.news.answers.push((feed.client, Box::new(move |reply| write(Err(error), reply))));
                            Step::Rests(Readers::default())
                        }
                    }
                }
                step => step,
            };
            self.feeds.feeds.push(feed);
        }
    }

    fn read(&self, source: UnitSource, readers: Readers, question: Question) -> io::Result<Job<(Readers, Part)>> {
        let (wake, until) = (Arc::clone(&self.saving.wake), self.safe());
        let work = move || readers.answer(&source, question, until);
        self.saving.platform.begin("feed", work, move || wake())
    }

    /// Answers the readers whose parts have been read.
    pub(crate) fn follow_feeds(&mut self, now_ms: i64) {
        for feed in &mut self.feeds.feeds {
            let Step::Reads(job) = &feed.step else { continue };
            let Some(outcome) = job.outcome() else { continue };
            let (readers, part) = match outcome {
                Ok((readers, part)) => (readers, Ok(part)),
                Err(error) => (Readers::default(), Err(error)),
            };
            (feed.step, feed.rests_since_ms) = (Step::Rests(readers), now_ms);
            self.news.answers.push((feed.client, Box::new(move |reply| write(part, reply))));
        }
    }

    /// Forgets connections that are closed, and closes the journal for those that have not asked for long.
    pub(crate) fn tidy_feeds(&mut self, now_ms: i64, is_open: impl Fn(SessionKey) -> bool) {
        self.feeds.feeds.retain(|feed| is_open(feed.client.0));
        for feed in &mut self.feeds.feeds {
            if let Step::Rests(readers) = &mut feed.step
                && now_ms - feed.rests_since_ms > FEED_REST.as_millis() as i64
            {
                readers.units = None;
            }
        }
    }
}

impl Readers {
    /// Answers a question, on a thread of its own.
    fn answer(mut self, source: &UnitSource, question: Question, until: Lsn) -> Result<(Readers, Part), String> {
        let part = match question {
            Question::Snapshot => self.begin_snapshot(source),
            Question::Part => self.part(),
            Question::Units { after, bytes } => self.blocks(source, after, bytes, until),
        };
        match part {
            Ok(part) => Ok((self, part)),
            Err(ReadError::Gone { covered }) => Ok((Readers { units: None, ..self }, Part::Gone(covered))),
            Err(error) => Err(error.to_string()),
        }
    }

    fn begin_snapshot(&mut self, source: &UnitSource) -> Result<Part, ReadError> {
        let Some(lsn) = source.directory().snapshots()?.pop() else { return Ok(Part::NoSnapshot) };
        let reader = self.snapshot.insert(Box::new(SnapshotReader::open(source.directory(), lsn)?));
        Ok(Part::Snapshot { lsn, time_ms: reader.end().time_ms, bytes: reader.progress().1 })
    }

    fn part(&mut self) -> Result<Part, ReadError> {
        let Some(reader) = &mut self.snapshot else { return Ok(Part::NoSnapshot) };
        let mut units = None;
        while units.is_none() && reader.advance()? {
            // A frame may hold only a part of a long unit.
            units = Some(reader.units().bytes().to_vec()).filter(|units| !units.is_empty());
        }
        let read = reader.progress().0;
        if units.is_none() {
            self.snapshot = None;
        }
        Ok(Part::OfSnapshot { read, units })
    }

    fn blocks(&mut self, source: &UnitSource, after: Lsn, bytes: usize, until: Lsn) -> Result<Part, ReadError> {
        let kept = self.units.take().filter(|kept| kept.0 == after);
        let (mut last, mut reader) = match kept.map(|kept| *kept) {
            Some((last, mut reader)) => {
                reader.go_on_until(until);
                (last, reader)
            }
            None => (after, source.read_after(after, until)?),
        };
        let (mut blocks, mut room) = (Vec::new(), bytes);
        while room > 0
            && let Some(block) = reader.next_block()?
        {
            let units = block.unit_bytes();
            room = room.saturating_sub(units.len());
            last = block.last_lsn();
            blocks.push(Units { first: block.first_lsn(), time_ms: block.time_ms(), bytes: units.to_vec() });
        }
        let until = reader.until();
        self.units = Some(Box::new((last, reader)));
        Ok(Part::Blocks { blocks, last: until })
    }
}

fn write(part: Result<Part, String>, reply: &mut Reply) {
    let integer = |lsn: Lsn| i64::try_from(lsn.get()).unwrap_or(i64::MAX);
    match part {
        Ok(Part::NoSnapshot) => reply.null_array(),
        Ok(Part::Snapshot { lsn, time_ms, bytes }) => {
            reply.array(3);
            reply.integer(integer(lsn));
            reply.integer(time_ms);
            reply.integer(bytes as i64);
        }
        Ok(Part::OfSnapshot { read, units }) => {
            reply.array(2);
            reply.integer(read as i64);
            reply.bulk_or_null(units.as_deref());
        }
        Ok(Part::Blocks { blocks, last }) => {
            reply.array(2);
            reply.integer(integer(last));
            reply.array(blocks.len());
            for Units { first, time_ms, bytes } in blocks {
                reply.array(3);
                reply.integer(integer(first));
                reply.integer(time_ms);
                reply.bulk(&bytes);
            }
        }
        Ok(Part::Gone(covered)) => reply.error(
            format!("GONE a snapshot has taken the place of the changes up to {covered}: begin with FEED SNAPSHOT")
                .as_bytes(),
        ),
        Err(error) => reply.error(format!("ERR {error}").replace(['\r', '\n'], " ").as_bytes()),
    }
}
