//! The blocks of `sh` in the pages, line by line, in a folder of their own. The page's hosts, ports and absolute paths
//! are replaced by ones of this machine. A line that starts a server leaves it running. An import that follows is ended
//! by Ctrl-C when it has caught up, as the pages tell their readers to do.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::harness::{Program, Raw, Server, Value, free_port, until};
use crate::oracle::{REDIS_CLI, REDIS_SERVER};
use crate::pages::{Block, blocks_of};

#[test]
fn shell_lines_in_the_pages_work_as_described() {
    if REDIS_CLI.is_missing() || REDIS_SERVER.is_missing() {
        return;
    }
    let blocks = blocks_of("sh");
    for page in blocks.chunk_by(|one, next| one.page == next.page) {
        let mut machine = Machine::new();
        for block in page {
            machine.run(block);
        }
    }
    assert!(blocks.len() >= 10, "{} blocks of `sh`", blocks.len());
}

/// The machines of a page: the reader's own, with a server at the usual port, and those that the page names.
struct Machine {
    root: tempfile::TempDir,
    /// The Redis to move away from: `old`. Its files are in `/var/lib/redis`.
    old: Server,
    /// Tidegate at port 6379, whose folder is the reader's: `new`.
    usual: Server,
    /// A server that asks for a password.
    host: Server,
    /// The Tidegate to move away from, `old-tidegate`, and the one to move to, `new-tidegate`.
    pair: [Server; 2],
    /// Replaces port 7000, where the pages start another server.
    other_port: u16,
    started: Vec<Child>,
}

impl Machine {
    fn new() -> Machine {
        let root = tempfile::tempdir().expect("a temporary folder");
        for folder in ["work", "backup", "var/lib/redis", "var/lib/tidegate", "pair/old", "pair/new"] {
            std::fs::create_dir_all(root.path().join(folder)).expect("a fresh folder");
        }
        let start = |program, folder: &str, appendonly| {
            let dir = root.path().join(folder);
            Server::start(program, &["--dir", dir.to_str().expect("plain text"), "--appendonly", appendonly])
        };
        let old = start(Program::Redis, "var/lib/redis", "yes");
        assert_eq!(old.raw().command(&["SET", "greeting", "hello"]), Value::ok());
        assert_eq!(old.raw().command(&["SAVE"]), Value::ok());
        let usual = start(Program::Tidegate, "work", "yes");
        assert_eq!(usual.raw().command(&["SET", "kept", "yes"]), Value::ok());
        let host = Server::start(Program::Tidegate, &["--requirepass", "password"]);
        let pair = ["pair/old", "pair/new"].map(|folder| start(Program::Tidegate, folder, "yes"));
        assert_eq!(pair[0].raw().command(&["SET", "greeting", "hello"]), Value::ok());
        Machine { root, old, usual, host, pair, other_port: free_port(), started: Vec::new() }
    }

    fn run(&mut self, block: &Block) {
        let Block { page, text, .. } = block;
        if text.contains("import dump.rdb") {
            std::fs::copy(self.path("var/lib/redis/dump.rdb"), self.path("work/dump.rdb")).expect("SAVE has made it");
        } else {
            let _ = std::fs::remove_file(self.path("work/dump.rdb"));
        }
        if text.contains("cp -a /backup") {
            std::fs::remove_dir_all(self.path("work/tidegate-data")).expect("the data that is lost");
        }
        if text.contains("tidegate check") {
            self.end_servers();
        }
        for line in text.lines() {
            let line = line.split(" #").next().unwrap_or_default().trim();
            println!("{page}: {line}");
            self.line(line);
        }
    }

    fn line(&mut self, line: &str) {
        let program = line.strip_prefix("tidegate");
        let is_handover = line.contains("new-tidegate");
        let is_import = line.starts_with("tidegate import") && !is_handover;
        if is_import {
            self.empty();
        }
        let shell_line = self.of_this_machine(line);
        let mut command = Command::new("sh");
        command.args(["-c", &format!("exec {shell_line}")]).current_dir(self.path("work")).stdin(Stdio::null());
        match program {
            Some("") => self.start(command, self.usual.port()),
            Some(flags) if flags.starts_with(" --") => self.start(command, self.other_port),
            _ if line.contains("--follow") && !line.contains("--cut-over") => follow(command),
            _ => {
                let output = command.output().expect("a shell");
                // A server that is shut down sends no reply.
                let says = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
                assert!(output.status.success() || line.contains("SHUTDOWN"), "{shell_line}: {says}");
                assert!(!says.contains("(error)") && !says.contains("ERR "), "{shell_line}: {says}");
            }
        }
        if is_import {
            let has_come = |port| self.connect(port).command(&["GET", "greeting"]) == Value::bulk("hello");
            assert!(self.targets().into_iter().any(has_come), "{line}");
        }
        if line.contains("--cut-over") {
            assert_eq!(self.pair[1].raw().command(&["GET", "greeting"]), Value::bulk("hello"));
        }
        if line.starts_with("tidegate export") || line.contains("--rdb") {
            let file = std::fs::read(self.path("work/dump.rdb")).expect("the file that the line names");
            assert!(file.starts_with(b"REDIS"), "{line}");
            std::fs::remove_file(self.path("work/dump.rdb")).expect("it is there");
        }
        if line.contains("SHUTDOWN") {
            until(|| self.usual.has_ended(), "the server ends");
        }
    }

    fn of_this_machine(&self, line: &str) -> String {
        let usual = format!("127.0.0.1:{}", self.usual.port());
        let mut line = line
            .replace("redis://:password@host:7000", &format!("redis://:password@127.0.0.1:{}", self.host.port()))
            .replace("redis://old-tidegate:6379", &format!("redis://127.0.0.1:{}", self.pair[0].port()))
            .replace("redis://new-tidegate:6379", &format!("redis://127.0.0.1:{}", self.pair[1].port()))
            .replace("redis://old:6379", &format!("redis://127.0.0.1:{}", self.old.port()))
            .replace("redis://new:6379", &format!("redis://{usual}"))
            .replace("7000", &self.other_port.to_string())
            .replace("/var/lib", &self.path("var/lib").display().to_string())
            .replace("/backup", &self.path("backup").display().to_string());
        if line.starts_with("tidegate import") && !line.contains("--into") {
            line.push_str(&format!(" --into redis://{usual}"));
        }
        if line.starts_with("tidegate backup") && !line.contains("--from") {
            line.push_str(&format!(" --from redis://{usual}"));
        }
        if line.starts_with("redis-cli") && !line.contains(" -p ") {
            line = line.replacen("redis-cli", &format!("redis-cli -p {}", self.usual.port()), 1);
        }
        if line == "tidegate" {
            line.push_str(&format!(" --port {}", self.usual.port()));
        }
        match line.strip_prefix("tidegate") {
            Some(rest) => format!("{}{rest}", env!("CARGO_BIN_EXE_tidegate")),
            None => line,
        }
    }

    /// Starts a server that keeps running. It has the data that the page mentions.
    fn start(&mut self, mut command: Command, port: u16) {
        self.started.push(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("a shell"));
        until(|| std::net::TcpStream::connect(("127.0.0.1", port)).is_ok(), "the server answers");
        if port == self.usual.port() {
            assert_eq!(self.connect(port).command(&["GET", "kept"]), Value::bulk("yes"), "the copy has the data");
        }
    }

    /// Makes room for an import's data.
    fn empty(&self) {
        for port in self.targets() {
            assert_eq!(self.connect(port).command(&["FLUSHALL"]), Value::ok());
        }
    }

    /// Returns the ports that an import may target. Another test may own a port that none of our servers has taken.
    fn targets(&self) -> Vec<u16> {
        let other = (!self.started.is_empty()).then_some(self.other_port);
        [self.usual.port(), self.host.port()].into_iter().chain(other).collect()
    }

    fn connect(&self, port: u16) -> Raw {
        let mut raw = Raw::connect(port);
        if port == self.host.port() {
            assert_eq!(raw.command(&["AUTH", "password"]), Value::ok());
        }
        raw
    }

    fn path(&self, path: &str) -> PathBuf {
        self.root.path().join(Path::new(path))
    }

    fn end_servers(&mut self) {
        for mut child in self.started.drain(..) {
            child.kill().and_then(|()| child.wait()).expect("our own child");
        }
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        self.end_servers();
    }
}

/// Runs an import that follows until it has caught up, and ends it by Ctrl-C.
fn follow(mut command: Command) {
    let mut child = command.stderr(Stdio::piped()).stdout(Stdio::null()).spawn().expect("a shell");
    let lines = BufReader::new(child.stderr.take().expect("it was asked for")).lines();
    let mut said = Vec::new();
    let mut is_ended = false;
    for line in lines {
        let line = line.expect("it prints text");
        if (line.contains(" 0 bytes behind") || line.contains(" 0 behind")) && !is_ended {
            // SAFETY: a signal to our own child, which has not been waited for.
            assert_eq!(unsafe { libc::kill(child.id() as i32, libc::SIGINT) }, 0);
            is_ended = true;
        }
        said.push(line);
    }
    assert!(child.wait().expect("our own child").success() && is_ended, "{said:#?}");
    let ends = ["done: all is applied", "following from change"];
    assert!(said.iter().any(|line| ends.iter().any(|end| line.contains(end))), "{said:#?}");
}
