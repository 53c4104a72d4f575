//! The options, progress and result of an import.

use std::collections::BTreeMap;
use std::fmt;
use std::time::{Duration, Instant};

use crate::base::limits::IMPORT_PROGRESS_EVERY;
use crate::import::limits::IMPORT_LEFT_OUT_MAX_KINDS;

/// The options of an import.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options<'o> {
    /// Existing keys and libraries of the target may be overwritten.
    pub replace: bool,
    /// Commands unknown to the target are left out and reported.
    pub skip_unknown: bool,
    /// The server that is followed gives its data away as soon as the target is up to date, and tells clients that they
    /// reach the target at this address. If that is empty, it is the address that the import uses.
    pub cut_over: Option<&'o str>,
}

/// The result of an import.
#[derive(Debug, Default)]
pub struct Report {
    /// Keys imported.
    pub keys: u64,
    /// Libraries of functions imported.
    pub libraries: u64,
    /// Commands of append-only files or of a stream applied.
    pub commands: u64,
    /// Bytes read.
    pub bytes: u64,
    /// Omitted items, each with its count.
    pub left_out: BTreeMap<String, u64>,
}

impl Report {
    pub(super) fn leave_out(&mut self, what: String) {
        self.leave_out_times(what, 1);
    }

    /// Adds another report's results, except for its bytes.
    pub(super) fn add(&mut self, other: Report) {
        let Report { keys, libraries, commands, bytes: _, left_out } = other;
        self.keys += keys;
        self.libraries += libraries;
        self.commands += commands;
        left_out.into_iter().for_each(|(what, times)| self.leave_out_times(what, times));
    }

    fn leave_out_times(&mut self, what: String, times: u64) {
        let is_named = self.left_out.len() < IMPORT_LEFT_OUT_MAX_KINDS || self.left_out.contains_key(&what);
        *self.left_out.entry(if is_named { what } else { "other things".to_owned() }).or_default() += times;
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} keys, {} libraries, {} commands", self.keys, self.libraries, self.commands)?;
        self.left_out.iter().try_for_each(|(what, times)| match times {
            1 => write!(f, "\nleft out: {what}"),
            _ => write!(f, "\nleft out {times} times: {what}"),
        })
    }
}

/// Reports the progress of a long import from time to time.
pub(super) struct Progress<'t> {
    print: &'t mut dyn FnMut(&str),
    begun: Instant,
    printed: Instant,
    /// Total bytes to read, if known.
    total: Option<u64>,
}

impl<'t> Progress<'t> {
    pub(super) fn new(print: &'t mut dyn FnMut(&str), total: Option<u64>) -> Progress<'t> {
        Progress { print, begun: Instant::now(), printed: Instant::now(), total }
    }

    pub(super) fn report_if_due(&mut self, report: &Report) {
        if self.printed.elapsed() < IMPORT_PROGRESS_EVERY {
            return;
        }
        self.printed = Instant::now();
        let (megabytes, seconds) = (report.bytes >> 20, self.begun.elapsed().as_secs());
        let of = self.total.map_or(String::new(), |total| format!(" of {}", total >> 20));
        let (keys, commands) = (report.keys, report.commands);
        (self.print)(&format!("{keys} keys, {commands} commands, {megabytes}{of} MB in {seconds} s"));
    }

    pub(super) fn say(&mut self, text: &str) {
        (self.print)(text);
    }

    pub(super) fn elapsed(&self) -> Duration {
        self.begun.elapsed()
    }
}
