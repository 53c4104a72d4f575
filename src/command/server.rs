//! The server as a whole: its time, its end, and a drawing.

use crate::base::version::{REDIS_VERSION, TIDEGATE_VERSION};
use crate::config::EndOptions;
use crate::engine::{Command, Ctx, Done, Flow, MayWait, Run};
use crate::spec::args::Args;
use crate::spec::error::Error;
use crate::spec::{Audited, Flags, Group};

fn time(ctx: &mut Ctx<'_>, _: Args<'_>) -> Done {
    let server = &mut *ctx.server;
    let now_us = *server.time.unit_time_us.get_or_insert_with(|| server.time.clock.now_us());
    // No later request may see an earlier time.
    server.time.expire_clock_reading();
    ctx.reply.array(2);
    ctx.reply.bulk_integer(now_us / 1_000_000);
    ctx.reply.bulk_integer(now_us % 1_000_000);
    Ok(())
}

fn shutdown(ctx: &mut Ctx<'_>, mut args: Args<'_>) -> MayWait {
    let (mut options, mut abort) = (EndOptions::default(), false);
    while !args.is_empty() {
        match args.one_of(&[("NOSAVE", 0), ("SAVE", 1), ("NOW", 2), ("FORCE", 3), ("ABORT", 4)]) {
            Some(0) if options.save != Some(true) => options.save = Some(false),
            Some(1) if options.save != Some(false) => options.save = Some(true),
            Some(2) => options.now = true,
            Some(3) => options.force = true,
            Some(4) => abort = true,
            _ => return Err(Error::Syntax),
        }
    }
    if abort {
        if options != EndOptions::default() {
            return Err(Error::Syntax);
        }
        if !ctx.server.abort_ending(ctx.ks, ctx.session) {
            return Err(Error::text("ERR No shutdown in progress."));
        }
        ctx.reply.ok();
        return Ok(Flow::Replied);
    }
    if options.save != Some(false)
        && let Some(script) = &ctx.server.programs.running
        && script.is_busy
    {
        return Err(script.kind.busy_error());
    }
    let wait = ctx.server.end_for(ctx.ks, options, ctx.session, ctx.entry.id)?;
    Ok(wait.map_or(Flow::Replied, Flow::wait))
}

/// Draws a tide, different each time, with the generator that also picks random keys.
fn lolwut(ctx: &mut Ctx<'_>, mut args: Args<'_>) -> Done {
    const COLUMNS: usize = 66;
    const ROWS: usize = 7;
    if args.option("VERSION", 1) {
        // There is one drawing. Arguments meant for other programs' versions are accepted and ignored.
        args.int()?;
    }
    let rng = &mut ctx.ks.rng;
    let (phase, length) = (rng.next_f64() * 6.3, 6.0 + rng.next_f64() * 8.0);
    let mut picture = String::new();
    for row in 0..ROWS {
        for column in 0..COLUMNS {
            let x = column as f64 / length + phase;
            let level = (x.sin() + (x * 0.37).sin() * 0.6 + 1.6) / 3.2 * (ROWS - 1) as f64;
            let depth = row as f64 - ((ROWS - 1) as f64 - level);
            picture.push(match depth {
                depth if depth < 0.0 => ' ',
                depth if depth < 1.0 => '~',
                depth if depth < 2.5 => '-',
                _ => '.',
            });
        }
        picture.truncate(picture.trim_end().len());
        picture.push('\n');
    }
    picture
        .push_str(&format!("\nThe gate stands open. Redis ver. {REDIS_VERSION}, Tidegate ver. {TIDEGATE_VERSION}\n"));
    ctx.reply.verbatim(b"txt", picture.as_bytes());
    Ok(())
}

/// The family's table.
pub(super) const COMMANDS: &[Command] = &[
    Command {
        name: "lolwut",
        arity: -1,
        flags: Flags::READONLY.union(Flags::FAST),
        group: Group::Server,
        since: "5.0.0",
        summary: "Draws a picture and shows the version.",
        syntax: "[VERSION version:integer]",
        run: Run::Now(lolwut),
        ..Command::EMPTY
    },
    Command {
        name: "shutdown",
        arity: -1,
        flags: Flags::ADMIN
            .union(Flags::NOSCRIPT)
            .union(Flags::LOADING)
            .union(Flags::STALE)
            .union(Flags::NO_MULTI)
            .union(Flags::ALLOW_BUSY),
        group: Group::Server,
        summary: "Stops the server.",
        syntax: "[NOSAVE | SAVE]:save-selector [NOW] [FORCE] [ABORT]",
        audited: Some(Audited::End),
        run: Run::MayWait(shutdown),
        ..Command::EMPTY
    },
    Command {
        name: "time",
        arity: 1,
        flags: Flags::LOADING.union(Flags::STALE).union(Flags::FAST),
        group: Group::Server,
        since: "2.6.0",
        summary: "Returns the server's time: Unix seconds, and microseconds of the second.",
        tips: &["nondeterministic_output"],
        run: Run::Now(time),
        ..Command::EMPTY
    },
];
