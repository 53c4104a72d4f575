//! The definition of a command: one table entry from which everything else derives.
//!
//! Lookup, arity, admission, COMMAND INFO, COMMAND DOCS, COMMAND GETKEYS, ACL categories and the tests' generator of
//! random calls all read this entry, so no fact about a command is written twice. Every family's file in
//! [`command`](crate::command) ends in its entries. The function that runs a command is a generic parameter: code that
//! only queries entries need not know the functions, or the state they work with.

pub(crate) mod args;
pub(crate) mod batch;
pub(crate) mod categories;
pub(crate) mod error;
pub(crate) mod keys;
mod near;
pub(crate) mod secrets;
pub mod session_key;
pub mod syntax;
pub mod table;
pub(crate) mod usage;

use bitflags::bitflags;

use crate::resp::request::Argv;

bitflags! {
    /// A set of command flags.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct Flags: u32 {
        /// May change the keyspace.
        const WRITE = 1;
        /// Reads keys, changes nothing.
        const READONLY = 1 << 1;
        /// May need memory; refused when memory is exhausted.
        const DENYOOM = 1 << 2;
        /// For administrators.
        const ADMIN = 1 << 3;
        /// Publish and subscribe.
        const PUBSUB = 1 << 4;
        /// Not allowed in scripts.
        const NOSCRIPT = 1 << 5;
        /// May wait for a key.
        const BLOCKING = 1 << 6;
        /// Served while data is loading.
        const LOADING = 1 << 7;
        /// Served by a replica that has lost its leader.
        const STALE = 1 << 8;
        /// Constant or logarithmic time.
        const FAST = 1 << 9;
        /// Served before authentication.
        const NO_AUTH = 1 << 10;
        /// Not allowed inside MULTI.
        const NO_MULTI = 1 << 11;
        /// Its keys depend on its arguments in a way that key specs can't express.
        const MOVABLEKEYS = 1 << 12;
        /// Served while a script is busy.
        const ALLOW_BUSY = 1 << 13;
        /// Left out of MONITOR.
        const SKIP_MONITOR = 1 << 14;
        /// Left out of the slow log.
        const SKIP_SLOWLOG = 1 << 15;
        /// A script command that may have effects though it carries no WRITE flag.
        const MAY_REPLICATE = 1 << 16;
        /// Not while data is loading in the background.
        const NO_ASYNC_LOADING = 1 << 17;
        /// No key argument has to exist (ACL and cluster hint).
        const NO_MANDATORY_KEYS = 1 << 18;

        /// Served to a RESP2 client that has subscriptions. COMMAND INFO does not show this flag or those below.
        const WHILE_SUBSCRIBED = 1 << 19;
        /// Runs at once even when MULTI is open, instead of being queued.
        const WHILE_QUEUEING = 1 << 20;
        /// Runs the queued commands, so it may do anything that they may.
        const RUNS_QUEUE = 1 << 21;
        /// A health check: fails where a write would fail because nothing can be saved.
        const TELLS_HEALTH = 1 << 22;
        /// Requires `enable-debug-command`. DEBUG SET-DISABLE-DENY-SCRIPTS lets scripts call it.
        const PROTECTED = 1 << 23;
        /// Visits every key of a database in one go.
        const VISITS_ALL_KEYS = 1 << 24;
        /// Blocks only for its own work, not until other clients act.
        const WAITS_FOR_ITSELF = 1 << 25;
        /// Served at the port of Sentinel, too. A container and its subcommands need it each.
        const SENTINEL = 1 << 26;
        /// Served at the port of Sentinel only. Such a command has the flag above as well.
        const ONLY_SENTINEL = 1 << 27;
    }
}

impl Flags {
    /// No flag.
    pub const NONE: Flags = Flags::empty();

    /// Returns the names that COMMAND INFO gives, in Redis' order. It does not show
    /// [`MAY_REPLICATE`](Flags::MAY_REPLICATE).
    pub fn names(self) -> impl Iterator<Item = &'static str> {
        const NAMES: [(Flags, &str); 18] = [
            (Flags::WRITE, "write"),
            (Flags::READONLY, "readonly"),
            (Flags::DENYOOM, "denyoom"),
            (Flags::ADMIN, "admin"),
            (Flags::PUBSUB, "pubsub"),
            (Flags::NOSCRIPT, "noscript"),
            (Flags::BLOCKING, "blocking"),
            (Flags::LOADING, "loading"),
            (Flags::STALE, "stale"),
            (Flags::SKIP_MONITOR, "skip_monitor"),
            (Flags::SKIP_SLOWLOG, "skip_slowlog"),
            (Flags::FAST, "fast"),
            (Flags::NO_AUTH, "no_auth"),
            (Flags::NO_MANDATORY_KEYS, "no_mandatory_keys"),
            (Flags::NO_ASYNC_LOADING, "no_async_loading"),
            (Flags::NO_MULTI, "no_multi"),
            (Flags::MOVABLEKEYS, "movablekeys"),
            (Flags::ALLOW_BUSY, "allow_busy"),
        ];
        NAMES.into_iter().filter(move |(flag, _)| self.contains(*flag)).map(|(_, name)| name)
    }
}

/// A command's subject, as grouped by COMMAND DOCS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Group {
    Bitmap,
    Cluster,
    Connection,
    Coordination,
    Generic,
    Geo,
    Hash,
    Hyperloglog,
    List,
    Pubsub,
    RateLimit,
    Scripting,
    Sentinel,
    Server,
    Set,
    SortedSet,
    Stream,
    String,
    Transactions,
}

impl Group {
    /// Returns the name that COMMAND DOCS gives.
    pub fn name(self) -> &'static str {
        match self {
            Group::Bitmap => "bitmap",
            Group::Cluster => "cluster",
            Group::Connection => "connection",
            Group::Coordination => "coordination",
            Group::Generic => "generic",
            Group::Geo => "geo",
            Group::Hash => "hash",
            Group::Hyperloglog => "hyperloglog",
            Group::List => "list",
            Group::Pubsub => "pubsub",
            Group::RateLimit => "rate_limit",
            Group::Scripting => "scripting",
            Group::Sentinel => "sentinel",
            Group::Server => "server",
            Group::Set => "set",
            Group::SortedSet => "sorted-set",
            Group::Stream => "stream",
            Group::String => "string",
            Group::Transactions => "transactions",
        }
    }

    /// Returns the ACL category that the group implies, if any.
    pub fn category(self) -> Option<&'static str> {
        Some(match self {
            Group::Bitmap => "@bitmap",
            Group::Connection => "@connection",
            Group::Coordination => "@coordination",
            Group::Generic => "@keyspace",
            Group::Geo => "@geo",
            Group::Hash => "@hash",
            Group::Hyperloglog => "@hyperloglog",
            Group::List => "@list",
            Group::Pubsub => "@pubsub",
            Group::RateLimit => "@rate_limit",
            Group::Scripting => "@scripting",
            Group::Cluster | Group::Sentinel | Group::Server => return None,
            Group::Set => "@set",
            Group::SortedSet => "@sortedset",
            Group::Stream => "@stream",
            Group::String => "@string",
            Group::Transactions => "@transaction",
        })
    }
}

/// How a command accesses the keys of one key spec.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Reads the value (`RO ACCESS`).
    Read,
    /// May change and return data, depending on its options (`RW ACCESS UPDATE VARIABLE_FLAGS`).
    Varying,
    /// Reads only metadata such as type or length (`RO`).
    Inspect,
    /// Reads the value, and may record its findings in it (`RW ACCESS`).
    Note,
    /// Reads the value and adds to it (`RW ACCESS INSERT`).
    Merge,
    /// Removes the key if its options say so (`RW DELETE VARIABLE_FLAGS`).
    DeleteIf,
    /// Overwrites without looking (`OW UPDATE`).
    Overwrite,
    /// Creates without looking (`OW INSERT`).
    Create,
    /// Changes and returns data (`RW ACCESS UPDATE`).
    Update,
    /// Changes without returning data (`RW UPDATE`).
    Modify,
    /// Adds data (`RW INSERT`).
    Insert,
    /// Removes data (`RW DELETE`).
    Remove,
    /// Takes data out and returns it (`RW ACCESS DELETE`).
    Take,
    /// As [`Take`](Access::Take), of keys that the spec may miss (`RW ACCESS DELETE INCOMPLETE`).
    TakeSome,
    /// Deletes the key (`RM DELETE`).
    Delete,
    /// Not a key, but the name of a channel, which belongs to a slot like a key (`NOT_KEY`).
    Channel,
}

impl Access {
    /// Returns the flag names that COMMAND INFO gives for the key spec.
    pub fn flag_names(self) -> &'static [&'static str] {
        match self {
            Access::Read => &["RO", "access"],
            Access::Varying => &["RW", "access", "update", "variable_flags"],
            Access::Inspect => &["RO"],
            Access::Note => &["RW", "access"],
            Access::Merge => &["RW", "access", "insert"],
            Access::DeleteIf => &["RW", "delete", "variable_flags"],
            Access::Overwrite => &["OW", "update"],
            Access::Create => &["OW", "insert"],
            Access::Update => &["RW", "access", "update"],
            Access::Modify => &["RW", "update"],
            Access::Insert => &["RW", "insert"],
            Access::Remove => &["RW", "delete"],
            Access::Take => &["RW", "access", "delete"],
            Access::TakeSome => &["RW", "access", "delete", "incomplete"],
            Access::Delete => &["RM", "delete"],
            Access::Channel => &["not_key"],
        }
    }
}

/// The start of a key spec.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Begin {
    /// At this argument (the name is 0).
    Index(usize),
    /// After this word, searched from this argument on; if negative, backward from this argument counted from the end.
    Keyword(&'static str, i32),
    /// Unknown; only the command itself can find it.
    Unknown,
}

/// The arguments from the start on that are keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Find {
    /// Up to `last` relative to the beginning (negative: from the command's end), every `step`-th; `limit` above 1
    /// divides what remains (XREAD: 2, for the ids that follow the keys).
    Range {
        /// Last key relative to the first, or from the command's end when negative.
        last: i32,
        /// Distance from one key to the next.
        step: usize,
        /// Only the first `1/limit` of the remaining arguments; 0 and 1 mean all.
        limit: usize,
    },
    /// The count is at the start; that many keys follow.
    Counted,
    /// Only the command itself can find the keys.
    Unknown,
    /// The count is at the start; that many keys follow, each with a value after it.
    CountedPairs,
}

/// The location of a command's keys among its arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeySpec {
    /// The start.
    pub begin: Begin,
    /// The range from the start.
    pub find: Find,
    /// How the keys are accessed.
    pub access: Access,
}

impl KeySpec {
    /// One key at argument `index`.
    pub const fn one(index: usize, access: Access) -> KeySpec {
        KeySpec::range(index, 0, 1, access)
    }

    /// All arguments from `index` on, every `step`-th.
    pub const fn rest(index: usize, step: usize, access: Access) -> KeySpec {
        KeySpec::range(index, -1, step, access)
    }

    /// Keys from `index` to `last` (relative; negative: from the end), every `step`-th.
    pub const fn range(index: usize, last: i32, step: usize, access: Access) -> KeySpec {
        KeySpec { begin: Begin::Index(index), find: Find::Range { last, step, limit: 0 }, access }
    }

    /// Keys that no rule locates, because they depend on data or on the order of options.
    pub const fn unknown(access: Access) -> KeySpec {
        KeySpec { begin: Begin::Unknown, find: Find::Unknown, access }
    }

    /// Argument `index` counts the keys that follow it.
    pub const fn counted(index: usize, access: Access) -> KeySpec {
        KeySpec { begin: Begin::Index(index), find: Find::Counted, access }
    }

    /// Argument `index` counts the keys that follow it, each with a value after it.
    pub const fn counted_pairs(index: usize, access: Access) -> KeySpec {
        KeySpec { begin: Begin::Index(index), find: Find::CountedPairs, access }
    }
}

/// How the first argument of a script command identifies the script.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Runs {
    /// The script's text.
    Text,
    /// Its SHA1.
    Sha1,
    /// The name of a function.
    Function,
}

/// The databases that a command uses.
#[derive(Clone, Copy, Debug)]
pub enum Databases {
    /// The connection's database, if the command has keys.
    Current,
    /// The database selected by the first argument.
    Selected,
    /// The databases at the arguments found by this function, and the connection's if the command has keys in it.
    Named(fn(Argv<'_>) -> Vec<usize>),
    /// All databases.
    All,
}

/// Whether a reply grows without bound with the stored data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AnswersAll {
    /// It never does.
    Never,
    /// It does.
    Always,
    /// It does unless this option is given.
    Without(&'static str),
    /// It does if the range in arguments 2 and 3 reaches the last element, without LIMIT.
    ToTheLast,
}

/// The arguments of a command that are channels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Channels {
    /// None.
    None,
    /// The first argument.
    First,
    /// All arguments.
    All,
    /// All arguments, which are channel patterns.
    Patterns,
}

/// The secret arguments of a command. The name is argument 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Secret {
    /// All arguments from this one on.
    From(usize),
    /// A number of arguments after a word, which is searched for from argument `first` on.
    After {
        /// The word, in any case.
        word: &'static str,
        /// Where the search begins.
        first: usize,
        /// Number of secret arguments after the word.
        count: usize,
    },
    /// A complete command begins at argument `first`, with its own secrets. It is queried but not run.
    Call {
        /// The command's name.
        first: usize,
    },
    /// Parameter names and values alternate from argument `first` on. Values of secret or unknown parameters are
    /// secret.
    Settings {
        /// The first name.
        first: usize,
    },
}

/// A change that the audit in the log reports, with the client, its user and the call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Audited {
    /// Of users. Arguments that begin as a rule about a password are secret.
    Users,
    /// Of parameters.
    Settings,
    /// The end of whole databases.
    Deletion,
    /// The end of a lock that others hold.
    Lock,
    /// The end of the server, or that it is called off.
    End,
    /// Of the nodes of a group.
    Group,
    /// Of whose the data is.
    Handover,
}

/// One key argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyArg {
    /// Its index among the arguments, the command's name being 0.
    pub index: usize,
    /// How the key is accessed.
    pub access: Access,
}

/// Finds the argument at which a nested command to be run begins; `None` if there is none.
pub type FindInner = fn(Argv<'_>) -> Option<usize>;

/// Finds the keys among the arguments of a call.
pub type FindKeys = fn(Argv<'_>) -> Option<Vec<KeyArg>>;

/// A command or subcommand, run by an `R`.
#[derive(Clone, Copy)]
pub struct Command<R: 'static> {
    /// Lower-case name; for a subcommand, without its container's.
    pub name: &'static str,
    /// Number of arguments including the name (and the container's); a negative number is a minimum.
    pub arity: i32,
    /// See [`Flags`].
    pub flags: Flags,
    /// The location of its keys.
    pub keys: &'static [KeySpec],
    /// Finds its keys where `keys` can't describe them. `None` if the arguments do not fit.
    pub find_keys: Option<FindKeys>,
    /// Determines from a call's options the access to a key that `keys` lists as [`Varying`](Access::Varying), or as
    /// [modified](Access::Modify) in general.
    pub access_by: Option<fn(Argv<'_>) -> Access>,
    /// Whether its reply grows without bound with the stored data.
    pub answers_all: AnswersAll,
    /// Its group.
    pub group: Group,
    /// The Redis version that introduced it.
    pub since: &'static str,
    /// Its time complexity.
    pub complexity: &'static str,
    /// A summary of one sentence.
    pub summary: &'static str,
    /// Its arguments, in the notation of [`syntax`].
    pub syntax: &'static str,
    /// ACL categories in addition to those implied by group and flags, such as `@dangerous`.
    pub categories: &'static [&'static str],
    /// Subcommands.
    pub sub: &'static [Command<R>],
    /// Its arguments that are channels.
    pub channels: Channels,
    /// The databases for which a user needs permission.
    pub databases: Databases,
    /// Its secret arguments.
    pub secrets: &'static [Secret],
    /// The change that the audit reports if a call succeeds.
    pub audited: Option<Audited>,
    /// The script that it runs, if any.
    pub runs: Option<Runs>,
    /// Finds the nested command that it runs, if any. A call needs the rights for both commands and has the keys of
    /// both.
    pub inner: Option<FindInner>,
    /// Whether the nested command may itself run another one. Commands of this kind can't be nested, so there are never
    /// more than three.
    pub nests: bool,
    /// The keyspace event of its changes, where the event does not follow from the changes alone.
    pub event: &'static str,
    /// Hints for clients as COMMAND INFO gives them, such as `nondeterministic_output`.
    pub tips: &'static [&'static str],
    /// Runs the command.
    pub run: R,
}

impl<R> Command<R> {
    /// An entry with nothing but the function that runs the command.
    pub const fn new(run: R) -> Command<R> {
        Command {
            name: "",
            arity: 0,
            flags: Flags::NONE,
            keys: &[],
            find_keys: None,
            access_by: None,
            answers_all: AnswersAll::Never,
            group: Group::Generic,
            since: "1.0.0",
            complexity: "O(1)",
            summary: "",
            syntax: "",
            categories: &[],
            sub: &[],
            channels: Channels::None,
            databases: Databases::Current,
            secrets: &[],
            audited: None,
            runs: None,
            inner: None,
            nests: false,
            event: "",
            tips: &[],
            run,
        }
    }

    /// Whether it only holds subcommands. A command that runs may hold some, too, such as HELP: a call that its own
    /// number of arguments does not fit.
    pub fn is_container(&self) -> bool {
        !self.sub.is_empty() && self.syntax.is_empty()
    }

    /// Whether it has arguments that are keys.
    pub fn has_keys(&self) -> bool {
        self.keys.iter().any(|spec| spec.access != Access::Channel)
    }

    /// Whether `argc` arguments (the name included) fit.
    #[inline]
    pub fn accepts(&self, argc: usize) -> bool {
        let (fewest, more) = self.argument_counts();
        argc.wrapping_sub(fewest) <= more
    }

    /// The fewest arguments that fit (the name included), and how many more may follow.
    pub fn argument_counts(&self) -> (usize, usize) {
        let fewest = self.arity.unsigned_abs() as usize;
        (fewest, if self.arity >= 0 { 0 } else { i32::MAX as usize })
    }
}
