//! The programs of Redis that some tests need: redis-server to compare with, redis-cli to type into.
//!
//! `cargo test` passes on a machine without them: a test that needs one which is not installed returns at once. The test
//! harness of Rust then reports it as "ok" and knows no other word, so the suite counts these tests itself and says at its
//! end, behind the harness' own summary, how many ran and how many were left out. Where `SUITE_REDIS` is set, which names the
//! redis-server to compare with, nothing is left out: what is not installed fails its tests. CI sets it.

use std::io::Write;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Once, OnceLock};

/// A program that tests need beside the server under test.
pub(crate) struct Tool {
    name: &'static str,
    is_there: OnceLock<bool>,
    run: AtomicUsize,
    left_out: AtomicUsize,
}

/// The server to compare with.
pub(crate) static REDIS_SERVER: Tool = Tool::new("redis-server");
/// The client that people type into.
pub(crate) static REDIS_CLI: Tool = Tool::new("redis-cli");

impl Tool {
    const fn new(name: &'static str) -> Tool {
        Tool { name, is_there: OnceLock::new(), run: AtomicUsize::new(0), left_out: AtomicUsize::new(0) }
    }

    /// Whether the calling test must be left out for the lack of this program. Each test that needs it asks once.
    pub(crate) fn is_missing(&self) -> bool {
        static REPORT: Once = Once::new();
        // SAFETY: a plain function that lives as long as the process, and that does not unwind.
        REPORT.call_once(|| assert_eq!(unsafe { libc::atexit(report) }, 0, "room for a function to call at exit"));
        let is_there = *self.is_there.get_or_init(|| redis_is_demanded() || answers_its_version(self.name));
        if is_there { &self.run } else { &self.left_out }.fetch_add(1, Ordering::Relaxed);
        !is_there
    }

    fn summary(&self) -> Option<String> {
        let (name, run) = (self.name, self.run.load(Ordering::Relaxed));
        match self.left_out.load(Ordering::Relaxed) {
            0 if run == 0 => None,
            0 => Some(format!("{name}: all {run} tests that need it ran")),
            left_out => Some(format!(
                "{name}: NOT INSTALLED, so {left_out} tests that need it were left out: they count as \"ok\" above, but have \
                 tested nothing. To run them: apt-get install redis-server redis-tools"
            )),
        }
    }
}

/// Whether absence is a failure.
fn redis_is_demanded() -> bool {
    std::env::var_os("SUITE_REDIS").is_some()
}

fn answers_its_version(program: &str) -> bool {
    let mut command = Command::new(program);
    command.arg("--version").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

/// Called by the C library when the process exits, whatever the tests' outcome. Writes to standard error itself, which the
/// harness does not capture.
extern "C" fn report() {
    for line in [&REDIS_SERVER, &REDIS_CLI].into_iter().filter_map(Tool::summary) {
        // Without anybody who reads it there is nobody to report to.
        let _ = writeln!(std::io::stderr(), "{line}");
    }
}
