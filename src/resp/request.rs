//! Requests. A command is a list of byte strings that borrow from the read buffer.
//!
//! A client sends either a RESP array of bulk strings (`*2\r\n$3\r\nGET\r\n$1\r\nk\r\n`) or, from a terminal, one
//! inline line (`GET k\r\n`). [`Decoder`] reads one command at a time and is resumable: when the buffer ends in the
//! middle of a command, the decoder remembers its position. A command of a million arguments that arrives in small
//! pieces is therefore parsed once, not once per piece. Arguments are not copied, except those of an inline line, which
//! may hold escapes and is unfolded into a scratch buffer.
//!
//! Source: <https://redis.io/docs/latest/develop/reference/protocol-spec/>; error texts and limits are those of Redis
//! 7.

use std::borrow::Cow;
use std::ops::Index;

use crate::base::fit::fit;
use crate::resp::limits::{
    INLINE_MAX_BYTES, MULTIBULK_MAX_ARGS, UNAUTHENTICATED_MAX_ARGS, UNAUTHENTICATED_MAX_BULK_BYTES,
};

/// The position of one argument in its buffer. Offsets are 32-bit: a command never exceeds
/// [`QUERY_BUFFER_HARD_MAX_BYTES`](crate::base::limits::QUERY_BUFFER_HARD_MAX_BYTES), which is below 4 GiB.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Span {
    /// First byte.
    pub start: u32,
    /// Length in bytes.
    pub len: u32,
}

impl Span {
    /// The span of `len` bytes from `start`.
    #[inline]
    pub fn new(start: usize, len: usize) -> Span {
        debug_assert!(start + len <= u32::MAX as usize);
        Span { start: start as u32, len: len as u32 }
    }
}

/// The largest overhead on the wire, in bytes, of one argument, and also of the argument count.
const HEAD_MAX_BYTES: usize = 32;

/// The arguments of one command, its name included at index 0.
#[derive(Clone, Copy)]
pub struct Argv<'a> {
    buf: &'a [u8],
    spans: &'a [Span],
}

impl<'a> Argv<'a> {
    /// The arguments at `spans` of `buf`. Every span must lie inside `buf`.
    #[inline]
    pub fn new(buf: &'a [u8], spans: &'a [Span]) -> Argv<'a> {
        Argv { buf, spans }
    }

    /// The number of arguments, including the name.
    #[inline]
    pub fn len(&self) -> usize {
        self.spans.len()
    }

    /// Whether there are no arguments, not even a name.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.spans.is_empty()
    }

    /// The total length of all arguments, in bytes.
    #[inline]
    pub fn bytes(&self) -> usize {
        self.spans.iter().map(|span| span.len as usize).sum()
    }

    /// Whether all arguments together have at most `bytes` bytes.
    #[inline]
    pub fn fit_into(&self, bytes: usize) -> bool {
        // Arguments lie side by side in the buffer, so its length nearly always settles this without a sum.
        self.buf.len() <= bytes || self.bytes() <= bytes
    }

    /// The size of the command on the wire, in bytes, as an array of bulk strings.
    pub fn encoded_bytes(&self) -> usize {
        // The type byte, the number and its line end. An argument adds a line end of its own.
        let head = |number: usize| 3 + number.checked_ilog10().map_or(1, |power| power as usize + 1);
        head(self.len()) + self.iter().map(|arg| head(arg.len()) + arg.len() + 2).sum::<usize>()
    }

    /// Whether the command may take `bytes` bytes on the wire. An estimate that does not visit each argument: it may be
    /// true too often, but never false by mistake.
    #[inline]
    pub fn may_take(&self, bytes: usize) -> bool {
        self.buf.len() + self.spans.len() * HEAD_MAX_BYTES + HEAD_MAX_BYTES >= bytes
    }

    /// Argument `i`, or `None` past the end.
    #[inline]
    pub fn get(&self, i: usize) -> Option<&'a [u8]> {
        let span = self.spans.get(i)?;
        let start = span.start as usize;
        self.buf.get(start..start + span.len as usize)
    }

    /// All arguments in order.
    #[inline]
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &'a [u8]> + Clone + use<'a> {
        let buf = self.buf;
        self.spans.iter().map(move |span| &buf[span.start as usize..(span.start + span.len) as usize])
    }

    /// The arguments from `first` on, as a command of its own. Empty if `first` is past the end.
    #[inline]
    pub fn skip(&self, first: usize) -> Argv<'a> {
        Argv { buf: self.buf, spans: self.spans.get(first..).unwrap_or(&[]) }
    }

    /// `n` arguments from `first` on, or fewer if the command ends before.
    #[inline]
    pub fn slice(&self, first: usize, n: usize) -> Argv<'a> {
        let rest = self.spans.get(first..).unwrap_or(&[]);
        Argv { buf: self.buf, spans: &rest[..n.min(rest.len())] }
    }
}

impl Index<usize> for Argv<'_> {
    type Output = [u8];

    #[inline]
    fn index(&self, i: usize) -> &[u8] {
        let span = self.spans[i];
        &self.buf[span.start as usize..(span.start + span.len) as usize]
    }
}

/// An owned command: queued by MULTI, or parked while it waits for a key.
#[derive(Clone, Debug, Default)]
pub struct OwnedArgv {
    buf: Vec<u8>,
    spans: Vec<Span>,
}

/// Returns the bytes unchanged, or the first `max_bytes` of them and the number of those omitted. Keeps a client's long
/// text from being stored whole.
pub fn abridge(bytes: &[u8], max_bytes: usize) -> Cow<'_, [u8]> {
    match bytes.split_at_checked(max_bytes) {
        Some((first, rest)) if !rest.is_empty() => {
            Cow::Owned([first, format!("... ({} more bytes)", rest.len()).as_bytes()].concat())
        }
        _ => Cow::Borrowed(bytes),
    }
}

impl OwnedArgv {
    /// Copies a borrowed command.
    pub fn from_argv(argv: Argv<'_>) -> OwnedArgv {
        let bytes = argv.iter().map(<[u8]>::len).sum();
        let mut owned = OwnedArgv { buf: Vec::with_capacity(bytes), spans: Vec::with_capacity(argv.len()) };
        argv.iter().for_each(|arg| owned.push(arg));
        owned
    }

    /// Copies the beginning of a borrowed command: at most `max_args` arguments of at most `max_bytes` each. Wherever
    /// something is left out, the end of the copy says how much.
    pub fn abridged(argv: Argv<'_>, max_args: usize, max_bytes: usize) -> OwnedArgv {
        OwnedArgv::abridged_as(argv, max_args, max_bytes, |_| None)
    }

    /// Like [`abridged`](Self::abridged), with some arguments replaced: `instead` gives the replacement by index.
    pub fn abridged_as(
        argv: Argv<'_>,
        max_args: usize,
        max_bytes: usize,
        instead: impl Fn(usize) -> Option<&'static [u8]>,
    ) -> OwnedArgv {
        let mut owned = OwnedArgv::default();
        let kept = if argv.len() > max_args { max_args - 1 } else { argv.len() };
        for (index, arg) in argv.iter().take(kept).enumerate() {
            owned.push(&abridge(instead(index).unwrap_or(arg), max_bytes));
        }
        if kept < argv.len() {
            owned.push(format!("... ({} more arguments)", argv.len() - kept).as_bytes());
        }
        // The copy is kept for long.
        fit(&mut owned.buf);
        fit(&mut owned.spans);
        owned
    }

    /// Appends one argument.
    #[inline]
    pub fn push(&mut self, arg: &[u8]) {
        self.spans.push(Span::new(self.buf.len(), arg.len()));
        self.buf.extend_from_slice(arg);
    }

    /// The borrowed form.
    #[inline]
    pub fn as_argv(&self) -> Argv<'_> {
        Argv::new(&self.buf, &self.spans)
    }

    /// Bytes used by the arguments and their spans.
    pub fn bytes(&self) -> usize {
        self.buf.len() + self.spans.len() * size_of::<Span>()
    }
}

/// A client's mistake on the wire. The connection gets this error and is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProtocolError {
    /// The first line gives no acceptable number of arguments.
    #[error("Protocol error: invalid multibulk length")]
    MultibulkLength,
    /// A client that has not authenticated declares more than 10 arguments.
    #[error("Protocol error: unauthenticated multibulk length")]
    UnauthenticatedMultibulkLength,
    /// An argument that does not begin with `$`.
    #[error("Protocol error: expected '$', got '{0}'")]
    ExpectedBulk(char),
    /// A negative, unreadable or too large argument length.
    #[error("Protocol error: invalid bulk length")]
    BulkLength,
    /// A client that has not authenticated declares an argument of more than 16 KiB.
    #[error("Protocol error: unauthenticated bulk length")]
    UnauthenticatedBulkLength,
    /// 64 KiB without the end of the line that counts the arguments.
    #[error("Protocol error: too big mbulk count string")]
    CountLine,
    /// 64 KiB without the end of the line that gives an argument's length.
    #[error("Protocol error: too big bulk count string")]
    BulkLine,
    /// 64 KiB of inline command without a newline.
    #[error("Protocol error: too big inline request")]
    InlineLine,
    /// An inline command that opens a quote and never closes it.
    #[error("Protocol error: unbalanced quotes in request")]
    Quotes,
}

/// The bounds on a request. All of them are lengths in bytes or counts.
#[derive(Clone, Copy, Debug)]
pub struct RequestLimits {
    /// `proto-max-bulk-len`: the longest argument.
    pub bulk_bytes: usize,
    /// Whether the client has yet to authenticate. Far smaller limits then apply.
    pub unauthenticated: bool,
}

/// The number of spans whose memory is kept from one command to the next.
const SPANS_KEPT: usize = 1024;

/// Reads commands from a byte buffer, one at a time. See the module's header.
#[derive(Debug, Default)]
pub struct Decoder {
    spans: Vec<Span>,
    /// Unfolded arguments of an inline command.
    inline: Vec<u8>,
    is_inline: bool,
    /// Arguments of the current command that have not been read yet.
    missing: usize,
    /// Length of the argument whose length line was read but whose bytes have not all arrived.
    bulk_bytes: Option<usize>,
    /// The position at which reading continues.
    position: usize,
    /// The start of the command being read.
    start: usize,
}

impl Decoder {
    /// A decoder at the start of a buffer.
    pub fn new() -> Decoder {
        Decoder::default()
    }

    /// Continues reading. `Ok(true)`: a whole command has been read, see [`argv`](Self::argv); empty lines and empty
    /// arrays are skipped. `Ok(false)`: the buffer ended first.
    pub fn decode(&mut self, buf: &[u8], limits: &RequestLimits) -> Result<bool, ProtocolError> {
        loop {
            if self.missing == 0 {
                self.spans.clear();
                self.start = self.position;
                match buf.get(self.position) {
                    None => return Ok(false),
                    Some(b'*') => {
                        if !self.read_count(buf, limits)? {
                            return Ok(false);
                        }
                        if self.missing == 0 {
                            continue;
                        }
                    }
                    Some(_) => match self.read_inline(buf)? {
                        None => return Ok(false),
                        Some(0) => continue,
                        Some(_) => return Ok(true),
                    },
                }
            }
            return self.read_bulks(buf, limits);
        }
    }

    /// Reads a command that is in the buffer as a whole and in which no number has more than two digits, as is true of
    /// nearly all. The positions of its arguments are appended to `spans`. `false` changes nothing and decides nothing:
    /// [`decode`](Self::decode) has to be tried then.
    #[inline]
    pub fn decode_short(&mut self, buf: &[u8], limits: &RequestLimits, spans: &mut Vec<Span>) -> bool {
        // Numbers of two digits are within every limit except those of clients that have not logged in.
        if self.missing > 0 || limits.unauthenticated {
            return false;
        }
        let first = spans.len();
        let next = read_short(buf, self.position, spans);
        match next {
            Some(next) => self.position = next,
            None => spans.truncate(first),
        }
        next.is_some()
    }

    /// The command that [`decode`](Self::decode) just completed.
    #[inline]
    pub fn argv<'a>(&'a self, buf: &'a [u8]) -> Argv<'a> {
        Argv::new(if self.is_inline { &self.inline } else { buf }, &self.spans)
    }

    /// Goes back to the start of a command that was decoded but not run.
    pub fn rewind_to(&mut self, position: usize) {
        self.position = position;
        self.missing = 0;
        self.bulk_bytes = None;
    }

    /// Whether the last command was an inline one, whose arguments lie in the decoder itself.
    #[inline]
    pub fn is_inline(&self) -> bool {
        self.is_inline
    }

    /// The spans of the command that was just completed.
    #[inline]
    pub fn spans(&self) -> &[Span] {
        &self.spans
    }

    /// The start of the next command. Meaningful only between commands.
    #[inline]
    pub fn position(&self) -> usize {
        self.position
    }

    /// The first byte that is still needed: the start of the command being read, or else the first unread byte.
    #[inline]
    pub fn keep_from(&self) -> usize {
        if self.missing > 0 { self.start } else { self.position }
    }

    /// Adjusts the positions after the bytes before [`keep_from`](Self::keep_from) were removed from the buffer.
    pub fn rebase(&mut self) {
        let dropped = self.keep_from();
        if self.missing == 0 && self.spans.capacity() > SPANS_KEPT {
            self.spans = Vec::new();
        }
        if dropped == 0 {
            return;
        }
        self.position -= dropped;
        self.start = 0;
        if self.missing > 0 {
            for span in &mut self.spans {
                span.start -= dropped as u32;
            }
        }
    }

    /// Bytes of memory used for the spans of the command being read.
    pub fn mem_bytes(&self) -> usize {
        self.spans.capacity() * size_of::<Span>()
    }

    /// The number of bytes that the buffer must hold before decoding can continue, if known. Lets the reader allocate
    /// once.
    pub fn wants(&self) -> Option<usize> {
        self.bulk_bytes.map(|len| self.position + len + 2)
    }

    #[inline]
    fn read_count(&mut self, buf: &[u8], limits: &RequestLimits) -> Result<bool, ProtocolError> {
        let Some((count, next)) = read_length_line(buf, self.position + 1, ProtocolError::CountLine)? else {
            return Ok(false);
        };
        let count = count.ok_or(ProtocolError::MultibulkLength)?;
        if count > MULTIBULK_MAX_ARGS {
            return Err(ProtocolError::MultibulkLength);
        }
        if limits.unauthenticated && count > UNAUTHENTICATED_MAX_ARGS {
            return Err(ProtocolError::UnauthenticatedMultibulkLength);
        }
        self.position = next;
        self.is_inline = false;
        self.missing = count.max(0) as usize;
        Ok(true)
    }

    #[inline]
    fn read_bulks(&mut self, buf: &[u8], limits: &RequestLimits) -> Result<bool, ProtocolError> {
        while self.missing > 0 {
            let len = match self.bulk_bytes {
                Some(len) => len,
                None => match self.read_bulk_length(buf, limits)? {
                    Some(len) => len,
                    None => return Ok(false),
                },
            };
            if buf.len() < self.position + len + 2 {
                self.bulk_bytes = Some(len);
                return Ok(false);
            }
            self.spans.push(Span::new(self.position, len));
            self.position += len + 2;
            self.bulk_bytes = None;
            self.missing -= 1;
        }
        Ok(true)
    }

    #[inline]
    fn read_bulk_length(&mut self, buf: &[u8], limits: &RequestLimits) -> Result<Option<usize>, ProtocolError> {
        if let Some((len, next)) = read_short_number(buf, self.position, b'$') {
            // Below a hundred, and so below every limit.
            self.position = next;
            return Ok(Some(len));
        }
        self.read_long_bulk_length(buf, limits)
    }

    fn read_long_bulk_length(&mut self, buf: &[u8], limits: &RequestLimits) -> Result<Option<usize>, ProtocolError> {
        match buf.get(self.position) {
            None => return Ok(None),
            Some(b'$') => {}
            // Redis checks the type byte only once the line is complete; we do too, so that partial input behaves
            // alike.
            Some(&other) => {
                let whole = read_length_line(buf, self.position, ProtocolError::BulkLine)?;
                return match whole {
                    None => Ok(None),
                    Some(_) => Err(ProtocolError::ExpectedBulk(other as char)),
                };
            }
        }
        let Some((len, next)) = read_length_line(buf, self.position + 1, ProtocolError::BulkLine)? else {
            return Ok(None);
        };
        let len = len.and_then(|len| usize::try_from(len).ok()).ok_or(ProtocolError::BulkLength)?;
        if len > limits.bulk_bytes {
            return Err(ProtocolError::BulkLength);
        }
        if limits.unauthenticated && len > UNAUTHENTICATED_MAX_BULK_BYTES {
            return Err(ProtocolError::UnauthenticatedBulkLength);
        }
        self.position = next;
        Ok(Some(len))
    }

    /// Reads one inline line. Returns its number of arguments, or `None` if the line has not ended.
    fn read_inline(&mut self, buf: &[u8]) -> Result<Option<usize>, ProtocolError> {
        let rest = &buf[self.position..];
        let Some(end) = memchr::memchr(b'\n', rest) else {
            return if rest.len() > INLINE_MAX_BYTES { Err(ProtocolError::InlineLine) } else { Ok(None) };
        };
        if end > INLINE_MAX_BYTES {
            return Err(ProtocolError::InlineLine);
        }
        let line = rest[..end].strip_suffix(b"\r").unwrap_or(&rest[..end]);
        self.inline.clear();
        self.spans.clear();
        self.is_inline = true;
        split_line(line, &mut self.inline, &mut self.spans).ok_or(ProtocolError::Quotes)?;
        self.position += end + 1;
        Ok(Some(self.spans.len()))
    }
}

/// See [`Decoder::decode_short`]. Returns the start of the next command.
#[inline(always)]
fn read_short(buf: &[u8], from: usize, spans: &mut Vec<Span>) -> Option<usize> {
    let (count, mut at) = read_short_number(buf, from, b'*').filter(|(count, _)| *count > 0)?;
    for _ in 0..count {
        let (len, start) = read_short_number(buf, at, b'$')?;
        at = start + len + 2;
        if at > buf.len() {
            return None;
        }
        spans.push(Span::new(start, len));
    }
    Some(at)
}

/// The number on a line of type `kind` that starts at `from`, and the start of the next line. Reads only numbers of one
/// or two digits, as nearly all are. `None` decides nothing: [`read_length_line`] has to be tried then.
#[inline(always)]
fn read_short_number(buf: &[u8], from: usize, kind: u8) -> Option<(usize, usize)> {
    let digit = |byte: u8| usize::from(byte.wrapping_sub(b'0'));
    match *buf.get(from..)? {
        [first, ones, b'\r', _, ..] if first == kind && digit(ones) <= 9 => Some((digit(ones), from + 4)),
        [first, tens, ones, b'\r', _, ..] if first == kind && (1..=9).contains(&digit(tens)) && digit(ones) <= 9 => {
            Some((digit(tens) * 10 + digit(ones), from + 5))
        }
        _ => None,
    }
}

/// The number on a length line that starts at `from`, and the start of the next line. The outer `None`: the line has
/// not ended. The inner `None`: the line holds no number.
fn read_length_line(
    buf: &[u8],
    from: usize,
    too_long: ProtocolError,
) -> Result<Option<(Option<i64>, usize)>, ProtocolError> {
    let line = &buf[from.min(buf.len())..];
    match memchr::memchr(b'\r', line) {
        Some(end) if from + end + 1 < buf.len() => {
            Ok(Some((crate::base::num::parse_i64(&line[..end]), from + end + 2)))
        }
        Some(_) => Ok(None),
        None if line.len() > INLINE_MAX_BYTES => Err(too_long),
        None => Ok(None),
    }
}

/// Splits a terminal line into arguments. Whitespace separates them; `"..."` may hold `\n \r \t \b \a \xHH` escapes,
/// `'...'` only `\'`, and a closing quote must be followed by whitespace. `None`: the quotes are unbalanced.
pub fn split_line(line: &[u8], out: &mut Vec<u8>, spans: &mut Vec<Span>) -> Option<()> {
    let is_blank = |byte: u8| byte.is_ascii_whitespace() || byte == 0x0b;
    let mut i = 0;
    loop {
        while line.get(i).is_some_and(|&byte| is_blank(byte)) {
            i += 1;
        }
        // A NUL ends the line, as it does in Redis, where the line is a C string.
        if line.get(i).is_none_or(|&byte| byte == 0) {
            return Some(());
        }
        let start = out.len();
        loop {
            match line.get(i) {
                None | Some(0) => break,
                Some(b'"') => i = unfold_double_quoted(line, i + 1, out)?,
                Some(b'\'') => i = unfold_single_quoted(line, i + 1, out)?,
                Some(&byte) if is_blank(byte) => break,
                Some(&byte) => {
                    out.push(byte);
                    i += 1;
                    continue;
                }
            }
            // Right after a closing quote, only whitespace or the end may follow.
            if line.get(i).is_some_and(|&byte| byte != 0 && !is_blank(byte)) {
                return None;
            }
            break;
        }
        spans.push(Span::new(start, out.len() - start));
    }
}

/// Unfolds from behind the opening quote. Returns the index behind the closing quote.
fn unfold_double_quoted(line: &[u8], mut i: usize, out: &mut Vec<u8>) -> Option<usize> {
    loop {
        match (*line.get(i)?, line.get(i + 1).copied()) {
            (b'"', _) => return Some(i + 1),
            (b'\\', Some(b'x')) if hex_pair(line, i + 2).is_some() => {
                out.push(hex_pair(line, i + 2)?);
                i += 4;
            }
            (b'\\', Some(escaped)) => {
                out.push(match escaped {
                    b'n' => b'\n',
                    b'r' => b'\r',
                    b't' => b'\t',
                    b'b' => 0x08,
                    b'a' => 0x07,
                    other => other,
                });
                i += 2;
            }
            (byte, _) => {
                out.push(byte);
                i += 1;
            }
        }
    }
}

fn unfold_single_quoted(line: &[u8], mut i: usize, out: &mut Vec<u8>) -> Option<usize> {
    loop {
        match (*line.get(i)?, line.get(i + 1).copied()) {
            (b'\'', _) => return Some(i + 1),
            (b'\\', Some(b'\'')) => {
                out.push(b'\'');
                i += 2;
            }
            (byte, _) => {
                out.push(byte);
                i += 1;
            }
        }
    }
}

fn hex_pair(line: &[u8], i: usize) -> Option<u8> {
    let digit = |at: usize| (*line.get(at)? as char).to_digit(16);
    Some((digit(i)? * 16 + digit(i + 1)?) as u8)
}

#[cfg(test)]
mod tests {
    use super::*;

    const OPEN: RequestLimits = RequestLimits { bulk_bytes: 512 << 20, unauthenticated: false };

    /// Decodes everything in `bytes`, handing the decoder `step` more bytes at a time.
    fn decode_all(bytes: &[u8], step: usize) -> Result<Vec<Vec<Vec<u8>>>, ProtocolError> {
        let by_both = decode_all_by(bytes, step, true);
        assert_eq!(by_both, decode_all_by(bytes, step, false));
        by_both
    }

    /// Like [`decode_all`], trying `decode_short` first if `tries_short`.
    fn decode_all_by(bytes: &[u8], step: usize, tries_short: bool) -> Result<Vec<Vec<Vec<u8>>>, ProtocolError> {
        let mut decoder = Decoder::new();
        let mut commands = Vec::new();
        let mut seen = 0;
        while seen < bytes.len() {
            seen = (seen + step).min(bytes.len());
            let there = &bytes[..seen];
            let mut spans = Vec::new();
            loop {
                spans.clear();
                let argv = if tries_short && decoder.decode_short(there, &OPEN, &mut spans) {
                    Argv::new(there, &spans)
                } else if decoder.decode(there, &OPEN)? {
                    decoder.argv(there)
                } else {
                    break;
                };
                commands.push(argv.iter().map(<[u8]>::to_vec).collect());
            }
        }
        Ok(commands)
    }

    fn words(command: &[&str]) -> Vec<Vec<u8>> {
        command.iter().map(|word| word.as_bytes().to_vec()).collect()
    }

    #[test]
    fn a_pipeline_decodes_equally_however_it_is_cut() {
        let long = "x".repeat(100);
        let mut many = vec!["MGET"];
        many.resize(12, "k");
        let bytes = [
            "*2\r\n$3\r\nGET\r\n$1\r\nk\r\nPING \"a b\"\r\n\r\n*0\r\n*-1\r\n*1\r\n$0\r\n\r\n",
            "*2\r\n$3\r\nGET\r\n$12\r\nof 12 bytes.\r\n",
            &format!("*2\r\n$3\r\nGET\r\n$100\r\n{long}\r\n"),
            &format!("*12\r\n$4\r\nMGET\r\n{}", "$1\r\nk\r\n".repeat(11)),
        ]
        .concat();
        let want = [&["GET", "k"][..], &["PING", "a b"], &[""], &["GET", "of 12 bytes."], &["GET", &long], &many];
        let want: Vec<_> = want.iter().map(|command| words(command)).collect();
        for step in 1..=bytes.len() {
            assert_eq!(decode_all(bytes.as_bytes(), step), Ok(want.clone()), "step {step}");
        }
    }

    #[test]
    fn each_protocol_error_has_its_name() {
        use ProtocolError::*;
        let long = vec![b'1'; INLINE_MAX_BYTES + 2];
        let cases: Vec<(Vec<u8>, ProtocolError)> = vec![
            (b"*x\r\n".to_vec(), MultibulkLength),
            (b"*01\r\n".to_vec(), MultibulkLength),
            (b"*3000000000\r\n".to_vec(), MultibulkLength),
            (b"*1\r\n*1\r\n".to_vec(), ExpectedBulk('*')),
            (b"*1\r\n$-1\r\n".to_vec(), BulkLength),
            (b"*1\r\n$2147483648\r\n".to_vec(), BulkLength),
            (b"*1\r\n$99999999999999999999\r\n".to_vec(), BulkLength),
            ([b"*".as_slice(), &long].concat(), CountLine),
            ([b"*1\r\n$".as_slice(), &long].concat(), BulkLine),
            (vec![b'a'; INLINE_MAX_BYTES + 1], InlineLine),
            (b"GET \"k\r\n".to_vec(), Quotes),
            (b"GET \"k\"x\r\n".to_vec(), Quotes),
        ];
        for (bytes, want) in cases {
            assert_eq!(decode_all(&bytes, bytes.len()), Err(want), "{:?}", &bytes[..bytes.len().min(40)]);
        }
    }

    #[test]
    fn unauthenticated_clients_get_smaller_limits() {
        let strangers = RequestLimits { unauthenticated: true, ..OPEN };
        let decode = |bytes: &[u8]| Decoder::new().decode(bytes, &strangers);
        assert_eq!(decode(b"*11\r\n"), Err(ProtocolError::UnauthenticatedMultibulkLength));
        assert_eq!(decode(b"*1\r\n$16385\r\n"), Err(ProtocolError::UnauthenticatedBulkLength));
        assert_eq!(decode(b"*10\r\n$16384\r\n"), Ok(false));
        let many = format!("*11\r\n{}", "$1\r\na\r\n".repeat(11));
        let short = |limits| Decoder::new().decode_short(many.as_bytes(), limits, &mut Vec::new());
        assert!(short(&OPEN) && !short(&strangers));
    }

    #[test]
    fn rebase_keeps_a_command_that_is_underway() {
        let bytes = b"PING\r\n*2\r\n$3\r\nGET\r\n$1\r\nk\r\n";
        let mut decoder = Decoder::new();
        assert_eq!(decoder.decode(&bytes[..20], &OPEN), Ok(true));
        assert_eq!(decoder.decode(&bytes[..20], &OPEN), Ok(false));
        assert_eq!(decoder.keep_from(), 6);
        decoder.rebase();
        assert_eq!(decoder.decode(&bytes[6..], &OPEN), Ok(true));
        assert_eq!(decoder.argv(&bytes[6..]).iter().collect::<Vec<_>>(), [b"GET".as_slice(), b"k"]);
    }

    #[test]
    fn inline_escapes_unfold() {
        let decoded = decode_all(b"SET 'it\\'s' \"\\x41\\n\\\"\" \"\\xzz\"\n", 5);
        assert_eq!(decoded, Ok(vec![words(&["SET", "it's", "A\n\"", "xzz"])]));
    }
}
