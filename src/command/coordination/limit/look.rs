//! Evaluates a rule: whether it grants a call, how many units are left, and how long to wait. Nothing is changed here.

use super::members::Members;
use super::places::Places;
use super::rule::{Kind, Rule, Unit};
use super::sliding::Buckets;
use crate::base::calendar::next_month;
use crate::base::num;
use crate::command::coordination::error::LimitError;
use crate::command::string::string_at;
use crate::command::throttle::{MS_NS, ns, round_up, tat_at};
use crate::engine::Ctx;
use crate::keyspace::{DbIndex, Keyspace, Slot};
use crate::spec::error::Error;
use crate::value::gcra::{Decision, Rate};
use crate::value::hash::Hash;
use crate::value::packed::Item;

const MINUTE_MS: i64 = 60_000;
const HOUR_MS: i64 = 60 * MINUTE_MS;
const DAY_MS: i64 = 24 * HOUR_MS;

/// Field of a sliding window's hash: when the window began, Unix ms.
pub(super) const START: &[u8] = b"start";
/// Field of a sliding window's hash: the units of the window before.
pub(super) const BEFORE: &[u8] = b"before";
/// Field of a sliding window's hash: the units of this window.
pub(super) const COUNT: &[u8] = b"count";

/// The evaluation of a rule.
pub(super) struct Evaluation {
    /// The slot of the key, if it exists.
    pub slot: Option<Slot>,
    /// The state of the limit.
    pub state: State,
    /// Whether the units may be taken.
    pub grants: bool,
}

/// The state of a limit, with the parameters of its rule.
pub(super) enum State {
    /// A leaky bucket, with the decision on the units.
    Bucket { rate: Rate, tat_ns: Option<i64>, decision: Decision },
    /// A counter. It is open if it expires; otherwise the next grant sets its end.
    Counter { max: i64, count: i64, ends_ms: i64, is_open: bool },
    /// A sliding window as of now.
    Sliding { max: i64, window_ms: i64, buckets: Buckets },
    /// A sorted set with a member for each unit.
    Exact { max: i64, window_ms: i64, members: Members },
    /// The places of a gate.
    Places(Places),
}

/// The report on a rule in the reply.
pub(super) struct Standing {
    /// How many units may be taken in all.
    pub limit: i64,
    /// How many units are taken; more than the limit if the limit was lowered.
    pub used: i64,
    /// How many units may be taken now.
    pub remaining: i64,
    /// Milliseconds until the units would be granted if no other call takes any; 0 if they are granted, -1 for never.
    pub retry_after_ms: i64,
    /// Milliseconds until all units are available again.
    pub reset_after_ms: i64,
}

/// Evaluates a rule for a call with this ID. `is_repeated`: the request was granted before.
pub(super) fn evaluate(
    ctx: &mut Ctx<'_>,
    request: Option<&[u8]>,
    rule: &Rule<'_>,
    is_repeated: bool,
) -> Result<Evaluation, Error> {
    let (db, now_ms, units) = (ctx.db(), ctx.now_ms(), rule.units);
    let slot = ctx.ks.find(db, rule.key);
    let ks = &*ctx.ks;
    let (state, grants) = match rule.kind {
        Kind::Gcra(rate) => {
            let tat_ns = slot.map(|slot| tat_at(ks, db, slot)).transpose()?;
            let decision = rate.decide(tat_ns, ns(now_ms), units);
            (State::Bucket { rate, tat_ns, decision }, decision.tat_ns.is_some())
        }
        Kind::Fixed { max, window_ms } => counter_at(ks, db, slot, max, units, || now_ms.saturating_add(window_ms))?,
        Kind::Calendar { max, unit, offset_minutes } => {
            counter_at(ks, db, slot, max, units, || unit.end_ms(now_ms, offset_minutes))?
        }
        Kind::Sliding { max, window_ms } => {
            let stored = slot.map_or(Ok(Buckets::empty(now_ms)), |slot| buckets_at(ks, db, slot))?;
            let buckets = stored.at(now_ms, window_ms);
            let used = buckets.used(now_ms, window_ms);
            (State::Sliding { max, window_ms, buckets }, fits(used, units, max))
        }
        Kind::Exact { max, window_ms } => {
            let members = match slot {
                Some(slot) => Members::of(ks.zset(db, slot)?, now_ms, max, window_ms, units)?,
                None => Members::none(),
            };
            let grants = fits(members.live, units, max);
            (State::Exact { max, window_ms, members }, grants)
        }
        Kind::Concurrency { limit, lease_ms } => {
            let mut places = Places::evaluate(ctx, request, rule, slot, (limit, lease_ms))?;
            let grants = places.is_held || (places.is_free && !is_repeated);
            if is_repeated {
                // A request never gets back places that were released or whose lease has ended.
                places.frees_ms = None;
            }
            (State::Places(places), grants)
        }
    };
    Ok(Evaluation { slot, state, grants })
}

fn counter_at(
    ks: &Keyspace,
    db: DbIndex,
    slot: Option<Slot>,
    max: i64,
    units: i64,
    end_ms: impl FnOnce() -> i64,
) -> Result<(State, bool), Error> {
    let (mut count, mut open_until_ms) = (0, None);
    if let Some(slot) = slot {
        let Some(stored) = string_at(ks, db, slot)?.as_i64() else { return Err(Error::NotInteger) };
        count = stored;
        open_until_ms = ks.entry(db, slot).expires_at_ms();
    }
    let ends_ms = open_until_ms.unwrap_or_else(end_ms);
    let state = State::Counter { max, count, ends_ms, is_open: open_until_ms.is_some() };
    Ok((state, fits(count, units, max)))
}

fn fits(used: i64, units: i64, max: i64) -> bool {
    used.checked_add(units).is_some_and(|sum| sum <= max)
}

fn buckets_at(ks: &Keyspace, db: DbIndex, slot: Slot) -> Result<Buckets, Error> {
    let hash = ks.hash(db, slot)?;
    let number = |field| number_of(hash, field).ok_or_else(|| Error::from(LimitError::NotAWindow));
    let buckets = Buckets { start_ms: number(START)?, before: number(BEFORE)?, count: number(COUNT)? };
    if buckets.before < 0 || buckets.count < 0 { Err(LimitError::NotAWindow.into()) } else { Ok(buckets) }
}

/// The number in a field of a sliding window's hash.
pub(super) fn number_of(hash: &Hash, field: &[u8]) -> Option<i64> {
    match hash.get(field)? {
        Item::Int(value) => Some(value),
        Item::Bytes(text) => num::parse_i64(text),
    }
}

impl Evaluation {
    /// The places of a CONCURRENCY rule.
    pub(super) fn places(&self) -> Option<&Places> {
        match &self.state {
            State::Places(places) => Some(places),
            _ => None,
        }
    }

    /// The report for the reply; `taken`: the units were charged.
    pub(super) fn standing(&self, now_ms: i64, units: i64, taken: bool) -> Standing {
        let is_held = self.places().is_some_and(|places| places.is_held);
        let more = if taken && !is_held { units } else { 0 };
        // The units used, when all of them are forgotten, and when enough are forgotten for the call, if it can ever be
        // granted.
        let (limit, used, ends_ms, frees_ms) = match &self.state {
            State::Bucket { rate, tat_ns, decision } => {
                let asks_anew = self.grants && !taken;
                let decision = if asks_anew { rate.decide(*tat_ns, ns(now_ms), 0) } else { *decision };
                return Standing::of_bucket(&decision, self.grants);
            }
            State::Counter { max, count, ends_ms, is_open } => {
                let ends_ms = (*is_open || taken).then_some(*ends_ms);
                (*max, *count, ends_ms.filter(|_| *count + more != 0), ends_ms.filter(|_| units <= *max))
            }
            State::Sliding { max, window_ms, buckets } => {
                let after = Buckets { count: buckets.count + more, ..*buckets };
                let frees_ms = (!self.grants && units <= *max).then(|| buckets.frees_ms(*max, units, *window_ms));
                (*max, buckets.used(now_ms, *window_ms), Some(after.ends_ms(*window_ms)), frees_ms)
            }
            State::Exact { max, window_ms, members } => {
                let newest_ms = if taken { members.newest_ms.max(now_ms) } else { members.newest_ms };
                let ends_ms = (members.live + more > 0).then(|| newest_ms.saturating_add(*window_ms));
                (*max, members.live, ends_ms, members.frees_ms)
            }
            State::Places(places) => {
                let own_end_ms = taken.then_some(places.until_ms);
                (places.limit, places.in_use, own_end_ms.max(places.last_end_ms), places.frees_ms)
            }
        };
        let until_ms = |at_ms: i64, least: i64| at_ms.saturating_sub(now_ms).max(least);
        Standing {
            limit,
            used: used.saturating_add(more),
            remaining: limit.saturating_sub(used).saturating_sub(more).max(0),
            retry_after_ms: if self.grants { 0 } else { frees_ms.map_or(-1, |at_ms| until_ms(at_ms, 1)) },
            reset_after_ms: ends_ms.map_or(0, |at_ms| until_ms(at_ms, 0)),
        }
    }
}

impl Standing {
    fn of_bucket(decision: &Decision, grants: bool) -> Standing {
        Standing {
            limit: decision.limit,
            used: decision.limit.saturating_sub(decision.remaining),
            remaining: decision.remaining,
            retry_after_ms: match decision.retry_after_ns {
                _ if grants => 0,
                Some(ns) => round_up(ns, MS_NS),
                None => -1,
            },
            reset_after_ms: round_up(decision.reset_after_ns, MS_NS),
        }
    }
}

impl Unit {
    /// When the window that contains `now_ms` ends, in a time zone `offset_minutes` ahead of UTC. Both are Unix ms.
    fn end_ms(self, now_ms: i64, offset_minutes: i64) -> i64 {
        let offset_ms = offset_minutes * MINUTE_MS;
        let local_ms = now_ms.saturating_add(offset_ms);
        let days = local_ms.div_euclid(DAY_MS);
        let next_ms = match self {
            Unit::Hour => (local_ms.div_euclid(HOUR_MS) + 1).saturating_mul(HOUR_MS),
            Unit::Day => (days + 1).saturating_mul(DAY_MS),
            // The first of January 1970 was a Thursday.
            Unit::Week => (days + 7 - (days + 3).rem_euclid(7)).saturating_mul(DAY_MS),
            Unit::Month => next_month(days).saturating_mul(DAY_MS),
        };
        next_ms.saturating_sub(offset_ms)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::calendar::utc;
    use proptest::prelude::*;

    #[test]
    fn calendar_windows_end_where_people_expect() {
        // 2026-11-24 is a Tuesday.
        let now_ms = 1_795_534_711_000;
        assert_eq!(utc(now_ms), "2026-11-24T15:38:31Z");
        for (unit, offset_minutes, expected) in [
            (Unit::Hour, 0, "2026-11-24T16:00:00Z"),
            (Unit::Hour, 330, "2026-11-24T16:30:00Z"),
            (Unit::Day, 0, "2026-11-25T00:00:00Z"),
            (Unit::Day, 60, "2026-11-24T23:00:00Z"),
            (Unit::Day, 600, "2026-11-25T14:00:00Z"),
            (Unit::Day, -960, "2026-11-24T16:00:00Z"),
            (Unit::Week, 0, "2026-11-30T00:00:00Z"),
            (Unit::Week, -300, "2026-11-30T05:00:00Z"),
            (Unit::Month, 0, "2026-12-01T00:00:00Z"),
            (Unit::Month, 120, "2026-11-30T22:00:00Z"),
        ] {
            assert_eq!(utc(unit.end_ms(now_ms, offset_minutes)), expected, "{unit:?} {offset_minutes}");
        }
        assert_eq!(utc(Unit::Month.end_ms(now_ms + 14 * DAY_MS + 23 * HOUR_MS, 0)), "2027-01-01T00:00:00Z");
    }

    /// Whether a window begins at this moment of local time, read off the printed date.
    fn begins(local_ms: i64, unit: Unit) -> bool {
        let text = utc(local_ms);
        match unit {
            Unit::Hour => text.ends_with(":00:00Z") && local_ms % 1_000 == 0,
            Unit::Day => text.ends_with("T00:00:00Z") && local_ms % 1_000 == 0,
            // Mondays: one of them was the fifth of January 1970.
            Unit::Week => begins(local_ms, Unit::Day) && (local_ms - 4 * DAY_MS) % (7 * DAY_MS) == 0,
            Unit::Month => text.ends_with("-01T00:00:00Z") && local_ms % 1_000 == 0,
        }
    }

    proptest! {
        #[test]
        fn a_window_ends_at_the_first_moment_where_one_begins(
            now_ms in 0..4_000_000_000_000i64, offset_minutes in -1_439..1_440i64
        ) {
            for unit in [Unit::Hour, Unit::Day, Unit::Week, Unit::Month] {
                let end_ms = unit.end_ms(now_ms, offset_minutes);
                let offset_ms = offset_minutes * MINUTE_MS;
                let (mut local_ms, local_end_ms) = (now_ms + offset_ms, end_ms + offset_ms);
                prop_assert!(end_ms > now_ms && begins(local_end_ms, unit), "{unit:?}");
                // No window begins in between, checked hour by hour.
                local_ms = local_ms.div_euclid(HOUR_MS) * HOUR_MS + HOUR_MS;
                while local_ms < local_end_ms {
                    prop_assert!(!begins(local_ms, unit), "{unit:?} begins at {}", utc(local_ms));
                    local_ms += HOUR_MS;
                }
            }
        }

        #[test]
        fn no_time_is_out_of_range(now_ms: i64, offset_minutes in -1_439..1_440i64) {
            for unit in [Unit::Hour, Unit::Day, Unit::Week, Unit::Month] {
                unit.end_ms(now_ms, offset_minutes);
            }
        }
    }
}
