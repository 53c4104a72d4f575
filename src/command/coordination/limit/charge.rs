//! Takes the units of a rule that grants, or returns them.
//!
//! [`take`] describes its change by the mark of a [`Charged`] rule, with which [`find_units`] later finds the units
//! that the key still counts.

use std::ops::Range;

use super::look::{BEFORE, COUNT, Evaluation, START, State, number_of};
use super::members::{Members, Name};
use super::request::Charged;
use super::rule::{Kind, Rule};
use super::sliding::Buckets;
use crate::command::string::string_at;
use crate::command::throttle::{MS_NS, ns, put_tat, round_up, tat_at};
use crate::keyspace::{DbIndex, Keyspace, Slot};
use crate::spec::error::Error;
use crate::value::string::Digits;

/// The units taken under a rule.
pub(super) struct Taken {
    /// The mark of the [`Charged`] rule.
    pub mark: i64,
    /// The latest time at which the units still count, Unix ms.
    pub until_ms: i64,
}

/// Takes the units of a rule that grants them, for a call with this ID. Every reason to fail has been ruled out by
/// [`evaluate`](super::look::evaluate), since other rules may have been charged already.
pub(super) fn take(
    ks: &mut Keyspace,
    db: DbIndex,
    request: Option<&[u8]>,
    rule: &Rule<'_>,
    evaluation: &Evaluation,
) -> Result<Taken, Error> {
    let (key, slot, units) = (rule.key, evaluation.slot, rule.units);
    let (mark, until_ms) = match &evaluation.state {
        State::Bucket { decision, .. } => {
            let Some(tat_ns) = decision.tat_ns else { return Err(Error::OutOfRange) };
            put_tat(ks, db, key, slot, tat_ns);
            (0, round_up(tat_ns, MS_NS))
        }
        State::Counter { count, ends_ms, is_open, .. } => {
            let Some(count) = count.checked_add(units) else { return Err(Error::Overflow) };
            _ = match slot {
                Some(_) if *is_open => ks.put_integer(db, key, slot, count),
                _ => ks.put_until(db, key, slot, Digits::new().format(count).as_bytes(), *ends_ms),
            };
            (*ends_ms, *ends_ms)
        }
        State::Sliding { window_ms, buckets, .. } => {
            let count = buckets.count.checked_add(units).ok_or(Error::Overflow)?;
            let until_ms = put_buckets(ks, db, key, slot, &Buckets { count, ..*buckets }, *window_ms)?;
            (buckets.start_ms, until_ms)
        }
        State::Exact { window_ms, members, .. } => {
            let until_ms = members.ends_ms(ks.now_ms(), *window_ms);
            add_members(ks, db, key, slot, members, units, until_ms)?;
            (members.next, until_ms)
        }
        State::Places(places) => {
            // Only a DRYRUN has no ID here, and it takes nothing.
            let holder = request.unwrap_or_default();
            let token = places.take(ks, db, key, slot, holder, units)?;
            (token.cast_signed(), places.until_ms)
        }
    };
    Ok(Taken { mark, until_ms })
}

/// Stores a sliding window. Returns when its key expires, Unix ms.
fn put_buckets(
    ks: &mut Keyspace,
    db: DbIndex,
    key: &[u8],
    slot: Option<Slot>,
    buckets: &Buckets,
    window_ms: i64,
) -> Result<i64, Error> {
    let (mut digits, mut slot) = (Digits::new(), slot);
    let runs_on = match slot {
        Some(slot) => number_of(ks.hash(db, slot)?, START) == Some(buckets.start_ms),
        None => false,
    };
    if !runs_on {
        for (field, value) in [(START, buckets.start_ms), (BEFORE, buckets.before)] {
            slot = Some(ks.hash_set(db, key, slot, field, digits.format(value).as_bytes())?.0);
        }
    }
    let (slot, _) = ks.hash_set(db, key, slot, COUNT, digits.format(buckets.count).as_bytes())?;
    let until_ms = buckets.start_ms.saturating_add(2 * window_ms);
    if ks.entry(db, slot).expires_at_ms() != Some(until_ms) {
        _ = ks.expire_at(db, slot, until_ms);
    }
    Ok(until_ms)
}

/// Removes forgotten units and adds new ones.
fn add_members(
    ks: &mut Keyspace,
    db: DbIndex,
    key: &[u8],
    slot: Option<Slot>,
    members: &Members,
    units: i64,
    until_ms: i64,
) -> Result<(), Error> {
    let now_ms = ks.now_ms();
    let mut slot = slot;
    if let Some(here) = slot.filter(|_| members.expired > 0) {
        let is_all = members.expired == ks.zset(db, here)?.len();
        ks.zset_remove_ranks(db, here, 0..members.expired)?;
        if is_all {
            slot = None;
        }
    }
    let mut name = Name::new(now_ms);
    for serial in members.next..members.next + units {
        slot = Some(ks.zset_add(db, key, slot, name.with(serial), now_ms as f64)?.0);
    }
    if let Some(slot) = slot
        && ks.entry(db, slot).expires_at_ms() != Some(until_ms)
    {
        _ = ks.expire_at(db, slot, until_ms);
    }
    Ok(())
}

/// The units of a request that a key still counts, with the changes that return them.
pub(super) enum Counted {
    Nothing,
    /// The new theoretical arrival time.
    Bucket {
        slot: Slot,
        tat_ns: i64,
        units: i64,
    },
    Counter {
        slot: Slot,
        left: i64,
        units: i64,
    },
    Sliding {
        slot: Slot,
        field: &'static [u8],
        left: i64,
        units: i64,
    },
    /// The serial numbers of the units.
    Exact {
        slot: Slot,
        serials: Range<i64>,
    },
    /// Places of a gate that the request holds.
    Places {
        slot: Slot,
        units: i64,
    },
}

/// Finds, among the units that the request `id` took at `at_ms` under a rule, up to `units` that the key still counts;
/// for a CONCURRENCY rule all of them.
pub(super) fn find_units(
    ks: &mut Keyspace,
    db: DbIndex,
    id: &[u8],
    charged: &Charged<'_>,
    at_ms: i64,
    units: i64,
) -> Result<Counted, Error> {
    let Charged { rule, mark, .. } = *charged;
    let Some(slot) = ks.find(db, rule.key) else { return Ok(Counted::Nothing) };
    let counted = match rule.kind {
        Kind::Gcra(rate) => {
            let tat_ns = tat_at(ks, db, slot)?;
            // Some of the units have leaked since. How many is unknown if the bucket was empty in between, so only
            // those that have surely not leaked are returned.
            let leaked_ns = ns(ks.now_ms().saturating_sub(at_ms).max(0));
            let left_ns = rate.cost_ns(rule.units).saturating_sub(leaked_ns).clamp(0, rate.cost_ns(units));
            if left_ns == 0 {
                return Ok(Counted::Nothing);
            }
            Counted::Bucket { slot, tat_ns: tat_ns.saturating_sub(left_ns), units: left_ns / rate.cost_ns(1) }
        }
        Kind::Fixed { .. } | Kind::Calendar { .. } => {
            let count = string_at(ks, db, slot)?.as_i64().ok_or(Error::NotInteger)?;
            let units = units.min(count.max(0));
            if ks.entry(db, slot).expires_at_ms() != Some(mark) || units == 0 {
                return Ok(Counted::Nothing);
            }
            Counted::Counter { slot, left: count - units, units }
        }
        Kind::Sliding { window_ms, .. } => {
            let hash = ks.hash(db, slot)?;
            let field = match number_of(hash, START) {
                Some(start_ms) if start_ms == mark => COUNT,
                Some(start_ms) if mark.checked_add(window_ms) == Some(start_ms) => BEFORE,
                _ => return Ok(Counted::Nothing),
            };
            let count = number_of(hash, field).unwrap_or(0);
            let units = units.min(count.max(0));
            Counted::Sliding { slot, field, left: count - units, units }
        }
        Kind::Exact { window_ms, .. } => {
            ks.zset(db, slot)?;
            // Forgotten units stay in the set until the next call takes units.
            if at_ms <= ks.now_ms().saturating_sub(window_ms) {
                return Ok(Counted::Nothing);
            }
            // The last ones, so that units that were used stay in the order in which they came.
            let end = mark + rule.units;
            Counted::Exact { slot, serials: end - units..end }
        }
        // Another token belongs to a later grant, which is still held.
        Kind::Concurrency { .. } => {
            let own = ks.gate_at(db, slot)?.grants().get(id).filter(|own| own.token.cast_signed() == mark);
            own.map_or(Counted::Nothing, |own| Counted::Places { slot, units: own.units.cast_signed() })
        }
    };
    Ok(counted)
}

/// Gives the units that were found back to the limit, and returns their number. `id` and `at_ms` are those of the
/// request.
pub(super) fn refund_units(
    ks: &mut Keyspace,
    db: DbIndex,
    id: &[u8],
    key: &[u8],
    counted: Counted,
    at_ms: i64,
) -> Result<i64, Error> {
    match counted {
        Counted::Nothing => Ok(0),
        Counted::Bucket { slot, tat_ns, units } => {
            if tat_ns > ns(ks.now_ms()) {
                put_tat(ks, db, key, Some(slot), tat_ns);
            } else {
                ks.remove(db, slot);
            }
            Ok(units)
        }
        Counted::Counter { slot, left, units } => {
            if left == 0 {
                ks.remove(db, slot);
            } else {
                _ = ks.put_integer(db, key, Some(slot), left);
            }
            Ok(units)
        }
        Counted::Sliding { slot, field, left, units } => {
            if units > 0 {
                ks.hash_set(db, key, Some(slot), field, Digits::new().format(left).as_bytes())?;
            }
            Ok(units)
        }
        Counted::Exact { slot, serials } => remove_members(ks, db, slot, at_ms, serials),
        Counted::Places { slot, units } => {
            ks.open_gate_at(db, slot)?.end(id);
            Ok(units)
        }
    }
}

fn remove_members(ks: &mut Keyspace, db: DbIndex, slot: Slot, at_ms: i64, serials: Range<i64>) -> Result<i64, Error> {
    let mut name = Name::new(at_ms);
    let mut left = ks.zset(db, slot)?.len();
    let mut removed = 0;
    for serial in serials {
        // The last member takes the key with it.
        if left == 0 {
            break;
        }
        let is_removed = ks.zset_remove(db, slot, name.with(serial))?.is_some();
        left -= usize::from(is_removed);
        removed += i64::from(is_removed);
    }
    Ok(removed)
}
