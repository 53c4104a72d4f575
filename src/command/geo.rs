//! Places: sorted sets whose scores are positions on the earth, see [`geo`](crate::value::geo).
//!
//! GEOSEARCH, GEOSEARCHSTORE and the four GEORADIUS commands are one search that reads its arguments differently.

use std::cmp::Ordering;

use super::zset::{Rule, add, read, store};
use crate::base::num;
use crate::engine::args::Args;
use crate::engine::ctx::Ctx;
use crate::engine::error::{Error, excerpt};
use crate::engine::spec::{Access, Begin, Command, Done, Find, Flags, Group, KeySpec, Run};
use crate::resp::reply::{Form, Reply};
use crate::value::geo::{Extent, Position, Shape, Unit};
use crate::value::zset::{ScoreBound, ZSet, ZSetLimits};

fn geoadd(ctx: &mut Ctx<'_>, mut args: Args<'_>) -> Done {
    let key = args.bytes()?;
    let mut rule = Rule::default();
    let mut count_changed = false;
    while !args.is_empty() {
        match () {
            () if args.flag("nx") => rule.nx = true,
            () if args.flag("xx") => rule.xx = true,
            () if args.flag("ch") => count_changed = true,
            () => break,
        }
    }
    if args.is_empty() || !args.len().is_multiple_of(3) || (rule.nx && rule.xx) {
        return Err(Error::Syntax);
    }
    let mut pairs = Vec::with_capacity(args.len() / 3);
    while !args.is_empty() {
        let position = position(&mut args)?;
        let score = position.to_score().ok_or_else(|| invalid(position))?;
        pairs.push((score, args.bytes()?));
    }
    let tally = add(ctx, key, rule, pairs.into_iter())?;
    ctx.reply.integer(tally.added + if count_changed { tally.changed } else { 0 });
    Ok(())
}

/// Takes a longitude and a latitude.
fn position(args: &mut Args<'_>) -> Result<Position, Error> {
    let position = Position { longitude: args.double()?, latitude: args.double()? };
    if position.is_valid() { Ok(position) } else { Err(invalid(position)) }
}

fn invalid(Position { longitude, latitude }: Position) -> Error {
    Error::owned(format!("ERR invalid longitude,latitude pair {longitude:.6},{latitude:.6}"))
}

fn unit(args: &mut Args<'_>) -> Result<Unit, Error> {
    Unit::parse(args.bytes()?).ok_or(Error::text("ERR unsupported unit provided. please use M, KM, FT, MI"))
}

/// Takes a length.
fn length(args: &mut Args<'_>, not_a_number: &'static str) -> Result<f64, Error> {
    num::parse_f64(args.bytes()?).ok_or(Error::text(not_a_number))
}

fn geodist(ctx: &mut Ctx<'_>, mut args: Args<'_>) -> Done {
    let (key, from, to) = (args.bytes()?, args.bytes()?, args.bytes()?);
    if args.len() > 1 {
        return Err(Error::Syntax);
    }
    let unit = if args.is_empty() { Unit::Metres } else { unit(&mut args)? };
    let places = read(ctx.ks, ctx.session.db, key)?;
    let place = |member| places.and_then(|zset| zset.score(member)).map(Position::from_score);
    match (place(from), place(to)) {
        (Some(from), Some(to)) => answer_distance(ctx.reply, from.distance_m(to) / unit.metres()),
        _ => ctx.reply.null(),
    }
    Ok(())
}

fn geopos(ctx: &mut Ctx<'_>, mut args: Args<'_>) -> Done {
    let places = read(ctx.ks, ctx.session.db, args.bytes()?)?;
    ctx.reply.array(args.len());
    for member in args.rest().iter() {
        match places.and_then(|zset| zset.score(member)) {
            Some(score) => answer_position(ctx.reply, Position::from_score(score)),
            None => ctx.reply.null_array(),
        }
    }
    Ok(())
}

fn geohash(ctx: &mut Ctx<'_>, mut args: Args<'_>) -> Done {
    let places = read(ctx.ks, ctx.session.db, args.bytes()?)?;
    ctx.reply.array(args.len());
    for member in args.rest().iter() {
        match places.and_then(|zset| zset.score(member)) {
            Some(score) => ctx.reply.bulk(&Position::from_score(score).to_geohash()),
            None => ctx.reply.null(),
        }
    }
    Ok(())
}

fn answer_distance(reply: &mut Reply, distance: f64) {
    reply.bulk(format!("{distance:.4}").as_bytes());
}

fn answer_position(reply: &mut Reply, position: Position) {
    reply.array(2);
    answer_degrees(reply, position.longitude);
    answer_degrees(reply, position.latitude);
}

/// Degrees have up to 17 digits behind the point, more than any other double is answered with.
fn answer_degrees(reply: &mut Reply, degrees: f64) {
    let text = format!("{degrees:.17}");
    let text = text.trim_end_matches('0').trim_end_matches('.');
    let text = if text == "-0" { "0" } else { text };
    match reply.form() {
        Form::Resp2 | Form::Tape2 => reply.bulk(text.as_bytes()),
        Form::Resp3 => {
            let buffer = reply.buffer_mut();
            buffer.push(b',');
            buffer.extend_from_slice(text.as_bytes());
            buffer.extend_from_slice(b"\r\n");
        }
        Form::Tape3 => reply.double(degrees),
    }
}

/// Where a search begins.
#[derive(Clone, Copy, Debug)]
enum Centre {
    At(Position),
    /// At a member of a set that does not exist.
    Nowhere,
}

impl Centre {
    /// Where a member is.
    fn of(places: Option<&ZSet>, member: &[u8]) -> Result<Centre, Error> {
        let Some(places) = places else { return Ok(Centre::Nowhere) };
        let score = places.score(member).ok_or(Error::text("ERR could not decode requested zset member"))?;
        Ok(Centre::At(Position::from_score(score)))
    }
}

/// How far a search goes.
type Reach = (Extent, Unit);

fn radius(args: &mut Args<'_>) -> Result<Reach, Error> {
    let radius = length(args, "ERR need numeric radius")?;
    if radius < 0.0 {
        return Err(Error::text("ERR radius cannot be negative"));
    }
    Ok((Extent::Radius(radius), unit(args)?))
}

fn sides(args: &mut Args<'_>) -> Result<Reach, Error> {
    let width = length(args, "ERR need numeric width")?;
    let height = length(args, "ERR need numeric height")?;
    if width < 0.0 || height < 0.0 {
        return Err(Error::text("ERR height or width cannot be negative"));
    }
    Ok((Extent::Box { width, height }, unit(args)?))
}

/// What of a place is answered besides its name.
#[derive(Clone, Copy, Debug, Default)]
struct With {
    distance: bool,
    hash: bool,
    position: bool,
}

impl With {
    /// How many things those are.
    fn len(self) -> usize {
        usize::from(self.distance) + usize::from(self.hash) + usize::from(self.position)
    }
}

/// How the centre was given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum From {
    Member,
    Position,
}

/// The options of the searching commands.
#[derive(Default)]
struct Options<'a> {
    from: Option<From>,
    centre: Option<Centre>,
    reach: Option<Reach>,
    target: Option<&'a [u8]>,
    /// Whether distances are stored instead of positions.
    stores_distances: bool,
    with: With,
    nearest_first: Option<bool>,
    /// Most places to answer; 0: all.
    count: usize,
    /// Whether any places will do, not only the nearest ones.
    any: bool,
}

/// Which options a command has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Search,
    SearchStore,
    Radius,
    RadiusReadOnly,
}

impl<'a> Options<'a> {
    /// Takes all remaining arguments. What the command already knows is in `self`.
    fn parse(mut self, args: &mut Args<'a>, kind: Kind, places: Option<&ZSet>) -> Result<Options<'a>, Error> {
        let searches = matches!(kind, Kind::Search | Kind::SearchStore);
        while !args.is_empty() {
            let taken = self.parse_common(args)?
                || (searches && self.parse_shape(args, places)?)
                || (kind == Kind::Radius && self.parse_target(args)?)
                || (kind == Kind::SearchStore && args.flag("storedist") && {
                    self.stores_distances = true;
                    true
                });
            if !taken {
                return Err(Error::Syntax);
            }
        }
        self.check(args, kind)?;
        Ok(self)
    }

    fn parse_common(&mut self, args: &mut Args<'a>) -> Result<bool, Error> {
        match () {
            () if args.flag("withdist") => self.with.distance = true,
            () if args.flag("withhash") => self.with.hash = true,
            () if args.flag("withcoord") => self.with.position = true,
            () if args.flag("any") => self.any = true,
            () if args.flag("asc") => self.nearest_first = Some(true),
            () if args.flag("desc") => self.nearest_first = Some(false),
            () if args.option("count", 1) => {
                let count = args.int()?;
                if count <= 0 {
                    return Err(Error::text("ERR COUNT must be > 0"));
                }
                self.count = usize::try_from(count).unwrap_or(usize::MAX);
            }
            () => return Ok(false),
        }
        Ok(true)
    }

    /// One way to give the centre excludes the other, and so with the extent; the same way again replaces it.
    fn parse_shape(&mut self, args: &mut Args<'a>, places: Option<&ZSet>) -> Result<bool, Error> {
        let by_radius = matches!(self.reach, Some((Extent::Radius(_), _)));
        let by_box = matches!(self.reach, Some((Extent::Box { .. }, _)));
        if self.from != Some(From::Position) && args.option("frommember", 1) {
            self.from = Some(From::Member);
            self.centre = Some(Centre::of(places, args.bytes()?)?);
        } else if self.from != Some(From::Member) && args.option("fromlonlat", 2) {
            self.from = Some(From::Position);
            self.centre = Some(Centre::At(position(args)?));
        } else if !by_box && args.option("byradius", 2) {
            self.reach = Some(radius(args)?);
        } else if !by_radius && args.option("bybox", 3) {
            self.reach = Some(sides(args)?);
        } else {
            return Ok(false);
        }
        Ok(true)
    }

    fn parse_target(&mut self, args: &mut Args<'a>) -> Result<bool, Error> {
        let Some(distances) = args.peek().filter(|_| args.len() > 1).and_then(store_word) else { return Ok(false) };
        args.bytes()?;
        self.target = Some(args.bytes()?);
        self.stores_distances = distances;
        Ok(true)
    }

    /// Whether the options can be had together.
    fn check(&self, args: &Args<'_>, kind: Kind) -> Result<(), Error> {
        let searches = matches!(kind, Kind::Search | Kind::SearchStore);
        let name = || args.argv().get(0).map_or(String::new(), |name| excerpt(name, 128));
        if self.target.is_some() && self.with.len() > 0 {
            let what = if searches { "GEOSEARCHSTORE" } else { "STORE option in GEORADIUS" };
            return Err(Error::owned(format!(
                "ERR {what} is not compatible with WITHDIST, WITHHASH and WITHCOORD options"
            )));
        }
        if searches && self.centre.is_none() {
            return Err(Error::owned(format!(
                "ERR exactly one of FROMMEMBER or FROMLONLAT can be specified for {}",
                name()
            )));
        }
        if searches && self.reach.is_none() {
            return Err(Error::owned(format!("ERR exactly one of BYRADIUS and BYBOX can be specified for {}", name())));
        }
        if self.any && self.count == 0 {
            return Err(Error::text("ERR the ANY argument requires COUNT argument"));
        }
        Ok(())
    }

    fn shape(&self) -> Option<Shape> {
        let (Some(Centre::At(centre)), Some((extent, unit))) = (self.centre, self.reach) else { return None };
        Some(Shape { centre, extent, unit })
    }
}

/// Whether this word stands before a key to store distances in (true) or positions (false).
fn store_word(word: &[u8]) -> Option<bool> {
    match word {
        word if word.eq_ignore_ascii_case(b"store") => Some(false),
        word if word.eq_ignore_ascii_case(b"storedist") => Some(true),
        _ => None,
    }
}

/// A place that was found.
struct Found<'z> {
    member: &'z [u8],
    score: f64,
    position: Position,
    distance_m: f64,
}

/// The places within the shape, as many and in the order as the options want.
fn find<'z>(places: &'z ZSet, shape: &Shape, options: &Options<'_>) -> Vec<Found<'z>> {
    let most = if options.any { options.count } else { usize::MAX };
    let mut found = within(places, shape, most);
    // The first so many are the nearest ones, unless any will do.
    let sorts = options.count > 0 && !options.any;
    match options.nearest_first.or(sorts.then_some(true)) {
        Some(true) => found.sort_by(|a, b| by_distance(a, b)),
        Some(false) => found.sort_by(|a, b| by_distance(b, a)),
        None => {}
    }
    if options.count > 0 {
        found.truncate(options.count);
    }
    found
}

fn by_distance(a: &Found<'_>, b: &Found<'_>) -> Ordering {
    a.distance_m.total_cmp(&b.distance_m)
}

/// Up to `most` places within the shape, in the order in which they are met.
fn within<'z>(places: &'z ZSet, shape: &Shape, most: usize) -> Vec<Found<'z>> {
    let cover = shape.cover();
    let members = cover.ranges().iter().flat_map(|scores| {
        let from = ScoreBound { score: scores.start as f64, exclusive: false };
        let to = ScoreBound { score: scores.end as f64, exclusive: true };
        places.range(places.by_score(from, to))
    });
    let test = |(member, score)| {
        let position = Position::from_score(score);
        let distance_m = shape.distance_within_m(position)?;
        Some(Found { member, score, position, distance_m })
    };
    members.filter_map(test).take(most).collect()
}

fn geosearch(ctx: &mut Ctx<'_>, mut args: Args<'_>) -> Done {
    let key = args.bytes()?;
    search(ctx, args, key, Kind::Search, |_, _| Ok(Options::default()))
}

fn geosearchstore(ctx: &mut Ctx<'_>, mut args: Args<'_>) -> Done {
    let (target, key) = (args.bytes()?, args.bytes()?);
    search(ctx, args, key, Kind::SearchStore, |_, _| Ok(Options { target: Some(target), ..Options::default() }))
}

fn georadius(ctx: &mut Ctx<'_>, mut args: Args<'_>) -> Done {
    let key = args.bytes()?;
    search(ctx, args, key, Kind::Radius, around_position)
}

fn georadius_ro(ctx: &mut Ctx<'_>, mut args: Args<'_>) -> Done {
    let key = args.bytes()?;
    search(ctx, args, key, Kind::RadiusReadOnly, around_position)
}

fn georadiusbymember(ctx: &mut Ctx<'_>, mut args: Args<'_>) -> Done {
    let key = args.bytes()?;
    search(ctx, args, key, Kind::Radius, around_member)
}

fn georadiusbymember_ro(ctx: &mut Ctx<'_>, mut args: Args<'_>) -> Done {
    let key = args.bytes()?;
    search(ctx, args, key, Kind::RadiusReadOnly, around_member)
}

fn around_position<'a>(args: &mut Args<'a>, _: Option<&ZSet>) -> Result<Options<'a>, Error> {
    let centre = Some(Centre::At(position(args)?));
    Ok(Options { centre, reach: Some(radius(args)?), ..Options::default() })
}

fn around_member<'a>(args: &mut Args<'a>, places: Option<&ZSet>) -> Result<Options<'a>, Error> {
    let centre = Centre::of(places, args.bytes()?)?;
    if places.is_none() {
        // Redis does not read how far to go from nowhere.
        args.take(2)?;
        return Ok(Options { centre: Some(centre), ..Options::default() });
    }
    Ok(Options { centre: Some(centre), reach: Some(radius(args)?), ..Options::default() })
}

/// Looks at the key, then takes the arguments that the command fixes by `begin` and those that are options, then answers
/// or stores what it finds.
fn search<'a>(
    ctx: &mut Ctx<'_>,
    mut args: Args<'a>,
    key: &[u8],
    kind: Kind,
    begin: impl FnOnce(&mut Args<'a>, Option<&ZSet>) -> Result<Options<'a>, Error>,
) -> Done {
    let limits = ctx.ks.limits.zset;
    let places = read(ctx.ks, ctx.session.db, key)?;
    let options = begin(&mut args, places)?.parse(&mut args, kind, places)?;
    let found = match (places, options.shape()) {
        (Some(places), Some(shape)) => find(places, &shape, &options),
        _ => Vec::new(),
    };
    let metres = options.reach.map_or(1.0, |(_, unit)| unit.metres());
    let Some(target) = options.target else {
        answer(ctx.reply, &found, options.with, metres);
        return Ok(());
    };
    let result = gather(&found, options.stores_distances.then_some(metres), limits);
    store(ctx, target, &result)
}

fn answer(reply: &mut Reply, found: &[Found<'_>], with: With, metres: f64) {
    reply.array(found.len());
    for place in found {
        if with.len() > 0 {
            reply.array(1 + with.len());
        }
        reply.bulk(place.member);
        if with.distance {
            answer_distance(reply, place.distance_m / metres);
        }
        if with.hash {
            reply.integer(place.score as i64);
        }
        if with.position {
            answer_position(reply, place.position);
        }
    }
}

/// What was found as a sorted set, by distances in units of so many metres if there is such a unit.
fn gather(found: &[Found<'_>], metres: Option<f64>, limits: ZSetLimits) -> ZSet {
    let mut result = ZSet::new();
    for place in found {
        let score = metres.map_or(place.score, |metres| place.distance_m / metres);
        result.insert(place.member, score, limits);
    }
    result
}

const READ: Command = Command {
    flags: Flags::READONLY,
    keys: &[KeySpec::one(1, Access::Read)],
    group: Group::Geo,
    since: "3.2.0",
    ..Command::EMPTY
};
const SEARCH_COST: &str = "O(N+log(M)) for N places in the boxes around the area and M in the set.";
const OF_MEMBERS: &str = "O(N) for N members given.";

/// A key behind an option that begins at this argument or later.
const fn stored(word: &'static str, from: usize) -> KeySpec {
    KeySpec {
        begin: Begin::Keyword(word, from),
        find: Find::Range { last: 0, step: 1, limit: 0 },
        access: Access::Overwrite,
    }
}

/// The family's table.
pub const COMMANDS: &[Command] = &[
    Command {
        name: "geoadd",
        arity: -5,
        flags: Flags::WRITE.and(Flags::DENYOOM),
        keys: &[KeySpec::one(1, Access::Modify)],
        complexity: "O(log(N)) a place, for N places in the set.",
        summary: "Adds places by longitude and latitude.",
        syntax: "key [NX | XX] [CH] (longitude latitude member)...",
        run: Run::Now(geoadd),
        ..READ
    },
    Command {
        name: "geodist",
        arity: -4,
        summary: "Answers the distance between two places.",
        syntax: "key member1 member2 [M | KM | FT | MI]",
        run: Run::Now(geodist),
        ..READ
    },
    Command {
        name: "geohash",
        arity: -2,
        complexity: OF_MEMBERS,
        summary: "Answers places as public geohashes.",
        syntax: "key [member...]",
        run: Run::Now(geohash),
        ..READ
    },
    Command {
        name: "geopos",
        arity: -2,
        complexity: OF_MEMBERS,
        summary: "Answers longitudes and latitudes of places.",
        syntax: "key [member...]",
        run: Run::Now(geopos),
        ..READ
    },
    Command {
        name: "georadius",
        arity: -6,
        flags: Flags::WRITE.and(Flags::DENYOOM).and(Flags::MOVABLEKEYS),
        keys: &[KeySpec::one(1, Access::Read), stored("STORE", 6), stored("STOREDIST", 6)],
        complexity: SEARCH_COST,
        summary: "Answers or stores the places within a circle around a position.",
        syntax: "key longitude latitude radius <M | KM | FT | MI> [WITHCOORD] [WITHDIST] [WITHHASH] [COUNT \
                 count [ANY]] [ASC | DESC] [STORE key1:key] [STOREDIST key2:key]",
        run: Run::Now(georadius),
        ..READ
    },
    Command {
        name: "georadius_ro",
        arity: -6,
        since: "3.2.10",
        complexity: SEARCH_COST,
        summary: "Answers the places within a circle around a position.",
        syntax: "key longitude latitude radius <M | KM | FT | MI> [WITHCOORD] [WITHDIST] [WITHHASH] [COUNT \
                 count [ANY]] [ASC | DESC]",
        run: Run::Now(georadius_ro),
        ..READ
    },
    Command {
        name: "georadiusbymember",
        arity: -5,
        flags: Flags::WRITE.and(Flags::DENYOOM).and(Flags::MOVABLEKEYS),
        keys: &[KeySpec::one(1, Access::Read), stored("STORE", 5), stored("STOREDIST", 5)],
        complexity: SEARCH_COST,
        summary: "Answers or stores the places within a circle around another place.",
        syntax: "key member radius <M | KM | FT | MI> [WITHCOORD] [WITHDIST] [WITHHASH] [COUNT count [ANY]] \
                 [ASC | DESC] [STORE key1:key] [STOREDIST key2:key]",
        run: Run::Now(georadiusbymember),
        ..READ
    },
    Command {
        name: "georadiusbymember_ro",
        arity: -5,
        since: "3.2.10",
        complexity: SEARCH_COST,
        summary: "Answers the places within a circle around another place.",
        syntax: "key member radius <M | KM | FT | MI> [WITHCOORD] [WITHDIST] [WITHHASH] [COUNT count [ANY]] \
                 [ASC | DESC]",
        run: Run::Now(georadiusbymember_ro),
        ..READ
    },
    Command {
        name: "geosearch",
        arity: -7,
        since: "6.2.0",
        complexity: SEARCH_COST,
        summary: "Answers the places within a circle or a box.",
        syntax: "key <FROMMEMBER member | FROMLONLAT longitude latitude> <BYRADIUS radius <M | KM | FT | MI> | \
                 BYBOX width height <M | KM | FT | MI>> [ASC | DESC] [COUNT count [ANY]] [WITHCOORD] [WITHDIST] [WITHHASH]",
        run: Run::Now(geosearch),
        ..READ
    },
    Command {
        name: "geosearchstore",
        arity: -8,
        flags: Flags::WRITE.and(Flags::DENYOOM),
        keys: &[KeySpec::one(1, Access::Overwrite), KeySpec::one(2, Access::Read)],
        since: "6.2.0",
        complexity: SEARCH_COST,
        summary: "Stores the places within a circle or a box.",
        syntax: "destination source <FROMMEMBER member | FROMLONLAT longitude latitude> <BYRADIUS radius <M | \
                 KM | FT | MI> | BYBOX width height <M | KM | FT | MI>> [ASC | DESC] [COUNT count [ANY]] [STOREDIST]",
        run: Run::Now(geosearchstore),
        ..READ
    },
];
