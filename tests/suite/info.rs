//! INFO: it has every field of Redis 8.0 except those listed here, each once, and its values are true.

use std::collections::{BTreeMap, BTreeSet};

use crate::harness::{Program, Server, Value};
use crate::oracle::REDIS_SERVER_8;

/// Fields of Redis 8.0 that this server lacks.
const LEFT_OUT: [(&str, &str); 5] = [
    ("allocator_active_lua", "Lua's memory comes from the allocator of all else"),
    ("allocator_allocated_lua", "Lua's memory comes from the allocator of all else"),
    ("allocator_frag_bytes_lua", "Lua's memory comes from the allocator of all else"),
    ("allocator_resident_lua", "Lua's memory comes from the allocator of all else"),
    ("eventloop_cmd_per_cycle_max", "commands are not counted by turns of the event loop: it would cost each of them"),
];

/// Prefixes of field names that vary by command, error, module and so on.
const BY_ITEM: [&str; 8] =
    ["cmdstat_", "errorstat_", "latency_percentiles_usec_", "io_thread_", "module", "listener", "db", "slave"];

fn info(server: &Server, sections: &[&str]) -> String {
    let reply = server.raw().command(&[&["INFO"], sections].concat());
    String::from_utf8_lossy(reply.bytes().expect("INFO answers text")).into_owned()
}

/// The fields of each section, by its heading.
fn sections(text: &str) -> BTreeMap<String, Vec<(String, String)>> {
    let mut sections = BTreeMap::<String, Vec<(String, String)>>::new();
    let mut heading = String::new();
    for line in text.lines().filter(|line| !line.is_empty()) {
        match line.strip_prefix("# ") {
            Some(name) => {
                heading = name.to_owned();
                assert!(sections.insert(heading.clone(), Vec::new()).is_none(), "section {name} comes twice");
            }
            None => {
                let (name, value) = line.split_once(':').unwrap_or_else(|| panic!("no field: {line}"));
                sections.get_mut(&heading).expect("a heading").push((name.to_owned(), value.to_owned()));
            }
        }
    }
    sections
}

fn names(text: &str) -> BTreeSet<(String, String)> {
    let by_item = |name: &str| BY_ITEM.iter().any(|start| name.starts_with(start));
    let fields = sections(text)
        .into_iter()
        .flat_map(|(section, fields)| fields.into_iter().map(move |(name, _)| (section.clone(), name)));
    fields.filter(|(_, name)| !by_item(name)).collect()
}

#[test]
fn every_field_of_redis_8_is_present() {
    if REDIS_SERVER_8.is_missing() {
        return;
    }
    let (ours, theirs) = (Server::start(Program::Tidegate, &[]), Server::start(Program::Redis8, &[]));
    let (ours, theirs) = [&ours, &theirs].map(|server| names(&info(server, &["everything", "debug"]))).into();
    assert!(theirs.len() > 150, "only {} fields to compare", theirs.len());
    let missing: Vec<_> =
        theirs.difference(&ours).filter(|(_, name)| LEFT_OUT.iter().all(|out| out.0 != name)).collect();
    assert!(missing.is_empty(), "fields of Redis 8.0 are missing: {missing:?}");
    for (name, why) in LEFT_OUT {
        assert!(!ours.iter().any(|(_, ours)| ours == name), "{name} is there, though {why}");
        assert!(theirs.iter().any(|(_, theirs)| theirs == name), "Redis has no {name}");
    }
}

#[test]
fn every_field_comes_once() {
    let server = Server::start(Program::Tidegate, &["--appendonly", "no"]);
    server.raw().command(&["SET", "k", "v"]);
    for asked in [&["everything", "debug", "all"][..], &[], &["default", "server"], &["cpu", "all"]] {
        let mut seen = BTreeSet::new();
        let fields = sections(&info(&server, asked)).into_values().flatten();
        fields.for_each(|(name, _)| assert!(seen.insert(name.clone()), "{name} comes twice in {asked:?}"));
    }
}

#[test]
fn sections_are_shown_on_request() {
    let server = Server::start(Program::Tidegate, &[]);
    let shown = |asked: &[&str]| sections(&info(&server, asked)).into_keys().collect::<BTreeSet<String>>();
    let default = shown(&[]);
    for name in ["Server", "Clients", "Memory", "Persistence", "Threads", "Stats", "Replication", "CPU", "Modules"] {
        assert!(default.contains(name), "{name} is not among {default:?}");
    }
    let hidden = ["Commandstats", "Latencystats", "Keysizes", "Debug"];
    assert!(hidden.iter().all(|name| !default.contains(*name)), "{default:?}");
    let all = shown(&["all"]);
    assert!(all.contains("Commandstats") && all.contains("Latencystats") && !all.contains("Debug"), "{all:?}");
    assert_eq!(shown(&["DEBUG"]), BTreeSet::from(["Debug".to_owned()]));
    assert_eq!(shown(&["nosuch"]), BTreeSet::new());
}

/// Fills databases with all types, and removes some of the data.
fn fill(server: &Server) {
    let mut raw = server.raw();
    let list = |name: &str, len: usize| {
        let elements = (0..len).map(|number| format!("element:{number}"));
        ["RPUSH".to_owned(), name.to_owned()].into_iter().chain(elements).collect::<Vec<_>>()
    };
    [1, 2, 3, 4, 1_023, 1_024].iter().for_each(|len| _ = raw.command(&list(&format!("list:{len}"), *len)));
    for call in [
        "SET empty |SET number 1234567890|SET short abc|SET long x|SETRANGE long 70000 x|APPEND short defgh|\
         PFADD hyper a",
        "SADD set a b c d|SREM set a|ZADD zset 1 a 2 b|HSET hash f v g w|HSETNX other f v|XADD stream * f v",
        "SELECT 3|SADD ints 1 2 3|SET gone x|DEL gone|RPUSH emptied x|RPOP emptied|SELECT 0|COPY list:3 copy DB 3",
    ] {
        for call in call.split('|') {
            let reply = raw.command(&call.split(' ').collect::<Vec<_>>());
            assert!(!matches!(reply, Value::Error(_)), "{call}: {reply:?}");
        }
    }
}

#[test]
fn sizes_of_keys_are_grouped_by_powers_of_two() {
    let server = Server::start(Program::Tidegate, &[]);
    assert_eq!(info(&server, &["keysizes"]), "# Keysizes\r\n");
    fill(&server);
    let wanted = "\
        # Keysizes\n\
        db0_distrib_strings_sizes:0=1,8=2,16=1,64K=1\n\
        db0_distrib_lists_items:1=1,2=2,4=1,512=1,1K=1\n\
        db0_distrib_sets_items:2=1\n\
        db0_distrib_zsets_items:2=1\n\
        db0_distrib_hashes_items:1=1,2=1\n\
        db3_distrib_lists_items:2=1\n\
        db3_distrib_sets_items:2=1\n";
    // The size of a HyperLogLog is up to each server.
    let ours = info(&server, &["KEYSIZES"]).replace("\r\n", "\n");
    assert_eq!(ours.lines().collect::<Vec<_>>()[2..], wanted.lines().collect::<Vec<_>>()[2..]);
    let strings = ours.lines().nth(1).expect("strings").strip_prefix("db0_distrib_strings_sizes:").expect("strings");
    let counts: BTreeMap<&str, u32> = strings
        .split(',')
        .filter_map(|field| field.split_once('='))
        .map(|(label, count)| (label, count.parse().expect("a count")))
        .collect();
    assert_eq!((counts["0"], counts["64K"], counts.values().sum::<u32>()), (1, 1, 5), "{strings}");
    assert!(counts["8"] >= 2, "{strings}");
    if !REDIS_SERVER_8.is_missing() {
        let theirs = Server::start(Program::Redis8, &[]);
        fill(&theirs);
        assert_eq!(ours, info(&theirs, &["keysizes"]).replace("\r\n", "\n"));
    }
}

#[test]
fn sizes_of_very_many_keys_are_estimated() {
    let server = Server::start(Program::Tidegate, &["--appendonly", "no"]);
    let mut raw = server.raw();
    let script = "for i = 1, 100000 do redis.call('SET', 'k' .. i, i % 4 == 0 and 'x' or 'long') end";
    assert_eq!(raw.command(&["EVAL", script, "0"]), Value::Null);
    let text = info(&server, &["keysizes"]);
    let counts: Vec<u32> =
        text.split(['=', ',', '\r']).filter_map(|word| word.parse().ok()).filter(|count| *count > 4).collect();
    let [short, long] = counts.as_slice() else { panic!("not two counts: {text}") };
    assert!((99_990..=100_010).contains(&(short + long)), "{text}");
    assert!((23_000..27_000).contains(short), "a quarter: {text}");
}

#[test]
fn figures_change_with_what_they_measure() {
    let server = Server::start(Program::Tidegate, &["--enable-debug-command", "yes"]);
    let mut raw = server.raw();
    let number = |name: &str| -> u64 {
        let fields = sections(&info(&server, &["everything", "debug"])).into_values().flatten();
        let value = fields.into_iter().find(|(field, _)| field == name).unwrap_or_else(|| panic!("no {name}")).1;
        value.parse().unwrap_or_else(|_| panic!("{name} is {value}"))
    };
    let moving = [
        "total_reads_processed",
        "total_writes_processed",
        "eventloop_cycles",
        "eventloop_duration_sum",
        "eventloop_duration_cmd_sum",
    ];
    let before = moving.map(number);
    raw.command(&["DEBUG", "SLEEP", "0.02"]);
    let after = moving.map(number);
    assert!(before.iter().zip(&after).all(|(before, after)| before < after), "{moving:?}: {before:?}, then {after:?}");
    assert!(after[3] - before[3] >= 20_000 && after[4] - before[4] >= 20_000, "{before:?}, then {after:?}");
    assert!(number("eventloop_duration_max") >= 20_000);
    let payload = raw.command(&["DUMP", "nosuch"]);
    assert_eq!(payload, Value::Null);
    raw.command(&["RESTORE", "k", "0", "no payload"]);
    assert_eq!(number("dump_payload_sanitizations"), 1);
    let name = |server: &Server| {
        let fields = sections(&info(server, &["replication"])).into_values().flatten();
        fields.into_iter().find(|(field, _)| field == "master_replid").expect("a name").1
    };
    let first = name(&server);
    assert_eq!(raw.command(&["DEBUG", "CHANGE-REPL-ID"]), Value::status("OK"));
    assert!(first.len() == 40 && name(&server) != first);
}

#[test]
fn debug_subcommands_report_internals_or_an_error() {
    let server = Server::start(Program::Tidegate, &["--enable-debug-command", "yes"]);
    let mut raw = server.raw();
    raw.command(&["SET", "name", "value"]);
    raw.command(&["SET", "number", "12"]);
    raw.command(&["SADD", "set", &"x".repeat(100)]);
    let mut told = |words: &[&str]| format!("{:?}", raw.command(&[&["DEBUG"], words].concat()));
    for (words, wanted) in [
        (&["ERROR", "MYERR a\r\nb"][..], "(error) MYERR a  b"),
        (&["STRINGMATCH-TEST"], "+Apparently Redis did not crash: test passed"),
        (&["PAUSE-CRON", "1"], "+OK"),
        (&["PAUSE-CRON", "0"], "+OK"),
        (&["SDSLEN", "nosuch"], "(error) ERR no such key"),
        (&["SDSLEN", "number"], "(error) ERR Not an sds encoded string."),
        (&["SDSLEN", "set"], "(error) ERR Not an sds encoded string."),
        (&["HTSTATS", "99"], "(error) ERR Out of range database"),
        (&["HTSTATS", "1"], "\"[Dictionary HT]\\n[Expires HT]\\n\""),
        (&["HTSTATS-KEY", "nosuch"], "(error) ERR no such key"),
        (&["DICT-RESIZING", "0"], "(error) ERR DEBUG DICT-RESIZING is not supported: no table is resized as a whole"),
        (
            &["REPLYBUFFER", "RESIZING", "0"],
            "(error) ERR DEBUG REPLYBUFFER is not supported: no connection keeps a buffer for replies",
        ),
        (&["ERROR"], "(error) ERR unknown subcommand or wrong number of arguments for \\'ERROR\\'. Try DEBUG HELP."),
    ] {
        assert_eq!(told(words), wanted, "DEBUG {words:?}");
    }
    let lengths = told(&["SDSLEN", "name"]);
    assert!(
        lengths.starts_with("+key_sds_len:4, key_sds_avail:0, ") && lengths.contains("val_sds_len:5, "),
        "{lengths}"
    );
    assert!(told(&["HTSTATS", "0"]).contains("number of elements: 3"));
    assert!(told(&["HTSTATS-KEY", "set"]).contains("number of elements: 1"));
    assert!(told(&["HELP"]).contains("HTSTATS-KEY"));
}

#[test]
fn debug_gives_long_elements_a_node_for_themselves() {
    let server = Server::start(Program::Tidegate, &["--enable-debug-command", "yes"]);
    let mut raw = server.raw();
    let mut bytes_of_list = |threshold: &str| {
        assert_eq!(
            raw.command(&["DEBUG", "QUICKLIST-PACKED-THRESHOLD", threshold]),
            Value::status("OK"),
            "{threshold}"
        );
        // The threshold is not a parameter, so CONFIG SET does not reset it.
        assert_eq!(raw.command(&["CONFIG", "SET", "maxclients", "1000"]), Value::status("OK"));
        raw.command(&["DEL", "list"]);
        for number in 0..1_000 {
            raw.command(&["RPUSH", "list", &format!("element number {number:4}")]);
        }
        let Value::Integer(bytes) = raw.command(&["MEMORY", "USAGE", "list"]) else { panic!("a list is there") };
        bytes
    };
    let (usual, apart, within) = (bytes_of_list("0"), bytes_of_list("10b"), bytes_of_list("100b"));
    assert!(apart > 2 * usual && within == usual, "{usual} {apart} {within}");
    for size in ["4gb", "-1", "x", "99999999999999999999"] {
        let reply = raw.command(&["DEBUG", "QUICKLIST-PACKED-THRESHOLD", size]);
        assert_eq!(
            reply,
            Value::error("ERR argument must be a memory value bigger than 1 and smaller than 4gb"),
            "{size}"
        );
    }
}

/// Error names may come from scripts, and parameters take any text.
#[test]
fn texts_from_clients_cannot_forge_fields() {
    let (server, mut raw) = Server::with_client(Program::Tidegate);
    let answer = raw.command(&["EVAL", r"return redis.error_reply('\27[31mX:count=9,y z')", "0"]);
    assert!(matches!(answer, Value::Error(_)), "{answer:?}");
    assert_eq!(raw.command(&["CONFIG", "SET", "availability-zone", "a\r\nrole:FORGED\u{1b}"]), Value::status("OK"));
    let text = info(&server, &["everything"]);
    assert!(text.contains("\r\nerrorstat__[31mX_count_9_y:count=1\r\n"), "{text}");
    assert!(text.contains("\r\navailability_zone:a__role:FORGED_\r\n"), "{text}");
}
