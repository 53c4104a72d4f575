//! Transactions: MULTI queues commands, EXEC runs them as one unit, and WATCH cancels it if a watched key has changed.

use crate::engine::run::dispatch::call;
use crate::engine::{Command, Ctx, Done, Origin, Run};
use crate::resp::request::OwnedArgv;
use crate::session::{Restrictions, Transaction};
use crate::spec::args::Args;
use crate::spec::error::{Error, ROLLED_BACK};
use crate::spec::table::CommandId;
use crate::spec::{Access, Flags, Group, KeySpec};

fn multi(ctx: &mut Ctx<'_>, _: Args<'_>) -> Done {
    if ctx.session.transaction.is_some() {
        return Err(Error::text("ERR MULTI calls can not be nested"));
    }
    ctx.session.transaction = Some(Box::default());
    ctx.session.restrictions.set(Restrictions::QUEUEING, true);
    ctx.reply.ok();
    Ok(())
}

fn exec(ctx: &mut Ctx<'_>, _: Args<'_>) -> Done {
    let Some(transaction) = ctx.session.transaction.take() else { return Err(Error::text("ERR EXEC without MULTI")) };
    let is_stale = ctx.session.watch_dirty || ctx.server.audience.watches.any_overdue(ctx.session, ctx.ks);
    ctx.server.audience.discard(ctx.session);
    if transaction.broken {
        return Err(Error::text("EXECABORT Transaction discarded because of previous errors."));
    }
    if is_stale {
        // The failure of EXEC reveals that some key has changed.
        ctx.ks.see_everything();
        ctx.reply.null_array();
        return Ok(());
    }
    let can_undo = |command: &Command| !command.flags.contains(Flags::NOSCRIPT) && command.inner.is_none();
    let is_undoable = ctx.session.import_source.is_some()
        && transaction.commands.iter().all(|(id, _)| can_undo(ctx.server.table.by_id(*id).command));
    let is_observed = ctx.session.restrictions.intersects(Restrictions::OBSERVED | Restrictions::TRACKED);
    let holds_messages = ctx.server.audience.hold_messages(ctx.server.persistence.tail.is_some(), is_undoable);
    if is_undoable {
        run_or_roll_back(ctx, &transaction, is_observed);
        return Ok(());
    }
    ctx.reply.array(transaction.commands.len());
    for (command, argv) in &transaction.commands {
        // A failing command replies with an error, and the others still run.
        run(ctx, *command, argv, is_observed);
    }
    if holds_messages {
        ctx.deliver_held();
    }
    Ok(())
}

/// Runs the transaction of a client that copies the changes of another server (CLIENT IMPORT-SOURCE). Every command has
/// succeeded there, so if one fails here the whole transaction is rolled back. Otherwise the client's record of its
/// progress, which is part of the transaction, would be wrong. This applies to transactions of commands that scripts
/// may call, because their changes can be undone. It excludes commands that run other commands: these keep undo records
/// of their own, which would end this one's.
fn run_or_roll_back(ctx: &mut Ctx<'_>, transaction: &Transaction, is_observed: bool) {
    let (start, db) = (ctx.reply.len(), ctx.session.db);
    ctx.ks.begin_undo();
    ctx.reply.array(transaction.commands.len());
    for (index, (command, argv)) in transaction.commands.iter().enumerate() {
        let begin = ctx.reply.len();
        run(ctx, *command, argv, is_observed);
        let reply = &ctx.reply.as_bytes()[begin..];
        if reply.starts_with(b"-") {
            let text = String::from_utf8_lossy(&reply[1..]).trim_end().to_owned();
            ctx.roll_back();
            ctx.session.db = db;
            ctx.reply.discard_from(start);
            ctx.reply.error(format!("{ROLLED_BACK}{}: {text}", index + 1).as_bytes());
            return;
        }
    }
    ctx.commit();
}

/// Runs one of the queued commands. Nothing waits inside EXEC.
fn run(ctx: &mut Ctx<'_>, command: CommandId, argv: &OwnedArgv, is_observed: bool) {
    let entry = ctx.server.table.by_id(command);
    if ctx.session.restrictions.contains(Restrictions::LIMITED)
        && let Err(error) = ctx.server.access().admit_queued(ctx.session, entry, argv.as_argv())
    {
        let text = error.to_string();
        ctx.server.meters.stats.count_error(text.as_bytes());
        ctx.server.meters.stats.commands[entry.id.index()].rejected += 1;
        return ctx.reply.error(text.as_bytes());
    }
    if is_observed {
        ctx.server.delivery().observe_begin(ctx.session, entry, argv.as_argv(), Origin::Exec);
    }
    let _ = call(ctx.ks, ctx.server, ctx.session, entry, argv.as_argv(), ctx.reply, Origin::Exec);
    if is_observed {
        ctx.server.delivery().observe_call(ctx.ks, ctx.session, entry, argv.as_argv(), Origin::Exec);
    }
}

fn discard(ctx: &mut Ctx<'_>, _: Args<'_>) -> Done {
    if ctx.session.transaction.is_none() {
        return Err(Error::text("ERR DISCARD without MULTI"));
    }
    ctx.server.audience.discard(ctx.session);
    ctx.reply.ok();
    Ok(())
}

fn watch(ctx: &mut Ctx<'_>, args: Args<'_>) -> Done {
    if ctx.session.transaction.is_some() {
        return Err(Error::text("ERR WATCH inside MULTI is not allowed"));
    }
    for key in args.rest().iter() {
        let existed = ctx.ks.live(ctx.session.db, key).is_some();
        if ctx.ks.has_due_message(ctx.session.db, key) {
            // Messages that became due before WATCH must not count as a change after it.
            meet_due(ctx, key);
        }
        ctx.server.audience.watch(ctx.session, key, existed);
    }
    ctx.reply.ok();
    Ok(())
}

#[cold]
fn meet_due(ctx: &mut Ctx<'_>, key: &[u8]) {
    let db = ctx.db();
    if let Some(slot) = ctx.ks.find(db, key) {
        ctx.ks.release_all_due(db, slot);
    }
}

fn unwatch(ctx: &mut Ctx<'_>, _: Args<'_>) -> Done {
    ctx.server.audience.unwatch(ctx.session);
    ctx.reply.ok();
    Ok(())
}

const QUICK: Flags =
    Flags::NOSCRIPT.union(Flags::LOADING).union(Flags::STALE).union(Flags::FAST).union(Flags::ALLOW_BUSY);

/// The family's table.
pub(super) const COMMANDS: &[Command] = &[
    Command {
        name: "discard",
        arity: 1,
        flags: QUICK.union(Flags::WHILE_QUEUEING),
        group: Group::Transactions,
        since: "2.0.0",
        complexity: "O(N) where N is the number of queued commands",
        summary: "Discards the commands queued since MULTI, and unwatches all keys.",
        run: Run::Now(discard),
        ..Command::EMPTY
    },
    Command {
        name: "exec",
        arity: 1,
        flags: Flags::NOSCRIPT
            .union(Flags::LOADING)
            .union(Flags::STALE)
            .union(Flags::SKIP_SLOWLOG)
            .union(Flags::WHILE_QUEUEING)
            .union(Flags::RUNS_QUEUE),
        group: Group::Transactions,
        since: "1.2.0",
        complexity: "Depends on commands in the transaction",
        summary: "Runs the commands queued since MULTI as one unit, unless a watched key has changed.",
        run: Run::Now(exec),
        ..Command::EMPTY
    },
    Command {
        name: "multi",
        arity: 1,
        flags: QUICK.union(Flags::WHILE_QUEUEING),
        group: Group::Transactions,
        since: "1.2.0",
        summary: "Starts queueing commands for EXEC.",
        run: Run::Now(multi),
        ..Command::EMPTY
    },
    Command {
        name: "unwatch",
        arity: 1,
        flags: QUICK,
        group: Group::Transactions,
        since: "2.2.0",
        summary: "Unwatches all keys.",
        run: Run::Now(unwatch),
        ..Command::EMPTY
    },
    Command {
        name: "watch",
        arity: -2,
        flags: QUICK.union(Flags::WHILE_QUEUEING),
        keys: &[KeySpec::rest(1, 1, Access::Inspect)],
        group: Group::Transactions,
        since: "2.2.0",
        complexity: "O(1) for every key",
        summary: "Watches keys: the next EXEC runs only if they have not changed.",
        syntax: "key...",
        run: Run::Now(watch),
        ..Command::EMPTY
    },
];
