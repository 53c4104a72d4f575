//! The record of a request: a string under the request's ID, which expires when none of its units counts any more.
//!
//! ```text
//! take 1795534711000 2 2                         when (Unix ms), units, rules; then for each rule:
//!  g 800 0 40000000 20 0 -1 0 6 user:7           kind, units, debt, two parameters, mark, settlement, key with length
//! ```
//!
//! | Kind | Parameters | The mark identifies the units at the key |
//! |---|---|---|
//! | `g` GCRA | ns between two units, most units at once | nothing: 0 |
//! | `f` FIXED | max, window in ms | when the counter ends, Unix ms |
//! | `h` `d` `w` `m` CALENDAR | max, minutes ahead of UTC | when the counter ends, Unix ms |
//! | `s` SLIDING | max, window in ms | when the window with the units began, Unix ms |
//! | `e` EXACT | max, window in ms | the serial number of the first unit |
//! | `c` CONCURRENCY | limit, lease in ms | the fencing token |
//!
//! A settlement is the units that were used, and by how many units the key has changed; -1 and 0 before LIMIT.SETTLE.
//!
//! The record is one line, with a blank between two parts. Any user with write access to the key may have stored
//! anything there, so the reader trusts nothing.

use super::rule::{Kind, Rule, Unit};
use crate::base::hasher::hash_bytes;
use crate::base::num;
use crate::command::limits::{LIMIT_EXACT_SERIAL_END, LIMIT_EXACT_UNITS_MAX, LIMIT_REQUEST_MAX_BYTES, LIMIT_RULES_MAX};
use crate::value::gcra::Rate;

/// A rule of a request, with the units taken under it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Charged<'a> {
    /// The rule, as the request gave it.
    pub rule: Rule<'a>,
    /// Identifies the units at the key; see the table in the module's header.
    pub mark: i64,
    /// How the rule was settled, if it was.
    pub settled: Option<Settled>,
}

/// The settlement of a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Settled {
    /// The units that the call has used; not negative.
    pub used: i64,
    /// The units taken in addition; negative for units returned.
    pub change: i64,
}

/// The record of a request, parsed.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Request<'a> {
    /// When the units were taken, Unix ms.
    pub at_ms: i64,
    /// How many units were taken under each rule that did not say otherwise; at least 1.
    pub units: i64,
    /// The rules, with different keys.
    pub rules: Vec<Charged<'a>>,
}

/// The record of a request, encoded.
pub(super) struct Record(Vec<u8>);

const HEAD: &[u8] = b"take";

/// The units used under a rule that is not settled.
const UNSETTLED: i64 = -1;

/// The longest record: all keys, and at most 192 bytes of numbers for each rule and for the head.
const RECORD_MAX_BYTES: usize = LIMIT_REQUEST_MAX_BYTES + 192 * (1 + LIMIT_RULES_MAX);

impl Record {
    /// Begins the record of a request with this many rules, which the caller then [adds](Self::add).
    pub(super) fn new(at_ms: i64, units: i64, rules: usize) -> Record {
        let mut record = Record(Vec::with_capacity(64 * (1 + rules)));
        record.0.extend_from_slice(HEAD);
        [at_ms, units, rules as i64].into_iter().for_each(|value| record.number(value));
        record
    }

    pub(super) fn add(&mut self, charged: &Charged<'_>) {
        let Charged { rule, mark, settled } = charged;
        let (letter, one, other) = written(rule.kind);
        let (used, change) = settled.map_or((UNSETTLED, 0), |settled| (settled.used, settled.change));
        self.0.extend_from_slice(&[b' ', letter]);
        let len = rule.key.len() as i64;
        [rule.units, rule.debt, one, other, *mark, used, change, len].into_iter().for_each(|value| self.number(value));
        self.0.push(b' ');
        self.0.extend_from_slice(rule.key);
    }

    pub(super) fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    fn number(&mut self, value: i64) {
        self.0.push(b' ');
        num::format_i64(&mut self.0, value);
    }
}

impl<'a> Request<'a> {
    /// Parses a record; `None` if the text is not a record.
    pub(super) fn read(text: &'a [u8]) -> Option<Request<'a>> {
        if text.len() > RECORD_MAX_BYTES {
            return None;
        }
        let mut parts = Parts(text.strip_prefix(HEAD)?);
        let (at_ms, units) = (parts.number()?, parts.number().filter(|units| *units >= 1)?);
        let count = parts.number().and_then(|count| usize::try_from(count).ok())?;
        if !(1..=LIMIT_RULES_MAX).contains(&count) {
            return None;
        }
        let mut rules: Vec<Charged<'_>> = Vec::with_capacity(count);
        for _ in 0..count {
            let charged = parts.charged()?;
            // A call looks at all keys first: no two rules may change one key.
            if rules.iter().any(|before| before.rule.key == charged.rule.key) {
                return None;
            }
            rules.push(charged);
        }
        parts.0.is_empty().then_some(Request { at_ms, units, rules })
    }

    /// Writes the record anew.
    pub(super) fn record(&self) -> Record {
        let mut record = Record::new(self.at_ms, self.units, self.rules.len());
        self.rules.iter().for_each(|charged| record.add(charged));
        record
    }
}

/// A kind as it is written: its letter and its parameters.
fn written(kind: Kind) -> (u8, i64, i64) {
    match kind {
        Kind::Gcra(rate) => (b'g', rate.cost_ns(1), rate.limit()),
        Kind::Fixed { max, window_ms } => (b'f', max, window_ms),
        Kind::Calendar { max, unit, offset_minutes } => {
            let letter = match unit {
                Unit::Hour => b'h',
                Unit::Day => b'd',
                Unit::Week => b'w',
                Unit::Month => b'm',
            };
            (letter, max, offset_minutes)
        }
        Kind::Sliding { max, window_ms } => (b's', max, window_ms),
        Kind::Exact { max, window_ms } => (b'e', max, window_ms),
        Kind::Concurrency { limit, lease_ms } => (b'c', limit, lease_ms),
    }
}

/// The inverse of [`written`].
fn kind(letter: &[u8], one: i64, other: i64) -> Option<Kind> {
    let calendar = |unit| Kind::Calendar { max: one, unit, offset_minutes: other };
    let kind = match letter {
        b"g" => Kind::Gcra(Rate::with_interval_ns(other, one).ok()?),
        b"f" => Kind::Fixed { max: one, window_ms: other },
        b"h" => calendar(Unit::Hour),
        b"d" => calendar(Unit::Day),
        b"w" => calendar(Unit::Week),
        b"m" => calendar(Unit::Month),
        b"s" => Kind::Sliding { max: one, window_ms: other },
        b"e" => Kind::Exact { max: one, window_ms: other },
        b"c" => Kind::Concurrency { limit: one, lease_ms: other },
        _ => return None,
    };
    Some(kind).filter(|kind| kind.is_valid())
}

/// The rest of a record, with a blank before each part.
struct Parts<'a>(&'a [u8]);

impl<'a> Parts<'a> {
    fn charged(&mut self) -> Option<Charged<'a>> {
        let letter = self.word()?;
        let (units, debt) = (self.number()?, self.number()?);
        let kind = kind(letter, self.number()?, self.number()?)?;
        let (mark, used, change) = (self.number()?, self.number()?, self.number()?);
        let len = self.number().and_then(|len| usize::try_from(len).ok())?;
        let key = self.bytes(len)?;
        kind.extended(debt).filter(|_| debt >= 0 && units >= 1)?;
        if let Kind::Exact { .. } = kind
            && (units > LIMIT_EXACT_UNITS_MAX || !(0..LIMIT_EXACT_SERIAL_END).contains(&mark))
        {
            return None;
        }
        let settled = (used >= 0).then_some(Settled { used, change });
        Some(Charged { rule: Rule { key, kind, units, debt, hash: hash_bytes(key) }, mark, settled })
    }

    fn word(&mut self) -> Option<&'a [u8]> {
        let text = self.0.strip_prefix(b" ")?;
        self.bytes(text.iter().position(|byte| *byte == b' ').unwrap_or(text.len()))
    }

    fn number(&mut self) -> Option<i64> {
        num::parse_i64(self.word()?)
    }

    fn bytes(&mut self, len: usize) -> Option<&'a [u8]> {
        let (part, rest) = self.0.strip_prefix(b" ")?.split_at_checked(len)?;
        self.0 = rest;
        Some(part)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn kinds() -> impl Strategy<Value = Kind> {
        let unit = prop::sample::select(vec![Unit::Hour, Unit::Day, Unit::Week, Unit::Month]);
        prop_oneof![
            (1..1_000i64, 0..1_000i64).prop_map(|(interval_ns, limit)| {
                Kind::Gcra(Rate::with_interval_ns(limit, interval_ns).expect("a rate"))
            }),
            (0..=i64::MAX, 1..1_000i64).prop_map(|(max, window_ms)| Kind::Fixed { max, window_ms }),
            (0..=i64::MAX, unit, -1_439..1_440i64).prop_map(|(max, unit, offset_minutes)| Kind::Calendar {
                max,
                unit,
                offset_minutes
            }),
            (0..=i64::MAX, 1..1_000i64).prop_map(|(max, window_ms)| Kind::Sliding { max, window_ms }),
            (0..65_537i64, 1..1_000i64).prop_map(|(max, window_ms)| Kind::Exact { max, window_ms }),
            (0..1_000i64, 1..1_000i64).prop_map(|(limit, lease_ms)| Kind::Concurrency { limit, lease_ms }),
        ]
    }

    fn settled() -> impl Strategy<Value = Option<Settled>> {
        proptest::option::of((0..=i64::MAX, any::<i64>()).prop_map(|(used, change)| Settled { used, change }))
    }

    fn charged() -> impl Strategy<Value = Charged<'static>> {
        (kinds(), 1..1_000i64, 0..9i64, 0..LIMIT_EXACT_SERIAL_END, settled()).prop_map(
            |(kind, units, debt, mark, settled)| {
                let debt = if kind.extended(debt).is_some() { debt } else { 0 };
                Charged { rule: Rule { key: b"", kind, units, debt, hash: 0 }, mark, settled }
            },
        )
    }

    fn of_key<'k>((key, charged): (&'k Vec<u8>, &Charged<'static>)) -> Charged<'k> {
        Charged { rule: Rule { key, hash: hash_bytes(key), ..charged.rule }, ..*charged }
    }

    proptest! {
        #[test]
        fn requests_are_read_as_written(
            at_ms: i64, units in 1..1_000i64,
            rules in proptest::collection::btree_map(proptest::collection::vec(any::<u8>(), 0..9), charged(), 1..9),
            cut in 0..64usize
        ) {
            let request = Request { at_ms, units, rules: rules.iter().map(of_key).collect() };
            let record = request.record();
            let text = record.as_bytes();
            let longer = [text, b" "].concat();
            prop_assert_eq!(Request::read(&longer), None);
            prop_assert_eq!(Request::read(&text[..text.len() - cut.clamp(1, text.len())]), None);
            prop_assert_eq!(Request::read(text), Some(request));
        }

        #[test]
        fn any_stored_bytes_are_handled(text in "(take)?( [-gfhdwmsec0-9]{1,3}){0,24}") {
            Request::read(text.as_bytes());
        }
    }
}
