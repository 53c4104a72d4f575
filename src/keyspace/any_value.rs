//! A value of any type, in three forms: owned ([`Value`]), borrowed for reading ([`ValueRef`]), and borrowed for
//! changing in place ([`ValueMut`]).

use crate::keyspace::limits::UNDO_COPY_MAX_BYTES;
use crate::value::Layout;
use crate::value::block::Block;
use crate::value::deadlines::Deadlines;
use crate::value::grants::Grants;
use crate::value::hash::Hash;
use crate::value::limits::COMPACT_MAX_ENTRIES;
use crate::value::list::List;
use crate::value::set::Set;
use crate::value::stream::Stream;
use crate::value::string::{StringRef, StringValue};
use crate::value::thin_bytes::ThinBytes;
use crate::value::zset::ZSet;

/// The value of a key.
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
    /// The holders of a lock, a gate or a stock's units.
    Grants(Grants),
}

/// A value borrowed for reading, wherever it lies.
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
    /// The holders of a lock, a gate or a stock's units.
    Grants(&'a Grants),
}

impl Value {
    /// Borrows the value for reading.
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

    /// Borrows the value for changing in place. Returns `None` for a string that is not raw.
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

    /// Gives the value this layout, or the [nearest possible](ValueRef::nearest_layout), regardless of the limits.
    /// Returns false if the value cannot have the layout, or reaches it only by growing.
    pub(super) fn take_layout(&mut self, layout: Layout) -> bool {
        let layout = self.as_ref().nearest_layout(layout);
        if let Value::String(string) = self {
            return string.take_layout(layout);
        }
        self.as_ref().layout() == layout || self.as_mut().is_some_and(|value| value.take_layout(layout))
    }
}

/// A value borrowed for changing in place. A string must have been made raw before; any other string is replaced as a
/// whole.
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
    /// Gives the value another layout; see [`Value::take_layout`].
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

    /// As [`ValueRef::deadlines`], for changing the deadlines of existing elements.
    pub(super) fn deadlines_mut(self) -> Option<&'a mut Deadlines> {
        match self {
            ValueMut::Hash(hash) => hash.deadlines_mut(),
            ValueMut::Set(set) => set.deadlines_mut(),
            _ => None,
        }
    }

    /// Sets when a timer looks at the value's elements, Unix ms.
    pub(super) fn set_timer_ms(self, at_ms: Option<i64>) {
        match self {
            ValueMut::Grants(grants) => grants.set_timer_ms(at_ms),
            ValueMut::Stream(stream) => stream.set_timer_ms(at_ms),
            other => _ = other.deadlines_mut().map(|deadlines| deadlines.set_timer_ms(at_ms)),
        }
    }

    /// Declares that a timer before the next element's expiry is not needed.
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
    /// The keys to which the server writes on behalf of the value: a stock's stream, or a stream's dead letters.
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

    /// Redis' name of the type, as in the reply of TYPE.
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

    /// Redis' name of the representation, as in the reply of OBJECT ENCODING.
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

    /// The layout.
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

    /// Returns the layout to use when this one is requested. Earlier versions had compact values with more entries than
    /// a block can count; these become large. A compact list may consist of nodes as well.
    pub(super) fn nearest_layout(self, layout: Layout) -> Layout {
        let entries = match self {
            ValueRef::Hash(hash) => hash.stored_len() * 2,
            ValueRef::Set(set) => set.stored_len(),
            ValueRef::ZSet(zset) => zset.len(),
            ValueRef::String(_) | ValueRef::List(_) | ValueRef::Stream(_) | ValueRef::Grants(_) => 0,
        };
        if layout == Layout::Compact && entries > COMPACT_MAX_ENTRIES { Layout::Large } else { layout }
    }

    /// The single block of a small collection, if it may be embedded. A block of grants may not; see [`Grants`].
    pub(super) fn block(self) -> Option<&'a Block> {
        match self {
            ValueRef::List(list) => list.block(),
            ValueRef::Set(set) => set.block(),
            ValueRef::ZSet(zset) => zset.block(),
            ValueRef::Hash(hash) => hash.block(),
            ValueRef::String(_) | ValueRef::Stream(_) | ValueRef::Grants(_) => None,
        }
    }

    /// The deadlines of its elements, if any element has ever had one.
    #[inline]
    pub fn deadlines(self) -> Option<&'a Deadlines> {
        match self {
            ValueRef::Hash(hash) => hash.deadlines(),
            ValueRef::Set(set) => set.deadlines(),
            _ => None,
        }
    }

    /// Whether any element expires some day: a field, a member, or a grant. Also true for a stream with timers, for its
    /// delayed messages and for its dead letters, which move without a lookup.
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

    /// When a timer looks at its elements at the latest, Unix ms. `None` if there may be no such timer.
    #[inline]
    pub(super) fn timer_ms(self) -> Option<i64> {
        match self {
            ValueRef::Grants(grants) => grants.timer_ms(),
            // A lookup turns due messages into entries, so the first delayed message is known at any time.
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

    /// Whether all of its elements have expired by then.
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

    /// Bytes to copy for a copy of the value. `None` if it is not one small block.
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

    /// Whether a copy of the value costs no more than a few notes of its changes.
    pub(super) fn is_small(self) -> bool {
        self.compact_bytes().is_some_and(|bytes| bytes <= UNDO_COPY_MAX_BYTES)
    }

    /// Approximate bytes held outside of the entry. A large collection is estimated from `samples` elements, 0 for all.
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

    /// Allocations of small collections as the allocator sees them: their bytes, one more for each element, scores, and
    /// eight in front.
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
    fn values_beyond_the_count_of_a_block_stay_large() {
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
