//! A snapshot that is sent as to a replica shows nothing that a crash could still take back.

use super::*;
use crate::base::limits::LOG_SYNC_IN_PLACE_MAX;

/// A disk whose syncs take so long, 3,000 keys on it, and a client that begins to be sent them.
fn asked(sync_time: Duration) -> Bench {
    let mut bench = Bench::new();
    bench.disk.set_faults(Faults { sync_time, ..Faults::default() });
    for n in 0..3_000 {
        bench.feed(0, &[&[b"SET", format!("key:{n}").as_bytes(), &[b'v'; 100]]]);
    }
    finish_sync(&mut bench);
    assert!(bench.sent(0).is_some());
    bench.feed(1, &[&[b"REPLCONF", b"capa", b"eof"], &[b"PSYNC", b"?", b"-1"]]);
    let begun = bench.sent(1).expect("it shows nothing yet");
    assert!(begun.starts_with("+OK\\r\\n+FULLRESYNC "), "{begun}");
    bench
}

fn finish_sync(bench: &mut Bench) {
    bench.engine.server.commit_log();
    bench.log().step();
    bench.engine.server.follow_log();
}

/// Makes the next slices until some bytes are there; false when all has been made.
fn make_some(bench: &mut Bench) -> bool {
    let client = bench.clients[1];
    loop {
        bench.engine.transfer_slice(client);
        let session = bench.engine.server.sessions.get_mut(client).expect("it is open");
        if session.transfer.is_none() || !session.outbox.is_empty() {
            return session.transfer.is_some();
        }
    }
}

#[test]
fn what_is_sent_of_the_data_is_on_disk() {
    let mut bench = asked(20 * LOG_SYNC_IN_PLACE_MAX);
    assert!(make_some(&mut bench));
    assert!(bench.sent(1).is_some_and(|sent| sent.starts_with("$EOF:")), "nothing is in flight");
    bench.feed(0, &[&[b"SET", b"late", b"v"]]);
    assert!(bench.sent(0).is_none(), "it waits for the disk");
    while make_some(&mut bench) {
        assert!(bench.sent(1).is_none(), "what may show the change waits, too");
    }
    finish_sync(&mut bench);
    assert!(bench.sent(1).is_some_and(|sent| !sent.is_empty()));
    let session = bench.engine.server.sessions.get_mut(bench.clients[1]).expect("it is open");
    assert!(session.closing, "the link ends with the snapshot");
}

#[test]
fn nothing_is_sent_behind_a_log_that_has_failed() {
    let mut bench = asked(Duration::ZERO);
    bench.lose("SET lost v");
    make_some(&mut bench);
    assert!(bench.is_killed(1));
}

/// What was walked and what was not would change places: the file would lack keys that were there all the time.
#[test]
fn databases_that_are_swapped_end_it() {
    let mut bench = asked(Duration::ZERO);
    assert!(make_some(&mut bench));
    bench.feed(0, &[&[b"SWAPDB", b"0", b"1"]]);
    make_some(&mut bench);
    assert!(bench.is_killed(1));
}
