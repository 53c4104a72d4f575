//! Configuration: a single table, from which the flags, the file, CONFIG GET and SET, and the help are derived.
//!
//! A parameter is one entry of the table (`table.rs`): its meaning, its typed field, its names, its default. The rest
//! of the server reads fields (`config.maxclients`); all code that deals in names and text goes through [`PARAMETERS`].
//! `kind.rs` has the grammar of values, `load.rs` the grammar of the file, and `arguments.rs` the grammar of the
//! command line. `inert.rs` has the parameters of Redis that change nothing here.
//!
//! A change is tried on a copy: CONFIG SET of several parameters takes effect as a whole or not at all. The [`Act`] of
//! a parameter puts its change into effect.

mod act;
mod arguments;
mod choices;
mod end_options;
mod event_classes;
mod hosts;
mod inert;
mod kind;
pub mod limits;
mod lists;
mod load;
mod names;
mod nodes;
mod output_limits;
mod paths;
mod reason;
mod reference;
mod refusal;
mod rewrite;
mod shares;
mod source;
mod table;
mod title;
mod words;

pub use act::{Act, NetworkPart};
pub use arguments::{Arguments, Asked, command, nearest, short_command};
pub use choices::{
    AclPubsubDefault, AllowFrom, AppendFsync, LogFormat, LogLevel, MaxmemoryPolicy, OomScoreAdj, Ranking,
    SanitizePayload, Supervised, SyslogFacility, TlsAuthClients, TlsAuthClientsUser,
};
pub use end_options::EndOptions;
pub use event_classes::EventClasses;
pub use inert::INERT;
pub use kind::{Shape, parse_memory};
pub use lists::{SavePoint, UserLine, percent_text};
pub use load::{LineError, LineFault, LoadError};
pub use names::all;
pub use output_limits::{OutputLimit, OutputLimits};
pub use reason::{Inert, Reason};
pub use reference::reference;
pub use refusal::Refusal;
pub use rewrite::{Added, effective, rewrite};
pub use shares::BytesOrShare;
pub use source::Source;
pub use table::{Change, Config, PARAMETERS, Parameter};

use std::time::Duration;

use crate::base::glob;
use crate::base::limits::{CONSOLE_DESCRIPTORS, METRICS_DESCRIPTORS, QUERY_BUFFER_HARD_MAX_BYTES};
use crate::base::os::descriptors::make_room;
use crate::base::os::oom_score;
use crate::base::os::oom_score::Adjustment;
use crate::config::limits::IO_THREAD_DESCRIPTORS;
use inert::FORGOTTEN;
use kind::Origin;
use names::{all_names, text};

/// Returns the delay for one key that `rdb-key-save-delay` and `key-load-delay` stand for: microseconds or, if
/// negative, one microsecond for this many keys.
pub fn rest_per_key(delay_us: i32) -> Duration {
    match u64::from(delay_us.unsigned_abs()) {
        0 => Duration::ZERO,
        parts => Duration::from_nanos(if delay_us > 0 { 1_000 * parts } else { 1_000 / parts }),
    }
}

/// Why CONFIG SET changed nothing. The text is sent to the client, including the error code.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SetError {
    /// No parameter has this name.
    #[error("ERR Unknown option or number of arguments for CONFIG SET - '{0}'")]
    Unknown(String),
    /// The parameter can't be set, or not to this value.
    #[error("ERR CONFIG SET failed (possibly related to argument '{name}') - {reason}")]
    Refused {
        /// The name as the client wrote it.
        name: String,
        /// The reason.
        reason: Refusal,
    },
    /// The parameter can't be changed while the data is being loaded.
    #[error("LOADING Redis is loading the dataset in memory")]
    Loading,
}

/// The circumstances in which parameters are set.
#[derive(Clone, Copy, Debug, Default)]
pub struct Setting {
    /// Whether the client is connected by loopback or unix socket.
    pub is_local: bool,
    /// Whether the data is being loaded.
    pub is_loading: bool,
}

/// The effect of CONFIG SET.
#[derive(Clone, Debug, Default)]
pub struct Changed {
    /// The parameters with a new value, or with the same value for something that may have changed, in the order given.
    pub parameters: Vec<&'static Parameter>,
}

impl Changed {
    /// Returns the acts to be done, each once and in order, with the first parameter that asks for it.
    pub fn acts(&self) -> Vec<(Act, &'static Parameter)> {
        let mut acts: Vec<(Act, &'static Parameter)> = Vec::new();
        for parameter in self.parameters.iter().copied().filter(|parameter| parameter.act != Act::None) {
            if !acts.iter().any(|(act, _)| *act == parameter.act) {
                acts.push((parameter.act, parameter));
            }
        }
        acts.sort_by_key(|(act, _)| *act);
        acts
    }
}

impl Default for Config {
    fn default() -> Config {
        let mut config = Config::blank();
        for parameter in PARAMETERS {
            // A test shows that all defaults can be parsed. Only the working directory may be gone, and then stays
            // empty.
            let set = (parameter.set)(&mut config, &[parameter.default.as_bytes()], Origin::Load);
            debug_assert!(set.is_ok() || parameter.name == "dir", "the default of {} is refused", parameter.name);
        }
        config
    }
}

impl Config {
    /// How long a start rests after loading this many keys: `key-load-delay`.
    pub fn rest_after_loading(&self, keys: usize) -> Duration {
        rest_per_key(self.key_load_delay_us).saturating_mul(u32::try_from(keys).unwrap_or(u32::MAX))
    }

    /// Returns the reply of CONFIG GET to `patterns`: names (including aliases) and values. Plain names come first, as
    /// they were written, and then the matches of patterns in the table's order.
    pub fn matching<'a>(&self, patterns: impl IntoIterator<Item = &'a [u8]>) -> Vec<(Vec<u8>, Vec<u8>)> {
        let patterns: Vec<&[u8]> = patterns.into_iter().collect();
        let is_plain = |pattern: &[u8]| !pattern.iter().any(|byte| matches!(byte, b'*' | b'?' | b'['));
        let mut found: Vec<(Vec<u8>, Vec<u8>)> = Vec::new();
        for name in patterns.iter().filter(|pattern| is_plain(pattern)) {
            let known = found.iter().any(|(known, _)| known.eq_ignore_ascii_case(name));
            if let Some(parameter) = Parameter::named(name).filter(|_| !known) {
                found.push((name.to_vec(), self.value(parameter)));
            }
        }
        for (name, parameter) in all_names() {
            let wanted = !parameter.is_hidden
                && patterns.iter().any(|pattern| !is_plain(pattern) && glob::matches_nocase(pattern, name.as_bytes()));
            if wanted && !found.iter().any(|(known, _)| known.eq_ignore_ascii_case(name.as_bytes())) {
                found.push((name.into(), self.value(parameter)));
            }
        }
        found
    }

    /// Returns the text of a parameter's value, as CONFIG GET shows it.
    pub fn value(&self, parameter: &Parameter) -> Vec<u8> {
        let mut value = Vec::new();
        (parameter.get)(self, &mut value);
        value
    }

    /// Does CONFIG SET: sets all of `pairs` or, with an error, none. Returns the changes, which the caller must put
    /// into effect.
    pub fn set<'a>(
        &mut self,
        pairs: impl IntoIterator<Item = (&'a [u8], &'a [u8])>,
        setting: Setting,
    ) -> Result<Changed, SetError> {
        let mut accepted: Vec<(&[u8], &[u8], &'static Parameter)> = Vec::new();
        for (name, value) in pairs {
            let parameter = Parameter::named(name).ok_or_else(|| SetError::Unknown(text(name)))?;
            if setting.is_loading && parameter.waits_for_data {
                return Err(SetError::Loading);
            }
            let reason = match parameter.change {
                Change::AtStart => Some(Refusal::Immutable),
                Change::Protected if !self.enable_protected_configs.allows(setting.is_local) => {
                    Some(Refusal::Protected)
                }
                _ if accepted.iter().any(|(known, ..)| known.eq_ignore_ascii_case(name)) => Some(Refusal::Duplicate),
                _ => None,
            };
            if let Some(reason) = reason {
                return Err(SetError::Refused { name: text(name), reason });
            }
            accepted.push((name, value, parameter));
        }
        let mut changed = self.clone();
        for (name, value, parameter) in &accepted {
            (parameter.set)(&mut changed, &[value], Origin::Set)
                .map_err(|reason| SetError::Refused { name: text(name), reason })?;
        }
        let differs =
            |parameter: &&Parameter| parameter.act.is_repeated() || self.value(parameter) != changed.value(parameter);
        let parameters = accepted.iter().map(|&(.., parameter)| parameter).filter(differs).collect();
        *self = changed;
        Ok(Changed { parameters })
    }

    /// Returns how many bytes one client may send ahead of the replies.
    pub fn query_limit_bytes(&self) -> usize {
        self.client_query_buffer_limit.min(QUERY_BUFFER_HARD_MAX_BYTES)
    }

    /// Returns the warning to log if the value of `parameter` promises more than the server does.
    pub fn warning(&self, parameter: &Parameter) -> Option<String> {
        let value = text(&self.value(parameter));
        let (until, harmless) = parameter.until.zip(parameter.warn)?;
        (value != harmless).then(|| format!("{} \"{value}\" has no effect. {until}", parameter.name))
    }

    /// Returns all warnings, for the start.
    pub fn warnings(&self) -> Vec<String> {
        let is_alone = self.node_id == 0 && self.copies_wanted() > 0;
        let refuses_all = is_alone.then(|| {
            "`min-replicas-to-write` is above 0, and a single server has no replicas: all changes are refused"
                .to_owned()
        });
        PARAMETERS.iter().filter_map(|parameter| self.warning(parameter)).chain(refuses_all).collect()
    }

    /// Returns how many other nodes must have each change, beside those of the quorum; 0 if none.
    #[inline]
    pub fn copies_wanted(&self) -> usize {
        if self.min_replicas_max_lag_s == 0 { 0 } else { self.min_replicas_to_write as usize }
    }

    /// Returns the title of the process, which was called as `program`; `None` if it should keep its command line.
    pub fn title(&self, program: &str) -> Option<String> {
        let socket = || self.unixsocket.display().to_string();
        let value = |name: &str| match name {
            "title" => Some(program.to_owned()),
            "listen-addr" => Some(match (self.port, self.tls_port) {
                (0, 0) => format!("unixsocket:{}", socket()),
                (0, port) | (port, _) => format!("{}:{port}", self.bind.first().map_or("*", String::as_str)),
            }),
            "server-mode" => Some(String::new()),
            "port" => Some(self.port.to_string()),
            "tls-port" => Some(self.tls_port.to_string()),
            "unixsocket" => Some(socket()),
            "config-file" => {
                Some(self.source.file.as_ref().map_or_else(|| "-".to_owned(), |file| file.display().to_string()))
            }
            _ => None,
        };
        title::expand(&self.proc_title_template, value).filter(|_| self.set_proc_title)
    }

    /// Makes the system allow this process the descriptors that `maxclients` clients, the I/O threads and the ports of
    /// HTTP need. If it allows only fewer, changes nothing and returns the number of clients that it would allow.
    pub fn make_room_for_clients(&self) -> Result<(), u32> {
        let of_threads = IO_THREAD_DESCRIPTORS * (self.io_threads - 1);
        let of_metrics = if self.metrics_port == 0 { 0 } else { METRICS_DESCRIPTORS };
        let of_console = if self.console_port == 0 { 0 } else { CONSOLE_DESCRIPTORS };
        let others = of_threads + of_metrics + of_console;
        make_room(self.maxclients.saturating_add(others)).map_err(|possible| possible.saturating_sub(others))
    }

    /// Tells the system to end this process as readily as `oom-score-adj` says.
    pub fn adjust_oom_score(&self) -> std::io::Result<()> {
        let [score, ..] = self.oom_score_adj_values;
        oom_score::adjust(match self.oom_score_adj {
            OomScoreAdj::No => Adjustment::None,
            OomScoreAdj::Yes | OomScoreAdj::Relative => Adjustment::By(score),
            OomScoreAdj::Absolute => Adjustment::To(score),
        })
    }

    /// Returns the notices for the start about parameters that were given although they change nothing: a line for each
    /// reason.
    pub fn notices(&self) -> Vec<String> {
        notices(&self.source.inert)
    }
}

/// Returns the notices about those of the `given` parameters that change nothing: a line for each reason.
fn notices(given: &[&'static str]) -> Vec<String> {
    let reason = |name: &str| {
        let parameter = Parameter::named(name.as_bytes()).and_then(|parameter| parameter.inert);
        parameter.or_else(|| FORGOTTEN.iter().find(|(known, _)| *known == name).map(|(_, reason)| *reason))
    };
    let named = |of: Reason| {
        let names: Vec<_> = given.iter().copied().filter(|name| reason(name) == Some(of)).collect();
        (!names.is_empty()).then(|| {
            let (names, since) = (names.join(", "), of.text());
            format!("parameters without effect, which may be deleted from the configuration: {names} ({since})")
        })
    };
    Reason::ALL.into_iter().filter_map(named).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(config: &mut Config, pairs: &[(&str, &str)]) -> Result<Vec<&'static str>, String> {
        let pairs = pairs.iter().map(|(name, value)| (name.as_bytes(), value.as_bytes()));
        match config.set(pairs, Setting::default()) {
            Ok(changed) => Ok(changed.parameters.iter().map(|parameter| parameter.name).collect()),
            Err(error) => Err(error.to_string()),
        }
    }

    fn get(config: &Config, patterns: &[&str]) -> Vec<(String, String)> {
        let found = config.matching(patterns.iter().map(|pattern| pattern.as_bytes()));
        found.iter().map(|(name, value)| (text(name), text(value))).collect()
    }

    #[test]
    fn the_table_is_sound() {
        let names: Vec<_> = all_names().map(|(name, _)| name).collect();
        for (at, name) in names.iter().enumerate() {
            assert!(!names[..at].contains(name), "{name} stands twice");
            assert!(name.bytes().all(|byte| byte.is_ascii_lowercase() || matches!(byte, b'-' | b'_')), "{name}");
        }
        for parameter in PARAMETERS {
            let doc = parameter.doc.trim();
            assert!(doc.ends_with('.') && doc.len() > 10, "{} lacks a sentence", parameter.name);
            assert!(parameter.warn.is_none() || parameter.until.is_some(), "{} warns of nothing", parameter.name);
        }
    }

    #[test]
    fn defaults_parse_to_themselves_and_every_value_round_trips() {
        let defaults = Config::default();
        for parameter in all() {
            let mut config = defaults.clone();
            let value = defaults.value(parameter);
            for origin in [Origin::Set, Origin::Load] {
                assert_eq!((parameter.set)(&mut config, &[&value], origin), Ok(()), "{}", parameter.name);
                assert_eq!(config, defaults, "{}", parameter.name);
            }
        }
        assert_eq!((defaults.port, defaults.databases, defaults.maxclients), (6379, 16, 10_000));
        assert_eq!(defaults.proto_max_bulk_len, 512 << 20);
        assert_eq!(defaults.client_output_buffer_limit.pubsub.hard_bytes, 32 << 20);
        assert!(defaults.dir.is_absolute());
        assert_eq!(defaults.warnings(), Vec::<String>::new());
    }

    #[test]
    fn set_accepts_every_value_of_get() {
        let mut config = Config::default();
        let refused = |error: &str| error.ends_with("immutable config") || error.ends_with("protected config");
        for (name, value) in get(&Config::default(), &["*"]) {
            match set(&mut config, &[(&name, &value)]) {
                Ok(changed) => {
                    let is_repeated = |name: &&str| {
                        Parameter::named(name.as_bytes()).is_some_and(|parameter| parameter.act.is_repeated())
                    };
                    assert!(changed.iter().all(is_repeated), "{name}");
                }
                Err(error) => assert!(refused(&error), "{error}"),
            }
        }
    }

    #[test]
    fn set_is_all_or_nothing() {
        let mut config = Config::default();
        let before = config.clone();
        assert!(set(&mut config, &[("hz", "20"), ("timeout", "x")]).is_err());
        assert_eq!(config, before);
        assert_eq!(set(&mut config, &[("HZ", "1000"), ("timeout", "0")]), Ok(vec!["hz"]));
        assert_eq!(config.hz, 500);
        assert_eq!(set(&mut config, &[("lua-time-limit", "3")]), Ok(vec!["busy-reply-threshold"]));
    }

    #[test]
    fn refusals_use_the_words_of_redis() {
        let mut config = Config::default();
        let failed = |name: &str, why: &str| {
            Err(format!("ERR CONFIG SET failed (possibly related to argument '{name}') - {why}"))
        };
        for (pairs, name, why) in [
            (&[("databases", "4"), ("nosuch", "3")][..], "databases", "can't set immutable config"),
            (&[("hz", "3"), ("hz", "4")], "hz", "duplicate parameter"),
            (&[("dir", "/")], "dir", "can't set protected config"),
            (&[("hz", "010")], "hz", "argument couldn't be parsed into an integer"),
            (&[("Timeout", "-1")], "Timeout", "argument must be between 0 and 2147483647 inclusive"),
            (&[("maxmemory", "10qb")], "maxmemory", "argument must be a memory value"),
            (&[("script-rollback", "maybe")], "script-rollback", "argument must be 'yes' or 'no'"),
            (&[("save", "10")], "save", "Invalid save parameters"),
            (
                &[("loglevel", "foo")],
                "loglevel",
                "argument(s) must be one of the following: debug, verbose, notice, warning, nothing",
            ),
            (
                &[("client-query-buffer-limit", "1")],
                "client-query-buffer-limit",
                "argument must be between 1048576 and 9223372036854775807 inclusive",
            ),
        ] {
            assert_eq!(set(&mut config, pairs), failed(name, why));
        }
        assert_eq!(
            set(&mut config, &[("hz", "5"), ("nosuch", "3")]),
            Err("ERR Unknown option or number of arguments for CONFIG SET - 'nosuch'".into())
        );
        config.enable_protected_configs = AllowFrom::Local;
        assert_eq!(
            config
                .set([(&b"dir"[..], &b"/nonexistent"[..])], Setting { is_local: true, is_loading: false })
                .map_err(|error| error.to_string())
                .err(),
            Some("ERR CONFIG SET failed (possibly related to argument 'dir') - No such file or directory".into())
        );
    }

    #[test]
    fn config_get_matches_names_and_patterns() {
        let config = Config::default();
        assert_eq!(get(&config, &["HZ"]), [("HZ".into(), "10".into())]);
        assert_eq!(get(&config, &["h?", "hz", "Hz"]), [("hz".into(), "10".into())]);
        assert_eq!(get(&config, &["hash-*"]).len(), 4);
        assert_eq!(get(&config, &["nosuch", r"\*"]), []);
        assert_eq!(get(&config, &["*"]).len(), all_names().filter(|(_, parameter)| !parameter.is_hidden).count());
        assert_eq!(get(&config, &["key-load-*"]), []);
        assert_eq!(get(&config, &["key-load-delay"]).len(), 1, "a hidden parameter is shown to a client that names it");
        assert_eq!(get(&config, &["*-priority"]).len(), 2, "an alias is a name like others");
    }

    #[test]
    fn parameters_without_effect_are_kept() {
        let mut config = Config::default();
        assert_eq!(
            set(&mut config, &[("slave-priority", "7"), ("repl-backlog-size", "2mb")]).map(|set| set.len()),
            Ok(2)
        );
        assert_eq!(get(&config, &["replica-priority"]), [("replica-priority".into(), "7".into())]);
        assert_eq!(get(&config, &["repl-backlog-size"]), [("repl-backlog-size".into(), "2097152".into())]);
        set(&mut config, &[("replica-priority", "100"), ("repl-backlog-size", "1mb")]).expect("both are known");
        assert_eq!(config, Config::default());
        for (name, value) in [("replicaof", "1.2.3.4 1"), ("cluster-port", "0"), ("server-cpulist", "0")] {
            assert!(
                set(&mut config, &[(name, value)]).is_err_and(|error| error.ends_with("immutable config")),
                "{name}"
            );
        }
    }

    #[test]
    fn a_single_server_that_wants_replicas_is_warned_of() {
        let mut config = Config::default();
        set(&mut config, &[("min-slaves-to-write", "1")]).expect("it is known");
        assert!(config.warnings().iter().any(|warning| warning.contains("all changes are refused")));
        set(&mut config, &[("min-replicas-max-lag", "0")]).expect("it is known");
        assert_eq!((config.copies_wanted(), config.warnings()), (0, Vec::new()));
    }

    #[test]
    fn effects_run_once_and_in_order() {
        let mut config = Config::default();
        let pairs = [
            ("loglevel", "debug"),
            ("slowlog-max-len", "1"),
            ("save", "1 1"),
            ("slowlog-log-slower-than", "1"),
            ("hz", "5"),
        ];
        let pairs = pairs.map(|(name, value)| (name.as_bytes(), value.as_bytes()));
        let changed = config.set(pairs, Setting::default()).expect("all are right");
        let acts: Vec<_> = changed.acts().iter().map(|(act, parameter)| (*act, parameter.name)).collect();
        assert_eq!(acts, [(Act::Saving, "save"), (Act::CommandLog, "slowlog-max-len"), (Act::LogLevel, "loglevel")]);
    }

    #[test]
    fn parameters_that_need_the_data_are_refused_while_it_loads() {
        let setting = Setting { is_local: true, is_loading: true };
        let mut config = Config { enable_protected_configs: AllowFrom::Yes, ..Config::default() };
        assert!(matches!(config.set([(&b"dir"[..], &b"/"[..])], setting), Err(SetError::Loading)));
        assert!(config.set([(&b"hz"[..], &b"20"[..])], setting).is_ok());
    }

    #[test]
    fn each_reason_has_one_notice_with_all_its_parameters() {
        let config = Config::from_text(
            b"repl-timeout 5\nactiverehashing yes\nslave-priority 3\nlua-replicate-commands yes\nrepl-timeout 6\n\
              hz 20\n",
            "test",
        );
        let notices = super::notices(&config.expect("all is known").source.inert);
        assert_eq!(notices.len(), 3, "{notices:?}");
        assert!(notices[0].contains(": repl-timeout, replica-priority (there are no replicas"), "{notices:?}");
        assert!(notices[1].contains(": activerehashing (tables"), "{notices:?}");
        assert!(notices[2].contains(": lua-replicate-commands (scripts"), "{notices:?}");
        assert!(Reason::ALL.iter().all(|reason| INERT.iter().any(|parameter| parameter.inert == Some(*reason))));
    }

    #[test]
    fn values_that_the_server_cannot_honour_are_refused() {
        let refused = |line: &str| match Config::from_text(line.as_bytes(), "test") {
            Err(error) => error.to_string(),
            Ok(_) => String::new(),
        };
        for (line, advice) in [
            ("replicaof 1.2.3.4 6379", "tidegate import --follow redis://1.2.3.4:6379"),
            ("slaveof ::1 6379", "redis://[::1]:6379"),
            ("replicaof 1.2.3.4 abc", "Invalid master port"),
            ("replicaof 1.2.3.4", "wrong number of arguments"),
            ("cluster-announce-ip [::1]", "without brackets"),
            ("loadmodule /x.so", "can't load modules"),
            ("sentinel monitor a 127.0.0.1 6379 2", "redis-sentinel"),
            ("repl-timeout 0", "argument must be between 1 and 2147483647 inclusive"),
            ("repl-diskless-load never", "must be one of the following: disabled, on-empty-db, swapdb"),
            ("cluster-announce-hostname a_b", "Hostnames may only contain"),
        ] {
            assert!(refused(line).contains(advice), "{line}: {}", refused(line));
        }
        for line in ["replicaof no one", "cluster-enabled no", "min-replicas-to-write 0", "io-threads-do-reads yes"] {
            assert_eq!(refused(line), "", "{line}");
        }
    }

    #[test]
    fn titles_may_use_every_known_name() {
        let mut config = Config::default();
        assert_eq!(config.title("/usr/bin/tidegate").as_deref(), Some("/usr/bin/tidegate *:6379"));
        config.proc_title_template = title::NAMES.map(|name| format!("{{{name}}}")).join("|");
        config.unixsocket = "s".into();
        assert_eq!(config.title("t").as_deref(), Some("t|*:6379||6379|0|s|-"));
        config.port = 0;
        config.proc_title_template = "{listen-addr}".to_owned();
        assert_eq!(config.title("t").as_deref(), Some("unixsocket:s"));
        config.set_proc_title = false;
        assert_eq!(config.title("t"), None);
    }

    #[test]
    fn values_that_the_server_cannot_honour_cause_warnings() {
        let mut config = Config::default();
        set(&mut config, &[("latency-tracking", "yes"), ("list-compress-depth", "1")]).expect("both are known");
        let warnings = config.warnings();
        assert_eq!(warnings.len(), 1);
        assert!(warnings[0].starts_with("list-compress-depth \"1\" has no effect."), "{warnings:?}");
    }
}
