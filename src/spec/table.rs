//! The command table: finds commands by name and numbers them for statistics.
//!
//! Sentinel's port serves other commands than the other ports: some of theirs, and SENTINEL. Its sessions have a table
//! of their own, which the main one holds. All ids are those of the main table, so that statistics and users' rights
//! need not know where a command came in.

use super::error::{Error, excerpt};
use super::keys::keys_of;
use super::near::nearest;
use super::secrets::secrets_of;
use super::usage::wrong_count;
use super::{Command, Databases, Flags, KeyArg, Secret};
use crate::resp::request::Argv;

/// Identifies a command or subcommand of the table for the life of the program; for code that only records which
/// command it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CommandId(u16);

impl CommandId {
    /// Its index among all commands and subcommands.
    #[inline]
    pub fn index(self) -> usize {
        usize::from(self.0)
    }
}

/// A command in its table. `R` is the type that [runs](Command::run) it.
pub struct Entry<R: 'static> {
    /// The command's definition.
    pub command: &'static Command<R>,
    /// The command's id.
    pub id: CommandId,
    /// Lower-case name; a subcommand's includes its container's: `client|kill`.
    pub full_name: String,
    /// Subcommands.
    pub sub: Vec<Entry<R>>,
    /// The name for clients, in lower case: its own name unless the configuration renames it.
    called: String,
    /// The name for clients as a [`NameKey`].
    key: NameKey,
    /// The minimum number of arguments for running this entry directly, including its names, and the number of further
    /// arguments that it accepts. A container accepts none, so its subcommand must be found.
    plain_args: (usize, usize),
}

/// Reasons why a command can't be renamed. The texts are those of Redis.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RenameError {
    /// No command has the old name.
    #[error("No such command in rename-command: '{0}'")]
    Unknown(String),
    /// The new name is taken.
    #[error("Target command name already exists: '{0}'")]
    Taken(String),
}

impl<R> Entry<R> {
    /// Whether a call with `argc` arguments, its names included, fits the command without a search for a subcommand.
    /// Compares in two steps, for the hot path.
    #[inline]
    fn is_plain(&self, argc: usize) -> bool {
        let (fewest, more) = self.plain_args;
        argc.wrapping_sub(fewest) <= more
    }

    /// Number of leading arguments that are names: 1, or 2 for a subcommand.
    #[inline]
    pub fn name_args(&self) -> usize {
        1 + usize::from(self.full_name.len() > self.command.name.len())
    }

    fn is_called(&self, name: &[u8]) -> bool {
        self.called.as_bytes().eq_ignore_ascii_case(name)
    }

    /// Returns the subcommand `name` if a call with `argc` arguments, its names included, means that; else this command
    /// if it runs itself. `None` if there is no such subcommand.
    fn sub_of_call(&self, name: &[u8], argc: usize) -> Option<&Entry<R>> {
        if self.is_plain(argc) {
            return Some(self);
        }
        self.find_sub(name).or((!self.command.is_container()).then_some(self))
    }

    /// Returns the subcommand of this name, in any case.
    pub fn find_sub(&self, name: &[u8]) -> Option<&Entry<R>> {
        self.sub.iter().find(|sub| sub.command.name.as_bytes().eq_ignore_ascii_case(name))
    }
}

/// A nested command, given to another one to run.
pub struct Inner<'t, 'a, R: 'static> {
    /// The argument of the call at which it begins.
    pub at: usize,
    /// Its table entry.
    pub entry: &'t Entry<R>,
    /// Its own arguments.
    pub argv: Argv<'a>,
}

/// All commands. Built once and never changed.
pub struct CommandTable<R: 'static> {
    /// In the order of their names; behind them those that only Sentinel's port serves.
    entries: Vec<Entry<R>>,
    /// How many of the entries are found by name.
    named: usize,
    /// Open addressing over a case-folded hash of the name; holds index + 1, 0 is empty.
    slots: Vec<u16>,
    /// By id: the index in `entries`, and the index among its subcommands.
    places: Vec<(u16, Option<u16>)>,
    /// The commands that Sentinel's port serves; `None` in that table itself.
    of_sentinel: Option<Box<CommandTable<R>>>,
}

impl<R> CommandTable<R> {
    /// Builds the table from the commands of all families.
    ///
    /// # Panics
    /// When two commands have the same name: the table is a constant of the program.
    pub fn new(families: &[&'static [Command<R>]]) -> CommandTable<R> {
        CommandTable::renamed(families, &[]).unwrap_or_else(|error| unreachable!("nothing is renamed: {error}"))
    }

    /// Builds the table with some commands renamed or, with an empty new name, removed. `names` holds pairs of old and
    /// new names.
    pub fn renamed(
        families: &[&'static [Command<R>]],
        names: &[(Vec<u8>, Vec<u8>)],
    ) -> Result<CommandTable<R>, RenameError> {
        let (mut entries, ids) = entries(families, names)?;
        let is_only_of_sentinel = |entry: &Entry<R>| entry.command.flags.contains(Flags::ONLY_SENTINEL);
        entries.sort_by_key(is_only_of_sentinel);
        let named = entries.partition_point(|entry| !is_only_of_sentinel(entry));
        let (mut of_sentinel, _) = self::entries(families, names)?;
        keep_sentinels(&mut of_sentinel);
        let of_sentinel = CommandTable::of(of_sentinel.len(), of_sentinel, ids, None);
        Ok(CommandTable::of(named, entries, ids, Some(Box::new(of_sentinel))))
    }

    fn of(
        named: usize,
        entries: Vec<Entry<R>>,
        ids: u16,
        of_sentinel: Option<Box<CommandTable<R>>>,
    ) -> CommandTable<R> {
        let slots = vec![0; (named * 4).next_power_of_two()];
        let mut table = CommandTable { slots, places: places(&entries, ids), entries, named, of_sentinel };
        for index in 0..named {
            let name = table.entries[index].called.as_bytes();
            assert!(table.find(name).is_none(), "two commands are called {}", table.entries[index].full_name);
            let mut slot = table.entries[index].key.hash() & (table.slots.len() - 1);
            while table.slots[slot] != 0 {
                slot = (slot + 1) & (table.slots.len() - 1);
            }
            table.slots[slot] = index as u16 + 1;
        }
        table
    }

    /// Iterates over the commands in the order of their names, without those that only Sentinel's port serves.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &Entry<R>> {
        self.entries[..self.named].iter()
    }

    /// Iterates over all commands, each followed by its subcommands.
    pub fn all(&self) -> impl Iterator<Item = &Entry<R>> {
        self.entries.iter().flat_map(|entry| std::iter::once(entry).chain(&entry.sub))
    }

    /// Returns the table of the sessions at Sentinel's port.
    pub fn of_sentinel(&self) -> &CommandTable<R> {
        self.of_sentinel.as_deref().unwrap_or(self)
    }

    /// Returns the number of ids: commands and subcommands together.
    pub fn ids(&self) -> usize {
        self.places.len()
    }

    /// Returns the command or subcommand of this id, which must be from this table.
    #[inline]
    pub fn by_id(&self, id: CommandId) -> &Entry<R> {
        let (place, sub) = self.places[id.index()];
        let entry = &self.entries[usize::from(place)];
        sub.map_or(entry, |sub| &entry.sub[usize::from(sub)])
    }

    /// Returns the command or subcommand with this [index](CommandId::index), if there is one.
    pub fn by_index(&self, index: usize) -> Option<&Entry<R>> {
        (index < self.ids()).then(|| self.by_id(CommandId(index as u16)))
    }

    /// Finds the command or subcommand of this full name (`client|kill`), in any case.
    pub fn find_full(&self, name: &[u8]) -> Option<&Entry<R>> {
        match name.iter().position(|byte| *byte == b'|') {
            None => self.find(name),
            Some(bar) => self.find(&name[..bar])?.find_sub(&name[bar + 1..]),
        }
    }

    /// As [`find_full`](Self::find_full), also among the commands that only Sentinel's port serves.
    pub fn find_full_at_any_port(&self, name: &[u8]) -> Option<&Entry<R>> {
        self.find_full(name).or_else(|| self.of_sentinel().find_full(name))
    }

    /// Finds the command that `argv` names, without checking its arguments.
    pub fn named_by(&self, argv: Argv<'_>) -> Option<&Entry<R>> {
        let entry = self.find(argv.get(0)?)?;
        match argv.get(1) {
            Some(name) if !entry.sub.is_empty() => entry.sub_of_call(name, argv.len()),
            _ => Some(entry),
        }
    }

    /// Finds the command of this name, in any case.
    #[inline]
    pub fn find(&self, name: &[u8]) -> Option<&Entry<R>> {
        let key = NameKey::new(name);
        let mut slot = key.hash() & (self.slots.len() - 1);
        loop {
            let entry = self.entries.get((self.slots[slot] as usize).checked_sub(1)?)?;
            if entry.key == key && (name.len() <= NameKey::WHOLE || entry.is_called(name)) {
                return Some(entry);
            }
            slot = (slot + 1) & (self.slots.len() - 1);
        }
    }

    /// Finds the index in the table of the command of this name.
    pub fn place(&self, name: &[u8]) -> Option<u16> {
        let name = self.find(name)?.command.name;
        let named = &self.entries[..self.named];
        named.binary_search_by_key(&name, |entry| entry.command.name).ok().map(|place| place as u16)
    }

    /// Returns the command at an index.
    #[inline]
    pub fn at(&self, place: u16) -> Option<&Entry<R>> {
        self.entries.get(usize::from(place))
    }

    /// Finds the command or subcommand that `argv` calls, and checks its number of arguments.
    #[inline]
    pub fn resolve(&self, argv: Argv<'_>) -> Result<&Entry<R>, Error> {
        let entry = argv.get(0).and_then(|name| self.find(name)).ok_or_else(|| self.unknown_command(argv))?;
        self.resolve_in(entry, argv)
    }

    #[cold]
    fn unknown_command(&self, argv: Argv<'_>) -> Error {
        const SHOWN_BYTES: usize = 128;
        let mut args = String::new();
        for arg in argv.iter().skip(1) {
            if args.len() >= SHOWN_BYTES {
                break;
            }
            args.push_str(&format!("'{}' ", excerpt(arg, SHOWN_BYTES - args.len())));
        }
        let name = excerpt(&argv[0], SHOWN_BYTES);
        // Redis' text comes first, since clients may compare how it begins. Sentinel's port has few commands: most of
        // those that are sent to it in vain are not mistyped.
        let names = self.iter().map(|entry| entry.called.as_str());
        let near = if self.of_sentinel.is_some() { nearest(&argv[0], names) } else { None };
        let hint = near.map(|near| format!("- did you mean '{}'?", near.to_ascii_uppercase())).unwrap_or_default();
        Error::owned(format!("ERR unknown command '{name}', with args beginning with: {args}{hint}"))
    }

    /// Finds the nested command that a call of `command` runs, if it [runs](Command::inner) others. Fails if there is
    /// no such command, if its number of arguments is wrong, or if it must not be nested. The last case covers commands
    /// that concern a connection or a transaction, and commands that run others themselves unless `command` allows
    /// [that](Command::nests).
    pub fn inner_of<'a>(&self, command: &Command<R>, argv: Argv<'a>) -> Result<Option<Inner<'_, 'a, R>>, Error> {
        let Some(find) = command.inner else { return Ok(None) };
        let at = find(argv).ok_or(Error::Syntax)?;
        let argv = argv.skip(at);
        let entry = self.resolve(argv)?;
        let is_script = entry.command.runs.is_some();
        let is_refused = entry.command.flags.contains(Flags::NOSCRIPT) && !is_script
            || entry.command.inner.is_some() && !takes_runner(command, entry.command)
            || matches!(entry.command.databases, Databases::Selected);
        if is_refused {
            return Err(Error::owned(format!(
                "ERR '{}' can't run inside of '{}': it concerns the connection or the server, or runs commands itself",
                entry.full_name, command.name
            )));
        }
        Ok(Some(Inner { at, entry, argv }))
    }

    /// Returns the command whose name is at argument `at` of a call of `entry`; `entry` itself at 0.
    pub fn named_at<'t>(&'t self, entry: &'t Entry<R>, argv: Argv<'_>, at: usize) -> &'t Entry<R> {
        if at == 0 { entry } else { self.named_by(argv.skip(at)).unwrap_or(entry) }
    }

    /// Returns which arguments of a call are keys: the [command's own](keys_of), and those of its nested commands.
    #[inline]
    pub fn keys_of(&self, command: &Command<R>, argv: Argv<'_>) -> Option<Vec<KeyArg>> {
        if command.inner.is_none() { keys_of(command, argv) } else { self.keys_of_all(command, argv) }
    }

    fn keys_of_all(&self, command: &Command<R>, argv: Argv<'_>) -> Option<Vec<KeyArg>> {
        let mut keys = keys_of(command, argv)?;
        if let Some(Inner { at, entry, argv }) = self.inner_of(command, argv).ok()?
            && entry.command.has_keys()
        {
            let inner = self.keys_of(entry.command, argv)?;
            keys.extend(inner.into_iter().map(|key| KeyArg { index: at + key.index, ..key }));
        }
        Some(keys)
    }

    /// Returns which arguments of a call are secret, by index: the [command's own](secrets_of), and those of a nested
    /// or queried command, whether or not that may run.
    pub(crate) fn secrets_of(&self, command: &Command<R>, argv: Argv<'_>) -> Vec<bool> {
        let mut are_secret = secrets_of(command, argv);
        let (mut command, mut rest, mut begin) = (command, argv, 0);
        let hide_from = |are_secret: &mut Vec<bool>, at: usize| {
            are_secret.resize(at.min(argv.len()), false);
            are_secret.resize(argv.len(), true);
        };
        // The queried command is looked up only once, because a call may nest such queries a million deep.
        let mut asked = command.secrets.iter().find_map(|secret| match *secret {
            Secret::Call { first } => Some(first),
            _ => None,
        });
        // This is a loop, because a call may nest such commands very deeply.
        while asked.is_some() || command.inner.is_some() {
            let Some(at) = asked.take().or_else(|| command.inner.and_then(|find| find(rest))) else {
                // A command that takes a password may follow somewhere after the key.
                hide_from(&mut are_secret, begin + 2);
                break;
            };
            (rest, begin) = (rest.skip(at.min(rest.len())), begin + at);
            let Some(inner) = self.named_by(rest) else {
                hide_from(&mut are_secret, begin + 1);
                break;
            };
            command = inner.command;
            are_secret.resize(begin, false);
            are_secret.extend(secrets_of(command, rest));
        }
        are_secret
    }

    /// As [`resolve`](Self::resolve), when the command of the first argument is known.
    #[inline]
    pub fn resolve_in<'t>(&'t self, entry: &'t Entry<R>, argv: Argv<'_>) -> Result<&'t Entry<R>, Error> {
        if entry.is_plain(argv.len()) { Ok(entry) } else { resolve_sub(entry, argv) }
    }
}

/// Returns whether a command may run a nested command that runs another one itself.
fn takes_runner<R>(outer: &Command<R>, inner: &Command<R>) -> bool {
    outer.nests && !inner.nests
}

/// As [`CommandTable::resolve_in`], for entries that are not [plain](Entry::is_plain).
#[inline(never)]
fn resolve_sub<'t, R>(mut entry: &'t Entry<R>, argv: Argv<'_>) -> Result<&'t Entry<R>, Error> {
    if !entry.sub.is_empty()
        && let Some(name) = argv.get(1)
    {
        entry = entry.sub_of_call(name, argv.len()).ok_or_else(|| unknown_subcommand(entry, name))?;
    }
    if entry.command.accepts(argv.len()) { Ok(entry) } else { Err(wrong_arity(entry, argv.len())) }
}

#[cold]
fn wrong_arity<R>(entry: &Entry<R>, argc: usize) -> Error {
    let (name, command) = (&entry.full_name, entry.command);
    if command.is_own() && !command.is_container() {
        wrong_count(name, command.syntax, argc.saturating_sub(entry.name_args()))
    } else {
        Error::Arity(name.clone().into())
    }
}

/// Makes the entries of all commands in the order of their names, with `names` as for [`CommandTable::renamed`].
/// Returns the number of ids, too.
fn entries<R>(
    families: &[&'static [Command<R>]],
    names: &[(Vec<u8>, Vec<u8>)],
) -> Result<(Vec<Entry<R>>, u16), RenameError> {
    let mut ids = 0;
    let mut entries: Vec<Entry<R>> =
        families.iter().flat_map(|family| family.iter()).map(|command| entry(command, None, &mut ids)).collect();
    entries.sort_by_key(|entry| entry.command.name);
    names.iter().try_for_each(|(old, new)| rename(&mut entries, old, new))?;
    Ok((entries, ids))
}

/// Drops the commands and subcommands that Sentinel's port does not serve.
fn keep_sentinels<R>(entries: &mut Vec<Entry<R>>) {
    entries.retain(|entry| entry.command.flags.contains(Flags::SENTINEL));
    entries.iter_mut().for_each(|entry| keep_sentinels(&mut entry.sub));
}

fn entry<R>(command: &'static Command<R>, parent: Option<&'static Command<R>>, ids: &mut u16) -> Entry<R> {
    let id = CommandId(*ids);
    *ids += 1;
    let full_name = parent.map_or(command.name.to_owned(), |parent| format!("{}|{}", parent.name, command.name));
    let sub = command.sub.iter().map(|sub| entry(sub, Some(command), ids)).collect();
    let called = command.name.to_ascii_lowercase();
    let plain_args = if command.is_container() { (usize::MAX, 0) } else { command.argument_counts() };
    Entry { command, id, full_name, sub, key: NameKey::new(called.as_bytes()), called, plain_args }
}

/// Renames or removes a command.
fn rename<R>(entries: &mut Vec<Entry<R>>, old: &[u8], new: &[u8]) -> Result<(), RenameError> {
    let text = |name: &[u8]| String::from_utf8_lossy(name).into_owned();
    let place = |name: &[u8]| entries.iter().position(|entry| entry.is_called(name));
    let at = place(old).ok_or_else(|| RenameError::Unknown(text(old)))?;
    if new.is_empty() {
        entries.remove(at);
        return Ok(());
    }
    if place(new).is_some() {
        return Err(RenameError::Taken(text(new)));
    }
    let entry = &mut entries[at];
    entry.called = text(&new.to_ascii_lowercase());
    entry.key = NameKey::new(entry.called.as_bytes());
    Ok(())
}

/// Maps each id to its location in the table. Ids of removed commands are unused and map to the first entry.
fn places<R>(entries: &[Entry<R>], ids: u16) -> Vec<(u16, Option<u16>)> {
    let mut places = vec![(0, None); usize::from(ids)];
    for (entry, place) in entries.iter().zip(0..) {
        places[entry.id.index()] = (place, None);
        for (sub, sub_place) in entry.sub.iter().zip(0..) {
            places[sub.id.index()] = (place, Some(sub_place));
        }
    }
    places
}

/// Finds commands by name and remembers the last one, because a client, above all in a pipeline, often repeats a
/// command.
pub struct Finder<R: 'static> {
    /// The last name as written; initially empty, which no command is.
    name: NameKey,
    entry: Option<&'static Entry<R>>,
    /// The table in which the name was looked up.
    table: Option<&'static CommandTable<R>>,
}

impl<R> Default for Finder<R> {
    fn default() -> Finder<R> {
        Finder { name: NameKey::default(), entry: None, table: None }
    }
}

impl<R> Finder<R> {
    /// Forgets the last name unless it was looked up in this table, as before commands of another port.
    #[inline]
    pub fn look_in(&mut self, table: &'static CommandTable<R>) {
        if !self.table.is_some_and(|known| std::ptr::eq(known, table)) {
            *self = Finder { table: Some(table), ..Finder::default() };
        }
    }

    /// As [`CommandTable::resolve`], in the table of [`look_in`](Self::look_in).
    #[inline]
    pub fn resolve(&mut self, table: &'static CommandTable<R>, argv: Argv<'_>) -> Option<&'static Entry<R>> {
        let name = argv.get(0)?;
        let key = NameKey::as_written(name);
        if key != self.name {
            let entry = table.find(name);
            if name.len() > NameKey::WHOLE {
                return table.resolve_in(entry?, argv).ok();
            }
            (self.name, self.entry) = (key, entry);
        }
        table.resolve_in(self.entry?, argv).ok()
    }
}

/// A name in a form that is quick to compare and hash, with letters in lower case: its length and, in two words, its
/// first and last eight bytes. A name of up to 16 bytes is fully contained.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
struct NameKey {
    len: usize,
    words: [u64; 2],
}

impl NameKey {
    /// Names up to this length are equal if their keys are.
    const WHOLE: usize = 16;

    #[inline]
    fn new(name: &[u8]) -> NameKey {
        let NameKey { len, words } = NameKey::as_written(name);
        NameKey { len, words: words.map(lower_case) }
    }

    /// Makes a key without changing the case of letters.
    #[inline]
    fn as_written(name: &[u8]) -> NameKey {
        let words = match (name.first_chunk::<8>(), name.last_chunk::<8>()) {
            (Some(first), Some(last)) => [u64::from_le_bytes(*first), u64::from_le_bytes(*last)],
            _ => match (name.first_chunk::<4>(), name.last_chunk::<4>()) {
                // Four to seven bytes: the two chunks together cover them.
                (Some(first), Some(last)) => {
                    [u64::from(u32::from_le_bytes(*first)) | u64::from(u32::from_le_bytes(*last)) << 32, 0]
                }
                _ => match *name {
                    [a] => [u64::from(a), 0],
                    [a, b] => [u64::from(a) | u64::from(b) << 8, 0],
                    [a, b, c] => [u64::from(a) | u64::from(b) << 8 | u64::from(c) << 16, 0],
                    _ => [0, 0],
                },
            },
        };
        NameKey { len: name.len(), words }
    }

    #[inline]
    fn hash(self) -> usize {
        let mixed =
            (self.words[0] ^ self.words[1].rotate_left(29) ^ self.len as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (mixed >> 40) as usize
    }
}

/// Converts the ASCII letters in eight bytes to lower case.
#[inline]
fn lower_case(word: u64) -> u64 {
    const EACH: u64 = 0x0101_0101_0101_0101;
    let low_bits = word & (0x7f * EACH);
    // The top bit of each byte says: at least `A`; above `Z`.
    let from_a = low_bits + (0x80 - u64::from(b'A')) * EACH;
    let above_z = low_bits + (0x7f - u64::from(b'Z')) * EACH;
    let is_upper = from_a & !above_z & !word & (0x80 * EACH);
    word | is_upper >> 2
}

#[cold]
fn unknown_subcommand<R>(entry: &Entry<R>, name: &[u8]) -> Error {
    let container = entry.command.name.to_ascii_uppercase();
    Error::owned(format!("ERR unknown subcommand '{}'. Try {container} HELP.", excerpt(name, 128)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_port_of_sentinel_has_a_table_with_the_ids_of_the_main_one() {
        const NONE: Command<()> = Command::new(());
        const BOTH: Command<()> = Command { flags: Flags::SENTINEL, ..NONE };
        const ONLY: Command<()> = Command { flags: Flags::SENTINEL.union(Flags::ONLY_SENTINEL), ..NONE };
        const COMMANDS: &[Command<()>] = &[
            Command { name: "b", sub: &[Command { name: "x", ..NONE }, Command { name: "y", ..BOTH }], ..BOTH },
            Command { name: "a", sub: &[Command { name: "z", ..ONLY }], ..ONLY },
            Command { name: "c", ..NONE },
        ];
        let table = CommandTable::new(&[COMMANDS]);
        let found = |table: &CommandTable<()>| {
            let names = ["a", "a|z", "b", "b|x", "b|y", "c"];
            names.into_iter().filter(|name| table.find_full(name.as_bytes()).is_some()).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(found(&table), "b b|x b|y c");
        assert_eq!(found(table.of_sentinel()), "a a|z b b|y");
        assert_eq!(table.iter().map(|entry| entry.command.name).collect::<String>(), "bc");
        assert_eq!(table.all().count(), table.ids());
        for entry in table.of_sentinel().all() {
            assert_eq!(table.by_id(entry.id).full_name, entry.full_name);
            assert_eq!(table.of_sentinel().by_id(entry.id).full_name, entry.full_name);
        }
        assert!(table.find_full_at_any_port(b"a|z").is_some());
    }

    #[test]
    fn names_are_equal_in_any_case_and_only_then() {
        let names = ["", "g", "get", "GETX", "lrange", "evalsha_ro", "zremrangebyscore", "georadiusbymember_ro"];
        for a in names {
            assert!(NameKey::new(a.as_bytes()) == NameKey::new(a.to_ascii_uppercase().as_bytes()), "{a}");
            for b in names.iter().filter(|b| **b != a) {
                assert!(NameKey::new(a.as_bytes()) != NameKey::new(b.as_bytes()), "{a} {b}");
            }
        }
        for byte in 0..=255u8 {
            assert_eq!(lower_case(u64::from(byte) << 24), u64::from(byte.to_ascii_lowercase()) << 24);
        }
        assert!(NameKey::new(b"eval_ro") != NameKey::new(b"eval\x7fro"));
    }
}
