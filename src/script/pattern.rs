//! Lua's patterns, with bounds on the work.
//!
//! LuaJIT's own matcher runs no hook: `('a'):rep(1e5):find('.-.-.-.-b')` would hold the server for hours. This one
//! counts its steps and asks after every [`SCRIPT_PATTERN_TICK_STEPS`] whether to go on. Its recursion is bounded, too.
//! Steps count examined characters: a search in a set of a million characters takes a million steps.
//!
//! Source: the Lua 5.1 reference manual, section 5.4.1. Patterns may contain NUL bytes.

use crate::script::limits::{SCRIPT_PATTERN_MAX_DEPTH, SCRIPT_PATTERN_STEP_BYTES, SCRIPT_PATTERN_TICK_STEPS};

/// The most captures of a pattern.
pub(super) const CAPTURES_MAX: usize = 32;

/// Why matching stopped without a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stop {
    /// The pattern is wrong: Lua's message.
    Malformed(&'static str),
    /// `tick` returned false.
    Interrupted,
}

/// One capture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Capture {
    /// Opened at this byte, and not closed yet.
    Open(usize),
    /// Start and end, in bytes.
    Span(usize, usize),
    /// `()`: a position, from 0.
    Position(usize),
}

/// A pattern applied to a subject.
pub(super) struct Matcher<'a, T> {
    subject: &'a [u8],
    pattern: &'a [u8],
    captures: [Capture; CAPTURES_MAX],
    level: usize,
    depth: usize,
    steps: usize,
    tick: T,
}

type Found = Result<Option<usize>, Stop>;

impl<'a, T: FnMut() -> bool> Matcher<'a, T> {
    /// Returns a matcher that asks `tick` from time to time whether to go on.
    pub(super) fn new(subject: &'a [u8], pattern: &'a [u8], tick: T) -> Matcher<'a, T> {
        Matcher { subject, pattern, captures: [Capture::Open(0); CAPTURES_MAX], level: 0, depth: 0, steps: 0, tick }
    }

    /// Matches the pattern from byte `start` on. Returns the end of the match.
    pub(super) fn match_at(&mut self, start: usize) -> Found {
        self.level = 0;
        self.depth = 0;
        self.run(start, 0)
    }

    /// The captures of the last match.
    pub(super) fn captures(&self) -> &[Capture] {
        &self.captures[..self.level]
    }

    #[inline]
    fn step(&mut self) -> Result<(), Stop> {
        self.steps(1)
    }

    /// Counts `n` steps at once, before or after they are done.
    #[inline]
    fn steps(&mut self, n: usize) -> Result<(), Stop> {
        self.steps = self.steps.saturating_add(n);
        if self.steps >= SCRIPT_PATTERN_TICK_STEPS {
            self.steps = 0;
            if !(self.tick)() {
                return Err(Stop::Interrupted);
            }
        }
        Ok(())
    }

    fn run(&mut self, s: usize, p: usize) -> Found {
        self.depth += 1;
        if self.depth > SCRIPT_PATTERN_MAX_DEPTH {
            return Err(Stop::Malformed("pattern too complex"));
        }
        let found = self.run_unbounded(s, p);
        self.depth -= 1;
        found
    }

    fn run_unbounded(&mut self, mut s: usize, mut p: usize) -> Found {
        loop {
            self.step()?;
            let Some(&item) = self.pattern.get(p) else { return Ok(Some(s)) };
            match (item, self.pattern.get(p + 1).copied()) {
                (b'(', Some(b')')) => return self.open(s, p + 2, Capture::Position(s)),
                (b'(', _) => return self.open(s, p + 1, Capture::Open(s)),
                (b')', _) => return self.close(s, p + 1),
                (b'$', None) => return Ok((s == self.subject.len()).then_some(s)),
                (b'%', Some(b'b')) => {
                    let Some(end) = self.balanced(s, p + 2)? else { return Ok(None) };
                    (s, p) = (end, p + 4);
                    continue;
                }
                (b'%', Some(b'f')) => {
                    let Some(next) = self.frontier(s, p + 2)? else { return Ok(None) };
                    p = next;
                    continue;
                }
                (b'%', Some(digit)) if digit.is_ascii_digit() => {
                    let Some(end) = self.back_reference(s, digit)? else { return Ok(None) };
                    (s, p) = (end, p + 2);
                    continue;
                }
                _ => {}
            }
            let end = self.class_end(p)?;
            // Twice: for the search for its end, and for the byte.
            self.steps((end - p) * 2)?;
            match self.pattern.get(end) {
                Some(b'?') => {
                    if self.single(s, p, end)
                        && let Some(found) = self.run(s + 1, end + 1)?
                    {
                        return Ok(Some(found));
                    }
                    p = end + 1;
                }
                Some(b'*') => return self.longest(s, p, end),
                Some(b'+') => return if self.single(s, p, end) { self.longest(s + 1, p, end) } else { Ok(None) },
                Some(b'-') => return self.shortest(s, p, end),
                _ if self.single(s, p, end) => (s, p) = (s + 1, end),
                _ => return Ok(None),
            }
        }
    }

    fn longest(&mut self, s: usize, p: usize, end: usize) -> Found {
        let mut n = 0;
        while self.single(s + n, p, end) {
            self.steps(end - p)?;
            n += 1;
        }
        loop {
            if let Some(found) = self.run(s + n, end + 1)? {
                return Ok(Some(found));
            }
            if n == 0 {
                return Ok(None);
            }
            n -= 1;
        }
    }

    fn shortest(&mut self, mut s: usize, p: usize, end: usize) -> Found {
        loop {
            if let Some(found) = self.run(s, end + 1)? {
                return Ok(Some(found));
            }
            if !self.single(s, p, end) {
                return Ok(None);
            }
            self.steps(end - p)?;
            s += 1;
        }
    }

    fn open(&mut self, s: usize, p: usize, capture: Capture) -> Found {
        let Some(slot) = self.captures.get_mut(self.level) else {
            return Err(Stop::Malformed("too many captures"));
        };
        *slot = capture;
        self.level += 1;
        let found = self.run(s, p)?;
        if found.is_none() {
            self.level -= 1;
        }
        Ok(found)
    }

    fn close(&mut self, s: usize, p: usize) -> Found {
        let open = self.captures[..self.level].iter().rposition(|capture| matches!(capture, Capture::Open(_)));
        let Some(i) = open else { return Err(Stop::Malformed("invalid pattern capture")) };
        let before = self.captures[i];
        if let Capture::Open(start) = before {
            self.captures[i] = Capture::Span(start, s);
        }
        let found = self.run(s, p)?;
        if found.is_none() {
            self.captures[i] = before;
        }
        Ok(found)
    }

    /// Matches `%bxy`, whose two bytes are at `p`.
    fn balanced(&mut self, s: usize, p: usize) -> Found {
        let (Some(&opening), Some(&closing)) = (self.pattern.get(p), self.pattern.get(p + 1)) else {
            return Err(Stop::Malformed("unbalanced pattern"));
        };
        if self.subject.get(s) != Some(&opening) {
            return Ok(None);
        }
        let mut depth = 1usize;
        for at in s + 1..self.subject.len() {
            self.step()?;
            let byte = self.subject[at];
            if byte == closing {
                depth -= 1;
                if depth == 0 {
                    return Ok(Some(at + 1));
                }
            } else if byte == opening {
                depth += 1;
            }
        }
        Ok(None)
    }

    /// Matches `%f[set]`, whose set is at `p`. Returns the end of the set.
    fn frontier(&mut self, s: usize, p: usize) -> Found {
        if self.pattern.get(p) != Some(&b'[') {
            return Err(Stop::Malformed("missing '[' after '%f' in pattern"));
        }
        let end = self.class_end(p)?;
        self.steps((end - p) * 3)?;
        let before = if s == 0 { 0 } else { self.subject[s - 1] };
        let here = self.subject.get(s).copied().unwrap_or(0);
        Ok((!self.in_set(before, p, end - 1) && self.in_set(here, p, end - 1)).then_some(end))
    }

    fn back_reference(&mut self, s: usize, digit: u8) -> Found {
        let i = usize::from(digit).wrapping_sub(usize::from(b'1'));
        match self.captures().get(i) {
            Some(&Capture::Span(from, to)) => {
                self.steps((to - from) / SCRIPT_PATTERN_STEP_BYTES)?;
                let text = &self.subject[from..to];
                Ok(self.subject[s..].starts_with(text).then_some(s + text.len()))
            }
            // A position has captured an empty text.
            Some(Capture::Position(_)) => Ok(Some(s)),
            _ => Err(Stop::Malformed("invalid capture index")),
        }
    }

    /// The end of the single-byte class at `p`.
    fn class_end(&self, p: usize) -> Result<usize, Stop> {
        match self.pattern[p] {
            b'%' if p + 1 >= self.pattern.len() => Err(Stop::Malformed("malformed pattern (ends with '%')")),
            b'%' => Ok(p + 2),
            b'[' => {
                let missing = Stop::Malformed("malformed pattern (missing ']')");
                let mut at = p + 1;
                if self.pattern.get(at) == Some(&b'^') {
                    at += 1;
                }
                // The first byte of a set is a member even if it is `]`.
                loop {
                    let byte = *self.pattern.get(at).ok_or(missing)?;
                    at += 1;
                    if byte == b'%' && at < self.pattern.len() {
                        at += 1;
                    }
                    if *self.pattern.get(at).ok_or(missing)? == b']' {
                        return Ok(at + 1);
                    }
                }
            }
            _ => Ok(p + 1),
        }
    }

    /// Whether the byte at `s` is in the class from `p` to `end`, exclusive.
    #[inline]
    fn single(&self, s: usize, p: usize, end: usize) -> bool {
        let Some(&byte) = self.subject.get(s) else { return false };
        match self.pattern[p] {
            b'.' => true,
            b'%' => in_class(byte, self.pattern[p + 1]),
            b'[' => self.in_set(byte, p, end - 1),
            literal => literal == byte,
        }
    }

    /// Whether a byte is in the set whose `[` is at `p` and whose `]` is at `end`.
    fn in_set(&self, byte: u8, p: usize, end: usize) -> bool {
        let mut at = p + 1;
        let negated = self.pattern[at] == b'^';
        if negated {
            at += 1;
        }
        while at < end {
            let item = self.pattern[at];
            if item == b'%' && at + 1 < end {
                if in_class(byte, self.pattern[at + 1]) {
                    return !negated;
                }
                at += 2;
            } else if at + 2 < end && self.pattern[at + 1] == b'-' {
                if (item..=self.pattern[at + 2]).contains(&byte) {
                    return !negated;
                }
                at += 3;
            } else {
                if item == byte {
                    return !negated;
                }
                at += 1;
            }
        }
        negated
    }
}

fn in_class(byte: u8, class: u8) -> bool {
    let member = match class.to_ascii_lowercase() {
        b'a' => byte.is_ascii_alphabetic(),
        b'c' => byte.is_ascii_control(),
        b'd' => byte.is_ascii_digit(),
        b'l' => byte.is_ascii_lowercase(),
        b'p' => byte.is_ascii_punctuation(),
        b's' => byte.is_ascii_whitespace() || byte == 0x0b,
        b'u' => byte.is_ascii_uppercase(),
        b'w' => byte.is_ascii_alphanumeric(),
        b'x' => byte.is_ascii_hexdigit(),
        b'z' => byte == 0,
        _ => return class == byte,
    };
    member != class.is_ascii_uppercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn find(subject: &str, pattern: &str) -> Result<Option<(usize, usize)>, Stop> {
        let mut matcher = Matcher::new(subject.as_bytes(), pattern.as_bytes(), || true);
        for start in 0..=subject.len() {
            if let Some(end) = matcher.match_at(start)? {
                return Ok(Some((start, end)));
            }
        }
        Ok(None)
    }

    #[test]
    fn matches_as_lua_does() {
        let cases = [
            ("hello", "l+", Some((2, 4))),
            ("hello", "l-o", Some((2, 5))),
            ("key = value", "(%w+)%s*=%s*(%w+)", Some((0, 11))),
            ("THE (quick) fox", "%((%a+)%)", Some((4, 11))),
            ("a(b(c)d)e", "%b()", Some((1, 8))),
            ("THE (quick) fox", "%f[%a]%a+%f[%A]", Some((0, 3))),
            ("x]y", "[]]", Some((1, 2))),
            ("abcabc", "(abc)%1", Some((0, 6))),
            ("a-z", "[a%-]+", Some((0, 2))),
            ("", "^$", None),
            ("", "$", Some((0, 0))),
        ];
        for (subject, pattern, want) in cases {
            assert_eq!(find(subject, pattern), Ok(want), "{subject} {pattern}");
        }
    }

    #[test]
    fn malformed_patterns_are_refused() {
        for pattern in ["[a", "%", "(x", "%1", "x)", "%bx", "%f", "[^", "[", "[%"] {
            let found = find("xxx", pattern);
            // An unfinished capture is noticed only when captures are read.
            assert!(matches!(found, Err(Stop::Malformed(_))) || pattern == "(x", "{pattern}: {found:?}");
        }
    }

    #[test]
    fn work_and_depth_are_bounded() {
        let subject = "a".repeat(100_000);
        let mut asked = 0;
        let mut matcher = Matcher::new(subject.as_bytes(), b".-.-.-.-b", || {
            asked += 1;
            asked < 3
        });
        assert_eq!(matcher.match_at(0), Err(Stop::Interrupted));
        let pattern = "a?".repeat(300_000);
        assert_eq!(find(&subject, &pattern), Err(Stop::Malformed("pattern too complex")));
    }
}
