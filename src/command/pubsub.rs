//! Publish and subscribe.
//!
//! SUBSCRIBE and its variants send a pushed message for each channel instead of a reply. A client without replies
//! (CLIENT REPLY OFF) still gets these, as it gets published messages.

use super::help::help;
use crate::base::glob;
use crate::engine::{Command, Ctx, Done, Origin, Run};
use crate::resp::reply::Reply;
use crate::session::Service;
use crate::session::subscriptions::{Space, SubscriptionKind};
use crate::spec::args::Args;
use crate::spec::error::Error;
use crate::spec::{Access, Channels, Flags, Group, KeySpec};

const CHANNEL: SubscriptionKind = SubscriptionKind::Channel(Space::Global);
const SHARDED: SubscriptionKind = SubscriptionKind::Channel(Space::Sharded);

fn subscribe(ctx: &mut Ctx<'_>, args: Args<'_>) -> Done {
    subscribe_to(ctx, args, CHANNEL, b"subscribe")
}

fn psubscribe(ctx: &mut Ctx<'_>, args: Args<'_>) -> Done {
    subscribe_to(ctx, args, SubscriptionKind::Pattern, b"psubscribe")
}

fn ssubscribe(ctx: &mut Ctx<'_>, args: Args<'_>) -> Done {
    // Unlike SUBSCRIBE, which Redis allows here for the sake of old clients.
    if ctx.origin == Origin::Exec {
        return Err(Error::text("ERR SSUBSCRIBE isn't allowed for a DENY BLOCKING client"));
    }
    subscribe_to(ctx, args, SHARDED, b"ssubscribe")
}

fn unsubscribe(ctx: &mut Ctx<'_>, args: Args<'_>) -> Done {
    unsubscribe_from(ctx, args, CHANNEL, b"unsubscribe")
}

fn punsubscribe(ctx: &mut Ctx<'_>, args: Args<'_>) -> Done {
    unsubscribe_from(ctx, args, SubscriptionKind::Pattern, b"punsubscribe")
}

fn sunsubscribe(ctx: &mut Ctx<'_>, args: Args<'_>) -> Done {
    unsubscribe_from(ctx, args, SHARDED, b"sunsubscribe")
}

fn subscribe_to(ctx: &mut Ctx<'_>, args: Args<'_>, kind: SubscriptionKind, verb: &[u8]) -> Done {
    for name in args.rest().iter() {
        ctx.server.audience.pubsub_of_mut(ctx.session.service).subscribe(ctx.session, kind, name);
        confirm(ctx, kind, verb, Some(name));
    }
    if ctx.session.service == Service::Sentinel {
        args.rest().iter().for_each(|name| ctx.server.audience.repeat_switch(ctx.session, kind, name));
    }
    Ok(())
}

fn unsubscribe_from(ctx: &mut Ctx<'_>, args: Args<'_>, kind: SubscriptionKind, verb: &[u8]) -> Done {
    if !args.is_empty() {
        for name in args.rest().iter() {
            ctx.server.audience.pubsub_of_mut(ctx.session.service).unsubscribe(ctx.session, kind, name);
            confirm(ctx, kind, verb, Some(name));
        }
        return Ok(());
    }
    let names: Vec<Box<[u8]>> = ctx.session.subscriptions.of(kind).map(Box::from).collect();
    for name in &names {
        ctx.server.audience.pubsub_of_mut(ctx.session.service).unsubscribe(ctx.session, kind, name);
        confirm(ctx, kind, verb, Some(name));
    }
    if names.is_empty() {
        confirm(ctx, kind, verb, None);
    }
    Ok(())
}

/// Confirms a subscription or its end, with the number of subscriptions of this kind.
fn confirm(ctx: &mut Ctx<'_>, kind: SubscriptionKind, verb: &[u8], name: Option<&[u8]>) {
    let count = ctx.session.subscriptions.count_beside(kind) as i64;
    let write = |reply: &mut Reply| {
        reply.push(3);
        reply.bulk(verb);
        reply.bulk_or_null(name);
        reply.integer(count);
    };
    if ctx.session.is_muted() {
        let mut push = Reply::new(ctx.session.form());
        write(&mut push);
        ctx.session.push(push.as_bytes());
    } else {
        write(ctx.reply);
    }
}

fn publish(ctx: &mut Ctx<'_>, args: Args<'_>) -> Done {
    publish_to(ctx, args, Space::Global)
}

fn spublish(ctx: &mut Ctx<'_>, args: Args<'_>) -> Done {
    publish_to(ctx, args, Space::Sharded)
}

fn publish_to(ctx: &mut Ctx<'_>, mut args: Args<'_>, space: Space) -> Done {
    let (channel, message) = (args.bytes()?, args.bytes()?);
    ctx.server.meters.stats.published += 1;
    let receivers = ctx.server.delivery().publish(ctx.ks, ctx.session, space, channel, message)?;
    ctx.reply.integer(receivers as i64);
    Ok(())
}

fn channels(ctx: &mut Ctx<'_>, args: Args<'_>) -> Done {
    channels_of(ctx, args, Space::Global)
}

fn shardchannels(ctx: &mut Ctx<'_>, args: Args<'_>) -> Done {
    channels_of(ctx, args, Space::Sharded)
}

fn channels_of(ctx: &mut Ctx<'_>, mut args: Args<'_>, space: Space) -> Done {
    let pattern = args.peek().unwrap_or(b"*");
    if args.len() > 1 {
        return Err(Error::owned(format!(
            "ERR unknown subcommand or wrong number of arguments for '{}'. Try PUBSUB HELP.",
            crate::spec::error::excerpt(&args.argv()[1], 128)
        )));
    }
    let _ = args.bytes();
    let mark = ctx.reply.begin();
    let mut n = 0;
    for channel in
        ctx.server.audience.pubsub.channels_of(space).names().filter(|channel| glob::matches(pattern, channel))
    {
        ctx.reply.bulk(channel);
        n += 1;
    }
    ctx.reply.end_array(mark, n);
    Ok(())
}

fn numsub(ctx: &mut Ctx<'_>, args: Args<'_>) -> Done {
    count_listeners(ctx, args, Space::Global)
}

fn shardnumsub(ctx: &mut Ctx<'_>, args: Args<'_>) -> Done {
    count_listeners(ctx, args, Space::Sharded)
}

fn count_listeners(ctx: &mut Ctx<'_>, args: Args<'_>, space: Space) -> Done {
    ctx.reply.array(args.len() * 2);
    for channel in args.rest().iter() {
        ctx.reply.bulk(channel);
        ctx.reply.integer(ctx.server.audience.pubsub.channels_of(space).listeners(channel).len() as i64);
    }
    Ok(())
}

fn numpat(ctx: &mut Ctx<'_>, _: Args<'_>) -> Done {
    ctx.reply.integer(ctx.server.audience.pubsub.patterns.len() as i64);
    Ok(())
}

const LISTEN: Flags =
    Flags::PUBSUB.union(Flags::NOSCRIPT).union(Flags::LOADING).union(Flags::STALE).union(Flags::WHILE_SUBSCRIBED);
/// As [`LISTEN`], for global channels: Sentinel's port has such channels of its own.
const LISTEN_ANYWHERE: Flags = LISTEN.union(Flags::SENTINEL);
const TELL: Flags =
    Flags::PUBSUB.union(Flags::LOADING).union(Flags::STALE).union(Flags::FAST).union(Flags::MAY_REPLICATE);
const ASK: Flags = Flags::PUBSUB.union(Flags::LOADING).union(Flags::STALE);

/// The family's table.
pub(super) const COMMANDS: &[Command] = &[
    Command {
        name: "psubscribe",
        channels: Channels::Patterns,
        arity: -2,
        flags: LISTEN_ANYWHERE,
        group: Group::Pubsub,
        since: "2.0.0",
        complexity: "O(N) where N is the number of patterns that anybody listens to",
        summary: "Subscribes to the channels that match patterns.",
        syntax: "pattern...",
        run: Run::Now(psubscribe),
        ..Command::EMPTY
    },
    Command {
        name: "publish",
        channels: Channels::First,
        arity: 3,
        flags: TELL,
        group: Group::Pubsub,
        since: "2.0.0",
        complexity: "O(N+M) where N is the number of listeners and M the number of patterns that anybody listens to",
        summary: "Sends a message to a channel and returns the number of deliveries.",
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
        summary: "A container for commands that inspect subscriptions.",
        sub: &[
            Command {
                name: "channels",
                arity: -2,
                flags: ASK,
                group: Group::Pubsub,
                since: "2.8.0",
                complexity: "O(N) where N is the number of channels that anybody listens to",
                summary: "Returns the names of channels with subscribers.",
                syntax: "[pattern]",
                run: Run::Now(channels),
                ..Command::EMPTY
            },
            Command {
                name: "help",
                arity: 2,
                flags: Flags::LOADING.union(Flags::STALE),
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
                summary: "Returns the number of different patterns with subscribers.",
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
                summary: "Returns the number of subscribers of each channel.",
                syntax: "[channel...]",
                run: Run::Now(numsub),
                ..Command::EMPTY
            },
            Command {
                name: "shardchannels",
                arity: -2,
                flags: ASK,
                group: Group::Pubsub,
                since: "7.0.0",
                complexity: "O(N) where N is the number of sharded channels that anybody listens to",
                summary: "Returns the names of sharded channels with subscribers.",
                syntax: "[pattern]",
                run: Run::Now(shardchannels),
                ..Command::EMPTY
            },
            Command {
                name: "shardnumsub",
                arity: -2,
                flags: ASK,
                group: Group::Pubsub,
                since: "7.0.0",
                complexity: "O(N) where N is the number of sharded channels asked for",
                summary: "Returns the number of subscribers of each sharded channel.",
                syntax: "[shardchannel...]",
                run: Run::Now(shardnumsub),
                ..Command::EMPTY
            },
        ],
        run: Run::Container,
        ..Command::EMPTY
    },
    Command {
        name: "punsubscribe",
        arity: -1,
        flags: LISTEN_ANYWHERE,
        group: Group::Pubsub,
        since: "2.0.0",
        complexity: "O(N) where N is the number of patterns that anybody listens to",
        summary: "Unsubscribes from patterns, or from all if none is given.",
        syntax: "[pattern...]",
        run: Run::Now(punsubscribe),
        ..Command::EMPTY
    },
    Command {
        name: "spublish",
        channels: Channels::First,
        arity: 3,
        flags: TELL,
        keys: &[KeySpec::one(1, Access::Channel)],
        group: Group::Pubsub,
        since: "7.0.0",
        complexity: "O(N) where N is the number of listeners",
        summary: "Sends a message to a sharded channel and returns the number of deliveries.",
        syntax: "shardchannel message",
        run: Run::Now(spublish),
        ..Command::EMPTY
    },
    Command {
        name: "ssubscribe",
        channels: Channels::All,
        arity: -2,
        flags: LISTEN,
        keys: &[KeySpec::rest(1, 1, Access::Channel)],
        group: Group::Pubsub,
        since: "7.0.0",
        complexity: "O(N) where N is the number of channels",
        summary: "Subscribes to sharded channels.",
        syntax: "shardchannel...",
        run: Run::Now(ssubscribe),
        ..Command::EMPTY
    },
    Command {
        name: "subscribe",
        channels: Channels::All,
        arity: -2,
        flags: LISTEN_ANYWHERE,
        group: Group::Pubsub,
        since: "2.0.0",
        complexity: "O(N) where N is the number of channels",
        summary: "Subscribes to channels.",
        syntax: "channel...",
        run: Run::Now(subscribe),
        ..Command::EMPTY
    },
    Command {
        name: "sunsubscribe",
        arity: -1,
        flags: LISTEN,
        keys: &[KeySpec::rest(1, 1, Access::Channel)],
        group: Group::Pubsub,
        since: "7.0.0",
        complexity: "O(N) where N is the number of clients that listen to a channel",
        summary: "Unsubscribes from sharded channels, or from all if none is given.",
        syntax: "[shardchannel...]",
        run: Run::Now(sunsubscribe),
        ..Command::EMPTY
    },
    Command {
        name: "unsubscribe",
        arity: -1,
        flags: LISTEN_ANYWHERE,
        group: Group::Pubsub,
        since: "2.0.0",
        complexity: "O(N) where N is the number of clients that listen to a channel",
        summary: "Unsubscribes from channels, or from all if none is given.",
        syntax: "[channel...]",
        run: Run::Now(unsubscribe),
        ..Command::EMPTY
    },
];
