//! Sorted sets: members with scores, ordered by (score, member bytes).
//!
//! Two forms behind one type:
//!
//! - *Small* (`listpack`): sorted columns in one block ([`small`]), which the set's one word points to.
//! - *Large* (`skiplist`, the name that clients expect): members in slots, a hash table to find them by name, and a
//!   counted B+ tree that keeps the order ([`large`], [`sequence`]).
//!
//! ZRANK, ranges by score and ranges by lex all rest on `partition`, each with its own predicate.
//! Every range is expressed as a range of ranks: `by_score` and `by_lex` give `Range<usize>`, `range` iterates one.
//!
//! Nothing is moved in bulk when a set grows: slots live in chunks, and the table splits step by step.

mod large;
mod sequence;
mod small;

use std::ops::Range;

use large::Large;
use small::Small;
pub(crate) use small::ZSetLimits;

use crate::base::split_table::PLACE_END;
use crate::value::block::{Block, InBlock};
use crate::value::one_word::{Held, HeldMut, OneWord};
use crate::value::small_bytes::SmallBytes;

/// One end of a range of scores.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ScoreBound {
    /// The score itself; never NaN.
    pub score: f64,
    /// Whether the score itself is excluded (`(5`).
    pub exclusive: bool,
}

/// One end of a range of members in byte order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LexBound<'a> {
    /// `-`: before every member.
    Min,
    /// `+`: after every member.
    Max,
    /// `[member`
    Inclusive(&'a [u8]),
    /// `(member`
    Exclusive(&'a [u8]),
}

impl LexBound<'_> {
    /// Whether `member` lies before a range that begins here.
    fn excludes_below(self, member: &[u8]) -> bool {
        match self {
            LexBound::Min => false,
            LexBound::Max => true,
            LexBound::Inclusive(bound) => member < bound,
            LexBound::Exclusive(bound) => member <= bound,
        }
    }

    /// Whether `member` still lies within a range that ends here.
    fn admits_below(self, member: &[u8]) -> bool {
        match self {
            LexBound::Min => false,
            LexBound::Max => true,
            LexBound::Inclusive(bound) => member <= bound,
            LexBound::Exclusive(bound) => member < bound,
        }
    }
}

/// A sorted set.
#[derive(Clone)]
pub struct ZSet(OneWord<Large>);

/// The form of a sorted set.
enum Shape<'a> {
    Small(&'a Small),
    Large(&'a Large),
}

/// The form of a sorted set, for changing it.
enum ShapeMut<'a> {
    Small(&'a mut Small),
    Large(&'a mut Large),
}

impl Default for ZSet {
    fn default() -> ZSet {
        ZSet::new()
    }
}

impl ZSet {
    /// An empty set, in the small form.
    pub fn new() -> ZSet {
        ZSet(OneWord::new())
    }

    /// The block, if the set is small.
    pub(crate) fn block(&self) -> Option<&Block> {
        self.0.as_small()
    }

    /// The block of a small set, for moving it.
    pub(crate) fn block_mut(&mut self) -> Option<&mut Block> {
        self.0.as_small_mut()
    }

    /// The address of the large form, which stays the same wherever the set is moved. A small set has none.
    pub fn address(&self) -> Option<usize> {
        self.0.as_large().map(|large| std::ptr::from_ref(large).addr())
    }

    /// The number of members.
    pub fn len(&self) -> usize {
        match self.shape() {
            Shape::Small(small) => small.len(),
            Shape::Large(large) => large.len(),
        }
    }

    /// Whether there are no members. Such a set must not stay in the keyspace.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The name in OBJECT ENCODING: `listpack` or `skiplist`.
    pub fn encoding(&self) -> &'static str {
        match self.shape() {
            Shape::Small(_) => "listpack",
            Shape::Large(_) => "skiplist",
        }
    }

    /// Whether adding `member`, which must be absent, makes the set large.
    pub fn grows_with(&self, member: &[u8], limits: ZSetLimits) -> bool {
        match self.shape() {
            Shape::Small(small) => small.len() >= limits.max_entries || !small.has_room(member, limits),
            Shape::Large(_) => false,
        }
    }

    /// Bytes of the small form; `None` if the set is large.
    pub fn compact_bytes(&self) -> Option<usize> {
        match self.shape() {
            Shape::Small(small) => Some(small.bytes()),
            Shape::Large(_) => None,
        }
    }

    /// Sets the score of `member`, adding it if absent. Returns its previous score. The score must not be NaN.
    pub fn insert(&mut self, member: &[u8], score: f64, limits: ZSetLimits) -> Option<f64> {
        debug_assert!(!score.is_nan(), "NaN cannot be ordered");
        if let ShapeMut::Small(small) = self.shape_mut() {
            let found = small.find(member);
            if found.is_some() || (small.len() < limits.max_entries && small.has_room(member, limits)) {
                return small.insert(found, member, score);
            }
        }
        self.enlarged().insert(member, score)
    }

    /// Removes `member` and returns its score.
    pub fn remove(&mut self, member: &[u8]) -> Option<f64> {
        match self.shape_mut() {
            ShapeMut::Small(small) => {
                let index = small.find(member)?;
                let score = small.score(index);
                small.remove(index);
                Some(score)
            }
            ShapeMut::Large(large) => large.remove(member),
        }
    }

    /// Removes the member at `rank` (0 is the lowest).
    pub fn remove_rank(&mut self, rank: usize) -> Option<(SmallBytes, f64)> {
        match self.shape_mut() {
            ShapeMut::Small(small) => {
                let (member, score) = small.get(rank)?;
                let taken = (SmallBytes::concat(&[member]), score);
                small.remove(rank);
                Some(taken)
            }
            ShapeMut::Large(large) => large.remove_rank(rank),
        }
    }

    /// The score of `member`.
    pub fn score(&self, member: &[u8]) -> Option<f64> {
        match self.shape() {
            Shape::Small(small) => small.find(member).map(|index| small.score(index)),
            Shape::Large(large) => large.score(member),
        }
    }

    /// The rank of `member`, counted from the lowest (0), and its score. Counted from the highest, the rank is `len - 1
    /// - rank`.
    pub fn rank(&self, member: &[u8]) -> Option<(usize, f64)> {
        match self.shape() {
            Shape::Small(small) => small.find(member).map(|index| (index, small.score(index))),
            Shape::Large(large) => {
                let score = large.score(member)?;
                Some((large.position(score, member), score))
            }
        }
    }

    /// The member and score at `rank`. A random member is the one at a random rank.
    pub fn by_rank(&self, rank: usize) -> Option<(&[u8], f64)> {
        self.range(rank..rank.saturating_add(1)).next()
    }

    /// The ranks of the members whose scores lie between the bounds; empty if the bounds cross.
    pub fn by_score(&self, min: ScoreBound, max: ScoreBound) -> Range<usize> {
        let start = self.partition_by_score(|score| score < min.score || (min.exclusive && score == min.score));
        let end = self.partition_by_score(|score| score < max.score || (!max.exclusive && score == max.score));
        start..end.max(start)
    }

    /// The ranks of the members between the bounds in byte order. The result is meaningful only while all scores are
    /// equal, as in Redis; otherwise it is some range.
    pub fn by_lex(&self, min: LexBound<'_>, max: LexBound<'_>) -> Range<usize> {
        let start = self.partition_by_member(|member| min.excludes_below(member));
        let end = self.partition_by_member(|member| max.admits_below(member));
        start..end.max(start)
    }

    /// The members in a range of ranks, clamped to the set, lowest first; `.rev()` starts at the highest.
    pub fn range(&self, ranks: Range<usize>) -> Members<'_> {
        let end = ranks.end.min(self.len());
        let ranks = ranks.start.min(end)..end;
        Members(match self.shape() {
            Shape::Small(small) => Ranked::Small(small.range(ranks)),
            Shape::Large(large) => Ranked::Large(large.range(ranks)),
        })
    }

    /// All members, lowest first.
    pub fn iter(&self) -> Members<'_> {
        self.range(0..self.len())
    }

    /// Emits about `count` members with their scores and returns the next cursor, 0 when all were seen. A small set is
    /// emitted as a whole. A member that exists throughout a scan is emitted exactly once, however its score changes.
    pub fn scan(&self, cursor: u64, count: usize, mut emit: impl FnMut(&[u8], f64)) -> u64 {
        match self.shape() {
            Shape::Small(_) => {
                self.iter().for_each(|(member, score)| emit(member, score));
                0
            }
            Shape::Large(large) => large.scan(cursor, count, emit),
        }
    }

    /// Visits the members of a large set with their scores from `cursor` on, in the order of their hashes, until
    /// `visit` returns false. Returns the cursor of the rest; see
    /// [`SplitTable::walk`](crate::base::split_table::SplitTable::walk). A small set has no cursors and is visited as a
    /// whole.
    pub fn walk(&self, cursor: u64, mut visit: impl FnMut(&[u8], f64) -> bool) -> u64 {
        match self.shape() {
            Shape::Small(_) => {
                self.iter().for_each(|(member, score)| _ = visit(member, score));
                PLACE_END
            }
            Shape::Large(large) => large.walk(cursor, visit),
        }
    }

    /// An estimate of the heap memory held, in bytes. The members of a large set are extrapolated from at most
    /// `samples` of them (0: all).
    pub fn mem_bytes(&self, samples: usize) -> usize {
        match self.shape() {
            Shape::Small(small) => small.heap_bytes(),
            Shape::Large(large) => large.mem_bytes(samples),
        }
    }

    #[inline]
    fn partition_by_score(&self, mut before: impl FnMut(f64) -> bool) -> usize {
        match self.shape() {
            Shape::Small(small) => small.partition_by_score(before),
            Shape::Large(large) => large.partition(|score, _| before(score)),
        }
    }

    fn partition_by_member(&self, mut before: impl FnMut(&[u8]) -> bool) -> usize {
        match self.shape() {
            Shape::Small(small) => small.partition_by_member(before),
            Shape::Large(large) => large.partition(|_, member| before(member)),
        }
    }

    #[inline]
    fn shape(&self) -> Shape<'_> {
        match self.0.held() {
            Held::Small(block) => Shape::Small(Small::of(block)),
            Held::Large(large) => Shape::Large(large),
        }
    }

    #[inline]
    fn shape_mut(&mut self) -> ShapeMut<'_> {
        match self.0.held_mut() {
            HeldMut::Small(block) => ShapeMut::Small(Small::of_mut(block)),
            HeldMut::Large(large) => ShapeMut::Large(large),
        }
    }

    /// Converts the set to the large form and returns it.
    fn enlarged(&mut self) -> &mut Large {
        self.0.make_large(|block| {
            let (small, mut large) = (Small::of(&block), Large::default());
            let members = (0..small.len()).filter_map(|index| small.get(index));
            members.for_each(|(member, score)| _ = large.insert(member, score));
            large
        })
    }
}

/// The members in a range of ranks, with their scores. Can be taken from both ends.
#[derive(Clone)]
pub struct Members<'a>(Ranked<'a>);

#[derive(Clone)]
enum Ranked<'a> {
    Small(small::Ranked<'a>),
    Large(large::Ranked<'a>),
}

impl<'a> Iterator for Members<'a> {
    type Item = (&'a [u8], f64);

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        match &mut self.0 {
            Ranked::Small(walk) => walk.next(),
            Ranked::Large(walk) => walk.next(),
        }
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        match &self.0 {
            Ranked::Small(walk) => walk.size_hint(),
            Ranked::Large(walk) => walk.size_hint(),
        }
    }

    fn nth(&mut self, n: usize) -> Option<Self::Item> {
        match &mut self.0 {
            Ranked::Small(walk) => walk.nth(n),
            Ranked::Large(walk) => walk.nth(n),
        }
    }
}

impl DoubleEndedIterator for Members<'_> {
    #[inline]
    fn next_back(&mut self) -> Option<Self::Item> {
        match &mut self.0 {
            Ranked::Small(walk) => walk.next_back(),
            Ranked::Large(walk) => walk.next_back(),
        }
    }

    fn nth_back(&mut self, n: usize) -> Option<Self::Item> {
        match &mut self.0 {
            Ranked::Small(walk) => walk.nth_back(n),
            Ranked::Large(walk) => walk.nth_back(n),
        }
    }
}

impl ExactSizeIterator for Members<'_> {}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::{BTreeMap, BTreeSet};

    fn pop_last(set: &mut ZSet) -> Option<(SmallBytes, f64)> {
        set.remove_rank(set.len().checked_sub(1)?)
    }

    const SMALL: ZSetLimits = ZSetLimits { max_entries: 8, max_value: 16 };

    #[derive(Clone, Debug)]
    enum Step {
        Insert(Vec<u8>, f64),
        Remove(Vec<u8>),
        PopFirst,
        PopLast,
        RemoveRank(usize),
    }

    fn member() -> impl Strategy<Value = Vec<u8>> {
        proptest::collection::vec(prop_oneof![Just(b'a'), Just(b'b'), Just(0u8), Just(255u8)], 0..5)
    }

    fn score() -> impl Strategy<Value = f64> {
        prop_oneof![
            Just(f64::INFINITY),
            Just(f64::NEG_INFINITY),
            Just(-0.0),
            (-3i32..3).prop_map(f64::from),
            -2.0..2.0f64
        ]
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            8 => (member(), score()).prop_map(|(m, s)| Step::Insert(m, s)),
            2 => member().prop_map(Step::Remove),
            1 => Just(Step::PopFirst),
            1 => Just(Step::PopLast),
            1 => (0usize..20).prop_map(Step::RemoveRank),
        ]
    }

    fn sorted(model: &mut [(Vec<u8>, f64)]) {
        model.sort_by(|a, b| a.1.partial_cmp(&b.1).expect("no NaN").then_with(|| a.0.cmp(&b.0)));
    }

    fn owned(taken: Option<(SmallBytes, f64)>) -> Option<(Vec<u8>, f64)> {
        taken.map(|(m, s)| (m.as_slice().to_vec(), s))
    }

    proptest! {
        #[test]
        fn follows_a_sorted_vector(
            steps in proptest::collection::vec(step(), 1..200),
            limits in prop_oneof![
                Just(SMALL),
                Just(ZSetLimits::default()),
                Just(ZSetLimits { max_entries: 0, max_value: 0 }),
            ],
            bounds in proptest::collection::vec((score(), any::<bool>(), score(), any::<bool>()), 4),
        ) {
            let mut set = ZSet::new();
            let mut model: Vec<(Vec<u8>, f64)> = Vec::new();
            for step in steps {
                match step {
                    Step::Insert(m, s) => {
                        let old = set.insert(&m, s, limits);
                        let known = model.iter_mut().find(|(k, _)| *k == m);
                        prop_assert_eq!(old, known.as_ref().map(|e| e.1));
                        match known {
                            Some(entry) => entry.1 = s,
                            None => model.push((m, s)),
                        }
                    }
                    Step::Remove(m) => {
                        let at = model.iter().position(|(k, _)| *k == m);
                        prop_assert_eq!(set.remove(&m), at.map(|at| model.remove(at).1));
                    }
                    Step::PopFirst => {
                        let expected = (!model.is_empty()).then(|| model.remove(0));
                        prop_assert_eq!(owned(set.remove_rank(0)), expected);
                    }
                    Step::PopLast => prop_assert_eq!(owned(pop_last(&mut set)), model.pop()),
                    Step::RemoveRank(rank) => {
                        let expected = (rank < model.len()).then(|| model.remove(rank));
                        prop_assert_eq!(owned(set.remove_rank(rank)), expected);
                    }
                }
                sorted(&mut model);
                prop_assert_eq!(set.len(), model.len());
            }
            let all: Vec<_> = set.iter().map(|(m, s)| (m.to_vec(), s)).collect();
            prop_assert_eq!(&all, &model);
            let mut back: Vec<_> = set.iter().rev().map(|(m, s)| (m.to_vec(), s)).collect();
            back.reverse();
            prop_assert_eq!(&back, &model);
            for (rank, (m, s)) in model.iter().enumerate() {
                prop_assert_eq!(set.rank(m), Some((rank, *s)));
                prop_assert_eq!(set.score(m), Some(*s));
                prop_assert_eq!(set.by_rank(rank), Some((m.as_slice(), *s)));
            }
            for (low, low_out, high, high_out) in bounds {
                let inside = |s: f64| {
                    (if low_out { s > low } else { s >= low }) && (if high_out { s < high } else { s <= high })
                };
                let ranks = set.by_score(
                    ScoreBound { score: low, exclusive: low_out },
                    ScoreBound { score: high, exclusive: high_out },
                );
                let expected = model.iter().filter(|e| inside(e.1)).count();
                prop_assert_eq!(ranks.len(), expected);
                prop_assert!(set.range(ranks).all(|(_, s)| inside(s)));
            }
            let mut seen = BTreeSet::new();
            let mut cursor = 0;
            loop {
                cursor = set.scan(cursor, 3, |m, _| { seen.insert(m.to_vec()); });
                if cursor == 0 { break; }
            }
            prop_assert_eq!(seen, model.iter().map(|e| e.0.clone()).collect());
        }

        #[test]
        fn lex_ranges(members in proptest::collection::btree_set(member(), 0..40), a in member(), b in member(),
                      large in any::<bool>(), how in 0..6) {
            let mut set = ZSet::new();
            let limits = if large { ZSetLimits { max_entries: 0, max_value: 0 } } else { ZSetLimits::default() };
            members.iter().for_each(|m| { set.insert(m, 1.0, limits); });
            let (min, max) = match how {
                0 => (LexBound::Min, LexBound::Max),
                1 => (LexBound::Inclusive(&a), LexBound::Inclusive(&b)),
                2 => (LexBound::Exclusive(&a), LexBound::Exclusive(&b)),
                3 => (LexBound::Max, LexBound::Min),
                4 => (LexBound::Min, LexBound::Exclusive(&b)),
                _ => (LexBound::Exclusive(&a), LexBound::Max),
            };
            let expected: Vec<_> = members.iter().filter(|m| match how {
                0 => true,
                1 => **m >= a && **m <= b,
                2 => **m > a && **m < b,
                3 => false,
                4 => **m < b,
                _ => **m > a,
            }).cloned().collect();
            let found: Vec<_> = set.range(set.by_lex(min, max)).map(|(m, _)| m.to_vec()).collect();
            prop_assert_eq!(found, expected);
        }
    }

    /// Changes to a set while a scan of it is underway.
    #[derive(Clone, Debug)]
    enum Change {
        /// Gives scores to a number of members: the first member, their number, the first score.
        Insert(u32, u32, f64),
        Remove(u32, u32),
        PopLast(u32),
        Scan(usize),
    }

    fn changes() -> impl Strategy<Value = Vec<Change>> {
        let count = || prop_oneof![1..12u32, 1..1_200u32];
        let change = prop_oneof![
            3 => (0..3_000u32, count(), -9.0..9.0f64).prop_map(|(from, n, score)| Change::Insert(from, n, score)),
            2 => (0..3_000u32, count()).prop_map(|(from, n)| Change::Remove(from, n)),
            1 => count().prop_map(Change::PopLast),
            4 => (1..400usize).prop_map(Change::Scan),
        ];
        proptest::collection::vec(change, 1..32)
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

        /// Members come and go, and move in the order, while a scan walks. The scan meets every member that exists from
        /// its first call to its last exactly once, and only existing members, with their current scores.
        #[test]
        fn a_scan_meets_members_that_stay_exactly_once(
            changes in changes(),
            max_entries in prop_oneof![Just(0usize), Just(400)],
        ) {
            let limits = ZSetLimits { max_entries, max_value: 64 };
            let name = |i: u32| format!("member:{i}").into_bytes();
            let mut set = ZSet::new();
            let mut model: BTreeMap<Vec<u8>, f64> = BTreeMap::new();
            let mut cursor = 0;
            // While a scan is underway: the members that have existed throughout, and how often the scan has met each.
            let mut stayed: BTreeSet<Vec<u8>> = BTreeSet::new();
            let mut met: BTreeMap<Vec<u8>, u32> = BTreeMap::new();
            for change in changes.into_iter().chain([Change::Scan(usize::MAX)]) {
                match change {
                    Change::Insert(from, n, score) => (from..from + n).for_each(|i| {
                        let score = score + f64::from(i - from);
                        assert_eq!(set.insert(&name(i), score, limits), model.insert(name(i), score));
                    }),
                    Change::Remove(from, n) => (from..from + n).for_each(|i| {
                        assert_eq!(set.remove(&name(i)), model.remove(&name(i)));
                        stayed.remove(&name(i));
                    }),
                    Change::PopLast(n) => (0..n).map_while(|_| pop_last(&mut set)).for_each(|(member, score)| {
                        assert_eq!(model.remove(member.as_slice()), Some(score));
                        stayed.remove(member.as_slice());
                    }),
                    Change::Scan(count) => {
                        if cursor == 0 {
                            stayed = model.keys().cloned().collect();
                            met.clear();
                        }
                        cursor = set.scan(cursor, count, |member, score| {
                            assert_eq!(model.get(member), Some(&score));
                            *met.entry(member.to_vec()).or_default() += 1;
                        });
                        if cursor == 0 {
                            prop_assert!(stayed.iter().all(|member| met.get(member) == Some(&1)));
                        }
                    }
                }
                prop_assert_eq!(set.len(), model.len());
            }
            prop_assert_eq!(cursor, 0);
        }
    }

    #[test]
    fn grows_by_count_and_by_length() {
        let mut set = ZSet::new();
        for i in 0..128 {
            set.insert(format!("m{i}").as_bytes(), f64::from(i), ZSetLimits::default());
        }
        assert_eq!(set.encoding(), "listpack");
        set.insert(b"m5", 500.0, ZSetLimits::default());
        assert_eq!(set.encoding(), "listpack");
        set.insert(b"one more", 1.0, ZSetLimits::default());
        assert_eq!(set.encoding(), "skiplist");
        assert_eq!(set.rank(b"m5"), Some((128, 500.0)));

        let mut set = ZSet::new();
        set.insert(&[b'x'; 64], 1.0, ZSetLimits::default());
        assert_eq!(set.encoding(), "listpack");
        set.insert(&[b'x'; 65], 1.0, ZSetLimits::default());
        assert_eq!(set.encoding(), "skiplist");
    }

    #[test]
    fn a_range_is_taken_from_both_ends_and_skipped() {
        let mut set = ZSet::new();
        for i in 0..1000 {
            set.insert(format!("m{i:04}").as_bytes(), f64::from(i), ZSetLimits::default());
        }
        let mut range = set.range(100..900);
        assert_eq!(range.nth(200).map(|e| e.1), Some(300.0));
        assert_eq!(range.nth_back(200).map(|e| e.1), Some(699.0));
        assert_eq!(range.next().map(|e| e.1), Some(301.0));
        assert_eq!(range.next_back().map(|e| e.1), Some(698.0));
        assert_eq!(range.len(), 698 - 302);
        assert_eq!(range.nth(10_000), None);
        assert_eq!(set.range(990..usize::MAX).count(), 10);
        assert_eq!(set.range(5000..6000).count(), 0);
        assert!(set.mem_bytes(5) > 1000 * 24);
    }
}
