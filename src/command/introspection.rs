//! COMMAND: the command table in the formats that clients, proxies and redis-cli read.

use crate::base::glob;
use crate::engine::{Command, Ctx, Done, Entry, Run};
use crate::resp::reply::Reply;
use crate::spec::args::Args;
use crate::spec::categories::{belongs_to, categories_of};
use crate::spec::error::Error;
use crate::spec::keys::legacy_range;
use crate::spec::syntax;
use crate::spec::syntax::{Arg, Kind};
use crate::spec::{Begin, Find, Flags, Group, KeySpec, Secret};

use super::help::help;

fn all(ctx: &mut Ctx<'_>, _: Args<'_>) -> Done {
    ctx.reply.array(ctx.table().iter().len());
    ctx.table().iter().for_each(|entry| describe(ctx.reply, entry));
    Ok(())
}

fn count(ctx: &mut Ctx<'_>, _: Args<'_>) -> Done {
    ctx.reply.integer(ctx.table().iter().len() as i64);
    Ok(())
}

fn info(ctx: &mut Ctx<'_>, args: Args<'_>) -> Done {
    if args.is_empty() {
        return all(ctx, args);
    }
    ctx.reply.array(args.len());
    for name in args.rest().iter() {
        match ctx.table().find_full(name) {
            Some(entry) => describe(ctx.reply, entry),
            None => ctx.reply.null(),
        }
    }
    Ok(())
}

/// Writes a command and its subcommands in the format of COMMAND INFO.
fn describe(reply: &mut Reply, entry: &Entry) {
    let command = entry.command;
    let (first, last, step) = legacy_range(command);
    reply.array(10);
    reply.bulk(entry.full_name.as_bytes());
    reply.integer(i64::from(command.arity));
    statuses(reply, &command.flags.names().collect::<Vec<_>>());
    reply.integer(first);
    reply.integer(last);
    reply.integer(step);
    statuses(reply, &categories_of(command).collect::<Vec<_>>());
    reply.set(command.tips.len());
    command.tips.iter().for_each(|tip| reply.bulk(tip.as_bytes()));
    reply.set(command.keys.len());
    command.keys.iter().for_each(|spec| describe_spec(reply, spec));
    // Clients take a command with subcommands for a container.
    if !command.is_container() {
        reply.set(0);
    } else {
        reply.array(entry.sub.len());
        entry.sub.iter().for_each(|sub| describe(reply, sub));
    }
}

fn statuses(reply: &mut Reply, names: &[&str]) {
    reply.set(names.len());
    names.iter().for_each(|name| reply.status(name));
}

fn describe_spec(reply: &mut Reply, spec: &KeySpec) {
    let named = |reply: &mut Reply, name: &str, value: i64| {
        reply.bulk(name.as_bytes());
        reply.integer(value);
    };
    let open = |reply: &mut Reply, kind: &str, fields: usize| {
        reply.map(2);
        reply.bulk(b"type");
        reply.bulk(kind.as_bytes());
        reply.bulk(b"spec");
        reply.map(fields);
    };
    reply.map(3);
    reply.bulk(b"flags");
    statuses(reply, spec.access.flag_names());
    reply.bulk(b"begin_search");
    match spec.begin {
        Begin::Index(index) => {
            open(reply, "index", 1);
            named(reply, "index", index as i64);
        }
        Begin::Keyword(word, from) => {
            open(reply, "keyword", 2);
            reply.bulk(b"keyword");
            reply.bulk(word.as_bytes());
            named(reply, "startfrom", i64::from(from));
        }
        Begin::Unknown => open(reply, "unknown", 0),
    }
    reply.bulk(b"find_keys");
    match spec.find {
        Find::Range { last, step, limit } => {
            open(reply, "range", 3);
            named(reply, "lastkey", i64::from(last));
            named(reply, "keystep", step as i64);
            named(reply, "limit", limit as i64);
        }
        Find::Counted | Find::CountedPairs => {
            open(reply, "keynum", 3);
            named(reply, "keynumidx", 0);
            named(reply, "firstkey", 1);
            named(reply, "keystep", if spec.find == Find::CountedPairs { 2 } else { 1 });
        }
        Find::Unknown => open(reply, "unknown", 0),
    }
}

fn docs(ctx: &mut Ctx<'_>, args: Args<'_>) -> Done {
    let table = ctx.table();
    let asked: Vec<&Entry> = match args.is_empty() {
        true => table.iter().collect(),
        false => args.rest().iter().filter_map(|name| table.find_full(name)).collect(),
    };
    ctx.reply.map(asked.len());
    asked.into_iter().for_each(|entry| document(ctx.reply, entry));
    Ok(())
}

/// Deprecated commands: the version of Redis that deprecated them, and their replacement.
const DEPRECATED: [(&str, &str, &str); 22] = [
    ("brpoplpush", "6.2.0", "`BLMOVE` with the `RIGHT` and `LEFT` arguments"),
    ("cluster|slaves", "5.0.0", "`CLUSTER REPLICAS`"),
    ("cluster|slots", "7.0.0", "`CLUSTER SHARDS`"),
    ("georadius", "6.2.0", "`GEOSEARCH` and `GEOSEARCHSTORE` with the `BYRADIUS` argument"),
    ("georadius_ro", "6.2.0", "`GEOSEARCH` with the `BYRADIUS` argument"),
    ("georadiusbymember", "6.2.0", "`GEOSEARCH` and `GEOSEARCHSTORE` with the `BYRADIUS` and `FROMMEMBER` arguments"),
    ("georadiusbymember_ro", "6.2.0", "`GEOSEARCH` with the `BYRADIUS` and `FROMMEMBER` arguments"),
    ("getset", "6.2.0", "`SET` with the `!GET` argument"),
    ("hmset", "4.0.0", "`HSET` with multiple field-value pairs"),
    ("psetex", "2.6.12", "`SET` with the `PX` argument"),
    ("quit", "7.2.0", "just closing the connection"),
    ("rpoplpush", "6.2.0", "`LMOVE` with the `RIGHT` and `LEFT` arguments"),
    ("sentinel|slaves", "5.0.0", "`SENTINEL REPLICAS`"),
    ("setex", "2.6.12", "`SET` with the `EX` argument"),
    ("setnx", "2.6.12", "`SET` with the `NX` argument"),
    ("slaveof", "5.0.0", "`REPLICAOF`"),
    ("substr", "2.0.0", "`GETRANGE`"),
    ("zrangebylex", "6.2.0", "`ZRANGE` with the `BYLEX` argument"),
    ("zrangebyscore", "6.2.0", "`ZRANGE` with the `BYSCORE` argument"),
    ("zrevrange", "6.2.0", "`ZRANGE` with the `REV` argument"),
    ("zrevrangebylex", "6.2.0", "`ZRANGE` with the `REV` and `BYLEX` arguments"),
    ("zrevrangebyscore", "6.2.0", "`ZRANGE` with the `REV` and `BYSCORE` arguments"),
];

/// Commands that are not meant for clients.
const SYSTEM: [&str; 5] = ["debug", "pfdebug", "pfselftest", "replconf", "restore-asking"];

/// Writes a command in the format of COMMAND DOCS: its name and a map.
fn document(reply: &mut Reply, entry: &Entry) {
    let command = entry.command;
    // A test makes sure that every syntax parses.
    let arguments = syntax::parse(command.syntax).unwrap_or_default();
    let is_container = command.is_container();
    reply.bulk(entry.full_name.as_bytes());
    let name = entry.full_name.as_str();
    let deprecated = DEPRECATED.iter().find(|deprecated| deprecated.0 == name);
    let flag = if SYSTEM.contains(&name) { Some("syscmd") } else { deprecated.map(|_| "deprecated") };
    let fields = usize::from(flag.is_some()) + 2 * usize::from(deprecated.is_some());
    reply.map(4 + fields + usize::from(!arguments.is_empty()) + usize::from(is_container));
    for (field, text) in [
        ("summary", command.summary.trim_end_matches('.')),
        ("since", command.since),
        ("group", command.group.name()),
        ("complexity", command.complexity),
    ] {
        reply.bulk(field.as_bytes());
        reply.bulk(text.as_bytes());
    }
    if let Some(flag) = flag {
        reply.bulk(b"doc_flags");
        statuses(reply, &[flag]);
    }
    if let Some((_, since, instead)) = deprecated {
        for (field, text) in [("deprecated_since", since), ("replaced_by", instead)] {
            reply.bulk(field.as_bytes());
            reply.bulk(text.as_bytes());
        }
    }
    if !arguments.is_empty() {
        reply.bulk(b"arguments");
        document_arguments(reply, &arguments, command.keys.len(), &mut 0);
    }
    if is_container {
        reply.bulk(b"subcommands");
        reply.map(entry.sub.len());
        entry.sub.iter().for_each(|sub| document(reply, sub));
    }
}

/// `specs` is the number of key specs; `keys` counts the key arguments documented so far. Each key argument belongs to
/// the next spec, and further ones to the last.
fn document_arguments(reply: &mut Reply, arguments: &[Arg], specs: usize, keys: &mut usize) {
    reply.array(arguments.len());
    for argument in arguments {
        let is_key = argument.kind == Kind::Key;
        let spec = specs.checked_sub(1).filter(|_| is_key).map(|last| last.min(*keys));
        *keys += usize::from(is_key);
        let flags: Vec<&str> = [
            (argument.optional, "optional"),
            (argument.multiple, "multiple"),
            (argument.multiple_token, "multiple_token"),
        ]
        .into_iter()
        .filter_map(|(set, name)| set.then_some(name))
        .collect();
        let parts = match &argument.kind {
            Kind::OneOf(parts) | Kind::Block(parts) => parts.as_slice(),
            _ => &[],
        };
        let is_value = parts.is_empty();
        let optional = [is_value, spec.is_some(), argument.token.is_some(), !flags.is_empty(), !parts.is_empty()];
        reply.map(2 + optional.iter().filter(|present| **present).count());
        for (field, text) in [("name", argument.name.as_str()), ("type", argument.kind.name())] {
            reply.bulk(field.as_bytes());
            reply.bulk(text.as_bytes());
        }
        if is_value {
            reply.bulk(b"display_text");
            reply.bulk(argument.shown.as_bytes());
        }
        if let Some(spec) = spec {
            reply.bulk(b"key_spec_index");
            reply.integer(spec as i64);
        }
        if let Some(token) = &argument.token {
            reply.bulk(b"token");
            reply.bulk(token.as_bytes());
        }
        if !flags.is_empty() {
            reply.bulk(b"flags");
            statuses(reply, &flags);
        }
        if !parts.is_empty() {
            reply.bulk(b"arguments");
            document_arguments(reply, parts, specs, keys);
        }
    }
}

fn list(ctx: &mut Ctx<'_>, mut args: Args<'_>) -> Done {
    enum Filter<'a> {
        None,
        /// There are no modules, so no command matches.
        Module,
        Category(String),
        Pattern(&'a [u8]),
    }
    let filter = if args.is_empty() {
        Filter::None
    } else if !args.flag("FILTERBY") {
        return Err(Error::Syntax);
    } else if args.option("MODULE", 1) {
        args.bytes()?;
        Filter::Module
    } else if args.option("ACLCAT", 1) {
        Filter::Category(format!("@{}", String::from_utf8_lossy(args.bytes()?).to_ascii_lowercase()))
    } else if args.option("PATTERN", 1) {
        Filter::Pattern(args.bytes()?)
    } else {
        return Err(Error::Syntax);
    };
    args.end()?;
    let wanted = |entry: &&Entry| match &filter {
        Filter::None => true,
        Filter::Module => false,
        Filter::Category(name) => belongs_to(entry.command, name),
        Filter::Pattern(pattern) => glob::matches_nocase(pattern, entry.full_name.as_bytes()),
    };
    let table = ctx.table();
    let names: Vec<&str> = table
        .iter()
        .flat_map(|entry| std::iter::once(entry).chain(&entry.sub))
        .filter(wanted)
        .map(|entry| entry.full_name.as_str())
        .collect();
    ctx.reply.array(names.len());
    names.iter().for_each(|name| ctx.reply.bulk(name.as_bytes()));
    Ok(())
}

fn getkeys(ctx: &mut Ctx<'_>, args: Args<'_>) -> Done {
    answer_keys(ctx, args, false)
}

fn getkeysandflags(ctx: &mut Ctx<'_>, args: Args<'_>) -> Done {
    answer_keys(ctx, args, true)
}

fn answer_keys(ctx: &mut Ctx<'_>, args: Args<'_>, with_flags: bool) -> Done {
    let argv = args.rest();
    let entry = ctx.table().named_by(argv).ok_or(Error::text("ERR Invalid command specified"))?;
    if !entry.command.has_keys() {
        return Err(Error::text("ERR The command has no key arguments"));
    }
    if !entry.command.accepts(argv.len()) {
        return Err(Error::text("ERR Invalid number of arguments specified for command"));
    }
    let keys = ctx.table().keys_of(entry.command, argv);
    let keys = keys.ok_or(Error::text("ERR Invalid arguments specified for command"))?;
    ctx.reply.array(keys.len());
    for key in keys {
        if with_flags {
            ctx.reply.array(2);
        }
        ctx.reply.bulk(&argv[key.index]);
        if with_flags {
            statuses(ctx.reply, key.access.flag_names());
        }
    }
    Ok(())
}

/// Fields that all subcommands of COMMAND share.
const SUB: Command = Command {
    flags: Flags::LOADING.union(Flags::STALE).union(Flags::SENTINEL),
    group: Group::Server,
    categories: &["@connection"],
    since: "2.8.13",
    ..Command::EMPTY
};

/// The family's table.
pub(super) const COMMANDS: &[Command] = &[Command {
    name: "command",
    arity: -1,
    complexity: "O(N) where N is the number of commands",
    summary: "Returns information about all commands.",
    tips: &["nondeterministic_output_order"],
    sub: &[
        Command { name: "count", arity: 2, summary: "Returns the number of commands.", run: Run::Now(count), ..SUB },
        Command {
            name: "docs",
            arity: -2,
            since: "7.0.0",
            complexity: "O(N) where N is the number of commands asked for",
            summary: "Returns the documentation of commands.",
            syntax: "[command-name...]",
            tips: &["nondeterministic_output_order"],
            run: Run::Now(docs),
            ..SUB
        },
        Command {
            name: "getkeys",
            arity: -3,
            complexity: "O(N) where N is the number of arguments to the command",
            summary: "Returns the keys of a given command call.",
            syntax: "command [arg...]",
            secrets: &[Secret::Call { first: 2 }],
            run: Run::Now(getkeys),
            ..SUB
        },
        Command {
            name: "getkeysandflags",
            arity: -3,
            since: "7.0.0",
            complexity: "O(N) where N is the number of arguments to the command",
            summary: "Returns the keys of a given command call and how each is accessed.",
            syntax: "command [arg...]",
            secrets: &[Secret::Call { first: 2 }],
            run: Run::Now(getkeysandflags),
            ..SUB
        },
        Command {
            name: "help",
            arity: 2,
            since: "5.0.0",
            summary: "Lists the subcommands.",
            run: Run::Now(help),
            ..SUB
        },
        Command {
            name: "info",
            arity: -2,
            complexity: "O(N) where N is the number of commands asked for",
            summary: "Returns information about the named commands, or about all of them.",
            syntax: "[command-name...]",
            tips: &["nondeterministic_output_order"],
            run: Run::Now(info),
            ..SUB
        },
        Command {
            name: "list",
            arity: -2,
            since: "7.0.0",
            complexity: "O(N) where N is the number of commands",
            summary: "Returns the names of commands.",
            syntax: "[FILTERBY <MODULE module-name | ACLCAT category | PATTERN pattern>]:filterby",
            tips: &["nondeterministic_output_order"],
            run: Run::Now(list),
            ..SUB
        },
    ],
    run: Run::Now(all),
    ..SUB
}];
