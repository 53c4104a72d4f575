//! The ground floor: numbers, bounds and other small things that know nothing of the server.

pub mod allocated;
pub mod clock;
pub mod crc;
pub mod dense_table;
pub mod fit;
pub mod glob;
pub mod hasher;
pub mod histogram;
pub mod limits;
pub mod logging;
pub mod long_double;
pub mod num;
pub mod prefetch;
pub mod rng;
pub mod sample;
pub mod split_table;
pub mod version;
