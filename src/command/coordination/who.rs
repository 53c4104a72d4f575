//! WHO: the holders of a key, the calls that wait for it, and its recent history.
//!
//! Besides locks, gates and stocks it reads the locks that programs keep in strings (`SET key owner NX PX`) and in
//! hashes, as Redisson does: each field is a holder, and its value is the depth.

use std::collections::HashMap;

use super::grant::{BASE, Said, count, say};
use super::outcome;
use super::past::{self, SHOWN_COUNT};
use crate::base::num;
use crate::engine::observe::history::{Client, Past, What};
use crate::engine::{Command, Ctx, Done, Run, ServerState};
use crate::keyspace::any_value::ValueRef;
use crate::keyspace::effect::Turn;
use crate::keyspace::limits::HOLDER_MAX_BYTES;
use crate::keyspace::{Keyspace, NEVER, Slot};
use crate::resp::reply::Reply;
use crate::resp::request::abridge;
use crate::session::Session;
use crate::spec::args::Args;
use crate::spec::{Access, Flags, KeySpec};
use crate::value::grants::{Grant, Grants};
use crate::value::hash::Hash;
use crate::value::string::Digits;
use crate::wait::{Ticket, Want};

/// A field of Redisson's read-write locks that is not a holder: the mode in which the lock is held.
const REDISSON_MODE: &[u8] = b"mode";

/// A holder of a lock, gate or stock.
struct Holder {
    name: Vec<u8>,
    /// The fencing token; 0 for a string or a hash, which have none.
    token: u64,
    units: u64,
    entered: u64,
    shared: bool,
    /// When the grant was given, Unix ms; `None` for a string or a hash.
    since_ms: Option<i64>,
    /// When the lease ends, Unix ms; `None` for never.
    until_ms: Option<i64>,
    note: Vec<u8>,
}

impl Holder {
    fn of_grant(grant: Grant<'_>) -> Holder {
        let Grant { holder, token, units, since_ms, until_ms, entered, shared, note } = grant;
        let (name, note) = (holder.to_vec(), note.to_vec());
        Holder { name, token, units, entered, shared, since_ms: Some(since_ms), until_ms: Some(until_ms), note }
    }

    fn by_name(name: &[u8], entered: u64, until_ms: Option<i64>) -> Holder {
        let name = abridge(name, HOLDER_MAX_BYTES).into_owned();
        Holder { name, token: 0, units: 1, entered, shared: false, since_ms: None, until_ms, note: Vec::new() }
    }

    fn answer(&self, reply: &mut Reply, now_ms: i64, client: &Client<'_>) {
        let lease_ms = self.until_ms.map_or(-1, |until_ms| until_ms.saturating_sub(now_ms).max(0));
        let mut fields = vec![
            ("holder", Said::Text(&self.name)),
            ("token", self.token.into()),
            ("units", self.units.into()),
            ("depth", self.entered.into()),
            ("shared", u64::from(self.shared).into()),
            ("since-ms", Said::Number(self.since_ms.unwrap_or(-1))),
            ("lease-ms", Said::Number(lease_ms)),
            ("note", Said::Text(&self.note)),
        ];
        fields.extend(past::client_fields(client));
        reply.map(fields.len());
        say(reply, &fields);
    }
}

/// The first `count` holders at `slot`, and how many there are in all.
fn holders_at(ks: &Keyspace, db: u16, slot: Slot, count: usize) -> (Vec<Holder>, usize) {
    let until_ms = ks.entry(db, slot).expires_at_ms().filter(|at_ms| *at_ms != NEVER);
    match ks.value(db, slot) {
        ValueRef::Grants(grants) => {
            let key_end_ms = until_ms.unwrap_or(NEVER);
            let in_time =
                |grant: Grant<'_>| Holder::of_grant(Grant { until_ms: grant.until_ms.min(key_end_ms), ..grant });
            (grants.from(0).take(count).map(in_time).collect(), Grants::len(grants))
        }
        ValueRef::String(text) => (vec![Holder::by_name(text.as_bytes(&mut Digits::new()), 1, until_ms)], 1),
        ValueRef::Hash(hash) => holders_in(hash, until_ms, count),
        _ => (Vec::new(), 0),
    }
}

fn holders_in(hash: &Hash, until_ms: Option<i64>, count: usize) -> (Vec<Holder>, usize) {
    let (mut holders, mut all) = (Vec::new(), 0);
    let (mut name_digits, mut value_digits) = (Digits::new(), Digits::new());
    for (field, value) in hash.iter() {
        let name = field.as_bytes(&mut name_digits);
        if name == REDISSON_MODE {
            continue;
        }
        all += 1;
        if holders.len() < count {
            let entered = num::parse_i64(value.as_bytes(&mut value_digits)).and_then(|depth| u64::try_from(depth).ok());
            holders.push(Holder::by_name(name, entered.unwrap_or(1), until_ms));
        }
    }
    (holders, all)
}

/// The clients whose commands got the grants, by fencing token, as far as the history goes back.
fn givers<'a>(turns: &[Past<'a>]) -> HashMap<u64, Client<'a>> {
    let giver = |past: &Past<'a>| match past.what {
        What::Turn { turn: Turn::Granted, token, .. } => Some((token, past.client)),
        _ => None,
    };
    turns.iter().filter_map(giver).collect()
}

/// Writes the calls that wait for a key, in their order. Some may wait beside `caller`, the session that asks.
fn answer_waiters(reply: &mut Reply, server: &ServerState, caller: &Session, db: u16, key: &[u8], count: usize) {
    let waiters = server.waits.waiters(db, key, Want::Place).take(count);
    let calls = waiters.filter_map(|parked| {
        let own = (parked.session == caller.key).then_some(caller);
        Some((own.or_else(|| server.clients.sessions.get(parked.session))?, parked))
    });
    let now_ms = server.time.clock.steady_ms();
    let mark = reply.begin();
    let mut shown = 0;
    for (session, parked) in calls {
        let left_ms = parked.deadline_ms.map_or(-1, |at_ms| at_ms.saturating_sub(now_ms).max(0));
        let mut fields = vec![
            ("holder", Said::Text(parked.holder(server.table))),
            ("waits-ms", Said::Number(now_ms.saturating_sub(parked.since_ms).max(0))),
            ("left-ms", Said::Number(left_ms)),
            ("ticket", Said::Number(parked.client_ticket().map_or(0, Ticket::number))),
        ];
        fields.extend(past::client_fields(&Client::of(session)));
        reply.map(fields.len());
        say(reply, &fields);
        shown += 1;
    }
    reply.end_array(mark, shown);
}

fn who(ctx: &mut Ctx<'_>, mut args: Args<'_>) -> Done {
    let key = args.bytes()?;
    let count = count(&mut args, SHOWN_COUNT)?;
    let (db, now_ms) = (ctx.db(), ctx.now_ms());
    let slot = ctx.ks.look_up(db, key);
    let kind = slot.map_or("none", |slot| ctx.ks.value(db, slot).type_name());
    let (holders, all) = slot.map_or((Vec::new(), 0), |slot| holders_at(ctx.ks, db, slot, count));
    let turns: Vec<Past<'_>> = ctx.server.audience.history.turns_of(db, key).collect();
    let waiting = ctx.server.waits.waiting(db, key, Want::Place);

    let reply = &mut *ctx.reply;
    outcome::begin(reply, i64::from(all > 0), 6);
    say(reply, &[("type", Said::Text(kind.as_bytes())), ("holding", all.into())]);
    reply.bulk(b"holders");
    reply.array(holders.len());
    let givers = givers(&turns);
    for holder in &holders {
        holder.answer(reply, now_ms, &givers.get(&holder.token).copied().unwrap_or_default());
    }
    say(reply, &[("waiting", waiting.into())]);
    reply.bulk(b"waiters");
    answer_waiters(reply, ctx.server, ctx.session, db, key, count);
    reply.bulk(b"history");
    past::answer(reply, &turns[..turns.len().min(count)], false);
    Ok(())
}

/// The family's table.
pub(crate) const COMMANDS: &[Command] = &[Command {
    name: "who",
    arity: -2,
    flags: Flags::READONLY,
    keys: &[KeySpec::one(1, Access::Read)],
    complexity: "O(N) with N the number of holders and of remembered grants, of which there are at most 1,024",
    summary: "Lists the holders of a lock, gate or stock, the calls that wait for it, and its recent history.",
    syntax: "key [COUNT count:integer]",
    run: Run::Now(who),
    ..BASE
}];
