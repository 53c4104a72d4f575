//! Waiting: one mechanism for every command that blocks. [`wait_queues`] has the queues.
//!
//! A handler that can't answer yet says [`Wait`]: for which keys, for what in them, and until when. The whole call is parked in a
//! first-come-first-served queue per key, and its session waits with it. When a unit's effects touch such a key, the calls that
//! wait for what it now holds are dispatched again from the start, the longest waiting first, and each answers or waits on.
//! What such a call changes may wake others: that goes on until no touched key has anybody left to serve.
//!
//! **Places** of locks and gates are given out strictly in order: a call that waits on when it is dispatched again ends the round for its
//! key, and handlers refuse who comes while others wait. So the first of a queue is the only one that has to look when a lease ends
//! (`Engine::serve`), and ten thousand behind it cost nothing.
//!
//! **Tickets.** A call that says ASYNC waits in the same queues and does not block its session: it is answered at once with the number
//! that it has in them, its [`Ticket`], and what it comes to follows as a push. A session may have many of those, beside one call that
//! blocks it.
//!
//! In a script or EXEC nothing waits: the call times out at once. And nobody is served before the whole unit is over.

pub(crate) mod tickets;
pub(crate) mod wait_queues;

use std::num::NonZeroU64;

use crate::base::num;
use crate::keyspace::any_value::ValueRef;
use crate::keyspace::effect::Family;
use crate::keyspace::entry::Entry;
use crate::keyspace::{DbIndex, Keyspace};
use crate::resp::reply::Reply;
use crate::resp::request::OwnedArgv;
use crate::spec::error::Error;

/// What a call waits to find under its keys. A call is not dispatched again while there is something else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Want {
    /// A list with an element.
    List,
    /// A sorted set with a member.
    ZSet,
    /// A stream, with entries or without.
    Stream,
    /// Any change: who reads for a consumer group must learn that stream or group is gone.
    Group,
    /// A place of a lock or gate, each of which has one queue.
    Place,
    /// A string.
    String,
}

impl Want {
    pub(in crate::engine) const ALL: [Want; 6] =
        [Want::List, Want::ZSet, Want::Stream, Want::Group, Want::Place, Want::String];

    /// Whether it makes sense to dispatch again who wants this.
    pub(in crate::engine) fn is_met(self, ks: &Keyspace, db: DbIndex, key: &[u8]) -> bool {
        if self == Want::Group {
            return true;
        }
        if self == Want::Place {
            return ks.may_have_place(db, key);
        }
        // Between two units nothing may be removed, not even what has expired: no effect would tell of it.
        match ks.live(db, key).map(Entry::value) {
            Some(ValueRef::List(_)) => self == Want::List,
            Some(ValueRef::ZSet(_)) => self == Want::ZSet,
            Some(ValueRef::Stream(_)) => self == Want::Stream,
            Some(ValueRef::String(_)) => self == Want::String,
            _ => false,
        }
    }
}

/// Names a call that waits, and says where it stands: calls that came later have larger numbers, whatever they wait for. Never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Ticket(NonZeroU64);

impl Ticket {
    /// The smallest of all.
    pub(in crate::engine) const FIRST: Ticket = Ticket(NonZeroU64::MIN);

    /// The ticket of this number, if there may be one.
    pub fn from_number(number: i64) -> Option<Ticket> {
        u64::try_from(number).ok().and_then(NonZeroU64::new).map(Ticket)
    }

    /// The one that is given next. No server lives to give the last one.
    pub(in crate::engine) fn next(self) -> Ticket {
        Ticket(self.0.saturating_add(1))
    }

    /// The number, as clients are told it.
    pub fn number(self) -> i64 {
        self.0.get() as i64
    }
}

/// Answers a call that is to wait beside its session: with its ticket, and how many calls come before it.
pub(crate) type OnTicket = fn(&mut Reply, Ticket, usize);

/// Why a call can't be answered yet.
#[derive(Debug)]
pub struct Wait {
    /// What may end the waiting.
    pub want: Want,
    /// The keys of which any may.
    pub keys: OwnedArgv,
    /// When waiting ends without a result, Unix ms; `None`: never.
    pub deadline_ms: Option<i64>,
    /// When it makes sense to dispatch it again although no key was touched, Unix ms (XREADGROUP CLAIM: an entry has been idle
    /// for long enough). Later than now.
    pub retry_at_ms: Option<i64>,
    /// What is answered when waiting ends without a result.
    pub on_timeout: fn(&mut Reply),
    /// What is answered at once where the call waits beside its session; `None`: it blocks the session.
    pub on_ticket: Option<OnTicket>,
    /// The command to dispatch again, when it is not the one that came (XREAD resolves `$` once).
    pub again: Option<OwnedArgv>,
    /// Whose place it waits for, which is counted for its first key.
    pub family: Option<Family>,
    /// What is remembered as the reason when waiting for a place ends without a result, which is a refusal.
    pub in_vain: &'static str,
    /// A string in this key ends the waiting, too: that of a call with the same id, which ONCE has kept.
    pub or_string: Option<Box<[u8]>>,
}

impl Wait {
    /// For any of `keys`.
    pub fn new<'a>(
        want: Want,
        keys: impl Iterator<Item = &'a [u8]>,
        deadline_ms: Option<i64>,
        on_timeout: fn(&mut Reply),
    ) -> Wait {
        let mut owned = OwnedArgv::default();
        keys.for_each(|key| owned.push(key));
        Wait {
            want,
            keys: owned,
            deadline_ms,
            retry_at_ms: None,
            on_timeout,
            on_ticket: None,
            again: None,
            family: None,
            in_vain: "",
            or_string: None,
        }
    }

    /// For nothing but the time.
    pub fn until(deadline_ms: Option<i64>, on_timeout: fn(&mut Reply)) -> Wait {
        Wait::new(Want::Group, std::iter::empty(), deadline_ms, on_timeout)
    }
}

/// Reads a timeout in seconds, with fractions: the time at which it is over, Unix ms; `None` for 0, which means never.
pub(crate) fn deadline_after_seconds(text: &[u8], now_ms: i64) -> Result<Option<i64>, Error> {
    let seconds = num::parse_f64(text).ok_or(Error::TimeoutNotFloat)?;
    let timeout_ms = (seconds * 1_000.0).ceil();
    if timeout_ms >= i64::MAX as f64 {
        return Err(Error::text("ERR timeout is out of range"));
    }
    deadline(timeout_ms as i64, now_ms)
}

/// As [`deadline_after_seconds`], for whole milliseconds.
pub(crate) fn deadline_after_ms(text: &[u8], now_ms: i64) -> Result<Option<i64>, Error> {
    deadline(num::parse_i64(text).ok_or(Error::text("ERR timeout is not an integer or out of range"))?, now_ms)
}

fn deadline(timeout_ms: i64, now_ms: i64) -> Result<Option<i64>, Error> {
    match timeout_ms {
        ..0 => Err(Error::TimeoutNegative),
        0 => Ok(None),
        _ => now_ms.checked_add(timeout_ms).map(Some).ok_or(Error::text("ERR timeout is out of range")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timeouts_become_deadlines() {
        let text = |result: Result<Option<i64>, Error>| result.map_err(|error| error.to_string());
        assert_eq!(text(deadline_after_seconds(b"0", 100)), Ok(None));
        assert_eq!(text(deadline_after_seconds(b"0.0011", 100)), Ok(Some(102)));
        assert_eq!(text(deadline_after_seconds(b"0.0000001", 100)), Ok(Some(101)));
        for (wrong, error) in [
            ("-1", "ERR timeout is negative"),
            ("", "ERR timeout is not a float or out of range"),
            ("nan", "ERR timeout is not a float or out of range"),
            ("1e300", "ERR timeout is out of range"),
            ("inf", "ERR timeout is out of range"),
            ("9223372036854775", "ERR timeout is out of range"),
        ] {
            assert_eq!(text(deadline_after_seconds(wrong.as_bytes(), 1_000)), Err(error.to_owned()), "{wrong}");
        }
        assert_eq!(text(deadline_after_ms(b"5", 100)), Ok(Some(105)));
        assert_eq!(text(deadline_after_ms(b"1.5", 1)), Err("ERR timeout is not an integer or out of range".to_owned()));
        assert_eq!(text(deadline_after_ms(b"9223372036854775807", 1)), Err("ERR timeout is out of range".to_owned()));
    }
}
