//! Numbers of seven bits per byte, least significant first; the top bit of a byte says that another byte follows. The
//! packed nodes of lists and streams are made of these. A reversed number can be read backward from its end.

/// Reads data written by the functions below. Panics if data is missing, so it is only for our own buffers.
#[derive(Clone, Debug)]
pub(crate) struct Reader<'a> {
    /// The buffer.
    pub bytes: &'a [u8],
    /// The position of the next read.
    pub at: usize,
}

impl<'a> Reader<'a> {
    /// Reads from the beginning.
    pub(crate) fn new(bytes: &'a [u8]) -> Reader<'a> {
        Reader { bytes, at: 0 }
    }

    /// The next number.
    pub(crate) fn number(&mut self) -> u64 {
        let mut value = 0;
        let mut shift = 0;
        loop {
            let byte = self.bytes[self.at];
            self.at += 1;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return value;
            }
            shift += 7;
        }
    }

    /// The next string: its length and then its bytes.
    pub(crate) fn bytes(&mut self) -> &'a [u8] {
        let len = self.number() as usize;
        let bytes = &self.bytes[self.at..self.at + len];
        self.at += len;
        bytes
    }
}

/// Reads the number whose reversed bytes end before `end`.
pub(crate) fn number_before(bytes: &[u8], end: usize) -> u64 {
    let mut value = 0;
    let mut shift = 0;
    for &byte in bytes[..end].iter().rev() {
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            break;
        }
        shift += 7;
    }
    value
}

/// Bytes that an encoded number takes.
pub(crate) fn number_len(value: u64) -> usize {
    (70 - (value | 1).leading_zeros() as usize) / 7
}

/// Bytes that a string takes, including its length.
pub(crate) fn bytes_len(bytes: &[u8]) -> usize {
    number_len(bytes.len() as u64) + bytes.len()
}

/// Appends a number.
pub(crate) fn put_number(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Writes a number over a slice of exactly its length.
pub(crate) fn write_number(out: &mut [u8], mut value: u64) {
    debug_assert_eq!(out.len(), number_len(value));
    let last = out.len() - 1;
    for byte in &mut out[..last] {
        *byte = value as u8 | 0x80;
        value >>= 7;
    }
    out[last] = value as u8;
}

/// Appends a string: its length and then its bytes.
pub(crate) fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put_number(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

/// Appends a number with its bytes reversed, for [`number_before`].
pub(crate) fn put_number_reversed(out: &mut Vec<u8>, value: u64) {
    let at = out.len();
    put_number(out, value);
    out[at..].reverse();
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn numbers_come_back(value in any::<u64>(), shift in 0u32..64) {
            let value = value >> shift;
            let mut bytes = Vec::new();
            put_number(&mut bytes, value);
            prop_assert_eq!(bytes.len(), number_len(value));
            prop_assert_eq!(Reader::new(&bytes).number(), value);
            let mut again = vec![0; bytes.len()];
            write_number(&mut again, value);
            prop_assert_eq!(&again, &bytes);
            bytes.reverse();
            prop_assert_eq!(number_before(&bytes, bytes.len()), value);
        }
    }
}
