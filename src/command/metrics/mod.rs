//! Metrics in Prometheus' text format (0.0.4). INFO's figures have the names that redis_exporter gives them, so its
//! dashboards work; figures that Redis does not have are named `tidegate_...`.
//!
//! [`FIGURES`] maps fields of INFO to metrics. Figures by command, error, event or database have a function each. Every
//! figure comes from the source that INFO reads, so the two can't differ. Numbers of keys do not wait for the journal,
//! although a crash may take back the last changes: they show no data.

mod coordination;
mod group;
mod journal;

use std::collections::HashMap;

use super::info::sections;
use super::latency::steps_of;
use crate::base::version::TIDEGATE_VERSION;
use crate::engine::{Ctx, Engine};
use crate::meters::exposition::{Kind, head, sample, single};
use crate::persist::journal::Journal;
use crate::session::registry::Readiness;

/// A field of INFO as a metric.
struct Figure {
    field: &'static str,
    metric: &'static str,
    kind: Kind,
    help: &'static str,
}

macro_rules! figures {
    ($($field:literal, $metric:literal, $kind:ident, $help:literal;)+) => {
        &[$(Figure { field: $field, metric: $metric, kind: Kind::$kind, help: $help },)+]
    };
}

const FIGURES: &[Figure] = figures! {
    "uptime_in_seconds", "redis_uptime_in_seconds", Gauge, "Seconds since the server started.";
    "connected_clients", "redis_connected_clients", Gauge, "Connected clients.";
    "maxclients", "redis_max_clients", Gauge, "The maximum number of connections.";
    "blocked_clients", "redis_blocked_clients", Gauge, "Clients waiting in blocking commands.";
    "waiting_tickets", "tidegate_waiting_tickets", Gauge, "Waiting calls that do not block their connections (ASYNC).";
    "pubsub_clients", "redis_pubsub_clients", Gauge, "Clients with subscriptions.";
    "watching_clients", "redis_watching_clients", Gauge, "Clients that watch keys.";
    "importing_clients", "redis_importing_clients", Gauge,
        "Clients with CLIENT IMPORT-SOURCE on; while there is one, nothing expires.";
    "tracking_clients", "redis_tracking_clients", Gauge, "Clients with CLIENT TRACKING on.";
    "used_memory", "redis_memory_used_bytes", Gauge, "Bytes allocated and in use.";
    "used_memory_rss", "redis_memory_used_rss_bytes", Gauge, "Resident bytes of the process.";
    "used_memory_peak", "redis_memory_used_peak_bytes", Gauge, "The peak of bytes in use.";
    "used_memory_overhead", "redis_memory_used_overhead_bytes", Gauge, "Bytes in use, without the data.";
    "used_memory_startup", "redis_memory_used_startup_bytes", Gauge, "Bytes in use at startup.";
    "used_memory_dataset", "redis_memory_used_dataset_bytes", Gauge, "Bytes of the data.";
    "used_memory_lua", "redis_memory_used_lua_bytes", Gauge, "Bytes held by Lua.";
    "used_memory_scripts", "redis_memory_used_scripts_bytes", Gauge, "Bytes of the texts of scripts and libraries.";
    "total_system_memory", "redis_total_system_memory_bytes", Gauge, "Bytes of memory of the machine.";
    "maxmemory", "redis_memory_max_bytes", Gauge, "The memory limit; 0 for none.";
    "allocator_allocated", "redis_allocator_allocated_bytes", Gauge, "Bytes allocated.";
    "allocator_active", "redis_allocator_active_bytes", Gauge, "Bytes allocated, with the free places between keys.";
    "allocator_resident", "redis_allocator_resident_bytes", Gauge, "Bytes of memory without a file behind it.";
    "mem_fragmentation_ratio", "redis_mem_fragmentation_ratio", Gauge, "Resident bytes divided by bytes in use.";
    "mem_fragmentation_bytes", "redis_mem_fragmentation_bytes", Gauge, "Resident bytes that are not in use.";
    "mem_clients_normal", "redis_mem_clients_normal", Gauge, "Bytes held for clients.";
    "mem_acl", "tidegate_mem_acl_bytes", Gauge, "Bytes of users and of the entries of ACL LOG.";
    "mem_history", "tidegate_mem_history_bytes", Gauge,
        "Bytes of the records of SLOWLOG, COMMANDLOG, SCRIPT SLOW, HOTKEYS, LATENCY and EVENTS.";
    "mem_not_counted_for_evict", "redis_mem_not_counted_for_eviction_bytes", Gauge,
        "Bytes that eviction does not count.";
    "lazyfree_pending_objects", "redis_lazyfree_pending_objects", Gauge, "Values waiting to be freed.";
    "loading", "redis_loading_dump_file", Gauge, "Whether the data is being loaded.";
    "rdb_changes_since_last_save", "redis_rdb_changes_since_last_save", Gauge, "Changes since the last snapshot.";
    "rdb_bgsave_in_progress", "redis_rdb_bgsave_in_progress", Gauge, "Whether a snapshot is being made.";
    "rdb_last_save_time", "redis_rdb_last_save_timestamp_seconds", Gauge, "Time of the last snapshot, Unix s.";
    "rdb_last_bgsave_time_sec", "redis_rdb_last_bgsave_duration_sec", Gauge,
        "Duration of the last snapshot in seconds.";
    "rdb_current_bgsave_time_sec", "redis_rdb_current_bgsave_duration_sec", Gauge,
        "Seconds since the snapshot in progress began.";
    "rdb_saves", "redis_rdb_saves_total", Counter, "Snapshots made.";
    "aof_enabled", "redis_aof_enabled", Gauge, "Whether changes are written to the journal.";
    "aof_rewrite_in_progress", "redis_aof_rewrite_in_progress", Gauge,
        "Whether a snapshot is being made to replace the journal.";
    "aof_rewrite_scheduled", "redis_aof_rewrite_scheduled", Gauge,
        "Whether a snapshot to replace the journal is scheduled.";
    "aof_last_rewrite_time_sec", "redis_aof_last_rewrite_duration_sec", Gauge,
        "Duration of the last snapshot that replaced the journal, in seconds.";
    "aof_current_rewrite_time_sec", "redis_aof_current_rewrite_duration_sec", Gauge,
        "Seconds since a snapshot that is to replace the journal began.";
    "aof_current_size", "redis_aof_current_size_bytes", Gauge, "Bytes of the snapshot and the journal.";
    "aof_base_size", "redis_aof_base_size_bytes", Gauge, "Bytes of the snapshot.";
    "total_connections_received", "redis_connections_received_total", Counter, "Connections accepted.";
    "total_commands_processed", "redis_commands_processed_total", Counter, "Commands processed.";
    "instantaneous_ops_per_sec", "redis_instantaneous_ops_per_sec", Gauge, "Commands per second, recently.";
    "total_net_input_bytes", "redis_net_input_bytes_total", Counter, "Bytes received.";
    "total_net_output_bytes", "redis_net_output_bytes_total", Counter, "Bytes sent.";
    "total_reads_processed", "redis_total_reads_processed", Counter, "Reads from clients.";
    "total_writes_processed", "redis_total_writes_processed", Counter, "Writes to clients.";
    "rejected_connections", "redis_rejected_connections_total", Counter, "Connections refused by maxclients.";
    "expired_keys", "redis_expired_keys_total", Counter, "Keys expired.";
    "expired_subkeys", "redis_expired_subkeys_total", Counter, "Fields and members expired.";
    "evicted_keys", "redis_evicted_keys_total", Counter, "Keys evicted.";
    "evicted_clients", "redis_evicted_clients_total", Counter, "Clients closed because of their memory.";
    "keyspace_hits", "redis_keyspace_hits_total", Counter, "Lookups that found a key.";
    "keyspace_misses", "redis_keyspace_misses_total", Counter, "Lookups that found no key.";
    "pubsub_channels", "redis_pubsub_channels", Gauge, "Channels with subscribers.";
    "pubsub_patterns", "redis_pubsub_patterns", Gauge, "Patterns with subscribers.";
    "pubsubshard_channels", "redis_pubsubshard_channels", Gauge, "Sharded channels with subscribers.";
    "tracking_total_keys", "redis_tracking_total_keys", Gauge, "Keys tracked for client caches.";
    "tracking_total_items", "redis_tracking_total_items", Gauge, "Pairs of a tracked key and a client.";
    "tracking_total_prefixes", "redis_tracking_total_prefixes", Gauge, "Prefixes tracked for client caches.";
    "total_error_replies", "redis_total_error_replies", Counter, "Error replies.";
    "client_query_buffer_limit_disconnections", "redis_client_query_buffer_limit_disconnections_total", Counter,
        "Clients closed because a request was too large.";
    "client_output_buffer_limit_disconnections", "redis_client_output_buffer_limit_disconnections_total", Counter,
        "Clients closed because they did not read their replies.";
    "connected_slaves", "redis_connected_slaves", Gauge, "Other nodes that follow this one and are connected.";
    "master_last_io_seconds_ago", "redis_master_last_io_seconds_ago", Gauge,
        "Seconds since this node has heard from its leader; -1 for never.";
    "used_cpu_sys", "redis_cpu_sys_seconds_total", Counter, "CPU seconds in the kernel.";
    "used_cpu_user", "redis_cpu_user_seconds_total", Counter, "CPU seconds in the server.";
    "used_cpu_sys_main_thread", "redis_cpu_sys_main_thread_seconds_total", Counter,
        "CPU seconds of the engine's thread in the kernel.";
    "used_cpu_user_main_thread", "redis_cpu_user_main_thread_seconds_total", Counter,
        "CPU seconds of the engine's thread.";
    "eventloop_cycles", "tidegate_eventloop_turns_total", Counter, "Turns of the event loop.";
    "eventloop_duration_sum", "tidegate_eventloop_microseconds_total", Counter,
        "Microseconds of turns of the event loop.";
    "eventloop_duration_cmd_sum", "tidegate_commands_microseconds_total", Counter, "Microseconds of clients' commands.";
    "number_of_cached_scripts", "tidegate_scripts", Gauge, "Scripts in the cache.";
    "number_of_functions", "tidegate_functions", Gauge, "Functions loaded.";
    "log_last_lsn", "tidegate_log_last_lsn", Counter, "The number of the last change.";
    "log_durable_lsn", "tidegate_log_durable_lsn", Counter, "The number of the last change on disk.";
    "log_segments", "tidegate_log_segments", Gauge, "Files of the journal.";
    "log_lines_lost", "tidegate_log_lines_lost_total", Counter, "Lines of the server's log file that were lost.";
    "aof_buffer_length", "tidegate_log_backlog_bytes", Gauge, "Bytes that the journal has not written yet.";
};

/// Fields of INFO that describe the server, as labels.
const ABOUT: [&str; 8] =
    ["redis_version", "tidegate_version", "redis_mode", "role", "os", "tcp_port", "run_id", "maxmemory_policy"];

/// Bounds of latency histograms: powers of two in us, up to two seconds.
const BOUNDS: u32 = 22;

/// Returns all metrics of a server.
pub(crate) fn render(engine: &mut Engine) -> String {
    engine.inspect(|ctx| {
        let mut text = String::new();
        figures(&mut text, ctx);
        about(&mut text, ctx);
        commands(&mut text, ctx);
        latencies(&mut text, ctx);
        journal::write(&mut text, ctx);
        coordination::write(&mut text, ctx);
        group::write(&mut text, ctx);
        others(&mut text, ctx);
        text
    })
}

/// Writes the figures of INFO. A missing field, such as one of a journal that is off, is left out.
fn figures(text: &mut String, ctx: &Ctx<'_>) {
    let info = sections(ctx, &[b"default"]);
    let fields: HashMap<&str, &str> = info.lines().filter_map(|line| line.split_once(':')).collect();
    for figure in FIGURES {
        if let Some(value) = fields.get(figure.field) {
            single(text, figure.metric, figure.kind, figure.help, value);
        }
    }
    head(text, "redis_instance_info", "gauge", "Properties of the server.");
    let labels = ABOUT.map(|field| (field, fields.get(field).copied().unwrap_or_default()));
    sample(text, "redis_instance_info", &labels, 1);
    for (field, metric, help) in [
        ("rdb_last_bgsave_status", "redis_rdb_last_bgsave_status", "Whether the last snapshot succeeded."),
        (
            "aof_last_bgrewrite_status",
            "redis_aof_last_bgrewrite_status",
            "Whether the last snapshot to replace the journal succeeded.",
        ),
        ("aof_last_write_status", "redis_aof_last_write_status", "Whether the journal can be written."),
    ] {
        if let Some(status) = fields.get(field) {
            single(text, metric, Kind::Gauge, help, u8::from(*status == "ok"));
        }
    }
}

/// Writes the state of the server and the number of keys of each database.
fn about(text: &mut String, ctx: &Ctx<'_>) {
    let server = &ctx.server;
    single(text, "redis_up", Kind::Gauge, "Whether the server responds.", 1);
    head(text, "tidegate_build_info", "gauge", "The version of the server.");
    sample(text, "tidegate_build_info", &[("version", TIDEGATE_VERSION)], 1);
    let (help, started_ms) = ("Time of the server's start, Unix s.", server.time.started_ms);
    single(text, "process_start_time_seconds", Kind::Gauge, help, started_ms as f64 / 1_000.0);
    single(text, "tidegate_busy", Kind::Gauge, "Whether a command or script is blocking the server.", 0);
    let ready = u8::from(matches!(server.readiness(), Readiness::Ready | Readiness::Following));
    let help = "Whether the data is loaded, and writes are accepted or those of the leader are followed.";
    single(text, "tidegate_ready", Kind::Gauge, help, ready);
    certificates(text, ctx);
    databases(text, ctx);
}

/// Writes when the certificates in use expire.
fn certificates(text: &mut String, ctx: &Ctx<'_>) {
    const METRIC: &str = "tidegate_tls_certificate_expires_timestamp_seconds";
    let of_clients = ctx.server.network.listeners.as_ref().and_then(|network| network.certificate_expires_s());
    let member = ctx.server.persistence.journal.as_ref().and_then(Journal::member);
    let of_node = member.and_then(|group| group.facts().certificate_expires_s);
    head(text, METRIC, "gauge", "When a certificate in use, or one of those that it comes with, expires, Unix s.");
    for (parameter, expires_s) in [("tls-cert-file", of_clients), ("node-tls-cert-file", of_node)] {
        if let Some(expires_s) = expires_s {
            sample(text, METRIC, &[("parameter", parameter)], expires_s);
        }
    }
}

fn databases(text: &mut String, ctx: &Ctx<'_>) {
    let of_each = |text: &mut String, metric: &str, help: &str, value: &dyn Fn(u16) -> f64| {
        head(text, metric, "gauge", help);
        for db in (0..ctx.ks.databases()).filter(|db| !ctx.ks.db_unfenced(*db).is_empty()) {
            sample(text, metric, &[("db", &format!("db{db}"))], value(db));
        }
    };
    of_each(text, "redis_db_keys", "Keys.", &|db| ctx.ks.db_unfenced(db).len() as f64);
    of_each(text, "redis_db_keys_expiring", "Keys that expire.", &|db| ctx.ks.db_unfenced(db).volatile() as f64);
    of_each(text, "redis_db_avg_ttl_seconds", "Average remaining time to live of keys, in seconds.", &|db| {
        ctx.ks.db_unfenced(db).average_ttl_ms(ctx.now_ms()) as f64 / 1_000.0
    });
}

/// Writes the counts of each command that was called, and of each kind of error.
fn commands(text: &mut String, ctx: &Ctx<'_>) {
    let stats = &ctx.server.meters.stats;
    let of_each = |text: &mut String, metric: &str, help: &str, value: &dyn Fn(usize) -> f64| {
        head(text, metric, "counter", help);
        for entry in ctx.server.table.all() {
            let counted = &stats.commands[entry.id.index()];
            if counted.calls + counted.rejected + counted.failed > 0 {
                sample(text, metric, &[("cmd", &entry.full_name)], value(entry.id.index()));
            }
        }
    };
    let all = &stats.commands;
    of_each(text, "redis_commands_total", "Calls of a command.", &|index| all[index].calls as f64);
    of_each(text, "redis_commands_duration_seconds_total", "Seconds that calls of a command took.", &|index| {
        stats.nanos(all[index].ticks) as f64 / 1e9
    });
    of_each(text, "redis_commands_rejected_calls_total", "Calls of a command that were refused.", &|index| {
        all[index].rejected as f64
    });
    of_each(text, "redis_commands_failed_calls_total", "Calls of a command that returned an error.", &|index| {
        all[index].failed as f64
    });
    head(text, "redis_errors_total", "counter", "Error replies, by their code.");
    let mut errors: Vec<_> = stats.errors.iter().collect();
    errors.sort();
    errors.iter().for_each(|(code, count)| sample(text, "redis_errors_total", &[("err", code)], count));
}

/// Writes the latency histogram of each command.
fn latencies(text: &mut String, ctx: &Ctx<'_>) {
    const METRIC: &str = "redis_commands_latencies_usec";
    let stats = &ctx.server.meters.stats;
    head(text, METRIC, "histogram", "Durations of calls of a command, us.");
    for entry in ctx.server.table.all() {
        let Some(latencies) = stats.latencies(entry.id) else { continue };
        let command = entry.full_name.as_str();
        let bounds_ns = (0..BOUNDS).map(|power| 1_000_u64 << power);
        for (bound_ns, calls) in bounds_ns.clone().zip(steps_of(latencies, stats, bounds_ns)) {
            let labels = [("cmd", command), ("le", &(bound_ns / 1_000).to_string())];
            sample(text, &format!("{METRIC}_bucket"), &labels, calls);
        }
        let total = latencies.total();
        sample(text, &format!("{METRIC}_bucket"), &[("cmd", command), ("le", "+Inf")], total);
        let micros = stats.micros(stats.commands[entry.id.index()].ticks);
        sample(text, &format!("{METRIC}_sum"), &[("cmd", command)], micros);
        sample(text, &format!("{METRIC}_count"), &[("cmd", command)], total);
    }
}

/// Writes the slow log, latency events and scripts.
fn others(text: &mut String, ctx: &Ctx<'_>) {
    use crate::meters::command_log::Trait;
    let server = &ctx.server;
    let slow = server.meters.command_log.of(Trait::Slow);
    single(text, "redis_slowlog_length", Kind::Gauge, "Entries of the slow log.", slow.len());
    let last = slow.iter().next().map_or(-1, |noted| noted.id as i64);
    single(text, "redis_slowlog_last_id", Kind::Gauge, "The id of the last entry of the slow log.", last);
    head(text, "redis_latency_spike_last", "gauge", "Time of the last latency event, Unix s.");
    for (event, series) in server.meters.latency.seen() {
        let at_s = series.samples().next_back().map_or(0, |sample| sample.at_s);
        sample(text, "redis_latency_spike_last", &[("event_name", event.name())], at_s);
    }
    head(text, "redis_latency_spike_duration_seconds", "gauge", "Duration of the last latency event in seconds.");
    for (event, series) in server.meters.latency.seen() {
        let took_ms = series.samples().next_back().map_or(0, |sample| sample.took_ms);
        let labels = [("event_name", event.name())];
        sample(text, "redis_latency_spike_duration_seconds", &labels, took_ms as f64 / 1_000.0);
    }
    let (calls, errors) = server.meters.stats.scripts.totals();
    single(text, "tidegate_script_calls_total", Kind::Counter, "Calls of scripts and functions.", calls);
    single(
        text,
        "tidegate_script_errors_total",
        Kind::Counter,
        "Calls of scripts and functions that returned an error.",
        errors,
    );
    let (kills, rollbacks) = (server.meters.stats.scripts.kills, server.meters.stats.scripts.rollbacks);
    single(
        text,
        "tidegate_script_kills_total",
        Kind::Counter,
        "Calls of scripts and functions that were killed.",
        kills,
    );
    single(
        text,
        "tidegate_script_rollbacks_total",
        Kind::Counter,
        "Calls of scripts and functions that were rolled back.",
        rollbacks,
    );
    single(
        text,
        "tidegate_messages_published_total",
        Kind::Counter,
        "Messages published.",
        server.meters.stats.published,
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_metric_is_declared_twice() {
        let mut seen = std::collections::BTreeSet::new();
        for figure in FIGURES {
            assert!(seen.insert(figure.metric), "{} is there twice", figure.metric);
            assert!(figure.help.ends_with('.'), "{}: the help is a sentence", figure.metric);
            assert_eq!(
                figure.kind == Kind::Counter,
                figure.metric.ends_with("_total")
                    || figure.metric.contains("lsn")
                    || figure.metric.starts_with("redis_total_") && !figure.metric.ends_with("_bytes"),
                "{}",
                figure.metric
            );
        }
    }
}
