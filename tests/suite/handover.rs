//! A move from one running Tidegate to another: nothing is lost, doubled or granted twice, whoever is killed.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use tempfile::TempDir;

use crate::group::{Group, PORT};
use crate::harness::{Program, REPLY_DEADLINE, Raw, Server, Value, until};
use crate::moving::{every_type, fill, own_types};

/// Two servers, each on its own data, and the move from the first to the second.
struct Bench {
    folder: TempDir,
    servers: [Mutex<Option<Arc<Server>>>; 2],
}

const OLD: usize = 0;
const NEW: usize = 1;

impl Bench {
    fn new() -> Bench {
        let bench = Bench { folder: tempfile::tempdir().expect("a folder"), servers: Default::default() };
        bench.start(OLD);
        bench.start(NEW);
        bench
    }

    fn dir(&self, which: usize) -> PathBuf {
        self.folder.path().join(["old", "new"][which])
    }

    /// Starts a server on its data. It is killed first if it runs.
    fn start(&self, which: usize) {
        let mut place = self.servers[which].lock().expect("no test thread panics with it");
        *place = None;
        *place = Some(Arc::new(serve(&self.dir(which))));
    }

    fn kill(&self, which: usize) {
        *self.servers[which].lock().expect("no test thread panics with it") = None;
    }

    fn server(&self, which: usize) -> Arc<Server> {
        Arc::clone(self.servers[which].lock().expect("no test thread panics with it").as_ref().expect("it runs"))
    }

    fn raw(&self, which: usize) -> Raw {
        self.server(which).raw()
    }

    fn url(&self, which: usize) -> String {
        // Its path is the same after a restart.
        format!("unix://{}", self.dir(which).join("socket").display())
    }

    fn moving(&self, flags: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
        command.args(["import", "--follow", &self.url(OLD), "--into", &self.url(NEW)]).args(flags);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// Runs a move to its end; `Ok` is what it has printed at the end.
    fn run(&self, flags: &[&str]) -> Result<String, String> {
        let output = self.moving(flags).output().expect("the program of this build");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        if output.status.success() { Ok(text(&output.stdout)) } else { Err(text(&output.stderr)) }
    }

    fn cut_over(&self) -> Result<String, String> {
        self.run(&["--cut-over=new.example:6379"])
    }

    fn state(&self, which: usize) -> String {
        loop {
            let mut raw = self.raw(which);
            raw.send_command(&["HANDOVER", "STATE"]);
            // A handover that begins just now sends clients away.
            if let Ok(reply) = raw.try_reply(REPLY_DEADLINE) {
                return format!("{:?}", reply.value);
            }
        }
    }

    fn digest(&self, which: usize) -> Value {
        self.raw(which).command(&["DEBUG", "DIGEST"])
    }
}

fn serve(dir: &Path) -> Server {
    std::fs::create_dir_all(dir).expect("a folder");
    // A killed server leaves its socket.
    let _ = std::fs::remove_file(dir.join("socket"));
    let dir = dir.to_str().expect("plain text");
    let flags = ["--appendonly", "yes", "--dir", dir, "--unixsocket", "socket", "--enable-debug-command", "yes"];
    Server::start(Program::Tidegate, &flags)
}

/// A move that goes on for ever, until kill -9.
struct Helper(Child);

impl Drop for Helper {
    fn drop(&mut self) {
        // Fails only if it has ended by itself, which the test sees by what is missing.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn integer(value: &Value) -> i64 {
    match value {
        Value::Integer(number) => *number,
        other => panic!("{other:?}"),
    }
}

fn integer_of(value: &Value) -> i64 {
    value.bytes().and_then(|bytes| std::str::from_utf8(bytes).ok()?.parse().ok()).unwrap_or(0)
}

fn error(value: Value) -> String {
    match value {
        Value::Error(text) => String::from_utf8_lossy(&text).into_owned(),
        other => panic!("{other:?}"),
    }
}

/// Takes a lock, and returns its fencing token.
fn token(raw: &mut Raw, lock: &str) -> i64 {
    token_in(&raw.command(&["LOCK.ACQUIRE", lock, "owner", "PX", "3000000"]))
}

fn token_in(reply: &Value) -> i64 {
    let Value::Array(fields) = reply else { panic!("{reply:?}") };
    let token = fields.windows(2).find(|pair| pair[0] == Value::bulk("token"));
    integer(&token.unwrap_or_else(|| panic!("{reply:?}"))[1])
}

#[test]
fn all_data_moves_and_the_old_server_says_where_it_is() {
    let bench = Bench::new();
    let mut old = bench.raw(OLD);
    fill(&mut old, &[every_type(), own_types()].concat());
    // Copied in parts.
    for chunk in 0..60 {
        let fields: Vec<String> =
            (0..2_000).map(|i| format!("field:{}:of the large hash", chunk * 2_000 + i)).collect();
        let pairs = fields.iter().flat_map(|field| [field.clone(), "value".to_owned()]);
        fill(&mut old, &[["HSET".to_owned(), "large".to_owned()].into_iter().chain(pairs).collect()]);
    }
    for words in [
        &["STOCK.RESERVE", "own:stock", "order", "UNITS", "3", "PX", "3000000"][..],
        &["ONCE", "request", "PX", "3000000", "INCR", "payments"],
        &["XADD", "jobs", "DELAY", "3000000", "*", "job", "1"],
        &["XGROUP", "CREATE", "jobs", "workers", "0", "MKSTREAM"],
        &["XGROUP", "SETPOLICY", "jobs", "workers", "IDLE", "30000", "MAXDELIVERIES", "3", "DLQ", "dead"],
        &["SCRIPT", "LOAD", "return 1"],
    ] {
        let reply = old.command(words);
        assert!(!matches!(reply, Value::Error(_)), "{words:?}: {reply:?}");
    }
    old.command(&["SAVE"]);
    let last_token = token(&mut old, "behind the snapshot");
    fill(&mut old, &[["INCR", "visits"].map(str::to_owned).to_vec()]);
    let before = bench.digest(OLD);
    let said = bench.cut_over().expect("it moves");
    assert!(said.contains("moved: everything up to change"), "{said}");
    assert_eq!(bench.digest(NEW), before);
    let mut new = bench.raw(NEW);
    assert!(token(&mut new, "another") > last_token);
    assert_eq!(new.command(&["FCALL", "answer", "0"]), Value::Integer(42));
    assert_eq!(new.command(&["ONCE", "request", "PX", "3000000", "INCR", "payments"]), Value::Integer(1));
    let taken_over = bench.digest(NEW);
    bench.start(NEW);
    assert_eq!(bench.digest(NEW), taken_over);
    // Clients were sent away, and whoever comes back is told where the data is, also after a restart.
    for round in 0..2 {
        let mut old = bench.raw(OLD);
        assert_eq!(error(old.command(&["SET", "a", "1"])), "READONLY This data has moved to new.example:6379");
        assert_eq!(error(old.command(&["GET", "text"])), "MASTERDOWN This data has moved to new.example:6379");
        assert!(error(old.command(&["EVAL", "return redis.call('GET', 'a')", "0"])).contains("MASTERDOWN This data"));
        assert!(error(old.command(&["LOCK.ACQUIRE", "l", "o", "PX", "100"])).starts_with("READONLY This data"));
        assert_eq!(bench.raw(NEW).command(&["GET", "text"]), Value::bulk("hello"), "round {round}");
        bench.start(OLD);
    }
    // The move is done: the same command says so again, and another one finds data.
    assert!(bench.cut_over().expect("it is done").contains("moved: everything up to change"));
    assert!(bench.run(&["--replace"]).expect("it is done").contains("moved: everything up to change"));
    // Nor does a third server lose its data by mistake.
    std::fs::remove_dir_all(bench.dir(NEW)).expect("it is there");
    bench.start(NEW);
    bench.raw(NEW).command(&["SET", "own", "data"]);
    let said = bench.run(&["--replace", "--cut-over=other:1"]).expect_err("it is elsewhere");
    assert!(said.contains("was given to new.example:6379"), "{said}");
    assert_eq!(bench.raw(NEW).command(&["GET", "own"]), Value::bulk("data"));
    // The operator takes it back.
    assert_eq!(bench.raw(OLD).command(&["HANDOVER", "END"]), Value::ok());
    assert_eq!(bench.raw(OLD).command(&["GET", "text"]), Value::bulk("hello"));
    assert_eq!(bench.digest(OLD), before);
}

/// A client that goes where the data is.
struct Client<'b> {
    bench: &'b Bench,
    at: usize,
    raw: Option<Raw>,
    /// Calls that were refused, or whose connection ended.
    turned_away: usize,
}

impl Client<'_> {
    /// Repeats a call until a server has done it. It must be one that can be repeated.
    fn call(&mut self, words: &[&str]) -> Value {
        loop {
            let raw = self.raw.get_or_insert_with(|| self.bench.raw(self.at));
            raw.send_command(words);
            match raw.try_reply(REPLY_DEADLINE) {
                Ok(reply) if !is_refusal(&reply.value) => return reply.value,
                Ok(_) | Err(_) => {}
            }
            (self.at, self.raw, self.turned_away) = (1 - self.at, None, self.turned_away + 1);
        }
    }
}

fn is_refusal(value: &Value) -> bool {
    const CODES: [&[u8]; 3] = [b"READONLY", b"MASTERDOWN", b"LOADING"];
    matches!(value, Value::Error(text) if CODES.iter().any(|code| text.starts_with(code)))
}

#[test]
fn writers_lose_nothing_and_double_nothing_while_the_data_moves() {
    const WRITERS: usize = 32;
    let bench = Bench::new();
    bench.raw(OLD).command(&["STOCK.SET", "stock", "1000000"]);
    let (done, is_moved) = (AtomicUsize::new(0), AtomicBool::new(false));
    let tokens = Mutex::new(Vec::new());
    let (rounds, away) = std::thread::scope(|scope| {
        let (bench, done, is_moved, tokens) = (&bench, &done, &is_moved, &tokens);
        let writers: Vec<_> = (0..WRITERS)
            .map(|writer| {
                scope.spawn(move || {
                    let mut client = Client { bench, at: OLD, raw: None, turned_away: 0 };
                    let (mut round, mut after) = (0, 0);
                    // Some rounds behind the move.
                    while after < 20 {
                        let name = format!("{writer}:{round}");
                        let once = |key: &str| format!("once:{key}:{name}");
                        let counted = client.call(&["ONCE", &once("count"), "PX", "3000000", "INCR", "counter"]);
                        assert!(integer(&counted) > 0);
                        client.call(&["ONCE", &once("add"), "PX", "3000000", "XADD", "stream", "*", "name", &name]);
                        // Repeated for the same order and the same owner, these give the same again.
                        client.call(&["STOCK.RESERVE", "stock", &name, "UNITS", "1", "PX", "3000000"]);
                        client.call(&["STOCK.COMMIT", "stock", &name]);
                        let lock = format!("lock:{name}");
                        let token = token_in(&client.call(&["LOCK.ACQUIRE", &lock, &name, "PX", "3000000"]));
                        tokens.lock().expect("no thread panics with it").push(token);
                        round += 1;
                        done.fetch_add(1, Ordering::Relaxed);
                        after += usize::from(is_moved.load(Ordering::Relaxed));
                    }
                    (round, client.turned_away)
                })
            })
            .collect();
        until(|| done.load(Ordering::Relaxed) > 500, "the writers have begun");
        bench.raw(OLD).command(&["BGSAVE"]);
        until(|| done.load(Ordering::Relaxed) > 1_000, "the writers go on");
        let said = bench.cut_over().expect("it moves");
        assert!(said.contains("moved: everything"), "{said}");
        is_moved.store(true, Ordering::Relaxed);
        let ends = writers.into_iter().map(|writer| writer.join().expect("it ends"));
        ends.fold((0, 0), |(rounds, away), (round, turned)| (rounds + round, away + turned))
    });
    assert!(away >= WRITERS, "each writer was sent away");
    let mut new = bench.raw(NEW);
    assert_eq!(new.command(&["GET", "counter"]), Value::bulk(&rounds.to_string()));
    assert_eq!(new.command(&["XLEN", "stream"]), Value::Integer(rounds as i64));
    let stock = format!("{:?}", new.command(&["STOCK.INFO", "stock"]));
    assert!(stock.contains(&(1_000_000 - rounds).to_string()) && stock.contains(&rounds.to_string()), "{stock}");
    let mut tokens = tokens.into_inner().expect("no thread has panicked");
    tokens.sort_unstable();
    let all = tokens.len();
    tokens.dedup();
    assert_eq!((all, tokens.len()), (rounds, rounds), "no token was issued twice");
}

#[test]
fn a_move_survives_kills_of_either_server_and_of_itself() {
    let bench = Bench::new();
    let mut old = bench.raw(OLD);
    fill(&mut old, &[every_type(), own_types()].concat());
    for i in 0..20 {
        let value = "x".repeat(5_000);
        fill(
            &mut old,
            &(0..200).map(|j| vec!["SET".to_owned(), format!("k:{i}:{j}"), value.clone()]).collect::<Vec<_>>(),
        );
    }
    old.command(&["SAVE"]);
    let mut counted = 0;
    for round in 0..24_u64 {
        let following =
            Helper(bench.moving(&[]).stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("it starts"));
        for _ in 0..50 {
            counted = integer(&bench.raw(OLD).command(&["INCR", "counter"]));
        }
        std::thread::sleep(std::time::Duration::from_millis(3 * round));
        match round % 4 {
            0 => drop(following),
            1 => bench.start(OLD),
            2 => bench.start(NEW),
            _ => {
                bench.raw(OLD).command(&["SAVE"]);
                bench.kill(NEW);
                drop(following);
                bench.start(NEW);
            }
        }
        let state = bench.state(NEW);
        assert!(state.contains("own") || state.contains("receiving"), "{state}");
    }
    // The cut-over, too: whatever is killed, the same command ends the move.
    for round in 0..12_u64 {
        let moving = Helper(
            bench
                .moving(&["--cut-over=new.example:6379"])
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()
                .expect("it starts"),
        );
        std::thread::sleep(std::time::Duration::from_millis(4 * round));
        match round % 3 {
            0 => drop(moving),
            1 => bench.start(NEW),
            _ => bench.start(OLD),
        }
    }
    let said = bench.cut_over().expect("it moves");
    assert!(said.contains("moved: everything"), "{said}");
    assert_eq!(bench.raw(NEW).command(&["GET", "counter"]), Value::bulk(&counted.to_string()));
    assert!(bench.state(OLD).contains("given") && bench.state(NEW).contains("own"));
    assert_eq!(bench.raw(OLD).command(&["HANDOVER", "END"]), Value::ok());
    assert_eq!(bench.digest(NEW), bench.digest(OLD));
}

#[test]
fn what_does_not_fit_is_refused_and_changes_nothing() {
    let bench = Bench::new();
    let mut new = bench.raw(NEW);
    for (words, says) in [
        (&["HANDOVER", "LOAD", ""][..], "does not receive"),
        (&["HANDOVER", "LOADED", "1"], "does not receive"),
        (&["HANDOVER", "APPLY", "1", ""], "does not receive"),
        (&["HANDOVER", "APPLY", "-1", ""], "integer"),
        (&["HANDOVER", "GIVE", "nowhere"], "HOST:PORT"),
        (&["HANDOVER", "GIVE", "host:0"], "HOST:PORT"),
        (&["HANDOVER", "GIVE", "ho st:1"], "HOST:PORT"),
        (&["HANDOVER", "RECEIVE", "h", "f", "NOW"], "syntax"),
        (&["HANDOVER", "END", "NOW"], "syntax"),
        (&["HANDOVER", "RESUME"], "does not receive"),
        (&["HANDOVER", "RECEIVE", &"h".repeat(300), "f"], "too long"),
    ] {
        let said = error(new.command(words));
        assert!(said.contains(says), "{words:?}: {said}");
    }
    new.command(&["SET", "own", "data"]);
    assert!(error(new.command(&["HANDOVER", "RECEIVE", "h", "f"])).contains("REPLACE"));
    let said = bench.run(&[]).expect_err("there is data");
    assert!(said.contains("already holds keys"), "{said}");
    assert_eq!(new.command(&["GET", "own"]), Value::bulk("data"));
    // A server that receives takes no clients, and nothing but what follows.
    assert_eq!(new.command(&["HANDOVER", "RECEIVE", "history", "old.example:6379", "REPLACE"]), Value::ok());
    let says = "LOADING This server receives its data from old.example:6379";
    assert_eq!(error(bench.raw(NEW).command(&["GET", "own"])), says);
    assert_eq!(error(bench.raw(NEW).command(&["SET", "a", "1"])), says);
    assert_eq!(error(bench.raw(NEW).command(&["PUBLISH", "channel", "message"])), says);
    assert!(error(bench.raw(NEW).command(&["HANDOVER", "LOAD", ""])).contains("another connection"));
    assert!(error(new.command(&["HANDOVER", "APPLY", "0", ""])).contains("not complete"));
    assert!(error(new.command(&["HANDOVER", "RESUME"])).contains("not complete"));
    // Part of a value: effect 17 begins one.
    let part = "\u{1}\u{1}\0\0\u{5}\0\0\0\u{11}\0\u{1}\u{2}\0";
    assert_eq!(new.command(&["HANDOVER", "LOAD", part]), Value::ok());
    assert!(error(new.command(&["HANDOVER", "LOAD", "x"])).contains("not whole"));
    assert!(error(new.command(&["HANDOVER", "LOAD", "\u{7f}\u{1}\0\0\0\0\0\0"])).contains("format 127"));
    assert_eq!(new.command(&["HANDOVER", "LOADED", "7"]), Value::ok());
    assert!(error(new.command(&["HANDOVER", "LOADED", "7"])).contains("is complete"));
    assert!(error(new.command(&["HANDOVER", "APPLY", "6", ""])).contains("the last change here is 7"));
    assert!(error(new.command(&["HANDOVER", "GIVE", "a:1"])).contains("not its own"));
    assert_eq!(new.command(&["HANDOVER", "APPLY", "7", ""]), Value::Integer(7));
    // Effect 126 is of a later version.
    let unknown = "\u{1}\u{1}\0\0\u{2}\0\0\0\u{7e}\0";
    assert!(error(new.command(&["HANDOVER", "APPLY", "7", unknown])).contains("does not know"));
    assert!(error(new.command(&["HANDOVER", "END"])).contains("still changes this data"));
    // Whoever resumes is the one who goes on.
    assert_eq!(bench.raw(NEW).command(&["HANDOVER", "RESUME"]), Value::Integer(7));
    assert!(error(new.command(&["HANDOVER", "APPLY", "7", ""])).contains("another connection"));
    assert_eq!(new.command(&["HANDOVER", "RESUME"]), Value::Integer(7));
    // DEL of a key that is not there: effect 3 of database 0, by a command.
    let unfit = "\u{1}\u{1}\0\0\u{5}\0\0\0\u{3}\0\u{1}k\0";
    assert!(error(new.command(&["HANDOVER", "APPLY", "7", unfit])).contains("does not fit"));
    assert!(error(new.command(&["HANDOVER", "RESUME"])).contains("not complete"));
    bench.start(NEW);
    assert!(bench.state(NEW).contains("old.example:6379"));
    assert!(bench.run(&["--cut-over"]).expect_err("a path is no address").contains("--cut-over=HOST:PORT"));
    let said = bench.cut_over().expect_err("another server was begun with");
    assert!(said.contains("receives the data of another server, old.example:6379"), "{said}");
    // Incomplete data is nobody's.
    assert_eq!(bench.raw(NEW).command(&["HANDOVER", "END"]), Value::ok());
    assert_eq!(bench.raw(NEW).command(&["DBSIZE"]), Value::Integer(0));
    assert_eq!(bench.raw(NEW).command(&["SET", "a", "1"]), Value::ok());
}

#[test]
fn calls_that_wait_hear_that_the_data_goes() {
    let bench = Bench::new();
    let mut waiting = bench.raw(OLD);
    waiting.send_command(&["BLPOP", "queue", "0"]);
    let mut old = bench.raw(OLD);
    until(|| format!("{:?}", old.command(&["INFO", "clients"])).contains("blocked_clients:1"), "it waits");
    let mut subscriber = bench.raw(OLD);
    subscriber.command(&["SUBSCRIBE", "channel"]);
    let last = integer(&old.command(&["HANDOVER", "GIVE", "new.example:6379"]));
    assert!(last > 0);
    assert!(error(waiting.reply().value).starts_with("UNBLOCKED force unblock"));
    assert_eq!(waiting.read_to_end(), b"");
    assert_eq!(subscriber.read_to_end(), b"");
    assert!(error(bench.raw(OLD).command(&["PUBLISH", "channel", "message"])).starts_with("MASTERDOWN This data"));
    // Giving again changes only the address.
    assert!(integer(&old.command(&["HANDOVER", "GIVE", "other.example:6379"])) > last);
    assert!(bench.state(OLD).contains("other.example:6379"));
    assert_eq!(old.command(&["HANDOVER", "END"]), Value::ok());
    assert_eq!(old.command(&["SET", "a", "1"]), Value::ok());
}

/// The second command takes the place of the first, and nothing is applied twice.
#[test]
fn a_second_import_takes_over_from_the_first() {
    let bench = Bench::new();
    let first = bench.moving(&[]).spawn().expect("it starts");
    until(|| bench.state(NEW).contains("\"complete\", \"yes\""), "the first one follows");
    let is_over = AtomicBool::new(false);
    let counted = std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let mut client = Client { bench: &bench, at: OLD, raw: None, turned_away: 0 };
            let mut counted = 0;
            while !is_over.load(Ordering::Relaxed) {
                let name = format!("once:{counted}");
                client.call(&["ONCE", &name, "PX", "3000000", "INCR", "counter"]);
                counted += 1;
            }
            counted
        });
        until(|| integer_of(&bench.raw(OLD).command(&["GET", "counter"])) > 100, "the writer has begun");
        let said = bench.cut_over();
        is_over.store(true, Ordering::Relaxed);
        assert!(said.expect("it moves").contains("moved: everything"));
        writer.join().expect("it ends")
    });
    assert_eq!(bench.raw(NEW).command(&["GET", "counter"]), Value::bulk(&counted.to_string()));
    let first = first.wait_with_output().expect("it ends");
    let said = String::from_utf8_lossy(&first.stderr);
    assert!(!first.status.success() && said.contains("another connection"), "{said}");
}

/// A call-off is heard by an import that is about to end the move.
#[test]
fn a_move_that_is_called_off_leaves_one_server() {
    let bench = Bench::new();
    bench.raw(OLD).command(&["SET", "counter", "1"]);
    let following = Helper(bench.moving(&[]).stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("it starts"));
    until(|| bench.state(NEW).contains("\"complete\", \"yes\""), "it follows");
    bench.raw(OLD).command(&["HANDOVER", "GIVE", "new.example:6379"]);
    until(|| bench.state(NEW).contains("\"given\", \"yes\""), "the new server has heard of it");
    bench.raw(OLD).command(&["HANDOVER", "END"]);
    assert_eq!(bench.raw(OLD).command(&["INCR", "counter"]), Value::Integer(2));
    until(|| bench.state(NEW).contains("\"given\", \"no\""), "and of the end of it");
    drop(following);
    assert!(error(bench.raw(NEW).command(&["HANDOVER", "END"])).contains("still changes this data"));
    assert!(error(bench.raw(NEW).command(&["GET", "counter"])).starts_with("LOADING"));
    assert!(bench.cut_over().expect("it moves").contains("moved: everything"));
    assert_eq!(bench.raw(NEW).command(&["INCR", "counter"]), Value::Integer(3));
}

/// Nothing expires, and no message is released, by the clock of the new server before that has the data for its own.
#[test]
fn what_is_due_during_a_move_is_the_old_servers_to_decide() {
    let bench = Bench::new();
    let mut old = bench.raw(OLD);
    old.command(&["SET", "short", "1", "PX", "300"]);
    old.command(&["SET", "kept", "1", "PX", "300"]);
    old.command(&["LOCK.ACQUIRE", "lock", "owner", "PX", "300"]);
    old.command(&["XADD", "jobs", "DELAY", "300", "*", "job", "1"]);
    old.command(&["PERSIST", "kept"]);
    let following = Helper(bench.moving(&[]).stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("it starts"));
    until(|| bench.state(NEW).contains("\"complete\", \"yes\""), "it follows");
    until(|| old.command(&["XLEN", "jobs"]) == Value::Integer(1), "the message is released");
    until(|| old.command(&["EXISTS", "short", "lock"]) == Value::Integer(0), "both end");
    let before = bench.digest(OLD);
    assert!(bench.cut_over().expect("it moves").contains("moved: everything"));
    drop(following);
    assert_eq!(bench.digest(NEW), before);
    assert_eq!(bench.raw(NEW).command(&["GET", "kept"]), Value::bulk("1"));
}

/// With a journal that is synced once a second, the new server gets what is on disk, and the end of it at once.
#[test]
fn a_server_that_syncs_once_a_second_gives_everything() {
    let bench = Bench::new();
    for which in [OLD, NEW] {
        assert_eq!(bench.raw(which).command(&["CONFIG", "SET", "appendfsync", "everysec"]), Value::ok());
    }
    let mut old = bench.raw(OLD);
    for _ in 0..100 {
        old.command(&["INCR", "counter"]);
    }
    assert!(bench.cut_over().expect("it moves").contains("moved: everything"));
    assert_eq!(bench.raw(NEW).command(&["GET", "counter"]), Value::bulk("100"));
}

/// Data moves into a group and out of it, and whoever leads then knows whose it is.
#[test]
fn a_group_receives_and_gives() {
    let moves = |from: &str, into: &str, flags: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
        let output = command.args(["import", "--follow", from, "--into", into]).args(flags).output().expect("it runs");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    };
    let bench = Bench::new();
    let mut old = bench.raw(OLD);
    fill(&mut old, &[every_type(), own_types()].concat());
    fill(&mut old, &[["SET", "counter", "1000"].map(str::to_owned).to_vec()]);
    let mut group = Group::with(&[], false);
    let url = |group: &Group, number| format!("redis://{}:{PORT}", group.host(number));
    let (leader, _) = group.increment();
    // A client of a follower, all the time.
    let follower = (1..=3).find(|number| *number != leader).expect("there are three");
    let mut reader = group.raw(follower, PORT);
    until(|| reader.command(&["GET", "counter"]) == Value::bulk("1"), "the follower serves reads");
    moves(&bench.url(OLD), &url(&group, leader), &["--replace", "--cut-over"]);
    assert_eq!(group.increment(), (leader, 1001));
    assert_eq!(reader.read_to_end(), b"", "it must not see half of the data");
    let reads = |group: &Group| group.ask(follower, &["GET", "counter"]);
    until(|| reads(&group) == Some(Value::bulk("1001")), "a follower serves reads again");
    group.end(leader, libc::SIGKILL);
    let (next, counted) = group.increment();
    assert_eq!(counted, 1002);
    group.start(leader);
    until(|| group.listens(leader), "it starts");
    moves(&url(&group, next), &bench.url(NEW), &["--cut-over=new.example:6379"]);
    assert_eq!(bench.raw(NEW).command(&["INCR", "counter"]), Value::Integer(1003));
    assert!(format!("{:?}", bench.raw(NEW).command(&["LOCK.INFO", "own:lock"])).contains("token"));
    let refused = |code| Some(Value::Error(format!("{code} This data has moved to new.example:6379").into_bytes()));
    for number in 1..=3 {
        until(|| group.ask(number, &["GET", "counter"]) == refused("MASTERDOWN"), "each node has heard of it");
    }
    // A leader that comes later knows it, too.
    group.end(next, libc::SIGKILL);
    let role = |number| group.ask(number, &["ROLE"]);
    let leads = |number| matches!(role(number), Some(Value::Array(said)) if said[0] == Value::bulk("master"));
    let others = || (1..=3).filter(|number| *number != next);
    let is_refused = |leader| group.ask(leader, &["SET", "a", "1"]) == refused("READONLY");
    until(|| others().find(|number| leads(*number)).is_some_and(is_refused), "another node leads, and refuses");
}
