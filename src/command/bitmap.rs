//! Bitmaps: strings whose bits and packed integers are read and written one by one.
//!
//! Bits are changed through the string verbs. A call changes a few bytes at an offset, and its effect is as small.

use std::borrow::Cow;

use crate::config::EventClasses;
use crate::engine::observe::events::SILENT;
use crate::engine::{Command, Ctx, Done, Run};
use crate::keyspace::any_value::ValueRef;
use crate::keyspace::{DbIndex, Keyspace, Slot};
use crate::resp::request::Argv;
use crate::spec::args::Args;
use crate::spec::error::Error;
use crate::spec::{Access, Flags, Group, KeySpec};
use crate::value::bits::{self, BitOp, FieldType, Overflow, Unit};
use crate::value::string::Digits;

const BAD_OFFSET: Error = Error::text("ERR bit offset is not an integer or out of range");

/// The most bytes that a field spans.
const FIELD_BYTES: usize = 9;

fn setbit(ctx: &mut Ctx<'_>, mut args: Args<'_>) -> Done {
    let key = args.bytes()?;
    let offset = offset(ctx, args.bytes()?, None)?;
    let on = match args.bytes()? {
        b"0" => false,
        b"1" => true,
        _ => return Err(Error::text("ERR bit is not an integer or out of range")),
    };
    let db = ctx.session.db;
    let slot = ctx.ks.find(db, key);
    let at = (offset / 8) as usize;
    let (mut byte, len) = window(ctx.ks, db, slot, at)?;
    let was = bits::bit_at(&byte, offset % 8);
    let mask = 0x80 >> (offset % 8);
    byte[0] = if on { byte[0] | mask } else { byte[0] & !mask };
    match slot {
        Some(slot) if was == on && at < len => _ = ctx.ks.make_growable(db, slot),
        slot => {
            ctx.ks.set_range(db, key, slot, at, &byte[..1])?;
        }
    }
    ctx.reply.integer(i64::from(was));
    Ok(())
}

fn getbit(ctx: &mut Ctx<'_>, mut args: Args<'_>) -> Done {
    let key = args.bytes()?;
    let offset = offset(ctx, args.bytes()?, None)?;
    let bit = read(ctx, key, |bytes| Ok(bits::bit_at(bytes, offset)))?;
    ctx.reply.integer(i64::from(bit.unwrap_or(false)));
    Ok(())
}

fn bitcount(ctx: &mut Ctx<'_>, mut args: Args<'_>) -> Done {
    let key = args.bytes()?;
    let (start, end) = match args.len() {
        0 => (0, -1),
        2 | 3 => (args.int()?, args.int()?),
        _ => return Err(Error::Syntax),
    };
    let unit = unit(&mut args)?;
    let count = read(ctx, key, |bytes| Ok(bits::count_range(bytes, start, end, unit)))?;
    ctx.reply.integer(count.unwrap_or(0) as i64);
    Ok(())
}

fn bitpos(ctx: &mut Ctx<'_>, mut args: Args<'_>) -> Done {
    let (key, bit) = (args.bytes()?, args.int()?);
    if bit != 0 && bit != 1 {
        return Err(Error::text("ERR The bit argument must be 1 or 0."));
    }
    let start = if args.is_empty() { 0 } else { args.int()? };
    // Redis parses the unit before the end.
    let end = args.take(args.len().min(1))?;
    let unit = unit(&mut args)?;
    let end = if end.is_empty() { None } else { Some(Args::new(end, 0).int()?) };
    let found = read(ctx, key, |bytes| Ok(bits::position(bytes, bit == 1, start, end, unit)))?;
    // An absent key counts as all zeroes.
    let found = found.unwrap_or((bit == 0).then_some(0));
    ctx.reply.integer(found.map_or(-1, |at| at as i64));
    Ok(())
}

/// Takes `BYTE` or `BIT`, which must be the last argument.
fn unit(args: &mut Args<'_>) -> Result<Unit, Error> {
    let unit = args.one_of(&[("byte", Unit::Byte), ("bit", Unit::Bit)]).unwrap_or(Unit::Byte);
    args.end()?;
    Ok(unit)
}

/// Parses a bit offset, which must lie within the longest allowed string.
fn offset(ctx: &Ctx<'_>, text: &[u8], field: Option<FieldType>) -> Result<u64, Error> {
    bits::parse_offset(text, field, ctx.server.config.proto_max_bulk_len as u64).ok_or(BAD_OFFSET)
}

/// Applies `look` to the string at a key; `None` if the key does not exist.
fn read<T>(ctx: &mut Ctx<'_>, key: &[u8], look: impl FnOnce(&[u8]) -> Result<T, Error>) -> Result<Option<T>, Error> {
    match ctx.ks.read(ctx.session.db, key) {
        None => Ok(None),
        Some(ValueRef::String(string)) => look(string.as_bytes(&mut Digits::new())).map(Some),
        Some(_) => Err(Error::WrongType),
    }
}

/// Returns a few bytes of a string from byte `at` on, padded with zeroes beyond its end, and the string's length.
fn window(ks: &Keyspace, db: DbIndex, slot: Option<Slot>, at: usize) -> Result<([u8; FIELD_BYTES], usize), Error> {
    let mut window = [0; FIELD_BYTES];
    let Some(slot) = slot else { return Ok((window, 0)) };
    let ValueRef::String(string) = ks.value(db, slot) else { return Err(Error::WrongType) };
    let mut digits = Digits::new();
    let bytes = string.as_bytes(&mut digits);
    let part = bytes.get(at..bytes.len().min(at.saturating_add(FIELD_BYTES))).unwrap_or(&[]);
    window[..part.len()].copy_from_slice(part);
    Ok((window, bytes.len()))
}

fn bitop(ctx: &mut Ctx<'_>, mut args: Args<'_>) -> Done {
    let name = args.bytes()?;
    let op = BitOp::parse(name).ok_or(Error::Syntax)?;
    let (destination, sources) = (args.bytes()?, args.rest());
    if op == BitOp::Not && sources.len() != 1 {
        return Err(Error::text("ERR BITOP NOT must be called with a single source key."));
    }
    if matches!(op, BitOp::Diff | BitOp::Diff1 | BitOp::AndOr) && sources.len() < 2 {
        let name = String::from_utf8_lossy(name).to_ascii_uppercase();
        return Err(Error::owned(format!("ERR BITOP {name} must be called with at least two source keys.")));
    }
    let db = ctx.session.db;
    // Looks up every slot first, because a lookup may remove an expired key.
    let slots: Vec<_> = sources.iter().map(|key| ctx.ks.look_up(db, key)).collect();
    let texts = slots.iter().map(|slot| match slot.map(|slot| ctx.ks.value(db, slot)) {
        None => Ok(Cow::Borrowed(&b""[..])),
        Some(ValueRef::String(string)) => Ok(string.text()),
        Some(_) => Err(Error::WrongType),
    });
    let texts: Vec<Cow<'_, [u8]>> = texts.collect::<Result<_, _>>()?;
    let result = bits::combine(op, &texts.iter().map(|text| &**text).collect::<Vec<_>>());
    drop(texts);
    let slot = ctx.ks.find(db, destination);
    match slot {
        Some(slot) if result.is_empty() => ctx.ks.remove(db, slot),
        None if result.is_empty() => {}
        slot => {
            // Written as a range, so that the result stays growable.
            let slot = ctx.ks.put_at(db, destination, slot, b"");
            ctx.ks.set_range(db, destination, Some(slot), 0, &result)?;
        }
    }
    ctx.reply.integer(result.len() as i64);
    Ok(())
}

/// One operation of BITFIELD.
#[derive(Clone, Copy)]
struct FieldOp {
    kind: FieldType,
    offset: u64,
    change: Change,
}

/// The action of a BITFIELD operation on its field.
#[derive(Clone, Copy)]
enum Change {
    Get,
    Set(i64, Overflow),
    Add(i64, Overflow),
}

impl FieldOp {
    /// Takes one operation. `overflow` holds the mode set by the last OVERFLOW.
    fn take(ctx: &Ctx<'_>, args: &mut Args<'_>, overflow: &mut Overflow) -> Result<Option<FieldOp>, Error> {
        type Make = fn(i64, Overflow) -> Change;
        if args.option("overflow", 1) {
            let known = [("wrap", Overflow::Wrap), ("sat", Overflow::Saturate), ("fail", Overflow::Fail)];
            *overflow = args.one_of(&known).ok_or(Error::text("ERR Invalid OVERFLOW type specified"))?;
            return Ok(None);
        }
        let make: Option<Make> = if args.option("get", 2) {
            None
        } else if args.option("set", 3) {
            Some(Change::Set)
        } else if args.option("incrby", 3) {
            Some(Change::Add)
        } else {
            return Err(Error::Syntax);
        };
        let kind = FieldType::parse(args.bytes()?).ok_or(Error::text(
            "ERR Invalid bitfield type. Use something like i16 u8. Note that u64 is not supported but i64 is.",
        ))?;
        let offset = offset(ctx, args.bytes()?, Some(kind))?;
        let change = match make {
            None => Change::Get,
            Some(make) => make(args.int()?, *overflow),
        };
        Ok(Some(FieldOp { kind, offset, change }))
    }

    /// The length in bytes that a string needs to contain the field.
    fn end(&self) -> usize {
        (self.offset + self.kind.bits()).div_ceil(8) as usize
    }

    fn writes(&self) -> bool {
        !matches!(self.change, Change::Get)
    }
}

fn bitfield(ctx: &mut Ctx<'_>, mut args: Args<'_>) -> Done {
    let key = args.bytes()?;
    let ops = field_ops(ctx, args)?;
    let writes_until = ops.iter().filter(|op| op.writes()).map(FieldOp::end).max();
    let db = ctx.session.db;
    let mut slot = if writes_until.is_some() { ctx.ks.find(db, key) } else { ctx.ks.look_up(db, key) };
    window(ctx.ks, db, slot, 0)?;
    ctx.reply.array(ops.len());
    let mut near = Vec::with_capacity(FIELD_BYTES);
    let mut has_written = false;
    for op in &ops {
        let at = (op.offset / 8) as usize;
        let within = op.offset % 8;
        let (before, _) = window(ctx.ks, db, slot, at)?;
        near.clear();
        near.extend_from_slice(&before);
        let answer = match op.change {
            Change::Get => Some(bits::field(&near, within, op.kind)),
            Change::Set(value, overflow) => bits::set_field(&mut near, within, op.kind, value, overflow),
            Change::Add(delta, overflow) => bits::increment_field(&mut near, within, op.kind, delta, overflow),
        };
        has_written |= op.writes() && answer.is_some();
        if op.writes() && answer.is_some() && near[..] != before {
            slot = Some(ctx.ks.set_range(db, key, slot, at, &near[..op.end() - at])?.0);
        }
        match answer {
            Some(value) => ctx.reply.integer(value),
            None => ctx.reply.null(),
        }
    }
    // The string grows to the end of the last field, even if nothing was written there.
    if let Some(end) = writes_until {
        match slot {
            Some(slot) if end <= window(ctx.ks, db, Some(slot), 0)?.1 => _ = ctx.ks.make_growable(db, slot),
            slot => {
                let changes = ctx.ks.changes_by_commands();
                if !has_written {
                    // Every field has overflowed. That does not count as a change, although the string grows.
                    ctx.ks.name_events(SILENT);
                    if slot.is_none() {
                        ctx.ks.note_event(EventClasses::NEW, "new", db, key);
                    }
                }
                ctx.ks.set_range(db, key, slot, end, b"")?;
                if !has_written {
                    ctx.ks.count_changes_as(changes, 0);
                }
            }
        }
    }
    Ok(())
}

fn bitfield_ro(ctx: &mut Ctx<'_>, mut args: Args<'_>) -> Done {
    let key = args.bytes()?;
    let ops = field_ops(ctx, args)?;
    if ops.iter().any(FieldOp::writes) {
        return Err(Error::text("ERR BITFIELD_RO only supports the GET subcommand"));
    }
    let field = |bytes: &[u8], op: &FieldOp| bits::field(bytes, op.offset, op.kind);
    let found = read(ctx, key, |bytes| Ok(ops.iter().map(|op| field(bytes, op)).collect::<Vec<_>>()))?;
    let values = found.unwrap_or_else(|| vec![0; ops.len()]);
    ctx.reply.array(values.len());
    values.into_iter().for_each(|value| ctx.reply.integer(value));
    Ok(())
}

fn field_ops(ctx: &Ctx<'_>, mut args: Args<'_>) -> Result<Vec<FieldOp>, Error> {
    let mut overflow = Overflow::default();
    let mut ops = Vec::new();
    while !args.is_empty() {
        ops.extend(FieldOp::take(ctx, &mut args, &mut overflow)?);
    }
    Ok(ops)
}

const BITMAP: Command = Command { group: Group::Bitmap, keys: &[KeySpec::one(1, Access::Read)], ..Command::EMPTY };

/// How BITFIELD accesses its key, given the options of a call.
fn access_of_bitfield(argv: Argv<'_>) -> Access {
    let changes = |arg: &[u8]| arg.eq_ignore_ascii_case(b"set") || arg.eq_ignore_ascii_case(b"incrby");
    if argv.iter().skip(2).any(changes) { Access::Update } else { Access::Read }
}

/// The family's table.
pub(super) const COMMANDS: &[Command] = &[
    Command {
        name: "bitcount",
        arity: -2,
        flags: Flags::READONLY,
        since: "2.6.0",
        complexity: "O(N) for N bytes read",
        summary: "Counts the set bits of a string or of a part of it.",
        syntax: "key [start end [BYTE | BIT]:unit]:range",
        run: Run::Now(bitcount),
        ..BITMAP
    },
    Command {
        name: "bitfield",
        access_by: Some(access_of_bitfield),
        arity: -2,
        flags: Flags::WRITE.union(Flags::DENYOOM),
        keys: &[KeySpec::one(1, Access::Varying)],
        since: "3.2.0",
        complexity: "O(1) for each operation",
        summary: "Reads and writes integers of any width at any bit of a string.",
        syntax: "key [(GET encoding offset):get-block | ([OVERFLOW <WRAP | SAT | FAIL>]:overflow-block \
            <(SET encoding offset value:integer):set-block | (INCRBY encoding offset \
            increment:integer):incrby-block>:write-operation):write]:operation...",
        event: "setbit",
        run: Run::Now(bitfield),
        ..BITMAP
    },
    Command {
        name: "bitfield_ro",
        arity: -2,
        flags: Flags::READONLY.union(Flags::FAST),
        since: "6.0.0",
        complexity: "O(1) for each operation",
        summary: "Reads integers of any width at any bit of a string.",
        syntax: "key [GET encoding offset]:get-block...",
        run: Run::Now(bitfield_ro),
        ..BITMAP
    },
    Command {
        name: "bitop",
        arity: -4,
        flags: Flags::WRITE.union(Flags::DENYOOM),
        keys: &[KeySpec::one(2, Access::Overwrite), KeySpec::rest(3, 1, Access::Read)],
        since: "2.6.0",
        complexity: "O(N) for the bytes of all sources",
        summary: "Combines the bits of strings and stores the result.",
        syntax: "<AND | OR | XOR | NOT | DIFF | DIFF1 | ANDOR | ONE>:operation destkey:key key...",
        event: "set",
        run: Run::Now(|ctx, args| ctx.as_one_change(|ctx| bitop(ctx, args))),
        ..BITMAP
    },
    Command {
        name: "bitpos",
        arity: -3,
        flags: Flags::READONLY,
        since: "2.8.7",
        complexity: "O(N) for N bytes read",
        summary: "Finds the first set or clear bit in a string or a part of it.",
        syntax: "key bit [start [end [BYTE | BIT]:unit]:end-unit-block]:range",
        run: Run::Now(bitpos),
        ..BITMAP
    },
    Command {
        name: "getbit",
        arity: 3,
        flags: Flags::READONLY.union(Flags::FAST),
        since: "2.2.0",
        summary: "Returns one bit of a string.",
        syntax: "key offset",
        run: Run::Now(getbit),
        ..BITMAP
    },
    Command {
        name: "setbit",
        arity: 4,
        flags: Flags::WRITE.union(Flags::DENYOOM),
        keys: &[KeySpec::one(1, Access::Update)],
        since: "2.2.0",
        summary: "Sets or clears one bit of a string, which grows as needed.",
        syntax: "key offset value:integer",
        event: "setbit",
        run: Run::Now(setbit),
        ..BITMAP
    },
];
