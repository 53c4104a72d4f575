//! The connections and the running command, for threads other than the engine's.
//!
//! The engine notes the beginning of a command with three relaxed stores into one cache line, and the end of a batch
//! with one. The watch ([`watch_for_stalls`]) reads them twice a second, so that the text log names a command that
//! holds up all clients while it still runs, not after.

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use dashmap::DashMap;
use quanta::Clock;

use crate::base::fit::fit_shared_map;
use crate::session::limits::STALL_WARNING;
use crate::spec::session_key::SessionKey;
use crate::spec::table::CommandTable;

/// Facts about a connection for other threads.
#[derive(Clone, Debug, Default)]
pub(crate) struct Client {
    /// Peer address.
    pub address: String,
    /// CLIENT SETNAME.
    pub name: String,
}

/// Whether the server can serve its clients, and if not, why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Readiness {
    /// Its data is being loaded.
    Loading,
    /// Changes can't be saved and are refused.
    Unlogged,
    /// It follows the leader of its group, and serves reads to those who ask for that.
    Following,
    /// Everything is served.
    Ready,
    /// A command or script holds it: other clients get -BUSY or wait.
    Busy,
}

/// See the module's header.
#[derive(Debug, Default)]
pub struct Registry {
    readiness: AtomicU8,
    /// After how many ms a running command counts as holding up the others.
    busy_after_ms: AtomicU64,
    clock: Clock,
    clients: DashMap<u64, Client>,
    running: Running,
}

/// The command that runs, on a cache line of its own.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Running {
    /// The client's id.
    client: AtomicU64,
    /// The index of the command's id in its table.
    command: AtomicU64,
    /// When it began, in ticks of the processor's clock; 0 while nothing runs.
    since_ticks: AtomicU64,
}

impl Registry {
    /// Notes a new connection.
    pub fn connected(&self, key: SessionKey, address: &str) {
        self.clients.insert(key.id, Client { address: address.to_owned(), name: String::new() });
    }

    /// Notes a connection's name.
    pub fn named(&self, key: SessionKey, name: &[u8]) {
        if let Some(mut client) = self.clients.get_mut(&key.id) {
            client.name = String::from_utf8_lossy(name).into_owned();
        }
    }

    /// Forgets a connection.
    pub fn disconnected(&self, key: SessionKey) {
        self.clients.remove(&key.id);
    }

    /// Frees the memory of closed connections. Locks every part of the table.
    pub(crate) fn give_back(&self) {
        fit_shared_map(&self.clients);
    }

    /// Notes whether the server can serve. A command that runs for `busy_after_ms` makes it busy.
    pub fn is(&self, readiness: Readiness, busy_after_ms: u64) {
        self.readiness.store(readiness as u8, Ordering::Relaxed);
        self.busy_after_ms.store(busy_after_ms, Ordering::Relaxed);
    }

    /// Returns whether the server can serve its clients. It is ready if it would answer PING with PONG.
    pub fn readiness(&self) -> Readiness {
        let busy_after = Duration::from_millis(self.busy_after_ms.load(Ordering::Relaxed));
        if self.running_for().is_some_and(|ran| ran >= busy_after) {
            return Readiness::Busy;
        }
        match self.readiness.load(Ordering::Relaxed) {
            0 => Readiness::Loading,
            1 => Readiness::Unlogged,
            2 => Readiness::Following,
            _ => Readiness::Ready,
        }
    }

    /// Returns for how long a command has been running; `None` when none runs.
    pub(crate) fn running_for(&self) -> Option<Duration> {
        self.running().map(|(.., since_ticks)| self.clock.delta(since_ticks, self.clock.raw()))
    }

    /// Notes that a command begins, by the index of its id.
    #[inline]
    pub fn begins(&self, key: SessionKey, command: usize, ticks: u64) {
        self.running.client.store(key.id, Ordering::Relaxed);
        self.running.command.store(command as u64, Ordering::Relaxed);
        self.running.since_ticks.store(ticks, Ordering::Relaxed);
    }

    /// Notes that no command runs.
    #[inline]
    pub fn rests(&self) {
        self.running.since_ticks.store(0, Ordering::Relaxed);
    }

    /// Returns the running client and command, and since when in ticks; `None` when no command runs or it has just
    /// changed.
    fn running(&self) -> Option<(u64, usize, u64)> {
        let since_ticks = self.running.since_ticks.load(Ordering::Acquire);
        let client = self.running.client.load(Ordering::Acquire);
        let command = self.running.command.load(Ordering::Acquire);
        let unchanged = self.running.since_ticks.load(Ordering::Acquire) == since_ticks;
        (since_ticks != 0 && unchanged).then_some((client, command as usize, since_ticks))
    }
}

/// Watches from a thread of its own, until the registry is gone, and warns of each command that holds the engine for
/// longer than [`STALL_WARNING`]: then, and whenever it has taken twice as long again.
pub(crate) fn watch_for_stalls<R: Sync>(
    registry: &Arc<Registry>,
    table: &'static CommandTable<R>,
) -> std::io::Result<()> {
    let registry = Arc::downgrade(registry);
    std::thread::Builder::new().name("stall-watch".to_owned()).spawn(move || watch(&registry, table))?;
    Ok(())
}

fn watch<R>(registry: &Weak<Registry>, table: &CommandTable<R>) {
    let clock = Clock::new();
    let mut warned = (0, Duration::ZERO);
    while let Some(registry) = registry.upgrade() {
        if let Some((client, command, since_ticks)) = registry.running() {
            let ran = clock.delta(since_ticks, clock.raw());
            let next = if warned.0 == since_ticks { warned.1 * 2 } else { STALL_WARNING };
            if ran >= next {
                warned = (since_ticks, ran);
                let Client { address, name } = registry.clients.get(&client).map(|at| at.clone()).unwrap_or_default();
                let command = table.by_index(command).map_or("?", |entry| &entry.full_name);
                let ran_ms = ran.as_millis() as u64;
                tracing::warn!(client, address, name, command, ran_ms, "a command is holding up all others");
            }
        }
        drop(registry);
        std::thread::sleep(STALL_WARNING / 2);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::{Peer, Sessions};

    #[test]
    fn the_memory_of_closed_connections_is_given_back() {
        let registry = Registry::default();
        let mut sessions = Sessions::default();
        let keys: Vec<SessionKey> = (0..10_000).map(|_| sessions.open(Peer::default(), false, 0)).collect();
        keys.iter().for_each(|key| registry.connected(*key, "1.2.3.4:5"));
        keys.iter().skip(1).for_each(|key| registry.disconnected(*key));
        registry.give_back();
        assert!(registry.clients.capacity() < 100, "{}", registry.clients.capacity());
        assert!(registry.clients.contains_key(&keys[0].id));
    }

    #[test]
    fn the_running_command_is_known_until_the_engine_rests() {
        let registry = Registry::default();
        let key = Sessions::default().open(Peer::default(), false, 0);
        registry.connected(key, "1.2.3.4:5");
        registry.named(key, b"worker");
        assert_eq!(registry.running(), None);
        registry.begins(key, 7, 1_000);
        assert_eq!(registry.running(), Some((key.id, 7, 1_000)));
        registry.rests();
        assert_eq!(registry.running(), None);
        assert_eq!(registry.clients.get(&key.id).map(|client| client.name.clone()), Some("worker".to_owned()));
        registry.disconnected(key);
        assert!(registry.clients.is_empty());
    }
}
