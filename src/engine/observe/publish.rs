//! Delivery of published messages: at once, or held back until the publishing script or transaction is done.

use super::pubsub::{Message, Subscribers};
use crate::base::lsn::Lsn;
use crate::engine::limits::HELD_MESSAGES_MAX_BYTES;
use crate::engine::observe::audience::Audience;
use crate::engine::state::{Ctx, Delivery};
use crate::keyspace::Keyspace;
use crate::resp::reply::{Form, Reply};
use crate::session::output_limits::PushLimits;
use crate::session::subscriptions::Space;
use crate::session::{Session, Sessions};
use crate::spec::error::Error;
use crate::spec::session_key::SessionKey;

impl Audience {
    /// Drops the messages held back since the last beginning; returns their number.
    fn drop_held(&mut self) -> usize {
        let held = &mut self.held_messages;
        let begin = held.begins.pop().unwrap_or(0);
        let dropped = held.messages.drain(begin..);
        let count = dropped.len();
        held.bytes -= dropped.map(|message| message.bytes()).sum::<usize>();
        count
    }

    /// Notes that a script or transaction begins. Its messages are held back until its end if it may be rolled back
    /// then. They are also held back with a journal, since other clients may be served before the end, and no client
    /// may hear of changes before the journal has them. Returns whether messages are held back: then
    /// [`Ctx::deliver_held`], [`Ctx::commit`] or [`Ctx::roll_back`] must be called
    /// once.
    #[inline]
    pub(crate) fn hold_messages(&mut self, keeps_stream: bool, may_roll_back: bool) -> bool {
        let holds = may_roll_back || keeps_stream;
        if holds {
            self.held_messages.begins.push(self.held_messages.messages.len());
        }
        holds
    }

    /// Notes that a script or transaction ends that [holds messages](Self::hold_messages). Returns whether there are
    /// messages to deliver now: an outer transaction may still hold them.
    #[inline]
    fn releases_messages(&mut self) -> bool {
        let held = &mut self.held_messages;
        held.begins.pop();
        !held.messages.is_empty() && held.begins.is_empty()
    }
}

impl Delivery<'_> {
    /// Delivers the messages held back. `current` as in [`publish`](Self::publish).
    #[inline(never)]
    fn deliver_all_held(&mut self, ks: &Keyspace, current: &mut Session) {
        for Message { space, channel, text } in std::mem::take(&mut self.audience.held_messages).messages {
            if self.deliver(ks, current, space, &channel, &text).is_err() {
                // The message is about data that was lost, so it is not delivered. Its publisher learns of the loss
                // from its own reply, which is refused as if it showed the lost data.
                ks.see_everything();
            }
        }
    }

    /// Delivers a message to all its subscribers, at once or when the publishing script or transaction is done; returns
    /// the number of deliveries. `current` is the session whose command runs and which therefore is out of the
    /// registry.
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
                "ERR a script or transaction can publish 64 MB at most; publish less, or use several of them",
            ));
        }
        let message = Message { space, channel: channel.into(), text: message.into() };
        held.bytes += message.bytes();
        held.messages.push(message);
        let listeners = self.audience.pubsub.channels_of(space).listeners(channel).len();
        let matching = self.audience.pubsub.matching(space, channel).map(|pattern| pattern.listeners.len());
        Ok(listeners + matching.sum::<usize>())
    }

    /// Delivers a message of a publisher that has seen what `current` has seen.
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

    /// Sends a message to all its subscribers, which may read it only when unit `fence` is safe; returns the number of
    /// deliveries. `out` are the sessions that are out of the registry. Returns `None` if the journal has lost that
    /// unit, or turns out during the delivery to have lost it: then the subscribers that got the message are
    /// disconnected.
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
        let subscribers = self.audience.pubsub.subscribers(space, channel);
        self.send_to(out, fence, &subscribers, space, channel, message)
    }

    /// Tells the clients of Sentinel's port of an event.
    pub(in crate::engine) fn tell_sentinels(&mut self, channel: &[u8], message: &[u8]) {
        let subscribers = self.audience.of_sentinel.subscribers(Space::Global, channel);
        // The message shows no data, so it can't be lost.
        let _ = self.send_to(&mut [], Lsn::NONE, &subscribers, Space::Global, channel, message);
    }

    /// As [`fan_out`](Self::fan_out), to these subscribers.
    fn send_to(
        &mut self,
        out: &mut [&mut Session],
        fence: Lsn,
        subscribers: &[Subscribers],
        space: Space,
        channel: &[u8],
        message: &[u8],
    ) -> Option<usize> {
        let reach = self.persistence.reach(self.config);
        for (pattern, listeners) in subscribers {
            // Written once per protocol version.
            let mut written: [Option<Reply>; 2] = [None, None];
            for listener in listeners {
                let Some(session) =
                    find(&mut self.clients.sessions, out, *listener).filter(|session| !session.is_killed())
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
                let (config, stats, limits_due) = (self.config, &mut *self.stats, &mut self.clients.limits_due);
                PushLimits { config, stats, limits_due, reach }.hold(session);
                self.hold(push.len(), fence);
                self.clients.weigh(self.stats, *listener);
                if self.persistence.is_lost(fence) {
                    return None;
                }
            }
        }
        Some(subscribers.iter().map(|(_, listeners)| listeners.len()).sum())
    }
}

/// Returns the session of this key, from the registry or from those that are `out` of it.
fn find<'a>(sessions: &'a mut Sessions, out: &'a mut [&mut Session], key: SessionKey) -> Option<&'a mut Session> {
    match sessions.get_mut(key) {
        Some(session) => Some(session),
        None => out.iter_mut().find(|session| session.key == key).map(|session| &mut **session),
    }
}

/// Writes a message in the form for subscribers of its channel, or of a pattern that matches the channel.
pub(super) fn write_message(push: &mut Reply, space: Space, pattern: Option<&[u8]>, channel: &[u8], message: &[u8]) {
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
    /// Delivers the messages held back, unless an outer transaction still holds them.
    #[inline]
    pub(crate) fn deliver_held(&mut self) {
        if self.server.audience.releases_messages() {
            self.server.delivery().deliver_all_held(self.ks, self.session);
        }
    }

    /// Keeps the changes since they became revocable, and delivers the messages published since.
    #[inline]
    pub(crate) fn commit(&mut self) {
        self.ks.commit_undo();
        self.deliver_held();
    }

    /// Undoes the changes since they became revocable, and drops the messages published since. Returns the numbers of
    /// changes and messages.
    pub(crate) fn roll_back(&mut self) -> (usize, usize) {
        (self.ks.roll_back(), self.server.audience.drop_held())
    }
}
