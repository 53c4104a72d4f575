//! CONFIG SET of every parameter, to values that are valid, extreme or invalid.
//!
//! A few parameters are left alone, and some are given only values that the run can live with: both lists say why.

use tidegate::config::PARAMETERS;

use super::dice::Dice;
use super::wire::{Args, words};

/// Parameters that are never set, under whichever name.
const LEFT_ALONE: [(&str, &str); 10] = [
    ("port", "nobody would find the server again"),
    ("bind", "as above"),
    ("tls-port", "as above"),
    ("maxmemory-clients", "the keepers would be closed for what they hold"),
    ("requirepass", "nobody here gives a password"),
    ("maxclients", "the keepers and the watchdog must get in; --server-args sets it for a whole run"),
    ("loglevel", "a log of everything fills the disk"),
    ("script-rollback", "the keepers rely on it: a transfer that is killed must be undone"),
    ("min-replicas-to-write", "a single server has no replicas, and would refuse all changes"),
    ("dir", "files would appear elsewhere, if the server allowed it"),
];

/// Parameters whose valid values are limited to these under whichever name, and why.
const BOUNDED: [(&str, &[&str], &str); 14] = [
    ("acllog-max-len", &["0", "10", "128"], "long logs take the machine's memory"),
    ("busy-reply-threshold", &["1", "20", "100"], "0 and large numbers let a script hold all others up"),
    ("script-time-limit", &["50", "300", "1000"], "0 and large numbers let scripts run for ever"),
    ("script-debug-timeout", &["1", "2"], "a debugger holds all others up"),
    ("script-memory-limit", &["100kb", "1mb", "64mb"], "no limit lets a script take the machine's memory"),
    ("maxmemory", &["1mb", "20mb", "100mb"], "no limit lets the data take the machine's memory"),
    ("proto-max-bulk-len", &["1mb", "4mb"], "strings of gigabytes take the machine's memory"),
    ("client-query-buffer-limit", &["1mb", "16mb"], "as above"),
    (
        "client-output-buffer-limit",
        &["normal 1mb 1mb 1", "normal 32mb 16mb 5", "pubsub 1mb 100kb 1", "pubsub 8mb 2mb 5"],
        "as above",
    ),
    ("script-cache-max-bytes", &["0", "1kb", "1mb"], "as above"),
    ("slowlog-max-len", &["0", "10", "128"], "long logs take the machine's memory"),
    ("commandlog-large-request-max-len", &["0", "10", "128"], "as above"),
    ("commandlog-large-reply-max-len", &["0", "10", "128"], "as above"),
    ("timeout", &["0", "100"], "clients that wait for long are the subject"),
];

/// Values that every bounded parameter refuses.
const GARBAGE: [&str; 9] = ["", "abc", "-5", "1e3", "99999999999999999999999", "\u{7f}", "1 2", "nan", "normal 1"];

/// A call of CONFIG SET.
pub(crate) fn change(without: &[String], dice: &mut Dice) -> Args {
    let mut args = words(&["CONFIG", "SET"]);
    for _ in 0..1 + dice.below(3) / 2 {
        let parameter = dice.pick(PARAMETERS);
        let name = if dice.once_in(4) { parameter.alias.unwrap_or(parameter.name) } else { parameter.name };
        let is_it = |listed: &str| listed == parameter.name || Some(listed) == parameter.alias;
        let is_left_alone = LEFT_ALONE.iter().any(|(left, _)| is_it(left)) || without.iter().any(|left| is_it(left));
        let value = match BOUNDED.iter().find(|(bounded, ..)| is_it(bounded)) {
            _ if is_left_alone => continue,
            _ if dice.once_in(4) => (*dice.pick(&GARBAGE)).to_owned(),
            Some((_, values, _)) => (*dice.pick(values)).to_owned(),
            None if dice.once_in(3) => dice.integer(),
            None if dice.once_in(2) => (*dice.pick(&["yes", "no", "1", "2", "4", "64", "1mb"])).to_owned(),
            None => parameter.default.to_owned(),
        };
        args.extend([name.as_bytes().to_vec(), value.into_bytes()]);
    }
    args
}
