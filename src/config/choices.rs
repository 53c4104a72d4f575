//! Parameters whose value is one of some words, and what each of these means.

use tracing::level_filters::LevelFilter;

use super::kind::{Args, Origin, Shape, only};
use super::refusal::Refusal;

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
    /// The same for the logging library.
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

words! {
    /// Which payloads are checked in full.
    SanitizePayload {
        /// None.
        #[default]
        No = "no",
        /// Those that clients send.
        Clients = "clients",
        /// Those, and files.
        Yes = "yes",
    }
}

words! {
    /// The least severe messages that are logged.
    LogLevel {
        /// Everything.
        Debug = "debug",
        /// Much, without the noise.
        Verbose = "verbose",
        /// What an operator wants to know.
        #[default]
        Notice = "notice",
        /// Only what needs attention.
        Warning = "warning",
        /// Not even that.
        Nothing = "nothing",
    }
}

words! {
    /// From where something dangerous may be done.
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
    /// Whether a client may, given whether it is connected by loopback or unix socket.
    pub fn allows(self, client_is_local: bool) -> bool {
        self == AllowFrom::Yes || (self == AllowFrom::Local && client_is_local)
    }
}

words! {
    /// Whether clients must show a certificate over TLS.
    TlsAuthClients {
        /// They are not asked for one.
        No = "no",
        /// They must.
        #[default]
        Yes = "yes",
        /// They may, and then it must be a good one.
        Optional = "optional",
    }
}

words! {
    /// Which name in a client's certificate is that of its user.
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
    /// When the log is forced to disk.
    AppendFsync {
        /// Every second.
        EverySecond = "everysec",
        /// Before a reply leaves.
        #[default]
        Always = "always",
        /// When the operating system likes.
        No = "no",
    }
}

words! {
    /// Which keys are evicted when memory is full.
    MaxmemoryPolicy {
        /// The least recently used of those that expire.
        VolatileLru = "volatile-lru",
        /// The least frequently used of those that expire.
        VolatileLfu = "volatile-lfu",
        /// The least recently changed of those that expire.
        VolatileLrm = "volatile-lrm",
        /// Any that expires.
        VolatileRandom = "volatile-random",
        /// The one that expires next.
        VolatileTtl = "volatile-ttl",
        /// The least recently used.
        AllKeysLru = "allkeys-lru",
        /// The least frequently used.
        AllKeysLfu = "allkeys-lfu",
        /// The least recently changed.
        AllKeysLrm = "allkeys-lrm",
        /// Any.
        AllKeysRandom = "allkeys-random",
        /// None: commands that need memory are refused.
        #[default]
        NoEviction = "noeviction",
    }
}

/// By what a policy chooses who goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ranking {
    /// When it was used last.
    Use,
    /// How often it is used.
    Frequency,
    /// When it was changed last.
    Change,
    /// When it expires.
    Deadline,
    /// Nothing.
    Chance,
}

impl MaxmemoryPolicy {
    /// By what it chooses; `None` where nobody goes.
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

    /// Whether only keys go that expire.
    pub fn is_volatile(self) -> bool {
        use MaxmemoryPolicy::{VolatileLfu, VolatileLrm, VolatileLru, VolatileRandom, VolatileTtl};
        matches!(self, VolatileLru | VolatileLfu | VolatileLrm | VolatileRandom | VolatileTtl)
    }
}

words! {
    /// Which service manager hears when the server is ready.
    Supervised {
        /// None.
        #[default]
        No = "no",
        /// Upstart.
        Upstart = "upstart",
        /// systemd.
        Systemd = "systemd",
        /// Whichever started the server.
        Auto = "auto",
    }
}

words! {
    /// How `oom-score-adj-values` are meant.
    OomScoreAdj {
        /// Not at all.
        #[default]
        No = "no",
        /// As `relative`.
        Yes = "yes",
        /// Added to what was there.
        Relative = "relative",
        /// In place of what was there.
        Absolute = "absolute",
    }
}

words! {
    /// What kind of program the system's log is told that this is.
    SyslogFacility {
        /// One of users.
        User = "user",
        /// A local one.
        #[default]
        Local0 = "local0",
        /// A local one.
        Local1 = "local1",
        /// A local one.
        Local2 = "local2",
        /// A local one.
        Local3 = "local3",
        /// A local one.
        Local4 = "local4",
        /// A local one.
        Local5 = "local5",
        /// A local one.
        Local6 = "local6",
        /// A local one.
        Local7 = "local7",
    }
}

impl SyslogFacility {
    /// The system's number for it.
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

/// One of the words of the field's type.
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

/// One of these words.
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
    /// Which channels a new user may use.
    AclPubsubDefault {
        /// None.
        #[default]
        ResetChannels = "resetchannels",
        /// All.
        AllChannels = "allchannels",
    }
}
