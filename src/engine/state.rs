//! The state of the engine, and the context that a command's handler gets. The methods belong to the parts of the state
//! that they touch.
//!
//! These types know each other: the [`ServerState`] holds the table of commands, a command's [`Run`] is a function of a
//! [`Ctx`], and the context lends the function the [`ServerState`] again. Their parts lie below and know none of them:
//! connections ([`Session`]), watchers, subscribers, waiters, statistics, the journal and the scripts.

use std::io::IoSlice;
use std::sync::Arc;
use std::time::Duration;

use super::memory::Memory;
use super::meters::Meters;
use super::meters::command_log::CommandLog;
use super::meters::latency::LatencyMonitor;
use super::meters::stats::Stats;
use super::meters::turns::Turns;
use super::observe::audience::Audience;
use super::observe::readers::Readers;
use super::run::pipeline::Pipeline;
use super::run::shutdown::Ending;
use super::session::Session;
use super::session::clients::Clients;
use super::time::Time;
use super::wait::Wait;
use super::wait::wait_queues::Waits;
use crate::acl::users::Acl;
use crate::base::clock::Clock;
use crate::base::os::allocated::allocated_bytes;
use crate::base::rng::Rng;
use crate::base::ticks::ticks_of_micros;
use crate::config::{Config, EventClasses, Ranking};
use crate::keyspace::usage::Usage;
use crate::keyspace::{DbIndex, Keyspace, ValueLimits};
use crate::persist::Persistence;
use crate::persist::tail::Tail;
use crate::programs::Programs;
use crate::programs::scripts::Scripts;
use crate::resp::reply::Reply;
use crate::spec;
use crate::spec::args::Args;
use crate::spec::batch::Batch;
use crate::spec::error::Error;
use crate::spec::session_key::SessionKey;
use crate::spec::table;

/// The state of the engine's one thread. See the header of the engine.
pub struct Engine {
    /// All keys.
    pub ks: Keyspace,
    /// Everything else.
    pub server: ServerState,
    /// Memory for the commands that are decoded ahead.
    pub(super) batch: Batch<Run>,
}

/// How long one reading of the wall clock is used for clients' commands. A reading costs as much as many commands take,
/// and expiry is only precise to the millisecond.
const LOOK_HOLDS_US: u64 = 50;

impl Engine {
    /// Makes an empty server with the given commands. Fails when the system has no memory for the Lua state.
    pub fn new(config: Config, table: &'static CommandTable, clock: Clock, mut rng: Rng) -> Result<Engine, Error> {
        let scripts = Scripts::new(rng.next_u64(), config.script_cache_max_bytes)?;
        Ok(Engine::with_scripts(config, table, clock, rng, scripts))
    }

    /// Makes an empty server that takes over the scripts of [another engine](Self::into_scripts): making a Lua state
    /// takes longer than everything else here.
    pub fn with_scripts(
        config: Config,
        table: &'static CommandTable,
        clock: Clock,
        mut rng: Rng,
        mut scripts: Scripts,
    ) -> Engine {
        scripts.set_memory_limit(config.script_memory_limit);
        scripts.set_cache_max_bytes(config.script_cache_max_bytes);
        let replication_id = hex_id(&mut rng);
        let run_id = hex_id(&mut rng);
        let now_ms = clock.now_ms();
        let mut ks = Keyspace::new(config.databases, rng);
        ks.set_limits(ValueLimits::from(&config));
        ks.set_usage(Usage::from(&config));
        ks.set_now_ms(now_ms);
        let mut stats = Stats::new(table.ids());
        stats.scripts.slow.configure(&config, &stats.clock);
        stats.track_latencies(config.latency_tracking);
        let of_scripts = scripts.memory_bytes() + scripts.text_bytes();
        let startup_bytes = allocated_bytes().saturating_sub(of_scripts as u64);
        let command_log = CommandLog::new(&config, &stats.clock);
        let look_holds_ticks = if clock.is_manual() { 0 } else { ticks_of_micros(&stats.clock, LOOK_HOLDS_US) };
        let mut acl = Acl::new(table);
        acl.set_default_password(&config.requirepass, table);
        let clients_limit = config.maxmemory_clients.bytes(config.maxmemory);
        let mut latency = LatencyMonitor::default();
        latency.set_threshold_ms(config.latency_monitor_threshold_ms);
        let meters = Meters { stats, command_log, hotkeys: None, latency };
        let mut server = ServerState {
            acl,
            clients: Clients { limit: clients_limit, ..Clients::default() },
            audience: Audience::new(clock.now_ms()),
            waits: Waits::default(),
            programs: Programs { scripts, running: None, trace: None },
            memory: Memory { startup_bytes, ..Memory::default() },
            persistence: Persistence::new(&clock),
            ending: Ending::default(),
            network: Network::default(),
            pipeline: Pipeline::default(),
            switches: Switches::default(),
            identity: Identity { run_id, replication_id },
            time: Time {
                clock,
                started_ms: now_ms,
                unit_time_us: None,
                last_ticks: 0,
                looked_ticks: 0,
                look_holds_ticks,
            },
            meters,
            table,
            config,
        };
        server.events_changed(&mut ks);
        server.meters.key_prefixes_changed(&server.config, &mut ks);
        Engine { ks, server, batch: Batch::default() }
    }

    /// Ends the engine and returns its script state for use in a new one, without the scripts that clients loaded.
    pub fn into_scripts(self) -> Scripts {
        let Engine { mut ks, server, .. } = self;
        let mut scripts = server.programs.scripts;
        scripts.forget_clients(&mut ks);
        scripts
    }
}

/// Makes a random name of 40 hexadecimal digits.
pub(crate) fn hex_id(rng: &mut Rng) -> String {
    (0..5).map(|_| format!("{:08x}", rng.next_u64() as u32)).collect()
}

/// The state of the server besides the keys, in parts that own their fields.
pub struct ServerState {
    /// The configuration.
    pub config: Config,
    /// All commands.
    pub table: &'static CommandTable,
    /// Users and their rights.
    pub acl: Acl,
    /// Connections.
    pub clients: Clients,
    /// The clients that observe what other clients do.
    pub audience: Audience,
    /// Calls that wait for a key.
    pub waits: Waits,
    /// Scripts, and the one that runs.
    pub programs: Programs,
    /// Counts and times.
    pub meters: Meters,
    /// The clocks, and the time of the unit that runs.
    pub time: Time,
    /// Memory, apart from the keyspace's own.
    pub memory: Memory,
    /// The journal, snapshots and loading.
    pub persistence: Persistence,
    /// The shutdown, once it was asked for.
    pub ending: Ending,
    /// The sockets.
    pub network: Network,
    /// The pipeline that is running.
    pub(crate) pipeline: Pipeline,
    /// Switches of DEBUG.
    pub switches: Switches,
    /// Names of this server.
    pub identity: Identity,
}

/// Names of this server, each of 40 hexadecimal digits.
pub struct Identity {
    /// Identifies this run.
    pub run_id: String,
    /// Identifies the history of the data to replicas.
    pub replication_id: String,
}

/// Switches that DEBUG sets.
pub struct Switches {
    /// SET-ACTIVE-EXPIRE.
    pub active_expire: bool,
    /// PAUSE-CRON.
    pub pauses_cron: bool,
    /// SET-SKIP-CHECKSUM-VALIDATION.
    pub skip_checksums: bool,
    /// SET-DISABLE-DENY-SCRIPTS.
    pub debug_in_scripts: bool,
}

impl Default for Switches {
    fn default() -> Switches {
        Switches { active_expire: true, pauses_cron: false, skip_checksums: false, debug_in_scripts: false }
    }
}

/// The network floor, as far as the engine knows it.
#[derive(Default)]
pub struct Network {
    /// The sockets, for times when tokio cannot serve them: while a script is busy.
    pub raw_sockets: Option<Box<dyn RawSockets>>,
    /// The listeners and certificates, for CONFIG SET.
    pub listeners: Option<Box<dyn Reconfigure>>,
    /// The turns of the event loop.
    pub turns: Arc<Turns>,
}

/// How far [`Engine::feed`] came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fed {
    /// Every complete command was answered.
    Drained,
    /// More commands are left, but the replies so far should be written first.
    Paused,
    /// The session waits for a key or is about to be closed: no further command of the session may run now.
    Suspended,
}

/// One command or subcommand.
pub type Command = spec::Command<Run>;

/// A command in the table.
pub type Entry = table::Entry<Run>;

/// All commands.
pub type CommandTable = table::CommandTable<Run>;

impl Command {
    /// An empty entry, as the base for `..Command::EMPTY`.
    pub const EMPTY: Command = spec::Command::new(Run::Container);
}

/// The result of a handler. The reply is written to [`Ctx::reply`]; on an error the part already written is taken back.
pub type Done = Result<(), Error>;

/// The result of a handler that may wait.
pub type MayWait = Result<Flow, Error>;

/// The outcome of a call that may wait.
#[derive(Debug)]
pub enum Flow {
    /// The reply is written.
    Replied,
    /// The call cannot be answered yet. Boxed, so that the many calls that need not wait do not pay for its size.
    Wait(Box<Wait>),
}

impl Flow {
    /// Returns the outcome of a call that cannot be answered yet.
    pub fn wait(wait: Wait) -> Flow {
        Flow::Wait(Box::new(wait))
    }
}

/// The function behind a command.
#[derive(Clone, Copy)]
pub enum Run {
    /// Replies at once.
    Now(fn(&mut Ctx<'_>, Args<'_>) -> Done),
    /// Replies, or waits for one of the call's keys.
    MayWait(fn(&mut Ctx<'_>, Args<'_>) -> MayWait),
    /// Only holds subcommands.
    Container,
}

/// Where a call comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// A client, directly.
    Client,
    /// A transaction.
    Exec,
    /// A script.
    Script,
    /// A call that waited and is dispatched again.
    Retry,
    /// Another command, inside which the call runs. The call does not wait.
    Inner,
    /// Another command, inside which the call may wait, blocking its client or beside it.
    InnerMayWait,
    /// Another command that waited and is dispatched again.
    InnerRetry,
}

impl Origin {
    /// Whether the call is a part of a script or of another command, which is recorded as a whole.
    pub(super) fn is_inside(self) -> bool {
        matches!(self, Origin::Script | Origin::Inner | Origin::InnerMayWait | Origin::InnerRetry)
    }
}

/// One call of one command.
pub struct Ctx<'a> {
    /// All keys.
    pub ks: &'a mut Keyspace,
    /// Everything else that the server holds.
    pub server: &'a mut ServerState,
    /// The session that calls.
    pub session: &'a mut Session,
    /// Receives the reply.
    pub reply: &'a mut Reply,
    /// The command.
    pub entry: &'static Entry,
    /// Where the call comes from.
    pub origin: Origin,
}

impl Ctx<'_> {
    /// The selected database.
    #[inline]
    pub fn db(&self) -> DbIndex {
        self.session.db
    }

    /// The unit's time, Unix ms.
    #[inline]
    pub fn now_ms(&self) -> i64 {
        self.ks.now_ms()
    }

    /// The command's full lower-case name, for error texts.
    pub fn name(&self) -> &'static str {
        &self.entry.full_name
    }

    /// Runs a handler whose changes count as one change, however many effects they produce. Redis counts them so.
    pub fn as_one_change<A>(&mut self, run: impl FnOnce(&mut Self) -> Result<A, Error>) -> Result<A, Error> {
        let before = self.ks.changes_by_commands();
        let done = run(self);
        if self.ks.changes_by_commands() != before {
            self.ks.count_changes_as(before, 1);
        }
        done
    }

    /// Whether the call may wait for a key: in scripts and transactions it times out at once.
    pub fn may_wait(&self) -> bool {
        matches!(self.origin, Origin::Client | Origin::Retry | Origin::InnerMayWait | Origin::InnerRetry)
    }

    /// Makes the calls that wait for a key look again after the unit, although the unit has no effect that would wake
    /// them.
    pub fn wake_waiting(&mut self, key: &[u8]) {
        self.server.waits.touch(self.session.db, key);
    }

    /// Whether the call waited before and runs again, because one of its keys was touched.
    pub fn is_retry(&self) -> bool {
        matches!(self.origin, Origin::Retry | Origin::InnerRetry)
    }
}

/// Direct access to the sockets, past tokio, whose tasks can't run while the engine's thread is inside a script. Only
/// [`exchange`](RawSockets::exchange) and [`send_past`](RawSockets::send_past) touch the connection whose command is
/// running.
pub trait RawSockets {
    /// Sends the replies to other clients, as far as their sockets take them.
    fn send_unsent(&mut self, server: &mut ServerState);
    /// Sends the replies to other clients, accepts new connections, answers commands that have arrived, and closes
    /// connections that have ended or must be closed. Does not wait.
    fn serve(&mut self, ks: &mut Keyspace, server: &mut ServerState);
    /// Sends as much of `parts`, from the start, as the connection's socket takes at once. Returns the number of bytes
    /// sent; 0 also when the socket has failed, which the next send reports. If `more_follows` right away, up to
    /// [`SEND_REST_MAX_BYTES`](crate::base::limits::SEND_REST_MAX_BYTES) that would not fill a packet may be left for
    /// the next send.
    fn send_past(&mut self, _key: SessionKey, _parts: &[IoSlice<'_>], _more_follows: bool) -> usize {
        0
    }
    /// Sends as much of `unsent` as the connection's socket takes and removes it from there; appends the bytes that
    /// arrived to `received`, if given. Waits up to `patience` for either. Returns false when the peer has hung up.
    fn exchange(
        &mut self,
        key: SessionKey,
        unsent: &mut Vec<u8>,
        received: Option<&mut Vec<u8>>,
        patience: Duration,
    ) -> bool;
}

/// Applies changes of the configuration to the network floor.
pub trait Reconfigure {
    /// Changes the listeners and certificates from those of `before` to those of `config`. Files whose names did not
    /// change are read again. Open connections stay open. On an error nothing has changed.
    fn reconfigure(&mut self, before: &Config, config: &Config) -> Result<(), NetworkRefusal>;

    /// Reads the files of certificates and keys again if they have changed, as often as `tls-auto-reload-interval`
    /// says. Unusable files are ignored and tried again the next time. `now_ms` is a time of the steady clock.
    fn follow_files(&mut self, config: &Config, now_ms: i64);
}

/// Why [`Reconfigure`] changed nothing; the text log has the details. The texts are Redis'.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NetworkRefusal {
    /// The certificates, keys or other parameters of TLS are unusable.
    #[error("Unable to update TLS configuration. Check server logs.")]
    Tls,
    /// A port is in use, or must not be used.
    #[error("Unable to listen on this port. Check server logs.")]
    Port,
    /// An address does not exist, or its port is in use or must not be used.
    #[error("Failed to bind to specified addresses.")]
    Address,
}

/// The readers of effects.
impl ServerState {
    /// Recomputes the set of readers. Must be called wherever a reader comes or goes.
    pub(super) fn readers_changed(&mut self) {
        self.audience.readers = self.compute_readers();
        self.audience.recording = self.audience.readers.recording();
    }

    fn compute_readers(&self) -> Readers {
        Readers::default()
            .and_if(Readers::LOG, self.persistence.tail.is_some())
            .and_if(Readers::SNAPSHOT, self.persistence.saving.is_copying())
            .and_if(Readers::WATCH, !self.audience.watches.is_empty())
            .and_if(Readers::WAIT, !self.waits.is_empty())
            .and_if(Readers::TRACKING, self.audience.tracking.reads_changes())
            .and_if(Readers::USAGE, self.config.maxmemory_policy.ranking() == Some(Ranking::Change))
            .and_if(Readers::EVENTS, self.tells_events())
    }

    /// Whether keyspace events are published. Loading the data is not a change and publishes none.
    fn tells_events(&self) -> bool {
        self.config.notify_keyspace_events.tell_anything() && self.persistence.loading.is_none()
    }

    /// Applies a change of the published event classes, from the events of the current unit on.
    pub fn events_changed(&mut self, ks: &mut Keyspace) {
        let classes = self.config.notify_keyspace_events;
        self.readers_changed();
        ks.annotate(classes.tell_anything(), classes.contains(EventClasses::MISS));
        ks.record_from_now(self.audience.recording);
    }

    /// Checks that no reader came or went without [`Self::readers_changed`]: in the worst case a change would miss the
    /// journal.
    #[inline]
    pub(super) fn assert_readers_are_known(&self) {
        debug_assert_eq!(self.audience.readers, self.compute_readers(), "a reader came or went, and nobody has told");
        debug_assert_eq!(self.audience.recording, self.audience.readers.recording());
    }

    /// Sets the tail that receives the units from here on; `None` keeps no units.
    pub fn set_tail(&mut self, tail: Option<Tail>) {
        self.persistence.tail = tail;
        self.readers_changed();
    }

    /// Makes a session watch a key of its database; `existed` says whether the key exists now.
    pub fn watch(&mut self, session: &mut Session, key: &[u8], existed: bool) {
        self.audience.watches.add(session, key, existed);
        self.readers_changed();
    }

    /// Unwatches all keys of a session.
    pub fn unwatch(&mut self, session: &mut Session) {
        if self.audience.watches.clear(session) {
            self.readers_changed();
        }
    }
}

impl ServerState {
    /// Lets the network floor act, if there is one.
    pub(super) fn with_raw_sockets<A>(
        &mut self,
        act: impl FnOnce(&mut dyn RawSockets, &mut ServerState) -> A,
    ) -> Option<A> {
        let mut sockets = self.network.raw_sockets.take()?;
        let answer = act(&mut *sockets, self);
        self.network.raw_sockets = Some(sockets);
        Some(answer)
    }
}
