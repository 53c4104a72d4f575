//! The connection itself: its user, protocol and database.

use super::cluster::mode::refuse_databases;
use crate::acl::users::DEFAULT_NAME;
use crate::base::version::REDIS_VERSION;
use crate::engine::{Command, Ctx, Done, Run, ServerState};
use crate::persist::journal::Journal;
use crate::session::DebugMode;
use crate::session::{ReplyMode, Restrictions, Service};
use crate::spec::args::Args;
use crate::spec::error::{Error, excerpt};
use crate::spec::{Databases, Flags, Group, Secret};

fn ping(ctx: &mut Ctx<'_>, mut args: Args<'_>) -> Done {
    let message = args.peek();
    if args.len() > 1 {
        return Err(Error::Arity(ctx.name().into()));
    }
    if ctx.session.restrictions.contains(Restrictions::SUBSCRIBER) {
        // A RESP2 subscriber expects every reply in the form of a message.
        ctx.reply.array(2);
        ctx.reply.bulk(b"pong");
        ctx.reply.bulk(message.unwrap_or_default());
    } else if message.is_some() {
        ctx.reply.bulk(args.bytes()?);
    } else {
        ctx.reply.status("PONG");
    }
    Ok(())
}

fn echo(ctx: &mut Ctx<'_>, mut args: Args<'_>) -> Done {
    ctx.reply.bulk(args.bytes()?);
    Ok(())
}

fn quit(ctx: &mut Ctx<'_>, _: Args<'_>) -> Done {
    ctx.server.connections().close_soon(ctx.session);
    ctx.reply.ok();
    Ok(())
}

/// RESET: back to the state of a fresh connection.
fn reset(ctx: &mut Ctx<'_>, _: Args<'_>) -> Done {
    let session = &mut *ctx.session;
    ctx.server.audience.discard(session);
    ctx.server.audience.pubsub_of_mut(session.service).forget(session);
    ctx.server.audience.end_monitoring(&mut ctx.server.clients.sessions, session);
    ctx.server.audience.end_tracking(session);
    ctx.server.connections().withdraw_all(session);
    session.name.clear();
    ctx.server.clients.registry.named(session.key, b"");
    session.db = 0;
    session.protocol = 2;
    session.no_evict = false;
    session.reads_on_follower = false;
    session.import_source = None;
    session.reply_mode = ReplyMode::On;
    session.debug = DebugMode::Off;
    session.restrictions = Restrictions::default();
    session.restrict(ctx.server.restrictions_of_all(), true);
    session.log_out(&ctx.server.acl);
    ctx.reply.set_form(session.form());
    ctx.reply.status("RESET");
    Ok(())
}

fn select(ctx: &mut Ctx<'_>, mut args: Args<'_>) -> Done {
    let db = args.int()?;
    if i32::try_from(db).is_err() {
        const RANGE: &str = "ERR value is out of range, value must between -2147483648 and 2147483647";
        return Err(Error::text(RANGE));
    }
    if db != 0 {
        refuse_databases(ctx)?;
    }
    match u16::try_from(db) {
        Ok(db) if db < ctx.ks.databases() => ctx.session.db = db,
        _ => return Err(Error::text("ERR DB index is out of range")),
    }
    ctx.reply.ok();
    Ok(())
}

fn auth(ctx: &mut Ctx<'_>, mut args: Args<'_>) -> Done {
    let argv = args.argv();
    let user = if args.len() > 1 { Some(args.bytes()?) } else { None };
    let password = args.bytes()?;
    args.end()?;
    if user.is_none() && ctx.server.acl.has_open_default() {
        return Err(Error::text(
            "ERR AUTH <password> called without any password configured for the default user. Are you sure your \
             configuration is correct?",
        ));
    }
    ctx.server.access().log_in(ctx.session, argv, user.unwrap_or(DEFAULT_NAME), password)?;
    ctx.reply.ok();
    Ok(())
}

fn hello(ctx: &mut Ctx<'_>, mut args: Args<'_>) -> Done {
    let argv = args.argv();
    let protocol = match args.peek() {
        None => None,
        Some(_) => match args.int_or(Error::text("ERR Protocol version is not an integer or out of range"))? {
            protocol @ 2..=3 => Some(protocol as u8),
            _ => return Err(Error::text("NOPROTO unsupported protocol version")),
        },
    };
    let (mut credentials, mut name) = (None, None);
    while let Some(option) = args.peek() {
        if args.option("AUTH", 2) {
            credentials = Some((args.bytes()?, args.bytes()?));
        } else if args.option("SETNAME", 1) {
            name = Some(valid_name(args.bytes()?)?);
        } else {
            return Err(Error::owned(format!("ERR Syntax error in HELLO option '{}'", excerpt(option, 128))));
        }
    }
    if let Some((user, password)) = credentials {
        ctx.server.access().log_in(ctx.session, argv, user, password)?;
    }
    if ctx.session.restrictions.contains(Restrictions::UNAUTHENTICATED) {
        return Err(Error::text(
            "NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO AUTH <user> <pass> \
             option can be used to authenticate the client and select the RESP protocol version at the same time",
        ));
    }
    if let Some(name) = name {
        set_name(ctx, name);
    }
    if let Some(protocol) = protocol {
        if protocol < 3 {
            // The client can no longer receive pushes.
            ctx.server.connections().withdraw_all(ctx.session);
        }
        ctx.session.protocol = protocol;
        ctx.session.refresh_subscriber_gate();
        ctx.reply.set_form(ctx.session.form());
    }
    greet(ctx);
    Ok(())
}

fn greet(ctx: &mut Ctx<'_>) {
    let ServerState { config, persistence, .. } = &*ctx.server;
    let zone = &config.availability_zone;
    let mode = if config.cluster_enabled { "cluster" } else { "standalone" };
    let role = match persistence.journal.as_ref().is_some_and(Journal::is_follower) {
        true => "replica",
        false => "master",
    };
    let of_service: &[(&str, &[u8])] = match ctx.session.service {
        Service::Sentinel => &[("mode", b"sentinel")],
        Service::Data if zone.is_empty() => &[("mode", mode.as_bytes()), ("role", role.as_bytes())],
        Service::Data => &[("mode", mode.as_bytes()), ("role", role.as_bytes()), ("availability_zone", zone)],
    };
    let reply = &mut *ctx.reply;
    reply.map(5 + of_service.len());
    for (field, value) in [("server", "redis"), ("version", REDIS_VERSION)] {
        reply.bulk(field.as_bytes());
        reply.bulk(value.as_bytes());
    }
    reply.bulk(b"proto");
    reply.integer(i64::from(ctx.session.protocol));
    reply.bulk(b"id");
    reply.integer(ctx.session.key.id as i64);
    for (field, value) in of_service {
        reply.bulk(field.as_bytes());
        reply.bulk(value);
    }
    reply.bulk(b"modules");
    reply.array(0);
}

/// Checks a client name: printable and without blanks, so that the output of CLIENT LIST can be parsed.
pub(super) fn valid_name(name: &[u8]) -> Result<&[u8], Error> {
    if is_plain(name) {
        return Ok(name);
    }
    Err(Error::text("ERR Client names cannot contain spaces, newlines or special characters."))
}

/// Whether CLIENT LIST can show these bytes.
pub(super) fn is_plain(bytes: &[u8]) -> bool {
    bytes.iter().all(u8::is_ascii_graphic)
}

pub(super) fn set_name(ctx: &mut Ctx<'_>, name: &[u8]) {
    ctx.session.name = name.to_vec();
    ctx.server.clients.registry.named(ctx.session.key, name);
}

/// Flags of commands that are allowed before authentication, in any state of the server, and at any port.
const ANYTIME: Flags = Flags::NOSCRIPT
    .union(Flags::SENTINEL)
    .union(Flags::LOADING)
    .union(Flags::STALE)
    .union(Flags::FAST)
    .union(Flags::NO_AUTH)
    .union(Flags::ALLOW_BUSY);

/// The family's table.
pub(super) const COMMANDS: &[Command] = &[
    Command {
        name: "auth",
        arity: -2,
        secrets: &[Secret::From(1)],
        flags: ANYTIME,
        group: Group::Connection,
        complexity: "O(N) where N is the length of the password",
        summary: "Authenticates the connection.",
        syntax: "[username] password",
        run: Run::Now(auth),
        ..Command::EMPTY
    },
    Command {
        name: "echo",
        arity: 2,
        flags: Flags::LOADING.union(Flags::STALE).union(Flags::FAST),
        group: Group::Connection,
        summary: "Returns the given string.",
        syntax: "message",
        run: Run::Now(echo),
        ..Command::EMPTY
    },
    Command {
        name: "hello",
        arity: -1,
        // Counted from the version, which may be missing.
        secrets: &[Secret::After { word: "auth", first: 1, count: 2 }],
        flags: ANYTIME,
        group: Group::Connection,
        since: "6.0.0",
        summary: "Handshakes: sets the protocol, authenticates, names the connection, and describes the server.",
        syntax: "[protover:integer [AUTH username password] [SETNAME clientname]]:arguments",
        run: Run::Now(hello),
        ..Command::EMPTY
    },
    Command {
        name: "ping",
        arity: -1,
        flags: Flags::FAST.union(Flags::WHILE_SUBSCRIBED).union(Flags::TELLS_HEALTH).union(Flags::SENTINEL),
        group: Group::Connection,
        summary: "Returns PONG or the given message, to test the connection.",
        syntax: "[message]",
        tips: &["request_policy:all_shards", "response_policy:all_succeeded"],
        run: Run::Now(ping),
        ..Command::EMPTY
    },
    Command {
        name: "quit",
        arity: -1,
        flags: ANYTIME.union(Flags::WHILE_SUBSCRIBED).union(Flags::WHILE_QUEUEING),
        group: Group::Connection,
        summary: "Closes the connection after all replies have been sent.",
        run: Run::Now(quit),
        ..Command::EMPTY
    },
    Command {
        name: "reset",
        arity: 1,
        flags: ANYTIME.union(Flags::WHILE_SUBSCRIBED).union(Flags::WHILE_QUEUEING),
        group: Group::Connection,
        since: "6.2.0",
        summary: "Resets the state of the connection.",
        run: Run::Now(reset),
        ..Command::EMPTY
    },
    Command {
        name: "select",
        arity: 2,
        flags: Flags::LOADING.union(Flags::STALE).union(Flags::FAST),
        group: Group::Connection,
        summary: "Selects the database of the connection.",
        syntax: "index",
        databases: Databases::Selected,
        run: Run::Now(select),
        ..Command::EMPTY
    },
];
