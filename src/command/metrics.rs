//! Metrics in Prometheus' text format (0.0.4). INFO's figures have the names that redis_exporter gives them, so its
//! dashboards work; figures that Redis does not have are named `tidegate_...`.
//!
//! [`FIGURES`] maps fields of INFO to metrics. Figures by command, error, event or database have a function each. Every
//! figure comes from the source that INFO reads, so the two can't differ. Numbers of keys do not wait for the journal,
//! although a crash may take back the last changes: they show no data.

use std::collections::HashMap;
use std::fmt::{Display, Write};

use super::info::sections;
use super::latency::steps_of;
use crate::engine::{Ctx, Engine};
use crate::keyspace::effect::{Family, Turn};
use crate::meters::coordination_stats::Counts;
use crate::persist::group_admin::{NodeRow, Reach, Role};
use crate::persist::journal::Journal;
use crate::session::registry::Readiness;

/// The meaning of a figure's changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// Only grows, except for restarts and CONFIG RESETSTAT.
    Counter,
    /// Goes up and down.
    Gauge,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
        }
    }
}

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
        coordination(&mut text, ctx);
        group(&mut text, ctx);
        others(&mut text, ctx);
        text
    })
}

/// Writes the head of a metric.
fn head(text: &mut String, metric: &str, kind: &str, help: &str) {
    // Writing to memory cannot fail.
    let _ = writeln!(text, "# HELP {metric} {help}\n# TYPE {metric} {kind}");
}

fn sample(text: &mut String, metric: &str, labels: &[(&str, &str)], value: impl Display) {
    text.push_str(metric);
    for (index, (name, label)) in labels.iter().enumerate() {
        text.push(if index == 0 { '{' } else { ',' });
        let label = label.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
        let _ = write!(text, "{name}=\"{label}\"");
    }
    text.push_str(if labels.is_empty() { "" } else { "}" });
    let _ = writeln!(text, " {value}");
}

/// Writes a metric with one sample.
fn single(text: &mut String, metric: &str, kind: Kind, help: &str, value: impl Display) {
    head(text, metric, kind.name(), help);
    sample(text, metric, &[], value);
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
    single(text, "tidegate_busy", Kind::Gauge, "Whether a command or script is blocking the server.", 0);
    let ready = u8::from(matches!(server.readiness(), Readiness::Ready | Readiness::Following));
    let help = "Whether the data is loaded, and writes are accepted or those of the leader are followed.";
    single(text, "tidegate_ready", Kind::Gauge, help, ready);
    if let Some(log) = server.persistence.local_log() {
        let (help, seconds) = ("Duration of the slowest recent sync in seconds.", log.sync_time().as_secs_f64());
        single(text, "tidegate_log_sync_seconds", Kind::Gauge, help, seconds);
        let (help, seconds) = ("Seconds spent writing and syncing the journal.", log.busy_time().as_secs_f64());
        single(text, "tidegate_log_busy_seconds_total", Kind::Counter, help, seconds);
    }
    databases(text, ctx);
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

/// The ways in which grants end.
const ENDS: [Turn; 5] = [Turn::Released, Turn::Expired, Turn::Broken, Turn::Removed, Turn::Sold];

/// Writes grants, refusals and waits, including zeroes: a counter that appears with its first event shows no increase.
fn coordination(text: &mut String, ctx: &Ctx<'_>) {
    let prefixes = ctx.ks.counted_prefixes();
    let prefix = |group: usize| String::from_utf8_lossy(prefixes.prefix(group));
    let stats = &ctx.server.meters.stats.coordination;
    let of_each = |text: &mut String, metric: &str, help: &str, of: &[Family], value: &dyn Fn(Counts) -> f64| {
        head(text, metric, "counter", help);
        for (family, group) in of.iter().flat_map(|family| (0..prefixes.groups()).map(move |group| (*family, group))) {
            let labels = [("family", family.name()), ("prefix", &*prefix(group))];
            sample(text, metric, &labels, value(stats.get(family, group)));
        }
    };
    let holding = [Family::Lock, Family::Gate, Family::Stock];
    let refusing = [Family::Lock, Family::Gate, Family::Stock, Family::Limit];
    let waiting = [Family::Lock, Family::Gate];
    let help = "Locks, places of gates and holds on stocks granted, and calls admitted by limits.";
    of_each(text, "tidegate_grants_total", help, &refusing, &|counts| counts.turns(Turn::Granted) as f64);
    let help = "Calls refused a lock, a place or units, or refused by a limit.";
    of_each(text, "tidegate_refusals_total", help, &refusing, &|counts| counts.refusals as f64);
    let help = "Calls that began to wait for a lock or a place of a gate.";
    of_each(text, "tidegate_waits_total", help, &waiting, &|counts| counts.waits as f64);
    let help = "Calls that have stopped waiting for a lock or a place of a gate.";
    of_each(text, "tidegate_waits_ended_total", help, &waiting, &|counts| counts.waits_ended as f64);
    let help = "Seconds waited for a lock or a place of a gate, by calls that have stopped waiting.";
    of_each(text, "tidegate_waited_seconds_total", help, &waiting, &|counts| counts.waited_ms as f64 / 1_000.0);
    head(
        text,
        "tidegate_grant_ends_total",
        "counter",
        "Locks, places and holds that have ended, by the way they ended.",
    );
    for (family, group) in
        holding.into_iter().flat_map(|family| (0..prefixes.groups()).map(move |group| (family, group)))
    {
        for turn in ENDS.into_iter().filter(|turn| *turn != Turn::Sold || family == Family::Stock) {
            let labels = [("family", family.name()), ("prefix", &*prefix(group)), ("end", turn.name())];
            sample(text, "tidegate_grant_ends_total", &labels, stats.get(family, group).turns(turn));
        }
    }
    let of_messages = [
        (
            "tidegate_dead_letters_total",
            Turn::DeadLettered,
            "Messages that became dead letters, by the key of their stream.",
        ),
        (
            "tidegate_dead_letters_stayed_total",
            Turn::DeadLetterStays,
            "Dead letters that stayed in a stream because they had moved between streams too often.",
        ),
    ];
    for (metric, turn, help) in of_messages {
        head(text, metric, "counter", help);
        for group in 0..prefixes.groups() {
            sample(text, metric, &[("prefix", &*prefix(group))], stats.get(Family::Queue, group).turns(turn));
        }
    }
}

/// Writes the state of the group, and of the links with its other nodes, if the server is a node.
fn group(text: &mut String, ctx: &Ctx<'_>) {
    let Some(group) = ctx.server.persistence.journal.as_ref().and_then(Journal::member) else { return };
    let gauge =
        |text: &mut String, metric: &str, help: &str, value: u64| single(text, metric, Kind::Gauge, help, value);
    gauge(text, "tidegate_group_leads", "Whether this node leads its group.", group.leads().into());
    gauge(text, "tidegate_group_has_leader", "Whether this node knows a leader.", group.leader().is_some().into());
    gauge(text, "tidegate_group_term", "The term of the group; each leader has one of its own.", group.facts().term.0);
    let nodes = group.nodes();
    let voters = nodes.iter().filter(|node| matches!(node.role, Role::Leader | Role::Voter));
    let reached = voters.clone().filter(|node| node.reach != Reach::Disconnected).count();
    gauge(text, "tidegate_group_voters", "Nodes that vote.", voters.count() as u64);
    let help = "Nodes that vote and are connected with this one, which counts, too.";
    gauge(text, "tidegate_group_voters_connected", help, reached as u64);
    let help = "Times that this node began to lead.";
    single(text, "tidegate_group_reigns_total", Kind::Counter, help, group.reigns());
    head(text, "tidegate_group_reigns_ended_total", "counter", "Times that this node stopped leading, and why.");
    for (why, count) in group.ends() {
        sample(text, "tidegate_group_reigns_ended_total", &[("why", why)], count);
    }
    let others: Vec<&NodeRow> =
        nodes.iter().filter(|node| node.reach != Reach::Own && node.role != Role::Waiting).collect();
    let of_each = |text: &mut String, metric: &str, kind: Kind, help: &str, value: &dyn Fn(&NodeRow) -> Option<u64>| {
        head(text, metric, kind.name(), help);
        for node in &others {
            if let Some(value) = value(node) {
                sample(text, metric, &[("node", &node.number.to_string())], value);
            }
        }
    };
    let (gauge, counter) = (Kind::Gauge, Kind::Counter);
    of_each(text, "tidegate_node_connected", gauge, "Whether another node is connected.", &|node| {
        Some((node.reach == Reach::Connected).into())
    });
    let help = "Entries of the log that another node lacks, as its leader knows.";
    of_each(text, "tidegate_node_missing_entries", gauge, help, &|node| node.missing.filter(|_| group.leads()));
    of_each(text, "tidegate_node_sent_bytes_total", counter, "Bytes sent to another node.", &|node| {
        Some(node.traffic.sent_bytes)
    });
    of_each(text, "tidegate_node_received_bytes_total", counter, "Bytes received from another node.", &|node| {
        Some(node.traffic.received_bytes)
    });
    let help = "Messages to another node that were dropped, because it was not connected or too slow.";
    of_each(text, "tidegate_node_dropped_messages_total", counter, help, &|node| Some(node.traffic.dropped));
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
    fn labels_are_escaped() {
        let mut text = String::new();
        sample(&mut text, "m", &[("a", "x\"y\\z\n"), ("b", "")], 1.5);
        sample(&mut text, "n", &[], 7);
        assert_eq!(text, "m{a=\"x\\\"y\\\\z\\n\",b=\"\"} 1.5\nn 7\n");
    }

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
                    || figure.metric.starts_with("redis_total_"),
                "{}",
                figure.metric
            );
        }
    }
}
