//! How the engine takes part in what lasts: see [`persist`](crate::persist).

pub mod bulk_load;
pub mod durability;
pub mod recovery;
pub(crate) mod reload;
pub(crate) mod save_slices;
pub(crate) mod save_triggers;
pub(crate) mod transfer_slices;
