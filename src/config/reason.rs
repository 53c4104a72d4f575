//! Why parameters of Redis mean nothing here, and what they are set to all the same.

use std::collections::BTreeMap;

/// Why parameters change nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// There are no replicas.
    Replicas,
    /// There is no cluster.
    Cluster,
    /// The allocator is another one.
    Allocator,
    /// What lies on disk has a format of its own.
    Files,
    /// Keys are exchanged otherwise.
    Tls,
    /// Tables grow otherwise.
    Tables,
    /// There are no threads to configure.
    Threads,
    /// Background work has its own rhythm.
    Rhythm,
    /// Errors and crashes are reported otherwise.
    Reports,
    /// Scripts have one dialect.
    Scripts,
    /// Texts are compared as bytes.
    Locale,
}

impl Reason {
    /// All, in the order in which a start names them.
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

    /// The reason as a clause behind "since".
    pub fn text(self) -> &'static str {
        match self {
            Reason::Replicas => "there are no replicas",
            Reason::Cluster => "there is no cluster",
            Reason::Allocator => "the allocator neither fragments as jemalloc does nor has its thread",
            Reason::Files => {
                "snapshots and log have a format of their own, with checksums, and are synced as they grow"
            }
            Reason::Tls => "keys of TLS are exchanged over elliptic curves only",
            Reason::Tables => "tables grow in small steps, and have nothing left to do when the server is idle",
            Reason::Threads => "one thread runs all commands; to pin it and its helpers, start the server with taskset",
            Reason::Rhythm => "background work and loading always leave clients their turn",
            Reason::Reports => "this server reports its own errors and crashes, without users' data and without a logo",
            Reason::Scripts => "scripts are what Redis 7 takes, and each change of theirs is logged as such",
            Reason::Locale => "text is compared byte by byte, whatever the locale",
        }
    }
}

/// Values of these parameters, where they are not the defaults.
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
