//! The requests of clients in the simulation, and the data that the replies show.

use crate::base::rng::Rng;

/// One request: a command, or a pipeline whose last command completes it.
pub(in super::super) struct Request {
    pub(in super::super) commands: Vec<Vec<String>>,
    pub(in super::super) shows: Shows,
    pub(in super::super) what: What,
}

/// The data that a successful reply shows, besides the request's own changes.
#[derive(Clone, Copy, Debug)]
pub(in super::super) enum Shows {
    Nothing,
    Key(&'static str),
    Library,
    /// All keys, as far as the simulation tracks them.
    Everything,
}

/// The sort of a request.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(in super::super) enum What {
    Plain,
    Transaction {
        /// Whether the transaction watches a key.
        watches: bool,
    },
    Script,
    FailingScript,
    Function,
    /// A script that changes data and publishes this number.
    Publish(u64),
    /// A request that may wait for an element of this list.
    Block(&'static str),
    WaitAof,
    SyncPolicy,
    /// A request that concerns snapshots and the journal as a whole.
    Save,
    /// All data is saved, and read again.
    Reload,
    /// Entries of a stream are delivered to a group.
    Deliver,
    /// A delivered entry is acknowledged.
    Acknowledge,
    /// A lease or units are requested.
    Grant,
    /// A message is to become an entry later.
    Delay,
    /// No request of a client, but an event of a key.
    Event,
}

const SET_AND_PUSH: &str =
    "redis.call('SET', KEYS[1], ARGV[1]) redis.call('RPUSH', KEYS[2], ARGV[1]) return redis.call('GET', KEYS[1])";
const SET_AND_FAIL: &str = "redis.call('SET', KEYS[1], ARGV[1]) error('it fails')";
const SET_AND_PUBLISH: &str = "redis.call('SET', KEYS[1], ARGV[1]) redis.call('PUBLISH', 'news', ARGV[1])";

const ACKNOWLEDGE: &str = "local oldest = redis.call('XPENDING', KEYS[1], 'group', '-', '+', 1)[1] \
                           return oldest and redis.call('XACK', KEYS[1], 'group', oldest[1])";
const SELL: &str = "local held = redis.call('STOCK.RESERVE', KEYS[1], ARGV[1], 'PX', ARGV[2]) \
                    if held[1] == 1 then redis.call('STOCK.COMMIT', KEYS[1], ARGV[1]) end return held[1]";
/// Frees units and grants none, before it fails: a token that it was given would have been shown to no client, and only
/// this server would know of it.
const FREE_AND_FAIL: &str = "redis.call('LOCK.BREAK', KEYS[1]) redis.call('GATE.RELEASE', KEYS[2], ARGV[1]) \
                             redis.call('GATE.LIMIT', KEYS[2], 1) error('it fails')";
const CANCEL: &str = "local last = redis.call('XDELAY.LIST', KEYS[1])[2] \
                      last = last[#last] return last and redis.call('XDELAY.CANCEL', KEYS[1], last[2])";
const READ_GROUP: [&str; 9] = ["XREADGROUP", "GROUP", "group", "consumer", "COUNT", "2", "STREAMS", "stream", ">"];

/// The requests in use, as the number of kinds.
#[derive(Clone, Copy)]
pub(in super::super) enum Kinds {
    WithoutDelays = 104,
    All = 110,
}

/// A random request; each `number` is given once.
pub(in super::super) fn random(rng: &mut Rng, number: u64, kinds: Kinds) -> Request {
    let long = if rng.below(8) == 0 { rng.below(3_000) as usize } else { 0 };
    let value = format!("{number}{}", "x".repeat(long));
    let n = number.to_string();
    let policy = ["always", "everysec", "no"][rng.below(3) as usize];
    let deadline = (1 + rng.below(500)).to_string();
    let (words, shows, what): (&[&str], Shows, What) = match rng.below(kinds as u64) {
        0..5 => (&["SET", "string", &value], Shows::Nothing, What::Plain),
        5..10 => (&["GET", "string"], Shows::Key("string"), What::Plain),
        10..12 => (&["SETNX", "string", &n], Shows::Key("string"), What::Plain),
        12 => (&["DEL", "string"], Shows::Key("string"), What::Plain),
        13..15 => (&["INCR", "counter"], Shows::Key("counter"), What::Plain),
        15..17 => (&["GET", "counter"], Shows::Key("counter"), What::Plain),
        17..20 => (&["RPUSH", "list", &n], Shows::Key("list"), What::Plain),
        20 => (&["LPOP", "list"], Shows::Key("list"), What::Plain),
        21 => (&["LRANGE", "list", "0", "-1"], Shows::Key("list"), What::Plain),
        22..24 => (&["HSET", "hash", &n[n.len() - 1..], &value], Shows::Nothing, What::Plain),
        24 => (&["HGETALL", "hash"], Shows::Key("hash"), What::Plain),
        25 => (&["ZADD", "zset", &n, &n[n.len() - 1..]], Shows::Nothing, What::Plain),
        26 => (&["ZRANGE", "zset", "0", "-1"], Shows::Key("zset"), What::Plain),
        27 | 60..64 => (&["XADD", "stream", "MAXLEN", "5", "*", "n", &n], Shows::Nothing, What::Plain),
        28 => (&["XLEN", "stream"], Shows::Key("stream"), What::Plain),
        29..31 => (&["SET", "expires", &n, "PX", &deadline], Shows::Nothing, What::Plain),
        31 => (&["GET", "expires"], Shows::Nothing, What::Plain),
        32 => (&["DBSIZE"], Shows::Everything, What::Plain),
        33 => (&["FLUSHALL"], Shows::Nothing, What::Plain),
        34 => (&["RENAME", "string", "hash"], Shows::Nothing, What::Plain),
        35..38 => (&["EVAL", SET_AND_PUSH, "2", "string", "list", &value], Shows::Key("string"), What::Script),
        38..40 => (&["EVAL", SET_AND_FAIL, "1", "string", &n], Shows::Nothing, What::FailingScript),
        40..43 => (&["EVAL", SET_AND_PUBLISH, "1", "counter", &n], Shows::Nothing, What::Publish(number)),
        43 => (&["BLPOP", "list", "0"], Shows::Key("list"), What::Block("list")),
        44 => (&["BLPOP", "queue", "0.3"], Shows::Key("queue"), What::Block("queue")),
        45 => (&["RPUSH", "queue", &n], Shows::Key("queue"), What::Plain),
        46..48 => (&["WAITAOF", "1", "0", "0"], Shows::Nothing, What::WaitAof),
        48 => (&["CONFIG", "SET", "appendfsync", policy], Shows::Nothing, What::SyncPolicy),
        49 => (&["CONFIG", "SET", "appendonly", "no"], Shows::Nothing, What::Save),
        50..52 => (&["CONFIG", "SET", "appendonly", "yes"], Shows::Nothing, What::Save),
        52 => (&["BGSAVE"], Shows::Nothing, What::Save),
        53 => (&["BGREWRITEAOF"], Shows::Nothing, What::Save),
        54 => (&["SAVE"], Shows::Nothing, What::Save),
        55 => (&["FCALL", "version", "0"], Shows::Library, What::Function),
        56 => return load_library(number),
        57..60 => return transaction(&n, rng.below(2) == 0),
        64..66 => (&["XGROUP", "CREATE", "stream", "group", "0", "MKSTREAM"], Shows::Key("stream"), What::Plain),
        66..70 => (&READ_GROUP, Shows::Key("stream"), What::Deliver),
        70..73 => (&["EVAL", ACKNOWLEDGE, "1", "stream"], Shows::Key("stream"), What::Acknowledge),
        73 => (&["XAUTOCLAIM", "stream", "group", "other", "0", "0"], Shows::Key("stream"), What::Plain),
        74 => (&["XPENDING", "stream", "group"], Shows::Key("stream"), What::Plain),
        75 => (&["XGROUP", "DELCONSUMER", "stream", "group", "other"], Shows::Key("stream"), What::Plain),
        76..78 => (&["DEBUG", "RELOAD"], Shows::Nothing, What::Reload),
        78..80 => (&["SET", "counter", &n, "PX", &deadline], Shows::Nothing, What::Plain),
        80..82 => (&["PERSIST", "counter"], Shows::Key("counter"), What::Plain),
        82..84 => (&["PEXPIRE", "counter", &deadline], Shows::Key("counter"), What::Plain),
        84 => (&["INCRBYFLOAT", "counter", "0.5"], Shows::Key("counter"), What::Plain),
        85..101 => return coordinate(rng, &n, &deadline),
        104..107 => (&["XADD", "stream", "DELAY", &deadline, "*", "n", &value], Shows::Nothing, What::Delay),
        107..109 => (&["XDELAY.LIST", "stream"], Shows::Key("stream"), What::Plain),
        109 => (&["EVAL", CANCEL, "1", "stream"], Shows::Key("stream"), What::Plain),
        _ => (&["APPEND", "string", &value], Shows::Nothing, What::Plain),
    };
    Request { commands: vec![words.iter().map(|word| (*word).to_owned()).collect()], shows, what }
}

/// A coordination command. Owners are few, so that they recur.
fn coordinate(rng: &mut Rng, n: &str, deadline: &str) -> Request {
    let at = rng.below(3) as usize;
    let owner = ["ann", "bob", "eve"][at];
    let request = ["request:ann", "request:bob", "request:eve"][at];
    let token = (1 + rng.below(200)).to_string();
    let (words, key, what): (&[&str], &'static str, What) = match rng.below(21) {
        0..3 => (&["LOCK.ACQUIRE", "lock", owner, "PX", deadline], "lock", What::Grant),
        3 => (&["LOCK.RELEASE", "lock", owner], "lock", What::Plain),
        4 => (&["LOCK.ACQUIRE", "lock", owner, "PX", deadline, "BLOCK", "300"], "lock", What::Block("lock")),
        5..7 => (&["GATE.ACQUIRE", "gate", owner, "LIMIT", "2", "PX", deadline, "NOTE", n], "gate", What::Grant),
        7 => (&["GATE.RELEASE", "gate", owner], "gate", What::Plain),
        8 => (&["GATE.LIMIT", "gate", &n[n.len() - 1..]], "gate", What::Plain),
        9 => (&["STOCK.SET", "stock", n, "STREAM", "stock:told"], "stock", What::Plain),
        10 => (&["STOCK.RESERVE", "stock", n, "UNITS", "2", "PX", deadline], "stock", What::Grant),
        11 => (&["STOCK.COMMIT", "stock", n], "stock", What::Plain),
        12 => (&["EVAL", SELL, "1", "stock", n, deadline], "stock", What::Grant),
        13..15 => {
            let rules: &[&str] = &["2", "limit", "FIXED", "5", "400", "gate", "CONCURRENCY", "3", "400"];
            (&[&["LIMIT.TAKE", "ID", request, "RULES"], rules].concat(), "limit", What::Plain)
        }
        // If the request's own key is absent, no other key matters.
        15 => (&["LIMIT.REFUND", request, "limit", "gate"], request, What::Plain),
        20 => (&["LIMIT.SETTLE", request, &n[n.len() - 1..], "limit", "gate"], request, What::Plain),
        16 => (&["ONCE", owner, "PX", deadline, "INCR", "counter"], owner, What::Plain),
        17 => (&["GUARD", "lock", &token, "INCR", "counter"], "lock", What::Plain),
        18 => (&["ID.NEXT", "ids", "COUNT", "3"], "ids", What::Plain),
        _ => (&["EVAL", FREE_AND_FAIL, "2", "lock", "gate", owner], "lock", What::FailingScript),
    };
    Request { commands: vec![words.iter().map(|word| (*word).to_owned()).collect()], shows: Shows::Key(key), what }
}

fn load_library(number: u64) -> Request {
    let code = format!("#!lua name=version\nredis.register_function('version', function() return {number} end)");
    let words = ["FUNCTION", "LOAD", "REPLACE", &code].map(str::to_owned);
    Request { commands: vec![words.to_vec()], shows: Shows::Nothing, what: What::Plain }
}

/// A transaction that writes two keys and reads another as one unit. If it watches the third key, its reply shows
/// whether that was changed.
fn transaction(n: &str, watches: bool) -> Request {
    let commands: [&[&str]; 6] = [
        &["WATCH", "counter"],
        &["MULTI"],
        &["SET", "string", n],
        &["RPUSH", "list", n],
        &["GET", "counter"],
        &["EXEC"],
    ];
    let commands = commands.iter().skip(usize::from(!watches));
    let commands = commands.map(|words| words.iter().map(|word| (*word).to_owned()).collect());
    Request { commands: commands.collect(), shows: Shows::Key("counter"), what: What::Transaction { watches } }
}

/// Encodes a pipeline as a client sends it.
pub(in super::super) fn encode(commands: &[Vec<String>]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for words in commands {
        bytes.extend_from_slice(format!("*{}\r\n", words.len()).as_bytes());
        for word in words {
            bytes.extend_from_slice(format!("${}\r\n{word}\r\n", word.len()).as_bytes());
        }
    }
    bytes
}

/// The length in bytes of the first RESP2 reply, if it is complete.
pub(super) fn reply_len(bytes: &[u8]) -> Option<usize> {
    let line = bytes.windows(2).position(|pair| pair == b"\r\n")? + 2;
    let number = || std::str::from_utf8(&bytes[1..line - 2]).ok()?.parse::<i64>().ok();
    match bytes[0] {
        b'$' => {
            let end = usize::try_from(number()?).map_or(line, |len| line + len + 2);
            (bytes.len() >= end).then_some(end)
        }
        b'*' => (0..number()?).try_fold(line, |end, _| Some(end + reply_len(bytes.get(end..)?)?)),
        _ => Some(line),
    }
}
