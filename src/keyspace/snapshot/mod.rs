//! A copy of all databases as a stream of effects that, applied to an empty keyspace, gives this one as it is when the copy **ends**.
//!
//! The copy is made in slices, each between two units, while the keyspace goes on changing. Nothing is frozen and nothing kept
//! beside: a walk goes through each database once, in the order of [`SplitTable::walk`], so that of any key its hash says whether
//! it has been copied. Each unit that was committed meanwhile is [followed](Snapshot::follow): an effect about a key that has been
//! copied goes into the stream as it is, one about another key is left out, for the walk will meet that key as it is by then.
//!
//! So whoever has applied the stream up to some point holds a part of the keyspace as it was at that point: all keys that had
//! been copied, and no others. In particular every effect that is passed on finds what it was recorded on.
//!
//! # Two keys
//! RENAME, MOVE and COPY carry a value from one key to another, and the effect does not say which. If both keys have been
//! copied, it is passed on; if only the source has, what it means for the source alone. If only the target has, the stream lacks
//! the value: the target is put down to be copied **again** and until then counts as not copied. What the stream's reader has under
//! that name is overwritten then, or removed, if the key is gone by then.
//!
//! A unit is followed when it is over, so a key that is copied again is copied in the state after the whole unit, and by a later
//! slice: none of the unit's effects on it is passed on.
//!
//! [`SplitTable::walk`]: crate::base::split_table::SplitTable::walk

use std::collections::BTreeSet;

use super::db::Db;
use super::effect::{Cause, Effect, EffectReader, EffectWriter, Role, Target};
use super::entry::{Entry, Value};
use super::verb::{build, limits_effect};
use super::{DbIndex, Keyspace};
use crate::base::hasher::hash_bytes;
use crate::base::limits::SNAPSHOT_KEY_WORK_BYTES;
use crate::base::split_table::{PLACE_END, Walk, place};
use crate::value::Layout;
use crate::value::string::{Digits, StringValue};

/// A copy that is under way. See the module's header.
pub struct Snapshot {
    /// How far each database has been copied.
    dbs: Vec<CopiedDb>,
    /// Whether the limits have been written, without which no value can be laid out.
    has_limits: bool,
    /// Keys that were copied, some of them more than once.
    copied: usize,
}

/// How far a database has been copied.
#[derive(Default)]
struct CopiedDb {
    /// Keys whose places are before this one have been copied.
    position: u64,
    /// But for these, which must be copied again. Whoever reads the stream may have something else under these names.
    again: BTreeSet<Box<[u8]>>,
}

impl CopiedDb {
    fn has(&self, key: &[u8]) -> bool {
        place(hash_bytes(key)) < self.position && !self.again.contains(key)
    }
}

impl Snapshot {
    /// Begins a copy. From now on every unit must be recorded in full and [followed](Self::follow).
    pub fn begin(ks: &mut Keyspace) -> Snapshot {
        Snapshot { dbs: (0..ks.databases()).map(|_| CopiedDb::default()).collect(), has_limits: false, copied: 0 }
    }

    /// Copies on, between two units: appends effects to `out` until they have about so many bytes, or took as long to make. One
    /// effect may exceed that. Answers whether all is copied; if so, the stream is complete as of now.
    pub fn copy_slice(&mut self, ks: &mut Keyspace, bytes: usize, out: &mut EffectWriter) -> bool {
        let mut budget = Budget { left: bytes };
        if !self.has_limits {
            out.write(0, &limits_effect(ks.limits()));
            self.has_limits = true;
        }
        while !budget.is_spent() {
            if let Some((db, key)) = self.take_again() {
                self.copy_again(ks, db, &key, &mut budget, out);
            } else if let Some(db) = self.first_unfinished() {
                self.walk(ks, db, &mut budget, out);
            } else {
                break;
            }
        }
        self.is_complete()
    }

    /// How many keys have been copied, of how many. Not exact: keys come and go.
    pub fn progress(&self, ks: &Keyspace) -> (usize, usize) {
        let all = (0..ks.databases()).map(|db| ks.db(db).len()).sum();
        (self.copied.min(all), all)
    }

    /// Ends the copy, complete or not. Units need not be followed any more.
    pub fn end(self, _: &mut Keyspace) {}

    fn is_complete(&self) -> bool {
        self.dbs.iter().all(|db| db.position == PLACE_END && db.again.is_empty())
    }

    fn first_unfinished(&self) -> Option<DbIndex> {
        self.dbs.iter().position(|db| db.position < PLACE_END).map(|db| db as DbIndex)
    }

    /// Takes a key out that must be copied again.
    fn take_again(&mut self) -> Option<(DbIndex, Box<[u8]>)> {
        let with_db = |(db, copied): (usize, &mut CopiedDb)| Some((db as DbIndex, copied.again.pop_first()?));
        self.dbs.iter_mut().enumerate().find_map(with_db)
    }

    fn copy_again(&mut self, ks: &Keyspace, db: DbIndex, key: &[u8], budget: &mut Budget, out: &mut EffectWriter) {
        let database = ks.db(db);
        match database.find(key).and_then(|slot| database.get(slot)) {
            Some(entry) => {
                self.copied += 1;
                budget.pay(out, |out| copy_whole(db, entry, out));
            }
            None => budget.pay(out, |out| forget(db, key, out)),
        }
    }

    /// Walks on through one database.
    fn walk(&mut self, ks: &Keyspace, db: DbIndex, budget: &mut Budget, out: &mut EffectWriter) {
        let copied = &mut self.copied;
        let database: &Db = ks.db(db);
        let state = &mut self.dbs[db as usize];
        state.position = database.walk(state.position, |entries| {
            for entry in entries {
                *copied += 1;
                budget.pay(out, |out| copy_whole(db, entry, out));
            }
            if budget.is_spent() { Walk::StopAfter } else { Walk::Continue }
        });
    }

    /// Passes on what the unit that was just committed did to keys that have been copied. It must have been recorded in full.
    pub fn follow(&mut self, ks: &Keyspace, out: &mut EffectWriter) {
        self.follow_unit(ks.effects().iter(), out);
    }

    /// As [`follow`](Self::follow), with the effects of the unit.
    pub fn follow_unit(&mut self, effects: EffectReader<'_>, out: &mut EffectWriter) {
        for (db, effect) in effects {
            self.follow_effect(db, &effect, out);
        }
    }

    fn follow_effect(&mut self, db: DbIndex, effect: &Effect<'_>, out: &mut EffectWriter) {
        match effect.targets(db) {
            [Some((_, Target::Key(db, key))), None] => self.follow_on_key(db, key, effect, out),
            [Some((role, Target::Key(db, key))), Some((_, Target::Key(to_db, to)))] => {
                self.follow_carrying(role, (db, key), (to_db, to), effect, out);
            }
            [Some((_, Target::Database(db))), other] => {
                match other {
                    Some((_, Target::Database(with_db))) => self.dbs.swap(db as usize, with_db as usize),
                    _ => self.dbs[db as usize].again.clear(),
                }
                out.write(db, effect);
            }
            _ if matches!(effect, Effect::Limits { .. }) => out.write(db, effect),
            // What is kept beside the keys has its own copy.
            _ => {}
        }
    }

    fn follow_on_key(&mut self, db: DbIndex, key: &[u8], effect: &Effect<'_>, out: &mut EffectWriter) {
        if self.dbs[db as usize].has(key) {
            out.write(db, effect);
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
        match (self.dbs[db as usize].has(key), self.dbs[to_db as usize].has(to)) {
            (true, true) => out.write(db, effect),
            (true, false) if role == Role::Removes => out.write(db, &Effect::Del { key, cause: Cause::Command }),
            (false, true) => _ = self.dbs[to_db as usize].again.insert(to.into()),
            _ => {}
        }
    }
}

/// What a slice may still do, counted in bytes.
struct Budget {
    left: usize,
}

impl Budget {
    fn is_spent(&self) -> bool {
        self.left == 0
    }

    /// Pays for the work on one key or element, which writes to `out`.
    fn pay(&mut self, out: &mut EffectWriter, work: impl FnOnce(&mut EffectWriter)) {
        let before = out.len();
        work(out);
        self.left = self.left.saturating_sub(out.len() - before + SNAPSHOT_KEY_WORK_BYTES);
    }
}

/// Writes effects after which a key holds what this entry does, whatever was there before.
fn copy_whole(db: DbIndex, entry: &Entry, out: &mut EffectWriter) {
    let key = entry.key();
    match entry.value() {
        Value::String(string) if is_put_alike(string) => {
            out.write(db, &Effect::Put { key, value: string.as_bytes(&mut Digits::new()) });
            if let StringValue::Raw(_) = string {
                out.write(db, &Effect::Relayout { key, layout: Layout::Large });
            }
        }
        value => out.write(db, &Effect::Build { key, layout: value.layout(), steps: &build(value) }),
    }
    if let Some(at_ms) = entry.expires_at_ms() {
        out.write(db, &Effect::ExpireAt { key, at_ms });
    }
}

/// Whether putting the text makes this value, but for room to grow: text that says a number would become one.
fn is_put_alike(string: &StringValue) -> bool {
    matches!(string, StringValue::Int(_) | StringValue::Raw(_)) || string.as_i64().is_none()
}

/// Writes effects after which there is no such key, whether or not there was one before.
fn forget(db: DbIndex, key: &[u8], out: &mut EffectWriter) {
    out.write(db, &Effect::Put { key, value: b"" });
    out.write(db, &Effect::Del { key, cause: Cause::Command });
}
