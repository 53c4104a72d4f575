//! Waiting: one mechanism for every command that blocks. [`wait_queues`] has the queues.
//!
//! A handler that can't answer yet returns a [`Wait`]: the keys, the content that the call waits to find there, and the
//! deadline. The whole call is parked in a first-come-first-served queue per key, and its session waits with it. When a
//! unit's effects touch such a key, the calls that wait for its new content are dispatched again from the start, the
//! longest waiting first, and each replies or waits on. The changes of such a call may wake further calls, until no
//! touched key has a call left to serve.
//!
//! **Places** of locks and gates are given out strictly in order: a call that waits on when it is dispatched again ends
//! the round for its key, and handlers refuse newcomers while others wait. So only the first call of a queue has to
//! look when a lease ends (`Engine::serve`), and ten thousand calls behind it cost nothing.
//!
//! **Tickets.** A call with ASYNC waits in the same queues and does not block its session. Its reply comes at once and
//! holds its number in the queues, the [`Ticket`]; its result follows as a push. A session may have many such calls,
//! beside one call that blocks it.
//!
//! In a script or EXEC no call waits: it times out at once. No waiting call is served before the whole unit is over.

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

/// The content that a call waits to find at its keys. A call is not dispatched again while a key holds something else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Want {
    /// A list with an element.
    List,
    /// A sorted set with a member.
    ZSet,
    /// A stream, with entries or without.
    Stream,
    /// Any change: a consumer group's reader must learn that the stream or group is gone.
    Group,
    /// A place of a lock or gate, each of which has one queue.
    Place,
    /// A string.
    String,
}

impl Want {
    pub(crate) const ALL: [Want; 6] = [Want::List, Want::ZSet, Want::Stream, Want::Group, Want::Place, Want::String];

    /// Whether a call with this want could succeed now.
    pub(crate) fn is_met(self, ks: &Keyspace, db: DbIndex, key: &[u8]) -> bool {
        if self == Want::Group {
            return true;
        }
        if self == Want::Place {
            return ks.may_have_place(db, key);
        }
        // Between two units no key may be removed, not even an expired one: no effect would record the removal.
        match ks.live(db, key).map(Entry::value) {
            Some(ValueRef::List(_)) => self == Want::List,
            Some(ValueRef::ZSet(_)) => self == Want::ZSet,
            Some(ValueRef::Stream(_)) => self == Want::Stream,
            Some(ValueRef::String(_)) => self == Want::String,
            _ => false,
        }
    }
}

/// Identifies a waiting call and orders it: later calls have larger numbers, whatever they wait for. Never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Ticket(NonZeroU64);

impl Ticket {
    /// The smallest ticket.
    pub(crate) const FIRST: Ticket = Ticket(NonZeroU64::MIN);

    /// Returns the ticket of this number, if the number is valid.
    pub fn from_number(number: i64) -> Option<Ticket> {
        u64::try_from(number).ok().and_then(NonZeroU64::new).map(Ticket)
    }

    /// Returns the next ticket. No server lives long enough to issue the last one.
    pub(crate) fn next(self) -> Ticket {
        Ticket(self.0.saturating_add(1))
    }

    /// The number that clients see.
    pub fn number(self) -> i64 {
        self.0.get() as i64
    }
}

/// Writes the reply to a call that begins to wait beside its session, from its ticket and the number of calls ahead of
/// it.
pub(crate) type OnTicket = fn(&mut Reply, Ticket, usize);

/// Why a call can't be answered yet.
#[derive(Debug)]
pub struct Wait {
    /// The content to wait for.
    pub want: Want,
    /// The keys at which it is looked for; any of them suffices.
    pub keys: OwnedArgv,
    /// When waiting ends without a result, Unix ms; `None`: never.
    pub deadline_ms: Option<i64>,
    /// When to dispatch the call again although no key was touched, Unix ms (XREADGROUP CLAIM: an entry has been idle
    /// for long enough). Later than now.
    pub retry_at_ms: Option<i64>,
    /// Writes the reply when waiting ends without a result.
    pub on_timeout: fn(&mut Reply),
    /// Writes the immediate reply of a call that waits beside its session; `None` if the call blocks the session.
    pub on_ticket: Option<OnTicket>,
    /// The command to dispatch again, if it differs from the original one (XREAD resolves `$` once).
    pub again: Option<OwnedArgv>,
    /// The family of the place that the call waits for; the wait is counted for its first key.
    pub family: Option<Family>,
    /// The reason that the history records when waiting for a place ends without a result, which is a refusal.
    pub in_vain: &'static str,
    /// A string at this key ends the waiting, too: the result that ONCE kept of a call with the same id.
    pub or_string: Option<Box<[u8]>>,
}

impl Wait {
    /// Waits for any of `keys`.
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

    /// Waits only for the deadline.
    pub fn until(deadline_ms: Option<i64>, on_timeout: fn(&mut Reply)) -> Wait {
        Wait::new(Want::Group, std::iter::empty(), deadline_ms, on_timeout)
    }
}

/// Parses a timeout in seconds, with fractions, into its end, Unix ms; `None` for 0, which means never.
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
