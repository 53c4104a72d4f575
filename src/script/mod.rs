//! Lua scripts: one LuaJIT state with Redis' sandbox, its `redis` table, its libraries and its rules for replies.
//!
//! Floor 3: scripts see the server only through [`Host`], which the engine implements; nothing here knows a key, a client
//! or a clock. `mlua` is named only in this folder, its raw C interface only in `lua`, and what our LuaJIT has beyond it only in `luajit`.
//!
//! - `vm`: the state; compiles and runs scripts. `context`: what its C functions share; `chunk`: from a text to a function;
//!   `lists`: KEYS and ARGV; `interrupt`: how a script is interrupted and ended; `failure`: how it failed, as Redis words it
//! - `host`: what a script asks of the server; `program`: what runs, and how it ends
//! - `convert`: reply tape to Lua values, Lua values to replies
//! - `redis`: the `redis` table
//! - `sandbox`: what a script can name and what it cannot change
//! - `alarm`: brings the hook to scripts that run for long
//! - `control`: `pcall` and coroutines; `tables`: the functions of `table`; `sort`: `table.sort` that can be interrupted
//! - `memory`: what the state may hold
//! - `strings`, `pattern`: the functions of `string` that could run for ever or exhaust memory
//! - `cjson`, `cmsgpack`, `structs`: the bundled libraries
//! - `library`: libraries of functions; `register`: what they see while they are loaded
//! - `parse`: programs as trees, for those who look without running them
//! - `debug`: the debugger behind SCRIPT DEBUG
//! - `store`: the script cache; `bundled`: the scripts that are always in it

mod alarm;
pub mod bundled;
mod chunk;
mod cjson;
mod cmsgpack;
mod context;
mod control;
mod convert;
pub mod debug;
mod failure;
mod host;
mod interrupt;
pub mod library;
mod lists;
mod lua;
mod luajit;
mod memory;
pub(crate) mod names;
mod pattern;
mod program;
mod random;
mod redis;
mod register;
mod sandbox;
mod sort;
pub(crate) mod store;
mod strings;
mod structs;
mod tables;
mod vm;

pub use host::{Host, LogLevel, ServerVersion, UNDO_IS_FULL, Verdict};
pub use program::{Fault, Handle, Invocation, LoadError, Outcome, Passing, ScriptError, Sha1Hex};
pub use vm::Vm;

#[cfg(test)]
pub(crate) use alarm::tests::without_alarm;
#[cfg(test)]
mod tests;
