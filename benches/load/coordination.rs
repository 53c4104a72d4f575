//! What coordinates: each load as this server's own command, and as the best script that does the same on any server.

use super::{Load, PLAIN};
use crate::requests::{NUMBER, encode};
use crate::scripts;

/// A load in two forms that do the same.
pub(crate) struct Pair {
    pub name: &'static str,
    /// By a command of this server.
    pub command: Load,
    /// By scripts.
    pub scripts: Load,
}

/// Who holds something: as long as a UUID.
const HOLDER: &str = "7d9f3a52-1c4e-4b8a-9f60-2e5d8c7b1a34";
/// So many that two clients hardly ever want the same one.
const KEYS: u64 = 100_000;

pub(crate) static LOCK: Pair = Pair {
    name: "lock, acquire and release",
    command: Load {
        name: "LOCK.ACQUIRE, LOCK.RELEASE",
        keys: 0,
        request: |draw| {
            let key = draw.one_of("lock", KEYS);
            let acquire = encode(&["LOCK.ACQUIRE", &key, HOLDER, "PX", "30000"]);
            [acquire, encode(&["LOCK.RELEASE", &key, HOLDER])].concat()
        },
        replies: 2,
        ..PLAIN
    },
    scripts: Load {
        name: "EVALSHA of lock_acquire, lock_release",
        keys: 0,
        scripts: &[include_str!("../../lua/lock_acquire.lua"), include_str!("../../lua/lock_release.lua")],
        request: |draw| {
            let (key, fence) = (draw.one_of("lock", KEYS), draw.one_of("fence", KEYS));
            let acquire = encode(&["EVALSHA", &draw.sha(0), "2", &key, &fence, HOLDER, "30000"]);
            [acquire, encode(&["EVALSHA", &draw.sha(1), "1", &key, HOLDER])].concat()
        },
        replies: 2,
        ..PLAIN
    },
};

pub(crate) static GATE: Pair = Pair {
    name: "gate of 60, acquire and release",
    command: Load {
        name: "GATE.ACQUIRE, GATE.RELEASE",
        keys: 0,
        request: |draw| {
            let key = draw.one_of("gate", KEYS);
            let acquire = encode(&["GATE.ACQUIRE", &key, HOLDER, "LIMIT", "60", "PX", "30000"]);
            [acquire, encode(&["GATE.RELEASE", &key, HOLDER])].concat()
        },
        replies: 2,
        ..PLAIN
    },
    scripts: Load {
        name: "EVALSHA of lease_gate_acquire, lease_gate_release",
        keys: 0,
        scripts: &[include_str!("../../lua/lease_gate_acquire.lua"), include_str!("../../lua/lease_gate_release.lua")],
        request: |draw| {
            let key = draw.one_of("gate", KEYS);
            let acquire = encode(&["EVALSHA", &draw.sha(0), "1", &key, HOLDER, "60", "30000"]);
            [acquire, encode(&["EVALSHA", &draw.sha(1), "1", &key, HOLDER])].concat()
        },
        replies: 2,
        ..PLAIN
    },
};

pub(crate) static LIMITS: Pair = Pair {
    name: "three fixed windows, all or none",
    command: Load {
        name: "LIMIT.TAKE",
        keys: 0,
        request: |draw| {
            let [second, minute, day] = ["second", "minute", "day"].map(|kind| draw.one_of(kind, KEYS));
            let rules = ["LIMIT.TAKE", "RULES", "3"].into_iter();
            let rules = rules.chain([second.as_str(), "FIXED", "1000000000", "1000"]);
            let rules = rules.chain([minute.as_str(), "FIXED", "1000000000", "60000"]);
            encode(&rules.chain([day.as_str(), "FIXED", "1000000000", "86400000"]).collect::<Vec<_>>())
        },
        ..PLAIN
    },
    scripts: Load {
        name: "EVALSHA of three windows",
        keys: 0,
        scripts: &[scripts::WINDOWS],
        request: |draw| {
            let [second, minute, day] = ["second", "minute", "day"].map(|kind| draw.one_of(kind, KEYS));
            let (sha, most) = (draw.sha(0), "1000000000");
            encode(&["EVALSHA", &sha, "3", &second, &minute, &day, most, "1000", most, "60000", most, "86400000"])
        },
        ..PLAIN
    },
};

pub(crate) static ONCE: Pair = Pair {
    name: "INCR, once for each request",
    command: Load {
        name: "ONCE INCR",
        keys: 0,
        request: |draw| {
            let counter = draw.one_of("counter", KEYS);
            encode(&["ONCE", &format!("request:{NUMBER}"), "PX", "60000", "INCR", &counter])
        },
        grows: true,
        ..PLAIN
    },
    scripts: Load {
        name: "EVALSHA of INCR once",
        keys: 0,
        scripts: &[scripts::INCR_ONCE],
        request: |draw| {
            let counter = draw.one_of("counter", KEYS);
            encode(&["EVALSHA", &draw.sha(0), "2", &format!("request:{NUMBER}"), &counter, "60000"])
        },
        grows: true,
        ..PLAIN
    },
};
