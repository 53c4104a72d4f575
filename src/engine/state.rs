//! The state of the engine, and what a command's handler gets to see of it. What acts on it stands in the files above.
//!
//! These types know each other: the [`ServerState`] holds the table of commands, a command's [`Run`] is a function of a [`Ctx`], and
//! that lends it the [`ServerState`] again. All that they are made of lies below and knows none of them: who is connected
//! ([`Session`]), who watches, listens and waits, what was counted, the log, the scripts.

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

/// The one thread's state. See the engine's header.
pub struct Engine {
    /// All keys.
    pub ks: Keyspace,
    /// Everything else.
    pub server: ServerState,
    /// Memory for the commands that are decoded ahead.
    pub(super) batch: Batch<Run>,
}

/// How long a look at the wall clock holds for the commands of clients. Reading it takes as long as many commands do, and keys
/// expire by the millisecond.
const LOOK_HOLDS_US: u64 = 50;

impl Engine {
    /// An empty server with the given commands. Fails when the system has no memory for the Lua state.
    pub fn new(config: Config, table: &'static CommandTable, clock: Clock, mut rng: Rng) -> Result<Engine, Error> {
        let scripts = Scripts::new(rng.next_u64(), config.script_cache_max_bytes)?;
        Ok(Engine::with_scripts(config, table, clock, rng, scripts))
    }

    /// The same with the scripts that [another engine](Self::into_scripts) has left: to make a Lua state takes longer than all else.
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

    /// Ends the engine. What is left are its scripts, as those of a new one: without any that clients have brought.
    pub fn into_scripts(self) -> Scripts {
        let Engine { mut ks, server, .. } = self;
        let mut scripts = server.programs.scripts;
        scripts.forget_clients(&mut ks);
        scripts
    }
}

/// 40 hexadecimal digits.
pub(crate) fn hex_id(rng: &mut Rng) -> String {
    (0..5).map(|_| format!("{:08x}", rng.next_u64() as u32)).collect()
}

/// What the server holds besides the keys: parts that own their fields.
pub struct ServerState {
    /// The configuration.
    pub config: Config,
    /// All commands.
    pub table: &'static CommandTable,
    /// Users and their rights.
    pub acl: Acl,
    /// Connections.
    pub clients: Clients,
    /// Clients that hear of what others do.
    pub audience: Audience,
    /// Calls that wait for a key.
    pub waits: Waits,
    /// Scripts, and the one that runs.
    pub programs: Programs,
    /// Counts and times.
    pub meters: Meters,
    /// The clocks, and the time of the unit that runs.
    pub time: Time,
    /// Memory, beside the keyspace's own.
    pub memory: Memory,
    /// What lasts.
    pub persistence: Persistence,
    /// The end of the server.
    pub ending: Ending,
    /// The sockets.
    pub network: Network,
    /// The pipeline that runs.
    pub(crate) pipeline: Pipeline,
    /// Switches of DEBUG.
    pub switches: Switches,
    /// Names of this server.
    pub identity: Identity,
}

/// Names of this server, each of 40 hexadecimal digits.
pub struct Identity {
    /// Names this run.
    pub run_id: String,
    /// Names the history of the data to replicas.
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
    /// There is more to answer, but what was answered should be written first.
    Paused,
    /// The session waits for a key or is to be closed: nothing more may run for it now.
    Suspended,
}

/// One command or subcommand.
pub type Command = spec::Command<Run>;

/// A command in the table.
pub type Entry = table::Entry<Run>;

/// All commands.
pub type CommandTable = table::CommandTable<Run>;

impl Command {
    /// An entry that says nothing: base for `..Command::EMPTY`.
    pub const EMPTY: Command = spec::Command::new(Run::Container);
}

/// What a handler answers: the reply is written to [`Ctx::reply`]; an error takes back what it wrote.
pub type Done = Result<(), Error>;

/// What a handler that may wait answers.
pub type MayWait = Result<Flow, Error>;

/// How a call went that may wait.
#[derive(Debug)]
pub enum Flow {
    /// The reply is written.
    Replied,
    /// Nothing can be answered yet. Boxed, since most calls answer: they don't pay for its size.
    Wait(Box<Wait>),
}

impl Flow {
    /// Nothing can be answered yet.
    pub fn wait(wait: Wait) -> Flow {
        Flow::Wait(Box::new(wait))
    }
}

/// The function behind a command.
#[derive(Clone, Copy)]
pub enum Run {
    /// Answers at once.
    Now(fn(&mut Ctx<'_>, Args<'_>) -> Done),
    /// Answers, or waits for one of its keys.
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
    /// Another command, which runs it. It does not wait.
    Inner,
    /// The same, where the call may wait, with its client or beside it.
    InnerMayWait,
    /// The same, dispatched again with that call.
    InnerRetry,
}

impl Origin {
    /// Whether what is called is a part of something else that is noted as a whole: of a script, or of another command.
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
    /// Whose call it is.
    pub session: &'a mut Session,
    /// Where the answer is written.
    pub reply: &'a mut Reply,
    /// Which command it is.
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

    /// Runs a handler whose changes count as one, however many effects they take: that is how Redis counts them.
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

    /// Lets calls that wait for a key look again when the unit is over, although nothing has changed that they would be told of.
    pub fn wake_waiting(&mut self, key: &[u8]) {
        self.server.waits.touch(self.session.db, key);
    }

    /// Whether the call waited and a key of its was touched.
    pub fn is_retry(&self) -> bool {
        matches!(self.origin, Origin::Retry | Origin::InnerRetry)
    }
}

/// The sockets, used past tokio, whose tasks can't run while the engine's thread is inside a script. The connection whose
/// command runs is left alone, but for [`exchange`](RawSockets::exchange) and [`send_past`](RawSockets::send_past).
pub trait RawSockets {
    /// Sends what others have been answered, as far as their sockets take it.
    fn send_unsent(&mut self, server: &mut ServerState);
    /// The same; accepts who wants to connect, answers who has sent something, and closes the connections that have ended or
    /// are to be closed. Does not wait.
    fn serve(&mut self, ks: &mut Keyspace, server: &mut ServerState);
    /// Sends what the socket of one connection takes of `parts` at once, from the beginning on, and answers how many bytes: none as
    /// well where it has failed, which who sends next finds out. If `more_follows` right away, up to
    /// [`SEND_REST_MAX_BYTES`](crate::base::limits::SEND_REST_MAX_BYTES) that would not fill a packet may be left for that.
    fn send_past(&mut self, _key: SessionKey, _parts: &[IoSlice<'_>], _more_follows: bool) -> usize {
        0
    }
    /// Sends what the socket of one connection takes of `unsent`, which it removes, and appends to `received` what came in, if
    /// that is given. Waits for either, no longer than `patience`. Answers false when the peer has hung up.
    fn exchange(
        &mut self,
        key: SessionKey,
        unsent: &mut Vec<u8>,
        received: Option<&mut Vec<u8>>,
        patience: Duration,
    ) -> bool;
}

/// What the network floor does by the configuration, and does anew when that changes.
pub trait Reconfigure {
    /// Listens and presents certificates as `config` says and not, as until now, as `before` says. Reads files again that are the same
    /// by name. Who is connected stays so. With an error everything is as before.
    fn reconfigure(&mut self, before: &Config, config: &Config) -> Result<(), NetworkRefusal>;

    /// Reads the files of certificates and keys again if they have changed, as often as `tls-auto-reload-interval` says. What is of no
    /// use is not taken, and tried again the next time. `now_ms` is by the steady clock.
    fn follow_files(&mut self, config: &Config, now_ms: i64);
}

/// Why [`Reconfigure`] changed nothing; the log says more. The texts are Redis'.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NetworkRefusal {
    /// The certificates, keys or other parameters of TLS are of no use.
    #[error("Unable to update TLS configuration. Check server logs.")]
    Tls,
    /// A port is in use, or must not be used.
    #[error("Unable to listen on this port. Check server logs.")]
    Port,
    /// The same, or there is no such address.
    #[error("Failed to bind to specified addresses.")]
    Address,
}

/// Who reads what units change.
impl ServerState {
    /// Computes anew who there is: to be called wherever a reader comes or goes.
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

    /// Whether events are told: not while the data is loaded, which changes nothing.
    fn tells_events(&self) -> bool {
        self.config.notify_keyspace_events.tell_anything() && self.persistence.loading.is_none()
    }

    /// Other events are to be told than before, beginning with those of the unit that is underway.
    pub fn events_changed(&mut self, ks: &mut Keyspace) {
        let classes = self.config.notify_keyspace_events;
        self.readers_changed();
        ks.annotate(classes.tell_anything(), classes.has(EventClasses::MISS));
        ks.record_from_now(self.audience.recording);
    }

    /// A change that the log does not see is the worst that could follow from a reader of which nobody has told.
    #[inline]
    pub(super) fn assert_readers_are_known(&self) {
        debug_assert_eq!(self.audience.readers, self.compute_readers(), "a reader came or went, and nobody has told");
        debug_assert_eq!(self.audience.recording, self.audience.readers.recording());
    }

    /// From here on units are kept in this tail, or in none.
    pub fn set_tail(&mut self, tail: Option<Tail>) {
        self.persistence.tail = tail;
        self.readers_changed();
    }

    /// Lets a session watch a key of its database, which existed or not.
    pub fn watch(&mut self, session: &mut Session, key: &[u8], existed: bool) {
        self.audience.watches.add(session, key, existed);
        self.readers_changed();
    }

    /// Ends all watching of a session.
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
