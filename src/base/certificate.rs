//! Reads an X.509 certificate: the common name of its subject, the URIs among its alternative names, and its period of
//! validity.
//!
//! Only the parts needed for this are read, as DER: nested records of a tag, a length and that many bytes (RFC 5280,
//! section 4.1; X.690). The caller has verified the certificate, but even so no length is trusted. A malformed
//! certificate has no names and is never valid.

use std::ops::RangeInclusive;
use std::time::Duration;

use rustls::CertificateError;
use rustls::pki_types::UnixTime;

use super::calendar::days_since_1970;

/// Tags of records.
const SEQUENCE: u8 = 0x30;
const OCTET_STRING: u8 = 0x04;
const OBJECT_ID: u8 = 0x06;
const BOOLEAN: u8 = 0x01;
/// Tags in a certificate: its version, which comes first, and its extensions, which come last.
const VERSION: u8 = 0xa0;
const EXTENSIONS: u8 = 0xa3;
/// Tag of a URI among names of several kinds.
const URI: u8 = 0x86;
/// Tags of a point in time, with two and with four digits for the year: UTCTime, GeneralizedTime.
const SHORT_TIME: u8 = 0x17;
const LONG_TIME: u8 = 0x18;
/// Tags of strings whose bytes are plain text: UTF8String, PrintableString, TeletexString, IA5String.
const TEXTS: [u8; 4] = [0x0c, 0x13, 0x14, 0x16];

/// commonName, 2.5.4.3.
const COMMON_NAME: &[u8] = &[0x55, 0x04, 0x03];
/// subjectAltName, 2.5.29.17.
const ALTERNATIVE_NAMES: &[u8] = &[0x55, 0x1d, 0x11];

/// Returns the common name of the subject, the first if there are several.
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

/// Returns the URIs among the alternative names of the subject.
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

/// Checks that a certificate is valid at this time.
///
/// # Errors
/// The certificate is not valid yet, is no longer valid, or states no period.
pub fn verify_dates(certificate: &[u8], now: UnixTime) -> Result<(), CertificateError> {
    let valid = validity(certificate).ok_or(CertificateError::BadEncoding)?;
    let time = |seconds: i64| UnixTime::since_unix_epoch(Duration::from_secs(seconds.max(0).cast_unsigned()));
    let (not_before, not_after) = (time(*valid.start()), time(*valid.end()));
    if now < not_before {
        return Err(CertificateError::NotValidYetContext { time: now, not_before });
    }
    if now > not_after {
        return Err(CertificateError::ExpiredContext { time: now, not_after });
    }
    Ok(())
}

/// Returns the period of validity, in seconds since 1970.
pub fn validity(certificate: &[u8]) -> Option<RangeInclusive<i64>> {
    let mut times = Fields::of(certificate).validity?;
    let (from, until) = (next(&mut times)?, next(&mut times)?);
    Some(time(from)?..=time(until)?)
}

/// Parses `YYMMDDHHMMSSZ`, or the form with four digits for the year.
fn time((tag, text): (u8, &[u8])) -> Option<i64> {
    let digits = text.strip_suffix(b"Z").filter(|digits| digits.iter().all(u8::is_ascii_digit))?;
    let (year, rest) = match tag {
        SHORT_TIME => digits.split_at_checked(2)?,
        LONG_TIME => digits.split_at_checked(4)?,
        _ => return None,
    };
    let number = |digits: &[u8]| digits.iter().fold(0, |number, digit| number * 10 + i64::from(digit - b'0'));
    let year = match (tag, number(year)) {
        (SHORT_TIME, year @ 50..) => 1900 + year,
        (SHORT_TIME, year) => 2000 + year,
        (_, year) => year,
    };
    let pairs: Vec<i64> = rest.chunks(2).map(number).collect();
    let &[month @ 1..=12, day @ 1..=31, hour @ 0..=23, minute @ 0..=59, second @ 0..=60] = &pairs[..] else {
        return None;
    };
    let days = days_since_1970(year, month, day);
    (rest.len() == 10).then_some(((days * 24 + hour) * 60 + minute) * 60 + second)
}

/// Some programs end a name at a zero byte, but a certificate for `admin\0.example` is not one for `admin`.
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
            // The optional flag that makes an extension critical.
            (tag, value) = next(&mut extension)?;
        }
        return if tag == OCTET_STRING { expect(&mut value, SEQUENCE) } else { None };
    }
    None
}

/// The parts read from a certificate.
#[derive(Default)]
struct Fields<'a> {
    validity: Option<&'a [u8]>,
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
        // Serial number, algorithm, issuer.
        for _ in 0..3 {
            next(&mut fields)?;
        }
        let validity = Some(expect(&mut fields, SEQUENCE)?);
        let subject = Some(expect(&mut fields, SEQUENCE)?);
        // The key, and perhaps identifiers that are no longer in use.
        let mut extensions = None;
        while let Some((tag, mut value)) = next(&mut fields) {
            if tag == EXTENSIONS {
                extensions = expect(&mut value, SEQUENCE);
            }
        }
        Some(Fields { validity, subject, extensions })
    }
}

fn expect<'a>(bytes: &mut &'a [u8], tag: u8) -> Option<&'a [u8]> {
    next(bytes).filter(|(found, _)| *found == tag).map(|(_, value)| value)
}

/// Takes off the next record; `None` at the end, and if there is none.
fn next<'a>(bytes: &mut &'a [u8]) -> Option<(u8, &'a [u8])> {
    let [tag, first, rest @ ..] = *bytes else { return None };
    // Tags of several bytes occur in no certificate.
    if tag & 0x1f == 0x1f {
        return None;
    }
    let (len, rest) = match first {
        ..0x80 => (usize::from(*first), rest),
        // An indefinite length, or more digits than any certificate needs.
        0x80 | 0x85.. => return None,
        // The low bits state the number of bytes of the length.
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
    fn names_are_read_from_certificates() {
        let dns = SanType::DnsName("localhost".try_into().expect("plain letters"));
        let both = certificate(
            &[(DnType::OrganizationName, "a firm"), (DnType::CommonName, "alice")],
            &[dns.clone(), uri("urn:app:alice"), dns, uri("urn:app:bob")],
        );
        assert_eq!(common_name(&both), Some(&b"alice"[..]));
        assert_eq!(uris(&both), [&b"urn:app:alice"[..], b"urn:app:bob"]);
        let neither = certificate(&[(DnType::OrganizationName, "a firm")], &[]);
        assert_eq!((common_name(&neither), uris(&neither)), (None, Vec::new()));
        // This needs a length of several bytes, and has bytes outside of ASCII.
        let long = "ä".repeat(300);
        assert_eq!(common_name(&certificate(&[(DnType::CommonName, &long)], &[])), Some(long.as_bytes()));
        let zero = certificate(&[(DnType::CommonName, "alice\0x")], &[]);
        assert_eq!(common_name(&zero), None);
    }

    #[test]
    fn times_are_read_from_certificates() {
        let params = |from: (i32, u8, u8), until: (i32, u8, u8)| {
            let mut params = CertificateParams::default();
            params.not_before = rcgen::date_time_ymd(from.0, from.1, from.2);
            params.not_after = rcgen::date_time_ymd(until.0, until.1, until.2);
            params.self_signed(&KeyPair::generate().expect("a key")).expect("a certificate").der().to_vec()
        };
        assert_eq!(validity(&params((1970, 1, 1), (2026, 11, 28))), Some(0..=1_795_824_000));
        // From 2050 on, years have four digits.
        assert_eq!(validity(&params((2049, 12, 31), (2100, 3, 1))), Some(2_524_521_600..=4_107_542_400));
        for text in
            ["", "2601010000Z", "260101000000", "261301000000Z", "260101240000Z", "26010100000000Z", "26O101000000Z"]
        {
            assert_eq!(time((SHORT_TIME, text.as_bytes())), None, "{text}");
        }
    }

    #[test]
    fn damaged_certificates_cause_no_panic() {
        let whole = certificate(&[(DnType::CommonName, "alice")], &[uri("urn:app:alice")]);
        for at in 0..whole.len() {
            for byte in [0x00, 0x06, 0x30, 0x7f, 0x80, 0x84, 0xff] {
                let mut damaged = whole.clone();
                damaged[at] = byte;
                let _ = (common_name(&damaged), uris(&damaged), validity(&damaged));
            }
            assert_eq!(common_name(&whole[..at]), None);
        }
    }
}
