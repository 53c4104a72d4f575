//! Shared by SCAN, HSCAN, SSCAN and ZSCAN: the cursor, the options, and the form of the reply.
//!
//! A call makes one step of an iteration. It returns the cursor of the next step, 0 at the end, and the elements of
//! this step. Every element that exists from the first step to the last is returned, see
//! [`SplitTable::scan`](crate::base::split_table::SplitTable::scan).

use crate::base::glob;
use crate::base::num::parse_i64;
use crate::command::limits::SCAN_COUNT_MAX;
use crate::resp::reply::Reply;
use crate::spec::args::Args;
use crate::spec::error::Error;

/// Elements of a step by default.
const DEFAULT_COUNT: usize = 10;

/// The subject of the iteration, which decides the options.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Walk {
    /// The keys of a database, which have types.
    Keys,
    /// A hash, whose values may be omitted.
    Hash,
    /// Another collection.
    Members,
}

/// The options of one call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Options<'a> {
    /// Elements to look at, at least 1.
    pub count: usize,
    /// Return only elements that match this glob.
    pub pattern: Option<&'a [u8]>,
    /// Return only keys of the type with this name, in any case.
    pub type_name: Option<&'a [u8]>,
    /// Omit the values.
    pub no_values: bool,
}

impl<'a> Options<'a> {
    /// Takes all remaining arguments.
    ///
    /// Redis reads the cursor first, then looks up the key (if it is missing, the reply is an empty step, whatever
    /// follows), and only then reads the options. So [`cursor`] is a function of its own.
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
                // `*` matches everything, like no pattern at all.
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

    /// Whether the name of an element matches.
    #[inline]
    pub(super) fn wants(&self, name: &[u8]) -> bool {
        self.pattern.is_none_or(|pattern| glob::matches(pattern, name))
    }
}

/// Takes the cursor, read as in Redis 8: an integer must not be negative, and any other text goes to C's `strtoull`,
/// which skips spaces and wraps a negative number around 2^64.
pub(super) fn cursor(args: &mut Args<'_>) -> Result<u64, Error> {
    read_cursor(args.bytes()?).ok_or(Error::text("ERR invalid cursor"))
}

fn read_cursor(text: &[u8]) -> Option<u64> {
    // A C string ends at the first zero byte.
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
    // Only digits are left, so only the range can fail.
    let value: u64 = std::str::from_utf8(digits).ok()?.parse().ok()?;
    Some(if negative { value.wrapping_neg() } else { value })
}

/// Replies with one step. `walk` writes the elements, counts them, and returns the next cursor.
pub(super) fn answer(reply: &mut Reply, walk: impl FnOnce(&mut Reply, &mut usize) -> u64) {
    let start = reply.len();
    let mut written = 0;
    let next = walk(reply, &mut written);
    let end = reply.len();
    // The cursor comes before the elements but is known only after them.
    reply.array(2);
    reply.bulk(itoa::Buffer::new().format(next).as_bytes());
    reply.array(written);
    let head_len = reply.len() - end;
    reply.buffer_mut()[start..].rotate_right(head_len);
}

/// Replies with a step over nothing.
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
    fn options_depend_on_the_subject() {
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
