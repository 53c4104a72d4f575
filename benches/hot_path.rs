//! Where the time of a request goes: `cargo bench --bench hot_path`.
//!
//! perf(1) samples the server's threads under a load, and addr2line(1) maps each sample to lines of the source; only it
//! can tell inlined calls apart. A sample counts for the innermost line of our source; a sample in the kernel counts
//! for the system call that led there. The samples give shares of the CPU time of the server's process per request,
//! which comes from the kernel's books.
//!
//! Sampling itself costs some percent, mostly in the kernel.

mod figures;
mod load;
mod peer;
mod requests;
mod scripts;

use std::collections::{BTreeMap, HashMap};
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use clap::Parser;
use tokio::runtime::Runtime;

use figures::{Quantity, Recorder};
use load::{Judged, Load, Pace};
use peer::{Server, Setup, UNLOGGED, pin_self};

/// Shows where the CPU time of a GET, a durable INCR, and a granted call of the users' gate goes. Needs perf and
/// addr2line; takes a minute.
#[derive(Parser)]
struct Options {
    #[command(flatten)]
    setup: Setup,
    /// Seconds of each measurement.
    #[arg(long, default_value_t = 3.0)]
    seconds: f64,
}

const CONNECTIONS: usize = 50;

/// Samples per second: a number that no fixed rate in a server divides.
const FREQUENCY: &str = "4999";

const LOGGED: &[&str] = &["--appendonly", "yes"];

/// Cases: name in the table, load, pipeline depth, and flags of the server.
const CASES: [(&str, &Load, usize, &[&str]); 3] = [
    ("GET, P=100, ns", &load::GET, 100, UNLOGGED),
    ("INCR on disk, P=16, ns", &load::INCR, 16, LOGGED),
    ("the users' gate, P=16, ns", &load::GATE, 16, UNLOGGED),
];

/// The stages of a request.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Stage {
    Receive,
    Send,
    Wait,
    LogCalls,
    System,
    Connections,
    Decode,
    Dispatch,
    Commands,
    Keys,
    Log,
    Scripts,
    Lua,
    Reply,
    Memory,
    Other,
}

const STAGES: [(Stage, &str); 16] = [
    (Stage::Receive, "system: receive"),
    (Stage::Send, "system: send, wake the reader"),
    (Stage::Wait, "system: wait for sockets and threads"),
    (Stage::LogCalls, "system: write and sync the journal"),
    (Stage::System, "system: all else"),
    (Stage::Connections, "connections, tokio"),
    (Stage::Decode, "decode requests"),
    (Stage::Dispatch, "admit, dispatch, count"),
    (Stage::Commands, "arguments and the command itself"),
    (Stage::Keys, "look up, read and change keys"),
    (Stage::Log, "effects, fences, the journal's blocks"),
    (Stage::Scripts, "calls into and out of Lua"),
    (Stage::Lua, "Lua itself"),
    (Stage::Reply, "write the reply"),
    (Stage::Memory, "allocate and copy memory"),
    (Stage::Other, "all else"),
];

/// Stages by the path of a source file in `src`: the first matching prefix counts.
const SOURCES: [(&str, Stage); 32] = [
    ("net/", Stage::Connections),
    ("session/outbox", Stage::Connections),
    ("engine/run/feed", Stage::Dispatch),
    ("resp/request", Stage::Decode),
    ("spec/batch", Stage::Decode),
    ("resp/", Stage::Reply),
    ("log/", Stage::Log),
    ("base/crc", Stage::Log),
    ("base/lsn", Stage::Log),
    ("keyspace/effect", Stage::Log),
    ("keyspace/in_flight", Stage::Log),
    ("persist/", Stage::Log),
    ("engine/persistence/", Stage::Log),
    ("engine/observe/mod", Stage::Log),
    ("engine/run/script", Stage::Scripts),
    ("programs/", Stage::Scripts),
    ("script/", Stage::Scripts),
    ("command/", Stage::Commands),
    ("spec/args", Stage::Commands),
    ("engine/", Stage::Dispatch),
    ("session/", Stage::Dispatch),
    ("wait/", Stage::Dispatch),
    ("meters/", Stage::Dispatch),
    ("spec/", Stage::Dispatch),
    ("acl/", Stage::Dispatch),
    ("base/os/alloc", Stage::Memory),
    ("keyspace/", Stage::Keys),
    ("value/", Stage::Keys),
    ("base/split_table", Stage::Keys),
    ("base/hasher", Stage::Keys),
    ("base/prefetch", Stage::Keys),
    ("", Stage::Other),
];

fn main() {
    let Options { setup, seconds } = Options::parse();
    if let Some(tool) = ["perf", "addr2line"].into_iter().find(|tool| !is_there(tool)) {
        return eprintln!("left out: where the time of a request goes, for {tool} is missing (linux-perf, binutils)");
    }
    pin_self(setup.client_core);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a tokio runtime");
    let name = setup.start(&setup.server).version();
    let mut recorder = Recorder::new("hot_path", &setup);
    recorder.table_of("hot_path", "stage", vec![name], CASES.map(|(name, ..)| Quantity::neither(name, 0)));
    let rows = STAGES.iter().map(|(_, name)| ((*name).to_owned(), None)).chain([("together".to_owned(), None)]);
    recorder.cases(rows.collect(), |_| {
        let by_case = CASES.map(|(_, load, depth, flags)| {
            let server = Server::start_with(&setup.server, &setup.server_core.to_string(), flags, &[]);
            profile(&runtime, &setup, Judged::new(server), load, depth, setup.seconds(seconds))
        });
        let row = |row: usize| by_case.each_ref().map(|by_stage| by_stage[row]);
        (0..=STAGES.len()).map(row).collect()
    });
    recorder.finish();
}

/// Nanoseconds per request: of each stage, in order, then their sum.
fn profile(runtime: &Runtime, setup: &Setup, judged: Judged, load: &Load, depth: usize, length: Duration) -> Vec<f64> {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let data = folder.path().join("perf.data");
    let pace = Pace { connections: CONNECTIONS, depth, length };
    // The data is made before sampling begins.
    runtime.block_on(judged.measure(load, Pace { length: setup.seconds(0.2), ..pace }));
    let mut perf = Command::new("perf")
        .args(["record", "-F", FREQUENCY, "-g", "-p", &judged.server.pid().to_string(), "-o"])
        .arg(&data)
        .args(["--", "sleep", &length.as_secs_f64().to_string()])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("perf (linux-perf) is missing");
    let sample = runtime.block_on(judged.measure(load, pace));
    assert!(perf.wait().expect("our own child").success(), "perf failed");
    let samples = Samples::read(&data, &judged.server);
    let all: u64 = samples.by_stage.values().sum();
    let sees_kernel = [Stage::Receive, Stage::Send].iter().all(|stage| samples.by_stage.contains_key(stage));
    assert!(sees_kernel, "perf sees nothing of the kernel: run as root, or with sysctl kernel.perf_event_paranoid=1");
    let ns = |stage: &Stage| {
        let count = samples.by_stage.get(stage).copied().unwrap_or_default();
        sample.server_us * 1e3 * count as f64 / all.max(1) as f64
    };
    let by_stage = STAGES.iter().map(|(stage, _)| ns(stage));
    by_stage.chain([sample.server_us * 1e3]).collect()
}

/// The number of samples of each stage.
struct Samples {
    by_stage: BTreeMap<Stage, u64>,
}

/// One frame of a sample: the address, and the symbol and file that perf names.
struct Frame<'a> {
    address: u64,
    symbol: &'a str,
    file: &'a str,
}

impl<'a> Frame<'a> {
    /// Reads `ADDRESS SYMBOL (FILE)`.
    fn read(line: &'a str) -> Option<Frame<'a>> {
        let (address, rest) = line.trim().split_once(' ')?;
        let (symbol, file) = rest.rsplit_once(" (")?;
        Some(Frame { address: u64::from_str_radix(address, 16).ok()?, symbol, file: file.trim_end_matches(')') })
    }
}

impl Samples {
    /// Reads the samples that perf has recorded of a server that still runs.
    fn read(data: &Path, server: &Server) -> Samples {
        let mut perf = Command::new("perf");
        perf.args(["script", "-F", "comm,ip,sym,dso", "--no-inline", "-i"]).arg(data).stderr(Stdio::null());
        let text = output(&mut perf, "");
        let samples: Vec<Vec<Frame<'_>>> = text
            .split("\n\n")
            .map(|sample| sample.lines().skip(1).filter_map(Frame::read).collect())
            .filter(|frames: &Vec<Frame<'_>>| !frames.is_empty())
            .collect();
        let program = std::fs::read_link(format!("/proc/{}/exe", server.pid())).expect("the server runs");
        let loaded = Loaded::of(&program, server.pid());
        let is_ours = |frame: &Frame<'_>| Path::new(frame.file) == program;
        let ours = samples.iter().filter_map(|frames| frames.first()).filter(|frame| is_ours(frame));
        let sources = sources(&program, &loaded, ours.map(|frame| frame.address).collect());
        let mut by_stage = BTreeMap::new();
        for frames in &samples {
            *by_stage.entry(stage_of(frames, &sources)).or_default() += 1;
        }
        Samples { by_stage }
    }
}

/// The place at which a program was loaded.
struct Loaded {
    base: u64,
    /// The start of the program's code in memory, and the offset of that start in the file.
    code: u64,
    code_in_file: u64,
}

impl Loaded {
    fn of(program: &Path, pid: u32) -> Loaded {
        let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).expect("the server runs");
        let program = program.to_str().expect("a path in UTF-8");
        let number = |word: &str| u64::from_str_radix(word, 16).expect("a hexadecimal number");
        // Lines of: BEGIN-END RIGHTS OFFSET DEVICE INODE PATH
        let mut parts = maps.lines().filter(|line| line.ends_with(program)).map(|line| {
            let mut words = line.split(' ');
            let mut word = || words.next().expect("a line of maps has them all");
            let (range, rights, offset) = (word(), word(), word());
            let (begin, _) = range.split_once('-').expect("a range");
            (number(begin), rights.contains('x'), number(offset))
        });
        let (base, ..) = parts.next().expect("its program is mapped");
        let (code, _, code_in_file) = parts.find(|(_, is_code, _)| *is_code).expect("a program has code");
        Loaded { base, code, code_in_file }
    }

    /// Converts an address from perf to an address in the program's file. Depending on perf's version, it is a position
    /// in memory or in the file.
    fn in_program(&self, address: u64) -> u64 {
        let in_memory = if address < self.base { address - self.code_in_file + self.code } else { address };
        in_memory - self.base
    }
}

/// The file in `src` of each address, as `net/conn.rs`: the innermost of our files, where calls were inlined.
fn sources(program: &Path, loaded: &Loaded, mut addresses: Vec<u64>) -> HashMap<u64, String> {
    addresses.sort_unstable();
    addresses.dedup();
    let asked: String = addresses.iter().map(|address| format!("{:#x}\n", loaded.in_program(*address))).collect();
    let told = output(Command::new("addr2line").args(["-a", "-i", "-e"]).arg(program), &asked);
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/src/");
    let mut found = HashMap::new();
    let mut number = 0;
    for line in told.lines() {
        if line.starts_with("0x") {
            number += 1;
        } else if let Some(path) = line.strip_prefix(root).or_else(|| line.strip_prefix("src/")) {
            found.entry(addresses[number - 1]).or_insert_with(|| path.to_owned());
        }
    }
    found
}

fn stage_of(frames: &[Frame<'_>], sources: &HashMap<u64, String>) -> Stage {
    let leaf = &frames[0];
    if leaf.file.contains("[kernel") || leaf.address >> 63 == 1 {
        let call =
            frames.iter().find_map(|frame| frame.symbol.split_once("_sys_").filter(|_| frame.symbol.starts_with("__")));
        return match call.map_or("", |(_, call)| call) {
            "recvfrom" | "recvmsg" | "read" | "readv" => Stage::Receive,
            "sendto" | "sendmsg" | "writev" => Stage::Send,
            // A write that wakes another thread.
            "epoll_wait" | "epoll_pwait" | "epoll_pwait2" | "futex" | "poll" | "write" => Stage::Wait,
            "pwrite64" | "pwritev" | "pwritev2" | "fdatasync" | "fsync" | "sync_file_range" => Stage::LogCalls,
            _ => Stage::System,
        };
    }
    if let Some(source) = sources.get(&leaf.address) {
        let stage = SOURCES.iter().find(|(path, _)| source.starts_with(path));
        return stage.map_or(Stage::Other, |(_, stage)| *stage);
    }
    let begins = |names: &[&str]| names.iter().any(|name| leaf.symbol.starts_with(name));
    match leaf.symbol {
        // Machine code made by LuaJIT has no name.
        "[unknown]" if !leaf.file.contains(".so") => Stage::Lua,
        _ if begins(&["lj_", "lua_", "luaL_", "luaJIT_"]) => Stage::Lua,
        _ if begins(&["mi_", "_mi_", "memcpy", "memmove", "memset", "__mem"]) => Stage::Memory,
        _ if begins(&["tokio::", "mio::", "<tokio::", "<mio::"]) => Stage::Connections,
        _ if begins(&["mlua", "<mlua"]) => Stage::Scripts,
        _ => Stage::Other,
    }
}

/// Whether a program can be run.
fn is_there(tool: &str) -> bool {
    Command::new(tool).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok()
}

/// The output of a program for `input`.
fn output(command: &mut Command, input: &str) -> String {
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap_or_else(|error| panic!("{command:?} cannot run: {error}"));
    let mut stdin = child.stdin.take().expect("a pipe");
    let input = input.to_owned();
    // Runs beside the reading of the output, for either pipe may be full.
    let writer = std::thread::spawn(move || stdin.write_all(input.as_bytes()));
    let output = child.wait_with_output().expect("our own child");
    writer.join().expect("it does not panic").expect("it reads");
    assert!(output.status.success(), "{command:?} failed");
    String::from_utf8_lossy(&output.stdout).into_owned()
}
