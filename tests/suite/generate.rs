//! Random calls from the declared syntax of commands: what a new command's table entry says is tried without a new test.
//!
//! Calls are mostly right, so that there is data to act on; a share of them is broken afterwards (see
//! [`differential`](crate::differential)). Values come from small pools: few keys, so that commands meet each other's data,
//! most of them of the family's own type; numbers that are small or at the edge of their type, never ones that make a
//! server rightly set aside gigabytes; expiry so far away that no key runs out between two servers.

use tidegate::engine::syntax::{Arg, Kind};

use crate::differential::{Args, Dice};

/// A command that calls are made of.
pub struct Declared {
    /// Its name, and a subcommand's name behind its container's.
    pub words: Vec<String>,
    /// Prefix of the keys that hold its type, or [`ANY_FAMILY`].
    pub family: String,
    /// Its arguments.
    pub syntax: Vec<Arg>,
}

/// The family of commands that take keys of every type.
pub const ANY_FAMILY: &str = "";

/// One call with arguments that fit the declaration.
pub fn call(command: &Declared, dice: &mut Dice) -> Args {
    let mut call = Call { family: &command.family, announced: None, args: Args::new() };
    call.args.extend(command.words.iter().map(|word| word.as_bytes().to_vec()));
    for arg in &command.syntax {
        call.write(arg, dice);
    }
    call.args
}

struct Call<'a> {
    family: &'a str,
    /// What `numkeys` promised: so many of the next repeated argument follow.
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
            Kind::Key => return self.key(dice),
            Kind::Integer => self.integer(&arg.name, dice),
            Kind::Double => double(&arg.name, dice).to_owned(),
            Kind::Pattern => dice.pick(&["*", "string*", "*1", "?*", "[a-s]*", "nosuch", "\\*"]).to_string(),
            Kind::UnixTime => dice.pick(&["33177117420", "33177117420123", "1", "0"]).to_string(),
            Kind::String => self.string(&arg.name, dice).to_owned(),
        };
        self.push(&text);
    }

    fn push(&mut self, text: &str) {
        self.args.push(text.as_bytes().to_vec());
    }

    fn key(&mut self, dice: &mut Dice) {
        const FAMILIES: [&str; 9] = ["string", "hll", "hash", "set", "list", "zset", "geo", "stream", "none"];
        let stranger = self.family == ANY_FAMILY || dice.below(8) == 0;
        let family = if stranger { *dice.pick(&FAMILIES) } else { self.family };
        self.push(&format!("{family}{}", dice.below(4)));
    }

    /// Strings that mean something to some commands by what the argument is called; any bytes elsewhere.
    fn string(&self, name: &str, dice: &mut Dice) -> &'static str {
        let pool: &[&str] = match (name, self.family) {
            ("group", _) => &["g1", "g2"],
            ("consumer", _) => &["c1", "c2"],
            ("min-idle-time", _) => &["0", "100000000"],
            ("encoding", _) => &["u8", "i5", "u1", "i64", "u63", "u64"],
            ("type", _) => &["string", "list", "set", "zset", "hash", "stream"],
            ("id" | "start" | "end" | "last-id" | "lastid" | "threshold" | "max-deleted-id", "stream") => {
                &["1-1", "1-2", "2-1", "3", "5-0", "7-7", "0", "-", "+", "$", ">", "(2-1"]
            }
            ("min" | "max" | "start" | "stop", "zset") => {
                &["-", "+", "[a", "(b", "[c", "0", "1", "(2", "-1", "-inf", "+inf"]
            }
            _ => &["a", "b", "c", "1", "2", "10", "-7", "1.5", "", "hello", "\x00\x7f"],
        };
        pool[dice.below(pool.len())]
    }

    fn integer(&mut self, name: &str, dice: &mut Dice) -> String {
        match name {
            "numkeys" => {
                let keys = 1 + dice.below(3);
                self.announced = Some(keys);
                keys.to_string()
            }
            "seconds" => dice.pick(&["1000", "100000", "0", "-1"]).to_string(),
            "milliseconds" => dice.pick(&["1000000", "100000000", "0", "-1"]).to_string(),
            "cursor" => "0".to_owned(),
            "db" | "destination-db" | "index1" | "index2" => dice.below(3).to_string(),
            "value" => dice.pick(&["0", "1", "1", "7", "-3", "300"]).to_string(),
            _ if dice.below(12) == 0 => dice.pick(&["9223372036854775807", "-9223372036854775808", "100"]).to_string(),
            _ => (dice.below(14) as i64 - 4).to_string(),
        }
    }
}

fn double(name: &str, dice: &mut Dice) -> &'static str {
    let pool: &[&str] = match name {
        "longitude" | "latitude" => &["13.361389", "38.115556", "15.087269", "37.502669", "-0.1", "51.5", "0", "91"],
        "radius" | "width" | "height" => &["0", "1", "200", "5000.5", "40000", "-1"],
        _ => &["0", "1", "-1", "1.5", "3e5", "-0.25", "10", "inf", "-inf"],
    };
    pool[dice.below(pool.len())]
}

#[test]
fn calls_fit_their_declaration() {
    let syntax = "key [NX | XX] [LIMIT offset count] numkeys other:key... (field value)...";
    let command = Declared {
        words: vec!["TEST".to_owned(), "SUB".to_owned()],
        family: "hash".to_owned(),
        syntax: tidegate::engine::syntax::parse(syntax).expect("a declaration"),
    };
    for seed in 0..500 {
        let args = call(&command, &mut Dice(seed));
        let text: Vec<String> = args.iter().map(|a| String::from_utf8_lossy(a).into_owned()).collect();
        assert_eq!(text[..2], ["TEST", "SUB"]);
        let mut at = 3 + usize::from(["NX", "XX"].contains(&text[3].as_str()));
        at += if text[at] == "LIMIT" { 3 } else { 0 };
        let keys: usize = text[at].parse().expect("numkeys");
        let pairs = text.len() - at - 1 - keys;
        assert!(pairs >= 2 && pairs.is_multiple_of(2), "{text:?}");
    }
}
