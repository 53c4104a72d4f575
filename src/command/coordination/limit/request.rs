//! The record of a request: a string under the request's ID, which expires when none of its units counts any more.
//!
//! ```text
//! take 1795534711000 2 2          when (Unix ms), units, rules; then for each rule:
//!  b 40000000 0 6 user:7          kind, two numbers of its mark, length of the key, the key
//! ```
//!
//! The record is one line, with a blank between two parts. Any user with write access to the key may have stored
//! anything there, so the reader trusts nothing.

use crate::base::num;
use crate::command::limits::{LIMIT_EXACT_SERIAL_END, LIMIT_EXACT_UNITS_MAX, LIMIT_REQUEST_MAX_BYTES, LIMIT_RULES_MAX};

/// Identifies the units of a request at a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mark {
    /// How far the units moved the theoretical arrival time.
    Bucket { cost_ns: i64 },
    /// When the counter with the units ends.
    Counter { ends_ms: i64 },
    /// When the window with the units began.
    Sliding { start_ms: i64, window_ms: i64 },
    /// The serial number of the first unit, and how long units count.
    Exact { first: i64, window_ms: i64 },
    /// The fencing token of the places.
    Places { token: i64 },
}

/// The record of a request, parsed.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Request<'a> {
    /// When the units were taken, Unix ms.
    pub at_ms: i64,
    /// How many units were taken under each rule; at least 1.
    pub units: i64,
    /// The keys of the rules, all different, with their marks.
    pub rules: Vec<(&'a [u8], Mark)>,
}

/// The record of a request, encoded.
pub(super) struct Record(Vec<u8>);

const HEAD: &[u8] = b"take";

/// The longest record: all keys, and at most 128 bytes of numbers for each rule and for the head.
const RECORD_MAX_BYTES: usize = LIMIT_REQUEST_MAX_BYTES + 128 * (1 + LIMIT_RULES_MAX);

impl Record {
    /// Begins the record of a request with this many rules, which the caller then [adds](Self::add).
    pub(super) fn new(at_ms: i64, units: i64, rules: usize) -> Record {
        let mut record = Record(Vec::with_capacity(64 * (1 + rules)));
        record.0.extend_from_slice(HEAD);
        [at_ms, units, rules as i64].into_iter().for_each(|value| record.number(value));
        record
    }

    pub(super) fn add(&mut self, key: &[u8], mark: Mark) {
        let (letter, one, other) = match mark {
            Mark::Bucket { cost_ns } => (b'b', cost_ns, 0),
            Mark::Counter { ends_ms } => (b'c', ends_ms, 0),
            Mark::Sliding { start_ms, window_ms } => (b's', start_ms, window_ms),
            Mark::Exact { first, window_ms } => (b'e', first, window_ms),
            Mark::Places { token } => (b'p', token, 0),
        };
        self.0.extend_from_slice(&[b' ', letter]);
        [one, other, key.len() as i64].into_iter().for_each(|value| self.number(value));
        self.0.push(b' ');
        self.0.extend_from_slice(key);
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
        let mut rules: Vec<(&[u8], Mark)> = Vec::with_capacity(count);
        for _ in 0..count {
            let letter = parts.word()?;
            let (one, other) = (parts.number()?, parts.number()?);
            let mark = match letter {
                b"b" if one >= 0 => Mark::Bucket { cost_ns: one },
                b"c" => Mark::Counter { ends_ms: one },
                b"s" => Mark::Sliding { start_ms: one, window_ms: other },
                b"e" if units <= LIMIT_EXACT_UNITS_MAX && (0..LIMIT_EXACT_SERIAL_END).contains(&one) => {
                    Mark::Exact { first: one, window_ms: other }
                }
                b"p" => Mark::Places { token: one },
                _ => return None,
            };
            let len = parts.number().and_then(|len| usize::try_from(len).ok())?;
            let key = parts.bytes(len)?;
            // A refund looks at all keys first: no two rules may change one key.
            if rules.iter().any(|(before, _)| *before == key) {
                return None;
            }
            rules.push((key, mark));
        }
        parts.0.is_empty().then_some(Request { at_ms, units, rules })
    }
}

/// The rest of a record, with a blank before each part.
struct Parts<'a>(&'a [u8]);

impl<'a> Parts<'a> {
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

    fn mark() -> impl Strategy<Value = Mark> {
        prop_oneof![
            (0..=i64::MAX).prop_map(|cost_ns| Mark::Bucket { cost_ns }),
            any::<i64>().prop_map(|ends_ms| Mark::Counter { ends_ms }),
            any::<(i64, i64)>().prop_map(|(start_ms, window_ms)| Mark::Sliding { start_ms, window_ms }),
            (0..LIMIT_EXACT_SERIAL_END, any::<i64>()).prop_map(|(first, window_ms)| Mark::Exact { first, window_ms }),
            any::<i64>().prop_map(|token| Mark::Places { token }),
        ]
    }

    proptest! {
        #[test]
        fn requests_are_read_as_written(
            at_ms: i64, units in 1..1_000i64,
            rules in proptest::collection::btree_map(proptest::collection::vec(any::<u8>(), 0..9), mark(), 1..9),
            cut in 0..64usize
        ) {
            let mut record = Record::new(at_ms, units, rules.len());
            rules.iter().for_each(|(key, mark)| record.add(key, *mark));
            let expected = rules.iter().map(|(key, mark)| (key.as_slice(), *mark)).collect();
            prop_assert_eq!(Request::read(record.as_bytes()), Some(Request { at_ms, units, rules: expected }));
            let longer = [record.as_bytes(), b" "].concat();
            prop_assert_eq!(Request::read(&longer), None);
            let shorter = &record.as_bytes()[..record.as_bytes().len() - cut.clamp(1, record.as_bytes().len())];
            prop_assert_eq!(Request::read(shorter), None);
        }

        #[test]
        fn any_stored_bytes_are_handled(text in "(take)?( [-bcsep0-9]{1,3}){0,12}") {
            Request::read(text.as_bytes());
        }
    }
}
