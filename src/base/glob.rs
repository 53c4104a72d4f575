//! Glob patterns, as KEYS, SCAN, PSUBSCRIBE and CONFIG GET take them.
//!
//! `*` stands for any run of bytes, `?` for one byte, `[a-z]` for one of a class, `[^a-z]` for one outside of it, and
//! `\` takes the next byte literally. Everything works on bytes. Broken patterns mean what they mean to Redis: a class
//! without `]` ends with the pattern, a lone `\` at the end is itself, and range ends may come in either order and are
//! compared as signed bytes.
//!
//! Every element but `*` takes exactly one byte, so only the last `*` seen can usefully take more. On a mismatch the
//! matcher goes back to it and lets it swallow one more byte. That bounds the work by pattern length times text length,
//! whatever the pattern.

use super::limits::GLOB_MAX_STARS;

/// Whether the whole of `text` matches `pattern`.
#[inline]
pub(crate) fn matches(pattern: &[u8], text: &[u8]) -> bool {
    match_bytes::<false>(pattern, text)
}

/// Does the same as [`matches()`], but ASCII letters match in either case (except escaped ones within a class, as in
/// Redis).
#[inline]
pub(crate) fn matches_nocase(pattern: &[u8], text: &[u8]) -> bool {
    match_bytes::<true>(pattern, text)
}

fn match_bytes<const NOCASE: bool>(pattern: &[u8], text: &[u8]) -> bool {
    let (mut p, mut t) = (0, 0);
    // Where the pattern continues after the last `*`, and where in the text that part is tried.
    let mut retry: Option<(usize, usize)> = None;
    let mut stars = 0;
    while t < text.len() {
        if pattern.get(p) == Some(&b'*') {
            p += 1;
            if p == pattern.len() {
                return true;
            }
            stars += usize::from(pattern[p] != b'*');
            if stars > GLOB_MAX_STARS {
                return false;
            }
            retry = Some((p, t));
            continue;
        }
        match match_one::<NOCASE>(&pattern[p..], text[t]) {
            Some(used) => {
                p += used;
                t += 1;
            }
            None => {
                let Some((after_star, tried)) = retry else { return false };
                retry = Some((after_star, tried + 1));
                (p, t) = (after_star, tried + 1);
            }
        }
    }
    // No byte is left, so only stars can still match. For Redis, the empty text matches `*` but not `**`.
    pattern[p..].iter().all(|&byte| byte == b'*') && (!text.is_empty() || pattern.len() <= 1)
}

/// Matches the first element of `pattern` (not a `*`) against `byte`. Returns the element's length in the pattern, or
/// `None`.
#[inline]
fn match_one<const NOCASE: bool>(pattern: &[u8], byte: u8) -> Option<usize> {
    match *pattern.first()? {
        b'?' => Some(1),
        b'[' => match_class::<NOCASE>(pattern, byte),
        b'\\' if pattern.len() >= 2 => same::<NOCASE>(pattern[1], byte).then_some(2),
        literal => same::<NOCASE>(literal, byte).then_some(1),
    }
}

/// Matches a class, with which `pattern` starts, against `byte`.
fn match_class<const NOCASE: bool>(pattern: &[u8], byte: u8) -> Option<usize> {
    let mut at = 1;
    let negated = pattern.get(at) == Some(&b'^');
    at += usize::from(negated);
    let mut found = false;
    loop {
        match &pattern[at..] {
            [] => break,
            [b']', ..] => {
                at += 1;
                break;
            }
            [b'\\', escaped, ..] => {
                found |= *escaped == byte;
                at += 2;
            }
            [from, b'-', to, ..] => {
                found |= in_range::<NOCASE>(*from, *to, byte);
                at += 3;
            }
            [literal, ..] => {
                found |= same::<NOCASE>(*literal, byte);
                at += 1;
            }
        }
    }
    (found != negated).then_some(at)
}

#[inline]
fn in_range<const NOCASE: bool>(from: u8, to: u8, byte: u8) -> bool {
    let fold = |b: u8| if NOCASE { b.to_ascii_lowercase() as i8 } else { b as i8 };
    // Redis orders the ends before it folds their case.
    let (low, high) = if from as i8 > to as i8 { (to, from) } else { (from, to) };
    (fold(low)..=fold(high)).contains(&fold(byte))
}

#[inline]
fn same<const NOCASE: bool>(a: u8, b: u8) -> bool {
    if NOCASE { a.eq_ignore_ascii_case(&b) } else { a == b }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn each_element_of_a_pattern_matches() {
        let yes: &[(&str, &str)] = &[
            ("", ""),
            ("*", "a"),
            ("*", ""),
            ("a*", "a"),
            ("a***", "a"),
            ("***a", "a"),
            ("h?llo", "hello"),
            ("h*llo", "heeeello"),
            ("h[ae]llo", "hallo"),
            ("h[^e]llo", "hbllo"),
            ("h[a-b]llo", "hbllo"),
            ("[z-a]", "m"),
            (r"\*", "*"),
            (r"a\", r"a\"),
            (r"[\]]", "]"),
            ("[^", "a"),
            ("[a", "a"),
            (r"[\", r"\"),
            ("[a-", "-"),
            ("[a-", "a"),
            ("[^]", "a"),
            ("*a*b*c*", "xxaxxbxxcxx"),
        ];
        for (pattern, text) in yes {
            assert!(matches(pattern.as_bytes(), text.as_bytes()), "{pattern:?} {text:?}");
        }
        let no: &[(&str, &str)] = &[
            ("", "a"),
            ("?", ""),
            ("a*", ""),
            ("**", ""),
            ("[", "["),
            ("[]", "a"),
            ("[]a]", "a"),
            ("h[^e]llo", "hello"),
            ("h?llo", "hllo"),
            ("*ab", "abc"),
            (r"\*", "a"),
        ];
        for (pattern, text) in no {
            assert!(!matches(pattern.as_bytes(), text.as_bytes()), "{pattern:?} {text:?}");
        }
    }

    #[test]
    fn case_folds_where_asked() {
        assert!(matches_nocase(b"MAX[a-c]*", b"maxCLIENTS"));
        assert!(!matches(b"MAX*", b"maxclients"));
        assert!(!matches_nocase(br"[\A]", b"a"));
    }

    #[test]
    fn range_ends_are_signed_bytes() {
        assert!(matches(b"[\x01-\xff]", b"\x00"));
        assert!(!matches(b"[\x01-\xff]", b"\x7f"));
    }

    #[test]
    fn hostile_patterns_stay_cheap() {
        let pattern = b"a*".repeat(5_000);
        let mut text = vec![b'a'; 10_000];
        text.push(b'b');
        assert!(!matches(&[&pattern[..], b"c"].concat(), &text));
    }

    fn naive(pattern: &[u8], text: &[u8]) -> bool {
        match (pattern, text) {
            ([], []) => true,
            ([b'*', rest @ ..], _) => (0..=text.len()).any(|skip| naive(rest, &text[skip..])),
            ([], _) | (_, []) => false,
            ([b'?', rest @ ..], [_, tail @ ..]) => naive(rest, tail),
            ([b'\\', p, rest @ ..], [t, tail @ ..]) => p == t && naive(rest, tail),
            ([p, rest @ ..], [t, tail @ ..]) => p == t && naive(rest, tail),
        }
    }

    proptest! {
        #[test]
        fn equals_plain_backtracking(pattern in r"[ab*?\\]{0,8}", text in r"[ab\\]{1,8}") {
            prop_assert_eq!(matches(pattern.as_bytes(), text.as_bytes()), naive(pattern.as_bytes(), text.as_bytes()));
        }

        #[test]
        fn never_panics(pattern: Vec<u8>, text: Vec<u8>) {
            matches(&pattern, &text);
            matches_nocase(&pattern, &text);
        }
    }
}
