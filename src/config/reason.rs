//! The reasons why parameters of Redis have no effect here, and the values that are kept for them.

use std::collections::BTreeMap;

/// Why a parameter has no effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// There are no replicas.
    Replicas,
    /// A cluster is one shard, without Redis' bus between the nodes.
    Cluster,
    /// The allocator is a different one.
    Allocator,
    /// Files on disk have a format of their own.
    Files,
    /// TLS exchanges keys differently.
    Tls,
    /// Tables grow differently.
    Tables,
    /// There are no threads to configure.
    Threads,
    /// Background work has its own rhythm.
    Rhythm,
    /// Errors and crashes are reported differently.
    Reports,
    /// Scripts have one dialect.
    Scripts,
    /// Texts are compared as bytes.
    Locale,
}

impl Reason {
    /// All reasons, in the order in which a start names them.
    pub const ALL: [Reason; 11] = [
        Reason::Replicas,
        Reason::Cluster,
        Reason::Files,
        Reason::Tls,
        Reason::Allocator,
        Reason::Tables,
        Reason::Threads,
        Reason::Rhythm,
        Reason::Reports,
        Reason::Scripts,
        Reason::Locale,
    ];

    /// Returns the reason as a clause after "because".
    pub fn text(self) -> &'static str {
        match self {
            Reason::Replicas => "there are no replicas",
            Reason::Cluster => "one shard owns all slots, and nodes know each other by the log of their group",
            Reason::Allocator => "the allocator does not fragment like jemalloc, and has no thread of its own",
            Reason::Files => {
                "snapshots and the journal have formats of their own, with checksums, and are synced as they grow"
            }
            Reason::Tls => "TLS keys are exchanged over elliptic curves only",
            Reason::Tables => "tables grow in small steps, which leaves no work for an idle server",
            Reason::Threads => "one thread runs all commands; to pin it and its helpers, start the server with taskset",
            Reason::Rhythm => "background work and loading always give clients their turn",
            Reason::Reports => "this server reports its own errors and crashes, without users' data and without a logo",
            Reason::Scripts => "scripts follow Redis 7, and the journal records their changes one by one",
            Reason::Locale => "text is compared byte by byte, whatever the locale",
        }
    }
}

/// Values of parameters without effect, where they differ from the defaults.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Inert(BTreeMap<&'static str, Vec<u8>>);

impl Inert {
    pub(super) fn keep(&mut self, name: &'static str, default: &str, value: Vec<u8>) {
        if value == default.as_bytes() {
            self.0.remove(name);
        } else {
            self.0.insert(name, value);
        }
    }

    pub(super) fn value<'a>(&'a self, name: &str, default: &'a str) -> &'a [u8] {
        self.0.get(name).map_or(default.as_bytes(), Vec::as_slice)
    }
}
