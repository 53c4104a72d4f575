//! A byte string that lies inside its owner when it is short.
//!
//! Keys and members are mostly short. Up to `N` bytes stand inline, so that comparing them touches no further cache line;
//! longer ones are one thin heap allocation (the length lies in front of the bytes, the pointer is 8 bytes wide).

use std::fmt;
use std::ops::{Deref, DerefMut};

use thin_vec::ThinVec;

/// A byte string of fixed length, inline up to `N` bytes (`N` below 256).
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

    /// Copies several strings into one.
    #[inline]
    pub fn concat(parts: &[&[u8]]) -> SmallBytes<N> {
        const { assert!(N < 256) };
        let len = parts.iter().map(|part| part.len()).sum();
        if len > N {
            let mut heap = ThinVec::with_capacity(len);
            parts.iter().for_each(|part| heap.extend_from_slice(part));
            return SmallBytes(Inner::Heap(heap));
        }
        let mut bytes = [0; N];
        let mut at = 0;
        for part in parts {
            bytes[at..at + part.len()].copy_from_slice(part);
            at += part.len();
        }
        SmallBytes(Inner::Inline { len: len as u8, bytes })
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

impl<const N: usize> DerefMut for SmallBytes<N> {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u8] {
        match &mut self.0 {
            Inner::Inline { len, bytes } => &mut bytes[..*len as usize],
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

    #[test]
    fn parts_join_and_can_be_overwritten() {
        let text = b"0123456789abcdefghijklmnopqrstuvwxyz";
        for n in 0..text.len() {
            for cut in 0..=n {
                let mut joined = SmallBytes::<22>::concat(&[&text[..cut], &text[cut..n]]);
                assert_eq!(&*joined, &text[..n]);
                joined.fill(b'x');
                assert_eq!(&*joined.clone(), vec![b'x'; n]);
            }
        }
    }
}
