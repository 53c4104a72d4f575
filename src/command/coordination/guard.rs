//! GUARD: a command that runs only while a lease is held.
//!
//! A fencing token keeps a stale owner from writing to a store that compares tokens. Data in this server needs no
//! comparison: the lease is checked in the unit in which the command runs, so it cannot end between the two.
//!
//! The command may be ONCE, so that a call without a reply can be repeated while the lease is held. The other way
//! round, ONCE would repeat the reply to an owner whose lease has ended.

use super::error::TokenError;
use crate::base::num;
use crate::command::help::FAMILY_HELP;
use crate::engine::{Command, Ctx, Flow, MayWait, Run};
use crate::keyspace::NEVER;
use crate::keyspace::any_value::ValueRef;
use crate::keyspace::limits::PLACE_RETRY_MS;
use crate::resp::request::Argv;
use crate::spec::args::Args;
use crate::spec::error::Error;
use crate::spec::{Access, Flags, Group, KeySpec};
use crate::value::grants::Grant;

/// The index of the inner command, behind the name, the key and the token.
const INNER: usize = 3;

fn guard(ctx: &mut Ctx<'_>, mut args: Args<'_>) -> MayWait {
    let argv = args.argv();
    let (key, token) = (args.bytes()?, num::parse_i64(args.bytes()?));
    let token = token.and_then(|token| u64::try_from(token).ok()).filter(|token| *token > 0);
    let token = token.ok_or(TokenError::NotGiven)?;
    let inner = ctx.admit_inner(argv)?;
    let until_ms = lease_end(ctx, key, token)?.ok_or(TokenError::Stale)?;
    let Some(wait) = ctx.call_inner(&inner) else { return Ok(Flow::Replied) };
    let mut wait = inner.wait_as_part_of(argv, *wait);
    // A call that waits under a lease is retried when the lease ends, or a little later while nothing may expire.
    let now_ms = ctx.now_ms();
    let until_ms = if until_ms > now_ms { until_ms } else { now_ms.saturating_add(PLACE_RETRY_MS) };
    wait.retry_at_ms = Some(wait.retry_at_ms.map_or(until_ms, |at_ms| at_ms.min(until_ms)));
    Ok(Flow::wait(wait))
}

/// When the lease of a token under a key ends, Unix ms; `None` if the token is not held, or no longer.
fn lease_end(ctx: &mut Ctx<'_>, key: &[u8], token: u64) -> Result<Option<i64>, Error> {
    let db = ctx.db();
    let Some(slot) = ctx.ks.find(db, key) else { return Ok(None) };
    let ValueRef::Grants(grants) = ctx.ks.value(db, slot) else { return Err(Error::WrongType) };
    // Where very many leases end at once, some stay a little longer.
    let is_held = |grant: &Grant<'_>| grant.token == token && !ctx.ks.expires_at_once(grant.until_ms);
    let held = grants.from(token).next().filter(is_held);
    Ok(held.map(|grant| grant.until_ms.min(ctx.ks.entry(db, slot).expires_at_ms().unwrap_or(NEVER))))
}

/// The index at which the inner command begins.
fn find_inner(argv: Argv<'_>) -> Option<usize> {
    (argv.len() > INNER).then_some(INNER)
}

/// The family's table.
pub(crate) const COMMANDS: &[Command] = &[Command {
    name: "guard",
    arity: -4,
    flags: Flags::WRITE
        .union(Flags::DENYOOM)
        .union(Flags::BLOCKING)
        .union(Flags::MOVABLEKEYS)
        .union(Flags::SKIP_MONITOR),
    keys: &[KeySpec::one(1, Access::Read), KeySpec::unknown(Access::Update)],
    inner: Some(find_inner),
    nests: true,
    group: Group::Coordination,
    since: "0.1.0",
    complexity: "That of the command, and O(log N) with N the number of holders of the key",
    summary: "Runs a command only if the lease of a fencing token is held.",
    syntax: "key token:integer command [argument...]",
    sub: &[FAMILY_HELP],
    run: Run::MayWait(guard),
    ..Command::EMPTY
}];
