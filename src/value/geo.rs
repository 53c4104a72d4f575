//! Positions on Earth as scores of a sorted set.
//!
//! A geohash halves the ranges of longitude and latitude in turn. After `step` halvings of each, both are `step`-bit
//! numbers. Interleaved (latitude in the even bits, longitude in the odd bits), they form a number of `2 * step` bits
//! whose order keeps nearby places mostly close together. Sorted sets store 52 bits, which a double holds exactly.
//!
//! A cell of fewer steps is a prefix, and therefore one range of scores. A search takes the cell around its centre, of
//! a size for which the shape reaches no further than the eight cells around it. It visits up to nine ranges of scores
//! and tests each member's exact distance.
//!
//! The order in which cells are visited, the sphere's radius and the order of floating-point operations are those of
//! Redis: clients see unsorted replies and last digits, and scores must be portable. Distances treat Earth as a sphere
//! (haversine); latitudes end at the edges of the square Mercator map.

use std::ops::Range;

/// A longitude and a latitude in degrees.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Position {
    /// East of Greenwich, -180 to 180.
    pub longitude: f64,
    /// North of the equator, -85.05112878 to 85.05112878.
    pub latitude: f64,
}

impl Position {
    /// Whether the position lies in the ranges that a geohash covers. NaN does not.
    pub(crate) fn is_valid(self) -> bool {
        LONGITUDE.contains(self.longitude) && LATITUDE.contains(self.latitude)
    }

    /// The 52-bit geohash, which is the member's score. `None` if the position is not valid.
    pub(crate) fn to_score(self) -> Option<f64> {
        self.is_valid().then(|| Cell::around(self, STEP_MAX, LATITUDE).bits as f64)
    }

    /// The middle of the cell that a score encodes. Every score gives a valid position.
    pub(crate) fn from_score(score: f64) -> Position {
        // Bits beyond the 52 only push the position outwards; it is clamped to the valid ranges below.
        let area = Cell { bits: wrapping_bits(score), step: STEP_MAX }.area();
        Position {
            longitude: ((area.west + area.east) / 2.0).clamp(LONGITUDE.min, LONGITUDE.max),
            latitude: ((area.south + area.north) / 2.0).clamp(LATITUDE.min, LATITUDE.max),
        }
    }

    /// The eleven letters of the public geohash (geohash.org). That geohash divides latitudes from -90 to 90, so the
    /// position is encoded again. Ten letters hold 50 of the 52 bits, and the last letter is always `0`.
    pub(crate) fn to_geohash(self) -> [u8; 11] {
        const ALPHABET: &[u8; 32] = b"0123456789bcdefghjkmnpqrstuvwxyz";
        let bits = Cell::around(self, STEP_MAX, Span { min: -90.0, max: 90.0 }).bits;
        let mut letters = [ALPHABET[0]; 11];
        for (i, letter) in letters[..10].iter_mut().enumerate() {
            *letter = ALPHABET[(bits >> (47 - 5 * i)) as usize & 31];
        }
        letters
    }

    /// The length of the great-circle arc to `other`, in metres.
    pub(crate) fn distance_m(self, other: Position) -> f64 {
        let half_longitude = ((radians(other.longitude) - radians(self.longitude)) / 2.0).sin();
        if half_longitude == 0.0 {
            return self.latitude_distance_m(other);
        }
        let (from, to) = (radians(self.latitude), radians(other.latitude));
        let half_latitude = ((to - from) / 2.0).sin();
        let a = half_latitude * half_latitude + from.cos() * to.cos() * half_longitude * half_longitude;
        2.0 * EARTH_RADIUS_M * a.sqrt().asin()
    }

    fn latitude_distance_m(self, other: Position) -> f64 {
        EARTH_RADIUS_M * (radians(other.latitude) - radians(self.latitude)).abs()
    }
}

/// The units in which commands take and return distances.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unit {
    /// `m`
    Metres,
    /// `km`
    Kilometres,
    /// `ft`
    Feet,
    /// `mi`
    Miles,
}

impl Unit {
    /// Reads `m`, `km`, `ft` or `mi` in any case.
    pub(crate) fn parse(name: &[u8]) -> Option<Unit> {
        let known =
            [(b"m" as &[u8], Unit::Metres), (b"km", Unit::Kilometres), (b"ft", Unit::Feet), (b"mi", Unit::Miles)];
        known.into_iter().find(|(text, _)| name.eq_ignore_ascii_case(text)).map(|(_, unit)| unit)
    }

    /// The length of one unit in metres.
    pub(crate) fn metres(self) -> f64 {
        match self {
            Unit::Metres => 1.0,
            Unit::Kilometres => 1000.0,
            Unit::Feet => 0.3048,
            Unit::Miles => 1609.34,
        }
    }
}

/// The area that a search covers around its centre. Lengths are in `unit`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Shape {
    /// The middle; it must be valid.
    pub centre: Position,
    /// A circle or a box.
    pub extent: Extent,
    /// The unit of the lengths.
    pub unit: Unit,
}

/// The size of a search's shape.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Extent {
    /// Everything at most this far away (`BYRADIUS`).
    Radius(f64),
    /// Everything in a box along the axes (`BYBOX`), given by the full lengths of its sides.
    Box {
        /// From west to east, measured at the latitude of the tested position.
        width: f64,
        /// From south to north.
        height: f64,
    },
}

impl Shape {
    /// The distance of `position` from the centre in metres, if it lies in the shape (borders included).
    pub(crate) fn distance_within_m(&self, position: Position) -> Option<f64> {
        let metres = self.unit.metres();
        match self.extent {
            Extent::Radius(radius) => {
                let distance = self.centre.distance_m(position);
                (distance <= radius * metres).then_some(distance)
            }
            Extent::Box { width, height } => {
                if position.latitude_distance_m(self.centre) > height * metres / 2.0 {
                    return None;
                }
                let below_centre = Position { longitude: self.centre.longitude, latitude: position.latitude };
                if position.distance_m(below_centre) > width * metres / 2.0 {
                    return None;
                }
                Some(self.centre.distance_m(position))
            }
        }
    }

    /// The ranges of scores (start inclusive, end exclusive) that hold every member in the shape, in the order to visit
    /// them. They do not overlap.
    pub(crate) fn cover(&self) -> Cover {
        let bounds = self.bounds();
        let mut step = steps_for_radius(self.reach_m(), self.centre.latitude);
        let mut middle = Cell::around(self.centre, step, LATITUDE);
        if step > 1 && !middle.neighbours_reach(&bounds) {
            step -= 1;
            middle = Cell::around(self.centre, step, LATITUDE);
        }
        let area = middle.area();
        let mut cover = Cover { ranges: std::array::from_fn(|_| 0..0), len: 0 };
        let mut last = None;
        for (east, north) in VISITS {
            // From two steps on, whole rows and columns of cells are skipped if the shape ends in the middle cell.
            let useless = step >= 2
                && ((north < 0 && area.south < bounds.south)
                    || (north > 0 && area.north > bounds.north)
                    || (east < 0 && area.west < bounds.west)
                    || (east > 0 && area.east > bounds.east));
            let cell = middle.neighbour(east, north);
            // On a map of two by two cells, the neighbours on both sides are one cell.
            if !useless && last != Some(cell.bits) {
                last = Some(cell.bits);
                cover.ranges[cover.len] = cell.scores();
                cover.len += 1;
            }
        }
        cover
    }

    /// How far the shape reaches from its centre, in metres.
    fn reach_m(&self) -> f64 {
        let reach = match self.extent {
            Extent::Radius(radius) => radius,
            Extent::Box { width, height } => ((width / 2.0) * (width / 2.0) + (height / 2.0) * (height / 2.0)).sqrt(),
        };
        reach * self.unit.metres()
    }

    /// A box that contains the shape. A degree of longitude is shortest on the side closer to the pole.
    fn bounds(&self) -> Area {
        let Position { longitude, latitude } = self.centre;
        let (half_width, half_height) = match self.extent {
            Extent::Radius(radius) => (radius, radius),
            Extent::Box { width, height } => (width / 2.0, height / 2.0),
        };
        let (half_width, half_height) = (half_width * self.unit.metres(), half_height * self.unit.metres());
        let latitude_delta = degrees(half_height / EARTH_RADIUS_M);
        let poleward = if latitude < 0.0 { latitude - latitude_delta } else { latitude + latitude_delta };
        let longitude_delta = degrees(half_width / EARTH_RADIUS_M / radians(poleward).cos());
        Area {
            west: longitude - longitude_delta,
            east: longitude + longitude_delta,
            south: latitude - latitude_delta,
            north: latitude + latitude_delta,
        }
    }
}

/// Up to nine ranges of scores; see [`Shape::cover`].
#[derive(Clone, Debug)]
pub(crate) struct Cover {
    ranges: [Range<u64>; 9],
    len: usize,
}

impl Cover {
    /// The ranges in the order to visit them.
    pub(crate) fn ranges(&self) -> &[Range<u64>] {
        &self.ranges[..self.len]
    }
}

/// The cells of a search by their offset (east, north) from the middle cell, in the order that replies show.
const VISITS: [(i8, i8); 9] = [(0, 0), (0, 1), (0, -1), (1, 0), (-1, 0), (1, 1), (-1, 1), (1, -1), (-1, -1)];

const EARTH_RADIUS_M: f64 = 6372797.560856;
/// Half the side of the Mercator map.
const MERCATOR_MAX_M: f64 = 20037726.37;
const RADIANS_PER_DEGREE: f64 = std::f64::consts::PI / 180.0;
/// Halvings of each axis in a score.
const STEP_MAX: u32 = 26;

const LONGITUDE: Span = Span { min: -180.0, max: 180.0 };
const LATITUDE: Span = Span { min: -85.05112878, max: 85.05112878 };

/// One multiplication, and one division on the way back: the standard library's last digits may differ.
fn radians(degrees: f64) -> f64 {
    degrees * RADIANS_PER_DEGREE
}

fn degrees(radians: f64) -> f64 {
    radians / RADIANS_PER_DEGREE
}

#[derive(Clone, Copy, Debug)]
struct Span {
    min: f64,
    max: f64,
}

impl Span {
    fn contains(self, value: f64) -> bool {
        value >= self.min && value <= self.max
    }

    /// The index of the one of `2^step` parts in which `value` lies. The end itself gives an index one past the last
    /// part, as in Redis.
    fn part(self, value: f64, step: u32) -> u32 {
        let offset = (value - self.min) / (self.max - self.min);
        (offset * (1u64 << step) as f64) as u32
    }

    /// The start of part `index`.
    fn start_of(self, index: u64, step: u32) -> f64 {
        self.min + (index as f64 / (1u64 << step) as f64) * (self.max - self.min)
    }
}

#[derive(Clone, Copy, Debug)]
struct Area {
    west: f64,
    east: f64,
    south: f64,
    north: f64,
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct Cell {
    bits: u64,
    step: u32,
}

impl Cell {
    fn around(position: Position, step: u32, latitudes: Span) -> Cell {
        let north = latitudes.part(position.latitude, step);
        let east = LONGITUDE.part(position.longitude, step);
        Cell { bits: spread(north) | spread(east) << 1, step }
    }

    fn area(self) -> Area {
        let (north, east) = (u64::from(gather(self.bits)), u64::from(gather(self.bits >> 1)));
        Area {
            west: LONGITUDE.start_of(east, self.step),
            east: LONGITUDE.start_of(east + 1, self.step),
            south: LATITUDE.start_of(north, self.step),
            north: LATITUDE.start_of(north + 1, self.step),
        }
    }

    /// The cell that lies `east` and `north` cells away; both axes wrap around.
    fn neighbour(self, east: i8, north: i8) -> Cell {
        let mask = (1u32 << self.step) - 1;
        let step =
            |bits: u64, by: i8| if by == 0 { gather(bits) } else { gather(bits).wrapping_add_signed(by.into()) & mask };
        Cell { bits: spread(step(self.bits, north)) | spread(step(self.bits >> 1, east)) << 1, step: self.step }
    }

    /// Whether the cells on the four sides extend to or past the bounds.
    fn neighbours_reach(self, bounds: &Area) -> bool {
        self.neighbour(0, 1).area().north >= bounds.north
            && self.neighbour(0, -1).area().south <= bounds.south
            && self.neighbour(1, 0).area().east >= bounds.east
            && self.neighbour(-1, 0).area().west <= bounds.west
    }

    fn scores(self) -> Range<u64> {
        let shift = 2 * (STEP_MAX - self.step);
        self.bits << shift..(self.bits + 1) << shift
    }
}

/// The step whose cells are about as large as the radius, so that the shape fits into three by three cells. Towards the
/// poles, cells are narrower than they look on the map, so larger ones are used.
fn steps_for_radius(radius_m: f64, latitude: f64) -> u32 {
    // NaN and negative radii have no meaning here; like zero, they get the smallest cells.
    if radius_m.is_nan() || radius_m <= 0.0 {
        return STEP_MAX;
    }
    let mut step = 1i32;
    let mut reach = radius_m;
    while reach < MERCATOR_MAX_M && step < 64 {
        reach *= 2.0;
        step += 1;
    }
    step -= 2;
    if latitude.abs() > 66.0 {
        step -= 1;
    }
    if latitude.abs() > 80.0 {
        step -= 1;
    }
    step.clamp(1, STEP_MAX as i32) as u32
}

/// Puts a zero bit above each bit.
fn spread(value: u32) -> u64 {
    let mut bits = u64::from(value);
    for (shift, mask) in SPREAD {
        bits = (bits | bits << shift) & mask;
    }
    bits
}

/// Takes every second bit, the lowest first: undoes [`spread`].
fn gather(bits: u64) -> u32 {
    let mut bits = bits & SPREAD[4].1;
    for at in (0..4).rev() {
        bits = (bits | bits >> SPREAD[at + 1].0) & SPREAD[at].1;
    }
    ((bits | bits >> SPREAD[0].0) & u64::from(u32::MAX)) as u32
}

/// Each round halves the runs of bits that stay together: 16, 8, 4, 2, 1.
const SPREAD: [(u32, u64); 5] = [
    (16, 0x0000_FFFF_0000_FFFF),
    (8, 0x00FF_00FF_00FF_00FF),
    (4, 0x0F0F_0F0F_0F0F_0F0F),
    (2, 0x3333_3333_3333_3333),
    (1, 0x5555_5555_5555_5555),
];

/// The integer value of a score. ZADD also accepts scores that no position has. For these Redis returns whatever the
/// cast gives on x86-64: negative scores wrap, and those beyond all integers become a power of two or zero.
fn wrapping_bits(score: f64) -> u64 {
    const HALF: f64 = (1u64 << 63) as f64;
    let signed = |value: f64| if (-HALF..HALF).contains(&value) { value as i64 as u64 } else { 1 << 63 };
    if score >= HALF { signed(score - HALF) ^ (1 << 63) } else { signed(score) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const PALERMO: Position = Position { longitude: 13.361389, latitude: 38.115556 };
    const CATANIA: Position = Position { longitude: 15.087269, latitude: 37.502669 };

    /// The expected values are replies of redis-server 7.0.15.
    #[test]
    fn known_places() {
        let scores = [PALERMO, CATANIA].map(|place| place.to_score().expect("it is on the map"));
        assert_eq!(scores, [3479099956230698.0, 3479447370796909.0]);
        let [palermo, catania] = scores.map(Position::from_score);
        assert_eq!(palermo, Position { longitude: 13.361389338970184, latitude: 38.1155563954963 });
        assert_eq!(palermo.to_geohash(), *b"sqc8b49rny0");
        assert_eq!(catania.to_geohash(), *b"sqdtr74hyu0");
        assert_eq!(format!("{:.4}", palermo.distance_m(catania)), "166274.1516");
        assert_eq!(format!("{:.4}", palermo.distance_m(catania) / Unit::Miles.metres()), "103.3182");
    }

    #[test]
    fn invalid_positions_and_odd_scores() {
        for (longitude, latitude) in [(180.1, 0.0), (-181.0, 0.0), (0.0, 85.06), (0.0, -86.0), (f64::NAN, 0.0)] {
            assert_eq!(Position { longitude, latitude }.to_score(), None);
        }
        for score in [-1.0, f64::INFINITY, f64::NEG_INFINITY, 1e300, f64::NAN, -0.0] {
            assert!(Position::from_score(score).is_valid());
        }
        assert!(Position { longitude: 180.0, latitude: 85.05112878 }.to_score().is_some());
    }

    #[test]
    fn units() {
        assert_eq!(Unit::parse(b"KM"), Some(Unit::Kilometres));
        assert_eq!(Unit::parse(b"yd"), None);
    }

    fn position() -> impl Strategy<Value = Position> {
        (-180.0..180.0f64, -85.0..85.0f64).prop_map(|(longitude, latitude)| Position { longitude, latitude })
    }

    proptest! {
        #[test]
        fn bits_come_back(value in any::<u32>()) {
            prop_assert_eq!(gather(spread(value)), value);
        }

        #[test]
        fn positions_come_back_within_a_metre(place in position()) {
            let back = Position::from_score(place.to_score().expect("it is on the map"));
            prop_assert!(place.distance_m(back) < 1.0);
        }

        /// Everything in the shape lies in exactly one of its ranges. Near a pole or the antimeridian Redis' cover has
        /// gaps, which we keep; hence the bounds.
        #[test]
        fn cover_misses_nothing(
            longitude in -90.0..90.0f64, latitude in -60.0..60.0f64, east in -1.0..1.0f64, north in -1.0..1.0f64,
            size in 0.0..3.0f64, boxed in any::<bool>(),
        ) {
            let centre = Position { longitude, latitude };
            let reach = 10f64.powf(-size) * 10.0;
            let place = Position { longitude: longitude + east * reach, latitude: latitude + north * reach };
            let reach = reach * 111.0;
            let extent = if boxed { Extent::Box { width: reach, height: reach * 1.5 } } else { Extent::Radius(reach) };
            let shape = Shape { centre, extent, unit: Unit::Kilometres };
            let score = place.to_score().expect("it is on the map");
            let holding = shape.cover().ranges().iter().filter(|range| range.contains(&(score as u64))).count();
            prop_assert!(holding <= 1);
            if shape.distance_within_m(Position::from_score(score)).is_some() {
                prop_assert_eq!(holding, 1);
            }
        }

        #[test]
        fn no_size_panics(centre in position(), a in any::<f64>(), b in any::<f64>()) {
            for extent in [Extent::Radius(a), Extent::Box { width: a, height: b }] {
                let shape = Shape { centre, extent, unit: Unit::Miles };
                prop_assert!(!shape.cover().ranges().is_empty());
                shape.distance_within_m(centre);
            }
        }
    }
}
