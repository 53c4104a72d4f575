//! The bounds of configuration that are not configuration parameters, each with its reason.

/// Key prefixes by which metrics tell grants apart. Each grant is compared with every prefix.
pub const METRICS_PREFIXES_MAX: usize = 32;

/// Length in bytes of one of the key prefixes by which metrics tell grants apart.
pub const METRICS_PREFIX_MAX_BYTES: usize = 128;

/// Descriptors of an I/O thread: one to wait with, and one to wake the thread.
pub const IO_THREAD_DESCRIPTORS: u32 = 2;

/// Depth of configuration files that include one another. Deeper nesting must be a circle.
pub const INCLUDE_MAX_DEPTH: usize = 16;
