//! Random choices: numbers that a seed determines for ever, and values at and beyond the edges of their types.

/// Bytes of the longest argument.
const LONG_BYTES: usize = 1 << 20;

/// A generator of its own (splitmix64): a seed gives the same choices with every version of every crate.
#[derive(Clone)]
pub(crate) struct Dice(u64);

impl Dice {
    /// The choices of one client, which do not depend on the draws of others.
    pub(crate) fn new(seed: u64, client: u64) -> Dice {
        let mut dice = Dice(seed ^ client.wrapping_mul(0xD6E8_FEB8_6659_FD93));
        dice.next();
        dice
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// Returns a number below `n`.
    pub(crate) fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }

    /// Returns one of these.
    pub(crate) fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.below(from.len())]
    }

    /// Returns true once in `n` times.
    pub(crate) fn once_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }

    /// An integer: mostly a small one, else one at the edge of a type.
    pub(crate) fn integer(&mut self) -> String {
        match self.below(3) {
            0 => (*self.pick(&EDGES)).to_owned(),
            _ => (self.below(14) as i64 - 4).to_string(),
        }
    }

    /// A double: mostly a usual one, else one that breaks comparisons, sums or conversions.
    pub(crate) fn double(&mut self) -> String {
        let usual = ["0", "1", "2", "-1", "1.5", "3e5", "-0.25", "0.1", "10"];
        let edges = ["inf", "-inf", "nan", "-0", "1e308", "-1e308", "5e-324", "1e400", "0x1p-3", "9007199254740993"];
        (*if self.once_in(3) { self.pick(&edges) } else { self.pick(&usual) }).to_owned()
    }

    /// Any bytes: mostly few, sometimes none, seldom a megabyte.
    pub(crate) fn bytes(&mut self) -> Vec<u8> {
        match self.below(300) {
            0 => vec![b'x'; LONG_BYTES],
            1..20 => (0..self.below(70)).map(|_| self.next() as u8).collect(),
            20..40 => Vec::new(),
            40..60 => b"x".repeat(*self.pick(&[5, 14, 15, 22, 23, 44, 45, 63, 64, 65, 100, 4096, 20_000])),
            60..90 => self.integer().into_bytes(),
            90..100 => self.double().into_bytes(),
            _ => self
                .pick(&["a", "b", "c", "d", "e", "1", "2", "10", "-7", "1.5", "hello", "\x7f\0z"])
                .as_bytes()
                .to_vec(),
        }
    }
}

/// Integers at the edges of types and of the server's counters, and texts that are almost integers.
pub(crate) const EDGES: [&str; 24] = [
    "9223372036854775807",
    "-9223372036854775808",
    "9223372036854775808",
    "-9223372036854775809",
    "18446744073709551615",
    "18446744073709551616",
    "4294967295",
    "4294967296",
    "2147483647",
    "-2147483648",
    "2147483648",
    "4611686018427387904",
    "1000000000000",
    "1048576",
    "65536",
    "100",
    "-100",
    "-0",
    "+1",
    "01",
    "",
    "nan",
    "1e308",
    "0x10",
];
