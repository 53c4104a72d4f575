//! The keyspace: databases of keys, changed only by verbs.
//!
//! A **unit** is a group of changes that happens entirely or not at all: a command, an EXEC, a script. Everything in a
//! unit sees one time ([`set_now_ms`](Keyspace::set_now_ms)). The verbs (one file per value type under `verb`) apply
//! changes in place and record each one as an [`effect::Effect`]. Any code may read: commands that read use
//! [`read`](Keyspace::read) and its relatives, commands that write use [`find`](Keyspace::find), and observers use
//! [`live`](Keyspace::live).
//!
//! An expired key does not exist. The first access to an expired key removes it, and the removal is an effect like any
//! other, so a follower of the stream needs no clock. While the past of another server is replayed, nothing expires
//! ([`hold_expiry`](Keyspace::hold_expiry)): the next command may extend a key whose deadline has already passed.

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
pub mod limits;
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
mod value_limits;
pub mod verb;
mod victims;
mod wheel;

pub use arena::Slot;
pub use db::DbIndex;
pub use entry::NEVER;
pub use misfit::{Misfit, WrongType};
pub use stats::KeyspaceStats;
pub use value_limits::ValueLimits;

use std::rc::Rc;

use bitflags::bitflags;

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
use crate::base::lsn::Lsn;
use crate::base::rng::Rng;
use crate::base::split_table::{PLACE_END, Walk};
use crate::config::EventClasses;
use crate::keyspace::limits::{
    EXPIRED_ELEMENTS_PER_LOOKUP, EXPIRY_SLICE_TIMERS, EXPIRY_STEP, RANDOM_KEY_TRIES, UNIT_MAX_BYTES,
};
use crate::value::deadlines::Deadlines;

/// The place at which a [walk](Keyspace::walk) ends.
pub const WALK_END: u64 = PLACE_END;

/// The name of a value that is built before it has a key.
pub const NAMELESS: &[u8] = b"";

/// Keys in a database from which prefetching pays off. Fewer keys fit in the processor's cache anyway.
const AHEAD_MIN_KEYS: usize = 4_096;

/// While any hold exists, nothing expires; see [`Keyspace::hold_expiry`].
#[derive(Debug)]
pub struct ExpiryHold {
    /// Never read; the reference count is what matters.
    _share: Rc<()>,
}

bitflags! {
    /// How the lookups of a unit differ from the usual ones.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct UnitMode: u8 {
        /// Finding a key does not count as using it (CLIENT NO-TOUCH).
        const NO_TOUCH = 1;
        /// Expired keys stay in place, though invisible to readers (CLIENT PAUSE). Only for commands that read: a write
        /// would put a second key beside the hidden one.
        const KEEPS_EXPIRED = 1 << 1;
        /// Messages of streams stay delayed although they are due, because the journal accepts no changes.
        const KEEPS_DELAYED = 1 << 2;
    }
}

/// All databases. See the module header.
pub struct Keyspace {
    limits: ValueLimits,
    dbs: Vec<Db>,
    disposal: Disposal,
    /// Objects that the disposal thread had freed when the counters were last reset.
    freed_before: u64,
    effects: Effects,
    in_flight: InFlight,
    undo: Undo,
    /// Entries that may need another place when the unit ends.
    unsettled: Unsettled,
    /// The value that is being built in parts, if any.
    workshop: Option<Box<Workshop>>,
    /// Whether this keyspace is a workshop. A value in a workshop stays even if it loses all its elements.
    is_workshop: bool,
    /// The collection that is being copied in parts. Effects on it must name the elements they change.
    copied_in_parts: Mark,
    /// Effects that are counted but do not change keys: changes of scripts and libraries.
    standing_effects: u64,
    now_ms: i64,
    /// How often two databases have been swapped.
    swaps: u64,
    /// The greatest fencing token known. Every token issued from now on is greater.
    last_token: u64,
    /// The last fencing token that this server issued. Tokens above it, up to [`last_token`](Self::last_token), come
    /// from another server.
    given_token: u64,
    /// An upper bound for the end of every lease, Unix ms. All leases may have ended before.
    latest_lease_ms: i64,
    /// Shared with every [`ExpiryHold`].
    expiry_holds: Rc<()>,
    usage: Usage,
    /// The note that a lookup makes about its key at present.
    noting: Noting,
    /// Whether entries keep how often a key is used rather than when.
    counts_uses: bool,
    /// The best eviction victims seen so far.
    pool: Pool,
    /// Scratch space for drawn slots.
    drawn: Vec<Slot>,
    /// The database in which a random key was last evicted.
    next_victim_db: DbIndex,
    /// The mode of the running unit; empty between units.
    mode: UnitMode,
    /// Whether added keys are noted, for undo or for event notifications.
    notes_added: bool,
    /// Whether a lookup that misses is reported as an event.
    notes_misses: bool,
    /// Counters for INFO.
    pub stats: KeyspaceStats,
    /// Randomness for RANDOMKEY and similar commands.
    pub rng: Rng,
}

/// A keyspace in which a value is built, under [`NAMELESS`] in database 0. The value stays even if it loses all its
/// elements.
struct Workshop {
    ks: Keyspace,
    /// Expired elements are part of the value like any others.
    _hold: ExpiryHold,
}

impl Keyspace {
    /// Creates an empty keyspace of `databases` databases.
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
            mode: UnitMode::default(),
            notes_added: false,
            notes_misses: false,
            stats: KeyspaceStats::default(),
            freed_before: 0,
            rng,
        }
    }

    /// Frees large values on this thread, too. For a keyspace on which no client waits.
    pub(crate) fn free_in_place(&mut self) {
        self.disposal.free_in_place();
    }

    /// Approximate bytes of removed values that wait to be freed on the disposal thread.
    pub fn bytes_to_free(&self) -> u64 {
        self.disposal.pending_bytes()
    }

    /// Returns how many objects wait to be freed on the disposal thread, and how many it has freed since the counters
    /// were reset.
    pub fn freed_elsewhere(&self) -> (u64, u64) {
        let (pending, freed) = self.disposal.counts();
        (pending, freed - self.freed_before)
    }

    /// Counts small objects that were freed at once as if the disposal thread had freed them.
    pub fn count_freed(&mut self, objects: usize) {
        self.disposal.count(objects as u64);
    }

    /// Resets all counters.
    pub fn reset_stats(&mut self) {
        self.stats = KeyspaceStats::default();
        self.freed_before = self.disposal.counts().1;
    }

    /// Gives back scratch memory kept for the next unit, and memory that entries no longer need. Call only between
    /// units, when changes of units up to `safe` can no longer be lost.
    pub fn give_back_scratch(&mut self, safe: Lsn) {
        self.in_flight.give_back(safe);
        self.effects.give_back();
        self.undo.give_back();
        self.settle_entries();
        self.unsettled.give_back();
    }

    /// Sets the time that units see from now on, Unix ms.
    #[inline]
    pub fn set_now_ms(&mut self, now_ms: i64) {
        self.now_ms = now_ms;
    }

    /// Begins a unit at `now_ms` (Unix ms). The effects it records stay readable until the next unit begins.
    #[inline]
    pub fn begin_unit(&mut self, now_ms: i64, recording: Recording) {
        self.begin_unit_in(UnitMode::empty(), now_ms, recording);
    }

    /// Begins a unit in this mode, which lasts until the [unit ends](Self::end_unit).
    #[inline]
    pub fn begin_unit_in(&mut self, mode: UnitMode, now_ms: i64, recording: Recording) {
        debug_assert!(self.mode.is_empty(), "the last unit has ended");
        self.settle_entries_if_many();
        self.now_ms = now_ms;
        self.effects.begin(recording);
        if !mode.is_empty() {
            self.set_mode(mode);
        }
    }

    /// Ends a unit. Only one with a mode needs this.
    #[inline]
    pub fn end_unit(&mut self) {
        if !self.mode.is_empty() {
            self.set_mode(UnitMode::empty());
        }
    }

    #[cold]
    fn set_mode(&mut self, mode: UnitMode) {
        self.mode = mode;
        self.note_uses(!mode.contains(UnitMode::NO_TOUCH));
    }

    /// Removes expired keys again in the rest of a unit that [keeps them](UnitMode::KEEPS_EXPIRED). For commands that
    /// may write although clients are paused.
    pub fn keep_expired_no_longer(&mut self) {
        self.mode.remove(UnitMode::KEEPS_EXPIRED);
    }

    /// Whether the unit [keeps expired keys](UnitMode::KEEPS_EXPIRED), so that it must not change any key.
    pub fn keeps_expired(&self) -> bool {
        self.mode.contains(UnitMode::KEEPS_EXPIRED)
    }

    /// With a journal: declares that changes of units up to `safe` cannot be lost, and that clients of the coming units
    /// wait for unit `awaited` in any case. The [fence](Self::fence) of those units need not cover either. Clients must
    /// receive the results of units in order.
    #[inline]
    pub fn begin_fence(&mut self, safe: Lsn, awaited: Lsn) {
        self.in_flight.begin_fence(safe, awaited);
    }

    /// Nothing is in flight any more because there is no journal.
    pub fn forget_in_flight(&mut self) {
        self.in_flight = InFlight::default();
    }

    /// Marks the unit's changes as in flight under number `lsn` of the journal. Readers of these changes must wait
    /// until the changes cannot be lost. Expiry does not count as a change: the deadline will have passed after a crash
    /// as well.
    #[inline(always)]
    pub fn mark_in_flight(&mut self, lsn: Lsn) {
        let changed = self.effects.changed();
        if !changed.is_empty() {
            self.in_flight.mark(lsn, changed);
        }
    }

    /// Whether the unit has changed anything so far other than by expiry. The unit must record in full.
    pub fn has_changed(&self) -> bool {
        !self.effects.changed().is_empty()
    }

    /// Returns the last marked unit that changed a key, including units that can no longer be lost.
    pub fn last_change_of(&self, db: DbIndex, key: &[u8]) -> Lsn {
        self.in_flight.last_change_of(db, hash_bytes(key))
    }

    /// Returns the last marked unit that changed scripts or libraries, including units that can no longer be lost.
    pub fn last_change_beside(&self) -> Lsn {
        self.in_flight.last_change_beside()
    }

    /// Whether the unit has loaded or dropped scripts or libraries so far. The unit must record in full. Scripts that
    /// EVAL caches for a while do not count.
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

    /// Returns the last unit whose unsafe changes any unit since [`begin_fence`](Self::begin_fence) has seen, unless
    /// its clients wait for that unit anyway. Once the current unit is [marked](Self::mark_in_flight), the fence is the
    /// current unit.
    #[inline]
    pub fn fence(&self) -> Lsn {
        self.in_flight.fence()
    }

    /// The last unit that was [marked](Self::mark_in_flight).
    pub fn last_in_flight(&self) -> Lsn {
        self.in_flight.last()
    }

    /// Notes that the reply may depend on any key, or on when a key changed.
    pub fn see_everything(&self) {
        self.in_flight.see_all();
    }

    /// Notes that the reply depends on scripts or libraries.
    pub fn see_scripts(&self) {
        self.in_flight.see_beside();
    }

    /// How often two databases have been swapped. A swap invalidates positions in databases.
    pub fn swaps(&self) -> u64 {
        self.swaps
    }

    /// The unit's time, Unix ms.
    #[inline]
    pub fn now_ms(&self) -> i64 {
        self.now_ms
    }

    /// Stops expiry until the hold is dropped: keys and elements stay and are visible as if their deadlines had not
    /// come. When the last hold is dropped, everything overdue expires.
    pub fn hold_expiry(&self) -> ExpiryHold {
        ExpiryHold { _share: Rc::clone(&self.expiry_holds) }
    }

    #[inline]
    fn is_expiry_held(&self) -> bool {
        Rc::strong_count(&self.expiry_holds) > 1
    }

    /// Deadlines up to this time, Unix ms, have expired. While expiry is held, none has.
    #[inline]
    fn expired_until_ms(&self) -> i64 {
        if self.is_expiry_held() { i64::MIN } else { self.now_ms }
    }

    /// Whether a key given this deadline, Unix ms, would expire at once. A command then removes the key instead.
    #[inline]
    pub fn expires_at_once(&self, at_ms: i64) -> bool {
        at_ms <= self.expired_until_ms()
    }

    /// The unit's effects so far.
    #[inline]
    pub fn effects(&self) -> &Effects {
        &self.effects
    }

    /// How many changes commands have made to keys since the server started.
    pub fn changes_by_commands(&self) -> u64 {
        self.effects.count() - self.standing_effects
    }

    /// Counts everything that commands have changed since [`changes_by_commands`](Self::changes_by_commands) was
    /// `since` as `changes` changes.
    pub fn count_changes_as(&mut self, since: u64, changes: u64) {
        let counted = self.changes_by_commands().wrapping_sub(since);
        self.effects.recount(changes.wrapping_sub(counted) as i64);
    }

    /// Whether the key holds a stream with a due delayed message, which becomes an entry on the next lookup.
    pub fn has_due_message(&self, db: DbIndex, key: &[u8]) -> bool {
        if self.keeps_messages_delayed() {
            return false;
        }
        match self.live(db, key).map(Entry::value) {
            Some(ValueRef::Stream(stream)) => {
                stream.release_ms().is_some_and(|due_ms| due_ms <= self.expired_until_ms())
            }
            _ => false,
        }
    }

    fn keeps_messages_delayed(&self) -> bool {
        self.mode.intersects(UnitMode::KEEPS_DELAYED | UnitMode::KEEPS_EXPIRED)
    }

    /// The sizes at which values change their representation.
    #[inline]
    pub fn limits(&self) -> &ValueLimits {
        &self.limits
    }

    /// The number of databases.
    pub fn databases(&self) -> u16 {
        self.dbs.len() as u16
    }

    /// Returns a whole database. Panics if `db` is not below [`databases`](Self::databases): sessions hold only valid
    /// numbers.
    #[inline]
    pub fn db(&self, db: DbIndex) -> &Db {
        self.in_flight.see_all();
        &self.dbs[db as usize]
    }

    /// Returns a database without waiting until its keys are safe. For sizes in memory, which reveal no key, and for
    /// hints, on which no reply depends.
    pub fn db_unfenced(&self, db: DbIndex) -> &Db {
        &self.dbs[db as usize]
    }

    /// Prefetches what lookups of these hashes will need. All index lines are fetched first and then all entries, so
    /// their cache misses overlap.
    #[inline]
    pub fn warm(&self, keys: impl Iterator<Item = (DbIndex, u64)> + Clone) {
        let with_db = |(db, hash)| Some((self.dbs.get(usize::from(db))?, hash));
        keys.clone().filter_map(with_db).for_each(|(db, hash)| db.warm_index(hash));
        keys.filter_map(with_db).for_each(|(db, hash)| _ = db.warm_entry(hash));
    }

    /// Whether a database has enough keys for [prefetching](Self::prefetch) to pay off.
    #[inline]
    pub(crate) fn is_large(&self, db: DbIndex) -> bool {
        self.db_unfenced(db).len() >= AHEAD_MIN_KEYS
    }

    /// [Warms](Self::warm) the first `N` of these keys of one database. Returns the slot where each key seems to live;
    /// [`hint`](Self::hint) it before the lookup.
    #[inline]
    pub(crate) fn prefetch<'a, const N: usize>(
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

    /// Hints at the slot of the next key to be looked up. The result of the lookup does not depend on the hint. Panics
    /// as [`db`](Self::db) does.
    #[inline]
    pub(crate) fn hint(&mut self, db: DbIndex, slot: Slot) {
        self.dbs[db as usize].hint(slot);
    }

    /// Returns the value of a key for a command that reads. Counts a hit or miss and a use of the key.
    #[inline(always)]
    pub fn read(&mut self, db: DbIndex, key: &[u8]) -> Option<ValueRef<'_>> {
        let slot = self.look_up(db, key)?;
        self.dbs[db as usize].get(slot).map(Entry::value)
    }

    /// As [`read`](Self::read), for a command that needs the slot of the key.
    #[inline]
    pub fn look_up(&mut self, db: DbIndex, key: &[u8]) -> Option<Slot> {
        let slot = self.find(db, key);
        match slot {
            Some(_) => self.stats.hits += 1,
            None => self.miss(db, key),
        }
        slot
    }

    /// Counts a read that missed its key, and reports the event.
    #[inline]
    pub fn miss(&mut self, db: DbIndex, key: &[u8]) {
        self.stats.misses += 1;
        if self.notes_misses {
            self.note_event(EventClasses::MISS, "keymiss", db, key);
        }
    }

    /// As [`read`](Self::read), but does not count as a use of the key (TTL, TYPE, OBJECT).
    pub fn peek(&mut self, db: DbIndex, key: &[u8]) -> Option<Entry<'_>> {
        let noting = std::mem::replace(&mut self.noting, Noting::Nothing);
        let slot = self.look_up(db, key);
        self.noting = noting;
        slot.map(|slot| self.entry(db, slot))
    }

    /// As [`peek`](Self::peek), for OBJECT, whose misses are not reported as events.
    pub fn peek_silently(&mut self, db: DbIndex, key: &[u8]) -> Option<Entry<'_>> {
        let notes_misses = std::mem::replace(&mut self.notes_misses, false);
        let is_there = self.peek(db, key).is_some();
        self.notes_misses = notes_misses;
        if is_there { self.live(db, key) } else { None }
    }

    /// Returns a key's entry without side effects: an expired key stays in place and counts as absent.
    pub fn live(&self, db: DbIndex, key: &[u8]) -> Option<Entry<'_>> {
        self.stored(db, key).filter(|entry| entry.is_live(self.expired_until_ms()))
    }

    /// As [`live`](Self::live), but also returns an expired key that is still stored.
    pub fn stored(&self, db: DbIndex, key: &[u8]) -> Option<Entry<'_>> {
        let hash = hash_bytes(key);
        self.in_flight.see_key(db, hash);
        let database = &self.dbs[db as usize];
        database.find_hashed(hash, key).and_then(|slot| database.get(slot))
    }

    /// Turns recording on in the middle of a unit, because an observer has begun to watch.
    pub fn record_from_now(&mut self, recording: Recording) {
        self.effects.record_from_now(recording);
    }

    /// Turns the notes for event notifications beside the effects on or off. With `misses`, failed lookups are noted as
    /// well.
    pub fn annotate(&mut self, is_on: bool, misses: bool) {
        self.effects.annotate(is_on);
        self.notes_added = is_on || self.undo.is_on();
        self.notes_misses = is_on && misses;
    }

    /// Attributes the effects from here on to the command with this index in the command table.
    pub fn note_command(&mut self, index: u16) {
        self.effects.note(What::Command(index), 0, b"");
    }

    /// Names the event of the effects from here on, until the end of the command.
    #[inline]
    pub fn name_events(&mut self, name: &'static str) {
        if self.effects.are_annotated() {
            self.effects.note(What::Named(name), 0, b"");
        }
    }

    /// Notes an event to be published that no effect shows.
    #[inline]
    pub fn note_event(&mut self, class: EventClasses, name: &'static str, db: DbIndex, key: &[u8]) {
        if self.effects.are_annotated() {
            self.effects.note(What::Reported(class, name), db, key);
        }
    }

    /// Records a change of what lies beside the keys, such as scripts. Its owner has made it.
    pub fn record_beside(&mut self, effect: Effect<'_>) {
        // Scripts cached by EVAL need not be saved.
        let is_kept_only = matches!(effect, Effect::ScriptPut { loaded: false, .. } | Effect::ScriptDrop { .. });
        if is_kept_only {
            return self.effects.record_uncounted(0, effect);
        }
        self.effects.record(0, effect);
        self.standing_effects += 1;
    }

    /// Makes the unit, which has only just begun, record its effects in full for an observer.
    pub fn record_in_full(&mut self) {
        self.effects.record_in_full();
    }

    /// Makes the effects from here on readable separately from those recorded before.
    pub fn record_apart(&mut self) {
        self.effects.record_apart();
    }

    /// Makes the unit record only touched keys from here on, because no observer needs whole effects any more.
    pub fn record_keys_only(&mut self) {
        self.effects.record_keys_only();
    }

    /// Returns the slot of a key for a command that writes. Removes an expired key, which counts as absent, and expired
    /// elements of its value.
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

    /// The entry at `slot`, which [`find`](Self::find) or a verb has just returned.
    #[inline]
    pub fn entry(&self, db: DbIndex, slot: Slot) -> Entry<'_> {
        self.dbs[db as usize].entry(slot)
    }

    /// The value at `slot`.
    #[inline(always)]
    pub fn value(&self, db: DbIndex, slot: Slot) -> ValueRef<'_> {
        self.entry(db, slot).value()
    }

    /// Walks the keys of a database from `place` on, beginning at 0, until `visit` returns false or every key was
    /// visited. Shows an expired key as `None`. Returns the place to go on from, [`WALK_END`] at the end. Visits every
    /// key that exists from the first call to the last exactly once, and no name twice.
    pub fn walk(&self, db: DbIndex, place: u64, mut visit: impl FnMut(Option<Entry<'_>>) -> bool) -> u64 {
        let expired_until_ms = self.expired_until_ms();
        self.db(db).walk(place, |together| {
            let mut goes_on = true;
            for entry in together {
                // Visit all of them: entries that share a place cannot be split between two walks.
                goes_on &= visit(Some(*entry).filter(|entry| entry.is_live(expired_until_ms)));
            }
            if goes_on { Walk::Continue } else { Walk::Stop }
        })
    }

    /// Walks the keys of a database: emits about `count` keys and returns the next cursor, 0 at the end. Emits every
    /// key that exists from the first call to the last exactly once. Removes some of the expired keys it meets and
    /// emits none of them.
    pub fn scan(&mut self, db: DbIndex, cursor: u64, count: usize, mut emit: impl FnMut(Entry<'_>)) -> u64 {
        let database = self.db(db);
        let expired_until_ms = self.expired_until_ms();
        // Active expiry removes the others. A step over many expired keys must neither take long nor fill the journal.
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

    /// All live entries of a database, in no particular order.
    pub fn entries(&self, db: DbIndex) -> impl Iterator<Item = Entry<'_>> {
        let database = self.db(db);
        let expired_until_ms = self.expired_until_ms();
        let live = move |entry: &Entry<'_>| entry.is_live(expired_until_ms);
        database.slots().filter_map(|slot| database.get(slot)).filter(live)
    }

    /// All entries of a database, including expired ones not yet removed, in the order of the table, which depends only
    /// on their hashes.
    pub fn stored_entries(&self, db: DbIndex) -> impl Iterator<Item = Entry<'_>> {
        let database = self.db(db);
        database.slots().filter_map(|slot| database.get(slot))
    }

    /// As [`stored_entries`](Self::stored_entries), without waiting until the keys are safe. For numbers, which reveal
    /// no key.
    pub fn stored_entries_unfenced(&self, db: DbIndex) -> impl Iterator<Item = Entry<'_>> {
        let database = self.db_unfenced(db);
        database.slots().filter_map(|slot| database.get(slot))
    }

    /// Returns a random live key of a database. If all keys have expired and [stay](UnitMode::KEEPS_EXPIRED), there may
    /// be no live key; an expired one is returned then, as in Redis.
    pub fn random_key(&mut self, db: DbIndex) -> Option<Entry<'_>> {
        self.in_flight.see_all();
        let mut tries = 0;
        loop {
            let slot = self.dbs[db as usize].random(&mut self.rng)?;
            tries += 1;
            let gives_up = self.keeps_expired() && tries >= RANDOM_KEY_TRIES;
            if self.entry(db, slot).is_live(self.expired_until_ms()) || gives_up {
                return Some(self.entry(db, slot));
            }
            self.fall_due(db, slot, 0);
        }
    }

    /// Removes expired keys and elements, up to a `budget` of timers and elements. Returns whether more are due. Runs
    /// as a unit of its own.
    pub fn reclaim_expired(&mut self, budget: usize) -> bool {
        self.reclaim_expired_while(budget, || true)
    }

    /// As [`reclaim_expired`](Self::reclaim_expired), while `has_time` returns true. It is asked after every few timers
    /// and elements.
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
                // The cost of the timer also covers one element, so that each slice makes progress.
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

    /// Replaces the data by that of another keyspace with equally many databases. Call only between units. No effect is
    /// recorded, so the data must be equal.
    pub(crate) fn take_over(&mut self, other: Keyspace) {
        debug_assert_eq!(self.dbs.len(), other.dbs.len());
        self.limits = other.limits;
        self.last_token = self.last_token.max(other.last_token);
        self.given_token = self.given_token.max(other.given_token);
        self.note_lease(other.latest_lease_ms);
        self.dbs = other.dbs;
        self.unsettled = other.unsettled;
    }

    /// Excludes expiry since the effect count was `before` from the changes made by commands and the changes to be
    /// saved.
    fn count_no_change(&mut self, before: u64) {
        self.effects.recount(before.wrapping_sub(self.effects.count()) as i64);
    }

    /// Removes an entry if it has expired, otherwise at most `budget` of its expired elements. Due delayed messages of
    /// a stream become entries. Returns how many elements were removed, or `None` if the entry was. While expiry is
    /// held, all elements become live again.
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
        if self.keeps_expired() {
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

    /// Removes an entry that has expired or whose elements have all expired.
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
        // SAFETY: the value is not embedded, or no longer.
        unsafe { entry.into_value_in_word() }
    }
}
