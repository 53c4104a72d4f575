//! Tracks how far a large list has been copied: a number of elements from the front, in whole nodes.
//!
//! The part ends between two nodes, so its end is laid out like that of the list, whatever is added or removed at
//! either end of the list or inside the part. However, a list lays out its only node differently. So as long as the
//! list has a rest that is not copied, the part has a placeholder node for it at its back.
//!
//! LSET and LINSERT may move an element across the end of the part into the neighbouring node, which the reader cannot
//! tell. The effect therefore says whether the element is the first of its node. If so, the element belongs to what
//! follows the part.

use super::slice::{Budget, Followed};
use crate::keyspace::NAMELESS;
use crate::keyspace::effect::{Ascending, Effect, EffectWriter, Field};
use crate::value::list::List;

/// See the module header.
pub(super) struct ListPart {
    /// The length of the list.
    len: usize,
    /// The number of copied elements from the front.
    done: usize,
    rest: Rest,
}

/// The state behind the elements of the part.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Rest {
    /// Nothing, as nothing has been copied yet.
    Unmarked,
    /// A placeholder node for the rest of the list.
    Marked,
    /// Nothing, as the part is the whole list.
    Nothing,
}

impl ListPart {
    pub(super) fn begin(list: &List) -> ListPart {
        ListPart { len: list.len(), done: 0, rest: Rest::Unmarked }
    }

    /// Continues the copy. Returns whether the whole list is copied.
    pub(super) fn copy(&mut self, list: &List, budget: &mut Budget, steps: &mut EffectWriter) -> bool {
        if self.rest == Rest::Nothing {
            return true;
        }
        let key = NAMELESS;
        if self.rest == Rest::Marked {
            steps.write(0, &Effect::ListPop { key, front: false, count: 1, emptied: false });
        }
        let mut elements = Vec::new();
        for node in list.nodes_from(self.done) {
            elements.clear();
            self.done += node.len();
            node.for_each(|element| element.put(&mut elements));
            budget.pay(steps, |steps| steps.write(0, &Effect::ListNode { key, elements: &elements }));
            if budget.is_spent() {
                break;
            }
        }
        if self.done == self.len {
            self.rest = Rest::Nothing;
            return true;
        }
        mark_rest(steps);
        self.rest = Rest::Marked;
        false
    }

    pub(super) fn follow(&mut self, effect: &Effect<'_>, steps: &mut EffectWriter) -> Followed {
        match self.rest {
            Rest::Nothing => self.follow_whole(effect, steps),
            _ if self.done == 0 => self.follow_nothing(effect),
            _ => self.follow_part(effect, steps),
        }
    }

    /// Follows an effect when the part is the whole list.
    fn follow_whole(&mut self, effect: &Effect<'_>, steps: &mut EffectWriter) -> Followed {
        match *effect {
            Effect::ListPush { .. }
            | Effect::ListPop { emptied: false, .. }
            | Effect::ListSet { .. }
            | Effect::ListInsert { .. }
            | Effect::ListRemove { emptied: false, .. }
            | Effect::ListRemoveAt { .. }
            | Effect::ListRotate { .. }
            | Effect::Relayout { .. } => {
                steps.write(0, effect);
                Followed::Yes
            }
            _ => Followed::No,
        }
    }

    /// Follows an effect when the part is empty.
    fn follow_nothing(&mut self, effect: &Effect<'_>) -> Followed {
        match *effect {
            Effect::ListPush { .. } | Effect::ListInsert { .. } => self.len += 1,
            Effect::ListPop { count, emptied: false, .. } | Effect::ListRemove { count, emptied: false, .. } => {
                self.len -= count as usize;
            }
            Effect::ListRemoveAt { indexes, .. } => self.len -= Ascending::new(indexes).count(),
            Effect::ListSet { .. } | Effect::ListRotate { .. } | Effect::Relayout { .. } => {}
            _ => return Followed::No,
        }
        Followed::Yes
    }

    /// Follows an effect when the list has elements both inside and outside the part.
    fn follow_part(&mut self, effect: &Effect<'_>, steps: &mut EffectWriter) -> Followed {
        let key = NAMELESS;
        match *effect {
            Effect::ListPush { front: true, .. } => {
                steps.write(0, effect);
                self.done += 1;
                self.len += 1;
            }
            Effect::ListPush { front: false, .. } => self.len += 1,
            Effect::ListPop { front: true, count, emptied: false, .. } => {
                self.pop_front(count as usize, steps);
                self.len -= count as usize;
            }
            Effect::ListPop { front: false, count, emptied: false, .. } => {
                let rest = self.len - self.done;
                self.len -= count as usize;
                if let Some(of_part) = (count as usize).checked_sub(rest) {
                    // Includes the placeholder for the rest.
                    steps.write(0, &Effect::ListPop { key, front: false, count: of_part as u64 + 1, emptied: false });
                    self.done = self.len;
                    self.rest = Rest::Nothing;
                }
            }
            Effect::ListSet { index, value, first, .. } => {
                let index = index as usize;
                if index + 1 < self.done || index + 1 == self.done && !first {
                    steps.write(0, effect);
                } else if index + 1 == self.done {
                    remove_at(&[index], steps);
                    self.done -= 1;
                } else if index == self.done && !first {
                    self.push_to_part(value, steps);
                }
            }
            Effect::ListInsert { index, value, first, .. } => {
                let index = index as usize;
                if index < self.done {
                    steps.write(0, effect);
                    self.done += 1;
                } else if index == self.done && !first {
                    self.push_to_part(value, steps);
                }
                self.len += 1;
            }
            Effect::ListRemoveAt { indexes, .. } => {
                let indexes: Vec<usize> = Ascending::new(indexes).map(|index| index as usize).collect();
                let of_part = &indexes[..indexes.partition_point(|&index| index < self.done)];
                remove_at(of_part, steps);
                self.done -= of_part.len();
                self.len -= indexes.len();
                if self.done == self.len {
                    // An element pushed now may go into the part's last node.
                    steps.write(0, &Effect::ListPop { key, front: false, count: 1, emptied: false });
                    self.rest = Rest::Nothing;
                }
            }
            Effect::ListRotate { from_front, to_front, .. } if from_front == to_front => {}
            Effect::ListRotate { from_front: true, .. } => self.pop_front(1, steps),
            _ => return Followed::No,
        }
        Followed::Yes
    }

    /// Adds an element to the last node of the part, which has room for it.
    fn push_to_part(&mut self, value: &[u8], steps: &mut EffectWriter) {
        let key = NAMELESS;
        steps.write(0, &Effect::ListPop { key, front: false, count: 1, emptied: false });
        steps.write(0, &Effect::ListPush { key, front: false, value });
        mark_rest(steps);
        self.done += 1;
    }

    /// Removes those of the first `count` elements of the list that are in the part.
    fn pop_front(&mut self, count: usize, steps: &mut EffectWriter) {
        let of_part = count.min(self.done);
        if of_part > 0 {
            steps.write(0, &Effect::ListPop { key: NAMELESS, front: true, count: of_part as u64, emptied: false });
        }
        self.done -= of_part;
    }
}

/// Adds the placeholder node for the rest of the list.
fn mark_rest(steps: &mut EffectWriter) {
    let mut elements = Vec::new();
    (&b""[..]).put(&mut elements);
    steps.write(0, &Effect::ListNode { key: NAMELESS, elements: &elements });
}

/// Removes the elements at these ascending indexes from the part.
fn remove_at(indexes: &[usize], steps: &mut EffectWriter) {
    if !indexes.is_empty() {
        let indexes = Ascending::encode(indexes.iter().map(|&index| index as u64));
        steps.write(0, &Effect::ListRemoveAt { key: NAMELESS, indexes: &indexes });
    }
}
