//! CLIENT LIST and CLIENT INFO: one line about each connection.

use std::collections::BTreeMap;
use std::io::Write;

use crate::engine::args::Args;
use crate::engine::error::{Error, excerpt};
use crate::engine::session::{ClientType, Restrictions, Session};
use crate::engine::subscriptions::{Kind as Listening, Space};
use crate::engine::{Ctx, Done, ServerState};

pub(super) fn info(ctx: &mut Ctx<'_>, _: Args<'_>) -> Done {
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

pub(super) fn list(ctx: &mut Ctx<'_>, mut args: Args<'_>) -> Done {
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
pub(super) enum Kind {
    Type(ClientType),
    /// A kind that Redis knows and of which there is none here.
    Absent,
}

pub(super) fn client_kind(name: &[u8]) -> Result<Kind, Error> {
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
        ('b', session.is_blocked()),
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
