//! What COMMAND INFO says of each command equals what Redis 7.0.15 says of it: arity, flags, positions of the keys, ACL
//! categories, tips, key specs. Sets have no order. Redis' own remarks on key specs (`notes`) are left out.

use std::collections::BTreeMap;

use crate::harness::{Program, Server, Value, sorted};

/// Commands that newer versions of Redis describe otherwise than 7.0.15; the newer description is the one here.
const NEWER: [(&str, &str); 3] = [
    ("wait", "blocking since 7.2, no longer noscript"),
    ("zrank", "WITHSCORE since 7.2"),
    ("zrevrank", "WITHSCORE since 7.2"),
];

/// What the fields behind a command's name mean, in order.
const FIELDS: [&str; 8] = ["arity", "flags", "first key", "last key", "step", "categories", "tips", "key specs"];

#[test]
fn every_command_describes_itself_as_in_redis() {
    let (ours, theirs) = (Server::start(Program::Tidegate, &[]), Server::start(Program::Redis, &[]));
    let ours = described(&ours.raw().command(&["COMMAND"]));
    let theirs = described(&theirs.raw().command(&["COMMAND"]));
    assert!(ours.len() > 50, "only {} commands are described", ours.len());
    let mut differences = Vec::new();
    for (name, fields) in &ours {
        let Some(wanted) = theirs.get(name).filter(|_| NEWER.iter().all(|(newer, _)| newer != name)) else { continue };
        for ((field, ours), theirs) in FIELDS.iter().zip(fields).zip(wanted) {
            if ours != theirs {
                differences.push(format!("{name}: {field}: {ours:?}, but Redis says {theirs:?}"));
            }
        }
    }
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}

/// Commands and subcommands by name, with their comparable fields.
fn described(reply: &Value) -> BTreeMap<String, Vec<Value>> {
    let mut found = BTreeMap::new();
    for command in elements(reply) {
        let [name, fields @ .., subcommands] = elements(command) else { panic!("not a command: {command:?}") };
        let name = String::from_utf8_lossy(name.bytes().unwrap_or_default()).into_owned();
        let comparable = |(index, field): (usize, &Value)| match FIELDS[index] {
            "flags" | "categories" | "tips" => Value::Array(sorted(elements(field).to_vec())),
            "key specs" => Value::Array(elements(field).iter().map(key_spec).collect()),
            _ => field.clone(),
        };
        found.insert(name, fields.iter().enumerate().map(comparable).collect());
        found.extend(described(subcommands));
    }
    found
}

/// A key spec without its remarks, its flags sorted.
fn key_spec(spec: &Value) -> Value {
    let pairs = elements(spec).chunks_exact(2).filter(|pair| pair[0] != Value::bulk("notes"));
    let comparable = pairs.flat_map(|pair| match &pair[1] {
        Value::Array(flags) if pair[0] == Value::bulk("flags") => {
            [pair[0].clone(), Value::Array(sorted(flags.clone()))]
        }
        value => [pair[0].clone(), value.clone()],
    });
    Value::Array(comparable.collect())
}

fn elements(value: &Value) -> &[Value] {
    match value {
        Value::Array(elements) => elements,
        _ => &[],
    }
}
