//! Sets: the members of a key, and operations on several sets.

use super::item::bulk_item;
use super::sample::{self, Count};
use super::scan;
use crate::base::num::parse_i64;
use crate::engine::{Command, Ctx, Done, Run};
use crate::keyspace::any_value::{Value, ValueRef};
use crate::keyspace::{DbIndex, Keyspace, Slot};
use crate::resp::request::Argv;
use crate::spec::args::Args;
use crate::spec::error::Error;
use crate::spec::{Access, AnswersAll, Flags, Group, KeySpec};
use crate::value::hyperloglog::Registers;
use crate::value::leb128::{bytes_len, number_len};
use crate::value::packed::Item;
use crate::value::set::{Set, SetLimits};
use crate::value::string::Digits;

fn sadd(ctx: &mut Ctx<'_>, mut args: Args<'_>) -> Done {
    let key = args.bytes()?;
    let db = ctx.db();
    let mut slot = ctx.ks.find(db, key);
    let mut added = 0;
    let members = args.rest();
    if let Some(slot) = slot {
        ctx.ks.set_prepare(db, slot, members.len())?;
    }
    for member in members.iter() {
        let (at, new) = ctx.ks.set_add(db, key, slot, member)?;
        if slot.is_none() {
            ctx.ks.set_prepare(db, at, members.len())?;
        }
        slot = Some(at);
        added += i64::from(new);
    }
    ctx.reply.integer(added);
    Ok(())
}

fn srem(ctx: &mut Ctx<'_>, mut args: Args<'_>) -> Done {
    let key = args.bytes()?;
    let db = ctx.db();
    let Some(slot) = ctx.ks.find(db, key) else {
        ctx.reply.integer(0);
        return Ok(());
    };
    let all = ctx.ks.set(db, slot)?.len();
    let mut removed = 0;
    for member in args.rest().iter() {
        removed += usize::from(ctx.ks.set_remove(db, slot, member)?);
        if removed == all {
            // The last member's removal has removed the key.
            break;
        }
    }
    ctx.reply.integer(removed as i64);
    Ok(())
}

fn smove(ctx: &mut Ctx<'_>, mut args: Args<'_>) -> Done {
    let (from, to, member) = (args.bytes()?, args.bytes()?, args.bytes()?);
    let db = ctx.db();
    let (from, target) = (ctx.ks.find(db, from), ctx.ks.find(db, to));
    let Some(from) = from else {
        ctx.reply.integer(0);
        return Ok(());
    };
    let contains = ctx.ks.set(db, from)?.contains(member);
    if let Some(target) = target {
        ctx.ks.set(db, target)?;
    }
    if contains && target != Some(from) {
        ctx.ks.set_remove(db, from, member)?;
        ctx.ks.set_add(db, to, target, member)?;
    }
    ctx.reply.integer(i64::from(contains));
    Ok(())
}

fn scard(ctx: &mut Ctx<'_>, mut args: Args<'_>) -> Done {
    let len = read(ctx.ks, ctx.session.db, args.bytes()?)?.map_or(0, Set::len);
    ctx.reply.integer(len as i64);
    Ok(())
}

fn sismember(ctx: &mut Ctx<'_>, mut args: Args<'_>) -> Done {
    let (key, member) = (args.bytes()?, args.bytes()?);
    let contains = read(ctx.ks, ctx.session.db, key)?.is_some_and(|set| set.contains(member));
    ctx.reply.integer(i64::from(contains));
    Ok(())
}

fn smismember(ctx: &mut Ctx<'_>, mut args: Args<'_>) -> Done {
    let key = args.bytes()?;
    let set = read(ctx.ks, ctx.session.db, key)?;
    ctx.reply.array(args.len());
    for member in args.rest().iter() {
        ctx.reply.integer(i64::from(set.is_some_and(|set| set.contains(member))));
    }
    Ok(())
}

fn smembers(ctx: &mut Ctx<'_>, mut args: Args<'_>) -> Done {
    let set = read(ctx.ks, ctx.session.db, args.bytes()?)?;
    ctx.reply.set(set.map_or(0, Set::len));
    set.into_iter().flat_map(Set::iter).for_each(|member| bulk_item(ctx.reply, member));
    Ok(())
}

fn spop(ctx: &mut Ctx<'_>, mut args: Args<'_>) -> Done {
    let key = args.bytes()?;
    let count = match args.len() {
        0 => None,
        1 => Some(parse_count(args.bytes()?).ok_or(Error::NotPositive)?),
        _ => return Err(Error::Syntax),
    };
    let db = ctx.db();
    let slot = ctx.ks.find(db, key);
    let len = at(ctx.ks, db, slot)?.map_or(0, Set::len);
    let popped = count.unwrap_or(1).min(len);
    match (slot, count) {
        (None, None) => ctx.reply.null(),
        (_, Some(_)) => ctx.reply.set(popped),
        (Some(_), None) => {}
    }
    let Some(slot) = slot else { return Ok(()) };
    if popped == len {
        ctx.ks.set(db, slot)?.iter().for_each(|member| bulk_item(ctx.reply, member));
        let before = ctx.ks.changes_by_commands();
        ctx.ks.remove(db, slot);
        ctx.ks.count_changes_as(before, popped as u64);
        return Ok(());
    }
    pop_some(ctx, slot, popped)
}

/// If SPOP takes this many times more than it leaves, the rest is packed again. Redis does so too: in that case it
/// moves the rest instead of removing members.
const REPACK_RATIO: usize = 5;

/// The bytes of a removal's effect without the member and its length: a code, the cause, and whether the set is gone.
const REMOVAL_BYTES: usize = 3;

/// The bytes of the effect that records the new layout of the rest.
const RELAYOUT_BYTES: usize = 2;

/// Removes `count` random members of a set that has more, and replies with them.
fn pop_some(ctx: &mut Ctx<'_>, slot: Slot, count: usize) -> Done {
    let db = ctx.db();
    let mut rng = sample::rng(ctx);
    let mut member = Vec::new();
    let set = ctx.ks.set(db, slot)?;
    let mut foreseen = Vec::new();
    let room = ctx.room_in_unit();
    if set.is_mostly_dead() || room < usize::MAX && count > 1 {
        // If the members exceed the journal's limit the call is refused, so no more need to be collected. The first
        // effect also names the database and the key.
        let mut bytes = number_len(u64::from(db)) + bytes_len(ctx.ks.entry(db, slot).key()) + RELAYOUT_BYTES;
        set.sample(
            count,
            |n| rng.below(n),
            |drawn| {
                let drawn = drawn.to_vec();
                bytes = bytes.saturating_add(REMOVAL_BYTES + bytes_len(&drawn));
                if bytes <= room {
                    foreseen.push(drawn);
                }
            },
        );
        ctx.admit_effects(bytes)?;
    }
    for at in 0..count {
        let set = ctx.ks.set(db, slot)?;
        let drawn = match foreseen.get(at) {
            Some(drawn) => Some(Item::Bytes(drawn)),
            None => set.random(|n| rng.below(n)),
        };
        let Some(drawn) = drawn else { break };
        member.clear();
        member.extend_from_slice(drawn.as_bytes(&mut Digits::new()));
        ctx.reply.bulk(&member);
        ctx.ks.set_remove(db, slot, &member)?;
    }
    if ctx.ks.set(db, slot)?.len().saturating_mul(REPACK_RATIO) <= count {
        ctx.ks.set_repack(db, slot)?;
    }
    Ok(())
}

fn srandmember(ctx: &mut Ctx<'_>, mut args: Args<'_>) -> Done {
    let key = args.bytes()?;
    let count = match args.len() {
        0 => None,
        1 => Some(Count::parse(&mut args)?),
        _ => return Err(Error::Syntax),
    };
    let mut rng = sample::rng(ctx);
    let set = read(ctx.ks, ctx.session.db, key)?;
    match (set, count) {
        (None, None) => ctx.reply.null(),
        (None, Some(_)) => ctx.reply.array(0),
        (Some(set), None) => set.random(|n| rng.below(n)).into_iter().for_each(|member| bulk_item(ctx.reply, member)),
        (Some(set), Some(Count::Different(count))) => {
            ctx.reply.array(count.min(set.len()));
            set.sample(count, |n| rng.below(n), |member| bulk_item(ctx.reply, member));
        }
        (Some(set), Some(Count::Repeated(count))) => {
            ctx.reply.array(count);
            let living: Vec<_> = if set.is_mostly_dead() { set.iter().collect() } else { Vec::new() };
            return sample::repeat(ctx.reply, count, rng, |reply, rng| {
                let drawn = sample::one_of(&living, rng).or_else(|| set.random(|n| rng.below(n)));
                drawn.into_iter().for_each(|member| bulk_item(reply, member));
            });
        }
    }
    Ok(())
}

fn sscan(ctx: &mut Ctx<'_>, mut args: Args<'_>) -> Done {
    let key = args.bytes()?;
    let cursor = scan::cursor(&mut args)?;
    let Some(set) = read(ctx.ks, ctx.session.db, key)? else {
        scan::answer_empty(ctx.reply);
        return Ok(());
    };
    let options = scan::Options::parse(&mut args, scan::Walk::Members)?;
    scan::answer(ctx.reply, |reply, written| {
        set.scan(cursor, options.count, |member| {
            if options.wants(member.as_bytes(&mut Digits::new())) {
                bulk_item(reply, member);
                *written += 1;
            }
        })
    });
    Ok(())
}

fn sinter(ctx: &mut Ctx<'_>, args: Args<'_>) -> Done {
    answer(ctx, args, intersect)
}

fn sdiff(ctx: &mut Ctx<'_>, args: Args<'_>) -> Done {
    answer(ctx, args, subtract)
}

/// Replies with a combination of the sets at all arguments.
fn answer(ctx: &mut Ctx<'_>, args: Args<'_>, combine: Combine) -> Done {
    let slots = operands(ctx.ks, ctx.session.db, args.rest())?;
    let mark = ctx.reply.begin();
    let mut written = 0;
    for member in combine(&sets(ctx.ks, ctx.session.db, &slots)) {
        bulk_item(ctx.reply, member);
        written += 1;
    }
    ctx.reply.end_set(mark, written);
    Ok(())
}

fn sunion(ctx: &mut Ctx<'_>, args: Args<'_>) -> Done {
    let union = combined(ctx, args.rest(), unite)?;
    ctx.reply.set(union.len());
    union.iter().for_each(|member| bulk_item(ctx.reply, member));
    Ok(())
}

fn sinterstore(ctx: &mut Ctx<'_>, args: Args<'_>) -> Done {
    store(ctx, args, intersect)
}

fn sunionstore(ctx: &mut Ctx<'_>, args: Args<'_>) -> Done {
    store(ctx, args, unite)
}

fn sdiffstore(ctx: &mut Ctx<'_>, args: Args<'_>) -> Done {
    store(ctx, args, subtract)
}

/// Stores a combination of the sets at the other arguments at the first, and replaces any value there. An empty result
/// removes the key.
fn store(ctx: &mut Ctx<'_>, mut args: Args<'_>, combine: Combine) -> Done {
    let to = args.bytes()?;
    let result = combined(ctx, args.rest(), combine)?;
    let (db, len) = (ctx.db(), result.len());
    if len > 0 {
        ctx.put_value(to, Value::Set(result))?;
    } else if let Some(slot) = ctx.ks.find(db, to) {
        ctx.ks.remove(db, slot);
    }
    ctx.reply.integer(len as i64);
    Ok(())
}

fn sintercard(ctx: &mut Ctx<'_>, args: Args<'_>) -> Done {
    count(ctx, args, intersect)
}

fn sdiffcard(ctx: &mut Ctx<'_>, args: Args<'_>) -> Done {
    count(ctx, args, subtract)
}

/// Replies with the size of a combination of the sets at the counted keys, up to LIMIT.
fn count(ctx: &mut Ctx<'_>, mut args: Args<'_>, combine: Combine) -> Done {
    let keys = counted_keys(&mut args)?;
    let mut limit = usize::MAX;
    while args.option("limit", 1) {
        limit = limit_of(&mut args)?;
    }
    args.end()?;
    let slots = operands(ctx.ks, ctx.session.db, keys)?;
    let count = combine(&sets(ctx.ks, ctx.session.db, &slots)).take(limit).count();
    ctx.reply.integer(count as i64);
    Ok(())
}

fn sunioncard(ctx: &mut Ctx<'_>, mut args: Args<'_>) -> Done {
    let keys = counted_keys(&mut args)?;
    let (mut limit, mut is_estimate) = (usize::MAX, false);
    while !args.is_empty() {
        if args.flag("approx") {
            is_estimate = true;
        } else if args.option("limit", 1) {
            limit = limit_of(&mut args)?;
        } else {
            return Err(Error::Syntax);
        }
    }
    let slots = operands(ctx.ks, ctx.session.db, keys)?;
    let sets = sets(ctx.ks, ctx.session.db, &slots);
    let count = if is_estimate { estimate_union(&sets).min(limit) } else { count_union(&sets, limit) };
    ctx.reply.integer(count as i64);
    Ok(())
}

/// Takes the number of keys and the keys.
fn counted_keys<'a>(args: &mut Args<'a>) -> Result<Argv<'a>, Error> {
    let numkeys = parse_count(args.bytes()?).filter(|numkeys| *numkeys > 0);
    let numkeys = numkeys.ok_or(Error::text("ERR numkeys should be greater than 0"))?;
    if numkeys > args.len() {
        return Err(Error::text("ERR Number of keys can't be greater than number of args"));
    }
    args.take(numkeys)
}

/// Takes the number after LIMIT; 0 means no limit.
fn limit_of(args: &mut Args<'_>) -> Result<usize, Error> {
    match parse_count(args.bytes()?).ok_or(Error::text("ERR LIMIT can't be negative"))? {
        0 => Ok(usize::MAX),
        limit => Ok(limit),
    }
}

/// For up to this many sets, each is asked for the members of the smaller ones; the members of more sets are collected.
const ASKED_SETS_MAX: usize = 4;

/// Returns the size of the union, counted up to `limit`.
fn count_union(sets: &[Option<&Set>], limit: usize) -> usize {
    let mut all: Vec<&Set> = sets.iter().flatten().copied().collect();
    all.sort_by_key(|set| std::cmp::Reverse(set.len()));
    let Some((largest, others)) = all.split_first() else { return 0 };
    if largest.len() >= limit {
        return limit;
    }
    if all.len() > ASKED_SETS_MAX {
        let (mut union, mut digits) = (Set::new(), Digits::new());
        for member in all.iter().flat_map(|set| set.iter()) {
            if union.len() == limit {
                break;
            }
            union.insert(member.as_bytes(&mut digits), &SetLimits::default());
        }
        return union.len();
    }
    let new = others.iter().enumerate().flat_map(|(index, set)| {
        let before = &all[..=index];
        set.iter().filter(move |member| !before.iter().any(|other| other.contains_item(*member)))
    });
    largest.len() + new.take(limit - largest.len()).count()
}

/// Estimates the size of the union with the error and the memory of a HyperLogLog.
fn estimate_union(sets: &[Option<&Set>]) -> usize {
    let (mut registers, mut digits) = (Registers::new(), Digits::new());
    sets.iter().flatten().flat_map(|set| set.iter()).for_each(|member| registers.see(member.as_bytes(&mut digits)));
    usize::try_from(registers.count()).unwrap_or(usize::MAX)
}

/// Combines several sets into the members of one; `None` is a missing key.
type Combine = for<'s> fn(&[Option<&'s Set>]) -> Box<dyn Iterator<Item = Item<'s>> + 's>;

/// The members that all sets have.
fn intersect<'s>(sets: &[Option<&'s Set>]) -> Box<dyn Iterator<Item = Item<'s>> + 's> {
    let all: Option<Vec<&Set>> = sets.iter().copied().collect();
    let mut others = all.unwrap_or_default();
    // The smallest set bounds the result and the time; the next smallest rule out most of it.
    others.sort_by_key(|set| std::cmp::Reverse(set.len()));
    let smallest = others.pop();
    others.reverse();
    let is_everywhere = move |member: &Item<'_>| others.iter().all(|set| set.contains_item(*member));
    Box::new(smallest.into_iter().flat_map(Set::iter).filter(is_everywhere))
}

/// The members of all sets, repeated for each set that has them.
fn unite<'s>(sets: &[Option<&'s Set>]) -> Box<dyn Iterator<Item = Item<'s>> + 's> {
    let all: Vec<&Set> = sets.iter().flatten().copied().collect();
    Box::new(all.into_iter().flat_map(Set::iter))
}

/// The members that only the first set has.
fn subtract<'s>(sets: &[Option<&'s Set>]) -> Box<dyn Iterator<Item = Item<'s>> + 's> {
    let Some((Some(first), others)) = sets.split_first() else { return Box::new(std::iter::empty()) };
    let others: Vec<&Set> = others.iter().flatten().copied().collect();
    let asked = first.len().saturating_mul(others.len());
    let gathered = others.iter().map(|set| set.len()).sum::<usize>().saturating_add(first.len());
    if asked <= gathered {
        return Box::new(first.iter().filter(move |member| !others.iter().any(|set| set.contains_item(*member))));
    }
    // Asking many small sets about every member would take longer than collecting them once.
    let excluded = gather(unite(sets.get(1..).unwrap_or_default()), &SetLimits::default());
    Box::new(first.iter().filter(move |member| !excluded.contains_item(*member)))
}

fn gather<'s>(members: impl Iterator<Item = Item<'s>>, limits: &SetLimits) -> Set {
    let mut set = Set::new();
    let mut digits = Digits::new();
    members.for_each(|member| _ = set.insert(member.as_bytes(&mut digits), limits));
    set
}

/// Returns a combination of the sets at `keys` as a set of its own.
fn combined(ctx: &mut Ctx<'_>, keys: Argv<'_>, combine: Combine) -> Result<Set, Error> {
    let slots = operands(ctx.ks, ctx.session.db, keys)?;
    Ok(gather(combine(&sets(ctx.ks, ctx.session.db, &slots)), &ctx.ks.limits().set))
}

/// Returns the slots of the sets at `keys`. Each lookup counts as a hit or a miss.
fn operands(ks: &mut Keyspace, db: DbIndex, keys: Argv<'_>) -> Result<Vec<Option<Slot>>, Error> {
    let operand = |key| {
        let slot = ks.find(db, key);
        match slot {
            Some(_) => ks.stats.hits += 1,
            None => ks.miss(db, key),
        }
        at(ks, db, slot).map(|_| slot)
    };
    keys.iter().map(operand).collect()
}

fn sets<'k>(ks: &'k Keyspace, db: DbIndex, slots: &[Option<Slot>]) -> Vec<Option<&'k Set>> {
    slots.iter().map(|slot| slot.and_then(|slot| ks.set(db, slot).ok())).collect()
}

/// Returns the set at a key, for a command that only reads.
#[inline]
fn read<'k>(ks: &'k mut Keyspace, db: DbIndex, key: &[u8]) -> Result<Option<&'k Set>, Error> {
    match ks.read(db, key) {
        None => Ok(None),
        Some(ValueRef::Set(set)) => Ok(Some(set)),
        Some(_) => Err(Error::WrongType),
    }
}

/// Returns the set at a slot, if there is a slot.
#[inline]
fn at(ks: &Keyspace, db: DbIndex, slot: Option<Slot>) -> Result<Option<&Set>, Error> {
    Ok(slot.map(|slot| ks.set(db, slot)).transpose()?)
}

fn parse_count(text: &[u8]) -> Option<usize> {
    parse_i64(text).and_then(|count| usize::try_from(count).ok())
}

const READ: Command = Command { flags: Flags::READONLY, group: Group::Set, ..Command::EMPTY };
const READ_FAST: Command = Command { flags: Flags::READONLY.union(Flags::FAST), ..READ };
const REMOVE: Command = Command { flags: Flags::WRITE.union(Flags::FAST), group: Group::Set, ..Command::EMPTY };
const COMBINE: Command = Command {
    arity: -2,
    keys: &[KeySpec::rest(1, 1, Access::Read)],
    syntax: "key...",
    tips: &["nondeterministic_output_order"],
    ..READ
};
const STORE: Command = Command {
    arity: -3,
    flags: Flags::WRITE.union(Flags::DENYOOM),
    keys: &[KeySpec::one(1, Access::Overwrite), KeySpec::rest(2, 1, Access::Read)],
    group: Group::Set,
    syntax: "destination key...",
    ..Command::EMPTY
};
const OF_ALL: &str = "O(N) where N is the number of members of all sets together.";
const OF_SMALLEST: &str = "O(N*M) where N is the number of members of the smallest set and M the number of sets.";

/// The family's table.
pub(super) const COMMANDS: &[Command] = &[
    Command {
        name: "sadd",
        arity: -3,
        flags: Flags::WRITE.union(Flags::DENYOOM).union(Flags::FAST),
        keys: &[KeySpec::one(1, Access::Insert)],
        group: Group::Set,
        complexity: "O(N) where N is the number of members given.",
        summary: "Adds members and returns the number of new ones.",
        syntax: "key member...",
        run: Run::Now(sadd),
        ..Command::EMPTY
    },
    Command {
        name: "scard",
        arity: 2,
        keys: &[KeySpec::one(1, Access::Inspect)],
        summary: "Returns the number of members.",
        syntax: "key",
        run: Run::Now(scard),
        ..READ_FAST
    },
    Command {
        name: "sdiff",
        answers_all: AnswersAll::Always,
        complexity: OF_ALL,
        summary: "Returns the members of the first set that no other set has.",
        run: Run::Now(sdiff),
        ..COMBINE
    },
    Command {
        name: "sdiffcard",
        arity: -3,
        flags: Flags::READONLY.union(Flags::MOVABLEKEYS),
        keys: &[KeySpec::counted(1, Access::Read)],
        since: "8.10.0",
        complexity: "O(N) for N members of all sets",
        summary: "Returns the number of members that only the first set has, counted up to a limit.",
        syntax: "numkeys key... [LIMIT limit]",
        run: Run::Now(sdiffcard),
        ..READ
    },
    Command {
        name: "sdiffstore",
        complexity: OF_ALL,
        summary: "Stores the members of the first set that no other set has.",
        event: "sdiffstore",
        run: Run::Now(sdiffstore),
        ..STORE
    },
    Command {
        name: "sinter",
        answers_all: AnswersAll::Always,
        complexity: OF_SMALLEST,
        summary: "Returns the members that all sets have.",
        run: Run::Now(sinter),
        ..COMBINE
    },
    Command {
        name: "sintercard",
        arity: -3,
        flags: Flags::READONLY.union(Flags::MOVABLEKEYS),
        keys: &[KeySpec::counted(1, Access::Read)],
        since: "7.0.0",
        complexity: OF_SMALLEST,
        summary: "Returns the number of members that all sets have, counted up to a limit.",
        syntax: "numkeys key... [LIMIT limit]",
        run: Run::Now(sintercard),
        ..READ
    },
    Command {
        name: "sinterstore",
        complexity: OF_SMALLEST,
        summary: "Stores the members that all sets have.",
        event: "sinterstore",
        run: Run::Now(sinterstore),
        ..STORE
    },
    Command {
        name: "sismember",
        arity: 3,
        keys: &[KeySpec::one(1, Access::Inspect)],
        summary: "Returns whether a value is a member.",
        syntax: "key member",
        run: Run::Now(sismember),
        ..READ_FAST
    },
    Command {
        name: "smembers",
        answers_all: AnswersAll::Always,
        arity: 2,
        keys: &[KeySpec::one(1, Access::Read)],
        complexity: "O(N) where N is the number of members.",
        summary: "Returns all members.",
        syntax: "key",
        tips: &["nondeterministic_output_order"],
        run: Run::Now(smembers),
        ..READ
    },
    Command {
        name: "smismember",
        arity: -3,
        keys: &[KeySpec::one(1, Access::Read)],
        since: "6.2.0",
        complexity: "O(N) where N is the number of members asked for.",
        summary: "Returns for several values whether each is a member.",
        syntax: "key member...",
        run: Run::Now(smismember),
        ..READ_FAST
    },
    Command {
        name: "smove",
        arity: 4,
        keys: &[KeySpec::one(1, Access::Take), KeySpec::one(2, Access::Insert)],
        summary: "Moves a member from one set to another.",
        syntax: "source destination member",
        run: Run::Now(smove),
        ..REMOVE
    },
    Command {
        name: "spop",
        arity: -2,
        keys: &[KeySpec::one(1, Access::Take)],
        complexity: "O(N) where N is the number of members taken.",
        summary: "Removes and returns random members.",
        syntax: "key [count]",
        tips: &["nondeterministic_output"],
        event: "spop",
        run: Run::Now(spop),
        ..REMOVE
    },
    Command {
        name: "srandmember",
        arity: -2,
        keys: &[KeySpec::one(1, Access::Read)],
        complexity: "O(N) where N is the number of members returned.",
        summary: "Returns random members, without repetition unless the count is negative.",
        syntax: "key [count]",
        tips: &["nondeterministic_output"],
        run: Run::Now(srandmember),
        ..READ
    },
    Command {
        name: "srem",
        arity: -3,
        keys: &[KeySpec::one(1, Access::Remove)],
        complexity: "O(N) where N is the number of members given.",
        summary: "Removes members; removes the key with its last member.",
        syntax: "key member...",
        run: Run::Now(srem),
        ..REMOVE
    },
    Command {
        name: "sscan",
        arity: -3,
        keys: &[KeySpec::one(1, Access::Read)],
        since: "2.8.0",
        complexity: "O(1) a call, O(N) for a whole walk over N members.",
        summary: "Iterates over the members.",
        syntax: "key cursor [MATCH pattern] [COUNT count]",
        tips: &["nondeterministic_output"],
        run: Run::Now(sscan),
        ..READ
    },
    Command {
        name: "sunion",
        answers_all: AnswersAll::Always,
        complexity: OF_ALL,
        summary: "Returns the members of all sets together.",
        run: Run::Now(sunion),
        ..COMBINE
    },
    Command {
        name: "sunioncard",
        arity: -3,
        flags: Flags::READONLY.union(Flags::MOVABLEKEYS),
        keys: &[KeySpec::counted(1, Access::Read)],
        since: "8.10.0",
        complexity: "O(N) for N members of all sets",
        summary: "Returns the number of members of all sets together, counted up to a limit or estimated.",
        syntax: "numkeys key... [APPROX] [LIMIT limit]",
        run: Run::Now(sunioncard),
        ..READ
    },
    Command {
        name: "sunionstore",
        complexity: OF_ALL,
        summary: "Stores the members of all sets together.",
        event: "sunionstore",
        run: Run::Now(sunionstore),
        ..STORE
    },
];
