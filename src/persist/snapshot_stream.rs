//! All that lasts as one stream of effects, made in slices between units: the keys, which [`Snapshot`] copies, and the
//! scripts and libraries, which are kept beside them.
//!
//! Scripts and libraries are copied by the same rule as keys: one walk in a fixed order, here that of their names, and
//! of what units do meanwhile only what concerns names that have been passed. So libraries never collide for whoever
//! applies the stream: at any point it has some of those that were there at that point.

use crate::base::limits::SNAPSHOT_KEY_WORK_BYTES;
use crate::keyspace::Keyspace;
use crate::keyspace::effect::{Effect, EffectReader, EffectWriter};
use crate::keyspace::snapshot::Snapshot;
use crate::programs::scripts::Scripts;
use crate::script::Sha1Hex;
use crate::script::library::parse_header;
use crate::script::store::{Origin, parse_sha1, sha1_hex};

/// A copy of keys, scripts and libraries that is under way.
pub struct SnapshotStream {
    keys: Snapshot,
    programs: ProgramsCopied,
}

impl SnapshotStream {
    /// Begins a copy. From now on every unit must be recorded in full and [followed](Self::follow).
    pub fn begin(ks: &Keyspace) -> SnapshotStream {
        SnapshotStream::of(Snapshot::begin(ks))
    }

    /// As [`begin`](Self::begin), with a copy of the keys that has begun.
    pub fn of(keys: Snapshot) -> SnapshotStream {
        SnapshotStream { keys, programs: ProgramsCopied::Scripts { next: [0; 40] } }
    }

    /// Copies on, between two units: appends effects to `out`, one or more whole units, until they have about so many
    /// bytes, or took as long to make. Answers whether all is copied; if so, the stream is complete as of now.
    pub fn copy_slice(&mut self, ks: &Keyspace, scripts: &Scripts, bytes: usize, out: &mut EffectWriter) -> bool {
        if !self.programs.copy_slice(scripts, bytes, out) {
            return false;
        }
        self.keys.copy_slice(ks, bytes, out)
    }

    /// Passes on what the unit that was just committed did to what has been copied.
    pub fn follow(&mut self, ks: &Keyspace, out: &mut EffectWriter) {
        self.follow_unit(ks.effects().as_bytes(), out);
    }

    /// As [`follow`](Self::follow), with the encoded effects of the unit.
    pub fn follow_unit(&mut self, effects: &[u8], out: &mut EffectWriter) {
        self.keys.follow_unit(EffectReader::new(effects), out);
        for (db, effect) in EffectReader::new(effects) {
            if self.programs.concerns(&effect) {
                out.write(db, &effect);
            }
        }
    }

    /// Whether only a part of a large value has been copied.
    #[cfg(test)]
    pub fn is_inside_value(&self) -> bool {
        self.keys.is_inside_value()
    }

    /// How many keys have been copied, of how many. Not exact: keys come and go.
    pub fn progress(&self, ks: &Keyspace) -> (usize, usize) {
        self.keys.progress(ks)
    }
}

/// How far scripts and libraries have been copied.
enum ProgramsCopied {
    /// The scripts before this name.
    Scripts { next: Sha1Hex },
    /// All scripts, and the libraries up to this name and with it.
    Libraries { last: Box<str> },
    /// All.
    All,
}

impl ProgramsCopied {
    /// Copies on; answers whether all is copied.
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
                let effect = Effect::ScriptPut { body: &script.body, loaded: script.origin == Origin::Loaded };
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

    /// Whether an effect is one on scripts or libraries that have been copied.
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

/// The least name behind this one: names are text, in which the last byte can be raised.
fn following(mut sha: Sha1Hex) -> Sha1Hex {
    sha[39] += 1;
    sha
}
