//! Text to tokens.

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

const KEYWORDS: [&str; 22] = [
    "and", "break", "do", "else", "elseif", "end", "false", "for", "function", "goto", "if", "in", "local", "nil",
    "not", "or", "repeat", "return", "then", "true", "until", "while",
];

/// The longest first where one begins another.
const PUNCTUATION: [&str; 28] = [
    "...", "..", "==", "~=", "<=", ">=", "::", "+", "-", "*", "/", "%", "^", "#", "<", ">", "=", "(", ")", "{", "}",
    "[", "]", ";", ":", ",", ".", "~",
];

/// Reads tokens one by one.
pub(super) struct Lexer<'a> {
    text: &'a [u8],
    at: usize,
    line: u32,
}

impl<'a> Lexer<'a> {
    /// Reads `text` from its start. A first line that begins with `#!` is passed over.
    pub(super) fn new(text: &'a [u8]) -> Lexer<'a> {
        let mut lexer = Lexer { text, at: 0, line: 1 };
        if text.starts_with(b"#!") {
            lexer.skip_while(|byte| byte != b'\n');
        }
        lexer
    }

    /// The line where the next token is looked for, or where the last one ended.
    pub(super) fn line(&self) -> u32 {
        self.line
    }

    /// Passes over blanks and comments.
    pub(super) fn skip_blanks(&mut self) -> Result<(), SyntaxError> {
        loop {
            self.skip_while(|byte| byte.is_ascii_whitespace() || byte == 0x0b);
            if !self.rest().starts_with(b"--") {
                return Ok(());
            }
            self.at += 2;
            match self.long_bracket() {
                Some(level) => drop(self.long_text(level)?),
                None => self.skip_while(|byte| byte != b'\n'),
            }
        }
    }

    /// The token that begins here, behind the blanks.
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
            return Ok(Token::Number(self.number()));
        }
        if let b'"' | b'\'' = first {
            return self.quoted(first).map(Token::Text);
        }
        if let Some(level) = self.long_bracket() {
            return self.long_text(level).map(|text| Token::Text(Cow::Borrowed(text)));
        }
        let symbol = PUNCTUATION.iter().find(|symbol| self.rest().starts_with(symbol.as_bytes()));
        let symbol = symbol.ok_or(self.error("unexpected character"))?;
        self.at += symbol.len();
        Ok(Token::Symbol(symbol))
    }

    fn rest(&self) -> &'a [u8] {
        &self.text[self.at..]
    }

    fn error(&self, fault: &'static str) -> SyntaxError {
        SyntaxError { line: self.line, fault }
    }

    fn skip_while(&mut self, goes_on: impl Fn(u8) -> bool) {
        while let Some(&byte) = self.rest().first().filter(|&&byte| goes_on(byte)) {
            self.line += u32::from(byte == b'\n');
            self.at += 1;
        }
    }

    /// Digits, letters and points, and the signs of exponents: its form was checked by who compiled it.
    fn number(&mut self) -> &'a [u8] {
        let start = self.at;
        let is_hex = self.rest().get(1).is_some_and(|byte| byte.eq_ignore_ascii_case(&b'x'));
        let exponent = if is_hex { b'p' } else { b'e' };
        while let Some(&byte) = self.rest().first() {
            let follows_exponent = self.at > start && self.text[self.at - 1].eq_ignore_ascii_case(&exponent);
            if !(is_name(byte) || byte == b'.' || matches!(byte, b'+' | b'-') && follows_exponent) {
                break;
            }
            self.at += 1;
        }
        &self.text[start..self.at]
    }

    /// The level of the long bracket that opens here.
    fn long_bracket(&self) -> Option<usize> {
        let rest = self.rest().strip_prefix(b"[")?;
        let level = rest.iter().take_while(|&&byte| byte == b'=').count();
        (rest.get(level) == Some(&b'[')).then_some(level)
    }

    /// What stands between long brackets of this level, the first of which opens here.
    fn long_text(&mut self, level: usize) -> Result<&'a [u8], SyntaxError> {
        self.at += level + 2;
        let close = [b"]".as_slice(), &vec![b'='; level], b"]"].concat();
        let text = self.rest();
        let len = memchr::memmem::find(text, &close).ok_or(self.error("unfinished long string or comment"))?;
        let text = &text[..len];
        self.line += memchr::memchr_iter(b'\n', text).count() as u32;
        self.at += len + close.len();
        Ok(text.strip_prefix(b"\r\n").or(text.strip_prefix(b"\n")).unwrap_or(text))
    }

    fn quoted(&mut self, quote: u8) -> Result<Cow<'a, [u8]>, SyntaxError> {
        self.at += 1;
        let start = self.at;
        let mut changed: Option<Vec<u8>> = None;
        loop {
            let Some(&byte) = self.rest().first() else { return Err(self.error("unfinished string")) };
            self.at += 1;
            match byte {
                _ if byte == quote => break,
                b'\n' => return Err(self.error("unfinished string")),
                b'\\' => {
                    let mut text = changed.take().unwrap_or_else(|| self.text[start..self.at - 1].to_vec());
                    self.escape(&mut text)?;
                    changed = Some(text);
                }
                _ => changed.iter_mut().for_each(|text| text.push(byte)),
            }
        }
        Ok(changed.map_or(Cow::Borrowed(&self.text[start..self.at - 1]), Cow::Owned))
    }

    /// Reads what follows a backslash.
    fn escape(&mut self, out: &mut Vec<u8>) -> Result<(), SyntaxError> {
        let Some(&byte) = self.rest().first() else { return Err(self.error("unfinished string")) };
        self.at += 1;
        match byte {
            b'a' => out.push(7),
            b'b' => out.push(8),
            b'f' => out.push(12),
            b'n' => out.push(b'\n'),
            b'r' => out.push(b'\r'),
            b't' => out.push(b'\t'),
            b'v' => out.push(11),
            b'x' => out.push(self.digits(2, 16) as u8),
            b'z' => self.skip_while(|byte| byte.is_ascii_whitespace()),
            b'0'..=b'9' => {
                self.at -= 1;
                out.push(self.digits(3, 10) as u8);
            }
            _ => {
                self.line += u32::from(byte == b'\n');
                out.push(byte);
            }
        }
        Ok(())
    }

    /// A number of at most so many digits.
    fn digits(&mut self, most: usize, radix: u32) -> u32 {
        let mut value = 0;
        for _ in 0..most {
            let Some(digit) = self.rest().first().and_then(|&byte| char::from(byte).to_digit(radix)) else { break };
            value = value * radix + digit;
            self.at += 1;
        }
        value
    }
}

fn is_name(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || byte >= 0x80
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

    #[test]
    fn tokens_know_their_lines() {
        let text =
            "#!lua\n--[[ a\n]] x = 0x1p-3 -- b\n.. [==[\nl]]\n]==] ... 1e+5+.5 'q\\\n\\65\\x42\\z  \n C\\'' ~= goto";
        let symbol = |line, symbol| (line, Token::Symbol(symbol));
        let string = |line, text: &'static str| (line, Token::Text(Cow::Borrowed(text.as_bytes())));
        assert_eq!(
            tokens(text),
            [
                (3, Token::Name(b"x")),
                symbol(3, "="),
                (3, Token::Number(b"0x1p-3")),
                symbol(4, ".."),
                string(4, "l]]\n"),
                symbol(6, "..."),
                (6, Token::Number(b"1e+5")),
                symbol(6, "+"),
                (6, Token::Number(b".5")),
                string(6, "q\nABC'"),
                symbol(8, "~="),
                symbol(8, "goto"),
            ]
        );
    }

    #[test]
    fn what_is_not_finished_is_refused() {
        for text in ["'", "'\n'", "\"\\", "[[", "--[==[ ]=]", "@", "\\"] {
            let mut lexer = Lexer::new(text.as_bytes());
            assert!(lexer.skip_blanks().and_then(|()| lexer.token()).is_err(), "{text}");
        }
    }
}
