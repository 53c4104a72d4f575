//! Where log lines go, and which: set once at start, the level also while the server runs.

use std::fs::OpenOptions;
use std::io;
use std::path::Path;
use std::sync::OnceLock;

use tracing::level_filters::LevelFilter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Registry, fmt, reload};

static LEVEL: OnceLock<reload::Handle<LevelFilter, Registry>> = OnceLock::new();

/// Begins to log what is at least as severe as `level`, to `file` or, without one, to standard output.
pub fn start(level: LevelFilter, file: Option<&Path>) -> io::Result<()> {
    let (filter, handle) = reload::Layer::new(level);
    let lines = fmt::layer().with_target(false);
    let registry = tracing_subscriber::registry().with(filter);
    match file {
        Some(path) => {
            let file = OpenOptions::new().create(true).append(true).open(path)?;
            registry.with(lines.with_ansi(false).with_writer(file)).init();
        }
        None => {
            let is_terminal = io::IsTerminal::is_terminal(&io::stdout());
            registry.with(lines.with_ansi(is_terminal)).init();
        }
    }
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
