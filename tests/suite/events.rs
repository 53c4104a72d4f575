//! Keyspace notifications that are not compared with Redis call by call (`differential/events.rs`): receivers, order,
//! and events of this server alone.

use crate::harness::{Program, Raw, Server, Value, until};

/// A server that notifies of these classes, a caller, and a subscriber to all events.
fn start(classes: &str, flags: &[&str]) -> (Server, Raw, Raw) {
    let server = Server::start(Program::Tidegate, &[&["--notify-keyspace-events", classes], flags].concat());
    let (caller, mut listener) = (server.raw(), server.raw());
    listener.command(&["PSUBSCRIBE", "__key*", "end*"]);
    listener.reply();
    (server, caller, listener)
}

/// The events so far: channels without their underscores, and messages.
fn events_so_far(caller: &mut Raw, listener: &mut Raw) -> Vec<String> {
    caller.command(&["PUBLISH", "end", ""]);
    let mut told = Vec::new();
    loop {
        let (Value::Array(parts) | Value::Push(parts)) = listener.reply().value else { panic!("messages only") };
        let texts: Vec<_> =
            parts.iter().map(|part| String::from_utf8_lossy(part.bytes().unwrap_or_default())).collect();
        if texts[2] == "end" {
            return told;
        }
        told.push(format!("{} {}", texts[2].replace('_', ""), texts[3]));
    }
}

fn events_of(classes: &str, calls: &[&str]) -> Vec<String> {
    let (_server, mut caller, mut listener) = start(classes, &[]);
    for call in calls {
        let reply = caller.command(&call.split(' ').collect::<Vec<_>>());
        assert!(!matches!(reply, Value::Error(_)), "{call}: {reply:?}");
    }
    events_so_far(&mut caller, &mut listener)
}

#[test]
fn classes_choose_events_and_channels() {
    let calls = ["SET k v", "LPUSH l a", "DEL k"];
    assert_eq!(events_of("Kg", &calls), ["keyspace@0:k del"]);
    assert_eq!(events_of("E$l", &calls), ["keyevent@0:set k", "keyevent@0:lpush l"]);
    assert_eq!(events_of("KE$", &calls), ["keyspace@0:k set", "keyevent@0:set k"]);
    assert_eq!(events_of("En", &calls), ["keyevent@0:new k", "keyevent@0:new l"]);
    assert_eq!(events_of("Em", &["GET k", "SELECT 3", "GET k"]), ["keyevent@0:keymiss k", "keyevent@3:keymiss k"]);
    assert_eq!(events_of("", &calls), [""; 0]);
    assert_eq!(events_of("A", &calls), [""; 0]);
}

#[test]
fn commands_that_redis_lacks_send_events_in_the_same_way() {
    let calls = [
        "SADD s a b c",
        "SEXPIRE s 100 MEMBERS 2 a b",
        "SPERSIST s MEMBERS 1 a",
        "SPEXPIREAT s 1 MEMBERS 1 a",
        "MSETEX 2 m1 a m2 b EX 100",
    ];
    let events = ["sadd s", "sexpire s", "spersist s", "srem s", "set m1", "expire m1", "set m2", "expire m2"];
    let wanted: Vec<String> = events.map(|event| format!("keyevent@0:{event}")).to_vec();
    let mut told = events_of("AE", &calls);
    told.sort();
    let mut wanted_sorted = wanted;
    wanted_sorted.sort();
    assert_eq!(told, wanted_sorted);
}

#[test]
fn events_of_a_transaction_follow_exec_and_a_failed_script_sends_none() {
    let events = events_of("AE", &["MULTI", "SET a 1", "PUBLISH ended x", "INCR a", "EXEC"]);
    assert_eq!(events, ["ended x", "keyevent@0:set a", "keyevent@0:incrby a"]);
    let (_server, mut caller, mut listener) = start("AEnm", &[]);
    let failed = "redis.call('SET', KEYS[1], 1) redis.call('GET', 'nosuch') error('no')";
    assert!(matches!(caller.command(&["EVAL", failed, "1", "k"]), Value::Error(_)));
    assert_eq!(events_so_far(&mut caller, &mut listener), [""; 0]);
    let calls = "redis.call('SET', KEYS[1], 1) redis.call('SADD', KEYS[2], 1) \
                 redis.call('SADD', KEYS[2], 2) redis.call('DEL', KEYS[1])";
    caller.command(&["EVAL", calls, "2", "k", "s"]);
    let events = ["new k", "set k", "new s", "sadd s", "sadd s", "del k"].map(|event| format!("keyevent@0:{event}"));
    assert_eq!(events_so_far(&mut caller, &mut listener), events);
}

#[test]
fn expiry_sends_events_whether_found_by_the_clock_or_by_an_access() {
    let (_server, mut caller, mut listener) = start("AE", &[]);
    for call in
        ["SET k v PX 1", "HSET h a 1 b 2", "HPEXPIRE h 1 FIELDS 1 a", "SADD s a b", "SPEXPIRE s 1 MEMBERS 2 a b"]
    {
        caller.command(&call.split(' ').collect::<Vec<_>>());
    }
    let mut events = Vec::new();
    until(
        || {
            events.extend(events_so_far(&mut caller, &mut listener));
            ["expired k", "hexpired h", "del s"].iter().all(|event| events.contains(&format!("keyevent@0:{event}")))
        },
        "everything has expired",
    );
    let of_s: Vec<_> = events.iter().filter(|event| event.ends_with(" s")).collect();
    assert_eq!(of_s, ["keyevent@0:sadd s", "keyevent@0:sexpire s", "keyevent@0:sexpired s", "keyevent@0:del s"]);
}

#[test]
fn a_client_receives_events_of_its_own_changes() {
    let (_server, mut caller, _) = start("AK", &[]);
    caller.hello3();
    caller.command(&["SUBSCRIBE", "__keyspace@0__:k"]);
    assert_eq!(caller.command(&["SET", "k", "v"]), Value::status("OK"));
    let Value::Push(parts) = caller.reply().value else { panic!("a message") };
    assert_eq!(parts[2], Value::bulk("set"));
}

#[test]
fn the_classes_can_be_changed_within_a_transaction() {
    let (_server, mut caller, mut listener) = start("", &[]);
    for call in [&["MULTI"][..], &["CONFIG", "SET", "notify-keyspace-events", "EA"], &["SET", "k", "v"], &["EXEC"]] {
        caller.command(call);
    }
    assert_eq!(events_so_far(&mut caller, &mut listener), ["keyevent@0:set k"]);
    let refused = caller.command(&["CONFIG", "SET", "notify-keyspace-events", "KEa"]);
    let text = "ERR CONFIG SET failed (possibly related to argument 'notify-keyspace-events') - \
                Invalid event class character. Use 'Ag$lshzxeKEtmdn'.";
    assert_eq!(refused, Value::error(text));
    caller.command(&["CONFIG", "SET", "notify-keyspace-events", ""]);
    caller.command(&["SET", "k", "v"]);
    assert_eq!(events_so_far(&mut caller, &mut listener), [""; 0]);
}

#[test]
fn eviction_sends_events() {
    let (_server, mut caller, mut listener) = start("Ee", &["--maxmemory-policy", "allkeys-lru"]);
    for i in 0..200 {
        caller.command(&["SET", &format!("k{i}"), &"x".repeat(10_000)]);
    }
    caller.command(&["CONFIG", "SET", "maxmemory", "1"]);
    caller.command(&["SET", "k", "v"]);
    let events = events_so_far(&mut caller, &mut listener);
    assert!(!events.is_empty() && events.iter().all(|event| event.starts_with("keyevent@0:evicted k")), "{events:?}");
}
