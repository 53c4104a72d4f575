//! The state of the engine, and the context that a command's handler gets. The methods belong to the parts of the state
//! that they touch, or to a view that borrows several parts.
//!
//! These types know each other: the [`ServerState`] holds the table of commands, a command's [`Run`] is a function of a
//! [`Ctx`], and the context lends the function the [`ServerState`] again. Their parts lie below and know none of them:
//! connections ([`Session`]), watchers, subscribers, waiters, statistics, the journal and the scripts.

use std::io::IoSlice;
use std::sync::Arc;
use std::time::Duration;

use super::memory::Memory;
use super::observe::audience::Audience;
use super::run::pipeline::Pipeline;
use super::run::shutdown::Ending;
use super::time::Time;
use crate::acl::users::Acl;
use crate::base::clock::Clock;
use crate::base::os::allocated::allocated_bytes;
use crate::base::rng::Rng;
use crate::base::ticks::ticks_of_micros;
use crate::config::{Config, EventClasses};
use crate::keyspace::usage::Usage;
use crate::keyspace::{DbIndex, Keyspace, ValueLimits};
use crate::meters::Meters;
use crate::meters::command_log::CommandLog;
use crate::meters::latency::LatencyMonitor;
use crate::meters::stats::Stats;
use crate::meters::turns::Turns;
use crate::persist::Persistence;
use crate::persist::tail::Tail;
use crate::programs::Programs;
use crate::programs::scripts::Scripts;
use crate::resp::reply::Reply;
use crate::session::clients::Clients;
use crate::session::{Service, Session};
use crate::spec;
use crate::spec::args::Args;
use crate::spec::batch::Batch;
use crate::spec::error::Error;
use crate::spec::session_key::SessionKey;
use crate::spec::table;
use crate::wait::Wait;
use crate::wait::wait_queues::Waits;

/// The state of the engine's one thread. See the header of the engine.
pub struct Engine {
    /// All keys.
    pub ks: Keyspace,
    /// Everything else.
    pub server: ServerState,
    /// Memory for the commands that are decoded ahead. A box, since each read takes it out and puts it back.
    pub(super) batch: Option<Box<Batch<Run>>>,
}

/// How long one reading of the wall clock is used for clients' commands. A reading costs as much as many commands take,
/// and expiry is only precise to the millisecond.
const READING_HOLDS_US: u64 = 50;

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
        let reading_holds_ticks = if clock.is_manual() { 0 } else { ticks_of_micros(&stats.clock, READING_HOLDS_US) };
        let mut acl = Acl::new(table);
        acl.set_default_password(&config.requirepass, table);
        let clients_limit = config.maxmemory_clients.bytes(config.maxmemory);
        let mut latency = LatencyMonitor::default();
        latency.set_threshold_ms(config.latency_monitor_threshold_ms);
        let meters = Meters { stats, command_log, hotkeys: None, latency };
        let mut server = ServerState {
            acl,
            clients: Clients::new(clients_limit),
            audience: Audience::new(clock.now_ms()),
            waits: Waits::default(),
            programs: Programs { scripts, running: None, trace: None },
            memory: Memory::new(startup_bytes),
            persistence: Persistence::new(&clock),
            ending: Ending::default(),
            network: Network::default(),
            pipeline: Pipeline::default(),
            switches: Switches::default(),
            identity: Identity { node_name: run_id.clone(), run_id, replication_id },
            time: Time {
                clock,
                started_ms: now_ms,
                unit_time_us: None,
                last_ticks: 0,
                clock_read_ticks: 0,
                reading_holds_ticks,
            },
            meters,
            table,
            config,
        };
        server.events_changed(&mut ks);
        server.meters.key_prefixes_changed(&server.config, &mut ks);
        Engine { ks, server, batch: None }
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
    /// Identifies a single server to clients in Cluster mode. It lasts as long as the directory, or without one, until
    /// the end of the run.
    pub node_name: String,
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

/// The parts that a push to clients needs: the clients, those of them that observe others, and the journal, which says
/// when bytes may leave.
pub struct Delivery<'a> {
    pub(super) config: &'a Config,
    pub(super) table: &'static CommandTable,
    pub(super) acl: &'a Acl,
    pub(super) clients: &'a mut Clients,
    pub(super) audience: &'a mut Audience,
    pub(super) stats: &'a mut Stats,
    pub(super) clock: &'a Clock,
    pub(super) persistence: &'a mut Persistence,
    pub(super) pipeline: &'a mut Pipeline,
}

impl ServerState {
    /// Lends the parts that a push to clients needs.
    #[inline]
    pub fn delivery(&mut self) -> Delivery<'_> {
        Delivery {
            config: &self.config,
            table: self.table,
            acl: &self.acl,
            clients: &mut self.clients,
            audience: &mut self.audience,
            stats: &mut self.meters.stats,
            clock: &self.time.clock,
            persistence: &mut self.persistence,
            pipeline: &mut self.pipeline,
        }
    }
}

/// The users, for the questions which calls a session may make.
#[derive(Clone, Copy)]
pub struct Rights<'a> {
    pub(super) acl: &'a Acl,
    pub(super) table: &'static CommandTable,
    pub(super) databases: u16,
}

/// The parts that logging in needs, and the refusal of a call: the users, and where refusals are recorded.
pub struct Access<'a> {
    pub(super) acl: &'a mut Acl,
    pub(super) table: &'static CommandTable,
    pub(super) config: &'a Config,
    pub(super) stats: &'a mut Stats,
    pub(super) clock: &'a Clock,
}

/// The parts that know of a connection: its session, its user, and where it listens and waits.
pub struct Connections<'a> {
    pub(super) acl: &'a Acl,
    pub(super) clients: &'a mut Clients,
    pub(super) audience: &'a mut Audience,
    pub(super) waits: &'a mut Waits,
    pub(super) stats: &'a mut Stats,
    pub(super) clock: &'a Clock,
}

impl ServerState {
    /// Lends the parts that know of a connection.
    #[inline]
    pub fn connections(&mut self) -> Connections<'_> {
        Connections {
            acl: &self.acl,
            clients: &mut self.clients,
            audience: &mut self.audience,
            waits: &mut self.waits,
            stats: &mut self.meters.stats,
            clock: &self.time.clock,
        }
    }

    /// Returns the commands that a session's port serves.
    #[inline]
    pub(super) fn table_of(&self, session: &Session) -> &'static CommandTable {
        match session.service {
            Service::Data => self.table,
            Service::Sentinel => self.table.of_sentinel(),
        }
    }

    /// Lends the users, for the questions which calls a session may make.
    #[inline]
    pub fn rights(&self) -> Rights<'_> {
        Rights { acl: &self.acl, table: self.table, databases: self.config.databases }
    }

    /// Lends the parts that logging in and refusals need.
    #[inline]
    pub fn access(&mut self) -> Access<'_> {
        Access {
            acl: &mut self.acl,
            table: self.table,
            config: &self.config,
            stats: &mut self.meters.stats,
            clock: &self.time.clock,
        }
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

/// The result of a handler. The reply is written to [`Ctx::reply`]; on an error the part already written is discarded.
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

    /// The commands that the session's port serves.
    pub fn table(&self) -> &'static CommandTable {
        self.server.table_of(self.session)
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
    /// [`SEND_REST_MAX_BYTES`](crate::session::limits::SEND_REST_MAX_BYTES) that would not fill a packet may be left
    /// for the next send.
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

    /// When the certificate in use, or one of those that it comes with, expires, in seconds since 1970; `None` without
    /// TLS.
    fn certificate_expires_s(&self) -> Option<i64>;
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
    /// Finds the readers of effects anew, for a change of the configuration, the loading or the saving.
    pub(super) fn readers_changed(&mut self) {
        self.audience.find_readers(&self.config, &self.persistence, &self.waits);
    }

    /// Applies a change of the published event classes, from the events of the current unit on.
    pub fn events_changed(&mut self, ks: &mut Keyspace) {
        let classes = self.config.notify_keyspace_events;
        self.readers_changed();
        ks.annotate(classes.publish_any(), classes.contains(EventClasses::MISS));
        ks.record_from_now(self.audience.recording);
    }

    /// Applies a new `maxmemory-policy` or its parameters.
    pub fn eviction_policy_changed(&mut self, ks: &mut Keyspace) {
        self.readers_changed();
        ks.set_usage(Usage::from(&self.config));
    }

    /// Sets the tail that receives the units from here on; `None` keeps no units.
    pub fn set_tail(&mut self, tail: Option<Tail>) {
        self.delivery().set_tail(tail);
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
