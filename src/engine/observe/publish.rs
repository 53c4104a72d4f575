//! Delivery of what is published: at once, or held back until the script or transaction that publishes is done.

use std::rc::Rc;

use super::pubsub::Message;
use crate::base::limits::HELD_MESSAGES_MAX_BYTES;
use crate::base::lsn::Lsn;
use crate::engine::observe::audience::Audience;
use crate::engine::session::output_limits::PushLimits;
use crate::engine::session::subscriptions::Space;
use crate::engine::session::{Session, Sessions};
use crate::engine::state::{Ctx, ServerState};
use crate::keyspace::Keyspace;
use crate::resp::reply::{Form, Reply};
use crate::spec::error::Error;
use crate::spec::session_key::SessionKey;

impl Audience {
    /// Forgets what has come since it was held back; answers how many messages that were.
    fn drop_held(&mut self) -> usize {
        let held = &mut self.held_messages;
        let begin = held.begins.pop().unwrap_or(0);
        let dropped = held.messages.drain(begin..);
        let count = dropped.len();
        held.bytes -= dropped.map(|message| message.bytes()).sum::<usize>();
        count
    }

    /// A script or transaction begins. Messages wait for its end if it may be rolled back then; and with a log, for others may be
    /// served meanwhile, and nobody may hear of changes before the log has them. Answers whether they wait: then
    /// [`deliver_held`](Self::deliver_held), [`Ctx::commit`] or [`Ctx::roll_back`] is to be called once.
    #[inline]
    pub(crate) fn hold_messages(&mut self, keeps_stream: bool, may_roll_back: bool) -> bool {
        let holds = may_roll_back || keeps_stream;
        if holds {
            self.held_messages.begins.push(self.held_messages.messages.len());
        }
        holds
    }
}

impl ServerState {
    /// Delivers what waits, unless somebody else still holds it back. `current` as in [`publish`](Self::publish).
    #[inline]
    pub(crate) fn deliver_held(&mut self, ks: &Keyspace, current: &mut Session) {
        self.audience.held_messages.begins.pop();
        if !self.audience.held_messages.messages.is_empty() && self.audience.held_messages.begins.is_empty() {
            self.deliver_all_held(ks, current);
        }
    }

    #[inline(never)]
    fn deliver_all_held(&mut self, ks: &Keyspace, current: &mut Session) {
        for Message { space, channel, text } in std::mem::take(&mut self.audience.held_messages).messages {
            if self.deliver(ks, current, space, &channel, &text).is_err() {
                // It tells of something that is lost, and nobody hears it. Its publisher learns that from its own reply, which is
                // refused as if it showed what is lost.
                ks.see_everything();
            }
        }
    }

    /// Delivers a message to everybody who listens, at once or when the script or transaction that publishes is done; answers how many
    /// times. `current` is the session whose command runs and which therefore is not among [`sessions`](ServerState::sessions).
    pub fn publish(
        &mut self,
        ks: &Keyspace,
        current: &mut Session,
        space: Space,
        channel: &[u8],
        message: &[u8],
    ) -> Result<usize, Error> {
        let held = &mut self.audience.held_messages;
        if held.begins.is_empty() {
            return self.deliver(ks, current, space, channel, message);
        }
        if held.bytes + channel.len() + message.len() > HELD_MESSAGES_MAX_BYTES {
            return Err(Error::text(
                "ERR a script or transaction can publish 64 MB at most; publish less, or from several",
            ));
        }
        let message = Message { space, channel: channel.into(), text: message.into() };
        held.bytes += message.bytes();
        held.messages.push(message);
        let listeners = self.audience.pubsub.channels_of(space).listeners(channel).len();
        let matching = self.audience.pubsub.matching(space, channel).map(|pattern| pattern.listeners.len());
        Ok(listeners + matching.sum::<usize>())
    }

    /// Delivers a message of somebody who has been shown what `current` has.
    fn deliver(
        &mut self,
        ks: &Keyspace,
        current: &mut Session,
        space: Space,
        channel: &[u8],
        message: &[u8],
    ) -> Result<usize, Error> {
        let fence = self.persistence.fence_so_far(ks, current.fence);
        self.fan_out(&mut [current], fence, space, channel, message).ok_or_else(|| self.persistence.refusal())
    }

    /// Sends a message that nobody may read before unit `fence` is safe to everybody who listens; answers how many times. `out` are the
    /// sessions that are out of the registry. `None` if the log has lost that unit, or is found to have lost it on the way: then those
    /// who were told are disconnected.
    pub(in crate::engine) fn fan_out(
        &mut self,
        out: &mut [&mut Session],
        fence: Lsn,
        space: Space,
        channel: &[u8],
        message: &[u8],
    ) -> Option<usize> {
        if self.persistence.is_lost(fence) {
            return None;
        }
        let reach = self.persistence.reach(&self.config);
        let mut groups: Vec<Group> = Vec::new();
        let listeners = self.audience.pubsub.channels_of(space).listeners(channel);
        if !listeners.is_empty() {
            groups.push((None, listeners.to_vec()));
        }
        let patterns = self.audience.pubsub.matching(space, channel);
        groups.extend(patterns.map(|pattern| (Some(pattern.glob.clone()), pattern.listeners.clone())));
        for (pattern, listeners) in &groups {
            // Written once for all who speak the same protocol.
            let mut written: [Option<Reply>; 2] = [None, None];
            for listener in listeners {
                let Some(session) = find(&mut self.clients.sessions, out, *listener).filter(|session| !session.killed)
                else {
                    continue;
                };
                let form = session.form();
                let push = written[usize::from(form == Form::Resp3)].get_or_insert_with(|| {
                    let mut push = Reply::new(form);
                    write_message(&mut push, space, pattern.as_deref(), channel, message);
                    push
                });
                session.outbox.push(push.as_bytes(), fence);
                let (config, stats, limits_due) = (&self.config, &mut self.meters.stats, &mut self.clients.limits_due);
                PushLimits { config, stats, limits_due, reach }.hold(session);
                self.hold(push.len(), fence);
                self.clients.weigh(&mut self.meters.stats, *listener);
                if self.persistence.is_lost(fence) {
                    return None;
                }
            }
        }
        Some(groups.iter().map(|(_, listeners)| listeners.len()).sum())
    }
}

/// Those who listen to a pattern, or to the channel itself.
type Group = (Option<Rc<[u8]>>, Vec<SessionKey>);

/// The session of this key, in the registry or among those that are `out` of it.
fn find<'a>(sessions: &'a mut Sessions, out: &'a mut [&mut Session], key: SessionKey) -> Option<&'a mut Session> {
    match sessions.get_mut(key) {
        Some(session) => Some(session),
        None => out.iter_mut().find(|session| session.key == key).map(|session| &mut **session),
    }
}

/// Writes a message as those read it who listen to its channel, or to a pattern that matches that.
fn write_message(push: &mut Reply, space: Space, pattern: Option<&[u8]>, channel: &[u8], message: &[u8]) {
    match pattern {
        None => {
            push.push(3);
            push.bulk(if space == Space::Sharded { b"smessage".as_slice() } else { b"message" });
        }
        Some(glob) => {
            push.push(4);
            push.bulk(b"pmessage");
            push.bulk(glob);
        }
    }
    push.bulk(channel);
    push.bulk(message);
}

impl Ctx<'_> {
    /// What was done since changes can be taken back stays, and what was published is delivered.
    #[inline]
    pub(crate) fn commit(&mut self) {
        self.ks.commit_undo();
        self.server.deliver_held(self.ks, self.session);
    }

    /// Nothing stays of what was done since changes can be taken back, and nobody hears of it. Answers how many changes and messages
    /// there were.
    pub(crate) fn roll_back(&mut self) -> (usize, usize) {
        (self.ks.roll_back(), self.server.audience.drop_held())
    }
}
