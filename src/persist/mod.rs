//! What lasts: the units that wait for the journal, snapshots of the keyspace, and what is read when the server starts.

pub(crate) mod durability_state;
pub(crate) mod load_pieces;
pub(crate) mod rdb_export;
pub mod saving;
pub mod snapshot_stream;
pub mod tail;
pub mod transfer;
