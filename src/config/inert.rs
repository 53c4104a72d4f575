//! Parameters of Redis that change nothing here. They are accepted so that its configuration files and tools work, and
//! kept so that CONFIG GET and REWRITE show the values set.
//!
//! Each stands under the reason why it has no effect. A start names all those that its file sets, in one line for each
//! reason. Values are checked as in Redis, because a wrong one is a mistake all the same. A value that would promise
//! something that the server does not do is refused with advice (`else`).

use super::act::Act;
use super::choices::AnyOf;
use super::hosts::{Hostname, Master};
use super::kind::{Origin, Shape, Text, YesNo, int, memory};
use super::reason::Reason;
use super::refusal::Refusal;
use super::table::{Change, Config, Parameter};

/// Lines of old configuration files that Redis accepts and ignores, with one argument each, and the reason why they
/// have no effect.
pub(super) const FORGOTTEN: &[(&str, Reason)] = &[
    ("list-max-ziplist-entries", Reason::Tables),
    ("list-max-ziplist-value", Reason::Tables),
    ("lua-replicate-commands", Reason::Scripts),
    ("io-threads-do-reads", Reason::Threads),
];

/// Lines that are not parameters and are refused, with the advice to give.
pub(super) const REFUSED: &[(&str, &str)] = &[
    ("loadmodule", "Tidegate can't load modules: delete the line, and keep data that needs the module in Redis"),
    ("loadmodule-ex", "Tidegate can't load modules: delete the line, and keep data that needs the module in Redis"),
    ("sentinel", "Tidegate is not a Sentinel of Redis: run redis-sentinel with this file"),
];

macro_rules! optional {
    () => {
        None
    };
    ($value:literal) => {
        Some($value)
    };
}

macro_rules! is_given {
    () => {
        false
    };
    ($value:literal) => {
        $value
    };
}

macro_rules! inert {
    ($($reason:ident {
        $($name:literal $(or $alias:literal)?, $change:ident, $kind:expr, $default:literal
            $(, else $advice:literal)? $(, secret $secret:literal)? $(, hidden $hidden:literal)?
            $(, waits $waits:literal)?;)+
    })+) => {
        /// All parameters that change nothing, by reason.
        pub static INERT: &[Parameter] = &[$($(Parameter {
            section: "Without effect",
            name: $name,
            alias: optional!($($alias)?),
            doc: "",
            change: Change::$change,
            default: $default,
            until: None,
            warn: None,
            is_secret: is_given!($($secret)?),
            is_hidden: is_given!($($hidden)?),
            waits_for_data: is_given!($($waits)?),
            act: Act::None,
            part: None,
            inert: Some(Reason::$reason),
            shape: || -> Shape { $kind.shape() },
            set: |config, args, origin| {
                let kept = |config: &mut Config, value| config.inert.keep($name, $default, value);
                store(config, args, origin, $default, optional!($($advice)?), |args, origin, out| {
                    let mut field = Default::default();
                    $kind.set(&mut field, args, origin)?;
                    $kind.get(&field, out);
                    Ok(())
                }, kept)
            },
            get: |config, out| out.extend_from_slice(config.inert.value($name, $default)),
        },)+)+];
    };
}

/// Parses a value by `parse` and keeps it in its canonical form. If there is `advice`, a value other than the default
/// is refused with it.
fn store(
    config: &mut Config,
    args: &[&[u8]],
    origin: Origin,
    default: &str,
    advice: Option<&str>,
    parse: impl Fn(&[&[u8]], Origin, &mut Vec<u8>) -> Result<(), Refusal>,
    keep: impl Fn(&mut Config, Vec<u8>),
) -> Result<(), Refusal> {
    let mut value = Vec::new();
    parse(args, origin, &mut value)?;
    match advice {
        Some(advice) if value != default.as_bytes() => Err(Refusal::NotHere(advice.to_owned())),
        _ => {
            keep(config, value);
            Ok(())
        }
    }
}

const INT_MAX: i128 = i32::MAX as i128;
const LONG_MAX: i128 = i64::MAX as i128;

/// The type of numbers while they are parsed.
type Number = i128;

const fn number(low: i128, high: i128) -> Numbers {
    Numbers(int(low, high))
}

const fn bytes(low: i128, high: i128) -> Numbers {
    Numbers(memory(low, high))
}

/// A number of any size.
struct Numbers(super::kind::Int);

impl Numbers {
    fn shape(&self) -> Shape {
        self.0.shape()
    }

    fn set(&self, field: &mut Number, args: &[&[u8]], origin: Origin) -> Result<(), Refusal> {
        self.0.set(field, args, origin)
    }

    fn get(&self, field: &Number, out: &mut Vec<u8>) {
        self.0.get(field, out);
    }
}

inert! {
    Replicas {
        "replicaof" or "slaveof", AtStart, Master, "";
        "masterauth", AnyTime, Text, "", secret true;
        "masteruser", AnyTime, Text, "", secret true;
        "replica-serve-stale-data" or "slave-serve-stale-data", AnyTime, YesNo, "yes";
        "replica-read-only" or "slave-read-only", AnyTime, YesNo, "yes";
        "replica-priority" or "slave-priority", AnyTime, number(0, INT_MAX), "100";
        "replica-lazy-flush" or "slave-lazy-flush", AnyTime, YesNo, "no";
        "replica-ignore-maxmemory" or "slave-ignore-maxmemory", AnyTime, YesNo, "yes";
        "replica-ignore-disk-write-errors", AnyTime, YesNo, "no";
        "replica-announced", AnyTime, YesNo, "yes";
        "replica-announce-ip" or "slave-announce-ip", AnyTime, Text, "";
        "replica-announce-port" or "slave-announce-port", AnyTime, number(0, 65_535), "0";
        "replica-full-sync-buffer-limit", AnyTime, bytes(0, LONG_MAX), "0";
        "repl-diskless-sync", AnyTime, YesNo, "yes";
        "repl-diskless-sync-delay", AnyTime, number(0, INT_MAX), "5";
        "repl-diskless-sync-max-replicas", AnyTime, number(0, INT_MAX), "0";
        "repl-diskless-load", AnyTime, AnyOf(&["disabled", "on-empty-db", "swapdb"]), "disabled", waits true;
        "repl-disable-tcp-nodelay", AnyTime, YesNo, "no";
        "repl-ping-replica-period" or "repl-ping-slave-period", AnyTime, number(1, INT_MAX), "10";
        "repl-timeout", AnyTime, number(1, INT_MAX), "60";
        "repl-backlog-size", AnyTime, bytes(1, LONG_MAX), "1048576";
        "repl-backlog-ttl", AnyTime, number(0, LONG_MAX), "3600";
        "repl-rdb-channel", AnyTime, YesNo, "yes", hidden true;
        "rdb-del-sync-files", AnyTime, YesNo, "no";
        "bind-source-addr", AnyTime, Text, "";
        "tls-replication", AnyTime, YesNo, "no";
        "tls-client-cert-file", AnyTime, Text, "";
        "tls-client-key-file", AnyTime, Text, "";
        "tls-client-key-file-pass", AnyTime, Text, "", secret true;
        "propagation-error-behavior", AnyTime, AnyOf(&["ignore", "panic", "panic-on-replicas"]), "ignore";
    }
    Cluster {
        "tls-cluster", AnyTime, YesNo, "no";
        "cluster-config-file", AtStart, Text, "nodes.conf";
        "cluster-port", AtStart, number(0, 65_535), "0";
        "cluster-node-timeout", AnyTime, number(0, LONG_MAX), "15000";
        "cluster-ping-interval", AnyTime, number(0, LONG_MAX), "0", hidden true;
        "cluster-replica-validity-factor" or "cluster-slave-validity-factor", AnyTime, number(0, INT_MAX), "10";
        "cluster-replica-no-failover" or "cluster-slave-no-failover", AnyTime, YesNo, "no";
        "cluster-migration-barrier", AnyTime, number(0, INT_MAX), "1";
        "cluster-allow-replica-migration", AnyTime, YesNo, "yes";
        "cluster-require-full-coverage", AnyTime, YesNo, "yes";
        "cluster-allow-reads-when-down", AnyTime, YesNo, "no";
        "cluster-allow-pubsubshard-when-down", AnyTime, YesNo, "yes";
        "cluster-link-sendbuf-limit", AnyTime, bytes(0, u64::MAX as i128), "0";
        "cluster-announce-hostname", AnyTime, Hostname, "";
        "cluster-announce-human-nodename", AnyTime, Text, "";
        "cluster-announce-tls-port", AnyTime, number(0, 65_535), "0";
        "cluster-announce-bus-port", AnyTime, number(0, 65_535), "0";
        "cluster-preferred-endpoint-type", AnyTime, AnyOf(&["ip", "hostname", "unknown-endpoint"]), "ip";
        "cluster-compatibility-sample-ratio", AnyTime, number(0, 100), "0";
    }
    Files {
        "rdbcompression", AnyTime, YesNo, "yes";
        "rdbchecksum", AtStart, YesNo, "yes";
        "rdb-save-incremental-fsync", AnyTime, YesNo, "yes";
        "aof-rewrite-incremental-fsync", AnyTime, YesNo, "yes";
        "aof-timestamp-enabled", AnyTime, YesNo, "no";
        "aof-disable-auto-gc", AnyTime, YesNo, "no", hidden true;
        "no-appendfsync-on-rewrite", AnyTime, YesNo, "no";
    }
    Tls {
        "tls-dh-params-file", AnyTime, Text, "";
    }
    Allocator {
        "jemalloc-bg-thread", AnyTime, YesNo, "yes";
        "activedefrag", AnyTime, YesNo, "no";
        "active-defrag-ignore-bytes", AnyTime, bytes(1, LONG_MAX), "104857600";
        "active-defrag-threshold-lower", AnyTime, number(0, 1_000), "10";
        "active-defrag-threshold-upper", AnyTime, number(0, 1_000), "100";
        "active-defrag-cycle-min", AnyTime, number(1, 99), "1";
        "active-defrag-cycle-max", AnyTime, number(1, 99), "25";
        "active-defrag-max-scan-fields", AnyTime, number(1, LONG_MAX), "1000";
    }
    Tables {
        "activerehashing", AnyTime, YesNo, "yes";
    }
    Threads {
        "server-cpulist" or "server_cpulist", AtStart, Text, "";
        "bio-cpulist" or "bio_cpulist", AtStart, Text, "";
        "aof-rewrite-cpulist" or "aof_rewrite_cpulist", AtStart, Text, "";
        "bgsave-cpulist" or "bgsave_cpulist", AtStart, Text, "";
    }
    Rhythm {
        "dynamic-hz", AnyTime, YesNo, "yes";
        "loading-process-events-interval-bytes", AnyTime, number(1_024, INT_MAX), "524288", hidden true;
    }
    Reports {
        "always-show-logo", AtStart, YesNo, "no";
        "crash-log-enabled", AnyTime, YesNo, "yes";
        "crash-memcheck-enabled", AnyTime, YesNo, "yes";
        "use-exit-on-panic", AnyTime, YesNo, "no", hidden true;
        "watchdog-period", AnyTime, number(0, INT_MAX), "0", hidden true;
        "hide-user-data-from-log", AnyTime, YesNo, "no";
        "ignore-warnings", AnyTime, Text, "";
    }
    Scripts {
        "lua-enable-deprecated-api", AtStart, YesNo, "no", hidden true;
    }
    Locale {
        "locale-collate", AnyTime, Text, "";
    }
}
