//! Calls that the leader must serve, on a node that follows, or another server, to which the data was given.
//!
//! **Clients of Sentinel** follow when their connection ends. One that connects again before it has heard of the next
//! leader comes back to the old one, and some libraries then keep the connection for ever, although each change is
//! refused. So such a connection ends with the first refusal.
//!
//! **In Cluster mode** calls that name keys or channels go to the leader. The group is a cluster of one shard, so each
//! slot is the leader's. A client learns from the error where that is, as it does in Redis Cluster, and goes there.
//! With READONLY it says that reads may be a little late: they run here. Channels always go to the leader, because
//! messages reach only the subscribers of one node.

use crate::base::crc::key_slot;
use crate::engine::state::{Entry, ServerState};
use crate::persist::fences::CHANGE_REFUSED;
use crate::persist::group::GroupLog;
use crate::persist::journal::Journal;
use crate::resp::request::Argv;
use crate::session::{Restrictions, Session};
use crate::spec::error::Error;
use crate::spec::{Channels, Flags, Group};

const DOWN: Error = Error::text("CLUSTERDOWN The cluster is down");

impl ServerState {
    /// Refuses a call that the leader must serve, on a node that follows.
    #[cold]
    pub(in crate::engine) fn admit_on_follower(
        &self,
        session: &Session,
        entry: &Entry,
        argv: Argv<'_>,
    ) -> Result<(), Error> {
        if !self.config.cluster_enabled {
            return Ok(());
        }
        let key = self.table.keys_of(entry.command, argv).and_then(|keys| argv.get(keys.first()?.index));
        // Only the leader knows all of what grants are asked about.
        let is_of_grants = entry.command.group == Group::Coordination;
        let runs_here = session.reads_on_follower && !is_of_grants && !self.writes(entry, argv);
        let channel = argv.get(entry.name_args()).filter(|_| entry.command.channels != Channels::None);
        match key.filter(|_| !runs_here).or(channel) {
            Some(name) => Err(self.moved(key_slot(name))),
            None => Ok(()),
        }
    }

    /// Ends the connection of a client that has come late, if this reply refuses it a change.
    #[cold]
    pub(in crate::engine) fn send_to_leader(&mut self, session: &mut Session, reply: &[u8]) {
        let is_refused = reply.strip_prefix(b"-").is_some_and(|error| error.starts_with(CHANGE_REFUSED.as_bytes()));
        let group = self.persistence.journal.as_ref().and_then(Journal::member);
        let has_led =
            session.restrictions.contains(Restrictions::FOLLOWING) && group.is_some_and(GroupLog::may_have_led);
        if is_refused && has_led && !self.config.cluster_enabled {
            self.connections().close_soon(session);
        }
    }

    /// Whether a command may change data. Scripts without a declaration may, but are judged by what they call.
    fn writes(&self, entry: &Entry, argv: Argv<'_>) -> bool {
        let declared = || self.programs.declared(entry, argv);
        entry.command.flags.contains(Flags::WRITE) || declared().is_some_and(|flags| !flags.no_writes)
    }

    /// Returns the error that sends a client to the leader, or to the server that the data was given to.
    fn moved(&self, slot: u16) -> Error {
        if let Some(to) = self.persistence.whose().given_to() {
            // As in Redis, an IPv6 address has no brackets.
            return Error::owned(format!("MOVED {slot} {}", to.replace(['[', ']'], "")));
        }
        let group = self.persistence.journal.as_ref().and_then(Journal::member);
        let leader = group.and_then(|group| group.leader_address());
        // As in Redis, an IPv6 address has no brackets.
        leader.map_or(DOWN, |at| Error::owned(format!("MOVED {slot} {}:{}", at.host(), at.port)))
    }
}
