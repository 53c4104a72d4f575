//! The slots of keys. The keys are not ordered by slots, since a single shard never moves any: finding those of a slot
//! takes as long as KEYS.

use super::mode::enabled;
use crate::base::crc::{SLOTS, key_slot};
use crate::engine::{Ctx, Done};
use crate::spec::args::Args;
use crate::spec::error::Error;

/// The only database in Cluster mode.
const DB: u16 = 0;

pub(super) fn key_slot_of(ctx: &mut Ctx<'_>, mut args: Args<'_>) -> Done {
    enabled(ctx)?;
    ctx.reply.integer(key_slot(args.bytes()?).into());
    Ok(())
}

pub(super) fn count_keys(ctx: &mut Ctx<'_>, mut args: Args<'_>) -> Done {
    enabled(ctx)?;
    let slot = valid(args.int()?).ok_or(Error::text("ERR Invalid slot"))?;
    let count = ctx.ks.entries(DB).filter(|entry| key_slot(entry.key()) == slot).count();
    ctx.reply.integer(count as i64);
    Ok(())
}

pub(super) fn get_keys(ctx: &mut Ctx<'_>, mut args: Args<'_>) -> Done {
    enabled(ctx)?;
    let (slot, most) = (valid(args.int()?), usize::try_from(args.int()?));
    let (Some(slot), Ok(most)) = (slot, most) else {
        return Err(Error::text("ERR Invalid slot or number of keys"));
    };
    let mark = ctx.reply.begin();
    let mut found = 0;
    for entry in ctx.ks.entries(DB).filter(|entry| key_slot(entry.key()) == slot).take(most) {
        ctx.reply.bulk(entry.key());
        found += 1;
    }
    ctx.reply.end_array(mark, found);
    Ok(())
}

fn valid(slot: i64) -> Option<u16> {
    u16::try_from(slot).ok().filter(|slot| *slot < SLOTS)
}
