//! Grants: who holds what of a lock, a gate or a stock, with how many units, and until when.
//!
//! A grant belongs to a holder, has a *fencing token* that grows from grant to grant, and ends at its lease's end. The value has no
//! clock: whoever has one asks for the [first end](Grants::first_end) and removes what is over.
//!
//! Tokens are unique within a value and given out in ascending order, so they are the order in which grants came, too. By them a walk
//! over the holders goes on where it stopped, whoever came or went meanwhile.
//!
//! # Layout
//! Up to [`FEW`] grants are one block of exactly the bytes that they take, in the order of their tokens:
//!
//! ```text
//! token, units, since, lease, entered * 2 + shared, length of the holder, length of the note     numbers of LEB128
//! holder, note
//! ```
//!
//! `lease` is the end less `since`, both modulo 2^64. More grants have a tree by token, one by holder, and one of the ends. Which of the
//! two it is follows from the number of grants alone, so that whoever repeats what happened has the same.
//!
//! A [`Stock`] has more than its holds, in a box of its own. The holder of a hold is the order, and its note is the subject for which it is held.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::leb128::{Reader, put_number};
use super::stock::Stock;

/// Grants that are one block.
pub const FEW: usize = 64;

/// The largest fencing token: as far as a double is exact, so that clients in any language can compare them.
pub const TOKEN_MAX: u64 = (1 << 53) - 1;

/// The most units that one grant holds, and that a gate admits: sums of them stay far below 2^64.
pub const UNITS_MAX: u64 = u32::MAX as u64;

/// What the grants are of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// One holder, or several who share.
    Lock,
    /// So many units at a time.
    Gate,
    /// So many units in all.
    Stock,
}

impl Kind {
    /// What TYPE answers.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Lock => "lock",
            Kind::Gate => "gate",
            Kind::Stock => "stock",
        }
    }
}

/// One grant, as it is read or given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grant<'a> {
    /// Who holds it.
    pub holder: &'a [u8],
    /// Larger than those of all grants before it.
    pub token: u64,
    /// How many units it holds, 1 or more.
    pub units: u64,
    /// When it was given, Unix ms.
    pub since_ms: i64,
    /// When its lease ends, Unix ms.
    pub until_ms: i64,
    /// How often a lock was entered by its holder.
    pub entered: u64,
    /// Whether others may hold the lock as well.
    pub shared: bool,
    /// What the holder said about it. Of a stock's hold: the subject for which it is held, empty for none.
    pub note: &'a [u8],
}

impl Grant<'_> {
    /// The same grant with another end and note. It borrows nothing from where it was.
    pub fn renewed<'a>(self, holder: &'a [u8], until_ms: i64, note: &'a [u8]) -> Grant<'a> {
        let Grant { token, units, since_ms, entered, shared, .. } = self;
        Grant { holder, token, units, since_ms, until_ms, entered, shared, note }
    }
}

/// A grant that is kept elsewhere.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnedGrant {
    holder: Arc<[u8]>,
    token: u64,
    units: u64,
    since_ms: i64,
    until_ms: i64,
    entered: u64,
    shared: bool,
    note: Box<[u8]>,
}

impl From<Grant<'_>> for OwnedGrant {
    fn from(grant: Grant<'_>) -> OwnedGrant {
        let Grant { holder, token, units, since_ms, until_ms, entered, shared, note } = grant;
        OwnedGrant { holder: holder.into(), token, units, since_ms, until_ms, entered, shared, note: note.into() }
    }
}

impl OwnedGrant {
    /// The grant, to read it.
    pub fn as_grant(&self) -> Grant<'_> {
        let &OwnedGrant { token, units, since_ms, until_ms, entered, shared, .. } = self;
        Grant { holder: &self.holder, token, units, since_ms, until_ms, entered, shared, note: &self.note }
    }

    /// Bytes that it takes outside of itself.
    pub fn heap_bytes(&self) -> usize {
        2 * size_of::<usize>() + self.holder.len() + self.note.len()
    }
}

/// All grants of one lock, gate or stock. See the module's header.
#[derive(Clone)]
pub struct Grants {
    store: Store,
    /// What a stock has beside them.
    stock: Option<Box<Stock>>,
    /// Up to [`UNITS_MAX`].
    limit: u32,
    /// When whoever has a clock looks at the leases next, at the latest, Unix ms. `None` if that is not promised.
    timer_ms: Option<TimerMs>,
    kind: Kind,
    is_fixed: bool,
}

/// A time of which one value is left for "none": see [`Grants::timer_ms`].
#[derive(Clone, Copy)]
struct TimerMs(std::num::NonZeroU64);

impl TimerMs {
    /// `i64::MIN` counts as the moment behind it, at which everything is due as well.
    fn new(at_ms: i64) -> Option<TimerMs> {
        std::num::NonZeroU64::new((at_ms.max(i64::MIN + 1) as u64) ^ (1 << 63)).map(TimerMs)
    }

    fn get(self) -> i64 {
        (self.0.get() ^ (1 << 63)) as i64
    }
}

#[derive(Clone)]
enum Store {
    Few(Box<[u8]>),
    Many(Box<Many>),
}

#[derive(Clone, Default)]
struct Many {
    by_token: BTreeMap<u64, OwnedGrant>,
    by_holder: BTreeMap<Arc<[u8]>, u64>,
    ends: BTreeSet<(i64, u64)>,
    units: u64,
    /// Of holders and notes.
    text_bytes: usize,
}

impl Grants {
    /// No grants yet. `is_fixed`: the limit was set for the gate itself, and the value lasts without grants, as a stock always does.
    pub fn new(kind: Kind, limit: u64, is_fixed: bool) -> Grants {
        let (stock, is_fixed) = match kind {
            Kind::Stock => (Some(Box::default()), true),
            Kind::Lock | Kind::Gate => (None, is_fixed),
        };
        let mut grants = Grants { store: Store::Few(Box::default()), stock, limit: 0, timer_ms: None, kind, is_fixed };
        grants.set_limit(limit, is_fixed);
        grants
    }

    /// What a stock has beside its holds.
    pub fn stock(&self) -> Option<&Stock> {
        self.stock.as_deref()
    }

    /// See [`stock`](Self::stock).
    pub fn stock_mut(&mut self) -> Option<&mut Stock> {
        self.stock.as_deref_mut()
    }

    /// What they are of.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// How many units there may be: of a gate. 0 for a lock or a stock.
    pub fn limit(&self) -> u64 {
        self.limit.into()
    }

    /// Whether the limit is the gate's own, not that of the calls.
    pub fn is_fixed(&self) -> bool {
        self.is_fixed
    }

    /// Sets the limit, which is [`UNITS_MAX`] at most, and whether it is the gate's own.
    pub fn set_limit(&mut self, limit: u64, is_fixed: bool) {
        (self.limit, self.is_fixed) = (u32::try_from(limit).unwrap_or(u32::MAX), is_fixed);
    }

    /// How many grants there are.
    pub fn len(&self) -> usize {
        match &self.store {
            Store::Few(block) => Walk::new(block).count(),
            Store::Many(many) => many.by_token.len(),
        }
    }

    /// Whether there is no grant.
    pub fn is_empty(&self) -> bool {
        matches!(&self.store, Store::Few(block) if block.is_empty())
    }

    /// How many elements there are to copy or free: grants, and what a stock remembers.
    pub fn elements(&self) -> usize {
        self.len() + self.stock().map_or(0, Stock::elements)
    }

    /// Whether there is nothing to keep: neither a grant nor a limit of its own.
    pub fn is_hollow(&self) -> bool {
        self.is_empty() && !self.is_fixed
    }

    /// Units of all grants, of those whose leases are over and that are not removed yet as well.
    pub fn units(&self) -> u64 {
        match &self.store {
            Store::Few(block) => Walk::new(block).map(|(_, grant)| grant.units).sum(),
            Store::Many(many) => many.units,
        }
    }

    /// The grant of a holder.
    pub fn get(&self, holder: &[u8]) -> Option<Grant<'_>> {
        self.store.get(holder)
    }

    /// The grant that came first.
    pub fn first(&self) -> Option<Grant<'_>> {
        self.from(0).next()
    }

    /// The largest token of a grant that is there; 0 without any.
    pub fn last_token(&self) -> u64 {
        match &self.store {
            Store::Few(block) => Walk::new(block).last().map_or(0, |(_, grant)| grant.token),
            Store::Many(many) => many.by_token.last_key_value().map_or(0, |(token, _)| *token),
        }
    }

    /// The grants whose tokens are `token` or more, in the order of these.
    pub fn from(&self, token: u64) -> impl Iterator<Item = Grant<'_>> {
        let (few, many) = match &self.store {
            Store::Few(block) => (Some(Walk::new(block)), None),
            Store::Many(many) => (None, Some(many.by_token.range(token..))),
        };
        let few = few.into_iter().flatten().map(|(_, grant)| grant).filter(move |grant| grant.token >= token);
        few.chain(many.into_iter().flatten().map(|(_, grant)| grant.as_grant()))
    }

    /// The grant whose lease ends first.
    pub fn first_end(&self) -> Option<Grant<'_>> {
        match &self.store {
            Store::Few(block) => {
                Walk::new(block).map(|(_, grant)| grant).min_by_key(|grant| (grant.until_ms, grant.token))
            }
            Store::Many(many) => {
                let (_, token) = many.ends.first()?;
                many.by_token.get(token).map(OwnedGrant::as_grant)
            }
        }
    }

    /// When the first lease ends, Unix ms.
    pub fn first_end_ms(&self) -> Option<i64> {
        match &self.store {
            Store::Few(block) => Walk::new(block).map(|(_, grant)| grant.until_ms).min(),
            Store::Many(many) => many.ends.first().map(|(until_ms, _)| *until_ms),
        }
    }

    /// When the last lease ends, Unix ms.
    pub fn last_end_ms(&self) -> Option<i64> {
        match &self.store {
            Store::Few(block) => Walk::new(block).map(|(_, grant)| grant.until_ms).max(),
            Store::Many(many) => many.ends.last().map(|(until_ms, _)| *until_ms),
        }
    }

    /// When so many units come free by the ends of leases, of which the first `most` are looked at: if these hold fewer, when the last of
    /// them ends. Unix ms.
    pub fn frees_ms(&self, units: u64, most: usize) -> Option<i64> {
        let (mut left, mut at_ms) = (units, None);
        let mut wants_more = |until_ms: i64, freed: u64| {
            at_ms = Some(until_ms);
            left = left.saturating_sub(freed);
            left > 0
        };
        match &self.store {
            Store::Few(block) => {
                let mut ends: Vec<_> = Walk::new(block).map(|(_, grant)| (grant.until_ms, grant.units)).collect();
                ends.sort_unstable();
                ends.into_iter().take(most).all(|(until_ms, freed)| wants_more(until_ms, freed));
            }
            Store::Many(many) => {
                let units_of = |token| many.by_token.get(token).map_or(0, |grant| grant.units);
                many.ends.iter().take(most).all(|(until_ms, token)| wants_more(*until_ms, units_of(token)));
            }
        }
        at_ms
    }

    /// Gives a holder this grant, in place of the one of this token that it has. False, with nothing changed, where it does not fit: the
    /// holder has one of another token, another holder has the token, or its units or token are out of bounds.
    pub fn set(&mut self, grant: Grant<'_>) -> bool {
        let is_sound = (1..=UNITS_MAX).contains(&grant.units) && (1..=TOKEN_MAX).contains(&grant.token);
        let of_token = self.from(grant.token).next().filter(|other| other.token == grant.token);
        let of_holder = self.get(grant.holder);
        if !is_sound || of_token.map(|other| other.holder) != of_holder.map(|own| own.holder) {
            return false;
        }
        if let Some(stock) = &mut self.stock {
            if let Some(old) = self.store.get(grant.holder) {
                stock.let_go(old.note, old.units);
            }
            stock.hold(grant.note, grant.units);
        }
        match &mut self.store {
            Store::Many(many) => many.set(grant),
            Store::Few(block) => {
                // Written anew as a whole: it has few bytes, and they stay in exactly a place of their size.
                let mut new = Vec::with_capacity(block.len() + grant.holder.len() + grant.note.len() + 48);
                let (mut count, mut is_placed) = (0, false);
                for (bytes, other) in Walk::new(block) {
                    if other.token > grant.token && !is_placed {
                        put(&mut new, &grant);
                        (is_placed, count) = (true, count + 1);
                    }
                    if other.holder != grant.holder {
                        new.extend_from_slice(bytes);
                        count += 1;
                    }
                }
                if !is_placed {
                    put(&mut new, &grant);
                    count += 1;
                }
                self.store = if count <= FEW { Store::Few(new.into()) } else { Store::Many(Box::new(Many::of(&new))) };
            }
        }
        true
    }

    /// Takes away a holder's grant; false where it has none.
    pub fn remove(&mut self, holder: &[u8]) -> bool {
        if let Some(stock) = &mut self.stock
            && let Some(old) = self.store.get(holder)
        {
            stock.let_go(old.note, old.units);
        }
        match &mut self.store {
            Store::Many(many) => {
                let Some(token) = many.by_holder.remove(holder) else { return false };
                many.forget(token);
                if many.by_token.len() <= FEW {
                    let mut block = Vec::new();
                    many.by_token.values().for_each(|grant| put(&mut block, &grant.as_grant()));
                    self.store = Store::Few(block.into());
                }
            }
            Store::Few(block) => {
                let found = Walk::new(block).find(|(_, grant)| grant.holder == holder);
                let Some(range) = found.map(|(bytes, _)| range_in(block, bytes)) else { return false };
                *block = [&block[..range.start], &block[range.end..]].concat().into();
            }
        }
        if self.is_empty() {
            self.timer_ms = None;
        }
        true
    }

    /// When somebody will look at the leases, Unix ms. `None` if that is not promised.
    #[inline]
    pub fn timer_ms(&self) -> Option<i64> {
        self.timer_ms.map(TimerMs::get)
    }

    /// Tells when somebody will look at them.
    pub fn set_timer_ms(&mut self, timer_ms: Option<i64>) {
        self.timer_ms = timer_ms.and_then(TimerMs::new);
    }

    /// Whether a lease ends before somebody looks.
    pub fn need_timer(&self) -> bool {
        self.first_end_ms().is_some_and(|first_ms| self.timer_ms().is_none_or(|timer_ms| first_ms < timer_ms))
    }

    /// Promises less: it is enough to look when the first lease ends.
    pub fn put_off_timer(&mut self) {
        let first_ms = self.first_end_ms();
        self.set_timer_ms(self.timer_ms().max(first_ms.filter(|_| self.timer_ms.is_some())));
    }

    /// Bytes to copy for a copy of it; `None` when that is more than one small block.
    pub fn compact_bytes(&self) -> Option<usize> {
        let of_stock = match self.stock() {
            Some(stock) if stock.is_small() => stock.mem_bytes(),
            Some(_) => return None,
            None => 0,
        };
        match &self.store {
            Store::Few(block) => Some(size_of::<Grants>() + block.len() + of_stock),
            Store::Many(_) => None,
        }
    }

    /// Bytes allocated, itself included.
    pub fn mem_bytes(&self) -> usize {
        let of_store = match &self.store {
            Store::Few(block) => block.len(),
            Store::Many(many) => {
                // Nodes of the trees are three quarters full.
                let trees = size_of::<OwnedGrant>()
                    + 2 * size_of::<u64>()
                    + size_of::<(Arc<[u8]>, u64)>()
                    + size_of::<(i64, u64)>();
                size_of::<Many>() + many.by_token.len() * (trees * 4 / 3 + 2 * size_of::<usize>()) + many.text_bytes
            }
        };
        size_of::<Grants>() + of_store + self.stock().map_or(0, Stock::mem_bytes)
    }
}

impl Store {
    fn get(&self, holder: &[u8]) -> Option<Grant<'_>> {
        match self {
            Store::Few(block) => Walk::new(block).map(|(_, grant)| grant).find(|grant| grant.holder == holder),
            Store::Many(many) => {
                let token = many.by_holder.get(holder)?;
                many.by_token.get(token).map(OwnedGrant::as_grant)
            }
        }
    }
}

impl std::fmt::Debug for Grants {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let own = if self.is_fixed { " of its own" } else { "" };
        match &self.stock {
            Some(stock) => write!(f, "{} {stock:?} ", self.kind.name())?,
            None => write!(f, "{} limit {}{own} ", self.kind.name(), self.limit)?,
        }
        f.debug_list().entries(self.from(0)).finish()
    }
}

impl Many {
    /// Those of a block.
    fn of(block: &[u8]) -> Many {
        let mut many = Many::default();
        Walk::new(block).for_each(|(_, grant)| many.set(grant));
        many
    }

    fn set(&mut self, grant: Grant<'_>) {
        let old = self.by_holder.get(grant.holder).copied();
        if let Some(token) = old {
            self.forget(token);
        }
        let owned = OwnedGrant::from(grant);
        // The name that is there is the old grant's, and would stay beside the new one's.
        self.by_holder.remove(grant.holder);
        self.by_holder.insert(Arc::clone(&owned.holder), grant.token);
        self.ends.insert((grant.until_ms, grant.token));
        self.units += grant.units;
        self.text_bytes += grant.holder.len() + grant.note.len();
        self.by_token.insert(grant.token, owned);
    }

    /// Takes a grant out, but for its holder's name.
    fn forget(&mut self, token: u64) {
        if let Some(grant) = self.by_token.remove(&token) {
            self.ends.remove(&(grant.until_ms, token));
            self.units -= grant.units;
            self.text_bytes -= grant.holder.len() + grant.note.len();
        }
    }
}

fn put(out: &mut Vec<u8>, grant: &Grant<'_>) {
    let lease = grant.until_ms.wrapping_sub(grant.since_ms) as u64;
    let entered = grant.entered.min(u64::MAX / 2) * 2 + u64::from(grant.shared);
    let (holder, note) = (grant.holder, grant.note);
    let numbers =
        [grant.token, grant.units, grant.since_ms as u64, lease, entered, holder.len() as u64, note.len() as u64];
    numbers.into_iter().for_each(|number| put_number(out, number));
    out.extend_from_slice(holder);
    out.extend_from_slice(note);
}

/// Where in `block` these bytes of it lie.
fn range_in(block: &[u8], bytes: &[u8]) -> std::ops::Range<usize> {
    let start = bytes.as_ptr() as usize - block.as_ptr() as usize;
    start..start + bytes.len()
}

/// Walks a block: each grant with its bytes.
struct Walk<'a> {
    reader: Reader<'a>,
}

impl<'a> Walk<'a> {
    fn new(block: &'a [u8]) -> Walk<'a> {
        Walk { reader: Reader::new(block) }
    }

    fn text(&mut self, len: u64) -> &'a [u8] {
        let start = self.reader.at;
        self.reader.at += len as usize;
        &self.reader.bytes[start..self.reader.at]
    }
}

impl<'a> Iterator for Walk<'a> {
    type Item = (&'a [u8], Grant<'a>);

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
        Some((&self.reader.bytes[start..self.reader.at], grant))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn grant<'a>(holder: &'a [u8], token: u64, until_ms: i64) -> Grant<'a> {
        Grant { holder, token, units: 1, since_ms: 0, until_ms, entered: 1, shared: false, note: b"" }
    }

    #[test]
    fn a_lock_takes_little() {
        assert_eq!(size_of::<Grants>(), 40);
        let mut lock = Grants::new(Kind::Lock, 0, false);
        let since_ms = 1_800_000_000_000;
        assert!(lock.set(Grant { since_ms, ..grant(&[b'o'; 36], 1_000_000, since_ms + 30_000) }));
        assert_eq!(lock.mem_bytes(), 40 + 52);
        let mut gate = Grants::new(Kind::Gate, 60, false);
        for token in 1..=60 {
            let holder = format!("{token:036}").into_bytes();
            assert!(gate.set(Grant { since_ms, ..grant(&holder, 1_000_000 + token, since_ms + 30_000) }));
        }
        assert!(gate.mem_bytes() < 3_500, "{}", gate.mem_bytes());
    }

    #[test]
    fn what_does_not_fit_changes_nothing() {
        let mut gate = Grants::new(Kind::Gate, 3, false);
        assert!(gate.set(grant(b"a", 5, 10)) && gate.set(grant(b"a", 5, 20)));
        for strange in [
            grant(b"b", 5, 10),
            grant(b"a", 6, 10),
            grant(b"b", 0, 10),
            grant(b"b", TOKEN_MAX + 1, 10),
            Grant { units: 0, ..grant(b"b", 6, 10) },
            Grant { units: UNITS_MAX + 1, ..grant(b"b", 6, 10) },
        ] {
            assert!(!gate.set(strange), "{strange:?}");
        }
        assert!((gate.len(), gate.units(), gate.last_end_ms()) == (1, 1, Some(20)) && !gate.remove(b"b"));
    }

    /// Numbers that no command gives survive, too: effects and payloads may say anything.
    #[test]
    fn any_time_is_kept() {
        let mut gate = Grants::new(Kind::Gate, 3, true);
        for (at, (since_ms, until_ms)) in [(i64::MIN, i64::MAX), (i64::MAX, i64::MIN), (-1, 0)].into_iter().enumerate()
        {
            let wanted = Grant { since_ms, note: b"n", shared: true, ..grant(b"h", at as u64 + 1, until_ms) };
            gate.remove(b"h");
            assert!(gate.set(wanted));
            assert_eq!(gate.get(b"h"), Some(wanted));
        }
        for at_ms in [i64::MIN + 1, -1, 0, 1, i64::MAX] {
            gate.set_timer_ms(Some(at_ms));
            assert_eq!(gate.timer_ms(), Some(at_ms));
        }
        gate.set_timer_ms(Some(i64::MIN));
        assert_eq!(gate.timer_ms(), Some(i64::MIN + 1));
    }

    /// One step of the model test.
    #[derive(Clone, Debug)]
    enum Step {
        /// A holder gets a grant with the next token.
        Give {
            holder: u8,
            units: u64,
            lease: i64,
            note: usize,
        },
        /// A holder's grant is prolonged and entered again.
        Renew {
            holder: u8,
            lease: i64,
        },
        Remove {
            holder: u8,
        },
        /// The first lease that ends is over.
        End,
        Limit(u64, bool),
    }

    fn step() -> impl Strategy<Value = Step> {
        let holder = || 0..120u8;
        prop_oneof![
            8 => (holder(), 1..9u64, 0..500i64, 0..40usize)
                .prop_map(|(holder, units, lease, note)| Step::Give { holder, units, lease, note }),
            3 => (holder(), 0..500i64).prop_map(|(holder, lease)| Step::Renew { holder, lease }),
            2 => holder().prop_map(|holder| Step::Remove { holder }),
            2 => Just(Step::End),
            1 => (0..9u64, any::<bool>()).prop_map(|(limit, fixed)| Step::Limit(limit, fixed)),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(128))]

        /// Grants against a list of them, across the change from a block to trees and back.
        #[test]
        fn equal_to_a_list(steps in proptest::collection::vec(step(), 0..400)) {
            let mut grants = Grants::new(Kind::Gate, 1, false);
            let mut model: Vec<OwnedGrant> = Vec::new();
            let (mut limit, mut last_token) = ((1, false), 0);
            for (now_ms, step) in (0i64..).zip(steps) {
                let name = |holder: u8| vec![holder; 1 + usize::from(holder) % 40];
                match step {
                    Step::Give { holder, units, lease, note } => {
                        last_token += 1 + u64::from(holder % 3);
                        let (holder, note) = (name(holder), vec![b'n'; note]);
                        let (since_ms, until_ms, shared) = (now_ms, now_ms + lease, units % 2 == 0);
                        let new = Grant { holder: &holder, token: last_token, units, since_ms, until_ms, entered: 1, shared, note: &note };
                        grants.remove(&holder);
                        prop_assert!(grants.set(new));
                        model.retain(|grant| *grant.holder != *holder);
                        model.push(new.into());
                    }
                    Step::Renew { holder, lease } => {
                        let holder = name(holder);
                        let old = model.iter_mut().find(|grant| *grant.holder == *holder);
                        prop_assert_eq!(grants.get(&holder), old.as_ref().map(|grant| grant.as_grant()));
                        if let Some(old) = old {
                            (old.until_ms, old.entered) = (now_ms + lease, old.entered + 1);
                            prop_assert!(grants.set(old.as_grant()));
                        }
                    }
                    Step::Remove { holder } => {
                        let (holder, before) = (name(holder), model.len());
                        model.retain(|grant| *grant.holder != *holder);
                        prop_assert_eq!(grants.remove(&holder), model.len() < before);
                    }
                    Step::End => {
                        let first = model.iter().min_by_key(|grant| (grant.until_ms, grant.token)).cloned();
                        prop_assert_eq!(grants.first_end(), first.as_ref().map(OwnedGrant::as_grant));
                        if let Some(first) = first {
                            prop_assert!(grants.remove(&first.holder));
                            model.retain(|grant| grant.token != first.token);
                        }
                    }
                    Step::Limit(to, fixed) => {
                        grants.set_limit(to, fixed);
                        limit = (to, fixed);
                    }
                }
                prop_assert_eq!((grants.len(), grants.is_empty()), (model.len(), model.is_empty()));
                prop_assert_eq!(grants.units(), model.iter().map(|grant| grant.units).sum::<u64>());
                prop_assert!(grants.from(0).eq(model.iter().map(OwnedGrant::as_grant)));
                let mut ends: Vec<(i64, u64)> = model.iter().map(|grant| (grant.until_ms, grant.units)).collect();
                ends.sort_unstable();
                for units in [1, 4, 400] {
                    let enough = |most: usize| (1..=most).find(|n| ends[..*n].iter().map(|(_, units)| *units).sum::<u64>() >= units);
                    for most in [3, model.len()] {
                        let most = most.min(ends.len());
                        let wanted = enough(most).unwrap_or(most).checked_sub(1).map(|last| ends[last].0);
                        prop_assert_eq!(grants.frees_ms(units, most), wanted);
                    }
                }
                let half = last_token / 2;
                prop_assert!(grants.from(half).eq(model.iter().map(OwnedGrant::as_grant).filter(|grant| grant.token >= half)));
                prop_assert_eq!(grants.first_end_ms(), model.iter().map(|grant| grant.until_ms).min());
                prop_assert_eq!(grants.last_end_ms(), model.iter().map(|grant| grant.until_ms).max());
                prop_assert_eq!(grants.need_timer(), !model.is_empty());
                prop_assert_eq!(((grants.limit(), grants.is_fixed()), grants.is_hollow()), (limit, model.is_empty() && !limit.1));
                prop_assert_eq!(grants.compact_bytes().is_some(), model.len() <= FEW);
                // What is built of the grants alone is laid out alike.
                let mut built = Grants::new(Kind::Gate, 1, false);
                prop_assert!(grants.from(0).all(|grant| built.set(grant)));
                prop_assert_eq!(built.mem_bytes(), grants.mem_bytes());
            }
        }
    }
}
