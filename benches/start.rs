//! How long a server takes to start with its data: `cargo bench --bench start`.
//!
//! For each server and each of its persistence modes, the same keys are stored once, and then the server is started
//! again and again from these files, which the system has in memory. The bench measures the time from the launch until
//! a command that needs the data is answered. Each round starts every server once, in turn, so that other activity of
//! the machine affects all; reported are medians.
//!
//! | Case | Peers start from | Tidegate starts from |
//! |---|---|---|
//! | snapshot | their dump.rdb | its own snapshot, and an empty journal after it |
//! | log | an AOF, one command for each key | only its journal, one unit for each key |
//! | dump.rdb | their dump.rdb | that of the first peer; it answers once its own snapshot is complete and synced |
//!
//! Without a peer the dump.rdb is made by Tidegate. No server is pinned to a core: each may use as many as it can.

mod figures;
mod peer;
mod requests;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use clap::Parser;

use figures::{Quantity, Recorder};
use peer::{Server, Setup, UNLOGGED, connection::Connection};
use requests::{NUMBER, encode};

/// Measures how long servers take to start. Takes some 10 minutes in full with two peers; space for several times the
/// data.
#[derive(Parser)]
struct Options {
    /// Keys, each a string of 32 bytes.
    #[arg(long, default_value_t = 10_000_000)]
    keys: u64,
    #[command(flatten)]
    setup: Setup,
    /// Folder for the data, several times the size of the keys. A temporary one if not given.
    #[arg(long)]
    dir: Option<PathBuf>,
}

/// Commands in flight while keys are stored.
const PIPELINE: usize = 1_000;

/// A way to start.
struct Way {
    command: String,
    dir: PathBuf,
    flags: &'static [&'static str],
    /// A file or folder that the start makes and the next start must not find.
    made: Option<PathBuf>,
}

const LOGGED: &[&str] = &["--appendonly", "yes", "--auto-aof-rewrite-percentage", "0"];

/// The files that servers start from, in the order of their ways.
const CASES: [&str; 3] = ["snapshot", "journal", "dump.rdb"];

fn main() {
    let Options { keys, setup, dir } = Options::parse();
    let keys = setup.scaled(keys);
    let temporary = tempfile::tempdir().expect("a temporary folder");
    let root = dir.unwrap_or_else(|| temporary.path().to_owned());
    let mut recorder = Recorder::new("start", &setup);
    recorder.table("start", &format!("{keys} keys, start from"), [Quantity::less("s", 2)]);
    let mut servers: Vec<[Way; 3]> = Vec::new();
    let mut dump = None;
    for (number, command) in setup.peers().iter().enumerate() {
        let (ways, rdb) = ways_of_peer(command, &root.join(number.to_string()), keys);
        dump.get_or_insert(rdb);
        servers.push(ways);
    }
    servers.push(our_ways(&setup.server, &root.join("ours"), keys, dump));
    for (number, case) in CASES.into_iter().enumerate() {
        recorder.case(case, None, |server| {
            let way = &servers[server][number];
            if let Some(made) = way.made.as_ref().filter(|made| made.exists()) {
                std::fs::remove_dir_all(made).expect("it can be removed");
            }
            let begun = Instant::now();
            let server = Server::start_in(&way.dir, &way.command, way.flags, &[]);
            let seconds = begun.elapsed().as_secs_f64();
            assert_eq!(Connection::new(&server).ask(&["DBSIZE"]), format!(":{keys}"), "{case}");
            [seconds]
        });
    }
    recorder.finish();
}

fn folder(root: &Path, name: &str) -> PathBuf {
    let folder = root.join(name);
    std::fs::create_dir_all(&folder).expect("a folder for data");
    folder
}

/// Stores the keys in a peer. Returns its dump.rdb as well.
fn ways_of_peer(command: &str, root: &Path, keys: u64) -> ([Way; 3], PathBuf) {
    let (aof, rdb) = (folder(root, "aof"), folder(root, "rdb"));
    let server = Server::start_in(&aof, command, LOGGED, &[]);
    store(&server, keys);
    Connection::new(&server).ask(&["SAVE"]);
    server.stop();
    let dump = rdb.join("dump.rdb");
    std::fs::rename(aof.join("dump.rdb"), &dump).expect("SAVE has made it");
    let way = |dir: &PathBuf, flags| Way { command: command.to_owned(), dir: dir.clone(), flags, made: None };
    ([way(&rdb, UNLOGGED), way(&aof, LOGGED), way(&rdb, UNLOGGED)], dump)
}

/// Stores the keys in the server under test, and imports a dump.rdb, or its own if there is none.
fn our_ways(command: &str, root: &Path, keys: u64, dump: Option<PathBuf>) -> [Way; 3] {
    let (log, snapshot, import) = (folder(root, "log"), folder(root, "snapshot"), folder(root, "import"));
    let server = Server::start_in(&log, command, LOGGED, &[]);
    store(&server, keys);
    if dump.is_none() {
        export(command, server.port, &import.join("dump.rdb"));
    }
    server.stop();
    copy(&log.join("tidegate-data"), &snapshot.join("tidegate-data"));
    let server = Server::start_in(&snapshot, command, LOGGED, &[]);
    Connection::new(&server).ask(&["SAVE"]);
    server.stop();
    if let Some(dump) = dump {
        std::fs::copy(dump, import.join("dump.rdb")).expect("space for the file");
    }
    let made = import.join("tidegate-data");
    let way = |dir, made| Way { command: command.to_owned(), dir, flags: LOGGED, made };
    [way(snapshot, None), way(log, None), way(import, Some(made))]
}

/// Stores the keys.
fn store(server: &Server, keys: u64) {
    let request = encode(&["SET", &format!("key:{NUMBER}"), &format!("value:{:014}{NUMBER}", 0)]);
    Connection::new(server).fill(0..keys, PIPELINE, &request);
}

/// Makes a dump.rdb of the data of the server at `port`.
fn export(command: &str, port: u16, to: &Path) {
    let mut words = command.split_whitespace();
    let status = Command::new(words.next().expect("a launch command"))
        .args(["export".as_ref(), to.as_os_str(), "--from".as_ref(), format!("redis://127.0.0.1:{port}").as_ref()])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    assert!(status.is_ok_and(|status| status.success()), "tidegate export failed");
}

/// Copies a folder of files.
fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).expect("a folder for data");
    for entry in std::fs::read_dir(from).expect("a readable folder").flatten() {
        std::fs::copy(entry.path(), to.join(entry.file_name())).expect("space for the file");
    }
}
