//! The commands, one file per family. Each file ends in its table entries; [`table`] is all of them.

mod bitmap;
mod client;
mod compare;
mod config;
mod connection;
mod deadline;
mod debug;
mod dump;
mod element;
mod function;
mod geo;
mod hash;
mod help;
mod hyperloglog;
mod increx;
mod info;
mod introspection;
mod key;
mod list;
mod memory;
mod migrate;
mod persistence;
mod pubsub;
mod replication;
mod sample;
mod scan;
mod script_look;
mod scripting;
mod server;
mod set;
mod sort;
mod stream;
mod string;
mod throttle;
mod transaction;
mod zset;

use std::sync::LazyLock;

use crate::engine::table::CommandTable;
use crate::resp::reply::Reply;
use crate::value::packed::Item;

/// Every command of the server.
pub fn table() -> &'static CommandTable {
    static TABLE: LazyLock<CommandTable> = LazyLock::new(|| {
        CommandTable::new(&[
            bitmap::COMMANDS,
            client::COMMANDS,
            compare::COMMANDS,
            config::COMMANDS,
            connection::COMMANDS,
            debug::COMMANDS,
            dump::COMMANDS,
            element::COMMANDS,
            function::COMMANDS,
            geo::COMMANDS,
            hash::COMMANDS,
            hyperloglog::COMMANDS,
            increx::COMMANDS,
            info::COMMANDS,
            introspection::COMMANDS,
            key::COMMANDS,
            list::COMMANDS,
            memory::COMMANDS,
            migrate::COMMANDS,
            persistence::COMMANDS,
            pubsub::COMMANDS,
            replication::COMMANDS,
            scripting::COMMANDS,
            server::COMMANDS,
            set::COMMANDS,
            sort::COMMANDS,
            stream::COMMANDS,
            string::COMMANDS,
            throttle::COMMANDS,
            transaction::COMMANDS,
            zset::COMMANDS,
        ])
    });
    &TABLE
}

/// Answers an element of a collection.
#[inline]
fn bulk_item(reply: &mut Reply, item: Item<'_>) {
    match item {
        Item::Int(value) => reply.bulk_integer(value),
        Item::Bytes(bytes) => reply.bulk(bytes),
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_table_is_sound() {
        assert_eq!(crate::engine::table::lint(super::table()), Vec::<String>::new());
    }
}
