//! A client as its user and its administrators see it: its rights, and its line in CLIENT LIST.

pub(crate) mod access;
pub(crate) mod audit;
pub(crate) mod line;
