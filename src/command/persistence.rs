//! Snapshots on request: SAVE, BGSAVE, BGREWRITEAOF, and the time of the last one.
//!
//! All three make the same snapshot (`persist/saving.rs`), which replaces the previous one and the journal before it.
//! They differ in their replies and in the fields of INFO that report them. None stops the server: SAVE only makes its
//! own client wait.

use crate::engine::{Command, Ctx, Done, Flow, MayWait, Origin, Run};
use crate::persist::saving::Purpose;
use crate::resp::reply::Reply;
use crate::spec::args::Args;
use crate::spec::error::Error;
use crate::spec::{Flags, Group};
use crate::wait::Wait;

const SAVE_IN_PROGRESS: Error = Error::text("ERR Background save already in progress");

fn save(ctx: &mut Ctx<'_>, _: Args<'_>) -> MayWait {
    if ctx.server.persistence.saving.under_way() == Some(Purpose::Save) {
        return Err(SAVE_IN_PROGRESS);
    }
    ctx.server.persistence.saving.save_for(ctx.session.key, ctx.entry.id, ctx.server.time.clock.steady_ms());
    let on_timeout = |reply: &mut Reply| reply.error(b"ERR SAVE continues in the background");
    Ok(Flow::wait(Wait::until(None, on_timeout)))
}

fn bgsave(ctx: &mut Ctx<'_>, mut args: Args<'_>) -> Done {
    let how = args.one_of(&[("SCHEDULE", How::Schedule), ("CANCEL", How::Cancel)]);
    args.end()?;
    match ctx.server.persistence.saving.under_way() {
        Some(Purpose::Save)
            if how == Some(How::Cancel)
                && ctx.server.persist(ctx.ks, |persistence, _, _| persistence.cancel_save()) =>
        {
            ctx.server.persistence.saving.points_since_ms = ctx.server.time.clock.steady_ms();
            ctx.reply.status("Background saving cancelled");
        }
        _ if how == Some(How::Cancel) => {
            if !ctx.server.persist(ctx.ks, |persistence, _, _| persistence.cancel_scheduled_save()) {
                return Err(Error::text("ERR Background saving is currently not in progress or scheduled"));
            }
            ctx.reply.status("Scheduled background saving cancelled");
        }
        Some(Purpose::Save) => return Err(SAVE_IN_PROGRESS),
        None if ctx.origin != Origin::Exec => {
            ctx.server.persistence.saving.begin(Purpose::Save, ctx.server.time.clock.steady_ms());
            ctx.reply.status("Background saving started");
        }
        Some(Purpose::Rewrite) if how.is_none() && ctx.origin != Origin::Exec => {
            return Err(Error::text(
                "ERR Another child process is active (AOF?): can't BGSAVE right now. Use BGSAVE SCHEDULE in order to \
                 schedule a BGSAVE whenever possible.",
            ));
        }
        _ => {
            ctx.server.persistence.saving.schedule(Purpose::Save);
            ctx.reply.status("Background saving scheduled");
        }
    }
    Ok(())
}

/// The form of a BGSAVE.
#[derive(Clone, Copy, PartialEq, Eq)]
enum How {
    Schedule,
    Cancel,
}

fn bgrewriteaof(ctx: &mut Ctx<'_>, _: Args<'_>) -> Done {
    let saving = &mut ctx.server.persistence.saving;
    match saving.under_way() {
        Some(Purpose::Rewrite) => {
            return Err(Error::text("ERR Background append only file rewriting already in progress"));
        }
        None if ctx.origin != Origin::Exec => {
            saving.begin(Purpose::Rewrite, ctx.server.time.clock.steady_ms());
            ctx.reply.status("Background append only file rewriting started");
        }
        _ => {
            saving.schedule(Purpose::Rewrite);
            ctx.reply.status("Background append only file rewriting scheduled");
        }
    }
    Ok(())
}

fn lastsave(ctx: &mut Ctx<'_>, _: Args<'_>) -> Done {
    ctx.reply.integer(ctx.server.persistence.saving.saved_s());
    Ok(())
}

/// Fields that most entries share.
const SERVER: Command = Command {
    flags: Flags::ADMIN.union(Flags::NOSCRIPT).union(Flags::NO_ASYNC_LOADING),
    group: Group::Server,
    complexity: "O(N) where N is the size of the data",
    ..Command::EMPTY
};

/// The family's table.
pub(super) const COMMANDS: &[Command] = &[
    Command {
        name: "bgrewriteaof",
        arity: 1,
        summary: "Makes a snapshot in the background and removes the part of the journal before it.",
        run: Run::Now(bgrewriteaof),
        ..SERVER
    },
    Command {
        name: "bgsave",
        arity: -1,
        summary: "Makes a snapshot in the background.",
        syntax: "[SCHEDULE | CANCEL]",
        run: Run::Now(bgsave),
        ..SERVER
    },
    Command {
        name: "lastsave",
        arity: 1,
        flags: Flags::LOADING.union(Flags::STALE).union(Flags::FAST),
        complexity: "O(1)",
        categories: &["@admin", "@dangerous"],
        summary: "Returns the Unix time in seconds of the last snapshot.",
        tips: &["nondeterministic_output"],
        run: Run::Now(lastsave),
        ..SERVER
    },
    Command {
        name: "save",
        arity: 1,
        flags: SERVER.flags.union(Flags::NO_MULTI),
        summary: "Makes a snapshot and replies when it is on disk.",
        run: Run::MayWait(save),
        ..SERVER
    },
];
