//! Lua scripts: one LuaJIT state with Redis' sandbox, its `redis` table, its libraries and its rules for replies.
//!
//! Floor 3: scripts see the server only through [`Host`], which the engine implements; nothing here knows a key, a client
//! or a clock. `mlua` is named only in this folder, its raw C interface only in `lua`, and what our LuaJIT has beyond it only in `luajit`.
//!
//! From the bottom up; a file knows only those above it in this list:
//!
//! - `host`: what a script asks of the server; `program`: what runs, and how it ends; `random`: the generator of `math.random`
//! - `lua`: the stack of a Lua thread, as C functions see it; `luajit`: what our LuaJIT has beyond Lua's interface;
//!   `integer`: Lua's numbers as integers; `chunk`: from a text to a function
//! - `alarm`: brings the hook to scripts that run for long; `memory`: what the state may hold
//! - `names`: known names of commands; `lists`: KEYS and ARGV; `frame`: the way through a value that is written;
//!   `failure`: how a script failed, as Redis words it; `debug`: the debugger behind SCRIPT DEBUG, without its hook
//! - `store`: the script cache; `bundled`: the scripts that are always in it; `library`: libraries of functions
//! - `context`: the state that all C functions share. It holds what the files before it define, and adds to
//!   [`Stack`](lua::Stack) the way to it
//! - `interrupt`: how a script is interrupted and ended; `room`: memory that C functions take outside of Lua, and the C stack
//! - `convert`: reply tape to Lua values, Lua values to replies
//! - `stand_in`: read-only tables
//! - Libraries: `redis`, and `register` while a library is loaded; `strings` and `pattern`, for the functions of `string` that
//!   could run for ever or exhaust memory; `tables`, and `sort` that can be interrupted; `control`: `pcall` and coroutines;
//!   `cjson`, `cmsgpack`, `structs`
//! - `debug::hook`: where a script stops under the debugger
//! - `sandbox`: puts the libraries together: what a script can name and what it cannot change
//! - `vm`: the state; compiles and runs scripts

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
