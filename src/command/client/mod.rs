//! CLIENT: the state of connections, and control over other connections.

mod filter;
mod kill;
mod list;
mod tracking;

use self::kill::kill;
use self::list::{info, list};
use self::tracking::{caching, getredir, tracking, trackinginfo};
use super::connection::{is_plain, set_name, valid_name};
use super::help::help;
use crate::engine::{Command, Ctx, Done, Run, ServerState};
use crate::session::pause::Paused;
use crate::session::{ImportSource, ReplyMode, Restrictions};
use crate::spec::args::Args;
use crate::spec::error::{Error, excerpt};
use crate::spec::{Flags, Group};
use crate::wait::deadline_after_ms;

fn id(ctx: &mut Ctx<'_>, _: Args<'_>) -> Done {
    ctx.reply.integer(ctx.session.key.id as i64);
    Ok(())
}
fn set_client_name(ctx: &mut Ctx<'_>, mut args: Args<'_>) -> Done {
    let name = valid_name(args.bytes()?)?;
    set_name(ctx, name);
    ctx.reply.ok();
    Ok(())
}

fn client_name(ctx: &mut Ctx<'_>, _: Args<'_>) -> Done {
    let name = &ctx.session.name;
    ctx.reply.bulk_or_null((!name.is_empty()).then_some(name));
    Ok(())
}

fn set_info(ctx: &mut Ctx<'_>, mut args: Args<'_>) -> Done {
    let (option, value) = (args.bytes()?, args.bytes()?);
    let (name, field) = match option.to_ascii_lowercase().as_slice() {
        b"lib-name" => ("lib-name", &mut ctx.session.lib_name),
        b"lib-ver" => ("lib-ver", &mut ctx.session.lib_version),
        _ => return Err(Error::owned(format!("ERR Unrecognized option '{}'", excerpt(option, 128)))),
    };
    if !is_plain(value) {
        return Err(Error::owned(format!("ERR {name} cannot contain spaces, newlines or special characters.")));
    }
    *field = value.to_vec();
    ctx.reply.ok();
    Ok(())
}

fn reply(ctx: &mut Ctx<'_>, mut args: Args<'_>) -> Done {
    const MODES: [(&str, ReplyMode); 3] =
        [("on", ReplyMode::On), ("off", ReplyMode::Off), ("skip", ReplyMode::SkipNext)];
    let session = &mut *ctx.session;
    match args.one_of(&MODES).ok_or(Error::Syntax)? {
        ReplyMode::On => {
            session.reply_mode = ReplyMode::On;
            ctx.reply.ok();
        }
        // Nothing is sent while replies are off.
        _ if session.reply_mode == ReplyMode::Off => {}
        ReplyMode::Off => session.reply_mode = ReplyMode::Off,
        // Without restrictions the dispatcher does not count this command as one of the two, so the mode starts one
        // step further.
        _ if session.restrictions.is_empty() => session.reply_mode = ReplyMode::SkipThis,
        mode => session.reply_mode = mode,
    }
    session.restrictions.set(Restrictions::MUTED, session.reply_mode != ReplyMode::On);
    Ok(())
}

/// CLIENT CAPA: optional abilities of the client. Unknown ones are ignored.
fn capabilities(ctx: &mut Ctx<'_>, args: Args<'_>) -> Done {
    ctx.session.takes_redirects |= args.rest().iter().any(|word| word.eq_ignore_ascii_case(b"redirect"));
    ctx.reply.ok();
    Ok(())
}

const ON_OFF: [(&str, bool); 2] = [("on", true), ("off", false)];

fn no_evict(ctx: &mut Ctx<'_>, mut args: Args<'_>) -> Done {
    ctx.session.no_evict = args.one_of(&ON_OFF).ok_or(Error::Syntax)?;
    ctx.reply.ok();
    Ok(())
}

fn no_touch(ctx: &mut Ctx<'_>, mut args: Args<'_>) -> Done {
    let on = args.one_of(&ON_OFF).ok_or(Error::Syntax)?;
    ctx.session.restrictions.set(Restrictions::NO_TOUCH, on);
    ctx.reply.ok();
    Ok(())
}

/// The client repeats changes made elsewhere in the past, so nothing may expire by the current time until it is done.
fn import_source(ctx: &mut Ctx<'_>, mut args: Args<'_>) -> Done {
    let on = args.one_of(&ON_OFF).ok_or(Error::Syntax)?;
    if !on {
        ctx.session.import_source = None;
    } else if ctx.session.import_source.is_none() {
        if !ctx.server.config.import_mode {
            return Err(Error::text(
                "ERR Server is not in import mode. CONFIG SET import-mode yes lets clients import",
            ));
        }
        let hold = ctx.ks.hold_expiry();
        ctx.session.import_source = Some(ImportSource::of_client(ctx.session.key.id, hold));
    }
    ctx.reply.ok();
    Ok(())
}

fn pause(ctx: &mut Ctx<'_>, mut args: Args<'_>) -> Done {
    let timeout = args.bytes()?;
    let paused = match args.peek() {
        None => Paused::All,
        Some(_) => args
            .one_of(&[("write", Paused::Writes), ("all", Paused::All)])
            .ok_or(Error::text("ERR CLIENT PAUSE mode must be WRITE or ALL"))?,
    };
    args.end()?;
    // A pause of zero length still takes part beside a longer one.
    let until_ms = deadline_after_ms(timeout, ctx.now_ms())?.unwrap_or(ctx.now_ms());
    let until_ms = ctx.server.time.clock.steady_at_ms(until_ms, ctx.now_ms());
    ctx.server.clients.pause(paused, until_ms, ctx.session);
    ctx.reply.ok();
    Ok(())
}

fn unpause(ctx: &mut Ctx<'_>, _: Args<'_>) -> Done {
    ctx.server.clients.unpause(ctx.session);
    ctx.reply.ok();
    Ok(())
}

const UNBLOCKED: &[u8] = b"UNBLOCKED client unblocked via CLIENT UNBLOCK";

fn unblock(ctx: &mut Ctx<'_>, mut args: Args<'_>) -> Done {
    const REASON: Error = Error::text("ERR CLIENT UNBLOCK reason should be TIMEOUT or ERROR");
    let id = args.bytes()?;
    let as_error = match args.peek() {
        None => false,
        Some(_) => args.one_of(&[("timeout", false), ("error", true)]).ok_or(REASON)?,
    };
    args.end()?;
    let id = crate::base::num::parse_i64(id).ok_or(Error::NotInteger)?;
    let client = u64::try_from(id).ok().and_then(|id| ctx.server.clients.sessions.by_id(id));
    let (is_there, waiting) = (client.is_some(), client.and_then(|session| session.blocking_call()));
    let mut failed = None;
    let was_waiting = waiting.is_some_and(|call| {
        let ServerState { waits, audience, meters, table, clients, .. } = &mut *ctx.server;
        if let Some(parked) = waits.get(call).filter(|_| !as_error) {
            audience.remember_timeout(&mut meters.stats, table, &clients.sessions, ctx.ks, parked);
        }
        ctx.server.end_waiting(ctx.ks, call, |parked, reply| match as_error {
            true => {
                reply.error(UNBLOCKED);
                failed = Some(parked.command);
            }
            false => (parked.on_timeout)(reply),
        })
    });
    if let Some(command) = failed {
        ctx.server.meters.stats.count_error(UNBLOCKED);
        ctx.server.meters.stats.commands[command.index()].failed += 1;
    }
    if is_there && !was_waiting {
        // Whether the client still waits may depend on any change that could have served it.
        ctx.ks.see_everything();
    }
    ctx.reply.integer(i64::from(was_waiting));
    Ok(())
}

const ABOUT_ITSELF: Flags = Flags::NOSCRIPT.union(Flags::LOADING).union(Flags::STALE);
const ABOUT_OTHERS: Flags = ABOUT_ITSELF.union(Flags::ADMIN);

/// Fields that most subcommands of CLIENT share.
const SUB: Command = Command { flags: ABOUT_ITSELF, group: Group::Connection, ..Command::EMPTY };

/// As [`SUB`], for subcommands that clients of Sentinel send, too.
const OF_SENTINEL: Command = Command { flags: ABOUT_ITSELF.union(Flags::SENTINEL), ..SUB };

/// The family's table.
pub(super) const COMMANDS: &[Command] = &[Command {
    name: "client",
    arity: -2,
    flags: Flags::SENTINEL,
    group: Group::Connection,
    since: "2.4.0",
    complexity: "Depends on subcommand.",
    summary: "A container for connection commands.",
    sub: &[
        Command {
            name: "caching",
            arity: 3,
            since: "6.0.0",
            summary: "Makes CLIENT TRACKING track, or ignore, the next command or transaction.",
            syntax: "<YES | NO>:mode",
            run: Run::Now(caching),
            ..SUB
        },
        Command {
            name: "capa",
            arity: -3,
            since: "8.0.0",
            summary: "Declares capabilities of the client.",
            syntax: "REDIRECT...",
            run: Run::Now(capabilities),
            ..SUB
        },
        Command {
            name: "getname",
            arity: 2,
            since: "2.6.9",
            summary: "Returns the name of the connection.",
            run: Run::Now(client_name),
            ..OF_SENTINEL
        },
        Command {
            name: "getredir",
            arity: 2,
            since: "6.0.0",
            summary: "Returns the id of the connection that gets the invalidations; 0 is this one, -1 none.",
            run: Run::Now(getredir),
            ..SUB
        },
        Command {
            name: "help",
            arity: 2,
            flags: Flags::LOADING.union(Flags::STALE).union(Flags::SENTINEL),
            since: "5.0.0",
            summary: "Lists the subcommands.",
            run: Run::Now(help),
            ..SUB
        },
        Command {
            name: "id",
            arity: 2,
            since: "5.0.0",
            summary: "Returns the id of the connection, which is never reused.",
            run: Run::Now(id),
            ..OF_SENTINEL
        },
        Command {
            name: "import-source",
            arity: 3,
            flags: ABOUT_OTHERS,
            since: "8.1.0",
            summary: "Prevents expiry while the connection copies the changes of another server.",
            syntax: "<ON | OFF>",
            run: Run::Now(import_source),
            ..SUB
        },
        Command {
            name: "info",
            arity: 2,
            since: "6.2.0",
            summary: "Returns this connection's line of CLIENT LIST.",
            tips: &["nondeterministic_output"],
            run: Run::Now(info),
            ..OF_SENTINEL
        },
        Command {
            name: "kill",
            arity: -3,
            flags: ABOUT_OTHERS.union(Flags::SENTINEL),
            since: "2.4.0",
            complexity: "O(N) where N is the number of client connections",
            summary: "Closes the connections that match all filters.",
            syntax: "<ip:port | <[ID client-id...] | [NOT-ID client-id...] | [TYPE <NORMAL | MASTER | SLAVE | REPLICA \
                | PUBSUB>] | \
                     [NOT-TYPE <NORMAL | MASTER | SLAVE | REPLICA | PUBSUB>] | [USER username] | [NOT-USER username] | \
                     [ADDR address] | [NOT-ADDR address] | [LADDR address] | [NOT-LADDR address] | [IP ip] | [NOT-IP \
                     ip] | \
                     [NAME name] | [NOT-NAME name] | [LIB-NAME libname] | [NOT-LIB-NAME libname] | [LIB-VER libver] | \
                     [NOT-LIB-VER libver] | [DB db:integer] | [NOT-DB db:integer] | [FLAGS flags] | [NOT-FLAGS flags] \
                     | \
                     [CAPA capa] | [NOT-CAPA capa] | [IDLE seconds] | [MAXAGE seconds] | [SKIPME <YES | NO>]>...>",
            run: Run::Now(kill),
            ..SUB
        },
        Command {
            name: "list",
            arity: -2,
            flags: ABOUT_OTHERS.union(Flags::SENTINEL),
            since: "2.4.0",
            complexity: "O(N) where N is the number of client connections",
            summary: "Lists the connections that match all filters.",
            syntax: "[ID client-id...] [NOT-ID client-id...] [TYPE <NORMAL | MASTER | REPLICA | PUBSUB>] \
                     [NOT-TYPE <NORMAL | MASTER | REPLICA | PUBSUB>] [USER username] [NOT-USER username] \
                     [ADDR address] [NOT-ADDR address] [LADDR address] [NOT-LADDR address] [IP ip] [NOT-IP ip] \
                     [NAME name] [NOT-NAME name] [LIB-NAME libname] [NOT-LIB-NAME libname] [LIB-VER libver] \
                     [NOT-LIB-VER libver] [DB db:integer] [NOT-DB db:integer] [FLAGS flags] [NOT-FLAGS flags] \
                     [CAPA capa] [NOT-CAPA capa] [IDLE seconds] [MAXAGE seconds] [SKIPME <YES | NO>]",
            tips: &["nondeterministic_output"],
            run: Run::Now(list),
            ..SUB
        },
        Command {
            name: "no-evict",
            arity: 3,
            flags: ABOUT_OTHERS.union(Flags::SENTINEL),
            since: "7.0.0",
            summary: "Protects the connection from being closed when clients use too much memory.",
            syntax: "<ON | OFF>:enabled",
            run: Run::Now(no_evict),
            ..SUB
        },
        Command {
            name: "no-touch",
            arity: 3,
            since: "7.2.0",
            summary: "Stops the connection's reads from updating the last use of keys.",
            syntax: "<ON | OFF>:enabled",
            run: Run::Now(no_touch),
            ..SUB
        },
        Command {
            name: "pause",
            arity: -3,
            flags: ABOUT_OTHERS,
            since: "3.0.0",
            summary: "Suspends all commands, or all writes, for a number of milliseconds.",
            syntax: "timeout:integer [WRITE | ALL]:mode",
            run: Run::Now(pause),
            ..SUB
        },
        Command {
            name: "reply",
            arity: 3,
            since: "3.2.0",
            summary: "Turns replies to the connection on or off.",
            syntax: "<ON | OFF | SKIP>:action",
            run: Run::Now(reply),
            ..OF_SENTINEL
        },
        Command {
            name: "setinfo",
            arity: 4,
            since: "7.2.0",
            summary: "Records the name or version of the client library.",
            syntax: "<LIB-NAME libname | LIB-VER libver>:attr",
            tips: &["request_policy:all_nodes", "response_policy:all_succeeded"],
            run: Run::Now(set_info),
            ..OF_SENTINEL
        },
        Command {
            name: "setname",
            arity: 3,
            since: "2.6.9",
            summary: "Names the connection; an empty name removes it.",
            syntax: "connection-name",
            tips: &["request_policy:all_nodes", "response_policy:all_succeeded"],
            run: Run::Now(set_client_name),
            ..OF_SENTINEL
        },
        Command {
            name: "tracking",
            arity: -3,
            since: "6.0.0",
            complexity: "O(1). Some options may introduce additional complexity.",
            summary: "Sends invalidations for keys that the connection has read, or for key prefixes.",
            syntax: "<ON | OFF>:status [REDIRECT client-id:integer] [PREFIX prefix]... [BCAST] [OPTIN] [OPTOUT] \
                [NOLOOP]",
            run: Run::Now(tracking),
            ..SUB
        },
        Command {
            name: "trackinginfo",
            arity: 2,
            since: "6.2.0",
            summary: "Returns the connection's CLIENT TRACKING options.",
            run: Run::Now(trackinginfo),
            ..SUB
        },
        Command {
            name: "unblock",
            arity: -3,
            flags: ABOUT_OTHERS,
            since: "5.0.0",
            complexity: "O(log N) where N is the number of blocked connections",
            summary: "Unblocks a waiting connection, with a timeout or an error.",
            syntax: "client-id [TIMEOUT | ERROR]:unblock-type",
            run: Run::Now(unblock),
            ..SUB
        },
        Command {
            name: "unpause",
            arity: 2,
            flags: ABOUT_OTHERS,
            since: "6.2.0",
            complexity: "O(N) Where N is the number of paused clients",
            summary: "Ends the pause of CLIENT PAUSE.",
            run: Run::Now(unpause),
            ..SUB
        },
    ],
    run: Run::Container,
    ..Command::EMPTY
}];
