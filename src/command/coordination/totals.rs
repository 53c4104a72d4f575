//! The section of INFO about grants: how many were given, refused and ended since the start, and who waits now.

use std::fmt::Write as _;

use crate::engine::Ctx;
use crate::keyspace::effect::{Family, Turn};
use crate::meters::coordination_stats::Counts;

/// Writes a line for each family, over all keys.
pub(in crate::command) fn write(text: &mut String, ctx: &Ctx<'_>) {
    let groups = ctx.ks.counted_prefixes().groups();
    let stats = &ctx.server.meters.stats.coordination;
    let sum =
        |family: Family, of: fn(&Counts) -> u64| (0..groups).map(|group| of(&stats.get(family, group))).sum::<u64>();
    // Many calls may wait, so they are looked through once.
    let (mut for_locks, mut for_gates) = (0_usize, 0_usize);
    for counted in ctx.server.waits.calls().filter_map(|call| call.counted) {
        match counted.family {
            Family::Lock => for_locks += 1,
            Family::Gate => for_gates += 1,
            _ => {}
        }
    }
    for family in [Family::Lock, Family::Gate, Family::Stock, Family::Limit] {
        let (granted, refused) =
            (sum(family, |counts| counts.turns(Turn::Granted)), sum(family, |counts| counts.refusals));
        // Writing to memory does not fail.
        let _ = write!(text, "coordination_{}:granted={granted},refused={refused}", family.name());
        let waiting = match family {
            Family::Lock => Some(for_locks),
            Family::Gate => Some(for_gates),
            _ => None,
        };
        if let Some(waiting) = waiting {
            let (waits, ended) = (sum(family, |counts| counts.waits), sum(family, |counts| counts.waits_ended));
            let waited_ms = sum(family, |counts| counts.waited_ms);
            let _ = write!(text, ",waiting={waiting},waits={waits},waits_ended={ended},waited_ms={waited_ms}");
        }
        if family != Family::Limit {
            let _ = write!(
                text,
                ",released={},lapsed={},broken={},removed={}",
                sum(family, |counts| counts.turns(Turn::Released)),
                sum(family, |counts| counts.turns(Turn::Expired)),
                sum(family, |counts| counts.turns(Turn::Broken)),
                sum(family, |counts| counts.turns(Turn::Removed)),
            );
        }
        if family == Family::Stock {
            let _ = write!(text, ",sold={}", sum(family, |counts| counts.turns(Turn::Sold)));
        }
        text.push_str("\r\n");
    }
    let dead = sum(Family::Queue, |counts| counts.turns(Turn::DeadLettered));
    let stayed = sum(Family::Queue, |counts| counts.turns(Turn::DeadLetterStays));
    let _ = write!(text, "coordination_queue:dead_letters={dead},dead_letters_stayed={stayed}\r\n");
}
