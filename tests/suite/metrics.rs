//! Metrics over HTTP. The text is in the format that Prometheus reads and its figures are those of INFO. Liveness and
//! readiness are reported however busy the server is.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use crate::harness::{Environment, Program, Raw, Server, Value, encode, until};
use crate::slow_disk;

/// A server with metrics, and the address of the metrics.
pub(crate) fn start(flags: &[&str]) -> (Server, SocketAddr) {
    start_in(&Vec::new(), flags)
}

/// As [`start`], with these variables of the environment.
pub(crate) fn start_in(environment: &Environment, flags: &[&str]) -> (Server, SocketAddr) {
    let address = free_address();
    let port = address.port().to_string();
    let flags = [&["--metrics-port", &port], flags].concat();
    (Server::start_in(environment, Program::Tidegate, &flags), address)
}

/// Returns an address whose port was free a moment ago; another process is unlikely to take it.
fn free_address() -> SocketAddr {
    let free = TcpListener::bind("127.0.0.1:0").expect("a port");
    free.local_addr().expect("an address")
}

/// Sends bytes, and reads the whole response.
fn exchange(address: SocketAddr, request: &[u8]) -> String {
    let mut stream = TcpStream::connect(address).expect("a listening server");
    stream.set_read_timeout(Some(Duration::from_secs(20))).expect("a timeout");
    stream.write_all(request).expect("it is taken");
    let mut answer = Vec::new();
    // A refusal in the middle of a request ends in a reset: the bytes before it count.
    let _ = stream.read_to_end(&mut answer);
    String::from_utf8(answer).expect("text")
}

/// Returns the status and the text of a path.
pub(crate) fn get(address: SocketAddr, path: &str) -> (u16, String) {
    let answer = exchange(address, format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n").as_bytes());
    let (head, text) = answer.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no response: {answer:?}"));
    let length = head.lines().find_map(|line| line.strip_prefix("Content-Length: ")).expect("a length");
    assert_eq!(length.parse(), Ok(text.len()));
    let status = head.split(' ').nth(1).expect("a status").parse().expect("a number");
    (status, text.to_owned())
}

/// Labels by name.
pub(crate) type Labels = BTreeMap<String, String>;

/// The samples of the text format, by metric. Every requirement of the format is checked.
#[derive(Default)]
pub(crate) struct Metrics {
    pub(crate) kinds: BTreeMap<String, String>,
    pub(crate) samples: BTreeMap<String, Vec<(Labels, f64)>>,
}

impl Metrics {
    pub(crate) fn parse(text: &str) -> Metrics {
        assert!(text.ends_with('\n'), "the last line ends, too");
        let mut metrics = Metrics::default();
        let mut helped = BTreeSet::new();
        let mut seen = BTreeSet::new();
        for line in text.lines() {
            if let Some(help) = line.strip_prefix("# HELP ") {
                let (name, help) = help.split_once(' ').expect("a name and a text");
                assert!(helped.insert(name.to_owned()) && !help.is_empty(), "{line}");
            } else if let Some(kind) = line.strip_prefix("# TYPE ") {
                let (name, kind) = kind.split_once(' ').expect("a name and a type");
                assert!(["counter", "gauge", "histogram"].contains(&kind), "{line}");
                assert!(metrics.kinds.insert(name.to_owned(), kind.to_owned()).is_none(), "twice: {line}");
                assert!(metrics.samples.keys().all(|sample| sample != name), "the type comes first: {line}");
            } else {
                let (name, labels, value) = sample(line);
                assert!(seen.insert((name.clone(), labels.clone())), "twice: {line}");
                let family = ["_bucket", "_sum", "_count"].iter().find_map(|end| name.strip_suffix(end));
                let family = family.filter(|name| metrics.kinds.get(*name).is_some_and(|kind| kind == "histogram"));
                assert!(metrics.kinds.contains_key(family.unwrap_or(&name)), "no type: {line}");
                metrics.samples.entry(name).or_default().push((labels, value));
            }
        }
        assert_eq!(helped, metrics.kinds.keys().cloned().collect());
        metrics
    }

    pub(crate) fn value(&self, name: &str, labels: &[(&str, &str)]) -> Option<f64> {
        let wanted: Labels = labels.iter().map(|(name, label)| ((*name).to_owned(), (*label).to_owned())).collect();
        self.samples.get(name)?.iter().find(|(labels, _)| *labels == wanted).map(|(_, value)| *value)
    }
}

/// One sample: `name{label="text",...} value`.
fn sample(line: &str) -> (String, Labels, f64) {
    let (name, mut rest) = line.split_at(line.find(['{', ' ']).expect("a value"));
    assert!(name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_'), "{line}");
    let mut labels = Labels::new();
    if let Some(inside) = rest.strip_prefix('{') {
        rest = inside;
        while !rest.starts_with('}') {
            let (label, after) = rest.trim_start_matches(',').split_once("=\"").expect("a label");
            let mut text = String::new();
            let mut chars = after.char_indices();
            let end = loop {
                match chars.next().expect("the text of a label ends") {
                    (end, '"') => break end,
                    (_, '\\') => match chars.next().expect("an escaped character").1 {
                        'n' => text.push('\n'),
                        escaped @ ('\\' | '"') => text.push(escaped),
                        other => panic!("\\{other} in {line}"),
                    },
                    (_, c) => text.push(c),
                }
            };
            assert!(labels.insert(label.to_owned(), text).is_none(), "twice {label}: {line}");
            rest = &after[end + 1..];
        }
        rest = &rest[1..];
    }
    let value = rest.strip_prefix(' ').expect("a blank").parse().unwrap_or_else(|_| panic!("no number: {line}"));
    (name.to_owned(), labels, value)
}

pub(crate) fn metrics(address: SocketAddr) -> Metrics {
    let (status, text) = get(address, "/metrics");
    assert_eq!(status, 200, "{text}");
    Metrics::parse(&text)
}

#[test]
fn a_client_that_closes_its_side_behind_the_request_is_answered() {
    let (_server, address) = start(&[]);
    for path in ["/health", "/metrics"] {
        let mut stream = TcpStream::connect(address).expect("a listening server");
        stream.set_read_timeout(Some(Duration::from_secs(20))).expect("a timeout");
        stream.write_all(format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n").as_bytes()).expect("it is taken");
        stream.shutdown(Shutdown::Write).expect("an open connection");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("text");
        assert!(answer.starts_with("HTTP/1.1 200 "), "{path}: {answer:?}");
    }
}

#[test]
fn figures_equal_those_of_info() {
    let (server, address) = start(&["--enable-debug-command", "yes", "--latency-monitor-threshold", "1"]);
    let mut raw = server.raw();
    for _ in 0..7 {
        raw.command(&["SET", "k", "v"]);
    }
    raw.command(&["EXPIRE", "k", "1000"]);
    raw.command(&["GET", "k"]);
    raw.command(&["GET", "nosuch"]);
    raw.command(&["LPUSH", "k", "v"]);
    raw.command(&["DEBUG", "SLEEP", "0.01"]);
    raw.command(&["SELECT", "3"]);
    raw.command(&["SET", "other", "v"]);
    let found = metrics(address);
    for (name, labels, wanted) in [
        ("redis_up", &[][..], 1.0),
        ("redis_connected_clients", &[], 1.0),
        ("redis_keyspace_hits_total", &[], 1.0),
        ("redis_keyspace_misses_total", &[], 1.0),
        ("redis_commands_total", &[("cmd", "set")], 8.0),
        ("redis_commands_failed_calls_total", &[("cmd", "lpush")], 1.0),
        ("redis_errors_total", &[("err", "WRONGTYPE")], 1.0),
        ("redis_commands_latencies_usec_count", &[("cmd", "set")], 8.0),
        ("redis_commands_latencies_usec_bucket", &[("cmd", "set"), ("le", "+Inf")], 8.0),
        ("redis_commands_latencies_usec_bucket", &[("cmd", "debug"), ("le", "8192")], 0.0),
        ("redis_db_keys", &[("db", "db0")], 1.0),
        ("redis_db_keys_expiring", &[("db", "db0")], 1.0),
        ("redis_db_keys", &[("db", "db3")], 1.0),
        ("redis_db_keys", &[("db", "db1")], f64::NAN),
        ("redis_aof_enabled", &[], 0.0),
        ("redis_rdb_last_bgsave_status", &[], 1.0),
        ("tidegate_ready", &[], 1.0),
        ("tidegate_busy", &[], 0.0),
    ] {
        match found.value(name, labels) {
            Some(value) => assert_eq!(value, wanted, "{name} {labels:?}"),
            None => assert!(wanted.is_nan(), "{name} {labels:?} is not there"),
        }
    }
    assert!(found.value("redis_memory_used_bytes", &[]).is_some_and(|bytes| bytes > 100_000.0));
    let spike = found.value("redis_latency_spike_duration_seconds", &[("event_name", "command")]);
    assert!(spike.is_some_and(|seconds| seconds >= 0.01), "{spike:?}");
    let info = &found.samples["redis_instance_info"][0].0;
    assert_eq!((info["redis_mode"].as_str(), info["maxmemory_policy"].as_str()), ("standalone", "noeviction"));
    for (labels, value) in &found.samples["redis_commands_latencies_usec_bucket"] {
        let total = found.value("redis_commands_latencies_usec_count", &[("cmd", &labels["cmd"])]);
        assert!(total.is_some_and(|total| *value <= total), "{labels:?}");
    }
    assert!(!found.samples.contains_key("tidegate_log_durable_lsn"), "there is no log");
}

#[test]
fn the_process_and_its_machine_have_metrics() {
    let dir = tempfile::tempdir().expect("a folder");
    let (server, address) = start(&["--dir", dir.path().to_str().expect("plain text")]);
    let found = metrics(address);
    let value = |name: &str| found.value(name, &[]).unwrap_or_else(|| panic!("{name} is not there"));
    let memory = value("redis_total_system_memory_bytes");
    assert!(memory > value("process_resident_memory_bytes") && memory > 64e6, "{memory}");
    assert!(value("process_resident_memory_bytes") > 1e6);
    assert!(value("process_open_fds") > 5.0 && value("process_open_fds") < value("process_max_fds"));
    assert!(value("process_cpu_seconds_total") > 0.0);
    assert!(value("tidegate_disk_free_bytes") <= value("tidegate_disk_size_bytes"));
    let clients: Vec<Raw> = (0..20).map(|_| server.raw()).collect();
    until(|| metrics(address).value("process_open_fds", &[]) >= Some(value("process_open_fds") + 20.0), "20 more");
    drop(clients);
    let now_s = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("a time").as_secs_f64();
    let started_s = value("process_start_time_seconds");
    assert!((started_s - now_s).abs() < 600.0, "{started_s} at {now_s}");
    let version = &found.samples["tidegate_build_info"][0].0["version"];
    assert_eq!(version, env!("CARGO_PKG_VERSION"));
}

#[test]
fn held_grants_and_waiting_calls_are_numbers_of_now() {
    let (server, address) = start(&["--metrics-key-prefixes", "a:"]);
    let (mut raw, mut waiter) = (server.raw(), server.raw());
    let words = |line: &str| line.split(' ').map(str::to_owned).collect::<Vec<_>>();
    for line in [
        "LOCK.ACQUIRE a:lock one PX 600000",
        "GATE.ACQUIRE gate one LIMIT 3 PX 600000",
        "GATE.ACQUIRE gate two LIMIT 3 PX 600000",
        "STOCK.SET stock 5",
        "STOCK.RESERVE stock one UNITS 2 PX 600000",
        "SET a:string v",
        "SELECT 1",
        "LOCK.ACQUIRE lock one PX 600000",
    ] {
        raw.command(&words(line));
    }
    waiter.send(&encode(&words("LOCK.ACQUIRE a:lock two PX 600000 BLOCK 0")));
    let of = |metric: &str, family: &str, prefix: &str| {
        let labels = [("family", family), ("prefix", prefix)];
        metrics(address).value(metric, &labels).unwrap_or(f64::NAN)
    };
    until(|| of("tidegate_waiters", "lock", "a:") == 1.0, "the call waits");
    assert_eq!((of("tidegate_waiters", "lock", ""), of("tidegate_waiters", "gate", "a:")), (0.0, 0.0));
    for (family, prefix, held) in
        [("lock", "a:", 1.0), ("lock", "", 1.0), ("gate", "", 2.0), ("gate", "a:", 0.0), ("stock", "", 1.0)]
    {
        assert_eq!(of("tidegate_grants_held", family, prefix), held, "{family} {prefix}");
    }
    // Other than counters, they stay, and follow the prefixes.
    raw.command(&["CONFIG", "RESETSTAT"]);
    raw.command(&["CONFIG", "SET", "metrics-key-prefixes", "g"]);
    assert_eq!(of("tidegate_grants_held", "gate", "g"), 2.0);
    raw.command(&["FLUSHALL"]);
    assert_eq!((of("tidegate_grants_held", "gate", "g"), of("tidegate_grants_held", "lock", "")), (0.0, 1.0));
    assert!(matches!(waiter.reply().value, Value::Array(_)), "it has the lock now");
    assert_eq!(of("tidegate_waiters", "lock", ""), 0.0);
}

/// The keys that a scrape looks at are a sample.
#[test]
fn held_grants_among_many_keys_are_estimated() {
    let (server, address) = start(&["--enable-debug-command", "yes"]);
    let mut raw = server.raw();
    let locks = "for i = 1, 20000 do redis.call('LOCK.ACQUIRE', 'lock:' .. i, 'one', 'PX', 600000) end";
    raw.command(&["EVAL", locks, "0"]);
    raw.command(&["DEBUG", "POPULATE", "20000"]);
    let held = metrics(address).value("tidegate_grants_held", &[("family", "lock"), ("prefix", "")]);
    assert!(held.is_some_and(|held| (18_000.0..22_000.0).contains(&held)), "{held:?}");
}

#[test]
fn metrics_are_compressed_for_clients_that_accept_it() {
    let (_server, address) = start(&[]);
    let mut stream = TcpStream::connect(address).expect("a listening server");
    stream.write_all(b"GET /metrics HTTP/1.1\r\nAccept-Encoding: gzip\r\n\r\n").expect("it is taken");
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).expect("the whole response");
    let end = answer.windows(4).position(|window| window == b"\r\n\r\n").expect("a head") + 4;
    let head = String::from_utf8_lossy(&answer[..end]).into_owned();
    assert!(head.contains("\r\nContent-Encoding: gzip\r\n"), "{head}");
    assert!(head.contains(&format!("\r\nContent-Length: {}\r\n", answer.len() - end)), "{head}");
    let mut text = String::new();
    flate2::read::GzDecoder::new(&answer[end..]).read_to_string(&mut text).expect("gzip");
    assert!(Metrics::parse(&text).kinds.len() > 100);
    assert!((answer.len() - end) * 3 < text.len(), "{} bytes of {}", answer.len() - end, text.len());
}

#[test]
fn the_journal_has_metrics_of_its_own() {
    let dir = tempfile::tempdir().expect("a folder");
    let (server, address) = start(&["--appendonly", "yes", "--dir", dir.path().to_str().expect("plain text")]);
    server.raw().command(&["SET", "k", "v"]);
    let found = metrics(address);
    let lsn = found.value("tidegate_log_durable_lsn", &[]);
    assert!(lsn.is_some_and(|lsn| lsn >= 1.0), "{lsn:?}");
    assert!(found.value("tidegate_log_sync_seconds", &[]).is_some_and(|seconds| seconds > 0.0));
    for what in ["write", "sync"] {
        let of = |part: &str, labels: &[(&str, &str)]| {
            found.value(&format!("tidegate_log_{what}_duration_seconds_{part}"), labels).expect("it is there")
        };
        assert!(of("count", &[]) >= 1.0 && of("sum", &[]) > 0.0, "{what}");
        assert_eq!(of("bucket", &[("le", "+Inf")]), of("count", &[]));
        assert!(of("bucket", &[("le", "0.001")]) <= of("bucket", &[("le", "10")]));
    }
    let told = ["log_failed", "log_full", "held_clients", "held_reply_bytes"];
    assert_eq!(told.map(|name| found.value(&format!("tidegate_{name}"), &[])), [Some(0.0); 4]);
    assert_eq!(found.value("redis_aof_last_write_status", &[]), Some(1.0));
}

#[test]
fn replies_that_wait_for_the_disk_are_numbers_of_now() {
    let dir = tempfile::tempdir().expect("a folder");
    let (switch, path) = (dir.path().join("hangs"), dir.path().to_str().expect("plain text"));
    let (server, address) = start_in(&slow_disk::environment(&switch), &["--appendonly", "yes", "--dir", path]);
    let mut raw = server.raw();
    // The server learns that the disk is slow, and leaves syncs to another thread.
    raw.command(&["SET", "k", "v"]);
    std::fs::write(&switch, "").expect("a file");
    raw.send_command(&["SET", "k", "w"]);
    let held = || ["clients", "reply_bytes"].map(|what| metrics(address).value(&format!("tidegate_held_{what}"), &[]));
    until(|| held() == [Some(1.0), Some(5.0)], "+OK waits");
    std::fs::remove_file(&switch).expect("the file is there");
    assert_eq!(raw.reply().value, Value::status("OK"));
    assert_eq!(held(), [Some(0.0); 2]);
}

#[test]
fn grants_and_refusals_are_counted_by_family_and_prefix() {
    let (server, address) = start(&["--metrics-key-prefixes", "a: a:b:"]);
    let mut raw = server.raw();
    let mut call = |line: &str| raw.command(&line.split(' ').collect::<Vec<_>>());
    let prefixes = ["metrics-key-prefixes", "a: a:b:"].map(Value::bulk);
    assert_eq!(call("CONFIG GET metrics-key-prefixes"), Value::Array(prefixes.into()));
    for line in [
        "LOCK.ACQUIRE a:lock one PX 60000",
        "LOCK.ACQUIRE a:lock two PX 60000",
        "LOCK.RELEASE a:lock one",
        "LOCK.ACQUIRE a:b:lock one PX 60000",
        "LOCK.BREAK a:b:lock",
        "GATE.ACQUIRE gate one LIMIT 1 PX 60000",
        "GATE.ACQUIRE gate two LIMIT 1 PX 60000",
        "GATE.ACQUIRE gate three LIMIT 1 PX 60000",
        "DEL gate",
        "STOCK.SET a:stock 1",
        "STOCK.RESERVE a:stock one UNITS 1 PX 60000",
        "STOCK.RESERVE a:stock two UNITS 1 PX 60000",
        "STOCK.COMMIT a:stock one",
        "LIMIT.TAKE RULES 2 a:limit FIXED 1 60000 limit FIXED 2 60000",
        "LIMIT.TAKE RULES 2 a:limit FIXED 1 60000 limit FIXED 2 60000",
        "LIMIT.TAKE DRYRUN RULES 1 limit FIXED 2 60000",
        "LIMIT.TAKE ID one RULES 1 a:places CONCURRENCY 1 60000",
        "LIMIT.TAKE ID two RULES 1 a:places CONCURRENCY 1 60000",
        "CL.THROTTLE a:throttle 0 1 60",
        "CL.THROTTLE a:throttle 0 1 60",
        "GCRA a:gcra 0 1 60",
        "GCRA a:gcra 0 1 60",
        "MULTI",
        "LOCK.ACQUIRE kept one PX 60000",
        "EXEC",
    ] {
        call(line);
    }
    let undone = "redis.call('LOCK.ACQUIRE', KEYS[1], 'one', 'PX', 60000) return redis.call('nosuch')";
    raw.command(&["EVAL", undone, "1", "a:undone"]);
    let found = metrics(address);
    let of = |metric: &str, labels: &[(&str, &str)]| {
        found.value(&format!("tidegate_{metric}_total"), labels).unwrap_or(f64::NAN)
    };
    for (family, prefix, granted, refused) in [
        ("lock", "a:", 1.0, 1.0),
        ("lock", "a:b:", 1.0, 0.0),
        ("lock", "", 1.0, 0.0),
        ("gate", "", 1.0, 2.0),
        ("gate", "a:", 1.0, 1.0),
        ("stock", "a:", 1.0, 1.0),
        ("limit", "a:", 3.0, 3.0),
        ("limit", "", 1.0, 0.0),
    ] {
        let labels = [("family", family), ("prefix", prefix)];
        assert_eq!(of("grants", &labels), granted, "granted {labels:?}");
        assert_eq!(of("refusals", &labels), refused, "refused {labels:?}");
    }
    for (family, prefix, end, count) in [
        ("lock", "a:", "released", 1.0),
        ("lock", "a:", "lapsed", 0.0),
        ("lock", "a:b:", "broken", 1.0),
        ("gate", "", "removed", 1.0),
        ("stock", "a:", "sold", 1.0),
    ] {
        let labels = [("family", family), ("prefix", prefix), ("end", end)];
        assert_eq!(of("grant_ends", &labels), count, "{labels:?}");
    }
    assert_eq!(found.samples["tidegate_grants_total"].len(), 4 * 3, "grants not counted before are included");
    let lapsed = "for i = 1, 2 do redis.call('LOCK.ACQUIRE', 'a:b:' .. i, 'one', 'PX', 1) end";
    raw.command(&["EVAL", lapsed, "0"]);
    let labels = [("family", "lock"), ("prefix", "a:b:"), ("end", "lapsed")];
    until(|| metrics(address).value("tidegate_grant_ends_total", &labels) == Some(2.0), "the leases have ended");
    for line in ["MULTI", "LOCK.ACQUIRE a:within one PX 60000", "CONFIG SET metrics-key-prefixes c:", "EXEC"] {
        raw.command(&line.split(' ').collect::<Vec<_>>());
    }
    let labels = [("family", "lock"), ("prefix", "")];
    assert_eq!(
        metrics(address).value("tidegate_grants_total", &labels),
        Some(1.0),
        "none of the new prefixes is counted"
    );
    let who = format!("{:?}", raw.command(&["WHO", "a:within"]));
    assert!(who.contains("\"granted\""), "the grant is remembered, too: {who}");
    let refused = raw.command(&["CONFIG", "SET", "metrics-key-prefixes", &"x".repeat(129)]);
    let refused = format!("{refused:?}");
    assert!(refused.contains("at most 32 prefixes of at most 128 bytes of UTF-8"), "{refused}");
    raw.command(&["CONFIG", "SET", "metrics-key-prefixes", ""]);
    raw.command(&["LOCK.RELEASE", "kept", "one"]);
    let labels = [("family", "lock"), ("prefix", ""), ("end", "released")];
    assert_eq!(metrics(address).value("tidegate_grant_ends_total", &labels), Some(1.0));
    raw.command(&["CONFIG", "RESETSTAT"]);
    assert_eq!(metrics(address).value("tidegate_grant_ends_total", &labels), Some(0.0));
}

#[test]
fn waits_are_counted_when_they_begin_and_when_they_end() {
    let (server, address) = start(&["--metrics-key-prefixes", "a:"]);
    let (mut holder, mut waiter, mut leaver, mut beside) = (server.raw(), server.raw(), server.raw(), server.raw());
    let words = |line: &str| line.split(' ').map(str::to_owned).collect::<Vec<_>>();
    let waits = |family: &str, prefix: &str| {
        let found = metrics(address);
        ["waits", "waits_ended", "waited_seconds"].map(|metric| {
            let labels = [("family", family), ("prefix", prefix)];
            found.value(&format!("tidegate_{metric}_total"), &labels).unwrap_or(f64::NAN)
        })
    };
    let counted = |family: &str, prefix: &str| waits(family, prefix)[..2].to_vec();
    assert_eq!(waits("lock", "a:"), [0.0, 0.0, 0.0]);
    holder.command(&words("LOCK.ACQUIRE a:lock first PX 600000"));
    // Granted after waiting, also within another command.
    waiter.send(&encode(&words("ONCE id PX 60000 LOCK.ACQUIRE a:lock second PX 600000 BLOCK 0")));
    until(|| counted("lock", "a:") == [1.0, 0.0], "the call waits");
    holder.command(&words("LOCK.RELEASE a:lock first"));
    assert!(matches!(waiter.reply().value, Value::Array(_)));
    assert_eq!(counted("lock", "a:"), [1.0, 1.0]);
    // A wait in vain, which is a refusal.
    let refusals = || {
        let labels = [("family", "lock"), ("prefix", "a:")];
        metrics(address).value("tidegate_refusals_total", &labels)
    };
    assert_eq!(refusals(), Some(0.0));
    let before_s = waits("lock", "a:")[2];
    waiter.command(&words("LOCK.ACQUIRE a:lock third PX 600000 BLOCK 30"));
    assert_eq!((counted("lock", "a:"), refusals()), (vec![2.0, 2.0], Some(1.0)));
    // It has waited 30 ms, less the rounding of added seconds.
    assert!(waits("lock", "a:")[2] >= before_s + 0.0299);
    // The client hangs up.
    leaver.send(&encode(&words("LOCK.ACQUIRE a:lock fourth PX 600000 BLOCK 0")));
    until(|| counted("lock", "a:") == [3.0, 2.0], "the call waits");
    drop(leaver);
    until(|| counted("lock", "a:") == [3.0, 3.0], "the client is forgotten");
    assert_eq!(refusals(), Some(1.0), "no refusal was sent");
    // Beside its connection, and given up.
    beside.hello3();
    holder.command(&words("GATE.ACQUIRE gate first LIMIT 1 PX 600000"));
    let acquire = words("GATE.ACQUIRE gate second LIMIT 1 PX 600000 ASYNC 0");
    let queued = format!("{:?}", beside.command(&acquire));
    let ticket: String =
        queued.split("\"ticket\": ").nth(1).expect("its ticket").chars().take_while(char::is_ascii_digit).collect();
    assert_eq!(counted("gate", ""), [1.0, 0.0]);
    beside.command(&["TICKET.CANCEL", &ticket]);
    assert_eq!((counted("gate", ""), counted("gate", "a:")), (vec![1.0, 1.0], vec![0.0, 0.0]));
    // Work that began before the counters is not counted when it ends.
    for forget in ["CONFIG RESETSTAT", "CONFIG SET metrics-key-prefixes b:"] {
        beside.command(&acquire);
        holder.command(&words(forget));
        assert_eq!(waits("gate", ""), [0.0, 0.0, 0.0]);
        beside.command(&acquire);
        holder.command(&words("GATE.RELEASE gate first"));
        assert_eq!(counted("gate", ""), [1.0, 1.0], "{forget}: the second one");
        holder.command(&words("GATE.RELEASE gate second"));
        holder.command(&words("GATE.ACQUIRE gate first LIMIT 1 PX 600000"));
        (0..2).for_each(|_| assert!(matches!(beside.reply().value, Value::Push(_))));
    }
}

#[test]
fn grants_beyond_the_remembered_ones_are_counted_too() {
    let (server, address) = start(&[]);
    let mut raw = server.raw();
    let many = "for i = 1, 3000 do redis.call('GATE.ACQUIRE', KEYS[1], i, 'LIMIT', 3000, 'PX', 60000) end";
    raw.command(&["EVAL", many, "1", "gate"]);
    raw.command(&["DEL", "gate"]);
    let found = metrics(address);
    let (labels, removed) = ([("family", "gate"), ("prefix", "")], ("end", "removed"));
    assert_eq!(found.value("tidegate_grants_total", &labels), Some(3_000.0));
    let [family, prefix] = labels;
    assert_eq!(found.value("tidegate_grant_ends_total", &[family, prefix, removed]), Some(3_000.0));
}

#[test]
fn dead_letters_are_counted_and_reported() {
    let (server, address) = start(&["--metrics-key-prefixes", "jobs"]);
    let mut raw = server.raw();
    let mut call = |line: &str| raw.command(&line.split(' ').collect::<Vec<_>>());
    for line in [
        "XGROUP CREATE jobs workers 0 MKSTREAM",
        "XGROUP SETPOLICY jobs workers MAXDELIVERIES 1 DLQ dead IDLE 1",
        "XADD jobs 7-7 order 1",
        "XREADGROUP GROUP workers ann STREAMS jobs >",
    ] {
        call(line);
    }
    until(|| call("XLEN dead") == Value::Integer(1), "the message is a dead letter");
    let labels = [("prefix", "jobs")];
    assert_eq!(metrics(address).value("tidegate_dead_letters_total", &labels), Some(1.0));
    let events = format!("{:?}", call("EVENTS 0"));
    for (name, value) in
        [("event", "dead-letter"), ("key", "jobs"), ("holder", "ann"), ("group", "workers"), ("message", "7-7")]
    {
        let said = format!("{:?}, {:?}", Value::bulk(name), Value::bulk(value));
        assert!(events.contains(&said), "no {said}: {events}");
    }
    assert!(events.contains(&format!("{:?}, 1", Value::bulk("deliveries"))), "{events}");
}

#[test]
fn malformed_requests_get_an_error_status() {
    let (_server, address) = start(&[]);
    assert_eq!(get(address, "/health").0, 200);
    until(|| get(address, "/ready").0 == 200, "the server is ready");
    assert_eq!(get(address, "/leader").0, 200, "a single server leads itself");
    assert_eq!(get(address, "/nosuch").0, 404);
    for (request, status) in [
        (&b"POST /metrics HTTP/1.1\r\n\r\n"[..], "HTTP/1.1 405 "),
        (b"POST /nosuch HTTP/1.1\r\n\r\n", "HTTP/1.1 405 "),
        (b"PING\r\n\r\n", "HTTP/1.1 400 "),
        (b"\x00\xff\xfe\r\n\r\n", "HTTP/1.1 400 "),
    ] {
        assert!(exchange(address, request).starts_with(status), "{}", request.escape_ascii());
    }
    let refused = exchange(address, b"POST /metrics HTTP/1.1\r\n\r\n");
    assert!(refused.ends_with("\r\n\r\n405 Method Not Allowed\n"), "{refused}");
    let head = exchange(address, b"HEAD /health HTTP/1.1\r\n\r\n");
    assert!(
        head.starts_with("HTTP/1.1 200 ") && head.contains("Content-Length: 17\r\n") && head.ends_with("\r\n\r\n"),
        "{head}"
    );
    let long = [b"GET /metrics HTTP/1.1\r\n".as_slice(), &b"x: y\r\n".repeat(10_000)].concat();
    let answer = exchange(address, &long);
    assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 431 "), "{answer}");
    assert_eq!(metrics(address).value("redis_up", &[]), Some(1.0), "other clients are served as before");
}

#[test]
fn silent_connections_are_bounded() {
    let (server, address) = start(&[]);
    let files = format!("/proc/{}/fd", server.pid());
    let open = || std::fs::read_dir(&files).ok().map(Iterator::count);
    let before = open();
    let silent: Vec<TcpStream> = (0..100).map(|_| TcpStream::connect(address).expect("a connection")).collect();
    // Stalled connections delay no other client's response.
    (0..50).for_each(|_| assert_eq!(get(address, "/health").0, 200));
    // Most of the stalled connections had to be closed, long before their time was over.
    if let (Some(before), Some(with_silent)) = (before, open()) {
        assert!(with_silent < before + 50, "{before} descriptors, and {with_silent} with silent connections");
    }
    assert_eq!(server.raw().command(&["PING"]), Value::status("PONG"));
    drop(silent);
}

#[test]
fn a_busy_server_is_alive_but_not_ready() {
    let (server, address) = start(&["--busy-reply-threshold", "20"]);
    until(|| get(address, "/ready").0 == 200, "the server is ready");
    let mut runner: Raw = server.raw();
    runner.send_command(&["EVAL", "while true do end", "0"]);
    let mut other = server.raw();
    until(|| format!("{:?}", other.command(&["PING"])).contains("BUSY"), "the script is busy");
    assert_eq!((get(address, "/health").0, get(address, "/ready").0), (200, 503));
    let (status, text) = get(address, "/metrics");
    assert_eq!((status, Metrics::parse(&text).value("tidegate_busy", &[])), (503, Some(1.0)));
    assert_eq!(other.command(&["SCRIPT", "KILL"]), Value::status("OK"));
    assert!(matches!(runner.reply().value, Value::Error(_)));
    until(|| get(address, "/ready").0 == 200, "the server is ready again");
    assert_eq!(metrics(address).value("tidegate_script_kills_total", &[]), Some(1.0));
}

#[test]
fn a_loading_server_is_not_ready() {
    let dir = tempfile::tempdir().expect("a folder");
    let dir = dir.path().to_str().expect("plain text");
    let flags = ["--appendonly", "yes", "--dir", dir, "--enable-debug-command", "yes"];
    let server = Server::start(Program::Tidegate, &flags);
    server.raw().command(&["DEBUG", "POPULATE", "3000"]);
    drop(server);
    let address = free_address();
    let port = address.port().to_string();
    std::thread::scope(|scope| {
        // Slows loading down as if the data were far larger. The start ends when everything is loaded.
        let flags = ["--appendonly", "yes", "--dir", dir, "--key-load-delay", "1000", "--metrics-port", &port];
        let starting = scope.spawn(move || Server::start(Program::Tidegate, &flags));
        until(|| TcpStream::connect(address).is_ok(), "metrics are served");
        assert_eq!((get(address, "/health").0, get(address, "/ready").0), (200, 503));
        let found = metrics(address);
        let told = ["redis_loading_dump_file", "tidegate_ready"].map(|name| found.value(name, &[]));
        assert_eq!(told, [Some(1.0), Some(0.0)]);
        let _server = starting.join().expect("it starts");
        until(|| get(address, "/ready").0 == 200, "the data is there");
    });
}
