//! Data commands of Redis 8.10, compared with naive models, since no such server is at hand.
//!
//! LMOVEM is compared with two vectors, SUNIONCARD and SDIFFCARD with sets of the standard library. XREAD and
//! XREADGROUP with MAXCOUNT and MAXSIZE must return as many entries as a loop over all of them allows. Blocking, and
//! the text of each error, are in `transcripts`.

use std::collections::{BTreeMap, BTreeSet};

use crate::differential::generate::Dice;
use crate::harness::{Program, Raw, Server, Value};

/// Calls of each test.
const CALLS: usize = 1_500;

/// Lists by key.
type Lists = BTreeMap<&'static str, Vec<String>>;

#[test]
fn lmovem_moves_elements_like_two_vectors() {
    const KEYS: [&str; 3] = ["a", "b", "c"];
    let server = Server::start(Program::Tidegate, &["--list-max-listpack-size", "4"]);
    let mut raw = server.raw();
    let mut lists = Lists::new();
    let mut dice = Dice(1);
    let (mut moved, mut refused) = (0, 0);
    for call in 0..CALLS {
        let (source, destination) = (*dice.pick(&KEYS), *dice.pick(&KEYS));
        if dice.once_in(8) {
            raw.command(&["DEL", source]);
            lists.remove(source);
        }
        if dice.once_in(6) {
            let values: Vec<String> = (0..1 + dice.below(6)).map(|i| format!("{call}.{i}")).collect();
            let command = [&["RPUSH", source][..], &values.iter().map(String::as_str).collect::<Vec<_>>()].concat();
            raw.command(&command);
            lists.entry(source).or_default().extend(values);
            continue;
        }
        let ends = ["LEFT", "RIGHT"];
        let (from, to) = (*dice.pick(&ends), *dice.pick(&ends));
        let (kind, count, order) =
            (*dice.pick(&["", "COUNT", "EXACTLY"]), 1 + dice.below(7), *dice.pick(&["OBO", "BULK"]));
        let mut command = vec!["LMOVEM", source, destination, from, to];
        let count_text = count.to_string();
        if !kind.is_empty() {
            command.extend([kind, &count_text, order]);
        }
        let wanted = match kind {
            "" => (1, false, "OBO"),
            kind => (count, kind == "EXACTLY", order),
        };
        let answer = move_many(&mut lists, (source, from), (destination, to), wanted);
        let shown = match &answer {
            Some(elements) => strings(elements),
            None => Value::Null,
        };
        if answer.as_ref().is_some_and(|elements| !elements.is_empty()) { &mut moved } else { &mut refused }.add(1);
        assert_eq!(raw.command(&command), shown, "{command:?}");
        for key in KEYS {
            let held = lists.get(key).cloned().unwrap_or_default();
            assert_eq!(raw.command(&["LRANGE", key, "0", "-1"]), strings(&held), "{key} after {command:?}");
        }
    }
    assert!(moved > CALLS / 4 && refused > CALLS / 20, "{moved} calls moved something, {refused} did not");
}

/// Counts up.
trait Add {
    fn add(&mut self, n: usize);
}

impl Add for usize {
    fn add(&mut self, n: usize) {
        *self += n;
    }
}

/// Applies LMOVEM and returns its reply: `None` is null.
fn move_many(
    lists: &mut Lists,
    (source, from): (&'static str, &str),
    (destination, to): (&'static str, &str),
    (count, is_exact, order): (usize, bool, &str),
) -> Option<Vec<String>> {
    let list = lists.entry(source).or_default();
    if is_exact && list.len() < count {
        return None;
    }
    let count = count.min(list.len());
    let taken: Vec<String> = match from {
        "LEFT" => list.drain(..count).collect(),
        _ => (0..count).filter_map(|_| list.pop()).collect(),
    };
    // One by one, in the order in which they were popped.
    let target = lists.entry(destination).or_default();
    let before = target.len();
    let mut in_order = taken;
    if order == "BULK" && from == to {
        in_order.reverse();
    }
    for element in in_order {
        let at = if to == "LEFT" { 0 } else { target.len() };
        target.insert(at, element);
    }
    let new = if to == "LEFT" { 0..count } else { before..before + count };
    Some(target[new].to_vec())
}

fn strings(elements: &[String]) -> Value {
    Value::Array(elements.iter().map(|element| Value::bulk(element)).collect())
}

#[test]
fn sunioncard_and_sdiffcard_count_like_the_standard_sets() {
    let server = Server::start(Program::Tidegate, &[]);
    let mut raw = server.raw();
    let mut dice = Dice(2);
    let keys: Vec<String> = (0..8).map(|i| format!("s{i}")).collect();
    let mut sets: BTreeMap<&str, BTreeSet<usize>> = BTreeMap::new();
    for (i, key) in keys.iter().enumerate().skip(1) {
        // Integers, then text: every encoding.
        let (prefix, members) = if i % 2 == 0 { ("", 20) } else { ("0", 40 * i) };
        for _ in 0..members {
            let member = dice.below(200);
            raw.command(&["SADD", key, &format!("{prefix}{member}")]);
            sets.entry(key).or_default().insert(if prefix.is_empty() { member } else { 1_000 + member });
        }
    }
    for _ in 0..CALLS {
        let named: Vec<&str> = (0..1 + dice.below(7)).map(|_| dice.pick(&keys).as_str()).collect();
        let of = |key: &&str| sets.get(*key).cloned().unwrap_or_default();
        let union: BTreeSet<usize> = named.iter().flat_map(of).collect();
        let others: BTreeSet<usize> = named[1..].iter().flat_map(of).collect();
        let difference = of(&named[0]).difference(&others).count();
        let limit = dice.below(30);
        let (numkeys, limit_text) = (named.len().to_string(), limit.to_string());
        for (name, size) in [("SUNIONCARD", union.len()), ("SDIFFCARD", difference)] {
            let command = [&[name, &numkeys][..], &named].concat();
            assert_eq!(raw.command(&command), Value::Integer(size as i64), "{command:?}");
            let command = [&command[..], &["LIMIT", &limit_text]].concat();
            let wanted = if limit == 0 { size } else { size.min(limit) };
            assert_eq!(raw.command(&command), Value::Integer(wanted as i64), "{command:?}");
        }
        let command = [&["SUNIONCARD", &numkeys][..], &named, &["APPROX"]].concat();
        let Value::Integer(estimate) = raw.command(&command) else { panic!("{command:?} answers no number") };
        assert!(estimate.abs_diff(union.len() as i64) <= union.len() as u64 / 10 + 1, "{estimate} for {}", union.len());
    }
}

#[test]
fn a_read_ends_where_its_budget_is_used_up() {
    const STREAMS: [&str; 3] = ["s1", "s2", "s3"];
    let server = Server::start(Program::Tidegate, &[]);
    let mut raw = server.raw();
    let mut dice = Dice(3);
    let mut lengths = Vec::new();
    for stream in STREAMS {
        let length = 1 + dice.below(12);
        for id in 1..=length {
            raw.command(&["XADD", stream, &format!("{id}-0"), "f", &"v".repeat(100)]);
        }
        raw.command(&["XGROUP", "CREATE", stream, "g", "0"]);
        lengths.push(length);
    }
    for call in 0..CALLS / 5 {
        let count = dice.below(5);
        let max_count = dice.below(20).max(count);
        let max_size = dice.below(3_000);
        let mut options = Vec::new();
        for (word, number) in [("COUNT", count), ("MAXCOUNT", max_count), ("MAXSIZE", max_size)] {
            if number > 0 {
                options.extend([word.to_owned(), number.to_string()]);
            }
        }
        let options: Vec<&str> = options.iter().map(String::as_str).collect();
        // One after the other: as many as both numbers allow.
        let mut left = if max_count > 0 { max_count } else { usize::MAX };
        let wanted: Vec<usize> = lengths
            .iter()
            .map(|length| {
                let of_stream = (*length).min(if count > 0 { count } else { usize::MAX }).min(left);
                left -= of_stream;
                of_stream
            })
            .collect();
        let consumer = format!("c{call}");
        raw.command(&["XGROUP", "SETID", "s1", "g", "0"]);
        raw.command(&["XGROUP", "SETID", "s2", "g", "0"]);
        raw.command(&["XGROUP", "SETID", "s3", "g", "0"]);
        let streams = [&["STREAMS"][..], &STREAMS].concat();
        for (head, ids) in [(vec!["XREAD"], ["0"; 3]), (vec!["XREADGROUP", "GROUP", "g", &consumer], [">"; 3])] {
            let command = [&head[..], &options, &streams, &ids].concat();
            let (answered, bytes) = read(&mut raw, &command);
            let is_prefix = answered.iter().zip(&wanted).all(|(is, wanted)| is <= wanted);
            assert!(is_prefix && answered.iter().sum::<usize>() >= 1, "{command:?}: {answered:?}, not {wanted:?}");
            if max_size == 0 || answered != wanted {
                assert!(max_size > 0 || answered == wanted, "{command:?}: {answered:?}, not {wanted:?}");
                // It ended at the entry that passed the limit.
                assert!(answered == wanted || bytes >= max_size, "{command:?}: {bytes} bytes");
            }
            // All entries but the last are within the limit.
            let most = max_size + 250;
            assert!(max_size == 0 || bytes <= most, "{command:?}: {bytes} bytes");
        }
        let pending = raw.command(&["XREADGROUP", "GROUP", "g", &consumer, "MAXCOUNT", "2", "STREAMS", "s1", "0"]);
        let Value::Array(streams) = pending else { panic!("{pending:?}") };
        assert_eq!(streams.len(), 1, "a consumer's pending entries are returned within the limit, too");
    }
}

/// Returns how many entries of each stream a call returned, and the bytes of the reply.
fn read(raw: &mut Raw, command: &[&str]) -> (Vec<usize>, usize) {
    raw.send_command(command);
    let reply = raw.reply();
    let mut answered = vec![0; 3];
    let Value::Array(streams) = &reply.value else { panic!("{command:?}: {:?}", reply.value) };
    for stream in streams {
        let Value::Array(pair) = stream else { panic!("{stream:?}") };
        let (Value::Bulk(name), Value::Array(entries)) = (&pair[0], &pair[1]) else { panic!("{pair:?}") };
        answered[usize::from(name[1] - b'1')] = entries.len();
        assert!(!entries.is_empty(), "a stream that is named has entries");
    }
    (answered, reply.raw.len())
}
