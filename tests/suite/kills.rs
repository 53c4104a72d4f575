//! kill -9 and loss of power at random moments, again and again on one directory.
//!
//! Each [`Writer`] owns its keys, has one request under way, and records its requests and the acknowledged ones. So
//! after a kill it knows which data must be there, and which few items may or may not be. When the server is back, each
//! writer checks that nothing acknowledged is missing, that nothing is there that was not sent, and that each unit's
//! writes are all there or all missing. From then on data that was seen counts as known, since a reader has seen it.
//!
//! A loss of power also takes everything that was not synced ([`PowerLoss`]), so all acknowledged writes must have been
//! synced.
//!
//! `SUITE_ROUNDS` sets the number of kills. `SUITE_SEED` sets how much is acknowledged before each and the work of the
//! writers. The moment of a kill cannot be reproduced.

mod coordination;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tidegate::base::rng::Rng;
use tidegate::script::bundled::Bundled;

use crate::differential::search::env_number;
use crate::harness::{
    Environment, Program, REPLY_DEADLINE, Raw, Reply, Server, Value, encode, free_port, launch_command,
};
use crate::power_loss::PowerLoss;

/// Kills in the default run.
const KILLS: u64 = 12;
/// Losses of power in the default run.
const POWER_LOSSES: u64 = 6;
/// Kills after which a new directory is begun: the data grows, and all of it is compared after each kill.
const ROUNDS_PER_DIRECTORY: u64 = 20;
/// Clients at work.
const WRITERS: usize = 32;
/// The most steps that all writers together have acknowledged between two kills.
const MAX_STEPS: u64 = 1500;

/// One client's work, and its record of that work.
trait Writer: Send {
    /// One request, or a few. `None`: the server is gone, and the last request may or may not have run.
    fn step(&mut self, link: &mut Link) -> Option<()>;

    /// Compares the data with the record, and from then on takes it as known.
    fn check(&mut self, link: &mut Link);
}

/// A connection whose server may be killed at any time.
struct Link(Raw);

impl Link {
    /// Sends commands at once and reads their replies, none of which may be an error. `None`: the server is gone.
    fn pipeline(&mut self, commands: &[&[&str]], mut each: impl FnMut(Value)) -> Option<()> {
        self.0.send(&commands.iter().flat_map(|command| encode(command)).collect::<Vec<u8>>());
        for command in commands {
            match self.0.try_reply(REPLY_DEADLINE) {
                Ok(reply) => {
                    assert!(!matches!(reply.value, Value::Error(_)), "{command:?}: {:?}", reply.value);
                    each(reply.value);
                }
                Err(why) if why.starts_with("hung up") => return None,
                Err(why) => panic!("{command:?}: {why}"),
            }
        }
        Some(())
    }

    fn ask(&mut self, command: &[&str]) -> Option<Value> {
        let mut answer = Value::Null;
        self.pipeline(&[command], |value| answer = value).map(|()| answer)
    }

    /// Asks a server that is not being killed.
    fn see(&mut self, command: &[&str]) -> Value {
        self.ask(command).unwrap_or_else(|| panic!("the server ended by itself at {command:?}"))
    }

    fn number(&mut self, command: &[&str]) -> i64 {
        number(&self.see(command))
    }

    fn list(&mut self, command: &[&str]) -> Vec<Value> {
        items(self.see(command))
    }
}

/// The number in an integer or a string; 0 for null.
fn number(value: &Value) -> i64 {
    match value {
        Value::Integer(n) => *n,
        Value::Null => 0,
        other => text(other).parse().unwrap_or_else(|_| panic!("not a number: {other:?}")),
    }
}

fn text(value: &Value) -> String {
    String::from_utf8(value.bytes().unwrap_or_else(|| panic!("not a string: {value:?}")).to_vec()).expect("plain text")
}

fn items(value: Value) -> Vec<Value> {
    match value {
        Value::Array(items) => items,
        other => panic!("not a list: {other:?}"),
    }
}

/// A number that grows with each request: the last acknowledged one, and the last one sent.
#[derive(Clone, Copy, Default)]
struct Progress {
    known: i64,
    sent: i64,
}

impl Progress {
    fn send(&mut self) -> i64 {
        self.sent += 1;
        self.sent
    }

    fn acknowledge(&mut self) {
        self.known = self.sent;
    }

    fn check(&mut self, found: i64, what: &str) {
        let Progress { known, sent } = *self;
        assert!((known..=sent).contains(&found), "{what}: {found}, acknowledged {known}, sent {sent}");
        *self = Progress { known: found, sent: found };
    }
}

/// INCR, in pipelines of different lengths.
struct Counter(Progress, Rng);

impl Writer for Counter {
    fn step(&mut self, link: &mut Link) -> Option<()> {
        let Counter(progress, rng) = self;
        let many = 1 + rng.below(8);
        progress.sent += many as i64;
        let commands = vec![["INCR", "counter"].as_slice(); many as usize];
        link.pipeline(&commands, |value| {
            progress.known += 1;
            assert_eq!(value, Value::Integer(progress.known));
        })
    }

    fn check(&mut self, link: &mut Link) {
        self.0.check(link.number(&["GET", "counter"]), "counter");
    }
}

/// Writes long values at first, so that the journal moves on to further segments, while running and after a kill.
struct Long(Progress);

/// The number of long values: together larger than the segment that a start begins with.
const LONG_VALUES: i64 = 120;

fn long_value(n: i64) -> String {
    format!("{n:0width$}", width = if n <= LONG_VALUES { 20_000 } else { 20 })
}

impl Writer for Long {
    fn step(&mut self, link: &mut Link) -> Option<()> {
        link.ask(&["SET", "long", &long_value(self.0.send())])?;
        self.0.acknowledge();
        Some(())
    }

    fn check(&mut self, link: &mut Link) {
        let value = link.see(&["GET", "long"]);
        self.0.check(number(&value), "long");
        assert!(value == Value::Null || value == Value::bulk(&long_value(self.0.known)));
    }
}

/// How a pair of keys is written.
#[derive(Clone, Copy, Debug)]
enum Way {
    Exec,
    Script,
    Function,
}

/// Writes one number to two keys in one unit.
struct Pair(Way, Progress);

const BOTH: &str = "redis.call('SET', KEYS[1], ARGV[1]) redis.call('SET', KEYS[2], ARGV[1])";

impl Writer for Pair {
    fn step(&mut self, link: &mut Link) -> Option<()> {
        let Pair(way, progress) = self;
        let (a, b) = (format!("{way:?}:a"), format!("{way:?}:b"));
        if progress.known == 0 {
            // Loaded at the first step and never again: it must last.
            let library = format!("#!lua name=pairs\nredis.register_function('both', function(KEYS, ARGV) {BOTH} end)");
            match way {
                Way::Exec => Some(Value::Null),
                Way::Script => link.ask(&["SCRIPT", "LOAD", BOTH]),
                Way::Function => link.ask(&["FUNCTION", "LOAD", "REPLACE", &library]),
            }?;
        }
        let n = progress.send().to_string();
        match way {
            Way::Exec => link.pipeline(&[&["MULTI"], &["SET", &a, &n], &["SET", &b, &n], &["EXEC"]], drop),
            Way::Script => link.ask(&["EVALSHA", redis::Script::new(BOTH).get_hash(), "2", &a, &b, &n]).map(drop),
            Way::Function => link.ask(&["FCALL", "both", "2", &a, &b, &n]).map(drop),
        }?;
        progress.acknowledge();
        Some(())
    }

    fn check(&mut self, link: &mut Link) {
        let Pair(way, progress) = self;
        let [a, b] = ["a", "b"].map(|key| link.number(&["GET", &format!("{way:?}:{key}")]));
        assert_eq!(a, b, "{way:?} happens completely or not at all");
        progress.check(a, "pair");
    }
}

/// Replaces a library by its next version, and calls it.
struct Library(Progress);

impl Writer for Library {
    fn step(&mut self, link: &mut Link) -> Option<()> {
        let version = self.0.send();
        let code = format!("#!lua name=version\nredis.register_function('version', function() return {version} end)");
        link.ask(&["FUNCTION", "LOAD", "REPLACE", &code])?;
        self.0.acknowledge();
        assert_eq!(link.ask(&["FCALL", "version", "0"])?, Value::Integer(version));
        Some(())
    }

    fn check(&mut self, link: &mut Link) {
        if self.0.sent > 0 {
            let is_there = !link.list(&["FUNCTION", "LIST", "LIBRARYNAME", "version"]).is_empty();
            let found = if is_there { link.number(&["FCALL", "version", "0"]) } else { 0 };
            self.0.check(found, "version of a library");
        }
    }
}

/// Keys that expire: one at an absolute time, and one after a duration. The deadline of a duration is known once it has
/// been read back.
#[derive(Default)]
struct Expiring {
    given: Progress,
    relative: Progress,
    deadline: Option<i64>,
}

/// Deadlines that no run of this test reaches.
const FAR_MS: i64 = 4_000_000_000_000;

impl Writer for Expiring {
    fn step(&mut self, link: &mut Link) -> Option<()> {
        let n = self.given.send();
        link.ask(&["SET", "given", &n.to_string(), "PXAT", &(FAR_MS + n).to_string()])?;
        self.given.acknowledge();
        let n = self.relative.send();
        self.deadline = None;
        link.ask(&["SET", "relative", &n.to_string(), "PX", "3600000"])?;
        self.relative.acknowledge();
        self.deadline = Some(number(&link.ask(&["PEXPIRETIME", "relative"])?));
        Some(())
    }

    fn check(&mut self, link: &mut Link) {
        let before = self.relative;
        self.given.check(link.number(&["GET", "given"]), "given");
        self.relative.check(link.number(&["GET", "relative"]), "relative");
        if self.given.known > 0 {
            assert_eq!(link.number(&["PEXPIRETIME", "given"]), FAR_MS + self.given.known);
        }
        let deadline = link.number(&["PEXPIRETIME", "relative"]);
        if self.relative.known == before.known {
            assert!(self.deadline.is_none_or(|known| known == deadline), "{:?} became {deadline}", self.deadline);
        }
        self.deadline = (deadline > 0).then_some(deadline);
    }
}

/// Acquires and releases places of a gate, by the bundled scripts.
struct Gate {
    taken: i64,
    /// The change of the request under way.
    under_way: i64,
    rng: Rng,
}

impl Writer for Gate {
    fn step(&mut self, link: &mut Link) -> Option<()> {
        let (name, change) =
            if self.taken == 0 || self.rng.below(3) > 0 { ("gate_acquire", 1) } else { ("gate_release", -1) };
        let sha1 = String::from_utf8(Bundled::named(name).expect("it is bundled").sha1().to_vec()).expect("hex");
        self.under_way = change;
        let places = link.ask(&["EVALSHA", &sha1, "1", "gate", "1000000"])?;
        self.taken += std::mem::take(&mut self.under_way);
        assert_eq!(places, Value::Integer(self.taken), "{name}");
        Some(())
    }

    fn check(&mut self, link: &mut Link) {
        let found = link.number(&["LLEN", "gate"]);
        let (taken, under_way) = (self.taken, self.under_way);
        assert!(found == taken || found == taken + under_way, "{found} places, of {taken} and maybe {under_way}");
        *self = Gate { taken: found, under_way: 0, rng: self.rng.clone() };
    }
}

/// Buyers of a flash sale, by a bundled script; several clients share one stock.
struct Sale {
    client: u32,
    buyers: u32,
    all: Arc<Mutex<Buyers>>,
}

#[derive(Default)]
struct Buyers {
    sent: BTreeSet<String>,
    sold: BTreeSet<String>,
}

const STOCK: i64 = 1_000_000;

impl Writer for Sale {
    fn step(&mut self, link: &mut Link) -> Option<()> {
        link.ask(&["SET", "{sale}:stock", &STOCK.to_string(), "NX"])?;
        self.buyers += 1;
        let buyer = format!("{}-{}", self.client, self.buyers);
        self.all.lock().unwrap().sent.insert(buyer.clone());
        let keys = ["{sale}:stock", "{sale}:buyers", "{sale}:orders"];
        let [stock, buyers, orders] = keys;
        let sold = link.ask(&["FCALL", "seckill_v2", "3", stock, buyers, orders, "9", &buyer, &buyer])?;
        assert_eq!(sold, Value::Integer(0), "{buyer}");
        self.all.lock().unwrap().sold.insert(buyer);
        Some(())
    }

    fn check(&mut self, link: &mut Link) {
        let mut all = self.all.lock().unwrap();
        let found: BTreeSet<String> = link.list(&["SMEMBERS", "{sale}:buyers"]).iter().map(text).collect();
        assert!(all.sold.is_subset(&found), "missing: {:?}", all.sold.difference(&found));
        assert!(found.is_subset(&all.sent), "invented: {:?}", found.difference(&all.sent));
        let orders = link.number(&["XLEN", "{sale}:orders"]);
        assert_eq!(orders, found.len() as i64, "one order per buyer");
        if orders > 0 {
            assert_eq!(link.number(&["GET", "{sale}:stock"]) + orders, STOCK, "a unit per order");
        }
        *all = Buyers { sent: found.clone(), sold: found };
    }
}

/// Counts orders by requests that run once, and repeats each request whose result is unknown.
struct Requests(Progress);

impl Requests {
    fn send(n: i64) -> [String; 7] {
        ["ONCE", &format!("request:{n}"), "PXAT", &FAR_MS.to_string(), "EVAL", COUNT, "0"].map(str::to_owned)
    }

    fn ask(&self, link: &mut Link) -> Option<()> {
        let request = Requests::send(self.0.sent);
        let order = link.ask(&request.each_ref().map(String::as_str))?;
        assert_eq!(order, Value::Integer(self.0.sent), "every try gets the same order number");
        Some(())
    }
}

const COUNT: &str =
    "redis.call('RPUSH', 'ordered', redis.call('INCR', 'orders')) return tonumber(redis.call('GET', 'orders'))";

impl Writer for Requests {
    fn step(&mut self, link: &mut Link) -> Option<()> {
        self.0.send();
        self.ask(link)?;
        self.0.acknowledge();
        // Once more, although the answer has come.
        self.ask(link)
    }

    fn check(&mut self, link: &mut Link) {
        let orders = link.number(&["GET", "orders"]);
        let is_kept = link.number(&["EXISTS", &format!("request:{}", self.0.sent)]) == 1;
        self.0.clone().check(orders, "orders");
        assert_eq!(
            is_kept,
            self.0.sent > 0 && orders == self.0.sent,
            "an order and its reply are kept both or neither"
        );
        if self.0.sent > 0 {
            self.ask(link).expect("the server is not being killed now");
            self.0.acknowledge();
        }
        let ordered: Vec<i64> = link.list(&["LRANGE", "ordered", "0", "-1"]).iter().map(number).collect();
        assert!(ordered.iter().copied().eq(1..=self.0.sent), "{ordered:?}");
    }
}

/// Appends to a stream, and keeps the ids from the replies.
#[derive(Default)]
struct Appender {
    ids: Vec<String>,
    sent: i64,
}

impl Writer for Appender {
    fn step(&mut self, link: &mut Link) -> Option<()> {
        self.sent += 1;
        let id = link.ask(&["XADD", "stream", "*", "n", &self.sent.to_string()])?;
        self.ids.push(text(&id));
        Some(())
    }

    fn check(&mut self, link: &mut Link) {
        let entries: Vec<(String, i64)> = link
            .list(&["XRANGE", "stream", "-", "+"])
            .into_iter()
            .map(|entry| match &items(entry)[..] {
                [id, Value::Array(fields)] => (text(id), number(&fields[1])),
                other => panic!("no entry: {other:?}"),
            })
            .collect();
        assert!(entries.len() as i64 <= self.sent, "{} entries of {}", entries.len(), self.sent);
        assert!(entries.iter().map(|(_, n)| *n).eq(1..=entries.len() as i64), "{entries:?}");
        let ids: Vec<String> = entries.into_iter().map(|(id, _)| id).collect();
        assert!(ids.starts_with(&self.ids), "acknowledged {:?}, found {ids:?}", self.ids);
        *self = Appender { sent: ids.len() as i64, ids };
    }
}

/// A queue of numbers: one client pushes, others wait and pop. A popped number is gone whether or not the reply came,
/// so each kill loses at most one number per popping client.
struct Queue {
    role: Role,
    all: Arc<Mutex<Jobs>>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Role {
    Push,
    Take,
}

#[derive(Default)]
struct Jobs {
    pushed: Progress,
    taken: BTreeSet<i64>,
}

/// Clients that wait for jobs.
const TAKERS: usize = 2;

impl Writer for Queue {
    fn step(&mut self, link: &mut Link) -> Option<()> {
        match self.role {
            Role::Push => {
                let n = self.all.lock().unwrap().pushed.send();
                link.ask(&["LPUSH", "jobs", &n.to_string()])?;
                self.all.lock().unwrap().pushed.acknowledge();
            }
            Role::Take => {
                let job = number(&items(link.ask(&["BLPOP", "jobs", "0"])?)[1]);
                assert!(self.all.lock().unwrap().taken.insert(job), "{job} was taken twice");
            }
        }
        Some(())
    }

    fn check(&mut self, link: &mut Link) {
        if self.role == Role::Take {
            return;
        }
        let mut all = self.all.lock().unwrap();
        let left = link.list(&["LRANGE", "jobs", "0", "-1"]);
        let left_once: BTreeSet<i64> = left.iter().map(number).collect();
        assert_eq!(left.len(), left_once.len(), "a job is there twice");
        assert!(left_once.is_disjoint(&all.taken), "taken but still there: {:?}", left_once.intersection(&all.taken));
        let Progress { known, sent } = all.pushed;
        assert!(left_once.iter().chain(&all.taken).all(|job| (1..=sent).contains(job)), "a job that was never pushed");
        let is_gone = |job: &i64| !left_once.contains(job) && !all.taken.contains(job);
        let gone: Vec<i64> = (1..=known).filter(is_gone).collect();
        assert!(gone.len() <= TAKERS, "lost: {gone:?}");
        all.taken = (1..=sent).filter(|job| !left_once.contains(job)).collect();
        all.pushed.acknowledge();
    }
}

/// Changes the sync policy, and asks for syncs.
struct Syncs(Rng);

impl Writer for Syncs {
    fn step(&mut self, link: &mut Link) -> Option<()> {
        let policy = ["always", "everysec", "no"][self.0.below(3) as usize];
        link.ask(&["CONFIG", "SET", "appendfsync", policy])?;
        for _ in 0..20 {
            let logged = link.ask(&["WAITAOF", "1", "0", "0"])?;
            assert_eq!(logged, Value::Array(vec![Value::Integer(1), Value::Integer(0)]));
        }
        Some(())
    }

    fn check(&mut self, _: &mut Link) {}
}

/// Reads other clients' writes and records them: data that was seen must survive the server's end, even if its writer
/// got no reply.
#[derive(Default)]
struct Reader {
    counter: i64,
    pair: i64,
    entries: i64,
    buyers: BTreeSet<String>,
}

impl Writer for Reader {
    fn step(&mut self, link: &mut Link) -> Option<()> {
        let mut answers = Vec::new();
        let commands: [&[&str]; 5] = [
            &["GET", "counter"],
            &["XLEN", "stream"],
            &["SMEMBERS", "{sale}:buyers"],
            &["MGET", "Script:a", "Script:b"],
            &["EVAL", "return redis.call('GET', 'counter')", "0"],
        ];
        link.pipeline(&commands, |value| answers.push(value))?;
        let [counter, entries, buyers, pair, again] = answers.try_into().expect("five answers");
        self.counter = number(&again);
        assert!(self.counter >= number(&counter), "time goes on");
        self.entries = number(&entries);
        self.buyers.extend(items(buyers).iter().map(text));
        let pair: Vec<i64> = items(pair).iter().map(number).collect();
        assert_eq!(pair[0], pair[1], "keys written together are seen together");
        self.pair = pair[0];
        Some(())
    }

    fn check(&mut self, link: &mut Link) {
        for (seen, command) in
            [(self.counter, ["GET", "counter"]), (self.entries, ["XLEN", "stream"]), (self.pair, ["GET", "Script:b"])]
        {
            let found = link.number(&command);
            assert!(found >= seen, "{command:?}: {found}, and {seen} was seen");
        }
        let found: BTreeSet<String> = link.list(&["SMEMBERS", "{sale}:buyers"]).iter().map(text).collect();
        assert!(self.buyers.is_subset(&found), "seen but gone: {:?}", self.buyers.difference(&found));
        *self = Reader::default();
    }
}

/// Sends messages to a group with a policy, and never acknowledges those with an odd number: these become dead letters.
#[derive(Default)]
struct Poison {
    sent: Progress,
    has_policy: bool,
}

const POLICY: &str = "redis.pcall('XGROUP', 'CREATE', KEYS[1], 'g', '0', 'MKSTREAM') \
    return redis.call('XGROUP', 'SETPOLICY', KEYS[1], 'g', 'IDLE', 1, 'MAXDELIVERIES', 2, 'DLQ', KEYS[2])";

/// The whole stream, the dead letters, the pending entries, and the group's last delivered id, at one moment.
const LOOK: &str = "local group = redis.call('XINFO', 'GROUPS', KEYS[1])[1] \
    return {redis.call('XRANGE', KEYS[1], '-', '+'), redis.call('XRANGE', KEYS[2], '-', '+'), \
        redis.call('XPENDING', KEYS[1], 'g', '-', '+', 100000), {group and group[8]}}";

/// Messages of one directory: all are compared after each kill.
const POISON_MESSAGES: i64 = 1_000;

impl Poison {
    /// Ids and numbers of the entries of a stream.
    fn numbers(entries: &Value) -> Vec<(String, i64)> {
        let entry = |entry: Value| {
            let [id, pairs] = <[Value; 2]>::try_from(items(entry)).expect("an id and pairs");
            (text(&id), number(&items(pairs)[1]))
        };
        items(entries.clone()).into_iter().map(entry).collect()
    }
}

impl Writer for Poison {
    fn step(&mut self, link: &mut Link) -> Option<()> {
        if !self.has_policy {
            link.ask(&["EVAL", POLICY, "2", "poison", "poison:dead"])?;
            self.has_policy = true;
        }
        if self.sent.sent < POISON_MESSAGES {
            link.ask(&["XADD", "poison", "*", "n", &self.sent.send().to_string()])?;
            self.sent.acknowledge();
        }
        let read = link.ask(&["XREADGROUP", "GROUP", "g", "c", "COUNT", "3", "STREAMS", "poison", ">"])?;
        if read != Value::Null {
            let entries = items(items(read).remove(0)).remove(1);
            for (id, _) in Poison::numbers(&entries).into_iter().filter(|(_, number)| number % 2 == 0) {
                link.ask(&["XACK", "poison", "g", &id])?;
            }
        }
        Some(())
    }

    fn check(&mut self, link: &mut Link) {
        self.has_policy = false;
        if link.number(&["EXISTS", "poison"]) == 0 {
            return self.sent.check(0, "poison");
        }
        let [all, dead, pending, last] =
            <[Value; 4]>::try_from(link.list(&["EVAL", LOOK, "2", "poison", "poison:dead"])).expect("four answers");
        let all = Poison::numbers(&all);
        assert!(all.iter().map(|(_, number)| *number).eq(1..=all.len() as i64), "each message is there once");
        self.sent.check(all.len() as i64, "poison");
        let dead: Vec<i64> = Poison::numbers(&dead).into_iter().map(|(_, number)| number).collect();
        let pending: BTreeSet<String> = items(pending).into_iter().map(|row| text(&items(row)[0])).collect();
        let delivered = items(last).first().map(text).and_then(|last| all.iter().position(|(id, _)| *id == last));
        for (at, (id, number)) in all.iter().enumerate() {
            let places = dead.iter().filter(|dead| *dead == number).count() + usize::from(pending.contains(id));
            let is_delivered = delivered.is_some_and(|delivered| at <= delivered);
            let is_poison = number % 2 == 1;
            let wanted = if is_delivered && is_poison { 1..=1 } else { 0..=usize::from(is_delivered) };
            assert!(wanted.contains(&places), "{number}: in {places} places");
        }
    }
}

/// Sends messages that become entries a little later, and cancels some of them.
#[derive(Default)]
struct Later {
    sent: Progress,
    /// Messages whose cancellation was acknowledged.
    cancelled: BTreeSet<i64>,
    /// A message whose cancellation was under way when the server was killed.
    in_doubt: Option<i64>,
}

/// All messages at one moment: as entries, and those still waiting.
const LOOK_LATER: &str = "return {redis.call('XRANGE', KEYS[1], '-', '+'), \
    redis.call('XDELAY.LIST', KEYS[1], 'COUNT', 10000)[2]}";

/// Messages of one directory: all are compared after each kill.
const LATER_MESSAGES: i64 = 1_000;

impl Writer for Later {
    fn step(&mut self, link: &mut Link) -> Option<()> {
        if self.sent.sent >= LATER_MESSAGES {
            link.ask(&["XLEN", "later"])?;
            return Some(());
        }
        let number = self.sent.send();
        let delay_ms = if number % 10 == 0 { 3_600_000 } else { number % 7 };
        let id = text(&link.ask(&["XADD", "later", "DELAY", &delay_ms.to_string(), "*", "n", &number.to_string()])?);
        self.sent.acknowledge();
        if number % 20 == 0 {
            self.in_doubt = Some(number);
            assert_eq!(link.ask(&["XDELAY.CANCEL", "later", &id])?, Value::Integer(1));
            self.cancelled.extend(self.in_doubt.take());
        }
        Some(())
    }

    fn check(&mut self, link: &mut Link) {
        let [entries, waiting] =
            <[Value; 2]>::try_from(link.list(&["EVAL", LOOK_LATER, "1", "later"])).expect("two answers");
        let waiting = items(waiting).into_iter().map(|message| number(&items(items(message).remove(5))[1]));
        let mut found: Vec<i64> =
            Poison::numbers(&entries).into_iter().map(|(_, number)| number).chain(waiting).collect();
        found.sort_unstable();
        let in_doubt = self.in_doubt.take().filter(|number| !found.contains(number));
        self.cancelled.extend(in_doubt);
        assert!(found.iter().all(|number| !self.cancelled.contains(number)), "cancelled messages are gone");
        let all = found.len() as i64 + self.cancelled.len() as i64;
        let known: BTreeSet<i64> = found.iter().chain(&self.cancelled).copied().collect();
        assert!(known.into_iter().eq(1..=all), "each message is there once: {found:?}");
        self.sent.check(all, "later");
    }
}

/// Requests snapshots all the time, in all ways.
struct Snapshots(Rng);

impl Writer for Snapshots {
    fn step(&mut self, link: &mut Link) -> Option<()> {
        let way = ["SAVE", "BGSAVE", "BGREWRITEAOF"][self.0.below(3) as usize];
        link.0.send_command(&[way]);
        match link.0.try_reply(REPLY_DEADLINE) {
            Ok(Reply { value: Value::Error(why), .. }) => {
                // Another one is under way.
                let why = String::from_utf8_lossy(&why).into_owned();
                assert!(why.contains("already in progress") || why.contains("Another child process"), "{way}: {why}");
            }
            Ok(_) => {}
            Err(why) if why.starts_with("hung up") => return None,
            Err(why) => panic!("{way}: {why}"),
        }
        let made = text(&link.ask(&["INFO", "persistence"])?);
        assert!(!made.contains("status:err"), "{made}");
        Some(())
    }

    fn check(&mut self, _: &mut Link) {}
}

fn writers(end: End, seed: u64) -> Vec<Box<dyn Writer>> {
    let (buyers, jobs) = (Arc::default(), Arc::default());
    let sale = |client| Sale { client, buyers: 0, all: Arc::clone(&buyers) };
    let queue = |role| Queue { role, all: Arc::clone(&jobs) };
    let mut all: Vec<Box<dyn Writer>> = vec![
        Box::new(Counter(Progress::default(), Rng::seeded(seed))),
        Box::new(Long(Progress::default())),
        Box::new(Pair(Way::Exec, Progress::default())),
        Box::new(Pair(Way::Script, Progress::default())),
        Box::new(Pair(Way::Function, Progress::default())),
        Box::new(Library(Progress::default())),
        Box::<Expiring>::default(),
        Box::new(Gate { taken: 0, under_way: 0, rng: Rng::seeded(seed + 1) }),
        Box::<Appender>::default(),
        Box::new(Requests(Progress::default())),
        Box::new(queue(Role::Push)),
        Box::<Poison>::default(),
        Box::<Later>::default(),
        Box::<Reader>::default(),
        Box::<Reader>::default(),
        Box::new(Snapshots(Rng::seeded(seed + 3))),
    ];
    if end == End::Kill {
        // A loss of power takes writes that were not synced.
        all.push(Box::new(Syncs(Rng::seeded(seed + 2))));
    }
    all.extend((0..TAKERS).map(|_| Box::new(queue(Role::Take)) as Box<dyn Writer>));
    // The remaining clients buy, all from one stock.
    all.extend((all.len()..WRITERS).map(|client| Box::new(sale(client as u32)) as Box<dyn Writer>));
    all
}

/// Lets all writers work until this many steps are acknowledged, and kills the server.
fn work_and_kill(server: Server, writers: &mut [Box<dyn Writer>], steps: u64) {
    let done = AtomicU64::new(0);
    std::thread::scope(|scope| {
        let workers: Vec<_> = writers
            .iter_mut()
            .map(|writer| {
                let (mut link, done) = (Link(server.raw()), &done);
                scope.spawn(move || {
                    while writer.step(&mut link).is_some() {
                        done.fetch_add(1, Ordering::Relaxed);
                    }
                })
            })
            .collect();
        let begun = Instant::now();
        while done.load(Ordering::Relaxed) < steps && workers.iter().all(|worker| !worker.is_finished()) {
            assert!(begun.elapsed() < Duration::from_secs(120), "{} of {steps} steps", done.load(Ordering::Relaxed));
            std::thread::sleep(Duration::from_micros(100));
        }
        if workers.iter().any(|worker| worker.is_finished()) {
            eprintln!("a writer has failed; the server's log:\n{}", server.log());
        }
        drop(server);
    });
}

/// Begins to start a server, and kills it during the start.
fn kill_at_start(dir: &Path, environment: &Environment, after: Duration) {
    let command_line = launch_command(Program::Tidegate);
    let mut child = Command::new(&command_line[0])
        .args(&command_line[1..])
        .args(["--appendonly", "yes", "--port", &free_port().to_string(), "--bind", "127.0.0.1", "--dir"])
        .arg(dir)
        .envs(environment.iter().map(|(name, value)| (name, value)))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("a server that has started before");
    std::thread::sleep(after);
    let ended = child.try_wait().expect("the state of our own child");
    assert!(ended.is_none(), "the server ended by itself: {ended:?}");
    child.kill().expect("our own child");
    child.wait().expect("our own child");
}

/// How servers end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Kill,
    PowerLoss,
}

/// One directory, the writers on its servers, and the machine under them.
struct Life {
    dir: tempfile::TempDir,
    writers: Vec<Box<dyn Writer>>,
    machine: Option<PowerLoss>,
}

impl Life {
    fn new(end: End, seed: u64, writers: Vec<Box<dyn Writer>>) -> Life {
        let dir = tempfile::tempdir().expect("a folder");
        let machine = (end == End::PowerLoss).then(|| PowerLoss::new(dir.path(), seed));
        Life { dir, writers, machine }
    }

    fn environment(&mut self) -> Environment {
        self.machine.as_mut().map(PowerLoss::environment).unwrap_or_default()
    }

    fn start(&mut self) -> Server {
        let environment = self.environment();
        let path = self.dir.path().to_str().expect("a path of plain text");
        Server::start_in(&environment, Program::Tidegate, &["--dir", path, "--appendonly", "yes"])
    }

    /// Called when the server was killed. Cuts the power as well if this life ends that way.
    fn ended(&mut self) {
        self.machine.iter_mut().for_each(PowerLoss::strike);
    }
}

/// Ends servers `rounds` times while these writers work, and now and then during a start.
fn outlive(end: End, rounds: u64, writers: fn(End, u64) -> Vec<Box<dyn Writer>>) {
    let first = env_number("SUITE_SEED").unwrap_or(1);
    let rounds = env_number("SUITE_ROUNDS").unwrap_or(rounds);
    let mut ways: BTreeMap<&str, u64> = BTreeMap::new();
    let mut life: Option<Life> = None;
    for round in 0..rounds {
        let seed = first + round;
        let mut rng = Rng::seeded(seed);
        if round % ROUNDS_PER_DIRECTORY == 0 {
            life = None;
        }
        let life = life.get_or_insert_with(|| Life::new(end, seed, writers(end, seed)));
        work_and_kill(life.start(), &mut life.writers, 1 + rng.below(MAX_STEPS));
        life.ended();
        *ways.entry("while writing").or_default() += 1;
        while rng.below(3) == 0 {
            let environment = life.environment();
            kill_at_start(life.dir.path(), &environment, Duration::from_micros(rng.below(60_000)));
            life.ended();
            *ways.entry("at start").or_default() += 1;
        }
        let server = life.start();
        let mut link = Link(server.raw());
        for writer in &mut life.writers {
            writer.check(&mut link);
        }
        drop(server);
        life.ended();
        if (round + 1) % 50 == 0 || round + 1 == rounds {
            let undone = life.machine.as_ref().map_or(0, PowerLoss::undone);
            eprintln!("{end:?}, seeds from {first}: {ways:?}; names undone on this directory: {undone}");
        }
    }
}

#[test]
fn acknowledged_data_survives_kill_9() {
    outlive(End::Kill, KILLS, writers);
}

#[test]
fn acknowledged_data_survives_a_loss_of_power() {
    outlive(End::PowerLoss, POWER_LOSSES, writers);
}
