//! DUMP and RESTORE: a value as bytes from which this or another server can recreate it. The format is that of [`rdb`].

use crate::engine::{Command, Ctx, Done, Run};
use crate::keyspace::any_value::Value;
use crate::keyspace::{NEVER, Slot};
use crate::rdb::{self, Refused};
use crate::spec::args::Args;
use crate::spec::error::Error;
use crate::spec::{Access, Flags, Group, KeySpec};
use crate::value::grants::{Grant, Grants};

fn dump(ctx: &mut Ctx<'_>, mut args: Args<'_>) -> Done {
    match ctx.ks.read(ctx.session.db, args.bytes()?) {
        Some(value) => ctx.reply.bulk(&rdb::dump(value)),
        None => ctx.reply.null(),
    }
    Ok(())
}

/// The options of RESTORE.
#[derive(Default)]
struct Options {
    replace: bool,
    /// Whether the time to live is a Unix time.
    absolute: bool,
    /// Idle time in seconds; kept if the eviction policy uses it.
    idle_s: Option<i64>,
    /// Access frequency; kept if the eviction policy uses it.
    frequency: Option<u8>,
}

impl Options {
    fn parse(args: &mut Args<'_>) -> Result<Options, Error> {
        let mut options = Options::default();
        while !args.is_empty() {
            if args.flag("replace") {
                options.replace = true;
            } else if args.flag("absttl") {
                options.absolute = true;
            } else if options.frequency.is_none() && args.option("idletime", 1) {
                let seconds = Some(args.int()?).filter(|seconds| *seconds >= 0);
                options.idle_s = Some(seconds.ok_or(Error::text("ERR Invalid IDLETIME value, must be >= 0"))?);
            } else if options.idle_s.is_none() && args.option("freq", 1) {
                let frequency = u8::try_from(args.int()?).ok();
                options.frequency =
                    Some(frequency.ok_or(Error::text("ERR Invalid FREQ value, must be >= 0 and <= 255"))?);
            } else {
                return Err(Error::Syntax);
            }
        }
        Ok(options)
    }
}

const BAD_CONTENT: Error = Error::text("ERR Bad data format");

/// The value would write another key later, as a group policy writes dead letters, and the caller may not write that
/// key.
pub(super) const NO_WRITTEN_KEY: Error = Error::text("NOPERM No permissions to access a key that the value writes");

/// A grant in the payload is not held here, but this server has already issued its token or a greater one. Its lease
/// has therefore ended, and the holder may have been told so: reviving it could grant a resource twice.
const STALE: Error = Error::text(
    "STALE The value was not restored: this server has already issued the fencing tokens of its holders, or greater \
     ones, so their leases have ended. Holders from another server can be restored only while their tokens are greater \
     than the last one issued here",
);

/// Checks whether the grants of a payload may be held. Allowed are tokens issued elsewhere, and grants that are held at
/// the key right now, which keep their current state.
fn admit_grants(ctx: &Ctx<'_>, old: Option<Slot>, grants: &mut Grants) -> Done {
    if !ctx.ks.may_restore_token(grants.last_token()) {
        return Err(BAD_CONTENT);
    }
    let held_here = old.and_then(|slot| ctx.ks.grants(ctx.session.db, slot).ok());
    // It is unknown whether the leases of another server's tokens have ended, unless the key holds a greater token.
    let held_last = held_here.map_or(0, Grants::last_token);
    let is_known = |grant: &Grant<'_>| ctx.ks.has_given_token(grant.token) || grant.token <= held_last;
    let known: Vec<(Vec<u8>, u64)> =
        grants.from(0).filter(is_known).map(|grant| (grant.holder.to_vec(), grant.token)).collect();
    for (holder, token) in known {
        let held = held_here.and_then(|held| held.get(&holder)).filter(|held| held.token == token).ok_or(STALE)?;
        if !grants.set(held) {
            return Err(BAD_CONTENT);
        }
    }
    Ok(())
}

fn restore(ctx: &mut Ctx<'_>, mut args: Args<'_>) -> Done {
    let (db, argv) = (ctx.session.db, args.argv());
    let (key, ttl, payload) = (args.bytes()?, args.bytes()?, args.bytes()?);
    let options = Options::parse(&mut args)?;
    let old = ctx.ks.find(db, key);
    if old.is_some() && !options.replace {
        return Err(Error::text("BUSYKEY Target key name already exists."));
    }
    let ttl_ms = crate::base::num::parse_i64(ttl).ok_or(Error::NotInteger)?;
    if ttl_ms < 0 {
        return Err(Error::text("ERR Invalid TTL value, must be >= 0"));
    }
    ctx.server.meters.stats.payloads_checked += 1;
    let load = if ctx.server.switches.skip_checksums { rdb::load_unchecked } else { rdb::load };
    let mut value = load(payload, ctx.ks.limits()).map_err(|refused| match refused {
        Refused::Envelope => Error::text("ERR DUMP payload version or checksum are wrong"),
        Refused::Content => BAD_CONTENT,
    })?;
    if let Value::Grants(grants) = &mut value {
        admit_grants(ctx, old, grants)?;
    }
    if !ctx.server.rights().may_also_write(ctx.session, ctx.entry, argv, &value.as_ref().written_keys()) {
        return Err(NO_WRITTEN_KEY);
    }
    let now_ms = ctx.now_ms();
    let at_ms = match ttl_ms {
        0 => NEVER,
        ttl_ms if options.absolute => ttl_ms.min(NEVER - 1),
        ttl_ms => now_ms.saturating_add(ttl_ms).min(NEVER - 1),
    };
    ctx.reply.ok();
    if ctx.ks.expires_at_once(at_ms) {
        if let Some(old) = old {
            ctx.ks.remove(db, old);
        }
        return Ok(());
    }
    let mut slot = ctx.put_value(key, value)?;
    if at_ms != NEVER {
        slot = ctx.ks.expire_at(db, slot, at_ms);
    }
    if let Some(seconds) = options.idle_s {
        ctx.ks.set_idle(db, slot, seconds);
    }
    if let Some(frequency) = options.frequency {
        ctx.ks.set_frequency(db, slot, frequency);
    }
    Ok(())
}

const KEY: Command = Command { group: Group::Generic, since: "2.6.0", ..Command::EMPTY };

/// The family's table.
pub(super) const COMMANDS: &[Command] = &[
    Command {
        name: "dump",
        arity: 2,
        flags: Flags::READONLY,
        keys: &[KeySpec::one(1, Access::Read)],
        complexity: "O(N) for a value of N bytes",
        summary: "Returns the serialized value of a key, for RESTORE.",
        syntax: "key",
        tips: &["nondeterministic_output"],
        run: Run::Now(dump),
        ..KEY
    },
    Command {
        name: "restore",
        arity: -4,
        flags: Flags::WRITE.union(Flags::DENYOOM),
        keys: &[KeySpec::one(1, Access::Overwrite)],
        categories: &["@dangerous"],
        complexity: "O(N) for a value of N bytes, O(N*log(N)) for a sorted set",
        summary: "Creates a key from a payload of DUMP.",
        syntax: "key ttl:integer serialized-value [REPLACE] [ABSTTL] [IDLETIME seconds] [FREQ frequency:integer]",
        event: "restore",
        run: Run::Now(restore),
        ..KEY
    },
];
