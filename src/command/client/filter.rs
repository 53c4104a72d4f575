//! The filters of CLIENT LIST and CLIENT KILL: a connection matches if it passes every test.
//!
//! The tests are those of Valkey 9.1; most have a negated twin (`NOT-...`). Where Redis 8.0 has a test too, Redis
//! decides. So CLIENT LIST with ids lists connections in the order given, and a repeated test replaces the earlier one.

use std::collections::BTreeSet;
use std::mem::discriminant;

use crate::base::num;
use crate::engine::client::line::flags;
use crate::engine::{Ctx, ServerState};
use crate::keyspace::DbIndex;
use crate::session::{ClientType, Session};
use crate::spec::args::Args;
use crate::spec::error::{Error, excerpt};

/// The command that filters.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum By {
    /// CLIENT LIST, which includes the caller.
    List,
    /// CLIENT KILL, which spares the caller.
    Kill,
}

/// The tests that a connection must pass.
pub(super) struct Filter {
    tests: Vec<Test>,
    /// Whether the caller is left out.
    pub(super) spares_caller: bool,
}

struct Test {
    property: Property,
    /// Whether the connection must have the property, or must not.
    wanted: bool,
}

enum Property {
    Id(Ids),
    Kind(Kind),
    Address(Vec<u8>),
    LocalAddress(Vec<u8>),
    Ip(Vec<u8>),
    User(Vec<u8>),
    Name(Vec<u8>),
    LibName(Vec<u8>),
    LibVersion(Vec<u8>),
    Db(DbIndex),
    /// All of these flag letters of CLIENT LIST are set.
    Flags(Vec<u8>),
    /// All of these capability letters of CLIENT CAPA are set.
    Capabilities(Vec<u8>),
    /// Connected for at least this many seconds.
    Age(u64),
    /// Idle for at least this many seconds.
    Idle(u64),
}

/// Ids of connections.
struct Ids {
    /// In the order given, with repetitions.
    asked: Vec<i64>,
    /// Sorted for lookups: there may be a million ids and many connections.
    all: BTreeSet<i64>,
}

/// The type of a client, as TYPE names it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Normal,
    Pubsub,
    /// It asked for a snapshot as a replica does, and is being sent it. The other nodes of a group are no clients.
    Replica,
    /// No client is: nodes don't follow their leader as clients.
    Master,
}

impl Kind {
    fn of(session: &Session) -> Kind {
        match session.client_type() {
            _ if session.transfer.is_some() => Kind::Replica,
            ClientType::Normal => Kind::Normal,
            ClientType::Pubsub => Kind::Pubsub,
        }
    }
}

/// The letters that a filter on flags accepts: every letter that Redis or Valkey shows.
const FLAGS: &[u8] = b"OSMPxbtRBdcuAUreTIiEN";

impl Filter {
    /// Matches all connections at this address, including the caller's: the old form of CLIENT KILL.
    pub(super) fn at(address: &[u8]) -> Filter {
        let test = Test { property: Property::Address(address.to_vec()), wanted: true };
        Filter { tests: vec![test], spares_caller: false }
    }

    /// Parses the remaining arguments.
    pub(super) fn parse(ctx: &Ctx<'_>, args: &mut Args<'_>, by: By) -> Result<Filter, Error> {
        let mut filter = Filter { tests: Vec::new(), spares_caller: by == By::Kill };
        while !args.is_empty() {
            if args.option("SKIPME", 1) {
                filter.spares_caller = args.one_of(&[("yes", true), ("no", false)]).ok_or(Error::Syntax)?;
            } else {
                let test = test(ctx, args, by)?;
                let same = |other: &Test| {
                    other.wanted == test.wanted && discriminant(&other.property) == discriminant(&test.property)
                };
                filter.tests.retain(|other| !same(other));
                filter.tests.push(test);
            }
        }
        Ok(filter)
    }

    /// The ids of the filter, in the order given; `None` if it does not test ids.
    pub(super) fn ids(&self) -> Option<&[i64]> {
        self.tests.iter().find_map(|test| match &test.property {
            Property::Id(ids) if test.wanted => Some(ids.asked.as_slice()),
            _ => None,
        })
    }

    /// Whether a session passes every test. The caller is not spared here.
    pub(super) fn meets(&self, server: &ServerState, session: &Session) -> bool {
        !session.is_killed() && self.tests.iter().all(|test| test.property.is_of(server, session) == test.wanted)
    }
}

/// Parses one test.
fn test(ctx: &Ctx<'_>, args: &mut Args<'_>, by: By) -> Result<Test, Error> {
    let word = args.bytes()?.to_ascii_lowercase();
    let (wanted, name) = match word.strip_prefix(b"not-") {
        Some(name) => (false, name),
        None => (true, word.as_slice()),
    };
    // A missing number has an error of its own; any other missing value is a syntax error.
    let property = match name {
        b"id" => {
            let asked = ids(args, by, wanted)?;
            Property::Id(Ids { all: asked.iter().copied().collect(), asked })
        }
        b"type" => Property::Kind(kind(args.bytes()?)?),
        b"addr" => Property::Address(args.bytes()?.to_vec()),
        b"laddr" => Property::LocalAddress(args.bytes()?.to_vec()),
        b"ip" => Property::Ip(args.bytes()?.to_vec()),
        b"user" => Property::User(user(ctx, args.bytes()?)?),
        b"name" => Property::Name(args.bytes()?.to_vec()),
        b"lib-name" => Property::LibName(args.bytes()?.to_vec()),
        b"lib-ver" => Property::LibVersion(args.bytes()?.to_vec()),
        b"db" => Property::Db(db(ctx, args.bytes()?, if wanted { "DB" } else { "NOT-DB" })?),
        b"flags" => Property::Flags(letters(args.bytes()?, FLAGS, "flags", wanted)?),
        b"capa" => Property::Capabilities(letters(args.bytes()?, b"r", "capa", wanted)?),
        b"maxage" if wanted => Property::Age(seconds(args.bytes()?, "maxage")?),
        b"idle" if wanted => Property::Idle(seconds(args.bytes()?, "idle")?),
        _ => return Err(Error::Syntax),
    };
    Ok(Test { property, wanted })
}

/// Parses ids up to the next option.
fn ids(args: &mut Args<'_>, by: By, wanted: bool) -> Result<Vec<i64>, Error> {
    const NO_ID: Error = Error::text("ERR client-id should be greater than 0");
    const INVALID: Error = Error::text("ERR Invalid client ID");
    let mut ids = Vec::new();
    while let Some(id) = args.peek().and_then(num::parse_i64) {
        if id < 1 && (by == By::Kill || !wanted) {
            return Err(NO_ID);
        }
        ids.push(id);
        args.bytes()?;
    }
    match (by, args.peek()) {
        (_, None) if ids.is_empty() => Err(Error::Syntax),
        (By::Kill, _) if ids.is_empty() => Err(NO_ID),
        (By::List, Some(_)) if ids.is_empty() || !is_option(args) => Err(INVALID),
        _ => Ok(ids),
    }
}

/// Whether the next argument is the name of a test.
fn is_option(args: &Args<'_>) -> bool {
    const NAMES: [&str; 15] = [
        "id", "type", "addr", "laddr", "ip", "user", "name", "lib-name", "lib-ver", "db", "flags", "capa", "maxage",
        "idle", "skipme",
    ];
    let Some(word) = args.peek() else { return false };
    let name = word.get(..4).filter(|start| start.eq_ignore_ascii_case(b"not-")).map_or(word, |_| &word[4..]);
    NAMES.iter().any(|known| name.eq_ignore_ascii_case(known.as_bytes()))
}

fn kind(name: &[u8]) -> Result<Kind, Error> {
    Ok(match name.to_ascii_lowercase().as_slice() {
        b"normal" => Kind::Normal,
        b"pubsub" => Kind::Pubsub,
        b"slave" | b"replica" => Kind::Replica,
        b"master" | b"primary" => Kind::Master,
        _ => return Err(Error::owned(format!("ERR Unknown client type '{}'", excerpt(name, 128)))),
    })
}

fn user(ctx: &Ctx<'_>, name: &[u8]) -> Result<Vec<u8>, Error> {
    if ctx.server.acl.find(name).is_some() {
        return Ok(name.to_vec());
    }
    Err(Error::owned(format!("ERR No such user '{}'", excerpt(name, 128))))
}

fn db(ctx: &Ctx<'_>, number: &[u8], option: &str) -> Result<DbIndex, Error> {
    let number = num::parse_i64(number).and_then(|number| i32::try_from(number).ok());
    let number = number.ok_or_else(|| Error::owned(format!("ERR {option} is not an integer or out of range")))?;
    let databases = ctx.ks.databases();
    DbIndex::try_from(number).ok().filter(|number| *number < databases).ok_or_else(|| {
        Error::owned(format!("ERR {option} number should be between 0 and {}", databases.saturating_sub(1)))
    })
}

fn letters(given: &[u8], known: &[u8], what: &str, wanted: bool) -> Result<Vec<u8>, Error> {
    if given.iter().all(|letter| known.contains(letter)) {
        return Ok(given.to_vec());
    }
    let filter = if wanted { "provided".to_owned() } else { format!("NOT-{}", what.to_ascii_uppercase()) };
    Err(Error::owned(format!("ERR Unknown {what} found in the {filter} filter: {}", excerpt(given, 128))))
}

fn seconds(given: &[u8], option: &str) -> Result<u64, Error> {
    let seconds = num::parse_i64(given);
    let seconds = seconds.ok_or_else(|| Error::owned(format!("ERR {option} is not an integer or out of range")))?;
    u64::try_from(seconds)
        .ok()
        .filter(|seconds| *seconds > 0)
        .ok_or_else(|| Error::owned(format!("ERR {option} should be greater than 0")))
}

impl Property {
    fn is_of(&self, server: &ServerState, session: &Session) -> bool {
        let clock = &server.meters.stats.clock;
        let seconds_since = |ticks| clock.delta(ticks, clock.raw()).as_secs();
        match self {
            Property::Id(ids) => ids.all.contains(&(session.key.id as i64)),
            Property::Kind(kind) => *kind == Kind::of(session),
            Property::Address(address) => session.address.as_bytes() == *address,
            Property::LocalAddress(address) => session.local_address.as_bytes() == *address,
            Property::Ip(ip) => ip_of(&session.address).is_some_and(|of| of.as_bytes() == *ip),
            Property::User(name) => server.acl.name(session.user) == *name,
            Property::Name(name) => !session.name.is_empty() && session.name == *name,
            Property::LibName(name) => !session.lib_name.is_empty() && session.lib_name == *name,
            Property::LibVersion(version) => !session.lib_version.is_empty() && session.lib_version == *version,
            Property::Db(db) => session.db == *db,
            Property::Flags(letters) => {
                let flags = flags(session);
                letters.iter().all(|letter| flags.as_bytes().contains(letter))
            }
            Property::Capabilities(letters) => session.takes_redirects || letters.is_empty(),
            Property::Age(seconds) => seconds_since(session.connected_ticks) >= *seconds,
            Property::Idle(seconds) => seconds_since(session.active_ticks) >= *seconds,
        }
    }
}

/// Returns the host of an address `ip:port` or `[ip]:port`; `None` for a unix socket, whose port is 0.
fn ip_of(address: &str) -> Option<&str> {
    let (host, port) = address.rsplit_once(':')?;
    (port != "0").then(|| host.trim_start_matches('[').trim_end_matches(']'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_taken_from_addresses() {
        let cases = [
            ("127.0.0.1:80", Some("127.0.0.1")),
            ("[::1]:6379", Some("::1")),
            ("/run/tidegate.sock:0", None),
            ("nowhere", None),
        ];
        for (address, host) in cases {
            assert_eq!(ip_of(address), host, "{address}");
        }
    }
}
