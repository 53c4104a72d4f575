//! The linter's warnings. Each [`Rule`] names a habit that works on one server and fails on another: above all on a
//! cluster, which routes a script by its KEYS and refuses keys of other slots, and on servers that refuse undeclared
//! keys.

/// The subject of a warning.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rule {
    /// A key that is a literal of the script.
    UndeclaredKey,
    /// A key that the script computes.
    ComputedKey,
    /// An element of ARGV that is used as a key.
    ArgvAsKey,
    /// An element of KEYS that is not used as a key.
    KeyAsArgument,
    /// An element of KEYS that is not used at all.
    UnusedKey,
    /// An unbounded loop, with writes in it or after it.
    WriteAfterLoop,
    /// The command KEYS, which visits all keys.
    WholeKeyspace,
    /// A call that its command refuses.
    BadCommand,
    /// A global variable that is assigned or does not exist.
    Global,
    /// Code that behaves differently on Redis.
    DiffersOnRedis,
}

impl Rule {
    /// The name shown to clients.
    pub fn name(self) -> &'static str {
        match self {
            Rule::UndeclaredKey => "undeclared-key",
            Rule::ComputedKey => "computed-key",
            Rule::ArgvAsKey => "argv-as-key",
            Rule::KeyAsArgument => "key-as-argument",
            Rule::UnusedKey => "unused-key",
            Rule::WriteAfterLoop => "write-after-loop",
            Rule::WholeKeyspace => "whole-keyspace",
            Rule::BadCommand => "bad-command",
            Rule::Global => "global",
            Rule::DiffersOnRedis => "differs-on-redis",
        }
    }
}

/// One finding.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Warning {
    /// The line, from 1.
    pub line: u32,
    /// The rule that is violated.
    pub rule: Rule,
    /// The finding, and a remedy.
    pub message: String,
}
