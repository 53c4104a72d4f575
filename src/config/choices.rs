//! Parameters whose value is one of several words, with the meaning of each word.

use tracing::level_filters::LevelFilter;

use super::kind::{Args, Origin, Shape, only};
use super::refusal::Refusal;
use crate::base::os::logging::Format;

/// A type whose values have names.
pub(super) trait Words: Copy + PartialEq + 'static {
    const WORDS: &'static [(&'static str, Self)];

    fn name(self) -> &'static str {
        Self::WORDS.iter().find(|(_, value)| *value == self).map_or("", |(name, _)| name)
    }
}

macro_rules! words {
    ($(#[$meta:meta])* $name:ident { $($(#[$variant_meta:meta])* $variant:ident = $word:literal),+ $(,)? }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub enum $name { $($(#[$variant_meta])* $variant),+ }

        impl Words for $name {
            const WORDS: &'static [(&'static str, Self)] = &[$(($word, $name::$variant)),+];
        }
    };
}

impl LogLevel {
    /// Returns the level as the logging library has it.
    pub fn filter(self) -> LevelFilter {
        match self {
            LogLevel::Debug => LevelFilter::TRACE,
            LogLevel::Verbose => LevelFilter::DEBUG,
            LogLevel::Notice => LevelFilter::INFO,
            LogLevel::Warning => LevelFilter::WARN,
            LogLevel::Nothing => LevelFilter::OFF,
        }
    }
}

impl LogFormat {
    /// Returns the form as the log takes it.
    pub fn form(self) -> Format {
        match self {
            LogFormat::Text => Format::Text,
            LogFormat::Json => Format::Json,
        }
    }
}

words! {
    /// Payloads that are checked in full.
    SanitizePayload {
        /// None.
        #[default]
        No = "no",
        /// Payloads from clients.
        Clients = "clients",
        /// Payloads from clients and files.
        Yes = "yes",
    }
}

words! {
    /// The least severe messages to log.
    LogLevel {
        /// Everything.
        Debug = "debug",
        /// Most messages, without noise.
        Verbose = "verbose",
        /// Messages of interest to an operator.
        #[default]
        Notice = "notice",
        /// Only messages that need attention.
        Warning = "warning",
        /// No messages.
        Nothing = "nothing",
    }
}

words! {
    /// The form of log lines.
    LogFormat {
        /// Text for people.
        #[default]
        Text = "text",
        /// A JSON object.
        Json = "json",
    }
}

words! {
    /// The clients that may do something dangerous.
    AllowFrom {
        /// From nowhere.
        #[default]
        No = "no",
        /// From everywhere.
        Yes = "yes",
        /// From the loopback address or the unix socket.
        Local = "local",
    }
}

impl AllowFrom {
    /// Whether a client may do it, given whether it is connected by loopback or unix socket.
    pub fn allows(self, client_is_local: bool) -> bool {
        self == AllowFrom::Yes || (self == AllowFrom::Local && client_is_local)
    }
}

words! {
    /// Whether clients must present a certificate over TLS.
    TlsAuthClients {
        /// Clients are not asked for a certificate.
        No = "no",
        /// Clients must present a certificate.
        #[default]
        Yes = "yes",
        /// Clients may present a certificate, which must then be valid.
        Optional = "optional",
    }
}

words! {
    /// The name in a client's certificate that is its user's name.
    TlsAuthClientsUser {
        /// The common name of its subject.
        CommonName = "CN",
        /// A URI among the alternative names of its subject.
        Uri = "URI",
        /// None: clients authenticate as without TLS.
        #[default]
        Off = "off",
    }
}

words! {
    /// When the journal is forced to disk.
    AppendFsync {
        /// Every second.
        EverySecond = "everysec",
        /// Before a reply leaves.
        #[default]
        Always = "always",
        /// When the operating system decides.
        No = "no",
    }
}

words! {
    /// The keys to evict when memory is full.
    MaxmemoryPolicy {
        /// The least recently used key that has an expiry.
        VolatileLru = "volatile-lru",
        /// The least frequently used key that has an expiry.
        VolatileLfu = "volatile-lfu",
        /// The least recently changed key that has an expiry.
        VolatileLrm = "volatile-lrm",
        /// Any key that has an expiry.
        VolatileRandom = "volatile-random",
        /// The key that expires next.
        VolatileTtl = "volatile-ttl",
        /// The least recently used key.
        AllKeysLru = "allkeys-lru",
        /// The least frequently used key.
        AllKeysLfu = "allkeys-lfu",
        /// The least recently changed key.
        AllKeysLrm = "allkeys-lrm",
        /// Any key.
        AllKeysRandom = "allkeys-random",
        /// No key: commands that need memory are refused.
        #[default]
        NoEviction = "noeviction",
    }
}

/// The criterion by which a policy chooses keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ranking {
    /// When the key was last used.
    Use,
    /// How often the key is used.
    Frequency,
    /// When the key was last changed.
    Change,
    /// When the key expires.
    Deadline,
    /// No criterion.
    Chance,
}

impl MaxmemoryPolicy {
    /// Returns the policy's criterion; `None` if no key is evicted.
    pub fn ranking(self) -> Option<Ranking> {
        Some(match self {
            MaxmemoryPolicy::VolatileLru | MaxmemoryPolicy::AllKeysLru => Ranking::Use,
            MaxmemoryPolicy::VolatileLfu | MaxmemoryPolicy::AllKeysLfu => Ranking::Frequency,
            MaxmemoryPolicy::VolatileLrm | MaxmemoryPolicy::AllKeysLrm => Ranking::Change,
            MaxmemoryPolicy::VolatileTtl => Ranking::Deadline,
            MaxmemoryPolicy::VolatileRandom | MaxmemoryPolicy::AllKeysRandom => Ranking::Chance,
            MaxmemoryPolicy::NoEviction => return None,
        })
    }

    /// Whether only keys with an expiry are evicted.
    pub fn is_volatile(self) -> bool {
        use MaxmemoryPolicy::{VolatileLfu, VolatileLrm, VolatileLru, VolatileRandom, VolatileTtl};
        matches!(self, VolatileLru | VolatileLfu | VolatileLrm | VolatileRandom | VolatileTtl)
    }
}

words! {
    /// The service manager to notify when the server is ready.
    Supervised {
        /// None.
        #[default]
        No = "no",
        /// Upstart.
        Upstart = "upstart",
        /// systemd.
        Systemd = "systemd",
        /// The one that started the server.
        Auto = "auto",
    }
}

words! {
    /// How `oom-score-adj-values` are applied.
    OomScoreAdj {
        /// Not at all.
        #[default]
        No = "no",
        /// As `relative`.
        Yes = "yes",
        /// Added to the original score.
        Relative = "relative",
        /// In place of the original score.
        Absolute = "absolute",
    }
}

words! {
    /// The facility of the system's log.
    SyslogFacility {
        /// User programs.
        User = "user",
        /// Local use.
        #[default]
        Local0 = "local0",
        /// Local use.
        Local1 = "local1",
        /// Local use.
        Local2 = "local2",
        /// Local use.
        Local3 = "local3",
        /// Local use.
        Local4 = "local4",
        /// Local use.
        Local5 = "local5",
        /// Local use.
        Local6 = "local6",
        /// Local use.
        Local7 = "local7",
    }
}

impl SyslogFacility {
    /// Returns the system's number of the facility.
    pub fn number(self) -> libc::c_int {
        match self {
            SyslogFacility::User => libc::LOG_USER,
            SyslogFacility::Local0 => libc::LOG_LOCAL0,
            SyslogFacility::Local1 => libc::LOG_LOCAL1,
            SyslogFacility::Local2 => libc::LOG_LOCAL2,
            SyslogFacility::Local3 => libc::LOG_LOCAL3,
            SyslogFacility::Local4 => libc::LOG_LOCAL4,
            SyslogFacility::Local5 => libc::LOG_LOCAL5,
            SyslogFacility::Local6 => libc::LOG_LOCAL6,
            SyslogFacility::Local7 => libc::LOG_LOCAL7,
        }
    }
}

/// The kind of a parameter whose value is one of the words of the field's type.
pub(super) struct OneOf<T>(pub(super) std::marker::PhantomData<T>);

pub(super) const fn one_of<T: Words>() -> OneOf<T> {
    OneOf(std::marker::PhantomData)
}

impl<T: Words> OneOf<T> {
    pub(super) fn shape(&self) -> Shape {
        Shape::Word(|| T::WORDS.iter().map(|(name, _)| *name).collect())
    }

    pub(super) fn set(&self, field: &mut T, args: Args<'_>, _: Origin) -> Result<(), Refusal> {
        let arg = only(args)?;
        let found = T::WORDS.iter().find(|(name, _)| arg.eq_ignore_ascii_case(name.as_bytes()));
        let names = || T::WORDS.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ");
        *field = found.map(|(_, value)| *value).ok_or_else(|| Refusal::Word(names()))?;
        Ok(())
    }

    pub(super) fn get(&self, field: &T, out: &mut Vec<u8>) {
        out.extend_from_slice(field.name().as_bytes());
    }
}

/// The kind of a parameter whose value is one of these words.
pub(super) struct AnyOf(pub(super) &'static [&'static str]);

impl AnyOf {
    pub(super) fn shape(&self) -> Shape {
        Shape::One("WORD")
    }

    pub(super) fn set(&self, field: &mut &'static str, args: Args<'_>, _: Origin) -> Result<(), Refusal> {
        let arg = only(args)?;
        let found = self.0.iter().find(|word| arg.eq_ignore_ascii_case(word.as_bytes()));
        *field = found.ok_or_else(|| Refusal::Word(self.0.join(", ")))?;
        Ok(())
    }

    pub(super) fn get(&self, field: &&'static str, out: &mut Vec<u8>) {
        out.extend_from_slice(field.as_bytes());
    }
}

words! {
    /// The channels that a new user may use.
    AclPubsubDefault {
        /// None.
        #[default]
        ResetChannels = "resetchannels",
        /// All.
        AllChannels = "allchannels",
    }
}
