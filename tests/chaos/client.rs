//! A client that behaves badly. Its choices follow from the seed and its number alone, never from replies, so that a
//! seed repeats the bytes that each client sends. It mostly reads its replies, and checks only that they are RESP.

use std::time::{Duration, Instant};

use super::calls::{CHAOTIC_DATABASES, key};
use super::dice::Dice;
use super::wire::{Args, Connection, Counter, encode, show, words};
use super::world::World;
use super::{frames, settings};

/// Time to wait for replies before the next action: many calls never get one.
const PATIENCE: Duration = Duration::from_millis(60);
/// Time between a waiting call and the client's disconnection.
const MOMENT: Duration = Duration::from_millis(3);

/// Empties a database; in the keepers' database, removes all keys except theirs.
pub(crate) const EMPTY: &str = "redis.call('SELECT', ARGV[1]) if ARGV[1] ~= '0' then return redis.call('FLUSHDB') end \
    local n = 0 for _, key in ipairs(redis.call('KEYS', '*')) do \
      if string.sub(key, 1, 7) ~= 'keeper:' then redis.call('UNLINK', key) n = n + 1 end \
    end return n";

pub(crate) struct Client<'a> {
    world: &'a World,
    number: usize,
    dice: Dice,
    connection: Option<Connection>,
    counter: Counter,
}

/// Performs `world.options.actions` actions, or as many as there is time for.
pub(crate) fn run(world: &World, number: usize) {
    let dice = Dice::new(world.options.seed, number as u64);
    let mut client = Client { world, number, dice, connection: None, counter: Counter::default() };
    for _ in 0..world.options.actions {
        if world.is_over() {
            break;
        }
        client.act();
    }
}

impl Client<'_> {
    fn act(&mut self) {
        match self.dice.below(1_000) {
            0..480 => self.pipeline(),
            480..620 => self.script(),
            620..660 => self.library(),
            660..710 => self.damage(),
            710..750 => self.inline(),
            750..800 => self.transaction(),
            800..840 => self.wait_and_vanish(),
            840..870 => self.subscribe(),
            870..885 => self.debug_script(),
            885..925 => self.configure(),
            925..940 => self.kill(),
            940..955 => self.leave_replies_unread(),
            955..970 => self.stop_inside_a_frame(),
            970..980 => self.odds_and_ends(),
            980..990 => self.empty(),
            _ => self.vanish(),
        }
    }

    fn pipeline(&mut self) {
        let calls: Vec<Args> = (0..1 + self.dice.below(12)).map(|_| self.world.calls.any(&mut self.dice)).collect();
        self.ask(&calls);
    }

    fn script(&mut self) {
        let text = self.world.scripts.script(&self.world.calls, &mut self.dice);
        let mut call = match self.dice.below(10) {
            0 => words(&["EVAL_RO", &text]),
            1 => words(&["SCRIPT", "LINT", &text]),
            2 => words(&["SCRIPT", "TRACE", &text]),
            3 => words(&["SCRIPT", "TRACE", "COMMIT", &text]),
            4 => words(&["SCRIPT", "LOAD", &text]),
            _ => words(&["EVAL", &text]),
        };
        if !["LINT", "LOAD"].iter().any(|word| call[1] == word.as_bytes()) {
            let keys = self.dice.below(3);
            call.push(keys.to_string().into_bytes());
            call.extend((0..keys).map(|_| key("", &mut self.dice).into_bytes()));
            call.extend((0..self.dice.below(3)).map(|_| self.dice.bytes()));
        }
        self.world.stats.scripts.add(1);
        let after = [words(&["SCRIPT", "SLOW"]), words(&["SCRIPT", "LIST"]), words(&["SCRIPT", "STATS"])];
        match self.dice.below(6) {
            0 => self.ask(&[call, self.dice.clone().pick(&after).clone()]),
            _ => self.ask(&[call]),
        }
        // Sometimes disconnects while it runs.
        if self.dice.once_in(20) {
            self.vanish();
        }
    }

    fn library(&mut self) {
        let library = super::scripts::library(&mut self.dice);
        let mut calls = vec![words(&["FUNCTION", "LOAD", "REPLACE", &library])];
        for _ in 0..self.dice.below(4) {
            let name = format!("f{}", self.dice.below(3));
            let key = key("", &mut self.dice);
            calls.push(words(&["FCALL", &name, "1", &key, "1"]));
        }
        match self.dice.below(6) {
            0 => calls.push(words(&["FUNCTION", "DUMP"])),
            1 => calls.push(words(&["FUNCTION", "DELETE", "chaos1"])),
            2 => calls.push(words(&["FUNCTION", "FLUSH"])),
            _ => {}
        }
        self.world.stats.scripts.add(calls.len() as u64);
        self.ask(&calls);
    }

    fn damage(&mut self) {
        let bytes = match self.dice.below(3) {
            0 => frames::boastful(&mut self.dice),
            _ => frames::damaged(&self.world.calls, &mut self.dice),
        };
        self.send(&bytes, format!("damaged \"{}\"", bytes[..bytes.len().min(600)].escape_ascii()), 1);
        self.vanish();
    }

    fn inline(&mut self) {
        let bytes = frames::inline(&self.world.calls, &mut self.dice);
        self.send(&bytes, format!("inline \"{}\"", bytes[..bytes.len().min(600)].escape_ascii()), 1);
    }

    fn transaction(&mut self) {
        let mut calls = vec![words(&["MULTI"])];
        if self.dice.once_in(3) {
            calls.insert(0, words(&["WATCH", &key("", &mut self.dice)]));
        }
        for _ in 0..self.dice.below(8) {
            let is_about_data = !self.dice.once_in(4);
            calls.push(match is_about_data {
                true => self.world.calls.about_data(&mut self.dice),
                false => self.world.calls.any(&mut self.dice),
            });
        }
        match self.dice.below(6) {
            0 => calls.push(words(&["DISCARD"])),
            1 => {}
            _ => calls.push(words(&["EXEC"])),
        }
        self.ask(&calls);
        if self.dice.once_in(5) {
            self.vanish();
        }
    }

    fn wait_and_vanish(&mut self) {
        let key = |home: &str, dice: &mut Dice| format!("chaos:{home}:{}", dice.below(4));
        let dice = &mut self.dice;
        let (list, zset, stream) = (key("list", dice), key("sorted-set", dice), key("stream", dice));
        let group = words(&["XGROUP", "CREATE", &stream, "g1", "$", "MKSTREAM"]);
        let wait = match dice.below(8) {
            0 => words(&["BLPOP", &list, "0"]),
            1 => words(&["BLMOVE", &list, "chaos:list:9", "LEFT", "LEFT", "0"]),
            2 => words(&["BZPOPMIN", &zset, "0"]),
            3 => words(&["BZMPOP", "0", "1", &zset, "MAX", "COUNT", "5"]),
            4 => words(&["XREADGROUP", "GROUP", "g1", "c1", "BLOCK", "0", "STREAMS", &stream, ">"]),
            5 => words(&["XREAD", "BLOCK", "0", "STREAMS", &stream, "$"]),
            6 => words(&["BLMPOP", "0", "2", &list, "chaos:list:9", "RIGHT"]),
            _ => words(&["WAIT", "1", "0"]),
        };
        let delete = words(&["UNLINK", &list, &zset]);
        let calls = [group, delete, wait, words(&["PING"])];
        let bytes = calls.iter().fold(Vec::new(), |mut bytes, call| {
            encode(call, &mut bytes);
            bytes
        });
        let text = calls.iter().map(|call| show(call)).collect::<Vec<_>>().join("; ");
        self.send(&bytes, text, 2);
        std::thread::sleep(MOMENT);
        self.vanish();
    }

    fn subscribe(&mut self) {
        let mut calls =
            vec![words(&["SUBSCRIBE", "chaos-channel-1", "chaos-channel-2"]), words(&["PSUBSCRIBE", "chaos*"])];
        if self.dice.once_in(2) {
            calls.insert(0, words(&["HELLO", "3"]));
        }
        calls.extend((0..self.dice.below(4)).map(|_| self.world.calls.any(&mut self.dice)));
        calls.push(words(&["PUBLISH", "chaos-channel-1", "message"]));
        self.ask(&calls);
        if self.dice.once_in(2) {
            self.vanish();
        }
    }

    fn debug_script(&mut self) {
        let mode = if self.dice.once_in(2) { "YES" } else { "SYNC" };
        let text = self.world.scripts.script(&self.world.calls, &mut self.dice);
        let mut calls = vec![words(&["SCRIPT", "DEBUG", mode]), words(&["EVAL", &text, "1", "chaos:string:1", "1"])];
        let lines: [&[&str]; 22] = [
            &["s"],
            &["n"],
            &["s"],
            &["c"],
            &["p"],
            &["p", "loop"],
            &["p", "nosuch"],
            &["b", "2"],
            &["b", "-1", "0", "99999999999"],
            &["b"],
            &["t"],
            &["l"],
            &["l", "1", "9223372036854775807"],
            &["w"],
            &["m", "1"],
            &["m", "0"],
            &["a"],
            &["help"],
            &["e", "return loop"],
            &["e", "while true do end"],
            &["r", "GET", "chaos:string:1"],
            &["e", "error({})"],
        ];
        for _ in 0..self.dice.below(10) {
            let line = *self.dice.pick(&lines);
            calls.push(words(line));
        }
        if self.dice.once_in(2) {
            calls.push(words(&["c"]));
            calls.push(words(&["c"]));
        }
        self.ask(&calls);
        self.vanish();
    }

    fn configure(&mut self) {
        let call = match self.dice.below(8) {
            0 => words(&["CONFIG", "GET", "*"]),
            1 => words(&["CONFIG", "RESETSTAT"]),
            _ => settings::change(&self.world.options.without, &mut self.dice),
        };
        self.ask(&[call]);
    }

    fn kill(&mut self) {
        let id = (1 + self.dice.below(600)).to_string();
        let call = match self.dice.below(12) {
            0 | 1 => words(&["SCRIPT", "KILL"]),
            2 => words(&["FUNCTION", "KILL"]),
            3 => words(&["CLIENT", "KILL", "TYPE", "pubsub", "SKIPME", "no"]),
            4 => words(&["CLIENT", "KILL", "TYPE", "normal"]),
            5 => words(&["CLIENT", "KILL", "ID", &id, "SKIPME", "no"]),
            6 => words(&["CLIENT", "KILL", "127.0.0.1:1"]),
            7 => words(&["CLIENT", "UNBLOCK", &id, "ERROR"]),
            8 => words(&["CLIENT", "UNBLOCK", &id]),
            9 => words(&["CLIENT", "NO-EVICT", "on"]),
            10 => words(&["CLIENT", "PAUSE", "20", "ALL"]),
            _ => words(&["CLIENT", "KILL", "ADDR", "127.0.0.1:0", "USER", "default", "MAXAGE", "9223372036854775807"]),
        };
        self.world.stats.kills.add(1);
        self.ask(&[call]);
    }

    fn leave_replies_unread(&mut self) {
        let long = "y".repeat(self.dice.below(1 << 20));
        let call = match self.dice.below(3) {
            0 => words(&["ECHO", &long]),
            1 => words(&["COMMAND"]),
            _ => words(&["EVAL", "return string.rep('z', 500000)", "0"]),
        };
        let mut bytes = Vec::new();
        let times = 1 + self.dice.below(24);
        (0..times).for_each(|_| encode(&call, &mut bytes));
        self.send_only(&bytes, format!("{times} times, replies unread: {}", show(&call)));
        std::thread::sleep(MOMENT);
        if self.dice.once_in(3) {
            self.await_replies(times);
        } else {
            self.vanish();
        }
    }

    fn stop_inside_a_frame(&mut self) {
        let mut bytes = Vec::new();
        encode(&self.world.calls.any(&mut self.dice), &mut bytes);
        bytes.truncate(self.dice.below(bytes.len()));
        self.send_only(&bytes, format!("cut short: \"{}\"", bytes[..bytes.len().min(300)].escape_ascii()));
        self.vanish();
    }

    fn odds_and_ends(&mut self) {
        let port = if self.dice.once_in(2) { self.world.port.to_string() } else { "1".to_owned() };
        let key = key("", &mut self.dice);
        let (one, other) = (*self.dice.pick(&CHAOTIC_DATABASES), *self.dice.pick(&CHAOTIC_DATABASES));
        let kind = *self.dice.pick(&["map", "attrib", "push", "verbatim", "bignum", "nosuch"]);
        let call = match self.dice.below(8) {
            0 => words(&["MIGRATE", "127.0.0.1", &port, &key, "2", "20", "COPY"]),
            1 => words(&["MIGRATE", "127.0.0.1", &port, "", "1", "10", "REPLACE", "KEYS", &key, "chaos:list:0"]),
            2 => words(&["SWAPDB", one, other]),
            3 => words(&["DEBUG", "OBJECT", &key]),
            4 => words(&["DEBUG", "PROTOCOL", kind]),
            5 => words(&["DEBUG", "SET-ACTIVE-EXPIRE", one]),
            6 => words(&["DEBUG", "SLEEP", "0.01"]),
            _ => words(&["DEBUG", "LOG", "a line"]),
        };
        self.ask(&[call]);
    }

    fn empty(&mut self) {
        let database = *self.dice.pick(&["0", "1", "2", "3"]);
        let mut calls = vec![words(&["EVAL", EMPTY, "0", database])];
        match self.dice.below(4) {
            0 => calls.push(words(&["SCRIPT", "FLUSH"])),
            1 => calls.push(words(&["FUNCTION", "FLUSH", "ASYNC"])),
            _ => {}
        }
        self.ask(&calls);
    }

    /// Disconnects, half the time by a reset.
    fn vanish(&mut self) {
        let by_reset = self.dice.once_in(2);
        self.world.note(self.number, if by_reset { "is gone (reset)" } else { "is gone" }.to_owned());
        if let Some(connection) = self.connection.take() {
            self.world.stats.vanished.add(1);
            if by_reset {
                connection.reset();
            }
        }
    }

    /// Sends calls and reads their replies, as far as they come.
    fn ask(&mut self, calls: &[Args]) {
        let mut bytes = Vec::new();
        calls.iter().for_each(|call| encode(call, &mut bytes));
        let text = calls.iter().map(|call| show(call)).collect::<Vec<_>>().join("; ");
        self.send(&bytes, text, calls.len());
        self.world.stats.commands.add(calls.len() as u64);
    }

    fn send(&mut self, bytes: &[u8], text: String, replies: usize) {
        self.send_only(bytes, text);
        self.await_replies(replies);
    }

    fn send_only(&mut self, bytes: &[u8], text: String) {
        // Drawn whether or not it is needed: the choices must not depend on whether the server has hung up.
        let (database, resp3) = (*self.dice.pick(&["0", "1", "1", "2", "3"]), self.dice.once_in(3));
        if self.connection.is_none() {
            self.connect(database, resp3);
        }
        let port = self.connection.as_ref().map_or(0, Connection::local_port);
        self.world.note(self.number, format!("(port {port}) {text}"));
        if let Some(connection) = &mut self.connection
            && connection.send(bytes).is_err()
        {
            self.connection = None;
        }
    }

    fn connect(&mut self, database: &str, resp3: bool) {
        self.counter = Counter::default();
        self.connection = Connection::open(self.world.port).ok();
        let mut first = Vec::new();
        if resp3 {
            encode(&words(&["HELLO", "3"]), &mut first);
        }
        encode(&words(&["SELECT", database]), &mut first);
        if self.connection.as_mut().is_some_and(|connection| connection.send(&first).is_err()) {
            self.connection = None;
        }
        self.await_replies(1 + usize::from(resp3));
    }

    /// Reads until this many more replies have come, nothing comes for a while, or the connection is over.
    fn await_replies(&mut self, replies: usize) {
        let wanted = self.counter.replies + replies;
        let deadline = Instant::now() + PATIENCE;
        let mut chunk = vec![0; 64 * 1024];
        while self.counter.replies < wanted {
            let Some(connection) = &mut self.connection else { return };
            match connection.receive(&mut chunk, deadline.saturating_duration_since(Instant::now())) {
                Ok(0) if Instant::now() >= deadline => return,
                Ok(len) => {
                    if let Err(why) = self.counter.feed(&chunk[..len]) {
                        let seen = chunk[..len.min(300)].escape_ascii().to_string();
                        self.world.fail(format!("client {} read what is no RESP: {why}; in: \"{seen}\"", self.number));
                        self.connection = None;
                    }
                }
                Err(_) => self.connection = None,
            }
        }
    }
}
