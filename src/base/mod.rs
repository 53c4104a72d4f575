//! The ground floor: numbers, bounds and other small things that know nothing of the server.

pub mod ahead;
pub mod calendar;
pub mod certificate;
pub mod clock;
pub mod crc;
pub mod dense_table;
pub(crate) mod equal;
pub mod excerpt;
pub mod fit;
pub mod glob;
pub mod hasher;
pub(crate) mod histogram;
pub mod key_prefixes;
pub mod limits;
pub mod long_double;
pub mod lsn;
pub mod node_address;
pub mod num;
pub mod os;
pub(crate) mod pem;
pub(crate) mod prefetch;
pub mod rng;
pub(crate) mod sample;
pub(crate) mod split_table;
pub(crate) mod ticks;
pub(crate) mod version;
