//! Requests as they arrive: cut at any point and decoded resumably, then read by a naive decoder that sees all bytes at
//! once. Both must find the same commands and the same error.
//!
//! The first byte chooses the limits, the second the cuts in the rest. Inputs stay below the length at which an
//! unfinished line is an error, since beyond it the cuts would decide whether the line has ended in time.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tidegate::resp::limits::{INLINE_MAX_BYTES, UNAUTHENTICATED_MAX_ARGS, UNAUTHENTICATED_MAX_BULK_BYTES};
use tidegate::resp::request::{Decoder, ProtocolError, RequestLimits};

type Command = Vec<Vec<u8>>;
type Outcome = (Vec<Command>, Option<ProtocolError>);

fuzz_target!(|data: &[u8]| {
    let [choice, cuts, bytes @ ..] = data else { return };
    // Inline lines with a NUL are left out: Redis never finds their end, so there is no result to compare with.
    if bytes.len() >= INLINE_MAX_BYTES || bytes.contains(&0) {
        return;
    }
    let bulk_bytes = if choice & 2 == 0 { 512 << 20 } else { 100 };
    let limits = RequestLimits { bulk_bytes, unauthenticated: choice & 1 == 1 };
    let whole = read_naively(bytes, &limits);
    assert_eq!(read_in_pieces(bytes, &limits, u32::from(*cuts)), whole);
    assert_eq!(read_in_pieces(bytes, &limits, 0), whole);
});

/// Reads as a connection does: appends bytes, takes commands, and drops consumed input. Now and then a command is given
/// back and decoded again, as for a command that has to wait. `cuts` seeds the lengths of the pieces; 0: all bytes in
/// one piece.
fn read_in_pieces(bytes: &[u8], limits: &RequestLimits, cuts: u32) -> Outcome {
    let (mut decoder, mut buf, mut commands) = (Decoder::new(), Vec::new(), Vec::new());
    let mut random = cuts;
    let mut next = move || {
        random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (random >> 16) as usize
    };
    let mut rest = bytes;
    while !rest.is_empty() {
        let len = if cuts == 0 { rest.len() } else { 1 + next() % 9 };
        let (piece, later) = rest.split_at(len.min(rest.len()));
        rest = later;
        buf.extend_from_slice(piece);
        loop {
            let before = decoder.keep_from();
            match decoder.decode(&buf, limits) {
                Ok(false) => break,
                Ok(true) => {}
                Err(error) => return (commands, Some(error)),
            }
            let command: Command = decoder.argv(&buf).iter().map(<[u8]>::to_vec).collect();
            if cuts != 0 && next() % 4 == 0 && decoder.keep_from() == decoder.position() {
                // Bytes skipped before the command, such as blank lines, are skipped again.
                decoder.rewind_to(before);
                assert_eq!(decoder.decode(&buf, limits), Ok(true));
                assert!(decoder.argv(&buf).iter().eq(command.iter().map(Vec::as_slice)));
            }
            commands.push(command);
        }
        if cuts == 0 || next() % 2 == 0 {
            let kept = decoder.keep_from();
            decoder.rebase();
            buf.drain(..kept);
        }
    }
    (commands, None)
}

fn read_naively(bytes: &[u8], limits: &RequestLimits) -> Outcome {
    let (mut commands, mut rest) = (Vec::new(), bytes);
    loop {
        match read_one(&mut rest, limits) {
            Ok(Some(command)) if command.is_empty() => {}
            Ok(Some(command)) => commands.push(command),
            Ok(None) => return (commands, None),
            Err(error) => return (commands, Some(error)),
        }
    }
}

/// Reads one command, which may be empty; `None` where the bytes end first.
fn read_one(rest: &mut &[u8], limits: &RequestLimits) -> Result<Option<Command>, ProtocolError> {
    if rest.first() != Some(&b'*') {
        let Some(end) = rest.iter().position(|&byte| byte == b'\n') else { return Ok(None) };
        let (mut line, later) = (&rest[..end], &rest[end + 1..]);
        if let [head @ .., b'\r'] = line {
            line = head;
        }
        *rest = later;
        return words(line).map(Some).ok_or(ProtocolError::Quotes);
    }
    let Some((count, mut later)) = length_line(&rest[1..]) else { return Ok(None) };
    let count = count.filter(|&count| count <= i64::from(i32::MAX)).ok_or(ProtocolError::MultibulkLength)?;
    if limits.unauthenticated && count > UNAUTHENTICATED_MAX_ARGS {
        return Err(ProtocolError::UnauthenticatedMultibulkLength);
    }
    let mut command = Command::new();
    for _ in 0..count {
        let Some(&first) = later.first() else { return Ok(None) };
        if first != b'$' {
            return if length_line(later).is_some() {
                Err(ProtocolError::ExpectedBulk(first as char))
            } else {
                Ok(None)
            };
        }
        let Some((len, data)) = length_line(&later[1..]) else { return Ok(None) };
        let len = len.filter(|&len| (0..=limits.bulk_bytes as i64).contains(&len)).ok_or(ProtocolError::BulkLength)?;
        let len = len as usize;
        if limits.unauthenticated && len > UNAUTHENTICATED_MAX_BULK_BYTES {
            return Err(ProtocolError::UnauthenticatedBulkLength);
        }
        if data.len() < len + 2 {
            return Ok(None);
        }
        command.push(data[..len].to_vec());
        // The bytes in the place of the line's end are not checked.
        later = &data[len + 2..];
    }
    *rest = later;
    Ok(Some(command))
}

/// The number on a line that ends with a carriage return and one more byte, and the bytes after it; `None` if the line
/// is unfinished.
fn length_line(bytes: &[u8]) -> Option<(Option<i64>, &[u8])> {
    let end = bytes.iter().position(|&byte| byte == b'\r')?;
    let later = bytes.get(end + 2..)?;
    let text = std::str::from_utf8(&bytes[..end]).ok();
    let number = text.and_then(|text| text.parse::<i64>().ok().filter(|number| number.to_string() == text));
    Some((number, later))
}

/// The words of an inline line; `None` where quotes do not match.
fn words(line: &[u8]) -> Option<Command> {
    let line = line.split(|&byte| byte == 0).next()?;
    let is_blank = |byte: u8| b" \t\n\r\x0b\x0c".contains(&byte);
    let mut bytes = line.iter().copied().peekable();
    let mut words = Command::new();
    loop {
        while bytes.next_if(|&byte| is_blank(byte)).is_some() {}
        if bytes.peek().is_none() {
            return Some(words);
        }
        let mut word = Vec::new();
        while let Some(byte) = bytes.next_if(|&byte| !is_blank(byte)) {
            if byte != b'"' && byte != b'\'' {
                word.push(byte);
                continue;
            }
            loop {
                match bytes.next()? {
                    end if end == byte => break,
                    b'\\' if byte == b'\'' && bytes.peek() == Some(&b'\'') => word.extend(bytes.next()),
                    b'\\' if byte == b'"' => match bytes.next()? {
                        b'x' => match hex_pair(bytes.clone()) {
                            Some(value) => {
                                bytes.next();
                                bytes.next();
                                word.push(value);
                            }
                            None => word.push(b'x'),
                        },
                        escaped => word.push(unescaped(escaped)),
                    },
                    other => word.push(other),
                }
            }
            if bytes.peek().is_some_and(|&byte| !is_blank(byte)) {
                return None;
            }
        }
        words.push(word);
    }
}

fn unescaped(escaped: u8) -> u8 {
    match escaped {
        b'n' => b'\n',
        b'r' => b'\r',
        b't' => b'\t',
        b'b' => 8,
        b'a' => 7,
        other => other,
    }
}

fn hex_pair(mut bytes: impl Iterator<Item = u8>) -> Option<u8> {
    let mut digit = || (bytes.next()? as char).to_digit(16);
    Some((digit()? * 16 + digit()?) as u8)
}
