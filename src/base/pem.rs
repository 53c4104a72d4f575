//! Reads certificates from PEM files (RFC 7468).

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;

use crate::base::certificate::validity;
use crate::base::limits::TLS_FILE_MAX_BYTES;

/// Returns the certificates of a file, at least one. The error does not name the file.
pub(crate) fn certificates(path: &Path) -> io::Result<Vec<CertificateDer<'static>>> {
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&read(path)?).collect();
    match found {
        Ok(found) if found.is_empty() => Err(io::Error::other("there is no certificate in it")),
        found => found.map_err(io::Error::other),
    }
}

/// Returns when the first of these certificates expires, in seconds since 1970.
pub(crate) fn expiry_s(chain: &[CertificateDer<'_>]) -> Option<i64> {
    chain.iter().filter_map(|certificate| validity(certificate)).map(|valid| *valid.end()).min()
}

/// Returns the bytes of a file of certificates or keys, within the size limit.
pub(crate) fn read(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    if !std::fs::metadata(path)?.is_file() {
        return Err(io::Error::other("it is no file"));
    }
    File::open(path)?.take(TLS_FILE_MAX_BYTES + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > TLS_FILE_MAX_BYTES {
        return Err(io::Error::other(format!("it is longer than {TLS_FILE_MAX_BYTES} bytes")));
    }
    Ok(bytes)
}
