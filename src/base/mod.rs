//! The ground floor: numbers, bounds and other small things that know nothing of the server.

pub mod ahead;
pub(crate) mod allocated;
pub(crate) mod allocator;
pub mod calendar;
pub mod clock;
pub mod crc;
pub mod dense_table;
pub mod descriptors;
pub mod excerpt;
pub mod fit;
pub mod glob;
pub mod hasher;
pub(crate) mod histogram;
pub mod huge_pages;
pub mod limits;
pub mod logging;
pub mod long_double;
pub mod lsn;
pub mod num;
pub(crate) mod prefetch;
pub(crate) mod priority;
pub mod rng;
pub(crate) mod sample;
pub(crate) mod split_table;
pub(crate) mod ticks;
pub(crate) mod version;
