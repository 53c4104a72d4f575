//! Clients of a user who may do much, but only with the bad clients' keys. No reply to them may ever contain the
//! keepers' secret, and calls that name its key must be refused.

use std::time::Duration;

use super::calls::key;
use super::dice::Dice;
use super::ending::ask;
use super::wire::{Args, Connection, Counter, Reply, encode, show, words};
use super::world::World;

/// A key that only the user `default` may read.
const SECRET_KEY: &str = "keeper:secret";
const USER: &str = "restricted";
/// Time that a refusal may take while the watchdog gets its replies.
const PATIENCE: Duration = Duration::from_secs(60);
/// Time to wait for replies to other calls: many never come.
const MOMENT: Duration = Duration::from_millis(60);
/// Pause before a lost connection is replaced.
const PAUSE: Duration = Duration::from_millis(5);
/// Other refusals that a forbidden call may get.
const OTHER_REFUSALS: [&str; 4] = ["BUSY ", "OOM ", "ERR max number of clients reached", "UNBLOCKED "];

/// Calls that name the secret's key, which is written as `%`.
const FORBIDDEN: [&str; 26] = [
    "GET %",
    "SET % x",
    "DEL %",
    "UNLINK %",
    "DUMP %",
    "EXPIRE % 1",
    "APPEND % x",
    "MGET chaos:string:1 %",
    "RENAME % chaos:string:1",
    "COPY % chaos:string:1 REPLACE",
    "BITOP NOT chaos:string:1 %",
    "LCS % chaos:string:1",
    "OBJECT ENCODING %",
    "TYPE %",
    "STRLEN %",
    "SORT chaos:list:1 BY nosort GET keeper:*",
    "PFCOUNT %",
    "XREAD STREAMS % 0",
    "BLPOP % 0.01",
    "LOCK.BREAK %",
    "WHO %",
    "WHY %",
    "ONCE chaos:once:1 EX 10 GET %",
    "GUARD chaos:lock:1 1 GET %",
    "EVAL return 1 1 %",
    "SUBSCRIBE keeper-channel",
];

fn secret(world: &World) -> String {
    format!("secret-{:016x}-of-the-keepers", world.options.seed.wrapping_mul(0x9e37_79b9_7f4a_7c15))
}

/// Creates the secret and the user.
pub(crate) fn set_up(world: &World) -> Result<(), String> {
    ask(world.port, &["SET", SECRET_KEY, &secret(world)])?;
    let rules = [
        "ACL",
        "SETUSER",
        USER,
        "reset",
        "on",
        ">restricted",
        "~chaos:*",
        "&chaos*",
        "+@all",
        "-@admin",
        "-@dangerous",
    ];
    ask(world.port, &rules).map(drop)
}

/// Sends allowed and forbidden calls, until the bad clients must stop.
pub(crate) fn run(world: &World, number: usize) {
    let mut dice = Dice::new(world.options.seed, 2_000 + number as u64);
    let secret = secret(world);
    let mut connection = None;
    while !world.is_over() {
        if connection.is_none() {
            connection = log_in(world);
        }
        let Some(open) = &mut connection else {
            std::thread::sleep(PAUSE);
            continue;
        };
        let goes_on = match dice.below(3) {
            0 => be_refused(world, open, &mut dice),
            _ => try_to_read_secret(world, open, &secret, &mut dice),
        };
        if !goes_on {
            connection = None;
        }
    }
}

fn log_in(world: &World) -> Option<Connection> {
    let mut connection = Connection::open(world.port).ok()?;
    let mut bytes = Vec::new();
    encode(&words(&["AUTH", USER, "restricted"]), &mut bytes);
    connection.send(&bytes).ok()?;
    matches!(connection.reply(PATIENCE), Ok(Some(Reply::Status(_)))).then_some(connection)
}

/// Returns whether the connection is still usable.
fn be_refused(world: &World, connection: &mut Connection, dice: &mut Dice) -> bool {
    let call = dice.pick::<&str>(&FORBIDDEN).replace('%', SECRET_KEY);
    let call = words(&match call.strip_prefix("EVAL return 1 ") {
        Some(rest) => ["EVAL", "return redis.call('GET', KEYS[1])"].into_iter().chain(rest.split(' ')).collect(),
        None => call.split(' ').collect::<Vec<_>>(),
    });
    let mut bytes = Vec::new();
    encode(&call, &mut bytes);
    if connection.send(&bytes).is_err() {
        return false;
    }
    match connection.reply(PATIENCE) {
        Ok(Some(Reply::Error(text))) if text.starts_with("NOPERM ") => true,
        Ok(Some(Reply::Error(text))) if OTHER_REFUSALS.iter().any(|refusal| text.starts_with(refusal)) => true,
        Ok(Some(reply)) => {
            world.fail(format!("a restricted user was answered {reply:?} to {}", show(&call)));
            false
        }
        _ => false,
    }
}

/// Returns whether the connection is still usable.
fn try_to_read_secret(world: &World, connection: &mut Connection, secret: &str, dice: &mut Dice) -> bool {
    let mut call = match dice.below(3) {
        0 => {
            let script = world.scripts.script(&world.calls, dice).replace(&key("string", dice), SECRET_KEY);
            let read = format!("redis.pcall('GET', '{SECRET_KEY}')");
            let text = match dice.below(3) {
                0 => script,
                1 => script.replacen('\n', &format!("\nloop.secret = {read}\n"), 1),
                _ => format!("return {read}"),
            };
            words(&["EVAL", &text, "0"])
        }
        _ => world.calls.about_data(dice),
    };
    for arg in call.iter_mut().skip(1).filter(|arg| arg.starts_with(b"chaos:")) {
        if dice.once_in(2) {
            *arg = SECRET_KEY.as_bytes().to_vec();
        }
    }
    let calls = match dice.once_in(4) {
        true => vec![words(&["MULTI"]), call, words(&["EXEC"])],
        false => vec![call],
    };
    let mut bytes = Vec::new();
    calls.iter().for_each(|call| encode(call, &mut bytes));
    connection.send(&bytes).is_ok() && reads_no_secret(world, connection, secret, &calls)
}

/// Reads the replies that come within a moment and looks for the secret in them. Returns whether the
/// connection is still usable, which means that all replies have come.
fn reads_no_secret(world: &World, connection: &mut Connection, secret: &str, calls: &[Args]) -> bool {
    let (mut counter, mut chunk, mut kept) = (Counter::default(), vec![0; 64 * 1024], Vec::new());
    while counter.replies < calls.len() {
        let Ok(len @ 1..) = connection.receive(&mut chunk, MOMENT) else { return false };
        if counter.feed(&chunk[..len]).is_err() {
            world.fail(format!("a restricted user read what is no RESP, after {}", show(&calls[calls.len() / 2])));
            return false;
        }
        kept.extend_from_slice(&chunk[..len]);
        if kept.windows(secret.len()).any(|window| window == secret.as_bytes()) {
            world.fail(format!("a restricted user was shown the secret by {}", show(&calls[calls.len() / 2])));
            return false;
        }
        kept.drain(..kept.len().saturating_sub(secret.len()));
    }
    counter.replies == calls.len()
}

/// Checks that the secret has not changed.
pub(crate) fn check(world: &World) {
    match ask(world.port, &["GET", SECRET_KEY]) {
        Ok(reply) if reply.text().as_deref() == Some(&secret(world)) => {}
        other => world.fail(format!("a restricted user has changed the secret: {other:?}")),
    }
}
