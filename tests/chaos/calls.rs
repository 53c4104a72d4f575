//! Random calls of every command, from the declarations in the command table: a new command is called without a change
//! here.
//!
//! Keys are named after the group of commands that mostly uses them, so that there is data to act on; one key in six is
//! of another group. One call in six is broken: an argument replaced, left out or added.

use tidegate::command;
use tidegate::engine::Entry;
use tidegate::rdb;
use tidegate::spec::Group;
use tidegate::spec::syntax;
use tidegate::spec::syntax::{Arg, Kind};

use super::dice::Dice;
use super::scripts;
use super::wire::Args;

/// Number of keys in each group.
const KEYS: usize = 4;
/// Databases that FLUSHDB and SWAPDB may touch. The keepers' keys are in database 0.
pub(crate) const CHAOTIC_DATABASES: [&str; 3] = ["1", "2", "3"];

/// Commands that random calls leave out, by full name, each with its reason.
const LEFT_OUT: [(&str, &str); 10] = [
    ("shutdown", "ends the server, as it should"),
    ("flushall", "empties the keepers' database; the end of a run calls it"),
    ("flushdb", "as FLUSHALL, after RESET has chosen database 0; clients call it in a script that chooses another"),
    ("swapdb", "a broken call names database 0; clients call it themselves"),
    ("config|set", "parameters that the run needs; `settings` changes the others"),
    ("debug", "sleeps as long as it is told; clients call its subcommands themselves"),
    ("client|pause", "holds all up for as long as it is told; clients call it themselves"),
    ("handover|receive", "empties this server for another one's data; the end of a run calls it"),
    ("handover|give", "refuses all changes from then on, as it should; the end of a run calls it"),
    ("migrate", "waits for a host as long as it is told; clients call it themselves"),
];

/// A command that random calls use.
struct Declared {
    /// The command's name; a subcommand's name follows its container's.
    words: Vec<String>,
    group: &'static str,
    syntax: Vec<Arg>,
}

/// All commands to call.
pub(crate) struct Calls {
    commands: Vec<Declared>,
}

impl Calls {
    /// The commands of the table; `without` names more to leave out.
    pub(crate) fn new(without: &[String]) -> Calls {
        let entries = command::table().iter().flat_map(|entry| std::iter::once(entry).chain(&entry.sub));
        let is_left_out =
            |name: &str| LEFT_OUT.iter().any(|(left_out, _)| *left_out == name) || without.iter().any(|w| w == name);
        let commands = entries.filter(|entry| entry.sub.is_empty() && !is_left_out(&entry.full_name)).map(declared);
        Calls { commands: commands.collect() }
    }

    /// Returns the number of commands.
    pub(crate) fn len(&self) -> usize {
        self.commands.len()
    }

    /// One call of any command.
    pub(crate) fn any(&self, dice: &mut Dice) -> Args {
        let command = dice.pick(&self.commands);
        perhaps_broken(Call::of(command, dice), dice)
    }

    /// One call of a data command, as scripts and transactions use.
    pub(crate) fn about_data(&self, dice: &mut Dice) -> Args {
        loop {
            let command = dice.pick(&self.commands);
            if !["connection", "server", "scripting", "pubsub", "transactions"].contains(&command.group) {
                return perhaps_broken(Call::of(command, dice), dice);
            }
        }
    }
}

fn declared(entry: &Entry) -> Declared {
    // The suite proves that every declaration can be read.
    let syntax = syntax::parse(entry.command.syntax).unwrap_or_default();
    let group = match entry.command.group {
        Group::Bitmap => Group::String,
        group => group,
    };
    let words = entry.full_name.to_ascii_uppercase().split('|').map(str::to_owned).collect();
    // The grants of a kind are in the database where its commands look for them.
    let family = ["lock", "gate", "stock", "limit"].into_iter().find(|family| entry.full_name.starts_with(family));
    Declared { words, group: family.unwrap_or(group.name()), syntax }
}

/// A key of one of the groups, mostly of this one.
pub(crate) fn key(group: &str, dice: &mut Dice) -> String {
    let homes = [
        "string",
        "hash",
        "list",
        "set",
        "sorted-set",
        "stream",
        "hyperloglog",
        "geo",
        "lock",
        "gate",
        "stock",
        "limit",
    ];
    let home = if homes.contains(&group) && !dice.once_in(6) { group } else { *dice.pick(&homes) };
    format!("chaos:{home}:{}", dice.below(KEYS))
}

/// Replaces an argument, leaves one out or adds one, once in six calls.
fn perhaps_broken(mut args: Args, dice: &mut Dice) -> Args {
    match dice.below(18) {
        0 if args.len() > 1 => {
            let at = 1 + dice.below(args.len() - 1);
            args[at] = if dice.once_in(2) { dice.integer().into_bytes() } else { dice.bytes() };
        }
        1 if args.len() > 2 => drop(args.pop()),
        2 => args.push(dice.bytes()),
        _ => {}
    }
    args
}

/// A call that is being made.
struct Call<'a> {
    command: &'a Declared,
    /// The value of `numkeys`: the next repeated argument occurs this many times.
    announced: Option<usize>,
    args: Args,
}

impl<'a> Call<'a> {
    fn of(command: &'a Declared, dice: &mut Dice) -> Args {
        let args = command.words.iter().map(|word| word.as_bytes().to_vec()).collect();
        let mut call = Call { command, announced: None, args };
        for arg in &command.syntax {
            call.write(arg, dice);
        }
        call.args
    }

    fn write(&mut self, arg: &Arg, dice: &mut Dice) {
        if arg.optional && dice.below(5) < 3 {
            return;
        }
        if let Some(token) = arg.token.as_ref().filter(|_| !arg.multiple_token) {
            self.push(token.clone());
        }
        let times = match arg.multiple {
            true if self.announced.is_none() && dice.once_in(100) => 1_000,
            true => self.announced.take().unwrap_or_else(|| 1 + dice.below(3)),
            false => 1,
        };
        for _ in 0..times {
            if let Some(token) = arg.token.as_ref().filter(|_| arg.multiple_token) {
                self.push(token.clone());
            }
            self.write_once(arg, dice);
        }
    }

    fn write_once(&mut self, arg: &Arg, dice: &mut Dice) {
        match &arg.kind {
            Kind::PureToken => {} // its word is written already
            Kind::OneOf(choices) => {
                let choice = dice.pick(choices);
                self.write(&Arg { optional: false, ..choice.clone() }, dice);
            }
            Kind::Block(parts) => parts.iter().for_each(|part| self.write(part, dice)),
            Kind::Key => self.push(key(self.command.group, dice)),
            Kind::Integer => self.integer(&arg.name, dice),
            Kind::Double if arg.name == "timeout" => self.push(timeout(dice)),
            Kind::Double => self.push(dice.double()),
            Kind::Pattern => self.push(*dice.pick(&["*", "chaos:*", "*1", "?*", "[a-s]*", "nosuch", "\\*", "***?***"])),
            Kind::UnixTime => self.unix_time(dice),
            Kind::String => self.string(&arg.name, dice),
        }
    }

    fn push(&mut self, text: impl Into<Vec<u8>>) {
        self.args.push(text.into());
    }

    fn integer(&mut self, name: &str, dice: &mut Dice) {
        let text = match name {
            "numkeys" if !dice.once_in(10) => {
                let keys = 1 + dice.below(3);
                self.announced = Some(keys);
                keys.to_string()
            }
            // Deadlines near enough to pass during the run.
            "seconds" | "milliseconds" | "ttl" if dice.once_in(2) => {
                (*dice.pick(&["1", "10", "200", "0", "-1"])).to_owned()
            }
            "timeout" => timeout(dice),
            "db" | "destination-db" | "index" => (*dice.pick(&["0", "1", "2", "3", "4", "-1"])).to_owned(),
            _ => dice.integer(),
        };
        self.push(text);
    }

    /// The past, and edges; near times come from the commands that count from now.
    fn unix_time(&mut self, dice: &mut Dice) {
        let text = match dice.below(4) {
            0 => dice.integer(),
            _ => (*dice.pick(&["33177117420", "33177117420123", "1", "0", "1700000000", "1700000000000"])).to_owned(),
        };
        self.push(text);
    }

    /// Strings with a meaning for some commands, chosen by the argument's name; any bytes elsewhere.
    fn string(&mut self, name: &str, dice: &mut Dice) {
        let pool: &[&str] = match (name, self.command.group) {
            ("script", _) => return self.push(scripts::small(dice)),
            ("function-code", _) => return self.push(scripts::library(dice)),
            ("library-name", _) => &["chaos0", "chaos1", "chaos2", "nosuch"],
            ("function", _) => &["f0", "f1", "f2", "g0", "g1", "lock_acquire", "nosuch"],
            ("sha1" | "name", "scripting") => {
                &["e0e1f9fabfc9d4800c877a703b823ac0578ff8db", "lock_acquire", "f0", "no", ""]
            }
            ("serialized-value", _) => return self.push(payload(dice)),
            ("client-id", _) => return self.push((1 + dice.below(400)).to_string()),
            ("owner" | "holder" | "order" | "subject", "lock" | "gate" | "stock" | "coordination") => {
                &["o1", "o2", "o3", "o4"]
            }
            ("group", _) => &["g1", "g2"],
            ("consumer", _) => &["c1", "c2"],
            ("encoding", _) => &["u8", "i5", "u1", "i64", "u63", "u64", "i0"],
            ("type", _) => &["string", "list", "set", "zset", "hash", "stream"],
            ("channel", _) => &["chaos-channel-1", "chaos-channel-2", ""],
            ("command-name" | "command", _) => &["get", "set", "zadd", "client|kill", "xadd", "nosuch", "eval"],
            ("id" | "start" | "end" | "last-id" | "lastid" | "threshold" | "max-deleted-id", "stream") => {
                return self.push(stream_id(dice));
            }
            ("min" | "max" | "start" | "stop", "sorted-set") => &[
                "-", "+", "[a", "(b", "[c", "(", "[", "0", "1", "(2", "-1", "-inf", "+inf", "(1.5", "nan", "(inf",
                "1e308",
            ],
            _ => return self.push(dice.bytes()),
        };
        self.push(*dice.pick(pool));
    }
}

/// Waiting times: mostly short, sometimes for ever, and some invalid ones.
fn timeout(dice: &mut Dice) -> String {
    (*dice.pick(&["0.01", "0.05", "0.001", "1", "10", "0", "-1", "1e308", "nan", "inf", "9223372036854775807"]))
        .to_owned()
}

fn stream_id(dice: &mut Dice) -> String {
    match dice.below(8) {
        0 => (*dice.pick(&["0", "-", "+", "$", ">", "(2-1", "0-0", "18446744073709551615-18446744073709551614"]))
            .to_owned(),
        1 => (*dice.pick(&["*", "18446744073709551615-*", "1-18446744073709551615"])).to_owned(),
        2 => format!("{}-*", 1 + dice.below(9)),
        3 => (1 + dice.below(9)).to_string(),
        _ => format!("{}-{}", 1 + dice.below(90), dice.below(4)),
    }
}

/// Payloads for RESTORE and FUNCTION RESTORE: any type with any content, mostly with the right checksum.
fn payload(dice: &mut Dice) -> Vec<u8> {
    let mut payload = match dice.below(4) {
        0 => rdb::libraries::dump([scripts::library(dice).as_bytes()].into_iter()),
        1 => b"\x00\x05hello".to_vec(),
        _ => {
            let len = dice.below(40);
            std::iter::once(dice.below(26) as u8).chain((0..len).map(|_| dice.next() as u8 & 0x7f)).collect()
        }
    };
    if !dice.once_in(8) {
        rdb::seal(&mut payload, rdb::VERSION);
    }
    payload
}
