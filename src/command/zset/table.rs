//! The table of the sorted set commands.

use super::{combine, pop, range};
use super::{zadd, zcard, zincrby, zmscore, zrandmember, zrank, zrem, zrevrank, zscan, zscore};
use crate::engine::spec::{Access, Command, Flags, Group, KeySpec, Run};

const READ: Command = Command {
    flags: Flags::READONLY,
    keys: &[KeySpec::one(1, Access::Read)],
    group: Group::SortedSet,
    ..Command::EMPTY
};
const READ_FAST: Command = Command { flags: Flags::READONLY.and(Flags::FAST), ..READ };
const ADD_FAST: Command =
    Command { flags: Flags::WRITE.and(Flags::DENYOOM).and(Flags::FAST), group: Group::SortedSet, ..Command::EMPTY };
const REMOVE: Command = Command {
    flags: Flags::WRITE,
    keys: &[KeySpec::one(1, Access::Remove)],
    group: Group::SortedSet,
    ..Command::EMPTY
};
const POP: Command = Command { keys: &[KeySpec::one(1, Access::Take)], ..REMOVE };
const STORE: Command = Command { flags: Flags::WRITE.and(Flags::DENYOOM), group: Group::SortedSet, ..Command::EMPTY };
const COMBINE: Command =
    Command { flags: Flags::READONLY.and(Flags::MOVABLEKEYS), keys: &[KeySpec::counted(1, Access::Read)], ..READ };
const COMBINE_STORE: Command = Command {
    flags: Flags::WRITE.and(Flags::DENYOOM).and(Flags::MOVABLEKEYS),
    keys: &[KeySpec::one(1, Access::Overwrite), KeySpec::counted(2, Access::Read)],
    ..STORE
};
const LOGARITHMIC: &str = "O(log(N)) for N members.";
const OF_ALL: &str = "O(L + N*log(N)) for L members in all sets and N in the result.";
const OF_SMALLEST: &str = "O(N*K + M*log(M)) for N members in the smallest of K sets and M in the result.";
const OF_RANGE: &str = "O(log(N)+M) for N members in the set and M answered.";
const OF_REMOVED: &str = "O(log(N)+M) for N members in the set and M removed.";

/// The family's table.
pub const COMMANDS: &[Command] = &[
    Command {
        name: "bzmpop",
        arity: -5,
        flags: Flags::WRITE.and(Flags::BLOCKING).and(Flags::MOVABLEKEYS),
        keys: &[KeySpec::counted(2, Access::Take)],
        since: "7.0.0",
        complexity: "O(N+M*log(L)) for N keys and M members taken out of a set of L.",
        summary: "Takes members out of the first of several sorted sets that is there, or waits for one.",
        syntax: "timeout numkeys key... <MIN | MAX> [COUNT count]",
        run: Run::MayWait(pop::bzmpop),
        ..POP
    },
    Command {
        name: "bzpopmax",
        arity: -3,
        flags: Flags::WRITE.and(Flags::NOSCRIPT).and(Flags::BLOCKING).and(Flags::FAST),
        keys: &[KeySpec::range(1, -2, 1, Access::Take)],
        since: "5.0.0",
        complexity: LOGARITHMIC,
        summary: "Takes the highest member out of the first of several sorted sets that is there, or waits for one.",
        syntax: "key... timeout",
        run: Run::MayWait(pop::bzpopmax),
        ..POP
    },
    Command {
        name: "bzpopmin",
        arity: -3,
        flags: Flags::WRITE.and(Flags::NOSCRIPT).and(Flags::BLOCKING).and(Flags::FAST),
        keys: &[KeySpec::range(1, -2, 1, Access::Take)],
        since: "5.0.0",
        complexity: LOGARITHMIC,
        summary: "Takes the lowest member out of the first of several sorted sets that is there, or waits for one.",
        syntax: "key... timeout",
        run: Run::MayWait(pop::bzpopmin),
        ..POP
    },
    Command {
        name: "zadd",
        arity: -4,
        keys: &[KeySpec::one(1, Access::Modify)],
        since: "1.2.0",
        complexity: "O(M*log(N)) for M members given and N in the set.",
        summary: "Gives members their scores, adding those that are not there.",
        syntax: "key [NX | XX] [GT | LT] [CH] [INCR] (score member)...",
        run: Run::Now(zadd),
        ..ADD_FAST
    },
    Command {
        name: "zcard",
        arity: 2,
        keys: &[KeySpec::one(1, Access::Inspect)],
        since: "1.2.0",
        summary: "Answers the number of members.",
        syntax: "key",
        run: Run::Now(zcard),
        ..READ_FAST
    },
    Command {
        name: "zcount",
        arity: 4,
        since: "2.0.0",
        complexity: LOGARITHMIC,
        summary: "Counts the members within a range of scores.",
        syntax: "key min:double max:double",
        run: Run::Now(range::zcount),
        ..READ_FAST
    },
    Command {
        name: "zdiff",
        arity: -3,
        since: "6.2.0",
        complexity: OF_ALL,
        summary: "Answers the members of the first set that no other has.",
        syntax: "numkeys key... [WITHSCORES]",
        run: Run::Now(combine::zdiff),
        ..COMBINE
    },
    Command {
        name: "zdiffstore",
        arity: -4,
        since: "6.2.0",
        complexity: OF_ALL,
        summary: "Stores the members of the first set that no other has.",
        syntax: "destination numkeys key...",
        run: Run::Now(combine::zdiffstore),
        ..COMBINE_STORE
    },
    Command {
        name: "zincrby",
        arity: 4,
        keys: &[KeySpec::one(1, Access::Update)],
        since: "1.2.0",
        complexity: LOGARITHMIC,
        summary: "Adds to the score of a member and answers the sum.",
        syntax: "key increment:integer member",
        run: Run::Now(zincrby),
        ..ADD_FAST
    },
    Command {
        name: "zinter",
        arity: -3,
        since: "6.2.0",
        complexity: OF_SMALLEST,
        summary: "Answers the members that all sets have.",
        syntax: "numkeys key... [WEIGHTS weight:integer...] [AGGREGATE <SUM | MIN | MAX>] [WITHSCORES]",
        run: Run::Now(combine::zinter),
        ..COMBINE
    },
    Command {
        name: "zintercard",
        arity: -3,
        since: "7.0.0",
        complexity: "O(N*K) for N members in the smallest of K sets.",
        summary: "Counts the members that all sets have, up to a limit.",
        syntax: "numkeys key... [LIMIT limit]",
        run: Run::Now(combine::zintercard),
        ..COMBINE
    },
    Command {
        name: "zinterstore",
        arity: -4,
        since: "2.0.0",
        complexity: OF_SMALLEST,
        summary: "Stores the members that all sets have.",
        syntax: "destination numkeys key... [WEIGHTS weight:integer...] [AGGREGATE <SUM | MIN | MAX>]",
        run: Run::Now(combine::zinterstore),
        ..COMBINE_STORE
    },
    Command {
        name: "zlexcount",
        arity: 4,
        since: "2.8.9",
        complexity: LOGARITHMIC,
        summary: "Counts the members within a range of members.",
        syntax: "key min max",
        run: Run::Now(range::zlexcount),
        ..READ_FAST
    },
    Command {
        name: "zmpop",
        arity: -4,
        flags: Flags::WRITE.and(Flags::MOVABLEKEYS),
        keys: &[KeySpec::counted(1, Access::Take)],
        since: "7.0.0",
        complexity: "O(N+M*log(L)) for N keys and M members taken out of a set of L.",
        summary: "Takes members out of the first of several sorted sets that is there.",
        syntax: "numkeys key... <MIN | MAX> [COUNT count]",
        run: Run::Now(pop::zmpop),
        ..POP
    },
    Command {
        name: "zmscore",
        arity: -3,
        since: "6.2.0",
        complexity: "O(N) for N members given.",
        summary: "Answers the scores of several members.",
        syntax: "key member...",
        run: Run::Now(zmscore),
        ..READ_FAST
    },
    Command {
        name: "zpopmax",
        arity: -2,
        flags: Flags::WRITE.and(Flags::FAST),
        since: "5.0.0",
        complexity: "O(M*log(N)) for M members taken out of N.",
        summary: "Takes the highest members out.",
        syntax: "key [count]",
        run: Run::Now(pop::zpopmax),
        ..POP
    },
    Command {
        name: "zpopmin",
        arity: -2,
        flags: Flags::WRITE.and(Flags::FAST),
        since: "5.0.0",
        complexity: "O(M*log(N)) for M members taken out of N.",
        summary: "Takes the lowest members out.",
        syntax: "key [count]",
        run: Run::Now(pop::zpopmin),
        ..POP
    },
    Command {
        name: "zrandmember",
        arity: -2,
        since: "6.2.0",
        complexity: "O(M*log(N)) for M members answered out of N.",
        summary: "Answers members drawn at random, different ones unless the count is negative.",
        syntax: "key [count [WITHSCORES]]",
        tips: &["nondeterministic_output"],
        run: Run::Now(zrandmember),
        ..READ
    },
    Command {
        name: "zrange",
        arity: -4,
        since: "1.2.0",
        complexity: OF_RANGE,
        summary: "Answers the members within a range of ranks, scores or members.",
        syntax: "key start:string stop:string [BYSCORE | BYLEX] [REV] [LIMIT offset count] [WITHSCORES]",
        run: Run::Now(range::zrange),
        ..READ
    },
    Command {
        name: "zrangebylex",
        arity: -4,
        since: "2.8.9",
        complexity: OF_RANGE,
        summary: "Answers the members within a range of members.",
        syntax: "key min max [LIMIT offset count]",
        run: Run::Now(range::zrangebylex),
        ..READ
    },
    Command {
        name: "zrangebyscore",
        arity: -4,
        since: "1.0.5",
        complexity: OF_RANGE,
        summary: "Answers the members within a range of scores.",
        syntax: "key min:double max:double [WITHSCORES] [LIMIT offset count]",
        run: Run::Now(range::zrangebyscore),
        ..READ
    },
    Command {
        name: "zrangestore",
        arity: -5,
        keys: &[KeySpec::one(1, Access::Overwrite), KeySpec::one(2, Access::Read)],
        since: "6.2.0",
        complexity: "O(log(N)+M*log(M)) for N members in the set and M stored.",
        summary: "Stores the members within a range of ranks, scores or members.",
        syntax: "dst:key src:key min max [BYSCORE | BYLEX] [REV] [LIMIT offset count]",
        run: Run::Now(range::zrangestore),
        ..STORE
    },
    Command {
        name: "zrank",
        arity: -3,
        since: "2.0.0",
        complexity: LOGARITHMIC,
        summary: "Answers how many members are lower than one.",
        syntax: "key member [WITHSCORE]",
        run: Run::Now(zrank),
        ..READ_FAST
    },
    Command {
        name: "zrem",
        arity: -3,
        flags: Flags::WRITE.and(Flags::FAST),
        since: "1.2.0",
        complexity: "O(M*log(N)) for M members given and N in the set.",
        summary: "Removes members, and the key with the last one.",
        syntax: "key member...",
        run: Run::Now(zrem),
        ..REMOVE
    },
    Command {
        name: "zremrangebylex",
        arity: 4,
        since: "2.8.9",
        complexity: OF_REMOVED,
        summary: "Removes the members within a range of members.",
        syntax: "key min max",
        run: Run::Now(range::zremrangebylex),
        ..REMOVE
    },
    Command {
        name: "zremrangebyrank",
        arity: 4,
        since: "2.0.0",
        complexity: OF_REMOVED,
        summary: "Removes the members within a range of ranks.",
        syntax: "key start stop",
        run: Run::Now(range::zremrangebyrank),
        ..REMOVE
    },
    Command {
        name: "zremrangebyscore",
        arity: 4,
        since: "1.2.0",
        complexity: OF_REMOVED,
        summary: "Removes the members within a range of scores.",
        syntax: "key min:double max:double",
        run: Run::Now(range::zremrangebyscore),
        ..REMOVE
    },
    Command {
        name: "zrevrange",
        arity: -4,
        since: "1.2.0",
        complexity: OF_RANGE,
        summary: "Answers the members within a range of ranks, highest first.",
        syntax: "key start stop [WITHSCORES]",
        run: Run::Now(range::zrevrange),
        ..READ
    },
    Command {
        name: "zrevrangebylex",
        arity: -4,
        since: "2.8.9",
        complexity: OF_RANGE,
        summary: "Answers the members within a range of members, highest first.",
        syntax: "key max min [LIMIT offset count]",
        run: Run::Now(range::zrevrangebylex),
        ..READ
    },
    Command {
        name: "zrevrangebyscore",
        arity: -4,
        since: "2.2.0",
        complexity: OF_RANGE,
        summary: "Answers the members within a range of scores, highest first.",
        syntax: "key max:double min:double [WITHSCORES] [LIMIT offset count]",
        run: Run::Now(range::zrevrangebyscore),
        ..READ
    },
    Command {
        name: "zrevrank",
        arity: -3,
        since: "2.0.0",
        complexity: LOGARITHMIC,
        summary: "Answers how many members are higher than one.",
        syntax: "key member [WITHSCORE]",
        run: Run::Now(zrevrank),
        ..READ_FAST
    },
    Command {
        name: "zscan",
        arity: -3,
        since: "2.8.0",
        complexity: "O(1) a call, O(N) for a whole walk over N members.",
        summary: "Walks the members and their scores in steps.",
        syntax: "key cursor [MATCH pattern] [COUNT count]",
        tips: &["nondeterministic_output"],
        run: Run::Now(zscan),
        ..READ
    },
    Command {
        name: "zscore",
        arity: 3,
        since: "1.2.0",
        summary: "Answers the score of a member.",
        syntax: "key member",
        run: Run::Now(zscore),
        ..READ_FAST
    },
    Command {
        name: "zunion",
        arity: -3,
        since: "6.2.0",
        complexity: OF_ALL,
        summary: "Answers the members that any set has.",
        syntax: "numkeys key... [WEIGHTS weight:integer...] [AGGREGATE <SUM | MIN | MAX>] [WITHSCORES]",
        run: Run::Now(combine::zunion),
        ..COMBINE
    },
    Command {
        name: "zunionstore",
        arity: -4,
        since: "2.0.0",
        complexity: OF_ALL,
        summary: "Stores the members that any set has.",
        syntax: "destination numkeys key... [WEIGHTS weight:integer...] [AGGREGATE <SUM | MIN | MAX>]",
        run: Run::Now(combine::zunionstore),
        ..COMBINE_STORE
    },
];
