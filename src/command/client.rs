//! CLIENT: what is known of connections, and what one may do to another.

use std::collections::BTreeMap;
use std::io::Write;

use super::connection::{is_plain, set_name, valid_name};
use super::help::help;
use crate::engine::args::Args;
use crate::engine::error::{Error, excerpt};
use crate::engine::session::{ClientType, ReplyMode, Restrictions, Session, SessionKey};
use crate::engine::spec::{Flags, Group};
use crate::engine::subscriptions::{Kind as Listening, Space};
use crate::engine::{Command, Ctx, Done, Run, ServerState};

fn id(ctx: &mut Ctx<'_>, _: Args<'_>) -> Done {
    ctx.reply.integer(ctx.session.key.id as i64);
    Ok(())
}

fn info(ctx: &mut Ctx<'_>, _: Args<'_>) -> Done {
    let mut text = Vec::new();
    see_dirty(ctx, ctx.session);
    describe(&mut text, ctx.server, ctx.session);
    ctx.reply.verbatim(b"txt", &text);
    Ok(())
}

/// That a session's EXEC will fail tells of a change of some key.
fn see_dirty(ctx: &Ctx<'_>, session: &Session) {
    if session.watch_dirty {
        ctx.ks.see_everything();
    }
}

fn list(ctx: &mut Ctx<'_>, mut args: Args<'_>) -> Done {
    let (mut kind, mut ids) = (None, None);
    if args.len() == 2 && args.option("TYPE", 1) {
        kind = Some(client_kind(args.bytes()?)?);
    } else if args.option("ID", 1) {
        let id = |arg: &[u8]| crate::base::num::parse_i64(arg).ok_or(Error::text("ERR Invalid client ID"));
        ids = Some(args.rest().iter().map(id).collect::<Result<Vec<_>, _>>()?);
    } else {
        args.end()?;
    }
    let wanted =
        |session: &&Session| !session.killed && kind.is_none_or(|kind| kind == Kind::Type(session.client_type()));
    let all = ctx.server.sessions.iter().chain(std::iter::once(&*ctx.session)).filter(wanted);
    let by_id: BTreeMap<i64, &Session> = all.map(|session| (session.key.id as i64, session)).collect();
    let sessions: Vec<&Session> = match ids {
        // Those that are there, in the order in which they were asked for, and as often.
        Some(ids) => ids.iter().filter_map(|id| by_id.get(id).copied()).collect(),
        None => by_id.into_values().collect(),
    };
    let mut text = Vec::new();
    for session in sessions {
        see_dirty(ctx, session);
        describe(&mut text, ctx.server, session);
    }
    ctx.reply.verbatim(b"txt", &text);
    Ok(())
}

/// A kind of client by its name.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Type(ClientType),
    /// A kind that Redis knows and of which there is none here.
    Absent,
}

fn client_kind(name: &[u8]) -> Result<Kind, Error> {
    Ok(match name.to_ascii_lowercase().as_slice() {
        b"normal" => Kind::Type(ClientType::Normal),
        b"pubsub" => Kind::Type(ClientType::Pubsub),
        b"master" | b"slave" | b"replica" => Kind::Absent,
        _ => return Err(Error::owned(format!("ERR Unknown client type '{}'", excerpt(name, 128)))),
    })
}

/// One line of CLIENT LIST. What a session keeps only while one of its commands runs (argument buffers and the one in which
/// replies are made are shared by all) counts as 0; replies on their way to the socket count as unsent.
fn describe(text: &mut Vec<u8>, server: &ServerState, session: &Session) {
    let now_ticks = server.stats.clock.raw();
    let seconds_since = |ticks| server.stats.clock.delta(ticks, now_ticks).as_secs();
    let queued = session.transaction.as_ref();
    let queued_bytes = queued.map_or(0, |transaction| transaction.bytes());
    let unsent_held = session.outbox.held();
    let held = session.mem_bytes();
    let lossy = String::from_utf8_lossy;
    // Writing to memory does not fail.
    let _ = writeln!(
        text,
        "id={} addr={} laddr={} fd={} name={} age={} idle={} flags={} db={} sub={} psub={} ssub={} multi={} watch={} qbuf={} \
         qbuf-free=0 argv-mem=0 multi-mem={queued_bytes} rbs=0 rbp=0 obl=0 oll={} omem={unsent_held} tot-mem={held} events={} \
         cmd={} user=default redir=-1 resp={} lib-name={} lib-ver={}",
        session.key.id,
        session.address,
        session.local_address,
        session.fd,
        lossy(&session.name),
        seconds_since(session.connected_ticks),
        seconds_since(session.active_ticks),
        flags(session),
        session.db,
        session.subscriptions.of(Listening::Channel(Space::Global)).len(),
        session.subscriptions.of(Listening::Pattern).len(),
        session.subscriptions.of(Listening::Channel(Space::Sharded)).len(),
        queued.map_or(-1, |transaction| transaction.commands.len() as i64),
        session.watched.len(),
        session.pending_input,
        session.outbox.chunks(),
        if session.outbox.is_empty() { "r" } else { "rw" },
        session.last_command.map_or("NULL", |command| &server.table.by_id(command).full_name),
        session.protocol,
        lossy(&session.lib_name),
        lossy(&session.lib_version),
    );
}

/// The letters that CLIENT LIST shows for a session's state.
fn flags(session: &Session) -> String {
    let letters: String = [
        ('P', !session.subscriptions.is_empty()),
        ('x', session.transaction.is_some()),
        ('b', session.parked.is_some()),
        ('d', session.watch_dirty),
        ('c', session.closing),
        ('U', session.address.ends_with(":0")),
        ('e', session.no_evict),
        ('I', session.expiry_hold.is_some()),
        ('T', session.restrictions.has(Restrictions::NO_TOUCH)),
    ]
    .into_iter()
    .filter_map(|(letter, shown)| shown.then_some(letter))
    .collect();
    if letters.is_empty() { "N".to_owned() } else { letters }
}

/// Which clients CLIENT KILL ends: all that meet every condition.
#[derive(Default)]
struct Victims {
    id: Option<u64>,
    address: Option<Vec<u8>>,
    local_address: Option<Vec<u8>>,
    kind: Option<Kind>,
    max_age_s: Option<u64>,
    spare_caller: bool,
}

impl Victims {
    /// `age_s` tells how old a session is.
    fn has(&self, session: &Session, age_s: impl Fn(&Session) -> u64) -> bool {
        let is = |wanted: &Option<Vec<u8>>, address: &str| wanted.as_ref().is_none_or(|w| w == address.as_bytes());
        !session.killed
            && self.id.is_none_or(|id| id == session.key.id)
            && is(&self.address, &session.address)
            && is(&self.local_address, &session.local_address)
            && self.kind.is_none_or(|kind| kind == Kind::Type(session.client_type()))
            && self.max_age_s.is_none_or(|least| age_s(session) >= least)
    }
}

fn kill(ctx: &mut Ctx<'_>, mut args: Args<'_>) -> Done {
    if args.len() == 1 {
        // The old form: one address, the caller's own allowed, and OK for an answer.
        let victims = Victims { address: Some(args.bytes()?.to_vec()), ..Victims::default() };
        if kill_all(ctx, &victims) == 0 {
            return Err(Error::text("ERR No such client"));
        }
        ctx.reply.ok();
        return Ok(());
    }
    let victims = victims(&mut args)?;
    let killed = kill_all(ctx, &victims);
    ctx.reply.integer(killed);
    Ok(())
}

fn victims(args: &mut Args<'_>) -> Result<Victims, Error> {
    let mut victims = Victims { spare_caller: true, ..Victims::default() };
    while !args.is_empty() {
        if args.option("ID", 1) {
            const NO_ID: Error = Error::text("ERR client-id should be greater than 0");
            let id = args.int_or(NO_ID)?;
            victims.id = Some(u64::try_from(id).ok().filter(|id| *id > 0).ok_or(NO_ID)?);
        } else if args.option("MAXAGE", 1) {
            let age_s = args.int_or(Error::text("ERR maxage is not an integer or out of range"))?;
            let age_s = u64::try_from(age_s).ok().filter(|age_s| *age_s > 0);
            victims.max_age_s = Some(age_s.ok_or(Error::text("ERR maxage should be greater than 0"))?);
        } else if args.option("TYPE", 1) {
            victims.kind = Some(client_kind(args.bytes()?)?);
        } else if args.option("ADDR", 1) {
            victims.address = Some(args.bytes()?.to_vec());
        } else if args.option("LADDR", 1) {
            victims.local_address = Some(args.bytes()?.to_vec());
        } else if args.option("USER", 1) {
            let user = args.bytes()?;
            if user != b"default" {
                return Err(Error::owned(format!("ERR No such user '{}'", excerpt(user, 128))));
            }
        } else if args.option("SKIPME", 1) {
            victims.spare_caller = args.one_of(&[("yes", true), ("no", false)]).ok_or(Error::Syntax)?;
        } else {
            return Err(Error::Syntax);
        }
    }
    Ok(victims)
}

fn kill_all(ctx: &mut Ctx<'_>, victims: &Victims) -> i64 {
    let ServerState { sessions, stats, .. } = &mut *ctx.server;
    let now_ticks = stats.clock.raw();
    let age_s = |session: &Session| stats.clock.delta(session.connected_ticks, now_ticks).as_secs();
    let condemned: Vec<SessionKey> = match victims.id {
        Some(id) => sessions.by_id(id).filter(|s| victims.has(s, age_s)).map(|s| s.key).into_iter().collect(),
        None => sessions.iter().filter(|s| victims.has(s, age_s)).map(|s| s.key).collect(),
    };
    let is_caller_meant = !victims.spare_caller && victims.has(ctx.session, age_s);
    let mut killed = condemned.len() as i64;
    condemned.into_iter().for_each(|key| ctx.server.kill(key));
    if is_caller_meant {
        // It still reads the answer.
        ctx.session.closing = true;
        killed += 1;
    }
    killed
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
        // Nothing is answered anyway.
        _ if session.reply_mode == ReplyMode::Off => {}
        ReplyMode::Off => session.reply_mode = ReplyMode::Off,
        // Without restrictions nobody counts this command itself among the two.
        _ if session.restrictions.is_empty() => session.reply_mode = ReplyMode::SkipThis,
        mode => session.reply_mode = mode,
    }
    session.restrictions.set(Restrictions::MUTED, session.reply_mode != ReplyMode::On);
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

/// What the client repeats happened in the past: while it does, nothing expires by the time of now.
fn import_source(ctx: &mut Ctx<'_>, mut args: Args<'_>) -> Done {
    let on = args.one_of(&ON_OFF).ok_or(Error::Syntax)?;
    ctx.session.expiry_hold = on.then(|| ctx.ks.hold_expiry());
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
    let waiting = u64::try_from(id).ok().and_then(|id| ctx.server.sessions.by_id(id)).map(|session| session.key);
    let mut failed = None;
    let was_waiting = waiting.is_some_and(|key| {
        ctx.server.end_waiting(ctx.ks, key, |parked, reply| match as_error {
            true => {
                reply.error(UNBLOCKED);
                failed = Some(parked.command);
            }
            false => (parked.on_timeout)(reply),
        })
    });
    if let Some(command) = failed {
        ctx.server.stats.count_error(UNBLOCKED);
        ctx.server.stats.commands[command.index()].failed += 1;
    }
    if waiting.is_some() && !was_waiting {
        // A change may have served it.
        ctx.ks.see_everything();
    }
    ctx.reply.integer(i64::from(was_waiting));
    Ok(())
}

const ABOUT_ITSELF: Flags = Flags::NOSCRIPT.and(Flags::LOADING).and(Flags::STALE);
const ABOUT_OTHERS: Flags = ABOUT_ITSELF.and(Flags::ADMIN);

/// An entry of CLIENT: what most have in common.
const SUB: Command = Command { flags: ABOUT_ITSELF, group: Group::Connection, ..Command::EMPTY };

/// The family's table.
pub(super) const COMMANDS: &[Command] = &[Command {
    name: "client",
    arity: -2,
    group: Group::Connection,
    since: "2.4.0",
    complexity: "Depends on subcommand.",
    summary: "Holds the commands about connections.",
    sub: &[
        Command {
            name: "getname",
            arity: 2,
            since: "2.6.9",
            summary: "Answers the connection's name.",
            run: Run::Now(client_name),
            ..SUB
        },
        Command {
            name: "help",
            arity: 2,
            flags: Flags::LOADING.and(Flags::STALE),
            since: "5.0.0",
            summary: "Lists the subcommands.",
            run: Run::Now(help),
            ..SUB
        },
        Command {
            name: "id",
            arity: 2,
            since: "5.0.0",
            summary: "Answers the connection's id, which is never used again.",
            run: Run::Now(id),
            ..SUB
        },
        Command {
            name: "import-source",
            arity: 3,
            since: "8.1.0",
            summary: "Lets nothing expire while the connection repeats what another server did.",
            syntax: "<ON | OFF>",
            run: Run::Now(import_source),
            ..SUB
        },
        Command {
            name: "info",
            arity: 2,
            since: "6.2.0",
            summary: "Answers this connection's line of CLIENT LIST.",
            tips: &["nondeterministic_output"],
            run: Run::Now(info),
            ..SUB
        },
        Command {
            name: "kill",
            arity: -3,
            flags: ABOUT_OTHERS,
            since: "2.4.0",
            complexity: "O(N) where N is the number of client connections",
            summary: "Closes the connections that meet every condition.",
            syntax: "<ip:port | <[ID client-id] | [TYPE <NORMAL | MASTER | SLAVE | REPLICA | PUBSUB>] | [USER username] | \
                     [ADDR address] | [LADDR address] | [SKIPME <YES | NO>] | [MAXAGE seconds]>...>",
            run: Run::Now(kill),
            ..SUB
        },
        Command {
            name: "list",
            arity: -2,
            flags: ABOUT_OTHERS,
            since: "2.4.0",
            complexity: "O(N) where N is the number of client connections",
            summary: "Answers one line about each connection.",
            syntax: "[TYPE <NORMAL | MASTER | REPLICA | PUBSUB>] [ID client-id...]",
            tips: &["nondeterministic_output"],
            run: Run::Now(list),
            ..SUB
        },
        Command {
            name: "no-evict",
            arity: 3,
            flags: ABOUT_OTHERS,
            since: "7.0.0",
            summary: "Protects the connection from being closed for the memory it takes.",
            syntax: "<ON | OFF>",
            run: Run::Now(no_evict),
            ..SUB
        },
        Command {
            name: "no-touch",
            arity: 3,
            since: "7.2.0",
            summary: "Lets the connection's reads leave the time of a key's last use alone.",
            syntax: "<ON | OFF>",
            run: Run::Now(no_touch),
            ..SUB
        },
        Command {
            name: "reply",
            arity: 3,
            since: "3.2.0",
            summary: "Chooses whether commands are answered.",
            syntax: "<ON | OFF | SKIP>",
            run: Run::Now(reply),
            ..SUB
        },
        Command {
            name: "setinfo",
            arity: 4,
            since: "7.2.0",
            summary: "Notes which library the client uses.",
            syntax: "<LIB-NAME libname | LIB-VER libver>",
            tips: &["request_policy:all_nodes", "response_policy:all_succeeded"],
            run: Run::Now(set_info),
            ..SUB
        },
        Command {
            name: "setname",
            arity: 3,
            since: "2.6.9",
            summary: "Names the connection; an empty name takes it away.",
            syntax: "connection-name",
            run: Run::Now(set_client_name),
            ..SUB
        },
        Command {
            name: "unblock",
            arity: -3,
            flags: ABOUT_OTHERS,
            since: "5.0.0",
            complexity: "O(log N) where N is the number of blocked connections",
            summary: "Ends the waiting of a connection, as if its time had run out or with an error.",
            syntax: "client-id [TIMEOUT | ERROR]",
            run: Run::Now(unblock),
            ..SUB
        },
    ],
    run: Run::Container,
    ..Command::EMPTY
}];
