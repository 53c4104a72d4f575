//! Verbs on stocks. The holds of a stock are [grants](super::grants) with verbs of their own.
//!
//! **How holds end** is reported in a stream, if the stock names one. The entry is appended in the unit in which the
//! hold ends, by an effect of its own, so replaying the effects appends nothing by itself. A lease may end while
//! another key is looked up, or after a key of the command was already found. At such a time, an entry may be added to
//! an existing or a new stream, but no key is removed except a stream that had expired anyway.

use super::check::{ensure, slot_of};
use crate::keyspace::any_value::{ValueMut, ValueRef};
use crate::keyspace::effect::{Cause, Effect, EffectWriter, Turn};
use crate::keyspace::limits::STOCK_REPORTED_KEY_MAX_BYTES;
use crate::keyspace::pre_image::PreImage;
use crate::keyspace::{DbIndex, Keyspace, Misfit, NAMELESS, Slot, WrongType};
use crate::value::grants::{Grant, Kind, OwnedGrant};
use crate::value::stock::{AMOUNT_MAX, Memory, Remembered, Stock, Terms};
use crate::value::stream::{NewId, Stream};

/// How a hold has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Sold,
    Cancelled,
    Expired,
}

impl End {
    /// The name of the end in the stream.
    fn name(self) -> &'static [u8] {
        match self {
            End::Sold => b"sold",
            End::Cancelled => b"cancelled",
            End::Expired => b"expired",
        }
    }
}

impl Keyspace {
    /// The stock at `slot`, without its holds.
    #[inline]
    pub fn stock(&self, db: DbIndex, slot: Slot) -> Result<&Stock, WrongType> {
        self.grants(db, slot)?.stock().ok_or(WrongType)
    }

    /// Creates a stock under a key that does not exist.
    pub fn stock_create(&mut self, db: DbIndex, key: &[u8], terms: Terms) -> Result<Slot, WrongType> {
        let slot = self.grants_create(db, key, Kind::Stock, 0, true);
        self.stock_set(db, slot, terms)?;
        Ok(slot)
    }

    /// Sets amounts and rules, unless they are unchanged.
    pub fn stock_set(&mut self, db: DbIndex, slot: Slot, terms: Terms) -> Result<(), WrongType> {
        if self.stock(db, slot)?.terms == terms {
            return Ok(());
        }
        self.note_change(db, slot, PreImage::terms);
        self.stock_mut(db, slot)?.terms = terms;
        let database = &self.dbs[db as usize];
        let entry = database.entry(slot);
        if let ValueRef::Grants(grants) = entry.value()
            && let Some(Stock { terms, .. }) = grants.stock()
        {
            self.effects.record_hashed(db, || database.hash_at(slot), || stock_set(entry.key(), terms));
        }
        Ok(())
    }

    /// Adds a refill, remembers its ID and ends the current refill duty. Returns false, with nothing changed, if the
    /// total would be too large.
    pub fn stock_add(&mut self, db: DbIndex, slot: Slot, id: &[u8], units: u64, at_ms: i64) -> Result<bool, WrongType> {
        let total = self.stock(db, slot)?.terms.total;
        let Some(total) = total.checked_add(units).filter(|total| *total <= AMOUNT_MAX) else { return Ok(false) };
        self.note_change(db, slot, PreImage::terms);
        let terms = &mut self.stock_mut(db, slot)?.terms;
        (terms.total, terms.refiller, terms.refill_until_ms) = (total, Default::default(), 0);
        self.remember(db, slot, Memory::Refills, id, Remembered { units, at_ms })?;
        self.record_at(db, slot, |key| Effect::StockAdd { key, id, units, at_ms });
        Ok(true)
    }

    /// Sells the units that an order holds, and reports the sale to the stream. Returns the number of units, or `None`,
    /// with nothing changed, if the order holds none.
    pub fn stock_sell(&mut self, db: DbIndex, slot: Slot, order: &[u8], at_ms: i64) -> Result<Option<u64>, WrongType> {
        self.stock(db, slot)?;
        let Some(hold) = self.grants(db, slot)?.get(order).map(OwnedGrant::from) else { return Ok(None) };
        self.sell(db, slot, hold.as_grant(), at_ms)?;
        self.report_end(db, slot, hold.as_grant(), End::Sold);
        Ok(Some(hold.as_grant().units))
    }

    /// Whether the stream named by the stock at `slot`, if any, can take an entry.
    pub fn stock_can_report(&self, db: DbIndex, slot: Slot) -> bool {
        let Ok(Stock { terms, .. }) = self.stock(db, slot) else { return false };
        if terms.stream.is_empty() {
            return true;
        }
        match self.live(db, &terms.stream).map(|entry| entry.value()) {
            Some(ValueRef::Stream(stream)) => stream.next_id(NewId::Auto, self.unit_ms()).is_ok(),
            Some(_) => false,
            None => true,
        }
    }

    /// Reports to the stream that a hold, already removed, has ended.
    pub(super) fn report_hold_ended(&mut self, db: DbIndex, slot: Slot, hold: Grant<'_>, cause: Cause) {
        let end = if cause == Cause::Expiry { End::Expired } else { End::Cancelled };
        self.report_end(db, slot, hold, end);
    }

    /// Appends an entry to the stream that the stock names, if it names one that can take an entry.
    fn report_end(&mut self, db: DbIndex, slot: Slot, hold: Grant<'_>, end: End) {
        let Ok(stock) = self.stock(db, slot) else { return };
        // A key made longer by RENAME is not copied for each hold.
        if stock.terms.stream.is_empty() || self.entry(db, slot).key().len() > STOCK_REPORTED_KEY_MAX_BYTES {
            return;
        }
        let (stream, key) = (stock.terms.stream.clone(), self.entry(db, slot).key().to_vec());
        let mut at = self.dbs[db as usize].find(&stream);
        if let Some(found) = at
            && !self.entry(db, found).is_live(self.expired_until_ms())
        {
            self.expire(db, found);
            at = None;
        }
        if let Some(at) = at {
            self.release_all_due(db, at);
        }
        let now_ms = self.unit_ms();
        let id = match at.map(|at| self.stream(db, at)) {
            Some(Ok(stream)) => stream.next_id(NewId::Auto, now_ms),
            Some(Err(WrongType)) => return,
            None => Stream::new().next_id(NewId::Auto, now_ms),
        };
        let Ok(id) = id else { return };
        let (mut units, mut token) = (itoa::Buffer::new(), itoa::Buffer::new());
        let pairs: [(&[u8], &[u8]); 6] = [
            (b"event", end.name()),
            (b"stock", &key),
            (b"order", hold.holder),
            (b"units", units.format(hold.units).as_bytes()),
            (b"subject", hold.note),
            (b"token", token.format(hold.token).as_bytes()),
        ];
        let is_appended = self.stream_append(db, &stream, at, id, pairs.into_iter());
        debug_assert!(matches!(is_appended, Ok(Some(_))), "its type and its last ID have been checked");
    }

    /// Moves units from a hold to those sold.
    fn sell(&mut self, db: DbIndex, slot: Slot, hold: Grant<'_>, at_ms: i64) -> Result<(), WrongType> {
        let Grant { holder: order, token, units, note: subject, .. } = hold;
        self.take_grant(db, slot, order)?;
        self.note_turn(Turn::Sold, db, slot, hold, subject);
        self.note_change(db, slot, PreImage::terms);
        let terms = &mut self.stock_mut(db, slot)?.terms;
        terms.sold = terms.sold.saturating_add(units);
        self.remember(db, slot, Memory::Sales, order, Remembered { units, at_ms })?;
        if !subject.is_empty() {
            let units = self.stock(db, slot)?.bought_by(subject, at_ms).saturating_add(units);
            self.remember(db, slot, Memory::Buyers, subject, Remembered { units, at_ms })?;
        }
        self.record_at(db, slot, |key| Effect::StockSold { key, order, token, at_ms });
        Ok(())
    }

    fn remember(
        &mut self,
        db: DbIndex,
        slot: Slot,
        memory: Memory,
        name: &[u8],
        of_it: Remembered,
    ) -> Result<(), WrongType> {
        let must_note = self.must_note(db, slot, |value| value.compact_bytes().is_some());
        let pre_image = self.stock_mut(db, slot)?.remember(memory, name, of_it);
        if must_note {
            self.note_pre_image(db, slot, PreImage::Memory(Box::new(pre_image)));
        }
        Ok(())
    }

    fn stock_mut(&mut self, db: DbIndex, slot: Slot) -> Result<&mut Stock, WrongType> {
        match self.value_mut(db, slot) {
            Some(ValueMut::Grants(grants)) => grants.stock_mut().ok_or(WrongType),
            _ => Err(WrongType),
        }
    }

    /// The unit's time as a part of stream IDs.
    fn unit_ms(&self) -> u64 {
        self.now_ms.max(0) as u64
    }
}

/// The effect that sets these terms.
pub(in crate::keyspace) fn stock_set<'a>(key: &'a [u8], terms: &'a Terms) -> Effect<'a> {
    let Terms { total, sold, low, refill_ms, period_ms, ref stream, ref refiller, refill_until_ms } = *terms;
    Effect::StockSet { key, total, sold, low, refill_ms, period_ms, stream, refiller, refill_until_ms }
}

/// Writes the effects that give an empty stock these terms and memories.
pub(super) fn build(stock: &Stock, out: &mut EffectWriter) {
    let key = NAMELESS;
    for memory in Memory::ALL {
        for (_, name, of_it) in stock.memory_from(memory, 0) {
            out.write(0, &stock_note(memory, name, of_it));
        }
    }
    out.write(0, &stock_set(key, &stock.terms));
}

/// The effect that makes a stock remember a name while it is being built.
pub(in crate::keyspace) fn stock_note(memory: Memory, name: &[u8], of_it: Remembered) -> Effect<'_> {
    let Remembered { units, at_ms } = of_it;
    Effect::StockNote { key: NAMELESS, memory, name, units, at_ms }
}

/// Replays a recorded change.
pub(super) fn apply(ks: &mut Keyspace, db: DbIndex, effect: &Effect<'_>) -> Result<(), Misfit> {
    match *effect {
        Effect::StockSet { key, total, sold, low, refill_ms, period_ms, stream, refiller, refill_until_ms } => {
            let slot = slot_of(ks, db, key)?;
            ensure(total <= AMOUNT_MAX, Misfit::BadBytes)?;
            let (stream, refiller) = (stream.into(), refiller.into());
            let terms = Terms { total, sold, low, refill_ms, period_ms, stream, refiller, refill_until_ms };
            ks.stock_set(db, slot, terms)?;
        }
        Effect::StockAdd { key, id, units, at_ms } => {
            let slot = slot_of(ks, db, key)?;
            ensure(ks.stock_add(db, slot, id, units, at_ms)?, Misfit::BadBytes)?;
        }
        Effect::StockSold { key, order, token, at_ms } => {
            let slot = slot_of(ks, db, key)?;
            ks.stock(db, slot)?;
            let hold = ks.grants(db, slot)?.get(order).filter(|hold| hold.token == token).map(OwnedGrant::from);
            let hold = hold.ok_or(Misfit::Absent)?;
            ks.sell(db, slot, hold.as_grant(), at_ms)?;
        }
        Effect::StockNote { key, memory, name, units, at_ms } => {
            let slot = slot_of(ks, db, key)?;
            ks.stock(db, slot)?;
            ks.remember(db, slot, memory, name, Remembered { units, at_ms })?;
            ks.effects.record(db, *effect);
        }
        _ => return Err(Misfit::Elsewhere),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::replayed::{Trial, keyspace};
    use super::super::tests::replays;
    use super::*;
    use crate::keyspace::effect::Recording;
    use crate::keyspace::entry::Entry;
    use crate::value::grants::FEW;

    const KEY: &[u8] = b"stock";
    const STREAM: &[u8] = b"told";

    /// Creates a stock of `total` units, with a stream.
    fn create(ks: &mut Keyspace, total: u64) -> Slot {
        ks.stock_create(0, KEY, Terms { total, stream: STREAM.into(), ..Terms::default() }).expect("nothing was there")
    }

    /// Reserves as a command does, if enough is available.
    fn reserve(ks: &mut Keyspace, slot: Slot, order: &[u8], units: u64, lease_ms: i64, subject: &[u8]) {
        let Ok(stock) = ks.stock(0, slot) else { return };
        if stock.available() < units || ks.grants(0, slot).is_ok_and(|grants| grants.get(order).is_some()) {
            return;
        }
        let (token, since_ms) = (ks.next_token().expect("few were given out"), ks.now_ms());
        let until_ms = since_ms + lease_ms;
        let hold = Grant { holder: order, token, units, since_ms, until_ms, entered: 1, shared: false, note: subject };
        assert_eq!(ks.grant_set(0, slot, hold), Ok(true));
    }

    /// The reports in the stream: how holds ended, and of which orders.
    fn reports(ks: &mut Keyspace) -> Vec<String> {
        let Some(ValueRef::Stream(stream)) = ks.read(0, STREAM) else { return Vec::new() };
        let entries = stream.range(crate::value::stream::StreamId::MIN, crate::value::stream::StreamId::MAX);
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let of_entry = |pairs: Vec<(String, String)>| format!("{} {}", pairs[0].1, pairs[2].1);
        entries.map(|entry| of_entry(entry.pairs.map(|(field, value)| (text(field), text(value))).collect())).collect()
    }

    #[test]
    fn replaying_gives_the_same_stock() {
        replays(|ks| {
            let slot = create(ks, 10);
            for order in [b"a", b"b", b"c"] {
                reserve(ks, slot, order, 2, 5_000, b"s");
            }
            assert_eq!(ks.stock_sell(0, slot, b"a", 1_000)?, Some(2));
            assert_eq!(ks.stock_sell(0, slot, b"a", 1_000)?, None);
            assert!(ks.grant_end(0, slot, b"b")? && !ks.grant_end(0, slot, b"b")?);
            assert!(ks.stock_add(0, slot, b"r", 5, 1_000)? && !ks.stock_add(0, slot, b"much", AMOUNT_MAX, 1_000)?);
            let stock = ks.stock(0, slot)?;
            assert_eq!((stock.available(), stock.held(), stock.terms.sold, stock.terms.total), (11, 2, 2, 15));
            assert_eq!((stock.held_for(b"s"), stock.bought_by(b"s", 1_000)), (2, 2));
            assert_eq!(reports(ks), ["sold a", "cancelled b"]);
            ks.copy(0, slot, 1, b"copy");
            ks.rename(0, slot, b"renamed");
            Ok(())
        });
    }

    #[test]
    fn an_ended_hold_is_reported_once() {
        let mut ks = keyspace(0);
        let slot = create(&mut ks, 10);
        reserve(&mut ks, slot, b"a", 3, 100, b"");
        ks.begin_unit(100, Recording::Full);
        assert!(ks.find(0, KEY).is_some() && ks.stock(0, slot).is_ok_and(|stock| stock.available() == 10));
        assert_eq!(ks.effects().iter().filter(|(_, effect)| effect.key() == Some(STREAM)).count(), 1);
        assert!(ks.has_changed(), "a reader of the stream waits for the log");
        ks.begin_unit(200, Recording::Full);
        assert!(!ks.reclaim_expired(10) && reports(&mut ks) == ["expired a"]);
        // No entry is appended to a stream that has itself expired; a key of another type is left alone.
        reserve(&mut ks, slot, b"b", 3, 100, b"");
        let stream = ks.find(0, STREAM).expect("it has an entry");
        _ = ks.expire_at(0, stream, 250);
        ks.begin_unit(300, Recording::Full);
        assert!(!ks.reclaim_expired(10) && reports(&mut ks) == ["expired b"]);
        reserve(&mut ks, slot, b"c", 3, 100, b"");
        ks.put(0, STREAM, b"text");
        assert!(!ks.stock_can_report(0, slot));
        ks.begin_unit(400, Recording::Full);
        assert!(!ks.reclaim_expired(10) && reports(&mut ks).is_empty());
        assert!(ks.stock(0, slot).is_ok_and(|stock| stock.available() == 10));
    }

    #[test]
    fn unfit_changes_are_refused() {
        let mut ks = keyspace(0);
        let slot = create(&mut ks, 10);
        ks.put(0, b"s", b"");
        ks.grants_create(0, b"gate", Kind::Gate, 5, true);
        reserve(&mut ks, slot, b"a", 2, 100, b"");
        let set = |key, total| Effect::StockSet {
            key,
            total,
            sold: 0,
            low: 0,
            refill_ms: 0,
            period_ms: 0,
            stream: b"",
            refiller: b"",
            refill_until_ms: 0,
        };
        let (kind, memory) = (Kind::Stock, Memory::Sales);
        for (effect, misfit) in [
            (set(b"x", 1), Misfit::NoKey),
            (set(b"s", 1), Misfit::WrongType),
            (set(b"gate", 1), Misfit::WrongType),
            (set(KEY, AMOUNT_MAX + 1), Misfit::BadBytes),
            (Effect::StockAdd { key: b"gate", id: b"i", units: 1, at_ms: 0 }, Misfit::WrongType),
            (Effect::StockAdd { key: KEY, id: b"i", units: u64::MAX, at_ms: 0 }, Misfit::BadBytes),
            (Effect::StockSold { key: KEY, order: b"b", token: 1, at_ms: 0 }, Misfit::Absent),
            (Effect::StockSold { key: KEY, order: b"a", token: 2, at_ms: 0 }, Misfit::Absent),
            (Effect::StockSold { key: b"gate", order: b"a", token: 2, at_ms: 0 }, Misfit::WrongType),
            (Effect::StockNote { key: b"gate", memory, name: b"a", units: 1, at_ms: 0 }, Misfit::WrongType),
            (Effect::GrantsLimit { key: KEY, limit: 1, fixed: false }, Misfit::WrongType),
            (Effect::GrantsCreate { key: b"y", kind, limit: 1, fixed: true }, Misfit::BadBytes),
            (Effect::GrantsCreate { key: b"y", kind, limit: 0, fixed: false }, Misfit::BadBytes),
        ] {
            assert_eq!(ks.apply(0, &effect), Err(misfit), "{effect:?}");
        }
    }

    /// One step of the test of undo and copying.
    #[derive(Clone, Debug)]
    enum Step {
        Reserve(u8, u64, i64),
        Sell(u8),
        Cancel(u8),
        Add(u8),
        Total(u64),
        Wait(i64),
        Delete,
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            12 => (0..120u8, 1..4u64, 1..200i64).prop_map(|(order, units, ms)| Step::Reserve(order, units, ms)),
            6 => (0..120u8).prop_map(Step::Sell),
            3 => (0..120u8).prop_map(Step::Cancel),
            2 => (0..30u8).prop_map(Step::Add),
            1 => (0..2_000u64).prop_map(Step::Total),
            1 => (1..30i64).prop_map(Step::Wait),
            1 => Just(Step::Delete),
        ]
    }

    fn run(ks: &mut Keyspace, step: &Step) {
        let slot = ks.find(0, KEY).unwrap_or_else(|| create(ks, 900));
        let (order, now_ms) = (|order: &u8| [b'o', *order], ks.now_ms());
        match step {
            Step::Reserve(of, units, lease_ms) => reserve(ks, slot, &order(of), *units, *lease_ms, &[b's', of % 40]),
            Step::Sell(of) => _ = ks.stock_sell(0, slot, &order(of), now_ms),
            Step::Cancel(of) => _ = ks.grant_end(0, slot, &order(of)),
            Step::Add(id) => _ = ks.stock_add(0, slot, &[*id], 5, now_ms),
            Step::Total(total) => {
                let terms = ks.stock(0, slot).expect("a stock").terms.clone();
                assert_eq!(ks.stock_set(0, slot, Terms { total: *total, ..terms }), Ok(()));
            }
            Step::Delete if now_ms % 5 == 0 => ks.remove(0, slot),
            Step::Wait(_) | Step::Delete => {}
        }
    }

    fn wait_ms(step: &Step) -> i64 {
        if let Step::Wait(ms) = step { *ms } else { 0 }
    }

    fn shown(ks: &Keyspace) -> Vec<String> {
        let show = |entry: Entry<'_>| match entry.value() {
            ValueRef::Grants(grants) => format!("{grants:?}"),
            ValueRef::Stream(stream) => format!("{stream:?}"),
            value => value.type_name().to_owned(),
        };
        let mut all: Vec<String> = ks.stored_entries(0).map(show).collect();
        all.sort();
        all
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]

        /// A failed script is rolled back; committed steps appear in the effects, and in a copy made in parts at the
        /// same time.
        #[test]
        fn stocks_are_undone_and_copied(
            steps in proptest::collection::vec((step(), 0..4u8), 0..250),
            is_large in any::<bool>(),
        ) {
            let mut ks = keyspace(0);
            let slot = create(&mut ks, 900);
            for order in 0..if is_large { FEW as u8 + 20 } else { 3 } {
                reserve(&mut ks, slot, &[b'o', order], 1, 1_000, &[b's', order % 40]);
                assert!(ks.stock_add(0, slot, &[order], 1, 0).is_ok());
            }
            let more =
                &[Step::Reserve(200, 1, 50), Step::Sell(200), Step::Sell(7), Step::Cancel(8), Step::Add(200)];
            Trial { wait_ms, run, shown, more }.of(&mut ks, &steps);
        }
    }

    #[test]
    fn a_stock_stays_without_holds() {
        let mut ks = keyspace(0);
        let slot = create(&mut ks, 1);
        reserve(&mut ks, slot, b"a", 1, 100, b"");
        assert_eq!(ks.grant_end(0, slot, b"a"), Ok(true));
        assert_eq!(ks.find(0, KEY).map(|slot| ks.entry(0, slot).expires_at_ms()), Some(None));
    }
}
