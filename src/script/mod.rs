//! Lua scripts: one LuaJIT state with Redis' sandbox, its `redis` table, its libraries and its rules for replies.
//!
//! Floor 3: scripts see the server only through [`Host`], which the engine implements. Nothing here knows a key, a
//! client or a clock. `mlua` is named only in this folder, its raw C interface only in `lua`, and our additions to
//! LuaJIT only in `luajit`.
//!
//! The files from the bottom up; each one knows only files listed before it:
//!
//! - `host`: requests of a script to the server; `program`: programs and their outcomes; `random`: the generator of
//!   `math.random`
//! - `integer`: Lua's numbers as integers; `lua`: the stack of a Lua thread, as seen by C functions; `luajit`:
//!   functions of our LuaJIT beyond Lua's C interface; `chunk`: turns a text into a function
//! - `alarm`: sets the hook in long runs; `memory`: the limit on memory
//! - `names`: known names of commands; `list_state`: the state of KEYS and ARGV; `frame`: position in a value being
//!   written; `failure`: the failure of a script, as Redis words it; `debug`: the debugger behind SCRIPT DEBUG, without
//!   its hook
//! - `store`: the script cache; `bundled`: the scripts that are always in it; `library`: libraries of functions
//! - `context`: the state shared by all C functions. It consists of types that the files before it define, and gives
//!   `Stack` the methods to reach it
//! - `interrupt`: interrupts and ends running scripts; `room`: memory that C functions use outside of Lua, and the C
//!   stack
//! - `convert`: replies to Lua values, and Lua values to replies; `lists`: KEYS and ARGV
//! - `stand_in`: read-only tables
//! - Libraries: `redis`, and `register` for libraries being loaded; `strings` and `pattern`, with bounds on time and
//!   memory; `tables`, and a `sort` that can be interrupted; `control`: `pcall` and coroutines; `cjson`, `cmsgpack`,
//!   `structs`
//! - `debug::hook`: the debugger's hook and commands
//! - `sandbox`: assembles the libraries into the globals of scripts
//! - `vm`: the state, which compiles and runs scripts

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
mod frame;
mod host;
mod integer;
mod interrupt;
pub mod library;
pub mod limits;
mod list_state;
mod lists;
mod lua;
mod luajit;
mod memory;
mod names;
mod pattern;
mod program;
mod random;
mod redis;
mod register;
mod room;
mod sandbox;
mod sort;
mod stand_in;
pub(crate) mod store;
mod strings;
mod structs;
mod tables;
mod vm;

pub use host::{CommandId, Host, LogLevel, ServerVersion, UNDO_IS_FULL, Verdict};
pub use program::{Fault, Handle, Invocation, LoadError, Outcome, Passing, ScriptError, Sha1Hex};
pub use vm::Vm;

#[cfg(test)]
pub(crate) use alarm::tests::without_alarm;
#[cfg(test)]
mod tests;
