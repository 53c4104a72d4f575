//! Splits a stream of commands, from an append-only file or a primary, into whole units.
//!
//! Both sources contain the commands that a client would send, including SELECT, and MULTI and EXEC around
//! transactions. A unit is one command, or all commands between MULTI and EXEC, and is applied whole or not at all. An
//! append-only file may also contain timestamp lines (`#TS:1700000000`), and a primary sends PING to keep the
//! connection alive.

use std::io::{self, Read};

use super::error::ImportError;
use crate::base::excerpt;
use crate::base::num::parse_i64;
use crate::import::limits::{IMPORT_BATCH_BYTES, IMPORT_BATCH_COMMANDS, IMPORT_UNIT_MAX_BYTES};
use crate::rdb::limits::RDB_READ_BYTES;
use crate::resp::request::{Argv, Decoder, OwnedArgv, RequestLimits};

/// Far above anything a primary sends, because the primary limits its own clients the same way.
const LIMITS: RequestLimits = RequestLimits { bulk_bytes: IMPORT_UNIT_MAX_BYTES, unauthenticated: false };

/// A command and the database in which it runs.
pub(super) struct Command {
    pub(super) db: u64,
    pub(super) argv: OwnedArgv,
}

impl Command {
    /// Returns whether the command is called `name`, in lower case.
    pub(super) fn is(&self, name: &str) -> bool {
        self.argv.as_argv()[0].eq_ignore_ascii_case(name.as_bytes())
    }
}

/// The result of decoding the buffered bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Decoded {
    /// A command was read.
    Command,
    /// A command that changes no data; it is left out.
    Idle { name: String },
    /// The primary asks for this replica's offset.
    AckRequested,
    /// A command unknown to the target. It is left out, or reading stops here.
    Unknown { name: String, offset: u64 },
    /// More bytes are needed.
    Incomplete,
}

/// Whether a command of the stream is run, left out, or unknown to the target.
pub(super) enum Judgement {
    /// It runs.
    Runs,
    /// The target has the command, but it changes no data. The name is for the report.
    Idle(String),
    /// The target does not have it.
    Unknown(String),
}

/// See the module's header.
pub(super) struct Units {
    /// The source of the commands, for error messages.
    place: String,
    buffer: Vec<u8>,
    filled: usize,
    decoder: Decoder,
    /// Offset of the buffer in the stream.
    base: u64,
    db: u64,
    commands: Vec<Command>,
    /// Memory held by the commands, in bytes.
    bytes: usize,
    /// Offset at which the open transaction begins.
    open_since: Option<u64>,
    whole: Whole,
}

/// The end of the last whole unit.
#[derive(Clone, Copy, Debug)]
pub(super) struct Whole {
    /// Number of decoded commands in whole units, and their memory in bytes.
    commands: usize,
    bytes: usize,
    /// Offset of the next unit in the stream.
    pub(super) offset: u64,
    /// The database selected at that offset.
    pub(super) db: u64,
}

impl Units {
    /// Begins at `offset` of a stream, with database `db` selected.
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

    /// Returns the source of the commands.
    pub(super) fn place(&self) -> &str {
        &self.place
    }

    /// Returns the number of bytes of the stream decoded so far.
    pub(super) fn offset(&self) -> u64 {
        self.base + self.decoder.keep_from() as u64
    }

    /// Returns the end of the last whole unit.
    pub(super) fn whole(&self) -> Whole {
        self.whole
    }

    /// Reads more bytes. Returns their number; 0 at the end.
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

    /// Decodes one command, if a whole one is buffered. Commands that `judge` finds idle are left out, and with
    /// `skips_unknown` unknown commands are, too.
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
            // A person at a terminal may send commands as plain lines. In a file, such a line is a sign of damage.
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
            // Neither command changes anything.
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
                        // Commands decoded earlier can still be applied; this one blocks all later ones.
                        return Ok(decoded);
                    }
                }
            }
            if gives_up && self.open_since.take().is_some() {
                // The commands of a discarded transaction never ran.
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

    /// Returns the error for an unknown command that ends the import.
    pub(super) fn unknown(&self, name: String, offset: u64) -> ImportError {
        ImportError::Unknown { place: self.place.clone(), offset, name }
    }

    /// Returns whether enough whole units are decoded that they should be applied before more is read.
    pub(super) fn is_full(&self) -> bool {
        self.whole.bytes >= IMPORT_BATCH_BYTES || self.whole.commands >= IMPORT_BATCH_COMMANDS
    }

    /// Takes the whole units.
    pub(super) fn take_whole(&mut self) -> Vec<Command> {
        // The commands of a long transaction stay in place until its end has arrived.
        if self.whole.commands == 0 {
            return Vec::new();
        }
        let rest = self.commands.split_off(self.whole.commands);
        self.bytes -= self.whole.bytes;
        (self.whole.commands, self.whole.bytes) = (0, 0);
        std::mem::replace(&mut self.commands, rest)
    }

    /// Returns the offset at which an incomplete unit begins, if there is one.
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
        let text = "there is no such database".to_owned();
        ImportError::Command { place, command, text, state: "everything before it was applied" }
    }
}

/// Parses the database number of SELECT.
fn database(argv: Argv<'_>) -> Option<u64> {
    argv.get(1).and_then(parse_i64).and_then(|db| u64::try_from(db).ok())
}

/// Returns the beginning of a command for people to read.
pub(super) fn readable(argv: Argv<'_>) -> String {
    const ARGS: usize = 6;
    const BYTES: usize = 40;
    let words: Vec<String> = OwnedArgv::abridged(argv, ARGS, BYTES).as_argv().iter().map(excerpt::of_bytes).collect();
    words.join(" ")
}
