//! The destination and the level of log lines: set once at the start; the level may also change while the server runs.
//!
//! The thread that has something to report formats the line ([`form`], [`mod@line`]), unless that place in the program
//! has logged too much lately ([`repeats`]). A thread of its own writes it ([`queue`]), so that no other thread waits
//! for a pipe or a disk.
//!
//! A log file can be reopened, so that a tool that rotates logs can move it away first. Each line also goes to the
//! system's log, if wanted: without time and level, which that log adds itself.

mod form;
mod line;
mod queue;
mod repeats;
mod system_log;

use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::os::fd::AsFd as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use tracing::level_filters::LevelFilter;
use tracing::{Level, Metadata};
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Registry, fmt, reload};

pub use self::form::Format;
pub use self::line::{AUDIT, BY_SCRIPTS};
pub use self::system_log::Syslog;

use self::form::Form;
use self::line::Fields;
use self::queue::Queue;
use self::repeats::{Limit, Repeats};
use crate::base::limits::{LOG_END_PATIENCE, LOG_QUEUE_MAX_BYTES};

static LEVEL: OnceLock<reload::Handle<LevelFilter, Registry>> = OnceLock::new();
static LOG: OnceLock<Log> = OnceLock::new();
/// Number of lines that were never written.
static LOST: AtomicU64 = AtomicU64::new(0);

/// The destination of log lines.
#[derive(Clone, Debug, Default)]
pub struct Destination {
    /// A file; `None` for standard output.
    pub file: Option<PathBuf>,
    /// Whether and how to write to the system's log as well.
    pub syslog: Option<Syslog>,
    /// The form of the lines.
    pub format: Format,
}

/// The log of this process.
#[derive(Debug)]
struct Log {
    path: Option<PathBuf>,
    entries: Queue<Entry>,
    repeats: Repeats,
}

/// An entry for the thread that writes.
#[derive(Debug)]
enum Entry {
    /// A line for the file.
    Line(Vec<u8>),
    /// A line for the system's log.
    System(Level, Vec<u8>),
    /// The file to write to from here on.
    Reopened(File),
}

/// Begins to log lines that are at least as severe as `level`.
pub fn start(level: LevelFilter, destination: &Destination) -> io::Result<()> {
    let file = match &destination.file {
        Some(path) => match open(path) {
            // Lines go to standard output until there is space.
            Err(error) if is_full(&error) => None,
            opened => Some(opened?),
        },
        None => Some(File::from(io::stdout().as_fd().try_clone_to_owned()?)),
    };
    let log = LOG.get_or_init(|| Log {
        path: destination.file.clone(),
        entries: Queue::new(LOG_QUEUE_MAX_BYTES),
        repeats: Repeats::default(),
    });
    std::thread::Builder::new().name("log-lines".to_owned()).spawn(move || write_all(log, file))?;
    let (filter, handle) = reload::Layer::new(level);
    let limit = Limit { repeats: &log.repeats, wake_at: |at| log.entries.wake_at(at) };
    let is_terminal = log.path.is_none() && io::IsTerminal::is_terminal(&io::stdout());
    let lines = fmt::layer().event_format(Form::dated(destination.format)).fmt_fields(Fields).with_ansi(is_terminal);
    let system = destination.syslog.as_ref().map(|syslog| {
        syslog.open();
        let form = Form::undated(destination.format);
        fmt::layer().event_format(form).fmt_fields(Fields).with_ansi(false).with_writer(ToSystem(log))
    });
    tracing_subscriber::registry().with(filter).with(limit).with(lines.with_writer(ToFile(log))).with(system).init();
    // The handle is set once: `init` panics on a second start, which would be a bug.
    let _ = LEVEL.set(handle);
    Ok(())
}

/// Changes the level. Has no effect if logging was never started, as in tests of the library.
pub fn set_level(level: LevelFilter) {
    if let Some(handle) = LEVEL.get() {
        // Fails only if the subscriber is gone, and then nothing is logged anyway.
        let _ = handle.modify(|current| *current = level);
    }
}

/// Reopens the log file by its name, for the lines that follow. Returns the file's path, if there is one.
///
/// # Errors
/// The system's; logging then continues in the old file.
pub fn reopen() -> io::Result<Option<&'static Path>> {
    let Some((log, path)) = LOG.get().and_then(|log| Some((log, log.path.as_ref()?))) else { return Ok(None) };
    match log.entries.push(Entry::Reopened(open(path)?), 0) {
        true => Ok(Some(path)),
        false => Err(io::Error::other("too many lines wait to be written")),
    }
}

/// Returns the number of lines that were never written, because they came too fast or the system refused them.
pub fn lost_lines() -> u64 {
    LOST.load(Ordering::Relaxed)
}

/// Waits until all lines are written, before the process ends. Gives up if the lines are not accepted.
pub fn flush() {
    if let Some(log) = LOG.get() {
        log_left_out(log, true);
        log.entries.drain(LOG_END_PATIENCE);
    }
}

/// Whether there is no space for a file now, although there may be later.
fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

/// Lines contain text of clients and scripts, so only the server's user may read the file.
fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new().create(true).append(true).mode(0o640).open(path)
}

/// Writes entries as long as the process lasts. `file` is `None` if there was no space for it yet.
fn write_all(log: &Log, mut file: Option<File>) {
    let mut unwritten = 0;
    loop {
        let written = match log.entries.take() {
            Some(Entry::Line(line)) => {
                if file.is_none() {
                    file = log.path.as_deref().and_then(|path| open(path).ok());
                }
                match &mut file {
                    Some(file) => file.write_all(&line),
                    None => io::stdout().write_all(&line),
                }
            }
            Some(Entry::System(level, line)) => {
                system_log::write(level, &line);
                Ok(())
            }
            Some(Entry::Reopened(new)) => {
                file = Some(new);
                Ok(())
            }
            None => {
                log_left_out(log, false);
                continue;
            }
        };
        if written.is_err() {
            LOST.fetch_add(1, Ordering::Relaxed);
            unwritten += 1;
            // A warning about this would be lost, too.
            continue;
        }
        let lines = log.entries.take_lost() + std::mem::take(&mut unwritten);
        if lines > 0 {
            tracing::warn!(
                lines,
                "lines before this one are missing, because the log could not be written fast enough"
            );
        }
    }
}

fn log_left_out(log: &Log, all: bool) {
    for left_out in log.repeats.take(Instant::now(), all) {
        match left_out.is_audit {
            true => tracing::info!(target: AUDIT, "and {} more like this: {}", left_out.lines, left_out.first),
            false => tracing::warn!("and {} more like this: {}", left_out.lines, left_out.first),
        }
    }
}

/// The way of a line to the file.
struct ToFile(&'static Log);

/// The way of a line to the system's log.
struct ToSystem(&'static Log);

/// The way of one line, which is written as a whole.
struct Way {
    log: &'static Log,
    /// The line's severity, for the system's log.
    to_system: Option<Level>,
}

impl<'a> MakeWriter<'a> for ToFile {
    type Writer = Way;

    fn make_writer(&'a self) -> Way {
        Way { log: self.0, to_system: None }
    }
}

impl<'a> MakeWriter<'a> for ToSystem {
    type Writer = Way;

    fn make_writer(&'a self) -> Way {
        Way { log: self.0, to_system: Some(Level::INFO) }
    }

    fn make_writer_for(&'a self, about: &Metadata<'_>) -> Way {
        Way { log: self.0, to_system: Some(*about.level()) }
    }
}

impl io::Write for Way {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let entry = match self.to_system {
            Some(level) => Entry::System(level, line.to_vec()),
            None => Entry::Line(line.to_vec()),
        };
        if !self.log.entries.push(entry, line.len()) {
            LOST.fetch_add(1, Ordering::Relaxed);
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
