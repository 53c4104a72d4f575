//! FEED: the data and all later changes, for readers outside the server. docs/feed.md specifies it.

use super::help::help;
use crate::base::lsn::Lsn;
use crate::engine::{Command, Ctx, Done, Flow, MayWait, Run};
use crate::persist::feed::{FeedRefusal, Question};
use crate::persist::limits::{FEED_PART_BYTES, FEED_PART_MAX_BYTES};
use crate::resp::reply::Reply;
use crate::spec::args::Args;
use crate::spec::error::Error;
use crate::spec::{Flags, Group};
use crate::wait::{Wait, deadline_after_ms};

const BAD_COUNT: Error = Error::text("ERR COUNT is a number of bytes from 1 to 8388608");

fn snapshot(ctx: &mut Ctx<'_>, _: Args<'_>) -> MayWait {
    ask(ctx, Question::Snapshot).map(|_| wait(None))
}

fn part(ctx: &mut Ctx<'_>, _: Args<'_>) -> MayWait {
    ask(ctx, Question::Part).map(|_| wait(None))
}

/// FEED READ: without BLOCK it replies at once; with BLOCK it waits for a change, with 0 for ever.
fn read(ctx: &mut Ctx<'_>, mut args: Args<'_>) -> MayWait {
    let after = u64::try_from(args.int()?).map_err(|_| Error::NotInteger)?;
    let (mut bytes, mut deadline_ms, mut blocks) = (FEED_PART_BYTES, None, false);
    while !args.is_empty() {
        if args.option("COUNT", 1) {
            let count = usize::try_from(args.int()?).ok();
            bytes = count.filter(|count| (1..=FEED_PART_MAX_BYTES).contains(count)).ok_or(BAD_COUNT)?;
        } else if args.option("BLOCK", 1) {
            (deadline_ms, blocks) = (deadline_after_ms(args.bytes()?, ctx.now_ms())?, true);
        } else {
            return Err(Error::Syntax);
        }
    }
    let question = Question::Units { after: Lsn::new(after), bytes };
    let has_begun = ask(ctx, question)?;
    match blocks || has_begun {
        // A part that is being read has no deadline.
        true => Ok(wait(deadline_ms.filter(|_| !has_begun))),
        false => {
            ctx.reply.null_array();
            Ok(Flow::Replied)
        }
    }
}

/// Asks the feed. Returns whether the answer is on its way.
fn ask(ctx: &mut Ctx<'_>, question: Question) -> Result<bool, Error> {
    let client = (ctx.session.key, ctx.entry.id);
    let (sessions, now_ms) = (&ctx.server.clients.sessions, ctx.server.time.clock.steady_ms());
    ctx.server.persistence.ask_feed(client, question, now_ms, |key| sessions.get(key).is_some()).map_err(refused)
}

fn wait(deadline_ms: Option<i64>) -> Flow {
    Flow::wait(Wait::until(deadline_ms, Reply::null_array))
}

/// FEED STATE: the history that the changes belong to, and how far the feed goes.
fn state(ctx: &mut Ctx<'_>, _: Args<'_>) -> Done {
    let last = ctx.server.persistence.feed_end().ok_or_else(|| refused(FeedRefusal::NoJournal))?;
    ctx.reply.map(2);
    ctx.reply.bulk(b"history");
    ctx.reply.bulk(ctx.server.persistence.history().as_bytes());
    ctx.reply.bulk(b"last");
    ctx.reply.integer(i64::try_from(last.get()).unwrap_or(i64::MAX));
    Ok(())
}

fn refused(refusal: FeedRefusal) -> Error {
    let code = match refusal {
        FeedRefusal::Ahead { .. } => "AHEAD",
        FeedRefusal::Crowded => "CROWDED",
        FeedRefusal::NoJournal | FeedRefusal::NoSnapshot | FeedRefusal::NoThread(_) => "ERR",
    };
    Error::owned(format!("{code} {refusal}"))
}

/// Fields that most subcommands of FEED share.
const SUB: Command = Command {
    arity: 2,
    flags: Flags::ADMIN.union(Flags::NOSCRIPT).union(Flags::STALE).union(Flags::NO_MULTI),
    group: Group::Server,
    categories: &["@replication"],
    since: "0.1.0",
    tips: &["nondeterministic_output"],
    ..Command::EMPTY
};

/// The family's table.
pub(super) const COMMANDS: &[Command] = &[Command {
    name: "feed",
    arity: -2,
    group: Group::Server,
    categories: &["@replication"],
    since: "0.1.0",
    complexity: "Depends on subcommand.",
    summary: "A container for commands that read the data and all changes.",
    sub: &[
        Command {
            name: "help",
            flags: Flags::LOADING.union(Flags::STALE),
            summary: "Lists the subcommands.",
            run: Run::Now(help),
            ..SUB
        },
        Command {
            name: "part",
            complexity: "O(N) where N is the number of bytes read, on a thread of its own",
            summary: "Returns the next part of the snapshot that is being read.",
            run: Run::MayWait(part),
            ..SUB
        },
        Command {
            name: "read",
            arity: -3,
            complexity: "O(N) where N is the number of bytes read, on a thread of its own",
            summary: "Returns changes after a given one, or waits for them.",
            syntax: "lsn:integer [COUNT:count:integer] [BLOCK:milliseconds:integer]",
            run: Run::MayWait(read),
            ..SUB
        },
        Command {
            name: "snapshot",
            complexity: "O(1)",
            summary: "Begins to read the newest snapshot.",
            run: Run::MayWait(snapshot),
            ..SUB
        },
        Command {
            name: "state",
            complexity: "O(1)",
            summary: "Returns the history that the changes belong to, and the last one.",
            run: Run::Now(state),
            ..SUB
        },
    ],
    run: Run::Container,
    ..Command::EMPTY
}];
