//! The act of CONFIG SET when a parameter changes, beyond storing its value.
//!
//! Most parameters are read where they are needed, and need no act. The others name their act in the table;
//! `command/config/act.rs` holds a function for each. Several parameters may share an act, which is then done once for
//! all of them.

/// The act for a changed parameter. The variants stand in the order of execution: acts that can fail come first, so
/// that little has to be undone. Of these, ending the journal comes last, because no act after it can fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Act {
    /// Nothing.
    None,
    /// Make the system allow as many descriptors as clients need.
    Clients,
    /// Tell the system how readily to end the process.
    OomScore,
    /// Listen elsewhere, or present other certificates.
    Network,
    /// Sync the journal at other times.
    SyncPolicy,
    /// Begin or end the journal.
    Log,
    /// Check whether changes must be refused because saving has failed.
    Saving,
    /// Wait for other copies, and check whether changes must be refused because too few nodes follow.
    Followers,
    /// Give rights to unauthenticated clients, or take them away.
    Password,
    /// Apply another limit to the data.
    Memory,
    /// Apply another limit to all clients together.
    ClientsMemory,
    /// Evict by another policy.
    EvictionPolicy,
    /// Apply another limit to scripts.
    ScriptMemory,
    /// Keep fewer scripts.
    ScriptCache,
    /// Keep other slow calls of scripts.
    ScriptSlow,
    /// Keep other commands in SLOWLOG and COMMANDLOG.
    CommandLog,
    /// Start or stop recording how long commands take.
    LatencyTracking,
    /// Keep other events that held clients up.
    LatencyThreshold,
    /// Publish other events.
    Events,
    /// Count grants by other prefixes.
    KeyPrefixes,
    /// Log at another level.
    LogLevel,
    /// Show another title.
    Title,
}

/// The part of the network that a parameter concerns. If [`Act::Network`] fails in this part, its parameters are to
/// blame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NetworkPart {
    /// A port.
    Port,
    /// The port for TLS, which takes certificates, too.
    TlsPort,
    /// Addresses.
    Address,
    /// Certificates and settings of TLS.
    Certificates,
}

impl Act {
    /// Whether the act is repeated if a parameter is set to its present value: a file may have changed under the same
    /// name.
    pub fn is_repeated(self) -> bool {
        self == Act::Network
    }
}
