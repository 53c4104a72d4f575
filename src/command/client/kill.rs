//! CLIENT KILL: closes the connections that meet every condition.

use super::list::{Kind, client_kind};
use crate::engine::args::Args;
use crate::engine::error::{Error, excerpt};
use crate::engine::session::{Session, SessionKey};
use crate::engine::{Ctx, Done, ServerState};

/// Which clients CLIENT KILL ends: all that meet every condition.
#[derive(Default)]
struct Victims {
    id: Option<u64>,
    address: Option<Vec<u8>>,
    local_address: Option<Vec<u8>>,
    kind: Option<Kind>,
    max_age_s: Option<u64>,
    spare_caller: bool,
}

impl Victims {
    /// `age_s` tells how old a session is.
    fn has(&self, session: &Session, age_s: impl Fn(&Session) -> u64) -> bool {
        let is = |wanted: &Option<Vec<u8>>, address: &str| wanted.as_ref().is_none_or(|w| w == address.as_bytes());
        !session.killed
            && self.id.is_none_or(|id| id == session.key.id)
            && is(&self.address, &session.address)
            && is(&self.local_address, &session.local_address)
            && self.kind.is_none_or(|kind| kind == Kind::Type(session.client_type()))
            && self.max_age_s.is_none_or(|least| age_s(session) >= least)
    }
}

pub(super) fn kill(ctx: &mut Ctx<'_>, mut args: Args<'_>) -> Done {
    if args.len() == 1 {
        // The old form: one address, the caller's own allowed, and OK for an answer.
        let victims = Victims { address: Some(args.bytes()?.to_vec()), ..Victims::default() };
        if kill_all(ctx, &victims) == 0 {
            return Err(Error::text("ERR No such client"));
        }
        ctx.reply.ok();
        return Ok(());
    }
    let victims = victims(&mut args)?;
    let killed = kill_all(ctx, &victims);
    ctx.reply.integer(killed);
    Ok(())
}

fn victims(args: &mut Args<'_>) -> Result<Victims, Error> {
    let mut victims = Victims { spare_caller: true, ..Victims::default() };
    while !args.is_empty() {
        if args.option("ID", 1) {
            const NO_ID: Error = Error::text("ERR client-id should be greater than 0");
            let id = args.int_or(NO_ID)?;
            victims.id = Some(u64::try_from(id).ok().filter(|id| *id > 0).ok_or(NO_ID)?);
        } else if args.option("MAXAGE", 1) {
            let age_s = args.int_or(Error::text("ERR maxage is not an integer or out of range"))?;
            let age_s = u64::try_from(age_s).ok().filter(|age_s| *age_s > 0);
            victims.max_age_s = Some(age_s.ok_or(Error::text("ERR maxage should be greater than 0"))?);
        } else if args.option("TYPE", 1) {
            victims.kind = Some(client_kind(args.bytes()?)?);
        } else if args.option("ADDR", 1) {
            victims.address = Some(args.bytes()?.to_vec());
        } else if args.option("LADDR", 1) {
            victims.local_address = Some(args.bytes()?.to_vec());
        } else if args.option("USER", 1) {
            let user = args.bytes()?;
            if user != b"default" {
                return Err(Error::owned(format!("ERR No such user '{}'", excerpt(user, 128))));
            }
        } else if args.option("SKIPME", 1) {
            victims.spare_caller = args.one_of(&[("yes", true), ("no", false)]).ok_or(Error::Syntax)?;
        } else {
            return Err(Error::Syntax);
        }
    }
    Ok(victims)
}

fn kill_all(ctx: &mut Ctx<'_>, victims: &Victims) -> i64 {
    let ServerState { sessions, stats, .. } = &mut *ctx.server;
    let now_ticks = stats.clock.raw();
    let age_s = |session: &Session| stats.clock.delta(session.connected_ticks, now_ticks).as_secs();
    let condemned: Vec<SessionKey> = match victims.id {
        Some(id) => sessions.by_id(id).filter(|s| victims.has(s, age_s)).map(|s| s.key).into_iter().collect(),
        None => sessions.iter().filter(|s| victims.has(s, age_s)).map(|s| s.key).collect(),
    };
    let is_caller_meant = !victims.spare_caller && victims.has(ctx.session, age_s);
    let mut killed = condemned.len() as i64;
    condemned.into_iter().for_each(|key| ctx.server.kill(key));
    if is_caller_meant {
        // It still reads the answer.
        ctx.session.closing = true;
        killed += 1;
    }
    killed
}
