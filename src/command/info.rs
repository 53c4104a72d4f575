//! INFO: the server's state as text, for people, redis-cli and monitoring.
//!
//! A section is a function that writes `name:value` lines. Fields have Redis' names and meanings. Where a feature does
//! not exist here (replicas, forks) but clients read its field, the field has the constant value of a Redis without
//! that feature.

use std::fmt::{Display, Write};
use std::path::Path;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use super::coordination::totals;
use super::key_sizes;
use super::memory::overview::Overview;
use super::sentinel::View;
use crate::acl::log::Reason;
use crate::base::crc::crc64;
use crate::base::lsn::Lsn;
use crate::base::os::logging;
use crate::base::os::process::resource_usage;
use crate::base::version::{REDIS_VERSION, TIDEGATE_VERSION};
use crate::config::{AppendFsync, Config, percent_text};
use crate::engine::memory::limit::not_counted_bytes;
use crate::engine::{Command, Ctx, Done, Run};
use crate::meters::stats::IoThreadStats;
use crate::persist::group::GroupLog;
use crate::persist::journal::Journal;
use crate::persist::saving::Purpose;
use crate::session::{Service, Session};
use crate::spec::args::Args;
use crate::spec::{Flags, Group};

/// The text that a section appends to.
pub(super) type Text = String;

/// A section.
struct Section {
    /// The name in a request.
    name: &'static str,
    /// The heading.
    title: &'static str,
    /// Whether INFO without an argument shows it.
    by_default: bool,
    /// The ports at which it exists.
    ports: Ports,
    write: fn(&mut Text, &Ctx<'_>),
}

/// The ports at which a section exists.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Ports {
    /// Those that serve data.
    Data,
    /// Sentinel's.
    Sentinel,
    All,
}

/// The section that is shown only when named.
const DEBUG: &str = "debug";

/// All sections, in Redis' order.
const SECTIONS: [Section; 18] = [
    Section { name: "server", title: "Server", by_default: true, ports: Ports::All, write: server },
    Section { name: "clients", title: "Clients", by_default: true, ports: Ports::All, write: clients },
    Section { name: "memory", title: "Memory", by_default: true, ports: Ports::Data, write: memory },
    Section { name: "persistence", title: "Persistence", by_default: true, ports: Ports::Data, write: persistence },
    Section { name: "threads", title: "Threads", by_default: true, ports: Ports::Data, write: threads },
    Section { name: "stats", title: "Stats", by_default: true, ports: Ports::All, write: stats },
    Section { name: "replication", title: "Replication", by_default: true, ports: Ports::Data, write: replication },
    Section { name: "cpu", title: "CPU", by_default: true, ports: Ports::All, write: cpu },
    Section { name: "sentinel", title: "Sentinel", by_default: true, ports: Ports::Sentinel, write: sentinel },
    Section { name: "modules", title: "Modules", by_default: true, ports: Ports::Data, write: |_, _| {} },
    Section { name: "commandstats", title: "Commandstats", by_default: false, ports: Ports::Data, write: commandstats },
    Section { name: "errorstats", title: "Errorstats", by_default: true, ports: Ports::Data, write: errorstats },
    Section { name: "latencystats", title: "Latencystats", by_default: false, ports: Ports::Data, write: latencystats },
    Section { name: "cluster", title: "Cluster", by_default: true, ports: Ports::Data, write: cluster },
    Section { name: "keyspace", title: "Keyspace", by_default: true, ports: Ports::Data, write: keyspace },
    Section {
        name: "coordination",
        title: "Coordination",
        by_default: false,
        ports: Ports::Data,
        write: totals::write,
    },
    // Not shown by default: computing it walks the keys.
    Section { name: "keysizes", title: "Keysizes", by_default: false, ports: Ports::Data, write: keysizes },
    Section { name: DEBUG, title: "Debug", by_default: false, ports: Ports::Data, write: debug },
];

fn info(ctx: &mut Ctx<'_>, args: Args<'_>) -> Done {
    if ctx.session.service == Service::Sentinel {
        // The engine may not have heard the newest while a script holds it.
        ctx.server.follow_journal();
    }
    let text = sections(ctx, &args.rest().iter().collect::<Vec<_>>());
    ctx.reply.verbatim(b"txt", text.as_bytes());
    Ok(())
}

/// Returns the sections with these names, which may include `all`, `everything` and `default`. No names mean `default`.
pub(super) fn sections(ctx: &Ctx<'_>, names: &[&[u8]]) -> Text {
    let asked = |word: &str| names.iter().any(|name| name.eq_ignore_ascii_case(word.as_bytes()));
    let all = asked("all") || asked("everything");
    let default = names.is_empty() || asked("default");
    let exists = |section: &Section| match section.ports {
        Ports::Data => ctx.session.service == Service::Data,
        Ports::Sentinel => ctx.session.service == Service::Sentinel,
        Ports::All => true,
    };
    let is_wanted =
        |section: &Section| all && section.name != DEBUG || default && section.by_default || asked(section.name);
    let is_shown = |section: &&Section| exists(section) && is_wanted(section);
    let mut text = Text::new();
    for section in SECTIONS.iter().filter(is_shown) {
        if !text.is_empty() {
            text.push_str("\r\n");
        }
        line(&mut text, format_args!("# {}", section.title));
        (section.write)(&mut text, ctx);
    }
    text
}

fn line(text: &mut Text, content: std::fmt::Arguments<'_>) {
    // Writing to memory does not fail.
    let _ = OneLine(text).write_fmt(content);
    text.push_str("\r\n");
}

/// Keeps a field on one line: control characters become `_`, as in Redis. Values come from the configuration and from
/// clients, which must not be able to forge a field.
struct OneLine<'t>(&'t mut Text);

impl std::fmt::Write for OneLine<'_> {
    fn write_str(&mut self, content: &str) -> std::fmt::Result {
        let mut pieces = content.split(char::is_control);
        self.0.push_str(pieces.next().unwrap_or_default());
        for piece in pieces {
            self.0.push('_');
            self.0.push_str(piece);
        }
        Ok(())
    }
}

/// Writes one line for each field: its name and any displayable value.
macro_rules! fields {
    ($text:expr, $($name:literal => $value:expr),+ $(,)?) => {
        $(line($text, format_args!("{}:{}", $name, $value));)+
    };
}

fn server(text: &mut Text, ctx: &Ctx<'_>) {
    let server = &ctx.server;
    let now_us = server.time.clock.now_us();
    let uptime_s = (now_us / 1_000 - server.time.started_ms).max(0) / 1_000;
    let executable = std::env::current_exe().unwrap_or_default();
    let of_data = if server.config.cluster_enabled { "cluster" } else { "standalone" };
    let (mode, port) = match (ctx.session.service, server.config.port) {
        (Service::Sentinel, _) => ("sentinel", server.config.sentinel_port),
        (Service::Data, 0) => (of_data, server.config.tls_port),
        (Service::Data, port) => (of_data, port),
    };
    fields! { text,
        "redis_version" => REDIS_VERSION,
        "tidegate_version" => TIDEGATE_VERSION,
        "redis_git_sha1" => "00000000",
        "redis_git_dirty" => 0,
        "redis_build_id" => build_id(),
        "redis_mode" => mode,
        "os" => operating_system(),
        "arch_bits" => usize::BITS,
        "monotonic_clock" => "POSIX clock_gettime",
        "multiplexing_api" => if cfg!(target_os = "linux") { "epoll" } else { "kqueue" },
        "atomicvar_api" => "rust-std",
        "gcc_version" => "0.0.0",
        "process_id" => std::process::id(),
        "process_supervised" => "no",
        "run_id" => server.identity.run_id,
        "tcp_port" => port,
        "server_time_usec" => now_us,
        "uptime_in_seconds" => uptime_s,
        "uptime_in_days" => uptime_s / 86_400,
        "hz" => server.config.hz,
        "configured_hz" => server.config.hz,
        "lru_clock" => (now_us / 1_000_000) & 0xff_ffff,
        "executable" => executable.display(),
        "config_file" => server.config.source.file.as_deref().unwrap_or(Path::new("")).display(),
        "io_threads_active" => u8::from(!server.meters.stats.io_threads.is_empty()),
        "availability_zone" => String::from_utf8_lossy(&server.config.availability_zone),
    }
    if let Some(left_ms) = ctx.server.ending.ends_in_ms(ctx.server.time.clock.steady_ms()) {
        fields! { text,
            "shutdown_in_milliseconds" => left_ms,
        }
    }
    listeners(text, &server.config, ctx.session.service);
}

/// Returns an id of the build, equal for equal programs.
fn build_id() -> String {
    let named = [TIDEGATE_VERSION, std::env::consts::ARCH, std::env::consts::OS].concat();
    format!("{:016x}", crc64(named.as_bytes()))
}

/// Writes the listening addresses, one line for each kind of socket.
fn listeners(text: &mut Text, config: &Config, service: Service) {
    let bound: String = config.bind.iter().map(|address| format!(",bind={address}")).collect();
    let unix = config.unixsocket.display();
    if service == Service::Sentinel {
        let kind = if config.sentinel_tls { "tls" } else { "tcp" };
        return line(text, format_args!("listener0:name={kind}{bound},port={}", config.sentinel_port));
    }
    let kinds = [
        (config.port != 0).then(|| format!("name=tcp{bound},port={}", config.port)),
        (!config.unixsocket.as_os_str().is_empty()).then(|| format!("name=unix,bind={unix}")),
        (config.tls_port != 0).then(|| format!("name=tls{bound},port={}", config.tls_port)),
    ];
    for (number, kind) in kinds.into_iter().flatten().enumerate() {
        line(text, format_args!("listener{number}:{kind}"));
    }
}

fn operating_system() -> String {
    let read = |file: &str| std::fs::read_to_string(format!("/proc/sys/kernel/{file}")).unwrap_or_default();
    format!("{} {} {}", read("ostype").trim(), read("osrelease").trim(), std::env::consts::ARCH)
}

fn clients(text: &mut Text, ctx: &Ctx<'_>) {
    let sessions = || ctx.server.clients.sessions.iter().chain(std::iter::once(&*ctx.session));
    let waits = &ctx.server.waits;
    let blocked = |session: &Session| session.blocking_call().and_then(|ticket| waits.get(ticket));
    let timed = |session: &&Session| blocked(session).is_some_and(|parked| parked.deadline_ms.is_some());
    let (blocking_keys, blocking_keys_on_nokey) = waits.keys();
    fields! { text,
        "connected_clients" => ctx.server.clients.sessions.len(),
        "cluster_connections" => 0,
        "maxclients" => ctx.server.config.maxclients,
        "client_recent_max_input_buffer" => sessions().map(|session| session.pending_input()).max().unwrap_or(0),
        "client_recent_max_output_buffer" => sessions().map(|session| session.unsent_bytes()).max().unwrap_or(0),
        "blocked_clients" => waits.blocking() + ctx.server.clients.pause.postponed(),
        "waiting_tickets" => waits.len() - waits.blocking(),
        "tracking_clients" => ctx.server.audience.tracking.clients(),
        "pubsub_clients" => sessions().filter(|session| !session.subscriptions.is_empty()).count(),
        "importing_clients" => sessions().filter(|session| session.import_source.is_some()).count(),
        "watching_clients" => sessions().filter(|session| !session.watched.is_empty()).count(),
        "clients_in_timeout_table" => sessions().filter(timed).count(),
        "total_watched_keys" => ctx.server.audience.watches.len(),
        "total_blocking_keys" => blocking_keys,
        "total_blocking_keys_on_nokey" => blocking_keys_on_nokey,
    }
}

/// `used_memory` counts allocated bytes, including the Lua state; the operator pays for resident bytes. See
/// [`Overview`].
fn memory(text: &mut Text, ctx: &Ctx<'_>) {
    let memory = Overview::new(ctx);
    let Overview { used, peak, lua, scripts: texts, libraries: library_texts, .. } = memory;
    let (fragmentation, retention) = (memory.fragmentation(), memory.retention());
    let (program, all) = (memory.program(), memory.total());
    let total = total_system_bytes();
    let limit = ctx.server.config.maxmemory;
    let scripts = &ctx.server.programs.scripts;
    let libraries = scripts.libraries();
    let (pending, freed) = ctx.ks.freed_elsewhere();
    let policy = String::from_utf8_lossy(&parameter(ctx, "maxmemory-policy")).into_owned();
    fields! { text,
        "used_memory" => used,
        "used_memory_human" => Human(used),
        "used_memory_rss" => memory.process,
        "used_memory_rss_human" => Human(memory.process),
        "used_memory_peak" => peak,
        "used_memory_peak_human" => Human(peak),
        "used_memory_peak_perc" => format_args!("{:.2}%", memory.peak_percent()),
        "used_memory_overhead" => memory.overhead(),
        "used_memory_startup" => memory.startup,
        "used_memory_dataset" => memory.dataset(),
        "used_memory_dataset_perc" => format_args!("{:.2}%", memory.dataset_percent()),
        "allocator_allocated" => used,
        "allocator_active" => memory.active,
        "allocator_resident" => memory.resident,
        "allocator_muzzy" => 0,
        "total_system_memory" => total,
        "total_system_memory_human" => Human(total),
        "used_memory_lua" => lua,
        "used_memory_vm_eval" => lua,
        "used_memory_lua_human" => Human(lua),
        "used_memory_scripts_eval" => texts,
        "number_of_cached_scripts" => scripts.cached_len(),
        "number_of_functions" => libraries.functions_len(),
        "number_of_libraries" => libraries.len(),
        "used_memory_vm_functions" => 0,
        "used_memory_vm_total" => lua,
        "used_memory_vm_total_human" => Human(lua),
        "used_memory_functions" => library_texts,
        "used_memory_scripts" => texts + library_texts,
        "used_memory_scripts_human" => Human(texts + library_texts),
        "maxmemory" => limit,
        "maxmemory_human" => Human(limit),
        "maxmemory_policy" => policy,
        "allocator_frag_ratio" => format_args!("{:.2}", fragmentation.ratio()),
        "allocator_frag_bytes" => fragmentation.bytes(),
        "allocator_rss_ratio" => format_args!("{:.2}", retention.ratio()),
        "allocator_rss_bytes" => retention.bytes(),
        "rss_overhead_ratio" => format_args!("{:.2}", program.ratio()),
        "rss_overhead_bytes" => program.bytes(),
        "mem_fragmentation_ratio" => format_args!("{:.2}", all.ratio()),
        "mem_fragmentation_bytes" => all.bytes(),
        "mem_not_counted_for_evict" => not_counted_bytes(&ctx.server.persistence, ctx.ks),
        "mem_replication_backlog" => 0,
        "mem_total_replication_buffers" => 0,
        "mem_replica_full_sync_buffer" => 0,
        "mem_clients_slaves" => 0,
        "mem_clients_normal" => memory.clients,
        "mem_cluster_links" => 0,
        "mem_aof_buffer" => memory.log,
        "mem_acl" => memory.acl,
        "mem_history" => memory.history,
        "mem_allocator" => "mimalloc",
        "mem_overhead_db_hashtable_rehashing" => 0,
        "active_defrag_running" => 0,
        "lazyfree_pending_objects" => pending,
        "lazyfreed_objects" => freed,
    }
}

fn parameter(ctx: &Ctx<'_>, name: &str) -> Vec<u8> {
    let config = &ctx.server.config;
    crate::config::Parameter::named(name.as_bytes()).map_or_else(Vec::new, |parameter| config.value(parameter))
}

/// Bytes with a unit, as `1.09M`.
struct Human(u64);

impl std::fmt::Display for Human {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        const UNITS: [(u64, char); 5] =
            [(1 << 50, 'P'), (1 << 40, 'T'), (1 << 30, 'G'), (1 << 20, 'M'), (1 << 10, 'K')];
        match UNITS.iter().find(|(size, _)| self.0 >= *size) {
            Some((size, unit)) => write!(f, "{:.2}{unit}", self.0 as f64 / *size as f64),
            None => write!(f, "{}B", self.0),
        }
    }
}

fn total_system_bytes() -> u64 {
    // SAFETY: the calls only ask for constants of the system.
    let (pages, page_bytes) = unsafe { (libc::sysconf(libc::_SC_PHYS_PAGES), libc::sysconf(libc::_SC_PAGESIZE)) };
    pages.max(0) as u64 * page_bytes.max(0) as u64
}

/// Fields about forks have constant values: there are none.
fn persistence(text: &mut Text, ctx: &Ctx<'_>) {
    let server = &ctx.server;
    let (journal, saving) = (server.persistence.journal.as_ref(), &server.persistence.saving);
    let (save, rewrite) = (saving.history(Purpose::Save), saving.history(Purpose::Rewrite));
    let (done, all) = saving.progress(ctx.ks);
    let status = |is_ok: bool| if is_ok { "ok" } else { "err" };
    let seconds = |seconds: Option<u64>| seconds.map_or(-1, |seconds| seconds as i64);
    let is_rewriting = saving.under_way() == Some(Purpose::Rewrite) || server.persistence.wants_log(&server.config);
    fields! { text,
        "loading" => u8::from(server.persistence.loading.is_some()),
        "async_loading" => 0,
        "current_cow_peak" => 0,
        "current_cow_size" => 0,
        "current_cow_size_age" => 0,
        "current_fork_perc" => format_args!("{:.2}", done as f64 * 100.0 / all.max(1) as f64),
        "current_save_keys_processed" => done,
        "current_save_keys_total" => all,
        "rdb_changes_since_last_save" => saving.changes(ctx.ks),
        "rdb_bgsave_in_progress" => u8::from(saving.under_way() == Some(Purpose::Save)),
        "rdb_last_save_time" => saving.saved_s(),
        "rdb_last_bgsave_status" => status(save.is_ok && !saving.has_export_failed),
        "rdb_last_bgsave_time_sec" => seconds(save.last_s),
        "rdb_current_bgsave_time_sec" => seconds(saving.running_s(Purpose::Save)),
        "rdb_saves" => save.done,
        "rdb_last_cow_size" => 0,
        "rdb_last_load_keys_expired" => 0,
        "rdb_last_load_keys_loaded" => saving.loaded_keys(),
        "aof_enabled" => u8::from(server.config.appendonly),
        "aof_rewrite_in_progress" => u8::from(is_rewriting),
        "aof_rewrite_scheduled" => u8::from(saving.is_scheduled(Purpose::Rewrite)),
        "aof_last_rewrite_time_sec" => seconds(rewrite.last_s),
        "aof_current_rewrite_time_sec" => seconds(saving.running_s(Purpose::Rewrite)),
        "aof_last_bgrewrite_status" => status(rewrite.is_ok),
        "aof_rewrites" => rewrite.done,
        "aof_rewrites_consecutive_failures" => rewrite.failures_in_a_row,
        "aof_last_write_status" => status(journal.is_none_or(|journal| journal.is_good())),
        "aof_last_cow_size" => 0,
        "module_fork_in_progress" => 0,
        "module_fork_last_cow_size" => 0,
        "durability" => durability(ctx),
    }
    if let Some(loading) = &server.persistence.loading {
        let (read, all, elapsed_s) = (loading.read, loading.all.max(1), loading.began.elapsed().as_secs());
        fields! { text,
            "loading_start_time" => (server.time.clock.now_ms() / 1_000).saturating_sub_unsigned(elapsed_s),
            "loading_total_bytes" => all,
            "loading_rdb_used_mem" => 0,
            "loading_loaded_bytes" => read,
            "loading_loaded_perc" => format_args!("{:.2}", read as f64 * 100.0 / all as f64),
            "loading_eta_seconds" => all.saturating_sub(read).saturating_mul(elapsed_s) / read.max(1),
        }
    }
    if let Some(journal) = journal {
        fields! { text,
            "aof_current_size" => server.persistence.aof_bytes(),
            "aof_base_size" => saving.base_bytes(),
            "aof_pending_rewrite" => 0,
            "aof_buffer_length" => journal.local().map_or(0, |log| log.backlog_bytes()),
            "aof_pending_bio_fsync" => 0,
            "aof_delayed_fsync" => 0,
            "log_last_lsn" => server.persistence.last_lsn(),
            "log_durable_lsn" => journal.local().map_or(journal.safe(), |log| log.durable()),
            "log_segments" => journal.local().map_or(0, |log| log.segments()),
            "log_state" => match (server.persistence.has_failed(), journal.is_full()) {
                (true, _) => "failed",
                (false, true) => "full",
                (false, false) => "good",
            },
            "log_slowest_sync_usec" => journal.local().map_or(0, |log| log.sync_time().as_micros()),
        }
    }
}

/// Returns when a change that was acknowledged is safe from a crash: `group` for on disk on more than half of the
/// nodes, `always` for on disk, `everysec` for a second later, `no` for when the system writes it, `snapshots` for when
/// the next snapshot is made, and `none` for not before somebody asks for one.
fn durability(ctx: &Ctx<'_>) -> &'static str {
    let (persistence, config) = (&ctx.server.persistence, &ctx.server.config);
    match (&persistence.journal, config.appendfsync) {
        (Some(journal), _) if journal.member().is_some() => "group",
        (Some(_), AppendFsync::Always) => "always",
        (Some(_), AppendFsync::EverySecond) => "everysec",
        (Some(_), AppendFsync::No) => "no",
        (None, _) if config.save.is_empty() => "none",
        (None, _) => "snapshots",
    }
}

/// The threads that receive and send: only the engine's, unless `io-threads` asks for more.
fn threads(text: &mut Text, ctx: &Ctx<'_>) {
    let stats = &ctx.server.meters.stats;
    let mut thread = |number, clients, reads, writes| {
        line(text, format_args!("io_thread_{number}:clients={clients},reads={reads},writes={writes}"));
    };
    if stats.io_threads.is_empty() {
        thread(0, ctx.server.clients.sessions.len(), stats.reads, stats.writes);
    }
    for (number, IoThreadStats { clients, reads, writes }) in
        stats.io_threads.iter().map(|thread| &**thread).enumerate()
    {
        thread(number, clients.load(Relaxed), reads.load(Relaxed), writes.load(Relaxed));
    }
}

/// Internals, for developers of the server.
fn debug(text: &mut Text, ctx: &Ctx<'_>) {
    let (stats, turns) = (&ctx.server.meters.stats, &ctx.server.network.turns);
    let log = ctx.server.persistence.local_log().map_or(Duration::ZERO, |log| log.busy_time());
    fields! { text,
        "eventloop_duration_aof_sum" => log.as_micros(),
        "eventloop_duration_cron_sum" => stats.micros(stats.tick_ticks),
        "eventloop_duration_max" => turns.max_us(),
    }
}

fn stats(text: &mut Text, ctx: &Ctx<'_>) {
    let stats = &ctx.server.meters.stats;
    let keys = &ctx.ks.stats;
    let pubsub = ctx.server.audience.pubsub_of(ctx.session.service);
    let over_limit_now_ms =
        stats.over_limit_since_ms.map_or(0, |since_ms| ctx.server.time.clock.steady_ms() - since_ms);
    let turns = &ctx.server.network.turns;
    let turn_us = stats.turn_us_per_second.per_second() / stats.turns_per_second.per_second().max(1);
    let [(reads, writes), (threaded_reads, threaded_writes)] = stats.reads_and_writes();
    let kilobytes = |rate: &crate::meters::stats::Rate| rate.per_second() as f64 / 1_024.0;
    fields! { text,
        "total_connections_received" => stats.connections,
        "total_commands_processed" => stats.commands.iter().map(|command| command.calls).sum::<u64>(),
        "instantaneous_ops_per_sec" => stats.ops_per_second.per_second(),
        "total_net_input_bytes" => stats.bytes_in,
        "total_net_output_bytes" => stats.bytes_out,
        "total_net_repl_input_bytes" => 0,
        "total_net_repl_output_bytes" => 0,
        "instantaneous_input_kbps" => format_args!("{:.2}", kilobytes(&stats.in_per_second)),
        "instantaneous_output_kbps" => format_args!("{:.2}", kilobytes(&stats.out_per_second)),
        "instantaneous_input_repl_kbps" => "0.00",
        "instantaneous_output_repl_kbps" => "0.00",
        "rejected_connections" => stats.rejected_connections,
        "sync_full" => stats.full_syncs,
        "sync_partial_ok" => 0,
        "sync_partial_err" => 0,
        "expired_subkeys" => keys.expired_elements,
        "expired_keys" => keys.expired,
        "expired_stale_perc" => "0.00",
        "expired_time_cap_reached_count" => stats.expire_more,
        "expire_cycle_cpu_milliseconds" => stats.micros(stats.expire_ticks) / 1_000,
        "evicted_keys" => keys.evicted,
        "evicted_clients" => stats.evicted_clients,
        "total_eviction_exceeded_time" => stats.over_limit_ms + over_limit_now_ms,
        "current_eviction_exceeded_time" => over_limit_now_ms,
        "evicted_scripts" => ctx.server.programs.scripts.evicted(),
        "keyspace_hits" => keys.hits,
        "keyspace_misses" => keys.misses,
        "pubsub_channels" => pubsub.channels.len(),
        "pubsub_patterns" => pubsub.patterns.len(),
        "pubsubshard_channels" => pubsub.sharded.len(),
        "latest_fork_usec" => 0,
        "total_forks" => 0,
        "migrate_cached_sockets" => 0,
        "slave_expires_tracked_keys" => 0,
        "active_defrag_hits" => 0,
        "active_defrag_misses" => 0,
        "active_defrag_key_hits" => 0,
        "active_defrag_key_misses" => 0,
        "total_active_defrag_time" => 0,
        "current_active_defrag_time" => 0,
        "tracking_total_keys" => ctx.server.audience.tracking.keys(),
        "tracking_total_items" => ctx.server.audience.tracking.items(),
        "tracking_total_prefixes" => ctx.server.audience.tracking.prefixes(),
        "unexpected_error_replies" => 0,
        "total_error_replies" => stats.error_replies,
        "dump_payload_sanitizations" => stats.payloads_checked,
        "total_reads_processed" => reads + threaded_reads,
        "total_writes_processed" => writes + threaded_writes,
        "io_threaded_reads_processed" => threaded_reads,
        "io_threaded_writes_processed" => threaded_writes,
        "client_query_buffer_limit_disconnections" => stats.query_limit_disconnections,
        "client_output_buffer_limit_disconnections" => stats.output_limit_disconnections,
        "log_lines_lost" => logging::lost_lines(),
        "reply_buffer_shrinks" => 0,
        "reply_buffer_expands" => 0,
        "eventloop_cycles" => turns.count(),
        "eventloop_duration_sum" => turns.sum_us(),
        "eventloop_duration_cmd_sum" => stats.micros(stats.command_ticks),
        "instantaneous_eventloop_cycles_per_sec" => stats.turns_per_second.per_second(),
        "instantaneous_eventloop_duration_usec" => turn_us,
        "acl_access_denied_auth" => stats.refusals[Reason::Auth as usize],
        "acl_access_denied_cmd" => stats.refusals[Reason::Command as usize],
        "acl_access_denied_key" => stats.refusals[Reason::Key as usize],
        "acl_access_denied_channel" => stats.refusals[Reason::Channel as usize],
        "acl_access_denied_tls_cert" => stats.refusals[Reason::TlsCert as usize],
        "acl_access_denied_db" => stats.refusals[Reason::Database as usize],
    }
}

fn replication(text: &mut Text, ctx: &Ctx<'_>) {
    let group = ctx.server.persistence.journal.as_ref().and_then(Journal::member);
    let is_leader = group.is_none_or(GroupLog::leads);
    fields! { text, "role" => if is_leader { "master" } else { "slave" } }
    if let Some(group) = group {
        of_group(text, ctx, group);
    }
    let replicas = group.map(GroupLog::replicas).unwrap_or_default();
    fields! { text, "connected_slaves" => replicas.len() }
    if ctx.server.config.copies_wanted() > 0 {
        fields! { text, "min_slaves_good_slaves" => group.map_or(0, GroupLog::good_followers) }
    }
    for (index, (address, lsn)) in replicas.iter().enumerate() {
        let (host, port) = (address.host(), address.port);
        line(text, format_args!("slave{index}:ip={host},port={port},state=online,offset={lsn},lag=0"));
    }
    fields! { text,
        "master_failover_state" => "no-failover",
        "master_replid" => ctx.server.identity.replication_id,
        "master_replid2" => "0".repeat(40),
        "master_repl_offset" => group.map_or(Lsn::NONE, |_| ctx.server.persistence.last_lsn()),
        "second_repl_offset" => -1,
        "repl_backlog_active" => 0,
        "repl_backlog_size" => 0,
        "repl_backlog_first_byte_offset" => 0,
        "repl_backlog_histlen" => 0,
    }
}

/// The group that this server is a node of.
fn of_group(text: &mut Text, ctx: &Ctx<'_>, group: &GroupLog) {
    if !group.leads() {
        let (host, port) = group.leader_address().map_or(("", 0), |address| (address.host(), address.port));
        fields! { text,
            "master_host" => host,
            "master_port" => port,
            "master_link_status" => if group.leader().is_some() { "up" } else { "down" },
            "master_last_io_seconds_ago" => group.age().map_or(-1, |age| age.as_secs().cast_signed()),
            "slave_lag_ms" => group.age().map_or(-1, |age| age.as_millis() as i64),
            "slave_read_only" => 1,
            "slave_repl_offset" => ctx.server.persistence.last_lsn(),
        }
    }
    fields! { text,
        "node_id" => ctx.server.config.node_id,
        "group_term" => group.facts().term,
        "group_leader" => group.leader().map_or(0, |node| node.get()),
        "group_voters" => listed(&group.members().voters),
        "group_voters_missing" => group.nodes().iter().filter(|node| node.is_missing_voter()).count(),
        "group_learners" => listed(&group.members().learners),
    }
}

fn listed(items: &[impl Display]) -> String {
    items.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
}

fn cpu(text: &mut Text, _: &Ctx<'_>) {
    let seconds = |who, time: fn(&libc::rusage) -> libc::timeval| {
        let time = resource_usage(who).map_or(libc::timeval { tv_sec: 0, tv_usec: 0 }, |usage| time(&usage));
        format!("{}.{:06}", time.tv_sec, time.tv_usec)
    };
    fields! { text,
        "used_cpu_sys" => seconds(libc::RUSAGE_SELF, |usage| usage.ru_stime),
        "used_cpu_user" => seconds(libc::RUSAGE_SELF, |usage| usage.ru_utime),
        "used_cpu_sys_children" => seconds(libc::RUSAGE_CHILDREN, |usage| usage.ru_stime),
        "used_cpu_user_children" => seconds(libc::RUSAGE_CHILDREN, |usage| usage.ru_utime),
        "used_cpu_sys_main_thread" => seconds(libc::RUSAGE_THREAD, |usage| usage.ru_stime),
        "used_cpu_user_main_thread" => seconds(libc::RUSAGE_THREAD, |usage| usage.ru_utime),
    }
}

fn commandstats(text: &mut Text, ctx: &Ctx<'_>) {
    for entry in ctx.server.table.all() {
        let stats = &ctx.server.meters.stats.commands[entry.id.index()];
        if stats.calls + stats.rejected + stats.failed == 0 {
            continue;
        }
        let usec = ctx.server.meters.stats.micros(stats.ticks);
        line(
            text,
            format_args!(
                "cmdstat_{}:calls={},usec={usec},usec_per_call={:.2},rejected_calls={},failed_calls={}",
                entry.full_name,
                stats.calls,
                usec as f64 / stats.calls.max(1) as f64,
                stats.rejected,
                stats.failed,
            ),
        );
    }
}

fn errorstats(text: &mut Text, ctx: &Ctx<'_>) {
    let mut errors: Vec<(&String, &u64)> = ctx.server.meters.stats.errors.iter().collect();
    errors.sort();
    for (code, count) in errors {
        line(text, format_args!("errorstat_{code}:count={count}"));
    }
}

fn latencystats(text: &mut Text, ctx: &Ctx<'_>) {
    let (table, stats) = (ctx.server.table, &ctx.server.meters.stats);
    for entry in table.all() {
        let Some(latencies) = stats.latencies(entry.id) else { continue };
        let percentiles = ctx.server.config.latency_tracking_info_percentiles.iter().map(|&percent| {
            let micros = stats.nanos(latencies.percentile(percent)) as f64 / 1_000.0;
            format!("p{}={micros:.3}", percent_text(percent))
        });
        let percentiles = percentiles.collect::<Vec<_>>().join(",");
        line(text, format_args!("latency_percentiles_usec_{}:{percentiles}", entry.full_name));
    }
}

fn cluster(text: &mut Text, ctx: &Ctx<'_>) {
    fields! { text, "cluster_enabled" => u8::from(ctx.server.config.cluster_enabled) }
}

/// If the journal has failed, INFO must still work. Counts of keys that include lost changes would have the whole reply
/// refused, so they are left out.
fn keyspace(text: &mut Text, ctx: &Ctx<'_>) {
    if ctx.server.persistence.has_lost(ctx.ks) {
        return;
    }
    // In a group, changes may wait for a lost node for hours, and INFO is what tells of that.
    let is_node = ctx.server.persistence.journal.as_ref().is_some_and(|journal| journal.member().is_some());
    for db in 0..ctx.ks.databases() {
        let database = if is_node { ctx.ks.db_unfenced(db) } else { ctx.ks.db(db) };
        if !database.is_empty() {
            let (keys, expires) = (database.len(), database.volatile());
            let avg_ttl = database.average_ttl_ms(ctx.now_ms());
            let subexpiry = database.partly_volatile();
            line(text, format_args!("db{db}:keys={keys},expires={expires},avg_ttl={avg_ttl},subexpiry={subexpiry}"));
        }
    }
}

fn keysizes(text: &mut Text, ctx: &Ctx<'_>) {
    if !ctx.server.persistence.has_lost(ctx.ks) {
        key_sizes::lines(ctx.ks).iter().for_each(|of_type| line(text, format_args!("{of_type}")));
    }
}

/// What Sentinel's port serves. Nothing is tilted here, and no scripts are run about failovers.
fn sentinel(text: &mut Text, ctx: &Ctx<'_>) {
    fields! { text,
        "sentinel_masters" => 1,
        "sentinel_tilt" => 0,
        "sentinel_tilt_since_seconds" => -1,
        "sentinel_running_scripts" => 0,
        "sentinel_scripts_queue_length" => 0,
        "sentinel_simulate_failure_flags" => 0,
    }
    if let Ok(view) = View::new(ctx.server) {
        fields! { text, "master0" => view.summary() }
    }
}

/// The family's table.
pub(super) const COMMANDS: &[Command] = &[Command {
    name: "info",
    arity: -1,
    flags: Flags::LOADING.union(Flags::STALE).union(Flags::SENTINEL),
    group: Group::Server,
    categories: &["@dangerous"],
    summary: "Returns the state of the server by sections; `all` shows every section.",
    syntax: "[section...]",
    tips: &["nondeterministic_output", "request_policy:all_shards", "response_policy:special"],
    run: Run::Now(info),
    ..Command::EMPTY
}];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_shown_in_readable_units() {
        let cases = [(0, "0B"), (1_023, "1023B"), (1_024, "1.00K"), (1_142_784, "1.09M"), (25_276_510_208, "23.54G")];
        for (bytes, text) in cases {
            assert_eq!(Human(bytes).to_string(), text);
        }
    }
}
