//! A snapshot sent as to a replica shows nothing that a crash could still undo.

use super::*;
use crate::persist::limits::{LOG_BEHIND_MAX_BYTES, LOG_SYNC_IN_PLACE_MAX};
use crate::rdb::file::{Reader, Record};
use crate::session::Restrictions;
use crate::session::limits::OUTBOX_TOTAL_PAUSE_BYTES;

/// A disk whose syncs take `sync_time`, 3,000 keys on it, and a client that begins to receive them.
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
    bench.engine.server.commit_units();
    bench.log().step();
    bench.engine.server.follow_journal();
}

/// Makes slices until some bytes are ready; false when the transfer is complete.
fn make_some(bench: &mut Bench) -> bool {
    let client = bench.clients[1];
    loop {
        bench.engine.transfer_slice(client);
        let session = bench.engine.server.clients.sessions.get_mut(client).expect("it is open");
        if !session.is_in_transfer() || session.has_unsent() {
            return session.is_in_transfer();
        }
    }
}

#[test]
fn only_durable_data_is_sent() {
    let mut bench = asked(20 * LOG_SYNC_IN_PLACE_MAX);
    assert!(make_some(&mut bench));
    assert!(bench.sent(1).is_some_and(|sent| sent.starts_with("$EOF:")), "nothing is in flight");
    bench.feed(0, &[&[b"SET", b"late", b"v"]]);
    assert!(bench.sent(0).is_none(), "the reply waits for the disk");
    while make_some(&mut bench) {
        assert!(bench.sent(1).is_none(), "output that may show the change waits, too");
    }
    finish_sync(&mut bench);
    assert!(bench.sent(1).is_some_and(|sent| !sent.is_empty()));
    let session = bench.engine.server.clients.sessions.get_mut(bench.clients[1]).expect("it is open");
    assert!(session.is_closing_when_sent(), "the link ends with the snapshot");
}

#[test]
fn nothing_is_sent_after_the_journal_has_failed() {
    let mut bench = asked(Duration::ZERO);
    bench.lose("SET lost v");
    make_some(&mut bench);
    assert!(bench.is_killed(1));
}

/// Keys already walked and keys still to come would change places: the file would lack keys that were there all the
/// time.
#[test]
fn swapdb_ends_a_transfer() {
    let mut bench = asked(Duration::ZERO);
    assert!(make_some(&mut bench));
    bench.feed(0, &[&[b"SWAPDB", b"0", b"1"]]);
    make_some(&mut bench);
    assert!(bench.is_killed(1));
}

#[test]
fn a_transfer_pauses_while_others_hold_all_the_room() {
    let mut bench = asked(Duration::ZERO);
    let client = bench.clients[1];
    assert!(!bench.engine.server.clients.has_no_room_for(bench.engine.server.time.clock.steady_ms(), client));
    let bytes = OUTBOX_TOTAL_PAUSE_BYTES / 4;
    bench.line(0, &format!("SETRANGE large {bytes} x"));
    (0..4).for_each(|_| bench.feed(2, &[&[b"GET", b"large"]]));
    bench.engine.server.clients.count_unsent(&mut bench.engine.server.meters.stats, bench.clients[2]);
    assert!(bench.engine.server.clients.has_no_room_for(bench.engine.server.time.clock.steady_ms(), client));
    let bell = Arc::<Bell>::default();
    let session = bench.engine.server.clients.sessions.get_mut(client).expect("it is open");
    session.wake_by(&Waker::from(Arc::clone(&bell)));
    assert_eq!(bell.0.load(Ordering::Relaxed), 0);
    bench.engine.disconnect(bench.clients[2]);
    assert_eq!(bell.0.load(Ordering::Relaxed), 1, "there is room again");
    assert!(!bench.engine.server.clients.has_no_room_for(bench.engine.server.time.clock.steady_ms(), client));
    while make_some(&mut bench) {}
}

/// The client's session is out of the registry while all others are notified.
#[test]
fn a_disk_found_full_during_a_transfer_accepts_no_change_of_its_client() {
    let mut bench = asked(20 * LOG_SYNC_IN_PLACE_MAX);
    bench.fill_disk();
    bench.feed(0, &[&[b"SET", b"waits", &LARGE]]);
    let bytes = LOG_BEHIND_MAX_BYTES - 100_000;
    bench.line(0, &format!("SETRANGE held {bytes} x"));
    bench.feed(2, &[&[b"GET", b"held"]]);
    assert!(
        !bench.engine.server.persistence.is_unlogged(&bench.engine.server.config),
        "the engine has not checked the disk yet"
    );
    while !bench.engine.server.persistence.is_unlogged(&bench.engine.server.config) {
        assert!(make_some(&mut bench), "too much is held back");
    }
    let session = bench.engine.server.clients.sessions.get_mut(bench.clients[1]).expect("it is open");
    assert!(session.restrictions.contains(Restrictions::UNLOGGED));
}

#[test]
fn expired_keys_are_left_out_and_the_others_keep_their_deadlines() {
    let mut bench = asked(Duration::ZERO);
    bench.line(0, "SET gone v PX 1000");
    bench.line(0, "SET stays v PX 900000");
    bench.clock.advance_ms(5_000);
    while make_some(&mut bench) {}
    let session = bench.engine.server.clients.sessions.get_mut(bench.clients[1]).expect("it is open");
    let sent = session.take_unsent();
    let file = &sent[sent.windows(5).position(|bytes| bytes == b"REDIS").expect("a file")..];
    let (mut reader, mut mortal) = (Reader::new(file).expect("it begins well"), Vec::new());
    loop {
        match reader.next_record().expect("it is whole") {
            Record::End => break,
            Record::Key(key) => mortal.extend(key.expires_at_ms.map(|at_ms| (key.key.to_vec(), at_ms))),
            _ => {}
        }
    }
    mortal.sort();
    assert_eq!(mortal, [(b"stays".to_vec(), 1_900_000)]);
}
