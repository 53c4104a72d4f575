//! Ticks of the processor's clock, which takes a few ns to read.

use quanta::Clock;

/// Returns the number of ticks of the clock in `micros` microseconds.
pub(crate) fn ticks_of_micros(clock: &Clock, micros: u64) -> u64 {
    const SAMPLE_TICKS: u64 = 1 << 32;
    let sample_ns = clock.delta_as_nanos(0, SAMPLE_TICKS).max(1);
    let ticks = u128::from(micros) * 1_000 * u128::from(SAMPLE_TICKS) / u128::from(sample_ns);
    u64::try_from(ticks).unwrap_or(u64::MAX)
}
