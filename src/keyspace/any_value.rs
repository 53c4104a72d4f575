//! A value of any type, and the three ways of having one: owned ([`Value`]), to read ([`ValueRef`]), to change in place ([`ValueMut`]).

use crate::base::limits::{COMPACT_MAX_ENTRIES, UNDO_COPY_MAX_BYTES};
use crate::value::Layout;
use crate::value::block::Block;
use crate::value::deadlines::Deadlines;
use crate::value::grants::Grants;
use crate::value::hash::Hash;
use crate::value::list::List;
use crate::value::set::Set;
use crate::value::stream::Stream;
use crate::value::string::{StringRef, StringValue};
use crate::value::thin_bytes::ThinBytes;
use crate::value::zset::ZSet;

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
    /// Who holds a lock, a gate or a stock's units.
    Grants(Grants),
}

/// A value as it is read, wherever it lies.
#[derive(Clone, Copy)]
pub enum ValueRef<'a> {
    /// Bytes or a counter.
    String(StringRef<'a>),
    /// Elements in order.
    List(&'a List),
    /// Members.
    Set(&'a Set),
    /// Members by score.
    ZSet(&'a ZSet),
    /// Fields and values.
    Hash(&'a Hash),
    /// Entries by time.
    Stream(&'a Stream),
    /// Who holds a lock, a gate or a stock's units.
    Grants(&'a Grants),
}

impl Value {
    /// The value, to read it.
    #[inline]
    pub fn as_ref(&self) -> ValueRef<'_> {
        match self {
            Value::String(string) => ValueRef::String(string.as_ref()),
            Value::List(list) => ValueRef::List(list),
            Value::Set(set) => ValueRef::Set(set),
            Value::ZSet(zset) => ValueRef::ZSet(zset),
            Value::Hash(hash) => ValueRef::Hash(hash),
            Value::Stream(stream) => ValueRef::Stream(stream),
            Value::Grants(grants) => ValueRef::Grants(grants),
        }
    }

    /// The value, to change it in place; `None` for a string that is not raw.
    #[inline]
    pub(super) fn as_mut(&mut self) -> Option<ValueMut<'_>> {
        Some(match self {
            Value::String(StringValue::Raw(text)) => ValueMut::Raw(text),
            Value::String(_) => return None,
            Value::List(list) => ValueMut::List(list),
            Value::Set(set) => ValueMut::Set(set),
            Value::ZSet(zset) => ValueMut::ZSet(zset),
            Value::Hash(hash) => ValueMut::Hash(hash),
            Value::Stream(stream) => ValueMut::Stream(stream),
            Value::Grants(grants) => ValueMut::Grants(grants),
        })
    }

    /// Lays it out [as nearly](ValueRef::nearest_layout) like this as it can be, whatever the limits; false where a value can't be, or is
    /// so only as it grows.
    pub(super) fn take_layout(&mut self, layout: Layout) -> bool {
        let layout = self.as_ref().nearest_layout(layout);
        if let Value::String(string) = self {
            return string.take_layout(layout);
        }
        self.as_ref().layout() == layout || self.as_mut().is_some_and(|value| value.take_layout(layout))
    }
}

/// A value as it is changed in place. A string is only when it was made raw before; else it is replaced as a whole.
pub(super) enum ValueMut<'a> {
    Raw(&'a mut ThinBytes),
    List(&'a mut List),
    Set(&'a mut Set),
    ZSet(&'a mut ZSet),
    Hash(&'a mut Hash),
    Stream(&'a mut Stream),
    Grants(&'a mut Grants),
}

impl<'a> ValueMut<'a> {
    /// Gives it a layout that is not its own: see [`Value::take_layout`].
    pub(super) fn take_layout(self, layout: Layout) -> bool {
        match self {
            ValueMut::List(list) if layout != Layout::Integers => list.take_form(layout == Layout::Compact),
            ValueMut::Set(set) => return set.take_layout(layout),
            _ => return false,
        }
        true
    }

    /// As [`ValueRef::block`].
    pub(super) fn block(self) -> Option<&'a mut Block> {
        match self {
            ValueMut::List(list) => list.block_mut(),
            ValueMut::Set(set) => set.block_mut(),
            ValueMut::ZSet(zset) => zset.block_mut(),
            ValueMut::Hash(hash) => hash.block_mut(),
            ValueMut::Raw(_) | ValueMut::Stream(_) | ValueMut::Grants(_) => None,
        }
    }

    /// As [`ValueRef::deadlines`], to change those of elements that are there.
    pub(super) fn deadlines_mut(self) -> Option<&'a mut Deadlines> {
        match self {
            ValueMut::Hash(hash) => hash.deadlines_mut(),
            ValueMut::Set(set) => set.deadlines_mut(),
            _ => None,
        }
    }

    /// Tells when a timer looks at its elements, Unix ms.
    pub(super) fn set_timer_ms(self, at_ms: Option<i64>) {
        match self {
            ValueMut::Grants(grants) => grants.set_timer_ms(at_ms),
            ValueMut::Stream(stream) => stream.set_timer_ms(at_ms),
            other => _ = other.deadlines_mut().map(|deadlines| deadlines.set_timer_ms(at_ms)),
        }
    }

    /// A timer that comes before the next element expires need not be waited for.
    pub(super) fn put_off_timer(self) {
        match self {
            ValueMut::Grants(grants) => grants.put_off_timer(),
            other => _ = other.deadlines_mut().map(Deadlines::put_off_timer),
        }
    }
}

impl From<ValueRef<'_>> for Value {
    fn from(value: ValueRef<'_>) -> Value {
        match value {
            ValueRef::String(string) => Value::String(string.into()),
            ValueRef::List(list) => Value::List(list.clone()),
            ValueRef::Set(set) => Value::Set(set.clone()),
            ValueRef::ZSet(zset) => Value::ZSet(zset.clone()),
            ValueRef::Hash(hash) => Value::Hash(hash.clone()),
            ValueRef::Stream(stream) => Value::Stream(Box::new(stream.clone())),
            ValueRef::Grants(grants) => Value::Grants(grants.clone()),
        }
    }
}

impl<'a> ValueRef<'a> {
    /// The keys that the value has the server write by itself: a stock's stream, a stream's dead letters.
    pub fn written_keys(self) -> Vec<&'a [u8]> {
        match self {
            ValueRef::Grants(grants) => grants.stock().into_iter().map(|stock| &*stock.terms.stream).collect(),
            ValueRef::Stream(stream) => stream.policies().map(|(_, _, policy)| &*policy.dead_letters).collect(),
            _ => Vec::new(),
        }
        .into_iter()
        .filter(|key: &&[u8]| !key.is_empty())
        .collect()
    }

    /// Redis' name of the type, as TYPE answers it.
    pub fn type_name(self) -> &'static str {
        match self {
            ValueRef::String(_) => "string",
            ValueRef::List(_) => "list",
            ValueRef::Set(_) => "set",
            ValueRef::ZSet(_) => "zset",
            ValueRef::Hash(_) => "hash",
            ValueRef::Stream(_) => "stream",
            ValueRef::Grants(grants) => grants.kind().name(),
        }
    }

    /// Redis' name of the representation, as OBJECT ENCODING answers it.
    pub fn encoding(self) -> &'static str {
        match self {
            ValueRef::String(string) => string.encoding(),
            ValueRef::List(list) => list.encoding(),
            ValueRef::Set(set) => set.encoding(),
            ValueRef::ZSet(zset) => zset.encoding(),
            ValueRef::Hash(hash) => hash.encoding(),
            ValueRef::Stream(_) => "stream",
            ValueRef::Grants(_) => "grants",
        }
    }

    /// How it is laid out.
    pub(super) fn layout(self) -> Layout {
        let is_compact = match self {
            ValueRef::String(string) => return string.layout(),
            ValueRef::Set(set) => return set.layout(),
            ValueRef::List(list) => list.is_compact(),
            ValueRef::ZSet(zset) => zset.compact_bytes().is_some(),
            ValueRef::Hash(hash) => hash.compact_bytes().is_some(),
            ValueRef::Stream(_) | ValueRef::Grants(_) => true,
        };
        if is_compact { Layout::Compact } else { Layout::Large }
    }

    /// The layout that it gets when it is to have this one. Earlier versions had compact values that no block counts the entries of: these
    /// become large. A list that is compact may have nodes as well.
    pub(super) fn nearest_layout(self, layout: Layout) -> Layout {
        let entries = match self {
            ValueRef::Hash(hash) => hash.stored_len() * 2,
            ValueRef::Set(set) => set.stored_len(),
            ValueRef::ZSet(zset) => zset.len(),
            ValueRef::String(_) | ValueRef::List(_) | ValueRef::Stream(_) | ValueRef::Grants(_) => 0,
        };
        if layout == Layout::Compact && entries > COMPACT_MAX_ENTRIES { Layout::Large } else { layout }
    }

    /// The one block of which a small collection consists, if it may be embedded. One of grants may not: see [`Grants`].
    pub(super) fn block(self) -> Option<&'a Block> {
        match self {
            ValueRef::List(list) => list.block(),
            ValueRef::Set(set) => set.block(),
            ValueRef::ZSet(zset) => zset.block(),
            ValueRef::Hash(hash) => hash.block(),
            ValueRef::String(_) | ValueRef::Stream(_) | ValueRef::Grants(_) => None,
        }
    }

    /// When its elements expire, once one of them did.
    #[inline]
    pub fn deadlines(self) -> Option<&'a Deadlines> {
        match self {
            ValueRef::Hash(hash) => hash.deadlines(),
            ValueRef::Set(set) => set.deadlines(),
            _ => None,
        }
    }

    /// Whether an element of it expires some day: a field, a member, a grant. Or it is a stream that has timers: for its delayed messages,
    /// and for its dead letters, which come by themselves, and not to who looks.
    #[inline]
    pub(super) fn elements_expire(self) -> bool {
        match self {
            ValueRef::Grants(grants) => !grants.is_empty(),
            ValueRef::Stream(stream) => stream.needs_attendance(),
            _ => self.deadlines().is_some_and(|deadlines| !deadlines.is_empty()),
        }
    }

    /// When the first of its elements expires, Unix ms.
    #[inline]
    pub(super) fn first_due_ms(self) -> Option<i64> {
        match self {
            ValueRef::Grants(grants) => grants.first_end_ms(),
            ValueRef::Stream(stream) => stream.attention_ms(),
            _ => self.deadlines().and_then(Deadlines::first_ms),
        }
    }

    /// When a timer looks at its elements, at the latest, Unix ms; `None` if that is not promised.
    #[inline]
    pub(super) fn timer_ms(self) -> Option<i64> {
        match self {
            ValueRef::Grants(grants) => grants.timer_ms(),
            // Who looks meets delayed messages, of which it is known at any time which is the first.
            ValueRef::Stream(stream) => stream.release_ms(),
            _ => self.deadlines().and_then(Deadlines::timer_ms),
        }
    }

    /// Whether an element expires before a timer comes for it.
    pub(super) fn needs_timer(self) -> bool {
        match self {
            ValueRef::Grants(grants) => grants.need_timer(),
            ValueRef::Stream(stream) => stream.needs_timer(),
            _ => self.deadlines().is_some_and(Deadlines::need_timer),
        }
    }

    /// Whether every element of it has expired by then.
    pub(super) fn all_expired(self, now_ms: i64) -> bool {
        let stored = match self {
            ValueRef::Hash(hash) => hash.stored_len(),
            ValueRef::Set(set) => set.stored_len(),
            ValueRef::Grants(grants) => {
                return !grants.is_fixed() && grants.last_end_ms().is_some_and(|last_ms| last_ms <= now_ms);
            }
            _ => return false,
        };
        let spent = |deadlines: &Deadlines| deadlines.len() == stored && deadlines.last_ms() <= Some(now_ms);
        self.deadlines().is_some_and(spent)
    }

    /// Bytes to copy for a copy of it; `None` when it is not one small block.
    pub(super) fn compact_bytes(self) -> Option<usize> {
        let deadlines = self.deadlines().map_or(0, |deadlines| deadlines.mem_bytes(1));
        let bytes = match self {
            ValueRef::String(string) => Some(string.heap_bytes()),
            ValueRef::List(list) => list.compact_bytes(),
            ValueRef::Set(set) => set.compact_bytes(),
            ValueRef::ZSet(zset) => zset.compact_bytes(),
            ValueRef::Hash(hash) => hash.compact_bytes(),
            ValueRef::Stream(_) => None,
            ValueRef::Grants(grants) => grants.compact_bytes(),
        };
        bytes.map(|bytes| bytes + deadlines)
    }

    /// Whether a copy of it costs no more than a few notes of what changes in it.
    pub(super) fn is_small(self) -> bool {
        self.compact_bytes().is_some_and(|bytes| bytes <= UNDO_COPY_MAX_BYTES)
    }

    /// Bytes held outside of its entry, approximately: a large collection is judged by `samples` of its elements, 0 for all.
    pub fn heap_bytes(self, samples: usize) -> usize {
        match self {
            ValueRef::String(string) => string.heap_bytes(),
            ValueRef::List(list) => list.mem_bytes(),
            ValueRef::Set(set) => set.mem_bytes(samples),
            ValueRef::ZSet(zset) => zset.mem_bytes(samples),
            ValueRef::Hash(hash) => hash.mem_bytes(samples),
            ValueRef::Stream(stream) => size_of::<Stream>() + stream.mem_bytes(),
            ValueRef::Grants(grants) => grants.mem_bytes(),
        }
    }
}

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
        assert_eq!(values.map(|value| value.as_ref().heap_bytes(0)), [256, 128, 32, 128, 128]);
        let empty =
            [Value::Hash(Hash::new()), Value::Set(Set::new()), Value::ZSet(ZSet::new()), Value::List(List::new())];
        assert_eq!(empty.map(|value| value.as_ref().heap_bytes(0)), [0; 4]);
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
            assert_eq!(value.as_ref().layout(), Layout::Large);
        }
        let mut few = Hash::new();
        few.insert(b"f", b"v", &no_hash);
        assert!(!Value::Hash(few).take_layout(Layout::Compact));
    }
}
