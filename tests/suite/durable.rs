//! Promises of the journal beyond `kill -9` (for which see [`kills`](crate::kills)): an orderly end, damage that is
//! found and named, a disk that is full or fails, and the replies that clients get in these cases.

use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::harness::{Program, REPLY_DEADLINE, Raw, Server, Value, free_port, launch_command, until};
use crate::oracle::{SMALL_DISK, SmallDisk};

/// Bytes of a segment's header; the blocks follow it (docs/log-format.md).
const HEADER_BYTES: usize = 4096;

fn start(dir: &Path) -> Server {
    start_with(dir, &[])
}

fn start_with(dir: &Path, flags: &[&str]) -> Server {
    let dir = dir.to_str().expect("a path of plain text");
    Server::start(Program::Tidegate, &[&["--dir", dir, "--appendonly", "yes"], flags].concat())
}

/// Starts a server that is expected to refuse; returns its output.
pub(crate) fn refusal(dir: &Path) -> String {
    refusal_with(dir, &[])
}

/// Like the above, with flags.
pub(crate) fn refusal_with(dir: &Path, flags: &[&str]) -> String {
    let command_line = launch_command(Program::Tidegate);
    let output = Command::new(&command_line[0])
        .args(&command_line[1..])
        .args(["--appendonly", "yes", "--port", &free_port().to_string(), "--bind", "127.0.0.1", "--dir"])
        .arg(dir)
        .args(flags)
        .stdin(Stdio::null())
        .output()
        .expect("a server that has started before");
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said).into_owned();
    assert!(!output.status.success(), "the server reported success: {said}");
    said
}

/// Segments that hold blocks, oldest first.
fn segments(dir: &Path) -> Vec<PathBuf> {
    let files = std::fs::read_dir(dir.join("tidegate-data")).expect("the folder of the data");
    let mut segments: Vec<PathBuf> = files
        .map(|file| file.expect("a file").path())
        .filter(|path| {
            path.extension().is_some_and(|extension| extension == "seg") && end_of_blocks(path) > HEADER_BYTES
        })
        .collect();
    segments.sort();
    segments
}

/// The end of the last nonzero byte, rounded up to the start of the next block.
pub(crate) fn end_of_blocks(segment: &Path) -> usize {
    let bytes = std::fs::read(segment).expect("a segment");
    bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| (last + 1).next_multiple_of(8))
}

fn overwrite(segment: &Path, bytes: &[u8], at: usize) {
    let file = OpenOptions::new().write(true).open(segment).expect("a segment");
    file.write_all_at(bytes, at as u64).expect("a write to a segment");
}

pub(crate) fn info(c: &mut Raw, field: &str) -> String {
    let all = c.command(&["INFO", "persistence"]);
    let all = String::from_utf8(all.bytes().expect("a text").to_vec()).expect("plain text");
    let value = all.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
    value.unwrap_or_else(|| panic!("no {field} in {all}")).to_owned()
}

pub(crate) fn is_misconf(value: &Value) -> bool {
    matches!(value, Value::Error(text) if text.starts_with(b"MISCONF Errors writing to the AOF file: "))
}

#[test]
fn a_second_server_cannot_open_the_directory() {
    let dir = tempfile::tempdir().unwrap();
    let server = start(dir.path());
    assert_eq!(server.raw().command(&["SET", "k", "v"]), Value::status("OK"));
    let said = refusal(dir.path());
    assert!(said.contains("tidegate-data: another server is using this directory"), "{said}");
    assert_eq!(server.raw().command(&["GET", "k"]), Value::bulk("v"), "the first server continues to serve");
}

#[test]
fn an_orderly_shutdown_is_distinguished_from_a_kill() {
    let dir = tempfile::tempdir().unwrap();
    let killed = "the previous server was killed; nothing is missing";
    for policy in ["always", "everysec", "no"] {
        let mut server = start_with(dir.path(), &["--appendfsync", policy]);
        let mut c = server.raw();
        c.command(&["SET", "k", policy]);
        c.send_command(&["SHUTDOWN"]);
        c.read_to_end();
        assert!(server.ends_well(), "{}", server.log());
        let server = start(dir.path());
        until(|| server.log().contains("Ready to accept"), "the server has printed its report");
        assert!(!server.log().contains(killed), "{}", server.log());
        assert_eq!(server.raw().command(&["GET", "k"]), Value::bulk(policy));
        drop(server);
        let server = start(dir.path());
        until(|| server.log().contains(killed), "the server reports it");
        assert_eq!(server.raw().command(&["GET", "k"]), Value::bulk(policy));
    }
}

#[test]
fn a_torn_tail_is_cut_off_and_reported() {
    let dir = tempfile::tempdir().unwrap();
    let server = start(dir.path());
    let mut c = server.raw();
    for n in 0..10 {
        c.command(&["SET", &format!("key:{n}"), "v"]);
    }
    drop(server);
    // An interrupted write: a block's first bytes, then leftover bytes.
    let segment = segments(dir.path()).pop().expect("a segment with blocks");
    let end = end_of_blocks(&segment);
    overwrite(&segment, &[b"TGB1".as_slice(), &[0xa5; 500]].concat(), end);
    let server = start(dir.path());
    let cut = format!("{}: cut off at offset {end}, where a crash interrupted a write", segment.display());
    until(|| server.log().contains(&cut), &cut);
    assert_eq!(server.raw().command(&["DBSIZE"]), Value::Integer(10));
    // The torn tail is reported once: later writes do not follow it.
    server.raw().command(&["SET", "later", "v"]);
    drop(server);
    let server = start(dir.path());
    until(|| server.log().contains("Ready to accept"), "the server has printed its report");
    assert!(!server.log().contains("cut off"), "{}", server.log());
    assert_eq!(server.raw().command(&["DBSIZE"]), Value::Integer(11));
}

#[test]
fn a_flipped_bit_is_found_and_its_place_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let server = start(dir.path());
    let mut c = server.raw();
    for n in 0..100 {
        c.command(&["SET", &format!("key:{n}"), "some value"]);
    }
    drop(server);
    let segment = segments(dir.path()).pop().expect("a segment with blocks");
    let bytes = std::fs::read(&segment).unwrap();
    let middle = (HEADER_BYTES + end_of_blocks(&segment)) / 2;
    let block = (HEADER_BYTES..middle).rev().find(|at| bytes[*at..].starts_with(b"TGB1")).expect("a block");
    overwrite(&segment, &[bytes[middle] ^ 4], middle);
    for _ in 0..2 {
        let said = refusal(dir.path());
        assert!(said.contains(&format!("{}: damaged at offset {block}, where Lsn ", segment.display())), "{said}");
    }
    // Nothing was changed: with the byte restored all data is back.
    overwrite(&segment, &[bytes[middle]], middle);
    assert_eq!(start(dir.path()).raw().command(&["DBSIZE"]), Value::Integer(100));
}

#[test]
fn a_missing_segment_is_detected() {
    let dir = tempfile::tempdir().unwrap();
    for n in 0..3 {
        let server = start(dir.path());
        server.raw().command(&["SET", &format!("key:{n}"), "v"]);
    }
    let oldest = segments(dir.path()).remove(0);
    let aside = dir.path().join("aside");
    std::fs::rename(&oldest, &aside).unwrap();
    let said = refusal(dir.path());
    assert!(
        said.contains(&format!("{}: missing; the journal can't be read from Lsn 1 without it", oldest.display())),
        "{said}"
    );
    std::fs::rename(&aside, &oldest).unwrap();
    let identity = dir.path().join("tidegate-data/ID");
    std::fs::rename(&identity, &aside).unwrap();
    let said = refusal(dir.path());
    assert!(said.contains("ID: the directory's identity is missing or damaged"), "{said}");
    std::fs::rename(&aside, &identity).unwrap();
    assert_eq!(start(dir.path()).raw().command(&["DBSIZE"]), Value::Integer(3));
}

#[test]
fn a_copy_of_the_folder_is_a_backup() {
    let (dir, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    drop({
        let server = start(dir.path());
        server.raw().command(&["SET", "k", "v"]);
        server
    });
    let copied = Command::new("cp").arg("-a").arg(dir.path().join("tidegate-data")).arg(other.path()).status();
    assert!(copied.expect("cp is everywhere").success());
    let (original, copy) = (start(dir.path()), start(other.path()));
    original.raw().command(&["DEL", "k"]);
    assert_eq!(copy.raw().command(&["GET", "k"]), Value::bulk("v"));
}

#[test]
fn the_sync_policy_can_be_changed_at_run_time() {
    let dir = tempfile::tempdir().unwrap();
    let server = start(dir.path());
    let mut c = server.raw();
    assert_eq!(info(&mut c, "aof_enabled"), "1");
    let mut last: u64 = info(&mut c, "log_last_lsn").parse().unwrap();
    for policy in ["everysec", "no", "always", "no"] {
        assert_eq!(c.command(&["CONFIG", "SET", "appendfsync", policy]), Value::status("OK"));
        for n in 0..5 {
            assert_eq!(c.command(&["SET", policy, &n.to_string()]), Value::status("OK"));
        }
        last += 5;
        let logged = c.command(&["WAITAOF", "1", "0", "0"]);
        assert_eq!(logged, Value::Array(vec![Value::Integer(1), Value::Integer(0)]));
        assert_eq!(info(&mut c, "log_last_lsn"), last.to_string());
        assert_eq!(info(&mut c, "log_durable_lsn"), last.to_string());
        assert_eq!(info(&mut c, "aof_last_write_status"), "ok");
    }
    // A command without effect makes no unit; the expiry of a key makes one.
    c.command(&["GET", "no"]);
    c.command(&["DEL", "nosuch"]);
    assert_eq!(info(&mut c, "log_last_lsn"), last.to_string());
    drop(server);
    let server = start(dir.path());
    assert_eq!(server.raw().command(&["MGET", "everysec", "no", "always"]), Value::Array(vec![Value::bulk("4"); 3]));
}

#[test]
fn without_a_journal_nothing_is_written_and_waitaof_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(Program::Tidegate, &["--dir", dir.path().to_str().unwrap(), "--appendonly", "no"]);
    let mut c = server.raw();
    c.command(&["SET", "k", "v"]);
    assert_eq!(info(&mut c, "aof_enabled"), "0");
    let refused = c.command(&["WAITAOF", "1", "0", "0"]);
    let text = "ERR WAITAOF cannot be used when numlocal is set but appendonly is disabled.";
    assert_eq!(refused, Value::error(text));
    assert!(!dir.path().join("tidegate-data").exists());
}

#[test]
fn on_a_full_disk_reads_continue_and_writes_wait_for_space() {
    if SMALL_DISK.is_missing() {
        return;
    }
    let disk = SmallDisk::mount("8m").expect("a disk, as the probe had one");
    let server = start(disk.path());
    let mut c = server.raw();
    let value = "x".repeat(10_000);
    let mut acknowledged = 0;
    let refused = loop {
        match c.command(&["SET", &format!("key:{acknowledged}"), &value]) {
            Value::Status(_) => acknowledged += 1,
            refused => break refused,
        }
        assert!(acknowledged < 2000, "the disk accepts more than its size");
    };
    assert_eq!(refused, Value::error("MISCONF Errors writing to the AOF file: No space left on device"));
    assert_eq!(info(&mut c, "aof_last_write_status"), "err");
    assert_eq!(c.command(&["DBSIZE"]), Value::Integer(acknowledged));
    assert_eq!(c.command(&["GET", "key:0"]), Value::bulk(&value));
    let script = "return redis.pcall('SET', KEYS[1], 'v')";
    let of_script = c.command(&["EVAL", script, "1", "key:0"]);
    assert!(is_misconf(&of_script), "{of_script:?}");
    assert!(is_misconf(&c.command(&["PING"])), "PING reports the failed write");
    // Acknowledged writes are on the disk, although it is full.
    drop(server);
    let server = start(disk.path());
    let mut c = server.raw();
    assert_eq!(c.command(&["DBSIZE"]), Value::Integer(acknowledged));
    let is_refused = || {
        let mut c = server.raw();
        c.send_command(&["SET", "key:0", &value]);
        // On a busy machine the segment may fill before the server learns that there is no space for the next one.
        // Commands executed by then are no longer refused: they wait for space.
        c.try_reply(Duration::from_secs(1)).is_ok_and(|reply| is_misconf(&reply.value))
    };
    until(is_refused, "the disk is full again");
    disk.grow_to("300m");
    until(|| c.command(&["SET", "later", "v"]) == Value::status("OK"), "there is space again");
    assert_eq!(info(&mut c, "aof_last_write_status"), "ok");
    drop(server);
    assert_eq!(start(disk.path()).raw().command(&["GET", "later"]), Value::bulk("v"));
}

/// Makes writes of a process fail beyond this size of any file, as on a failing disk.
pub(crate) fn limit_files(pid: u32, bytes: u64) {
    let limit = libc::rlimit { rlim_cur: bytes, rlim_max: bytes };
    // SAFETY: the limit is read while the call lasts; the old one is not asked for.
    let set = unsafe { libc::prlimit(pid as libc::pid_t, libc::RLIMIT_FSIZE, &limit, std::ptr::null_mut()) };
    assert_eq!(set, 0, "a process may limit its own child");
}

#[test]
fn after_a_failed_write_no_unsaved_data_is_acknowledged_or_shown() {
    // The first limit fails a block of the journal, the second the next segment, which is created when the first one is
    // half full.
    for file_bytes in [300_000, 700_000] {
        fail_beyond(file_bytes);
    }
}

fn fail_beyond(file_bytes: u64) {
    let dir = tempfile::tempdir().unwrap();
    let server = start(dir.path());
    limit_files(server.pid(), file_bytes);
    let mut c = server.raw();
    let value = "x".repeat(10_000);
    let mut acknowledged = 0;
    while acknowledged < 200 {
        c.send_command(&["SET", &format!("key:{acknowledged}"), &value]);
        let answer = c.try_reply(REPLY_DEADLINE).map(|reply| reply.value);
        if answer == Ok(Value::status("OK")) {
            acknowledged += 1;
            continue;
        }
        // Nobody knows whether the first failed write is on the disk, so its client gets no reply.
        let is_refused = answer.as_ref().map_or_else(|why| why.starts_with("hung up"), is_misconf);
        assert!(is_refused, "{answer:?}");
        break;
    }
    assert!((20..200).contains(&acknowledged), "{acknowledged}");
    let mut c = server.raw();
    let refused = c.command(&["SET", "later", "v"]);
    assert!(is_misconf(&refused) && format!("{refused:?}").contains("File too large"), "{refused:?}");
    // Keys are shown only if all of their content is on the disk.
    let read = c.command(&["GET", "key:0"]);
    assert!(read == Value::bulk(&value) || is_misconf(&read), "{read:?}");
    assert_eq!(c.command(&["ECHO", "hello"]), Value::bulk("hello"));
    assert_eq!(info(&mut c, "aof_last_write_status"), "err");
    until(|| server.log().contains("commands that write are refused until a restart"), "the server reports it");
    drop(server);
    let server = start(dir.path());
    let mut c = server.raw();
    for n in 0..acknowledged {
        assert_eq!(c.command(&["STRLEN", &format!("key:{n}")]), Value::Integer(10_000), "key:{n}");
    }
    assert_eq!(c.command(&["SET", "later", "v"]), Value::status("OK"));
}

#[test]
fn without_its_folder_a_server_acknowledges_nothing() {
    // The data folder, and its parent.
    for folder in ["tidegate-data", ""] {
        let dir = tempfile::tempdir().unwrap();
        let home = dir.path().join("home");
        std::fs::create_dir(&home).unwrap();
        let server = start(&home);
        let mut c = server.raw();
        for n in 0..10 {
            assert_eq!(c.command(&["SET", &format!("key:{n}"), "v"]), Value::status("OK"));
        }
        std::fs::remove_dir_all(home.join(folder)).unwrap();
        c.send_command(&["SET", "later", "v"]);
        let answer = c.try_reply(REPLY_DEADLINE).map(|reply| reply.value);
        assert!(answer.as_ref().map_or_else(|why| why.starts_with("hung up"), is_misconf), "{answer:?}");
        let mut c = server.raw();
        assert!(is_misconf(&c.command(&["SET", "later", "v"])));
        assert!(is_misconf(&c.command(&["GET", "later"])), "the unsaved write is never shown");
        assert_eq!(c.command(&["GET", "key:0"]), Value::bulk("v"));
        let told = "it was removed while the server was writing to it";
        until(|| server.log().contains(told), told);
    }
}

/// An idle journal keeps no more memory than a fresh one.
#[test]
fn an_idle_journal_frees_its_buffers() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = start(dir.path());
    let mut c = server.raw();
    let used = |c: &mut Raw| {
        let all = c.command(&["INFO", "memory"]);
        let all = String::from_utf8_lossy(all.bytes().expect("a text")).into_owned();
        let used = all.lines().find_map(|line| line.strip_prefix("used_memory:")).expect("it is there");
        used.parse::<u64>().expect("a number")
    };
    let fresh = used(&mut c);
    let value = "x".repeat(200_000);
    for clients in 0..8 {
        let mut writers: Vec<Raw> = (0..clients).map(|_| server.raw()).collect();
        writers.iter_mut().for_each(|writer| writer.send_command(&["SET", "k", &value]));
        writers.iter_mut().for_each(|writer| drop(writer.reply()));
    }
    c.command(&["FLUSHALL"]);
    until(|| used(&mut c) < fresh + fresh / 10, "the memory is given back");
}
