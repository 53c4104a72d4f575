//! What a page can be shown: which questions are put to the engine for it, and its state as a page gets it.
//!
//! The state is a list of named fields. Only fields that have changed are sent, so a field should change only with what
//! it tells: times left become times of the clock, and stay as they are while they mean the same moment.

use serde_json::{Map, Value, json};

use super::super::limits::{EVENTS_AT_A_TIME, EVENTS_SHOWN_MAX};
use super::line::Words;
use super::reply::error_of;

/// Named fields.
pub(super) type Fields = Map<String, Value>;

/// See the file's header.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Topic {
    /// How the server is: INFO, and how long commands take.
    Overview,
    /// What has happened lately: EVENTS.
    Events,
    /// Holders and waiters of keys.
    Who(Keys),
    /// Stocks and their first holds.
    Stocks(Keys),
    /// Streams and their groups.
    Queues(Keys),
}

/// Keys of a database.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Keys {
    pub(super) db: u64,
    pub(super) names: Vec<Vec<u8>>,
}

/// The state of a topic between two rounds of questions.
#[derive(Default)]
pub(super) struct Memory {
    /// Questions of all topics that were asked so far.
    pub(super) asked: u64,
    /// Where EVENTS goes on.
    cursor: u64,
    /// Whether there is more to ask for at once.
    pub(super) has_more: bool,
    /// Calls by the microseconds that they took at most, since the start; `None` before the first reply.
    latencies: Option<Vec<(u64, u64)>>,
}

/// The field that says why the others are old.
pub(super) const NO_REPLY: &str = "no-reply";

/// Holders, waiters, events and holds of one key that are asked for.
const ROWS: &str = "20";

impl Topic {
    /// Its name, which the page gives and gets.
    pub(super) fn name(&self) -> &'static str {
        match self {
            Topic::Overview => "overview",
            Topic::Events => "events",
            Topic::Who(_) => "who",
            Topic::Stocks(_) => "stocks",
            Topic::Queues(_) => "queues",
        }
    }

    /// The database of its keys.
    pub(super) fn db(&self) -> u64 {
        match self {
            Topic::Overview | Topic::Events => 0,
            Topic::Who(keys) | Topic::Stocks(keys) | Topic::Queues(keys) => keys.db,
        }
    }

    /// The calls that tell the state.
    pub(super) fn questions(&self, memory: &Memory) -> Vec<Words> {
        match self {
            Topic::Overview => vec![
                words("INFO server clients memory persistence stats replication errorstats coordination keyspace"),
                words("LATENCY HISTOGRAM"),
            ],
            Topic::Events => vec![words(&format!("EVENTS {} COUNT {EVENTS_AT_A_TIME}", memory.cursor))],
            Topic::Who(keys) => keys.calls(&[("WHO", &["COUNT", ROWS])]),
            Topic::Stocks(keys) => keys.calls(&[("STOCK.INFO", &[]), ("STOCK.HOLDS", &["0", "COUNT", ROWS])]),
            Topic::Queues(keys) => keys.calls(&[("XLEN", &[]), ("XINFO GROUPS", &[])]),
        }
    }

    /// The state, from the replies to these calls at this time, and from the state before.
    pub(super) fn state(&self, memory: &mut Memory, before: &Fields, replies: Vec<Value>, now_ms: i64) -> Fields {
        match self {
            Topic::Overview => overview(memory, replies),
            Topic::Events => events(memory, before, replies),
            Topic::Who(keys) => keys.fields(1, replies, |key, mut replies| {
                let mut who = outcome(replies.pop());
                for list in ["holders", "waiters"] {
                    by_the_clock(&mut who, before.get(key), list, now_ms);
                }
                who
            }),
            Topic::Stocks(keys) => keys.fields(2, replies, |key, mut replies| {
                let holds = replies.pop();
                let mut stock = outcome(replies.pop());
                if let Value::Object(stock) = &mut stock {
                    match holds {
                        Some(Value::Array(holds)) => {
                            stock.insert("list".to_owned(), holds.into_iter().nth(1).unwrap_or_default());
                        }
                        // The user may see the stock, and not who holds it.
                        reply => refuse(stock, "list", reply),
                    }
                    stock.remove("next-end-ms");
                }
                by_the_clock(&mut stock, before.get(key), "list", now_ms);
                stock
            }),
            Topic::Queues(keys) => keys.fields(2, replies, |_, mut replies| {
                let groups = replies.pop().unwrap_or_default();
                let length = replies.pop().unwrap_or_default();
                match error_of(&groups).or(error_of(&length)) {
                    Some(error) => json!({ "error": error }),
                    None => json!({ "length": length, "groups": groups }),
                }
            }),
        }
    }
}

impl Keys {
    /// For each key these calls: their words before the key, and those behind it.
    fn calls(&self, calls: &[(&str, &[&str])]) -> Vec<Words> {
        let of_key = |key: &Vec<u8>| {
            let key = key.clone();
            calls.iter().map(move |(before, behind)| {
                let mut call = words(before);
                call.push(key.clone());
                call.extend(behind.iter().map(|word| word.as_bytes().to_vec()));
                call
            })
        };
        self.names.iter().flat_map(of_key).collect()
    }

    /// A field for each key, made of the replies to its `calls`. The field has the number of the key.
    fn fields(&self, calls: usize, replies: Vec<Value>, mut field: impl FnMut(&str, Vec<Value>) -> Value) -> Fields {
        let (mut fields, mut replies) = (Fields::new(), replies.into_iter());
        for number in 0..self.names.len() {
            let name = number.to_string();
            let value = field(&name, replies.by_ref().take(calls).collect());
            fields.insert(name, value);
        }
        fields
    }
}

fn words(line: &str) -> Words {
    line.split(' ').map(|word| word.as_bytes().to_vec()).collect()
}

/// The fields of a reply whose first element says whether there is what was asked for.
fn outcome(reply: Option<Value>) -> Value {
    match reply {
        Some(Value::Array(items)) => items.into_iter().nth(1).unwrap_or_default(),
        Some(reply) => reply,
        None => Value::Null,
    }
}

/// Times of which a page is told when they are over, and whether they are counted from now on, or until now.
const TIMES: [(&str, &str, i64); 3] =
    [("lease-ms", "ends-ms", 1), ("left-ms", "until-ms", 1), ("waits-ms", "since-ms", -1)];

/// Two times that differ by less mean one moment: that much may pass between the engine's clock and the reply.
const MOMENT_MS: i64 = 250;

/// Makes times left, in the items of a list, times of the clock. `before` is the value as it was.
fn by_the_clock(value: &mut Value, before: Option<&Value>, list: &str, now_ms: i64) {
    let items_before = before.and_then(|before| before.get(list)?.as_array());
    let Some(items) = value.get_mut(list).and_then(Value::as_array_mut) else { return };
    for item in items.iter_mut().filter_map(Value::as_object_mut) {
        let is_same = |other: &&Value| {
            ["holder", "token", "client-id", "ticket", "order"].iter().all(|name| other.get(name) == item.get(*name))
        };
        let item_before = items_before.and_then(|items| items.iter().find(is_same));
        for (left, at, sign) in TIMES {
            let Some(left_ms) = item.remove(left).and_then(|left_ms| left_ms.as_i64()) else { continue };
            let at_ms = if left_ms < 0 { -1 } else { now_ms + sign * left_ms };
            let known = item_before.and_then(|before| before.get(at)?.as_i64());
            let known = known.filter(|known| (known - at_ms).abs() < MOMENT_MS);
            item.insert(at.to_owned(), json!(known.unwrap_or(at_ms)));
        }
    }
}

/// Fields of INFO that change without saying anything.
const NOISE: &[&str] =
    &["server_time_usec", "lru_clock", "monotonic_clock", "executable", "redis_build_id", "gcc_version"];

fn overview(memory: &mut Memory, replies: Vec<Value>) -> Fields {
    let mut fields = Fields::new();
    let mut replies = replies.into_iter();
    match replies.next() {
        Some(Value::String(info)) => {
            let lines = info.lines().filter_map(|line| line.split_once(':'));
            for (name, value) in lines.filter(|(name, _)| !NOISE.contains(name)) {
                fields.insert(name.to_owned(), json!(value));
            }
        }
        reply => refuse(&mut fields, "info", reply),
    }
    match replies.next() {
        Some(Value::Object(histograms)) if !histograms.contains_key("error") => {
            let now = latencies(&histograms);
            for (name, share) in [("p50-us", 0.5), ("p99-us", 0.99)] {
                let known = memory.latencies.as_ref().and_then(|before| percentile(before, &now, share));
                fields.insert(name.to_owned(), known.map_or(Value::Null, Value::from));
            }
            memory.latencies = Some(now);
        }
        reply => refuse(&mut fields, "latency", reply),
    }
    fields.insert("console-calls".to_owned(), json!(memory.asked));
    fields
}

/// Says why something is not shown.
fn refuse(fields: &mut Fields, what: &str, reply: Option<Value>) {
    let text = reply.as_ref().and_then(error_of).unwrap_or("no reply").to_owned();
    fields.insert(format!("refused-{what}"), json!(text));
}

/// Commands by which the overview is asked for, which are slow beside those of programs and would be all that an idle
/// server shows.
const OWN_COMMANDS: &[&str] = &["info", "latency|histogram"];

/// How many calls took at most how many microseconds, over all commands.
fn latencies(histograms: &Fields) -> Vec<(u64, u64)> {
    let mut counts = std::collections::BTreeMap::<u64, u64>::new();
    let of_others = histograms.iter().filter(|(name, _)| !OWN_COMMANDS.contains(&name.as_str()));
    for (_, histogram) in of_others {
        let buckets = histogram.get("histogram_usec").and_then(Value::as_object);
        let mut before = 0;
        let mut buckets: Vec<(u64, u64)> = buckets
            .into_iter()
            .flatten()
            .filter_map(|(bound, count)| Some((bound.parse().ok()?, count.as_u64()?)))
            .collect();
        buckets.sort_unstable();
        for (bound_us, count) in buckets {
            *counts.entry(bound_us).or_default() += count.saturating_sub(before);
            before = count;
        }
    }
    counts.into_iter().collect()
}

/// The microseconds within which this share of the calls ended that were made between two counts.
fn percentile(before: &[(u64, u64)], now: &[(u64, u64)], share: f64) -> Option<u64> {
    let earlier = |bound: u64| before.iter().find(|(other, _)| *other == bound).map_or(0, |(_, count)| *count);
    let made: Vec<(u64, u64)> =
        now.iter().map(|(bound, count)| (*bound, count.saturating_sub(earlier(*bound)))).collect();
    let all: u64 = made.iter().map(|(_, count)| count).sum();
    let wanted = (all as f64 * share).ceil() as u64;
    let mut seen = 0;
    made.into_iter().find_map(|(bound, count)| {
        seen += count;
        (count > 0 && seen >= wanted).then_some(bound)
    })
}

/// The newest events, by their ids.
fn events(memory: &mut Memory, before: &Fields, replies: Vec<Value>) -> Fields {
    let reply = replies.into_iter().next();
    memory.has_more = false;
    if let Some(text) = reply.as_ref().and_then(error_of) {
        return Fields::from_iter([("refused".to_owned(), json!(text))]);
    }
    let mut said = outcome(reply);
    memory.cursor = said.get("next").and_then(Value::as_u64).unwrap_or(memory.cursor);
    let mut events = before.clone();
    events.remove("refused");
    events.remove(NO_REPLY);
    if let Some(Value::Array(new)) = said.get_mut("events").map(Value::take) {
        memory.has_more = new.len() >= EVENTS_AT_A_TIME;
        for event in new {
            // In one width, so that their order is that of their texts.
            let id = event.get("id").and_then(Value::as_u64).unwrap_or_default();
            events.insert(format!("{id:020}"), event);
        }
    }
    while events.len() > EVENTS_SHOWN_MAX {
        let oldest = events.keys().next().cloned().unwrap_or_default();
        events.remove(&oldest);
    }
    events
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_end_that_comes_nearer_is_no_change() {
        let topic = Topic::Who(Keys { db: 0, names: vec![b"k".to_vec()] });
        let mut memory = Memory::default();
        let reply = |lease_ms: i64, token: u64| {
            let holder = json!({"holder": "a", "token": token, "lease-ms": lease_ms});
            vec![json!([1, {"type": "lock", "holders": [holder], "waiters": []}])]
        };
        let first = topic.state(&mut memory, &Fields::new(), reply(5_000, 1), 100_000);
        assert_eq!(first["0"]["holders"][0]["ends-ms"], json!(105_000));
        assert_eq!(topic.state(&mut memory, &first, reply(4_001, 1), 101_003), first);
        let extended = topic.state(&mut memory, &first, reply(5_000, 1), 102_000);
        assert_eq!(extended["0"]["holders"][0]["ends-ms"], json!(107_000));
        assert_ne!(topic.state(&mut memory, &first, reply(4_000, 2), 101_000), first);
    }

    #[test]
    fn holds_that_may_not_be_seen_leave_the_stock() {
        let topic = Topic::Stocks(Keys { db: 0, names: vec![b"k".to_vec()] });
        let replies = vec![json!([1, {"available": 7}]), json!({"error": "NOPERM no"})];
        let state = topic.state(&mut Memory::default(), &Fields::new(), replies, 0);
        assert_eq!(state["0"], json!({"available": 7, "refused-list": "NOPERM no"}));
    }

    #[test]
    fn percentiles_are_those_of_the_calls_in_between() {
        let histograms = |count: u64| {
            Fields::from_iter([
                ("get".to_owned(), json!({"calls": count, "histogram_usec": {"1": 90, "2": 90 + count}})),
                ("info".to_owned(), json!({"calls": 7, "histogram_usec": {"512": 7}})),
            ])
        };
        let (before, now) = (latencies(&histograms(0)), latencies(&histograms(10)));
        assert_eq!(before, [(1, 90), (2, 0)]);
        assert_eq!(percentile(&[], &before, 0.99), Some(1));
        assert_eq!(percentile(&before, &now, 0.5), Some(2));
        assert_eq!(percentile(&now, &now, 0.5), None, "nothing happened");
    }

    #[test]
    fn the_newest_events_are_kept() {
        let mut memory = Memory::default();
        let reply = |ids: std::ops::Range<u64>, next: u64| {
            let events: Vec<Value> = ids.map(|id| json!({"id": id, "event": "granted"})).collect();
            vec![json!([1, {"next": next, "missed": 0, "events": events}])]
        };
        let most = EVENTS_SHOWN_MAX as u64;
        let state = events(&mut memory, &Fields::new(), reply(1..most + 1, 7));
        assert_eq!((state.len(), memory.cursor), (EVENTS_SHOWN_MAX, 7));
        let state = events(&mut memory, &state, reply(most + 1..most + 3, 8));
        assert_eq!(state.len(), EVENTS_SHOWN_MAX);
        assert_eq!(state.keys().next().map(String::as_str), Some("00000000000000000003"));
        assert!(Topic::Events.questions(&memory)[0].contains(&b"8".to_vec()));
        assert!(!memory.has_more);
        events(&mut memory, &state, reply(0..EVENTS_AT_A_TIME as u64, 9));
        assert!(memory.has_more, "not all have come");
    }
}
