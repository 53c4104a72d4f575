//! `tidegate backup` and `tidegate restore`: consistent copies of a running server, and any moment of them again.
//!
//! A copy is a data folder as a server has it: a snapshot, and a journal behind it. So `tidegate check` judges a copy,
//! and a server can be started on it. It is made from the feed ([`feed`]), which costs the server no more than reading
//! its files; while the copy is followed, its journal grows with the server's.

mod copies;
mod error;
mod feed;
mod folder;
mod restore;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

pub use self::error::BackupError;
pub use self::restore::{Restored, Until, restore};

use self::copies::Copies;
use self::feed::Feed;
use self::folder::Folder;
use crate::base::clock::Clock;
use crate::base::limits::IMPORT_PROGRESS_EVERY;
use crate::client::Address;

/// How long a follower waits for a change before it looks at the time.
const BLOCK: Duration = Duration::from_secs(1);

/// How long a follower waits before it connects again.
const RETRY: Duration = Duration::from_secs(1);

/// What `tidegate backup` does.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Go on with all later changes.
    pub follow: bool,
    /// While following, the time after which another copy is begun.
    pub every: Duration,
    /// Remove copies that are not needed for any moment since so long ago.
    pub keep: Option<Duration>,
}

/// Copies the data of the server at `from` into the folder `into`, as `plan` says. `print` receives reports.
pub fn backup(from: Address<'_>, into: &Path, plan: Plan, print: &mut dyn FnMut(&str)) -> Result<(), BackupError> {
    let copies = Copies::open(into)?;
    let mut backup = Backup { from, copies, plan, print };
    if !plan.follow {
        backup.copy(&mut Feed::open(from)?)?;
        return backup.forget();
    }
    backup.follow()
}

struct Backup<'a> {
    from: Address<'a>,
    copies: Copies,
    plan: Plan,
    print: &'a mut dyn FnMut(&str),
}

impl Backup<'_> {
    /// Follows the server, also across its restarts, until it can't: another data, a full disk.
    fn follow(&mut self) -> Result<(), BackupError> {
        // The first connection must succeed: an address may be wrong.
        let mut feed = Some(Feed::open(self.from)?);
        let mut has_failed = false;
        loop {
            let connected = match feed.take() {
                Some(feed) => Ok(feed),
                None => Feed::open(self.from),
            };
            match connected.map_err(BackupError::from).and_then(|mut feed| {
                has_failed = false;
                self.follow_on(&mut feed)
            }) {
                Ok(()) => {}
                Err(BackupError::Gone { after }) => {
                    (self.print)(&format!("the server no longer has the changes after {after}: another copy begins"));
                    self.copies.end();
                }
                Err(BackupError::Client(error)) if error.may_pass() => {
                    if !has_failed {
                        (self.print)(&format!("{error}; trying again"));
                    }
                    has_failed = true;
                    std::thread::sleep(RETRY);
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Goes on with the newest copy until it is time for another one.
    fn follow_on(&mut self, feed: &mut Feed) -> Result<(), BackupError> {
        let mut folder = match self.copies.newest_of(&feed.state()?.history)? {
            Some(newest) => Folder::go_on(newest)?,
            None => Folder::go_on(self.copy(feed)?)?,
        };
        (self.print)(&format!("following from Lsn {} on: {}", folder.last(), folder.path().display()));
        self.forget()?;
        let begun = Instant::now();
        while begun.elapsed() < self.plan.every {
            if let Some(read) = feed.read(folder.last(), BLOCK)? {
                folder.append(&read)?;
                folder.sync()?;
            }
        }
        folder.close()?;
        self.copies.end();
        Ok(())
    }

    /// Makes a copy of the data up to the present. Returns its folder.
    fn copy(&mut self, feed: &mut Feed) -> Result<PathBuf, BackupError> {
        let begun = Instant::now();
        let history = feed.state()?.history;
        let draft = self.copies.begin(Clock::system().now_ms())?;
        let snapshot = feed.snapshot()?;
        let mut folder = Folder::create(&draft, snapshot.as_ref())?;
        if let Some(snapshot) = snapshot {
            let mut printed = Instant::now();
            while let Some(part) = feed.part()? {
                folder.push(part.units)?;
                // The server cuts its journal when it makes a snapshot, so what follows is fetched at the same time.
                if let Some(read) = feed.read(folder.last(), Duration::ZERO)? {
                    folder.append(&read)?;
                }
                if printed.elapsed() > IMPORT_PROGRESS_EVERY {
                    printed = Instant::now();
                    let percent = 100.0 * part.read as f64 / snapshot.bytes.max(1) as f64;
                    (self.print)(&format!("{percent:.0}% of the snapshot, {:.0} MB", part.read as f64 / 1e6));
                }
            }
            folder.end_snapshot(snapshot.lsn)?;
        }
        let until = feed.state()?.last;
        while folder.last() < until {
            if let Some(read) = feed.read(folder.last(), BLOCK)? {
                folder.append(&read)?;
            }
        }
        let (last, bytes) = (folder.last(), folder.bytes());
        folder.close()?;
        let path = self.copies.complete(&draft, &history)?;
        (self.print)(&format!(
            "copied up to Lsn {last}, {:.1} MB in {:.1} s: {}",
            bytes as f64 / 1e6,
            begun.elapsed().as_secs_f64(),
            path.display()
        ));
        Ok(path)
    }

    /// Removes copies that are no longer needed.
    fn forget(&mut self) -> Result<(), BackupError> {
        let Some(keep) = self.plan.keep else { return Ok(()) };
        for removed in self.copies.forget_before(Clock::system().now_ms() - keep.as_millis() as i64)? {
            (self.print)(&format!("removed {}", removed.display()));
        }
        Ok(())
    }
}
