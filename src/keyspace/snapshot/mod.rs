//! A copy of all databases as a stream of effects. Applied to an empty keyspace, the stream gives this keyspace as it
//! is when the copy **ends**.
//!
//! The copy is made in slices, each between two units, while the keyspace goes on changing. Nothing is frozen, and no
//! second version is kept. A walk visits each database once, in the order of [`SplitTable::walk`], so a key's hash says
//! whether the key has been copied. Each unit committed in the meantime is [followed](Snapshot::follow). An effect on a
//! copied key goes into the stream unchanged. An effect on any other key is left out, because the walk will meet that
//! key in its later state.
//!
//! So after any prefix of the stream, a reader holds a part of the keyspace as it was at that point: all copied keys,
//! and no others. In particular, every effect in the stream finds the state on which it was recorded.
//!
//! # Two keys
//! RENAME, MOVE and COPY carry a value from one key to another, and the effect does not contain the value. If both keys
//! have been copied, the effect goes into the stream. If only the source has been copied, only the part of the effect
//! that concerns the source goes into the stream. If only the target has been copied, the stream lacks the value. The
//! target is then scheduled to be copied **again** when the walk is over, and counts as not copied until then. The
//! stream tells its reader to remove the key of that name. So the reader never holds a key that does not count as
//! copied, and slices copy a key a second time only if a followed unit has changed or removed it in between.
//!
//! A unit is followed when it is over. So a key that is copied again is copied in its state after the whole unit, by a
//! later slice, and none of the unit's effects on it goes into the stream.
//!
//! # Large values
//! A large value is copied in parts, over as many slices as necessary, and is followed element by element in the
//! meantime: see [`part`]. One such copy is in progress at a time, and the walk waits for it. If the value moves to
//! another key, the copy moves along, so a key may be copied **ahead** of the walk. After an effect that cannot be
//! followed, the copy starts over: the key is copied again, behind the walk.
//!
//! # How long a slice takes
//! A slice has the requested number of bytes, plus anything that is copied at once:
//!
//! - a key whose value is not large;
//! - one element of a large value, however long; a command that reads the element copies as much;
//! - a compact value; the configuration may let it grow large, but then any command on it goes through all of it;
//! - the requests of one producer, of which there are at most 10,000.
//!
//! Slices grow with the changes made in the meantime, so that the copy outruns keys and elements added in front of it.
//! They also grow when one key or value is copied over and over again behind the walk.
//!
//! [`SplitTable::walk`]: crate::base::split_table::SplitTable::walk

mod list;
mod part;
mod slice;
mod stream;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;

use part::UnderWay;
use slice::{Budget, Followed};

use super::any_value::ValueRef;
use super::db::Db;
use super::effect::{Cause, Effect, EffectReader, EffectWriter, Role, Target};
use super::entry::Entry;
use super::mark::Mark;
use super::verb::{build, limits_effect};
use super::{DbIndex, Keyspace};
use crate::base::hasher::hash_bytes;
use crate::base::limits::SNAPSHOT_PART_MIN_BYTES;
use crate::base::split_table::{PLACE_END, Walk, place};
use crate::keyspace::limits::{
    SNAPSHOT_AGAIN_MAX, SNAPSHOT_DEBT_SLICE_BYTES, SNAPSHOT_ELEMENT_BYTES, SNAPSHOT_EXPECT_MIN_KEYS,
    SNAPSHOT_KEY_WORK_BYTES, SNAPSHOT_STARTS_OVER_MAX,
};
use crate::value::Layout;
use crate::value::string::{Digits, StringRef};

/// A copy in progress. See the module header.
pub struct Snapshot {
    /// How far each database has been copied.
    dbs: Vec<CopiedDb>,
    /// A large value that has been copied in part.
    under_way: Option<UnderWay>,
    /// Values with more bytes are large.
    part_min_bytes: usize,
    /// How often copies of large values have started over since the walks ended.
    starts_over: usize,
    /// Whether the limits have been written. No value can be laid out before.
    has_limits: bool,
    /// The number of copied keys; a key copied twice counts twice.
    copied: usize,
    /// The number of keys copied again since the walks ended.
    copied_again: usize,
    /// Bytes of changes for which slices have not grown yet.
    debt: usize,
    /// Marks the large value in progress.
    mark: Mark,
}

/// Whether or not the copy is complete, later effects need not name elements for it.
impl Drop for Snapshot {
    fn drop(&mut self) {
        self.mark.take_off();
    }
}

/// How far a database has been copied.
#[derive(Default)]
struct CopiedDb {
    /// Keys whose places are before this one have been copied, except those in `again`.
    position: u64,
    /// Keys, wherever they are, that must be copied when the walk is over.
    again: BTreeSet<Box<[u8]>>,
    /// Keys that have been copied before the walk reached them.
    ahead: BTreeSet<Box<[u8]>>,
}

impl CopiedDb {
    fn has(&self, key: &[u8]) -> bool {
        (place(hash_bytes(key)) < self.position || self.ahead.contains(key)) && !self.again.contains(key)
    }

    /// Whether the walk can skip this key.
    fn passes_over(&self, key: &[u8]) -> bool {
        let is_in = |keys: &BTreeSet<Box<[u8]>>| !keys.is_empty() && keys.contains(key);
        is_in(&self.again) || is_in(&self.ahead)
    }

    /// Notes that the reader has the key.
    fn add(&mut self, key: Box<[u8]>) {
        self.again.remove(&key);
        if place(hash_bytes(&key)) >= self.position {
            self.ahead.insert(key);
        }
    }

    /// Schedules the key to be copied when the walk is over.
    fn put_off(&mut self, key: Box<[u8]>) {
        self.again.insert(key);
    }
}

impl Snapshot {
    /// Begins a copy. From now on, every unit must be recorded in full and [followed](Self::follow).
    pub fn begin(ks: &Keyspace) -> Snapshot {
        Snapshot::begin_with_parts(ks, SNAPSHOT_PART_MIN_BYTES)
    }

    /// As [`begin`](Self::begin), with the size above which values are copied in parts.
    pub fn begin_with_parts(ks: &Keyspace, part_min_bytes: usize) -> Snapshot {
        Snapshot {
            dbs: (0..ks.databases()).map(|_| CopiedDb::default()).collect(),
            under_way: None,
            part_min_bytes,
            starts_over: 0,
            has_limits: false,
            copied: 0,
            copied_again: 0,
            debt: 0,
            mark: ks.copied_in_parts.clone(),
        }
    }

    /// Whether a large value has been copied only in part.
    #[cfg(test)]
    pub fn is_inside_value(&self) -> bool {
        self.under_way.is_some()
    }

    /// Continues the copy, between two units: appends effects to `out` until they have about `bytes` bytes, or took as
    /// long to make. A single effect may exceed that. Returns whether the copy is complete; if so, the stream gives the
    /// present keyspace.
    pub fn copy_slice(&mut self, ks: &Keyspace, bytes: usize, out: &mut EffectWriter) -> bool {
        let mut budget = Budget::new(self.slice_bytes(ks, bytes));
        if !self.has_limits {
            out.write(0, &limits_effect(ks.limits()));
            self.has_limits = true;
        }
        while !budget.is_spent() {
            if let Some(under_way) = self.under_way.take() {
                self.copy_part(ks, under_way, &mut budget, out);
            } else if let Some(db) = self.first_unfinished() {
                self.walk(ks, db, &mut budget, out);
            } else if let Some((db, key)) = self.take_again() {
                self.copy_again(ks, db, &key, &mut budget, out);
            } else {
                break;
            }
        }
        self.move_mark(ks);
        let is_complete = self.is_complete();
        // Comes last: grants that came and went before their keys were copied had tokens, too.
        if is_complete && ks.given_token() > 0 {
            out.write(0, &Effect::Tokens { last: ks.given_token() });
        }
        if is_complete && ks.last_token() > ks.given_token() {
            out.write(0, &Effect::TokensRaise { to: ks.last_token() });
        }
        is_complete
    }

    /// The size of the next slice when `bytes` are requested.
    fn slice_bytes(&mut self, ks: &Keyspace, bytes: usize) -> usize {
        let of_debt = self.debt.min(SNAPSHOT_DEBT_SLICE_BYTES);
        self.debt -= of_debt;
        let (_, keys) = self.progress(ks);
        // Repeated copies of one key or value must not keep the snapshot from ending.
        let doublings = self.starts_over / SNAPSHOT_STARTS_OVER_MAX + self.copied_again / SNAPSHOT_AGAIN_MAX.max(keys);
        bytes.saturating_add(of_debt).max(1).saturating_mul(1 << doublings.min(40))
    }

    fn move_mark(&self, ks: &Keyspace) {
        // Effects on other types always contain everything needed.
        match self.under_way.as_ref().and_then(|under_way| under_way.entry(ks)).map(Entry::value) {
            Some(ValueRef::List(list)) => self.mark.put_on(list.address()),
            Some(ValueRef::ZSet(zset)) => self.mark.put_on(zset.address()),
            _ => self.mark.take_off(),
        }
    }

    /// Returns the numbers of copied keys and of all keys. Approximate, because keys come and go.
    pub fn progress(&self, ks: &Keyspace) -> (usize, usize) {
        let all = (0..ks.databases()).map(|db| ks.db(db).len()).sum();
        (self.copied.min(all), all)
    }

    fn is_complete(&self) -> bool {
        self.under_way.is_none() && self.dbs.iter().all(|db| db.position == PLACE_END && db.again.is_empty())
    }

    fn first_unfinished(&self) -> Option<DbIndex> {
        self.dbs.iter().position(|db| db.position < PLACE_END).map(|db| db as DbIndex)
    }

    /// Takes out a key that must be copied again.
    fn take_again(&mut self) -> Option<(DbIndex, Box<[u8]>)> {
        let with_db = |(db, copied): (usize, &mut CopiedDb)| Some((db as DbIndex, copied.again.pop_first()?));
        self.dbs.iter_mut().enumerate().find_map(with_db)
    }

    fn copy_again(&mut self, ks: &Keyspace, db: DbIndex, key: &[u8], budget: &mut Budget, out: &mut EffectWriter) {
        let database = ks.db(db);
        self.copied_again += 1;
        match database.find(key).and_then(|slot| database.get(slot)) {
            Some(entry) if self.is_large(entry.value()) => self.under_way = Some(UnderWay::begin(db, entry)),
            Some(entry) => {
                self.copied += 1;
                budget.pay(out, |out| copy_whole(db, entry, out));
            }
            None => budget.pay(out, |_| {}),
        }
    }

    /// Continues the walk through one database.
    fn walk(&mut self, ks: &Keyspace, db: DbIndex, budget: &mut Budget, out: &mut EffectWriter) {
        let (database, copied_db): (&Db, &CopiedDb) = (ks.db(db), &self.dbs[db as usize]);
        if copied_db.position == 0 && database.len() >= SNAPSHOT_EXPECT_MIN_KEYS {
            out.write(db, &Effect::Expect { keys: database.len() as u64 });
        }
        let mut large = None;
        let mut copied = 0;
        let position = database.walk(copied_db.position, |entries| {
            for &entry in entries.iter().filter(|entry| !copied_db.passes_over(entry.key())) {
                // Two keys share a place once in many millions of keys. If both are large, one of them is copied at
                // once.
                if large.is_none() && self.is_large(entry.value()) {
                    large = Some(UnderWay::begin(db, entry));
                } else {
                    copied += 1;
                    budget.pay(out, |out| copy_whole(db, entry, out));
                }
            }
            if large.is_some() || budget.is_spent() { Walk::Stop } else { Walk::Continue }
        });
        self.dbs[db as usize].position = position;
        self.under_way = large;
        self.copied += copied;
    }

    /// Continues the copy of a large value.
    fn copy_part(&mut self, ks: &Keyspace, mut under_way: UnderWay, budget: &mut Budget, out: &mut EffectWriter) {
        let Some(entry) = under_way.entry(ks).filter(|entry| under_way.fits(entry.value())) else {
            return self.start_over(under_way, out);
        };
        if !under_way.copy(entry.value(), budget) {
            under_way.flush(out);
            self.under_way = Some(under_way);
            return;
        }
        self.copied += 1;
        let (db, key) = (under_way.db, under_way.key.clone());
        under_way.complete(entry.value(), out);
        self.dbs[db as usize].add(key);
    }

    /// Discards the partial copy of a large value. If the value still exists, it will be met again.
    fn start_over(&mut self, under_way: UnderWay, out: &mut EffectWriter) {
        self.starts_over += usize::from(self.first_unfinished().is_none());
        self.dbs[under_way.db as usize].put_off(under_way.key.clone());
        under_way.abandon(out);
    }

    fn is_large(&self, value: ValueRef<'_>) -> bool {
        let few = (self.part_min_bytes / SNAPSHOT_ELEMENT_BYTES) as u64;
        let elements = match value {
            ValueRef::String(string) => return is_allocated(string) && string.len() > self.part_min_bytes,
            ValueRef::Stream(stream) => {
                // Each element counts at least one byte, so looking at more of them is unnecessary.
                let first = few as usize + 1;
                let of_groups: usize = stream.groups().take(first).map(|(_, group)| group.weight()).sum();
                let of_requests = stream.idempotency().map_or(0, |memory| memory.weight(first));
                stream.len() + (stream.delayed_len() + of_groups + of_requests) as u64
            }
            ValueRef::Grants(grants) => grants.elements() as u64,
            _ if value.layout() != Layout::Large => return false,
            ValueRef::List(list) => list.len() as u64,
            ValueRef::Set(set) => set.stored_len() as u64,
            ValueRef::ZSet(zset) => zset.len() as u64,
            ValueRef::Hash(hash) => hash.stored_len() as u64,
        };
        elements > few || value.heap_bytes(0) > self.part_min_bytes
    }

    /// Adds the effects of the unit just committed on keys that have been copied. The unit must have been recorded in
    /// full.
    pub fn follow(&mut self, ks: &Keyspace, out: &mut EffectWriter) {
        self.follow_unit(ks.effects().iter(), out);
    }

    /// As [`follow`](Self::follow), with the effects of the unit.
    pub fn follow_unit(&mut self, effects: EffectReader<'_>, out: &mut EffectWriter) {
        self.debt += effects.bytes_left();
        for (db, effect) in effects {
            self.debt += SNAPSHOT_KEY_WORK_BYTES;
            self.follow_effect(db, &effect, out);
        }
        self.flush(out);
    }

    fn flush(&mut self, out: &mut EffectWriter) {
        if let Some(under_way) = &mut self.under_way {
            under_way.flush(out);
        }
    }

    fn follow_effect(&mut self, db: DbIndex, effect: &Effect<'_>, out: &mut EffectWriter) {
        match effect.targets(db) {
            [Some((_, Target::Key(db, key))), None] => self.follow_on_key(db, key, effect, out),
            [Some((role, Target::Key(db, key))), Some((_, Target::Key(to_db, to)))] => {
                self.follow_carrying(role, (db, key), (to_db, to), effect, out);
            }
            [Some((_, Target::Database(db))), None] => {
                self.dbs[db as usize].again.clear();
                self.dbs[db as usize].ahead.clear();
                self.under_way.take_if(|under_way| under_way.db == db).into_iter().for_each(|one| one.abandon(out));
                out.write(db, effect);
            }
            [Some((_, Target::Database(db))), Some((_, Target::Database(with_db)))] => {
                self.dbs.swap(db as usize, with_db as usize);
                if let Some(under_way) = &mut self.under_way {
                    under_way.db = match under_way.db {
                        one if one == db => with_db,
                        one if one == with_db => db,
                        other => other,
                    };
                }
                out.write(db, effect);
            }
            _ if matches!(effect, Effect::Limits { .. }) => {
                // Earlier effects were laid out within the old limits.
                self.flush(out);
                out.write(db, effect);
            }
            // Scripts and libraries have a copy of their own.
            _ => {}
        }
    }

    fn follow_on_key(&mut self, db: DbIndex, key: &[u8], effect: &Effect<'_>, out: &mut EffectWriter) {
        if self.has(db, key) {
            if let Effect::Complete { .. } = effect {
                // The parts of the value are not in the stream.
                return self.retract(db, key, out);
            }
            return out.write(db, effect);
        }
        if let Some(mut under_way) = self.under_way.take_if(|under_way| under_way.is(db, key)) {
            match under_way.follow(effect) {
                Followed::Yes => self.under_way = Some(under_way),
                Followed::Replaced => {
                    under_way.replace(effect, out);
                    self.dbs[db as usize].add(key.into());
                }
                Followed::No => self.start_over(under_way, out),
            }
        }
    }

    /// Follows an effect that carries a value from one key to another.
    fn follow_carrying(
        &mut self,
        role: Role,
        (db, key): (DbIndex, &[u8]),
        (to_db, to): (DbIndex, &[u8]),
        effect: &Effect<'_>,
        out: &mut EffectWriter,
    ) {
        if (db, key) == (to_db, to) {
            return;
        }
        let has_source = self.has(db, key);
        if let Some(replaced) = self.under_way.take_if(|under_way| under_way.is(to_db, to)) {
            if has_source {
                replaced.abandon(out);
                out.write(db, effect);
                return self.dbs[to_db as usize].add(to.into());
            }
            self.start_over(replaced, out);
        }
        if role == Role::Removes
            && let Some(under_way) = self.under_way.as_mut().filter(|under_way| under_way.is(db, key))
        {
            // The copy moves along with its value. A key that takes the vacated name has not been copied.
            (under_way.db, under_way.key) = (to_db, to.into());
            self.dbs[db as usize].put_off(key.into());
            if self.dbs[to_db as usize].has(to) {
                forget(to_db, to, out);
            }
            self.dbs[to_db as usize].again.remove(to);
            return;
        }
        match (has_source, self.has(to_db, to)) {
            (true, true) => out.write(db, effect),
            (true, false) if role == Role::Removes => out.write(db, &Effect::Del { key, cause: Cause::Command }),
            (false, true) => self.retract(to_db, to, out),
            _ => {}
        }
    }

    /// Retracts the copy of a key, whose value is outdated in the reader: it must be copied again.
    fn retract(&mut self, db: DbIndex, key: &[u8], out: &mut EffectWriter) {
        forget(db, key, out);
        self.dbs[db as usize].put_off(key.into());
    }

    /// Whether the reader has the current value of a key.
    fn has(&self, db: DbIndex, key: &[u8]) -> bool {
        self.dbs[db as usize].has(key) && !self.under_way.as_ref().is_some_and(|under_way| under_way.is(db, key))
    }
}

/// Writes effects after which a key has the content of this entry, regardless of any previous content.
fn copy_whole(db: DbIndex, entry: Entry<'_>, out: &mut EffectWriter) {
    let key = entry.key();
    match entry.value() {
        ValueRef::String(string) if is_put_alike(string) => {
            out.write(db, &Effect::Put { key, value: string.as_bytes(&mut Digits::new()) });
            if let StringRef::Raw(_) = string {
                out.write(db, &Effect::Relayout { key, layout: Layout::Large });
            }
        }
        value => out.write(db, &Effect::Build { key, layout: value.layout(), steps: &build(value) }),
    }
    if let Some(at_ms) = entry.expires_at_ms() {
        out.write(db, &Effect::ExpireAt { key, at_ms });
    }
}

/// Whether the text lies outside its entry.
fn is_allocated(string: StringRef<'_>) -> bool {
    matches!(string, StringRef::Heap(_) | StringRef::Raw(_))
}

/// Whether putting the text creates this value, apart from spare room. Text that looks like a number would become one.
fn is_put_alike(string: StringRef<'_>) -> bool {
    matches!(string, StringRef::Int(_) | StringRef::Raw(_)) || string.as_i64().is_none()
}

/// Writes effects that remove the key, whether or not it existed.
fn forget(db: DbIndex, key: &[u8], out: &mut EffectWriter) {
    out.write(db, &Effect::Put { key, value: b"" });
    out.write(db, &Effect::Del { key, cause: Cause::Command });
}
