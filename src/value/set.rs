//! The value of a set key: different members, in no order.
//!
//! A set has one of three forms. It only ever moves to the right, when a member does not fit:
//!
//! ```text
//!           text comes               too many, or one too long
//! intset  ------------->  listpack  ---------------------------->  hashtable
//!    |                                                                 ^
//!    +------------------- too many integers --------------------------+
//! ```
//!
//! Names, limits and moves are those of Redis 7.2 and later; before, there was no listpack (set its limit of entries to 0 to
//! have it so). An empty set takes the form that its first member allows.
//!
//! Members are read as [`Item`]: an integer where the form stores one, else bytes. Operations on several sets go over the
//! smallest with [`Set::iter`] and ask the others with [`Set::contains_item`], which spares formatting and parsing between
//! sets of integers.
//!
//! Members that expire have their deadlines in [`Deadlines`], beside a packed set or a table; what is said there of the dead
//! holds for all that is asked here.

use crate::base::dense_table::DenseTable;
use crate::base::hasher::hash_bytes;
use crate::base::sample::select;
use crate::base::split_table::PLACE_END;
use crate::value::Layout;
use crate::value::deadlines::{DRAWS, Deadlines};
use crate::value::int_set::IntSet;
use crate::value::packed::{Item, Packed, canonical_int};
use crate::value::small_bytes::SmallBytes;

/// What a set may hold before it takes another form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SetLimits {
    /// Members, if all are integers (`set-max-intset-entries`).
    pub max_intset_entries: usize,
    /// Members, if not (`set-max-listpack-entries`).
    pub max_listpack_entries: usize,
    /// Bytes of the longest member (`set-max-listpack-value`).
    pub max_listpack_value: usize,
}

impl Default for SetLimits {
    fn default() -> Self {
        SetLimits { max_intset_entries: 512, max_listpack_entries: 128, max_listpack_value: 64 }
    }
}

/// Different members, each any bytes.
#[derive(Clone, Debug)]
pub struct Set {
    form: Form,
    /// Since a member first got a deadline. Never beside integers.
    deadlines: Option<Box<Deadlines>>,
}

/// Digits of the longest integer: what a set of integers may need for a member when it is packed.
const INT_DIGITS_MAX: usize = 20;

#[derive(Clone, Debug)]
enum Form {
    Ints(IntSet),
    Packed(Packed),
    Table(Box<DenseTable<SmallBytes>>),
}

impl Default for Set {
    fn default() -> Self {
        Self::new()
    }
}

impl Set {
    /// A set without members, and without allocation.
    pub const fn new() -> Set {
        Set { form: Form::Ints(IntSet::new()), deadlines: None }
    }

    /// Number of members.
    pub fn len(&self) -> usize {
        self.stored_len() - self.deadlines().map_or(0, Deadlines::dead)
    }

    /// Number of members, the dead included.
    pub fn stored_len(&self) -> usize {
        match &self.form {
            Form::Ints(ints) => ints.len(),
            Form::Packed(packed) => packed.len(),
            Form::Table(table) => table.len(),
        }
    }

    /// Whether most are dead, so that drawing at random one after another may walk over all of them each time.
    pub fn is_mostly_dead(&self) -> bool {
        self.stored_len() / 2 > self.len()
    }

    /// Whether there is no member.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether `member` is in the set.
    #[inline]
    pub fn contains(&self, member: &[u8]) -> bool {
        !self.dead().is_some_and(|dead| dead.is_dead(member)) && self.is_stored(member)
    }

    /// Whether `member` is there, dead or not.
    #[inline]
    pub fn is_stored(&self, member: &[u8]) -> bool {
        match &self.form {
            Form::Ints(ints) => canonical_int(member).is_some_and(|value| ints.contains(value)),
            Form::Packed(packed) => packed.find(member, packed.first(), 1).is_some(),
            Form::Table(table) => table.find(hash_bytes(member), is(member)).is_some(),
        }
    }

    /// As [`contains`](Self::contains), for a member of another set.
    #[inline]
    pub fn contains_item(&self, member: Item<'_>) -> bool {
        match (&self.form, member) {
            (Form::Ints(ints), Item::Int(value)) => ints.contains(value),
            _ => self.contains(member.as_bytes(&mut itoa::Buffer::new())),
        }
    }

    /// Adds `member`, which must not be dead. True if it is new.
    pub fn insert(&mut self, member: &[u8], limits: &SetLimits) -> bool {
        if self.stored_len() == 0 && self.deadlines.is_none() {
            self.form = first_form(member, limits);
        }
        match &mut self.form {
            Form::Ints(ints) => {
                let Some(value) = canonical_int(member) else {
                    self.insert_beside_ints(member, limits);
                    return true;
                };
                let new = ints.insert(value);
                if ints.len() > limits.max_intset_entries {
                    self.form = Form::Table(self.to_table());
                }
                new
            }
            Form::Packed(packed) => {
                if packed.find(member, packed.first(), 1).is_some() {
                    return false;
                }
                if packed.len() < limits.max_listpack_entries && member.len() <= limits.max_listpack_value {
                    packed.push_back(member);
                } else {
                    let mut table = self.to_table();
                    insert_entry(&mut table, member);
                    self.form = Form::Table(table);
                }
                true
            }
            Form::Table(table) => insert_entry(table, member),
        }
    }

    /// Prepares for so many members to come, repeated ones counted: packed members become a table at once where that many
    /// different ones need it, as in Redis. Integers don't: they cost little until there are too many different ones.
    pub fn prepare(&mut self, members: usize, limits: &SetLimits) {
        if matches!(self.form, Form::Packed(_)) && members > limits.max_listpack_entries {
            self.form = Form::Table(self.to_table());
        }
    }

    /// Takes the most compact form again, after most members went. Members that expire stay as they are.
    pub fn repack(&mut self, limits: &SetLimits) {
        if self.deadlines.is_none() && matches!(self.form, Form::Table(_)) {
            let mut packed = Set::new();
            self.in_order().iter().for_each(|member| _ = packed.insert(member, limits));
            *self = packed;
        }
    }

    /// How it is laid out.
    pub fn layout(&self) -> Layout {
        match self.form {
            Form::Ints(_) => Layout::Integers,
            Form::Packed(_) => Layout::Compact,
            Form::Table(_) => Layout::Large,
        }
    }

    /// Lays it out like this, in its order and whatever the limits; false, and nothing changed, where the members don't fit.
    pub fn take_layout(&mut self, layout: Layout) -> bool {
        self.form = match layout {
            Layout::Compact => Form::Packed(self.to_packed()),
            Layout::Large => Form::Table(self.to_table()),
            // Integers have no place for deadlines.
            Layout::Integers if self.deadlines.is_some() => return false,
            Layout::Integers => {
                let mut ints = IntSet::new();
                for member in self.iter_stored() {
                    let Some(value) = canonical_int(member.as_bytes(&mut itoa::Buffer::new())) else { return false };
                    ints.insert(value);
                }
                Form::Ints(ints)
            }
        };
        true
    }

    /// Removes `member`, also a dead one. True if it was there.
    pub fn remove(&mut self, member: &[u8]) -> bool {
        if let Some(deadlines) = &mut self.deadlines {
            deadlines.remove(member);
        }
        match &mut self.form {
            Form::Ints(ints) => canonical_int(member).is_some_and(|value| ints.remove(value)),
            Form::Packed(packed) => packed.find(member, packed.first(), 1).map(|at| packed.remove(at, 1)).is_some(),
            Form::Table(table) => table.remove(hash_bytes(member), is(member), hash_of).is_some(),
        }
    }

    /// Bytes of a form without a table; `None` when the set is one.
    pub fn compact_bytes(&self) -> Option<usize> {
        match &self.form {
            Form::Ints(ints) => Some(ints.mem_bytes()),
            Form::Packed(packed) => Some(packed.byte_len()),
            Form::Table(_) => None,
        }
    }

    /// The deadlines, once a member had one.
    #[inline]
    pub fn deadlines(&self) -> Option<&Deadlines> {
        self.deadlines.as_deref()
    }

    /// As [`deadlines`](Self::deadlines), to change those of members that are there.
    pub fn deadlines_mut(&mut self) -> Option<&mut Deadlines> {
        self.deadlines.as_deref_mut()
    }

    /// Lets a member, which must be there, expire at this time, Unix ms.
    pub fn set_deadline(&mut self, member: &[u8], at_ms: i64, limits: &SetLimits) {
        if let Form::Ints(ints) = &self.form {
            let fits = ints.len() <= limits.max_listpack_entries && limits.max_listpack_value >= INT_DIGITS_MAX;
            self.form = if fits { Form::Packed(self.to_packed()) } else { Form::Table(self.to_table()) };
        }
        self.deadlines.get_or_insert_default().set(member, at_ms);
    }

    /// Gives the memory of deadlines back if there are none any more. Not for a packed set, which shows that it had one.
    pub fn drop_empty_deadlines(&mut self) {
        self.deadlines.take_if(|deadlines| deadlines.is_empty());
    }

    /// The deadlines, if any member is dead.
    #[inline]
    fn dead(&self) -> Option<&Deadlines> {
        self.deadlines().filter(|deadlines| deadlines.dead() > 0)
    }

    /// All members: integers ascending while the form is that of integers, then in the order of insertion, then in none.
    pub fn iter(&self) -> impl Iterator<Item = Item<'_>> {
        let dead = self.dead();
        self.iter_stored().filter(move |member| dead.is_none_or(|dead| !dead.is_dead_item(*member)))
    }

    /// As [`iter`](Self::iter), with the dead.
    pub fn iter_stored(&self) -> impl Iterator<Item = Item<'_>> {
        let (ints, packed, table) = match &self.form {
            Form::Ints(ints) => (Some(ints), None, None),
            Form::Packed(packed) => (None, Some(packed), None),
            Form::Table(table) => (None, None, Some(table)),
        };
        let ints = ints.into_iter().flat_map(|ints| ints.iter().map(Item::Int));
        let packed = packed.into_iter().flat_map(|packed| packed.iter());
        let table = table.into_iter().flat_map(|table| table.iter().map(as_item));
        ints.chain(packed).chain(table)
    }

    /// One step of SSCAN, as [`DenseTable::scan`]; the small forms are emitted as a whole.
    pub fn scan(&self, cursor: u64, count: usize, mut emit: impl FnMut(Item<'_>)) -> u64 {
        let dead = self.dead();
        match &self.form {
            Form::Table(table) => table.scan(cursor, count, hash_of, |entry| {
                if dead.is_none_or(|dead| !dead.is_dead(entry)) {
                    emit(as_item(entry));
                }
            }),
            _ => {
                self.iter().for_each(emit);
                0
            }
        }
    }

    /// Shows the members of a table, the dead included, from `cursor` on until `visit` answers false. Answers the cursor of the
    /// rest; see [`DenseTable::walk`]. Other forms have no cursors and are shown whole.
    pub fn walk(&self, cursor: u64, mut visit: impl FnMut(&[u8]) -> bool) -> u64 {
        match &self.form {
            Form::Table(table) => table.walk(cursor, hash_of, |entry| visit(entry.as_slice())),
            _ => {
                let mut digits = itoa::Buffer::new();
                self.iter_stored().for_each(|member| _ = visit(member.as_bytes(&mut digits)));
                PLACE_END
            }
        }
    }

    /// A member drawn at random. `below(n)` draws a number in `0..n`.
    pub fn random(&self, mut below: impl FnMut(u64) -> u64) -> Option<Item<'_>> {
        let Some(dead) = self.dead() else { return self.random_stored(below) };
        let mut draw = || self.random_stored(&mut below).filter(|member| !dead.is_dead_item(*member));
        (0..DRAWS).find_map(|_| draw()).or_else(|| select(self.iter(), self.len(), 1, below).next())
    }

    fn random_stored(&self, mut below: impl FnMut(u64) -> u64) -> Option<Item<'_>> {
        match &self.form {
            Form::Ints(ints) => ints.get(below(ints.len() as u64) as usize).map(Item::Int),
            Form::Packed(packed) => packed.get(below(packed.len() as u64) as usize),
            Form::Table(table) => table.random(below).map(as_item),
        }
    }

    /// Emits `count` different members drawn at random (all, if there are fewer).
    pub fn sample<'s>(&'s self, count: usize, below: impl FnMut(u64) -> u64, mut emit: impl FnMut(Item<'s>)) {
        match &self.form {
            Form::Table(table) if self.dead().is_none() => table.sample(count, below, |entry| emit(as_item(entry))),
            _ => select(self.iter(), self.len(), count, below).for_each(emit),
        }
    }

    /// The name of the form, as OBJECT ENCODING gives it.
    pub fn encoding(&self) -> &'static str {
        match &self.form {
            Form::Ints(_) => "intset",
            Form::Packed(_) if self.deadlines.is_some() => "listpackex",
            Form::Packed(_) => "listpack",
            Form::Table(_) => "hashtable",
        }
    }

    /// Bytes allocated, without this header. Of a table, `samples` members are measured and taken for the mean (0: all).
    pub fn mem_bytes(&self, samples: usize) -> usize {
        let members = match &self.form {
            Form::Ints(ints) => ints.mem_bytes(),
            Form::Packed(packed) => packed.mem_bytes(),
            Form::Table(table) => {
                size_of::<DenseTable<SmallBytes>>() + table.mem_bytes() + table.sum_of(samples, SmallBytes::heap_bytes)
            }
        };
        members + self.deadlines().map_or(0, |deadlines| deadlines.mem_bytes(samples))
    }

    /// Adds a member that is no integer to a set in the form of integers.
    fn insert_beside_ints(&mut self, member: &[u8], limits: &SetLimits) {
        let longest = self.iter().map(|item| item.byte_len()).max().max(Some(member.len()));
        if self.len() < limits.max_listpack_entries && longest <= Some(limits.max_listpack_value) {
            let mut packed = self.to_packed();
            packed.push_back(member);
            self.form = Form::Packed(packed);
        } else {
            let mut table = self.to_table();
            insert_entry(&mut table, member);
            self.form = Form::Table(table);
        }
    }

    /// The members of a table in an order of their own: how they lie in the table depends on what came and went, and that may be
    /// forgotten.
    fn in_order(&self) -> Vec<Vec<u8>> {
        let mut members: Vec<Vec<u8>> = self.iter_stored().map(|member| member.to_vec()).collect();
        members.sort_unstable();
        members
    }

    fn to_packed(&self) -> Packed {
        let mut packed = Packed::new();
        if let Form::Table(_) = self.form {
            self.in_order().iter().for_each(|member| packed.push_back(member));
            return packed;
        }
        let mut digits = itoa::Buffer::new();
        self.iter_stored().for_each(|item| packed.push_back(item.as_bytes(&mut digits)));
        packed
    }

    fn to_table(&self) -> Box<DenseTable<SmallBytes>> {
        let mut table = Box::new(DenseTable::new());
        let mut digits = itoa::Buffer::new();
        for item in self.iter_stored() {
            insert_entry(&mut table, item.as_bytes(&mut digits));
        }
        table
    }
}

impl PartialEq for Set {
    /// Whether both have the same members, in whatever form.
    fn eq(&self, other: &Set) -> bool {
        self.len() == other.len() && self.iter().all(|member| other.contains_item(member))
    }
}

impl Eq for Set {}

fn first_form(member: &[u8], limits: &SetLimits) -> Form {
    if limits.max_intset_entries > 0 && canonical_int(member).is_some() {
        Form::Ints(IntSet::new())
    } else if limits.max_listpack_entries > 0 && member.len() <= limits.max_listpack_value {
        Form::Packed(Packed::new())
    } else {
        Form::Table(Box::default())
    }
}

fn insert_entry(table: &mut DenseTable<SmallBytes>, member: &[u8]) -> bool {
    let hash = hash_bytes(member);
    let new = table.find(hash, is(member)).is_none();
    if new {
        table.insert_unique(hash, SmallBytes::concat(&[member]), hash_of);
    }
    new
}

fn hash_of(entry: &SmallBytes) -> u64 {
    hash_bytes(entry.as_slice())
}

fn as_item(entry: &SmallBytes) -> Item<'_> {
    Item::Bytes(entry.as_slice())
}

#[inline]
fn is(member: &[u8]) -> impl Fn(&SmallBytes) -> bool {
    move |entry| entry.as_slice() == member
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    const LIMITS: SetLimits = SetLimits { max_intset_entries: 4, max_listpack_entries: 3, max_listpack_value: 5 };

    fn set_of(members: &[&str]) -> Set {
        let mut set = Set::new();
        members.iter().for_each(|member| _ = set.insert(member.as_bytes(), &LIMITS));
        set
    }

    #[test]
    fn takes_the_form_that_its_members_allow() {
        for (members, encoding) in [
            (&["1", "2", "3", "4"][..], "intset"),
            (&["1", "2", "3", "4", "4"], "intset"),
            (&["1", "2", "3", "4", "5"], "hashtable"),
            (&["1", "2", "a"], "listpack"),
            (&["1", "2", "3", "a"], "hashtable"),
            (&["1", "2", "3", "01"], "hashtable"),
            (&["a", "b", "c"], "listpack"),
            (&["a", "b", "c", "c"], "listpack"),
            (&["a", "b", "c", "d"], "hashtable"),
            (&["a", "1", "2"], "listpack"),
            (&["12345"], "intset"),
            (&["1234567"], "intset"),
            (&["1234567", "a"], "hashtable"),
            (&["abcdef"], "hashtable"),
            (&["a", "abcdef"], "hashtable"),
            (&["1", "abcdef"], "hashtable"),
        ] {
            let set = set_of(members);
            assert_eq!(set.encoding(), encoding, "{members:?}");
            assert!(members.iter().all(|member| set.contains(member.as_bytes())));
            assert!(!set.contains(b"99"));
        }
        let mut no_ints = Set::new();
        no_ints.insert(b"1", &SetLimits { max_intset_entries: 0, ..LIMITS });
        assert_eq!(no_ints.encoding(), "listpack");
        let mut as_redis_7_0 = Set::new();
        as_redis_7_0.insert(b"a", &SetLimits { max_listpack_entries: 0, ..LIMITS });
        assert_eq!(as_redis_7_0.encoding(), "hashtable");
    }

    #[test]
    fn takes_the_form_that_is_foreseen_and_the_smallest_again() {
        let (mut ints, mut packed) = (set_of(&["1"]), set_of(&["a"]));
        [&mut ints, &mut packed].into_iter().for_each(|set| set.prepare(3, &LIMITS));
        assert_eq!([ints.encoding(), packed.encoding()], ["intset", "listpack"]);
        [&mut ints, &mut packed].into_iter().for_each(|set| set.prepare(5, &LIMITS));
        assert_eq!([ints.encoding(), packed.encoding()], ["intset", "hashtable"]);
        [&mut ints, &mut packed].into_iter().for_each(|set| set.repack(&LIMITS));
        assert_eq!([ints.encoding(), packed.encoding()], ["intset", "listpack"]);
        assert!(ints.contains(b"1") && packed.contains(b"a"));
        let mut mortal = set_of(&["a", "b", "c", "d"]);
        mortal.set_deadline(b"a", 1, &LIMITS);
        mortal.repack(&LIMITS);
        assert_eq!((mortal.encoding(), mortal.deadlines().map(Deadlines::len)), ("hashtable", Some(1)));
    }

    #[test]
    fn forms_compare_by_their_members() {
        let table = {
            let mut set = set_of(&["1", "2", "long-member"]);
            assert!(set.remove(b"long-member"));
            set
        };
        let packed = {
            let mut set = set_of(&["1", "2", "a"]);
            assert!(set.remove(b"a"));
            set
        };
        let ints = set_of(&["2", "1"]);
        assert_eq!([ints.encoding(), packed.encoding(), table.encoding()], ["intset", "listpack", "hashtable"]);
        for (a, b) in [(&ints, &packed), (&packed, &table), (&table, &ints)] {
            assert_eq!(a, b);
            assert_eq!(b, a);
        }
        assert_ne!(ints, set_of(&["1", "3"]));
    }

    #[test]
    fn samples_and_draws_are_members() {
        let mut state = 0u64;
        let mut below = |n: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 33) % n.max(1)
        };
        assert_eq!(Set::new().random(&mut below), None);
        for (n, prefix) in [(1, ""), (500, ""), (1, "m"), (100, "m"), (2000, "m")] {
            let mut set = Set::new();
            for i in 0..n {
                set.insert(format!("{prefix}{i}").as_bytes(), &SetLimits::default());
            }
            let drawn: BTreeSet<Vec<u8>> =
                (0..n * 20).map(|_| set.random(&mut below).expect("not empty").to_vec()).collect();
            assert_eq!(drawn.len(), n);
            for count in [0, 1, n / 4, n / 2, n, usize::MAX] {
                let mut sample = BTreeSet::new();
                set.sample(count, &mut below, |member| assert!(sample.insert(member.to_vec())));
                assert_eq!(sample.len(), count.min(n));
                assert!(sample.is_subset(&drawn));
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(12))]

        /// What SSCAN promises, while the table grows and shrinks between the steps.
        #[test]
        fn a_walk_meets_whatever_stays(
            count in 1..50usize, first in 0..2000usize,
            sizes in proptest::collection::vec(0..4000usize, 1..12),
        ) {
            let name = |kind: &str, i: usize| format!("{kind}{i}").into_bytes();
            let limits = SetLimits::default();
            let mut set = Set::new();
            let stays: BTreeSet<Vec<u8>> = (0..200).map(|i| name("stays", i)).collect();
            stays.iter().for_each(|member| _ = set.insert(member, &limits));
            (0..first).for_each(|i| _ = set.insert(&name("passes", i), &limits));
            let (mut size, mut met, mut cursor) = (first, BTreeSet::new(), 0);
            for step in 0.. {
                cursor = set.scan(cursor, count, |member| _ = met.insert(member.to_vec()));
                if cursor == 0 {
                    break;
                }
                let Some(to) = sizes.get(step) else { continue };
                (size..*to).for_each(|i| assert!(set.insert(&name("passes", i), &limits)));
                (*to..size).for_each(|i| assert!(set.remove(&name("passes", i))));
                size = *to;
            }
            prop_assert!(stays.is_subset(&met));
        }
    }

    fn member() -> impl Strategy<Value = Vec<u8>> {
        prop_oneof![
            4 => (-40..40i64).prop_map(|i| i.to_string().into_bytes()),
            1 => any::<i64>().prop_map(|i| i.to_string().into_bytes()),
            1 => "[0-9a-c]{0,3}".prop_map(String::into_bytes),
            1 => proptest::collection::vec(any::<u8>(), 0..30),
        ]
    }

    proptest! {
        #[test]
        fn behaves_as_a_set(
            ints in 0..60usize, entries in 0..40usize, value in 0..30usize,
            steps in proptest::collection::vec((member(), proptest::bool::weighted(0.7)), 0..200),
        ) {
            let limits = SetLimits { max_intset_entries: ints, max_listpack_entries: entries, max_listpack_value: value };
            let mut set = Set::new();
            let mut model: BTreeSet<Vec<u8>> = BTreeSet::new();
            for (member, add) in steps {
                prop_assert_eq!(set.contains(&member), model.contains(&member));
                prop_assert_eq!(set.contains_item(Item::of(&member)), model.contains(&member));
                if add {
                    prop_assert_eq!(set.insert(&member, &limits), model.insert(member));
                } else {
                    prop_assert_eq!(set.remove(&member), model.remove(&member));
                }
                prop_assert_eq!(set.len(), model.len());
            }
            let members: BTreeSet<Vec<u8>> = set.iter().map(|member| member.to_vec()).collect();
            prop_assert_eq!(&members, &model);
            let mut scanned = BTreeSet::new();
            let mut cursor = 0;
            loop {
                cursor = set.scan(cursor, 3, |member| _ = scanned.insert(member.to_vec()));
                if cursor == 0 {
                    break;
                }
            }
            prop_assert_eq!(scanned, model);
            prop_assert_eq!(&set.clone(), &set);
        }
    }
}
