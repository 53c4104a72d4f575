//! A sorted sequence of distinct integers, all stored in the width (16, 32 or 64 bits) that the largest one needs: the
//! form of a small set of numbers. A lookup is a binary search. Adding and removing move everything behind, so the
//! owner bounds the number of elements.
//!
//! The integers lie in a [`Block`], little-endian. The block's kind is their width: 0, 1 or 2 for 16, 32 or 64 bits.
//! Their number follows from the number of bytes.

use crate::value::block::{Block, InBlock};

/// A sorted sequence of distinct integers. Its width never shrinks.
#[derive(Clone, Default, Debug)]
#[repr(transparent)]
pub(crate) struct IntSet(Block);

// SAFETY: the struct is transparent over one `Block`.
unsafe impl InBlock for IntSet {}

/// The first kind of block that does not hold integers.
pub(crate) const INT_KINDS: u8 = 3;

/// Evaluates an expression in which `W` is the width of an integer in bytes.
macro_rules! with_width {
    ($set:expr, $body:expr) => {
        match $set.0.kind() {
            0 => {
                const W: usize = 2;
                $body
            }
            1 => {
                const W: usize = 4;
                $body
            }
            _ => {
                const W: usize = 8;
                $body
            }
        }
    };
}

impl IntSet {
    /// An empty set, without allocation.
    pub(crate) const fn new() -> IntSet {
        IntSet(Block::new())
    }

    /// The block that holds the integers.
    pub(crate) fn into_block(self) -> Block {
        self.0
    }

    /// Number of integers.
    pub(crate) fn len(&self) -> usize {
        with_width!(self, self.0.len() / W)
    }

    /// Whether one more integer fits, whatever its width.
    pub(crate) fn has_room(&self) -> bool {
        Block::fits((self.len() + 1) * size_of::<i64>(), 0)
    }

    /// Whether the set contains `value`.
    #[inline]
    pub(crate) fn contains(&self, value: i64) -> bool {
        with_width!(self, search::<W>(self.0.bytes(), value).is_ok())
    }

    /// The integer with this index, in ascending order.
    pub(crate) fn get(&self, index: usize) -> Option<i64> {
        with_width!(self, ints::<W>(self.0.bytes()).get(index).map(decode))
    }

    /// All integers in ascending order.
    pub(crate) fn iter(&self) -> impl DoubleEndedIterator<Item = i64> + ExactSizeIterator {
        (0..self.len()).map(|index| self.get(index).expect("the index is below the length"))
    }

    /// Adds `value`; there must be [room](Self::has_room). Returns whether it is new.
    pub(crate) fn insert(&mut self, value: i64) -> bool {
        self.widen_for(value);
        with_width!(self, {
            let place = search::<W>(self.0.bytes(), value);
            if let Err(index) = place {
                self.0.splice(index * W, 0, &[&value.to_le_bytes()[..W]]);
            }
            place.is_err()
        })
    }

    /// Removes `value`. Returns whether it was there.
    pub(crate) fn remove(&mut self, value: i64) -> bool {
        with_width!(self, {
            let place = search::<W>(self.0.bytes(), value);
            if let Ok(index) = place {
                self.0.splice(index * W, W, &[]);
            }
            place.is_ok()
        })
    }

    /// Bytes allocated.
    pub(crate) fn heap_bytes(&self) -> usize {
        self.0.heap_bytes()
    }

    fn widen_for(&mut self, value: i64) {
        let kind = if i16::try_from(value).is_ok() {
            0
        } else if i32::try_from(value).is_ok() {
            1
        } else {
            2
        };
        if kind > self.0.kind() {
            let bytes: Vec<u8> =
                self.iter().flat_map(|value| value.to_le_bytes().into_iter().take(2 << kind)).collect();
            self.0 = Block::of_kind(kind);
            self.0.splice(0, 0, &[&bytes]);
        }
    }
}

fn ints<const W: usize>(bytes: &[u8]) -> &[[u8; W]] {
    bytes.as_chunks::<W>().0
}

#[inline]
fn decode<const W: usize>(int: &[u8; W]) -> i64 {
    let mut wide = [0; size_of::<i64>()];
    wide[size_of::<i64>() - W..].copy_from_slice(int);
    // Shifts down from the upper bytes, extending the sign.
    i64::from_le_bytes(wide) >> (8 * (size_of::<i64>() - W))
}

/// The index of `value`, or the index to insert it at.
#[inline]
fn search<const W: usize>(bytes: &[u8], value: i64) -> Result<usize, usize> {
    ints::<W>(bytes).binary_search_by(|int| decode(int).cmp(&value))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn widens_with_its_values() {
        let mut set = IntSet::new();
        let mut bytes = Vec::new();
        for value in [1, -32_768, 32_767, 32_768, -2_147_483_648, 2_147_483_648, i64::MIN, i64::MAX] {
            assert!(!set.contains(value));
            assert!(!set.remove(value));
            assert!(set.insert(value));
            assert!(!set.insert(value));
            bytes.push(2 << set.0.kind());
        }
        assert_eq!(bytes, [2, 2, 2, 4, 4, 8, 8, 8]);
        assert_eq!(set.heap_bytes(), 80);
    }

    proptest! {
        #[test]
        fn behaves_as_a_sorted_set(steps in proptest::collection::vec(
            (prop_oneof![-50..50i64, -70_000..70_000i64, any::<i64>()], any::<bool>()), 0..200,
        )) {
            let mut set = IntSet::new();
            let mut model = BTreeSet::new();
            for (value, add) in steps {
                prop_assert_eq!(set.contains(value), model.contains(&value));
                if add {
                    prop_assert_eq!(set.insert(value), model.insert(value));
                } else {
                    prop_assert_eq!(set.remove(value), model.remove(&value));
                }
            }
            prop_assert!(set.iter().eq(model.iter().copied()));
            prop_assert_eq!(set.len(), model.len());
            prop_assert!((0..=set.len()).map(|i| set.get(i)).eq(model.iter().copied().map(Some).chain([None])));
        }
    }
}
