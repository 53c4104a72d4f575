//! Which certificates of clients are taken: those that a trusted authority has signed, and those that are themselves in the file or
//! folder of the authorities.
//!
//! The second is what `openssl req -x509` makes: a certificate that signs itself, and says that it is an authority's. OpenSSL takes it
//! where it is trusted, and so Redis does; rustls does not take authorities' for clients'.

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
    /// Takes what `signed` takes, and these while they are valid.
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
