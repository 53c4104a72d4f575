//! The simulation of a whole server: clients, the engine, its journal and its snapshots over a simulated disk and
//! clock, without threads. One seed decides the requests, the disk's progress, the failures and the power losses; the
//! same seed gives the same run. After each crash a server starts on the remaining data, which is compared with the
//! replies that clients had received:
//!
//! - data shown to a client is there, whether the client changed it, read it, or received it as an event: after a loss
//!   of power if `appendfsync` promised so when the reply left, after kill -9 always;
//! - the data is the result of whole units, in order, with nothing invented;
//! - a second engine that repeats the journal's units, one by one, has the same data as the first at any time;
//! - a crash alone never looks like damage.
//!
//! The data shown by a reply is identified here by the last unit that changed a key of the request. The engine's fences
//! are not consulted. Rare states are counted, and a run that has not reached them all fails; planted bugs show that
//! the simulation can fail. `SUITE_ROUNDS` gives the number of seeds, starting at `SUITE_SEED`.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use crate::base::clock::Clock;
use crate::base::rng::Rng;
use crate::command;
use crate::config::{AllowFrom, AppendFsync, Config};
use crate::engine::Engine;
use crate::engine::persistence::recovery::{Loading, Recovered};
use crate::keyspace::effect::{Effect, EffectReader, EffectWriter, Recording};
use crate::log::directory::{Directory, DirectoryId};
use crate::log::error::LogError;
use crate::log::group_commit::{Options, SyncPolicy};
use crate::log::planted::{Bug, plant};
use crate::log::platform::Platform;
use crate::log::reached::{reached, seeds};
use crate::log::sim::{Faults, SimDisk};
use crate::persist::error::RecoveryError;
use crate::persist::snapshot_stream::SnapshotStream;
use crate::script::without_alarm;
use crate::value::Layout;

mod life;
pub(super) mod requests;

use life::Life;
use requests::{Kinds, What};

const DIRECTORY: &str = "/data/tidegate-data";
/// Seeds of the test.
const SEEDS: u64 = 40;
/// Successive servers on one disk.
const LIVES: u64 = 8;
const OPTIONS: Options = Options {
    policy: SyncPolicy::Always,
    segment_bytes: 16 * 1024,
    first_segment_bytes: 8 * 1024,
    prepared_segments: 2,
    reserve_bytes: 8 * 1024,
    may_wait_for_space: true,
};

reached! {
    power_losses "losses of power"
    kills "kills"
    clean_ends "clean ends"
    crashes_at_start "crashes while a server started"
    replies "replies"
    held "replies that had to wait for the disk"
    told "replies that showed what may not be lost"
    lost_untold "units that were lost, of which nobody had been told"
    lost_promised_less "replies whose change was lost, as appendfsync allows"
    transactions "transactions"
    interleaved "transactions between whose commands others were served"
    watched "transactions of a client that watched a key which nobody changed"
    undone "transactions that were not run because a watched key had changed"
    delivered "entries of a stream that a group was given"
    acknowledged "entries that were acknowledged"
    delayed "messages that were to become entries later"
    released "units in which delayed messages became entries"
    scripts "scripts that changed something"
    failed_scripts "scripts that were rolled back"
    functions "calls of a function"
    woken "blocked clients that were served"
    timed_out "blocked clients that were not"
    heard "messages"
    invalidated "messages about changed keys"
    events "events of keys"
    events_of_reads "events of keys that a unit has found, and not changed"
    expired "units that removed what had expired"
    granted "places and units that were granted"
    lapsed "units that ended leases"
    synced "replies to WAITAOF"
    closed_sessions "clients that were disconnected because the log had failed"
    refused "commands that were refused by a full or failed log"
    full "full disks"
    healed "disks that have space again"
    failed "failed logs"
    snapshots "complete snapshots"
    snapshots_failed "snapshots that failed"
    snapshots_read "starts from a snapshot"
    changed_while_copied "units that were committed while keys were copied into a snapshot"
    changed_inside_value "units that were committed while a part of a large value had been copied"
    reloads "reloads"
    reloads_failed "reloads that failed"
    torn "starts that cut off a torn tail"
    logs_closed "logs that were closed while the server ran"
    logs_begun "logs that have begun while the server ran"
    logs_not_begun "logs that could not begin"
    starts_without_log "starts without a log"
    saved_without_log "snapshots without a log"
    split_units "units that were read in several pieces"
    split_parts "blocks and frames that were read in several pieces, which end with a unit"
}

/// The data: for each key of each database the effects that make it, and likewise for data kept beside the keys.
pub(super) type State = BTreeMap<(u16, Vec<u8>), Vec<u8>>;

/// The database number under which scripts and libraries are in a [`State`].
const BESIDE: u16 = u16::MAX;

/// The data of an engine.
pub(super) fn state_of(engine: &mut Engine) -> State {
    let mut state = State::new();
    let (ks, scripts) = (&mut engine.ks, &engine.server.programs.scripts);
    let mut stream = SnapshotStream::begin(ks);
    let mut effects = EffectWriter::default();
    while !stream.copy_slice(ks, scripts, usize::MAX, &mut effects) {}
    for (db, effect) in EffectReader::new(effects.as_bytes()) {
        let key = match effect {
            // There is only one library.
            Effect::LibraryPut { .. } => (BESIDE, b"library".to_vec()),
            Effect::ScriptPut { body, .. } => (BESIDE, body.to_vec()),
            Effect::Limits { .. } | Effect::Expect { .. } => continue,
            effect => (db, effect.key().unwrap_or_default().to_vec()),
        };
        state.entry(key).or_default().extend(canonical(db, &effect));
    }
    state
}

/// An effect as bytes, with the elements of a table sorted: their order of arrival is not promised to any client.
fn canonical(db: u16, effect: &Effect<'_>) -> Vec<u8> {
    let bytes = |effect: &Effect<'_>| {
        let mut one = EffectWriter::default();
        one.write(db, effect);
        one.as_bytes().to_vec()
    };
    let is_of_table = |step: &Effect<'_>| {
        matches!(step, Effect::HashSet { .. } | Effect::SetAdd { .. } | Effect::ElementExpireAt { .. })
    };
    match *effect {
        Effect::Build { key, layout, steps } if EffectReader::new(steps).all(|(_, step)| is_of_table(&step)) => {
            let mut elements: Vec<Vec<u8>> = EffectReader::new(steps).map(|(_, step)| bytes(&step)).collect();
            if layout == Layout::Large {
                elements.sort_unstable();
            }
            [bytes(&Effect::Build { key, layout, steps: &[] }), elements.concat()].concat()
        }
        _ => bytes(effect),
    }
}

/// Data shown to a client that must not be lost.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Told {
    /// The last unit that was shown.
    lsn: u64,
    what: What,
    /// Whether the unit must survive a loss of power as well.
    is_synced: bool,
}

/// How a server ends.
#[derive(Clone, Copy, Debug, PartialEq)]
enum End {
    Kill,
    Power,
}

/// One disk, and the data that should be on it.
struct World {
    disk: SimDisk,
    clock: Clock,
    rng: Rng,
    /// The data after each unit. There may be several versions, where an attempt has failed and its extent is unknown.
    states: BTreeMap<u64, Vec<Rc<State>>>,
    /// All units up to this one are durable.
    kept: u64,
    told: Vec<Told>,
    /// The last unit so far.
    last: u64,
    capacity: Option<u64>,
    /// The number of requests so far.
    requests: u64,
    /// The number of kinds of requests.
    kinds: Kinds,
    /// The worst event since a server started.
    end: End,
    reached: Reached,
}

/// A failed check, as text.
type Verdict<T = ()> = Result<T, String>;

impl World {
    fn new(seed: u64, kinds: Kinds) -> World {
        World {
            disk: SimDisk::new(seed),
            clock: Clock::manual(1_800_000_000_000),
            rng: Rng::seeded(seed ^ 0x5e21e5),
            states: BTreeMap::from([(0, vec![Rc::default()])]),
            kept: 0,
            told: Vec::new(),
            last: 0,
            capacity: None,
            requests: 0,
            kinds,
            end: End::Kill,
            reached: Reached::default(),
        }
    }

    fn chance(&mut self, one_in: u64) -> bool {
        self.rng.below(one_in) == 0
    }

    /// Runs a server from its start to its end.
    fn live(&mut self, steps: u64, faults: Faults) -> Verdict {
        let sync_time = Duration::from_micros([20, 200, 3_000][self.rng.below(3) as usize]);
        self.disk.set_faults(Faults { capacity: self.capacity, sync_time, ..faults });
        match self.start()? {
            Some(life) => life.run(steps)?,
            None => self.reached.crashes_at_start += u64::from(self.disk.is_off()),
        }
        if self.chance(3) {
            self.disk.kill();
            self.reached.kills += 1;
        } else {
            self.end = End::Power;
            self.disk.crash();
            self.reached.power_losses += 1;
        }
        Ok(())
    }

    fn engine(&mut self, config: Config) -> Engine {
        let rng = Rng::seeded(self.rng.next_u64());
        let mut engine = Engine::new(config, command::table(), self.clock.clone(), rng).expect("memory for Lua");
        let disk = self.disk.clone();
        engine.server.persistence.saving.runs_on(Platform {
            disk: Arc::new(disk.clone()),
            clock: Arc::new(disk),
            options: OPTIONS,
            slice_bytes: 512,
            part_min_bytes: 256,
            load_piece_bytes: 400,
            has_threads: false,
        });
        engine
    }

    /// Starts a server, and compares its data with the expected data; `None` if the disk prevents the start.
    fn start(&mut self) -> Verdict<Option<Life<'_>>> {
        let appendfsync = [AppendFsync::Always, AppendFsync::Always, AppendFsync::EverySecond, AppendFsync::No]
            [self.rng.below(4) as usize];
        let config = Config {
            appendonly: !self.chance(8),
            appendfsync,
            enable_debug_command: AllowFrom::Yes,
            ..Config::default()
        };
        let has_log = config.appendonly;
        let mut engine = self.engine(config);
        let recovered = match self.recover(&mut engine, has_log) {
            Ok(recovered) => recovered,
            Err(RecoveryError::Log(LogError::Io { .. })) => return Ok(None),
            Err(error) => return Err(format!("refused after a mere crash: {error}")),
        };
        let state = Rc::new(state_of(&mut engine));
        self.compare(&recovered, &state)?;
        let last = recovered.last.get();
        self.reached.torn += u64::from(recovered.torn.is_some());
        self.reached.snapshots_read += u64::from(engine.server.persistence.saving.base_bytes() > 0);
        self.reached.starts_without_log += u64::from(!has_log);
        self.reached.lost_untold += self.last.saturating_sub(last);
        self.last = last;
        self.states.split_off(&(last + 1));
        self.states.insert(last, vec![Rc::clone(&state)]);
        self.told.retain(|told| told.lsn <= last);
        self.end = End::Kill;
        if has_log {
            // Recovered data is durable once the server has started.
            self.kept = last;
            self.told.clear();
        }
        Life::new(self, engine, state).map(Some)
    }

    fn recover(&mut self, engine: &mut Engine, has_log: bool) -> Result<Recovered, RecoveryError> {
        let disk = Arc::new(self.disk.clone());
        let directory = Directory::open(disk, Path::new(DIRECTORY), DirectoryId::new([0x5a; 16]))?;
        let mut loading = Loading::begin(engine, directory)?;
        while !loading.step(engine, 1)?.is_complete {
            match loading.is_inside_unit() {
                Some(true) => self.reached.split_units += 1,
                Some(false) => self.reached.split_parts += 1,
                None => {}
            }
        }
        match has_log {
            true => loading.finish(engine, Box::new(|| {})),
            false => loading.finish_without_log(engine).map(|(recovered, _)| recovered),
        }
    }

    fn compare(&mut self, recovered: &Recovered, state: &Rc<State>) -> Verdict {
        let last = recovered.last.get();
        if recovered.passed_over.is_some() {
            return Err("a snapshot was damaged by a mere crash".to_owned());
        }
        if last < self.kept {
            return Err(format!("{} had been durable, {last} is left", self.kept));
        }
        let lost = |told: &&Told| told.lsn > last;
        if let Some(told) = self.told.iter().filter(lost).find(|told| self.end == End::Kill || told.is_synced) {
            return Err(format!("{told:?} was shown, and {last} is left after {:?}", self.end));
        }
        self.reached.lost_promised_less += self.told.iter().filter(lost).count() as u64;
        match self.states.get(&last) {
            Some(states) if states.contains(state) => Ok(()),
            Some(states) => Err(format!("other data behind unit {last}: {}", difference(&states[0], state))),
            None => Err(format!("unit {last} was invented")),
        }
    }
}

/// The first key in which two states differ.
pub(super) fn difference(expected: &State, found: &State) -> String {
    let keys = expected.keys().chain(found.keys());
    let differs = |key: &&(u16, Vec<u8>)| expected.get(*key) != found.get(*key);
    let text = |bytes: Option<&Vec<u8>>| bytes.map_or("nothing".to_owned(), |bytes| bytes.escape_ascii().to_string());
    keys.clone().find(differs).map_or("in nothing".to_owned(), |key| {
        let (db, name) = (key.0, key.1.escape_ascii());
        format!("{name} of {db} should be {}, and is {}", text(expected.get(key)), text(found.get(key)))
    })
}

/// Repeats a unit on an engine.
fn repeat(engine: &mut Engine, effects: &[u8]) -> Verdict {
    engine.ks.begin_unit(0, Recording::Nothing);
    EffectReader::new(effects)
        .try_for_each(|(db, effect)| engine.apply(db, &effect).map_err(|misfit| format!("{effect:?}: {misfit}")))
}

/// Runs several servers on one disk, then starts a last one to check the remaining data.
fn run(seed: u64, kinds: Kinds) -> Verdict<World> {
    without_alarm(|| run_lives(seed, kinds))
}

fn run_lives(seed: u64, kinds: Kinds) -> Verdict<World> {
    let mut world = World::new(seed, kinds);
    let mut lives = || {
        for _ in 0..LIVES {
            let at = Some(world.disk.operations() + world.rng.below(250));
            let faults = match world.rng.below(4) {
                0 => Faults { fail_at: at, ..Faults::default() },
                1..3 => Faults { crash_at: at, ..Faults::default() },
                _ => Faults::default(),
            };
            let steps = 20 + world.rng.below(150);
            world.live(steps, faults)?;
        }
        world.capacity = None;
        world.live(0, Faults::default())
    };
    lives().map_err(|error| format!("seed {seed}: {error}"))?;
    Ok(world)
}

fn run_all(seeds: Range<u64>, kinds: Kinds) -> Verdict<Reached> {
    let mut reached = Reached::default();
    for seed in seeds {
        reached.add(&run(seed, kinds)?.reached);
    }
    Ok(reached)
}

#[test]
fn data_shown_to_clients_survives_every_end() {
    let reached = run_all(seeds(SEEDS), Kinds::All).unwrap_or_else(|error| panic!("{error}"));
    println!("{reached:?}");
    assert!(reached.missing().is_empty(), "not reached: {:?}", reached.missing());
}

#[test]
fn a_seed_repeats_its_run() {
    for seed in 0..5 {
        let run = || run(seed, Kinds::All).map(|world| (world.disk.trace(0), world.told, world.reached)).unwrap();
        assert!(run() == run(), "{seed}");
    }
}

/// The simulation's finding about a server with this bug. Delayed messages are not needed to find any of the bugs.
fn with(bug: Bug) -> String {
    plant(Some(bug));
    let found = run_all(0..SEEDS, Kinds::WithoutDelays);
    plant(None);
    found.expect_err(&format!("{bug:?} was not found"))
}

#[test]
fn bugs_that_lose_shown_data_are_found() {
    for bug in [Bug::NoFence, Bug::NoFenceOfInvalidations, Bug::NoFenceOnEvents, Bug::NoSync, Bug::NoCopyOfTheTail] {
        let error = with(bug);
        let lost = ["was shown, and", "had been durable", "refused after a mere crash", "other data"];
        assert!(lost.iter().any(|why| error.contains(why)), "{bug:?}: {error}");
    }
}
