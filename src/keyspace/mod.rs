//! The keyspace: databases of keys, changed only by verbs.
//!
//! A **unit** is what happens whole or not at all: a command, an EXEC, a script. Everything in it sees the same time
//! ([`set_now_ms`](Keyspace::set_now_ms)); the verbs (one file per value type under `verb`) apply changes in place and record
//! each as an [`effect::Effect`]. Reading is free for all: commands that read use [`read`](Keyspace::read) and its
//! kin, those that write [`find`](Keyspace::find), and observers [`live`](Keyspace::live).
//!
//! An expired key does not exist. Whoever meets one removes it, and the removal is an effect like any other, so that who
//! follows the stream needs no clock. While somebody repeats what another server did in the past, nothing expires
//! ([`hold_expiry`](Keyspace::hold_expiry)): a key whose deadline is over by now may be given a later one by the next command.

pub mod any_value;
mod arena;
mod changed;
pub(crate) mod db;
mod disposal;
pub mod effect;
mod entries;
pub mod entry;
mod eviction;
mod expiry;
mod in_flight;
mod key_use;
mod limits;
mod mark;
mod misfit;
mod pre_image;
pub mod prepared;
mod settle;
pub mod snapshot;
mod stats;
mod undo;
mod unsettled;
pub mod usage;
mod verb;
mod victims;
mod wheel;

pub use arena::Slot;
pub use db::DbIndex;
pub use entry::NEVER;
pub use limits::ValueLimits;
pub use misfit::{Misfit, WrongType};
pub use stats::KeyspaceStats;

use std::rc::Rc;

use any_value::{ValueMut, ValueRef};
use db::Db;
use disposal::Disposal;
use effect::{Cause, Effect, Effects, Recording, What};
use entry::Entry;
use expiry::Turn;
use in_flight::InFlight;
use mark::Mark;
use undo::notes::Undo;
use unsettled::Unsettled;
use usage::{Noting, Usage};
use victims::Pool;

use crate::base::hasher::hash_bytes;
use crate::base::limits::{
    EXPIRED_ELEMENTS_PER_LOOKUP, EXPIRY_SLICE_TIMERS, EXPIRY_STEP, RANDOM_KEY_TRIES, UNIT_MAX_BYTES,
};
use crate::base::lsn::Lsn;
use crate::base::rng::Rng;
use crate::base::split_table::{PLACE_END, Walk};
use crate::config::EventClasses;
use crate::value::deadlines::Deadlines;

/// Where a [walk](Keyspace::walk) ends.
pub const WALK_END: u64 = PLACE_END;

/// The name under which a value is built before it has its place.
pub const NAMELESS: &[u8] = b"";

/// Keys from which on looking ahead pays: fewer lie in the processor's cache anyway.
const AHEAD_MIN_KEYS: usize = 4_096;

/// As long as one of these lives, nothing expires; see [`Keyspace::hold_expiry`].
#[derive(Debug)]
pub struct ExpiryHold {
    /// Only counted.
    _share: Rc<()>,
}

/// All databases. See the module's header.
pub struct Keyspace {
    limits: ValueLimits,
    dbs: Vec<Db>,
    disposal: Disposal,
    /// What it had freed when the counters were begun anew.
    freed_before: u64,
    effects: Effects,
    in_flight: InFlight,
    undo: Undo,
    /// What may need another place when the unit is over.
    unsettled: Unsettled,
    /// Where a value is built in parts.
    workshop: Option<Box<Workshop>>,
    /// Whether this is where a value is built in parts: one that has lost all that it got so far stays.
    is_workshop: bool,
    /// The collection of which effects must say which elements they change, because it is being copied in parts.
    copied_in_parts: Mark,
    /// Effects that count, but not as changes of keys: of what is kept beside them.
    standing_effects: u64,
    now_ms: i64,
    /// How often two databases have changed places.
    swaps: u64,
    /// The greatest fencing token that is known: all that are given out from now on are greater.
    last_token: u64,
    /// The last fencing token that was given out here. Those behind it, up to [`last_token`](Self::last_token), are another server's.
    given_token: u64,
    /// No lease ends later, Unix ms. It may be that none does any more.
    latest_lease_ms: i64,
    /// Shared with every [`ExpiryHold`].
    expiry_holds: Rc<()>,
    usage: Usage,
    /// What is noted of keys that are looked up now.
    noting: Noting,
    /// Whether what is kept is how often a key is used, not when.
    counts_uses: bool,
    /// The best victims of eviction that were seen so far.
    pool: Pool,
    /// Room for those that are drawn.
    drawn: Vec<Slot>,
    /// The database of which a key was evicted by chance last.
    next_victim_db: DbIndex,
    /// See [`set_keeps_expired`](Keyspace::set_keeps_expired).
    keeps_expired: bool,
    /// See [`set_keeps_delayed`](Keyspace::set_keeps_delayed).
    keeps_delayed: bool,
    /// Whether a key that is added is noted: to be taken back, or to be told.
    notes_added: bool,
    /// Whether a key that is looked for and not found is told.
    tells_misses: bool,
    /// Counters for INFO.
    pub stats: KeyspaceStats,
    /// Randomness for RANDOMKEY and its kin.
    pub rng: Rng,
}

/// A keyspace in which a value is built, under [`NAMELESS`] in database 0. The value stays even if it loses all its elements.
struct Workshop {
    ks: Keyspace,
    /// What has expired is a part of the value like any other.
    _hold: ExpiryHold,
}

impl Keyspace {
    /// An empty keyspace of `databases` databases.
    pub fn new(databases: u16, rng: Rng) -> Keyspace {
        Keyspace {
            limits: ValueLimits::default(),
            dbs: (0..databases).map(|_| Db::new()).collect(),
            disposal: Disposal::default(),
            effects: Effects::default(),
            in_flight: InFlight::default(),
            undo: Undo::default(),
            unsettled: Unsettled::default(),
            workshop: None,
            is_workshop: false,
            copied_in_parts: Mark::default(),
            standing_effects: 0,
            now_ms: 0,
            swaps: 0,
            last_token: 0,
            given_token: 0,
            latest_lease_ms: i64::MIN,
            expiry_holds: Rc::default(),
            usage: Usage::default(),
            noting: Noting::default(),
            counts_uses: false,
            pool: Pool::default(),
            drawn: Vec::new(),
            next_victim_db: 0,
            keeps_expired: false,
            keeps_delayed: false,
            notes_added: false,
            tells_misses: false,
            stats: KeyspaceStats::default(),
            freed_before: 0,
            rng,
        }
    }

    /// Has large values freed on this thread, too: for a keyspace that no client waits for.
    pub(crate) fn free_in_place(&mut self) {
        self.disposal.free_in_place();
    }

    /// About how many bytes of values that are gone wait to be freed on the other thread.
    pub fn bytes_to_free(&self) -> u64 {
        self.disposal.pending_bytes()
    }

    /// How many objects wait to be freed on the other thread, and how many have been freed there since the counters began.
    pub fn freed_elsewhere(&self) -> (u64, u64) {
        let (pending, freed) = self.disposal.counts();
        (pending, freed - self.freed_before)
    }

    /// Counts objects as freed elsewhere that were so few that they were freed at once.
    pub fn count_freed(&mut self, objects: usize) {
        self.disposal.count(objects as u64);
    }

    /// Begins all counters anew.
    pub fn reset_stats(&mut self) {
        self.stats = KeyspaceStats::default();
        self.freed_before = self.disposal.counts().1;
    }

    /// Gives back the memory that is kept for the next unit, and what entries don't need. Between two units only, while the changes of
    /// units up to `safe` can't be lost.
    pub fn give_back_scratch(&mut self, safe: Lsn) {
        self.in_flight.give_back(safe);
        self.effects.give_back();
        self.undo.give_back();
        self.settle();
        self.unsettled.give_back();
    }

    /// The time that the units see which begin from now on, Unix ms.
    #[inline]
    pub fn set_now_ms(&mut self, now_ms: i64) {
        self.now_ms = now_ms;
    }

    /// Begins a unit at `now_ms` (Unix ms). What it records of its effects can be read until the next one begins.
    #[inline]
    pub fn begin_unit(&mut self, now_ms: i64, recording: Recording) {
        self.settle_many();
        self.now_ms = now_ms;
        self.effects.begin(recording);
    }

    /// With a log: changes of units up to `safe` can't be lost, and whoever hears of the units to come has waited for unit `awaited`
    /// anyway. So their [fence](Self::fence) need not tell of either. It is for units that are heard of in their order.
    #[inline]
    pub fn begin_fence(&mut self, safe: Lsn, awaited: Lsn) {
        self.in_flight.begin_fence(safe, awaited);
    }

    /// There is no log any more, so nothing is in flight.
    pub fn forget_in_flight(&mut self) {
        self.in_flight = InFlight::default();
    }

    /// The unit's changes have the number `lsn` in the log. Until these can't be lost, whoever reads them has to wait. That something
    /// has expired is no such change: its deadline is over after a crash as well.
    #[inline(always)]
    pub fn mark_in_flight(&mut self, lsn: Lsn) {
        let changed = self.effects.changed();
        if !changed.is_empty() {
            self.in_flight.mark(lsn, changed);
        }
    }

    /// Whether the unit, if it records in full, has changed anything so far but by expiry.
    pub fn has_changed(&self) -> bool {
        !self.effects.changed().is_empty()
    }

    /// The last unit that was marked as one that has changed a key, also where that can't be lost any more.
    pub fn last_change_of(&self, db: DbIndex, key: &[u8]) -> Lsn {
        self.in_flight.last_change_of(db, hash_bytes(key))
    }

    /// The last unit that was marked as one that has changed what is kept beside the keys, also where that can't be lost any more.
    pub fn last_change_beside(&self) -> Lsn {
        self.in_flight.last_change_beside()
    }

    /// Whether the unit, if it records in full, has loaded or dropped scripts or libraries so far. What EVAL keeps of its scripts,
    /// and for how long, does not count.
    pub fn has_loaded_scripts(&self) -> bool {
        self.effects.iter().any(|(_, effect)| match effect {
            Effect::ScriptPut { loaded, .. } => loaded,
            Effect::ScriptFlush {}
            | Effect::LibraryPut { .. }
            | Effect::LibraryDelete { .. }
            | Effect::LibraryFlush {} => true,
            _ => false,
        })
    }

    /// The last unit of which any since [`begin_fence`](Self::begin_fence) has seen something that may be lost, and for which those who
    /// hear of it don't wait anyway. Once the current unit is [marked](Self::mark_in_flight), that is the unit itself.
    #[inline]
    pub fn fence(&self) -> Lsn {
        self.in_flight.fence()
    }

    /// The last unit that was [marked](Self::mark_in_flight).
    pub fn last_in_flight(&self) -> Lsn {
        self.in_flight.last()
    }

    /// What is answered depends on what any key holds, or on when it changed.
    pub fn see_everything(&self) {
        self.in_flight.see_all();
    }

    /// What is answered depends on what is kept beside the keys, scripts and libraries.
    pub fn see_scripts(&self) {
        self.in_flight.see_beside();
    }

    /// How often two databases have changed places: positions in them mean something else then.
    pub fn swaps(&self) -> u64 {
        self.swaps
    }

    /// The unit's time, Unix ms.
    #[inline]
    pub fn now_ms(&self) -> i64 {
        self.now_ms
    }

    /// Lets nothing expire until the hold is dropped: keys and elements are there as if their deadlines had not come, and stay.
    /// With the last hold all that is overdue expires.
    pub fn hold_expiry(&self) -> ExpiryHold {
        ExpiryHold { _share: Rc::clone(&self.expiry_holds) }
    }

    #[inline]
    fn is_expiry_held(&self) -> bool {
        Rc::strong_count(&self.expiry_holds) > 1
    }

    /// What has a deadline up to then has expired, Unix ms: nothing, while expiry is held.
    #[inline]
    fn expired_until_ms(&self) -> i64 {
        if self.is_expiry_held() { i64::MIN } else { self.now_ms }
    }

    /// Whether what is given this deadline, Unix ms, expires at once, so that a command removes it instead.
    #[inline]
    pub fn expires_at_once(&self, at_ms: i64) -> bool {
        at_ms <= self.expired_until_ms()
    }

    /// The unit's effects so far.
    #[inline]
    pub fn effects(&self) -> &Effects {
        &self.effects
    }

    /// How many changes of keys commands have made since the server started.
    pub fn changes_by_commands(&self) -> u64 {
        self.effects.count() - self.standing_effects
    }

    /// Counts as so many changes what commands have changed since [`changes_by_commands`](Self::changes_by_commands) was `since`.
    pub fn count_changes_as(&mut self, since: u64, changes: u64) {
        let counted = self.changes_by_commands().wrapping_sub(since);
        self.effects.recount(changes.wrapping_sub(counted) as i64);
    }

    /// Whether what has expired stays where it is, for all that it is absent to who looks (CLIENT PAUSE). For commands that only read:
    /// who writes would put a second key beside one that is hidden.
    pub fn set_keeps_expired(&mut self, keeps: bool) {
        self.keeps_expired = keeps;
    }

    /// Whether messages of streams stay delayed although they are due: nothing may change now that must not get lost.
    pub fn set_keeps_delayed(&mut self, keeps: bool) {
        self.keeps_delayed = keeps;
    }

    /// Whether the key holds a stream with a delayed message that is due, and becomes an entry as soon as somebody looks.
    pub fn has_due_message(&self, db: DbIndex, key: &[u8]) -> bool {
        if self.keeps_delayed || self.keeps_expired {
            return false;
        }
        match self.live(db, key).map(Entry::value) {
            Some(ValueRef::Stream(stream)) => {
                stream.release_ms().is_some_and(|due_ms| due_ms <= self.expired_until_ms())
            }
            _ => false,
        }
    }

    /// Where values change their representation.
    #[inline]
    pub fn limits(&self) -> &ValueLimits {
        &self.limits
    }

    /// How many databases there are.
    pub fn databases(&self) -> u16 {
        self.dbs.len() as u16
    }

    /// A database as a whole. Panics when `db` is not below [`databases`](Self::databases): sessions hold only valid numbers.
    #[inline]
    pub fn db(&self, db: DbIndex) -> &Db {
        self.in_flight.see_all();
        &self.dbs[db as usize]
    }

    /// A database, without waiting until its keys are safe: for sizes in memory, which tell of no key, and for hints, on which no
    /// answer depends.
    pub fn db_unfenced(&self, db: DbIndex) -> &Db {
        &self.dbs[db as usize]
    }

    /// Hints that keys with these hashes will be looked up soon: what that has to wait for begins to come into the cache. The
    /// processor waits for the index of all of them at once, and then for all entries.
    #[inline]
    pub fn warm(&self, keys: impl Iterator<Item = (DbIndex, u64)> + Clone) {
        let with_db = |(db, hash)| Some((self.dbs.get(usize::from(db))?, hash));
        keys.clone().filter_map(with_db).for_each(|(db, hash)| db.warm_index(hash));
        keys.filter_map(with_db).for_each(|(db, hash)| _ = db.warm_entry(hash));
    }

    /// Whether a database has so many keys that looking [ahead](Self::look_ahead) pays.
    #[inline]
    pub(crate) fn is_large(&self, db: DbIndex) -> bool {
        self.db_unfenced(db).len() >= AHEAD_MIN_KEYS
    }

    /// [Warms](Self::warm) the first `N` of these keys of one database. Answers where each seems to live, to be
    /// [hinted](Self::hint) before it is looked up.
    #[inline]
    pub(crate) fn look_ahead<'a, const N: usize>(
        &self,
        db: DbIndex,
        keys: impl Iterator<Item = Option<&'a [u8]>>,
    ) -> [Option<Slot>; N] {
        let database = self.db_unfenced(db);
        let (mut hashes, mut slots) = ([None; N], [None; N]);
        let mut count = 0;
        for (hash, key) in hashes.iter_mut().zip(keys) {
            count += 1;
            *hash = key.map(hash_bytes);
            if let Some(hash) = *hash {
                database.warm_index(hash);
            }
        }
        for (slot, hash) in slots.iter_mut().zip(hashes).take(count) {
            *slot = hash.and_then(|hash| database.warm_entry(hash));
        }
        slots
    }

    /// Hints where the key lives that will be looked up next. What is found does not depend on it. Panics as [`db`](Self::db) does.
    #[inline]
    pub(crate) fn hint(&mut self, db: DbIndex, slot: Slot) {
        self.dbs[db as usize].hint(slot);
    }

    /// The value of a key, for a command that reads: counts as hit or miss and as a use of the key.
    #[inline(always)]
    pub fn read(&mut self, db: DbIndex, key: &[u8]) -> Option<ValueRef<'_>> {
        let slot = self.look_up(db, key)?;
        self.dbs[db as usize].get(slot).map(Entry::value)
    }

    /// As [`read`](Self::read), for a command that needs to know where the key lives.
    #[inline]
    pub fn look_up(&mut self, db: DbIndex, key: &[u8]) -> Option<Slot> {
        let slot = self.find(db, key);
        match slot {
            Some(_) => self.stats.hits += 1,
            None => self.miss(db, key),
        }
        slot
    }

    /// Counts a read that did not find its key, and has it told.
    #[inline]
    pub fn miss(&mut self, db: DbIndex, key: &[u8]) {
        self.stats.misses += 1;
        if self.tells_misses {
            self.tell(EventClasses::MISS, "keymiss", db, key);
        }
    }

    /// As [`read`](Self::read), without counting as a use of the key (TTL, TYPE, OBJECT).
    pub fn peek(&mut self, db: DbIndex, key: &[u8]) -> Option<Entry<'_>> {
        let noting = std::mem::replace(&mut self.noting, Noting::Nothing);
        let slot = self.look_up(db, key);
        self.noting = noting;
        slot.map(|slot| self.entry(db, slot))
    }

    /// As [`peek`](Self::peek), for OBJECT, of which nobody is told that it did not find its key.
    pub fn peek_silently(&mut self, db: DbIndex, key: &[u8]) -> Option<Entry<'_>> {
        let tells = std::mem::replace(&mut self.tells_misses, false);
        let is_there = self.peek(db, key).is_some();
        self.tells_misses = tells;
        if is_there { self.live(db, key) } else { None }
    }

    /// A key's entry, without any trace of having looked: an expired one stays where it is and counts as absent.
    pub fn live(&self, db: DbIndex, key: &[u8]) -> Option<Entry<'_>> {
        self.stored(db, key).filter(|entry| entry.is_live(self.expired_until_ms()))
    }

    /// As [`live`](Self::live), also of a key that has expired and is still there.
    pub fn stored(&self, db: DbIndex, key: &[u8]) -> Option<Entry<'_>> {
        let hash = hash_bytes(key);
        self.in_flight.see_key(db, hash);
        let database = &self.dbs[db as usize];
        database.find_hashed(hash, key).and_then(|slot| database.get(slot))
    }

    /// Lets the unit that is underway record from here on, if it did not: somebody has begun to observe.
    pub fn record_from_now(&mut self, recording: Recording) {
        self.effects.record_from_now(recording);
    }

    /// Has noted beside the effects what those need to know who are told of events, or not any more; with `misses` also which keys
    /// are looked for and not found.
    pub fn annotate(&mut self, is_on: bool, misses: bool) {
        self.effects.annotate(is_on);
        self.notes_added = is_on || self.undo.is_on();
        self.tells_misses = is_on && misses;
    }

    /// The effects from here on are those of this command, by its index in the table.
    pub fn note_command(&mut self, index: u16) {
        self.effects.note(What::Command(index), 0, b"");
    }

    /// The event of the effects from here on has this name, up to the end of the command.
    #[inline]
    pub fn name_events(&mut self, name: &'static str) {
        if self.effects.are_annotated() {
            self.effects.note(What::Named(name), 0, b"");
        }
    }

    /// Has an event told that no effect shows.
    #[inline]
    pub fn tell(&mut self, class: EventClasses, name: &'static str, db: DbIndex, key: &[u8]) {
        if self.effects.are_annotated() {
            self.effects.note(What::Told(class, name), db, key);
        }
    }

    /// Records a change of what is kept beside the keys, scripts and libraries, that its owner has made.
    pub fn record_beside(&mut self, effect: Effect<'_>) {
        // What EVAL keeps need not be saved.
        let is_kept_only = matches!(effect, Effect::ScriptPut { loaded: false, .. } | Effect::ScriptDrop { .. });
        if is_kept_only {
            return self.effects.record_uncounted(0, effect);
        }
        self.effects.record(0, effect);
        self.standing_effects += 1;
    }

    /// Lets the unit, which has only begun, record its effects in full: somebody is to be told of them.
    pub fn record_in_full(&mut self) {
        self.effects.record_in_full();
    }

    /// Lets what the unit records from here on be read without what it recorded before.
    pub fn record_apart(&mut self) {
        self.effects.record_apart();
    }

    /// Lets the unit go on recording what it touches only, not whole effects: nobody is to be told of them any more.
    pub fn record_keys_only(&mut self) {
        self.effects.record_keys_only();
    }

    /// Where a key lives, for a command that writes. An expired key is removed and counts as absent; so do elements of its
    /// value that have expired.
    #[inline(always)]
    pub fn find(&mut self, db: DbIndex, key: &[u8]) -> Option<Slot> {
        let hash = hash_bytes(key);
        self.in_flight.see_key(db, hash);
        if self.noting != Noting::Stamp {
            return self.find_otherwise(db, hash, key);
        }
        let (now_ms, tick) = (self.now_ms, self.tick());
        let database = &mut self.dbs[db as usize];
        let slot = database.look_up(hash, key)?;
        if database.meet(slot, Some(tick), now_ms)? {
            return self.fall_due(db, slot, EXPIRED_ELEMENTS_PER_LOOKUP).map(|_| slot);
        }
        Some(slot)
    }

    /// The entry at `slot`, which [`find`](Self::find) or a verb just gave.
    #[inline]
    pub fn entry(&self, db: DbIndex, slot: Slot) -> Entry<'_> {
        self.dbs[db as usize].entry(slot)
    }

    /// The value at `slot`.
    #[inline(always)]
    pub fn value(&self, db: DbIndex, slot: Slot) -> ValueRef<'_> {
        self.entry(db, slot).value()
    }

    /// Walks the keys of a database from `place` on until `visit` answers false or all were visited; one that has expired is shown as
    /// `None`. Answers where to go on: [`WALK_END`] at the end. Begins at 0. Every key that exists from the first call to the last is
    /// visited exactly once, and no name twice.
    pub fn walk(&self, db: DbIndex, place: u64, mut visit: impl FnMut(Option<Entry<'_>>) -> bool) -> u64 {
        let expired_until_ms = self.expired_until_ms();
        self.db(db).walk(place, |together| {
            let mut goes_on = true;
            for entry in together {
                // All of them: the walk can't go on between two, which have the same place.
                goes_on &= visit(Some(*entry).filter(|entry| entry.is_live(expired_until_ms)));
            }
            if goes_on { Walk::Continue } else { Walk::Stop }
        })
    }

    /// Walks the keys of a database: emits about `count` keys and answers the next cursor, 0 at the end. Every key that exists from
    /// the first call to the last is emitted exactly once. Of those that have expired some are removed, and none is emitted.
    pub fn scan(&mut self, db: DbIndex, cursor: u64, count: usize, mut emit: impl FnMut(Entry<'_>)) -> u64 {
        let database = self.db(db);
        let expired_until_ms = self.expired_until_ms();
        // The rest stays to active expiry: a step that many keys have expired in must not take long, nor fill the log.
        let mut expired = Vec::new();
        let may_remove = if self.effects.as_bytes().len() < UNIT_MAX_BYTES { EXPIRY_SLICE_TIMERS } else { 0 };
        let next = database.scan(cursor, count, |slot| match database.get(slot) {
            Some(entry) if entry.is_live(expired_until_ms) => emit(entry),
            Some(_) if expired.len() < may_remove => expired.push(slot),
            _ => {}
        });
        for slot in expired {
            self.fall_due(db, slot, EXPIRED_ELEMENTS_PER_LOOKUP);
        }
        next
    }

    /// All live entries of a database, in no order that means anything.
    pub fn entries(&self, db: DbIndex) -> impl Iterator<Item = Entry<'_>> {
        let database = self.db(db);
        let expired_until_ms = self.expired_until_ms();
        let live = move |entry: &Entry<'_>| entry.is_live(expired_until_ms);
        database.slots().filter_map(|slot| database.get(slot)).filter(live)
    }

    /// All entries of a database, expired but unreclaimed ones included, in the order of the table: by no more than their hashes.
    pub fn stored_entries(&self, db: DbIndex) -> impl Iterator<Item = Entry<'_>> {
        let database = self.db(db);
        database.slots().filter_map(|slot| database.get(slot))
    }

    /// A random live key of a database. Where all keys expire and [stay](Self::set_keeps_expired) none may be live: as in Redis, one
    /// that is not is answered then.
    pub fn random_key(&mut self, db: DbIndex) -> Option<Entry<'_>> {
        self.in_flight.see_all();
        let mut tries = 0;
        loop {
            let slot = self.dbs[db as usize].random(&mut self.rng)?;
            tries += 1;
            let gives_up = self.keeps_expired && tries >= RANDOM_KEY_TRIES;
            if self.entry(db, slot).is_live(self.expired_until_ms()) || gives_up {
                return Some(self.entry(db, slot));
            }
            self.fall_due(db, slot, 0);
        }
    }

    /// Removes expired keys and elements, at most `budget` timers' and elements' worth; answers whether more are due. Runs as a
    /// unit of its own.
    pub fn reclaim_expired(&mut self, budget: usize) -> bool {
        self.reclaim_expired_while(budget, || true)
    }

    /// The same for as long as it `has_time`, which is asked after every few timers and elements.
    pub(crate) fn reclaim_expired_while(&mut self, budget: usize, has_time: impl Fn() -> bool) -> bool {
        if self.is_expiry_held() {
            return false;
        }
        let (mut left, mut unasked) = (budget, 0);
        for db in 0..self.databases() {
            while left > 0 {
                let database = &mut self.dbs[db as usize];
                let slot = match database.next_timer(self.now_ms) {
                    Turn::Nothing => break,
                    Turn::Passed => None,
                    Turn::Due(slot) => Some(slot),
                };
                let mut spent = 1;
                // The timer is paid for; that pays for one element, too, so that each slice gets ahead.
                if let Some(slot) = slot
                    && let Some(removed) = self.fall_due(db, slot, left.min(EXPIRY_STEP))
                {
                    let removed = removed + self.move_dead_letters(db, slot, left.saturating_sub(removed));
                    self.dbs[db as usize].rearm(slot);
                    spent = removed.max(1);
                }
                left = left.saturating_sub(spent);
                unasked += spent;
                if unasked >= EXPIRY_STEP {
                    if !has_time() {
                        return true;
                    }
                    unasked = 0;
                }
            }
        }
        left == 0
    }

    /// Holds the data of another keyspace, with as many databases, in place of its own. Between two units only, and nobody is
    /// told: it must be the same data.
    pub(crate) fn take_over(&mut self, other: Keyspace) {
        debug_assert_eq!(self.dbs.len(), other.dbs.len());
        self.limits = other.limits;
        self.last_token = self.last_token.max(other.last_token);
        self.given_token = self.given_token.max(other.given_token);
        self.note_lease(other.latest_lease_ms);
        self.dbs = other.dbs;
        self.unsettled = other.unsettled;
    }

    /// What has expired since the count of effects was `before` is no change that a command has made, nor one to be saved.
    fn count_no_change(&mut self, before: u64) {
        self.effects.recount(before.wrapping_sub(self.effects.count()) as i64);
    }

    /// Removes an entry if it has expired, else the elements of it that have, at most `budget` of them; of a stream, lets delayed messages be
    /// entries that are due. Answers how many elements went; `None` when the entry did. While expiry is held, all elements live again.
    #[cold]
    fn fall_due(&mut self, db: DbIndex, slot: Slot, budget: usize) -> Option<usize> {
        let (is_held, expired_until_ms) = (self.is_expiry_held(), self.expired_until_ms());
        let effects_before = self.effects.count();
        if self.value(db, slot).deadlines().is_some()
            && let Some(deadlines) = self.value_mut(db, slot).and_then(ValueMut::deadlines_mut)
        {
            deadlines.advance(expired_until_ms);
        }
        if is_held {
            return Some(0);
        }
        if self.keeps_expired {
            return self.entry(db, slot).is_live(expired_until_ms).then_some(0);
        }
        if !self.entry(db, slot).is_live(expired_until_ms) {
            self.expire(db, slot);
            self.count_no_change(effects_before);
            return None;
        }
        let removed = self.remove_expired_elements(db, slot, budget);
        self.count_no_change(effects_before);
        if let Some(value) = self.value_mut(db, slot) {
            value.put_off_timer();
        }
        Some(removed)
    }

    /// Removes an entry that has expired, or every element of which has.
    #[cold]
    fn expire(&mut self, db: DbIndex, slot: Slot) {
        let entry = self.entry(db, slot);
        if entry.deadline_ms() <= self.now_ms {
            self.stats.expired += 1;
        } else {
            let (is_set, elements) = match entry.value() {
                ValueRef::Grants(grants) => (None, grants.len()),
                value => (Some(matches!(value, ValueRef::Set(_))), value.deadlines().map_or(0, Deadlines::len)),
            };
            self.stats.expired_elements += elements as u64;
            if let Some(is_set) = is_set {
                self.effects.note(What::Drained { is_set }, db, b"");
            }
        }
        self.remove_as(db, slot, Cause::Expiry);
    }

    #[inline(always)]
    fn value_mut(&mut self, db: DbIndex, slot: Slot) -> Option<ValueMut<'_>> {
        let mut entry = self.dbs[db as usize].entry_mut(slot);
        if entry.as_ref().has_embedded() {
            self.unsettled.open(db, slot, &mut entry);
        }
        // SAFETY: it is not embedded, or not any more.
        unsafe { entry.into_value_in_word() }
    }
}
