//! Undoing changes of a stream: taking the pre-image of a change, and restoring it.

use super::Stream;
use super::delayed::DelayedState;
use super::group::Group;
use super::id::StreamId;
use super::node::NodeEntries;
use super::pre_image::{Counters, Part, StreamPreImage, StreamTail};

/// Called before a change.
impl Stream {
    fn counters(&self) -> Counters {
        let &Stream { len, last_id, max_deleted_id, entries_added, .. } = self;
        Counters { len, last_id, max_deleted_id, entries_added }
    }

    /// Before an entry is appended.
    pub fn before_append(&self) -> StreamTail {
        let &Stream { last_id, entries_added, .. } = self;
        let last = self.nodes.last_key_value();
        let (bytes, total, live) = last.map_or((0, 0, 0), |(_, node)| (node.bytes.len(), node.total, node.live));
        StreamTail { last_id, entries_added, bytes, total, live }
    }

    /// Removes the appended entry, which restores this end of the stream.
    pub fn cut_to(&mut self, tail: StreamTail) {
        self.len -= 1;
        let appended = std::mem::replace(&mut self.last_id, tail.last_id);
        self.entries_added = tail.entries_added;
        let Some(mut last) = self.nodes.last_entry() else { return };
        // Ids ascend, so a node begins with the entry's id only if it was created for that entry.
        if *last.key() == appended {
            last.remove();
            return;
        }
        let node = last.get_mut();
        node.bytes.truncate(tail.bytes);
        node.total = tail.total;
        node.live = tail.live;
    }

    /// Before an entry is deleted.
    pub fn before_delete(&self, id: StreamId) -> StreamPreImage {
        let counters = self.counters();
        StreamPreImage(match self.nodes.range(..=id).next_back() {
            // The node goes with its last entry.
            Some((&first, node)) if node.live == 1 => Part::Nodes { counters, nodes: vec![(first, node.clone())] },
            // Not an entry that has been deleted before and cannot be found any more.
            _ if self.entry(id).is_some() => Part::Entry { counters, id },
            _ => Part::Counters(counters),
        })
    }

    /// Before all entries up to `last` are removed.
    pub fn before_trim(&self, last: StreamId) -> StreamPreImage {
        let nodes = self.nodes.range(..=last).map(|(&first, node)| (first, node.clone())).collect();
        StreamPreImage(Part::Nodes { counters: self.counters(), nodes })
    }

    /// Before the counters are set.
    pub fn before_counters(&self) -> StreamPreImage {
        StreamPreImage(Part::Counters(self.counters()))
    }

    /// Before a group loses a consumer.
    pub fn before_group(&self, name: &[u8]) -> StreamPreImage {
        Stream::group_was(name, self.groups.get(name).cloned())
    }

    /// For a group that was created or removed, and its state before that.
    pub fn group_was(name: &[u8], before: Option<Group>) -> StreamPreImage {
        StreamPreImage(Part::Group { name: name.into(), before })
    }

    /// Before a group's position changes; like [`before_group`](Self::before_group) if there is none.
    pub fn before_position(&self, group: &[u8]) -> StreamPreImage {
        match self.groups.get(group) {
            None => self.before_group(group),
            Some(&Group { last_delivered, entries_read, .. }) => {
                StreamPreImage(Part::Position { group: group.into(), last_delivered, entries_read })
            }
        }
    }

    /// Before a group's policy changes.
    pub fn before_policy(&self, group: &[u8]) -> StreamPreImage {
        let before = self.groups.get(group).and_then(|group| group.schedule.clone());
        StreamPreImage(Part::Policy { group: group.into(), before })
    }

    /// Before a consumer is created or seen.
    pub fn before_consumer(&self, group: &[u8], name: &[u8]) -> StreamPreImage {
        let before = self.groups.get(group).and_then(|group| group.consumer(name));
        let before = before.map(|consumer| (consumer.seen_ms(), consumer.active_ms()));
        StreamPreImage(Part::Consumer { group: group.into(), name: name.into(), before })
    }

    /// Before an entry becomes pending or stops being pending.
    pub fn before_pending(&self, group: &[u8], id: StreamId) -> StreamPreImage {
        let before = self.groups.get(group).and_then(|group| group.pending_state(id));
        StreamPreImage(Part::Pending { group: group.into(), id, before })
    }

    /// Before the delayed message with this id is added or removed.
    pub fn before_delayed(&self, id: StreamId) -> StreamPreImage {
        let state = self.attendance.as_ref().map(|attendance| attendance.delayed.state(id));
        StreamPreImage(Part::Delayed(state.unwrap_or_else(|| DelayedState::none(id))))
    }

    /// Before anything about producers' requests changes.
    pub fn before_requests(&self) -> StreamPreImage {
        StreamPreImage(Part::Requests(self.idempotency.clone()))
    }

    /// Restores the former state of the stream.
    pub fn put_back(&mut self, piece: StreamPreImage) {
        match piece.0 {
            Part::Entry { counters, id } => {
                self.set_all_counters(counters);
                self.revive(id);
            }
            Part::Nodes { counters, nodes } => {
                self.set_all_counters(counters);
                self.nodes.extend(nodes);
            }
            Part::Counters(counters) => self.set_all_counters(counters),
            Part::Group { name, before } => _ = self.put_group(&name, before),
            Part::Position { group, last_delivered, entries_read } => {
                self.group_set_id(&group, last_delivered, entries_read);
            }
            Part::Consumer { group, name, before } => {
                if let Some(group) = self.groups.get_mut(&group) {
                    group.put_back_consumer(&name, before);
                }
            }
            Part::Policy { group: name, before } => {
                let Some(group) = self.groups.get_mut(&name) else { return };
                let is_back = before.is_some();
                let old = std::mem::replace(&mut group.schedule, before);
                self.follow_policy(&name, old.is_some(), is_back);
            }
            Part::Pending { group, id, before } => {
                if let Some(group) = self.groups.get_mut(&group) {
                    group.put_back_pending(id, before);
                }
                self.attend(&group);
            }
            Part::Delayed(state) => {
                self.attendance.get_or_insert_default().delayed.put_back(state);
                self.dismiss_idle();
            }
            Part::Requests(requests) => self.idempotency = requests,
        }
    }

    fn set_all_counters(&mut self, counters: Counters) {
        self.len = counters.len;
        self.last_id = counters.last_id;
        self.max_deleted_id = counters.max_deleted_id;
        self.entries_added = counters.entries_added;
    }

    /// Restores a deleted entry whose node is still there.
    fn revive(&mut self, id: StreamId) {
        let Some((&first, node)) = self.nodes.range_mut(..=id).next_back() else { return };
        if let Some(raw) =
            NodeEntries::new(first, node).find(|raw| raw.id >= id).filter(|raw| raw.id == id && raw.deleted)
        {
            node.mark_live(raw.flags_at);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::value::stream::StreamLimits;

    #[test]
    fn an_append_is_undone_whatever_its_id_and_node() {
        let id = |ms| StreamId { ms, seq: 0 };
        let pair = [(&b"f"[..], &b"v"[..])];
        let limits = StreamLimits { node_max_entries: 2, ..StreamLimits::default() };
        for entries in 0..5 {
            let mut stream = Stream::new();
            for ms in 1..=entries {
                assert!(stream.append(id(ms), pair.into_iter(), limits));
            }
            let (nodes, before) = (stream.node_count(), stream.last_id());
            for last in [id(entries + 1), StreamId::MAX] {
                let tail = stream.before_append();
                assert!(stream.append(last, pair.into_iter(), limits));
                stream.cut_to(tail);
                assert_eq!((stream.len(), stream.node_count(), stream.last_id()), (entries, nodes, before));
            }
            assert!(stream.append(id(entries + 1), pair.into_iter(), limits));
            assert_eq!(stream.range(StreamId::MIN, StreamId::MAX).count() as u64, entries + 1);
        }
    }
}
