//! All durable data as one stream of effects, made in slices between units: the keys, which [`Snapshot`] copies; the
//! scripts and libraries, which are kept apart from the keys; and first of all, [whose the data is](Handover).
//!
//! Scripts and libraries are copied by the same rule as keys: in one walk in a fixed order, here by name. Of changes
//! that units make during the walk, only those to names already passed are added. So libraries never collide when the
//! stream is applied: at any point it holds a subset of the libraries that existed at that point.

use super::handover::Handover;
use crate::keyspace::Keyspace;
use crate::keyspace::effect::{Effect, EffectReader, EffectWriter};
use crate::keyspace::limits::SNAPSHOT_KEY_WORK_BYTES;
use crate::keyspace::snapshot::Snapshot;
use crate::programs::scripts::Scripts;
use crate::script::Sha1Hex;
use crate::script::library::parse_header;
use crate::script::store::{ScriptOrigin, parse_sha1, sha1_hex};

/// A copy of keys, scripts and libraries in progress.
pub struct SnapshotStream {
    keys: Snapshot,
    programs: ProgramsCopied,
    /// Whose the data is, until that is written. By default it is the writer's own.
    whose: Option<Handover>,
}

impl SnapshotStream {
    /// Begins a copy. From now on every unit must be recorded in full and [followed](Self::follow).
    pub fn begin(ks: &Keyspace) -> SnapshotStream {
        SnapshotStream::of(Snapshot::begin(ks))
    }

    /// As [`begin`](Self::begin), with a copy of the keys that has already begun.
    pub fn of(keys: Snapshot) -> SnapshotStream {
        SnapshotStream { keys, programs: ProgramsCopied::Scripts { next: [0; 40] }, whose: None }
    }

    /// Makes the stream say whose the data is.
    pub(crate) fn of_whom(self, whose: &Handover) -> SnapshotStream {
        SnapshotStream { whose: Some(whose.clone()), ..self }
    }

    /// Copies the next slice, between two units: appends the effects of one or more whole units to `out`, until they
    /// hold about `bytes` bytes or took as long to make. Returns whether everything is copied; if so, the stream is
    /// complete as of now.
    pub fn copy_slice(&mut self, ks: &Keyspace, scripts: &Scripts, bytes: usize, out: &mut EffectWriter) -> bool {
        if let Some(whose) = self.whose.take() {
            whose.write(out);
        }
        if !self.programs.copy_slice(scripts, bytes, out) {
            return false;
        }
        self.keys.copy_slice(ks, bytes, out)
    }

    /// Passes on changes of the unit just committed to data already copied.
    pub fn follow(&mut self, ks: &Keyspace, out: &mut EffectWriter) {
        self.follow_unit(ks.effects().as_bytes(), out);
    }

    /// As [`follow`](Self::follow), with the encoded effects of the unit.
    pub fn follow_unit(&mut self, effects: &[u8], out: &mut EffectWriter) {
        self.keys.follow_unit(EffectReader::new(effects), out);
        for (db, effect) in EffectReader::new(effects) {
            let is_of_whose = Handover::gives(&effect).is_some();
            if is_of_whose {
                self.whose = None;
            }
            if is_of_whose || self.programs.concerns(&effect) {
                out.write(db, &effect);
            }
        }
    }

    /// Whether a large value has been copied only in part.
    #[cfg(test)]
    pub fn is_inside_value(&self) -> bool {
        self.keys.is_inside_value()
    }

    /// Returns the keys copied and the keys in all. Not exact: keys come and go.
    pub fn progress(&self, ks: &Keyspace) -> (usize, usize) {
        self.keys.progress(ks)
    }
}

/// How far scripts and libraries have been copied.
enum ProgramsCopied {
    /// The scripts before this name.
    Scripts { next: Sha1Hex },
    /// All scripts, and the libraries up to and including this name.
    Libraries { last: Box<str> },
    /// All scripts and libraries.
    All,
}

impl ProgramsCopied {
    /// Copies the next slice; returns whether everything is copied.
    fn copy_slice(&mut self, scripts: &Scripts, bytes: usize, out: &mut EffectWriter) -> bool {
        let mut left = bytes;
        let mut pay = |effect: &Effect<'_>, out: &mut EffectWriter| {
            let before = out.len();
            out.write(0, effect);
            left = left.saturating_sub(out.len() - before + SNAPSHOT_KEY_WORK_BYTES);
            left > 0
        };
        if let ProgramsCopied::Scripts { next } = self {
            for (sha, script) in scripts.store().brought_from(&next.clone()) {
                let effect = Effect::ScriptPut { body: &script.body, loaded: script.origin == ScriptOrigin::Loaded };
                *next = following(*sha);
                if !pay(&effect, out) {
                    return false;
                }
            }
            // No library has an empty name.
            *self = ProgramsCopied::Libraries { last: "".into() };
        }
        if let ProgramsCopied::Libraries { last } = self {
            for library in scripts.libraries().after(&last.clone()) {
                *last = library.name.clone();
                if !pay(&Effect::LibraryPut { code: &library.code }, out) {
                    return false;
                }
            }
            *self = ProgramsCopied::All;
        }
        true
    }

    /// Whether an effect concerns scripts or libraries already copied.
    fn concerns(&self, effect: &Effect<'_>) -> bool {
        match *effect {
            Effect::ScriptPut { body, .. } => self.has_script(|| Some(sha1_hex(body))),
            Effect::ScriptDrop { sha1 } => self.has_script(|| parse_sha1(sha1)),
            Effect::LibraryPut { code } => self.has_library(|| parse_header(code).ok().map(|(name, _)| name)),
            Effect::LibraryDelete { name } => {
                self.has_library(|| Some(String::from_utf8_lossy(name).into_owned().into()))
            }
            Effect::ScriptFlush {} | Effect::LibraryFlush {} => true,
            _ => false,
        }
    }

    fn has_script(&self, sha: impl FnOnce() -> Option<Sha1Hex>) -> bool {
        match self {
            ProgramsCopied::Scripts { next } => sha().is_some_and(|sha| sha < *next),
            _ => true,
        }
    }

    fn has_library(&self, name: impl FnOnce() -> Option<Box<str>>) -> bool {
        match self {
            ProgramsCopied::Scripts { .. } => false,
            ProgramsCopied::Libraries { last } => name().is_some_and(|name| name <= *last),
            ProgramsCopied::All => true,
        }
    }
}

/// Returns the smallest name greater than `sha`: names are text, whose last byte can be raised.
fn following(mut sha: Sha1Hex) -> Sha1Hex {
    sha[39] += 1;
    sha
}
