//! DEBUG: commands for tests, refused unless `enable-debug-command` allows them.

use std::time::Duration;

use sha1::{Digest, Sha1};

use super::{config, debug_probe, help};
use crate::base::hex::hex;
use crate::base::num;
use crate::command::limits::{DEBUG_POPULATE_MAX_BYTES, DEBUG_SLEEP_MAX};
use crate::config::Added;
use crate::engine::{Command, Ctx, Done, Flow, MayWait, Run};
use crate::keyspace::any_value::ValueRef;
use crate::persist::saving::Reload;
use crate::rdb;
use crate::resp::reply::{Form, Reply};
use crate::spec::args::Args;
use crate::spec::error::{Error, excerpt};
use crate::spec::{Flags, Group};
use crate::value::packed::Item;
use crate::wait::Wait;

fn debug(ctx: &mut Ctx<'_>, mut args: Args<'_>) -> MayWait {
    // DEBUG may change data even while clients are paused, so expired keys can be removed.
    ctx.ks.keep_expired_no_longer();
    ctx.session.debug_allowed(&ctx.server.config)?;
    let word = args.bytes()?;
    let rest: Vec<&[u8]> = args.rest().iter().collect();
    match (word.to_ascii_lowercase().as_slice(), rest.as_slice()) {
        (b"help", []) => help::write(ctx, "debug", sorted_help().iter().copied()),
        (b"log", [message]) => {
            tracing::warn!("DEBUG LOG: {}", String::from_utf8_lossy(message));
            ctx.reply.ok();
        }
        (b"sleep", [seconds]) => {
            let time = Duration::try_from_secs_f64(num::strtod(seconds).value).unwrap_or(Duration::ZERO);
            ctx.server.send_unsent();
            std::thread::sleep(time.min(DEBUG_SLEEP_MAX));
            ctx.reply.ok();
        }
        (b"set-active-expire", [on]) => {
            ctx.server.switches.active_expire = num::parse_i64(on).unwrap_or(0) != 0;
            ctx.reply.ok();
        }
        (b"object", [key]) => object(ctx, key)?,
        (b"protocol", [kind]) => protocol(ctx.reply, kind)?,
        (b"digest", []) => {
            let digest = digest_of_all(ctx);
            ctx.reply.status(&hex(&digest));
        }
        (b"digest-value", keys) => {
            ctx.reply.array(keys.len());
            for key in keys {
                let digest = ctx.ks.live(ctx.session.db, key).map_or([0; 20], |entry| digest_of(entry.value()));
                ctx.reply.status(&hex(&digest));
            }
        }
        (b"populate", [count, options @ ..]) if options.len() <= 2 => populate(ctx, count, options)?,
        (b"set-disable-deny-scripts", [on]) => {
            ctx.server.switches.debug_in_scripts = num::parse_i64(on).unwrap_or(0) != 0;
            ctx.reply.ok();
        }
        (b"set-skip-checksum-validation", [on]) => {
            ctx.server.switches.skip_checksums = num::parse_i64(on).unwrap_or(0) != 0;
            ctx.reply.ok();
        }
        (b"reload", options) => return reload(ctx, options),
        (b"config-rewrite-force-all", []) => {
            config::rewrite::write(ctx, Added::All)?;
            ctx.reply.ok();
        }
        (b"loadaof", []) => return load_log(ctx),
        (known, rest) => {
            if let Some(done) = debug_probe::run(ctx, known, rest) {
                return done.map(|()| Flow::Replied);
            }
            let word = excerpt(word, 128);
            return Err(Error::owned(format!(
                "ERR unknown subcommand or wrong number of arguments for '{word}'. Try DEBUG HELP."
            )));
        }
    }
    Ok(Flow::Replied)
}

/// A digest of all data: keys, values with their layouts, and deadlines of keys.
fn digest_of_all(ctx: &Ctx<'_>) -> [u8; 20] {
    let mut all = [0; 20];
    for db in 0..ctx.ks.databases() {
        for entry in ctx.ks.entries(db) {
            let expires_at_ms = entry.expires_at_ms().unwrap_or(i64::MAX);
            let hash = Sha1::new()
                .chain_update(db.to_le_bytes())
                .chain_update(expires_at_ms.to_le_bytes())
                .chain_update(digest_of(entry.value()))
                .chain_update(entry.key());
            add(&mut all, hash.finalize().into());
        }
    }
    all
}

/// Unordered values are combined element by element; other values are hashed as DUMP payloads.
fn digest_of(value: ValueRef<'_>) -> [u8; 20] {
    let mut all = [0; 20];
    let element = |items: &[Item<'_>]| {
        let mut hash = Sha1::new();
        for item in items {
            let text = item.to_vec();
            hash.update((text.len() as u64).to_le_bytes());
            hash.update(&text);
        }
        <[u8; 20]>::from(hash.finalize())
    };
    match value {
        ValueRef::Hash(hash) => hash.iter().for_each(|(field, value)| add(&mut all, element(&[field, value]))),
        ValueRef::Set(set) => set.iter().for_each(|member| add(&mut all, element(&[member]))),
        other => all = Sha1::digest(rdb::dump(other)).into(),
    }
    all
}

fn add(all: &mut [u8; 20], one: [u8; 20]) {
    all.iter_mut().zip(one).for_each(|(all, one)| *all ^= one);
}

/// DEBUG POPULATE: adds many strings at once. Existing keys stay as they are.
fn populate(ctx: &mut Ctx<'_>, count: &[u8], options: &[&[u8]]) -> Done {
    let number = |text| num::parse_i64(text).and_then(|n| usize::try_from(n).ok()).ok_or(Error::NotPositive);
    let count = number(count)?;
    let prefix = options.first().copied().unwrap_or(b"key");
    let size = options.get(1).copied().map(number).transpose()?.filter(|size| *size > 0);
    if ctx.server.persistence.loading.is_some() {
        return Err(Error::text("ERR the data is being loaded"));
    }
    if ctx.server.programs.running.is_some() {
        // No script declares that it writes through DEBUG, so a script that did could not be killed or rolled back.
        return Err(Error::text("ERR DEBUG POPULATE is not allowed from script"));
    }
    ctx.server.persistence.admit_logged(&ctx.server.config, Flags::WRITE)?;
    ctx.session.admit_short_of_followers(Flags::WRITE)?;
    let each = POPULATE_KEY_BYTES.saturating_add(prefix.len()).saturating_add(size.unwrap_or(0));
    let all = count.saturating_mul(each);
    if all > DEBUG_POPULATE_MAX_BYTES {
        return Err(Error::owned(format!("ERR DEBUG POPULATE adds at most {DEBUG_POPULATE_MAX_BYTES} bytes at once")));
    }
    ctx.admit_effects(all)?;
    ctx.server.send_unsent();
    let db = ctx.db();
    let (mut key, mut value) = (prefix.to_vec(), Vec::new());
    for n in 0..count {
        key.truncate(prefix.len());
        key.extend_from_slice(format!(":{n}").as_bytes());
        value.clear();
        value.extend_from_slice(format!("value:{n}").as_bytes());
        if let Some(size) = size {
            value.resize(size, 0);
        }
        if ctx.ks.find(db, &key).is_none() {
            _ = ctx.ks.put_at(db, &key, None, &value);
        }
    }
    ctx.reply.ok();
    Ok(())
}

/// The most bytes of a key's effect, without its prefix and the padding of its value.
const POPULATE_KEY_BYTES: usize = 64;

/// DEBUG RELOAD: saves the data and reads it back.
fn reload(ctx: &mut Ctx<'_>, options: &[&[u8]]) -> MayWait {
    let (mut save, mut keep, mut merge) = (true, false, false);
    for option in options {
        match option.to_ascii_lowercase().as_slice() {
            b"nosave" => save = false,
            b"noflush" => keep = true,
            b"merge" => merge = true,
            _ => return Err(Error::text("ERR DEBUG RELOAD only supports the MERGE, NOFLUSH and NOSAVE options.")),
        }
    }
    let failed = "ERR Error trying to load the RDB dump, check server logs";
    read_again(ctx, Reload { client: (ctx.session.key, ctx.entry.id), save, keep, merge, failed })
}

/// DEBUG LOADAOF: reads the snapshot and the journal again.
fn load_log(ctx: &mut Ctx<'_>) -> MayWait {
    let failed = "ERR Error trying to load the AOF files, check server logs";
    let client = (ctx.session.key, ctx.entry.id);
    read_again(ctx, Reload { client, save: false, keep: false, merge: false, failed })
}

fn read_again(ctx: &mut Ctx<'_>, reload: Reload) -> MayWait {
    if ctx.server.persistence.loading.is_some() {
        return Err(Error::text("ERR the data is being loaded"));
    }
    if !ctx.may_wait() {
        return Err(Error::text("ERR the data can't be reloaded inside a transaction"));
    }
    if !ctx.server.persistence.saving.reload(reload) {
        return Err(Error::text("ERR the data is being reloaded"));
    }
    let on_timeout = |reply: &mut Reply| reply.error(b"ERR the data is still being reloaded");
    Ok(Flow::wait(Wait::until(None, on_timeout)))
}

const HELP: [&str; 30] = [
    "CONFIG-REWRITE-FORCE-ALL",
    "    Writes all parameters to the configuration file, including those at their defaults.",
    "DIGEST",
    "    Returns a digest of all data, which is equal for equal data.",
    "DIGEST-VALUE [<key> ...]",
    "    Returns a digest of each value.",
    "HELP",
    "    Lists the subcommands.",
    "LOADAOF",
    "    Replaces the data in memory by reading the journal from disk again.",
    "LOG <message>",
    "    Writes a message to the server's log file.",
    "OBJECT <key>",
    "    Describes a value's representation; serializedlength is its size in a DUMP payload, without type and footer.",
    "POPULATE <count> [<prefix>] [<size>]",
    "    Adds <count> strings at key:0, key:1 and so on, or with another prefix, each cut or padded to <size> bytes.",
    "PROTOCOL <type>",
    "    Returns a value of a protocol type: string, integer, double, bignum, null, array, set, map, attrib, push,",
    "    verbatim, true or false.",
    "RELOAD [MERGE] [NOFLUSH] [NOSAVE]",
    "    Makes a snapshot (not with NOSAVE) and reads it back; NOFLUSH keeps the data that is in memory.",
    "SET-ACTIVE-EXPIRE <0|1>",
    "    Turns the background removal of expired keys off or on.",
    "SET-DISABLE-DENY-SCRIPTS <0|1>",
    "    Allows or forbids DEBUG in scripts. Other commands that scripts must not call stay refused.",
    "SET-SKIP-CHECKSUM-VALIDATION <0|1>",
    "    Makes RESTORE accept or refuse payloads with wrong checksums.",
    "SLEEP <seconds>",
    "    Stops the server for this time.",
    "    Fractions are allowed.",
];

/// Returns the help of all subcommands, sorted by name.
fn sorted_help() -> Vec<&'static str> {
    let mut entries: Vec<Vec<&str>> = Vec::new();
    for line in HELP.iter().chain(&debug_probe::HELP) {
        match entries.last_mut() {
            Some(entry) if line.starts_with(' ') => entry.push(line),
            _ => entries.push(vec![line]),
        }
    }
    entries.sort();
    entries.concat()
}

fn object(ctx: &mut Ctx<'_>, key: &[u8]) -> Done {
    let db = ctx.session.db;
    // Includes a key that has expired but is not removed yet.
    let entry = ctx.ks.stored(db, key).ok_or(Error::NoSuchKey)?;
    let idle_s = ctx.ks.idle_ms(entry).unwrap_or(0) / 1_000;
    let text = format!(
        "Value at:{:p} refcount:1 encoding:{} serializedlength:{} lru:{} lru_seconds_idle:{idle_s}",
        entry.address(),
        entry.value().encoding(),
        rdb::serialized_len(entry.value()),
        entry.used() & 0xff_ffff,
    );
    ctx.reply.status(&text);
    Ok(())
}

/// Returns a value of each type. The values are Redis', because client libraries test their decoders with them.
#[expect(clippy::approx_constant, reason = "3.141 is what Redis answers")]
fn protocol(reply: &mut Reply, kind: &[u8]) -> Done {
    match kind.to_ascii_lowercase().as_slice() {
        b"string" => reply.bulk(b"Hello World"),
        b"integer" => reply.integer(12345),
        b"double" => reply.double(3.141),
        b"null" => reply.null(),
        b"array" => {
            reply.array(3);
            (0..3).for_each(|n| reply.integer(n));
        }
        b"set" => {
            reply.set(3);
            (0..3).for_each(|n| reply.integer(n));
        }
        b"map" => {
            reply.map(3);
            for n in 0..3 {
                reply.integer(n);
                reply.boolean(n == 1);
            }
        }
        b"attrib" => {
            // Scripts do not get attributes.
            if reply.form() == Form::Resp3 {
                // Written by hand: no command replies with attributes, so the encoder has no function for them.
                reply.buffer_mut().extend_from_slice(b"|1\r\n");
                reply.bulk(b"key-popularity");
                reply.array(2);
                reply.bulk(b"key:123");
                reply.integer(90);
            }
            reply.bulk(b"Some real reply following the attribute");
        }
        b"push" => {
            if !reply.is_resp3() {
                return Err(Error::text("ERR RESP2 is not supported by this command"));
            }
            reply.push(2);
            reply.bulk(b"server-cpu-usage");
            reply.integer(42);
            reply.bulk(b"Some real reply following the push reply");
        }
        b"true" => reply.boolean(true),
        b"false" => reply.boolean(false),
        b"verbatim" => reply.verbatim(b"txt", b"This is a verbatim\nstring"),
        b"bignum" => reply.big_number(b"1234567999999999999999999999999999999"),
        _ => {
            return Err(Error::text(
                "ERR Wrong protocol type name. Please use one of the following: \
                 string|integer|double|bignum|null|array|set|map|attrib|push|verbatim|true|false",
            ));
        }
    }
    Ok(())
}

/// The family's table.
pub(super) const COMMANDS: &[Command] = &[Command {
    name: "debug",
    arity: -2,
    flags: Flags::ADMIN.union(Flags::NOSCRIPT).union(Flags::LOADING).union(Flags::STALE).union(Flags::PROTECTED),
    group: Group::Server,
    complexity: "Depends on subcommand.",
    summary: "A container for debugging commands; see DEBUG HELP.",
    syntax: "subcommand [arg...]",
    run: Run::MayWait(debug),
    ..Command::EMPTY
}];
