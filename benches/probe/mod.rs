//! How long a server keeps a light client waiting: one request per millisecond, from a connection of its own.
//!
//! The loop is open: a request is sent when its time has come, whether or not the previous one was answered, and its
//! wait begins at that time. So a stall of 10 ms counts ten times, as ten users would feel it. The probing thread has
//! real-time priority where the system allows it (root): otherwise it would measure how long the system lets others run
//! on its core.

#![allow(dead_code, reason = "each bench takes what it needs")]

use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::peer::{Server, connection::Connection};
use crate::requests::encode;

/// The time between two requests.
const INTERVAL: Duration = Duration::from_millis(1);

/// An upper bound for the arrival of the last reply.
const LAST_REPLY: Duration = Duration::from_secs(10);

/// The waits of a probe.
pub(crate) struct Waits {
    /// In ascending order.
    ms: Vec<f64>,
}

impl Waits {
    /// The wait that this share of all waits, in percent, did not exceed.
    pub(crate) fn percentile(&self, percent: f64) -> f64 {
        let rank = (self.ms.len() as f64 * percent / 100.0).ceil() as usize;
        self.ms[rank.clamp(1, self.ms.len()) - 1]
    }

    pub(crate) fn longest(&self) -> f64 {
        self.percentile(100.0)
    }

    /// How many waits per thousand were longer than `ms`.
    pub(crate) fn per_mille_beyond(&self, ms: f64) -> f64 {
        (self.ms.len() - self.ms.partition_point(|&wait| wait <= ms)) as f64 * 1e3 / self.ms.len() as f64
    }
}

/// Probes the server by GET for as long as `meanwhile` runs. Returns the waits and the result of `meanwhile`.
pub(crate) fn probe_while<T>(server: &Server, meanwhile: impl FnOnce() -> T) -> (Waits, T) {
    probe_by(&["GET", "probe"], server, meanwhile)
}

/// As [`probe_while`], by another command.
pub(crate) fn probe_by<T>(command: &[&str], server: &Server, meanwhile: impl FnOnce() -> T) -> (Waits, T) {
    let (is_over, request) = (AtomicBool::new(false), encode(command));
    std::thread::scope(|scope| {
        let probe = scope.spawn(|| probe(server, &request, &is_over));
        let result = meanwhile();
        is_over.store(true, Ordering::Relaxed);
        (probe.join().expect("the probe does not panic"), result)
    })
}

fn probe(server: &Server, request: &[u8], is_over: &AtomicBool) -> Waits {
    let mut connection = Connection::new(server);
    come_first();
    let (mut ms, mut sent) = (Vec::new(), 0);
    let begin = Instant::now();
    let due = |number: usize| begin + INTERVAL * number as u32;
    loop {
        let goes_on = !is_over.load(Ordering::Relaxed);
        while goes_on && due(sent) <= Instant::now() {
            connection.send(request);
            sent += 1;
        }
        if !goes_on && ms.len() == sent && sent > 0 {
            break;
        }
        let patience = if goes_on { due(sent).saturating_duration_since(Instant::now()) } else { LAST_REPLY };
        if is_readable_within(&connection, patience) {
            let replies = connection.receive_some();
            let now = Instant::now();
            for _ in 0..replies {
                ms.push((now - due(ms.len())).as_secs_f64() * 1e3);
            }
        }
    }
    ms.sort_by(f64::total_cmp);
    Waits { ms }
}

fn is_readable_within(connection: &Connection, patience: Duration) -> bool {
    let mut poll = libc::pollfd { fd: connection.stream.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    let timeout = libc::timespec { tv_sec: patience.as_secs() as i64, tv_nsec: i64::from(patience.subsec_nanos()) };
    // SAFETY: one descriptor, open while the connection lives, and a time, both read before the call returns; no signal
    // mask.
    unsafe { libc::ppoll(&raw mut poll, 1, &raw const timeout, std::ptr::null()) > 0 }
}

/// Lets this thread run as soon as it has work.
fn come_first() {
    let priority = libc::sched_param { sched_priority: 1 };
    // SAFETY: the call reads the struct that it is given. Where it is not allowed, the priority stays.
    unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &priority) };
}

/// Lets this thread run only when no other needs the core, as clients on other machines would.
pub(crate) fn give_way() {
    // SAFETY: the call takes no pointers. Where it fails, the priority stays.
    unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, 10) };
}
