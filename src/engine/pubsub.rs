//! Publish and subscribe: who listens to which channel or pattern, and what waits to be delivered ([`super::publish`]).

use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;

use super::session::{Session, SessionKey};
use crate::base::fit::fit_map;
use crate::base::glob;

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

pub(super) struct Pattern {
    pub(super) glob: Rc<[u8]>,
    /// In the order in which they came.
    pub(super) listeners: Vec<SessionKey>,
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
    pub(super) fn matching(&self, channel: &[u8]) -> impl Iterator<Item = &Pattern> {
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
pub(crate) struct HeldMessages {
    /// Where the messages begin of each who holds them back: an EXEC, and the script that runs in it.
    pub(super) begins: Vec<usize>,
    pub(super) messages: Vec<Message>,
    pub(super) bytes: usize,
}

pub(super) struct Message {
    pub(super) channel: Box<[u8]>,
    pub(super) text: Box<[u8]>,
}

impl Message {
    pub(super) fn bytes(&self) -> usize {
        self.channel.len() + self.text.len() + size_of::<Message>()
    }
}
