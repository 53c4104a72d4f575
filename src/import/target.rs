//! The server that receives the import: keys by RESTORE, with many requests in flight; commands in transactions.

use std::collections::{HashSet, VecDeque};

use bytes::BytesMut;
use redis_protocol::resp2::types::BytesFrame;

use super::commands::{Command, Decoded, Units, Whole, readable};
use super::error::ImportError;
use super::known_commands::KnownCommands;
use super::report::{Options, Report};
use crate::base::excerpt;
use crate::base::limits::SCRATCH_KEEP_BYTES;
use crate::client::{ClientError, Connection, put_command};
use crate::import::limits::{IMPORT_REPLY_MAX_BYTES, IMPORT_WINDOW_BYTES};
use crate::keyspace::limits::RESTORED_TOKEN_MAX;
use crate::rdb::file::KeyRecord;
use crate::spec::error::ROLLED_BACK;

/// The key of the [`Checkpoint`], in database 0. It changes in the same transaction as the data, so that a resumed
/// import knows exactly what was applied. It is also watched, so that two concurrent imports do not apply the same
/// commands twice.
const CHECKPOINT: &[u8] = b"tidegate:import";

/// The request that a pending reply belongs to.
enum Sent {
    Key { db: u64, key: Vec<u8> },
    Library { name: String },
}

/// See the module's header.
pub(super) struct Target<'s> {
    connection: Connection<'s>,
    options: Options<'s>,
    /// The report so far.
    pub(super) report: Report,
    /// Requests not yet sent with their meanings, and earlier requests not yet answered.
    request: BytesMut,
    asked: Vec<Sent>,
    under_way: VecDeque<Vec<Sent>>,
    /// The database that the connection will be in once all requests are executed.
    db: u64,
    /// Databases known to exist on the target.
    databases: HashSet<u64>,
    payload: Vec<u8>,
    /// The commands that the target supports; empty until needed.
    commands: KnownCommands,
}

/// State handed from one target to the next.
#[derive(Default)]
pub(super) struct Known {
    /// The report so far.
    pub(super) report: Report,
    /// See [`Target`].
    commands: KnownCommands,
}

/// The position in the followed server's stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Checkpoint {
    /// The address of the primary, without a password.
    pub(super) source: String,
    /// The name of the primary's history.
    pub(super) id: String,
    /// Bytes of that history that were applied.
    pub(super) offset: u64,
    /// The database in which the stream continues.
    pub(super) db: u64,
    /// Whether the snapshot before the stream was applied completely.
    pub(super) has_snapshot: bool,
    /// An earlier command that the target refused, and the reason; nothing after it may be applied.
    pub(super) refused: Option<String>,
}

impl<'s> Target<'s> {
    /// Imports through a connection in database 0 to a server on which nothing expires, see [`Target::hold_expiry`].
    pub(super) fn new(mut connection: Connection<'s>, options: Options<'s>) -> Target<'s> {
        connection.set_reply_max_bytes(IMPORT_REPLY_MAX_BYTES);
        Target {
            connection,
            options,
            report: Report::default(),
            request: BytesMut::new(),
            asked: Vec::new(),
            under_way: VecDeque::new(),
            db: 0,
            databases: HashSet::from([0]),
            payload: Vec::new(),
            commands: KnownCommands::default(),
        }
    }

    /// Suspends expiry at the server while the connection lives. Imported commands happened in the past, and a key
    /// whose deadline has passed may be given a later one by the next command. Keys expired at the source are removed
    /// by the source's own DEL, or by the target once the import ends.
    pub(super) fn hold_expiry(&mut self) -> Result<(), ImportError> {
        const HOLD: &[&[u8]] = &[b"CLIENT", b"IMPORT-SOURCE", b"ON"];
        match self.connection.call(HOLD) {
            Err(error) if error.to_string().contains("import mode") => {}
            held => return held.map(drop).map_err(Into::into),
        }
        self.connection.call(&[b"CONFIG", b"SET", b"import-mode", b"yes"])?;
        let held = self.connection.call(HOLD);
        // Expiry stays suspended, but this import gives no other client import privileges.
        self.connection.call(&[b"CONFIG", b"SET", b"import-mode", b"no"])?;
        held?;
        Ok(())
    }

    /// Continues where another target of the same server ended.
    pub(super) fn resume(self, Known { report, commands }: Known) -> Target<'s> {
        Target { report, commands, ..self }
    }

    /// Returns the state that the next target of the same server can use.
    pub(super) fn into_known(self) -> Known {
        Known { report: self.report, commands: self.commands }
    }

    /// Returns the server's address.
    pub(super) fn peer(&self) -> &str {
        self.connection.peer()
    }

    /// Checks that the server is still there.
    pub(super) fn ping(&mut self) -> Result<(), ImportError> {
        self.wait_for_replies()?;
        self.connection.call(&[b"PING"])?;
        Ok(())
    }

    /// Returns whether keys may be overwritten.
    pub(super) fn may_replace(&self) -> bool {
        self.options.replace
    }

    /// Restores a key. May return errors of earlier keys.
    pub(super) fn key(&mut self, record: &KeyRecord<'_>) -> Result<(), ImportError> {
        self.select(record.db)?;
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

    /// Makes the target issue only fencing tokens above those issued by the source.
    pub(super) fn raise_tokens(&mut self, last: u64) -> Result<(), ImportError> {
        if last > 0 {
            self.wait_for_replies()?;
            let last = last.min(RESTORED_TOKEN_MAX);
            self.connection.call(&[b"TOKEN.RAISE", itoa::Buffer::new().format(last).as_bytes()])?;
        }
        Ok(())
    }

    /// Loads a library of functions.
    pub(super) fn library(&mut self, text: &[u8]) -> Result<(), ImportError> {
        let words: [&[u8]; 4] = [b"FUNCTION", b"LOAD", b"REPLACE", text];
        let words = if self.options.replace { &words[..] } else { &[words[0], words[1], words[3]] };
        put_command(&mut self.request, words);
        self.asked.push(Sent::Library { name: library_name(text) });
        self.report.libraries += 1;
        self.send_window()
    }

    /// Waits until all requests are executed.
    pub(super) fn wait_for_replies(&mut self) -> Result<(), ImportError> {
        self.send_window()?;
        while !self.under_way.is_empty() {
            self.read_window()?;
        }
        Ok(())
    }

    /// Selects a database. Nothing may be sent before the target is known to have it, because later commands would run
    /// in another database.
    fn select(&mut self, db: u64) -> Result<(), ImportError> {
        if self.db != db {
            self.wait_for_replies()?;
            self.connection.call(&[b"SELECT", itoa::Buffer::new().format(db).as_bytes()]).map_err(
                |error| match error {
                    ClientError::Refused(_, text) => ImportError::Refused { what: format!("database {db}"), text },
                    error => error.into(),
                },
            )?;
            self.databases.insert(db);
            self.db = db;
        }
        Ok(())
    }

    /// Sends the requests gathered so far and reads the replies to the previous window. The next window is built while
    /// the target works on this one.
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
            let what = match sent {
                Sent::Key { db, key } if text.starts_with("BUSYKEY") => return Err(ImportError::Exists { key, db }),
                Sent::Key { db, key } => format!("the key \"{}\" of database {db}", excerpt::of_bytes(&key)),
                Sent::Library { name } => format!("the library {name}"),
            };
            return Err(ImportError::Refused { what, text: excerpt::of_text(&text) });
        }
        Ok(())
    }

    /// Reads the next command of a stream. A command unknown to the target ends the import once all earlier ones are
    /// applied, or is left out if that was requested.
    pub(super) fn next(&mut self, units: &mut Units) -> Result<Decoded, ImportError> {
        if self.commands.is_empty() {
            self.wait_for_replies()?;
            let table = self.connection.call(&[b"COMMAND"])?;
            self.commands = KnownCommands::of(table).ok_or_else(|| self.connection.not_the_protocol())?;
        }
        let skip_unknown = self.options.skip_unknown;
        let decoded = units.next(|argv| self.commands.judge(argv), skip_unknown)?;
        match &decoded {
            Decoded::Unknown { name, .. } if skip_unknown => {
                self.report
                    .leave_out(format!("the command {}, which the target does not know", name.to_ascii_uppercase()));
            }
            Decoded::Idle { name } => self.report.leave_out(format!("the command {name}, which changes no data")),
            _ => return Ok(decoded),
        }
        Ok(Decoded::Command)
    }

    /// Applies the decoded whole units as one transaction, which also moves the checkpoint, if there is one, to their
    /// end.
    pub(super) fn apply(&mut self, units: &mut Units, checkpoint: Option<&mut Checkpoint>) -> Result<(), ImportError> {
        let Whole { offset, db, .. } = units.whole();
        let commands = units.take_whole();
        if commands.is_empty() && checkpoint.as_ref().is_none_or(|checkpoint| checkpoint.offset == offset) {
            return Ok(());
        }
        let checkpoint = checkpoint.map(|checkpoint| {
            (checkpoint.offset, checkpoint.db) = (offset, db);
            &*checkpoint
        });
        let place = format!("{}, before offset {offset}", units.place());
        self.transact(place, &commands, checkpoint)?;
        self.report.commands += commands.len() as u64;
        Ok(())
    }

    /// Runs commands as one transaction that ends with the checkpoint, if there is one.
    fn transact(
        &mut self,
        place: String,
        commands: &[Command],
        checkpoint: Option<&Checkpoint>,
    ) -> Result<(), ImportError> {
        self.wait_for_replies()?;
        for command in commands {
            // Inside a transaction, a refused SELECT would not stop the commands after it.
            if !self.databases.contains(&command.db) {
                self.select(command.db)?;
            }
        }
        let mut transaction = Transaction::new(self);
        if checkpoint.is_some() && commands.iter().any(|command| command.is("swapdb")) {
            // SWAPDB would move the checkpoint; the one written at the end restores it.
            transaction.select(0)?;
            transaction.queue(None, &[b"DEL", CHECKPOINT])?;
        }
        for (index, command) in commands.iter().enumerate() {
            transaction.select(command.db)?;
            transaction.queue(Some(index), &command.argv.as_argv().iter().collect::<Vec<_>>())?;
        }
        if let Some(checkpoint) = checkpoint {
            transaction.select(0)?;
            checkpoint.with_words(|words| transaction.queue(None, words))?;
        }
        let refusal = transaction.execute(checkpoint)?;
        let Some(Refusal { index, text, was_run }) = refusal else { return Ok(()) };
        let command = index.map_or_else(|| "the import's own".to_owned(), |i| readable(commands[i].argv.as_argv()));
        let text = excerpt::of_text(&text);
        if let Some(checkpoint) = checkpoint.filter(|_| was_run) {
            let refused = Some(format!("\"{command}\": {text}"));
            Checkpoint { refused, ..checkpoint.clone() }.with_words(|words| self.connection.call(words))?;
        }
        let state = if was_run {
            "all other commands up to here were applied"
        } else {
            "its transaction was not applied; everything before it was"
        };
        Err(ImportError::Command { place, command, text, state })
    }

    /// Returns whether all databases are empty.
    pub(super) fn is_empty(&mut self) -> Result<bool, ImportError> {
        match self.connection.call(&[b"INFO", b"keyspace"])? {
            BytesFrame::BulkString(text) => Ok(!text.windows(5).any(|word| word == b"keys=")),
            _ => Err(self.connection.not_the_protocol().into()),
        }
    }

    /// Returns the checkpoint of an interrupted import.
    pub(super) fn checkpoint(&mut self) -> Result<Option<Checkpoint>, ImportError> {
        self.connection.call(&[b"WATCH", CHECKPOINT])?;
        let BytesFrame::Array(pairs) = self.connection.call(&[b"HGETALL", CHECKPOINT])? else {
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
        Ok((!pairs.is_empty()).then(|| Checkpoint {
            source: value("source"),
            id: value("id"),
            offset: number("offset"),
            db: number("db"),
            has_snapshot: value("snapshot") == "whole",
            refused: Some(value("refused")).filter(|refused| !refused.is_empty()),
        }))
    }

    /// Writes the checkpoint.
    pub(super) fn set_checkpoint(&mut self, checkpoint: &Checkpoint) -> Result<(), ImportError> {
        self.transact(checkpoint.source.clone(), &[], Some(checkpoint))
    }

    /// Removes the checkpoint when the import is done.
    pub(super) fn remove_checkpoint(&mut self) -> Result<(), ImportError> {
        self.select(0)?;
        self.connection.call(&[b"DEL", CHECKPOINT])?;
        Ok(())
    }
}

impl Checkpoint {
    /// Calls `call` with the words of the command that writes the checkpoint.
    fn with_words<T>(&self, call: impl FnOnce(&[&[u8]]) -> T) -> T {
        let (offset, db) = (self.offset.to_string(), self.db.to_string());
        let snapshot = if self.has_snapshot { "whole" } else { "under way" };
        let refused = self.refused.as_deref().unwrap_or("");
        let fields = [
            ("source", self.source.as_str()),
            ("id", &self.id),
            ("offset", &offset),
            ("db", &db),
            ("snapshot", snapshot),
            ("refused", refused),
        ];
        let mut words: Vec<&[u8]> = vec![b"HSET", CHECKPOINT];
        fields.iter().for_each(|(name, text)| words.extend([name.as_bytes(), text.as_bytes()]));
        call(&words)
    }
}

/// A transaction being sent to the target. Replies are read while it is sent, because two sides that only write would
/// wait for each other.
struct Transaction<'t, 's> {
    target: &'t mut Target<'s>,
    request: BytesMut,
    /// The queued commands: an index into the caller's commands, or `None` for one of the import's own.
    queued: Vec<Option<usize>>,
    /// Replies to MULTI and to queued commands read so far.
    answered: usize,
    /// Replies due for everything sent before the last window.
    due: usize,
    refusal: Option<Refusal>,
}

/// A command that the target refused.
struct Refusal {
    /// Index among the caller's commands.
    index: Option<usize>,
    text: String,
    /// Whether the rest of the transaction ran. This happens only on a target that can't roll back (see
    /// `command/transaction.rs`).
    was_run: bool,
}

impl<'t, 's> Transaction<'t, 's> {
    fn new(target: &'t mut Target<'s>) -> Transaction<'t, 's> {
        let mut request = BytesMut::new();
        put_command(&mut request, &[b"MULTI"]);
        Transaction { target, request, queued: Vec::new(), answered: 0, due: 0, refusal: None }
    }

    fn select(&mut self, db: u64) -> Result<(), ImportError> {
        if std::mem::replace(&mut self.target.db, db) == db {
            return Ok(());
        }
        self.queue(None, &[b"SELECT", itoa::Buffer::new().format(db).as_bytes()])
    }

    fn queue(&mut self, index: Option<usize>, words: &[&[u8]]) -> Result<(), ImportError> {
        put_command(&mut self.request, words);
        self.queued.push(index);
        if self.request.len() < IMPORT_WINDOW_BYTES {
            return Ok(());
        }
        self.target.connection.send(&self.request)?;
        self.request.clear();
        self.read_queued()?;
        self.due = self.queued.len() + 1;
        Ok(())
    }

    /// Reads the replies that are due.
    fn read_queued(&mut self) -> Result<(), ImportError> {
        while self.answered < self.due {
            if let BytesFrame::Error(text) = self.target.connection.reply()? {
                let index = self.answered.checked_sub(1).and_then(|place| self.queued[place]);
                self.refusal.get_or_insert(Refusal { index, text: text.to_string(), was_run: false });
            }
            self.answered += 1;
        }
        Ok(())
    }

    /// Executes the transaction. Returns the refused command, if any. The checkpoint is watched again afterwards.
    fn execute(mut self, checkpoint: Option<&Checkpoint>) -> Result<Option<Refusal>, ImportError> {
        put_command(&mut self.request, &[b"EXEC"]);
        if checkpoint.is_some() {
            put_command(&mut self.request, &[b"WATCH", CHECKPOINT]);
            put_command(&mut self.request, &[b"HGET", CHECKPOINT, b"offset"]);
        }
        self.target.connection.send(&self.request)?;
        self.due = self.queued.len() + 1;
        self.read_queued()?;
        let connection = &mut self.target.connection;
        let peer = connection.peer().to_owned();
        let refusal = match connection.reply()? {
            BytesFrame::Array(replies) => {
                let mut pairs = replies.into_iter().zip(self.queued);
                pairs.find_map(|(reply, index)| match reply {
                    BytesFrame::Error(text) => Some(Refusal { index, text: text.to_string(), was_run: true }),
                    _ => None,
                })
            }
            BytesFrame::Error(text) => {
                let (queued, text) = rolled_back(&text).unwrap_or((0, &text));
                let index = queued.checked_sub(1).and_then(|place| *self.queued.get(place)?);
                let refusal = || Refusal { index, text: text.to_owned(), was_run: false };
                return Ok(Some(self.refusal.unwrap_or_else(refusal)));
            }
            BytesFrame::Null => return Err(ImportError::Concurrent { peer }),
            _ => return Err(connection.not_the_protocol().into()),
        };
        if let Some(checkpoint) = checkpoint {
            let _watched = connection.reply()?;
            let offset = connection.reply()?;
            let is_ours =
                matches!(&offset, BytesFrame::BulkString(text) if **text == *checkpoint.offset.to_string().as_bytes());
            if refusal.is_none() && !is_ours {
                return Err(ImportError::Concurrent { peer });
            }
        }
        Ok(refusal)
    }
}

/// Parses a rollback error: returns the position of the queued command that caused it, counted from 1, and that
/// command's error.
fn rolled_back(text: &str) -> Option<(usize, &str)> {
    let (number, text) = text.strip_prefix(ROLLED_BACK)?.split_once(": ")?;
    Some((number.parse().ok()?, text))
}

/// Returns the name in a library's first line: `#!lua name=NAME`.
pub(super) fn library_name(text: &[u8]) -> String {
    let line = text.split(|byte| *byte == b'\n').next().unwrap_or_default();
    let name = line.split(u8::is_ascii_whitespace).find_map(|word| word.strip_prefix(b"name="));
    excerpt::of_bytes(name.unwrap_or_default())
}
