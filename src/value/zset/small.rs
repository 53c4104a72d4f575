//! The small shape of a sorted set: two flat buffers, sorted.
//!
//! Entry `i` lies in `data[ends[i - 1]..ends[i]]` as eight bytes of score and then the member. The ends give binary search by
//! score, access by rank in O(1) and walking either way; a member is found by a linear pass that compares lengths before bytes,
//! over at most a few KB.

use std::ops::Range;

/// Up to where a sorted set stays in its small shape.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ZSetLimits {
    /// Most members of a small set (`zset-max-listpack-entries`).
    pub max_entries: usize,
    /// Longest member of a small set, in bytes (`zset-max-listpack-value`).
    pub max_value: usize,
}

impl Default for ZSetLimits {
    fn default() -> ZSetLimits {
        ZSetLimits { max_entries: 128, max_value: 64 }
    }
}

const SCORE_BYTES: usize = 8;

/// The small shape.
#[derive(Clone, Debug, Default)]
pub(super) struct Small {
    data: Vec<u8>,
    ends: Vec<u32>,
}

impl Small {
    pub(super) fn len(&self) -> usize {
        self.ends.len()
    }

    /// Bytes of the entries and their ends.
    pub(super) fn bytes(&self) -> usize {
        self.data.len() + self.ends.len() * size_of::<u32>()
    }

    /// Bytes of the heap held.
    pub(super) fn mem_bytes(&self) -> usize {
        self.data.capacity() + self.ends.capacity() * size_of::<u32>()
    }

    /// Whether `member` may be added: the limits allow it, and the ends still fit their 32 bits.
    pub(super) fn has_room(&self, member: &[u8], limits: ZSetLimits) -> bool {
        member.len() <= limits.max_value && self.data.len() + SCORE_BYTES + member.len() <= u32::MAX as usize
    }

    fn span(&self, index: usize) -> Range<usize> {
        let start = if index == 0 { 0 } else { self.ends[index - 1] as usize };
        start..self.ends[index] as usize
    }

    pub(super) fn get(&self, index: usize) -> Option<(&[u8], f64)> {
        if index >= self.len() {
            return None;
        }
        let (score, member) = self.data[self.span(index)].split_first_chunk::<SCORE_BYTES>()?;
        Some((member, f64::from_le_bytes(*score)))
    }

    pub(super) fn score(&self, index: usize) -> f64 {
        self.get(index).expect("the index came from find()").1
    }

    pub(super) fn find(&self, member: &[u8]) -> Option<usize> {
        let entry_bytes = SCORE_BYTES + member.len();
        let mut start = 0;
        for (index, &end) in self.ends.iter().enumerate() {
            let end = end as usize;
            if end - start == entry_bytes && self.data[start + SCORE_BYTES..end] == *member {
                return Some(index);
            }
            start = end;
        }
        None
    }

    pub(super) fn partition(&self, mut before: impl FnMut(f64, &[u8]) -> bool) -> usize {
        let (mut low, mut high) = (0, self.len());
        while low < high {
            let middle = (low + high) / 2;
            match self.get(middle) {
                Some((member, score)) if before(score, member) => low = middle + 1,
                _ => high = middle,
            }
        }
        low
    }

    pub(super) fn insert(&mut self, found: Option<usize>, member: &[u8], score: f64) -> Option<f64> {
        let old = found.map(|index| self.score(index));
        if let (Some(index), Some(old)) = (found, old) {
            if old == score {
                return Some(old);
            }
            self.remove(index);
        }
        let index = self.partition(|s, m| s < score || (s == score && m < member));
        let at = if index == 0 { 0 } else { self.ends[index - 1] as usize };
        let added = SCORE_BYTES + member.len();
        let tail = self.data.len();
        self.data.resize(tail + added, 0);
        self.data.copy_within(at..tail, at + added);
        self.data[at..at + SCORE_BYTES].copy_from_slice(&score.to_le_bytes());
        self.data[at + SCORE_BYTES..at + added].copy_from_slice(member);
        self.ends.insert(index, at as u32);
        self.ends[index..].iter_mut().for_each(|end| *end += added as u32);
        old
    }

    pub(super) fn remove(&mut self, index: usize) {
        let span = self.span(index);
        let removed = span.len() as u32;
        self.data.drain(span);
        self.ends.remove(index);
        self.ends[index..].iter_mut().for_each(|end| *end -= removed);
    }
}
