//! The server that is imported into, seen from the import: keys by RESTORE, many under way at once; commands in transactions.

use std::collections::{HashSet, VecDeque};

use bytes::BytesMut;
use redis_protocol::resp2::types::BytesFrame;

use super::commands::{Apart, Command, Units, Whole, readable};
use super::error::ImportError;
use super::report::{Options, Report};
use crate::base::limits::{IMPORT_WINDOW_BYTES, SCRATCH_KEEP_BYTES};
use crate::client::{Connection, put_command};
use crate::rdb::file::KeyRecord;

/// The key that says, while a server is followed, how far. It is changed in the same transaction as the data, so that an import
/// that begins again knows exactly what was applied.
pub(super) const MARK: &[u8] = b"tidegate:import";

/// What a reply that is still to come answers.
enum Sent {
    Select(u64),
    Key { db: u64, key: Vec<u8> },
    Library,
}

/// See the module's header.
pub(super) struct Target<'s> {
    connection: Connection<'s>,
    options: Options,
    /// What was and was not imported.
    pub(super) report: Report,
    /// Requests that are not sent yet, and what they ask; what was asked before and is not answered yet.
    request: BytesMut,
    asked: Vec<Sent>,
    under_way: VecDeque<Vec<Sent>>,
    /// The database that the connection is in once all that was asked is done.
    db: u64,
    payload: Vec<u8>,
    /// The commands that the target has, in small letters; empty until they are needed.
    commands: HashSet<Vec<u8>>,
}

/// A place in the stream of a primary.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Mark {
    /// The address of the primary, without a password.
    pub(super) source: String,
    /// The name of its history.
    pub(super) id: String,
    /// Bytes of that history that were applied.
    pub(super) offset: u64,
    /// The database in which it goes on.
    pub(super) db: u64,
    /// Whether the snapshot before the stream was applied to its end.
    pub(super) has_snapshot: bool,
}

impl<'s> Target<'s> {
    /// Imports through a connection that is in database 0. As long as it lives nothing expires there: what comes happened in the
    /// past, and a key whose deadline is over by now may be given a later one by the next command. What has expired at the
    /// source its own DEL removes, or the target once the import ends.
    pub(super) fn new(mut connection: Connection<'s>, options: Options) -> Result<Target<'s>, ImportError> {
        connection.call(&[b"CLIENT", b"IMPORT-SOURCE", b"ON"])?;
        Ok(Target {
            connection,
            options,
            report: Report::default(),
            request: BytesMut::new(),
            asked: Vec::new(),
            under_way: VecDeque::new(),
            db: 0,
            payload: Vec::new(),
            commands: HashSet::new(),
        })
    }

    /// Who it is.
    pub(super) fn peer(&self) -> &str {
        self.connection.peer()
    }

    /// Whether keys may be overwritten.
    pub(super) fn may_replace(&self) -> bool {
        self.options.replace
    }

    /// Restores a key. Errors of earlier ones may come to light here.
    pub(super) fn key(&mut self, record: &KeyRecord<'_>) -> Result<(), ImportError> {
        self.select(record.db);
        record.payload(&mut self.payload);
        let (mut deadline, mut idle) = (itoa::Buffer::new(), itoa::Buffer::new());
        let mut words: Vec<&[u8]> = vec![b"RESTORE", &record.key];
        match record.expires_at_ms {
            Some(at_ms) => words.extend([deadline.format(at_ms).as_bytes(), &self.payload, b"ABSTTL"]),
            None => words.extend([&b"0"[..], &self.payload]),
        }
        if let Some(seconds) = record.idle_s {
            words.extend([&b"IDLETIME"[..], idle.format(seconds).as_bytes()]);
        }
        if self.options.replace {
            words.push(b"REPLACE");
        }
        put_command(&mut self.request, &words);
        self.payload.clear();
        self.payload.shrink_to(SCRATCH_KEEP_BYTES);
        self.asked.push(Sent::Key { db: record.db, key: record.key.to_vec() });
        self.report.keys += 1;
        if self.request.len() >= IMPORT_WINDOW_BYTES { self.send_window() } else { Ok(()) }
    }

    /// Loads a library of functions.
    pub(super) fn library(&mut self, text: &[u8]) -> Result<(), ImportError> {
        let words: [&[u8]; 4] = [b"FUNCTION", b"LOAD", b"REPLACE", text];
        let words = if self.options.replace { &words[..] } else { &[words[0], words[1], words[3]] };
        put_command(&mut self.request, words);
        self.asked.push(Sent::Library);
        self.report.libraries += 1;
        self.send_window()
    }

    /// Waits until all that was asked is done.
    pub(super) fn settle(&mut self) -> Result<(), ImportError> {
        self.send_window()?;
        while !self.under_way.is_empty() {
            self.read_window()?;
        }
        Ok(())
    }

    fn select(&mut self, db: u64) {
        if self.db != db {
            self.db = db;
            put_command(&mut self.request, &[b"SELECT", itoa::Buffer::new().format(db).as_bytes()]);
            self.asked.push(Sent::Select(db));
        }
    }

    /// Sends what is gathered, and reads the replies to what was sent before it: while the target works on one window, the next
    /// one is made.
    fn send_window(&mut self) -> Result<(), ImportError> {
        if !self.asked.is_empty() {
            self.connection.send(&self.request)?;
            self.request.clear();
            if self.request.capacity() > 4 * IMPORT_WINDOW_BYTES {
                self.request = BytesMut::new();
            }
            self.under_way.push_back(std::mem::take(&mut self.asked));
        }
        if self.under_way.len() > 1 { self.read_window() } else { Ok(()) }
    }

    fn read_window(&mut self) -> Result<(), ImportError> {
        for sent in self.under_way.pop_front().unwrap_or_default() {
            let BytesFrame::Error(text) = self.connection.reply()? else { continue };
            return Err(match sent {
                Sent::Key { db, key } if text.starts_with("BUSYKEY") => ImportError::Exists { key, db },
                Sent::Key { db, key } => {
                    let what = format!("the key \"{}\" of database {db}", key.escape_ascii());
                    ImportError::Refused { what, text: text.to_string() }
                }
                Sent::Select(db) => ImportError::Refused { what: format!("database {db}"), text: text.to_string() },
                Sent::Library => {
                    ImportError::Refused { what: "a library of functions".to_owned(), text: text.to_string() }
                }
            });
        }
        Ok(())
    }

    /// Reads the next command of a stream. One that the target does not know ends the import, once all before it is applied,
    /// or is left out, if that was asked for.
    pub(super) fn next(&mut self, units: &mut Units) -> Result<Apart, ImportError> {
        if self.commands.is_empty() {
            self.settle()?;
            let BytesFrame::Array(names) = self.connection.call(&[b"COMMAND", b"LIST"])? else {
                return Err(self.connection.not_the_protocol().into());
            };
            let text = |name| match name {
                BytesFrame::BulkString(name) | BytesFrame::SimpleString(name) => Some(name.to_ascii_lowercase()),
                _ => None,
            };
            self.commands = names.into_iter().filter_map(text).collect();
        }
        let skip_unknown = self.options.skip_unknown;
        let apart = units.next(|name| self.commands.contains(&name.to_ascii_lowercase()), skip_unknown)?;
        if let Apart::Unknown { name, .. } = &apart
            && skip_unknown
        {
            self.report.leave_out(format!("the command {name}, which the target does not know"));
            return Ok(Apart::Command);
        }
        Ok(apart)
    }

    /// Applies the whole units in hand as one transaction, together with the mark that says so.
    pub(super) fn apply(&mut self, units: &mut Units, mark: Option<&Mark>) -> Result<(), ImportError> {
        let Whole { offset, db, .. } = units.whole();
        let commands = units.take_whole();
        if commands.is_empty() && mark.is_none_or(|mark| mark.offset == offset) {
            return Ok(());
        }
        let mut request = BytesMut::new();
        put_command(&mut request, &[b"MULTI"]);
        let mut queued = 0;
        for command in &commands {
            queued += self.put_select(&mut request, command.db) + 1;
            put_command(&mut request, &command.argv.as_argv().iter().collect::<Vec<_>>());
        }
        if let Some(mark) = mark {
            queued += self.put_select(&mut request, 0) + 1;
            put_mark(&mut request, &Mark { offset, db, ..mark.clone() });
        }
        put_command(&mut request, &[b"EXEC"]);
        self.connection.send(&request)?;
        self.read_transaction(units, &commands, queued)?;
        self.report.commands += commands.len() as u64;
        Ok(())
    }

    /// Appends a SELECT if it takes one; answers how many commands that are.
    fn put_select(&mut self, request: &mut BytesMut, db: u64) -> usize {
        if std::mem::replace(&mut self.db, db) == db {
            return 0;
        }
        put_command(request, &[b"SELECT", itoa::Buffer::new().format(db).as_bytes()]);
        1
    }

    /// Reads the replies to a transaction of `queued` commands, these among them.
    fn read_transaction(&mut self, units: &Units, commands: &[Command], queued: usize) -> Result<(), ImportError> {
        let mut refused = None;
        for _ in 0..queued + 1 {
            if let BytesFrame::Error(text) = self.connection.reply()? {
                refused.get_or_insert(text);
            }
        }
        let failed = |text: &str, state| {
            // The reply does not name the command; that is enough where there is only one.
            let command = match commands {
                [] => String::new(),
                [only] => readable(only.argv.as_argv()),
                [first, ..] => format!("{} ... (one of {} commands)", readable(first.argv.as_argv()), commands.len()),
            };
            Err(ImportError::Command { place: units.place().to_owned(), command, text: text.to_owned(), state })
        };
        match self.connection.reply()? {
            BytesFrame::Array(replies) => match replies.iter().find(|reply| matches!(reply, BytesFrame::Error(_))) {
                Some(BytesFrame::Error(text)) => failed(text, "all others up to here were applied"),
                _ => Ok(()),
            },
            BytesFrame::Error(text) => {
                failed(refused.as_ref().unwrap_or(&text), "its transaction was not applied, all before it was")
            }
            _ => Err(self.connection.not_the_protocol().into()),
        }
    }

    /// Whether no database holds a key.
    pub(super) fn is_empty(&mut self) -> Result<bool, ImportError> {
        match self.connection.call(&[b"INFO", b"keyspace"])? {
            BytesFrame::BulkString(text) => Ok(!text.windows(5).any(|word| word == b"keys=")),
            _ => Err(self.connection.not_the_protocol().into()),
        }
    }

    /// How far an import that was interrupted had come.
    pub(super) fn mark(&mut self) -> Result<Option<Mark>, ImportError> {
        let BytesFrame::Array(pairs) = self.connection.call(&[b"HGETALL", MARK])? else {
            return Err(self.connection.not_the_protocol().into());
        };
        let value = |name: &str| {
            let text = |frame: &BytesFrame| match frame {
                BytesFrame::BulkString(text) => String::from_utf8_lossy(text).into_owned(),
                _ => String::new(),
            };
            pairs.chunks_exact(2).find(|pair| text(&pair[0]) == name).map_or_else(String::new, |pair| text(&pair[1]))
        };
        let number = |name| value(name).parse().unwrap_or(0);
        Ok((!pairs.is_empty()).then(|| Mark {
            source: value("source"),
            id: value("id"),
            offset: number("offset"),
            db: number("db"),
            has_snapshot: value("snapshot") == "whole",
        }))
    }

    /// Notes how far the import is.
    pub(super) fn set_mark(&mut self, mark: &Mark) -> Result<(), ImportError> {
        self.settle()?;
        self.select(0);
        put_mark(&mut self.request, mark);
        self.asked.push(Sent::Key { db: 0, key: MARK.to_vec() });
        self.settle()
    }

    /// The import is done.
    pub(super) fn remove_mark(&mut self) -> Result<(), ImportError> {
        self.settle()?;
        self.select(0);
        self.settle()?;
        self.connection.call(&[b"DEL", MARK])?;
        Ok(())
    }
}

fn put_mark(request: &mut BytesMut, mark: &Mark) {
    let (offset, db) = (mark.offset.to_string(), mark.db.to_string());
    let snapshot = if mark.has_snapshot { "whole" } else { "under way" };
    let fields =
        [("source", mark.source.as_str()), ("id", &mark.id), ("offset", &offset), ("db", &db), ("snapshot", snapshot)];
    let mut words: Vec<&[u8]> = vec![b"HSET", MARK];
    fields.iter().for_each(|(name, text)| words.extend([name.as_bytes(), text.as_bytes()]));
    put_command(request, &words);
}
