//! Stocks: random histories compared with a naive model ([`histories`]), and other promises to callers. Replies in both
//! protocols are in `transcripts/stock.txt`.

mod histories;
mod model;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::coordination::{call, dump, flat};
use crate::differential::generate::Dice;
use crate::harness::{Program, Server, Value, until};
use crate::in_process::{Bench, START_MS, words};

/// The reply to an order without a hold.
const NOT_HELD: &str = "0 reason not-held";

/// Units are sold or given back once, however often a client repeats its calls.
#[test]
fn retried_calls_change_nothing() {
    let mut bench = Bench::new(1);
    let mut run = |line: &str| call(&mut bench, 0, line);
    assert_eq!(run("STOCK.SET s 10"), "1 available 10 held 0 sold 0 total 10");
    let granted = "1 token 1 units 4 available 6 per-left -1 lease-ms 5000 refill-ms 0";
    assert_eq!([run("STOCK.RESERVE s o UNITS 4 PX 5000"), run("STOCK.RESERVE s o UNITS 4 EX 5")], [granted; 2]);
    assert_eq!(run("STOCK.SET s 10"), "1 available 6 held 4 sold 0 total 10");
    assert!(run("STOCK.RESERVE s o UNITS 3 PX 5000").starts_with("-ERR this order already holds 4 units"));
    assert!(run("STOCK.RESERVE s o UNITS 4 PX 5000 PER ann 9").starts_with("-ERR this order already holds 4 units"));
    let sold = format!("1 units 4 sold-at-ms {START_MS}");
    assert_eq!([run("STOCK.COMMIT s o"), run("STOCK.COMMIT s o")], [sold.as_str(); 2]);
    assert_eq!([run("STOCK.CANCEL s o"), run("STOCK.CANCEL s none")], ["0 reason sold", NOT_HELD]);
    assert!(run("STOCK.RESERVE s o UNITS 4 PX 5000").starts_with("0 reason sold available 6 "));
    assert_eq!(run("STOCK.SET s 10"), "1 available 6 held 0 sold 4 total 10");
    run("STOCK.RESERVE s p UNITS 6 PX 5000");
    assert_eq!([run("STOCK.CANCEL s p"), run("STOCK.CANCEL s p")], ["1 units 6 available 6", NOT_HELD]);
    assert_eq!(run("STOCK.COMMIT s p"), NOT_HELD);
    assert_eq!(run("STOCK.ADD s r 5"), "1 added 5 available 11 total 15");
    assert_eq!(run("STOCK.ADD s r 5"), "1 added 0 available 11 total 15");
    assert!(run("STOCK.ADD s r 6").starts_with("-ERR a refill with this id was already made, of 5 units"));
    assert!(run(&format!("STOCK.ADD s big {}", (1u64 << 53) - 1)).starts_with("-ERR a stock must not exceed"));
    assert!(run(&format!("STOCK.ADD s big {}", 1u64 << 53)).starts_with("-ERR the number of units must be"));
}

/// Exactly one caller is named to refill, until the refill comes or its time is over.
#[test]
fn one_caller_is_asked_to_refill() {
    let mut bench = Bench::new(1);
    let refill_ms = |bench: &mut Bench, line: &str| {
        let reply = call(bench, 0, line);
        reply.rsplit(' ').next().and_then(|last| last.parse::<i64>().ok()).unwrap_or_else(|| panic!("{reply}"))
    };
    call(&mut bench, 0, "STOCK.SET s 5 LOW 3 2000");
    assert_eq!(refill_ms(&mut bench, "STOCK.RESERVE s a PX 60000"), 0);
    assert_eq!(refill_ms(&mut bench, "STOCK.RESERVE s b PX 60000"), 2000);
    bench.pass(500);
    assert_eq!(refill_ms(&mut bench, "STOCK.RESERVE s c PX 60000"), 0);
    assert_eq!(refill_ms(&mut bench, "STOCK.RESERVE s b PX 60000"), 1500, "a retry gets the same reply");
    bench.pass(1500);
    // The named caller did not refill. A refused caller may be named as well as a granted one.
    assert_eq!(refill_ms(&mut bench, "STOCK.RESERVE s d UNITS 9 PX 60000"), 2000);
    assert!(call(&mut bench, 0, "STOCK.INFO s").contains("low 3 refiller d refill-ms 2000"));
    assert_eq!(call(&mut bench, 0, "STOCK.ADD s r1 1"), "1 added 1 available 3 total 6");
    assert_eq!(refill_ms(&mut bench, "STOCK.RESERVE s e PX 60000"), 2000, "the refill was too small");
    call(&mut bench, 0, "STOCK.ADD s r2 90");
    assert_eq!(refill_ms(&mut bench, "STOCK.RESERVE s f PX 60000"), 0);
    call(&mut bench, 0, "STOCK.SET s 0 NOLOW");
    assert_eq!(refill_ms(&mut bench, "STOCK.RESERVE s g PX 60000"), 0);
}

/// A stock that takes the place of a plain counter goes on selling from the count that scripts left.
#[test]
fn a_stock_can_take_over_a_counter() {
    let mut bench = Bench::new(1);
    let mut run = |line: &str| call(&mut bench, 0, line);
    assert_eq!(run("STOCK.RESERVE s a PX 1000"), "0 reason no-stock");
    run("SET s 3 PX 9000");
    let short = "0 reason short available 3 per-left -1 retry-after-ms -1 refill-ms 0";
    assert_eq!(run("STOCK.RESERVE s a UNITS 4 PX 1000"), short);
    assert!(run("STOCK.RESERVE s a UNITS 2 PX 1000 PER ann 1").starts_with("0 reason per available 3 per-left 1 "));
    assert_eq!(run("TYPE s"), "+string");
    assert!(["STOCK.INFO s", "STOCK.ADD s r 1", "STOCK.SET s 1"].iter().all(|line| run(line).contains("WRONGTYPE")));
    assert!(run("STOCK.RESERVE s a UNITS 2 PX 1000").starts_with("1 token 1 units 2 available 1 "));
    assert_eq!([run("TYPE s"), run("PTTL s")], ["+stock", "9000"]);
    assert!(run("GET s").starts_with("-WRONGTYPE"));
    for (value, answer) in [("-5", "0 reason short available 0"), ("text", "-WRONGTYPE"), ("0", "0 reason short")] {
        run(&format!("SET n {value}"));
        assert!(run("STOCK.RESERVE n a PX 1000").starts_with(answer), "{value}");
    }
    // A script can leave either, and one that fails leaves the counter.
    run("SET n 5");
    run("EVAL \"redis.call('stock.reserve', KEYS[1], 'a', 'px', 9) error('no')\" 1 n");
    assert_eq!(run("GET n"), "5");
}

/// A call whose end can't be written to the stream gets an error, and changes nothing.
#[test]
fn ends_of_holds_are_written_to_the_stream() {
    let mut bench = Bench::new(2);
    let refused = "-ERR the stream of this stock";
    call(&mut bench, 0, "STOCK.SET s 10 STREAM told");
    for order in ["a", "b", "c"] {
        call(&mut bench, 0, &format!("STOCK.RESERVE s {order} PX 1000 PER ann 9"));
    }
    call(&mut bench, 0, "SET told text");
    assert!(call(&mut bench, 0, "STOCK.COMMIT s a").starts_with(refused));
    assert!(call(&mut bench, 0, "STOCK.CANCEL s a").starts_with(refused));
    assert_eq!(call(&mut bench, 0, "STOCK.CANCEL s none"), NOT_HELD);
    assert!(call(&mut bench, 0, "STOCK.INFO s").starts_with("1 available 7 held 3 sold 0 "));
    call(&mut bench, 0, "DEL told");
    // A waiter for the stream is woken, also when a lease ends and no call comes.
    assert_eq!(call(&mut bench, 1, "XREAD BLOCK 0 STREAMS told $"), "");
    call(&mut bench, 0, "STOCK.COMMIT s a");
    let of_a = format!("told {START_MS}-0 event sold stock s order a units 1 subject ann token 1");
    assert_eq!(flat(&bench.heard(1)), of_a);
    assert_eq!(call(&mut bench, 1, "XREAD BLOCK 0 STREAMS told $"), "");
    bench.pass(1000);
    bench.reclaim();
    let at_ms = START_MS + 1000;
    let of_b = format!("told {at_ms}-0 event expired stock s order b units 1 subject ann token 2");
    let of_c = format!("{at_ms}-1 event expired stock s order c units 1 subject ann token 3");
    assert_eq!(flat(&bench.heard(1)), format!("{of_b} {of_c}"));
    // A copy reports under its own name, and a deleted stock reports nothing.
    call(&mut bench, 0, "STOCK.RESERVE s c PX 1000");
    call(&mut bench, 0, "COPY s t");
    call(&mut bench, 0, "STOCK.RESERVE t d PX 1000");
    call(&mut bench, 0, "STOCK.CANCEL t d");
    call(&mut bench, 0, "DEL s");
    assert!(call(&mut bench, 0, "XREVRANGE told + - COUNT 1").contains("event cancelled stock t order d"));
    assert_eq!(call(&mut bench, 0, "XLEN told"), "4");
}

/// DUMP, RESTORE and RENAME carry all of it, COPY only units without a hold; commands of another kind refuse it.
#[test]
fn stocks_work_with_commands_for_any_value() {
    let mut bench = Bench::new(1);
    call(&mut bench, 0, "STOCK.SET s 10 LOW 2 500 STREAM told PERIOD 900");
    for order in ["a", "b", "c"] {
        call(&mut bench, 0, &format!("STOCK.RESERVE s {order} UNITS 3 PX 1000 PER ann 9"));
    }
    call(&mut bench, 0, "STOCK.COMMIT s a");
    call(&mut bench, 0, "STOCK.ADD s r 1");
    let mut elsewhere = Bench::new(1);
    let mut restore = words(&["RESTORE", "restored", "0"]);
    restore.push(dump(&mut bench, "s"));
    assert_eq!(flat(&elsewhere.call(0, &restore)), "+OK");
    call(&mut bench, 0, "COPY s copied");
    let told = |bench: &mut Bench, key: &str| {
        ["STOCK.INFO {} PER ann", "STOCK.HOLDS {} 0", "STOCK.COMMIT {} a"]
            .map(|line| call(bench, 0, &line.replace("{}", key)))
    };
    let original = told(&mut bench, "s");
    assert!(original[0].contains("subject-held 6 subject-bought 3"), "{original:?}");
    assert_eq!(told(&mut elsewhere, "restored"), original);
    call(&mut bench, 0, "RENAME s renamed");
    assert_eq!(told(&mut bench, "renamed"), original);
    call(&mut bench, 0, "RENAME renamed s");
    let [info, holds, commit] = told(&mut bench, "copied");
    assert!(
        info.contains("subject-held 0 subject-bought 3") && holds == "0" && commit == original[2],
        "{info} {holds}"
    );
    for line in
        ["LOCK.ACQUIRE s a PX 1", "GATE.ACQUIRE s a LIMIT 1 PX 1", "GATE.LIMIT s 1", "LOCK.BREAK s", "GATE.HOLDERS s 0"]
    {
        assert!(call(&mut bench, 0, line).contains("WRONGTYPE"), "{line}");
    }
    call(&mut bench, 0, "GATE.LIMIT g 1");
    for line in ["STOCK.SET g 1", "STOCK.INFO g", "STOCK.HOLDS g 0", "STOCK.COMMIT g a", "STOCK.RESERVE g a PX 1"] {
        assert!(call(&mut bench, 0, line).contains("WRONGTYPE"), "{line}");
    }
    // The token of a hold guards like any other.
    assert_eq!(call(&mut bench, 0, "GUARD s 2 SET paid yes"), "+OK");
    assert!(call(&mut bench, 0, "GUARD s 1 SET paid yes").starts_with("-STALE"));
}

/// Orders that clients were told are sold, with their units.
type Sold = Mutex<BTreeMap<String, i64>>;

/// Splits a line of plain words into a command.
fn line_command(line: &str) -> redis::Cmd {
    let mut command = redis::Cmd::new();
    line.split(' ').for_each(|word| _ = command.arg(word));
    command
}

/// Reserves, sells and cancels, ending each hold twice, until the server is gone.
fn trade(mut c: redis::Connection, client: &str, seed: u64, sold: &Sold, steps: &AtomicUsize) -> Option<()> {
    let dice = &mut Dice(seed);
    let mut ask = |line: &str| line_command(line).query::<Vec<redis::Value>>(&mut c).ok();
    for number in 0.. {
        let order = format!("{client}:{number}");
        let (units, lease_ms) = (1 + dice.below(3), if dice.once_in(4) { 1 } else { 60_000 });
        let end = if dice.once_in(2) { "STOCK.COMMIT" } else { "STOCK.CANCEL" };
        ask(&format!("STOCK.RESERVE s {order} UNITS {units} PX {lease_ms} PER ann 1000000"))?;
        for _ in 0..2 {
            let reply = ask(&format!("{end} s {order}"))?;
            if let ("STOCK.COMMIT", [redis::Value::Int(1), _, redis::Value::Int(units), ..]) = (end, &reply[..]) {
                sold.lock().expect("no panics").insert(order.clone(), *units);
            }
        }
        steps.fetch_add(1, Ordering::Relaxed);
    }
    None
}

/// 32 clients trade while the server is killed. Afterwards every unit is available, held or sold; units acknowledged as
/// sold are sold; and each order in the stream has ended once.
#[test]
fn no_unit_is_lost_or_duplicated_by_a_crash() {
    const CLIENTS: usize = 32;
    const TOTAL: i64 = 1_000_000;
    let dir = tempfile::tempdir().expect("a folder");
    let flags = ["--dir", dir.path().to_str().expect("plain text"), "--appendonly", "yes", "--appendfsync", "always"];
    let mut server = Server::start(Program::Tidegate, &flags);
    server.raw().command(&["STOCK.SET", "s", &TOTAL.to_string(), "STREAM", "told"]);
    let sold = Sold::default();
    for round in 0..3 {
        let steps = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for client in 0..CLIENTS {
                let (c, sold, steps) = (server.client(), &sold, &steps);
                let seed = (1 + round * CLIENTS + client) as u64;
                scope.spawn(move || trade(c, &format!("{round}:{client}"), seed, sold, steps));
            }
            until(|| steps.load(Ordering::Relaxed) >= 1_000, "clients trade");
            // By SIGKILL.
            drop(server);
        });
        server = Server::start(Program::Tidegate, &flags);
        let mut c = server.raw();
        let known = sold.lock().expect("no panics").clone();
        for (order, units) in &known {
            let reply = c.command(&["STOCK.COMMIT", "s", order]);
            let Value::Array(words) = &reply else { panic!("{reply:?}") };
            assert_eq!(words[..3], [Value::Integer(1), Value::bulk("units"), Value::Integer(*units)], "{order}");
        }
        let Value::Array(info) = c.command(&["STOCK.INFO", "s", "PER", "ann"]) else { panic!("an array") };
        let number = |name: &str| match info.iter().position(|word| *word == Value::bulk(name)).map(|at| &info[at + 1])
        {
            Some(Value::Integer(number)) => *number,
            _ => panic!("{name}: {info:?}"),
        };
        assert_eq!((number("total"), number("available")), (TOTAL, TOTAL - number("held") - number("sold")));
        let Value::Array(page) = c.command(&["STOCK.HOLDS", "s", "0", "COUNT", "10000"]) else { panic!("an array") };
        let (Value::Bulk(next), Value::Array(holds)) = (&page[0], &page[1]) else { panic!("{page:?}") };
        let units_of = |hold: &Value| match hold {
            Value::Array(fields) => match fields[5] {
                Value::Integer(units) => units,
                _ => panic!("{fields:?}"),
            },
            _ => panic!("{hold:?}"),
        };
        assert_eq!((&next[..], holds.iter().map(units_of).sum::<i64>()), (&b"0"[..], number("held")));
        assert_eq!((number("subject-held"), number("subject-bought")), (number("held"), number("sold")));
        assert!(number("sold") >= known.values().sum() && !known.is_empty());
        let Value::Array(entries) = c.command(&["XRANGE", "told", "-", "+"]) else { panic!("an array") };
        let told: Vec<String> = entries.iter().map(|entry| format!("{entry:?}")).collect();
        let after = |entry: &str, name: &str| {
            let rest = entry.split(&format!("{name:?}, \"")).nth(1).expect("each has it");
            rest.split('"').next().expect("what is before the end").to_owned()
        };
        let orders: BTreeSet<_> = told.iter().map(|entry| after(entry, "order")).collect();
        assert_eq!(orders.len(), told.len());
        let sold = told.iter().filter(|entry| after(entry, "event") == "sold");
        assert_eq!(
            sold.map(|entry| after(entry, "units").parse::<i64>().expect("a number")).sum::<i64>(),
            number("sold")
        );
    }
}

/// A user needs rights to the stream's key to name it, and none to sell. COMMAND GETKEYS lists it, too.
#[test]
fn a_user_needs_rights_to_the_stream_that_it_names() {
    let mut bench = Bench::new(2);
    call(&mut bench, 0, "ACL SETUSER u on nopass ~own:* +@coordination");
    call(&mut bench, 1, "AUTH u x");
    assert!(call(&mut bench, 1, "STOCK.SET own:s 5 LOW 1 9 STREAM other").starts_with("-NOPERM"));
    assert!(call(&mut bench, 1, "STOCK.SET own:s 5 STREAM own:told").starts_with("1 "));
    call(&mut bench, 0, "STOCK.SET own:s 5 STREAM other");
    call(&mut bench, 1, "STOCK.RESERVE own:s a PX 9");
    assert!(call(&mut bench, 1, "STOCK.COMMIT own:s a").starts_with("1 "));
    assert_eq!(call(&mut bench, 0, "XLEN other"), "1");
    assert!(call(&mut bench, 1, "XLEN other").starts_with("-NOPERM"));
    assert_eq!(call(&mut bench, 0, "COMMAND GETKEYS STOCK.SET s 5 STREAM told PERIOD 1"), "s told");
    // A copy or a payload needs these rights, too.
    call(&mut bench, 0, "ACL SETUSER u %R~s +copy +restore");
    call(&mut bench, 0, "STOCK.SET s 5 STREAM other");
    let payload = bench.call(0, &words(&["DUMP", "s"]));
    let (_, payload) = payload.split_at(payload.iter().position(|byte| *byte == b'\n').expect("a length") + 1);
    let restore = vec![b"RESTORE".to_vec(), b"own:r".to_vec(), b"0".to_vec(), payload[..payload.len() - 2].to_vec()];
    assert!(bench.call(1, &restore).starts_with(b"-NOPERM"));
    assert!(call(&mut bench, 1, "COPY s own:c").starts_with("-NOPERM"));
    assert_eq!(call(&mut bench, 0, "EXISTS own:r own:c"), "0");
    call(&mut bench, 0, "ACL SETUSER u %W~other");
    assert_eq!(bench.call(1, &restore), b"+OK\r\n");
    assert_eq!(call(&mut bench, 1, "COPY s own:c"), "1");
    let long = "k".repeat(1_025);
    assert!(call(&mut bench, 0, &format!("STOCK.SET {long} 5 STREAM told")).starts_with("-ERR with STREAM"));
    assert!(call(&mut bench, 0, &format!("STOCK.SET s 5 STREAM {long}")).starts_with("-ERR with STREAM"));
}
