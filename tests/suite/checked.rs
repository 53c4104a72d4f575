//! `tidegate check`, as an operator runs it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::harness::{Program, Server, Value};

fn start(dir: &Path) -> Server {
    let dir = dir.to_str().expect("a path of plain text");
    Server::start(Program::Tidegate, &["--dir", dir, "--appendonly", "yes"])
}

/// Runs the command; returns its exit code and its output.
fn check(args: &[&str], dir: &Path) -> (i32, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_tidegate")).arg("check").args(args).arg(dir).output();
    let output = output.expect("the program of this build");
    let said = [output.stdout, output.stderr].concat();
    (output.status.code().expect("no signal"), String::from_utf8_lossy(&said).into_owned())
}

/// All files with their content.
fn files(dir: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let entries = std::fs::read_dir(dir).expect("a folder").map(|entry| entry.expect("an entry").path());
    entries.filter(|path| path.is_file()).map(|path| (path.clone(), std::fs::read(&path).expect("a file"))).collect()
}

#[test]
fn data_is_checked_while_no_server_runs() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("tidegate-data");
    let (code, said) = check(&[], &data);
    assert_eq!(code, 2, "{said}");
    assert!(!data.exists());

    let server = start(dir.path());
    let mut c = server.raw();
    for n in 0..100 {
        assert_eq!(c.command(&["SET", &format!("key:{n}"), "some value"]), Value::status("OK"));
    }
    assert_eq!(c.command(&["EVAL", "return redis.call('HSET', KEYS[1], 'f', 'v')", "1", "h"]), Value::Integer(1));
    let (code, said) = check(&[], &data);
    assert_eq!(code, 2, "{said}");
    assert!(said.contains("tidegate-data: a server is using this directory"), "{said}");
    assert_eq!(check(&["--repair"], &data).0, 2);
    assert_eq!(c.command(&["DBSIZE"]), Value::Integer(101), "the check does not disturb a running server");
    drop(server);

    let before = files(&data);
    let (code, said) = check(&[], &data);
    assert_eq!(code, 0, "{said}");
    assert!(said.contains("good: all data up to Lsn "), "{said}");
    assert!(files(&data) == before);
}

#[test]
fn only_a_repair_cuts_a_damaged_log() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("tidegate-data");
    let server = start(dir.path());
    let mut c = server.raw();
    for n in 0..100 {
        c.command(&["SET", &format!("key:{n}"), "some value"]);
    }
    drop(server);
    let (segment, mut bytes) = files(&data)
        .into_iter()
        .find(|(_, bytes)| memchr::memmem::find(bytes, b"key:50").is_some())
        .expect("it is logged");
    let at = memchr::memmem::find(&bytes, b"key:50").expect("it was there");
    bytes[at] ^= 1;
    std::fs::write(&segment, bytes).unwrap();

    let before = files(&data);
    let (code, said) = check(&[], &data);
    assert_eq!(code, 1, "{said}");
    assert!(said.contains(&format!("{}: damaged at offset ", segment.display())), "{said}");
    assert!(files(&data) == before, "a check changes nothing");

    let (code, said) = check(&["--repair"], &data);
    assert_eq!(code, 0, "{said}");
    assert!(said.contains("lost: Lsn ") && said.contains("backup copy: "), "{said}");
    let server = start(dir.path());
    let mut c = server.raw();
    assert_eq!(c.command(&["DBSIZE"]), Value::Integer(50), "{said}");
    assert_eq!(c.command(&["SET", "key:50", "again"]), Value::status("OK"));
    drop(server);
    assert_eq!(start(dir.path()).raw().command(&["DBSIZE"]), Value::Integer(51));
}
