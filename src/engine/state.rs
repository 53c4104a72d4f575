//! The state of the engine, and what a command's handler gets to see of it. What acts on it stands in the files above.
//!
//! These types know each other: the [`ServerState`] holds the table of commands, a command's [`Run`] is a function of a [`Ctx`], and
//! that lends it the [`ServerState`] again. All that they are made of lies below and knows none of them: who is connected
//! ([`Session`]), who watches, listens and waits, what was counted, the log, the scripts.

use std::io::IoSlice;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use super::meters::command_log::CommandLog;
use super::meters::hotkeys::HotKeys;
use super::meters::latency::LatencyMonitor;
use super::meters::stats::Stats;
use super::meters::turns::Turns;
use super::observe::history::History;
use super::observe::monitor::Monitors;
use super::observe::pubsub::{HeldMessages, PubSub};
use super::observe::readers::Readers;
use super::observe::tracking::TrackingTable;
use super::observe::watches::Watches;
use super::session::pause::Pause;
use super::session::registry::Registry;
use super::session::{Session, Sessions};
use super::wait::Wait;
use super::wait::wait_queues::Waits;
use crate::acl::users::Acl;
use crate::base::clock::Clock;
use crate::base::limits::OUTBOX_TOTAL_PAUSE_BYTES;
use crate::base::os::allocated::allocated_bytes;
use crate::base::os::allocator::Freed;
use crate::base::rng::Rng;
use crate::base::ticks::ticks_of_micros;
use crate::config::{Config, EventClasses, Ranking};
use crate::keyspace::effect::Recording;
use crate::keyspace::usage::Usage;
use crate::keyspace::{DbIndex, Keyspace, ValueLimits};
use crate::persist::durability_state::Durability;
use crate::persist::saving::{Progress, Saving};
use crate::persist::tail::Tail;
use crate::programs::running::RunningScript;
use crate::programs::scripts::Scripts;
use crate::programs::trace::Trace;
use crate::resp::reply::Reply;
use crate::spec;
use crate::spec::args::Args;
use crate::spec::batch::Batch;
use crate::spec::error::Error;
use crate::spec::session_key::SessionKey;
use crate::spec::table;
use crate::spec::table::CommandId;

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
        let mut server = ServerState {
            config,
            table,
            acl,
            sessions: Sessions::default(),
            pubsub: PubSub::default(),
            monitors: Monitors::default(),
            tracking: TrackingTable::default(),
            watches: Watches::default(),
            waits: Waits::default(),
            pause: Pause::default(),
            registry: Arc::default(),
            command_log,
            hotkeys: None,
            history: History::new(clock.now_ms()),
            latency,
            stats,
            startup_bytes,
            peak_bytes: 0,
            freed: Freed::default(),
            readers: Readers::default(),
            recording: Recording::Nothing,
            tail: None,
            durability: None,
            saving: Saving::new(&clock),
            loading: None,
            memory_is_full: false,
            eviction_is_behind: false,
            clock,
            started_ms: now_ms,
            turns: Arc::default(),
            run_id,
            replication_id,
            shutdown: None,
            ending: None,
            limits_due: Vec::new(),
            stop_signal: Arc::default(),
            active_expire: true,
            pauses_cron: false,
            skip_checksums: false,
            debug_in_scripts: false,
            scripts,
            running_script: None,
            trace: None,
            held_messages: HeldMessages::default(),
            raw_sockets: None,
            network: None,
            room: Room::default(),
            clients_limit,
            clients_bytes: 0,
            unit_time_us: None,
            last_ticks: 0,
            looked_ticks: 0,
            look_holds_ticks,
            others_come_first: false,
            batch_ends_at: 0,
            sent_past: 0,
            past_of_call: Past::default(),
        };
        server.events_changed(&mut ks);
        server.key_prefixes_changed(&mut ks);
        Engine { ks, server, batch: Batch::default() }
    }

    /// Ends the engine. What is left are its scripts, as those of a new one: without any that clients have brought.
    pub fn into_scripts(self) -> Scripts {
        let Engine { mut ks, server, .. } = self;
        let mut scripts = server.scripts;
        scripts.forget_clients(&mut ks);
        scripts
    }
}

/// 40 hexadecimal digits.
pub(crate) fn hex_id(rng: &mut Rng) -> String {
    (0..5).map(|_| format!("{:08x}", rng.next_u64() as u32)).collect()
}

/// What the server holds besides the keys.
pub struct ServerState {
    /// The configuration.
    pub config: Config,
    /// All commands.
    pub table: &'static CommandTable,
    /// Who may do what.
    pub acl: Acl,
    /// All connections but the one whose command runs.
    pub sessions: Sessions,
    /// Who listens to which channel.
    pub pubsub: PubSub,
    /// Who is shown what all call.
    pub monitors: Monitors,
    /// Who may cache which keys.
    pub tracking: TrackingTable,
    /// Who watches which key.
    pub watches: Watches,
    /// Who waits for which key.
    pub waits: Waits,
    /// Who has paused what.
    pub pause: Pause,
    /// What other threads may know.
    pub registry: Arc<Registry>,
    /// Counters.
    pub stats: Stats,
    /// Commands that took long or were large.
    pub command_log: CommandLog,
    /// Which keys take the most, in the last collection that was started.
    pub hotkeys: Option<Box<HotKeys>>,
    /// What has become of locks and gates lately, and whom they have refused.
    pub(crate) history: History,
    /// What held others up.
    pub latency: LatencyMonitor,
    /// Bytes that were allocated when the server was made, without those of scripts.
    pub startup_bytes: u64,
    /// Most bytes that were allocated when it was looked at: at every tick, and by INFO.
    pub peak_bytes: u64,
    /// What was freed since memory was given back to the system.
    pub(super) freed: Freed,
    /// Who reads what units change: see [`readers_changed`](ServerState::readers_changed).
    pub(super) readers: Readers,
    /// What units record for them.
    pub(super) recording: Recording,
    /// What units have recorded since somebody took it; `None` while nobody keeps the whole stream. Is [set](ServerState::set_tail),
    /// not assigned.
    pub tail: Option<Tail>,
    /// The log, which takes the tail; `None` with `appendonly no`.
    pub(crate) durability: Option<Durability>,
    /// The snapshot that is being made.
    pub saving: Saving,
    /// How far the data has been loaded, until it is there.
    pub loading: Option<Progress>,
    /// More than `maxmemory` was allocated when the client's command that runs began.
    pub(super) memory_is_full: bool,
    /// More is to be evicted than one command has waited for.
    pub(super) eviction_is_behind: bool,
    /// Wall time.
    pub clock: Clock,
    /// When the server started, Unix ms.
    pub started_ms: i64,
    /// The turns of the event loop, which tells of them.
    pub turns: Arc<Turns>,
    /// Names the history of the data to replicas: 40 hexadecimal digits.
    pub replication_id: String,
    /// Identifies this run: 40 hexadecimal digits.
    pub run_id: String,
    /// Set when the server is to end now.
    pub shutdown: Option<Shutdown>,
    /// The end that was asked for and waits for a snapshot.
    pub(super) ending: Option<Ending>,
    /// Sessions whose unsent output grew and must be held against its limit.
    pub limits_due: Vec<SessionKey>,
    /// A signal asked the server to stop: ends a script that holds the thread.
    pub stop_signal: Arc<AtomicBool>,
    /// DEBUG SET-ACTIVE-EXPIRE.
    pub active_expire: bool,
    /// DEBUG PAUSE-CRON.
    pub pauses_cron: bool,
    /// DEBUG SET-SKIP-CHECKSUM-VALIDATION.
    pub skip_checksums: bool,
    /// DEBUG SET-DISABLE-DENY-SCRIPTS.
    pub debug_in_scripts: bool,
    /// The script cache and the Lua state.
    pub scripts: Scripts,
    /// The script that runs now.
    pub running_script: Option<RunningScript>,
    /// What it did so far, if it is traced.
    pub(super) trace: Option<Box<Trace>>,
    /// What the script that runs has published, if it may be rolled back.
    pub(super) held_messages: HeldMessages,
    /// The sockets, for when tokio can't serve them: while a script is busy.
    pub raw_sockets: Option<Box<dyn RawSockets>>,
    /// The network floor, which listens, for CONFIG SET.
    pub network: Option<Box<dyn Reconfigure>>,
    /// What all clients together have left unread.
    pub(super) room: Room,
    /// What all clients together may hold, in bytes; 0 for no limit.
    pub(super) clients_limit: u64,
    /// What they hold, as far as they were weighed.
    pub(super) clients_bytes: u64,
    /// What TIME answers in the unit that runs, Unix us, once it has been called: time stands still in EXEC and in a script, until the
    /// script is [busy](ServerState::script_interrupted).
    pub unit_time_us: Option<i64>,
    /// Reading of the processor's clock when the last command ended.
    pub(super) last_ticks: u64,
    /// The same when the wall clock was looked at for a client's command.
    pub(super) looked_ticks: u64,
    /// For how many ticks that look holds. Whoever sets the keyspace's time to anything but the wall clock's meanwhile
    /// [ends it](ServerState::end_look_at_clock).
    pub(super) look_holds_ticks: u64,
    /// The pipeline that runs has taken so long, or been sent so much, that others come first.
    pub(super) others_come_first: bool,
    /// How many commands the session whose pipeline runs has run when the batch ends, if none is refused.
    pub(super) batch_ends_at: u64,
    /// Bytes that the pipeline that runs was [sent past its replies](ServerState::answer_large).
    pub(super) sent_past: usize,
    /// The same of the command that runs.
    pub(super) past_of_call: Past,
}

/// What was sent past the replies.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Past {
    pub(super) bytes: usize,
    /// What that took, in ticks of the processor's clock.
    pub(super) ticks: u64,
}

/// An end of the server that waits for a snapshot; see [`ending`](super::run::ending).
#[derive(Debug)]
pub(super) struct Ending {
    pub(super) how: Shutdown,
    /// Whether SAVE or NOSAVE was said.
    pub(super) save: Option<bool>,
    /// What asked for it, for people.
    pub(super) reason: &'static str,
    /// Who waits for it.
    pub(super) asked_by: Vec<(SessionKey, CommandId)>,
    /// When it should be over by `shutdown-timeout`, by the steady clock.
    pub(super) until_ms: i64,
    /// How many snapshots must have ended for the one to be among them that it waits for.
    pub(super) concluded: u64,
}

/// How the server is to end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Shutdown {
    /// Do not wait until what was answered is sent.
    pub now: bool,
    /// Stop even if something could not be saved.
    pub force: bool,
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
        self.readers = self.compute_readers();
        self.recording = self.readers.recording();
    }

    fn compute_readers(&self) -> Readers {
        Readers::default()
            .and_if(Readers::LOG, self.tail.is_some())
            .and_if(Readers::SNAPSHOT, self.saving.is_copying())
            .and_if(Readers::WATCH, !self.watches.is_empty())
            .and_if(Readers::WAIT, !self.waits.is_empty())
            .and_if(Readers::TRACKING, self.tracking.reads_changes())
            .and_if(Readers::USAGE, self.config.maxmemory_policy.ranking() == Some(Ranking::Change))
            .and_if(Readers::EVENTS, self.tells_events())
    }

    /// Whether events are told: not while the data is loaded, which changes nothing.
    fn tells_events(&self) -> bool {
        self.config.notify_keyspace_events.tell_anything() && self.loading.is_none()
    }

    /// Other events are to be told than before, beginning with those of the unit that is underway.
    pub fn events_changed(&mut self, ks: &mut Keyspace) {
        let classes = self.config.notify_keyspace_events;
        self.readers_changed();
        ks.annotate(classes.tell_anything(), classes.has(EventClasses::MISS));
        ks.record_from_now(self.recording);
    }

    /// A change that the log does not see is the worst that could follow from a reader of which nobody has told.
    #[inline]
    pub(super) fn assert_readers_are_known(&self) {
        debug_assert_eq!(self.readers, self.compute_readers(), "a reader came or went, and nobody has told");
        debug_assert_eq!(self.recording, self.readers.recording());
    }

    /// From here on units are kept in this tail, or in none.
    pub fn set_tail(&mut self, tail: Option<Tail>) {
        self.tail = tail;
        self.readers_changed();
    }

    /// Drops the tail that was kept for a log which has not begun.
    pub(super) fn drop_unattached_tail(&mut self) {
        if self.durability.is_none() {
            self.set_tail(None);
        }
    }

    /// Lets a session watch a key of its database, which existed or not.
    pub fn watch(&mut self, session: &mut Session, key: &[u8], existed: bool) {
        self.watches.add(session, key, existed);
        self.readers_changed();
    }

    /// Ends all watching of a session.
    pub fn unwatch(&mut self, session: &mut Session) {
        if self.watches.clear(session) {
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
        let mut sockets = self.raw_sockets.take()?;
        let answer = act(&mut *sockets, self);
        self.raw_sockets = Some(sockets);
        Some(answer)
    }
}

/// How much is held unsent, and who waits for that to become less.
#[derive(Debug, Default)]
pub(super) struct Room {
    /// Bytes that the outboxes of all sessions hold, as far as [`ServerState::count_unsent`] was told.
    pub(super) held: usize,
    /// The command that has just run is to run again.
    pub(super) takes_back: bool,
    /// Since when somebody waits, by the steady clock.
    pub(super) missed_since_ms: Option<i64>,
}

impl Room {
    #[inline]
    pub(super) fn is_full(&self) -> bool {
        self.held > OUTBOX_TOTAL_PAUSE_BYTES
    }

    /// Whether the command that has just run was taken back. Asked once.
    #[inline]
    pub(super) fn has_taken_back(&mut self) -> bool {
        std::mem::take(&mut self.takes_back)
    }
}
