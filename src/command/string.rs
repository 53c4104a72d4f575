//! Strings: values, counters, and what SET makes of them.

use crate::engine::args::Args;
use crate::engine::ctx::Ctx;
use crate::engine::error::Error;
use crate::engine::spec::{Access, Command, Done, Flags, Group, KeySpec, Run};
use crate::keyspace::entry::Value;
use crate::value::string::Digits;

fn get(ctx: &mut Ctx<'_>, mut args: Args<'_>) -> Done {
    let key = args.bytes()?;
    match ctx.ks.read(ctx.session.db, key) {
        None => ctx.reply.null(),
        Some(Value::String(string)) => ctx.reply.bulk(string.as_bytes(&mut Digits::new())),
        Some(_) => return Err(Error::WrongType),
    }
    Ok(())
}

fn set(ctx: &mut Ctx<'_>, mut args: Args<'_>) -> Done {
    let (key, value) = (args.bytes()?, args.bytes()?);
    args.end()?;
    ctx.ks.put(ctx.session.db, key, value);
    ctx.reply.ok();
    Ok(())
}

fn incr(ctx: &mut Ctx<'_>, mut args: Args<'_>) -> Done {
    let key = args.bytes()?;
    let value = add(ctx, key, 1)?;
    ctx.reply.integer(value);
    Ok(())
}

/// Adds to the counter under `key`, which begins at 0; its expiry stays.
fn add(ctx: &mut Ctx<'_>, key: &[u8], delta: i64) -> Result<i64, Error> {
    let db = ctx.session.db;
    let Some(slot) = ctx.ks.find(db, key) else {
        ctx.ks.put(db, key, Digits::new().format(delta).as_bytes());
        return Ok(delta);
    };
    let Value::String(string) = ctx.ks.value(db, slot) else { return Err(Error::WrongType) };
    let current = string.as_i64().ok_or(Error::NotInteger)?;
    let value = current.checked_add(delta).ok_or(Error::Overflow)?;
    ctx.ks.replace_integer(db, slot, value);
    Ok(value)
}

/// The family's table.
pub const COMMANDS: &[Command] = &[
    Command {
        name: "get",
        arity: 2,
        flags: Flags::READONLY.and(Flags::FAST),
        keys: &[KeySpec::one(1, Access::Read)],
        group: Group::String,
        since: "1.0.0",
        summary: "Answers the string under a key.",
        syntax: "key",
        run: Run::Now(get),
        ..Command::EMPTY
    },
    Command {
        name: "incr",
        arity: 2,
        flags: Flags::WRITE.and(Flags::DENYOOM).and(Flags::FAST),
        keys: &[KeySpec::one(1, Access::Update)],
        group: Group::String,
        since: "1.0.0",
        summary: "Adds one to the counter under a key.",
        syntax: "key",
        run: Run::Now(incr),
        ..Command::EMPTY
    },
    Command {
        name: "set",
        arity: -3,
        flags: Flags::WRITE.and(Flags::DENYOOM),
        keys: &[KeySpec::one(1, Access::Overwrite)],
        group: Group::String,
        since: "1.0.0",
        summary: "Stores a string under a key, whatever was there.",
        syntax: "key value",
        run: Run::Now(set),
        ..Command::EMPTY
    },
];
