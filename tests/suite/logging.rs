//! The server's text log: which lines clients can cause, how many, and whether writing it delays any client.

use std::fs;
use std::io::Read as _;
use std::net::TcpStream;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::process::{Child, Command, Stdio};

use serde_json::Value as Json;

use crate::harness::{Program, Raw, Server, Value, free_port, launch_command, until};

/// The longest line in bytes, including everything around the message.
const LINE_MAX: usize = 5_000;

/// A server whose standard output is a pipe.
struct Piped {
    child: Child,
    port: u16,
    _dir: tempfile::TempDir,
}

impl Piped {
    fn start(flags: &[&str]) -> Piped {
        let (dir, port) = (tempfile::tempdir().expect("a temporary folder"), free_port());
        let command_line = launch_command(Program::Tidegate);
        let child = Command::new(&command_line[0])
            .args(&command_line[1..])
            .args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--dir"])
            .arg(dir.path())
            .args(flags)
            .stdout(Stdio::piped())
            .spawn()
            .expect("the program of the other tests");
        until(|| TcpStream::connect(("127.0.0.1", port)).is_ok(), "the server listens");
        Piped { child, port, _dir: dir }
    }

    fn raw(&self) -> Raw {
        Raw::connect(self.port)
    }

    /// Reads its output to the end, on a thread.
    fn drain(&mut self) -> std::thread::JoinHandle<String> {
        let mut pipe = self.child.stdout.take().expect("it is piped, and taken once");
        std::thread::spawn(move || {
            let mut all = Vec::new();
            pipe.read_to_end(&mut all).expect("a pipe");
            String::from_utf8(all).expect("a log is text")
        })
    }

    /// Ends the server as a service manager does; returns whether it reported success.
    fn end(&mut self) -> bool {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args(["-TERM", &pid]).status().expect("kill").success());
        until(|| self.child.try_wait().expect("our own child").is_some(), "the server ends");
        self.child.wait().expect("our own child").success()
    }
}

impl Drop for Piped {
    fn drop(&mut self) {
        // Both fail only if the process has already ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A number from INFO.
fn info_number(raw: &mut Raw, field: &str) -> i64 {
    let all = raw.command(&["INFO", "everything"]);
    let all = String::from_utf8_lossy(all.bytes().expect("INFO answers a text")).into_owned();
    let line = all.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
    line.and_then(|value| value.parse().ok()).unwrap_or_else(|| panic!("INFO has no {field}"))
}

/// Bytes in use outside the Lua state, whose garbage is freed only when it is collected.
fn used(raw: &mut Raw) -> i64 {
    info_number(raw, "used_memory") - info_number(raw, "used_memory_lua")
}

#[test]
fn a_long_message_is_cut_and_its_memory_is_freed() {
    let (server, mut raw) = Server::with_client(Program::Tidegate);
    let before = used(&mut raw);
    raw.command(&["EVAL", "redis.log(redis.LOG_WARNING, 'first' .. string.rep('x', 20000000))", "0"]);
    raw.command(&["EVAL", "redis.log(redis.LOG_WARNING, 'second' .. string.rep('\\255', 20000000))", "0"]);
    let refused = raw.command(&["CONFIG", "SET", "bind", &format!("third{}", "y".repeat(5_000_000))]);
    assert!(matches!(refused, Value::Error(_)), "{refused:?}");
    until(|| server.log().contains("third"), "all lines are logged");
    until(|| used(&mut raw) < before + 1_000_000, "the memory is freed");
    let log = server.log();
    assert!(log.lines().all(|line| line.len() < LINE_MAX), "a line is too long");
    assert!(log.contains("... (19998981 more bytes)"), "the line says how much is missing");
}

#[test]
fn messages_cannot_forge_log_lines() {
    let server = Server::start(Program::Tidegate, &["--enable-debug-command", "yes", "--enable-module-command", "yes"]);
    let mut raw = server.raw();
    let forged = "\r\n2026-01-01T00:00:00.000000Z  WARN forged\u{1b}[31m";
    raw.command(&["DEBUG", "LOG", &format!("one{forged}")]);
    raw.command(&["MODULE", "LOAD", &format!("two{forged}")]);
    raw.command(&["CONFIG", "SET", "bind", &format!("three{forged}")]);
    for said in ["one", "two", "three"] {
        until(|| server.log().contains(&format!("{said}\\r\\n2026-01-01")), said);
    }
    let log = server.log();
    assert!(!log.contains('\r') && !log.contains('\u{1b}'), "{log}");
    assert!(!log.lines().any(|line| line.starts_with("2026-01-01")), "{log}");
}

#[test]
fn an_unread_log_delays_no_client() {
    let mut server = Piped::start(&["--requirepass", "p"]);
    let mut raw = server.raw();
    assert_eq!(raw.command(&["AUTH", "p"]), Value::ok());
    for _ in 0..5_000 {
        let mut stranger = server.raw();
        stranger.send(b"POST / HTTP/1.1\r\n");
        assert_eq!(stranger.read_to_end(), b"");
    }
    assert_eq!(raw.command(&["PING"]), Value::status("PONG"));
    let log = server.drain();
    assert!(server.end());
    let log = log.join().expect("it reads");
    let lines = |what: &str| log.lines().filter(|line| line.contains(what)).count();
    assert_eq!(lines("WARN closed: it speaks HTTP client="), 200, "{log}");
    assert_eq!(lines("and 4800 more like this: closed: it speaks HTTP client="), 1, "{log}");
}

#[test]
fn an_unread_log_reports_the_number_of_missing_lines() {
    let mut server = Piped::start(&["--loglevel", "debug"]);
    let mut raw = server.raw();
    // As many lines as scripts may log in a minute, at each level: more than the buffer holds.
    let script = "for i = 1, 1000 do redis.log(tonumber(ARGV[1]), 'said ' .. string.rep('x', 1000)) end";
    for level in ["0", "1", "2", "3"] {
        assert_eq!(raw.command(&["EVAL", script, "0", level]), Value::Null);
    }
    let lost = info_number(&mut raw, "log_lines_lost") as usize;
    assert!(lost > 1_000, "{lost}");
    let log = server.drain();
    assert!(server.end());
    let log = log.join().expect("it reads");
    assert_eq!(log.lines().filter(|line| line.contains("said xxx")).count() + lost, 4_000);
    let told =
        format!("lines before this one are missing, because the log could not be written fast enough lines={lost}");
    assert!(log.contains(&told), "{told}");
    let at = |words: &str| log.find(words).unwrap_or_else(|| panic!("{words}"));
    assert!(at("* Ready to accept connections") < at("bye bye..."));
}

#[test]
fn an_unread_log_does_not_delay_the_shutdown() {
    let mut server = Piped::start(&[]);
    let script = "for i = 1, 1000 do redis.log(redis.LOG_WARNING, string.rep('x', 1000)) end";
    assert_eq!(server.raw().command(&["EVAL", script, "0"]), Value::Null);
    assert!(server.end());
}

#[test]
fn the_log_file_is_readable_by_owner_and_group_only() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let path = dir.path().join("server.log");
    let _server = Server::start(Program::Tidegate, &["--logfile", path.to_str().expect("text")]);
    let mode = fs::metadata(&path).expect("it is there").permissions().mode() & 0o777;
    assert_eq!(mode & 0o137, 0, "{mode:o}");
}

/// Otherwise a user who can create a link there could make the server overwrite any file.
#[test]
fn the_pidfile_does_not_follow_a_link() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let (path, precious) = (dir.path().join("pid"), dir.path().join("precious"));
    fs::write(&precious, "precious").expect("written");
    symlink(&precious, &path).expect("a link");
    let server = Server::start(Program::Tidegate, &["--pidfile", path.to_str().expect("text")]);
    until(|| server.log().contains("the pidfile"), "the server prints the reason");
    assert_eq!(fs::read_to_string(&precious).expect("there"), "precious");
}

/// The lines of a log in the form for programs.
fn objects(log: &str) -> Vec<Json> {
    let object = |line: &str| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
    log.lines().map(object).collect()
}

#[test]
fn each_line_of_a_json_log_is_one_object() {
    let mut server = Piped::start(&["--log-format", "json", "--requirepass", "p", "--maxmemory-policy", "noeviction"]);
    let mut raw = server.raw();
    assert_eq!(raw.command(&["AUTH", "p"]), Value::ok());
    let script = "redis.log(redis.LOG_WARNING, 'a\\n\"\\\\\\27[31m')";
    assert_eq!(raw.command(&["EVAL", script, "0"]), Value::Null);
    assert!(matches!(raw.command(&["CONFIG", "SET", "bind", &"long".repeat(5_000)]), Value::Error(_)));
    let mut stranger = server.raw();
    stranger.send(b"POST / HTTP/1.1\r\n");
    assert_eq!(stranger.read_to_end(), b"");
    let log = server.drain();
    assert!(server.end());
    let log = objects(&log.join().expect("it reads"));
    for line in &log {
        let time = line["time"].as_str().expect("a text").replace(|at: char| at.is_ascii_digit(), "9");
        assert_eq!(time, "9999-99-99T99:99:99.999999Z", "{line}");
        assert!(line["level"].is_string() && line["message"].is_string(), "{line}");
    }
    let line = |what: &str| {
        let is_wanted = |line: &&Json| line["message"].as_str().is_some_and(|message| message.contains(what));
        log.iter().find(is_wanted).unwrap_or_else(|| panic!("no line says {what}: {log:?}"))
    };
    line("* Ready to accept connections");
    // Scripts can't log control characters.
    let said = line("a \"\\ [31m");
    assert_eq!((&said["level"], &said["target"]), (&"WARN".into(), &"script".into()));
    let long = line("longlong");
    assert!(long["cut_bytes"].as_u64().is_some_and(|cut| cut > 10_000), "{long}");
    let closed = line("closed: it speaks HTTP");
    assert!(closed["client"].is_u64() && closed["address"].is_string(), "{closed}");
    assert!(closed["target"].is_null(), "{closed}");
    let last = log.last().expect("there are lines")["message"].as_str().expect("a text");
    assert!(last.contains("bye bye"), "{last}");
}

/// The programs that read such a log don't see what is printed for people.
#[test]
fn a_json_log_says_why_the_start_failed() {
    let other = Server::start(Program::Tidegate, &[]);
    let dir = tempfile::tempdir().expect("a temporary folder");
    let command_line = launch_command(Program::Tidegate);
    let started = Command::new(&command_line[0])
        .args(&command_line[1..])
        .args(["--port", &other.port().to_string(), "--bind", "127.0.0.1", "--log-format", "json"])
        .args(["--logfile", "log", "--dir"])
        .arg(dir.path())
        .output()
        .expect("the program of the other tests");
    assert!(!started.status.success());
    let log = objects(&fs::read_to_string(dir.path().join("log")).expect("it is there"));
    let last = log.last().expect("there are lines");
    assert_eq!(last["level"], "ERROR");
    assert!(last["message"].as_str().is_some_and(|message| message.contains("Another server uses it")), "{last}");
}

#[test]
fn the_last_line_says_what_is_on_disk() {
    for (flags, shutdown, is_kept) in [
        (&["--appendonly", "yes"][..], &["SHUTDOWN"][..], true),
        (&["--appendonly", "yes", "--appendfsync", "no"], &["SHUTDOWN"], true),
        (&["--appendonly", "no"], &["SHUTDOWN", "SAVE"], true),
        (&["--appendonly", "no"], &["SHUTDOWN", "NOSAVE"], false),
    ] {
        let mut server = Server::start(Program::Tidegate, flags);
        let mut raw = server.raw();
        for key in ["a", "b", "c"] {
            assert_eq!(raw.command(&["SET", key, "value"]), Value::ok());
        }
        let last = if flags[1] == "yes" { info_number(&mut raw, "log_last_lsn") } else { 1 };
        raw.send_command(shutdown);
        until(|| server.has_ended(), "the server ends");
        let said = match is_kept {
            true => format!("Everything up to Lsn {last} is on disk"),
            false => "No data is on disk".to_owned(),
        };
        let log = server.log();
        let line = log.lines().last().expect("there are lines");
        assert!(line.contains(&format!("bye bye... {said} reason=\"SHUTDOWN\"")), "{flags:?}: {line}");
    }
}
