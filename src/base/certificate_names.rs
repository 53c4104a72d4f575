//! The names in an X.509 certificate: the common name of its subject, and the URIs among its alternative names.
//!
//! It is read as far as these names need, as DER, which is nested records of a tag, a length and that many bytes (RFC 5280, section
//! 4.1; X.690). Whoever asks has had the certificate verified; even so nothing is believed of the lengths. What is not as it should be
//! has no names.

/// Tags of records.
const SEQUENCE: u8 = 0x30;
const OCTET_STRING: u8 = 0x04;
const OBJECT_ID: u8 = 0x06;
const BOOLEAN: u8 = 0x01;
/// Of a certificate: its version, which comes first, and its extensions, which come last.
const VERSION: u8 = 0xa0;
const EXTENSIONS: u8 = 0xa3;
/// A URI among names of several kinds.
const URI: u8 = 0x86;
/// Strings whose bytes are text as everybody writes it: UTF8String, PrintableString, TeletexString, IA5String.
const TEXTS: [u8; 4] = [0x0c, 0x13, 0x14, 0x16];

/// commonName, 2.5.4.3.
const COMMON_NAME: &[u8] = &[0x55, 0x04, 0x03];
/// subjectAltName, 2.5.29.17.
const ALTERNATIVE_NAMES: &[u8] = &[0x55, 0x1d, 0x11];

/// The common name of the subject, the first if there are several.
pub fn common_name(certificate: &[u8]) -> Option<&[u8]> {
    let mut sets = Fields::of(certificate).subject?;
    while let Some((_, set)) = next(&mut sets) {
        let mut pairs = set;
        while let Some((SEQUENCE, mut pair)) = next(&mut pairs) {
            if next(&mut pair) != Some((OBJECT_ID, COMMON_NAME)) {
                continue;
            }
            return next(&mut pair).filter(|(tag, name)| TEXTS.contains(tag) && is_name(name)).map(|(_, name)| name);
        }
    }
    None
}

/// The URIs among the alternative names of the subject.
pub fn uris(certificate: &[u8]) -> Vec<&[u8]> {
    let mut names = alternative_names(certificate).unwrap_or_default();
    let mut uris = Vec::new();
    while let Some((tag, name)) = next(&mut names) {
        if tag == URI && is_name(name) {
            uris.push(name);
        }
    }
    uris
}

/// Others end a name at a zero: whoever certified `admin\0.example` has not certified `admin`.
fn is_name(name: &[u8]) -> bool {
    !name.is_empty() && !name.contains(&0)
}

fn alternative_names(certificate: &[u8]) -> Option<&[u8]> {
    let mut extensions = Fields::of(certificate).extensions?;
    while let Some((SEQUENCE, mut extension)) = next(&mut extensions) {
        if next(&mut extension) != Some((OBJECT_ID, ALTERNATIVE_NAMES)) {
            continue;
        }
        let (mut tag, mut value) = next(&mut extension)?;
        if tag == BOOLEAN {
            // Whether it is critical.
            (tag, value) = next(&mut extension)?;
        }
        return if tag == OCTET_STRING { expect(&mut value, SEQUENCE) } else { None };
    }
    None
}

/// What is read of a certificate.
#[derive(Default)]
struct Fields<'a> {
    subject: Option<&'a [u8]>,
    extensions: Option<&'a [u8]>,
}

impl<'a> Fields<'a> {
    fn of(mut certificate: &'a [u8]) -> Fields<'a> {
        Fields::read(&mut certificate).unwrap_or_default()
    }

    fn read(bytes: &mut &'a [u8]) -> Option<Fields<'a>> {
        let mut certificate = expect(bytes, SEQUENCE)?;
        let mut fields = expect(&mut certificate, SEQUENCE)?;
        if fields.first() == Some(&VERSION) {
            next(&mut fields)?;
        }
        // Serial number, algorithm, issuer, validity.
        for _ in 0..4 {
            next(&mut fields)?;
        }
        let subject = Some(expect(&mut fields, SEQUENCE)?);
        // The key, and perhaps numbers that nobody gives any more.
        let mut extensions = None;
        while let Some((tag, mut value)) = next(&mut fields) {
            if tag == EXTENSIONS {
                extensions = expect(&mut value, SEQUENCE);
            }
        }
        Some(Fields { subject, extensions })
    }
}

fn expect<'a>(bytes: &mut &'a [u8], tag: u8) -> Option<&'a [u8]> {
    next(bytes).filter(|(found, _)| *found == tag).map(|(_, value)| value)
}

/// Takes the next record off; `None` at the end, and where there is none.
fn next<'a>(bytes: &mut &'a [u8]) -> Option<(u8, &'a [u8])> {
    let [tag, first, rest @ ..] = *bytes else { return None };
    // A tag of several bytes: no certificate has one.
    if tag & 0x1f == 0x1f {
        return None;
    }
    let (len, rest) = match first {
        ..0x80 => (usize::from(*first), rest),
        // Of no length, or of more digits than any certificate needs.
        0x80 | 0x85.. => return None,
        // The low bits say how many bytes the length has.
        _ => {
            let (digits, rest) = rest.split_at_checked(usize::from(first & 0x7f))?;
            (digits.iter().fold(0, |len, digit| len << 8 | usize::from(*digit)), rest)
        }
    };
    let (value, rest) = rest.split_at_checked(len)?;
    *bytes = rest;
    Some((*tag, value))
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair, SanType};

    use super::*;

    fn certificate(names: &[(DnType, &str)], alternatives: &[SanType]) -> Vec<u8> {
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        names.iter().for_each(|(kind, name)| params.distinguished_name.push(kind.clone(), *name));
        params.subject_alt_names = alternatives.to_vec();
        let key = KeyPair::generate().expect("a key");
        params.self_signed(&key).expect("a certificate").der().to_vec()
    }

    fn uri(text: &str) -> SanType {
        SanType::URI(text.try_into().expect("plain letters"))
    }

    #[test]
    fn names_of_certificates() {
        let dns = SanType::DnsName("localhost".try_into().expect("plain letters"));
        let both = certificate(
            &[(DnType::OrganizationName, "a firm"), (DnType::CommonName, "alice")],
            &[dns.clone(), uri("urn:app:alice"), dns, uri("urn:app:bob")],
        );
        assert_eq!(common_name(&both), Some(&b"alice"[..]));
        assert_eq!(uris(&both), [&b"urn:app:alice"[..], b"urn:app:bob"]);
        let neither = certificate(&[(DnType::OrganizationName, "a firm")], &[]);
        assert_eq!((common_name(&neither), uris(&neither)), (None, Vec::new()));
        // A length that needs bytes of its own, and bytes that are none of ASCII's.
        let long = "ä".repeat(300);
        assert_eq!(common_name(&certificate(&[(DnType::CommonName, &long)], &[])), Some(long.as_bytes()));
        let zero = certificate(&[(DnType::CommonName, "alice\0x")], &[]);
        assert_eq!(common_name(&zero), None);
    }

    #[test]
    fn damage_is_no_panic() {
        let whole = certificate(&[(DnType::CommonName, "alice")], &[uri("urn:app:alice")]);
        for at in 0..whole.len() {
            for byte in [0x00, 0x06, 0x30, 0x7f, 0x80, 0x84, 0xff] {
                let mut damaged = whole.clone();
                damaged[at] = byte;
                let _ = (common_name(&damaged), uris(&damaged));
            }
            assert_eq!(common_name(&whole[..at]), None);
        }
    }
}
