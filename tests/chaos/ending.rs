//! The server's resources when everything is deleted and every client is gone, compared with those at the start.

use std::time::{Duration, Instant};

use super::client;
use super::dice::Dice;
use super::wire::{Connection, Reply, encode, show, words};
use super::world::World;

/// Memory that may be kept beyond a tenth more: tables that have grown.
const KEPT_BYTES: u64 = 32 << 10;
/// Time that freeing and closing may take.
const PATIENCE: Duration = Duration::from_secs(20);
/// Time that a single reply may take.
const REPLY_PATIENCE: Duration = Duration::from_secs(10);
/// Calls of HANDOVER LOAD, and of HANDOVER APPLY, that mean nothing.
const NONSENSE: usize = 500;
/// Pause between two checks.
const PAUSE: Duration = Duration::from_millis(100);

/// The figures of INFO on clients, and on memory other than its history.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Held {
    memory_bytes: u64,
    clients: u64,
    blocked: u64,
}

/// One call on a connection of its own.
pub(crate) fn ask(port: u16, call: &[&str]) -> Result<Reply, String> {
    let mut bytes = Vec::new();
    encode(&words(call), &mut bytes);
    let mut connection = Connection::open(port).map_err(|e| e.to_string())?;
    let reply = connection.send(&bytes).and_then(|()| connection.reply(REPLY_PATIENCE)).map_err(|e| e.to_string())?;
    match reply {
        Some(Reply::Error(error)) => Err(format!("{}: {error}", call.join(" "))),
        Some(reply) => Ok(reply),
        None => Err(format!("{}: no reply", call.join(" "))),
    }
}

/// Repeats a call while it is refused: the chaos may not have ended in the server.
fn insist(port: u16, call: &[&str]) -> Result<Reply, String> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        match ask(port, call) {
            Err(why) if Instant::now() > deadline => return Err(why),
            Err(_) => std::thread::sleep(PAUSE),
            answer => return answer,
        }
    }
}

pub(crate) fn held(port: u16) -> Result<Held, String> {
    let text = insist(port, &["INFO"])?.text().unwrap_or_default();
    let field = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        line.and_then(|value| value.trim().parse().ok()).unwrap_or(u64::MAX)
    };
    Ok(Held {
        // The history of grants is kept whatever is deleted, up to a bound.
        memory_bytes: field("used_memory") - field("mem_history"),
        clients: field("connected_clients"),
        blocked: field("blocked_clients"),
    })
}

/// All parameters with their values.
pub(crate) fn settings(port: u16) -> Result<Vec<(String, String)>, String> {
    let reply = ask(port, &["CONFIG", "GET", "*"])?;
    let texts: Vec<String> = reply.items().unwrap_or_default().iter().filter_map(Reply::text).collect();
    Ok(texts.chunks_exact(2).map(|pair| (pair[0].clone(), pair[1].clone())).collect())
}

/// Resets all parameters that can be set, removes the bad clients' leftovers, and leaves the keepers the memory that
/// they need to end their work.
pub(crate) fn restore(world: &World, settings: &[(String, String)]) {
    set_back(world, settings);
    let emptied = ["0", "1", "2", "3"].map(|database| insist(world.port, &["EVAL", client::EMPTY, "0", database]));
    let made_room = insist(world.port, &["CONFIG", "SET", "maxmemory", "0"]);
    if let Some(why) = emptied.into_iter().chain([made_room]).find_map(Result::err) {
        world.fail(format!("after the chaos: {why}"));
    }
}

fn set_back(world: &World, settings: &[(String, String)]) {
    for (name, value) in settings {
        let deadline = Instant::now() + PATIENCE;
        while let Err(why) = ask(world.port, &["CONFIG", "SET", name, value]) {
            // Some can only be set at start, or are protected: they have not changed.
            if why.contains("can't set") || why.contains("CONFIG SET failed") {
                break;
            }
            if Instant::now() > deadline {
                world.fail(format!("a parameter cannot be set back: {why}"));
                return;
            }
            std::thread::sleep(PAUSE);
        }
    }
}

/// Deletes the users that bad clients have created, whose names may be long and not text.
fn delete_users(port: u16) -> Result<(), String> {
    for user in insist(port, &["ACL", "USERS"])?.items().unwrap_or_default() {
        let Reply::Bulk(name) = user else { continue };
        if name != b"default" {
            let mut bytes = Vec::new();
            encode(&[b"ACL".to_vec(), b"DELUSER".to_vec(), name.clone()], &mut bytes);
            let mut connection = Connection::open(port).map_err(|e| e.to_string())?;
            connection.send(&bytes).and_then(|()| connection.reply(REPLY_PATIENCE)).map_err(|e| e.to_string())?;
        }
    }
    Ok(())
}

/// Takes the data of another server that sends nonsense, gives all away, and has it back. That needs a journal.
fn hand_over(world: &World) -> Result<(), String> {
    let mut dice = Dice::new(world.options.seed, 3_000);
    let mut nonsense = |before: &[&str]| {
        let mut call = words(before);
        call.push(dice.bytes());
        (call, true)
    };
    let needed = |call: &[&str]| (words(call), false);
    let receive = ["HANDOVER", "RECEIVE", "another", "127.0.0.1:1", "REPLACE"];
    let mut calls = vec![needed(&receive)];
    calls.extend((0..NONSENSE).map(|_| nonsense(&["HANDOVER", "LOAD"])));
    // Refused if random bytes happened to form a change that does not fit: that ends the loading.
    calls.push((words(&["HANDOVER", "LOADED", "7"]), true));
    calls.extend((0..NONSENSE).map(|_| nonsense(&["HANDOVER", "APPLY", "7"])));
    let last: [&[&str]; 4] = [
        &["HANDOVER", "END", "FORCE"],
        &["HANDOVER", "GIVE", "127.0.0.1:1"],
        &["HANDOVER", "END"],
        &["CONFIG", "SET", "appendonly", "no"],
    ];
    calls.extend(last.map(needed));
    insist(world.port, &["CONFIG", "SET", "appendonly", "yes"])?;
    // It is refused until the journal has begun. The connection below begins it again, since only one goes on with it.
    insist(world.port, &receive)?;
    let mut connection = Connection::open(world.port).map_err(|e| e.to_string())?;
    for (call, may_be_refused) in calls {
        let mut bytes = Vec::new();
        encode(&call, &mut bytes);
        match connection.send(&bytes).and_then(|()| connection.reply(REPLY_PATIENCE)) {
            Ok(Some(Reply::Error(why))) if !may_be_refused => return Err(format!("{}: {why}", show(&call))),
            Ok(Some(_)) => {}
            Ok(None) => return Err(format!("{}: no reply", show(&call))),
            Err(why) => return Err(format!("{}: {why}", show(&call))),
        }
    }
    Ok(())
}

/// Deletes everything and waits until the server holds about as much as `before`.
pub(crate) fn compare(world: &World, before: &Held) {
    let port = world.port;
    let handed_over = hand_over(world);
    let calls: [&[&str]; 13] = [
        &["DEBUG", "SET-ACTIVE-EXPIRE", "1"],
        &["FLUSHALL"],
        &["ACL", "LOG", "RESET"],
        &["FUNCTION", "FLUSH"],
        &["SCRIPT", "FLUSH"],
        &["SCRIPT", "SLOW", "RESET"],
        &["SLOWLOG", "RESET"],
        &["COMMANDLOG", "RESET", "LARGE-REQUEST"],
        &["COMMANDLOG", "RESET", "LARGE-REPLY"],
        &["LATENCY", "RESET"],
        &["HOTKEYS", "STOP"],
        &["HOTKEYS", "RESET"],
        &["CONFIG", "RESETSTAT"],
    ];
    let emptied = handed_over.and_then(|()| calls.iter().try_for_each(|call| insist(port, call).map(drop)));
    let done = emptied.and_then(|()| delete_users(port));
    if let Err(why) = done {
        world.fail(format!("at the end: {why}"));
        return;
    }
    let looks_at_memory = !world.options.without.iter().any(|word| word == "memory-check");
    let most = before.memory_bytes + before.memory_bytes / 10 + KEPT_BYTES;
    let deadline = Instant::now() + PATIENCE;
    loop {
        let held = match held(port) {
            Ok(held) => held,
            Err(why) => return world.fail(format!("at the end: {why}")),
        };
        let is_fine = held.clients <= before.clients && held.blocked == 0;
        if is_fine && (held.memory_bytes <= most || !looks_at_memory) {
            println!("at the end: {held:?}, resident {} MB; at the start: {before:?}", world.process.rss_bytes() >> 20);
            return;
        }
        if Instant::now() > deadline {
            let clients = ask(port, &["CLIENT", "LIST"]).ok().and_then(|list| list.text()).unwrap_or_default();
            let memory = ask(port, &["INFO", "memory", "stats"]).ok().and_then(|text| text.text()).unwrap_or_default();
            return world
                .fail(format!("held at the start: {before:?}; when all was deleted: {held:?}\n{clients}\n{memory}"));
        }
        std::thread::sleep(PAUSE);
    }
}
