//! Compares grants with plain lists of grants, and checks the memory they take.

use proptest::prelude::*;

use super::*;

fn grant<'a>(holder: &'a [u8], token: u64, until_ms: i64) -> Grant<'a> {
    Grant { holder, token, units: 1, since_ms: 0, until_ms, entered: 1, shared: false, note: b"" }
}

/// A lock takes a single allocation of a size that the allocator has, whatever happens to its timer while its lease is
/// not prolonged.
#[test]
fn a_lock_takes_little_memory() {
    assert_eq!(size_of::<Grants>(), 8);
    let mut lock = Grants::new(Kind::Lock, 0, false);
    assert_eq!(lock.mem_bytes(), 0);
    let since_ms = 1_800_000_000_000;
    let held = Grant { since_ms, ..grant(&[b'o'; 36], 1_000_000_000, since_ms + 86_400_000) };
    assert!(lock.set(held));
    lock.set_timer_ms(Some(held.until_ms));
    assert_eq!((lock.mem_bytes(), lock.compact_bytes()), (64, Some(55)));
    lock.set_timer_ms(Some(since_ms));
    assert_eq!((lock.mem_bytes(), lock.compact_bytes()), (80, Some(63)));
    let mut gate = Grants::new(Kind::Gate, 60, false);
    for token in 1..=60 {
        let holder = format!("{token:036}").into_bytes();
        assert!(gate.set(Grant { since_ms, ..grant(&holder, 1_000_000 + token, since_ms + 30_000) }));
    }
    assert!(gate.mem_bytes() <= 3_584, "{}", gate.mem_bytes());
}

fn name(token: u64) -> Vec<u8> {
    format!("holder:{token}").into_bytes()
}

/// A lock, gate or stock with grants of tokens 1 to `count`, whose leases end later and later.
fn with_grants(kind: Kind, count: u64) -> Grants {
    let mut grants = Grants::new(kind, if kind == Kind::Gate { 100 } else { 0 }, kind == Kind::Stock);
    for token in 1..=count {
        let holder = name(token);
        assert!(grants.set(Grant { note: b"note", ..grant(&holder, token, 1_000 + token as i64) }));
    }
    grants
}

#[test]
fn the_form_changes_between_few_and_many_and_nothing_else_does() {
    for kind in [Kind::Lock, Kind::Gate, Kind::Stock] {
        for timer_ms in [None, Some(1_001)] {
            let mut grants = with_grants(kind, FEW as u64);
            grants.set_timer_ms(timer_ms);
            let few = grants.clone();
            assert_eq!((few.0.as_large().is_some(), few.compact_bytes().is_some()), (kind == Kind::Stock, true));
            // A grant that is already there may be set again without adding one.
            let (first, last) = (name(1), name(FEW as u64 + 1));
            assert!(grants.set(Grant { note: b"note", ..grant(&first, 1, 1_001) }));
            assert_eq!(grants.compact_bytes(), few.compact_bytes());
            assert!(grants.set(grant(&last, 1_000, 9_000)));
            assert!(grants.compact_bytes().is_none() && grants.len() == FEW + 1 && grants.clone().len() == FEW + 1);
            assert!(grants.small().heap_bytes() <= 32, "its block holds no grants any longer");
            assert!(!grants.set(grant(&last, 1_001, 9_000)) && !grants.set(grant(b"other", 1_000, 9_000)));
            assert!(!grants.remove(b"other"));
            assert_eq!((grants.kind(), grants.limit(), grants.timer_ms()), (kind, few.limit(), timer_ms));
            assert_eq!((grants.is_fixed(), grants.is_empty()), (few.is_fixed(), false));
            assert_eq!(grants.stock().map(Stock::held), (kind == Kind::Stock).then_some(FEW as u64 + 1));
            grants.set_timer_ms(Some(500));
            assert_eq!((grants.timer_ms(), grants.need_timer()), (Some(500), false));
            grants.put_off_timer();
            assert_eq!(grants.timer_ms(), Some(1_001));
            grants.set_timer_ms(timer_ms);
            assert!(grants.remove(&last));
            assert_eq!(format!("{grants:?}"), format!("{few:?}"));
            assert_eq!((grants.timer_ms(), grants.mem_bytes()), (timer_ms, few.mem_bytes()));
            assert_eq!((grants.compact_bytes(), grants.elements()), (few.compact_bytes(), few.elements()));
            (1..=FEW as u64).for_each(|token| assert!(grants.remove(&name(token))));
            let is_fixed = kind == Kind::Stock;
            assert_eq!((grants.len(), grants.is_hollow(), grants.timer_ms()), (0, !is_fixed, None));
            assert_eq!((grants.kind(), grants.limit(), grants.is_fixed()), (kind, few.limit(), is_fixed));
            assert_eq!(grants.stock().map(Stock::held), is_fixed.then_some(0));
        }
    }
}

/// The units held for a stock's subject follow from its holds, whether few or many.
#[test]
fn a_stock_counts_the_units_held_for_each_subject() {
    let mut stock = with_grants(Kind::Stock, FEW as u64 + 5);
    assert_eq!(stock.stock().map(|stock| stock.held_for(b"note")), Some(FEW as u64 + 5));
    for token in 1..=10 {
        let holder = name(token);
        assert!(stock.set(Grant { note: b"other", units: 3, ..grant(&holder, token, 9_000) }));
        let held = |subject| stock.stock().map(|stock| stock.held_for(subject));
        assert_eq!((held(b"note"), held(b"other")), (Some(FEW as u64 + 5 - token), Some(3 * token)));
    }
    (1..=7).for_each(|token| assert!(stock.remove(&name(token))));
    assert_eq!(stock.stock().map(|stock| (stock.held_for(b"other"), stock.held())), Some((9, 9 + FEW as u64 - 5)));
}

#[test]
fn a_grant_that_does_not_fit_changes_nothing() {
    let mut gate = Grants::new(Kind::Gate, 3, false);
    assert!(gate.set(grant(b"a", 5, 10)) && gate.set(grant(b"a", 5, 20)));
    for strange in [
        grant(b"b", 5, 10),
        grant(b"a", 6, 10),
        grant(b"b", 0, 10),
        grant(b"b", TOKEN_MAX + 1, 10),
        Grant { units: 0, ..grant(b"b", 6, 10) },
        Grant { units: UNITS_MAX + 1, ..grant(b"b", 6, 10) },
        grant(&vec![b'h'; TEXTS_MAX_BYTES + 1], 6, 10),
    ] {
        assert!(!gate.set(strange), "{strange:?}");
    }
    assert!((gate.len(), gate.units(), gate.last_end_ms()) == (1, 1, Some(20)) && !gate.remove(b"b"));
}

/// Numbers that no command assigns survive, too, since effects and payloads may contain any number.
#[test]
fn any_time_is_kept() {
    let mut gate = Grants::new(Kind::Gate, 3, true);
    for (at, (since_ms, until_ms)) in [(i64::MIN, i64::MAX), (i64::MAX, i64::MIN), (-1, 0)].into_iter().enumerate() {
        let wanted = Grant { since_ms, note: b"n", shared: true, ..grant(b"h", at as u64 + 1, until_ms) };
        gate.remove(b"h");
        assert!(gate.set(wanted));
        assert_eq!(gate.get(b"h"), Some(wanted));
    }
    for at_ms in [i64::MIN, i64::MIN + 1, -1, 0, 1, i64::MAX] {
        gate.set_timer_ms(Some(at_ms));
        assert_eq!(gate.timer_ms(), Some(at_ms));
    }
}

/// One step of the model test.
#[derive(Clone, Debug)]
enum Step {
    /// Gives a holder a grant with the next token.
    Give {
        holder: u8,
        units: u64,
        lease: i64,
        note: usize,
    },
    /// Prolongs a holder's grant and enters it again.
    Renew {
        holder: u8,
        lease: i64,
    },
    Remove {
        holder: u8,
    },
    /// Ends the first lease to end.
    End,
    Limit(u64, bool),
    /// Sets a timer, for the first end or another time.
    Timer(Option<i64>),
}

fn step() -> impl Strategy<Value = Step> {
    let holder = || 0..120u8;
    prop_oneof![
        8 => (holder(), 1..9u64, 0..500i64, 0..40usize)
            .prop_map(|(holder, units, lease, note)| Step::Give { holder, units, lease, note }),
        3 => (holder(), 0..500i64).prop_map(|(holder, lease)| Step::Renew { holder, lease }),
        2 => holder().prop_map(|holder| Step::Remove { holder }),
        2 => Just(Step::End),
        1 => (0..200u64, any::<bool>()).prop_map(|(limit, fixed)| Step::Limit(limit, fixed)),
        2 => proptest::option::of(-1..500i64).prop_map(Step::Timer),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    /// Compares grants with a list of them, across the change from a block to trees and back.
    #[test]
    fn equal_to_a_list(steps in proptest::collection::vec(step(), 0..400)) {
        let mut grants = Grants::new(Kind::Gate, 1, false);
        let mut model: Vec<OwnedGrant> = Vec::new();
        let (mut limit, mut last_token, mut timer_ms) = ((1, false), 0, None);
        for (now_ms, step) in (0i64..).zip(steps) {
            let name = |holder: u8| vec![holder; 1 + usize::from(holder) % 40];
            match step {
                Step::Give { holder, units, lease, note } => {
                    last_token += 1 + u64::from(holder % 3);
                    let (holder, note) = (name(holder), vec![b'n'; note]);
                    let (since_ms, until_ms, shared) = (now_ms, now_ms + lease, units % 2 == 0);
                    let (token, entered) = (last_token, 1);
                    let new = Grant { holder: &holder, token, units, since_ms, until_ms, entered, shared, note: &note };
                    if grants.remove(&holder) && grants.is_empty() {
                        timer_ms = None;
                    }
                    prop_assert!(grants.set(new));
                    model.retain(|grant| *grant.holder != *holder);
                    model.push(new.into());
                }
                Step::Renew { holder, lease } => {
                    let holder = name(holder);
                    let old = model.iter_mut().find(|grant| *grant.holder == *holder);
                    prop_assert_eq!(grants.get(&holder), old.as_ref().map(|grant| grant.as_grant()));
                    if let Some(old) = old {
                        (old.until_ms, old.entered) = (now_ms + lease, old.entered + 1);
                        prop_assert!(grants.set(old.as_grant()));
                    }
                }
                Step::Remove { holder } => {
                    let (holder, before) = (name(holder), model.len());
                    model.retain(|grant| *grant.holder != *holder);
                    prop_assert_eq!(grants.remove(&holder), model.len() < before);
                    timer_ms = timer_ms.filter(|_| before == 0 || !model.is_empty());
                }
                Step::End => {
                    let first = model.iter().min_by_key(|grant| (grant.until_ms, grant.token)).cloned();
                    prop_assert_eq!(grants.first_end(), first.as_ref().map(OwnedGrant::as_grant));
                    if let Some(first) = first {
                        prop_assert!(grants.remove(&first.holder));
                        model.retain(|grant| grant.token != first.token);
                        timer_ms = timer_ms.filter(|_| !model.is_empty());
                    }
                }
                Step::Limit(to, fixed) => {
                    grants.set_limit(to, fixed);
                    limit = (to, fixed);
                }
                Step::Timer(at_ms) => {
                    timer_ms = if at_ms == Some(-1) { grants.first_end_ms() } else { at_ms };
                    grants.set_timer_ms(timer_ms);
                }
            }
            prop_assert_eq!(grants.timer_ms(), timer_ms);
            prop_assert_eq!((grants.len(), grants.is_empty()), (model.len(), model.is_empty()));
            prop_assert_eq!(grants.units(), model.iter().map(|grant| grant.units).sum::<u64>());
            prop_assert!(grants.from(0).eq(model.iter().map(OwnedGrant::as_grant)));
            let mut ends: Vec<(i64, u64)> = model.iter().map(|grant| (grant.until_ms, grant.units)).collect();
            ends.sort_unstable();
            for units in [1, 4, 400] {
                let freed = |n: usize| ends[..n].iter().map(|(_, units)| *units).sum::<u64>();
                let enough = |most: usize| (1..=most).find(|n| freed(*n) >= units);
                for most in [3, model.len()] {
                    let most = most.min(ends.len());
                    let wanted = enough(most).unwrap_or(most).checked_sub(1).map(|last| ends[last].0);
                    prop_assert_eq!(grants.frees_ms(units, most), wanted);
                }
            }
            let half = last_token / 2;
            let later = model.iter().map(OwnedGrant::as_grant).filter(|grant| grant.token >= half);
            prop_assert!(grants.from(half).eq(later));
            prop_assert_eq!(grants.first_end_ms(), model.iter().map(|grant| grant.until_ms).min());
            prop_assert_eq!(grants.last_end_ms(), model.iter().map(|grant| grant.until_ms).max());
            let first_ms = model.iter().map(|grant| grant.until_ms).min();
            let need_timer = first_ms.is_some_and(|first_ms| timer_ms.is_none_or(|timer_ms| first_ms < timer_ms));
            prop_assert_eq!(grants.need_timer(), need_timer);
            prop_assert_eq!((grants.limit(), grants.is_fixed()), limit);
            prop_assert_eq!(grants.is_hollow(), model.is_empty() && !limit.1);
            prop_assert_eq!(grants.compact_bytes().is_some(), model.len() <= FEW);
            // A value built from equal grants has an equal layout, except for spare room.
            let mut built = Grants::new(Kind::Gate, limit.0, limit.1);
            prop_assert!(grants.from(0).all(|grant| built.set(grant)));
            built.set_timer_ms(timer_ms);
            let is_large = |grants: &Grants| grants.0.as_large().is_some();
            prop_assert_eq!((built.compact_bytes(), is_large(&built)), (grants.compact_bytes(), is_large(&grants)));
            prop_assert!(built.small().bytes() == grants.small().bytes());
            prop_assert_eq!(grants.clone().mem_bytes(), built.clone().mem_bytes());
        }
    }
}
