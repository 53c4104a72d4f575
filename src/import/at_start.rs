//! At its first start in a Redis folder, a server without data of its own imports the data found there.
//!
//! The import runs in slices, like loading the server's own data, and other clients get replies in between. A thread
//! builds keys from RDB ([`RdbPieces`]), and they go directly to the engine ([`BulkLoad`], which also ensures that all
//! or nothing is saved). The commands of an append-only file go through the same checks as a client's ([`in_process`]).

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use super::error::ImportError;
use super::files::{Files, Names};
use super::in_process;
use super::load::{self, Commands, Opened};
use super::rdb_pieces::RdbPieces;
use super::report::{Options, Report};
use super::target::{Known, Target};
use crate::base::ahead::Ahead;
use crate::config::Config;
use crate::engine::Engine;
use crate::engine::persistence::bulk_load::BulkLoad;
use crate::engine::persistence::recovery::Step;
use crate::log::directory::Directory;
use crate::persist::saving::Progress;

/// Redis data found when the server starts.
pub(crate) struct AtStart {
    files: Files,
}

impl AtStart {
    /// Looks for Redis data in the folder of `config`, under the file names configured there.
    pub(crate) fn find(config: &Config) -> Result<Option<AtStart>, ImportError> {
        let Config { dbfilename, appenddirname, appendfilename, .. } = config;
        let names = Names { rdb: dbfilename.clone(), aof_dir: appenddirname.clone(), aof: appendfilename.clone() };
        Ok(Files::of_server(&config.dir, &names)?.map(|files| AtStart { files }))
    }

    /// Returns the file names for people to read.
    pub(crate) fn names(&self) -> String {
        let names: Vec<String> = self.files.paths().iter().map(|path| path.display().to_string()).collect();
        names.join(", ")
    }

    /// Begins to import all files into an empty engine and to save the result in an empty directory, if there is one.
    pub(crate) fn begin(
        &self,
        engine: &mut Engine,
        directory: Option<Arc<Directory>>,
    ) -> Result<Importing, ImportError> {
        Ok(Importing {
            bulk: BulkLoad::begin(engine, directory)?,
            files: self.files.paths().iter().cloned().collect(),
            reading: None,
            known: Known::default(),
            before: 0,
            began: Instant::now(),
            bytes: self.files.bytes(),
        })
    }
}

/// An import in progress.
pub(crate) struct Importing {
    bulk: BulkLoad,
    /// Files still to read after the current one.
    files: VecDeque<PathBuf>,
    reading: Option<Reading>,
    known: Known,
    /// Total size in bytes of the files before the current one.
    before: u64,
    began: Instant,
    /// Total size in bytes of all files.
    bytes: u64,
}

/// The current file.
enum Reading {
    Rdb(PathBuf, Ahead<RdbPieces>),
    Commands(Commands),
}

impl Importing {
    /// Imports one slice.
    pub(crate) fn step(&mut self, engine: &mut Engine) -> Result<Step, ImportError> {
        if self.bulk.is_behind()? {
            return Ok(Step::Wait);
        }
        self.reading = match self.reading.take() {
            Some(Reading::Rdb(path, pieces)) => Some(self.read_rdb(engine, path, pieces)?),
            Some(Reading::Commands(commands)) => self.apply(engine, commands)?.map(Reading::Commands),
            None => match self.files.pop_front() {
                Some(path) => Some(match load::open(&path)? {
                    Opened::Rdb(reader) => {
                        let pieces = RdbPieces::new(reader, *engine.ks.limits());
                        Reading::Rdb(path, engine.read_ahead(pieces)?)
                    }
                    Opened::Commands(commands) => Reading::Commands(commands),
                }),
                None => return Ok(if self.bulk.finish(engine)? { Step::Complete } else { Step::Wait }),
            },
        };
        Ok(Step::More)
    }

    /// Returns the import's progress.
    pub(crate) fn progress(&self) -> Progress {
        Progress { began: self.began, read: self.known.report.bytes, all: self.bytes, is_complete: false }
    }

    /// Returns the report of imported and omitted data.
    pub(crate) fn into_report(self) -> Report {
        self.known.report
    }

    /// Adds some of a file's keys. Returns the next state of reading.
    fn read_rdb(
        &mut self,
        engine: &mut Engine,
        path: PathBuf,
        mut pieces: Ahead<RdbPieces>,
    ) -> Result<Reading, ImportError> {
        let Some(mut piece) = pieces.next_piece() else {
            return Ok(Reading::Commands(Commands::behind(&path, pieces.into_source().into_reader())));
        };
        let file_bytes = self.bytes;
        let added = self.bulk.slice(engine, |slice| piece.add_to(slice, file_bytes));
        added.map_err(|stop| stop.named(|source| ImportError::File { path: path.clone(), source }))?;
        self.known.report.add(std::mem::take(&mut piece.report));
        self.known.report.bytes = self.before + piece.offset;
        pieces.give_back(piece);
        Ok(Reading::Rdb(path, pieces))
    }

    /// Applies some of a file's commands. Returns the commands if more may follow.
    fn apply(&mut self, engine: &mut Engine, mut commands: Commands) -> Result<Option<Commands>, ImportError> {
        let has_more = commands.has_more()?;
        if has_more {
            let target = Target::new(in_process::connect(engine), Options::default());
            let mut target = target.resume(std::mem::take(&mut self.known));
            commands.apply_read(&mut target)?;
            self.known = target.into_known();
            self.bulk.hand_over(engine);
        }
        self.known.report.bytes = self.before + commands.offset();
        if has_more {
            return Ok(Some(commands));
        }
        self.before = self.known.report.bytes;
        let may_be_torn = engine.server.config.aof_load_truncated;
        commands.end(&mut self.known.report, self.files.is_empty(), may_be_torn)?;
        Ok(None)
    }
}
