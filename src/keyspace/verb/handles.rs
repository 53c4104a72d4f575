//! Typed handles on locks, gates and stocks.
//!
//! Opening a handle finds the key and checks the kind of its value. From there on the type of the handle says what the
//! slot holds, so its methods cannot fail with [`WrongType`]. A handle borrows the keyspace, so no other code can
//! change or move the value while it lives. Verbs that may remove the key consume the handle.
//!
//! | Type | For |
//! |---|---|
//! | [`LockMut`], [`GateMut`], [`StockMut`] | commands that may change the value |
//! | [`GrantsRef`] | commands that only read it |
//! | [`Found`], [`FoundLock`] | keys that may hold nothing, or a string by which a script kept a count or a lock |
//!
//! Every change goes through the verbs of [`grants`](super::grants) and [`stock`](super::stock), which record it.

use std::marker::PhantomData;

use crate::keyspace::WrongType;
use crate::keyspace::any_value::ValueRef;
use crate::keyspace::entry::Entry;
use crate::keyspace::{DbIndex, Keyspace, NEVER, Slot};
use crate::value::grants::{Grant, Grants, Kind, TOKEN_MAX, UNITS_MAX};
use crate::value::stock::{AMOUNT_MAX, Stock, Terms};

/// Why a verb cannot find another type: the handle has borrowed the keyspace since it was opened.
const CHECKED: &str = "the kind was checked when the handle was opened";

/// A kind of grants, as a type.
pub trait OfKind {
    /// The kind of the value.
    const KIND: Kind;
    /// The largest count that is taken over from a counter.
    const COUNT_MAX: u64;
}

/// Marks handles on locks.
pub enum LockKind {}

/// Marks handles on gates.
pub enum GateKind {}

/// Marks handles on stocks.
pub enum StockKind {}

impl OfKind for LockKind {
    const KIND: Kind = Kind::Lock;
    const COUNT_MAX: u64 = 1;
}

impl OfKind for GateKind {
    const KIND: Kind = Kind::Gate;
    const COUNT_MAX: u64 = UNITS_MAX;
}

impl OfKind for StockKind {
    const KIND: Kind = Kind::Stock;
    const COUNT_MAX: u64 = AMOUNT_MAX;
}

/// A lock, gate or stock of a known kind.
pub struct GrantsMut<'k, K> {
    ks: &'k mut Keyspace,
    db: DbIndex,
    slot: Slot,
    kind: PhantomData<K>,
}

/// A lock.
pub type LockMut<'k> = GrantsMut<'k, LockKind>;
/// A gate.
pub type GateMut<'k> = GrantsMut<'k, GateKind>;
/// A stock.
pub type StockMut<'k> = GrantsMut<'k, StockKind>;

/// A lock, gate or stock that is only read.
pub struct GrantsRef<'k, K> {
    grants: &'k Grants,
    entry: Entry<'k>,
    kind: PhantomData<K>,
}

/// A key that does not exist.
pub struct Vacant<'k, K> {
    ks: &'k mut Keyspace,
    db: DbIndex,
    kind: PhantomData<K>,
}

/// A string with a whole number, by which a script counted the units taken from a gate, or left of a stock.
pub struct Counter<'k, K> {
    ks: &'k mut Keyspace,
    db: DbIndex,
    slot: Slot,
    count: u64,
    kind: PhantomData<K>,
}

/// The content of a gate's or stock's key.
pub enum Found<'k, K> {
    /// The key does not exist.
    Nothing(Vacant<'k, K>),
    /// A script kept a counter there.
    Counter(Counter<'k, K>),
    /// The gate or stock.
    Grants(GrantsMut<'k, K>),
}

/// The content of a lock's key.
pub enum FoundLock<'k> {
    /// The key does not exist.
    Nothing(Vacant<'k, LockKind>),
    /// A string, by which `SET key value NX` holds the lock. Its holder has no name.
    String,
    /// The lock.
    Lock(LockMut<'k>),
}

impl Keyspace {
    /// Opens the gate under a key.
    pub fn open_gate(&mut self, db: DbIndex, key: &[u8]) -> Result<Option<GateMut<'_>>, WrongType> {
        self.open(db, key)
    }

    /// Opens the stock under a key.
    pub fn open_stock(&mut self, db: DbIndex, key: &[u8]) -> Result<Option<StockMut<'_>>, WrongType> {
        self.open(db, key)
    }

    /// Opens the lock under a key. A string counts as no lock, since its holder has no name.
    pub fn open_lock(&mut self, db: DbIndex, key: &[u8]) -> Result<Option<LockMut<'_>>, WrongType> {
        match self.open_lock_or_string(db, key)? {
            FoundLock::Lock(lock) => Ok(Some(lock)),
            FoundLock::String | FoundLock::Nothing(_) => Ok(None),
        }
    }

    /// Opens the key of a lock, where a string may be.
    pub fn open_lock_or_string(&mut self, db: DbIndex, key: &[u8]) -> Result<FoundLock<'_>, WrongType> {
        let Some(slot) = self.find(db, key) else { return Ok(FoundLock::Nothing(Vacant::new(self, db))) };
        match self.value(db, slot) {
            ValueRef::Grants(grants) if grants.kind() == Kind::Lock => {
                Ok(FoundLock::Lock(GrantsMut::new(self, db, slot)))
            }
            ValueRef::String(_) => Ok(FoundLock::String),
            _ => Err(WrongType),
        }
    }

    /// Opens the key of a gate, where a counter may be.
    pub fn open_gate_or_counter(&mut self, db: DbIndex, key: &[u8]) -> Result<Found<'_, GateKind>, WrongType> {
        self.open_or_counter(db, key)
    }

    /// Opens the key of a stock, where a counter may be.
    pub fn open_stock_or_counter(&mut self, db: DbIndex, key: &[u8]) -> Result<Found<'_, StockKind>, WrongType> {
        self.open_or_counter(db, key)
    }

    /// Opens the gate at `slot`.
    pub fn open_gate_at(&mut self, db: DbIndex, slot: Slot) -> Result<GateMut<'_>, WrongType> {
        self.gate_at(db, slot)?;
        Ok(GrantsMut::new(self, db, slot))
    }

    /// The gate at `slot`, to read.
    pub fn gate_at(&self, db: DbIndex, slot: Slot) -> Result<GrantsRef<'_, GateKind>, WrongType> {
        self.read_at(db, slot)
    }

    /// The stock at `slot`, to read.
    pub fn stock_at(&self, db: DbIndex, slot: Slot) -> Result<GrantsRef<'_, StockKind>, WrongType> {
        self.read_at(db, slot)
    }

    /// The lock at `slot`, to read; `None` for a string.
    pub fn lock_at(&self, db: DbIndex, slot: Slot) -> Result<Option<GrantsRef<'_, LockKind>>, WrongType> {
        match self.value(db, slot) {
            ValueRef::String(_) => Ok(None),
            _ => self.read_at(db, slot).map(Some),
        }
    }

    /// Creates a gate without grants under a key that does not exist.
    pub fn create_gate(&mut self, db: DbIndex, key: &[u8], limit: u64, is_fixed: bool) -> GateMut<'_> {
        Vacant::<GateKind>::new(self, db).create(key, limit, is_fixed)
    }

    /// Creates a stock under a key that does not exist.
    pub fn create_stock(&mut self, db: DbIndex, key: &[u8], terms: Terms) -> StockMut<'_> {
        Vacant::<StockKind>::new(self, db).create(key, terms)
    }

    #[inline]
    fn read_at<K: OfKind>(&self, db: DbIndex, slot: Slot) -> Result<GrantsRef<'_, K>, WrongType> {
        let entry = self.entry(db, slot);
        match entry.value() {
            ValueRef::Grants(grants) if grants.kind() == K::KIND => Ok(GrantsRef { grants, entry, kind: PhantomData }),
            _ => Err(WrongType),
        }
    }

    fn open<K: OfKind>(&mut self, db: DbIndex, key: &[u8]) -> Result<Option<GrantsMut<'_, K>>, WrongType> {
        let Some(slot) = self.find(db, key) else { return Ok(None) };
        self.read_at::<K>(db, slot)?;
        Ok(Some(GrantsMut::new(self, db, slot)))
    }

    fn open_or_counter<K: OfKind>(&mut self, db: DbIndex, key: &[u8]) -> Result<Found<'_, K>, WrongType> {
        let Some(slot) = self.find(db, key) else { return Ok(Found::Nothing(Vacant::new(self, db))) };
        match self.value(db, slot) {
            ValueRef::Grants(grants) if grants.kind() == K::KIND => Ok(Found::Grants(GrantsMut::new(self, db, slot))),
            ValueRef::String(text) => {
                let count = text.as_i64().ok_or(WrongType)?;
                // Below zero is a gate with releases too many, or a stock that was oversold.
                let count = u64::try_from(count).unwrap_or(0).min(K::COUNT_MAX);
                Ok(Found::Counter(Counter { ks: self, db, slot, count, kind: PhantomData }))
            }
            _ => Err(WrongType),
        }
    }
}

impl<'k, K> GrantsMut<'k, K> {
    fn new(ks: &'k mut Keyspace, db: DbIndex, slot: Slot) -> GrantsMut<'k, K> {
        GrantsMut { ks, db, slot, kind: PhantomData }
    }

    /// The grants, with the limit of a gate.
    #[inline]
    pub fn grants(&self) -> &Grants {
        self.ks.grants(self.db, self.slot).expect(CHECKED)
    }

    /// When the key expires, Unix ms, and every lease under it at the latest; [`NEVER`] if it does not.
    #[inline]
    pub fn key_end_ms(&self) -> i64 {
        self.ks.entry(self.db, self.slot).expires_at_ms().unwrap_or(NEVER)
    }

    /// The grant of a holder whose lease has not ended. A lease that is over may stay for a while after very many ended
    /// at once.
    pub fn live(&self, holder: &[u8]) -> Option<Grant<'_>> {
        self.grants().get(holder).filter(|own| !self.ks.expires_at_once(own.until_ms))
    }

    /// The unit's time, Unix ms.
    #[inline]
    pub fn now_ms(&self) -> i64 {
        self.ks.now_ms()
    }

    /// Grants units to a holder that has none, under the next fencing token. Returns the grant, whose lease ends with
    /// the key at the latest; `None`, with nothing changed, when all tokens have been given out.
    pub fn grant<'a>(
        &mut self,
        holder: &'a [u8],
        units: u64,
        shared: bool,
        until_ms: i64,
        note: &'a [u8],
    ) -> Option<Grant<'a>> {
        let (token, since_ms) = (self.ks.next_token()?, self.now_ms());
        Some(self.set(Grant { holder, token, units, since_ms, until_ms, entered: 1, shared, note }))
    }

    /// Replaces a holder's grant by one of the same token. Returns it; its lease ends with the key at the latest.
    pub fn set<'a>(&mut self, grant: Grant<'a>) -> Grant<'a> {
        let grant = Grant { until_ms: grant.until_ms.min(self.key_end_ms()), ..grant };
        let fits = self.ks.grant_set(self.db, self.slot, grant).expect(CHECKED);
        debug_assert!(fits, "{grant:?}");
        grant
    }

    /// As [`set`](Self::set), but a lease that is over ends the grant.
    pub fn prolong<'a>(mut self, renewed: Grant<'a>) -> Grant<'a> {
        if !self.ks.expires_at_once(renewed.until_ms) {
            return self.set(renewed);
        }
        self.end(renewed.holder);
        renewed
    }

    /// Ends a holder's grant, and removes the key with its last grant unless it lasts without.
    pub fn end(self, holder: &[u8]) {
        self.ks.grant_end(self.db, self.slot, holder).expect(CHECKED);
    }

    /// Removes the key.
    pub fn remove(self) {
        self.ks.remove(self.db, self.slot);
    }
}

impl GateMut<'_> {
    /// Sets the limit that a call brings, unless the gate has one of its own. The gate has or gets grants.
    pub fn adopt_limit(&mut self, limit: u64) {
        let grants = self.grants();
        if !grants.is_fixed() && grants.limit() != limit {
            self.set_limit(limit, false);
        }
    }

    /// Sets the limit, and whether it is the gate's own. If it is not, the gate has grants.
    pub fn set_limit(&mut self, limit: u64, is_fixed: bool) {
        self.ks.grants_limit(self.db, self.slot, limit, is_fixed).expect(CHECKED);
    }
}

impl LockMut<'_> {
    /// Ends the grant of one owner on behalf of another client, for a given reason.
    pub fn break_one(self, owner: &[u8], why: &[u8]) {
        self.ks.grant_break(self.db, self.slot, owner, why).expect(CHECKED);
    }

    /// Ends all grants, as [`break_one`](Self::break_one) does with one.
    pub fn break_all(self, why: &[u8]) {
        self.ks.grants_break_all(self.db, self.slot, why);
    }
}

impl StockMut<'_> {
    /// Amounts, rules and memories, besides the holds.
    #[inline]
    pub fn stock(&self) -> &Stock {
        self.ks.stock(self.db, self.slot).expect(CHECKED)
    }

    /// Sets amounts and rules, unless they are the present ones.
    pub fn set_terms(&mut self, terms: Terms) {
        self.ks.stock_set(self.db, self.slot, terms).expect(CHECKED);
    }

    /// Adds a refill, which is remembered by its ID. False, with nothing changed, if the total would be too large.
    pub fn add(&mut self, id: &[u8], units: u64) -> bool {
        let now_ms = self.now_ms();
        self.ks.stock_add(self.db, self.slot, id, units, now_ms).expect(CHECKED)
    }

    /// Sells the units that an order holds. Returns how many; `None`, with nothing changed, if it holds none.
    pub fn sell(&mut self, order: &[u8]) -> Option<u64> {
        let now_ms = self.now_ms();
        self.ks.stock_sell(self.db, self.slot, order, now_ms).expect(CHECKED)
    }

    /// Makes the units that an order holds available again.
    pub fn cancel(&mut self, order: &[u8]) {
        self.ks.grant_end(self.db, self.slot, order).expect(CHECKED);
    }

    /// Whether the stream that the stock reports to, if any, can take an entry.
    pub fn can_report(&self) -> bool {
        self.ks.stock_can_report(self.db, self.slot)
    }
}

impl<'k, K> GrantsRef<'k, K> {
    /// The grants, with the limit of a gate.
    pub fn grants(&self) -> &'k Grants {
        self.grants
    }

    /// When the key expires, Unix ms, and every lease under it at the latest; [`NEVER`] if it does not.
    pub fn key_end_ms(&self) -> i64 {
        self.entry.expires_at_ms().unwrap_or(NEVER)
    }
}

impl<'k> GrantsRef<'k, StockKind> {
    /// Amounts, rules and memories, besides the holds.
    pub fn stock(&self) -> &'k Stock {
        self.grants.stock().expect(CHECKED)
    }
}

impl<'k, K> Vacant<'k, K> {
    fn new(ks: &'k mut Keyspace, db: DbIndex) -> Vacant<'k, K> {
        Vacant { ks, db, kind: PhantomData }
    }
}

impl<'k> Vacant<'k, GateKind> {
    /// Creates a gate. One whose limit is not its own gets a grant in the same unit.
    fn create(self, key: &[u8], limit: u64, is_fixed: bool) -> GateMut<'k> {
        let slot = self.ks.grants_create(self.db, key, Kind::Gate, limit, is_fixed);
        GrantsMut::new(self.ks, self.db, slot)
    }
}

impl<'k> Vacant<'k, LockKind> {
    /// Creates a lock, which gets a grant in the same unit.
    fn create(self, key: &[u8]) -> LockMut<'k> {
        let slot = self.ks.grants_create(self.db, key, Kind::Lock, 0, false);
        GrantsMut::new(self.ks, self.db, slot)
    }
}

impl<'k> Vacant<'k, StockKind> {
    /// Creates a stock.
    fn create(self, key: &[u8], terms: Terms) -> StockMut<'k> {
        let slot = self.ks.stock_create(self.db, key, terms).expect(CHECKED);
        GrantsMut::new(self.ks, self.db, slot)
    }
}

impl<'k, K> Counter<'k, K> {
    /// The number, from 0 to the most that such a gate or stock may have.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// When the counter expires, Unix ms.
    fn expires_at_ms(&self) -> Option<i64> {
        self.ks.entry(self.db, self.slot).expires_at_ms().filter(|at_ms| *at_ms < NEVER)
    }

    /// Removes the counter.
    fn clear(self) -> Vacant<'k, K> {
        self.ks.remove(self.db, self.slot);
        Vacant::new(self.ks, self.db)
    }
}

impl<'k> Counter<'k, StockKind> {
    /// Puts a stock in place of the counter, for a first hold. The stock expires when the counter would have, and all
    /// its units are available. `None`, with nothing changed, if no fencing token is left.
    pub fn into_stock(self, key: &[u8]) -> Option<StockMut<'k>> {
        self.ks.next_token()?;
        let (at_ms, total) = (self.expires_at_ms(), self.count);
        let mut stock = self.clear().create(key, Terms { total, ..Terms::default() });
        if let Some(at_ms) = at_ms {
            stock.slot = stock.ks.expire_at(stock.db, stock.slot, at_ms);
        }
        Some(stock)
    }
}

impl<'k> FoundLock<'k> {
    /// The lock, to read.
    pub fn grants(&self) -> Option<&Grants> {
        match self {
            FoundLock::Lock(lock) => Some(lock.grants()),
            FoundLock::Nothing(_) | FoundLock::String => None,
        }
    }

    /// The lock, which is created for a first grant if there is none. `None`, with nothing changed, if no fencing token
    /// is left, or a string holds the lock.
    pub fn into_lock(self, key: &[u8]) -> Option<LockMut<'k>> {
        match self {
            FoundLock::Lock(lock) => Some(lock),
            FoundLock::Nothing(vacant) => {
                vacant.ks.next_token()?;
                Some(vacant.create(key))
            }
            FoundLock::String => None,
        }
    }
}

impl<'k> Found<'k, GateKind> {
    /// The gate, to read.
    pub fn grants(&self) -> Option<&Grants> {
        match self {
            Found::Grants(gate) => Some(gate.grants()),
            Found::Nothing(_) | Found::Counter(_) => None,
        }
    }

    /// How many units a counter says are taken; 0 where there is none.
    pub fn count(&self) -> u64 {
        match self {
            Found::Counter(counter) => counter.count,
            Found::Nothing(_) | Found::Grants(_) => 0,
        }
    }

    /// Readies the gate for one more grant: creates it, or gives it this limit unless it has one of its own. The units
    /// of a counter are granted to the holder in `counted` until the counter would have expired, or, if it would not,
    /// until the time there (Unix ms). `None`, with nothing changed, if there are too few fencing tokens for that and
    /// the grant to come.
    pub fn into_gate(self, key: &[u8], limit: u64, counted: (&[u8], i64)) -> Option<GateMut<'k>> {
        match self {
            Found::Grants(mut gate) => {
                gate.ks.next_token()?;
                gate.adopt_limit(limit);
                Some(gate)
            }
            Found::Nothing(vacant) => {
                vacant.ks.next_token()?;
                Some(vacant.create(key, limit, false))
            }
            Found::Counter(counter) => {
                counter.ks.next_token().filter(|token| *token < TOKEN_MAX)?;
                let (count, holder) = (counter.count, counted.0);
                let until_ms = counter.expires_at_ms().unwrap_or(counted.1);
                let mut gate = counter.clear().create(key, limit, false);
                if count > 0 {
                    gate.grant(holder, count, false, until_ms, b"")?;
                }
                Some(gate)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::replayed::keyspace;
    use super::*;

    #[test]
    fn a_handle_opens_its_own_kind_only() {
        let mut ks = keyspace(0);
        _ = ks.create_gate(0, b"gate", 5, true);
        _ = ks.create_stock(0, b"stock", Terms::default());
        ks.put(0, b"text", b"x");
        assert!(ks.open_gate(0, b"gate").is_ok_and(|gate| gate.is_some_and(|gate| gate.grants().limit() == 5)));
        assert!(ks.open_gate(0, b"nothing").is_ok_and(|gate| gate.is_none()));
        assert!(ks.open_gate(0, b"stock").is_err() && ks.open_stock(0, b"gate").is_err());
        assert!(ks.open_lock(0, b"gate").is_err() && ks.open_gate_or_counter(0, b"stock").is_err());
        // A string may hold a lock, but only a number can be a counter.
        assert!(matches!(ks.open_lock_or_string(0, b"text"), Ok(FoundLock::String)));
        assert!(ks.open_gate_or_counter(0, b"text").is_err() && ks.open_stock_or_counter(0, b"text").is_err());
    }

    #[test]
    fn a_counter_is_taken_over_only_with_enough_tokens() {
        let mut ks = keyspace(0);
        ks.put(0, b"gate", b"3");
        let mut take_over = |given| {
            ks.raise_tokens(given);
            let found = ks.open_gate_or_counter(0, b"gate").expect("a counter or a gate");
            assert_eq!((found.count(), found.grants().map(Grants::units)), (3, None));
            found.into_gate(b"gate", 5, (b"counted", 100)).map(|gate| gate.grants().units())
        };
        // The counted units take one, and the grant to come another.
        assert_eq!((take_over(TOKEN_MAX - 1), take_over(TOKEN_MAX)), (None, None));
        let mut ks = keyspace(0);
        ks.put(0, b"gate", b"3");
        ks.raise_tokens(TOKEN_MAX - 2);
        let found = ks.open_gate_or_counter(0, b"gate").expect("a counter");
        let mut gate = found.into_gate(b"gate", 5, (b"counted", 100)).expect("two tokens are left");
        assert!(gate.grants().get(b"counted").is_some_and(|counted| counted.units == 3 && counted.until_ms == 100));
        assert!(gate.grant(b"a", 1, false, 50, b"").is_some_and(|own| own.token == TOKEN_MAX));
        assert_eq!(gate.grant(b"b", 1, false, 50, b""), None);
    }
}
