//! Messages that both servers send to other clients for the same calls: keyspace notifications and invalidations.
//!
//! Three clients listen to each server: one to all events; one that gets the invalidations for the keys read by the
//! caller; one that gets those for all changed keys (BCAST). Their messages for a pipeline are compared once its
//! replies are there: events word by word and in order; for the second client, the count of each key; for the third the
//! set of keys, since Redis batches those of one turn of its event loop.

use std::collections::BTreeSet;

use crate::harness::{Raw, Server, Value};

/// The channel for the mark at the end of a pipeline.
const END: &str = "end";

/// The flags of a server that notifies of all events except misses: servers differ in the lookups of a broken call
/// before it is refused.
pub(super) const FLAGS: [&str; 4] = ["--notify-keyspace-events", "AKEn", "--enable-debug-command", "yes"];

/// The listeners of one server.
pub(super) struct Listeners {
    teller: Raw,
    events: Raw,
    /// Gets the invalidations for the caller's reads.
    tracking: Raw,
    /// Its client id.
    tracking_id: String,
    broadcast: Raw,
}

/// The messages of all listeners.
#[derive(PartialEq)]
struct Heard {
    events: Vec<String>,
    changed: Vec<String>,
    broadcast: BTreeSet<String>,
}

impl Listeners {
    /// Connects them.
    pub(super) fn start(server: &Server) -> Listeners {
        let listener = || {
            let mut raw = server.raw();
            raw.hello3();
            raw.command(&["SUBSCRIBE", END]);
            raw
        };
        let (mut events, mut tracking, mut broadcast) = (listener(), server.raw(), listener());
        events.command(&["PSUBSCRIBE", "__key*"]);
        broadcast.command(&["CLIENT", "TRACKING", "ON", "BCAST"]);
        let Value::Integer(id) = tracking.command(&["CLIENT", "ID"]) else { panic!("a client has a number") };
        Listeners { teller: server.raw(), events, tracking, tracking_id: id.to_string(), broadcast }
    }

    /// From here on the tracking listener gets the invalidations for this client's reads. Both speak the same protocol:
    /// to a RESP3 listener of a RESP2 client Redis reports a flush in the words of RESP2.
    pub(super) fn track(&mut self, caller: &mut Raw, resp3: bool) {
        if resp3 {
            self.tracking.hello3();
        }
        self.tracking.command(&["SUBSCRIBE", END]);
        let reply = caller.command(&["CLIENT", "TRACKING", "ON", "REDIRECT", &self.tracking_id]);
        assert_eq!(reply, Value::status("OK"));
    }

    fn hear(&mut self) -> Heard {
        self.teller.command(&["PUBLISH", END, ""]);
        let mut changed = until_end(&mut self.tracking);
        changed.sort_unstable();
        Heard {
            events: until_end(&mut self.events),
            changed,
            broadcast: until_end(&mut self.broadcast).into_iter().collect(),
        }
    }
}

/// The messages up to the end mark. A message with several keys counts as one for each.
fn until_end(raw: &mut Raw) -> Vec<String> {
    let mut heard = Vec::new();
    loop {
        let (Value::Push(parts) | Value::Array(parts)) = raw.reply().value else { panic!("a listener reads messages") };
        match &parts[..] {
            [_, channel, _] if channel.bytes() == Some(END.as_bytes()) => return heard,
            [_, Value::Array(keys)] | [_, _, Value::Array(keys)] => {
                heard.extend(keys.iter().map(|key| format!("{key:?}")))
            }
            [_, Value::Null] | [_, _, Value::Null] => heard.push("all".to_owned()),
            [_, _, channel, message] => heard.push(format!("{channel:?} {message:?}")),
            _ => panic!("not a message: {parts:?}"),
        }
    }
}

/// The difference between the messages of two servers' listeners, or between their events alone.
pub(super) fn compare(ours: &mut Listeners, theirs: &mut Listeners, events_only: bool) -> Option<String> {
    let (ours, theirs) = (ours.hear(), theirs.hear());
    let differ = |what: &str, ours: Vec<&String>, theirs: Vec<&String>| {
        let from = ours.iter().zip(&theirs).take_while(|(a, b)| a == b).count();
        let told = |all: &[&String]| format!("{:?}", all.iter().skip(from).take(4).collect::<Vec<_>>());
        let (ours, theirs) = (told(&ours), told(&theirs));
        (ours != theirs).then(|| format!("({what})\n    ours:  {ours}\n    redis: {theirs}"))
    };
    let events = differ("events", ours.events.iter().collect(), theirs.events.iter().collect());
    if events_only || events.is_some() {
        return events;
    }
    let changed =
        differ("keys that were read and changed", ours.changed.iter().collect(), theirs.changed.iter().collect());
    changed.or_else(|| differ("changed keys", ours.broadcast.iter().collect(), theirs.broadcast.iter().collect()))
}
