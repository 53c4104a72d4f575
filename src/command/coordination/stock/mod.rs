//! STOCK: units that are reserved for a while, then sold or returned.
//!
//! An order holds units under its own name, with a lease. A hold ends in one of three ways: STOCK.COMMIT sells the
//! units, STOCK.CANCEL returns them, or the lease ends, which returns them, too. However often and in whichever order
//! these happen, units are sold once or returned once, since the hold either exists or does not. Sold orders are
//! remembered: a repeated COMMIT gets the first reply again, and CANCEL replies that the order was sold.
//!
//! | File | Calls |
//! |---|---|
//! | [`owner`] | SET, ADD: the number of units |
//! | [`reserve`] | RESERVE |
//! | [`settle`] | COMMIT, CANCEL |
//! | [`look`] | INFO, HOLDS |

mod common;
mod look;
mod owner;
mod reserve;
mod settle;

use super::grant::BASE;
use crate::command::help::family;
use crate::engine::{Command, Run};
use crate::spec::{Access, Begin, Find, Flags, KeySpec};

/// The family's table.
pub(crate) const COMMANDS: &[Command] = &[
    family("stock"),
    Command {
        name: "stock.set",
        categories: &["@dangerous"],
        arity: -3,
        flags: Flags::WRITE.union(Flags::DENYOOM),
        keys: &[
            KeySpec::one(1, Access::Update),
            KeySpec {
                begin: Begin::Keyword("STREAM", 3),
                find: Find::Range { last: 0, step: 1, limit: 0 },
                access: Access::Insert,
            },
        ],
        summary: "Sets the total number of units of a stock, and its rules.",
        syntax: "key total:integer [<LOW units:integer refill-ms:integer | NOLOW>:low] \
            [<STREAM stream:key | NOSTREAM>:stream-block] [PERIOD period-ms:integer]",
        run: Run::Now(owner::set),
        ..BASE
    },
    Command {
        name: "stock.add",
        arity: 4,
        flags: Flags::WRITE.union(Flags::DENYOOM).union(Flags::FAST),
        keys: &[KeySpec::one(1, Access::Update)],
        complexity: "O(log N) with N the number of remembered refills",
        summary: "Adds a refill to a stock, once for each id.",
        syntax: "key id units:integer",
        run: Run::Now(owner::add),
        ..BASE
    },
    Command {
        name: "stock.reserve",
        arity: -5,
        flags: Flags::WRITE.union(Flags::DENYOOM).union(Flags::FAST),
        keys: &[KeySpec::one(1, Access::Update)],
        complexity: "O(log N) with N the number of holds and of remembered orders and subjects",
        summary: "Reserves units of a stock for an order until a lease ends.",
        syntax: "key order [UNITS units:integer] <PX milliseconds | EX seconds | PXAT unix-time-milliseconds | \
            EXAT unix-time-seconds>:lease [PER subject max:integer]",
        run: Run::Now(|ctx, args| ctx.as_one_change(|ctx| reserve::reserve(ctx, args))),
        ..BASE
    },
    Command {
        name: "stock.commit",
        arity: 3,
        flags: Flags::WRITE.union(Flags::FAST),
        keys: &[KeySpec::one(1, Access::Update)],
        complexity: "O(log N) with N the number of holds and of remembered orders and subjects",
        summary: "Sells the units that an order holds.",
        syntax: "key order",
        run: Run::Now(|ctx, args| ctx.as_one_change(|ctx| settle::commit(ctx, args))),
        ..BASE
    },
    Command {
        name: "stock.cancel",
        arity: 3,
        flags: Flags::WRITE.union(Flags::FAST),
        keys: &[KeySpec::one(1, Access::Update)],
        complexity: "O(log N) with N the number of holds",
        summary: "Returns the units that an order holds to the stock.",
        syntax: "key order",
        run: Run::Now(|ctx, args| ctx.as_one_change(|ctx| settle::cancel(ctx, args))),
        ..BASE
    },
    Command {
        name: "stock.info",
        arity: -2,
        flags: Flags::READONLY.union(Flags::FAST),
        keys: &[KeySpec::one(1, Access::Read)],
        summary: "Returns the amounts and rules of a stock, and the units that a subject holds and has bought.",
        syntax: "key [PER subject]",
        run: Run::Now(look::info),
        ..BASE
    },
    Command {
        name: "stock.holds",
        arity: -3,
        flags: Flags::READONLY,
        keys: &[KeySpec::one(1, Access::Read)],
        complexity: "O(log N + M) with N the number of holds and M the number returned",
        summary: "Lists the holds of a stock, from a cursor on.",
        syntax: "key cursor:integer [COUNT count:integer]",
        run: Run::Now(look::holds),
        ..BASE
    },
];
