//! The title of the process: a template, and the values for the names in its braces.

use super::kind::{Args, Origin, Shape, only};
use super::refusal::Refusal;

/// The names that a template may contain.
pub(super) const NAMES: [&str; 7] =
    ["title", "listen-addr", "server-mode", "port", "tls-port", "unixsocket", "config-file"];

/// Whether a template is not empty and contains only known names.
pub(super) fn is_title(template: &str) -> bool {
    let known = |name: &str| NAMES.contains(&name).then(|| "x".to_owned());
    expand(template, known).is_some_and(|title| !title.trim().is_empty())
}

/// Replaces each name in the template by its value; `None` if a name is unknown or has no end.
pub(super) fn expand(template: &str, value: impl Fn(&str) -> Option<String>) -> Option<String> {
    let mut title = String::new();
    let mut rest = template;
    while let Some((plain, behind)) = rest.split_once('{') {
        let (name, behind) = behind.split_once('}')?;
        title.push_str(plain);
        title.push_str(&value(name)?);
        rest = behind;
    }
    title.push_str(rest);
    Some(title.trim_end().to_owned())
}

/// A title of the process, with names in braces for values to insert.
pub(super) struct Title;

impl Title {
    pub(super) fn shape(&self) -> Shape {
        Shape::One("TEXT")
    }

    pub(super) fn set(&self, field: &mut String, args: Args<'_>, _: Origin) -> Result<(), Refusal> {
        let template = String::from_utf8_lossy(only(args)?).into_owned();
        if !is_title(&template) {
            return Err(Refusal::Title);
        }
        *field = template;
        Ok(())
    }

    pub(super) fn get(&self, field: &str, out: &mut Vec<u8>) {
        out.extend_from_slice(field.as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_replaced_and_unknown_ones_refused() {
        let value = |name: &str| (name == "port").then(|| "7000".to_owned());
        assert_eq!(expand("a{port}{port} ", value).as_deref(), Some("a70007000"));
        assert_eq!(expand("{port} {title}", value), None);
        for bad in ["{nosuch}", "{port", "", "  "] {
            assert!(!is_title(bad), "{bad}");
        }
        assert!(is_title("--{title}") && is_title("{server-mode}"));
    }
}
