//! CLIENT KILL: closes the connections that match a filter.

use super::filter::{By, Filter};
use crate::engine::{Ctx, Done};
use crate::spec::args::Args;
use crate::spec::error::Error;
use crate::spec::session_key::SessionKey;

pub(super) fn kill(ctx: &mut Ctx<'_>, mut args: Args<'_>) -> Done {
    if args.len() == 1 {
        // The old form takes one address, may kill the caller, and replies OK.
        let victims = Filter::at(args.bytes()?);
        if kill_all(ctx, &victims) == 0 {
            return Err(Error::text("ERR No such client"));
        }
        ctx.reply.ok();
        return Ok(());
    }
    let victims = Filter::parse(ctx, &mut args, By::Kill)?;
    let killed = kill_all(ctx, &victims);
    ctx.reply.integer(killed);
    Ok(())
}

fn kill_all(ctx: &mut Ctx<'_>, victims: &Filter) -> i64 {
    let server = &*ctx.server;
    let sessions = server.clients.sessions.iter().filter(|session| victims.meets(server, session));
    let condemned: Vec<SessionKey> = sessions.map(|session| session.key).collect();
    let is_caller_meant = !victims.spares_caller && victims.meets(server, ctx.session);
    let mut killed = condemned.len() as i64;
    condemned.into_iter().for_each(|key| ctx.server.connections().kill(key));
    if is_caller_meant {
        // The caller still gets the reply.
        ctx.server.connections().close_soon(ctx.session);
        killed += 1;
    }
    killed
}
