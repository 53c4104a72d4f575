//! What a command is: one table entry from which everything else derives.
//!
//! Lookup, arity, admission, COMMAND INFO, COMMAND DOCS, COMMAND GETKEYS, ACL categories, the generator of random calls in
//! the tests: all read this entry, so nothing about a command is written twice. Every family's file in
//! [`command`](crate::command) ends in its entries. What runs a command is a parameter here: nobody who only asks what it is need
//! know the functions behind it, and what these work with.

pub(crate) mod args;
pub(crate) mod batch;
pub(crate) mod categories;
pub(crate) mod error;
pub(crate) mod keys;
pub(crate) mod secrets;
pub mod session_key;
pub mod syntax;
pub mod table;

use crate::resp::request::Argv;

/// A set of command flags.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flags(pub u32);

impl Flags {
    /// No flag.
    pub const NONE: Flags = Flags(0);
    /// May change the keyspace.
    pub const WRITE: Flags = Flags(1);
    /// Reads keys, changes nothing.
    pub const READONLY: Flags = Flags(1 << 1);
    /// May need memory: refused when there is none left.
    pub const DENYOOM: Flags = Flags(1 << 2);
    /// For administrators.
    pub const ADMIN: Flags = Flags(1 << 3);
    /// Publish and subscribe.
    pub const PUBSUB: Flags = Flags(1 << 4);
    /// Not from scripts.
    pub const NOSCRIPT: Flags = Flags(1 << 5);
    /// May wait for a key.
    pub const BLOCKING: Flags = Flags(1 << 6);
    /// Served while data is loading.
    pub const LOADING: Flags = Flags(1 << 7);
    /// Served by a replica that lost its leader.
    pub const STALE: Flags = Flags(1 << 8);
    /// Constant or logarithmic time.
    pub const FAST: Flags = Flags(1 << 9);
    /// Served before authentication.
    pub const NO_AUTH: Flags = Flags(1 << 10);
    /// Not inside MULTI.
    pub const NO_MULTI: Flags = Flags(1 << 11);
    /// Its keys depend on its arguments in a way that key specs can't express.
    pub const MOVABLEKEYS: Flags = Flags(1 << 12);
    /// Served while a script is busy.
    pub const ALLOW_BUSY: Flags = Flags(1 << 13);
    /// Left out of MONITOR.
    pub const SKIP_MONITOR: Flags = Flags(1 << 14);
    /// Left out of the slow log.
    pub const SKIP_SLOWLOG: Flags = Flags(1 << 15);
    /// A script command that may have effects though it carries no WRITE flag.
    pub const MAY_REPLICATE: Flags = Flags(1 << 16);
    /// Not while data is loading in the background.
    pub const NO_ASYNC_LOADING: Flags = Flags(1 << 17);
    /// Has no key arguments that must exist (ACL and cluster hint).
    pub const NO_MANDATORY_KEYS: Flags = Flags(1 << 18);

    /// Served to a client of RESP2 that has subscriptions. This flag and those below are not shown by COMMAND INFO.
    pub const WHILE_SUBSCRIBED: Flags = Flags(1 << 19);
    /// Runs at once though MULTI is open, and is not queued.
    pub const WHILE_QUEUEING: Flags = Flags(1 << 20);
    /// Runs what was queued: what it may do is what all of that may do.
    pub const RUNS_QUEUE: Flags = Flags(1 << 21);
    /// Asks whether the server is well: fails where a write would, because nothing can be saved.
    pub const TELLS_HEALTH: Flags = Flags(1 << 22);
    /// For those only whom `enable-debug-command` allows it. DEBUG SET-DISABLE-DENY-SCRIPTS lets scripts call it.
    pub const PROTECTED: Flags = Flags(1 << 23);
    /// Visits every key of a database at one go.
    pub const VISITS_ALL_KEYS: Flags = Flags(1 << 24);
    /// Blocks only for what it does itself, and not until others have done something.
    pub const WAITS_FOR_ITSELF: Flags = Flags(1 << 25);

    /// Both sets.
    #[must_use]
    pub const fn and(self, other: Flags) -> Flags {
        Flags(self.0 | other.0)
    }

    /// Whether any flag of `other` is here.
    #[inline]
    pub const fn has(self, other: Flags) -> bool {
        self.0 & other.0 != 0
    }

    /// The names COMMAND INFO gives, in Redis' order. It does not show [`MAY_REPLICATE`](Flags::MAY_REPLICATE).
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
        NAMES.into_iter().filter(move |(flag, _)| self.has(*flag)).map(|(_, name)| name)
    }
}

impl std::ops::BitOr for Flags {
    type Output = Flags;
    fn bitor(self, other: Flags) -> Flags {
        self.and(other)
    }
}

/// What a command is about; as COMMAND DOCS groups it.
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
    Server,
    Set,
    SortedSet,
    Stream,
    String,
    Transactions,
}

impl Group {
    /// The name COMMAND DOCS gives.
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
            Group::Server => "server",
            Group::Set => "set",
            Group::SortedSet => "sorted-set",
            Group::Stream => "stream",
            Group::String => "string",
            Group::Transactions => "transactions",
        }
    }

    /// The ACL category that membership in the group brings, if any.
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
            Group::Cluster | Group::Server => return None,
            Group::Set => "@set",
            Group::SortedSet => "@sortedset",
            Group::Stream => "@stream",
            Group::String => "@string",
            Group::Transactions => "@transaction",
        })
    }
}

/// What a command does with the keys of one key spec.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Reads the value (`RO ACCESS`).
    Read,
    /// May change and answer data: its options say (`RW ACCESS UPDATE VARIABLE_FLAGS`).
    Varying,
    /// Reads only metadata such as type or length (`RO`).
    Inspect,
    /// Reads the value, and may note what it found in it (`RW ACCESS`).
    Note,
    /// Reads the value and adds to it (`RW ACCESS INSERT`).
    Merge,
    /// Removes the key if its options say so (`RW DELETE VARIABLE_FLAGS`).
    DeleteIf,
    /// Overwrites without looking (`OW UPDATE`).
    Overwrite,
    /// Creates without looking (`OW INSERT`).
    Create,
    /// Changes and answers data (`RW ACCESS UPDATE`).
    Update,
    /// Changes without answering data (`RW UPDATE`).
    Modify,
    /// Adds data (`RW INSERT`).
    Insert,
    /// Removes data (`RW DELETE`).
    Remove,
    /// Takes data out and answers it (`RW ACCESS DELETE`).
    Take,
    /// As [`Take`](Access::Take), of keys that the spec may miss (`RW ACCESS DELETE INCOMPLETE`).
    TakeSome,
    /// Deletes the key (`RM DELETE`).
    Delete,
    /// Is no key: the name of a channel that belongs to a slot as keys do (`NOT_KEY`).
    Channel,
}

impl Access {
    /// The flag names that COMMAND INFO gives for the key spec.
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

/// Where a key spec begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Begin {
    /// At this argument (the name is 0).
    Index(usize),
    /// Behind this word, searched from this argument on; negative: from this one of the last arguments back.
    Keyword(&'static str, i32),
    /// Somewhere: only the command itself knows.
    Unknown,
}

/// Which arguments from there on are keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Find {
    /// Up to `last` relative to the beginning (negative: from the command's end), every `step`-th; `limit` above 1 divides
    /// what remains (XREAD: 2, for the ids that follow the keys).
    Range {
        /// Last key relative to the first, or from the command's end when negative.
        last: i32,
        /// Distance from one key to the next.
        step: usize,
        /// Only the first `1/limit` of the remaining arguments; 0 and 1: all.
        limit: usize,
    },
    /// As many as the argument at the beginning says, behind it.
    Counted,
    /// Those that the command itself knows.
    Unknown,
    /// The same, each with a value behind it.
    CountedPairs,
}

/// Where a command's keys are among its arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeySpec {
    /// Where to begin.
    pub begin: Begin,
    /// How many.
    pub find: Find,
    /// What happens to them.
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

    /// Keys that no rule tells, because data or the order of options does.
    pub const fn unknown(access: Access) -> KeySpec {
        KeySpec { begin: Begin::Unknown, find: Find::Unknown, access }
    }

    /// Argument `index` counts the keys that follow it.
    pub const fn counted(index: usize, access: Access) -> KeySpec {
        KeySpec { begin: Begin::Index(index), find: Find::Counted, access }
    }

    /// Argument `index` counts the keys that follow it, each with a value behind it.
    pub const fn counted_pairs(index: usize, access: Access) -> KeySpec {
        KeySpec { begin: Begin::Index(index), find: Find::CountedPairs, access }
    }
}

/// What the first argument of a command says that runs a script.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Runs {
    /// The script's text.
    Text,
    /// Its SHA1.
    Sha1,
    /// The name of a function.
    Function,
}

/// Which databases a command has to do with.
#[derive(Clone, Copy, Debug)]
pub enum Databases {
    /// That of the connection, if it has to do with keys at all.
    Current,
    /// The one that it selects, which is its first argument.
    Selected,
    /// Those at the arguments that this finds, and that of the connection if it has keys there.
    Named(fn(Argv<'_>) -> Vec<usize>),
    /// All.
    All,
}

/// Whether a call answers as much as is stored, however much that is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AnswersAll {
    /// It does not.
    Never,
    /// It does.
    Always,
    /// It does without this option.
    Without(&'static str),
    /// It does if the range in its arguments 2 and 3 goes to the last one, without LIMIT.
    ToTheLast,
}

/// Which arguments of a command are channels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Channels {
    /// None.
    None,
    /// The first.
    First,
    /// All.
    All,
    /// All, and they are patterns of channels.
    Patterns,
}

/// Which arguments of a command are secret. The name is argument 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Secret {
    /// All from this one on.
    From(usize),
    /// So many behind a word, which is searched from argument `first` on.
    After {
        /// The word, in any case.
        word: &'static str,
        /// Where the search begins.
        first: usize,
        /// How many arguments behind it are secret.
        count: usize,
    },
    /// From argument `first` on stands a command as it would be called: what is secret there. It is asked about and not run.
    Call {
        /// The command's name.
        first: usize,
    },
    /// From argument `first` on names and values of parameters take turns: the values of those that are secret or not known.
    Settings {
        /// The first name.
        first: usize,
    },
}

/// One key argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyArg {
    /// Its index among the arguments, the command's name being 0.
    pub index: usize,
    /// What happens to it.
    pub access: Access,
}

/// Finds the argument at which the command begins that a call is to run; `None` if there is none.
pub type FindInner = fn(Argv<'_>) -> Option<usize>;

/// Finds the keys among the arguments of a call.
pub type FindKeys = fn(Argv<'_>) -> Option<Vec<KeyArg>>;

/// One command or subcommand, run by an `R`.
#[derive(Clone, Copy)]
pub struct Command<R: 'static> {
    /// Lower-case name; a subcommand's without its container's.
    pub name: &'static str,
    /// Arguments including the name (and the container's); negative: at least that many.
    pub arity: i32,
    /// See [`Flags`].
    pub flags: Flags,
    /// Where its keys are.
    pub keys: &'static [KeySpec],
    /// Finds its keys, where `keys` can't say where they are. `None` if the arguments do not fit.
    pub find_keys: Option<FindKeys>,
    /// What happens to a key that `keys` says is [`Varying`](Access::Varying), or [modified](Access::Modify) in general, by the options of
    /// a call.
    pub access_by: Option<fn(Argv<'_>) -> Access>,
    /// Whether it answers as much as is stored.
    pub answers_all: AnswersAll,
    /// What it is about.
    pub group: Group,
    /// The Redis version that brought it.
    pub since: &'static str,
    /// Its cost.
    pub complexity: &'static str,
    /// One sentence.
    pub summary: &'static str,
    /// Its arguments, in the notation of [`syntax`](self::syntax).
    pub syntax: &'static str,
    /// ACL categories beyond those that group and flags bring, such as `@dangerous`.
    pub categories: &'static [&'static str],
    /// Subcommands.
    pub sub: &'static [Command<R>],
    /// Its arguments that are channels.
    pub channels: Channels,
    /// The databases that a user must be allowed.
    pub databases: Databases,
    /// Arguments that nobody is shown.
    pub secrets: &'static [Secret],
    /// What script it runs, if it runs one.
    pub runs: Option<Runs>,
    /// Where among its arguments another command stands that it runs, if it does: a call needs the rights for both, and its keys are
    /// those of both.
    pub inner: Option<FindInner>,
    /// Whether that command may run another one itself, unless it is of this sort, too: so there are never more than three.
    pub nests: bool,
    /// The event that its changes are told as, where that does not follow from these changes alone.
    pub event: &'static str,
    /// Hints for clients as COMMAND INFO gives them, such as `nondeterministic_output`.
    pub tips: &'static [&'static str],
    /// What runs it.
    pub run: R,
}

impl<R> Command<R> {
    /// An entry that says nothing but what runs it.
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
            runs: None,
            inner: None,
            nests: false,
            event: "",
            tips: &[],
            run,
        }
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
