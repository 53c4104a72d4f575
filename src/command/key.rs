//! Keys of any type: names, lifetimes, databases, and iteration over all keys.

use std::borrow::Cow;

use super::cluster::mode::refuse_databases;
use super::compare::Comparison;
use super::deadline::Count;
use super::dump::NO_WRITTEN_KEY;
use super::help::help;
use super::many_keys::for_each_key;
use super::scan::{self, Options, Walk};
use super::string_value::string_at;
use crate::base::glob;
use crate::base::num;
use crate::engine::{Command, Ctx, Done, Flow, MayWait, Run};
use crate::keyspace::any_value::{Value, ValueRef};
use crate::keyspace::limits::FREE_AT_ONCE_ELEMENTS;
use crate::keyspace::{DbIndex, NEVER, Slot};
use crate::persist::journal::Journal;
use crate::resp::reply::Reply;
use crate::resp::request::Argv;
use crate::spec::args::Args;
use crate::spec::error::{Error, excerpt};
use crate::spec::{Access, AnswersAll, Audited, Databases, Flags, Group, KeySpec};
use crate::value::grants::Grants;
use crate::wait::{Wait, deadline_after_ms};

/// DEL and UNLINK. Both free large values on another thread.
fn delete(ctx: &mut Ctx<'_>, args: Args<'_>) -> Done {
    let db = ctx.session.db;
    let mut deleted = 0;
    for_each_key(ctx, args.rest(), 1, |ctx, _, key| {
        if let Some(slot) = ctx.ks.find(db, key) {
            ctx.ks.remove(db, slot);
            deleted += 1;
        }
    });
    ctx.reply.integer(deleted);
    Ok(())
}

fn exists(ctx: &mut Ctx<'_>, args: Args<'_>) -> Done {
    let mut found = 0;
    for_each_key(ctx, args.rest(), 1, |ctx, _, key| found += i64::from(ctx.ks.peek(ctx.session.db, key).is_some()));
    ctx.reply.integer(found);
    Ok(())
}

fn touch(ctx: &mut Ctx<'_>, args: Args<'_>) -> Done {
    let mut found = 0;
    for_each_key(ctx, args.rest(), 1, |ctx, _, key| found += i64::from(ctx.ks.use_key(ctx.session.db, key)));
    ctx.reply.integer(found);
    Ok(())
}

fn type_of(ctx: &mut Ctx<'_>, mut args: Args<'_>) -> Done {
    let name = ctx.ks.peek(ctx.session.db, args.bytes()?).map_or("none", |entry| entry.value().type_name());
    ctx.reply.status(name);
    Ok(())
}

fn keys(ctx: &mut Ctx<'_>, mut args: Args<'_>) -> Done {
    let pattern = args.bytes()?;
    let all = pattern == b"*";
    let mark = ctx.reply.begin();
    let mut found = 0;
    for entry in ctx.ks.entries(ctx.session.db).filter(|entry| all || glob::matches(pattern, entry.key())) {
        ctx.reply.bulk(entry.key());
        found += 1;
    }
    ctx.reply.end_array(mark, found);
    Ok(())
}

fn randomkey(ctx: &mut Ctx<'_>, _args: Args<'_>) -> Done {
    let key = ctx.ks.random_key(ctx.session.db).map(|entry| entry.key());
    ctx.reply.bulk_or_null(key);
    Ok(())
}

fn scan(ctx: &mut Ctx<'_>, mut args: Args<'_>) -> Done {
    let cursor = scan::cursor(&mut args)?;
    let options = Options::parse(&mut args, Walk::Keys)?;
    let (ks, db) = (&mut *ctx.ks, ctx.session.db);
    scan::answer(ctx.reply, |reply, written| {
        ks.scan(db, cursor, options.count, |entry| {
            let of_type = |name: &[u8]| entry.value().type_name().as_bytes().eq_ignore_ascii_case(name);
            if options.type_name.is_none_or(of_type) && options.wants(entry.key()) {
                reply.bulk(entry.key());
                *written += 1;
            }
        })
    });
    Ok(())
}

fn rename(ctx: &mut Ctx<'_>, mut args: Args<'_>) -> Done {
    let (key, to) = (args.bytes()?, args.bytes()?);
    let slot = ctx.ks.find(ctx.session.db, key).ok_or(Error::NoSuchKey)?;
    if key != to {
        // An expired key at the destination expires first, so that its event is sent.
        _ = ctx.ks.find(ctx.session.db, to);
        ctx.ks.rename(ctx.session.db, slot, to);
    }
    ctx.reply.ok();
    Ok(())
}

fn renamenx(ctx: &mut Ctx<'_>, mut args: Args<'_>) -> Done {
    let (key, to) = (args.bytes()?, args.bytes()?);
    let slot = ctx.ks.find(ctx.session.db, key).ok_or(Error::NoSuchKey)?;
    let renames = ctx.ks.find(ctx.session.db, to).is_none();
    if renames {
        ctx.ks.rename(ctx.session.db, slot, to);
    }
    ctx.reply.integer(i64::from(renames));
    Ok(())
}

const NO_SUCH_DB: Error = Error::text("ERR DB index is out of range");
const SAME_OBJECT: Error = Error::text("ERR source and destination objects are the same");

/// Takes a database number in the range of COPY and MOVE: a C `int`.
fn database(ctx: &Ctx<'_>, args: &mut Args<'_>) -> Result<DbIndex, Error> {
    let n = i32::try_from(args.int()?)
        .map_err(|_| Error::text("ERR value is out of range, value must between -2147483648 and 2147483647"))?;
    let count = if ctx.server.config.cluster_enabled { 1 } else { ctx.ks.databases() };
    DbIndex::try_from(n).ok().filter(|db| *db < count).ok_or(NO_SUCH_DB)
}

fn copy(ctx: &mut Ctx<'_>, mut args: Args<'_>) -> Done {
    let argv = args.argv();
    let (key, to) = (args.bytes()?, args.bytes()?);
    let db = ctx.session.db;
    let (mut to_db, mut replace) = (db, false);
    while !args.is_empty() {
        if args.flag("replace") {
            replace = true;
        } else if args.option("db", 1) {
            to_db = database(ctx, &mut args)?;
        } else {
            return Err(Error::Syntax);
        }
    }
    if key == to && db == to_db {
        return Err(SAME_OBJECT);
    }
    let slot = ctx.ks.look_up(db, key);
    let taken = ctx.ks.find(to_db, to).is_some();
    let copies = slot.filter(|_| !taken || replace);
    if let Some(slot) = copies {
        let written = ctx.ks.value(db, slot).written_keys();
        if !ctx.server.rights().may_also_write(ctx.session, ctx.entry, argv, &written) {
            return Err(NO_WRITTEN_KEY);
        }
        if let ValueRef::Grants(grants) = ctx.ks.value(db, slot) {
            let Some(rest) = grants.without_holders() else {
                ctx.reply.integer(0);
                return Ok(());
            };
            copy_without_holders(ctx, slot, rest, to_db, to)?;
        } else {
            ctx.ks.copy(db, slot, to_db, to);
        }
    }
    ctx.reply.integer(i64::from(copies.is_some()));
    Ok(())
}

/// A fencing token belongs to one key, so the holders of a lock, gate or stock are not copied.
fn copy_without_holders(ctx: &mut Ctx<'_>, slot: Slot, rest: Grants, to_db: DbIndex, to: &[u8]) -> Done {
    let expires_at_ms = ctx.ks.entry(ctx.session.db, slot).expires_at_ms();
    let copy = ctx.put_value_in(to_db, to, Value::Grants(rest))?;
    if let Some(at_ms) = expires_at_ms {
        _ = ctx.ks.expire_at(to_db, copy, at_ms);
    }
    Ok(())
}

fn move_to(ctx: &mut Ctx<'_>, mut args: Args<'_>) -> Done {
    refuse_databases(ctx)?;
    let key = args.bytes()?;
    let to_db = database(ctx, &mut args)?;
    let db = ctx.session.db;
    if db == to_db {
        return Err(SAME_OBJECT);
    }
    let slot = ctx.ks.find(db, key);
    let taken = ctx.ks.find(to_db, key).is_some();
    let moves = slot.filter(|_| !taken);
    if let Some(slot) = moves {
        ctx.ks.move_to(db, slot, to_db);
    }
    ctx.reply.integer(i64::from(moves.is_some()));
    Ok(())
}

/// The conditions under which EXPIRE and its variants set a deadline.
#[derive(Clone, Copy, Default)]
struct Only<'a> {
    /// NX: only if the key has no deadline.
    new: bool,
    /// XX: only if the key has a deadline.
    existing: bool,
    /// GT: only if the new deadline is later.
    later: bool,
    /// LT: only if the new deadline is earlier.
    earlier: bool,
    /// IFEQ: only if the key holds this string. It lets the holder of a lock in a string extend it without a script.
    equal: Option<&'a [u8]>,
}

impl<'a> Only<'a> {
    /// `may_compare` allows the option IFEQ.
    fn parse(mut args: Args<'a>, may_compare: bool) -> Result<Only<'a>, Error> {
        let mut only = Only::default();
        while let Some(word) = args.peek() {
            if args.flag("nx") {
                only.new = true;
            } else if args.flag("xx") {
                only.existing = true;
            } else if args.flag("gt") {
                only.later = true;
            } else if args.flag("lt") {
                only.earlier = true;
            } else if may_compare && args.option("ifeq", 1) {
                only.equal = Some(args.bytes()?);
            } else {
                return Err(Error::owned(format!("ERR Unsupported option {}", excerpt(word, word.len()))));
            }
        }
        if only.new && (only.existing || only.later || only.earlier) {
            return Err(Error::text("ERR NX and XX, GT or LT options at the same time are not compatible"));
        }
        if only.later && only.earlier {
            return Err(Error::text("ERR GT and LT options at the same time are not compatible"));
        }
        Ok(only)
    }

    /// Whether the new deadline may replace the old one. Both in Unix ms; `NEVER` means none.
    fn allows(self, old_ms: i64, new_ms: i64) -> bool {
        !(self.new && old_ms != NEVER
            || self.existing && old_ms == NEVER
            || self.later && new_ms <= old_ms
            || self.earlier && new_ms >= old_ms)
    }
}

/// EXPIRE, PEXPIRE, EXPIREAT, PEXPIREAT. A deadline in the past deletes the key.
fn expire(ctx: &mut Ctx<'_>, mut args: Args<'_>, count: Count) -> Done {
    let (key, n) = (args.bytes()?, args.bytes()?);
    let only = Only::parse(args, matches!(count, Count::Seconds | Count::Milliseconds))?;
    let n = num::parse_i64(n).ok_or(Error::NotInteger)?;
    let at_ms = count.deadline(n, ctx.now_ms()).ok_or_else(|| Error::InvalidExpire(Cow::Borrowed(ctx.name())))?;
    let db = ctx.session.db;
    let slot = ctx.ks.find(db, key);
    let mut slot = slot.filter(|slot| only.allows(ctx.ks.entry(db, *slot).expires_at_ms().unwrap_or(NEVER), at_ms));
    if let (Some(found), Some(text)) = (slot, only.equal)
        && !Comparison::Equals.holds(string_at(ctx.ks, db, found)?, text)?
    {
        slot = None;
    }
    match slot {
        None => {}
        Some(slot) if ctx.ks.expires_at_once(at_ms) => ctx.ks.remove(db, slot),
        Some(slot) => _ = ctx.ks.expire_at(db, slot, at_ms),
    }
    ctx.reply.integer(i64::from(slot.is_some()));
    Ok(())
}

fn persist(ctx: &mut Ctx<'_>, mut args: Args<'_>) -> Done {
    let db = ctx.session.db;
    let slot = ctx.ks.find(db, args.bytes()?);
    let slot = slot.filter(|slot| ctx.ks.entry(db, *slot).expires_at_ms().is_some());
    if let Some(slot) = slot {
        _ = ctx.ks.expire_at(db, slot, NEVER);
    }
    ctx.reply.integer(i64::from(slot.is_some()));
    Ok(())
}

/// TTL and its variants: the deadline of the key in the unit of `count`, -1 if it has none, -2 if there is no such key.
fn lifetime(ctx: &mut Ctx<'_>, mut args: Args<'_>, count: Count) -> Done {
    let now_ms = ctx.now_ms();
    let answer = match ctx.ks.peek(ctx.session.db, args.bytes()?).map(|entry| entry.expires_at_ms()) {
        None => -2,
        Some(None) => -1,
        Some(Some(at_ms)) => {
            let base_ms = if matches!(count, Count::Seconds | Count::Milliseconds) { now_ms } else { 0 };
            let ms = at_ms.saturating_sub(base_ms).max(0);
            // Seconds are rounded to the nearest.
            ms.saturating_add(count.unit_ms() / 2) / count.unit_ms()
        }
    };
    ctx.reply.integer(answer);
    Ok(())
}

fn object_encoding(ctx: &mut Ctx<'_>, mut args: Args<'_>) -> Done {
    let encoding = ctx.ks.peek_silently(ctx.session.db, args.bytes()?).map(|entry| entry.value().encoding());
    ctx.reply.bulk_or_null(encoding.map(str::as_bytes));
    Ok(())
}

fn object_freq(ctx: &mut Ctx<'_>, mut args: Args<'_>) -> Done {
    let (db, key) = (ctx.session.db, args.bytes()?);
    if ctx.ks.peek_silently(db, key).is_none() {
        ctx.reply.null();
        return Ok(());
    }
    let frequency = ctx.ks.live(db, key).and_then(|entry| ctx.ks.frequency(entry));
    let frequency = frequency.ok_or(Error::text(
        "ERR An LFU maxmemory policy is not selected, access frequency not tracked. Please note that when switching \
         between \
         policies at runtime LRU and LFU data will take some time to adjust.",
    ))?;
    ctx.reply.integer(frequency.into());
    Ok(())
}

fn object_idletime(ctx: &mut Ctx<'_>, mut args: Args<'_>) -> Done {
    let (db, key) = (ctx.session.db, args.bytes()?);
    if ctx.ks.peek_silently(db, key).is_none() {
        ctx.reply.null();
        return Ok(());
    }
    let idle_ms = ctx.ks.live(db, key).and_then(|entry| ctx.ks.idle_ms(entry));
    let idle_ms = idle_ms.ok_or(Error::text(
        "ERR An LFU maxmemory policy is selected, idle time not tracked. Please note that when switching between \
         policies at \
         runtime LRU and LFU data will take some time to adjust.",
    ))?;
    ctx.reply.integer(idle_ms / 1_000);
    Ok(())
}

fn object_refcount(ctx: &mut Ctx<'_>, mut args: Args<'_>) -> Done {
    match ctx.ks.peek_silently(ctx.session.db, args.bytes()?) {
        None => ctx.reply.null(),
        // Values are never shared.
        Some(_) => ctx.reply.integer(1),
    }
    Ok(())
}

/// WAIT: waits until replicas have the preceding writes. A single server has none, so any number but 0 times out. In a
/// group, this reply leaves when more than half of the nodes have them, or as many as `min-replicas-to-write` asks for.
/// Nobody counts the rest, so there is nothing to wait for.
fn wait(ctx: &mut Ctx<'_>, mut args: Args<'_>) -> MayWait {
    let (replicas, deadline_ms) = (args.int()?, wait_deadline(ctx, &mut args)?);
    if let Some(others) = others_in_quorum(ctx)? {
        if !ctx.is_retry() {
            // Later writes need not be waited for.
            ctx.session.fence = ctx.session.fence.max(ctx.begin_sync());
        }
        if ctx.server.persistence.is_durable(ctx.session.fence) {
            ctx.reply.integer(others);
            return Ok(Flow::Replied);
        }
        let retry_at_ms = ctx.now_ms() + ctx.server.persistence.sync_retry_after(&ctx.server.config).as_millis() as i64;
        let on_timeout = |reply: &mut Reply| reply.integer(0);
        return Ok(Flow::wait(Wait { retry_at_ms: Some(retry_at_ms), ..Wait::until(deadline_ms, on_timeout) }));
    }
    if replicas <= 0 {
        ctx.reply.integer(0);
        return Ok(Flow::Replied);
    }
    let on_timeout = |reply: &mut Reply| reply.integer(0);
    Ok(Flow::wait(Wait::until(deadline_ms, on_timeout)))
}

/// Returns the number of other nodes that have whatever is acknowledged here; `None` for a single server. A node that
/// does not lead knows of none.
fn others_in_quorum(ctx: &Ctx<'_>) -> Result<Option<i64>, Error> {
    match ctx.server.persistence.journal.as_ref().and_then(Journal::member) {
        None => Ok(None),
        Some(group) if group.leads() => {
            let wanted = ctx.server.config.copies_wanted().min(group.members().count() - 1);
            Ok(Some((group.members().voters.len() / 2).max(wanted) as i64))
        }
        Some(_) => Err(Error::text("ERR WAIT cannot be used with replica instances.")),
    }
}

/// Replies with whether the journal has the writes, and with the number of replicas that do.
fn answer_waitaof(is_logged: bool, replicas: i64, reply: &mut Reply) {
    reply.array(2);
    reply.integer(i64::from(is_logged));
    reply.integer(replicas);
}

/// WAITAOF: waits until the journal, and those of replicas, hold the preceding writes. There are no replicas.
fn waitaof(ctx: &mut Ctx<'_>, mut args: Args<'_>) -> MayWait {
    let local = args.int()?;
    if !(0..=1).contains(&local) {
        return Err(Error::text("ERR value is out of range, value must between 0 and 1"));
    }
    let replicas = args.int_or(Error::NotPositive)?;
    if replicas < 0 {
        return Err(Error::NotPositive);
    }
    let deadline_ms = wait_deadline(ctx, &mut args)?;
    if local > 0 && ctx.server.persistence.journal.is_none() {
        return Err(Error::text("ERR WAITAOF cannot be used when numlocal is set but appendonly is disabled."));
    }
    if !ctx.is_retry() {
        // Later writes need not be waited for.
        ctx.session.fence = ctx.session.fence.max(ctx.begin_sync());
    }
    let is_logged = ctx.server.persistence.is_durable(ctx.session.fence);
    let in_group = others_in_quorum(ctx)?;
    let others = in_group.filter(|_| is_logged).unwrap_or(0);
    if in_group.is_some() && is_logged || replicas == 0 && (local == 0 || is_logged) {
        answer_waitaof(is_logged, others, ctx.reply);
        return Ok(Flow::Replied);
    }
    Ok(Flow::wait(match is_logged {
        true => Wait::until(deadline_ms, |reply| answer_waitaof(true, 0, reply)),
        false => Wait {
            // Until the sync ends, or a full disk has space again.
            retry_at_ms: Some(
                ctx.now_ms() + ctx.server.persistence.sync_retry_after(&ctx.server.config).as_millis() as i64,
            ),
            ..Wait::until(deadline_ms, |reply| answer_waitaof(false, 0, reply))
        },
    }))
}

/// Takes a timeout in ms and returns its deadline; a timeout of 0 means none.
fn wait_deadline(ctx: &Ctx<'_>, args: &mut Args<'_>) -> Result<Option<i64>, Error> {
    deadline_after_ms(args.bytes()?, ctx.now_ms())
}

fn swapdb(ctx: &mut Ctx<'_>, mut args: Args<'_>) -> Done {
    refuse_databases(ctx)?;
    let number = |args: &mut Args<'_>, bad: &'static str| {
        args.int().ok().and_then(|n| i32::try_from(n).ok()).ok_or(Error::text(bad))
    };
    let first = number(&mut args, "ERR invalid first DB index")?;
    let second = number(&mut args, "ERR invalid second DB index")?;
    let valid = |n: i32| DbIndex::try_from(n).ok().filter(|db| *db < ctx.ks.databases()).ok_or(NO_SUCH_DB);
    let (first, second) = (valid(first)?, valid(second)?);
    if first != second {
        ctx.ks.swap(first, second);
    } else {
        // Counts as a change nevertheless, as in Redis.
        ctx.ks.count_changes_as(ctx.ks.changes_by_commands(), 1);
    }
    ctx.reply.ok();
    Ok(())
}

fn dbsize(ctx: &mut Ctx<'_>, _args: Args<'_>) -> Done {
    ctx.reply.integer(ctx.ks.db(ctx.session.db).len() as i64);
    Ok(())
}

/// FLUSHDB and, with `all`, FLUSHALL. With SYNC only the caller waits until all memory is freed.
fn flush(ctx: &mut Ctx<'_>, mut args: Args<'_>, all: bool) -> MayWait {
    let in_background = args.one_of(&[("async", true), ("sync", false)]);
    let in_background = in_background.unwrap_or(ctx.server.config.lazyfree_lazy_user_flush);
    args.end()?;
    let selected = ctx.session.db;
    let waits = !in_background
        && ctx.may_wait()
        && ctx.server.network.raw_sockets.is_some()
        && ctx.server.persistence.loading.is_none();
    if ctx.is_retry() {
        // The reply must not arrive before the empty databases are safe on disk.
        ctx.ks.see_everything();
    } else {
        let before = ctx.ks.changes_by_commands();
        let mut gone = 0;
        for db in (0..ctx.ks.databases()).filter(|db| all || *db == selected) {
            let keys = ctx.ks.db(db).len();
            if keys == 0 {
                continue;
            }
            let elsewhere = in_background || waits && keys > FREE_AT_ONCE_ELEMENTS;
            ctx.ks.flush(db, elsewhere);
            if waits && !elsewhere {
                ctx.ks.count_freed(keys);
            }
            gone += keys as u64;
        }
        ctx.ks.count_changes_as(before, gone);
        if gone == 0 {
            // The caller wants client caches to be empty too, even of keys known to be missing.
            ctx.server.delivery().flush_tracked(ctx.session);
        }
    }
    if waits && ctx.ks.freed_elsewhere().0 > 0 {
        let retry_at_ms = Some(ctx.now_ms() + RETRY_MS);
        return Ok(Flow::wait(Wait { retry_at_ms, ..Wait::until(None, Reply::ok) }));
    }
    ctx.reply.ok();
    Ok(Flow::Replied)
}

/// The interval in ms at which to check whether all memory is freed.
const RETRY_MS: i64 = 1;

const READ: Flags = Flags::READONLY;
const WRITE: Flags = Flags::WRITE;
const FAST: Flags = Flags::FAST;

const ONE: &[KeySpec] = &[KeySpec::one(1, Access::Inspect)];
const SUM: &[&str] = &["request_policy:multi_shard", "response_policy:agg_sum"];
const UNSTEADY: &[&str] = &["nondeterministic_output"];

const KEY: Command = Command { group: Group::Generic, ..Command::EMPTY };

/// How EXPIRE and PEXPIRE access their key: a call with IFEQ learns its value.
fn access_of_expire(argv: Argv<'_>) -> Access {
    let compares = argv.iter().skip(3).any(|arg| arg.eq_ignore_ascii_case(b"ifeq"));
    if compares { Access::Update } else { Access::Modify }
}

const OBJECT: Command = Command {
    arity: 3,
    flags: READ,
    keys: &[KeySpec::one(2, Access::Inspect)],
    since: "2.2.3",
    syntax: "key",
    tips: UNSTEADY,
    ..KEY
};

const SERVER: Command = Command { group: Group::Server, categories: &["@keyspace", "@dangerous"], ..Command::EMPTY };

/// The family's table.
pub(super) const COMMANDS: &[Command] = &[
    Command {
        name: "copy",
        arity: -3,
        flags: WRITE.union(Flags::DENYOOM),
        keys: &[KeySpec::one(1, Access::Read), KeySpec::one(2, Access::Overwrite)],
        since: "6.2.0",
        complexity: "O(N) for a collection of N elements",
        summary: "Copies the value of a key to another key.",
        syntax: "source destination [DB destination-db:integer] [REPLACE]",
        databases: Databases::Named(|argv| {
            (4..argv.len()).filter(|at| argv[at - 1].eq_ignore_ascii_case(b"db")).collect()
        }),
        event: "copy_to",
        run: Run::Now(copy),
        ..KEY
    },
    Command {
        name: "dbsize",
        arity: 1,
        flags: READ.union(FAST),
        categories: &["@keyspace"],
        summary: "Counts the keys of the selected database.",
        tips: &["request_policy:all_shards", "response_policy:agg_sum"],
        run: Run::Now(dbsize),
        ..SERVER
    },
    Command {
        name: "del",
        arity: -2,
        flags: WRITE,
        keys: &[KeySpec::rest(1, 1, Access::Delete)],
        complexity: "O(N) for N keys, and O(M) for each collection of M elements",
        summary: "Deletes keys and returns how many existed.",
        syntax: "key...",
        tips: SUM,
        run: Run::Now(delete),
        ..KEY
    },
    Command {
        name: "exists",
        arity: -2,
        flags: READ.union(FAST),
        keys: &[KeySpec::rest(1, 1, Access::Inspect)],
        complexity: "O(N) for N keys",
        summary: "Counts the keys that exist; a repeated key counts each time.",
        syntax: "key...",
        tips: SUM,
        run: Run::Now(exists),
        ..KEY
    },
    Command {
        name: "expire",
        arity: -3,
        flags: WRITE.union(FAST),
        keys: &[KeySpec::one(1, Access::Modify)],
        access_by: Some(access_of_expire),
        summary: "Sets the expiry of a key in seconds.",
        syntax: "key seconds [NX | XX | GT | LT]:condition [IFEQ ifeq-value]",
        run: Run::Now(|ctx, args| expire(ctx, args, Count::Seconds)),
        ..KEY
    },
    Command {
        name: "expireat",
        arity: -3,
        flags: WRITE.union(FAST),
        keys: &[KeySpec::one(1, Access::Modify)],
        since: "1.2.0",
        summary: "Sets the expiry of a key to a Unix time in seconds.",
        syntax: "key unix-time-seconds [NX | XX | GT | LT]:condition",
        run: Run::Now(|ctx, args| expire(ctx, args, Count::UnixSeconds)),
        ..KEY
    },
    Command {
        name: "expiretime",
        arity: 2,
        flags: READ.union(FAST),
        keys: &[KeySpec::one(1, Access::Read)],
        since: "7.0.0",
        summary: "Returns the expiry of a key as a Unix time in seconds.",
        syntax: "key",
        run: Run::Now(|ctx, args| lifetime(ctx, args, Count::UnixSeconds)),
        ..KEY
    },
    Command {
        name: "flushall",
        arity: -1,
        flags: WRITE.union(Flags::WAITS_FOR_ITSELF),
        complexity: "O(N) for the keys of all databases",
        summary: "Deletes every key of every database.",
        syntax: "[ASYNC | SYNC]:flush-type",
        tips: &["request_policy:all_shards", "response_policy:all_succeeded"],
        databases: Databases::All,
        audited: Some(Audited::Deletion),
        run: Run::MayWait(|ctx, args| flush(ctx, args, true)),
        ..SERVER
    },
    Command {
        name: "flushdb",
        arity: -1,
        flags: WRITE.union(Flags::WAITS_FOR_ITSELF),
        complexity: "O(N) for the keys of the selected database",
        summary: "Deletes every key of the selected database.",
        syntax: "[ASYNC | SYNC]:flush-type",
        tips: &["request_policy:all_shards", "response_policy:all_succeeded"],
        audited: Some(Audited::Deletion),
        run: Run::MayWait(|ctx, args| flush(ctx, args, false)),
        ..SERVER
    },
    Command {
        name: "keys",
        answers_all: AnswersAll::Always,
        arity: 2,
        flags: READ.union(Flags::VISITS_ALL_KEYS),
        complexity: "O(N) for the keys of the database",
        summary: "Returns all keys that match a glob pattern.",
        syntax: "pattern",
        categories: &["@dangerous"],
        tips: &["request_policy:all_shards", "nondeterministic_output_order"],
        run: Run::Now(keys),
        ..KEY
    },
    Command {
        name: "move",
        arity: 3,
        flags: WRITE.union(FAST),
        keys: &[KeySpec::one(1, Access::Update)],
        summary: "Moves a key to another database.",
        syntax: "key db",
        databases: Databases::Named(|_| vec![2]),
        run: Run::Now(move_to),
        ..KEY
    },
    Command {
        name: "object",
        arity: -2,
        since: "2.2.3",
        complexity: "Depends on the subcommand",
        summary: "A container for commands that inspect keys.",
        sub: &[
            Command {
                name: "encoding",
                summary: "Returns the representation of a key's value.",
                run: Run::Now(object_encoding),
                ..OBJECT
            },
            Command {
                name: "freq",
                since: "4.0.0",
                summary: "Returns the access frequency of a key under an LFU policy.",
                run: Run::Now(object_freq),
                ..OBJECT
            },
            Command {
                name: "help",
                arity: 2,
                flags: Flags::LOADING.union(Flags::STALE),
                keys: &[],
                since: "6.2.0",
                summary: "Lists the subcommands.",
                syntax: "",
                tips: &[],
                run: Run::Now(help),
                ..OBJECT
            },
            Command {
                name: "idletime",
                summary: "Returns the seconds since a key was last used.",
                run: Run::Now(object_idletime),
                ..OBJECT
            },
            Command {
                name: "refcount",
                summary: "Returns the reference count of a key's value.",
                run: Run::Now(object_refcount),
                ..OBJECT
            },
        ],
        ..KEY
    },
    Command {
        name: "persist",
        arity: 2,
        flags: WRITE.union(FAST),
        keys: &[KeySpec::one(1, Access::Modify)],
        since: "2.2.0",
        summary: "Removes the expiry of a key.",
        syntax: "key",
        run: Run::Now(persist),
        ..KEY
    },
    Command {
        name: "pexpire",
        arity: -3,
        flags: WRITE.union(FAST),
        keys: &[KeySpec::one(1, Access::Modify)],
        access_by: Some(access_of_expire),
        since: "2.6.0",
        summary: "Sets the expiry of a key in milliseconds.",
        syntax: "key milliseconds [NX | XX | GT | LT]:condition [IFEQ ifeq-value]",
        run: Run::Now(|ctx, args| expire(ctx, args, Count::Milliseconds)),
        ..KEY
    },
    Command {
        name: "pexpireat",
        arity: -3,
        flags: WRITE.union(FAST),
        keys: &[KeySpec::one(1, Access::Modify)],
        since: "2.6.0",
        summary: "Sets the expiry of a key to a Unix time in milliseconds.",
        syntax: "key unix-time-milliseconds [NX | XX | GT | LT]:condition",
        run: Run::Now(|ctx, args| expire(ctx, args, Count::UnixMilliseconds)),
        ..KEY
    },
    Command {
        name: "pexpiretime",
        arity: 2,
        flags: READ.union(FAST),
        keys: &[KeySpec::one(1, Access::Read)],
        since: "7.0.0",
        summary: "Returns the expiry of a key as a Unix time in milliseconds.",
        syntax: "key",
        run: Run::Now(|ctx, args| lifetime(ctx, args, Count::UnixMilliseconds)),
        ..KEY
    },
    Command {
        name: "pttl",
        arity: 2,
        flags: READ.union(FAST),
        keys: &[KeySpec::one(1, Access::Read)],
        since: "2.6.0",
        summary: "Returns the remaining time to live of a key in milliseconds.",
        syntax: "key",
        tips: UNSTEADY,
        run: Run::Now(|ctx, args| lifetime(ctx, args, Count::Milliseconds)),
        ..KEY
    },
    Command {
        name: "randomkey",
        arity: 1,
        flags: READ,
        summary: "Returns a random key.",
        tips: &["request_policy:all_shards", "response_policy:special", "nondeterministic_output"],
        run: Run::Now(randomkey),
        ..KEY
    },
    Command {
        name: "rename",
        arity: 3,
        flags: WRITE,
        keys: &[KeySpec::one(1, Access::Take), KeySpec::one(2, Access::Overwrite)],
        summary: "Renames a key and replaces the key that has the new name.",
        syntax: "key newkey",
        run: Run::Now(rename),
        ..KEY
    },
    Command {
        name: "renamenx",
        arity: 3,
        flags: WRITE.union(FAST),
        keys: &[KeySpec::one(1, Access::Take), KeySpec::one(2, Access::Create)],
        summary: "Renames a key unless the new name exists.",
        syntax: "key newkey",
        run: Run::Now(renamenx),
        ..KEY
    },
    Command {
        name: "scan",
        arity: -2,
        flags: READ,
        since: "2.8.0",
        complexity: "O(1) for each call, O(N) for the N keys of the database",
        summary: "Iterates over the keys of the database.",
        syntax: "cursor [MATCH pattern] [COUNT count] [TYPE type]",
        tips: &["nondeterministic_output", "request_policy:special", "response_policy:special"],
        run: Run::Now(scan),
        ..KEY
    },
    Command {
        name: "swapdb",
        arity: 3,
        flags: WRITE.union(FAST),
        since: "4.0.0",
        summary: "Swaps two databases.",
        syntax: "index1 index2:integer",
        databases: Databases::Named(|_| vec![1, 2]),
        run: Run::Now(swapdb),
        ..SERVER
    },
    Command {
        name: "touch",
        arity: -2,
        flags: READ.union(FAST),
        keys: &[KeySpec::rest(1, 1, Access::Inspect)],
        since: "3.2.1",
        complexity: "O(N) for N keys",
        summary: "Counts the keys that exist and updates their last use.",
        syntax: "key...",
        tips: SUM,
        run: Run::Now(touch),
        ..KEY
    },
    Command {
        name: "ttl",
        arity: 2,
        flags: READ.union(FAST),
        keys: &[KeySpec::one(1, Access::Read)],
        summary: "Returns the remaining time to live of a key in seconds.",
        syntax: "key",
        tips: UNSTEADY,
        run: Run::Now(|ctx, args| lifetime(ctx, args, Count::Seconds)),
        ..KEY
    },
    Command {
        name: "type",
        arity: 2,
        flags: READ.union(FAST),
        keys: ONE,
        summary: "Returns the type of a key's value.",
        syntax: "key",
        run: Run::Now(type_of),
        ..KEY
    },
    Command {
        name: "unlink",
        arity: -2,
        flags: WRITE.union(FAST),
        keys: &[KeySpec::rest(1, 1, Access::Delete)],
        since: "4.0.0",
        complexity: "O(N) for N keys",
        summary: "Deletes keys and frees large values in the background.",
        syntax: "key...",
        tips: SUM,
        run: Run::Now(delete),
        ..KEY
    },
    Command {
        name: "wait",
        arity: 3,
        flags: Flags::BLOCKING,
        since: "3.0.0",
        summary: "Waits until a number of replicas have the preceding writes.",
        syntax: "numreplicas:integer timeout:integer",
        categories: &["@connection"],
        tips: &["request_policy:all_shards", "response_policy:agg_min"],
        run: Run::MayWait(wait),
        ..KEY
    },
    Command {
        name: "waitaof",
        arity: 4,
        flags: Flags::BLOCKING,
        since: "7.2.0",
        summary: "Waits until the journal here and those of a number of replicas have the preceding writes.",
        syntax: "numlocal:integer numreplicas:integer timeout:integer",
        categories: &["@connection"],
        tips: &["request_policy:all_shards", "response_policy:agg_min"],
        run: Run::MayWait(waitaof),
        ..KEY
    },
];
