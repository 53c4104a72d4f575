//! The engine: one thread that admits, runs and answers commands.
//!
//! [`Engine::feed`] takes what a connection has read and answers every complete command in it. Each command, EXEC and
//! script is one unit: it runs against the keyspace with time standing still, then the observers see its effects. The
//! engine knows neither sockets nor the commands themselves: it is handed a [`CommandTable`].

pub(crate) mod admit;
pub(crate) mod args;
mod batch;
pub mod bulk_load;
pub(crate) mod busy;
pub(crate) mod ctx;
pub(crate) mod debugging;
pub(crate) mod dispatch;
pub mod durability;
pub(crate) mod error;
pub(crate) mod keys;
pub mod lint;
pub(crate) mod memory;
pub(crate) mod multi;
mod observe;
pub mod outbox;
pub(crate) mod pubsub;
pub mod recovery;
pub(crate) mod registry;
mod reload;
mod room;
mod save_slices;
mod save_triggers;
pub mod saving;
pub(crate) mod script_slow;
pub(crate) mod script_stats;
pub(crate) mod script_trace;
pub(crate) mod scripting;
pub(crate) mod scripts;
pub mod session;
pub mod snapshot_stream;
pub mod spec;
pub(crate) mod stats;
pub mod syntax;
pub mod table;
pub mod tail;
pub mod transfer;
mod transfer_slices;
mod unit;
pub(crate) mod wait;

use batch::Batch;
use busy::{RawSockets, RunningScript};
use durability::Durability;
use multi::Watches;
use pubsub::PubSub;
use registry::Registry;
use room::Room;
use saving::{Progress, Saving};
use script_trace::Trace;

use scripts::Scripts;
use session::{ClientType, Peer, Session, SessionKey, Sessions};
use stats::Stats;
use table::CommandTable;
use tail::Tail;
use wait::Waits;

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use crate::base::allocated::allocated_bytes;
use crate::base::allocator::Freed;
use crate::base::clock::Clock;
use crate::base::limits::REPLY_PAUSE_BYTES;
use crate::base::rng::Rng;
use crate::config::Config;
use crate::keyspace::effect::Effect;
use crate::keyspace::{DbIndex, Keyspace, Misfit, ValueLimits};
use crate::resp::reply::Reply;
use crate::resp::request::{Decoder, RequestLimits};

/// Keys from which on a pipeline's lookups are begun ahead: fewer lie in the processor's cache anyway.
const WARM_MIN_KEYS: usize = 4_096;

/// How a client asked the server to stop.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Shutdown {
    /// Do not wait for anything.
    pub now: bool,
    /// Stop even if something could not be saved.
    pub force: bool,
}

/// What the server holds besides the keys.
pub struct Server {
    /// The configuration.
    pub config: Config,
    /// All commands.
    pub table: &'static CommandTable,
    /// All connections but the one whose command runs.
    pub sessions: Sessions,
    /// Who listens to which channel.
    pub pubsub: PubSub,
    /// Who watches which key.
    pub watches: Watches,
    /// Who waits for which key.
    pub waits: Waits,
    /// What other threads may know.
    pub registry: Arc<Registry>,
    /// Counters.
    pub stats: Stats,
    /// Most bytes that were allocated when it was looked at: at every tick, and by INFO.
    pub peak_bytes: u64,
    /// What was freed since memory was given back to the system.
    freed: Freed,
    /// What units have recorded since somebody took it; `None` while nobody keeps the whole stream.
    pub tail: Option<Tail>,
    /// The log, which takes the tail; `None` with `appendonly no`.
    pub(crate) durability: Option<Durability>,
    /// The snapshot that is being made.
    pub saving: Saving,
    /// How far the data has been loaded, until it is there.
    pub loading: Option<Progress>,
    /// More than `maxmemory` was allocated when the client's command that runs began.
    memory_is_full: bool,
    /// Wall time.
    pub clock: Clock,
    /// When the server started, Unix ms.
    pub started_ms: i64,
    /// Identifies this run: 40 hexadecimal digits.
    pub run_id: String,
    /// Set when a client asked the server to stop.
    pub shutdown: Option<Shutdown>,
    /// Sessions whose unsent output grew and must be held against its limit.
    pub limits_due: Vec<SessionKey>,
    /// A signal asked the server to stop: ends a script that holds the thread.
    pub stop_signal: Arc<AtomicBool>,
    /// DEBUG SET-ACTIVE-EXPIRE.
    pub active_expire: bool,
    /// The script cache and the Lua state.
    pub scripts: Scripts,
    /// The script that runs now.
    pub running_script: Option<RunningScript>,
    /// What it did so far, if it is traced.
    trace: Option<Box<Trace>>,
    /// What the script that runs has published, if it may be rolled back.
    pub(super) held_messages: pubsub::Held,
    /// The sockets, for when tokio can't serve them: while a script is busy.
    pub raw_sockets: Option<Box<dyn RawSockets>>,
    /// What all clients together have left unread.
    room: Room,
    /// Reading of the processor's clock when the last command ended.
    last_ticks: u64,
    /// A script of the pipeline that runs took so long that others come first.
    others_come_first: bool,
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

/// The one thread's state. See the module's header.
pub struct Engine {
    /// All keys.
    pub ks: Keyspace,
    /// Everything else.
    pub server: Server,
    /// Memory for the commands that are decoded ahead.
    batch: Batch,
}

impl Engine {
    /// An empty server with the given commands. Fails when the system has no memory for the Lua state.
    pub fn new(
        config: Config,
        table: &'static CommandTable,
        clock: Clock,
        mut rng: Rng,
    ) -> Result<Engine, error::Error> {
        let mut scripts = Scripts::new(rng.next_u64(), config.script_cache_max_bytes)?;
        scripts.set_memory_limit(config.script_memory_limit);
        let run_id = (0..5).map(|_| format!("{:08x}", rng.next_u64() as u32)).collect();
        let now_ms = clock.now_ms();
        let mut ks = Keyspace::new(config.databases, rng);
        ks.set_limits(ValueLimits::from(&config));
        ks.set_now_ms(now_ms);
        let mut stats = Stats::new(table.ids());
        stats.scripts.slow.configure(&config, &stats.clock);
        let server = Server {
            config,
            table,
            sessions: Sessions::default(),
            pubsub: PubSub::default(),
            watches: Watches::default(),
            waits: Waits::default(),
            registry: Arc::default(),
            stats,
            peak_bytes: 0,
            freed: Freed::default(),
            tail: None,
            durability: None,
            saving: Saving::new(now_ms),
            loading: None,
            memory_is_full: false,
            clock,
            started_ms: now_ms,
            run_id,
            shutdown: None,
            limits_due: Vec::new(),
            stop_signal: Arc::default(),
            active_expire: true,
            scripts,
            running_script: None,
            trace: None,
            held_messages: pubsub::Held::default(),
            raw_sockets: None,
            room: Room::default(),
            last_ticks: 0,
            others_come_first: false,
        };
        Ok(Engine { ks, server, batch: Batch::default() })
    }

    /// Repeats a recorded change, of scripts where these are kept, else of keys, as part of the unit that is underway; fails
    /// when it does not fit what is there, which a stream of this server's own effects always does.
    pub fn apply(&mut self, db: DbIndex, effect: &Effect<'_>) -> Result<(), Misfit> {
        let Engine { ks, server, .. } = self;
        server.scripts.apply(ks, effect).unwrap_or_else(|| ks.apply(db, effect))
    }

    /// Forgets a connection and all it was subscribed to, watched or waited for.
    pub fn disconnect(&mut self, key: SessionKey) {
        self.server.disconnect(key);
    }

    /// Answers the complete commands of `input`, which `decoder` has read up to its position. Replies go to `out`.
    pub fn feed(&mut self, key: SessionKey, decoder: &mut Decoder, input: &[u8], out: &mut Reply) -> Fed {
        let Some(mut session) = self.server.sessions.take(key) else { return Fed::Suspended };
        let now_ms = self.server.clock.now_ms();
        session.active_ms = now_ms;
        session.outbox.begin_batch();
        session.pending_input = input.len();
        self.server.last_ticks = self.server.stats.clock.raw();
        self.server.others_come_first = false;
        self.ks.set_now_ms(now_ms);
        let had_failed = self.server.has_log_failed();
        let fed = self.feed_session(&mut session, decoder, input, out);
        session.pending_input = input.len().saturating_sub(decoder.keep_from());
        if self.server.is_unlogged() != session.gate.has(session::Gate::UNLOGGED) || self.server.has_log_failed() {
            self.server.catch_up(&mut session, had_failed, out);
        }
        self.server.sessions.put(session);
        self.server.registry.rests();
        if !self.server.limits_due.is_empty() {
            self.server.enforce_output_limits();
        }
        fed
    }

    fn feed_session(&mut self, session: &mut Session, decoder: &mut Decoder, input: &[u8], out: &mut Reply) -> Fed {
        out.set_form(session.form());
        let mut batch = std::mem::take(&mut self.batch);
        let fed = loop {
            if session.is_suspended() {
                break Fed::Suspended;
            }
            if out.len() >= REPLY_PAUSE_BYTES || self.server.others_come_first {
                break Fed::Paused;
            }
            let limits = RequestLimits {
                bulk_bytes: self.server.config.proto_max_bulk_len,
                unauthenticated: session.gate.has(session::Gate::STRANGER),
            };
            match batch.fill(decoder, input, &limits, self.server.table) {
                Ok(0) => break Fed::Drained,
                Ok(_) => self.run_batch(session, &batch, decoder, input, out),
                Err(error) => {
                    out.error(format!("ERR {error}").as_bytes());
                    session.closing = true;
                    break Fed::Suspended;
                }
            }
        };
        self.batch = batch;
        fed
    }

    /// Runs the commands of a batch in order. Stops before the first that may not run now, and lets the decoder stand there.
    fn run_batch(
        &mut self,
        session: &mut Session,
        batch: &Batch,
        decoder: &mut Decoder,
        input: &[u8],
        out: &mut Reply,
    ) {
        let start_ticks = self.server.last_ticks;
        let mut now_ms = self.ks.now_ms();
        if batch.len() > 1 && self.ks.db(session.db).len() >= WARM_MIN_KEYS {
            batch.warm(&self.ks, session.db, input);
        }
        for (index, planned) in batch.iter().enumerate() {
            let must_pause = out.len() >= REPLY_PAUSE_BYTES || self.server.others_come_first;
            if index > 0 && (session.is_suspended() || must_pause) {
                return decoder.rewind_to(planned.starts_at);
            }
            // A long pipeline must not freeze the clock: look again once a millisecond of work is behind us.
            if self.server.stats.clock.delta_as_nanos(start_ticks, self.server.last_ticks) > 1_000_000 {
                now_ms = self.server.clock.now_ms();
            }
            self.ks.set_now_ms(now_ms);
            let argv = if planned.is_inline { decoder.argv(input) } else { batch.argv(planned, input) };
            self.execute(session, planned.entry, argv, out);
            if self.server.room.has_taken_back() {
                session.waits_for_room = true;
                return decoder.rewind_to(planned.starts_at);
            }
        }
    }

    /// Runs what must run `hz` times a second: reclaiming memory, statistics, idle clients. Answers whether there is more to
    /// reclaim than one slice does.
    pub fn tick(&mut self) -> bool {
        let now_ms = self.server.clock.now_ms();
        self.server.stats.processed = self.server.stats.commands.iter().map(|command| command.calls).sum();
        self.server.stats.sample(now_ms);
        self.server.peak_bytes = self.server.peak_bytes.max(allocated_bytes());
        self.give_back_scratch();
        self.server.freed.give_back();
        self.server.look_after_log();
        self.server.look_after_saving(&mut self.ks);
        self.server.close_idle(now_ms);
        self.server.check_soft_limits();
        self.server.make_room(now_ms);
        self.reclaim()
    }

    /// Gives back the memory of the buffers that are used again and again, so that a quiet server holds none of it.
    fn give_back_scratch(&mut self) {
        self.batch.give_back();
        self.ks.give_back_scratch(self.server.safe());
        let Server { scripts, stats, sessions, .. } = &mut self.server;
        sessions.give_back();
        scripts.give_back_scratch();
        stats.scripts.forget_gone(scripts.programs_len(), scripts.programs());
    }

    /// Removes one slice of expired keys, and of the garbage that scripts have left. Answers whether there may be more.
    pub fn reclaim(&mut self) -> bool {
        let more_keys = self.reclaim_expired();
        let more_garbage = self.server.scripts.tidy();
        more_keys || more_garbage
    }
}

impl Server {
    /// Registers a connection.
    pub fn open_session(&mut self, peer: Peer) -> SessionKey {
        self.stats.connections += 1;
        let stranger = !self.config.requirepass.is_empty();
        let is_unlogged = self.is_unlogged();
        let address = peer.address.clone();
        let key = self.sessions.open(peer, stranger, self.clock.now_ms());
        if let Some(session) = self.sessions.get_mut(key) {
            session.gate.set(session::Gate::METERED, self.config.maxmemory > 0);
            session.gate.set(session::Gate::UNLOGGED, is_unlogged);
            session.gate.set(session::Gate::LOADING, self.loading.is_some());
        }
        self.registry.connected(key, &address);
        key
    }

    /// The data has been loaded so far; `None`: all of it is there.
    pub fn set_loading(&mut self, progress: Option<Progress>) {
        self.loading = progress;
        for session in self.sessions.iter_mut() {
            session.gate.set(session::Gate::LOADING, progress.is_some());
        }
    }

    /// Forgets a connection and all it was subscribed to, watched or waited for. Its task, if it has one, ends when it runs
    /// next.
    pub fn disconnect(&mut self, key: SessionKey) {
        let Some(mut session) = self.sessions.close(key) else { return };
        self.recount_unsent(session.counted_unsent, 0);
        self.release(&mut session);
        self.registry.disconnected(key);
        session.outbox.wake();
    }

    /// Ends all that a session subscribed to, watched or waited for.
    fn release(&mut self, session: &mut Session) {
        self.pubsub.forget(session);
        self.watches.clear(session);
        if let Some(parked) = session.parked.take() {
            self.waits.unpark(session.key, &parked);
        }
    }

    /// Closes another connection than the one whose command runs.
    pub fn kill(&mut self, key: SessionKey) {
        let Some(mut session) = self.sessions.take(key) else { return };
        self.release(&mut session);
        session.kill();
        self.sessions.put(session);
    }

    /// Closes clients that neither sent a command nor wait for one to be answered for `timeout` seconds.
    fn close_idle(&mut self, now_ms: i64) {
        let timeout_ms = i64::from(self.config.timeout_s) * 1_000;
        if timeout_ms == 0 {
            return;
        }
        let safe = self.safe();
        for session in self.sessions.iter_mut() {
            let waits_for_log = session.outbox.sendable(safe) < session.outbox.len();
            let waits = waits_for_log
                || session.parked.is_some()
                || session.transfer.is_some()
                || !session.subscriptions.is_empty();
            if !waits && now_ms - session.active_ms > timeout_ms {
                session.kill();
            }
        }
    }

    /// Holds one client's unsent output against the limit of its kind.
    pub fn hold_to_output_limit(&mut self, key: SessionKey) {
        self.limits_due.push(key);
        self.enforce_output_limits();
    }

    /// Soft limits are exceeded by time passing, too.
    fn check_soft_limits(&mut self) {
        let over = self.sessions.iter().filter(|session| session.over_soft_since_ms.is_some());
        self.limits_due.extend(over.map(|session| session.key));
        self.enforce_output_limits();
    }

    /// Closes the clients that let more unsent output pile up than `client-output-buffer-limit` allows their kind.
    fn enforce_output_limits(&mut self) {
        let (now_ms, safe, is_unlogged) = (self.clock.now_ms(), self.safe(), self.is_unlogged());
        for key in std::mem::take(&mut self.limits_due) {
            let Some(session) = self.sessions.get_mut(key) else { continue };
            let limits = &self.config.client_output_buffer_limit;
            let limit = match session.client_type() {
                ClientType::Normal => limits.normal,
                ClientType::Pubsub => limits.pubsub,
            };
            let unsent = session.outbox.unread(safe, is_unlogged) as u64;
            let over_soft = limit.soft_bytes > 0 && unsent > limit.soft_bytes;
            let since_ms = *session.over_soft_since_ms.get_or_insert(now_ms);
            if !over_soft {
                session.over_soft_since_ms = None;
            }
            let too_long = over_soft && now_ms - since_ms >= limit.soft_seconds as i64 * 1_000;
            let over_hard = limit.hard_bytes > 0 && unsent > limit.hard_bytes;
            if (over_hard || too_long) && !session.killed {
                tracing::warn!(client = session.key.id, unsent, "closed: does not read its output");
                self.stats.output_limit_disconnections += 1;
                session.kill();
            }
        }
    }
}
