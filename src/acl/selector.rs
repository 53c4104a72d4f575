//! A selector: the commands, keys, channels and databases that it allows a user.
//!
//! Allowed commands are stored as one bit per [`CommandId`](crate::spec::table::CommandId). The selector also keeps the
//! rules that still matter. It can therefore describe itself in a few words, and a later version with other commands
//! can apply the rules again.

use std::collections::{BTreeMap, BTreeSet};

use super::rule::{RuleError, has_spaces};
use crate::base::glob;
use crate::base::num::parse_i64;
use crate::spec::categories::{belongs_to, category};
use crate::spec::table::{CommandTable, Entry};

/// A pattern of keys that may be read, written, or both.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyPattern {
    /// The glob pattern.
    pub glob: Vec<u8>,
    /// The keys' values may be read.
    pub reads: bool,
    /// The keys may be changed.
    pub writes: bool,
}

/// A rule about commands, as displayed.
#[derive(Clone, Debug, PartialEq, Eq)]
struct CommandRule {
    allows: bool,
    /// The lower-case name of a command, a subcommand, a command with its first argument, or a category.
    name: Vec<u8>,
}

/// See the module's header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Selector {
    /// Whether each command is allowed, by its index; commands past the end are not.
    commands: Vec<bool>,
    /// All commands are allowed, with no exceptions.
    all_commands: bool,
    /// Commands added by later versions are allowed, too.
    future_commands: bool,
    /// Commands that are allowed only with these first arguments.
    first_args: BTreeMap<usize, Vec<Vec<u8>>>,
    rules: Vec<CommandRule>,
    all_keys: bool,
    keys: Vec<KeyPattern>,
    all_channels: bool,
    channels: Vec<Vec<u8>>,
    /// `None`, the initial state, allows all databases. They are then not displayed, so that replies equal those of
    /// Redis, which has no such rules.
    databases: Option<BTreeSet<u32>>,
}

impl Selector {
    /// Returns the bytes that the selector holds.
    pub(super) fn mem_bytes(&self) -> usize {
        let args = self.first_args.values().flatten().map(|arg| size_of::<Vec<u8>>() + arg.len());
        let rules = self.rules.iter().map(|rule| size_of::<CommandRule>() + rule.name.len());
        let keys = self.keys.iter().map(|key| size_of::<KeyPattern>() + key.glob.len());
        let channels = self.channels.iter().map(|channel| size_of::<Vec<u8>>() + channel.len());
        size_of::<Selector>() + self.commands.len() + args.chain(rules).chain(keys).chain(channels).sum::<usize>()
    }
}

/// Construction and changes.
impl Selector {
    /// Makes a selector that allows nothing, except all channels if `all_channels` is set.
    pub fn new(all_channels: bool) -> Selector {
        Selector {
            commands: Vec::new(),
            all_commands: false,
            future_commands: false,
            first_args: BTreeMap::new(),
            rules: Vec::new(),
            all_keys: false,
            keys: Vec::new(),
            all_channels,
            channels: Vec::new(),
            databases: None,
        }
    }

    /// Allows everything.
    pub fn allow_everything<R>(&mut self, table: &CommandTable<R>) {
        self.set_all(true, table);
        (self.all_keys, self.keys) = (true, Vec::new());
        (self.all_channels, self.channels) = (true, Vec::new());
        self.databases = None;
    }

    /// Applies one rule. An error changes nothing.
    pub fn apply<R>(&mut self, rule: &[u8], table: &CommandTable<R>) -> Result<(), RuleError> {
        let is = |word: &str| rule.eq_ignore_ascii_case(word.as_bytes());
        if is("allkeys") || rule == b"~*" {
            (self.all_keys, self.keys) = (true, Vec::new());
        } else if is("resetkeys") {
            (self.all_keys, self.keys) = (false, Vec::new());
        } else if is("allchannels") || rule == b"&*" {
            (self.all_channels, self.channels) = (true, Vec::new());
        } else if is("resetchannels") {
            (self.all_channels, self.channels) = (false, Vec::new());
        } else if is("alldbs") {
            self.databases = None;
        } else if is("resetdbs") {
            self.databases = Some(BTreeSet::new());
        } else if rule.get(..3).is_some_and(|start| start.eq_ignore_ascii_case(b"db=")) {
            self.databases = Some(parse_databases(&rule[3..])?);
        } else if is("allcommands") || is("+@all") {
            self.set_all(true, table);
        } else if is("nocommands") || is("-@all") {
            self.set_all(false, table);
        } else {
            match rule.split_first() {
                Some((b'~', glob)) => self.add_keys(glob, true, true)?,
                Some((b'%', rest)) => self.add_keys_by_access(rest)?,
                Some((b'&', glob)) => self.add_channel(glob)?,
                Some((sign @ (b'+' | b'-'), name)) => self.allow_named(name, *sign == b'+', table)?,
                _ => return Err(RuleError::Syntax),
            }
        }
        Ok(())
    }

    fn set_all<R>(&mut self, allows: bool, table: &CommandTable<R>) {
        self.commands = if allows { vec![true; table.ids()] } else { Vec::new() };
        (self.all_commands, self.future_commands) = (allows, allows);
        self.rules.clear();
        self.first_args.clear();
    }

    fn add_keys_by_access(&mut self, rest: &[u8]) -> Result<(), RuleError> {
        if self.all_keys {
            return Err(RuleError::AllKeys);
        }
        // Redis reads letters without a pattern as permissions for the empty pattern, so its ACL files must be read
        // that way here, too.
        let tilde = rest.iter().position(|byte| *byte == b'~').unwrap_or(rest.len());
        let (mut reads, mut writes) = (false, false);
        for letter in &rest[..tilde] {
            match letter.to_ascii_uppercase() {
                b'R' if !reads => reads = true,
                b'W' if !writes => writes = true,
                _ => return Err(RuleError::Syntax),
            }
        }
        if !reads && !writes {
            return Err(RuleError::Syntax);
        }
        self.add_keys(rest.get(tilde + 1..).unwrap_or_default(), reads, writes)
    }

    fn add_keys(&mut self, glob: &[u8], reads: bool, writes: bool) -> Result<(), RuleError> {
        if self.all_keys {
            return Err(RuleError::AllKeys);
        }
        if has_spaces(glob) {
            return Err(RuleError::Syntax);
        }
        match self.keys.iter_mut().find(|pattern| pattern.glob == glob) {
            Some(pattern) => {
                pattern.reads |= reads;
                pattern.writes |= writes;
            }
            None => self.keys.push(KeyPattern { glob: glob.to_vec(), reads, writes }),
        }
        Ok(())
    }

    fn add_channel(&mut self, glob: &[u8]) -> Result<(), RuleError> {
        if self.all_channels {
            return Err(RuleError::AllChannels);
        }
        if has_spaces(glob) {
            return Err(RuleError::Syntax);
        }
        if !self.channels.iter().any(|channel| channel == glob) {
            self.channels.push(glob.to_vec());
        }
        Ok(())
    }

    /// Allows or forbids the named category, command with its subcommands, subcommand, or first argument.
    fn allow_named<R>(&mut self, name: &[u8], allows: bool, table: &CommandTable<R>) -> Result<(), RuleError> {
        if name.first() == Some(&b'@') {
            let category = category(name).ok_or(RuleError::UnknownCommand)?;
            // A container comes before its subcommands.
            for entry in table.all().filter(|entry| belongs_to(entry.command, category)) {
                self.set(entry, allows, table);
            }
            self.note_rule(category.as_bytes().to_vec(), allows);
            return Ok(());
        }
        let bar = name.iter().rposition(|byte| *byte == b'|');
        if let (Some(bar), true) = (bar, allows) {
            return self.allow_part(name, bar, table);
        }
        let entry = table.find_full_at_any_port(name).ok_or(RuleError::UnknownCommand)?;
        self.set(entry, allows, table);
        self.note_rule(entry.full_name.as_bytes().to_vec(), allows);
        Ok(())
    }

    /// Allows a subcommand, or a command with one first argument; `bar` is the position of the `|` in `name`.
    fn allow_part<R>(&mut self, name: &[u8], bar: usize, table: &CommandTable<R>) -> Result<(), RuleError> {
        let (of, part) = (&name[..bar], &name[bar + 1..]);
        let entry = table.find_full_at_any_port(of).ok_or(RuleError::UnknownCommand)?;
        if of.contains(&b'|') {
            return Err(RuleError::FirstArgOfSubcommand);
        }
        if part.is_empty() || has_spaces(part) {
            return Err(RuleError::Syntax);
        }
        if let Some(sub) = entry.find_sub(part) {
            self.set(sub, true, table);
        } else if entry.command.is_container() {
            return Err(RuleError::UnknownCommand);
        } else {
            let args = self.first_args.entry(entry.id.index()).or_default();
            if !args.iter().any(|arg| arg == part) {
                args.push(part.to_vec());
            }
        }
        self.note_rule(name.to_ascii_lowercase(), true);
        Ok(())
    }

    /// Allows or forbids a command and its subcommands with any arguments.
    fn set<R>(&mut self, entry: &Entry<R>, allows: bool, table: &CommandTable<R>) {
        self.commands.resize(table.ids(), false);
        for entry in std::iter::once(entry).chain(&entry.sub) {
            self.commands[entry.id.index()] = allows;
            self.first_args.remove(&entry.id.index());
        }
        self.all_commands &= allows;
    }

    /// Records a rule in place of the rules that it supersedes: an earlier rule of the same name, and rules about parts
    /// of its command.
    fn note_rule(&mut self, name: Vec<u8>, allows: bool) {
        self.rules.retain(|rule| {
            let is_part = rule.name.len() > name.len() && rule.name.starts_with(&name) && rule.name[name.len()] == b'|';
            rule.name != name && !is_part
        });
        self.rules.push(CommandRule { allows, name });
    }
}

/// Parses the numbers of a `db=` rule.
fn parse_databases(list: &[u8]) -> Result<BTreeSet<u32>, RuleError> {
    let parse = |number: &[u8]| match parse_i64(number) {
        Some(number @ 0..=0x7fff_ffff) => Ok(number as u32),
        Some(_) => Err(RuleError::DatabaseRange),
        None => Err(RuleError::Syntax),
    };
    list.split(|byte| *byte == b',').map(parse).collect()
}

/// Queries.
impl Selector {
    /// Returns whether nothing is forbidden.
    pub fn allows_everything(&self) -> bool {
        self.all_commands && self.all_keys && self.all_channels && self.databases.is_none()
    }

    /// Returns whether a command may be called; `first_arg` is the first argument after the command's names.
    pub fn allows_command(&self, index: usize, first_arg: Option<&[u8]>) -> bool {
        if self.all_commands || self.commands.get(index).copied().unwrap_or(false) {
            return true;
        }
        let args = self.first_args.get(&index);
        args.is_some_and(|args| args.iter().any(|arg| first_arg.is_some_and(|given| given.eq_ignore_ascii_case(arg))))
    }

    /// Returns whether all keys may be read and written.
    pub fn allows_all_keys(&self) -> bool {
        self.all_keys
    }

    /// Returns whether a key may be read, written, or both.
    pub fn allows_key(&self, key: &[u8], reads: bool, writes: bool) -> bool {
        let fits = |pattern: &&KeyPattern| (pattern.reads || !reads) && (pattern.writes || !writes);
        self.all_keys || self.keys.iter().filter(fits).any(|pattern| glob::matches(&pattern.glob, key))
    }

    /// Returns whether a key of this database may be read.
    pub fn allows_reading(&self, db: u32, key: &[u8]) -> bool {
        self.allows_database(db) && self.allows_key(key, true, false)
    }

    /// Returns whether every key may be read; needed by commands that read keys whose names they find in other keys.
    pub fn allows_reading_all_keys(&self) -> bool {
        self.all_keys || self.keys.iter().any(|pattern| pattern.reads && pattern.glob == b"*")
    }

    /// Returns whether all channels are allowed.
    pub fn allows_all_channels(&self) -> bool {
        self.all_channels
    }

    /// Returns whether a channel is allowed. A channel pattern is allowed only if the same pattern is listed.
    pub fn allows_channel(&self, channel: &[u8], is_pattern: bool) -> bool {
        self.all_channels
            || self.channels.iter().any(|allowed| match is_pattern {
                true => allowed == channel,
                false => glob::matches(allowed, channel),
            })
    }
}

/// Queries about databases.
impl Selector {
    /// Returns whether all databases are allowed, even those that only a server with more databases has.
    pub fn allows_all_databases(&self) -> bool {
        self.databases.is_none()
    }

    /// Returns whether a database is allowed.
    pub fn allows_database(&self, db: u32) -> bool {
        self.databases.as_ref().is_none_or(|databases| databases.contains(&db))
    }
}

/// Display.
impl Selector {
    /// Returns the rules about commands, such as `-@all +get`.
    pub fn show_commands(&self) -> Vec<u8> {
        let mut text = if self.future_commands { b"+@all".to_vec() } else { b"-@all".to_vec() };
        for rule in &self.rules {
            text.extend_from_slice(if rule.allows { b" +" } else { b" -" });
            text.extend_from_slice(&rule.name);
        }
        text
    }

    /// Returns the key patterns, such as `~a* %R~b*`.
    pub fn show_keys(&self) -> Vec<u8> {
        if self.all_keys {
            return b"~*".to_vec();
        }
        let show = |pattern: &KeyPattern| {
            let access: &[u8] = match (pattern.reads, pattern.writes) {
                // When read back, `~*` allows no other pattern beside it.
                (true, true) if pattern.glob == b"*" && self.keys.len() > 1 => b"%RW~",
                (true, true) => b"~",
                (true, false) => b"%R~",
                (false, _) => b"%W~",
            };
            [access, &pattern.glob].concat()
        };
        self.keys.iter().map(show).collect::<Vec<_>>().join(&b' ')
    }

    /// Returns the channel patterns, such as `&news.*`.
    pub fn show_channels(&self) -> Vec<u8> {
        if self.all_channels {
            return b"&*".to_vec();
        }
        self.channels.iter().map(|channel| [b"&", channel.as_slice()].concat()).collect::<Vec<_>>().join(&b' ')
    }

    /// Returns the databases, such as `db=0,3`; an empty text if none is allowed, `None` if all are.
    pub fn show_databases(&self) -> Option<Vec<u8>> {
        let numbers: Vec<String> = self.databases.as_ref()?.iter().map(u32::to_string).collect();
        Some(if numbers.is_empty() { Vec::new() } else { format!("db={}", numbers.join(",")).into_bytes() })
    }

    /// Returns all rules, from which the selector can be rebuilt.
    pub fn show(&self) -> Vec<u8> {
        let mut parts = Vec::new();
        let keys = self.show_keys();
        if !keys.is_empty() {
            parts.push(keys);
        }
        if !self.all_channels {
            parts.push(b"resetchannels".to_vec());
        }
        let channels = self.show_channels();
        if !channels.is_empty() {
            parts.push(channels);
        }
        match self.show_databases() {
            Some(none) if none.is_empty() => parts.push(b"resetdbs".to_vec()),
            Some(some) => parts.push(some),
            None => {}
        }
        parts.push(self.show_commands());
        parts.join(&b' ')
    }
}
