//! What the linter finds: each [`Rule`] is a way in which scripts that work on one server fail elsewhere, above all on a cluster,
//! which routes a script by its KEYS and refuses keys of other slots, and on servers that refuse keys that were not declared.

/// What a warning is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rule {
    /// A key that is written into the script.
    UndeclaredKey,
    /// A key that the script makes of other things.
    ComputedKey,
    /// An element of ARGV that is a key.
    ArgvAsKey,
    /// An element of KEYS that is no key.
    KeyAsArgument,
    /// An element of KEYS that nothing is done with.
    UnusedKey,
    /// A loop without a bound, and the script writes in it or behind it.
    WriteAfterLoop,
    /// KEYS, which visits all keys.
    WholeKeyspace,
    /// A command that can't be called so.
    BadCommand,
    /// A global variable.
    Global,
    /// What means something else on Redis.
    DiffersOnRedis,
}

impl Rule {
    /// The name that clients read.
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
    /// Where, from 1.
    pub line: u32,
    /// What about.
    pub rule: Rule,
    /// What is found, and what to do.
    pub message: String,
}
