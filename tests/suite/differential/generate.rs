//! Random sequences of calls from the declared syntax of commands: the table entry of a new command is tried without a
//! new test.
//!
//! A sequence keeps to a few commands, most of one family, and to eight keys. A key is mostly used as one type, its
//! home, so that there is data to act on, and now and then as another. Calls are mostly right; some are broken on
//! purpose. Numbers are small or at the edge of their type, and never make a server rightly allocate gigabytes.
//! Deadlines are past or so far away that no key expires between two servers, and waiting lasts a millisecond. If a
//! test moves the clock by hand ([`Time::ByHand`]), deadlines come soon, too, and waiting lasts.

use tidegate::spec::syntax::{Arg, Kind};

use super::declared::{ANY_FAMILY, Declared, LEX, SESSION};
use super::pair::THRESHOLDS;
use super::rule::Version;
use super::script::Args;

/// Approximate number of calls in a sequence.
const LENGTH: usize = 256;
const KEYS: usize = 8;

/// A small generator of its own (splitmix64): a seed must give the same sequence for ever.
pub(crate) struct Dice(pub u64);

impl Dice {
    /// A number below `n`.
    pub(crate) fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((z ^ (z >> 31)) % n as u64) as usize
    }

    /// One of these.
    pub(crate) fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.below(from.len())]
    }

    /// True once in `n` times.
    pub(crate) fn once_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }
}

/// The clock under which calls run.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Time {
    /// The system's: no answer may depend on it, since an oracle of this version would give another one.
    OfTheSystem(Version),
    /// A test's, for one server alone. The clock begins at this Unix time in milliseconds.
    ByHand(i64),
}

/// A sequence of calls of these commands, whose answers depend neither on the time nor on the server, ours or this
/// version of Redis.
pub(crate) fn sequence(version: Version, commands: &[Declared], dice: &mut Dice) -> Vec<Args> {
    sequence_in(Time::OfTheSystem(version), commands, dice)
}

/// A sequence of calls of these commands.
pub(crate) fn sequence_in(time: Time, commands: &[Declared], dice: &mut Dice) -> Vec<Args> {
    let of = |family: &str| commands.iter().filter(|command| command.family == family).collect::<Vec<_>>();
    let family = loop {
        let family = dice.pick(commands).family;
        if family != SESSION {
            break family;
        }
    };
    // If members are compared, all scores are equal: then only commands on sorted sets are used, and keys of no other
    // type.
    let level = family == LEX;
    let own = if level { "zset" } else { family };
    let mut theme: Vec<&Declared> = (0..10).map(|_| *dice.pick(&of(own))).collect();
    match level {
        true => theme.extend(of(LEX)),
        false => theme
            .extend((0..4).map(|_| dice.pick(commands)).filter(|command| ![LEX, SESSION].contains(&command.family))),
    }
    theme.extend((0..1).map(|_| *dice.pick(&of(ANY_FAMILY))));
    let homes = (0..KEYS).map(|i| if level || i < KEYS / 2 { own } else { dice.pick(commands).family }).collect();
    let world = World { homes, level, time };
    // A string edited by other commands is a corrupt HyperLogLog, which shows sooner or later.
    let other = if own == "hll" { "string" } else { "hll" };
    theme.retain(|command| command.family != other);
    // Versions differ on whether changes of groups count as changes of their stream, and on calls without effect.
    let is_vague = |command: &&Declared| match command.words[0].as_str() {
        "LTRIM" | "PFMERGE" => time == Time::OfTheSystem(Version::Seven),
        _ => command.family == "stream",
    };
    let is_watched = matches!(time, Time::ByHand(_)) || !theme.iter().any(is_vague);
    let mut session = of(SESSION);
    session.retain(|command| is_watched || command.words[0] != "WATCH");

    let mut calls = vec![thresholds(dice)];
    while calls.len() < LENGTH {
        match dice.below(40) {
            0 => calls.push(world.fit_call(&session, dice)),
            1 => {
                if is_watched && dice.once_in(2) {
                    calls.push(world.words(&["WATCH"], dice));
                    calls.push(world.fit_call(&theme, dice));
                }
                calls.push(vec![b"MULTI".to_vec()]);
                calls.extend((0..1 + dice.below(6)).map(|_| world.fit_call(&theme, dice)));
                calls.push(vec![if dice.once_in(8) { b"DISCARD".to_vec() } else { b"EXEC".to_vec() }]);
            }
            _ => calls.push(world.fit_call(&theme, dice)),
        }
    }
    calls
}

/// Small thresholds, so that small values change their encoding.
pub(crate) fn thresholds(dice: &mut Dice) -> Args {
    let mut args: Args = ["CONFIG", "SET"].map(|word| word.as_bytes().to_vec()).into();
    for (parameter, default) in THRESHOLDS {
        let value = match parameter {
            // The two servers count the bytes of a node differently.
            "stream-node-max-bytes" => "0",
            _ if dice.once_in(3) => default,
            "list-max-listpack-size" => *dice.pick(&["1", "2", "4", "-1", "-5"]),
            "hll-sparse-max-bytes" => *dice.pick(&["0", "30", "100"]),
            _ if parameter.ends_with("-value") => *dice.pick(&["1", "5", "44"]),
            _ => *dice.pick(&["1", "2", "4", "8"]),
        };
        args.extend([parameter, value].map(|word| word.as_bytes().to_vec()));
    }
    args
}

/// The common context of the calls in a sequence.
struct World {
    /// Each key's usual family.
    homes: Vec<&'static str>,
    /// All scores are equal, so that members have an order.
    level: bool,
    time: Time,
}

impl World {
    /// One call of one of these commands, sometimes broken.
    fn fit_call(&self, commands: &[&Declared], dice: &mut Dice) -> Args {
        loop {
            let command = *dice.pick(commands);
            let mut args = self.call(command, dice);
            if !self.level {
                args = perhaps_break(args, dice);
            }
            let is_fit = match self.time {
                Time::OfTheSystem(version) => is_fit(&args, self.level, version),
                Time::ByHand(_) => !is_vast(&args),
            };
            if is_fit {
                return args;
            }
        }
    }

    /// One call with arguments that fit the declaration.
    fn call(&self, command: &Declared, dice: &mut Dice) -> Args {
        let mut call = Call { world: self, command, announced: None, args: Args::new() };
        call.args.extend(command.words.iter().map(|word| word.as_bytes().to_vec()));
        for arg in &command.syntax {
            call.write(arg, dice);
        }
        call.args
    }

    fn words(&self, words: &[&str], dice: &mut Dice) -> Args {
        let words = words.iter().map(|word| word.as_bytes().to_vec());
        words.chain([self.key(ANY_FAMILY, dice).into_bytes()]).collect()
    }

    fn key(&self, family: &str, dice: &mut Dice) -> String {
        let at_home: Vec<usize> = (0..KEYS).filter(|&i| self.homes[i] == family).collect();
        let stranger = family == ANY_FAMILY || at_home.is_empty() || dice.once_in(8);
        format!("k{}", if stranger { dice.below(KEYS) } else { *dice.pick(&at_home) })
    }
}

struct Call<'a> {
    world: &'a World,
    command: &'a Declared,
    /// The number given by `numkeys`: the next repeated argument has this many values.
    announced: Option<usize>,
    args: Args,
}

impl Call<'_> {
    fn write(&mut self, arg: &Arg, dice: &mut Dice) {
        if arg.optional && dice.below(5) < 3 {
            return;
        }
        if let Some(token) = arg.token.as_ref().filter(|_| !arg.multiple_token) {
            self.push(token);
        }
        let times = match arg.multiple {
            true => self.announced.take().unwrap_or_else(|| 1 + dice.below(3)),
            false => 1,
        };
        for _ in 0..times {
            if let Some(token) = arg.token.as_ref().filter(|_| arg.multiple_token) {
                self.push(token);
            }
            self.write_once(arg, dice);
        }
    }

    fn write_once(&mut self, arg: &Arg, dice: &mut Dice) {
        let text = match &arg.kind {
            Kind::PureToken => return, // its word is written already
            Kind::OneOf(choices) => return self.write(&Arg { optional: false, ..dice.pick(choices).clone() }, dice),
            Kind::Block(parts) => return parts.iter().for_each(|part| self.write(part, dice)),
            Kind::Key => self.world.key(if self.command.family == LEX { "zset" } else { self.command.family }, dice),
            Kind::Integer => self.integer(&arg.name, dice),
            Kind::Double => self.double(&arg.name, dice),
            Kind::Pattern => dice.pick(&["*", "k*", "*1", "?*", "[a-s]*", "nosuch", "\\*"]).to_string(),
            Kind::UnixTime => self.unix_time(&arg.name, dice),
            Kind::String => self.string(&arg.name, dice),
        };
        self.push(&text);
    }

    fn push(&mut self, text: &str) {
        self.args.push(text.as_bytes().to_vec());
    }

    fn unix_time(&self, name: &str, dice: &mut Dice) -> String {
        match self.world.time {
            Time::ByHand(start_ms) if !dice.once_in(4) => {
                let reach = 1 << dice.below(20);
                let at_ms = start_ms + dice.below(reach) as i64;
                (if name.ends_with("milliseconds") { at_ms } else { at_ms / 1_000 }).to_string()
            }
            _ => dice.pick(&["33177117420", "33177117420123", "1", "0"]).to_string(),
        }
    }

    /// A string with a meaning for some commands, chosen by the argument's name; any bytes for other names.
    fn string(&self, name: &str, dice: &mut Dice) -> String {
        let pool: &[&str] = match (name, self.command.family) {
            ("group", _) => &["g1", "g2"],
            ("consumer", _) => &["c1", "c2"],
            ("min-idle-time", _) if self.is_by_hand() => &["0", "10", "1000"],
            ("min-idle-time", _) => &["0", "100000000"],
            ("encoding", _) => &["u8", "i5", "u1", "i64", "u63", "u64"],
            ("type", _) => &["string", "list", "set", "zset", "hash", "stream"],
            ("id" | "start" | "end" | "last-id" | "lastid" | "threshold" | "max-deleted-id", "stream") => {
                return self.id(dice);
            }
            ("min" | "max" | "start" | "stop", LEX) => &["-", "+", "[a", "(b", "[c", "(d", "[hello", "(", "["],
            ("min" | "max" | "start" | "stop", "zset") if self.world.level => &["-", "+", "[a", "(b", "[c", "0", "-1"],
            ("min" | "max" | "start" | "stop", "zset") => &["0", "1", "2", "(2", "-1", "-2", "-inf", "+inf", "(1.5"],
            _ if dice.once_in(6) => return long(dice),
            _ => {
                &["a", "b", "c", "d", "e", "1", "2", "10", "-7", "1.5", "", "hello", "\x7f\x00z", "007", "12345678901"]
            }
        };
        dice.pick(pool).to_string()
    }

    fn id(&self, dice: &mut Dice) -> String {
        match dice.below(8) {
            0 => dice
                .pick(&["0", "-", "+", "$", ">", "(2-1", "0-0", "18446744073709551615-18446744073709551615"])
                .to_string(),
            1 => format!("{}-*", 1 + dice.below(9)),
            2 => (1 + dice.below(9)).to_string(),
            _ => format!("{}-{}", 1 + dice.below(9), dice.below(4)),
        }
    }

    fn integer(&mut self, name: &str, dice: &mut Dice) -> String {
        match name {
            "numkeys" | "numfields" | "nummembers" | "numids" => {
                let keys = 1 + dice.below(3);
                self.announced = Some(keys);
                keys.to_string()
            }
            "timeout" | "milliseconds" if self.waits() && self.is_by_hand() => {
                dice.pick(&["0", "1", "100", "5000"]).to_string()
            }
            "seconds" if self.is_by_hand() => dice.pick(&["1", "2", "20", "1000", "0", "-1"]).to_string(),
            "milliseconds" | "ttl" | "ms" if self.is_by_hand() => {
                dice.pick(&["1", "20", "500", "3000", "1000000", "0"]).to_string()
            }
            "timeout" | "milliseconds" if self.waits() => short_wait(self.in_milliseconds()).to_owned(),
            "seconds" => dice.pick(&["1000", "100000", "0", "-1"]).to_string(),
            "milliseconds" | "ttl" => dice.pick(&["1000000", "100000000", "0", "-1"]).to_string(),
            "cursor" => "0".to_owned(),
            "count" if self.command.words[0].ends_with("SCAN") && !dice.once_in(4) => "1000".to_owned(),
            "db" | "destination-db" | "index" | "index1" | "index2" => [0, 0, 1, 2][dice.below(4)].to_string(),
            "increment" if self.world.level => "0".to_owned(),
            "value" => dice.pick(&["0", "1", "1", "7", "-3", "300"]).to_string(),
            _ if dice.once_in(12) => dice.pick(&["9223372036854775807", "-9223372036854775808", "100"]).to_string(),
            _ => (dice.below(14) as i64 - 4).to_string(),
        }
    }

    fn double(&self, name: &str, dice: &mut Dice) -> String {
        let pool: &[&str] = match name {
            "timeout" if self.waits() && self.is_by_hand() => &["0", "0.001", "0.1", "5"],
            "timeout" if self.waits() => &[short_wait(self.in_milliseconds())],
            _ if self.world.level => &["0"],
            "longitude" | "latitude" => {
                &["13.361389", "38.115556", "15.087269", "37.502669", "-0.1", "51.5", "0", "91"]
            }
            "radius" | "width" | "height" => &["0", "1", "200", "5000.5", "40000", "-1"],
            _ => &["0", "1", "2", "-1", "1.5", "3e5", "-0.25", "0.1", "10", "inf", "-inf"],
        };
        dice.pick(pool).to_string()
    }

    fn is_by_hand(&self) -> bool {
        matches!(self.world.time, Time::ByHand(_))
    }

    fn waits(&self) -> bool {
        timeout_place(self.command.words[0].as_bytes(), 0).is_some()
    }

    fn in_milliseconds(&self) -> bool {
        self.command.words[0].starts_with('X') || self.command.words[0].starts_with("WAIT")
    }
}

/// Strings around the lengths at which representations change.
fn long(dice: &mut Dice) -> String {
    let length = *dice.pick(&[5, 6, 14, 15, 20, 22, 23, 44, 45, 63, 64, 65, 100]);
    dice.pick(&["x", "y", "7"]).repeat(length)
}

fn short_wait(in_milliseconds: bool) -> &'static str {
    if in_milliseconds { "1" } else { "0.001" }
}

/// Breaks one call in six: a strange argument in the place of another, the last one missing or one too many.
pub(crate) fn perhaps_break(mut args: Args, dice: &mut Dice) -> Args {
    // No count between 100 and 2^63: a server may then rightly allocate gigabytes.
    const STRANGE: [&str; 24] = [
        "",
        " ",
        "0",
        "-1",
        "1",
        "2",
        "3",
        "10",
        "100",
        "-0",
        "01",
        "+1",
        " 1",
        "1.5",
        "1e2",
        "inf",
        "-inf",
        "nan",
        "abc",
        "0x10",
        "9223372036854775807",
        "-9223372036854775808",
        "9223372036854775808",
        "18446744073709551616",
    ];
    match dice.below(18) {
        0 if args.len() > 1 => {
            let at = 1 + dice.below(args.len() - 1);
            args[at] = dice.pick(&STRANGE).as_bytes().to_vec();
        }
        1 if args.len() > 2 => drop(args.pop()),
        2 => args.push(dice.pick(&STRANGE).as_bytes().to_vec()),
        _ => {}
    }
    args
}

/// Whether a call has one answer, equal in Redis of this version: it does not wait long, asks for no id or deadline
/// that the clock decides within the time of a test, and uses no value with a later meaning.
pub(crate) fn is_fit(args: &Args, level: bool, version: Version) -> bool {
    const UNFIT: [(&str, &[&str]); 10] = [
        ("LREM", &["-9223372036854775808"]),
        ("BITOP", &["DIFF", "DIFF1", "ANDOR", "ONE"]),
        ("XADD", &["*"]),
        // No deadline can be that late; and small numbers of Redis share one idle time.
        ("RESTORE", &["9223372036854775807", "IDLETIME"]),
        // Whether a deadline is later than one that was set a moment ago depends on the clock.
        ("EXPIRE", &["GT", "LT"]),
        ("PEXPIRE", &["GT", "LT"]),
        ("HEXPIRE", &["GT", "LT"]),
        ("HPEXPIRE", &["GT", "LT"]),
        // Equal weights leave the order open.
        ("SORT", &["BY"]),
        ("SORT_RO", &["BY"]),
    ];
    const NEWER: [(&str, &[&str]); 3] =
        [("LPOS", &["-9223372036854775808"]), ("XREAD", &["+"]), ("XREADGROUP", &["+"])];
    let unfit = if version == Version::Seven { [&UNFIT[..], &NEWER].concat() } else { UNFIT.to_vec() };
    let name = args[0].as_slice();
    let holds = |word: &str| args[1..].iter().any(|arg| arg.eq_ignore_ascii_case(word.as_bytes()));
    let is_unfit = unfit.iter().any(|(unfit, words)| name == unfit.as_bytes() && words.iter().any(|word| holds(word)));
    // Since 7.2 they take one more argument.
    let is_longer = matches!(name, b"ZRANK" | b"ZREVRANK") && args.len() > 3;
    // Redis 8.0 takes another index if it does not fit an int.
    let is_far = name == b"LSET" && args.get(2).is_some_and(|index| index.len() > 9);
    // Since 8.0 some numbers are parsed differently: cursors, and bounds of scores.
    let cursor = match name {
        b"SCAN" => args.get(1),
        b"SSCAN" | b"HSCAN" | b"ZSCAN" => args.get(2),
        _ => None,
    };
    let is_odd_cursor = cursor.is_some_and(|cursor| cursor.is_empty() || !cursor.iter().all(u8::is_ascii_digit));
    let has_bounds =
        name.starts_with(b"Z") && (name.ends_with(b"COUNT") || name.windows(5).any(|part| part == b"RANGE"));
    let is_odd = |arg: &Vec<u8>| arg.contains(&b'x') || arg.contains(&b' ') || arg.contains(&0);
    let has_odd_bound = has_bounds && args.iter().skip(2).any(is_odd);
    let timeout = timeout_place(name, args.len()).map(|at| match at {
        0 => args.iter().rposition(|arg| arg.eq_ignore_ascii_case(b"BLOCK")).map_or(args.len(), |at| at + 1),
        at => at,
    });
    let waits_long = timeout.and_then(|at| args.get(at)).is_some_and(|timeout| is_long(timeout));
    let soon = durations(args).any(|duration| number(duration).is_some_and(|n| n > 0.0 && n < 1000.0));
    let is_newer = version == Version::Seven && (is_longer || is_odd_cursor || has_odd_bound);
    // For an offset before the start of a range 8.0 returns nothing for a small sorted set, but something for a large
    // one; this server returns nothing.
    let starts_before = |offset: &Vec<u8>| number(offset).is_some_and(|n| n < 0.0);
    let begins_before = version == Version::Eight
        && name.starts_with(b"Z")
        && args.windows(2).any(|pair| pair[0].eq_ignore_ascii_case(b"LIMIT") && starts_before(&pair[1]));
    !is_unfit
        && !is_newer
        && !is_far
        && !begins_before
        && !is_vast(args)
        && !waits_long
        && !soon
        && (level || !holds("BYLEX"))
}

/// Whether a server would rightly allocate much memory for this call.
fn is_vast(args: &Args) -> bool {
    matches!(args[0].as_slice(), b"SETBIT" | b"SETRANGE" | b"BITFIELD") && args.iter().any(|arg| vast(arg))
}

/// The position of a waiting command's timeout; 0 means after the word BLOCK.
fn timeout_place(name: &[u8], len: usize) -> Option<usize> {
    match name {
        b"BLPOP" | b"BRPOP" | b"BZPOPMIN" | b"BZPOPMAX" | b"BRPOPLPUSH" | b"BLMOVE" => Some(len.saturating_sub(1)),
        b"BLMPOP" | b"BZMPOP" => Some(1),
        b"BLMOVEM" => Some(5),
        b"WAIT" => Some(2),
        b"WAITAOF" => Some(3),
        b"XREAD" | b"XREADGROUP" => Some(0),
        _ => None,
    }
}

/// Whether a timeout is valid and longer than a millisecond. (Versions differ on timeouts beyond all bounds.)
fn is_long(timeout: &[u8]) -> bool {
    !matches!(timeout, b"1" | b"0.001" | b"-1" | b"abc" | b"" | b"nan")
}

/// The arguments that are measured against the clock.
fn durations(args: &Args) -> impl Iterator<Item = &[u8]> {
    let (place, words): (Option<usize>, &[&str]) = match args[0].as_slice() {
        b"EXPIRE" | b"PEXPIRE" | b"HEXPIRE" | b"HPEXPIRE" | b"SETEX" | b"PSETEX" | b"RESTORE" => (Some(2), &[]),
        b"SET" | b"GETEX" | b"HGETEX" | b"HSETEX" => (None, &["EX", "PX"]),
        b"XCLAIM" | b"XAUTOCLAIM" => (Some(4), &[]),
        b"XPENDING" => (None, &["IDLE"]),
        _ => (None, &[]),
    };
    let behind = |at: usize| words.iter().any(|word| args[at - 1].eq_ignore_ascii_case(word.as_bytes()));
    (1..args.len()).filter(move |&at| place == Some(at) || behind(at)).map(|at| args[at].as_slice())
}

/// Whether a server allocates much memory for this offset.
fn vast(offset: &[u8]) -> bool {
    number(offset.strip_prefix(b"#").unwrap_or(offset)).is_some_and(|n| (1e6..9e18).contains(&n))
}

fn number(text: &[u8]) -> Option<f64> {
    std::str::from_utf8(text).ok()?.trim().parse().ok()
}

#[test]
fn calls_fit_their_declaration() {
    let syntax = "key [NX | XX] [LIMIT offset count] numkeys other:key... (field value)...";
    let command = Declared {
        words: vec!["TEST".to_owned(), "SUB".to_owned()],
        family: "hash",
        syntax: tidegate::spec::syntax::parse(syntax).expect("a declaration"),
    };
    let world = World { homes: vec!["hash"; KEYS], level: false, time: Time::OfTheSystem(Version::Seven) };
    for seed in 0..500 {
        let args = world.call(&command, &mut Dice(seed));
        let text: Vec<String> = args.iter().map(|a| String::from_utf8_lossy(a).into_owned()).collect();
        assert_eq!(text[..2], ["TEST", "SUB"]);
        let mut at = 3 + usize::from(["NX", "XX"].contains(&text[3].as_str()));
        at += if text[at] == "LIMIT" { 3 } else { 0 };
        let keys: usize = text[at].parse().expect("numkeys");
        let pairs = text.len() - at - 1 - keys;
        assert!(pairs >= 2 && pairs.is_multiple_of(2), "{text:?}");
    }
}

#[test]
fn no_call_waits_long_or_runs_out_soon() {
    let args = |line: &str| super::script::split_line(line).expect("plain words");
    for line in
        ["BLPOP k 0", "BLMPOP 1e2 1 k LEFT", "XREAD BLOCK 0 STREAMS k $", "PEXPIRE k 10", "SET k v EX 1", "WAIT 1 0"]
    {
        assert!(!is_fit(&args(line), false, Version::Seven), "{line}");
    }
    for line in ["BLPOP k 0.001", "XREAD BLOCK 1 STREAMS k $", "XREAD STREAMS k 0", "PEXPIRE k 0", "SET k v EX 1000"] {
        assert!(is_fit(&args(line), false, Version::Seven), "{line}");
    }
}
