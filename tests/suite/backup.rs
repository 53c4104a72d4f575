//! `tidegate backup` and `tidegate restore`: what a copy has, which moments of it can be restored, and what survives
//! when either side is killed.

mod full;
mod kills;
mod moments;
mod one_file;

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use tempfile::TempDir;

use crate::group::{Group, PORT};
use crate::harness::{Program, Raw, Server, Value, until};
use crate::moving::{every_type, fill};

/// A server, and the folder for copies of it.
struct Bench {
    server: Option<Server>,
    folder: TempDir,
}

/// The end of a helper: whether it has succeeded, and all that it has printed.
struct Said {
    is_good: bool,
    text: String,
}

impl Bench {
    fn new() -> Bench {
        let mut bench = Bench { server: None, folder: tempfile::tempdir().expect("a folder") };
        bench.start();
        bench
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Starts the server on its data, which is killed first if it runs.
    fn start(&mut self) {
        self.server = None;
        self.server = Some(serve(&self.path("server")));
    }

    fn server(&self) -> &Server {
        self.server.as_ref().expect("it runs")
    }

    fn backup(&self, flags: &[&str]) -> Command {
        self.backup_into(&self.path("copies"), flags)
    }

    fn backup_into(&self, place: &Path, flags: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
        // Its path is the same after a restart.
        let from = format!("unix://{}", self.path("server/socket").display());
        command.arg("backup").arg(place).args(["--from", &from]).args(flags);
        command
    }

    /// Restores into a folder of this name.
    fn restore(&self, name: &str, flags: &[&str]) -> Said {
        run(restore_from(&self.path("copies"), &self.path(name)).args(flags))
    }

    fn copies(&self) -> Vec<String> {
        let entries = std::fs::read_dir(self.path("copies")).into_iter().flatten().flatten();
        let mut names: Vec<String> = entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
        names.retain(|name| name.ends_with('Z'));
        names.sort_unstable();
        names
    }
}

fn restore_from(from: &Path, into: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
    command.arg("restore").arg(from).arg("--into").arg(into);
    command
}

fn serve(dir: &Path) -> Server {
    std::fs::create_dir_all(dir).expect("a folder");
    let dir = dir.to_str().expect("plain text");
    let flags = ["--appendonly", "yes", "--dir", dir, "--unixsocket", "socket", "--enable-debug-command", "yes"];
    Server::start(Program::Tidegate, &flags)
}

fn run(command: &mut Command) -> Said {
    let output = command.output().expect("the program of this build");
    let text = [output.stdout, output.stderr].concat();
    Said { is_good: output.status.success(), text: String::from_utf8(text).expect("it prints text") }
}

fn ok(said: &Said) -> &str {
    assert!(said.is_good, "{}", said.text);
    &said.text
}

fn digest(server: &Server) -> Value {
    server.raw().command(&["DEBUG", "DIGEST"])
}

/// Returns the last change that a server calls safe.
fn last_lsn(server: &Server) -> i64 {
    match server.raw().command(&["FEED", "STATE"]) {
        Value::Array(fields) => match fields[3] {
            Value::Integer(last) => last,
            ref other => panic!("{other:?}"),
        },
        other => panic!("{other:?}"),
    }
}

fn integer(raw: &mut Raw, words: &[&str]) -> i64 {
    let value = raw.command(words);
    match &value {
        Value::Integer(number) => *number,
        Value::Null => 0,
        other => {
            String::from_utf8_lossy(other.bytes().unwrap_or_else(|| panic!("{value:?}"))).parse().expect("a number")
        }
    }
}

/// A helper that goes on for ever, until kill -9.
struct Helper(Child);

impl Drop for Helper {
    fn drop(&mut self) {
        // Fails only if it has ended by itself, which the test sees by what is missing.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Makes data of all kinds.
fn furnish(server: &Server) {
    let mut raw = server.raw();
    fill(&mut raw, &every_type());
    for words in [
        &["LOCK.ACQUIRE", "lock", "owner", "PX", "3000000"][..],
        &["GATE.ACQUIRE", "gate", "job", "LIMIT", "3", "PX", "3000000"],
        &["STOCK.SET", "stock", "100"],
        &["STOCK.RESERVE", "stock", "order", "UNITS", "3", "PX", "3000000"],
        &["ONCE", "request", "PX", "3000000", "INCR", "payments"],
        &["XADD", "jobs", "DELAY", "3000000", "*", "job", "1"],
        &["SCRIPT", "LOAD", "return 1"],
        &["FUNCTION", "LOAD", "#!lua name=lib\nredis.register_function('f', function() return 7 end)"],
    ] {
        let reply = raw.command(words);
        assert!(!matches!(reply, Value::Error(_)), "{words:?}: {reply:?}");
    }
}

/// Whether a server has the same data as another one, and still holds the lock that [`furnish`] has taken.
fn assert_equal(restored: &Server, original: &Server) {
    assert_eq!(digest(restored), digest(original));
    let mut raw = restored.raw();
    assert_eq!(integer(&mut raw, &["FCALL", "f", "0"]), 7);
    let held = format!("{:?}", raw.command(&["LOCK.ACQUIRE", "lock", "other", "PX", "1000"]));
    assert!(held.contains("held"), "{held}");
}

#[test]
fn a_copy_has_everything_and_can_be_checked_and_started() {
    let bench = Bench::new();
    furnish(bench.server());
    let mut raw = bench.server().raw();
    // Once with the journal alone, and once behind a snapshot.
    for has_snapshot in [false, true] {
        if has_snapshot {
            raw.command(&["SAVE"]);
            raw.command(&["SET", "behind the snapshot", "1"]);
        }
        let said = run(&mut bench.backup(&[]));
        assert!(ok(&said).contains(&format!("copied up to Lsn {}", last_lsn(bench.server()))), "{}", said.text);
        let copy = bench.path("copies").join(bench.copies().pop().expect("a copy"));
        let data = copy.join("tidegate-data");
        let checked = run(Command::new(env!("CARGO_BIN_EXE_tidegate")).arg("check").arg(&data));
        assert!(ok(&checked).contains("good: all data"), "{}", checked.text);
        let into = format!("restored {has_snapshot}");
        ok(&bench.restore(&into, &[]));
        for dir in [copy, bench.path(&into)] {
            assert_equal(&serve(&dir), bench.server());
        }
    }
}

#[test]
fn a_moment_is_a_change_or_a_time() {
    let bench = Bench::new();
    bench.server().raw().command(&["SET", "value", "earlier"]);
    // Between two changes that are seconds apart.
    let mut raw = bench.server().raw();
    std::thread::sleep(Duration::from_secs(2));
    let now = integer(&mut raw, &["EVAL", "return redis.call('TIME')[1]", "0"]);
    let between = tidegate::base::calendar::utc(1_000 * now);
    std::thread::sleep(Duration::from_secs(2));
    raw.command(&["SET", "value", "later"]);
    ok(&run(&mut bench.backup(&[])));
    let last = last_lsn(bench.server());
    for (name, moment, value) in [
        ("later", last.to_string(), "later"),
        ("between", between, "earlier"),
        ("one before", (last - 1).to_string(), "earlier"),
    ] {
        ok(&bench.restore(name, &["--until", &moment]));
        assert_eq!(serve(&bench.path(name)).raw().command(&["GET", "value"]), Value::bulk(value), "{name}");
    }
    let said = bench.restore("before", &["--until", "2020-01-01T00:00:00Z"]);
    assert!(!said.is_good && said.text.contains("no copy up to that moment"), "{}", said.text);
    assert!(!bench.path("before").join("tidegate-data").exists());
    let said = bench.restore("before", &["--until", &(last + 1).to_string()]);
    let expected = format!("the copies end with the change {last}");
    assert!(!said.is_good && said.text.contains(&expected), "{}", said.text);
    assert!(std::fs::read_dir(bench.path("before")).is_ok_and(|left| left.count() == 0), "nothing is left behind");
    let said = bench.restore("later", &[]);
    assert!(!said.is_good && said.text.contains("restore into a new folder"), "{}", said.text);
    let said = bench.restore("never", &["--until", "yesterday"]);
    assert!(!said.is_good && said.text.contains("2026-11-30T08:00:00Z"), "{}", said.text);
}

/// Each copy has changes by numbers that the server uses for others.
#[test]
fn a_copy_is_not_followed_by_changes_of_another_history() {
    let mut bench = Bench::new();
    let mut raw = bench.server().raw();
    (0..5).for_each(|n| _ = raw.command(&["SET", &format!("k{n}"), "1"]));
    ok(&run(&mut bench.backup(&[])));
    let copy = |bench: &Bench| bench.path("copies").join(bench.copies().pop().expect("a copy"));
    let set = |server: &Server, name: &str| _ = server.raw().command(&["SET", name, "1"]);
    // A server adds to the copy, while the original goes on.
    (0..3).for_each(|n| set(&serve(&copy(&bench)), &format!("foreign{n}")));
    (0..9).for_each(|n| set(bench.server(), &format!("own{n}")));
    let expect = |bench: &Bench, name: &str, copies: usize| {
        let copying = Helper(bench.backup(&["--follow"]).stdout(Stdio::null()).spawn().expect("it starts"));
        until(|| bench.copies().len() == copies, "there is another copy where one is needed");
        let last = last_lsn(bench.server()).to_string();
        until(|| bench.restore(name, &["--until", &last]).is_good, "the copy has everything");
        drop(copying);
        assert_eq!(digest(&serve(&bench.path(name))), digest(bench.server()));
        assert_eq!(bench.copies().len(), copies);
    };
    expect(&bench, "beside", 2);
    // The server is set back, and overtakes the copy; then it is set back and does not.
    bench.server = None;
    let (data, old) = (bench.path("server/tidegate-data"), bench.path("old"));
    let copy_files = |from: &Path, to: &Path| {
        assert!(Command::new("cp").arg("-a").arg(from).arg(to).status().is_ok_and(|status| status.success()));
    };
    copy_files(&data, &old);
    for (name, changes, copies) in [("overtaken", 9, [2, 3]), ("behind", 1, [4, 5])] {
        bench.start();
        (0..5).for_each(|n| set(bench.server(), &format!("{name} lost{n}")));
        expect(&bench, &format!("before {name}"), copies[0]);
        bench.server = None;
        std::fs::remove_dir_all(&data).expect("it is there");
        copy_files(&old, &data);
        bench.start();
        (0..changes).for_each(|n| set(bench.server(), &format!("{name} new{n}")));
        expect(&bench, name, copies[1]);
        bench.server = None;
        std::fs::remove_dir_all(&data).expect("it is there");
        copy_files(&old, &data);
    }
}

#[test]
fn a_follower_outlives_its_server_and_begins_another_copy_when_changes_are_gone() {
    let mut bench = Bench::new();
    bench.server().raw().command(&["SET", "a", "1"]);
    ok(&run(&mut bench.backup(&[])));
    let value = "x".repeat(100_000);
    let mut raw = bench.server().raw();
    // The journal behind the copy is cut, as nobody follows.
    for _ in 0..400 {
        raw.command(&["SET", "b", &value]);
    }
    raw.command(&["SAVE"]);
    let log = bench.path("log");
    let out = std::fs::File::create(&log).expect("a file");
    let copying = Helper(bench.backup(&["--follow"]).stdout(out).spawn().expect("it starts"));
    let said = || std::fs::read_to_string(&log).unwrap_or_default();
    // It may have followed the old copy for a moment, until the journal was cut.
    let follows = |text: &str| text.contains("following from");
    let has_begun_again = || said().split_once("another copy begins").is_some_and(|(_, then)| follows(then));
    until(has_begun_again, "it can't go on with the old copy, and makes another one");
    assert_eq!(bench.copies().len(), 2);
    bench.server = None;
    until(|| said().contains("trying again"), "it waits for the server");
    let again = serve(&bench.path("server"));
    again.raw().command(&["SET", "c", "3"]);
    let last = last_lsn(&again);
    let mut nth = 0;
    until(
        || {
            nth += 1;
            ok(&bench.restore(&format!("try {nth}"), &[])).contains(&format!("Lsn {last},"))
        },
        "the copy goes on",
    );
    assert_eq!(digest(&serve(&bench.path(&format!("try {nth}")))), digest(&again));
    drop(copying);
}

/// Each snapshot takes the place of changes that the copy has not read yet.
#[test]
fn a_copy_that_is_overtaken_by_a_snapshot_begins_again() {
    let bench = Bench::new();
    let mut raw = bench.server().raw();
    raw.command(&["SET", "first", &"x".repeat(250_000)]);
    raw.command(&["SAVE"]);
    let log = bench.path("log");
    let out = std::fs::File::create(&log).expect("a file");
    // It pauses for two seconds behind the snapshot.
    let value = "x".repeat(100_000);
    let mut copying = Helper(bench.backup(&["--max-rate", "128kb"]).stdout(out).spawn().expect("it starts"));
    let said = || std::fs::read_to_string(&log).unwrap_or_default();
    until(
        || {
            // The journal is cut in segments of megabytes.
            raw.command(&["EVAL", "for i = 1, 40 do redis.call('SET', KEYS[1], ARGV[1]) end", "1", "last", &value]);
            raw.command(&["SAVE"]);
            said().contains("the copy begins again with the newest snapshot")
        },
        "a snapshot overtakes the copy",
    );
    assert!(copying.0.wait().expect("it ends").success(), "{}", said());
    assert_eq!(bench.copies().len(), 1);
    ok(&bench.restore("restored", &[]));
    assert_eq!(digest(&serve(&bench.path("restored"))), digest(bench.server()));
}

#[test]
fn old_copies_are_removed_once_no_moment_needs_them() {
    let bench = Bench::new();
    bench.server().raw().command(&["SET", "a", "1"]);
    let flags = ["--follow", "--every", "1s", "--keep", "2s"];
    let log = bench.path("log");
    let out = std::fs::File::create(&log).expect("a file");
    let copying = Helper(bench.backup(&flags).stdout(out).spawn().expect("it starts"));
    let mut most = 0;
    until(
        || {
            most = most.max(bench.copies().len());
            std::fs::read_to_string(&log).is_ok_and(|said| said.matches("removed ").count() >= 2)
        },
        "copies are old",
    );
    assert!(most >= 2, "those of the last two seconds are kept");
    let said = run(&mut bench.backup(&[]));
    assert!(!said.is_good && said.text.contains("another backup uses this folder"), "{}", said.text);
    drop(copying);
    ok(&bench.restore("restored", &[]));
}

#[test]
fn a_backup_that_is_impossible_says_why() {
    let server = Server::start(Program::Tidegate, &["--appendonly", "no"]);
    let folder = tempfile::tempdir().expect("a folder");
    let from = format!("redis://127.0.0.1:{}", server.port());
    let backup = |from: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
        run(command.arg("backup").arg(folder.path().join("copies")).args(["--from", from]))
    };
    let said = backup(&from);
    assert!(!said.is_good && said.text.contains("set appendonly yes"), "{}", said.text);
    let said = backup("redis://127.0.0.1:1");
    assert!(!said.is_good && said.text.contains("no answer from"), "{}", said.text);
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
    let said = run(command.arg("restore").arg(folder.path()).arg("--into").arg(folder.path().join("new")));
    assert!(!said.is_good && said.text.contains("there is no copy"), "{}", said.text);
}

#[test]
fn a_user_needs_no_right_but_feed() {
    let bench = Bench::new();
    let mut raw = bench.server().raw();
    raw.command(&["SET", "a", "1"]);
    let user = ["ACL", "SETUSER", "backup", "on", ">change-me", "resetchannels", "+feed"];
    assert_eq!(raw.command(&user), Value::ok());
    assert_eq!(raw.command(&["ACL", "SETUSER", "other", "on", ">change-me", "+@all", "-feed"]), Value::ok());
    let backup = |user: &str| {
        let from = format!("redis://{user}:change-me@127.0.0.1:{}", bench.server().port());
        let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
        run(command.arg("backup").arg(bench.path("copies")).args(["--from", &from]))
    };
    ok(&backup("backup"));
    let said = backup("other");
    assert!(!said.is_good && said.text.contains("NOPERM"), "{}", said.text);
    assert_eq!(bench.copies().len(), 1);
    // What the refused call has begun is gone.
    ok(&backup("backup"));
    assert!(
        std::fs::read_dir(bench.path("copies")).is_ok_and(|entries| entries.count() == 3),
        "two copies and the lock"
    );
}

/// The first number of a reply that has some.
fn token(raw: &mut Raw, words: &[&str]) -> i64 {
    let Value::Array(reply) = raw.command(words) else { panic!("{words:?}") };
    let [Value::Integer(1), _, Value::Integer(token), ..] = reply[..] else { panic!("{words:?}: {reply:?}") };
    token
}

/// `docs/production.md` says so of a group that has lost more than half of its folders.
#[test]
fn the_last_node_of_a_group_is_the_source_of_a_new_group() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name);
    let tidegate = || Command::new(env!("CARGO_BIN_EXE_tidegate"));
    let mut group = Group::with(&[], false);
    let (leader, _) = group.increment();
    let left = leader % 3 + 1;
    let mut raw = group.raw(leader, PORT);
    let held = token(&mut raw, &["LOCK.ACQUIRE", "lock", "ann", "PX", "3600000"]);
    raw.command(&["STOCK.SET", "stock", "5"]);
    token(&mut raw, &["STOCK.RESERVE", "stock", "order", "UNITS", "2", "PX", "3600000"]);
    raw.command(&["SET", "last", "1"]);
    // A follower hears a moment later that a change is committed.
    until(|| group.ask(left, &["GET", "last"]) == Some(Value::bulk("1")), "the follower has it");
    (1..=3).filter(|number| *number != left).for_each(|number| group.end(number, libc::SIGKILL));
    let from = format!("redis://{}:{PORT}", group.host(left));
    ok(&run(tidegate().arg("backup").arg(path("copies")).args(["--from", &from])));
    ok(&run(tidegate().arg("restore").arg(path("copies")).arg("--into").arg(path("alone"))));
    let alone = serve(&path("alone"));
    let other = Group::with(&[], false);
    let (leader, _) = other.increment();
    let mut raw = other.raw(leader, PORT);
    assert_eq!(raw.command(&["FLUSHALL"]), Value::ok(), "what the wait for a leader has left");
    let [source, into] =
        [format!("redis://127.0.0.1:{}", alone.port()), format!("redis://{}:{PORT}", other.host(leader))];
    ok(&run(tidegate().args(["import", &source, "--into", &into])));
    assert_eq!(token(&mut raw, &["LOCK.ACQUIRE", "lock", "ann", "PX", "3600000"]), held, "ann has it still");
    assert!(token(&mut raw, &["LOCK.ACQUIRE", "new", "bob", "PX", "3600000"]) > held, "no token is given out twice");
    let Value::Array(stock) = raw.command(&["STOCK.INFO", "stock"]) else { panic!("it is a stock") };
    assert_eq!(stock[1..5], [Value::bulk("available"), Value::Integer(3), Value::bulk("held"), Value::Integer(2)]);
}
