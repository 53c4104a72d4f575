//! Configuration as an operator meets it: Redis' own files, flags, CONFIG SET of several parameters, the process around
//! the server.

use std::fs::{File, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::harness::{Program, Raw, Server, Value, free_port, until};
use crate::oracle::REDIS_SERVER;

/// The active lines of the redis.conf of Redis 8.0, with the changes that Debian makes to it.
const REDIS_CONF: &str = r#"
bind 127.0.0.1 -::1
protected-mode yes
tcp-backlog 511
timeout 0
tcp-keepalive 300
pidfile /run/nosuch/redis-server.pid
loglevel notice
logfile ""
databases 16
always-show-logo no
set-proc-title yes
proc-title-template "{title} {listen-addr} {server-mode}"
locale-collate ""
stop-writes-on-bgsave-error yes
rdbcompression yes
rdbchecksum yes
dbfilename dump.rdb
rdb-del-sync-files no
replica-serve-stale-data yes
replica-read-only yes
repl-diskless-sync yes
repl-diskless-sync-delay 5
repl-diskless-sync-max-replicas 0
repl-diskless-load disabled
repl-disable-tcp-nodelay no
replica-priority 100
acllog-max-len 128
lazyfree-lazy-eviction no
lazyfree-lazy-expire no
lazyfree-lazy-server-del no
replica-lazy-flush no
lazyfree-lazy-user-del no
lazyfree-lazy-user-flush no
oom-score-adj no
oom-score-adj-values 0 200 800
disable-thp yes
appendonly no
appendfilename "appendonly.aof"
appenddirname "appendonlydir"
appendfsync everysec
no-appendfsync-on-rewrite no
auto-aof-rewrite-percentage 100
auto-aof-rewrite-min-size 64mb
aof-load-truncated yes
aof-use-rdb-preamble yes
aof-timestamp-enabled no
slowlog-log-slower-than 10000
slowlog-max-len 128
latency-monitor-threshold 0
notify-keyspace-events ""
hash-max-listpack-entries 512
hash-max-listpack-value 64
list-max-listpack-size -2
list-compress-depth 0
set-max-intset-entries 512
set-max-listpack-entries 128
set-max-listpack-value 64
zset-max-listpack-entries 128
zset-max-listpack-value 64
hll-sparse-max-bytes 3000
stream-node-max-bytes 4096
stream-node-max-entries 100
activerehashing yes
client-output-buffer-limit normal 0 0 0
client-output-buffer-limit replica 256mb 64mb 60
client-output-buffer-limit pubsub 32mb 8mb 60
hz 10
dynamic-hz yes
aof-rewrite-incremental-fsync yes
rdb-save-incremental-fsync yes
jemalloc-bg-thread yes
"#;

fn text(value: &Value) -> String {
    String::from_utf8_lossy(value.bytes().unwrap_or_default()).into_owned()
}

/// A server started with a configuration file, killed when dropped.
struct Configured {
    child: Child,
    port: u16,
    dir: tempfile::TempDir,
}

impl Configured {
    /// Starts a server with this file, and a port and a folder of its own.
    fn start(file: &str, environment: &[(&str, &Path)]) -> Configured {
        let dir = tempfile::tempdir().expect("a temporary folder");
        let port = free_port();
        let content = format!("port {port}\ndir {}\n{file}", dir.path().display());
        std::fs::write(dir.path().join("redis.conf"), content).expect("a fresh folder");
        Configured { child: launch(dir.path(), environment), port, dir }.answering()
    }

    /// Kills the server and starts a new one in its place.
    fn restarted(mut self) -> Configured {
        self.child.kill().and_then(|()| self.child.wait()).expect("our own child");
        self.child = launch(self.dir.path(), &[]);
        self.answering()
    }

    fn answering(mut self) -> Configured {
        until(
            || {
                let has_ended = self.child.try_wait().expect("our own child").is_some();
                assert!(!has_ended, "the server ended: {}", self.said());
                answers(self.port)
            },
            "the server answers",
        );
        self
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.path(name)).unwrap_or_default()
    }

    fn said(&self) -> String {
        self.read("said")
    }

    fn raw(&self) -> Raw {
        Raw::connect(self.port)
    }

    fn signal(&self, name: &str) {
        signal(self.child.id(), name);
    }
}

impl Drop for Configured {
    fn drop(&mut self) {
        // Both fail only if the process has already ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn launch(dir: &Path, environment: &[(&str, &Path)]) -> Child {
    let said = File::create(dir.join("said")).expect("a file in our own folder");
    Command::new(env!("CARGO_BIN_EXE_tidegate"))
        .arg(dir.join("redis.conf"))
        .envs(environment.iter().copied())
        .stdin(Stdio::null())
        .stderr(said.try_clone().expect("a second handle"))
        .stdout(said)
        .spawn()
        .expect("the program of this build")
}

fn answers(port: u16) -> bool {
    std::net::TcpStream::connect(("127.0.0.1", port)).is_ok()
}

fn signal(process: u32, name: &str) {
    let sent = Command::new("kill").args([&format!("-{name}"), &process.to_string()]).status();
    assert!(sent.expect("kill is there").success());
}

/// Runs the program to its end; returns its output.
fn refused(args: &[&str]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_tidegate")).args(args).output().expect("the program of this build");
    assert!(!output.status.success(), "{args:?} started a server");
    String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned()
}

fn get(c: &mut Raw, name: &str) -> String {
    match c.command(&["CONFIG", "GET", name]) {
        Value::Array(pair) if pair.len() == 2 => text(&pair[1]),
        other => panic!("{name}: {other:?}"),
    }
}

fn info(c: &mut Raw, field: &str) -> String {
    let info = text(&c.command(&["INFO", "server"]));
    let line = info.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':')).map(str::to_owned);
    line.unwrap_or_else(|| panic!("no {field} in {info}"))
}

#[test]
fn a_redis_conf_starts_the_server_with_notices_about_ineffective_lines() {
    let server = Configured::start(REDIS_CONF, &[]);
    let mut c = server.raw();
    assert_eq!(get(&mut c, "repl-diskless-sync-delay"), "5");
    assert_eq!(get(&mut c, "slave-priority"), "100");
    assert_eq!(get(&mut c, "appendonly"), "no");
    assert_eq!(info(&mut c, "config_file"), server.path("redis.conf").display().to_string());
    until(|| server.said().contains("jemalloc-bg-thread"), "the server lists the ineffective parameters");
    let said = server.said();
    assert!(said.lines().count() <= 12, "{said}");
    assert!(said.contains("the pidfile /run/nosuch/redis-server.pid can't be written"), "{said}");
    for name in
        ["always-show-logo", "rdbchecksum", "replica-priority", "activerehashing", "dynamic-hz", "locale-collate"]
    {
        assert_eq!(said.matches(name).count(), 1, "{name} in {said}");
    }
}

/// A single server has no replicas.
#[test]
fn changes_are_refused_without_replicas_as_in_redis() {
    if REDIS_SERVER.is_missing() {
        return;
    }
    let flags = ["--min-slaves-to-write", "1"];
    let servers = [Program::Redis, Program::Tidegate].map(|program| Server::start(program, &flags));
    let mut sides = servers.each_ref().map(|server| (server.raw(), Vec::new()));
    let declared = |flags: &str| format!("#!lua{flags}\nreturn redis.call('dbsize')");
    let (may_write, reads) = (declared(""), declared(" flags=no-writes"));
    let calls: [&[&str]; 22] = [
        &["SET", "key", "value"],
        &["GET", "key"],
        &["PING"],
        &["PUBLISH", "channel", "message"],
        &["EVAL", "return redis.call('dbsize')", "0"],
        &["EVAL", "return redis.pcall('set', KEYS[1], 1)", "1", "key"],
        &["EVAL", &may_write, "0"],
        &["EVAL", &reads, "0"],
        &["EVAL_RO", &reads, "0"],
        &["FUNCTION", "FLUSH"],
        &["MULTI"],
        &["INCR", "key"],
        &["EXEC"],
        &["MULTI"],
        &["GET", "key"],
        &["CONFIG", "GET", "min-replicas-max-lag"],
        &["EXEC"],
        &["BLPOP", "list", "1"],
        &["CONFIG", "SET", "min-replicas-max-lag", "0"],
        &["SET", "key", "value"],
        &["CONFIG", "SET", "min-slaves-max-lag", "10", "min-slaves-to-write", "2"],
        &["DEL", "key"],
    ];
    for (raw, replies) in &mut sides {
        replies.extend(calls.iter().map(|call| raw.command(call)));
    }
    let [(mut redis, theirs), (mut tidegate, ours)] = sides;
    for ((call, theirs), ours) in calls.iter().zip(theirs).zip(ours) {
        assert_eq!(ours, theirs, "{call:?}");
    }
    for (server, raw) in servers.iter().zip([&mut redis, &mut tidegate]) {
        // EXEC checks the queued commands once more.
        let set = |value: &str| server.raw().command(&["CONFIG", "SET", "min-replicas-to-write", value]);
        set("0");
        ["MULTI", "INCR other"].iter().for_each(|line| drop(raw.command(&line.split(' ').collect::<Vec<_>>())));
        set("1");
        let refused = "EXECABORT Transaction discarded because of: NOREPLICAS Not enough good replicas to write.";
        assert_eq!(raw.command(&["EXEC"]), Value::error(refused));
        assert!(text(&raw.command(&["INFO", "replication"])).contains("min_slaves_good_slaves:0"));
        // The place in the script differs.
        let refused = raw.command(&["EVAL", "return redis.call('set', KEYS[1], 1)", "1", "key"]);
        assert!(
            matches!(&refused, Value::Error(text) if text.starts_with(b"NOREPLICAS Not enough good")),
            "{refused:?}"
        );
    }
    until(|| servers[1].log().contains("all changes are refused"), "the log warns of it");
}

#[test]
fn every_parameter_of_redis_is_known() {
    if REDIS_SERVER.is_missing() {
        return;
    }
    let (redis, tidegate) = (Server::start(Program::Redis, &[]), Server::start(Program::Tidegate, &[]));
    let names = |server: &Server| match server.raw().command(&["CONFIG", "GET", "*"]) {
        Value::Array(items) => items.chunks_exact(2).map(|pair| text(&pair[0])).collect::<Vec<_>>(),
        other => panic!("{other:?}"),
    };
    let (known, mut c) = (names(&tidegate), tidegate.raw());
    // Hidden parameters are shown only if named; one is a line that Redis 8 accepts and ignores.
    let mut is_known = |name: &String| {
        let named = c.command(&["CONFIG", "GET", name]);
        known.contains(name) || named != Value::Array(Vec::new()) || name == "io-threads-do-reads"
    };
    let unknown: Vec<_> = names(&redis).into_iter().filter(|name| !is_known(name)).collect();
    assert!(unknown.is_empty(), "{unknown:?}");
    assert!(known.len() > 150);
}

#[test]
fn the_page_of_all_parameters_is_generated_from_the_table() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/configuration.md");
    let wanted = tidegate::config::reference();
    if std::env::var_os("SUITE_WRITE").is_some() {
        std::fs::write(path, &wanted).expect("the folder is there");
    }
    let page = std::fs::read_to_string(path).unwrap_or_default();
    let differs = wanted.lines().zip(page.lines()).find(|(wanted, there)| wanted != there);
    assert!(page == wanted, "docs/configuration.md differs at {differs:?}; SUITE_WRITE=1 writes it anew");
}

#[test]
fn wrong_flags_get_advice() {
    for (args, part) in [
        (&["--prot", "7000"][..], "Did you mean port?"),
        (&["--replicaof", "10.0.0.1", "6379"], "tidegate import --follow redis://10.0.0.1:6379"),
        (&["--cluster-announce-ip", "[::1]"], "without brackets"),
        (&["--port", "6379", "6380"], "'port \"6379\" \"6380\"'\nwrong number of arguments"),
        (&["--port"], "'port'\nwrong number of arguments"),
        (&["--shutdown-on-sigint"], "must be one of the following: default, save"),
        (&["/nonexistent.conf"], "can't open config file '/nonexistent.conf'"),
    ] {
        let said = refused(args);
        assert!(said.contains(part), "{args:?}: {said}");
    }
    let server = Server::start(Program::Tidegate, &[]);
    let said = refused(&["--bind", "127.0.0.1", "--appendonly", "no", &format!("--port={}", server.port())]);
    assert!(said.contains("Another server uses it: choose another port with --port"), "{said}");
}

#[test]
fn ping_accepts_the_flags_of_redis_cli() {
    let server = Server::start(Program::Tidegate, &["--requirepass", "p@ss w/rd"]);
    let port = server.port().to_string();
    let ping = |args: &[&str]| {
        let output = Command::new(env!("CARGO_BIN_EXE_tidegate")).arg("ping").args(args).output();
        let output = output.expect("the program of this build");
        (output.status.success(), String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned())
    };
    assert_eq!(ping(&["-h", "127.0.0.1", "-p", &port, "-a", "p@ss w/rd"]), (true, "PONG\n".into()));
    assert_eq!(ping(&["--url", &format!("redis://:p%40ss%20w%2Frd@127.0.0.1:{port}")]), (true, "PONG\n".into()));
    assert!(!ping(&["-p", &port, "-a", "wrong"]).0);
    assert!(!ping(&["-p", &port, "--url", "redis://127.0.0.1"]).0, "--url excludes -p");
    assert!(ping(&["--help"]).1.contains("-h, --host <HOST>"));
}

#[test]
fn a_configuration_can_be_read_from_standard_input() {
    let mut child = Command::new(env!("CARGO_BIN_EXE_tidegate"))
        .args(["-", "--hz", "abc"])
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program of this build");
    let mut input = child.stdin.take().expect("it was asked for");
    std::io::Write::write_all(&mut input, b"hz 1\ntimeout x\n").expect("it reads");
    drop(input);
    let said = child.wait_with_output().expect("our own child");
    let said = String::from_utf8_lossy(&said.stderr).into_owned();
    assert!(said.contains("standard input, at line 2\n>>> 'timeout x'"), "{said}");
    assert!(said.contains("Reading the command line\n>>> 'hz \"abc\"'"), "{said}");
}

#[test]
fn a_failed_config_set_is_undone() {
    let server = Configured::start("appendonly yes\nenable-debug-command yes\nkey-load-delay 100000\n", &[]);
    let mut c = server.raw();
    assert_eq!(c.command(&["DEBUG", "POPULATE", "5000"]), Value::status("OK"));
    let server = server.restarted();
    let mut c = server.raw();
    let score = |server: &Configured| {
        std::fs::read_to_string(format!("/proc/{}/oom_score_adj", server.child.id()))
            .expect("it runs")
            .trim()
            .to_owned()
    };
    let before = score(&server);
    let values = ["oom-score-adj", "absolute", "oom-score-adj-values", "777 1 1"];
    let set = |more: &[&'static str]| [&["CONFIG", "SET"][..], &values, more].concat();
    // The journal cannot be closed while it is being read, and this is found only after the OOM score has been set.
    let reply = text(&c.command(&set(&["AppendOnly", "no"])));
    assert_eq!(reply, "ERR CONFIG SET failed (possibly related to argument 'AppendOnly') - the data is being loaded");
    assert_eq!(score(&server), before);
    assert_eq!((get(&mut c, "oom-score-adj"), get(&mut c, "oom-score-adj-values")), ("no".into(), "0 200 800".into()));
    assert_eq!(c.command(&set(&[])), Value::status("OK"));
    assert_eq!(score(&server), "777");
    assert_eq!(c.command(&["CONFIG", "SET", "oom-score-adj", "no"]), Value::status("OK"));
    assert_eq!(score(&server), before);
    assert!(text(&c.command(&["CONFIG", "SET", "dir", "/"])).starts_with("LOADING"), "dir waits for the data");
}

#[test]
fn config_rewrite_keeps_comments_and_the_order_of_lines() {
    let file = "# mine\nappendonly no\nhz 20\nsave 3600 1\nrequirepass \"a b\"\ninclude more/*.conf\n# the end\n";
    let server = Configured::start(file, &[]);
    let begin = server.read("redis.conf").replace(file, "");
    let mut c = server.raw();
    assert_eq!(c.command(&["AUTH", "a b"]), Value::status("OK"));
    assert_eq!(c.command(&["CONFIG", "REWRITE"]), Value::status("OK"));
    assert_eq!(server.read("redis.conf"), format!("{begin}{file}"));
    let set = [
        "CONFIG",
        "SET",
        "hz",
        "30",
        "save",
        "60 1 70 2",
        "maxmemory",
        "1gb",
        "requirepass",
        "x'\n",
        "slave-priority",
        "7",
    ];
    assert_eq!(c.command(&set), Value::status("OK"));
    assert_eq!(c.command(&["CONFIG", "REWRITE"]), Value::status("OK"));
    let expected = "# mine\nappendonly no\nhz 30\nsave 60 1\nsave 70 2\nrequirepass \"x'\\x0a\"\ninclude more/*.conf\n\
                    # the end\n\
                    # Generated by CONFIG REWRITE\nmaxmemory 1073741824\nreplica-priority 7\n";
    assert_eq!(server.read("redis.conf"), format!("{begin}{expected}"));

    let server = server.restarted();
    let mut c = server.raw();
    assert_eq!(c.command(&["AUTH", "x'\n"]), Value::status("OK"));
    for (name, value) in [("hz", "30"), ("save", "60 1 70 2"), ("maxmemory", "1073741824"), ("replica-priority", "7")] {
        assert_eq!(get(&mut c, name), value);
    }
    // Without its folder it cannot be written.
    std::fs::remove_file(server.path("redis.conf")).expect("it is there");
    std::fs::create_dir(server.path("redis.conf")).expect("the name is free");
    assert_eq!(c.command(&["CONFIG", "REWRITE"]), Value::error("ERR Rewriting config file: Is a directory"));

    let server = Server::start(Program::Tidegate, &[]);
    assert_eq!(
        server.raw().command(&["CONFIG", "REWRITE"]),
        Value::error("ERR The server is running without a config file")
    );
}

#[test]
fn config_rewrite_saves_users_too() {
    let server = Configured::start("appendonly no\nuser ann on nopass ~* &* +@all\n", &[]);
    let mut c = server.raw();
    assert_eq!(c.command(&["CONFIG", "REWRITE"]), Value::status("OK"));
    assert!(!server.read("redis.conf").contains("user default"), "the user is the same as without a line");
    assert_eq!(c.command(&["ACL", "SETUSER", "eve", "on", ">secret", "~cached:*", "+get"]), Value::status("OK"));
    assert_eq!(c.command(&["ACL", "SETUSER", "default", "-flushall"]), Value::status("OK"));
    let users = c.command(&["ACL", "LIST"]);
    assert_eq!(c.command(&["CONFIG", "REWRITE"]), Value::status("OK"));
    let server = server.restarted();
    assert_eq!(server.raw().command(&["ACL", "LIST"]), users);
}

#[test]
fn commands_can_be_renamed_and_removed() {
    let file = "appendonly no\nenable-debug-command yes\nrename-command FLUSHALL \"\"\n\
                rename-command config secret-config-b840fc02d52\n\
                rename-command DEBUG D\n";
    let server = Configured::start(file, &[]);
    let mut c = server.raw();
    let is_unknown = |c: &mut Raw, args: &[&str]| text(&c.command(args)).starts_with("ERR unknown command");
    assert!(is_unknown(&mut c, &["FLUSHALL"]));
    assert!(is_unknown(&mut c, &["CONFIG", "GET", "hz"]));
    let config = "SECRET-config-b840fc02d52";
    assert_eq!(c.command(&[config, "SET", "hz", "20"]), Value::status("OK"));
    assert!(is_unknown(&mut c, &["secret-config-b840fc02d53", "GET", "hz"]));
    assert_eq!(c.command(&["EXISTS", "k"]), Value::Integer(0));
    let script = "return redis.pcall('flushall')";
    assert!(
        text(&c.command(&["EVAL", script, "0"])).contains("Unknown Redis command"),
        "scripts cannot call it either"
    );
    assert_eq!(c.command(&["COMMAND", "INFO", "flushall"]), Value::Array(vec![Value::Null]));
    for args in [[config, "REWRITE"], ["d", "CONFIG-REWRITE-FORCE-ALL"]] {
        assert_eq!(c.command(&args), Value::status("OK"));
    }
    assert!(server.read("redis.conf").contains(file));

    let server = server.restarted();
    let mut c = server.raw();
    assert!(is_unknown(&mut c, &["FLUSHALL"]));
    assert_eq!(c.command(&[config, "GET", "hz"]), Value::Array(vec![Value::bulk("hz"), Value::bulk("20")]));
    for (line, part) in [
        (["--rename-command", "nosuch", "x"], "No such command in rename-command: 'nosuch'"),
        (["--rename-command", "get", "set"], "Target command name already exists: 'set'"),
    ] {
        let said = refused(&[&["--port", &free_port().to_string(), "--appendonly", "no"][..], &line].concat());
        assert!(said.contains(part), "{said}");
    }
}

#[test]
fn a_service_manager_is_notified_of_readiness_and_shutdown() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let address = folder.path().join("notify");
    let manager = UnixDatagram::bind(&address).expect("a fresh folder");
    manager.set_read_timeout(Some(Duration::from_secs(60))).expect("a timeout");
    let heard = || {
        let mut message = [0; 200];
        let length = manager.recv(&mut message).expect("the message comes in time");
        String::from_utf8_lossy(&message[..length]).into_owned()
    };
    // A service manager expects the process that it started to stay.
    let file = "supervised auto\ndaemonize yes\npidfile server.pid\nappendonly no\n";
    let mut server = Configured::start(file, &[("NOTIFY_SOCKET", &address)]);
    assert!(heard().starts_with("READY=1\n"));
    assert_eq!(server.read("server.pid"), format!("{}\n", server.child.id()));
    server.signal("TERM");
    assert!(heard().starts_with("STOPPING=1\n"));
    assert!(server.child.wait().expect("our own child").success());
    assert!(!server.path("server.pid").exists());
}

/// CONFIG REWRITE keeps the file's mode, since an administrator chose it, but warns if a password is written into it.
#[test]
fn a_password_in_a_world_readable_file_causes_a_warning() {
    let server = Configured::start("appendonly no\n", &[]);
    let mode = |mode| std::fs::set_permissions(server.path("redis.conf"), Permissions::from_mode(mode)).expect("ours");
    let mut c = server.raw();
    let rewrite = |c: &mut Raw| assert_eq!(c.command(&["CONFIG", "REWRITE"]), Value::status("OK"));
    let told = || server.read("said").matches("contains passwords").count();
    mode(0o644);
    rewrite(&mut c);
    assert_eq!(c.command(&["CONFIG", "SET", "requirepass", "secret"]), Value::status("OK"));
    mode(0o640);
    rewrite(&mut c);
    mode(0o644);
    rewrite(&mut c);
    until(|| told() > 0, "the server reports it");
    assert_eq!(told(), 1);
}

#[test]
fn a_daemonized_server_outlives_its_launcher_and_writes_its_log() {
    let file = "daemonize yes\npidfile server.pid\nlogfile server.log\nappendonly no\n";
    let dir = tempfile::tempdir().expect("a temporary folder");
    let port = free_port();
    let content = format!("port {port}\ndir {}\n{file}", dir.path().display());
    std::fs::write(dir.path().join("redis.conf"), content).expect("a fresh folder");
    assert!(launch(dir.path(), &[]).wait().expect("our own child").success(), "the first process ends at once");
    until(|| answers(port), "the server answers");
    let read = |name: &str| std::fs::read_to_string(dir.path().join(name)).unwrap_or_default();
    let process: u32 = read("server.pid").trim().parse().expect("a number");
    let mut c = Raw::connect(port);
    assert_eq!(info(&mut c, "process_id"), process.to_string());

    std::fs::rename(dir.path().join("server.log"), dir.path().join("server.log.1")).expect("it is there");
    signal(process, "HUP");
    until(|| read("server.log").contains("SIGHUP"), "the log continues in a new file");
    assert!(read("server.log.1").contains("listens on"));
    c.send_command(&["SHUTDOWN", "NOSAVE"]);
    assert_eq!(c.read_to_end(), b"");
    until(|| !dir.path().join("server.pid").exists(), "the pidfile is removed");
    assert!(read("server.log").contains("bye bye"));
    assert_eq!(read("said"), "");
}

#[test]
fn the_process_title_describes_the_server() {
    let server = Configured::start("appendonly no\nbind 127.0.0.1\n", &[("SOME_VARIABLE", Path::new("some value"))]);
    let mut c = server.raw();
    let shown = || {
        let line = std::fs::read(format!("/proc/{}/cmdline", server.child.id())).expect("it runs");
        String::from_utf8_lossy(&line).trim_end_matches('\0').to_owned()
    };
    let port = server.port;
    assert_eq!(shown(), format!("{} 127.0.0.1:{port}", env!("CARGO_BIN_EXE_tidegate")));
    let set = |c: &mut Raw, template: &str| c.command(&["CONFIG", "SET", "proc-title-template", template]);
    let file = server.path("redis.conf").display().to_string();
    assert_eq!(set(&mut c, "TEST {title} {listen-addr} {port} {config-file} {config-file}"), Value::status("OK"));
    let program = env!("CARGO_BIN_EXE_tidegate");
    assert_eq!(
        shown(),
        format!("TEST {program} 127.0.0.1:{port} {port} {file} {file}"),
        "the title is longer than the original command line"
    );
    assert_eq!(set(&mut c, "short"), Value::status("OK"));
    assert_eq!(shown(), "short");
    assert_eq!(
        text(&set(&mut c, "{nosuch}")),
        "ERR CONFIG SET failed (possibly related to argument 'proc-title-template') - template format is invalid or \
         contains unknown variables"
    );
    assert_eq!(shown(), "short");
}

/// Test containers, and libraries that start a Redis for a test, look for these words of Redis.
#[test]
fn the_start_prints_the_lines_that_tools_wait_for() {
    let output =
        Command::new(env!("CARGO_BIN_EXE_tidegate")).arg("--version").output().expect("the program of this build");
    let version = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(version.contains(" v=8."), "{version}");
    let mut server = Server::start(Program::Tidegate, &[]);
    until(|| server.log().contains("Ready to accept connections\n"), "the server announces that it is ready");
    server.raw().send_command(&["SHUTDOWN", "NOSAVE"]);
    until(|| server.has_ended(), "the server ends");
    until(|| server.log().contains("is now ready to exit, bye bye..."), "the server announces its end");
}

/// `tidegate scripts | head`: the reader closes early. A Rust program starts with SIGPIPE ignored.
#[test]
fn a_subcommand_ends_quietly_when_its_reader_does() {
    for args in [&["scripts"][..], &["scripts", "gate_acquire"], &["--help"], &["--version"]] {
        let (reader, writer) = std::io::pipe().expect("a pipe");
        drop(reader);
        let child =
            Command::new(env!("CARGO_BIN_EXE_tidegate")).args(args).stdout(writer).stderr(Stdio::piped()).output();
        let output = child.expect("the program of this build");
        assert!(!output.status.success(), "{args:?} must fail, since its reader has gone");
        assert_eq!(String::from_utf8_lossy(&output.stderr), "", "{args:?}");
    }
}
