//! Records the effects of a unit, and reads them again.

use std::collections::{BTreeSet, HashSet};
use std::ops::Range;

use super::declared::{Effect, Role, Target};
use super::family::Family;
use super::field::Field;
use super::grant_turns::{GrantTurn, GrantTurns, Turn};
use super::notes::{Note, Notes, What};
use super::tallies::{Tallies, Tally};
use super::touch::Touch;
use crate::base::hasher::hash_bytes;
use crate::base::key_prefixes::KeyPrefixes;
use crate::base::limits::SCRATCH_KEEP_BYTES;
use crate::keyspace::changed::{self, Changed, More, hash_in_database};
use crate::keyspace::limits::{HISTORY_KEY_MAX_BYTES, HISTORY_PLACES, TOUCHES_MAX_BYTES};

/// Set in the first byte of an effect whose database and key are those of the previous effect with a key.
const SAME_KEY: u8 = 0x80;

/// How much of its effects a unit records. This depends on the readers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Recording {
    /// Changes are only counted.
    #[default]
    Nothing,
    /// Touched keys and databases ([`Touch`]), without values, for watchers and waiters.
    Keys,
    /// Whole effects, from which the change can be replayed.
    Full,
}

/// A position in the record of a unit.
#[derive(Clone, Copy, Debug, Default)]
struct Mark {
    bytes: usize,
    count: u64,
    grant_turns: usize,
    tallies: usize,
}

/// The part of the record that [stays](Effects::keep), set aside while a nested undo is on.
#[derive(Debug)]
pub(in crate::keyspace) struct Kept {
    kept: Mark,
    changed: changed::Position,
    notes: (usize, usize),
    condensed_to: usize,
}

/// A position in the record of the current unit, from which reading can start. The default is the beginning.
#[derive(Clone, Debug, Default)]
pub struct Place {
    at: usize,
    last_key: LastKey,
    /// The number of rewrites at that time.
    rewrites: u64,
}

/// The effects of the current unit.
#[derive(Default)]
pub struct Effects {
    /// Encoded touches or effects, depending on `recording`.
    buf: Vec<u8>,
    recording: Recording,
    count: u64,
    /// The start of the script that may be rolled back.
    kept: Mark,
    /// The record of touches is condensed once it exceeds this position by [`TOUCHES_MAX_BYTES`].
    condensed_to: usize,
    /// The key of the last effect in `buf`.
    last_key: LastKey,
    /// The changes made by the whole effects in `buf`.
    changed: Changed,
    /// How often recorded effects have been replaced by others.
    rewrites: u64,
    /// Notes beside the whole effects, if they are made.
    notes: Notes,
    is_annotated: bool,
    /// The fates of grants.
    grant_turns: GrantTurns,
    /// Counts of grants, including those left out of `grant_turns`.
    tallies: Tallies,
    /// Whether there is anything for observers to see.
    has_record: bool,
}

impl Effects {
    /// Begins a unit.
    #[inline]
    pub(in crate::keyspace) fn begin(&mut self, recording: Recording) {
        self.buf.clear();
        self.last_key = LastKey::default();
        self.recording = recording;
        self.changed.clear();
        if self.has_record | self.is_annotated {
            self.has_record = false;
            self.notes.clear();
            self.grant_turns.truncate(0);
            self.tallies.truncate(0);
        }
    }

    /// Turns notes beside the effects on or off.
    pub(in crate::keyspace) fn annotate(&mut self, is_on: bool) {
        self.is_annotated = is_on;
        self.notes = Notes::default();
    }

    /// Whether notes are made beside the effects.
    #[inline]
    pub fn are_annotated(&self) -> bool {
        self.is_annotated
    }

    /// Adds a note beside the effects, about a key, or about none if the name is empty.
    #[cold]
    pub(in crate::keyspace) fn note(&mut self, what: What, db: u16, key: &[u8]) {
        if self.is_annotated {
            self.notes.add(self.buf.len(), what, db, key);
            self.has_record |= matches!(what, What::Reported(..));
        }
    }

    /// The notes beside the effects of the unit.
    pub fn notes(&self) -> impl Iterator<Item = Note<'_>> {
        self.notes.iter()
    }

    /// Notes the fate of a grant. Without observers of events, no more turns are kept than can be remembered.
    pub(in crate::keyspace) fn add_grant_turn(&mut self, turn: GrantTurn<'_>) {
        self.tally(turn.turn, turn.family, turn.key, 1);
        let is_too_much = turn.key.len() > HISTORY_KEY_MAX_BYTES || self.grant_turns.len() >= HISTORY_PLACES;
        if is_too_much && !self.is_annotated {
            return;
        }
        self.grant_turns.add(self.buf.len(), turn);
    }

    /// Counts grants of a key that met one fate, without noting each of them.
    pub(in crate::keyspace) fn tally(&mut self, turn: Turn, family: Family, key: &[u8], count: u64) {
        self.tallies.add(turn, family, key, count, self.kept.tallies);
        self.has_record = true;
    }

    /// The key prefixes by which grants are counted.
    pub fn counted_prefixes(&self) -> &KeyPrefixes {
        self.tallies.prefixes()
    }

    /// Counts grants by these prefixes from here on.
    pub(in crate::keyspace) fn count_by(&mut self, prefixes: KeyPrefixes) {
        self.tallies.count_by(prefixes);
    }

    /// The numbers of grants given and ended in the unit.
    pub fn tallies(&self) -> impl Iterator<Item = Tally> {
        self.tallies.iter()
    }

    /// Whether any grants were counted.
    #[inline]
    pub fn has_tallies(&self) -> bool {
        self.tallies.len() > 0
    }

    /// The fates of grants in the unit, each with the number of bytes of effects recorded before it.
    pub fn grant_turns(&self) -> impl Iterator<Item = (usize, GrantTurn<'_>)> {
        self.grant_turns.iter()
    }

    /// Gives back the memory kept for the next unit, and forgets what the last unit recorded. Call only between units.
    pub(in crate::keyspace) fn give_back(&mut self) {
        self.buf = Vec::new();
        self.changed = Changed::default();
        self.notes = Notes::default();
        self.grant_turns = GrantTurns::default();
        self.tallies.give_back();
        self.has_record = false;
    }

    /// Starts recording here, if the unit began without recording.
    pub(in crate::keyspace) fn record_from_now(&mut self, recording: Recording) {
        if self.recording == Recording::Nothing {
            self.recording = recording;
        }
    }

    /// Records whole effects from here on, if nothing has been recorded in another form yet.
    pub(in crate::keyspace) fn record_in_full(&mut self) {
        if self.buf.is_empty() {
            self.recording = Recording::Full;
        }
    }

    /// Makes effects recorded from here on readable separately from earlier ones.
    pub(in crate::keyspace) fn record_apart(&mut self) {
        self.last_key = LastKey::default();
    }

    /// Records one change.
    #[inline]
    pub(in crate::keyspace) fn record(&mut self, db: u16, effect: Effect<'_>) {
        self.record_with(db, || effect);
    }

    /// As [`record`](Self::record), but builds the effect only if a reader needs it. For effects that are costly to
    /// build, and for frequent ones: inlining compiles specialised code that need not look at the effect's variant.
    #[inline]
    pub(in crate::keyspace) fn record_with<'a>(&mut self, db: u16, effect: impl FnOnce() -> Effect<'a>) {
        self.count += 1;
        if self.recording != Recording::Nothing {
            self.write(db, hash_bytes, effect);
        }
    }

    /// As [`record_with`](Self::record_with), for an effect on one key whose [hash](hash_bytes) is known.
    #[inline]
    pub(in crate::keyspace) fn record_hashed<'a>(
        &mut self,
        db: u16,
        hash: impl FnOnce() -> u64,
        effect: impl FnOnce() -> Effect<'a>,
    ) {
        self.count += 1;
        if self.recording != Recording::Nothing {
            self.write(db, |_| hash(), effect);
        }
    }

    /// As [`record`](Self::record), for an effect that must be replayed but does not count as a change.
    #[inline]
    pub(in crate::keyspace) fn record_uncounted(&mut self, db: u16, effect: Effect<'_>) {
        if self.recording != Recording::Nothing {
            self.write(db, hash_bytes, || effect);
        }
    }

    /// Records `count` changes whose effects were encoded elsewhere. None of them is an expiry.
    pub(in crate::keyspace) fn record_encoded(&mut self, encoded: &[u8], count: u64) {
        self.count += count;
        match self.recording {
            Recording::Nothing => return,
            Recording::Keys => {
                EffectReader::new(encoded).for_each(|(db, effect)| self.write_touches(db, &effect));
            }
            Recording::Full => {
                self.buf.extend_from_slice(encoded);
                EffectReader::new(encoded).for_each(|(db, effect)| self.note_changes(db, hash_bytes, &effect));
                self.record_apart();
            }
        }
        self.has_record |= !encoded.is_empty();
    }

    /// Not inlined: usually nobody reads the effects, and a change should then cost only the test.
    #[inline(never)]
    fn write<'a>(&mut self, db: u16, hash: impl FnOnce(&[u8]) -> u64, effect: impl FnOnce() -> Effect<'a>) {
        self.has_record = true;
        if self.recording == Recording::Keys {
            return self.write_touches(db, &effect());
        }
        let effect = effect();
        effect.encode(db, &mut self.last_key, &mut self.buf);
        self.note_changes(db, hash, &effect);
    }

    /// Notes what an effect changes; `hash` returns the hash of its key.
    #[inline(always)]
    fn note_changes(&mut self, db: u16, hash: impl FnOnce(&[u8]) -> u64, effect: &Effect<'_>) {
        if effect.is_expiry() {
            return;
        }
        match effect.key() {
            Some(key) if effect.changes_own_key_only() => self.changed.add_key(hash_in_database(db, hash(key))),
            _ => self.note_targets(db, effect),
        }
    }

    #[inline(never)]
    fn note_targets(&mut self, db: u16, effect: &Effect<'_>) {
        let targets = effect.targets(db);
        if targets == [None, None] {
            self.changed.add_more(More::Beside);
        }
        for (_, target) in targets.into_iter().flatten().filter(|(role, _)| *role != Role::Reads) {
            match target {
                Target::Key(db, key) => self.changed.add_key(hash_in_database(db, hash_bytes(key))),
                Target::Database(db) => self.changed.add_more(More::Database(db)),
            }
        }
    }

    #[inline(never)]
    fn write_touches(&mut self, db: u16, effect: &Effect<'_>) {
        effect.touches(db).for_each(|touch| touch.encode(&mut self.buf));
        if self.buf.len() > self.condensed_to + TOUCHES_MAX_BYTES {
            self.condense();
        }
    }

    /// Everything recorded from here on can be [cut](Self::cut) off.
    #[inline]
    pub(in crate::keyspace) fn keep(&mut self) {
        let (bytes, grant_turns) = (self.buf.len(), self.grant_turns.len());
        self.kept = Mark { bytes, count: self.count, grant_turns, tallies: self.tallies.len() };
        self.changed.keep();
        self.notes.keep();
        self.condensed_to = self.kept.bytes;
    }

    /// As [`keep`](Self::keep). The result is the previous mark; [`keep_only`](Self::keep_only) restores it.
    pub(in crate::keyspace) fn keep_more(&mut self) -> Kept {
        let kept = Kept {
            kept: self.kept,
            changed: self.changed.kept(),
            notes: self.notes.kept(),
            condensed_to: self.condensed_to,
        };
        self.keep();
        kept
    }

    /// Ends the effect of [`keep_more`](Self::keep_more): everything recorded since the previous mark can be cut off
    /// again.
    pub(in crate::keyspace) fn keep_only(&mut self, Kept { kept, changed, notes, condensed_to }: Kept) {
        self.kept = kept;
        self.changed.keep_only(changed);
        self.notes.keep_only(notes);
        self.condensed_to = condensed_to;
    }

    /// Forgets everything recorded since [`keep`](Self::keep).
    pub(in crate::keyspace) fn cut(&mut self) {
        self.rewrites += 1;
        self.buf.truncate(self.kept.bytes);
        self.last_key = LastKey::default();
        self.count = self.kept.count;
        self.changed.cut();
        self.notes.cut();
        self.grant_turns.truncate(self.kept.grant_turns);
        self.tallies.truncate(self.kept.tallies);
        self.has_record = !self.buf.is_empty() || self.notes.has_reported() || self.has_tallies();
    }

    /// Nothing will be cut off any more.
    #[inline]
    pub(in crate::keyspace) fn release(&mut self) {
        self.kept = Mark::default();
        self.changed.release();
        self.condensed_to = 0;
        if self.recording == Recording::Keys && self.buf.len() > TOUCHES_MAX_BYTES {
            // Several scripts of one unit may together have touched more, although each touched less.
            self.condense();
        }
    }

    /// Replaces whole effects by touches, because nobody reads whole effects any more.
    pub(in crate::keyspace) fn record_keys_only(&mut self) {
        if self.recording != Recording::Full {
            return;
        }
        self.rewrites += 1;
        let touches = |rest: &[u8]| {
            let mut buf = Vec::new();
            Touches::new(rest, Recording::Full).for_each(|touch| touch.encode(&mut buf));
            buf
        };
        let (before, after) = self.buf.split_at(self.kept.bytes);
        let (before, after) = (touches(before), touches(after));
        self.kept.bytes = before.len();
        self.buf = [before, after].concat();
        self.recording = Recording::Keys;
        self.changed = Changed::default();
        self.condense();
    }

    /// Condenses the record of touches since the script began.
    #[cold]
    fn condense(&mut self) {
        self.rewrites += 1;
        let fresh = self.buf.split_off(self.kept.bytes);
        let (mut seen, mut databases) = (HashSet::new(), BTreeSet::new());
        let (mut rest, mut after) = (&fresh[..], &fresh[..]);
        while let Some(touch) = Touch::decode(&mut after) {
            let encoded = &rest[..rest.len() - after.len()];
            if seen.insert(encoded) {
                self.buf.extend_from_slice(encoded);
            }
            databases.insert(touch.db());
            rest = after;
        }
        if self.buf.len() - self.kept.bytes > TOUCHES_MAX_BYTES / 2 {
            self.buf.truncate(self.kept.bytes);
            databases.into_iter().for_each(|db| Touch::Database(db).encode(&mut self.buf));
            self.buf.shrink_to(self.kept.bytes + SCRATCH_KEEP_BYTES);
        }
        // At least half as many bytes must be recorded before the next condensing.
        self.condensed_to = self.buf.len().saturating_sub(TOUCHES_MAX_BYTES / 2);
    }

    /// Whether the unit has recorded nothing for observers so far.
    #[inline]
    pub fn is_empty(&self) -> bool {
        !self.has_record
    }

    /// Whether the unit has recorded changes so far, rather than only notes.
    #[inline]
    pub fn has_changes(&self) -> bool {
        !self.buf.is_empty()
    }

    /// Everything the unit has touched so far, as far as it was recorded.
    pub fn touches(&self) -> Touches<'_> {
        Touches::new(&self.buf, self.recording)
    }

    /// The current end of the record.
    pub fn place(&self) -> Place {
        Place { at: self.buf.len(), last_key: self.last_key.clone(), rewrites: self.rewrites }
    }

    /// Returns the touches since `place`, or all of them if the record has been rewritten since.
    pub fn touches_from(&self, place: &Place) -> Touches<'_> {
        match self.buf.get(place.at..) {
            Some(rest) if place.rewrites == self.rewrites => {
                let last_key = place.last_key.0.as_ref().map(|(db, at)| (*db, &self.buf[at.clone()]));
                let effects = EffectReader::resume(last_key, rest);
                Touches { effects, second: None, recording: self.recording }
            }
            _ => self.touches(),
        }
    }

    /// Whether whole effects are recorded.
    #[inline]
    pub fn are_whole(&self) -> bool {
        self.recording == Recording::Full
    }

    /// The changes of the unit so far other than by expiry. Whole effects must be recorded.
    #[inline]
    pub(in crate::keyspace) fn changed(&self) -> &Changed {
        &self.changed
    }

    /// The encoded changes of the unit so far. Empty unless they are recorded in full.
    #[inline]
    pub fn as_bytes(&self) -> &[u8] {
        if self.recording == Recording::Full { &self.buf } else { &[] }
    }

    /// Adjusts the count of changes by `by`, relative to the number of recorded effects.
    #[inline]
    pub(in crate::keyspace) fn recount(&mut self, by: i64) {
        self.count = self.count.wrapping_add_signed(by);
    }

    /// Changes since the server started, counted as in Redis: usually one for each effect.
    #[inline]
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The changes of the unit so far, decoded. Empty unless they are recorded in full.
    pub fn iter(&self) -> EffectReader<'_> {
        EffectReader::new(self.as_bytes())
    }
}

/// Reads what a unit has touched.
pub struct Touches<'a> {
    effects: EffectReader<'a>,
    /// The second touch of an effect on two keys, not yet returned.
    second: Option<Touch<'a>>,
    recording: Recording,
}

impl<'a> Touches<'a> {
    fn new(rest: &'a [u8], recording: Recording) -> Touches<'a> {
        Touches { effects: EffectReader::new(rest), second: None, recording }
    }
}

impl<'a> Iterator for Touches<'a> {
    type Item = Touch<'a>;

    fn next(&mut self) -> Option<Touch<'a>> {
        if self.recording == Recording::Keys {
            return Touch::decode(&mut self.effects.rest);
        }
        if let Some(second) = self.second.take() {
            return Some(second);
        }
        loop {
            let (db, effect) = self.effects.next()?;
            let mut touches = effect.touches(db);
            if let Some(first) = touches.next() {
                self.second = touches.next();
                return Some(first);
            }
        }
    }
}

/// Database and key of the last written effect that has a key, and the key's position in the buffer. `None` if there is
/// no such effect yet.
#[derive(Clone, Debug, Default)]
struct LastKey(Option<(u16, Range<usize>)>);

impl Effect<'_> {
    /// Appends the encoded effect on database `db`.
    #[inline(always)]
    fn encode(&self, db: u16, last: &mut LastKey, out: &mut Vec<u8>) {
        let (code, key) = self.code_and_key();
        let repeats_key =
            matches!((key, &last.0), (Some(key), Some((last_db, at))) if *last_db == db && *key == out[at.clone()]);
        match key {
            _ if repeats_key => out.push(code | SAME_KEY),
            Some(key) => {
                match (db, key.len()) {
                    // The usual case: numbers below 128 take one byte, and three bytes at once cost less than one by
                    // one.
                    (..0x80, ..0x80) => out.extend_from_slice(&[code, db as u8, key.len() as u8]),
                    _ => {
                        out.push(code);
                        db.put(out);
                        (key.len() as u64).put(out);
                    }
                }
                out.extend_from_slice(key);
                last.0 = Some((db, out.len() - key.len()..out.len()));
            }
            None => {
                out.push(code);
                db.put(out);
            }
        }
        self.put_fields(out);
    }
}

/// Writes a stream of effects.
#[derive(Debug, Default)]
pub struct EffectWriter {
    bytes: Vec<u8>,
    last_key: LastKey,
}

impl EffectWriter {
    /// Appends an effect on database `db`.
    pub fn write(&mut self, db: u16, effect: &Effect<'_>) {
        effect.encode(db, &mut self.last_key, &mut self.bytes);
    }

    /// Begins another stream behind the one written so far.
    pub fn begin_anew(&mut self) {
        self.last_key = LastKey::default();
    }

    /// Forgets everything written, and keeps at most `keep_bytes` of the memory.
    pub fn clear(&mut self, keep_bytes: usize) {
        self.bytes.clear();
        self.bytes.shrink_to(keep_bytes);
        self.begin_anew();
    }

    /// The number of bytes written.
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Whether nothing was written.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// The bytes written so far.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Returns the bytes written.
    pub fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }
}

/// Reads a stream of effects. Ends at the end of the bytes, or where they cannot be decoded.
pub struct EffectReader<'a> {
    rest: &'a [u8],
    last_key: Option<(u16, &'a [u8])>,
}

impl<'a> EffectReader<'a> {
    /// Reads `stream` from its start.
    pub fn new(stream: &'a [u8]) -> EffectReader<'a> {
        EffectReader { rest: stream, last_key: None }
    }

    /// Whether no bytes remain. Bytes that remain after the reader has ended cannot be decoded.
    pub fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// Continues with `rest` where another reader stopped, given its [last key](Self::last_key).
    pub fn resume(last_key: Option<(u16, &'a [u8])>, rest: &'a [u8]) -> EffectReader<'a> {
        EffectReader { rest, last_key }
    }

    /// The number of bytes left.
    pub fn bytes_left(&self) -> usize {
        self.rest.len()
    }

    /// Database and key of the last effect that has a key. Effects that follow need not repeat them.
    pub fn last_key(&self) -> Option<(u16, &'a [u8])> {
        self.last_key
    }

    fn decode(&mut self) -> Option<(u16, Effect<'a>)> {
        let mut rest = self.rest;
        let code = u8::take(&mut rest)?;
        let is_same_key = code & SAME_KEY != 0;
        let (db, known_key) = match self.last_key {
            Some((db, key)) if is_same_key => (db, Some(key)),
            None if is_same_key => return None,
            _ => (u16::take(&mut rest)?, None),
        };
        let effect = Effect::take(code & !SAME_KEY, known_key, &mut rest)?;
        match effect.key() {
            Some(key) => self.last_key = Some((db, key)),
            None if is_same_key => return None,
            None => {}
        }
        self.rest = rest;
        Some((db, effect))
    }
}

impl<'a> Iterator for EffectReader<'a> {
    type Item = (u16, Effect<'a>);

    fn next(&mut self) -> Option<(u16, Effect<'a>)> {
        self.decode()
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Cause, Shown};
    use super::*;
    use crate::config::EventClasses;
    use crate::value::stream::StreamId;

    #[test]
    fn effects_read_back_and_cut_ones_do_not() {
        let long = vec![7u8; 70_000];
        let effects = [
            (0, Effect::Put { key: b"k", value: &long }),
            (15, Effect::ExpireAt { key: b"", at_ms: i64::MAX }),
            (1, Effect::Copy { key: b"a", to_db: 3, to: b"b" }),
            (2, Effect::Flush {}),
        ];
        let mut writer = EffectWriter::default();
        effects.iter().for_each(|(db, effect)| writer.write(*db, effect));
        let stream = writer.into_bytes();
        assert_eq!(EffectReader::new(&stream).collect::<Vec<_>>(), effects);
        for cut in 0..40.min(stream.len()) {
            assert!(EffectReader::new(&stream[..cut]).next().is_none());
        }
    }

    #[test]
    fn the_record_of_touched_keys_is_bounded() {
        let name = |i: usize| format!("{i:01000}").into_bytes();
        let turns = 3 * TOUCHES_MAX_BYTES / 1_000;
        let mut effects = Effects::default();
        effects.begin(Recording::Keys);
        effects.record(3, Effect::Put { key: b"before", value: b"" });
        effects.keep();
        // A few keys that come again and again are noted once.
        for i in 0..turns {
            effects.record(0, Effect::Put { key: &name(i % 10), value: b"" });
            assert!(effects.buf.len() <= TOUCHES_MAX_BYTES + 2_000);
        }
        effects.condense();
        let key = |db, key| Touch::Key { db, key, is_deletion: false, wakes: true };
        let names: Vec<Vec<u8>> = (0..10).map(name).collect();
        let expected: Vec<Touch<'_>> =
            [key(3, b"before")].into_iter().chain(names.iter().map(|name| key(0, name))).collect();
        assert_eq!(effects.touches().collect::<Vec<_>>(), expected);
        // Of very many keys, only the database is noted.
        for i in 0..turns {
            effects.record(0, Effect::Del { key: &name(i), cause: Cause::Command });
            assert!(effects.buf.len() <= TOUCHES_MAX_BYTES + 2_000);
        }
        effects.condense();
        assert!(effects.touches().any(|touch| touch == Touch::Database(0)));
        effects.cut();
        assert_eq!(effects.touches().collect::<Vec<_>>(), [key(3, b"before")]);
    }

    #[test]
    fn changes_of_a_unit_are_listed_without_its_expiries() {
        let key = |db, key: &[u8]| hash_in_database(db, hash_bytes(key));
        let del = |cause| Effect::Del { key: b"a", cause };
        let mut effects = Effects::default();
        effects.begin(Recording::Full);
        effects.record(0, del(Cause::Expiry));
        assert!(effects.changed().is_empty() && !effects.is_empty());
        effects.record_hashed(0, || 7, || del(Cause::Command));
        effects.record_hashed(0, || 7, || Effect::Put { key: b"a", value: b"" });
        effects.record(1, del(Cause::Command));
        effects.record(9, Effect::Flush {});
        effects.keep();
        effects.record(0, Effect::Copy { key: b"a", to_db: 2, to: b"b" });
        effects.record(3, Effect::Move { key: b"a", to_db: 4 });
        effects.record(5, Effect::Swap { with_db: 6 });
        effects.record_uncounted(0, Effect::ScriptFlush {});
        let (before, database) = ([7, key(1, b"a")], More::Database(9));
        let after = [key(2, b"b"), key(3, b"a"), key(4, b"a")];
        assert_eq!(effects.changed().keys(), [&before[..], &after].concat());
        assert_eq!(effects.changed().more(), [database, More::Database(5), More::Database(6), More::Beside]);
        effects.cut();
        assert_eq!((effects.changed().keys(), effects.changed().more()), (&before[..], &[database][..]));
        let mut encoded = EffectWriter::default();
        encoded.write(8, &Effect::Put { key: b"c", value: b"" });
        effects.record_encoded(encoded.as_bytes(), 1);
        assert_eq!(effects.changed().keys(), [&before[..], &[key(8, b"c")]].concat());
        effects.begin(Recording::Full);
        assert!(effects.changed().is_empty());
    }

    #[test]
    fn touches_can_be_read_in_parts() {
        let key = |key| Touch::Key { db: 0, key, is_deletion: false, wakes: true };
        let put = |key| Effect::Put { key, value: b"" };
        for recording in [Recording::Keys, Recording::Full] {
            let mut effects = Effects::default();
            effects.begin(recording);
            let begin = Place::default();
            effects.record(0, put(b"a"));
            let first = effects.place();
            effects.record(0, put(b"a"));
            effects.keep();
            effects.record(0, put(b"b"));
            let second = effects.place();
            let from = |effects: &Effects, place| effects.touches_from(place).count();
            assert_eq!([from(&effects, &begin), from(&effects, &first), from(&effects, &second)], [3, 2, 0]);
            assert_eq!(effects.touches_from(&first).collect::<Vec<_>>(), [key(b"a"), key(b"b")]);
            effects.record(0, put(b"c"));
            assert_eq!(effects.touches_from(&second).collect::<Vec<_>>(), [key(b"c")]);
            // A reader reads rewritten effects again.
            effects.cut();
            effects.record(0, put(b"d"));
            assert_eq!([from(&effects, &begin), from(&effects, &first), from(&effects, &second)], [3, 3, 3]);
        }
    }

    #[test]
    fn notes_are_kept_and_cut_off_with_the_effects() {
        let key = b"k".as_slice();
        let reported = What::Reported(EventClasses::MISS, "keymiss");
        let mut effects = Effects::default();
        effects.begin(Recording::Full);
        effects.note(reported, 0, key);
        assert!(effects.is_empty() && effects.notes().next().is_none(), "no note is made without observers");
        effects.annotate(true);
        effects.note(What::Command(7), 0, b"");
        assert!(effects.is_empty());
        effects.record(0, Effect::Put { key, value: b"" });
        let at = effects.as_bytes().len();
        effects.keep();
        effects.note(reported, 3, b"other");
        effects.record(0, Effect::Del { key, cause: Cause::Command });
        let notes = [
            Note { at: 0, what: What::Command(7), db: 0, key: b"" },
            Note { at, what: reported, db: 3, key: b"other" },
        ];
        assert_eq!(effects.notes().collect::<Vec<_>>(), notes);
        effects.cut();
        effects.release();
        assert_eq!(effects.notes().collect::<Vec<_>>(), notes[..1]);
        effects.begin(Recording::Full);
        assert!(effects.notes().next().is_none());
        // A note alone is enough for observers to look, but is nothing to keep.
        effects.keep();
        effects.note(reported, 0, key);
        assert_eq!((effects.is_empty(), effects.has_changes()), (false, false));
        effects.cut();
        assert!(effects.is_empty());
    }

    #[test]
    fn the_record_of_several_scripts_is_bounded() {
        let mut effects = Effects::default();
        effects.begin(Recording::Keys);
        let key = vec![b'k'; TOUCHES_MAX_BYTES / 4];
        for _ in 0..20 {
            effects.keep();
            (0..3).for_each(|_| effects.record(0, Effect::Put { key: &key, value: b"" }));
            effects.release();
            assert!(effects.buf.len() <= 2 * TOUCHES_MAX_BYTES);
        }
    }

    #[test]
    fn a_record_in_full_can_go_on_with_keys_alone() {
        let mut effects = Effects::default();
        effects.begin(Recording::Full);
        effects.record(0, Effect::Put { key: b"a", value: b"long value" });
        effects.keep();
        effects.record(0, Effect::Rename { key: b"b", to: b"c" });
        effects.record_keys_only();
        effects.record(0, Effect::Del { key: b"d", cause: Cause::Command });
        let key = |key, is_deletion| Touch::Key { db: 0, key, is_deletion, wakes: true };
        let expected = [key(b"a", false), key(b"b", true), key(b"c", false), key(b"d", true)];
        assert_eq!((effects.touches().collect::<Vec<_>>(), effects.as_bytes()), (expected.to_vec(), &b""[..]));
        assert!(effects.changed().is_empty());
        effects.cut();
        assert_eq!(effects.touches().collect::<Vec<_>>(), expected[..1]);
    }

    #[test]
    fn effects_have_readable_descriptions() {
        let id = StreamId { ms: 1, seq: 2 };
        let effect = Effect::GroupSetId { key: b"s", group: b"g", last_delivered: id, entries_read: None };
        let fields = [
            ("key", Shown::Bytes(b"s")),
            ("group", Shown::Bytes(b"g")),
            ("last_delivered", Shown::Id(id)),
            ("entries_read", Shown::Nothing),
        ];
        assert_eq!(effect.describe(), ("GroupSetId", fields.to_vec()));
        let effect = Effect::ListPush { key: b"l", front: true, value: b"v" };
        assert_eq!(effect.describe().1[1], ("front", Shown::Integer(1)));
        let effect = Effect::ZSetAdd { key: b"z", member: b"m", score: 0.5 };
        assert_eq!(effect.describe().1[2], ("score", Shown::Double(0.5)));
    }

    #[test]
    fn watchers_see_equal_touches_in_both_recordings() {
        let long = vec![7u8; 70_000];
        let (mut keys, mut full) = (Effects::default(), Effects::default());
        keys.begin(Recording::Keys);
        full.begin(Recording::Full);
        for effects in [&mut keys, &mut full] {
            effects.record(0, Effect::Put { key: b"k", value: &long });
            effects.record(1, Effect::Del { key: b"gone", cause: Cause::Expiry });
            effects.record(2, Effect::PendingAck { key: b"s", group: b"g", id: StreamId { ms: 1, seq: 1 } });
            effects.record(3, Effect::Move { key: b"m", to_db: 4 });
            effects.record(5, Effect::Swap { with_db: 6 });
        }
        let key = |db, key, is_deletion| Touch::Key { db, key, is_deletion, wakes: true };
        let touched = [
            key(0, b"k", false),
            key(1, b"gone", true),
            key(3, b"m", true),
            key(4, b"m", false),
            Touch::Database(5),
            Touch::Database(6),
        ];
        assert_eq!(keys.touches().collect::<Vec<_>>(), touched);
        assert_eq!(full.touches().collect::<Vec<_>>(), touched);
        assert_eq!((keys.iter().count(), full.iter().count(), keys.as_bytes()), (0, 5, &b""[..]));
        assert!(keys.buf.len() < 100, "no value is copied for readers of keys");
        // An observer that begins in the middle of a unit sees what comes after.
        keys.begin(Recording::Nothing);
        keys.record(0, Effect::Del { key: b"before", cause: Cause::Expiry });
        keys.record_from_now(Recording::Keys);
        keys.record(0, Effect::Del { key: b"after", cause: Cause::Expiry });
        assert_eq!(keys.touches().collect::<Vec<_>>(), [key(0, b"after", true)]);
    }
}
