//! One key with its value, expiry and bookkeeping: one cache line.

use super::NEVER;
use crate::base::limits::{COMPACT_MAX_ENTRIES, UNDO_COPY_MAX_BYTES};
use crate::value::Layout;
use crate::value::deadlines::Deadlines;
use crate::value::hash::Hash;
use crate::value::list::List;
use crate::value::set::Set;
use crate::value::small_bytes::SmallBytes;
use crate::value::stream::Stream;
use crate::value::string::StringValue;
use crate::value::zset::ZSet;

/// A key. Up to 22 bytes lie inside the entry.
pub type Key = SmallBytes;

/// What a key holds.
#[derive(Clone)]
pub enum Value {
    /// Bytes or a counter.
    String(StringValue),
    /// Elements in order.
    List(List),
    /// Members.
    Set(Set),
    /// Members by score.
    ZSet(ZSet),
    /// Fields and values.
    Hash(Hash),
    /// Entries by time.
    Stream(Box<Stream>),
}

impl Value {
    /// Redis' name of the type, as TYPE answers it.
    pub fn type_name(&self) -> &'static str {
        match self {
            Value::String(_) => "string",
            Value::List(_) => "list",
            Value::Set(_) => "set",
            Value::ZSet(_) => "zset",
            Value::Hash(_) => "hash",
            Value::Stream(_) => "stream",
        }
    }

    /// Redis' name of the representation, as OBJECT ENCODING answers it.
    pub fn encoding(&self) -> &'static str {
        match self {
            Value::String(string) => string.encoding(),
            Value::List(list) => list.encoding(),
            Value::Set(set) => set.encoding(),
            Value::ZSet(zset) => zset.encoding(),
            Value::Hash(hash) => hash.encoding(),
            Value::Stream(_) => "stream",
        }
    }

    /// How it is laid out.
    pub(super) fn layout(&self) -> Layout {
        let is_compact = match self {
            Value::String(StringValue::Raw(_)) => false,
            Value::Set(set) => return set.layout(),
            Value::List(list) => list.is_compact(),
            Value::ZSet(zset) => zset.compact_bytes().is_some(),
            Value::Hash(hash) => hash.compact_bytes().is_some(),
            Value::String(_) | Value::Stream(_) => true,
        };
        if is_compact { Layout::Compact } else { Layout::Large }
    }

    /// Lays it out like this, whatever the limits; false where a value can't be, or is so only as it grows. Earlier versions had compact
    /// values that no block counts the entries of: these become large.
    pub(super) fn take_layout(&mut self, layout: Layout) -> bool {
        let layout = if layout == Layout::Compact && self.outgrows_block() { Layout::Large } else { layout };
        match self {
            _ if self.layout() == layout => {}
            Value::String(string) if layout == Layout::Large => _ = string.make_raw(),
            Value::String(string) if layout == Layout::Compact => string.make_plain(),
            Value::List(list) if layout != Layout::Integers => list.take_form(layout == Layout::Compact),
            Value::Set(set) => return set.take_layout(layout),
            _ => return false,
        }
        true
    }

    /// Whether a block can't count the entries of its compact form. A list that is compact may have nodes as well.
    fn outgrows_block(&self) -> bool {
        let entries = match self {
            Value::Hash(hash) => hash.stored_len() * 2,
            Value::Set(set) => set.stored_len(),
            Value::ZSet(zset) => zset.len(),
            Value::String(_) | Value::List(_) | Value::Stream(_) => 0,
        };
        entries > COMPACT_MAX_ENTRIES
    }

    /// When its elements expire, once one of them did.
    #[inline]
    pub fn deadlines(&self) -> Option<&Deadlines> {
        match self {
            Value::Hash(hash) => hash.deadlines(),
            Value::Set(set) => set.deadlines(),
            _ => None,
        }
    }

    /// As [`deadlines`](Self::deadlines), to change those of elements that are there.
    pub(super) fn deadlines_mut(&mut self) -> Option<&mut Deadlines> {
        match self {
            Value::Hash(hash) => hash.deadlines_mut(),
            Value::Set(set) => set.deadlines_mut(),
            _ => None,
        }
    }

    /// Whether an element of it expires some day.
    #[inline]
    pub(super) fn elements_expire(&self) -> bool {
        self.deadlines().is_some_and(|deadlines| !deadlines.is_empty())
    }

    /// Whether every element of it has expired by then.
    fn all_expired(&self, now_ms: i64) -> bool {
        let stored = match self {
            Value::Hash(hash) => hash.stored_len(),
            Value::Set(set) => set.stored_len(),
            _ => return false,
        };
        let spent = |deadlines: &Deadlines| deadlines.len() == stored && deadlines.last_ms() <= Some(now_ms);
        self.deadlines().is_some_and(spent)
    }

    /// Bytes to copy for a copy of it; `None` when it is not one small block.
    pub(super) fn compact_bytes(&self) -> Option<usize> {
        let deadlines = self.deadlines().map_or(0, |deadlines| deadlines.mem_bytes(1));
        let bytes = match self {
            Value::String(string) => Some(string.heap_bytes()),
            Value::List(list) => list.compact_bytes(),
            Value::Set(set) => set.compact_bytes(),
            Value::ZSet(zset) => zset.compact_bytes(),
            Value::Hash(hash) => hash.compact_bytes(),
            Value::Stream(_) => None,
        };
        bytes.map(|bytes| bytes + deadlines)
    }

    /// Whether a copy of it costs no more than a few notes of what changes in it.
    pub(super) fn is_small(&self) -> bool {
        self.compact_bytes().is_some_and(|bytes| bytes <= UNDO_COPY_MAX_BYTES)
    }

    /// Bytes held outside the entry, approximately: a large collection is judged by `samples` of its elements, 0 for all.
    pub fn heap_bytes(&self, samples: usize) -> usize {
        match self {
            Value::String(string) => string.heap_bytes(),
            Value::List(list) => list.mem_bytes(),
            Value::Set(set) => set.mem_bytes(samples),
            Value::ZSet(zset) => zset.mem_bytes(samples),
            Value::Hash(hash) => hash.mem_bytes(samples),
            Value::Stream(stream) => size_of::<Stream>() + stream.mem_bytes(),
        }
    }
}

/// A key and what belongs to it.
pub struct Entry {
    pub(super) key: Key,
    pub(super) value: Value,
    pub(super) expires_at_ms: i64,
    /// Tells this entry from others that lived in the same slot before or after; see [`slab`](super::slab).
    pub(super) version: u32,
    /// The deadline of this entry's live timer, `NEVER` when it has none; see [`expiry`](super::expiry).
    pub(super) armed_at_ms: i64,
    /// When it was last used, in seconds of the server's clock.
    pub(super) accessed_s: u32,
}

impl Entry {
    /// The key.
    pub fn key(&self) -> &[u8] {
        &self.key
    }

    /// The value.
    #[inline]
    pub fn value(&self) -> &Value {
        &self.value
    }

    /// When it expires, in Unix milliseconds; `None`: never.
    pub fn expires_at_ms(&self) -> Option<i64> {
        (self.expires_at_ms != NEVER).then_some(self.expires_at_ms)
    }

    /// Whether it is there at this time: neither the key has expired, nor every element of it.
    #[inline]
    pub(super) fn is_live(&self, now_ms: i64) -> bool {
        // An entry of which anything expires has a timer, and that fires no later.
        self.armed_at_ms > now_ms || (self.expires_at_ms > now_ms && !self.value.all_expired(now_ms))
    }

    /// When its timer must have fired: at the key's deadline or the first of an element; `NEVER` for neither.
    pub(super) fn due_at_ms(&self) -> i64 {
        self.expires_at_ms.min(self.value.deadlines().and_then(Deadlines::first_ms).unwrap_or(NEVER))
    }

    /// When it was last used, in Unix seconds.
    pub fn accessed_s(&self) -> u32 {
        self.accessed_s
    }

    /// Bytes it occupies, approximately: the entry, its key, its value and its share of the index.
    /// See [`Value::heap_bytes`] for `samples`.
    pub fn mem_bytes(&self, samples: usize) -> usize {
        size_of::<Entry>() + size_of::<u32>() + self.key.heap_bytes() + self.value.heap_bytes(samples)
    }
}

const _: () = {
    // A lookup that hits touches exactly one line of the entry's chunk.
    assert!(size_of::<Entry>() <= 64);
    assert!(size_of::<Value>() == 16);
};

#[cfg(test)]
mod tests {
    use super::*;
    use crate::value::hash::HashLimits;
    use crate::value::list::ListLimits;
    use crate::value::set::SetLimits;
    use crate::value::zset::ZSetLimits;

    /// What small collections allocate, as the allocator has it: their bytes, one more for each, scores, and eight in front.
    #[test]
    fn small_collections_take_little() {
        let element = |i: usize| format!("member-{i:03}").into_bytes();
        let (mut hash, mut set, mut zset, mut list) = (Hash::new(), Set::new(), ZSet::new(), List::new());
        let mut ints = Set::new();
        for i in 0..10 {
            hash.insert(&element(i), &element(i), &HashLimits::default());
            set.insert(&element(i), &SetLimits::default());
            ints.insert((1000 * i).to_string().as_bytes(), &SetLimits::default());
            zset.insert(&element(i), i as f64, ZSetLimits::default());
            list.push_back(&element(i), ListLimits::default());
        }
        let values = [Value::Hash(hash), Value::Set(set), Value::Set(ints), Value::ZSet(zset), Value::List(list)];
        assert_eq!(values.map(|value| value.heap_bytes(0)), [256, 128, 32, 128, 128]);
        let empty =
            [Value::Hash(Hash::new()), Value::Set(Set::new()), Value::ZSet(ZSet::new()), Value::List(List::new())];
        assert_eq!(empty.map(|value| value.heap_bytes(0)), [0; 4]);
    }

    #[test]
    fn what_no_block_counts_stays_large() {
        let (mut hash, mut set, mut zset) = (Hash::new(), Set::new(), ZSet::new());
        let (no_hash, no_set) = (HashLimits { max_listpack_entries: 0, ..HashLimits::default() }, SetLimits::default());
        (0..=COMPACT_MAX_ENTRIES).for_each(|i| {
            let member = format!("m{i}").into_bytes();
            hash.insert(&member, b"v", &no_hash);
            set.insert(&member, &no_set);
            zset.insert(&member, 1.0, ZSetLimits::default());
        });
        for mut value in [Value::Hash(hash), Value::Set(set), Value::ZSet(zset)] {
            assert!(value.take_layout(Layout::Compact), "it was compact in earlier versions");
            assert_eq!(value.layout(), Layout::Large);
        }
        let mut few = Hash::new();
        few.insert(b"f", b"v", &no_hash);
        assert!(!Value::Hash(few).take_layout(Layout::Compact));
    }
}
