//! The bounds of the meters that are not configuration parameters, each with its reason.

/// Keys that HOTKEYS keeps sums of, for each key that it shows. Tracking more keys than are shown tells keys with
/// nearly equal sums apart.
pub const HOTKEYS_TRACKED_PER_SHOWN: usize = 10;

/// Length in bytes of the longest key that HOTKEYS keeps a sum of: 1,280 such keys take 5 MiB.
pub const HOTKEYS_KEY_MAX_BYTES: usize = 4 * 1024;

/// Codes of error replies that are counted separately; scripts can make up any number of codes.
pub const ERROR_CODES_MAX: usize = 128;

/// Bytes of an error code that is counted separately.
pub const ERROR_CODE_MAX_BYTES: usize = 30;

/// Seconds for which LATENCY keeps a sample of each event.
pub const LATENCY_SAMPLES_MAX: usize = 160;
