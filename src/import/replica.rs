//! Imports from a running server by acting as its replica: it receives a snapshot and then the stream of commands.
//!
//! ```text
//! -> REPLCONF capa eof capa psync2 capa tidegate, PSYNC ? -1
//! <- +FULLRESYNC id offset, $length or $EOF:delimiter, the snapshot as RDB [, the delimiter], commands ...
//! -> PSYNC id offset+1                             to go on where a link broke
//! <- +CONTINUE [id], commands ...
//! -> REPLCONF ACK offset                           every second: so far all is applied
//! ```
//!
//! The offset counts the bytes of the stream. It is written to the target in the same transaction as the commands up to
//! it ([`Checkpoint`]). An import interrupted at either end or in between therefore resumes with exactly the next
//! command, or reports that the primary no longer has it. The import acknowledges to the primary only what the target
//! has acknowledged.
//!
//! The cut-over: writers stop, and the operator ends the import. The import then asks the primary for its offset,
//! applies all commands up to it, and reports that it is done.

use std::io::{self, Cursor, ErrorKind, Read};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use redis_protocol::resp2::types::BytesFrame;

use super::commands::{Decoded, Units};
use super::error::{ImportError, START_AGAIN};
use super::load;
use super::report::Progress;
use super::target::{Checkpoint, Target};
use crate::base::limits::{IMPORT_PROGRESS_EVERY, IMPORT_TIMEOUT};
use crate::client::{Address, ClientError, Connection, REDIS_AUTH, put_command};
use crate::import::limits::{IMPORT_ACK_EVERY, IMPORT_LINE_MAX_BYTES, IMPORT_POLL, IMPORT_RETRY};
use crate::persist::transfer::OWN_TYPES;
use crate::rdb::file::Reader;

/// The newest Valkey version whose snapshots can be read here.
const NEWEST_VALKEY: &[u8] = b"9.1.0";

/// How the end of the snapshot is marked.
enum End {
    /// By its length in bytes.
    Length(u64),
    /// By this delimiter.
    Delimiter(Vec<u8>),
}

/// A primary's reply to PSYNC.
enum Answer {
    /// A snapshot follows, then the stream from `offset` of history `id`.
    Snapshot { id: String, offset: u64 },
    /// The stream continues where requested; its history may have a new name.
    Continue { id: Option<String> },
}

/// Imports only the snapshot of a `server`.
pub(super) fn snapshot(
    server: Address<'_>,
    target: &mut Target<'_>,
    print: &mut dyn FnMut(&str),
) -> Result<(), ImportError> {
    let mut progress = Progress::new(print, None);
    let mut primary = Connection::open(server, REDIS_AUTH, IMPORT_TIMEOUT)?;
    introduce(&mut primary)?;
    match ask(&mut primary, None)? {
        Answer::Snapshot { .. } => {}
        Answer::Continue { .. } => return Err(primary.not_the_protocol().into()),
    }
    let (rest, _) = load_snapshot(&mut primary, target, &mut progress)?;
    drop(rest);
    progress.say(&format!("read the snapshot in {} ms", progress.elapsed().as_millis()));
    Ok(())
}

/// Imports the snapshot of a `server` and follows its changes until `stop` is set and everything the server had done by
/// then is applied. An interrupted import resumes where it stopped.
pub(super) fn follow(
    server: Address<'_>,
    target: &mut Target<'_>,
    stop: &AtomicBool,
    print: &mut dyn FnMut(&str),
) -> Result<(), ImportError> {
    let mut progress = Progress::new(print, None);
    let mut primary = Connection::open(server, REDIS_AUTH, IMPORT_TIMEOUT)?;
    introduce(&mut primary)?;
    let (checkpoint, rest) = match target.checkpoint()? {
        Some(checkpoint) => {
            progress.say(&format!("continues at offset {}", checkpoint.offset));
            (resume(&mut primary, &checkpoint, target)?, Vec::new())
        }
        None => begin(&mut primary, target, &mut progress)?,
    };
    let mut follower = Follower { server, stop, checkpoint, stop_at: None };
    let mut rest = rest;
    loop {
        let broken = match follower.apply_all(&mut primary, rest, target, &mut progress)? {
            None => break,
            Some(broken) => broken,
        };
        progress.say(&format!("the link broke at offset {}: {broken}; connecting again", follower.checkpoint.offset));
        rest = Vec::new();
        primary = loop {
            std::thread::sleep(IMPORT_RETRY);
            match Connection::open(server, REDIS_AUTH, IMPORT_TIMEOUT).map_err(ImportError::from).and_then(
                |mut primary| {
                    introduce(&mut primary)?;
                    follower.checkpoint = resume(&mut primary, &follower.checkpoint, target)?;
                    Ok(primary)
                },
            ) {
                Ok(primary) => break primary,
                // The primary may come back, as long as there is still a target to import into.
                Err(ImportError::Client(ClientError::Io(..))) if !stop.load(Ordering::Relaxed) => target.ping()?,
                Err(error) => return Err(error),
            }
        };
    }
    target.remove_checkpoint()?;
    progress.say(&format!("done: all is applied up to offset {}", follower.checkpoint.offset));
    Ok(())
}

/// Declares the replica's capabilities to a primary.
fn introduce(primary: &mut Connection<'_>) -> Result<(), ImportError> {
    primary.call(&[b"PING"])?;
    let introductions: [&[&[u8]]; 3] = [
        &[b"REPLCONF", b"listening-port", b"0"],
        &[b"REPLCONF", b"capa", b"eof", b"capa", b"psync2", b"capa", OWN_TYPES],
        // Valkey writes the snapshot in the version that a replica of this version can read.
        &[b"REPLCONF", b"version", NEWEST_VALKEY],
    ];
    for words in introductions {
        match primary.call(words) {
            Ok(_) => {}
            // A primary that does not know one of these options does not need it.
            Err(ClientError::Refused(..)) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// Requests the stream after `checkpoint`, or a snapshot.
fn ask(primary: &mut Connection<'_>, checkpoint: Option<&Checkpoint>) -> Result<Answer, ImportError> {
    let (id, next) = checkpoint
        .map_or(("?", "-1".to_owned()), |checkpoint| (checkpoint.id.as_str(), (checkpoint.offset + 1).to_string()));
    let mut request = bytes::BytesMut::new();
    put_command(&mut request, &[b"PSYNC", id.as_bytes(), next.as_bytes()]);
    primary.send(&request)?;
    let line = some_line(primary)?;
    let line = String::from_utf8_lossy(&line);
    let words: Vec<&str> = line.split_whitespace().collect();
    match words[..] {
        ["+FULLRESYNC", id, offset] => {
            let offset = offset.parse().map_err(|_| primary.not_the_protocol())?;
            Ok(Answer::Snapshot { id: id.to_owned(), offset })
        }
        ["+CONTINUE"] => Ok(Answer::Continue { id: None }),
        ["+CONTINUE", id] => Ok(Answer::Continue { id: Some(id.to_owned()) }),
        _ => match line.strip_prefix('-') {
            Some(text) => Err(primary.refused(&format!("{text} (it was asked for PSYNC, as by a replica)")).into()),
            None => Err(primary.not_the_protocol().into()),
        },
    }
}

/// Reads the next non-empty line; empty lines mean that the primary is busy but alive.
fn some_line(primary: &mut Connection<'_>) -> Result<Vec<u8>, ImportError> {
    loop {
        let line = primary.line(IMPORT_LINE_MAX_BYTES)?;
        if !line.is_empty() {
            return Ok(line);
        }
    }
}

/// Imports the snapshot that a primary now sends. Returns the bytes received after it, and the database in which the
/// stream begins.
fn load_snapshot(
    primary: &mut Connection<'_>,
    target: &mut Target<'_>,
    progress: &mut Progress<'_>,
) -> Result<(Vec<u8>, u64), ImportError> {
    let line = some_line(primary)?;
    let announced = line.strip_prefix(b"$").ok_or_else(|| primary.not_the_protocol())?;
    let end = match announced.strip_prefix(b"EOF:") {
        Some(delimiter) => End::Delimiter(delimiter.to_vec()),
        None => {
            let len = std::str::from_utf8(announced).ok().and_then(|text| text.parse().ok());
            End::Length(len.ok_or_else(|| primary.not_the_protocol())?)
        }
    };
    let peer = primary.peer().to_owned();
    let named = |source| ImportError::Snapshot { peer: peer.clone(), source };
    let mut reader = Reader::new(&mut *primary).map_err(named)?;
    let stream_db = load::rdb(&mut reader, target, progress, 0).map_err(|stop| stop.named(named))?;
    let len = reader.offset();
    let (mut rest, _) = reader.into_rest();
    match end {
        End::Length(announced) if announced == len => {}
        End::Length(_) => return Err(primary.not_the_protocol().into()),
        End::Delimiter(delimiter) => {
            let missing = delimiter.len().saturating_sub(rest.len());
            let mut more = vec![0; missing];
            primary.read_exact(&mut more).map_err(|error| primary.failed(error))?;
            rest.extend_from_slice(&more);
            rest = rest.strip_prefix(&delimiter[..]).ok_or_else(|| primary.not_the_protocol())?.to_vec();
        }
    }
    target.wait_for_replies()?;
    Ok((rest, stream_db))
}

/// Begins to follow: applies the snapshot and records where the stream continues.
fn begin(
    primary: &mut Connection<'_>,
    target: &mut Target<'_>,
    progress: &mut Progress<'_>,
) -> Result<(Checkpoint, Vec<u8>), ImportError> {
    if !target.may_replace() && !target.is_empty()? {
        return Err(ImportError::NotEmpty { peer: target.peer().to_owned() });
    }
    let Answer::Snapshot { id, offset } = ask(primary, None)? else {
        return Err(primary.not_the_protocol().into());
    };
    let source = primary.peer().to_owned();
    let mut checkpoint = Checkpoint { source, id, offset, db: 0, has_snapshot: false, refused: None };
    target.set_checkpoint(&checkpoint)?;
    let (rest, stream_db) = load_snapshot(primary, target, progress)?;
    (checkpoint.db, checkpoint.has_snapshot) = (stream_db, true);
    target.set_checkpoint(&checkpoint)?;
    let (keys, ms) = (target.report.keys, progress.elapsed().as_millis());
    progress.say(&format!("has the snapshot after {ms} ms: {keys} keys; follows"));
    Ok((checkpoint, rest))
}

/// Resumes after `checkpoint`.
fn resume(
    primary: &mut Connection<'_>,
    checkpoint: &Checkpoint,
    target: &Target<'_>,
) -> Result<Checkpoint, ImportError> {
    let at_target = |what| Err(ImportError::Follow { peer: target.peer().to_owned(), what });
    let source = &checkpoint.source;
    if let Some(refused) = &checkpoint.refused {
        return at_target(format!("it refused a command of {source}, {refused}: {START_AGAIN}"));
    }
    if !checkpoint.has_snapshot {
        return at_target(format!(
            "an import into it from {source} ended in the middle of the snapshot: {START_AGAIN}"
        ));
    }
    match ask(primary, Some(checkpoint))? {
        Answer::Continue { id } => {
            Ok(Checkpoint { id: id.unwrap_or_else(|| checkpoint.id.clone()), ..checkpoint.clone() })
        }
        Answer::Snapshot { .. } => {
            let what = format!(
                "it can't continue at offset {} of the history {}: it has been restarted or replaced, or its backlog \
                 does not reach back so far (see repl-backlog-size). The target: {START_AGAIN}",
                checkpoint.offset, checkpoint.id
            );
            Err(ImportError::Follow { peer: primary.peer().to_owned(), what })
        }
    }
}

/// Applies a stream to the target.
struct Follower<'f> {
    server: Address<'f>,
    stop: &'f AtomicBool,
    /// The point up to which everything is applied.
    checkpoint: Checkpoint,
    /// The offset up to which everything must be applied, once the operator has ended the import.
    stop_at: Option<u64>,
}

impl Follower<'_> {
    /// Applies incoming commands until the operator ends the import or the link breaks; then returns the reason.
    fn apply_all(
        &mut self,
        primary: &mut Connection<'_>,
        rest: Vec<u8>,
        target: &mut Target<'_>,
        progress: &mut Progress<'_>,
    ) -> Result<Option<String>, ImportError> {
        let mut units = Units::new(primary.peer().to_owned(), self.checkpoint.offset, self.checkpoint.db);
        let mut rest = Cursor::new(rest);
        let (mut heard, mut acknowledged) = (Instant::now(), None::<Instant>);
        let mut status = Status::new(self.server);
        primary.set_timeout(IMPORT_POLL)?;
        loop {
            if acknowledged.is_none_or(|at| at.elapsed() >= IMPORT_ACK_EVERY) {
                acknowledged = Some(Instant::now());
                if let Err(error) = acknowledge(primary, self.checkpoint.offset) {
                    return Ok(Some(error.to_string()));
                }
            }
            status.report_if_due(self.checkpoint.offset, target, progress);
            if self.is_done()? {
                return Ok(None);
            }
            let read =
                if rest.position() < rest.get_ref().len() as u64 { units.fill(&mut rest) } else { units.fill(primary) };
            match read {
                Ok(0) => return Ok(Some(ErrorKind::UnexpectedEof.to_string())),
                Ok(_) => heard = Instant::now(),
                Err(error) if is_timeout(&error) && heard.elapsed() < IMPORT_TIMEOUT => {}
                Err(error) => return Ok(Some(error.to_string())),
            }
            loop {
                let decoded = target.next(&mut units)?;
                if !matches!(decoded, Decoded::Command | Decoded::AckRequested) || units.is_full() {
                    target.apply(&mut units, Some(&mut self.checkpoint))?;
                }
                match decoded {
                    Decoded::Command | Decoded::Idle { .. } => {}
                    Decoded::AckRequested => acknowledged = None,
                    Decoded::Unknown { name, offset } => return Err(units.unknown(name, offset)),
                    Decoded::Incomplete => break,
                }
            }
            target.report.bytes = units.offset();
        }
    }

    /// Returns whether the operator has ended the import and everything the primary has done is applied.
    fn is_done(&mut self) -> Result<bool, ImportError> {
        if self.stop_at.is_none() && self.stop.load(Ordering::Relaxed) {
            self.stop_at = Some(primary_offset(self.server)?);
        }
        Ok(self.stop_at.is_some_and(|stop_at| self.checkpoint.offset >= stop_at))
    }
}

fn acknowledge(primary: &mut Connection<'_>, offset: u64) -> Result<(), ClientError> {
    let mut request = bytes::BytesMut::new();
    put_command(&mut request, &[b"REPLCONF", b"ACK", offset.to_string().as_bytes()]);
    primary.send(&request)
}

/// Returns the primary's current offset.
fn primary_offset(server: Address<'_>) -> Result<u64, ImportError> {
    let mut primary = Connection::open(server, REDIS_AUTH, IMPORT_TIMEOUT)?;
    let BytesFrame::BulkString(text) = primary.call(&[b"INFO", b"replication"])? else {
        return Err(primary.not_the_protocol().into());
    };
    let text = String::from_utf8_lossy(&text);
    let offset = text.lines().find_map(|line| line.strip_prefix("master_repl_offset:")?.trim().parse().ok());
    offset.ok_or_else(|| primary.not_the_protocol().into())
}

/// Returns whether a read failed only because it timed out.
fn is_timeout(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut)
}

/// Reports how far the follower lags behind.
struct Status<'f> {
    server: Address<'f>,
    printed: Instant,
    commands: u64,
}

impl<'f> Status<'f> {
    fn new(server: Address<'f>) -> Status<'f> {
        Status { server, printed: Instant::now(), commands: 0 }
    }

    fn report_if_due(&mut self, offset: u64, target: &Target<'_>, progress: &mut Progress<'_>) {
        let elapsed = self.printed.elapsed();
        if elapsed < IMPORT_PROGRESS_EVERY {
            return;
        }
        let commands = target.report.commands - self.commands;
        (self.printed, self.commands) = (Instant::now(), target.report.commands);
        let lag = match primary_offset(self.server) {
            Ok(primary) => format!("{} bytes behind", primary.saturating_sub(offset)),
            // The following uses its own connection, which will report any error.
            Err(error) => format!("unknown how far behind: {error}"),
        };
        progress
            .say(&format!("offset {offset}, {lag}; {:.0} commands a second", commands as f64 / elapsed.as_secs_f64()));
    }
}
