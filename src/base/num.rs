//! Numbers as text.

/// Strict decimal integer.
pub fn parse_i64(bytes: &[u8]) -> Option<i64> {
    let text = std::str::from_utf8(bytes).ok()?;
    let value: i64 = text.parse().ok()?;
    (value.to_string() == text).then_some(value)
}

/// Shortest digits.
pub fn format_f64(out: &mut Vec<u8>, value: f64) {
    out.extend_from_slice(value.to_string().as_bytes());
}
