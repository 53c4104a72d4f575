//! CONFIG: reading and changing parameters while the server runs.

use super::help::help;
use crate::base::descriptors::make_room;
use crate::base::logging;
use crate::config::{Config, Refusal, SetError};
use crate::engine::args::Args;
use crate::engine::error::Error;
use crate::engine::spec::{Flags, Group, Secret};
use crate::engine::wait::Wait;
use crate::engine::{Command, Ctx, Done, Flow, MayWait, NetworkRefusal, Run};
use crate::keyspace::ValueLimits;
use crate::resp::reply::Reply;

fn get(ctx: &mut Ctx<'_>, args: Args<'_>) -> Done {
    let found = ctx.server.config.matching(args.rest().iter());
    ctx.reply.map(found.len());
    for (name, value) in found {
        ctx.reply.bulk(&name);
        ctx.reply.bulk(&value);
    }
    Ok(())
}

fn set(ctx: &mut Ctx<'_>, args: Args<'_>) -> MayWait {
    let words: Vec<&[u8]> = args.rest().iter().collect();
    if !words.len().is_multiple_of(2) {
        return Err(Error::Syntax);
    }
    let pairs = words.chunks_exact(2).map(|pair| (pair[0], pair[1]));
    let config = &mut ctx.server.config;
    let before = config.clone();
    let changed = config.set(pairs, ctx.session.is_local).map_err(|error| Error::owned(error.to_string()))?;
    if config.maxclients > before.maxclients
        && let Err(possible) = make_room(config.maxclients)
    {
        *config = before;
        let refused = SetError::Refused { name: "maxclients".to_owned(), reason: Refusal::TooManyClients(possible) };
        return Err(Error::owned(refused.to_string()));
    }
    if ctx.server.loading.is_some() && config.appendonly != before.appendonly {
        *config = before;
        return Err(Error::text(
            "ERR CONFIG SET failed (possibly related to argument 'appendonly') - the data is being loaded",
        ));
    }
    let leaves_policy = config.appendfsync != before.appendfsync || before.appendonly && !config.appendonly;
    if leaves_policy && let Some(wait) = wait_for_log(ctx) {
        ctx.server.config = before;
        return Ok(Flow::wait(wait));
    }
    // These can fail, and come before all that can't.
    reconfigure_network(ctx, &before, &words)?;
    let policy = ctx.server.config.appendfsync;
    if policy != before.appendfsync
        && let Err(error) = ctx.server.set_sync_policy(policy)
    {
        let set = std::mem::replace(&mut ctx.server.config, before);
        take_back_network(ctx, &set, &words);
        let failed = "ERR CONFIG SET failed (possibly related to argument 'appendfsync') - ";
        return Err(Error::owned(format!("{failed}{error}")));
    }
    if before.appendonly
        && !ctx.server.config.appendonly
        && let Err(error) = ctx.server.end_log(ctx.ks)
    {
        let set = std::mem::replace(&mut ctx.server.config, before);
        take_back_network(ctx, &set, &words);
        let failed = "ERR CONFIG SET failed (possibly related to argument 'appendonly') - ";
        return Err(Error::owned(format!("{failed}{error}")));
    }
    for parameter in changed {
        match parameter.name {
            "appendonly" if ctx.server.wants_log() => ctx.server.request_log(),
            "save" | "stop-writes-on-bgsave-error" => ctx.server.saving_rules_changed(ctx.session),
            "requirepass" => ctx.server.password_changed(ctx.session),
            // While the data is loaded the limits are those that it was made under; the new ones hold from then on.
            "script-memory-limit" | "script-cache-max-bytes" if ctx.server.loading.is_some() => {}
            "script-memory-limit" => ctx.server.scripts.set_memory_limit(ctx.server.config.script_memory_limit),
            "maxmemory" => ctx.server.memory_limit_changed(ctx.ks, ctx.session),
            "maxmemory-policy" | "lfu-log-factor" | "lfu-decay-time" => ctx.server.eviction_policy_changed(ctx.ks),
            "script-cache-max-bytes" => {
                ctx.server.scripts.limit_cache(ctx.ks, ctx.server.config.script_cache_max_bytes);
            }
            "script-slow-threshold" | "script-slow-max-len" => {
                let server = &mut *ctx.server;
                server.stats.scripts.slow.configure(&server.config, &server.stats.clock);
            }
            "latency-tracking" => ctx.server.stats.track_latencies(ctx.server.config.latency_tracking),
            name if name.starts_with("slowlog-")
                || name.starts_with("commandlog-")
                || name == "latency-monitor-threshold" =>
            {
                let server = &mut *ctx.server;
                server.command_log.configure(&server.config, &server.stats.clock);
                server.latency.set_threshold_ms(server.config.latency_monitor_threshold_ms);
            }
            "loglevel" => logging::set_level(ctx.server.config.loglevel.filter()),
            _ => {}
        }
        if matches!(parameter.name, "maxmemory" | "maxmemory-clients") {
            ctx.server.clients_limit_changed(ctx.session);
        }
        if let Some(warning) = ctx.server.config.warning(parameter) {
            tracing::warn!("{warning}");
        }
    }
    if ctx.server.loading.is_none() {
        ctx.ks.set_limits(ValueLimits::from(&ctx.server.config));
    }
    ctx.reply.ok();
    Ok(Flow::Replied)
}

/// Whether the network floor acts on a parameter. It does so also if its value is the same: the file of that name may be another.
fn is_of_network(name: &[u8]) -> bool {
    let name = name.to_ascii_lowercase();
    name.starts_with(b"tls-") || name == b"port" || name == b"bind"
}

/// Has the network floor act on what was set, if that concerns it; if it refuses, everything is as `before`.
fn reconfigure_network(ctx: &mut Ctx<'_>, before: &Config, words: &[&[u8]]) -> Result<(), Error> {
    let server = &mut *ctx.server;
    let names = || words.iter().step_by(2).filter(|name| is_of_network(name));
    if names().next().is_none() {
        return Ok(());
    }
    let done = server.network.as_mut().map_or(Ok(()), |network| network.reconfigure(before, &server.config));
    done.map_err(|refusal| {
        server.config = before.clone();
        let is_to_blame = |name: &&&[u8]| match refusal {
            NetworkRefusal::Tls => name.to_ascii_lowercase().starts_with(b"tls-"),
            NetworkRefusal::Port => name.to_ascii_lowercase().ends_with(b"port"),
            NetworkRefusal::Address => name.eq_ignore_ascii_case(b"bind"),
        };
        let name = names().find(is_to_blame).or_else(|| names().next()).copied().unwrap_or_default();
        let name = String::from_utf8_lossy(name);
        Error::owned(format!("ERR CONFIG SET failed (possibly related to argument '{name}') - {refusal}"))
    })
}

/// Has it act on the values that there were before `words` were set, and are again.
fn take_back_network(ctx: &mut Ctx<'_>, set: &Config, words: &[&[u8]]) {
    if let Err(error) = reconfigure_network(ctx, set, words) {
        tracing::warn!(?error, "what was set could not be taken back");
    }
}

/// Makes sure that what was logged before the command came is on disk before the log is closed, or synced at other times. That may
/// take long, so who asks waits for it, and nobody else. What others log meanwhile is then made durable in place.
fn wait_for_log(ctx: &mut Ctx<'_>) -> Option<Wait> {
    // One that takes nothing has its reasons, which the client is told at once.
    if !ctx.may_wait() || ctx.server.durability.is_none() || ctx.server.is_unlogged() {
        return None;
    }
    if !ctx.is_retry() {
        ctx.session.fence = ctx.session.fence.max(ctx.server.begin_sync());
    }
    let on_timeout = |reply: &mut Reply| reply.error(b"ERR CONFIG SET was given up: nothing has changed");
    (!ctx.server.is_durable(ctx.session.fence)).then(|| Wait {
        retry_at_ms: Some(ctx.now_ms() + ctx.server.look_again_at_log().as_millis() as i64),
        ..Wait::until(None, on_timeout)
    })
}

fn reset_stat(ctx: &mut Ctx<'_>, _: Args<'_>) -> Done {
    ctx.server.stats.reset();
    ctx.server.turns.reset();
    ctx.ks.reset_stats();
    ctx.server.scripts.reset_stats();
    ctx.reply.ok();
    Ok(())
}

/// An entry of CONFIG: what most have in common.
const SUB: Command = Command {
    flags: Flags::ADMIN.and(Flags::NOSCRIPT).and(Flags::LOADING).and(Flags::STALE),
    group: Group::Server,
    since: "2.0.0",
    ..Command::EMPTY
};

/// The family's table.
pub(super) const COMMANDS: &[Command] = &[Command {
    name: "config",
    arity: -2,
    group: Group::Server,
    since: "2.0.0",
    complexity: "Depends on subcommand.",
    summary: "Holds the commands about the server's parameters.",
    sub: &[
        Command {
            name: "get",
            arity: -3,
            complexity: "O(N) where N is the number of parameters asked for",
            summary: "Answers the parameters whose names match any of the patterns, with their values.",
            syntax: "parameter...",
            run: Run::Now(get),
            ..SUB
        },
        Command {
            name: "help",
            arity: 2,
            flags: Flags::LOADING.and(Flags::STALE),
            since: "5.0.0",
            summary: "Lists the subcommands.",
            run: Run::Now(help),
            ..SUB
        },
        Command {
            name: "resetstat",
            arity: 2,
            summary: "Sets the counters of INFO to zero.",
            tips: &["request_policy:all_nodes", "response_policy:all_succeeded"],
            run: Run::Now(reset_stat),
            ..SUB
        },
        Command {
            name: "set",
            arity: -4,
            secrets: &[Secret::Settings { first: 2 }],
            complexity: "O(N) where N is the number of parameters",
            summary: "Changes parameters, all of them or, with an error, none.",
            syntax: "(parameter value):data...",
            tips: &["request_policy:all_nodes", "response_policy:all_succeeded"],
            run: Run::MayWait(set),
            ..SUB
        },
    ],
    run: Run::Container,
    ..Command::EMPTY
}];
