//! LIMIT.TAKE: evaluates all rules, then charges all of them or none.

use super::charge;
use super::look::{Evaluation, Standing, evaluate};
use super::places::token_of;
use super::request::{Charged, Record, Request};
use super::rule::{Call, Rule};
use crate::command::coordination::error::LimitError;
use crate::command::coordination::outcome;
use crate::command::limits::LIMIT_REQUEST_MAX_MS;
use crate::command::string::string_at;
use crate::engine::observe::history::Refusal;
use crate::engine::{Ctx, Done};
use crate::keyspace::effect::Family;
use crate::keyspace::{DbIndex, Keyspace, Slot};
use crate::spec::args::Args;
use crate::spec::error::Error;
use crate::value::string::Digits;

pub(super) fn take(ctx: &mut Ctx<'_>, mut args: Args<'_>) -> Done {
    let call = Call::parse(&mut args)?;
    let keep_until_ms = keep_until_ms(ctx, &call)?;
    let db = ctx.session.db;
    // The pipeline's prefetching does not know the keys of this command.
    ctx.ks.warm(call.rules.iter().map(|rule| (db, rule.hash)));
    let is_repeated = match call.request.and_then(|request| ctx.ks.find(db, request)) {
        Some(slot) => {
            check_same(ctx.ks, db, slot, &call)?;
            true
        }
        None => false,
    };
    let mut evaluations = Vec::with_capacity(call.rules.len());
    for rule in &call.rules {
        evaluations.push(evaluate(ctx, call.request, rule, is_repeated)?);
    }
    let grants = evaluations.iter().all(|evaluation| evaluation.grants);
    let takes = grants && !is_repeated && !call.only_asks;
    if takes {
        take_all(ctx.ks, db, &call, &evaluations, keep_until_ms)?;
    }
    if !grants && !is_repeated && !call.only_asks {
        remember_refusals(ctx, &call, &evaluations);
    }
    answer(ctx, &call, &evaluations, Taken { now: takes, before: is_repeated });
    Ok(())
}

/// Until when the ID must be remembered at least, Unix ms.
fn keep_until_ms(ctx: &Ctx<'_>, call: &Call<'_>) -> Result<i64, Error> {
    let until_ms = call.keep.deadline(ctx)?.unwrap_or(i64::MIN);
    let is_too_long = until_ms > ctx.now_ms().saturating_add(LIMIT_REQUEST_MAX_MS);
    if is_too_long { Err(LimitError::KeptTooLong.into()) } else { Ok(until_ms) }
}

/// Whether a call has taken its units.
#[derive(Clone, Copy)]
struct Taken {
    now: bool,
    /// The call is a retry of one that has.
    before: bool,
}

/// Checks that the granted request at `slot` is the one of this call.
fn check_same(ks: &Keyspace, db: DbIndex, slot: Slot, call: &Call<'_>) -> Result<(), Error> {
    let mut digits = Digits::new();
    let request = Request::read(string_at(ks, db, slot)?.as_bytes(&mut digits));
    let request = request.ok_or_else(|| Error::from(LimitError::NotARequest))?;
    let taken = request.rules.iter().map(|charged| (charged.rule.key, charged.rule.units));
    let is_same = taken.eq(call.rules.iter().map(|rule| (rule.key, rule.units)));
    if is_same { Ok(()) } else { Err(LimitError::OtherRequest.into()) }
}

fn take_all(
    ks: &mut Keyspace,
    db: DbIndex,
    call: &Call<'_>,
    evaluations: &[Evaluation],
    keep_until_ms: i64,
) -> Result<(), Error> {
    let (before, now_ms) = (ks.changes_by_commands(), ks.now_ms());
    let mut record = call.request.map(|_| Record::new(now_ms, call.units, call.rules.len()));
    let mut until_ms = now_ms.saturating_add(1).max(keep_until_ms);
    for (rule, evaluation) in call.rules.iter().zip(evaluations) {
        let taken = charge::take(ks, db, call.request, rule, evaluation)?;
        if evaluation.places().is_none() {
            ks.count_granted(rule.key);
        }
        until_ms = until_ms.max(taken.until_ms);
        if let Some(record) = &mut record {
            record.add(&Charged { rule: *rule, mark: taken.mark, settled: None });
        }
    }
    if let Some((request, record)) = call.request.zip(record) {
        let until_ms = until_ms.min(now_ms.saturating_add(LIMIT_REQUEST_MAX_MS));
        _ = ks.put_until(db, request, None, record.as_bytes(), until_ms);
    }
    // Each key counts as one change, however many effects it takes.
    let changed = call.rules.len() + usize::from(call.request.is_some());
    ks.count_changes_as(before, changed as u64);
    Ok(())
}

/// Remembers for WHY which rules refused the call.
fn remember_refusals(ctx: &mut Ctx<'_>, call: &Call<'_>, evaluations: &[Evaluation]) {
    for (rule, evaluation) in call.rules.iter().zip(evaluations).filter(|(_, evaluation)| !evaluation.grants) {
        let Standing { used: in_use, limit, .. } = evaluation.standing(ctx.now_ms(), rule.units, false);
        let family = if evaluation.places().is_some() { Family::Gate } else { Family::Limit };
        let (subject, reason) = (call.request.unwrap_or_default(), rule.kind.name());
        ctx.remember_refusal(Refusal { family, key: rule.key, subject, reason, in_use, limit });
    }
}

fn answer(ctx: &mut Ctx<'_>, call: &Call<'_>, evaluations: &[Evaluation], taken: Taken) {
    let (db, now_ms) = (ctx.db(), ctx.now_ms());
    let (ks, reply) = (&mut *ctx.ks, &mut *ctx.reply);
    let standing = |(rule, evaluation): (&Rule<'_>, &Evaluation)| evaluation.standing(now_ms, rule.units, taken.now);
    // A granted request stays granted, except for places whose lease has ended.
    let refuses = |evaluation: &Evaluation| !evaluation.grants && (!taken.before || evaluation.places().is_some());
    let rules = || call.rules.iter().zip(evaluations);
    let waits = rules().filter(|(_, evaluation)| refuses(evaluation)).map(|rule| standing(rule).retry_after_ms);
    // -1 means never, which as an unsigned number is the longest wait.
    let retry_after_ms = waits.max_by_key(|wait_ms| wait_ms.cast_unsigned()).unwrap_or(0);
    let first = rules().find(|(_, evaluation)| refuses(evaluation));
    outcome::begin(reply, i64::from(first.is_none()), 4);
    outcome::number(reply, "retry-after-ms", retry_after_ms);
    reply.bulk(b"refused-by");
    reply.bulk_or_null(first.map(|(rule, _)| rule.key));
    outcome::number(reply, "repeated", i64::from(taken.before));
    reply.bulk(b"rules");
    reply.array(evaluations.len());
    for (rule, evaluation) in rules() {
        let (refuses, standing) = (refuses(evaluation), standing((rule, evaluation)));
        reply.map(6 + usize::from(evaluation.places().is_some()));
        reply.bulk(b"key");
        reply.bulk(rule.key);
        outcome::number(reply, "refuses", i64::from(refuses));
        outcome::number(reply, "limit", standing.limit);
        outcome::number(reply, "remaining", standing.remaining);
        outcome::number(reply, "retry-after-ms", if refuses { standing.retry_after_ms } else { 0 });
        outcome::number(reply, "reset-after-ms", standing.reset_after_ms);
        if evaluation.places().is_some() {
            reply.bulk(b"token");
            match call.request.and_then(|holder| token_of(ks, db, rule.key, holder)) {
                Some(token) => reply.integer(token.cast_signed()),
                None => reply.null(),
            }
        }
    }
}
