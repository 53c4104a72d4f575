//! From files to a target.

use std::fs::File;
use std::io::{Cursor, Read};
use std::path::Path;

use super::commands::{Decoded, Units};
use super::error::ImportError;
use super::files::{Files, is_rdb};
use super::report::Progress;
use super::target::Target;
use crate::rdb::file::{FileError, Reader, Record};

/// Imports files into `target`. `tell` hears how far it is.
pub(super) fn files(files: &Files, target: &mut Target<'_>, tell: &mut dyn FnMut(&str)) -> Result<(), ImportError> {
    let mut progress = Progress::new(tell, Some(files.bytes()));
    // RESTORE refuses what is there. Commands would change it, and do so again each time.
    let takes_commands = target.may_replace() || target.is_empty()?;
    for path in files.paths() {
        if !takes_commands && !is_rdb(path)? {
            return Err(ImportError::NotEmpty { peer: target.peer().to_owned() });
        }
    }
    for (index, path) in files.paths().iter().enumerate() {
        let is_last = index + 1 == files.paths().len();
        one_file(path, is_last, takes_commands, target, &mut progress)?;
    }
    target.settle()?;
    progress.say(&format!("read all in {} ms", progress.elapsed().as_millis()));
    Ok(())
}

/// Imports an RDB file, an append-only file, or one that begins as the first and goes on as the second.
fn one_file(
    path: &Path,
    is_last: bool,
    takes_commands: bool,
    target: &mut Target<'_>,
    progress: &mut Progress<'_>,
) -> Result<(), ImportError> {
    let in_file = |source| ImportError::File { path: path.to_owned(), source };
    let unreadable = |source, offset| in_file(FileError::Io { offset, source });
    let file = File::open(path).map_err(|error| unreadable(error, 0))?;
    let before = target.report.bytes;
    let mut units = Units::new(path.display().to_string(), 0, 0);
    let mut rest: Box<dyn Read> = if is_rdb(path)? {
        let mut reader = Reader::new(file).map_err(in_file)?;
        rdb(&mut reader, target, progress, before).map_err(|stop| stop.named(in_file))?;
        let end = reader.offset();
        let (ahead, file) = reader.into_rest();
        units = Units::new(path.display().to_string(), end, 0);
        Box::new(Cursor::new(ahead).chain(file))
    } else {
        Box::new(file)
    };
    target.settle()?;
    loop {
        let read = units.fill(&mut *rest).map_err(|error| unreadable(error, units.offset()))?;
        if read > 0 && !takes_commands {
            return Err(ImportError::NotEmpty { peer: target.peer().to_owned() });
        }
        loop {
            let decoded = target.next(&mut units)?;
            if !matches!(decoded, Decoded::Command | Decoded::AckRequested) || units.is_full() {
                target.apply(&mut units, None)?;
            }
            match decoded {
                Decoded::Incomplete => break,
                Decoded::Unknown { name, offset } => return Err(units.unknown(name, offset)),
                Decoded::Command | Decoded::AckRequested => {}
            }
        }
        target.report.bytes = before + units.offset();
        progress.look(&target.report);
        if read == 0 {
            break;
        }
    }
    match units.torn() {
        None => Ok(()),
        // As Redis does: the server was killed while it wrote, and what it wrote of its last command means nothing.
        Some(offset) if is_last => {
            target.report.leave_out(format!(
                "the end of {} from offset {offset} on: a command or transaction that was not written to its end",
                path.display()
            ));
            Ok(())
        }
        Some(offset) => Err(in_file(FileError::CutOff { offset })),
    }
}

/// Why an RDB file was not imported to its end.
pub(super) enum Stop {
    File(FileError),
    Import(ImportError),
}

impl Stop {
    /// Says which file it is.
    pub(super) fn named(self, name: impl FnOnce(FileError) -> ImportError) -> ImportError {
        match self {
            Stop::File(error) => name(error),
            Stop::Import(error) => error,
        }
    }
}

/// Imports what a reader reads. Answers the database that a stream behind it begins in.
pub(super) fn rdb<R: Read>(
    reader: &mut Reader<R>,
    target: &mut Target<'_>,
    progress: &mut Progress<'_>,
    before: u64,
) -> Result<u64, Stop> {
    let mut stream_db = 0;
    loop {
        target.report.bytes = before + reader.offset();
        progress.look(&target.report);
        match reader.next_record().map_err(Stop::File)? {
            Record::Aux { name, text } if *name == *b"repl-stream-db" => {
                stream_db = std::str::from_utf8(&text).ok().and_then(|text| text.parse().ok()).unwrap_or(0);
            }
            Record::Aux { .. } | Record::Keys(_) => {}
            Record::Library(text) => target.library(&text).map_err(Stop::Import)?,
            Record::ModuleAux { module } => {
                target.report.leave_out(format!("what the module type {module} keeps beside the keys"));
            }
            Record::Key(record) if record.is_empty() => target.report.leave_out("an empty key".to_owned()),
            Record::Key(record) => target.key(&record).map_err(Stop::Import)?,
            Record::End => {
                target.report.bytes = before + reader.offset();
                return Ok(stream_db);
            }
        }
    }
}
