//! ONCE: a command that runs once for an id, however often the call is repeated.
//!
//! The first call runs the command and keeps its reply under the id, in the unit of the command's own changes: after a
//! crash both are there or neither is. A repeated call gets the kept reply and runs nothing. The reply is kept as a
//! string: [`MAGIC`], then the [tape] that scripts read. So expiry, the journal, snapshots and DUMP treat it like any
//! string.
//!
//! Until the reply is kept, everything can be undone: a reply that is too long, or an error that should not be kept,
//! leaves nothing behind. A command that waits has changed nothing yet, so the call waits as a whole, for the keys of
//! the command and for the id. If another call with the id is served first, its reply goes to both.

use super::super::deadline::Count;
use super::super::string::{Term, string_at};
use super::error::OnceError;
use crate::command::help::FAMILY_HELP;
use crate::command::limits::ONCE_REPLY_MAX_BYTES;
use crate::engine::{Command, Ctx, Flow, MayWait, Run};
use crate::keyspace::Slot;
use crate::resp::reply::{Form, Reply};
use crate::resp::request::Argv;
use crate::resp::tape;
use crate::spec::args::Args;
use crate::spec::error::Error;
use crate::spec::table::Inner;
use crate::spec::{Access, Flags, Group, KeySpec};
use crate::value::string::Digits;
use crate::wait::Wait;

/// The first bytes of a kept reply. No text begins with these, and the last byte is the version of the form.
const MAGIC: &[u8; 8] = b"\xffONCE\r\n\x01";

/// The options between the id and the command.
struct Options<'a> {
    term: Term<'a>,
    keeps_errors: bool,
}

impl<'a> Options<'a> {
    /// Takes the options, and leaves the command.
    fn take(args: &mut Args<'a>) -> Result<Options<'a>, Error> {
        let mut options = Options { term: Term::Unsaid, keeps_errors: false };
        loop {
            if !options.keeps_errors && args.flag("keeperr") {
                options.keeps_errors = true;
            } else if !options.term.take_deadline(args)? {
                return Ok(options);
            }
        }
    }
}

/// The index at which the inner command begins.
fn find_inner(argv: Argv<'_>) -> Option<usize> {
    let mut args = Args::new(argv, 2);
    Options::take(&mut args).ok()?;
    (!args.is_empty()).then(|| args.position())
}

fn once(ctx: &mut Ctx<'_>, mut args: Args<'_>) -> MayWait {
    let argv = args.argv();
    let id = args.bytes()?;
    let Options { term, keeps_errors } = Options::take(&mut args)?;
    let at_ms = term.deadline(ctx)?.ok_or(OnceError::NoTerm)?;
    if args.is_empty() {
        return Err(Error::Syntax);
    }
    let db = ctx.db();
    if let Some(slot) = ctx.ks.find(db, id) {
        return answer_again(ctx, slot).map(|()| Flow::Replied);
    }
    if ctx.ks.expires_at_once(at_ms) {
        return Err(OnceError::Over.into());
    }
    let inner = ctx.admit_inner(argv)?;
    let is_fixed = matches!(term, Term::At(Count::UnixSeconds | Count::UnixMilliseconds, _));
    First { id, at_ms, last_ms: is_fixed.then_some(at_ms), keeps_errors, argv, inner }.run(ctx)
}

/// Replies with the kept reply.
fn answer_again(ctx: &mut Ctx<'_>, slot: Slot) -> Result<(), Error> {
    let mut digits = Digits::new();
    let kept = string_at(ctx.ks, ctx.session.db, slot).map_err(|_| OnceError::NotKept)?.as_bytes(&mut digits);
    // Anybody with write access to the key may have stored anything, which must not break the protocol.
    let tape = kept.strip_prefix(MAGIC).filter(|tape| tape::is_one_value(tape)).ok_or(OnceError::NotKept)?;
    if let Some(error) = tape::error_in(tape) {
        ctx.server.meters.stats.count_error(error);
        ctx.server.meters.stats.commands[ctx.entry.id.index()].failed += 1;
    }
    ctx.reply.tape(tape);
    Ok(())
}

/// The first call with an id.
struct First<'a> {
    id: &'a [u8],
    at_ms: i64,
    /// The time from which the command must not run, Unix ms, if the call named one.
    last_ms: Option<i64>,
    keeps_errors: bool,
    /// The whole call.
    argv: Argv<'a>,
    inner: Inner<'static, 'a, Run>,
}

impl First<'_> {
    fn run(&self, ctx: &mut Ctx<'_>) -> MayWait {
        ctx.begin_inner(&self.inner);
        ctx.server.programs.scripts.has_answered_error = false;
        // In the caller's protocol: a few commands have other replies in RESP3.
        let form = if ctx.reply.is_resp3() { Form::Tape3 } else { Form::Tape2 };
        let mut aside = Reply::new(form);
        let mut inside = Ctx {
            ks: &mut *ctx.ks,
            server: &mut *ctx.server,
            session: &mut *ctx.session,
            reply: &mut aside,
            entry: ctx.entry,
            origin: ctx.origin,
        };
        if let Some(wait) = inside.call_inner(&self.inner) {
            ctx.commit();
            // Another call may keep a reply under the id first, which also ends the waiting.
            let wait = self.inner.wait_as_part_of(self.argv, *wait);
            // A command that must not run later need not wait longer.
            let deadline_ms = self.last_ms.into_iter().chain(wait.deadline_ms).min();
            return Ok(Flow::wait(Wait { deadline_ms, or_string: Some(self.id.into()), ..wait }));
        }
        let tape = aside.as_bytes();
        let is_error = aside.error_from(0).is_some();
        if is_error {
            ctx.server.meters.stats.commands[ctx.entry.id.index()].failed += 1;
        }
        if is_error && !self.keeps_error(ctx) {
            ctx.roll_back();
        } else if let Err(error) = self.keep(ctx, tape) {
            ctx.roll_back();
            return Err(error);
        } else {
            ctx.commit();
        }
        ctx.reply.tape(tape);
        Ok(Flow::Replied)
    }

    /// Whether to keep an error. The error of a script that did not run, or was stopped, is never kept: it does not
    /// predict the outcome of the next try.
    fn keeps_error(&self, ctx: &Ctx<'_>) -> bool {
        let is_answer = self.inner.entry.command.runs.is_none() || ctx.server.programs.scripts.has_answered_error;
        self.keeps_errors && is_answer
    }

    /// Keeps the reply under the id.
    fn keep(&self, ctx: &mut Ctx<'_>, tape: &[u8]) -> Result<(), Error> {
        if tape.len() > ONCE_REPLY_MAX_BYTES {
            return Err(OnceError::TooLong.into());
        }
        let db = ctx.db();
        if ctx.ks.find(db, self.id).is_some() {
            return Err(OnceError::IdTaken.into());
        }
        let kept = [MAGIC, tape].concat();
        ctx.admit_effects(self.id.len() + kept.len())?;
        _ = ctx.ks.put_until(db, self.id, None, &kept, self.at_ms);
        Ok(())
    }
}

/// The family's table.
pub(crate) const COMMANDS: &[Command] = &[Command {
    name: "once",
    arity: -5,
    flags: Flags::WRITE
        .union(Flags::DENYOOM)
        .union(Flags::BLOCKING)
        .union(Flags::MOVABLEKEYS)
        .union(Flags::SKIP_MONITOR),
    keys: &[KeySpec::one(1, Access::Update), KeySpec::unknown(Access::Update)],
    inner: Some(find_inner),
    group: Group::Coordination,
    // Neither Redis nor Valkey has this command.
    since: "0.1.0",
    complexity: "That of the command; O(N) for a repeated reply of N bytes",
    summary: "Runs a command at the first call with an id, and repeats its reply to further calls for a while.",
    syntax: "id:key <EX seconds | PX milliseconds | EXAT unix-time-seconds | \
        PXAT unix-time-milliseconds>:expiration [KEEPERR] command [argument...]",
    sub: &[FAMILY_HELP],
    run: Run::MayWait(once),
    ..Command::EMPTY
}];
