//! LOCK: held by one owner, or shared by several, until it is released or its lease ends.
//!
//! **Retries and re-entrance.** An owner that calls again gets the grant that it has, with its fencing token, so a call
//! without a reply can be repeated. To enter a lock once more, an owner names the depth that it enters: `DEPTH 2` makes
//! the depth 2, however often the call is repeated, and a release at depth 2 leaves 1. If the owner lost the lock in
//! between, the call with DEPTH is refused.
//!
//! **Strings.** A string under the key is a lock of `SET key value NX PX`, whose holder has no name; and such a SET
//! finds the key of a LOCK taken. So programs can move from one to the other one by one.

use super::error::{GrantError, LockError};
use super::grant::{
    BASE, Options, Said, answer, holder, prolongation, refuse_not_held, refuse_over, remember_refusal, retry_after_ms,
    say, text, wait, waiting_before,
};
use super::outcome;
use crate::base::num;
use crate::command::help::family;
use crate::command::limits::HOLDERS_COUNT;
use crate::engine::{Command, Ctx, Done, Flow, MayWait, Run};
use crate::keyspace::NEVER;
use crate::keyspace::verb::handles::{FoundLock, GrantsRef};
use crate::resp::reply::Reply;
use crate::spec::args::Args;
use crate::spec::error::Error;
use crate::spec::{Access, Audited, Flags, KeySpec};
use crate::value::grants::{Grant, Grants, Kind};
use crate::wait::Want;

/// The greatest depth of a lock.
const DEPTH_MAX: u64 = u32::MAX as u64;

fn depth(args: &mut Args<'_>) -> Result<u64, Error> {
    let depth = num::parse_i64(args.bytes()?).and_then(|depth| u64::try_from(depth).ok());
    Ok(depth.filter(|depth| (1..=DEPTH_MAX).contains(depth)).ok_or(LockError::Depth { most: DEPTH_MAX })?)
}

/// A call of LOCK.ACQUIRE.
struct Acquire<'a> {
    key: &'a [u8],
    owner: &'a [u8],
    shared: bool,
    depth: u64,
    until_ms: i64,
    options: Options<'a>,
}

impl<'a> Acquire<'a> {
    fn parse(ctx: &Ctx<'_>, args: &mut Args<'a>) -> Result<Acquire<'a>, Error> {
        let (key, owner) = (args.bytes()?, holder(args)?);
        let (mut shared, mut at_depth, mut options) = (false, 1, Options::default());
        while !args.is_empty() {
            if args.flag("shared") {
                shared = true;
            } else if args.option("depth", 1) {
                at_depth = depth(args)?;
            } else if !options.take(ctx, args, true)? {
                return Err(Error::Syntax);
            }
        }
        let until_ms = options.until_ms(ctx)?;
        Ok(Acquire { key, owner, shared, depth: at_depth, until_ms, options })
    }

    fn run(&self, ctx: &mut Ctx<'_>) -> MayWait {
        let (db, is_retry, is_over) = (ctx.db(), ctx.is_retry(), ctx.ks.expires_at_once(self.until_ms));
        let found = ctx.ks.open_lock_or_string(db, self.key)?;
        if let Some(own) = found.grants().and_then(|lock| lock.get(self.owner)) {
            if own.shared && !self.shared {
                return Err(LockError::IsShared.into());
            }
            let note = self.options.note.unwrap_or(own.note).to_vec();
            let renewed = own.renewed(self.owner, own.until_ms.max(self.until_ms), &note);
            let again = Grant { entered: own.entered.max(self.depth), ..renewed };
            return self.renew(ctx.reply, found, again);
        }
        if self.depth > 1 {
            // The owner believes that it holds the lock.
            refuse_not_held(ctx.reply)?;
            return Ok(Flow::Replied);
        }
        if is_over {
            refuse_over(ctx.reply);
            return Ok(Flow::Replied);
        }
        let (is_free, in_use) = match &found {
            FoundLock::Nothing(_) => (true, 0),
            FoundLock::String => (false, 1),
            FoundLock::Lock(lock) => {
                let lock = lock.grants();
                (self.shared && lock.first().is_none_or(|first| first.shared), lock.len())
            }
        };
        let waiting = waiting_before(&ctx.server.waits, is_retry, db, self.key);
        if is_free && waiting == 0 {
            self.grant(ctx.reply, found)?;
            return Ok(Flow::Replied);
        }
        if let Some(flow) = wait(ctx, Kind::Lock, self.key, &self.options, self.until_ms)? {
            return Ok(flow);
        }
        let reason = if is_free { "queue" } else { "held" };
        let retry_after = retry_after_ms(ctx, self.key);
        remember_refusal(ctx, Kind::Lock, self.key, self.owner, reason, in_use as u64, 1);
        let fields =
            [("reason", Said::Text(reason.as_bytes())), ("waiting", waiting.into()), ("retry-after-ms", retry_after)];
        answer(ctx.reply, false, &fields);
        Ok(Flow::Replied)
    }

    /// Extends the grant of an owner that calls again.
    fn renew(&self, reply: &mut Reply, found: FoundLock<'_>, again: Grant<'_>) -> MayWait {
        if let FoundLock::Lock(mut lock) = found {
            let held = lock.set(again);
            answer_held(reply, held, lock.now_ms());
        }
        Ok(Flow::Replied)
    }

    fn grant(&self, reply: &mut Reply, found: FoundLock<'_>) -> Done {
        let mut lock = found.into_lock(self.key).ok_or(GrantError::NoTokens)?;
        let note = self.options.note.unwrap_or_default();
        let held = lock.grant(self.owner, 1, self.shared, self.until_ms, note).ok_or(GrantError::NoTokens)?;
        answer_held(reply, held, lock.now_ms());
        Ok(())
    }
}

/// Replies with an owner's grant.
fn answer_held(reply: &mut Reply, own: Grant<'_>, now_ms: i64) {
    let lease = Said::left_ms(own.until_ms, now_ms);
    answer(reply, true, &[("token", own.token.into()), ("depth", own.entered.into()), ("lease-ms", lease)]);
}

fn acquire(ctx: &mut Ctx<'_>, mut args: Args<'_>) -> MayWait {
    let call = Acquire::parse(ctx, &mut args)?;
    ctx.as_one_change(|ctx| call.run(ctx))
}

/// LOCK.EXTEND: sets the end of an owner's lease.
fn extend(ctx: &mut Ctx<'_>, mut args: Args<'_>) -> Done {
    let (key, owner, until_ms) = prolongation(ctx, &mut args)?;
    let (db, now_ms) = (ctx.db(), ctx.now_ms());
    let Some(lock) = ctx.ks.open_lock(db, key)? else { return refuse_not_held(ctx.reply) };
    let Some(own) = lock.live(owner) else { return refuse_not_held(ctx.reply) };
    let note = own.note.to_vec();
    let renewed = own.renewed(owner, until_ms, &note);
    let held = lock.prolong(renewed);
    answer_held(ctx.reply, held, now_ms);
    Ok(())
}

/// LOCK.RELEASE: releases the lock, or leaves one depth.
fn release(ctx: &mut Ctx<'_>, mut args: Args<'_>) -> Done {
    let (key, owner) = (args.bytes()?, args.bytes()?);
    let from = if args.option("depth", 1) { depth(&mut args)? } else { 1 };
    args.end()?;
    let db = ctx.db();
    let Some(mut lock) = ctx.ks.open_lock(db, key)? else { return refuse_not_held(ctx.reply) };
    let Some(own) = lock.live(owner) else { return refuse_not_held(ctx.reply) };
    // A depth that was left already stays left: this call is a retry.
    let (token, left) = (own.token, own.entered.min(from - 1));
    if left == 0 {
        lock.end(owner);
    } else if left < own.entered {
        let note = own.note.to_vec();
        let renewed = own.renewed(owner, own.until_ms, &note);
        lock.set(Grant { entered: left, ..renewed });
    }
    answer(ctx.reply, true, &[("token", token.into()), ("depth", left.into())]);
    Ok(())
}

fn info(ctx: &mut Ctx<'_>, mut args: Args<'_>) -> Done {
    let key = args.bytes()?;
    let (db, now_ms) = (ctx.db(), ctx.now_ms());
    let slot = ctx.ks.look_up(db, key);
    let waiting = ctx.server.waits.waiting(db, key, Want::Place);
    let next_end = retry_after_ms(ctx, key);
    let lock = slot.map(|slot| ctx.ks.lock_at(db, slot)).transpose()?;
    let mode = match &lock {
        None => "free",
        Some(None) => "string",
        Some(Some(lock)) if lock.grants().first().is_some_and(|first| first.shared) => "shared",
        Some(Some(_)) => "exclusive",
    };
    let lock = lock.flatten();
    let key_end_ms = lock.as_ref().map_or(NEVER, GrantsRef::key_end_ms);
    let grants = lock.map(|lock| lock.grants());
    let count = grants.map_or(0, Grants::len);
    let fields = [
        ("mode", Said::Text(mode.as_bytes())),
        ("holders", count.into()),
        ("waiting", waiting.into()),
        ("next-end-ms", next_end),
    ];
    outcome::begin(ctx.reply, slot.is_some().into(), fields.len() + 1);
    say(ctx.reply, &fields);
    let shown = count.min(HOLDERS_COUNT);
    ctx.reply.bulk(b"owners");
    ctx.reply.array(shown);
    for grant in grants.into_iter().flat_map(|lock| lock.from(0)).take(shown) {
        let fields = [
            ("owner", Said::Text(grant.holder)),
            ("token", grant.token.into()),
            ("depth", grant.entered.into()),
            ("since-ms", Said::Number(grant.since_ms)),
            ("lease-ms", Said::left_ms(grant.until_ms.min(key_end_ms), now_ms)),
            ("note", Said::Text(grant.note)),
        ];
        ctx.reply.map(fields.len());
        say(ctx.reply, &fields);
    }
    Ok(())
}

/// LOCK.BREAK: takes the lock from one owner, or from all.
fn break_lock(ctx: &mut Ctx<'_>, mut args: Args<'_>) -> Done {
    let key = args.bytes()?;
    // The number of arguments tells an owner called NOTE from the option.
    let owner = if args.len() % 2 == 1 { Some(args.bytes()?) } else { None };
    let why = if args.option("note", 1) { text(&mut args)? } else { b"" };
    args.end()?;
    let db = ctx.db();
    let mut ended = 0;
    if let Some(lock) = ctx.ks.open_lock(db, key)? {
        ended = match owner {
            Some(owner) => usize::from(lock.grants().get(owner).is_some()),
            None => lock.grants().len(),
        };
        match owner {
            _ if ended == 0 => {}
            Some(owner) => lock.break_one(owner, why),
            None => lock.break_all(why),
        }
    }
    answer(ctx.reply, ended > 0, &[("ended", ended.into())]);
    Ok(())
}

/// The family's table.
pub(crate) const COMMANDS: &[Command] = &[
    family("lock"),
    Command {
        name: "lock.acquire",
        arity: -5,
        flags: Flags::WRITE.union(Flags::DENYOOM).union(Flags::BLOCKING),
        keys: &[KeySpec::one(1, Access::Update)],
        complexity: "O(log N) with N the number of owners that share the lock",
        summary: "Takes a lock until a lease ends, or waits for it in order of arrival.",
        syntax: "key owner <PX milliseconds | EX seconds | PXAT unix-time-milliseconds | \
            EXAT unix-time-seconds>:lease [BLOCK milliseconds:integer | ASYNC milliseconds:integer]:wait [SHARED] \
            [DEPTH depth:integer] [NOTE text]",
        run: Run::MayWait(acquire),
        ..BASE
    },
    Command {
        name: "lock.extend",
        arity: 5,
        flags: Flags::WRITE.union(Flags::FAST),
        keys: &[KeySpec::one(1, Access::Update)],
        complexity: "O(log N) with N the number of owners that share the lock",
        summary: "Sets the remaining lease time of an owner.",
        syntax: "key owner <PX milliseconds | EX seconds | PXAT unix-time-milliseconds | EXAT unix-time-seconds>:lease",
        run: Run::Now(extend),
        ..BASE
    },
    Command {
        name: "lock.release",
        arity: -3,
        flags: Flags::WRITE.union(Flags::FAST),
        keys: &[KeySpec::one(1, Access::Take)],
        complexity: "O(log N) with N the number of owners that share the lock",
        summary: "Releases a lock, or one level of a lock that was entered again.",
        syntax: "key owner [DEPTH depth:integer]",
        run: Run::Now(release),
        ..BASE
    },
    Command {
        name: "lock.info",
        arity: 2,
        flags: Flags::READONLY,
        keys: &[KeySpec::one(1, Access::Read)],
        complexity: "O(N) with N the number of owners that share the lock",
        summary: "Returns the owners of a lock, and how many calls wait for it.",
        syntax: "key",
        run: Run::Now(info),
        ..BASE
    },
    Command {
        name: "lock.break",
        arity: -2,
        flags: Flags::WRITE,
        keys: &[KeySpec::one(1, Access::Delete)],
        complexity: "O(N) with N the number of owners that share the lock",
        summary: "Takes a lock away from one owner, or from all.",
        syntax: "key [owner] [NOTE text]",
        categories: &["@coordination", "@dangerous"],
        audited: Some(Audited::Lock),
        run: Run::Now(break_lock),
        ..BASE
    },
];
