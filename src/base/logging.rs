//! Where log lines go, and which: set once at start, the level also while the server runs.
//!
//! A log file can be opened anew, so that whoever rotates logs can move it away first. The system's log gets each line, too, if it
//! is wanted: without time and level, which it adds itself.

use std::ffi::CString;
use std::fs::{File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use tracing::level_filters::LevelFilter;
use tracing::{Level, Metadata};
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Layer, Registry, fmt, reload};

static LEVEL: OnceLock<reload::Handle<LevelFilter, Registry>> = OnceLock::new();
static FILE: OnceLock<LogFile> = OnceLock::new();

/// Where log lines go.
#[derive(Clone, Debug, Default)]
pub struct Destination {
    /// A file; `None` for standard output.
    pub file: Option<PathBuf>,
    /// The system's log, too.
    pub syslog: Option<Syslog>,
}

/// How to speak to the system's log.
#[derive(Clone, Debug)]
pub struct Syslog {
    /// The name before each line.
    pub name: String,
    /// The facility, such as `libc::LOG_LOCAL0`.
    pub facility: libc::c_int,
}

/// Begins to log what is at least as severe as `level`.
pub fn start(level: LevelFilter, destination: &Destination) -> io::Result<()> {
    let (filter, handle) = reload::Layer::new(level);
    let lines = fmt::layer().with_target(false);
    let lines = match &destination.file {
        Some(path) => {
            let file = FILE.get_or_init(|| LogFile { path: path.clone(), file: Mutex::default() });
            match file.open() {
                // Lines go to standard output until there is space.
                Err(error) if is_full(&error) => {}
                opened => opened?,
            }
            lines.with_ansi(false).with_writer(file).boxed()
        }
        None => lines.with_ansi(io::IsTerminal::is_terminal(&io::stdout())).boxed(),
    };
    let system = destination.syslog.as_ref().map(|syslog| {
        let plain = fmt::layer().with_target(false).with_ansi(false).without_time().with_level(false);
        plain.with_writer(SystemLog::open(syslog))
    });
    tracing_subscriber::registry().with(filter).with(lines).with(system).init();
    // The handle is set once: `init` panics on a second start, which would be a mistake of the program.
    let _ = LEVEL.set(handle);
    Ok(())
}

/// Changes the level. Without effect where logging was never started, as in tests of the library.
pub fn set_level(level: LevelFilter) {
    if let Some(handle) = LEVEL.get() {
        // Fails only if the subscriber is gone, and nothing is logged then anyway.
        let _ = handle.modify(|current| *current = level);
    }
}

/// Opens the log file anew, by its name. Answers which, if there is one.
///
/// # Errors
/// The system's; the log then goes on in the old file.
pub fn reopen() -> io::Result<Option<&'static Path>> {
    let Some(file) = FILE.get() else { return Ok(None) };
    file.open()?;
    Ok(Some(&file.path))
}

/// A log file by its name.
#[derive(Debug)]
struct LogFile {
    path: PathBuf,
    file: Mutex<Option<Arc<File>>>,
}

impl LogFile {
    fn open(&self) -> io::Result<()> {
        let file = OpenOptions::new().create(true).append(true).open(&self.path)?;
        *self.file.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::new(file));
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for &'static LogFile {
    type Writer = LogLine;

    fn make_writer(&'a self) -> LogLine {
        let file = || self.file.lock().unwrap_or_else(PoisonError::into_inner).clone();
        LogLine(file().or_else(|| {
            // A start on a full disk could not make it. Perhaps there is space by now.
            self.open().ok()?;
            file()
        }))
    }
}

/// Whether there is no space for a file, and there may be later.
fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

/// Where one line goes: standard output without a file.
struct LogLine(Option<Arc<File>>);

impl io::Write for LogLine {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &self.0 {
            Some(file) => (&**file).write(bytes),
            None => io::stdout().write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The system's log.
struct SystemLog;

impl SystemLog {
    fn open(syslog: &Syslog) -> SystemLog {
        // Without zeros: those of a configuration file are no text.
        let name = CString::new(syslog.name.replace('\0', "")).unwrap_or_default();
        // SAFETY: the name is never freed, as the C library keeps the pointer.
        unsafe { libc::openlog(name.into_raw(), libc::LOG_PID | libc::LOG_NDELAY | libc::LOG_NOWAIT, syslog.facility) };
        SystemLog
    }
}

impl<'a> MakeWriter<'a> for SystemLog {
    type Writer = SystemLine;

    fn make_writer(&'a self) -> SystemLine {
        SystemLine { priority: libc::LOG_NOTICE, text: Vec::new() }
    }

    fn make_writer_for(&'a self, meta: &Metadata<'_>) -> SystemLine {
        SystemLine { priority: priority(*meta.level()), text: Vec::new() }
    }
}

fn priority(level: Level) -> libc::c_int {
    match level {
        Level::ERROR => libc::LOG_ERR,
        Level::WARN => libc::LOG_WARNING,
        Level::INFO => libc::LOG_NOTICE,
        Level::DEBUG => libc::LOG_INFO,
        Level::TRACE => libc::LOG_DEBUG,
    }
}

/// A line for the system's log, sent when it is complete.
struct SystemLine {
    priority: libc::c_int,
    text: Vec<u8>,
}

impl io::Write for SystemLine {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.text.extend(bytes.iter().filter(|byte| **byte != 0));
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for SystemLine {
    fn drop(&mut self) {
        let text = CString::new(std::mem::take(&mut self.text).trim_ascii_end()).unwrap_or_default();
        // SAFETY: both are strings that end in a zero, and the format has one place for one of them.
        unsafe { libc::syslog(self.priority, c"%s".as_ptr(), text.as_ptr()) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;

    #[test]
    fn a_file_that_was_moved_away_is_made_anew() {
        let dir = tempfile::tempdir().expect("a temporary folder");
        let (path, moved) = (dir.path().join("log"), dir.path().join("log.1"));
        let file: &'static LogFile = Box::leak(Box::new(LogFile { path: path.clone(), file: Mutex::default() }));
        let line = |text: &str| (&file).make_writer().write_all(text.as_bytes()).expect("it is open");
        file.open().expect("a fresh folder");
        line("one\n");
        std::fs::rename(&path, &moved).expect("moved");
        line("two\n");
        file.open().expect("it is made anew");
        line("three\n");
        assert_eq!(std::fs::read_to_string(&moved).expect("there"), "one\ntwo\n");
        assert_eq!(std::fs::read_to_string(&path).expect("there"), "three\n");
    }
}
