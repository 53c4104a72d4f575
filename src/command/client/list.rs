//! CLIENT LIST and CLIENT INFO: one line for each connection.

use std::collections::BTreeMap;

use super::filter::{By, Filter};
use crate::engine::client::line::describe;
use crate::engine::{Ctx, Done};
use crate::resp::limits::REPLY_MAX_BYTES;
use crate::session::Session;
use crate::spec::args::Args;

pub(super) fn info(ctx: &mut Ctx<'_>, _: Args<'_>) -> Done {
    let mut text = Vec::new();
    see_dirty(ctx, ctx.session);
    describe(&mut text, ctx.server, ctx.session);
    ctx.reply.verbatim(b"txt", &text);
    Ok(())
}

/// A session whose EXEC will fail reveals that some key has changed, so the reply depends on every change.
fn see_dirty(ctx: &Ctx<'_>, session: &Session) {
    if session.watch_dirty {
        ctx.ks.see_everything();
    }
}

pub(super) fn list(ctx: &mut Ctx<'_>, mut args: Args<'_>) -> Done {
    let filter = Filter::parse(ctx, &mut args, By::List)?;
    let server = &*ctx.server;
    let caller = (!filter.spares_caller).then_some(&*ctx.session);
    let all = server.clients.sessions.iter().chain(caller).filter(|session| filter.meets(server, session));
    let by_id: BTreeMap<i64, &Session> = all.map(|session| (session.key.id as i64, session)).collect();
    let sessions: Vec<&Session> = match filter.ids() {
        // Open connections only, in the order of the ids given, with repetitions.
        Some(ids) => ids.iter().filter_map(|id| by_id.get(id).copied()).collect(),
        None => by_id.into_values().collect(),
    };
    let most = ctx.server.config.proto_max_bulk_len.max(REPLY_MAX_BYTES);
    let text = write_within(most, sessions, |text, session| {
        see_dirty(ctx, session);
        describe(text, ctx.server, session);
    });
    ctx.reply.verbatim(b"txt", &text);
    Ok(())
}

/// Writes items until the text exceeds `most` bytes. Such a reply is refused anyway and need not be complete: an id may
/// be repeated a million times.
fn write_within<T>(most: usize, items: Vec<T>, mut write: impl FnMut(&mut Vec<u8>, T)) -> Vec<u8> {
    let mut text = Vec::new();
    for item in items {
        if text.len() > most {
            break;
        }
        write(&mut text, item);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_over_the_limit_is_not_written_to_its_end() {
        let written =
            |most| write_within(most, vec!["abc"; 1_000], |text, line| text.extend_from_slice(line.as_bytes()));
        assert_eq!((written(10).len(), written(3_000).len()), (12, 3_000));
    }
}
