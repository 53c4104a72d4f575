//! Replies. Each one is written once, directly in the form that its reader expects.
//!
//! A client that sent HELLO 3 reads RESP3. Every other client reads RESP2, where a map is a flat array, a set is an
//! array, a double is a bulk string and a boolean is a number. A script reads the [`tape`]. A command asks which form
//! applies only where Redis itself returns data of another shape ([`Reply::is_resp3`]).
//!
//! Source: <https://github.com/redis/redis-specifications/blob/master/protocol/RESP3.md>

use std::io::IoSlice;

use super::tape::{self, TapeReader, Token};
use crate::base::num;
use crate::resp::limits::{REPLY_FRAME_BYTES, REPLY_MAX_BYTES, REPLY_PAUSE_BYTES};

/// The reader of a reply, which decides how the reply is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// A client that speaks RESP2.
    Resp2,
    /// A client that speaks RESP3.
    Resp3,
    /// A script under `redis.setresp(2)`.
    Tape2,
    /// A script under `redis.setresp(3)`.
    Tape3,
}

/// The start of an aggregate whose length is not known yet. See [`Reply::begin`].
#[derive(Clone, Copy, Debug)]
#[must_use]
pub struct Mark(usize);

/// A growing buffer of replies in one form.
///
/// One reply can repeat the same large value many times, so the bytes of a reply are bounded
/// ([`fit_longest`](Reply::fit_longest)). If a reply [must fit](Reply::set_must_fit), the part beyond the bound is not
/// written and the reply [is cut](Reply::is_cut); the caller then replaces it with an error.
///
/// A single bound covers the whole buffer. It includes room for the earlier replies of a pipeline, so no command has to
/// set a bound of its own: it says whether its reply must fit, and checks afterwards whether the reply was cut.
#[derive(Debug)]
pub struct Reply {
    buf: Vec<u8>,
    form: Form,
    must_fit: bool,
    is_cut: bool,
    /// The buffer's maximum length in bytes; 0 once something did not fit.
    limit: usize,
    /// The longest string, in bytes, that any reply must have room for. The limit follows from it.
    longest: usize,
}

/// The maximum length of a buffer in which a string of `longest` bytes fits behind earlier replies of the same
/// pipeline.
const fn limit(longest: usize) -> usize {
    let most = if longest > REPLY_MAX_BYTES { longest } else { REPLY_MAX_BYTES };
    most.saturating_add(REPLY_FRAME_BYTES).saturating_add(REPLY_PAUSE_BYTES)
}

impl Reply {
    /// An empty buffer.
    pub fn new(form: Form) -> Reply {
        let (limit, longest) = (limit(REPLY_MAX_BYTES), REPLY_MAX_BYTES);
        Reply { buf: Vec::new(), form, must_fit: false, is_cut: false, limit, longest }
    }

    /// Changes the form of everything written from now on.
    #[inline]
    pub fn set_form(&mut self, form: Form) {
        self.form = form;
    }

    /// The form of the next bytes written.
    #[inline]
    pub fn form(&self) -> Form {
        self.form
    }

    /// Whether the reader understands RESP3's own types.
    #[inline]
    pub fn is_resp3(&self) -> bool {
        matches!(self.form, Form::Resp3 | Form::Tape3)
    }

    /// Bytes written.
    #[inline]
    pub fn len(&self) -> usize {
        self.buf.len()
    }

    /// The text of the error written behind the first `start` bytes, if there is one.
    #[inline]
    pub fn error_from(&self, start: usize) -> Option<&[u8]> {
        let written = self.buf.get(start..)?;
        if self.is_tape() {
            return tape::error_in(written);
        }
        written.strip_prefix(b"-")?.split(|&byte| byte == b'\r').next()
    }

    /// Whether nothing has been written.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.buf.is_empty()
    }

    /// Bounds the buffer so that a string of `longest` bytes fits into any reply. Does nothing if the bound is
    /// unchanged.
    #[inline]
    pub fn fit_longest(&mut self, longest: usize) {
        if longest != self.longest {
            self.bound(longest);
        }
    }

    /// Bounds the next reply to `bytes` bytes, until [`unbound`](Self::unbound).
    #[cold]
    pub fn bound_to(&mut self, bytes: usize) {
        self.limit = self.buf.len().saturating_add(bytes);
    }

    /// Removes the bound that [`bound_to`](Self::bound_to) set.
    #[cold]
    pub fn unbound(&mut self) {
        self.bound(self.longest);
    }

    #[cold]
    fn bound(&mut self, longest: usize) {
        self.longest = longest;
        self.limit = limit(longest);
    }

    #[cfg(test)]
    pub(crate) fn set_limit(&mut self, limit: usize) {
        self.limit = limit;
    }

    /// Announces items that take at least these bytes each. If they fit within the bound, room is reserved. If not, and
    /// the reply must fit, it is cut before they are produced. Looks at no more sizes than it takes to decide.
    #[cold]
    pub fn announce(&mut self, sizes: impl IntoIterator<Item = usize>) {
        let room = self.limit.saturating_sub(self.buf.len());
        let mut bytes = 0;
        for size in sizes {
            bytes += size;
            if bytes > room {
                self.cut();
                return;
            }
        }
        self.buf.reserve(bytes);
    }

    /// Sets whether the current reply must stay within the bound, and returns the previous setting. If it need not, its
    /// writer has to check [`is_long`](Self::is_long).
    #[inline]
    pub fn set_must_fit(&mut self, must_fit: bool) -> bool {
        std::mem::replace(&mut self.must_fit, must_fit)
    }

    /// Whether something did not fit and was left out.
    #[inline]
    pub fn is_cut(&self) -> bool {
        self.is_cut
    }

    /// Removes a reply, cut or not, that began behind the first `start` bytes.
    #[cold]
    pub fn discard_from(&mut self, start: usize) {
        self.is_cut = false;
        self.bound(self.longest);
        self.truncate(start);
    }

    /// Whether the reply has reached its maximum length. A command that may return fewer elements stops here.
    #[inline]
    pub fn is_long(&self) -> bool {
        self.buf.len() >= self.limit
    }

    #[inline]
    fn has_room(&mut self, bytes: usize) -> bool {
        self.buf.len() + bytes <= self.limit || !self.cut()
    }

    /// Called when something would exceed the limit. Returns whether it must be left out.
    #[cold]
    fn cut(&mut self) -> bool {
        if self.must_fit {
            self.is_cut = true;
            self.limit = 0;
        }
        self.must_fit
    }

    /// Drops everything after the first `len` bytes.
    #[inline]
    pub fn truncate(&mut self, len: usize) {
        self.buf.truncate(len);
    }

    /// The bytes written so far.
    #[inline]
    pub fn as_bytes(&self) -> &[u8] {
        &self.buf
    }

    /// The bytes written, for whoever goes on with them.
    pub fn into_bytes(self) -> Vec<u8> {
        self.buf
    }

    /// The buffer itself, for sending it and for raw copies between replies of one form.
    #[inline]
    pub fn buffer_mut(&mut self) -> &mut Vec<u8> {
        &mut self.buf
    }

    /// `OK`.
    #[inline]
    pub fn ok(&mut self) {
        if self.is_tape() {
            return tape::write(&mut self.buf, Token::Status(b"OK"));
        }
        self.buf.extend_from_slice(b"+OK\r\n");
    }

    /// A status. Must hold no line break.
    #[inline]
    pub fn status(&mut self, text: &str) {
        if self.is_tape() {
            return tape::write(&mut self.buf, Token::Status(text.as_bytes()));
        }
        self.line(b'+', text.as_bytes());
    }

    /// A status of arbitrary bytes; line breaks become spaces.
    pub fn status_of(&mut self, text: &[u8]) {
        if !self.is_tape() {
            self.buf.push(b'+');
            self.buf.extend(text.iter().map(|&byte| one_line(byte)));
            return self.buf.extend_from_slice(b"\r\n");
        }
        tape::write(&mut self.buf, Token::Status(text));
        let text_at = self.buf.len() - text.len();
        self.buf[text_at..].iter_mut().for_each(|byte| *byte = one_line(*byte));
    }

    /// An error: its code, a space, the message. Line breaks become spaces, except at the end, where they are dropped.
    pub fn error(&mut self, text: &[u8]) {
        if self.is_tape() {
            return tape::write(&mut self.buf, Token::Error(text));
        }
        let end = text.iter().rposition(|byte| !b"\r\n".contains(byte)).map_or(0, |last| last + 1);
        self.buf.push(b'-');
        self.buf.extend(text[..end].iter().map(|&byte| one_line(byte)));
        self.buf.extend_from_slice(b"\r\n");
    }

    /// An integer.
    #[inline]
    pub fn integer(&mut self, value: i64) {
        if self.is_tape() {
            return tape::write(&mut self.buf, Token::Integer(value));
        }
        // Unlike lengths, integers are often long.
        match value {
            0..100 => self.header(b':', value),
            _ => self.line(b':', itoa::Buffer::new().format(value).as_bytes()),
        }
    }

    /// A name and an integer: one field of a reply that has many. Equivalent to [`bulk`](Self::bulk) followed by
    /// [`integer`](Self::integer), but checks for room only once; where the name is a constant, so are the bytes of the
    /// name and its header.
    #[inline(always)]
    pub fn integer_field(&mut self, name: &'static str, value: i64) {
        let name = name.as_bytes();
        if name.len() >= 100 || self.is_tape() || !self.has_room(name.len()) {
            self.bulk(name);
            return self.integer(value);
        }
        let (tens, ones) = (b'0' + name.len() as u8 / 10, b'0' + name.len() as u8 % 10);
        if tens == b'0' {
            self.field([b'$', ones, b'\r', b'\n'], name, value);
        } else {
            self.field([b'$', tens, ones, b'\r', b'\n'], name, value);
        }
    }

    #[inline(always)]
    fn field<const N: usize>(&mut self, header: [u8; N], name: &[u8], value: i64) {
        if (0..10).contains(&value) {
            append(&mut self.buf, [&header, name, &[b'\r', b'\n', b':', b'0' + value as u8, b'\r', b'\n']]);
        } else {
            append(&mut self.buf, [&header, name, b"\r\n:", itoa::Buffer::new().format(value).as_bytes(), b"\r\n"]);
        }
    }

    /// A byte string.
    #[inline]
    pub fn bulk(&mut self, bytes: &[u8]) {
        if !self.has_room(bytes.len()) {
            return;
        }
        if self.is_tape() {
            return tape::write(&mut self.buf, Token::Bulk(bytes));
        }
        with_header(b'$', bytes.len() as i64, |header| append(&mut self.buf, [header, bytes, b"\r\n"]));
    }

    /// A byte string, for clients only, which never read a tape. `send` is first offered everything written so far
    /// followed by the string. It takes as much as it can from the beginning and returns the number of bytes it took;
    /// only the rest is written.
    pub fn bulk_past(&mut self, bytes: &[u8], send: impl FnOnce(&[IoSlice<'_>]) -> usize) {
        if self.is_tape() || !self.has_room(bytes.len()) {
            return self.bulk(bytes);
        }
        self.header(b'$', bytes.len() as i64);
        let end = b"\r\n";
        let mut sent = send(&[IoSlice::new(&self.buf), IoSlice::new(bytes), IoSlice::new(end)]);
        let before = sent.min(self.buf.len());
        self.buf.drain(..before);
        sent -= before;
        for part in [bytes, end] {
            let gone = sent.min(part.len());
            self.buf.extend_from_slice(&part[gone..]);
            sent -= gone;
        }
    }

    /// An integer as a byte string, as GET returns a counter.
    #[inline]
    pub fn bulk_integer(&mut self, value: i64) {
        let mut digits = itoa::Buffer::new();
        self.bulk(digits.format(value).as_bytes());
    }

    /// A byte string, or a missing value.
    #[inline]
    pub fn bulk_or_null(&mut self, bytes: Option<&[u8]>) {
        match bytes {
            Some(bytes) => self.bulk(bytes),
            None => self.null(),
        }
    }

    /// A missing value.
    #[inline]
    pub fn null(&mut self) {
        match self.form {
            Form::Resp2 => self.buf.extend_from_slice(b"$-1\r\n"),
            Form::Resp3 => self.buf.extend_from_slice(b"_\r\n"),
            Form::Tape2 | Form::Tape3 => tape::write(&mut self.buf, Token::Null),
        }
    }

    /// A missing array.
    #[inline]
    pub fn null_array(&mut self) {
        match self.form {
            Form::Resp2 => self.buf.extend_from_slice(b"*-1\r\n"),
            Form::Resp3 => self.buf.extend_from_slice(b"_\r\n"),
            Form::Tape2 => tape::write(&mut self.buf, Token::NullArray),
            Form::Tape3 => tape::write(&mut self.buf, Token::Null),
        }
    }

    /// The head of an array: `n` elements follow.
    #[inline]
    pub fn array(&mut self, n: usize) {
        // No element takes less than a byte.
        if !self.has_room(n) {
            return;
        }
        if self.is_tape() {
            return tape::write(&mut self.buf, Token::Array(n));
        }
        self.header(b'*', n as i64);
    }

    /// The head of a map: `pairs` keys and values follow, alternating.
    pub fn map(&mut self, pairs: usize) {
        match self.form {
            Form::Resp2 | Form::Tape2 => self.array(pairs * 2),
            Form::Resp3 => self.header(b'%', pairs as i64),
            Form::Tape3 => tape::write(&mut self.buf, Token::Map(pairs)),
        }
    }

    /// The head of a set: `n` members follow.
    pub fn set(&mut self, n: usize) {
        match self.form {
            Form::Resp2 | Form::Tape2 => self.array(n),
            Form::Resp3 => self.header(b'~', n as i64),
            Form::Tape3 => tape::write(&mut self.buf, Token::Set(n)),
        }
    }

    /// The head of a push message: `n` elements follow. An array for RESP2.
    pub fn push(&mut self, n: usize) {
        match self.form {
            Form::Resp3 => self.header(b'>', n as i64),
            _ => self.array(n),
        }
    }

    /// A double: a bulk string for RESP2.
    pub fn double(&mut self, value: f64) {
        match self.form {
            Form::Resp2 | Form::Tape2 => {
                let mut digits = Vec::with_capacity(24);
                num::format_f64(&mut digits, value);
                self.bulk(&digits);
            }
            Form::Resp3 => {
                self.buf.push(b',');
                num::format_f64(&mut self.buf, value);
                self.buf.extend_from_slice(b"\r\n");
            }
            Form::Tape3 => tape::write(&mut self.buf, Token::Double(value)),
        }
    }

    /// A double given by its digits, when there are more of them than a double can hold: a bulk string for RESP2. Must
    /// hold no line break.
    pub fn decimal(&mut self, digits: &[u8]) {
        match self.form {
            Form::Resp2 | Form::Tape2 => self.bulk(digits),
            Form::Resp3 => self.line(b',', digits),
            Form::Tape3 => tape::write(&mut self.buf, Token::Double(num::parse_f64(digits).unwrap_or(f64::NAN))),
        }
    }

    /// A boolean: 1 or 0 for RESP2.
    pub fn boolean(&mut self, value: bool) {
        match self.form {
            Form::Resp2 | Form::Tape2 => self.integer(i64::from(value)),
            Form::Resp3 => self.buf.extend_from_slice(if value { b"#t\r\n" } else { b"#f\r\n" }),
            Form::Tape3 => tape::write(&mut self.buf, Token::Boolean(value)),
        }
    }

    /// A large integer in decimal: a bulk string for RESP2. Line breaks become spaces.
    pub fn big_number(&mut self, digits: &[u8]) {
        match self.form {
            Form::Resp2 | Form::Tape2 => self.bulk(digits),
            Form::Resp3 => {
                self.buf.push(b'(');
                self.buf.extend(digits.iter().map(|&byte| one_line(byte)));
                self.buf.extend_from_slice(b"\r\n");
            }
            Form::Tape3 => tape::write(&mut self.buf, Token::BigNumber(digits)),
        }
    }

    /// A text with a three-letter format such as `txt`: a bulk string for RESP2.
    pub fn verbatim(&mut self, format: &[u8; 3], bytes: &[u8]) {
        if !self.has_room(bytes.len()) {
            return;
        }
        match self.form {
            Form::Resp2 | Form::Tape2 => self.bulk(bytes),
            Form::Resp3 => {
                self.header(b'=', bytes.len() as i64 + 4);
                self.buf.extend_from_slice(format);
                self.buf.push(b':');
                self.buf.extend_from_slice(bytes);
                self.buf.extend_from_slice(b"\r\n");
            }
            Form::Tape3 => tape::write(&mut self.buf, Token::Verbatim(format, bytes)),
        }
    }

    /// The contents of a tape, in this reply's form.
    pub fn tape(&mut self, tape: &[u8]) {
        for token in TapeReader::new(tape) {
            match token {
                Token::Null => self.null(),
                Token::NullArray => self.null_array(),
                Token::Integer(value) => self.integer(value),
                Token::Bulk(bytes) => self.bulk(bytes),
                Token::Status(text) => self.status_of(text),
                Token::Error(text) => self.error(text),
                Token::Array(n) => self.array(n),
                Token::Map(pairs) => self.map(pairs),
                Token::Set(n) => self.set(n),
                Token::Double(value) => self.double(value),
                Token::Boolean(value) => self.boolean(value),
                Token::BigNumber(digits) => self.big_number(digits),
                Token::Verbatim(format, bytes) => {
                    self.verbatim(format.try_into().unwrap_or(b"txt"), bytes);
                }
            }
        }
    }

    /// Begins an aggregate whose length is not known yet. The caller writes its elements and then ends it.
    #[inline]
    pub fn begin(&mut self) -> Mark {
        Mark(self.buf.len())
    }

    /// Ends what began at `mark` as an array of `n` elements.
    pub fn end_array(&mut self, mark: Mark, n: usize) {
        self.splice(mark, |head| head.array(n));
    }

    /// Ends what began at `mark` as a map of `pairs` pairs.
    pub fn end_map(&mut self, mark: Mark, pairs: usize) {
        self.splice(mark, |head| head.map(pairs));
    }

    /// Ends what began at `mark` as a set of `n` members.
    pub fn end_set(&mut self, mark: Mark, n: usize) {
        self.splice(mark, |head| head.set(n));
    }

    /// Puts a head before everything written since `mark`: it is appended at the end, then rotated into place.
    fn splice(&mut self, mark: Mark, write_head: impl FnOnce(&mut Reply)) {
        let end = self.buf.len();
        write_head(self);
        let head_len = self.buf.len() - end;
        self.buf[mark.0..].rotate_right(head_len);
    }

    #[inline]
    fn is_tape(&self) -> bool {
        matches!(self.form, Form::Tape2 | Form::Tape3)
    }

    #[inline]
    fn line(&mut self, kind: u8, text: &[u8]) {
        append(&mut self.buf, [&[kind], text, b"\r\n"]);
    }

    /// A type byte, a number, and the end of the line.
    #[inline]
    fn header(&mut self, kind: u8, value: i64) {
        with_header(kind, value, |header| self.buf.extend_from_slice(header));
    }
}

/// Returns the byte, or a space for a line break.
fn one_line(byte: u8) -> u8 {
    if matches!(byte, b'\r' | b'\n') { b' ' } else { byte }
}

/// Appends the parts one after another, checking for room only once.
#[inline(always)]
fn append<const N: usize>(buf: &mut Vec<u8>, parts: [&[u8]; N]) {
    buf.reserve(parts.iter().map(|part| part.len()).sum());
    let mut end = buf.len();
    for part in parts {
        // SAFETY: room for all parts was reserved behind the bytes already written, and no borrowed part lies in that
        // room.
        unsafe { part.as_ptr().copy_to_nonoverlapping(buf.as_mut_ptr().add(end), part.len()) };
        end += part.len();
    }
    // SAFETY: the parts were just written, and together they fill exactly these bytes of the reserved room.
    unsafe { buf.set_len(end) };
}

/// Calls `write` with a type byte, a number and the end of the line. Nearly all numbers are small, so each short length
/// gets its own inlined copy of a constant size.
#[inline(always)]
fn with_header(kind: u8, value: i64, mut write: impl FnMut(&[u8])) {
    match value {
        0..10 => write(&[kind, b'0' + value as u8, b'\r', b'\n']),
        10..100 => write(&[kind, b'0' + value as u8 / 10, b'0' + value as u8 % 10, b'\r', b'\n']),
        _ => with_long_header(kind, value, &mut write),
    }
}

#[inline(never)]
fn with_long_header(kind: u8, value: i64, write: &mut dyn FnMut(&[u8])) {
    let mut digits = itoa::Buffer::new();
    let digits = digits.format(value).as_bytes();
    let mut header = [0; 32];
    let (kind_at, rest) = header.split_at_mut(1);
    kind_at[0] = kind;
    rest[..digits.len()].copy_from_slice(digits);
    rest[digits.len()..][..2].copy_from_slice(b"\r\n");
    write(&header[..digits.len() + 3]);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(form: Form, write: impl FnOnce(&mut Reply)) -> String {
        let mut reply = Reply::new(form);
        write(&mut reply);
        String::from_utf8_lossy(reply.as_bytes()).into_owned()
    }

    #[test]
    fn bytes_sent_past_a_reply_are_not_written() {
        let whole = "+OK\r\n$12\r\nHello, world\r\n";
        for sent in 0..=whole.len() {
            let mut seen = Vec::new();
            let rest = written(Form::Resp2, |reply| {
                reply.ok();
                reply.bulk_past(b"Hello, world", |parts| {
                    seen = parts.iter().flat_map(|part| part.iter().copied()).collect();
                    sent
                });
            });
            assert_eq!((seen.as_slice(), rest.as_str()), (whole.as_bytes(), &whole[sent..]));
        }
        let tape = |write: fn(&mut Reply)| written(Form::Tape2, write);
        assert_eq!(tape(|reply| reply.bulk_past(b"x", |_| unreachable!())), tape(|reply| reply.bulk(b"x")));
        let cut = written(Form::Resp2, |reply| {
            reply.set_limit(3);
            reply.set_must_fit(true);
            reply.bulk_past(b"Hello", |_| unreachable!());
            assert!(reply.is_cut());
        });
        assert_eq!(cut, "");
    }

    #[test]
    fn each_type_has_two_forms() {
        type Write = fn(&mut Reply);
        let cases: [(Write, &str, &str); 14] = [
            (|r| r.ok(), "+OK\r\n", "+OK\r\n"),
            (|r| r.error(b"ERR a\r\nb"), "-ERR a  b\r\n", "-ERR a  b\r\n"),
            (|r| r.integer(-12), ":-12\r\n", ":-12\r\n"),
            (|r| r.bulk(b"ab"), "$2\r\nab\r\n", "$2\r\nab\r\n"),
            (|r| r.integer_field("ab", 9), "$2\r\nab\r\n:9\r\n", "$2\r\nab\r\n:9\r\n"),
            (|r| r.integer_field("ab", -10), "$2\r\nab\r\n:-10\r\n", "$2\r\nab\r\n:-10\r\n"),
            (|r| r.null(), "$-1\r\n", "_\r\n"),
            (|r| r.null_array(), "*-1\r\n", "_\r\n"),
            (|r| r.map(1), "*2\r\n", "%1\r\n"),
            (|r| r.set(11), "*11\r\n", "~11\r\n"),
            (|r| r.push(3), "*3\r\n", ">3\r\n"),
            (|r| r.double(1.5), "$3\r\n1.5\r\n", ",1.5\r\n"),
            (|r| r.boolean(true), ":1\r\n", "#t\r\n"),
            (|r| r.verbatim(b"txt", b"hi"), "$2\r\nhi\r\n", "=6\r\ntxt:hi\r\n"),
        ];
        for (write, resp2, resp3) in cases {
            assert_eq!(written(Form::Resp2, write), resp2);
            assert_eq!(written(Form::Resp3, write), resp3);
        }
    }

    #[test]
    fn a_tape_is_written_as_the_command_would_have() {
        let write = |r: &mut Reply| {
            r.map(2);
            r.integer_field("f", 3);
            r.bulk(b"k");
            r.array(9);
            r.ok();
            r.error(b"ERR no");
            r.integer(-1);
            r.null();
            r.double(0.5);
            r.boolean(true);
            r.big_number(b"12345678901234567890");
            r.verbatim(b"txt", b"hi");
            r.set(1);
            r.null_array();
        };
        for (form, tape_form) in [(Form::Resp2, Form::Tape2), (Form::Resp3, Form::Tape3)] {
            let mut tape = Reply::new(tape_form);
            write(&mut tape);
            assert_eq!(written(form, |r| r.tape(tape.as_bytes())), written(form, write));
        }
    }

    #[test]
    fn a_reply_ends_at_its_bound() {
        let mut reply = Reply::new(Form::Resp2);
        reply.bulk(&[b'a'; 1_000]);
        let start = reply.len();
        reply.limit = start + 100;
        assert!(!reply.set_must_fit(true));
        reply.bulk(&[b'b'; 60]);
        assert!(!reply.is_long() && !reply.is_cut());
        reply.bulk(&[b'c'; 60]);
        assert!(reply.is_long() && reply.is_cut());
        // Once something has been left out, nothing more is written, however short.
        reply.bulk(b"d");
        assert_eq!(reply.len() - start, 67);
        reply.discard_from(start);
        assert!(reply.len() == start && !reply.is_cut() && !reply.is_long());
        // Elements count before they are written.
        reply.limit = start + 100;
        reply.array(101);
        assert!(reply.is_cut());
        // A reply that need not fit is not cut, but can be seen to be long.
        reply.discard_from(start);
        reply.limit = start + 100;
        assert!(reply.set_must_fit(false));
        reply.bulk(&[b'e'; 200]);
        assert!(reply.is_long() && !reply.is_cut());
        assert!(reply.len() > start + 200);
    }

    #[test]
    fn the_longest_string_fits_after_earlier_replies_of_a_pipeline() {
        let mut reply = Reply::new(Form::Resp2);
        for longest in [REPLY_MAX_BYTES, 3 * REPLY_MAX_BYTES, 1 << 20, usize::MAX] {
            reply.fit_longest(longest);
            let least = longest.max(REPLY_MAX_BYTES).saturating_add(REPLY_PAUSE_BYTES);
            assert!(reply.limit >= least && reply.limit <= least.saturating_add(REPLY_FRAME_BYTES), "{longest}");
        }
    }

    #[test]
    fn a_deferred_length_lands_before_its_elements() {
        let text = written(Form::Resp2, |r| {
            r.integer(7);
            let mark = r.begin();
            (0..12).for_each(|i| r.integer(i));
            r.end_array(mark, 12);
        });
        assert!(text.starts_with(":7\r\n*12\r\n:0\r\n:1\r\n") && text.ends_with(":11\r\n"));
    }

    #[test]
    fn the_tape_carries_types_only_under_resp3() {
        let tokens = |form| {
            let mut reply = Reply::new(form);
            reply.map(1);
            reply.bulk_integer(5);
            reply.double(0.5);
            let tape = reply.as_bytes().to_vec();
            TapeReader::new(&tape).map(|token| format!("{token:?}")).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(tokens(Form::Tape2), "Array(2) Bulk([53]) Bulk([48, 46, 53])");
        assert_eq!(tokens(Form::Tape3), "Map(1) Bulk([53]) Double(0.5)");
    }
}
