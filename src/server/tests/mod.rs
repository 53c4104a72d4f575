//! The whole server without sockets and without threads.

mod group;
mod group_simulation;
mod imported;
mod loading;
mod logged;
mod saved;
mod simulation;

use super::*;
use crate::keyspace::effect::{EffectReader, Recording};
use crate::persist::tail::Tail;
use crate::rdb::libraries;
use crate::resp::reply::{Form, Reply};
use crate::resp::request::Decoder;
use crate::session::Peer;
use crate::spec::session_key::SessionKey;

/// A server without sockets that keeps its stream of effects.
struct Bench {
    engine: Engine,
    client: SessionKey,
    stream: Vec<u8>,
}

impl Bench {
    fn new() -> Bench {
        let clock = Clock::manual(1_000_000);
        let mut engine = Engine::new(Config::default(), command::table(), clock, Rng::seeded(1)).expect("memory");
        engine.server.set_tail(Some(Tail::default()));
        let client = engine.server.open_session(Peer::default());
        Bench { engine, client, stream: Vec::new() }
    }

    /// Runs one command and keeps its effects. Returns its reply.
    fn run<A: AsRef<[u8]>>(&mut self, args: &[A]) -> String {
        let mut request = format!("*{}\r\n", args.len()).into_bytes();
        for arg in args {
            let arg = arg.as_ref();
            request.extend_from_slice(format!("${}\r\n", arg.len()).as_bytes());
            request.extend_from_slice(arg);
            request.extend_from_slice(b"\r\n");
        }
        let mut reply = Reply::new(Form::Resp2);
        self.engine.feed(self.client, &mut Decoder::new(), &request, &mut reply);
        let tail = self.engine.server.persistence.tail.replace(Tail::default()).expect("it is kept");
        tail.units().for_each(|effects| self.stream.extend_from_slice(effects));
        reply.as_bytes().escape_ascii().to_string()
    }

    /// Runs a command given as words.
    fn line(&mut self, line: &str) -> String {
        self.run(&line.split(' ').collect::<Vec<_>>())
    }

    /// How many bytes of effects the commands in `run` record.
    fn recorded(&mut self, run: impl FnOnce(&mut Bench)) -> usize {
        let before = self.stream.len();
        run(self);
        self.stream.len() - before
    }
}

/// Replays a stream in an empty server, which must record the same stream.
fn replayed(stream: &[u8]) -> Bench {
    let mut copy = Bench::new();
    copy.engine.ks.begin_unit(1_000_000, Recording::Full);
    for (db, effect) in EffectReader::new(stream) {
        assert_eq!(copy.engine.apply(db, &effect), Ok(()), "{effect:?}");
    }
    assert!(copy.engine.ks.effects().iter().eq(EffectReader::new(stream)));
    copy
}

/// A client that imports keys with their old deadlines, and another that only watches.
fn importing() -> (Bench, SessionKey) {
    let mut bench = Bench::new();
    let onlooker = std::mem::replace(&mut bench.client, bench.engine.server.open_session(Peer::default()));
    assert_eq!(bench.line("CONFIG SET import-mode yes"), "+OK\\r\\n");
    assert_eq!(bench.line("CLIENT IMPORT-SOURCE ON"), "+OK\\r\\n");
    (bench, onlooker)
}

#[test]
fn a_restored_key_has_the_given_idle_time() {
    let mut bench = Bench::new();
    bench.line("SET k v");
    let payload = crate::rdb::dump(bench.engine.ks.live(0, b"k").expect("it is there").value());
    for (seconds, idle) in [("600", 600), ("0", 0), ("5000", 5_000)] {
        let words = [&b"RESTORE"[..], b"r", b"0", &payload, b"REPLACE", b"IDLETIME", seconds.as_bytes()];
        assert_eq!(bench.run(&words), "+OK\\r\\n");
        assert_eq!(bench.line("OBJECT IDLETIME r"), format!(":{idle}\\r\\n"));
    }
    bench.line("GET r");
    assert_eq!(bench.line("OBJECT IDLETIME r"), ":0\\r\\n");
}

#[test]
fn a_woken_call_counts_as_a_use_unless_its_own_client_says_otherwise() {
    for (waiter, waker, is_used) in [("off", "on", true), ("on", "off", false)] {
        let mut bench = Bench::new();
        bench.line("RPUSH destination a");
        let waking = std::mem::replace(&mut bench.client, bench.engine.server.open_session(Peer::default()));
        bench.line(&format!("CLIENT NO-TOUCH {waiter}"));
        bench.engine.server.time.clock.advance_ms(100_000);
        assert_eq!(bench.line("BLMOVE source destination LEFT LEFT 0"), "");
        bench.client = waking;
        bench.line(&format!("CLIENT NO-TOUCH {waker}"));
        assert_eq!(bench.line("RPUSH source b"), ":1\\r\\n");
        bench.line("CLIENT NO-TOUCH on");
        assert_eq!(bench.line("LLEN destination"), ":2\\r\\n");
        assert_eq!(bench.line("OBJECT IDLETIME destination") == ":0\\r\\n", is_used, "{waiter} {waker}");
    }
}

#[test]
fn nothing_expires_while_an_import_replays_the_past() {
    let mut bench = Bench::new();
    // The hash loses a field to the clock first, and its value remembers that.
    for line in ["HSET h f v g w", "HPEXPIRE h 1 FIELDS 1 f", "SET before v PX 10"] {
        assert!(!bench.line(line).starts_with('-'), "{line}");
    }
    bench.engine.server.time.clock.advance_ms(5);
    assert_eq!(bench.line("HLEN h"), ":1\\r\\n");
    assert_eq!(bench.line("CONFIG SET import-mode yes"), "+OK\\r\\n");
    assert_eq!(bench.line("CLIENT IMPORT-SOURCE ON"), "+OK\\r\\n");
    bench.engine.server.time.clock.advance_ms(1_000);
    for (line, reply) in [
        ("GET before", "$1\\r\\nv"),
        ("SET s v PXAT 500", "+OK"),
        ("APPEND s w", ":2"),
        ("PTTL s", ":0"),
        ("PEXPIREAT s 2000000", ":1"),
        ("SET gone v", "+OK"),
        ("EXPIREAT gone 1", ":1"),
        ("GETEX gone PXAT 1000", "$1\\r\\nv"),
        ("INCREX n PXAT 500", "*2\\r\\n:1\\r\\n:1"),
        ("HPEXPIREAT h 500 FIELDS 2 g g", "*2\\r\\n:1\\r\\n:1"),
        ("HPTTL h FIELDS 1 g", "*1\\r\\n:0"),
        ("HSETEX x PXAT 500 FIELDS 1 f v", ":1"),
        ("HGET x f", "$1\\r\\nv"),
        ("SADD m a b", ":2"),
        ("SPEXPIREAT m 500 MEMBERS 1 a", "*1\\r\\n:1"),
        ("SPEXPIREAT m 2000000 MEMBERS 1 a", "*1\\r\\n:1"),
        ("SPEXPIREAT m 500 MEMBERS 1 b", "*1\\r\\n:1"),
        ("SCARD m", ":2"),
    ] {
        assert_eq!(bench.line(line), format!("{reply}\\r\\n"), "{line}");
        bench.engine.tick();
    }
    let payload = crate::rdb::dump(bench.engine.ks.live(0, b"gone").expect("it is there").value());
    assert_eq!(bench.run(&[&b"RESTORE"[..], b"r", b"500", &payload, b"ABSTTL"]), "+OK\\r\\n");
    assert_eq!(bench.line("DBSIZE"), ":8\\r\\n");
    assert_eq!(bench.engine.ks.stats.expired, 0);
    let copy = replayed(&bench.stream);
    assert_eq!(copy.engine.ks.db(0).len(), 8, "a restart has them, too");
    assert_eq!(bench.line("CLIENT IMPORT-SOURCE OFF"), "+OK\\r\\n");
    // How many keys expire in one tick depends on the machine.
    for _ in 0..1000 {
        bench.engine.tick();
    }
    assert_eq!(bench.engine.ks.db(0).len(), 2);
    assert_eq!(bench.line("GET s"), "$2\\r\\nvw\\r\\n");
    assert_eq!(bench.line("SMEMBERS m"), "*1\\r\\n$1\\r\\na\\r\\n");
}

#[test]
fn an_imported_transaction_is_applied_completely_or_not_at_all() {
    let (mut bench, onlooker) = importing();
    let subscribe = |bench: &mut Bench, client, line| {
        let importer = std::mem::replace(&mut bench.client, client);
        let reply = bench.line(line);
        bench.client = importer;
        reply
    };
    subscribe(&mut bench, onlooker, "SUBSCRIBE news");
    let exec = |bench: &mut Bench, lines: &[&str]| {
        assert_eq!(bench.line("MULTI"), "+OK\\r\\n");
        lines.iter().for_each(|line| assert_eq!(bench.line(line), "+QUEUED\\r\\n", "{line}"));
        bench.line("EXEC")
    };
    let heard =
        |bench: &mut Bench| bench.engine.server.clients.sessions.get_mut(onlooker).expect("it is open").unsent_bytes();
    assert_eq!(exec(&mut bench, &["SET n 1", "SELECT 1", "INCR m", "SELECT 0"]).matches('+').count(), 3);
    let before = heard(&mut bench);
    let failing = ["INCR n", "PUBLISH news x", "DEL n", "SELECT 1", "FLUSHALL", "SET n x", "INCR n", "SET offset 7"];
    assert_eq!(
        exec(&mut bench, &failing),
        "-EXECABORT Transaction rolled back because of command 7: ERR value is not an integer or out of range\\r\\n"
    );
    assert_eq!(heard(&mut bench), before, "no message reports an undone change");
    assert_eq!(bench.line("MGET n offset"), "*2\\r\\n$1\\r\\n1\\r\\n$-1\\r\\n", "the client stays in its database");
    assert_eq!(replayed(&bench.stream).line("MGET n offset"), bench.line("MGET n offset"));
    assert_eq!(exec(&mut bench, &["INCR n", "PUBLISH news x"]), "*2\\r\\n:2\\r\\n:1\\r\\n");
    assert!(heard(&mut bench) > before);
    // The key would be in both places.
    let moves = ["MIGRATE 127.0.0.1 1 n 0 100", "LPUSH n x"];
    assert_eq!(
        exec(&mut bench, &moves),
        "-EXECABORT Transaction rolled back because of command 1: ERR MIGRATE without COPY is not allowed in a script \
         or transaction that may be rolled back\\r\\n"
    );
    assert!(exec(&mut bench, &["MIGRATE 127.0.0.1 1 n 0 100 COPY"]).contains("command 1: IOERR"));
    // Changes that can't be undone stay, as do those of other clients.
    assert!(exec(&mut bench, &["INCR n", "CONFIG RESETSTAT", "LPUSH n x"]).starts_with("*3\\r\\n:3\\r\\n"));
    assert_eq!(bench.line("CLIENT IMPORT-SOURCE OFF"), "+OK\\r\\n");
    assert!(exec(&mut bench, &["INCR n", "LPUSH n x"]).starts_with("*2\\r\\n:4\\r\\n-WRONGTYPE"));
}

#[test]
fn import_mode_decides_which_clients_may_hold_expiry() {
    let mut bench = Bench::new();
    let refused = "-ERR Server is not in import mode. CONFIG SET import-mode yes lets clients import\\r\\n";
    assert_eq!(bench.line("CLIENT IMPORT-SOURCE ON"), refused);
    assert_eq!(bench.line("CLIENT IMPORT-SOURCE OFF"), "+OK\\r\\n");
    assert!(bench.line("INFO clients").contains("importing_clients:0"));
    let (mut bench, onlooker) = importing();
    assert!(bench.line("INFO clients").contains("importing_clients:1"));
    assert_eq!(bench.line("SET k v PXAT 500"), "+OK\\r\\n");
    let importer = std::mem::replace(&mut bench.client, onlooker);
    assert_eq!(bench.line("CONFIG SET import-mode no"), "+OK\\r\\n");
    assert_eq!(bench.line("EXISTS k"), ":1\\r\\n", "an import that continues loses nothing");
    assert_eq!(bench.line("CLIENT IMPORT-SOURCE ON"), refused);
    bench.client = importer;
    assert_eq!(bench.line("CLIENT IMPORT-SOURCE OFF"), "+OK\\r\\n");
    assert_eq!(bench.line("EXISTS k"), ":0\\r\\n");
    // The command is not meant for applications.
    assert_eq!(bench.line("ACL SETUSER app on nopass +@all -@admin"), "+OK\\r\\n");
    assert!(bench.line("ACL DRYRUN app CLIENT IMPORT-SOURCE ON").contains("has no permissions"));
}

#[test]
fn expiry_resumes_however_an_importing_client_ends() {
    let ways: [fn(&mut Bench); 6] = [
        |bench| drop(bench.line("CLIENT IMPORT-SOURCE OFF")),
        |bench| drop(bench.line("RESET")),
        |bench| bench.engine.disconnect(bench.client),
        |bench| bench.engine.server.connections().kill(bench.client),
        // Closed for idling, or for not reading its replies.
        |bench| bench.engine.server.clients.sessions.get_mut(bench.client).expect("it is open").kill(),
        |bench| {
            drop(bench.line("QUIT"));
            bench.engine.disconnect(bench.client);
        },
    ];
    for (way, end) in ways.into_iter().enumerate() {
        let (mut bench, onlooker) = importing();
        assert_eq!(bench.line("CLIENT IMPORT-SOURCE ON"), "+OK\\r\\n", "twice is once");
        assert_eq!(bench.line("SET k v PXAT 500"), "+OK\\r\\n");
        let importer = std::mem::replace(&mut bench.client, onlooker);
        assert_eq!(bench.line("EXISTS k"), ":1\\r\\n", "every client sees the key");
        assert_eq!(bench.line("CLIENT IMPORT-SOURCE ON"), "+OK\\r\\n");
        bench.client = importer;
        end(&mut bench);
        bench.engine.tick();
        assert_eq!(bench.engine.ks.db(0).len(), 1, "another importing client continues: {way}");
        bench.client = onlooker;
        assert_eq!(bench.line("CLIENT IMPORT-SOURCE OFF"), "+OK\\r\\n");
        assert_eq!(bench.line("EXISTS k"), ":0\\r\\n", "{way}");

        let (mut bench, _) = importing();
        assert_eq!(bench.line("SET k v PXAT 500"), "+OK\\r\\n");
        bench.engine.tick();
        end(&mut bench);
        bench.engine.tick();
        assert_eq!(bench.engine.ks.db(0).len(), 0, "{way}");
    }
}

const SET: &str = "return redis.call('set', KEYS[1], ARGV[1])";
const FAILS: &str = "redis.call('set', KEYS[1], 'x') return redis.call('nosuch')";
const LOADED: &str = "#!lua flags=no-writes\nreturn redis.call('get', KEYS[1])";
const FLUSHED: &str = "return 'flushed'";
const EVICTED: &str = "return 'evicted'";

fn library(name: &str, function: &str, answer: i64) -> String {
    format!("#!lua name={name}\nredis.register_function('{function}', function() return {answer} end)")
}

/// The keys, scripts and functions that a client can see.
fn seen(bench: &mut Bench) -> Vec<String> {
    let mut seen = vec![bench.line("DBSIZE"), bench.line("MGET a b s")];
    for body in [SET, FAILS, LOADED, FLUSHED, EVICTED, "return nonsense("] {
        let sha = crate::script::store::sha1_hex(body.as_bytes());
        seen.push(bench.run(&[&b"SCRIPT"[..], b"EXISTS", &sha]));
        seen.push(bench.run(&[&b"EVALSHA_RO"[..], &sha, b"1", b"a"]));
    }
    seen.push(bench.line("FUNCTION LIST WITHCODE"));
    seen.extend(["f", "g", "h", "gone"].map(|function| bench.line(&format!("FCALL {function} 0"))));
    seen
}

#[test]
fn scripts_and_libraries_are_as_durable_as_data() {
    let mut bench = Bench::new();
    let set = |bench: &mut Bench, key: &str| bench.run(&["EVAL", SET, "1", key, "v"]);
    bench.run(&["EVAL", FLUSHED, "0"]);
    bench.line("SCRIPT FLUSH");
    set(&mut bench, "a");
    bench.run(&["EVAL", FAILS, "1", "b"]);
    bench.run(&["SCRIPT", "LOAD", LOADED]);
    bench.run(&["EVAL", "return nonsense(", "0"]);
    bench.run(&["FUNCTION", "LOAD", &library("one", "f", 1)]);
    bench.run(&["FUNCTION", "LOAD", &library("one", "taken", 1)]);
    bench.run(&["FUNCTION", "LOAD", &library("gone", "gone", 1)]);
    bench.line("FUNCTION FLUSH");
    bench.run(&["FUNCTION", "LOAD", &library("one", "f", 2)]);
    bench.run(&["FUNCTION", "LOAD", &library("two", "g", 3)]);
    bench.run(&["FUNCTION", "LOAD", "REPLACE", &library("one", "f", 4)]);
    bench.run(&["FUNCTION", "LOAD", &library("gone", "gone", 1)]);
    bench.line("FUNCTION DELETE gone");
    // Libraries one and two swap functions, which loading them one after the other could not do.
    let texts = [library("one", "g", 5), library("two", "f", 6), library("three", "h", 7)];
    let payload = libraries::dump(texts.iter().map(String::as_bytes));
    bench.run(&[&b"FUNCTION"[..], b"RESTORE", &payload, b"REPLACE"]);
    assert_eq!(bench.line("FCALL f 0"), ":6\\r\\n");

    // Eviction is an effect of its own, for a copy can't know when to evict.
    bench.run(&["EVAL", EVICTED, "0"]);
    bench.line("CONFIG SET script-cache-max-bytes 0");
    set(&mut bench, "s");

    let mut copy = replayed(&bench.stream);
    let of_original = seen(&mut bench);
    assert_eq!(seen(&mut copy), of_original);
    assert!(of_original.iter().any(|reply| reply == ":7\\r\\n"), "{of_original:?}");
    // Scripts from SCRIPT LOAD stay in the copy as well; those from EVAL may go.
    for server in [&mut bench, &mut copy] {
        server.line("CONFIG SET script-cache-max-bytes 0");
        server.run(&["EVAL", "return 'the last one'", "0"]);
    }
    assert_eq!(seen(&mut copy), seen(&mut bench));
}

#[test]
fn programs_that_are_already_loaded_record_nothing() {
    let mut bench = Bench::new();
    let text = library("one", "f", 1);
    let mut first = |args: &[&str]| bench.recorded(|bench| drop(bench.run(args)));
    assert!(first(&["EVAL", "return 1", "0"]) > 8);
    assert_eq!(first(&["EVAL", "return 1", "0"]), 0);
    assert!(first(&["SCRIPT", "LOAD", "return 1"]) > 8, "the script now stays longer");
    assert_eq!(first(&["SCRIPT", "LOAD", "return 1"]), 0);
    assert_eq!(first(&["EVAL", "return 1", "0"]), 0);
    assert_eq!(first(&["EVAL", "return nonsense(", "0"]), 0);
    assert!(first(&["EVAL_RO", "#!lua\nreturn 1", "0"]) > 8, "the script is kept, although it is refused to run");
    assert!(first(&["FUNCTION", "LOAD", &text]) > text.len());
    assert_eq!(first(&["FUNCTION", "LOAD", &text]), 0);
    assert_eq!(first(&["FCALL", "f", "0"]), 0);
    assert_eq!(first(&["FUNCTION", "DELETE", "two"]), 0);
    let bundled = crate::script::bundled::BUNDLED[0].body;
    assert_eq!(first(&["SCRIPT", "LOAD", bundled]), 0, "bundled scripts are not recorded");
    assert_eq!(first(&["SCRIPT", "FLUSH"]), 2);
    assert_eq!(first(&["SCRIPT", "FLUSH"]), 0);
    assert_eq!(first(&["FUNCTION", "FLUSH"]), 2);
    assert_eq!(first(&["FUNCTION", "FLUSH"]), 0);
}

#[test]
fn a_client_that_does_not_read_is_closed_if_others_wait_for_room() {
    let mut bench = Bench::new();
    bench.line("SETRANGE large 60000000 x");
    let get = b"GET large\r\n";
    // As a connection does whose socket accepts no bytes.
    let ask = |bench: &mut Bench, client| {
        let mut reply = Reply::new(Form::Resp2);
        bench.engine.feed(client, &mut Decoder::new(), get, &mut reply);
        let session = bench.engine.server.clients.sessions.get_mut(client).expect("it is open");
        session.reply(&mut reply);
        bench.engine.server.clients.count_unsent(&mut bench.engine.server.meters.stats, client);
    };
    let clients = [(); 7].map(|()| bench.engine.server.open_session(Peer::default()));
    clients.iter().for_each(|client| ask(&mut bench, *client));
    let held = |bench: &mut Bench| {
        clients.map(|client| {
            bench.engine.server.clients.sessions.get_mut(client).map_or(0, |session| session.unsent_bytes())
        })
    };
    let waits = |bench: &mut Bench| {
        clients.map(|client| {
            bench.engine.server.clients.sessions.get_mut(client).is_some_and(|session| session.waits_for_room())
        })
    };
    assert!(held(&mut bench)[..5].iter().all(|bytes| *bytes > 60_000_000));
    assert_eq!(held(&mut bench)[5..], [0, 0]);
    assert_eq!(waits(&mut bench), [false, false, false, false, false, true, true]);
    assert_eq!(bench.line("PING"), "+PONG\\r\\n", "short replies are still sent");
    let killed = |bench: &mut Bench| {
        clients
            .iter()
            .filter(|client| bench.engine.server.clients.sessions.get_mut(**client).is_some_and(|s| s.is_killed()))
            .count()
    };
    for (ms, expected) in [(4_000, 0), (2_000, 1), (4_000, 1)] {
        bench.engine.server.time.clock.advance_ms(ms);
        bench.engine.tick();
        assert_eq!(killed(&mut bench), expected);
    }
    // The connection of one client ends, which makes room.
    let gone = clients
        .iter()
        .copied()
        .find(|client| bench.engine.server.clients.sessions.get_mut(*client).is_some_and(|s| s.is_killed()));
    bench.engine.disconnect(gone.expect("one was closed"));
    assert_eq!(waits(&mut bench), [false; 7]);
    ask(&mut bench, clients[5]);
    assert!(held(&mut bench)[5] > 60_000_000);
}
