//! The table of all parameters: for each its meaning, its field in [`Config`], its name, when it may change, its kind and
//! its default. Names and defaults are Redis' where the meaning is Redis'.
//!
//! A parameter stands here only if the server honours it. A few are taken although what they govern does not exist yet,
//! because clients or Redis' own test suite set them: these say so (`until`), the help shows it, and a value that
//! asks for more than the server does (`warn`: anything but that text) is warned of in the log.

use super::act::{Act, NetworkPart};
use super::choices::{
    AclPubsubDefault, AllowFrom, AppendFsync, LogLevel, MaxmemoryPolicy, OomScoreAdj, SanitizePayload, Supervised,
    SyslogFacility, TlsAuthClients, TlsAuthClientsUser, one_of,
};
use super::end_options::{EndOptions, EndWords};
use super::event_classes::{EventClasses, EventLetters};
use super::hosts::Addresses;
use super::kind::{Origin, Shape, Text, YesNo, int, memory, octal};
use super::lists::{OomScores, Percentiles, Prefixes, SavePoint, SavePoints, UserLine, UserLines};
use super::output_limits::{Limits, OutputLimits};
use super::paths::{Directory, File, Name};
use super::reason::{Inert, Reason};
use super::refusal::Refusal;
use super::shares::{BytesOrShare, MemoryOrPercent};
use super::source::Source;
use super::title::Title;
use std::path::PathBuf;

/// When a parameter may be changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// By CONFIG SET too.
    AnyTime,
    /// By CONFIG SET too, where `enable-protected-configs` allows it.
    Protected,
    /// Only at start.
    AtStart,
}

/// One parameter: everything that flags, file, CONFIG and help need.
#[derive(Debug)]
pub struct Parameter {
    /// The heading that it stands under in the help.
    pub section: &'static str,
    /// Its name, in lower case.
    pub name: &'static str,
    /// An older name for the same.
    pub alias: Option<&'static str>,
    /// What it means.
    pub doc: &'static str,
    /// When it may change.
    pub change: Change,
    /// The default, as one would write it.
    pub default: &'static str,
    /// What is not there yet of what it governs.
    pub until: Option<&'static str>,
    /// The value beyond which the server would promise too much.
    pub warn: Option<&'static str>,
    /// Whether nobody is to read its value who is shown what others have called.
    pub is_secret: bool,
    /// Whether CONFIG GET shows it only to those who name it.
    pub is_hidden: bool,
    /// Whether it stays as it is while the data is being loaded.
    pub waits_for_data: bool,
    /// What CONFIG SET has to do when it changes.
    pub act: Act,
    /// What of the network it is about, if that is what it changes.
    pub part: Option<NetworkPart>,
    /// Why it changes nothing, if it is one of those that are only kept (`inert.rs`).
    pub inert: Option<Reason>,
    /// The form of its arguments.
    pub shape: fn() -> Shape,
    pub(super) set: Setter,
    pub(super) get: fn(&Config, &mut Vec<u8>),
}

/// Reads arguments into the parameter's field.
pub(super) type Setter = fn(&mut Config, &[&[u8]], Origin) -> Result<(), Refusal>;

macro_rules! some {
    () => {
        None
    };
    ($value:literal) => {
        Some($value)
    };
}

macro_rules! flag {
    () => {
        false
    };
    ($value:literal) => {
        $value
    };
}

macro_rules! act {
    () => {
        Act::None
    };
    ($act:ident) => {
        Act::$act
    };
}

macro_rules! part {
    () => {
        None
    };
    ($part:ident) => {
        Some(NetworkPart::$part)
    };
}

macro_rules! parameters {
    ($($section:literal {
        $(
            $(#[doc = $doc:literal])+
            $field:ident: $type:ty = $name:literal $(or $alias:literal)?, $change:ident, $kind:expr, $default:literal
            $(, until $until:literal)? $(, warn $warn:literal)? $(, secret $secret:literal)? $(, hidden $hidden:literal)?
            $(, waits $waits:literal)? $(, act $act:ident)? $(, part $part:ident)?;
        )+
    })+) => {
        /// The value of every parameter, typed.
        #[derive(Clone, Debug, PartialEq)]
        pub struct Config {
            $($($(#[doc = $doc])+ pub $field: $type,)+)+
            /// What those parameters are set to that change nothing.
            pub inert: Inert,
            /// Where all of it was read.
            pub source: Source,
        }

        impl Config {
            /// Before the defaults are set.
            pub(super) fn blank() -> Config {
                Config { $($($field: <$type>::default(),)+)+ inert: Inert::default(), source: Source::default() }
            }
        }

        /// All parameters, in the order of the help.
        pub static PARAMETERS: &[Parameter] = &[$($(Parameter {
            section: $section,
            name: $name,
            alias: some!($($alias)?),
            doc: concat!($($doc),+),
            change: Change::$change,
            default: $default,
            until: some!($($until)?),
            warn: some!($($warn)?),
            is_secret: flag!($($secret)?),
            is_hidden: flag!($($hidden)?),
            waits_for_data: flag!($($waits)?),
            act: act!($($act)?),
            part: part!($($part)?),
            inert: None,
            shape: || $kind.shape(),
            set: |config, args, origin| $kind.set(&mut config.$field, args, origin),
            get: |config, out| $kind.get(&config.$field, out),
        },)+)+];
    };
}

const INT_MAX: i128 = i32::MAX as i128;
const LONG_MAX: i128 = i64::MAX as i128;

parameters! {
    "Network" {
        /// TCP port to listen on; 0 for none.
        port: u16 = "port", AnyTime, int(0, 65_535), "6379", act Network, part Port;
        /// Addresses to listen on; one that starts with `-` may be missing, `*` is every IPv4 and `::*` every IPv6 address.
        bind: Vec<String> = "bind", AnyTime, Addresses, "* -::*", act Network, part Address;
        /// Without a password, take only clients of this machine.
        protected_mode: bool = "protected-mode", AnyTime, YesNo, "yes";
        /// Unix socket to listen on, relative to `dir`; empty for none.
        unixsocket: PathBuf = "unixsocket", AtStart, File, "";
        /// Permissions of the unix socket, in octal; 0 leaves them to the umask.
        unixsocketperm: u32 = "unixsocketperm", AtStart, octal(0, 0o777), "0";
        /// Connections that may wait to be accepted; the kernel may have a lower limit.
        tcp_backlog: u32 = "tcp-backlog", AtStart, int(0, INT_MAX), "511";
        /// Seconds after which an idle client is disconnected; 0 for never.
        timeout_s: u32 = "timeout", AnyTime, int(0, INT_MAX), "0";
        /// Seconds between TCP keepalive probes; 0 for none.
        tcp_keepalive_s: u32 = "tcp-keepalive", AnyTime, int(0, INT_MAX), "300";
        /// Connections that are accepted at a time, before others have their turn.
        max_new_connections_per_cycle: u32 = "max-new-connections-per-cycle", AnyTime, int(1, 1_000), "10";
        /// The same of those with TLS, whose handshakes take the processor longer than anything else that a client does.
        max_new_tls_connections_per_cycle: u32 = "max-new-tls-connections-per-cycle", AnyTime, int(1, 1_000), "1";
        /// Threads that receive and send, among them the one that runs the commands: more than 1 where there are cores to spare and clients
        /// send one request at a time. Commands run on that one thread all the same.
        io_threads: u32 = "io-threads", AtStart, int(1, 128), "1";
        /// Mark of the sockets that clients connect to, for the system's packet filters (Linux); 0 for none.
        socket_mark_id: u32 = "socket-mark-id", AtStart, int(0, u32::MAX as i128), "0";
        /// Clients that may be connected at the same time.
        maxclients: u32 = "maxclients", AnyTime, int(1, u32::MAX as i128), "10000", act Clients;
    }
    "TLS" {
        /// TCP port for clients that use TLS; 0 for none. Certificates and keys are read again when they are set.
        tls_port: u16 = "tls-port", AnyTime, int(0, 65_535), "0", act Network, part TlsPort;
        /// File of the server's certificate, and of those between it and its authority, in PEM, relative to `dir`.
        tls_cert_file: PathBuf = "tls-cert-file", AnyTime, File, "", act Network, part Certificates;
        /// File of the certificate's key, in PEM, relative to `dir`.
        tls_key_file: PathBuf = "tls-key-file", AnyTime, File, "", act Network, part Certificates;
        /// Password of that file; empty where it is not encrypted.
        tls_key_file_pass: Vec<u8> = "tls-key-file-pass", AnyTime, Text, "", secret true, act Network, part Certificates;
        /// File of the authorities that certify clients, in PEM, relative to `dir`.
        tls_ca_cert_file: PathBuf = "tls-ca-cert-file", AnyTime, File, "", act Network, part Certificates;
        /// Folder of such files, relative to `dir`.
        tls_ca_cert_dir: PathBuf = "tls-ca-cert-dir", AnyTime, File, "", act Network, part Certificates;
        /// Whether clients must show a certificate; `optional`: they need not, but if they do it must be a good one.
        tls_auth_clients: TlsAuthClients = "tls-auth-clients", AnyTime, one_of::<TlsAuthClients>(), "yes", act Network, part Certificates;
        /// The name in a client's certificate that says which user it is, without a password: `CN`, the subject's common name, or `URI`.
        tls_auth_clients_user: TlsAuthClientsUser = "tls-auth-clients-user", AnyTime, one_of::<TlsAuthClientsUser>(), "off", act Network, part Certificates;
        /// Protocols that are spoken: `TLSv1.2`, `TLSv1.3`; empty for both.
        tls_protocols: Vec<u8> = "tls-protocols", AnyTime, Text, "", act Network, part Certificates;
        /// Cipher suites of TLS 1.2, as a list of OpenSSL; empty for all.
        tls_ciphers: Vec<u8> = "tls-ciphers", AnyTime, Text, "", act Network, part Certificates;
        /// Cipher suites of TLS 1.3, separated by colons; empty for all.
        tls_ciphersuites: Vec<u8> = "tls-ciphersuites", AnyTime, Text, "", act Network, part Certificates;
        /// Choose the cipher suite that the server, not the client, likes best.
        tls_prefer_server_ciphers: bool = "tls-prefer-server-ciphers", AnyTime, YesNo, "no", act Network, part Certificates;
        /// Remember TLS sessions, so that clients that connect again need no whole handshake.
        tls_session_caching: bool = "tls-session-caching", AnyTime, YesNo, "yes", act Network, part Certificates;
        /// How many; 0 for as many as there may be.
        tls_session_cache_size: usize = "tls-session-cache-size", AnyTime, int(0, INT_MAX), "20480", act Network, part Certificates;
        /// Seconds for which a TLS session is remembered.
        tls_session_cache_timeout_s: u32 = "tls-session-cache-timeout", AnyTime, int(0, INT_MAX), "300", act Network, part Certificates;
        /// How often, in seconds, to check whether the files of certificates and keys have changed; then they are read again. 0: never.
        tls_auto_reload_interval_s: u32 = "tls-auto-reload-interval", AnyTime, int(0, INT_MAX), "0";
    }
    "Metrics" {
        /// TCP port for metrics over HTTP (`/metrics`, `/health`, `/ready`); 0 for none. Nobody is asked for a password there.
        metrics_port: u16 = "metrics-port", AtStart, int(0, 65_535), "0";
        /// Addresses of that port; as `bind`.
        metrics_bind: Vec<String> = "metrics-bind", AtStart, Addresses, "127.0.0.1 -::1";
        /// Prefixes of keys, such as `lock:order: gate:`, for which metrics of grants, refusals and waits are told apart; a change
        /// begins them anew.
        metrics_key_prefixes: Vec<String> = "metrics-key-prefixes", AnyTime, Prefixes, "", act KeyPrefixes;
    }
    "Security" {
        /// Password that clients must give by AUTH or HELLO; empty for none.
        requirepass: Vec<u8> = "requirepass", AnyTime, Text, "", secret true, act Password;
        /// Users, one to a line: a name and the rules of ACL SETUSER.
        users: Vec<UserLine> = "user", AtStart, UserLines, "", secret true, hidden true;
        /// File of users, which ACL LOAD reads and ACL SAVE writes, relative to `dir`; empty for none.
        aclfile: PathBuf = "aclfile", AtStart, File, "";
        /// Whether new users may use all channels or none.
        acl_pubsub_default: AclPubsubDefault = "acl-pubsub-default", AnyTime, one_of::<AclPubsubDefault>(), "resetchannels";
        /// How many refusals ACL LOG keeps.
        acllog_max_len: usize = "acllog-max-len", AnyTime, int(0, INT_MAX), "128";
        /// From where DEBUG may be called.
        enable_debug_command: AllowFrom = "enable-debug-command", AtStart, one_of::<AllowFrom>(), "no";
        /// From where CONFIG SET may change protected parameters (`dir`, `dbfilename`).
        enable_protected_configs: AllowFrom = "enable-protected-configs", AtStart, one_of::<AllowFrom>(), "no";
        /// From where MODULE LOAD and UNLOAD may be called, which then say that there are no modules.
        enable_module_command: AllowFrom = "enable-module-command", AtStart, one_of::<AllowFrom>(), "no";
    }
    "General" {
        /// Directory that relative paths start from.
        dir: PathBuf = "dir", Protected, Directory, ".", waits true;
        /// File to log to, relative to `dir`; empty for standard output.
        logfile: PathBuf = "logfile", AtStart, File, "";
        /// The least severe messages that are logged.
        loglevel: LogLevel = "loglevel", AnyTime, one_of::<LogLevel>(), "notice", act LogLevel;
        /// The place in the data centre that HELLO and INFO name to clients that prefer a near server; empty for none.
        availability_zone: Vec<u8> = "availability-zone", AnyTime, Text, "";
        /// Number of databases, which SELECT counts from 0.
        databases: u16 = "databases", AtStart, int(1, u16::MAX as i128), "16";
        /// Seconds that an end of the server may take until what was answered is sent.
        shutdown_timeout_s: u32 = "shutdown-timeout", AnyTime, int(0, INT_MAX), "10";
        /// How SIGINT ends the server: `default`, or some of `save`, `nosave`, `now`, `force`, as SHUTDOWN has them.
        shutdown_on_sigint: EndOptions = "shutdown-on-sigint", AnyTime, EndWords, "default";
        /// The same for SIGTERM.
        shutdown_on_sigterm: EndOptions = "shutdown-on-sigterm", AnyTime, EndWords, "default";
        /// Rounds of background work a second, 1 to 500.
        hz: u32 = "hz", AnyTime, int(0, INT_MAX).clamped(1, 500), "10";
        /// Take memory from the system in pages of 4 KB only, so that nobody waits while one of 2 MB is cleared.
        disable_thp: bool = "disable-thp", AtStart, YesNo, "yes";
    }
    "Process" {
        /// Go on in the background.
        daemonize: bool = "daemonize", AtStart, YesNo, "no";
        /// File that holds the number of the process while it runs, relative to `dir`; empty for none.
        pidfile: PathBuf = "pidfile", AtStart, File, "";
        /// Which service manager to tell when the server is ready and when it ends. With one, `daemonize` has no effect.
        supervised: Supervised = "supervised", AtStart, one_of::<Supervised>(), "no";
        /// Show what the server is and where it listens in lists of processes.
        set_proc_title: bool = "set-proc-title", AtStart, YesNo, "yes";
        /// What to show there; {title}, {listen-addr}, {server-mode}, {port}, {tls-port}, {unixsocket} and {config-file} are
        /// replaced.
        proc_title_template: String = "proc-title-template", AnyTime, Title, "{title} {listen-addr} {server-mode}", act Title;
        /// Have the system end this process sooner or later than others when memory runs out (Linux).
        oom_score_adj: OomScoreAdj = "oom-score-adj", AnyTime, one_of::<OomScoreAdj>(), "no", act OomScore;
        /// By how much. The first is this server's; the others are those of replicas and child processes, which there are none of.
        oom_score_adj_values: [i32; 3] = "oom-score-adj-values", AnyTime, OomScores, "0 200 800", act OomScore;
        /// Log to the system's log, too.
        syslog_enabled: bool = "syslog-enabled", AtStart, YesNo, "no";
        /// The name before the lines there.
        syslog_ident: Vec<u8> = "syslog-ident", AtStart, Text, "tidegate";
        /// The facility that they are filed under.
        syslog_facility: SyslogFacility = "syslog-facility", AtStart, one_of::<SyslogFacility>(), "local0";
    }
    "Limits" {
        /// Longest string, as an argument and as a value.
        proto_max_bulk_len: usize = "proto-max-bulk-len", AnyTime, memory(1 << 20, LONG_MAX), "512mb";
        /// Most that one client may send ahead of being answered.
        client_query_buffer_limit: usize = "client-query-buffer-limit", AnyTime, memory(1 << 20, LONG_MAX), "1gb";
        /// How much may wait to be read by a client, by class: `normal`, `replica`, `pubsub`; 0 for no limit.
        client_output_buffer_limit: OutputLimits = "client-output-buffer-limit", AnyTime, Limits,
            "normal 0 0 0 replica 256mb 64mb 60 pubsub 32mb 8mb 60";
        /// What all clients together may hold, in bytes or percent of `maxmemory`, before those that hold most are closed; 0 for no limit.
        maxmemory_clients: BytesOrShare = "maxmemory-clients", AnyTime, MemoryOrPercent, "0", act ClientsMemory;
        /// Keys that the server remembers as cached by clients (CLIENT TRACKING); 0 for no limit.
        tracking_table_max_keys: usize = "tracking-table-max-keys", AnyTime, memory(0, LONG_MAX), "1000000";
        /// Bytes of memory beyond which keys are evicted, and where none is, commands refused that may need more; 0 for no limit.
        maxmemory: u64 = "maxmemory", AnyTime, memory(0, u64::MAX as i128), "0", act Memory;
        /// Which keys are evicted when memory is full.
        maxmemory_policy: MaxmemoryPolicy = "maxmemory-policy", AnyTime, one_of::<MaxmemoryPolicy>(), "noeviction", act EvictionPolicy;
        /// About how many keys of each database are drawn to find one to evict.
        maxmemory_samples: u32 = "maxmemory-samples", AnyTime, int(1, 64), "5";
        /// How long a command may be held up by eviction before the rest is left to later turns: 10 stands for 0.5 ms, 100 for any time.
        maxmemory_eviction_tenacity: u32 = "maxmemory-eviction-tenacity", AnyTime, int(0, 100), "10";
        /// How slowly the counter of a key's uses grows.
        lfu_log_factor: u32 = "lfu-log-factor", AnyTime, int(0, INT_MAX), "10", act EvictionPolicy;
        /// Minutes in which an unused key's counter loses one; 0 for never.
        lfu_decay_time: u32 = "lfu-decay-time", AnyTime, int(0, INT_MAX), "1", act EvictionPolicy;
    }
    "Keys" {
        /// How hard to look for expired keys, 1 to 10.
        active_expire_effort: u8 = "active-expire-effort", AnyTime, int(1, 10), "1",
            until "Expired keys are found by their deadlines, not searched for: it changes nothing.";
        /// Free evicted values in the background.
        lazyfree_lazy_eviction: bool = "lazyfree-lazy-eviction", AnyTime, YesNo, "no",
            until "Large values are always freed on a thread of their own.";
        /// Free expired values in the background.
        lazyfree_lazy_expire: bool = "lazyfree-lazy-expire", AnyTime, YesNo, "no",
            until "Large values are always freed on a thread of their own.";
        /// Free values that a command replaces in the background.
        lazyfree_lazy_server_del: bool = "lazyfree-lazy-server-del", AnyTime, YesNo, "no",
            until "Large values are always freed on a thread of their own.";
        /// Let DEL do as UNLINK.
        lazyfree_lazy_user_del: bool = "lazyfree-lazy-user-del", AnyTime, YesNo, "no",
            until "It always does.";
        /// Let FLUSHALL, FLUSHDB and SCRIPT FLUSH without a mode do as with ASYNC.
        lazyfree_lazy_user_flush: bool = "lazyfree-lazy-user-flush", AnyTime, YesNo, "no",
            until "For now SCRIPT FLUSH frees at once.";
        /// Most fields of a hash in compact form.
        hash_max_listpack_entries: usize = "hash-max-listpack-entries" or "hash-max-ziplist-entries", AnyTime,
            int(0, LONG_MAX), "512";
        /// Longest field or value of a hash in compact form.
        hash_max_listpack_value: usize = "hash-max-listpack-value" or "hash-max-ziplist-value", AnyTime,
            memory(0, LONG_MAX), "64";
        /// Most members of a set of integers in compact form.
        set_max_intset_entries: usize = "set-max-intset-entries", AnyTime, int(0, LONG_MAX), "512";
        /// Most members of a set in compact form.
        set_max_listpack_entries: usize = "set-max-listpack-entries", AnyTime, int(0, LONG_MAX), "128";
        /// Longest member of a set in compact form.
        set_max_listpack_value: usize = "set-max-listpack-value", AnyTime, memory(0, LONG_MAX), "64";
        /// Most members of a sorted set in compact form.
        zset_max_listpack_entries: usize = "zset-max-listpack-entries" or "zset-max-ziplist-entries", AnyTime,
            int(0, LONG_MAX), "128";
        /// Longest member of a sorted set in compact form.
        zset_max_listpack_value: usize = "zset-max-listpack-value" or "zset-max-ziplist-value", AnyTime,
            memory(0, LONG_MAX), "64";
        /// Longest HyperLogLog in sparse form, its header of 16 bytes included.
        hll_sparse_max_bytes: usize = "hll-sparse-max-bytes", AnyTime, memory(0, LONG_MAX), "3000";
        /// Size of a list's nodes: elements, or -1 to -5 for 4, 8, 16, 32 or 64 KB.
        list_max_listpack_size: i32 = "list-max-listpack-size" or "list-max-ziplist-size", AnyTime,
            int(i32::MIN as i128, INT_MAX), "-2";
        /// Nodes at each end of a list that are not compressed; 0 compresses none.
        list_compress_depth: u32 = "list-compress-depth", AnyTime, int(0, INT_MAX), "0",
            until "No node is compressed yet.", warn "0";
        /// Bytes of a stream's node; 0 for no limit.
        stream_node_max_bytes: usize = "stream-node-max-bytes", AnyTime, memory(0, LONG_MAX), "4096";
        /// Entries of a stream's node; 0 for no limit.
        stream_node_max_entries: usize = "stream-node-max-entries", AnyTime, int(0, LONG_MAX), "100";
        /// Seconds for which a stream remembers producers' requests (XADD IDMP), unless XCFGSET says otherwise.
        stream_idmp_duration_s: u32 = "stream-idmp-duration", AnyTime, int(1, 86_400), "100";
        /// Requests that a stream remembers of each producer, unless XCFGSET says otherwise.
        stream_idmp_maxsize: u32 = "stream-idmp-maxsize", AnyTime, int(1, 10_000), "100";
    }
    "Scripts" {
        /// Milliseconds after which a script may be killed and others are answered -BUSY; 0 for never.
        busy_reply_threshold_ms: i64 = "busy-reply-threshold" or "lua-time-limit", AnyTime, int(0, LONG_MAX), "5000";
        /// Microseconds from which on a call of a script or function is one for SCRIPT SLOW; -1 for none.
        script_slow_threshold_us: i64 = "script-slow-threshold", AnyTime, int(-1, LONG_MAX), "1000", act ScriptSlow;
        /// How many calls SCRIPT SLOW keeps: the slowest.
        script_slow_max_len: usize = "script-slow-max-len", AnyTime, int(0, 10_000), "32", act ScriptSlow;
        /// Seconds for which the client of the script debugger may say nothing before its script is aborted.
        script_debug_timeout_s: u32 = "script-debug-timeout", AnyTime, int(1, INT_MAX), "300";
        /// Seconds that a session of the script debugger may last, as it holds the server: its script is aborted then; 0 for no end.
        script_debug_session_limit_s: u32 = "script-debug-session-limit", AnyTime, int(0, INT_MAX), "1800";
        /// Milliseconds after which a script or function is ended with an error; 0 for never.
        script_time_limit_ms: i64 = "script-time-limit", AnyTime, int(0, LONG_MAX), "0";
        /// Bytes that a script may take in Lua, and as many that may be kept to undo it; one that needs more is ended with an
        /// error; 0 for no limit.
        script_memory_limit: usize = "script-memory-limit", AnyTime, memory(0, LONG_MAX), "512mb", act ScriptMemory;
        /// Undo all that a script or function has changed when it ends in an error or is killed; no: it stays, as in Redis.
        script_rollback: bool = "script-rollback", AnyTime, YesNo, "yes";
        /// Bytes of scripts' texts that EVAL brings and that are kept; the last one always is.
        script_cache_max_bytes: usize = "script-cache-max-bytes", AnyTime, memory(0, LONG_MAX), "64mb", act ScriptCache;
    }
    "Durability" {
        /// Log every change, in `tidegate-data` below `dir`.
        appendonly: bool = "appendonly", AnyTime, YesNo, "yes", act Log;
        /// When the log is forced to disk: always (before anybody is answered), everysec, or no (whenever the system writes it).
        appendfsync: AppendFsync = "appendfsync", AnyTime, one_of::<AppendFsync>(), "always", act SyncPolicy;
        /// Start the log with a snapshot.
        aof_use_rdb_preamble: bool = "aof-use-rdb-preamble", AnyTime, YesNo, "yes",
            until "A log that is shortened always begins with a snapshot.";
        /// Make a snapshot when the log behind the last one has grown by so many percent of that one's size; 0 for never.
        auto_aof_rewrite_percentage: u32 = "auto-aof-rewrite-percentage", AnyTime, int(0, INT_MAX), "100";
        /// Bytes of snapshot and log below which that does not happen.
        auto_aof_rewrite_min_size: u64 = "auto-aof-rewrite-min-size", AnyTime, memory(0, LONG_MAX), "64mb";
        /// Make a snapshot after so many seconds when so many changes happened; may be repeated; empty for never.
        save: Vec<SavePoint> = "save", AnyTime, SavePoints, "", act Saving;
        /// Have SAVE, BGSAVE, the points of `save` and SHUTDOWN SAVE write the data for Redis, too: as `dbfilename`, in `dir`.
        rdb_export: bool = "rdb-export", AnyTime, YesNo, "no";
        /// For tests: microseconds that a snapshot waits after each key; -N: one microsecond for every N keys.
        rdb_key_save_delay_us: i32 = "rdb-key-save-delay", AnyTime, int(i32::MIN as i128, INT_MAX), "0", hidden true;
        /// For tests: microseconds that a start waits after each key; -N: one microsecond for every N keys.
        key_load_delay_us: i32 = "key-load-delay", AnyTime, int(i32::MIN as i128, INT_MAX), "0", hidden true;
        /// Without a log: refuse to change anything while the snapshots that `save` asks for fail.
        stop_writes_on_bgsave_error: bool = "stop-writes-on-bgsave-error", AnyTime, YesNo, "yes", act Saving;
    }
    "Moving in" {
        /// Let clients say CLIENT IMPORT-SOURCE ON, after which nothing expires for anybody until they have imported what another server did.
        /// `tidegate import` sets it for the moment in which it begins.
        import_mode: bool = "import-mode", AnyTime, YesNo, "no";
        /// Snapshot of Redis, in `dir`: a server imports it that has no data yet, and writes it if `rdb-export` says so.
        dbfilename: PathBuf = "dbfilename", Protected, Name, "dump.rdb";
        /// Folder of append-only files of Redis, in `dir`, that a server imports which has no data yet.
        appenddirname: PathBuf = "appenddirname", AtStart, Name, "appendonlydir";
        /// How these files' names begin; up to Redis 6 the name of the only one, in `dir`.
        appendfilename: PathBuf = "appendfilename", AtStart, Name, "appendonly.aof";
        /// From whom payloads of RESTORE, and values of files, are checked in full.
        sanitize_dump_payload: SanitizePayload = "sanitize-dump-payload", AnyTime, one_of::<SanitizePayload>(), "no",
            until "All of them always are.";
        /// Leave out the last command or transaction of such a file if it was not written to its end; no: do not start.
        aof_load_truncated: bool = "aof-load-truncated", AnyTime, YesNo, "yes";
    }
    "Statistics" {
        /// Commands that take so many microseconds or more are noted in the SLOWLOG; -1 notes none.
        slowlog_log_slower_than_us: i64 = "slowlog-log-slower-than" or "commandlog-execution-slower-than", AnyTime,
            int(-1, LONG_MAX), "10000", act CommandLog;
        /// Entries of the SLOWLOG.
        slowlog_max_len: usize = "slowlog-max-len" or "commandlog-slow-execution-max-len", AnyTime,
            int(0, LONG_MAX), "128", act CommandLog;
        /// Commands whose requests have so many bytes or more are noted in the COMMANDLOG; -1 notes none.
        commandlog_request_larger_than_bytes: i64 = "commandlog-request-larger-than", AnyTime,
            int(-1, LONG_MAX), "1048576", act CommandLog;
        /// Entries of the COMMANDLOG for large requests.
        commandlog_large_request_max_len: usize = "commandlog-large-request-max-len", AnyTime,
            int(0, LONG_MAX), "128", act CommandLog;
        /// Commands whose replies have so many bytes or more are noted in the COMMANDLOG; -1 notes none.
        commandlog_reply_larger_than_bytes: i64 = "commandlog-reply-larger-than", AnyTime,
            int(-1, LONG_MAX), "1048576", act CommandLog;
        /// Entries of the COMMANDLOG for large replies.
        commandlog_large_reply_max_len: usize = "commandlog-large-reply-max-len", AnyTime,
            int(0, LONG_MAX), "128", act CommandLog;
        /// Which changes of keys are published, and how: `K` on channels named after the key, `E` on those named after the event; `g` what
        /// concerns keys of any type, `$` strings, `l` lists, `s` sets, `h` hashes, `z` sorted sets, `t` streams, `x` what expired, `e` what
        /// was evicted, `d` modules, `A` all of these; `n` new keys, `m` keys that were not found, `L` what becomes of
        /// locks and of places of gates. Empty for nothing.
        notify_keyspace_events: EventClasses = "notify-keyspace-events", AnyTime, EventLetters, "", act Events;
        /// Keep the distribution of each command's latency.
        latency_tracking: bool = "latency-tracking", AnyTime, YesNo, "yes", act LatencyTracking;
        /// Which percentiles of these INFO latencystats shows.
        latency_tracking_info_percentiles: Vec<f64> = "latency-tracking-info-percentiles", AnyTime, Percentiles, "50 99 99.9";
        /// Milliseconds from which on LATENCY keeps what held others up; 0 for nothing.
        latency_monitor_threshold_ms: u64 = "latency-monitor-threshold", AnyTime, int(0, LONG_MAX), "0",
            act LatencyThreshold;
    }
}
