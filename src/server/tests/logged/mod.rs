//! Replies to clients of a server with a journal when the disk is full or fails: over a simulated disk, without
//! sockets.

use std::cell::RefCell;
use std::io::IoSlice;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Wake, Waker};
use std::time::Duration;

use crate::base::clock::Clock;
use crate::base::lsn::Lsn;
use crate::base::rng::Rng;
use crate::command;
use crate::config::{AllowFrom, AppendFsync, Config};
use crate::engine::{Engine, RawSockets, ServerState};
use crate::keyspace::Keyspace;
use crate::keyspace::limits::{CLOCK_EARLIEST_MS, LEASE_MAX_MS};
use crate::log::block::{HEAD_BYTES, unit_head};
use crate::log::directory::{Directory, DirectoryId};
use crate::log::error::LogError;
use crate::log::group_commit::{Log, Options, SyncPolicy};
use crate::log::scan::Recovery;
use crate::log::sim::{Faults, SimDisk};
use crate::resp::reply::{Form, Reply};
use crate::resp::request::Decoder;
use crate::session::Peer;
use crate::spec::session_key::SessionKey;

mod pauses;
mod reads;
mod transfers;

/// A segment has room for small changes only.
const OPTIONS: Options = Options {
    policy: SyncPolicy::Always,
    segment_bytes: 64 * 1024,
    first_segment_bytes: 16 * 1024,
    prepared_segments: 1,
    reserve_bytes: 8 * 1024,
    may_wait_for_space: true,
};

/// A value that does not fit in the first segment.
static LARGE: [u8; 40_000] = [b'x'; 40_000];

struct Bench {
    engine: Engine,
    clock: Clock,
    disk: SimDisk,
    clients: [SessionKey; 3],
}

fn directory(disk: &SimDisk) -> Directory {
    Directory::open(Arc::new(disk.clone()), Path::new("/log"), DirectoryId::new([1; 16])).expect("it can be locked")
}

fn engine(config: Config, clock: Clock) -> Engine {
    Engine::new(config, command::table(), clock, Rng::seeded(1)).expect("memory")
}

/// Takes the bytes that may leave now for a client, as a connection sends them.
pub(super) fn send(server: &mut ServerState, client: SessionKey) -> Vec<u8> {
    let mut sent = Vec::new();
    while let free @ 1.. = server.sendable(client) {
        let Some(session) = server.clients.sessions.get_mut(client) else { break };
        let piece = session.unsent(free).to_vec();
        session.sent(piece.len());
        sent.extend(piece);
    }
    sent
}

impl Bench {
    fn new() -> Bench {
        let (disk, clock) = (SimDisk::new(1), Clock::manual(1_000_000));
        let recovery = Recovery::open(directory(&disk), Lsn::NONE).expect("nothing is there");
        let log = recovery.finish(OPTIONS, Arc::new(disk.clone()), Box::new(|| {})).expect("there is space");
        let mut engine = engine(Config::default(), clock.clone());
        engine.server.persist(&mut engine.ks, |persistence, _, _| persistence.attach(log, Lsn::NONE));
        let clients = [(); 3].map(|()| engine.server.open_session(Peer::default()));
        Bench { engine, clock, disk, clients }
    }

    fn log(&self) -> &Log {
        self.engine.server.persistence.local_log().expect("it was attached")
    }

    /// Runs a pipeline of commands. The replies are in the outbox then.
    fn feed(&mut self, client: usize, commands: &[&[&[u8]]]) {
        let mut request = Vec::new();
        for words in commands {
            request.extend_from_slice(format!("*{}\r\n", words.len()).as_bytes());
            for word in *words {
                request.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
                request.extend_from_slice(word);
                request.extend_from_slice(b"\r\n");
            }
        }
        let mut out = Reply::new(Form::Resp2);
        let mut decoder = Decoder::new();
        self.engine.feed(self.clients[client], &mut decoder, &request, &mut out);
        if let Some(session) = self.engine.server.clients.sessions.get_mut(self.clients[client]) {
            session.reply(&mut out);
        }
    }

    /// The bytes that may leave now for a client; `None` while they are held.
    fn sent(&mut self, client: usize) -> Option<String> {
        let sent = send(&mut self.engine.server, self.clients[client]);
        let session = self.engine.server.clients.sessions.get_mut(self.clients[client]).expect("it is open");
        (!sent.is_empty() || !session.has_unsent()).then(|| sent.escape_ascii().to_string())
    }

    /// Runs a command given as words. Returns the bytes that may leave for the client.
    fn line(&mut self, client: usize, line: &str) -> Option<String> {
        let words: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
        self.feed(client, &[&words]);
        self.sent(client)
    }

    fn is_killed(&mut self, client: usize) -> bool {
        self.engine.server.clients.sessions.get_mut(self.clients[client]).is_some_and(|session| session.is_killed())
    }

    fn fill_disk(&self) {
        self.disk.set_capacity(Some(self.disk.used_bytes()));
    }

    fn fail_next_write(&self) {
        self.disk.set_faults(Faults { fail_at: Some(self.disk.operations()), ..Faults::default() });
    }

    /// Makes the journal fail with a change whose client gets no reply.
    fn lose(&mut self, change: &str) {
        self.fail_next_write();
        assert_eq!(self.line(0, change), Some(String::new()));
        assert!(self.is_killed(0));
    }
}

/// A client that waits for a lost unit would wait for ever, and could publish nothing any more.
#[test]
fn waitaof_waits_for_no_unit_that_the_journal_loses_meanwhile() {
    let mut bench = Bench::new();
    bench.feed(0, &[&[b"SET", b"k", b"1"]]);
    bench.fail_next_write();
    // This hands over the change of the other client, and the disk fails.
    assert_eq!(bench.line(1, "WAITAOF 1 0 0").as_deref(), Some("*2\\r\\n:1\\r\\n:0\\r\\n"));
    assert!(bench.is_killed(0), "its reply showed a lost change");
    assert_eq!(bench.line(1, "PUBLISH channel message").as_deref(), Some(":0\\r\\n"));
}

#[derive(Default)]
struct Bell(AtomicUsize);

impl Wake for Bell {
    fn wake(self: Arc<Bell>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn a_listener_that_is_closed_reads_nothing_out_of_order() {
    let mut bench = Bench::new();
    bench.feed(0, &[&[b"CONFIG", b"SET", b"client-output-buffer-limit", b"pubsub 100kb 0 0"]]);
    assert_eq!(bench.sent(0).as_deref(), Some("+OK\\r\\n"));
    bench.line(0, "HELLO 3");
    (0..3).for_each(|_| bench.feed(0, &[&[b"ECHO", &LARGE]]));
    // The socket takes part of it.
    let session = bench.engine.server.clients.sessions.get_mut(bench.clients[0]).expect("it is open");
    session.sent(10);
    bench.feed(0, &[&[b"PING"], &[b"SUBSCRIBE", b"c"], &[b"PUBLISH", b"c", b"x"], &[b"PING"]]);
    assert!(bench.is_killed(0), "a message exceeded the limit of unread output");
    assert_eq!(bench.sent(0).as_deref(), Some(""), "earlier output was dropped, so nothing may follow");
}

#[test]
fn held_clients_are_woken_even_if_the_journal_advanced_by_itself() {
    let mut bench = Bench::new();
    bench.fill_disk();
    bench.feed(0, &[&[b"SET", b"k", &LARGE]]);
    assert_eq!(bench.sent(0), None);
    let bell = Arc::<Bell>::default();
    let session = bench.engine.server.clients.sessions.get_mut(bench.clients[0]).expect("it is open");
    session.wake_by(&Waker::from(Arc::clone(&bell)));
    bench.engine.tick();
    assert_eq!(bell.0.load(Ordering::Relaxed), 0);
    bench.disk.set_capacity(None);
    // As the journal's threads do.
    while bench.log().do_chore() {}
    bench.log().step();
    bench.engine.tick();
    assert_eq!(bell.0.load(Ordering::Relaxed), 1);
    assert_eq!(bench.sent(0).as_deref(), Some("+OK\\r\\n"));
}

#[test]
fn a_full_disk_refuses_changes_until_there_is_space() {
    let mut bench = Bench::new();
    bench.fill_disk();
    bench.feed(0, &[&[b"SET", b"k", &LARGE]]);
    assert_eq!(bench.sent(0), None);
    let misconf = "-MISCONF Errors writing to the AOF file: No space left on device";
    for (line, reply) in [
        ("SET a 1", misconf),
        ("SCRIPT LOAD return", misconf),
        ("SCRIPT FLUSH", misconf),
        ("CONFIG SET appendfsync no", "-ERR CONFIG SET failed (possibly related to argument"),
        ("GET other", "$-1"),
        ("WAITAOF 1 0 0", ""),
    ] {
        let sent = bench.line(1, line).expect("it tells nothing of what waits");
        assert!(sent.starts_with(reply), "{line}: {sent}");
    }
    assert_eq!(bench.engine.server.config.appendfsync, AppendFsync::Always);
    bench.disk.set_capacity(None);
    while bench.log().do_chore() {}
    bench.engine.tick();
    assert_eq!(bench.sent(0).as_deref(), Some("+OK\\r\\n"), "the change is on disk");
    // No command touches a key for WAITAOF.
    bench.clock.advance_ms(1_000);
    bench.engine.time_out_waits();
    assert_eq!(bench.sent(1).as_deref(), Some("*2\\r\\n:1\\r\\n:0\\r\\n"));
    assert_eq!(bench.line(1, "SET a 1").as_deref(), Some("+OK\\r\\n"));
}

/// The command that makes the journal fail, or finds that it has failed, runs for a client that is out of the registry
/// at that time.
#[test]
fn replies_of_the_pipeline_that_meets_the_failure_never_leave() {
    for finds in [&[&b"WAITAOF"[..], b"1", b"0", b"0"][..], &[b"CONFIG", b"SET", b"appendfsync", b"no"]] {
        let mut bench = Bench::new();
        bench.fail_next_write();
        bench.feed(0, &[&[b"SET", b"a", b"1"], finds, &[b"SET", b"b", b"2"]]);
        assert_eq!(bench.sent(0).as_deref(), Some(""), "{finds:?}");
        assert!(bench.is_killed(0));
    }
}

#[test]
fn changes_that_the_journal_lost_are_never_shown() {
    let mut bench = Bench::new();
    assert_eq!(bench.line(1, "SET a old").as_deref(), Some("+OK\\r\\n"));
    assert_eq!(bench.line(1, "MULTI").as_deref(), Some("+OK\\r\\n"));
    assert_eq!(bench.line(1, "GET a").as_deref(), Some("+QUEUED\\r\\n"));
    bench.lose("SET a new");
    let told = |bench: &mut Bench, words: &[&[u8]]| {
        bench.feed(1, &[words]);
        bench.sent(1).expect("nothing is held by a log that has failed")
    };
    for words in [
        &[&b"EXEC"[..]][..],
        &[b"GET", b"a"],
        &[b"SET", b"a", b"newer"],
        &[b"EVAL", b"return redis.call('GET', 'a')", b"0"],
        &[b"SCRIPT", b"LOAD", b"return 1"],
    ] {
        let sent = told(&mut bench, words);
        assert!(sent.contains("MISCONF Errors writing to the AOF file") && !sent.contains("$3"), "{words:?}: {sent}");
    }
    assert_eq!(told(&mut bench, &[b"ECHO", b"hello"]), "$5\\r\\nhello\\r\\n");
    assert!(told(&mut bench, &[b"PING"]).starts_with("-MISCONF"), "PING reports the failed write");
}

#[test]
fn time_changes_nothing_that_the_journal_cannot_record() {
    let mut bench = Bench::new();
    for line in ["XADD s 1-1 f v", "XGROUP CREATE s g 0", "XREADGROUP GROUP g c1 STREAMS s >"] {
        assert!(bench.line(1, line).is_some_and(|sent| !sent.starts_with('-')), "{line}");
    }
    assert_eq!(bench.line(1, "XREADGROUP GROUP g c2 BLOCK 0 CLAIM 500 STREAMS s >").as_deref(), Some(""));
    bench.lose("SET a 1");
    bench.clock.advance_ms(1_000);
    bench.engine.time_out_waits();
    let sent = bench.sent(1).expect("nothing is held by a log that has failed");
    assert!(sent.starts_with("-MISCONF"), "{sent}");
}

/// Neither a reader nor a waiter may turn a message into an entry that the journal would not record, and a waiter is
/// not refused.
#[test]
fn messages_stay_delayed_while_the_log_takes_no_changes() {
    for waits in ["XREAD BLOCK 0 STREAMS s $", "XREADGROUP GROUP g c BLOCK 0 STREAMS s >"] {
        let mut bench = Bench::new();
        for line in ["XGROUP CREATE s g $ MKSTREAM", "XADD s DELAY 1000 * f v"] {
            assert!(bench.line(0, line).is_some_and(|sent| !sent.starts_with('-')), "{line}");
        }
        assert_eq!(bench.line(1, waits).as_deref(), Some(""));
        bench.engine.server.commit_units();
        bench.fill_disk();
        bench.feed(0, &[&[b"SET", b"k", &LARGE]]);
        assert_eq!(bench.sent(0), None);
        bench.clock.advance_ms(2_000);
        bench.engine.time_out_waits();
        assert_eq!(bench.sent(1).as_deref(), Some(""), "{waits}");
        assert_eq!(bench.line(2, "XLEN s").as_deref(), Some(":0\\r\\n"), "{waits}");
        bench.engine.reclaim_expired();
        assert_eq!(bench.line(2, "XLEN s").as_deref(), Some(":0\\r\\n"), "{waits}");
        bench.disk.set_capacity(None);
        // Repeated once the journal has made room for further units.
        for _ in 0..3 {
            while bench.log().do_chore() {}
            bench.clock.advance_ms(1_000);
            bench.engine.tick();
        }
        assert!(!bench.engine.server.persistence.is_unlogged(&bench.engine.server.config));
        assert_eq!(bench.sent(0).as_deref(), Some("+OK\\r\\n"));
        bench.engine.reclaim_expired();
        bench.engine.server.commit_units();
        assert!(bench.sent(1).is_some_and(|sent| sent.contains("\\r\\nf\\r\\n")), "{waits}");
        assert_eq!(bench.line(2, "XLEN s").as_deref(), Some(":1\\r\\n"), "{waits}");
    }
}

/// A client waiting for a lock keeps waiting until there is space, whichever clients look at the lock, hang up or time
/// out in the meantime.
#[test]
fn a_waiter_for_a_lock_is_not_refused_while_the_disk_is_full() {
    let mut bench = Bench::new();
    assert!(bench.line(0, "LOCK.ACQUIRE l first PX 500").is_some_and(|sent| sent.contains("token")));
    assert_eq!(bench.line(1, "LOCK.ACQUIRE l next PX 60000 BLOCK 0").as_deref(), Some(""));
    bench.engine.server.commit_units();
    bench.fill_disk();
    bench.feed(0, &[&[b"SET", b"k", &LARGE]]);
    assert_eq!(bench.sent(0), None);
    bench.clock.advance_ms(1_000);
    bench.engine.time_out_waits();
    bench.line(2, "LOCK.INFO l");
    bench.line(2, "WHO l");
    bench.engine.time_out_waits();
    assert_eq!(bench.sent(1).as_deref(), Some(""), "the call waits on");
    bench.disk.set_capacity(None);
    for _ in 0..3 {
        while bench.log().do_chore() {}
        bench.clock.advance_ms(1_000);
        bench.engine.tick();
        bench.engine.time_out_waits();
    }
    bench.engine.server.commit_units();
    assert!(bench.sent(1).is_some_and(|sent| sent.contains("token")), "the waiter gets the lock");
}

#[test]
fn another_server_learns_nothing_that_may_be_lost() {
    let mut bench = Bench::new();
    bench.fill_disk();
    bench.feed(0, &[&[b"SET", b"k", &LARGE], &[b"MIGRATE", b"127.0.0.1", b"1", b"k", b"0", b"100"]]);
    bench.disk.set_capacity(None);
    bench.engine.tick();
    let sent = bench.sent(0).expect("there is space");
    assert!(sent.contains("-MISCONF"), "{sent}");
}

#[test]
fn a_unit_longer_than_the_log_takes_is_refused_before_it_changes_anything() {
    let mut bench = Bench::new();
    let half = vec![b'x'; crate::keyspace::limits::UNIT_MAX_BYTES / 2];
    let whole = vec![b'x'; crate::keyspace::limits::UNIT_MAX_BYTES];
    let refused = "-ERR the changes of this command, transaction or script exceed 1 GB";
    let script = b"for i = 1, 3 do redis.call('SET', 'k' .. i, ARGV[1]) end";
    for (words, reply) in [
        (&[&b"EVAL"[..], script, b"0", &half][..], refused),
        (&[b"DBSIZE"], ":0"),
        (&[b"SET", b"k", &whole], refused),
        (&[b"DBSIZE"], ":0"),
    ] {
        bench.feed(0, &[words]);
        let sent = bench.sent(0).expect("there is space");
        assert!(sent.starts_with(reply), "{sent}");
    }
    bench.feed(0, &[&[b"MULTI"], &[b"SET", b"a", &half], &[b"SET", b"b", &half], &[b"SET", b"c", b"1"], &[b"EXEC"]]);
    let sent = bench.sent(0).expect("there is space");
    assert!(sent.contains("*3\\r\\n+OK\\r\\n-ERR the changes") && sent.ends_with("+OK\\r\\n"), "{sent}");
    // Large units do not pile up in one block.
    let set: &[&[u8]] = &[b"SET", b"a", &half];
    bench.feed(0, &[set; 40]);
    assert!(bench.log().written() > Lsn::new(20));
}

/// The RESTORE payload of a string of at least `bytes` bytes. It is short itself, since it is packed as Redis does it.
fn packed_string(bytes: usize) -> Vec<u8> {
    let repeats = bytes.div_ceil(264);
    // One byte, then `repeats` copies of the 264 bytes that begin one byte earlier: LZF.
    let packed = [vec![0, b'x'], [0xe0, 255, 0].repeat(repeats)].concat();
    let len = |len: usize| [&[0x80], &u32::try_from(len).expect("it is short").to_be_bytes()[..]].concat();
    let mut payload = [vec![0, 0xc3], len(packed.len()), len(1 + 264 * repeats), packed].concat();
    crate::rdb::seal(&mut payload, 10);
    payload
}

#[test]
fn effects_longer_than_their_command_are_refused_before_they_change_anything() {
    let mut bench = Bench::new();
    let part = vec![b'x'; crate::keyspace::limits::UNIT_MAX_BYTES / 4];
    let member = |n: u8| [&[n], &part[..]].concat();
    for n in 0..6 {
        let id = &[b'1' + n, b'-', b'1'];
        bench.feed(0, &[&[b"SADD", b"set", &member(n)], &[b"ZADD", b"zset", b"1", &member(n)]]);
        bench.feed(0, &[&[b"RPUSH", b"list", &member(n)], &[b"XADD", b"stream", id, b"f", b"v"]]);
        bench.feed(0, &[&[b"GEOADD", b"geo", b"1", b"1", &member(n)], &[b"XADD", b"held", id, b"f", b"v"]]);
    }
    bench.feed(0, &[&[b"XGROUP", b"CREATE", b"stream", &part, b"0"], &[b"XGROUP", b"CREATE", b"held", &part, b"0"]]);
    for _ in 0..6 {
        bench.feed(0, &[&[b"XREADGROUP", b"GROUP", &part, b"c", b"COUNT", b"1", b"STREAMS", b"held", b">"]]);
    }
    let sent = bench.sent(0).expect("there is space");
    assert!(!sent.contains("ERR"), "all members fit, one by one");
    let ids: [&[u8]; 6] = [b"4", b"1-1", b"2-1", b"3-1", b"4-1", b"5-1"];
    let payload = packed_string(crate::keyspace::limits::UNIT_MAX_BYTES);
    let numbered = |words: &[&'static [u8]]| [words, &ids[..5]].concat();
    let of_group = |words: &[&'static [u8]], more: &[&'static [u8]]| {
        [words, &[&b"held"[..], &part[..]], more].concat().into_iter().map(<[u8]>::to_vec).collect::<Vec<_>>()
    };
    let words = |words: &[&[u8]]| words.iter().map(|word| word.to_vec()).collect::<Vec<_>>();
    for command in [
        words(&[b"SUNIONSTORE", b"to", b"set"]),
        words(&[b"RESTORE", b"to", b"0", &payload]),
        words(&[b"SPOP", b"set", b"5"]),
        words(&[b"ZUNIONSTORE", b"to", b"1", b"zset"]),
        words(&[b"ZRANGESTORE", b"to", b"zset", b"0", b"-1"]),
        words(&[b"GEOSEARCHSTORE", b"to", b"geo", b"FROMLONLAT", b"1", b"1", b"BYRADIUS", b"9", b"km"]),
        words(&[b"SORT", b"list", b"BY", b"nosort", b"STORE", b"to"]),
        words(&[b"XCLAIM", b"stream", &part, b"c", b"0", b"1-1", b"2-1", b"3-1", b"4-1", b"FORCE"]),
        words(&[b"XACK", b"stream", &part, b"1-1", b"2-1", b"3-1", b"4-1"]),
        words(&[b"XTRIM", b"held", b"MAXLEN", b"2", b"DELREF"]),
        words(&[b"XADD", b"held", b"DELREF", b"MAXLEN", b"3", b"*", b"f", b"v"]),
        words(&numbered(&[b"XDELEX", b"held", b"DELREF", b"IDS"])),
        of_group(&[b"XACKDEL"], &numbered(&[b"IDS"])),
        of_group(&[b"XNACK"], &numbered(&[b"FAIL", b"IDS"])),
    ] {
        let name = command[0].escape_ascii().to_string();
        let command: Vec<&[u8]> = command.iter().map(Vec::as_slice).collect();
        bench.feed(0, &[&command, &[b"EXISTS", b"to"], &[b"SCARD", b"set"], &[b"XLEN", b"held"]]);
        let sent = bench.sent(0).expect("there is space");
        let refused = "-ERR the changes of this command, transaction or script exceed 1 GB";
        let unchanged = ":0\\r\\n:6\\r\\n:6\\r\\n";
        assert!(sent.starts_with(refused) && sent.ends_with(unchanged), "{name}: {}", &sent[..sent.len().min(300)]);
    }
    // As many entries are given, or claimed, as fit.
    let mut given = 0;
    while given < 6 {
        bench.feed(0, &[&[b"XREADGROUP", b"GROUP", &part, b"c", b"STREAMS", b"stream", b">"]]);
        let count = bench.sent(0).expect("there is space").matches("-1\\r\\n").count();
        assert!((1..4).contains(&count), "{count}");
        given += count;
    }
    bench.feed(0, &[&[b"XAUTOCLAIM", b"held", &part, b"d", b"0", b"0", b"JUSTID"]]);
    let sent = bench.sent(0).expect("there is space");
    let goes_on_at = "*3\\r\\n$3\\r\\n2-1\\r\\n";
    assert!(sent.starts_with(goes_on_at) && sent.contains("$3\\r\\n1-1"), "{sent}");
    // A command whose unit fits is executed.
    for (words, reply) in [
        (&[&b"SPOP"[..], b"set", b"3"][..], "*3"),
        (&[b"XTRIM", b"held", b"MAXLEN", b"3", b"DELREF"], ":3"),
        (&[b"XDELEX", b"held", b"DELREF", b"IDS", b"2", b"4-1", b"5-1"], "*2\\r\\n:1\\r\\n:1\\r\\n"),
    ] {
        bench.feed(0, &[words]);
        let sent = bench.sent(0).expect("there is space");
        assert!(sent.starts_with(reply), "{reply}");
    }
}

/// The shorter the members, the larger the share of SPOP's unit that is not members.
#[test]
fn spop_takes_only_as_many_members_as_a_unit_can_hold() {
    let mut bench = Bench::new();
    let unit_bytes = crate::keyspace::limits::UNIT_MAX_BYTES;
    let (key, removal) = ("set", "CLmemberCE".len());
    let fits = (unit_bytes - "DKset".len() - "CL".len()) / removal;
    for first in (0..=fits).step_by(10_000) {
        let members: Vec<String> = (first..first + 10_000).map(|n| format!("{n:06}")).collect();
        let words: Vec<&[u8]> =
            ["SADD", key].into_iter().chain(members.iter().map(String::as_str)).map(str::as_bytes).collect();
        bench.feed(0, &[&words]);
        assert!(bench.sent(0).is_some_and(|sent| sent == ":10000\\r\\n"));
    }
    let spop = |bench: &mut Bench, count: usize| {
        let before = bench.log().written_bytes();
        bench.feed(0, &[&[b"SPOP", key.as_bytes(), count.to_string().as_bytes()]]);
        let sent = bench.sent(0).expect("there is space");
        (sent[..sent.len().min(20)].to_owned(), bench.log().written_bytes() - before)
    };
    assert_eq!(spop(&mut bench, fits + 1), ("-ERR the changes of ".to_owned(), 0));
    let (sent, written) = spop(&mut bench, fits);
    assert!(sent.starts_with(&format!("*{fits}\\r\\n")), "{sent}");
    let recorded = written as usize - HEAD_BYTES - unit_head(1, 1, 0).len();
    let unused = removal + "CL".len();
    assert!((unit_bytes - unused..=unit_bytes).contains(&recorded), "{recorded}");
}

#[test]
fn recorded_data_is_restored_even_under_lower_limits() {
    let disk = SimDisk::new(1);
    let clock = Clock::manual(1_000_000);
    let library = b"#!lua name=l\n\
        local t = {} for i = 1, 10000 do t[i] = i end \
        redis.register_function('f', function() return t[1] end)";
    let mut config = Config::default();
    for is_first in [true, false] {
        let mut engine = engine(config.clone(), clock.clone());
        engine.recover(directory(&disk), Box::new(|| {})).expect("the log is whole");
        let clients = [(); 3].map(|()| engine.server.open_session(Peer::default()));
        let mut bench = Bench { engine, clock: clock.clone(), disk: disk.clone(), clients };
        if is_first {
            bench.feed(
                0,
                &[
                    &[b"FUNCTION", b"LOAD", library],
                    &[b"SCRIPT", b"LOAD", b"return 1"],
                    &[b"EVAL", b"return 2", b"0"],
                    &[b"EVAL", b"return 3", b"0"],
                ],
            );
            assert!(bench.sent(0).is_some_and(|sent| !sent.contains("-ERR")));
        } else {
            assert!(bench.line(0, "FUNCTION LIST").is_some_and(|sent| sent.contains("library_name")));
            // The last script from EVAL stays, though there is no room.
            assert_eq!(bench.engine.server.programs.scripts.cached_len(), 2);
        }
        bench.engine.server.persistence.close().expect("there is space");
        config.script_memory_limit = 1;
        config.script_cache_max_bytes = 0;
    }
}

#[test]
fn a_snapshot_that_ends_late_loses_no_changes() {
    let (disk, clock) = (SimDisk::new(1), Clock::manual(1_000_000));
    let recovered = || {
        let mut engine = engine(Config::default(), clock.clone());
        // The thread of a completed snapshot may hold the directory for a moment longer.
        let id = DirectoryId::new([1; 16]);
        let directory =
            (0..10_000).find_map(|_| match Directory::open(Arc::new(disk.clone()), Path::new("/log"), id) {
                Err(LogError::Locked { .. }) => {
                    std::thread::sleep(Duration::from_millis(1));
                    None
                }
                opened => Some(opened.expect("it can be locked")),
            });
        engine.recover(directory.expect("it is free"), Box::new(|| {})).expect("what is there is whole");
        let clients = [(); 3].map(|()| engine.server.open_session(Peer::default()));
        Bench { engine, clock: clock.clone(), disk: disk.clone(), clients }
    };
    let mut bench = recovered();
    assert_eq!(bench.line(0, "INCR n").as_deref(), Some(":1\\r\\n"));
    assert_eq!(bench.line(0, "BGSAVE").as_deref(), Some("+Background saving started\\r\\n"));
    // The snapshot begins, and then all data is copied; its outcome is checked later.
    assert!(bench.engine.save_slice() && bench.engine.save_slice());
    for n in 2..=4 {
        // The last unit is in no journal.
        if n == 4 {
            assert_eq!(bench.line(0, "CONFIG SET appendonly no").as_deref(), Some("+OK\\r\\n"));
        }
        // The thread of the journal may be at work, and then the reply waits for it.
        let sent = bench.line(0, "INCR n").or_else(|| {
            (0..10_000).find_map(|_| {
                std::thread::sleep(Duration::from_millis(1));
                bench.sent(0)
            })
        });
        assert_eq!(sent, Some(format!(":{n}\\r\\n")));
    }
    let Engine { ks, server, .. } = &mut bench.engine;
    server.persist(ks, |persistence, ks, env| persistence.save_at_once(ks, env)).expect("there is space");
    drop(bench);
    let mut bench = recovered();
    assert_eq!(bench.line(0, "GET n").as_deref(), Some("$1\\r\\n4\\r\\n"), "no older change comes back");
    // Nor does SAVE accept a snapshot that lacks changes made after the copy.
    assert_eq!(bench.line(0, "CONFIG SET appendonly no").as_deref(), Some("+OK\\r\\n"));
    assert!(bench.line(0, "BGREWRITEAOF").is_some_and(|sent| sent.ends_with("started\\r\\n")));
    assert!(bench.engine.save_slice() && bench.engine.save_slice());
    assert_eq!(bench.line(0, "INCR n").as_deref(), Some(":5\\r\\n"));
    assert_eq!(bench.line(0, "SAVE").as_deref(), Some(""));
    let saved = (0..10_000).find_map(|_| {
        std::thread::sleep(Duration::from_millis(u64::from(!bench.engine.save_slice())));
        bench.sent(0).filter(|sent| !sent.is_empty())
    });
    assert_eq!(saved.as_deref(), Some("+OK\\r\\n"));
    drop(bench);
    assert_eq!(recovered().line(0, "GET n").as_deref(), Some("$1\\r\\n5\\r\\n"));
}

/// Sockets that only look at the bytes one client would be sent while a command holds the thread.
struct Onlooker {
    client: SessionKey,
    seen: Rc<RefCell<Vec<u8>>>,
}

impl RawSockets for Onlooker {
    fn send_unsent(&mut self, server: &mut ServerState) {
        let sent = send(server, self.client);
        self.seen.borrow_mut().extend(sent);
    }

    fn serve(&mut self, _: &mut Keyspace, server: &mut ServerState) {
        self.send_unsent(server);
    }

    fn exchange(&mut self, _: SessionKey, _: &mut Vec<u8>, _: Option<&mut Vec<u8>>, _: Duration) -> bool {
        false
    }
}

#[test]
fn transactions_are_not_shown_before_the_journal_has_them() {
    let mut bench = Bench::new();
    assert!(bench.line(1, "SUBSCRIBE news").is_some());
    bench.engine.server.config.enable_debug_command = AllowFrom::Yes;
    let seen = Rc::<RefCell<Vec<u8>>>::default();
    bench.engine.server.network.raw_sockets = Some(Box::new(Onlooker { client: bench.clients[1], seen: seen.clone() }));
    for script in ["return 1", "redis.call('PUBLISH', 'news', 'of a script') error('fails')"] {
        let eval: [&[u8]; 3] = [b"EVAL", script.as_bytes(), b"0"];
        // A sleeping command lets the sockets send available replies.
        bench.feed(
            0,
            &[
                &[b"MULTI"],
                &[b"SET", b"k", b"v"],
                &[b"PUBLISH", b"news", b"early"],
                &eval,
                &[b"DEBUG", b"SLEEP", b"0"],
                &[b"EXEC"],
            ],
        );
        assert_eq!(seen.borrow().escape_ascii().to_string(), "", "{script}");
        let heard = bench.sent(1).expect("the log has it");
        assert_eq!((heard.matches("early").count(), heard.contains("of a script")), (1, false), "{script}: {heard}");
    }
}

/// Sockets that take a few bytes beyond the replies each time, and note which bytes.
struct Narrow {
    takes: usize,
    taken: Rc<RefCell<Vec<u8>>>,
}

impl RawSockets for Narrow {
    fn send_unsent(&mut self, _: &mut ServerState) {}

    fn serve(&mut self, _: &mut Keyspace, _: &mut ServerState) {}

    fn send_past(&mut self, _: SessionKey, parts: &[IoSlice<'_>], _: bool) -> usize {
        let all: Vec<u8> = parts.iter().flat_map(|part| part.iter().copied()).take(self.takes).collect();
        self.taken.borrow_mut().extend_from_slice(&all);
        all.len()
    }

    fn exchange(&mut self, _: SessionKey, _: &mut Vec<u8>, _: Option<&mut Vec<u8>>, _: Duration) -> bool {
        false
    }
}

#[test]
fn large_values_are_sent_without_copying_unless_output_must_wait() {
    const GET: &[&[u8]] = &[b"GET", b"large"];
    const PING: &[&[u8]] = &[b"PING"];
    let reply = [format!("${}\r\n", LARGE.len()).as_bytes(), &LARGE, b"\r\n"].concat();
    let (once, after_pong) = (reply.clone(), [b"+PONG\r\n".as_slice(), &reply].concat());
    for (case, takes, commands, past, later) in [
        ("all of it", usize::MAX, &[PING, GET][..], after_pong.clone(), Vec::new()),
        ("what the socket takes", 7, &[PING, GET], after_pong[..7].to_vec(), after_pong[7..].to_vec()),
        ("nothing", 0, &[GET], Vec::new(), once.clone()),
        ("one behind the other", usize::MAX, &[GET, GET], [once.clone(), once.clone()].concat(), Vec::new()),
        (
            "not behind what waits for the log",
            usize::MAX,
            &[&[b"SET", b"k", b"v"], GET],
            Vec::new(),
            [b"+OK\r\n", &*once].concat(),
        ),
        (
            "not what waits for the log",
            usize::MAX,
            &[&[b"SETRANGE", b"large", b"0", b"x"], GET],
            Vec::new(),
            [b":40000\r\n", &*once].concat(),
        ),
        (
            "not inside of EXEC",
            usize::MAX,
            &[&[b"MULTI"], GET, &[b"EXEC"]],
            Vec::new(),
            [b"+OK\r\n+QUEUED\r\n*1\r\n", &*once].concat(),
        ),
        ("not what nobody wants", usize::MAX, &[&[b"CLIENT", b"REPLY", b"SKIP"], GET], Vec::new(), Vec::new()),
    ] {
        let mut bench = Bench::new();
        bench.feed(0, &[&[b"SET", b"large", &LARGE]]);
        while bench.sent(0).is_none() {
            std::thread::yield_now();
        }
        let taken = Rc::<RefCell<Vec<u8>>>::default();
        bench.engine.server.network.raw_sockets = Some(Box::new(Narrow { takes, taken: taken.clone() }));
        let sent_before = bench.engine.server.meters.stats.bytes_out;
        bench.feed(0, commands);
        assert!(*taken.borrow() == past, "{case}: {} bytes went past", taken.borrow().len());
        assert_eq!(bench.engine.server.meters.stats.bytes_out - sent_before, past.len() as u64, "{case}");
        let session = bench.engine.server.clients.sessions.get_mut(bench.clients[0]).expect("it is open");
        assert!(session.take_unsent() == later, "{case}");
    }
}

/// Sockets over which one client sends one command while a script is busy.
struct Inquirer {
    client: SessionKey,
    question: &'static [u8],
    /// The bytes sent to it while the script ran; `None` until it has sent its command.
    heard: Rc<RefCell<Option<Vec<u8>>>>,
}

impl RawSockets for Inquirer {
    fn send_unsent(&mut self, _: &mut ServerState) {}

    fn serve(&mut self, ks: &mut Keyspace, server: &mut ServerState) {
        if self.heard.borrow().is_some() {
            return;
        }
        let mut out = Reply::new(Form::Resp2);
        server.feed_while_busy(ks, self.client, &mut Decoder::new(), self.question, &mut out);
        server.clients.sessions.get_mut(self.client).expect("it is open").reply(&mut out);
        *self.heard.borrow_mut() = Some(send(server, self.client));
    }

    fn exchange(&mut self, _: SessionKey, _: &mut Vec<u8>, _: Option<&mut Vec<u8>>, _: Duration) -> bool {
        false
    }
}

#[test]
fn during_a_busy_script_libraries_are_not_shown_before_the_journal_has_them() {
    let library: &[u8] = b"#!lua name=l\nredis.register_function('f', function() end)";
    for (question, load, waits) in [
        (&b"FUNCTION STATS\r\n"[..], &[&b"FUNCTION"[..], b"LOAD", library][..], true),
        (b"SCRIPT STATS\r\n", &[b"SCRIPT", b"LOAD", b"return 7"], true),
        // A script that runs, and is cached because it runs, makes no reply wait.
        (b"SCRIPT STATS\r\n", &[b"ECHO", b"hello"], false),
    ] {
        let mut bench = Bench::new();
        bench.engine.server.config.busy_reply_threshold_ms = 1;
        let heard = Rc::<RefCell<Option<Vec<u8>>>>::default();
        let client = bench.clients[1];
        bench.engine.server.network.raw_sockets = Some(Box::new(Inquirer { client, question, heard: heard.clone() }));
        let slow = b"#!lua name=slow\nredis.register_function('slow', function() for i = 1, 5e7 do end end)";
        bench.feed(0, &[&[b"FUNCTION", b"LOAD", slow]]);
        assert!(bench.sent(0).is_some());
        bench.feed(0, &[&[b"MULTI"], load, &[b"FCALL", b"slow", b"0"], &[b"EXEC"]]);
        let at_once = heard.borrow_mut().take().expect("the script was busy");
        assert_eq!(at_once.is_empty(), waits, "{question:?}: {}", at_once.escape_ascii());
        // By now the unit has its number, and is written when a client waits for it.
        let later = bench.sent(1).expect("the log has it");
        assert_eq!(later.contains("running_script"), waits, "{question:?}: {later}");
    }
}

/// A lease granted while the clock was ten years ahead would last ten years, and a restart would take too long.
#[test]
fn a_lease_made_too_long_by_a_wrong_clock_is_cut() {
    const TEN_YEARS_MS: i64 = 3_653 * 24 * 60 * 60 * 1_000;
    for restarts in [false, true] {
        let mut bench = Bench::new();
        bench.clock.set_wall_by_ms(CLOCK_EARLIEST_MS + TEN_YEARS_MS);
        assert!(bench.line(0, "LOCK.ACQUIRE l first PX 1000").is_some_and(|sent| sent.contains("token")));
        bench.clock.set_wall_by_ms(-TEN_YEARS_MS);
        let now_ms = bench.clock.now_ms();
        if restarts {
            let Bench { clock, disk, .. } = bench;
            let (mut engine, log) = (engine(Config::default(), clock.clone()), directory_after_kill(&disk));
            engine.recover(log, Box::new(|| {})).expect("it is whole");
            let clients = [(); 3].map(|()| engine.server.open_session(Peer::default()));
            bench = Bench { engine, clock, disk, clients };
        }
        bench.engine.tick();
        bench.engine.server.commit_units();
        let effects = |bench: &Bench| bench.log().written_bytes();
        let written = effects(&bench);
        bench.engine.tick();
        bench.engine.server.commit_units();
        assert_eq!(effects(&bench), written, "once");
        let who = bench.line(1, "WHO l").expect("nothing is in flight");
        let until_ms = now_ms + LEASE_MAX_MS;
        assert!(bench.line(1, "LOCK.ACQUIRE l next PX 1000").is_some_and(|sent| !sent.contains("token")), "{who}");
        bench.clock.set_wall_by_ms(until_ms - now_ms);
        bench.engine.tick();
        assert!(bench.line(1, "LOCK.ACQUIRE l next PX 1000").is_some_and(|sent| sent.contains("token")), "{who}");
    }
}

fn directory_after_kill(disk: &SimDisk) -> Directory {
    disk.kill();
    directory(disk)
}
