//! LMOVEM and BLMOVEM: move several elements from one end of a list to an end of another, all at once or not at all.
//!
//! With `OBO` (one by one), each element is put at the destination's end outside the one taken before it. With `BULK`,
//! all elements keep their order. The two differ only if both ends are the same, left or right: then `OBO` reverses the
//! order. The reply shows the elements in their order at the destination.
//!
//! A list that is its own destination never becomes empty on the way, so it keeps its key and its expiry.

use super::list::{ENDS, End, find, find_or_skip, take};
use crate::engine::{Command, Ctx, Done, Flow, MayWait, Run};
use crate::keyspace::Slot;
use crate::resp::reply::Reply;
use crate::spec::args::Args;
use crate::spec::error::Error;
use crate::spec::{Access, Flags, Group, KeySpec};
use crate::wait::{Wait, Want, deadline_after_seconds};

/// The number of elements to move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum HowMany {
    /// At most this many.
    UpTo(usize),
    /// Exactly this many, or none.
    Exactly(usize),
}

/// The arguments of a call.
#[derive(Clone, Copy)]
struct ManyMove<'a> {
    source: &'a [u8],
    destination: &'a [u8],
    from: End,
    to: End,
    how_many: HowMany,
    /// Whether each element is put outside the one taken before it.
    one_by_one: bool,
}

impl<'a> ManyMove<'a> {
    /// Takes the keys and ends, then the timeout if the command has one, then the options.
    fn parse(args: &mut Args<'a>, has_timeout: bool) -> Result<(ManyMove<'a>, Option<&'a [u8]>), Error> {
        let (source, destination) = (args.bytes()?, args.bytes()?);
        let from = args.one_of(&ENDS).ok_or(Error::Syntax)?;
        let to = args.one_of(&ENDS).ok_or(Error::Syntax)?;
        let timeout = if has_timeout { Some(args.bytes()?) } else { None };
        let (how_many, one_by_one) = how_many(args)?;
        Ok((ManyMove { source, destination, from, to, how_many, one_by_one }, timeout))
    }

    /// The number of elements to move from a list of `len`; `None` if the request can't be met.
    fn count_of(&self, len: usize) -> Option<usize> {
        match self.how_many {
            HowMany::UpTo(most) => Some(most.min(len)).filter(|count| *count > 0),
            HowMany::Exactly(count) => (count <= len).then_some(count),
        }
    }

    /// Moves elements and replies with them; false, without a move or reply, if the request can't be met.
    fn run(self, ctx: &mut Ctx<'_>) -> Result<bool, Error> {
        let (db, skip_wrong) = (ctx.db(), ctx.is_retry());
        let Some(source) = find_or_skip(ctx.ks, db, self.source, skip_wrong)? else { return Ok(false) };
        let destination = find(ctx.ks, db, self.destination)?;
        let list = ctx.ks.list(db, source)?;
        let Some(count) = self.count_of(list.len()) else { return Ok(false) };
        let range = take(self.from, count, list.len());
        let mut elements: Vec<Vec<u8>> = list.range(range).map(<[u8]>::to_vec).collect();
        if self.one_by_one && self.from == self.to {
            elements.reverse();
        }
        self.admit(ctx, &elements)?;
        let before = ctx.ks.changes_by_commands();
        if self.source == self.destination {
            self.move_within(ctx, source, &elements)?;
        } else {
            self.move_between(ctx, source, destination, &elements)?;
        }
        ctx.ks.count_changes_as(before, count as u64);
        ctx.reply.array(count);
        elements.iter().for_each(|element| ctx.reply.bulk(element));
        Ok(true)
    }

    /// Refuses a move that would not fit the journal, which stores every element.
    fn admit(&self, ctx: &Ctx<'_>, elements: &[Vec<u8>]) -> Result<(), Error> {
        /// The bytes of an effect without its keys and elements.
        const BESIDE: usize = 24;
        let bytes: usize = elements.iter().map(|element| element.len() + BESIDE).sum();
        ctx.admit_effects(bytes + 2 * (self.source.len() + self.destination.len() + BESIDE))
    }

    fn move_between(
        &self,
        ctx: &mut Ctx<'_>,
        source: Slot,
        mut destination: Option<Slot>,
        elements: &[Vec<u8>],
    ) -> Result<(), Error> {
        let db = ctx.db();
        if let Some(slot) = destination {
            ctx.ks.list_reserve(db, slot, elements.len(), elements.iter().map(Vec::len).sum());
        }
        ctx.ks.list_pop(db, source, self.from == End::Left, elements.len())?;
        let mut push = |element: &Vec<u8>| -> Result<(), Error> {
            destination = Some(ctx.ks.list_push(db, self.destination, destination, self.to == End::Left, element)?);
            Ok(())
        };
        match self.to {
            End::Left => elements.iter().rev().try_for_each(&mut push),
            End::Right => elements.iter().try_for_each(&mut push),
        }
    }

    fn move_within(&self, ctx: &mut Ctx<'_>, slot: Slot, elements: &[Vec<u8>]) -> Result<(), Error> {
        let db = ctx.db();
        if self.from != self.to {
            for _ in elements {
                ctx.ks.list_rotate(db, slot, self.from == End::Left, self.to == End::Left)?;
            }
            return Ok(());
        }
        ctx.ks.list_touch(db, slot);
        if !self.one_by_one {
            return Ok(());
        }
        let range = take(self.to, elements.len(), ctx.ks.list(db, slot)?.len());
        for (index, element) in range.zip(elements) {
            ctx.ks.list_set(db, slot, index, element)?;
        }
        Ok(())
    }
}

/// Takes `COUNT count` or `EXACTLY count` and the order; one element without them.
fn how_many(args: &mut Args<'_>) -> Result<(HowMany, bool), Error> {
    if args.is_empty() {
        return Ok((HowMany::UpTo(1), true));
    }
    if args.len() != 3 {
        return Err(Error::Syntax);
    }
    let is_exact = args.one_of(&[("count", false), ("exactly", true)]).ok_or(Error::Syntax)?;
    let wrong = Error::text("ERR count should be greater than 0");
    let count = args.int_or(wrong.clone())?;
    let count = usize::try_from(count).ok().filter(|count| *count > 0).ok_or(wrong)?;
    let one_by_one = args.one_of(&[("obo", true), ("bulk", false)]).ok_or(Error::Syntax)?;
    Ok((if is_exact { HowMany::Exactly(count) } else { HowMany::UpTo(count) }, one_by_one))
}

fn lmovem(ctx: &mut Ctx<'_>, mut args: Args<'_>) -> Done {
    let (step, _) = ManyMove::parse(&mut args, false)?;
    if !step.run(ctx)? {
        match step.how_many {
            HowMany::Exactly(_) => ctx.reply.null_array(),
            HowMany::UpTo(_) => ctx.reply.array(0),
        }
    }
    Ok(())
}

fn blmovem(ctx: &mut Ctx<'_>, mut args: Args<'_>) -> MayWait {
    let (step, timeout) = ManyMove::parse(&mut args, true)?;
    let deadline_ms = deadline_after_seconds(timeout.unwrap_or_default(), ctx.now_ms())?;
    if step.run(ctx)? {
        return Ok(Flow::Replied);
    }
    // A call that needs more elements than there are is retried whenever the list changes, and keeps its place in the
    // queue.
    Ok(Flow::wait(Wait::new(Want::List, [step.source].into_iter(), deadline_ms, Reply::null_array)))
}

/// The family's table.
pub(super) const COMMANDS: &[Command] = &[
    Command {
        name: "blmovem",
        arity: -6,
        flags: Flags::WRITE.union(Flags::DENYOOM).union(Flags::BLOCKING),
        keys: &[KeySpec::one(1, Access::Take), KeySpec::one(2, Access::Insert)],
        group: Group::List,
        since: "8.10.0",
        complexity: "O(N) for N elements",
        summary: "Moves elements from one end of a list to an end of another, or waits for enough of them.",
        syntax: "source destination <LEFT | RIGHT>:wherefrom <LEFT | RIGHT>:whereto timeout \
            [<COUNT count | EXACTLY exactly:integer>:selector <OBO | BULK>:ordering]:how-many",
        run: Run::MayWait(blmovem),
        ..Command::EMPTY
    },
    Command {
        name: "lmovem",
        arity: -5,
        flags: Flags::WRITE.union(Flags::DENYOOM),
        keys: &[KeySpec::one(1, Access::Take), KeySpec::one(2, Access::Insert)],
        group: Group::List,
        since: "8.10.0",
        complexity: "O(N) for N elements",
        summary: "Moves elements from one end of a list to an end of another: up to a number, or exactly that many.",
        syntax: "source destination <LEFT | RIGHT>:wherefrom <LEFT | RIGHT>:whereto [<COUNT count | EXACTLY \
            exactly:integer>:selector <OBO | BULK>:ordering]:how-many",
        run: Run::Now(lmovem),
        ..Command::EMPTY
    },
];
