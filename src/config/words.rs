//! The words of a line of redis.conf.
//!
//! Words are separated by blanks. "Double quotes" know \n \r \t \a \b \xHH and `\` before any other byte, 'single
//! quotes' only \'.

/// Splits a line into unquoted words; `None` if a quote is not closed, or closed within a word.
pub(super) fn split_line(line: &[u8]) -> Option<Vec<Vec<u8>>> {
    let mut words = Vec::new();
    let mut rest = line.trim_ascii_start();
    while let Some(&first) = rest.first() {
        let mut word = Vec::new();
        rest = match first {
            b'"' => unquote_double(&rest[1..], &mut word)?,
            b'\'' => unquote_single(&rest[1..], &mut word)?,
            _ => {
                let end = rest.iter().position(|byte| byte.is_ascii_whitespace() || matches!(byte, b'"' | b'\''));
                let (plain, rest) = rest.split_at(end.unwrap_or(rest.len()));
                word.extend_from_slice(plain);
                // A quote within a word opens a quoted part of the same word, which must end it.
                match rest.first() {
                    Some(b'"') => unquote_double(&rest[1..], &mut word)?,
                    Some(b'\'') => unquote_single(&rest[1..], &mut word)?,
                    _ => rest,
                }
            }
        };
        if rest.first().is_some_and(|byte| !byte.is_ascii_whitespace()) {
            return None;
        }
        words.push(word);
        rest = rest.trim_ascii_start();
    }
    Some(words)
}

/// Reads up to the closing quote into `word`; returns what follows it.
fn unquote_double<'a>(mut rest: &'a [u8], word: &mut Vec<u8>) -> Option<&'a [u8]> {
    let hex = |byte: u8| char::from(byte).to_digit(16).map(|digit| digit as u8);
    loop {
        rest = match rest {
            [b'"', after @ ..] => return Some(after),
            [b'\\', b'x', high, low, after @ ..] if hex(*high).is_some() && hex(*low).is_some() => {
                word.push(hex(*high)? << 4 | hex(*low)?);
                after
            }
            [b'\\', escaped, after @ ..] => {
                word.push(match escaped {
                    b'n' => b'\n',
                    b'r' => b'\r',
                    b't' => b'\t',
                    b'b' => 0x08,
                    b'a' => 0x07,
                    &other => other,
                });
                after
            }
            [byte, after @ ..] => {
                word.push(*byte);
                after
            }
            [] => return None,
        };
    }
}

/// Does the same as [`unquote_double`] for single quotes.
fn unquote_single<'a>(mut rest: &'a [u8], word: &mut Vec<u8>) -> Option<&'a [u8]> {
    loop {
        rest = match rest {
            [b'\'', after @ ..] => return Some(after),
            [b'\\', b'\'', after @ ..] => {
                word.push(b'\'');
                after
            }
            [byte, after @ ..] => {
                word.push(*byte);
                after
            }
            [] => return None,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_and_quotes_are_split() {
        let split = |line: &str| {
            split_line(line.as_bytes())
                .map(|words| words.iter().map(|word| String::from_utf8_lossy(word).into_owned()).collect::<Vec<_>>())
        };
        assert_eq!(split("a  b\t'c d' \"\""), Some(vec!["a".into(), "b".into(), "c d".into(), String::new()]));
        assert_eq!(split(r"'it\'s \x41'"), Some(vec![r"it's \x41".into()]));
        assert_eq!(split(r#""\q\xzz""#), Some(vec!["qxzz".into()]));
        for line in ["\"a\"b", "'a", "\"a", "'a'\"b\"", "\"a\\"] {
            assert_eq!(split(line), None, "{line}");
        }
    }
}
