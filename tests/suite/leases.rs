//! The promises of a grant: its lease lasts as long as the reply says, and its token never comes back once it has
//! ended.

use crate::coordination::{call, dump, flat};
use crate::in_process::{Bench, words};

fn restore(bench: &mut Bench, key: &str, payload: &[u8]) -> String {
    let mut args = words(&["RESTORE", key, "0"]);
    args.push(payload.to_vec());
    args.extend(words(&["REPLACE"]));
    flat(&bench.call(0, &args))
}

/// The refusal of a value with a grant that was issued here and has ended.
const STALE: &str = "-STALE The value was not restored: this server has already issued the fencing tokens of its \
                     holders, or greater ones, so their leases have ended. Holders from another server can be restored \
                     only while their tokens are greater than the last one issued here";

#[test]
fn a_token_that_has_ended_is_not_restored() {
    let mut bench = Bench::new(1);
    assert!(call(&mut bench, 0, "LOCK.ACQUIRE l a PX 60000").starts_with("1 token 1 "));
    let payload = dump(&mut bench, "l");
    // It is held, so nothing changes, and its lease is the last promised one.
    assert!(call(&mut bench, 0, "LOCK.EXTEND l a PX 90000").contains("lease-ms 90000"));
    assert_eq!(restore(&mut bench, "l", &payload), "+OK");
    assert!(call(&mut bench, 0, "LOCK.INFO l").contains("lease-ms 90000"));
    assert_eq!(call(&mut bench, 0, "GUARD l 1 SET k 1"), "+OK");
    // Under another key it is not held.
    assert_eq!(restore(&mut bench, "m", &payload), STALE);
    assert_eq!(call(&mut bench, 0, "EXISTS m"), "0");
    call(&mut bench, 0, "LOCK.BREAK l");
    assert_eq!(restore(&mut bench, "l", &payload), STALE);
    assert!(call(&mut bench, 0, "LOCK.ACQUIRE l b PX 60000").starts_with("1 token 2 "));
    assert_eq!(restore(&mut bench, "l", &payload), STALE);
    assert!(call(&mut bench, 0, "GUARD l 1 SET k 2").starts_with("-STALE The lease"));
    assert_eq!(call(&mut bench, 0, "GUARD l 2 SET k 2"), "+OK");
    // It is not held after FLUSHALL either, which forgets no token.
    call(&mut bench, 0, "FLUSHALL");
    assert_eq!(restore(&mut bench, "l", &payload), STALE);
    // A gate without holders has no token.
    call(&mut bench, 0, "GATE.LIMIT g 5");
    let payload = dump(&mut bench, "g");
    assert_eq!(restore(&mut bench, "h", &payload), "+OK");
}

/// Tokens of another server are restored in any order until this server grants one of its own.
#[test]
fn tokens_of_another_server_are_restored_until_own_ones_are_granted() {
    let mut from = Bench::new(1);
    let payloads: Vec<Vec<u8>> = ["a", "b", "c", "d"]
        .iter()
        .map(|key| {
            call(&mut from, 0, &format!("LOCK.ACQUIRE {key} o PX 60000"));
            dump(&mut from, key)
        })
        .collect();
    let mut into = Bench::new(1);
    assert_eq!(call(&mut into, 0, "TOKEN.RAISE 9"), "9");
    assert_eq!(call(&mut into, 0, "TOKEN.RAISE 3"), "9");
    assert_eq!(restore(&mut into, "c", &payloads[2]), "+OK");
    assert_eq!(restore(&mut into, "a", &payloads[0]), "+OK");
    assert_eq!(call(&mut into, 0, "GUARD a 1 SET k 1"), "+OK");
    // An older grant does not come back after a newer one that is held.
    assert_eq!(restore(&mut into, "c", &payloads[1]), STALE);
    assert_eq!(call(&mut into, 0, "GUARD c 3 SET k 1"), "+OK");
    assert!(call(&mut into, 0, "LOCK.ACQUIRE own o PX 60000").starts_with("1 token 10 "));
    assert_eq!(restore(&mut into, "b", &payloads[1]), STALE);
    assert_eq!(call(&mut into, 0, "TOKEN.LAST"), "10");
    for wrong in ["-1", "x", "4503599627370497"] {
        assert!(call(&mut into, 0, &format!("TOKEN.RAISE {wrong}")).starts_with("-ERR the fencing token"), "{wrong}");
    }
}

#[test]
fn a_copy_has_no_holders() {
    let mut bench = Bench::new(1);
    call(&mut bench, 0, "LOCK.ACQUIRE l a PX 60000");
    assert_eq!(call(&mut bench, 0, "COPY l m"), "0");
    assert_eq!(call(&mut bench, 0, "EXISTS m"), "0");
    call(&mut bench, 0, "GATE.LIMIT g 5");
    call(&mut bench, 0, "GATE.ACQUIRE g h PX 60000");
    call(&mut bench, 0, "PEXPIRE g 70000");
    assert_eq!(call(&mut bench, 0, "COPY g g2"), "1");
    assert!(call(&mut bench, 0, "GATE.INFO g2").starts_with("0 in-use 0 limit 5 own-limit 1 holders 0"));
    assert_eq!(call(&mut bench, 0, "PTTL g2"), "70000");
    assert!(call(&mut bench, 0, "GATE.INFO g").starts_with("1 in-use 1 limit 5"));
    for line in
        ["STOCK.SET s 10", "STOCK.RESERVE s o1 PX 60000", "STOCK.RESERVE s o2 UNITS 2 PX 60000", "STOCK.COMMIT s o2"]
    {
        call(&mut bench, 0, line);
    }
    assert_eq!(call(&mut bench, 0, "COPY s s2"), "1");
    assert!(call(&mut bench, 0, "STOCK.INFO s2").starts_with("1 available 8 held 0 sold 2 total 10 holds 0"));
    assert!(call(&mut bench, 0, "STOCK.RESERVE s2 o2 PX 60000").starts_with("0 reason sold"));
    assert!(call(&mut bench, 0, "STOCK.INFO s").starts_with("1 available 7 held 1 sold 2 total 10 holds 1"));
}

/// If the key expires, a lease ends with it at the latest; the replies say so.
#[test]
fn a_lease_lasts_as_long_as_its_reply_says() {
    let mut bench = Bench::new(1);
    call(&mut bench, 0, "LOCK.ACQUIRE l o PX 60000");
    call(&mut bench, 0, "PEXPIRE l 300");
    for line in ["LOCK.EXTEND l o PX 60000", "LOCK.ACQUIRE l o PX 60000", "LOCK.INFO l", "WHO l"] {
        let said = call(&mut bench, 0, line);
        assert!(said.contains("lease-ms 300"), "{line}: {said}");
    }
    bench.pass(299);
    assert!(call(&mut bench, 0, "LOCK.ACQUIRE l other PX 1").starts_with("0 reason held"));
    bench.pass(1);
    assert!(call(&mut bench, 0, "LOCK.ACQUIRE l other PX 60000").contains("lease-ms 60000"));
    // The promised end holds, even if the key is made to last again.
    call(&mut bench, 0, "PEXPIRE l 500");
    call(&mut bench, 0, "LOCK.EXTEND l other PX 60000");
    call(&mut bench, 0, "PERSIST l");
    assert!(call(&mut bench, 0, "LOCK.INFO l").contains("lease-ms 500"));

    for line in ["GATE.LIMIT g 5", "PEXPIRE g 300"] {
        call(&mut bench, 0, line);
    }
    for line in [
        "GATE.ACQUIRE g h PX 60000",
        "GATE.ACQUIRE g h PX 70000",
        "GATE.RENEW g h PX 60000",
        "GATE.HOLDERS g 0",
        "WHO g",
    ] {
        let said = call(&mut bench, 0, line);
        assert!(said.contains("lease-ms 300"), "{line}: {said}");
    }
    let said = call(&mut bench, 0, "LIMIT.TAKE ID job RULES 1 g CONCURRENCY 5 60000");
    assert!(said.contains("reset-after-ms 300"), "{said}");
    bench.pass(300);
    assert!(call(&mut bench, 0, "GATE.INFO g").starts_with("0 in-use 0"));

    for line in ["STOCK.SET s 5", "PEXPIRE s 300"] {
        call(&mut bench, 0, line);
    }
    for line in ["STOCK.RESERVE s o PX 60000", "STOCK.RESERVE s o PX 70000", "STOCK.HOLDS s 0", "WHO s"] {
        let said = call(&mut bench, 0, line);
        assert!(said.contains("lease-ms 300"), "{line}: {said}");
    }
    call(&mut bench, 0, "STOCK.SET s 5 LOW 5 60000");
    let said = call(&mut bench, 0, "STOCK.RESERVE s first PX 100");
    assert!(said.contains("refill-ms 300"), "{said}");
    assert!(call(&mut bench, 0, "STOCK.INFO s").contains("refill-ms 300"));
    // A shorter lease ends first.
    assert!(call(&mut bench, 0, "STOCK.RESERVE s brief PX 100").contains("lease-ms 100"));
}

/// Knowledge gained in a unit that was rolled back is not in the journal, so it is recorded again.
#[test]
fn a_raised_token_counter_is_recorded_even_after_a_rollback() {
    let mut from = Bench::new(1);
    call(&mut from, 0, "TOKEN.RAISE 999");
    call(&mut from, 0, "LOCK.ACQUIRE l o PX 60000");
    let payload = dump(&mut from, "l");
    let mut bench = Bench::new(1);
    bench.keep_units();
    let mut args = words(&["EVAL", "redis.call('RESTORE', KEYS[1], 0, ARGV[1]) error('no')", "1", "l"]);
    args.push(payload);
    assert!(flat(&bench.call(0, &args)).starts_with('-'));
    assert_eq!(call(&mut bench, 0, "TOKEN.RAISE 1000"), "1000");
    let log: Vec<_> = bench.take_units().into_iter().map(|unit| (0, unit)).collect();
    bench.restart(&log).expect("its own log");
    assert_eq!(call(&mut bench, 0, "TOKEN.LAST"), "1000");
}

/// However many leases end at once, none counts as held.
#[test]
fn an_ended_lease_is_not_held_even_before_its_removal() {
    const HOLDERS: usize = 600;
    let mut bench = Bench::new(1);
    for holder in 0..HOLDERS {
        call(&mut bench, 0, &format!("GATE.ACQUIRE g h{holder} LIMIT 1000 PX 1000"));
    }
    call(&mut bench, 0, "GATE.ACQUIRE g long LIMIT 1000 PX 60000");
    // Only the clock advances: the ended leases have not been removed yet.
    bench.set_clock(1000);
    assert!(call(&mut bench, 0, &format!("GUARD g {HOLDERS} SET k 1")).starts_with("-STALE The lease"));
    let last = HOLDERS - 1;
    assert_eq!(call(&mut bench, 0, &format!("GATE.RENEW g h{last} PX 1000")), "0 reason not-held");
    assert_eq!(call(&mut bench, 0, &format!("GUARD g {} SET k 1", HOLDERS + 1)), "+OK");
}
