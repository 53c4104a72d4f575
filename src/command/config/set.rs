//! CONFIG SET: tries the new values on a copy, then performs their acts. If one fails, the earlier ones are undone and
//! nothing has changed.

use super::act::{Doing, Failure, act};
use crate::config::{Act, Config, Parameter, SetError, Setting};
use crate::engine::{Ctx, Flow, MayWait};
use crate::keyspace::ValueLimits;
use crate::resp::reply::Reply;
use crate::spec::args::Args;
use crate::spec::error::Error;
use crate::wait::Wait;

pub(super) fn set(ctx: &mut Ctx<'_>, args: Args<'_>) -> MayWait {
    let words: Vec<&[u8]> = args.rest().iter().collect();
    if !words.len().is_multiple_of(2) {
        return Err(Error::Syntax);
    }
    let pairs = words.chunks_exact(2).map(|pair| (pair[0], pair[1]));
    let setting = Setting { is_local: ctx.session.is_local, is_loading: ctx.server.persistence.loading.is_some() };
    let before = ctx.server.config.clone();
    let changed = ctx.server.config.set(pairs, setting).map_err(refused)?;
    let acts = changed.acts();
    let leaves_log = acts.iter().any(|(act, _)| match act {
        Act::SyncPolicy => true,
        Act::Log => before.appendonly,
        _ => false,
    });
    if leaves_log && let Some(wait) = wait_for_log(ctx) {
        ctx.server.config = before;
        return Ok(Flow::wait(wait));
    }
    if let Err((act, Failure { reason, is_to_blame })) = perform(ctx, &acts, &before) {
        let asking = || changed.parameters.iter().filter(|parameter| parameter.act == act);
        let parameter = asking().find(|parameter| is_to_blame(parameter)).or_else(|| asking().next());
        let parameter = parameter.map_or("", |parameter| parameter.name);
        let written =
            words.iter().step_by(2).find(|name| Parameter::named(name).is_some_and(|it| it.name == parameter));
        let name = written.map_or(parameter.to_owned(), |name| String::from_utf8_lossy(name).into_owned());
        return Err(refused(SetError::Refused { name, reason }));
    }
    changed.parameters.iter().filter_map(|parameter| ctx.server.config.warning(parameter)).for_each(|warning| {
        tracing::warn!("{warning}");
    });
    // Data being loaded or received was made under limits that must still hold. The new ones apply after that.
    if ctx.server.persistence.has_own_data() {
        let mut limits = ValueLimits::from(&ctx.server.config);
        // Not a parameter: set by DEBUG.
        limits.list.alone_bytes = ctx.ks.limits().list.alone_bytes;
        ctx.ks.set_limits(limits);
    }
    ctx.reply.ok();
    Ok(Flow::Replied)
}

fn refused(error: SetError) -> Error {
    Error::owned(error.to_string())
}

/// Performs the acts of a change from `before`. After a failure, the configuration and the effects of all acts are as
/// before.
fn perform(ctx: &mut Ctx<'_>, acts: &[(Act, &'static Parameter)], before: &Config) -> Result<(), (Act, Failure)> {
    for (at, (kind, _)) in acts.iter().enumerate() {
        let Err(failure) = act(ctx, *kind, before, Doing::Change) else { continue };
        let tried = std::mem::replace(&mut ctx.server.config, before.clone());
        for (kind, parameter) in acts[..at].iter().rev() {
            if let Err(error) = act(ctx, *kind, &tried, Doing::Undo) {
                tracing::error!("{} could not be restored: {}", parameter.name, error.reason);
            }
        }
        return Err((*kind, failure));
    }
    Ok(())
}

/// Makes sure that everything recorded before the command is on disk before the journal is closed or its sync policy
/// changes. That may take long, so only the caller waits for it. Other commands recorded in that time become durable in
/// place.
fn wait_for_log(ctx: &mut Ctx<'_>) -> Option<Wait> {
    // A journal that takes no records fails for a reason, which the client gets at once.
    if !ctx.may_wait()
        || ctx.server.persistence.journal.is_none()
        || ctx.server.persistence.is_unlogged(&ctx.server.config)
    {
        return None;
    }
    if !ctx.is_retry() {
        ctx.session.fence = ctx.session.fence.max(ctx.begin_sync());
    }
    let on_timeout = |reply: &mut Reply| reply.error(b"ERR CONFIG SET was cancelled: nothing has changed");
    (!ctx.server.persistence.is_durable(ctx.session.fence)).then(|| Wait {
        retry_at_ms: Some(
            ctx.now_ms() + ctx.server.persistence.sync_retry_after(&ctx.server.config).as_millis() as i64,
        ),
        ..Wait::until(None, on_timeout)
    })
}
