//! The order of a large sorted set: a counted B+ tree of (score, slot number).
//!
//! Why not a skiplist: leaves are runs of up to 128 sixteen-byte keys, so a descent touches three or four places in
//! memory instead of twenty, a range is read sequentially, and the order costs about 23 bytes per member instead of the
//! 40 or more of nodes with towers. Unlike a single array, no insertion moves more than one leaf. The tree is also
//! simple to verify, since it compares nothing itself. It is a sequence with `insert(rank)`, `remove(rank)`,
//! `leaf(rank)` and `partition(predicate)`, checked against a plain vector.

/// The tree's record of a member. The score is a copy, so that most comparisons stay inside the leaf.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Key {
    pub(super) score: f64,
    pub(super) slot: u32,
}

/// The most keys of a leaf: 2 KB.
const LEAF_MAX: usize = 128;
/// The most children of an inner node.
const INNER_MAX: usize = 32;

/// A sequence of keys with access by position in O(log n): a B+ tree with counts. It imposes no order of its own.
///
/// Invariants, asserted by the tests: all leaves are equally deep; an inner node has at least two children; no leaf
/// except the root is empty; `count` and `first` of a child describe its subtree exactly.
#[derive(Clone, Debug)]
pub(super) struct Sequence {
    root: Node,
    len: usize,
}

#[derive(Clone, Debug)]
enum Node {
    Leaf(Vec<Key>),
    Inner(Vec<Child>),
}

#[derive(Clone, Debug)]
struct Child {
    first: Key,
    count: usize,
    node: Node,
}

impl Default for Sequence {
    fn default() -> Sequence {
        Sequence { root: Node::Leaf(Vec::new()), len: 0 }
    }
}

impl Sequence {
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// The number of keys for which `before` is true; they must precede all others.
    pub(super) fn partition(&self, mut before: impl FnMut(&Key) -> bool) -> usize {
        let mut node = &self.root;
        let mut passed = 0;
        loop {
            match node {
                Node::Leaf(keys) => return passed + keys.partition_point(before),
                Node::Inner(children) => {
                    let reached = children.partition_point(|child| before(&child.first));
                    // If no child begins before the boundary, the boundary is the start of this subtree.
                    let Some(last) = reached.checked_sub(1) else { return passed };
                    passed += children[..last].iter().map(|child| child.count).sum::<usize>();
                    node = &children[last].node;
                }
            }
        }
    }

    /// The leaf that holds position `rank`, and the index in it.
    pub(super) fn leaf(&self, mut rank: usize) -> Option<(&[Key], usize)> {
        let mut node = &self.root;
        loop {
            match node {
                Node::Leaf(keys) => return (rank < keys.len()).then_some((keys, rank)),
                Node::Inner(children) => {
                    let child = children.iter().find(|child| {
                        let inside = rank < child.count;
                        if !inside {
                            rank -= child.count;
                        }
                        inside
                    })?;
                    node = &child.node;
                }
            }
        }
    }

    /// Inserts `key` at `rank`, at most `len`.
    pub(super) fn insert(&mut self, rank: usize, key: Key) {
        debug_assert!(rank <= self.len);
        self.len += 1;
        if let Some(right) = self.root.insert(rank, key) {
            let left = std::mem::replace(&mut self.root, Node::Inner(Vec::with_capacity(INNER_MAX)));
            if let Node::Inner(children) = &mut self.root {
                children.push(Child::of(left));
                children.push(right);
            }
        }
    }

    /// Removes the key at `rank`, which must be below `len`.
    pub(super) fn remove(&mut self, rank: usize) -> Key {
        debug_assert!(rank < self.len);
        self.len -= 1;
        let key = self.root.remove(rank);
        if let Node::Inner(children) = &mut self.root
            && children.len() == 1
        {
            self.root = children.pop().expect("its length is one").node;
        }
        key
    }

    pub(super) fn mem_bytes(&self) -> usize {
        self.root.mem_bytes()
    }
}

impl Child {
    fn of(node: Node) -> Child {
        match &node {
            Node::Leaf(keys) => Child { first: keys[0], count: keys.len(), node },
            Node::Inner(children) => {
                let count = children.iter().map(|child| child.count).sum();
                Child { first: children[0].first, count, node }
            }
        }
    }
}

impl Node {
    /// Inserts below, and returns the right half if the node had to be split.
    fn insert(&mut self, mut rank: usize, key: Key) -> Option<Child> {
        match self {
            Node::Leaf(keys) => insert_or_split(keys, rank, key, LEAF_MAX).map(|right| Child::of(Node::Leaf(right))),
            Node::Inner(children) => {
                let at = child_for_insert(children, &mut rank);
                let child = &mut children[at];
                if rank == 0 {
                    child.first = key;
                }
                child.count += 1;
                let right = child.node.insert(rank, key)?;
                child.count -= right.count;
                insert_or_split(children, at + 1, right, INNER_MAX).map(|right| Child::of(Node::Inner(right)))
            }
        }
    }

    fn remove(&mut self, mut rank: usize) -> Key {
        match self {
            Node::Leaf(keys) => keys.remove(rank),
            Node::Inner(children) => {
                let at = child_with(children, &mut rank);
                let child = &mut children[at];
                child.count -= 1;
                let key = child.node.remove(rank);
                if child.node.width() * 4 < child.node.max_width() {
                    mend(children, at);
                } else if rank == 0 {
                    child.first = child.node.first();
                }
                key
            }
        }
    }

    fn first(&self) -> Key {
        match self {
            Node::Leaf(keys) => keys[0],
            Node::Inner(children) => children[0].first,
        }
    }

    fn width(&self) -> usize {
        match self {
            Node::Leaf(keys) => keys.len(),
            Node::Inner(children) => children.len(),
        }
    }

    fn max_width(&self) -> usize {
        match self {
            Node::Leaf(_) => LEAF_MAX,
            Node::Inner(_) => INNER_MAX,
        }
    }

    fn mem_bytes(&self) -> usize {
        match self {
            Node::Leaf(keys) => keys.capacity() * size_of::<Key>(),
            Node::Inner(children) => {
                let below: usize = children.iter().map(|child| child.node.mem_bytes()).sum();
                children.capacity() * size_of::<Child>() + below
            }
        }
    }
}

/// The child to insert into at `rank`, which is made relative to that child. A boundary belongs to the child on its
/// left.
fn child_for_insert(children: &[Child], rank: &mut usize) -> usize {
    let last = children.len() - 1;
    for (at, child) in children[..last].iter().enumerate() {
        if *rank <= child.count {
            return at;
        }
        *rank -= child.count;
    }
    last
}

/// The child that holds `rank`, which is made relative to that child.
fn child_with(children: &[Child], rank: &mut usize) -> usize {
    let last = children.len() - 1;
    for (at, child) in children[..last].iter().enumerate() {
        if *rank < child.count {
            return at;
        }
        *rank -= child.count;
    }
    last
}

/// Inserts, and returns the split-off right part if the node was full. A full node that is appended to stays full: sets
/// that grow at their end (scores are times, or counters) fill their leaves instead of leaving each half empty.
fn insert_or_split<T>(items: &mut Vec<T>, at: usize, item: T, max: usize) -> Option<Vec<T>> {
    if items.len() < max {
        items.insert(at, item);
        return None;
    }
    if at == max {
        // Two go right, not one: an inner node must have a neighbour for each of its children.
        let mut right = items.split_off(max - 1);
        right.push(item);
        return Some(right);
    }
    let half = max / 2;
    let mut right = items.split_off(half);
    if at <= half {
        items.insert(at, item);
    } else {
        right.insert(at - half, item);
    }
    Some(right)
}

/// Joins the thin child `at` with a neighbour, or shares their contents evenly if both do not fit into one node. There
/// always is a neighbour, because a node with one child left is itself mended at once, or replaced if it is the root.
fn mend(children: &mut Vec<Child>, at: usize) {
    let left_at = at.min(children.len() - 2);
    let right = children.remove(left_at + 1).node;
    let mut left = std::mem::replace(&mut children[left_at].node, Node::Leaf(Vec::new()));
    let spill = match (&mut left, right) {
        (Node::Leaf(left), Node::Leaf(right)) => join(left, right, LEAF_MAX).map(Node::Leaf),
        (Node::Inner(left), Node::Inner(right)) => join(left, right, INNER_MAX).map(Node::Inner),
        _ => unreachable!("neighbours are equally deep"),
    };
    children[left_at] = Child::of(left);
    if let Some(right) = spill {
        children.insert(left_at + 1, Child::of(right));
    }
}

fn join<T>(left: &mut Vec<T>, mut right: Vec<T>, max: usize) -> Option<Vec<T>> {
    left.append(&mut right);
    (left.len() > max).then(|| left.split_off(left.len() / 2))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn check(node: &Node, is_root: bool) -> (usize, usize) {
        match node {
            Node::Leaf(keys) => {
                assert!(keys.len() <= LEAF_MAX && (is_root || !keys.is_empty()));
                (keys.len(), 0)
            }
            Node::Inner(children) => {
                assert!(children.len() <= INNER_MAX && children.len() >= 2);
                let mut depths = BTreeSet::new();
                let mut total = 0;
                for child in children {
                    let (count, depth) = check(&child.node, false);
                    assert_eq!(child.count, count);
                    assert_eq!(child.first, child.node.first());
                    depths.insert(depth);
                    total += count;
                }
                assert_eq!(depths.len(), 1, "all leaves are equally deep");
                (total, depths.first().expect("there is a child") + 1)
            }
        }
    }

    fn sequence_of(sequence: &Sequence) -> Vec<u32> {
        let mut keys = Vec::new();
        while let Some((leaf, at)) = sequence.leaf(keys.len()) {
            keys.extend(leaf[at..].iter().map(|key| key.slot));
        }
        keys
    }

    /// Grows to thousands and shrinks to nothing at pseudo-random places: three levels, splits, joins and shares.
    #[test]
    fn sequence_follows_a_vector() {
        let mut state = 42u64;
        let mut next = move |below: usize| {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 33) as usize % below
        };
        let mut sequence = Sequence::default();
        let mut model: Vec<u32> = Vec::new();
        for (phase, odds) in [(0, 90), (1, 10), (2, 70), (3, 0)] {
            for step in 0..if phase == 3 { 30_000 } else { 12_000u32 } {
                if next(100) < odds {
                    let at = if phase == 2 { model.len() } else { next(model.len() + 1) };
                    model.insert(at, step);
                    sequence.insert(at, Key { score: f64::from(step), slot: step });
                } else if !model.is_empty() {
                    let at = if step % 3 == 0 { model.len() - 1 } else { next(model.len()) };
                    assert_eq!(sequence.remove(at).slot, model.remove(at));
                }
                if step % 1000 == 0 {
                    assert_eq!(check(&sequence.root, true).0, model.len());
                    assert_eq!(sequence_of(&sequence), model);
                }
            }
        }
        assert_eq!((sequence.len(), model.len()), (0, 0));
    }
}
