//! WHO, WHY and EVENTS, beyond their transcript: entries that a walk over the events misses, the users who may read
//! them, the name of a client that has gone, and notifications on the channels of keyspace events.

use crate::harness::{Program, Raw, Server, Value, until};

/// The value of a field in a RESP2 reply, or in a map inside the reply.
fn field<'a>(answer: &'a Value, name: &str) -> &'a Value {
    let Value::Array(parts) = answer else { panic!("{answer:?}") };
    let at = parts.iter().position(|part| part.bytes() == Some(name.as_bytes()));
    &parts[at.unwrap_or_else(|| panic!("no {name} in {answer:?}")) + 1]
}

fn number(value: &Value) -> i64 {
    let Value::Integer(number) = value else { panic!("{value:?}") };
    *number
}

fn items(value: &Value) -> &[Value] {
    let Value::Array(items) = value else { panic!("{value:?}") };
    items
}

fn text(value: &Value) -> String {
    String::from_utf8_lossy(value.bytes().unwrap_or_else(|| panic!("{value:?}"))).into_owned()
}

fn call(link: &mut Raw, line: &str) -> Value {
    link.command(&line.split(' ').collect::<Vec<_>>())
}

/// All events from a cursor on, page by page: their texts, the last cursor, and whether any was missed.
fn walk(link: &mut Raw, mut cursor: i64, count: usize) -> (Vec<String>, i64, bool) {
    let (mut told, mut missed) = (Vec::new(), false);
    loop {
        let page = call(link, &format!("EVENTS {cursor} COUNT {count}"));
        missed |= number(field(&page, "missed")) == 1;
        let events = items(field(&page, "events"));
        assert_eq!(number(&items(&page)[0]), i64::from(!events.is_empty()));
        if events.is_empty() {
            assert_eq!(number(field(&page, "next")), cursor);
            return (told, cursor, missed);
        }
        for event in events {
            let id = number(field(event, "id"));
            assert!(id > cursor, "in order");
            cursor = id;
            let said = ["event", "key", "holder"].map(|name| text(field(event, name)));
            told.push(said.join(" "));
        }
        assert_eq!(number(field(&page, "next")), cursor);
    }
}

#[test]
fn a_walk_sees_each_event_once_and_reports_gaps() {
    let server = Server::start(Program::Tidegate, &[]);
    let mut link = server.raw();
    for round in 0..10 {
        call(&mut link, &format!("GATE.ACQUIRE g h{round} LIMIT 1 PX 60000"));
        call(&mut link, &format!("GATE.ACQUIRE g late{round} LIMIT 1 PX 60000"));
        call(&mut link, &format!("GATE.RELEASE g h{round}"));
    }
    let turn =
        |round| [format!("granted g h{round}"), format!("refused g late{round}"), format!("released g h{round}")];
    let expected: Vec<String> = (0..10).flat_map(turn).collect();
    for count in [1, 7, 100] {
        let (told, _, missed) = walk(&mut link, 0, count);
        assert_eq!((told, missed), (expected.clone(), false), "{count} at a time");
    }
    let (_, cursor, _) = walk(&mut link, 0, 100);
    // Filling the memory of refusals pushes out earlier refusals, but no grant.
    for _ in 0..1_024 {
        call(&mut link, "GATE.ACQUIRE g other LIMIT 1 PX 60000 UNITS 1");
        call(&mut link, "GATE.ACQUIRE g more LIMIT 1 PX 60000");
    }
    let (told, _, missed) = walk(&mut link, cursor, 100);
    let granted = told.iter().filter(|told| told.starts_with("granted")).count();
    assert_eq!((granted, told.len(), missed), (1, 1_025, false));
    call(&mut link, "GATE.ACQUIRE g more LIMIT 1 PX 60000");
    assert!(walk(&mut link, cursor, 100).2, "the first refusal after the cursor is forgotten");
    assert!(!walk(&mut link, 0, 100).2, "a walk from 0 returns all known events");
}

/// The keys of all events that a user may see, with their databases.
fn shown(link: &mut Raw) -> Vec<String> {
    let page = call(link, "EVENTS 0 COUNT 1000");
    let key = |event: &Value| format!("{}:{}", number(field(event, "db")), text(field(event, "key")));
    items(field(&page, "events")).iter().map(key).collect()
}

#[test]
fn users_see_only_events_of_keys_that_they_may_read() {
    let server = Server::start(Program::Tidegate, &[]);
    let (mut admin, mut app) = (server.raw(), server.raw());
    for line in ["LOCK.ACQUIRE mine a PX 60000", "LOCK.ACQUIRE seen a PX 60000", "LOCK.ACQUIRE other a PX 60000"] {
        call(&mut admin, line);
    }
    for line in ["SELECT 1", "LOCK.ACQUIRE mine a PX 60000", "SELECT 0"] {
        call(&mut admin, line);
    }
    call(&mut admin, "ACL SETUSER app on nopass ~mine %R~seen %W~written +@coordination +@connection -@dangerous");
    call(&mut app, "AUTH app x");
    let refused = |value: Value| matches!(value, Value::Error(text) if text.starts_with(b"NOPERM"));
    assert_eq!(text(field(&call(&mut app, "WHO mine"), "type")), "lock");
    assert_eq!(number(field(&call(&mut app, "WHY mine"), "known")), 0);
    for line in ["WHO other", "WHY other", "LOCK.BREAK mine"] {
        assert!(refused(call(&mut app, line)), "{line}");
    }
    assert_eq!(shown(&mut admin), ["0:mine", "0:seen", "0:other", "1:mine"]);
    assert_eq!(shown(&mut app), ["0:mine", "0:seen", "1:mine"]);
    // Write permission alone does not make a key visible; calls by a script count as the user's calls.
    call(&mut admin, "LOCK.ACQUIRE written a PX 60000");
    assert_eq!(shown(&mut app).len(), 3);
    call(&mut admin, "ACL SETUSER app +eval");
    let of_script = call(&mut app, "EVAL return#redis.call('EVENTS',0)[7] 0");
    assert_eq!(of_script, Value::Integer(3));
    // Changed rights apply from one call to the next.
    call(&mut admin, "ACL SETUSER app resetdbs db=0");
    assert_eq!(shown(&mut app), ["0:mine", "0:seen"]);
    call(&mut admin, "ACL SETUSER app resetkeys ~other");
    assert_eq!(shown(&mut app), ["0:other"]);
    // A selector shows its keys only if it allows the call.
    call(&mut admin, "ACL SETUSER app (~seen +get) (~mine +events)");
    assert_eq!(shown(&mut app), ["0:mine", "0:other", "1:mine"]);
    call(&mut admin, "ACL SETUSER app -events clearselectors");
    assert!(refused(call(&mut app, "EVENTS 0")));
    call(&mut admin, "ACL SETUSER app +events allkeys alldbs");
    assert_eq!(shown(&mut app), shown(&mut admin));
}

/// Events that a user may not see are skipped: they leave no page empty, and the next call does not check them again.
#[test]
fn a_walk_skips_events_that_the_user_may_not_read() {
    let server = Server::start(Program::Tidegate, &[]);
    let (mut admin, mut app) = (server.raw(), server.raw());
    call(&mut admin, "ACL SETUSER app on nopass ~mine:* +@coordination");
    call(&mut app, "AUTH app x");
    for number in 0..30 {
        let prefix = if number % 10 == 0 { "mine" } else { "other" };
        call(&mut admin, &format!("LOCK.ACQUIRE {prefix}:{number} a PX 60000"));
    }
    let first = call(&mut app, "EVENTS 0 COUNT 2");
    let keys: Vec<String> = items(field(&first, "events")).iter().map(|event| text(field(event, "key"))).collect();
    assert_eq!(keys, ["mine:0", "mine:10"]);
    let next = number(field(&first, "next"));
    let second = call(&mut app, &format!("EVENTS {next} COUNT 2"));
    assert_eq!(items(field(&second, "events")).len(), 1);
    let end = number(field(&second, "next"));
    assert_eq!(end, number(field(&call(&mut admin, "EVENTS 0 COUNT 100"), "next")), "the walk is at the end");
    let nothing = call(&mut app, &format!("EVENTS {end}"));
    assert_eq!((number(&items(&nothing)[0]), number(field(&nothing, "next"))), (0, end));
}

#[test]
fn who_names_the_client_of_a_holder_even_after_it_has_gone() {
    let server = Server::start(Program::Tidegate, &[]);
    let mut link = server.raw();
    let (id, address) = {
        let mut holder = server.raw();
        call(&mut holder, "CLIENT SETNAME worker-7");
        call(&mut holder, "EVAL return{redis.call('LOCK.ACQUIRE',KEYS[1],'job','PX',60000)} 1 l");
        let line = text(&call(&mut holder, "CLIENT INFO"));
        let of = |name: &str| line.split(' ').find_map(|pair| pair.strip_prefix(name)).expect("a field").to_owned();
        (of("id=").parse::<i64>().expect("a number"), of("addr="))
    };
    until(|| text(&call(&mut link, "CLIENT LIST")).lines().count() == 1, "the holder has gone");
    let who = call(&mut link, "WHO l");
    let holder = &items(field(&who, "holders"))[0];
    assert_eq!(number(field(holder, "client-id")), id);
    assert_eq!(
        ["client-addr", "client-name", "holder"].map(|name| text(field(holder, name))),
        [&address, "worker-7", "job"]
    );
}

#[test]
fn grants_are_announced_on_channels_of_their_own_class() {
    let server = Server::start(Program::Tidegate, &["--notify-keyspace-events", "EL"]);
    let (mut link, mut listener) = (server.raw(), server.raw());
    listener.command(&["PSUBSCRIBE", "__key*", "end"]);
    listener.reply();
    for line in [
        "LOCK.ACQUIRE l a PX 60000",
        "LOCK.ACQUIRE l a PX 60000",
        "LOCK.ACQUIRE l b PX 60000",
        "LOCK.RELEASE l a",
        "LOCK.ACQUIRE l b PX 60000",
        "LOCK.BREAK l",
        "GATE.ACQUIRE g a LIMIT 2 PX 60000",
        "DEL g",
        "EVAL redis.call('LOCK.ACQUIRE',KEYS[1],'a','PX',9)redis.call('NOSUCH') 1 undone",
        "GATE.ACQUIRE short a LIMIT 2 PX 1",
        "SET k v",
    ] {
        call(&mut link, line);
    }
    until(|| text(field(&call(&mut link, "WHO short"), "type")) == "none", "the lease is over");
    call(&mut link, "PUBLISH end x");
    let mut told = Vec::new();
    loop {
        let (Value::Array(parts) | Value::Push(parts)) = listener.reply().value else { panic!("messages only") };
        if text(&parts[2]) == "end" {
            break;
        }
        told.push(format!("{} {}", text(&parts[2]).trim_start_matches("__keyevent@0__:"), text(&parts[3])));
    }
    let expected =
        ["granted l", "released l", "granted l", "broken l", "granted g", "removed g", "granted short", "lapsed short"];
    assert_eq!(told, expected);
}
