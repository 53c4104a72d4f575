//! How a server imports Redis' data found at its start: slice by slice, and all of it or nothing.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;

use crate::base::clock::Clock;
use crate::base::rng::Rng;
use crate::command;
use crate::config::Config;
use crate::engine::Engine;
use crate::engine::persistence::recovery::Step;
use crate::log::error::LogError;
use crate::persist::error::RecoveryError;
use crate::rdb::file::Writer;
use crate::resp::reply::{Form, Reply};
use crate::resp::request::Decoder;
use crate::server::{Data, Start, StartError};
use crate::session::Peer;
use crate::spec::session_key::SessionKey;

const KEYS: usize = 20_000;

/// A dump file of Redis: numbered strings, every hundredth of which expires far in the future, a hash and a library.
fn dump() -> Vec<u8> {
    let mut writer = Writer::new(Vec::new(), 10);
    writer.library(b"#!lua name=lib\nredis.register_function('f', function() return 7 end)").unwrap();
    for n in 0..KEYS {
        let expires_at_ms = n.is_multiple_of(100).then_some(4_102_444_800_000);
        let value = format!("\0\x1evalue:{n:024}");
        writer.key(0, format!("key:{n}").as_bytes(), expires_at_ms, value.as_bytes()).unwrap();
    }
    writer.key(3, b"hash", None, b"\x04\x02\x01f\x01v\x01g\x01w").unwrap();
    writer.finish().unwrap()
}

/// A folder that holds this file, as left by Redis.
fn folder(name: &str, bytes: impl AsRef<[u8]>) -> tempfile::TempDir {
    let dir = tempfile::tempdir().expect("a folder");
    std::fs::write(dir.path().join(name), bytes).expect("space for a file");
    dir
}

/// Starts a server in `dir`, with a journal. Its hashes have one entry before they become tables.
fn begin(dir: &Path) -> (Engine, Start) {
    try_begin(dir, true).unwrap_or_else(|error| panic!("{error}"))
}

fn try_begin(dir: &Path, appendonly: bool) -> Result<(Engine, Start), StartError> {
    loop {
        let config = Config { dir: dir.to_owned(), hash_max_listpack_entries: 1, appendonly, ..Config::default() };
        let mut engine = Engine::new(config, command::table(), Clock::system(), Rng::seeded(1)).expect("memory");
        match Start::begin(&mut engine, &Arc::new(Notify::new()), &mut None) {
            // The thread of the previous server, which was dropped, has not ended yet.
            Err(StartError::Recovery { source: RecoveryError::Log(LogError::Locked { .. }) }) => {
                std::thread::yield_now()
            }
            start => return start.map(|start| (engine, start)),
        }
    }
}

/// Loads one slice; false when everything is loaded.
fn load_slice(engine: &mut Engine, start: &mut Start) -> bool {
    loop {
        match start.step(engine).unwrap_or_else(|error| panic!("{error}")) {
            Step::Wait => std::thread::sleep(Duration::from_millis(1)),
            step => return step == Step::More,
        }
    }
}

/// Loads until loading is refused. Returns the reason.
fn refusal(engine: &mut Engine, start: &mut Start) -> String {
    loop {
        match start.step(engine) {
            Ok(Step::Complete) => panic!("it was taken"),
            Ok(_) => {}
            Err(error) => break error.to_string(),
        }
    }
}

fn load_all(dir: &Path) -> Engine {
    let (mut engine, mut start) = begin(dir);
    while load_slice(&mut engine, &mut start) {}
    start.finish(&mut engine).unwrap_or_else(|error| panic!("{error}"));
    engine
}

fn ask(engine: &mut Engine, client: SessionKey, line: &str) -> String {
    let mut reply = Reply::new(Form::Resp2);
    engine.feed(client, &mut Decoder::new(), format!("{line}\r\n").as_bytes(), &mut reply);
    String::from_utf8_lossy(reply.as_bytes()).replace("\r\n", " ")
}

/// Sends commands as one client, and compares the replies.
fn assert_answers<A: AsRef<str>>(engine: &mut Engine, answers: &[(&str, A)]) {
    let client = engine.server.open_session(Peer::default());
    for (line, answer) in answers {
        assert_eq!(ask(engine, client, line), answer.as_ref(), "{line}");
    }
}

fn assert_has_all(engine: &mut Engine) {
    let answers = [
        ("DBSIZE", format!(":{KEYS} ")),
        ("GET key:7", format!("$30 value:{:024} ", 7)),
        ("PEXPIRETIME key:100", ":4102444800000 ".to_owned()),
        ("FCALL f 0", ":7 ".to_owned()),
        ("SELECT 3", "+OK ".to_owned()),
        ("HGET hash g", "$1 w ".to_owned()),
        ("OBJECT ENCODING hash", "$9 hashtable ".to_owned()),
    ];
    assert_answers(engine, &answers);
}

/// The names of the complete snapshots.
fn snapshots(dir: &Path) -> Vec<String> {
    let names = std::fs::read_dir(dir.join("tidegate-data")).into_iter().flatten().flatten();
    let names = names.map(|entry| entry.file_name().to_string_lossy().into_owned());
    names.filter(|name| name.ends_with(".snap")).collect()
}

#[test]
fn a_dump_is_loaded_in_slices_while_a_snapshot_is_written() {
    let dir = folder("dump.rdb", dump());
    let (mut engine, mut start) = begin(dir.path());
    let client = engine.server.open_session(Peer::default());
    let (mut slices, mut read) = (0, 0);
    while load_slice(&mut engine, &mut start) {
        slices += 1;
        assert_eq!(ask(&mut engine, client, "GET key:0"), "-LOADING Redis is loading the dataset in memory ");
        // RESET does not get a client out of that state.
        assert_eq!(ask(&mut engine, client, "RESET"), "+RESET ");
        let progress = engine.server.persistence.loading.expect("it is loading");
        assert!(progress.read >= read && progress.read <= progress.all, "{progress:?} after {read}");
        read = progress.read;
    }
    assert!(slices > 10, "{slices}");
    let said = start.finish(&mut engine).unwrap();
    assert!(said.contains(&format!("{} keys, Lsn 1)", KEYS + 1)) && said.contains("every OK is on disk"), "{said}");
    assert_eq!(snapshots(dir.path()).len(), 1);
    assert_has_all(&mut engine);
    assert_eq!(ask(&mut engine, client, "SET key:7 changed"), "+OK ");
    engine.server.persistence.close().unwrap();
    drop(engine);

    // Data once imported is not imported again, and later writes are there.
    let mut engine = load_all(dir.path());
    let set_back = ("SET key:7 value:000000000000000000000007", "+OK ");
    assert_answers(&mut engine, &[("GET key:7", "$7 changed "), set_back]);
    assert_has_all(&mut engine);
}

#[test]
fn an_aborted_start_leaves_nothing_behind() {
    let dir = folder("dump.rdb", dump());
    let mut ended_early = 0;
    for slices in 0.. {
        let (mut engine, mut start) = begin(dir.path());
        assert!(matches!(start.data, Data::Import { is_saved: true, .. }), "after {slices} slices");
        let goes_on = (0..slices).all(|_| load_slice(&mut engine, &mut start));
        if !goes_on {
            break;
        }
        assert!(snapshots(dir.path()).is_empty(), "after {slices} slices");
        ended_early += 1;
    }
    assert!(ended_early > 10, "{ended_early}");
    // The last server had everything, and it was durable before any client could be answered.
    assert_eq!(snapshots(dir.path()).len(), 1);
    assert_has_all(&mut load_all(dir.path()));
}

#[test]
fn commands_after_a_dump_are_applied_and_saved() {
    let mut file = dump();
    for line in ["SELECT 3", "HSET hash h x", "MULTI", "SET a 1", "INCR a", "EXEC", "SELECT 0", "DEL key:1"] {
        let words: Vec<&str> = line.split(' ').collect();
        file.extend_from_slice(format!("*{}\r\n", words.len()).as_bytes());
        words.iter().for_each(|word| file.extend_from_slice(format!("${}\r\n{word}\r\n", word.len()).as_bytes()));
    }
    let dir = folder("appendonly.aof", file);
    for _ in 0..2 {
        let keys = format!(":{} ", KEYS - 1);
        let answers = [("DBSIZE", &*keys), ("SELECT 3", "+OK "), ("GET a", "$1 2 "), ("HLEN hash", ":3 ")];
        assert_answers(&mut load_all(dir.path()), &answers);
    }
}

#[test]
fn a_damaged_dump_is_refused_and_nothing_is_kept() {
    let dir = tempfile::tempdir().unwrap();
    let (whole, path) = (dump(), dir.path().join("dump.rdb"));
    let mut twice = Writer::new(Vec::new(), 10);
    [1, 2].iter().for_each(|_| twice.key(0, b"k", None, b"\0\x01v").unwrap());
    let mut flipped = whole.clone();
    let value = b"value:000000000000000000010000";
    let at = whole.windows(value.len()).position(|window| window == value).unwrap();
    flipped[at + value.len() - 1] ^= 1;
    for (file, why) in
        [(&whole[..whole.len() - 3], "cut off"), (&flipped, "checksum"), (&twice.finish().unwrap(), "it occurs twice")]
    {
        std::fs::write(&path, file).unwrap();
        let (mut engine, mut start) = begin(dir.path());
        let error = refusal(&mut engine, &mut start);
        assert!(error.contains(why), "{error}, not {why}");
        drop((engine, start));
        assert!(snapshots(dir.path()).is_empty());
    }
    std::fs::write(&path, &whole).unwrap();
    assert_has_all(&mut load_all(dir.path()));
}

#[test]
fn a_torn_end_is_ignored_unless_that_is_forbidden() {
    let whole = "*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$1\r\nv\r\n";
    let dir = folder("appendonly.aof", format!("{whole}{}", &whole[..20]));
    let (mut engine, mut start) = begin(dir.path());
    engine.server.config.aof_load_truncated = false;
    let error = refusal(&mut engine, &mut start);
    assert!(error.contains("offset 27: Unexpected end of file reading the append only file"), "{error}");
    drop((engine, start));
    assert_answers(&mut load_all(dir.path()), &[("GET k", "$1 v ")]);
}

/// Time passes while data is loaded. A snapshot begun in that time would take the number of the first write.
#[test]
fn no_second_snapshot_begins_during_an_import() {
    let dir = folder("dump.rdb", dump());
    let (mut engine, mut start) = begin(dir.path());
    loop {
        let step = start.step(&mut engine).unwrap_or_else(|error| panic!("{error}"));
        engine.tick();
        while engine.save_slice() {}
        match step {
            Step::Complete => break,
            Step::Wait => std::thread::sleep(Duration::from_millis(1)),
            Step::More => {}
        }
    }
    start.finish(&mut engine).unwrap_or_else(|error| panic!("{error}"));
    assert_answers(&mut engine, &[("SET first write", "+OK ")]);
    engine.server.persist(&mut engine.ks, |persistence, _, _| persistence.drain());
    assert_eq!(snapshots(dir.path()).len(), 1);
    drop(engine);
    assert_answers(&mut load_all(dir.path()), &[("GET first", "$5 write ")]);
}

#[test]
fn damaged_data_is_not_taken_for_an_empty_folder() {
    let dir = folder("dump.rdb", dump());
    drop(load_all(dir.path()));
    let data = dir.path().join("tidegate-data");
    for file in std::fs::read_dir(&data).unwrap().map(|file| file.unwrap().path()) {
        let name = file.file_name().unwrap().to_string_lossy().into_owned();
        if name.ends_with(".snap") {
            let bytes = std::fs::read(&file).unwrap();
            std::fs::write(&file, &bytes[..bytes.len() - 1]).unwrap();
        } else if name.ends_with(".seg") {
            std::fs::remove_file(&file).unwrap();
        }
    }
    for appendonly in [false, true] {
        let refused = match try_begin(dir.path(), appendonly) {
            Err(error) => error.to_string(),
            Ok((mut engine, mut start)) => refusal(&mut engine, &mut start),
        };
        assert!(refused.contains(".snap"), "{refused}");
    }
}
