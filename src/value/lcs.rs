//! The longest common subsequence of two strings, as LCS returns it.
//!
//! The classic table: cell (i, j) holds the length for the first i bytes of one string and the first j of the other.
//! Walking back from the last cell yields the subsequence from its end. Where two paths are equally long, the walk
//! drops a byte of the second string, as Redis does, so that both find identical matches.

/// The filled table for two strings.
pub(crate) struct Table<'a> {
    a: &'a [u8],
    b: &'a [u8],
    /// Row by row, `b.len() + 1` cells each.
    cells: Vec<u32>,
}

/// Bytes that match without a gap in both strings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Run {
    /// The start in the first string.
    pub a: usize,
    /// The start in the second string.
    pub b: usize,
    /// The length in bytes.
    pub len: usize,
}

impl<'a> Table<'a> {
    /// Compares two strings. `None` if the table would take more than `max_bytes`.
    pub(crate) fn new(a: &'a [u8], b: &'a [u8], max_bytes: usize) -> Option<Table<'a>> {
        let width = b.len() + 1;
        let size = width.checked_mul(a.len() + 1)?;
        if size.checked_mul(size_of::<u32>())? > max_bytes {
            return None;
        }
        let mut cells = vec![0u32; size];
        for (i, byte) in a.iter().enumerate() {
            let (done, row) = cells.split_at_mut((i + 1) * width);
            let above = &done[i * width..];
            for (j, other) in b.iter().enumerate() {
                row[j + 1] = if byte == other { above[j] + 1 } else { row[j].max(above[j + 1]) };
            }
        }
        Some(Table { a, b, cells })
    }

    fn at(&self, i: usize, j: usize) -> u32 {
        self.cells[i * (self.b.len() + 1) + j]
    }

    /// The subsequence's length in bytes.
    pub(crate) fn len(&self) -> usize {
        self.at(self.a.len(), self.b.len()) as usize
    }

    /// The subsequence as runs, the last one first.
    pub(crate) fn runs(&self) -> Vec<Run> {
        let mut runs: Vec<Run> = Vec::new();
        let (mut i, mut j, mut in_run) = (self.a.len(), self.b.len(), false);
        while i > 0 && j > 0 {
            if self.a[i - 1] == self.b[j - 1] {
                (i, j) = (i - 1, j - 1);
                match runs.last_mut() {
                    Some(run) if in_run => *run = Run { a: i, b: j, len: run.len + 1 },
                    _ => runs.push(Run { a: i, b: j, len: 1 }),
                }
                in_run = true;
            } else {
                in_run = false;
                if self.at(i - 1, j) > self.at(i, j - 1) { i -= 1 } else { j -= 1 }
            }
        }
        runs
    }

    /// The subsequence itself.
    pub(crate) fn text(&self) -> Vec<u8> {
        self.runs().iter().rev().flat_map(|run| &self.a[run.a..run.a + run.len]).copied().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_walk_finds_the_runs_from_the_end() {
        let table = Table::new(b"ohmytext", b"mynewtext", 1 << 20).expect("small");
        assert_eq!((table.len(), table.text()), (6, b"mytext".to_vec()));
        assert_eq!(table.runs(), [Run { a: 4, b: 5, len: 4 }, Run { a: 2, b: 0, len: 2 }]);
        assert!(Table::new(b"", b"x", 8).expect("fits").len() == 0);
        assert!(Table::new(b"", b"x", 7).is_none());
    }

    fn longest(a: &[u8], b: &[u8]) -> usize {
        match (a, b) {
            ([x, a @ ..], [y, b @ ..]) if x == y => 1 + longest(a, b),
            ([_, rest_a @ ..], [_, rest_b @ ..]) => longest(rest_a, b).max(longest(a, rest_b)),
            _ => 0,
        }
    }

    fn is_within(part: &[u8], whole: &[u8]) -> bool {
        let mut rest = whole.iter();
        part.iter().all(|byte| rest.any(|other| other == byte))
    }

    proptest! {
        #[test]
        fn the_result_is_as_long_as_by_brute_force(
            a in proptest::collection::vec(0..3u8, 0..9), b in proptest::collection::vec(0..3u8, 0..9)
        ) {
            let table = Table::new(&a, &b, 1 << 20).expect("small");
            let text = table.text();
            prop_assert_eq!(table.len(), longest(&a, &b));
            prop_assert_eq!(table.len(), text.len());
            prop_assert!(is_within(&text, &a) && is_within(&text, &b));
            for run in table.runs() {
                prop_assert_eq!(&a[run.a..run.a + run.len], &b[run.b..run.b + run.len]);
            }
        }
    }
}
