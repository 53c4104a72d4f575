//! Snapshots, and commands that arrive during one, over a simulated disk that can be made to stand still.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::base::clock::Clock;
use crate::base::rng::Rng;
use crate::command;
use crate::config::{AllowFrom, Config, SavePoint};
use crate::engine::Engine;
use crate::engine::persistence::recovery::Loading;
use crate::engine::run::ending::Ends;
use crate::log::directory::{Directory, DirectoryId};
use crate::log::disk::Disk;
use crate::log::platform::Platform;
use crate::log::sim::SimDisk;
use crate::persist::limits::{LOG_BEGIN_MAX_BYTES, SAVE_RETRY, SNAPSHOT_GIVE_UP_BYTES};
use crate::persist::saving::Purpose;
use crate::resp::reply::{Form, Reply};
use crate::resp::request::Decoder;
use crate::session::Peer;
use crate::spec::session_key::SessionKey;

mod exported;

/// A server without sockets, whose data is in `/data`.
struct Bench {
    engine: Engine,
    clock: Clock,
    disk: SimDisk,
    client: SessionKey,
}

impl Bench {
    fn start(disk: &SimDisk, appendonly: bool) -> Bench {
        Bench::start_with(disk, Config { appendonly, ..Config::default() })
    }

    fn start_with(disk: &SimDisk, config: Config) -> Bench {
        let clock = Clock::manual(1_000_000);
        let appendonly = config.appendonly;
        let mut engine = Engine::new(config, command::table(), clock.clone(), Rng::seeded(1)).expect("memory");
        let id = DirectoryId::new([1; 16]);
        let directory = Directory::open(Arc::new(disk.clone()), Path::new("/data"), id).expect("it is not locked");
        let loading = Loading::begin(&mut engine, directory).expect("it can be read");
        if appendonly {
            loading.finish(&mut engine, Box::new(|| {})).expect("all of it can be read");
        } else {
            loading.finish_without_log(&mut engine).expect("all of it can be read");
        }
        let client = engine.server.open_session(Peer::default());
        Bench { engine, clock, disk: disk.clone(), client }
    }

    /// Ends this server as a crash of its process would, and starts another one.
    fn restart(self, appendonly: bool) -> Bench {
        let disk = self.disk.clone();
        drop(self);
        disk.kill();
        Bench::start(&disk, appendonly)
    }

    /// The reply to a command given as words, once the journal has its effects. A waiting call is answered later.
    fn line(&mut self, line: &str) -> String {
        let words: Vec<&str> = line.split(' ').collect();
        let mut request = format!("*{}\r\n", words.len());
        words.iter().for_each(|word| request += &format!("${}\r\n{word}\r\n", word.len()));
        let mut out = Reply::new(Form::Resp2);
        self.engine.feed(self.client, &mut Decoder::new(), request.as_bytes(), &mut out);
        self.engine.server.persist(&mut self.engine.ks, |persistence, _, _| persistence.drain());
        let later = self.heard();
        format!("{}{later}", out.as_bytes().escape_ascii())
    }

    /// The replies sent to the client since the last call.
    fn heard(&mut self) -> String {
        let session = self.engine.server.clients.sessions.get_mut(self.client).expect("it is open");
        session.take_unsent().escape_ascii().to_string()
    }

    fn ok(&mut self, line: &str) {
        assert_eq!(self.line(line), "+OK\\r\\n", "{line}");
    }

    /// Runs SAVE, which is answered when it is done.
    fn save(&mut self) {
        assert_eq!(self.line("SAVE"), "");
        self.release_snapshot();
        assert_eq!(self.heard(), "+OK\\r\\n");
    }

    fn list(&mut self) -> String {
        let list = self.line("LRANGE list 0 -1");
        list.split("\\r\\n").skip(2).step_by(2).collect()
    }

    /// Begins a snapshot, and makes it wait, complete, for its name.
    fn hold_snapshot(&mut self) {
        self.hold_snapshot_by("BGSAVE");
    }

    fn hold_snapshot_by(&mut self, command: &str) {
        self.disk.hold(Some("rename"));
        assert!(self.line(command).starts_with("+Background"));
        self.until_awaited("rename", "snapshot-");
    }

    /// Continues saving until a thread waits for the disk to do `operation` on a file whose name contains `part`.
    fn until_awaited(&mut self, operation: &'static str, part: &str) {
        until(|| {
            while self.engine.save_slice() {}
            self.disk.is_awaited(operation, part)
        });
    }

    /// A signal ends the server, which then saves. Returns whether the server ends.
    fn ends_by_signal(&mut self) -> bool {
        if self.engine.end_by_signal("SIGTERM") == Ends::Later {
            self.release_snapshot();
        }
        self.engine.server.ending.shutdown.is_some()
    }

    /// Lets the snapshot have its name, and all its consequences happen.
    fn release_snapshot(&mut self) {
        self.disk.hold(None);
        until(|| {
            while self.engine.save_slice() {}
            self.engine.server.persistence.saving.under_way().is_none()
        });
    }
}

/// A disk that stands still and will resume.
struct Release {
    thread: JoinHandle<()>,
    is_done: Arc<AtomicBool>,
}

impl Release {
    fn after(disk: &SimDisk, delay: Duration) -> Release {
        let is_done = Arc::<AtomicBool>::default();
        let (disk, flag) = (disk.clone(), Arc::clone(&is_done));
        let thread = std::thread::spawn(move || {
            std::thread::sleep(delay);
            flag.store(true, Ordering::Relaxed);
            disk.hold(None);
        });
        Release { thread, is_done }
    }

    /// Whether the disk has resumed.
    fn is_done(&self) -> bool {
        self.is_done.load(Ordering::Relaxed)
    }

    fn wait(self) {
        self.thread.join().expect("it only sleeps");
    }
}

fn until(mut is_done: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_done() {
        assert!(began.elapsed() < Duration::from_secs(120), "the awaited state never came");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn a_journal_closed_while_a_snapshot_gets_its_name_is_not_replayed_on_the_next_one() {
    let mut bench = Bench::start(&SimDisk::new(1), true);
    bench.line("RPUSH list a");
    bench.hold_snapshot();
    bench.line("RPUSH list b");
    bench.line("RPUSH list c");
    bench.ok("CONFIG SET appendonly no");
    bench.release_snapshot();
    bench.line("RPUSH list d");
    bench.save();
    assert_eq!(bench.restart(true).list(), "abcd");
}

#[test]
fn a_journal_turned_off_and_on_while_a_snapshot_gets_its_name_continues() {
    let mut bench = Bench::start(&SimDisk::new(2), true);
    bench.line("RPUSH list a");
    bench.hold_snapshot();
    bench.line("RPUSH list b");
    bench.line("RPUSH list c");
    bench.ok("CONFIG SET appendonly no");
    bench.ok("CONFIG SET appendonly yes");
    bench.release_snapshot();
    bench.line("RPUSH list d");
    assert_eq!(bench.restart(true).list(), "abcd");
}

#[test]
fn a_save_includes_changes_made_while_another_snapshot_got_its_name() {
    for command in ["SAVE", "SHUTDOWN SAVE", "DEBUG RELOAD"] {
        for begin in ["BGSAVE", "BGREWRITEAOF"] {
            if (command, begin) == ("SAVE", "BGSAVE") {
                // The command is refused, as in Redis.
                continue;
            }
            let mut bench = Bench::start(&SimDisk::new(3), false);
            bench.engine.server.config.enable_debug_command = AllowFrom::Yes;
            bench.line("RPUSH list a");
            bench.hold_snapshot_by(begin);
            bench.line("RPUSH list b");
            let release = Release::after(&bench.disk, Duration::from_millis(50));
            bench.line(command);
            release.wait();
            bench.release_snapshot();
            if command == "DEBUG RELOAD" {
                assert_eq!(bench.list(), "ab", "{begin}");
            }
            assert_eq!(bench.restart(false).list(), "ab", "{command} during {begin}");
        }
    }
}

#[test]
fn a_reload_waits_until_a_journal_that_was_turned_off_has_ended() {
    let mut bench = Bench::start(&SimDisk::new(3), true);
    bench.engine.server.config.enable_debug_command = AllowFrom::Yes;
    bench.line("RPUSH list a");
    let (end, goes_on) = channel::<()>();
    let has_ended = Arc::new(AtomicBool::new(false));
    let ending = Arc::clone(&has_ended);
    bench.engine.server.persistence.end_beside(move || {
        let _ = goes_on.recv();
        ending.store(true, Ordering::SeqCst);
    });
    let release = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(50));
        drop(end);
    });
    bench.line("DEBUG LOADAOF");
    bench.engine.save_slice();
    assert_eq!(bench.heard(), "+OK\\r\\n");
    assert!(has_ended.load(Ordering::SeqCst));
    release.join().expect("it only sleeps");
    assert_eq!(bench.list(), "a");
}

#[test]
fn a_client_waiting_for_a_cancelled_save_gets_an_error() {
    let mut bench = Bench::start(&SimDisk::new(4), false);
    bench.hold_snapshot_by("BGREWRITEAOF");
    assert_eq!(bench.line("SAVE"), "");
    let waiting = bench.client;
    bench.client = bench.engine.server.open_session(Peer::default());
    assert!(bench.line("BGSAVE CANCEL").starts_with("+Scheduled"));
    bench.client = waiting;
    assert!(bench.heard().starts_with("-ERR the snapshot was cancelled"));
    bench.release_snapshot();
}

#[test]
fn a_save_is_cancelled_while_its_directory_is_opened() {
    let disk = SimDisk::new(4);
    let config = Config { appendonly: false, ..Config::default() };
    let clock = Clock::manual(1_000_000);
    let mut engine = Engine::new(config, command::table(), clock.clone(), Rng::seeded(1)).expect("memory");
    engine.server.persistence.saving.runs_on(Platform {
        disk: Arc::new(disk.clone()),
        clock: Arc::new(disk.clone()),
        ..Platform::default()
    });
    engine.server.persistence.saving.lives_at("/data".into());
    let client = engine.server.open_session(Peer::default());
    let mut bench = Bench { engine, clock, disk, client };
    bench.line("RPUSH list a");
    bench.disk.hold(Some("create"));
    assert!(bench.line("BGSAVE").starts_with("+Background saving started"));
    while bench.engine.save_slice() {}
    assert!(bench.line("BGSAVE CANCEL").starts_with("+Background saving cancelled"));
    assert_eq!(bench.engine.server.persistence.saving.under_way(), None);
    // Opening continues, and the next snapshot finds it.
    assert!(bench.line("BGSAVE").starts_with("+Background saving started"));
    assert!(!bench.engine.save_slice(), "the save waits for the directory");
    bench.release_snapshot();
    assert_eq!(bench.restart(false).list(), "a");
}

#[test]
fn a_server_that_turns_its_journal_on_ends_with_all_data_on_disk() {
    let mut bench = Bench::start(&SimDisk::new(5), false);
    bench.line("RPUSH list a");
    bench.ok("CONFIG SET appendonly yes");
    bench.line("RPUSH list b");
    assert!(bench.ends_by_signal());
    assert_eq!(bench.restart(true).list(), "ab");
}

#[test]
fn a_snapshot_on_a_stalled_disk_is_given_up_when_too_much_has_changed() {
    let mut bench = Bench::start(&SimDisk::new(6), false);
    let value = "x".repeat(1 << 19);
    let set_all = |bench: &mut Bench| (0..16).for_each(|key| bench.ok(&format!("SET {key} {value}")));
    set_all(&mut bench);
    bench.disk.hold(Some("create"));
    bench.line("BGSAVE");
    while bench.engine.save_slice() {}
    assert_eq!(bench.engine.server.persistence.saving.under_way(), Some(Purpose::Save));
    // About half of the keys have been copied.
    for _ in 0..SNAPSHOT_GIVE_UP_BYTES >> 21 {
        set_all(&mut bench);
    }
    let woken = Arc::<AtomicBool>::default();
    let bell = Arc::clone(&woken);
    bench
        .engine
        .server
        .persistence
        .saving
        .wakes(Arc::new(move || bell.store(true, Ordering::Relaxed)), Arc::new(|| {}));
    bench.clock.advance_ms(1_000);
    bench.engine.tick();
    assert!(woken.load(Ordering::Relaxed), "the engine is woken to give the snapshot up");
    while bench.engine.save_slice() {}
    assert_eq!(bench.engine.server.persistence.saving.under_way(), None);
    bench.disk.hold(None);
}

#[test]
fn a_journal_that_begins_at_run_time_delays_no_client() {
    let mut bench = beginning_log(7);
    for _ in 0..20 {
        bench.engine.save_slice();
        std::thread::sleep(Duration::from_millis(1));
    }
    assert!(bench.engine.server.persistence.wants_log(&bench.engine.server.config));
    bench.line("RPUSH list b");
    bench.disk.hold(None);
    until(|| {
        bench.engine.save_slice();
        !bench.engine.server.persistence.wants_log(&bench.engine.server.config)
    });
    bench.line("RPUSH list c");
    assert_eq!(bench.restart(true).list(), "abc");
}

/// The mark at the journal's end takes a sync, and its threads may be at work on a slow disk.
#[test]
fn turning_the_journal_off_delays_no_client() {
    let mut bench = Bench::start(&SimDisk::new(11), true);
    bench.line("RPUSH list a");
    bench.disk.hold(Some("sync"));
    // Ends the test if the server waits in vain.
    let release = Release::after(&bench.disk, Duration::from_secs(20));
    bench.ok("CONFIG SET appendonly no");
    assert_eq!(bench.line("RPUSH list b"), ":2\\r\\n");
    assert!(!release.is_done(), "the call has not waited for the disk");
    bench.disk.hold(None);
    bench.save();
    assert_eq!(bench.restart(false).list(), "ab");
}

#[test]
fn the_shutdown_waits_until_a_journal_that_was_turned_off_is_closed() {
    let mut bench = Bench::start(&SimDisk::new(17), true);
    bench.line("RPUSH list a");
    bench.disk.hold(Some("sync"));
    bench.ok("CONFIG SET appendonly no");
    let release = Release::after(&bench.disk, Duration::from_millis(50));
    bench.engine.server.persistence.close().expect("it was closed before");
    assert!(release.is_done(), "the mark at its end is on disk");
    release.wait();
}

#[test]
fn a_failed_attempt_to_turn_the_journal_off_leaves_the_running_snapshot_alone() {
    let mut bench = Bench::start(&SimDisk::new(18), true);
    bench.line("RPUSH list a");
    bench.hold_snapshot_by("BGREWRITEAOF");
    bench.disk.turn_off();
    bench.line("RPUSH list b");
    bench.client = bench.engine.server.open_session(Peer::default());
    let refused = bench.line("CONFIG SET appendonly no");
    assert!(refused.starts_with("-ERR CONFIG SET failed") && refused.contains("appendonly"), "{refused}");
    assert_eq!(bench.engine.server.persistence.saving.under_way(), Some(Purpose::Rewrite));
    bench.release_snapshot();
}

#[test]
fn a_journal_is_opened_after_the_previous_one_has_ended() {
    let mut bench = Bench::start(&SimDisk::new(12), false);
    let (end, goes_on) = channel::<()>();
    bench.engine.server.persistence.end_beside(move || _ = goes_on.recv());
    bench.ok("CONFIG SET appendonly yes");
    until(|| {
        while bench.engine.save_slice() {}
        bench.engine.server.persistence.saving.begins_log()
    });
    for _ in 0..20 {
        bench.engine.save_slice();
        let names = bench.disk.list(Path::new("/data")).expect("it is there");
        assert!(!names.iter().any(|name| name.starts_with("log-")), "the previous journal has not ended: {names:?}");
        std::thread::sleep(Duration::from_millis(1));
    }
    drop(end);
    bench.release_snapshot();
    assert!(!bench.engine.server.persistence.wants_log(&bench.engine.server.config));
}

/// A journal about to be opened on a disk that stands still.
fn beginning_log(seed: u64) -> Bench {
    let mut bench = Bench::start(&SimDisk::new(seed), false);
    bench.line("RPUSH list a");
    bench.disk.hold(Some("rename"));
    bench.ok("CONFIG SET appendonly yes");
    bench.until_awaited("rename", "snapshot-");
    // Renaming goes on, so the snapshot gets its name, but then the journal can't have its file.
    bench.disk.hold(Some("create"));
    bench.until_awaited("create", "log-");
    bench
}

#[test]
fn a_journal_no_longer_wanted_when_it_is_open_is_given_up() {
    let mut bench = beginning_log(13);
    bench.ok("CONFIG SET appendonly no");
    bench.line("RPUSH list b");
    bench.release_snapshot();
    assert!(bench.engine.server.persistence.journal.is_none() && bench.engine.server.persistence.tail.is_none());
    bench.line("RPUSH list c");
    // The next journal begins in its place, with all the changes made since.
    bench.ok("CONFIG SET appendonly yes");
    bench.release_snapshot();
    assert!(bench.engine.server.persistence.journal.is_some());
    bench.line("RPUSH list d");
    assert_eq!(bench.restart(true).list(), "abcd");
}

#[test]
fn a_journal_that_lacks_changes_made_while_it_opened_is_given_up() {
    let mut bench = beginning_log(14);
    let value = "x".repeat(1 << 19);
    let keys = (LOG_BEGIN_MAX_BYTES >> 19) + 1;
    for key in 0..keys {
        bench.ok(&format!("SET {key} {value}"));
    }
    bench.engine.tick();
    bench.release_snapshot();
    assert!(bench.engine.server.persistence.journal.is_none(), "the journal would have a gap");
    assert!(bench.line("INFO persistence").contains("aof_last_bgrewrite_status:err"));
    // The server tries again by itself.
    bench.clock.advance_ms(SAVE_RETRY.as_millis() as i64 + 1);
    bench.engine.tick();
    bench.release_snapshot();
    assert!(bench.engine.server.persistence.journal.is_some());
    bench.line("RPUSH list b");
    let mut bench = bench.restart(true);
    assert_eq!((bench.list(), bench.engine.ks.db(0).len()), ("ab".to_owned(), keys + 1));
}

#[test]
fn a_paused_snapshot_continues_when_its_key_delay_is_turned_off() {
    let mut bench = Bench::start(&SimDisk::new(8), false);
    bench.line("MSET a 1 b 2 c 3");
    bench.ok("CONFIG SET rdb-key-save-delay 1000000000");
    assert!(bench.line("BGSAVE").starts_with("+Background saving started"));
    while bench.engine.save_slice() {}
    assert_eq!(bench.engine.server.persistence.saving.under_way(), Some(Purpose::Save));
    bench.ok("CONFIG SET rdb-key-save-delay 0");
    bench.release_snapshot();
    assert_eq!(bench.restart(false).line("DBSIZE"), ":3\\r\\n");
}

/// A client that ends the server gets a snapshot of all data, and needs no journal.
#[test]
fn a_server_whose_journal_cannot_begin_ends_when_its_data_is_saved() {
    let mut bench = Bench::start(&SimDisk::new(8), false);
    bench.line("RPUSH list a");
    bench.ok("CONFIG SET appendonly yes");
    // There is space for a small snapshot, but not for a segment of the journal, however short.
    bench.disk.set_capacity(Some(bench.disk.used_bytes() + 3_000));
    assert_eq!(bench.line("SAVE"), "");
    bench.release_snapshot();
    assert_eq!(bench.heard(), "+OK\\r\\n", "the data is saved");
    assert!(bench.line("INFO persistence").contains("aof_last_bgrewrite_status:err"));
    bench.line("RPUSH list b");
    assert!(bench.ends_by_signal());
    bench.disk.set_capacity(None);
    assert_eq!(bench.restart(true).list(), "ab");
}

/// A snapshot states its number of keys before it has copied them.
#[test]
fn a_start_frees_room_reserved_for_keys_removed_during_the_snapshot() {
    const KEYS: usize = 200_000;
    let mut bench = Bench::start(&SimDisk::new(15), false);
    let batches = || (0..KEYS).step_by(1_000).map(|first| first..first + 1_000);
    for batch in batches() {
        bench.ok(&format!("MSET{}", batch.map(|n| format!(" key:{n} v")).collect::<String>()));
    }
    // Removed one key at a time, because a table whose keys go one by one shrinks by itself.
    let disk = Arc::new(bench.disk.clone());
    let platform = Platform { disk: disk.clone(), clock: disk, slice_bytes: 1, ..Platform::default() };
    bench.engine.server.persistence.saving.runs_on(platform);
    assert!(bench.line("BGSAVE").starts_with("+Background"));
    until(|| bench.engine.save_slice() && bench.engine.server.persistence.saving.copying().0);
    assert!(bench.engine.save_slice() && !bench.engine.server.persistence.saving.is_ending(), "a part has been copied");
    for batch in batches().skip(1) {
        let names: String = batch.map(|n| format!(" key:{n}")).collect();
        assert_eq!(bench.line(&format!("DEL{names}")), ":1000\\r\\n");
    }
    bench.release_snapshot();
    let bench = bench.restart(false);
    assert_eq!(bench.engine.ks.db(0).len(), 1_000);
    let mut fresh = Bench::start(&SimDisk::new(16), false);
    (0..1_000).for_each(|n| fresh.ok(&format!("SET key:{n} v")));
    let (loaded, fresh) = (bench.engine.ks.db(0).overhead_bytes(), fresh.engine.ks.db(0).overhead_bytes());
    assert!(2 * loaded < 3 * fresh, "{loaded}, not about {fresh}");
}

#[test]
fn a_full_disk_ends_a_snapshot_and_nothing_else() {
    let mut bench = Bench::start(&SimDisk::new(9), false);
    bench.line("RPUSH list a");
    bench.save();
    bench.line("RPUSH list b");
    bench.disk.set_capacity(Some(bench.disk.used_bytes() + 100));
    assert_eq!(bench.line("SAVE"), "");
    bench.release_snapshot();
    assert!(bench.heard().contains("-ERR /data/snapshot-"));
    assert!(bench.line("INFO persistence").contains("rdb_last_bgsave_status:err"));
    let names = bench.disk.list(Path::new("/data")).expect("it is there");
    assert_eq!(names.iter().filter(|name| name.starts_with("snapshot-")).count(), 1, "{names:?}");
    assert_eq!(bench.list(), "ab");
    bench = bench.restart(false);
    assert_eq!(bench.list(), "a");
    bench.line("RPUSH list c");
    bench.disk.set_capacity(None);
    bench.save();
    assert_eq!(bench.restart(false).list(), "ac");
}

/// The seconds of `save`, and the pause after a failure, do not follow a clock that can be set.
#[test]
fn snapshots_do_not_follow_the_wall_clock() {
    const HOUR_MS: i64 = 3_600_000;
    let mut bench = Bench::start(&SimDisk::new(10), false);
    bench.engine.server.config.save = vec![SavePoint { seconds: 60, changes: 1 }];
    bench.line("RPUSH list a");
    let is_due = |bench: &mut Bench, wall_ms: i64, seconds: i64| {
        bench.clock.set_wall_by_ms(wall_ms);
        bench.clock.advance_ms(seconds * 1_000);
        bench.engine.tick();
        let is_due = bench.engine.server.persistence.saving.under_way().is_some();
        bench.release_snapshot();
        is_due
    };
    assert!(!is_due(&mut bench, HOUR_MS, 60));
    bench.disk.set_capacity(Some(bench.disk.used_bytes()));
    assert!(is_due(&mut bench, -2 * HOUR_MS, 1), "the snapshot fails, since there is no space");
    assert!(bench.line("INFO persistence").contains("rdb_last_bgsave_status:err"));
    assert!(!is_due(&mut bench, HOUR_MS, 5));
    assert!(is_due(&mut bench, -2 * HOUR_MS, 1));
}

#[test]
fn a_cancelled_save_is_not_repeated_at_once() {
    let mut bench = Bench::start(&SimDisk::new(10), false);
    bench.engine.server.config.save = vec![SavePoint { seconds: 60, changes: 1 }];
    bench.line("RPUSH list a");
    let tick_after = |bench: &mut Bench, seconds: i64| {
        bench.clock.advance_ms(seconds * 1_000);
        bench.engine.tick();
        while bench.engine.save_slice() {}
        bench.engine.server.persistence.saving.under_way()
    };
    bench.disk.hold(Some("rename"));
    assert_eq!(tick_after(&mut bench, 61), Some(Purpose::Save));
    assert!(bench.line("BGSAVE CANCEL").starts_with("+Background saving cancelled"));
    assert_eq!(tick_after(&mut bench, 10), None);
    assert_eq!(tick_after(&mut bench, 51), Some(Purpose::Save));
    bench.release_snapshot();
}
