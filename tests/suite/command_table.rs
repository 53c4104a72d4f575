//! What COMMAND INFO says of each command equals what Redis 7.0.15 says of it: arity, flags, positions of the keys, ACL
//! categories, tips, key specs. Sets have no order. Redis' own remarks on key specs (`notes`) are left out. And what the
//! documentation lists is what COMMAND DOCS does.

use std::collections::{BTreeMap, BTreeSet};

use crate::harness::{Program, Server, Value, sorted};
use crate::oracle::REDIS_SERVER;

/// Commands that newer versions of Redis describe otherwise than 7.0.15; the newer description is the one here.
const NEWER: [(&str, &str); 11] = [
    ("blmove", "no longer noscript since 7.2"),
    ("blpop", "no longer noscript since 7.2"),
    ("brpop", "no longer noscript since 7.2"),
    ("brpoplpush", "no longer noscript since 7.2"),
    ("bzpopmax", "no longer noscript since 7.2"),
    ("bzpopmin", "no longer noscript since 7.2"),
    ("cluster|shards", "served while data is loaded since 7.2"),
    ("cluster|slots", "served while data is loaded since 7.2"),
    ("wait", "blocking since 7.2, no longer noscript"),
    ("zrank", "WITHSCORE since 7.2"),
    ("zrevrank", "WITHSCORE since 7.2"),
];

/// What the fields behind a command's name mean, in order.
const FIELDS: [&str; 8] = ["arity", "flags", "first key", "last key", "step", "categories", "tips", "key specs"];

#[test]
fn every_command_describes_itself_as_in_redis() {
    if REDIS_SERVER.is_missing() {
        return;
    }
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

/// The table in `docs/compatibility.md` lists what COMMAND DOCS does, by group.
#[test]
fn the_documentation_lists_the_commands_that_there_are() {
    let server = Server::start(Program::Tidegate, &[]);
    let mut groups = BTreeMap::<String, Vec<String>>::new();
    for (name, fields) in pairs(&server.raw().command(&["COMMAND", "DOCS"])) {
        let fields: BTreeMap<_, _> = pairs(fields).collect();
        let mut line = name.to_uppercase();
        let subcommands = fields.get("subcommands").into_iter().flat_map(|all| pairs(all));
        let mut words: Vec<String> =
            subcommands.filter_map(|(full, _)| Some(full.split_once('|')?.1.to_uppercase())).collect();
        words.retain(|word| word != "HELP");
        words.sort_unstable();
        if !words.is_empty() {
            line += &format!(" ({})", words.join(", "));
        }
        groups.entry(text(fields["group"])).or_default().push(line);
    }
    let wanted: BTreeSet<String> = groups
        .into_iter()
        .map(|(group, mut commands)| {
            commands.sort_unstable();
            format!("| {group} | {} |", commands.join(", "))
        })
        .collect();
    let page = include_str!("../../docs/compatibility.md");
    let table = page.split_once("| Group | Commands |\n|---|---|\n").expect("the table's head").1;
    let listed: BTreeSet<String> = table.lines().take_while(|line| line.starts_with('|')).map(str::to_owned).collect();
    let missing: Vec<_> = wanted.difference(&listed).collect();
    let wrong: Vec<_> = listed.difference(&wanted).collect();
    assert!(missing.is_empty() && wrong.is_empty(), "docs/compatibility.md should have {missing:#?}, not {wrong:#?}");
}

/// The pairs of a map as RESP2 answers it.
fn pairs(reply: &Value) -> impl Iterator<Item = (String, &Value)> {
    elements(reply).chunks_exact(2).map(|pair| (text(&pair[0]), &pair[1]))
}

fn text(value: &Value) -> String {
    String::from_utf8_lossy(value.bytes().unwrap_or_default()).into_owned()
}

/// Commands and subcommands by name, with their comparable fields.
fn described(reply: &Value) -> BTreeMap<String, Vec<Value>> {
    let mut found = BTreeMap::new();
    for command in elements(reply) {
        let [name, fields @ .., subcommands] = elements(command) else { panic!("not a command: {command:?}") };
        let name = text(name);
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
