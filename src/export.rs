//! `tidegate export`: writes the keys and libraries of a running server to a file that Redis loads.
//!
//! The export is a client that walks the keys with SCAN, which here returns each key exactly once, and fetches each
//! with DUMP. This blocks nothing on the server and copes with data of any size. In return, each key is written as it
//! is at its own instant.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use bytes::{Bytes, BytesMut};
use redis_protocol::resp2::types::BytesFrame;

use crate::base::clock::Clock;
use crate::base::limits::{EXPORT_PAGE_KEYS, EXPORT_REPLY_MAX_BYTES, IMPORT_PROGRESS_EVERY, IMPORT_TIMEOUT};
use crate::base::version::REDIS_VERSION;
use crate::client::{Address, ClientError, Connection, TIDEGATE_AUTH, put_command};
use crate::log::disk::RealDisk;
use crate::log::replacement::Replacement;
use crate::rdb::file::Writer;
use crate::rdb::value::{has_delayed, is_own, without_own_part};
use crate::rdb::{self, libraries};

/// Reasons why the export failed.
#[derive(Debug, thiserror::Error)]
pub enum ExportError {
    /// The server does not respond, or refuses.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// The file can't be written.
    #[error("{}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The I/O error.
        source: io::Error,
    },
    /// A value needs a newer RDB version than the file has.
    #[error("a value needs a version of RDB that is not known here")]
    NeedsNewer,
    /// A file of this name exists and must not be lost.
    #[error("{} already exists: add --replace to overwrite it", .0.display())]
    Exists(PathBuf),
}

/// The result of an export.
#[derive(Debug, Default)]
pub struct Report {
    /// Keys written.
    pub keys: u64,
    /// Locks, gates and stocks, left out because Redis does not have them.
    pub left_out: u64,
    /// Streams whose delayed messages were left out, because Redis does not have these.
    pub without_delayed: u64,
    /// Libraries of functions written.
    pub libraries: usize,
    /// RDB version of the file.
    pub version: u16,
    /// Time taken, in ms.
    pub milliseconds: u128,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let since = if self.version > rdb::VERSION { "7.4, for hashes with fields that expire" } else { "7.0" };
        let Report { keys, left_out, without_delayed, libraries, version, milliseconds } = self;
        write!(
            f,
            "{keys} keys and {libraries} libraries in {milliseconds} ms, as RDB {version} (Redis from {since} on)"
        )?;
        if *left_out > 0 {
            write!(f, "; left out {left_out} locks, gates and stocks, which Redis does not have")?;
        }
        if *without_delayed > 0 {
            write!(f, "; left out the delayed messages of {without_delayed} streams, which Redis does not have")?;
        }
        Ok(())
    }
}

/// Writes all data of the server at `from` to `path`, whole or not at all. `print` receives progress reports.
pub fn export(
    from: Address<'_>,
    path: &Path,
    replace: bool,
    print: &mut dyn FnMut(&str),
) -> Result<Report, ExportError> {
    if path.exists() && !replace {
        return Err(ExportError::Exists(path.to_owned()));
    }
    let begun = Instant::now();
    let mut write = |version| {
        let mut server = Connection::open(from, TIDEGATE_AUTH, IMPORT_TIMEOUT)?;
        server.set_reply_max_bytes(EXPORT_REPLY_MAX_BYTES);
        let file = Replacement::begin(Arc::new(RealDisk), path, "export")
            .map_err(|(path, source)| ExportError::File { path, source })?;
        let part = file.part().to_owned();
        Walk { server, path: part, print: &mut *print, begun, printed: Instant::now() }.write(file, version)
    };
    let (file, mut report) = match write(rdb::VERSION) {
        // The header must declare a newer version when the file holds types that older versions do not know.
        Err(ExportError::NeedsNewer) => write(rdb::VERSION_OF_EXPIRING_FIELDS),
        written => written,
    }?;
    file.take_place().map_err(|source| ExportError::File { path: path.to_owned(), source })?;
    report.milliseconds = begun.elapsed().as_millis();
    Ok(report)
}

/// A walk over all keys in progress.
struct Walk<'a> {
    server: Connection<'static>,
    /// The file to write.
    path: PathBuf,
    print: &'a mut dyn FnMut(&str),
    begun: Instant,
    printed: Instant,
}

impl Walk<'_> {
    /// Writes the file in the given RDB version.
    fn write(&mut self, file: Replacement, version: u16) -> Result<(Replacement, Report), ExportError> {
        let mut writer = Writer::new(file, version);
        let mut report = Report { version, ..Report::default() };
        let created_s = (Clock::system().now_ms() / 1000).to_string();
        for (name, text) in [("redis-ver", REDIS_VERSION), ("redis-bits", "64"), ("ctime", &created_s)] {
            writer.aux(name, text).map_err(|error| self.failed(error))?;
        }
        for text in self.libraries()? {
            writer.library(&text).map_err(|error| self.failed(error))?;
            report.libraries += 1;
        }
        for db in self.databases()? {
            self.database(db, &mut writer, &mut report)?;
        }
        let file = writer.finish().map_err(|error| self.failed(error))?;
        Ok((file, report))
    }

    fn libraries(&mut self) -> Result<Vec<Vec<u8>>, ExportError> {
        let BytesFrame::BulkString(payload) = self.server.call(&[b"FUNCTION", b"DUMP"])? else {
            return Err(self.server.not_the_protocol().into());
        };
        let texts = libraries::load(&payload).map_err(|_| self.server.not_the_protocol())?;
        Ok(texts.into_iter().map(|text| text.into_owned()).collect())
    }

    /// Returns the numbers of the databases that hold keys.
    fn databases(&mut self) -> Result<Vec<u64>, ExportError> {
        let BytesFrame::BulkString(text) = self.server.call(&[b"INFO", b"keyspace"])? else {
            return Err(self.server.not_the_protocol().into());
        };
        let text = String::from_utf8_lossy(&text);
        let number = |line: &str| line.strip_prefix("db")?.split_once(':')?.0.parse().ok();
        Ok(text.lines().filter_map(number).collect())
    }

    fn database(&mut self, db: u64, writer: &mut Writer<Replacement>, report: &mut Report) -> Result<(), ExportError> {
        self.server.call(&[b"SELECT", db.to_string().as_bytes()])?;
        let mut cursor = Bytes::from_static(b"0");
        loop {
            let page = self.server.call(&[b"SCAN", &cursor, b"COUNT", EXPORT_PAGE_KEYS.to_string().as_bytes()])?;
            let keys = match page {
                BytesFrame::Array(mut parts) => match (parts.pop(), parts.pop()) {
                    (Some(BytesFrame::Array(keys)), Some(BytesFrame::BulkString(next))) => {
                        cursor = next;
                        keys
                    }
                    _ => return Err(self.server.not_the_protocol().into()),
                },
                _ => return Err(self.server.not_the_protocol().into()),
            };
            self.page(db, &keys, writer, report)?;
            if self.printed.elapsed() >= IMPORT_PROGRESS_EVERY {
                self.printed = Instant::now();
                (self.print)(&format!("{} keys in {} s", report.keys, self.begun.elapsed().as_secs()));
            }
            if *cursor == *b"0" {
                return Ok(());
            }
        }
    }

    /// Writes a page of keys, each with the deadline that it has at the same instant.
    fn page(
        &mut self,
        db: u64,
        keys: &[BytesFrame],
        writer: &mut Writer<Replacement>,
        report: &mut Report,
    ) -> Result<(), ExportError> {
        let mut request = BytesMut::new();
        for key in keys {
            let BytesFrame::BulkString(key) = key else { return Err(self.server.not_the_protocol().into()) };
            for words in [&[&b"MULTI"[..]][..], &[b"PEXPIRETIME", key], &[b"DUMP", key], &[b"EXEC"]] {
                put_command(&mut request, words);
            }
        }
        self.server.send(&request)?;
        for key in keys {
            let BytesFrame::BulkString(key) = key else { continue };
            for _ in 0..3 {
                if let BytesFrame::Error(text) = self.server.reply()? {
                    return Err(self.server.refused(&text).into());
                }
            }
            let BytesFrame::Array(replies) = self.server.reply()? else {
                return Err(self.server.not_the_protocol().into());
            };
            let (at_ms, payload) = match &replies[..] {
                [BytesFrame::Integer(at_ms), BytesFrame::BulkString(payload)] => (*at_ms, payload),
                // The key was deleted after SCAN returned it.
                [_, BytesFrame::Null] => continue,
                [.., BytesFrame::Error(text)] => return Err(self.server.refused(text).into()),
                _ => return Err(self.server.not_the_protocol().into()),
            };
            let (needed, value) = rdb::open(payload).ok_or_else(|| self.server.not_the_protocol())?;
            if needed > report.version {
                return Err(ExportError::NeedsNewer);
            }
            if value.first().is_some_and(|code| is_own(*code)) {
                report.left_out += 1;
                continue;
            }
            let expires_at_ms = Some(at_ms).filter(|at_ms| *at_ms >= 0);
            // Redis has neither group policies nor delayed messages.
            report.without_delayed += u64::from(has_delayed(value));
            let value = without_own_part(value).ok_or_else(|| self.server.not_the_protocol())?;
            writer.key(db, key, expires_at_ms, &value).map_err(|error| self.failed(error))?;
            report.keys += 1;
        }
        Ok(())
    }

    fn failed(&self, source: io::Error) -> ExportError {
        ExportError::File { path: self.path.clone(), source }
    }
}
