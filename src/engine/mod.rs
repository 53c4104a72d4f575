//! The engine: one thread that admits, runs and answers commands.
//!
//! [`Engine::feed`] takes the bytes that a connection has read and answers every complete command in them. Each
//! command, EXEC and script is one unit: it runs against the keyspace while time stands still, then the observers see
//! its effects. The engine knows neither sockets nor the commands themselves: it is handed a [`CommandTable`].

pub(crate) mod client;
pub mod limits;
pub mod memory;
pub mod observe;
pub mod persistence;
pub mod run;
mod state;
pub(crate) mod time;

pub use run::shutdown::Shutdown;
pub(crate) use state::hex_id;
pub use state::{
    Command, CommandTable, Ctx, Done, Engine, Entry, Fed, Flow, MayWait, NetworkRefusal, Origin, RawSockets,
    Reconfigure, Run, ServerState,
};
