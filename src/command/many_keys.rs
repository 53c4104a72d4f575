//! Going through the keys of one command.

use crate::engine::Ctx;
use crate::resp::request::Argv;

/// How many lookups are begun at a time: enough to hide the latency of memory, few enough for their lines to stay in L1.
const AT_ONCE: usize = 32;

/// Shows the keys among `args`, which are every `step`-th, to `visit`, with their places there. In a large database the lookups of
/// some are begun all together, as those of a pipeline are: one after the other they would wait for memory one after the other.
#[inline]
pub(super) fn for_each_key<'a>(
    ctx: &mut Ctx<'_>,
    args: Argv<'a>,
    step: usize,
    mut visit: impl FnMut(&mut Ctx<'_>, usize, &'a [u8]),
) {
    let db = ctx.session.db;
    let looks_ahead = args.len() > step && ctx.ks.is_large(db);
    for first in (0..args.len()).step_by(step * AT_ONCE) {
        let places = (first..args.len()).step_by(step).take(AT_ONCE);
        let slots = if looks_ahead {
            ctx.ks.look_ahead::<AT_ONCE>(db, places.clone().map(|at| args.get(at)))
        } else {
            [None; AT_ONCE]
        };
        for (at, slot) in places.zip(slots) {
            if looks_ahead {
                ctx.ks.hint(db, slot);
            }
            if let Some(key) = args.get(at) {
                visit(ctx, at, key);
            }
        }
    }
}
