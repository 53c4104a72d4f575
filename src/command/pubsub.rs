//! Publish and subscribe.
//!
//! SUBSCRIBE and its kin answer one pushed message per channel instead of a reply. A client that asked for no replies
//! (CLIENT REPLY OFF) still gets them, as it gets the messages.

use super::help::help;
use crate::base::glob;
use crate::base::lsn::Lsn;
use crate::engine::args::Args;
use crate::engine::error::Error;
use crate::engine::pubsub::Kind;
use crate::engine::spec::{Flags, Group};
use crate::engine::{Command, Ctx, Done, Run};
use crate::resp::reply::Reply;

fn subscribe(ctx: &mut Ctx<'_>, args: Args<'_>) -> Done {
    subscribe_to(ctx, args, Kind::Channel, b"subscribe")
}

fn psubscribe(ctx: &mut Ctx<'_>, args: Args<'_>) -> Done {
    subscribe_to(ctx, args, Kind::Pattern, b"psubscribe")
}

fn unsubscribe(ctx: &mut Ctx<'_>, args: Args<'_>) -> Done {
    unsubscribe_from(ctx, args, Kind::Channel, b"unsubscribe")
}

fn punsubscribe(ctx: &mut Ctx<'_>, args: Args<'_>) -> Done {
    unsubscribe_from(ctx, args, Kind::Pattern, b"punsubscribe")
}

fn subscribe_to(ctx: &mut Ctx<'_>, args: Args<'_>, kind: Kind, verb: &[u8]) -> Done {
    for name in args.rest().iter() {
        ctx.server.pubsub.subscribe(ctx.session, kind, name);
        confirm(ctx, verb, Some(name));
    }
    Ok(())
}

fn unsubscribe_from(ctx: &mut Ctx<'_>, args: Args<'_>, kind: Kind, verb: &[u8]) -> Done {
    if !args.is_empty() {
        for name in args.rest().iter() {
            ctx.server.pubsub.unsubscribe(ctx.session, kind, name);
            confirm(ctx, verb, Some(name));
        }
        return Ok(());
    }
    let known = match kind {
        Kind::Channel => &ctx.session.subscriptions.channels,
        Kind::Pattern => &ctx.session.subscriptions.patterns,
    };
    let names: Vec<Box<[u8]>> = known.iter().cloned().collect();
    for name in &names {
        ctx.server.pubsub.unsubscribe(ctx.session, kind, name);
        confirm(ctx, verb, Some(name));
    }
    if names.is_empty() {
        confirm(ctx, verb, None);
    }
    Ok(())
}

/// Says how many subscriptions there are after one came or went.
fn confirm(ctx: &mut Ctx<'_>, verb: &[u8], name: Option<&[u8]>) {
    let count = ctx.session.subscriptions.len() as i64;
    let write = |reply: &mut Reply| {
        reply.push(3);
        reply.bulk(verb);
        reply.bulk_or_null(name);
        reply.integer(count);
    };
    if ctx.session.is_muted() {
        let mut push = Reply::new(ctx.session.form());
        write(&mut push);
        ctx.session.outbox.push(push.as_bytes(), Lsn::NONE);
    } else {
        write(ctx.reply);
    }
}

fn publish(ctx: &mut Ctx<'_>, mut args: Args<'_>) -> Done {
    let (channel, message) = (args.bytes()?, args.bytes()?);
    ctx.server.stats.published += 1;
    let receivers = ctx.server.publish(ctx.ks, ctx.session, channel, message)?;
    ctx.reply.integer(receivers as i64);
    Ok(())
}

fn channels(ctx: &mut Ctx<'_>, mut args: Args<'_>) -> Done {
    let pattern = args.peek().unwrap_or(b"*");
    if args.len() > 1 {
        return Err(Error::owned(format!(
            "ERR unknown subcommand or wrong number of arguments for '{}'. Try PUBSUB HELP.",
            crate::engine::error::excerpt(&args.argv()[1], 128)
        )));
    }
    let _ = args.bytes();
    let mark = ctx.reply.begin();
    let mut n = 0;
    for channel in ctx.server.pubsub.channels.keys().filter(|channel| glob::matches(pattern, channel)) {
        ctx.reply.bulk(channel);
        n += 1;
    }
    ctx.reply.end_array(mark, n);
    Ok(())
}

fn numsub(ctx: &mut Ctx<'_>, args: Args<'_>) -> Done {
    ctx.reply.array(args.len() * 2);
    for channel in args.rest().iter() {
        ctx.reply.bulk(channel);
        ctx.reply.integer(ctx.server.pubsub.channels.get(channel).map_or(0, Vec::len) as i64);
    }
    Ok(())
}

fn numpat(ctx: &mut Ctx<'_>, _: Args<'_>) -> Done {
    ctx.reply.integer(ctx.server.pubsub.patterns.len() as i64);
    Ok(())
}

const LISTEN: Flags = Flags::PUBSUB.and(Flags::NOSCRIPT).and(Flags::LOADING).and(Flags::STALE);
const ASK: Flags = Flags::PUBSUB.and(Flags::LOADING).and(Flags::STALE);

/// The family's table.
pub(super) const COMMANDS: &[Command] = &[
    Command {
        name: "psubscribe",
        arity: -2,
        flags: LISTEN,
        group: Group::Pubsub,
        since: "2.0.0",
        complexity: "O(N) where N is the number of patterns that anybody listens to",
        summary: "Listens to all channels whose names match a pattern.",
        syntax: "pattern...",
        run: Run::Now(psubscribe),
        ..Command::EMPTY
    },
    Command {
        name: "publish",
        arity: 3,
        flags: Flags::PUBSUB.and(Flags::LOADING).and(Flags::STALE).and(Flags::FAST),
        group: Group::Pubsub,
        since: "2.0.0",
        complexity: "O(N+M) where N is the number of listeners and M the number of patterns that anybody listens to",
        summary: "Sends a message to all who listen to a channel, and answers how often it was delivered.",
        syntax: "channel message",
        run: Run::Now(publish),
        ..Command::EMPTY
    },
    Command {
        name: "pubsub",
        arity: -2,
        group: Group::Pubsub,
        since: "2.8.0",
        complexity: "Depends on subcommand.",
        summary: "Holds the commands that tell who listens to what.",
        sub: &[
            Command {
                name: "channels",
                arity: -2,
                flags: ASK,
                group: Group::Pubsub,
                since: "2.8.0",
                complexity: "O(N) where N is the number of channels that anybody listens to",
                summary: "Answers the channels that somebody listens to, by name.",
                syntax: "[pattern]",
                run: Run::Now(channels),
                ..Command::EMPTY
            },
            Command {
                name: "help",
                arity: 2,
                flags: Flags::LOADING.and(Flags::STALE),
                group: Group::Pubsub,
                since: "6.2.0",
                summary: "Lists the subcommands.",
                run: Run::Now(help),
                ..Command::EMPTY
            },
            Command {
                name: "numpat",
                arity: 2,
                flags: ASK,
                group: Group::Pubsub,
                since: "2.8.0",
                summary: "Answers how many different patterns somebody listens to.",
                run: Run::Now(numpat),
                ..Command::EMPTY
            },
            Command {
                name: "numsub",
                arity: -2,
                flags: ASK,
                group: Group::Pubsub,
                since: "2.8.0",
                complexity: "O(N) where N is the number of channels asked for",
                summary: "Answers how many listen to each of the channels.",
                syntax: "[channel...]",
                run: Run::Now(numsub),
                ..Command::EMPTY
            },
        ],
        run: Run::Container,
        ..Command::EMPTY
    },
    Command {
        name: "punsubscribe",
        arity: -1,
        flags: LISTEN,
        group: Group::Pubsub,
        since: "2.0.0",
        complexity: "O(N) where N is the number of patterns that anybody listens to",
        summary: "Stops listening to patterns, to all when none is given.",
        syntax: "[pattern...]",
        run: Run::Now(punsubscribe),
        ..Command::EMPTY
    },
    Command {
        name: "subscribe",
        arity: -2,
        flags: LISTEN,
        group: Group::Pubsub,
        since: "2.0.0",
        complexity: "O(N) where N is the number of channels",
        summary: "Listens to channels.",
        syntax: "channel...",
        run: Run::Now(subscribe),
        ..Command::EMPTY
    },
    Command {
        name: "unsubscribe",
        arity: -1,
        flags: LISTEN,
        group: Group::Pubsub,
        since: "2.0.0",
        complexity: "O(N) where N is the number of clients that listen to a channel",
        summary: "Stops listening to channels, to all when none is given.",
        syntax: "[channel...]",
        run: Run::Now(unsubscribe),
        ..Command::EMPTY
    },
];
