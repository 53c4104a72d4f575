//! The value of a set key: distinct members in no order.
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
//! The first two lie in a [`Block`], which the set's one word points to.
//!
//! Names, limits and transitions are those of Redis 7.2 and later. Earlier versions had no listpack; a listpack limit
//! of 0 entries gives their behaviour. An empty set takes the form that its first member allows.
//!
//! Members are read as [`Item`]: an integer if the form stores one, otherwise bytes. Operations on several sets iterate
//! over the smallest with [`Set::iter`] and look the members up in the others with [`Set::contains_item`]. Between sets
//! of integers this avoids formatting and parsing.
//!
//! Members that expire have their deadlines in [`Deadlines`], beside a packed set or a table. The rules for expired
//! elements given there apply to every query here.

use crate::base::dense_table::DenseTable;
use crate::base::equal::equal;
use crate::base::hasher::hash_bytes;
use crate::base::sample::select;
use crate::base::split_table::PLACE_END;
use crate::value::Layout;
use crate::value::block::{Block, InBlock};
use crate::value::deadlines::{DRAWS, Deadlines};
use crate::value::int_set::{INT_KINDS, IntSet};
use crate::value::one_word::{Held, HeldMut, OneWord};
use crate::value::packed::{Item, Packed, canonical_int};
use crate::value::small_bytes::SmallBytes;

/// The bounds on a set's form. A set that exceeds them takes another form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SetLimits {
    /// Members, if all are integers (`set-max-intset-entries`).
    pub max_intset_entries: usize,
    /// Members, if some are not integers (`set-max-listpack-entries`).
    pub max_listpack_entries: usize,
    /// Bytes of the longest member (`set-max-listpack-value`).
    pub max_listpack_value: usize,
}

impl Default for SetLimits {
    fn default() -> Self {
        SetLimits { max_intset_entries: 512, max_listpack_entries: 128, max_listpack_value: 64 }
    }
}

/// Distinct members, each an arbitrary string of bytes.
#[derive(Clone, Debug)]
pub struct Set(OneWord<Full>);

/// The contents of a set that is a table or has members that expire.
#[derive(Clone, Debug)]
struct Full {
    form: Form,
    /// Present since a member first got a deadline. Integers never have deadlines.
    deadlines: Option<Deadlines>,
}

#[derive(Clone, Debug)]
enum Form {
    /// A block as in a small set.
    Small(Block),
    Table(Box<DenseTable<SmallBytes>>),
}

/// The kind of a block with packed members; other kinds hold integers.
const PACKED: u8 = INT_KINDS;

/// The form, wherever it is stored.
enum Seen<'a> {
    Ints(&'a IntSet),
    Packed(&'a Packed),
    Table(&'a DenseTable<SmallBytes>),
}

/// The form, for changing it.
enum SeenMut<'a> {
    Ints(&'a mut IntSet),
    Packed(&'a mut Packed),
    Table(&'a mut DenseTable<SmallBytes>),
}

/// Digits of the longest integer: the most that a member of a set of integers takes when packed.
const INT_DIGITS_MAX: usize = 20;

impl Default for Set {
    fn default() -> Self {
        Self::new()
    }
}

impl Set {
    /// A set without members, and without allocation.
    pub const fn new() -> Set {
        // A block that was never written to counts as one of integers.
        Set(OneWord::new())
    }

    /// The block, if the set is small.
    pub(crate) fn block(&self) -> Option<&Block> {
        self.0.as_small()
    }

    /// The block of a small set, for moving it.
    pub(crate) fn block_mut(&mut self) -> Option<&mut Block> {
        self.0.as_small_mut()
    }

    /// Number of members.
    pub fn len(&self) -> usize {
        self.stored_len() - self.deadlines().map_or(0, Deadlines::expired)
    }

    /// Number of members, including expired ones.
    pub fn stored_len(&self) -> usize {
        match self.form() {
            Seen::Ints(ints) => ints.len(),
            Seen::Packed(packed) => packed.len(),
            Seen::Table(table) => table.len(),
        }
    }

    /// Whether most members have expired. Each random draw may then have to walk over all of them.
    pub fn is_mostly_dead(&self) -> bool {
        self.stored_len() / 2 > self.len()
    }

    /// Whether there are no members.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether `member` is in the set.
    #[inline]
    pub fn contains(&self, member: &[u8]) -> bool {
        !self.expired().is_some_and(|expired| expired.is_expired(member)) && self.is_stored(member)
    }

    /// Whether `member` is stored, even if expired.
    #[inline]
    pub fn is_stored(&self, member: &[u8]) -> bool {
        match self.form() {
            Seen::Ints(ints) => canonical_int(member).is_some_and(|value| ints.contains(value)),
            Seen::Packed(packed) => packed.find::<1>(member).is_some(),
            Seen::Table(table) => table.find(hash_bytes(member), is(member)).is_some(),
        }
    }

    /// Like [`contains`](Self::contains), for a member of another set.
    #[inline]
    pub fn contains_item(&self, member: Item<'_>) -> bool {
        match (self.form(), member) {
            (Seen::Ints(ints), Item::Int(value)) => ints.contains(value),
            _ => self.contains(member.as_bytes(&mut itoa::Buffer::new())),
        }
    }

    /// Adds `member`, which must not be there in expired form. Returns whether it is new.
    pub fn insert(&mut self, member: &[u8], limits: &SetLimits) -> bool {
        if self.stored_len() == 0 && self.deadlines().is_none() {
            self.take_form(first_form(member, limits));
        }
        match self.form_mut() {
            SeenMut::Ints(ints) => {
                let Some(value) = canonical_int(member) else {
                    self.insert_beside_ints(member, limits);
                    return true;
                };
                if ints.len() < limits.max_intset_entries && ints.has_room() {
                    return ints.insert(value);
                }
                let new = !ints.contains(value);
                if new || ints.len() > limits.max_intset_entries {
                    self.insert_into_table(member);
                }
                new
            }
            SeenMut::Packed(packed) => {
                if packed.find::<1>(member).is_some() {
                    return false;
                }
                if packed.len() < limits.max_listpack_entries
                    && member.len() <= limits.max_listpack_value
                    && packed.has_room(1, member.len())
                {
                    packed.push(member);
                } else {
                    self.insert_into_table(member);
                }
                true
            }
            SeenMut::Table(table) => insert_entry(table, member),
        }
    }

    /// Prepares for `members` more members, counting repeated ones. Packed members become a table at once if that many
    /// distinct members need one, as in Redis. Integers do not: they cost little until there are too many distinct
    /// ones.
    pub fn prepare(&mut self, members: usize, limits: &SetLimits) {
        if matches!(self.form(), Seen::Packed(_)) && members > limits.max_listpack_entries {
            self.take_form(Form::Table(self.to_table()));
        }
    }

    /// Returns to the most compact form after most members were removed. A set whose members expire stays as it is.
    pub fn repack(&mut self, limits: &SetLimits) {
        if self.deadlines().is_none() && matches!(self.form(), Seen::Table(_)) {
            let mut small = Set::new();
            self.in_order().iter().for_each(|member| _ = small.insert(member, limits));
            // Integers that were inserted first are in numeric order. A copy that is told the layout packs all members
            // in the order of their bytes.
            match small.layout() {
                Layout::Compact => _ = self.take_layout(Layout::Compact),
                _ => *self = small,
            }
        }
    }

    /// The memory layout.
    pub fn layout(&self) -> Layout {
        match self.form() {
            Seen::Ints(_) => Layout::Integers,
            Seen::Packed(_) => Layout::Compact,
            Seen::Table(_) => Layout::Large,
        }
    }

    /// Changes the layout regardless of the limits. Returns false, and changes nothing, if the members do not fit.
    pub fn take_layout(&mut self, layout: Layout) -> bool {
        let form = match layout {
            Layout::Compact => self.to_packed().map(packed),
            Layout::Large => Some(Form::Table(self.to_table())),
            // Integers have no room for deadlines.
            Layout::Integers if self.deadlines().is_some() => None,
            Layout::Integers => self.to_ints().map(|ints| Form::Small(ints.into_block())),
        };
        form.map(|form| self.take_form(form)).is_some()
    }

    /// Removes `member`, even an expired one. Returns whether it was there.
    pub fn remove(&mut self, member: &[u8]) -> bool {
        if let Some(deadlines) = self.deadlines_mut() {
            deadlines.remove(member);
        }
        match self.form_mut() {
            SeenMut::Ints(ints) => canonical_int(member).is_some_and(|value| ints.remove(value)),
            SeenMut::Packed(packed) => packed.find::<1>(member).map(|at| packed.remove(at, 1)).is_some(),
            SeenMut::Table(table) => table.remove(hash_bytes(member), is(member), hash_of).is_some(),
        }
    }

    /// Bytes of a form without a table; `None` if the set is a table.
    pub fn compact_bytes(&self) -> Option<usize> {
        match self.form() {
            Seen::Ints(ints) => Some(ints.heap_bytes()),
            Seen::Packed(packed) => Some(packed.byte_len()),
            Seen::Table(_) => None,
        }
    }

    /// The deadlines, if a member has ever had one.
    #[inline]
    pub fn deadlines(&self) -> Option<&Deadlines> {
        self.0.as_large()?.deadlines.as_ref()
    }

    /// Like [`deadlines`](Self::deadlines), for changing those of stored members.
    pub fn deadlines_mut(&mut self) -> Option<&mut Deadlines> {
        self.0.as_large_mut()?.deadlines.as_mut()
    }

    /// Sets the deadline of a stored member, Unix ms.
    pub fn set_deadline(&mut self, member: &[u8], at_ms: i64, limits: &SetLimits) {
        if let Seen::Ints(ints) = self.form() {
            let fits = ints.len() <= limits.max_listpack_entries && limits.max_listpack_value >= INT_DIGITS_MAX;
            let small = if fits { self.to_packed().map(packed) } else { None };
            self.take_form(small.unwrap_or_else(|| Form::Table(self.to_table())));
        }
        self.full_mut().deadlines.get_or_insert_default().set(member, at_ms);
    }

    /// Frees the memory of deadlines if none are left. A packed set keeps it, because its encoding shows that it had
    /// deadlines.
    pub fn drop_empty_deadlines(&mut self) {
        if let Some(full) = self.0.as_large_mut() {
            full.deadlines.take_if(|deadlines| deadlines.is_empty());
        }
    }

    /// The deadlines, if any member has expired.
    #[inline]
    fn expired(&self) -> Option<&Deadlines> {
        self.deadlines().filter(|deadlines| deadlines.expired() > 0)
    }

    /// All members: integers in ascending order, packed members in the order of insertion, those of a table in no
    /// order.
    pub fn iter(&self) -> impl Iterator<Item = Item<'_>> {
        let expired = self.expired();
        self.iter_stored().filter(move |member| expired.is_none_or(|expired| !expired.is_expired_item(*member)))
    }

    /// Like [`iter`](Self::iter), including expired members.
    pub fn iter_stored(&self) -> impl Iterator<Item = Item<'_>> {
        let (ints, packed, table) = match self.form() {
            Seen::Ints(ints) => (Some(ints), None, None),
            Seen::Packed(packed) => (None, Some(packed), None),
            Seen::Table(table) => (None, None, Some(table)),
        };
        let ints = ints.into_iter().flat_map(|ints| ints.iter().map(Item::Int));
        let packed = packed.into_iter().flat_map(|packed| packed.iter());
        let table = table.into_iter().flat_map(|table| table.iter().map(as_item));
        ints.chain(packed).chain(table)
    }

    /// One step of SSCAN, like [`DenseTable::scan`]; a small form is emitted as a whole.
    pub fn scan(&self, cursor: u64, count: usize, mut emit: impl FnMut(Item<'_>)) -> u64 {
        let expired = self.expired();
        match self.form() {
            Seen::Table(table) => table.scan(cursor, count, hash_of, |entry| {
                if expired.is_none_or(|expired| !expired.is_expired(entry)) {
                    emit(as_item(entry));
                }
            }),
            _ => {
                self.iter().for_each(emit);
                0
            }
        }
    }

    /// Visits the members of a table, including expired ones, from `cursor` on until `visit` returns false. Returns the
    /// cursor of the rest; see [`DenseTable::walk`]. Other forms have no cursors and are visited as a whole.
    pub fn walk(&self, cursor: u64, mut visit: impl FnMut(&[u8]) -> bool) -> u64 {
        match self.form() {
            Seen::Table(table) => table.walk(cursor, hash_of, |entry| visit(entry.as_slice())),
            _ => {
                let mut digits = itoa::Buffer::new();
                self.iter_stored().for_each(|member| _ = visit(member.as_bytes(&mut digits)));
                PLACE_END
            }
        }
    }

    /// A random member. `below(n)` draws a number in `0..n`.
    pub fn random(&self, mut below: impl FnMut(u64) -> u64) -> Option<Item<'_>> {
        let Some(expired) = self.expired() else { return self.random_stored(below) };
        let mut draw = || self.random_stored(&mut below).filter(|member| !expired.is_expired_item(*member));
        (0..DRAWS).find_map(|_| draw()).or_else(|| select(self.iter(), self.len(), 1, below).next())
    }

    fn random_stored(&self, mut below: impl FnMut(u64) -> u64) -> Option<Item<'_>> {
        match self.form() {
            Seen::Ints(ints) => ints.get(below(ints.len() as u64) as usize).map(Item::Int),
            Seen::Packed(packed) => packed.get(below(packed.len() as u64) as usize),
            Seen::Table(table) => table.random(below).map(as_item),
        }
    }

    /// Emits `count` distinct random members, or all members if there are fewer.
    pub fn sample<'s>(&'s self, count: usize, below: impl FnMut(u64) -> u64, mut emit: impl FnMut(Item<'s>)) {
        match self.form() {
            Seen::Table(table) if self.expired().is_none() => table.sample(count, below, |entry| emit(as_item(entry))),
            _ => select(self.iter(), self.len(), count, below).for_each(emit),
        }
    }

    /// The name of the form in OBJECT ENCODING.
    pub fn encoding(&self) -> &'static str {
        match self.form() {
            Seen::Ints(_) => "intset",
            Seen::Packed(_) if self.deadlines().is_some() => "listpackex",
            Seen::Packed(_) => "listpack",
            Seen::Table(_) => "hashtable",
        }
    }

    /// Bytes allocated. For a table, the size is extrapolated from `samples` members (0: all are measured).
    pub fn mem_bytes(&self, samples: usize) -> usize {
        let members = match self.form() {
            Seen::Ints(ints) => ints.heap_bytes(),
            Seen::Packed(packed) => packed.heap_bytes(),
            Seen::Table(table) => {
                size_of::<DenseTable<SmallBytes>>() + table.mem_bytes() + table.sum_of(samples, SmallBytes::heap_bytes)
            }
        };
        let deadlines = self.deadlines().map_or(0, |deadlines| deadlines.mem_bytes(samples));
        members + self.0.as_large().map_or(0, |_| size_of::<Full>()) + deadlines
    }

    /// Adds a member that is not an integer to a set of integers.
    fn insert_beside_ints(&mut self, member: &[u8], limits: &SetLimits) {
        let longest = self.iter().map(|item| item.byte_len()).max().max(Some(member.len()));
        if self.len() < limits.max_listpack_entries
            && longest <= Some(limits.max_listpack_value)
            && let Some(mut members) = self.to_packed()
            && members.has_room(1, member.len())
        {
            members.push(member);
            self.take_form(packed(members));
        } else {
            self.insert_into_table(member);
        }
    }

    /// Converts the set to a table and adds a member.
    fn insert_into_table(&mut self, member: &[u8]) {
        let mut table = self.to_table();
        insert_entry(&mut table, member);
        self.take_form(Form::Table(table));
    }

    #[inline]
    fn form(&self) -> Seen<'_> {
        match self.0.held() {
            Held::Small(block) | Held::Large(Full { form: Form::Small(block), .. }) if block.kind() == PACKED => {
                Seen::Packed(Packed::of(block))
            }
            Held::Small(block) | Held::Large(Full { form: Form::Small(block), .. }) => Seen::Ints(IntSet::of(block)),
            Held::Large(Full { form: Form::Table(table), .. }) => Seen::Table(table),
        }
    }

    #[inline]
    fn form_mut(&mut self) -> SeenMut<'_> {
        let block = match self.0.held_mut() {
            HeldMut::Large(Full { form: Form::Table(table), .. }) => return SeenMut::Table(table),
            HeldMut::Small(block) | HeldMut::Large(Full { form: Form::Small(block), .. }) => block,
        };
        match block.kind() {
            PACKED => SeenMut::Packed(Packed::of_mut(block)),
            _ => SeenMut::Ints(IntSet::of_mut(block)),
        }
    }

    /// Switches to a form that holds the same members.
    fn take_form(&mut self, form: Form) {
        match form {
            Form::Small(block) if self.deadlines().is_none() => self.0 = OneWord::small(block),
            form => self.full_mut().form = form,
        }
    }

    fn full_mut(&mut self) -> &mut Full {
        self.0.make_large(|block| Full { form: Form::Small(block), deadlines: None })
    }

    /// The members of a table in sorted order. Their places in the table depend on its history, which a copy of the set
    /// does not share.
    fn in_order(&self) -> Vec<Vec<u8>> {
        let mut members: Vec<Vec<u8>> = self.iter_stored().map(|member| member.to_vec()).collect();
        members.sort_unstable();
        members
    }

    /// The members in packed form, or `None` if they do not fit.
    fn to_packed(&self) -> Option<Packed> {
        let mut packed = Packed::in_block(Block::of_kind(PACKED));
        let mut push = |member: &[u8]| {
            let fits = packed.has_room(1, member.len());
            if fits {
                packed.push(member);
            }
            fits
        };
        let mut digits = itoa::Buffer::new();
        let all = match self.form() {
            Seen::Table(_) => self.in_order().iter().all(|member| push(member)),
            _ => self.iter_stored().all(|member| push(member.as_bytes(&mut digits))),
        };
        all.then_some(packed)
    }

    /// The members as integers, or `None` if some are not integers or they do not fit.
    fn to_ints(&self) -> Option<IntSet> {
        let mut ints = IntSet::new();
        for member in self.iter_stored() {
            let value = member.as_int().filter(|_| ints.has_room())?;
            ints.insert(value);
        }
        Some(ints)
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
    /// Whether both have equal members, in whatever form.
    fn eq(&self, other: &Set) -> bool {
        self.len() == other.len() && self.iter().all(|member| other.contains_item(member))
    }
}

impl Eq for Set {}

fn first_form(member: &[u8], limits: &SetLimits) -> Form {
    if limits.max_intset_entries > 0 && canonical_int(member).is_some() {
        Form::Small(IntSet::new().into_block())
    } else if limits.max_listpack_entries > 0 && member.len() <= limits.max_listpack_value {
        Form::Small(Block::of_kind(PACKED))
    } else {
        Form::Table(Box::default())
    }
}

fn packed(members: Packed) -> Form {
    Form::Small(members.into_block())
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
    move |entry| equal(entry.as_slice(), member)
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
    fn a_repacked_set_has_the_order_of_a_copy_that_is_given_its_layout() {
        let members = ["3", "10", "e1"];
        let [mut repacked, mut told] = [(); 2].map(|()| set_of(&members));
        for set in [&mut repacked, &mut told] {
            assert!(set.take_layout(Layout::Large));
        }
        repacked.repack(&LIMITS);
        assert!(told.take_layout(repacked.layout()));
        let order = |set: &Set| set.iter().map(|member| member.to_vec()).collect::<Vec<_>>();
        assert_eq!((order(&repacked), repacked.layout()), (order(&told), Layout::Compact));
    }

    #[test]
    fn prepare_foresees_the_form_and_repack_finds_the_smallest() {
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

        /// The guarantee of SSCAN, while the table grows and shrinks between the steps.
        #[test]
        fn a_walk_meets_everything_that_stays(
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
            let limits = SetLimits {
                max_intset_entries: ints,
                max_listpack_entries: entries,
                max_listpack_value: value,
            };
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
