//! STOCK: units that are reserved for a while, then sold or given back.
//!
//! An order holds units under its own name, with a lease. It ends in one of three ways: STOCK.COMMIT sells them, STOCK.CANCEL gives them
//! back, or the lease is over, which gives them back, too. Whatever of these is called again, and in whatever order, units are sold once or
//! given back once: the hold is there, or it is not. Orders that were sold are remembered, so that to commit one again is answered as before,
//! and to cancel it is answered that it was sold.
//!
//! | File | Calls |
//! |---|---|
//! | [`owner`] | SET, ADD: how many units there are |
//! | [`reserve`] | RESERVE |
//! | [`settle`] | COMMIT, CANCEL |
//! | [`look`] | INFO, HOLDS |

mod common;
mod look;
mod owner;
mod reserve;
mod settle;

use super::grant::BASE;
use crate::engine::{Command, Run};
use crate::spec::{Access, Begin, Find, Flags, KeySpec};

/// The family's table.
pub(crate) const COMMANDS: &[Command] = &[
    Command {
        name: "stock.set",
        categories: &["@dangerous"],
        arity: -3,
        flags: Flags::WRITE.and(Flags::DENYOOM),
        keys: &[
            KeySpec::one(1, Access::Update),
            KeySpec {
                begin: Begin::Keyword("STREAM", 3),
                find: Find::Range { last: 0, step: 1, limit: 0 },
                access: Access::Insert,
            },
        ],
        summary: "Sets how many units a stock has in all, and its rules.",
        syntax: "key total:integer [<LOW units:integer refill-ms:integer | NOLOW>:low] [<STREAM stream:key | NOSTREAM>:stream-block] \
            [PERIOD period-ms:integer]",
        run: Run::Now(owner::set),
        ..BASE
    },
    Command {
        name: "stock.add",
        arity: 4,
        flags: Flags::WRITE.and(Flags::DENYOOM).and(Flags::FAST),
        keys: &[KeySpec::one(1, Access::Update)],
        complexity: "O(log N) with N the number of refills that are remembered",
        summary: "Adds a refill to a stock, once for each id.",
        syntax: "key id units:integer",
        run: Run::Now(owner::add),
        ..BASE
    },
    Command {
        name: "stock.reserve",
        arity: -5,
        flags: Flags::WRITE.and(Flags::DENYOOM).and(Flags::FAST),
        keys: &[KeySpec::one(1, Access::Update)],
        complexity: "O(log N) with N the number of holds, and of orders and subjects that are remembered",
        summary: "Holds units of a stock for an order, for as long as a lease.",
        syntax: "key order [UNITS units:integer] <PX milliseconds | EX seconds | PXAT unix-time-milliseconds | EXAT unix-time-seconds>:lease [PER subject max:integer]",
        run: Run::Now(|ctx, args| ctx.as_one_change(|ctx| reserve::reserve(ctx, args))),
        ..BASE
    },
    Command {
        name: "stock.commit",
        arity: 3,
        flags: Flags::WRITE.and(Flags::FAST),
        keys: &[KeySpec::one(1, Access::Update)],
        complexity: "O(log N) with N the number of holds, and of orders and subjects that are remembered",
        summary: "Sells what an order holds.",
        syntax: "key order",
        run: Run::Now(|ctx, args| ctx.as_one_change(|ctx| settle::commit(ctx, args))),
        ..BASE
    },
    Command {
        name: "stock.cancel",
        arity: 3,
        flags: Flags::WRITE.and(Flags::FAST),
        keys: &[KeySpec::one(1, Access::Update)],
        complexity: "O(log N) with N the number of holds",
        summary: "Gives back what an order holds.",
        syntax: "key order",
        run: Run::Now(|ctx, args| ctx.as_one_change(|ctx| settle::cancel(ctx, args))),
        ..BASE
    },
    Command {
        name: "stock.info",
        arity: -2,
        flags: Flags::READONLY.and(Flags::FAST),
        keys: &[KeySpec::one(1, Access::Read)],
        summary: "Tells how much of a stock is available, held and sold, its rules, and what a subject holds and has bought.",
        syntax: "key [PER subject]",
        run: Run::Now(look::info),
        ..BASE
    },
    Command {
        name: "stock.holds",
        arity: -3,
        flags: Flags::READONLY,
        keys: &[KeySpec::one(1, Access::Read)],
        complexity: "O(log N + M) with N the number of holds and M that of those answered",
        summary: "Tells which orders hold units of a stock, from a cursor on.",
        syntax: "key cursor:integer [COUNT count:integer]",
        run: Run::Now(look::holds),
        ..BASE
    },
];
