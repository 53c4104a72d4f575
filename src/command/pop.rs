//! Shared by the pops of lists and sorted sets: their counts, and the search for the first key that holds something to
//! pop.

use crate::engine::Ctx;
use crate::keyspace::{DbIndex, Keyspace, Slot};
use crate::resp::request::Argv;
use crate::spec::args::Args;
use crate::spec::error::Error;

/// Takes the number of elements to pop. A text that is not a number gets the error of a negative one, as in Redis.
pub(super) fn count_arg(args: &mut Args<'_>) -> Result<usize, Error> {
    match args.int_or(Error::NotPositive)? {
        ..0 => Err(Error::NotPositive),
        count => Ok(usize::try_from(count).unwrap_or(usize::MAX)),
    }
}

/// Returns the first of the keys at which `find` finds a value. A new call refuses a value of another type; a call that
/// has waited passes over it.
pub(super) fn first_of<'a>(
    ctx: &mut Ctx<'_>,
    keys: Argv<'a>,
    find: impl Fn(&mut Keyspace, DbIndex, &[u8]) -> Result<Option<Slot>, Error>,
) -> Result<Option<(&'a [u8], Slot)>, Error> {
    let (db, skip_wrong) = (ctx.db(), ctx.is_retry());
    for key in keys.iter() {
        match find(ctx.ks, db, key) {
            Ok(None) => {}
            Ok(Some(slot)) => return Ok(Some((key, slot))),
            Err(Error::WrongType) if skip_wrong => {}
            Err(error) => return Err(error),
        }
    }
    Ok(None)
}

/// The arguments of LMPOP, BLMPOP, ZMPOP and BZMPOP: `numkeys key... end [COUNT count]`.
pub(super) struct ManyPop<'a, End> {
    pub(super) keys: Argv<'a>,
    pub(super) end: End,
    pub(super) count: usize,
}

impl<'a, End: Copy> ManyPop<'a, End> {
    pub(super) fn parse(args: &mut Args<'a>, ends: &[(&str, End)]) -> Result<ManyPop<'a, End>, Error> {
        let keys = counted_keys(args)?;
        let end = args.one_of(ends).ok_or(Error::Syntax)?;
        Ok(ManyPop { keys, end, count: pop_count(args)? })
    }

    /// Begins the reply with the first key at which `find` finds a value, and returns where that value lives. `None`,
    /// without a reply, if there is no such key.
    pub(super) fn begin(
        &self,
        ctx: &mut Ctx<'_>,
        find: impl Fn(&mut Keyspace, DbIndex, &[u8]) -> Result<Option<Slot>, Error>,
    ) -> Result<Option<Slot>, Error> {
        let Some((key, slot)) = first_of(ctx, self.keys, find)? else { return Ok(None) };
        ctx.reply.array(2);
        ctx.reply.bulk(key);
        Ok(Some(slot))
    }
}

/// Takes the number of keys and the keys. At least one argument must follow.
fn counted_keys<'a>(args: &mut Args<'a>) -> Result<Argv<'a>, Error> {
    let wrong = Error::text("ERR numkeys should be greater than 0");
    let n = args.int_or(wrong.clone())?;
    if n < 1 {
        return Err(wrong);
    }
    let n = usize::try_from(n).unwrap_or(usize::MAX);
    if n >= args.len() {
        return Err(Error::Syntax);
    }
    args.take(n)
}

/// Takes `COUNT n` at the end of the arguments; 1 without.
fn pop_count(args: &mut Args<'_>) -> Result<usize, Error> {
    let wrong = Error::text("ERR count should be greater than 0");
    let mut count = None;
    while !args.is_empty() {
        if count.is_some() || !args.option("count", 1) {
            return Err(Error::Syntax);
        }
        count = Some(args.int_or(wrong.clone())?);
        if count < Some(1) {
            return Err(wrong);
        }
    }
    Ok(usize::try_from(count.unwrap_or(1)).unwrap_or(usize::MAX))
}
