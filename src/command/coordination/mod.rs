//! Commands made for coordination, one file per family.

mod once;

use crate::engine::Command;

pub(super) const ONCE: &[Command] = once::COMMANDS;
