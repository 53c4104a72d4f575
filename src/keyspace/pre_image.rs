//! Pre-images: the part of a value that a change touches, as it was before. Such a part is a field, a member, an
//! element, or some bytes.
//!
//! A pre-image is taken right before the change. It is put back right after all later changes have been undone, so
//! it may name positions.

use super::any_value::{ValueMut, ValueRef};
use super::entry::{Key, NEVER};
use super::value_limits::ValueLimits;
use crate::value::grants::{Grants, OwnedGrant};
use crate::value::list::{List, ListPreImage};
use crate::value::stock::{MemoryPreImage, Terms};
use crate::value::stream::{Stream, StreamPreImage, StreamTail};
use crate::value::string::StringRef;
use crate::value::zset::ZSetLimits;

/// See the module header.
pub(super) enum PreImage {
    /// Of a string: `before` took the place of the `len` bytes that now start at `offset`.
    Bytes { offset: usize, len: usize, before: Box<[u8]> },
    /// Of a hash: a field with its value and deadline, `None` if it did not exist.
    Field { field: Key, before: Option<Box<(Key, i64)>> },
    /// Of a set: a member with its deadline, `None` if it did not exist.
    Member { member: Key, before: Option<i64> },
    /// Of a sorted set: a member with its score, `None` if it did not exist.
    Scored { member: Key, before: Option<f64> },
    /// Of a list.
    List(ListPreImage),
    /// Of a stream: its end, before an entry was appended.
    Tail(StreamTail),
    /// Of a stream.
    Stream(Box<StreamPreImage>),
    /// Of a lock, gate or stock: a holder's grant, `None` if it had none.
    Grant { holder: Key, before: Option<Box<OwnedGrant>> },
    /// Of a lock or gate: its limit, and whether the limit was its own.
    GrantsLimit { limit: u64, is_fixed: bool },
    /// Of a stock: its amounts and rules.
    Terms(Box<Terms>),
    /// Of a stock: its memories.
    Memory(Box<MemoryPreImage>),
}

impl PreImage {
    /// For replacing `removed` bytes of a string from `offset` on by `added` others.
    pub(super) fn bytes(value: ValueRef<'_>, offset: usize, removed: usize, added: usize) -> Option<PreImage> {
        let ValueRef::String(text) = value else { return None };
        // The representation stays only if the string grows in place, or already lies outside of its entry.
        let lies_outside = matches!(text, StringRef::Heap(_) | StringRef::Raw(_));
        if !lies_outside || text.len() < removed + SMALL_STRING_BYTES {
            return None;
        }
        let text = text.text();
        let before = text.get(offset..offset.checked_add(removed)?)?;
        Some(PreImage::Bytes { offset, len: added, before: before.into() })
    }

    /// For writing, removing or setting the deadline of a field. `None` while the hash is compact, because its order
    /// would be lost.
    pub(super) fn field(value: ValueRef<'_>, field: &[u8]) -> Option<PreImage> {
        let ValueRef::Hash(hash) = value else { return None };
        if hash.compact_bytes().is_some() {
            return None;
        }
        let at_ms = || hash.deadlines().and_then(|deadlines| deadlines.at(field)).unwrap_or(NEVER);
        let before = hash.stored(field).map(|value| Box::new((Key::new(&value.to_vec()), at_ms())));
        Some(PreImage::Field { field: Key::new(field), before })
    }

    /// For adding, removing or setting the deadline of a member of a set. `None` while the set is compact.
    pub(super) fn member(value: ValueRef<'_>, member: &[u8]) -> Option<PreImage> {
        let ValueRef::Set(set) = value else { return None };
        if set.compact_bytes().is_some() {
            return None;
        }
        let at_ms = || set.deadlines().and_then(|deadlines| deadlines.at(member)).unwrap_or(NEVER);
        Some(PreImage::Member { member: Key::new(member), before: set.is_stored(member).then(at_ms) })
    }

    /// For removing or setting the deadline of an element of a hash or set.
    pub(super) fn element(value: ValueRef<'_>, element: &[u8]) -> Option<PreImage> {
        match value {
            ValueRef::Hash(_) => PreImage::field(value, element),
            _ => PreImage::member(value, element),
        }
    }

    /// For a change of a list.
    pub(super) fn list(value: ValueRef<'_>, pre_image: impl FnOnce(&List) -> Option<ListPreImage>) -> Option<PreImage> {
        let ValueRef::List(list) = value else { return None };
        pre_image(list).map(PreImage::List)
    }

    /// For appending an entry to a stream.
    pub(super) fn tail(value: ValueRef<'_>) -> Option<PreImage> {
        let ValueRef::Stream(stream) = value else { return None };
        Some(PreImage::Tail(stream.before_append()))
    }

    /// For a change of a stream.
    pub(super) fn stream(value: ValueRef<'_>, pre_image: impl FnOnce(&Stream) -> StreamPreImage) -> Option<PreImage> {
        let ValueRef::Stream(stream) = value else { return None };
        Some(PreImage::Stream(Box::new(pre_image(stream))))
    }

    /// For giving a holder a grant, or ending its grant. `None` while there are few grants, which are copied instead.
    pub(super) fn grant(value: ValueRef<'_>, holder: &[u8]) -> Option<PreImage> {
        let ValueRef::Grants(grants) = value else { return None };
        if grants.compact_bytes().is_some() {
            return None;
        }
        let before = grants.get(holder).map(|grant| Box::new(OwnedGrant::from(grant)));
        Some(PreImage::Grant { holder: Key::new(holder), before })
    }

    /// For changing the limit of a lock or gate.
    pub(super) fn grants_limit(value: ValueRef<'_>) -> Option<PreImage> {
        let ValueRef::Grants(grants) = value else { return None };
        Some(PreImage::GrantsLimit { limit: grants.limit(), is_fixed: grants.is_fixed() })
    }

    /// For changing the amounts or rules of a stock. `None` while the stock is small.
    pub(super) fn terms(value: ValueRef<'_>) -> Option<PreImage> {
        let ValueRef::Grants(grants) = value else { return None };
        let stock = grants.stock().filter(|_| grants.compact_bytes().is_none())?;
        Some(PreImage::Terms(Box::new(stock.terms.clone())))
    }

    /// Approximate bytes outside of the pre-image.
    pub(super) fn heap_bytes(&self) -> usize {
        let text = |key: &Key| size_of::<Key>() + key.heap_bytes();
        match self {
            PreImage::Bytes { before, .. } => before.len(),
            PreImage::Field { field, before } => {
                field.heap_bytes() + before.as_ref().map_or(0, |before| size_of::<i64>() + text(&before.0))
            }
            PreImage::Member { member, .. } | PreImage::Scored { member, .. } => member.heap_bytes(),
            PreImage::Tail(_) | PreImage::GrantsLimit { .. } => 0,
            PreImage::Terms(terms) => size_of::<Terms>() + terms.refiller.len(),
            PreImage::Memory(pre_image) => size_of::<MemoryPreImage>() + pre_image.heap_bytes(),
            PreImage::Grant { holder, before } => {
                let of_before = |before: &OwnedGrant| size_of::<OwnedGrant>() + before.heap_bytes();
                holder.heap_bytes() + before.as_deref().map_or(0, of_before)
            }
            PreImage::List(pre_image) => pre_image.heap_bytes(),
            PreImage::Stream(pre_image) => pre_image.mem_bytes(),
        }
    }

    /// Restores the value. A value of another type stays unchanged, since no verb changes the type in place.
    pub(super) fn put_back(self, value: ValueMut<'_>, limits: &ValueLimits) {
        match (self, value) {
            (PreImage::Bytes { offset, len, before }, ValueMut::Raw(text)) => {
                text.splice(offset, len, &before);
            }
            (PreImage::Field { field, before }, ValueMut::Hash(hash)) => {
                hash.remove(&field);
                if let Some(before) = before {
                    hash.insert(&field, &before.0, &limits.hash);
                    if before.1 != NEVER {
                        hash.set_deadline(&field, before.1);
                    }
                }
                hash.drop_empty_deadlines();
            }
            (PreImage::Member { member, before }, ValueMut::Set(set)) => {
                set.remove(&member);
                if let Some(at_ms) = before {
                    set.insert(&member, &limits.set);
                    if at_ms != NEVER {
                        set.set_deadline(&member, at_ms, &limits.set);
                    }
                }
                set.drop_empty_deadlines();
            }
            (PreImage::Scored { member, before: Some(score) }, ValueMut::ZSet(zset)) => {
                // The sorted set takes its earlier form, even if the limits have become smaller before the change.
                zset.insert(&member, score, ZSetLimits { max_entries: usize::MAX, max_value: usize::MAX });
            }
            (PreImage::Scored { member, before: None }, ValueMut::ZSet(zset)) => {
                zset.remove(&member);
            }
            (PreImage::List(pre_image), ValueMut::List(list)) => list.put_back(pre_image),
            (PreImage::Tail(tail), ValueMut::Stream(stream)) => stream.cut_to(tail),
            (PreImage::Stream(pre_image), ValueMut::Stream(stream)) => stream.put_back(*pre_image),
            (PreImage::Grant { holder, before }, ValueMut::Grants(grants)) => put_back_grant(grants, &holder, before),
            (PreImage::GrantsLimit { limit, is_fixed }, ValueMut::Grants(grants)) => grants.set_limit(limit, is_fixed),
            (PreImage::Terms(terms), ValueMut::Grants(grants)) => {
                grants.stock_mut().into_iter().for_each(|stock| stock.terms = (*terms).clone());
            }
            (PreImage::Memory(pre_image), ValueMut::Grants(grants)) => {
                let stock = grants.stock_mut();
                debug_assert!(stock.is_some(), "a stock stays a stock");
                if let Some(stock) = stock {
                    stock.put_back(*pre_image);
                }
            }
            _ => debug_assert!(false, "a pre-image is put back into its own value"),
        }
    }
}

fn put_back_grant(grants: &mut Grants, holder: &[u8], before: Option<Box<OwnedGrant>>) {
    grants.remove(holder);
    if let Some(before) = before {
        let is_back = grants.set(before.as_grant());
        debug_assert!(is_back, "tokens are unique");
    }
}

/// Strings up to this length are copied, which is cheaper than noting the part that changes.
const SMALL_STRING_BYTES: usize = 128;
