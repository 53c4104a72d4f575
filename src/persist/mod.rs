//! What lasts: the units that wait for the journal, snapshots of the keyspace, and what is read when the server starts.

pub(crate) mod durability_state;
pub(crate) mod load_pieces;
pub(crate) mod rdb_export;
pub mod saving;
pub mod snapshot_stream;
pub mod tail;
pub mod transfer;

use durability_state::Durability;
use saving::{Progress, Saving};
use tail::Tail;

/// What lasts.
pub struct Persistence {
    /// Units recorded since they were last taken; `None` while nobody keeps the whole stream. Is
    /// [set](crate::engine::ServerState::set_tail), not assigned.
    pub tail: Option<Tail>,
    /// The journal, which takes the tail; `None` with `appendonly no`.
    pub(crate) durability: Option<Durability>,
    /// The snapshot that is being made.
    pub saving: Saving,
    /// How far the data has been loaded, until it is there.
    pub loading: Option<Progress>,
}
