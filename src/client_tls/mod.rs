//! TLS for the connections that this program makes as a client, built with rustls from command-line flags.
//!
//! The flags are those of redis-cli. Unlike in redis-cli, the server's certificate must match the requested name: the
//! host of the address, or `--sni`.

mod trust;
mod words;

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rustls::crypto::ring::default_provider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

use crate::base::limits::TLS_CA_FILES_MAX;
use trust::{Anybody, SignedOrOwn};

/// Files in which systems keep the authorities they trust.
const AUTHORITIES: [&str; 4] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
];

/// The environment variable that names another such file, as for OpenSSL.
const AUTHORITIES_VARIABLE: &str = "SSL_CERT_FILE";

/// The TLS flags.
#[derive(Clone, Debug, Default)]
pub struct TlsFlags {
    /// Use TLS for all addresses with a host, not only those that begin with `rediss://`.
    pub always: bool,
    /// Trusted authorities, in PEM. Without `cacert` and `cacertdir`, the system's authorities are trusted.
    pub cacert: Option<PathBuf>,
    /// A folder of PEM files with trusted authorities.
    pub cacertdir: Option<PathBuf>,
    /// The client certificate, in PEM, with the intermediate certificates.
    pub cert: Option<PathBuf>,
    /// The private key of the client certificate.
    pub key: Option<PathBuf>,
    /// The name to request instead of the address's host.
    pub sni: Option<String>,
    /// Accept any server certificate.
    pub insecure: bool,
}

impl TlsFlags {
    /// Returns whether any flag configures how TLS is used.
    pub fn say_how(&self) -> bool {
        let TlsFlags { always: _, cacert, cacertdir, cert, key, sni, insecure } = self;
        let files = [cacert, cacertdir, cert, key];
        *insecure || sni.is_some() || files.iter().any(|file| file.is_some())
    }

    /// Performs the handshake over `socket` with the server that the address calls `host`.
    pub(crate) fn connect(&self, host: &str, mut socket: TcpStream) -> io::Result<TlsStream> {
        let name = self.sni.as_deref().unwrap_or(host);
        let name =
            ServerName::try_from(name.to_owned()).map_err(|error| io::Error::other(format!("{name}: {error}")))?;
        let rules = Arc::new(self.rules()?);
        let mut tls = ClientConnection::new(rules, name).map_err(io::Error::other)?;
        while tls.is_handshaking() {
            tls.complete_io(&mut socket).map_err(words::of_handshake)?;
        }
        Ok(TlsStream(StreamOwned::new(tls, socket)))
    }

    fn rules(&self) -> io::Result<ClientConfig> {
        let provider = Arc::new(default_provider());
        let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .map_err(io::Error::other)?;
        let builder = match self.insecure {
            true => builder.dangerous().with_custom_certificate_verifier(Arc::new(Anybody(provider))),
            false => {
                let (roots, own) = self.authorities()?;
                builder.dangerous().with_custom_certificate_verifier(Arc::new(SignedOrOwn::new(roots, own, &provider)?))
            }
        };
        match (&self.cert, &self.key) {
            (Some(cert), Some(key)) => {
                let private = PrivateKeyDer::from_pem_file(key).map_err(|error| unusable(key, error))?;
                builder
                    .with_client_auth_cert(certificates(cert)?, private)
                    .map_err(|error| unusable(cert, words::of(&error)))
            }
            (None, None) => Ok(builder.with_no_client_auth()),
            _ => Err(io::Error::other("--cert and --key need each other")),
        }
    }

    /// Returns the trusted authorities and the certificates named by the flags.
    fn authorities(&self) -> io::Result<(RootCertStore, Vec<CertificateDer<'static>>)> {
        let (mut roots, mut own) = (RootCertStore::empty(), Vec::new());
        if let Some(file) = &self.cacert {
            for certificate in certificates(file)? {
                own.push(certificate.clone());
                roots.add(certificate).map_err(|error| unusable(file, words::of(&error)))?;
            }
        }
        if let Some(folder) = &self.cacertdir {
            let entries = std::fs::read_dir(folder).map_err(|error| unusable(folder, error))?;
            // Files that hold no usable certificate are skipped.
            for entry in entries.flatten().take(TLS_CA_FILES_MAX) {
                let found = certificates(&entry.path()).unwrap_or_default();
                own.extend_from_slice(&found);
                roots.add_parsable_certificates(found);
            }
            if roots.is_empty() {
                return Err(unusable(folder, "there is no certificate in it"));
            }
        }
        if self.cacert.is_none() && self.cacertdir.is_none() {
            let file = authorities_of_system().ok_or_else(|| {
                io::Error::other(
                    "the system's trusted authorities were not found in the usual places: name a file with --cacert",
                )
            })?;
            roots.add_parsable_certificates(certificates(&file)?);
        }
        Ok((roots, own))
    }
}

/// A TLS connection whose failures are explained in words.
pub(crate) struct TlsStream(StreamOwned<ClientConnection, TcpStream>);

impl TlsStream {
    /// Sets the time limit of a single read or write of the socket.
    pub(crate) fn set_timeout(&mut self, timeout: Duration) -> io::Result<()> {
        self.0.sock.set_read_timeout(Some(timeout))?;
        self.0.sock.set_write_timeout(Some(timeout))
    }
}

impl Read for TlsStream {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        self.0.read(buf).map_err(words::of_io)
    }
}

impl Write for TlsStream {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        self.0.write(buf).map_err(words::of_io)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush().map_err(words::of_io)
    }
}

fn authorities_of_system() -> Option<PathBuf> {
    let named = std::env::var_os(AUTHORITIES_VARIABLE).map(PathBuf::from);
    named.or_else(|| AUTHORITIES.into_iter().map(PathBuf::from).find(|path| path.is_file()))
}

/// Reads the certificates of a file; fails if there are none.
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
