//! Where a configuration was read, for the report at the start and for CONFIG REWRITE.

use std::collections::BTreeSet;
use std::path::PathBuf;

/// The origin of a configuration.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Source {
    /// The file named on the command line, as an absolute path.
    pub file: Option<PathBuf>,
    /// Parameters set in files that it includes.
    pub included: BTreeSet<&'static str>,
    /// Parameters that were given although they have no effect, in the order given.
    pub inert: Vec<&'static str>,
    /// Names of commands, each with its new name; an empty one removes the command.
    pub renamed: Vec<(Vec<u8>, Vec<u8>)>,
}
