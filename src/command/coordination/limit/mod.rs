//! LIMIT.TAKE checks several limits in one call and charges all of them or none; LIMIT.REFUND returns the units of a
//! call, and LIMIT.SETTLE corrects them to what was used.
//!
//! Each rule has a key with a plain value, which can be read, and shared with programs that count by themselves:
//!
//! | Kind | Value | Forgets |
//! |---|---|---|
//! | GCRA | the theoretical arrival time in Unix ns, as CL.THROTTLE keeps it | continuously |
//! | FIXED | a counter that expires a window after its first unit | all at once |
//! | CALENDAR | a counter that expires with its hour, day, week or month | all at once |
//! | SLIDING | a hash of two counts, of this window and the one before | continuously, by estimate |
//! | EXACT | a sorted set with a member for each unit, scored by its time | each unit after a window |
//! | CONCURRENCY | a gate, held by the IDs of requests | a request's units, on release or when the lease ends |
//!
//! A call first evaluates all rules ([`look`]). Only if each of them grants are they charged ([`charge`]), so a refusal
//! changes and records nothing. The units of a request with an ID are recorded under the ID, a key of its own
//! ([`request`]), which makes a retry safe, and LIMIT.REFUND and LIMIT.SETTLE exact. As a key the record is declared
//! like any other, expires, can be evicted, and counts as memory.
//!
//! Time is the unit's. If the clock steps back, nothing is forgotten sooner: counted units stay until the clock has
//! caught up.

mod charge;
mod look;
mod members;
mod places;
mod refund;
mod request;
mod rule;
mod settle;
mod sliding;
mod take;

use crate::command::help::family;
use crate::engine::{Command, Run};
use crate::spec::{Access, Flags, Group, KeySpec};

/// The family's table.
pub(crate) const COMMANDS: &[Command] = &[
    family("limit"),
    Command {
        name: "limit.take",
        arity: -7,
        flags: Flags::WRITE.union(Flags::DENYOOM).union(Flags::MOVABLEKEYS),
        keys: &[KeySpec::unknown(Access::Update)],
        find_keys: Some(rule::find_keys),
        group: Group::Coordination,
        since: "0.1.0",
        complexity: "O(N) for N rules; O(U*log(M)) for an EXACT rule that counts M units, U of them taken or forgotten",
        summary: "Takes units from several limits if none refuses; else returns which limits refuse, and for how long.",
        syntax: "[ID request:key] [PX milliseconds | EX seconds | PXAT unix-time-milliseconds | \
            EXAT unix-time-seconds]:keep [DRYRUN] [UNITS units:integer] RULES numrules:integer (key \
            <GCRA rate:integer period-ms:integer burst:integer | FIXED max:integer window-ms:integer | \
            SLIDING max:integer window-ms:integer | EXACT max:integer window-ms:integer | \
            CALENDAR max:integer <HOUR | DAY | WEEK | MONTH>:unit offset-minutes:integer | \
            CONCURRENCY limit:integer lease-ms:integer>:kind [UNITS units:integer] [DEBT units:integer]):rule...",
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
        complexity: "O(N) for N keys; O(U*log(M)) for an EXACT rule that counts M units, U of them returned",
        summary: "Returns the units of a request to its limits, once, as far as the limits still count them.",
        syntax: "request:key key...",
        run: Run::Now(refund::refund),
        ..Command::EMPTY
    },
    Command {
        name: "limit.settle",
        arity: -4,
        flags: Flags::WRITE.union(Flags::DENYOOM),
        keys: &[KeySpec::one(1, Access::Update), KeySpec::rest(3, 1, Access::Update)],
        group: Group::Coordination,
        since: "0.1.0",
        complexity: "O(N) for N keys; O(U*log(M)) for an EXACT rule that counts M units, U of them returned or taken",
        summary: "Corrects the units that a request has taken to those that it has used, once for each key.",
        syntax: "request:key units:integer key...",
        run: Run::Now(settle::settle),
        ..Command::EMPTY
    },
];
