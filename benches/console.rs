//! What the console costs the clients: `cargo bench --bench console`.
//!
//! Measured in turn: a server without the console, one whose console nobody looks at, and the same one while
//! [`VIEWERS`] open pages are shown its state, half of them the overview, half of them the holders of [`LOCKS`] locks.
//! They are signed in as [`USERS`] users, since pages of one user share the questions to the server.
//!
//! The server has one core for all its threads, that of the console among them; the client and the pages have the
//! other.

mod figures;
mod load;
mod peer;
mod requests;
mod scripts;

use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use clap::Parser;

use figures::{Quantity, Recorder};
use load::{Judged, Load, Pace};
use peer::{Server, Setup, UNLOGGED, connection::Connection, free_ports, pin_self};

/// Measures what the console costs. Takes 4 minutes in full.
#[derive(Parser)]
struct Options {
    #[command(flatten)]
    setup: Setup,
    /// Seconds of each measurement.
    #[arg(long, default_value_t = 3.0)]
    seconds: f64,
}

const VIEWERS: usize = 50;
const USERS: usize = 4;
const LOCKS: usize = 100;
const CONNECTIONS: usize = 50;

/// Long enough for a first reply.
const SHORT: Duration = Duration::from_millis(50);

/// How long pages are open before they are measured: all have the whole state then, and are told changes.
const SETTLED: Duration = Duration::from_secs(2);

/// The name of the threads on which the console works.
const THREADS: &str = "console";

fn main() {
    let Options { setup, seconds } = Options::parse();
    pin_self(setup.client_core);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a tokio runtime");
    let length = setup.seconds(seconds);
    let [port] = free_ports();
    let [closed, open] = [0, port].map(|console_port| start(&setup, console_port));
    let cookies: Vec<String> = (0..USERS).map(|user| sign_in(port, &user_name(user))).collect();
    let servers = ["no console", "nobody looks", "50 pages"].map(str::to_owned).to_vec();
    let mut recorder = Recorder::new("console", &setup);
    let quantities = [
        Quantity::more("requests/s", 0),
        Quantity::less("p99 ms", 2),
        Quantity::less("CPU us/op", 3),
        Quantity::less("console's threads, % of the core", 2),
    ];
    recorder.table_of("console", "command", servers, quantities);
    for (name, load, depth) in cases() {
        recorder.case(name, None, |server| {
            let judged = if server == 0 { &closed } else { &open };
            let pace = Pace { connections: CONNECTIONS, depth, length };
            // This gives the server the load's data, which is all that it has then.
            runtime.block_on(judged.measure(&load, Pace { length: SHORT, ..pace }));
            hold_locks(judged);
            let pages = if server == 2 { open_pages(port, &cookies) } else { Vec::new() };
            std::thread::sleep(SETTLED);
            let (began, before) = (Instant::now(), judged.server.cpu_seconds_of(THREADS));
            let sample = runtime.block_on(judged.measure(&load, pace));
            let share = (judged.server.cpu_seconds_of(THREADS) - before) / began.elapsed().as_secs_f64();
            pages.into_iter().for_each(Page::close);
            [sample.per_second, sample.p99_ms, sample.server_us, 100.0 * share]
        });
    }
    recorder.finish();
}

/// A load, and the depth of its pipelines.
fn cases() -> [(&'static str, Load, usize); 3] {
    [("GET", load::GET, 1), ("GET, P=16", load::GET, 16), ("gate of 60, P=16", load::coordination::GATE.command, 16)]
}

/// Starts a server with users who may see everything.
fn start(setup: &Setup, console_port: u16) -> Judged {
    let port = console_port.to_string();
    let server = Server::start_with(
        &setup.server,
        &setup.server_core.to_string(),
        &[UNLOGGED, &["--console-port", &port]].concat(),
        &[],
    );
    let mut connection = Connection::new(&server);
    for user in 0..USERS {
        connection.ask(&["ACL", "SETUSER", &user_name(user), "on", ">password", "~*", "&*", "+@all"]);
    }
    Judged::new(server)
}

fn hold_locks(judged: &Judged) {
    let mut connection = Connection::new(&judged.server);
    for lock in 0..LOCKS {
        connection.ask(&["LOCK.ACQUIRE", &format!("lock:{lock}"), "owner", "PX", "86400000"]);
    }
}

fn user_name(user: usize) -> String {
    format!("user{user}")
}

/// A page that is shown the state.
struct Page {
    stream: TcpStream,
    reading: JoinHandle<()>,
}

/// Opens all pages, and waits until each is shown something.
fn open_pages(port: u16, cookies: &[String]) -> Vec<Page> {
    let mut who = "db=0".to_owned();
    (0..LOCKS).for_each(|lock| write!(who, "&who=t:lock:{lock}").expect("memory for a text"));
    // Each user has pages of both kinds.
    let query = |page: usize| if (page / USERS).is_multiple_of(2) { "overview" } else { &who };
    (0..VIEWERS).map(|page| Page::open(port, &cookies[page % USERS], query(page))).collect()
}

impl Page {
    fn open(port: u16, cookie: &str, query: &str) -> Page {
        let mut stream = connect(port);
        write!(stream, "GET /api/stream?{query} HTTP/1.1\r\nHost: localhost\r\nCookie: {cookie}\r\n\r\n")
            .expect("it reads");
        let mut reader = BufReader::new(stream.try_clone().expect("a descriptor"));
        let mut line = String::new();
        while !line.starts_with("data:") {
            line.clear();
            assert!(reader.read_line(&mut line).expect("it writes") > 0, "the console has closed the stream");
            assert!(!line.starts_with("HTTP/") || line.contains(" 200 "), "{line}");
        }
        // An error is the end of the page.
        let reading = std::thread::spawn(move || _ = std::io::copy(&mut reader, &mut std::io::sink()));
        Page { stream, reading }
    }

    fn close(self) {
        self.stream.shutdown(std::net::Shutdown::Both).expect("it is open");
        self.reading.join().expect("a reader does not panic");
    }
}

/// Signs in. Returns the cookie.
fn sign_in(port: u16, user: &str) -> String {
    let body = format!(r#"{{"user":"{user}","password":"password"}}"#);
    let mut stream = connect(port);
    write!(
        stream,
        "POST /api/sign-in HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\
         Connection: close\r\n\r\n{body}",
        body.len()
    )
    .expect("it reads");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("text");
    let session = format!("tidegate-{port}=");
    let cookie = answer.lines().filter_map(|line| line.split_once(": ")).find(|(_, value)| value.starts_with(&session));
    let (_, cookie) = cookie.unwrap_or_else(|| panic!("no session: {answer}"));
    cookie.split(';').next().unwrap_or_default().to_owned()
}

fn connect(port: u16) -> TcpStream {
    TcpStream::connect(("127.0.0.1", port)).expect("the console listens")
}
