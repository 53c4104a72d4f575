//! Requests that are encoded once and then numbered in place, since a client that encodes each one anew is slower than
//! the servers; and the random numbers in them.

#![allow(dead_code, reason = "each bench takes what it needs")]

/// Placeholder for a number: the same number everywhere within a request, but different in each request.
pub(crate) const NUMBER: &str = "############";

/// See the module's header.
pub(crate) struct Requests {
    bytes: Vec<u8>,
    /// The positions of the numbers of each request.
    places: Vec<Vec<usize>>,
}

impl Requests {
    /// `count` copies of a request, one after the other.
    pub(crate) fn new(request: &[u8], count: usize) -> Requests {
        let bytes = request.repeat(count);
        let finder = memchr::memmem::Finder::new(NUMBER);
        let places =
            (0..count).map(|number| finder.find_iter(request).map(|place| number * request.len() + place).collect());
        Requests { places: places.collect(), bytes }
    }

    /// The requests numbered from `first` on.
    pub(crate) fn numbered(&mut self, first: u64) -> &[u8] {
        for (number, places) in (first..).zip(&self.places) {
            for &place in places {
                let mut rest = number;
                for digit in self.bytes[place..place + NUMBER.len()].iter_mut().rev() {
                    *digit = b'0' + (rest % 10) as u8;
                    rest /= 10;
                }
            }
        }
        &self.bytes
    }
}

/// Random numbers (xorshift) that depend on the seed alone, so that all servers get the same requests.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Random {
        Random((seed + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15))
    }

    /// The next number, below `n`.
    pub(crate) fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % n
    }
}

/// A command as clients send it.
pub(crate) fn encode(words: &[&str]) -> Vec<u8> {
    let each = words.iter().map(|word| format!("${}\r\n{word}\r\n", word.len())).collect::<String>();
    format!("*{}\r\n{each}", words.len()).into_bytes()
}
