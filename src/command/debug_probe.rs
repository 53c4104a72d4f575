//! DEBUG subcommands that inspect the server, and those of Redis that have no meaning here, which are refused with the
//! reason.

use crate::base::glob;
use crate::command::limits::DEBUG_GLOB_TRIALS;
use crate::config::parse_memory;
use crate::engine::hex_id;
use crate::engine::{Ctx, Done};
use crate::keyspace::any_value::ValueRef;
use crate::spec::error::Error;
use crate::value::list::ALONE_BYTES;

/// The lines of these subcommands in DEBUG HELP.
pub(super) const HELP: [&str; 16] = [
    "CHANGE-REPL-ID",
    "    Changes the replication id (master_replid of INFO).",
    "ERROR <string>",
    "    Returns an error with this text.",
    "HTSTATS <dbid> [FULL]",
    "    Returns the numbers of keys and expiring keys of a database, and the memory of its index.",
    "HTSTATS-KEY <key> [FULL]",
    "    Returns the number of elements of a set, hash or sorted set that is a hash table.",
    "PAUSE-CRON <0|1>",
    "    Pauses or resumes periodic work. The journal is still written.",
    "QUICKLIST-PACKED-THRESHOLD <size>",
    "    Sets the size from which an element of a long list gets a node of its own. 0 means the default, 1gb.",
    "SDSLEN <key>",
    "    Returns the lengths of a key and of its string, and the memory of both.",
    "STRINGMATCH-TEST",
    "    Matches random patterns with random strings, to check that the server survives it.",
];

/// Runs a subcommand, given in lower case; `None` if it is not one of these.
pub(super) fn run(ctx: &mut Ctx<'_>, word: &[u8], rest: &[&[u8]]) -> Option<Done> {
    Some(match (word, rest) {
        (b"error", [text]) => {
            let line: Vec<u8> =
                text.iter().map(|&byte| if matches!(byte, b'\r' | b'\n') { b' ' } else { byte }).collect();
            ctx.reply.error(&line);
            Ok(())
        }
        (b"stringmatch-test", []) => {
            match_at_random(ctx);
            ctx.reply.status("Apparently Redis did not crash: test passed");
            Ok(())
        }
        (b"pause-cron", [on]) => {
            ctx.server.switches.pauses_cron = crate::base::num::parse_i64(on).unwrap_or(0) != 0;
            ctx.reply.ok();
            Ok(())
        }
        (b"change-repl-id", []) => {
            ctx.server.identity.replication_id = hex_id(&mut ctx.ks.rng);
            ctx.reply.ok();
            Ok(())
        }
        (b"quicklist-packed-threshold", [size]) => set_alone_bytes(ctx, size),
        (b"sdslen", [key]) => string_lengths(ctx, key),
        (b"htstats", [db, full @ ..]) if full.len() <= 1 => table_of_database(ctx, db),
        (b"htstats-key", [key, full @ ..]) if full.len() <= 1 => table_of_value(ctx, key),
        (word, _) => Err(without_meaning(word)?),
    })
}

/// The error of a Redis subcommand that could neither change nor show anything here.
fn without_meaning(word: &[u8]) -> Option<Error> {
    let reason = match word {
        b"dict-resizing" => "no table is resized as a whole",
        b"replybuffer" => "no connection keeps a buffer for replies",
        b"quicklist" | b"listpack" => {
            "lists and small collections have no such layout; DEBUG OBJECT shows the encoding"
        }
        b"structsize" => "Redis' structures do not exist here; MEMORY USAGE shows the size of a key",
        b"mallctl" | b"mallctl-str" => "the allocator is mimalloc; MEMORY STATS and MEMORY MALLOC-STATS show its state",
        b"aof-flush-sleep" => "nothing sleeps before the journal is written",
        b"replicate" => "there are no replicas",
        b"script" => "use SCRIPT LIST and SCRIPT SHOW",
        _ => return None,
    };
    let word = String::from_utf8_lossy(word).to_ascii_uppercase();
    Some(Error::owned(format!("ERR DEBUG {word} is not supported: {reason}")))
}

/// Sets the size in bytes from which an element of a list gets a node of its own.
fn set_alone_bytes(ctx: &mut Ctx<'_>, size: &[u8]) -> Done {
    let size = parse_memory(size).and_then(|size| u32::try_from(size).ok());
    let size = size.ok_or(Error::text("ERR argument must be a memory value bigger than 1 and smaller than 4gb"))?;
    if ctx.server.persistence.loading.is_some() {
        return Err(Error::text("ERR the data is being loaded"));
    }
    let mut limits = *ctx.ks.limits();
    limits.list.alone_bytes = if size == 0 { ALONE_BYTES } else { size };
    ctx.ks.set_limits(limits);
    ctx.reply.ok();
    Ok(())
}

/// Random patterns of special characters against random strings of the same characters.
fn match_at_random(ctx: &mut Ctx<'_>) {
    const PATTERN: &[u8] = b"*?[]^-\\ab";
    let rng = &mut ctx.ks.rng;
    let mut text = |most: u64| -> Vec<u8> {
        (0..rng.next_u64() % most).map(|_| PATTERN[(rng.next_u64() % PATTERN.len() as u64) as usize]).collect()
    };
    for _ in 0..DEBUG_GLOB_TRIALS {
        let (pattern, string) = (text(32), text(64));
        std::hint::black_box(glob::matches(&pattern, &string));
    }
}

fn string_lengths(ctx: &mut Ctx<'_>, key: &[u8]) -> Done {
    let entry = ctx.ks.live(ctx.session.db, key).ok_or(Error::NoSuchKey)?;
    let ValueRef::String(string) = entry.value() else { return Err(NOT_TEXT) };
    if entry.value().encoding() == "int" {
        return Err(NOT_TEXT);
    }
    let (whole, value) = (entry.mem_bytes(0), entry.value().heap_bytes(0));
    let text = format!(
        "key_sds_len:{}, key_sds_avail:0, key_zmalloc: {}, val_sds_len:{}, val_sds_avail:0, val_zmalloc: {value}",
        key.len(),
        whole.saturating_sub(value),
        string.len(),
    );
    ctx.reply.status(&text);
    Ok(())
}

const NOT_TEXT: Error = Error::text("ERR Not an sds encoded string.");

fn table_of_database(ctx: &mut Ctx<'_>, db: &[u8]) -> Done {
    let db = crate::base::num::parse_i64(db).ok_or(Error::NotInteger)?;
    let db = u16::try_from(db).ok().filter(|db| *db < ctx.ks.databases());
    let db = db.ok_or(Error::text("ERR Out of range database"))?;
    // The reply shows the number of keys, so it depends on every change.
    ctx.ks.see_everything();
    let database = ctx.ks.db(db);
    let mut text = String::from("[Dictionary HT]\n");
    if !database.is_empty() {
        text += &table(database.len(), Some(database.index_bytes()));
    }
    text += "[Expires HT]\n";
    if database.volatile() > 0 {
        text += &table(database.volatile(), None);
    }
    ctx.reply.verbatim(b"txt", text.as_bytes());
    Ok(())
}

fn table_of_value(ctx: &mut Ctx<'_>, key: &[u8]) -> Done {
    let entry = ctx.ks.live(ctx.session.db, key).ok_or(Error::NoSuchKey)?;
    let elements = match entry.value() {
        value if !matches!(value.encoding(), "hashtable" | "skiplist") => None,
        ValueRef::Hash(hash) => Some(hash.len()),
        ValueRef::Set(set) => Some(set.len()),
        ValueRef::ZSet(zset) => Some(zset.len()),
        _ => None,
    };
    let elements = elements
        .ok_or(Error::text("ERR The value stored at the specified key is not represented using an hash table"))?;
    let text = table(elements, Some(entry.value().heap_bytes(0)));
    ctx.reply.verbatim(b"txt", text.as_bytes());
    Ok(())
}

fn table(elements: usize, bytes: Option<usize>) -> String {
    let bytes = bytes.map(|bytes| format!(" bytes: {bytes}\n")).unwrap_or_default();
    format!("Hash table 0 stats (main hash table):\n number of elements: {elements}\n{bytes}")
}
