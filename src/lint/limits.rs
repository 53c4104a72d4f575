//! The bounds of the checks of scripts that are not configuration parameters, each with its reason.

/// Nesting of blocks and expressions in a parsed script: as in Lua 5.1, whose parser refuses deeper ones.
pub const SYNTAX_MAX_DEPTH: usize = 200;
