//! Lifetimes of elements: fields of a hash and members of a set that expire on their own.
//!
//! The two families differ only in their words (`FIELDS`, `MEMBERS`), so one function implements each command of both.
//! The commands of hashes come from Redis 7.4 and 8.0, those of sets from 8.12. Unlike elsewhere, words and options may
//! come in any order, and some commands look at the key before their arguments: errors follow Redis' order.

use std::ops::RangeInclusive;

use super::deadline::Count;
use super::item::bulk_item;
use crate::base::num::parse_i64;
use crate::engine::{Command, Ctx, Done, Run};
use crate::keyspace::any_value::ValueRef;
use crate::keyspace::{NEVER, Slot};
use crate::resp::limits::REPLY_MAX_BYTES;
use crate::resp::request::Argv;
use crate::spec::args::Args;
use crate::spec::error::{Error, excerpt};
use crate::spec::{Access, Flags, Group, KeySpec};

/// The latest deadline of an element, Unix ms: Redis stores 46 bits.
const LATEST_MS: i64 = (1 << 46) - 1;

/// Codes in replies.
const NO_ELEMENT: i64 = -2;
const NO_DEADLINE: i64 = -1;
const NOT_MET: i64 = 0;
const DONE: i64 = 1;
const REMOVED: i64 = 2;

/// The family of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Family {
    Hash,
    Set,
}

use Family::{Hash, Set};

impl Family {
    /// The word before the elements.
    fn word(self) -> &'static str {
        if self == Hash { "FIELDS" } else { "MEMBERS" }
    }

    /// The word for one element.
    fn one(self) -> &'static str {
        if self == Hash { "field" } else { "member" }
    }

    /// Whether the value has the family's type.
    fn owns(self, value: ValueRef<'_>) -> bool {
        matches!((self, value), (Hash, ValueRef::Hash(_)) | (Set, ValueRef::Set(_)))
    }

    /// Finds the key for a command that writes.
    fn find(self, ctx: &mut Ctx<'_>, key: &[u8]) -> Result<Option<Slot>, Error> {
        let slot = ctx.ks.find(ctx.session.db, key);
        self.checked(ctx, slot)
    }

    fn checked(self, ctx: &Ctx<'_>, slot: Option<Slot>) -> Result<Option<Slot>, Error> {
        match slot {
            Some(slot) if !self.owns(ctx.ks.value(ctx.session.db, slot)) => Err(Error::WrongType),
            slot => Ok(slot),
        }
    }
}

/// The condition for setting an element's deadline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Condition {
    Always,
    /// Only if it has no deadline.
    Nx,
    /// Only if it has a deadline.
    Xx,
    /// Only if the new deadline is later; no deadline counts as the latest.
    Gt,
    /// Only if the new deadline is sooner.
    Lt,
}

impl Condition {
    fn is_met(self, current_ms: i64, at_ms: i64) -> bool {
        match self {
            Condition::Always => true,
            Condition::Nx => current_ms == NEVER,
            Condition::Xx => current_ms != NEVER,
            Condition::Gt => at_ms > current_ms,
            Condition::Lt => at_ms < current_ms,
        }
    }
}

/// Sets deadlines and replies with a code for each element.
fn expire(ctx: &mut Ctx<'_>, mut args: Args<'_>, family: Family, count: Count) -> Done {
    let key = args.bytes()?;
    let mut slot = family.find(ctx, key)?;
    let at_ms = deadline(ctx, &mut args, count)?;
    let (elements, condition) = elements_and_condition(&mut args, family)?;
    ctx.reply.array(elements.len());
    for element in elements.iter() {
        let answer = slot.map_or(NO_ELEMENT, |at| {
            let (answer, gone) = expire_one(ctx, at, element, at_ms, condition);
            slot = slot.filter(|_| !gone);
            answer
        });
        ctx.reply.integer(answer);
    }
    Ok(())
}

/// Sets the deadline of one element, or removes the element if the time has passed. Returns the code, and whether the
/// key is gone.
fn expire_one(ctx: &mut Ctx<'_>, slot: Slot, element: &[u8], at_ms: i64, condition: Condition) -> (i64, bool) {
    let db = ctx.db();
    match ctx.ks.element_deadline(db, slot, element) {
        None => (NO_ELEMENT, false),
        Some(current_ms) if !condition.is_met(current_ms, at_ms) => (NOT_MET, false),
        Some(_) if ctx.ks.expires_at_once(at_ms) => {
            ctx.ks.stats.expired_elements += 1;
            (REMOVED, ctx.ks.remove_element(db, slot, element))
        }
        Some(_) => {
            ctx.ks.expire_element_at(db, slot, element, at_ms);
            (DONE, false)
        }
    }
}

/// Takes a time and returns it in Unix ms.
fn deadline(ctx: &Ctx<'_>, args: &mut Args<'_>, count: Count) -> Result<i64, Error> {
    let n = args.int()?;
    if n < 0 {
        return Err(Error::text("ERR invalid expire time, must be >= 0"));
    }
    let at_ms = count.deadline(n, ctx.now_ms()).filter(|at_ms| *at_ms <= LATEST_MS);
    at_ms.ok_or(Error::InvalidExpire(ctx.name().into()))
}

/// Takes elements and a condition, in any order.
fn elements_and_condition<'a>(args: &mut Args<'a>, family: Family) -> Result<(Argv<'a>, Condition), Error> {
    let (word, one) = (family.word(), family.one());
    let mut elements = None;
    let mut condition = Condition::Always;
    let mut several = false;
    while let Some(arg) = args.peek() {
        if args.flag(word) {
            if elements.is_some() {
                return Err(if family == Hash { mismatch(family) } else { repeated(family) });
            }
            if args.len() < 2 {
                let alone = || Error::owned(format!("ERR {word} requires at least num{one}s and one {one} argument"));
                return Err(if family == Hash { mismatch(family) } else { alone() });
            }
            let positive = || Error::owned(format!("ERR Parameter `num{}` should be greater than 0", many(family)));
            let few = || if family == Hash { mismatch(family) } else { TOO_FEW };
            let most = if family == Hash { i64::MAX } else { COUNT_MAX };
            elements = Some(counted(args, most, 1, positive, few)?);
            continue;
        }
        let conditions = [("nx", Condition::Nx), ("xx", Condition::Xx), ("gt", Condition::Gt), ("lt", Condition::Lt)];
        let new = args.one_of(&conditions).ok_or_else(|| match (family, &elements) {
            (Hash, None) => misplaced(family),
            (Hash, Some(_)) => mismatch(family),
            _ => unknown(arg),
        })?;
        several |= ![Condition::Always, new].contains(&condition);
        condition = new;
    }
    let missing = || if family == Hash { misplaced(family) } else { missing(family) };
    let elements = elements.ok_or_else(missing)?;
    if several {
        let several = Error::text("ERR Multiple condition flags specified");
        return Err(if family == Hash { misplaced(family) } else { several });
    }
    Ok((elements, condition))
}

/// Replies with the time to live of each element, seconds rounded up.
fn time_to_live(ctx: &mut Ctx<'_>, mut args: Args<'_>, family: Family, count: Count) -> Done {
    let key = args.bytes()?;
    let slot = ctx.ks.look_up(ctx.session.db, key);
    let slot = family.checked(ctx, slot)?;
    let elements = elements_alone(&mut args, family)?;
    let db = ctx.db();
    ctx.reply.array(elements.len());
    for element in elements.iter() {
        let answer = match slot.and_then(|slot| ctx.ks.element_deadline(db, slot, element)) {
            None => NO_ELEMENT,
            Some(NEVER) => NO_DEADLINE,
            Some(at_ms) => count.until(at_ms, ctx.now_ms()),
        };
        ctx.reply.integer(answer);
    }
    Ok(())
}

/// Removes deadlines and replies for each element whether it had one.
fn persist(ctx: &mut Ctx<'_>, mut args: Args<'_>, family: Family) -> Done {
    let key = args.bytes()?;
    let slot = family.find(ctx, key)?;
    let elements = elements_alone(&mut args, family)?;
    let db = ctx.db();
    ctx.reply.array(elements.len());
    for element in elements.iter() {
        let answer = match slot.and_then(|slot| Some((slot, ctx.ks.element_deadline(db, slot, element)?))) {
            None => NO_ELEMENT,
            Some((_, NEVER)) => NO_DEADLINE,
            Some((slot, _)) => {
                ctx.ks.expire_element_at(db, slot, element, NEVER);
                DONE
            }
        };
        ctx.reply.integer(answer);
    }
    Ok(())
}

/// Takes the elements, with no other argument allowed.
fn elements_alone<'a>(args: &mut Args<'a>, family: Family) -> Result<Argv<'a>, Error> {
    let (word, one) = (family.word(), family.one());
    if !args.flag(word) {
        return Err(misplaced(family));
    }
    let count = parse_i64(args.bytes()?).filter(|count| *count > 0);
    let count = count.ok_or_else(|| Error::owned(format!("ERR Number of {one}s must be a positive integer")))?;
    if usize::try_from(count) != Ok(args.len()) {
        return Err(mismatch(family));
    }
    Ok(args.rest())
}

fn hgetdel(ctx: &mut Ctx<'_>, mut args: Args<'_>) -> Done {
    let key = args.bytes()?;
    let mut slot = Hash.find(ctx, key)?;
    let fields = elements_alone(&mut args, Hash)?;
    let db = ctx.db();
    ctx.reply.array(fields.len());
    for field in fields.iter() {
        if let Some(at) = answer_field(ctx, slot, field)?
            && ctx.ks.remove_element(db, at, field)
        {
            slot = None;
        }
    }
    Ok(())
}

fn hgetex(ctx: &mut Ctx<'_>, mut args: Args<'_>) -> Done {
    let key = args.bytes()?;
    let mut slot = Hash.find(ctx, key)?;
    let options = Options::parse(ctx, &mut args, &HGETEX)?;
    if let Some(slot) = slot.filter(|_| options.elements.len() > 1) {
        // A call may repeat a field many times.
        let hash = ctx.ks.hash(ctx.session.db, slot)?;
        let bytes: usize = options.elements.iter().filter_map(|field| hash.value_len(field)).sum();
        if bytes > ctx.server.config.proto_max_bulk_len.max(REPLY_MAX_BYTES) {
            return Err(Error::ReplyTooLong);
        }
    }
    ctx.reply.array(options.elements.len());
    for field in options.elements.iter() {
        let Some(at) = answer_field(ctx, slot, field)? else { continue };
        let gone = match options.lifetime {
            Lifetime::Unsaid => false,
            Lifetime::Word if ctx.ks.element_deadline(ctx.session.db, at, field) == Some(NEVER) => false,
            Lifetime::Word => {
                ctx.ks.expire_element_at(ctx.session.db, at, field, NEVER);
                false
            }
            Lifetime::Until(at_ms) => expire_one(ctx, at, field, at_ms, Condition::Always).1,
        };
        slot = slot.filter(|_| !gone);
    }
    Ok(())
}

/// Replies with the value of a field. Returns the slot of its hash if the field exists.
fn answer_field(ctx: &mut Ctx<'_>, slot: Option<Slot>, field: &[u8]) -> Result<Option<Slot>, Error> {
    let value = slot.map(|slot| ctx.ks.hash(ctx.session.db, slot)).transpose()?.and_then(|hash| hash.get(field));
    match value {
        Some(value) => bulk_item(ctx.reply, value),
        None => ctx.reply.null(),
    }
    Ok(slot.filter(|_| value.is_some()))
}

fn hsetex(ctx: &mut Ctx<'_>, mut args: Args<'_>) -> Done {
    let key = args.bytes()?;
    let options = Options::parse(ctx, &mut args, &HSETEX)?;
    let mut slot = Hash.find(ctx, key)?;
    let pairs = || (0..options.elements.len()).step_by(2).map(|i| (&options.elements[i], &options.elements[i + 1]));
    let db = ctx.db();
    if !options.admits(ctx, slot, pairs().map(|(field, _)| field)) {
        ctx.reply.integer(NOT_MET);
        return Ok(());
    }
    let before = ctx.ks.changes_by_commands();
    let is_over = matches!(options.lifetime, Lifetime::Until(at_ms) if ctx.ks.expires_at_once(at_ms));
    // Redis sets each field and then removes it, but keeps the key until all fields are gone.
    let mut overdue: Option<&[u8]> = None;
    for (field, value) in pairs() {
        if let (Some(at), Some(last)) = (slot, overdue)
            && last != field
            && ctx.ks.hash(db, at)?.len() > 1
        {
            slot = remove_expired(ctx, slot, last);
            overdue = None;
        }
        let at = match options.lifetime {
            Lifetime::Word => ctx.ks.hash_update(db, key, slot, field, value)?.0,
            Lifetime::Until(_) | Lifetime::Unsaid => ctx.ks.hash_set(db, key, slot, field, value)?.0,
        };
        slot = Some(at);
        match options.lifetime {
            Lifetime::Until(_) if is_over => {
                if let Some(last) = overdue.replace(field).filter(|last| *last != field) {
                    slot = remove_expired(ctx, slot, last);
                }
            }
            Lifetime::Until(at_ms) => _ = ctx.ks.expire_element_at(db, at, field, at_ms),
            Lifetime::Word | Lifetime::Unsaid => {}
        }
    }
    if let Some(last) = overdue {
        remove_expired(ctx, slot, last);
    }
    if let Lifetime::Until(_) = options.lifetime {
        // A value and its deadline count as one change.
        ctx.ks.count_changes_as(before, options.elements.len() as u64 / 2);
    }
    ctx.reply.integer(DONE);
    Ok(())
}

fn saddex(ctx: &mut Ctx<'_>, mut args: Args<'_>) -> Done {
    let key = args.bytes()?;
    let options = Options::parse(ctx, &mut args, &SADDEX)?;
    let mut slot = Set.find(ctx, key)?;
    let db = ctx.db();
    if !options.admits(ctx, slot, options.elements.iter()) {
        ctx.reply.integer(NOT_MET);
        return Ok(());
    }
    for member in options.elements.iter() {
        if let Lifetime::Until(at_ms) = options.lifetime
            && ctx.ks.expires_at_once(at_ms)
        {
            slot = remove_expired(ctx, slot, member);
            continue;
        }
        let (at, _) = ctx.ks.set_add(db, key, slot, member)?;
        slot = Some(at);
        match options.lifetime {
            Lifetime::Until(at_ms) => _ = ctx.ks.expire_element_at(db, at, member, at_ms),
            Lifetime::Unsaid if ctx.ks.element_deadline(db, at, member) != Some(NEVER) => {
                ctx.ks.expire_element_at(db, at, member, NEVER);
            }
            Lifetime::Unsaid | Lifetime::Word => {}
        }
    }
    ctx.reply.integer(DONE);
    Ok(())
}

/// Removes an element that would be written with a deadline in the past. Returns the slot if the key still exists.
fn remove_expired(ctx: &mut Ctx<'_>, slot: Option<Slot>, element: &[u8]) -> Option<Slot> {
    slot.filter(|at| !expire_one(ctx, *at, element, i64::MIN, Condition::Always).1)
}

/// The option about the deadlines of the elements read or written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lifetime {
    /// No option: a written element never expires, a read one keeps its deadline.
    Unsaid,
    /// KEEPTTL or PERSIST.
    Word,
    /// A deadline in Unix ms.
    Until(i64),
}

/// The option words and errors of HGETEX, HSETEX or SADDEX.
struct Words {
    family: Family,
    /// The word for [`Lifetime::Word`].
    word: &'static str,
    /// The words for "only if none exists" and "only if all exist"; empty if the command has no such option.
    conditions: [&'static str; 2],
    /// Arguments for each element.
    width: usize,
    /// The largest allowed number of elements; a greater one is invalid.
    most: i64,
    /// The error for an invalid number of elements.
    invalid: &'static str,
    /// The error for an argument in the wrong place, before the elements or `behind` them, or for one that is missing
    /// among the elements. Redis 8.0 takes the options in one order only, and its texts say so; this server accepts any
    /// order.
    stray: fn(name: &'static str, arg: Option<&[u8]>, behind: bool) -> Error,
    /// Whether a second lifetime gets that error too.
    lifetime_is_stray: bool,
}

const HGETEX: Words = Words {
    family: Hash,
    word: "PERSIST",
    conditions: ["", ""],
    width: 1,
    most: i64::MAX,
    invalid: "ERR Number of fields must be a positive integer",
    stray: |_, _, behind| if behind { mismatch(Hash) } else { misplaced(Hash) },
    lifetime_is_stray: true,
};
const HSETEX: Words = Words {
    family: Hash,
    word: "KEEPTTL",
    conditions: ["FNX", "FXX"],
    width: 2,
    most: COUNT_MAX,
    invalid: "ERR invalid number of fields",
    stray: |name, arg, behind| match arg {
        Some(arg) if !behind => unknown(arg),
        _ => Error::Arity(name.into()),
    },
    lifetime_is_stray: false,
};
const SADDEX: Words = Words {
    family: Set,
    word: "KEEPTTL",
    conditions: ["MNX", "MXX"],
    width: 1,
    most: COUNT_MAX,
    invalid: "ERR invalid number of members",
    stray: |_, arg, _| arg.map_or(TOO_FEW, unknown),
    lifetime_is_stray: false,
};

/// The arguments of one of these commands, in any order.
struct Options<'a> {
    elements: Argv<'a>,
    lifetime: Lifetime,
    /// Whether all elements must exist (true) or none may (false).
    all_exist: Option<bool>,
}

impl<'a> Options<'a> {
    fn parse(ctx: &Ctx<'_>, args: &mut Args<'a>, words: &Words) -> Result<Options<'a>, Error> {
        let family = words.family;
        let mut elements = None;
        let mut lifetime = Lifetime::Unsaid;
        let mut all_exist = None;
        while let Some(arg) = args.peek() {
            if args.flag(family.word()) {
                if elements.is_some() {
                    return Err(if family == Hash {
                        (words.stray)(ctx.name(), Some(arg), true)
                    } else {
                        repeated(family)
                    });
                }
                if args.is_empty() {
                    return Err(Error::Arity(ctx.name().into()));
                }
                let few = || (words.stray)(ctx.name(), None, true);
                elements = Some(counted(args, words.most, words.width, || Error::text(words.invalid), few)?);
            } else if let Some(count) = args.one_of(&COUNTS) {
                words.once(ctx.name(), args.is_empty(), arg, lifetime)?;
                if args.is_empty() {
                    return Err(Error::text("ERR missing expire time"));
                }
                lifetime = Lifetime::Until(deadline(ctx, args, count)?);
            } else if args.flag(words.word) {
                words.once(ctx.name(), args.is_empty(), arg, lifetime)?;
                lifetime = Lifetime::Word;
            } else if let Some(all) = words.condition(args) {
                if all_exist.replace(all).is_some() {
                    let [none, all] = words.conditions;
                    return Err(Error::owned(format!("ERR Only one of {all} or {none} arguments can be specified")));
                }
            } else {
                if args.len() == 1 && elements.is_none() && words.lifetime_is_stray {
                    return Err(Error::Arity(ctx.name().into()));
                }
                return Err((words.stray)(ctx.name(), Some(arg), elements.is_some()));
            }
        }
        let elements = elements.ok_or_else(|| missing(family))?;
        Ok(Options { elements, lifetime, all_exist })
    }

    /// Whether the existing elements meet the condition.
    fn admits<'e>(&self, ctx: &Ctx<'_>, slot: Option<Slot>, mut elements: impl Iterator<Item = &'e [u8]>) -> bool {
        let exists =
            |element| slot.is_some_and(|slot| ctx.ks.element_deadline(ctx.session.db, slot, element).is_some());
        self.all_exist.is_none_or(|all| elements.all(|element| exists(element) == all))
    }
}

const COUNTS: [(&str, Count); 4] = [
    ("ex", Count::Seconds),
    ("px", Count::Milliseconds),
    ("exat", Count::UnixSeconds),
    ("pxat", Count::UnixMilliseconds),
];

impl Words {
    /// Returns an error if a lifetime was already given.
    fn once(&self, name: &'static str, is_last: bool, arg: &[u8], lifetime: Lifetime) -> Result<(), Error> {
        if lifetime == Lifetime::Unsaid {
            return Ok(());
        }
        if self.lifetime_is_stray && is_last {
            return Err(Error::Arity(name.into()));
        }
        if self.lifetime_is_stray {
            return Err((self.stray)(name, Some(arg), false));
        }
        Err(Error::owned(format!("ERR Only one of EX, PX, EXAT, PXAT or {} arguments can be specified", self.word)))
    }

    /// Takes the option that requires all elements, or none, to exist.
    fn condition(&self, args: &mut Args<'_>) -> Option<bool> {
        let [none, all] = self.conditions;
        let there = !none.is_empty();
        there.then(|| args.one_of(&[(none, false), (all, true)])).flatten()
    }
}

/// Takes a count and that many elements of `width` arguments each.
fn counted<'a>(
    args: &mut Args<'a>,
    max: i64,
    width: usize,
    invalid: impl FnOnce() -> Error,
    few: impl FnOnce() -> Error,
) -> Result<Argv<'a>, Error> {
    let range: RangeInclusive<i64> = 1..=max;
    let count = parse_i64(args.bytes()?).filter(|count| range.contains(count)).ok_or_else(invalid)?;
    args.take((count as usize).saturating_mul(width)).map_err(|_| few())
}

/// The largest number of elements of most commands.
const COUNT_MAX: i64 = i32::MAX as i64;

const TOO_FEW: Error = Error::text("ERR wrong number of arguments");

fn misplaced(family: Family) -> Error {
    Error::owned(format!("ERR Mandatory argument {} is missing or not at the right position", family.word()))
}

fn mismatch(family: Family) -> Error {
    Error::owned(format!("ERR The `num{}s` parameter must match the number of arguments", family.one()))
}

fn missing(family: Family) -> Error {
    Error::owned(format!("ERR missing {} argument", family.word()))
}

/// The word for several elements in two error texts.
fn many(family: Family) -> &'static str {
    if family == Hash { "Fields" } else { "Members" }
}

fn repeated(family: Family) -> Error {
    Error::owned(format!("ERR {} keyword specified multiple times", family.word()))
}

fn unknown(arg: &[u8]) -> Error {
    Error::owned(format!("ERR unknown argument: {}", excerpt(arg, 1024)))
}

const HASH_READ: Command = Command {
    flags: Flags::READONLY.union(Flags::FAST),
    keys: &[KeySpec::one(1, Access::Read)],
    group: Group::Hash,
    since: "7.4.0",
    complexity: "O(N) where N is the number of fields given.",
    ..Command::EMPTY
};
const HASH_WRITE: Command =
    Command { flags: Flags::WRITE.union(Flags::FAST), keys: &[KeySpec::one(1, Access::Modify)], ..HASH_READ };
const HASH_DENYOOM: Command = Command { flags: HASH_WRITE.flags.union(Flags::DENYOOM), ..HASH_WRITE };
const SET_READ: Command = Command {
    group: Group::Set,
    since: "8.12.0",
    complexity: "O(N) where N is the number of members given.",
    ..HASH_READ
};
const SET_WRITE: Command = Command { flags: HASH_WRITE.flags, keys: HASH_WRITE.keys, ..SET_READ };

/// The families' table.
pub(super) const COMMANDS: &[Command] = &[
    Command {
        name: "hexpire",
        arity: -6,
        summary: "Makes fields expire after a number of seconds.",
        syntax: "key seconds [NX | XX | GT | LT]:condition (FIELDS numfields field...)",
        run: Run::Now(|ctx, args| expire(ctx, args, Hash, Count::Seconds)),
        ..HASH_WRITE
    },
    Command {
        name: "hexpireat",
        arity: -6,
        summary: "Makes fields expire at a Unix time in seconds.",
        syntax: "key unix-time-seconds [NX | XX | GT | LT]:condition (FIELDS numfields field...)",
        run: Run::Now(|ctx, args| expire(ctx, args, Hash, Count::UnixSeconds)),
        ..HASH_WRITE
    },
    Command {
        name: "hexpiretime",
        arity: -5,
        summary: "Returns the Unix times in seconds at which fields expire.",
        syntax: "key (FIELDS numfields field...)",
        run: Run::Now(|ctx, args| time_to_live(ctx, args, Hash, Count::UnixSeconds)),
        ..HASH_READ
    },
    Command {
        name: "hgetdel",
        arity: -5,
        keys: &[KeySpec::one(1, Access::Take)],
        since: "8.0.0",
        summary: "Returns the values of fields and removes them; removes the key with its last field.",
        syntax: "key (FIELDS numfields field...)",
        run: Run::Now(hgetdel),
        ..HASH_WRITE
    },
    Command {
        name: "hgetex",
        arity: -5,
        keys: &[KeySpec::one(1, Access::Update)],
        since: "8.0.0",
        summary: "Returns the values of fields and changes when they expire.",
        syntax: "key [EX seconds | PX milliseconds | EXAT unix-time-seconds | PXAT unix-time-milliseconds \
            | PERSIST]:expiration (FIELDS numfields field...)",
        run: Run::Now(hgetex),
        ..HASH_WRITE
    },
    Command {
        name: "hpersist",
        arity: -5,
        summary: "Removes the expiry of fields.",
        syntax: "key (FIELDS numfields field...)",
        run: Run::Now(|ctx, args| ctx.as_one_change(|ctx| persist(ctx, args, Hash))),
        ..HASH_WRITE
    },
    Command {
        name: "hpexpire",
        arity: -6,
        summary: "Makes fields expire after a number of milliseconds.",
        syntax: "key milliseconds [NX | XX | GT | LT]:condition (FIELDS numfields field...)",
        run: Run::Now(|ctx, args| expire(ctx, args, Hash, Count::Milliseconds)),
        ..HASH_WRITE
    },
    Command {
        name: "hpexpireat",
        arity: -6,
        summary: "Makes fields expire at a Unix time in milliseconds.",
        syntax: "key unix-time-milliseconds [NX | XX | GT | LT]:condition (FIELDS numfields field...)",
        run: Run::Now(|ctx, args| expire(ctx, args, Hash, Count::UnixMilliseconds)),
        ..HASH_WRITE
    },
    Command {
        name: "hpexpiretime",
        arity: -5,
        summary: "Returns the Unix times in milliseconds at which fields expire.",
        syntax: "key (FIELDS numfields field...)",
        run: Run::Now(|ctx, args| time_to_live(ctx, args, Hash, Count::UnixMilliseconds)),
        ..HASH_READ
    },
    Command {
        name: "hpttl",
        arity: -5,
        summary: "Returns the remaining times to live of fields in milliseconds.",
        syntax: "key (FIELDS numfields field...)",
        tips: &["nondeterministic_output"],
        run: Run::Now(|ctx, args| time_to_live(ctx, args, Hash, Count::Milliseconds)),
        ..HASH_READ
    },
    Command {
        name: "hsetex",
        arity: -6,
        since: "8.0.0",
        summary: "Sets the values of fields and when they expire.",
        syntax: "key [FNX | FXX]:condition [EX seconds | PX milliseconds | EXAT unix-time-seconds | PXAT \
            unix-time-milliseconds | KEEPTTL]:expiration (FIELDS numfields (field value):data...)",
        run: Run::Now(hsetex),
        ..HASH_DENYOOM
    },
    Command {
        name: "httl",
        arity: -5,
        summary: "Returns the remaining times to live of fields in seconds.",
        syntax: "key (FIELDS numfields field...)",
        tips: &["nondeterministic_output"],
        run: Run::Now(|ctx, args| time_to_live(ctx, args, Hash, Count::Seconds)),
        ..HASH_READ
    },
    Command {
        name: "saddex",
        arity: -5,
        flags: HASH_DENYOOM.flags,
        summary: "Adds members and sets when they expire.",
        syntax: "key [MNX | MXX] [EX seconds | PX milliseconds | EXAT unix-time-seconds | PXAT \
            unix-time-milliseconds | KEEPTTL] (MEMBERS nummembers:integer member...)",
        run: Run::Now(saddex),
        ..SET_WRITE
    },
    Command {
        name: "sexpire",
        arity: -6,
        summary: "Makes members expire after a number of seconds.",
        syntax: "key seconds [NX | XX | GT | LT] (MEMBERS nummembers:integer member...)",
        run: Run::Now(|ctx, args| expire(ctx, args, Set, Count::Seconds)),
        ..SET_WRITE
    },
    Command {
        name: "sexpireat",
        arity: -6,
        summary: "Makes members expire at a Unix time in seconds.",
        syntax: "key unix-time-seconds [NX | XX | GT | LT] (MEMBERS nummembers:integer member...)",
        run: Run::Now(|ctx, args| expire(ctx, args, Set, Count::UnixSeconds)),
        ..SET_WRITE
    },
    Command {
        name: "sexpiretime",
        arity: -5,
        summary: "Returns the Unix times in seconds at which members expire.",
        syntax: "key (MEMBERS nummembers:integer member...)",
        run: Run::Now(|ctx, args| time_to_live(ctx, args, Set, Count::UnixSeconds)),
        ..SET_READ
    },
    Command {
        name: "spersist",
        arity: -5,
        summary: "Removes the expiry of members.",
        syntax: "key (MEMBERS nummembers:integer member...)",
        run: Run::Now(|ctx, args| ctx.as_one_change(|ctx| persist(ctx, args, Set))),
        ..SET_WRITE
    },
    Command {
        name: "spexpire",
        arity: -6,
        summary: "Makes members expire after a number of milliseconds.",
        syntax: "key milliseconds [NX | XX | GT | LT] (MEMBERS nummembers:integer member...)",
        run: Run::Now(|ctx, args| expire(ctx, args, Set, Count::Milliseconds)),
        ..SET_WRITE
    },
    Command {
        name: "spexpireat",
        arity: -6,
        summary: "Makes members expire at a Unix time in milliseconds.",
        syntax: "key unix-time-milliseconds [NX | XX | GT | LT] (MEMBERS nummembers:integer member...)",
        run: Run::Now(|ctx, args| expire(ctx, args, Set, Count::UnixMilliseconds)),
        ..SET_WRITE
    },
    Command {
        name: "spexpiretime",
        arity: -5,
        summary: "Returns the Unix times in milliseconds at which members expire.",
        syntax: "key (MEMBERS nummembers:integer member...)",
        run: Run::Now(|ctx, args| time_to_live(ctx, args, Set, Count::UnixMilliseconds)),
        ..SET_READ
    },
    Command {
        name: "spttl",
        arity: -5,
        summary: "Returns the remaining times to live of members in milliseconds.",
        syntax: "key (MEMBERS nummembers:integer member...)",
        tips: &["nondeterministic_output"],
        run: Run::Now(|ctx, args| time_to_live(ctx, args, Set, Count::Milliseconds)),
        ..SET_READ
    },
    Command {
        name: "sttl",
        arity: -5,
        summary: "Returns the remaining times to live of members in seconds.",
        syntax: "key (MEMBERS nummembers:integer member...)",
        tips: &["nondeterministic_output"],
        run: Run::Now(|ctx, args| time_to_live(ctx, args, Set, Count::Seconds)),
        ..SET_READ
    },
];
