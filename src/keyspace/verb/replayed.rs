//! For tests: a change that is undone leaves the value as before, and a follower of the effects or a copy in parts
//! arrives at an equal value.

use crate::base::rng::Rng;
use crate::keyspace::Keyspace;
use crate::keyspace::effect::{EffectReader, EffectWriter, Recording};
use crate::keyspace::snapshot::Snapshot;

/// An empty keyspace whose first unit has begun.
pub(super) fn keyspace(now_ms: i64) -> Keyspace {
    let mut ks = Keyspace::new(2, Rng::seeded(1));
    ks.begin_unit(now_ms, Recording::Full);
    ks
}

/// The test subject: how steps act on one type of value.
pub(super) struct Trial<'a, S> {
    /// Milliseconds that pass with a step.
    pub(super) wait_ms: fn(&S) -> i64,
    /// Performs a step.
    pub(super) run: fn(&mut Keyspace, &S),
    /// Everything that a keyspace holds.
    pub(super) shown: fn(&Keyspace) -> Vec<String>,
    /// Further steps of a script before it fails.
    pub(super) more: &'a [S],
}

impl<S> Trial<'_, S> {
    /// Runs steps on the result of the first unit. Steps with a fate of 0 run in scripts that fail.
    pub(super) fn of(&self, ks: &mut Keyspace, steps: &[(S, u8)]) {
        let Trial { wait_ms, run, shown, more } = *self;
        let (mut replica, mut copy, mut out) = (keyspace(0), keyspace(0), EffectWriter::default());
        ks.effects().iter().for_each(|(db, effect)| assert_eq!(replica.apply(db, &effect), Ok(())));
        let mut snapshot = Snapshot::begin_with_parts(ks, 1_000);
        let mut now_ms = 0;
        for (step, fate) in steps {
            now_ms += wait_ms(step);
            ks.begin_unit(now_ms, Recording::Full);
            let before = shown(ks);
            if *fate == 0 {
                ks.begin_undo();
                run(ks, step);
                more.iter().for_each(|other| run(ks, other));
                ks.roll_back();
                assert_eq!(shown(ks), before);
            } else {
                run(ks, step);
            }
            snapshot.follow(ks, &mut out);
            snapshot.copy_slice(ks, 100, &mut out);
            for (db, effect) in ks.effects().iter() {
                assert_eq!(replica.apply(db, &effect), Ok(()), "{effect:?}");
            }
            assert_eq!(shown(&replica), shown(ks));
        }
        while !snapshot.copy_slice(ks, 100, &mut out) {}
        for (db, effect) in EffectReader::new(out.as_bytes()) {
            assert_eq!(copy.apply(db, &effect), Ok(()), "{effect:?}");
        }
        assert_eq!(shown(&copy), shown(ks));
        assert_eq!(copy.next_token(), ks.next_token());
    }
}
