//! The engine: one thread that admits, runs and answers commands.
//!
//! [`Engine::feed`] takes what a connection has read and answers every complete command in it. Each command, EXEC and
//! script is one unit: it runs against the keyspace with time standing still, then the observers see its effects. The
//! engine knows neither sockets nor the commands themselves: it is handed a [`CommandTable`].

pub(crate) mod access;
pub mod acl;
pub(crate) mod admit;
pub(crate) mod args;
mod batch;
pub mod bulk_load;
pub(crate) mod busy;
pub(crate) mod categories;
pub(crate) mod client_line;
mod client_memory;
mod clients;
pub(crate) mod command_log;
mod command_observers;
pub(crate) mod coordination_stats;
pub(crate) mod debugging;
pub(crate) mod dispatch;
pub mod durability;
mod durability_state;
pub mod ending;
pub(crate) mod error;
pub(crate) mod events;
mod evict;
mod feed;
pub(crate) mod history;
pub(crate) mod hotkeys;
mod inner_call;
mod invalidate;
pub(crate) mod keys;
pub(crate) mod latency;
pub mod lint;
mod load_pieces;
pub(crate) mod memory;
mod monitor;
mod notify;
mod observe;
pub mod outbox;
mod output_limits;
pub(crate) mod pause;
mod postpone;
mod publish;
pub(crate) mod pubsub;
mod rdb_export;
mod readers;
pub mod recovery;
pub(crate) mod registry;
mod reload;
mod remember;
mod room;
pub(crate) mod running_script;
mod save_slices;
mod save_triggers;
pub mod saving;
mod script_host;
pub(crate) mod script_slow;
pub(crate) mod script_stats;
pub(crate) mod script_trace;
pub(crate) mod scripting;
pub(crate) mod scripts;
mod secrets;
mod send_past;
pub mod session;
pub mod snapshot_stream;
pub mod spec;
mod state;
pub(crate) mod stats;
pub mod subscriptions;
pub mod syntax;
pub mod table;
pub mod tail;
mod tick;
pub(crate) mod tickets;
pub(crate) mod tracking;
pub mod transfer;
mod transfer_slices;
pub mod turns;
mod unit;
pub(crate) mod wait;
mod wait_queues;
mod waiters;
mod watches;

pub use scripts::Scripts;
pub(crate) use state::hex_id;
pub use state::{
    Command, CommandTable, Ctx, Done, Engine, Entry, Fed, Flow, MayWait, NetworkRefusal, Origin, RawSockets,
    Reconfigure, Run, ServerState, Shutdown,
};
