//! Turns the TLS parameters, and the files they name, into a configuration of rustls.
//!
//! OpenSSL's names are accepted, as in Redis, for features that rustls has: TLS 1.2 and 1.3, with nine cipher suites,
//! all of which are authenticated and have forward secrecy. Any other name is refused with a list of the supported
//! ones.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use pkcs8::{EncryptedPrivateKeyInfo, SecretDocument};
use rustls::crypto::ring::cipher_suite as suite;
use rustls::crypto::ring::{default_provider, sign::any_supported_type};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::server::{NoClientAuth, NoServerSessionStorage, WebPkiClientVerifier, danger::ClientCertVerifier};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::{
    CertificateError, Error, InconsistentKeys, RootCertStore, ServerConfig, SupportedCipherSuite,
    SupportedProtocolVersion, version,
};

use super::tls::Acceptor;
use super::tls_client_certificates::SignedOrOwn;
use super::tls_sessions::TlsSessions;
use crate::base::limits::TLS_CA_FILES_MAX;
use crate::base::pem;
use crate::config::{Config, TlsAuthClients};

/// Why TLS can't be set up with these parameters.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TlsError {
    /// A required parameter is empty.
    #[error("tls-port needs {0}")]
    Missing(&'static str),
    /// A file or folder named by a parameter can't be read, or has unusable content.
    #[error("{parameter} {}: {reason}", path.display())]
    File {
        /// The parameter's name.
        parameter: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// The reason.
        reason: String,
    },
    /// A parameter contains an unknown word.
    #[error("{parameter}: \"{word}\" is not supported; supported are {known}")]
    Word {
        /// The parameter's name.
        parameter: &'static str,
        /// The word.
        word: String,
        /// All words that are accepted.
        known: String,
    },
    /// rustls refuses the configuration.
    #[error("{0}")]
    Refused(String),
}

/// Makes the acceptor that `config` describes. Reads all files.
pub(crate) fn load(config: &Config) -> Result<Acceptor, TlsError> {
    let mut provider = default_provider();
    provider.cipher_suites = suites_1_3(&config.tls_ciphersuites)?;
    provider.cipher_suites.extend(suites_1_2(&config.tls_ciphers)?);
    let provider = Arc::new(provider);
    let verifier = match config.tls_auth_clients {
        TlsAuthClients::No => Arc::new(NoClientAuth) as Arc<dyn ClientCertVerifier>,
        asked => {
            let (roots, own) = authorities(config)?;
            let builder = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone());
            let builder = if asked == TlsAuthClients::Optional { builder.allow_unauthenticated() } else { builder };
            let signed = builder.build().map_err(|error| TlsError::Refused(error.to_string()))?;
            Arc::new(SignedOrOwn::new(signed, own))
        }
    };
    let certificate = certificate(config)?;
    let expires_s = pem::expiry_s(&certificate.cert);
    let mut rules = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&versions(&config.tls_protocols)?)
        .map_err(refused)?
        .with_client_cert_verifier(verifier)
        .with_cert_resolver(Arc::new(SingleCertAndKey::from(certificate)));
    rules.ignore_client_order = config.tls_prefer_server_ciphers;
    if config.tls_session_caching {
        rules.session_storage =
            Arc::new(TlsSessions::new(config.tls_session_cache_size, config.tls_session_cache_timeout_s));
    } else {
        rules.session_storage = Arc::new(NoServerSessionStorage {});
        rules.send_tls13_tickets = 0;
    }
    Ok(Acceptor::new(rules, expires_s))
}

fn refused(error: Error) -> TlsError {
    TlsError::Refused(error.to_string())
}

/// The name of a parameter for a file or folder, and the whole path.
struct Named {
    parameter: &'static str,
    path: PathBuf,
}

impl Named {
    fn new(config: &Config, parameter: &'static str, path: &Path) -> Option<Named> {
        (!path.as_os_str().is_empty()).then(|| Named { parameter, path: config.dir.join(path) })
    }

    fn error(&self, reason: impl ToString) -> TlsError {
        TlsError::File { parameter: self.parameter, path: self.path.clone(), reason: reason.to_string() }
    }

    fn read(&self) -> Result<Vec<u8>, TlsError> {
        pem::read(&self.path).map_err(|error| self.error(error))
    }
}

fn certificates(file: &Named) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    pem::certificates(&file.path).map_err(|error| file.error(error))
}

/// The server's own certificate with its chain and key.
fn certificate(config: &Config) -> Result<CertifiedKey, TlsError> {
    let named = |parameter, path| Named::new(config, parameter, path).ok_or(TlsError::Missing(parameter));
    let certificate_file = named("tls-cert-file", &config.tls_cert_file)?;
    let key_file = named("tls-key-file", &config.tls_key_file)?;
    let key = private_key(&key_file, &config.tls_key_file_pass)?;
    let key = any_supported_type(&key).map_err(|error| key_file.error(error))?;
    let certified = CertifiedKey::new(certificates(&certificate_file)?, key);
    match certified.keys_match() {
        Ok(()) | Err(Error::InconsistentKeys(InconsistentKeys::Unknown)) => Ok(certified),
        // rustls can't read X.509 version 1 certificates, but need not read one to show it to clients.
        Err(Error::InvalidCertificate(CertificateError::Other(_))) if has_public_key(&certified) => Ok(certified),
        Err(Error::InconsistentKeys(_)) => Err(key_file.error("it is not the key of the certificate")),
        Err(error) => Err(certificate_file.error(error)),
    }
}

/// The key in a file, which may be encrypted with `password`.
fn private_key(file: &Named, password: &[u8]) -> Result<PrivateKeyDer<'static>, TlsError> {
    const ENCRYPTED: [&str; 2] = ["-----BEGIN ENCRYPTED PRIVATE KEY-----", "-----END ENCRYPTED PRIVATE KEY-----"];
    let pem = String::from_utf8_lossy(&file.read()?).into_owned();
    let (begin, end) = (pem.find(ENCRYPTED[0]), pem.find(ENCRYPTED[1]));
    if let Some((begin, end)) = begin.zip(end).filter(|(begin, end)| begin < end) {
        if password.is_empty() {
            return Err(file.error("it is encrypted, and tls-key-file-pass is not set"));
        }
        let (_, encrypted) =
            SecretDocument::from_pem(&pem[begin..end + ENCRYPTED[1].len()]).map_err(|error| file.error(error))?;
        let encrypted = EncryptedPrivateKeyInfo::try_from(encrypted.as_bytes()).map_err(|error| file.error(error))?;
        let key = encrypted.decrypt(password).map_err(|_| file.error("tls-key-file-pass is not its password"))?;
        return Ok(PrivatePkcs8KeyDer::from(key.as_bytes().to_vec()).into());
    }
    if pem.contains("\nProc-Type: 4,ENCRYPTED") {
        return Err(file.error("it is encrypted in an old format; convert it with `openssl pkcs8 -topk8`"));
    }
    PrivateKeyDer::from_pem_slice(pem.as_bytes()).map_err(|error| file.error(error))
}

fn has_public_key(certified: &CertifiedKey) -> bool {
    let (key, certificate) = (certified.key.public_key(), certified.end_entity_cert());
    key.zip(certificate.ok()).is_some_and(|(key, certificate)| contains(certificate, &key))
}

fn contains(bytes: &[u8], part: &[u8]) -> bool {
    bytes.windows(part.len().max(1)).any(|window| window == part)
}

/// The authorities that may certify clients, and all certificates in their files.
fn authorities(config: &Config) -> Result<(RootCertStore, Vec<CertificateDer<'static>>), TlsError> {
    let file = Named::new(config, "tls-ca-cert-file", &config.tls_ca_cert_file);
    let folder = Named::new(config, "tls-ca-cert-dir", &config.tls_ca_cert_dir);
    if file.is_none() && folder.is_none() {
        return Err(TlsError::Missing("tls-ca-cert-file or tls-ca-cert-dir, unless tls-auth-clients is no"));
    }
    let (mut roots, mut all) = (RootCertStore::empty(), Vec::new());
    for file in file.into_iter() {
        for certificate in certificates(&file)? {
            all.push(certificate.clone());
            roots.add(certificate).map_err(|error| file.error(error))?;
        }
    }
    if let Some(folder) = folder {
        // As in any folder of certificates: other files, and unusable certificates, are skipped.
        for path in files_of(&folder)? {
            let file = Named { parameter: folder.parameter, path };
            let found = certificates(&file).unwrap_or_default();
            all.extend_from_slice(&found);
            roots.add_parsable_certificates(found);
        }
        if roots.is_empty() {
            return Err(folder.error("there is no certificate in it"));
        }
    }
    Ok((roots, all))
}

fn files_of(folder: &Named) -> Result<Vec<PathBuf>, TlsError> {
    let entries = std::fs::read_dir(&folder.path).map_err(|error| folder.error(error))?;
    let paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).take(TLS_CA_FILES_MAX + 1).collect();
    if paths.len() > TLS_CA_FILES_MAX {
        return Err(folder.error(format!("there are more than {TLS_CA_FILES_MAX} files in it")));
    }
    Ok(paths)
}

/// The protocols of `tls-protocols`; all if empty.
fn versions(text: &[u8]) -> Result<Vec<&'static SupportedProtocolVersion>, TlsError> {
    const KNOWN: [(&str, &SupportedProtocolVersion); 2] = [("TLSv1.2", &version::TLS12), ("TLSv1.3", &version::TLS13)];
    let mut versions = Vec::new();
    for word in words(text, &[' ']) {
        let known = KNOWN.iter().find(|(name, _)| name.eq_ignore_ascii_case(&word));
        versions.push(known.ok_or_else(|| unknown("tls-protocols", &word, KNOWN.iter().map(|(name, _)| *name)))?.1);
    }
    if versions.is_empty() {
        versions.extend(KNOWN.iter().map(|(_, version)| *version));
    }
    Ok(versions)
}

fn words(text: &[u8], separators: &[char]) -> Vec<String> {
    let text = String::from_utf8_lossy(text);
    text.split(separators).filter(|word| !word.is_empty()).map(str::to_owned).collect()
}

fn unknown<'a>(parameter: &'static str, word: &str, known: impl Iterator<Item = &'a str>) -> TlsError {
    TlsError::Word { parameter, word: word.to_owned(), known: known.collect::<Vec<_>>().join(" ") }
}

/// The suites of TLS 1.3, in order of preference.
const SUITES_1_3: [(&str, SupportedCipherSuite); 3] = [
    ("TLS_AES_256_GCM_SHA384", suite::TLS13_AES_256_GCM_SHA384),
    ("TLS_AES_128_GCM_SHA256", suite::TLS13_AES_128_GCM_SHA256),
    ("TLS_CHACHA20_POLY1305_SHA256", suite::TLS13_CHACHA20_POLY1305_SHA256),
];

/// The suites of `tls-ciphersuites`; all if empty.
fn suites_1_3(text: &[u8]) -> Result<Vec<SupportedCipherSuite>, TlsError> {
    let names = words(text, &[':', ',', ' ']);
    if names.is_empty() {
        return Ok(SUITES_1_3.iter().map(|(_, suite)| *suite).collect());
    }
    let find = |word: &String| {
        let known = SUITES_1_3.iter().find(|(name, _)| name == word);
        known
            .map(|(_, suite)| *suite)
            .ok_or_else(|| unknown("tls-ciphersuites", word, SUITES_1_3.iter().map(|(name, _)| *name)))
    };
    names.iter().map(find).collect()
}

/// The suites of TLS 1.2, in order of preference: OpenSSL's name, and the words by which OpenSSL also finds it.
const SUITES_1_2: [(&str, &[&str], SupportedCipherSuite); 6] = [
    (
        "ECDHE-ECDSA-AES256-GCM-SHA384",
        &["aECDSA", "ECDSA", "AES", "AES256", "AESGCM"],
        suite::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384,
    ),
    ("ECDHE-RSA-AES256-GCM-SHA384", &["aRSA", "AES", "AES256", "AESGCM"], suite::TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384),
    (
        "ECDHE-ECDSA-CHACHA20-POLY1305",
        &["aECDSA", "ECDSA", "CHACHA20"],
        suite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256,
    ),
    ("ECDHE-RSA-CHACHA20-POLY1305", &["aRSA", "CHACHA20"], suite::TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256),
    (
        "ECDHE-ECDSA-AES128-GCM-SHA256",
        &["aECDSA", "ECDSA", "AES", "AES128", "AESGCM"],
        suite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,
    ),
    ("ECDHE-RSA-AES128-GCM-SHA256", &["aRSA", "AES", "AES128", "AESGCM"], suite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256),
];

/// The words by which OpenSSL finds each of the suites.
const ALL_1_2: [&str; 9] =
    ["ALL", "DEFAULT", "COMPLEMENTOFDEFAULT", "HIGH", "TLSv1.2", "ECDHE", "EECDH", "kECDHE", "kEECDH"];

/// The suites of `tls-ciphers`, by the rules of `openssl ciphers`: names and words, joined by `+` where all must hold;
/// `-` takes out, `!` for good, `+` moves to the end. All suites if empty. Taking out an absent suite is no mistake.
fn suites_1_2(text: &[u8]) -> Result<Vec<SupportedCipherSuite>, TlsError> {
    let rules = words(text, &[':', ',', ' ']);
    let all: Vec<usize> = (0..SUITES_1_2.len()).collect();
    let (mut chosen, mut barred) = (if rules.is_empty() { all.clone() } else { Vec::new() }, Vec::new());
    for rule in &rules {
        let (operator, pattern) = match rule.strip_prefix(['!', '-', '+']) {
            Some(pattern) => (rule.chars().next(), pattern),
            None => (None, rule.as_str()),
        };
        let is_meant = |index: &usize| {
            let (name, words, _) = SUITES_1_2[*index];
            pattern.split('+').all(|word| name == word || words.contains(&word) || is_of_all(word))
        };
        let meant: Vec<usize> = all.iter().copied().filter(is_meant).collect();
        match operator {
            Some('!') => {
                chosen.retain(|index| !meant.contains(index));
                barred.extend(meant);
            }
            Some('-') => chosen.retain(|index| !meant.contains(index)),
            Some(_) => {
                let (moved, stay) = chosen.iter().partition::<Vec<usize>, _>(|index| meant.contains(index));
                chosen = stay.into_iter().chain(moved).collect();
            }
            None if meant.is_empty() => {
                let known = ["DEFAULT"].into_iter().chain(SUITES_1_2.iter().map(|(name, ..)| *name));
                return Err(unknown("tls-ciphers", rule, known));
            }
            None => {
                let is_new = |index: &usize| !chosen.contains(index) && !barred.contains(index);
                let new: Vec<usize> = meant.into_iter().filter(is_new).collect();
                chosen.extend(new);
            }
        }
    }
    Ok(chosen.into_iter().map(|index| SUITES_1_2[index].2).collect())
}

fn is_of_all(word: &str) -> bool {
    ALL_1_2.contains(&word)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen(text: &str) -> Result<Vec<&'static str>, String> {
        let name =
            |suite: &SupportedCipherSuite| SUITES_1_2.iter().find(|(.., known)| known == suite).map_or("", |s| s.0);
        let suites = suites_1_2(text.as_bytes()).map_err(|error| error.to_string())?;
        Ok(suites.iter().map(name).collect())
    }

    #[test]
    fn openssl_lists_of_ciphers_are_read() {
        let all = chosen("").expect("all of them");
        assert_eq!(all.len(), 6);
        for same in ["DEFAULT", "DEFAULT:-AES128-SHA256", "HIGH:!aNULL:!MD5", "ECDHE", "DEFAULT:DEFAULT"] {
            assert_eq!(chosen(same).as_ref(), Ok(&all), "{same}");
        }
        let aes_128 = ["ECDHE-ECDSA-AES128-GCM-SHA256", "ECDHE-RSA-AES128-GCM-SHA256"];
        assert_eq!(chosen("EECDH+AES128"), Ok(aes_128.to_vec()));
        assert_eq!(chosen("ECDHE-RSA-AES128-GCM-SHA256 aRSA+AES128:!ECDSA"), Ok(vec![aes_128[1]]));
        assert_eq!(chosen("AES128:-aECDSA:AES128"), Ok(vec![aes_128[1], aes_128[0]]));
        assert_eq!(chosen("!aECDSA,AES128"), Ok(vec![aes_128[1]]));
        assert_eq!(chosen("AES128:+aECDSA"), Ok(vec![aes_128[1], aes_128[0]]));
        assert_eq!(chosen("ALL:!ALL"), Ok(Vec::new()));
        let refused = chosen("AES128-SHA256").expect_err("it has no forward secrecy");
        assert!(
            refused.starts_with("tls-ciphers: \"AES128-SHA256\" is not supported; supported are DEFAULT ECDHE-"),
            "{refused}"
        );
    }

    #[test]
    fn suites_and_protocols_are_found_by_name() {
        assert_eq!(suites_1_3(b"").map(|suites| suites.len()).ok(), Some(3));
        let one = suites_1_3(b"TLS_CHACHA20_POLY1305_SHA256:TLS_AES_128_GCM_SHA256").expect("both are known");
        assert_eq!(one, [SUITES_1_3[2].1, SUITES_1_3[1].1]);
        assert!(suites_1_3(b"TLS_AES_128_CCM_SHA256").is_err());
        assert_eq!(versions(b"").map(|versions| versions.len()).ok(), Some(2));
        assert_eq!(versions(b"tlsv1.3").expect("it is known")[0].version, rustls::ProtocolVersion::TLSv1_3);
        let refused = versions(b"TLSv1.1 TLSv1.2").expect_err("1.1 is broken").to_string();
        assert_eq!(refused, "tls-protocols: \"TLSv1.1\" is not supported; supported are TLSv1.2 TLSv1.3");
    }
}
