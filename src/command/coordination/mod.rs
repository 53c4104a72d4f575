//! Commands made for coordination. All answer in one shape, that of [`outcome`].

pub(super) mod id;
pub(super) mod limit;
mod outcome;
