//! The whole keyspace, as a client sees it: two servers with equal answers to all of these calls hold the same data.
//!
//! Three pipelines over a connection of its own: the keys of each database, their types, and for each key its encoding,
//! its deadline and its whole content, for a stream with its groups, consumers and pending entries. Encodings must be
//! equal, too, except that small sets and lists are listpacks since Redis 7.2.

use super::pair::Pair;
use super::rule::{Rule, Version, rule_for};
use super::script::Args;
use crate::harness::Value;

/// The default number of databases.
const DATABASES: usize = 16;

/// The first difference between the two keyspaces: a call, and its two answers. `sorted`: SORT has run, by which the
/// oracle turns any sorted set into a skiplist.
pub(super) fn compare(pair: &mut Pair, resp3: bool, sorted: bool) -> Option<String> {
    // Redis 8 counts the members of one ZADD, repeated ones as well, before it chooses an encoding.
    differs(pair, resp3, sorted || pair.version() == Version::Eight).err().map(|told| format!("(the dump) {told}"))
}

fn differs(pair: &mut Pair, resp3: bool, sorted: bool) -> Result<(), String> {
    let mut ask = |calls: Vec<(Args, Rule)>| pair.ask("dump", resp3, &calls);
    let listing = (0..DATABASES).flat_map(|db| [select(db), plain(call(&["KEYS", "*"], None))]);
    let listed = ask(listing.collect())?;
    let databases = listed.iter().skip(1).step_by(2).enumerate();
    let keys: Vec<(usize, Vec<u8>)> =
        databases.flat_map(|(db, keys)| elements(keys).map(move |key| (db, key))).collect();
    let types = ask(keys.iter().flat_map(|(db, key)| [select(*db), plain(call(&["TYPE"], Some(key)))]).collect())?;
    let types = types.iter().skip(1).step_by(2).map(|name| name.bytes().unwrap_or_default());
    let found = keys.iter().zip(types);
    ask(found.flat_map(|((db, key), kind)| std::iter::once(select(*db)).chain(contents(kind, key, sorted))).collect())?;
    Ok(())
}

fn contents(kind: &[u8], key: &[u8], sorted: bool) -> Vec<(Args, Rule)> {
    let (head, tail): (&[&str], &[&str]) = match kind {
        b"string" => (&["GET"], &[]),
        b"list" => (&["LRANGE"], &["0", "-1"]),
        b"hash" => (&["HGETALL"], &[]),
        b"set" => (&["SMEMBERS"], &[]),
        b"zset" => (&["ZRANGE"], &["0", "-1", "WITHSCORES"]),
        b"stream" => (&["XINFO", "STREAM"], &["FULL", "COUNT", "0"]),
        _ => return Vec::new(),
    };
    let mut read = call(head, Some(key));
    read.extend(tail.iter().map(|word| word.as_bytes().to_vec()));
    let encoding = match kind {
        b"set" => Rule::SetEncoding,
        b"list" => Rule::Later(b"listpack", b"quicklist"),
        b"hash" => Rule::HashEncoding,
        b"zset" if sorted => Rule::Later(b"listpack", b"skiplist"),
        _ => Rule::Exact,
    };
    vec![plain(call(&["PEXPIRETIME"], Some(key))), (call(&["OBJECT", "ENCODING"], Some(key)), encoding), plain(read)]
}

fn select(db: usize) -> (Args, Rule) {
    plain(call(&["SELECT", &db.to_string()], None))
}

fn plain(args: Args) -> (Args, Rule) {
    let rule = rule_for(&args);
    (args, rule)
}

fn call(words: &[&str], key: Option<&[u8]>) -> Args {
    words.iter().map(|word| word.as_bytes().to_vec()).chain(key.map(<[u8]>::to_vec)).collect()
}

fn elements(value: &Value) -> impl Iterator<Item = Vec<u8>> {
    let items = match value {
        Value::Array(items) | Value::Set(items) => items.clone(),
        _ => Vec::new(),
    };
    items.into_iter().filter_map(|item| item.bytes().map(<[u8]>::to_vec))
}
