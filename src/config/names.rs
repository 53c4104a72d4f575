//! Parameters by name, including those without effect.

use super::inert::INERT;
use super::table::{PARAMETERS, Parameter};

/// Returns all parameters, those with and those without effect.
pub fn all() -> impl Iterator<Item = &'static Parameter> {
    PARAMETERS.iter().chain(INERT)
}

/// Returns all names and aliases.
pub(super) fn all_names() -> impl Iterator<Item = (&'static str, &'static Parameter)> {
    all()
        .flat_map(|parameter| std::iter::once(parameter.name).chain(parameter.alias).map(move |name| (name, parameter)))
}

impl Parameter {
    /// Returns the parameter with this name or alias, in any case.
    pub fn named(name: &[u8]) -> Option<&'static Parameter> {
        all_names().find(|(known, _)| known.as_bytes().eq_ignore_ascii_case(name)).map(|(_, parameter)| parameter)
    }
}

/// Converts bytes to text for messages.
pub(super) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
