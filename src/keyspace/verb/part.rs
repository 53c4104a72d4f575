//! Builds a value from recorded effects outside the keys: at once, or in parts, as a snapshot copies a large value.

use super::check::ensure;
use crate::base::rng::Rng;
use crate::keyspace::any_value::{Value, ValueRef};
use crate::keyspace::effect::{Effect, EffectReader};
use crate::keyspace::{DbIndex, Keyspace, Misfit, NAMELESS, ValueLimits, Workshop};
use crate::value::Layout;
use crate::value::hash::HashLimits;
use crate::value::set::SetLimits;
use crate::value::zset::ZSetLimits;

impl Workshop {
    /// Creates a workshop without a value.
    pub(super) fn new() -> Workshop {
        let mut ks = Keyspace::new(1, Rng::seeded(0));
        ks.is_workshop = true;
        let _hold = ks.hold_expiry();
        Workshop { ks, _hold }
    }

    /// Applies encoded effects to the value. While it grows, the value has this layout and these limits.
    pub(super) fn apply(&mut self, limits: &ValueLimits, layout: Layout, steps: &[u8]) -> Result<(), Misfit> {
        self.ks.limits = limits_for(layout, limits);
        let mut steps = EffectReader::new(steps);
        for (db, step) in &mut steps {
            ensure(!step.builds(), Misfit::BadBytes)?;
            self.ks.apply(db, &step)?;
        }
        ensure(steps.is_empty(), Misfit::BadBytes)
    }

    /// Returns the value in this layout.
    pub(super) fn finish(mut self, layout: Layout) -> Result<Value, Misfit> {
        let mut value = self.take().ok_or(Misfit::NoKey)?;
        ensure(!is_hollow(value.as_ref()) && value.take_layout(layout), Misfit::BadBytes)?;
        Ok(value)
    }

    fn take(&mut self) -> Option<Value> {
        let slot = self.ks.dbs[0].find(NAMELESS)?;
        Some(self.ks.dbs[0].remove(slot)?.value)
    }
}

/// Returns limits that give values this layout from their first element on. Nodes of lists and streams end at their
/// usual sizes.
fn limits_for(layout: Layout, limits: &ValueLimits) -> ValueLimits {
    let many = if layout == Layout::Large { 0 } else { usize::MAX };
    ValueLimits {
        hash: HashLimits { max_listpack_entries: many, max_listpack_value: many },
        set: SetLimits {
            max_intset_entries: if layout == Layout::Integers { usize::MAX } else { 0 },
            max_listpack_entries: many,
            max_listpack_value: many,
        },
        zset: ZSetLimits { max_entries: many, max_value: many },
        ..*limits
    }
}

impl Keyspace {
    /// Whether a value is being built in parts.
    pub fn builds_value(&self) -> bool {
        self.workshop.is_some()
    }
}

/// Whether a value has no elements and so must not be stored in the keyspace.
fn is_hollow(value: ValueRef<'_>) -> bool {
    match value {
        ValueRef::String(_) | ValueRef::Stream(_) => false,
        ValueRef::Grants(grants) => grants.is_hollow(),
        ValueRef::List(list) => list.is_empty(),
        ValueRef::Set(set) => set.stored_len() == 0,
        ValueRef::ZSet(zset) => zset.is_empty(),
        ValueRef::Hash(hash) => hash.stored_len() == 0,
    }
}

/// Replays a recorded change.
pub(super) fn apply(ks: &mut Keyspace, db: DbIndex, effect: &Effect<'_>) -> Result<(), Misfit> {
    match *effect {
        Effect::Part { fresh, layout, steps } => {
            let mut workshop = ks.workshop.take();
            if fresh && let Some(value) = workshop.take().and_then(|mut old| old.take()) {
                ks.disposal.free(value);
            }
            if fresh && !steps.is_empty() {
                workshop = Some(Box::new(Workshop::new()));
            }
            if let Some(workshop) = &mut workshop {
                workshop.apply(&ks.limits, layout, steps)?;
            }
            ensure(fresh || workshop.is_some(), Misfit::Absent)?;
            ks.workshop = workshop;
            ks.effects.record(db, *effect);
        }
        Effect::Complete { key, layout, at_ms } => {
            let value = ks.workshop.take().ok_or(Misfit::Absent)?.finish(layout)?;
            ks.lift_tokens(value.as_ref());
            ks.overwrite(db, key, value.into(), at_ms);
            ks.effects.record(db, *effect);
        }
        _ => return Err(Misfit::Elsewhere),
    }
    Ok(())
}
