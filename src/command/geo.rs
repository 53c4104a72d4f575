//! Positions on the earth: members of a sorted set whose scores encode their positions.

use super::zset::{AddRules, add, read, store};
use crate::base::num;
use crate::engine::{Command, Ctx, Done, Run};
use crate::resp::reply::Reply;
use crate::spec::args::Args;
use crate::spec::error::Error;
use crate::spec::{Access, Begin, Find, Flags, Group, KeySpec};
use crate::value::geo::{Extent, Position, Shape, Unit};
use crate::value::zset::{ScoreBound, ZSet};

fn geoadd(ctx: &mut Ctx<'_>, mut args: Args<'_>) -> Done {
    let key = args.bytes()?;
    let mut rules = AddRules::default();
    loop {
        if args.flag("nx") {
            rules.only_new = true;
        } else if args.flag("xx") {
            rules.only_existing = true;
        } else if args.flag("ch") {
            rules.count_changed = true;
        } else {
            break;
        }
    }
    if args.is_empty() || !args.len().is_multiple_of(3) || (rules.only_new && rules.only_existing) {
        return Err(Error::Syntax);
    }
    let mut members = Vec::with_capacity(args.len() / 3);
    while !args.is_empty() {
        let score = position(&mut args)?.to_score().unwrap_or_default();
        members.push((score, args.bytes()?));
    }
    add(ctx, key, rules, members.into_iter())
}

/// Takes a longitude and a latitude, which must be on the map.
fn position(args: &mut Args<'_>) -> Result<Position, Error> {
    let position = Position { longitude: args.double()?, latitude: args.double()? };
    if !position.is_valid() {
        let Position { longitude, latitude } = position;
        return Err(Error::owned(format!("ERR invalid longitude,latitude pair {longitude:.6},{latitude:.6}")));
    }
    Ok(position)
}

fn unit(args: &mut Args<'_>) -> Result<Unit, Error> {
    Unit::parse(args.bytes()?).ok_or(Error::text("ERR unsupported unit provided. please use M, KM, FT, MI"))
}

fn geodist(ctx: &mut Ctx<'_>, mut args: Args<'_>) -> Done {
    let (key, from, to) = (args.bytes()?, args.bytes()?, args.bytes()?);
    let unit = match args.len() {
        0 => Unit::Metres,
        1 => unit(&mut args)?,
        _ => return Err(Error::Syntax),
    };
    let zset = read(ctx.ks, ctx.session.db, key)?;
    let place = |member| zset.and_then(|zset| zset.score(member)).map(Position::from_score);
    match (place(from), place(to)) {
        (Some(from), Some(to)) => distance_reply(ctx.reply, from.distance_m(to) / unit.metres()),
        _ => ctx.reply.null(),
    }
    Ok(())
}

/// Writes a distance with four decimals, as text under either protocol.
fn distance_reply(reply: &mut Reply, distance: f64) {
    reply.bulk(format!("{distance:.4}").as_bytes());
}

fn geopos(ctx: &mut Ctx<'_>, mut args: Args<'_>) -> Done {
    let zset = read(ctx.ks, ctx.session.db, args.bytes()?)?;
    let members = args.rest();
    ctx.reply.array(members.len());
    for member in members.iter() {
        match zset.and_then(|zset| zset.score(member)) {
            Some(score) => position_reply(ctx.reply, Position::from_score(score)),
            None => ctx.reply.null_array(),
        }
    }
    Ok(())
}

fn position_reply(reply: &mut Reply, position: Position) {
    reply.array(2);
    reply.double(position.longitude);
    reply.double(position.latitude);
}

fn geohash(ctx: &mut Ctx<'_>, mut args: Args<'_>) -> Done {
    let zset = read(ctx.ks, ctx.session.db, args.bytes()?)?;
    let members = args.rest();
    ctx.reply.array(members.len());
    for member in members.iter() {
        match zset.and_then(|zset| zset.score(member)) {
            Some(score) => ctx.reply.bulk(&Position::from_score(score).to_geohash()),
            None => ctx.reply.null(),
        }
    }
    Ok(())
}

/// The form of a search command's arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Style {
    /// GEORADIUS: centre and radius come before the options.
    Around,
    /// GEORADIUSBYMEMBER: a member and the radius come before the options.
    AroundMember,
    /// GEOSEARCH and GEOSEARCHSTORE: everything is an option.
    Options,
}

/// The order of the members found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    Nearest,
    Farthest,
}

/// The arguments of a search.
struct Search<'a> {
    centre: Option<Centre>,
    /// Whether FROMMEMBER gave the centre.
    from_member: bool,
    extent: Option<(Extent, Unit)>,
    with_coordinates: bool,
    with_distance: bool,
    with_score: bool,
    count: Option<usize>,
    any: bool,
    order: Option<Order>,
    /// The key to store the members under.
    destination: Option<&'a [u8]>,
    /// Store distances as scores, not positions.
    store_distances: bool,
}

/// The centre of a search.
#[derive(Clone, Copy)]
enum Centre {
    At(Position),
    /// A member of a set that does not exist: the search finds nothing.
    Nowhere,
}

impl<'a> Search<'a> {
    fn parse(
        args: &mut Args<'a>,
        style: Style,
        destination: Option<&'a [u8]>,
        may_store: bool,
        zset: Option<&ZSet>,
        name: &[u8],
    ) -> Result<Search<'a>, Error> {
        let mut search = Search {
            centre: None,
            from_member: false,
            extent: None,
            with_coordinates: false,
            with_distance: false,
            with_score: false,
            count: None,
            any: false,
            order: None,
            destination,
            store_distances: false,
        };
        match style {
            Style::Around => search.centre = Some(Centre::At(position(args)?)),
            Style::AroundMember => search.centre = Some(member(zset, args.bytes()?)?),
            Style::Options => {}
        }
        if style != Style::Options {
            // Redis does not parse the radius around a member of an absent set.
            if style == Style::AroundMember && zset.is_none() {
                args.take(2)?;
                search.extent = Some((Extent::Radius(0.0), Unit::Metres));
            } else {
                search.extent = Some(radius(args)?);
            }
        }
        while !args.is_empty() {
            let known = search.option(args)?
                || match style {
                    Style::Options => search.shape_option(args, zset)?,
                    _ => may_store && search.store_option(args)?,
                };
            if !known {
                return Err(Error::Syntax);
            }
        }
        search.check(style, name)?;
        Ok(search)
    }

    /// Takes an option that every search has.
    fn option(&mut self, args: &mut Args<'a>) -> Result<bool, Error> {
        if args.flag("withdist") {
            self.with_distance = true;
        } else if args.flag("withhash") {
            self.with_score = true;
        } else if args.flag("withcoord") {
            self.with_coordinates = true;
        } else if args.flag("any") {
            self.any = true;
        } else if args.flag("asc") {
            self.order = Some(Order::Nearest);
        } else if args.flag("desc") {
            self.order = Some(Order::Farthest);
        } else if args.option("count", 1) {
            self.count = Some(match args.int()? {
                ..=0 => return Err(Error::text("ERR COUNT must be > 0")),
                count => usize::try_from(count).unwrap_or(usize::MAX),
            });
        } else {
            return Ok(false);
        }
        Ok(true)
    }

    /// Takes an option of the old commands that store.
    fn store_option(&mut self, args: &mut Args<'a>) -> Result<bool, Error> {
        let Some(distances) = (args.len() > 1).then(|| args.one_of(&[("store", false), ("storedist", true)])).flatten()
        else {
            return Ok(false);
        };
        self.store_distances = distances;
        self.destination = Some(args.bytes()?);
        Ok(true)
    }

    /// Takes an option about the centre or the shape.
    fn shape_option(&mut self, args: &mut Args<'a>, zset: Option<&ZSet>) -> Result<bool, Error> {
        let radius_before = matches!(self.extent, Some((Extent::Radius(_), _)));
        let box_before = matches!(self.extent, Some((Extent::Box { .. }, _)));
        let member_before = self.centre.is_some() && self.from_member;
        let position_before = self.centre.is_some() && !self.from_member;
        // An option may be repeated in the same form, and the last one counts.
        if !position_before && args.option("frommember", 1) {
            self.centre = Some(member(zset, args.bytes()?)?);
            self.from_member = true;
        } else if !member_before && args.option("fromlonlat", 2) {
            self.centre = Some(Centre::At(position(args)?));
        } else if !box_before && args.option("byradius", 2) {
            self.extent = Some(radius(args)?);
        } else if !radius_before && args.option("bybox", 3) {
            self.extent = Some(sides(args)?);
        } else if self.destination.is_some() && args.flag("storedist") {
            self.store_distances = true;
        } else {
            return Ok(false);
        }
        Ok(true)
    }

    fn check(&self, style: Style, name: &[u8]) -> Result<(), Error> {
        let name = String::from_utf8_lossy(name);
        if self.destination.is_some() && (self.with_coordinates || self.with_distance || self.with_score) {
            let what = if style == Style::Options { "GEOSEARCHSTORE" } else { "STORE option in GEORADIUS" };
            return Err(Error::owned(format!(
                "ERR {what} is not compatible with WITHDIST, WITHHASH and WITHCOORD options"
            )));
        }
        if self.centre.is_none() {
            let text = format!("ERR exactly one of FROMMEMBER or FROMLONLAT can be specified for {name}");
            return Err(Error::owned(text));
        }
        if self.extent.is_none() {
            let text = format!("ERR exactly one of BYRADIUS and BYBOX can be specified for {name}");
            return Err(Error::owned(text));
        }
        if self.any && self.count.is_none() {
            return Err(Error::text("ERR the ANY argument requires COUNT argument"));
        }
        Ok(())
    }

    /// Returns the members in the shape, in the order of the reply.
    fn run(&self, zset: &ZSet) -> Vec<Found> {
        let (Some(Centre::At(centre)), Some((extent, unit))) = (self.centre, self.extent) else { return Vec::new() };
        let shape = Shape { centre, extent, unit };
        let enough = if self.any { self.count.unwrap_or(usize::MAX) } else { usize::MAX };
        let mut found = Vec::new();
        'cells: for cell in shape.cover().ranges() {
            let min = ScoreBound { score: cell.start as f64, exclusive: false };
            let max = ScoreBound { score: cell.end as f64, exclusive: true };
            for (member, score) in zset.range(zset.by_score(min, max)) {
                if found.len() == enough {
                    break 'cells;
                }
                let place = Position::from_score(score);
                if let Some(distance_m) = shape.distance_within_m(place) {
                    found.push(Found { member: member.into(), score, place, distance: distance_m / unit.metres() });
                }
            }
        }
        // A count without ANY or an order means the nearest.
        let order = self.order.or((self.count.is_some() && !self.any).then_some(Order::Nearest));
        match order {
            Some(Order::Nearest) => found.sort_by(|a, b| a.distance.total_cmp(&b.distance)),
            Some(Order::Farthest) => found.sort_by(|a, b| b.distance.total_cmp(&a.distance)),
            None => {}
        }
        found.truncate(self.count.unwrap_or(usize::MAX));
        found
    }

    fn answer(&self, reply: &mut Reply, found: &[Found]) {
        let extras = [self.with_distance, self.with_score, self.with_coordinates].into_iter().filter(|on| *on).count();
        reply.array(found.len());
        for place in found {
            if extras > 0 {
                reply.array(extras + 1);
            }
            reply.bulk(&place.member);
            if self.with_distance {
                distance_reply(reply, place.distance);
            }
            if self.with_score {
                reply.integer(place.score as i64);
            }
            if self.with_coordinates {
                position_reply(reply, place.place);
            }
        }
    }
}

/// A member inside the shape.
struct Found {
    member: Box<[u8]>,
    score: f64,
    place: Position,
    /// The distance from the centre, in the unit of the search.
    distance: f64,
}

fn member(zset: Option<&ZSet>, name: &[u8]) -> Result<Centre, Error> {
    let Some(zset) = zset else { return Ok(Centre::Nowhere) };
    let score = zset.score(name).ok_or(Error::text("ERR could not decode requested zset member"))?;
    Ok(Centre::At(Position::from_score(score)))
}

fn radius(args: &mut Args<'_>) -> Result<(Extent, Unit), Error> {
    let radius = length(args, "ERR need numeric radius")?;
    if radius < 0.0 {
        return Err(Error::text("ERR radius cannot be negative"));
    }
    Ok((Extent::Radius(radius), unit(args)?))
}

fn sides(args: &mut Args<'_>) -> Result<(Extent, Unit), Error> {
    let width = length(args, "ERR need numeric width")?;
    let height = length(args, "ERR need numeric height")?;
    if width < 0.0 || height < 0.0 {
        return Err(Error::text("ERR height or width cannot be negative"));
    }
    Ok((Extent::Box { width, height }, unit(args)?))
}

fn length(args: &mut Args<'_>, error: &'static str) -> Result<f64, Error> {
    num::parse_f64(args.bytes()?).ok_or(Error::text(error))
}

/// Runs a search on the set at `key`.
fn search<'a>(
    ctx: &mut Ctx<'_>,
    key: &[u8],
    mut args: Args<'a>,
    style: Style,
    destination: Option<&'a [u8]>,
    may_store: bool,
) -> Done {
    let db = ctx.db();
    let name = args.argv().get(0).unwrap_or_default();
    let zset = read(ctx.ks, db, key)?;
    let search = Search::parse(&mut args, style, destination, may_store, zset, name)?;
    let found = zset.map_or_else(Vec::new, |zset| search.run(zset));
    let Some(destination) = search.destination else {
        search.answer(ctx.reply, &found);
        return Ok(());
    };
    let score = |place: &Found| if search.store_distances { place.distance } else { place.score };
    let members = found.iter().map(|place| (&*place.member, score(place)));
    let stored = store(ctx, destination, members)?;
    ctx.reply.integer(stored as i64);
    Ok(())
}

fn georadius(ctx: &mut Ctx<'_>, mut args: Args<'_>) -> Done {
    let key = args.bytes()?;
    search(ctx, key, args, Style::Around, None, true)
}

fn georadius_ro(ctx: &mut Ctx<'_>, mut args: Args<'_>) -> Done {
    let key = args.bytes()?;
    search(ctx, key, args, Style::Around, None, false)
}

fn georadiusbymember(ctx: &mut Ctx<'_>, mut args: Args<'_>) -> Done {
    let key = args.bytes()?;
    search(ctx, key, args, Style::AroundMember, None, true)
}

fn georadiusbymember_ro(ctx: &mut Ctx<'_>, mut args: Args<'_>) -> Done {
    let key = args.bytes()?;
    search(ctx, key, args, Style::AroundMember, None, false)
}

fn geosearch(ctx: &mut Ctx<'_>, mut args: Args<'_>) -> Done {
    let key = args.bytes()?;
    search(ctx, key, args, Style::Options, None, false)
}

fn geosearchstore(ctx: &mut Ctx<'_>, mut args: Args<'_>) -> Done {
    let (destination, key) = (args.bytes()?, args.bytes()?);
    search(ctx, key, args, Style::Options, Some(destination), true)
}

/// The family's table.
pub(super) const COMMANDS: &[Command] = &[
    Command {
        name: "geoadd",
        arity: -5,
        flags: Flags::WRITE.union(Flags::DENYOOM),
        keys: &[KeySpec::one(1, Access::Modify)],
        group: Group::Geo,
        since: "3.2.0",
        complexity: "O(log N) for each member",
        summary: "Adds members with their positions to a sorted set.",
        syntax: "key [NX | XX]:condition [CH:change] (longitude latitude member):data...",
        run: Run::Now(geoadd),
        ..Command::EMPTY
    },
    Command {
        name: "geodist",
        arity: -4,
        flags: Flags::READONLY,
        keys: &[KeySpec::one(1, Access::Read)],
        group: Group::Geo,
        since: "3.2.0",
        summary: "Returns the distance between two members.",
        syntax: "key member1 member2 [M | KM | FT | MI]:unit",
        run: Run::Now(geodist),
        ..Command::EMPTY
    },
    Command {
        name: "geohash",
        arity: -2,
        flags: Flags::READONLY,
        keys: &[KeySpec::one(1, Access::Read)],
        group: Group::Geo,
        since: "3.2.0",
        complexity: "O(N) for N members",
        summary: "Returns the positions of members as geohash strings.",
        syntax: "key [member]...",
        run: Run::Now(geohash),
        ..Command::EMPTY
    },
    Command {
        name: "geopos",
        arity: -2,
        flags: Flags::READONLY,
        keys: &[KeySpec::one(1, Access::Read)],
        group: Group::Geo,
        since: "3.2.0",
        complexity: "O(N) for N members",
        summary: "Returns the positions of members.",
        syntax: "key [member]...",
        run: Run::Now(geopos),
        ..Command::EMPTY
    },
    Command {
        name: "georadius",
        arity: -6,
        flags: Flags::WRITE.union(Flags::DENYOOM).union(Flags::MOVABLEKEYS),
        keys: &[
            KeySpec::one(1, Access::Read),
            KeySpec {
                begin: Begin::Keyword("STORE", 6),
                find: Find::Range { last: 0, step: 1, limit: 0 },
                access: Access::Overwrite,
            },
            KeySpec {
                begin: Begin::Keyword("STOREDIST", 6),
                find: Find::Range { last: 0, step: 1, limit: 0 },
                access: Access::Overwrite,
            },
        ],
        group: Group::Geo,
        since: "3.2.0",
        complexity: "O(N+log M) for N members around the circle",
        summary: "Returns or stores the members within a distance of a position.",
        syntax: "key longitude latitude radius <M | KM | FT | MI>:unit [WITHCOORD] [WITHDIST] [WITHHASH] [COUNT count \
            [ANY]]:count-block [ASC | DESC]:order \
            [(STORE key):storekey | (STOREDIST key):storedistkey]:store",
        event: "georadiusstore",
        run: Run::Now(georadius),
        ..Command::EMPTY
    },
    Command {
        name: "georadius_ro",
        arity: -6,
        flags: Flags::READONLY,
        keys: &[KeySpec::one(1, Access::Read)],
        group: Group::Geo,
        since: "3.2.10",
        complexity: "O(N+log M) for N members around the circle",
        summary: "Returns the members within a distance of a position.",
        syntax: "key longitude latitude radius <M | KM | FT | MI>:unit [WITHCOORD] [WITHDIST] [WITHHASH] [COUNT count \
            [ANY]]:count-block [ASC | DESC]:order",
        run: Run::Now(georadius_ro),
        ..Command::EMPTY
    },
    Command {
        name: "georadiusbymember",
        arity: -5,
        flags: Flags::WRITE.union(Flags::DENYOOM).union(Flags::MOVABLEKEYS),
        keys: &[
            KeySpec::one(1, Access::Read),
            KeySpec {
                begin: Begin::Keyword("STORE", 5),
                find: Find::Range { last: 0, step: 1, limit: 0 },
                access: Access::Overwrite,
            },
            KeySpec {
                begin: Begin::Keyword("STOREDIST", 5),
                find: Find::Range { last: 0, step: 1, limit: 0 },
                access: Access::Overwrite,
            },
        ],
        group: Group::Geo,
        since: "3.2.0",
        complexity: "O(N+log M) for N members around the circle",
        summary: "Returns or stores the members within a distance of another member.",
        syntax: "key member radius <M | KM | FT | MI>:unit [WITHCOORD] [WITHDIST] [WITHHASH] [COUNT count \
            [ANY]]:count-block [ASC | DESC]:order \
            [(STORE key):storekey | (STOREDIST key):storedistkey]:store",
        event: "georadiusstore",
        run: Run::Now(georadiusbymember),
        ..Command::EMPTY
    },
    Command {
        name: "georadiusbymember_ro",
        arity: -5,
        flags: Flags::READONLY,
        keys: &[KeySpec::one(1, Access::Read)],
        group: Group::Geo,
        since: "3.2.10",
        complexity: "O(N+log M) for N members around the circle",
        summary: "Returns the members within a distance of another member.",
        syntax: "key member radius <M | KM | FT | MI>:unit [WITHCOORD] [WITHDIST] [WITHHASH] [COUNT count \
            [ANY]]:count-block [ASC | DESC]:order",
        run: Run::Now(georadiusbymember_ro),
        ..Command::EMPTY
    },
    Command {
        name: "geosearch",
        arity: -7,
        flags: Flags::READONLY,
        keys: &[KeySpec::one(1, Access::Read)],
        group: Group::Geo,
        since: "6.2.0",
        complexity: "O(N+log M) for N members around the shape",
        summary: "Returns the members inside a circle or a box.",
        syntax: "key <FROMMEMBER member | FROMLONLAT longitude latitude>:from \
            <(BYRADIUS radius <M | KM | FT | MI>:unit):circle | (BYBOX width height <M | KM | FT | MI>:unit):box>:by \
            [ASC | DESC]:order [COUNT count [ANY]]:count-block [WITHCOORD] [WITHDIST] [WITHHASH]",
        run: Run::Now(geosearch),
        ..Command::EMPTY
    },
    Command {
        name: "geosearchstore",
        arity: -8,
        flags: Flags::WRITE.union(Flags::DENYOOM),
        keys: &[KeySpec::one(1, Access::Overwrite), KeySpec::one(2, Access::Read)],
        group: Group::Geo,
        since: "6.2.0",
        complexity: "O(N+log M) for N members around the shape",
        summary: "Stores the members inside a circle or a box as another sorted set.",
        syntax: "destination source <FROMMEMBER member | FROMLONLAT longitude latitude>:from \
            <(BYRADIUS radius <M | KM | FT | MI>:unit):circle | (BYBOX width height <M | KM | FT | MI>:unit):box>:by \
            [ASC | DESC]:order [COUNT count [ANY]]:count-block [STOREDIST]",
        event: "geosearchstore",
        run: Run::Now(geosearchstore),
        ..Command::EMPTY
    },
];
