//! Publish and subscribe: the subscribers of channels and patterns, and the messages that wait for delivery
//! ([`super::publish`]).

use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;

use crate::base::fit::fit_map;
use crate::base::glob;
use crate::session::Session;
use crate::session::subscriptions::{Space, SubscriptionKind};
use crate::spec::session_key::SessionKey;

/// All subscribers.
#[derive(Default)]
pub struct PubSub {
    /// The subscribers of channels, by name.
    pub channels: Channels,
    /// The subscribers of patterns.
    pub patterns: Patterns,
    /// The subscribers of sharded channels, by name.
    pub sharded: Channels,
}

/// Channels with their subscribers, in the order of subscription.
#[derive(Default)]
pub struct Channels(HashMap<Box<[u8]>, Vec<SessionKey>>);

impl Channels {
    /// The number of channels with subscribers.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether no channel has subscribers.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The names of the channels with subscribers, in no particular order.
    pub fn names(&self) -> impl Iterator<Item = &[u8]> {
        self.0.keys().map(|name| &**name)
    }

    /// The subscribers of a channel.
    pub fn listeners(&self, name: &[u8]) -> &[SessionKey] {
        self.0.get(name).map_or(&[], Vec::as_slice)
    }

    /// Adds a subscriber that is not subscribed to this channel yet.
    fn add(&mut self, name: &[u8], listener: SessionKey) {
        self.0.entry(name.into()).or_default().push(listener);
    }

    fn remove(&mut self, name: &[u8], listener: SessionKey) {
        let Some(listeners) = self.0.get_mut(name) else { return };
        listeners.retain(|known| *known != listener);
        if listeners.is_empty() {
            self.0.remove(name);
            fit_map(&mut self.0);
        }
    }
}

/// Patterns with their subscribers. Delivery visits every pattern, in the order of their first subscriptions;
/// subscribing and unsubscribing visit none.
#[derive(Default)]
pub struct Patterns {
    /// The key of each pattern in `in_order`.
    numbers: HashMap<Rc<[u8]>, u64>,
    in_order: BTreeMap<u64, Pattern>,
    last_number: u64,
}

/// The subscribers of one pattern, or of the channel itself.
pub(in crate::engine) type Subscribers = (Option<Rc<[u8]>>, Vec<SessionKey>);

pub(in crate::engine) struct Pattern {
    pub(in crate::engine) glob: Rc<[u8]>,
    /// In the order in which they came.
    pub(in crate::engine) listeners: Vec<SessionKey>,
}

impl Patterns {
    /// How many different patterns there are.
    pub fn len(&self) -> usize {
        self.in_order.len()
    }

    /// Whether there are no patterns.
    pub fn is_empty(&self) -> bool {
        self.in_order.is_empty()
    }

    /// Adds a subscriber that is not subscribed to this pattern yet.
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

impl PubSub {
    /// Returns the channels of one space.
    pub fn channels_of(&self, space: Space) -> &Channels {
        match space {
            Space::Global => &self.channels,
            Space::Sharded => &self.sharded,
        }
    }

    /// The patterns that match a channel, with their listeners.
    pub(in crate::engine) fn matching(&self, space: Space, channel: &[u8]) -> impl Iterator<Item = &Pattern> {
        let patterns = (space == Space::Global).then_some(&self.patterns);
        patterns.into_iter().flat_map(move |patterns| patterns.matching(channel))
    }

    /// The subscribers of a channel: those of its name, then those of each pattern that matches it.
    pub(in crate::engine) fn subscribers(&self, space: Space, channel: &[u8]) -> Vec<Subscribers> {
        let listeners = self.channels_of(space).listeners(channel);
        let by_name = (!listeners.is_empty()).then(|| (None, listeners.to_vec()));
        let patterns = self.matching(space, channel);
        let by_pattern = patterns.map(|pattern| (Some(pattern.glob.clone()), pattern.listeners.clone()));
        by_name.into_iter().chain(by_pattern).collect()
    }

    /// Subscribes; false when the session already was.
    pub fn subscribe(&mut self, session: &mut Session, kind: SubscriptionKind, name: &[u8]) -> bool {
        let is_new = session.subscriptions.add(kind, name);
        if is_new {
            match kind {
                SubscriptionKind::Channel(Space::Global) => self.channels.add(name, session.key),
                SubscriptionKind::Pattern => self.patterns.add(name, session.key),
                SubscriptionKind::Channel(Space::Sharded) => self.sharded.add(name, session.key),
            }
            session.refresh_subscriber_gate();
        }
        is_new
    }

    /// Unsubscribes; false when the session was not subscribed.
    pub fn unsubscribe(&mut self, session: &mut Session, kind: SubscriptionKind, name: &[u8]) -> bool {
        let was_there = session.subscriptions.remove(kind, name);
        if was_there {
            match kind {
                SubscriptionKind::Channel(Space::Global) => self.channels.remove(name, session.key),
                SubscriptionKind::Pattern => self.patterns.remove(name, session.key),
                SubscriptionKind::Channel(Space::Sharded) => self.sharded.remove(name, session.key),
            }
            session.refresh_subscriber_gate();
        }
        was_there
    }

    /// Ends all subscriptions of a session.
    pub fn forget(&mut self, session: &mut Session) {
        for kind in SubscriptionKind::ALL {
            let names: Vec<Box<[u8]>> = session.subscriptions.of(kind).map(Box::from).collect();
            for name in names {
                self.unsubscribe(session, kind, &name);
            }
        }
    }
}

/// Messages published by a script that may yet be rolled back, or inside a unit that the journal does not have yet.
#[derive(Default)]
pub(crate) struct HeldMessages {
    /// Where the messages of each holder begin: those of an EXEC, and those of a script that runs in it.
    pub(in crate::engine) begins: Vec<usize>,
    pub(in crate::engine) messages: Vec<Message>,
    pub(in crate::engine) bytes: usize,
}

pub(in crate::engine) struct Message {
    pub(in crate::engine) space: Space,
    pub(in crate::engine) channel: Box<[u8]>,
    pub(in crate::engine) text: Box<[u8]>,
}

impl Message {
    pub(in crate::engine) fn bytes(&self) -> usize {
        self.channel.len() + self.text.len() + size_of::<Message>()
    }
}
