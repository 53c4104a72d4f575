//! One secret as the proof of all nodes of a group.
//!
//! The secret is hashed to the seed of an Ed25519 key, so all nodes have the same key. Each end of a connection shows
//! it as a raw public key (RFC 7250), proves by its signature in TLS 1.3 that it has the private half, and accepts no
//! other key. Signatures of the two ends differ in their context, so neither can be sent back as the other (RFC 8446,
//! section 4.4.3).

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;

use rustls::client::AlwaysResolvesClientRawPublicKeys;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls13_signature_with_raw_key};
use rustls::pki_types::{
    CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, ServerName, SubjectPublicKeyInfoDer, UnixTime,
};
use rustls::server::AlwaysResolvesServerRawPublicKeys;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::sign::CertifiedKey;
use rustls::version::TLS13;
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, DistinguishedName, Error, PeerIncompatible, ServerConfig,
    SignatureScheme,
};
use sha2::{Digest, Sha256};

use super::limits::{SECRET_FILE_MAX_BYTES, SECRET_MIN_BYTES};

/// Separates this use of the secret from any other. A change of how the key is made changes the number.
const DOMAIN: &[u8] = b"tidegate: key of the nodes of a group, 1\n";

/// What precedes the seed in the PKCS #8 form of an Ed25519 key (RFC 8410, section 7).
const PKCS8_HEAD: [u8; 16] =
    [0x30, 0x2e, 0x02, 0x01, 0x00, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x04, 0x22, 0x04, 0x20];

/// Why a file is not a secret.
#[derive(Debug, thiserror::Error)]
pub(super) enum SecretError {
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error("every user of this machine can read or change the secret in it; run `chmod 600` on it")]
    Public,
    #[error(
        "a secret has at least {SECRET_MIN_BYTES} bytes and its file at most {SECRET_FILE_MAX_BYTES}; \
         make one with `head -c 32 /dev/urandom | base64`"
    )]
    Length,
}

/// Returns the bytes of a secret, without the blanks around them. A file that its group can read is accepted, because
/// containers get their secrets so.
pub(super) fn read(path: &Path) -> Result<Vec<u8>, SecretError> {
    let file = File::open(path)?;
    if file.metadata()?.permissions().mode() & 0o007 != 0 {
        return Err(SecretError::Public);
    }
    let mut bytes = Vec::new();
    file.take(SECRET_FILE_MAX_BYTES + 1).read_to_end(&mut bytes)?;
    let secret = bytes.trim_ascii();
    if secret.len() < SECRET_MIN_BYTES || bytes.len() as u64 > SECRET_FILE_MAX_BYTES {
        return Err(SecretError::Length);
    }
    Ok(secret.to_vec())
}

/// The key that all nodes of a group share.
pub(super) struct SharedKey(Arc<CertifiedKey>);

impl SharedKey {
    /// Makes the key of a secret.
    pub(super) fn of(secret: &[u8], provider: &CryptoProvider) -> Result<SharedKey, Error> {
        let seed = Sha256::new().chain_update(DOMAIN).chain_update(secret).finalize();
        let pkcs8 = PrivateKeyDer::from(PrivatePkcs8KeyDer::from([&PKCS8_HEAD[..], &seed].concat()));
        let key = provider.key_provider.load_private_key(pkcs8)?;
        let public = key.public_key().ok_or(Error::General("the key has no public half".into()))?.to_vec();
        Ok(SharedKey(Arc::new(CertifiedKey::new(vec![public.into()], key))))
    }

    /// Returns the rules of the end that was dialled.
    pub(super) fn server(&self, provider: &Arc<CryptoProvider>) -> Result<ServerConfig, Error> {
        let builder = ServerConfig::builder_with_provider(Arc::clone(provider)).with_protocol_versions(&[&TLS13])?;
        let key = AlwaysResolvesServerRawPublicKeys::new(Arc::clone(&self.0));
        Ok(builder.with_client_cert_verifier(self.verifier(provider)).with_cert_resolver(Arc::new(key)))
    }

    /// Returns the rules of the end that dials.
    pub(super) fn client(&self, provider: &Arc<CryptoProvider>) -> Result<ClientConfig, Error> {
        let builder = ClientConfig::builder_with_provider(Arc::clone(provider)).with_protocol_versions(&[&TLS13])?;
        let builder = builder.dangerous().with_custom_certificate_verifier(self.verifier(provider));
        let key = AlwaysResolvesClientRawPublicKeys::new(Arc::clone(&self.0));
        Ok(builder.with_client_cert_resolver(Arc::new(key)))
    }

    fn verifier(&self, provider: &Arc<CryptoProvider>) -> Arc<OnlyThisKey> {
        Arc::new(OnlyThisKey { key: self.0.cert.clone(), provider: Arc::clone(provider) })
    }
}

/// Accepts one public key, at either end.
#[derive(Debug)]
struct OnlyThisKey {
    /// The public key, in the place of a chain of certificates.
    key: Vec<CertificateDer<'static>>,
    provider: Arc<CryptoProvider>,
}

impl OnlyThisKey {
    fn verify_key(&self, shown: &CertificateDer<'_>, more: &[CertificateDer<'_>]) -> Result<(), Error> {
        match self.key.first() == Some(shown) && more.is_empty() {
            true => Ok(()),
            false => Err(CertificateError::ApplicationVerificationFailure.into()),
        }
    }
}

/// What both traits of verifiers ask for in the same words: signatures by raw keys, with TLS 1.3 only.
macro_rules! signatures_by_raw_keys {
    () => {
        fn verify_tls12_signature(
            &self,
            _: &[u8],
            _: &CertificateDer<'_>,
            _: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, Error> {
            // TLS 1.2 is not offered, so nothing asks for its signatures.
            Err(Error::PeerIncompatible(PeerIncompatible::ServerTlsVersionIsDisabledByOurConfig))
        }

        fn verify_tls13_signature(
            &self,
            message: &[u8],
            shown: &CertificateDer<'_>,
            signature: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, Error> {
            let key = SubjectPublicKeyInfoDer::from(shown.as_ref());
            let algorithms = &self.provider.signature_verification_algorithms;
            verify_tls13_signature_with_raw_key(message, &key, signature, algorithms)
        }

        fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
            vec![SignatureScheme::ED25519]
        }

        fn requires_raw_public_keys(&self) -> bool {
            true
        }
    };
}

impl ServerCertVerifier for OnlyThisKey {
    fn verify_server_cert(
        &self,
        shown: &CertificateDer<'_>,
        more: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        self.verify_key(shown, more).map(|()| ServerCertVerified::assertion())
    }

    signatures_by_raw_keys!();
}

impl ClientCertVerifier for OnlyThisKey {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        shown: &CertificateDer<'_>,
        more: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        self.verify_key(shown, more).map(|()| ClientCertVerified::assertion())
    }

    signatures_by_raw_keys!();
}

#[cfg(test)]
mod tests {
    use std::fs::{Permissions, set_permissions, write};

    use rustls::crypto::ring::default_provider;

    use super::*;

    fn read_with(bytes: &[u8], mode: u32) -> Result<Vec<u8>, String> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("secret");
        write(&path, bytes).unwrap();
        set_permissions(&path, Permissions::from_mode(mode)).unwrap();
        read(&path).map_err(|error| error.to_string())
    }

    #[test]
    fn a_secret_is_long_and_not_public() {
        let secret = [b'x'; SECRET_MIN_BYTES];
        for mode in [0o600, 0o400, 0o440] {
            assert_eq!(read_with(&secret, mode), Ok(secret.to_vec()), "{mode:o}");
        }
        assert_eq!(read_with(&[b" \n", &secret[..], b"\r\n"].concat(), 0o600), Ok(secret.to_vec()));
        for mode in [0o604, 0o644, 0o602] {
            assert!(read_with(&secret, mode).is_err_and(|error| error.contains("chmod 600")), "{mode:o}");
        }
        let blanks = [&secret[1..], b"\n\n"].concat();
        for bytes in [&b""[..], &secret[1..], &blanks, &[b'x'; SECRET_FILE_MAX_BYTES as usize + 1]] {
            assert!(read_with(bytes, 0o600).is_err_and(|error| error.contains("/dev/urandom")), "{}", bytes.len());
        }
    }

    #[test]
    fn a_secret_gives_one_key_and_another_secret_another() {
        let public = |secret: &[u8]| SharedKey::of(secret, &default_provider()).unwrap().0.cert.clone();
        assert_eq!(public(b"one"), public(b"one"));
        assert_ne!(public(b"one"), public(b"two"));
    }
}
