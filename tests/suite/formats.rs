//! Formats, in both directions. This program reads what each released version has written, and writes nothing that the
//! versions before could not read, unless somebody has asked for it.
//!
//! ```text
//! tests/formats/0.1.0/calls.txt      calls that make data of every kind, and others that show it
//! tests/formats/0.1.0/server/        the data folder of a single server after these calls, made twice: the first time
//!                                    into a snapshot, the second time, after FLUSHALL, into the journal
//! tests/formats/0.1.0/node-1/, -2/   the same, of two nodes of a group of three, one of which made the snapshot
//! tests/formats/0.1.0/replies.txt    the calls that show it, each with the server's reply, in the notation of
//!                                    `transcripts`, and the time at which all that was made
//! tests/formats/0.1.0/writes.txt     the formats and effects that this version knows, and writes
//! tests/formats/asked-for.txt        later ones, each with what somebody must do before one of them is written
//! ```
//!
//! The zeros at the end of a segment are left out; its header says how many there were. Leases end, so the wall clock
//! of the servers stands where it stood then.
//!
//! A release adds its folder: `SUITE_FORMATS=0.2.0 cargo test --test suite formats::make` makes it of the calls that
//! lie there already.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::{SystemTime, UNIX_EPOCH};

use tidegate::keyspace::effect::EffectReader;
use tidegate::log::block::Units;
use tidegate::log::directory::Directory;
use tidegate::log::disk::ReadOnlyDisk;
use tidegate::log::restore::{Part, Restore};

use crate::differential::split_line;
use crate::group::{Group, PORT};
use crate::harness::{Environment, Program, Raw, Server, Value};
use crate::power_loss::compile;
use crate::transcripts::matches;

/// Behind this line of `calls.txt` are calls that show the data.
const SHOWN: &str = "# The data, and what is held.";

/// Behind an effect that no call makes without much data, or without luck.
const ABSENT: &str = ": not in the stored data";

/// The data folders of a version.
const FOLDERS: [&str; 3] = ["server", "node-1", "node-2"];

/// The environment of a server whose clock is `ahead_ms` ahead of the wall clock. The setting is in a file in `dir`.
fn clock(dir: &Path, ahead_ms: i64) -> Environment {
    static LIBRARY: OnceLock<PathBuf> = OnceLock::new();
    let (setting, text) = (dir.join("clock"), |path: &Path| path.to_str().expect("plain text").to_owned());
    std::fs::write(&setting, [(ahead_ms * 1_000_000).to_le_bytes(), [0; 8]].concat()).expect("a file");
    vec![("LD_PRELOAD", text(LIBRARY.get_or_init(|| compile("wall_clock")))), ("WALL_CLOCK", text(&setting))]
}

fn start(dir: &Path, ahead_ms: i64) -> Server {
    let path = dir.to_str().expect("plain text");
    Server::start_in(&clock(dir, ahead_ms), Program::Tidegate, &["--dir", path, "--appendonly", "yes"])
}

fn formats() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/formats")
}

/// The folders of all versions.
fn versions() -> Vec<PathBuf> {
    let entries = std::fs::read_dir(formats()).expect("the folder of all versions");
    let mut versions: Vec<PathBuf> = entries.map(|entry| entry.expect("an entry").path()).collect();
    versions.retain(|path| path.join("writes.txt").exists());
    versions.sort_unstable();
    versions
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Returns the lines that are no comment.
fn lines(text: &str) -> Vec<String> {
    text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')).map(str::to_owned).collect()
}

/// Returns the calls that make the data, and those that show it.
fn calls(version: &Path) -> (Vec<String>, Vec<String>) {
    let text = read(&version.join("calls.txt"));
    let (made, shown) = text.split_once(SHOWN).expect("it has both");
    (lines(made), lines(shown))
}

/// Makes a call. `{last}` in it is the reply before.
fn call(raw: &mut Raw, line: &str, last: &mut String) -> Value {
    if let Some(ms) = line.strip_prefix('!') {
        std::thread::sleep(std::time::Duration::from_millis(ms.parse().expect("milliseconds")));
        return Value::Null;
    }
    let line = line.replace("{last}", last);
    let reply = raw.command(&split_line(&line).expect("its quotes match"));
    *last = String::from_utf8_lossy(reply.bytes().unwrap_or_default()).into_owned();
    reply
}

/// Makes the data, first into a snapshot and then into the journal.
fn furnish(mut raw: Raw, calls: &[String]) {
    let mut last = String::new();
    for has_snapshot in [true, false] {
        for line in calls {
            let reply = call(&mut raw, line, &mut last);
            assert!(!matches!(reply, Value::Error(_)), "{line}: {reply:?}");
        }
        if has_snapshot {
            assert_eq!(raw.command(&["SAVE"]), Value::ok());
            raw.command(&["SET", "between", "1"]);
            assert_eq!(raw.command(&["FLUSHALL"]), Value::ok());
            assert_eq!(raw.command(&["FUNCTION", "FLUSH"]), Value::ok());
            assert_eq!(raw.command(&["SELECT", "0"]), Value::ok());
        }
    }
}

/// Makes the data with the program of this build, and passes each data folder to `each`, with its name in [`FOLDERS`].
/// Returns the hosts of the nodes.
fn make_all(calls: &[String], mut each: impl FnMut(&str, &Path)) -> Vec<String> {
    let dir = tempfile::tempdir().expect("a folder");
    let server = start(dir.path(), 0);
    furnish(server.raw(), calls);
    end(server);
    each(FOLDERS[0], &dir.path().join("tidegate-data"));
    let mut group = Group::new();
    let (mut leader, _) = group.increment();
    if leader == 3 {
        group.end(3, libc::SIGTERM);
        leader = group.increment().0;
        group.start(3);
    }
    furnish(group.raw(leader, PORT), calls);
    // The third node ends first, so that the other two have everything.
    group.end(3, libc::SIGTERM);
    group.increment();
    [1, 2].iter().for_each(|number| group.end(*number, libc::SIGTERM));
    [1, 2].iter().for_each(|number| each(FOLDERS[*number], &group.dir(*number).join("tidegate-data")));
    group.hosts[..3].to_vec()
}

/// Ends a server in order.
fn end(mut server: Server) {
    server.raw().send_command(&["SHUTDOWN"]);
    assert!(server.ends_well(), "{}", server.log());
}

/// What a program has written to a data folder: formats as `kind number`, effects as `code name`.
fn written(data: &Path) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let head = |path: &Path, len: usize| std::fs::read(path).expect("a file")[..len].to_vec();
    for entry in std::fs::read_dir(data).expect("a folder") {
        let path = entry.expect("an entry").path();
        let kind = match path.extension().and_then(|extension| extension.to_str()) {
            Some("seg") => "segment",
            Some("snap") => "snapshot",
            _ if path.ends_with("ID") => {
                let words = read(&path);
                found.insert(format!("directory {}", words.split(' ').nth(2).expect("its version")));
                continue;
            }
            _ => continue,
        };
        found.insert(format!("{kind} {}", u32::from_le_bytes(head(&path, 12)[8..].try_into().expect("four bytes"))));
    }
    let directory = Directory::open_existing(Arc::new(ReadOnlyDisk), data).expect("a data folder");
    let mut restore = Restore::open(directory).expect("it can be read");
    while let Some(part) = restore.next_part().expect("it is whole") {
        match part {
            Part::Checked => {}
            Part::Snapshot(reader) => note(reader.units(), &mut found),
            Part::Block(block) => note(block.units(), &mut found),
        }
    }
    found
}

fn note(units: Units<'_>, found: &mut BTreeSet<String>) {
    for unit in units {
        found.insert(format!("effects {}", unit.format));
        note_effects(unit.effects, found);
    }
}

fn note_effects(bytes: &[u8], found: &mut BTreeSet<String>) {
    let mut effects = EffectReader::new(bytes);
    for (_, effect) in effects.by_ref() {
        let name = effect.describe().0;
        found.insert(format!("{} {name}", codes()[name]));
        effect.steps().into_iter().for_each(|steps| note_effects(steps, found));
    }
    assert!(effects.is_empty(), "it can be decoded");
}

/// The code of each effect that this program knows, by name: `docs/effects.md` is the declaration, as a unit test says.
fn codes() -> &'static BTreeMap<String, u8> {
    static CODES: OnceLock<BTreeMap<String, u8>> = OnceLock::new();
    CODES.get_or_init(|| {
        let page = read(&Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/effects.md"));
        let declared = page.lines().filter_map(|line| {
            let (code, rest) = line.split_once(' ')?;
            let (name, _) = rest.split_once('(')?;
            Some((name.to_owned(), code.parse().ok()?))
        });
        declared.collect()
    })
}

/// The formats and effects in a list, one per line, perhaps with a remark behind a colon.
fn listed(path: &Path) -> BTreeSet<String> {
    let text = read(path);
    lines(&text).iter().map(|line| line.split(':').next().unwrap_or_default().to_owned()).collect()
}

/// Copies a data folder, without the zeros at the end of segments, or with as many as their headers say.
fn copy(from: &Path, to: &Path, has_zeros: bool) {
    std::fs::create_dir_all(to).expect("a folder");
    for entry in std::fs::read_dir(from).expect("a folder") {
        let path = entry.expect("an entry").path();
        let name = path.file_name().expect("a name").to_str().expect("plain text").to_owned();
        let mut bytes = std::fs::read(&path).expect("a file");
        if name.ends_with(".seg") {
            let number = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
            // A segment that was never used has no first unit.
            let (first, filled) = (number(40), number(64) as usize);
            if first == 0 {
                continue;
            }
            let used = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |at| at + 1);
            bytes.resize(if has_zeros { filled } else { used }, 0);
        }
        if name != "LOCK" && !name.ends_with(".tmp") {
            std::fs::write(to.join(name), bytes).expect("a file");
        }
    }
}

/// What was seen when the data of a version was made.
struct Seen {
    /// The time, Unix ms.
    made_ms: i64,
    /// The hosts of the nodes, by which they look for each other.
    hosts: Vec<String>,
    /// Calls, and their replies.
    replies: Vec<(String, String)>,
}

impl Seen {
    fn of(version: &Path) -> Seen {
        let text = read(&version.join("replies.txt"));
        let (made, rest) = text.split_once('\n').expect("when and where");
        let mut made = made.trim_start_matches("# Made at ").split(" by nodes at ");
        let made_ms = made.next().and_then(|ms| ms.parse().ok()).expect("the time");
        let hosts = made.next().expect("the hosts").split(' ').map(str::to_owned).collect();
        let lines: Vec<&str> = rest.lines().collect();
        let pairs = lines.chunks_exact(2).map(|pair| (pair[0].to_owned(), pair[1].trim_start_matches("> ").to_owned()));
        Seen { made_ms, hosts, replies: pairs.collect() }
    }
}

/// Replaces what passes with the time.
fn without_durations(reply: &str) -> String {
    let mut parts = reply.split("-ms\", ");
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |text, part| {
        let rest = part.trim_start_matches(|c: char| c.is_ascii_digit());
        format!("{text}-ms\", ...{rest}")
    })
}

fn now_ms() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("it is later than 1970").as_millis() as i64
}

/// Compares what a server shows with the replies of a version.
fn compare(mut raw: Raw, replies: &[(String, String)], whose: &str) {
    let mut last = String::new();
    for (line, expected) in replies {
        let reply = format!("{:?}", call(&mut raw, line, &mut last));
        assert!(matches(expected, &reply), "{whose}: {line}: {reply}, not {expected}");
    }
}

#[test]
fn data_of_every_version_is_read() {
    for version in versions() {
        let (whose, Seen { made_ms, hosts, replies }) = (version.display().to_string(), Seen::of(&version));
        // A minute later than it was.
        let ahead_ms = made_ms + 60_000 - now_ms();
        let dir = tempfile::tempdir().expect("a folder");
        copy(&version.join("server"), &dir.path().join("tidegate-data"), true);
        let server = start(dir.path(), ahead_ms);
        compare(server.raw(), &replies, &whose);
        // What this program writes behind it can be read again.
        end(server);
        assert_eq!(start(dir.path(), ahead_ms).raw().command(&["EXISTS", "later"]), Value::Integer(1));
        let furnish = |number, data: &Path| copy(&version.join(format!("node-{number}")), data, true);
        let group = Group::on(&hosts, clock(dir.path(), ahead_ms), furnish);
        let (leader, _) = group.increment();
        compare(group.raw(leader, PORT), &replies, &whose);
    }
}

#[test]
fn the_stored_data_has_everything_that_its_version_writes() {
    for version in versions() {
        let mut found = BTreeSet::new();
        for name in FOLDERS {
            let data = tempfile::tempdir().expect("a folder");
            copy(&version.join(name), data.path(), true);
            found.append(&mut written(data.path()));
        }
        let text = read(&version.join("writes.txt"));
        let expected = lines(&text).into_iter().filter(|line| !line.ends_with(ABSENT)).collect();
        assert_eq!(found, expected, "{}", version.display());
    }
}

/// Everything that a version's own calls make today can be read by that version.
#[test]
fn nothing_new_is_written_unless_somebody_asks_for_it() {
    for version in versions() {
        make_all(&calls(&version).0, |_, data| {
            let unknown: Vec<_> = written(data).difference(&listed(&version.join("writes.txt"))).cloned().collect();
            assert!(unknown.is_empty(), "{} does not know {unknown:?}", version.display());
        });
    }
}

/// A code of an effect is never used for another one, and a new effect is listed with what asks for it.
#[test]
fn effects_are_known_to_every_version_or_asked_for() {
    let declared: BTreeSet<String> = codes().iter().map(|(name, code)| format!("{code} {name}")).collect();
    let asked_for = listed(&formats().join("asked-for.txt"));
    for version in versions() {
        let known = listed(&version.join("writes.txt"));
        let effects = |list: &BTreeSet<String>| -> BTreeSet<String> {
            list.iter().filter(|line| line.starts_with(|c: char| c.is_ascii_digit())).cloned().collect()
        };
        let gone: Vec<_> = effects(&known).difference(&declared).cloned().collect();
        assert!(gone.is_empty(), "{}: this program does not know {gone:?}", version.display());
        let known_or_asked: BTreeSet<_> = known.union(&asked_for).cloned().collect();
        let new: Vec<_> = declared.difference(&known_or_asked).cloned().collect();
        assert!(new.is_empty(), "{new:?}: say in tests/formats/asked-for.txt what asks for them");
    }
}

/// Makes the folder of a version, with the program of this build.
#[test]
fn make() {
    let Ok(version) = std::env::var("SUITE_FORMATS") else { return };
    let version = formats().join(version);
    let (made, shown) = calls(&version);
    let made_ms = now_ms();
    let mut written_all = BTreeSet::new();
    let hosts = make_all(&made, |name, data| {
        let stored = version.join(name);
        // There may be none yet.
        let _ = std::fs::remove_dir_all(&stored);
        copy(data, &stored, false);
        written_all.append(&mut written(data));
    });
    let dir = tempfile::tempdir().expect("a folder");
    copy(&version.join("server"), &dir.path().join("tidegate-data"), true);
    let server = start(dir.path(), 0);
    let (mut raw, mut last) = (server.raw(), String::new());
    let replies = shown.iter().map(|line| {
        let reply = format!("{:?}", call(&mut raw, line, &mut last));
        // The id of an entry tells the time.
        let reply = if line.starts_with("XADD") { "...".to_owned() } else { without_durations(&reply) };
        format!("{line}\n> {reply}\n")
    });
    let replies = format!("# Made at {made_ms} by nodes at {}\n{}", hosts.join(" "), replies.collect::<String>());
    std::fs::write(version.join("replies.txt"), replies).expect("a file");
    let declared = codes().iter().map(|(name, code)| format!("{code} {name}"));
    let absent = declared.filter(|effect| !written_all.contains(effect)).map(|effect| effect + ABSENT);
    let mut lines: Vec<String> = absent.chain(written_all.iter().cloned()).collect();
    lines.sort_by_key(|line| line.split(' ').next().and_then(|code| code.parse().ok()).unwrap_or(0));
    std::fs::write(version.join("writes.txt"), lines.join("\n") + "\n").expect("a file");
}
