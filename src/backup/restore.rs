//! `tidegate restore`: a new data folder as of the end of a copy, or of an earlier moment.

use std::fs::{self, File, TryLockError};
use std::io::{self, BufReader, Read};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use super::copies::{DRAFT_DATA, all, history_of, make_folder, sync};
use super::copying::Sink;
use super::error::{BackupError, io_error};
use super::folder::Folder;
use crate::base::lsn::Lsn;
use crate::feed::Begun;
use crate::log::block::{UNIT_HEAD_BYTES, units_in};
use crate::log::copy_file::{CopyReader, Frame};
use crate::log::directory::Directory;
use crate::log::disk::ReadOnlyDisk;
use crate::log::error::LogError;
use crate::log::restore::{Part, Restore};
use crate::log::snapshot::reader::SnapshotReader;
use crate::persist::saving::DATA_DIR;

/// The moment to bring back.
#[derive(Clone, Copy, Debug)]
pub enum Until {
    /// The end of the newest copy.
    End,
    /// The state behind this change.
    Lsn(Lsn),
    /// The state at this time, in milliseconds since 1970.
    Time(i64),
}

/// What was restored.
#[derive(Clone, Copy, Debug)]
pub struct Restored {
    /// The last change.
    pub last: Lsn,
    /// The time of that change, or of the snapshot if no change follows it, in milliseconds since 1970.
    pub time_ms: i64,
}

/// How often a copy is read again that is being written, and after which pause: a segment may have been moved since it
/// was found.
const TRIES: usize = 3;
const PAUSE: Duration = Duration::from_millis(100);

/// Writes a new data folder into `into`, from the copy, the folder of copies or the file `from`, as of `until`; `-` is
/// standard input. There is no data folder before all of it is durable.
pub fn restore(from: &Path, into: &Path, until: Until) -> Result<Restored, BackupError> {
    make_folder(into)?;
    let _lock = lock(into)?;
    let (target, draft) = (into.join(DATA_DIR), into.join(DRAFT_DATA));
    if target.exists() {
        return Err(BackupError::Exists(target));
    }
    let restored = discard(&draft).and_then(|()| choose(from, &draft, until));
    match restored {
        Ok(_) => {
            fs::rename(&draft, &target).map_err(io_error(&target))?;
            sync(into)?;
        }
        // The reason of the failure matters more than one of this. The next call tries again.
        Err(_) => _ = discard(&draft),
    }
    restored
}

/// Keeps other calls away from the folder, where its file system has locks.
fn lock(into: &Path) -> Result<File, BackupError> {
    let folder = File::open(into).map_err(io_error(into))?;
    match folder.try_lock() {
        Err(TryLockError::WouldBlock) => Err(BackupError::Restoring(into.to_owned())),
        Ok(()) | Err(TryLockError::Error(_)) => Ok(folder),
    }
}

/// Removes what an earlier call may not have finished.
fn discard(draft: &Path) -> Result<(), BackupError> {
    if draft.exists() { fs::remove_dir_all(draft).map_err(io_error(draft)) } else { Ok(()) }
}

/// Restores from the newest copy that reaches back to the moment. Copies of another history than the newest one have
/// other changes by the same numbers, so none of them is chosen.
fn choose(from: &Path, draft: &Path, until: Until) -> Result<Restored, BackupError> {
    if from == Path::new("-") {
        let name = Path::new("standard input");
        return found(restore_file(io::stdin().lock(), name, draft, until)?, until, name);
    }
    if !fs::metadata(from).map_err(io_error(from))?.is_dir() {
        let file = File::open(from).map_err(io_error(from))?;
        return found(restore_file(BufReader::new(file), from, draft, until)?, until, from);
    }
    if from.join(DATA_DIR).is_dir() {
        return found(read_again(from, draft, until)?, until, from);
    }
    let copies = all(from)?;
    let history = copies.last().map(|newest| history_of(newest)).transpose()?;
    for copy in copies.iter().rev() {
        if Some(history_of(copy)?) == history
            && let Some(restored) = read_again(copy, draft, until)?
        {
            return found(Some(restored), until, from);
        }
    }
    Err(BackupError::NoCopy(from.to_owned()))
}

fn found(restored: Option<Restored>, until: Until, from: &Path) -> Result<Restored, BackupError> {
    match (restored, until) {
        (Some(restored), Until::Lsn(lsn)) if restored.last < lsn => Err(BackupError::Ends(restored.last)),
        (Some(restored), _) => Ok(restored),
        (None, _) => Err(BackupError::NoCopy(from.to_owned())),
    }
}

fn read_again(copy: &Path, draft: &Path, until: Until) -> Result<Option<Restored>, BackupError> {
    let mut tries = 1..TRIES;
    loop {
        match restore_copy(copy, draft, until) {
            Err(BackupError::Log(_)) if tries.next().is_some() => {
                discard(draft)?;
                std::thread::sleep(PAUSE);
            }
            restored => return restored,
        }
    }
}

/// Writes the data of one copy. Returns `None`, and writes nothing that counts, if it begins behind the moment.
fn restore_copy(copy: &Path, draft: &Path, until: Until) -> Result<Option<Restored>, BackupError> {
    let directory = Directory::look_into(Arc::new(ReadOnlyDisk), &copy.join(DATA_DIR))?;
    let last = match until {
        Until::Lsn(lsn) => lsn,
        Until::End | Until::Time(_) => Lsn::MAX,
    };
    let mut restore = match Restore::open_until(directory, last) {
        // It begins behind that change.
        Err(LogError::Missing { lsn: Lsn::FIRST, .. }) if last < Lsn::MAX => return Ok(None),
        restore => restore?,
    };
    let mut draft = Draft::new(draft, until);
    while let Some(part) = restore.next_part()? {
        match part {
            Part::Checked => {}
            Part::Snapshot(reader) => {
                if draft.folder.is_none() && !draft.begin(begun_of(reader))? {
                    return Ok(None);
                }
                draft.push(reader.units().bytes())?;
            }
            Part::Block(block) => {
                if !draft.append(block.first_lsn(), block.time_ms(), block.unit_bytes())? {
                    break;
                }
            }
        }
    }
    draft.finish()
}

fn begun_of(reader: &SnapshotReader) -> Begun {
    Begun { lsn: reader.end().lsn, time_ms: reader.end().time_ms, bytes: reader.progress().1 }
}

/// Writes the data of a copy in one file. Returns `None` if it begins behind the moment. The file is read to its end,
/// even behind the moment: only the end shows that nothing is missing.
fn restore_file(input: impl Read, path: &Path, draft: &Path, until: Until) -> Result<Option<Restored>, BackupError> {
    let fault = |fault| BackupError::File { path: path.to_owned(), fault };
    let mut reader = CopyReader::begin(input).map_err(fault)?;
    let mut draft = Draft::new(draft, until);
    while let Some(frame) = reader.next_frame().map_err(fault)? {
        match frame {
            Frame::Snapshot { lsn, time_ms } => {
                if !draft.begin(Begun { lsn, time_ms, bytes: 0 })? {
                    return Ok(None);
                }
            }
            Frame::Part { units } => draft.push(units)?,
            Frame::Block { first, time_ms, units } => _ = draft.append(first, time_ms, units)?,
        }
    }
    draft.finish()
}

/// The data folder that is being written, up to the moment.
struct Draft<'a> {
    path: &'a Path,
    until: Until,
    /// The snapshot that the data begins with.
    begun: Option<Begun>,
    folder: Option<Folder>,
    /// The time of what was written last.
    time_ms: i64,
    /// The moment is reached: nothing later is written.
    is_over: bool,
}

impl<'a> Draft<'a> {
    fn new(path: &'a Path, until: Until) -> Draft<'a> {
        Draft { path, until, begun: None, folder: None, time_ms: 0, is_over: false }
    }

    /// Begins with a snapshot. Returns whether it is of the moment, or of an earlier one.
    fn begin(&mut self, begun: Begun) -> Result<bool, BackupError> {
        let is_later = match self.until {
            Until::End => false,
            Until::Lsn(lsn) => begun.lsn > lsn,
            Until::Time(ms) => begun.time_ms > ms,
        };
        if is_later {
            return Ok(false);
        }
        self.folder = Some(Folder::create(self.path, Some(&begun))?);
        self.time_ms = begun.time_ms;
        self.begun = Some(begun);
        Ok(true)
    }

    /// Adds units of the snapshot.
    fn push(&mut self, units: &[u8]) -> Result<(), BackupError> {
        self.folder()?.push(units)
    }

    /// Adds those units of a block that belong to the moment. Returns whether units behind them may do so, too.
    fn append(&mut self, first: Lsn, time_ms: i64, units: &[u8]) -> Result<bool, BackupError> {
        let wanted = if self.is_over { &[] } else { wanted(first, time_ms, units, self.until) };
        self.is_over = wanted.len() < units.len();
        if !wanted.is_empty() {
            self.folder()?.append(first, time_ms, wanted)?;
            self.time_ms = time_ms;
        }
        Ok(!self.is_over)
    }

    /// Makes everything durable. Returns `None` if there was nothing up to the moment.
    fn finish(mut self) -> Result<Option<Restored>, BackupError> {
        let begun = self.begun;
        let folder = self.folder()?;
        begun.map_or(Ok(()), |begun| folder.end_snapshot(begun.lsn))?;
        let Draft { folder, until, time_ms, .. } = self;
        let last = folder.as_ref().map_or(Lsn::NONE, Folder::last);
        folder.map_or(Ok(()), Folder::close)?;
        let is_there = last > Lsn::NONE || matches!(until, Until::End);
        Ok(is_there.then_some(Restored { last, time_ms }))
    }

    fn folder(&mut self) -> Result<&mut Folder, BackupError> {
        match &mut self.folder {
            Some(folder) => Ok(folder),
            none => Ok(none.insert(Folder::create(self.path, None)?)),
        }
    }
}

/// Returns the units of a block that belong to the moment.
fn wanted(first: Lsn, time_ms: i64, units: &[u8], until: Until) -> &[u8] {
    match until {
        Until::Time(ms) if time_ms > ms => &[],
        Until::End | Until::Time(_) => units,
        Until::Lsn(lsn) => {
            let wanted = units_in(units, first).take_while(|unit| unit.lsn <= lsn);
            let bytes = wanted.map(|unit| UNIT_HEAD_BYTES + unit.effects.len()).sum();
            units.get(..bytes).unwrap_or_default()
        }
    }
}
