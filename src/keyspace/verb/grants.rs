//! Verbs on locks, gates and stocks: their holders and their limits.
//!
//! A lease that is over ends by an effect like any other, so a follower of the stream needs no clock. Fencing tokens
//! are counted for the whole keyspace and never reused: not after the key is deleted, not after everything is deleted,
//! and not after a restart.

use super::check::{ensure, ensure_emptied, slot_of};
use crate::base::key_prefixes::KeyPrefixes;
use crate::keyspace::any_value::{Value, ValueMut, ValueRef};
use crate::keyspace::effect::{Cause, Effect, Family, GrantTurn, Turn};
use crate::keyspace::entry::Entry;
use crate::keyspace::limits::{HISTORY_PLACES, PLACE_RETRY_MS, RESTORED_TOKEN_MAX};
use crate::keyspace::pre_image::PreImage;
use crate::keyspace::{DbIndex, Keyspace, Misfit, NEVER, Slot, WrongType};
use crate::value::grants::{Grant, Grants, Kind, OwnedGrant, TOKEN_MAX, UNITS_MAX};

impl Keyspace {
    /// The lock, gate or stock at `slot`.
    #[inline]
    pub fn grants(&self, db: DbIndex, slot: Slot) -> Result<&Grants, WrongType> {
        match self.value(db, slot) {
            ValueRef::Grants(grants) => Ok(grants),
            _ => Err(WrongType),
        }
    }

    /// The fencing token of the next grant, or `None` when all have been issued.
    pub fn next_token(&self) -> Option<u64> {
        Some(self.last_token + 1).filter(|token| *token <= TOKEN_MAX)
    }

    /// The greatest fencing token known.
    pub fn last_token(&self) -> u64 {
        self.last_token
    }

    /// Forgets which tokens were issued: the data that is loaded next says it. Nobody was shown tokens of changes that
    /// are forgotten.
    pub(crate) fn forget_tokens(&mut self) {
        (self.last_token, self.given_token) = (0, 0);
    }

    /// The last fencing token that this server issued. Tokens above it, up to [`last_token`](Self::last_token), come
    /// from another server.
    pub(in crate::keyspace) fn given_token(&self) -> u64 {
        self.given_token
    }

    /// Makes sure that no token up to this one is issued from now on, because another server may have issued it.
    /// Records this in any case: the value known here may come from a unit that was rolled back, which the journal does
    /// not contain.
    pub fn raise_tokens(&mut self, to: u64) {
        self.last_token = self.last_token.max(to);
        self.effects.record(0, Effect::TokensRaise { to });
    }

    /// Whether a waiter for a place under a key might find one, by a quick look. Call between units: nothing is
    /// removed.
    pub fn may_have_place(&self, db: DbIndex, key: &[u8]) -> bool {
        let Some(ValueRef::Grants(grants)) = self.live(db, key).map(Entry::value) else { return true };
        if grants.kind() != Kind::Lock {
            // That depends on the request, and on the limit, which may have changed. No call waits for a stock, since
            // it is not a gate.
            return true;
        }
        let is_alone = grants.first().is_some_and(|first| !first.shared);
        !is_alone || grants.first_end_ms().is_some_and(|at_ms| self.expires_at_once(at_ms))
    }

    /// Returns when to look again for a place under a key if nothing happens until then, Unix ms: when the key expires
    /// or the first lease ends. Always later than now.
    pub fn place_may_be_free_at(&self, db: DbIndex, key: &[u8]) -> Option<i64> {
        let at_ms = Some(self.stored(db, key)?.due_at_ms()).filter(|at_ms| *at_ms != NEVER)?;
        // An expired grant that is still stored will be removed soon, in slices, or when expiry resumes.
        Some(if at_ms > self.now_ms { at_ms } else { self.now_ms.saturating_add(PLACE_RETRY_MS) })
    }

    /// Creates a lock, gate or stock without grants under a key that does not exist. The caller must add a grant in
    /// this unit unless the key lasts without grants.
    pub fn grants_create(&mut self, db: DbIndex, key: &[u8], kind: Kind, limit: u64, fixed: bool) -> Slot {
        self.effects.record(db, Effect::GrantsCreate { key, kind, limit, fixed });
        self.create(db, key, Value::Grants(Grants::new(kind, limit, fixed)).into())
    }

    /// Gives a holder a grant, replacing its grant of the same token. Returns false, with nothing changed, if the grant
    /// does not [fit](Grants::set).
    pub fn grant_set(&mut self, db: DbIndex, slot: Slot, grant: Grant<'_>) -> Result<bool, WrongType> {
        let before = !self.grants(db, slot)?.is_empty();
        self.note_change(db, slot, |value| PreImage::grant(value, grant.holder));
        if !self.grants_mut(db, slot)?.set(grant) {
            return Ok(false);
        }
        self.note_lease(grant.until_ms);
        if grant.token > self.last_token {
            (self.last_token, self.given_token) = (grant.token, grant.token);
            self.note_turn(Turn::Granted, db, slot, grant, grant.note);
        }
        self.dbs[db as usize].follow_elements(slot, before);
        self.record_at(db, slot, |key| grant_set(key, grant));
        Ok(true)
    }

    /// Ends a holder's grant at the request of a command. The key is removed with its last grant unless it lasts
    /// without grants. Returns false if the holder has no grant.
    pub fn grant_end(&mut self, db: DbIndex, slot: Slot, holder: &[u8]) -> Result<bool, WrongType> {
        self.end_and_report(db, slot, holder, Turn::Released, b"")
    }

    /// As [`grant_end`](Self::grant_end), on behalf of another client than the holder, which gives the reason.
    pub fn grant_break(&mut self, db: DbIndex, slot: Slot, holder: &[u8], why: &[u8]) -> Result<bool, WrongType> {
        self.end_and_report(db, slot, holder, Turn::Broken, why)
    }

    /// Breaks all grants at `slot`, as [`grant_break`](Self::grant_break) does with one, and removes the key.
    pub fn grants_break_all(&mut self, db: DbIndex, slot: Slot, why: &[u8]) {
        self.note_all_grants(db, slot, Turn::Broken, why);
        self.remove_noted(db, slot, Cause::Command);
    }

    /// Counts a call that a limiter has granted. Such a call leaves no grant.
    pub fn count_granted(&mut self, key: &[u8]) {
        self.effects.tally(Turn::Granted, Family::Limit, key, 1);
    }

    /// The key prefixes by which grants are counted.
    pub fn counted_prefixes(&self) -> &KeyPrefixes {
        self.effects.counted_prefixes()
    }

    /// Counts grants by these prefixes from now on.
    pub fn count_by(&mut self, prefixes: KeyPrefixes) {
        self.effects.count_by(prefixes);
    }

    /// Notes the fate of a grant at `slot`.
    pub(super) fn note_turn(&mut self, turn: Turn, db: DbIndex, slot: Slot, grant: Grant<'_>, note: &[u8]) {
        let Grant { holder, token, units, .. } = grant;
        let entry = self.dbs[db as usize].entry(slot);
        let ValueRef::Grants(grants) = entry.value() else { return };
        let (family, key) = (grants.kind().into(), entry.key());
        self.effects.add_grant_turn(GrantTurn { turn, family, db, key, holder, token, units, note });
    }

    /// Sets the limit of the gate at `slot`, and whether the limit is its own. A gate without its own limit must have
    /// grants.
    pub fn grants_limit(&mut self, db: DbIndex, slot: Slot, limit: u64, fixed: bool) -> Result<(), WrongType> {
        self.grants(db, slot)?;
        self.note_change(db, slot, PreImage::grants_limit);
        self.grants_mut(db, slot)?.set_limit(limit, fixed);
        self.record_at(db, slot, |key| Effect::GrantsLimit { key, limit, fixed });
        Ok(())
    }

    /// Whether this server issued a fencing token, or could have. If such a token is not held, its lease has ended.
    pub fn has_given_token(&self, token: u64) -> bool {
        token <= self.given_token
    }

    /// Whether enough tokens remain above one that comes from elsewhere.
    pub fn may_restore_token(&self, token: u64) -> bool {
        token <= self.last_token.max(RESTORED_TOKEN_MAX)
    }

    /// Makes sure that no token up to those of a whole value is issued from now on, and notes its leases.
    #[inline]
    pub(in crate::keyspace) fn lift_tokens(&mut self, value: ValueRef<'_>) {
        if let ValueRef::Grants(grants) = value {
            self.last_token = self.last_token.max(grants.last_token());
            self.note_lease(grants.last_end_ms().unwrap_or(i64::MIN));
        }
    }

    /// Notes that all grants at `slot` are about to go with their key. All are counted; if there are very many, only as
    /// many are noted as can be remembered.
    #[cold]
    pub(super) fn note_removed_grants(&mut self, db: DbIndex, slot: Slot, cause: Cause) {
        let turn = if cause == Cause::Expiry { Turn::Expired } else { Turn::Removed };
        self.note_all_grants(db, slot, turn, b"");
    }

    fn note_all_grants(&mut self, db: DbIndex, slot: Slot, turn: Turn, note: &[u8]) {
        let entry = self.dbs[db as usize].entry(slot);
        let ValueRef::Grants(grants) = entry.value() else { return };
        let (family, key) = (Family::from(grants.kind()), entry.key());
        for Grant { holder, token, units, .. } in grants.from(0).take(HISTORY_PLACES) {
            self.effects.add_grant_turn(GrantTurn { turn, family, db, key, holder, token, units, note });
        }
        if let Some(more) = grants.len().checked_sub(HISTORY_PLACES).filter(|more| *more > 0) {
            self.effects.tally(turn, family, key, more as u64);
        }
    }

    /// Ends at most `budget` expired grants at `slot`, while others last. Returns how many there were.
    pub(in crate::keyspace) fn end_expired_grants(&mut self, db: DbIndex, slot: Slot, budget: usize) -> usize {
        let expired_until_ms = self.expired_until_ms();
        let mut ended = 0;
        while ended < budget
            && let Ok(grants) = self.grants(db, slot)
            && let Some(first) = grants.first_end().filter(|first| first.until_ms <= expired_until_ms)
        {
            let holder = first.holder.to_vec();
            self.stats.expired_elements += 1;
            if self.end_and_report(db, slot, &holder, Turn::Expired, b"") != Ok(true) {
                break;
            }
            ended += 1;
        }
        ended
    }

    /// Ends a holder's grant, and reports the end to a stock's stream.
    fn end_and_report(
        &mut self,
        db: DbIndex,
        slot: Slot,
        holder: &[u8],
        turn: Turn,
        note: &[u8],
    ) -> Result<bool, WrongType> {
        let grants = self.grants(db, slot)?;
        let hold = grants.stock().and_then(|_| grants.get(holder)).map(OwnedGrant::from);
        let has_ended = self.end_grant(db, slot, holder, turn, note)?;
        if let Some(hold) = hold {
            self.report_hold_ended(db, slot, hold.as_grant(), cause_of(turn));
        }
        Ok(has_ended)
    }

    /// Removes a holder's grant without recording it. Returns whether the key should now be removed.
    pub(super) fn take_grant(&mut self, db: DbIndex, slot: Slot, holder: &[u8]) -> Result<bool, WrongType> {
        self.note_change(db, slot, |value| PreImage::grant(value, holder));
        let grants = self.grants_mut(db, slot)?;
        grants.remove(holder);
        let emptied = grants.is_hollow();
        self.dbs[db as usize].follow_elements(slot, true);
        Ok(emptied)
    }

    fn end_grant(
        &mut self,
        db: DbIndex,
        slot: Slot,
        holder: &[u8],
        turn: Turn,
        note: &[u8],
    ) -> Result<bool, WrongType> {
        let Some(own) = self.grants(db, slot)?.get(holder) else { return Ok(false) };
        let (ended, cause) = (own.renewed(holder, own.until_ms, b""), cause_of(turn));
        let token = ended.token;
        self.note_turn(turn, db, slot, ended, note);
        let emptied = self.take_grant(db, slot, holder)?;
        let emptied_key = emptied && !self.is_workshop;
        self.record_at(db, slot, |key| Effect::GrantEnd { key, holder, token, cause, emptied: emptied_key });
        self.drop_if(emptied, db, slot);
        Ok(true)
    }

    fn grants_mut(&mut self, db: DbIndex, slot: Slot) -> Result<&mut Grants, WrongType> {
        match self.value_mut(db, slot) {
            Some(ValueMut::Grants(grants)) => Ok(grants),
            _ => Err(WrongType),
        }
    }
}

/// The cause of an effect that ends a grant.
fn cause_of(turn: Turn) -> Cause {
    if turn == Turn::Expired { Cause::Expiry } else { Cause::Command }
}

/// The effect that gives a holder a grant.
pub(in crate::keyspace) fn grant_set<'a>(key: &'a [u8], grant: Grant<'a>) -> Effect<'a> {
    let Grant { holder, token, units, since_ms, until_ms, entered, shared, note } = grant;
    Effect::GrantSet { key, holder, token, units, since_ms, until_ms, entered, shared, note }
}

/// Replays a recorded change.
pub(super) fn apply(ks: &mut Keyspace, db: DbIndex, effect: &Effect<'_>) -> Result<(), Misfit> {
    match *effect {
        Effect::GrantsCreate { key, kind, limit, fixed } => {
            ensure(ks.dbs[db as usize].find(key).is_none(), Misfit::Exists)?;
            let is_sound = if kind == Kind::Stock { limit == 0 && fixed } else { limit <= UNITS_MAX };
            ensure(is_sound, Misfit::BadBytes)?;
            ks.grants_create(db, key, kind, limit, fixed);
        }
        Effect::GrantSet { key, holder, token, units, since_ms, until_ms, entered, shared, note } => {
            ensure(until_ms != NEVER, Misfit::BadBytes)?;
            let grant = Grant { holder, token, units, since_ms, until_ms, entered, shared, note };
            let slot = slot_of(ks, db, key)?;
            ensure(ks.grant_set(db, slot, grant)?, Misfit::BadBytes)?;
        }
        Effect::GrantEnd { key, holder, token, cause, emptied } => {
            let slot = slot_of(ks, db, key)?;
            let has_token = ks.grants(db, slot)?.get(holder).is_some_and(|grant| grant.token == token);
            let turn = if cause == Cause::Expiry { Turn::Expired } else { Turn::Released };
            ensure(has_token && ks.end_grant(db, slot, holder, turn, b"")?, Misfit::Absent)?;
            ensure_emptied(ks, db, key, emptied)?;
        }
        Effect::GrantsLimit { key, limit, fixed } => {
            let slot = slot_of(ks, db, key)?;
            ensure(ks.grants(db, slot)?.kind() != Kind::Stock, Misfit::WrongType)?;
            ensure(limit <= UNITS_MAX, Misfit::BadBytes)?;
            ks.grants_limit(db, slot, limit, fixed)?;
        }
        Effect::Tokens { last } => {
            ensure(last <= TOKEN_MAX, Misfit::BadBytes)?;
            ks.last_token = ks.last_token.max(last);
            ks.given_token = ks.given_token.max(last);
            ks.effects.record_uncounted(db, *effect);
        }
        Effect::TokensRaise { to } => {
            ensure(to <= TOKEN_MAX, Misfit::BadBytes)?;
            ks.raise_tokens(to);
        }
        _ => return Err(Misfit::Elsewhere),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::replayed::{Trial, keyspace};
    use super::super::tests::replays;
    use super::*;
    use crate::keyspace::effect::{EffectReader, EffectWriter, Recording};
    use crate::keyspace::entry::Entry;
    use crate::keyspace::snapshot::Snapshot;
    use crate::value::grants::FEW;

    fn grant<'a>(ks: &Keyspace, holder: &'a [u8], until_ms: i64) -> Grant<'a> {
        let token = ks.next_token().expect("few were given out");
        let since_ms = ks.now_ms();
        Grant { holder, token, units: 1, since_ms, until_ms, entered: 1, shared: false, note: b"" }
    }

    /// Acquires as a command does.
    fn acquire(ks: &mut Keyspace, key: &[u8], holder: &[u8], until_ms: i64) {
        let slot = ks.find(0, key).unwrap_or_else(|| ks.grants_create(0, key, Kind::Gate, 1_000, false));
        let new = grant(ks, holder, until_ms);
        let old = ks.grants(0, slot).expect("a gate").get(holder).map(|old| old.token);
        assert_eq!(ks.grant_set(0, slot, Grant { token: old.unwrap_or(new.token), ..new }), Ok(true));
    }

    fn holders(ks: &mut Keyspace, key: &[u8]) -> Vec<Vec<u8>> {
        match ks.read(0, key) {
            Some(ValueRef::Grants(grants)) => grants.from(0).map(|grant| grant.holder.to_vec()).collect(),
            _ => Vec::new(),
        }
    }

    #[test]
    fn replaying_gives_the_same_grants() {
        replays(|ks| {
            for holder in [b"a", b"b", b"c"] {
                acquire(ks, b"gate", holder, 5_000);
            }
            let gate = ks.find(0, b"gate").expect("just created");
            let Grant { token, since_ms, units, .. } = ks.grants(0, gate)?.get(b"b").expect("it holds one");
            let (until_ms, entered, shared) = (9_000, 2, true);
            let renewed = Grant { holder: b"b", token, units, since_ms, until_ms, entered, shared, note: b"n" };
            assert!(ks.grant_set(0, gate, renewed)?);
            assert!(ks.grant_end(0, gate, b"a")? && !ks.grant_end(0, gate, b"a")?);
            ks.grants_limit(0, gate, 7, true)?;
            assert!(ks.grant_end(0, gate, b"b")? && ks.grant_end(0, gate, b"c")?);
            assert!(ks.find(0, b"gate").is_some(), "its limit is its own");
            acquire(ks, b"other", b"a", 5_000);
            let other = ks.find(0, b"other").expect("just created");
            ks.copy(0, other, 1, b"copy");
            assert!(ks.grant_end(0, other, b"a")?);
            assert_eq!((ks.find(0, b"other"), ks.find(1, b"copy").is_some(), ks.next_token()), (None, true, Some(5)));
            Ok(())
        });
    }

    #[test]
    fn an_expired_lease_ends_by_itself() {
        let mut ks = keyspace(0);
        acquire(&mut ks, b"k", b"a", 100);
        acquire(&mut ks, b"k", b"b", 200);
        ks.begin_unit(100, Recording::Full);
        assert_eq!(holders(&mut ks, b"k"), [b"b"]);
        let ended = Effect::GrantEnd { key: b"k", holder: b"a", token: 1, cause: Cause::Expiry, emptied: false };
        assert!(ks.effects().iter().eq([(0, ended)]));
        assert!(!ks.has_changed(), "an ended lease is no change to wait for");
        ks.begin_unit(200, Recording::Full);
        assert!(ks.live(0, b"k").is_none());
        while ks.reclaim_expired(10) {}
        assert!(ks.effects().iter().eq([(0, Effect::Del { key: b"k", cause: Cause::Expiry })]));
        assert_eq!((ks.db(0).len(), ks.stats.expired_elements), (0, 2));
        // A gate with its own limit stays, and its timer fires for later holders.
        let slot = ks.grants_create(0, b"fixed", Kind::Gate, 2, true);
        let new = grant(&ks, b"a", 300);
        assert_eq!(ks.grant_set(0, slot, new), Ok(true));
        ks.begin_unit(300, Recording::Full);
        assert!(!ks.reclaim_expired(10) && ks.find(0, b"fixed").is_some());
        assert_eq!((holders(&mut ks, b"fixed").len(), ks.db(0).partly_volatile()), (0, 0));
    }

    /// A failed script leaves the values, their memory and the ends of their leases as before. The timer of `lock`
    /// fires at the end of its lease; that of `prolonged` fires earlier, at the end of the lease before it was
    /// prolonged. `many` has one grant more than a block holds.
    #[test]
    fn a_rollback_restores_memory_and_lease_ends() {
        let mut ks = keyspace(0);
        let keys: [&[u8]; 4] = [b"lock", b"prolonged", b"few", b"many"];
        acquire(&mut ks, b"lock", b"a", 500);
        [400, 500].into_iter().for_each(|until_ms| acquire(&mut ks, b"prolonged", b"a", until_ms));
        (0..=FEW as u8).for_each(|holder| acquire(&mut ks, b"many", &[holder], 500));
        (0..FEW as u8).for_each(|holder| acquire(&mut ks, b"few", &[holder], 500));
        let slot_of = |ks: &mut Keyspace, key: &[u8]| ks.find(0, key).expect("it is held");
        let shown = |ks: &mut Keyspace| {
            keys.map(|key| {
                let slot = slot_of(ks, key);
                let grants = ks.grants(0, slot).expect("grants");
                (format!("{grants:?}"), grants.compact_bytes().is_some(), ks.entry(0, slot).mem_bytes(0))
            })
        };
        type Change = fn(&mut Keyspace, &[u8]);
        let changes: [Change; 7] = [
            |ks, key| acquire(ks, key, b"a", 900),
            |ks, key| acquire(ks, key, b"new", 100),
            |ks, key| {
                while let Some(holder) = holders(ks, key).first() {
                    let slot = ks.find(0, key).expect("it is held");
                    assert_eq!(ks.grant_end(0, slot, holder), Ok(true));
                }
            },
            |ks, key| {
                let slot = ks.find(0, key).expect("it is held");
                assert_eq!(ks.grants_limit(0, slot, 3, true), Ok(()));
            },
            |ks, key| {
                let slot = ks.find(0, key).expect("it is held");
                ks.copy(0, slot, 0, b"copy");
                ks.rename(0, slot, b"a name that is longer");
                acquire(ks, b"copy", b"new", 100);
            },
            |ks, key| {
                let slot = ks.find(0, key).expect("it is held");
                ks.move_to(0, slot, 1);
                ks.put(0, key, b"text");
            },
            |ks, key| {
                let slot = ks.find(0, key).expect("it is held");
                let slot = ks.expire_at(0, slot, 50);
                ks.remove(0, slot);
                acquire(ks, key, b"a", 100);
            },
        ];
        for change in changes {
            let before = shown(&mut ks);
            ks.begin_unit(1, Recording::Full);
            ks.begin_undo();
            keys.into_iter().for_each(|key| change(&mut ks, key));
            ks.roll_back();
            assert_eq!(shown(&mut ks), before);
        }
        ks.begin_unit(499, Recording::Full);
        while ks.reclaim_expired(10) {}
        assert_eq!((ks.db(0).len(), ks.db(1).len()), (4, 0));
        ks.begin_unit(500, Recording::Full);
        while ks.reclaim_expired(1_000) {}
        assert_eq!(ks.db(0).len(), 0);
    }

    #[test]
    fn tokens_only_grow() {
        let mut ks = keyspace(0);
        acquire(&mut ks, b"k", b"a", 100);
        ks.flush(0, false);
        assert_eq!(ks.next_token(), Some(2));
        // A snapshot carries the last token, although nothing that it contains has a token.
        let mut out = EffectWriter::default();
        while !Snapshot::begin(&ks).copy_slice(&ks, 1_000, &mut out) {}
        let mut copy = keyspace(0);
        EffectReader::new(out.as_bytes()).for_each(|(db, effect)| assert_eq!(copy.apply(db, &effect), Ok(())));
        assert_eq!(copy.next_token(), Some(2));
        // A value that arrives as a whole raises the tokens as well.
        let mut grants = Grants::new(Kind::Lock, 0, false);
        assert!(grants.set(Grant { token: 77, ..grant(&copy, b"h", 5) }));
        copy.put_value(0, b"restored", Value::Grants(grants));
        assert_eq!(copy.next_token(), Some(78));
        let mut other = keyspace(0);
        copy.effects().iter().for_each(|(db, effect)| assert_eq!(other.apply(db, &effect), Ok(())));
        assert_eq!(other.next_token(), Some(78));
        // Tokens between the two belong to another server, and a payload may not use them up.
        assert!(other.may_restore_token(RESTORED_TOKEN_MAX) && !other.may_restore_token(RESTORED_TOKEN_MAX + 1));
        assert!(other.has_given_token(1) && !other.has_given_token(2) && !other.has_given_token(77));
        assert!(copy.has_given_token(1) && [2, 50, 77, 78].iter().all(|token| !copy.has_given_token(*token)));
        acquire(&mut copy, b"k", b"a", 100);
        assert!(copy.has_given_token(50) && copy.has_given_token(78) && !copy.has_given_token(79));
        // A snapshot contains all of this.
        copy.raise_tokens(90);
        let mut out = EffectWriter::default();
        while !Snapshot::begin(&copy).copy_slice(&copy, 1_000, &mut out) {}
        let mut again = keyspace(0);
        EffectReader::new(out.as_bytes()).for_each(|(db, effect)| assert_eq!(again.apply(db, &effect), Ok(())));
        assert_eq!(again.next_token(), Some(91));
        assert!(again.has_given_token(78) && !again.has_given_token(79));
        assert_eq!(other.apply(0, &Effect::TokensRaise { to: RESTORED_TOKEN_MAX + 1 }), Ok(()));
        assert!(other.may_restore_token(RESTORED_TOKEN_MAX + 1) && !other.may_restore_token(RESTORED_TOKEN_MAX + 2));
        assert_eq!(other.apply(0, &Effect::Tokens { last: TOKEN_MAX }), Ok(()));
        assert_eq!(other.next_token(), None);
    }

    #[test]
    fn unfit_changes_are_refused() {
        let mut ks = keyspace(0);
        ks.put(0, b"s", b"");
        acquire(&mut ks, b"k", b"a", 100);
        let set = |key, holder, token, until_ms| Effect::GrantSet {
            key,
            holder,
            token,
            units: 1,
            since_ms: 0,
            until_ms,
            entered: 1,
            shared: false,
            note: b"",
        };
        let cause = Cause::Command;
        for (effect, misfit) in [
            (Effect::GrantsCreate { key: b"k", kind: Kind::Lock, limit: 0, fixed: false }, Misfit::Exists),
            (Effect::GrantsCreate { key: b"x", kind: Kind::Lock, limit: u64::MAX, fixed: false }, Misfit::BadBytes),
            (set(b"x", b"a", 9, 5), Misfit::NoKey),
            (set(b"s", b"a", 9, 5), Misfit::WrongType),
            (set(b"k", b"b", 1, 5), Misfit::BadBytes),
            (set(b"k", b"a", 2, 5), Misfit::BadBytes),
            (set(b"k", b"b", 9, NEVER), Misfit::BadBytes),
            (Effect::GrantEnd { key: b"k", holder: b"b", token: 1, cause, emptied: false }, Misfit::Absent),
            (Effect::GrantEnd { key: b"k", holder: b"a", token: 2, cause, emptied: true }, Misfit::Absent),
            (Effect::GrantsLimit { key: b"s", limit: 1, fixed: false }, Misfit::WrongType),
            (Effect::Tokens { last: u64::MAX }, Misfit::BadBytes),
            (Effect::TokensRaise { to: u64::MAX }, Misfit::BadBytes),
            (Effect::GrantEnd { key: b"k", holder: b"a", token: 1, cause, emptied: false }, Misfit::Emptied),
        ] {
            assert_eq!(ks.apply(0, &effect), Err(misfit), "{effect:?}");
        }
    }

    /// One step of the test of undo and copying.
    #[derive(Clone, Debug)]
    enum Step {
        Acquire(u8, i64),
        End(u8),
        Limit(u64, bool),
        Wait(i64),
        Delete,
        /// Renames there, or back again.
        Rename,
        Copy,
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            12 => (0..120u8, 1..200i64).prop_map(|(holder, lease)| Step::Acquire(holder, lease)),
            3 => (0..120u8).prop_map(Step::End),
            1 => (0..9u64, any::<bool>()).prop_map(|(limit, fixed)| Step::Limit(limit, fixed)),
            1 => (1..30i64).prop_map(Step::Wait),
            1 => Just(Step::Delete),
            1 => Just(Step::Rename),
            1 => Just(Step::Copy),
        ]
    }

    fn run(ks: &mut Keyspace, step: &Step) {
        let slot = ks.find(0, b"k");
        match (step, slot) {
            (Step::Acquire(holder, lease), _) => {
                let until_ms = ks.now_ms() + lease;
                acquire(ks, b"k", &[b'h', *holder], until_ms);
            }
            (Step::End(holder), Some(slot)) => _ = ks.grant_end(0, slot, &[b'h', *holder]),
            (Step::Limit(limit, fixed), Some(slot))
                if *fixed || ks.grants(0, slot).is_ok_and(|grants| !grants.is_empty()) =>
            {
                assert_eq!(ks.grants_limit(0, slot, *limit, *fixed), Ok(()));
            }
            (Step::Delete, Some(slot)) if ks.now_ms() % 5 == 0 => ks.remove(0, slot),
            (Step::Rename, Some(slot)) => ks.rename(0, slot, b"other"),
            (Step::Rename, None) => {
                if let Some(other) = ks.find(0, b"other") {
                    ks.rename(0, other, b"k");
                }
            }
            (Step::Copy, Some(slot)) => ks.copy(0, slot, 0, b"other"),
            _ => {}
        }
    }

    fn wait_ms(step: &Step) -> i64 {
        if let Step::Wait(ms) = step { *ms } else { 0 }
    }

    fn shown(ks: &Keyspace) -> Vec<String> {
        let show = |entry: Entry<'_>| match entry.value() {
            ValueRef::Grants(grants) => format!("{:?} {grants:?}", entry.key()),
            value => value.type_name().to_owned(),
        };
        let mut shown: Vec<String> = ks.stored_entries(0).map(show).collect();
        shown.sort_unstable();
        shown
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]

        /// A failed script is rolled back; committed steps appear in the effects, and in a copy made in parts at the
        /// same time.
        #[test]
        fn grants_are_undone_and_copied(steps in proptest::collection::vec((step(), 0..4u8), 0..250)) {
            let mut ks = keyspace(0);
            for holder in 0..(FEW as u8 + 20) {
                acquire(&mut ks, b"k", &[b'h', holder], 1_000);
            }
            Trial { wait_ms, run, shown, more: &[Step::Acquire(200, 50), Step::End(7)] }.of(&mut ks, &steps);
        }
    }
}
