//! Requests that break the protocol: wrong and huge lengths, deep nesting, frames cut short, inline lines of any bytes.

use super::calls::Calls;
use super::dice::Dice;
use super::wire::encode;

/// A few calls, encoded and then damaged.
pub(crate) fn damaged(calls: &Calls, dice: &mut Dice) -> Vec<u8> {
    let mut bytes = Vec::new();
    for _ in 0..1 + dice.below(4) {
        encode(&calls.about_data(dice), &mut bytes);
    }
    for _ in 0..1 + dice.below(3) {
        match dice.below(7) {
            0 => bytes.truncate(dice.below(bytes.len() + 1)),
            1 => insert(&mut bytes, &[dice.next() as u8], dice),
            2 if !bytes.is_empty() => {
                let at = dice.below(bytes.len());
                bytes[at] = dice.next() as u8;
            }
            3 => insert(&mut bytes, format!("*{}\r\n", dice.integer()).as_bytes(), dice),
            4 => insert(&mut bytes, format!("${}\r\n", dice.integer()).as_bytes(), dice),
            5 => insert(&mut bytes, b"*1\r\n".repeat(1 + dice.below(10_000)).as_slice(), dice),
            _ => replace_a_length(&mut bytes, dice),
        }
    }
    bytes
}

/// Frames that announce much and contain little.
pub(crate) fn boastful(dice: &mut Dice) -> Vec<u8> {
    let texts: [&[u8]; 8] = [
        b"*2147483647\r\n$3\r\nDEL\r\n$1\r\na\r\n",
        b"*1000000\r\n$4194304\r\nabc",
        b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$4194304\r\nx",
        b"*2\r\n$3\r\nGET\r\n$9223372036854775807\r\n",
        b"*-9223372036854775808\r\nPING\r\n",
        b"*1\r\n$-2\r\n",
        b"$5\r\nhello\r\n:1\r\n%2\r\n",
        b"\0\0\0\0\r\n\xff\xfe\r\n",
    ];
    match dice.below(10) {
        0 => vec![b'*'; 70_000],
        1 => [b"GET \"".as_slice(), &vec![b'a'; 66_000]].concat(),
        _ => dice.pick(&texts).to_vec(),
    }
}

/// An inline line: a call with its arguments quoted, or any bytes.
pub(crate) fn inline(calls: &Calls, dice: &mut Dice) -> Vec<u8> {
    let mut line = Vec::new();
    if dice.once_in(4) {
        line.extend((0..dice.below(100)).map(|_| dice.next() as u8));
    } else {
        for arg in calls.about_data(dice).iter().filter(|arg| arg.len() < 10_000) {
            line.extend(arg.iter().fold(String::from("\""), |text, &byte| text + &format!("\\x{byte:02x}")).bytes());
            line.extend(b"\" ");
        }
    }
    line.extend(b"\r\n");
    line
}

fn insert(bytes: &mut Vec<u8>, piece: &[u8], dice: &mut Dice) {
    let at = dice.below(bytes.len() + 1);
    bytes.splice(at..at, piece.iter().copied());
}

/// Replaces the number after one of the signs that announce a length.
fn replace_a_length(bytes: &mut Vec<u8>, dice: &mut Dice) {
    let signs: Vec<usize> = (0..bytes.len()).filter(|&at| b"*$".contains(&bytes[at])).take(64).collect();
    if signs.is_empty() {
        return;
    }
    let at = *dice.pick(&signs) + 1;
    let end = bytes[at..].iter().position(|&byte| byte == b'\r').map_or(bytes.len(), |len| at + len);
    bytes.splice(at..end, dice.integer().into_bytes());
}
