//! Coordination loads: each as this server's own command, and as the best script that does the same on any server.

use super::{Draw, Load, PLAIN};
use crate::requests::{NUMBER, encode};
use crate::scripts;

/// A load in two forms with the same effect.
pub(crate) struct Pair {
    pub name: &'static str,
    /// By a command of this server.
    pub command: Load,
    /// By scripts.
    pub scripts: Load,
}

/// A holder's name, as long as a UUID.
const HOLDER: &str = "7d9f3a52-1c4e-4b8a-9f60-2e5d8c7b1a34";
/// Enough keys that two clients hardly ever want the same one.
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

/// Stocks: fewer than keys, so that several orders hold units of one.
const STOCKS: u64 = 10_000;

/// Each stock with a million units.
fn stocks() -> Vec<(Vec<u8>, u64)> {
    vec![(encode(&["STOCK.SET", &format!("stock:{NUMBER}"), "1000000"]), STOCKS)]
}

/// A call of a script that reserves one unit for an order, then a call that settles it.
fn reserve_and_settle(draw: &mut Draw, order: &str, to: &str) -> Vec<u8> {
    let stock = draw.one_of("stock", STOCKS);
    let (holds, units) = (format!("holds:{stock}"), format!("units:{stock}"));
    let reserve = encode(&["EVALSHA", &draw.sha(0), "3", &stock, &holds, &units, order, "1", "30000"]);
    [reserve, encode(&["EVALSHA", &draw.sha(1), "3", &stock, &holds, &units, order, to])].concat()
}

pub(crate) static STOCK_CANCEL: Pair = Pair {
    name: "stock, reserve and cancel",
    command: Load {
        name: "STOCK.RESERVE, STOCK.CANCEL",
        keys: 0,
        data: stocks,
        request: |draw| {
            let (stock, order) = (draw.one_of("stock", STOCKS), draw.one_of("order", KEYS));
            let reserve = encode(&["STOCK.RESERVE", &stock, &order, "PX", "30000"]);
            [reserve, encode(&["STOCK.CANCEL", &stock, &order])].concat()
        },
        replies: 2,
        ..PLAIN
    },
    scripts: Load {
        name: "EVALSHA of a stock with holds, reserve and cancel",
        keys: 0,
        scripts: &[scripts::STOCK_RESERVE, scripts::STOCK_SETTLE],
        request: |draw| {
            let order = draw.one_of("order", KEYS);
            reserve_and_settle(draw, &order, "left")
        },
        replies: 2,
        ..PLAIN
    },
};

/// The command remembers each order as sold, each under a name of its own.
pub(crate) static STOCK_COMMIT: Pair = Pair {
    name: "stock, reserve and commit",
    command: Load {
        name: "STOCK.RESERVE, STOCK.COMMIT",
        request: |draw| {
            let (stock, order) = (draw.one_of("stock", STOCKS), format!("order:{NUMBER}"));
            let reserve = encode(&["STOCK.RESERVE", &stock, &order, "PX", "30000"]);
            [reserve, encode(&["STOCK.COMMIT", &stock, &order])].concat()
        },
        grows: true,
        ..STOCK_CANCEL.command
    },
    scripts: Load {
        name: "EVALSHA of a stock with holds, reserve and commit",
        request: |draw| reserve_and_settle(draw, &format!("order:{NUMBER}"), "sold"),
        grows: true,
        ..STOCK_CANCEL.scripts
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
