//! The server's text log: which lines clients can cause, how many, and whether writing it delays any client.

use std::fs;
use std::io::Read as _;
use std::net::TcpStream;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::process::{Child, Command, Stdio};

use serde_json::Value as Json;

use crate::harness::{Program, Raw, Server, Value, free_port, launch_command, until};
use crate::oracle::{OTHER_ADDRESS, other_address};

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
    assert!(matches!(raw.command(&["AUTH", "ann", "p"]), Value::Error(_)));
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
    let refused = line("sign-in refused");
    assert_eq!((&refused["target"], &refused["user"]), (&"audit".into(), &"ann".into()));
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

/// The lines of the audit, from their message on, without the number and the port of the client.
fn audited(log: &str) -> Vec<String> {
    let lines = log.lines().filter_map(|line| line.split_once(" INFO audit: "));
    let without_client = |line: &str| {
        let words = line.split(' ').filter(|word| !word.starts_with("client=") && !word.starts_with("address="));
        words.collect::<Vec<_>>().join(" ")
    };
    lines.map(|(_, line)| without_client(line)).collect()
}

#[test]
fn the_audit_tells_who_did_what_and_no_password() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let users = dir.path().join("users");
    fs::write(&users, "user default on nopass ~* &* +@all\nuser ann on >secret ~* &* +@all\nuser off >secret\n")
        .expect("written");
    let mut server = Server::start(Program::Tidegate, &["--aclfile", users.to_str().expect("text")]);
    let mut raw = server.raw();
    for (user, password) in [("ann", "secret-1"), ("nobody", "secret-2"), ("off", "secret"), ("a\"b\nc", "secret-3")] {
        assert!(matches!(raw.command(&["AUTH", user, password]), Value::Error(_)), "{user}");
    }
    assert!(matches!(raw.command(&["HELLO", "3", "AUTH", "eve", "secret-4"]), Value::Error(_)));
    assert_eq!(raw.command(&["AUTH", "ann", "secret"]), Value::ok());
    let hash = "#".to_owned() + &"ab".repeat(32);
    for call in [
        &["acl", "setuser", "bob", "on", ">secret-5", "<secret-5", &hash, "+get", "(~app:* +set)"][..],
        &["ACL", "DELUSER", "bob"],
        &["CONFIG", "SET", "maxmemory", "100mb", "requirepass", "secret-6"],
        &["CONFIG", "SET", "proc-title-template", "a user=\"root\""],
        &["LOCK.ACQUIRE", "key", "me", "PX", "60000"],
        &["LOCK.BREAK", "key", "me", "NOTE", "it hung"],
        &["SELECT", "3"],
        &["FLUSHDB"],
        &["ACL", "LOAD"],
    ] {
        let reply = raw.command(call);
        assert!(!matches!(reply, Value::Error(_)), "{call:?}: {reply:?}");
    }
    // These change nothing.
    for call in [
        &["ACL", "SETUSER", "bob", "nonsense", ">secret-7"][..],
        &["CONFIG", "SET", "nonsense", "secret-8"],
        &["CONFIG", "REWRITE"],
        &["FLUSHALL", "nonsense"],
        &["LOCK.BREAK"],
        &["NODE", "REMOVE", "1"],
    ] {
        assert!(matches!(raw.command(call), Value::Error(_)), "{call:?}");
    }
    assert_eq!(raw.command(&["MULTI"]), Value::ok());
    raw.command(&["FLUSHALL"]);
    raw.command(&["EXEC"]);
    raw.command(&["EVAL", "redis.call('FLUSHALL', 'ASYNC') return redis.error_reply('no')", "0"]);
    // A user who removes itself has still done that.
    assert_eq!(raw.command(&["ACL", "DELUSER", "ann"]), Value::Integer(1));
    server.raw().send_command(&["SHUTDOWN", "NOSAVE"]);
    until(|| server.has_ended(), "the server ends");
    let log = server.log();
    assert!(!log.contains("secret") && !log.contains("abab"), "{log}");
    let expected = [
        r#"sign-in refused user="ann" reason="wrong password""#,
        r#"sign-in refused user="nobody" reason="there is no such user""#,
        r#"sign-in refused user="off" reason="the user is off""#,
        r#"sign-in refused user="a\"b\nc" reason="there is no such user""#,
        r#"sign-in refused user="eve" reason="there is no such user""#,
        concat!(
            r#"users changed user="ann" db=0 call=acl setuser bob on >(redacted) <(redacted) #(redacted) "#,
            r#"+get "(~app:* +set)""#
        ),
        r#"users changed user="ann" db=0 call=ACL DELUSER bob"#,
        r#"settings changed user="ann" db=0 call=CONFIG SET maxmemory 100mb requirepass (redacted)"#,
        r#"settings changed user="ann" db=0 call=CONFIG SET proc-title-template "a user=\"root\"""#,
        r#"lock taken away user="ann" db=0 call=LOCK.BREAK key me NOTE "it hung""#,
        r#"everything deleted user="ann" db=3 call=FLUSHDB"#,
        r#"users changed user="ann" db=3 call=ACL LOAD"#,
        r#"everything deleted user="ann" db=3 call=FLUSHALL"#,
        r#"everything deleted user="ann" db=3 call=FLUSHALL ASYNC"#,
        r#"users changed user="ann" db=3 call=ACL DELUSER ann"#,
        r#"shutdown requested user="default" db=0 call=SHUTDOWN NOSAVE"#,
    ];
    assert_eq!(audited(&log), expected, "{log}");
    assert!(
        log.contains(r#"INFO audit: everything deleted client="#) && log.contains(r#" address="127.0.0.1:"#),
        "{log}"
    );
}

#[test]
fn refused_sign_ins_neither_fill_the_log_nor_hide_other_lines() {
    let (mut server, mut raw) = Server::with_client(Program::Tidegate);
    for _ in 0..100 {
        (0..100).for_each(|_| raw.send_command(&["AUTH", "ann", "wrong"]));
        (0..100).for_each(|_| assert!(matches!(raw.reply().value, Value::Error(_))));
    }
    assert_eq!(raw.command(&["FLUSHALL"]), Value::ok());
    raw.send_command(&["SHUTDOWN", "NOSAVE"]);
    until(|| server.has_ended(), "the server ends");
    let lines = audited(&server.log());
    let count = |what: &str| lines.iter().filter(|line| line.starts_with(what)).count();
    assert_eq!(count("everything deleted "), 1);
    assert_eq!(count("shutdown requested "), 1);
    // More than a minute may pass on a busy machine, and a new minute takes as many again.
    let left_out: usize = lines
        .iter()
        .filter_map(|line| line.strip_prefix("and ")?.split_once(" more like this: sign-in refused "))
        .map(|(count, _)| count.parse::<usize>().expect("a number"))
        .sum();
    assert_eq!(count("sign-in refused ") + left_out, 10_000);
    assert!(lines.len() < 2_000, "{}", lines.len());
}

#[test]
fn the_audit_tells_of_clients_that_protected_mode_keeps_out() {
    if OTHER_ADDRESS.is_missing() {
        return;
    }
    let server = Server::start(Program::Tidegate, &["--bind", "*"]);
    let address = other_address().expect("it is there");
    let mut stranger = Raw::over(TcpStream::connect((address, server.port())).expect("it listens everywhere"));
    assert!(stranger.read_to_end().starts_with(b"-DENIED "));
    let told = "INFO audit: remote client refused address=";
    until(|| server.log().contains(told), "the audit tells of it");
}

#[test]
fn the_audit_is_hidden_by_a_loglevel_for_warnings_alone() {
    let mut server = Server::start(Program::Tidegate, &["--loglevel", "warning"]);
    let mut raw = server.raw();
    assert_eq!(raw.command(&["FLUSHALL"]), Value::ok());
    raw.send_command(&["SHUTDOWN", "NOSAVE"]);
    until(|| server.has_ended(), "the server ends");
    assert_eq!(audited(&server.log()), [""; 0]);
}
