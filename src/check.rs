//! `tidegate check`: reads the files of a directory as a start would, checks them more thoroughly, and reports the
//! result.
//!
//! It reads every snapshot and the whole journal, including parts that a start would skip, and checks checksums, order,
//! gaps, and whether each effect can be decoded. Only a start can find out whether the effects fit the data. It writes
//! nothing unless a repair is requested. A copy in one file is checked in the same way.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use crate::base::calendar::utc;
use crate::base::lsn::Lsn;
use crate::keyspace::NAMELESS;
use crate::keyspace::effect::{Effect, EffectReader};
use crate::log::block::{Unit, units_in};
use crate::log::copy_file::{CopyFault, CopyReader, Frame};
use crate::log::directory::Directory;
use crate::log::disk::{ReadOnlyDisk, RealDisk};
use crate::log::error::LogError;
use crate::log::repair;
use crate::log::replicated::mark::Mark;
use crate::log::replicated::members::Members;
use crate::log::replicated::standing::Standing;
use crate::log::replicated::types::NodeId;
use crate::log::scan::Recovery;
use crate::log::snapshot::reader::SnapshotReader;
use crate::persist::tail::EFFECTS_FORMAT;

/// The verdict on a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// All files are intact up to the last unit.
    Good,
    /// The journal has a torn tail, which the next start cuts off, or there is damage, which a start may refuse.
    Faulty,
}

/// Reasons why a directory can't be checked or repaired.
#[derive(Debug, thiserror::Error)]
pub enum CheckError {
    /// A server is using the directory.
    #[error("{}: a server is using this directory: stop it, or check a copy", path.display())]
    Locked {
        /// The directory.
        path: PathBuf,
    },
    /// The files can't be read.
    #[error(transparent)]
    Log(LogError),
    /// Only the journal can be repaired.
    #[error(
        "nothing was repaired: a damaged snapshot can only be brought back from a backup, or moved away if an older \
         one exists"
    )]
    Snapshot,
    /// The remaining files may be intact, but the data they build on is missing.
    #[error("{0}. Nothing was repaired: bring back that segment, or the snapshot that the journal continues")]
    Missing(LogError),
}

impl From<LogError> for CheckError {
    fn from(error: LogError) -> CheckError {
        match error {
            LogError::Locked { path } => CheckError::Locked { path },
            error => CheckError::Log(error),
        }
    }
}

/// Checks the directory at `path`, or a copy in one file. Passes each line of the report to `say`. Changes nothing.
pub fn check(path: &Path, say: &mut dyn FnMut(&str)) -> Result<Verdict, CheckError> {
    if path.is_file() {
        return check_file(path, say);
    }
    let directory = Arc::new(Directory::open_existing(Arc::new(ReadOnlyDisk), path)?);
    let mut report = Report { directory, say, faults: 0 };
    let snapshot = report.snapshots()?;
    let last = report.log(&snapshot)?;
    let Report { say, faults, .. } = report;
    match faults {
        0 => say(&format!("good: all data up to Lsn {last}")),
        1 => say("1 fault"),
        faults => say(&format!("{faults} faults")),
    }
    Ok(if faults == 0 { Verdict::Good } else { Verdict::Faulty })
}

/// Checks a copy in one file.
fn check_file(path: &Path, say: &mut dyn FnMut(&str)) -> Result<Verdict, CheckError> {
    let io = |source| CheckError::Log(LogError::Io { path: path.to_owned(), source });
    let name = path.display();
    match read_copy(File::open(path).map_err(io)?, &mut |what| say(&format!("{name}: {what}"))) {
        Ok((last, 0)) => say(&format!("good: all data up to Lsn {last}")),
        Ok((_, faults)) => {
            say(&format!("{faults} faults"));
            return Ok(Verdict::Faulty);
        }
        Err(CopyFault::Io(source)) => return Err(io(source)),
        Err(CopyFault::Version(version)) => return Err(LogError::Version { path: path.to_owned(), version }.into()),
        Err(fault) => {
            say(&format!("{name}: {fault}"));
            return Ok(Verdict::Faulty);
        }
    }
    Ok(Verdict::Good)
}

/// Reads a copy. Returns its last unit, and the number of units that can't be decoded, each of which `say` was told of.
fn read_copy(file: File, say: &mut dyn FnMut(&str)) -> Result<(Lsn, u64), CopyFault> {
    let (mut reader, mut faults) = (CopyReader::begin(BufReader::new(file))?, 0);
    while let Some(frame) = reader.next_frame()? {
        let (units, first) = match frame {
            Frame::Snapshot { lsn, time_ms } => {
                say(&format!("a snapshot, everything up to Lsn {lsn}; {}", utc(time_ms)));
                continue;
            }
            Frame::Part { units } => (units, None),
            Frame::Block { first, units, .. } => (units, Some(first)),
        };
        for unit in units_in(units, first.unwrap_or(Lsn::NONE)) {
            if let Some(what) = undecodable(&unit) {
                faults += 1;
                say(&first.map_or(what.clone(), |_| format!("Lsn {}: {what}", unit.lsn)));
            }
        }
    }
    Ok((reader.last(), faults))
}

/// Truncates the journal in the directory `path` where its damage begins. Passes each line about the changes and losses
/// to `say`. Everything to be changed is first copied into a folder of the directory.
pub fn repair(path: &Path, say: &mut dyn FnMut(&str)) -> Result<(), CheckError> {
    let snapshots = {
        let directory = Arc::new(Directory::open_existing(Arc::new(ReadOnlyDisk), path)?);
        Report { directory, say: &mut |_| {}, faults: 0 }.snapshots()?
    };
    if snapshots.is_newest_damaged {
        return Err(CheckError::Snapshot);
    }
    let directory = Arc::new(Directory::open_existing(Arc::new(RealDisk), path)?);
    let now_ms = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as i64);
    let backup = path.join(format!("backup-{}", utc(now_ms).replace(':', "")));
    let repaired = repair::repair(&directory, snapshots.sound, &backup).map_err(|error| match error {
        error @ (LogError::Missing { .. } | LogError::Gap { .. }) => CheckError::Missing(error),
        error => error.into(),
    })?;
    let Some(repaired) = repaired else {
        say("the journal is not damaged: nothing was repaired");
        return Ok(());
    };
    say(&format!("the first damage: {}", repaired.damage));
    for copy in &repaired.copies {
        say(&format!("backup copy: {}", copy.display()));
    }
    match repaired.lost_through {
        Some(through) => say(&format!("lost: Lsn {} to {through}, and any changes after that", repaired.last.next())),
        None => say(&format!("lost: no known change; there may have been some after Lsn {}", repaired.last)),
    }
    say(&format!("repaired: the journal ends with Lsn {}", repaired.last));
    Ok(())
}

/// A check in progress.
struct Report<'a> {
    directory: Arc<Directory>,
    say: &'a mut dyn FnMut(&str),
    faults: u64,
}

/// The snapshots found.
struct Snapshots {
    /// Lsn of the newest intact snapshot; [`Lsn::NONE`] if there is none.
    sound: Lsn,
    /// Lsn of the newest snapshot.
    newest: Lsn,
    is_newest_damaged: bool,
}

/// The contents found in a segment.
struct Contents {
    first: Lsn,
    last: Lsn,
    first_ms: i64,
    last_ms: i64,
    blocks: u64,
}

impl Report<'_> {
    fn say(&mut self, line: &str) {
        (self.say)(line);
    }

    /// Reports a fault. Fails for a fault that leaves nothing to report about the files.
    fn fault(&mut self, error: LogError) -> Result<(), CheckError> {
        if matches!(error, LogError::Io { .. } | LogError::Version { .. }) {
            return Err(error.into());
        }
        self.faults += 1;
        self.say(&error.to_string());
        Ok(())
    }

    fn snapshots(&mut self) -> Result<Snapshots, CheckError> {
        let mut snapshots = Snapshots { sound: Lsn::NONE, newest: Lsn::NONE, is_newest_damaged: false };
        for lsn in self.directory.snapshots()? {
            let before = self.faults;
            match self.snapshot(lsn) {
                Ok(()) => snapshots.sound = lsn,
                Err(error) => self.fault(error)?,
            }
            snapshots.newest = lsn;
            snapshots.is_newest_damaged = self.faults > before;
        }
        Ok(snapshots)
    }

    fn snapshot(&mut self, lsn: Lsn) -> Result<(), LogError> {
        let mut reader = SnapshotReader::open(&self.directory, lsn)?;
        while reader.advance()? {
            if let Some(what) = reader.units().find_map(|unit| undecodable(&unit)) {
                let (path, offset) = reader.position();
                self.faults += 1;
                self.say(&format!("{}: in the frame that ends at offset {offset}, {what}", path.display()));
            }
        }
        let (path, _) = reader.position();
        let (end, (_, bytes)) = (reader.end().clone(), reader.progress());
        self.say(&format!(
            "{}: {bytes} bytes, everything up to Lsn {}, in {} units; {} to {}{}",
            path.display(),
            end.lsn,
            end.units,
            utc(reader.begun_ms()),
            utc(end.time_ms),
            end.mark.as_ref().map_or(String::new(), entry_of)
        ));
        Ok(())
    }

    /// Checks the journal. Returns the last unit that a start would recover.
    fn log(&mut self, snapshots: &Snapshots) -> Result<Lsn, CheckError> {
        let snapshot = snapshots.sound;
        let open = |from| Recovery::open_all(Arc::clone(&self.directory), from);
        let opened = match open(snapshot) {
            // The journal may well continue where the damaged snapshot ends, and the damage has been reported.
            Err(LogError::Missing { .. } | LogError::Gap { .. }) if snapshots.is_newest_damaged => {
                open(snapshots.newest)
            }
            opened => opened,
        };
        let mut recovery = match opened {
            Ok(recovery) => recovery,
            Err(error) => return self.fault(error).map(|()| snapshot),
        };
        let mut found = BTreeMap::new();
        let damage = loop {
            match read_block(&mut recovery, &mut found) {
                Ok(Some(undecodable)) => {
                    self.faults += u64::from(!undecodable.is_empty());
                    undecodable.iter().for_each(|line| self.say(line));
                }
                Ok(None) => break None,
                Err(error) => break Some(error),
            }
        };
        self.segments(&recovery, &found)?;
        if let Some(damage) = damage {
            self.fault(damage)?;
            return Ok(snapshot);
        }
        let Some(end) = recovery.end() else { return Ok(snapshot) };
        if let Some(torn) = &end.torn {
            self.faults += 1;
            let (path, offset) = (torn.path.display(), torn.offset);
            self.say(&format!(
                "{path}: a torn tail at offset {offset}, where a crash interrupted a write that was not acknowledged: \
                 the next start cuts it off"
            ));
        }
        if let Some(standing) = recovery.standing() {
            self.say(&of_group(&standing));
        }
        if end.lsn < snapshot {
            return Ok(snapshot);
        }
        let how = if end.is_clean { "was closed" } else { "was not closed: the server was killed, or none ran" };
        self.say(&format!("the journal {how}"));
        Ok(end.lsn)
    }

    /// Reports each segment and its contents.
    fn segments(&mut self, recovery: &Recovery, found: &BTreeMap<PathBuf, Contents>) -> Result<(), CheckError> {
        for (path, first_lsn) in recovery.chain() {
            let io = |source| LogError::Io { path: path.clone(), source };
            let bytes = self.directory.disk().open(&path).and_then(|file| file.size()).map_err(io)?;
            let contents = match found.get(&path) {
                Some(Contents { first, last, first_ms, last_ms, blocks }) => {
                    format!("Lsn {first} to {last} in {blocks} blocks; {} to {}", utc(*first_ms), utc(*last_ms))
                }
                None => format!("from Lsn {first_lsn} on, nothing was read"),
            };
            self.say(&format!("{}: {bytes} bytes, {contents}", path.display()));
        }
        Ok(())
    }
}

/// Reads a block and records its contents. Returns the reason if part of it can't be decoded; `None` at the end.
fn read_block(
    recovery: &mut Recovery,
    found: &mut BTreeMap<PathBuf, Contents>,
) -> Result<Option<Vec<String>>, LogError> {
    let Some(block) = recovery.next_block()? else { return Ok(None) };
    let time_ms = block.time_ms();
    let (mut lsns, mut undecoded) = (None, Vec::new());
    for unit in block.units() {
        let (first, _) = lsns.unwrap_or((unit.lsn, unit.lsn));
        lsns = Some((first, unit.lsn));
        undecoded.extend(undecodable(&unit).map(|what| format!("Lsn {}: {what}", unit.lsn)));
    }
    let (path, _) = recovery.position();
    if let Some((first, last)) = lsns {
        let undecoded = undecoded.iter().map(|what| format!("{}: {what}", path.display())).collect();
        let new = Contents { first, last, first_ms: time_ms, last_ms: time_ms, blocks: 0 };
        let contents = found.entry(path).or_insert(new);
        *contents = Contents { last, last_ms: time_ms, blocks: contents.blocks + 1, ..*contents };
        return Ok(Some(undecoded));
    }
    Ok(Some(Vec::new()))
}

/// Says which entry of a group's log a snapshot covers, and the members then.
fn entry_of(mark: &Mark) -> String {
    let name = |node: NodeId| match mark.members.homes.get(&node) {
        Some(home) => format!("{node} at {}", home.address),
        None => node.to_string(),
    };
    let names = |nodes: &[NodeId]| nodes.iter().map(|node| name(*node)).collect::<Vec<_>>().join(", ");
    let Members { voters, learners, .. } = &mark.members;
    let learners = if learners.is_empty() { String::new() } else { format!("; learners: {}", names(learners)) };
    format!("; entry {} of term {}; voters: {}{learners}", mark.at.index, mark.at.term, names(voters))
}

/// Describes the end of the log of a group.
fn of_group(standing: &Standing) -> String {
    let Standing { at, ballot, committed } = standing;
    let vote = ballot.vote.map_or("nobody".to_owned(), |node| format!("node {node}"));
    format!(
        "the log of a group: up to entry {}, of term {}; entry {committed} and all before it are known to be \
         committed; this node's vote in term {} is for {vote}",
        at.index, at.term, ballot.term
    )
}

/// Returns the fault in a unit's effects if they can't be decoded.
fn undecodable(unit: &Unit<'_>) -> Option<String> {
    if unit.format != EFFECTS_FORMAT {
        return Some(format!("the effects have format {}, which this version of Tidegate does not know", unit.format));
    }
    let mut effects = EffectReader::new(unit.effects);
    let mut decoded = 0;
    for (_, effect) in &mut effects {
        if !effect.steps().is_none_or(are_steps) {
            return Some(format!("effect {decoded} of a unit builds a value of something that can't be decoded"));
        }
        decoded += 1;
    }
    (!effects.is_empty()).then(|| format!("effect {decoded} of a unit can't be decoded"))
}

/// Returns whether these are effects that build up a value.
fn are_steps(bytes: &[u8]) -> bool {
    let mut steps = EffectReader::new(bytes);
    let fits = |(db, step): (u16, Effect<'_>)| db == 0 && step.key() == Some(NAMELESS) && !step.builds();
    steps.all(fits) && steps.is_empty()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::fs;

    use super::*;
    use crate::keyspace::effect::EffectWriter;
    use crate::log::block::{HEAD_BYTES, unit_head};
    use crate::log::directory::DirectoryId;
    use crate::log::disk::RealClock;
    use crate::log::group_commit::{Commit, Log, Options, State, Tail};
    use crate::log::replicated::entry::{Entry, Payload};
    use crate::log::replicated::mark::Mark;
    use crate::log::replicated::members::tests::of_voters;
    use crate::log::replicated::recovery::EntryRecovery;
    use crate::log::replicated::types::{Ballot, Index, NodeId, Term, some_owner};
    use crate::log::replicated::write::Write;
    use crate::log::restore::Restore;
    use crate::log::snapshot::writer::{Begin, Sizes};

    use crate::value::Layout;

    const TIME_MS: i64 = 1_700_000_000_000;

    fn open(path: &Path) -> Log {
        let directory = Directory::open(Arc::new(RealDisk), path, DirectoryId::new([1; 16])).unwrap();
        let options = Options { first_segment_bytes: 8 * 1024, segment_bytes: 8 * 1024, ..Options::default() };
        Restore::open(directory).unwrap().finish(options, Arc::new(RealClock::default()), Box::new(|| {})).unwrap()
    }

    fn unit(lsn: u64) -> Vec<u8> {
        let mut effects = EffectWriter::default();
        effects.write(0, &Effect::Put { key: b"key", value: lsn.to_string().repeat(50).as_bytes() });
        let effects = effects.into_bytes();
        [&unit_head(EFFECTS_FORMAT, 0, effects.len() as u32)[..], &effects].concat()
    }

    fn commit(log: &Log, lsn: u64, unit: &[u8]) {
        let bytes = [&[0; HEAD_BYTES][..], unit].concat();
        log.commit(Tail { bytes, first_lsn: Lsn::new(lsn), units: 1, time_ms: TIME_MS }, Commit::InPlace);
        while log.do_chore() {}
    }

    #[test]
    fn the_log_of_a_group_is_described_and_never_repaired() {
        let dir = tempfile::tempdir().unwrap();
        let [one, two] = [1, 2].map(|number| NodeId::new(number).unwrap());
        let directory =
            Directory::open_as(some_owner(), Arc::new(RealDisk), dir.path(), DirectoryId::new([1; 16])).unwrap();
        let recovery = EntryRecovery::read(directory, Mark::first(of_voters(&[one, two]))).unwrap();
        let log = recovery.finish(Options::default(), Arc::new(RealClock::default()), Box::new(|| {})).unwrap();
        let ballot = Some(Ballot { term: Term(3), vote: Some(two) });
        let entries = vec![Entry { index: Index(2), term: Term(3), payload: Payload::Start }];
        log.write(Write { number: 1, ballot, install: None, entries, committed: Index(1) });
        assert_eq!(log.close(), State::Good);
        let (verdict, said) = checked(dir.path());
        assert_eq!(verdict.unwrap(), Verdict::Good, "{said}");
        let line = "the log of a group: up to entry 2, of term 3; entry 1 and all before it are known to be committed; \
                    this node's vote in term 3 is for node 2";
        assert!(said.contains(line), "{said}");
        let segment = dir.path().join("log-0000000000000001.seg");
        let mut bytes = fs::read(&segment).unwrap();
        bytes[4100] ^= 1;
        fs::write(&segment, bytes).unwrap();
        assert_eq!(checked(dir.path()).0.unwrap(), Verdict::Faulty);
        let error = repair(dir.path(), &mut |_| {}).unwrap_err().to_string();
        assert!(
            error.ends_with("remove the node from the group, and let it join again with an empty directory"),
            "{error}"
        );
    }

    fn snapshot(log: &Log, lsn: u64) {
        let begin = Begin { serial: 1, time_ms: TIME_MS, sizes: Sizes::default(), notify: Box::new(|| {}) };
        let mut writer = log.snapshot(begin);
        writer.push((1..=lsn).flat_map(unit).collect(), lsn as u32);
        writer.finish(Lsn::new(lsn), TIME_MS);
        while writer.outcome().is_none() {
            writer.step();
        }
        writer.outcome().unwrap().unwrap();
    }

    /// Creates a folder with a snapshot at 40 and a journal up to 80.
    fn written() -> (tempfile::TempDir, PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("data");
        let log = open(&path);
        (1..=60).for_each(|lsn| commit(&log, lsn, &unit(lsn)));
        snapshot(&log, 40);
        (61..=80).for_each(|lsn| commit(&log, lsn, &unit(lsn)));
        log.close().unwrap();
        (dir, path)
    }

    fn checked(path: &Path) -> (Result<Verdict, CheckError>, String) {
        let mut said = String::new();
        let verdict = check(path, &mut |line| said += &format!("{line}\n"));
        (verdict, said)
    }

    fn files(path: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
        let entries = fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path());
        entries.filter(|path| path.is_file()).map(|path| (path.clone(), fs::read(&path).unwrap())).collect()
    }

    fn newest_segment_with(path: &Path, lsn: u64) -> PathBuf {
        let is_it = |bytes: &[u8]| memchr::memmem::find(bytes, &unit(lsn)).is_some();
        files(path).into_iter().rfind(|(path, bytes)| path.extension().unwrap() == "seg" && is_it(bytes)).unwrap().0
    }

    fn change(path: &Path, change: impl FnOnce(&mut Vec<u8>)) {
        let mut bytes = fs::read(path).unwrap();
        change(&mut bytes);
        fs::write(path, bytes).unwrap();
    }

    #[test]
    fn a_sound_directory_is_described_and_left_as_it_is() {
        let (_dir, path) = written();
        let before = files(&path);
        let (verdict, said) = checked(&path);
        assert_eq!(verdict.unwrap(), Verdict::Good, "{said}");
        for part in
            ["snapshot-0000000000000028.snap", "everything up to Lsn 40, in 40 units; 2023-11-14T22:13:20Z", "to 80 in"]
        {
            assert!(said.contains(part), "{part}: {said}");
        }
        assert!(said.ends_with("the journal was closed\ngood: all data up to Lsn 80\n"), "{said}");
        assert!(files(&path) == before);
    }

    #[test]
    fn damage_is_reported_with_its_place_wherever_it_is() {
        let (_dir, path) = written();
        for file in [path.join("snapshot-0000000000000028.snap"), newest_segment_with(&path, 60)] {
            let before = fs::read(&file).unwrap();
            let at = memchr::memmem::find(&before, b"60606060").unwrap_or(before.len() / 2);
            change(&file, |bytes| bytes[at] ^= 1);
            let (verdict, said) = checked(&path);
            assert_eq!(verdict.unwrap(), Verdict::Faulty, "{said}");
            assert!(said.contains(&format!("{}: damaged at offset ", file.display())), "{said}");
            assert!(said.ends_with("1 fault\n"), "{said}");
            fs::write(&file, before).unwrap();
        }
        let segment = newest_segment_with(&path, 45);
        fs::remove_file(&segment).unwrap();
        let (verdict, said) = checked(&path);
        assert_eq!(verdict.unwrap(), Verdict::Faulty, "{said}");
        assert!(said.contains("the units between them are missing"), "{said}");
    }

    #[test]
    fn a_torn_tail_is_a_fault() {
        let (_dir, path) = written();
        let log = open(&path);
        commit(&log, 81, &unit(81));
        drop(log);
        let segment = newest_segment_with(&path, 81);
        change(&segment, |bytes| {
            let at = memchr::memmem::find(bytes, &unit(81)).unwrap();
            bytes[at + 20] ^= 1;
        });
        let (verdict, said) = checked(&path);
        assert_eq!(verdict.unwrap(), Verdict::Faulty, "{said}");
        assert!(said.contains("a torn tail at offset 4096"), "{said}");
    }

    #[test]
    fn effects_that_cannot_be_decoded_are_found() {
        let (_dir, path) = written();
        let log = open(&path);
        commit(&log, 81, &[&unit_head(EFFECTS_FORMAT, 0, 2)[..], &[0x7f, 0]].concat());
        commit(&log, 82, &unit_head(99, 0, 0));
        let mut step = EffectWriter::default();
        step.write(0, &Effect::ListPush { key: NAMELESS, front: false, value: b"v" });
        let step = step.into_bytes();
        let mut nested = EffectWriter::default();
        nested.write(0, &Effect::Build { key: NAMELESS, layout: Layout::Compact, steps: &step });
        let (nested, half, elsewhere) =
            (nested.into_bytes(), &step[..step.len() - 1], [&step[..1], &[1], &step[2..]].concat());
        for (lsn, steps) in (83..).zip([&step[..], half, &nested, &elsewhere]) {
            let mut build = EffectWriter::default();
            build.write(0, &Effect::Build { key: b"key", layout: Layout::Compact, steps });
            let build = build.into_bytes();
            commit(&log, lsn, &[&unit_head(EFFECTS_FORMAT, 0, build.len() as u32)[..], &build].concat());
        }
        drop(log);
        let (verdict, said) = checked(&path);
        assert_eq!(verdict.unwrap(), Verdict::Faulty, "{said}");
        assert!(said.contains("Lsn 81: effect 0 of a unit can't be decoded"), "{said}");
        assert!(said.contains("Lsn 82: the effects have format 99"), "{said}");
        for (lsn, is_fault) in [(83, false), (84, true), (85, true), (86, true)] {
            let fault = format!("Lsn {lsn}: effect 0 of a unit builds a value of something that can't be decoded");
            assert_eq!(said.contains(&fault), is_fault, "{said}");
        }
    }

    /// A length that no server's file has must not lead to an allocation of that size.
    #[test]
    fn files_of_absurd_length_are_refused() {
        for name in ["ID", "log-00000000000000ff.seg"] {
            let (_dir, path) = written();
            fs::OpenOptions::new().create(true).append(true).open(path.join(name)).unwrap().set_len(1 << 40).unwrap();
            let (verdict, _) = checked(&path);
            let error = verdict.unwrap_err().to_string();
            assert!(error.contains(&path.join(name).display().to_string()), "{error}");
        }
    }

    #[test]
    fn a_directory_in_use_or_missing_is_not_checked() {
        let (dir, path) = written();
        let log = open(&path);
        assert!(matches!(checked(&path).0, Err(CheckError::Locked { .. })));
        assert!(matches!(repair(&path, &mut |_| {}), Err(CheckError::Locked { .. })));
        drop(log);
        let nothing = dir.path().join("nothing");
        assert!(matches!(checked(&nothing).0, Err(CheckError::Log(LogError::NoIdentity { .. }))));
        assert!(matches!(repair(&nothing, &mut |_| {}), Err(CheckError::Log(_))));
        assert!(!nothing.exists());
        fs::create_dir(&nothing).unwrap();
        assert!(checked(&nothing).0.is_err());
        assert_eq!(fs::read_dir(&nothing).unwrap().count(), 0);
    }

    #[test]
    fn a_repair_reports_its_losses_and_keeps_the_old_files() {
        let (_dir, path) = written();
        let segment = newest_segment_with(&path, 50);
        change(&segment, |bytes| {
            let at = memchr::memmem::find(bytes, &unit(50)).unwrap();
            bytes[at + 20] ^= 1;
        });
        let before = files(&path);
        let mut said = String::new();
        repair(&path, &mut |line| said += &format!("{line}\n")).unwrap();
        assert!(said.contains("lost: Lsn 50 to 80"), "{said}");
        assert!(said.ends_with("repaired: the journal ends with Lsn 49\n"), "{said}");
        let (verdict, said) = checked(&path);
        assert_eq!(verdict.unwrap(), Verdict::Good, "{said}");
        assert!(said.ends_with("good: all data up to Lsn 49\n"), "{said}");
        let backup =
            fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()).find(|path| path.is_dir()).unwrap();
        let copies = files(&backup);
        assert!(copies.len() >= 2);
        for (copy, bytes) in &copies {
            assert!(before[&path.join(copy.file_name().unwrap())] == *bytes);
        }
        // A mistaken repair is undone by restoring the copies and removing the files that the repair added.
        let added: Vec<_> = files(&path).into_keys().filter(|file| !before.contains_key(file)).collect();
        assert_eq!(added.len(), 1);
        let mut again = String::new();
        repair(&path, &mut |line| again += line).unwrap();
        assert_eq!(again, "the journal is not damaged: nothing was repaired");
    }

    #[test]
    fn a_damaged_snapshot_is_not_repaired() {
        let (_dir, path) = written();
        change(&path.join("snapshot-0000000000000028.snap"), |bytes| bytes[100] ^= 1);
        let before = files(&path);
        assert!(matches!(repair(&path, &mut |_| {}), Err(CheckError::Snapshot)));
        assert!(files(&path) == before);
    }
}
