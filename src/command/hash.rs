//! Hashes: the fields of a key, each with a value.

use super::item::bulk_item;
use super::sample::{self, Count};
use super::scan;
use crate::base::long_double::LongDouble;
use crate::base::num::parse_i64;
use crate::command::limits::{REPLY_FORESEEN_BYTES, REPLY_FORESEEN_ITEMS};
use crate::engine::{Command, Ctx, Done, Run};
use crate::keyspace::any_value::ValueRef;
use crate::keyspace::{DbIndex, Keyspace, Slot};
use crate::resp::reply::Reply;
use crate::resp::request::Argv;
use crate::spec::args::Args;
use crate::spec::error::Error;
use crate::spec::{Access, AnswersAll, Flags, Group, KeySpec};
use crate::value::hash::Hash;
use crate::value::packed::Item;
use crate::value::string::Digits;

fn hset(ctx: &mut Ctx<'_>, args: Args<'_>) -> Done {
    let new = set_pairs(ctx, args)?;
    ctx.reply.integer(new);
    Ok(())
}

fn hmset(ctx: &mut Ctx<'_>, args: Args<'_>) -> Done {
    set_pairs(ctx, args)?;
    ctx.reply.ok();
    Ok(())
}

/// Sets the fields that follow the key and returns the number of new ones.
fn set_pairs(ctx: &mut Ctx<'_>, mut args: Args<'_>) -> Result<i64, Error> {
    let key = args.bytes()?;
    if !args.len().is_multiple_of(2) {
        return Err(Error::Arity(ctx.name().into()));
    }
    let db = ctx.db();
    let mut slot = ctx.ks.find(db, key);
    let mut added = 0;
    while !args.is_empty() {
        let (field, value) = (args.bytes()?, args.bytes()?);
        // A key of another type fails at the first field, before anything has changed.
        let (at, new) = ctx.ks.hash_set(db, key, slot, field, value)?;
        slot = Some(at);
        added += i64::from(new);
    }
    Ok(added)
}

fn hsetnx(ctx: &mut Ctx<'_>, mut args: Args<'_>) -> Done {
    let (key, field, value) = (args.bytes()?, args.bytes()?, args.bytes()?);
    let db = ctx.db();
    let slot = ctx.ks.find(db, key);
    let set = !at(ctx.ks, db, slot)?.is_some_and(|hash| hash.contains(field));
    if set {
        ctx.ks.hash_set(db, key, slot, field, value)?;
    }
    ctx.reply.integer(i64::from(set));
    Ok(())
}

fn hget(ctx: &mut Ctx<'_>, mut args: Args<'_>) -> Done {
    let (key, field) = (args.bytes()?, args.bytes()?);
    match read(ctx.ks, ctx.session.db, key)?.and_then(|hash| hash.get(field)) {
        Some(value) => bulk_item(ctx.reply, value),
        None => ctx.reply.null(),
    }
    Ok(())
}

fn hmget(ctx: &mut Ctx<'_>, mut args: Args<'_>) -> Done {
    let key = args.bytes()?;
    let hash = read(ctx.ks, ctx.session.db, key)?;
    let fields = args.rest();
    ctx.reply.array(fields.len());
    let start = ctx.reply.len();
    answer_each(ctx.reply, hash, fields.slice(0, REPLY_FORESEEN_ITEMS));
    if fields.len() > REPLY_FORESEEN_ITEMS {
        let rest = fields.slice(REPLY_FORESEEN_ITEMS, fields.len());
        if ctx.reply.len() - start > REPLY_FORESEEN_BYTES {
            let len = |field| match hash.and_then(|hash| hash.get(field)) {
                Some(Item::Bytes(bytes)) => bytes.len(),
                _ => 0,
            };
            ctx.reply.announce(rest.iter().map(len));
        }
        answer_each(ctx.reply, hash, rest);
    }
    Ok(())
}

#[inline]
fn answer_each(reply: &mut Reply, hash: Option<&Hash>, fields: Argv<'_>) {
    for field in fields.iter() {
        match hash.and_then(|hash| hash.get(field)) {
            Some(value) => bulk_item(reply, value),
            None => reply.null(),
        }
    }
}

fn hgetall(ctx: &mut Ctx<'_>, mut args: Args<'_>) -> Done {
    let hash = read(ctx.ks, ctx.session.db, args.bytes()?)?;
    ctx.reply.map(hash.map_or(0, Hash::len));
    for (field, value) in hash.into_iter().flat_map(Hash::iter) {
        bulk_item(ctx.reply, field);
        bulk_item(ctx.reply, value);
    }
    Ok(())
}

fn hkeys(ctx: &mut Ctx<'_>, args: Args<'_>) -> Done {
    answer_all(ctx, args, |(field, _)| field)
}

fn hvals(ctx: &mut Ctx<'_>, args: Args<'_>) -> Done {
    answer_all(ctx, args, |(_, value)| value)
}

/// Replies with one part of each pair.
fn answer_all(ctx: &mut Ctx<'_>, mut args: Args<'_>, part: for<'h> fn((Item<'h>, Item<'h>)) -> Item<'h>) -> Done {
    let hash = read(ctx.ks, ctx.session.db, args.bytes()?)?;
    ctx.reply.array(hash.map_or(0, Hash::len));
    hash.into_iter().flat_map(Hash::iter).for_each(|pair| bulk_item(ctx.reply, part(pair)));
    Ok(())
}

fn hlen(ctx: &mut Ctx<'_>, args: Args<'_>) -> Done {
    answer_size(ctx, args, |hash, _| hash.len())
}

fn hexists(ctx: &mut Ctx<'_>, args: Args<'_>) -> Done {
    answer_size(ctx, args, |hash, field| usize::from(hash.contains(field)))
}

fn hstrlen(ctx: &mut Ctx<'_>, args: Args<'_>) -> Done {
    answer_size(ctx, args, |hash, field| hash.value_len(field).unwrap_or(0))
}

/// Replies with a number derived from the hash and, if given, a field; 0 if the key does not exist.
fn answer_size(ctx: &mut Ctx<'_>, mut args: Args<'_>, size: fn(&Hash, &[u8]) -> usize) -> Done {
    let key = args.bytes()?;
    let field = args.peek().unwrap_or_default();
    let size = read(ctx.ks, ctx.session.db, key)?.map_or(0, |hash| size(hash, field));
    ctx.reply.integer(size as i64);
    Ok(())
}

fn hdel(ctx: &mut Ctx<'_>, mut args: Args<'_>) -> Done {
    let key = args.bytes()?;
    let db = ctx.db();
    let Some(slot) = ctx.ks.find(db, key) else {
        ctx.reply.integer(0);
        return Ok(());
    };
    let removed = remove_fields(ctx.ks, db, slot, args.rest())?;
    ctx.reply.integer(removed as i64);
    Ok(())
}

/// Removes fields and returns the number removed. The slot is gone if no field is left.
fn remove_fields(ks: &mut Keyspace, db: DbIndex, slot: Slot, fields: Argv<'_>) -> Result<usize, Error> {
    let all = ks.hash(db, slot)?.len();
    let mut removed = 0;
    for field in fields.iter() {
        removed += usize::from(ks.hash_remove(db, slot, field)?);
        if removed == all {
            break;
        }
    }
    Ok(removed)
}

fn hincrby(ctx: &mut Ctx<'_>, mut args: Args<'_>) -> Done {
    let (key, field, delta) = (args.bytes()?, args.bytes()?, args.int()?);
    let db = ctx.db();
    let slot = ctx.ks.find(db, key);
    let current = match at(ctx.ks, db, slot)?.and_then(|hash| hash.get(field)) {
        Some(Item::Int(value)) => value,
        Some(Item::Bytes(text)) => parse_i64(text).ok_or(Error::text("ERR hash value is not an integer"))?,
        None => 0,
    };
    let value = current.checked_add(delta).ok_or(Error::Overflow)?;
    ctx.ks.hash_update(db, key, slot, field, Digits::new().format(value).as_bytes())?;
    ctx.reply.integer(value);
    Ok(())
}

fn hincrbyfloat(ctx: &mut Ctx<'_>, mut args: Args<'_>) -> Done {
    let (key, field) = (args.bytes()?, args.bytes()?);
    let delta = LongDouble::parse(args.bytes()?).ok_or(Error::NotFloat)?;
    if !delta.is_finite() {
        return Err(Error::text("ERR value is NaN or Infinity"));
    }
    let db = ctx.db();
    let slot = ctx.ks.find(db, key);
    let value = match at(ctx.ks, db, slot)?.and_then(|hash| hash.get(field)) {
        None => delta,
        Some(current) => LongDouble::parse(current.as_bytes(&mut Digits::new()))
            .ok_or(Error::text("ERR hash value is not a float"))?
            .checked_add(delta)
            .ok_or(Error::text("ERR increment would produce NaN or Infinity"))?,
    };
    let mut text = Vec::with_capacity(32);
    value.write_human(&mut text);
    ctx.ks.hash_update(db, key, slot, field, &text)?;
    ctx.reply.bulk(&text);
    Ok(())
}

fn hrandfield(ctx: &mut Ctx<'_>, mut args: Args<'_>) -> Done {
    let key = args.bytes()?;
    if args.is_empty() {
        let mut rng = sample::rng(ctx);
        match read(ctx.ks, ctx.session.db, key)?.and_then(|hash| hash.random(|n| rng.below(n))) {
            Some((field, _)) => bulk_item(ctx.reply, field),
            None => ctx.reply.null(),
        }
        return Ok(());
    }
    let count = Count::parse(&mut args)?;
    let with_values = args.flag("withvalues");
    args.end()?;
    // Redis limits fields and values together.
    if with_values && count.get() > i64::MAX as usize / 2 {
        return Err(Error::OutOfRange);
    }
    sample_fields(ctx, key, count, with_values)
}

fn sample_fields(ctx: &mut Ctx<'_>, key: &[u8], count: Count, with_values: bool) -> Done {
    let mut rng = sample::rng(ctx);
    let Some(hash) = read(ctx.ks, ctx.session.db, key)? else {
        ctx.reply.array(0);
        return Ok(());
    };
    let written = match count {
        Count::Different(count) => count.min(hash.len()),
        Count::Repeated(count) => count,
    };
    let nested = with_values && ctx.reply.is_resp3();
    ctx.reply.array(if with_values && !nested { written * 2 } else { written });
    let write = |reply: &mut Reply, field: Item<'_>, value: Item<'_>| {
        if nested {
            reply.array(2);
        }
        bulk_item(reply, field);
        if with_values {
            bulk_item(reply, value);
        }
    };
    match count {
        Count::Different(count) => {
            hash.sample(count, |n| rng.below(n), |field, value| write(ctx.reply, field, value));
            Ok(())
        }
        Count::Repeated(count) => {
            let living: Vec<_> = if hash.is_mostly_dead() { hash.iter().collect() } else { Vec::new() };
            sample::repeat(ctx.reply, count, rng, |reply, rng| {
                let drawn = sample::one_of(&living, rng).or_else(|| hash.random(|n| rng.below(n)));
                if let Some((field, value)) = drawn {
                    write(reply, field, value);
                }
            })
        }
    }
}

fn hscan(ctx: &mut Ctx<'_>, mut args: Args<'_>) -> Done {
    let key = args.bytes()?;
    let cursor = scan::cursor(&mut args)?;
    let Some(hash) = read(ctx.ks, ctx.session.db, key)? else {
        scan::answer_empty(ctx.reply);
        return Ok(());
    };
    let options = scan::Options::parse(&mut args, scan::Walk::Hash)?;
    scan::answer(ctx.reply, |reply, written| {
        hash.scan(cursor, options.count, |field, value| {
            if !options.wants(field.as_bytes(&mut Digits::new())) {
                return;
            }
            bulk_item(reply, field);
            *written += 1;
            if !options.no_values {
                bulk_item(reply, value);
                *written += 1;
            }
        })
    });
    Ok(())
}

/// Returns the hash at a key, for a command that only reads.
#[inline]
fn read<'k>(ks: &'k mut Keyspace, db: DbIndex, key: &[u8]) -> Result<Option<&'k Hash>, Error> {
    match ks.read(db, key) {
        None => Ok(None),
        Some(ValueRef::Hash(hash)) => Ok(Some(hash)),
        Some(_) => Err(Error::WrongType),
    }
}

/// Returns the hash at a slot, if there is a slot.
#[inline]
fn at(ks: &Keyspace, db: DbIndex, slot: Option<Slot>) -> Result<Option<&Hash>, Error> {
    Ok(slot.map(|slot| ks.hash(db, slot)).transpose()?)
}

const READ: Command = Command { flags: Flags::READONLY, group: Group::Hash, ..Command::EMPTY };
const READ_FAST: Command = Command { flags: Flags::READONLY.union(Flags::FAST), ..READ };
const ADD: Command =
    Command { flags: Flags::WRITE.union(Flags::DENYOOM).union(Flags::FAST), group: Group::Hash, ..Command::EMPTY };

/// The family's table.
pub(super) const COMMANDS: &[Command] = &[
    Command {
        name: "hdel",
        arity: -3,
        flags: Flags::WRITE.union(Flags::FAST),
        keys: &[KeySpec::one(1, Access::Remove)],
        since: "2.0.0",
        complexity: "O(N) where N is the number of fields given.",
        summary: "Removes fields; removes the key with its last field.",
        syntax: "key field...",
        run: Run::Now(hdel),
        ..ADD
    },
    Command {
        name: "hexists",
        arity: 3,
        keys: &[KeySpec::one(1, Access::Inspect)],
        since: "2.0.0",
        summary: "Returns whether a field exists.",
        syntax: "key field",
        run: Run::Now(hexists),
        ..READ_FAST
    },
    Command {
        name: "hget",
        arity: 3,
        keys: &[KeySpec::one(1, Access::Read)],
        since: "2.0.0",
        summary: "Returns the value of a field.",
        syntax: "key field",
        run: Run::Now(hget),
        ..READ_FAST
    },
    Command {
        name: "hgetall",
        answers_all: AnswersAll::Always,
        arity: 2,
        keys: &[KeySpec::one(1, Access::Read)],
        since: "2.0.0",
        complexity: "O(N) where N is the number of fields of the hash.",
        summary: "Returns all fields and their values.",
        syntax: "key",
        tips: &["nondeterministic_output_order"],
        run: Run::Now(hgetall),
        ..READ
    },
    Command {
        name: "hincrby",
        arity: 4,
        keys: &[KeySpec::one(1, Access::Update)],
        since: "2.0.0",
        summary: "Increments the integer value of a field; an absent field counts as 0.",
        syntax: "key field increment:integer",
        event: "hincrby",
        run: Run::Now(hincrby),
        ..ADD
    },
    Command {
        name: "hincrbyfloat",
        arity: 4,
        keys: &[KeySpec::one(1, Access::Update)],
        since: "2.6.0",
        summary: "Increments the floating-point value of a field; an absent field counts as 0.",
        syntax: "key field increment:double",
        event: "hincrbyfloat",
        run: Run::Now(hincrbyfloat),
        ..ADD
    },
    Command {
        name: "hkeys",
        answers_all: AnswersAll::Always,
        arity: 2,
        keys: &[KeySpec::one(1, Access::Read)],
        since: "2.0.0",
        complexity: "O(N) where N is the number of fields of the hash.",
        summary: "Returns all fields.",
        syntax: "key",
        tips: &["nondeterministic_output_order"],
        run: Run::Now(hkeys),
        ..READ
    },
    Command {
        name: "hlen",
        arity: 2,
        keys: &[KeySpec::one(1, Access::Inspect)],
        since: "2.0.0",
        summary: "Returns the number of fields.",
        syntax: "key",
        run: Run::Now(hlen),
        ..READ_FAST
    },
    Command {
        name: "hmget",
        arity: -3,
        keys: &[KeySpec::one(1, Access::Read)],
        since: "2.0.0",
        complexity: "O(N) where N is the number of fields given.",
        summary: "Returns the values of several fields.",
        syntax: "key field...",
        run: Run::Now(hmget),
        ..READ_FAST
    },
    Command {
        name: "hmset",
        arity: -4,
        keys: &[KeySpec::one(1, Access::Modify)],
        since: "2.0.0",
        complexity: "O(N) where N is the number of fields given.",
        summary: "Sets the values of several fields, as HSET does, and returns OK.",
        syntax: "key (field value):data...",
        run: Run::Now(hmset),
        ..ADD
    },
    Command {
        name: "hrandfield",
        arity: -2,
        keys: &[KeySpec::one(1, Access::Read)],
        since: "6.2.0",
        complexity: "O(N) where N is the number of fields returned.",
        summary: "Returns random fields, without repetition unless the count is negative.",
        syntax: "key [count [WITHVALUES]]:options",
        tips: &["nondeterministic_output"],
        run: Run::Now(hrandfield),
        ..READ
    },
    Command {
        name: "hscan",
        arity: -3,
        keys: &[KeySpec::one(1, Access::Read)],
        since: "2.8.0",
        complexity: "O(1) a call, O(N) for a whole walk over N fields.",
        summary: "Iterates over the fields.",
        syntax: "key cursor [MATCH pattern] [COUNT count] [NOVALUES]",
        tips: &["nondeterministic_output"],
        run: Run::Now(hscan),
        ..READ
    },
    Command {
        name: "hset",
        arity: -4,
        keys: &[KeySpec::one(1, Access::Modify)],
        since: "2.0.0",
        complexity: "O(N) where N is the number of fields given.",
        summary: "Sets the values of fields and returns the number of new fields.",
        syntax: "key (field value):data...",
        run: Run::Now(hset),
        ..ADD
    },
    Command {
        name: "hsetnx",
        arity: 4,
        keys: &[KeySpec::one(1, Access::Insert)],
        since: "2.0.0",
        summary: "Sets the value of a field that does not exist.",
        syntax: "key field value",
        run: Run::Now(hsetnx),
        ..ADD
    },
    Command {
        name: "hstrlen",
        arity: 3,
        keys: &[KeySpec::one(1, Access::Inspect)],
        since: "3.2.0",
        summary: "Returns the length of a field's value in bytes.",
        syntax: "key field",
        run: Run::Now(hstrlen),
        ..READ_FAST
    },
    Command {
        name: "hvals",
        answers_all: AnswersAll::Always,
        arity: 2,
        keys: &[KeySpec::one(1, Access::Read)],
        since: "2.0.0",
        complexity: "O(N) where N is the number of fields of the hash.",
        summary: "Returns all values.",
        syntax: "key",
        tips: &["nondeterministic_output_order"],
        run: Run::Now(hvals),
        ..READ
    },
];
