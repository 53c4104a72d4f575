//! A stock whose units are reserved, then sold or given back. The units sold are those that the keepers sold, nothing
//! stays held, and nothing is lost. Each order has a name of its own, so each of its calls can be repeated.

use std::sync::atomic::{AtomicI64, Ordering};

use super::super::wire::{Args, words};
use super::{Keeper, Kept, Outcome, field, is_granted};

const STOCK: &str = "keeper:stock";
const TOTAL: i64 = 1_000_000;
/// Lease, long enough that none ends in a run.
const LEASE_MS: &str = "86400000";
/// Maximum number of orders that each keeper sells: the stock remembers them, and must not fill the memory.
const SALES: usize = 10_000;

#[derive(Default)]
pub(super) struct Stocks {
    sold: AtomicI64,
}

pub(super) fn set_up(keeper: &mut Keeper<'_>) {
    keeper.insist(&words(&["STOCK.SET", STOCK, &TOTAL.to_string()]));
}

pub(super) fn work(keeper: &mut Keeper<'_>, kept: &Kept) {
    let (mut orders, mut sales) = (0, 0);
    while keeper.goes_on() {
        orders += 1;
        let order = format!("order-{}-{orders}", keeper.number);
        let units = 1 + keeper.dice.below(3) as i64;
        let reserve = words(&["STOCK.RESERVE", STOCK, &order, "UNITS", &units.to_string(), "PX", LEASE_MS]);
        let is_held = match keeper.call(&reserve) {
            Outcome::Answer(reply) if is_granted(&reply) == Some(true) => true,
            Outcome::Answer(reply) => {
                keeper.fail(format!("units are there, and {reply:?} is answered"));
                false
            }
            Outcome::Refused | Outcome::Unknown => false,
        };
        if !is_held || sales == SALES || keeper.dice.once_in(2) {
            keeper.insist(&of("CANCEL", &order));
            continue;
        }
        sales += 1;
        let Some(reply) = keeper.insist(&of("COMMIT", &order)) else { return };
        if field(&reply, "units") != Some(units) {
            keeper.fail(format!("{units} units are held, and {reply:?} is answered to COMMIT"));
        }
        kept.stocks.sold.fetch_add(units, Ordering::SeqCst);
    }
}

fn of(verb: &str, order: &str) -> Args {
    words(&[&format!("STOCK.{verb}"), STOCK, order])
}

pub(super) fn check(keeper: &mut Keeper<'_>, kept: &Kept) {
    let Some(reply) = keeper.insist(&words(&["STOCK.INFO", STOCK])) else { return };
    let sold = kept.stocks.sold.load(Ordering::SeqCst);
    let figures = ["sold", "held", "available", "total"].map(|name| field(&reply, name));
    if figures != [sold, 0, TOTAL - sold, TOTAL].map(Some) {
        keeper.fail(format!("{sold} of {TOTAL} units were sold, none is held, and {reply:?} is told"));
    }
}
