//! HyperLogLog: estimates the number of distinct elements seen, within 0.81 %, in at most 12 KB. Stores exactly the
//! bytes that Redis stores, so that a value can move between the two.
//!
//! Each element is hashed by MurmurHash64A. The low 14 bits choose one of 16,384 registers. The register keeps the
//! highest rank seen, which is the number of zeros below the lowest 1 of the other 50 bits, plus one. The distribution
//! of the ranks yields the number of elements (O. Ertl, "New cardinality estimation algorithms for HyperLogLog
//! sketches", 2017, algorithm 6). Adding an element twice changes nothing, and the union of two sets has the maxima of
//! their registers.
//!
//! Layout: `HYLL`; one byte of encoding (0 dense, 1 sparse); three unused bytes; the cached count in eight bytes,
//! little-endian, whose topmost bit marks it as out of date; then the registers.
//! - Dense: 6 bits each, starting at the lowest bit of the first byte.
//! - Sparse: runs of equal registers. `00nnnnnn` is a run of n+1 zeros, `01nnnnnn nnnnnnnn` likewise with 14 bits, and
//!   `1vvvvvnn` a run of n+1 registers of value v+1. This is small while few registers are set. A value above 32, or
//!   more bytes than `hll-sparse-max-bytes`, converts it to the dense encoding for good.
//!
//! A client may have written the bytes, so every run is checked. Bytes that do not add up to 16,384 registers are
//! [`Corrupt`].

/// The number of registers.
pub const REGISTERS: usize = 1 << INDEX_BITS;

/// The position of the cached count, which takes eight bytes.
pub const CACHE_AT: usize = 8;

const INDEX_BITS: u32 = 14;
const RANK_BITS: u32 = 64 - INDEX_BITS;
const HEADER_BYTES: usize = 16;
const DENSE_BYTES: usize = HEADER_BYTES + REGISTERS * 6 / 8;
const MAGIC: &[u8] = b"HYLL";
const SEED: u64 = 0xadc8_3b19;

/// The bounds of a run in the sparse encoding.
const MAX_ZEROES: usize = 1 << 6;
const MAX_VALUE: u8 = 1 << 5;
const MAX_VALUES: usize = 1 << 2;

/// The number of runs that are checked for equal neighbours after a change. It must be Redis' number, or the bytes
/// would differ.
const RUNS_TO_JOIN: usize = 5;

const _: () = assert!(DENSE_BYTES == 12_304);

/// The registers do not add up to the right number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Corrupt;

/// The storage of the registers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Encoding {
    /// Six bits each.
    Dense,
    /// Runs of equal registers.
    Sparse,
}

/// Reads the encoding from the header. `None` if the string is not a HyperLogLog.
pub fn encoding(bytes: &[u8]) -> Option<Encoding> {
    if bytes.len() < HEADER_BYTES || !bytes.starts_with(MAGIC) {
        return None;
    }
    match bytes[MAGIC.len()] {
        0 => (bytes.len() == DENSE_BYTES).then_some(Encoding::Dense),
        1 => Some(Encoding::Sparse),
        _ => None,
    }
}

/// A HyperLogLog that has seen no element.
pub fn empty() -> Vec<u8> {
    let mut bytes = Vec::with_capacity(HEADER_BYTES + 2);
    bytes.extend_from_slice(MAGIC);
    bytes.push(1);
    bytes.resize(HEADER_BYTES, 0);
    bytes.extend_from_slice(Runs::default().with(0, REGISTERS).as_slice());
    bytes
}

/// The cached count, if it is up to date. `bytes` must have a header.
pub fn cached_count(bytes: &[u8]) -> Option<u64> {
    let field: [u8; 8] = bytes.get(CACHE_AT..CACHE_AT + 8)?.try_into().ok()?;
    (field[7] & STALE == 0).then_some(u64::from_le_bytes(field))
}

/// Marks the cached count as out of date.
pub fn forget_count(bytes: &mut [u8]) {
    if let Some(byte) = bytes.get_mut(STALE_AT) {
        *byte |= STALE;
    }
}

/// The position of the byte that holds [`STALE`].
pub const STALE_AT: usize = CACHE_AT + 7;
/// The bit that marks the cached count as out of date.
pub const STALE: u8 = 0x80;

/// The register of an element, and the element's rank.
pub fn place(element: &[u8]) -> (usize, u8) {
    let hash = murmur(element);
    let rest = hash >> INDEX_BITS | 1 << RANK_BITS;
    ((hash as usize) & (REGISTERS - 1), rest.trailing_zeros() as u8 + 1)
}

/// Returns the two bytes that raise a dense register to `rank`, and their position in `bytes`. `None` if the register
/// is already as high.
pub fn raise_dense(bytes: &[u8], index: usize, rank: u8) -> Option<(usize, [u8; 2])> {
    let (at, shift) = (HEADER_BYTES + index * 6 / 8, index * 6 % 8);
    // The last register ends with the last byte; there the two bytes begin one byte earlier.
    let (at, shift) = if at + 1 < bytes.len() { (at, shift) } else { (at - 1, shift + 8) };
    let pair: [u8; 2] = bytes.get(at..at + 2)?.try_into().ok()?;
    let field = u16::from_le_bytes(pair);
    let mask = 0x3f << shift;
    let raised = field & !mask | u16::from(rank) << shift;
    (u16::from(rank) > (field & mask) >> shift).then_some((at, raised.to_le_bytes()))
}

/// Raises a register to at least `rank`. Returns whether it was lower. `bytes` must have a header, and may become
/// dense.
pub fn raise(bytes: &mut Vec<u8>, index: usize, rank: u8, sparse_max_bytes: usize) -> Result<bool, Corrupt> {
    if encoding(bytes) == Some(Encoding::Dense) {
        let Some((at, pair)) = raise_dense(bytes, index, rank) else { return Ok(false) };
        bytes[at..at + 2].copy_from_slice(&pair);
        return Ok(true);
    }
    let found = find_run(bytes, index)?;
    if found.run.value >= rank {
        return Ok(false);
    }
    let Run { value, len, width } = found.run;
    let new = Runs::default().with(value, index - found.first).with(rank, 1).with(value, found.first + len - index - 1);
    let grown = bytes.len() - width + new.len;
    if rank > MAX_VALUE || (new.len > width && grown > sparse_max_bytes) {
        make_dense(bytes)?;
        return raise(bytes, index, rank, sparse_max_bytes);
    }
    bytes.splice(found.at..found.at + width, new.as_slice().iter().copied());
    join_runs(bytes, found.before);
    forget_count(bytes);
    Ok(true)
}

/// Like [`raise`], for an element.
pub fn add(bytes: &mut Vec<u8>, element: &[u8], sparse_max_bytes: usize) -> Result<bool, Corrupt> {
    let (index, rank) = place(element);
    raise(bytes, index, rank, sparse_max_bytes)
}

/// Converts to the dense encoding, if necessary.
pub fn make_dense(bytes: &mut Vec<u8>) -> Result<(), Corrupt> {
    if encoding(bytes) == Some(Encoding::Dense) {
        return Ok(());
    }
    let mut registers = Registers::new();
    registers.absorb(bytes)?;
    bytes.truncate(HEADER_BYTES);
    bytes[MAGIC.len()] = 0;
    for four in registers.0.as_chunks::<4>().0 {
        let [a, b, c, d] = four.map(u32::from);
        bytes.extend_from_slice(&(a | b << 6 | c << 12 | d << 18).to_le_bytes()[..3]);
    }
    Ok(())
}

/// Estimates how many distinct elements have been seen.
pub fn count(bytes: &[u8]) -> Result<u64, Corrupt> {
    let mut histogram = [0; RANKS];
    match encoding(bytes) {
        Some(Encoding::Dense) => dense_values(bytes).for_each(|value| histogram[usize::from(value)] += 1),
        _ => each_run(bytes, |run| histogram[usize::from(run.value)] += run.len as u32)?,
    }
    Ok(estimate(&histogram))
}

/// The runs of a sparse encoding, as PFDEBUG DECODE shows them: `z:9 Z:6350 v:3,1`.
pub fn describe(bytes: &[u8]) -> Result<String, Corrupt> {
    let mut words: Vec<String> = Vec::new();
    each_run(bytes, |run| {
        words.push(match run {
            Run { value: 0, len, width: 1 } => format!("z:{len}"),
            Run { value: 0, len, .. } => format!("Z:{len}"),
            Run { value, len, .. } => format!("v:{value},{len}"),
        });
    })?;
    Ok(words.join(" "))
}

/// All registers, one byte each, for merging.
pub struct Registers(Box<[u8; REGISTERS]>);

impl Default for Registers {
    fn default() -> Registers {
        Registers::new()
    }
}

impl Registers {
    /// All zero.
    pub fn new() -> Registers {
        Registers(Box::new([0; REGISTERS]))
    }

    /// Adds an element.
    pub fn see(&mut self, element: &[u8]) {
        let (index, rank) = place(element);
        self.0[index] = self.0[index].max(rank);
    }

    /// Raises these registers to those in `bytes`, which must have a header.
    pub fn absorb(&mut self, bytes: &[u8]) -> Result<(), Corrupt> {
        if encoding(bytes) == Some(Encoding::Dense) {
            self.0.iter_mut().zip(dense_values(bytes)).for_each(|(mine, value)| *mine = value.max(*mine));
            return Ok(());
        }
        let mut at = 0;
        each_run(bytes, |run| {
            if run.value > 0 {
                self.0[at..at + run.len].iter_mut().for_each(|mine| *mine = run.value.max(*mine));
            }
            at += run.len;
        })
    }

    /// Raises the registers in `bytes` to these.
    pub fn pour_into(&self, bytes: &mut Vec<u8>, sparse_max_bytes: usize) -> Result<(), Corrupt> {
        for (index, &rank) in self.0.iter().enumerate().filter(|(_, rank)| **rank > 0) {
            raise(bytes, index, rank, sparse_max_bytes)?;
        }
        Ok(())
    }

    /// The values, by index.
    pub fn values(&self) -> &[u8] {
        &self.0[..]
    }

    /// Estimates how many distinct elements have been seen.
    pub fn count(&self) -> u64 {
        let mut histogram = [0; RANKS];
        self.0.iter().for_each(|&value| histogram[usize::from(value & 0x3f)] += 1);
        estimate(&histogram)
    }
}

/// Checks the algorithm on made-up elements. The error says what is wrong.
pub fn self_test() -> Result<(), String> {
    const ELEMENTS: u64 = 100_000;
    let (mut dense, mut sparse) = (empty(), empty());
    let corrupt = |Corrupt| "its own registers are corrupt".to_owned();
    make_dense(&mut dense).map_err(corrupt)?;
    let mut checkpoint = 1;
    for n in 1..=ELEMENTS {
        let element = n.to_le_bytes();
        let raised = add(&mut dense, &element, 0).map_err(corrupt)?;
        if raised != add(&mut sparse, &element, 3_000).map_err(corrupt)? {
            return Err(format!("dense and sparse registers differ at element {n}"));
        }
        if n == checkpoint {
            checkpoint *= 10;
            let (dense, sparse) = (count(&dense).map_err(corrupt)?, count(&sparse).map_err(corrupt)?);
            // Six standard errors. A small count can be off by this much through a single collision.
            let allowed = (n as f64 * 6.0 * 1.04 / (REGISTERS as f64).sqrt()).max(2.0);
            if dense != sparse || (dense as f64 - n as f64).abs() > allowed {
                return Err(format!("{n} elements count as {dense} (dense) and {sparse} (sparse)"));
            }
        }
    }
    Ok(())
}

/// Consecutive registers of equal value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Run {
    value: u8,
    len: usize,
    /// Bytes in the run's encoding.
    width: usize,
}

impl Run {
    /// Reads the first run.
    fn read(bytes: &[u8]) -> Option<Run> {
        let first = *bytes.first()?;
        let low = usize::from(first & 0x3f);
        Some(match first >> 6 {
            0 => Run { value: 0, len: low + 1, width: 1 },
            1 => Run { value: 0, len: (low << 8 | usize::from(*bytes.get(1)?)) + 1, width: 2 },
            _ => Run { value: (first >> 2 & 0x1f) + 1, len: usize::from(first & 3) + 1, width: 1 },
        })
    }
}

/// Up to three runs that replace one.
#[derive(Default)]
struct Runs {
    bytes: [u8; 5],
    len: usize,
}

impl Runs {
    /// Appends a run; a length of 0 appends nothing. A value above 0 is repeated at most [`MAX_VALUES`] times.
    fn with(mut self, value: u8, len: usize) -> Runs {
        match (value, len) {
            (_, 0) => {}
            (0, len) if len <= MAX_ZEROES => self.push(len - 1),
            (0, len) => {
                self.push(0x40 | (len - 1) >> 8);
                self.push((len - 1) & 0xff);
            }
            (value, len) => self.push(0x80 | usize::from(value - 1) << 2 | (len - 1)),
        }
        self
    }

    fn push(&mut self, byte: usize) {
        self.bytes[self.len] = byte as u8;
        self.len += 1;
    }

    fn as_slice(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

/// The run that a register belongs to.
struct Found {
    run: Run,
    /// Position of the run.
    at: usize,
    /// Position of the run before it, or its own if it is the first.
    before: usize,
    /// The run's first register.
    first: usize,
}

fn find_run(bytes: &[u8], index: usize) -> Result<Found, Corrupt> {
    let (mut at, mut before, mut first) = (HEADER_BYTES, HEADER_BYTES, 0);
    loop {
        let run = bytes.get(at..).and_then(Run::read).ok_or(Corrupt)?;
        if index < first + run.len {
            return if first + run.len <= REGISTERS { Ok(Found { run, at, before, first }) } else { Err(Corrupt) };
        }
        (before, at, first) = (at, at + run.width, first + run.len);
    }
}

/// Joins neighbouring runs of equal value, for a few runs starting at `at`.
fn join_runs(bytes: &mut Vec<u8>, mut at: usize) {
    for _ in 0..RUNS_TO_JOIN {
        let Some(run) = bytes.get(at..).and_then(Run::read) else { return };
        match bytes.get(at + run.width..).and_then(Run::read) {
            Some(next) if run.value > 0 && next.value == run.value && run.len + next.len <= MAX_VALUES => {
                bytes[at + 1] = Runs::default().with(run.value, run.len + next.len).bytes[0];
                bytes.remove(at);
            }
            _ => at += run.width,
        }
    }
}

/// Visits the runs of a sparse encoding. They must add up to the number of registers.
fn each_run(bytes: &[u8], mut visit: impl FnMut(Run)) -> Result<(), Corrupt> {
    let (mut at, mut covered) = (HEADER_BYTES, 0);
    while at < bytes.len() {
        let run = Run::read(&bytes[at..]).ok_or(Corrupt)?;
        (at, covered) = (at + run.width, covered + run.len);
        if covered > REGISTERS {
            return Err(Corrupt);
        }
        visit(run);
    }
    if covered == REGISTERS { Ok(()) } else { Err(Corrupt) }
}

/// The registers of a dense encoding.
fn dense_values(bytes: &[u8]) -> impl Iterator<Item = u8> + '_ {
    let (triples, _) = bytes.get(HEADER_BYTES..).unwrap_or(&[]).as_chunks::<3>();
    triples.iter().flat_map(|&[a, b, c]| {
        let four = u32::from_le_bytes([a, b, c, 0]);
        [0, 6, 12, 18].map(|shift| (four >> shift) as u8 & 0x3f)
    })
}

/// The number of values that six bits can have. Real ranks go up to [`RANK_BITS`] + 1.
const RANKS: usize = 64;

/// Ertl's estimate, from the number of registers with each value.
fn estimate(histogram: &[u32; RANKS]) -> u64 {
    /// 1 / (2 ln 2), the limit of the bias correction for many registers.
    const ALPHA: f64 = 0.721_347_520_444_481_7;
    let registers = REGISTERS as f64;
    let highest = RANK_BITS as usize + 1;
    let mut z = registers * tau((registers - f64::from(histogram[highest])) / registers);
    for &occurs in histogram[1..highest].iter().rev() {
        z = (z + f64::from(occurs)) * 0.5;
    }
    z += registers * sigma(f64::from(histogram[0]) / registers);
    (ALPHA * registers * registers / z).round() as u64
}

/// Corrects for the registers that are still zero, a share `x` of all.
fn sigma(mut x: f64) -> f64 {
    if x == 1.0 {
        return f64::INFINITY;
    }
    let (mut weight, mut sum) = (1.0, x);
    loop {
        x *= x;
        let before = sum;
        sum += x * weight;
        weight += weight;
        if sum == before {
            return sum;
        }
    }
}

/// Corrects for the registers that cannot rise further; `x` is the share of the others.
fn tau(mut x: f64) -> f64 {
    if x == 0.0 || x == 1.0 {
        return 0.0;
    }
    let (mut weight, mut sum) = (1.0, 1.0 - x);
    loop {
        x = x.sqrt();
        let before = sum;
        weight *= 0.5;
        sum -= (1.0 - x).powi(2) * weight;
        if sum == before {
            return sum / 3.0;
        }
    }
}

/// MurmurHash64A with Redis' seed, by A. Appleby, <https://github.com/aappleby/smhasher>.
fn murmur(bytes: &[u8]) -> u64 {
    const M: u64 = 0xc6a4_a793_5bd1_e995;
    const R: u32 = 47;
    let mut hash = SEED ^ (bytes.len() as u64).wrapping_mul(M);
    let (words, tail) = bytes.as_chunks::<8>();
    for word in words {
        let mut k = u64::from_le_bytes(*word).wrapping_mul(M);
        k ^= k >> R;
        hash = (hash ^ k.wrapping_mul(M)).wrapping_mul(M);
    }
    if !tail.is_empty() {
        let mut last = [0; 8];
        last[..tail.len()].copy_from_slice(tail);
        hash = (hash ^ u64::from_le_bytes(last)).wrapping_mul(M);
    }
    hash = (hash ^ hash >> R).wrapping_mul(M);
    hash ^ hash >> R
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const LIMIT: usize = 3_000;

    fn values(bytes: &[u8]) -> Vec<u8> {
        let mut registers = Registers::new();
        registers.absorb(bytes).expect("sound");
        registers.values().to_vec()
    }

    fn body(bytes: &[u8]) -> &[u8] {
        &bytes[HEADER_BYTES..]
    }

    #[test]
    fn the_bytes_are_those_of_redis() {
        let mut bytes = empty();
        assert_eq!(bytes, b"HYLL\x01\0\0\0\0\0\0\0\0\0\0\0\x7f\xff");
        for element in ["x", "y", "z"] {
            assert_eq!(add(&mut bytes, element.as_bytes(), LIMIT), Ok(true));
        }
        assert_eq!(bytes, b"HYLL\x01\0\0\0\0\0\0\0\0\0\0\x80a\x84\x80X\xcd\x88E\xa0\x84\x08");
        assert_eq!(describe(&bytes).expect("sound"), "Z:8581 v:1,1 Z:6350 v:3,1 Z:1441 v:2,1 z:9");
        assert_eq!((count(&bytes), cached_count(&bytes)), (Ok(3), None));
        assert_eq!(add(&mut bytes, b"x", LIMIT), Ok(false));
        make_dense(&mut bytes).expect("sound");
        assert_eq!((encoding(&bytes), count(&bytes)), (Some(Encoding::Dense), Ok(3)));
    }

    #[test]
    fn bytes_from_clients_are_checked() {
        for not_one in [&b""[..], b"HYLL", b"HYLL\x02\0\0\0\0\0\0\0\0\0\0\0\0", b"HYLL\0\0\0\0\0\0\0\0\0\0\0\0\0"] {
            assert_eq!(encoding(not_one), None);
        }
        let runs = [&b""[..], b"\x7f", b"\x7f\xfe", b"\x7f\xff\0", b"\x7f\xff\x80", b"\x7f\xfe\x81", b"\x7f\xff\x40"];
        for run in runs {
            let mut bytes = empty()[..HEADER_BYTES].to_vec();
            bytes.extend_from_slice(run);
            assert_eq!(count(&bytes), Err(Corrupt), "{run:?}");
            assert_eq!(Registers::new().absorb(&bytes), Err(Corrupt));
            assert_eq!(make_dense(&mut bytes), Err(Corrupt));
            assert_eq!(raise(&mut bytes, REGISTERS - 1, 40, LIMIT), Err(Corrupt));
        }
    }

    #[test]
    fn the_self_test_passes() {
        assert_eq!(self_test(), Ok(()));
    }

    #[test]
    fn full_registers_are_counted() {
        let mut registers = Registers::new();
        assert_eq!(registers.count(), 0);
        registers.0.fill(RANK_BITS as u8 + 1);
        // The estimate is infinite, and the cast saturates.
        assert_eq!(registers.count(), u64::MAX);
    }

    /// Registers with their new ranks, close to each other so that runs are split and joined.
    fn raises() -> impl Strategy<Value = Vec<(usize, u8)>> {
        let index = prop_oneof![8 => 0..40usize, 2 => 0..REGISTERS, 1 => REGISTERS - 10..REGISTERS];
        proptest::collection::vec((index, prop_oneof![20 => 1..4u8, 3 => 1..33u8, 1 => 33..52u8]), 0..120)
    }

    proptest! {
        #[test]
        fn registers_equal_an_array(raises in raises(), limit in prop_oneof![Just(LIMIT), 18..60usize]) {
            let mut naive = vec![0u8; REGISTERS];
            let (mut sparse, mut dense) = (empty(), empty());
            make_dense(&mut dense).expect("sound");
            for (index, rank) in raises {
                let was_sparse = encoding(&sparse) == Some(Encoding::Sparse);
                let raised = naive[index] < rank;
                naive[index] = naive[index].max(rank);
                prop_assert_eq!(raise(&mut sparse, index, rank, limit), Ok(raised));
                prop_assert_eq!(raise(&mut dense, index, rank, limit), Ok(raised));
                // Converted to dense only when the rule says so, and never back.
                let is_sparse = encoding(&sparse) == Some(Encoding::Sparse);
                let may_be_sparse = was_sparse && sparse.len() <= limit && naive.iter().all(|v| *v <= MAX_VALUE);
                prop_assert!(!is_sparse || may_be_sparse);
            }
            prop_assert_eq!(values(&sparse), &naive[..]);
            prop_assert_eq!(values(&dense), &naive[..]);
            prop_assert_eq!(count(&sparse), count(&dense));
            make_dense(&mut sparse).expect("sound");
            prop_assert_eq!(body(&sparse), body(&dense));
        }

        #[test]
        fn a_union_has_the_maxima(a in raises(), b in raises()) {
            let made = |raises: &[(usize, u8)]| {
                let mut bytes = empty();
                raises.iter().for_each(|&(index, rank)| assert!(raise(&mut bytes, index, rank, LIMIT).is_ok()));
                bytes
            };
            let (a, b) = (made(&a), made(&b));
            let mut union = Registers::new();
            union.absorb(&a).and(union.absorb(&b)).expect("sound");
            let mut poured = b.clone();
            union.pour_into(&mut poured, LIMIT).expect("sound");
            let maxima: Vec<u8> = values(&a).iter().zip(values(&b)).map(|(a, b)| b.max(*a)).collect();
            prop_assert_eq!(union.values(), &maxima[..]);
            prop_assert_eq!(values(&poured), maxima);
            prop_assert_eq!(Ok(union.count()), count(&poured));
        }

        #[test]
        fn bytes_from_clients_never_panic(
            runs: Vec<u8>, dense: bool, index in 0..REGISTERS, rank in 1..52u8, limit in 0..100usize
        ) {
            let mut bytes = empty()[..HEADER_BYTES].to_vec();
            bytes[4] = u8::from(!dense);
            bytes.extend_from_slice(&runs);
            if encoding(&bytes).is_some() {
                let _ = (count(&bytes), describe(&bytes), Registers::new().absorb(&bytes));
                let _ = raise(&mut bytes, index, rank, limit);
                let _ = make_dense(&mut bytes);
            }
        }
    }
}
