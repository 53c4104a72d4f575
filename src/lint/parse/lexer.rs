//! Turns text into tokens.

use std::borrow::Cow;

use super::SyntaxError;

/// One token. Keywords and punctuation are both symbols.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Token<'a> {
    Name(&'a [u8]),
    Number(&'a [u8]),
    Text(Cow<'a, [u8]>),
    Symbol(&'static str),
    End,
}

const KEYWORDS: [&str; 21] = [
    "and", "break", "do", "else", "elseif", "end", "false", "for", "function", "if", "in", "local", "nil", "not", "or",
    "repeat", "return", "then", "true", "until", "while",
];

/// Where one is a prefix of another, the longer one comes first.
const PUNCTUATION: [&str; 26] = [
    "...", "..", "==", "~=", "<=", ">=", "+", "-", "*", "/", "%", "^", "#", "<", ">", "=", "(", ")", "{", "}", "[",
    "]", ";", ":", ",", ".",
];

/// Reads tokens one by one.
pub(super) struct Lexer<'a> {
    text: &'a [u8],
    at: usize,
    line: u32,
}

impl<'a> Lexer<'a> {
    /// Reads `text` from its start. Skips a first line that begins with `#!`: it is the script's header, which the
    /// server removes before it compiles.
    pub(super) fn new(text: &'a [u8]) -> Lexer<'a> {
        let mut lexer = Lexer { text, at: 0, line: 1 };
        if text.starts_with(b"#!") {
            lexer.skip_while(|byte| byte != b'\n');
        }
        lexer
    }

    /// The current line. After an error it is the line of the error.
    pub(super) fn line(&self) -> u32 {
        self.line
    }

    /// Skips blanks and comments.
    pub(super) fn skip_blanks(&mut self) -> Result<(), SyntaxError> {
        loop {
            match self.rest() {
                [b'\n' | b'\r', ..] => self.pass_line_end(),
                [b' ' | b'\t' | 0x0b | 0x0c, ..] => self.at += 1,
                [b'-', b'-', ..] => self.skip_comment()?,
                _ => return Ok(()),
            }
        }
    }

    /// Reads the token that begins here. Blanks have been skipped.
    pub(super) fn token(&mut self) -> Result<Token<'a>, SyntaxError> {
        let start = self.at;
        let Some(&first) = self.rest().first() else { return Ok(Token::End) };
        if is_name(first) && !first.is_ascii_digit() {
            self.skip_while(is_name);
            let name = &self.text[start..self.at];
            let keyword = KEYWORDS.iter().find(|keyword| keyword.as_bytes() == name);
            return Ok(keyword.map_or(Token::Name(name), |keyword| Token::Symbol(keyword)));
        }
        if first.is_ascii_digit() || first == b'.' && self.rest().get(1).is_some_and(u8::is_ascii_digit) {
            return self.number().map(Token::Number);
        }
        if let b'"' | b'\'' = first {
            return self.quoted(first).map(Token::Text);
        }
        if let Some(level) = self.long_bracket() {
            return self.long_text(level).map(|text| Token::Text(with_plain_line_ends(text)));
        }
        if self.rest().starts_with(b"[=") {
            return Err(self.error("invalid long string delimiter"));
        }
        let symbol = PUNCTUATION.iter().find(|symbol| self.rest().starts_with(symbol.as_bytes()));
        let symbol = symbol.ok_or(self.error("unexpected symbol"))?;
        self.at += symbol.len();
        Ok(Token::Symbol(symbol))
    }

    fn rest(&self) -> &'a [u8] {
        &self.text[self.at..]
    }

    fn error(&self, fault: &'static str) -> SyntaxError {
        SyntaxError { line: self.line, fault }
    }

    /// Skips bytes that `goes_on` accepts. It must refuse line ends, because lines are not counted here.
    fn skip_while(&mut self, goes_on: impl Fn(u8) -> bool) {
        self.at += self.rest().iter().take_while(|&&byte| goes_on(byte)).count();
    }

    /// Skips the line end that begins here.
    fn pass_line_end(&mut self) {
        self.at += line_end(self.rest());
        self.line += 1;
    }

    /// Skips a comment, but not the line end after a short one.
    fn skip_comment(&mut self) -> Result<(), SyntaxError> {
        self.at += 2;
        match self.long_bracket() {
            Some(level) => drop(self.long_text(level)?),
            None => self.skip_while(|byte| !matches!(byte, b'\n' | b'\r')),
        }
        Ok(())
    }

    /// Reads a number. As in Lua, all bytes that may belong to it are read before its form is checked.
    fn number(&mut self) -> Result<&'a [u8], SyntaxError> {
        let start = self.at;
        self.skip_while(|byte| byte.is_ascii_digit() || byte == b'.');
        if let [b'e' | b'E', ..] = self.rest() {
            self.at += 1;
            self.at += usize::from(matches!(self.rest(), [b'+' | b'-', ..]));
        }
        self.skip_while(is_name);
        let number = &self.text[start..self.at];
        if is_number(number) { Ok(number) } else { Err(self.error("malformed number")) }
    }

    /// The level of the long bracket that opens here.
    fn long_bracket(&self) -> Option<usize> {
        let rest = self.rest().strip_prefix(b"[")?;
        let level = rest.iter().take_while(|&&byte| byte == b'=').count();
        (rest.get(level) == Some(&b'[')).then_some(level)
    }

    /// Reads the bytes between long brackets of this level. The opening one begins here.
    fn long_text(&mut self, level: usize) -> Result<&'a [u8], SyntaxError> {
        self.at += level + 2;
        let close = [b"]".as_slice(), &vec![b'='; level], b"]"].concat();
        let rest = self.rest();
        let found = memchr::memmem::find(rest, &close);
        let text = &rest[..found.unwrap_or(rest.len())];
        self.line += std::iter::successors(split_line(text), |(_, rest)| split_line(rest)).count() as u32;
        self.at += text.len();
        if found.is_none() {
            return Err(self.error("unfinished long string or comment"));
        }
        self.at += close.len();
        Ok(text)
    }

    fn quoted(&mut self, quote: u8) -> Result<Cow<'a, [u8]>, SyntaxError> {
        self.at += 1;
        let start = self.at;
        let mut changed: Option<Vec<u8>> = None;
        loop {
            let Some(&byte) = self.rest().first() else { return Err(self.error("unfinished string")) };
            if let b'\n' | b'\r' = byte {
                return Err(self.error("unfinished string"));
            }
            self.at += 1;
            match byte {
                _ if byte == quote => break,
                b'\\' => {
                    let mut text = changed.take().unwrap_or_else(|| self.text[start..self.at - 1].to_vec());
                    text.push(self.escape()?);
                    changed = Some(text);
                }
                _ => changed.iter_mut().for_each(|text| text.push(byte)),
            }
        }
        Ok(changed.map_or(Cow::Borrowed(&self.text[start..self.at - 1]), Cow::Owned))
    }

    /// Reads an escape after its backslash. Returns the byte it denotes.
    fn escape(&mut self) -> Result<u8, SyntaxError> {
        let Some(&byte) = self.rest().first() else { return Err(self.error("unfinished string")) };
        match byte {
            b'\n' | b'\r' => {
                self.pass_line_end();
                return Ok(b'\n');
            }
            b'0'..=b'9' => return self.decimal_escape(),
            _ => self.at += 1,
        }
        Ok(match byte {
            b'a' => 7,
            b'b' => 8,
            b'f' => 12,
            b'n' => b'\n',
            b'r' => b'\r',
            b't' => b'\t',
            b'v' => 11,
            _ => byte,
        })
    }

    /// Reads an escape of up to three digits.
    fn decimal_escape(&mut self) -> Result<u8, SyntaxError> {
        let digits = self.rest().iter().take(3).take_while(|byte| byte.is_ascii_digit());
        let (len, value) = digits.fold((0, 0), |(len, value), digit| (len + 1, value * 10 + u32::from(digit - b'0')));
        self.at += len;
        u8::try_from(value).map_err(|_| self.error("escape sequence too large"))
    }
}

fn is_name(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

/// Whether C's strtod would read all of `text`, which begins with a digit, or with a point and a digit.
fn is_number(text: &[u8]) -> bool {
    let are_digits = |text: &[u8]| !text.is_empty() && text.iter().all(u8::is_ascii_digit);
    if let [b'0', b'x' | b'X', hexadecimal @ ..] = text {
        let (digits, exponent) = split_exponent(hexadecimal, b'p');
        let is_hexadecimal = !digits.is_empty() && digits.iter().all(u8::is_ascii_hexdigit);
        return is_hexadecimal && exponent.is_none_or(are_digits);
    }
    let (digits, exponent) = split_exponent(text, b'e');
    let points = digits.iter().filter(|&&byte| byte == b'.').count();
    let is_decimal = points <= 1 && digits.iter().all(|&byte| byte.is_ascii_digit() || byte == b'.');
    let unsigned =
        |exponent: &[u8]| are_digits(exponent.strip_prefix(b"+").or(exponent.strip_prefix(b"-")).unwrap_or(exponent));
    is_decimal && exponent.is_none_or(unsigned)
}

/// The parts of a number before and after the letter of its exponent.
fn split_exponent(text: &[u8], letter: u8) -> (&[u8], Option<&[u8]>) {
    match text.iter().position(|byte| byte.eq_ignore_ascii_case(&letter)) {
        Some(at) => (&text[..at], Some(&text[at + 1..])),
        None => (text, None),
    }
}

/// Bytes of the line end that `text` begins with, or 0. A pair of `\n` and `\r` in either order is one line end.
fn line_end(text: &[u8]) -> usize {
    match text {
        [b'\n', b'\r', ..] | [b'\r', b'\n', ..] => 2,
        [b'\n' | b'\r', ..] => 1,
        _ => 0,
    }
}

/// The parts before and after the first line end of `text`.
fn split_line(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let at = memchr::memchr2(b'\n', b'\r', text)?;
    Some((&text[..at], &text[at + line_end(&text[at..])..]))
}

/// The value of a long string: without a line end at its start, and with `\n` for each other line end.
fn with_plain_line_ends(text: &[u8]) -> Cow<'_, [u8]> {
    let mut rest = &text[line_end(text)..];
    if memchr::memchr(b'\r', rest).is_none() {
        return Cow::Borrowed(rest);
    }
    let mut value = Vec::with_capacity(rest.len());
    while let Some((line, after)) = split_line(rest) {
        value.extend_from_slice(line);
        value.push(b'\n');
        rest = after;
    }
    value.extend_from_slice(rest);
    Cow::Owned(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tokens(text: &str) -> Vec<(u32, Token<'_>)> {
        let mut lexer = Lexer::new(text.as_bytes());
        let mut found = Vec::new();
        loop {
            lexer.skip_blanks().unwrap();
            let line = lexer.line();
            match lexer.token().unwrap() {
                Token::End => return found,
                token => found.push((line, token)),
            }
        }
    }

    /// The first error in `text`, and the line that the lexer reports.
    fn refusal(text: &[u8]) -> Option<(u32, &'static str)> {
        let mut lexer = Lexer::new(text);
        loop {
            match lexer.skip_blanks().and_then(|()| lexer.token()) {
                Ok(Token::End) => return None,
                Ok(_) => {}
                Err(error) => return Some((error.line, error.fault)),
            }
        }
    }

    #[test]
    fn tokens_know_their_lines() {
        let text = "#!lua\n--[[ a\n]] x = 0x1p3 -- b\n.. [==[\nl]]\n]==] ... 1e+5+.5 'q\\\n\\65\\066\\z C\\'' ~= goto";
        let symbol = |line, symbol| (line, Token::Symbol(symbol));
        let string = |line, text: &'static str| (line, Token::Text(Cow::Borrowed(text.as_bytes())));
        assert_eq!(
            tokens(text),
            [
                (3, Token::Name(b"x")),
                symbol(3, "="),
                (3, Token::Number(b"0x1p3")),
                symbol(4, ".."),
                string(4, "l]]\n"),
                symbol(6, "..."),
                (6, Token::Number(b"1e+5")),
                symbol(6, "+"),
                (6, Token::Number(b".5")),
                string(6, "q\nABz C'"),
                symbol(7, "~="),
                (7, Token::Name(b"goto")),
            ]
        );
    }

    #[test]
    fn two_different_line_end_bytes_are_one_line_end() {
        for (text, line) in [
            ("\n\r x", 2),
            ("\r\n x", 2),
            ("\r x", 2),
            ("\n\n\r\r x", 4),
            ("-- a\r x", 2),
            ("--[=\r\n x", 2),
            ("--[[\n\r\r]] x", 3),
            ("\t\u{b}\u{c} x", 1),
            ("#!lua \r\r\n x", 2),
        ] {
            assert_eq!(tokens(text), [(line, Token::Name(b"x"))], "{text:?}");
        }
    }

    #[test]
    fn strings_have_the_values_that_lua_gives_them() {
        for (text, value) in [
            (r"'\a\b\f\n\r\t\v'", "\u{7}\u{8}\u{c}\n\r\t\u{b}"),
            (r"'\x41\z\u{41}\q\\\''", r"x41zu{41}q\'"),
            (r"'\0\10\0651'", "\0\nA1"),
            ("'a\\\r\nb\\\n\rc\\\rd\\\n'", "a\nb\nc\nd\n"),
            ("[[\n\ra\r\r\nb\r]]", "a\n\nb\n"),
            ("[[\n\na\n]]", "\na\n"),
            ("[=[]]]==]]=]", "]]]==]"),
        ] {
            assert_eq!(tokens(text), [(1, Token::Text(Cow::Borrowed(value.as_bytes())))], "{text:?}");
        }
    }

    #[test]
    fn numbers_are_those_of_strtod() {
        for text in
            ["0", "3.", ".5", "3.25", "1e5", "1E+5", "1.e-05", ".5e0", "007", "0x0", "0XfF", "0x1e5", "0x1p4", "0xAP10"]
        {
            assert_eq!(tokens(text), [(1, Token::Number(text.as_bytes()))], "{text}");
        }
        assert_eq!(tokens("0x1e+1").len(), 3, "signs follow the exponents of decimal numbers only");
        assert_eq!(tokens("0x1.8").len(), 2);
        assert_eq!(tokens("a..1").len(), 3);
        for text in [
            "1x", "1..2", "1.2.3", "1_0", "1e", "1e+", "1e5e5", "0x", "0xg", "0x1p", "0x1p-1", "0x_1", "00x1", "0b1",
            "1LL", "1i", "0.x1", ".5x", "1e+x",
        ] {
            let text = format!("\n{text}\n");
            assert_eq!(refusal(text.as_bytes()), Some((2, "malformed number")), "{text}");
        }
    }

    #[test]
    fn broken_tokens_are_refused_where_the_lexer_gives_up() {
        for (text, refused) in [
            ("'", (1, "unfinished string")),
            ("\n'a\n'", (2, "unfinished string")),
            ("'\\\n\r", (2, "unfinished string")),
            ("'\r'", (1, "unfinished string")),
            ("\"\\", (1, "unfinished string")),
            ("'\\256'", (1, "escape sequence too large")),
            ("'\\\n\\999'", (2, "escape sequence too large")),
            ("[[", (1, "unfinished long string or comment")),
            ("[[\n\n\r\r]=]", (4, "unfinished long string or comment")),
            ("--[==[\n ]=]", (2, "unfinished long string or comment")),
            ("\n[=\n[", (2, "invalid long string delimiter")),
            ("[==", (1, "invalid long string delimiter")),
            ("a[=1]", (1, "invalid long string delimiter")),
            ("@", (1, "unexpected symbol")),
            ("\\", (1, "unexpected symbol")),
            ("~", (1, "unexpected symbol")),
            ("!=", (1, "unexpected symbol")),
            ("\0", (1, "unexpected symbol")),
            ("a\u{e9}", (1, "unexpected symbol")),
            ("\u{feff}a", (1, "unexpected symbol")),
        ] {
            assert_eq!(refusal(text.as_bytes()), Some(refused), "{text:?}");
        }
        for text in ["--[=\n", "--[\n", "--", "'\\255\\0'", "a[a] [ [", "::"] {
            assert_eq!(refusal(text.as_bytes()), None, "{text:?}");
        }
    }
}
