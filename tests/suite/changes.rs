//! `rdb_changes_since_last_save`, and with it the points of `save`, counts as Redis counts. WATCH treats the same keys
//! as changed as Redis does, also where a command makes no visible change.
//!
//! Each line of `changes.txt` holds Redis 8.0's result and the command. If a Redis 8.0 is available, it is asked again.

use crate::differential::split_line;
use crate::harness::{Program, Raw, Server, Value};
use crate::oracle::REDIS_SERVER_8;

/// The most keys that a command names.
const WATCHED_MAX: usize = 6;

#[test]
fn changes_are_counted_as_in_redis() {
    assert_counts(Program::Tidegate);
}

#[test]
fn the_numbers_are_those_of_redis_8() {
    if !REDIS_SERVER_8.is_missing() {
        assert_counts(Program::Redis8);
    }
}

fn assert_counts(program: Program) {
    let server = Server::start(program, &["--enable-debug-command", "yes"]);
    // The keys come from our command table: Redis' table omits keys of commands whose keys are optional.
    let names = Server::start(Program::Tidegate, &[]);
    let (mut raw, mut names) = (server.raw(), names.raw());
    let mut watchers: Vec<Raw> = (0..WATCHED_MAX).map(|_| server.raw()).collect();
    let (mut wrong, mut watched) = (Vec::new(), 0);
    for line in include_str!("changes.txt").lines().filter(|line| !line.starts_with('#')) {
        let (wanted, command) = line.split_once(' ').expect("the expected result, and a command");
        let args = split_line(command).expect("words");
        let keys = keys_of(&args, &mut names);
        for (watcher, key) in watchers.iter_mut().zip(&keys) {
            watcher.command(&[b"WATCH", &key[..]]);
        }
        let before = changes(&mut raw);
        raw.command(&args);
        let count = changes(&mut raw).wrapping_sub(before) as i64;
        let mut told = Vec::new();
        for (watcher, key) in watchers.iter_mut().zip(&keys) {
            watcher.command(&["MULTI"]);
            if watcher.command(&["EXEC"]) == Value::Null {
                told.push(String::from_utf8_lossy(key));
            }
        }
        watched += told.len();
        let found = match (wanted.ends_with('~'), told.is_empty()) {
            (true, _) => format!("{count}~"),
            (false, true) => count.to_string(),
            (false, false) => format!("{count}:{}", told.join(",")),
        };
        if found != wanted {
            wrong.push(format!("{command}: {found}, not {wanted}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(watched > 150, "only {watched} keys were reported");
}

/// The keys that a command names, each once; `a` if it names none.
fn keys_of(args: &[Vec<u8>], names: &mut Raw) -> Vec<Vec<u8>> {
    let question = [b"COMMAND".to_vec(), b"GETKEYS".to_vec()];
    let mut keys: Vec<Vec<u8>> = Vec::new();
    if let Value::Array(named) = names.command(&[&question[..], args].concat()) {
        for key in named.iter().filter_map(Value::bytes) {
            if !keys.iter().any(|known| known == key) {
                keys.push(key.to_vec());
            }
        }
    }
    if keys.is_empty() {
        keys.push(b"a".to_vec());
    }
    assert!(keys.len() <= WATCHED_MAX, "more keys than are watched");
    keys
}

fn changes(raw: &mut Raw) -> u64 {
    let info = raw.command(&["INFO", "persistence"]);
    let info = String::from_utf8_lossy(info.bytes().expect("text")).into_owned();
    let field = info.lines().find_map(|line| line.strip_prefix("rdb_changes_since_last_save:"));
    field.expect("INFO tells").parse().expect("a number")
}
