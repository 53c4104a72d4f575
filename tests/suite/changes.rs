//! `rdb_changes_since_last_save`, and with it the points of `save`, counts what Redis counts.
//!
//! Each line of `changes.txt` is a command, behind the number of changes that Redis 8.0 counts for it. Where there is one, it is asked
//! again.

use crate::differential::split_line;
use crate::harness::{Program, Raw, Server};
use crate::oracle::REDIS_SERVER_8;

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
    let mut raw = server.raw();
    let mut wrong = Vec::new();
    let mut before = changes(&mut raw);
    for line in include_str!("changes.txt").lines().filter(|line| !line.starts_with('#')) {
        let (wanted, command) = line.split_once(' ').expect("a number and a command");
        raw.command(&split_line(command).expect("words"));
        let after = changes(&mut raw);
        if after.wrapping_sub(before).to_string() != wanted {
            wrong.push(format!("{command}: {}, not {wanted}", after.wrapping_sub(before) as i64));
        }
        before = after;
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

fn changes(raw: &mut Raw) -> u64 {
    let info = raw.command(&["INFO", "persistence"]);
    let info = String::from_utf8_lossy(info.bytes().expect("text")).into_owned();
    let field = info.lines().find_map(|line| line.strip_prefix("rdb_changes_since_last_save:"));
    field.expect("INFO tells").parse().expect("a number")
}
