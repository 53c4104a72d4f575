//! Why the value of a parameter is refused.

use crate::base::limits::{METRICS_PREFIX_MAX_BYTES, METRICS_PREFIXES_MAX};

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
    /// More prefixes of keys than grants are counted by, or such as are too long or no text.
    #[error(
        "there may be at most {METRICS_PREFIXES_MAX} prefixes of at most {METRICS_PREFIX_MAX_BYTES} bytes of UTF-8"
    )]
    KeyPrefixes,
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
