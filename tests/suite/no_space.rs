//! A start on a disk that has no byte or no inode left, or that is read-only.

use std::fs::File;
use std::io::Write as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::durable::{end_of_blocks, info, is_misconf, refusal};
use crate::harness::{Program, Raw, Server, Value, free_port, launch_command, until};
use crate::oracle::{SMALL_DISK, SmallDisk};

/// Bytes of a segment's header (docs/log-format.md).
const HEADER_BYTES: usize = 4096;

fn start(disk: &SmallDisk, flags: &[&str]) -> Server {
    let dir = disk.path().to_str().expect("a path of plain text");
    Server::start(Program::Tidegate, &[&["--dir", dir, "--appendonly", "yes"], flags].concat())
}

/// Takes every byte and, where these are counted, every inode. Removing the returned files frees them.
fn take_all(disk: &SmallDisk) -> PathBuf {
    let others = disk.path().join("others");
    std::fs::create_dir_all(&others).expect("an inode is left");
    let mut big = File::create(others.join("big")).expect("an inode is left");
    for len in [1 << 16, 4096, 1] {
        while big.write_all(&vec![1; len]).is_ok() {}
    }
    // More files than the disk has inodes, where it has few of them.
    let _ = (0..1000).map(|n| File::create(others.join(n.to_string()))).take_while(Result::is_ok).count();
    others
}

fn files(disk: &SmallDisk) -> Vec<PathBuf> {
    let files = std::fs::read_dir(disk.path().join("tidegate-data")).expect("the folder of the data");
    files.map(|file| file.expect("a file").path()).collect()
}

/// Prepared segments.
fn ready(disk: &SmallDisk) -> Vec<PathBuf> {
    let is_ready = |path: &PathBuf| {
        path.extension().is_some_and(|extension| extension == "seg") && end_of_blocks(path) <= HEADER_BYTES
    };
    files(disk).into_iter().filter(is_ready).collect()
}

/// Writes keys of this name until the server refuses. Returns how many it acknowledged.
fn fill(c: &mut Raw, name: &str) -> i64 {
    let value = "x".repeat(10_000);
    for n in 0..5_000 {
        let reply = c.command(&["SET", &format!("{name}:{n}"), &value]);
        if reply != Value::status("OK") {
            assert!(is_misconf(&reply), "{reply:?}");
            return n;
        }
    }
    panic!("the disk has no end");
}

/// Writes until the server refuses, and kills it. Returns how many writes it acknowledged.
fn write_until_full(disk: &SmallDisk) -> i64 {
    let server = start(disk, &[]);
    let acknowledged = fill(&mut server.raw(), "key");
    drop(server);
    // A half-made segment would give its space to the next start.
    let is_unfinished = |path: &PathBuf| path.extension().is_some_and(|extension| extension == "tmp");
    files(disk)
        .iter()
        .filter(|path| is_unfinished(path))
        .for_each(|path| std::fs::remove_file(path).expect("it is ours"));
    acknowledged
}

/// A server that starts where nothing can be written serves all acknowledged data, refuses writes, and resumes when
/// `others` are removed.
fn goes_on(server: Server, disk: &SmallDisk, keys: i64, others: &Path) {
    let mut c = server.raw();
    assert_eq!(c.command(&["DBSIZE"]), Value::Integer(keys), "{}", server.log());
    assert_eq!(c.command(&["STRLEN", "key:0"]), Value::Integer(10_000));
    // Prepared segments may take some more.
    let keys = keys + fill(&mut c, "more");
    assert_eq!(c.command(&["DBSIZE"]), Value::Integer(keys));
    assert_eq!(info(&mut c, "aof_last_write_status"), "err");
    let told = "the journal's disk is full";
    until(|| server.log().contains(told), told);
    // It shuts down in order, as far as it can, and starts again.
    drop(server);
    let server = start(disk, &[]);
    let keys = keys + fill(&mut server.raw(), "again");
    assert_eq!(server.raw().command(&["DBSIZE"]), Value::Integer(keys));
    std::fs::remove_dir_all(others).expect("they are ours");
    disk.grow_to("300m,nr_inodes=1000");
    let is_written = |c: &mut Raw| c.command(&["SET", "later", "v"]) == Value::status("OK");
    let mut c = server.raw();
    until(|| is_written(&mut c), "there is space again");
    drop(server);
    let server = start(disk, &[]);
    let mut c = server.raw();
    assert_eq!(c.command(&["GET", "later"]), Value::bulk("v"));
    assert_eq!(c.command(&["DBSIZE"]), Value::Integer(keys + 1));
}

#[test]
fn a_start_needs_no_byte() {
    if SMALL_DISK.is_missing() {
        return;
    }
    for keeps_ready in [true, false] {
        let disk = SmallDisk::mount("8m").expect("a disk, as the probe had one");
        let keys = write_until_full(&disk);
        if !keeps_ready {
            ready(&disk).iter().for_each(|path| std::fs::remove_file(path).expect("it is ours"));
        }
        let others = take_all(&disk);
        goes_on(start(&disk, &[]), &disk, keys, &others);
    }
}

#[test]
fn a_start_needs_no_inode() {
    if SMALL_DISK.is_missing() {
        return;
    }
    for (keeps_ready, has_lock) in [(true, true), (false, true), (false, false)] {
        let disk = SmallDisk::mount("40m,nr_inodes=40").expect("a disk, as the probe had one");
        let keys = write_until_full(&disk);
        if !keeps_ready {
            ready(&disk).iter().for_each(|path| std::fs::remove_file(path).expect("it is ours"));
        }
        if !has_lock {
            std::fs::remove_file(disk.path().join("tidegate-data/LOCK")).expect("it was killed");
        }
        let others = take_all(&disk);
        let server = start(&disk, &["--pidfile", "pid", "--logfile", "log"]);
        assert!(!disk.path().join("pid").exists());
        // Without its file, the folder is locked all the same.
        assert!(refusal(disk.path()).contains("another server is using this directory"));
        goes_on(server, &disk, keys, &others);
    }
}

#[test]
fn a_read_only_folder_is_refused_with_advice() {
    if SMALL_DISK.is_missing() {
        return;
    }
    let disk = SmallDisk::mount("40m").expect("a disk, as the probe had one");
    let server = start(&disk, &[]);
    assert_eq!(server.raw().command(&["SET", "k", "v"]), Value::status("OK"));
    drop(server);
    disk.remount("ro");
    let said = refusal(disk.path());
    assert!(said.contains("Read-only file system") && said.contains("mount it for writing"), "{said}");
    disk.remount("rw");
    // A folder of another user.
    let command_line = launch_command(Program::Tidegate);
    let output = Command::new(&command_line[0])
        .args(&command_line[1..])
        .args(["--appendonly", "yes", "--port", &free_port().to_string(), "--bind", "127.0.0.1", "--dir"])
        .arg(disk.path())
        .uid(65_534)
        .output()
        .expect("root may start it as anybody");
    let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    assert!(!output.status.success() && said.contains("Permission denied") && said.contains("chown"), "{said}");
    assert_eq!(start(&disk, &[]).raw().command(&["GET", "k"]), Value::bulk("v"));
}
