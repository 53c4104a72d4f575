//! The effects of CONFIG SET: a function for each [`Act`] of the parameter table.
//!
//! A function runs when `ctx.server.config` already has the new values; it also gets the old ones. It makes the server
//! follow the new values, or fails and changes nothing. To undo it, it is called again with old and new exchanged.

use crate::base::os::{logging, process_title};
use crate::config::{Act, Config, NetworkPart, Parameter, Refusal};
use crate::engine::{Ctx, NetworkRefusal, ServerState};

/// The direction of an act.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Doing {
    /// A client asked for the change.
    Change,
    /// The change is undone because another act of the same command failed.
    Undo,
}

/// The reason why an act failed.
pub(super) struct Failure {
    pub(super) reason: Refusal,
    /// The parameters, of those that asked for the act, to name in the error.
    pub(super) is_to_blame: fn(&Parameter) -> bool,
}

impl From<Refusal> for Failure {
    fn from(reason: Refusal) -> Failure {
        Failure { reason, is_to_blame: |_| true }
    }
}

/// Performs one act of the change from `before` to the current configuration.
pub(super) fn act(ctx: &mut Ctx<'_>, act: Act, before: &Config, doing: Doing) -> Result<(), Failure> {
    match act {
        Act::None => {}
        Act::Clients => clients(ctx, before)?,
        Act::OomScore => oom_score(ctx)?,
        Act::Network => return network(ctx, before),
        Act::SyncPolicy => sync_policy(ctx)?,
        Act::Log => log(ctx, doing)?,
        Act::Saving => ctx.server.saving_rules_changed(ctx.session),
        Act::Followers => ctx.server.copies_changed(ctx.session),
        Act::Password => {
            // Authenticated sessions stay authenticated.
            ctx.server.acl.set_default_password(&ctx.server.config.requirepass, ctx.server.table);
            ctx.server.connections().users_changed(ctx.session);
        }
        Act::Memory => {
            let ServerState { config, programs, persistence, clients, meters, memory, .. } = &mut *ctx.server;
            memory.limit_changed(config, programs, persistence, ctx.ks);
            clients.set_metered(config.maxmemory > 0, ctx.session);
            // The limit for clients may be a percentage of `maxmemory`.
            clients.limit_changed(config, &mut meters.stats, ctx.session);
        }
        Act::ClientsMemory => {
            ctx.server.clients.limit_changed(&ctx.server.config, &mut ctx.server.meters.stats, ctx.session)
        }
        Act::EvictionPolicy => ctx.server.eviction_policy_changed(ctx.ks),
        // Data being loaded or received was made under limits that must still hold. The new ones apply after that.
        Act::ScriptMemory | Act::ScriptCache if !ctx.server.persistence.has_own_data() => {}
        Act::ScriptMemory => ctx.server.programs.scripts.set_memory_limit(ctx.server.config.script_memory_limit),
        Act::ScriptCache => ctx.server.programs.scripts.limit_cache(ctx.ks, ctx.server.config.script_cache_max_bytes),
        Act::ScriptSlow => {
            let server = &mut *ctx.server;
            server.meters.stats.scripts.slow.configure(&server.config, &server.meters.stats.clock);
        }
        Act::CommandLog => {
            let server = &mut *ctx.server;
            server.meters.command_log.configure(&server.config, &server.meters.stats.clock);
        }
        Act::LatencyTracking => ctx.server.meters.stats.track_latencies(ctx.server.config.latency_tracking),
        Act::LatencyThreshold => {
            let server = &mut *ctx.server;
            server.meters.command_log.configure(&server.config, &server.meters.stats.clock);
            server.meters.latency.set_threshold_ms(server.config.latency_monitor_threshold_ms);
        }
        Act::Events => ctx.server.events_changed(ctx.ks),
        Act::KeyPrefixes => ctx.server.meters.key_prefixes_changed(&ctx.server.config, ctx.ks),
        Act::LogLevel => logging::set_level(ctx.server.config.loglevel.filter()),
        Act::Title => {
            let title = ctx.server.config.title(process_title::program());
            title.iter().for_each(|title| process_title::set(title));
        }
    }
    Ok(())
}

fn clients(ctx: &mut Ctx<'_>, before: &Config) -> Result<(), Refusal> {
    let config = &ctx.server.config;
    if config.maxclients <= before.maxclients {
        return Ok(());
    }
    config.make_room_for_clients().map_err(Refusal::TooManyClients)
}

fn oom_score(ctx: &mut Ctx<'_>) -> Result<(), Refusal> {
    ctx.server.config.adjust_oom_score().map_err(|error| {
        tracing::warn!("oom_score_adj can't be set: {error}");
        Refusal::Failed("Failed to set current oom_score_adj. Check server logs.".into())
    })
}

fn network(ctx: &mut Ctx<'_>, before: &Config) -> Result<(), Failure> {
    let server = &mut *ctx.server;
    let done = server.network.listeners.as_mut().map_or(Ok(()), |network| network.reconfigure(before, &server.config));
    done.map_err(|refusal| Failure {
        reason: Refusal::Failed(refusal.to_string()),
        is_to_blame: match refusal {
            NetworkRefusal::Tls => {
                |parameter| matches!(parameter.part, Some(NetworkPart::Certificates | NetworkPart::TlsPort))
            }
            NetworkRefusal::Port => {
                |parameter| matches!(parameter.part, Some(NetworkPart::Port | NetworkPart::TlsPort))
            }
            NetworkRefusal::Address => |parameter| parameter.part == Some(NetworkPart::Address),
        },
    })
}

fn sync_policy(ctx: &mut Ctx<'_>) -> Result<(), Refusal> {
    let policy = ctx.server.config.appendfsync;
    let set = ctx.server.persist(ctx.ks, |persistence, _, _| persistence.set_sync_policy(policy));
    set.map_err(Refusal::Failed)
}

fn log(ctx: &mut Ctx<'_>, doing: Doing) -> Result<(), Refusal> {
    if ctx.server.persistence.loading.is_some() && doing == Doing::Change {
        return Err(Refusal::Failed("the data is being loaded".into()));
    }
    if !ctx.server.config.appendonly {
        return ctx
            .server
            .persist(ctx.ks, |persistence, ks, _| persistence.end_log(ks))
            .map_err(|error| Refusal::Failed(error.to_string()));
    }
    if ctx.server.persistence.wants_log(&ctx.server.config) {
        let steady_ms = ctx.server.time.clock.steady_ms();
        ctx.server.persistence.request_log(steady_ms);
    }
    Ok(())
}
