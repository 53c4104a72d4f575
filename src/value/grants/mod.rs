//! Grants: the holders of a lock, a gate or a stock, each with its units and the end of its lease.
//!
//! A grant belongs to a holder, has a *fencing token* that grows from grant to grant, and ends with its lease. The
//! value has no clock: code with a clock asks for the [first end](Grants::first_end) and removes the grants that are
//! over.
//!
//! Tokens are unique within a value and assigned in ascending order, so they also give the order in which grants came.
//! A walk over the holders can therefore resume at a token, even if holders have come or gone in the meantime.
//!
//! # Layout
//! A value is one word, which points to one of two forms:
//!
//! - *Small*: a lock or gate of up to [`FEW`] grants is one block ([`small`]) that holds everything about it. Nearly
//!   all locks and gates are small.
//! - *Large*: more grants have a tree by token, one by holder, and one of lease ends ([`many`]). Everything else stays
//!   in a block. A stock is large however many holds it has, since it needs a [`Stock`] beside them; up to [`FEW`]
//!   holds are in the block.
//!
//! The form, and the place of the grants, depend only on the kind and on the number of grants. Replaying the changes
//! therefore leads to an equal form.
//!
//! The holder of a stock's hold is the order; its note is the subject that the units are held for.
//!
//! A block of grants is never embedded in its entry, unlike the blocks of other small collections: grants come and go
//! one after another, and each timer that is set is recorded in the block.

mod grant;
mod many;
mod small;
#[cfg(test)]
mod tests;

pub use grant::{Grant, Kind, OwnedGrant};
use many::Many;
pub use small::FEW;
use small::Small;

use super::block::{Block, InBlock};
use super::one_word::{Held, HeldMut, OneWord};
use super::stock::{Memory, Stock, Terms};

/// The largest fencing token: the largest count that a double holds exactly, so that clients in any language can
/// compare tokens.
pub const TOKEN_MAX: u64 = (1 << 53) - 1;

/// The most units that one grant can hold and a gate can admit. Sums of them stay far below 2^64.
pub const UNITS_MAX: u64 = u32::MAX as u64;

/// The most bytes of a holder and a note together, so that a few grants fit into a block. Callers that take them from
/// clients apply far smaller limits.
const TEXTS_MAX_BYTES: usize = Block::MAX_BYTES / (FEW + 1) - 128;

/// All grants of one lock, gate or stock. See the module's header.
#[derive(Clone)]
pub struct Grants(OneWord<Large>);

/// The form that does not fit into a block.
#[derive(Clone)]
struct Large {
    /// Everything except the grants, and the grants too while they are few.
    small: Small,
    /// The grants, if there are more than [`FEW`].
    many: Option<Box<Many>>,
    /// The part that only a stock has.
    stock: Option<Box<Stock>>,
}

/// The place of the grants.
enum Rows<'a> {
    Few(&'a Small),
    Many(&'a Many),
}

impl Grants {
    /// A value without grants. `is_fixed`: the limit was set for the gate itself, and the value persists without
    /// grants, as a stock always does.
    pub fn new(kind: Kind, limit: u64, is_fixed: bool) -> Grants {
        let is_stock = kind == Kind::Stock;
        let mut grants = Grants(OneWord::small(Small::new(kind).into_block()));
        if is_stock {
            grants.0.make_large(Large::of).stock = Some(Box::default());
        }
        grants.set_limit(limit, is_fixed || is_stock);
        grants
    }

    /// The part of a stock besides its holds.
    pub fn stock(&self) -> Option<&Stock> {
        self.0.as_large().and_then(|large| large.stock.as_deref())
    }

    /// See [`stock`](Self::stock).
    pub fn stock_mut(&mut self) -> Option<&mut Stock> {
        self.0.as_large_mut().and_then(|large| large.stock.as_deref_mut())
    }

    /// The kind of object that the grants belong to.
    pub fn kind(&self) -> Kind {
        self.small().kind()
    }

    /// The number of units that a gate admits; 0 for a lock or a stock.
    pub fn limit(&self) -> u64 {
        self.small().limit()
    }

    /// Whether the limit belongs to the gate itself rather than to each call.
    pub fn is_fixed(&self) -> bool {
        self.small().is_fixed()
    }

    /// Sets the limit, at most [`UNITS_MAX`], and whether it belongs to the gate itself.
    pub fn set_limit(&mut self, limit: u64, is_fixed: bool) {
        self.small_mut().set_limit(limit.min(UNITS_MAX), is_fixed);
    }

    /// The number of grants.
    pub fn len(&self) -> usize {
        match self.rows() {
            Rows::Few(small) => small.len(),
            Rows::Many(many) => many.len(),
        }
    }

    /// Whether there are no grants.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The number of elements to copy or free: grants, and the names that a stock remembers.
    pub fn elements(&self) -> usize {
        self.len() + self.stock().map_or(0, Stock::elements)
    }

    /// Whether nothing is worth keeping: there are no grants, and no limit of its own.
    pub fn is_hollow(&self) -> bool {
        self.is_empty() && !self.is_fixed()
    }

    /// The value without its holders: the gate's own limit, or the stock with its sales. `None` if nothing remains.
    pub fn without_holders(&self) -> Option<Grants> {
        let mut rest = Grants::new(self.kind(), self.limit(), self.is_fixed());
        if let (Some(stock), Some(of_rest)) = (self.stock(), rest.stock_mut()) {
            of_rest.terms = Terms { refiller: Default::default(), refill_until_ms: 0, ..stock.terms.clone() };
            for memory in Memory::ALL {
                for (_, name, of_it) in stock.memory_from(memory, 0) {
                    of_rest.remember(memory, name, of_it);
                }
            }
        }
        Some(rest).filter(|rest| !rest.is_hollow())
    }

    /// Units of all grants, including those whose leases are over but which have not been removed yet.
    pub fn units(&self) -> u64 {
        match self.rows() {
            Rows::Few(small) => small.grants().map(|grant| grant.units).sum(),
            Rows::Many(many) => many.units(),
        }
    }

    /// The grant of a holder.
    pub fn get(&self, holder: &[u8]) -> Option<Grant<'_>> {
        self.rows().get(holder)
    }

    /// The oldest grant.
    pub fn first(&self) -> Option<Grant<'_>> {
        self.from(0).next()
    }

    /// The largest token of the present grants; 0 if there are none.
    pub fn last_token(&self) -> u64 {
        match self.rows() {
            Rows::Few(small) => small.grants().last().map_or(0, |grant| grant.token),
            Rows::Many(many) => many.last_token(),
        }
    }

    /// The grants with a token of `token` or more, in the order of their tokens.
    pub fn from(&self, token: u64) -> impl Iterator<Item = Grant<'_>> {
        let (few, many) = match self.rows() {
            Rows::Few(small) => (Some(small.grants()), None),
            Rows::Many(many) => (None, Some(many.from(token))),
        };
        let few = few.into_iter().flatten().filter(move |grant| grant.token >= token);
        few.chain(many.into_iter().flatten())
    }

    /// The grant whose lease ends first.
    pub fn first_end(&self) -> Option<Grant<'_>> {
        match self.rows() {
            Rows::Few(small) => small.grants().min_by_key(|grant| (grant.until_ms, grant.token)),
            Rows::Many(many) => many.first_end(),
        }
    }

    /// The end of the first lease to end, Unix ms.
    pub fn first_end_ms(&self) -> Option<i64> {
        match self.rows() {
            Rows::Few(small) => small.grants().map(|grant| grant.until_ms).min(),
            Rows::Many(many) => many.ends().next().map(|(until_ms, _)| until_ms),
        }
    }

    /// The end of the last lease to end, Unix ms.
    pub fn last_end_ms(&self) -> Option<i64> {
        match self.rows() {
            Rows::Few(small) => small.grants().map(|grant| grant.until_ms).max(),
            Rows::Many(many) => many.ends().next_back().map(|(until_ms, _)| until_ms),
        }
    }

    /// The time at which `units` units will have come free through the ends of leases, Unix ms. Only the first `most`
    /// leases are considered; if they hold fewer units, returns the end of the last of them.
    pub fn frees_ms(&self, units: u64, most: usize) -> Option<i64> {
        let (mut left, mut at_ms) = (units, None);
        let mut wants_more = |(until_ms, freed): (i64, u64)| {
            at_ms = Some(until_ms);
            left = left.saturating_sub(freed);
            left > 0
        };
        match self.rows() {
            Rows::Few(small) => {
                let mut ends: Vec<_> = small.grants().map(|grant| (grant.until_ms, grant.units)).collect();
                ends.sort_unstable();
                ends.into_iter().take(most).all(&mut wants_more);
            }
            Rows::Many(many) => {
                many.ends().take(most).all(|(until_ms, token)| wants_more((until_ms, many.units_of(token))));
            }
        }
        at_ms
    }

    /// Gives a holder this grant, replacing its present one if both have the same token. Returns false, and changes
    /// nothing, if the grant does not fit: the holder has a grant with another token, another holder has the token, or
    /// the units, token or texts are out of bounds.
    pub fn set(&mut self, grant: Grant<'_>) -> bool {
        let are_short = grant.holder.len().saturating_add(grant.note.len()) <= TEXTS_MAX_BYTES;
        if !are_short || !(1..=UNITS_MAX).contains(&grant.units) || !(1..=TOKEN_MAX).contains(&grant.token) {
            return false;
        }
        if let HeldMut::Small(block) = self.0.held_mut() {
            let small = Small::of_mut(block);
            let Some(place) = small.place(&grant) else { return false };
            if small.has_room(&place) {
                small.put(place, &grant);
                return true;
            }
        }
        self.0.make_large(Large::of).set(grant)
    }

    /// Removes a holder's grant. Returns false if it has none.
    pub fn remove(&mut self, holder: &[u8]) -> bool {
        let large = match self.0.held_mut() {
            HeldMut::Small(block) => return Small::of_mut(block).remove(holder),
            HeldMut::Large(large) => large,
        };
        let is_removed = large.remove(holder);
        if large.many.is_none() && large.stock.is_none() {
            self.0 = OneWord::small(std::mem::take(&mut large.small).into_block());
        }
        is_removed
    }

    /// The time by which the leases will be checked, Unix ms. `None` if no check is planned.
    #[inline]
    pub fn timer_ms(&self) -> Option<i64> {
        self.small().timer_ms()
    }

    /// Sets the time by which the leases will be checked.
    pub fn set_timer_ms(&mut self, timer_ms: Option<i64>) {
        self.small_mut().set_timer_ms(timer_ms);
    }

    /// Whether a lease ends before the next check.
    pub fn need_timer(&self) -> bool {
        self.first_end_ms().is_some_and(|first_ms| self.timer_ms().is_none_or(|timer_ms| first_ms < timer_ms))
    }

    /// Puts the check off to the end of the first lease, if that is later.
    pub fn put_off_timer(&mut self) {
        if let Some(timer_ms) = self.timer_ms() {
            self.set_timer_ms(self.first_end_ms().max(Some(timer_ms)));
        }
    }

    /// Bytes to copy for a copy of the value. `None` if it is more than one small block.
    pub fn compact_bytes(&self) -> Option<usize> {
        let of_large = match self.0.as_large() {
            None => 0,
            Some(Large { many: None, stock: Some(stock), .. }) if stock.is_small() => {
                size_of::<Large>() + stock.mem_bytes()
            }
            Some(_) => return None,
        };
        Some(of_large + self.small().bytes())
    }

    /// Bytes allocated.
    pub fn mem_bytes(&self) -> usize {
        let of_large = |large: &Large| {
            let many = large.many.as_deref().map_or(0, Many::mem_bytes);
            size_of::<Large>() + many + large.stock.as_deref().map_or(0, Stock::mem_bytes)
        };
        self.small().heap_bytes() + self.0.as_large().map_or(0, of_large)
    }

    /// Everything except the grants, and the grants too while they are few.
    #[inline]
    fn small(&self) -> &Small {
        match self.0.held() {
            Held::Small(block) => Small::of(block),
            Held::Large(large) => &large.small,
        }
    }

    #[inline]
    fn small_mut(&mut self) -> &mut Small {
        match self.0.held_mut() {
            HeldMut::Small(block) => Small::of_mut(block),
            HeldMut::Large(large) => &mut large.small,
        }
    }

    #[inline]
    fn rows(&self) -> Rows<'_> {
        match self.0.held() {
            Held::Small(block) => Rows::Few(Small::of(block)),
            Held::Large(large) => large.rows(),
        }
    }
}

impl Large {
    /// Makes a large value of a small one's block.
    fn of(block: Block) -> Large {
        Large { small: Small::of_block(block), many: None, stock: None }
    }

    fn rows(&self) -> Rows<'_> {
        self.many.as_deref().map_or(Rows::Few(&self.small), Rows::Many)
    }

    /// See [`Grants::set`].
    fn set(&mut self, grant: Grant<'_>) -> bool {
        let place = match &self.many {
            None => self.small.place(&grant),
            Some(many) => many.fits(&grant).then_some(0..0),
        };
        let Some(place) = place else { return false };
        self.let_go(grant.holder);
        if let Some(stock) = &mut self.stock {
            stock.hold(grant.note, grant.units);
        }
        match &mut self.many {
            Some(many) => many.set(grant),
            None if self.small.has_room(&place) => self.small.put(place, &grant),
            None => {
                let mut many = Many::of(self.small.grants());
                many.set(grant);
                self.many = Some(Box::new(many));
                self.small.clear(self.small.timer_ms());
                self.small.tighten();
            }
        }
        true
    }

    /// See [`Grants::remove`].
    fn remove(&mut self, holder: &[u8]) -> bool {
        self.let_go(holder);
        let Some(many) = &mut self.many else { return self.small.remove(holder) };
        let is_removed = many.remove(holder);
        if many.len() <= FEW {
            self.small.fill(many.from(0));
            self.many = None;
        }
        is_removed
    }

    /// Updates a stock's units held when a holder's grant is about to be removed or replaced.
    fn let_go(&mut self, holder: &[u8]) {
        let Large { small, many, stock } = self;
        let rows = many.as_deref().map_or(Rows::Few(small), Rows::Many);
        if let Some(stock) = stock
            && let Some(old) = rows.get(holder)
        {
            stock.let_go(old.note, old.units);
        }
    }
}

impl<'a> Rows<'a> {
    fn get(self, holder: &[u8]) -> Option<Grant<'a>> {
        match self {
            Rows::Few(small) => small.get(holder),
            Rows::Many(many) => many.get(holder),
        }
    }
}

impl std::fmt::Debug for Grants {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let own = if self.is_fixed() { " of its own" } else { "" };
        match self.stock() {
            Some(stock) => write!(f, "{} {stock:?} ", self.kind().name())?,
            None => write!(f, "{} limit {}{own} ", self.kind().name(), self.limit())?,
        }
        f.debug_list().entries(self.from(0)).finish()
    }
}
