//! Feeds files to a target.

use std::fs::File;
use std::io::{Cursor, Read};
use std::path::{Path, PathBuf};

use super::commands::{Decoded, Units};
use super::error::ImportError;
use super::files::{Files, is_rdb};
use super::report::{Progress, Report};
use super::target::Target;
use crate::base::excerpt;
use crate::engine::persistence::bulk_load::Refused;
use crate::rdb::file::{FileError, KeyRecord, Reader, Record, TOKENS_NOTE};

/// Imports files into `target`. `print` receives progress reports.
pub(super) fn files(files: &Files, target: &mut Target<'_>, print: &mut dyn FnMut(&str)) -> Result<(), ImportError> {
    let mut progress = Progress::new(print, Some(files.bytes()));
    // RESTORE refuses existing keys, but commands would change them, and again on every run.
    let takes_commands = target.may_replace() || target.is_empty()?;
    for path in files.paths() {
        if !takes_commands && !is_rdb(path)? {
            return Err(ImportError::NotEmpty { peer: target.peer().to_owned() });
        }
    }
    for (index, path) in files.paths().iter().enumerate() {
        let before = target.report.bytes;
        let mut commands = match open(path)? {
            Opened::Commands(commands) => commands,
            Opened::Rdb(mut reader) => {
                let named = |source| ImportError::File { path: path.clone(), source };
                rdb(&mut reader, target, &mut progress, before).map_err(|stop| stop.named(named))?;
                Commands::behind(path, reader)
            }
        };
        target.wait_for_replies()?;
        while commands.has_more()? {
            if !takes_commands {
                return Err(ImportError::NotEmpty { peer: target.peer().to_owned() });
            }
            commands.apply_read(target)?;
            target.report.bytes = before + commands.offset();
            progress.report_if_due(&target.report);
        }
        commands.end(&mut target.report, index + 1 == files.paths().len(), true)?;
    }
    target.wait_for_replies()?;
    progress.say(&format!("read all in {} ms", progress.elapsed().as_millis()));
    Ok(())
}

/// An opened file.
pub(super) enum Opened {
    /// The file begins as RDB and may continue with commands.
    Rdb(Reader<File>),
    /// The file contains only commands.
    Commands(Commands),
}

/// Opens a file.
pub(super) fn open(path: &Path) -> Result<Opened, ImportError> {
    let in_file = |source| ImportError::File { path: path.to_owned(), source };
    let file = File::open(path).map_err(|source| in_file(FileError::Io { offset: 0, source }))?;
    Ok(if is_rdb(path)? {
        Opened::Rdb(Reader::new(file).map_err(in_file)?)
    } else {
        Opened::Commands(Commands::new(path, 0, Box::new(file)))
    })
}

/// The commands of a file.
pub(super) struct Commands {
    path: PathBuf,
    units: Units,
    rest: Box<dyn Read>,
}

impl Commands {
    fn new(path: &Path, offset: u64, rest: Box<dyn Read>) -> Commands {
        Commands { path: path.to_owned(), units: Units::new(path.display().to_string(), offset, 0), rest }
    }

    /// Returns the commands that follow the RDB part.
    pub(super) fn behind(path: &Path, reader: Reader<File>) -> Commands {
        let offset = reader.offset();
        let (ahead, file) = reader.into_rest();
        Commands::new(path, offset, Box::new(Cursor::new(ahead).chain(file)))
    }

    /// Returns the offset in the file up to which commands were decoded.
    pub(super) fn offset(&self) -> u64 {
        self.units.offset()
    }

    /// Reads more bytes; returns false at the end.
    pub(super) fn has_more(&mut self) -> Result<bool, ImportError> {
        let read = self.units.fill(&mut *self.rest);
        let offset = self.units.offset();
        read.map(|bytes| bytes > 0).map_err(|source| self.in_file(FileError::Io { offset, source }))
    }

    /// Applies the decoded commands.
    pub(super) fn apply_read(&mut self, target: &mut Target<'_>) -> Result<(), ImportError> {
        loop {
            let decoded = target.next(&mut self.units)?;
            if !matches!(decoded, Decoded::Command | Decoded::AckRequested) || self.units.is_full() {
                target.apply(&mut self.units, None)?;
            }
            match decoded {
                Decoded::Incomplete => return Ok(()),
                Decoded::Unknown { name, offset } => return Err(self.units.unknown(name, offset)),
                Decoded::Command | Decoded::Idle { .. } | Decoded::AckRequested => {}
            }
        }
    }

    /// Ends the file. With `may_be_torn`, an incomplete end of the last file is dropped.
    pub(super) fn end(&self, report: &mut Report, is_last: bool, may_be_torn: bool) -> Result<(), ImportError> {
        match self.units.torn() {
            None => Ok(()),
            Some(offset) if is_last && !may_be_torn => Err(ImportError::Torn { path: self.path.clone(), offset }),
            // As in Redis: the server was killed while writing, and an incomplete last command means nothing.
            Some(offset) if is_last => {
                report.leave_out(format!(
                    "the end of {} from offset {offset} on: a command or transaction that was not written to its end",
                    self.path.display()
                ));
                Ok(())
            }
            Some(offset) => Err(self.in_file(FileError::CutOff { offset })),
        }
    }

    fn in_file(&self, source: FileError) -> ImportError {
        ImportError::File { path: self.path.clone(), source }
    }
}

/// Reasons why an RDB file was not imported to its end.
pub(super) enum Stop {
    File(FileError),
    Import(ImportError),
}

impl From<Refused> for Stop {
    fn from(Refused { db, name, why }: Refused) -> Stop {
        let what = format!("the key \"{}\" of database {db}", excerpt::of_bytes(&name));
        Stop::Import(ImportError::Refused { what, text: why.to_string() })
    }
}

impl Stop {
    /// Adds the name of the file to the error.
    pub(super) fn named(self, name: impl FnOnce(FileError) -> ImportError) -> ImportError {
        match self {
            Stop::File(error) => name(error),
            Stop::Import(error) => error,
        }
    }
}

/// Imports everything from an RDB reader. Returns the database in which a stream after the file begins.
pub(super) fn rdb<R: Read>(
    reader: &mut Reader<R>,
    target: &mut Target<'_>,
    progress: &mut Progress<'_>,
    before: u64,
) -> Result<u64, Stop> {
    let mut stream_db = 0;
    loop {
        target.report.bytes = before + reader.offset();
        progress.report_if_due(&target.report);
        match next(reader, target)? {
            Next::Some => {}
            Next::StreamDb(db) => stream_db = db,
            Next::End => break,
        }
    }
    target.report.bytes = before + reader.offset();
    Ok(stream_db)
}

/// The destination for the keys and libraries of an RDB file.
pub(super) trait Destination {
    /// Receives the number of keys that the file announces for a database.
    fn expect(&mut self, _db: u64, _keys: u64) {}

    /// Receives the last fencing token that the source has issued.
    fn tokens(&mut self, last: u64) -> Result<(), Stop>;

    /// Receives a key.
    fn key(&mut self, record: &KeyRecord<'_>) -> Result<(), Stop>;

    /// Receives a library of functions.
    fn library(&mut self, text: &[u8]) -> Result<(), Stop>;

    /// Returns the report on the import so far.
    fn report(&mut self) -> &mut Report;
}

impl Destination for Target<'_> {
    fn tokens(&mut self, last: u64) -> Result<(), Stop> {
        self.raise_tokens(last).map_err(Stop::Import)
    }

    fn key(&mut self, record: &KeyRecord<'_>) -> Result<(), Stop> {
        Target::key(self, record).map_err(Stop::Import)
    }

    fn library(&mut self, text: &[u8]) -> Result<(), Stop> {
        Target::library(self, text).map_err(Stop::Import)
    }

    fn report(&mut self) -> &mut Report {
        &mut self.report
    }
}

/// The result of reading one item of an RDB file.
pub(super) enum Next {
    /// An item was read and passed to the destination.
    Some,
    /// The database in which a stream after the file begins.
    StreamDb(u64),
    /// The end of the file.
    End,
}

/// Reads the next item and passes it to the destination.
pub(super) fn next<R: Read>(reader: &mut Reader<R>, to: &mut impl Destination) -> Result<Next, Stop> {
    let number = |text: &[u8]| std::str::from_utf8(text).ok().and_then(|text| text.parse().ok()).unwrap_or(0);
    match reader.next_record().map_err(Stop::File)? {
        Record::Aux { name, text } if *name == *b"repl-stream-db" => return Ok(Next::StreamDb(number(&text))),
        Record::Aux { name, text } if *name == *TOKENS_NOTE.as_bytes() => to.tokens(number(&text))?,
        Record::Aux { .. } => {}
        Record::Keys { db, keys } => to.expect(db, keys),
        Record::Library(text) => to.library(&text)?,
        Record::ModuleAux { module } => {
            to.report().leave_out(format!("data that the module type {module} keeps beside the keys"));
        }
        Record::Key(record) if record.is_empty() => to.report().leave_out("an empty key".to_owned()),
        Record::Key(record) => to.key(&record)?,
        Record::End => return Ok(Next::End),
    }
    Ok(Next::Some)
}
