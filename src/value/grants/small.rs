//! A few grants, and everything else that a lock or gate has, in one [`Block`]. The block's count is the number of
//! grants, and its kind holds these bits:
//!
//! ```text
//! | - | - | timer is stored | timer is at the end | has a limit | is fixed | lock 0, gate 1, stock 2 |
//! ```
//!
//! # Layout
//! ```text
//! timer         Unix ms, i64, little-endian; only if stored
//! limit         only if not 0
//! each grant    token, units, since, lease, entered * 2 + shared, length of holder, length of note, holder, note
//! ```
//!
//! The limit and the seven numbers of a grant are LEB128. `lease` is the end minus `since`, both modulo 2^64. Grants
//! are ordered by their tokens.
//!
//! # Timer
//! Nearly all locks have one grant and a timer that fires when its lease ends. Such a timer takes no bytes, just a bit.
//! A timer at another time is stored: for example, one set for an end before the lease was prolonged. The timer of
//! several grants is stored too, so that not every call has to search for the first end. The representation depends
//! only on the grants and the timer.

use std::ops::Range;

use super::grant::{Grant, Kind};
use crate::value::block::{Block, InBlock};
use crate::value::leb128::{Reader, number_len, write_number};

/// The most grants that count as few.
pub const FEW: usize = 64;

/// A few grants. See the module's header. A new one is a lock.
#[derive(Clone, Default)]
#[repr(transparent)]
pub(super) struct Small(Block);

// SAFETY: the struct is transparent over one `Block`.
unsafe impl InBlock for Small {}

/// The bits of the kind.
const KIND: u8 = 0b11;
/// The limit belongs to the gate itself.
const FIXED: u8 = 1 << 2;
/// There is a limit, and it is not 0.
const LIMITED: u8 = 1 << 3;
/// A timer fires at the end of the only grant.
const TIMER_AT_END: u8 = 1 << 4;
/// A timer fires at a stored time.
const TIMER_STORED: u8 = 1 << 5;

/// Bytes of a stored timer.
const TIMER_BYTES: usize = size_of::<i64>();

impl Small {
    /// No grants, and no limit.
    pub(super) fn new(kind: Kind) -> Small {
        let mut small = Small::default();
        small.0.set_kind(match kind {
            Kind::Lock => 0,
            Kind::Gate => 1,
            Kind::Stock => 2,
        });
        small
    }

    /// Rebuilds the grants from a block returned by [`into_block`](Self::into_block).
    pub(super) fn of_block(block: Block) -> Small {
        Small(block)
    }

    /// The block with all grants.
    pub(super) fn into_block(self) -> Block {
        self.0
    }

    /// The kind of object that the grants belong to.
    #[inline]
    pub(super) fn kind(&self) -> Kind {
        match self.0.kind() & KIND {
            0 => Kind::Lock,
            1 => Kind::Gate,
            _ => Kind::Stock,
        }
    }

    /// The limit; 0 for none.
    pub(super) fn limit(&self) -> u64 {
        if self.has(LIMITED) { self.reader_at(self.timer_bytes()).number() } else { 0 }
    }

    /// Whether the limit belongs to the gate itself.
    #[inline]
    pub(super) fn is_fixed(&self) -> bool {
        self.has(FIXED)
    }

    /// Sets the limit, and whether it belongs to the gate itself.
    pub(super) fn set_limit(&mut self, limit: u64, is_fixed: bool) {
        let at = self.timer_bytes();
        let mut number = Numbers::default();
        if limit != 0 {
            number.put(limit);
        }
        self.0.splice(at, self.grants_at() - at, &[number.bytes()]);
        self.set(FIXED, is_fixed);
        self.set(LIMITED, limit != 0);
    }

    /// The time at which the timer fires, Unix ms.
    #[inline]
    pub(super) fn timer_ms(&self) -> Option<i64> {
        if self.has(TIMER_AT_END) {
            return self.grants().next().map(|grant| grant.until_ms);
        }
        let timer = self.0.bytes().first_chunk().filter(|_| self.has(TIMER_STORED))?;
        Some(i64::from_le_bytes(*timer))
    }

    /// Sets the time at which the timer fires.
    pub(super) fn set_timer_ms(&mut self, timer_ms: Option<i64>) {
        let is_at_end = timer_ms.is_some() && self.only_end_ms() == timer_ms;
        let stored = timer_ms.filter(|_| !is_at_end).map(i64::to_le_bytes);
        self.0.splice(0, self.timer_bytes(), &[stored.as_ref().map_or(&[], |bytes| &bytes[..])]);
        self.set(TIMER_AT_END, is_at_end);
        self.set(TIMER_STORED, stored.is_some());
    }

    /// The end of the lease, if there is exactly one grant.
    fn only_end_ms(&self) -> Option<i64> {
        if self.len() == 1 { self.grants().next().map(|grant| grant.until_ms) } else { None }
    }

    /// The number of grants.
    #[inline]
    pub(super) fn len(&self) -> usize {
        self.0.count()
    }

    /// The grants, in the order of their tokens.
    #[inline]
    pub(super) fn grants(&self) -> impl Iterator<Item = Grant<'_>> {
        self.walk().map(|(_, grant)| grant)
    }

    /// The grant of a holder.
    pub(super) fn get(&self, holder: &[u8]) -> Option<Grant<'_>> {
        self.grants().find(|grant| grant.holder == holder)
    }

    /// The bytes that a grant replaces: those of its holder's present grant, or an empty range between two grants.
    /// `None` if its holder has a grant with another token, or another holder has its token.
    pub(super) fn place(&self, grant: &Grant<'_>) -> Option<Range<usize>> {
        let mut before = None;
        for (range, other) in self.walk() {
            match (other.token == grant.token, other.holder == grant.holder) {
                (true, true) => return Some(range),
                (false, false) => {}
                _ => return None,
            }
            if other.token > grant.token && before.is_none() {
                before = Some(range.start);
            }
        }
        let at = before.unwrap_or(self.0.len());
        Some(at..at)
    }

    /// Whether the block stays small with a grant at this [place](Self::place).
    pub(super) fn has_room(&self, place: &Range<usize>) -> bool {
        !place.is_empty() || self.len() < FEW
    }

    /// Puts a grant at its [place](Self::place). There must be room.
    pub(super) fn put(&mut self, place: Range<usize>, grant: &Grant<'_>) {
        let timer_ms = self.timer_ms();
        let numbers = Numbers::of(grant);
        self.0.splice(place.start, place.len(), &[numbers.bytes(), grant.holder, grant.note]);
        self.0.set_count(self.len() + usize::from(place.is_empty()));
        self.set_timer_ms(timer_ms);
    }

    /// Removes a holder's grant. Returns false if it has none. Removing the last one also removes the timer.
    pub(super) fn remove(&mut self, holder: &[u8]) -> bool {
        let Some((range, _)) = self.walk().find(|(_, grant)| grant.holder == holder) else { return false };
        if self.len() > 1 {
            let timer_ms = self.timer_ms();
            self.0.splice(range.start, range.len(), &[]);
            self.0.set_count(self.len() - 1);
            self.set_timer_ms(timer_ms);
            return true;
        }
        self.clear(None);
        if self.is_fixed() {
            self.tighten();
        }
        true
    }

    /// Removes all grants but keeps their room: in nearly all cases, the key is about to go too.
    pub(super) fn clear(&mut self, timer_ms: Option<i64>) {
        let (limit, is_fixed) = (self.limit(), self.is_fixed());
        self.0.cut(0);
        self.0.set_count(0);
        self.0.set_kind(self.0.kind() & KIND);
        self.set_limit(limit, is_fixed);
        self.set_timer_ms(timer_ms);
    }

    /// Frees spare room.
    pub(super) fn tighten(&mut self) {
        self.0 = self.0.clone();
    }

    /// Adds grants to an empty block. They must be in the order of their tokens.
    pub(super) fn fill<'a>(&mut self, grants: impl Iterator<Item = Grant<'a>>) {
        let timer_ms = self.timer_ms();
        for grant in grants {
            self.0.append(&[Numbers::of(&grant).bytes(), grant.holder, grant.note]);
        }
        self.set_timer_ms(timer_ms);
    }

    /// Bytes to copy for a copy of the block.
    pub(super) fn bytes(&self) -> usize {
        self.0.len()
    }

    /// Bytes allocated.
    pub(super) fn heap_bytes(&self) -> usize {
        self.0.heap_bytes()
    }

    #[inline]
    fn has(&self, bit: u8) -> bool {
        self.0.kind() & bit != 0
    }

    #[inline]
    fn set(&mut self, bit: u8, to: bool) {
        let kind = self.0.kind();
        self.0.set_kind(if to { kind | bit } else { kind & !bit });
    }

    #[inline]
    fn timer_bytes(&self) -> usize {
        if self.has(TIMER_STORED) { TIMER_BYTES } else { 0 }
    }

    /// The start of the first grant.
    #[inline]
    fn grants_at(&self) -> usize {
        let mut reader = self.reader_at(self.timer_bytes());
        if self.has(LIMITED) {
            reader.number();
        }
        reader.at
    }

    #[inline]
    fn reader_at(&self, at: usize) -> Reader<'_> {
        Reader { bytes: self.0.bytes(), at }
    }

    #[inline]
    fn walk(&self) -> Walk<'_> {
        Walk { reader: self.reader_at(self.grants_at()) }
    }
}

/// Encoded numbers, at most those of one grant.
struct Numbers {
    bytes: [u8; Numbers::MAX_BYTES],
    len: usize,
}

impl Default for Numbers {
    fn default() -> Numbers {
        Numbers { bytes: [0; Numbers::MAX_BYTES], len: 0 }
    }
}

impl Numbers {
    /// Seven numbers of 64 bits each.
    const MAX_BYTES: usize = 7 * 10;

    /// The numbers in front of holder and note.
    fn of(grant: &Grant<'_>) -> Numbers {
        let lease = grant.until_ms.wrapping_sub(grant.since_ms) as u64;
        let entered = grant.entered.min(u64::MAX / 2) * 2 + u64::from(grant.shared);
        let lens = [grant.holder.len() as u64, grant.note.len() as u64];
        let mut numbers = Numbers::default();
        for number in [grant.token, grant.units, grant.since_ms as u64, lease, entered].into_iter().chain(lens) {
            numbers.put(number);
        }
        numbers
    }

    fn put(&mut self, number: u64) {
        let end = self.len + number_len(number);
        write_number(&mut self.bytes[self.len..end], number);
        self.len = end;
    }

    fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

/// Walks over the grants, each with the range of its bytes.
struct Walk<'a> {
    reader: Reader<'a>,
}

impl<'a> Walk<'a> {
    fn text(&mut self, len: u64) -> &'a [u8] {
        let start = self.reader.at;
        self.reader.at += len as usize;
        &self.reader.bytes[start..self.reader.at]
    }
}

impl<'a> Iterator for Walk<'a> {
    type Item = (Range<usize>, Grant<'a>);

    fn next(&mut self) -> Option<Self::Item> {
        let start = self.reader.at;
        if start == self.reader.bytes.len() {
            return None;
        }
        let [token, units, since, lease, entered, holder, note]: [u64; 7] =
            std::array::from_fn(|_| self.reader.number());
        let (holder, note) = (self.text(holder), self.text(note));
        let grant = Grant {
            holder,
            token,
            units,
            since_ms: since as i64,
            until_ms: since.wrapping_add(lease) as i64,
            entered: entered / 2,
            shared: entered % 2 == 1,
            note,
        };
        Some((start..self.reader.at, grant))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grant(holder: &[u8], token: u64, until_ms: i64) -> Grant<'_> {
        Grant { holder, token, units: 1, since_ms: 5, until_ms, entered: 1, shared: false, note: b"note" }
    }

    fn set(small: &mut Small, grant: &Grant<'_>) {
        let place = small.place(grant).expect("it fits");
        small.put(place, grant);
    }

    /// Grants and limit stay as they are whatever happens to the timer, and the timer is stored only where necessary.
    #[test]
    fn a_timer_is_stored_unless_it_fires_at_the_end_of_the_only_grant() {
        for limit in [0, 3, 1_000] {
            let mut gate = Small::new(Kind::Gate);
            gate.set_limit(limit, true);
            let stored = |gate: &Small| gate.timer_bytes() > 0;
            let shown = |gate: &Small| (gate.kind(), gate.limit(), gate.is_fixed(), gate.len());
            gate.set_timer_ms(Some(70));
            assert!(gate.timer_ms() == Some(70) && stored(&gate) && shown(&gate) == (Kind::Gate, limit, true, 0));
            set(&mut gate, &grant(b"b", 7, 70));
            assert!(gate.timer_ms() == Some(70) && !stored(&gate));
            // The lease is prolonged while the timer still fires at the old time; then the timer is put off.
            set(&mut gate, &grant(b"b", 7, 90));
            assert!(gate.timer_ms() == Some(70) && stored(&gate));
            gate.set_timer_ms(Some(90));
            assert!(gate.timer_ms() == Some(90) && !stored(&gate));
            // Another grant comes and goes.
            set(&mut gate, &grant(b"a", 3, 80));
            assert!(gate.timer_ms() == Some(90) && stored(&gate));
            gate.set_limit(limit + 200, false);
            assert!(gate.grants().eq([grant(b"a", 3, 80), grant(b"b", 7, 90)]));
            assert_eq!((shown(&gate), gate.timer_ms()), ((Kind::Gate, limit + 200, false, 2), Some(90)));
            assert!(gate.remove(b"a") && !gate.remove(b"a"));
            assert!(gate.timer_ms() == Some(90) && !stored(&gate));
            gate.set_timer_ms(None);
            assert!(gate.timer_ms().is_none() && !stored(&gate) && gate.get(b"b") == Some(grant(b"b", 7, 90)));
            gate.set_timer_ms(Some(i64::MIN));
            assert!(gate.timer_ms() == Some(i64::MIN) && gate.get(b"b") == Some(grant(b"b", 7, 90)));
            assert!(gate.remove(b"b"));
            assert_eq!((shown(&gate), gate.timer_ms()), ((Kind::Gate, limit + 200, false, 0), None));
        }
    }

    #[test]
    fn removing_the_last_grant_allocates_nothing_and_leaves_no_spare_room() {
        let long = [b'h'; 300];
        for is_fixed in [false, true] {
            let mut gate = Small::new(Kind::Gate);
            gate.set_limit(9, is_fixed);
            set(&mut gate, &grant(&long, 1, 10));
            let (bytes, at) = (gate.heap_bytes(), gate.0.bytes().as_ptr());
            assert!(gate.remove(&long));
            assert_eq!(
                (gate.heap_bytes(), gate.0.bytes().as_ptr() == at),
                if is_fixed { (16, false) } else { (bytes, true) }
            );
            set(&mut gate, &grant(b"h", 2, 10));
            assert!(gate.grants().eq([grant(b"h", 2, 10)]) && gate.limit() == 9);
        }
    }
}
