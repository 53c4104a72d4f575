//! Compression of responses.

use std::io::{self, Write};

use axum::http::HeaderMap;
use axum::http::header::ACCEPT_ENCODING;
use flate2::Compression;
use flate2::write::GzEncoder;

/// Bytes up to which a response is not compressed: that would not save a packet.
pub(super) const PLAIN_MAX_BYTES: usize = 1_024;

/// Compresses bytes.
pub(super) fn compress(bytes: &[u8], level: Compression) -> io::Result<Vec<u8>> {
    let mut encoder = GzEncoder::new(Vec::new(), level);
    encoder.write_all(bytes)?;
    encoder.finish()
}

/// Whether a client names gzip among the encodings that it accepts (RFC 9110, section 12.5.3).
pub(super) fn is_accepted(headers: &HeaderMap) -> bool {
    let accepted = headers.get_all(ACCEPT_ENCODING).iter().filter_map(|field| field.to_str().ok());
    accepted.flat_map(|encodings| encodings.split(',')).any(|encoding| {
        let (name, weight) = encoding.split_once(';').unwrap_or((encoding, ""));
        let weight = weight.trim().strip_prefix("q=").map_or(Ok(1.0), str::parse::<f32>);
        name.trim().eq_ignore_ascii_case("gzip") && weight.is_ok_and(|weight| weight > 0.0)
    })
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    #[test]
    fn gzip_is_sent_to_clients_that_accept_it() {
        for (accepted, is_gzip) in [
            (&["gzip"][..], true),
            (&["deflate, GZIP;q=0.5"], true),
            (&["br", "gzip"], true),
            (&["gzip;q=0"], false),
            (&["gzip; q=0.000"], false),
            (&["x-gzip, identity"], false),
            (&[], false),
        ] {
            let mut headers = HeaderMap::new();
            for value in accepted {
                headers.append(ACCEPT_ENCODING, HeaderValue::from_static(value));
            }
            assert_eq!(is_accepted(&headers), is_gzip, "{accepted:?}");
        }
    }
}
