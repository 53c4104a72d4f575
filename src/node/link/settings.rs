//! What a node says about itself, and how its links behave.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use super::limits::{
    CONNECT_MAX, HANDSHAKE_MAX, KEEP_ALIVE_EVERY, RETRY_FIRST, RETRY_MAX, SILENCE_MAX, SOUND_AFTER, STALL_MAX,
    TRANSFER_RETRY, TRANSFER_STALL_MAX,
};
use crate::base::node_address::NodeAddress;
use crate::base::pem;
use crate::log::replicated::members::{Birth, History};
use crate::log::replicated::types::{GroupId, NodeId};

/// The versions of the protocol between nodes that this program speaks: greetings, frames and messages.
pub(crate) const PROTOCOL: VersionRange = VersionRange { oldest: 1, newest: 1 };

/// The settings of all links of a node.
#[derive(Clone, Debug)]
pub(crate) struct LinkSettings {
    pub(crate) group: GroupId,
    pub(crate) node: NodeId,
    pub(crate) identity: Identity,
    pub(crate) contact: Contact,
    pub(crate) versions: Versions,
    pub(crate) security: Security,
    pub(crate) deadlines: Deadlines,
}

/// Tells a node and its group from others with the same numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    pub(crate) birth: Birth,
    pub(crate) history: History,
}

/// Where a node is to be found, as it says itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Contact {
    pub(crate) address: NodeAddress,
    /// The port on which it speaks Sentinel's protocol; 0 if on none.
    pub(crate) sentinel_port: u16,
}

/// Where a peer is to be found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PeerHome {
    pub(crate) node: NodeId,
    /// Host and port.
    pub(crate) address: String,
    /// The directory that it must have, if that is known.
    pub(crate) birth: Option<Birth>,
}

/// How nodes prove to each other that they belong together.
#[derive(Clone, Debug)]
pub(crate) enum Security {
    /// Not at all: only between processes of one machine.
    Plain,
    /// All nodes know one secret, which is in this file.
    Secret(PathBuf),
    /// Each node has a certificate of the same authority. The files are PEM. A node that is dialled must be certified
    /// for the host of its address.
    Certificates { certificate: PathBuf, key: PathBuf, authority: PathBuf },
}

impl Security {
    /// When the certificate in the file expires, in seconds since 1970; `None` if there is none.
    pub(crate) fn expires_s(&self) -> Option<i64> {
        let Security::Certificates { certificate, .. } = self else { return None };
        pem::certificates(certificate).ok().and_then(|chain| pem::expiry_s(&chain))
    }
}

/// Versions that a program understands, both ends included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct VersionRange {
    pub(crate) oldest: u16,
    pub(crate) newest: u16,
}

impl VersionRange {
    /// Returns the newest version in both ranges.
    pub(super) fn common(self, other: VersionRange) -> Option<u16> {
        let newest = self.newest.min(other.newest);
        (newest >= self.oldest.max(other.oldest)).then_some(newest)
    }
}

impl fmt::Display for VersionRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.oldest == self.newest {
            true => write!(f, "{}", self.newest),
            false => write!(f, "{} to {}", self.oldest, self.newest),
        }
    }
}

/// The versions of everything that two nodes must agree on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Versions {
    pub(crate) protocol: VersionRange,
    /// The bodies of blocks.
    pub(crate) log: VersionRange,
    /// The effects in them.
    pub(crate) effects: VersionRange,
}

/// The newest versions that both ends of a connection understand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Agreed {
    pub(crate) protocol: u16,
    pub(crate) log: u16,
    pub(crate) effects: u16,
}

/// The times of a link; `limits.rs` has the reason of each. Tests shorten them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Deadlines {
    pub(crate) connect: Duration,
    pub(crate) handshake: Duration,
    pub(crate) stall: Duration,
    pub(crate) keep_alive: Duration,
    pub(crate) silence: Duration,
    pub(crate) retry_first: Duration,
    pub(crate) retry_max: Duration,
    pub(crate) sound_after: Duration,
    pub(crate) transfer_stall: Duration,
    pub(crate) transfer_retry: Duration,
}

impl Default for Deadlines {
    fn default() -> Deadlines {
        Deadlines {
            connect: CONNECT_MAX,
            handshake: HANDSHAKE_MAX,
            stall: STALL_MAX,
            keep_alive: KEEP_ALIVE_EVERY,
            silence: SILENCE_MAX,
            retry_first: RETRY_FIRST,
            retry_max: RETRY_MAX,
            sound_after: SOUND_AFTER,
            transfer_stall: TRANSFER_STALL_MAX,
            transfer_retry: TRANSFER_RETRY,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_certificate_expires_and_a_secret_does_not() {
        let mut params = rcgen::CertificateParams::new(vec!["localhost".to_owned()]).expect("a name");
        params.not_after = rcgen::date_time_ymd(2031, 1, 1);
        let certificate = params.self_signed(&rcgen::KeyPair::generate().expect("a key")).expect("a certificate");
        let dir = tempfile::tempdir().expect("a folder");
        let file = dir.path().join("node.crt");
        std::fs::write(&file, certificate.pem()).expect("a file");
        let of = |certificate: PathBuf| {
            let (key, authority) = (file.clone(), file.clone());
            Security::Certificates { certificate, key, authority }.expires_s()
        };
        assert_eq!(of(file.clone()), Some(1_924_992_000));
        assert_eq!(of(dir.path().join("none")), None);
        assert_eq!(Security::Secret(file.clone()).expires_s(), None);
    }
}
