//! Replies while a sync takes long: a client that reads unchanged keys is answered, and no client sees data that a
//! crash could still undo. The disk is done when the test says so; no time passes.

use super::*;
use crate::engine::persistence::recovery::Loading;
use crate::log::group_commit::State;
use crate::log::limits::LOG_MERGE_MAX_BYTES;
use crate::persist::limits::{LOG_BEHIND_MAX_BYTES, LOG_SYNC_IN_PLACE_MAX};
use crate::session::Restrictions;

/// A reading script, as one word of a line.
const GET: &str = "return~redis.call('GET',KEYS[1])";

impl Bench {
    /// A disk known to be slow, so that the engine does not wait for it.
    fn slow() -> Bench {
        let mut bench = Bench::new();
        bench.disk.set_faults(Faults { sync_time: 20 * LOG_SYNC_IN_PLACE_MAX, ..Faults::default() });
        assert_eq!(bench.line(0, "SET learned v").as_deref(), Some("+OK\\r\\n"));
        assert!(bench.log().sync_time() > LOG_SYNC_IN_PLACE_MAX);
        bench
    }

    /// Sends a client's commands, each as a pipeline of its own. A tilde in a word stands for a space; `SHA1` is
    /// replaced by the digest of [`GET`].
    fn ask(&mut self, client: usize, lines: &[&str]) {
        let sha1 = crate::script::store::sha1_hex(GET.replace('~', " ").as_bytes());
        let sha1 = String::from_utf8_lossy(&sha1).into_owned();
        for line in lines {
            let words: Vec<String> =
                line.split(' ').map(|word| word.replace('~', " ").replace("SHA1", &sha1)).collect();
            self.feed(client, &[&words.iter().map(String::as_bytes).collect::<Vec<_>>()]);
        }
    }

    /// Runs commands of the first client, which are answered when the disk is done.
    fn run_until_durable(&mut self, lines: &[&str]) {
        self.ask(0, lines);
        self.finish_sync();
        let sent = self.sent(0).expect("it is on disk");
        assert!(!sent.contains("-ERR"), "{lines:?}: {sent}");
    }

    /// The disk completes the operations it was asked for.
    fn finish_sync(&mut self) {
        self.engine.server.commit_units();
        self.log().step();
        self.engine.server.follow_journal();
    }

    /// The bytes that may leave for a client while the disk works, and whether more of its output has to wait.
    fn sendable_now(&mut self, client: usize) -> (String, bool) {
        let durable = self.log().durable();
        let sent = self.sent(client).unwrap_or_default();
        assert_eq!(self.log().durable(), durable, "the disk is not done");
        let session = self.engine.server.clients.sessions.get_mut(self.clients[client]).expect("it is open");
        (sent, session.has_unsent())
    }
}

/// The initial commands, the changes by one client, the reads by another, and whether those have to wait.
type Case = (&'static [&'static str], &'static [&'static str], &'static [&'static str], bool);

const CASES: &[Case] = &[
    (&[], &["SET k v"], &["GET other"], false),
    (&[], &["SET k v"], &["ECHO hello", "PING", "TIME", "CLIENT ID", "PUBLISH news v", "CONFIG GET port"], false),
    (&[], &["SET k v"], &["INFO persistence"], false),
    (&[], &["SET k v"], &["SELECT 1", "GET k"], false),
    (&[], &["SET k v"], &["MULTI", "GET other", "EXEC"], false),
    (&["SCRIPT LOAD return~redis.call('GET',KEYS[1])"], &["SET k v"], &["EVALSHA SHA1 1 other"], false),
    (&[], &["SCRIPT LOAD return~redis.call('GET',KEYS[1])"], &["GET other"], false),
    (&["SET other v"], &["SET k v"], &["SETNX other w"], false),
    (&[], &["SET k v"], &["GET k"], true),
    (&[], &["SET k v"], &["MGET other k"], true),
    (&[], &["SET k v"], &["EXISTS k"], true),
    (&[], &["SET k v"], &["TYPE k"], true),
    (&[], &["SET k v"], &["TTL k"], true),
    (&[], &["SET k v"], &["OBJECT ENCODING k"], true),
    (&[], &["SET k v"], &["MEMORY USAGE k"], true),
    (&[], &["SET k v"], &["DUMP k"], true),
    (&[], &["SET k v"], &["LLEN k"], true),
    (&[], &["SET k v"], &["SETNX k w"], true),
    (&["RPUSH l 1 2", "SET by:1 5"], &["SET by:2 1"], &["SORT l BY by:*"], true),
    (&["SET k v"], &["DEL k"], &["GET k"], true),
    (&["SET k v"], &["DEL k"], &["DEL k"], true),
    (&["SET k v"], &["RENAME k l"], &["GET l"], true),
    (&["SET k v"], &["COPY k l DB 1"], &["SELECT 1", "STRLEN l"], true),
    (&["SADD s a"], &["SADD s b"], &["SADD s b"], true),
    (&["XADD s 1-1 f v", "XGROUP CREATE s g 0"], &["XREADGROUP GROUP g c STREAMS s >"], &["XPENDING s g"], true),
    (&["SET k v"], &["FLUSHALL"], &["GET k"], true),
    (&["SET k v"], &["FLUSHALL"], &["FLUSHALL"], true),
    (&["SET k v"], &["SWAPDB 0 1"], &["GET other"], true),
    (&[], &["SET k v"], &["DBSIZE"], true),
    (&[], &["SET k v"], &["KEYS nosuch"], true),
    (&[], &["SET k v"], &["SCAN 0"], true),
    (&[], &["SET k v"], &["RANDOMKEY"], true),
    (&[], &["SET k v"], &["INFO keyspace"], true),
    (&[], &["SET k v"], &["MULTI", "GET k", "EXEC"], true),
    (&[], &["MULTI", "SET k v", "SET l v", "EXEC"], &["GET l"], true),
    (&["SCRIPT LOAD return~redis.call('GET',KEYS[1])"], &["SET k v"], &["EVALSHA SHA1 1 k"], true),
    (&[], &["EVAL redis.call('SET','k','v') 0"], &["GET k"], true),
    (&[], &["SCRIPT LOAD return~redis.call('GET',KEYS[1])"], &["SCRIPT EXISTS SHA1"], true),
    (&[], &["SCRIPT LOAD return~redis.call('GET',KEYS[1])"], &["EVALSHA SHA1 1 other"], true),
    (&[], &["SCRIPT LOAD return~redis.call('GET',KEYS[1])"], &["SCRIPT FLUSH"], true),
    (
        &[],
        &["FUNCTION DELETE nosuch", "FUNCTION LOAD #!lua~name=l\nredis.register_function('f',redis.log)"],
        &["FUNCTION LIST"],
        true,
    ),
    (&["SCRIPT LOAD return~redis.call('GET',KEYS[1])"], &["SCRIPT FLUSH"], &["EVALSHA SHA1 1 other"], true),
];

#[test]
fn reads_of_unchanged_keys_are_answered_while_the_disk_works() {
    for case @ (before, change, ask, waits) in CASES {
        let mut bench = Bench::slow();
        bench.run_until_durable(before);
        bench.ask(0, change);
        assert!(bench.sendable_now(0).1, "{case:?}: a change waits");
        bench.ask(1, ask);
        let (sent, is_held) = bench.sendable_now(1);
        assert_eq!(is_held, *waits, "{case:?}: {sent}");
        bench.finish_sync();
        assert_eq!([bench.sendable_now(0).1, bench.sendable_now(1).1], [false; 2], "{case:?}: the disk is done");
    }
}

/// Recovers after a crash, in memory only.
fn after_a_crash(bench: Bench) -> Bench {
    let Bench { engine: crashed, clock, disk, .. } = bench;
    disk.crash();
    drop(crashed);
    disk.set_faults(Faults::default());
    let mut engine = engine(Config::default(), clock.clone());
    let loading = Loading::begin(&mut engine, directory(&disk)).expect("a crash damages nothing");
    loading.finish_without_log(&mut engine).expect("a crash damages nothing");
    let clients = [(); 3].map(|()| engine.server.open_session(Peer::default()));
    Bench { engine, clock, disk, clients }
}

/// The power fails before the first, the second, the third disk operation that makes a change durable, and so on.
#[test]
fn quiet_keys_are_read_at_once_and_lost_changes_were_never_shown() {
    let (mut lost, mut shown) = (0, 0);
    for operation in 0..6 {
        let mut bench = Bench::slow();
        bench.run_until_durable(&["SET quiet v", "SET written before"]);
        bench.ask(0, &["SET written after"]);
        bench.ask(2, &["GET written"]);
        for _ in 0..100 {
            bench.ask(1, &["GET quiet"]);
            assert_eq!(
                bench.sendable_now(1),
                ("$1\\r\\nv\\r\\n".to_owned(), false),
                "a reader of the quiet key does not wait"
            );
        }
        assert_eq!([bench.sendable_now(0), bench.sendable_now(2)], [(); 2].map(|()| (String::new(), true)));
        let crash_at = Some(bench.disk.operations() + operation);
        bench.disk.set_faults(Faults { crash_at, ..Faults::default() });
        bench.finish_sync();
        let told = [0, 2].map(|client| bench.sendable_now(client).0);
        let mut bench = after_a_crash(bench);
        assert_eq!(bench.line(0, "GET quiet").as_deref(), Some("$1\\r\\nv\\r\\n"));
        let is_lost = match bench.line(0, "GET written").as_deref() {
            Some("$6\\r\\nbefore\\r\\n") => true,
            Some("$5\\r\\nafter\\r\\n") => false,
            other => panic!("{other:?}"),
        };
        assert!(!is_lost || told == [""; 2], "at operation {operation}: {told:?} was shown, but the change is lost");
        lost += u32::from(is_lost);
        shown += u32::from(told == ["+OK\\r\\n", "$5\\r\\nafter\\r\\n"]);
    }
    assert!(lost > 0 && shown > 0, "lost {lost} times, shown {shown} times");
}

#[test]
fn replies_stay_in_order_and_leave_as_soon_as_possible() {
    let mut bench = Bench::slow();
    bench.ask(0, &["SET k v"]);
    assert_eq!(bench.sendable_now(0), (String::new(), true));
    let (get, other): (&[&[u8]], &[&[u8]]) = (&[b"GET", b"k"], &[b"ECHO", b"x"]);
    bench.feed(1, &[other, get, other]);
    assert_eq!(bench.sendable_now(1), ("$1\\r\\nx\\r\\n".to_owned(), true));
    // Later commands stay behind it, but are executed all the same.
    bench.ask(1, &["SET later v"]);
    // The disk has only been asked to write the first change.
    bench.log().step();
    assert_eq!(bench.sendable_now(0), ("+OK\\r\\n".to_owned(), false));
    assert_eq!(bench.sendable_now(1), ("$1\\r\\nv\\r\\n$1\\r\\nx\\r\\n".to_owned(), true));
    bench.finish_sync();
    assert_eq!(bench.sendable_now(1), ("+OK\\r\\n".to_owned(), false));
}

#[test]
fn replies_of_a_pipeline_that_waits_anyway_still_wait_for_later_changes() {
    let mut bench = Bench::slow();
    bench.ask(0, &["SET k v"]);
    assert_eq!(bench.sendable_now(0), (String::new(), true));
    bench.ask(0, &["SET l w"]);
    bench.feed(1, &[&[b"GET", b"k"], &[b"GET", b"l"]]);
    // The disk has only been asked to write the first change.
    bench.log().step();
    assert_eq!(bench.sendable_now(1), (String::new(), true));
    bench.finish_sync();
    assert_eq!(bench.sendable_now(1), ("$1\\r\\nv\\r\\n$1\\r\\nw\\r\\n".to_owned(), false));
}

#[test]
fn a_waiter_for_the_journal_is_woken_exactly_when_it_is_durable() {
    let mut bench = Bench::slow();
    bench.ask(0, &["SET k v"]);
    assert!(bench.sendable_now(0).1);
    bench.ask(1, &["GET k"]);
    assert!(bench.sendable_now(1).1);
    bench.ask(2, &["SET later v"]);
    let bells: [Arc<Bell>; 3] = Default::default();
    for (client, bell) in bench.clients.into_iter().zip(&bells) {
        let session = bench.engine.server.clients.sessions.get_mut(client).expect("it is open");
        session.wake_by(&Waker::from(Arc::clone(bell)));
    }
    let rung = || bells.each_ref().map(|bell| bell.0.load(Ordering::Relaxed));
    bench.engine.server.follow_journal();
    assert_eq!(rung(), [0, 0, 0]);
    bench.log().step();
    bench.engine.server.follow_journal();
    assert_eq!(rung(), [1, 1, 0]);
    assert!(bench.sendable_now(2).1);
    let session = bench.engine.server.clients.sessions.get_mut(bench.clients[2]).expect("it is open");
    session.wake_by(&Waker::from(Arc::clone(&bells[2])));
    bench.finish_sync();
    assert_eq!(rung(), [1, 1, 1]);
}

#[test]
fn a_woken_client_waits_for_the_change_that_woke_it() {
    for (waits, wakes) in [
        ("BLPOP l 0", "RPUSH l a"),
        ("BLMOVE l m LEFT LEFT 0", "RPUSH l a"),
        ("XREAD BLOCK 0 STREAMS s $", "XADD s * f v"),
        ("BZPOPMIN z 0", "ZADD z 1 m"),
    ] {
        let mut bench = Bench::slow();
        bench.ask(1, &[waits]);
        assert_eq!(bench.sendable_now(1), (String::new(), false));
        bench.ask(0, &[wakes]);
        assert_eq!([bench.sendable_now(0).1, bench.sendable_now(1).1], [true; 2], "{waits}");
        bench.finish_sync();
        let (sent, is_held) = bench.sendable_now(1);
        assert!(!sent.is_empty() && !is_held, "{waits}: {sent}");
    }
}

#[test]
fn an_empty_reply_waits_until_its_cause_is_durable() {
    let mut bench = Bench::slow();
    bench.run_until_durable(&["RPUSH l a"]);
    bench.ask(0, &["LPOP l"]);
    assert!(bench.sendable_now(0).1);
    bench.ask(1, &["BLPOP l 1"]);
    bench.ask(2, &["BLPOP l 0"]);
    bench.clock.advance_ms(1_000);
    bench.engine.time_out_waits();
    assert_eq!(bench.sendable_now(1), (String::new(), true));
    let unblock = format!("CLIENT UNBLOCK {}", bench.clients[2].id);
    bench.ask(0, &[&unblock]);
    assert_eq!(bench.sendable_now(2), (String::new(), true));
    bench.finish_sync();
    for client in [1, 2] {
        assert_eq!(bench.sendable_now(client), ("*-1\\r\\n".to_owned(), false));
    }
}

#[test]
fn messages_wait_for_the_change_that_they_report() {
    for publishes in [
        &["EVAL redis.call('SET','k','v')redis.call('PUBLISH','news','x') 0"][..],
        &["MULTI", "PUBLISH news x", "SET k v", "EXEC"],
        &["MULTI", "SET k v", "EVAL redis.call('PUBLISH','news','x') 0", "EXEC"],
        &["SET k v", "PUBLISH news x"],
        &["CLIENT REPLY OFF", "SET k v", "PUBLISH news x"],
    ] {
        let mut bench = Bench::slow();
        bench.ask(1, &["SUBSCRIBE news"]);
        assert!(!bench.sendable_now(1).1);
        bench.ask(0, publishes);
        bench.ask(2, &["PUBLISH news later"]);
        assert_eq!(bench.sendable_now(1), (String::new(), true), "{publishes:?}");
        assert!(!bench.sendable_now(2).1);
        bench.finish_sync();
        let (sent, is_held) = bench.sendable_now(1);
        let (first, later) = (sent.find("$1\\r\\nx"), sent.find("later"));
        assert!(!is_held && first.is_some() && first < later, "{publishes:?}: {sent}");
    }
    let mut bench = Bench::slow();
    bench.ask(1, &["SUBSCRIBE news"]);
    assert!(!bench.sendable_now(1).1);
    bench.ask(0, &["SET k v"]);
    bench.ask(2, &["PUBLISH news x"]);
    let (sent, is_held) = bench.sendable_now(1);
    assert!(sent.contains("$1\\r\\nx") && !is_held, "a message about no change: {sent}");
}

#[test]
fn events_wait_for_the_change_that_they_report() {
    for changes in [&["SET k v"][..], &["MULTI", "SET k v", "EXEC"], &["EVAL redis.call('SET','k','v') 0"]] {
        let mut bench = Bench::slow();
        bench.run_until_durable(&["CONFIG SET notify-keyspace-events KEAm"]);
        bench.ask(1, &["SUBSCRIBE __keyspace@0__:k"]);
        bench.ask(2, &["SUBSCRIBE __keyevent@0__:keymiss"]);
        assert!(!bench.sendable_now(1).1 && !bench.sendable_now(2).1);
        bench.ask(0, changes);
        assert_eq!(bench.sendable_now(1), (String::new(), true), "{changes:?}");
        // The absence of a key may be a change, too.
        bench.ask(0, &["GET other"]);
        assert_eq!(bench.sendable_now(2), (String::new(), true), "{changes:?}");
        bench.finish_sync();
        let (sent, is_held) = bench.sendable_now(1);
        assert!(!is_held && sent.contains("$3\\r\\nset"), "{changes:?}: {sent}");
        let (sent, is_held) = bench.sendable_now(2);
        assert!(!is_held && sent.contains("$5\\r\\nother"), "{changes:?}: {sent}");
    }
    let mut bench = Bench::slow();
    bench.run_until_durable(&["CONFIG SET notify-keyspace-events KEA"]);
    bench.ask(1, &["SUBSCRIBE __keyspace@0__:k"]);
    assert!(!bench.sendable_now(1).1);
    bench.ask(0, &["SET k v"]);
    bench.fail_next_write();
    bench.finish_sync();
    assert_eq!(bench.sendable_now(1), (String::new(), false), "no message reports a lost change");
}

#[test]
fn announcements_of_grants_wait_for_the_grants() {
    for look in ["WHO k", "WHY k", "EVENTS 0"] {
        let mut bench = Bench::slow();
        bench.ask(0, &["LOCK.ACQUIRE k a PX 60000"]);
        bench.ask(1, &["LOCK.ACQUIRE k b PX 60000"]);
        bench.ask(2, &[look]);
        assert_eq!(bench.sendable_now(2), (String::new(), true), "{look}");
        bench.finish_sync();
        let (sent, is_held) = bench.sendable_now(2);
        assert!(!is_held && sent.starts_with('*'), "{look}: {sent}");
    }
}

/// The outcome of a queued call is pushed when the disk has it: to another client, and to the client whose command
/// caused it, after the reply to that command.
#[test]
fn a_pushed_grant_waits_for_the_disk() {
    let mut bench = Bench::slow();
    bench.run_until_durable(&["LOCK.ACQUIRE l a PX 60000"]);
    bench.ask(1, &["HELLO 3", "LOCK.ACQUIRE l b PX 60000 ASYNC 0", "LOCK.ACQUIRE l c PX 60000 ASYNC 0"]);
    let (queued, is_held) = bench.sendable_now(1);
    assert!(!is_held && queued.matches("queued").count() == 2, "the holder is on disk: {queued}");
    bench.ask(0, &["LOCK.RELEASE l a"]);
    bench.ask(1, &["PING"]);
    assert_eq!([bench.sendable_now(0), bench.sendable_now(1)], [(); 2].map(|()| (String::new(), true)));
    bench.finish_sync();
    let (sent, is_held) = bench.sendable_now(1);
    let push = |number: u64| format!(">3\\r\\n$6\\r\\nticket\\r\\n:{number}\\r\\n*2\\r\\n:1\\r\\n");
    assert!(!is_held && sent.starts_with(&push(1)) && sent.ends_with("+PONG\\r\\n"), "{sent}");
    bench.ask(1, &["LOCK.RELEASE l b"]);
    assert_eq!(bench.sendable_now(1), (String::new(), true));
    bench.finish_sync();
    let (sent, is_held) = bench.sendable_now(1);
    assert!(!is_held && sent.starts_with("*2\\r\\n:1\\r\\n") && sent.contains(&push(2)), "{sent}");
    // No client is notified of a lost change.
    bench.ask(2, &["HELLO 3", "LOCK.ACQUIRE l d PX 60000 ASYNC 0"]);
    assert!(bench.sendable_now(2).0.contains("queued"));
    bench.fail_next_write();
    bench.ask(1, &["LOCK.RELEASE l c"]);
    assert_eq!([bench.sendable_now(1), bench.sendable_now(2)], [(); 2].map(|()| (String::new(), true)));
    bench.finish_sync();
    assert!(bench.is_killed(1) && bench.is_killed(2));
    assert_eq!([bench.sendable_now(1).0, bench.sendable_now(2).0], [String::new(), String::new()]);
}

/// A client's own replies are not a reason to hold a message that another client has published. A message that it
/// publishes itself waits for them.
#[test]
fn a_message_waits_for_its_publishers_reads_in_the_same_pipeline() {
    let mut bench = Bench::slow();
    let script: &[&[u8]] = &[b"EVAL", b"redis.call('PUBLISH','other',redis.call('EXISTS','k'))", b"0"];
    bench.feed(1, &[script]);
    bench.run_until_durable(&["HELLO 3", "SUBSCRIBE news"]);
    bench.ask(2, &["SUBSCRIBE other"]);
    assert!(!bench.sendable_now(1).1 && !bench.sendable_now(2).1);
    bench.ask(1, &["SET k v", "PUBLISH news x"]);
    bench.feed(0, &[&[b"PUBLISH", b"news", b"y"], script]);
    assert_eq!(bench.sendable_now(2), (String::new(), true));
    bench.finish_sync();
    let (sent, is_held) = bench.sendable_now(2);
    assert!(sent.contains("$1\\r\\n1") && !is_held, "{sent}");
}

#[test]
fn an_aborted_transaction_is_reported_when_its_cause_is_durable() {
    let mut bench = Bench::slow();
    bench.ask(1, &["WATCH k", "MULTI", "ECHO hello"]);
    assert!(!bench.sendable_now(1).1);
    bench.ask(0, &["SET k v"]);
    bench.ask(1, &["EXEC"]);
    assert_eq!(bench.sendable_now(1), (String::new(), true));
    bench.finish_sync();
    assert_eq!(bench.sendable_now(1), ("*-1\\r\\n".to_owned(), false));
}

#[test]
fn after_a_failure_lost_keys_are_refused_and_all_others_are_read() {
    let mut bench = Bench::slow();
    bench.run_until_durable(&["SET old v", "SET changed before"]);
    bench.ask(1, &["GET old"]);
    assert_eq!(bench.sendable_now(1), ("$1\\r\\nv\\r\\n".to_owned(), false));
    bench.ask(2, &["SUBSCRIBE news"]);
    assert!(!bench.sendable_now(2).1);
    bench.ask(0, &["SET changed after", "SET new v", "PUBLISH news of-it"]);
    assert!(bench.sendable_now(0).1 && bench.sendable_now(2).1);
    bench.fail_next_write();
    bench.finish_sync();
    assert_eq!([0, 1, 2].map(|client| bench.is_killed(client)), [true, false, true]);
    assert_eq!([bench.sendable_now(0), bench.sendable_now(2)], [(String::new(), false), (String::new(), false)]);
    let mut reply_of = |line: &str| {
        bench.ask(1, &[line]);
        let (sent, is_held) = bench.sendable_now(1);
        assert!(!is_held, "no reply is held for a lost change");
        sent
    };
    for line in [
        "GET changed",
        "GET new",
        "EXISTS new",
        "MGET old new",
        "DBSIZE",
        "KEYS *",
        "SCAN 0",
        "SET old w",
        "BLPOP new 1",
    ] {
        let sent = reply_of(line);
        assert!(sent.starts_with("-MISCONF Errors writing to the AOF file"), "{line}: {sent}");
    }
    for script in ["return~redis.call('GET','new')", "redis.call('PUBLISH','news',redis.call('GET','new'))"] {
        let sent = reply_of(&format!("EVAL {script} 0"));
        assert!(sent.starts_with("-MISCONF") && sent.matches("\\r\\n").count() == 1, "{script}: {sent}");
    }
    assert_eq!(reply_of("GET old"), "$1\\r\\nv\\r\\n");
    assert_eq!(reply_of("EVAL return~redis.call('GET','old') 0"), "$1\\r\\nv\\r\\n");
    assert_eq!(reply_of("GET nosuch"), "$-1\\r\\n");
    let info = reply_of("INFO");
    assert!(info.contains("aof_last_write_status:err") && !info.contains("keys="), "{info}");
}

/// The client that finds the journal failed is running a pipeline, and is not among the sessions that are notified.
#[test]
fn nothing_is_changed_after_a_failure_in_the_same_pipeline() {
    let mut bench = Bench::new();
    bench.run_until_durable(&["SET a v"]);
    let long = vec![b'v'; LOG_MERGE_MAX_BYTES / 128];
    let set: &[&[u8]] = &[b"SET", b"long", &long];
    bench.feed(1, &vec![set; 127]);
    bench.fail_next_write();
    // The tail has become so long that it is written at once.
    bench.feed(0, &[set, &[b"SET", b"a", b"changed"]]);
    let (sent, _) = bench.sendable_now(0);
    assert!(
        sent.starts_with("-MISCONF") && sent.matches("\\r\\n").count() == 1,
        "later commands are checked again: {sent}"
    );
    bench.ask(2, &["GET a"]);
    assert_eq!(bench.sendable_now(2), ("$1\\r\\nv\\r\\n".to_owned(), false));
}

#[test]
fn a_transaction_that_finds_the_journal_failed_is_never_shown() {
    let mut bench = Bench::slow();
    bench.ask(2, &["SUBSCRIBE news"]);
    assert!(!bench.sendable_now(2).1);
    bench.ask(1, &["SET x v"]);
    assert!(bench.sendable_now(1).1);
    bench.fail_next_write();
    bench.ask(0, &["MULTI", "SET k v", "CONFIG SET appendfsync no", "PUBLISH news k", "EXEC"]);
    assert_eq!(bench.sendable_now(2), (String::new(), false));
}

#[test]
fn a_message_about_lost_data_in_a_transaction_reaches_nobody() {
    let mut bench = Bench::slow();
    bench.ask(2, &["SUBSCRIBE news"]);
    assert!(!bench.sendable_now(2).1);
    // The lost change has no reply, so its client is not disconnected with it.
    bench.ask(0, &["CLIENT REPLY OFF", "SET k v", "CLIENT REPLY ON"]);
    assert_eq!(bench.sendable_now(0), ("+OK\\r\\n".to_owned(), false));
    bench.fail_next_write();
    let reply_of = |bench: &mut Bench, lines: &[&str]| {
        bench.ask(0, lines);
        bench.sendable_now(0).0
    };
    // The first transaction finds the failure when it already holds the message; the second knows of it from the start.
    let sent = reply_of(&mut bench, &["MULTI", "PUBLISH news k", "CONFIG SET appendfsync no", "EXEC"]);
    assert!(sent.contains("+QUEUED\\r\\n-MISCONF"), "{sent}");
    let sent = reply_of(&mut bench, &["MULTI", "PUBLISH news k", "EXEC"]);
    assert!(sent.contains("*1\\r\\n-MISCONF"), "{sent}");
    assert_eq!(bench.sendable_now(2), (String::new(), false));
    // Messages that depend on no change arrive as ever.
    bench.ask(1, &["MULTI", "PUBLISH news x", "EXEC"]);
    assert!(bench.sendable_now(1).0.ends_with("*1\\r\\n:1\\r\\n") && bench.sendable_now(2).0.contains("$1\\r\\nx"));
}

#[test]
fn a_call_that_would_wait_for_lost_data_is_answered_once() {
    let mut bench = Bench::slow();
    bench.ask(0, &["XADD lost * f v"]);
    assert!(bench.sendable_now(0).1);
    bench.fail_next_write();
    bench.finish_sync();
    bench.ask(1, &["XREAD BLOCK 1000 STREAMS lost $"]);
    let (sent, is_held) = bench.sendable_now(1);
    assert!(sent.starts_with("-MISCONF") && !is_held, "{sent}");
    bench.clock.advance_ms(1_001);
    bench.engine.time_out_waits();
    bench.ask(1, &["ECHO x"]);
    assert_eq!(bench.sendable_now(1), ("$1\\r\\nx\\r\\n".to_owned(), false));
    // A timeout on other keys is reported.
    bench.ask(1, &["XREAD BLOCK 1000 STREAMS other $"]);
    bench.clock.advance_ms(1_001);
    bench.engine.time_out_waits();
    assert_eq!(bench.sendable_now(1), ("*-1\\r\\n".to_owned(), false));
}

#[test]
fn expiry_is_no_change_to_wait_for() {
    let mut bench = Bench::slow();
    bench.run_until_durable(&[
        "SET k v PX 10",
        "SET l v PX 10",
        "SET m v PX 10",
        "HSET h f v",
        "HPEXPIRE h 10 FIELDS 1 f",
    ]);
    bench.clock.advance_ms(20);
    bench.ask(1, &["GET k", "HGET h f", "DBSIZE"]);
    assert_eq!(bench.sendable_now(1), ("$-1\\r\\n$-1\\r\\n:3\\r\\n".to_owned(), false));
    bench.ask(1, &["SET k new"]);
    assert!(bench.sendable_now(1).1, "a change is");
    bench.finish_sync();
    assert!(!bench.sendable_now(1).1);
    bench.ask(0, &["CLIENT REPLY OFF", "SET n v"]);
    bench.fill_disk();
    bench.ask(1, &["GET l"]);
    assert_eq!(bench.sendable_now(1), ("$-1\\r\\n".to_owned(), false));
    // A client waits for a key, so units record the keys they touch, even while the journal accepts nothing.
    bench.ask(2, &["BLPOP nosuch 0"]);
    bench.disk.set_capacity(None);
    bench.finish_sync();
    bench.fail_next_write();
    bench.ask(0, &["CLIENT REPLY ON", "SET n w"]);
    bench.finish_sync();
    assert!(bench.is_killed(0));
    bench.ask(1, &["GET m", "GET k"]);
    assert_eq!(bench.sendable_now(1), ("$-1\\r\\n$3\\r\\nnew\\r\\n".to_owned(), false));
}

#[test]
fn the_notice_of_an_aborted_transaction_waits_for_the_change() {
    for (asks, line) in [(1, "CLIENT INFO"), (2, "CLIENT LIST")] {
        let mut bench = Bench::slow();
        bench.ask(1, &["WATCH k"]);
        bench.ask(asks, &[line]);
        assert!(!bench.sendable_now(1).1 && !bench.sendable_now(asks).1, "{line}");
        bench.ask(0, &["SET k v"]);
        bench.ask(asks, &[line]);
        assert_eq!(bench.sendable_now(asks), (String::new(), true), "{line}");
        bench.finish_sync();
        assert!(bench.sendable_now(asks).0.contains("flags=d"), "{line}");
    }
}

#[test]
fn a_reply_about_missing_waiters_waits_for_the_change_that_served_them() {
    let mut bench = Bench::slow();
    bench.ask(1, &["BLPOP l 0"]);
    bench.ask(0, &["RPUSH l a"]);
    let unblock = format!("CLIENT UNBLOCK {}", bench.clients[1].id);
    bench.ask(2, &[&unblock]);
    assert_eq!(bench.sendable_now(2), (String::new(), true));
    bench.finish_sync();
    assert_eq!(bench.sendable_now(2), (":0\\r\\n".to_owned(), false));
}

#[test]
fn a_timeout_waits_for_changes_of_its_keys_alone() {
    let mut bench = Bench::slow();
    bench.ask(0, &["SET other v"]);
    bench.ask(1, &["BLPOP l 1"]);
    bench.clock.advance_ms(1_001);
    bench.engine.time_out_waits();
    assert_eq!(bench.sendable_now(1), ("*-1\\r\\n".to_owned(), false));
}

#[test]
fn another_server_receives_nothing_before_it_is_journaled() {
    let mut bench = Bench::slow();
    for lines in [
        &["MULTI", "SET k v", "MIGRATE 127.0.0.1 1 k 0 100 COPY", "EXEC"][..],
        &["EVAL redis.call('SET','k','v')return~redis.call('MIGRATE','127.0.0.1','1','k','0','100','COPY') 0"],
    ] {
        bench.ask(0, lines);
        bench.finish_sync();
        let (sent, _) = bench.sendable_now(0);
        assert!(sent.contains("-ERR MIGRATE is not allowed after changes"), "{lines:?}: {sent}");
    }
}

#[test]
fn waitaof_replies_when_the_disk_is_done_and_delays_no_other_client() {
    let mut bench = Bench::slow();
    let wait = |bench: &mut Bench| {
        bench.clock.advance_ms(5);
        bench.engine.time_out_waits();
    };
    bench.ask(0, &["SET k v"]);
    let durable = bench.log().durable();
    bench.ask(1, &["WAITAOF 1 0 0"]);
    bench.ask(2, &["WAITAOF 1 0 4"]);
    assert_eq!([bench.sendable_now(1), bench.sendable_now(2)], [(String::new(), false), (String::new(), false)]);
    assert_eq!(bench.log().durable(), durable);
    wait(&mut bench);
    assert_eq!(bench.sendable_now(2), ("*2\\r\\n:0\\r\\n:0\\r\\n".to_owned(), false), "its time is over");
    // Later changes do not matter.
    bench.log().step();
    bench.ask(0, &["SET later v"]);
    wait(&mut bench);
    assert_eq!(bench.sendable_now(1), ("*2\\r\\n:1\\r\\n:0\\r\\n".to_owned(), false));
}

#[test]
fn a_suppressed_reply_holds_back_no_other() {
    let mut bench = Bench::slow();
    let lines: [&[&[u8]]; 3] = [&[b"CLIENT", b"REPLY", b"SKIP"], &[b"SET", b"k", b"v"], &[b"GET", b"other"]];
    bench.feed(0, &lines);
    assert_eq!(bench.sendable_now(0), ("$-1\\r\\n".to_owned(), false));
    // Nor does a skipped reply keep a later read of the changed key from waiting.
    let lines: [&[&[u8]]; 3] = [&[b"CLIENT", b"REPLY", b"SKIP"], &[b"SET", b"k", b"w"], &[b"GET", b"k"]];
    bench.feed(0, &lines);
    assert_eq!(bench.sendable_now(0), (String::new(), true));
    bench.finish_sync();
    assert_eq!(bench.sendable_now(0), ("$1\\r\\nw\\r\\n".to_owned(), false));
}

#[test]
fn messages_that_a_full_disk_holds_are_bounded_like_unread_ones() {
    let mut bench = Bench::slow();
    bench.ask(1, &["SUBSCRIBE news"]);
    assert!(!bench.sendable_now(1).1);
    bench.ask(0, &["CONFIG SET client-output-buffer-limit pubsub~100000~0~0"]);
    assert!(!bench.sendable_now(0).1);
    bench.fill_disk();
    bench.feed(0, &[&[b"SET", b"k", &LARGE]]);
    bench.finish_sync();
    assert!(bench.engine.server.persistence.is_unlogged(&bench.engine.server.config));
    bench.ask(2, &["DBSIZE"]);
    let message = "x".repeat(10_000);
    (0..12).for_each(|_| bench.ask(2, &[&format!("PUBLISH news {message}")]));
    assert!(bench.is_killed(1));
}

#[test]
fn sent_bytes_no_longer_count_toward_the_limit() {
    let mut bench = Bench::slow();
    bench.run_until_durable(&["SET k v"]);
    let value = vec![b'x'; crate::keyspace::limits::UNIT_MAX_BYTES / 2];
    bench.feed(0, &[&[b"SET", b"k", &value]]);
    let get: &[&[u8]] = &[b"GET", b"k"];
    for _ in 0..2 * LOG_BEHIND_MAX_BYTES / value.len() {
        bench.ask(0, &["APPEND k v"]);
        let durable = bench.log().durable();
        bench.feed(1, &[get]);
        assert_eq!(bench.log().durable(), durable, "the engine has not waited for the disk");
        bench.engine.server.commit_units();
        bench.log().step();
        // The disk is always one change behind.
        bench.ask(2, &["SET later v"]);
        bench.engine.server.commit_units();
        assert!(bench.sendable_now(1).0.len() > value.len());
    }
}

#[test]
fn output_that_waits_for_the_disk_is_bounded() {
    let mut bench = Bench::slow();
    bench.run_until_durable(&["SET k v"]);
    let value = vec![b'x'; crate::keyspace::limits::UNIT_MAX_BYTES / 2];
    let last = bench.log().durable();
    let set: &[&[u8]] = &[b"SET", b"k", &value];
    let writes = 2 * LOG_BEHIND_MAX_BYTES / value.len();
    (0..writes).for_each(|_| bench.feed(0, &[set]));
    assert!(bench.log().durable() > last.plus(writes as u64 / 4), "the engine has waited for the disk");
    assert!(bench.log().backlog_bytes() <= LOG_BEHIND_MAX_BYTES);
    bench.finish_sync();
    assert!(!bench.sendable_now(0).1);
    // Replies and messages count as well, however little has changed.
    bench.ask(0, &["APPEND k v"]);
    let last = bench.log().durable();
    let get: &[&[u8]] = &[b"GET", b"k"];
    (0..writes).for_each(|_| bench.feed(1, &[get]));
    assert!(bench.log().durable() > last);
}

#[test]
fn a_client_waiting_for_the_journal_is_no_slow_reader_and_can_be_closed() {
    let mut bench = Bench::slow();
    bench.ask(0, &["CONFIG SET client-output-buffer-limit pubsub~20000~0~0"]);
    bench.ask(1, &["SUBSCRIBE news"]);
    assert!(!bench.sendable_now(0).1 && !bench.sendable_now(1).1);
    let publish = "EVAL redis.call('SET','k','v')redis.call('PUBLISH','news',('x'):rep(30000)) 0";
    bench.ask(0, &[publish, publish]);
    assert_eq!((bench.sendable_now(1), bench.is_killed(1)), ((String::new(), true), false));
    bench.finish_sync();
    assert!(bench.sendable_now(1).0.len() > 60_000);
    // A client that really leaves its output unread is closed as ever.
    bench.ask(0, &[publish, "PUBLISH news more"]);
    assert!(bench.sendable_now(0).1);
    bench.finish_sync();
    bench.ask(2, &["PUBLISH news more"]);
    assert!(bench.is_killed(1) && !bench.sendable_now(2).1);
    // Output that waits for the journal does not leave because its client is closed.
    bench.ask(2, &["SET k w"]);
    let kill = format!("CLIENT KILL ID {}", bench.clients[2].id);
    bench.ask(0, &[&kill]);
    assert!(bench.is_killed(2));
    assert_eq!(bench.sendable_now(2), (String::new(), true));
}

/// The replies to a client while a script is busy are so large that the engine waits for the journal, and finds that it
/// has failed or is full: this client learns that as all others do.
#[test]
fn clients_answered_during_a_busy_script_learn_of_a_failed_journal() {
    let reply_bytes = 1024 * 1024;
    let value = vec![b'x'; reply_bytes - "$1234567\r\n\r\n".len() - LARGE.len()];
    for has_failed in [true, false] {
        let mut bench = Bench::slow();
        bench.feed(0, &[&[b"SET", b"k", &value]]);
        bench.finish_sync();
        bench.feed(0, &[&[b"SCRIPT", b"LOAD", b"return 7"], &[b"APPEND", b"k", &LARGE]]);
        // Nearly as much output waits as is allowed.
        (1..LOG_BEHIND_MAX_BYTES / reply_bytes).for_each(|_| bench.feed(1, &[&[b"GET", b"k"]]));
        let rest = reply_bytes - 200;
        bench.feed(1, &[&[b"GETRANGE", b"k", b"0", rest.to_string().as_bytes()]]);
        assert_eq!(bench.log().backlog_bytes(), 0);
        match has_failed {
            true => bench.fail_next_write(),
            false => bench.fill_disk(),
        }
        let (server, ks) = (&mut bench.engine.server, &mut bench.engine.ks);
        let mut out = Reply::new(Form::Resp2);
        server.feed_while_busy(ks, bench.clients[2], &mut Decoder::new(), b"SCRIPT STATS\r\n", &mut out);
        assert_eq!(bench.log().state(), if has_failed { State::Poisoned } else { State::Full });
        let session = bench.engine.server.clients.sessions.get_mut(bench.clients[2]).expect("it is open");
        assert!(session.restrictions.contains(Restrictions::UNLOGGED));
        assert_eq!((session.is_killed(), out.is_empty()), (has_failed, has_failed), "the output shows the lost change");
    }
}
