//! `tidegate restore`: a new data folder as of the end of a copy, or of an earlier moment.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use super::copies::{all, history_of, make_folder, sync};
use super::error::{BackupError, io_error};
use super::folder::Folder;
use crate::base::lsn::Lsn;
use crate::feed::Begun;
use crate::log::block::{Block, UNIT_HEAD_BYTES};
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

/// The folder in which the data is before all of it is there.
const DRAFT: &str = "restore.part";

/// How often a copy is read again that is being written, and after which pause: a segment may have been moved since it
/// was found.
const TRIES: usize = 3;
const PAUSE: Duration = Duration::from_millis(100);

/// Writes a new data folder into `into`, from the copy or the folder of copies `from`, as of `until`. There is no data
/// folder before all of it is durable.
pub fn restore(from: &Path, into: &Path, until: Until) -> Result<Restored, BackupError> {
    let target = into.join(DATA_DIR);
    if target.exists() {
        return Err(BackupError::Exists(target));
    }
    let draft = into.join(DRAFT);
    let restored = discard(&draft).and_then(|()| choose(from, &draft, until));
    match restored {
        Ok(_) => {
            let data = draft.join(DATA_DIR);
            fs::rename(&data, &target).map_err(io_error(&data))?;
            fs::remove_dir(&draft).map_err(io_error(&draft))?;
            sync(into)?;
        }
        // The reason of the failure matters more than one of this. The next call tries again.
        Err(_) => _ = discard(&draft),
    }
    restored
}

/// Removes what an earlier call may not have finished.
fn discard(draft: &Path) -> Result<(), BackupError> {
    if draft.exists() { fs::remove_dir_all(draft).map_err(io_error(draft)) } else { Ok(()) }
}

/// Restores from the newest copy that reaches back to the moment. Copies of another history than the newest one have
/// other changes by the same numbers, so none of them is chosen.
fn choose(from: &Path, draft: &Path, until: Until) -> Result<Restored, BackupError> {
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
    let (mut begun, mut folder, mut time_ms) = (None, None, 0);
    while let Some(part) = restore.next_part()? {
        match part {
            Part::Checked => {}
            Part::Snapshot(reader) => {
                let begun = begun.get_or_insert_with(|| begun_of(reader));
                if matches!(until, Until::Time(ms) if begun.time_ms > ms) {
                    return Ok(None);
                }
                time_ms = begun.time_ms;
                let folder = match &mut folder {
                    Some(folder) => folder,
                    none => none.insert(create(draft, Some(begun))?),
                };
                folder.push(reader.units().bytes())?;
            }
            Part::Block(block) => {
                let folder = match &mut folder {
                    Some(folder) => folder,
                    none => none.insert(create(draft, None)?),
                };
                end_snapshot(folder, begun.as_ref())?;
                let units = wanted(&block, until);
                if units.is_empty() {
                    break;
                }
                folder.append_units(block.first_lsn(), block.time_ms(), units)?;
                time_ms = block.time_ms();
            }
        }
    }
    let mut folder = match folder {
        Some(folder) => folder,
        None => create(draft, None)?,
    };
    end_snapshot(&mut folder, begun.as_ref())?;
    let last = folder.last();
    folder.close()?;
    let is_there = last > Lsn::NONE || matches!(until, Until::End);
    Ok(is_there.then_some(Restored { last, time_ms }))
}

fn begun_of(reader: &SnapshotReader) -> Begun {
    Begun { lsn: reader.end().lsn, time_ms: reader.end().time_ms, bytes: reader.progress().1 }
}

fn create(draft: &Path, snapshot: Option<&Begun>) -> Result<Folder, BackupError> {
    make_folder(draft)?;
    Folder::create(draft, snapshot)
}

fn end_snapshot(folder: &mut Folder, begun: Option<&Begun>) -> Result<(), BackupError> {
    begun.map_or(Ok(()), |begun| folder.end_snapshot(begun.lsn))
}

/// Returns the units of a block that belong to the moment.
fn wanted<'a>(block: &Block<'a>, until: Until) -> &'a [u8] {
    match until {
        Until::Time(ms) if block.time_ms() > ms => &[],
        Until::End | Until::Time(_) => block.unit_bytes(),
        Until::Lsn(lsn) => {
            let units = block.units().take_while(|unit| unit.lsn <= lsn);
            let bytes = units.map(|unit| UNIT_HEAD_BYTES + unit.effects.len()).sum();
            block.unit_bytes().get(..bytes).unwrap_or_default()
        }
    }
}
