//! COMMAND INFO equals Redis' for each command: arity, flags, positions of the keys, ACL categories, tips, key specs.
//! Sets have no order. Redis' remarks on key specs (`notes`) are left out. COMMAND DOCS is compared likewise, except
//! for sentences and the versions in which arguments were added. The tables in the documentation list the same commands
//! as COMMAND DOCS.
//!
//! Both are compared with Redis 7.0.15 and with 8.0; 8.0 is right where the two differ. COMMAND DOCS is compared with
//! 8.0 alone. Flags and categories are compared with Valkey 9.1 as well; each difference is listed here with its
//! reason.

use std::collections::{BTreeMap, BTreeSet};

use crate::harness::{Program, Server, Value, sorted};
use crate::oracle::{REDIS_SERVER, REDIS_SERVER_8, VALKEY_SERVER};

/// Commands that newer versions of Redis describe differently from 7.0.15; this server follows the newer description.
const NEWER: [(&str, &str); 25] = [
    ("acl|deluser", "tips since 7.2"),
    ("acl|save", "tips since 7.2"),
    ("acl|setuser", "tips since 7.2"),
    ("blmove", "no longer noscript since 7.2"),
    ("blpop", "no longer noscript since 7.2"),
    ("brpop", "no longer noscript since 7.2"),
    ("brpoplpush", "no longer noscript since 7.2"),
    ("bzpopmax", "no longer noscript since 7.2"),
    ("bzpopmin", "no longer noscript since 7.2"),
    ("client|setname", "tips since 7.2"),
    ("cluster|shards", "served while data is loaded since 7.2"),
    ("cluster|slots", "served while data is loaded since 7.2"),
    ("command|getkeys", "the command to ask about may have no arguments"),
    ("command|getkeysandflags", "the command to ask about may have no arguments"),
    ("config|resetstat", "tips since 7.2"),
    ("config|rewrite", "tips since 7.2"),
    ("latency|reset", "another tip since 7.2"),
    ("msetnx", "no tips since 8.0"),
    ("randomkey", "another tip since 7.2"),
    ("scan", "another tip since 7.2"),
    ("sinterstore", "overwrites its destination"),
    ("wait", "blocking since 7.2, no longer noscript"),
    ("waitaof", "of no key"),
    ("zrank", "WITHSCORE since 7.2"),
    ("zrevrank", "WITHSCORE since 7.2"),
];

/// Points where this server is stricter than any Redis.
const STRICTER: [(&str, &str); 1] = [("script|debug", "a session holds the server")];

/// Flags and categories that differ in Valkey 9.1: the flag or category, with a minus if we do not set it, and why.
const NOT_AS_IN_VALKEY: [(&str, &[&str], &str); 24] = [
    ("client|caching", &["-allow_busy"], AS_IN_REDIS),
    ("client|capa", &["-allow_busy"], "as its siblings, which are as in Redis"),
    ("client|getname", &["-allow_busy"], AS_IN_REDIS),
    ("client|getredir", &["-allow_busy"], AS_IN_REDIS),
    ("client|id", &["-allow_busy"], AS_IN_REDIS),
    ("client|import-source", &["@admin", "@dangerous", "admin"], "keeps all keys from expiring"),
    ("client|no-evict", &["-allow_busy"], AS_IN_REDIS),
    ("client|no-touch", &["-allow_busy"], AS_IN_REDIS),
    ("client|reply", &["-allow_busy", "-no_multi"], AS_IN_REDIS),
    ("client|setinfo", &["-allow_busy"], AS_IN_REDIS),
    ("client|setname", &["-allow_busy"], AS_IN_REDIS),
    ("cluster|info", &["-loading"], AS_IN_REDIS),
    ("cluster|myid", &["-loading"], AS_IN_REDIS),
    ("cluster|myshardid", &["-loading"], AS_IN_REDIS),
    ("cluster|nodes", &["-loading"], AS_IN_REDIS),
    ("exec", &["-skip_commandlog", "skip_slowlog"], "the flag has another name in Redis"),
    ("memory|malloc-stats", &["-loading"], AS_IN_REDIS),
    ("memory|purge", &["-loading"], AS_IN_REDIS),
    ("multi", &["-no_multi"], AS_IN_REDIS),
    ("script|debug", &["@admin", "@dangerous", "admin"], "a session holds the server"),
    ("script|exists", &["-stale"], AS_IN_REDIS),
    ("script|flush", &["-stale"], AS_IN_REDIS),
    ("select", &["-allow_busy"], AS_IN_REDIS),
    ("watch", &["-no_multi"], AS_IN_REDIS),
];

const AS_IN_REDIS: &str = "Redis 8.0 and Valkey differ, and it is as in Redis";

/// Differences of COMMAND DOCS from Redis 8.0, by their path.
const OTHERWISE: [(&str, &str); 14] = [
    ("bgsave", "CANCEL, of Valkey"),
    ("client|kill", "MASTER is no type of clients here"),
    ("client|list", "MASTER is no type of clients here"),
    ("debug", "its subcommands are no entries"),
    ("failover/target", "the word belongs to the group's first value"),
    ("geosearch/by", "the word belongs to the group, not to its first value"),
    ("geosearchstore/by", "the word belongs to the group, not to its first value"),
    ("migrate/key-selector/empty-string", "the two quotes are the word"),
    ("module|loadex/configs", "the word belongs to the group, not to its first value"),
    ("replicaof/args/no-one", "the first word belongs to the group"),
    ("slaveof/args/no-one", "the first word belongs to the group"),
    ("sort", "patterns are no keys of the command's specs"),
    ("sort_ro", "patterns are no keys of the command's specs"),
    ("xinfo|stream/full-block", "the word belongs to the group"),
];

/// The fields after a command's name, in order.
const FIELDS: [&str; 8] = ["arity", "flags", "first key", "last key", "step", "categories", "tips", "key specs"];

#[test]
fn every_command_describes_itself_as_in_redis() {
    if !REDIS_SERVER.is_missing() {
        assert_described_as_in(Program::Redis, &[&NEWER[..], &STRICTER].concat());
    }
}

#[test]
fn every_command_describes_itself_as_in_redis_8() {
    if !REDIS_SERVER_8.is_missing() {
        assert_described_as_in(Program::Redis8, &STRICTER);
    }
}

/// Each difference is listed, and each listed difference exists.
#[test]
fn flags_and_categories_equal_valkeys_except_as_listed() {
    if VALKEY_SERVER.is_missing() {
        return;
    }
    let (ours, theirs) = (Server::start(Program::Tidegate, &[]), Server::start(Program::Valkey, &[]));
    let ours = described(&ours.raw().command(&["COMMAND"]));
    let theirs = described(&theirs.raw().command(&["COMMAND"]));
    let words = |fields: &[Value]| -> BTreeSet<String> {
        let of = |name: &str| &fields[FIELDS.iter().position(|field| *field == name).expect("a field")];
        elements(of("flags")).iter().chain(elements(of("categories"))).map(text).collect()
    };
    let mut found = BTreeMap::new();
    for (name, fields) in &ours {
        let Some(theirs) = theirs.get(name) else { continue };
        let (ours, theirs) = (words(fields), words(theirs));
        let missing = theirs.difference(&ours).map(|word| format!("-{word}"));
        let differences: BTreeSet<String> = missing.chain(ours.difference(&theirs).cloned()).collect();
        if !differences.is_empty() {
            found.insert(name.as_str(), differences);
        }
    }
    let listed = NOT_AS_IN_VALKEY.iter().map(|(name, words, reason)| {
        assert!(!reason.is_empty());
        (*name, words.iter().map(|word| (*word).to_owned()).collect::<BTreeSet<_>>())
    });
    assert_eq!(found, listed.collect());
}

fn assert_described_as_in(program: Program, otherwise: &[(&str, &str)]) {
    let (ours, theirs) = (Server::start(Program::Tidegate, &[]), Server::start(program, &[]));
    let ours = described(&ours.raw().command(&["COMMAND"]));
    let theirs = described(&theirs.raw().command(&["COMMAND"]));
    assert!(ours.len() > 50, "only {} commands are described", ours.len());
    let mut differences = Vec::new();
    for (name, fields) in &ours {
        let Some(wanted) = theirs.get(name).filter(|_| otherwise.iter().all(|(other, _)| other != name)) else {
            continue;
        };
        for ((field, ours), theirs) in FIELDS.iter().zip(fields).zip(wanted) {
            if ours != theirs {
                differences.push(format!("{name}: {field}: {ours:?}, but Redis says {theirs:?}"));
            }
        }
    }
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}

/// Compares each command, its subcommands and its arguments at any depth, as far as both know them; arguments of ours
/// alone are ignored.
#[test]
fn every_command_is_documented_as_in_redis_8() {
    if REDIS_SERVER_8.is_missing() {
        return;
    }
    let (ours, theirs) = (Server::start(Program::Tidegate, &[]), Server::start(Program::Redis8, &[]));
    let ours = ours.raw().command(&["COMMAND", "DOCS"]);
    let theirs = theirs.raw().command(&["COMMAND", "DOCS"]);
    let mut differences = Vec::new();
    let ours: BTreeMap<_, _> = pairs(&ours).collect();
    let mut compared = 0;
    for (name, theirs) in pairs(&theirs) {
        if let Some(ours) = ours.get(&name) {
            compare_docs(&name, ours, theirs, &mut differences);
            compared += 1;
        }
    }
    assert!(compared > 200, "only {compared} commands are documented");
    let is_known = |path: &str| {
        OTHERWISE
            .iter()
            .any(|(known, _)| path == *known || path.strip_prefix(known).is_some_and(|rest| rest.starts_with('/')))
    };
    differences.retain(|(path, _)| !is_known(path));
    let told: Vec<String> = differences.into_iter().map(|(path, told)| format!("{path}: {told}")).collect();
    assert!(told.is_empty(), "{}", told.join("\n"));
}

/// Fields of commands and arguments that are compared.
const DOCUMENTED: [&str; 10] = [
    "group",
    "since",
    "doc_flags",
    "deprecated_since",
    "replaced_by",
    "type",
    "token",
    "flags",
    "display_text",
    "key_spec_index",
];

fn compare_docs(path: &str, ours: &Value, theirs: &Value, differences: &mut Vec<(String, String)>) {
    let (ours, theirs): (BTreeMap<_, _>, BTreeMap<_, _>) = (pairs(ours).collect(), pairs(theirs).collect());
    // The version that added an argument is not compared.
    let is_argument = theirs.contains_key("type");
    for field in DOCUMENTED.iter().filter(|field| !is_argument || **field != "since") {
        let (ours, theirs) = (ours.get(*field), theirs.get(*field));
        if ours != theirs {
            differences.push((path.to_owned(), format!("{field} is {ours:?}, not {theirs:?}")));
        }
    }
    for (name, theirs) in theirs.get("subcommands").into_iter().flat_map(|all| pairs(all)) {
        if let Some((_, ours)) =
            ours.get("subcommands").into_iter().flat_map(|all| pairs(all)).find(|sub| sub.0 == name)
        {
            compare_docs(&name, ours, theirs, differences);
        }
    }
    let arguments = |docs: &BTreeMap<String, &Value>| -> Vec<(String, Value)> {
        let all = docs.get("arguments").map(|all| elements(all).to_vec()).unwrap_or_default();
        all.into_iter().map(|argument| (argument_name(&argument), argument)).collect()
    };
    let ours = arguments(&ours);
    let mut rest = ours.as_slice();
    for (name, theirs) in arguments(&theirs) {
        let Some(at) = rest.iter().position(|(ours, _)| *ours == name) else {
            let names: Vec<&String> = ours.iter().map(|(name, _)| name).collect();
            differences.push((path.to_owned(), format!("argument {name} is not among {names:?}")));
            continue;
        };
        compare_docs(&format!("{path}/{name}"), &rest[at].1, &theirs, differences);
        rest = &rest[at + 1..];
    }
}

fn argument_name(argument: &Value) -> String {
    pairs(argument).find(|(field, _)| field == "name").map(|(_, name)| text(name)).unwrap_or_default()
}

/// The table in `docs/compatibility.md` lists the commands of COMMAND DOCS, by group.
#[test]
fn the_documentation_lists_every_command() {
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

/// The pairs of a map in its RESP2 form.
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
            // The category is this server's own, also of commands that others have.
            "categories" => {
                let others = elements(field).iter().filter(|category| text(category) != "@replication");
                Value::Array(sorted(others.cloned().collect()))
            }
            "flags" | "tips" => Value::Array(sorted(elements(field).to_vec())),
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
