//! The bounds of values that are not configuration parameters, each with its reason.

/// Entries of a compact hash, set, sorted set or list, whatever the parameters allow; fields and values of a hash count
/// separately. Most commands walk over all entries. Integers that are kept in order are not counted.
pub const COMPACT_MAX_ENTRIES: usize = u16::MAX as usize;

/// Refills of a stock whose ids are remembered, so that each counts once: the most recent ones.
pub const STOCK_REFILLS_MAX: usize = 4_096;

/// Orders sold from a stock that are remembered, so that committing one again returns the same reply: the most recent
/// ones.
pub const STOCK_SALES_MAX: usize = 1 << 16;

/// Subjects whose purchases a stock remembers: the most recent buyers. With more of them, `PER` bounds only later
/// purchases of the others.
pub const STOCK_BUYERS_MAX: usize = 1 << 20;
