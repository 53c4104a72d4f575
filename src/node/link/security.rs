//! How the two ends of a connection prove who they are: TLS 1.3 on both sides, or nothing on loopback.
//!
//! With a secret, both ends show the one key that follows from it, as a raw public key (RFC 7250). With certificates,
//! both show one that the authority of the nodes has signed; no other authority is trusted. Either way each connection
//! proves it anew: sessions are not resumed.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use rustls::client::{Resumption, WebPkiServerVerifier};
use rustls::crypto::CryptoProvider;
use rustls::crypto::ring::default_provider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{PrivateKeyDer, ServerName};
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::version::TLS13;
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::{TlsAcceptor, TlsConnector};

use super::error::{LinkError, SecurityError, StartError};
use super::secret::{self, SharedKey};
use super::settings::Security;
use crate::base::pem;

/// A connection, with TLS or without.
pub(super) type Stream = Box<dyn Duplex>;

/// Bytes in both directions.
pub(super) trait Duplex: AsyncRead + AsyncWrite + Unpin {}

impl<S: AsyncRead + AsyncWrite + Unpin> Duplex for S {}

/// Makes connections secure, at either end.
pub(super) enum Guard {
    Plain,
    Tls { acceptor: TlsAcceptor, connector: TlsConnector, names: Names },
}

/// The names that nodes prove.
pub(super) enum Names {
    /// None: whoever has the key is a node.
    Key,
    /// The host of their address.
    Host,
}

impl Security {
    /// Reads the files as a start does.
    pub(crate) fn check(&self) -> Result<(), StartError> {
        Guard::new(self)?;
        Ok(())
    }
}

impl Guard {
    /// Reads the files of the security.
    pub(super) fn new(security: &Security) -> Result<Guard, SecurityError> {
        let provider = Arc::new(default_provider());
        match security {
            Security::Plain => Ok(Guard::Plain),
            Security::Secret(file) => {
                let failed = |reason: rustls::Error| unusable(file, reason);
                let secret = secret::read(file).map_err(|reason| unusable(file, reason))?;
                let key = SharedKey::of(&secret, &provider).map_err(failed)?;
                let server = key.server(&provider).map_err(failed)?;
                let client = key.client(&provider).map_err(failed)?;
                Ok(Guard::tls(server, client, Names::Key))
            }
            Security::Certificates { certificate, key, authority } => {
                let files = Files { certificate, key, authority };
                Ok(Guard::tls(files.server(&provider)?, files.client(&provider)?, Names::Host))
            }
        }
    }

    fn tls(mut server: ServerConfig, mut client: ClientConfig, names: Names) -> Guard {
        server.session_storage = Arc::new(NoServerSessionStorage {});
        server.send_tls13_tickets = 0;
        client.resumption = Resumption::disabled();
        Guard::Tls { acceptor: Arc::new(server).into(), connector: Arc::new(client).into(), names }
    }

    /// Whether an address may be listened on or dialled.
    pub(super) fn allows(&self, address: SocketAddr) -> bool {
        !matches!(self, Guard::Plain) || address.ip().to_canonical().is_loopback()
    }

    /// Performs the handshake as the end that has dialled `address`, a host and a port.
    pub(super) async fn dialled(&self, socket: TcpStream, address: &str) -> Result<Stream, LinkError> {
        let Guard::Tls { connector, names, .. } = self else { return Ok(Box::new(socket)) };
        let host = match names {
            Names::Key => "node",
            Names::Host => host(address).ok_or(LinkError::Host)?,
        };
        let name = ServerName::try_from(host.to_owned()).map_err(|_| LinkError::Host)?;
        Ok(Box::new(connector.connect(name, socket).await?))
    }

    /// Performs the handshake as the end that was dialled.
    pub(super) async fn accepted(&self, socket: TcpStream) -> Result<Stream, LinkError> {
        match self {
            Guard::Plain => Ok(Box::new(socket)),
            Guard::Tls { acceptor, .. } => Ok(Box::new(acceptor.accept(socket).await?)),
        }
    }
}

fn host(address: &str) -> Option<&str> {
    let (host, _) = address.rsplit_once(':')?;
    Some(host.trim_start_matches('[').trim_end_matches(']'))
}

fn unusable(path: &Path, reason: impl ToString) -> SecurityError {
    SecurityError { path: path.to_owned(), reason: reason.to_string() }
}

/// The files of a node's certificate.
struct Files<'a> {
    certificate: &'a Path,
    key: &'a Path,
    authority: &'a Path,
}

impl Files<'_> {
    fn server(&self, provider: &Arc<CryptoProvider>) -> Result<ServerConfig, SecurityError> {
        let verifier = WebPkiClientVerifier::builder_with_provider(self.authorities()?, Arc::clone(provider)).build();
        let verifier = verifier.map_err(|reason| unusable(self.authority, reason))?;
        let builder = ServerConfig::builder_with_provider(Arc::clone(provider)).with_protocol_versions(&[&TLS13]);
        let builder = builder.map_err(|reason| unusable(self.certificate, reason))?.with_client_cert_verifier(verifier);
        let chain = pem::certificates(self.certificate).map_err(|reason| unusable(self.certificate, reason))?;
        builder.with_single_cert(chain, self.private_key()?).map_err(|reason| unusable(self.certificate, reason))
    }

    fn client(&self, provider: &Arc<CryptoProvider>) -> Result<ClientConfig, SecurityError> {
        let verifier = WebPkiServerVerifier::builder_with_provider(self.authorities()?, Arc::clone(provider)).build();
        let verifier = verifier.map_err(|reason| unusable(self.authority, reason))?;
        let builder = ClientConfig::builder_with_provider(Arc::clone(provider)).with_protocol_versions(&[&TLS13]);
        let builder = builder.map_err(|reason| unusable(self.certificate, reason))?.with_webpki_verifier(verifier);
        let chain = pem::certificates(self.certificate).map_err(|reason| unusable(self.certificate, reason))?;
        builder.with_client_auth_cert(chain, self.private_key()?).map_err(|reason| unusable(self.certificate, reason))
    }

    fn private_key(&self) -> Result<PrivateKeyDer<'static>, SecurityError> {
        let pem = pem::read(self.key).map_err(|reason| unusable(self.key, reason))?;
        PrivateKeyDer::from_pem_slice(&pem)
            .map_err(|reason| unusable(self.key, format!("{reason}; the key must not be encrypted")))
    }

    fn authorities(&self) -> Result<Arc<RootCertStore>, SecurityError> {
        let mut roots = RootCertStore::empty();
        for certificate in pem::certificates(self.authority).map_err(|reason| unusable(self.authority, reason))? {
            roots.add(certificate).map_err(|reason| unusable(self.authority, reason))?;
        }
        Ok(Arc::new(roots))
    }
}
