//! State that all threads of a run share: the options, the calls sent last, the counts, and the failure.

use std::collections::VecDeque;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::calls::Calls;
use super::options::Options;
use super::scripts::Scripts;
use super::server::{Doors, Process};

/// Number of a client's last actions that a failure shows.
const SHOWN: usize = 8;
/// Number of actions that are kept: those on connections that the server's log names are shown, too.
const NOTED: usize = 200;

pub(crate) struct World {
    pub options: Options,
    pub port: u16,
    pub doors: Doors,
    pub process: Process,
    pub calls: Calls,
    pub scripts: Scripts,
    pub stats: Stats,
    over: AtomicBool,
    bad_clients_gone: AtomicBool,
    noted: Vec<Mutex<VecDeque<String>>>,
    failures: Mutex<Vec<String>>,
}

/// The counts of a run.
#[derive(Default)]
pub(crate) struct Stats {
    pub commands: Count,
    pub scripts: Count,
    pub vanished: Count,
    pub kills: Count,
    pub pings: Count,
    /// Calls of keepers that succeeded.
    pub kept: Count,
    /// Calls of keepers that got an expected refusal, or whose connection was lost.
    pub refused: Count,
    /// The longest wait for a reply to PING, in milliseconds, and how much of it the server used the processor.
    pub longest_wait_ms: Count,
    pub longest_wait_cpu_ms: Count,
    pub largest_rss_bytes: Count,
}

#[derive(Default)]
pub(crate) struct Count(AtomicU64);

impl Count {
    pub(crate) fn add(&self, n: u64) {
        self.0.fetch_add(n, Ordering::Relaxed);
    }

    pub(crate) fn raise_to(&self, n: u64) {
        self.0.fetch_max(n, Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl World {
    pub(crate) fn new(
        options: Options,
        (port, doors): (u16, Doors),
        process: Process,
        calls: Calls,
        scripts: Scripts,
    ) -> World {
        let noted = (0..options.clients).map(|_| Mutex::default()).collect();
        let (over, bad_clients_gone) = (AtomicBool::new(false), AtomicBool::new(false));
        let (stats, failures) = (Stats::default(), Mutex::default());
        World { options, port, doors, process, calls, scripts, stats, over, bad_clients_gone, noted, failures }
    }

    /// Whether the bad clients must stop.
    pub(crate) fn is_over(&self) -> bool {
        self.over.load(Ordering::Relaxed)
    }

    pub(crate) fn end(&self) {
        self.over.store(true, Ordering::Relaxed);
    }

    /// Whether the bad clients are gone, so that keepers end their work.
    pub(crate) fn are_bad_clients_gone(&self) -> bool {
        self.bad_clients_gone.load(Ordering::Relaxed)
    }

    pub(crate) fn set_bad_clients_gone(&self) {
        self.bad_clients_gone.store(true, Ordering::Relaxed);
    }

    /// Notes an action of a client.
    pub(crate) fn note(&self, client: usize, text: String) {
        let mut noted = self.noted[client].lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        if noted.len() == NOTED {
            noted.pop_front();
        }
        noted.push_back(text);
    }

    /// Notes a failure, which ends the run.
    pub(crate) fn fail(&self, why: String) {
        let mut failures = self.failures.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        if failures.is_empty() {
            eprintln!("FAILED: {why}");
            self.print_noted(&why);
        }
        failures.push(why);
        self.end();
    }

    pub(crate) fn has_failed(&self) -> bool {
        !self.failures().is_empty()
    }

    pub(crate) fn failures(&self) -> Vec<String> {
        self.failures.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).clone()
    }

    fn print_noted(&self, why: &str) {
        for (client, noted) in self.noted.iter().enumerate() {
            let noted = noted.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
            let is_named = |text: &&String| {
                text.strip_prefix("(port ")
                    .and_then(|rest| rest.split_once(')'))
                    .is_some_and(|(port, _)| why.contains(&format!("127.0.0.1:{port}\"")))
            };
            for (what, texts) in [
                ("on a connection that the log names", noted.iter().filter(is_named).collect::<Vec<_>>()),
                ("the latest last", noted.iter().skip(noted.len().saturating_sub(SHOWN)).collect()),
            ] {
                eprintln!("client {client}, {what}:");
                texts.iter().for_each(|text| eprintln!("    {}", &text[..text.floor_char_boundary(3_000)]));
            }
        }
    }
}
