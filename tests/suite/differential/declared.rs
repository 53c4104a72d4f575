//! Commands for random calls: all of the table whose replies can be compared with the oracle's.
//!
//! Commands and words that Redis 7.0 lacks drop out by themselves: the oracle is asked which ones it knows.

use std::collections::{BTreeMap, BTreeSet};

use tidegate::engine::Entry;
use tidegate::spec::syntax;
use tidegate::spec::syntax::{Arg, Kind};
use tidegate::spec::{Flags, Group};

use crate::harness::{Raw, Value};

/// A command for random calls.
pub(crate) struct Declared {
    /// Its name; for a subcommand, the container's name and its own.
    pub words: Vec<String>,
    /// The type of the command's keys, or [`ANY_FAMILY`], [`LEX`], [`SESSION`].
    pub family: &'static str,
    /// Its arguments.
    pub syntax: Vec<Arg>,
}

/// Commands that take keys of every type.
pub(crate) const ANY_FAMILY: &str = "";
/// Ranges by member, which have no meaning if scores differ.
pub(crate) const LEX: &str = "lex";
/// Commands about the connection and its databases, which change the view of all other calls.
pub(crate) const SESSION: &str = "session";

/// The words that the oracle knows in each command, by full name; commands that it lacks are absent.
type Words = BTreeMap<String, BTreeSet<String>>;

/// The commands of the table that the oracle knows, with the syntax that both know.
pub(crate) fn commands(oracle: &mut Raw) -> Vec<Declared> {
    let mut known = Words::new();
    for (name, docs) in pairs(&oracle.command(&["COMMAND", "DOCS"])) {
        learn(&name, docs, &mut known);
    }
    let entries = tidegate::command::table().iter().flat_map(|entry| std::iter::once(entry).chain(&entry.sub));
    entries.filter_map(|entry| declared(entry, Some(known.get(&entry.full_name)?))).collect()
}

/// All commands of the table that are about data, with all of their syntax.
pub(crate) fn all_commands() -> Vec<Declared> {
    let entries = tidegate::command::table().iter().flat_map(|entry| std::iter::once(entry).chain(&entry.sub));
    entries.filter_map(|entry| declared(entry, None)).collect()
}

fn learn(name: &str, docs: &Value, known: &mut Words) {
    let mut words = BTreeSet::new();
    for (field, value) in pairs(docs) {
        match field.as_str() {
            "subcommands" => pairs(value).for_each(|(name, docs)| learn(&name, docs, known)),
            _ => tokens(value, &mut words),
        }
    }
    known.insert(name.to_owned(), words);
}

/// The values of all fields `token`, at any depth.
fn tokens(value: &Value, words: &mut BTreeSet<String>) {
    let Value::Array(items) = value else {
        return;
    };
    for (at, item) in items.iter().enumerate() {
        match items.get(at + 1).and_then(Value::bytes) {
            Some(token) if item.bytes() == Some(b"token") => drop(words.insert(text(token))),
            _ => tokens(item, words),
        }
    }
}

/// The fields of a map, which is a flat array in RESP2.
fn pairs(value: &Value) -> impl Iterator<Item = (String, &Value)> {
    let flat = if let Value::Array(flat) = value { flat.as_slice() } else { &[] };
    flat.chunks_exact(2).map(|pair| (text(pair[0].bytes().unwrap_or_default()), &pair[1]))
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// A command for random calls, with the words that are `known` to an oracle; `None` if it is unfit.
fn declared(entry: &Entry, known: Option<&BTreeSet<String>>) -> Option<Declared> {
    // Needs a third server.
    const UNFIT: &str = "migrate";
    const UNFIT_TO_COMPARE: [&str; 2] = [
        // Small sets are listpacks since 7.2; the dump knows.
        "object|encoding",
        // Since 7.2 it checks the largest deleted id.
        "xsetid",
    ];
    let command = entry.command;
    let name = entry.full_name.as_str();
    let family = match command.group {
        _ if ["zlexcount", "zrangebylex", "zrevrangebylex", "zremrangebylex"].contains(&name) => LEX,
        _ if ["select", "swapdb", "flushdb", "watch", "unwatch", "discard", "exec"].contains(&name) => SESSION,
        Group::String | Group::Bitmap => "string",
        Group::Hyperloglog => "hll",
        Group::Hash => "hash",
        Group::List => "list",
        Group::Set => "set",
        Group::SortedSet => "zset",
        Group::Geo => "geo",
        Group::Stream => "stream",
        Group::Generic => ANY_FAMILY,
        // Concerns the server, connections, messages or scripts, not data: the corpus and other tests cover these.
        _ => return None,
    };
    let is_container = !entry.sub.is_empty();
    let is_unfit = name == UNFIT || (known.is_some() && UNFIT_TO_COMPARE.contains(&name));
    if is_container || command.flags.contains(Flags::ADMIN) || command.name == "help" || is_unfit {
        return None;
    }
    let syntax = syntax::parse(command.syntax).unwrap_or_else(|e| panic!("{name}: {e}"));
    let syntax = match known {
        Some(known) => syntax.iter().filter_map(|arg| both_know(arg, known)).collect(),
        None => syntax,
    };
    let words = entry.full_name.to_ascii_uppercase().split('|').map(str::to_owned).collect();
    Some(Declared { words, family, syntax })
}

/// The argument without the words that the oracle does not know; `None` if nothing of it remains. Required words stay:
/// the oracle's documentation does not list all words of its commands.
fn both_know(arg: &Arg, known: &BTreeSet<String>) -> Option<Arg> {
    if arg.token.as_ref().is_some_and(|token| !known.contains(token)) {
        return (!arg.optional).then(|| arg.clone());
    }
    let all = |parts: &[Arg]| parts.iter().filter_map(|part| both_know(part, known)).collect::<Vec<_>>();
    let kind = match &arg.kind {
        Kind::OneOf(choices) => {
            let is_known = |choice: &&Arg| choice.token.as_ref().is_none_or(|token| known.contains(token));
            let left: Vec<Arg> =
                choices.iter().filter(is_known).filter_map(|choice| both_know(choice, known)).collect();
            match (left.is_empty(), arg.optional) {
                (true, true) => return None,
                (true, false) => arg.kind.clone(),
                (false, _) => Kind::OneOf(left),
            }
        }
        Kind::Block(parts) => {
            // An unknown word at the start of an optional block takes the block with it.
            let begins = parts.first().and_then(|part| part.token.as_ref());
            if arg.optional && begins.is_some_and(|token| !known.contains(token)) {
                return None;
            }
            Kind::Block(all(parts))
        }
        other => other.clone(),
    };
    Some(Arg { kind, ..arg.clone() })
}
