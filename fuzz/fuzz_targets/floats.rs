//! Numbers in text, both ways: a number that was read is written so that it reads back the same, as a double and as a
//! long double.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tidegate::base::long_double::LongDouble;
use tidegate::base::num;

fuzz_target!(|data: &[u8]| {
    let read = num::strtod(data);
    assert!(read.used <= data.len());
    if let Some(integer) = num::parse_i64(data) {
        let mut text = Vec::new();
        num::format_i64(&mut text, integer);
        assert_eq!(text, data, "an integer has one form");
    }
    if let Some(value) = num::parse_f64(data) {
        reads_back(value);
    }
    if let Some(bits) = data.first_chunk() {
        reads_back(f64::from_bits(u64::from_le_bytes(*bits)));
    }
    if let Some(value) = LongDouble::parse(data) {
        let mut text = Vec::new();
        value.write_human(&mut text);
        let again = LongDouble::parse(&text).expect("what is written can be read");
        let mut twice = Vec::new();
        again.write_human(&mut twice);
        assert_eq!(text, twice, "17 decimals stay");
        assert_eq!(value.checked_add(LongDouble::ZERO).is_some(), value.is_finite());
        assert!(
            value <= value && value.is_finite() == (value <= LongDouble::MAX && value >= LongDouble::MAX.negated())
        );
    }
});

fn reads_back(value: f64) {
    for precision in [1, 14, 17, 30] {
        num::format_g(&mut Vec::new(), value, precision);
    }
    let (mut shortest, mut full) = (Vec::new(), Vec::new());
    num::format_f64(&mut shortest, value);
    num::format_g17(&mut full, value);
    if !value.is_nan() {
        assert_eq!(num::parse_f64(&shortest), Some(value));
        assert_eq!(num::parse_f64(&full), Some(value));
        assert!(shortest.len() <= 32);
    }
}
