//! The places of a CONCURRENCY rule. Its key is a gate as GATE.ACQUIRE has it, and the ID of the request is the holder: so its places end with
//! their leases, GATE.HOLDERS tells who has them, and who waits for one by GATE.ACQUIRE is not overtaken.
//!
//! An ID that holds its places already, by a call that is forgotten or by GATE.ACQUIRE, keeps them, and takes no others.

use super::rule::Call;
use crate::base::limits::{LIMIT_LEASES_LOOKED_AT, LIMIT_RULES_MAX};
use crate::command::coordination::grant::{NO_TOKENS, waiting_before};
use crate::engine::Ctx;
use crate::keyspace::verb::handles::GrantsRef;
use crate::keyspace::{DbIndex, Keyspace, NEVER, Slot};
use crate::spec::error::Error;
use crate::value::grants::{Grants, TOKEN_MAX};

/// What a gate holds.
pub(super) struct Places {
    /// How many there are: as the rule says, or the gate's own limit.
    pub limit: i64,
    /// How many are taken.
    pub in_use: i64,
    /// Whether the request holds its own already.
    pub is_held: bool,
    /// Whether it may take them, if it does not.
    pub is_free: bool,
    /// When the last lease ends, Unix ms.
    pub last_end_ms: Option<i64>,
    /// When enough leases have ended for the units, if they are refused and may ever be granted, Unix ms.
    pub frees_ms: Option<i64>,
    /// When the lease of the request's own ends, Unix ms.
    pub until_ms: i64,
}

impl Places {
    /// Looks at a gate for a call, which may have no ID if it only asks.
    pub(super) fn look(
        ctx: &Ctx<'_>,
        call: &Call<'_>,
        key: &[u8],
        slot: Option<Slot>,
        (limit, lease_ms): (i64, i64),
    ) -> Result<Places, Error> {
        let gate = slot.map(|slot| ctx.ks.gate_at(ctx.db(), slot)).transpose()?;
        let key_end_ms = gate.as_ref().map_or(NEVER, GrantsRef::key_end_ms);
        let gate = gate.map(|gate| gate.grants());
        let (units, until_ms) = (call.units, ctx.now_ms().saturating_add(lease_ms).min(key_end_ms));
        let limit = gate.filter(|gate| gate.is_fixed()).map_or(limit, |gate| gate.limit().cast_signed());
        let in_use = gate.map_or(0, |gate| gate.units().cast_signed());
        let last_end_ms = gate.and_then(Grants::last_end_ms).map(|at_ms| at_ms.min(key_end_ms));
        let mut places =
            Places { limit, in_use, is_held: false, is_free: false, last_end_ms, frees_ms: None, until_ms };
        if let Some(own) = gate.zip(call.request).and_then(|(gate, holder)| gate.get(holder)) {
            if own.units.cast_signed() != units {
                return Err(Error::owned(format!(
                    "ERR this ID holds {} units of a gate: give them back first, or ask under another ID",
                    own.units
                )));
            }
            (places.is_held, places.until_ms) = (true, own.until_ms.max(until_ms).min(key_end_ms));
            return Ok(places);
        }
        let missing = in_use.saturating_add(units).saturating_sub(limit);
        places.is_free = missing <= 0 && waiting_before(&ctx.server.waits, ctx.is_retry(), ctx.db(), key) == 0;
        if places.is_free {
            // Each rule of the call may need one.
            let is_there = |last: &u64| *last < TOKEN_MAX - LIMIT_RULES_MAX as u64;
            ctx.ks.next_token().filter(is_there).ok_or(NO_TOKENS)?;
        } else if units <= limit {
            // Behind others: when the first of them may go on.
            let missing = missing.max(1).cast_unsigned();
            let frees_ms = gate.and_then(|gate| gate.frees_ms(missing, LIMIT_LEASES_LOOKED_AT));
            places.frees_ms = frees_ms.map(|at_ms| at_ms.min(key_end_ms));
        }
        Ok(places)
    }

    /// Takes the places for a holder, and answers the fencing token.
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
        let grant = gate.grant(holder, units.cast_unsigned(), false, self.until_ms, b"").ok_or(NO_TOKENS)?;
        Ok(grant.token)
    }
}

/// The fencing token of what a holder has.
pub(super) fn token_of(ks: &mut Keyspace, db: DbIndex, key: &[u8], holder: &[u8]) -> Option<u64> {
    let gate = ks.open_gate(db, key).ok()??;
    Some(gate.grants().get(holder)?.token)
}
