//! Names of the files in a directory. Each name tells the kind of the file, and carries its number.

use crate::base::lsn::Lsn;

const SEGMENT: Family = Family { prefix: "log-", suffix: ".seg" };
const SEGMENT_TEMPORARY: Family = Family { prefix: "log-", suffix: ".tmp" };
const SNAPSHOT: Family = Family { prefix: "snapshot-", suffix: ".snap" };
const SNAPSHOT_TEMPORARY: Family = Family { prefix: "snapshot-", suffix: ".tmp" };

/// Largest number of a file of ours. No server gets this far, and below it, numbers can always be counted on.
const NUMBER_MAX: u64 = u64::MAX / 2;

/// Files of one kind. Their names sort in the order of their numbers.
struct Family {
    prefix: &'static str,
    suffix: &'static str,
}

impl Family {
    fn name(&self, number: u64) -> String {
        format!("{}{number:016x}{}", self.prefix, self.suffix)
    }

    fn number(&self, name: &str) -> Option<u64> {
        let digits = name.strip_prefix(self.prefix)?.strip_suffix(self.suffix)?;
        let number = u64::from_str_radix(digits, 16).ok()?;
        (number <= NUMBER_MAX && self.name(number) == name).then_some(number)
    }
}

/// Returns the name of segment `number`.
pub(super) fn segment(number: u64) -> String {
    SEGMENT.name(number)
}

/// Returns the number of the segment with this file name.
pub(super) fn segment_number(name: &str) -> Option<u64> {
    SEGMENT.number(name)
}

/// Returns the name of a segment's file while it is being made.
pub(super) fn temporary_segment(number: u64) -> String {
    SEGMENT_TEMPORARY.name(number)
}

/// Returns the name of the snapshot up to this Lsn.
pub(super) fn snapshot(lsn: Lsn) -> String {
    SNAPSHOT.name(lsn.get())
}

/// Returns the Lsn covered by the snapshot with this file name.
pub(super) fn snapshot_lsn(name: &str) -> Option<Lsn> {
    SNAPSHOT.number(name).map(Lsn::new)
}

/// Returns the name of a snapshot while it is being made: its Lsn is not known before its end.
pub(super) fn temporary_snapshot(number: u64) -> String {
    SNAPSHOT_TEMPORARY.name(number)
}

/// Whether this is the name of a file that was being made.
pub(super) fn is_temporary(name: &str) -> bool {
    [SEGMENT_TEMPORARY, SNAPSHOT_TEMPORARY].iter().any(|family| family.number(name).is_some())
}

/// Whether this is the name of a file with data.
pub(super) fn is_data(name: &str) -> bool {
    segment_number(name).is_some() || snapshot_lsn(name).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_carry_numbers() {
        assert_eq!(segment(0x1f), "log-000000000000001f.seg");
        assert_eq!(segment_number("log-000000000000001f.seg"), Some(0x1f));
        assert_eq!(snapshot_lsn(&snapshot(Lsn::new(0x1f))), Some(Lsn::new(0x1f)));
        let others = [
            "log-1f.seg",
            "log-000000000000001F.seg",
            "log-000000000000001f.tmp",
            "ID",
            "snapshot-1",
            "",
            "log-8000000000000000.seg",
        ];
        for other in others {
            assert!(segment_number(other).is_none() && snapshot_lsn(other).is_none(), "{other}");
        }
        assert!(is_data(&segment(1)) && is_data(&snapshot(Lsn::FIRST)) && !is_data("LOCK"));
        for temporary in [temporary_segment(1), temporary_snapshot(1)] {
            assert!(is_temporary(&temporary) && !is_data(&temporary), "{temporary}");
        }
        assert!(!is_temporary(&segment(1)) && !is_temporary("x.tmp"));
    }
}
