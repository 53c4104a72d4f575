//! Streams of commands, of an append-only file or from a primary, taken apart into whole units.
//!
//! Both are what a client would send: commands, among them SELECT, and MULTI and EXEC around what belongs together. A unit is one
//! command, or all between MULTI and EXEC; it is applied whole or not at all. An append-only file may have lines between them
//! that tell the time (`#TS:1700000000`), and a primary sends PING so that the line is not silent.

use std::io::{self, Read};

use super::error::ImportError;
use crate::base::excerpt;
use crate::base::limits::{IMPORT_BATCH_BYTES, IMPORT_BATCH_COMMANDS, IMPORT_UNIT_MAX_BYTES, RDB_READ_BYTES};
use crate::base::num::parse_i64;
use crate::resp::request::{Argv, Decoder, OwnedArgv, RequestLimits};

/// Far above what a primary sends: it has the same limit on what it was sent.
const LIMITS: RequestLimits = RequestLimits { bulk_bytes: IMPORT_UNIT_MAX_BYTES, unauthenticated: false };

/// A command, with the database in which it runs.
pub(super) struct Command {
    pub(super) db: u64,
    pub(super) argv: OwnedArgv,
}

impl Command {
    /// Whether it is called `name`, in small letters.
    pub(super) fn is(&self, name: &str) -> bool {
        self.argv.as_argv()[0].eq_ignore_ascii_case(name.as_bytes())
    }
}

/// What became of the bytes in hand.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Decoded {
    /// A command was read.
    Command,
    /// A command that changes no data: it is left out.
    Idle { name: String },
    /// The primary asks how far this replica is.
    AckRequested,
    /// A command that the target does not know. It is left out, or nothing behind it may be read.
    Unknown { name: String, offset: u64 },
    /// More bytes are needed.
    Incomplete,
}

/// Whether a command of the stream is run, left out, or not known to the target.
pub(super) enum Judgement {
    /// It runs.
    Runs,
    /// The target has it, and it changes no data. By this name it is told.
    Idle(String),
    /// The target does not have it.
    Unknown(String),
}

/// See the module's header.
pub(super) struct Units {
    /// Where the commands come from, as errors tell it.
    place: String,
    buffer: Vec<u8>,
    filled: usize,
    decoder: Decoder,
    /// Where the buffer begins in the stream.
    base: u64,
    db: u64,
    commands: Vec<Command>,
    /// What they take in memory.
    bytes: usize,
    /// Where the transaction in hand begins.
    open_since: Option<u64>,
    whole: Whole,
}

/// How far whole units go.
#[derive(Clone, Copy, Debug)]
pub(super) struct Whole {
    /// How many of the commands in hand they have, and what these take in memory.
    commands: usize,
    bytes: usize,
    /// Where the next one begins in the stream.
    pub(super) offset: u64,
    /// The database at that place.
    pub(super) db: u64,
}

impl Units {
    /// Begins at `offset` of a stream, in a database.
    pub(super) fn new(place: String, offset: u64, db: u64) -> Units {
        Units {
            place,
            buffer: vec![0; RDB_READ_BYTES],
            filled: 0,
            decoder: Decoder::new(),
            base: offset,
            db,
            commands: Vec::new(),
            bytes: 0,
            open_since: None,
            whole: Whole { commands: 0, bytes: 0, offset, db },
        }
    }

    /// Where the commands come from.
    pub(super) fn place(&self) -> &str {
        &self.place
    }

    /// Bytes of the stream that were read as commands.
    pub(super) fn offset(&self) -> u64 {
        self.base + self.decoder.keep_from() as u64
    }

    /// How far whole units go.
    pub(super) fn whole(&self) -> Whole {
        self.whole
    }

    /// Reads some more. Answers how many bytes came; 0 at the end.
    pub(super) fn fill(&mut self, input: &mut dyn Read) -> io::Result<usize> {
        let dropped = self.decoder.keep_from();
        self.buffer.copy_within(dropped..self.filled, 0);
        self.decoder.rebase();
        (self.base, self.filled) = (self.base + dropped as u64, self.filled - dropped);
        if self.buffer.len() - self.filled < RDB_READ_BYTES / 2 {
            self.buffer.resize(2 * self.buffer.len(), 0);
        }
        loop {
            match input.read(&mut self.buffer[self.filled..]) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                read => {
                    self.filled += *read.as_ref().unwrap_or(&0);
                    return read;
                }
            }
        }
    }

    /// Reads one command, if there is a whole one. What `judge` finds to be idle is left out. `skips_unknown`: so is one that is not
    /// known.
    pub(super) fn next(
        &mut self,
        judge: impl FnOnce(Argv<'_>) -> Judgement,
        skips_unknown: bool,
    ) -> Result<Decoded, ImportError> {
        let begins_at = self.offset();
        let buffer = &self.buffer[..self.filled];
        let is_whole = self.decoder.decode(buffer, &LIMITS);
        let is_whole = is_whole.map_err(|source| ImportError::Commands {
            place: self.place.clone(),
            offset: begins_at,
            source,
        })?;
        if !is_whole {
            let unread = &buffer[self.decoder.keep_from()..];
            if unread.first().is_some_and(|first| !matches!(first, b'*' | b'#')) {
                return Err(self.no_command(self.offset()));
            }
            let is_too_long = unread.len() > IMPORT_UNIT_MAX_BYTES;
            return if is_too_long { Err(self.too_long(begins_at)) } else { Ok(Decoded::Incomplete) };
        }
        let argv = self.decoder.argv(buffer);
        let is_note = self.decoder.is_inline() && argv[0].starts_with(b"#");
        if self.decoder.is_inline() && !is_note {
            // A person at a terminal writes commands as lines. In a file they are what damage looks like.
            return Err(self.no_command(begins_at));
        }
        let is = |name: &str| argv[0].eq_ignore_ascii_case(name.as_bytes());
        let mut decoded = Decoded::Command;
        if is("multi") {
            self.open_since = Some(begins_at);
        } else if is("exec") {
            self.open_since = None;
        } else if is("select") {
            self.db = database(argv).ok_or_else(|| self.strange(argv, begins_at))?;
        } else if is("replconf") {
            decoded = Decoded::AckRequested;
        } else if is("ping") || is_note {
            // Neither changes anything.
        } else {
            let gives_up = is("discard") || is("reset");
            match judge(argv) {
                Judgement::Runs => {
                    let command = Command { db: self.db, argv: OwnedArgv::from_argv(argv) };
                    self.bytes += size_of::<Command>() + command.argv.bytes();
                    self.commands.push(command);
                }
                Judgement::Idle(name) => decoded = Decoded::Idle { name },
                Judgement::Unknown(name) => {
                    decoded = Decoded::Unknown { name, offset: begins_at };
                    if !skips_unknown {
                        // What was read before it can still be applied; this one stands in the way of all that follows.
                        return Ok(decoded);
                    }
                }
            }
            if gives_up && self.open_since.take().is_some() {
                // What was in its transaction never ran.
                self.commands.truncate(self.whole.commands);
                self.bytes = self.whole.bytes;
            }
        }
        if self.bytes - self.whole.bytes > IMPORT_UNIT_MAX_BYTES {
            return Err(self.too_long(self.open_since.unwrap_or(begins_at)));
        }
        if self.open_since.is_none() {
            let (commands, offset) = (self.commands.len(), self.offset());
            self.whole = Whole { commands, bytes: self.bytes, offset, db: self.db };
        }
        Ok(decoded)
    }

    /// The error that one of these commands ends an import with.
    pub(super) fn unknown(&self, name: String, offset: u64) -> ImportError {
        ImportError::Unknown { place: self.place.clone(), offset, name }
    }

    /// Whether there are so many whole units that they should be applied before more are read.
    pub(super) fn is_full(&self) -> bool {
        self.whole.bytes >= IMPORT_BATCH_BYTES || self.whole.commands >= IMPORT_BATCH_COMMANDS
    }

    /// Takes the whole units.
    pub(super) fn take_whole(&mut self) -> Vec<Command> {
        // What belongs to a long transaction stays where it is until its end has come.
        if self.whole.commands == 0 {
            return Vec::new();
        }
        let rest = self.commands.split_off(self.whole.commands);
        self.bytes -= self.whole.bytes;
        (self.whole.commands, self.whole.bytes) = (0, 0);
        std::mem::replace(&mut self.commands, rest)
    }

    /// Where what is not whole begins, if there is any.
    pub(super) fn torn(&self) -> Option<u64> {
        let is_whole = self.open_since.is_none() && self.decoder.keep_from() == self.filled;
        (!is_whole).then_some(self.whole.offset)
    }

    fn no_command(&self, offset: u64) -> ImportError {
        ImportError::NoCommand { place: self.place.clone(), offset }
    }

    fn too_long(&self, offset: u64) -> ImportError {
        ImportError::TooLong { place: self.place.clone(), offset }
    }

    fn strange(&self, argv: Argv<'_>, offset: u64) -> ImportError {
        let (command, place) = (readable(argv), format!("{}, offset {offset}", self.place));
        let text = "no database is called that".to_owned();
        ImportError::Command { place, command, text, state: "all before it was applied" }
    }
}

/// The number that SELECT names.
fn database(argv: Argv<'_>) -> Option<u64> {
    argv.get(1).and_then(parse_i64).and_then(|db| u64::try_from(db).ok())
}

/// The beginning of a command, for people.
pub(super) fn readable(argv: Argv<'_>) -> String {
    const ARGS: usize = 6;
    const BYTES: usize = 40;
    let words: Vec<String> = OwnedArgv::abridged(argv, ARGS, BYTES).as_argv().iter().map(excerpt::of_bytes).collect();
    words.join(" ")
}
