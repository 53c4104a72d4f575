//! GATE: so many units at a time, each held under a name until it is given back or its lease ends.
//!
//! Whoever calls again with the name that it holds under gets the same grant. A place that its holder does not give back is free at its
//! lease's end, and nobody else's is. With GATE.LIMIT the gate has a limit of its own; else each call brings one. Units that are held beyond
//! a lowered limit stay with their holders, and nothing is granted until enough of them are free.

use super::grant::{
    BASE, NO_TOKENS, Options, Page, Said, answer, holder, lease_left, prolong, prolongation, refuse_not_held,
    refuse_over, remember_refusal, retry_after_ms, set, units, wait, waiting_before,
};
use crate::engine::wait::Want;
use crate::engine::{Command, Ctx, Done, Flow, MayWait, Run};
use crate::keyspace::any_value::ValueRef;
use crate::keyspace::{DbIndex, Keyspace, NEVER, Slot};
use crate::spec::args::Args;
use crate::spec::error::Error;
use crate::spec::{Access, Flags, KeySpec};
use crate::value::grants::{Grant, Grants, Kind, TOKEN_MAX, UNITS_MAX};

/// The holder of what a plain counter had counted when a gate took it over.
pub(super) const COUNTED: &[u8] = b"(counter)";

/// What stands under the key of a gate.
#[derive(Clone, Copy)]
enum Found {
    Nothing,
    Gate(Slot),
    /// A counter, as scripts keep one: so many places are taken, by whom it does not say.
    Counter(Slot, u64),
}

impl Found {
    fn under(ks: &mut Keyspace, db: DbIndex, key: &[u8]) -> Result<Found, Error> {
        let Some(slot) = ks.find(db, key) else { return Ok(Found::Nothing) };
        match ks.value(db, slot) {
            ValueRef::Grants(grants) if grants.kind() == Kind::Gate => Ok(Found::Gate(slot)),
            ValueRef::String(text) => {
                let count = text.as_i64().ok_or(Error::WrongType)?;
                Ok(Found::Counter(slot, u64::try_from(count).unwrap_or(0).min(UNITS_MAX)))
            }
            _ => Err(Error::WrongType),
        }
    }
}

/// The gate at `slot`.
pub(super) fn gate(ks: &Keyspace, db: DbIndex, slot: Slot) -> Result<&Grants, Error> {
    match ks.grants(db, slot)? {
        grants if grants.kind() == Kind::Gate => Ok(grants),
        _ => Err(Error::WrongType),
    }
}

/// The gate under a key.
fn gate_under(ctx: &mut Ctx<'_>, key: &[u8]) -> Result<Option<Slot>, Error> {
    let db = ctx.db();
    let slot = ctx.ks.find(db, key);
    slot.map(|slot| gate(ctx.ks, db, slot).map(|_| slot)).transpose()
}

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
            return Err(Error::text("ERR UNITS is more than LIMIT: so many are never free"));
        }
        if holder == COUNTED {
            return Err(Error::text("ERR this name is that of what a counter had counted: take another one"));
        }
        let until_ms = options.until_ms(ctx)?;
        Ok(Acquire { key, holder, limit, units: wanted, until_ms, options })
    }

    /// The limit that counts for this call.
    fn limit(&self, gate: Option<&Grants>) -> Result<u64, Error> {
        match gate {
            Some(gate) if gate.is_fixed() => Ok(gate.limit()),
            _ => self
                .limit
                .ok_or(Error::text("ERR this gate has no limit of its own: say LIMIT, or set one by GATE.LIMIT")),
        }
    }

    fn run(&self, ctx: &mut Ctx<'_>) -> MayWait {
        let db = ctx.db();
        let found = Found::under(ctx.ks, db, self.key)?;
        let (limit, in_use) = match found {
            Found::Nothing => (self.limit(None)?, 0),
            Found::Counter(_, count) => (self.limit(None)?, count),
            Found::Gate(slot) => {
                let gate = gate(ctx.ks, db, slot)?;
                if let Some(own) = gate.get(self.holder) {
                    let until_ms = own.until_ms.max(self.until_ms);
                    let note = self.options.note.unwrap_or(own.note).to_vec();
                    let renewed = own.renewed(self.holder, until_ms, &note);
                    return self.renew(ctx, slot, renewed);
                }
                (self.limit(Some(gate))?, gate.units())
            }
        };
        if ctx.ks.expires_at_once(self.until_ms) {
            refuse_over(ctx.reply);
            return Ok(Flow::Replied);
        }
        let waiting = waiting_before(ctx, self.key);
        if waiting == 0 && in_use.saturating_add(self.units) <= limit {
            self.grant(ctx, found, limit)?;
            return Ok(Flow::Replied);
        }
        // Behind one that can never go on nobody else would. A gate of no units is closed for a while.
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

    /// Answers a holder that calls again.
    fn renew(&self, ctx: &mut Ctx<'_>, slot: Slot, renewed: Grant<'_>) -> MayWait {
        if renewed.units != self.units {
            return Err(Error::owned(format!(
                "ERR this holder has {} units: give them back first, or hold more under another name",
                renewed.units
            )));
        }
        let (db, held) = (ctx.db(), set(ctx, slot, renewed)?);
        let gate = gate(ctx.ks, db, slot)?;
        let (in_use, limit) = (gate.units(), gate.limit());
        self.answer_granted(ctx, held, in_use, limit);
        Ok(Flow::Replied)
    }

    /// Takes a place that is free.
    fn grant(&self, ctx: &mut Ctx<'_>, found: Found, limit: u64) -> Done {
        let (db, now_ms) = (ctx.db(), ctx.now_ms());
        // Before anything changes.
        ctx.ks.next_token().ok_or(NO_TOKENS)?;
        let slot = match found {
            Found::Nothing => None,
            Found::Gate(slot) => {
                let gate = gate(ctx.ks, db, slot)?;
                if !gate.is_fixed() && gate.limit() != limit {
                    ctx.ks.grants_limit(db, slot, limit, false)?;
                }
                Some(slot)
            }
            Found::Counter(slot, count) => self.take_over(ctx, slot, count, limit)?,
        };
        let token = ctx.ks.next_token().ok_or(NO_TOKENS)?;
        let slot = slot.unwrap_or_else(|| ctx.ks.grants_create(db, self.key, Kind::Gate, limit, false));
        let note = self.options.note.unwrap_or_default();
        let (holder, units, until_ms) = (self.holder, self.units, self.until_ms);
        let grant = Grant { holder, token, units, since_ms: now_ms, until_ms, entered: 1, shared: false, note };
        let held = set(ctx, slot, grant)?;
        let in_use = gate(ctx.ks, db, slot)?.units();
        self.answer_granted(ctx, held, in_use, limit);
        Ok(())
    }

    /// Puts a gate in the place of a counter. What that had counted holds its units for as long as the counter would have lasted, or, if
    /// that is for ever, as long as this call's lease.
    fn take_over(&self, ctx: &mut Ctx<'_>, slot: Slot, count: u64, limit: u64) -> Result<Option<Slot>, Error> {
        let (db, since_ms) = (ctx.db(), ctx.now_ms());
        let until_ms = ctx.ks.entry(db, slot).expires_at_ms().filter(|at_ms| *at_ms < NEVER).unwrap_or(self.until_ms);
        // This call's own token comes after it.
        let token = ctx.ks.next_token().filter(|token| *token < TOKEN_MAX).ok_or(NO_TOKENS)?;
        ctx.ks.remove(db, slot);
        if count == 0 {
            return Ok(None);
        }
        let slot = ctx.ks.grants_create(db, self.key, Kind::Gate, limit, false);
        let (holder, units, note) = (COUNTED, count, &b""[..]);
        set(ctx, slot, Grant { holder, token, units, since_ms, until_ms, entered: 1, shared: false, note })?;
        Ok(Some(slot))
    }

    fn answer_granted(&self, ctx: &mut Ctx<'_>, held: Grant<'_>, in_use: u64, limit: u64) {
        let lease = lease_left(ctx, held.until_ms);
        let fields =
            [("token", held.token.into()), ("in-use", in_use.into()), ("limit", limit.into()), ("lease-ms", lease)];
        answer(ctx.reply, true, &fields);
    }
}

fn acquire(ctx: &mut Ctx<'_>, mut args: Args<'_>) -> MayWait {
    let call = Acquire::parse(ctx, &mut args)?;
    ctx.as_one_change(|ctx| call.run(ctx))
}

/// GATE.RENEW: a lease ends then.
fn renew(ctx: &mut Ctx<'_>, mut args: Args<'_>) -> Done {
    let (key, holder, until_ms) = prolongation(ctx, &mut args)?;
    let db = ctx.db();
    let slot = gate_under(ctx, key)?;
    let own = slot.and_then(|slot| Some((slot, ctx.ks.grants(db, slot).ok()?.get(holder)?)));
    let own = own.filter(|(_, own)| !ctx.ks.expires_at_once(own.until_ms));
    let Some((slot, own)) = own else {
        refuse_not_held(ctx.reply);
        return Ok(());
    };
    let note = own.note.to_vec();
    let renewed = own.renewed(holder, until_ms, &note);
    let held = prolong(ctx, slot, renewed)?;
    let lease = lease_left(ctx, held.until_ms);
    answer(ctx.reply, true, &[("token", held.token.into()), ("lease-ms", lease)]);
    Ok(())
}

fn release(ctx: &mut Ctx<'_>, mut args: Args<'_>) -> Done {
    let (key, holder) = (args.bytes()?, args.bytes()?);
    let db = ctx.db();
    let slot = gate_under(ctx, key)?;
    let token = slot.and_then(|slot| Some((slot, ctx.ks.grants(db, slot).ok()?.get(holder)?.token)));
    let Some((slot, token)) = token else {
        refuse_not_held(ctx.reply);
        return Ok(());
    };
    let others = gate(ctx.ks, db, slot)?.units();
    let own = gate(ctx.ks, db, slot)?.get(holder).map_or(0, |own| own.units);
    ctx.ks.grant_end(db, slot, holder)?;
    answer(ctx.reply, true, &[("token", token.into()), ("in-use", (others - own).into())]);
    Ok(())
}

/// GATE.LIMIT: the gate has a limit of its own from now on, or none any more.
fn limit(ctx: &mut Ctx<'_>, mut args: Args<'_>) -> Done {
    let key = args.bytes()?;
    let limit = if args.flag("none") { None } else { Some(units(&mut args, 0)?) };
    let db = ctx.db();
    let slot = gate_under(ctx, key)?;
    let in_use = match slot {
        Some(slot) => gate(ctx.ks, db, slot)?.units(),
        None => 0,
    };
    match (limit, slot) {
        (Some(limit), Some(slot)) => ctx.ks.grants_limit(db, slot, limit, true)?,
        (Some(limit), None) => _ = ctx.ks.grants_create(db, key, Kind::Gate, limit, true),
        (None, Some(slot)) if gate(ctx.ks, db, slot)?.is_fixed() => match in_use {
            0 => ctx.ks.remove(db, slot),
            _ => {
                let limit = gate(ctx.ks, db, slot)?.limit();
                ctx.ks.grants_limit(db, slot, limit, false)?;
            }
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

/// GATE.HOLDERS: the holders in the order of their coming, from a cursor on. Who holds from the first call to the last is answered once.
fn holders(ctx: &mut Ctx<'_>, mut args: Args<'_>) -> Done {
    let page = Page::parse(&mut args)?;
    let db = ctx.db();
    let slot = ctx.ks.look_up(db, page.key);
    slot.map(|slot| gate(ctx.ks, db, slot)).transpose()?;
    page.answer(ctx, slot, ["holder", "note"]);
    Ok(())
}

fn info(ctx: &mut Ctx<'_>, mut args: Args<'_>) -> Done {
    let key = args.bytes()?;
    let db = ctx.db();
    let slot = ctx.ks.look_up(db, key);
    let gate = slot.map(|slot| gate(ctx.ks, db, slot)).transpose()?;
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
    Command {
        name: "gate.acquire",
        arity: -5,
        flags: Flags::WRITE.and(Flags::DENYOOM).and(Flags::BLOCKING),
        keys: &[KeySpec::one(1, Access::Update)],
        complexity: "O(log N) with N the number of holders",
        summary: "Takes a place of a gate for as long as a lease, or waits for one in the order of coming.",
        syntax: "key holder [LIMIT limit:integer] <PX milliseconds | EX seconds | PXAT unix-time-milliseconds | EXAT unix-time-seconds>:lease [UNITS units:integer] \
            [BLOCK milliseconds:integer | ASYNC milliseconds:integer]:wait [NOTE text]",
        run: Run::MayWait(acquire),
        ..BASE
    },
    Command {
        name: "gate.renew",
        arity: 5,
        flags: Flags::WRITE.and(Flags::FAST),
        keys: &[KeySpec::one(1, Access::Update)],
        complexity: "O(log N) with N the number of holders",
        summary: "Sets how long the lease of a place that is held still lasts.",
        syntax: "key holder <PX milliseconds | EX seconds | PXAT unix-time-milliseconds | EXAT unix-time-seconds>:lease",
        run: Run::Now(renew),
        ..BASE
    },
    Command {
        name: "gate.release",
        arity: 3,
        flags: Flags::WRITE.and(Flags::FAST),
        keys: &[KeySpec::one(1, Access::Take)],
        complexity: "O(log N) with N the number of holders",
        summary: "Gives a place of a gate back.",
        syntax: "key holder",
        run: Run::Now(release),
        ..BASE
    },
    Command {
        name: "gate.limit",
        categories: &["@dangerous"],
        arity: 3,
        flags: Flags::WRITE.and(Flags::DENYOOM).and(Flags::FAST),
        keys: &[KeySpec::one(1, Access::Update)],
        summary: "Gives a gate a limit of its own, which counts instead of those that calls bring, or takes it away.",
        syntax: "key <limit:integer | NONE>:limit",
        run: Run::Now(limit),
        ..BASE
    },
    Command {
        name: "gate.holders",
        arity: -3,
        flags: Flags::READONLY,
        keys: &[KeySpec::one(1, Access::Read)],
        complexity: "O(log N + M) with N the number of holders and M that of those answered",
        summary: "Tells who holds places of a gate, from a cursor on.",
        syntax: "key cursor:integer [COUNT count:integer]",
        run: Run::Now(holders),
        ..BASE
    },
    Command {
        name: "gate.info",
        arity: 2,
        flags: Flags::READONLY.and(Flags::FAST),
        keys: &[KeySpec::one(1, Access::Read)],
        summary: "Tells how much of a gate is in use, its limit, and how many calls wait.",
        syntax: "key",
        run: Run::Now(info),
        ..BASE
    },
];
