//! From a snapshot to the same data as a file that Redis loads: what `rdb-export` asks for.
//!
//! A thread reads the snapshot that has just been completed, so the file shows the same point in time, and nobody is held up,
//! however large a value is. The snapshot is read twice. First to learn which libraries there are at its end, and which keys did
//! not stay as they were copied, because a unit that came later is in the stream, too. Then its effects are applied to a keyspace
//! of the thread's own, from which all other keys are written and removed as soon as they are there. So the memory that it takes
//! is that of one frame, of the largest value, and of the keys that changed while the snapshot was made. Only of a database that
//! was flushed or swapped meanwhile everything is held up to the end.
//!
//! The file is written beside the one that it replaces ([`Replacement`]), so that there is a whole one at any moment. Like the
//! snapshot it gives up when the log needs the space. Readers choose a type's form by its number; the version at the beginning of the file says to older ones that there is something they do not
//! know, so if such a value is met the file is begun again.

use std::collections::{BTreeMap, HashSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use super::tail::{EFFECTS_FORMAT, UnitOrigin};
use crate::base::lsn::Lsn;
use crate::base::rng::Rng;
use crate::base::version::REDIS_VERSION;
use crate::keyspace::effect::{Cause, Effect, EffectReader, Recording, Target};
use crate::keyspace::entry::Entry;
use crate::keyspace::{DbIndex, Keyspace, WALK_END};
use crate::log::block::Unit;
use crate::log::directory::Directory;
use crate::log::error::LogError;
use crate::log::platform::{Job, Platform};
use crate::log::replacement::{self, Replacement};
use crate::log::snapshot::reader::SnapshotReader;
use crate::rdb::file::Writer;
use crate::rdb::{VERSION, VERSION_OF_EXPIRING_FIELDS, value};
use crate::script::library::parse_header;

/// Who makes the file, in the name that it has until it is complete. `tidegate export` may make one beside it.
const MAKER: &str = "save";

/// What is exported, and where to.
pub(super) struct Export {
    /// Where the snapshot is.
    pub(super) directory: Arc<Directory>,
    /// The Lsn of the snapshot.
    pub(super) lsn: Lsn,
    /// How many databases the server has.
    pub(super) databases: DbIndex,
    /// The name of the file, which lies beside the directory.
    pub(super) name: PathBuf,
    /// Is held while a file is made: one that was given up may still be about to end.
    pub(super) turn: Arc<Mutex<()>>,
    /// Whether the log beside it has space, and works.
    pub(super) is_well: Box<dyn Fn() -> bool + Send>,
}

/// A file that is complete and durable.
pub(super) struct Exported {
    pub(super) path: PathBuf,
    pub(super) keys: u64,
}

/// An export under way. Dropping it gives it up.
pub(super) struct Exporting {
    job: Job<Exported>,
    is_given_up: Arc<AtomicBool>,
}

/// Why there is no file.
#[derive(Debug, thiserror::Error)]
enum ExportError {
    /// What the text says.
    #[error("{0}")]
    Failed(String),
    /// The file can't be written, of which the text says nothing yet.
    #[error(transparent)]
    File(#[from] io::Error),
    /// The log is full or has failed.
    #[error("given up, because the log needs the space or has failed")]
    LogFirst,
    /// A value needs a newer version of RDB than the file has.
    #[error("a value needs a newer version of RDB")]
    NeedsNewer,
    /// Nobody wants it any more.
    #[error("the export was cancelled")]
    GivenUp,
}

impl Exporting {
    /// Has a thread make the file, and then call `done`.
    pub(super) fn begin(
        export: Export,
        platform: &Platform,
        done: impl FnOnce() + Send + 'static,
    ) -> io::Result<Exporting> {
        let is_given_up = Arc::<AtomicBool>::default();
        let flag = Arc::clone(&is_given_up);
        let job = platform.begin("rdb-export", move || export.run(&flag).map_err(|error| error.to_string()), done)?;
        Ok(Exporting { job, is_given_up })
    }

    /// The file, or why there is none; `None` while it is being made. To be asked until it has answered once.
    pub(super) fn outcome(&self) -> Option<Result<Exported, String>> {
        self.job.outcome()
    }
}

impl Drop for Exporting {
    fn drop(&mut self) {
        self.is_given_up.store(true, Ordering::Relaxed);
    }
}

/// Removes what a crash has left of a file of this name beside `directory`, into which nobody exports yet.
pub(super) fn remove_leftovers(directory: &Directory, name: &Path) {
    replacement::remove_leftovers(&**directory.disk(), &path_beside(directory, name), MAKER);
}

/// The path of a file beside the directory.
fn path_beside(directory: &Directory, name: &Path) -> PathBuf {
    directory.path().parent().unwrap_or(Path::new("")).join(name)
}

impl Export {
    fn run(&self, is_given_up: &AtomicBool) -> Result<Exported, ExportError> {
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        let path = path_beside(&self.directory, &self.name);
        let check = || self.check(is_given_up);
        let survey = self.survey(&check)?;
        let (file, keys) = match self.write(&path, VERSION, &survey, &check) {
            Err(ExportError::NeedsNewer) => self.write(&path, VERSION_OF_EXPIRING_FIELDS, &survey, &check),
            written => written,
        }?;
        check()?;
        file.take_place().map_err(|source| failed(&path, source))?;
        Ok(Exported { path, keys })
    }

    /// Whether it should go on.
    fn check(&self, is_given_up: &AtomicBool) -> Result<(), ExportError> {
        if is_given_up.load(Ordering::Relaxed) {
            return Err(ExportError::GivenUp);
        }
        if (self.is_well)() { Ok(()) } else { Err(ExportError::LogFirst) }
    }

    /// Calls `take` with each unit of the snapshot, and when that was begun, Unix ms.
    fn read(
        &self,
        check: Check<'_>,
        mut take: impl FnMut(&Unit<'_>, i64) -> Result<(), ExportError>,
    ) -> Result<(), ExportError> {
        let failed = |error: LogError| ExportError::Failed(error.to_string());
        let mut reader = SnapshotReader::open(&self.directory, self.lsn).map_err(failed)?;
        while reader.advance().map_err(failed)? {
            check()?;
            reader.units().try_for_each(|unit| take(&unit, reader.begun_ms()))?;
        }
        Ok(())
    }

    fn survey(&self, check: Check<'_>) -> Result<Survey, ExportError> {
        let dbs = (0..self.databases).map(|_| DbSurvey::default()).collect();
        let mut survey = Survey { dbs, libraries: BTreeMap::new() };
        self.read(check, |unit, _| survey.add(unit))?;
        Ok(survey)
    }

    /// Writes the file under a name of its own, and answers how many keys it has.
    fn write(
        &self,
        path: &Path,
        version: u16,
        survey: &Survey,
        check: Check<'_>,
    ) -> Result<(Replacement, u64), ExportError> {
        let disk = Arc::clone(self.directory.disk());
        let file = Replacement::begin(disk, path, MAKER).map_err(|(part, source)| failed(&part, source))?;
        let part = file.part().to_owned();
        self.write_to(file, version, survey, check).map_err(|error| match error {
            ExportError::File(source) => failed(&part, source),
            other => other,
        })
    }

    fn write_to(
        &self,
        file: Replacement,
        version: u16,
        survey: &Survey,
        check: Check<'_>,
    ) -> Result<(Replacement, u64), ExportError> {
        let mut writer = Writer::new(file, version);
        for (name, text) in [("redis-ver", REDIS_VERSION), ("redis-bits", "64")] {
            writer.aux(name, text)?;
        }
        survey.libraries.values().try_for_each(|code| writer.library(code))?;
        let ks = Keyspace::new(self.databases, Rng::seeded(0));
        let _hold = ks.hold_expiry();
        let mut copy = Copy { ks, writer, survey, version, keys: 0, value: Vec::new() };
        self.read(check, |unit, begun_ms| copy.take(unit, begun_ms))?;
        copy.finish(check)
    }
}

/// Whether the export should go on: it is asked again and again.
type Check<'a> = &'a dyn Fn() -> Result<(), ExportError>;

fn failed(path: &Path, source: io::Error) -> ExportError {
    ExportError::Failed(format!("{}: {source}", path.display()))
}

/// Calls `take` with each effect of a unit. Fails if that can't be read to its end.
fn each_effect<'u>(
    unit: &Unit<'u>,
    mut take: impl FnMut(DbIndex, Effect<'u>) -> Result<(), ExportError>,
) -> Result<(), ExportError> {
    if unit.format != EFFECTS_FORMAT {
        return Err(ExportError::Failed(format!("the snapshot has effects of format {}", unit.format)));
    }
    let mut effects = EffectReader::new(unit.effects);
    effects.by_ref().try_for_each(|(db, effect)| take(db, effect))?;
    match effects.is_empty() {
        true => Ok(()),
        false => Err(ExportError::Failed("the snapshot has a unit that can't be read to its end".to_owned())),
    }
}

/// What must be known of a snapshot before its first key can be written.
struct Survey {
    dbs: Vec<DbSurvey>,
    /// The texts of the libraries, as they are at the end.
    libraries: BTreeMap<Box<str>, Box<[u8]>>,
}

/// What changed in a database after it had been copied.
#[derive(Default)]
struct DbSurvey {
    /// Any key may have: it was flushed or swapped.
    is_unsettled: bool,
    /// These have.
    changed: HashSet<Box<[u8]>>,
}

impl Survey {
    fn add(&mut self, unit: &Unit<'_>) -> Result<(), ExportError> {
        let is_followed = unit.origin != UnitOrigin::Snapshot as u8;
        each_effect(unit, |db, effect| {
            match effect {
                Effect::LibraryPut { code } => {
                    if let Ok((name, _)) = parse_header(code) {
                        self.libraries.insert(name, code.into());
                    }
                }
                Effect::LibraryDelete { name } => _ = self.libraries.remove(&*String::from_utf8_lossy(name)),
                Effect::LibraryFlush {} => self.libraries.clear(),
                _ if is_followed => effect.targets(db).into_iter().flatten().for_each(|(_, target)| self.note(target)),
                _ => {}
            }
            Ok(())
        })
    }

    /// A database that does not exist is found when the effect is applied.
    fn note(&mut self, target: Target<'_>) {
        match target {
            Target::Key(db, key) => {
                if let Some(survey) = self.dbs.get_mut(usize::from(db)).filter(|survey| !survey.changed.contains(key)) {
                    survey.changed.insert(key.into());
                }
            }
            Target::Database(db) => {
                if let Some(survey) = self.dbs.get_mut(usize::from(db)) {
                    *survey = DbSurvey { is_unsettled: true, changed: HashSet::new() };
                }
            }
        }
    }

    /// Whether a key stays as slices have copied it.
    fn stays(&self, db: DbIndex, key: &[u8]) -> bool {
        let survey = self.dbs.get(usize::from(db));
        survey.is_some_and(|survey| !survey.is_unsettled && !survey.changed.contains(key))
    }
}

/// The keys on their way from the snapshot to the file.
struct Copy<'a> {
    ks: Keyspace,
    writer: Writer<Replacement>,
    survey: &'a Survey,
    version: u16,
    keys: u64,
    /// Type and bytes of the value that is written.
    value: Vec<u8>,
}

impl Copy<'_> {
    fn take(&mut self, unit: &Unit<'_>, time_ms: i64) -> Result<(), ExportError> {
        self.ks.begin_unit(time_ms, Recording::Nothing);
        let mut complete: Vec<(DbIndex, &[u8])> = Vec::new();
        each_effect(unit, |db, effect| {
            if is_program(&effect) {
                return Ok(());
            }
            let misfit =
                |misfit| ExportError::Failed(format!("the snapshot does not fit together: an effect {misfit}"));
            self.ks.apply(db, &effect).map_err(misfit)?;
            if unit.origin == UnitOrigin::Snapshot as u8
                && let [Some((_, Target::Key(db, key))), None] = effect.targets(db)
                && complete.last() != Some(&(db, key))
                && self.survey.stays(db, key)
            {
                complete.push((db, key));
            }
            Ok(())
        })?;
        complete.into_iter().try_for_each(|(db, key)| self.write_and_remove(db, key))
    }

    /// A slice holds all of a key.
    fn write_and_remove(&mut self, db: DbIndex, key: &[u8]) -> Result<(), ExportError> {
        let Some(slot) = self.ks.find(db, key) else { return Ok(()) };
        let entry = self.ks.entry(db, slot);
        write_entry(&mut self.writer, self.version, &mut self.value, db, entry)?;
        self.keys += 1;
        let removal = Effect::Del { key, cause: Cause::Command };
        self.ks.apply(db, &removal).map_err(|misfit| ExportError::Failed(misfit.to_string()))
    }

    /// Writes what was held up to the end, and answers the file, and how many keys there are in all.
    fn finish(mut self, check: Check<'_>) -> Result<(Replacement, u64), ExportError> {
        for db in 0..self.ks.databases() {
            let mut written = Ok(());
            let mut at = 0;
            while at != WALK_END && written.is_ok() {
                at = self.ks.walk(db, at, |entry| {
                    if let Some(entry) = entry {
                        written = check()
                            .and_then(|()| write_entry(&mut self.writer, self.version, &mut self.value, db, entry));
                        self.keys += 1;
                    }
                    written.is_ok()
                });
            }
            written?;
        }
        Ok((self.writer.finish()?, self.keys))
    }
}

fn write_entry(
    writer: &mut Writer<Replacement>,
    version: u16,
    bytes: &mut Vec<u8>,
    db: DbIndex,
    entry: &Entry,
) -> Result<(), ExportError> {
    let code = value::type_code(entry.value());
    if value::version_of(code) > version {
        return Err(ExportError::NeedsNewer);
    }
    bytes.clear();
    bytes.push(code);
    value::encode(entry.value(), bytes);
    Ok(writer.key(u64::from(db), entry.key(), entry.expires_at_ms(), bytes)?)
}

/// Whether an effect is about scripts or libraries.
fn is_program(effect: &Effect<'_>) -> bool {
    matches!(
        effect,
        Effect::ScriptPut { .. }
            | Effect::ScriptDrop { .. }
            | Effect::ScriptFlush {}
            | Effect::LibraryPut { .. }
            | Effect::LibraryDelete { .. }
            | Effect::LibraryFlush {}
    )
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use super::*;
    use crate::keyspace::effect::EffectWriter;
    use crate::log::block::unit_head;
    use crate::log::directory::DirectoryId;
    use crate::log::disk::Disk;
    use crate::log::sim::SimDisk;
    use crate::log::snapshot::writer::{Begin, LogBeside, Sizes, SnapshotWriter};

    /// An export of a snapshot that has these units.
    fn export_of(disk: &SimDisk, units: &[Vec<u8>]) -> Export {
        let id = DirectoryId::new([1; 16]);
        let directory = Arc::new(Directory::open(Arc::new(disk.clone()), Path::new("/data"), id).unwrap());
        let begin = Begin { serial: 1, time_ms: 1, sizes: Sizes::default(), notify: Box::new(|| {}) };
        let mut writer = SnapshotWriter::begin(Arc::clone(&directory), LogBeside::none(), begin);
        for effects in units {
            let head = unit_head(EFFECTS_FORMAT, UnitOrigin::Snapshot as u8, effects.len() as u32);
            writer.push([&head[..], effects].concat(), 1);
        }
        writer.finish(Lsn::new(7), 1);
        (0..3).for_each(|_| writer.step());
        writer.outcome().unwrap().unwrap();
        let is_well = Box::new(|| true);
        Export { directory, lsn: Lsn::new(7), databases: 2, name: "dump.rdb".into(), turn: Arc::default(), is_well }
    }

    fn unit(key: &str) -> Vec<u8> {
        let mut effects = EffectWriter::default();
        effects.write(1, &Effect::SetText { key: key.as_bytes(), value: b"value" });
        effects.as_bytes().to_vec()
    }

    fn names(disk: &SimDisk) -> Vec<String> {
        disk.list(Path::new("/")).unwrap()
    }

    #[test]
    fn a_unit_that_can_not_be_read_to_its_end_ends_it() {
        let disk = SimDisk::new(1);
        let exported = export_of(&disk, &[unit("a"), unit("b")]).run(&AtomicBool::new(false)).unwrap();
        assert_eq!((exported.keys, &*exported.path), (2, Path::new("/dump.rdb")));
        let disk = SimDisk::new(2);
        let cut = [unit("b"), vec![0xff]].concat();
        let error = export_of(&disk, &[unit("a"), cut]).run(&AtomicBool::new(false)).map(|_| ()).unwrap_err();
        assert!(error.to_string().contains("can't be read to its end"), "{error}");
        assert!(names(&disk).is_empty());
    }

    #[test]
    fn it_gives_up_at_any_moment_when_the_log_needs_the_space() {
        let asked = Arc::<AtomicUsize>::default();
        let run = |stays_well: usize| {
            let disk = SimDisk::new(3);
            let count = Arc::clone(&asked);
            count.store(0, Ordering::Relaxed);
            let is_well = Box::new(move || count.fetch_add(1, Ordering::Relaxed) < stays_well);
            let export = Export { is_well, ..export_of(&disk, &[unit("a"), unit("b")]) };
            (export.run(&AtomicBool::new(false)).map(|exported| exported.keys), names(&disk))
        };
        assert!(matches!(run(usize::MAX), (Ok(2), names) if names == ["dump.rdb"]));
        let all = asked.load(Ordering::Relaxed);
        assert!(all >= 3, "once for each reading, and before it takes its place");
        for moment in 0..all {
            let (outcome, names) = run(moment);
            assert!(matches!(outcome, Err(ExportError::LogFirst)), "{moment}");
            assert!(names.is_empty(), "{moment}: {names:?}");
        }
    }
}
