//! Commands made for coordination: what programs otherwise build of scripts. One file per family; `docs/coordination` has a page for
//! each, and says what all of them have in common.

pub(super) mod gate;
mod grant;
pub(super) mod lock;
