//! How much a client may leave unread: `client-output-buffer-limit`, counted as in Redis.
//!
//! Redis checks when it adds to a client's replies, before any of them is offered to the socket. So do we, in three
//! places: when the input of a connection was answered (all replies count, though the socket might take them at once),
//! when something is pushed to a client, and when a socket takes no more. Up to [`OUTPUT_UNCOUNTED_BYTES`] do not
//! count: in Redis they lie in a fixed buffer of each client.
//!
//! A client with more unread bytes than the hard limit of its class is closed at once and gets none of them. Bytes that
//! wait for the journal are not the reader's fault. They do not count towards soft limits, and do not count at all for
//! clients that others push to, since these asked for nothing.
//!
//! Monitors are normal clients, which mostly have no limit. If so, the limit of replicas holds for them, so that no
//! monitor fills the memory. The same hard limit holds for the invalidations, but not the replies, of a client that
//! caches keys.

use super::clients::Clients;
use super::{ClientType, Restrictions, Session};
use crate::config::{Config, OutputLimit};
use crate::meters::stats::Stats;
use crate::persist::fences::Reach;
use crate::resp::limits::{REPLY_MAX_BYTES, REPLY_PAUSE_BYTES};
use crate::resp::reply::Reply;
use crate::session::limits::{OUTBOX_PAUSE_BYTES, OUTPUT_UNCOUNTED_BYTES, UNAUTHENTICATED_MAX_OUTPUT_BYTES};
use crate::spec::session_key::SessionKey;

/// Returns how many of the unsent bytes count.
#[inline]
fn counted(unsent: usize) -> u64 {
    if unsent > OUTPUT_UNCOUNTED_BYTES { unsent as u64 } else { 0 }
}

/// Whether a limit is exceeded; 0 means no limit.
#[inline]
fn exceeds(counted: u64, limit: u64) -> bool {
    limit > 0 && counted >= limit
}

fn limit_of(config: &Config, session: &Session) -> OutputLimit {
    let limits = &config.client_output_buffer_limit;
    match session.client_type() {
        ClientType::Pubsub => limits.pubsub,
        ClientType::Normal if session.is_monitor && is_unlimited(limits.normal) => limits.replica,
        ClientType::Normal => limits.normal,
    }
}

fn is_unlimited(limit: OutputLimit) -> bool {
    limit.hard_bytes == 0 && limit.soft_bytes == 0
}

/// Whether a client with this many unsent bytes must be closed.
pub(crate) fn is_too_much(config: &Config, session: &Session, unsent: usize) -> bool {
    let is_stranger = session.restrictions.contains(Restrictions::UNAUTHENTICATED);
    is_stranger && counted(unsent) > UNAUTHENTICATED_MAX_OUTPUT_BYTES
        || exceeds(counted(unsent), limit_of(config, session).hard_bytes)
}

fn note_closed(stats: &mut Stats, session: &Session, unsent: usize) {
    tracing::warn!(client = session.key.id, unsent, "closed: does not read its output");
    stats.output_limit_disconnections += 1;
}

/// Checks the output limits of sessions that receive pushes.
pub(crate) struct PushLimits<'a> {
    pub(crate) config: &'a Config,
    pub(crate) stats: &'a mut Stats,
    pub(crate) limits_due: &'a mut Vec<SessionKey>,
    pub(crate) reach: Reach,
}

impl PushLimits<'_> {
    /// Checks a session after a push, at once and not after the command: a script may push without end.
    pub(crate) fn hold(&mut self, session: &mut Session) {
        let limit = limit_of(self.config, session);
        let unsent = session.outbox.unread(self.reach);
        if exceeds(counted(unsent), limit.hard_bytes) {
            note_closed(self.stats, session, unsent);
            session.close_at_once();
        } else if exceeds(counted(unsent), limit.soft_bytes) && self.limits_due.last() != Some(&session.key) {
            self.limits_due.push(session.key);
        }
    }

    /// Checks a session after invalidations of this many bytes. Other clients can cause them without end; the session's
    /// own replies do not count here.
    pub(crate) fn hold_invalidated(&mut self, session: &mut Session, bytes: usize) {
        session.invalidation_bytes += bytes;
        self.hold(session);
        let limits = &self.config.client_output_buffer_limit;
        let unsent = session.outbox.unread(self.reach).min(session.invalidation_bytes);
        let is_ordinary = session.client_type() == ClientType::Normal && is_unlimited(limits.normal);
        if is_ordinary && !session.is_killed() && exceeds(counted(unsent), limits.replica.hard_bytes) {
            note_closed(self.stats, session, unsent);
            session.close_at_once();
        }
    }
}

impl Clients {
    /// Checks a session out of the registry after a push.
    pub(crate) fn hold_pushed(&mut self, config: &Config, stats: &mut Stats, reach: Reach, session: &mut Session) {
        PushLimits { config, stats, limits_due: &mut self.limits_due, reach }.hold(session);
    }

    /// Checks the replies `out` to a session's input, which are longer than the uncounted bytes. Closes the session if
    /// they are too many together with its unread bytes.
    #[cold]
    pub(crate) fn hold_answers_to_limit(
        &mut self,
        config: &Config,
        stats: &mut Stats,
        reach: Reach,
        session: &mut Session,
        out: &mut Reply,
    ) {
        let waiting = match session.client_type() {
            ClientType::Normal => session.outbox.len(),
            ClientType::Pubsub => session.outbox.unread(reach),
        };
        let unsent = waiting + out.len();
        if is_too_much(config, session, unsent) {
            note_closed(stats, session, unsent);
            out.truncate(0);
            session.close_at_once();
        }
    }

    /// Checks one client's unsent output against the limit of its kind.
    pub(crate) fn hold_to_output_limit(
        &mut self,
        config: &Config,
        stats: &mut Stats,
        reach: Reach,
        steady_ms: i64,
        key: SessionKey,
    ) {
        self.limits_due.push(key);
        self.enforce_output_limits(config, stats, reach, steady_ms);
    }

    /// Checks soft limits, which the mere passing of time can exceed.
    pub(crate) fn check_soft_limits(&mut self, config: &Config, stats: &mut Stats, reach: Reach, steady_ms: i64) {
        let over = self.sessions.iter().filter(|session| session.over_soft_since_ms.is_some());
        self.limits_due.extend(over.map(|session| session.key));
        self.enforce_output_limits(config, stats, reach, steady_ms);
    }

    /// Closes the clients that let more unsent output pile up than `client-output-buffer-limit` allows their kind.
    pub(crate) fn enforce_output_limits(&mut self, config: &Config, stats: &mut Stats, reach: Reach, steady_ms: i64) {
        for key in std::mem::take(&mut self.limits_due) {
            let Some(session) = self.sessions.get_mut(key) else { continue };
            let limit = limit_of(config, session);
            let unread = session.outbox.unread(reach);
            let unsent = match session.client_type() {
                ClientType::Normal if !session.is_monitor => session.outbox.len(),
                _ => unread,
            };
            let over_soft = exceeds(counted(unread), limit.soft_bytes);
            let since_ms = *session.over_soft_since_ms.get_or_insert(steady_ms);
            if !over_soft {
                session.over_soft_since_ms = None;
            }
            let too_long = over_soft && steady_ms - since_ms >= limit.soft_seconds as i64 * 1_000;
            if (too_long || is_too_much(config, session, unsent)) && !session.is_killed() {
                note_closed(stats, session, unsent);
                session.kill();
            }
        }
    }

    /// Handles a reply that would be longer than [`REPLY_MAX_BYTES`]: if a reply of that length would exceed the
    /// client's limit, the client is closed as if the reply had been made.
    #[cold]
    pub(crate) fn hold_endless_reply_to_limit(&mut self, config: &Config, stats: &mut Stats, session: &mut Session) {
        if is_too_much(config, session, REPLY_MAX_BYTES) {
            note_closed(stats, session, REPLY_MAX_BYTES);
            session.close_at_once();
        }
    }
}

/// Whether a pipeline has gathered so many replies that they should be sent first. With a hard limit, the limit must be
/// checked before anything is sent.
#[inline]
pub(crate) fn has_answered_enough(config: &Config, out: &Reply) -> bool {
    out.len() >= REPLY_PAUSE_BYTES && has_met_limit(config, out.len())
}

#[cold]
fn has_met_limit(config: &Config, bytes: usize) -> bool {
    let hard = config.client_output_buffer_limit.normal.hard_bytes;
    hard == 0 || bytes >= usize::try_from(hard).unwrap_or(usize::MAX).min(OUTBOX_PAUSE_BYTES)
}
