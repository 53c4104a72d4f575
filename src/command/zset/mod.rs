//! Sorted sets: members ordered by score.

mod combine;
mod common;
mod member;
mod pop;
mod range;

use combine::{zdiff, zdiffstore, zinter, zintercard, zinterstore, zunion, zunionstore};
pub(super) use common::{read, store};
pub(super) use member::{AddRules, add};
use member::{zadd, zcard, zincrby, zmscore, zrandmember, zrank, zrem, zrevrank, zscan, zscore};
use pop::{bzmpop, bzpopmax, bzpopmin, zmpop, zpopmax, zpopmin};
use range::{
    zcount, zlexcount, zrange, zrangebylex, zrangebyscore, zrangestore, zremrangebylex, zremrangebyrank,
    zremrangebyscore, zrevrange, zrevrangebylex, zrevrangebyscore,
};

use crate::engine::{Command, Run};
use crate::spec::{Access, AnswersAll, Flags, Group, KeySpec};

const COMBINE: Command = Command {
    flags: Flags::READONLY.union(Flags::MOVABLEKEYS),
    keys: &[KeySpec::counted(1, Access::Read)],
    group: Group::SortedSet,
    ..Command::EMPTY
};
const COMBINE_STORE: Command = Command {
    flags: Flags::WRITE.union(Flags::DENYOOM).union(Flags::MOVABLEKEYS),
    keys: &[KeySpec::one(1, Access::Overwrite), KeySpec::counted(2, Access::Read)],
    ..COMBINE
};
const OF_ALL: &str = "O(L+N*log N) for L members in all sets and N in the result";
const OF_SMALLEST: &str = "O(N*K+M*log M) for N members in the smallest of K sets and M in the result";

/// The family's table.
pub(super) const COMMANDS: &[Command] = &[
    Command {
        name: "bzmpop",
        arity: -5,
        flags: Flags::WRITE.union(Flags::BLOCKING).union(Flags::MOVABLEKEYS),
        keys: &[KeySpec::counted(2, Access::Take)],
        group: Group::SortedSet,
        since: "7.0.0",
        complexity: "O(K+M*log N) for K keys and M members",
        summary: "Removes and returns members of the first sorted set that exists, or waits for one.",
        syntax: "timeout numkeys key... <MIN | MAX>:where [COUNT count]",
        run: Run::MayWait(bzmpop),
        ..Command::EMPTY
    },
    Command {
        name: "bzpopmax",
        arity: -3,
        flags: Flags::WRITE.union(Flags::BLOCKING).union(Flags::FAST),
        keys: &[KeySpec::range(1, -2, 1, Access::Take)],
        group: Group::SortedSet,
        since: "5.0.0",
        complexity: "O(log N)",
        summary: "Removes and returns the highest member of the first sorted set that exists, or waits for one.",
        syntax: "key... timeout",
        run: Run::MayWait(bzpopmax),
        ..Command::EMPTY
    },
    Command {
        name: "bzpopmin",
        arity: -3,
        flags: Flags::WRITE.union(Flags::BLOCKING).union(Flags::FAST),
        keys: &[KeySpec::range(1, -2, 1, Access::Take)],
        group: Group::SortedSet,
        since: "5.0.0",
        complexity: "O(log N)",
        summary: "Removes and returns the lowest member of the first sorted set that exists, or waits for one.",
        syntax: "key... timeout",
        run: Run::MayWait(bzpopmin),
        ..Command::EMPTY
    },
    Command {
        name: "zadd",
        arity: -4,
        flags: Flags::WRITE.union(Flags::DENYOOM).union(Flags::FAST),
        keys: &[KeySpec::one(1, Access::Modify)],
        group: Group::SortedSet,
        since: "1.2.0",
        complexity: "O(log N) for each member",
        summary: "Adds members to a sorted set, or updates their scores.",
        syntax: "key [NX | XX]:condition [GT | LT]:comparison [CH:change] [INCR:increment] (score member):data...",
        run: Run::Now(zadd),
        ..Command::EMPTY
    },
    Command {
        name: "zcard",
        arity: 2,
        flags: Flags::READONLY.union(Flags::FAST),
        keys: &[KeySpec::one(1, Access::Inspect)],
        group: Group::SortedSet,
        since: "1.2.0",
        summary: "Returns the number of members of a sorted set.",
        syntax: "key",
        run: Run::Now(zcard),
        ..Command::EMPTY
    },
    Command {
        name: "zcount",
        arity: 4,
        flags: Flags::READONLY.union(Flags::FAST),
        keys: &[KeySpec::one(1, Access::Read)],
        group: Group::SortedSet,
        since: "2.0.0",
        complexity: "O(log N)",
        summary: "Counts the members of a sorted set with scores in a range.",
        syntax: "key min:double max:double",
        run: Run::Now(zcount),
        ..Command::EMPTY
    },
    Command {
        name: "zdiff",
        arity: -3,
        since: "6.2.0",
        complexity: OF_ALL,
        summary: "Returns the members of the first set that no other set has.",
        syntax: "numkeys key... [WITHSCORES]",
        run: Run::Now(zdiff),
        ..COMBINE
    },
    Command {
        name: "zdiffstore",
        arity: -4,
        since: "6.2.0",
        complexity: OF_ALL,
        summary: "Stores the members of the first set that no other set has.",
        syntax: "destination numkeys key...",
        event: "zdiffstore",
        run: Run::Now(|ctx, args| ctx.as_one_change(|ctx| zdiffstore(ctx, args))),
        ..COMBINE_STORE
    },
    Command {
        name: "zincrby",
        arity: 4,
        flags: Flags::WRITE.union(Flags::DENYOOM).union(Flags::FAST),
        keys: &[KeySpec::one(1, Access::Update)],
        group: Group::SortedSet,
        since: "1.2.0",
        complexity: "O(log N)",
        summary: "Increments the score of a member of a sorted set.",
        syntax: "key increment:integer member",
        run: Run::Now(zincrby),
        ..Command::EMPTY
    },
    Command {
        name: "zinter",
        arity: -3,
        since: "6.2.0",
        complexity: OF_SMALLEST,
        summary: "Returns the members that all sets have.",
        syntax: "numkeys key... [WEIGHTS weight:integer...] [AGGREGATE <SUM | MIN | MAX | COUNT>]:aggregate \
            [WITHSCORES]",
        run: Run::Now(zinter),
        ..COMBINE
    },
    Command {
        name: "zintercard",
        arity: -3,
        since: "7.0.0",
        complexity: "O(N*K) for N members in the smallest of K sets.",
        summary: "Returns the number of members that all sets have, counted up to a limit.",
        syntax: "numkeys key... [LIMIT limit]",
        run: Run::Now(zintercard),
        ..COMBINE
    },
    Command {
        name: "zinterstore",
        arity: -4,
        since: "2.0.0",
        complexity: OF_SMALLEST,
        summary: "Stores the members that all sets have.",
        syntax: "destination numkeys key... [WEIGHTS weight:integer...] [AGGREGATE <SUM | MIN | MAX | \
            COUNT>]:aggregate",
        event: "zinterstore",
        run: Run::Now(|ctx, args| ctx.as_one_change(|ctx| zinterstore(ctx, args))),
        ..COMBINE_STORE
    },
    Command {
        name: "zlexcount",
        arity: 4,
        flags: Flags::READONLY.union(Flags::FAST),
        keys: &[KeySpec::one(1, Access::Read)],
        group: Group::SortedSet,
        since: "2.8.9",
        complexity: "O(log N)",
        summary: "Counts the members of a sorted set in a range of strings.",
        syntax: "key min:string max:string",
        run: Run::Now(zlexcount),
        ..Command::EMPTY
    },
    Command {
        name: "zmpop",
        arity: -4,
        flags: Flags::WRITE.union(Flags::MOVABLEKEYS),
        keys: &[KeySpec::counted(1, Access::Take)],
        group: Group::SortedSet,
        since: "7.0.0",
        complexity: "O(K+M*log N) for K keys and M members",
        summary: "Removes and returns members of the first sorted set that exists.",
        syntax: "numkeys key... <MIN | MAX>:where [COUNT count]",
        run: Run::Now(zmpop),
        ..Command::EMPTY
    },
    Command {
        name: "zmscore",
        arity: -3,
        flags: Flags::READONLY.union(Flags::FAST),
        keys: &[KeySpec::one(1, Access::Read)],
        group: Group::SortedSet,
        since: "6.2.0",
        complexity: "O(N) for N members",
        summary: "Returns the scores of several members of a sorted set.",
        syntax: "key member...",
        run: Run::Now(zmscore),
        ..Command::EMPTY
    },
    Command {
        name: "zpopmax",
        arity: -2,
        flags: Flags::WRITE.union(Flags::FAST),
        keys: &[KeySpec::one(1, Access::Take)],
        group: Group::SortedSet,
        since: "5.0.0",
        complexity: "O(M*log N) for M members",
        summary: "Removes and returns the members with the highest scores of a sorted set.",
        syntax: "key [count]",
        run: Run::Now(zpopmax),
        ..Command::EMPTY
    },
    Command {
        name: "zpopmin",
        arity: -2,
        flags: Flags::WRITE.union(Flags::FAST),
        keys: &[KeySpec::one(1, Access::Take)],
        group: Group::SortedSet,
        since: "5.0.0",
        complexity: "O(M*log N) for M members",
        summary: "Removes and returns the members with the lowest scores of a sorted set.",
        syntax: "key [count]",
        run: Run::Now(zpopmin),
        ..Command::EMPTY
    },
    Command {
        name: "zrandmember",
        arity: -2,
        flags: Flags::READONLY,
        keys: &[KeySpec::one(1, Access::Read)],
        group: Group::SortedSet,
        since: "6.2.0",
        complexity: "O(N) for N members",
        summary: "Returns random members of a sorted set.",
        syntax: "key [count [WITHSCORES]]:options",
        tips: &["nondeterministic_output"],
        run: Run::Now(zrandmember),
        ..Command::EMPTY
    },
    Command {
        name: "zrange",
        answers_all: AnswersAll::ToTheLast,
        arity: -4,
        flags: Flags::READONLY,
        keys: &[KeySpec::one(1, Access::Read)],
        group: Group::SortedSet,
        since: "1.2.0",
        complexity: "O(log(N)+M) for M members",
        summary: "Returns a range of a sorted set by rank, score or string.",
        syntax: "key start:string stop:string [BYSCORE | BYLEX]:sortby [REV] [LIMIT offset count] [WITHSCORES]",
        run: Run::Now(zrange),
        ..Command::EMPTY
    },
    Command {
        name: "zrangebylex",
        answers_all: AnswersAll::Without("limit"),
        arity: -4,
        flags: Flags::READONLY,
        keys: &[KeySpec::one(1, Access::Read)],
        group: Group::SortedSet,
        since: "2.8.9",
        complexity: "O(log(N)+M) for M members",
        summary: "Returns the members of a sorted set in a range of strings.",
        syntax: "key min:string max:string [LIMIT offset count]",
        run: Run::Now(zrangebylex),
        ..Command::EMPTY
    },
    Command {
        name: "zrangebyscore",
        answers_all: AnswersAll::Without("limit"),
        arity: -4,
        flags: Flags::READONLY,
        keys: &[KeySpec::one(1, Access::Read)],
        group: Group::SortedSet,
        since: "1.0.5",
        complexity: "O(log(N)+M) for M members",
        summary: "Returns the members of a sorted set with scores in a range.",
        syntax: "key min:double max:double [WITHSCORES] [LIMIT offset count]",
        run: Run::Now(zrangebyscore),
        ..Command::EMPTY
    },
    Command {
        name: "zrangestore",
        arity: -5,
        flags: Flags::WRITE.union(Flags::DENYOOM),
        keys: &[KeySpec::one(1, Access::Overwrite), KeySpec::one(2, Access::Read)],
        group: Group::SortedSet,
        since: "6.2.0",
        complexity: "O(log(N)+M) for M members",
        summary: "Stores a range of a sorted set at another key.",
        syntax: "dst:key src:key min:string max:string [BYSCORE | BYLEX]:sortby [REV] [LIMIT offset count]",
        event: "zrangestore",
        run: Run::Now(|ctx, args| ctx.as_one_change(|ctx| zrangestore(ctx, args))),
        ..Command::EMPTY
    },
    Command {
        name: "zrank",
        arity: -3,
        flags: Flags::READONLY.union(Flags::FAST),
        keys: &[KeySpec::one(1, Access::Read)],
        group: Group::SortedSet,
        since: "2.0.0",
        complexity: "O(log N)",
        summary: "Returns the rank of a member of a sorted set, counted from the lowest score.",
        syntax: "key member [WITHSCORE]",
        run: Run::Now(zrank),
        ..Command::EMPTY
    },
    Command {
        name: "zrem",
        arity: -3,
        flags: Flags::WRITE.union(Flags::FAST),
        keys: &[KeySpec::one(1, Access::Remove)],
        group: Group::SortedSet,
        since: "1.2.0",
        complexity: "O(log N) for each member",
        summary: "Removes members of a sorted set.",
        syntax: "key member...",
        run: Run::Now(zrem),
        ..Command::EMPTY
    },
    Command {
        name: "zremrangebylex",
        arity: 4,
        flags: Flags::WRITE,
        keys: &[KeySpec::one(1, Access::Remove)],
        group: Group::SortedSet,
        since: "2.8.9",
        complexity: "O(log(N)+M) for M members",
        summary: "Removes the members of a sorted set in a range of strings.",
        syntax: "key min:string max:string",
        event: "zremrangebylex",
        run: Run::Now(zremrangebylex),
        ..Command::EMPTY
    },
    Command {
        name: "zremrangebyrank",
        arity: 4,
        flags: Flags::WRITE,
        keys: &[KeySpec::one(1, Access::Remove)],
        group: Group::SortedSet,
        since: "2.0.0",
        complexity: "O(log(N)+M) for M members",
        summary: "Removes the members of a sorted set in a range of ranks.",
        syntax: "key start stop",
        event: "zremrangebyrank",
        run: Run::Now(zremrangebyrank),
        ..Command::EMPTY
    },
    Command {
        name: "zremrangebyscore",
        arity: 4,
        flags: Flags::WRITE,
        keys: &[KeySpec::one(1, Access::Remove)],
        group: Group::SortedSet,
        since: "1.2.0",
        complexity: "O(log(N)+M) for M members",
        summary: "Removes the members of a sorted set with scores in a range.",
        syntax: "key min:double max:double",
        event: "zremrangebyscore",
        run: Run::Now(zremrangebyscore),
        ..Command::EMPTY
    },
    Command {
        name: "zrevrange",
        answers_all: AnswersAll::ToTheLast,
        arity: -4,
        flags: Flags::READONLY,
        keys: &[KeySpec::one(1, Access::Read)],
        group: Group::SortedSet,
        since: "1.2.0",
        complexity: "O(log(N)+M) for M members",
        summary: "Returns a range of a sorted set by rank, highest score first.",
        syntax: "key start stop [WITHSCORES]",
        run: Run::Now(zrevrange),
        ..Command::EMPTY
    },
    Command {
        name: "zrevrangebylex",
        answers_all: AnswersAll::Without("limit"),
        arity: -4,
        flags: Flags::READONLY,
        keys: &[KeySpec::one(1, Access::Read)],
        group: Group::SortedSet,
        since: "2.8.9",
        complexity: "O(log(N)+M) for M members",
        summary: "Returns the members of a sorted set in a range of strings, last string first.",
        syntax: "key max:string min:string [LIMIT offset count]",
        run: Run::Now(zrevrangebylex),
        ..Command::EMPTY
    },
    Command {
        name: "zrevrangebyscore",
        answers_all: AnswersAll::Without("limit"),
        arity: -4,
        flags: Flags::READONLY,
        keys: &[KeySpec::one(1, Access::Read)],
        group: Group::SortedSet,
        since: "2.2.0",
        complexity: "O(log(N)+M) for M members",
        summary: "Returns the members of a sorted set with scores in a range, highest score first.",
        syntax: "key max:double min:double [WITHSCORES] [LIMIT offset count]",
        run: Run::Now(zrevrangebyscore),
        ..Command::EMPTY
    },
    Command {
        name: "zrevrank",
        arity: -3,
        flags: Flags::READONLY.union(Flags::FAST),
        keys: &[KeySpec::one(1, Access::Read)],
        group: Group::SortedSet,
        since: "2.0.0",
        complexity: "O(log N)",
        summary: "Returns the rank of a member of a sorted set, counted from the highest score.",
        syntax: "key member [WITHSCORE]",
        run: Run::Now(zrevrank),
        ..Command::EMPTY
    },
    Command {
        name: "zscan",
        arity: -3,
        flags: Flags::READONLY,
        keys: &[KeySpec::one(1, Access::Read)],
        group: Group::SortedSet,
        since: "2.8.0",
        complexity: "O(1) for each call",
        summary: "Iterates over the members of a sorted set.",
        syntax: "key cursor [MATCH pattern] [COUNT count]",
        tips: &["nondeterministic_output"],
        run: Run::Now(zscan),
        ..Command::EMPTY
    },
    Command {
        name: "zscore",
        arity: 3,
        flags: Flags::READONLY.union(Flags::FAST),
        keys: &[KeySpec::one(1, Access::Read)],
        group: Group::SortedSet,
        since: "1.2.0",
        summary: "Returns the score of a member of a sorted set.",
        syntax: "key member",
        run: Run::Now(zscore),
        ..Command::EMPTY
    },
    Command {
        name: "zunion",
        arity: -3,
        since: "6.2.0",
        complexity: OF_ALL,
        summary: "Returns the members of all sets together.",
        syntax: "numkeys key... [WEIGHTS weight:integer...] [AGGREGATE <SUM | MIN | MAX | COUNT>]:aggregate \
            [WITHSCORES]",
        run: Run::Now(zunion),
        ..COMBINE
    },
    Command {
        name: "zunionstore",
        arity: -4,
        since: "2.0.0",
        complexity: OF_ALL,
        summary: "Stores the members of all sets together.",
        syntax: "destination numkeys key... [WEIGHTS weight:integer...] [AGGREGATE <SUM | MIN | MAX | \
            COUNT>]:aggregate",
        event: "zunionstore",
        run: Run::Now(|ctx, args| ctx.as_one_change(|ctx| zunionstore(ctx, args))),
        ..COMBINE_STORE
    },
];
