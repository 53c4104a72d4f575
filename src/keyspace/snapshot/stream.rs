//! Tracks how far a large stream has been copied. The order is: delayed messages by ID; entries by ID; groups by name,
//! each with its consumers by name and its pending entries by ID; and the requests of producers, by producer.
//!
//! **Released entries.** Pending entries that were released are kept in the order of their release, which their IDs do
//! not show. So after a group's pending entries have been copied, the released ones are released once more, in order.
//! Each goes behind all others, and is held again if the group has a policy and the entry was held.
//!
//! **Delayed messages** become entries behind all others. While the walk goes over entries, it has yet to meet those,
//! so a released message only has to be removed from the copied ones.

use super::slice::{Budget, Followed};
use crate::keyspace::NAMELESS;
use crate::keyspace::effect::{Effect, EffectWriter, Pairs};
use crate::keyspace::limits::{SNAPSHOT_PENDING_WORK_BYTES, SNAPSHOT_PIECE_BYTES};
use crate::keyspace::verb::{PendingPack, delayed_messages, group_policy};
use crate::value::stream::{Group, Stream, StreamId};

/// See the module header.
pub(super) struct StreamPart {
    stage: Stage,
}

/// The current stage. Everything before it has been copied, and nothing behind it.
enum Stage {
    /// Delayed messages; those with IDs up to this one have been copied.
    Delayed { through: Option<StreamId> },
    /// Entries; those up to this one have been copied.
    Entries { through: Option<StreamId> },
    /// Groups; those up to this name have been copied, and then a part of the next one.
    Groups { last: Option<Box<[u8]>>, under_way: Option<GroupPart> },
    /// Requests of producers; those of producers up to this name have been copied.
    Requests { last: Option<Box<[u8]>> },
    /// Nothing.
    Done,
}

/// A group that is being copied.
struct GroupPart {
    name: Box<[u8]>,
    stage: GroupStage,
}

/// The current stage within a group.
enum GroupStage {
    /// Consumers; those up to this name have been copied.
    Consumers { last: Option<Box<[u8]>> },
    /// Pending deliveries; those with IDs up to this one have been copied.
    Pending { through: Option<StreamId> },
    /// The order of released entries, from this turn on.
    Released { turn: u64 },
}

/// Whether the copy has passed a name.
fn has_passed(last: &Option<Box<[u8]>>, name: &[u8]) -> bool {
    last.as_deref().is_some_and(|last| name <= last)
}

/// The first ID behind `through`, or `None` behind the last possible ID.
fn following(through: Option<StreamId>) -> Option<StreamId> {
    through.map_or(Some(StreamId::MIN), StreamId::next)
}

impl StreamPart {
    pub(super) fn begin(steps: &mut EffectWriter) -> StreamPart {
        steps.write(0, &Effect::StreamCreate { key: NAMELESS });
        StreamPart { stage: Stage::Delayed { through: None } }
    }

    /// Continues the copy. Returns whether the whole stream is copied.
    pub(super) fn copy(&mut self, stream: &Stream, budget: &mut Budget, steps: &mut EffectWriter) -> bool {
        while !budget.is_spent() {
            match &mut self.stage {
                Stage::Delayed { through } => {
                    if copy_delayed(stream, through, budget, steps) {
                        self.stage = Stage::Entries { through: None };
                    }
                }
                Stage::Entries { through } => {
                    if copy_entries(stream, through, budget, steps) {
                        write_counters(stream, steps);
                        self.stage = Stage::Groups { last: None, under_way: None };
                    }
                }
                Stage::Groups { last, under_way } => match under_way {
                    Some(part) => {
                        if stream.group(&part.name).is_none_or(|group| part.copy(group, budget, steps)) {
                            *last = under_way.take().map(|part| part.name);
                        }
                    }
                    None => {
                        let next = stream.groups_after(last.as_deref()).next();
                        match next {
                            Some((name, group)) => *under_way = Some(GroupPart::begin(name, group, budget, steps)),
                            None => {
                                write_request_limits(stream, steps);
                                self.stage = Stage::Requests { last: None };
                            }
                        }
                    }
                },
                Stage::Requests { last } => {
                    if copy_requests(stream, last, budget, steps) {
                        self.stage = Stage::Done;
                    }
                }
                Stage::Done => break,
            }
        }
        matches!(self.stage, Stage::Done)
    }

    pub(super) fn follow(&mut self, effect: &Effect<'_>, steps: &mut EffectWriter) -> Followed {
        if let Effect::StreamCounters { last_id, .. } = *effect
            && let Stage::Entries { through } = &mut self.stage
            && Some(last_id) < *through
        {
            // No entries remain behind it, and the walk must meet those appended from now on.
            *through = Some(last_id);
            steps.write(0, effect);
            return Followed::Yes;
        }
        let is_copied = match *effect {
            // A new entry comes behind all earlier ones.
            Effect::StreamAppend { .. } | Effect::StreamCounters { .. } => self.has_entries(),
            Effect::StreamDelete { id, .. } => match self.stage {
                Stage::Delayed { .. } => false,
                Stage::Entries { through } => Some(id) <= through,
                _ => true,
            },
            Effect::StreamTrim { .. } => {
                !matches!(self.stage, Stage::Delayed { .. } | Stage::Entries { through: None })
            }
            Effect::StreamDelay { id, .. } | Effect::StreamCancel { id, .. } => self.has_delayed(id),
            Effect::StreamRelease { key, id, .. } if !self.has_entries() => {
                if self.has_delayed(id) {
                    steps.write(0, &Effect::StreamCancel { key, id });
                }
                return Followed::Yes;
            }
            Effect::StreamRelease { .. } => true,
            Effect::StreamTickets { .. } => !matches!(self.stage, Stage::Delayed { .. }),
            Effect::GroupCreate { group, .. }
            | Effect::GroupAdd { group, .. }
            | Effect::GroupDestroy { group, .. }
            | Effect::GroupPolicy { group, .. }
            | Effect::GroupSetId { group, .. } => self.has_group(group, |_| true),
            Effect::ConsumerCreate { group, consumer, .. }
            | Effect::ConsumerDelete { group, consumer, .. }
            | Effect::ConsumerSeen { group, consumer, .. } => self.has_group(group, |part| part.has_consumer(consumer)),
            Effect::PendingSet { group, id, .. }
            | Effect::PendingAck { group, id, .. }
            | Effect::PendingHold { group, id, .. }
            | Effect::PendingRelease { group, id, .. } => self.has_group(group, |part| part.has_pending(id)),
            Effect::RequestLimits { .. } => matches!(self.stage, Stage::Requests { .. } | Stage::Done),
            Effect::RequestAdd { producer, .. } | Effect::RequestForget { producer, .. } => match &self.stage {
                Stage::Requests { last } => has_passed(last, producer),
                Stage::Done => true,
                _ => false,
            },
            Effect::RequestRepeated { .. } | Effect::RequestCounters { .. } => matches!(self.stage, Stage::Done),
            _ => return Followed::No,
        };
        if is_copied {
            steps.write(0, effect);
        }
        if let (Effect::GroupDestroy { group, .. }, Stage::Groups { last, under_way }) = (effect, &mut self.stage)
            && let Some(gone) = under_way.take_if(|part| *part.name == **group)
        {
            *last = Some(gone.name);
        }
        Followed::Yes
    }

    /// Whether all entries have been copied, and with them everything that precedes the groups.
    fn has_entries(&self) -> bool {
        !matches!(self.stage, Stage::Delayed { .. } | Stage::Entries { .. })
    }

    /// Whether the delayed message with this ID, if there is one, has been copied.
    fn has_delayed(&self, id: StreamId) -> bool {
        match self.stage {
            Stage::Delayed { through } => Some(id) <= through,
            _ => true,
        }
    }

    /// Whether a group has been copied, or its copied part has what `has` asks for.
    fn has_group(&self, name: &[u8], has: impl FnOnce(&GroupPart) -> bool) -> bool {
        match &self.stage {
            Stage::Delayed { .. } | Stage::Entries { .. } => false,
            Stage::Groups { last, under_way } => {
                has_passed(last, name)
                    || under_way.as_ref().is_some_and(|part| name < &*part.name || (*part.name == *name && has(part)))
            }
            _ => true,
        }
    }
}

impl GroupPart {
    fn begin(name: &[u8], group: &Group, budget: &mut Budget, steps: &mut EffectWriter) -> GroupPart {
        let (last_delivered, entries_read) = (group.last_delivered(), group.entries_read());
        budget.pay(steps, |steps| {
            steps.write(0, &Effect::GroupCreate { key: NAMELESS, group: name, last_delivered, entries_read });
            if group.policy().is_some() {
                steps.write(0, &group_policy(NAMELESS, name, group.policy()));
            }
        });
        GroupPart { name: name.into(), stage: GroupStage::Consumers { last: None } }
    }

    fn has_consumer(&self, name: &[u8]) -> bool {
        match &self.stage {
            GroupStage::Consumers { last } => has_passed(last, name),
            _ => true,
        }
    }

    fn has_pending(&self, id: StreamId) -> bool {
        match self.stage {
            GroupStage::Consumers { .. } => false,
            GroupStage::Pending { through } => Some(id) <= through,
            GroupStage::Released { .. } => true,
        }
    }

    /// Continues the copy. Returns whether the whole group is copied.
    fn copy(&mut self, group: &Group, budget: &mut Budget, steps: &mut EffectWriter) -> bool {
        match &mut self.stage {
            GroupStage::Consumers { last } => {
                if copy_consumers(&self.name, group, last, budget, steps) {
                    self.stage = GroupStage::Pending { through: None };
                }
                false
            }
            GroupStage::Pending { through } => {
                if copy_pending(&self.name, group, through, budget, steps) {
                    self.stage = GroupStage::Released { turn: 0 };
                }
                false
            }
            GroupStage::Released { turn } => copy_released(&self.name, group, turn, budget, steps),
        }
    }
}

/// Copies delayed messages. Like all of these functions, it continues where the last slice ended, and returns whether
/// it reached the end.
fn copy_delayed(
    stream: &Stream,
    through: &mut Option<StreamId>,
    budget: &mut Budget,
    steps: &mut EffectWriter,
) -> bool {
    let Some(start) = following(*through) else { return true };
    delayed_messages(stream, start, |effect| {
        budget.pay(steps, |steps| steps.write(0, &effect));
        if let Effect::StreamDelay { id, .. } = effect {
            *through = Some(id);
        }
        !budget.is_spent()
    })
}

fn copy_entries(
    stream: &Stream,
    through: &mut Option<StreamId>,
    budget: &mut Budget,
    steps: &mut EffectWriter,
) -> bool {
    let Some(start) = following(*through) else { return true };
    let mut pairs = Vec::new();
    for entry in stream.range(start, StreamId::MAX) {
        let id = entry.id;
        pairs.clear();
        entry.pairs.for_each(|(field, value)| Pairs::put(&mut pairs, field, value));
        budget.pay(steps, |steps| {
            steps.write(0, &Effect::StreamAppend { key: NAMELESS, id, pairs: &pairs });
        });
        *through = Some(id);
        if budget.is_spent() {
            return false;
        }
    }
    true
}

fn write_counters(stream: &Stream, steps: &mut EffectWriter) {
    let (last_id, entries_added, max_deleted_id) = (stream.last_id(), stream.entries_added(), stream.max_deleted_id());
    steps.write(0, &Effect::StreamCounters { key: NAMELESS, last_id, entries_added, max_deleted_id });
}

fn copy_consumers(
    name: &[u8],
    group: &Group,
    last: &mut Option<Box<[u8]>>,
    budget: &mut Budget,
    steps: &mut EffectWriter,
) -> bool {
    let key = NAMELESS;
    for one in group.consumers_after(last.clone().as_deref()) {
        let (consumer, seen_ms) = (one.name(), one.seen_ms());
        let seen = |at_ms, active| Effect::ConsumerSeen { key, group: name, consumer, at_ms, active };
        budget.pay(steps, |steps| {
            steps.write(0, &Effect::ConsumerCreate { key, group: name, consumer, at_ms: seen_ms });
            if let Some(active_ms) = one.active_ms() {
                steps.write(0, &seen(active_ms, true));
                steps.write(0, &seen(seen_ms, false));
            }
        });
        *last = Some(consumer.into());
        if budget.is_spent() {
            return false;
        }
    }
    true
}

fn copy_pending(
    name: &[u8],
    group: &Group,
    through: &mut Option<StreamId>,
    budget: &mut Budget,
    steps: &mut EffectWriter,
) -> bool {
    let Some(start) = following(*through) else { return true };
    let mut pack = PendingPack::default();
    let (mut all, mut count) = (true, 0);
    for pending in group.pending_range(start, StreamId::MAX) {
        pack.add(&pending);
        *through = Some(pending.id);
        count += 1;
        if !budget.has_more_than(pack.len() + count * SNAPSHOT_PENDING_WORK_BYTES) || pack.len() >= SNAPSHOT_PIECE_BYTES
        {
            all = false;
            break;
        }
    }
    budget.pay_bytes(pack.len() + count * SNAPSHOT_PENDING_WORK_BYTES);
    pack.write(NAMELESS, name, steps);
    all
}

fn copy_released(name: &[u8], group: &Group, turn: &mut u64, budget: &mut Budget, steps: &mut EffectWriter) -> bool {
    for (at, pending) in group.released_from(*turn) {
        let (id, deliveries) = (pending.id, pending.deliveries);
        budget.pay(steps, |steps| {
            steps.write(0, &Effect::PendingRelease { key: NAMELESS, group: name, id, deliveries });
            if let Some(until_ms) = group.held_until_ms(id) {
                steps.write(0, &Effect::PendingHold { key: NAMELESS, group: name, id, until_ms });
            }
        });
        *turn = at + 1;
        if budget.is_spent() {
            return false;
        }
    }
    true
}

fn write_request_limits(stream: &Stream, steps: &mut EffectWriter) {
    if let Some(memory) = stream.idempotency() {
        let (duration_s, max_iids) = (memory.duration_s, memory.max_iids);
        steps.write(0, &Effect::RequestLimits { key: NAMELESS, duration_s, max_iids });
    }
}

fn copy_requests(stream: &Stream, last: &mut Option<Box<[u8]>>, budget: &mut Budget, steps: &mut EffectWriter) -> bool {
    let key = NAMELESS;
    let Some(memory) = stream.idempotency() else { return true };
    for (producer, requests) in memory.producers_after(last.clone().as_deref()) {
        for (iid, id) in requests {
            budget.pay(steps, |steps| steps.write(0, &Effect::RequestAdd { key, producer, iid, id }));
        }
        *last = Some(producer.into());
        if budget.is_spent() {
            return false;
        }
    }
    let (added, duplicates) = (memory.added(), memory.duplicates());
    steps.write(0, &Effect::RequestCounters { key, added, duplicates });
    true
}
