//! Publish and subscribe: who listens to which channel or pattern, and delivery.

use std::collections::{HashMap, HashSet};

use super::Server;
use super::session::{Session, SessionKey};
use crate::base::glob;
use crate::resp::reply::Reply;

/// What one session listens to.
#[derive(Default)]
pub struct Subscriptions {
    /// Channels by name.
    pub channels: HashSet<Box<[u8]>>,
    /// Patterns.
    pub patterns: HashSet<Box<[u8]>>,
}

impl Subscriptions {
    /// How many there are.
    pub fn len(&self) -> usize {
        self.channels.len() + self.patterns.len()
    }

    /// Whether there is none.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.channels.is_empty() && self.patterns.is_empty()
    }
}

/// Who listens.
#[derive(Default)]
pub struct PubSub {
    /// Listeners of each channel, in the order in which they came.
    pub channels: HashMap<Box<[u8]>, Vec<SessionKey>>,
    /// Listeners of each pattern; a list, because delivery visits every pattern in the order of its first subscription.
    pub patterns: Vec<(Box<[u8]>, Vec<SessionKey>)>,
}

/// Channel or pattern.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A channel by name.
    Channel,
    /// All channels that match a glob.
    Pattern,
}

impl PubSub {
    /// Subscribes; false when the session already was.
    pub fn subscribe(&mut self, session: &mut Session, kind: Kind, name: &[u8]) -> bool {
        let fresh = match kind {
            Kind::Channel => session.subscriptions.channels.insert(name.into()),
            Kind::Pattern => session.subscriptions.patterns.insert(name.into()),
        };
        if fresh {
            match kind {
                Kind::Channel => self.channels.entry(name.into()).or_default().push(session.key),
                Kind::Pattern => match self.patterns.iter_mut().find(|(pattern, _)| **pattern == *name) {
                    Some((_, listeners)) => listeners.push(session.key),
                    None => self.patterns.push((name.into(), vec![session.key])),
                },
            }
            session.refresh_subscriber_gate();
        }
        fresh
    }

    /// Unsubscribes; false when the session was not subscribed.
    pub fn unsubscribe(&mut self, session: &mut Session, kind: Kind, name: &[u8]) -> bool {
        let known = match kind {
            Kind::Channel => session.subscriptions.channels.remove(name),
            Kind::Pattern => session.subscriptions.patterns.remove(name),
        };
        if known {
            match kind {
                Kind::Channel => {
                    if let Some(listeners) = self.channels.get_mut(name) {
                        listeners.retain(|listener| *listener != session.key);
                        if listeners.is_empty() {
                            self.channels.remove(name);
                        }
                    }
                }
                Kind::Pattern => {
                    if let Some(at) = self.patterns.iter().position(|(pattern, _)| **pattern == *name) {
                        self.patterns[at].1.retain(|listener| *listener != session.key);
                        if self.patterns[at].1.is_empty() {
                            self.patterns.remove(at);
                        }
                    }
                }
            }
            session.refresh_subscriber_gate();
        }
        known
    }

    /// Ends all subscriptions of a session.
    pub fn forget(&mut self, session: &mut Session) {
        for (kind, names) in [
            (Kind::Channel, session.subscriptions.channels.iter().cloned().collect::<Vec<_>>()),
            (Kind::Pattern, session.subscriptions.patterns.iter().cloned().collect()),
        ] {
            for name in names {
                self.unsubscribe(session, kind, &name);
            }
        }
    }
}

impl Server {
    /// Delivers a message to everybody who listens; answers how many times it was delivered. `current` is the session whose
    /// command runs and which therefore is not among [`sessions`](Server::sessions).
    pub fn publish(&mut self, current: &mut Session, channel: &[u8], message: &[u8]) -> usize {
        let mut deliveries: Vec<(SessionKey, Option<usize>)> = Vec::new();
        if let Some(listeners) = self.pubsub.channels.get(channel) {
            deliveries.extend(listeners.iter().map(|listener| (*listener, None)));
        }
        for (index, (pattern, listeners)) in self.pubsub.patterns.iter().enumerate() {
            if glob::matches(pattern, channel) {
                deliveries.extend(listeners.iter().map(|listener| (*listener, Some(index))));
            }
        }
        let mut push = Reply::new(current.form());
        for (listener, pattern) in &deliveries {
            let session = match self.sessions.get_mut(*listener) {
                Some(session) => session,
                None if *listener == current.key => &mut *current,
                None => continue,
            };
            if session.killed {
                continue;
            }
            push.truncate(0);
            push.set_form(session.form());
            match pattern {
                None => {
                    push.push(3);
                    push.bulk(b"message");
                }
                Some(index) => {
                    push.push(4);
                    push.bulk(b"pmessage");
                    push.bulk(&self.pubsub.patterns[*index].0);
                }
            }
            push.bulk(channel);
            push.bulk(message);
            session.outbox.push(push.as_bytes());
            let limit = self.config.client_output_buffer_limit.pubsub;
            let unsent = session.outbox.len() as u64;
            if limit.hard_bytes > 0 && unsent > limit.hard_bytes {
                // At once, not after the command: a script may publish without end.
                tracing::warn!(client = session.key.id, unsent, "closed: does not read its output");
                self.stats.output_limit_disconnections += 1;
                session.outbox.clear();
                session.kill();
            } else if limit.soft_bytes > 0 && unsent > limit.soft_bytes && self.limits_due.last() != Some(listener) {
                self.limits_due.push(*listener);
            }
        }
        deliveries.len()
    }
}
