//! Idempotent production: XADD's IDMP and IDMPAUTO, and XCFGSET, which sets how long requests are remembered.

use std::borrow::Cow;

use sha1::{Digest, Sha1};

use super::common::{ID_INVALID, find};
use crate::engine::{Ctx, Done};
use crate::keyspace::Slot;
use crate::spec::args::Args;
use crate::spec::error::Error;
use crate::value::stream::StreamId;

/// A producer's request: a name that is unique for the producer, or `None` to derive one from the entry's content.
pub(super) struct Request<'a> {
    producer: &'a [u8],
    iid: Option<&'a [u8]>,
}

/// A request with its name.
pub(super) struct NamedRequest<'a> {
    producer: &'a [u8],
    iid: Cow<'a, [u8]>,
}

impl<'a> Request<'a> {
    /// Takes the option if it is the next argument. It may be given once.
    pub(super) fn take(request: &mut Option<Request<'a>>, args: &mut Args<'a>) -> Result<bool, Error> {
        let (word, new) = if args.option("idmp", 2) {
            ("IDMP", Request { producer: args.bytes()?, iid: Some(args.bytes()?) })
        } else if args.option("idmpauto", 1) {
            ("IDMPAUTO", Request { producer: args.bytes()?, iid: None })
        } else {
            return Ok(false);
        };
        if new.producer.is_empty() {
            return Err(Error::owned(format!("ERR {word} requires a non-empty producer ID")));
        }
        if new.iid.is_some_and(<[u8]>::is_empty) {
            return Err(Error::owned(format!("ERR {word} requires a non-empty idempotent ID")));
        }
        match request.replace(new) {
            None => Ok(true),
            Some(_) => Err(Error::text("ERR IDMP/IDMPAUTO specified multiple times")),
        }
    }

    /// Returns the request with its name. A derived name does not depend on the order of `pairs`.
    pub(super) fn resolve(self, pairs: impl Iterator<Item = (&'a [u8], &'a [u8])>) -> NamedRequest<'a> {
        let iid = self.iid.map_or_else(|| Cow::Owned(digest(pairs.collect()).to_vec()), Cow::Borrowed);
        NamedRequest { producer: self.producer, iid }
    }
}

fn digest(mut pairs: Vec<(&[u8], &[u8])>) -> [u8; 16] {
    pairs.sort_unstable();
    let mut sha = Sha1::new();
    for part in pairs.iter().flat_map(|(field, value)| [field, value]) {
        sha.update((part.len() as u64).to_le_bytes());
        sha.update(part);
    }
    let mut short = [0; 16];
    short.copy_from_slice(&sha.finalize()[..16]);
    short
}

impl NamedRequest<'_> {
    /// Returns the entry that this request appended before, and counts the repetition.
    pub(super) fn repeated(&self, ctx: &mut Ctx<'_>, slot: Slot) -> Result<Option<StreamId>, Error> {
        let (db, now_ms) = (ctx.db(), ctx.now_ms().max(0) as u64);
        let known = ctx.ks.stream(db, slot)?.idempotency();
        let Some(id) = known.and_then(|known| known.find(self.producer, &self.iid, now_ms)) else { return Ok(None) };
        ctx.ks.request_repeated(db, slot)?;
        Ok(Some(id))
    }

    /// Records that the request appended entry `id`, and forgets expired requests.
    pub(super) fn remember(&self, ctx: &mut Ctx<'_>, slot: Slot, id: StreamId) -> Done {
        let (db, now_ms) = (ctx.db(), ctx.now_ms().max(0) as u64);
        match ctx.ks.stream(db, slot)?.idempotency() {
            Some(known) => {
                for (producer, count) in known.expired(self.producer, now_ms) {
                    ctx.ks.request_forget(db, slot, &producer, count)?;
                }
            }
            None => {
                let (duration_s, max_iids) = defaults(ctx);
                ctx.ks.request_limits(db, slot, duration_s, max_iids)?;
            }
        }
        ctx.ks.request_add(db, slot, self.producer, &self.iid, id)?;
        Ok(())
    }
}

/// The limits of a stream without limits of its own: seconds, and requests of each producer.
pub(super) fn defaults(ctx: &Ctx<'_>) -> (u32, u32) {
    (ctx.server.config.stream_idmp_duration_s, ctx.server.config.stream_idmp_maxsize)
}

pub(super) fn xcfgset(ctx: &mut Ctx<'_>, mut args: Args<'_>) -> Done {
    let db = ctx.db();
    let key = args.bytes()?;
    let (mut duration_s, mut max_iids) = (None, None);
    while !args.is_empty() {
        if args.option("idmp-duration", 1) {
            let wrong = "ERR IDMP-DURATION must be between 1 and 86400 seconds";
            duration_s = Some(bounded(&mut args, 86_400, wrong)?);
        } else if args.option("idmp-maxsize", 1) {
            max_iids = Some(bounded(&mut args, 10_000, "ERR IDMP-MAXSIZE must be between 1 and 10000 entries")?);
        } else {
            return Err(Error::Syntax);
        }
    }
    if duration_s.is_none() && max_iids.is_none() {
        return Err(Error::text("ERR At least one parameter must be specified"));
    }
    let slot = find(ctx.ks, db, key)?.ok_or(Error::NoSuchKey)?;
    let known = ctx.ks.stream(db, slot)?.idempotency();
    let current = known.map_or_else(|| defaults(ctx), |known| (known.duration_s, known.max_iids));
    ctx.ks.request_limits(db, slot, duration_s.unwrap_or(current.0), max_iids.unwrap_or(current.1))?;
    ctx.reply.ok();
    Ok(())
}

fn bounded(args: &mut Args<'_>, max: u32, wrong: &'static str) -> Result<u32, Error> {
    let value = u32::try_from(args.int()?).ok();
    value.filter(|value| (1..=max).contains(value)).ok_or(Error::text(wrong))
}

pub(super) fn xidmprecord(ctx: &mut Ctx<'_>, mut args: Args<'_>) -> Done {
    let db = ctx.db();
    let (key, producer, iid) = (args.bytes()?, args.bytes()?, args.bytes()?);
    let id = StreamId::parse(args.bytes()?, 0).ok_or(ID_INVALID)?;
    if producer.is_empty() || iid.is_empty() {
        return Err(Error::text("ERR XIDMPRECORD requires a non-empty producer ID and idempotent ID"));
    }
    let slot = find(ctx.ks, db, key)?.ok_or(Error::NoSuchKey)?;
    let stream = ctx.ks.stream(db, slot)?;
    if stream.entry(id).is_none() {
        return Err(Error::text("ERR The specified stream ID was deleted or doesn't exist"));
    }
    let request = NamedRequest { producer, iid: Cow::Borrowed(iid) };
    match stream.idempotency().and_then(|known| known.find(producer, iid, 0)) {
        None => request.remember(ctx, slot, id)?,
        Some(known) if known == id => {}
        Some(_) => {
            return Err(Error::text(
                "ERR The specified IDMP producer-id/idempotent-id pair maps to a different stream ID",
            ));
        }
    }
    ctx.reply.ok();
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_derived_name_depends_on_everything_but_the_order_of_pairs() {
        let name = |pairs: &[(&str, &str)]| {
            digest(pairs.iter().map(|(field, value)| (field.as_bytes(), value.as_bytes())).collect())
        };
        assert_eq!(name(&[("a", "1"), ("b", "2")]), name(&[("b", "2"), ("a", "1")]));
        let different = [
            name(&[("a", "1"), ("b", "2")]),
            name(&[("a", "2"), ("b", "1")]),
            name(&[("a", "1b2")]),
            name(&[("a1", "b2")]),
            name(&[("a", "1"), ("a", "1"), ("b", "2")]),
            name(&[("a", ""), ("", "1")]),
            name(&[("", "a"), ("1", "")]),
        ];
        for (at, one) in different.iter().enumerate() {
            assert!(different[at + 1..].iter().all(|other| other != one));
        }
    }
}
