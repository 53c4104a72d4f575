//! A handover begins or ends: what that means for clients. See [`crate::persist::handover`].

use crate::engine::ServerState;
use crate::keyspace::Keyspace;
use crate::persist::handover::Handover;
use crate::session::{Restrictions, Service, Session};
use crate::spec::session_key::SessionKey;

/// The reply of Redis to calls that wait when a master becomes a replica.
const UNBLOCKED: &[u8] =
    b"UNBLOCKED force unblock from blocking operation, instance state changed (master -> replica?)";

impl ServerState {
    /// Sets whose the data is, as a change of the current unit, for `session`, which is out of the registry. When the
    /// data is not this server's own any more, other clients are sent away: they may find it elsewhere.
    pub(crate) fn set_handover(&mut self, ks: &mut Keyspace, session: &mut Session, state: Handover) {
        let before = Kind::of(&self.persistence.handover);
        self.persistence.handover.set(ks, state);
        if self.follow_handover(ks, before) {
            session.restrict(Restrictions::OF_ROLE, false);
            session.restrict(Restrictions::OF_ROLE & self.restrictions_of_all(), true);
        }
    }

    /// Applies a change of whose the data is to the clients in the registry. Returns whether there was one.
    pub(super) fn follow_handover(&mut self, ks: &Keyspace, before: Kind) -> bool {
        let now = Kind::of(&self.persistence.handover);
        if now == before {
            return false;
        }
        self.readers_changed();
        self.role_changed();
        // A snapshot must not go on with incomplete data, or may begin now.
        (self.persistence.saving.wake)();
        if matches!(now, Kind::Incomplete | Kind::Given) {
            self.send_clients_away(ks);
        }
        true
    }

    /// Closes the clients in the registry once they have their replies, but for those who read the feed: the end of a
    /// handover waits for them.
    fn send_clients_away(&mut self, ks: &Keyspace) {
        let goes = |session: &&Session| session.service == Service::Data && !self.persistence.reads_feed(session.key);
        let keys: Vec<SessionKey> = self.clients.sessions.iter().filter(goes).map(|session| session.key).collect();
        for key in keys {
            if let Some(call) = self.clients.sessions.get(key).and_then(Session::blocking_call) {
                self.end_waiting(ks, call, |_, reply| reply.error(UNBLOCKED));
            }
            self.connections().close_when_sent(key);
        }
    }
}

/// What clients notice of a [`Handover`].
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Own,
    Incomplete,
    Complete,
    Given,
}

impl Kind {
    pub(super) fn of(handover: &Handover) -> Kind {
        match handover {
            Handover::Own(_) => Kind::Own,
            Handover::Receiving(received) if received.is_complete => Kind::Complete,
            Handover::Receiving(_) => Kind::Incomplete,
            Handover::Given(_) => Kind::Given,
        }
    }
}
