//! What CONFIG SET has to do when a parameter changes, beyond keeping its value.
//!
//! Most parameters are read where they are needed, and there is nothing to do. The others name their act in the table;
//! `command/config/act.rs` holds a function for each. Several parameters may share one: it is done once for all of them.

/// What to do when a parameter has changed, in the order in which it is done: first what can fail, so that little has to be
/// undone. Ending the log comes last among these, as what follows can't fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Act {
    /// Nothing.
    None,
    /// Have the system allow as many descriptors as clients need.
    Clients,
    /// Have the system end the process sooner or later.
    OomScore,
    /// Listen elsewhere, or present other certificates.
    Network,
    /// Sync the log at other times.
    SyncPolicy,
    /// Begin or end the log.
    Log,
    /// Look whether changes are to be refused because saving failed.
    Saving,
    /// Give or take who has not authenticated its rights.
    Password,
    /// Hold the data to another limit.
    Memory,
    /// Hold all clients together to another limit.
    ClientsMemory,
    /// Evict other keys.
    EvictionPolicy,
    /// Hold scripts to another limit.
    ScriptMemory,
    /// Keep fewer scripts.
    ScriptCache,
    /// Keep other calls of scripts.
    ScriptSlow,
    /// Keep other commands in SLOWLOG and COMMANDLOG.
    CommandLog,
    /// Keep how long commands take, or not.
    LatencyTracking,
    /// Keep other moments that held clients up.
    LatencyThreshold,
    /// Tell other events.
    Events,
    /// Count grants by other prefixes.
    KeyPrefixes,
    /// Log more or less.
    LogLevel,
    /// Show another title.
    Title,
}

/// A part of what [`Act::Network`] changes: when that fails, the parameters about one of them are to blame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NetworkPart {
    /// A port.
    Port,
    /// One for TLS, which takes certificates, too.
    TlsPort,
    /// Addresses.
    Address,
    /// What TLS needs, and how it is done.
    Certificates,
}

impl Act {
    /// Whether it is done for a value that is the same, too: a file of the same name may be another one.
    pub fn is_repeated(self) -> bool {
        self == Act::Network
    }
}
