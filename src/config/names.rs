//! Parameters by name, those that only are kept included.

use super::inert::INERT;
use super::table::{PARAMETERS, Parameter};

/// All parameters: those that do something and those that are only kept.
pub fn all() -> impl Iterator<Item = &'static Parameter> {
    PARAMETERS.iter().chain(INERT)
}

/// All names and aliases.
pub(super) fn all_names() -> impl Iterator<Item = (&'static str, &'static Parameter)> {
    all()
        .flat_map(|parameter| std::iter::once(parameter.name).chain(parameter.alias).map(move |name| (name, parameter)))
}

impl Parameter {
    /// The parameter of that name or alias, in any case.
    pub fn named(name: &[u8]) -> Option<&'static Parameter> {
        all_names().find(|(known, _)| known.as_bytes().eq_ignore_ascii_case(name)).map(|(_, parameter)| parameter)
    }
}

/// For messages.
pub(super) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
