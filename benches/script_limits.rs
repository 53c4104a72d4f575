//! How soon SCRIPT KILL and `script-time-limit` end scripts that are slow in various ways: `cargo bench --bench
//! script_limits`.
//!
//! Each of the suite's endless scripts is ended several times by each of the two, at different moments. Reported is the
//! longest time from the moment it should have ended until its caller reads the error, as a Markdown table. That is at
//! most the time of one call: the clock ticks every 5 ms, and a script is checked between any two calls.

#[path = "../tests/suite/slow_turns.rs"]
mod slow_turns;

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use clap::Parser;

use slow_turns::{TURNS, endless, fill};

/// Measures how soon slow scripts end, and prints a Markdown table.
#[derive(Parser)]
struct Options {
    /// The server to start.
    #[arg(long, default_value = env!("CARGO_BIN_EXE_tidegate"))]
    server: String,
    /// Size of the values, in units of 4 MB and 20,000 elements.
    #[arg(long, default_value_t = 10)]
    scale: usize,
    /// How often each script is ended by either means.
    #[arg(long, default_value_t = 5)]
    rounds: u64,
    /// Only scripts whose text contains this.
    #[arg(long, default_value = "")]
    only: String,
    /// Passed by cargo.
    #[arg(long, hide = true)]
    bench: bool,
}

/// A server that ends when this value is dropped.
struct Server(Child, u16);

impl Drop for Server {
    fn drop(&mut self) {
        // Both calls fail only when the server has already ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Server {
    fn start(program: &str) -> Server {
        let port =
            TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("a free port").port();
        let child = Command::new(program)
            .args(["--bind", "127.0.0.1", "--port", &port.to_string()])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("a server to start");
        let server = Server(child, port);
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            std::thread::sleep(Duration::from_millis(10));
        }
        server
    }

    fn client(&self) -> Client {
        let stream = TcpStream::connect(("127.0.0.1", self.1)).expect("a connection");
        stream.set_nodelay(true).expect("an option of a fresh socket");
        Client(BufReader::new(stream))
    }
}

/// A connection whose replies are one line each.
struct Client(BufReader<TcpStream>);

impl Client {
    fn send(&mut self, args: &[&str]) {
        let mut bytes = format!("*{}\r\n", args.len());
        args.iter().for_each(|arg| bytes.push_str(&format!("${}\r\n{arg}\r\n", arg.len())));
        self.0.get_mut().write_all(bytes.as_bytes()).expect("the server reads");
    }

    fn reply(&mut self) -> String {
        let mut line = String::new();
        self.0.read_line(&mut line).expect("the server answers");
        line
    }

    fn command(&mut self, args: &[&str]) -> String {
        self.send(args);
        self.reply()
    }
}

fn set(client: &mut Client, parameter: &str, value: &str) {
    assert_eq!(client.command(&["CONFIG", "SET", parameter, value]), "+OK\r\n");
}

/// The time from SCRIPT KILL, sent some milliseconds after the script has begun, until the caller reads the error.
fn killed_after(caller: &mut Client, other: &mut Client, script: &str, round: u64) -> Duration {
    caller.send(&["EVAL", script, "0"]);
    while other.command(&["PING"]) == "+PONG\r\n" {}
    std::thread::sleep(Duration::from_millis(50 + round * 37 % 100));
    let began = Instant::now();
    other.send(&["SCRIPT", "KILL"]);
    let error = caller.reply();
    let took = began.elapsed();
    assert!(error.starts_with("-ERR Script killed"), "{script}: {error}");
    assert_eq!(other.reply(), "+OK\r\n");
    took
}

/// How far a script overruns its time limit.
fn late_by(caller: &mut Client, script: &str, round: u64) -> Duration {
    let limit = Duration::from_millis(100 + round * 37 % 100);
    set(caller, "script-time-limit", &limit.as_millis().to_string());
    let began = Instant::now();
    let error = caller.command(&["EVAL", script, "0"]);
    let took = began.elapsed();
    assert!(error.starts_with("-ERR Script ran longer"), "{script}: {error}");
    set(caller, "script-time-limit", "0");
    took.saturating_sub(limit)
}

fn main() {
    let options = Options::parse();
    let server = Server::start(&options.server);
    let (mut caller, mut other) = (server.client(), server.client());
    for script in fill(options.scale) {
        assert_eq!(caller.command(&["EVAL", &script, "0"]), "$-1\r\n");
    }
    set(&mut caller, "busy-reply-threshold", "1");
    println!(
        "| Turn of an endless script | ms until SCRIPT KILL ends it | ms beyond script-time-limit |\n|---|---|---|"
    );
    for turn in TURNS.iter().filter(|turn| turn.contains(&options.only)) {
        let script = endless(turn, options.scale);
        let most =
            |measure: &mut dyn FnMut(u64) -> Duration| (0..options.rounds).map(measure).max().unwrap_or_default();
        let killed = most(&mut |round| killed_after(&mut caller, &mut other, &script, round));
        let late = most(&mut |round| late_by(&mut caller, &script, round));
        println!(
            "| `{}` | {:.0} | {:.0} |",
            turn.replace('|', "\\|"),
            killed.as_secs_f64() * 1e3,
            late.as_secs_f64() * 1e3
        );
    }
}
