//! TLS sessions that clients may resume: resuming one saves both sides the signatures of a handshake.
//!
//! Sessions are remembered here, not in tickets kept by clients. So `tls-session-cache-size` and
//! `tls-session-cache-timeout` hold, and a session that was resumed once with TLS 1.3 is gone.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustls::server::StoresServerSessions;

use crate::net::limits::TLS_SESSIONS_MAX;

/// See the module's header.
#[derive(Debug)]
pub(super) struct TlsSessions {
    most: usize,
    /// How long each session is remembered.
    timeout: Duration,
    kept: Mutex<Kept>,
}

#[derive(Debug, Default)]
struct Kept {
    sessions: HashMap<Vec<u8>, (Vec<u8>, Instant)>,
    /// The names of the sessions, oldest first, including some that are gone.
    order: VecDeque<Vec<u8>>,
}

impl TlsSessions {
    /// Makes a cache for `size` sessions (0: as many as the server allows) and `timeout_s` seconds.
    pub(super) fn new(size: usize, timeout_s: u32) -> TlsSessions {
        let most = if size == 0 { TLS_SESSIONS_MAX } else { size.min(TLS_SESSIONS_MAX) };
        TlsSessions { most, timeout: Duration::from_secs(timeout_s.into()), kept: Mutex::default() }
    }

    fn with<A>(&self, act: impl FnOnce(&mut Kept) -> A) -> A {
        act(&mut self.kept.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn is_fresh(&self, since: Instant) -> bool {
        since.elapsed() < self.timeout
    }
}

impl StoresServerSessions for TlsSessions {
    fn put(&self, key: Vec<u8>, value: Vec<u8>) -> bool {
        self.with(|kept| {
            if kept.sessions.insert(key.clone(), (value, Instant::now())).is_none() {
                kept.order.push_back(key);
            }
            // Names of taken sessions count, too: the list of names must not outgrow the sessions.
            while let Some(oldest) = kept.order.front() {
                let is_fresh = kept.sessions.get(oldest).is_some_and(|(_, since)| self.is_fresh(*since));
                if is_fresh && kept.order.len() <= self.most {
                    break;
                }
                if let Some(oldest) = kept.order.pop_front() {
                    kept.sessions.remove(&oldest);
                }
            }
            true
        })
    }

    fn get(&self, key: &[u8]) -> Option<Vec<u8>> {
        let found = self.with(|kept| kept.sessions.get(key).cloned());
        found.filter(|(_, since)| self.is_fresh(*since)).map(|(value, _)| value)
    }

    fn take(&self, key: &[u8]) -> Option<Vec<u8>> {
        let found = self.with(|kept| kept.sessions.remove(key));
        found.filter(|(_, since)| self.is_fresh(*since)).map(|(value, _)| value)
    }

    fn can_cache(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(sessions: &TlsSessions, key: u8) {
        assert!(sessions.put(vec![key], vec![key, key]));
    }

    #[test]
    fn the_oldest_sessions_are_dropped_first() {
        let sessions = TlsSessions::new(3, 300);
        (1..=5).for_each(|key| put(&sessions, key));
        assert_eq!([1, 2, 3, 5].map(|key| sessions.get(&[key]).is_some()), [false, false, true, true]);
        assert_eq!(sessions.take(&[3]), Some(vec![3, 3]));
        assert_eq!(sessions.take(&[3]), None);
        for key in 0..=255 {
            put(&sessions, key);
            sessions.take(&[key]);
        }
        assert!(sessions.with(|kept| kept.order.len()) <= 3);
    }

    #[test]
    fn old_sessions_are_not_resumed() {
        let sessions = TlsSessions::new(0, 0);
        put(&sessions, 1);
        assert_eq!((sessions.get(&[1]), sessions.take(&[1])), (None, None));
    }
}
