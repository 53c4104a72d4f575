//! The commands, one file per family. Each file ends in its table entries; [`table`] is all of them.

mod list;
mod stream;
mod string;

use std::sync::LazyLock;

use crate::engine::table::CommandTable;

/// Every command of the server.
pub fn table() -> &'static CommandTable {
    static TABLE: LazyLock<CommandTable> =
        LazyLock::new(|| CommandTable::new(&[list::COMMANDS, stream::COMMANDS, string::COMMANDS]));
    &TABLE
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_table_is_sound() {
        assert_eq!(crate::engine::table::lint(super::table()), Vec::<String>::new());
    }
}
