//! The ground floor: numbers, bounds and other small things that know nothing of the server.

pub mod hasher;
pub mod limits;
pub mod num;
pub mod sample;
pub mod split_table;
