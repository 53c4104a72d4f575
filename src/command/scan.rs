//! What SCAN, HSCAN, SSCAN and ZSCAN have in common: the cursor, the options behind it, and the shape of the answer.
//!
//! A call asks for one step of a walk. What it answers is a cursor for the next step, 0 at the end, and the elements that
//! the step met; every element that is there from the first step to the last is met, see
//! [`SplitTable::scan`](crate::base::split_table::SplitTable::scan).

use crate::base::glob;
use crate::base::limits::SCAN_COUNT_MAX;
use crate::base::num::parse_i64;
use crate::resp::reply::Reply;
use crate::spec::args::Args;
use crate::spec::error::Error;

/// Elements of a step when the call does not say.
const DEFAULT_COUNT: usize = 10;

/// What is walked; it decides which options there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Walk {
    /// The keys of a database, which have types.
    Keys,
    /// A hash, whose values may be left out.
    Hash,
    /// Another collection.
    Members,
}

/// The options of one call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Options<'a> {
    /// Elements to look at, at least 1.
    pub count: usize,
    /// Only what matches this glob.
    pub pattern: Option<&'a [u8]>,
    /// Only keys of the type of this name, in any case.
    pub type_name: Option<&'a [u8]>,
    /// Leave the values out.
    pub no_values: bool,
}

impl<'a> Options<'a> {
    /// Takes all remaining arguments.
    ///
    /// Redis reads the cursor first, then looks at the key (a missing one answers an empty step, whatever follows), then
    /// at the options; so [`cursor`] and this are two functions.
    pub(super) fn parse(args: &mut Args<'a>, walk: Walk) -> Result<Options<'a>, Error> {
        let mut options = Options { count: DEFAULT_COUNT, pattern: None, type_name: None, no_values: false };
        while !args.is_empty() {
            if args.option("count", 1) {
                let count = args.int()?;
                if count < 1 {
                    return Err(Error::Syntax);
                }
                options.count = usize::try_from(count).unwrap_or(usize::MAX).min(SCAN_COUNT_MAX);
            } else if args.option("match", 1) {
                // Everything matches `*`, as it matches no pattern at all.
                options.pattern = Some(args.bytes()?).filter(|pattern| *pattern != b"*");
            } else if walk == Walk::Keys && args.option("type", 1) {
                options.type_name = Some(args.bytes()?);
            } else if args.flag("novalues") {
                if walk != Walk::Hash {
                    return Err(Error::text("ERR NOVALUES option can only be used in HSCAN"));
                }
                options.no_values = true;
            } else {
                return Err(Error::Syntax);
            }
        }
        Ok(options)
    }

    /// Whether an element is wanted by its name.
    #[inline]
    pub(super) fn wants(&self, name: &[u8]) -> bool {
        self.pattern.is_none_or(|pattern| glob::matches(pattern, name))
    }
}

/// Takes the cursor, read as Redis 8 does: an integer must not be negative, and what is none is given to C's `strtoull`, which
/// passes over spaces, and counts from 2^64 down behind a minus.
pub(super) fn cursor(args: &mut Args<'_>) -> Result<u64, Error> {
    read_cursor(args.bytes()?).ok_or(Error::text("ERR invalid cursor"))
}

fn read_cursor(text: &[u8]) -> Option<u64> {
    // C's strings end at the first zero byte.
    let text = text.split(|byte| *byte == 0).next()?;
    if let Some(integer) = parse_i64(text) {
        return u64::try_from(integer).ok();
    }
    let spaces = text.iter().take_while(|byte| matches!(byte, b' ' | b'\t'..=b'\r')).count();
    let text = &text[spaces..];
    let (negative, digits) = match text {
        [b'-', digits @ ..] => (true, digits),
        [b'+', digits @ ..] => (false, digits),
        digits => (false, digits),
    };
    if !digits.first()?.is_ascii_digit() {
        return None;
    }
    // Of digits alone, so that only the range can fail.
    let value: u64 = std::str::from_utf8(digits).ok()?.parse().ok()?;
    Some(if negative { value.wrapping_neg() } else { value })
}

/// Answers one step. `walk` writes the elements and counts what it wrote; it answers the next cursor.
pub(super) fn answer(reply: &mut Reply, walk: impl FnOnce(&mut Reply, &mut usize) -> u64) {
    let start = reply.len();
    let mut written = 0;
    let next = walk(reply, &mut written);
    let end = reply.len();
    // The cursor stands before the elements but is known behind them.
    reply.array(2);
    reply.bulk(itoa::Buffer::new().format(next).as_bytes());
    reply.array(written);
    let head_len = reply.len() - end;
    reply.buffer_mut()[start..].rotate_right(head_len);
}

/// Answers a walk over nothing.
pub(super) fn answer_empty(reply: &mut Reply) {
    answer(reply, |_, _| 0);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resp::reply::Form;
    use crate::resp::request::OwnedArgv;

    #[test]
    fn cursors_are_read_as_c_reads_them() {
        for (text, value) in [
            ("0", Some(0)),
            ("", None),
            ("007", Some(7)),
            ("+5", Some(5)),
            ("-1", None),
            ("-01", Some(u64::MAX)),
            ("-9223372036854775808", None),
            ("-9223372036854775809", Some(9_223_372_036_854_775_807)),
            ("-0", Some(0)),
            ("18446744073709551615", Some(u64::MAX)),
            ("18446744073709551616", None),
            ("-18446744073709551615", Some(1)),
            ("-18446744073709551616", None),
            ("3\0x", Some(3)),
            ("\0", None),
            (" 1", Some(1)),
            ("\r\n\t -0", Some(0)),
            ("- 1", None),
            ("1 ", None),
            ("0x1", None),
            ("+", None),
            ("-", None),
            ("--1", None),
            ("-+1", None),
            ("1.0", None),
            ("a", None),
        ] {
            assert_eq!(read_cursor(text.as_bytes()), value, "{text:?}");
        }
    }

    #[test]
    fn options_belong_to_what_is_walked() {
        fn parse(text: &str, walk: Walk) -> Result<(usize, Option<String>, Option<String>, bool), Error> {
            let mut argv = OwnedArgv::default();
            text.split(' ').for_each(|word| argv.push(word.as_bytes()));
            let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
            Options::parse(&mut Args::new(argv.as_argv(), 1), walk)
                .map(|o| (o.count, o.pattern.map(text), o.type_name.map(text), o.no_values))
        }
        let novalues = Error::text("ERR NOVALUES option can only be used in HSCAN");
        assert_eq!(parse("x", Walk::Members), Ok((10, None, None, false)));
        assert_eq!(parse("x Count 3 MATCH a*", Walk::Members), Ok((3, Some("a*".into()), None, false)));
        assert_eq!(parse("x match a match *", Walk::Members), Ok((10, None, None, false)));
        assert_eq!(parse("x type Set", Walk::Keys), Ok((10, None, Some("Set".into()), false)));
        assert_eq!(parse("x novalues", Walk::Hash), Ok((10, None, None, true)));
        assert_eq!(parse("x novalues", Walk::Members), Err(novalues.clone()));
        assert_eq!(parse("x novalues", Walk::Keys), Err(novalues));
        assert_eq!(parse("x type set", Walk::Hash), Err(Error::Syntax));
        assert_eq!(parse("x count", Walk::Keys), Err(Error::Syntax));
        assert_eq!(parse("x count 0", Walk::Keys), Err(Error::Syntax));
        assert_eq!(parse("x count x", Walk::Keys), Err(Error::NotInteger));
    }

    #[test]
    fn the_cursor_stands_before_the_elements() {
        let mut reply = Reply::new(Form::Resp2);
        reply.ok();
        answer(&mut reply, |reply, written| {
            reply.bulk(b"a");
            *written += 1;
            12
        });
        assert_eq!(reply.as_bytes(), b"+OK\r\n*2\r\n$2\r\n12\r\n*1\r\n$1\r\na\r\n");
    }
}
