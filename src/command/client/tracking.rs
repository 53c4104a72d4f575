//! CLIENT TRACKING and its companions: invalidations for clients that cache keys.

use std::collections::BTreeSet;
use std::ops::Bound;

use crate::engine::{Ctx, Done};
use crate::session::caching::{CachingClient, Choice, redirect};
use crate::spec::args::Args;
use crate::spec::error::{Error, excerpt};

/// The options of CLIENT TRACKING ON.
#[derive(Default)]
struct Wanted<'a> {
    redirect: Option<u64>,
    broadcasts: bool,
    opts_in: bool,
    opts_out: bool,
    is_noloop: bool,
    prefixes: Vec<&'a [u8]>,
}

pub(super) fn tracking(ctx: &mut Ctx<'_>, mut args: Args<'_>) -> Done {
    let mode = args.bytes()?;
    let wanted = wanted(ctx, &mut args)?;
    if mode.eq_ignore_ascii_case(b"off") {
        ctx.server.audience.end_tracking(ctx.session);
    } else if mode.eq_ignore_ascii_case(b"on") {
        let choice = admit(ctx.session.tracking.as_deref(), &wanted)?;
        turn_on(ctx, &wanted, choice);
    } else {
        return Err(Error::Syntax);
    }
    ctx.reply.ok();
    Ok(())
}

fn wanted<'a>(ctx: &mut Ctx<'_>, args: &mut Args<'a>) -> Result<Wanted<'a>, Error> {
    let mut wanted = Wanted::default();
    while !args.is_empty() {
        if args.option("REDIRECT", 1) {
            if wanted.redirect.is_some() {
                return Err(Error::text("ERR A client can only redirect to a single other client"));
            }
            let id = u64::try_from(args.int()?).ok();
            // The target of the redirection may leave later, but must exist now.
            let is_there = |id: &u64| *id == ctx.session.key.id || ctx.server.clients.sessions.is_open(*id);
            wanted.redirect =
                Some(id.filter(is_there).ok_or(Error::text("ERR The client ID you want redirect to does not exist"))?);
        } else if args.option("BCAST", 0) {
            wanted.broadcasts = true;
        } else if args.option("OPTIN", 0) {
            wanted.opts_in = true;
        } else if args.option("OPTOUT", 0) {
            wanted.opts_out = true;
        } else if args.option("NOLOOP", 0) {
            wanted.is_noloop = true;
        } else if args.option("PREFIX", 1) {
            wanted.prefixes.push(args.bytes()?);
        } else {
            return Err(Error::Syntax);
        }
    }
    Ok(wanted)
}

/// Checks the wanted options against each other and against the current ones.
fn admit(known: Option<&CachingClient>, wanted: &Wanted<'_>) -> Result<Choice, Error> {
    if !wanted.broadcasts && !wanted.prefixes.is_empty() {
        return Err(Error::text("ERR PREFIX option requires BCAST mode to be enabled"));
    }
    if known.is_some_and(|known| known.broadcasts != wanted.broadcasts) {
        return Err(Error::text(
            "ERR You can't switch BCAST mode on/off before disabling tracking for this client, and then re-enabling \
             it with a \
             different mode.",
        ));
    }
    let choice = match (wanted.opts_in, wanted.opts_out) {
        (false, false) => Choice::All,
        _ if wanted.broadcasts => return Err(Error::text("ERR OPTIN and OPTOUT are not compatible with BCAST")),
        (true, true) => return Err(Error::text("ERR You can't specify both OPTIN mode and OPTOUT mode")),
        (true, false) => Choice::OptIn,
        (false, true) => Choice::OptOut,
    };
    let was = known.map_or(Choice::All, |known| known.choice);
    if choice != Choice::All && was != Choice::All && choice != was {
        return Err(Error::text(
            "ERR You can't switch OPTIN/OPTOUT mode before disabling tracking for this client, and then re-enabling \
             it with a \
             different mode.",
        ));
    }
    admit_prefixes(known.map(|known| &known.prefixes), &wanted.prefixes)?;
    Ok(choice)
}

/// Refuses prefixes that overlap: if one is the beginning of another, the client would get invalidations twice. The
/// error names the first wanted prefix that overlaps. Takes no longer than sorting, because a client may name very
/// many.
fn admit_prefixes(known: Option<&BTreeSet<Box<[u8]>>>, wanted: &[&[u8]]) -> Done {
    let first = first_overlapping(wanted);
    for (at, prefix) in wanted.iter().enumerate() {
        let shown = |prefix: &[u8]| excerpt(prefix, 128);
        if let Some(other) = known.and_then(|known| overlapping(known, prefix)) {
            return Err(Error::owned(format!(
                "ERR Prefix '{}' overlaps with an existing prefix '{}'. Prefixes for a single client must not overlap.",
                shown(prefix),
                shown(other)
            )));
        }
        if first == Some(at)
            && let Some(other) = wanted[at + 1..].iter().find(|other| overlap(other, prefix))
        {
            return Err(Error::owned(format!(
                "ERR Prefix '{}' overlaps with another provided prefix '{}'. Prefixes for a single client must not \
                 overlap.",
                shown(prefix),
                shown(other)
            )));
        }
    }
    Ok(())
}

fn overlap(a: &[u8], b: &[u8]) -> bool {
    a.starts_with(b) || b.starts_with(a)
}

/// Returns the one among `known` that overlaps with `prefix`. The known ones do not overlap with each other, so only
/// the two neighbours of `prefix` can.
fn overlapping<'k>(known: &'k BTreeSet<Box<[u8]>>, prefix: &[u8]) -> Option<&'k [u8]> {
    let up_to = known.range::<[u8], _>((Bound::Unbounded, Bound::Included(prefix))).next_back();
    let behind = known.range::<[u8], _>((Bound::Excluded(prefix), Bound::Unbounded)).next();
    up_to.into_iter().chain(behind).map(|other| &**other).find(|other| overlap(other, prefix))
}

/// Returns the index of the first prefix that overlaps with a later one.
fn first_overlapping(wanted: &[&[u8]]) -> Option<usize> {
    let mut sorted: Vec<(&[u8], usize)> = wanted.iter().enumerate().map(|(at, prefix)| (*prefix, at)).collect();
    sorted.sort_unstable();
    let mut first = None;
    // In sorted order, the texts that begin with a prefix follow it directly.
    let mut begin: Option<(&[u8], usize)> = None;
    for (prefix, at) in sorted {
        match begin {
            Some((shorter, place)) if prefix.starts_with(shorter) => {
                let earlier = at.min(place);
                first = Some(first.map_or(earlier, |first: usize| first.min(earlier)));
            }
            _ => begin = Some((prefix, at)),
        }
    }
    first
}

fn turn_on(ctx: &mut Ctx<'_>, wanted: &Wanted<'_>, choice: Choice) {
    ctx.server.audience.begin_tracking(ctx.session, |client| {
        client.redirect = wanted.redirect;
        client.is_redirect_broken = false;
        client.broadcasts = wanted.broadcasts;
        client.choice = choice;
        client.is_noloop = wanted.is_noloop;
    });
    if wanted.broadcasts {
        let all: &[&[u8]] = &[b""];
        let prefixes = if wanted.prefixes.is_empty() { all } else { &wanted.prefixes };
        ctx.server.audience.track_prefixes(ctx.session, prefixes);
    }
}

pub(super) fn caching(ctx: &mut Ctx<'_>, mut args: Args<'_>) -> Done {
    let Some(client) = &mut ctx.session.tracking else {
        return Err(Error::text(
            "ERR CLIENT CACHING can be called only when the client is in tracking mode with OPTIN or OPTOUT mode \
             enabled",
        ));
    };
    match args.one_of(&[("yes", Choice::OptIn), ("no", Choice::OptOut)]).ok_or(Error::Syntax)? {
        choice if choice == client.choice => client.is_exception = true,
        Choice::OptIn => {
            return Err(Error::text("ERR CLIENT CACHING YES is only valid when tracking is enabled in OPTIN mode."));
        }
        _ => return Err(Error::text("ERR CLIENT CACHING NO is only valid when tracking is enabled in OPTOUT mode.")),
    }
    ctx.reply.ok();
    Ok(())
}

pub(super) fn getredir(ctx: &mut Ctx<'_>, _: Args<'_>) -> Done {
    ctx.reply.integer(redirect(ctx.session.tracking.as_deref()));
    Ok(())
}

pub(super) fn trackinginfo(ctx: &mut Ctx<'_>, _: Args<'_>) -> Done {
    let (client, reply) = (ctx.session.tracking.as_deref(), &mut *ctx.reply);
    let has = |what: fn(&CachingClient) -> bool| client.is_some_and(what);
    let flags: Vec<&str> = [
        ("off", client.is_none()),
        ("on", client.is_some()),
        ("bcast", has(|client| client.broadcasts)),
        ("optin", has(|client| client.choice == Choice::OptIn)),
        ("caching-yes", has(|client| client.choice == Choice::OptIn && client.is_exception)),
        ("optout", has(|client| client.choice == Choice::OptOut)),
        ("caching-no", has(|client| client.choice == Choice::OptOut && client.is_exception)),
        ("noloop", has(|client| client.is_noloop)),
        ("broken_redirect", has(|client| client.is_redirect_broken)),
    ]
    .into_iter()
    .filter_map(|(flag, shown)| shown.then_some(flag))
    .collect();
    reply.map(3);
    reply.bulk(b"flags");
    reply.set(flags.len());
    flags.iter().for_each(|flag| reply.bulk(flag.as_bytes()));
    reply.bulk(b"redirect");
    reply.integer(redirect(client));
    reply.bulk(b"prefixes");
    reply.array(client.map_or(0, |client| client.prefixes.len()));
    client.iter().flat_map(|client| &client.prefixes).for_each(|prefix| reply.bulk(prefix));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_first_overlapping_prefix_is_found(
            wanted in prop::collection::vec("[ab]{0,3}", 0..7),
            before in prop::collection::vec("[ab]{0,3}", 0..4),
        ) {
            let wanted: Vec<&[u8]> = wanted.iter().map(String::as_bytes).collect();
            let first = (0..wanted.len()).find(|at| wanted[at + 1..].iter().any(|other| overlap(other, wanted[*at])));
            prop_assert_eq!(first_overlapping(&wanted), first);
            let mut known: BTreeSet<Box<[u8]>> = BTreeSet::new();
            for prefix in before.iter().map(String::as_bytes) {
                if !known.iter().any(|other| overlap(other, prefix)) {
                    known.insert(prefix.into());
                }
            }
            for prefix in wanted {
                let other = known.iter().map(|other| &**other).find(|other| overlap(other, prefix));
                prop_assert_eq!(overlapping(&known, prefix), other);
            }
        }
    }

    #[test]
    fn very_many_prefixes_are_checked_quickly() {
        // Comparing each with each would take hours.
        let prefixes: Vec<Vec<u8>> = (0..300_000).map(|number| format!("{number:07}:").into_bytes()).collect();
        let wanted: Vec<&[u8]> = prefixes.iter().map(Vec::as_slice).collect();
        let known = prefixes.iter().map(|prefix| prefix.as_slice().into()).collect();
        assert!(admit_prefixes(None, &wanted).is_ok());
        assert!(admit_prefixes(Some(&known), &[b"x"]).is_ok());
        assert!(admit_prefixes(Some(&known), &wanted[299_999..]).is_err());
    }
}
