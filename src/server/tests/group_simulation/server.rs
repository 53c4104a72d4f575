//! One server of the simulation: its machine with disk and clocks, and its process from a start to an end.

use std::collections::BTreeMap;
use std::mem;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::base::clock::Clock;
use crate::base::node_address::NodeAddress;
use crate::base::rng::Rng;
use crate::command;
use crate::config::Config;
use crate::consensus::fetch::Fetcher;
use crate::engine::Engine;
use crate::engine::persistence::following::Following;
use crate::log::directory::{Directory, DirectoryId};
use crate::log::group_commit::{Options, SyncPolicy};
use crate::log::identity::Owner;
use crate::log::platform::Platform;
use crate::log::replicated::log::EntryLog;
use crate::log::replicated::members::{Home, Members};
use crate::log::replicated::recovery::newest_snapshot;
use crate::log::replicated::types::{GroupId, NodeId};
use crate::log::sim::{Faults, SimDisk};
use crate::node::door::Door;
use crate::node::error::NodeError;
use crate::node::opening;
use crate::node::turns::{Arrived, Bounds, Turns};
use crate::persist::group::GroupLog;
use crate::persist::journal::Journal;
use crate::persist::saving::Purpose;

const DIRECTORY: &str = "/node";
const OPTIONS: Options = Options {
    policy: SyncPolicy::Always,
    segment_bytes: 12 * 1024,
    first_segment_bytes: 6 * 1024,
    prepared_segments: 1,
    reserve_bytes: 4 * 1024,
    may_wait_for_space: true,
};

/// A leader whose engine or disk does nothing for this long hands leadership over.
pub(super) const STUCK_AFTER: Duration = Duration::from_millis(700);

/// A machine with one node.
pub(super) struct Server {
    pub(super) id: NodeId,
    pub(super) disk: SimDisk,
    pub(super) clock: Clock,
    /// Speed of the clocks, in millionths of the true one.
    clock_rate: u64,
    /// The true time at which the clocks were last moved.
    moved_at: u64,
    bounds: Bounds,
    /// Counts the lives of the process: what an earlier one has begun does not reach a later one.
    pub(super) life: u64,
    /// `None` while it is down.
    pub(super) process: Option<Process>,
    /// The process does nothing before this time, or its engine does not.
    pub(super) paused_until: u64,
    pub(super) busy_until: u64,
    /// No write ends before this time, and each takes up to so much longer.
    pub(super) hangs_until: u64,
    pub(super) slow_by: u64,
    /// It was removed from the group, and never comes back.
    pub(super) is_gone: bool,
}

/// A process.
pub(super) struct Process {
    pub(super) engine: Engine,
    pub(super) following: Following,
    pub(super) turns: Turns,
    pub(super) log: Arc<EntryLog>,
    pub(super) directory: Arc<Directory>,
    pub(super) door: Arc<Door>,
    pub(super) fetcher: Fetcher,
    /// What has arrived for the next turn.
    pub(super) arrived: Arrived,
    /// The node or a snapshot has news for the engine.
    is_woken: Arc<AtomicBool>,
    /// Work that is on its way already.
    pub(super) awaits: Awaits,
    /// Whether the last turn was one of a leader.
    pub(super) led: bool,
}

/// Events of a process that will come without being asked for again.
#[derive(Default)]
pub(super) struct Awaits {
    pub(super) turn: bool,
    pub(super) engine: bool,
    pub(super) write: bool,
    pub(super) save: bool,
}

/// What a start has come to.
pub(super) enum Started {
    Up,
    /// The power failed meanwhile.
    Down,
    /// The disk is full.
    Full,
}

impl Server {
    pub(super) fn new(id: NodeId, now: u64, keep_bytes: u64, memory_bytes: u64, rng: &mut Rng) -> Server {
        let (engine_stuck_after, disk_stuck_after) = (STUCK_AFTER, STUCK_AFTER);
        Server {
            id,
            disk: SimDisk::new(rng.next_u64()),
            clock: Clock::manual_of_node(1_800_000_000_000 + rng.below(400) as i64),
            clock_rate: 936_000 + rng.below(128_000),
            moved_at: now,
            bounds: Bounds { keep_bytes, memory_bytes, engine_stuck_after, disk_stuck_after },
            life: 0,
            process: None,
            paused_until: 0,
            busy_until: 0,
            hangs_until: 0,
            slow_by: 0,
            is_gone: false,
        }
    }

    /// Returns where the node is, and which directory it has.
    pub(super) fn home(&self) -> Home {
        let address = NodeAddress::new(&format!("node-{}.test", self.id), 6379, 16379).expect("it is one");
        Home { address, birth: self.directory_id().birth() }
    }

    fn directory_id(&self) -> DirectoryId {
        DirectoryId::new([self.id.get() as u8; 16])
    }

    /// Moves the clocks to the true time `now`.
    pub(super) fn tell_time(&mut self, now: u64) {
        let passed = now - mem::replace(&mut self.moved_at, now);
        self.clock.advance_us((passed * self.clock_rate / 1_000_000) as i64);
    }

    /// Starts the process as `server/member.rs` and the thread of the node do. It is one of the founders, or joins.
    pub(super) fn start(&mut self, founders: &BTreeMap<NodeId, Home>, read_lease: bool, rng: &mut Rng) -> Started {
        self.life += 1;
        (self.paused_until, self.busy_until) = (0, 0);
        let started = self.open(founders, read_lease, rng);
        if self.disk.is_off() {
            return Started::Down;
        }
        match started {
            Ok(process) => {
                self.process = Some(process);
                Started::Up
            }
            Err(error) if is_full(&error) => Started::Full,
            Err(error) => panic!("node {} does not start after a mere crash: {error}", self.id),
        }
    }

    fn open(&self, founders: &BTreeMap<NodeId, Home>, read_lease: bool, rng: &mut Rng) -> Result<Process, NodeError> {
        let platform = Platform {
            disk: Arc::new(self.disk.clone()),
            clock: Arc::new(self.disk.clone()),
            options: OPTIONS,
            slice_bytes: 512,
            part_min_bytes: 256,
            load_piece_bytes: 400,
            has_threads: false,
        };
        let owner = Owner::Node { group: GroupId(0), node: self.id };
        let disk = Arc::clone(&platform.disk);
        let directory = Arc::new(Directory::open_as(owner, disk, Path::new(DIRECTORY), self.directory_id())?);
        // Whoever does the threads' work sees by itself what is durable.
        let notify: opening::Notify = Box::new(|| {});
        let (recovered, log) = match newest_snapshot(&directory)? {
            None if founders.contains_key(&self.id) => {
                let stamp = (rng.next_u64(), self.clock.now_ms());
                opening::found(&directory, Members::of(founders.clone()), &platform, notify, stamp)?
            }
            snapshot => opening::open(&directory, snapshot, &platform, notify)?,
        };
        let is_woken = Arc::<AtomicBool>::default();
        let wake = {
            let is_woken = Arc::clone(&is_woken);
            move || is_woken.store(true, Ordering::Relaxed)
        };
        let (log, door) = (Arc::new(log), Arc::new(Door::new(self.clock.clone(), Box::new(wake.clone()))));
        let seed = rng.next_u64();
        let turns = Turns::new(self.id, recovered, Arc::clone(&log), Arc::clone(&door), self.bounds, seed)?;
        let (rng, rng_of_snapshots) = (Rng::seeded(rng.next_u64()), Rng::seeded(rng.next_u64()));
        let config = Config { node_id: self.id.get(), read_lease, ..Config::default() };
        let mut engine = Engine::new(config, command::table(), self.clock.clone(), rng).expect("memory for Lua");
        engine.server.persistence.saving.runs_on(platform);
        engine.server.persistence.saving.rng = rng_of_snapshots;
        engine.server.persistence.saving.wakes(Arc::new(wake), Arc::new(|| {}));
        let mut following = Following::begin(&mut engine, Arc::clone(&directory), Arc::clone(&door), None);
        following.set_slice_bytes(2 * 1024);
        let (fetcher, arrived, awaits) = (Fetcher::default(), Arrived::default(), Awaits::default());
        Ok(Process { engine, following, turns, log, directory, door, fetcher, arrived, is_woken, awaits, led: false })
    }

    /// Lets the power fail after so many operations of the disk.
    pub(super) fn crash_in(&mut self, operations: u64) {
        self.disk.set_faults(Faults { crash_at: Some(self.disk.operations() + operations), ..Faults::default() });
    }

    /// Lets the power fail no more.
    pub(super) fn stay_up(&mut self) {
        self.disk.set_faults(Faults::default());
    }

    /// Ends the process without a word, by a loss of power or a kill.
    pub(super) fn stop(&mut self, is_power_loss: bool) {
        // Nobody tidies up.
        self.disk.turn_off();
        self.process = None;
        self.life += 1;
        if is_power_loss {
            self.disk.crash();
        } else {
            self.disk.kill();
        }
    }

    /// Ends the process cleanly: the node has handed over.
    pub(super) fn close(&mut self) {
        let Some(Process { mut engine, following, turns, log, .. }) = self.process.take() else { return };
        self.life += 1;
        drop(log);
        turns.close();
        drop(following);
        engine.server.persistence.close().expect("there is no journal of its own");
        drop(engine);
        self.disk.kill();
    }

    /// Returns the process of this life.
    pub(super) fn process(&mut self, life: u64) -> Option<&mut Process> {
        self.process.as_mut().filter(|_| self.life == life)
    }

    pub(super) fn describe(&self) -> String {
        let Server { id, is_gone, .. } = self;
        let Some(process) = &self.process else { return format!("node {id} down (gone: {is_gone})") };
        let (group, is_loading) = (process.group(), process.engine.server.persistence.loading.is_some());
        format!(
            "node {id}: leads {} / {}, leader {:?}, at {:?}, loading {is_loading}, log {:?}, durable {}, members {:?}",
            process.turns.leads(),
            group.leads(),
            group.leader(),
            group.position(),
            process.log.state(),
            process.log.durable(),
            process.turns.members().voters,
        )
    }
}

impl Process {
    /// Returns the group's side of the journal.
    pub(super) fn group(&self) -> &GroupLog {
        let journal = self.engine.server.persistence.journal.as_ref();
        journal.and_then(Journal::member).expect("it is the engine of a node")
    }

    /// Whether the engine executes what clients write.
    pub(super) fn leads(&self) -> bool {
        self.group().leads()
    }

    /// Whether the data is exactly what the group has committed up to some unit.
    pub(super) fn is_settled(&self) -> bool {
        let persistence = &self.engine.server.persistence;
        let has_tail = persistence.tail.as_ref().is_some_and(|tail| tail.units > 0);
        persistence.loading.is_none() && !self.group().is_ahead() && !has_tail
    }

    pub(super) fn snapshots_made(&self) -> u64 {
        let saving = &self.engine.server.persistence.saving;
        [Purpose::Save, Purpose::Rewrite].iter().map(|purpose| saving.history(*purpose).done).sum()
    }

    /// Whether the engine has something to do.
    pub(super) fn take_woken(&self) -> bool {
        self.is_woken.swap(false, Ordering::Relaxed)
    }
}

/// Whether a start has failed for lack of space only.
fn is_full(error: &NodeError) -> bool {
    let text = error.to_string();
    [std::io::ErrorKind::StorageFull, std::io::ErrorKind::QuotaExceeded]
        .iter()
        .any(|kind| text.contains(&kind.to_string()))
}
