//! The text of a script as the debugger shows it. `->#12  return x` is the current line, 12, and has a breakpoint.

use std::collections::BTreeSet;

use crate::script::limits::DEBUG_BREAKPOINTS_MAX;

/// A script's lines, numbered from 1.
pub(super) struct Listing<'a> {
    lines: Vec<&'a [u8]>,
    /// Numbers of the lines with breakpoints.
    breakpoints: BTreeSet<usize>,
    /// The current line.
    pub(super) current: usize,
}

/// Why a breakpoint was refused.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    /// The script has no such line.
    NoSuchLine,
    /// There are already [`DEBUG_BREAKPOINTS_MAX`] breakpoints.
    TooMany,
}

impl<'a> Listing<'a> {
    /// Splits `source` into lines. A line break at its end begins no further line.
    pub(super) fn new(source: &'a [u8]) -> Listing<'a> {
        let source = source.strip_suffix(b"\n").unwrap_or(source);
        Listing { lines: source.split(|&byte| byte == b'\n').collect(), breakpoints: BTreeSet::new(), current: 0 }
    }

    /// Whether this line has a breakpoint.
    pub(super) fn stops_at(&self, number: usize) -> bool {
        self.breakpoints.contains(&number)
    }

    /// Returns one line with its marks.
    pub(super) fn line(&self, number: usize) -> Vec<u8> {
        let text = number.checked_sub(1).and_then(|index| self.lines.get(index)).copied();
        let arrow = if number == self.current { "->" } else { "  " };
        let hash = if self.stops_at(number) { '#' } else { ' ' };
        let mut line = format!("{arrow}{hash}{number:<3} ").into_bytes();
        line.extend_from_slice(text.unwrap_or(b"<there is no such line>"));
        line
    }

    /// Returns a line with up to `context` lines before it and after it.
    pub(super) fn around(&self, number: usize, context: usize) -> impl Iterator<Item = Vec<u8>> + use<'_, 'a> {
        let first = number.saturating_sub(context).max(1);
        let last = number.saturating_add(context).min(self.lines.len());
        (first..=last).map(|number| self.line(number))
    }

    /// Returns all lines with a breakpoint.
    pub(super) fn breakpoints(&self) -> impl ExactSizeIterator<Item = Vec<u8>> {
        self.breakpoints.iter().map(|&number| self.line(number))
    }

    /// Sets a breakpoint. Does nothing if the line has one.
    pub(super) fn set_breakpoint(&mut self, number: usize) -> Result<(), Refusal> {
        if !(1..=self.lines.len()).contains(&number) {
            return Err(Refusal::NoSuchLine);
        }
        if self.breakpoints.len() == DEBUG_BREAKPOINTS_MAX && !self.stops_at(number) {
            return Err(Refusal::TooMany);
        }
        self.breakpoints.insert(number);
        Ok(())
    }

    /// Removes a breakpoint; false if there is none.
    pub(super) fn remove_breakpoint(&mut self, number: usize) -> bool {
        self.breakpoints.remove(&number)
    }

    /// Removes all breakpoints.
    pub(super) fn clear_breakpoints(&mut self) {
        self.breakpoints.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(lines: impl Iterator<Item = Vec<u8>>) -> Vec<String> {
        lines.map(|line| String::from_utf8(line).expect("the script is text")).collect()
    }

    #[test]
    fn lines_are_numbered_and_marked() {
        let mut listing = Listing::new(b"local x = 1\n\nreturn x\n");
        listing.current = 3;
        assert_eq!(listing.set_breakpoint(1), Ok(()));
        assert_eq!(text(listing.around(2, 5)), ["  #1   local x = 1", "   2   ", "-> 3   return x"]);
        assert_eq!(text(listing.around(3, 0)), ["-> 3   return x"]);
        assert_eq!(text(listing.around(100, 5)), Vec::<String>::new());
        assert_eq!(text(listing.around(usize::MAX, usize::MAX)).len(), 3);
        assert_eq!(text(std::iter::once(listing.line(4))), ["   4   <there is no such line>"]);
        assert_eq!(text(Listing::new(b"").around(1, 5)), ["   1   "]);
    }

    #[test]
    fn breakpoints_belong_to_lines_and_are_bounded() {
        let source = "\n".repeat(DEBUG_BREAKPOINTS_MAX + 2);
        let mut listing = Listing::new(source.as_bytes());
        for number in [0, DEBUG_BREAKPOINTS_MAX + 3] {
            assert_eq!(listing.set_breakpoint(number), Err(Refusal::NoSuchLine));
        }
        for number in 1..=DEBUG_BREAKPOINTS_MAX {
            assert_eq!(listing.set_breakpoint(number), Ok(()));
        }
        assert_eq!(listing.set_breakpoint(1), Ok(()), "it is there already");
        assert_eq!(listing.set_breakpoint(DEBUG_BREAKPOINTS_MAX + 1), Err(Refusal::TooMany));
        assert!(listing.remove_breakpoint(2) && !listing.remove_breakpoint(2));
        assert_eq!(listing.breakpoints().len(), DEBUG_BREAKPOINTS_MAX - 1);
        listing.clear_breakpoints();
        assert!(!listing.stops_at(1));
    }
}
