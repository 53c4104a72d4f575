//! The wire protocol's promises to clients, and hostile input.
//!
//! The same tests run against the server under test and against Redis (`on_both!`), so an expectation that Redis itself
//! does not meet has no place here. After every attack [`serves_others`] asks as another client.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use crate::crowd::on_both;
use crate::differential::generate::Dice;
use crate::harness::{Program, Raw, Server, Value, encode};

on_both!(
    refuses_broken_frames,
    limits_apply_before_authentication,
    ignores_empty_requests,
    reads_inline_commands,
    answers_commands_that_precede_a_protocol_error,
    reads_a_pipeline_cut_anywhere,
    survives_deep_nesting,
    ends_endless_lines,
    declared_lengths_reserve_no_memory,
    keeps_replies_in_order,
    keeps_large_replies_in_order,
    carries_any_bytes,
    sanitises_error_texts,
    hangs_up_on_http,
    survives_a_client_that_never_reads,
    holds_thousands_of_idle_connections,
    survives_random_bytes,
    talks_to_the_redis_crate,
);

/// Asserts that a fresh connection gets a correct reply soon.
fn serves_others(server: &Server) {
    let mut other = server.raw();
    let begun = Instant::now();
    assert_eq!(other.command(&["ECHO", "still here"]), Value::bulk("still here"));
    let took = begun.elapsed();
    assert!(took < Duration::from_secs(5), "another client waited {took:?}");
}

/// Sends `bytes` on a connection of its own and asserts that `expected` is all that comes back before the server closes
/// it.
fn closes_with(server: &Server, bytes: &[u8], expected: &str) {
    let mut raw = server.raw();
    raw.send(bytes);
    let answer = raw.read_to_end();
    let shown = &bytes[..bytes.len().min(60)];
    assert_eq!(
        answer.escape_ascii().to_string(),
        expected.as_bytes().escape_ascii().to_string(),
        "after \"{}\"",
        shown.escape_ascii()
    );
}

fn refuses_broken_frames(program: Program) {
    let server = Server::start(program, &[]);
    let multibulk = "-ERR Protocol error: invalid multibulk length\r\n";
    let bulk = "-ERR Protocol error: invalid bulk length\r\n";
    for bytes in [
        "*x\r\n",
        "*\r\n",
        "*1 \r\n",
        "*+1\r\n",
        "*01\r\n",
        "*1.0\r\n",
        "*2147483648\r\n",
        "*4294967297\r\n",
        "*9223372036854775807\r\n",
        "*9223372036854775808\r\n",
        "*99999999999999999999\r\n",
        "*-99999999999999999999\r\n",
    ] {
        closes_with(&server, bytes.as_bytes(), multibulk);
    }
    for bytes in [
        "*1\r\n$x\r\n",
        "*1\r\n$\r\n",
        "*1\r\n$-1\r\n",
        "*1\r\n$-2147483649\r\n",
        "*1\r\n$04\r\nPING\r\n",
        "*1\r\n$536870913\r\n",
        "*1\r\n$2147483648\r\n",
        "*1\r\n$4294967300\r\nPING\r\n",
        "*1\r\n$9223372036854775808\r\n",
        "*2\r\n$4\r\nPING\r\n$99999999999999999999\r\n",
    ] {
        closes_with(&server, bytes.as_bytes(), bulk);
    }
    for (bytes, seen) in [
        ("*1\r\nx\r\n", "x"),
        ("*1\r\n:1\r\n", ":"),
        ("*1\r\n*1\r\n", "*"),
        ("*1048577\r\nPING\r\n", "P"),
        ("*1\r\n\r\n", " "),
        ("*2\r\n$4\r\nECHO\r\n+x\r\n", "+"),
    ] {
        closes_with(&server, bytes.as_bytes(), &format!("-ERR Protocol error: expected '$', got '{seen}'\r\n"));
    }
    for bytes in ["PING 'x\r\n", "PING \"x\r\n", "PING \"x\"y\r\n", "PING 'x'y\r\n", "\"\r\n", "PING \"\\\"\r\n"] {
        closes_with(&server, bytes.as_bytes(), "-ERR Protocol error: unbalanced quotes in request\r\n");
    }
    serves_others(&server);
}

fn limits_apply_before_authentication(program: Program) {
    let server = Server::start(program, &["--requirepass", "secret"]);
    closes_with(&server, b"*11\r\n", "-ERR Protocol error: unauthenticated multibulk length\r\n");
    closes_with(&server, b"*2\r\n$4\r\nAUTH\r\n$16385\r\n", "-ERR Protocol error: unauthenticated bulk length\r\n");
    let mut raw = server.raw();
    // Exactly at the limits the command is read, and then refused for its content.
    let long = "x".repeat(16384);
    assert_eq!(
        raw.command(&["AUTH", &long]),
        Value::error("WRONGPASS invalid username-password pair or user is disabled.")
    );
    assert_eq!(raw.command(&["GET", "a"]), Value::error("NOAUTH Authentication required."));
    assert_eq!(raw.command(&["AUTH", "secret"]), Value::status("OK"));
    let many: Vec<String> = std::iter::once("DEL".to_owned()).chain((0..100).map(|i| i.to_string())).collect();
    assert_eq!(raw.command(&many), Value::Integer(0));
    let longer = "x".repeat(100_000);
    assert_eq!(raw.command(&["ECHO", &longer]), Value::bulk(&longer));
}

fn ignores_empty_requests(program: Program) {
    let server = Server::start(program, &[]);
    for nothing in [
        "*0\r\n",
        "*-1\r\n",
        "*-10\r\n",
        "*-2147483648\r\n",
        "*-2147483649\r\n",
        "\r\n",
        "\n",
        "   \r\n",
        "\r\n\r\n\r\n",
    ] {
        let mut raw = server.raw();
        raw.send(format!("{nothing}ECHO after\r\n").as_bytes());
        assert_eq!(raw.reply().value, Value::bulk("after"), "after {nothing:?}");
    }
    let mut raw = server.raw();
    assert_eq!(raw.command(&[""]), Value::error("ERR unknown command '', with args beginning with: "));
    raw.send(b"$5\r\n");
    assert_eq!(raw.reply().value, Value::error("ERR unknown command '$5', with args beginning with: "));
}

fn reads_inline_commands(program: Program) {
    let server = Server::start(program, &[]);
    let mut raw = server.raw();
    for (line, echoed) in [
        ("ECHO plain\r\n", "plain"),
        ("ECHO plain\n", "plain"),
        ("  echo   spaced  \r\n", "spaced"),
        ("\tECHO\ttabs\t\r\n", "tabs"),
        ("ECHO \"double quoted\"\r\n", "double quoted"),
        ("ECHO 'single quoted'\r\n", "single quoted"),
        ("ECHO \"\\x41\\n\\r\\t\\a\\b\\\"\\\\\\q\"\r\n", "A\n\r\t\x07\x08\"\\q"),
        ("ECHO \"\\x4\\xzz\"\r\n", "x4xzz"),
        ("ECHO 'a\\'b\\x41\\n'\r\n", "a'b\\x41\\n"),
        ("ECHO \"\"\r\n", ""),
        ("ECHO ''\r\n", ""),
        ("\"ECHO\" 'q'\r\n", "q"),
        ("ECHO *1\r\n", "*1"),
    ] {
        raw.send(line.as_bytes());
        assert_eq!(raw.reply().value, Value::bulk(echoed), "{line:?}");
    }
    raw.send(b"PING\nPING\r\n*1\r\n$4\r\nPING\r\nPING\n");
    for _ in 0..4 {
        assert_eq!(raw.reply().value, Value::status("PONG"));
    }
    let long = "y".repeat(60_000);
    raw.send(format!("ECHO {long}\r\n").as_bytes());
    assert_eq!(raw.reply().value, Value::bulk(&long));
}

fn answers_commands_that_precede_a_protocol_error(program: Program) {
    let server = Server::start(program, &[]);
    closes_with(
        &server,
        b"PING\r\nSET a 1\r\nGET a\r\nPING 'x\r\nPING\r\n",
        "+PONG\r\n+OK\r\n$1\r\n1\r\n-ERR Protocol error: unbalanced quotes in request\r\n",
    );
    closes_with(
        &server,
        b"*1\r\n$4\r\nPING\r\n*1\r\n!\r\n*1\r\n$4\r\nPING\r\n",
        "+PONG\r\n-ERR Protocol error: expected '$', got '!'\r\n",
    );
}

fn reads_a_pipeline_cut_anywhere(program: Program) {
    let server = Server::start(program, &[]);
    let mut pipeline = encode(&[b"SET".as_slice(), b"bin", b"a\r\n$3\r\nb\0\xff"]);
    pipeline.extend(encode(&["GET", "bin"]));
    pipeline.extend(b"ECHO \"in line\"\r\n");
    pipeline.extend(b"*0\r\n\r\n");
    pipeline.extend(encode(&["STRLEN", "bin"]));
    let expected =
        [Value::status("OK"), Value::Bulk(b"a\r\n$3\r\nb\0\xff".to_vec()), Value::bulk("in line"), Value::Integer(10)];
    let mut raw = server.raw();
    for cut in 1..pipeline.len() {
        raw.send(&pipeline[..cut]);
        // The first part must be read on its own: wait until the kernel has handed it over and the server was idle.
        serve_pause(&server);
        raw.send(&pipeline[cut..]);
        for value in &expected {
            assert_eq!(&raw.reply().value, value, "cut at byte {cut}");
        }
    }
    for byte in &pipeline {
        raw.send(std::slice::from_ref(byte));
    }
    for value in &expected {
        assert_eq!(&raw.reply().value, value, "byte by byte");
    }
}

/// Returns when the server has gone around its loop once: a round trip of another connection.
fn serve_pause(server: &Server) {
    thread_local! { static OTHER: std::cell::RefCell<Option<(u16, Raw)>> = const { std::cell::RefCell::new(None) }; }
    OTHER.with_borrow_mut(|other| {
        if other.as_ref().is_none_or(|(port, _)| *port != server.port()) {
            *other = Some((server.port(), server.raw()));
        }
        let (_, raw) = other.as_mut().expect("set two lines above");
        assert_eq!(raw.command(&["PING"]), Value::status("PONG"));
    });
}

fn survives_deep_nesting(program: Program) {
    let server = Server::start(program, &[]);
    let nested = "*1\r\n".repeat(100_000);
    closes_with(&server, nested.as_bytes(), "-ERR Protocol error: expected '$', got '*'\r\n");
    serves_others(&server);
}

fn ends_endless_lines(program: Program) {
    let server = Server::start(program, &[]);
    let megabyte = vec![b'1'; 1 << 20];
    let with_head = |head: &[u8]| [head, &megabyte].concat();
    closes_with(&server, &vec![b'a'; 1 << 20], "-ERR Protocol error: too big inline request\r\n");
    closes_with(&server, &with_head(b"*"), "-ERR Protocol error: too big mbulk count string\r\n");
    closes_with(&server, &with_head(b"*1\r\n$"), "-ERR Protocol error: too big bulk count string\r\n");
    serves_others(&server);
}

fn declared_lengths_reserve_no_memory(program: Program) {
    let mut server = Server::start(program, &[]);
    let before = resident_bytes(&server);
    // The largest legal lengths: nothing may be reserved for bytes that were only announced.
    let mut announced: Vec<Raw> = Vec::new();
    for _ in 0..50 {
        let mut many = server.raw();
        many.send(b"*2147483647\r\n$4\r\nPING\r\n");
        let mut long = server.raw();
        long.send(b"*2\r\n$4\r\nECHO\r\n$536870912\r\nbegin");
        announced.extend([many, long]);
    }
    serves_others(&server);
    let grown = resident_bytes(&server).saturating_sub(before);
    assert!(grown < 64 << 20, "100 announcements made the server {grown} bytes larger");
    drop(announced);
    serves_others(&server);
    assert!(!server.has_ended());
}

#[test]
fn huge_pages_are_used_only_on_request() {
    let has_huge_pages = |process: &str| {
        let status = std::fs::read_to_string(format!("/proc/{process}/status")).expect("a /proc entry of ours");
        let line = status.lines().find_map(|line| line.strip_prefix("THP_enabled:")).expect("Linux 5.0 or later");
        line.trim() == "1"
    };
    // The process that started this test may have disabled huge pages for its children.
    for (flags, expected) in [(&[][..], false), (&["--disable-thp", "no"], has_huge_pages("self"))] {
        let server = Server::start(Program::Tidegate, flags);
        assert_eq!(has_huge_pages(&server.pid().to_string()), expected, "{flags:?}");
    }
}

/// The server's resident memory, as the kernel reports it.
fn resident_bytes(server: &Server) -> u64 {
    let statm = std::fs::read_to_string(format!("/proc/{}/statm", server.pid())).expect("our child's /proc entry");
    let pages: u64 = statm.split(' ').nth(1).and_then(|f| f.parse().ok()).expect("statm's second field is a number");
    pages * 4096
}

fn keeps_replies_in_order(program: Program) {
    let server = Server::start(program, &[]);
    let mut raw = server.raw();
    let mut bytes = Vec::new();
    for i in 0..10_000 {
        match i % 4 {
            0 => bytes.extend(encode(&["SET", "k", &i.to_string()])),
            1 => bytes.extend(encode(&["GET", "k"])),
            2 => bytes.extend(encode(&["NOSUCHCOMMAND"])),
            _ => bytes.extend(encode(&["INCR", "n"])),
        }
    }
    raw.send(&bytes);
    for i in 0..10_000 {
        let expected = match i % 4 {
            0 => Value::status("OK"),
            1 => Value::bulk(&(i - 1).to_string()),
            2 => Value::error("ERR unknown command 'NOSUCHCOMMAND', with args beginning with: "),
            _ => Value::Integer(i / 4 + 1),
        };
        assert_eq!(raw.reply().value, expected, "reply {i}");
    }
}

/// Large replies are sent sooner than small ones, but not before them.
fn keeps_large_replies_in_order(program: Program) {
    let server = Server::start(program, &[]);
    let mut raw = server.raw();
    let values = [10, 20_000, 40_000, 70_000, 3_000_000].map(|len| "x".repeat(len));
    for value in &values {
        assert_eq!(raw.command(&["SET", &value.len().to_string(), value]), Value::status("OK"));
    }
    let all = || (0..40).flat_map(|_| &values);
    let requests = all().flat_map(|value| {
        let get = encode(&["GET", &value.len().to_string()]);
        [get, encode(&["INCR", "n"])].concat()
    });
    raw.send(&requests.collect::<Vec<u8>>());
    for (number, value) in all().enumerate() {
        assert_eq!(raw.reply().value, Value::bulk(value), "reply {number}");
        assert_eq!(raw.reply().value, Value::Integer(number as i64 + 1));
    }
    // Where nothing changes in between, large values are sent past the replies; more of them than the sockets hold.
    let requests = all().map(|value| encode(&["GET", &value.len().to_string()]));
    raw.send(&requests.collect::<Vec<_>>().concat());
    for (number, value) in all().enumerate() {
        assert_eq!(raw.reply().value, Value::bulk(value), "reply {number} to GETs alone");
    }
}

fn carries_any_bytes(program: Program) {
    let server = Server::start(program, &[]);
    let mut raw = server.raw();
    let every_byte: Vec<u8> = (0..=255).collect();
    assert_eq!(raw.command(&[b"SET", every_byte.as_slice(), every_byte.as_slice()]), Value::status("OK"));
    assert_eq!(raw.command(&[b"GET", every_byte.as_slice()]), Value::Bulk(every_byte.clone()));
    let large: Vec<u8> = every_byte.iter().copied().cycle().take(5_000_000).collect();
    assert_eq!(raw.command(&[b"SET", b"large".as_slice(), large.as_slice()]), Value::status("OK"));
    assert!(raw.command(&["GET", "large"]) == Value::Bulk(large), "five megabytes come back as they went");
}

fn sanitises_error_texts(program: Program) {
    let server = Server::start(program, &[]);
    let mut raw = server.raw();
    // A line break that a client smuggles into an error would end the frame early.
    let value = raw.command(&["NO\r\nSUCH", "a\r\n+OK", "b"]);
    let text = String::from_utf8(value.bytes().expect("an error").to_vec()).expect("ASCII was sent");
    assert!(matches!(value, Value::Error(_)) && !text.contains(['\r', '\n']), "{value:?}");
    assert_eq!(value, Value::error("ERR unknown command 'NO  SUCH', with args beginning with: 'a  +OK' 'b' "));
    let long = "x".repeat(1000);
    let Value::Error(text) = raw.command(&[&long, &long, &long]) else { panic!("an unknown command is an error") };
    assert!(text.len() < 400, "the error repeats {} bytes of the request", text.len());
    assert_eq!(raw.command(&["PING"]), Value::status("PONG"));
}

fn hangs_up_on_http(program: Program) {
    // A web page must not be able to make a browser talk to the server (cross protocol scripting).
    let server = Server::start(program, &[]);
    closes_with(&server, b"POST / HTTP/1.1\r\nHost: localhost\r\n\r\nSET pwned 1\r\n", "");
    closes_with(&server, b"Host: localhost\r\nSET pwned 1\r\n", "");
    let mut raw = server.raw();
    assert_eq!(raw.command(&["EXISTS", "pwned"]), Value::Integer(0));
}

fn survives_a_client_that_never_reads(program: Program) {
    // Redis ends such a client only by client-output-buffer-limit; both servers must keep serving other clients.
    let server = Server::start(program, &[]);
    let value = "v".repeat(1 << 20);
    let mut raw = server.raw();
    assert_eq!(raw.command(&["SET", "big", &value]), Value::status("OK"));
    let mut deaf = TcpStream::connect(("127.0.0.1", server.port())).expect("the server accepts a connection");
    deaf.set_write_timeout(Some(Duration::from_millis(200))).expect("a write deadline");
    let requests = encode(&["GET", "big"]).repeat(64);
    for _ in 0..4 {
        match deaf.write_all(&requests) {
            Ok(()) => {}
            // The server has stopped reading from it, or has hung up: both are fine.
            Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => break,
            Err(e) if matches!(e.kind(), ErrorKind::BrokenPipe | ErrorKind::ConnectionReset) => {
                break;
            }
            Err(e) => panic!("{e}"),
        }
        serves_others(&server);
    }
    serves_others(&server);
    drop(deaf);
    serves_others(&server);
}

fn holds_thousands_of_idle_connections(program: Program) {
    const WANTED: usize = 5_000;
    // Each connection takes a descriptor here and one in the server, which inherits the limit.
    let allowed = raise_descriptor_limit(2 * WANTED as u64);
    let count = WANTED.min(allowed.saturating_sub(300) as usize);
    assert!(count >= 1_000, "only {allowed} descriptors are allowed here: too few for this test");
    if count < WANTED {
        eprintln!("{count} connections instead of {WANTED}: this machine allows {allowed} descriptors a process");
    }
    let server = Server::start(program, &["--maxclients", "6000"]);
    let connect = || TcpStream::connect(("127.0.0.1", server.port())).expect("the server accepts a connection");
    let mut idle: Vec<TcpStream> = (0..count).map(|_| connect()).collect();
    serves_others(&server);
    // All of them are really accepted: each gets a reply.
    for stream in &mut idle {
        stream.write_all(b"PING\r\n").expect("an accepted connection takes six bytes");
    }
    for stream in &mut idle {
        stream.set_read_timeout(Some(Duration::from_secs(20))).expect("a read deadline");
        let mut pong = [0u8; 7];
        stream.read_exact(&mut pong).expect("an idle connection is still served");
        assert_eq!(&pong, b"+PONG\r\n");
    }
    drop(idle);
    serves_others(&server);
}

/// Raises the soft limit on open files to `wanted` or to the hard limit; returns the new limit.
pub(crate) fn raise_descriptor_limit(wanted: u64) -> u64 {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limit` is a valid rlimit for the kernel to fill.
    let read = unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) };
    assert_eq!(read, 0, "getrlimit takes a valid pointer");
    if limit.rlim_cur < wanted {
        limit.rlim_cur = wanted.min(limit.rlim_max);
        // SAFETY: `limit` is a valid rlimit for the kernel to read.
        let set = unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &limit) };
        assert_eq!(set, 0, "a soft limit up to the hard one is granted");
    }
    limit.rlim_cur
}

fn survives_random_bytes(program: Program) {
    let mut server = Server::start(program, &[]);
    // Bytes from the protocol's own alphabet find more than uniform noise.
    const ALPHABET: &[u8] = b"*$+-:0123456789\r\n\r\n\r\nPINGgetset \"'\\x\0\xff";
    let mut state = 0x9E37_79B9_7F4A_7C15_u64;
    let mut below = move |n: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 33) as usize % n
    };
    for _ in 0..300 {
        let noise: Vec<u8> = (0..below(400) + 1).map(|_| ALPHABET[below(ALPHABET.len())]).collect();
        let mut raw = server.raw();
        raw.send(&noise);
    }
    serves_others(&server);
    assert!(!server.has_ended());
}

fn talks_to_the_redis_crate(program: Program) {
    let server = Server::start(program, &[]);
    let mut client = server.client();
    let (first, sum): (String, i64) = redis::pipe()
        .set("k", "value")
        .ignore()
        .get("k")
        .incr("n", 41)
        .query(&mut client)
        .expect("a pipeline of the redis crate");
    assert_eq!((first.as_str(), sum), ("value", 41));
}

/// In a database of many keys, the keys of a pipeline, and of a command with many keys, are looked up ahead. An
/// operation on the first must not mislead the lookups of the others. In a database of few keys nothing is looked up
/// ahead. Not on Redis: this is about how this server looks keys up.
#[test]
fn a_pipeline_gives_the_results_of_its_commands_one_by_one() {
    const FILL: &str = "for i = 1, tonumber(ARGV[1]) do redis.call('SET', 'key:' .. i, i) end";
    const AT_ONCE: usize = 40;
    let servers = [0; 2].map(|_| Server::start(Program::Tidegate, &["--appendonly", "no"]));
    let [mut pipelined, mut alone] = servers.each_ref().map(Server::raw);
    for (raw, keys) in [(&mut pipelined, "5000"), (&mut alone, "12")] {
        for db in ["0", "1"] {
            raw.command(&["SELECT", db]);
            assert_eq!(raw.command(&["EVAL", FILL, "0", keys]), Value::Null);
        }
    }
    let mut dice = Dice(1);
    for _ in 0..100 {
        let commands: Vec<Vec<String>> = (0..AT_ONCE).map(|_| any_command(&mut dice)).collect();
        pipelined.send(&commands.iter().flat_map(|command| encode(command)).collect::<Vec<u8>>());
        for (at, command) in commands.iter().enumerate() {
            let expected = alone.command(command);
            assert_eq!(pipelined.reply().value, expected, "{at} of {commands:?}");
        }
    }
}

/// A command that moves, removes, exchanges or reads keys, given a few keys that lie close to each other.
fn any_command(dice: &mut Dice) -> Vec<String> {
    const MANY: [&str; 5] = ["MGET", "MSET", "DEL", "EXISTS", "TOUCH"];
    let key = |dice: &mut Dice| format!("key:{}", dice.below(12));
    // Some of the lengths share a size class, so that one key moves to where another was.
    let value = |dice: &mut Dice| "x".repeat(*dice.pick(&[1, 2, 3, 30, 31, 100, 300]));
    let script = "redis.call('DEL', KEYS[2]) redis.call('SET', KEYS[1], ARGV[1]) return redis.call('GET', KEYS[2])";
    let (a, b, text) = (key(dice), key(dice), value(dice));
    // More than are looked up at a time, some of them twice.
    let many = |name: &str, dice: &mut Dice| -> Vec<String> {
        let keys = (0..40).flat_map(|_| [key(dice)].into_iter().chain((name == "MSET").then(|| value(dice))));
        std::iter::once(name.to_owned()).chain(keys).collect()
    };
    let words: &[&str] = match dice.below(21) {
        0..5 => &["GET", &a],
        5..7 => &["DEL", &a],
        7..11 => &["SET", &a, &text],
        11 => &["APPEND", &a, &text],
        12 => &["RENAME", &a, &b],
        13 => &["COPY", &a, &b, "REPLACE"],
        14 => &["SELECT", *dice.pick(&["0", "1"])],
        15 => &["SWAPDB", "0", "1"],
        16 => &["EVAL", script, "2", &a, &b, &text],
        17 => &["MSET", &a, &text, &b, "1"],
        18 => &["MULTI"],
        19 => return many(MANY[dice.below(MANY.len())], dice),
        _ => &["EXEC"],
    };
    words.iter().map(|word| (*word).to_owned()).collect()
}
