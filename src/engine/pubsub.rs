//! Publish and subscribe: who listens to which channel or pattern, and delivery.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::rc::Rc;

use super::Server;
use super::error::Error;
use super::session::{Session, SessionKey};
use crate::base::fit::fit_map;
use crate::base::glob;
use crate::base::limits::HELD_MESSAGES_MAX_BYTES;
use crate::keyspace::Keyspace;
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
    /// Listeners of each pattern.
    pub patterns: Patterns,
}

/// Patterns with their listeners. Delivery visits every pattern, in the order of their first subscriptions; to subscribe
/// or unsubscribe visits none.
#[derive(Default)]
pub struct Patterns {
    /// The number under which each pattern stands in `in_order`.
    numbers: HashMap<Rc<[u8]>, u64>,
    in_order: BTreeMap<u64, Pattern>,
    last_number: u64,
}

struct Pattern {
    glob: Rc<[u8]>,
    /// In the order in which they came.
    listeners: Vec<SessionKey>,
}

impl Patterns {
    /// How many different patterns there are.
    pub fn len(&self) -> usize {
        self.in_order.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.in_order.is_empty()
    }

    /// Adds a listener that does not listen to this pattern yet.
    fn add(&mut self, glob: &[u8], listener: SessionKey) {
        if let Some(pattern) = self.numbers.get(glob).and_then(|number| self.in_order.get_mut(number)) {
            return pattern.listeners.push(listener);
        }
        self.last_number += 1;
        let glob: Rc<[u8]> = glob.into();
        self.numbers.insert(glob.clone(), self.last_number);
        self.in_order.insert(self.last_number, Pattern { glob, listeners: vec![listener] });
    }

    fn remove(&mut self, glob: &[u8], listener: SessionKey) {
        let Some(&number) = self.numbers.get(glob) else { return };
        let Some(pattern) = self.in_order.get_mut(&number) else { return };
        pattern.listeners.retain(|known| *known != listener);
        if pattern.listeners.is_empty() {
            self.in_order.remove(&number);
            self.numbers.remove(glob);
            fit_map(&mut self.numbers);
        }
    }

    /// The patterns that match a channel, with their listeners.
    fn matching(&self, channel: &[u8]) -> impl Iterator<Item = &Pattern> {
        self.in_order.values().filter(move |pattern| glob::matches(&pattern.glob, channel))
    }
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
                Kind::Pattern => self.patterns.add(name, session.key),
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
                            fit_map(&mut self.channels);
                        }
                    }
                }
                Kind::Pattern => self.patterns.remove(name, session.key),
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

/// What was published by a script that may yet be rolled back, or inside of a unit that the log does not have yet.
#[derive(Default)]
pub(crate) struct Held {
    /// Where the messages begin of each who holds them back: an EXEC, and the script that runs in it.
    begins: Vec<usize>,
    messages: Vec<Message>,
    bytes: usize,
}

struct Message {
    channel: Box<[u8]>,
    text: Box<[u8]>,
}

impl Message {
    fn bytes(&self) -> usize {
        self.channel.len() + self.text.len() + size_of::<Message>()
    }
}

/// What scripts and transactions publish.
impl Server {
    /// From here on messages wait for [`deliver_held`](Self::deliver_held) or [`drop_held`](Self::drop_held), each of which ends
    /// one such call.
    #[inline]
    pub(crate) fn hold_messages(&mut self) {
        self.held_messages.begins.push(self.held_messages.messages.len());
    }

    /// Delivers what waits, unless somebody else still holds it back. `current` as in [`publish`](Self::publish).
    #[inline]
    pub(crate) fn deliver_held(&mut self, ks: &Keyspace, current: &mut Session) {
        self.held_messages.begins.pop();
        if self.held_messages.messages.is_empty() || !self.held_messages.begins.is_empty() {
            return;
        }
        for Message { channel, text } in std::mem::take(&mut self.held_messages).messages {
            if self.deliver(ks, current, &channel, &text).is_err() {
                // It tells of something that is lost, and nobody hears it. Its publisher learns that from its own reply, which is
                // refused as if it showed what is lost.
                ks.see_everything();
            }
        }
    }

    /// Forgets what has come since it was held back; answers how many messages that were.
    pub(super) fn drop_held(&mut self) -> usize {
        let held = &mut self.held_messages;
        let begin = held.begins.pop().unwrap_or(0);
        let dropped = held.messages.drain(begin..);
        let count = dropped.len();
        held.bytes -= dropped.map(|message| message.bytes()).sum::<usize>();
        count
    }
}

impl Server {
    /// Delivers a message to everybody who listens, at once or when the script or transaction that publishes is done; answers how many
    /// times. `current` is the session whose command runs and which therefore is not among [`sessions`](Server::sessions).
    pub fn publish(
        &mut self,
        ks: &Keyspace,
        current: &mut Session,
        channel: &[u8],
        message: &[u8],
    ) -> Result<usize, Error> {
        let held = &mut self.held_messages;
        if held.begins.is_empty() {
            return self.deliver(ks, current, channel, message);
        }
        if held.bytes + channel.len() + message.len() > HELD_MESSAGES_MAX_BYTES {
            return Err(Error::text(
                "ERR a script or transaction can publish 64 MB at most; publish less, or from several",
            ));
        }
        let message = Message { channel: channel.into(), text: message.into() };
        held.bytes += message.bytes();
        held.messages.push(message);
        let listeners = self.pubsub.channels.get(channel).map_or(0, Vec::len);
        let matching = self.pubsub.patterns.matching(channel).map(|pattern| pattern.listeners.len());
        Ok(listeners + matching.sum::<usize>())
    }

    fn deliver(
        &mut self,
        ks: &Keyspace,
        current: &mut Session,
        channel: &[u8],
        message: &[u8],
    ) -> Result<usize, Error> {
        let fence = self.fence_so_far(ks, current);
        if self.is_lost(fence) {
            return Err(self.refusal());
        }
        let (safe, is_unlogged) = (self.safe(), self.is_unlogged());
        let mut deliveries: Vec<(SessionKey, Option<Rc<[u8]>>)> = Vec::new();
        if let Some(listeners) = self.pubsub.channels.get(channel) {
            deliveries.extend(listeners.iter().map(|listener| (*listener, None)));
        }
        for pattern in self.pubsub.patterns.matching(channel) {
            deliveries.extend(pattern.listeners.iter().map(|listener| (*listener, Some(pattern.glob.clone()))));
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
                Some(glob) => {
                    push.push(4);
                    push.bulk(b"pmessage");
                    push.bulk(glob);
                }
            }
            push.bulk(channel);
            push.bulk(message);
            session.outbox.push(push.as_bytes(), fence);
            let limit = self.config.client_output_buffer_limit.pubsub;
            let unsent = session.outbox.unread(safe, is_unlogged) as u64;
            if limit.hard_bytes > 0 && unsent > limit.hard_bytes {
                // At once, not after the command: a script may publish without end.
                tracing::warn!(client = session.key.id, unsent, "closed: does not read its output");
                self.stats.output_limit_disconnections += 1;
                session.outbox.clear();
                session.kill();
            } else if limit.soft_bytes > 0 && unsent > limit.soft_bytes && self.limits_due.last() != Some(listener) {
                self.limits_due.push(*listener);
            }
            self.hold(push.len(), fence);
            if self.is_lost(fence) {
                // The log was found to have failed just now; those who were told are disconnected.
                return Err(self.refusal());
            }
        }
        Ok(deliveries.len())
    }
}
