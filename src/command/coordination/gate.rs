//! GATE: a limited number of units, each held under a holder's name until it is released or its lease ends.
//!
//! A holder that calls again gets the grant that it has. Units that a holder does not release become free at the end of
//! its lease; leases of other holders are not affected. GATE.LIMIT gives the gate a limit of its own; without one each
//! call brings the limit. If the limit is lowered, units beyond it stay with their holders, and nothing is granted
//! until enough units are free.

use super::error::{GateError, GrantError};
use super::grant::{
    BASE, Options, Page, Said, answer, holder, prolongation, refuse_not_held, refuse_over, remember_refusal,
    retry_after_ms, units, wait, waiting_before,
};
use crate::command::help::family;
use crate::engine::{Command, Ctx, Done, Flow, MayWait, Run};
use crate::keyspace::verb::handles::{Found, GateKind, GateMut};
use crate::resp::reply::Reply;
use crate::spec::args::Args;
use crate::spec::error::Error;
use crate::spec::{Access, Flags, KeySpec};
use crate::value::grants::{Grant, Grants, Kind};
use crate::wait::Want;

/// The holder of the units of a plain counter that a gate took over.
pub(super) const COUNTED: &[u8] = b"(counter)";

/// A call of GATE.ACQUIRE.
struct Acquire<'a> {
    key: &'a [u8],
    holder: &'a [u8],
    limit: Option<u64>,
    units: u64,
    until_ms: i64,
    options: Options<'a>,
}

impl<'a> Acquire<'a> {
    fn parse(ctx: &Ctx<'_>, args: &mut Args<'a>) -> Result<Acquire<'a>, Error> {
        let (key, holder) = (args.bytes()?, holder(args)?);
        let (mut limit, mut wanted, mut options) = (None, 1, Options::default());
        while !args.is_empty() {
            if args.option("limit", 1) {
                limit = Some(units(args, 1)?);
            } else if args.option("units", 1) {
                wanted = units(args, 1)?;
            } else if !options.take(ctx, args, true)? {
                return Err(Error::Syntax);
            }
        }
        if limit.is_some_and(|limit| wanted > limit) {
            return Err(GateError::UnitsAboveLimit.into());
        }
        if holder == COUNTED {
            return Err(GateError::ReservedName.into());
        }
        let until_ms = options.until_ms(ctx)?;
        Ok(Acquire { key, holder, limit, units: wanted, until_ms, options })
    }

    /// The limit that applies to this call.
    fn limit(&self, gate: Option<&Grants>) -> Result<u64, Error> {
        match gate {
            Some(gate) if gate.is_fixed() => Ok(gate.limit()),
            _ => Ok(self.limit.ok_or(GateError::NoLimit)?),
        }
    }

    fn run(&self, ctx: &mut Ctx<'_>) -> MayWait {
        let (db, is_retry, is_over) = (ctx.db(), ctx.is_retry(), ctx.ks.expires_at_once(self.until_ms));
        let found = ctx.ks.open_gate_or_counter(db, self.key)?;
        let gate = found.grants();
        if let Some(own) = gate.and_then(|gate| gate.get(self.holder)) {
            let until_ms = own.until_ms.max(self.until_ms);
            let note = self.options.note.unwrap_or(own.note).to_vec();
            let renewed = own.renewed(self.holder, until_ms, &note);
            return self.renew(ctx.reply, found, renewed);
        }
        let limit = self.limit(gate)?;
        let in_use = gate.map_or_else(|| found.count(), Grants::units);
        if is_over {
            refuse_over(ctx.reply);
            return Ok(Flow::Replied);
        }
        let waiting = waiting_before(&ctx.server.waits, is_retry, db, self.key);
        if waiting == 0 && in_use.saturating_add(self.units) <= limit {
            self.grant(ctx.reply, found, limit)?;
            return Ok(Flow::Replied);
        }
        // A call that can never be granted would block all calls behind it. A gate with a limit of 0 is closed, but may
        // open again.
        let is_hopeless = self.units > limit && limit > 0;
        if !is_hopeless && let Some(flow) = wait(ctx, Kind::Gate, self.key, &self.options, self.until_ms)? {
            return Ok(flow);
        }
        let reason = match waiting {
            _ if is_hopeless => "limit",
            0 => "full",
            _ => "queue",
        };
        let retry_after = retry_after_ms(ctx, self.key);
        remember_refusal(ctx, Kind::Gate, self.key, self.holder, reason, in_use, limit);
        answer(
            ctx.reply,
            false,
            &[
                ("reason", Said::Text(reason.as_bytes())),
                ("in-use", in_use.into()),
                ("limit", limit.into()),
                ("waiting", waiting.into()),
                ("retry-after-ms", retry_after),
            ],
        );
        Ok(Flow::Replied)
    }

    /// Extends the grant of a holder that calls again.
    fn renew(&self, reply: &mut Reply, found: Found<'_, GateKind>, renewed: Grant<'_>) -> MayWait {
        if renewed.units != self.units {
            return Err(GateError::OtherUnits { held: renewed.units }.into());
        }
        if let Found::Grants(mut gate) = found {
            let held = gate.set(renewed);
            answer_granted(reply, &gate, held);
        }
        Ok(Flow::Replied)
    }

    /// Grants units that are free.
    fn grant(&self, reply: &mut Reply, found: Found<'_, GateKind>, limit: u64) -> Done {
        let mut gate = found.into_gate(self.key, limit, (COUNTED, self.until_ms)).ok_or(GrantError::NoTokens)?;
        let note = self.options.note.unwrap_or_default();
        let held = gate.grant(self.holder, self.units, false, self.until_ms, note).ok_or(GrantError::NoTokens)?;
        answer_granted(reply, &gate, held);
        Ok(())
    }
}

fn answer_granted(reply: &mut Reply, gate: &GateMut<'_>, held: Grant<'_>) {
    let grants = gate.grants();
    let fields = [
        ("token", held.token.into()),
        ("in-use", grants.units().into()),
        ("limit", grants.limit().into()),
        ("lease-ms", Said::left_ms(held.until_ms, gate.now_ms())),
    ];
    answer(reply, true, &fields);
}

fn acquire(ctx: &mut Ctx<'_>, mut args: Args<'_>) -> MayWait {
    let call = Acquire::parse(ctx, &mut args)?;
    ctx.as_one_change(|ctx| call.run(ctx))
}

/// GATE.RENEW: sets the end of a holder's lease.
fn renew(ctx: &mut Ctx<'_>, mut args: Args<'_>) -> Done {
    let (key, holder, until_ms) = prolongation(ctx, &mut args)?;
    let (db, now_ms) = (ctx.db(), ctx.now_ms());
    let Some(gate) = ctx.ks.open_gate(db, key)? else { return refuse_not_held(ctx.reply) };
    let Some(own) = gate.live(holder) else { return refuse_not_held(ctx.reply) };
    let note = own.note.to_vec();
    let renewed = own.renewed(holder, until_ms, &note);
    let held = gate.prolong(renewed);
    let lease = Said::left_ms(held.until_ms, now_ms);
    answer(ctx.reply, true, &[("token", held.token.into()), ("lease-ms", lease)]);
    Ok(())
}

fn release(ctx: &mut Ctx<'_>, mut args: Args<'_>) -> Done {
    let (key, holder) = (args.bytes()?, args.bytes()?);
    let db = ctx.db();
    let Some(gate) = ctx.ks.open_gate(db, key)? else { return refuse_not_held(ctx.reply) };
    let grants = gate.grants();
    let Some(own) = grants.get(holder) else { return refuse_not_held(ctx.reply) };
    let (token, in_use) = (own.token, grants.units() - own.units);
    gate.end(holder);
    answer(ctx.reply, true, &[("token", token.into()), ("in-use", in_use.into())]);
    Ok(())
}

/// GATE.LIMIT: gives the gate a limit of its own, or removes it.
fn limit(ctx: &mut Ctx<'_>, mut args: Args<'_>) -> Done {
    let key = args.bytes()?;
    let limit = if args.flag("none") { None } else { Some(units(&mut args, 0)?) };
    let db = ctx.db();
    let gate = ctx.ks.open_gate(db, key)?;
    let in_use = gate.as_ref().map_or(0, |gate| gate.grants().units());
    match (limit, gate) {
        (Some(limit), Some(mut gate)) => gate.set_limit(limit, true),
        (Some(limit), None) => _ = ctx.ks.create_gate(db, key, limit, true),
        (None, Some(mut gate)) if gate.grants().is_fixed() => match in_use {
            0 => gate.remove(),
            _ => gate.set_limit(gate.grants().limit(), false),
        },
        (None, _) => {
            answer(ctx.reply, false, &[("in-use", in_use.into())]);
            return Ok(());
        }
    }
    let limit = limit.map_or(Said::Number(-1), Said::from);
    answer(ctx.reply, true, &[("limit", limit), ("in-use", in_use.into())]);
    Ok(())
}

/// GATE.HOLDERS: lists holders from a cursor on, the first granted first. A holder that is there from the first call to
/// the last is listed exactly once.
fn holders(ctx: &mut Ctx<'_>, mut args: Args<'_>) -> Done {
    let page = Page::parse(&mut args)?;
    let db = ctx.db();
    let slot = ctx.ks.look_up(db, page.key);
    let gate = slot.map(|slot| ctx.ks.gate_at(db, slot)).transpose()?;
    page.answer(ctx.reply, ctx.ks.now_ms(), gate, ["holder", "note"]);
    Ok(())
}

fn info(ctx: &mut Ctx<'_>, mut args: Args<'_>) -> Done {
    let key = args.bytes()?;
    let db = ctx.db();
    let slot = ctx.ks.look_up(db, key);
    let gate = slot.map(|slot| ctx.ks.gate_at(db, slot)).transpose()?.map(|gate| gate.grants());
    let (in_use, holders) = gate.map_or((0, 0), |gate| (gate.units(), gate.len()));
    let limit = gate.map_or(Said::Number(-1), |gate| gate.limit().into());
    let is_fixed = gate.is_some_and(Grants::is_fixed);
    let waiting = ctx.server.waits.waiting(db, key, Want::Place);
    let next_end = retry_after_ms(ctx, key);
    let fields = [
        ("in-use", in_use.into()),
        ("limit", limit),
        ("own-limit", u64::from(is_fixed).into()),
        ("holders", holders.into()),
        ("waiting", waiting.into()),
        ("next-end-ms", next_end),
    ];
    answer(ctx.reply, in_use > 0, &fields);
    Ok(())
}

/// The family's table.
pub(crate) const COMMANDS: &[Command] = &[
    family("gate"),
    Command {
        name: "gate.acquire",
        arity: -5,
        flags: Flags::WRITE.union(Flags::DENYOOM).union(Flags::BLOCKING),
        keys: &[KeySpec::one(1, Access::Update)],
        complexity: "O(log N) with N the number of holders",
        summary: "Takes units of a gate until a lease ends, or waits for them in order of arrival.",
        syntax: "key holder [LIMIT limit:integer] <PX milliseconds | EX seconds | PXAT unix-time-milliseconds | \
            EXAT unix-time-seconds>:lease [UNITS units:integer] \
            [BLOCK milliseconds:integer | ASYNC milliseconds:integer]:wait [NOTE text]",
        run: Run::MayWait(acquire),
        ..BASE
    },
    Command {
        name: "gate.renew",
        arity: 5,
        flags: Flags::WRITE.union(Flags::FAST),
        keys: &[KeySpec::one(1, Access::Update)],
        complexity: "O(log N) with N the number of holders",
        summary: "Sets the remaining lease time of a holder.",
        syntax: "key holder \
            <PX milliseconds | EX seconds | PXAT unix-time-milliseconds | EXAT unix-time-seconds>:lease",
        run: Run::Now(renew),
        ..BASE
    },
    Command {
        name: "gate.release",
        arity: 3,
        flags: Flags::WRITE.union(Flags::FAST),
        keys: &[KeySpec::one(1, Access::Take)],
        complexity: "O(log N) with N the number of holders",
        summary: "Releases the units of a holder.",
        syntax: "key holder",
        run: Run::Now(release),
        ..BASE
    },
    Command {
        name: "gate.limit",
        categories: &["@dangerous"],
        arity: 3,
        flags: Flags::WRITE.union(Flags::DENYOOM).union(Flags::FAST),
        keys: &[KeySpec::one(1, Access::Update)],
        summary: "Gives a gate a limit of its own, which replaces the limits that calls bring, or removes it.",
        syntax: "key <limit:integer | NONE>:limit",
        run: Run::Now(limit),
        ..BASE
    },
    Command {
        name: "gate.holders",
        arity: -3,
        flags: Flags::READONLY,
        keys: &[KeySpec::one(1, Access::Read)],
        complexity: "O(log N + M) with N the number of holders and M the number returned",
        summary: "Lists the holders of a gate, from a cursor on.",
        syntax: "key cursor:integer [COUNT count:integer]",
        run: Run::Now(holders),
        ..BASE
    },
    Command {
        name: "gate.info",
        arity: 2,
        flags: Flags::READONLY.union(Flags::FAST),
        keys: &[KeySpec::one(1, Access::Read)],
        summary: "Returns how much of a gate is in use, its limit, and how many calls wait.",
        syntax: "key",
        run: Run::Now(info),
        ..BASE
    },
];
