//! Configuration: one table, from which come the flags, the file, CONFIG GET and SET, and the help.
//!
//! A parameter is one entry of the table (`table.rs`): its meaning, its typed field, its names, its default. The rest of
//! the server reads fields (`config.maxclients`); everything that deals in names and text goes through [`PARAMETERS`].
//! The values' grammar is in `kind.rs`, that of the file and the flags in `load.rs`.
//!
//! A change is tried on a copy: CONFIG SET of several parameters takes effect as a whole or not at all.

mod kind;
mod load;
mod table;

pub use kind::{
    AclPubsubDefault, AllowFrom, AppendFsync, BytesOrShare, EndOptions, LogLevel, MaxmemoryPolicy, OutputLimit,
    OutputLimits, Ranking, Refusal, SanitizePayload, SavePoint, Shape, TlsAuthClients, TlsAuthClientsUser, UserLine,
    percent_text,
};
pub use load::{LineError, LineFault, LoadError, command};
pub use table::{Change, Config, PARAMETERS, Parameter};

use std::time::Duration;

use crate::base::glob;
use crate::base::limits::QUERY_BUFFER_HARD_MAX_BYTES;
use kind::Origin;

/// What `rdb-key-save-delay` and `key-load-delay` mean: microseconds for each key, or, below zero, one for so many keys.
pub fn rest_per_key(delay_us: i32) -> Duration {
    match u64::from(delay_us.unsigned_abs()) {
        0 => Duration::ZERO,
        parts => Duration::from_nanos(if delay_us > 0 { 1_000 * parts } else { 1_000 / parts }),
    }
}

/// Why CONFIG SET changed nothing. The text is what the client is sent, error code included.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SetError {
    /// No parameter has this name.
    #[error("ERR Unknown option or number of arguments for CONFIG SET - '{0}'")]
    Unknown(String),
    /// A parameter that can't be set, or not to this value.
    #[error("ERR CONFIG SET failed (possibly related to argument '{name}') - {reason}")]
    Refused {
        /// The name as the client wrote it.
        name: String,
        /// What is wrong.
        reason: Refusal,
    },
}

impl Default for Config {
    fn default() -> Config {
        let mut config = Config::blank();
        for parameter in PARAMETERS {
            // The defaults parse, as a test shows; only the working directory may be gone, and then stays empty.
            let set = (parameter.set)(&mut config, &[parameter.default.as_bytes()], Origin::Load);
            debug_assert!(set.is_ok() || parameter.name == "dir", "the default of {} is refused", parameter.name);
        }
        config
    }
}

impl Config {
    /// What CONFIG GET answers to `patterns`: names (aliases included) and values, in the table's order after the names
    /// that were given plainly. Such a name comes back as it was written.
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
            let wanted =
                patterns.iter().any(|pattern| !is_plain(pattern) && glob::matches_nocase(pattern, name.as_bytes()));
            if wanted && !found.iter().any(|(known, _)| known.eq_ignore_ascii_case(name.as_bytes())) {
                found.push((name.into(), self.value(parameter)));
            }
        }
        found
    }

    /// The text of a parameter's value, as CONFIG GET shows it.
    pub fn value(&self, parameter: &Parameter) -> Vec<u8> {
        let mut value = Vec::new();
        (parameter.get)(self, &mut value);
        value
    }

    /// Does CONFIG SET: all of `pairs` or, with an error, none. `local` says whether the client is connected by loopback
    /// or unix socket. Returns the parameters whose value is another one now, for those who must act on it.
    pub fn set<'a>(
        &mut self,
        pairs: impl IntoIterator<Item = (&'a [u8], &'a [u8])>,
        local: bool,
    ) -> Result<Vec<&'static Parameter>, SetError> {
        let mut accepted: Vec<(&[u8], &[u8], &'static Parameter)> = Vec::new();
        for (name, value) in pairs {
            let parameter = Parameter::named(name).ok_or_else(|| SetError::Unknown(text(name)))?;
            let reason = match parameter.change {
                Change::AtStart => Some(Refusal::Immutable),
                Change::Protected if !self.enable_protected_configs.allows(local) => Some(Refusal::Protected),
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
        let differs = |parameter: &&Parameter| self.value(parameter) != changed.value(parameter);
        let different = accepted.iter().map(|&(.., parameter)| parameter).filter(differs).collect();
        *self = changed;
        Ok(different)
    }

    /// Bytes that one client may send ahead of being answered.
    pub fn query_limit_bytes(&self) -> usize {
        self.client_query_buffer_limit.min(QUERY_BUFFER_HARD_MAX_BYTES)
    }

    /// What to log when `parameter` promises more than the server does, as it stands now.
    pub fn warning(&self, parameter: &Parameter) -> Option<String> {
        let value = text(&self.value(parameter));
        let (until, harmless) = parameter.until.zip(parameter.warn)?;
        (value != harmless).then(|| format!("{} \"{value}\" has no effect. {until}", parameter.name))
    }

    /// All warnings, for the start.
    pub fn warnings(&self) -> Vec<String> {
        PARAMETERS.iter().filter_map(|parameter| self.warning(parameter)).collect()
    }
}

impl Parameter {
    /// The parameter of that name or alias, in any case.
    pub fn named(name: &[u8]) -> Option<&'static Parameter> {
        all_names().find(|(known, _)| known.as_bytes().eq_ignore_ascii_case(name)).map(|(_, parameter)| parameter)
    }
}

fn all_names() -> impl Iterator<Item = (&'static str, &'static Parameter)> {
    PARAMETERS
        .iter()
        .flat_map(|parameter| std::iter::once(parameter.name).chain(parameter.alias).map(move |name| (name, parameter)))
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(config: &mut Config, pairs: &[(&str, &str)]) -> Result<Vec<&'static str>, String> {
        let pairs = pairs.iter().map(|(name, value)| (name.as_bytes(), value.as_bytes()));
        match config.set(pairs, false) {
            Ok(changed) => Ok(changed.iter().map(|parameter| parameter.name).collect()),
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
            assert!(name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'-'), "{name}");
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
        for parameter in PARAMETERS {
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
    fn what_get_gives_set_takes() {
        let mut config = Config::default();
        let refused = |error: &str| error.ends_with("immutable config") || error.ends_with("protected config");
        for (name, value) in get(&Config::default(), &["*"]) {
            match set(&mut config, &[(&name, &value)]) {
                Ok(changed) => assert!(changed.is_empty(), "{name}"),
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
    fn refusals_in_redis_words() {
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
                "argument(s) must be one of the following: debug, verbose, notice, warning",
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
            config.set([(&b"dir"[..], &b"/nonexistent"[..])], true).map_err(|error| error.to_string()).err(),
            Some("ERR CONFIG SET failed (possibly related to argument 'dir') - No such file or directory".into())
        );
    }

    #[test]
    fn get_by_name_and_by_pattern() {
        let config = Config::default();
        assert_eq!(get(&config, &["HZ"]), [("HZ".into(), "10".into())]);
        assert_eq!(get(&config, &["h?", "hz", "Hz"]), [("hz".into(), "10".into())]);
        assert_eq!(get(&config, &["hash-*"]).len(), 4);
        assert_eq!(get(&config, &["nosuch", r"\*"]), []);
        assert_eq!(get(&config, &["*"]).len(), all_names().count());
    }

    #[test]
    fn promises_are_warned_of() {
        let mut config = Config::default();
        set(&mut config, &[("latency-tracking", "yes"), ("list-compress-depth", "1")]).expect("both are known");
        let warnings = config.warnings();
        assert_eq!(warnings.len(), 1);
        assert!(warnings[0].starts_with("list-compress-depth \"1\" has no effect."), "{warnings:?}");
    }
}
