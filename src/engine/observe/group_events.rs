//! Delivery of what [`group_watch`](super::group_watch) sees to the subscribers at Sentinel's port.

use super::audience::Audience;
use super::group_watch::SWITCH;
use super::publish::write_message;
use crate::engine::state::ServerState;
use crate::persist::journal::Journal;
use crate::resp::reply::Reply;
use crate::session::Session;
use crate::session::subscriptions::{Space, SubscriptionKind};

impl ServerState {
    /// Tells the clients of Sentinel's port what has changed in the group since the last call.
    pub(in crate::engine) fn watch_group(&mut self) {
        if self.config.sentinel_port == 0 {
            return;
        }
        let Some(group) = self.persistence.journal.as_ref().and_then(Journal::member) else { return };
        let (watch, now_ms) = (&mut self.audience.group_watch, self.time.clock.steady_ms());
        if !watch.is_due(group.leader().map(|leader| leader.get()), now_ms) {
            return;
        }
        let name = String::from_utf8_lossy(&self.config.sentinel_master_name);
        for (channel, message) in watch.look(&group.view(), &name, self.clients.sessions.newest_id(), now_ms) {
            self.delivery().tell_sentinels(channel, message.as_bytes());
        }
    }
}

impl Audience {
    /// Tells a new subscriber at Sentinel's port of the last switch, if it may have missed it.
    pub fn repeat_switch(&self, session: &mut Session, kind: SubscriptionKind, name: &[u8]) {
        let Some(message) = self.group_watch.missed_switch(session.key.id, kind, name) else { return };
        let pattern = (kind == SubscriptionKind::Pattern).then_some(name);
        let mut push = Reply::new(session.form());
        write_message(&mut push, Space::Global, pattern, SWITCH, message.as_bytes());
        session.push(push.as_bytes());
    }
}
