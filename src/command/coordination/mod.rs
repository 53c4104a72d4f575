//! Commands made for coordination, which programs otherwise build from scripts. One file or folder per family.
//! `docs/coordination` has a page for each family, and one for their common rules.

pub(super) mod dlq;
mod error;
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
pub(super) mod totals;
pub(super) mod who;
pub(super) mod why;
pub(super) mod xdelay;
