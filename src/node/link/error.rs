//! Why links can't be set up, and why a connection ends.

use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::path::PathBuf;

use rustls::{CertificateError, Error as TlsError};

use super::frame::FrameError;
use super::greeting::{GreetingError, Mismatch, Verdict};
use crate::consensus::codec::CodecError;
use crate::log::replicated::types::GroupId;
use crate::log::snapshot::departing::DepartureError;

/// A file of the security that can't be used.
#[derive(Debug, thiserror::Error)]
#[error("{}: {reason}", path.display())]
pub(crate) struct SecurityError {
    pub(super) path: PathBuf,
    pub(super) reason: String,
}

/// Why a node can't listen for its peers.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StartError {
    #[error(transparent)]
    Security(#[from] SecurityError),
    #[error(
        "{0} can be reached from other machines: give the nodes a secret or certificates, or listen on a loopback \
         address"
    )]
    Exposed(SocketAddr),
    #[error("can't listen on {address}: {reason}")]
    Listen { address: String, reason: io::Error },
}

/// Why a connection failed or ended. The text says what to do where the operator can do something.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LinkError {
    #[error("{0} is no loopback address: give the nodes a secret or certificates")]
    Exposed(SocketAddr),
    #[error("the address has no host that a certificate could name")]
    Host,
    #[error("{0} took too long")]
    Late(&'static str),
    #[error("the other end closed the connection")]
    Ended,
    #[error("the other end took nothing for too long")]
    Stalled,
    #[error("the other end was silent for too long")]
    Silent,
    #[error("the other end has another secret")]
    Secret,
    #[error("the other end has no certificate that is valid here: {0}")]
    Certificate(CertificateError),
    #[error("the other end refused this node's proof ({0}): compare the secret or the certificates of both nodes")]
    Unproven(TlsError),
    #[error("TLS failed: {0}")]
    Tls(TlsError),
    #[error("{0}")]
    Io(io::Error),
    #[error(transparent)]
    Greeting(#[from] GreetingError),
    #[error(transparent)]
    Mismatch(#[from] Mismatch),
    #[error("the other node refused the connection: {0}")]
    Refused(Verdict),
    #[error("refused the connection: {0}")]
    Refuses(Verdict),
    #[error(transparent)]
    Frame(#[from] FrameError),
    #[error(transparent)]
    Codec(#[from] CodecError),
    #[error("a message is for group {}", .0.0)]
    Group(GroupId),
    #[error("the other end sent bytes where it should only receive")]
    Unasked,
    #[error("the other end announced a snapshot without its file, or sent another message in its place")]
    NoSnapshot,
    #[error("{0}")]
    Departure(#[from] DepartureError),
    #[error("the other node did not take the snapshot: {0}")]
    NotTaken(String),
    #[error("the snapshot was not taken: {0}")]
    TakesNot(String),
    #[error("this node is ending")]
    Ending,
}

impl From<io::Error> for LinkError {
    /// Finds the reason that TLS gave. It arrives as an error of whatever was being read or written.
    fn from(error: io::Error) -> LinkError {
        let tls = error.get_ref().and_then(|inner| inner.downcast_ref::<TlsError>());
        match tls.cloned() {
            Some(TlsError::InvalidCertificate(CertificateError::ApplicationVerificationFailure)) => LinkError::Secret,
            Some(TlsError::InvalidCertificate(reason)) => LinkError::Certificate(reason),
            Some(alert @ TlsError::AlertReceived(_)) => LinkError::Unproven(alert),
            Some(other) => LinkError::Tls(other),
            None if error.kind() == ErrorKind::UnexpectedEof => LinkError::Ended,
            None => LinkError::Io(error),
        }
    }
}
