//! Moving in from Redis or Valkey: files, append-only folders, and running servers.
//!
//! The import is a client. It reads a source (a file, a folder, or a running server) and sends a [`Target`] plain
//! commands: RESTORE for each key of a file or snapshot, FUNCTION LOAD for each library, and the commands of an
//! append-only file or replication stream unchanged. Imported data therefore has every guarantee that the server gives
//! for commands (the journal, the limits, all or nothing). A server that starts imports into itself ([`at_start`]).
//! Keys then go directly to the engine, in a fraction of the time, and commands pass the usual checks over a connection
//! without a socket.
//!
//! Nothing is overwritten unless requested. Commands are applied in whole transactions, never in part.
//!
//! [`replica`] holds the code particular to a running server of Redis or Valkey. From a running Tidegate the import
//! takes everything as it is, and hands it over ([`handover`]).

pub(crate) mod at_start;
mod commands;
mod error;
mod files;
mod handover;
mod in_process;
mod known_commands;
pub mod limits;
mod load;
mod rdb_pieces;
mod replica;
mod report;
mod target;

use std::fmt;
use std::path::Path;
use std::sync::atomic::AtomicBool;

use crate::base::limits::IMPORT_TIMEOUT;
use crate::client::{Address, Connection, TIDEGATE_AUTH};
pub use error::ImportError;
use files::Files;
pub use handover::Moved;
pub use report::{Options, Report};
use target::Target;

/// How an import has ended.
#[derive(Debug)]
pub enum Outcome {
    /// Data was imported.
    Imported(Report),
    /// A Tidegate was followed.
    Moved(Moved),
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Outcome::Imported(report) => write!(f, "imported: {report}"),
            Outcome::Moved(moved) => moved.fmt(f),
        }
    }
}

/// Imports `source`, a path or a server address, into the server at `into`; the TLS certificates and server name of
/// `into` apply to both. `print` receives progress reports. With `stop`, a source server is followed until its operator
/// sets it; without `stop`, only the server's snapshot is imported.
pub fn import(
    source: &str,
    into: Address<'_>,
    options: Options<'_>,
    stop: Option<&AtomicBool>,
    print: &mut dyn FnMut(&str),
) -> Result<Outcome, ImportError> {
    let is_address = source.contains("://");
    let primary = Address { url: source, tls: into.tls };
    if let Some(stop) = stop.filter(|_| is_address) {
        if handover::is_tidegate(primary)? {
            return handover::follow(primary, into, options, stop, print).map(Outcome::Moved);
        }
        if options.cut_over.is_some() {
            return Err(ImportError::NoHandover);
        }
    }
    let mut target = Target::new(Connection::open(into, TIDEGATE_AUTH, IMPORT_TIMEOUT)?, options);
    target.hold_expiry()?;
    match stop {
        Some(stop) if is_address => replica::follow(primary, &mut target, stop, print)?,
        Some(_) => {
            let what = "only a running server can be followed: redis://HOST[:PORT]".to_owned();
            return Err(ImportError::Files { path: source.into(), what });
        }
        None if is_address => replica::snapshot(primary, &mut target, print)?,
        None => load::files(&Files::at(Path::new(source))?, &mut target, print)?,
    }
    Ok(Outcome::Imported(target.report))
}
