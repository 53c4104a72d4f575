//! A sorted sequence of different integers, all stored in the width (16, 32 or 64 bits) that the largest needs: the form
//! of a small set of numbers. Looking up is a binary search; adding and removing move what is behind, so the owner bounds
//! the number of elements.

/// A sorted sequence of different integers. It never becomes narrower.
#[derive(Clone, Debug)]
pub(crate) struct IntSet(Ints);

#[derive(Clone, Debug)]
enum Ints {
    W16(Vec<i16>),
    W32(Vec<i32>),
    W64(Vec<i64>),
}

/// Evaluates an expression with the integers in their width.
macro_rules! with_ints {
    ($set:expr, $ints:ident => $body:expr) => {
        match $set {
            Ints::W16($ints) => $body,
            Ints::W32($ints) => $body,
            Ints::W64($ints) => $body,
        }
    };
}

impl Default for IntSet {
    fn default() -> Self {
        Self::new()
    }
}

impl IntSet {
    /// No integers, and no allocation.
    pub(crate) const fn new() -> IntSet {
        IntSet(Ints::W16(Vec::new()))
    }

    /// Number of integers.
    pub(crate) fn len(&self) -> usize {
        with_ints!(&self.0, ints => ints.len())
    }

    /// Whether `value` is among them.
    #[inline]
    pub(crate) fn contains(&self, value: i64) -> bool {
        with_ints!(&self.0, ints => search(ints, value).is_ok())
    }

    /// The integer with this index, in ascending order.
    pub(crate) fn get(&self, index: usize) -> Option<i64> {
        with_ints!(&self.0, ints => at(ints, index))
    }

    /// All in ascending order.
    pub(crate) fn iter(&self) -> impl DoubleEndedIterator<Item = i64> + ExactSizeIterator {
        (0..self.len()).map(|index| self.get(index).expect("the index is below the length"))
    }

    /// Adds `value`. True if it is new.
    pub(crate) fn insert(&mut self, value: i64) -> bool {
        self.widen_for(value);
        with_ints!(&mut self.0, ints => insert(ints, value))
    }

    /// Removes `value`. True if it was there.
    pub(crate) fn remove(&mut self, value: i64) -> bool {
        with_ints!(&mut self.0, ints => search(ints, value).map(|index| ints.remove(index)).is_ok())
    }

    /// Bytes allocated, without this header.
    pub(crate) fn mem_bytes(&self) -> usize {
        with_ints!(&self.0, ints => capacity_bytes(ints))
    }

    fn widen_for(&mut self, value: i64) {
        let fits_32 = i32::try_from(value).is_ok();
        match &self.0 {
            Ints::W16(_) if i16::try_from(value).is_ok() => {}
            Ints::W16(ints) if fits_32 => self.0 = Ints::W32(ints.iter().map(|&value| value.into()).collect()),
            Ints::W32(_) if fits_32 => {}
            Ints::W16(_) | Ints::W32(_) => self.0 = Ints::W64(self.iter().collect()),
            Ints::W64(_) => {}
        }
    }
}

fn at<T: Copy + Into<i64>>(ints: &[T], index: usize) -> Option<i64> {
    ints.get(index).map(|&value| value.into())
}

fn capacity_bytes<T>(ints: &Vec<T>) -> usize {
    ints.capacity() * size_of::<T>()
}

/// Where `value` is, or where it would have to be inserted.
#[inline]
fn search<T: Ord + TryFrom<i64>>(ints: &[T], value: i64) -> Result<usize, usize> {
    match T::try_from(value) {
        Ok(value) => ints.binary_search(&value),
        Err(_) => Err(if value < 0 { 0 } else { ints.len() }),
    }
}

fn insert<T: Ord + TryFrom<i64>>(ints: &mut Vec<T>, value: i64) -> bool {
    let (Err(index), Ok(value)) = (search(ints, value), T::try_from(value)) else { return false };
    if ints.len() == ints.capacity() {
        // Not doubling: there are many of these, and they are small.
        ints.reserve_exact(1 + ints.len() / 8);
    }
    ints.insert(index, value);
    true
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
            bytes.push(match &set.0 {
                Ints::W16(_) => 2,
                Ints::W32(_) => 4,
                Ints::W64(_) => 8,
            });
        }
        assert_eq!(bytes, [2, 2, 2, 4, 4, 8, 8, 8]);
        assert!(set.mem_bytes() >= 64);
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
