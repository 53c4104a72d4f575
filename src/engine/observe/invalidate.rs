//! Sends invalidations to clients whose cached keys have changed.
//!
//! The touches of every unit show which keys may have changed. The message carries the unit's fence, so that no client
//! drops a value, reads the key again, and caches a value that a crash takes back. The client whose command it was gets
//! the message after its reply, since its outbox keeps pushes apart from replies
//! ([`Outbox::drain_fresh`](crate::session::outbox::Outbox::drain_fresh)).
//!
//! **Reads inside a unit.** A transaction or script may change a key and then read it, or read it and then change it;
//! only in the second case must its client get an invalidation. So at each read the table first notes what was touched
//! up to there ([`Audience::see_touched`]), and then remembers the key. If the unit's record was cut or condensed in
//! between, the table notes all of it again, which may send one invalidation too many.

use std::collections::{BTreeMap, BTreeSet};

use super::tracking::{Clients, Gone};
use crate::acl::check::reads;
use crate::base::lsn::Lsn;
use crate::engine::observe::audience::Audience;
use crate::engine::state::Delivery;
use crate::keyspace::effect::Touch;
use crate::keyspace::{DbIndex, Keyspace};
use crate::log::planted::{self, Bug};
use crate::persist::tail::UnitOrigin;
use crate::resp::reply::Reply;
use crate::session::output_limits::PushLimits;
use crate::session::{Restrictions, Session, Sessions};

/// The channel on which RESP2 clients get invalidations redirected to them.
const CHANNEL: &[u8] = b"__redis__:invalidate";

/// Keys that a unit has changed, and in which databases.
type ChangedKeys<'a> = BTreeSet<(&'a [u8], DbIndex)>;

/// The content of a message.
#[derive(Clone, Copy)]
enum Message<'a> {
    /// These keys have changed.
    Keys(&'a [&'a [u8]]),
    /// Any key may have changed.
    All,
}

impl Message<'_> {
    fn write(self, reply: &mut Reply) {
        match self {
            Message::Keys(keys) => {
                reply.array(keys.len());
                keys.iter().for_each(|key| reply.bulk(key));
            }
            Message::All => reply.null(),
        }
    }
}

/// The invalidations of one unit.
struct Invalidations<'a, 's> {
    fence: Lsn,
    /// The client that gets no message under NOLOOP.
    changer: Option<u64>,
    /// The sessions that are out of the registry.
    out: &'a mut [&'s mut Session],
    /// Bytes that were pushed.
    pushed: usize,
}

impl Audience {
    /// Notes the keys that the current unit has touched so far; their invalidations are sent when the unit is over.
    pub(in crate::engine) fn see_touched(&mut self, ks: &Keyspace) {
        let table = &mut self.tracking;
        for touch in ks.effects().touches_from(&table.seen) {
            match touch {
                Touch::Key { key, .. } => {
                    if let Some(clients) = table.forget(key) {
                        table.due.push(Gone::Key(key.into(), clients));
                    }
                }
                Touch::Database(_) => table.drop_all(),
            }
        }
        table.seen = ks.effects().place();
    }
}

impl Delivery<'_> {
    /// Sends the invalidations of a unit that changed something; `fence` is its Lsn. `out` are the sessions that are
    /// out of the registry, first the one whose command it was.
    pub(in crate::engine) fn invalidate(
        &mut self,
        ks: &Keyspace,
        origin: UnitOrigin,
        fence: Lsn,
        out: &mut [&mut Session],
    ) {
        if self.persistence.is_lost(fence) {
            self.audience.tracking.take_due();
            return;
        }
        let by_client = matches!(origin, UnitOrigin::Command | UnitOrigin::Woken);
        let changer = out.first().filter(|_| by_client).map(|session| session.key.id);
        let mut invalidations = Invalidations { fence, changer, out, pushed: 0 };
        self.audience.see_touched(ks);
        for gone in self.audience.tracking.take_due() {
            self.invalidate_gone(&mut invalidations, &gone);
        }
        if self.audience.tracking.prefixes() > 0 {
            self.broadcast(ks, &mut invalidations);
        }
        let pushed = invalidations.pushed;
        self.hold(pushed, fence);
    }

    /// Sends the invalidations that are due although the unit of the session `current` has changed nothing in the end.
    pub(in crate::engine) fn invalidate_due(&mut self, current: &mut Session) {
        let due = self.audience.tracking.take_due();
        self.invalidate_unfenced(&due, &mut [current]);
    }

    /// Tells all tracking clients to drop everything, for a command that changed nothing itself. `current` is its
    /// session.
    pub fn flush_tracked(&mut self, current: &mut Session) {
        if self.audience.tracking.reads_changes() {
            self.audience.tracking.forget_all();
            self.invalidate_unfenced(&[Gone::All], &mut [current]);
        }
    }

    /// Keeps the table at `tracking-table-max-keys`.
    pub(in crate::engine) fn limit_tracked_keys(&mut self) {
        let gone = self.audience.tracking.take_excess(self.config.tracking_table_max_keys);
        self.invalidate_unfenced(&gone, &mut []);
    }

    /// Sends invalidations without a fence: that a key may be cached no longer shows nothing of its value.
    pub(in crate::engine) fn invalidate_unfenced(&mut self, gone: &[Gone], out: &mut [&mut Session]) {
        let mut invalidations = Invalidations { fence: Lsn::NONE, changer: None, out, pushed: 0 };
        gone.iter().for_each(|gone| self.invalidate_gone(&mut invalidations, gone));
    }

    fn invalidate_gone(&mut self, invalidations: &mut Invalidations<'_, '_>, gone: &Gone) {
        match gone {
            Gone::Key(key, clients) => self.invalidate_key(invalidations, key, clients),
            Gone::All => {
                let is_tracking = |session: &Session| session.tracking.is_some().then_some(session.key.id);
                let mut ids: Vec<u64> = self.clients.sessions.iter().filter_map(is_tracking).collect();
                ids.extend(invalidations.out.iter().filter_map(|session| is_tracking(session)));
                ids.sort_unstable();
                ids.into_iter().for_each(|id| self.send(invalidations, id, Message::All));
            }
        }
    }

    fn invalidate_key(&mut self, invalidations: &mut Invalidations<'_, '_>, key: &[u8], clients: &Clients) {
        for &id in clients.as_slice() {
            let Some(session) = session_of(&mut self.clients.sessions, invalidations.out, id) else { continue };
            // The client may have switched to broadcast, or tracking off, since it read the key.
            let Some(client) = session.tracking.as_ref().filter(|client| !client.broadcasts) else { continue };
            if !(client.is_noloop && invalidations.changer == Some(id)) {
                self.send(invalidations, id, Message::Keys(&[key]));
            }
        }
    }

    /// Tells the clients that track prefixes, with one message per prefix, of the keys that their users may read.
    fn broadcast(&mut self, ks: &Keyspace, invalidations: &mut Invalidations<'_, '_>) {
        let mut changed: BTreeMap<Box<[u8]>, ChangedKeys<'_>> = BTreeMap::new();
        for touch in ks.effects().touches() {
            let Touch::Key { db, key, .. } = touch else { continue };
            let key = (key, db);
            for (prefix, _) in self.audience.tracking.prefixes_of(key.0) {
                match changed.get_mut(prefix) {
                    Some(keys) => drop(keys.insert(key)),
                    None => drop(changed.insert(prefix.into(), BTreeSet::from([key]))),
                }
            }
        }
        for (prefix, keys) in changed {
            for id in self.audience.tracking.clients_of(&prefix).to_vec() {
                let Some(session) = session_of(&mut self.clients.sessions, invalidations.out, id) else { continue };
                let is_noloop = session.tracking.as_ref().is_some_and(|client| client.is_noloop);
                let is_limited = session.restrictions.contains(Restrictions::LIMITED);
                if is_noloop && invalidations.changer == Some(id) {
                    continue;
                }
                let mut keys: Vec<&[u8]> = if is_limited {
                    // The client has named no key, so its rights are checked here.
                    let user = self.acl.get(session.user);
                    let may_read = |(key, db): &&(&[u8], DbIndex)| user.is_some_and(|user| reads(user, *db, key));
                    keys.iter().filter(may_read).map(|(key, _)| *key).collect()
                } else {
                    keys.iter().map(|(key, _)| *key).collect()
                };
                // One key may have changed in several databases.
                keys.dedup();
                if !keys.is_empty() {
                    self.send(invalidations, id, Message::Keys(&keys));
                }
            }
        }
    }

    /// Sends a message to a tracking client, or to the client it redirects to.
    fn send(&mut self, invalidations: &mut Invalidations<'_, '_>, id: u64, message: Message<'_>) {
        let Some(session) = session_of(&mut self.clients.sessions, invalidations.out, id) else { return };
        let Some(redirect) = session.tracking.as_ref().and_then(|client| client.redirect) else {
            if session.protocol == 3 {
                self.push(invalidations, id, b"invalidate", |reply| message.write(reply));
            }
            return;
        };
        let Some(reader) =
            session_of(&mut self.clients.sessions, invalidations.out, redirect).filter(|reader| !reader.is_leaving())
        else {
            return self.report_broken_redirect(invalidations, id, redirect);
        };
        if reader.protocol == 3 {
            self.push(invalidations, redirect, b"invalidate", |reply| message.write(reply));
        } else if !reader.subscriptions.is_empty() {
            self.push(invalidations, redirect, b"message", |reply| {
                reply.bulk(CHANNEL);
                message.write(reply);
            });
        }
    }

    fn report_broken_redirect(&mut self, invalidations: &mut Invalidations<'_, '_>, id: u64, redirect: u64) {
        let Some(session) = session_of(&mut self.clients.sessions, invalidations.out, id) else { return };
        if let Some(client) = &mut session.tracking {
            client.is_redirect_broken = true;
        }
        if session.protocol == 3 {
            self.push(invalidations, id, b"tracking-redir-broken", |reply| reply.integer(redirect as i64));
        }
    }

    /// Pushes a message of this kind; `write` writes the rest of it.
    fn push(
        &mut self,
        invalidations: &mut Invalidations<'_, '_>,
        id: u64,
        kind: &[u8],
        write: impl FnOnce(&mut Reply),
    ) {
        let reach = self.persistence.reach(self.config);
        let Some(session) =
            session_of(&mut self.clients.sessions, invalidations.out, id).filter(|session| !session.is_killed())
        else {
            return;
        };
        let mut push = Reply::new(session.form());
        push.push(if kind == b"message" { 3 } else { 2 });
        push.bulk(kind);
        write(&mut push);
        invalidations.pushed += push.len();
        let fence = if planted::is(Bug::NoFenceOfInvalidations) { Lsn::NONE } else { invalidations.fence };
        if session.outbox.is_empty() {
            session.invalidation_bytes = 0;
        }
        session.outbox.push(push.as_bytes(), fence);
        let (config, stats, limits_due) = (self.config, &mut *self.stats, &mut self.clients.limits_due);
        PushLimits { config, stats, limits_due, reach }.hold_invalidated(session, push.len());
        let key = session.key;
        self.clients.weigh(self.stats, key);
    }
}

/// Returns the session with this id, in the registry or out of it.
fn session_of<'s>(sessions: &'s mut Sessions, out: &'s mut [&mut Session], id: u64) -> Option<&'s mut Session> {
    match sessions.by_id(id) {
        Some(session) => Some(session),
        None => out.iter_mut().map(|session| &mut **session).find(|session| session.key.id == id),
    }
}
