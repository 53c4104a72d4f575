//! The table of all parameters: for each its meaning, its field in [`Config`], its name, when it may change, its kind
//! and its default. Names and defaults are Redis' where the meaning is Redis'.
//!
//! A parameter stands here only if the server honours it. A few are accepted although their subject does not exist yet,
//! because clients or Redis' own test suite set them. Their entries say so (`until`), and the help shows it. A value
//! that asks for more than the server does (`warn`: any other text) causes a warning in the log.

use super::act::{Act, NetworkPart};
use super::choices::{
    AclPubsubDefault, AllowFrom, AppendFsync, LogFormat, LogLevel, MaxmemoryPolicy, OomScoreAdj, SanitizePayload,
    Supervised, SyslogFacility, TlsAuthClients, TlsAuthClientsUser, one_of,
};
use super::end_options::{EndOptions, EndWords};
use super::event_classes::{EventClasses, EventLetters};
use super::hosts::{Addresses, Host, MasterName};
use super::kind::{Origin, Shape, Text, YesNo, int, memory, octal};
use super::lists::{OomScores, Percentiles, Prefixes, SavePoint, SavePoints, UserLine, UserLines};
use super::nodes::{Announced, Nodes};
use super::output_limits::{Limits, OutputLimits};
use super::paths::{Directory, File, Name};
use super::reason::{Inert, Reason};
use super::refusal::Refusal;
use super::shares::{BytesOrShare, MemoryOrPercent};
use super::source::Source;
use super::title::Title;
use crate::base::node_address::NodeAddress;
use std::path::PathBuf;

/// When a parameter may be changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// At the start and by CONFIG SET.
    AnyTime,
    /// At the start and, if `enable-protected-configs` allows it, by CONFIG SET.
    Protected,
    /// Only at the start.
    AtStart,
}

/// One parameter: everything that flags, file, CONFIG and help need.
#[derive(Debug)]
pub struct Parameter {
    /// Its heading in the help.
    pub section: &'static str,
    /// Its name, in lower case.
    pub name: &'static str,
    /// An older name.
    pub alias: Option<&'static str>,
    /// Its meaning.
    pub doc: &'static str,
    /// When it may change.
    pub change: Change,
    /// The default, as a user would write it.
    pub default: &'static str,
    /// The part of its subject that does not exist yet.
    pub until: Option<&'static str>,
    /// The only value that does not promise more than the server does.
    pub warn: Option<&'static str>,
    /// Whether its value must be hidden from clients that are shown the commands of others.
    pub is_secret: bool,
    /// Whether CONFIG GET shows it only to clients that name it.
    pub is_hidden: bool,
    /// Whether it can't be changed while the data is being loaded.
    pub waits_for_data: bool,
    /// The act of CONFIG SET when it changes.
    pub act: Act,
    /// The part of the network that it concerns, if any.
    pub part: Option<NetworkPart>,
    /// Why it has no effect, if it is one of those that are only kept (`inert.rs`).
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
            $(, until $until:literal)? $(, warn $warn:literal)? $(, secret $secret:literal)?
            $(, hidden $hidden:literal)? $(, waits $waits:literal)? $(, act $act:ident)? $(, part $part:ident)?;
        )+
    })+) => {
        /// The values of all parameters, typed.
        #[derive(Clone, Debug, PartialEq)]
        pub struct Config {
            $($($(#[doc = $doc])+ pub $field: $type,)+)+
            /// Values of the parameters without effect.
            pub inert: Inert,
            /// Where the configuration was read.
            pub source: Source,
        }

        impl Config {
            /// Returns a configuration whose defaults are not set yet.
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
        /// Addresses to listen on. An address that starts with `-` is skipped if this machine does not have it; `*` is
        /// every IPv4 and `::*` every IPv6 address.
        bind: Vec<String> = "bind", AnyTime, Addresses, "* -::*", act Network, part Address;
        /// Accept only clients on this machine while no password is set.
        protected_mode: bool = "protected-mode", AnyTime, YesNo, "yes";
        /// Unix socket to listen on, relative to `dir`; empty for none.
        unixsocket: PathBuf = "unixsocket", AtStart, File, "";
        /// Permissions of the unix socket, in octal; 0 leaves them to the umask.
        unixsocketperm: u32 = "unixsocketperm", AtStart, octal(0, 0o777), "0";
        /// Connections that may wait to be accepted; the kernel may set a lower limit.
        tcp_backlog: u32 = "tcp-backlog", AtStart, int(0, INT_MAX), "511";
        /// Seconds after which an idle client is disconnected; 0 for never.
        timeout_s: u32 = "timeout", AnyTime, int(0, INT_MAX), "0";
        /// Seconds between TCP keepalive probes; 0 for none.
        tcp_keepalive_s: u32 = "tcp-keepalive", AnyTime, int(0, INT_MAX), "300";
        /// Connections accepted at a time before other clients have their turn.
        max_new_connections_per_cycle: u32 = "max-new-connections-per-cycle", AnyTime, int(1, 1_000), "10";
        /// TLS connections accepted at a time before other clients have their turn. Their handshakes take more
        /// processor time than anything else that a client does.
        max_new_tls_connections_per_cycle: u32 = "max-new-tls-connections-per-cycle", AnyTime, int(1, 1_000), "1";
        /// Threads that receive and send, including the one that runs the commands. More than 1 helps if there are
        /// cores to spare and clients send one request at a time. All commands still run on a single thread.
        io_threads: u32 = "io-threads", AtStart, int(1, 128), "1";
        /// Mark of client connections for the system's packet filters (Linux); 0 for none.
        socket_mark_id: u32 = "socket-mark-id", AtStart, int(0, u32::MAX as i128), "0";
        /// Clients that may be connected at the same time.
        maxclients: u32 = "maxclients", AnyTime, int(1, u32::MAX as i128), "10000", act Clients;
    }
    "TLS" {
        /// TCP port for clients that use TLS; 0 for none. Setting a parameter that names a certificate or key reads all
        /// these files again.
        tls_port: u16 = "tls-port", AnyTime, int(0, 65_535), "0", act Network, part TlsPort;
        /// File with the server's certificate and any intermediate ones, in PEM, relative to `dir`.
        tls_cert_file: PathBuf = "tls-cert-file", AnyTime, File, "", act Network, part Certificates;
        /// File with the certificate's key, in PEM, relative to `dir`.
        tls_key_file: PathBuf = "tls-key-file", AnyTime, File, "", act Network, part Certificates;
        /// Password of `tls-key-file`; empty if that file is not encrypted.
        tls_key_file_pass: Vec<u8> = "tls-key-file-pass", AnyTime, Text, "", secret true,
            act Network, part Certificates;
        /// File with the authorities that sign clients' certificates, in PEM, relative to `dir`.
        tls_ca_cert_file: PathBuf = "tls-ca-cert-file", AnyTime, File, "", act Network, part Certificates;
        /// Folder of files with the authorities that sign clients' certificates, in PEM, relative to `dir`.
        tls_ca_cert_dir: PathBuf = "tls-ca-cert-dir", AnyTime, File, "", act Network, part Certificates;
        /// Whether clients must present a certificate. With `optional` they may present none, but a certificate that
        /// they present must be valid.
        tls_auth_clients: TlsAuthClients = "tls-auth-clients", AnyTime, one_of::<TlsAuthClients>(), "yes",
            act Network, part Certificates;
        /// Which name in a client's certificate signs the client in as the user of that name, without a password: `CN`,
        /// the subject's common name, or `URI`.
        tls_auth_clients_user: TlsAuthClientsUser = "tls-auth-clients-user", AnyTime, one_of::<TlsAuthClientsUser>(),
            "off", act Network, part Certificates;
        /// Versions of TLS to speak: `TLSv1.2`, `TLSv1.3`; empty for both.
        tls_protocols: Vec<u8> = "tls-protocols", AnyTime, Text, "", act Network, part Certificates;
        /// Cipher suites of TLS 1.2, as an OpenSSL list; empty for all.
        tls_ciphers: Vec<u8> = "tls-ciphers", AnyTime, Text, "", act Network, part Certificates;
        /// Cipher suites of TLS 1.3, separated by colons; empty for all.
        tls_ciphersuites: Vec<u8> = "tls-ciphersuites", AnyTime, Text, "", act Network, part Certificates;
        /// Choose the cipher suite by the server's preference, not the client's.
        tls_prefer_server_ciphers: bool = "tls-prefer-server-ciphers", AnyTime, YesNo, "no",
            act Network, part Certificates;
        /// Remember TLS sessions, so that returning clients need no full handshake.
        tls_session_caching: bool = "tls-session-caching", AnyTime, YesNo, "yes", act Network, part Certificates;
        /// TLS sessions to remember; 0 for the largest possible number.
        tls_session_cache_size: usize = "tls-session-cache-size", AnyTime, int(0, INT_MAX), "20480",
            act Network, part Certificates;
        /// Seconds for which a TLS session is remembered.
        tls_session_cache_timeout_s: u32 = "tls-session-cache-timeout", AnyTime, int(0, INT_MAX), "300",
            act Network, part Certificates;
        /// Seconds between checks whether the files of certificates and keys have changed, in which case they are read
        /// again; 0 for never.
        tls_auto_reload_interval_s: u32 = "tls-auto-reload-interval", AnyTime, int(0, INT_MAX), "0";
    }
    "Metrics" {
        /// TCP port for metrics over HTTP (`/metrics`) and for the checks of service managers and load balancers:
        /// `/health` succeeds while the process lives, `/ready` once the data is loaded and while no script holds the
        /// server, `/leader` if it also takes changes, so not on the followers of a group. 0 for none. This port asks
        /// for no password.
        metrics_port: u16 = "metrics-port", AtStart, int(0, 65_535), "0";
        /// Addresses of `metrics-port`, in the form of `bind`.
        metrics_bind: Vec<String> = "metrics-bind", AtStart, Addresses, "127.0.0.1 -::1";
        /// Key prefixes, such as `lock:order: gate:`, for which metrics of grants, refusals and waits are counted
        /// separately. A change restarts these counts from 0.
        metrics_key_prefixes: Vec<String> = "metrics-key-prefixes", AnyTime, Prefixes, "", act KeyPrefixes;
    }
    "Console" {
        /// TCP port of the console, a page that shows what the server knows; 0 for none. 8379 is a good choice.
        console_port: u16 = "console-port", AtStart, int(0, 65_535), "0";
        /// Addresses of `console-port`, in the form of `bind`.
        console_bind: Vec<String> = "console-bind", AtStart, Addresses, "127.0.0.1 -::1";
        /// Names under which browsers reach the console, besides addresses and `localhost`. It answers to no other
        /// name, so that no foreign page can reach it through a name of its own. They are those of a proxy, so with any
        /// of them nobody at the console counts as being on this machine (see `protected-mode`).
        console_hosts: Vec<String> = "console-hosts", AtStart, Addresses, "";
    }
    "Security" {
        /// Password that clients must give by AUTH or HELLO; empty for none.
        requirepass: Vec<u8> = "requirepass", AnyTime, Text, "", secret true, act Password;
        /// Users, one to a line: a name and rules as for ACL SETUSER.
        users: Vec<UserLine> = "user", AtStart, UserLines, "", secret true, hidden true;
        /// File of users, which ACL LOAD reads and ACL SAVE writes, relative to `dir`; empty for none.
        aclfile: PathBuf = "aclfile", AtStart, File, "";
        /// Whether new users may use all channels or none.
        acl_pubsub_default: AclPubsubDefault = "acl-pubsub-default", AnyTime, one_of::<AclPubsubDefault>(),
            "resetchannels";
        /// Refusals that ACL LOG keeps.
        acllog_max_len: usize = "acllog-max-len", AnyTime, int(0, INT_MAX), "128";
        /// Clients that may call DEBUG: none, all, or those on this machine (`local`).
        enable_debug_command: AllowFrom = "enable-debug-command", AtStart, one_of::<AllowFrom>(), "no";
        /// Clients that may change protected parameters (`dir`, `dbfilename`) by CONFIG SET: none, all, or those on
        /// this machine (`local`).
        enable_protected_configs: AllowFrom = "enable-protected-configs", AtStart, one_of::<AllowFrom>(), "no";
        /// Clients that may call MODULE LOAD and UNLOAD: none, all, or those on this machine (`local`). These commands
        /// only report that there are no modules.
        enable_module_command: AllowFrom = "enable-module-command", AtStart, one_of::<AllowFrom>(), "no";
    }
    "General" {
        /// Directory that relative paths start from.
        dir: PathBuf = "dir", Protected, Directory, ".", waits true;
        /// File to write the log to, relative to `dir`; empty for standard output.
        logfile: PathBuf = "logfile", AtStart, File, "";
        /// Form of log lines: text for people, or a JSON object for programs that collect logs.
        log_format: LogFormat = "log-format", AtStart, one_of::<LogFormat>(), "text";
        /// The least severe messages to log. `warning` also hides the lines of the audit.
        loglevel: LogLevel = "loglevel", AnyTime, one_of::<LogLevel>(), "notice", act LogLevel;
        /// Location of this server, which HELLO and INFO report to clients that prefer a server nearby; empty for none.
        availability_zone: Vec<u8> = "availability-zone", AnyTime, Text, "";
        /// Number of databases. SELECT numbers them from 0.
        databases: u16 = "databases", AtStart, int(1, u16::MAX as i128), "16";
        /// Longest time in seconds that the server waits on shutdown until all replies are sent.
        shutdown_timeout_s: u32 = "shutdown-timeout", AnyTime, int(0, INT_MAX), "10";
        /// How SIGINT ends the server: `default`, or some of `save`, `nosave`, `now` and `force`, as for SHUTDOWN.
        shutdown_on_sigint: EndOptions = "shutdown-on-sigint", AnyTime, EndWords, "default";
        /// How SIGTERM ends the server, as for `shutdown-on-sigint`.
        shutdown_on_sigterm: EndOptions = "shutdown-on-sigterm", AnyTime, EndWords, "default";
        /// Rounds of background work per second, 1 to 500.
        hz: u32 = "hz", AnyTime, int(0, INT_MAX).clamped(1, 500), "10";
        /// Turn transparent huge pages off: take memory from the system in pages of 4 KB only, so that no client waits
        /// while a page of 2 MB is cleared.
        disable_thp: bool = "disable-thp", AtStart, YesNo, "yes";
    }
    "Process" {
        /// Run in the background.
        daemonize: bool = "daemonize", AtStart, YesNo, "no";
        /// File that holds the process ID while the server runs, relative to `dir`; empty for none.
        pidfile: PathBuf = "pidfile", AtStart, File, "";
        /// Service manager to notify when the server is ready and when it ends. With one, `daemonize` has no effect.
        supervised: Supervised = "supervised", AtStart, one_of::<Supervised>(), "no";
        /// Show the kind of the server and its addresses in process lists.
        set_proc_title: bool = "set-proc-title", AtStart, YesNo, "yes";
        /// Title in process lists; {title}, {listen-addr}, {server-mode}, {port}, {tls-port}, {unixsocket} and
        /// {config-file} are replaced by their values.
        proc_title_template: String = "proc-title-template", AnyTime, Title, "{title} {listen-addr} {server-mode}",
            act Title;
        /// Make the system end this process sooner or later than others when memory runs out (Linux).
        oom_score_adj: OomScoreAdj = "oom-score-adj", AnyTime, one_of::<OomScoreAdj>(), "no", act OomScore;
        /// Adjustments for `oom-score-adj`. Only the first one counts; the others are for replicas and child processes,
        /// which do not exist here.
        oom_score_adj_values: [i32; 3] = "oom-score-adj-values", AnyTime, OomScores, "0 200 800", act OomScore;
        /// Also send log lines to the system's log.
        syslog_enabled: bool = "syslog-enabled", AtStart, YesNo, "no";
        /// Name in front of lines in the system's log.
        syslog_ident: Vec<u8> = "syslog-ident", AtStart, Text, "tidegate";
        /// Facility of lines in the system's log.
        syslog_facility: SyslogFacility = "syslog-facility", AtStart, one_of::<SyslogFacility>(), "local0";
    }
    "Limits" {
        /// Greatest length of a string, both as an argument and as a value.
        proto_max_bulk_len: usize = "proto-max-bulk-len", AnyTime, memory(1 << 20, LONG_MAX), "512mb";
        /// Bytes of requests that one client may send before the server has processed them.
        client_query_buffer_limit: usize = "client-query-buffer-limit", AnyTime, memory(1 << 20, LONG_MAX), "1gb";
        /// Output that may wait to be read by a client, by class: `normal`, `replica`, `pubsub`; 0 for no limit.
        client_output_buffer_limit: OutputLimits = "client-output-buffer-limit", AnyTime, Limits,
            "normal 0 0 0 replica 256mb 64mb 60 pubsub 32mb 8mb 60";
        /// Memory that all clients together may hold, in bytes or percent of `maxmemory`, before the clients that hold
        /// most are disconnected; 0 for no limit.
        maxmemory_clients: BytesOrShare = "maxmemory-clients", AnyTime, MemoryOrPercent, "0", act ClientsMemory;
        /// Keys that the server remembers as cached by clients (CLIENT TRACKING); 0 for no limit.
        tracking_table_max_keys: usize = "tracking-table-max-keys", AnyTime, memory(0, LONG_MAX), "1000000";
        /// Bytes of memory beyond which keys are evicted. If no key can be evicted, commands that may need more memory
        /// are refused; 0 for no limit.
        maxmemory: u64 = "maxmemory", AnyTime, memory(0, u64::MAX as i128), "0", act Memory;
        /// Which keys are evicted when memory is full.
        maxmemory_policy: MaxmemoryPolicy = "maxmemory-policy", AnyTime, one_of::<MaxmemoryPolicy>(), "noeviction",
            act EvictionPolicy;
        /// Approximate number of keys drawn from each database to find one to evict.
        maxmemory_samples: u32 = "maxmemory-samples", AnyTime, int(1, 64), "5";
        /// How long eviction may hold up a command before it leaves the rest for later: 10 stands for 0.5 ms, 100 for
        /// no limit.
        maxmemory_eviction_tenacity: u32 = "maxmemory-eviction-tenacity", AnyTime, int(0, 100), "10";
        /// How slowly the counter of a key's uses grows; a greater number makes it grow more slowly.
        lfu_log_factor: u32 = "lfu-log-factor", AnyTime, int(0, INT_MAX), "10", act EvictionPolicy;
        /// Minutes after which the counter of an unused key loses one; 0 for never.
        lfu_decay_time: u32 = "lfu-decay-time", AnyTime, int(0, INT_MAX), "1", act EvictionPolicy;
    }
    "Keys" {
        /// How hard to look for expired keys, 1 to 10.
        active_expire_effort: u8 = "active-expire-effort", AnyTime, int(1, 10), "1",
            until "This has no effect, because expired keys are found by their deadlines without a search.";
        /// Free evicted values in the background.
        lazyfree_lazy_eviction: bool = "lazyfree-lazy-eviction", AnyTime, YesNo, "no",
            until "Large values are always freed on another thread.";
        /// Free expired values in the background.
        lazyfree_lazy_expire: bool = "lazyfree-lazy-expire", AnyTime, YesNo, "no",
            until "Large values are always freed on another thread.";
        /// Free in the background the values that a command replaces.
        lazyfree_lazy_server_del: bool = "lazyfree-lazy-server-del", AnyTime, YesNo, "no",
            until "Large values are always freed on another thread.";
        /// Make DEL work like UNLINK.
        lazyfree_lazy_user_del: bool = "lazyfree-lazy-user-del", AnyTime, YesNo, "no",
            until "It always does.";
        /// Make FLUSHALL, FLUSHDB and SCRIPT FLUSH without a mode work as with ASYNC.
        lazyfree_lazy_user_flush: bool = "lazyfree-lazy-user-flush", AnyTime, YesNo, "no",
            until "For now, SCRIPT FLUSH frees memory at once.";
        /// Largest number of fields of a hash in compact form.
        hash_max_listpack_entries: usize = "hash-max-listpack-entries" or "hash-max-ziplist-entries", AnyTime,
            int(0, LONG_MAX), "512";
        /// Longest field or value of a hash in compact form.
        hash_max_listpack_value: usize = "hash-max-listpack-value" or "hash-max-ziplist-value", AnyTime,
            memory(0, LONG_MAX), "64";
        /// Largest number of members of a set of integers in compact form.
        set_max_intset_entries: usize = "set-max-intset-entries", AnyTime, int(0, LONG_MAX), "512";
        /// Largest number of members of a set in compact form.
        set_max_listpack_entries: usize = "set-max-listpack-entries", AnyTime, int(0, LONG_MAX), "128";
        /// Longest member of a set in compact form.
        set_max_listpack_value: usize = "set-max-listpack-value", AnyTime, memory(0, LONG_MAX), "64";
        /// Largest number of members of a sorted set in compact form.
        zset_max_listpack_entries: usize = "zset-max-listpack-entries" or "zset-max-ziplist-entries", AnyTime,
            int(0, LONG_MAX), "128";
        /// Longest member of a sorted set in compact form.
        zset_max_listpack_value: usize = "zset-max-listpack-value" or "zset-max-ziplist-value", AnyTime,
            memory(0, LONG_MAX), "64";
        /// Longest HyperLogLog in sparse form, including its header of 16 bytes.
        hll_sparse_max_bytes: usize = "hll-sparse-max-bytes", AnyTime, memory(0, LONG_MAX), "3000";
        /// Size of a list's nodes: a number of elements, or -1 to -5 for 4, 8, 16, 32 or 64 KB.
        list_max_listpack_size: i32 = "list-max-listpack-size" or "list-max-ziplist-size", AnyTime,
            int(i32::MIN as i128, INT_MAX), "-2";
        /// Nodes at each end of a list that are not compressed; 0 compresses none.
        list_compress_depth: u32 = "list-compress-depth", AnyTime, int(0, INT_MAX), "0",
            until "No node is compressed yet.", warn "0";
        /// Size of a stream's node in bytes; 0 for no limit.
        stream_node_max_bytes: usize = "stream-node-max-bytes", AnyTime, memory(0, LONG_MAX), "4096";
        /// Entries in a stream's node; 0 for no limit.
        stream_node_max_entries: usize = "stream-node-max-entries", AnyTime, int(0, LONG_MAX), "100";
        /// Seconds for which a stream remembers the requests of producers (XADD IDMP), unless XCFGSET says otherwise.
        stream_idmp_duration_s: u32 = "stream-idmp-duration", AnyTime, int(1, 86_400), "100";
        /// Requests of each producer that a stream remembers, unless XCFGSET says otherwise.
        stream_idmp_maxsize: u32 = "stream-idmp-maxsize", AnyTime, int(1, 10_000), "100";
    }
    "Scripts" {
        /// Milliseconds after which a script may be killed and other clients get -BUSY; 0 for never.
        busy_reply_threshold_ms: i64 = "busy-reply-threshold" or "lua-time-limit", AnyTime, int(0, LONG_MAX), "5000";
        /// Microseconds from which SCRIPT SLOW records a call of a script or function; -1 for never.
        script_slow_threshold_us: i64 = "script-slow-threshold", AnyTime, int(-1, LONG_MAX), "1000", act ScriptSlow;
        /// Calls that SCRIPT SLOW keeps: the slowest ones.
        script_slow_max_len: usize = "script-slow-max-len", AnyTime, int(0, 10_000), "32", act ScriptSlow;
        /// Seconds for which the client of the script debugger may be silent before its script is aborted.
        script_debug_timeout_s: u32 = "script-debug-timeout", AnyTime, int(1, INT_MAX), "300";
        /// Seconds that a session of the script debugger may last, since it blocks the server. After that its script is
        /// aborted; 0 for no limit.
        script_debug_session_limit_s: u32 = "script-debug-session-limit", AnyTime, int(0, INT_MAX), "1800";
        /// Milliseconds after which a script or function is ended with an error; 0 for never.
        script_time_limit_ms: i64 = "script-time-limit", AnyTime, int(0, LONG_MAX), "0";
        /// Bytes that a script may allocate in Lua; as many bytes again may be kept to undo it. A script that needs
        /// more is ended with an error; 0 for no limit.
        script_memory_limit: usize = "script-memory-limit", AnyTime, memory(0, LONG_MAX), "512mb", act ScriptMemory;
        /// Undo all changes of a script or function that ends in an error or is killed. With `no` they stay, as in
        /// Redis.
        script_rollback: bool = "script-rollback", AnyTime, YesNo, "yes";
        /// Bytes of script texts from EVAL that are kept; the most recent one always is.
        script_cache_max_bytes: usize = "script-cache-max-bytes", AnyTime, memory(0, LONG_MAX), "64mb", act ScriptCache;
    }
    "Durability" {
        /// Write every change to the journal, in `tidegate-data` below `dir`.
        appendonly: bool = "appendonly", AnyTime, YesNo, "yes", act Log;
        /// When the journal is forced to disk: always (before any reply), everysec, or no (whenever the system writes
        /// it).
        appendfsync: AppendFsync = "appendfsync", AnyTime, one_of::<AppendFsync>(), "always", act SyncPolicy;
        /// Begin the journal with a snapshot.
        aof_use_rdb_preamble: bool = "aof-use-rdb-preamble", AnyTime, YesNo, "yes",
            until "A shortened journal always begins with a snapshot.";
        /// Make a snapshot when the journal after the last snapshot has grown to this percentage of that snapshot's
        /// size; 0 for never.
        auto_aof_rewrite_percentage: u32 = "auto-aof-rewrite-percentage", AnyTime, int(0, INT_MAX), "100";
        /// Smallest size of snapshot and journal together, in bytes, at which growth causes a snapshot.
        auto_aof_rewrite_min_size: u64 = "auto-aof-rewrite-min-size", AnyTime, memory(0, LONG_MAX), "64mb";
        /// Make a snapshot after this many seconds if this many changes happened. May be repeated; empty for never.
        save: Vec<SavePoint> = "save", AnyTime, SavePoints, "", act Saving;
        /// Also write the data as an RDB file for Redis, `dbfilename` in `dir`, on SAVE, BGSAVE, SHUTDOWN SAVE and at
        /// the points of `save`.
        rdb_export: bool = "rdb-export", AnyTime, YesNo, "no";
        /// For tests: microseconds that a snapshot waits after each key; -N: one microsecond for every N keys.
        rdb_key_save_delay_us: i32 = "rdb-key-save-delay", AnyTime, int(i32::MIN as i128, INT_MAX), "0", hidden true;
        /// For tests: microseconds that loading waits after each key; -N: one microsecond for every N keys.
        key_load_delay_us: i32 = "key-load-delay", AnyTime, int(i32::MIN as i128, INT_MAX), "0", hidden true;
        /// Without a journal, refuse changes while the snapshots that `save` asks for fail.
        stop_writes_on_bgsave_error: bool = "stop-writes-on-bgsave-error", AnyTime, YesNo, "yes", act Saving;
    }
    "Group" {
        /// The number of this server as a node of a group; 0 for a single server. A node keeps its number, and its
        /// `dir`, for ever.
        node_id: u64 = "node-id", AtStart, int(0, LONG_MAX), "0";
        /// The nodes that found the group: for each its number, its host, its port for clients and its port for other
        /// nodes. All of them start with the same value.
        nodes: Vec<(u64, NodeAddress)> = "nodes", AtStart, Nodes, "";
        /// Where clients and other nodes reach this node, if it is not in `nodes`.
        node_announce: Option<NodeAddress> = "node-announce", AtStart, Announced, "";
        /// A file with a secret that all nodes of the group share. Without it, or certificates, all nodes must have
        /// loopback addresses.
        node_secret_file: PathBuf = "node-secret-file", AtStart, File, "";
        /// The certificate of this node, instead of a secret: PEM, for servers and clients.
        node_tls_cert_file: PathBuf = "node-tls-cert-file", AtStart, File, "";
        /// The key of that certificate.
        node_tls_key_file: PathBuf = "node-tls-key-file", AtStart, File, "";
        /// The authority that certifies the nodes.
        node_tls_ca_cert_file: PathBuf = "node-tls-ca-cert-file", AtStart, File, "";
        /// A leader that serves nobody for this many milliseconds, as during an endless script, hands leadership over.
        stuck_leader_timeout_ms: u64 = "stuck-leader-timeout", AtStart, int(500, LONG_MAX), "5000";
        /// A reply of a leader that waits for the other nodes for longer than this many milliseconds is given up: its
        /// connection is closed, and the client can't know whether the change happens.
        quorum_wait_ms: u64 = "quorum-wait", AnyTime, int(100, LONG_MAX), "5000";
        /// Answer reads without asking the other nodes while a lease says that no other one can lead. It counts on
        /// clocks that run at about the same speed, also while a virtual machine is paused.
        read_lease: bool = "read-lease", AnyTime, YesNo, "no";
        /// Refuse reads on a node that follows while its data may be older than this many milliseconds; 0 for never.
        max_staleness_ms: u64 = "max-staleness", AnyTime, int(0, LONG_MAX), "0";
        /// Refuse changes (`NOREPLICAS`) while fewer other nodes than this follow the leader, and let each reply that
        /// shows a change wait until this many have it on disk. Whatever this says, more than half of the voters have
        /// it; 0 asks for no more. A single server has no followers: any other value makes it refuse all changes.
        min_replicas_to_write: u32 = "min-replicas-to-write" or "min-slaves-to-write", AnyTime, int(0, INT_MAX), "0",
            act Followers;
        /// A node follows, as `min-replicas-to-write` counts, if it had everything this many seconds ago. 0 turns
        /// `min-replicas-to-write` off.
        min_replicas_max_lag_s: u32 = "min-replicas-max-lag" or "min-slaves-max-lag", AnyTime, int(0, INT_MAX), "10",
            act Followers;
        /// Bytes of log that a node keeps beyond its last snapshot, for nodes that were away.
        replication_log_keep: u64 = "replication-log-keep", AtStart, memory(0, LONG_MAX), "256mb";
        /// TCP port at which this node names the leader of its group as Redis Sentinel does; 0 for none. Clients that
        /// support Sentinel usually expect 26379. It has the addresses of `bind`.
        sentinel_port: u16 = "sentinel-port", AtStart, int(0, 65_535), "0";
        /// Whether `sentinel-port` uses TLS, with the certificate of `tls-cert-file`.
        sentinel_tls: bool = "sentinel-tls", AtStart, YesNo, "no";
        /// The name by which clients of `sentinel-port` ask for the group. All nodes of the group start with the same
        /// one.
        sentinel_master_name: Vec<u8> = "sentinel-master-name", AtStart, MasterName, "mymaster";
    }
    "Cluster mode" {
        /// Serve clients in Cluster mode: the nodes of the group, or this single server, are a cluster of one shard
        /// that owns all slots. A follower sends clients to the leader. All nodes of a group have the same value.
        cluster_enabled: bool = "cluster-enabled", AtStart, YesNo, "no";
        /// The host, a name or an address, where clients in Cluster mode reach this single server; empty for the
        /// address to which a client has connected. A node of a group is reached where `nodes` or `node-announce` says.
        cluster_announce_ip: String = "cluster-announce-ip", AtStart, Host, "";
        /// The port that belongs to `cluster-announce-ip`; 0 for the port to which a client has connected.
        cluster_announce_port: u16 = "cluster-announce-port", AtStart, int(0, 65_535), "0";
    }
    "Moving in" {
        /// Allow CLIENT IMPORT-SOURCE ON. After that call nothing expires for any client, until the caller ends its
        /// import of another server's changes. `tidegate import` sets this parameter itself, just while it begins.
        import_mode: bool = "import-mode", AnyTime, YesNo, "no";
        /// Name of Redis' snapshot in `dir`. A server without data imports it; with `rdb-export`, the server writes it.
        dbfilename: PathBuf = "dbfilename", Protected, Name, "dump.rdb";
        /// Folder with append-only files of Redis, in `dir`, that a server without data imports.
        appenddirname: PathBuf = "appenddirname", AtStart, Name, "appendonlydir";
        /// Beginning of the names of the files in `appenddirname`. For data of Redis up to version 6, the name of the
        /// only file, in `dir`.
        appendfilename: PathBuf = "appendfilename", AtStart, Name, "appendonly.aof";
        /// Values to check in full: none, those of clients' RESTORE payloads (`clients`), or also those in files
        /// (`yes`).
        sanitize_dump_payload: SanitizePayload = "sanitize-dump-payload", AnyTime, one_of::<SanitizePayload>(), "no",
            until "All of them are always checked.";
        /// Leave out the last command or transaction of an append-only file of Redis if it was not written to its end.
        /// With `no`, refuse to start.
        aof_load_truncated: bool = "aof-load-truncated", AnyTime, YesNo, "yes";
    }
    "Statistics" {
        /// Microseconds from which a command is recorded in the SLOWLOG; -1 for never.
        slowlog_log_slower_than_us: i64 = "slowlog-log-slower-than" or "commandlog-execution-slower-than", AnyTime,
            int(-1, LONG_MAX), "10000", act CommandLog;
        /// Entries of the SLOWLOG.
        slowlog_max_len: usize = "slowlog-max-len" or "commandlog-slow-execution-max-len", AnyTime,
            int(0, LONG_MAX), "128", act CommandLog;
        /// Bytes of a request from which the COMMANDLOG records its command; -1 for never.
        commandlog_request_larger_than_bytes: i64 = "commandlog-request-larger-than", AnyTime,
            int(-1, LONG_MAX), "1048576", act CommandLog;
        /// Entries of the COMMANDLOG for large requests.
        commandlog_large_request_max_len: usize = "commandlog-large-request-max-len", AnyTime,
            int(0, LONG_MAX), "128", act CommandLog;
        /// Bytes of a reply from which the COMMANDLOG records its command; -1 for never.
        commandlog_reply_larger_than_bytes: i64 = "commandlog-reply-larger-than", AnyTime,
            int(-1, LONG_MAX), "1048576", act CommandLog;
        /// Entries of the COMMANDLOG for large replies.
        commandlog_large_reply_max_len: usize = "commandlog-large-reply-max-len", AnyTime,
            int(0, LONG_MAX), "128", act CommandLog;
        /// Changes of keys to publish, and how: `K` on channels named after the key, `E` on channels named after the
        /// event; `g` for commands on keys of any type, `$` strings, `l` lists, `s` sets, `h` hashes, `z` sorted sets,
        /// `t` streams, `x` expired keys, `e` evicted keys, `d` modules, `A` all of these; `n` new keys, `m` keys that
        /// were not found, `L` changes of locks, of places of gates and of holds on stocks. Empty for nothing.
        notify_keyspace_events: EventClasses = "notify-keyspace-events", AnyTime, EventLetters, "", act Events;
        /// Record the distribution of each command's latency.
        latency_tracking: bool = "latency-tracking", AnyTime, YesNo, "yes", act LatencyTracking;
        /// Percentiles of commands' latencies that INFO latencystats shows.
        latency_tracking_info_percentiles: Vec<f64> = "latency-tracking-info-percentiles", AnyTime, Percentiles,
            "50 99 99.9";
        /// Milliseconds from which LATENCY records an event that held up clients; 0 for never.
        latency_monitor_threshold_ms: u64 = "latency-monitor-threshold", AnyTime, int(0, LONG_MAX), "0",
            act LatencyThreshold;
    }
}
