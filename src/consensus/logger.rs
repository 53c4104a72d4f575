//! The log lines of the crate `raft`, passed on to the server's own log. All are at the level `debug`: what operators
//! want to know, such as a change of leadership and its reason, the node itself says.

use slog::{Drain, Logger, Never, OwnedKVList, Record};

struct ToTracing;

impl Drain for ToTracing {
    type Ok = ();
    type Err = Never;

    fn log(&self, record: &Record, _: &OwnedKVList) -> Result<(), Never> {
        tracing::debug!(target: "raft", "{}", record.msg());
        Ok(())
    }
}

/// Returns a logger for [`raft`].
pub(super) fn logger() -> Logger {
    Logger::root(ToTracing, slog::o!())
}
