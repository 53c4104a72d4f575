//! When two replies to one command count as equal: byte by byte, or by the command's [`Rule`].
//!
//! A rule covers freedoms of the protocol (the order of a set), values that the clock decides, and answers of other
//! versions that `docs/compatibility.md` promises. Errors are always compared word by word.

use std::collections::{BTreeMap, BTreeSet};

use super::script::Args;
use crate::harness::{Program, Reply, Value, sorted};

/// How two replies are compared when their bytes differ.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Rule {
    /// Byte by byte, except for the order inside RESP3 sets and maps, and for the notation of doubles.
    Exact,
    /// The elements of an array in any order.
    Unordered,
    /// Pairs of a flat array in any order (HGETALL in RESP2).
    Pairs,
    /// Integers that are times in milliseconds or seconds: equal within the slack of a slow machine.
    Clock(u64),
    /// Strings that are equal as doubles.
    Doubles,
    /// Doubles that Redis before 7.2 wrote with 17 decimals only. Places with equal distances may come in any order.
    Coordinates,
    /// A scan's cursor and elements: equal elements once both are complete.
    Scan,
    /// XPENDING with a range: entries whose third part is how long they have been idle.
    Pending,
    /// XINFO: fields by name, with clocks, and without fields about a stream's internal layout.
    Info,
    /// FUNCTION LOAD: of several taken names, any may be reported.
    Taken,
    /// FUNCTION LIST: libraries, and the functions and flags of each, in any order.
    Libraries,
    /// Chosen at random, or written in a way of its own: equal in number and kind.
    Shape,
    /// Integers and strings may differ, the kind may not.
    Kind,
    /// One reply, or the one that a later version gives instead.
    Later(&'static [u8], &'static [u8]),
    /// An encoding of a set. Small ones are listpacks since Redis 7.2, which counts the repeated members of one SADD,
    /// too.
    SetEncoding,
    /// An encoding of a hash: Redis 8 also counts a call's repeated fields, and fields that are absent or removed at
    /// once.
    HashEncoding,
    /// Elements in the order of their numbers. Redis checks whether the last error of the C library was a number out of
    /// range. That may stem from an earlier call, and then Redis rejects valid numbers.
    Sorted,
    /// A later version reads all arguments first, and may find a fault that the earlier one did not look for.
    Stricter,
    /// EXEC: each reply by the rule of its command.
    Each(Vec<Rule>),
}

/// The version of Redis in a comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Version {
    /// 7.0, which is older than the version that this server follows.
    Seven,
    /// 8.0, whose replies are the right ones.
    Eight,
}

impl Version {
    fn is_7(self) -> bool {
        self == Version::Seven
    }

    /// The server of this version.
    pub(super) fn program(self) -> Program {
        match self {
            Version::Seven => Program::Redis,
            Version::Eight => Program::Redis8,
        }
    }
}

/// The largest clock difference on a slow machine, in milliseconds.
const SLACK_MS: u64 = 5_000;

/// The longest time of one server for a pipeline on a slow machine, in seconds.
const STALL_S: u64 = 60;

/// The rule of a command; a new command whose reply is not fixed gets its line here.
pub(super) fn rule_for(args: &Args) -> Rule {
    let word = |i: usize| args.get(i).map(|a| String::from_utf8_lossy(a).to_ascii_uppercase()).unwrap_or_default();
    match (word(0).as_str(), word(1).as_str()) {
        ("SMEMBERS" | "KEYS" | "SINTER" | "SUNION" | "SDIFF" | "HKEYS" | "HVALS", _) => Rule::Unordered,
        ("PUBSUB", "CHANNELS") | ("COMMAND", "LIST") | ("CONFIG", "HELP") => Rule::Unordered,
        ("HGETALL", _) | ("CONFIG", "GET") | ("PUBSUB", "NUMSUB") => Rule::Pairs,
        ("TTL" | "EXPIRETIME", _) => Rule::Clock(SLACK_MS / 1000),
        // Redis does not look at its clock during a pipeline: keys touched then look idle for the pipeline's whole
        // time.
        ("OBJECT", "IDLETIME") => Rule::Clock(STALL_S),
        ("PTTL" | "PEXPIRETIME" | "HPTTL" | "HPEXPIRETIME", _) => Rule::Clock(SLACK_MS),
        ("HTTL" | "HEXPIRETIME", _) => Rule::Clock(SLACK_MS / 1000),
        (
            "ZADD" | "ZINCRBY" | "ZSCORE" | "ZMSCORE" | "ZRANGE" | "ZREVRANGE" | "ZRANGEBYSCORE" | "ZREVRANGEBYSCORE",
            _,
        )
        | ("ZPOPMIN" | "ZPOPMAX" | "BZPOPMIN" | "BZPOPMAX" | "ZMPOP" | "BZMPOP" | "ZUNION" | "ZINTER" | "ZDIFF", _)
        | ("ZRANK" | "ZREVRANK" | "GEODIST" | "INCRBYFLOAT" | "HINCRBYFLOAT", _) => Rule::Doubles,
        ("GEOPOS" | "GEOSEARCH" | "GEORADIUS" | "GEORADIUSBYMEMBER" | "GEORADIUS_RO" | "GEORADIUSBYMEMBER_RO", _) => {
            Rule::Coordinates
        }
        ("DUMP" | "SPOP" | "RANDOMKEY" | "SRANDMEMBER" | "HRANDFIELD" | "ZRANDMEMBER", _) => Rule::Shape,
        ("TIME" | "INFO" | "LASTSAVE" | "LOLWUT", _)
        | ("CLIENT", "ID" | "INFO" | "LIST")
        | ("MEMORY", "USAGE" | "STATS" | "DOCTOR" | "MALLOC-STATS")
        | ("OBJECT", "FREQ" | "REFCOUNT")
        | ("SCRIPT" | "FUNCTION" | "COMMAND" | "HELLO" | "XINFO" | "ACL", "HELP") => Rule::Kind,
        // Since 7.2 a client that asked before is a consumer already, even if there was nothing to get.
        ("HELLO", _) | ("XGROUP", "CREATECONSUMER") => Rule::Kind,
        ("XPENDING", _) if args.len() > 3 => Rule::Pending,
        ("XINFO", _) => Rule::Info,
        ("FUNCTION", "LIST") => Rule::Libraries,
        ("FUNCTION", "LOAD" | "RESTORE") => Rule::Taken,
        // Only one of the servers compresses the texts.
        ("FUNCTION", "DUMP") => Rule::Kind,
        ("SORT" | "SORT_RO", _) => Rule::Sorted,
        // Since 7.2, also if there is no key.
        ("BITCOUNT" | "BITPOS", _) => Rule::Stricter,
        ("SCAN", "0") => Rule::Scan,
        ("SSCAN" | "HSCAN" | "ZSCAN", _) if word(2) == "0" => Rule::Scan,
        ("SCAN" | "SSCAN" | "HSCAN" | "ZSCAN", _) => Rule::Kind,
        _ => Rule::Exact,
    }
}

impl Rule {
    /// Whether these replies count as equal.
    pub(super) fn same(&self, ours: &Reply, theirs: &Reply, version: Version) -> bool {
        if ours.raw == theirs.raw {
            return true;
        }
        // Null of an array and null of a string decode to the same value in RESP2; clients tell them apart.
        let null_arrays = |reply: &Reply| reply.raw.windows(5).filter(|w| w == b"*-1\r\n").count();
        null_arrays(ours) == null_arrays(theirs) && self.same_value(&ours.value, &theirs.value, version)
    }

    fn same_value(&self, ours: &Value, theirs: &Value, version: Version) -> bool {
        use Value::*;
        match (self, ours, theirs) {
            (Rule::Stricter, Error(a), b) if version.is_7() && is_about_arguments(a) && ignored_arguments(b) => true,
            (Rule::Sorted, Array(a), Error(b)) => {
                let is_number = |element: &Value| double_of(element).is_some_and(|number| !number.is_nan());
                b == b"ERR One or more scores can't be converted into double" && a.iter().all(is_number)
            }
            (Rule::Taken, Error(a), Error(b)) => without_name(a) == without_name(b),
            (_, Error(a), Error(b)) => a == b || is_known_error(a, b, version),
            (Rule::Unordered, Array(a), Array(b)) => sorted(a.clone()) == sorted(b.clone()),
            (Rule::Pairs, Array(a), Array(b)) => as_pairs(a) == as_pairs(b),
            (Rule::Clock(slack), Integer(a), Integer(b)) => within(*slack, *a, *b),
            (Rule::Doubles, Bulk(a), Bulk(b)) => a == b || same_double(a, b),
            (Rule::Coordinates, Bulk(_) | Double(_), Bulk(_) | Double(_)) => {
                ours == theirs || same_to_17_decimals(ours, theirs)
            }
            (Rule::Coordinates, Array(a), Array(b)) if same_but_for_ties(a, b) => true,
            (Rule::Scan, Array(a), Array(b)) => same_scan(a, b),
            (Rule::Pending, Array(a), Array(b)) => same_entries(a, b),
            (Rule::Info, a, b) => same_info(a, b, None),
            (Rule::Libraries, a, b) => unordered(a) == unordered(b),
            (Rule::SetEncoding, Bulk(a), Bulk(b)) => {
                a == b || version == Version::Eight || (a == b"listpack" && b == b"hashtable")
            }
            (Rule::HashEncoding, Bulk(a), Bulk(b)) => {
                let is_roomier = version == Version::Eight
                    && [&b"listpack"[..], b"listpackex"].contains(&&a[..])
                    && [&b"listpackex"[..], b"hashtable"].contains(&&b[..]);
                a == b || is_roomier
            }
            (Rule::Later(later, before), Bulk(a), Bulk(b)) => a == b || (a == later && b == before),
            (Rule::Shape | Rule::Kind, Array(a) | Set(a) | Push(a), Array(b) | Set(b) | Push(b)) => match self {
                Rule::Shape => a.len() == b.len() && pairwise(a, b, |a, b| self.same_value(a, b, version)),
                _ => {
                    a.is_empty() == b.is_empty()
                        && a.first().zip(b.first()).is_none_or(|(a, b)| self.same_value(a, b, version))
                }
            },
            (Rule::Shape | Rule::Kind, a, b) => std::mem::discriminant(a) == std::mem::discriminant(b),
            (Rule::Each(rules), Array(a), Array(b)) if a.len() == b.len() && a.len() == rules.len() => {
                rules.iter().zip(a.iter().zip(b)).all(|(rule, (a, b))| rule.same_value(a, b, version))
            }
            (_, Double(a), Double(b)) => a == b || (a.is_nan() && b.is_nan()),
            (rule, Array(a), Array(b)) | (rule, Push(a), Push(b)) | (rule, Set(a), Set(b)) => {
                pairwise(a, b, |a, b| rule.same_value(a, b, version))
            }
            (rule, Map(a), Map(b)) => {
                a.len() == b.len() && a.iter().zip(b).all(|(a, b)| a.0 == b.0 && rule.same_value(&a.1, &b.1, version))
            }
            (_, a, b) => a == b,
        }
    }
}

/// Beginnings of errors that Redis 7.0 words differently: first ours, then Redis'.
const NEWER_ERRORS: [(&str, &str); 8] = [
    ("ERR redis.set_repl() requires one argument", "ERR redis.set_repl() requires two arguments"),
    ("ERR Invalid log level", "ERR Invalid debug level"),
    ("ERR value is out of range, value must between", "ERR value is not an integer or out of range"),
    ("ERR Unbalanced 'xread' list", "ERR Unbalanced XREAD list"),
    ("ERR Unbalanced 'xreadgroup' list", "ERR Unbalanced XREAD list"),
    ("NOGROUP No such key", "NOGROUP the consumer group this client was blocked on no longer exists"),
    ("NOGROUP No such key", "UNBLOCKED the stream key no longer exists"),
    ("WRONGTYPE ", "UNBLOCKED the stream key no longer exists"),
];

fn is_known_error(ours: &[u8], theirs: &[u8], version: Version) -> bool {
    let known: &[(&str, &str)] = if version.is_7() { &NEWER_ERRORS } else { &[] };
    known.iter().any(|(newer, before)| ours.starts_with(newer.as_bytes()) && theirs.starts_with(before.as_bytes()))
}

/// Whether it is an answer that BITCOUNT and BITPOS gave before reading all arguments: no key, an empty range, another
/// type.
fn ignored_arguments(reply: &Value) -> bool {
    match reply {
        Value::Integer(n) => matches!(n, 0 | -1),
        Value::Error(text) => text.starts_with(b"WRONGTYPE"),
        _ => false,
    }
}

fn is_about_arguments(error: &[u8]) -> bool {
    [&b"ERR syntax error"[..], b"ERR value is not an integer or out of range"].contains(&error)
}

fn pairwise(a: &[Value], b: &[Value], mut same: impl FnMut(&Value, &Value) -> bool) -> bool {
    a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(a, b))
}

fn within(slack: u64, a: i64, b: i64) -> bool {
    a == b || (a >= 0 && b >= 0 && a.abs_diff(b) <= slack)
}

fn as_pairs(flat: &[Value]) -> Vec<Value> {
    sorted(flat.chunks(2).map(|pair| Value::Array(pair.to_vec())).collect())
}

/// The number in a string.
pub(super) fn double_of(value: &Value) -> Option<f64> {
    std::str::from_utf8(value.bytes()?).ok()?.parse().ok()
}

fn same_double(a: &[u8], b: &[u8]) -> bool {
    let parse = |text: &[u8]| double_of(&Value::Bulk(text.to_vec()));
    matches!((parse(a), parse(b)), (Some(a), Some(b)) if a == b)
}

fn same_to_17_decimals(a: &Value, b: &Value) -> bool {
    let number = |value: &Value| if let Value::Double(number) = value { Some(*number) } else { double_of(value) };
    number(a).zip(number(b)).is_some_and(|(a, b)| (a - b).abs() < 1e-17)
}

/// Whether these are equal places with equal distances, where only places of equal distance differ in order.
fn same_but_for_ties(a: &[Value], b: &[Value]) -> bool {
    let distance = |place: &Value| match place {
        Value::Array(parts) => parts.get(1)?.bytes().map(<[u8]>::to_vec),
        _ => None,
    };
    let distances = |places: &[Value]| places.iter().map(distance).collect::<Option<Vec<_>>>();
    distances(a).is_some_and(|all| Some(all) == distances(b)) && sorted(a.to_vec()) == sorted(b.to_vec())
}

/// Elements may come twice, and an unfinished scan may return any part. Neither side marks pairs, so a set of strings
/// must do; a score counts as a number.
fn same_scan(a: &[Value], b: &[Value]) -> bool {
    let ended = |parts: &[Value]| parts.first().is_some_and(|cursor| cursor.bytes() == Some(b"0"));
    let elements = |parts: &[Value]| match parts.get(1) {
        Some(Value::Array(items)) => items.iter().map(number_or_text).collect::<BTreeSet<String>>(),
        _ => BTreeSet::new(),
    };
    a.len() == b.len() && (!ended(a) || !ended(b) || elements(a) == elements(b))
}

fn number_or_text(value: &Value) -> String {
    // The sign of zero does not count.
    double_of(value).map_or_else(|| format!("{value:?}"), |number| (number + 0.0).to_string())
}

/// Lists of entries whose last part but one is a time: pending entries, in three forms.
fn same_entries(a: &[Value], b: &[Value]) -> bool {
    pairwise(a, b, |a, b| match (a, b) {
        (Value::Array(a), Value::Array(b)) if a.len() == b.len() => (0..a.len()).all(|i| match i + 2 == a.len() {
            true => Rule::Clock(SLACK_MS).same_value(&a[i], &b[i], Version::Seven),
            false => a[i] == b[i],
        }),
        (a, b) => a == b,
    })
}

/// Redis 7.0 returns fewer fields than later versions: each of its fields must be present here with an equal value.
/// `length` is the stream's, if known.
fn same_info(ours: &Value, theirs: &Value, length: Option<i64>) -> bool {
    if let (Value::Array(a), Value::Array(b)) = (ours, theirs)
        && b.iter().all(|item| matches!(item, Value::Array(_) | Value::Map(_)))
    {
        return same_infos(a, b, length);
    }
    let (Some(ours), Some(theirs)) = (fields(ours), fields(theirs)) else {
        return ours == theirs;
    };
    let number = |fields: &BTreeMap<Vec<u8>, Value>, name: &[u8]| match fields.get(name) {
        Some(Value::Integer(number)) => Some(*number),
        _ => None,
    };
    let length = number(&theirs, b"length").or(length);
    let read = number(&theirs, b"entries-read");
    // Later versions cap a group's entries-read at the entries added.
    let claimed = number(&ours, b"entries-read") < read;
    theirs.iter().all(|(name, theirs)| {
        let Some(ours) = ours.get(name) else {
            return false;
        };
        match (name.as_slice(), ours, theirs) {
            (b"radix-tree-keys" | b"radix-tree-nodes", ..) => true,
            (b"seen-time" | b"active-time" | b"idle", ..) => {
                Rule::Clock(SLACK_MS).same_value(ours, theirs, Version::Seven)
            }
            // Since 7.2 a client that asks and gets nothing is a consumer, too.
            (b"consumers", Value::Integer(a), Value::Integer(b)) => a >= b,
            (b"entries-read" | b"lag", ..) if claimed => true,
            // In an empty stream nothing is left to read.
            (b"lag", Value::Integer(0), _) if length.is_none_or(|length| length == 0) => true,
            // A group before the first entry has all entries left to read, whatever its entries-read says.
            (b"lag", Value::Integer(lag), _) if read.is_some() && length.is_none_or(|length| length == *lag) => true,
            (b"lag", Value::Integer(0), Value::Integer(b)) => *b <= 0,
            (b"groups" | b"consumers", Value::Array(a), Value::Array(b)) => same_infos(a, b, length),
            (b"pending", Value::Array(a), Value::Array(b)) => same_entries(a, b),
            _ => ours == theirs,
        }
    })
}

/// Groups or consumers; consumers without pending entries may be on our side alone.
fn same_infos(ours: &[Value], theirs: &[Value], length: Option<i64>) -> bool {
    let name =
        |info: &Value| fields(info).and_then(|mut fields| fields.remove(b"name".as_slice())).map(|n| format!("{n:?}"));
    let is_idle = |info: &Value| {
        fields(info).is_some_and(|fields| {
            let pending = fields.get(b"pel-count".as_slice()).or(fields.get(b"pending".as_slice()));
            pending == Some(&Value::Integer(0)) && !fields.contains_key(b"last-delivered-id".as_slice())
        })
    };
    let mut rest: BTreeMap<_, _> = ours.iter().map(|info| (name(info), info)).collect();
    theirs.iter().all(|info| rest.remove(&name(info)).is_some_and(|ours| same_info(ours, info, length)))
        && rest.values().all(|info| is_idle(info))
}

/// An error about a taken name, without that name.
fn without_name(error: &[u8]) -> Vec<&[u8]> {
    let mut words: Vec<&[u8]> = error.split(|&byte| byte == b' ').collect();
    if error.ends_with(b" already exists") && words.len() == 5 {
        words.remove(2);
    }
    words
}

/// A reply of FUNCTION LIST with its maps as maps, in RESP2 too, and its lists sorted.
pub(crate) fn unordered(value: &Value) -> Value {
    match value {
        Value::Array(flat)
            if flat.first().is_some_and(|name| [Value::bulk("library_name"), Value::bulk("name")].contains(name)) =>
        {
            let mut pairs: Vec<_> = flat.chunks(2).map(|pair| (pair[0].clone(), unordered(&pair[1]))).collect();
            pairs.sort_by_cached_key(|pair| format!("{pair:?}"));
            Value::Map(pairs)
        }
        Value::Array(items) => Value::Array(sorted(items.iter().map(unordered).collect())),
        Value::Map(pairs) => Value::Map(pairs.iter().map(|(name, value)| (name.clone(), unordered(value))).collect()),
        other => other.clone(),
    }
}

/// The fields of a map, or of a flat array in its place.
fn fields(value: &Value) -> Option<BTreeMap<Vec<u8>, Value>> {
    let field = |name: &Value, value: &Value| Some((name.bytes()?.to_vec(), value.clone()));
    match value {
        Value::Map(pairs) => pairs.iter().map(|(name, value)| field(name, value)).collect(),
        Value::Array(flat) if flat.len() % 2 == 0 => flat.chunks(2).map(|pair| field(&pair[0], &pair[1])).collect(),
        _ => None,
    }
}
