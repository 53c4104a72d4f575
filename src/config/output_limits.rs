//! Limits of unread output, by class of client.

use super::kind::{Args, Origin, Shape, parse_memory, words};
use super::refusal::Refusal;
use crate::base::num::{format_i64, parse_i64};

/// How much output may wait for a client before it is disconnected; 0 means no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OutputLimit {
    /// Bytes that must never be exceeded.
    pub hard_bytes: u64,
    /// Bytes that must not be exceeded for longer than `soft_seconds`.
    pub soft_bytes: u64,
    /// Seconds for which `soft_bytes` may be exceeded.
    pub soft_seconds: u64,
}

/// The output limits by class of client.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OutputLimits {
    /// Ordinary clients.
    pub normal: OutputLimit,
    /// Replicas.
    pub replica: OutputLimit,
    /// Clients that are subscribed to a channel or pattern.
    pub pubsub: OutputLimit,
}

/// Groups of class, hard limit, soft limit and seconds. Classes that are not named keep their limits.
pub(super) struct Limits;

impl Limits {
    pub(super) fn shape(&self) -> Shape {
        Shape::Groups("CLASS HARD SOFT SECONDS", 4)
    }

    pub(super) fn set(&self, field: &mut OutputLimits, args: Args<'_>, _: Origin) -> Result<(), Refusal> {
        if args == [b""] {
            return Ok(());
        }
        let words: Vec<_> = words(args).collect();
        let (groups, []) = words.as_chunks::<4>() else { return Err(Refusal::LimitArity) };
        let mut limits = *field;
        for [class, hard, soft, seconds] in groups {
            let limit = match class.to_ascii_lowercase().as_slice() {
                b"normal" => &mut limits.normal,
                b"replica" | b"slave" => &mut limits.replica,
                b"pubsub" => &mut limits.pubsub,
                _ => return Err(Refusal::LimitClass),
            };
            *limit = OutputLimit {
                hard_bytes: parse_memory(hard).ok_or(Refusal::LimitNumber)?,
                soft_bytes: parse_memory(soft).ok_or(Refusal::LimitNumber)?,
                soft_seconds: parse_i64(seconds).and_then(|n| u64::try_from(n).ok()).ok_or(Refusal::LimitNumber)?,
            };
        }
        *field = limits;
        Ok(())
    }

    pub(super) fn get(&self, field: &OutputLimits, out: &mut Vec<u8>) {
        for (class, limit) in [("normal", field.normal), (" slave", field.replica), (" pubsub", field.pubsub)] {
            out.extend_from_slice(class.as_bytes());
            for number in [limit.hard_bytes, limit.soft_bytes, limit.soft_seconds] {
                out.push(b' ');
                format_i64(out, i64::try_from(number).unwrap_or(i64::MAX));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_name_their_class() {
        let mut limits = OutputLimits::default();
        let mut set = |text: &str| Limits.set(&mut limits, &[text.as_bytes()], Origin::Set);
        assert_eq!(set("normal 1mb 2 3 replica 4 5 6"), Ok(()));
        assert_eq!(set("normal 1 2"), Err(Refusal::LimitArity));
        assert_eq!(set(""), Ok(()));
        assert_eq!(set("foo 1 2 3"), Err(Refusal::LimitClass));
        assert_eq!(set("normal 1 2 -1"), Err(Refusal::LimitNumber));
        let mut out = Vec::new();
        Limits.get(&limits, &mut out);
        assert_eq!(out, b"normal 1048576 2 3 slave 4 5 6 pubsub 0 0 0");
    }
}
