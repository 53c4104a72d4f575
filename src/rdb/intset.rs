//! Intsets: integers of one width (2, 4 or 8 bytes) in ascending order.
//!
//! ```text
//! intset = width (4), count (4), integer*         numbers little-endian
//! ```

use super::listpack::signed;
use super::wire::Corrupt;

/// All integers. An intset holds at least one.
pub(super) fn read(bytes: &[u8]) -> Result<impl Iterator<Item = i64>, Corrupt> {
    let (header, integers) = bytes.split_first_chunk::<8>().ok_or(Corrupt)?;
    let [a, b, c, d, e, f, g, h] = *header;
    let width = match u32::from_le_bytes([a, b, c, d]) {
        2 => 2,
        4 => 4,
        8 => 8,
        _ => return Err(Corrupt),
    };
    let count = u32::from_le_bytes([e, f, g, h]) as usize;
    if count == 0 || count.checked_mul(width) != Some(integers.len()) {
        return Err(Corrupt);
    }
    Ok(integers.chunks_exact(width).map(signed))
}

/// Appends an intset of these integers, which must ascend.
pub(super) fn write(integers: &[i64], out: &mut Vec<u8>) {
    let fits = |bits: u32| integers.iter().all(|value| (value >> (bits - 1)) == 0 || (value >> (bits - 1)) == -1);
    let width = if fits(16) {
        2
    } else if fits(32) {
        4
    } else {
        8
    };
    out.extend_from_slice(&(width as u32).to_le_bytes());
    out.extend_from_slice(&(integers.len() as u32).to_le_bytes());
    integers.iter().for_each(|value| out.extend_from_slice(&value.to_le_bytes()[..width]));
}
