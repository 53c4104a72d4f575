//! Everything that a stock has besides its holds: the number of units, the rules of its owner, and its memory.
//!
//! The holds are [`Grants`](super::grants::Grants). **Available** are the units that are neither held nor sold:
//!
//! ```text
//! available = total - held - sold, but never below 0
//! ```
//!
//! Only `total` and `sold` are stored. A hold that ends gives its units back simply by being gone, so it cannot give
//! them back twice. A hold that is sold moves its units to `sold` in the same step. If the total is lowered below the
//! units held and sold, these stay as they are, and nothing is available until enough holds have ended.
//!
//! # Memory
//! A stock remembers three kinds of things by name, each ordered by when it was last remembered: refills that were
//! added, orders that were sold, and subjects with their purchases. When there are [too many](Memory::most), the oldest
//! is forgotten. So the memory always consists of the most recent names, up to that number, whatever steps led to it. A
//! copy that is made in parts, while the stock goes on selling, relies on that.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use crate::value::limits::{STOCK_BUYERS_MAX, STOCK_REFILLS_MAX, STOCK_SALES_MAX};

/// The most units that a stock may ever have had: the largest count that a double holds exactly.
pub const AMOUNT_MAX: u64 = (1 << 53) - 1;

/// The number of names up to which a stock is copied as a whole when it may have to be restored.
const FEW_NAMES: usize = 16;

/// A kind of memory, kept by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Memory {
    /// Refills by their ids.
    Refills,
    /// Orders that were sold.
    Sales,
    /// Subjects that have bought.
    Buyers,
}

impl Memory {
    /// All memories, in the order in which they are written.
    pub const ALL: [Memory; 3] = [Memory::Refills, Memory::Sales, Memory::Buyers];

    /// The most names that are remembered.
    pub fn most(self) -> usize {
        match self {
            Memory::Refills => STOCK_REFILLS_MAX,
            Memory::Sales => STOCK_SALES_MAX,
            Memory::Buyers => STOCK_BUYERS_MAX,
        }
    }
}

/// The memory of one name: the units added, sold, or bought so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Remembered {
    /// The number of units.
    pub units: u64,
    /// Time in Unix ms; for a subject, of its last purchase.
    pub at_ms: i64,
}

/// Amounts, and the rules of the owner.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Terms {
    /// All units there have ever been to sell.
    pub total: u64,
    /// Units sold.
    pub sold: u64,
    /// A refill is requested when at most this many units are available.
    pub low: u64,
    /// The time that a caller has for a refill, in ms; 0: no caller is ever asked for one.
    pub refill_ms: u64,
    /// The time for which a subject's purchases count after its last one, in ms; 0: for ever.
    pub period_ms: u64,
    /// The key of the stream that records how holds end. Empty: there is none.
    pub stream: Arc<[u8]>,
    /// The order whose caller was asked to refill. Empty: no caller was asked, or the refill has arrived.
    pub refiller: Arc<[u8]>,
    /// The time until which no other caller is asked, in Unix ms.
    pub refill_until_ms: i64,
}

impl Terms {
    /// Whether a caller was asked to refill and still has time. A caller with more time left than there can be was
    /// asked before the clock was set back, and does not keep others from being asked.
    pub fn is_being_refilled(&self, now_ms: i64) -> bool {
        let left_ms = self.refill_until_ms.saturating_sub(now_ms);
        left_ms > 0 && left_ms.unsigned_abs() <= self.refill_ms
    }
}

/// A stock without its holds. See the module's header.
#[derive(Clone, Default)]
pub struct Stock {
    /// Amounts and rules.
    pub terms: Terms,
    held: u64,
    /// Units held for each subject.
    held_for: BTreeMap<Arc<[u8]>, u64>,
    /// The length of the subjects' names, in bytes.
    text_bytes: usize,
    memories: [Names; Memory::ALL.len()],
}

/// One [`Memory`].
#[derive(Clone, Default)]
struct Names {
    by_name: BTreeMap<Arc<[u8]>, (u64, Remembered)>,
    /// The names by ascending numbers, in the order in which they were remembered.
    order: BTreeMap<u64, Arc<[u8]>>,
    text_bytes: usize,
}

/// The state of a memory before a name was remembered.
#[derive(Debug)]
pub struct MemoryPreImage {
    memory: Memory,
    name: Box<[u8]>,
    before: Option<(u64, Remembered)>,
    /// The name that was forgotten to make room.
    forgotten: Option<(Arc<[u8]>, u64, Remembered)>,
}

impl Stock {
    /// Units held.
    pub fn held(&self) -> u64 {
        self.held
    }

    /// Units that can be reserved.
    pub fn available(&self) -> u64 {
        self.terms.total.saturating_sub(self.held.saturating_add(self.terms.sold))
    }

    /// Units held for a subject.
    pub fn held_for(&self, subject: &[u8]) -> u64 {
        self.held_for.get(subject).copied().unwrap_or(0)
    }

    /// Units that a subject has bought and that still count at `now_ms`, Unix ms.
    pub fn bought_by(&self, subject: &[u8], now_ms: i64) -> u64 {
        let Some(bought) = self.remembered(Memory::Buyers, subject) else { return 0 };
        let period_ms = i64::try_from(self.terms.period_ms).unwrap_or(i64::MAX);
        let counts = period_ms == 0 || now_ms < bought.at_ms.saturating_add(period_ms);
        if counts { bought.units } else { 0 }
    }

    /// The memory of a name.
    pub fn remembered(&self, memory: Memory, name: &[u8]) -> Option<Remembered> {
        self.names(memory).by_name.get(name).map(|(_, of_it)| *of_it)
    }

    /// The number of names remembered.
    pub fn names_of(&self, memory: Memory) -> usize {
        self.names(memory).order.len()
    }

    /// The names remembered from `number` on, in their order, each with its number.
    pub fn memory_from(&self, memory: Memory, number: u64) -> impl Iterator<Item = (u64, &[u8], Remembered)> {
        let names = self.names(memory);
        names.order.range((Bound::Included(number), Bound::Unbounded)).filter_map(|(number, name)| {
            let (_, of_it) = names.by_name.get(name)?;
            Some((*number, &**name, *of_it))
        })
    }

    /// Remembers a name as the most recent one. Returns the pre-image that undoes this.
    pub fn remember(&mut self, memory: Memory, name: &[u8], of_it: Remembered) -> MemoryPreImage {
        let names = &mut self.memories[memory as usize];
        let before = names.take(name).map(|(_, number, of_it)| (number, of_it));
        // Larger than any number before, including the name's own: a walk through the memory has to meet the name once
        // more.
        let after = names.order.last_key_value().map(|(last, _)| *last).max(before.map(|(number, _)| number));
        let number = after.map_or(0, |last| last + 1);
        names.put(Arc::from(name), number, of_it);
        let forgotten = (names.order.len() > memory.most()).then(|| names.take_first()).flatten();
        MemoryPreImage { memory, name: name.into(), before, forgotten }
    }

    /// Undoes [`remember`](Self::remember). All later changes must have been undone before.
    pub fn put_back(&mut self, pre_image: MemoryPreImage) {
        let MemoryPreImage { memory, name, before, forgotten } = pre_image;
        let names = &mut self.memories[memory as usize];
        names.take(&name);
        if let Some((number, of_it)) = before {
            names.put(Arc::from(name), number, of_it);
        }
        if let Some((name, number, of_it)) = forgotten {
            names.put(name, number, of_it);
        }
    }

    /// Records that units are held for a subject. An empty subject stands for none.
    pub(super) fn hold(&mut self, subject: &[u8], units: u64) {
        self.held += units;
        if subject.is_empty() {
            return;
        }
        match self.held_for.get_mut(subject) {
            Some(held) => *held += units,
            None => {
                self.text_bytes += subject.len();
                self.held_for.insert(subject.into(), units);
            }
        }
    }

    /// Records that units are no longer held for a subject.
    pub(super) fn let_go(&mut self, subject: &[u8], units: u64) {
        self.held -= units;
        if let Some(held) = self.held_for.get_mut(subject) {
            *held -= units;
            if *held == 0 {
                self.text_bytes -= subject.len();
                self.held_for.remove(subject);
            }
        }
    }

    /// The number of names: of subjects with holds, and in the memories.
    pub fn elements(&self) -> usize {
        self.held_for.len() + Memory::ALL.map(|memory| self.names_of(memory)).into_iter().sum::<usize>()
    }

    /// Whether a copy costs little.
    pub fn is_small(&self) -> bool {
        self.elements() <= FEW_NAMES
    }

    /// Bytes allocated, including the struct itself, approximately.
    pub fn mem_bytes(&self) -> usize {
        // A shared string has two counts in front; the trees' nodes are three quarters full.
        const NAME: usize = 2 * size_of::<usize>();
        const OF_SUBJECT: usize = NAME + (size_of::<Arc<[u8]>>() + size_of::<u64>()) * 4 / 3;
        const OF_NAME: usize =
            NAME + (2 * size_of::<Arc<[u8]>>() + 2 * size_of::<u64>() + size_of::<Remembered>()) * 4 / 3;
        let subjects = self.held_for.len() * OF_SUBJECT + self.text_bytes;
        let names = self.memories.iter().map(|names| names.order.len() * OF_NAME + names.text_bytes).sum::<usize>();
        size_of::<Stock>() + self.terms.stream.len() + self.terms.refiller.len() + subjects + names
    }

    fn names(&self, memory: Memory) -> &Names {
        &self.memories[memory as usize]
    }
}

impl Names {
    fn put(&mut self, name: Arc<[u8]>, number: u64, of_it: Remembered) {
        self.text_bytes += name.len();
        self.order.insert(number, Arc::clone(&name));
        self.by_name.insert(name, (number, of_it));
    }

    fn take(&mut self, name: &[u8]) -> Option<(Arc<[u8]>, u64, Remembered)> {
        let (name, (number, of_it)) = self.by_name.remove_entry(name)?;
        self.order.remove(&number);
        self.text_bytes -= name.len();
        Some((name, number, of_it))
    }

    fn take_first(&mut self) -> Option<(Arc<[u8]>, u64, Remembered)> {
        let (_, name) = self.order.first_key_value()?;
        let name = Arc::clone(name);
        self.take(&name)
    }
}

impl MemoryPreImage {
    /// Bytes outside the struct.
    pub fn heap_bytes(&self) -> usize {
        self.name.len() + self.forgotten.as_ref().map_or(0, |(name, ..)| name.len())
    }
}

/// Everything visible from outside, in its order: two stocks with equal output behave alike.
impl std::fmt::Debug for Stock {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?} held {} for {:?}", self.terms, self.held, self.held_for)?;
        for memory in Memory::ALL {
            let names = self.memory_from(memory, 0).map(|(_, name, of_it)| (name.escape_ascii().to_string(), of_it));
            write!(f, " {memory:?} {:?}", names.collect::<Vec<_>>())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn remembered(stock: &Stock, memory: Memory) -> Vec<(Vec<u8>, Remembered)> {
        stock.memory_from(memory, 0).map(|(_, name, of_it)| (name.to_vec(), of_it)).collect()
    }

    #[test]
    fn available_units_are_never_negative() {
        let mut stock = Stock::default();
        (stock.terms.total, stock.terms.sold) = (10, 3);
        stock.hold(b"s", 5);
        assert_eq!((stock.available(), stock.held(), stock.held_for(b"s"), stock.held_for(b"t")), (2, 5, 5, 0));
        stock.terms.total = 4;
        assert_eq!(stock.available(), 0);
        stock.let_go(b"s", 5);
        assert_eq!((stock.available(), stock.held_for(b"s"), stock.elements()), (1, 0, 0));
    }

    #[test]
    fn purchases_count_for_a_time() {
        let mut stock = Stock::default();
        stock.remember(Memory::Buyers, b"s", Remembered { units: 2, at_ms: 1_000 });
        assert_eq!([i64::MIN, 1_000, i64::MAX].map(|now_ms| stock.bought_by(b"s", now_ms)), [2; 3]);
        stock.terms.period_ms = 500;
        assert_eq!([1_000, 1_499, 1_500].map(|now_ms| stock.bought_by(b"s", now_ms)), [2, 2, 0]);
        stock.terms.period_ms = u64::MAX;
        assert_eq!((stock.bought_by(b"s", i64::MAX - 1), stock.bought_by(b"t", 0)), (2, 0));
    }

    #[test]
    fn the_oldest_names_are_forgotten() {
        let mut stock = Stock::default();
        let of = |units| Remembered { units, at_ms: 0 };
        let most = STOCK_REFILLS_MAX as u64;
        (0..most).for_each(|id| _ = stock.remember(Memory::Refills, &id.to_le_bytes(), of(id)));
        // The first name is remembered anew, so the second one becomes the oldest.
        stock.remember(Memory::Refills, &0u64.to_le_bytes(), of(7));
        let before = remembered(&stock, Memory::Refills);
        let pre_image = stock.remember(Memory::Refills, b"new", of(1));
        assert_eq!(stock.names_of(Memory::Refills), STOCK_REFILLS_MAX);
        assert_eq!(stock.remembered(Memory::Refills, &1u64.to_le_bytes()), None);
        assert_eq!(stock.remembered(Memory::Refills, &0u64.to_le_bytes()), Some(of(7)));
        stock.put_back(pre_image);
        assert_eq!(remembered(&stock, Memory::Refills), before);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        /// Compares a memory with a list, and undoes each step.
        #[test]
        fn equal_to_a_list(names in proptest::collection::vec((0..3usize, 0..20u8, 0..9u64), 0..120)) {
            let mut stock = Stock::default();
            let mut models: [Vec<(Vec<u8>, Remembered)>; 3] = Default::default();
            for (at_ms, (memory, name, units)) in (0..).zip(names) {
                let (model, memory) = (&mut models[memory], Memory::ALL[memory]);
                let (name, of_it) = (vec![name; 3], Remembered { units, at_ms });
                let before = format!("{stock:?}");
                let pre_image = stock.remember(memory, &name, of_it);
                stock.put_back(pre_image);
                prop_assert_eq!(format!("{:?}", stock), before);
                stock.remember(memory, &name, of_it);
                model.retain(|(other, _)| *other != name);
                model.push((name.clone(), of_it));
                prop_assert_eq!(remembered(&stock, memory), model.clone());
                prop_assert_eq!(stock.remembered(memory, &name), Some(of_it));
                prop_assert_eq!(stock.elements(), models.iter().map(Vec::len).sum::<usize>());
            }
        }
    }
}
