//! Chaos: bad clients do everything that clients can do to a server, at once, while good ones check that it keeps its
//! promises.
//!
//! `cargo test --test chaos -- --seconds 60 --seed 7` starts a server of its own and fails when that server ends,
//! hangs, sends bytes that are not RESP, breaks an invariant of the [`keepers`], logs a panic, or holds more memory or
//! clients at the end than at the start. Plain `cargo test` leaves it out: its duration is an argument, and its
//! findings are random.
//!
//! A seed repeats the bytes that each client sends, in order, however long the run. It does not repeat how the clients'
//! calls interleave, the time, or the server's own random draws. With `--clients 1 --keepers 0` nothing
//! interleaves, so that only clock and draws differ.
//!
//! - `options`: the arguments; `dice`: the choices; `world`: state that the threads share
//! - `server`: starts and watches the process; `wire`: requests and replies
//! - `client`: a bad client; `calls`, `scripts`, `frames`, `settings`: its requests
//! - `restricted`: clients of a user with few rights; `deaf`: clients that never read, at each of the server's ports
//! - `keepers`: the good clients; `watchdog`: whether the server lives and answers; `ending`: the resources it holds
//!   when all are gone

mod calls;
mod client;
mod deaf;
mod dice;
mod ending;
mod frames;
mod keepers;
mod options;
mod restricted;
mod scripts;
mod server;
mod settings;
mod watchdog;
mod wire;
mod world;

use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use calls::Calls;
use keepers::{KINDS, Keeper, Kept};
use options::Options;
use scripts::Scripts;
use server::Server;
use wire::Reply;
use world::World;

/// Pause between two lines of progress.
const PROGRESS: Duration = Duration::from_secs(10);
/// Number of clients of a user with few rights.
const RESTRICTED: usize = 2;
/// Interval between two checks for the end of a run.
const LOOK: Duration = Duration::from_millis(50);

fn main() -> ExitCode {
    let options = match Options::read(std::env::args().skip(1)) {
        Ok(options) => options,
        Err(why) => {
            eprintln!("{why}\n\n{}", options::USAGE);
            return ExitCode::from(2);
        }
    };
    println!("seed {}: {} clients for {:?}", options.seed, options.clients, options.duration);
    let again = options.again();
    let failures = match run(options) {
        Ok(failures) => failures,
        Err(why) => vec![why],
    };
    for failure in &failures {
        eprintln!("FAILED: {failure}");
    }
    if failures.is_empty() {
        return ExitCode::SUCCESS;
    }
    eprintln!("to repeat: cargo test --test chaos -- {again}");
    ExitCode::FAILURE
}

/// One run; returns the failure, if any. The error says why there was no run.
fn run(options: Options) -> Result<Vec<String>, String> {
    let mut server = Server::start(&options.server, &options.server_args)?;
    let port = server.port;
    let listed = ending::ask(port, &["EVAL", scripts::LISTING, "0"])?;
    let listed = listed.items().unwrap_or_default().iter().filter_map(Reply::text).collect();
    let (calls, scripts) = (Calls::new(&options.without), Scripts::new(listed, &options.without));
    println!("{} commands, {} functions of Lua", calls.len(), scripts.len());
    let before = ending::held(port)?;
    let settings = ending::settings(port)?;
    let world = World::new(options, (port, server.doors), server.process(), calls, scripts);
    let kept = Kept::default();
    set_up(&world)?;
    chaos(&world, &kept, &mut server, &settings);
    if !world.has_failed() {
        ending::compare(&world, &before);
    }
    if server.log().contains("panicked") {
        world.fail(format!("the log tells of a panic\n{}", server.log_tail()));
    }
    println!("{}", summary(&world));
    Ok(world.failures())
}

fn set_up(world: &World) -> Result<(), String> {
    for (kind, set_up, ..) in KINDS.iter().filter(|_| world.options.keepers > 0) {
        set_up(&mut Keeper::new(world, kind, 0));
    }
    restricted::set_up(world)
}

/// The period in which all clients are at work, and the keepers' last checks.
fn chaos(world: &World, kept: &Kept, server: &mut Server, settings: &[(String, String)]) {
    let is_done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let watchdog = scope.spawn(|| watchdog::watch(world, server, || is_done.load(Ordering::Relaxed)));
        let clients = (0..world.options.clients).filter(|client| world.options.only.is_none_or(|only| only == *client));
        let clients: Vec<_> = clients.map(|number| scope.spawn(move || client::run(world, number))).collect();
        // Without keepers everything must be repeatable.
        let is_accompanied = world.options.keepers > 0;
        let deaf = is_accompanied.then(|| scope.spawn(|| deaf::run(world)));
        let restricted = (0..RESTRICTED).filter(|_| is_accompanied);
        let restricted: Vec<_> = restricted.map(|number| scope.spawn(move || restricted::run(world, number))).collect();
        let numbers = (0..world.options.keepers).flat_map(|number| KINDS.iter().map(move |kind| (number, kind)));
        let keepers: Vec<_> = numbers
            .map(|(number, (kind, _, work, _))| scope.spawn(move || work(&mut Keeper::new(world, kind, number), kept)))
            .collect();
        let began = Instant::now();
        let mut next_progress = PROGRESS;
        while !world.is_over() && began.elapsed() < world.options.duration && !clients.iter().all(|c| c.is_finished()) {
            std::thread::sleep(LOOK);
            if began.elapsed() >= next_progress {
                next_progress += PROGRESS;
                println!("{:>4} s: {}", began.elapsed().as_secs(), summary(world));
            }
        }
        world.end();
        let bad = clients.into_iter().chain(deaf).chain(restricted);
        bad.for_each(|client| join(world, client, "a bad client"));
        if !world.has_failed() {
            ending::restore(world, settings);
        }
        world.set_bad_clients_gone();
        keepers.into_iter().for_each(|keeper| join(world, keeper, "a keeper"));
        for (kind, _, _, check) in KINDS.iter().filter(|_| !world.has_failed()) {
            (0..world.options.keepers).for_each(|number| check(&mut Keeper::new(world, kind, number), kept));
        }
        if !world.has_failed() {
            restricted::check(world);
        }
        is_done.store(true, Ordering::Relaxed);
        join(world, watchdog, "the watchdog");
    });
}

fn join(world: &World, thread: std::thread::ScopedJoinHandle<'_, ()>, who: &str) {
    if thread.join().is_err() {
        world.fail(format!("{who} panicked: a defect of this program"));
    }
}

fn summary(world: &World) -> String {
    let stats = &world.stats;
    format!(
        "{} commands, {} scripts, {} clients vanished, {} kills; keepers: {} answers, {} refusals; {} pings, the \
         longest wait {} ms ({} ms on the processor); largest RSS {} MB; {}",
        stats.commands.get(),
        stats.scripts.get(),
        stats.vanished.get(),
        stats.kills.get(),
        stats.kept.get(),
        stats.refused.get(),
        stats.pings.get(),
        stats.longest_wait_ms.get(),
        stats.longest_wait_cpu_ms.get(),
        stats.largest_rss_bytes.get() >> 20,
        if world.has_failed() { "FAILED" } else { "invariants held" },
    )
}
