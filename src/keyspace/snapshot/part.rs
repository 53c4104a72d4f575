//! Copies one large value in parts, over several slices, while the value goes on changing.
//!
//! The reader of the stream builds the value outside its keyspace ([`Effect::Part`]), and puts it in place when it is
//! complete ([`Effect::Complete`]). At any point, the part built so far holds what lies behind a cursor in the current
//! value. So the meaning of each effect for the part is known. It depends on the type:
//!
//! | Type | The part | Not followed |
//! |---|---|---|
//! | string | all of its length, with the bytes up to an offset correct | |
//! | hash, set | the elements whose hashes come before a place, as with keys | another layout |
//! | sorted set | as for sets | another layout; the removal of a large share by ranks |
//! | list | a number of elements from the front, as whole nodes; see [`list`](super::list) | |
//! | stream | entries up to an ID, then groups, then requests; see [`stream`](super::stream) | |
//! | lock, gate, stock | the grants with the lowest tokens; then of a stock's memories the first names | |
//!
//! A stock's memories are copied last, in their order, and new memories are added at the end of that order. So effects
//! on them need not be followed: the copy meets the names. The stock's amounts are written when everything is copied.
//!
//! The copy of the value starts over after an effect that is not followed, and when the key is gone. An effect that
//! replaces the whole value contains the new value, and goes into the stream.

use super::list::ListPart;
use super::slice::{Budget, Followed};
use super::stream::StreamPart;
use crate::base::hasher::hash_bytes;
use crate::base::split_table::{PLACE_END, place};
use crate::keyspace::any_value::ValueRef;
use crate::keyspace::effect::{Cause, Effect, EffectWriter};
use crate::keyspace::entry::Entry;
use crate::keyspace::limits::SNAPSHOT_PIECE_BYTES;
use crate::keyspace::verb::{grant_set, stock_note, stock_set};
use crate::keyspace::{DbIndex, Keyspace, NAMELESS, NEVER};
use crate::value::Layout;
use crate::value::deadlines::Deadlines;
use crate::value::grants::Grants;
use crate::value::stock::Memory;
use crate::value::string::{Digits, StringRef};

/// A value that has been copied in part. See the module header.
pub(super) struct UnderWay {
    pub(super) db: DbIndex,
    pub(super) key: Box<[u8]>,
    /// When it expires, Unix ms.
    at_ms: i64,
    part: Part,
    /// Effects not written yet.
    steps: EffectWriter,
    /// The layout of the part while it grows.
    layout: Layout,
    /// Whether nothing has been written yet.
    is_fresh: bool,
}

/// The copied part of a value.
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

    /// The key, if it still exists.
    pub(super) fn entry<'a>(&self, ks: &'a Keyspace) -> Option<Entry<'a>> {
        let database = ks.db(self.db);
        database.find(&self.key).and_then(|slot| database.get(slot))
    }

    /// Continues the copy. Returns whether the whole value is copied.
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
                // Written when the value is complete.
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

    /// Writes the collected effects.
    pub(super) fn flush(&mut self, out: &mut EffectWriter) {
        if !self.steps.is_empty() {
            let steps = std::mem::take(&mut self.steps).into_bytes();
            out.write(0, &Effect::Part { fresh: self.is_fresh, layout: self.layout, steps: &steps });
            self.is_fresh = false;
        }
    }

    /// Whether this is the value of that key.
    pub(super) fn is(&self, db: DbIndex, key: &[u8]) -> bool {
        self.db == db && *self.key == *key
    }

    /// Whether the copy of the key's value can continue where the part ends.
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

    /// Puts the value in place after everything has been copied.
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

    /// Writes an effect that replaces the whole value.
    pub(super) fn replace(self, effect: &Effect<'_>, out: &mut EffectWriter) {
        let (db, at_ms) = (self.db, self.at_ms);
        self.abandon(out);
        // The reader may lack the key, so the deadline to be kept is written explicitly.
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

    /// Tells the reader to forget the part.
    pub(super) fn abandon(self, out: &mut EffectWriter) {
        if !self.is_fresh {
            out.write(0, &Effect::Part { fresh: true, layout: Layout::Compact, steps: b"" });
        }
    }
}

/// The copied part of a string.
struct TextPart {
    /// The part is as long as the string,
    len: usize,
    /// and this many bytes from the start are those of the string.
    done: usize,
}

impl TextPart {
    fn begin(string: StringRef<'_>, steps: &mut EffectWriter) -> TextPart {
        let len = string.len();
        // So that the part need not grow.
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
            // The layout is written when the value is complete.
            Effect::Relayout { .. } => {}
            _ => return Followed::No,
        }
        Followed::Yes
    }
}

/// Copies the elements of a table from a place on. Returns the place reached.
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

/// Copies grants from a token on. Returns whether all are copied.
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

/// Copies a stock's memories from these numbers on. Returns whether all are copied.
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

/// Writes that an element once expired if deadlines have been used but none remains. The layout depends on that.
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
