//! The kinds of parameter values: how each is read from arguments and written back.
//!
//! A kind works on a field of [`Config`](super::Config) in place. What `set` takes, `get` gives in canonical form, and
//! `set` of that changes nothing.

use super::title::is_title;
use crate::base::num::{format_i64, parse_f64, parse_i64};
use std::path::{Path, PathBuf};
use tracing::level_filters::LevelFilter;

/// Why a value is refused. The texts are Redis'.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// A parameter takes one value.
    #[error("wrong number of arguments")]
    Arity,
    /// Not `yes` or `no`.
    #[error("argument must be 'yes' or 'no'")]
    YesNo,
    /// Not a decimal integer.
    #[error("argument couldn't be parsed into an integer")]
    Integer,
    /// Not an octal integer.
    #[error("argument couldn't be parsed as an octal number")]
    Octal,
    /// Not a number of bytes such as `512mb`.
    #[error("argument must be a memory value")]
    Memory,
    /// Both to save and not to.
    #[error("shutdown options SAVE and NOSAVE can't be used simultaneously")]
    EndWords,
    /// Neither a number of bytes nor a percentage.
    #[error("argument must be a memory or percent value")]
    MemoryOrPercent,
    /// More than all.
    #[error("percentage argument must be less or equal to 100")]
    Percent,
    /// A number outside of the bounds, which are given as text in the parameter's own base.
    #[error("argument must be between {0} and {1} inclusive")]
    Range(String, String),
    /// Not one of these words.
    #[error("argument(s) must be one of the following: {0}")]
    Word(String),
    /// A path, or nothing, where a name is wanted.
    #[error("it can't be a path, just a name")]
    NotAName,
    /// Not pairs of seconds and changes.
    #[error("Invalid save parameters")]
    SavePoints,
    /// Not numbers.
    #[error("Invalid latency-tracking-info-percentiles parameters")]
    Percentiles,
    /// Numbers that are no percentages.
    #[error("latency-tracking-info-percentiles parameters should sit between [0.0,100.0]")]
    PercentileRange,
    /// Not groups of class, hard limit, soft limit and seconds.
    #[error("Wrong number of arguments in buffer limit configuration.")]
    LimitArity,
    /// Not a class of clients.
    #[error("Invalid client class specified in buffer limit configuration.")]
    LimitClass,
    /// A limit that is no number.
    #[error("Error in hard, soft or soft_seconds setting in buffer limit configuration.")]
    LimitNumber,
    /// More addresses than there may be listeners.
    #[error("Too many bind addresses specified.")]
    TooManyAddresses,
    /// Not a directory that can be entered; the system's reason.
    #[error("{0}")]
    Directory(String),
    /// More clients than the system has descriptors for; how many it has room for.
    #[error("The operating system is not able to handle the specified number of clients, try with {0}")]
    TooManyClients(u32),
    /// Not the name of a host.
    #[error("Hostnames may only contain alphanumeric characters, hyphens or dots")]
    Hostname,
    /// Not the port of a server to replicate.
    #[error("Invalid master port")]
    MasterPort,
    /// Not three scores between these bounds.
    #[error("Invalid oom-score-adj-values, elements must be between -2000 and 2000.")]
    OomScores,
    /// A title that says nothing, or asks for what there is not.
    #[error("template format is invalid or contains unknown variables")]
    Title,
    /// It would promise what this server does not do; what to do instead.
    #[error("{0}")]
    NotHere(String),
    /// The value is right, but can't be brought about; the reason.
    #[error("{0}")]
    Failed(String),
    /// Not the letter of a class of keyspace notifications.
    #[error("Invalid event class character. Use 'Ag$lshzxeKEtmdn'.")]
    EventClass,
    /// Only settable at start.
    #[error("can't set immutable config")]
    Immutable,
    /// Only settable where `enable-protected-configs` allows it.
    #[error("can't set protected config")]
    Protected,
    /// Given twice in one CONFIG SET.
    #[error("duplicate parameter")]
    Duplicate,
}

/// Where a value comes from, which matters to parameters that may be given several times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Origin {
    /// A line of the configuration file or a flag: repeated ones add up.
    Load,
    /// CONFIG SET: the new value stands for all.
    Set,
}

/// The form of a parameter's arguments.
#[derive(Clone, Copy, Debug)]
pub enum Shape {
    /// One argument, named so in the help.
    One(&'static str),
    /// One of some words.
    Word(fn() -> Vec<&'static str>),
    /// Any number of arguments, named so in the help.
    Many(&'static str),
    /// Groups of so many arguments, named so in the help. Each may stand in a line of its own.
    Groups(&'static str, usize),
}

type Args<'a> = &'a [&'a [u8]];

fn only<'a>(args: Args<'a>) -> Result<&'a [u8], Refusal> {
    match args {
        [one] => Ok(one),
        _ => Err(Refusal::Arity),
    }
}

/// `yes` or `no`.
pub(super) struct YesNo;

impl YesNo {
    pub(super) fn shape(&self) -> Shape {
        Shape::Word(|| vec!["yes", "no"])
    }

    pub(super) fn set(&self, field: &mut bool, args: Args<'_>, _: Origin) -> Result<(), Refusal> {
        *field = match only(args)? {
            arg if arg.eq_ignore_ascii_case(b"yes") => true,
            arg if arg.eq_ignore_ascii_case(b"no") => false,
            _ => return Err(Refusal::YesNo),
        };
        Ok(())
    }

    pub(super) fn get(&self, field: &bool, out: &mut Vec<u8>) {
        out.extend_from_slice(if *field { b"yes" } else { b"no" });
    }
}

/// How a number is written.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Base {
    Decimal,
    Octal,
    /// Bytes, with a unit such as `kb` if one likes.
    Memory,
}

/// A number within bounds.
pub(super) struct Int {
    base: Base,
    low: i128,
    high: i128,
    /// What is beyond this is taken, but cut to it.
    clamp: (i128, i128),
}

pub(super) const fn int(low: i128, high: i128) -> Int {
    Int { base: Base::Decimal, low, high, clamp: (low, high) }
}

pub(super) const fn octal(low: i128, high: i128) -> Int {
    Int { base: Base::Octal, low, high, clamp: (low, high) }
}

pub(super) const fn memory(low: i128, high: i128) -> Int {
    Int { base: Base::Memory, low, high, clamp: (low, high) }
}

impl Int {
    pub(super) const fn clamped(self, low: i128, high: i128) -> Int {
        Int { clamp: (low, high), ..self }
    }

    pub(super) fn shape(&self) -> Shape {
        Shape::One(match self.base {
            Base::Decimal => "N",
            Base::Octal => "OCTAL",
            Base::Memory => "BYTES",
        })
    }

    pub(super) fn set<T: TryFrom<i128>>(&self, field: &mut T, args: Args<'_>, _: Origin) -> Result<(), Refusal> {
        let arg = only(args)?;
        let value = match self.base {
            Base::Decimal => i128::from(parse_i64(arg).ok_or(Refusal::Integer)?),
            Base::Octal => parse_octal(arg).ok_or(Refusal::Octal)?,
            Base::Memory => i128::from(parse_memory(arg).ok_or(Refusal::Memory)?),
        };
        let out_of_range = || Refusal::Range(self.text(self.low), self.text(self.high));
        if !(self.low..=self.high).contains(&value) {
            return Err(out_of_range());
        }
        *field = T::try_from(value.clamp(self.clamp.0, self.clamp.1)).map_err(|_| out_of_range())?;
        Ok(())
    }

    pub(super) fn get<T: Copy + TryInto<i128>>(&self, field: &T, out: &mut Vec<u8>) {
        // Every field is of an integer type of 64 bits at most.
        let value = (*field).try_into().unwrap_or_default();
        out.extend_from_slice(self.text(value).as_bytes());
    }

    fn text(&self, value: i128) -> String {
        if self.base == Base::Octal { format!("{value:o}") } else { value.to_string() }
    }
}

/// How the server is to end: what SHUTDOWN and the parameters of signals say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EndOptions {
    /// SAVE or NOSAVE; `None`: as `save` and the log say.
    pub save: Option<bool>,
    /// NOW: nothing waits, neither for a snapshot nor until what was answered is sent.
    pub now: bool,
    /// FORCE: also if something can't be saved.
    pub force: bool,
}

/// The kind of [`EndOptions`].
pub(super) struct EndWords;

impl EndWords {
    const WORDS: [&'static str; 5] = ["default", "save", "nosave", "now", "force"];

    pub(super) fn shape(&self) -> Shape {
        Shape::Many("default|save|nosave|now|force")
    }

    pub(super) fn set(&self, field: &mut EndOptions, args: Args<'_>, _: Origin) -> Result<(), Refusal> {
        let mut options = EndOptions::default();
        if args.is_empty() {
            return Err(Refusal::Word(Self::WORDS.join(", ")));
        }
        for word in words(args) {
            let (save, now, force) = match word.to_ascii_lowercase().as_slice() {
                b"default" => continue,
                b"save" => (Some(true), false, false),
                b"nosave" => (Some(false), false, false),
                b"now" => (None, true, false),
                b"force" => (None, false, true),
                _ => return Err(Refusal::Word(Self::WORDS.join(", "))),
            };
            if save.is_some() && options.save.is_some_and(|said| Some(said) != save) {
                return Err(Refusal::EndWords);
            }
            options =
                EndOptions { save: save.or(options.save), now: now || options.now, force: force || options.force };
        }
        *field = options;
        Ok(())
    }

    pub(super) fn get(&self, field: &EndOptions, out: &mut Vec<u8>) {
        let said = [("save", field.save == Some(true)), ("nosave", field.save == Some(false))];
        let said = said.into_iter().chain([("now", field.now), ("force", field.force)]);
        let words: Vec<&str> = said.filter_map(|(word, is_said)| is_said.then_some(word)).collect();
        out.extend_from_slice(if words.is_empty() { "default".to_owned() } else { words.join(" ") }.as_bytes());
    }
}

/// A number of bytes, or a share of `maxmemory`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BytesOrShare {
    /// So many bytes; 0 for no limit.
    Bytes(u64),
    /// So many percent.
    Percent(u8),
}

impl Default for BytesOrShare {
    fn default() -> Self {
        BytesOrShare::Bytes(0)
    }
}

impl BytesOrShare {
    /// The bytes that are meant with this `maxmemory`; 0 for no limit.
    pub fn bytes(self, maxmemory: u64) -> u64 {
        match self {
            BytesOrShare::Bytes(bytes) => bytes,
            BytesOrShare::Percent(percent) => (u128::from(maxmemory) * u128::from(percent) / 100) as u64,
        }
    }
}

/// The kind of a [`BytesOrShare`].
pub(super) struct MemoryOrPercent;

impl MemoryOrPercent {
    pub(super) fn shape(&self) -> Shape {
        Shape::One("BYTES|N%")
    }

    pub(super) fn set(&self, field: &mut BytesOrShare, args: Args<'_>, _: Origin) -> Result<(), Refusal> {
        let arg = only(args)?;
        *field = match arg.strip_suffix(b"%") {
            Some(percent) => {
                let percent = parse_i64(percent).filter(|percent| *percent >= 0).ok_or(Refusal::MemoryOrPercent)?;
                let percent = u8::try_from(percent).ok().filter(|percent| *percent <= 100);
                BytesOrShare::Percent(percent.ok_or(Refusal::Percent)?)
            }
            None => {
                let bytes = parse_memory(arg).filter(|bytes| *bytes <= i64::MAX as u64);
                BytesOrShare::Bytes(bytes.ok_or(Refusal::MemoryOrPercent)?)
            }
        };
        Ok(())
    }

    pub(super) fn get(&self, field: &BytesOrShare, out: &mut Vec<u8>) {
        let text = match field {
            BytesOrShare::Bytes(bytes) => bytes.to_string(),
            BytesOrShare::Percent(percent) => format!("{percent}%"),
        };
        out.extend_from_slice(text.as_bytes());
    }
}

fn parse_octal(text: &[u8]) -> Option<i128> {
    let octal = !text.is_empty() && text.len() <= 20 && text.iter().all(|byte| matches!(byte, b'0'..=b'7'));
    octal.then(|| text.iter().fold(0, |value, byte| value * 8 + i128::from(byte - b'0')))
}

/// A number of bytes: digits and perhaps a unit, `k`, `m`, `g` (powers of 1,000) or `kb`, `mb`, `gb` (of 1,024), in any
/// case.
pub(super) fn parse_memory(text: &[u8]) -> Option<u64> {
    let digits = text.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let (number, unit) = text.split_at(digits);
    let factor = match unit.to_ascii_lowercase().as_slice() {
        b"" | b"b" => 1,
        b"k" => 1_000,
        b"kb" => 1 << 10,
        b"m" => 1_000_000,
        b"mb" => 1 << 20,
        b"g" => 1_000_000_000,
        b"gb" => 1 << 30,
        _ => return None,
    };
    // Without digits it is 0, as in Redis.
    let number =
        number.iter().try_fold(0u64, |value, digit| value.checked_mul(10)?.checked_add(u64::from(digit - b'0')));
    number?.checked_mul(factor)
}

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

/// The name of a host.
pub(super) struct Hostname;

impl Hostname {
    pub(super) fn shape(&self) -> Shape {
        Shape::One("HOST")
    }

    pub(super) fn set(&self, field: &mut Vec<u8>, args: Args<'_>, _: Origin) -> Result<(), Refusal> {
        let name = only(args)?;
        if !name.iter().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.')) {
            return Err(Refusal::Hostname);
        }
        *field = name.to_vec();
        Ok(())
    }

    pub(super) fn get(&self, field: &[u8], out: &mut Vec<u8>) {
        out.extend_from_slice(field);
    }
}

/// Host and port of the server to replicate: nobody's so far.
pub(super) struct Master;

impl Master {
    pub(super) fn shape(&self) -> Shape {
        Shape::Many("HOST PORT")
    }

    pub(super) fn set(&self, _: &mut Vec<u8>, args: Args<'_>, _: Origin) -> Result<(), Refusal> {
        let (host, port) = match words(args).collect::<Vec<_>>()[..] {
            [b""] => return Ok(()),
            [no, one] if no.eq_ignore_ascii_case(b"no") && one.eq_ignore_ascii_case(b"one") => return Ok(()),
            [host, port] => (String::from_utf8_lossy(host).into_owned(), parse_i64(port)),
            _ => return Err(Refusal::Arity),
        };
        let port = port.filter(|port| (0..=65_535).contains(port)).ok_or(Refusal::MasterPort)?;
        let host = if host.contains(':') { format!("[{host}]") } else { host };
        Err(Refusal::NotHere(format!(
            "Tidegate can't replicate yet. To move the data here, delete the line, start the server, and run: tidegate import --follow \
             redis://{host}:{port}"
        )))
    }

    pub(super) fn get(&self, field: &[u8], out: &mut Vec<u8>) {
        out.extend_from_slice(field);
    }
}

/// Any bytes.
pub(super) struct Text;

impl Text {
    pub(super) fn shape(&self) -> Shape {
        Shape::One("TEXT")
    }

    pub(super) fn set(&self, field: &mut Vec<u8>, args: Args<'_>, _: Origin) -> Result<(), Refusal> {
        *field = only(args)?.to_vec();
        Ok(())
    }

    pub(super) fn get(&self, field: &[u8], out: &mut Vec<u8>) {
        out.extend_from_slice(field);
    }
}

/// The path of a file; empty means none.
pub(super) struct File;

impl File {
    pub(super) fn shape(&self) -> Shape {
        Shape::One("PATH")
    }

    pub(super) fn set(&self, field: &mut PathBuf, args: Args<'_>, _: Origin) -> Result<(), Refusal> {
        *field = path(only(args)?);
        Ok(())
    }

    pub(super) fn get(&self, field: &Path, out: &mut Vec<u8>) {
        use std::os::unix::ffi::OsStrExt as _;
        out.extend_from_slice(field.as_os_str().as_bytes());
    }
}

/// The name of a file or folder in a folder that another parameter names.
pub(super) struct Name;

impl Name {
    pub(super) fn shape(&self) -> Shape {
        Shape::One("NAME")
    }

    pub(super) fn set(&self, field: &mut PathBuf, args: Args<'_>, _: Origin) -> Result<(), Refusal> {
        let name = path(only(args)?);
        if name.file_name() != Some(name.as_os_str()) {
            return Err(Refusal::NotAName);
        }
        *field = name;
        Ok(())
    }

    pub(super) fn get(&self, field: &Path, out: &mut Vec<u8>) {
        File.get(field, out);
    }
}

/// A directory that exists, kept as an absolute path.
pub(super) struct Directory;

impl Directory {
    pub(super) fn shape(&self) -> Shape {
        Shape::One("PATH")
    }

    pub(super) fn set(&self, field: &mut PathBuf, args: Args<'_>, _: Origin) -> Result<(), Refusal> {
        let refused = |error: std::io::Error| Refusal::Directory(system_text(&error));
        let directory = std::fs::canonicalize(path(only(args)?)).map_err(refused)?;
        std::fs::read_dir(&directory).map_err(refused)?;
        *field = directory;
        Ok(())
    }

    pub(super) fn get(&self, field: &Path, out: &mut Vec<u8>) {
        File.get(field, out);
    }
}

fn path(bytes: &[u8]) -> PathBuf {
    use std::os::unix::ffi::OsStrExt as _;
    PathBuf::from(std::ffi::OsStr::from_bytes(bytes))
}

/// The system's sentence, without the number that Rust adds.
pub(super) fn system_text(error: &std::io::Error) -> String {
    let text = error.to_string();
    text.split(" (os error").next().unwrap_or_default().to_owned()
}

/// Addresses to listen on.
pub(super) struct Addresses;

/// The largest number of addresses, as in Redis.
pub(super) const MAX_ADDRESSES: usize = 16;

impl Addresses {
    pub(super) fn shape(&self) -> Shape {
        Shape::Many("ADDRESS")
    }

    pub(super) fn set(&self, field: &mut Vec<String>, args: Args<'_>, _: Origin) -> Result<(), Refusal> {
        let addresses: Vec<_> = words(args)
            .filter(|word| !word.is_empty())
            .map(|word| String::from_utf8_lossy(word).into_owned())
            .collect();
        if addresses.len() > MAX_ADDRESSES {
            return Err(Refusal::TooManyAddresses);
        }
        *field = addresses;
        Ok(())
    }

    pub(super) fn get(&self, field: &[String], out: &mut Vec<u8>) {
        out.extend_from_slice(field.join(" ").as_bytes());
    }
}

/// The words of all arguments: CONFIG SET gives the whole list as one, separated by single spaces.
fn words<'a>(args: Args<'a>) -> impl Iterator<Item = &'a [u8]> {
    args.iter().flat_map(|arg| arg.split(|&byte| byte == b' '))
}

/// Scores of a master, a replica and a child process.
pub(super) struct OomScores;

impl OomScores {
    pub(super) fn shape(&self) -> Shape {
        Shape::Many("SCORE SCORE SCORE")
    }

    pub(super) fn set(&self, field: &mut [i32; 3], args: Args<'_>, _: Origin) -> Result<(), Refusal> {
        let words: Vec<_> = words(args).collect();
        let [master, replica, child] = words[..] else { return Err(Refusal::Arity) };
        let score = |text| {
            let score = parse_i64(text).and_then(|score| i32::try_from(score).ok());
            score.filter(|score| (-2_000..=2_000).contains(score)).ok_or(Refusal::OomScores)
        };
        *field = [score(master)?, score(replica)?, score(child)?];
        Ok(())
    }

    pub(super) fn get(&self, field: &[i32; 3], out: &mut Vec<u8>) {
        out.extend_from_slice(field.map(|score| score.to_string()).join(" ").as_bytes());
    }
}

/// A title of the process, with names in braces for what is put there.
pub(super) struct Title;

impl Title {
    pub(super) fn shape(&self) -> Shape {
        Shape::One("TEXT")
    }

    pub(super) fn set(&self, field: &mut String, args: Args<'_>, _: Origin) -> Result<(), Refusal> {
        let template = String::from_utf8_lossy(only(args)?).into_owned();
        if !is_title(&template) {
            return Err(Refusal::Title);
        }
        *field = template;
        Ok(())
    }

    pub(super) fn get(&self, field: &str, out: &mut Vec<u8>) {
        out.extend_from_slice(field.as_bytes());
    }
}

/// A snapshot is due when this many changes happened and this many seconds went by since the last one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SavePoint {
    /// Seconds, at least 1.
    pub seconds: i64,
    /// Changes.
    pub changes: i64,
}

/// Pairs of seconds and changes; one empty argument for none.
pub(super) struct SavePoints;

/// A line about a user: its name and its rules. What they mean is not known here.
pub type UserLine = Vec<Vec<u8>>;

/// Lines about users, which add up.
pub(super) struct UserLines;

impl UserLines {
    pub(super) fn shape(&self) -> Shape {
        Shape::Many("NAME RULES")
    }

    pub(super) fn set(&self, field: &mut Vec<UserLine>, args: Args<'_>, _: Origin) -> Result<(), Refusal> {
        let words: Vec<Vec<u8>> = words(args).filter(|word| !word.is_empty()).map(<[u8]>::to_vec).collect();
        if !words.is_empty() {
            field.push(words);
        }
        Ok(())
    }

    /// Not shown: the hashes of passwords are among them, and ACL LIST shows what they have become.
    pub(super) fn get(&self, _: &[UserLine], _: &mut Vec<u8>) {}
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

impl SavePoints {
    pub(super) fn shape(&self) -> Shape {
        Shape::Groups("SECONDS CHANGES", 2)
    }

    pub(super) fn set(&self, field: &mut Vec<SavePoint>, args: Args<'_>, origin: Origin) -> Result<(), Refusal> {
        if args == [b""] {
            field.clear();
            return Ok(());
        }
        let words: Vec<_> = words(args).collect();
        let (pairs, []) = words.as_chunks::<2>() else { return Err(Refusal::SavePoints) };
        let number = |text, low| parse_i64(text).filter(|&value| value >= low).ok_or(Refusal::SavePoints);
        let points = pairs
            .iter()
            .map(|[seconds, changes]| Ok(SavePoint { seconds: number(seconds, 1)?, changes: number(changes, 0)? }))
            .collect::<Result<Vec<_>, _>>()?;
        if origin == Origin::Set {
            field.clear();
        }
        field.extend(points);
        Ok(())
    }

    pub(super) fn get(&self, field: &[SavePoint], out: &mut Vec<u8>) {
        let texts: Vec<_> = field.iter().map(|point| format!("{} {}", point.seconds, point.changes)).collect();
        out.extend_from_slice(texts.join(" ").as_bytes());
    }
}

/// Percentages; one empty argument for none.
pub(super) struct Percentiles;

impl Percentiles {
    pub(super) fn shape(&self) -> Shape {
        Shape::Many("PERCENT")
    }

    pub(super) fn set(&self, field: &mut Vec<f64>, args: Args<'_>, _: Origin) -> Result<(), Refusal> {
        if args == [b""] {
            field.clear();
            return Ok(());
        }
        let read = |word| match parse_f64(word).ok_or(Refusal::Percentiles)? {
            percent if (0.0..=100.0).contains(&percent) => Ok(percent),
            _ => Err(Refusal::PercentileRange),
        };
        *field = words(args).map(read).collect::<Result<_, _>>()?;
        Ok(())
    }

    pub(super) fn get(&self, field: &[f64], out: &mut Vec<u8>) {
        let texts: Vec<_> = field.iter().map(|percent| percent_text(*percent)).collect();
        out.extend_from_slice(texts.join(" ").as_bytes());
    }
}

/// A percentage with up to six digits behind the point.
pub fn percent_text(percent: f64) -> String {
    let text = format!("{percent:.6}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// How much may wait to be read by a client before it is disconnected; 0 means no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OutputLimit {
    /// Bytes never to be passed.
    pub hard_bytes: u64,
    /// Bytes not to be passed for longer than `soft_seconds`.
    pub soft_bytes: u64,
    /// Seconds.
    pub soft_seconds: u64,
}

/// The output limits by class of client.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OutputLimits {
    /// Ordinary clients.
    pub normal: OutputLimit,
    /// Replicas.
    pub replica: OutputLimit,
    /// Clients that are subscribed to a channel or pattern.
    pub pubsub: OutputLimit,
}

/// Groups of class, hard limit, soft limit and seconds; classes that are not named keep theirs.
pub(super) struct Limits;

impl Limits {
    pub(super) fn shape(&self) -> Shape {
        Shape::Groups("CLASS HARD SOFT SECONDS", 4)
    }

    pub(super) fn set(&self, field: &mut OutputLimits, args: Args<'_>, _: Origin) -> Result<(), Refusal> {
        if args == [b""] {
            return Ok(());
        }
        let words: Vec<_> = words(args).collect();
        let (groups, []) = words.as_chunks::<4>() else { return Err(Refusal::LimitArity) };
        let mut limits = *field;
        for [class, hard, soft, seconds] in groups {
            let limit = match class.to_ascii_lowercase().as_slice() {
                b"normal" => &mut limits.normal,
                b"replica" | b"slave" => &mut limits.replica,
                b"pubsub" => &mut limits.pubsub,
                _ => return Err(Refusal::LimitClass),
            };
            *limit = OutputLimit {
                hard_bytes: parse_memory(hard).ok_or(Refusal::LimitNumber)?,
                soft_bytes: parse_memory(soft).ok_or(Refusal::LimitNumber)?,
                soft_seconds: parse_i64(seconds).and_then(|n| u64::try_from(n).ok()).ok_or(Refusal::LimitNumber)?,
            };
        }
        *field = limits;
        Ok(())
    }

    pub(super) fn get(&self, field: &OutputLimits, out: &mut Vec<u8>) {
        for (class, limit) in [("normal", field.normal), (" slave", field.replica), (" pubsub", field.pubsub)] {
            out.extend_from_slice(class.as_bytes());
            for number in [limit.hard_bytes, limit.soft_bytes, limit.soft_seconds] {
                out.push(b' ');
                format_i64(out, i64::try_from(number).unwrap_or(i64::MAX));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_of_memory() {
        for (text, bytes) in
            [("0", 0), ("12b", 12), ("1k", 1_000), ("1KB", 1_024), ("2Gb", 2 << 30), ("3m", 3_000_000), ("", 0)]
        {
            assert_eq!(parse_memory(text.as_bytes()), Some(bytes), "{text}");
        }
        for text in ["-1", " 5", "10qb", "101%", "99999999999999999999", "18446744073709551615kb"] {
            assert_eq!(parse_memory(text.as_bytes()), None, "{text}");
        }
    }

    #[test]
    fn octal_speaks_octal() {
        let mut mode = 0u32;
        let perm = octal(0, 0o777);
        assert_eq!(perm.set(&mut mode, &[b"750"], Origin::Load), Ok(()));
        assert_eq!(mode, 0o750);
        let refused = perm.set(&mut mode, &[b"7777"], Origin::Load).map_err(|refusal| refusal.to_string());
        assert_eq!(refused, Err("argument must be between 0 and 777 inclusive".into()));
        assert_eq!(perm.set(&mut mode, &[b"9"], Origin::Load), Err(Refusal::Octal));
    }

    #[test]
    fn save_points_add_up_in_a_file_only() {
        let mut points = Vec::new();
        SavePoints.set(&mut points, &[b"60", b"1"], Origin::Load).expect("a pair");
        SavePoints.set(&mut points, &[b"70 2"], Origin::Load).expect("a pair in one word");
        assert_eq!(points.len(), 2);
        for bad in ["10", "abc d", "0 10", "3600  1", " ", "60 -1", "1 2 "] {
            assert_eq!(
                SavePoints.set(&mut points, &[bad.as_bytes()], Origin::Set),
                Err(Refusal::SavePoints),
                "{bad:?}"
            );
        }
        SavePoints.set(&mut points, &[b"5 6"], Origin::Set).expect("a pair");
        assert_eq!(points, [SavePoint { seconds: 5, changes: 6 }]);
        SavePoints.set(&mut points, &[b""], Origin::Load).expect("none");
        assert!(points.is_empty());
    }

    #[test]
    fn limits_name_their_class() {
        let mut limits = OutputLimits::default();
        let mut set = |text: &str| Limits.set(&mut limits, &[text.as_bytes()], Origin::Set);
        assert_eq!(set("normal 1mb 2 3 replica 4 5 6"), Ok(()));
        assert_eq!(set("normal 1 2"), Err(Refusal::LimitArity));
        assert_eq!(set(""), Ok(()));
        assert_eq!(set("foo 1 2 3"), Err(Refusal::LimitClass));
        assert_eq!(set("normal 1 2 -1"), Err(Refusal::LimitNumber));
        let mut out = Vec::new();
        Limits.get(&limits, &mut out);
        assert_eq!(out, b"normal 1048576 2 3 slave 4 5 6 pubsub 0 0 0");
    }
}
