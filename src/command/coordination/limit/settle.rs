//! LIMIT.SETTLE: replaces the units that a request has taken, which were an estimate, by those that its call has used.
//!
//! Units that were not used return to the limit as far as it still counts them, as by LIMIT.REFUND. Units that were
//! used in addition are taken now, in the window of now, as far as the limit and the DEBT of the rule together have
//! room. The places of a CONCURRENCY rule are returned: the call is over.
//!
//! Each rule is settled once, and the record of the request keeps how. So a repeated settlement changes nothing and
//! gets the same reply, for as long as the request is remembered.

use super::charge::{self, Counted, find_units, refund_units};
use super::look::{Evaluation, evaluate};
use super::refund::read;
use super::request::{Charged, Request, Settled};
use super::rule::{Kind, Rule};
use crate::base::num;
use crate::command::coordination::error::LimitError;
use crate::command::coordination::outcome;
use crate::command::limits::LIMIT_EXACT_UNITS_MAX;
use crate::engine::{Ctx, Done};
use crate::resp::reply::Reply;
use crate::resp::request::Argv;
use crate::spec::args::Args;
use crate::spec::error::Error;

pub(super) fn settle(ctx: &mut Ctx<'_>, mut args: Args<'_>) -> Done {
    let (id, used) = (args.bytes()?, num::parse_i64(args.bytes()?).filter(|used| *used >= 0));
    let (used, keys) = (used.ok_or_else(|| Error::from(LimitError::Used))?, args.rest());
    let db = ctx.db();
    let Some(slot) = ctx.ks.find(db, id) else {
        answer(ctx.reply, None, &[]);
        return Ok(());
    };
    let text = read(ctx.ks, db, slot)?;
    let mut request = Request::read(&text).ok_or(LimitError::NotARequest)?;
    let call = Call { id, used, at_ms: request.at_ms };
    let named = named_rules(&request, keys)?;
    let mut plans = Vec::with_capacity(named.len());
    for at in &named {
        plans.push(call.plan(ctx, at + 1, &request.rules[*at])?);
    }
    let before = ctx.ks.changes_by_commands();
    let (mut is_repeated, mut changed) = (true, 1);
    for (at, plan) in named.iter().zip(plans) {
        if let Some(plan) = plan {
            let charged = &mut request.rules[*at];
            let change = call.carry_out(ctx, charged.rule.key, plan)?;
            charged.settled = Some(Settled { used, change });
            (is_repeated, changed) = (false, changed + u64::from(change != 0));
        }
    }
    if !is_repeated {
        _ = ctx.ks.replace(db, slot, request.record().as_bytes());
        // Each key counts as one change, however many effects it takes.
        ctx.ks.count_changes_as(before, changed);
    }
    let settled: Vec<_> = named.iter().map(|at| request.rules[*at]).collect();
    answer(ctx.reply, Some(Found { used, is_repeated }), &settled);
    Ok(())
}

/// Finds the rules of a request by their keys, of which none may be given twice.
fn named_rules(request: &Request<'_>, keys: Argv<'_>) -> Result<Vec<usize>, Error> {
    let mut named = Vec::with_capacity(keys.len().min(request.rules.len()));
    for key in keys.iter() {
        let at = request.rules.iter().position(|charged| charged.rule.key == key);
        named.push(at.filter(|at| !named.contains(at)).ok_or(LimitError::NotItsKey)?);
    }
    Ok(named)
}

/// A settlement of a request.
struct Call<'a> {
    id: &'a [u8],
    /// The units that were used.
    used: i64,
    /// When the request took its units, Unix ms.
    at_ms: i64,
}

/// What settles a rule.
enum Plan<'a> {
    /// Units to return.
    Return(Counted),
    /// Units to take, as a rule that grants them.
    Take(Rule<'a>, Box<Evaluation>),
}

impl Call<'_> {
    /// Plans the settlement of a rule, which is the request's `number`th; `None` if it is a repeated one.
    fn plan<'r>(&self, ctx: &mut Ctx<'_>, number: usize, charged: &Charged<'r>) -> Result<Option<Plan<'r>>, Error> {
        let rule = charged.rule;
        match charged.settled {
            Some(settled) if settled.used == self.used => return Ok(None),
            Some(Settled { used, .. }) => return Err(LimitError::OtherSettlement { number, used }.into()),
            None => {}
        }
        let (is_place, unused) = (matches!(rule.kind, Kind::Concurrency { .. }), rule.units.saturating_sub(self.used));
        if is_place || unused > 0 {
            let db = ctx.db();
            let counted = find_units(ctx.ks, db, self.id, charged, self.at_ms, unused)?;
            return Ok(Some(Plan::Return(counted)));
        }
        if matches!(rule.kind, Kind::Exact { .. }) && self.used > LIMIT_EXACT_UNITS_MAX {
            return Err(LimitError::ExactUnits { number }.into());
        }
        let kind = rule.kind.extended(rule.debt).unwrap_or(rule.kind);
        let look = Rule { kind, units: 0, ..rule };
        let room = evaluate(ctx, None, &look, false)?.standing(ctx.now_ms(), 0, false).remaining;
        let more = Rule { units: room.min(-unused), ..look };
        if more.units == 0 {
            return Ok(Some(Plan::Return(Counted::Nothing)));
        }
        let evaluation = evaluate(ctx, None, &more, false)?;
        Ok(Some(Plan::Take(more, Box::new(evaluation))))
    }

    /// Settles a rule. Returns how many units were taken; negative for units returned.
    fn carry_out(&self, ctx: &mut Ctx<'_>, key: &[u8], plan: Plan<'_>) -> Result<i64, Error> {
        let db = ctx.db();
        match plan {
            Plan::Return(counted) => Ok(-refund_units(ctx.ks, db, self.id, key, counted, self.at_ms)?),
            Plan::Take(more, evaluation) => {
                charge::take(ctx.ks, db, None, &more, &evaluation)?;
                Ok(more.units)
            }
        }
    }
}

/// A request that is remembered.
struct Found {
    /// The units to which it was settled.
    used: i64,
    /// Whether it was before.
    is_repeated: bool,
}

fn answer(reply: &mut Reply, found: Option<Found>, rules: &[Charged<'_>]) {
    outcome::begin(reply, found.is_some().into(), 3);
    let Found { used, is_repeated } = found.unwrap_or(Found { used: 0, is_repeated: false });
    outcome::number(reply, "units", used);
    outcome::number(reply, "repeated", is_repeated.into());
    reply.bulk(b"rules");
    reply.array(rules.len());
    for charged in rules {
        reply.map(2);
        reply.bulk(b"key");
        reply.bulk(charged.rule.key);
        outcome::number(reply, "change", charged.settled.map_or(0, |settled| settled.change));
    }
}
