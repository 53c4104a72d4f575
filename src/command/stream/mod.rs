//! Streams: logs of entries that readers follow, alone or in groups that share the work.

mod common;
mod delay;
mod delete;
mod entries;
mod group;
mod info;
mod pending;
mod policy;
mod read;
mod request;
mod trim;

use super::help::help;
pub(super) use common::STREAM_EXHAUSTED;
use delete::{xackdel, xdel, xdelex};
use entries::{xadd, xlen, xrange, xrevrange, xsetid};
use group::{xgroup_create, xgroup_createconsumer, xgroup_delconsumer, xgroup_destroy, xgroup_setid};
use info::{xinfo_consumers, xinfo_groups, xinfo_stream};
use pending::{xack, xautoclaim, xclaim, xnack, xpending};
use policy::xgroup_setpolicy;
use read::{xread, xreadgroup};
use request::{xcfgset, xidmprecord};
use trim::xtrim;

use crate::engine::{Command, Run};
use crate::spec::{Access, AnswersAll, Begin, Find, Flags, Group, KeySpec};

/// The family's table.
pub(super) const COMMANDS: &[Command] = &[
    Command {
        name: "xack",
        arity: -4,
        flags: Flags::WRITE.union(Flags::FAST),
        keys: &[KeySpec::one(1, Access::Modify)],
        group: Group::Stream,
        since: "5.0.0",
        complexity: "O(1) for each entry",
        summary: "Acknowledges entries for a consumer group.",
        syntax: "key group id...",
        run: Run::Now(xack),
        ..Command::EMPTY
    },
    Command {
        name: "xackdel",
        arity: -6,
        flags: Flags::WRITE.union(Flags::FAST),
        keys: &[KeySpec::one(1, Access::Remove)],
        group: Group::Stream,
        since: "8.2.0",
        complexity: "O(1) for each entry",
        summary: "Acknowledges entries for a group and deletes them, respecting other groups.",
        syntax: "key group [KEEPREF | DELREF | ACKED] (IDS numids:integer id...)",
        run: Run::Now(xackdel),
        ..Command::EMPTY
    },
    Command {
        name: "xadd",
        arity: -5,
        flags: Flags::WRITE.union(Flags::DENYOOM).union(Flags::FAST),
        keys: &[KeySpec::one(1, Access::Modify)],
        group: Group::Stream,
        since: "5.0.0",
        complexity: "O(1) without trimming, else O(N) for N removed entries",
        summary: "Appends an entry to a stream and optionally trims the stream.",
        syntax: "key [NOMKSTREAM] [KEEPREF | DELREF | ACKED] [<IDMPAUTO producer-id | (IDMP producer-id iid)>] \
            [<MAXLEN | MINID>:strategy [=:equal | ~:approximately]:operator threshold:string [LIMIT count]]:trim \
            [<DELAY delay-ms:integer | AT unix-time-milliseconds>:due] <*:auto-id | id>:id-selector (field \
            value):data...",
        tips: &["nondeterministic_output"],
        run: Run::Now(|ctx, args| ctx.as_one_change(|ctx| xadd(ctx, args))),
        ..Command::EMPTY
    },
    Command {
        name: "xautoclaim",
        arity: -6,
        flags: Flags::WRITE.union(Flags::FAST),
        keys: &[KeySpec::one(1, Access::Remove)],
        group: Group::Stream,
        since: "6.2.0",
        summary: "Transfers entries that have been pending for long to a consumer.",
        syntax: "key group consumer min-idle-time:string start:string [COUNT count] [JUSTID]",
        tips: &["nondeterministic_output"],
        run: Run::Now(xautoclaim),
        ..Command::EMPTY
    },
    Command {
        name: "xcfgset",
        arity: -2,
        flags: Flags::WRITE.union(Flags::FAST),
        keys: &[KeySpec::one(1, Access::Modify)],
        group: Group::Stream,
        since: "8.6.0",
        summary: "Sets how long and how many requests of idempotent producers are remembered.",
        syntax: "key [IDMP-DURATION idmp-duration:integer] [IDMP-MAXSIZE idmp-maxsize:integer]",
        run: Run::Now(xcfgset),
        ..Command::EMPTY
    },
    Command {
        name: "xclaim",
        arity: -6,
        flags: Flags::WRITE.union(Flags::FAST),
        keys: &[KeySpec::one(1, Access::Modify)],
        group: Group::Stream,
        since: "5.0.0",
        complexity: "O(log N) for N pending entries of the group",
        summary: "Transfers pending entries to a consumer.",
        syntax: "key group consumer min-idle-time:string id... [IDLE ms] [TIME unix-time-milliseconds] [RETRYCOUNT \
            count] [FORCE] [JUSTID] [LASTID lastid]",
        tips: &["nondeterministic_output"],
        run: Run::Now(xclaim),
        ..Command::EMPTY
    },
    Command {
        name: "xdel",
        arity: -3,
        flags: Flags::WRITE.union(Flags::FAST),
        keys: &[KeySpec::one(1, Access::Remove)],
        group: Group::Stream,
        since: "5.0.0",
        complexity: "O(1) for each entry",
        summary: "Deletes entries of a stream.",
        syntax: "key id...",
        run: Run::Now(xdel),
        ..Command::EMPTY
    },
    Command {
        name: "xdelex",
        arity: -5,
        flags: Flags::WRITE.union(Flags::FAST),
        keys: &[KeySpec::one(1, Access::Remove)],
        group: Group::Stream,
        since: "8.2.0",
        complexity: "O(1) for each entry",
        summary: "Deletes entries of a stream, respecting pending entries of groups.",
        syntax: "key [KEEPREF | DELREF | ACKED] (IDS numids:integer id...)",
        run: Run::Now(xdelex),
        ..Command::EMPTY
    },
    Command {
        name: "xgroup",
        arity: -2,
        group: Group::Stream,
        since: "5.0.0",
        complexity: "Depends on the subcommand",
        summary: "A container for consumer group commands.",
        sub: &[
            Command {
                name: "create",
                arity: -5,
                flags: Flags::WRITE.union(Flags::DENYOOM),
                keys: &[KeySpec::one(2, Access::Insert)],
                group: Group::Stream,
                since: "5.0.0",
                summary: "Creates a consumer group.",
                syntax: "key group <id | $:new-id>:id-selector [MKSTREAM] [ENTRIESREAD entries-read]:entriesread",
                run: Run::Now(xgroup_create),
                ..Command::EMPTY
            },
            Command {
                name: "createconsumer",
                arity: 5,
                flags: Flags::WRITE.union(Flags::DENYOOM),
                keys: &[KeySpec::one(2, Access::Insert)],
                group: Group::Stream,
                since: "6.2.0",
                summary: "Creates a consumer in a group.",
                syntax: "key group consumer",
                run: Run::Now(xgroup_createconsumer),
                ..Command::EMPTY
            },
            Command {
                name: "delconsumer",
                arity: 5,
                flags: Flags::WRITE,
                keys: &[KeySpec::one(2, Access::Remove)],
                group: Group::Stream,
                since: "5.0.0",
                complexity: "O(N) for N pending entries",
                summary: "Removes a consumer and its pending entries from a group.",
                syntax: "key group consumer",
                run: Run::Now(xgroup_delconsumer),
                ..Command::EMPTY
            },
            Command {
                name: "destroy",
                arity: 4,
                flags: Flags::WRITE,
                keys: &[KeySpec::one(2, Access::Remove)],
                group: Group::Stream,
                since: "5.0.0",
                complexity: "O(N) for N pending entries",
                summary: "Removes a consumer group.",
                syntax: "key group",
                run: Run::Now(xgroup_destroy),
                ..Command::EMPTY
            },
            Command {
                name: "help",
                arity: 2,
                flags: Flags::LOADING.union(Flags::STALE),
                group: Group::Stream,
                since: "5.0.0",
                summary: "Lists the subcommands.",
                run: Run::Now(help),
                ..Command::EMPTY
            },
            Command {
                name: "setid",
                arity: -5,
                flags: Flags::WRITE,
                keys: &[KeySpec::one(2, Access::Modify)],
                group: Group::Stream,
                since: "5.0.0",
                summary: "Sets the last delivered id of a consumer group.",
                syntax: "key group <id | $:new-id>:id-selector [ENTRIESREAD entries-read]:entriesread",
                event: "xgroup-setid",
                run: Run::Now(xgroup_setid),
                ..Command::EMPTY
            },
            Command {
                name: "setpolicy",
                arity: -4,
                flags: Flags::WRITE.union(Flags::DENYOOM),
                keys: &[
                    KeySpec::one(2, Access::Modify),
                    KeySpec {
                        begin: Begin::Keyword("DLQ", 4),
                        find: Find::Range { last: 0, step: 1, limit: 0 },
                        access: Access::Insert,
                    },
                ],
                group: Group::Stream,
                // An extension: no version of Redis or Valkey has it.
                since: "0.1.0",
                complexity: "O(N log N) with N the number of pending entries of the group",
                summary: "Sets when unacknowledged messages are delivered again or become dead letters.",
                syntax: "key group [IDLE idle-ms:integer] [MAXDELIVERIES deliveries:integer] [DLQ dead-letters:key] \
                    [BACKOFF base-ms:integer max-ms:integer]",
                run: Run::Now(xgroup_setpolicy),
                ..Command::EMPTY
            },
        ],
        ..Command::EMPTY
    },
    Command {
        name: "xidmprecord",
        arity: 5,
        flags: Flags::WRITE.union(Flags::DENYOOM).union(Flags::FAST),
        keys: &[KeySpec::one(1, Access::Modify)],
        group: Group::Stream,
        since: "8.8.0",
        summary: "Records that a request of an idempotent producer appended an entry, to copy streams.",
        syntax: "key pid:string iid:string stream-id:string",
        run: Run::Now(xidmprecord),
        ..Command::EMPTY
    },
    Command {
        name: "xinfo",
        arity: -2,
        group: Group::Stream,
        since: "5.0.0",
        complexity: "Depends on the subcommand",
        summary: "A container for commands that inspect streams.",
        sub: &[
            Command {
                name: "consumers",
                arity: 4,
                flags: Flags::READONLY,
                keys: &[KeySpec::one(2, Access::Read)],
                group: Group::Stream,
                since: "5.0.0",
                summary: "Returns the consumers of a group.",
                syntax: "key group",
                tips: &["nondeterministic_output"],
                run: Run::Now(xinfo_consumers),
                ..Command::EMPTY
            },
            Command {
                name: "groups",
                arity: 3,
                flags: Flags::READONLY,
                keys: &[KeySpec::one(2, Access::Read)],
                group: Group::Stream,
                since: "5.0.0",
                summary: "Returns the consumer groups of a stream.",
                syntax: "key",
                run: Run::Now(xinfo_groups),
                ..Command::EMPTY
            },
            Command {
                name: "help",
                arity: 2,
                flags: Flags::LOADING.union(Flags::STALE),
                group: Group::Stream,
                since: "5.0.0",
                summary: "Lists the subcommands.",
                run: Run::Now(help),
                ..Command::EMPTY
            },
            Command {
                name: "stream",
                arity: -3,
                flags: Flags::READONLY,
                keys: &[KeySpec::one(2, Access::Read)],
                group: Group::Stream,
                since: "5.0.0",
                complexity: "O(1), with FULL O(N) for N entries shown",
                summary: "Returns information about a stream.",
                syntax: "key [FULL [COUNT count]]:full-block",
                run: Run::Now(xinfo_stream),
                ..Command::EMPTY
            },
        ],
        ..Command::EMPTY
    },
    Command {
        name: "xlen",
        arity: 2,
        flags: Flags::READONLY.union(Flags::FAST),
        keys: &[KeySpec::one(1, Access::Inspect)],
        group: Group::Stream,
        since: "5.0.0",
        summary: "Returns the number of entries of a stream.",
        syntax: "key",
        run: Run::Now(xlen),
        ..Command::EMPTY
    },
    Command {
        name: "xnack",
        arity: -7,
        flags: Flags::WRITE.union(Flags::FAST),
        keys: &[KeySpec::one(1, Access::Modify)],
        group: Group::Stream,
        since: "8.8.0",
        complexity: "O(1) for each entry",
        summary: "Gives pending entries back, so that other consumers of the group can take them.",
        syntax: "key group <SILENT | FAIL | FATAL> (IDS numids:integer id...) [RETRYCOUNT count] [FORCE]",
        run: Run::Now(xnack),
        ..Command::EMPTY
    },
    Command {
        name: "xpending",
        arity: -3,
        flags: Flags::READONLY,
        keys: &[KeySpec::one(1, Access::Read)],
        group: Group::Stream,
        since: "5.0.0",
        complexity: "O(N) for N entries",
        summary: "Returns the entries that a group was given and has not acknowledged.",
        syntax: "key group [[IDLE min-idle-time] start:string end:string count [consumer]]:filters",
        tips: &["nondeterministic_output"],
        run: Run::Now(xpending),
        ..Command::EMPTY
    },
    Command {
        name: "xrange",
        answers_all: AnswersAll::Without("count"),
        arity: -4,
        flags: Flags::READONLY,
        keys: &[KeySpec::one(1, Access::Read)],
        group: Group::Stream,
        since: "5.0.0",
        complexity: "O(log(S)+N) for N entries of a stream of S",
        summary: "Returns the entries of a stream between two ids, oldest first.",
        syntax: "key start:string end:string [COUNT count]",
        run: Run::Now(xrange),
        ..Command::EMPTY
    },
    Command {
        name: "xread",
        arity: -4,
        flags: Flags::READONLY.union(Flags::BLOCKING).union(Flags::MOVABLEKEYS),
        keys: &[KeySpec {
            begin: Begin::Keyword("STREAMS", 1),
            find: Find::Range { last: -1, step: 1, limit: 2 },
            access: Access::Read,
        }],
        group: Group::Stream,
        since: "5.0.0",
        complexity: "O(N) for N entries",
        summary: "Returns the entries after given ids in one or more streams, or waits for some.",
        syntax: "[COUNT count] [MAXCOUNT maxcount:integer] [MAXSIZE maxsize:integer] [BLOCK milliseconds] (STREAMS \
            key... id...)",
        run: Run::MayWait(xread),
        ..Command::EMPTY
    },
    Command {
        name: "xreadgroup",
        arity: -7,
        flags: Flags::WRITE.union(Flags::BLOCKING).union(Flags::MOVABLEKEYS),
        keys: &[KeySpec {
            begin: Begin::Keyword("STREAMS", 4),
            find: Find::Range { last: -1, step: 1, limit: 2 },
            access: Access::Read,
        }],
        group: Group::Stream,
        since: "5.0.0",
        complexity: "O(N) for N entries",
        summary: "Returns new or pending entries for a consumer of a group, or waits for some.",
        syntax: "(GROUP group consumer):group-block [COUNT count] [MAXCOUNT maxcount:integer] [MAXSIZE \
            maxsize:integer] \
            [BLOCK milliseconds] [CLAIM min-idle-time] [NOACK] (STREAMS key... id...)",
        run: Run::MayWait(xreadgroup),
        ..Command::EMPTY
    },
    Command {
        name: "xrevrange",
        answers_all: AnswersAll::Without("count"),
        arity: -4,
        flags: Flags::READONLY,
        keys: &[KeySpec::one(1, Access::Read)],
        group: Group::Stream,
        since: "5.0.0",
        complexity: "O(log(S)+N) for N entries of a stream of S",
        summary: "Returns the entries of a stream between two ids, newest first.",
        syntax: "key end:string start:string [COUNT count]",
        run: Run::Now(xrevrange),
        ..Command::EMPTY
    },
    Command {
        name: "xsetid",
        arity: -3,
        flags: Flags::WRITE.union(Flags::DENYOOM).union(Flags::FAST),
        keys: &[KeySpec::one(1, Access::Modify)],
        group: Group::Stream,
        since: "5.0.0",
        summary: "Sets the last id and the counters of a stream.",
        syntax: "key last-id:string [ENTRIESADDED entries-added:integer] [MAXDELETEDID max-deleted-id:string]",
        event: "xsetid",
        run: Run::Now(xsetid),
        ..Command::EMPTY
    },
    Command {
        name: "xtrim",
        arity: -4,
        flags: Flags::WRITE,
        keys: &[KeySpec::one(1, Access::Remove)],
        group: Group::Stream,
        since: "5.0.0",
        complexity: "O(N) for N removed entries",
        summary: "Removes the oldest entries of a stream.",
        syntax: "key (<MAXLEN | MINID>:strategy [=:equal | ~:approximately]:operator threshold:string [LIMIT \
            count]):trim \
            [KEEPREF | DELREF | ACKED]",
        tips: &["nondeterministic_output"],
        event: "xtrim",
        run: Run::Now(xtrim),
        ..Command::EMPTY
    },
];
