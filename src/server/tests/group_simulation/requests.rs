//! The requests of clients, and what their replies say.

use super::super::simulation::requests::{Kinds, What, encode, random};
use crate::base::rng::Rng;

/// What a client asks for. Each number is given once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Appends the number to a list.
    Push(u64),
    /// Reads the length and the end of that list.
    ReadList,
    Count,
    ReadCount,
    /// Changes several keys together, by a transaction or by a script.
    Change(u64),
    /// Reads these keys together.
    ReadChanges,
    /// Sets a register to the number.
    Write(u64),
    ReadRegister,
    /// Sets a key of its own for a while.
    Keep {
        number: u64,
        /// For longer than any run takes.
        is_long: bool,
    },
    ReadKept(u64),
    /// Appends the number to a queue.
    Offer(u64),
    /// Takes an element of the queue, or waits for one.
    Take,
    /// Takes a lock, with a fencing token.
    Lock,
    /// Something else, which is judged by its effects only.
    Other,
}

/// A request: its bytes, the number of replies before the one that counts, and its meaning.
pub(super) struct Request {
    pub(super) bytes: Vec<u8>,
    pub(super) before: usize,
    pub(super) kind: Kind,
}

/// Changes four keys together.
const CHANGE: &str = "redis.call('RPUSH', KEYS[1], ARGV[1]) redis.call('XADD', KEYS[3], '*', 'n', ARGV[1]) \
                      redis.call('INCR', KEYS[4]) return redis.call('RPUSH', KEYS[2], ARGV[1])";

/// Names that no request of the other simulation uses.
pub(super) const LIST: &str = "group:list";
pub(super) const COUNTER: &str = "group:counter";
pub(super) const LEFT: &str = "group:left";
pub(super) const RIGHT: &str = "group:right";
pub(super) const STREAM: &str = "group:stream";
pub(super) const CHANGES: &str = "group:changes";
pub(super) const REGISTER: &str = "group:register";
pub(super) const QUEUE: &str = "group:queue";
const LOCK: &str = "group:lock";

/// Returns the key that [`Kind::Keep`] sets.
pub(super) fn kept(number: u64) -> String {
    format!("group:kept:{number}")
}

/// Draws a request. `number` is a new one, and `known` the number of an earlier [`Kind::Keep`].
pub(super) fn draw(rng: &mut Rng, number: u64, known: u64, only_reads: bool) -> Request {
    let n = &*number.to_string();
    let lease = &*(5 + rng.below(300)).to_string();
    let owner = ["ann", "bob", "eve"][rng.below(3) as usize];
    let at = if only_reads { 60 + rng.below(25) } else { rng.below(100) };
    match at {
        0..10 => one(Kind::Push(number), &["RPUSH", LIST, n]),
        10..18 => one(Kind::Count, &["INCR", COUNTER]),
        18..24 => together(
            Kind::Change(number),
            &[&["RPUSH", LEFT, n], &["XADD", STREAM, "*", "n", n], &["INCR", CHANGES], &["RPUSH", RIGHT, n]],
        ),
        24..30 => one(Kind::Change(number), &["EVAL", CHANGE, "4", LEFT, RIGHT, STREAM, CHANGES, n]),
        30..36 => one(Kind::Write(number), &["SET", REGISTER, n]),
        36..42 => {
            let is_long = rng.below(2) == 0;
            let px = if is_long { "600000" } else { lease };
            one(Kind::Keep { number, is_long }, &["SET", &kept(number), n, "PX", px])
        }
        42..46 => one(Kind::Offer(number), &["RPUSH", QUEUE, n]),
        46..50 => one(Kind::Take, &["BLPOP", QUEUE, "0.2"]),
        50..54 => one(Kind::Lock, &["LOCK.ACQUIRE", LOCK, owner, "PX", lease]),
        54..57 => one(Kind::Lock, &["LOCK.ACQUIRE", LOCK, owner, "PX", lease, "BLOCK", "100"]),
        57..60 => one(Kind::Other, &["LOCK.RELEASE", LOCK, owner]),
        60..66 => together(Kind::ReadList, &[&["LLEN", LIST], &["LRANGE", LIST, "-3", "-1"]]),
        66..71 => one(Kind::ReadCount, &["GET", COUNTER]),
        71..76 => together(
            Kind::ReadChanges,
            &[
                &["LLEN", LEFT],
                &["LLEN", RIGHT],
                &["XLEN", STREAM],
                &["GET", CHANGES],
                &["LRANGE", LEFT, "-2", "-1"],
                &["LRANGE", RIGHT, "-2", "-1"],
            ],
        ),
        76..81 => one(Kind::ReadRegister, &["GET", REGISTER]),
        81..85 => one(Kind::ReadKept(known), &["GET", &kept(known)]),
        _ => other(rng, number),
    }
}

/// Draws a request of the other simulation, unless it would remove what is judged here, or turn the journal off.
fn other(rng: &mut Rng, number: u64) -> Request {
    let request = random(rng, number, Kinds::All);
    let first = &*request.commands[0][0];
    if ["FLUSHALL", "CONFIG", "DEBUG", "SAVE"].contains(&first) || matches!(request.what, What::Block(_)) {
        return one(Kind::Other, &["BGSAVE"]);
    }
    let before = request.commands.len() - 1;
    Request { bytes: encode(&request.commands), before, kind: Kind::Other }
}

fn one(kind: Kind, words: &[&str]) -> Request {
    Request { bytes: encode(&[owned(words)]), before: 0, kind }
}

/// A transaction.
fn together(kind: Kind, commands: &[&[&str]]) -> Request {
    let mut all = vec![owned(&["MULTI"])];
    all.extend(commands.iter().map(|words| owned(words)));
    all.push(owned(&["EXEC"]));
    Request { bytes: encode(&all), before: all.len() - 1, kind }
}

fn owned(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

/// A reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Value {
    Integer(i64),
    Nothing,
    Text(String),
    Array(Vec<Value>),
    Error(String),
}

impl Value {
    /// Takes a reply off the start of `bytes`, if it is complete.
    pub(super) fn take(bytes: &mut &[u8]) -> Option<Value> {
        let mut rest = *bytes;
        let end = rest.windows(2).position(|pair| pair == b"\r\n")?;
        let line = String::from_utf8_lossy(&rest[1..end]).into_owned();
        let kind = rest[0];
        rest = &rest[end + 2..];
        let number = || line.parse::<i64>().expect("a number");
        let value = match kind {
            b':' => Value::Integer(number()),
            b'+' => Value::Text(line),
            b'-' => Value::Error(line),
            b'$' | b'*' if number() < 0 => Value::Nothing,
            b'$' => {
                let len = number() as usize;
                let text = rest.get(..len)?;
                rest = rest.get(len + 2..)?;
                Value::Text(String::from_utf8_lossy(text).into_owned())
            }
            b'*' => {
                let mut items = Vec::new();
                for _ in 0..number() {
                    items.push(Value::take(&mut rest)?);
                }
                Value::Array(items)
            }
            _ => panic!("{line:?} is no reply"),
        };
        *bytes = rest;
        Some(value)
    }

    /// Returns the number that this is, or that its text says; 0 for nothing.
    pub(super) fn number(&self) -> u64 {
        match self {
            Value::Integer(number) => *number as u64,
            Value::Text(text) => text.parse().unwrap_or_else(|_| panic!("{text:?} is no number")),
            Value::Nothing => 0,
            other => panic!("{other:?} is no number"),
        }
    }

    pub(super) fn items(&self) -> &[Value] {
        match self {
            Value::Array(items) => items,
            other => panic!("{other:?} is no array"),
        }
    }
}

/// Returns the bytes of a command.
pub(super) fn encode_one(words: &[&str]) -> Vec<u8> {
    encode(&[owned(words)])
}
