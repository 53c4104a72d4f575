//! TLS for the connections that this program makes as a client: what flags say, made into a connection by rustls.
//!
//! The flags are those of redis-cli. Unlike there, the server's certificate must be for the name that is asked for: that of the
//! address, or of `--sni`.

use std::io;
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::ring::default_provider;
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{
    ClientConfig, ClientConnection, DigitallySignedStruct, Error, RootCertStore, SignatureScheme, StreamOwned,
};

use crate::base::limits::TLS_CA_FILES_MAX;

/// Where systems keep the authorities that they trust, in one file.
const AUTHORITIES: [&str; 4] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
];

/// The variable of the environment that names another one, as for OpenSSL.
const AUTHORITIES_VARIABLE: &str = "SSL_CERT_FILE";

/// What flags say of TLS.
#[derive(Clone, Debug, Default)]
pub struct TlsFlags {
    /// All addresses with a host lead to servers that use it, not only those that begin with `rediss://`.
    pub always: bool,
    /// Authorities to trust, in PEM; without these two, those of the system.
    pub cacert: Option<PathBuf>,
    /// A folder of such files.
    pub cacertdir: Option<PathBuf>,
    /// A certificate to show, in PEM, and those between it and its authority.
    pub cert: Option<PathBuf>,
    /// Its key.
    pub key: Option<PathBuf>,
    /// The name to ask for instead of that of the address.
    pub sni: Option<String>,
    /// Whether any certificate of the server's will do.
    pub insecure: bool,
}

impl TlsFlags {
    /// Whether anything is said of how TLS is to be used.
    pub fn say_how(&self) -> bool {
        let TlsFlags { always: _, cacert, cacertdir, cert, key, sni, insecure } = self;
        let files = [cacert, cacertdir, cert, key];
        *insecure || sni.is_some() || files.iter().any(|file| file.is_some())
    }

    /// Shakes hands with the server behind `socket`, which the address calls `host`.
    pub(crate) fn connect(
        &self,
        host: &str,
        mut socket: TcpStream,
    ) -> io::Result<StreamOwned<ClientConnection, TcpStream>> {
        let name = self.sni.as_deref().unwrap_or(host);
        let name =
            ServerName::try_from(name.to_owned()).map_err(|error| io::Error::other(format!("{name}: {error}")))?;
        let rules = Arc::new(self.rules()?);
        let mut tls = ClientConnection::new(rules, name).map_err(io::Error::other)?;
        while tls.is_handshaking() {
            tls.complete_io(&mut socket)?;
        }
        Ok(StreamOwned::new(tls, socket))
    }

    fn rules(&self) -> io::Result<ClientConfig> {
        let provider = Arc::new(default_provider());
        let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .map_err(io::Error::other)?;
        let builder = match self.insecure {
            true => builder.dangerous().with_custom_certificate_verifier(Arc::new(Anybody(provider))),
            false => builder.with_root_certificates(self.authorities()?),
        };
        match (&self.cert, &self.key) {
            (Some(cert), Some(key)) => {
                let private = PrivateKeyDer::from_pem_file(key).map_err(|error| unusable(key, error))?;
                builder.with_client_auth_cert(certificates(cert)?, private).map_err(|error| unusable(cert, error))
            }
            (None, None) => Ok(builder.with_no_client_auth()),
            _ => Err(io::Error::other("--cert and --key need each other")),
        }
    }

    fn authorities(&self) -> io::Result<RootCertStore> {
        let mut roots = RootCertStore::empty();
        if let Some(file) = &self.cacert {
            for certificate in certificates(file)? {
                roots.add(certificate).map_err(|error| unusable(file, error))?;
            }
        }
        if let Some(folder) = &self.cacertdir {
            let entries = std::fs::read_dir(folder).map_err(|error| unusable(folder, error))?;
            // What is no certificate, or one of no use, is passed over.
            for entry in entries.flatten().take(TLS_CA_FILES_MAX) {
                roots.add_parsable_certificates(certificates(&entry.path()).unwrap_or_default());
            }
            if roots.is_empty() {
                return Err(unusable(folder, "there is no certificate in it"));
            }
        }
        if self.cacert.is_none() && self.cacertdir.is_none() {
            let file = authorities_of_system().ok_or_else(|| {
                io::Error::other(
                    "the authorities that the system trusts are not where others keep them: name them by --cacert",
                )
            })?;
            roots.add_parsable_certificates(certificates(&file)?);
        }
        Ok(roots)
    }
}

fn authorities_of_system() -> Option<PathBuf> {
    let named = std::env::var_os(AUTHORITIES_VARIABLE).map(PathBuf::from);
    named.or_else(|| AUTHORITIES.into_iter().map(PathBuf::from).find(|path| path.is_file()))
}

/// The certificates of a file, of which there is at least one.
fn certificates(file: &Path) -> io::Result<Vec<CertificateDer<'static>>> {
    let found: Result<Vec<_>, _> =
        CertificateDer::pem_file_iter(file).map_err(|error| unusable(file, error))?.collect();
    match found {
        Ok(found) if found.is_empty() => Err(unusable(file, "there is no certificate in it")),
        found => found.map_err(|error| unusable(file, error)),
    }
}

fn unusable(path: &Path, reason: impl std::fmt::Display) -> io::Error {
    io::Error::other(format!("{}: {reason}", path.display()))
}

/// Takes any server that holds the key of the certificate that it shows.
#[derive(Debug)]
struct Anybody(Arc<CryptoProvider>);

impl ServerCertVerifier for Anybody {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, certificate, signature, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signature, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
