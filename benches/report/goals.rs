//! The performance goals as numbers, and whether the data meets them. Ratios are to the better peer.

use crate::figures::{Row, Table};

/// A number that must stay on its side of a bound, in every case it covers.
struct Goal {
    what: &'static str,
    number: Number,
    bound: Bound,
}

/// The source of a number. A case is given by its whole name, or by its first words.
enum Number {
    /// The ratio of our result to the better peer's: table, cases, quantity.
    Ratio(&'static str, &'static [&'static str], &'static str),
    /// Our result: table, quantity, in all cases.
    Ours(&'static str, &'static str),
    /// Our result: table, cases, quantity.
    OursOf(&'static str, &'static str, &'static str),
    /// The difference of our results in two cases: table, case, case to subtract, quantity.
    Excess(&'static str, &'static str, &'static str, &'static str),
    /// The quotient of two of our quantities, in all cases: table, quantity, divisor.
    Quotient(&'static str, &'static str, &'static str),
    /// The difference of two of our quantities, in all cases: table, quantity, quantity to subtract.
    Difference(&'static str, &'static str, &'static str),
}

enum Bound {
    AtMost(f64),
    AtLeast(f64),
}

use Bound::{AtLeast, AtMost};
use Number::{Difference, Excess, Ours, OursOf, Quotient, Ratio};

/// Eviction policies that all servers have.
const EVICTIONS: &[&str] =
    &["allkeys-lru", "allkeys-lfu", "allkeys-random", "volatile-lru", "volatile-lfu", "volatile-ttl"];

const GOALS: [Goal; 44] = [
    goal("memory of a string of 10 bytes", Ratio("memory", &["string of 10 bytes"], "bytes per key"), AtMost(0.85)),
    goal(
        "memory of a counter with a deadline",
        Ratio("memory", &["counter with a deadline"], "bytes per key"),
        AtMost(0.65),
    ),
    goal("memory of a lock", Ratio("memory", &["lock of 37 bytes with a deadline"], "bytes per key"), AtMost(0.75)),
    goal("bytes of a held lock", OursOf("memory", "held lock, owner of 36 bytes", "bytes per key"), AtMost(160.0)),
    goal("bytes of a gate", OursOf("memory", "gate of 60 holders of 36 bytes", "bytes per key"), AtMost(6_144.0)),
    goal(
        "memory of a small collection",
        Ratio("memory", &["hash of 5 fields", "set of 10", "sorted set of 10", "list of 10"], "bytes per key"),
        AtMost(0.85),
    ),
    goal("insertion of 20 million keys", Ratio("growth", &["insertion"], "keys/s"), AtLeast(1.3)),
    goal(
        "longest wait during insertion, ms above that of an idle server",
        Excess("growth", "insertion", "nothing", "longest ms"),
        AtMost(2.0),
    ),
    goal("longest wait while keys expire, ms above that of an idle server", longest_beside("expiry"), AtMost(2.0)),
    goal("longest wait while leases end, ms above that of an idle server", longest_beside("leases"), AtMost(2.0)),
    goal(
        "longest wait while a large set is deleted, ms above that of an idle server",
        longest_beside("deletion"),
        AtMost(2.0),
    ),
    goal(
        "longest wait while saving, ms above that of an idle server",
        Difference("saving", "saving, longest ms", "idle, longest ms"),
        AtMost(2.0),
    ),
    goal(
        "CPU time without pipelining",
        Ratio("pipeline", &["GET, P=1", "SET, P=1", "INCR, P=1"], "CPU us/op"),
        AtMost(0.93),
    ),
    goal("CPU time, P=16", Ratio("pipeline", &["GET, P=16", "SET, P=16", "INCR, P=16"], "CPU us/op"), AtMost(0.62)),
    goal("throughput, P=100", Ratio("pipeline", &["GET, P=100", "SET, P=100"], "requests/s"), AtLeast(2.4)),
    goal(
        "CPU time of other writes, P=16",
        Ratio("commands", &["XADD", "SADD", "ZADD", "HSET", "LPUSH", "XADD+XREADGROUP+XACK"], "CPU us/op"),
        AtMost(0.7),
    ),
    goal(
        "CPU time of requests with many elements, P=16",
        Ratio("commands", &["MSET of 10", "LRANGE of 100", "HGETALL of 100", "ZRANGE of 100"], "CPU us/op"),
        AtMost(0.7),
    ),
    goal("CPU time of GET of 4 KB and 64 KB", Ratio("get_by_size", &["4096", "65536"], "CPU us/op"), AtMost(1.0)),
    goal("CPU time of SET of 4 KB and 64 KB", Ratio("set_by_size", &["4096", "65536"], "CPU us/op"), AtMost(1.0)),
    goal(
        "throughput of the users' gate",
        Ratio("scripts", &["EVALSHA of the users' gate"], "requests/s"),
        AtLeast(2.6),
    ),
    goal(
        "throughput of the users' seckill",
        Ratio("scripts", &["EVALSHA of the users' seckill"], "requests/s"),
        AtLeast(2.2),
    ),
    goal(
        "throughput of durable locks and gates, over scripts without durability",
        Ratio("coordination", &["lock", "gate of 60"], "requests/s"),
        AtLeast(3.0),
    ),
    goal(
        "throughput of durable stocks, over scripts without durability",
        Ratio("coordination", &["stock"], "requests/s"),
        AtLeast(3.0),
    ),
    goal(
        "throughput of three durable limits in one decision, over scripts without durability",
        Ratio("coordination", &["three fixed windows"], "requests/s"),
        AtLeast(4.0),
    ),
    goal(
        "throughput of durable ONCE INCR, over scripts without durability",
        Ratio("coordination", &["INCR"], "requests/s"),
        AtLeast(2.0),
    ),
    goal("hand-overs of a lock that 200 wait for", Ratio("hand_over", &["200"], "hand-overs/s"), AtLeast(3.0)),
    goal(
        "CPU time of a message to a thousand subscribers",
        Ratio("fan_out", &["1", "16"], "CPU us/delivery"),
        AtMost(0.7),
    ),
    goal("CPU time of a TLS handshake", Ratio("handshakes", &["1000"], "CPU us/connection"), AtMost(0.7)),
    goal("CPU time by TLS, P=16", Ratio("tls", &["GET", "SET"], "CPU us/op"), AtMost(0.7)),
    goal("keys found in a full cache", Ratio("eviction", EVICTIONS, "% found"), AtLeast(0.98)),
    goal("throughput of a full cache", Ratio("eviction", EVICTIONS, "new keys/s"), AtLeast(1.5)),
    goal("memory back after an expiry, s", Ours("expiry", "s until the memory is back"), AtMost(3.0)),
    goal(
        "p99 during an expiry over that of an idle server",
        Quotient("expiry", "meanwhile, p99 ms", "idle, p99 ms"),
        AtMost(2.0),
    ),
    goal(
        "CPU time of a leader of three, over that of a single durable server",
        Ratio("group", &["INCR, P=16", "gate of 60, P=16"], "CPU us/op"),
        AtMost(2.0),
    ),
    goal(
        "CPU time of a follower, over that of its leader",
        Quotient("group", "follower, CPU us/op", "CPU us/op"),
        AtMost(0.5),
    ),
    goal("throughput of a group, over etcd", Ratio("beside_etcd", &["SET of 100 bytes"], "requests/s"), AtLeast(5.0)),
    goal("kill -9 of a leader, median ms", OursOf("failover", "kill -9 of the leader", "p50 ms"), AtMost(350.0)),
    goal("kill -9 of a leader, p99 ms", OursOf("failover", "kill -9 of the leader", "p99 ms"), AtMost(900.0)),
    goal("transfer of leadership, p99 ms", OursOf("failover", "transfer", "p99 ms"), AtMost(100.0)),
    goal("a leader stands still, p99 ms", OursOf("failover", "the leader stands still", "p99 ms"), AtMost(1_000.0)),
    goal("kill -9 of all nodes, p99 ms", OursOf("failover", "kill -9 of all nodes", "p99 ms"), AtMost(2_000.0)),
    goal("memory of a leader while nodes catch up", Ours("catching_up", "memory of the leader"), AtMost(1.2)),
    goal("memory of a node that catches up", Ours("catching_up", "of the node"), AtMost(1.2)),
    goal("memory of its followers meanwhile", Ours("catching_up", "of the others"), AtMost(1.2)),
];

/// The longest wait under a load, less the longest at an idle server.
const fn longest_beside(table: &'static str) -> Number {
    Difference(table, "meanwhile, longest ms", "idle, longest ms")
}

const fn goal(what: &'static str, number: Number, bound: Bound) -> Goal {
    Goal { what, number, bound }
}

/// The goals as a table.
pub(crate) fn markdown(tables: &[&Table]) -> String {
    let rows = GOALS.iter().map(|goal| {
        let bound = match goal.bound {
            AtMost(bound) => format!("at most {bound}"),
            AtLeast(bound) => format!("at least {bound}"),
        };
        let (worst, holds) = match goal.worst(tables) {
            Some(worst) => (format!("{worst:.2}"), if goal.holds(worst) { "yes" } else { "no" }),
            None => ("not measured".to_owned(), ""),
        };
        format!("| {} | {bound} | {worst} | {holds} |\n", goal.what)
    });
    rows.fold("| goal | bound | worst case | holds |\n|---|---|--:|---|\n".to_owned(), |text, row| text + &row)
}

impl Goal {
    fn holds(&self, value: f64) -> bool {
        match self.bound {
            AtMost(bound) => value <= bound,
            AtLeast(bound) => value >= bound,
        }
    }

    /// The number in its worst case; `None` if any of its cases was not measured.
    fn worst(&self, tables: &[&Table]) -> Option<f64> {
        let values = self.number.values(tables)?.into_iter();
        match self.bound {
            AtMost(_) => values.max_by(f64::total_cmp),
            AtLeast(_) => values.min_by(f64::total_cmp),
        }
    }
}

impl Number {
    fn values(&self, tables: &[&Table]) -> Option<Vec<f64>> {
        let find = |name: &str| tables.iter().copied().find(|table| table.name == name);
        match *self {
            Ratio(table, cases, quantity) => {
                let table = find(table)?;
                let quantity = number_of(table, quantity);
                let ratios = |case: &&str| {
                    rows_of(table, case).map(|row| table.ratio(row, quantity)).collect::<Option<Vec<f64>>>()
                };
                let ratios = cases.iter().map(|case| ratios(case).filter(|ratios| !ratios.is_empty()));
                Some(ratios.collect::<Option<Vec<_>>>()?.concat())
            }
            Ours(table, quantity) => {
                let table = find(table)?;
                let quantity = number_of(table, quantity);
                Some(table.rows.iter().map(|row| ours(table, row, quantity)).collect())
            }
            OursOf(table, case, quantity) => {
                let table = find(table)?;
                let quantity = number_of(table, quantity);
                let values: Vec<f64> = rows_of(table, case).map(|row| ours(table, row, quantity)).collect();
                Some(values).filter(|values| !values.is_empty())
            }
            Excess(table, case, other, quantity) => {
                let table = find(table)?;
                let quantity = number_of(table, quantity);
                let of = |case: &str| Some(ours(table, rows_of(table, case).next()?, quantity));
                Some(vec![of(case)? - of(other)?])
            }
            Quotient(table, quantity, other) => Some(of_two(find(table)?, quantity, other, |a, b| a / b)),
            Difference(table, quantity, other) => Some(of_two(find(table)?, quantity, other, |a, b| a - b)),
        }
    }
}

/// Combines two of our quantities, in all cases.
fn of_two(table: &Table, quantity: &str, other: &str, of: fn(f64, f64) -> f64) -> Vec<f64> {
    let (quantity, other) = (number_of(table, quantity), number_of(table, other));
    table.rows.iter().map(|row| of(ours(table, row, quantity), ours(table, row, other))).collect()
}

/// Panics if the table lacks the quantity: such a goal would never be measured.
fn number_of(table: &Table, quantity: &str) -> usize {
    let number = table.quantities.iter().position(|known| known.name == quantity);
    number.unwrap_or_else(|| panic!("the table {} has no {quantity}", table.name))
}

fn ours(table: &Table, row: &Row, quantity: usize) -> f64 {
    row.median(quantity, table.servers.len() - 1)
}

/// The rows of a case: those with this name, and those whose name continues after it.
fn rows_of<'a>(table: &'a Table, case: &str) -> impl Iterator<Item = &'a Row> {
    let is_meant = move |row: &&Row| {
        let rest = row.case.strip_prefix(case);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with([' ', ',']))
    };
    table.rows.iter().filter(is_meant)
}
