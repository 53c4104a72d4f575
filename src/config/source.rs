//! Where a configuration was read: what the start reports of it, and what CONFIG REWRITE must know.

use std::collections::BTreeSet;
use std::path::PathBuf;

/// Where a configuration comes from.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Source {
    /// The file that was named on the command line, as an absolute path.
    pub file: Option<PathBuf>,
    /// Parameters that stand in files which that one includes.
    pub included: BTreeSet<&'static str>,
    /// Parameters that were given although they change nothing, in the order in which they came.
    pub inert: Vec<&'static str>,
    /// Names of commands, and the names that they are to have instead; empty for none.
    pub renamed: Vec<(Vec<u8>, Vec<u8>)>,
}
