//! Turns the record of a unit into the keyspace events that Redis publishes for it.
//!
//! Nearly every event follows from an effect and the command that made it: the effect says what happened to which key,
//! and the command's table entry names the event if one effect serves several commands
//! ([`Command::event`](crate::spec::Command::event)). Handlers report an event themselves
//! ([`Keyspace::note_event`](crate::keyspace::Keyspace::note_event)) only if Redis publishes one although nothing has
//! changed.
//!
//! A command that changes many elements of a key gives one event. A key that loses its last element then gives an event
//! of its deletion.

use std::collections::HashSet;

use crate::config::EventClasses;
use crate::engine::state::{CommandTable, Entry};
use crate::keyspace::NEVER;
use crate::keyspace::effect::{Cause, Effect, Effects, Note, What};
use crate::spec::Group;

/// An event of one key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(in crate::engine) struct Event<'a> {
    pub(in crate::engine) class: EventClasses,
    pub(in crate::engine) name: &'static str,
    pub(in crate::engine) db: u16,
    pub(in crate::engine) key: &'a [u8],
}

/// The event of commands that in Redis push to one list before they pop from another. Ours pop first, since both may be
/// one list.
pub(crate) const PUSH_FIRST: &str = "push first";

/// The event of commands that change how a value is stored, not its meaning.
pub(crate) const SILENT: &str = "silent";

/// Reports all events of a unit, in order.
pub(in crate::engine) fn of_unit<'a>(
    effects: &'a Effects,
    table: &'static CommandTable,
    mut report: impl FnMut(Event<'a>),
) {
    let mut call = Call::default();
    let mut notes = effects.notes().peekable();
    let mut grant_turns = effects.grant_turns().peekable();
    let mut reader = effects.iter();
    let all = reader.bytes_left();
    loop {
        let begin = all - reader.bytes_left();
        while let Some(note) = notes.next_if(|note| note.at <= begin) {
            match note.what {
                What::Command(index) => {
                    call.end(&mut report);
                    call.entry = table.by_index(index.into());
                    call.name = call.entry.map_or("", |entry| entry.command.event);
                }
                What::Named(name) => call.name = name,
                What::Created => call.created.push(note),
                What::Overdue => call.replace_overdue(note),
                What::Drained { is_set } => call.drained = Some(is_set),
                What::Reported(class, name) => call.events.push(Event { class, name, db: note.db, key: note.key }),
            }
        }
        while let Some((_, turn)) = grant_turns.next_if(|(at, _)| *at <= begin) {
            call.say(EventClasses::GRANT, turn.turn.name(), turn.db, turn.key);
        }
        let Some((db, effect)) = reader.next() else { break };
        let end = all - reader.bytes_left();
        // The key may have been created after the note was recorded.
        while let Some(note) =
            notes.next_if(|note| note.at == end && matches!(note.what, What::Created | What::Overdue))
        {
            match note.what {
                What::Overdue => call.replace_overdue(note),
                _ => call.created.push(note),
            }
        }
        call.add(db, &effect);
    }
    call.end(&mut report);
}

/// Up to this number of events are searched linearly.
const SEARCHED_EVENTS: usize = 32;

/// The events of one command.
#[derive(Default)]
struct Call<'a> {
    entry: Option<&'static Entry>,
    /// The command's name for its changes, if it does not follow from them.
    name: &'static str,
    events: Vec<Event<'a>>,
    /// An index of the first `indexed` events, used once there are many, as with a command about many keys.
    said: HashSet<Event<'a>>,
    indexed: usize,
    /// New keys whose events were not reported yet.
    created: Vec<Note<'a>>,
    /// Whether the next key that is removed, which has lost every element, is a set.
    drained: Option<bool>,
}

impl<'a> Call<'a> {
    /// Reports all events so far, and begins anew.
    fn end(&mut self, report: &mut impl FnMut(Event<'a>)) {
        if self.name == PUSH_FIRST {
            let is_push = |event: &Event<'_>| matches!(event.name, "new" | "lpush" | "rpush");
            self.events.sort_by_key(|event| !is_push(event));
        }
        self.events.drain(..).for_each(&mut *report);
        self.created.clear();
        self.said.clear();
        self.indexed = 0;
        self.name = "";
    }

    /// Handles an expired key that is created anew.
    fn replace_overdue(&mut self, note: Note<'a>) {
        self.say_gone(EventClasses::EXPIRED, "expired", note.db, note.key);
        self.created.push(note);
    }

    /// Adds an event after which the key exists.
    fn say(&mut self, class: EventClasses, name: &'static str, db: u16, key: &'a [u8]) {
        if name == SILENT {
            return;
        }
        let created = self.created.iter().position(|note| (note.db, note.key) == (db, key));
        let is_new = created.map(|at| self.created.remove(at)).is_some();
        let is_replaced = self.has_just_removed(db, key)
            && (self.has_just_drained(db, key) || STORES.iter().any(|(_, store)| *store == name));
        if is_replaced {
            self.events.pop();
            self.indexed = self.indexed.min(self.events.len());
        }
        if is_new && !is_replaced || name == "restore" {
            self.events.push(Event { class: EventClasses::NEW, name: "new", db, key });
        }
        self.events.push(Event { class, name, db, key });
    }

    /// Whether the last event is that the key is gone.
    fn has_just_removed(&self, db: u16, key: &[u8]) -> bool {
        self.events.last().is_some_and(|event| (event.name, event.db, event.key) == ("del", db, key))
    }

    /// Whether the key is gone because all its elements had expired. Redis keeps it until the command is over.
    fn has_just_drained(&self, db: u16, key: &[u8]) -> bool {
        let before = self.events.iter().rev().nth(1);
        before.is_some_and(|event| matches!(event.name, "hexpired" | "sexpired") && (event.db, event.key) == (db, key))
    }

    /// Adds an event after which the key does not exist.
    fn say_gone(&mut self, class: EventClasses, name: &'static str, db: u16, key: &'a [u8]) {
        self.events.push(Event { class, name, db, key });
    }

    /// Adds an event of a string. An event named by the command is added once.
    fn say_string(&mut self, db: u16, key: &'a [u8]) {
        match self.named("") {
            "" => self.say(EventClasses::STRING, "set", db, key),
            name => self.say_once(EventClasses::STRING, name, db, key, false),
        }
    }

    /// Adds an event of an effect on an element, unless the command has added it already.
    fn say_once(&mut self, class: EventClasses, name: &'static str, db: u16, key: &'a [u8], emptied: bool) {
        let event = Event { class, name, db, key };
        if !self.has_said(&event) {
            self.say(class, name, db, key);
        }
        if emptied {
            self.say_gone(EventClasses::GENERIC, "del", db, key);
        }
    }

    fn has_said(&mut self, event: &Event<'a>) -> bool {
        if self.events.len() <= SEARCHED_EVENTS {
            return self.events.contains(event);
        }
        // One that was taken back stays known here. It told that a key is gone, which is never asked for.
        self.said.extend(&self.events[self.indexed..]);
        self.indexed = self.events.len();
        self.said.contains(event)
    }

    /// The command's name for its changes, or else `name`.
    fn named(&self, name: &'static str) -> &'static str {
        if self.name.is_empty() || self.name == PUSH_FIRST { name } else { self.name }
    }

    fn is_of(&self, group: Group) -> bool {
        self.entry.is_some_and(|entry| entry.command.group == group)
    }

    fn add(&mut self, db: u16, effect: &Effect<'a>) {
        match *effect {
            Effect::Put { key, .. }
            | Effect::Replace { key, .. }
            | Effect::SetRange { key, .. }
            | Effect::SetInteger { key, .. }
            | Effect::SetText { key, .. }
            | Effect::Splice { key, .. } => self.say_string(db, key),
            Effect::Build { key, .. } | Effect::Complete { key, .. } => {
                let name = self.named("set");
                self.say(class_of_stored(name), name, db, key);
            }
            Effect::Del { key, cause } => self.add_removal(db, key, cause),
            Effect::ExpireAt { key, at_ms } => self.add_expiry(db, key, at_ms),
            Effect::Rename { key, to } => {
                self.events.push(Event { class: EventClasses::NEW, name: "new", db, key: to });
                self.say_gone(EventClasses::GENERIC, "rename_from", db, key);
                self.say(EventClasses::GENERIC, "rename_to", db, to);
            }
            Effect::Copy { to_db, to, .. } => self.say(EventClasses::GENERIC, "copy_to", to_db, to),
            Effect::Move { key, to_db } => {
                self.events.push(Event { class: EventClasses::NEW, name: "new", db: to_db, key });
                self.say_gone(EventClasses::GENERIC, "move_from", db, key);
                self.say(EventClasses::GENERIC, "move_to", to_db, key);
            }
            _ => self.add_of_element(db, effect),
        }
    }

    fn add_removal(&mut self, db: u16, key: &'a [u8], cause: Cause) {
        match (cause, self.drained.take()) {
            // All at once.
            (Cause::Command, _) if self.name == "spop" => self.say_once(EventClasses::SET, "spop", db, key, true),
            (Cause::Command, _) => self.say_gone(EventClasses::GENERIC, "del", db, key),
            (Cause::Eviction, _) => self.say_gone(EventClasses::EVICTED, "evicted", db, key),
            (Cause::Expiry, None) => self.say_gone(EventClasses::EXPIRED, "expired", db, key),
            (Cause::Expiry, Some(true)) => self.say_once(EventClasses::SET, "sexpired", db, key, true),
            (Cause::Expiry, Some(false)) => self.say_once(EventClasses::HASH, "hexpired", db, key, true),
        }
    }

    /// Handles an expiry: a key stored together with its expiry gives one event.
    fn add_expiry(&mut self, db: u16, key: &'a [u8], at_ms: i64) {
        if self.name != "restore" {
            self.say(EventClasses::GENERIC, if at_ms == NEVER { "persist" } else { "expire" }, db, key);
        }
    }

    fn add_of_element(&mut self, db: u16, effect: &Effect<'a>) {
        use EventClasses as Class;
        match *effect {
            Effect::GrantEnd { key, cause: Cause::Command, emptied: true, .. } => {
                self.say_gone(Class::GENERIC, "del", db, key);
            }
            Effect::HashSet { key, .. } | Effect::HashUpdate { key, .. } => {
                self.say_once(Class::HASH, self.named("hset"), db, key, false);
            }
            Effect::HashRemove { key, cause, emptied, .. } => {
                self.say_once(Class::HASH, if cause == Cause::Expiry { "hexpired" } else { "hdel" }, db, key, emptied);
            }
            Effect::ElementExpireAt { key, at_ms, .. } => {
                let (class, names) = match self.is_of(Group::Set) {
                    true => (Class::SET, ["sexpire", "spersist"]),
                    false => (Class::HASH, ["hexpire", "hpersist"]),
                };
                self.say_once(class, names[usize::from(at_ms == NEVER)], db, key, false);
            }
            Effect::SetAdd { key, .. } => self.say_once(Class::SET, self.named("sadd"), db, key, false),
            Effect::SetRemove { key, cause: Cause::Expiry, emptied, .. } => {
                self.say_once(Class::SET, "sexpired", db, key, emptied);
            }
            Effect::SetRemove { key, emptied, .. } => {
                self.say_once(Class::SET, self.named("srem"), db, key, emptied);
            }
            Effect::ZSetAdd { key, .. } => self.say_once(Class::ZSET, self.named("zadd"), db, key, false),
            Effect::ZSetRemove { key, emptied, .. } | Effect::ZSetRemoveRanks { key, emptied, .. } => {
                self.say_once(Class::ZSET, self.named("zrem"), db, key, emptied);
            }
            _ => self.add_of_list(db, effect),
        }
    }

    fn add_of_list(&mut self, db: u16, effect: &Effect<'a>) {
        let class = EventClasses::LIST;
        let push = |front| if front { "lpush" } else { "rpush" };
        let pop = |front| if front { "lpop" } else { "rpop" };
        match *effect {
            Effect::ListPush { key, front, .. } => self.say_once(class, self.named(push(front)), db, key, false),
            Effect::ListPop { key, front, emptied, .. } => {
                self.say_once(class, self.named(pop(front)), db, key, emptied);
            }
            Effect::ListRotate { key, from_front, to_front } => {
                self.say_once(class, push(to_front), db, key, false);
                self.say_once(class, pop(from_front), db, key, false);
            }
            Effect::ListSet { key, .. } => self.say_once(class, self.named("lset"), db, key, false),
            Effect::ListInsert { key, .. } => self.say_once(class, self.named("linsert"), db, key, false),
            Effect::ListNode { key, .. } => self.say_once(class, self.named("rpush"), db, key, false),
            Effect::ListRemove { key, emptied, .. } => {
                self.say_once(class, self.named("lrem"), db, key, emptied);
            }
            Effect::ListRemoveAt { key, .. } => self.say_once(class, self.named("lrem"), db, key, false),
            _ => self.add_of_stream(db, effect),
        }
    }

    fn add_of_stream(&mut self, db: u16, effect: &Effect<'a>) {
        let (key, name) = match *effect {
            Effect::StreamAppend { key, .. } | Effect::StreamRelease { key, .. } => (key, "xadd"),
            Effect::StreamDelay { key, .. } => (key, "xdelay"),
            Effect::StreamCancel { key, .. } => (key, "xdelay-cancel"),
            Effect::StreamTrim { key, .. } => (key, self.named("xtrim")),
            Effect::StreamDelete { key, .. } => (key, self.named("xdel")),
            // These effects give events only for the commands that are about them.
            Effect::StreamCounters { key, .. } if self.name == "xsetid" => (key, "xsetid"),
            Effect::GroupSetId { key, .. } if self.name == "xgroup-setid" => (key, "xgroup-setid"),
            Effect::GroupCreate { key, .. } => (key, "xgroup-create"),
            Effect::GroupDestroy { key, .. } => (key, "xgroup-destroy"),
            Effect::ConsumerCreate { key, .. } => (key, "xgroup-createconsumer"),
            Effect::ConsumerDelete { key, .. } => (key, "xgroup-delconsumer"),
            _ => return,
        };
        self.say_once(EventClasses::STREAM, name, db, key, false);
    }
}

/// The events of a whole value that replaced the old one, with their classes.
const STORES: [(EventClasses, &str); 10] = [
    (EventClasses::LIST, "sortstore"),
    (EventClasses::SET, "sinterstore"),
    (EventClasses::SET, "sunionstore"),
    (EventClasses::SET, "sdiffstore"),
    (EventClasses::ZSET, "zinterstore"),
    (EventClasses::ZSET, "zunionstore"),
    (EventClasses::ZSET, "zdiffstore"),
    (EventClasses::ZSET, "zrangestore"),
    (EventClasses::ZSET, "geosearchstore"),
    (EventClasses::ZSET, "georadiusstore"),
];

/// The class of an event of a whole value.
fn class_of_stored(name: &str) -> EventClasses {
    let store = STORES.iter().find(|(_, store)| *store == name).map(|(class, _)| *class);
    let is_generic = ["restore", "copy_to"].contains(&name);
    store.unwrap_or(if is_generic { EventClasses::GENERIC } else { EventClasses::STRING })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each of many events was compared with all before it: a command about a hundred thousand keys took minutes.
    #[test]
    fn events_of_very_many_keys_are_sent_once_each() {
        let keys: Vec<String> = (0..200_000).map(|number| format!("key:{number}")).collect();
        let mut call = Call::default();
        let say =
            |call: &mut Call<'_>, key: &'static str| call.say_once(EventClasses::SET, "sadd", 0, key.as_bytes(), false);
        let keys: &'static [String] = keys.leak();
        for (at, key) in keys.iter().enumerate() {
            say(&mut call, key);
            say(&mut call, &keys[at / 2]);
        }
        assert_eq!(call.events.len(), keys.len());
        // One that is stored in the place of a key that has just gone takes that event back.
        call.say_gone(EventClasses::GENERIC, "del", 0, b"stored");
        say(&mut call, "key:1");
        call.say_gone(EventClasses::GENERIC, "del", 0, b"stored");
        call.say(EventClasses::SET, "sinterstore", 0, b"stored");
        say(&mut call, "another");
        say(&mut call, "another");
        let last: Vec<&str> = call.events[keys.len()..].iter().map(|event| event.name).collect();
        assert_eq!(last, ["del", "sinterstore", "sadd"]);
        let mut told = 0;
        call.end(&mut |_| told += 1);
        say(&mut call, "another");
        assert_eq!((told, call.events.len()), (keys.len() + 3, 1), "the next call sends events of its own");
    }
}
