//! Key prefixes named by an operator, and the prefix of each key.

/// A list of prefixes. A key belongs to the longest one that it begins with.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeyPrefixes {
    /// Sorted by descending length, so that the first match is the longest. No prefix is empty or occurs twice.
    prefixes: Vec<Box<[u8]>>,
}

impl KeyPrefixes {
    /// Takes prefixes in any order. Empty ones are ignored.
    pub fn new<'a>(prefixes: impl Iterator<Item = &'a [u8]>) -> KeyPrefixes {
        let mut prefixes: Vec<Box<[u8]>> = prefixes.filter(|prefix| !prefix.is_empty()).map(Into::into).collect();
        prefixes.sort_unstable_by(|one, other| other.len().cmp(&one.len()).then_with(|| one.cmp(other)));
        prefixes.dedup();
        KeyPrefixes { prefixes }
    }

    /// Returns the number of groups of keys: one for each prefix, and one for all other keys.
    pub fn groups(&self) -> usize {
        self.prefixes.len() + 1
    }

    /// Returns the group of a key, below [`groups`](Self::groups).
    #[inline]
    pub fn group_of(&self, key: &[u8]) -> usize {
        self.prefixes.iter().position(|prefix| key.starts_with(prefix)).unwrap_or(self.prefixes.len())
    }

    /// Returns the prefix of a group; empty for the group of all other keys.
    pub fn prefix(&self, group: usize) -> &[u8] {
        self.prefixes.get(group).map_or(&[], |prefix| prefix)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_belongs_to_the_longest_prefix_that_it_has() {
        let prefixes = KeyPrefixes::new([&b"a:"[..], b"", b"a:b:", b"c", b"a:"].into_iter());
        assert_eq!(prefixes.groups(), 4);
        let of = |key: &[u8]| prefixes.prefix(prefixes.group_of(key)).to_vec();
        for (key, prefix) in
            [("a:1", "a:"), ("a:b:1", "a:b:"), ("a:b", "a:"), ("c", "c"), ("a", ""), ("", ""), ("x", "")]
        {
            assert_eq!(of(key.as_bytes()), prefix.as_bytes(), "{key}");
        }
        let none = KeyPrefixes::default();
        assert_eq!((none.groups(), none.group_of(b"a"), none.prefix(0)), (1, 0, &b""[..]));
    }
}
