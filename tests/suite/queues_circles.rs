//! Streams that are each other's dead letters. Such a circle is refused where it can be seen when a policy is set, and
//! otherwise ended after some hops.

use crate::harness::{Program, Server, Value, until};
use crate::in_process::{Bench, words};
use crate::queues_policy::{array, entries, line, text, value};

/// How often a message may become a dead letter: `DEAD_LETTER_MAX_HOPS`.
const MAX_HOPS: usize = 8;

const CIRCLE: &str =
    "ERR dead letters would come back to this stream through the policies of the groups of the DLQ stream";

fn call(bench: &mut Bench, call: &str) -> Value {
    value(&bench.call(0, &words(&call.split(' ').collect::<Vec<_>>())))
}

fn set_policy(bench: &mut Bench, stream: &str, dlq: &str) -> Value {
    call(bench, &format!("XGROUP SETPOLICY {stream} g IDLE 100 MAXDELIVERIES 1 DLQ {dlq}"))
}

fn make_groups(bench: &mut Bench, streams: &[&str]) {
    for stream in streams {
        assert_eq!(call(bench, &format!("XGROUP CREATE {stream} g 0 MKSTREAM")), Value::ok());
    }
}

#[test]
fn a_circle_of_dead_letters_is_refused() {
    let mut bench = Bench::new(1);
    make_groups(&mut bench, &["a", "b", "c"]);
    assert_eq!(set_policy(&mut bench, "a", "b"), Value::ok());
    assert_eq!(set_policy(&mut bench, "b", "a"), Value::error(CIRCLE));
    assert_eq!(set_policy(&mut bench, "b", "c"), Value::ok());
    assert_eq!(set_policy(&mut bench, "c", "a"), Value::error(CIRCLE), "a longer one");
    assert_eq!(set_policy(&mut bench, "c", "b"), Value::error(CIRCLE));
    // Each policy may be set again. A circle further on that does not lead back to this stream is allowed.
    for (stream, dlq) in [("a", "b"), ("b", "c"), ("a", "c"), ("c", "elsewhere")] {
        assert_eq!(set_policy(&mut bench, stream, dlq), Value::ok(), "{stream} to {dlq}");
    }
    // Any of a stream's groups counts, while it has a policy.
    call(&mut bench, "XGROUP CREATE elsewhere other 0 MKSTREAM");
    assert_eq!(call(&mut bench, "XGROUP SETPOLICY elsewhere other IDLE 5 MAXDELIVERIES 1 DLQ x"), Value::ok());
    call(&mut bench, "XGROUP CREATE elsewhere another 0");
    let back = "XGROUP SETPOLICY elsewhere another IDLE 5 MAXDELIVERIES 1 DLQ b";
    assert_eq!(call(&mut bench, back), Value::error(CIRCLE));
    assert_eq!(call(&mut bench, "XGROUP SETPOLICY c g IDLE 5"), Value::ok());
    assert_eq!(call(&mut bench, back), Value::ok());
    assert_eq!(set_policy(&mut bench, "c", "elsewhere"), Value::error(CIRCLE));
    // A key that is not a stream, or is in another database, leads nowhere.
    call(&mut bench, "SET text 1");
    assert_eq!(set_policy(&mut bench, "c", "text"), Value::ok());
    call(&mut bench, "SELECT 1");
    make_groups(&mut bench, &["b", "a"]);
    assert_eq!(set_policy(&mut bench, "b", "a"), Value::ok());
}

/// With very many groups not all are checked: an undecided case is not refused, and ends by its hops.
#[test]
fn the_search_for_a_circle_takes_bounded_time() {
    let mut bench = Bench::new(1);
    let names: Vec<String> = (0..300).map(|number| format!("s{number}")).collect();
    make_groups(&mut bench, &names.iter().map(String::as_str).collect::<Vec<_>>());
    for pair in names.windows(2) {
        assert_eq!(set_policy(&mut bench, &pair[0], &pair[1]), Value::ok());
    }
    assert_eq!(set_policy(&mut bench, "s299", "s200"), Value::error(CIRCLE));
    assert_eq!(set_policy(&mut bench, "s299", "s0"), Value::ok());
}

/// A circle that no call has set: after RENAME, the group of `c` is one of `b`.
fn make_circle(bench: &mut Bench) {
    make_groups(bench, &["a", "c"]);
    assert_eq!(set_policy(bench, "a", "b"), Value::ok());
    assert_eq!(set_policy(bench, "c", "a"), Value::ok());
    assert_eq!(call(bench, "RENAME c b"), Value::ok());
}

/// Delivers the new entries of both streams, and lets them become dead letters.
fn go_round(bench: &mut Bench) {
    for stream in ["a", "b"] {
        bench.call(0, &words(&["XREADGROUP", "GROUP", "g", "ann", "STREAMS", stream, ">"]));
    }
    bench.pass(1_000);
    bench.reclaim();
}

/// The last field of each entry, with its value.
fn last_fields(bench: &mut Bench, stream: &str) -> Vec<[String; 2]> {
    let all = entries(call(bench, &format!("XRANGE {stream} - +")));
    all.into_iter().map(|(_, pairs)| [pairs[pairs.len() - 2].clone(), pairs[pairs.len() - 1].clone()]).collect()
}

#[test]
fn messages_leave_a_circle_after_some_hops() {
    let mut bench = Bench::new(1);
    make_circle(&mut bench);
    call(&mut bench, "XADD a 1-1 order 7");
    for hop in 1..=MAX_HOPS {
        go_round(&mut bench);
        let at = if hop % 2 == 1 { "b" } else { "a" };
        let last = last_fields(&mut bench, at).pop().expect("it is there");
        assert_eq!(last, ["dlq-hops".to_owned(), hop.to_string()]);
    }
    for _ in 0..3 {
        go_round(&mut bench);
        let lengths = ["a", "b"].map(|stream| last_fields(&mut bench, stream).len());
        assert_eq!(lengths, [1 + MAX_HOPS / 2, MAX_HOPS / 2], "neither grows any more");
    }
    // It stays where it is, and no consumer holds it.
    for stream in ["a", "b"] {
        assert_eq!(array(call(&mut bench, &format!("XPENDING {stream} g - + 9"))), []);
    }
    let told = format!("{:?}", call(&mut bench, "EVENTS 0 COUNT 100"));
    assert_eq!(told.matches("\"dead-letter\"").count(), MAX_HOPS);
    assert_eq!(told.matches("\"dead-letter-stays\"").count(), 1);
    // Other messages of the group are delivered as before.
    call(&mut bench, "XADD a * order 8");
    go_round(&mut bench);
    assert_eq!(last_fields(&mut bench, "b").pop(), Some(["dlq-hops".to_owned(), "1".to_owned()]));
    // Put back by hand, it has one hop less behind it.
    let back = array(call(&mut bench, "XDLQ.REDRIVE a b START 2"));
    assert_eq!(back[0], Value::Integer(1), "{back:?}");
    let fields = last_fields(&mut bench, "b");
    assert!(fields.contains(&["dlq-hops".to_owned(), (MAX_HOPS - 1).to_string()]), "{fields:?}");
}

/// A dead letter from before `dlq-hops` existed has one hop behind it, and an invalid number counts as absent.
#[test]
fn hops_are_counted_from_the_field_of_the_message() {
    let old = "dlq-stream s dlq-group g dlq-id 1-1 dlq-consumer c dlq-deliveries 1 dlq-time 1";
    for (says, hops) in [("", 2), (" dlq-hops 7", 8), (" dlq-hops seven", 1)] {
        let mut bench = Bench::new(1);
        make_groups(&mut bench, &["a"]);
        assert_eq!(set_policy(&mut bench, "a", "d"), Value::ok());
        call(&mut bench, &format!("XADD a 1-1 order 7 {old}{says}"));
        go_round(&mut bench);
        assert_eq!(last_fields(&mut bench, "d"), [["dlq-hops".to_owned(), hops.to_string()]], "{says}");
    }
}

/// Hops last as long as the message: over a crash, and in a snapshot.
#[test]
fn hops_survive_a_restart_and_their_end_is_logged() {
    let dir = tempfile::tempdir().expect("a directory");
    let start = || {
        let flags = ["--dir", dir.path().to_str().expect("plain text"), "--appendonly", "yes"];
        Server::start(Program::Tidegate, &flags)
    };
    let server = start();
    let mut raw = server.raw();
    for made in ["XGROUP CREATE a g 0 MKSTREAM", "XGROUP CREATE c g 0 MKSTREAM"] {
        assert_eq!(line(&mut raw, made), Value::ok());
    }
    for (stream, dlq) in [("a", "b"), ("c", "a")] {
        let set = format!("XGROUP SETPOLICY {stream} g IDLE 1 MAXDELIVERIES 1 DLQ {dlq}");
        assert_eq!(line(&mut raw, &set), Value::ok());
    }
    assert_eq!(line(&mut raw, "RENAME c b"), Value::ok());
    line(&mut raw, "XADD a 1-1 order 7");
    drop(raw);
    let mut servers = vec![server];
    for hop in 1..=MAX_HOPS {
        if hop == 3 || hop == 6 {
            let server = servers.pop().expect("one runs");
            if hop == 6 {
                assert_eq!(line(&mut server.raw(), "SAVE"), Value::ok());
            }
            drop(server);
            servers.push(start());
        }
        let mut raw = servers[0].raw();
        let (from, to) = if hop % 2 == 1 { ("a", "b") } else { ("b", "a") };
        line(&mut raw, &format!("XREADGROUP GROUP g ann STREAMS {from} >"));
        let said = || {
            let last = array(line(&mut raw, &format!("XREVRANGE {to} + - COUNT 1"))).pop()?;
            array(array(last).pop()?).last().map(text)
        };
        let mut said = said;
        until(|| said() == Some(hop.to_string()), "the message moves on with its hop recorded");
    }
    let mut raw = servers[0].raw();
    let last = if MAX_HOPS % 2 == 1 { "b" } else { "a" };
    line(&mut raw, &format!("XREADGROUP GROUP g ann STREAMS {last} >"));
    until(|| array(line(&mut raw, &format!("XPENDING {last} g - + 9"))).is_empty(), "the message is given up");
    until(|| servers[0].log().contains("dead letters stay where they are"), "the warning is in the log");
    let log = servers[0].log();
    let warning = log.lines().find(|line| line.contains("dead letters stay where they are"));
    let warning = warning.unwrap_or_else(|| panic!("no warning in {log}"));
    assert!(warning.contains("WARN") && warning.contains("stream=a") && warning.contains("group=g"), "{warning}");
}

/// Where two groups of each stream forward their letters, there are twice as many after each hop, and an end.
#[test]
fn circles_of_several_groups_end_too() {
    let mut bench = Bench::new(1);
    make_groups(&mut bench, &["a", "c"]);
    for (stream, dlq) in [("a", "b"), ("c", "a")] {
        assert_eq!(set_policy(&mut bench, stream, dlq), Value::ok());
        assert_eq!(call(&mut bench, &format!("XGROUP CREATE {stream} h 0")), Value::ok());
        let set = format!("XGROUP SETPOLICY {stream} h IDLE 100 MAXDELIVERIES 1 DLQ {dlq}");
        assert_eq!(call(&mut bench, &set), Value::ok());
    }
    assert_eq!(call(&mut bench, "RENAME c b"), Value::ok());
    call(&mut bench, "XADD a 1-1 order 7");
    let mut lengths = Vec::new();
    for _ in 0..MAX_HOPS + 3 {
        for stream in ["a", "b"] {
            bench.call(0, &words(&["XREADGROUP", "GROUP", "h", "ann", "STREAMS", stream, ">"]));
        }
        go_round(&mut bench);
        lengths.push(["a", "b"].map(|stream| last_fields(&mut bench, stream).len()).iter().sum::<usize>());
    }
    let all: usize = (0..=MAX_HOPS).map(|hop| 1 << hop).sum();
    assert_eq!(lengths[MAX_HOPS - 1..], [all; 4], "{lengths:?}");
}
