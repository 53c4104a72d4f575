//! Effects: every change of the keyspace as data.
//!
//! A verb applies one change and records it here, encoded from borrowed bytes into one buffer. Everything that follows
//! changes reads this stream: WATCH, waiting clients, and the components that store the data or copy it elsewhere.
//! Replaying the stream into an empty keyspace gives an equal keyspace, without commands, scripts, a clock or a
//! configuration.
//!
//! Scripts and libraries change in this stream as well; their owner (`programs::scripts`) records and replays those
//! changes. Such effects have no key, and their database number has no meaning.
//!
//! `declared.rs` is the only file that names the effects; all code that handles each of them is derived from it.
//! `docs/effects.md` describes the encoding, with an example of each effect.

mod declared;
mod family;
mod field;
mod grant_turns;
mod notes;
mod record;
mod tallies;
mod touch;

#[cfg(test)]
mod specification;

pub(in crate::keyspace) use declared::for_each_effect;
pub use declared::{Effect, Role, Target};
pub use family::Family;
pub use field::{Ascending, Cause, Field, Pairs, Shown, Strings};
pub use grant_turns::{GrantTurn, Turn};
pub use notes::{Note, What};
pub(in crate::keyspace) use record::Kept;
pub use record::{EffectReader, EffectWriter, Effects, Place, Recording};
pub use tallies::Tally;
pub use touch::Touch;
