//! Lists: queues and stacks, and the blocking pops that make them queues between programs.
//!
//! A blocking command runs like the plain one, but returns a [`Wait`] if there is nothing to take. It is dispatched
//! again when one of its keys becomes a list. So the code here need not know whether a call has waited, with one
//! exception: a new call refuses a key of another type, and a call that has waited passes over it.

use super::pop::{ManyPop, count_arg, first_of};
use crate::config::EventClasses;
use crate::engine::observe::events::PUSH_FIRST;
use crate::engine::{Command, Ctx, Done, Flow, MayWait, Run};
use crate::keyspace::any_value::ValueRef;
use crate::keyspace::{DbIndex, Keyspace, Slot};
use crate::resp::reply::Reply;
use crate::spec::args::Args;
use crate::spec::error::Error;
use crate::spec::{Access, AnswersAll, Flags, Group, KeySpec};
use crate::value::list::List;
use crate::wait::{Wait, Want, deadline_after_seconds};

/// An end of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    Left,
    Right,
}

pub(super) const ENDS: [(&str, End); 2] = [("left", End::Left), ("right", End::Right)];

fn lpush(ctx: &mut Ctx<'_>, args: Args<'_>) -> Done {
    push(ctx, args, End::Left, true)
}

fn rpush(ctx: &mut Ctx<'_>, args: Args<'_>) -> Done {
    push(ctx, args, End::Right, true)
}

fn lpushx(ctx: &mut Ctx<'_>, args: Args<'_>) -> Done {
    push(ctx, args, End::Left, false)
}

fn rpushx(ctx: &mut Ctx<'_>, args: Args<'_>) -> Done {
    push(ctx, args, End::Right, false)
}

fn push(ctx: &mut Ctx<'_>, mut args: Args<'_>, end: End, may_create: bool) -> Done {
    let db = ctx.db();
    let key = args.bytes()?;
    let mut slot = find(ctx.ks, db, key)?;
    if slot.is_none() && !may_create {
        ctx.reply.integer(0);
        return Ok(());
    }
    let values = args.rest();
    if let Some(slot) = slot
        && values.len() > 1
    {
        ctx.ks.list_reserve(db, slot, values.len(), values.iter().map(<[u8]>::len).sum());
    }
    for value in values.iter() {
        slot = Some(ctx.ks.list_push(db, key, slot, end == End::Left, value)?);
    }
    let len = slot.map_or(Ok(0), |slot| ctx.ks.list(db, slot).map(List::len))?;
    ctx.reply.integer(len as i64);
    Ok(())
}

fn lpop(ctx: &mut Ctx<'_>, args: Args<'_>) -> Done {
    pop(ctx, args, End::Left)
}

fn rpop(ctx: &mut Ctx<'_>, args: Args<'_>) -> Done {
    pop(ctx, args, End::Right)
}

fn pop(ctx: &mut Ctx<'_>, mut args: Args<'_>, end: End) -> Done {
    let db = ctx.db();
    let key = args.bytes()?;
    if args.len() > 1 {
        return Err(Error::Arity(ctx.name().into()));
    }
    let count = if args.is_empty() { None } else { Some(count_arg(&mut args)?) };
    let Some(slot) = find(ctx.ks, db, key)? else {
        if count.is_some() {
            ctx.reply.null_array()
        } else {
            ctx.reply.null()
        }
        return Ok(());
    };
    match count {
        Some(count) => take_many(ctx, db, slot, end, count),
        None => take_one(ctx, db, slot, end),
    }
}

/// Replies with the element at one end and removes it.
fn take_one(ctx: &mut Ctx<'_>, db: DbIndex, slot: Slot, end: End) -> Done {
    ctx.reply.bulk_or_null(at_end(ctx.ks.list(db, slot)?, end));
    Ok(ctx.ks.list_pop(db, slot, end == End::Left, 1)?)
}

/// Replies with up to `count` elements from one end and removes them.
fn take_many(ctx: &mut Ctx<'_>, db: DbIndex, slot: Slot, end: End, count: usize) -> Done {
    let list = ctx.ks.list(db, slot)?;
    let count = count.min(list.len());
    ctx.reply.array(count);
    let taken = list.range(take(end, count, list.len()));
    match end {
        End::Left => taken.for_each(|value| ctx.reply.bulk(value)),
        End::Right => taken.rev().for_each(|value| ctx.reply.bulk(value)),
    }
    Ok(ctx.ks.list_pop(db, slot, end == End::Left, count)?)
}

/// The indexes of `count` elements at one end of a list of `len`.
pub(super) fn take(end: End, count: usize, len: usize) -> std::ops::Range<usize> {
    match end {
        End::Left => 0..count.min(len),
        End::Right => len.saturating_sub(count)..len,
    }
}

fn at_end(list: &List, end: End) -> Option<&[u8]> {
    match end {
        End::Left => list.front(),
        End::Right => list.back(),
    }
}

fn llen(ctx: &mut Ctx<'_>, mut args: Args<'_>) -> Done {
    let len = read(ctx.ks, ctx.session.db, args.bytes()?)?.map_or(0, List::len);
    ctx.reply.integer(len as i64);
    Ok(())
}

fn lrange(ctx: &mut Ctx<'_>, mut args: Args<'_>) -> Done {
    let (key, start, stop) = (args.bytes()?, args.int()?, args.int()?);
    let Some(list) = read(ctx.ks, ctx.session.db, key)? else {
        ctx.reply.array(0);
        return Ok(());
    };
    let range = list.range(span(start, stop, list.len()));
    ctx.reply.array(range.len());
    range.for_each(|value| ctx.reply.bulk(value));
    Ok(())
}

/// Converts two inclusive indexes, negative ones counted from the end, to a range.
fn span(start: i64, stop: i64, len: usize) -> std::ops::Range<usize> {
    let from_end = |index: i64| if index < 0 { index.saturating_add(len as i64) } else { index };
    let start = from_end(start).max(0) as usize;
    let end = from_end(stop).saturating_add(1).clamp(0, len as i64) as usize;
    start.min(end)..end
}

fn lindex(ctx: &mut Ctx<'_>, mut args: Args<'_>) -> Done {
    let key = args.bytes()?;
    let Some(list) = read(ctx.ks, ctx.session.db, key)? else {
        ctx.reply.null();
        return Ok(());
    };
    let index = index_in(args.int()?, list.len());
    ctx.reply.bulk_or_null(index.and_then(|index| list.at(index)));
    Ok(())
}

/// Converts an index, which counts from the end if negative.
fn index_in(index: i64, len: usize) -> Option<usize> {
    usize::try_from(if index < 0 { index.saturating_add(len as i64) } else { index }).ok()
}

fn lset(ctx: &mut Ctx<'_>, mut args: Args<'_>) -> Done {
    let db = ctx.db();
    let slot = find(ctx.ks, db, args.bytes()?)?.ok_or(Error::NoSuchKey)?;
    let index = args.int()?;
    let value = args.bytes()?;
    // The representation changes for the new value even if the index turns out to be wrong, as in Redis.
    ctx.ks.list_reserve(db, slot, 1, value.len());
    let index = index_in(index, ctx.ks.list(db, slot)?.len()).ok_or(Error::IndexOutOfRange)?;
    if !ctx.ks.list_set(db, slot, index, value)? {
        return Err(Error::IndexOutOfRange);
    }
    ctx.reply.ok();
    Ok(())
}

fn linsert(ctx: &mut Ctx<'_>, mut args: Args<'_>) -> Done {
    let db = ctx.db();
    let key = args.bytes()?;
    let behind = args.one_of(&[("before", 0), ("after", 1)]).ok_or(Error::Syntax)?;
    let (pivot, value) = (args.bytes()?, args.bytes()?);
    let Some(slot) = find(ctx.ks, db, key)? else {
        ctx.reply.integer(0);
        return Ok(());
    };
    ctx.ks.list_reserve(db, slot, 1, value.len());
    let list = ctx.ks.list(db, slot)?;
    let len = list.len() as i64;
    let Some(index) = list.iter().position(|element| element == pivot) else {
        ctx.reply.integer(-1);
        return Ok(());
    };
    ctx.ks.list_insert(db, slot, index + behind, value)?;
    ctx.reply.integer(len + 1);
    Ok(())
}

fn lrem(ctx: &mut Ctx<'_>, mut args: Args<'_>) -> Done {
    let db = ctx.db();
    let (key, count, value) = (args.bytes()?, args.int()?, args.bytes()?);
    if count == i64::MIN {
        return Err(OUT_OF_RANGE);
    }
    let Some(slot) = find(ctx.ks, db, key)? else {
        ctx.reply.integer(0);
        return Ok(());
    };
    let most = if count == 0 { usize::MAX } else { usize::try_from(count.unsigned_abs()).unwrap_or(usize::MAX) };
    let removed = ctx.ks.list_remove(db, slot, value, most, count < 0)?;
    ctx.reply.integer(removed as i64);
    Ok(())
}

fn ltrim(ctx: &mut Ctx<'_>, mut args: Args<'_>) -> Done {
    let db = ctx.db();
    let (key, start, stop) = (args.bytes()?, args.int()?, args.int()?);
    if let Some(slot) = find(ctx.ks, db, key)? {
        let len = ctx.ks.list(db, slot)?.len();
        // Sent even if nothing is removed.
        ctx.ks.note_event(EventClasses::LIST, "ltrim", db, key);
        let kept = span(start, stop, len);
        if kept.is_empty() {
            ctx.ks.list_pop(db, slot, true, len)?;
        } else {
            ctx.ks.list_pop(db, slot, false, len - kept.end)?;
            ctx.ks.list_pop(db, slot, true, kept.start)?;
            if kept == (0..len) {
                ctx.ks.list_touch(db, slot);
            }
        }
    }
    ctx.reply.ok();
    Ok(())
}

/// The error for the one number that cannot be negated.
const OUT_OF_RANGE: Error =
    Error::text("ERR value is out of range, value must between -9223372036854775807 and 9223372036854775807");

/// The options of LPOS.
struct Search {
    /// Matches to skip.
    skip: usize,
    backwards: bool,
    /// The most matches to return; `None` means one, which is not wrapped in an array.
    count: Option<usize>,
    /// The most elements to compare.
    max_looks: usize,
}

impl Search {
    fn parse(args: &mut Args<'_>) -> Result<Search, Error> {
        let unlimited = |n: i64| if n == 0 { usize::MAX } else { usize::try_from(n).unwrap_or(usize::MAX) };
        let not_below_0 = |args: &mut Args<'_>, error: &'static str| match args.int_or(Error::text(error))? {
            ..0 => Err(Error::text(error)),
            n => Ok(unlimited(n)),
        };
        let mut search = Search { skip: 0, backwards: false, count: None, max_looks: usize::MAX };
        while !args.is_empty() {
            if args.option("rank", 1) {
                search.set_rank(args.int()?)?;
            } else if args.option("count", 1) {
                search.count = Some(not_below_0(args, "ERR COUNT can't be negative")?);
            } else if args.option("maxlen", 1) {
                search.max_looks = not_below_0(args, "ERR MAXLEN can't be negative")?;
            } else {
                return Err(Error::Syntax);
            }
        }
        Ok(search)
    }

    fn set_rank(&mut self, rank: i64) -> Result<(), Error> {
        if rank == 0 {
            return Err(Error::text(
                "ERR RANK can't be zero: use 1 to start from the first match, 2 from the second ... \
                 or use negative to start from the end of the list",
            ));
        }
        if rank == i64::MIN {
            return Err(OUT_OF_RANGE);
        }
        self.backwards = rank < 0;
        self.skip = usize::try_from(rank.unsigned_abs() - 1).unwrap_or(usize::MAX);
        Ok(())
    }

    /// Returns the indexes of the matches, in search order.
    fn run<'a>(&self, list: &'a List, value: &'a [u8]) -> impl Iterator<Item = usize> + 'a {
        let (len, backwards) = (list.len(), self.backwards);
        let mut elements = list.iter();
        let next = move || if backwards { elements.next_back() } else { elements.next() };
        std::iter::from_fn(next)
            .take(self.max_looks)
            .enumerate()
            .filter(move |(_, element)| *element == value)
            .map(move |(at, _)| if backwards { len - 1 - at } else { at })
            .skip(self.skip)
            .take(self.count.unwrap_or(1))
    }
}

fn lpos(ctx: &mut Ctx<'_>, mut args: Args<'_>) -> Done {
    let (key, value) = (args.bytes()?, args.bytes()?);
    let search = Search::parse(&mut args)?;
    let list = read(ctx.ks, ctx.session.db, key)?;
    let mut found = list.into_iter().flat_map(|list| search.run(list, value));
    if search.count.is_none() {
        match found.next() {
            Some(index) => ctx.reply.integer(index as i64),
            None => ctx.reply.null(),
        }
        return Ok(());
    }
    let mark = ctx.reply.begin();
    let mut n = 0;
    for index in found {
        ctx.reply.integer(index as i64);
        n += 1;
    }
    ctx.reply.end_array(mark, n);
    Ok(())
}

/// The move of one element from list to list.
#[derive(Clone, Copy)]
struct Move<'a> {
    source: &'a [u8],
    destination: &'a [u8],
    from: End,
    to: End,
}

impl<'a> Move<'a> {
    fn parse(args: &mut Args<'a>) -> Result<Move<'a>, Error> {
        let (source, destination) = (args.bytes()?, args.bytes()?);
        let from = args.one_of(&ENDS).ok_or(Error::Syntax)?;
        let to = args.one_of(&ENDS).ok_or(Error::Syntax)?;
        Ok(Move { source, destination, from, to })
    }

    /// Parses the old form, whose ends are fixed.
    fn parse_old(args: &mut Args<'a>) -> Result<Move<'a>, Error> {
        Ok(Move { source: args.bytes()?, destination: args.bytes()?, from: End::Right, to: End::Left })
    }

    /// Moves the element and replies with it; false, without a reply, if there is none.
    fn run(self, ctx: &mut Ctx<'_>) -> Result<bool, Error> {
        let db = ctx.db();
        let skip_wrong = ctx.is_retry();
        let Some(from) = find_or_skip(ctx.ks, db, self.source, skip_wrong)? else { return Ok(false) };
        if self.source == self.destination {
            ctx.reply.bulk_or_null(at_end(ctx.ks.list(db, from)?, self.from));
            ctx.ks.list_rotate(db, from, self.from == End::Left, self.to == End::Left)?;
            return Ok(true);
        }
        let to = find(ctx.ks, db, self.destination)?;
        let Some(value) = at_end(ctx.ks.list(db, from)?, self.from).map(<[u8]>::to_vec) else { return Ok(false) };
        ctx.ks.list_pop(db, from, self.from == End::Left, 1)?;
        ctx.ks.list_push(db, self.destination, to, self.to == End::Left, &value)?;
        ctx.reply.bulk(&value);
        Ok(true)
    }

    fn run_or_null(self, ctx: &mut Ctx<'_>) -> Done {
        if !self.run(ctx)? {
            ctx.reply.null();
        }
        Ok(())
    }

    fn run_or_wait(self, ctx: &mut Ctx<'_>, timeout: &[u8]) -> MayWait {
        let deadline_ms = deadline_after_seconds(timeout, ctx.now_ms())?;
        if self.run(ctx)? {
            return Ok(Flow::Replied);
        }
        if !ctx.may_wait() {
            // Redis replies with a null here, and with a null array when a timeout has passed.
            ctx.reply.null();
            return Ok(Flow::Replied);
        }
        Ok(Flow::wait(Wait::new(Want::List, [self.source].into_iter(), deadline_ms, Reply::null_array)))
    }
}

fn lmove(ctx: &mut Ctx<'_>, mut args: Args<'_>) -> Done {
    Move::parse(&mut args)?.run_or_null(ctx)
}

fn rpoplpush(ctx: &mut Ctx<'_>, mut args: Args<'_>) -> Done {
    Move::parse_old(&mut args)?.run_or_null(ctx)
}

fn blmove(ctx: &mut Ctx<'_>, mut args: Args<'_>) -> MayWait {
    let step = Move::parse(&mut args)?;
    step.run_or_wait(ctx, args.bytes()?)
}

fn brpoplpush(ctx: &mut Ctx<'_>, mut args: Args<'_>) -> MayWait {
    let step = Move::parse_old(&mut args)?;
    step.run_or_wait(ctx, args.bytes()?)
}

fn blpop(ctx: &mut Ctx<'_>, args: Args<'_>) -> MayWait {
    pop_first_or_wait(ctx, args, End::Left)
}

fn brpop(ctx: &mut Ctx<'_>, args: Args<'_>) -> MayWait {
    pop_first_or_wait(ctx, args, End::Right)
}

fn pop_first_or_wait(ctx: &mut Ctx<'_>, mut args: Args<'_>, end: End) -> MayWait {
    let keys = args.take(args.len().saturating_sub(1))?;
    let deadline_ms = deadline_after_seconds(args.bytes()?, ctx.now_ms())?;
    let Some((key, slot)) = first_of(ctx, keys, find)? else {
        return Ok(Flow::wait(Wait::new(Want::List, keys.iter(), deadline_ms, Reply::null_array)));
    };
    ctx.reply.array(2);
    ctx.reply.bulk(key);
    take_one(ctx, ctx.db(), slot, end)?;
    Ok(Flow::Replied)
}

/// LMPOP and BLMPOP: replies with elements and removes them; false, without a reply, where no key holds a list.
fn pop_many(ctx: &mut Ctx<'_>, pop: &ManyPop<'_, End>) -> Result<bool, Error> {
    let Some(slot) = pop.begin(ctx, find)? else { return Ok(false) };
    take_many(ctx, ctx.db(), slot, pop.end, pop.count)?;
    Ok(true)
}

fn lmpop(ctx: &mut Ctx<'_>, mut args: Args<'_>) -> Done {
    if !pop_many(ctx, &ManyPop::parse(&mut args, &ENDS)?)? {
        ctx.reply.null_array();
    }
    Ok(())
}

fn blmpop(ctx: &mut Ctx<'_>, mut args: Args<'_>) -> MayWait {
    // Redis checks the timeout last.
    let timeout = args.bytes()?;
    let pop = ManyPop::parse(&mut args, &ENDS)?;
    let deadline_ms = deadline_after_seconds(timeout, ctx.now_ms())?;
    if pop_many(ctx, &pop)? {
        return Ok(Flow::Replied);
    }
    Ok(Flow::wait(Wait::new(Want::List, pop.keys.iter(), deadline_ms, Reply::null_array)))
}

/// Returns the list at a key, for a command that reads.
fn read<'a>(ks: &'a mut Keyspace, db: DbIndex, key: &[u8]) -> Result<Option<&'a List>, Error> {
    match ks.read(db, key) {
        None => Ok(None),
        Some(ValueRef::List(list)) => Ok(Some(list)),
        Some(_) => Err(Error::WrongType),
    }
}

/// Returns the slot of the list at a key, for a command that writes.
pub(super) fn find(ks: &mut Keyspace, db: DbIndex, key: &[u8]) -> Result<Option<Slot>, Error> {
    let slot = ks.find(db, key);
    slot.map_or(Ok(()), |slot| ks.list(db, slot).map(drop))?;
    Ok(slot)
}

/// As [`find`]; with `skip_wrong` a value of another type counts as absent.
pub(super) fn find_or_skip(
    ks: &mut Keyspace,
    db: DbIndex,
    key: &[u8],
    skip_wrong: bool,
) -> Result<Option<Slot>, Error> {
    match find(ks, db, key) {
        Err(Error::WrongType) if skip_wrong => Ok(None),
        found => found,
    }
}

/// The family's table.
pub(super) const COMMANDS: &[Command] = &[
    Command {
        name: "blmove",
        arity: 6,
        flags: Flags::WRITE.union(Flags::DENYOOM).union(Flags::BLOCKING),
        keys: &[KeySpec::one(1, Access::Take), KeySpec::one(2, Access::Insert)],
        group: Group::List,
        since: "6.2.0",
        summary: "Moves an element from one end of a list to an end of another, or waits for one.",
        syntax: "source destination <LEFT | RIGHT>:wherefrom <LEFT | RIGHT>:whereto timeout",
        event: PUSH_FIRST,
        run: Run::MayWait(|ctx, args| ctx.as_one_change(|ctx| blmove(ctx, args))),
        ..Command::EMPTY
    },
    Command {
        name: "blmpop",
        arity: -5,
        flags: Flags::WRITE.union(Flags::BLOCKING).union(Flags::MOVABLEKEYS),
        keys: &[KeySpec::counted(2, Access::Take)],
        group: Group::List,
        since: "7.0.0",
        complexity: "O(N+M) for N keys and M elements",
        summary: "Removes and returns elements of the first list that exists, or waits for one.",
        syntax: "timeout numkeys key... <LEFT | RIGHT>:where [COUNT count]",
        run: Run::MayWait(blmpop),
        ..Command::EMPTY
    },
    Command {
        name: "blpop",
        arity: -3,
        flags: Flags::WRITE.union(Flags::BLOCKING),
        keys: &[KeySpec::range(1, -2, 1, Access::Take)],
        group: Group::List,
        since: "2.0.0",
        complexity: "O(N) for N keys",
        summary: "Removes and returns the first element of the first list that exists, or waits for one.",
        syntax: "key... timeout",
        run: Run::MayWait(blpop),
        ..Command::EMPTY
    },
    Command {
        name: "brpop",
        arity: -3,
        flags: Flags::WRITE.union(Flags::BLOCKING),
        keys: &[KeySpec::range(1, -2, 1, Access::Take)],
        group: Group::List,
        since: "2.0.0",
        complexity: "O(N) for N keys",
        summary: "Removes and returns the last element of the first list that exists, or waits for one.",
        syntax: "key... timeout",
        run: Run::MayWait(brpop),
        ..Command::EMPTY
    },
    Command {
        name: "brpoplpush",
        arity: 4,
        flags: Flags::WRITE.union(Flags::DENYOOM).union(Flags::BLOCKING),
        keys: &[KeySpec::one(1, Access::Take), KeySpec::one(2, Access::Insert)],
        group: Group::List,
        since: "2.2.0",
        summary: "Moves the last element of a list to the front of another, or waits for one.",
        syntax: "source destination timeout",
        event: PUSH_FIRST,
        run: Run::MayWait(|ctx, args| ctx.as_one_change(|ctx| brpoplpush(ctx, args))),
        ..Command::EMPTY
    },
    Command {
        name: "lindex",
        arity: 3,
        flags: Flags::READONLY,
        keys: &[KeySpec::one(1, Access::Read)],
        group: Group::List,
        complexity: "O(N) in the nodes from the nearer end",
        summary: "Returns the element of a list at an index.",
        syntax: "key index",
        run: Run::Now(lindex),
        ..Command::EMPTY
    },
    Command {
        name: "linsert",
        arity: 5,
        flags: Flags::WRITE.union(Flags::DENYOOM),
        keys: &[KeySpec::one(1, Access::Insert)],
        group: Group::List,
        since: "2.2.0",
        complexity: "O(N) in the elements before the pivot",
        summary: "Inserts an element before or after another element of a list.",
        syntax: "key <BEFORE | AFTER>:where pivot element",
        run: Run::Now(linsert),
        ..Command::EMPTY
    },
    Command {
        name: "llen",
        arity: 2,
        flags: Flags::READONLY.union(Flags::FAST),
        keys: &[KeySpec::one(1, Access::Inspect)],
        group: Group::List,
        summary: "Returns the length of a list.",
        syntax: "key",
        run: Run::Now(llen),
        ..Command::EMPTY
    },
    Command {
        name: "lmove",
        arity: 5,
        flags: Flags::WRITE.union(Flags::DENYOOM),
        keys: &[KeySpec::one(1, Access::Take), KeySpec::one(2, Access::Insert)],
        group: Group::List,
        since: "6.2.0",
        summary: "Moves an element from one end of a list to an end of another.",
        syntax: "source destination <LEFT | RIGHT>:wherefrom <LEFT | RIGHT>:whereto",
        event: PUSH_FIRST,
        run: Run::Now(|ctx, args| ctx.as_one_change(|ctx| lmove(ctx, args))),
        ..Command::EMPTY
    },
    Command {
        name: "lmpop",
        arity: -4,
        flags: Flags::WRITE.union(Flags::MOVABLEKEYS),
        keys: &[KeySpec::counted(1, Access::Take)],
        group: Group::List,
        since: "7.0.0",
        complexity: "O(N+M) for N keys and M elements",
        summary: "Removes and returns elements of the first list that exists.",
        syntax: "numkeys key... <LEFT | RIGHT>:where [COUNT count]",
        run: Run::Now(lmpop),
        ..Command::EMPTY
    },
    Command {
        name: "lpop",
        arity: -2,
        flags: Flags::WRITE.union(Flags::FAST),
        keys: &[KeySpec::one(1, Access::Take)],
        group: Group::List,
        complexity: "O(N) for N elements",
        summary: "Removes and returns the first elements of a list.",
        syntax: "key [count]",
        run: Run::Now(lpop),
        ..Command::EMPTY
    },
    Command {
        name: "lpos",
        arity: -3,
        flags: Flags::READONLY,
        keys: &[KeySpec::one(1, Access::Read)],
        group: Group::List,
        since: "6.0.6",
        complexity: "O(N) in the list's length",
        summary: "Returns the indexes of matching elements of a list.",
        syntax: "key element [RANK rank] [COUNT num-matches:integer] [MAXLEN len]",
        run: Run::Now(lpos),
        ..Command::EMPTY
    },
    Command {
        name: "lpush",
        arity: -3,
        flags: Flags::WRITE.union(Flags::DENYOOM).union(Flags::FAST),
        keys: &[KeySpec::one(1, Access::Insert)],
        group: Group::List,
        complexity: "O(N) for N elements",
        summary: "Prepends elements to a list, which is created if it does not exist.",
        syntax: "key element...",
        run: Run::Now(lpush),
        ..Command::EMPTY
    },
    Command {
        name: "lpushx",
        arity: -3,
        flags: Flags::WRITE.union(Flags::DENYOOM).union(Flags::FAST),
        keys: &[KeySpec::one(1, Access::Insert)],
        group: Group::List,
        since: "2.2.0",
        complexity: "O(N) for N elements",
        summary: "Prepends elements to a list if it exists.",
        syntax: "key element...",
        run: Run::Now(lpushx),
        ..Command::EMPTY
    },
    Command {
        name: "lrange",
        answers_all: AnswersAll::ToTheLast,
        arity: 4,
        flags: Flags::READONLY,
        keys: &[KeySpec::one(1, Access::Read)],
        group: Group::List,
        complexity: "O(S+N) for N elements, S nodes from the nearer end",
        summary: "Returns the elements of a list between two indexes.",
        syntax: "key start stop",
        run: Run::Now(lrange),
        ..Command::EMPTY
    },
    Command {
        name: "lrem",
        arity: 4,
        flags: Flags::WRITE,
        keys: &[KeySpec::one(1, Access::Remove)],
        group: Group::List,
        complexity: "O(N) in the list's length",
        summary: "Removes matching elements from a list.",
        syntax: "key count element",
        run: Run::Now(lrem),
        ..Command::EMPTY
    },
    Command {
        name: "lset",
        arity: 4,
        flags: Flags::WRITE.union(Flags::DENYOOM),
        keys: &[KeySpec::one(1, Access::Modify)],
        group: Group::List,
        complexity: "O(N) in the nodes from the nearer end",
        summary: "Replaces the element of a list at an index.",
        syntax: "key index element",
        run: Run::Now(lset),
        ..Command::EMPTY
    },
    Command {
        name: "ltrim",
        arity: 4,
        flags: Flags::WRITE,
        keys: &[KeySpec::one(1, Access::Remove)],
        group: Group::List,
        complexity: "O(N) for N removed elements",
        summary: "Removes all elements of a list outside a range of indexes.",
        syntax: "key start stop",
        event: "ltrim",
        run: Run::Now(ltrim),
        ..Command::EMPTY
    },
    Command {
        name: "rpop",
        arity: -2,
        flags: Flags::WRITE.union(Flags::FAST),
        keys: &[KeySpec::one(1, Access::Take)],
        group: Group::List,
        complexity: "O(N) for N elements",
        summary: "Removes and returns the last elements of a list.",
        syntax: "key [count]",
        run: Run::Now(rpop),
        ..Command::EMPTY
    },
    Command {
        name: "rpoplpush",
        arity: 3,
        flags: Flags::WRITE.union(Flags::DENYOOM),
        keys: &[KeySpec::one(1, Access::Take), KeySpec::one(2, Access::Insert)],
        group: Group::List,
        since: "1.2.0",
        summary: "Moves the last element of a list to the front of another.",
        syntax: "source destination",
        event: PUSH_FIRST,
        run: Run::Now(|ctx, args| ctx.as_one_change(|ctx| rpoplpush(ctx, args))),
        ..Command::EMPTY
    },
    Command {
        name: "rpush",
        arity: -3,
        flags: Flags::WRITE.union(Flags::DENYOOM).union(Flags::FAST),
        keys: &[KeySpec::one(1, Access::Insert)],
        group: Group::List,
        complexity: "O(N) for N elements",
        summary: "Appends elements to a list, which is created if it does not exist.",
        syntax: "key element...",
        run: Run::Now(rpush),
        ..Command::EMPTY
    },
    Command {
        name: "rpushx",
        arity: -3,
        flags: Flags::WRITE.union(Flags::DENYOOM).union(Flags::FAST),
        keys: &[KeySpec::one(1, Access::Insert)],
        group: Group::List,
        since: "2.2.0",
        complexity: "O(N) for N elements",
        summary: "Appends elements to a list if it exists.",
        syntax: "key element...",
        run: Run::Now(rpushx),
        ..Command::EMPTY
    },
];
