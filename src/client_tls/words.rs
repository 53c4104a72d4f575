//! Explanations of TLS failures, with remedies.

use std::io;

use rustls::pki_types::{ServerName, UnixTime};
use rustls::{AlertDescription, CertificateError, Error};

use crate::base::calendar::utc;

/// Explains a handshake error.
pub(super) fn of_handshake(error: io::Error) -> io::Error {
    match error.kind() {
        io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset => {
            io::Error::other("it hung up during the handshake of TLS: is this its port for TLS?")
        }
        _ => of_io(error),
    }
}

/// Explains a read or write error.
pub(super) fn of_io(error: io::Error) -> io::Error {
    match error.get_ref().and_then(|inner| inner.downcast_ref::<Error>()) {
        Some(inner) => io::Error::new(error.kind(), of(inner)),
        None => error,
    }
}

/// Explains a rustls error.
pub(super) fn of(error: &Error) -> String {
    match error {
        Error::InvalidCertificate(error) => of_certificate(error),
        Error::AlertReceived(alert) => of_alert(*alert),
        Error::InvalidMessage(_) | Error::InappropriateMessage { .. } | Error::InappropriateHandshakeMessage { .. } => {
            "it does not reply in TLS: is this its port for TLS?".to_owned()
        }
        Error::PeerIncompatible(_) => {
            "it has no version of TLS or no cipher suite in common with this client, which knows TLS 1.2 and 1.3"
                .to_owned()
        }
        Error::PeerMisbehaved(_) | Error::PeerSentOversizedRecord | Error::DecryptError => {
            "its messages break the rules of TLS, or were changed on the way".to_owned()
        }
        Error::NoCertificatesPresented => "it shows no certificate".to_owned(),
        Error::InconsistentKeys(_) => "--key is not the key of this certificate".to_owned(),
        Error::FailedToGetCurrentTime => {
            "the time is unknown, so its certificate can't be checked for validity".to_owned()
        }
        error => error.to_string(),
    }
}

fn of_certificate(error: &CertificateError) -> String {
    let text = match error {
        CertificateError::ExpiredContext { not_after, .. } => {
            return format!("its certificate has expired, at {}", date(*not_after));
        }
        CertificateError::NotValidYetContext { not_before, .. } => {
            return format!("its certificate is not valid before {}: is the clock right?", date(*not_before));
        }
        CertificateError::NotValidForNameContext { expected, presented } => return of_names(expected, presented),
        CertificateError::Expired => "its certificate has expired",
        CertificateError::NotValidYet => "its certificate is not valid yet: is the clock right?",
        CertificateError::NotValidForName => "its certificate is for another name: give that name with --sni",
        CertificateError::UnknownIssuer => {
            "its certificate is signed by none of the trusted authorities: name by --cacert the one that signed it, or \
             the certificate itself if it signed itself"
        }
        CertificateError::Revoked => "its certificate is revoked",
        CertificateError::BadEncoding | CertificateError::UnhandledCriticalExtension => "its certificate can't be read",
        CertificateError::BadSignature => {
            "its certificate is not signed by the trusted authority of this name: does --cacert name the right file?"
        }
        CertificateError::InvalidPurpose | CertificateError::InvalidPurposeContext { .. } => {
            "its certificate is not meant for servers (extendedKeyUsage)"
        }
        CertificateError::UnsupportedSignatureAlgorithmContext { .. }
        | CertificateError::UnsupportedSignatureAlgorithmForPublicKeyContext { .. } => {
            "its certificate is signed by an algorithm that is unknown here, or no longer safe, such as SHA-1"
        }
        // webpki's errors are available only as text.
        CertificateError::Other(other) => match other.to_string().as_str() {
            "CaUsedAsEndEntity" => {
                "its certificate is an authority's (CA:TRUE): it is accepted only if it is itself in the file of \
                 --cacert"
            }
            "UnsupportedCertVersion" => "its certificate is of version 1 of X.509: make a new one, of version 3",
            _ => "its certificate can't be verified",
        },
        _ => "its certificate can't be verified",
    };
    text.to_owned()
}

fn of_names(expected: &ServerName<'_>, presented: &[String]) -> String {
    let expected = expected.to_str();
    if presented.is_empty() {
        return format!(
            "its certificate has no name, but {expected} is needed: names must be in its subjectAltName, not in its \
             subject"
        );
    }
    let presented: Vec<String> = presented.iter().map(|name| plain(name)).collect();
    format!(
        "its certificate is not for {expected}, but for {}: connect to one of these, or name one with --sni",
        presented.join(", ")
    )
}

/// Returns the plain name, without the kind that rustls adds, as in `DnsName("a")`.
fn plain(name: &str) -> String {
    let inner = name.split_once('(').and_then(|(_, rest)| rest.strip_suffix(')')).unwrap_or(name);
    inner.trim_matches('"').to_owned()
}

fn of_alert(alert: AlertDescription) -> String {
    let text = match alert {
        AlertDescription::CertificateRequired | AlertDescription::NoCertificate => {
            "it wants a certificate: add --cert and --key"
        }
        AlertDescription::BadCertificate
        | AlertDescription::UnsupportedCertificate
        | AlertDescription::CertificateRevoked
        | AlertDescription::CertificateExpired
        | AlertDescription::CertificateUnknown
        | AlertDescription::UnknownCA
        | AlertDescription::AccessDenied => {
            "it does not take the certificate of --cert: is it valid, and is its authority one of tls-ca-cert-file?"
        }
        AlertDescription::HandshakeFailure
        | AlertDescription::ProtocolVersion
        | AlertDescription::InsufficientSecurity => {
            "it has no version of TLS, or no cipher suite, in common with this client, or wants a certificate (--cert, \
             --key)"
        }
        AlertDescription::UnrecognisedName => "it does not know the name that is asked for: choose another by --sni",
        AlertDescription::CloseNotify | AlertDescription::UserCanceled => "it ended the connection",
        alert => return format!("it ended the handshake of TLS with alert {}", u8::from(alert)),
    };
    text.to_owned()
}

fn date(time: UnixTime) -> String {
    utc(i64::try_from(time.as_secs()).unwrap_or(i64::MAX / 1_000).saturating_mul(1_000))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_dates_are_plain() {
        let expected = ServerName::try_from("a.example").expect("a name");
        let both = ["DnsName(\"b.example\")".to_owned(), "IpAddress(127.0.0.1)".to_owned()];
        assert!(of_names(&expected, &both).contains("not for a.example, but for b.example, 127.0.0.1: "));
        assert!(of_names(&expected, &[]).contains("subjectAltName"));
        let not_after = UnixTime::since_unix_epoch(std::time::Duration::from_secs(0));
        let expired = CertificateError::ExpiredContext { time: not_after, not_after };
        assert_eq!(of(&expired.into()), "its certificate has expired, at 1970-01-01T00:00:00Z");
    }

    /// No message shows the name of an enum variant, as Debug output does.
    #[test]
    fn alerts_and_certificates_are_described_in_words() {
        for alert in (0..=u8::MAX).map(AlertDescription::from) {
            let debug = format!("{alert:?}");
            assert!(!of(&Error::AlertReceived(alert)).contains(debug.split('(').next().unwrap_or(&debug)), "{debug}");
        }
        for error in [
            CertificateError::BadEncoding,
            CertificateError::Expired,
            CertificateError::NotValidYet,
            CertificateError::Revoked,
            CertificateError::UnknownIssuer,
            CertificateError::BadSignature,
            CertificateError::NotValidForName,
            CertificateError::InvalidPurpose,
            CertificateError::UnhandledCriticalExtension,
            CertificateError::ApplicationVerificationFailure,
        ] {
            let debug = format!("{error:?}");
            assert!(!of(&Error::InvalidCertificate(error)).contains(&debug), "{debug}");
        }
    }
}
