//! Iteration over the keys of one command.

use crate::engine::Ctx;
use crate::resp::request::Argv;

/// The number of lookups in flight: enough to hide the latency of memory, few enough for their lines to stay in L1.
const AT_ONCE: usize = 32;

/// Calls `visit` for every `step`-th argument, beginning with the first, with its index and key. In a large database up
/// to [`AT_ONCE`] lookups start together, as in a pipeline, so that they wait for memory at the same time.
#[inline]
pub(super) fn for_each_key<'a>(
    ctx: &mut Ctx<'_>,
    args: Argv<'a>,
    step: usize,
    mut visit: impl FnMut(&mut Ctx<'_>, usize, &'a [u8]),
) {
    let db = ctx.session.db;
    if args.len() <= step || !ctx.ks.is_large(db) {
        return args.iter().enumerate().step_by(step).for_each(|(at, key)| visit(ctx, at, key));
    }
    let mut keys = args.iter().enumerate().step_by(step);
    while keys.len() > 0 {
        let slots = ctx.ks.prefetch::<AT_ONCE>(db, keys.clone().map(|(_, key)| Some(key)));
        for ((at, key), slot) in keys.by_ref().take(AT_ONCE).zip(slots) {
            if let Some(slot) = slot {
                ctx.ks.hint(db, slot);
            }
            visit(ctx, at, key);
        }
    }
}
