//! A pause reaches clients whose commands run while it begins or ends. In a pause expired keys stay in place, so a
//! write that takes the pause for still on would put a second key beside a hidden one, and the next start would refuse
//! the journal.

use super::*;
use crate::engine::persistence::recovery::Loading;

/// Runs a slow script of the first client, which only reads. During the script the second client sends `question`.
fn ask_during_a_script(bench: &mut Bench, question: &'static [u8]) {
    let heard = Rc::<RefCell<Option<Vec<u8>>>>::default();
    let client = bench.clients[1];
    bench.engine.server.config.busy_reply_threshold_ms = 1;
    bench.engine.server.network.raw_sockets = Some(Box::new(Inquirer { client, question, heard: heard.clone() }));
    bench.feed(0, &[&[b"EVAL_RO", b"for i = 1, 5e7 do end return 1", b"0"]]);
    assert_eq!(heard.borrow().as_deref(), Some(&b"+OK\r\n"[..]));
    assert_eq!(bench.sent(0).as_deref(), Some(":1\\r\\n"));
    bench.engine.server.network.raw_sockets = None;
}

/// Kills the server, and returns an engine that has loaded its journal.
fn restarted(bench: Bench) -> Engine {
    let disk = bench.disk.clone();
    drop(bench);
    disk.kill();
    let mut fresh = engine(Config::default(), Clock::manual(1_010_000));
    let loading = Loading::begin(&mut fresh, directory(&disk)).expect("the journal is there");
    loading.finish(&mut fresh, Box::new(|| {})).expect("the journal fits its own data");
    fresh
}

/// Returns a server whose pause has ended while a script of the first client ran. A string `k` expires soon.
fn with_a_pause_ended_during_a_script() -> Bench {
    let mut bench = Bench::new();
    bench.feed(0, &[&[b"SET", b"k", b"old", b"PX", b"1000"]]);
    bench.feed(2, &[&[b"SHUTDOWN", b"SAVE"]]);
    assert!(bench.engine.server.clients.pause.is_on());
    assert_eq!(bench.sent(0).as_deref(), Some("+OK\\r\\n"));
    ask_during_a_script(&mut bench, b"SHUTDOWN ABORT\r\n");
    assert!(!bench.engine.server.clients.pause.is_on());
    bench
}

#[test]
fn a_pause_that_ends_during_a_script_ends_for_its_client() {
    let mut bench = with_a_pause_ended_during_a_script();
    bench.clock.advance_ms(2_000);
    assert_eq!(bench.line(0, "RPUSH k x").as_deref(), Some(":1\\r\\n"));
    assert_eq!(bench.line(1, "DBSIZE").as_deref(), Some(":1\\r\\n"));
    assert_eq!(restarted(bench).ks.stored_entries(0).count(), 1);
}

#[test]
fn a_pause_that_ends_during_a_script_ends_for_calls_that_its_client_lets_wait() {
    let mut bench = with_a_pause_ended_during_a_script();
    bench.feed(0, &[&[b"BLMOVE", b"src", b"k", b"LEFT", b"RIGHT", b"0"]]);
    bench.clock.advance_ms(2_000);
    assert_eq!(bench.line(1, "RPUSH src x").as_deref(), Some(":1\\r\\n"));
    assert_eq!(bench.sent(0).as_deref(), Some("$1\\r\\nx\\r\\n"));
    assert_eq!(bench.line(1, "DBSIZE").as_deref(), Some(":1\\r\\n"));
    assert_eq!(restarted(bench).ks.stored_entries(0).count(), 1);
}

/// A function is judged by its library of today, not by the library that was loaded when the call was queued.
#[test]
fn a_pause_holds_up_a_transaction_whose_function_has_come_to_write() {
    let library = |flags: &str, body: &str| {
        format!("#!lua name=l\nredis.register_function{{function_name='f', callback=function(keys) {body} end{flags}}}")
    };
    let mut bench = Bench::new();
    bench.feed(1, &[&[b"SET", b"k", b"old", b"PX", b"1000"]]);
    bench.feed(1, &[&[b"FUNCTION", b"LOAD", library(", flags={'no-writes'}", "").as_bytes()]]);
    bench.feed(0, &[&[b"MULTI"], &[b"FCALL", b"f", b"1", b"k"]]);
    let writes = library("", "return redis.call('RPUSH', keys[1], 'x')");
    bench.feed(1, &[&[b"FUNCTION", b"LOAD", b"REPLACE", writes.as_bytes()]]);
    bench.feed(1, &[&[b"CLIENT", b"PAUSE", b"10000", b"WRITE"]]);
    assert_eq!(bench.sent(1).as_deref(), Some("+OK\\r\\n$1\\r\\nl\\r\\n$1\\r\\nl\\r\\n+OK\\r\\n"));
    bench.clock.advance_ms(2_000);
    bench.feed(0, &[&[b"EXEC"]]);
    assert_eq!(bench.sent(0).as_deref(), Some("+OK\\r\\n+QUEUED\\r\\n"));
    assert_eq!(bench.engine.server.clients.pause.postponed(), 1);
    assert_eq!(bench.line(1, "EXISTS k").as_deref(), Some(":0\\r\\n"));
}
