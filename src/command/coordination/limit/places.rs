//! The places of a CONCURRENCY rule. The key of the rule is a gate as GATE.ACQUIRE makes it, and the holder is the ID
//! of the request. So places end with their leases, GATE.HOLDERS lists them, and calls of GATE.ACQUIRE that wait are
//! not overtaken.
//!
//! An ID that already holds places, by GATE.ACQUIRE or by a call that is forgotten, keeps these and takes no others.

use super::rule::Rule;
use crate::command::coordination::error::{GrantError, LimitError};
use crate::command::coordination::grant::waiting_before;
use crate::command::limits::{LIMIT_LEASES_SCANNED_MAX, LIMIT_RULES_MAX};
use crate::engine::Ctx;
use crate::keyspace::verb::handles::GrantsRef;
use crate::keyspace::{DbIndex, Keyspace, NEVER, Slot};
use crate::spec::error::Error;
use crate::value::grants::{Grants, TOKEN_MAX};

/// The state of a gate for a call.
pub(super) struct Places {
    /// How many places there are, by the rule or by the gate's own limit.
    pub limit: i64,
    /// How many places are taken.
    pub in_use: i64,
    /// Whether the request holds its places already.
    pub is_held: bool,
    /// Whether a request that holds none may take its places.
    pub is_free: bool,
    /// When the last lease ends, Unix ms.
    pub last_end_ms: Option<i64>,
    /// When enough leases have ended for the request, Unix ms, if it is refused now and can ever be granted.
    pub frees_ms: Option<i64>,
    /// When the lease of the request ends, Unix ms.
    pub until_ms: i64,
}

impl Places {
    /// Evaluates a gate for a call, which may lack an ID if it is a DRYRUN.
    ///
    /// LIMIT.TAKE inlines the other kinds of rules. It must not inline this function, [`take`](Places::take) or
    /// [`token_of`], because calls without a CONCURRENCY rule would pay for the registers that these need.
    #[inline(never)]
    pub(super) fn evaluate(
        ctx: &Ctx<'_>,
        request: Option<&[u8]>,
        rule: &Rule<'_>,
        slot: Option<Slot>,
        (limit, lease_ms): (i64, i64),
    ) -> Result<Places, Error> {
        let gate = slot.map(|slot| ctx.ks.gate_at(ctx.db(), slot)).transpose()?;
        let key_end_ms = gate.as_ref().map_or(NEVER, GrantsRef::key_end_ms);
        let gate = gate.map(|gate| gate.grants());
        let (units, until_ms) = (rule.units, ctx.now_ms().saturating_add(lease_ms).min(key_end_ms));
        let limit = gate.filter(|gate| gate.is_fixed()).map_or(limit, |gate| gate.limit().cast_signed());
        let in_use = gate.map_or(0, |gate| gate.units().cast_signed());
        let last_end_ms = gate.and_then(Grants::last_end_ms).map(|at_ms| at_ms.min(key_end_ms));
        let mut places =
            Places { limit, in_use, is_held: false, is_free: false, last_end_ms, frees_ms: None, until_ms };
        if let Some(own) = gate.zip(request).and_then(|(gate, holder)| gate.get(holder)) {
            if own.units.cast_signed() != units {
                return Err(LimitError::OtherUnits { held: own.units }.into());
            }
            (places.is_held, places.until_ms) = (true, own.until_ms.max(until_ms).min(key_end_ms));
            return Ok(places);
        }
        let missing = in_use.saturating_add(units).saturating_sub(limit);
        places.is_free = missing <= 0 && waiting_before(&ctx.server.waits, ctx.is_retry(), ctx.db(), rule.key) == 0;
        if places.is_free {
            // Each rule of the call may need a token.
            let is_there = |last: &u64| *last < TOKEN_MAX - LIMIT_RULES_MAX as u64;
            ctx.ks.next_token().filter(is_there).ok_or(GrantError::NoTokens)?;
        } else if units <= limit {
            // If other calls wait first, the time at which the first of them may go on.
            let missing = missing.max(1).cast_unsigned();
            let frees_ms = gate.and_then(|gate| gate.frees_ms(missing, LIMIT_LEASES_SCANNED_MAX));
            places.frees_ms = frees_ms.map(|at_ms| at_ms.min(key_end_ms));
        }
        Ok(places)
    }

    /// Takes the places for a holder. Returns the fencing token.
    #[inline(never)]
    pub(super) fn take(
        &self,
        ks: &mut Keyspace,
        db: DbIndex,
        key: &[u8],
        slot: Option<Slot>,
        holder: &[u8],
        units: i64,
    ) -> Result<u64, Error> {
        let limit = self.limit.cast_unsigned();
        let mut gate = match slot {
            Some(slot) => {
                let mut gate = ks.open_gate_at(db, slot)?;
                if let Some(own) = gate.grants().get(holder) {
                    let (token, note) = (own.token, own.note.to_vec());
                    let renewed = own.renewed(holder, self.until_ms, &note);
                    gate.set(renewed);
                    return Ok(token);
                }
                gate.adopt_limit(limit);
                gate
            }
            None => ks.create_gate(db, key, limit, false),
        };
        let grant = gate.grant(holder, units.cast_unsigned(), false, self.until_ms, b"").ok_or(GrantError::NoTokens)?;
        Ok(grant.token)
    }
}

/// The fencing token of a holder's grant.
#[inline(never)]
pub(super) fn token_of(ks: &mut Keyspace, db: DbIndex, key: &[u8], holder: &[u8]) -> Option<u64> {
    let gate = ks.open_gate(db, key).ok()??;
    Some(gate.grants().get(holder)?.token)
}
