//! Latencies of commands, as LATENCY and INFO report them, against both servers: every call is counted, and slow ones
//! leave samples.

use std::collections::BTreeMap;

use crate::crowd::on_both;
use crate::harness::{Program, Raw, Server, Value};

on_both!(
    every_call_is_in_the_histogram,
    percentiles_are_the_configured_ones,
    calls_are_not_counted_while_tracking_is_off,
    slow_commands_leave_samples,
    without_a_threshold_no_samples_are_kept,
);

/// LATENCY HISTOGRAM: for each command the calls, and how many took at most how many microseconds.
fn histograms(raw: &mut Raw, asked: &[&str]) -> BTreeMap<String, (i64, Vec<(i64, i64)>)> {
    let reply = raw.command(&[&["LATENCY", "HISTOGRAM"], asked].concat());
    let commands = elements(&reply).chunks_exact(2).map(|pair| {
        let [_, calls, _, steps] = elements(&pair[1]) else { panic!("not a histogram: {:?}", pair[1]) };
        let steps = elements(steps).chunks_exact(2).map(|step| (integer(&step[0]), integer(&step[1]))).collect();
        (text(&pair[0]), (integer(calls), steps))
    });
    commands.collect()
}

fn elements(value: &Value) -> &[Value] {
    match value {
        Value::Array(elements) => elements,
        other => panic!("not an array: {other:?}"),
    }
}

fn integer(value: &Value) -> i64 {
    match value {
        Value::Integer(integer) => *integer,
        other => panic!("not an integer: {other:?}"),
    }
}

fn text(value: &Value) -> String {
    String::from_utf8_lossy(value.bytes().expect("text")).into_owned()
}

/// A command's line of INFO latencystats, after its name.
fn percentiles(raw: &mut Raw, command: &str) -> Option<String> {
    let info = text(&raw.command(&["INFO", "latencystats"]));
    let start = format!("latency_percentiles_usec_{command}:");
    info.lines().find_map(|line| Some(line.strip_prefix(&start)?.to_owned()))
}

fn set(raw: &mut Raw, name: &str, value: &str) {
    assert_eq!(raw.command(&["CONFIG", "SET", name, value]), Value::status("OK"), "{name} {value}");
}

fn every_call_is_in_the_histogram(program: Program) {
    let server = Server::start(program, &["--enable-debug-command", "yes"]);
    let mut raw = server.raw();
    for _ in 0..100 {
        raw.command(&["SET", "k", "v"]);
    }
    raw.command(&["CLIENT", "ID"]);
    raw.command(&["CLIENT", "GETNAME"]);
    raw.command(&["DEBUG", "SLEEP", "0.02"]);
    raw.command(&["EVAL", "return redis.call('GET', KEYS[1])", "1", "k"]);
    let found = histograms(&mut raw, &["set", "client", "debug", "nosuch", "zadd", "get"]);
    let names: Vec<&str> = found.keys().map(String::as_str).collect();
    assert_eq!(names, ["client|getname", "client|id", "debug", "get", "set"]);
    let (calls, steps) = &found["set"];
    assert_eq!((*calls, steps.last().map(|(_, calls)| *calls)), (100, Some(100)));
    assert!(steps.is_sorted_by(|a, b| a.0 < b.0 && a.1 < b.1), "not cumulative: {steps:?}");
    let [(micros, 1)] = found["debug"].1[..] else { panic!("one call is one step: {:?}", found["debug"]) };
    // A busy machine may take longer; a wrong unit would be off by a thousand.
    assert!((20_000..10_000_000).contains(&micros), "20 ms are not {micros} us");
    let all = histograms(&mut raw, &[]);
    assert!(all.contains_key("latency|histogram") && all.contains_key("eval"), "{:?}", all.keys());
    raw.command(&["CONFIG", "RESETSTAT"]);
    assert_eq!(histograms(&mut raw, &["set", "config"]).keys().collect::<Vec<_>>(), ["config|resetstat"]);
}

fn percentiles_are_the_configured_ones(program: Program) {
    let server = Server::start(program, &["--enable-debug-command", "yes"]);
    let mut raw = server.raw();
    raw.command(&["DEBUG", "SLEEP", "0.02"]);
    let line = percentiles(&mut raw, "debug").expect("it was called");
    let micros: Vec<(&str, f64)> = line
        .split(',')
        .map(|field| field.split_once('=').map(|(name, micros)| (name, micros.parse().expect("a number"))))
        .map(|pair| pair.expect("a field"))
        .collect();
    assert_eq!(micros.iter().map(|(name, _)| *name).collect::<Vec<_>>(), ["p50", "p99", "p99.9"]);
    // A busy machine may take longer; a wrong unit would be off by a thousand.
    assert!(micros.iter().all(|(_, micros)| (20_000.0..10_000_000.0).contains(micros)), "{line}");
    set(&mut raw, "latency-tracking-info-percentiles", "0.0 12.50 100");
    let now = raw.command(&["CONFIG", "GET", "latency-tracking-info-percentiles"]);
    assert_eq!(text(&elements(&now)[1]), "0 12.5 100");
    let line = percentiles(&mut raw, "debug").expect("it was called");
    assert!(line.starts_with("p0=") && line.contains(",p12.5=") && line.contains(",p100="), "{line}");
    for (value, why) in [
        ("10 x", "Invalid latency-tracking-info-percentiles parameters"),
        ("10 101", "latency-tracking-info-percentiles parameters should sit between [0.0,100.0]"),
        ("-1", "latency-tracking-info-percentiles parameters should sit between [0.0,100.0]"),
    ] {
        let refused = "ERR CONFIG SET failed (possibly related to argument 'latency-tracking-info-percentiles') - ";
        let answer = raw.command(&["CONFIG", "SET", "latency-tracking-info-percentiles", value]);
        assert_eq!(answer, Value::error(&format!("{refused}{why}")), "{value}");
    }
    set(&mut raw, "latency-tracking-info-percentiles", "");
    assert_eq!(percentiles(&mut raw, "debug").as_deref(), Some(""));
}

fn calls_are_not_counted_while_tracking_is_off(program: Program) {
    let server = Server::start(program, &["--latency-tracking", "no"]);
    let mut raw = server.raw();
    raw.command(&["SET", "k", "v"]);
    assert!(histograms(&mut raw, &[]).is_empty() && percentiles(&mut raw, "set").is_none());
    set(&mut raw, "latency-tracking", "yes");
    raw.command(&["SET", "k", "v"]);
    set(&mut raw, "latency-tracking", "no");
    raw.command(&["SET", "k", "v"]);
    raw.command(&["GET", "k"]);
    let found = histograms(&mut raw, &["set", "get"]);
    assert_eq!((found.len(), found["set"].0), (1, 1), "earlier counts stay");
    set(&mut raw, "latency-tracking", "yes");
    raw.command(&["SET", "k", "v"]);
    assert_eq!(histograms(&mut raw, &["set"])["set"].0, 2, "counting continues from the earlier counts");
}

fn slow_commands_leave_samples(program: Program) {
    let flags = ["--enable-debug-command", "yes", "--latency-monitor-threshold", "10"];
    let server = Server::start(program, &flags);
    let mut raw = server.raw();
    raw.command(&["PING"]);
    assert_eq!(raw.command(&["LATENCY", "LATEST"]), Value::Array(vec![]));
    raw.command(&["DEBUG", "SLEEP", "0.02"]);
    let latest = raw.command(&["LATENCY", "LATEST"]);
    let [event] = elements(&latest) else { panic!("one event: {latest:?}") };
    let [name, at, last, longest] = elements(event) else { panic!("four fields: {event:?}") };
    assert_eq!((text(name), integer(last)), ("command".to_owned(), integer(longest)));
    assert!((20..2_000).contains(&integer(last)), "{event:?}");
    let history = raw.command(&["LATENCY", "HISTORY", "command"]);
    assert_eq!(history, Value::Array(vec![Value::Array(vec![at.clone(), last.clone()])]));
    let graph = text(&raw.command(&["LATENCY", "GRAPH", "command"]));
    let head = format!("command - high {last:?} ms, low {last:?} ms (all time high {last:?} ms)\n");
    assert!(graph.starts_with(&head) && graph.contains(&"-".repeat(80)), "{graph}");
    assert!(text(&raw.command(&["LATENCY", "DOCTOR"])).contains("command"));
    assert_eq!(
        raw.command(&["LATENCY", "GRAPH", "nosuch"]),
        Value::error("ERR No samples available for event 'nosuch'")
    );
    assert_eq!(raw.command(&["LATENCY", "HISTORY", "nosuch"]), Value::Array(vec![]));
    assert_eq!(raw.command(&["LATENCY", "RESET", "nosuch"]), Value::Integer(0));
    assert_eq!(raw.command(&["LATENCY", "RESET", "COMMAND"]), Value::Integer(1));
    assert_eq!(raw.command(&["LATENCY", "LATEST"]), Value::Array(vec![]));
}

fn without_a_threshold_no_samples_are_kept(program: Program) {
    let server = Server::start(program, &["--enable-debug-command", "yes", "--slowlog-log-slower-than", "-1"]);
    let mut raw = server.raw();
    raw.command(&["DEBUG", "SLEEP", "0.02"]);
    assert_eq!(raw.command(&["LATENCY", "LATEST"]), Value::Array(vec![]));
    assert!(text(&raw.command(&["LATENCY", "DOCTOR"])).contains("latency-monitor-threshold"));
    set(&mut raw, "latency-monitor-threshold", "10");
    raw.command(&["DEBUG", "SLEEP", "0.02"]);
    assert_eq!(elements(&raw.command(&["LATENCY", "LATEST"])).len(), 1);
    assert_eq!(raw.command(&["SLOWLOG", "LEN"]), Value::Integer(0), "the slow log is still off");
    set(&mut raw, "latency-monitor-threshold", "0");
    assert_eq!(elements(&raw.command(&["LATENCY", "LATEST"])).len(), 1, "earlier samples stay");
}
