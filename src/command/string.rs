//! Strings: values and counters, and the options of SET.
//!
//! GET, SET without options and INCR are the most frequent commands of such a server: one lookup, no allocation.

use std::borrow::Cow;

use super::compare::Comparison;
use super::deadline::Count;
use super::many_keys::for_each_key;
use super::string_value::read_string;
pub(super) use super::string_value::string_at;
use crate::base::long_double::LongDouble;
use crate::base::num;
use crate::command::limits::{REPLY_FORESEEN_BYTES, REPLY_FORESEEN_ITEMS};
use crate::engine::{Command, Ctx, Done, Run};
use crate::keyspace::any_value::ValueRef;
use crate::keyspace::entry::Entry;
use crate::keyspace::{NEVER, Slot};
use crate::resp::request::Argv;
use crate::session::limits::OUTBOX_TAKE_OVER_BYTES;
use crate::spec::args::Args;
use crate::spec::error::Error;
use crate::spec::{Access, Flags, Group, KeySpec};
use crate::value::lcs;
use crate::value::string::{Digits, StringRef};

fn get(ctx: &mut Ctx<'_>, mut args: Args<'_>) -> Done {
    let key = args.bytes()?;
    match ctx.ks.read(ctx.session.db, key) {
        None => ctx.reply.null(),
        Some(ValueRef::String(string)) => match string.as_bytes(&mut Digits::new()) {
            bytes if bytes.len() < OUTBOX_TAKE_OVER_BYTES => ctx.reply.bulk(bytes),
            _ => answer_large(ctx, key),
        },
        Some(_) => return Err(Error::WrongType),
    }
    Ok(())
}

/// Replies with a large string that was found just before.
#[cold]
fn answer_large(ctx: &mut Ctx<'_>, key: &[u8]) {
    let Some(ValueRef::String(string)) = ctx.ks.live(ctx.session.db, key).map(|entry| entry.value()) else {
        return ctx.reply.null();
    };
    let digits = &mut Digits::new();
    ctx.server.answer_large(ctx.session, ctx.reply, ctx.origin, ctx.ks.fence(), string.as_bytes(digits));
}

fn mget(ctx: &mut Ctx<'_>, args: Args<'_>) -> Done {
    let keys = args.rest();
    ctx.reply.array(keys.len());
    if keys.len() <= REPLY_FORESEEN_ITEMS {
        answer_each(ctx, keys);
        return Ok(());
    }
    let start = ctx.reply.len();
    let (first, rest) = (keys.slice(0, REPLY_FORESEEN_ITEMS), keys.slice(REPLY_FORESEEN_ITEMS, keys.len()));
    answer_each(ctx, first);
    if ctx.reply.len() - start > REPLY_FORESEEN_BYTES {
        // Looks without a trace: each key counts as used once, when it is written.
        let len = |key| match ctx.ks.live(ctx.session.db, key).map(Entry::value) {
            Some(ValueRef::String(string)) => string.len(),
            // Even a null takes a byte.
            _ => 1,
        };
        ctx.reply.announce(rest.iter().map(len));
    }
    answer_each(ctx, rest);
    Ok(())
}

#[inline]
fn answer_each(ctx: &mut Ctx<'_>, keys: Argv<'_>) {
    for_each_key(ctx, keys, 1, |ctx, _, key| match ctx.ks.read(ctx.session.db, key) {
        Some(ValueRef::String(string)) => ctx.reply.bulk(string.as_bytes(&mut Digits::new())),
        _ => ctx.reply.null(),
    });
}

/// Replies with the string at `slot`, or null without a slot.
fn answer(ctx: &mut Ctx<'_>, slot: Option<Slot>) -> Done {
    match slot {
        None => ctx.reply.null(),
        Some(slot) => ctx.reply.bulk(string_at(ctx.ks, ctx.session.db, slot)?.as_bytes(&mut Digits::new())),
    }
    Ok(())
}

fn set(ctx: &mut Ctx<'_>, mut args: Args<'_>) -> Done {
    let (key, value) = (args.bytes()?, args.bytes()?);
    if !args.is_empty() {
        return set_with_options(ctx, key, value, args);
    }
    ctx.ks.put(ctx.session.db, key, value);
    ctx.reply.ok();
    Ok(())
}

/// The condition of SET.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Only<'a> {
    Always,
    IfAbsent,
    IfPresent,
    If(Comparison, &'a [u8]),
}

impl<'a> Only<'a> {
    /// Takes one option. Returns false if the next argument is not one, or contradicts an earlier one.
    fn take(&mut self, args: &mut Args<'a>) -> Result<bool, Error> {
        let earlier = *self;
        if matches!(earlier, Only::Always | Only::IfAbsent) && args.flag("nx") {
            *self = Only::IfAbsent;
        } else if matches!(earlier, Only::Always | Only::IfPresent) && args.flag("xx") {
            *self = Only::IfPresent;
        } else {
            let fits = |comparison: &Comparison| match earlier {
                Only::Always => true,
                Only::If(earlier, _) => earlier == *comparison,
                _ => false,
            };
            let found = Comparison::ALL.into_iter().filter(|(_, c)| fits(c)).find(|(word, _)| args.option(word, 1));
            let Some((_, comparison)) = found else { return Ok(false) };
            *self = Only::If(comparison, args.bytes()?);
        }
        Ok(true)
    }

    /// Whether the condition holds for the value at `slot`.
    fn allows(self, ctx: &Ctx<'_>, slot: Option<Slot>) -> Result<bool, Error> {
        Ok(match (self, slot) {
            (Only::Always, _) => true,
            (Only::IfAbsent, slot) => slot.is_none(),
            (Only::IfPresent, slot) => slot.is_some(),
            (Only::If(comparison, _), None) => comparison.holds_for_none(),
            (Only::If(comparison, text), Some(slot)) => {
                comparison.holds(string_at(ctx.ks, ctx.session.db, slot)?, text)?
            }
        })
    }
}

/// The expiry option of SET, GETEX, MSETEX and INCREX.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Term<'a> {
    /// No option.
    #[default]
    Unsaid,
    /// The expiry stays.
    Keep,
    /// The expiry is removed.
    Lift,
    /// The string expires at this time.
    At(Count, &'a [u8]),
}

impl<'a> Term<'a> {
    /// Takes one option. Returns false if the next argument is not one, or contradicts an earlier one.
    pub(super) fn take(&mut self, args: &mut Args<'a>, word: &str, lasting: Term<'a>) -> Result<bool, Error> {
        if (*self == Term::Unsaid || *self == lasting) && args.flag(word) {
            *self = lasting;
            return Ok(true);
        }
        self.take_deadline(args)
    }

    /// As [`take`](Self::take), for options with a time only.
    pub(super) fn take_deadline(&mut self, args: &mut Args<'a>) -> Result<bool, Error> {
        const COUNTS: [(&str, Count); 4] = [
            ("ex", Count::Seconds),
            ("px", Count::Milliseconds),
            ("exat", Count::UnixSeconds),
            ("pxat", Count::UnixMilliseconds),
        ];
        for (word, count) in COUNTS {
            let fits = match self {
                Term::Unsaid => true,
                Term::At(earlier, _) => *earlier == count,
                _ => false,
            };
            if fits && args.option(word, 1) {
                *self = Term::At(count, args.bytes()?);
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Returns the deadline in Unix ms, if the option has one.
    pub(super) fn deadline(self, ctx: &Ctx<'_>) -> Result<Option<i64>, Error> {
        match self {
            Term::At(count, text) => lifetime(ctx, count, num::parse_i64(text).ok_or(Error::NotInteger)?).map(Some),
            _ => Ok(None),
        }
    }
}

/// Returns the deadline of a lifetime or time `n`, which must be positive. Unix ms.
fn lifetime(ctx: &Ctx<'_>, count: Count, n: i64) -> Result<i64, Error> {
    let at_ms = if n > 0 { count.deadline(n, ctx.now_ms()) } else { None };
    at_ms.ok_or(Error::InvalidExpire(Cow::Borrowed(ctx.name())))
}

fn set_with_options<'a>(ctx: &mut Ctx<'_>, key: &[u8], value: &[u8], mut args: Args<'a>) -> Done {
    let (mut only, mut answers_old, mut term) = (Only::Always, false, Term::Unsaid);
    while !args.is_empty() {
        if args.flag("get") {
            answers_old = true;
        } else if !only.take(&mut args)? && !term.take(&mut args, "keepttl", Term::Keep)? {
            return Err(Error::Syntax);
        }
    }
    let at_ms = term.deadline(ctx)?;
    let db = ctx.session.db;
    let slot = if answers_old { ctx.ks.look_up(db, key) } else { ctx.ks.find(db, key) };
    if answers_old {
        answer(ctx, slot)?;
    }
    let refused = !only.allows(ctx, slot)?;
    if !refused {
        store(ctx, key, slot, value, term, at_ms);
    }
    match (answers_old, refused) {
        (true, _) => {}
        (false, true) => ctx.reply.null(),
        (false, false) => ctx.reply.ok(),
    }
    Ok(())
}

/// Stores a string in place of any value at `slot`, with the expiry of `term`; `at_ms` is the deadline, if it has one.
fn store(ctx: &mut Ctx<'_>, key: &[u8], slot: Option<Slot>, value: &[u8], term: Term<'_>, at_ms: Option<i64>) {
    let db = ctx.session.db;
    match slot {
        Some(slot) if term == Term::Keep => _ = ctx.ks.replace(db, slot, value),
        slot => _ = ctx.ks.put_until(db, key, slot, value, at_ms.unwrap_or(NEVER)),
    }
}

/// SETEX and PSETEX.
fn set_for(ctx: &mut Ctx<'_>, mut args: Args<'_>, count: Count) -> Done {
    let (key, n, value) = (args.bytes()?, args.int()?, args.bytes()?);
    let at_ms = lifetime(ctx, count, n)?;
    let db = ctx.session.db;
    let slot = ctx.ks.find(db, key);
    _ = ctx.ks.put_until(db, key, slot, value, at_ms);
    ctx.reply.ok();
    Ok(())
}

fn setnx(ctx: &mut Ctx<'_>, mut args: Args<'_>) -> Done {
    let (key, value) = (args.bytes()?, args.bytes()?);
    let absent = ctx.ks.find(ctx.session.db, key).is_none();
    if absent {
        _ = ctx.ks.put_at(ctx.session.db, key, None, value);
    }
    ctx.reply.integer(i64::from(absent));
    Ok(())
}

fn getset(ctx: &mut Ctx<'_>, mut args: Args<'_>) -> Done {
    let (key, value) = (args.bytes()?, args.bytes()?);
    let slot = ctx.ks.look_up(ctx.session.db, key);
    answer(ctx, slot)?;
    _ = ctx.ks.put_at(ctx.session.db, key, slot, value);
    Ok(())
}

fn getdel(ctx: &mut Ctx<'_>, mut args: Args<'_>) -> Done {
    let key = args.bytes()?;
    let slot = ctx.ks.look_up(ctx.session.db, key);
    answer(ctx, slot)?;
    if let Some(slot) = slot {
        ctx.ks.remove(ctx.session.db, slot);
    }
    Ok(())
}

fn getex(ctx: &mut Ctx<'_>, mut args: Args<'_>) -> Done {
    let key = args.bytes()?;
    let mut term = Term::Unsaid;
    while !args.is_empty() {
        if !term.take(&mut args, "persist", Term::Lift)? {
            return Err(Error::Syntax);
        }
    }
    let db = ctx.session.db;
    let slot = ctx.ks.look_up(db, key);
    answer(ctx, slot)?;
    let Some(slot) = slot else { return Ok(()) };
    match term.deadline(ctx)? {
        Some(at_ms) if ctx.ks.expires_at_once(at_ms) => ctx.ks.remove(db, slot),
        Some(at_ms) => _ = ctx.ks.expire_at(db, slot, at_ms),
        None if term == Term::Lift && ctx.ks.entry(db, slot).expires_at_ms().is_some() => {
            _ = ctx.ks.expire_at(db, slot, NEVER);
        }
        None => {}
    }
    Ok(())
}

/// A key and a value.
type Pair<'a> = (&'a [u8], &'a [u8]);

/// Returns the key-value pairs of MSET and MSETNX.
fn pairs<'a>(ctx: &Ctx<'_>, mut args: Args<'a>) -> Result<impl Iterator<Item = Pair<'a>> + use<'a>, Error> {
    check_pairs(ctx, &args)?;
    Ok(std::iter::from_fn(move || Some((args.bytes().ok()?, args.bytes().ok()?))))
}

fn check_pairs(ctx: &Ctx<'_>, args: &Args<'_>) -> Done {
    if args.len().is_multiple_of(2) { Ok(()) } else { Err(Error::Arity(Cow::Borrowed(ctx.name()))) }
}

fn mset(ctx: &mut Ctx<'_>, args: Args<'_>) -> Done {
    check_pairs(ctx, &args)?;
    for_each_key(ctx, args.rest(), 2, |ctx, at, key| {
        if let Some(value) = args.rest().get(at + 1) {
            ctx.ks.put(ctx.session.db, key, value);
        }
    });
    ctx.reply.ok();
    Ok(())
}

fn msetnx(ctx: &mut Ctx<'_>, args: Args<'_>) -> Done {
    let mut named = pairs(ctx, args)?;
    let taken = named.any(|(key, _)| ctx.ks.find(ctx.session.db, key).is_some());
    if !taken {
        for (key, value) in pairs(ctx, args)? {
            ctx.ks.put(ctx.session.db, key, value);
        }
    }
    ctx.reply.integer(i64::from(!taken));
    Ok(())
}

fn msetex(ctx: &mut Ctx<'_>, mut args: Args<'_>) -> Done {
    const BAD_COUNT: Error = Error::text("ERR invalid numkeys value");
    let count = i32::try_from(args.int_or(BAD_COUNT)?).ok().filter(|count| *count > 0).ok_or(BAD_COUNT)? as usize;
    let named = args.take(count * 2).map_err(|_| Error::text("ERR wrong number of key-value pairs"))?;
    let (mut only, mut term) = (Only::Always, Term::Unsaid);
    while !args.is_empty() {
        let compares = Comparison::ALL.iter().any(|(word, _)| { args }.flag(word));
        if compares || !only.take(&mut args)? && !term.take(&mut args, "keepttl", Term::Keep)? {
            return Err(Error::Syntax);
        }
    }
    let at_ms = term.deadline(ctx)?;
    let db = ctx.session.db;
    let mut allowed = true;
    for (key, _) in pairs(ctx, Args::new(named, 0))? {
        let slot = ctx.ks.find(db, key);
        allowed &= only.allows(ctx, slot)?;
    }
    if allowed {
        for (key, value) in pairs(ctx, Args::new(named, 0))? {
            let slot = ctx.ks.find(db, key);
            store(ctx, key, slot, value, term, at_ms);
        }
    }
    ctx.reply.integer(i64::from(allowed));
    Ok(())
}

/// Adds to the counter at `key`, which starts at 0; its expiry stays.
#[inline]
fn add(ctx: &mut Ctx<'_>, key: &[u8], delta: i64) -> Done {
    let db = ctx.session.db;
    let Some(slot) = ctx.ks.find(db, key) else {
        _ = ctx.ks.put_integer(db, key, None, delta);
        ctx.reply.integer(delta);
        return Ok(());
    };
    let ValueRef::String(string) = ctx.ks.value(db, slot) else { return Err(Error::WrongType) };
    let Some(current) = string.as_i64() else { return Err(Error::NotInteger) };
    let Some(value) = current.checked_add(delta) else { return Err(Error::Overflow) };
    _ = ctx.ks.put_integer(db, key, Some(slot), value);
    ctx.reply.integer(value);
    Ok(())
}

fn incr(ctx: &mut Ctx<'_>, mut args: Args<'_>) -> Done {
    let key = args.bytes()?;
    add(ctx, key, 1)
}

fn decr(ctx: &mut Ctx<'_>, mut args: Args<'_>) -> Done {
    let key = args.bytes()?;
    add(ctx, key, -1)
}

fn incrby(ctx: &mut Ctx<'_>, mut args: Args<'_>) -> Done {
    let (key, delta) = (args.bytes()?, args.int()?);
    add(ctx, key, delta)
}

fn decrby(ctx: &mut Ctx<'_>, mut args: Args<'_>) -> Done {
    let (key, delta) = (args.bytes()?, args.int()?);
    add(ctx, key, delta.checked_neg().ok_or(Error::text("ERR decrement would overflow"))?)
}

fn incrbyfloat(ctx: &mut Ctx<'_>, mut args: Args<'_>) -> Done {
    let (key, delta) = (args.bytes()?, args.bytes()?);
    let db = ctx.session.db;
    let slot = ctx.ks.find(db, key);
    let current = match slot {
        None => LongDouble::parse(b"0"),
        Some(slot) => LongDouble::parse(string_at(ctx.ks, db, slot)?.as_bytes(&mut Digits::new())),
    };
    let (current, delta) = current.zip(LongDouble::parse(delta)).ok_or(Error::NotFloat)?;
    let sum = current.checked_add(delta).ok_or(Error::text("ERR increment would produce NaN or Infinity"))?;
    let mut text = Vec::with_capacity(40);
    sum.write_human(&mut text);
    _ = ctx.ks.put_text(db, key, slot, &text);
    ctx.reply.bulk(&text);
    Ok(())
}

/// Refuses a string that would be longer than `proto-max-bulk-len`.
fn check_length(ctx: &Ctx<'_>, offset: usize, more: usize) -> Result<(), Error> {
    match offset.checked_add(more) {
        Some(len) if len <= ctx.server.config.proto_max_bulk_len => Ok(()),
        _ => Err(Error::StringTooLong),
    }
}

fn append(ctx: &mut Ctx<'_>, mut args: Args<'_>) -> Done {
    let (key, value) = (args.bytes()?, args.bytes()?);
    let db = ctx.session.db;
    let slot = ctx.ks.find(db, key);
    let len = match slot {
        None => {
            _ = ctx.ks.put_at(db, key, None, value);
            value.len()
        }
        Some(place) => {
            let len = string_at(ctx.ks, db, place)?.len();
            check_length(ctx, len, value.len())?;
            ctx.ks.set_range(db, key, slot, len, value)?.1
        }
    };
    ctx.reply.integer(len as i64);
    Ok(())
}

fn strlen(ctx: &mut Ctx<'_>, mut args: Args<'_>) -> Done {
    let len = read_string(ctx, args.bytes()?)?.map_or(0, StringRef::len);
    ctx.reply.integer(len as i64);
    Ok(())
}

fn setrange(ctx: &mut Ctx<'_>, mut args: Args<'_>) -> Done {
    let (key, offset, value) = (args.bytes()?, args.int()?, args.bytes()?);
    let offset = usize::try_from(offset).map_err(|_| Error::text("ERR offset is out of range"))?;
    let db = ctx.session.db;
    let slot = ctx.ks.find(db, key);
    let len = match slot {
        None => 0,
        Some(slot) => string_at(ctx.ks, db, slot)?.len(),
    };
    let len = if value.is_empty() {
        len
    } else {
        check_length(ctx, offset, value.len())?;
        ctx.ks.set_range(db, key, slot, offset, value)?.1
    };
    ctx.reply.integer(len as i64);
    Ok(())
}

fn getrange(ctx: &mut Ctx<'_>, mut args: Args<'_>) -> Done {
    let (key, start, end) = (args.bytes()?, args.int()?, args.int()?);
    match ctx.ks.read(ctx.session.db, key) {
        None => ctx.reply.bulk(b""),
        Some(ValueRef::String(string)) => ctx.reply.bulk(part(string.as_bytes(&mut Digits::new()), start, end)),
        Some(_) => return Err(Error::WrongType),
    }
    Ok(())
}

/// Returns the bytes from `start` to `end`, both included; negative ones count from the end.
fn part(text: &[u8], start: i64, end: i64) -> &[u8] {
    if start < 0 && end < 0 && start > end {
        return b"";
    }
    let len = text.len() as i64;
    let from_front = |at: i64| if at < 0 { at.saturating_add(len).max(0) } else { at };
    let (start, end) = (from_front(start), from_front(end).min(len - 1));
    if start > end { b"" } else { text.get(start as usize..=end as usize).unwrap_or(b"") }
}

fn lcs(ctx: &mut Ctx<'_>, mut args: Args<'_>) -> Done {
    let (a, b) = (args.bytes()?, args.bytes()?);
    let (a, b) = (lcs_text(ctx, a)?, lcs_text(ctx, b)?);
    let (mut wants_len, mut wants_matches, mut with_len, mut min_len) = (false, false, false, 0);
    while !args.is_empty() {
        if args.flag("idx") {
            wants_matches = true;
        } else if args.flag("len") {
            wants_len = true;
        } else if args.flag("withmatchlen") {
            with_len = true;
        } else if args.option("minmatchlen", 1) {
            min_len = args.int()?.max(0) as usize;
        } else {
            return Err(Error::Syntax);
        }
    }
    if wants_len && wants_matches {
        return Err(Error::text("ERR If you want both the length and indexes, please just use IDX."));
    }
    let table = lcs::Table::new(&a, &b, ctx.server.config.proto_max_bulk_len)
        .ok_or(Error::text("ERR Insufficient memory, transient memory for LCS exceeds proto-max-bulk-len"))?;
    if wants_len {
        ctx.reply.integer(table.len() as i64);
    } else if wants_matches {
        let runs = table.runs();
        let shown = || runs.iter().filter(|run| run.len >= min_len);
        ctx.reply.map(2);
        ctx.reply.bulk(b"matches");
        ctx.reply.array(shown().count());
        for run in shown() {
            ctx.reply.array(2 + usize::from(with_len));
            for start in [run.a, run.b] {
                ctx.reply.array(2);
                ctx.reply.integer(start as i64);
                ctx.reply.integer((start + run.len - 1) as i64);
            }
            if with_len {
                ctx.reply.integer(run.len as i64);
            }
        }
        ctx.reply.bulk(b"len");
        ctx.reply.integer(table.len() as i64);
    } else {
        ctx.reply.bulk(&table.text());
    }
    Ok(())
}

/// Returns a copy of a string for LCS; an absent key counts as an empty string.
fn lcs_text(ctx: &mut Ctx<'_>, key: &[u8]) -> Result<Vec<u8>, Error> {
    const NOT_STRINGS: Error = Error::text("ERR The specified keys must contain string values");
    read_string(ctx, key).map_err(|_| NOT_STRINGS).map(|string| string.map_or(Vec::new(), |s| s.text().into_owned()))
}

const READ: Flags = Flags::READONLY;
const WRITE: Flags = Flags::WRITE.union(Flags::DENYOOM);
const FAST: Flags = Flags::FAST;

const STRING: Command = Command { group: Group::String, keys: &[KeySpec::one(1, Access::Update)], ..Command::EMPTY };

/// How SET accesses its key, given the options of a call.
fn access_of_set(argv: Argv<'_>) -> Access {
    let reads = |arg: &[u8]| {
        ["get", "ifeq", "ifne", "ifdeq", "ifdne"].iter().any(|word| arg.eq_ignore_ascii_case(word.as_bytes()))
    };
    if argv.iter().skip(3).any(reads) { Access::Update } else { Access::Overwrite }
}

/// The family's table.
pub(super) const COMMANDS: &[Command] = &[
    Command {
        name: "append",
        arity: 3,
        flags: WRITE.union(FAST),
        keys: &[KeySpec::one(1, Access::Insert)],
        since: "2.0.0",
        complexity: "O(M) for M bytes appended, amortized",
        summary: "Appends to a string and returns its length; creates the key if it does not exist.",
        syntax: "key value",
        event: "append",
        run: Run::Now(append),
        ..STRING
    },
    Command {
        name: "decr",
        arity: 2,
        flags: WRITE.union(FAST),
        summary: "Decrements a counter by one.",
        syntax: "key",
        event: "incrby",
        run: Run::Now(decr),
        ..STRING
    },
    Command {
        name: "decrby",
        arity: 3,
        flags: WRITE.union(FAST),
        summary: "Decrements a counter by a number.",
        syntax: "key decrement:integer",
        event: "incrby",
        run: Run::Now(decrby),
        ..STRING
    },
    Command {
        name: "get",
        arity: 2,
        flags: READ.union(FAST),
        keys: &[KeySpec::one(1, Access::Read)],
        summary: "Returns the string value of a key.",
        syntax: "key",
        run: Run::Now(get),
        ..STRING
    },
    Command {
        name: "getdel",
        arity: 2,
        flags: Flags::WRITE.union(FAST),
        keys: &[KeySpec::one(1, Access::Take)],
        since: "6.2.0",
        summary: "Returns the string value of a key and deletes the key.",
        syntax: "key",
        run: Run::Now(getdel),
        ..STRING
    },
    Command {
        name: "getex",
        arity: -2,
        flags: Flags::WRITE.union(FAST),
        since: "6.2.0",
        summary: "Returns the string value of a key and sets or removes its expiry.",
        syntax: "key [EX seconds | PX milliseconds | EXAT unix-time-seconds | PXAT unix-time-milliseconds | \
            PERSIST]:expiration",
        run: Run::Now(getex),
        ..STRING
    },
    Command {
        name: "getrange",
        arity: 4,
        flags: READ,
        keys: &[KeySpec::one(1, Access::Read)],
        since: "2.4.0",
        complexity: "O(N) for N bytes returned",
        summary: "Returns a part of a string.",
        syntax: "key start end",
        run: Run::Now(getrange),
        ..STRING
    },
    Command {
        name: "getset",
        arity: 3,
        flags: WRITE.union(FAST),
        summary: "Stores a string and returns the previous one.",
        syntax: "key value",
        run: Run::Now(getset),
        ..STRING
    },
    Command {
        name: "incr",
        arity: 2,
        flags: WRITE.union(FAST),
        summary: "Increments a counter by one.",
        syntax: "key",
        event: "incrby",
        run: Run::Now(incr),
        ..STRING
    },
    Command {
        name: "incrby",
        arity: 3,
        flags: WRITE.union(FAST),
        summary: "Increments a counter by a number.",
        syntax: "key increment:integer",
        event: "incrby",
        run: Run::Now(incrby),
        ..STRING
    },
    Command {
        name: "incrbyfloat",
        arity: 3,
        flags: WRITE.union(FAST),
        since: "2.6.0",
        summary: "Increments a number by a floating-point number.",
        syntax: "key increment:double",
        event: "incrbyfloat",
        run: Run::Now(incrbyfloat),
        ..STRING
    },
    Command {
        name: "lcs",
        arity: -3,
        flags: READ,
        keys: &[KeySpec::range(1, 1, 1, Access::Read)],
        since: "7.0.0",
        complexity: "O(N*M) for strings of N and M bytes",
        summary: "Finds the longest common subsequence of two strings.",
        syntax: "key1:key key2:key [LEN] [IDX] [MINMATCHLEN min-match-len:integer] [WITHMATCHLEN]",
        run: Run::Now(lcs),
        ..STRING
    },
    Command {
        name: "mget",
        arity: -2,
        flags: READ.union(FAST),
        keys: &[KeySpec::rest(1, 1, Access::Read)],
        complexity: "O(N) for N keys",
        summary: "Returns the string values of several keys.",
        syntax: "key...",
        tips: &["request_policy:multi_shard"],
        run: Run::Now(mget),
        ..STRING
    },
    Command {
        name: "mset",
        arity: -3,
        flags: WRITE,
        keys: &[KeySpec::rest(1, 2, Access::Overwrite)],
        since: "1.0.1",
        complexity: "O(N) for N keys",
        summary: "Stores several strings.",
        syntax: "(key value):data...",
        tips: &["request_policy:multi_shard", "response_policy:all_succeeded"],
        run: Run::Now(mset),
        ..STRING
    },
    Command {
        name: "msetex",
        arity: -4,
        flags: WRITE.union(Flags::MOVABLEKEYS),
        keys: &[KeySpec::counted_pairs(1, Access::Overwrite)],
        since: "8.4.0",
        complexity: "O(N) for N keys",
        summary: "Stores several strings with the same expiry, optionally only if all or none of the keys exist.",
        syntax: "numkeys (key value)... [NX | XX] \
            [EX seconds | PX milliseconds | EXAT unix-time-seconds | PXAT unix-time-milliseconds | KEEPTTL]",
        tips: &["request_policy:multi_shard", "response_policy:all_succeeded"],
        run: Run::Now(msetex),
        ..STRING
    },
    Command {
        name: "msetnx",
        arity: -3,
        flags: WRITE,
        keys: &[KeySpec::rest(1, 2, Access::Create)],
        since: "1.0.1",
        complexity: "O(N) for N keys",
        summary: "Stores several strings unless any of the keys exists.",
        syntax: "(key value):data...",
        run: Run::Now(msetnx),
        ..STRING
    },
    Command {
        name: "psetex",
        arity: 4,
        flags: WRITE,
        keys: &[KeySpec::one(1, Access::Overwrite)],
        since: "2.6.0",
        summary: "Stores a string with an expiry in milliseconds.",
        syntax: "key milliseconds value",
        run: Run::Now(|ctx, args| set_for(ctx, args, Count::Milliseconds)),
        ..STRING
    },
    Command {
        name: "set",
        access_by: Some(access_of_set),
        arity: -3,
        flags: WRITE,
        keys: &[KeySpec::one(1, Access::Varying)],
        summary: "Stores a string and replaces any previous value.",
        syntax: "key value \
            [NX | XX | IFEQ ifeq-value | IFNE ifne-value | IFDEQ ifdeq-digest | IFDNE ifdne-digest]:condition [GET] \
            [EX seconds | PX milliseconds | EXAT unix-time-seconds | PXAT unix-time-milliseconds | KEEPTTL]:expiration",
        run: Run::Now(set),
        ..STRING
    },
    Command {
        name: "setex",
        arity: 4,
        flags: WRITE,
        keys: &[KeySpec::one(1, Access::Overwrite)],
        since: "2.0.0",
        summary: "Stores a string with an expiry in seconds.",
        syntax: "key seconds value",
        run: Run::Now(|ctx, args| set_for(ctx, args, Count::Seconds)),
        ..STRING
    },
    Command {
        name: "setnx",
        arity: 3,
        flags: WRITE.union(FAST),
        keys: &[KeySpec::one(1, Access::Create)],
        summary: "Stores a string unless the key exists.",
        syntax: "key value",
        run: Run::Now(setnx),
        ..STRING
    },
    Command {
        name: "setrange",
        arity: 4,
        flags: WRITE,
        keys: &[KeySpec::one(1, Access::Modify)],
        since: "2.2.0",
        complexity: "O(N) for a string that grows to N bytes, else O(M) for M bytes written",
        summary: "Overwrites a part of a string, which grows as needed.",
        syntax: "key offset value",
        event: "setrange",
        run: Run::Now(setrange),
        ..STRING
    },
    Command {
        name: "strlen",
        arity: 2,
        flags: READ.union(FAST),
        keys: &[KeySpec::one(1, Access::Inspect)],
        since: "2.2.0",
        summary: "Returns the length of a string in bytes.",
        syntax: "key",
        run: Run::Now(strlen),
        ..STRING
    },
    Command {
        name: "substr",
        arity: 4,
        flags: READ,
        keys: &[KeySpec::one(1, Access::Read)],
        complexity: "O(N) for N bytes returned",
        summary: "Returns a part of a string; the old name of GETRANGE.",
        syntax: "key start end",
        run: Run::Now(getrange),
        ..STRING
    },
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::clock::Clock;
    use crate::base::rng::Rng;
    use crate::config::Config;
    use crate::engine::Engine;
    use crate::keyspace::effect::Recording;
    use crate::resp::reply::{Form, Reply};
    use crate::resp::request::Decoder;
    use crate::session::Peer;

    #[test]
    fn missing_keys_count_in_a_foreseen_reply_no_more_than_they_take() {
        let clock = Clock::manual(1_700_000_000_000);
        let mut engine =
            Engine::new(Config::default(), crate::command::table(), clock, Rng::seeded(1)).expect("a fresh engine");
        let client = engine.server.open_session(Peer::default());
        let large = vec![b'x'; 1 + REPLY_FORESEEN_BYTES / REPLY_FORESEEN_ITEMS];
        engine.ks.begin_unit(0, Recording::Nothing);
        engine.ks.put(0, b"large", &large);
        let missing = 1_000;
        let words = 1 + REPLY_FORESEEN_ITEMS + missing;
        let mut input = format!("*{words}\r\n$4\r\nMGET\r\n").into_bytes();
        input.extend(b"$5\r\nlarge\r\n".repeat(REPLY_FORESEEN_ITEMS));
        input.extend(b"$0\r\n\r\n".repeat(missing));
        for (form, null) in [(Form::Resp2, "$-1\r\n"), (Form::Resp3, "_\r\n")] {
            let bytes = format!("*{}\r\n", words - 1).len()
                + REPLY_FORESEEN_ITEMS * (format!("${}\r\n\r\n", large.len()).len() + large.len())
                + missing * null.len();
            let session = engine.server.clients.sessions.get_mut(client).expect("it is open");
            session.protocol = if form == Form::Resp3 { 3 } else { 2 };
            let mut reply = Reply::new(form);
            reply.fit_longest(engine.server.config.proto_max_bulk_len);
            reply.set_limit(bytes);
            engine.feed(client, &mut Decoder::new(), &input, &mut reply);
            assert_eq!(reply.len(), bytes, "{form:?}");
        }
    }
}
