//! LIMIT.TAKE asks several limits in one call and charges all of them or none; LIMIT.REFUND gives back what a call took.
//!
//! Each rule has a key with a plain value, so that what is there can be read, and shared with programs that count by themselves:
//!
//! | Kind | At the key | Forgets |
//! |---|---|---|
//! | GCRA | the theoretical arrival time in Unix ns, as CL.THROTTLE keeps it | continuously |
//! | FIXED | a counter that expires a window after its first unit | all at once |
//! | CALENDAR | a counter that expires with its hour, day, week or month | all at once |
//! | SLIDING | a hash of two counts, of this window and the one before | continuously, by estimate |
//! | EXACT | a sorted set with a member for each unit, scored by its time | each unit after a window |
//! | CONCURRENCY | a gate, whose holders are the IDs of requests | each request's units at its lease's end, or when they are given back |
//!
//! First all rules are looked at ([`look`]), and only when each of them grants they are charged ([`charge`]). So a refusal changes and
//! records nothing. What a request with an ID took is kept under that ID as a key of its own ([`request`]), which makes a retry safe and
//! LIMIT.REFUND exact: a key, because then it is declared as any other, expires, is evicted, and counts as memory.
//!
//! Time is the unit's. When the clock steps back, nothing is forgotten sooner: what was counted stays until the clock has caught up.

mod charge;
mod look;
mod members;
mod places;
mod refund;
mod request;
mod rule;
mod sliding;
mod take;

use crate::engine::{Command, Run};
use crate::spec::{Access, Flags, Group, KeySpec};

/// The family's table.
pub(crate) const COMMANDS: &[Command] = &[
    Command {
        name: "limit.take",
        arity: -7,
        flags: Flags::WRITE.and(Flags::DENYOOM).and(Flags::MOVABLEKEYS),
        keys: &[KeySpec::unknown(Access::Update)],
        find_keys: Some(rule::find_keys),
        group: Group::Coordination,
        since: "0.1.0",
        complexity: "O(N) for N rules; O(U*log(M)) for an EXACT one, where U units are taken or forgotten of M",
        summary: "Takes units from several limits if all of them grant; else tells which refuse, and for how long.",
        syntax: "[ID request:key] [DRYRUN] [UNITS units:integer] RULES numrules:integer (key \
            <GCRA rate:integer period-ms:integer burst:integer | FIXED max:integer window-ms:integer | \
            SLIDING max:integer window-ms:integer | EXACT max:integer window-ms:integer | \
            CALENDAR max:integer <HOUR | DAY | WEEK | MONTH>:unit offset-minutes:integer | \
            CONCURRENCY limit:integer lease-ms:integer>:kind):rule...",
        run: Run::Now(take::take),
        ..Command::EMPTY
    },
    Command {
        name: "limit.refund",
        arity: -3,
        flags: Flags::WRITE,
        keys: &[KeySpec::rest(1, 1, Access::Update)],
        group: Group::Coordination,
        since: "0.1.0",
        complexity: "O(N) for N keys; O(U*log(M)) for an EXACT one, where U units of M are given back",
        summary: "Gives back once what the request of this ID took, as far as its limits still count it.",
        syntax: "request:key key...",
        run: Run::Now(refund::refund),
        ..Command::EMPTY
    },
];
