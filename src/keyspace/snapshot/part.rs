//! One large value that is copied in parts, over several slices, while it goes on changing.
//!
//! Whoever reads the stream builds the value beside its keyspace ([`Effect::Part`]), and puts it in its place when it is whole
//! ([`Effect::Complete`]). What is built holds at any point a part of the value as it is at that point: what lies behind a cursor. So
//! of each effect on the value one can say what it means for the part, which depends on the type:
//!
//! | Type | The part | What is not followed |
//! |---|---|---|
//! | string | all of its length, the bytes up to an offset right | |
//! | hash, set | the elements whose hashes come before a place, as with keys | another layout |
//! | sorted set | the same | another layout; the removal of a large share by ranks |
//! | list | the first so many elements, as whole nodes; see [`list`](super::list) | |
//! | stream | entries up to an id, then groups, then requests; see [`stream`](super::stream) | |
//! | lock, gate, stock | the grants of the first tokens, and of what a stock remembers the first names | |
//!
//! What a stock remembers is copied last, in its order, and what is remembered meanwhile comes last in that order: so the names are not
//! followed, but met. Its amounts are written when all is copied.
//!
//! After an effect that is not followed, and when the key is gone, the copy of the value starts over. An effect that puts another value
//! in the place of all of it brings that along, and is passed on.

use super::list::ListPart;
use super::slice::{Budget, Followed};
use super::stream::StreamPart;
use crate::base::hasher::hash_bytes;
use crate::base::limits::SNAPSHOT_PIECE_BYTES;
use crate::base::split_table::{PLACE_END, place};
use crate::keyspace::any_value::ValueRef;
use crate::keyspace::effect::{Cause, Effect, EffectWriter};
use crate::keyspace::entry::Entry;
use crate::keyspace::verb::{grant_set, stock_note, stock_set};
use crate::keyspace::{DbIndex, Keyspace, NAMELESS, NEVER};
use crate::value::Layout;
use crate::value::deadlines::Deadlines;
use crate::value::grants::Grants;
use crate::value::stock::Memory;
use crate::value::string::{Digits, StringRef};

/// A value of which a part has been copied. See the module's header.
pub(super) struct UnderWay {
    pub(super) db: DbIndex,
    pub(super) key: Box<[u8]>,
    /// When it expires, Unix ms.
    at_ms: i64,
    part: Part,
    /// What was not written yet.
    steps: EffectWriter,
    /// How the part is laid out while it grows.
    layout: Layout,
    /// Whether nothing was written yet.
    is_fresh: bool,
}

/// What has been copied of a value.
enum Part {
    Text(TextPart),
    /// The elements before this place.
    Elements {
        until: u64,
    },
    List(ListPart),
    Stream(StreamPart),
    /// The grants before this token, and of each memory of a stock the names before this number.
    Grants {
        until: u64,
        names: [u64; Memory::ALL.len()],
    },
}

impl UnderWay {
    /// Begins to copy a value.
    pub(super) fn begin(db: DbIndex, entry: Entry<'_>) -> UnderWay {
        let mut steps = EffectWriter::default();
        let (part, layout) = match entry.value() {
            ValueRef::String(string) => (Part::Text(TextPart::begin(string, &mut steps)), Layout::Large),
            ValueRef::List(list) => (Part::List(ListPart::begin(list)), Layout::Large),
            ValueRef::Stream(_) => (Part::Stream(StreamPart::begin(&mut steps)), Layout::Compact),
            ValueRef::Grants(grants) => {
                let (kind, limit, fixed) = (grants.kind(), grants.limit(), grants.is_fixed());
                steps.write(0, &Effect::GrantsCreate { key: NAMELESS, kind, limit, fixed });
                (Part::Grants { until: 0, names: Default::default() }, Layout::Compact)
            }
            ValueRef::Hash(_) | ValueRef::Set(_) | ValueRef::ZSet(_) => (Part::Elements { until: 0 }, Layout::Large),
        };
        let at_ms = entry.expires_at_ms().unwrap_or(NEVER);
        UnderWay { db, key: entry.key().into(), at_ms, part, steps, layout, is_fresh: true }
    }

    /// The key, if it is still there.
    pub(super) fn entry<'a>(&self, ks: &'a Keyspace) -> Option<Entry<'a>> {
        let database = ks.db(self.db);
        database.find(&self.key).and_then(|slot| database.get(slot))
    }

    /// Copies on. Answers whether the whole value is copied.
    pub(super) fn copy(&mut self, value: ValueRef<'_>, budget: &mut Budget) -> bool {
        let steps = &mut self.steps;
        match (&mut self.part, value) {
            (Part::Text(part), ValueRef::String(string)) => part.copy(string, budget, steps),
            (Part::List(part), ValueRef::List(list)) => part.copy(list, budget, steps),
            (Part::Stream(part), ValueRef::Stream(stream)) => part.copy(stream, budget, steps),
            (Part::Grants { until, names }, ValueRef::Grants(grants)) => {
                copy_grants(grants, until, budget, steps) && copy_memories(grants, names, budget, steps)
            }
            (Part::Elements { until }, value) => {
                *until = copy_elements(value, *until, budget, steps);
                *until == PLACE_END
            }
            // See `fits`.
            _ => false,
        }
    }

    /// Follows an effect on the value.
    pub(super) fn follow(&mut self, effect: &Effect<'_>) -> Followed {
        match *effect {
            Effect::ExpireAt { at_ms, .. } => {
                // It is written when the value is complete.
                self.at_ms = at_ms;
                return Followed::Yes;
            }
            Effect::Put { .. }
            | Effect::Replace { .. }
            | Effect::SetInteger { .. }
            | Effect::SetText { .. }
            | Effect::Build { .. } => return Followed::Replaced,
            _ => {}
        }
        let effect = &effect.with_key(NAMELESS);
        match &mut self.part {
            Part::Text(part) => part.follow(effect, &mut self.steps),
            Part::Elements { until } => follow_elements(*until, effect, &mut self.steps),
            Part::List(part) => part.follow(effect, &mut self.steps),
            Part::Stream(part) => part.follow(effect, &mut self.steps),
            Part::Grants { until, .. } => follow_grants(*until, effect, &mut self.steps),
        }
    }

    /// Writes what the part has got.
    pub(super) fn flush(&mut self, out: &mut EffectWriter) {
        if !self.steps.is_empty() {
            let steps = std::mem::take(&mut self.steps).into_bytes();
            out.write(0, &Effect::Part { fresh: self.is_fresh, layout: self.layout, steps: &steps });
            self.is_fresh = false;
        }
    }

    /// Whether it is the value under this key.
    pub(super) fn is(&self, db: DbIndex, key: &[u8]) -> bool {
        self.db == db && *self.key == *key
    }

    /// Whether the value, which the key holds, can be copied on from where its part ends.
    pub(super) fn fits(&self, value: ValueRef<'_>) -> bool {
        match (&self.part, value) {
            (Part::Text(_), ValueRef::String(_))
            | (Part::List(_), ValueRef::List(_))
            | (Part::Stream(_), ValueRef::Stream(_))
            | (Part::Grants { .. }, ValueRef::Grants(_)) => true,
            (Part::Elements { .. }, ValueRef::Hash(_) | ValueRef::Set(_) | ValueRef::ZSet(_)) => {
                value.layout() == Layout::Large
            }
            _ => false,
        }
    }

    /// Puts the value, of which everything is copied, in its place.
    pub(super) fn complete(mut self, value: ValueRef<'_>, out: &mut EffectWriter) {
        note_former_deadlines(value, &mut self.steps);
        if let ValueRef::Grants(grants) = value
            && let Some(stock) = grants.stock()
        {
            self.steps.write(0, &stock_set(NAMELESS, &stock.terms));
        }
        self.flush(out);
        let (key, layout, at_ms) = (&*self.key, value.layout(), self.at_ms);
        out.write(self.db, &Effect::Complete { key, layout, at_ms });
    }

    /// Writes an effect that puts another value in the place of this one.
    pub(super) fn replace(self, effect: &Effect<'_>, out: &mut EffectWriter) {
        let (db, at_ms) = (self.db, self.at_ms);
        self.abandon(out);
        // The reader need not have a key whose deadline stays.
        let (effect, at_ms) = match *effect {
            Effect::Replace { key, value } => (Effect::Put { key, value }, Some(at_ms)),
            Effect::SetInteger { .. } | Effect::SetText { .. } => (*effect, Some(at_ms)),
            _ => (*effect, None),
        };
        out.write(db, &effect);
        if let (Some(at_ms), Some(key)) = (at_ms, effect.key()) {
            out.write(db, &Effect::ExpireAt { key, at_ms });
        }
    }

    /// Lets the reader forget the part.
    pub(super) fn abandon(self, out: &mut EffectWriter) {
        if !self.is_fresh {
            out.write(0, &Effect::Part { fresh: true, layout: Layout::Compact, steps: b"" });
        }
    }
}

/// What has been copied of a string.
struct TextPart {
    /// The part has as many bytes as the string,
    len: usize,
    /// and the first so many are the string's.
    done: usize,
}

impl TextPart {
    fn begin(string: StringRef<'_>, steps: &mut EffectWriter) -> TextPart {
        let len = string.len();
        // So that it need not grow.
        steps.write(0, &Effect::SetRange { key: NAMELESS, offset: len as u64, bytes: b"" });
        TextPart { len, done: 0 }
    }

    fn copy(&mut self, string: StringRef<'_>, budget: &mut Budget, steps: &mut EffectWriter) -> bool {
        let mut digits = Digits::new();
        let text = string.as_bytes(&mut digits);
        while self.done < text.len() && !budget.is_spent() {
            let len = budget.left.clamp(1, SNAPSHOT_PIECE_BYTES).min(text.len() - self.done);
            let bytes = &text[self.done..self.done + len];
            budget.pay(steps, |steps| {
                steps.write(0, &Effect::SetRange { key: NAMELESS, offset: self.done as u64, bytes });
            });
            self.done += len;
        }
        self.done >= text.len()
    }

    fn follow(&mut self, effect: &Effect<'_>, steps: &mut EffectWriter) -> Followed {
        match *effect {
            Effect::SetRange { key, offset, bytes } => {
                let end = offset as usize + bytes.len();
                let inside = &bytes[..bytes.len().min(self.done.saturating_sub(offset as usize))];
                if !inside.is_empty() {
                    steps.write(0, &Effect::SetRange { key, offset, bytes: inside });
                }
                if end > self.len {
                    steps.write(0, &Effect::SetRange { key, offset: end as u64, bytes: b"" });
                    self.len = end;
                }
            }
            Effect::Splice { offset, removed, bytes, .. } => {
                steps.write(0, effect);
                let (offset, removed) = (offset as usize, removed as usize);
                self.len = self.len - removed + bytes.len();
                self.done = if offset + removed <= self.done {
                    self.done - removed + bytes.len()
                } else {
                    self.done.min(offset + bytes.len())
                };
            }
            // The layout comes when the value is complete.
            Effect::Relayout { .. } => {}
            _ => return Followed::No,
        }
        Followed::Yes
    }
}

/// Copies the elements of a table from a place on. Answers where it ended.
fn copy_elements(value: ValueRef<'_>, from: u64, budget: &mut Budget, steps: &mut EffectWriter) -> u64 {
    let key = NAMELESS;
    let deadlines = value.deadlines().filter(|deadlines| !deadlines.is_empty());
    let mut pay = |element: &[u8], effect: Effect<'_>| {
        budget.pay(steps, |steps| {
            steps.write(0, &effect);
            if let Some(at_ms) = deadlines.and_then(|deadlines| deadlines.at(element)) {
                steps.write(0, &Effect::ElementExpireAt { key, element, at_ms });
            }
        });
        !budget.is_spent()
    };
    match value {
        ValueRef::Hash(hash) => hash.walk(from, |field, value| pay(field, Effect::HashSet { key, field, value })),
        ValueRef::Set(set) => set.walk(from, |member| pay(member, Effect::SetAdd { key, member })),
        ValueRef::ZSet(zset) => zset.walk(from, |member, score| pay(member, Effect::ZSetAdd { key, member, score })),
        _ => from,
    }
}

/// Copies grants from a token on. Answers whether all are copied.
fn copy_grants(grants: &Grants, until: &mut u64, budget: &mut Budget, steps: &mut EffectWriter) -> bool {
    for grant in grants.from(*until) {
        if budget.is_spent() {
            return false;
        }
        budget.pay(steps, |steps| steps.write(0, &grant_set(NAMELESS, grant)));
        *until = grant.token + 1;
    }
    true
}

/// Copies what a stock remembers, from these numbers on. Answers whether all is copied.
fn copy_memories(
    grants: &Grants,
    names: &mut [u64; Memory::ALL.len()],
    budget: &mut Budget,
    steps: &mut EffectWriter,
) -> bool {
    let Some(stock) = grants.stock() else { return true };
    for (memory, next) in Memory::ALL.into_iter().zip(names) {
        for (number, name, of_it) in stock.memory_from(memory, *next) {
            if budget.is_spent() {
                return false;
            }
            budget.pay(steps, |steps| steps.write(0, &stock_note(memory, name, of_it)));
            *next = number + 1;
        }
    }
    true
}

fn follow_grants(until: u64, effect: &Effect<'_>, steps: &mut EffectWriter) -> Followed {
    match *effect {
        Effect::GrantSet { token, .. } | Effect::GrantEnd { token, emptied: false, .. } if token < until => {
            steps.write(0, effect);
        }
        Effect::GrantSet { .. } | Effect::GrantEnd { emptied: false, .. } => {}
        Effect::GrantsLimit { .. } => steps.write(0, effect),
        Effect::StockSold { key, order, token, .. } => {
            if token < until {
                let cause = Cause::Command;
                steps.write(0, &Effect::GrantEnd { key, holder: order, token, cause, emptied: false });
            }
        }
        Effect::StockSet { .. } | Effect::StockAdd { .. } => {}
        _ => return Followed::No,
    }
    Followed::Yes
}

fn follow_elements(until: u64, effect: &Effect<'_>, steps: &mut EffectWriter) -> Followed {
    let element = match *effect {
        Effect::HashSet { field, .. }
        | Effect::HashUpdate { field, .. }
        | Effect::HashRemove { field, emptied: false, .. } => field,
        Effect::SetAdd { member, .. } | Effect::SetRemove { member, emptied: false, .. } => member,
        Effect::ZSetAdd { member, .. } | Effect::ZSetRemove { member, emptied: false, .. } => member,
        Effect::ElementExpireAt { element, .. } => element,
        _ => return Followed::No,
    };
    if place(hash_bytes(element)) < until {
        steps.write(0, effect);
    }
    Followed::Yes
}

/// Of a value of which elements have expired and none will, one expired once: on that depends how it will be laid out.
fn note_former_deadlines(value: ValueRef<'_>, steps: &mut EffectWriter) {
    if !value.deadlines().is_some_and(Deadlines::is_empty) {
        return;
    }
    let mut digits = Digits::new();
    let first = match value {
        ValueRef::Hash(hash) => hash.iter().next().map(|(field, _)| field),
        ValueRef::Set(set) => set.iter().next(),
        _ => None,
    };
    if let Some(first) = first {
        let element = first.as_bytes(&mut digits);
        for at_ms in [NEVER - 1, NEVER] {
            steps.write(0, &Effect::ElementExpireAt { key: NAMELESS, element, at_ms });
        }
    }
}
