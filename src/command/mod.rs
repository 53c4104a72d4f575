//! The commands, one file per family. Each file ends in its table entries; [`table`] is all of them.

mod acl;
mod bitmap;
mod client;
mod cluster;
mod command_log;
mod compare;
mod config;
mod connection;
mod coordination;
mod deadline;
mod debug;
mod debug_probe;
mod dump;
mod element;
mod feed;
mod function;
mod geo;
mod handover;
mod hash;
mod help;
mod hotkeys;
mod hyperloglog;
mod increx;
mod info;
mod introspection;
mod item;
mod key;
mod key_sizes;
mod latency;
pub mod limits;
mod list;
mod list_many;
mod many_keys;
mod memory;
pub(crate) mod metrics;
mod migrate;
mod module;
mod monitor;
mod node;
mod persistence;
mod pop;
mod pubsub;
mod replication;
mod sample;
mod scan;
mod script_call;
mod script_inspect;
mod scripting;
mod sentinel;
mod server;
mod set;
mod sort;
mod stream;
mod string;
mod string_value;
mod throttle;
mod transaction;
mod zset;

use std::sync::LazyLock;

use crate::engine::{Command, CommandTable};
use crate::spec::table::RenameError;

/// Every command of the server.
pub fn table() -> &'static CommandTable {
    static TABLE: LazyLock<CommandTable> = LazyLock::new(|| CommandTable::new(FAMILIES));
    &TABLE
}

/// Returns the table for a server whose configuration renames commands. `names` holds pairs of old and new name; an
/// empty new name removes the command. The table is leaked: a process has only one.
pub fn renamed_table(names: &[(Vec<u8>, Vec<u8>)]) -> Result<&'static CommandTable, RenameError> {
    Ok(if names.is_empty() { table() } else { Box::leak(Box::new(CommandTable::renamed(FAMILIES, names)?)) })
}

const FAMILIES: &[&[Command]] = &[
    acl::COMMANDS,
    bitmap::COMMANDS,
    client::COMMANDS,
    cluster::COMMANDS,
    command_log::COMMANDS,
    compare::COMMANDS,
    config::COMMANDS,
    connection::COMMANDS,
    coordination::dlq::COMMANDS,
    coordination::events::COMMANDS,
    coordination::gate::COMMANDS,
    coordination::guard::COMMANDS,
    coordination::id::COMMANDS,
    coordination::limit::COMMANDS,
    coordination::lock::COMMANDS,
    coordination::once::COMMANDS,
    coordination::stock::COMMANDS,
    coordination::ticket::COMMANDS,
    coordination::token::COMMANDS,
    coordination::who::COMMANDS,
    coordination::why::COMMANDS,
    coordination::xdelay::COMMANDS,
    debug::COMMANDS,
    dump::COMMANDS,
    element::COMMANDS,
    feed::COMMANDS,
    function::COMMANDS,
    geo::COMMANDS,
    handover::COMMANDS,
    hash::COMMANDS,
    hotkeys::COMMANDS,
    hyperloglog::COMMANDS,
    increx::COMMANDS,
    info::COMMANDS,
    introspection::COMMANDS,
    key::COMMANDS,
    latency::COMMANDS,
    list::COMMANDS,
    list_many::COMMANDS,
    memory::COMMANDS,
    migrate::COMMANDS,
    module::COMMANDS,
    monitor::COMMANDS,
    node::COMMANDS,
    persistence::COMMANDS,
    pubsub::COMMANDS,
    replication::COMMANDS,
    scripting::COMMANDS,
    sentinel::COMMANDS,
    server::COMMANDS,
    set::COMMANDS,
    sort::COMMANDS,
    stream::COMMANDS,
    string::COMMANDS,
    throttle::COMMANDS,
    transaction::COMMANDS,
    zset::COMMANDS,
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::{Entry, Run};
    use crate::resp::request::OwnedArgv;
    use crate::spec::syntax;
    use crate::spec::{Access, Begin, Find, Flags, Group};

    #[test]
    fn the_table_is_sound() {
        assert_eq!(lint(table()), Vec::<String>::new());
        let runs_queue = |entry: &&Entry| entry.command.flags.contains(Flags::RUNS_QUEUE);
        assert_eq!(table().iter().filter(runs_queue).count(), 1);
    }

    #[test]
    fn keys_found_by_a_function() {
        for (line, want) in [
            ("sort k", Some(vec![1])),
            ("sort k BY x GET a store d STORE e", Some(vec![1, 9])),
            ("sort k STORE", Some(vec![1])),
            ("sort k GET STORE d", Some(vec![1])),
            ("sort k LIMIT STORE STORE x", Some(vec![1])),
            ("migrate h 1 k 0 1", Some(vec![3])),
            ("migrate h 1  0 1 AUTH KEYS KEYS a b", Some(vec![9, 10])),
            ("migrate h 1  0 1 AUTH KEYS", Some(vec![3])),
            ("migrate h 1 k 0 1 KEYS a", None),
            ("migrate h 1 k 0 1 KEYS", Some(vec![3])),
        ] {
            let mut argv = OwnedArgv::default();
            line.split(' ').for_each(|word| argv.push(word.as_bytes()));
            let entry = table().named_by(argv.as_argv()).expect("a known command");
            let keys = table().keys_of(entry.command, argv.as_argv());
            assert_eq!(keys.map(|keys| keys.iter().map(|key| key.index).collect::<Vec<_>>()), want, "{line}");
        }
    }

    /// Returns the faults of a table; empty if it has none.
    fn lint(table: &CommandTable) -> Vec<String> {
        let mut found = Vec::new();
        for entry in table.all() {
            lint_entry(entry, &mut found);
        }
        found
    }

    fn lint_entry(entry: &Entry, found: &mut Vec<String>) {
        let command = entry.command;
        let mut complain = |what: &str| found.push(format!("{}: {what}", entry.full_name));
        if command.name.is_empty() || command.name.bytes().any(|byte| byte.is_ascii_uppercase()) {
            complain("the name must be in lower case");
        }
        if command.summary.is_empty() || !command.summary.ends_with('.') {
            complain("the summary must be a sentence");
        }
        if command.since.split('.').count() != 3 {
            complain("since must be a version of three numbers");
        }
        if command.arity == 0 {
            complain("the arity must count at least the name");
        }
        if command.flags.contains(Flags::WRITE) && command.flags.contains(Flags::READONLY) {
            complain("write and readonly exclude each other");
        }
        if command.flags.contains(Flags::DENYOOM)
            && !command.flags.intersects(Flags::WRITE | Flags::MAY_REPLICATE | Flags::NOSCRIPT)
        {
            complain("only a command that stores can be denied memory");
        }
        if matches!(command.run, Run::Container) && !command.is_container() {
            complain("a container must have subcommands, and no arguments of its own");
        }
        // An administrator's command may wait for the disk, which does not count as blocking.
        let may_wait_for_others =
            matches!(command.run, Run::MayWait(_)) && !command.flags.intersects(Flags::ADMIN | Flags::WAITS_FOR_ITSELF);
        if may_wait_for_others != command.flags.contains(Flags::BLOCKING) {
            complain("the flag blocking must be set exactly for commands that may wait");
        }
        if command.flags.contains(Flags::RUNS_QUEUE) && !command.flags.contains(Flags::WHILE_QUEUEING) {
            complain("a command that runs the queue must not be queued");
        }
        let has = |access| command.keys.iter().any(|keys| keys.access == access);
        let is_determined = command.access_by.is_some();
        if (has(Access::Varying) && !is_determined) || (is_determined && !has(Access::Varying) && !has(Access::Modify))
        {
            complain("a key with varying access needs a function that determines it");
        }
        for keys in command.keys {
            let least = command.arity.unsigned_abs() as usize;
            // A range up to the end of the arguments may be empty.
            if let (Begin::Index(index), Find::Range { last, .. }) = (keys.begin, keys.find)
                && index >= least + usize::from(last < 0)
            {
                complain("the first key must lie inside the arity");
            }
        }
        if command.group == Group::String && command.keys.is_empty() {
            complain("a string command must have keys");
        }
        if let Err(error) = syntax::parse(command.syntax) {
            complain(&format!("the syntax does not parse: {error}"));
        }
    }
}
