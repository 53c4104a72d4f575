//! Decides which client certificates are accepted: those signed by a trusted authority, and those that are themselves
//! in the file or folder of the authorities.
//!
//! The second kind is made by `openssl req -x509`: a self-signed certificate that claims to be an authority's. OpenSSL
//! accepts it where it is trusted, and so does Redis; rustls does not accept authorities' certificates as clients'.

use std::sync::Arc;

use rustls::client::danger::HandshakeSignatureValid;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{DigitallySignedStruct, DistinguishedName, Error, SignatureScheme};

use crate::base::certificate::verify_dates;

/// See the file's header.
#[derive(Debug)]
pub(super) struct SignedOrOwn {
    signed: Arc<dyn ClientCertVerifier>,
    own: Vec<CertificateDer<'static>>,
}

impl SignedOrOwn {
    /// Accepts certificates that `signed` accepts, and `own` ones while they are valid.
    pub(super) fn new(signed: Arc<dyn ClientCertVerifier>, own: Vec<CertificateDer<'static>>) -> SignedOrOwn {
        SignedOrOwn { signed, own }
    }
}

impl ClientCertVerifier for SignedOrOwn {
    fn offer_client_auth(&self) -> bool {
        self.signed.offer_client_auth()
    }

    fn client_auth_mandatory(&self) -> bool {
        self.signed.client_auth_mandatory()
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.signed.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        certificate: &CertificateDer<'_>,
        between: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        match self.signed.verify_client_cert(certificate, between, now) {
            Err(_) if self.own.iter().any(|own| own == certificate) => {
                verify_dates(certificate, now)?;
                Ok(ClientCertVerified::assertion())
            }
            judged => judged,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.signed.verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.signed.verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.signed.supported_verify_schemes()
    }
}
