//! The units of an EXACT rule: members of a sorted set, scored by the time at which they were taken. Any other member
//! counts as a unit, too.
//!
//! The name of a unit is `1795534711000-00000000`: its time in Unix ms, and a serial number within the millisecond.

use crate::base::num;
use crate::command::coordination::error::LimitError;
use crate::command::limits::LIMIT_EXACT_SERIAL_END;
use crate::spec::error::Error;
use crate::value::zset::{ScoreBound, ZSet};

/// Digits of a serial number. All serial numbers are below [`LIMIT_EXACT_SERIAL_END`].
const SERIAL_DIGITS: usize = 8;
const _: () = assert!(LIMIT_EXACT_SERIAL_END == 10i64.pow(SERIAL_DIGITS as u32));

/// The units of a set as of now.
pub(super) struct Members {
    /// How many units still count.
    pub live: i64,
    /// How many of the oldest units no longer count.
    pub expired: usize,
    /// When the newest unit was taken, Unix ms.
    pub newest_ms: i64,
    /// When enough units will be forgotten for the call, Unix ms, if it is refused now and can ever be granted.
    pub frees_ms: Option<i64>,
    /// The serial number of the call's first unit, if it is granted; the numbers suffice for all its units.
    pub next: i64,
}

impl Members {
    /// The state of a key that does not exist.
    pub(super) fn none() -> Members {
        Members { live: 0, expired: 0, newest_ms: i64::MIN, frees_ms: None, next: 0 }
    }

    /// Evaluates a set.
    pub(super) fn of(zset: &ZSet, now_ms: i64, max: i64, window_ms: i64, units: i64) -> Result<Members, Error> {
        let oldest = ScoreBound { score: f64::NEG_INFINITY, exclusive: false };
        let cutoff = ScoreBound { score: now_ms.saturating_sub(window_ms) as f64, exclusive: false };
        let expired = zset.by_score(oldest, cutoff).end;
        let live = (zset.len() - expired) as i64;
        let came_ms = |rank| zset.by_rank(rank).map(|(_, score): (&[u8], f64)| score.ceil() as i64);
        let newest_ms = came_ms(zset.len().saturating_sub(1)).unwrap_or(i64::MIN);
        let missing = live.saturating_add(units).saturating_sub(max);
        let mut members = Members { live, expired, newest_ms, frees_ms: None, next: 0 };
        if missing <= 0 {
            members.next = next_serial(zset, now_ms);
            if members.next > LIMIT_EXACT_SERIAL_END - units {
                return Err(LimitError::MillisecondFull.into());
            }
        } else if units <= max {
            let last = came_ms(expired + missing as usize - 1);
            members.frees_ms = last.map(|came_ms| came_ms.saturating_add(window_ms));
        }
        Ok(members)
    }

    /// When the last unit will be forgotten, if one is taken now.
    pub(super) fn ends_ms(&self, now_ms: i64, window_ms: i64) -> i64 {
        self.newest_ms.max(now_ms).saturating_add(window_ms)
    }
}

/// The next free serial number of this millisecond.
fn next_serial(zset: &ZSet, now_ms: i64) -> i64 {
    let now = ScoreBound { score: now_ms as f64, exclusive: false };
    let name = Name::new(now_ms);
    let mut here = zset.range(zset.by_score(now, now)).rev();
    here.find_map(|(member, _)| name.serial_of(member)).map_or(0, |last| last + 1)
}

/// Names of the units of one millisecond. Serial numbers have a fixed length, so names sort in order.
pub(super) struct Name {
    bytes: Vec<u8>,
    prefix: usize,
}

impl Name {
    pub(super) fn new(at_ms: i64) -> Name {
        let mut bytes = Vec::with_capacity(32);
        num::format_i64(&mut bytes, at_ms);
        bytes.push(b'-');
        Name { prefix: bytes.len(), bytes }
    }

    /// The name of the unit with a serial number.
    pub(super) fn with(&mut self, mut serial: i64) -> &[u8] {
        self.bytes.resize(self.prefix + SERIAL_DIGITS, b'0');
        for digit in self.bytes[self.prefix..].iter_mut().rev() {
            *digit = b'0' + (serial % 10) as u8;
            serial /= 10;
        }
        &self.bytes
    }

    fn serial_of(&self, member: &[u8]) -> Option<i64> {
        let digits = member.strip_prefix(&self.bytes[..self.prefix])?;
        if digits.len() != SERIAL_DIGITS || !digits.iter().all(u8::is_ascii_digit) {
            return None;
        }
        Some(digits.iter().fold(0, |serial, digit| 10 * serial + i64::from(digit - b'0')))
    }
}
