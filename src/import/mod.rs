//! Moving in from Redis or Valkey: files, append-only folders, and running servers.
//!
//! The import is a client. It reads a [`Source`], and tells a [`Target`] what to do in plain commands: RESTORE for each key of
//! a file or snapshot, FUNCTION LOAD for each library, and the commands of an append-only file or of a replication stream as
//! they are. So whatever the server promises for commands (the log, the limits, all or nothing) holds for what is imported,
//! and there is one way in. At start a server imports into itself through the same door, by a connection without a socket
//! ([`at_start`]).
//!
//! Nothing is overwritten unless that was asked for. Commands are applied in whole transactions, never a part of one.
//!
//! [`replica`] has what is particular to a running server.

pub(crate) mod at_start;
mod commands;
mod files;
mod replica;
mod target;

use std::collections::BTreeMap;
use std::fmt;
use std::fs::File;
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use crate::base::limits::{IMPORT_PATIENCE, IMPORT_TELL_EVERY};
use crate::client::{ClientError, Connection};
use crate::rdb::file::{FileError, Reader, Record};
use crate::resp::request::ProtocolError;
use commands::{Apart, Units};
use files::Files;
use target::Target;

/// What an import is asked for.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// Keys and libraries that the target has may be overwritten.
    pub replace: bool,
    /// Commands that the target does not know are left out, and told.
    pub skip_unknown: bool,
}

/// Why an import ended early.
#[derive(Debug, thiserror::Error)]
pub enum ImportError {
    /// A server did not answer, or refused.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// There is nothing to import, or too much to choose from.
    #[error("{}: {what}", path.display())]
    Files {
        /// What was looked at.
        path: PathBuf,
        /// What is wrong with it.
        what: String,
    },
    /// A file can't be read.
    #[error("{}: {source}", path.display())]
    File {
        /// Which one.
        path: PathBuf,
        /// What is wrong with it.
        source: FileError,
    },
    /// The snapshot that a server sends can't be read.
    #[error("the snapshot of {peer}: {source}")]
    Snapshot {
        /// Who sends it.
        peer: String,
        /// What is wrong with it.
        source: FileError,
    },
    /// Commands can't be read on.
    #[error("{place}, offset {offset}: {source}")]
    Commands {
        /// The file, or who sends them.
        place: String,
        /// Where the first one begins that can't be read.
        offset: u64,
        /// What is wrong with it.
        source: ProtocolError,
    },
    /// The target has a key of this name.
    #[error(
        "the target has a key \"{}\" in database {db} already; what was imported before it stays. To overwrite keys of the same \
         name, add --replace",
        key.escape_ascii()
    )]
    Exists {
        /// The name.
        key: Vec<u8>,
        /// The number of its database.
        db: u64,
    },
    /// The target does not take a key or a library.
    #[error("the target refused {what}: {text}")]
    Refused {
        /// What, with its name.
        what: String,
        /// Its answer.
        text: String,
    },
    /// A command that the target does not know. Nothing of its transaction was applied.
    #[error(
        "{place}, offset {offset}: the command {name} is not known to the target; all before it was applied. To leave out such \
         commands, add --skip-unknown"
    )]
    Unknown {
        /// The file, or who sends it.
        place: String,
        /// Where it stands.
        offset: u64,
        /// Its name.
        name: String,
    },
    /// A command that the target refused.
    #[error("{place}: the target refused \"{command}\": {text}; {state}")]
    Command {
        /// The file, or who sends it.
        place: String,
        /// Its beginning.
        command: String,
        /// The target's answer.
        text: String,
        /// What became of the others.
        state: &'static str,
    },
    /// A transaction without an end.
    #[error("{place}: a transaction at offset {offset} takes more than {max} bytes", max = crate::base::limits::IMPORT_UNIT_MAX_BYTES)]
    TooLong {
        /// The file, or who sends it.
        place: String,
        /// Where it begins.
        offset: u64,
    },
    /// A running server can't be followed.
    #[error("{peer}: {what}")]
    Follow {
        /// Which one.
        peer: String,
        /// Why.
        what: String,
    },
}

/// What was imported, and what was not.
#[derive(Debug, Default)]
pub struct Report {
    /// Keys.
    pub keys: u64,
    /// Keys whose time had passed, which nobody misses.
    pub expired: u64,
    /// Libraries of functions.
    pub libraries: u64,
    /// Commands of append-only files or of a stream.
    pub commands: u64,
    /// Bytes that were read.
    pub bytes: u64,
    /// What was left out, and how often.
    pub left_out: BTreeMap<String, u64>,
}

impl Report {
    fn leave_out(&mut self, what: String) {
        *self.left_out.entry(what).or_default() += 1;
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} keys, {} libraries, {} commands", self.keys, self.libraries, self.commands)?;
        if self.expired > 0 {
            write!(f, "; {} keys had expired", self.expired)?;
        }
        self.left_out.iter().try_for_each(|(what, times)| write!(f, "\nleft out {times} times: {what}"))
    }
}

/// Tells how far a long import is, now and then.
struct Progress<'t> {
    tell: &'t mut dyn FnMut(&str),
    begun: Instant,
    told: Instant,
    /// Bytes that there are to read, where that is known.
    total: Option<u64>,
}

impl<'t> Progress<'t> {
    fn new(tell: &'t mut dyn FnMut(&str), total: Option<u64>) -> Progress<'t> {
        Progress { tell, begun: Instant::now(), told: Instant::now(), total }
    }

    fn look(&mut self, report: &Report) {
        if self.told.elapsed() < IMPORT_TELL_EVERY {
            return;
        }
        self.told = Instant::now();
        let (megabytes, seconds) = (report.bytes >> 20, self.begun.elapsed().as_secs());
        let of = self.total.map_or(String::new(), |total| format!(" of {}", total >> 20));
        let (keys, commands) = (report.keys, report.commands);
        (self.tell)(&format!("{keys} keys, {commands} commands, {megabytes}{of} MB in {seconds} s"));
    }

    fn say(&mut self, text: &str) {
        (self.tell)(text);
    }

    fn elapsed(&self) -> Duration {
        self.begun.elapsed()
    }
}

/// Imports `source`, a path or the address of a server, into the server at `into`. `tell` hears how far it is. A server is
/// followed until its operator sets `stop`, if one is given; else no more than its snapshot is imported.
pub fn import(
    source: &str,
    into: &str,
    options: Options,
    stop: Option<&AtomicBool>,
    tell: &mut dyn FnMut(&str),
) -> Result<Report, ImportError> {
    let mut target = Target::new(Connection::open(into, IMPORT_PATIENCE)?, options);
    let is_address = source.contains("://");
    match stop {
        Some(stop) if is_address => replica::follow(source, &mut target, stop, tell)?,
        Some(_) => {
            let what = "only a running server can be followed: redis://HOST[:PORT]".to_owned();
            return Err(ImportError::Files { path: source.into(), what });
        }
        None if is_address => replica::snapshot(source, &mut target, tell)?,
        None => files(&Files::at(Path::new(source))?, &mut target, tell)?,
    }
    Ok(target.report)
}

/// Imports files into `target`. `tell` hears how far it is.
fn files(files: &Files, target: &mut Target<'_>, tell: &mut dyn FnMut(&str)) -> Result<(), ImportError> {
    let mut progress = Progress::new(tell, Some(files.bytes()));
    for (index, path) in files.paths().iter().enumerate() {
        let is_last = index + 1 == files.paths().len();
        one_file(path, is_last, target, &mut progress)?;
    }
    target.settle()?;
    progress.say(&format!("read all in {} ms", progress.elapsed().as_millis()));
    Ok(())
}

/// Imports an RDB file, an append-only file, or one that begins as the first and goes on as the second.
fn one_file(
    path: &Path,
    is_last: bool,
    target: &mut Target<'_>,
    progress: &mut Progress<'_>,
) -> Result<(), ImportError> {
    let in_file = |source| ImportError::File { path: path.to_owned(), source };
    let unreadable = |source, offset| in_file(FileError::Io { offset, source });
    let mut file = File::open(path).map_err(|error| unreadable(error, 0))?;
    let before = target.report.bytes;
    let mut units = Units::new(path.display().to_string(), 0, 0);
    let mut rest: Box<dyn Read> = if files::is_rdb(path)? {
        let mut reader = Reader::new(file).map_err(in_file)?;
        rdb(&mut reader, target, progress, before).map_err(|stop| stop.named(in_file))?;
        let end = reader.offset();
        let (ahead, file) = reader.into_rest();
        units = Units::new(path.display().to_string(), end, 0);
        Box::new(std::io::Cursor::new(ahead).chain(file))
    } else {
        Box::new(std::io::Seek::rewind(&mut file).map(|()| file).map_err(|error| unreadable(error, 0))?)
    };
    target.settle()?;
    loop {
        let read = units.fill(&mut *rest).map_err(|error| unreadable(error, units.offset()))?;
        while units.next(target)? != Apart::Hungry {
            if units.is_full() {
                target.apply(&mut units, None)?;
            }
        }
        target.apply(&mut units, None)?;
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
enum Stop {
    File(FileError),
    Import(ImportError),
}

impl Stop {
    /// Says which file it is.
    fn named(self, name: impl FnOnce(FileError) -> ImportError) -> ImportError {
        match self {
            Stop::File(error) => name(error),
            Stop::Import(error) => error,
        }
    }
}

/// Imports what a reader reads. Answers the database that a stream behind it begins in.
fn rdb<R: Read>(
    reader: &mut Reader<R>,
    target: &mut Target<'_>,
    progress: &mut Progress<'_>,
    before: u64,
) -> Result<u64, Stop> {
    let mut stream_db = 0;
    loop {
        target.report.bytes = before + reader.offset();
        progress.look(&target.report);
        match reader.next().map_err(Stop::File)? {
            Record::Aux { name, text } if *name == *b"repl-stream-db" => {
                stream_db = std::str::from_utf8(&text).ok().and_then(|text| text.parse().ok()).unwrap_or(0);
            }
            Record::Aux { .. } | Record::Keys(_) => {}
            Record::Library(text) => target.library(&text).map_err(Stop::Import)?,
            Record::ModuleAux { module } => {
                target.report.leave_out(format!("what the module type {module} keeps beside the keys"));
            }
            Record::Key(record) => target.key(&record).map_err(Stop::Import)?,
            Record::End => {
                target.report.bytes = before + reader.offset();
                return Ok(stream_db);
            }
        }
    }
}

/// Whether a read only came too late.
fn is_timeout(error: &std::io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut)
}
