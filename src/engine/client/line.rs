//! The line of CLIENT LIST for one connection.

use std::borrow::Cow;
use std::io::Write;

use crate::acl::users::Acl;
use crate::engine::state::ServerState;
use crate::meters::stats::Stats;
use crate::resp::request::abridge;
use crate::session::caching::redirect;
use crate::session::subscriptions::{Space, SubscriptionKind};
use crate::session::{Restrictions, Session};

/// Writes one line of CLIENT LIST: the fields of Redis 8.0, then the further fields of Valkey 9.1. Memory that a
/// session has only while one of its commands runs counts as 0, since all sessions share the argument and reply
/// buffers; replies on their way to the socket count as unsent.
pub(crate) fn describe(text: &mut Vec<u8>, server: &ServerState, session: &Session) {
    let command = session.last_command.map_or("NULL", |command| &server.table.by_id(command).full_name);
    describe_calling(text, &server.acl, &server.meters.stats, session, command, usize::MAX);
}

/// Writes the line of a client whose command is still being checked, with at most `longest_name` bytes of each name
/// that the client gave itself.
pub(in crate::engine) fn describe_calling(
    text: &mut Vec<u8>,
    acl: &Acl,
    stats: &Stats,
    session: &Session,
    command: &str,
    longest_name: usize,
) {
    let now_ticks = stats.clock.raw();
    let seconds_since = |ticks| stats.clock.delta(ticks, now_ticks).as_secs();
    let queued = session.transaction.as_ref();
    let queued_bytes = queued.map_or(0, |transaction| transaction.bytes());
    let unsent_held = session.outbox.held();
    let held = session.mem_bytes();
    let shown = |name| String::from_utf8_lossy(&abridge(name, longest_name)).into_owned();
    // Writing to memory does not fail.
    let _ = writeln!(
        text,
        "id={} addr={} laddr={} fd={} name={} age={} idle={} flags={} db={} sub={} psub={} ssub={} multi={} watch={} \
         qbuf={} qbuf-free=0 argv-mem=0 multi-mem={queued_bytes} rbs=0 rbp=0 obl=0 oll={} omem={unsent_held} \
         tot-mem={held} events={} cmd={} user={} redir={} resp={} lib-name={} lib-ver={} io-thread={} capa={} \
         tot-net-in={} tot-net-out={} tot-cmds={}",
        session.key.id,
        session.address,
        session.local_address,
        session.fd,
        shown(&session.name),
        seconds_since(session.connected_ticks),
        seconds_since(session.active_ticks),
        flags(session),
        session.db,
        session.subscriptions.count(SubscriptionKind::Channel(Space::Global)),
        session.subscriptions.count(SubscriptionKind::Pattern),
        session.subscriptions.count(SubscriptionKind::Channel(Space::Sharded)),
        queued.map_or(-1, |transaction| transaction.commands.len() as i64),
        session.watched.len(),
        session.pending_input,
        session.outbox.chunks(),
        if session.outbox.is_empty() { "r" } else { "rw" },
        command,
        user_of(acl, session),
        redirect(session.tracking.as_deref()),
        session.protocol,
        shown(&session.lib_name),
        shown(&session.lib_version),
        session.io_thread,
        if session.takes_redirects { "r" } else { "" },
        session.bytes_in,
        session.bytes_out,
        session.commands,
    );
}

/// The name of the user that a client acts as.
pub(crate) fn user_of<'a>(acl: &'a Acl, session: &Session) -> Cow<'a, str> {
    String::from_utf8_lossy(acl.name(session.user))
}

/// The letters that CLIENT LIST shows for a session's state.
pub(crate) fn flags(session: &Session) -> String {
    let letters: String = [
        ('O', session.is_monitor),
        ('S', session.transfer.is_some()),
        ('P', !session.subscriptions.is_empty()),
        ('x', session.transaction.is_some()),
        ('b', session.is_blocked()),
        ('t', session.tracking.is_some()),
        ('R', session.tracking.as_ref().is_some_and(|client| client.is_redirect_broken)),
        ('B', session.tracking.as_ref().is_some_and(|client| client.broadcasts)),
        ('d', session.watch_dirty),
        ('c', session.is_closing_when_sent()),
        ('U', session.address.ends_with(":0")),
        ('r', session.reads_on_follower),
        ('e', session.no_evict),
        ('T', session.restrictions.contains(Restrictions::NO_TOUCH)),
        ('I', session.import_source.is_some()),
    ]
    .into_iter()
    .filter_map(|(letter, shown)| shown.then_some(letter))
    .collect();
    if letters.is_empty() { "N".to_owned() } else { letters }
}
