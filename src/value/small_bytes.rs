//! A byte string that lies in the table itself when it is short, as most members and many field-value pairs are. A
//! table of boxed strings would cost an allocation per entry and a cache miss per lookup.

use std::ops::Deref;

/// A byte string of constant length: inline up to `INLINE` bytes, or else in an allocation of exactly its size. It
/// takes `INLINE` bytes plus two, rounded up to a multiple of eight: usually 24.
#[derive(Clone, Debug)]
pub struct SmallBytes<const INLINE: usize = 22>(Form<INLINE>);

#[derive(Clone, Debug)]
enum Form<const INLINE: usize> {
    /// The string is the first `len` of `bytes`.
    Inline {
        len: u8,
        bytes: [u8; INLINE],
    },
    Heap(Box<[u8]>),
}

const _: () = assert!(size_of::<SmallBytes>() == 24 && size_of::<SmallBytes<30>>() == 32);

impl<const INLINE: usize> SmallBytes<INLINE> {
    /// The concatenation of `parts`.
    #[inline]
    pub fn concat(parts: &[&[u8]]) -> Self {
        let len = parts.iter().map(|part| part.len()).sum();
        if len > INLINE {
            let mut heap = Vec::with_capacity(len);
            parts.iter().for_each(|part| heap.extend_from_slice(part));
            return SmallBytes(Form::Heap(heap.into_boxed_slice()));
        }
        let mut bytes = [0; INLINE];
        let mut at = 0;
        for part in parts {
            bytes[at..at + part.len()].copy_from_slice(part);
            at += part.len();
        }
        SmallBytes(Form::Inline { len: len as u8, bytes })
    }

    /// A copy of `bytes`.
    #[inline]
    pub fn new(bytes: &[u8]) -> Self {
        SmallBytes::concat(&[bytes])
    }

    /// The string.
    #[inline]
    pub fn as_slice(&self) -> &[u8] {
        match &self.0 {
            Form::Inline { len, bytes } => &bytes[..usize::from(*len)],
            Form::Heap(bytes) => bytes,
        }
    }

    /// The string, for overwriting.
    #[inline]
    pub fn as_mut_slice(&mut self) -> &mut [u8] {
        match &mut self.0 {
            Form::Inline { len, bytes } => &mut bytes[..usize::from(*len)],
            Form::Heap(bytes) => bytes,
        }
    }

    /// Bytes allocated outside the value itself.
    pub fn heap_bytes(&self) -> usize {
        match &self.0 {
            Form::Inline { .. } => 0,
            Form::Heap(bytes) => bytes.len(),
        }
    }
}

impl<const INLINE: usize> Deref for SmallBytes<INLINE> {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        self.as_slice()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_length_around_the_limit() {
        let text = b"0123456789abcdefghijklmnopqrstuvwxyz";
        for n in 0..text.len() {
            for cut in 0..=n {
                let mut small: SmallBytes = SmallBytes::concat(&[&text[..cut], &text[cut..n]]);
                assert_eq!(small.as_slice(), &text[..n]);
                assert_eq!(small.heap_bytes(), if n > 22 { n } else { 0 });
                small.as_mut_slice().fill(b'x');
                assert_eq!(small.clone().as_slice(), vec![b'x'; n]);
            }
        }
    }
}
