//! Converts a snapshot to a file that Redis loads, as configured by `rdb-export`.
//!
//! A thread reads the snapshot that was just completed. The file therefore shows the same point in time, and nothing
//! else is blocked, however large a value is. In the snapshot's stream, later changes to a key follow the key's copy.
//! Most keys are therefore final as soon as they are read, and some only at the end. The thread reads the stream
//! several times:
//!
//! 1. to find the libraries that exist at its end, and the keys that change after their copy ([`Survey`]);
//! 2. to write all other keys: each is built in the thread's own keyspace and removed once written;
//! 3. to build the changed keys and write them at the end, as many per reading as memory allows.
//!
//! The export thus takes the memory of one frame, of the largest value, of a share of all keys ([`EXPORT_HELD_SHARE`]),
//! and a few bytes for each key that was renamed or copied. This memory does not count towards `maxmemory`: no client's
//! write is refused because a file is made ([`apart`]).
//!
//! One case has no bound. Keys between which RENAME or COPY moved values after their copies are built together
//! ([`Links`]), and each value counts once, although its copies take memory, too. All keys that got their values by
//! RENAME from one temporary name during the snapshot are therefore held at once. Dividing them would require telling
//! the successive lives of that name apart.
//!
//! The new file is written beside the old one and then replaces it ([`Replacement`]), so a complete file exists at any
//! moment. Like the snapshot, the export gives up when the journal needs the space. Readers identify a type's encoding
//! by its number. The version in the header tells older readers that the file holds unknown types, so the file is begun
//! again when such a value is met.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use super::handover::Handover;
use super::tail::{EFFECTS_FORMAT, UnitOrigin};
use crate::base::hasher::hash_bytes;
use crate::base::lsn::Lsn;
use crate::base::os::allocated::apart;
use crate::base::rng::Rng;
use crate::base::version::REDIS_VERSION;
use crate::keyspace::any_value::ValueRef;
use crate::keyspace::effect::{Cause, Effect, EffectReader, Recording, Target};
use crate::keyspace::entry::Entry;
use crate::keyspace::{DbIndex, Keyspace, WALK_END};
use crate::log::block::Unit;
use crate::log::directory::Directory;
use crate::log::error::LogError;
use crate::log::platform::{Job, Platform};
use crate::log::replacement::{self, Replacement};
use crate::log::snapshot::reader::SnapshotReader;
use crate::persist::limits::{EXPORT_FILTER_SHARE, EXPORT_HELD_MIN_BYTES, EXPORT_HELD_SHARE, EXPORT_KEY_BYTES};
use crate::rdb::file::Writer;
use crate::rdb::{VERSION, VERSION_OF_EXPIRING_FIELDS, value};
use crate::script::library::parse_header;

/// The maker's name in the temporary file name; `tidegate export` may make a file beside it.
const MAKER: &str = "save";

/// The source and destination of an export.
pub(crate) struct Export {
    /// The directory with the snapshot.
    pub(crate) directory: Arc<Directory>,
    /// The Lsn of the snapshot.
    pub(crate) lsn: Lsn,
    /// The server's number of databases.
    pub(crate) databases: DbIndex,
    /// The file name, relative to the folder that holds the directory.
    pub(crate) name: PathBuf,
    /// Held while a file is made, because an abandoned export may still be ending.
    pub(crate) turn: Arc<Mutex<()>>,
    /// Whether the journal in the directory has space and works.
    pub(crate) is_well: Box<dyn Fn() -> bool + Send>,
}

/// A complete and durable file.
pub(crate) struct Exported {
    pub(crate) path: PathBuf,
    pub(crate) keys: u64,
}

/// An export in progress. Dropping it cancels it.
pub(crate) struct Exporting {
    job: Job<Exported>,
    is_given_up: Arc<AtomicBool>,
}

/// Reasons why the export failed.
#[derive(Debug, thiserror::Error)]
enum ExportError {
    /// The text gives the reason.
    #[error("{0}")]
    Failed(String),
    /// The file can't be written.
    #[error(transparent)]
    File(#[from] io::Error),
    /// The journal is full or has failed.
    #[error("given up, because the journal needs the space or has failed")]
    LogFirst,
    /// A value needs a newer version of RDB than the file has.
    #[error("a value needs a newer version of RDB")]
    NeedsNewer,
    /// The export was cancelled.
    #[error("the export was cancelled")]
    GivenUp,
}

impl Exporting {
    /// Starts a thread that makes the file and then calls `done`.
    pub(crate) fn begin(
        export: Export,
        platform: &Platform,
        done: impl FnOnce() + Send + 'static,
    ) -> io::Result<Exporting> {
        let is_given_up = Arc::<AtomicBool>::default();
        let flag = Arc::clone(&is_given_up);
        let run = move || apart(|| export.run(&flag)).map_err(|error| error.to_string());
        let job = platform.begin("rdb-export", run, done)?;
        Ok(Exporting { job, is_given_up })
    }

    /// Returns the file or the reason for its absence; `None` while in progress. Must not be called again after it has
    /// returned an outcome.
    pub(crate) fn outcome(&self) -> Option<Result<Exported, String>> {
        self.job.outcome()
    }
}

impl Drop for Exporting {
    fn drop(&mut self) {
        self.is_given_up.store(true, Ordering::Relaxed);
    }
}

/// Removes leftovers of a crashed export of this name beside `directory`; no export to it may be running.
pub(crate) fn remove_leftovers(directory: &Directory, name: &Path) {
    replacement::remove_leftovers(&**directory.disk(), &path_beside(directory, name), MAKER);
}

/// Returns the path of a file beside the directory.
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

    /// Fails if the export should stop.
    fn check(&self, is_given_up: &AtomicBool) -> Result<(), ExportError> {
        if is_given_up.load(Ordering::Relaxed) {
            return Err(ExportError::GivenUp);
        }
        if (self.is_well)() { Ok(()) } else { Err(ExportError::LogFirst) }
    }

    fn open(&self) -> Result<SnapshotReader, ExportError> {
        SnapshotReader::open(&self.directory, self.lsn).map_err(unreadable)
    }

    /// Calls `take` with each unit of the snapshot and the time the snapshot was begun, Unix ms.
    fn read(
        &self,
        check: Check<'_>,
        mut take: impl FnMut(&Unit<'_>, i64) -> Result<(), ExportError>,
    ) -> Result<(), ExportError> {
        let mut reader = self.open()?;
        while reader.advance().map_err(unreadable)? {
            check()?;
            reader.units().try_for_each(|unit| take(&unit, reader.begun_ms()))?;
        }
        Ok(())
    }

    fn survey(&self, check: Check<'_>) -> Result<Survey, ExportError> {
        let mut survey = Survey::new(self.databases, self.open()?.end().unit_bytes);
        self.read(check, |unit, _| survey.add(unit))?;
        Ok(survey)
    }

    /// Writes the file under its temporary name and returns the number of keys.
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
        let mut copy = Copy { export: self, check, survey, writer, version, keys: 0, left_out: 0, without_delayed: 0 };
        let of_classes = copy.write_unchanged()?;
        for classes in groups(&of_classes, survey.held_bytes()) {
            copy.write_changed(classes)?;
        }
        if copy.left_out > 0 {
            tracing::warn!(
                keys = copy.left_out,
                "left out of the RDB file: locks, gates and stocks, which Redis does not have"
            );
        }
        if copy.without_delayed > 0 {
            tracing::warn!(
                streams = copy.without_delayed,
                "left out of the RDB file: delayed messages of streams, which Redis does not have"
            );
        }
        Ok((copy.writer.finish()?, copy.keys))
    }
}

/// Fails if the export should stop; called again and again.
type Check<'a> = &'a dyn Fn() -> Result<(), ExportError>;

fn unreadable(error: LogError) -> ExportError {
    ExportError::Failed(error.to_string())
}

fn failed(path: &Path, source: io::Error) -> ExportError {
    ExportError::Failed(format!("{}: {source}", path.display()))
}

/// Calls `take` with each effect of a unit and its length in bytes. Fails if the unit can't be read to its end.
fn each_effect<'u>(
    unit: &Unit<'u>,
    mut take: impl FnMut(DbIndex, Effect<'u>, usize) -> Result<(), ExportError>,
) -> Result<(), ExportError> {
    if unit.format != EFFECTS_FORMAT {
        return Err(ExportError::Failed(format!("the snapshot has effects of format {}", unit.format)));
    }
    let mut effects = EffectReader::new(unit.effects);
    let mut left = effects.bytes_left();
    while let Some((db, effect)) = effects.next() {
        let before = std::mem::replace(&mut left, effects.bytes_left());
        take(db, effect, before - left)?;
    }
    match effects.is_empty() {
        true => Ok(()),
        false => Err(ExportError::Failed("the snapshot has a unit that can't be read to its end".to_owned())),
    }
}

/// Returns roughly how much memory an effect adds to its key, given the effect's encoded length. The cost of a key
/// itself counts only for an effect that begins a copied key: a key changed a million times is not a million keys.
fn taken_bytes(effect: &Effect<'_>, bytes: usize) -> u64 {
    let of_key = match effect {
        Effect::Put { .. } | Effect::Build { .. } | Effect::Complete { .. } => EXPORT_KEY_BYTES,
        _ => 0,
    };
    (bytes + of_key) as u64
}

/// Number of hash classes of changed keys. As many classes are built at a time as memory allows.
const CLASSES: usize = 256;

/// Facts about a snapshot needed before its first key can be written.
struct Survey {
    /// Approximate memory of all keys: see [`taken_bytes`].
    taken_bytes: u64,
    /// The texts of the libraries at the end of the snapshot.
    libraries: BTreeMap<Box<str>, Box<[u8]>>,
    /// Databases in which any key may change after its copy, because they are flushed or swapped.
    changed_databases: Vec<bool>,
    /// Keys that change after their copy in other databases.
    changed: KeyFilter,
    links: Links,
}

impl Survey {
    fn new(databases: DbIndex, unit_bytes: u64) -> Survey {
        Survey {
            taken_bytes: 0,
            libraries: BTreeMap::new(),
            changed_databases: vec![false; databases.into()],
            changed: KeyFilter::of_bits(unit_bytes / EXPORT_FILTER_SHARE),
            links: Links::default(),
        }
    }

    /// Returns the memory allowed for keys built at a time, in bytes.
    fn held_bytes(&self) -> u64 {
        EXPORT_HELD_MIN_BYTES.max(self.taken_bytes / EXPORT_HELD_SHARE)
    }

    fn add(&mut self, unit: &Unit<'_>) -> Result<(), ExportError> {
        let is_followed = unit.origin != UnitOrigin::Snapshot as u8;
        each_effect(unit, |db, effect, bytes| {
            self.taken_bytes += taken_bytes(&effect, bytes);
            match effect {
                Effect::LibraryPut { code } => {
                    if let Ok((name, _)) = parse_header(code) {
                        self.libraries.insert(name, code.into());
                    }
                }
                Effect::LibraryDelete { name } => _ = self.libraries.remove(&*String::from_utf8_lossy(name)),
                Effect::LibraryFlush {} => self.libraries.clear(),
                _ if is_followed => self.follow(db, &effect),
                _ => {}
            }
            Ok(())
        })
    }

    fn follow(&mut self, db: DbIndex, effect: &Effect<'_>) {
        let targets = effect.targets(db);
        for (_, target) in targets.into_iter().flatten() {
            match target {
                Target::Key(_, key) => self.changed.add(hash_bytes(key)),
                // A missing database is reported when the effect is applied.
                Target::Database(db) => {
                    self.changed_databases
                        .get_mut(usize::from(db))
                        .into_iter()
                        .for_each(|is_changed| *is_changed = true);
                }
            }
        }
        if let [Some((_, Target::Key(_, key))), Some((_, Target::Key(_, to)))] = targets {
            self.links.join(hash_bytes(key), hash_bytes(to));
        }
    }

    /// Returns the class of a key that may change after its copy; `None` if it stays as copied.
    fn class(&self, db: DbIndex, key: &[u8]) -> Option<usize> {
        let hash = hash_bytes(key);
        let changes = self.changed_databases.get(usize::from(db)) != Some(&false) || self.changed.may_have(hash);
        changes.then(|| (self.links.root(hash) >> (u64::BITS - CLASSES.ilog2())) as usize)
    }
}

/// A set of keys with one bit per key at a place given by its hash. Other keys may match by accident.
struct KeyFilter {
    bits: Vec<u64>,
}

impl KeyFilter {
    fn of_bits(bits: u64) -> KeyFilter {
        let words = (bits / u64::from(u64::BITS)).max(1).next_power_of_two();
        KeyFilter { bits: vec![0; usize::try_from(words).unwrap_or(1)] }
    }

    fn add(&mut self, hash: u64) {
        let (word, bit) = self.place(hash);
        self.bits[word] |= bit;
    }

    fn may_have(&self, hash: u64) -> bool {
        let (word, bit) = self.place(hash);
        self.bits[word] & bit != 0
    }

    fn place(&self, hash: u64) -> (usize, u64) {
        let bits = u64::from(u64::BITS);
        ((hash / bits) as usize & (self.bits.len() - 1), 1 << (hash % bits))
    }
}

/// Keys between which a value was moved, by hash. They must be built together, so they share a class.
#[derive(Default)]
struct Links {
    /// Maps each joined hash except the root to a smaller one of the group. Hashes are random, so paths to the root are
    /// short.
    to: HashMap<u64, u64>,
}

impl Links {
    fn join(&mut self, one: u64, other: u64) {
        let (one, other) = (self.root(one), self.root(other));
        if one != other {
            self.to.insert(one.max(other), one.min(other));
        }
    }

    /// Returns the root hash of this hash's group.
    fn root(&self, mut hash: u64) -> u64 {
        while let Some(next) = self.to.get(&hash) {
            hash = *next;
        }
        hash
    }
}

/// Groups neighbouring classes while their total stays within `most` bytes. Empty classes are left out.
fn groups(of_classes: &[u64], most: u64) -> Vec<Range<usize>> {
    let mut groups: Vec<(Range<usize>, u64)> = Vec::new();
    for (class, bytes) in of_classes.iter().enumerate().filter(|(_, bytes)| **bytes > 0) {
        match groups.last_mut() {
            Some((classes, sum)) if *sum + bytes <= most => {
                classes.end = class + 1;
                *sum += bytes;
            }
            _ => groups.push((class..class + 1, *bytes)),
        }
    }
    groups.into_iter().map(|(classes, _)| classes).collect()
}

/// The transfer of keys from the snapshot to the file.
struct Copy<'a> {
    export: &'a Export,
    check: Check<'a>,
    survey: &'a Survey,
    writer: Writer<Replacement>,
    version: u16,
    keys: u64,
    /// Keys that Redis could not read.
    left_out: u64,
    /// Streams whose delayed messages were left out.
    without_delayed: u64,
}

impl Copy<'_> {
    /// Writes the keys that stay as copied, each once it is complete. Returns the approximate memory of the changed
    /// keys in each class.
    fn write_unchanged(&mut self) -> Result<Vec<u64>, ExportError> {
        let (export, check, survey) = (self.export, self.check, self.survey);
        let mut of_classes = vec![0; CLASSES];
        let mut ks = empty_keyspace(export.databases);
        let _hold = ks.hold_expiry();
        // The key of a value that comes in parts is known only at its end, and other keys may change in between.
        let mut of_parts = 0;
        export.read(check, |unit, time_ms| {
            let mut complete: Vec<(DbIndex, &[u8])> = Vec::new();
            repeat(&mut ks, unit, time_ms, |db, effect, bytes| {
                let Some(key) = effect.key() else {
                    if let Effect::Part { fresh, .. } = effect {
                        of_parts = if *fresh { bytes } else { of_parts + bytes };
                    }
                    return true;
                };
                let of_value = if let Effect::Complete { .. } = effect { std::mem::take(&mut of_parts) } else { 0 };
                if let Some(class) = survey.class(db, key) {
                    of_classes[class] += taken_bytes(effect, of_value + bytes);
                    return false;
                }
                if complete.last() != Some(&(db, key)) {
                    complete.push((db, key));
                }
                true
            })?;
            complete.into_iter().try_for_each(|(db, key)| {
                let Some(slot) = ks.find(db, key) else { return Ok(()) };
                self.write(db, ks.entry(db, slot))?;
                remove(&mut ks, db, key)
            })
        })?;
        Ok(of_classes)
    }

    /// Writes the keys of these classes in their final state.
    fn write_changed(&mut self, classes: Range<usize>) -> Result<(), ExportError> {
        let (export, check, survey) = (self.export, self.check, self.survey);
        let mut ks = empty_keyspace(export.databases);
        let _hold = ks.hold_expiry();
        let is_wanted = |db: DbIndex, effect: &Effect<'_>, _| {
            effect.key().is_none_or(|key| survey.class(db, key).is_some_and(|class| classes.contains(&class)))
        };
        export.read(check, |unit, time_ms| repeat(&mut ks, unit, time_ms, is_wanted))?;
        for db in 0..ks.databases() {
            let mut written = Ok(());
            let mut at = 0;
            while at != WALK_END && written.is_ok() {
                at = ks.walk(db, at, |entry| {
                    if let Some(entry) = entry {
                        written = check().and_then(|()| self.write(db, entry));
                    }
                    written.is_ok()
                });
            }
            written?;
        }
        Ok(())
    }

    fn write(&mut self, db: DbIndex, entry: Entry<'_>) -> Result<(), ExportError> {
        if value::is_own(value::type_code(entry.value())) {
            self.left_out += 1;
            return Ok(());
        }
        if value::version_of(value::type_code(entry.value())) > self.version {
            return Err(ExportError::NeedsNewer);
        }
        self.keys += 1;
        if let ValueRef::Stream(stream) = entry.value() {
            self.without_delayed += u64::from(stream.delayed_len() > 0);
        }
        Ok(self.writer.entry(u64::from(db), entry)?)
    }
}

/// Makes a keyspace of minimal size, to be filled and emptied on one thread.
fn empty_keyspace(databases: DbIndex) -> Keyspace {
    let mut ks = Keyspace::new(databases, Rng::seeded(0));
    ks.free_in_place();
    ks
}

/// Replays the effects of a unit accepted by `is_wanted`, which receives each effect and its length. Parts of a large
/// value are always replayed, because its key is known only at the end.
fn repeat<'u>(
    ks: &mut Keyspace,
    unit: &Unit<'u>,
    time_ms: i64,
    mut is_wanted: impl FnMut(DbIndex, &Effect<'u>, usize) -> bool,
) -> Result<(), ExportError> {
    ks.begin_unit(time_ms, Recording::Nothing);
    each_effect(unit, |db, effect, bytes| {
        if is_beside(&effect) || matches!(effect, Effect::Expect { .. }) {
            return Ok(());
        }
        if is_wanted(db, &effect, bytes) {
            return apply(ks, db, &effect);
        }
        if let Effect::Complete { key, .. } = effect {
            // The parts of the key's value are dropped with it.
            apply(ks, db, &effect)?;
            remove(ks, db, key)?;
        }
        Ok(())
    })
}

fn apply(ks: &mut Keyspace, db: DbIndex, effect: &Effect<'_>) -> Result<(), ExportError> {
    let misfit = |misfit| ExportError::Failed(format!("the snapshot does not fit together: an effect {misfit}"));
    ks.apply(db, effect).map_err(misfit)
}

/// Removes a key that has been written or is not wanted.
fn remove(ks: &mut Keyspace, db: DbIndex, key: &[u8]) -> Result<(), ExportError> {
    apply(ks, db, &Effect::Del { key, cause: Cause::Command })
}

/// Returns whether an effect concerns no key but what lies beside them, such as scripts.
fn is_beside(effect: &Effect<'_>) -> bool {
    matches!(
        effect,
        Effect::ScriptPut { .. }
            | Effect::ScriptDrop { .. }
            | Effect::ScriptFlush {}
            | Effect::LibraryPut { .. }
            | Effect::LibraryDelete { .. }
            | Effect::LibraryFlush {}
    ) || Handover::gives(effect).is_some()
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
    use crate::value::Layout;

    /// Makes an export of a snapshot with these units.
    fn export_of(disk: &SimDisk, units: &[Vec<u8>]) -> Export {
        let copied: Vec<_> = units.iter().map(|effects| (UnitOrigin::Snapshot, effects.clone())).collect();
        export_of_stream(disk, &copied)
    }

    /// As `export_of`, with the origin of each unit.
    fn export_of_stream(disk: &SimDisk, units: &[(UnitOrigin, Vec<u8>)]) -> Export {
        let id = DirectoryId::new([1; 16]);
        let directory = Arc::new(Directory::open(Arc::new(disk.clone()), Path::new("/data"), id).unwrap());
        let begin = Begin { serial: 1, time_ms: 1, sizes: Sizes::default(), notify: Box::new(|| {}) };
        let mut writer = SnapshotWriter::begin(Arc::clone(&directory), LogBeside::none(), begin);
        for (origin, effects) in units {
            let head = unit_head(EFFECTS_FORMAT, *origin as u8, effects.len() as u32);
            writer.push([&head[..], effects].concat(), 1);
        }
        writer.finish(Lsn::new(7), 1);
        (0..3).for_each(|_| writer.step());
        writer.outcome().unwrap().unwrap();
        let is_well = Box::new(|| true);
        Export { directory, lsn: Lsn::new(7), databases: 2, name: "dump.rdb".into(), turn: Arc::default(), is_well }
    }

    /// Returns the result of a survey, and the memory of the changed keys in each class.
    fn surveyed(units: &[(UnitOrigin, Vec<u8>)]) -> (Survey, Vec<u64>) {
        let disk = SimDisk::new(5);
        let export = export_of_stream(&disk, units);
        let survey = export.survey(&|| Ok(())).unwrap();
        let file =
            Replacement::begin(Arc::new(disk), Path::new("/dump.rdb"), MAKER).map_err(|(_, error)| error).unwrap();
        let writer = Writer::new(file, VERSION);
        let mut copy = Copy {
            export: &export,
            check: &|| Ok(()),
            survey: &survey,
            writer,
            version: VERSION,
            keys: 0,
            left_out: 0,
            without_delayed: 0,
        };
        let of_classes = copy.write_unchanged().unwrap();
        (survey, of_classes)
    }

    /// Makes a unit of effects on database 0.
    fn unit_of(unit: &[Effect<'_>]) -> Vec<u8> {
        let mut effects = EffectWriter::default();
        unit.iter().for_each(|effect| effects.write(0, effect));
        effects.into_bytes()
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
    fn an_unreadable_unit_ends_the_export() {
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
    fn an_export_gives_up_at_any_moment_when_the_journal_needs_the_space() {
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
        assert!(all >= 3, "the check runs at each read and before the rename");
        for moment in 0..all {
            let (outcome, names) = run(moment);
            assert!(matches!(outcome, Err(ExportError::LogFirst)), "{moment}");
            assert!(names.is_empty(), "{moment}: {names:?}");
        }
    }

    #[test]
    fn keys_changed_after_their_copies_are_held_one_part_at_a_time() {
        let set = |key: usize, value: &[u8]| {
            let mut effects = EffectWriter::default();
            effects.write(0, &Effect::SetText { key: format!("key:{key}").as_bytes(), value });
            effects.as_bytes().to_vec()
        };
        let value = |tag: &str| format!("{tag}{}", "-".repeat(100_000)).into_bytes();
        let (early, late) = (value("<early>"), value("<late>"));
        for (changed, reads) in [(0, 1..=1), (1, 2..=2), (40, 5..=41)] {
            let disk = SimDisk::new(4);
            let copied = (0..40).map(|key| (UnitOrigin::Snapshot, set(key, &early)));
            let followed = (0..changed).map(|key| (UnitOrigin::Command, set(key, &late)));
            let export = export_of_stream(&disk, &copied.chain(followed).collect::<Vec<_>>());
            let before = disk.operations();
            assert_eq!(export.run(&AtomicBool::new(false)).unwrap().keys, 40);
            let opened = disk.trace(before).iter().filter(|event| event.operation == "open").count();
            // One reading looks at the snapshot's end, and one finds the changed keys.
            assert!(reads.contains(&(opened - 2)), "{changed}: {opened}");
            let file = disk.open(Path::new("/dump.rdb")).unwrap();
            let mut bytes = vec![0; file.size().unwrap() as usize];
            file.read_at(&mut bytes, 0).unwrap();
            let tagged = |tag: &[u8]| bytes.windows(tag.len()).filter(|bytes| *bytes == tag).count();
            assert_eq!((tagged(b"<early>"), tagged(b"<late>")), (40 - changed, changed));
        }
    }

    #[test]
    fn parts_of_a_value_count_for_its_key_even_if_others_change_between_them() {
        let part = |fresh: bool, bytes: usize| {
            let steps = unit_of(&[Effect::HashSet { key: b"", field: &[b'f'; 9], value: &vec![b'v'; bytes] }]);
            unit_of(&[Effect::Part { fresh, layout: Layout::Large, steps: &steps }])
        };
        // Hashes differ from run to run, and with a chance of 1 in 128 one of the two keys would be in the large key's
        // class.
        let class = |key: &[u8]| hash_bytes(key) >> (u64::BITS - CLASSES.ilog2());
        let names = (0..).map(|number| format!("other:{number}").into_bytes());
        let others: Vec<Vec<u8>> = names.filter(|name| class(name) != class(b"large")).take(2).collect();
        let set = |key: &[u8]| unit_of(&[Effect::SetInteger { key, value: 1 }]);
        let complete = unit_of(&[Effect::Complete { key: b"large", layout: Layout::Large, at_ms: i64::MAX }]);
        let change = unit_of(&[Effect::HashSet { key: b"large", field: b"g", value: b"v" }]);
        let abandoned = unit_of(&[Effect::Part { fresh: true, layout: Layout::Compact, steps: b"" }]);
        let (survey, of_classes) = surveyed(&[
            (UnitOrigin::Snapshot, part(true, 500_000)),
            (UnitOrigin::Command, abandoned),
            (UnitOrigin::Snapshot, part(true, 10_000)),
            (UnitOrigin::Command, set(&others[0])),
            (UnitOrigin::Snapshot, part(false, 20_000)),
            (UnitOrigin::Command, set(&others[1])),
            (UnitOrigin::Snapshot, complete),
            (UnitOrigin::Command, change),
        ]);
        let of_key = |key: &[u8]| of_classes[survey.class(0, key).unwrap()];
        assert!((30_000..31_000).contains(&of_key(b"large")), "{}", of_key(b"large"));
        assert!(others.iter().all(|key| of_key(key) < 200));
    }

    #[test]
    fn memory_of_all_keys_and_of_changing_keys_is_measured_alike() {
        let key = |key: usize| format!("key:{key}").into_bytes();
        let mut units: Vec<_> = (0..1_000)
            .map(|number| (UnitOrigin::Snapshot, unit_of(&[Effect::Put { key: &key(number), value: b"" }])))
            .collect();
        let swap = (UnitOrigin::Command, unit_of(&[Effect::Swap { with_db: 1 }]));
        units.push(swap);
        let (survey, of_classes) = surveyed(&units);
        let of_all: u64 = of_classes.iter().sum();
        assert!(of_all > 1_000 * EXPORT_KEY_BYTES as u64);
        // The margin covers the swap itself, which concerns no key.
        assert!((of_all..of_all + 16).contains(&survey.taken_bytes), "{of_all} of {}", survey.taken_bytes);
        // With more groups, the snapshot would be read that often.
        let reads = groups(&of_classes, survey.taken_bytes / EXPORT_HELD_SHARE).len() as u64;
        assert!((EXPORT_HELD_SHARE..2 * EXPORT_HELD_SHARE).contains(&reads), "{reads}");
    }

    #[test]
    fn a_key_that_changes_often_is_not_taken_for_many() {
        let count = |value| unit_of(&[Effect::SetInteger { key: b"hot", value }]);
        let mut units = vec![(UnitOrigin::Snapshot, unit_of(&[Effect::Put { key: b"hot", value: b"0" }]))];
        units.extend((1..=1_000).map(|value| (UnitOrigin::Command, count(value))));
        let unit_bytes = units.iter().map(|(_, unit)| unit.len() as u64).sum::<u64>();
        let (survey, of_classes) = surveyed(&units);
        let of_all: u64 = of_classes.iter().sum();
        assert_eq!((of_all, survey.taken_bytes), (unit_bytes + EXPORT_KEY_BYTES as u64, of_all));
    }

    #[test]
    fn classes_that_fit_together_are_made_together() {
        assert_eq!(groups(&[0, 3, 4, 0, 5, 9, 1], 8), [1..3, 4..5, 5..6, 6..7]);
        assert_eq!(groups(&[2, 0, 0, 6, 1], 8), [0..4, 4..5]);
        assert!(groups(&[0, 0], 8).is_empty());
    }

    #[test]
    fn keys_linked_by_moved_values_are_grouped() {
        let mut links = Links::default();
        for (one, other) in [(7, 9), (3, 4), (9, 7), (4, 9), (5, 5)] {
            links.join(one, other);
        }
        assert_eq!([3, 4, 7, 9, 5, 1].map(|hash| links.root(hash)), [3, 3, 3, 3, 5, 1]);
    }
}
