//! Checks that the server is alive and responsive, by one connection that pings all the time.
//!
//! A silence is a hang if the server's main thread has used the processor for longer than the limit, or has slept
//! through several times the limit. Wall-clock time alone proves nothing on a shared machine. -BUSY is a reply, and so
//! is a refusal of a new connection.

use std::process::Command;
use std::time::{Duration, Instant};

use super::server::Server;
use super::wire::{Connection, encode, words};
use super::world::World;

/// Pause between two pings.
const PAUSE: Duration = Duration::from_millis(20);
/// Interval between two checks of a silence.
const LOOK: Duration = Duration::from_millis(20);
/// A server that is idle and silent for this many times the limit is blocked.
const BLOCKED_FACTOR: u32 = 5;

/// Watches until the keepers are done or the run has failed.
pub(crate) fn watch(world: &World, server: &mut Server, is_done: impl Fn() -> bool) {
    let mut connection = None;
    while !is_done() {
        if let Some(status) = server.exit_status() {
            world.fail(format!("the server ended: {status}\n{}", server.log_tail()));
            return;
        }
        let rss = world.process.rss_bytes();
        world.stats.largest_rss_bytes.raise_to(rss);
        if rss > world.options.rss_limit_bytes {
            world.fail(format!("the server's resident memory is {} MB\n{}", rss >> 20, server.log_tail()));
            world.process.kill();
            return;
        }
        if let Some(silence) = ping(world, &mut connection) {
            world.fail(format!("the server hangs: {silence}\n{}", server.log_tail()));
            world.process.kill();
            return;
        }
        std::thread::sleep(PAUSE);
    }
}

/// Sends one PING; returns a diagnosis of the silence if there is one. The next call replaces a lost connection.
fn ping(world: &World, connection: &mut Option<Connection>) -> Option<String> {
    let (began, cpu_before) = (Instant::now(), world.process.cpu());
    if connection.is_none() {
        *connection = Connection::open(world.port).ok();
    }
    let open = connection.as_mut()?;
    let mut bytes = Vec::new();
    encode(&words(&["PING"]), &mut bytes);
    if open.send(&bytes).is_err() {
        *connection = None;
        return None;
    }
    loop {
        match open.reply(LOOK) {
            Ok(Some(_)) => break,
            Ok(None) => {}
            Err(_) => {
                *connection = None;
                return None;
            }
        }
        let (waited, used) = (began.elapsed(), world.process.cpu().saturating_sub(cpu_before));
        let is_blocked =
            waited > world.options.hang * BLOCKED_FACTOR && used < waited / 10 && world.process.state() != "R";
        if used > world.options.hang || is_blocked {
            let state = world.process.state();
            let seen = diagnosis(world);
            // Waiting for a late reply tells a long command from an endless one, and gives the log time to name it.
            let answer = open.reply(world.options.hang * BLOCKED_FACTOR);
            let end = if matches!(answer, Ok(Some(_))) { "answered" } else { "still silent" };
            let known = format!("silent for {waited:?}, {used:?} of it on the processor, state {state}");
            return Some(format!("{known}; {end} after {:?}{seen}", began.elapsed()));
        }
    }
    world.stats.pings.add(1);
    world.stats.longest_wait_ms.raise_to(began.elapsed().as_millis() as u64);
    world.stats.longest_wait_cpu_ms.raise_to(world.process.cpu().saturating_sub(cpu_before).as_millis() as u64);
    None
}

/// The output of the command that was given for this case, about the process.
fn diagnosis(world: &World) -> String {
    if world.options.at_hang.is_empty() {
        return String::new();
    }
    let mut command = Command::new("sh");
    command.args(["-c", &world.options.at_hang]).env("PID", world.process.0.to_string());
    match command.output() {
        Ok(output) => format!("\n{}", String::from_utf8_lossy(&output.stdout)),
        Err(error) => format!("\n{error}"),
    }
}
