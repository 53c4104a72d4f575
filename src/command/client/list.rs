//! CLIENT LIST and CLIENT INFO: one line about each connection.

use std::collections::BTreeMap;

use super::filter::{By, Filter};
use crate::engine::args::Args;
use crate::engine::client_line::describe;
use crate::engine::session::Session;
use crate::engine::{Ctx, Done};

pub(super) fn info(ctx: &mut Ctx<'_>, _: Args<'_>) -> Done {
    let mut text = Vec::new();
    see_dirty(ctx, ctx.session);
    describe(&mut text, ctx.server, ctx.session);
    ctx.reply.verbatim(b"txt", &text);
    Ok(())
}

/// That a session's EXEC will fail tells of a change of some key.
fn see_dirty(ctx: &Ctx<'_>, session: &Session) {
    if session.watch_dirty {
        ctx.ks.see_everything();
    }
}

pub(super) fn list(ctx: &mut Ctx<'_>, mut args: Args<'_>) -> Done {
    let filter = Filter::parse(ctx, &mut args, By::List)?;
    let server = &*ctx.server;
    let caller = (!filter.spares_caller).then_some(&*ctx.session);
    let all = server.sessions.iter().chain(caller).filter(|session| filter.meets(server, session));
    let by_id: BTreeMap<i64, &Session> = all.map(|session| (session.key.id as i64, session)).collect();
    let sessions: Vec<&Session> = match filter.ids() {
        // Those that are there, in the order in which they were asked for, and as often.
        Some(ids) => ids.iter().filter_map(|id| by_id.get(id).copied()).collect(),
        None => by_id.into_values().collect(),
    };
    let mut text = Vec::new();
    for session in sessions {
        see_dirty(ctx, session);
        describe(&mut text, ctx.server, session);
    }
    ctx.reply.verbatim(b"txt", &text);
    Ok(())
}
