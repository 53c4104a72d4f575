//! HOTKEYS: the keys that take the most time and traffic, from a [collection](crate::meters::hotkeys) that a
//! client starts.

use super::help::help;
use crate::base::num;
use crate::engine::{Command, Ctx, Done, Run};
use crate::meters::hotkeys::{HotKeys, Wanted};
use crate::meters::stats::Stats;
use crate::resp::reply::Reply;
use crate::spec::args::Args;
use crate::spec::error::Error;
use crate::spec::{Flags, Group};

/// The number of keys shown for each metric by default.
const DEFAULT_COUNT: usize = 10;

fn start(ctx: &mut Ctx<'_>, mut args: Args<'_>) -> Done {
    ctx.server.meters.end_hotkeys_if_due(&ctx.server.config, &ctx.server.time.clock);
    if ctx.server.meters.hotkeys.as_ref().is_some_and(|hot_keys| hot_keys.is_running()) {
        return Err(Error::text("ERR hotkey tracking session already in progress"));
    }
    let wanted = wanted(&mut args)?;
    ctx.server.meters.start_hotkeys(&ctx.server.config, &ctx.server.time.clock, wanted);
    ctx.reply.ok();
    Ok(())
}

fn wanted(args: &mut Args<'_>) -> Result<Wanted, Error> {
    if !args.option("METRICS", 1) {
        return Err(Error::text("ERR METRICS parameter is required"));
    }
    let metrics = within(args, 1, 2, "ERR METRICS count must be > 0 and <= 2")?;
    let (mut cpu, mut net) = (false, false);
    for _ in 0..metrics {
        if args.is_empty() {
            return Err(Error::text("ERR METRICS count does not match number of metric types provided"));
        }
        if args.flag("CPU") {
            if std::mem::replace(&mut cpu, true) {
                return Err(Error::text("ERR METRICS CPU defined more than once!"));
            }
        } else if args.flag("NET") {
            if std::mem::replace(&mut net, true) {
                return Err(Error::text("ERR METRICS NET defined more than once!"));
            }
        } else {
            // A metric of later versions.
            args.bytes()?;
        }
    }
    if !cpu && !net {
        return Err(Error::text("ERR METRICS no valid metrics passed. Supported: CPU|NET"));
    }
    let mut wanted = Wanted { cpu, net, count: DEFAULT_COUNT, duration_ms: None, sample_ratio: 1 };
    while !args.is_empty() {
        if args.option("COUNT", 1) {
            wanted.count = within(args, 1, 64, "ERR COUNT must be between 1 and 64")? as usize;
        } else if args.option("DURATION", 1) {
            let seconds = within(args, 1, 1_000_000, "ERR DURATION must be between 1 and 1000000")?;
            wanted.duration_ms = Some(seconds * 1_000);
        } else if args.option("SAMPLE", 1) {
            wanted.sample_ratio = within(args, 1, i64::from(i32::MAX), "ERR SAMPLE ratio must be positive")? as u64;
        } else if args.option("SLOTS", 1) {
            return Err(Error::text("ERR SLOTS parameter cannot be used in non-cluster mode"));
        } else {
            return Err(Error::Syntax);
        }
    }
    Ok(wanted)
}

fn within(args: &mut Args<'_>, least: i64, most: i64, otherwise: &'static str) -> Result<i64, Error> {
    let number = num::parse_i64(args.bytes()?).filter(|number| (least..=most).contains(number));
    number.ok_or(Error::text(otherwise))
}

fn stop(ctx: &mut Ctx<'_>, _: Args<'_>) -> Done {
    ctx.server.meters.end_hotkeys_if_due(&ctx.server.config, &ctx.server.time.clock);
    match ctx.server.meters.stop_hotkeys(&ctx.server.config, &ctx.server.time.clock) {
        true => ctx.reply.ok(),
        false => ctx.reply.null(),
    }
    Ok(())
}

fn get(ctx: &mut Ctx<'_>, _: Args<'_>) -> Done {
    ctx.server.meters.end_hotkeys_if_due(&ctx.server.config, &ctx.server.time.clock);
    match &ctx.server.meters.hotkeys {
        None => ctx.reply.null(),
        Some(hot_keys) => write(ctx.reply, hot_keys, &ctx.server.meters.stats, ctx.server.time.clock.steady_ms()),
    }
    Ok(())
}

/// Writes an array of one map: clients of a cluster concatenate the arrays of all nodes.
fn write(reply: &mut Reply, hot_keys: &HotKeys, stats: &Stats, steady_ms: i64) {
    let Wanted { cpu, net, sample_ratio, .. } = hot_keys.wanted;
    let (took_ms, cpu_time) = hot_keys.took(steady_ms);
    let field = |reply: &mut Reply, name: &str, value: i64| {
        reply.bulk(name.as_bytes());
        reply.integer(value);
    };
    reply.array(1);
    reply.map(7 + if cpu { 3 } else { 0 } + if net { 2 } else { 0 });
    field(reply, "tracking-active", i64::from(hot_keys.is_running()));
    field(reply, "sample-ratio", sample_ratio as i64);
    // All slots, as on a server that serves every slot: an array of ranges.
    reply.bulk(b"selected-slots");
    reply.array(1);
    reply.array(2);
    reply.integer(0);
    reply.integer(16_383);
    field(reply, "all-commands-all-slots-us", stats.micros(hot_keys.ticks) as i64);
    field(reply, "net-bytes-all-commands-all-slots", hot_keys.bytes as i64);
    field(reply, "collection-start-time-unix-ms", hot_keys.started_ms);
    field(reply, "collection-duration-ms", took_ms);
    if cpu {
        field(reply, "total-cpu-time-user-ms", (cpu_time.user_us / 1_000) as i64);
        field(reply, "total-cpu-time-sys-ms", (cpu_time.sys_us / 1_000) as i64);
    }
    if net {
        field(reply, "total-net-bytes", hot_keys.sampled_bytes as i64);
    }
    if cpu {
        let of_ticks = hot_keys.by_ticks().into_iter().map(|(key, ticks)| (key, stats.micros(ticks)));
        write_keys(reply, "by-cpu-time-us", &of_ticks.collect::<Vec<_>>());
    }
    if net {
        write_keys(reply, "by-net-bytes", &hot_keys.by_bytes());
    }
}

fn write_keys(reply: &mut Reply, name: &str, keys: &[(&[u8], u64)]) {
    reply.bulk(name.as_bytes());
    reply.array(2 * keys.len());
    for (key, amount) in keys {
        reply.bulk(key);
        reply.integer(*amount as i64);
    }
}

fn reset(ctx: &mut Ctx<'_>, _: Args<'_>) -> Done {
    ctx.server.meters.end_hotkeys_if_due(&ctx.server.config, &ctx.server.time.clock);
    if ctx.server.meters.hotkeys.take_if(|hot_keys| !hot_keys.is_running()).is_none()
        && ctx.server.meters.hotkeys.is_some()
    {
        return Err(Error::text("ERR hotkey tracking session in progress, stop tracking first"));
    }
    ctx.reply.ok();
    Ok(())
}

/// Fields that most subcommands of HOTKEYS share.
const SUB: Command = Command {
    arity: 2,
    flags: Flags::ADMIN.union(Flags::NOSCRIPT),
    group: Group::Server,
    since: "8.6.0",
    ..Command::EMPTY
};

/// The family's table.
pub(super) const COMMANDS: &[Command] = &[Command {
    name: "hotkeys",
    arity: -2,
    group: Group::Server,
    since: "8.6.0",
    complexity: "Depends on subcommand.",
    summary: "A container for commands that find the keys with the most time and traffic.",
    sub: &[
        Command {
            name: "get",
            complexity: "O(K) where K is the number of hotkeys returned.",
            summary: "Returns the result of the current or last collection.",
            run: Run::Now(get),
            ..SUB
        },
        Command {
            name: "help",
            flags: Flags::LOADING.union(Flags::STALE),
            summary: "Lists the subcommands.",
            run: Run::Now(help),
            ..SUB
        },
        Command { name: "reset", summary: "Discards the results of the collection.", run: Run::Now(reset), ..SUB },
        Command {
            name: "start",
            arity: -2,
            summary: "Starts collecting the keys with the most CPU time, network bytes, or both.",
            syntax: "METRICS count:integer [CPU] [NET] [COUNT k:integer] [DURATION seconds:integer] [SAMPLE \
                ratio:integer] \
                     [SLOTS count:integer slot:integer...]",
            run: Run::Now(start),
            ..SUB
        },
        Command { name: "stop", summary: "Ends the collection; its results stay.", run: Run::Now(stop), ..SUB },
    ],
    run: Run::Container,
    ..Command::EMPTY
}];
