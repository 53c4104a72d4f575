//! `tidegate backup` and `tidegate restore`: consistent copies of a running server, and any moment of them again.
//!
//! A copy is a data folder as a server has it: a snapshot, and a journal behind it. So `tidegate check` judges a copy,
//! and a server can be started on it. It is made from the [feed](crate::feed), which costs the server no more than
//! reading its files; while the copy is followed, its journal grows with the server's. Or a copy is one file, for a
//! pipe, from which [`restore()`] makes such a folder.

mod copies;
mod copying;
mod error;
mod folder;
mod restore;

use std::fs::File;
use std::num::NonZeroU64;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

pub use self::error::BackupError;
pub use self::restore::{Restored, Until, restore};

use self::copies::{Copies, DRAFT_DATA, age_of};
use self::copying::{BLOCK, OneFile, Sink};
use self::folder::Folder;
use crate::base::clock::Clock;
use crate::client::{Address, TIDEGATE_AUTH};
use crate::feed::{Feed, FeedError};

/// How long a follower waits before it connects again.
const RETRY: Duration = Duration::from_secs(1);

/// Attempts at one copy: each ends when a snapshot of the server replaces changes that were not read yet.
const ATTEMPTS_MAX: usize = 5;

/// What `tidegate backup` does.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Go on with all later changes.
    pub follow: bool,
    /// While following, the time after which another copy is begun.
    pub every: Duration,
    /// Remove copies that are not needed for any moment since so long ago.
    pub keep: Option<Duration>,
    /// Read at most so many bytes a second from the server.
    pub max_rate: Option<NonZeroU64>,
}

/// Copies the data of the server at `from` into the folder `into`, as `plan` says; following ends once `stop` is set.
/// `print` receives reports.
pub fn backup(
    from: Address<'_>,
    into: &Path,
    plan: Plan,
    stop: &AtomicBool,
    print: &mut dyn FnMut(&str),
) -> Result<(), BackupError> {
    let copies = Copies::open(into)?;
    let mut backup = Backup { from, copies, plan, stop, has_failed: false, print };
    if plan.follow {
        return backup.follow();
    }
    backup.copy(&mut open(from, plan.max_rate)?)?;
    backup.forget()
}

/// Copies the data of the server at `from` into one file, or a pipe, by at most `max_rate` bytes a second. `print`
/// receives reports.
pub fn backup_to_file(
    from: Address<'_>,
    out: File,
    max_rate: Option<NonZeroU64>,
    print: &mut dyn FnMut(&str),
) -> Result<(), BackupError> {
    let begun = Instant::now();
    let file = copying::copy(&mut open(from, max_rate)?, |snapshot| OneFile::begin(out, snapshot), print)?;
    let report = copying::report(&file, begun);
    file.end()?;
    print(&report);
    Ok(())
}

fn open(from: Address<'_>, max_rate: Option<NonZeroU64>) -> Result<Feed, BackupError> {
    let mut feed = Feed::open(from, TIDEGATE_AUTH).map_err(FeedError::from)?;
    if let Some(max_rate) = max_rate {
        feed.set_max_rate(max_rate);
    }
    Ok(feed)
}

struct Backup<'a> {
    from: Address<'a>,
    copies: Copies,
    plan: Plan,
    stop: &'a AtomicBool,
    /// The last attempt to follow has failed, and that was said.
    has_failed: bool,
    print: &'a mut dyn FnMut(&str),
}

impl Backup<'_> {
    /// Follows the server, also across its restarts, until it is stopped or can't go on.
    fn follow(&mut self) -> Result<(), BackupError> {
        while !self.is_stopped() {
            match open(self.from, self.plan.max_rate).and_then(|mut feed| self.follow_on(&mut feed)) {
                Ok(()) => {}
                Err(BackupError::Feed(error @ (FeedError::Gone { .. } | FeedError::Ahead { .. }))) => {
                    (self.print)(&format!("{error}; another copy begins"));
                    self.copies.end();
                }
                Err(BackupError::Feed(FeedError::Client(error))) if error.may_pass() => {
                    if !self.has_failed {
                        (self.print)(&format!("{error}; trying again"));
                    }
                    self.has_failed = true;
                    std::thread::sleep(RETRY);
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Goes on with the newest copy until it is time for another one.
    fn follow_on(&mut self, feed: &mut Feed) -> Result<(), BackupError> {
        let newest = self.copies.newest_of(&feed.state()?.history)?;
        self.has_failed = false;
        let mut folder = match newest.map(Folder::go_on).transpose()? {
            Some(newest) if newest.is_followed_by(feed)? => newest,
            Some(other) => {
                let path = other.path().display();
                (self.print)(&format!("{path} can't be seen to end with what this server has: another copy begins"));
                Folder::go_on(self.copy(feed)?)?
            }
            None => Folder::go_on(self.copy(feed)?)?,
        };
        (self.print)(&format!("following from Lsn {} on: {}", folder.last(), folder.path().display()));
        self.forget()?;
        while !self.is_stopped() && age_of(folder.path()) < self.plan.every {
            copying::read_on(feed, &mut folder, BLOCK)?;
            folder.sync()?;
        }
        folder.close()?;
        self.copies.end();
        Ok(())
    }

    fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Makes a copy of the data up to the present. Returns its folder.
    fn copy(&mut self, feed: &mut Feed) -> Result<PathBuf, BackupError> {
        let mut attempts = 1;
        loop {
            match self.try_copy(feed) {
                // A snapshot was completed before all changes behind the one before it were read.
                Err(BackupError::Feed(error @ FeedError::Gone { .. }))
                    if attempts < ATTEMPTS_MAX && !self.is_stopped() =>
                {
                    (self.print)(&format!("{error}; the copy begins again with the newest snapshot"));
                    attempts += 1;
                }
                copied => return copied,
            }
        }
    }

    fn try_copy(&mut self, feed: &mut Feed) -> Result<PathBuf, BackupError> {
        let draft = self.copies.begin(Clock::system().now_ms())?;
        let copied = self.copy_into(&draft, feed);
        if copied.is_err() {
            // The reason of the failure matters more than one of this. The next backup tries again.
            let _ = self.copies.discard(&draft);
        }
        copied
    }

    fn copy_into(&mut self, draft: &Path, feed: &mut Feed) -> Result<PathBuf, BackupError> {
        let begun = Instant::now();
        let history = feed.state()?.history;
        let data = draft.join(DRAFT_DATA);
        let folder = copying::copy(feed, |snapshot| Folder::create(&data, snapshot), self.print)?;
        let report = copying::report(&folder, begun);
        folder.close()?;
        let path = self.copies.complete(draft, &history)?;
        (self.print)(&format!("{report}: {}", path.display()));
        Ok(path)
    }

    /// Removes copies that are no longer needed. One that can't be removed is left, and said.
    fn forget(&mut self) -> Result<(), BackupError> {
        let Some(keep) = self.plan.keep else { return Ok(()) };
        let keep_ms = i64::try_from(keep.as_millis()).unwrap_or(i64::MAX);
        for removed in self.copies.forget_before(Clock::system().now_ms().saturating_sub(keep_ms))? {
            match removed {
                Ok(removed) => (self.print)(&format!("removed {}", removed.display())),
                Err(error) => (self.print)(&format!("not removed: {error}")),
            }
        }
        Ok(())
    }
}
