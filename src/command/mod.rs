//! The commands, one file per family. Each file ends in its table entries; [`table`] is all of them.

mod bitmap;
mod client;
mod command;
mod config;
mod connection;
mod deadline;
mod debug;
mod help;
mod info;
mod key;
mod memory;
mod pubsub;
mod scan;
mod server;
mod string;
mod transaction;

use std::sync::LazyLock;

use crate::engine::table::CommandTable;

/// Every command of the server.
pub fn table() -> &'static CommandTable {
    static TABLE: LazyLock<CommandTable> = LazyLock::new(|| {
        CommandTable::new(&[
            bitmap::COMMANDS,
            client::COMMANDS,
            command::COMMANDS,
            config::COMMANDS,
            connection::COMMANDS,
            debug::COMMANDS,
            info::COMMANDS,
            key::COMMANDS,
            memory::COMMANDS,
            pubsub::COMMANDS,
            server::COMMANDS,
            string::COMMANDS,
            transaction::COMMANDS,
        ])
    });
    &TABLE
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_table_is_sound() {
        assert_eq!(crate::engine::table::lint(super::table()), Vec::<String>::new());
    }
}
