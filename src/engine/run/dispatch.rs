//! From an admitted command to its reply.

use std::time::Duration;

use crate::base::clock::Clock;
use crate::base::lsn::Lsn;
use crate::base::num::parse_i64;
use crate::config::Config;
use crate::engine::client::audit;
use crate::engine::observe::audience::Audience;
use crate::engine::run::explain::explained;
use crate::engine::run::pipeline::Past;
use crate::engine::state::{CommandTable, Connections, Ctx, Entry, Flow, MayWait, Origin, Run, ServerState};
use crate::keyspace::any_value::Value;
use crate::keyspace::limits::UNIT_MAX_BYTES;
use crate::keyspace::{DbIndex, Keyspace, Slot};
use crate::meters::Meters;
use crate::meters::command_log::Ended;
use crate::meters::hotkeys::{HotKeys, Wanted};
use crate::meters::latency::Event;
use crate::meters::stats::Stats;
use crate::persist::journal::Journal;
use crate::programs::limits::{COMMAND_LOG_MAX_ARG_BYTES, COMMAND_LOG_MAX_ARGS};
use crate::resp::reply::Reply;
use crate::resp::request::{Argv, OwnedArgv};
use crate::session::clients::Clients;
use crate::session::limits::OUTBOX_LEAST_SHARE_BYTES;
use crate::session::{ReplyMode, Restrictions, Session};
use crate::spec::args::Args;
use crate::spec::error::Error;
use crate::spec::secrets::REDACTED;
use crate::spec::{Audited, Databases, Flags, Group};
use crate::wait::wait_queues::{Mode, Parked};
use crate::wait::{Ticket, Wait};

/// The reply to a call that would make a unit longer than the journal takes.
const UNIT_IS_FULL: Error = Error::text(
    "ERR the changes of this command, transaction or script exceed 1 GB of the journal. Change less at a time",
);

impl Session {
    /// Discards a reply that the client does not want (CLIENT REPLY).
    pub(in crate::engine) fn mute(&mut self, out: &mut Reply, start: usize) {
        match self.reply_mode {
            ReplyMode::On => return,
            ReplyMode::Off => {}
            ReplyMode::SkipNext => self.reply_mode = ReplyMode::SkipThis,
            ReplyMode::SkipThis => {
                self.reply_mode = ReplyMode::On;
                self.restrictions.set(Restrictions::MUTED, false);
            }
        }
        out.truncate(start);
        self.outbox.unfence_coming(start);
    }

    /// Queues a command for EXEC. Queued commands count as unanswered input and are limited alike.
    pub(in crate::engine) fn queue(
        &mut self,
        config: &Config,
        stats: &mut Stats,
        entry: &Entry,
        argv: Argv<'_>,
        out: &mut Reply,
    ) {
        let Some(transaction) = &mut self.transaction else { return };
        if matches!(entry.command.databases, Databases::Selected) {
            let db = argv.get(1).and_then(parse_i64).and_then(|db| DbIndex::try_from(db).ok());
            transaction.selected = db.filter(|db| *db < config.databases).or(transaction.selected);
        }
        transaction.push(entry, argv);
        let bytes = transaction.bytes();
        if bytes > config.query_limit_bytes() {
            tracing::warn!(client = self.key.id, bytes, "closed: it queues too much for EXEC");
            stats.query_limit_disconnections += 1;
            self.kill();
        }
        out.status("QUEUED");
    }

    /// Writes the error for an unknown command or a wrong number of arguments.
    #[cold]
    pub(in crate::engine) fn refuse_unresolved(
        &mut self,
        table: &CommandTable,
        audience: &mut Audience,
        stats: &mut Stats,
        argv: Argv<'_>,
        out: &mut Reply,
    ) {
        // A browser was tricked into talking to this port: no part of its request may be mistaken for a command.
        if argv[0].eq_ignore_ascii_case(b"post") || argv[0].eq_ignore_ascii_case(b"host:") {
            tracing::warn!(client = self.key.id, address = self.address, "closed: it speaks HTTP");
            self.kill();
            return;
        }
        let start = out.len();
        if let Err(error) = table.resolve(argv) {
            self.refuse(audience, stats, table.named_by(argv), error, out);
        }
        self.end_caching(None);
        self.mute(out, start);
    }

    /// Replies to a command of the session that is refused.
    #[cold]
    pub(in crate::engine) fn refuse(
        &mut self,
        audience: &mut Audience,
        stats: &mut Stats,
        entry: Option<&Entry>,
        error: Error,
        out: &mut Reply,
    ) {
        let mut text = error.to_string();
        if entry.is_some_and(|entry| entry.command.flags.contains(Flags::RUNS_QUEUE)) {
            // A refused EXEC ends its transaction, whatever the reason.
            audience.discard(self);
            text = format!("EXECABORT Transaction discarded because of: {}", text.trim_start_matches("ERR "));
        }
        stats.count_error(text.as_bytes());
        if let Some(entry) = entry {
            stats.commands[entry.id.index()].rejected += 1;
        }
        if let Some(transaction) = &mut self.transaction {
            transaction.broken = true;
        }
        out.error(text.as_bytes());
    }
}

impl Audience {
    /// Drops the queued commands and watched keys of a session.
    pub fn discard(&mut self, session: &mut Session) {
        session.transaction = None;
        session.restrictions.set(Restrictions::QUEUEING, false);
        self.unwatch(session);
    }
}

/// A call that [may stand out](crate::meters::command_log::CommandLog::may_stand_out).
struct Outstanding<'a> {
    session: &'a Session,
    entry: &'a Entry,
    argv: Argv<'a>,
    origin: Origin,
    ticks: u64,
    reply_bytes: usize,
}

impl Meters {
    /// Begins to track the hottest keys, and forgets earlier results.
    pub fn start_hotkeys(&mut self, config: &Config, clock: &Clock, wanted: Wanted) {
        self.hotkeys = Some(Box::new(HotKeys::start(wanted, clock.now_ms(), clock.steady_ms())));
        self.command_log.attend_to_all(true, config, &self.stats.clock);
    }

    /// Ends the tracking of hot keys, if it runs; returns whether it did.
    pub fn stop_hotkeys(&mut self, config: &Config, clock: &Clock) -> bool {
        let Some(hot_keys) = self.hotkeys.as_mut().filter(|hot_keys| hot_keys.is_running()) else {
            return false;
        };
        hot_keys.stop(clock.steady_ms());
        self.command_log.attend_to_all(false, config, &self.stats.clock);
        true
    }

    /// Ends the tracking of hot keys when its time is over.
    pub fn end_hotkeys_if_due(&mut self, config: &Config, clock: &Clock) {
        if self.hotkeys.as_ref().is_some_and(|hot_keys| hot_keys.is_due(clock.steady_ms())) {
            self.stop_hotkeys(config, clock);
        }
    }

    /// Records a command that [may stand out](crate::meters::command_log::CommandLog::may_stand_out). Calls
    /// made by scripts and other commands belong to their callers.
    #[cold]
    fn note_outstanding(&mut self, table: &CommandTable, clock: &Clock, call: Outstanding<'_>) {
        let Outstanding { session, entry, argv, origin, ticks, reply_bytes } = call;
        if origin.is_inside() {
            return;
        }
        if let Some(hot_keys) = self.hotkeys.as_mut().filter(|hot_keys| hot_keys.is_running())
            && entry.command.has_keys()
        {
            let keys = || table.keys_of(entry.command, argv).unwrap_or_default();
            hot_keys.note(argv, keys, ticks, (argv.encoded_bytes() + reply_bytes) as u64);
        }
        let event = match origin {
            Origin::Retry => Event::CommandUnblocking,
            _ if entry.command.flags.contains(Flags::FAST) => Event::FastCommand,
            _ => Event::Command,
        };
        self.latency.note(event, Duration::from_nanos(self.stats.nanos(ticks)), clock);
        if entry.command.flags.contains(Flags::SKIP_SLOWLOG) {
            return;
        }
        let ended = Ended { at_s: clock.now_ms() / 1_000, ticks, micros: self.stats.micros(ticks), reply_bytes };
        let by = (session.address.as_str(), session.name.as_slice());
        let is_secret = table.secrets_of(entry.command, argv);
        let instead = |index: usize| is_secret.get(index).copied().unwrap_or_default().then_some(REDACTED);
        self.command_log.note(argv, ended, by, || {
            OwnedArgv::abridged_as(argv, COMMAND_LOG_MAX_ARGS, COMMAND_LOG_MAX_ARG_BYTES, instead)
        });
    }
}

impl Connections<'_> {
    /// Makes a new call wait. If the call waits beside its session, its ticket is written to `out`.
    #[inline(never)]
    pub(in crate::engine) fn park(
        &mut self,
        session: &mut Session,
        entry: &Entry,
        argv: Argv<'_>,
        wait: Wait,
        ks: &Keyspace,
        out: &mut Reply,
    ) -> Ticket {
        let Wait { want, keys, deadline_ms, retry_at_ms, on_timeout, on_ticket, again, family, in_vain, or_string } =
            wait;
        let steady = |at_ms: Option<i64>| at_ms.map(|at_ms| self.clock.steady_at_ms(at_ms, ks.now_ms()));
        let (deadline_ms, retry_at_ms) = (steady(deadline_ms), steady(retry_at_ms));
        let argv = again.unwrap_or_else(|| OwnedArgv::from_argv(argv));
        let db = session.db;
        let ticket = self.waits.issue();
        let mode = match on_ticket {
            None => Mode::Blocking { is_muted: session.is_muted() },
            Some(answer) => {
                let before = keys.as_argv().iter().map(|key| self.waits.waiting(db, key, want)).max();
                answer(out, ticket, before.unwrap_or(0));
                Mode::Beside
            }
        };
        let counted = family.zip(keys.as_argv().iter().next()).map(|(family, key)| {
            let group = ks.counted_prefixes().group_of(key);
            self.stats.coordination.begin_wait(family, group)
        });
        let parked = Box::new(Parked {
            ticket,
            session: session.key,
            mode,
            command: entry.id,
            argv,
            db,
            want,
            keys,
            deadline_ms,
            retry_at_ms,
            on_timeout,
            counted,
            in_vain,
            or_string,
            since_ms: self.clock.steady_ms(),
        });
        self.begin_waiting(session, parked);
        ticket
    }
}

/// Runs one call of one command inside the current unit, whether it comes from a client, a transaction, a script or a
/// call that waited. Returns `Some` when the call must wait, which only happens for origins that may wait.
#[inline]
pub(crate) fn call(
    ks: &mut Keyspace,
    server: &mut ServerState,
    session: &mut Session,
    entry: &'static Entry,
    argv: Argv<'_>,
    reply: &mut Reply,
    origin: Origin,
) -> Option<Box<Wait>> {
    let start_ticks = server.time.last_ticks;
    let start = reply.len();
    let changes_before = ks.changes_by_commands();
    if origin == Origin::Exec && reply.is_long() {
        // The replies of the earlier commands have used up the length of EXEC's reply.
        fail(server, entry, &Error::ReplyTooLong, reply, start);
        return None;
    }
    if ks.effects().are_whole() && !begin_recorded(ks, entry, argv) {
        fail(server, entry, &UNIT_IS_FULL, reply, start);
        return None;
    }
    if server.persistence.journal.is_some() && entry.command.group == Group::Scripting {
        ks.see_scripts();
    }
    // The reply of a command that changes something is bounded by the data it removes, or by the value it reads.
    let must_fit = !entry.command.flags.intersects(Flags::WRITE | Flags::MAY_REPLICATE);
    let outer_must_fit = reply.set_must_fit(must_fit);
    reply.fit_longest(server.config.proto_max_bulk_len);
    let room = room_for(&server.clients, entry, origin, session);
    if let Some(bytes) = room {
        reply.bound_to(bytes);
    }
    let mut ctx = Ctx { ks: &mut *ks, server: &mut *server, session: &mut *session, reply: &mut *reply, entry, origin };
    let args = Args::new(argv, entry.name_args());
    let result = match entry.command.audited {
        None => run(&mut ctx, entry, args),
        Some(audited) => run_audited(&mut ctx, entry, args, audited),
    };
    ctx.reply.set_must_fit(outer_must_fit);
    debug_assert!(
        !ctx.ks.keeps_expired()
            || (!entry.command.flags.contains(Flags::WRITE) && ctx.ks.changes_by_commands() == changes_before),
        "{} writes while expired keys stay in place",
        entry.full_name
    );
    let waits = match result {
        Ok(Flow::Replied) if room.is_some() && ctx.reply.is_cut() => {
            reply.discard_from(start);
            server.clients.note_no_room(server.time.clock.steady_ms());
            return None;
        }
        Ok(Flow::Replied) if ctx.reply.is_cut() => {
            debug_assert_eq!(ks.changes_by_commands(), changes_before, "{} must not be cut", entry.full_name);
            if origin == Origin::Client {
                server.clients.hold_endless_reply_to_limit(&server.config, &mut server.meters.stats, session);
            }
            fail(server, entry, &Error::ReplyTooLong, reply, start);
            None
        }
        Ok(Flow::Replied) => None,
        Ok(Flow::Wait(wait)) if ctx.may_wait() => Some(wait),
        Ok(Flow::Wait(wait)) => {
            (wait.on_timeout)(reply);
            None
        }
        Err(error) => {
            debug_assert_eq!(ks.changes_by_commands(), changes_before, "{} failed half-way", entry.full_name);
            let error = if entry.command.is_own() {
                explained(ks, server.table, session.db, entry, argv, error)
            } else {
                error
            };
            fail(server, entry, &error, reply, start);
            None
        }
    };
    if room.is_some() {
        reply.unbound();
    }
    let ticks = server.meters.stats.clock.raw();
    server.time.last_ticks = ticks;
    let mut took = ticks.saturating_sub(start_ticks);
    let mut reply_end = reply.len();
    if server.pipeline.past_of_call.bytes > 0 {
        // Sending does not count in the time of any other command either.
        let Past { bytes, ticks } = std::mem::take(&mut server.pipeline.past_of_call);
        (took, reply_end) = (took.saturating_sub(ticks), reply_end + bytes);
    }
    let stats = &mut server.meters.stats.commands[entry.id.index()];
    stats.ticks += took;
    // A waiting call is counted when it ends.
    if waits.is_none() {
        stats.calls += 1;
        match &mut stats.latencies {
            Some(latencies) => latencies.add(took),
            None => server.meters.stats.begin_latencies(entry.id, took),
        }
    }
    let reply_bytes = reply_end.saturating_sub(start);
    if server.meters.command_log.may_stand_out(took, argv, reply_bytes) && waits.is_none() {
        let call = Outstanding { session, entry, argv, origin, ticks: took, reply_bytes };
        server.meters.note_outstanding(server.table, &server.time.clock, call);
    }
    waits
}

#[inline(always)]
fn run(ctx: &mut Ctx<'_>, entry: &Entry, args: Args<'_>) -> MayWait {
    match entry.command.run {
        Run::Now(run) => run(ctx, args).map(|()| Flow::Replied),
        Run::MayWait(run) => run(ctx, args),
        Run::Container => Err(Error::Arity(entry.full_name.clone().into())),
    }
}

/// Runs a call that the audit reports if it makes its change.
#[cold]
#[inline(never)]
fn run_audited(ctx: &mut Ctx<'_>, entry: &Entry, args: Args<'_>, audited: Audited) -> MayWait {
    // The call may be the end of its own user.
    let user = audit::name_of(&ctx.server.acl, ctx.session.user);
    let result = run(ctx, entry, args);
    if result.as_ref().is_ok_and(|flow| audited.is_made(flow, ctx.is_retry())) {
        audit::Call { table: ctx.server.table, session: ctx.session, user, entry, argv: args.argv() }.log(audited);
    }
    result
}

/// The maximum length of the call's reply now, in bytes, if the call can be withdrawn.
#[inline]
fn room_for(clients: &Clients, entry: &Entry, origin: Origin, session: &Session) -> Option<usize> {
    if !clients.room.is_full() {
        return None;
    }
    let flags = entry.command.flags;
    let only_reads = flags.contains(Flags::READONLY) && !flags.intersects(Flags::NOSCRIPT | Flags::BLOCKING);
    let can_run_again = origin == Origin::Client && only_reads && !session.restrictions.contains(Restrictions::MUTED);
    can_run_again.then_some(OUTBOX_LEAST_SHARE_BYTES)
}

/// Begins a command whose effects are recorded in full; returns whether it may run.
fn begin_recorded(ks: &mut Keyspace, entry: &Entry, argv: Argv<'_>) -> bool {
    if ks.effects().are_annotated() {
        ks.note_command(entry.id.index() as u16);
    }
    !is_too_much(ks, entry, argv)
}

/// Whether a command might change more than the journal can still take in the current unit, judged by the length of its
/// arguments. Commands whose effects may be longer check for themselves: see [`Ctx::room_in_unit`].
fn is_too_much(ks: &Keyspace, entry: &Entry, argv: Argv<'_>) -> bool {
    entry.command.flags.contains(Flags::WRITE) && !argv.fit_into(room_in_unit(ks))
}

fn room_in_unit(ks: &Keyspace) -> usize {
    let effects = ks.effects();
    if effects.are_whole() { UNIT_MAX_BYTES.saturating_sub(effects.as_bytes().len()) } else { usize::MAX }
}

impl Ctx<'_> {
    /// Begins to make all committed units durable, whatever `appendfsync` says. Returns the last of them.
    pub fn begin_sync(&mut self) -> Lsn {
        let clients = self.server.clients.sessions.len();
        self.server.persist(self.ks, |persistence, _, _| persistence.begin_sync(clients));
        // If the journal has failed, the last unit is by now the last safe one: no session may wait for lost units.
        self.server.persistence.journal.as_ref().map_or(Lsn::NONE, Journal::last)
    }

    /// Bytes of effects that the unit may still record; unlimited unless some reader needs whole effects.
    pub fn room_in_unit(&self) -> usize {
        room_in_unit(self.ks)
    }

    /// Refuses a command that would record `bytes` of effects, if the journal does not take them. Commands whose
    /// effects may be longer than their arguments call this before they change anything.
    pub fn admit_effects(&self, bytes: usize) -> Result<(), Error> {
        if bytes > self.room_in_unit() { Err(UNIT_IS_FULL) } else { Ok(()) }
    }

    /// [Stores](Keyspace::put_value) a whole value in the selected database, unless it is too long for the journal.
    pub fn put_value(&mut self, key: &[u8], value: Value) -> Result<Slot, Error> {
        self.put_value_in(self.db(), key, value)
    }

    /// [Stores](Keyspace::put_value) a whole value in the given database, unless it is too long for the journal.
    pub fn put_value_in(&mut self, db: DbIndex, key: &[u8], value: Value) -> Result<Slot, Error> {
        let room = self.room_in_unit();
        self.ks.put_value_within(db, key, value, room).ok_or(UNIT_IS_FULL)
    }

    /// Replies with an error after changes that can't be undone. Without such changes a handler would return `Err`
    /// instead.
    pub fn fail_half_way(&mut self, error: &Error) {
        let start = self.reply.len();
        fail(self.server, self.entry, error, self.reply, start);
    }
}

#[cold]
fn fail(server: &mut ServerState, entry: &Entry, error: &Error, reply: &mut Reply, start: usize) {
    let text = error.to_string();
    server.meters.stats.count_error(text.as_bytes());
    server.meters.stats.commands[entry.id.index()].failed += 1;
    reply.discard_from(start);
    reply.error(text.as_bytes());
}
