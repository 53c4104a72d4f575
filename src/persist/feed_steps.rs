//! Answers the readers of the [feed](super::feed), step by step.

use std::sync::Arc;
use std::time::Duration;

use super::Persistence;
use super::feed::{Feed, FeedRefusal, Question, Readers, Step, write};
use super::group_requests::Waiter;
use super::journal::Journal;
use super::limits::{FEED_READERS_MAX, FEED_REST, FEED_SYNC_EVERY};
use crate::base::lsn::Lsn;
use crate::base::os::priority::give_way;
use crate::log::follow::UnitSource;
use crate::log::group_commit::SyncPolicy;
use crate::spec::session_key::SessionKey;

impl Persistence {
    /// Takes a question of a client, who waits for the answer. Returns whether the answer is on its way: otherwise
    /// there is nothing to read yet. `is_open` tells whether another session still exists.
    pub(crate) fn ask_feed(
        &mut self,
        client: Waiter,
        question: Question,
        now_ms: i64,
        is_open: impl Fn(SessionKey) -> bool,
    ) -> Result<bool, FeedRefusal> {
        let source = self.units_source().ok_or(FeedRefusal::NoJournal)?;
        if let Question::Units { after, .. } = question
            && let Some(last) = self.journal.as_ref().filter(|journal| !journal.is_follower()).map(Journal::last)
            && after > last
        {
            return Err(FeedRefusal::Ahead { after, last });
        }
        let place = self.feeds.feeds.iter().position(|feed| feed.client.0 == client.0);
        let (step, worker) = match place.map(|place| self.feeds.feeds.swap_remove(place)) {
            Some(Feed { step, worker, .. }) => match step {
                Step::Rests(readers) | Step::Waits(readers, _) => (Step::Waits(readers, question), worker),
                Step::Reads(job, _) => (Step::Reads(job, Some(question)), worker),
            },
            None => {
                self.feeds.forget_closed(is_open);
                if self.feeds.feeds.len() >= FEED_READERS_MAX {
                    return Err(FeedRefusal::Crowded);
                }
                (Step::Waits(Readers::default(), question), None)
            }
        };
        let mut feed = Feed { client, worker, step, seen_ms: now_ms };
        let outcome = self.begin_if_due(&mut feed, &source);
        self.feeds.feeds.push(feed);
        self.sync_for_feeds();
        outcome
    }

    /// Returns the name of the history of changes: of all those that were made in one folder, or in one group.
    pub(crate) fn history(&self) -> String {
        match self.journal.as_ref().and_then(Journal::member) {
            Some(group) => group.members().history.name(),
            None => self.lasting_name().unwrap_or_default(),
        }
    }

    /// Returns the last unit that the feed shows; `None` without a journal.
    pub(crate) fn feed_end(&self) -> Option<Lsn> {
        self.units_source().map(|source| self.end_of(&source))
    }

    fn end_of(&self, source: &UnitSource) -> Lsn {
        // A node is given units once they are on its own disk. The group may have committed more by then.
        let given = self.journal.as_ref().and_then(Journal::member).map_or(Lsn::MAX, |group| group.position().link.lsn);
        source.durable_until(self.safe().min(given))
    }

    fn units_source(&self) -> Option<UnitSource> {
        let journal = self.journal.as_ref()?;
        journal.source().or_else(|| self.saving.opened().map(UnitSource::of_node))
    }

    /// Whether a client reads the feed.
    pub(crate) fn reads_feed(&self, client: SessionKey) -> bool {
        self.feeds.feeds.iter().any(|feed| feed.client.0 == client)
    }

    /// Whether a reader waits for the next unit.
    #[inline]
    pub(crate) fn has_waiting_feeds(&self) -> bool {
        self.feeds.feeds.iter().any(|feed| matches!(feed.step, Step::Waits(..)))
    }

    /// Begins to answer the readers that wait for units that are safe now. `is_waiting` tells whether a client waits
    /// still; `None` if its session is in use, so that this must be asked later. Returns those whose answers are on
    /// their way.
    #[cold]
    pub(crate) fn begin_due_feeds(&mut self, is_waiting: impl Fn(Waiter) -> Option<bool>) -> Vec<Waiter> {
        let source = self.units_source();
        let mut begun = Vec::new();
        let mut feeds = std::mem::take(&mut self.feeds.feeds);
        for feed in &mut feeds {
            let Step::Waits(readers, _) = &mut feed.step else { continue };
            let outcome = match (is_waiting(feed.client), &source) {
                (Some(true), Some(source)) => self.begin_if_due(feed, source),
                (Some(true), None) => Err(FeedRefusal::NoJournal),
                (Some(false), _) => {
                    feed.step = Step::Rests(std::mem::take(readers));
                    continue;
                }
                (None, _) => continue,
            };
            match outcome {
                Ok(true) => begun.push(feed.client),
                Ok(false) => {}
                Err(refusal) => {
                    feed.step = Step::Rests(Readers::default());
                    self.news
                        .answers
                        .push((feed.client, Box::new(move |reply| write(Err(refusal.to_string()), reply))));
                    // The caller may not take the news.
                    (self.saving.wake)();
                }
            }
        }
        self.feeds.feeds = feeds;
        begun
    }

    /// Lets a thread read for a reader whose question can be answered. Returns whether it has begun.
    fn begin_if_due(&self, feed: &mut Feed, source: &UnitSource) -> Result<bool, FeedRefusal> {
        let end = self.end_of(source);
        let Step::Waits(readers, question) = &mut feed.step else { return Ok(false) };
        if !question.is_due(end) {
            return Ok(false);
        }
        let worker = match &mut feed.worker {
            Some(worker) => worker,
            // A reader of the feed can wait better than a client.
            none => none.insert(self.saving.platform.worker("feed-reader", give_way)?),
        };
        let (readers, question, source) = (std::mem::take(readers), *question, source.clone());
        let wake = Arc::clone(&self.saving.wake);
        let job = worker.begin(move || readers.answer(&source, question, end), move || wake());
        feed.step = Step::Reads(job, None);
        Ok(true)
    }

    /// Answers the readers whose parts have been read.
    pub(crate) fn follow_feeds(&mut self, now_ms: i64) {
        for feed in &mut self.feeds.feeds {
            let Step::Reads(job, next) = &feed.step else { continue };
            let Some(outcome) = job.outcome() else { continue };
            let (readers, part) = match outcome {
                Ok((readers, part)) => (readers, Ok(part)),
                Err(error) => (Readers::default(), Err(error)),
            };
            feed.step = match *next {
                Some(question) => Step::Waits(readers, question),
                None => {
                    feed.seen_ms = now_ms;
                    self.news.answers.push((feed.client, Box::new(move |reply| write(part, reply))));
                    Step::Rests(readers)
                }
            };
        }
    }

    /// Closes files that were not read for long and ends their threads, forgets readers that are gone or have nothing
    /// open, and syncs for those that wait.
    pub(crate) fn tidy_feeds(&mut self, now_ms: i64, is_open: impl Fn(SessionKey) -> bool) {
        self.feeds.forget_closed(is_open);
        self.feeds.feeds.retain_mut(|feed| match &mut feed.step {
            Step::Rests(readers) | Step::Waits(readers, _) if is_over(FEED_REST, feed.seen_ms, now_ms) => {
                (readers.units, feed.worker) = (None, None);
                readers.snapshot.is_some() || matches!(feed.step, Step::Waits(..))
            }
            _ => true,
        });
        if self.has_waiting_feeds() && is_over(FEED_SYNC_EVERY, self.feeds.synced_ms, now_ms) {
            self.feeds.synced_ms = now_ms;
            self.sync_for_feeds();
        }
    }

    /// Begins to make durable what readers wait for, if `appendfsync` leaves that to the system, or if clients wait for
    /// the end of a handover.
    pub(crate) fn sync_for_feeds(&self) {
        if let Some(journal) = &self.journal
            && let Some(log) = journal.local()
            && (log.policy() == SyncPolicy::No || self.whose().given_to().is_some())
            && log.durable() < journal.last()
        {
            log.begin_sync();
        }
    }
}

fn is_over(pause: Duration, since_ms: i64, now_ms: i64) -> bool {
    now_ms - since_ms > pause.as_millis() as i64
}
