//! A byte string that lies inside its owner when it is short.
//!
//! Keys and members are mostly short. Up to `N` bytes stand inline, so that comparing them touches no further cache line;
//! longer ones are one thin heap allocation (the length lies in front of the bytes, the pointer is 8 bytes wide).

use std::fmt;
use std::ops::Deref;

use thin_vec::ThinVec;

/// An immutable byte string, inline up to `N` bytes (`N` below 256).
#[derive(Clone)]
pub struct SmallBytes<const N: usize>(Inner<N>);

#[derive(Clone)]
enum Inner<const N: usize> {
    Inline { len: u8, bytes: [u8; N] },
    Heap(ThinVec<u8>),
}

impl<const N: usize> SmallBytes<N> {
    /// Copies `bytes`.
    #[inline]
    pub fn new(bytes: &[u8]) -> SmallBytes<N> {
        const { assert!(N < 256) };
        if bytes.len() > N {
            return SmallBytes(Inner::Heap(ThinVec::from(bytes)));
        }
        let mut inline = [0; N];
        inline[..bytes.len()].copy_from_slice(bytes);
        SmallBytes(Inner::Inline { len: bytes.len() as u8, bytes: inline })
    }

    /// Bytes held outside the owner.
    pub fn heap_bytes(&self) -> usize {
        match &self.0 {
            Inner::Inline { .. } => 0,
            Inner::Heap(bytes) => bytes.capacity() + 16,
        }
    }
}

impl<const N: usize> Deref for SmallBytes<N> {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        match &self.0 {
            Inner::Inline { len, bytes } => &bytes[..*len as usize],
            Inner::Heap(bytes) => bytes,
        }
    }
}

impl<const N: usize> fmt::Debug for SmallBytes<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\"", self.escape_ascii())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_and_long_read_back() {
        for len in [0, 1, 22, 23, 1000] {
            let bytes: Vec<u8> = (0..len).map(|i| i as u8).collect();
            assert_eq!(&*SmallBytes::<22>::new(&bytes), bytes.as_slice());
        }
        assert_eq!(size_of::<SmallBytes<22>>(), 24);
    }
}
