//! `tidegate restore`: a new data folder as of the end of a copy, or of an earlier moment.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use super::copies::all;
use super::error::{BackupError, io_error};
use super::feed::Begun;
use super::folder::Folder;
use crate::base::lsn::Lsn;
use crate::log::block::UNIT_HEAD_BYTES;
use crate::log::directory::Directory;
use crate::log::disk::ReadOnlyDisk;
use crate::log::error::LogError;
use crate::log::restore::{Part, Restore};
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

/// The folder in which the data is before all of it is there.
const DRAFT: &str = "restore.part";

/// How often a copy is read again that is being written: a segment may have been moved since it was found.
const TRIES: usize = 5;

/// Writes a new data folder into `into`, from the copy or the folder of copies `from`, as of `until`. There is no data
/// folder before all of it is durable.
pub fn restore(from: &Path, into: &Path, until: Until) -> Result<Restored, BackupError> {
    let target = into.join(DATA_DIR);
    if target.exists() {
        return Err(BackupError::Exists(target));
    }
    let restored = choose(from, into, until);
    if restored.is_err() {
        discard(&into.join(DRAFT))?;
    }
    restored
}

/// Restores from the newest copy that reaches back to the moment.
fn choose(from: &Path, into: &Path, until: Until) -> Result<Restored, BackupError> {
    let mut copies = if from.join(DATA_DIR).is_dir() { vec![from.to_owned()] } else { all(from)? };
    while let Some(copy) = copies.pop() {
        let mut tries = 1..TRIES;
        let restored = loop {
            match restore_copy(&copy, into, until) {
                Err(BackupError::Log(_)) if tries.next().is_some() => {}
                restored => break restored?,
            }
        };
        match (restored, until) {
            (Some(restored), Until::Lsn(lsn)) if restored.last < lsn => return Err(BackupError::Ends(restored.last)),
            (Some(restored), _) => return take_place(into).map(|()| restored),
            (None, _) => {}
        }
    }
    Err(BackupError::NoCopy(from.to_owned()))
}

/// Restores from one copy. Returns `None` if it begins behind the moment.
fn restore_copy(copy: &Path, into: &Path, until: Until) -> Result<Option<Restored>, BackupError> {
    let directory = Directory::look_into(Arc::new(ReadOnlyDisk), &copy.join(DATA_DIR))?;
    let last = match until {
        Until::Lsn(lsn) => lsn,
        Until::End | Until::Time(_) => Lsn::MAX,
    };
    let restore = match Restore::open_until(directory, last) {
        // It begins behind that change.
        Err(LogError::Missing { .. } | LogError::Gap { .. }) if last < Lsn::MAX => return Ok(None),
        restore => restore?,
    };
    let is_in_time = |begun: &Begun| !matches!(until, Until::Time(ms) if begun.time_ms > ms);
    let begun = restore.snapshot_reader().map(|reader| Begun {
        lsn: reader.end().lsn,
        time_ms: reader.end().time_ms,
        bytes: reader.progress().1,
    });
    if begun.as_ref().is_none_or(is_in_time) { write(restore, begun, into, until) } else { Ok(None) }
}

/// Writes the data folder, which has no name yet. Returns `None` if there was no change until then.
fn write(
    mut restore: Restore,
    begun: Option<Begun>,
    into: &Path,
    until: Until,
) -> Result<Option<Restored>, BackupError> {
    let draft = into.join(DRAFT);
    discard(&draft)?;
    let mut folder = Folder::create(&draft, begun.as_ref())?;
    let mut time_ms = begun.map_or(0, |begun| begun.time_ms);
    let mut is_in_snapshot = begun.is_some();
    while let Some(part) = restore.next_part()? {
        match part {
            Part::Checked => {}
            Part::Snapshot(reader) => folder.push(reader.units().bytes())?,
            Part::Block(block) => {
                if is_in_snapshot {
                    folder.end_snapshot(begun.map_or(Lsn::NONE, |begun| begun.lsn))?;
                    is_in_snapshot = false;
                }
                let units = match until {
                    Until::End => block.unit_bytes(),
                    Until::Time(ms) if block.time_ms() > ms => break,
                    Until::Time(_) => block.unit_bytes(),
                    Until::Lsn(lsn) => {
                        let wanted = block.units().take_while(|unit| unit.lsn <= lsn);
                        let bytes = wanted.map(|unit| UNIT_HEAD_BYTES + unit.effects.len()).sum();
                        &block.unit_bytes()[..bytes]
                    }
                };
                if units.is_empty() {
                    break;
                }
                folder.append_units(block.first_lsn(), block.time_ms(), units)?;
                time_ms = block.time_ms();
            }
        }
    }
    if is_in_snapshot {
        folder.end_snapshot(begun.map_or(Lsn::NONE, |begun| begun.lsn))?;
    }
    let last = folder.last();
    folder.close()?;
    Ok((last > Lsn::NONE).then_some(Restored { last, time_ms }))
}

/// Gives the finished data folder its name.
fn take_place(into: &Path) -> Result<(), BackupError> {
    let draft = into.join(DRAFT);
    let (from, to) = (draft.join(DATA_DIR), into.join(DATA_DIR));
    fs::rename(&from, &to).map_err(io_error(&from))?;
    fs::remove_dir(&draft).map_err(io_error(&draft))?;
    fs::File::open(into).and_then(|folder| folder.sync_all()).map_err(io_error(into))
}

/// Removes what an earlier call may not have finished.
fn discard(draft: &Path) -> Result<(), BackupError> {
    if draft.exists() {
        Directory::remove(&draft.join(DATA_DIR))?;
        fs::remove_dir_all(draft).map_err(io_error(draft))?;
    }
    Ok(())
}
