//! Why the value of a parameter is refused.

use crate::config::limits::{METRICS_PREFIX_MAX_BYTES, METRICS_PREFIXES_MAX};

/// Why a value is refused. Texts that Redis has, too, equal Redis'.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The parameter takes one value.
    #[error("wrong number of arguments")]
    Arity,
    /// The value is neither `yes` nor `no`.
    #[error("argument must be 'yes' or 'no'")]
    YesNo,
    /// The value is no decimal integer.
    #[error("argument couldn't be parsed into an integer")]
    Integer,
    /// The value is no octal integer.
    #[error("argument couldn't be parsed as an octal number")]
    Octal,
    /// The value is not a number of bytes such as `512mb`.
    #[error("argument must be a memory value")]
    Memory,
    /// SAVE and NOSAVE are given together.
    #[error("shutdown options SAVE and NOSAVE can't be used simultaneously")]
    EndWords,
    /// The value is neither a number of bytes nor a percentage.
    #[error("argument must be a memory or percent value")]
    MemoryOrPercent,
    /// The percentage is more than 100.
    #[error("percentage argument must be less or equal to 100")]
    Percent,
    /// The number is outside of its bounds, which are given as text in the parameter's own base.
    #[error("argument must be between {0} and {1} inclusive")]
    Range(String, String),
    /// The value is not one of these words.
    #[error("argument(s) must be one of the following: {0}")]
    Word(String),
    /// The value is a path, or empty, but must be a name.
    #[error("it can't be a path, just a name")]
    NotAName,
    /// The values are not pairs of seconds and changes.
    #[error("Invalid save parameters")]
    SavePoints,
    /// The values are not nodes.
    #[error("nodes are written as number=host:port@port, with the port for clients and that for nodes")]
    Nodes,
    /// A number or an address stands for two nodes.
    #[error("each node needs a number and an address of its own")]
    NodeTwice,
    /// The value is not where a node can be reached.
    #[error("an address of a node is written as host:port@port, with the port for clients and that for nodes")]
    Announced,
    /// The value can't be the name of a group.
    #[error("the name of a group is made of letters, digits, `.`, `-` and `_`")]
    MasterName,
    /// The values are not numbers.
    #[error("Invalid latency-tracking-info-percentiles parameters")]
    Percentiles,
    /// The numbers are not percentages.
    #[error("latency-tracking-info-percentiles parameters should sit between [0.0,100.0]")]
    PercentileRange,
    /// The values are not groups of class, hard limit, soft limit and seconds.
    #[error("Wrong number of arguments in buffer limit configuration.")]
    LimitArity,
    /// The value is not a class of clients.
    #[error("Invalid client class specified in buffer limit configuration.")]
    LimitClass,
    /// A limit is not a number.
    #[error("Error in hard, soft or soft_seconds setting in buffer limit configuration.")]
    LimitNumber,
    /// There are more addresses than there may be listeners.
    #[error("Too many bind addresses specified.")]
    TooManyAddresses,
    /// There are too many key prefixes for metrics, or some are too long or no text.
    #[error(
        "there may be at most {METRICS_PREFIXES_MAX} prefixes of at most {METRICS_PREFIX_MAX_BYTES} bytes of UTF-8"
    )]
    KeyPrefixes,
    /// The directory can't be entered; the system's reason.
    #[error("{0}")]
    Directory(String),
    /// The system has too few descriptors for this many clients; the number that it has room for.
    #[error("The operating system is not able to handle the specified number of clients, try with {0}")]
    TooManyClients(u32),
    /// The value is no host name.
    #[error("Hostnames may only contain alphanumeric characters, hyphens or dots")]
    Hostname,
    /// The value is no host that clients could reach.
    #[error("a host is a name or an IP address, without brackets")]
    Host,
    /// The value is no port of a server to replicate.
    #[error("Invalid master port")]
    MasterPort,
    /// The values are not three scores within these bounds.
    #[error("Invalid oom-score-adj-values, elements must be between -2000 and 2000.")]
    OomScores,
    /// The title is empty, or has an unknown variable.
    #[error("template format is invalid or contains unknown variables")]
    Title,
    /// The value would promise something that this server does not do; advice.
    #[error("{0}")]
    NotHere(String),
    /// The value is valid, but can't be put into effect; the reason.
    #[error("{0}")]
    Failed(String),
    /// The letter is not a class of keyspace notifications.
    #[error("Invalid event class character. Use 'Ag$lshzxeKEtmdn'.")]
    EventClass,
    /// The parameter can only be set at the start.
    #[error("can't set immutable config")]
    Immutable,
    /// The parameter can only be set if `enable-protected-configs` allows it.
    #[error("can't set protected config")]
    Protected,
    /// The parameter is given twice in one CONFIG SET.
    #[error("duplicate parameter")]
    Duplicate,
}
