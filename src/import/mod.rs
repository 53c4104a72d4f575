//! Moving in from Redis or Valkey: files, append-only folders, and running servers.
//!
//! The import is a client. It reads a source (a file, a folder, a running server), and tells a [`Target`] what to do in plain
//! commands: RESTORE for each key of a file or snapshot, FUNCTION LOAD for each library, and the commands of an append-only file
//! or of a replication stream as they are. So whatever the server promises for commands (the log, the limits, all or nothing)
//! holds for what is imported. A server that starts imports into itself ([`at_start`]): keys directly, which takes a fraction of the
//! time, and commands through the same door, by a connection without a socket.
//!
//! Nothing is overwritten unless that was asked for. Commands are applied in whole transactions, never a part of one.
//!
//! [`replica`] has what is particular to a running server.

pub(crate) mod at_start;
mod commands;
mod error;
mod files;
mod in_process;
mod known_commands;
mod load;
mod rdb_pieces;
mod replica;
mod report;
mod target;

use std::path::Path;
use std::sync::atomic::AtomicBool;

use crate::base::limits::IMPORT_TIMEOUT;
use crate::client::{Address, Connection, TIDEGATE_AUTH};
pub use error::ImportError;
use files::Files;
pub use report::{Options, Report};
use target::Target;

/// Imports `source`, a path or the address of a server, into the server at `into`; certificates and server name of `into` hold for both.
/// `tell` hears how far it is. A server is followed until its operator sets `stop`, if one is given; else no more than its snapshot is
/// imported.
pub fn import(
    source: &str,
    into: Address<'_>,
    options: Options,
    stop: Option<&AtomicBool>,
    tell: &mut dyn FnMut(&str),
) -> Result<Report, ImportError> {
    let mut target = Target::new(Connection::open(into, TIDEGATE_AUTH, IMPORT_TIMEOUT)?, options);
    target.hold_expiry()?;
    let is_address = source.contains("://");
    let primary = Address { url: source, tls: into.tls };
    match stop {
        Some(stop) if is_address => replica::follow(primary, &mut target, stop, tell)?,
        Some(_) => {
            let what = "only a running server can be followed: redis://HOST[:PORT]".to_owned();
            return Err(ImportError::Files { path: source.into(), what });
        }
        None if is_address => replica::snapshot(primary, &mut target, tell)?,
        None => load::files(&Files::at(Path::new(source))?, &mut target, tell)?,
    }
    Ok(target.report)
}
