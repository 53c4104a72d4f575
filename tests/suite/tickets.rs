//! Calls that wait beside their connection (ASYNC): which replies are pushed, to which client and when, and the other
//! ways in which the wait ends. A model checks that locks and gates serve them in order of arrival, together with
//! blocked calls: see [`histories`](crate::histories).

use std::collections::BTreeSet;
use std::fmt::Write as _;

use tidegate::command::limits::TICKETS_MAX;
use tidegate::engine::limits::WAITS_SLICE;

use crate::coordination::{call, parts};
use crate::differential::split_line;
use crate::harness::{Program, Raw, Server, Value, encode, until};
use crate::in_process::Bench;

/// Runs a line as a client that speaks RESP3; returns the reply and the pushes behind it.
fn call3(bench: &mut Bench, client: usize, line: &str) -> Vec<String> {
    parts(&bench.call(client, &split_line(line).expect("plain words")))
}

/// Returns the pushes that a RESP3 client has received in between.
fn pushed(bench: &mut Bench, client: usize) -> Vec<String> {
    parts(&bench.heard(client))
}

/// The last client holds the lock `l` as `first`; all others speak RESP3.
fn held(clients: usize) -> Bench {
    let mut bench = Bench::new(clients + 1);
    assert!(call(&mut bench, clients, "LOCK.ACQUIRE l first PX 60000").starts_with("1 token"));
    (0..clients).for_each(|client| assert!(call3(&mut bench, client, "HELLO 3")[0].contains("proto 3")));
    bench
}

#[test]
fn a_call_returns_its_ticket_at_once_and_pushes_the_grant_later() {
    let mut bench = held(2);
    assert_eq!(call3(&mut bench, 0, "LOCK.ACQUIRE l a PX 500 ASYNC 0"), ["0 reason queued ticket 1 waiting 0"]);
    assert_eq!(call3(&mut bench, 0, "LOCK.ACQUIRE l b PX 500 NOTE n ASYNC 0"), ["0 reason queued ticket 2 waiting 1"]);
    assert_eq!(call3(&mut bench, 0, "PING"), ["+PONG"], "the connection is free");
    assert_eq!(
        call3(&mut bench, 1, "GATE.ACQUIRE g a LIMIT 1 PX 500 ASYNC 0"),
        ["1 token 2 in-use 1 limit 1 lease-ms 500"]
    );
    assert!(call(&mut bench, 2, "LOCK.RELEASE l first").starts_with("1 token"));
    assert_eq!(pushed(&mut bench, 0), ["ticket 1 1 token 3 depth 1 lease-ms 500"]);
    // The effects of a client's own call on its tickets follow the reply to that call.
    assert_eq!(
        call3(&mut bench, 0, "LOCK.RELEASE l a"),
        ["1 token 3 depth 0", "ticket 2 1 token 4 depth 1 lease-ms 500"]
    );
    assert_eq!(bench.engine.server.waits.len(), 0);
    bench.pass(60_000);
    assert!(pushed(&mut bench, 0).is_empty(), "one push for each ticket");
}

#[test]
fn replies_to_a_pipeline_stay_in_order() {
    let mut bench = held(1);
    call3(&mut bench, 0, "LOCK.ACQUIRE l a PX 500 ASYNC 0");
    call(&mut bench, 1, "DEL l");
    assert_eq!(pushed(&mut bench, 0), ["ticket 1 1 token 2 depth 1 lease-ms 500"]);
    let lines = ["LOCK.ACQUIRE l b PX 500 ASYNC 0", "LOCK.ACQUIRE l c PX 500 ASYNC 0", "LOCK.RELEASE l a", "PING"];
    let lines = lines.into_iter().chain(["LOCK.RELEASE l b", "PING"]);
    let pipeline: Vec<u8> = lines.flat_map(|line| encode(&split_line(line).expect("plain words"))).collect();
    assert_eq!(
        parts(&bench.feed(0, &pipeline)),
        [
            "0 reason queued ticket 2 waiting 0",
            "0 reason queued ticket 3 waiting 1",
            "1 token 2 depth 0",
            "ticket 2 1 token 3 depth 1 lease-ms 500",
            "+PONG",
            "1 token 3 depth 0",
            "ticket 3 1 token 4 depth 1 lease-ms 500",
            "+PONG",
        ]
    );
}

#[test]
fn timeouts_are_pushed_too() {
    let mut bench = held(1);
    call3(&mut bench, 0, "LOCK.ACQUIRE l a PX 500 ASYNC 100");
    call3(&mut bench, 0, "LOCK.ACQUIRE l b PX 500 ASYNC 0");
    bench.pass(99);
    assert!(pushed(&mut bench, 0).is_empty());
    bench.pass(1);
    assert_eq!(pushed(&mut bench, 0), ["ticket 1 0 reason timeout"]);
    assert!(call(&mut bench, 1, "WHY l a").contains("reason timeout"));
    // The wait ends with a lease whose end is given as a time.
    let until_ms = bench.engine.ks.now_ms() + 50;
    call3(&mut bench, 0, &format!("LOCK.ACQUIRE l c PXAT {until_ms} ASYNC 0"));
    bench.pass(50);
    assert_eq!(pushed(&mut bench, 0), ["ticket 3 0 reason timeout"]);
    // So does an error: another type never becomes a lock.
    call(&mut bench, 1, "DEL l");
    assert_eq!(pushed(&mut bench, 0).len(), 1);
    call3(&mut bench, 0, "LOCK.ACQUIRE l d PX 500 ASYNC 0");
    call(&mut bench, 1, "RPUSH list x");
    call(&mut bench, 1, "RENAME list l");
    let told = pushed(&mut bench, 0);
    assert!(told.len() == 1 && told[0].starts_with("ticket 4 -WRONGTYPE"), "{told:?}");
    assert_eq!(bench.engine.server.waits.len(), 0);
}

#[test]
fn blocked_calls_and_tickets_wait_in_one_queue() {
    let mut bench = held(3);
    call3(&mut bench, 0, "LOCK.ACQUIRE l a PX 500 ASYNC 0");
    assert!(call3(&mut bench, 1, "LOCK.ACQUIRE l b PX 500 BLOCK 0").is_empty());
    call3(&mut bench, 2, "LOCK.ACQUIRE l c PX 500 ASYNC 0");
    // A blocking call beside a ticket of the same client.
    assert!(call3(&mut bench, 0, "LOCK.ACQUIRE l d PX 500 BLOCK 0").is_empty());
    let order = [(0, "a"), (1, "b"), (2, "c"), (0, "d")];
    let mut holder = "first";
    for (client, name) in order {
        call(&mut bench, 3, &format!("LOCK.RELEASE l {holder}"));
        let told = pushed(&mut bench, client);
        let is_push = matches!(name, "a" | "c");
        assert!(told.len() == 1 && told[0].starts_with("ticket ") == is_push, "{name}: {told:?}");
        assert!(call(&mut bench, 3, "LOCK.INFO l").contains(&format!("owner {name} ")));
        holder = name;
    }
}

/// Ten thousand calls wait on one key over one connection: each gets the lock once, in order of arrival.
#[test]
fn ten_thousand_wait_over_one_connection() {
    const CROWD: usize = 10_000;
    let (_server, mut link) = Server::with_client(Program::Tidegate);
    link.hello3();
    assert!(text(&link.command(&["LOCK.ACQUIRE", "l", "w0", "PX", "600000"])).starts_with("[1, "));
    let mut asked = Vec::new();
    for number in 1..=CROWD {
        asked.extend(encode(&["LOCK.ACQUIRE", "l", &format!("w{number}"), "PX", "600000", "ASYNC", "0"]));
    }
    link.send(&asked);
    for number in 1..=CROWD {
        let before = number - 1;
        let queued = format!("[0, %{{\"reason\": \"queued\", \"ticket\": {number}, \"waiting\": {before}}}]");
        assert_eq!(text(&link.reply().value), queued);
    }
    let info = text(&link.command(&["INFO", "clients"]));
    assert!(info.contains("blocked_clients:0\\r\\n"), "{info}");
    let mut given_back = Vec::new();
    (0..CROWD).for_each(|number| given_back.extend(encode(&["LOCK.RELEASE", "l", &format!("w{number}")])));
    link.send(&given_back);
    for number in 1..=CROWD {
        assert!(text(&link.reply().value).starts_with("[1, "), "holder {number} releases the lock");
        let token = number + 1;
        let Value::Push(push) = link.reply().value else { panic!("holder {number} gets a push") };
        assert_eq!(push[..2], [Value::bulk("ticket"), Value::Integer(number as i64)]);
        let granted = format!("[1, %{{\"depth\": 1, \"lease-ms\": 600000, \"token\": {token}}}]");
        assert_eq!(text(&push[2]), granted);
    }
    assert!(text(&link.command(&["LOCK.INFO", "l"])).contains(&format!("\"owner\": \"w{CROWD}\"")));
}

fn text(value: &Value) -> String {
    format!("{value:?}")
}

/// The effects of a client's transaction or script on its own tickets follow the reply to the whole of it.
#[test]
fn a_transaction_hands_the_lock_on_when_it_ends() {
    for line in ["EXEC", "EVAL \"return {redis.call('lock.release', 'l', 'a'), 'done'}\" 1 l"] {
        let mut bench = held(1);
        call(&mut bench, 1, "DEL l");
        call3(&mut bench, 0, "LOCK.ACQUIRE l a PX 500");
        call3(&mut bench, 0, "LOCK.ACQUIRE l b PX 500 ASYNC 0");
        if line == "EXEC" {
            ["MULTI", "LOCK.RELEASE l a", "ECHO done"].iter().for_each(|line| drop(call3(&mut bench, 0, line)));
        }
        let told = call3(&mut bench, 0, line);
        assert_eq!(told, ["1 token 2 depth 0 done", "ticket 1 1 token 3 depth 1 lease-ms 500"], "{line}");
    }
}

#[test]
fn a_ticket_can_be_cancelled() {
    let mut bench = held(2);
    call3(&mut bench, 0, "LOCK.ACQUIRE l a PX 500 ASYNC 0");
    call3(&mut bench, 0, "LOCK.ACQUIRE l b PX 500 ASYNC 50");
    bench.pass(7);
    assert_eq!(call3(&mut bench, 1, "TICKET.CANCEL 1"), ["0 reason no-ticket"], "the ticket belongs to another client");
    assert_eq!(call3(&mut bench, 0, "LOCK.RELEASE l a"), ["0 reason not-held"]);
    assert_eq!(call3(&mut bench, 0, "TICKET.CANCEL 1"), ["1 waited-ms 7"]);
    assert_eq!(call3(&mut bench, 0, "TICKET.CANCEL 1"), ["0 reason no-ticket"]);
    for wrong in ["0", "-1", "x", "9223372036854775808", "1.5"] {
        let told = call3(&mut bench, 0, &format!("TICKET.CANCEL {wrong}"));
        assert_eq!(told, ["-ERR the ticket must be the number returned to a call with ASYNC"], "{wrong}");
    }
    bench.engine.time_out_waits();
    call(&mut bench, 2, "LOCK.RELEASE l first");
    assert_eq!(pushed(&mut bench, 0), ["ticket 2 1 token 2 depth 1 lease-ms 500"]);
    // Too late: the outcome precedes the reply.
    assert_eq!(call3(&mut bench, 0, "TICKET.CANCEL 2"), ["0 reason no-ticket"]);
    // A script has no tickets, and a call that is cancelled cannot be undone.
    let told = call3(&mut bench, 0, "EVAL \"return redis.call('ticket.cancel', 1)\" 0");
    assert!(told[0].contains("not allowed from script"), "{told:?}");
}

/// The first of a queue checks when the lease ends. When it leaves, the next one does.
#[test]
fn the_next_waiter_is_served_in_time_after_the_first_has_left() {
    for leave in ["TICKET.CANCEL 1", "RESET", "HELLO 2", "CLIENT KILL SKIPME NO ID 1", "QUIT"] {
        let mut bench = held(2);
        call3(&mut bench, 0, "LOCK.ACQUIRE l a PX 500 ASYNC 0");
        call3(&mut bench, 1, "LOCK.ACQUIRE l b PX 500 ASYNC 0");
        let killed = leave.starts_with("CLIENT");
        call3(&mut bench, usize::from(killed), leave);
        if killed || leave == "QUIT" {
            bench.reconnect(0);
        }
        bench.engine.time_out_waits();
        bench.pass(60_000);
        assert_eq!(pushed(&mut bench, 1), ["ticket 2 1 token 2 depth 1 lease-ms 500"], "{leave}");
        assert!(bench.heard(0).is_empty(), "{leave}");
    }
}

#[test]
fn a_client_that_cannot_receive_pushes_has_no_tickets() {
    let mut bench = held(1);
    let needs = "-ERR ASYNC needs RESP3: send HELLO 3 first, or use BLOCK";
    assert_eq!(call(&mut bench, 1, "LOCK.ACQUIRE l a PX 500 ASYNC 0"), needs);
    assert_eq!(
        call(&mut bench, 1, "GATE.ACQUIRE g a LIMIT 1 PX 500 ASYNC 0"),
        needs,
        "refused even where a place is free"
    );
    call3(&mut bench, 0, "REPLCONF capa eof");
    for leave in ["RESET", "HELLO 2", "SYNC"] {
        for name in ["a", "b", "c"] {
            call3(&mut bench, 0, &format!("LOCK.ACQUIRE l {name} PX 500 ASYNC 100"));
        }
        assert_eq!(bench.engine.server.waits.len(), 3);
        call(&mut bench, 0, leave);
        assert_eq!(bench.engine.server.waits.len(), 0, "{leave}");
        if leave == "SYNC" {
            assert!(bench.is_suspended(0));
            bench.reconnect(0);
        }
        call3(&mut bench, 0, "HELLO 3");
    }
    // HELLO 3 and HELLO without a protocol change nothing.
    call3(&mut bench, 0, "LOCK.ACQUIRE l a PX 500 ASYNC 0");
    call3(&mut bench, 0, "HELLO 3");
    call3(&mut bench, 0, "HELLO");
    call(&mut bench, 1, "LOCK.RELEASE l first");
    assert_eq!(pushed(&mut bench, 0).len(), 1);
}

#[test]
fn options_that_make_no_sense_are_refused() {
    let mut bench = held(1);
    for (options, error) in [
        ("ASYNC -1", "-ERR timeout is negative"),
        ("ASYNC x", "-ERR timeout is not an integer or out of range"),
        ("ASYNC 9223372036854775807", "-ERR timeout is out of range"),
        ("ASYNC", "-ERR syntax error"),
        ("ASYNC 0 BLOCK 0", "-ERR syntax error"),
        ("BLOCK 0 ASYNC 0", "-ERR syntax error"),
        ("ASYNC 0 ASYNC 0", "-ERR syntax error"),
    ] {
        let told = call3(&mut bench, 0, &format!("LOCK.ACQUIRE l a PX 500 {options}"));
        assert!(told.len() == 1 && told[0].starts_with(error), "{options}: {told:?}");
    }
    assert_eq!(
        call3(&mut bench, 0, "LOCK.EXTEND l a PX 500 ASYNC 0"),
        ["-ERR wrong number of arguments for 'lock.extend' command: there are too many for LOCK.EXTEND key owner \
            <PX milliseconds | EX seconds | PXAT unix-time-milliseconds | EXAT unix-time-seconds>"]
    );
    assert_eq!(bench.engine.server.waits.len(), 0);
}

/// Where nothing waits, the reply is the one without ASYNC, whatever the protocol.
#[test]
fn scripts_and_transactions_do_not_wait() {
    let mut bench = held(1);
    let refused = "0 reason held waiting 0 retry-after-ms 60000";
    for client in [0, 1] {
        let script = "EVAL \"return redis.call('lock.acquire', KEYS[1], 'b', 'px', 500, 'async', 0)\" 1 l";
        assert_eq!(call(&mut bench, client, script), refused);
        call(&mut bench, client, "MULTI");
        call(&mut bench, client, "LOCK.ACQUIRE l b PX 500 ASYNC 0");
        assert_eq!(call(&mut bench, client, "EXEC"), refused);
    }
    assert_eq!(bench.engine.server.waits.len(), 0);
}

#[test]
fn a_ticket_keeps_its_database() {
    let mut bench = held(1);
    call3(&mut bench, 0, "LOCK.ACQUIRE l a PX 500 ASYNC 0");
    call3(&mut bench, 0, "SELECT 1");
    call3(&mut bench, 0, "LOCK.ACQUIRE l b PX 60000");
    assert_eq!(call3(&mut bench, 0, "LOCK.ACQUIRE l a PX 500 ASYNC 0"), ["0 reason queued ticket 2 waiting 0"]);
    call(&mut bench, 1, "LOCK.RELEASE l first");
    assert_eq!(pushed(&mut bench, 0), ["ticket 1 1 token 3 depth 1 lease-ms 500"]);
    assert!(call3(&mut bench, 0, "LOCK.INFO l")[0].contains("owner b "), "the client keeps its own lock");
    assert!(call(&mut bench, 1, "LOCK.INFO l").contains("owner a "));
    assert_eq!(
        call3(&mut bench, 0, "LOCK.RELEASE l b"),
        ["1 token 2 depth 0", "ticket 2 1 token 4 depth 1 lease-ms 500"]
    );
}

/// A client whose calls wait beside it is not blocked, and CLIENT UNBLOCK leaves them alone.
#[test]
fn a_client_with_tickets_is_not_blocked() {
    let mut bench = held(2);
    call3(&mut bench, 0, "LOCK.ACQUIRE l a PX 500 ASYNC 0");
    let flags = |bench: &mut Bench| {
        let list = call(bench, 2, "CLIENT LIST");
        let own = list.lines().find(|line| line.contains("id=1 ")).expect("it is connected").to_owned();
        own.split(' ').find_map(|field| field.strip_prefix("flags=")).expect("flags").to_owned()
    };
    assert!(!flags(&mut bench).contains('b'));
    let info = call(&mut bench, 2, "INFO clients");
    assert!(info.contains("blocked_clients:0") && info.contains("waiting_tickets:1"), "{info}");
    assert_eq!(call(&mut bench, 2, "CLIENT UNBLOCK 1"), "0");
    assert!(call3(&mut bench, 0, "BLPOP list 0").is_empty());
    assert!(flags(&mut bench).contains('b'));
    assert!(call(&mut bench, 2, "INFO clients").contains("blocked_clients:1"));
    assert_eq!(call(&mut bench, 2, "CLIENT UNBLOCK 1 ERROR"), "1");
    assert!(pushed(&mut bench, 0)[0].starts_with("-UNBLOCKED"));
    // While it blocks, its tickets are served.
    assert!(call3(&mut bench, 0, "BLPOP list 0").is_empty());
    call(&mut bench, 2, "LOCK.RELEASE l first");
    assert_eq!(pushed(&mut bench, 0), ["ticket 1 1 token 2 depth 1 lease-ms 500"]);
    call(&mut bench, 2, "RPUSH list x");
    assert_eq!(pushed(&mut bench, 0), ["list x"]);
}

/// WHO shows waiting calls, also beside the connection that asks, and their tickets.
#[test]
fn who_shows_tickets() {
    let mut bench = held(2);
    call3(&mut bench, 0, "LOCK.ACQUIRE l a PX 500 ASYNC 1000");
    call3(&mut bench, 1, "LOCK.ACQUIRE l b PX 500 BLOCK 0");
    for client in [0, 2] {
        let told = call(&mut bench, client, "WHO l");
        let shown = "waiting 2 waiters holder a waits-ms 0 left-ms 1000 ticket 1 client-id 1 ";
        assert!(told.contains(shown), "{told}");
        assert!(told.contains("holder b waits-ms 0 left-ms -1 ticket 0 client-id 2 "), "{told}");
    }
}

#[test]
fn rights_are_checked_again_when_a_ticket_is_served() {
    let mut bench = held(2);
    call(&mut bench, 2, "ACL SETUSER u on nopass ~* +@all");
    for client in [0, 1] {
        assert_eq!(call3(&mut bench, client, "AUTH u x"), ["+OK"]);
        call3(&mut bench, client, &format!("LOCK.ACQUIRE l c{client} PX 500 ASYNC 0"));
    }
    call(&mut bench, 2, "ACL SETUSER u -lock.acquire");
    call3(&mut bench, 1, "AUTH default x");
    call(&mut bench, 2, "LOCK.RELEASE l first");
    let told = pushed(&mut bench, 0);
    assert!(told.len() == 1 && told[0].starts_with("ticket 1 -NOPERM"), "{told:?}");
    assert_eq!(
        pushed(&mut bench, 1),
        ["ticket 2 1 token 2 depth 1 lease-ms 500"],
        "the client acts as another user by now"
    );
    // A client whose user is deleted is disconnected, and forgotten.
    call(&mut bench, 2, "ACL SETUSER u +lock.acquire");
    call3(&mut bench, 0, "LOCK.ACQUIRE l d PX 500 ASYNC 0");
    call(&mut bench, 2, "ACL DELUSER u");
    assert!(bench.is_suspended(0) && bench.engine.server.waits.is_empty());
}

#[test]
fn a_pause_delays_tickets() {
    let mut bench = held(1);
    call3(&mut bench, 0, "LOCK.ACQUIRE l a PX 500 ASYNC 0");
    call3(&mut bench, 0, "LOCK.ACQUIRE l b PX 500 ASYNC 20");
    call(&mut bench, 1, "PEXPIRE l 10");
    call(&mut bench, 1, "CLIENT PAUSE 100 WRITE");
    bench.pass(50);
    assert_eq!(pushed(&mut bench, 0), ["ticket 2 0 reason timeout"]);
    bench.pass(50);
    assert_eq!(pushed(&mut bench, 0), ["ticket 1 1 token 2 depth 1 lease-ms 500"]);
}

/// A push is not a reply: it is sent whatever CLIENT REPLY says, as invalidations and messages are.
#[test]
fn pushes_are_sent_even_when_replies_are_off() {
    let mut bench = held(1);
    call3(&mut bench, 0, "CLIENT REPLY SKIP");
    assert!(call3(&mut bench, 0, "LOCK.ACQUIRE l a PX 500 ASYNC 0").is_empty());
    assert!(call3(&mut bench, 0, "CLIENT REPLY OFF").is_empty());
    assert!(call3(&mut bench, 0, "LOCK.ACQUIRE l b PX 500 ASYNC 0").is_empty());
    call(&mut bench, 1, "LOCK.RELEASE l first");
    assert_eq!(pushed(&mut bench, 0), ["ticket 1 1 token 2 depth 1 lease-ms 500"]);
    assert_eq!(call3(&mut bench, 0, "LOCK.RELEASE l a"), ["ticket 2 1 token 3 depth 1 lease-ms 500"]);
}

/// A call that another one runs waits beside the connection where it would block; the outcome of the whole call is
/// pushed.
#[test]
fn once_and_guard_run_calls_that_wait_beside() {
    let mut bench = held(1);
    let once = "ONCE id PX 60000 LOCK.ACQUIRE l a PX 500 ASYNC 0";
    assert_eq!(call3(&mut bench, 0, once), ["0 reason queued ticket 1 waiting 0"]);
    assert_eq!(call3(&mut bench, 0, once), ["0 reason queued ticket 2 waiting 1"], "no reply is kept yet");
    call(&mut bench, 1, "LOCK.RELEASE l first");
    let granted = "1 token 2 depth 1 lease-ms 500";
    assert_eq!(pushed(&mut bench, 0), [format!("ticket 1 {granted}"), format!("ticket 2 {granted}")]);
    bench.pass(400);
    assert_eq!(call3(&mut bench, 0, once), [granted], "the kept reply is the grant");
    // A guard's lease that ends earlier ends the wait.
    assert!(call3(&mut bench, 0, "LOCK.ACQUIRE guard g PX 50")[0].starts_with("1 token 3"));
    let guarded = "GUARD guard 3 LOCK.ACQUIRE l b PX 500 ASYNC 0";
    assert_eq!(call3(&mut bench, 0, guarded), ["0 reason queued ticket 3 waiting 0"]);
    bench.pass(50);
    let told = pushed(&mut bench, 0);
    assert!(told.len() == 1 && told[0].starts_with("ticket 3 -STALE"), "{told:?}");
}

/// A client that asks again while the first call still waits is in the queue twice, and is granted the lock once.
#[test]
fn a_repeated_call_is_granted_once() {
    let mut bench = held(1);
    for number in 1..=2 {
        let told = call3(&mut bench, 0, "LOCK.ACQUIRE l a PX 500 ASYNC 0");
        assert_eq!(told, [format!("0 reason queued ticket {number} waiting {}", number - 1)]);
    }
    call(&mut bench, 1, "LOCK.RELEASE l first");
    let granted = "1 token 2 depth 1 lease-ms 500";
    assert_eq!(pushed(&mut bench, 0), [format!("ticket 1 {granted}"), format!("ticket 2 {granted}")]);
}

#[test]
fn tickets_are_bounded_and_count_toward_the_clients_memory() {
    let mut bench = held(1);
    let mem = |bench: &mut Bench| {
        let list = call(bench, 1, "CLIENT LIST");
        let own = list.lines().find(|line| line.contains("id=1 ")).expect("it is connected").to_owned();
        let held = own.split(' ').find_map(|field| field.strip_prefix("tot-mem=")).expect("a sum").to_owned();
        held.parse::<usize>().expect("a number")
    };
    let before = mem(&mut bench);
    call(&mut bench, 1, "GATE.ACQUIRE g x LIMIT 2 PX 60000");
    call(&mut bench, 1, "GATE.ACQUIRE g y LIMIT 2 PX 60000");
    call3(&mut bench, 0, "GATE.ACQUIRE g a LIMIT 2 UNITS 2 PX 500 ASYNC 0");
    for number in 1..TICKETS_MAX {
        let told = call3(&mut bench, 0, &format!("LOCK.ACQUIRE l w{number} PX 500 ASYNC 0"));
        assert!(told[0].starts_with("0 reason queued"), "{told:?}");
    }
    let after = mem(&mut bench);
    assert!(after - before > TICKETS_MAX * 256, "{before} and then {after}");
    let told = call3(&mut bench, 0, "LOCK.ACQUIRE l more PX 500 ASYNC 0");
    assert!(told[0].starts_with("-ERR this connection already has 32768 calls waiting with ASYNC"), "{told:?}");
    assert!(
        call3(&mut bench, 0, "GATE.ACQUIRE h a LIMIT 1 PX 500 ASYNC 0")[0].starts_with("1 "),
        "the call need not wait"
    );
    // A call whose turn comes waits on or is served, however many there are.
    call(&mut bench, 1, "GATE.RELEASE g x");
    assert!(pushed(&mut bench, 0).is_empty(), "one of two units is free");
    call(&mut bench, 1, "GATE.RELEASE g y");
    assert!(pushed(&mut bench, 0)[0].starts_with("ticket 1 1 token"));
    assert!(call3(&mut bench, 0, "LOCK.ACQUIRE l more PX 500 ASYNC 0")[0].starts_with("0 reason queued"));
    let full = mem(&mut bench);
    assert!(call3(&mut bench, 0, "TICKET.CANCEL 2")[0].starts_with("1 "));
    assert!(mem(&mut bench) + 256 < full, "the memory is given back");
    call3(&mut bench, 0, "RESET");
    assert_eq!((mem(&mut bench), bench.engine.server.waits.len()), (before, 0), "all memory is given back");
}

/// Calls that wait beside a connection are buffered for it like pipelined requests, and have the same limit.
#[test]
fn tickets_are_held_to_the_query_limit() {
    let mut bench = Bench::new(2);
    call3(&mut bench, 0, "HELLO 3");
    call(&mut bench, 1, "CONFIG SET client-query-buffer-limit 1mb");
    let key = "k".repeat(100_000);
    call(&mut bench, 1, &format!("LOCK.ACQUIRE {key} first PX 60000"));
    let mut asks = || call3(&mut bench, 0, &format!("LOCK.ACQUIRE {key} a PX 500 ASYNC 0")).remove(0);
    let queued = std::iter::repeat_with(&mut asks).take(100).take_while(|told| told.contains("queued")).count();
    assert!((1..=4).contains(&queued), "{queued}");
    let told = asks();
    assert!(told.starts_with("-ERR the calls waiting with ASYNC on this connection use as much memory"), "{told}");
    call3(&mut bench, 0, "TICKET.CANCEL 1");
    assert!(call3(&mut bench, 0, &format!("LOCK.ACQUIRE {key} a PX 500 ASYNC 0"))[0].contains("queued"));
}

/// `maxmemory-clients` closes a client whose calls take too much memory, and its calls go with it.
#[test]
fn tickets_count_toward_maxmemory_clients() {
    let server = Server::start(Program::Tidegate, &["--maxmemory-clients", "2mb"]);
    let (mut holder, mut greedy) = (server.raw(), server.raw());
    holder.command(&["LOCK.ACQUIRE", "l", "first", "PX", "600000"]);
    greedy.hello3();
    let mut asked = Vec::new();
    for number in 0..8_000 {
        asked.extend(encode(&["LOCK.ACQUIRE", "l", &format!("w{number}"), "PX", "600000", "ASYNC", "0"]));
    }
    // In pieces, so that the waiting calls exceed the limit, not the bytes read at once.
    asked.chunks(20_000).for_each(|piece| greedy.send(piece));
    until(|| info(&mut holder, "evicted_clients") == 1, "the client is closed");
    until(|| text(&holder.command(&["LOCK.INFO", "l"])).contains("\"waiting\", 0"), "the client's calls are gone");
}

fn info(link: &mut Raw, name: &str) -> u64 {
    let told = link.command(&["INFO"]);
    let told = String::from_utf8_lossy(told.bytes().expect("text")).into_owned();
    let line = told.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':').map(str::to_owned));
    line.expect("a line of INFO").parse().expect("a number")
}

/// A command that makes room for many waiters lets others have their turn before all are served, and no call cuts in.
#[test]
fn many_served_waiters_go_on_in_slices() {
    const CROWD: usize = 2_500;
    let mut bench = held(1);
    call(&mut bench, 1, "GATE.LIMIT g 0");
    for number in 0..CROWD {
        call3(&mut bench, 0, &format!("GATE.ACQUIRE g w{number} PX 60000 ASYNC 50000"));
    }
    call(&mut bench, 1, "GATE.LIMIT g 1300");
    assert_eq!(pushed(&mut bench, 0).len(), WAITS_SLICE);
    let late = call(&mut bench, 1, "GATE.ACQUIRE g late PX 60000");
    assert!(late.starts_with("0 reason queue in-use 1000 limit 1300 waiting 1500"), "{late}");
    assert!(bench.engine.server.next_deadline_ms().is_some_and(|at_ms| at_ms <= bench.clock.steady_ms()), "soon");
    bench.engine.time_out_waits();
    assert_eq!(pushed(&mut bench, 0).len(), 300);
    // So do those that have timed out.
    bench.clock.advance_ms(50_000);
    assert!(bench.engine.time_out_waits());
    let told = pushed(&mut bench, 0);
    assert!(told.len() == WAITS_SLICE && told.iter().all(|told| told.ends_with("reason timeout")), "{told:?}");
    assert!(!bench.engine.time_out_waits());
    assert_eq!((pushed(&mut bench, 0).len(), bench.engine.server.waits.len()), (200, 0));
}

/// Waiters that already hold the place by another of their calls also go on in slices, and need not wait for the lease
/// to end.
#[test]
fn a_holder_that_asks_very_often_is_served_before_its_lease_ends() {
    let mut bench = held(1);
    for _ in 0..WAITS_SLICE + 500 {
        call3(&mut bench, 0, "LOCK.ACQUIRE l a PX 60000 ASYNC 0");
    }
    call(&mut bench, 1, "LOCK.RELEASE l first");
    assert_eq!(pushed(&mut bench, 0).len(), WAITS_SLICE);
    assert!(!bench.engine.time_out_waits());
    let told = pushed(&mut bench, 0);
    assert!(told.len() == 500 && told.iter().all(|told| told.contains(" 1 token 2 depth 1 ")), "{told:?}");
}

/// A client that is being closed and has not read everything yet is not waited for, however many tickets it has.
#[test]
fn a_client_being_closed_blocks_no_key() {
    for leaves in ["QUIT", "CLIENT KILL SKIPME NO ID 1", "*x", "(killed)"] {
        let mut bench = held(3);
        for number in 0..WAITS_SLICE + 500 {
            call3(&mut bench, 0, &format!("LOCK.ACQUIRE l w{number} PX 500 ASYNC 0"));
        }
        assert!(call3(&mut bench, 1, "LOCK.ACQUIRE l next PX 60000 BLOCK 0").is_empty());
        assert!(call3(&mut bench, 2, "LOCK.ACQUIRE l late PX 60000 BLOCK 100").is_empty());
        match leaves {
            "(killed)" => bench.engine.server.clients.sessions.by_id(1).expect("it is connected").kill(),
            "*x" => drop(bench.feed(0, b"*x\r\n")),
            line => drop(call3(&mut bench, 0, line)),
        }
        assert!(bench.is_suspended(0), "{leaves}");
        call(&mut bench, 3, "LOCK.RELEASE l first");
        bench.pass(100);
        bench.engine.time_out_waits();
        assert_eq!(pushed(&mut bench, 1), ["1 token 2 depth 1 lease-ms 60000"], "{leaves}");
        assert_eq!(pushed(&mut bench, 2), ["0 reason timeout"], "{leaves}");
        assert!(!bench.engine.time_out_waits() && bench.engine.server.waits.is_empty(), "{leaves}: no call is left");
    }
}

/// However many waiters go on at a time, those that have timed out hear of it.
#[test]
fn served_waiters_do_not_keep_others_from_timing_out() {
    let mut bench = held(2);
    call(&mut bench, 2, "GATE.LIMIT g 0");
    for number in 0..2 * WAITS_SLICE {
        call3(&mut bench, 0, &format!("GATE.ACQUIRE g w{number} PX 60000 ASYNC 0"));
    }
    assert!(call3(&mut bench, 1, "LOCK.ACQUIRE l a PX 500 BLOCK 10").is_empty());
    bench.clock.advance_ms(10);
    call(&mut bench, 2, "GATE.LIMIT g 5000");
    bench.engine.time_out_waits();
    assert_eq!(pushed(&mut bench, 1), ["0 reason timeout"]);
    assert_eq!(pushed(&mut bench, 0).len(), 2 * WAITS_SLICE);
}

/// Keys that one slice has not reached are left to the next ones, and each is served once.
#[test]
fn many_keys_freed_at_once_are_served_in_slices() {
    let mut bench = held(1);
    for number in 0..2 * WAITS_SLICE + 500 {
        call(&mut bench, 1, &format!("LOCK.ACQUIRE l{number} first PX 60000"));
        call3(&mut bench, 0, &format!("LOCK.ACQUIRE l{number} a PX 60000 ASYNC 0"));
    }
    call(&mut bench, 1, "FLUSHALL");
    let mut served = BTreeSet::new();
    for slice in [WAITS_SLICE, WAITS_SLICE, 500] {
        let told = pushed(&mut bench, 0);
        assert!(told.len() == slice && told.iter().all(|told| told.contains(" 1 token ")), "{slice}: {told:?}");
        served.extend(told);
        bench.engine.time_out_waits();
    }
    assert_eq!(served.len(), 2 * WAITS_SLICE + 500);
    assert!(bench.engine.server.waits.is_empty() && pushed(&mut bench, 0).is_empty());
}

/// A reply kept by ONCE is also sent in slices, to all calls that asked for it under one id.
#[test]
fn a_reply_kept_by_once_is_sent_in_slices() {
    let mut bench = held(1);
    let lock = |name: &str| format!("ONCE id PX 60000 LOCK.ACQUIRE {name} a PX 500 ASYNC 0");
    assert!(call(&mut bench, 1, "LOCK.ACQUIRE m first PX 60000").starts_with("1 "));
    for _ in 0..WAITS_SLICE + 500 {
        call3(&mut bench, 0, &lock("l"));
    }
    // Calls with one id wait for another call that finishes first; no place that they ask for becomes free.
    assert!(call(&mut bench, 1, "ONCE id PX 60000 ECHO done").ends_with("done"));
    assert_eq!(pushed(&mut bench, 0).len(), WAITS_SLICE);
    bench.engine.time_out_waits();
    assert_eq!((pushed(&mut bench, 0).len(), bench.engine.server.waits.len()), (500, 0));
}

/// A transaction that the client is queueing, and its SELECT, do not affect a call that waits beside it.
#[test]
fn a_ticket_needs_rights_in_its_own_database() {
    let mut bench = held(1);
    call(&mut bench, 1, "ACL SETUSER u on nopass ~* +@all db=0 (+@read +select ~* db=0,1)");
    assert_eq!(call3(&mut bench, 0, "AUTH u x"), ["+OK"]);
    call3(&mut bench, 0, "LOCK.ACQUIRE l a PX 500 ASYNC 0");
    for line in ["MULTI", "SELECT 1", "GET k"] {
        assert!(!call3(&mut bench, 0, line)[0].starts_with('-'), "{line}");
    }
    call(&mut bench, 1, "LOCK.RELEASE l first");
    assert_eq!(pushed(&mut bench, 0), ["ticket 1 1 token 2 depth 1 lease-ms 500"]);
    let refused = call3(&mut bench, 0, "SET k v");
    assert!(refused[0].starts_with("-NOPERM"), "the transaction is still in the other database: {refused:?}");
}

/// A client that hangs up is forgotten, and no call waits for it.
#[test]
fn a_client_that_hangs_up_delays_no_other() {
    let server = Server::start(Program::Tidegate, &[]);
    let (mut holder, mut leaver, mut next) = (server.raw(), server.raw(), server.raw());
    holder.command(&["LOCK.ACQUIRE", "l", "first", "PX", "60000"]);
    for (link, name) in [(&mut leaver, "a"), (&mut next, "b")] {
        link.hello3();
        link.command(&["LOCK.ACQUIRE", "l", name, "PX", "60000", "ASYNC", "0"]);
    }
    drop(leaver);
    until(|| text(&holder.command(&["LOCK.INFO", "l"])).contains("\"waiting\", 1"), "the client is forgotten");
    holder.command(&["LOCK.RELEASE", "l", "first"]);
    assert!(matches!(next.reply().value, Value::Push(push) if push[1] == Value::Integer(2)));
}

/// Time passes on the server: a lease or a wait ends without a request.
#[test]
fn leases_and_waits_end_without_a_request() {
    let server = Server::start(Program::Tidegate, &[]);
    let (mut holder, mut link) = (server.raw(), server.raw());
    holder.command(&["LOCK.ACQUIRE", "l", "first", "PX", "600000"]);
    link.hello3();
    let mut asks = |name: &str, wait_ms: &str| {
        let queued = link.command(&["LOCK.ACQUIRE", "l", name, "PX", "600000", "ASYNC", wait_ms]);
        assert!(text(&queued).contains("\"queued\""), "{queued:?}");
        if name == "b" {
            holder.command(&["LOCK.EXTEND", "l", "first", "PX", "1"]);
        }
        text(&link.reply().value)
    };
    let told = asks("a", "1");
    assert!(told.contains("\"ticket\", 1, [0, %{\"reason\": \"timeout\"}]"), "{told}");
    let told = asks("b", "0");
    assert!(told.contains("\"ticket\", 2, [1, "), "{told}");
}

/// A transcript of all bytes sent to one client: the input of a client program.
#[test]
fn a_transcript_shows_the_bytes_sent_to_a_client() {
    let mut bench = held(1);
    let mut sent = String::new();
    for line in ["LOCK.ACQUIRE l a PX 500 ASYNC 0", "TICKET.CANCEL 1", "LOCK.ACQUIRE l b PX 500 ASYNC 5"] {
        let reply = bench.call(0, &split_line(line).expect("plain words"));
        let _ = write!(sent, "{} ", String::from_utf8_lossy(&reply).replace("\r\n", " "));
    }
    bench.pass(5);
    let _ = write!(sent, "{}", String::from_utf8_lossy(&bench.heard(0)).replace("\r\n", " "));
    assert_eq!(
        sent,
        "*2 :0 %3 $6 reason $6 queued $6 ticket :1 $7 waiting :0  *2 :1 %1 $9 waited-ms :0  \
         *2 :0 %3 $6 reason $6 queued $6 ticket :2 $7 waiting :0  >3 $6 ticket :2 *2 :0 %1 $6 reason $7 timeout "
    );
}
