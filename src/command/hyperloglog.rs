//! HyperLogLogs: strings that estimate the number of different elements added to them. The structure is in
//! [`value::hyperloglog`](crate::value::hyperloglog).
//!
//! A dense one is changed in place, two bytes at a time. A sparse one is short: it is copied, changed and written back,
//! and the effect carries only the difference.

use std::borrow::Cow;

use crate::engine::observe::events::SILENT;
use crate::engine::{Command, Ctx, Done, Run};
use crate::keyspace::any_value::ValueRef;
use crate::keyspace::{DbIndex, Keyspace, Slot};
use crate::spec::args::Args;
use crate::spec::error::Error;
use crate::spec::{Access, Flags, Group, KeySpec};
use crate::value::hyperloglog::{self, Corrupt, Encoding, Registers};

const NOT_ONE: Error = Error::text("WRONGTYPE Key is not a valid HyperLogLog string value.");

impl From<Corrupt> for Error {
    fn from(_: Corrupt) -> Error {
        Error::text("INVALIDOBJ Corrupted HLL object detected")
    }
}

/// Returns the HyperLogLog at `slot` after checking its header.
fn at(ks: &Keyspace, db: DbIndex, slot: Slot) -> Result<(Cow<'_, [u8]>, Encoding), Error> {
    let ValueRef::String(string) = ks.value(db, slot) else { return Err(Error::WrongType) };
    let bytes = string.text();
    let encoding = hyperloglog::encoding(&bytes).ok_or(NOT_ONE)?;
    Ok((bytes, encoding))
}

/// Stores `new` in place of `old`, which is empty without a slot.
fn store(ctx: &mut Ctx<'_>, key: &[u8], slot: Option<Slot>, old: &[u8], new: &[u8]) -> Done {
    let db = ctx.session.db;
    match slot {
        Some(slot) => _ = ctx.ks.rewrite(db, slot, old, new),
        None => {
            // Written as a range, so that it stays growable.
            let slot = ctx.ks.put_at(db, key, None, b"");
            ctx.ks.set_range(db, key, Some(slot), 0, new)?;
        }
    }
    Ok(())
}

fn pfadd(ctx: &mut Ctx<'_>, mut args: Args<'_>) -> Done {
    let key = args.bytes()?;
    let db = ctx.session.db;
    let slot = ctx.ks.find(db, key);
    let before = ctx.ks.changes_by_commands();
    let changes = match slot {
        Some(place) => match at(ctx.ks, db, place)? {
            (_, Encoding::Dense) => add_to_dense(ctx, key, place, args)?,
            (bytes, Encoding::Sparse) => {
                let old = bytes.into_owned();
                let place = ctx.ks.make_growable(db, place);
                add_to_copy(ctx, key, Some(place), &old, args)?
            }
        },
        None => add_to_copy(ctx, key, None, b"", args)?,
    };
    // A new key counts as one change, and so does each register that rises.
    ctx.ks.count_changes_as(before, changes);
    ctx.reply.integer(i64::from(changes > 0));
    Ok(())
}

/// Returns the number of registers that have risen.
fn add_to_dense(ctx: &mut Ctx<'_>, key: &[u8], mut slot: Slot, args: Args<'_>) -> Result<u64, Error> {
    let db = ctx.session.db;
    let mut changes = 0;
    for element in args.rest().iter() {
        let (index, rank) = hyperloglog::place(element);
        if let Some((offset, pair)) = hyperloglog::raise_dense(&at(ctx.ks, db, slot)?.0, index, rank) {
            (slot, _) = ctx.ks.set_range(db, key, Some(slot), offset, &pair)?;
            changes += 1;
        }
    }
    let flags = at(ctx.ks, db, slot)?.0[hyperloglog::STALE_AT];
    if changes > 0 && flags & hyperloglog::STALE == 0 {
        (slot, _) = ctx.ks.set_range(db, key, Some(slot), hyperloglog::STALE_AT, &[flags | hyperloglog::STALE])?;
    }
    _ = ctx.ks.make_growable(db, slot);
    Ok(changes)
}

/// Adds to a copy of the value, or to a new one without a `slot`. Returns the number of registers that have risen, plus
/// one for a new key.
fn add_to_copy(ctx: &mut Ctx<'_>, key: &[u8], slot: Option<Slot>, old: &[u8], args: Args<'_>) -> Result<u64, Error> {
    let mut new = if slot.is_some() { old.to_vec() } else { hyperloglog::empty() };
    let mut changes = u64::from(slot.is_none());
    for element in args.rest().iter() {
        changes += u64::from(hyperloglog::add(&mut new, element, ctx.server.config.hll_sparse_max_bytes)?);
    }
    if changes > 0 {
        hyperloglog::forget_count(&mut new);
        store(ctx, key, slot, old, &new)?;
    }
    Ok(changes)
}

fn pfcount(ctx: &mut Ctx<'_>, mut args: Args<'_>) -> Done {
    let db = ctx.session.db;
    if args.len() > 1 {
        let count = union(ctx, args)?.0.count();
        ctx.reply.integer(count as i64);
        return Ok(());
    }
    let key = args.bytes()?;
    let Some(slot) = ctx.ks.look_up(db, key) else {
        ctx.reply.integer(0);
        return Ok(());
    };
    let (bytes, _) = at(ctx.ks, db, slot)?;
    let cached = hyperloglog::cached_count(&bytes);
    let count = match cached {
        Some(count) => Ok(count),
        None => hyperloglog::count(&bytes),
    };
    drop(bytes);
    // Redis does this before it detects a corrupt value.
    let slot = ctx.ks.make_growable(db, slot);
    let count = count?;
    if cached.is_none() {
        ctx.ks.set_range(db, key, Some(slot), hyperloglog::CACHE_AT, &count.to_le_bytes())?;
    }
    ctx.reply.integer(count as i64);
    Ok(())
}

/// Returns the union of all keys, and whether any of them is dense.
fn union(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<(Registers, bool), Error> {
    let db = ctx.session.db;
    let (mut registers, mut any_dense) = (Registers::new(), false);
    for key in args.rest().iter() {
        let Some(slot) = ctx.ks.look_up(db, key) else { continue };
        let (bytes, encoding) = at(ctx.ks, db, slot)?;
        registers.absorb(&bytes)?;
        any_dense |= encoding == Encoding::Dense;
    }
    Ok((registers, any_dense))
}

fn pfmerge(ctx: &mut Ctx<'_>, mut args: Args<'_>) -> Done {
    let (registers, any_dense) = union(ctx, args)?;
    let key = args.bytes()?;
    let db = ctx.session.db;
    let slot = ctx.ks.find(db, key);
    let old = slot.map(|slot| at(ctx.ks, db, slot).map(|(bytes, _)| bytes.into_owned())).transpose()?;
    let mut new = old.clone().unwrap_or_else(hyperloglog::empty);
    if any_dense {
        hyperloglog::make_dense(&mut new)?;
    }
    registers.pour_into(&mut new, ctx.server.config.hll_sparse_max_bytes)?;
    hyperloglog::forget_count(&mut new);
    let before = ctx.ks.changes_by_commands();
    store(ctx, key, slot, old.as_deref().unwrap_or_default(), &new)?;
    if let Some(slot) = slot.filter(|_| ctx.ks.changes_by_commands() == before) {
        // The key counts as changed even if nothing is new.
        ctx.ks.set_range(db, key, Some(slot), hyperloglog::STALE_AT, &[new[hyperloglog::STALE_AT]])?;
    }
    ctx.ks.count_changes_as(before, 1);
    ctx.reply.ok();
    Ok(())
}

fn pfdebug(ctx: &mut Ctx<'_>, mut args: Args<'_>) -> Done {
    let (subcommand, key) = (args.bytes()?, args.bytes()?);
    let db = ctx.session.db;
    let slot = ctx.ks.find(db, key).ok_or(Error::text("ERR The specified key does not exist"))?;
    let (bytes, encoding) = at(ctx.ks, db, slot)?;
    match subcommand.to_ascii_lowercase().as_slice() {
        b"getreg" => {
            // Redis converts it to dense in order to read it; done here too, so that the bytes stay equal.
            let old = bytes.into_owned();
            let mut dense = old.clone();
            hyperloglog::make_dense(&mut dense)?;
            let mut registers = Registers::new();
            registers.absorb(&dense)?;
            store(ctx, key, Some(slot), &old, &dense)?;
            ctx.reply.array(registers.values().len());
            registers.values().iter().for_each(|&value| ctx.reply.integer(i64::from(value)));
        }
        b"decode" if encoding == Encoding::Dense => return Err(Error::text("ERR HLL encoding is not sparse")),
        b"decode" => {
            let text = hyperloglog::describe(&bytes)?;
            ctx.reply.bulk(text.as_bytes());
        }
        b"encoding" => ctx.reply.status(if encoding == Encoding::Dense { "dense" } else { "sparse" }),
        b"todense" => {
            let old = bytes.into_owned();
            let mut dense = old.clone();
            hyperloglog::make_dense(&mut dense)?;
            store(ctx, key, Some(slot), &old, &dense)?;
            ctx.reply.integer(i64::from(encoding == Encoding::Sparse));
        }
        _ => return Err(Error::lossy(&[b"ERR Unknown PFDEBUG subcommand '", subcommand, b"'"].concat())),
    }
    Ok(())
}

fn pfselftest(ctx: &mut Ctx<'_>, _: Args<'_>) -> Done {
    hyperloglog::self_test().map_err(|why| Error::owned(format!("TESTFAILED {why}")))?;
    ctx.reply.ok();
    Ok(())
}

const WRITE: Flags = Flags::WRITE.union(Flags::DENYOOM);

const FAMILY: Command = Command { group: Group::Hyperloglog, since: "2.8.9", ..Command::EMPTY };

/// The family's table.
pub(super) const COMMANDS: &[Command] = &[
    Command {
        name: "pfadd",
        arity: -2,
        flags: WRITE.union(Flags::FAST),
        keys: &[KeySpec::one(1, Access::Insert)],
        complexity: "O(1) for each element",
        summary: "Adds elements to a HyperLogLog; creates the key if it does not exist.",
        syntax: "key [element]...",
        event: "pfadd",
        run: Run::Now(pfadd),
        ..FAMILY
    },
    Command {
        name: "pfcount",
        arity: -2,
        flags: Flags::READONLY.union(Flags::MAY_REPLICATE),
        keys: &[KeySpec::rest(1, 1, Access::Note)],
        complexity: "O(1) for one key, whose count is kept; O(N) for N keys",
        summary: "Returns the approximate number of different elements in one or more HyperLogLogs.",
        syntax: "key...",
        event: SILENT,
        run: Run::Now(pfcount),
        ..FAMILY
    },
    Command {
        name: "pfdebug",
        arity: 3,
        flags: WRITE.union(Flags::ADMIN),
        keys: &[KeySpec::one(2, Access::Note)],
        complexity: "O(N) for N registers",
        summary: "Shows or changes the storage of a HyperLogLog: GETREG, DECODE, ENCODING, TODENSE.",
        syntax: "subcommand key",
        event: SILENT,
        run: Run::Now(pfdebug),
        ..FAMILY
    },
    Command {
        name: "pfmerge",
        arity: -2,
        flags: WRITE,
        keys: &[KeySpec::one(1, Access::Merge), KeySpec::rest(2, 1, Access::Read)],
        complexity: "O(N) for N HyperLogLogs",
        summary: "Merges HyperLogLogs into the first one.",
        syntax: "destkey:key [sourcekey:key]...",
        event: "pfadd",
        run: Run::Now(pfmerge),
        ..FAMILY
    },
    Command {
        name: "pfselftest",
        arity: 1,
        flags: Flags::ADMIN,
        complexity: "O(N) for N generated elements",
        summary: "Tests the implementation of HyperLogLogs.",
        run: Run::Now(pfselftest),
        ..FAMILY
    },
];
