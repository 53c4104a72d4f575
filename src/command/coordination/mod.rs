//! Commands made for coordination: what programs otherwise build of scripts. One file or folder per family; `docs/coordination` has a
//! page for each, and says what all of them have in common.

pub(super) mod dlq;
pub(super) mod events;
pub(super) mod gate;
mod grant;
pub(super) mod guard;
pub(super) mod id;
pub(super) mod limit;
pub(super) mod lock;
pub(super) mod once;
mod outcome;
mod past;
pub(super) mod stock;
pub(super) mod ticket;
pub(super) mod token;
pub(super) mod who;
pub(super) mod why;
pub(super) mod xdelay;
