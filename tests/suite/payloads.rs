//! DUMP, RESTORE and MIGRATE between this server and Redis 7.0: every value means the same on both sides, and gets the
//! representation that the receiving server would have given it. Libraries of functions move by FUNCTION DUMP and
//! RESTORE.

use std::io::Write;

use crate::differential::unordered;
use crate::harness::{Program, Raw, Server, Value, encode, sorted};
use crate::oracle::REDIS_SERVER;

/// Commands that make the key `KEY` of each kind and size.
fn samples() -> Vec<(&'static str, Vec<Vec<String>>)> {
    let line = |text: &str| vec![text.split(' ').map(str::to_owned).collect::<Vec<String>>()];
    let many = |head: &str, count: usize, item: &dyn Fn(usize) -> Vec<String>| {
        let mut command: Vec<String> = head.split(' ').map(str::to_owned).collect();
        (0..count).for_each(|at| command.extend(item(at)));
        vec![command]
    };
    let word = |at: usize| vec![format!("word-{}", at * 7919)];
    let mut samples = vec![
        ("text", line("SET KEY text")),
        ("empty text", vec![vec!["SET".into(), "KEY".into(), String::new()]]),
        ("small number", line("SET KEY -12")),
        ("number", line("SET KEY 70000")),
        ("large number", line("SET KEY -9000000000")),
        ("repetitive text", vec![vec!["SET".into(), "KEY".into(), "abcabcd".repeat(20_000)]]),
        ("appended text", [line("SET KEY 1"), line("APPEND KEY 2")].concat()),
        ("list", line("RPUSH KEY a 1 -1 100000 text")),
        ("long list", many("RPUSH KEY", 3000, &|at| vec![format!("element {at}")])),
        ("list of numbers", many("RPUSH KEY", 3000, &|at| vec![(at * at * at).to_string()])),
        ("list of large elements", many("RPUSH KEY", 5, &|at| vec!["xy".repeat(at * 10_000)])),
        ("integers", line("SADD KEY 1 -2 300000")),
        ("many integers", many("SADD KEY", 3000, &|at| vec![(at << 20).to_string()])),
        ("set", line("SADD KEY a b 12")),
        ("large set", many("SADD KEY", 3000, &word)),
        ("sorted set", line("ZADD KEY 1.5 a -2 b inf c -inf d 0 e")),
        ("sorted set with a long member", many("ZADD KEY", 3, &|at| vec!["1".into(), "m".repeat(at * 100)])),
        ("large sorted set", many("ZADD KEY", 3000, &|at| vec![(at / 2).to_string(), format!("m{at}")])),
        ("hash", line("HSET KEY f v g 12 h -5000 i 70000 j 8589934592")),
        ("hash with a long value", many("HSET KEY", 3, &|at| vec![at.to_string(), "v".repeat(at * 100)])),
        ("large hash", many("HSET KEY", 3000, &|at| vec![format!("field {at}"), at.to_string()])),
        ("stream", [line("XADD KEY 5-1 f v g w"), line("XADD KEY 5-2 f 1 g 2"), line("XADD KEY 6-0 other x")].concat()),
        ("stream without entries", [line("XADD KEY 5-1 f v"), line("XDEL KEY 5-1")].concat()),
    ];
    let mut stream: Vec<Vec<String>> =
        (1..1500).flat_map(|at| line(&format!("XADD KEY {}-{} user {at} order {}", at / 3 + 1, at, at * 31))).collect();
    for text in [
        "XDEL KEY 10-29 20-59",
        "XTRIM KEY MINID 5",
        "XGROUP CREATE KEY none 0",
        "XGROUP CREATE KEY group 7",
        "XREADGROUP GROUP group ann COUNT 5 STREAMS KEY >",
        "XREADGROUP GROUP group bob COUNT 3 STREAMS KEY >",
        "XREADGROUP GROUP group bob COUNT 3 STREAMS KEY 0",
        "XACK KEY group 8-22",
        "XGROUP CREATECONSUMER KEY group idle",
        "XSETID KEY 9999-5",
    ] {
        stream.extend(line(text));
    }
    samples.push(("stream with groups", stream));
    samples
}

fn fill(raw: &mut Raw, key: &str, commands: &[Vec<String>]) {
    for command in commands {
        let command: Vec<&str> = command.iter().map(|word| if word == "KEY" { key } else { word }).collect();
        let reply = raw.command(&command);
        assert!(!matches!(reply, Value::Error(_)), "{:?}: {reply:?}", &command[..2]);
    }
}

fn text(value: &Value) -> String {
    String::from_utf8_lossy(value.bytes().unwrap_or_default()).into_owned()
}

fn elements(value: Value) -> Vec<Value> {
    match value {
        Value::Array(elements) => elements,
        other => panic!("not an array: {other:?}"),
    }
}

/// Everything that a client can read of a key, except the times of consumers.
fn content(raw: &mut Raw, key: &str) -> Vec<Value> {
    let kind = raw.command(&["TYPE", key]);
    let mut content = match text(&kind).as_str() {
        "string" => vec![raw.command(&["GET", key])],
        "list" => elements(raw.command(&["LRANGE", key, "0", "-1"])),
        "set" => sorted(elements(raw.command(&["SMEMBERS", key]))),
        "zset" => elements(raw.command(&["ZRANGE", key, "0", "-1", "WITHSCORES"])),
        "hash" => {
            let flat = elements(raw.command(&["HGETALL", key]));
            sorted(flat.chunks(2).map(|pair| Value::Array(pair.to_vec())).collect())
        }
        "stream" => stream_content(raw, key),
        other => panic!("{key} holds {other}"),
    };
    content.push(kind);
    content
}

fn stream_content(raw: &mut Raw, key: &str) -> Vec<Value> {
    let mut content = elements(raw.command(&["XRANGE", key, "-", "+"]));
    let info = elements(raw.command(&["XINFO", "STREAM", key]));
    // The fields that Redis 7.0 reports, except the sizes of its own structures.
    let told = [
        "length",
        "last-generated-id",
        "max-deleted-entry-id",
        "entries-added",
        "recorded-first-entry-id",
        "groups",
        "first-entry",
        "last-entry",
    ];
    for pair in info.chunks(2).filter(|pair| told.contains(&&*text(&pair[0]))) {
        content.push(Value::Array(pair.to_vec()));
    }
    for group in elements(raw.command(&["XINFO", "GROUPS", key])) {
        let group = elements(group);
        let name = text(&group[1]);
        content.push(Value::Array(group[..12].to_vec()));
        for consumer in elements(raw.command(&["XINFO", "CONSUMERS", key, &name])) {
            content.push(Value::Array(elements(consumer)[..4].to_vec()));
        }
        for pending in elements(raw.command(&["XPENDING", key, &name, "-", "+", "1000"])) {
            let pending = elements(pending);
            content.push(Value::Array(vec![pending[0].clone(), pending[1].clone(), pending[3].clone()]));
        }
    }
    content
}

#[test]
fn debug_object_reports_the_size_of_the_payload() {
    let server = Server::start(Program::Tidegate, &["--enable-debug-command", "yes"]);
    let mut raw = server.raw();
    for (what, commands) in samples() {
        raw.command(&["DEL", "a"]);
        fill(&mut raw, "a", &commands);
        let told = text(&raw.command(&["DEBUG", "OBJECT", "a"]));
        let size = told.split_whitespace().find_map(|word| word.strip_prefix("serializedlength:")?.parse().ok());
        // The type precedes it; a version of two bytes and a checksum of eight follow it.
        let payload = raw.command(&["DUMP", "a"]).bytes().map_or(0, <[u8]>::len);
        assert_eq!(size, Some(payload - 11), "{what}: {told}");
    }
}

/// A value dumped by one program means the same to the other.
fn carry(from: Program, to: Program) {
    let (from, to) = (Server::start(from, &[]), Server::start(to, &[]));
    let (mut from, mut to) = (from.raw(), to.raw());
    for (what, commands) in samples() {
        fill(&mut from, "a", &commands);
        fill(&mut to, "native", &commands);
        let payload = from.command(&["DUMP", "a"]);
        let payload = payload.bytes().expect("the key is there");
        assert_eq!(to.command(&[&b"RESTORE"[..], b"a", b"0", payload]), Value::status("OK"), "{what}");
        assert_eq!(content(&mut to, "a"), content(&mut from, "a"), "{what}");
        let (encoding, native) =
            (to.command(&["OBJECT", "ENCODING", "a"]), to.command(&["OBJECT", "ENCODING", "native"]));
        // A number that was appended to stays text until it is stored anew.
        if what != "appended text" {
            assert_eq!(encoding, native, "{what}");
        }
        // The restored value can also be dumped there and restored at its origin.
        let again = to.command(&["DUMP", "a"]);
        let again = again.bytes().expect("it was just restored");
        assert_eq!(from.command(&[&b"RESTORE"[..], b"back", b"0", again]), Value::status("OK"), "{what}");
        assert_eq!(content(&mut from, "back"), content(&mut from, "a"), "{what}");
        from.command(&["FLUSHALL"]);
        to.command(&["FLUSHALL"]);
    }
}

#[test]
fn redis_restores_payloads_of_this_server() {
    if REDIS_SERVER.is_missing() {
        return;
    }
    carry(Program::Tidegate, Program::Redis);
}

#[test]
fn this_server_restores_payloads_of_redis() {
    if REDIS_SERVER.is_missing() {
        return;
    }
    carry(Program::Redis, Program::Tidegate);
}

#[test]
fn dumps_can_be_restored_on_the_same_server() {
    carry(Program::Tidegate, Program::Tidegate);
}

/// Payloads of versions before Redis 7, written by hand, mean the same to both.
#[test]
fn older_representations_mean_the_same() {
    if REDIS_SERVER.is_missing() {
        return;
    }
    let (ours, theirs) = (Server::start(Program::Tidegate, &[]), Server::start(Program::Redis, &[]));
    let (mut ours, mut theirs) = (ours.raw(), theirs.raw());
    let ziplist = b"\x18\x18\0\0\0\x13\0\0\0\x04\0\0\x02ab\x04\xfe\x80\x03\xf1\x02\xc0\x2c\x01\xff";
    let quicklist = [b"\x02", &ziplist[..], ziplist].concat();
    // One listpack with one entry; then its counters, and a group of the first version with one delivery.
    let listpack =
        b"\x1d\x1d\0\0\0\x0a\0\x01\x01\0\x01\x01\x01\x81f\x02\0\x01\x02\x01\0\x01\0\x01\x81v\x02\x04\x01\xff";
    let mut stream = b"\x01\x10\0\0\0\0\0\0\0\x05\0\0\0\0\0\0\0\x01".to_vec();
    stream.extend_from_slice(listpack);
    stream.extend_from_slice(b"\x01\x05\x01\x01\x01g\x05\x01\x01\0\0\0\0\0\0\0\x05\0\0\0\0\0\0\0\x01");
    stream.extend_from_slice(
        b"\x0a\0\0\0\0\0\0\0\x02\x01\x01c\x0b\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0\x05\0\0\0\0\0\0\0\x01",
    );
    let cases: [(u8, &[u8]); 10] = [
        (1, b"\x02\x01a\xc0\x05"),
        (2, b"\x02\x01a\xc0\x05"),
        (3, b"\x03\x01a\x031.5\x01b\xff\x01c\xfe"),
        (4, b"\x01\x01a\xc0\x05"),
        (9, b"\x0e\x02\x01f\x01\0v\x01g\x02\x01xx_\xff"),
        (10, ziplist),
        (12, ziplist),
        (13, ziplist),
        (14, &quicklist),
        (15, &stream),
    ];
    for (code, body) in cases {
        let mut payload = [&[code], body].concat();
        tidegate::rdb::seal(&mut payload, tidegate::rdb::VERSION);
        for server in [&mut ours, &mut theirs] {
            assert_eq!(
                server.command(&[&b"RESTORE"[..], b"k", b"0", &payload[..], b"REPLACE"]),
                Value::status("OK"),
                "{code}"
            );
        }
        assert_eq!(content(&mut ours, "k"), content(&mut theirs, "k"), "{code}");
    }
}

/// Libraries move with all details of their functions: short texts, texts that Redis compresses, and texts that it
/// cannot.
fn carry_libraries(from: Program, to: Program) {
    let (from, to) = (Server::start(from, &[]), Server::start(to, &[]));
    let (mut from, mut to) = (from.raw(), to.raw());
    let noise: String = (0u64..5_000).map(|n| format!("{:x}", n.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 40)).collect();
    for (at, filler) in [String::new(), "a comment ".repeat(2_000), noise].iter().enumerate() {
        let code = format!(
            "#!lua name=lib{at}\nredis.register_function{{function_name='f{at}', description='says {at}', \
             flags={{'no-writes', 'allow-stale'}}, \
             callback=function(keys, args) return {{{at}, args[1]}} end}} --{filler}"
        );
        assert_eq!(from.command(&["FUNCTION", "LOAD", &code]), Value::bulk(&format!("lib{at}")));
    }
    let payload = from.command(&["FUNCTION", "DUMP"]);
    let payload = payload.bytes().expect("a payload is a string");
    assert_eq!(to.command(&[&b"FUNCTION"[..], b"RESTORE", payload]), Value::status("OK"));
    let listed = |raw: &mut Raw| unordered(&raw.command(&["FUNCTION", "LIST", "WITHCODE"]));
    assert_eq!(listed(&mut to), listed(&mut from));
    for at in 0..3 {
        let answer = Value::Array(vec![Value::Integer(at), Value::bulk("x")]);
        assert_eq!(to.command(&["FCALL_RO", &format!("F{at}"), "0", "x"]), answer);
    }
    // And back, over the libraries that exist.
    let again = to.command(&["FUNCTION", "DUMP"]);
    let again = again.bytes().expect("a payload is a string");
    let taken = text(&from.command(&[&b"FUNCTION"[..], b"RESTORE", again]));
    assert!(taken.starts_with("ERR Library lib") && taken.ends_with(" already exists"), "{taken}");
    for policy in [&b"REPLACE"[..], b"FLUSH"] {
        assert_eq!(from.command(&[&b"FUNCTION"[..], b"RESTORE", again, policy]), Value::status("OK"));
        assert_eq!(listed(&mut from), listed(&mut to));
    }
}

#[test]
fn redis_reads_libraries_of_this_server() {
    if REDIS_SERVER.is_missing() {
        return;
    }
    carry_libraries(Program::Tidegate, Program::Redis);
}

#[test]
fn libraries_of_redis_are_read() {
    if REDIS_SERVER.is_missing() {
        return;
    }
    carry_libraries(Program::Redis, Program::Tidegate);
}

fn migrate(raw: &mut Raw, to: &Server, rest: &[&str]) -> Value {
    let port = to.port().to_string();
    let words = ["MIGRATE", "127.0.0.1", &port];
    raw.command(&[&words, rest].concat())
}

/// Keys move with their lifetimes; values that cannot move stay.
fn move_keys(from: Program, to: Program) {
    let (source, target) = (Server::start(from, &[]), Server::start(to, &["--requirepass", "secret"]));
    let (mut from, mut to) = (source.raw(), target.raw());
    to.command(&["AUTH", "secret"]);
    fill(&mut from, "KEY", &[vec!["SET".into(), "a".into(), "1".into(), "EX".into(), "1000".into()]]);
    from.command(&["RPUSH", "b", "x", "y"]);
    from.command(&["SET", "c", "3"]);
    assert_eq!(migrate(&mut from, &target, &["nosuch", "0", "5000"]), Value::status("NOKEY"));
    let refused = migrate(&mut from, &target, &["a", "0", "5000"]);
    assert!(text(&refused).starts_with("ERR Target instance replied with error: NOAUTH "), "{refused:?}");
    let refused = migrate(&mut from, &target, &["a", "0", "5000", "AUTH", "wrong"]);
    assert!(text(&refused).starts_with("ERR Target instance replied with error: WRONGPASS "), "{refused:?}");
    let refused = migrate(&mut from, &target, &["a", "99", "5000", "AUTH", "secret"]);
    let expected = Value::error("ERR Target instance replied with error: ERR DB index is out of range");
    assert_eq!(refused, expected);
    assert_eq!(from.command(&["EXISTS", "a", "b", "c"]), Value::Integer(3), "no key has moved");
    // One by one, as a copy, into another database.
    let auth = ["AUTH", "secret"];
    assert_eq!(migrate(&mut from, &target, &[&["a", "3", "5000", "COPY"][..], &auth].concat()), Value::status("OK"));
    assert_eq!(from.command(&["EXISTS", "a"]), Value::Integer(1));
    let busy = migrate(&mut from, &target, &[&["a", "3", "5000"][..], &auth].concat());
    let expected = "ERR Target instance replied with error: BUSYKEY Target key name already exists.";
    assert_eq!(busy, Value::error(expected));
    assert_eq!(from.command(&["EXISTS", "a"]), Value::Integer(1));
    // Several at once, one of them missing.
    let auth2 = ["AUTH2", "default", "secret"];
    let words = [&["", "3", "5000", "REPLACE"][..], &auth2, &["KEYS", "a", "nosuch", "b", "c"]].concat();
    assert_eq!(migrate(&mut from, &target, &words), Value::status("OK"));
    assert_eq!(from.command(&["DBSIZE"]), Value::Integer(0));
    to.command(&["SELECT", "3"]);
    assert_eq!(to.command(&["MGET", "a", "c"]), Value::Array(vec![Value::bulk("1"), Value::bulk("3")]));
    assert_eq!(to.command(&["LRANGE", "b", "0", "-1"]), Value::Array(vec![Value::bulk("x"), Value::bulk("y")]));
    assert_eq!(to.command(&["TTL", "c"]), Value::Integer(-1));
    let Value::Integer(seconds) = to.command(&["TTL", "a"]) else { panic!("TTL answers an integer") };
    assert!((900..=1000).contains(&seconds), "{seconds}");
    // The target no longer listens.
    from.command(&["SET", "d", "4"]);
    let port = target.port();
    drop((to, target));
    let refused = from.command(&["MIGRATE", "127.0.0.1", &port.to_string(), "d", "0", "5000"]);
    assert!(text(&refused).starts_with("IOERR error or timeout "), "{refused:?}");
    assert_eq!(from.command(&["EXISTS", "d"]), Value::Integer(1));
}

#[test]
fn keys_move_to_redis() {
    if REDIS_SERVER.is_missing() {
        return;
    }
    move_keys(Program::Tidegate, Program::Redis);
}

#[test]
fn keys_move_from_redis() {
    if REDIS_SERVER.is_missing() {
        return;
    }
    move_keys(Program::Redis, Program::Tidegate);
}

#[test]
fn keys_move_between_these_servers() {
    move_keys(Program::Tidegate, Program::Tidegate);
}

#[test]
fn a_target_that_never_replies_times_out() {
    let server = Server::start(Program::Tidegate, &[]);
    let mut raw = server.raw();
    let silent = std::net::TcpListener::bind(("127.0.0.1", 0)).expect("a free port");
    let port = silent.local_addr().expect("it is bound").port().to_string();
    raw.command(&["SET", "a", "1"]);
    let expected = Value::error("IOERR error or timeout reading to target instance");
    assert_eq!(raw.command(&["MIGRATE", "127.0.0.1", &port, "a", "0", "50"]), expected);
    assert_eq!(raw.command(&["GET", "a"]), Value::bulk("1"));
}

/// A reply whose every byte comes in time but which never ends.
#[test]
fn a_target_that_replies_byte_by_byte_times_out() {
    let server = Server::start(Program::Tidegate, &[]);
    let mut raw = server.raw();
    let slow = std::net::TcpListener::bind(("127.0.0.1", 0)).expect("a free port");
    let port = slow.local_addr().expect("it is bound").port().to_string();
    let peer = std::thread::spawn(move || {
        let (mut stream, _) = slow.accept().expect("the server connects");
        // Half a minute, or until the reader hangs up.
        (0..3_000)
            .take_while(|_| {
                std::thread::sleep(std::time::Duration::from_millis(10));
                stream.write_all(b"x").is_ok()
            })
            .count()
    });
    raw.command(&["SET", "a", "1"]);
    let expected = Value::error("IOERR error or timeout reading to target instance");
    assert_eq!(raw.command(&["MIGRATE", "127.0.0.1", &port, "a", "0", "50"]), expected);
    assert!(peer.join().expect("the peer only writes") < 2_000, "the server listened on");
}

/// With thousands of fields that expired together, most of them still stored, a draw does not walk over them all.
#[test]
fn random_draws_among_many_expired_fields_are_fast() {
    let server = Server::start(Program::Tidegate, &[]);
    let mut raw = server.raw();
    // A hash with fields that expire: the earliest time, fields, (time + 1 - earliest, field, value)*.
    let expired = 16_000u16;
    let mut payload = [&[24][..], &1u64.to_le_bytes(), &(0x4000 | (expired + 1)).to_be_bytes()].concat();
    for at in 0..expired {
        payload.extend_from_slice(format!("\x01\x05{at:05}\x01v").as_bytes());
        if at == expired / 2 {
            payload.extend_from_slice(b"\x00\x05lives\x01v");
        }
    }
    tidegate::rdb::seal(&mut payload, tidegate::rdb::VERSION);
    let begun = std::time::Instant::now();
    raw.command(&["MULTI"]);
    raw.command(&[&b"RESTORE"[..], b"h", b"0", &payload]);
    raw.command(&["HRANDFIELD", "h", "-20000"]);
    let replies = elements(raw.command(&["EXEC"]));
    assert_eq!(elements(replies[1].clone()), vec![Value::bulk("lives"); 20_000]);
    assert!(begun.elapsed().as_secs() < 20, "{:?}", begun.elapsed());
}

#[test]
fn a_wrong_checksum_can_be_ignored_on_request() {
    let server = Server::start(Program::Tidegate, &["--enable-debug-command", "yes"]);
    let mut raw = server.raw();
    raw.command(&["SET", "key", "value"]);
    let dumped = raw.command(&["DUMP", "key"]);
    let mut payload = dumped.bytes().expect("a payload").to_vec();
    *payload.last_mut().expect("a checksum") ^= 1;
    let restore = |raw: &mut Raw, payload: &[u8]| {
        raw.send(&encode(&[&b"RESTORE"[..], b"copy", b"0", payload, b"REPLACE"]));
        raw.reply().value
    };
    let refused = Value::error("ERR DUMP payload version or checksum are wrong");
    assert_eq!(restore(&mut raw, &payload), refused);
    assert_eq!(raw.command(&["DEBUG", "SET-SKIP-CHECKSUM-VALIDATION", "1"]), Value::status("OK"));
    assert_eq!(restore(&mut raw, &payload), Value::status("OK"));
    assert_eq!(raw.command(&["GET", "copy"]), Value::bulk("value"));
    // The bytes behind it are still checked.
    payload[0] = 200;
    assert_eq!(restore(&mut raw, &payload), Value::error("ERR Bad data format"));
    assert_eq!(restore(&mut raw, b"short"), refused);
    assert_eq!(raw.command(&["DEBUG", "SET-SKIP-CHECKSUM-VALIDATION", "0"]), Value::status("OK"));
    assert_eq!(restore(&mut raw, &payload), refused);
}
