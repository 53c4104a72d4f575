//! Keyspace notifications: the changes of a unit are published, for subscribers of a key or of a kind of event.
//!
//! A message waits for its unit as replies do, so that no client hears of a change that a crash takes back. So the
//! events are published when the unit is committed: those of a script or transaction together, after its own messages.

use super::events::{Event, of_unit};
use crate::base::lsn::Lsn;
use crate::config::EventClasses;
use crate::engine::state::Delivery;
use crate::keyspace::Keyspace;
use crate::log::planted::{self, Bug};
use crate::session::Session;
use crate::session::subscriptions::Space;

impl Delivery<'_> {
    /// Publishes the events of the unit just shown to the journal. `out` are the sessions that are out of the registry.
    #[inline(never)]
    pub(in crate::engine) fn publish_events(&mut self, ks: &Keyspace, out: &mut [&mut Session]) {
        let classes = self.config.notify_keyspace_events;
        if self.audience.pubsub.channels.is_empty() && self.audience.pubsub.patterns.is_empty() {
            return;
        }
        // The events of a unit without changes are about data that some earlier unit made.
        let is_fenced = self.persistence.journal.is_some() && !planted::is(Bug::NoFenceOnEvents);
        let fence = if is_fenced { self.persistence.lsn_of_tail() } else { Lsn::NONE };
        let mut channel = Vec::new();
        of_unit(ks.effects(), self.table, |event| {
            if classes.intersects(event.class) {
                self.publish_event(&event, classes, fence, out, &mut channel);
            }
        });
    }

    fn publish_event(
        &mut self,
        event: &Event<'_>,
        classes: EventClasses,
        fence: Lsn,
        out: &mut [&mut Session],
        channel: &mut Vec<u8>,
    ) {
        let forms = [
            (EventClasses::BY_KEY, "keyspace", event.key, event.name.as_bytes()),
            (EventClasses::BY_EVENT, "keyevent", event.name.as_bytes(), event.key),
        ];
        for (_, space, about, message) in forms.into_iter().filter(|(form, ..)| classes.intersects(*form)) {
            channel.clear();
            channel.extend_from_slice(format!("__{space}@{}__:", event.db).as_bytes());
            channel.extend_from_slice(about);
            // Events about lost data are dropped.
            _ = self.fan_out(out, fence, Space::Global, channel, message);
        }
    }
}
