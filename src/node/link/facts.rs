//! The state of a link, for metrics and people.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::time::{Duration, Instant};

use super::error::LinkError;
use super::limits::REMEMBERED_FAILURES;
use crate::log::replicated::types::NodeId;

/// The state of the link with one peer.
#[derive(Clone, Debug)]
pub(crate) struct PeerFacts {
    pub(crate) node: NodeId,
    #[cfg_attr(not(test), expect(dead_code, reason = "metrics will show it"))]
    pub(crate) address: String,
    /// The connection that this node has dialled.
    pub(crate) sending: ConnectionFacts,
    /// The connection that the peer has dialled.
    pub(crate) receiving: ConnectionFacts,
    /// The transfer of a snapshot to the peer, and the one from it.
    pub(crate) outgoing: ConnectionFacts,
    pub(crate) incoming: ConnectionFacts,
    /// Messages to the peer that were dropped.
    pub(crate) dropped: u64,
}

impl PeerFacts {
    /// Whether messages go both ways.
    pub(crate) fn is_connected(&self) -> bool {
        self.sending.connected_since.is_some() && self.receiving.connected_since.is_some()
    }
}

/// The state of one of the two connections with a peer.
#[derive(Clone, Debug, Default)]
pub(crate) struct ConnectionFacts {
    /// `None` without a connection.
    pub(crate) connected_since: Option<Instant>,
    /// Bytes of frames since this node knows the peer.
    pub(crate) bytes: u64,
    /// Why the last connection, or the last attempt, failed.
    pub(crate) last_error: Option<String>,
}

/// Keeps the facts of a connection, and decides which failures are news.
#[derive(Default)]
pub(super) struct ConnectionRecord(RefCell<ConnectionFacts>);

/// How a connection, or an attempt, ended.
pub(super) struct End {
    /// It had lasted.
    pub(super) was_sound: bool,
    /// The reason differs from the last one, or the connection was sound before.
    pub(super) is_news: bool,
}

impl ConnectionRecord {
    pub(super) fn facts(&self) -> ConnectionFacts {
        self.0.borrow().clone()
    }

    pub(super) fn connected(&self) {
        self.0.borrow_mut().connected_since = Some(Instant::now());
    }

    pub(super) fn add_bytes(&self, bytes: usize) {
        self.0.borrow_mut().bytes += bytes as u64;
    }

    /// Notes that the connection has done what it was for.
    pub(super) fn ended_well(&self) {
        let mut facts = self.0.borrow_mut();
        (facts.connected_since, facts.last_error) = (None, None);
    }

    pub(super) fn ended(&self, error: &LinkError, sound_after: Duration) -> End {
        let mut facts = self.0.borrow_mut();
        let reason = Some(error.to_string());
        let was_sound = facts.connected_since.take().is_some_and(|since| since.elapsed() >= sound_after);
        let is_news = was_sound || facts.last_error != reason;
        facts.last_error = reason;
        End { was_sound, is_news }
    }
}

/// The failures of connections whose other end is not known. Each is news once, until enough others have come.
#[derive(Default)]
pub(super) struct Failures(RefCell<VecDeque<String>>);

impl Failures {
    /// Remembers a failure, and returns whether it is news.
    pub(super) fn add(&self, error: &LinkError) -> bool {
        let mut known = self.0.borrow_mut();
        let reason = error.to_string();
        if known.contains(&reason) {
            return false;
        }
        if known.len() == REMEMBERED_FAILURES {
            known.pop_front();
        }
        known.push_back(reason);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_is_news_when_it_is_another_or_ends_a_sound_connection() {
        let record = ConnectionRecord::default();
        let ended = |error| record.ended(&error, Duration::ZERO).is_news;
        assert!(ended(LinkError::Ended) && !ended(LinkError::Ended) && ended(LinkError::Silent));
        record.connected();
        assert!(ended(LinkError::Silent));
        record.connected();
        assert!(!record.ended(&LinkError::Silent, Duration::from_secs(3_600)).is_news, "it did not last");
        assert_eq!(record.facts().last_error, Some(LinkError::Silent.to_string()));
    }

    #[test]
    fn a_bounded_number_of_failures_is_remembered() {
        let failures = Failures::default();
        assert!(failures.add(&LinkError::Ended) && !failures.add(&LinkError::Ended));
        for number in 0..REMEMBERED_FAILURES as u32 {
            failures.add(&LinkError::Group(crate::log::replicated::types::GroupId(number)));
        }
        assert_eq!(failures.0.borrow().len(), REMEMBERED_FAILURES);
        assert!(failures.add(&LinkError::Ended), "it was forgotten");
    }
}
