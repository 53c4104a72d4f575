//! What both servers tell others of the same calls: keyspace notifications, and to those who cache, which keys have changed.
//!
//! Three clients listen to each server: one to all events; one in whose place the caller tracks the keys that it reads; one
//! that is told of all keys that change (BCAST). What they have heard of a pipeline is compared when its replies are there: events word by
//! word and in order; of the second, how often which key was told; of the third which, for Redis gathers those of one turn of its loop.

use std::collections::BTreeSet;

use crate::harness::{Raw, Server, Value};

/// Where the end of a pipeline is told.
const END: &str = "end";

/// The flags of a server that tells all events but those of misses: what a broken call has looked for before it is refused, differs.
pub(super) const FLAGS: [&str; 4] = ["--notify-keyspace-events", "AKEn", "--enable-debug-command", "yes"];

/// Those who listen to one server.
pub(super) struct Listeners {
    teller: Raw,
    events: Raw,
    /// Is told what the caller has read.
    tracking: Raw,
    /// Its number.
    tracking_id: String,
    broadcast: Raw,
}

/// What they have heard.
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

    /// From here on one of them is told of what this client reads. It speaks the same protocol: to one of RESP3 Redis tells for one of
    /// RESP2 in the words of RESP2 that all is gone.
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

/// The messages up to the one that tells the end. One of several keys counts as one for each.
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

/// What those have heard otherwise who listen to two servers; or only of events.
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
