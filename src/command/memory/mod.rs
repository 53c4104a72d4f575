//! MEMORY: the size of keys, the use of the server's memory, and the return of free memory to the system.

mod doctor;
pub(super) mod overview;

use self::overview::Overview;
use super::help::help;
use crate::base::os::allocator;
use crate::engine::{Command, Ctx, Done, Run};
use crate::resp::reply::Reply;
use crate::spec::args::Args;
use crate::spec::error::Error;
use crate::spec::{Access, Flags, Group, KeySpec};

/// Sampled elements of a collection by default.
const DEFAULT_SAMPLES: usize = 5;

fn usage(ctx: &mut Ctx<'_>, mut args: Args<'_>) -> Done {
    let key = args.bytes()?;
    let mut samples = DEFAULT_SAMPLES;
    while !args.is_empty() {
        if !args.option("SAMPLES", 1) {
            return Err(Error::Syntax);
        }
        samples = usize::try_from(args.int()?).map_err(|_| Error::Syntax)?;
    }
    match ctx.ks.live(ctx.session.db, key) {
        Some(entry) => ctx.reply.integer(entry.mem_bytes(samples) as i64),
        None => ctx.reply.null(),
    }
    Ok(())
}

/// The value of a field of MEMORY STATS.
enum Field {
    Bytes(u64),
    Difference(i64),
    Share(f64),
}

/// The fields have Redis' names. Features that do not exist here (replicas, cluster links, tables rehashed as a whole)
/// show the values of a Redis without them.
fn stats(ctx: &mut Ctx<'_>, _: Args<'_>) -> Done {
    use Field::{Bytes, Difference, Share};
    // The reply shows which databases hold keys, and how many, so it depends on every change.
    ctx.ks.see_everything();
    let memory = Overview::new(ctx);
    let sum = |of: fn(&overview::Database) -> u64| memory.databases.iter().map(of).sum();
    let before_databases = [
        ("peak.allocated", Bytes(memory.peak)),
        ("total.allocated", Bytes(memory.used)),
        ("startup.allocated", Bytes(memory.startup)),
        ("replication.backlog", Bytes(0)),
        ("replica.fullsync.buffer", Bytes(0)),
        ("clients.slaves", Bytes(0)),
        ("clients.normal", Bytes(memory.clients)),
        ("cluster.links", Bytes(0)),
        ("aof.buffer", Bytes(memory.log)),
        ("lua.caches", Bytes(memory.scripts)),
        ("functions.caches", Bytes(memory.libraries)),
        ("script.VMs", Bytes(memory.lua)),
    ];
    let (fragmentation, retention) = (memory.fragmentation(), memory.retention());
    let (program, total) = (memory.program(), memory.total());
    let behind_databases = [
        ("overhead.db.hashtable.lut", Bytes(sum(|database| database.index))),
        ("overhead.db.hashtable.rehashing", Bytes(0)),
        ("overhead.total", Bytes(memory.overhead())),
        ("db.dict.rehashing.count", Bytes(0)),
        ("keys.count", Bytes(memory.keys())),
        ("keys.bytes-per-key", Bytes(memory.dataset().checked_div(memory.keys()).unwrap_or(0))),
        ("dataset.bytes", Bytes(memory.dataset())),
        ("dataset.percentage", Share(memory.dataset_percent())),
        ("peak.percentage", Share(memory.peak_percent())),
        ("allocator.allocated", Bytes(memory.used)),
        ("allocator.active", Bytes(memory.active)),
        ("allocator.resident", Bytes(memory.resident)),
        ("allocator.muzzy", Bytes(0)),
        ("allocator-fragmentation.ratio", Share(fragmentation.ratio())),
        ("allocator-fragmentation.bytes", Difference(fragmentation.bytes())),
        ("allocator-rss.ratio", Share(retention.ratio())),
        ("allocator-rss.bytes", Difference(retention.bytes())),
        ("rss-overhead.ratio", Share(program.ratio())),
        ("rss-overhead.bytes", Difference(program.bytes())),
        ("fragmentation", Share(total.ratio())),
        ("fragmentation.bytes", Difference(total.bytes())),
    ];
    let reply = &mut *ctx.reply;
    reply.map(before_databases.len() + memory.databases.len() + behind_databases.len());
    before_databases.iter().for_each(|field| write(reply, field));
    for database in &memory.databases {
        reply.bulk(format!("db.{}", database.number).as_bytes());
        reply.map(2);
        write(reply, &("overhead.hashtable.main", Bytes(database.main)));
        write(reply, &("overhead.hashtable.expires", Bytes(database.expires)));
    }
    behind_databases.iter().for_each(|field| write(reply, field));
    Ok(())
}

fn write(reply: &mut Reply, (name, value): &(&str, Field)) {
    reply.bulk(name.as_bytes());
    match *value {
        Field::Bytes(bytes) => reply.integer(bytes as i64),
        Field::Difference(bytes) => reply.integer(bytes),
        Field::Share(share) => reply.double(share),
    }
}

fn doctor(ctx: &mut Ctx<'_>, _: Args<'_>) -> Done {
    let report = doctor::report(&Overview::new(ctx));
    ctx.reply.verbatim(b"txt", report.as_bytes());
    Ok(())
}

fn malloc_stats(ctx: &mut Ctx<'_>, _: Args<'_>) -> Done {
    ctx.reply.verbatim(b"txt", allocator::report().as_bytes());
    Ok(())
}

fn purge(ctx: &mut Ctx<'_>, _: Args<'_>) -> Done {
    ctx.server.memory.purge(&mut ctx.server.programs, ctx.ks);
    ctx.reply.ok();
    Ok(())
}

/// Fields of subcommands that report on the whole server.
const REPORT: Command = Command {
    arity: 2,
    group: Group::Server,
    since: "4.0.0",
    complexity: "O(N) where N is the number of clients",
    tips: &["nondeterministic_output", "request_policy:all_shards", "response_policy:special"],
    ..Command::EMPTY
};

/// The family's table.
pub(super) const COMMANDS: &[Command] = &[Command {
    name: "memory",
    arity: -2,
    group: Group::Server,
    since: "4.0.0",
    complexity: "Depends on subcommand.",
    summary: "A container for memory commands.",
    sub: &[
        Command {
            name: "doctor",
            summary: "Returns a report on the faults of the server's memory, with advice.",
            run: Run::Now(doctor),
            ..REPORT
        },
        Command {
            name: "help",
            arity: 2,
            flags: Flags::LOADING.union(Flags::STALE),
            group: Group::Server,
            since: "4.0.0",
            summary: "Lists the subcommands.",
            run: Run::Now(help),
            ..Command::EMPTY
        },
        Command {
            name: "malloc-stats",
            summary: "Returns the allocator's statistics.",
            run: Run::Now(malloc_stats),
            ..REPORT
        },
        Command {
            name: "purge",
            complexity: "Depends on how much memory was freed; another thread returns it.",
            summary: "Returns free memory to the system.",
            tips: &["request_policy:all_shards", "response_policy:all_succeeded"],
            run: Run::Now(purge),
            ..REPORT
        },
        Command { name: "stats", summary: "Returns how the server's memory is used.", run: Run::Now(stats), ..REPORT },
        Command {
            name: "usage",
            arity: -3,
            flags: Flags::READONLY,
            keys: &[KeySpec::one(2, Access::Inspect)],
            group: Group::Server,
            since: "4.0.0",
            complexity: "O(N) where N is the number of samples",
            summary: "Estimates the bytes of a key; SAMPLES limits the sampled elements (0: all).",
            syntax: "key [SAMPLES count]",
            run: Run::Now(usage),
            ..Command::EMPTY
        },
    ],
    run: Run::Container,
    ..Command::EMPTY
}];
