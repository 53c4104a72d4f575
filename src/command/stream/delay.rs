//! XADD with DELAY or AT: a message that becomes an entry at a later time, see `docs/coordination/queues.md`.

use crate::command::limits::DELAY_MAX_MS;
use crate::engine::Ctx;
use crate::keyspace::Slot;
use crate::resp::reply::Reply;
use crate::spec::args::Args;
use crate::spec::error::Error;
use crate::value::stream::{NewId, Stream, StreamId};

/// Takes DELAY or AT if it is the next argument, and sets the due time in Unix ms. Only one of them may be given, once.
pub(super) fn take(due_ms: &mut Option<i64>, args: &mut Args<'_>, now_ms: i64) -> Result<bool, Error> {
    let new = if args.option("delay", 1) {
        let delay_ms = args.int()?;
        if !(0..=DELAY_MAX_MS).contains(&delay_ms) {
            return Err(Error::owned(format!("ERR DELAY must be from 0 to {DELAY_MAX_MS} milliseconds")));
        }
        now_ms.saturating_add(delay_ms)
    } else if args.option("at", 1) {
        let at_ms = args.int()?;
        if at_ms < 0 || at_ms.saturating_sub(now_ms) > DELAY_MAX_MS {
            return Err(Error::owned(format!(
                "ERR AT must be a Unix time in milliseconds, at most {DELAY_MAX_MS} ms from now"
            )));
        }
        at_ms
    } else {
        return Ok(false);
    };
    if due_ms.replace(new).is_some() {
        return Err(Error::Syntax);
    }
    Ok(true)
}

/// Refuses arguments that make no sense for a delayed message.
pub(super) fn admit(id: Option<NewId>, trims: bool) -> Result<(), Error> {
    if id.is_some_and(|id| id != NewId::Auto) {
        return Err(Error::text("ERR DELAY and AT require `*` as the id: it is derived from the time"));
    }
    if trims {
        return Err(Error::text(
            "ERR DELAY and AT can't be used with MAXLEN or MINID: trim with XTRIM, or when adding other entries",
        ));
    }
    Ok(())
}

/// Keeps a message in the stream at `slot`, or in a new one, until it is due. Returns its id and the slot of the
/// stream; `None` if the stream has no further id.
pub(super) fn keep<'a>(
    ctx: &mut Ctx<'_>,
    key: &[u8],
    slot: Option<Slot>,
    due_ms: i64,
    pairs: impl Iterator<Item = (&'a [u8], &'a [u8])> + Clone,
) -> Result<Option<(StreamId, Slot)>, Error> {
    let (db, due_ms) = (ctx.db(), due_ms.max(0) as u64);
    let id = match slot {
        None => Stream::new().delay_id(due_ms),
        Some(slot) => {
            let stream = ctx.ks.stream(db, slot)?;
            stream.delay_id(due_ms).filter(|_| stream.last_id() < StreamId::MAX)
        }
    };
    let Some(id) = id else { return Ok(None) };
    let Some(slot) = ctx.ks.stream_delay(db, key, slot, id, pairs)? else { return Ok(None) };
    if ctx.ks.stream(db, slot)?.delayed_from(StreamId::MIN).next().is_some_and(|first| first.id == id) {
        // Waiting calls computed their wake-up from the earlier first message.
        ctx.wake_waiting(key);
    }
    Ok(Some((id, slot)))
}

/// The number of fields that [`answer`] adds.
pub(super) fn fields(stream: &Stream) -> usize {
    if stream.delayed_len() > 0 { 2 } else { 0 }
}

/// Writes the fields of XINFO about delayed messages, which Redis' reply does not have.
pub(super) fn answer(stream: &Stream, reply: &mut Reply) {
    let Some(due_ms) = stream.first_delayed_ms() else { return };
    reply.bulk(b"delayed");
    reply.integer(stream.delayed_len() as i64);
    reply.bulk(b"next-due-time");
    reply.integer(i64::try_from(due_ms).unwrap_or(i64::MAX));
}
