//! Commands that a script calls: [`Rule::BadCommand`], and what is passed where they expect a key.

use std::borrow::Cow;

use super::value::Value;
use super::warning::Rule;
use crate::resp::request::Argv;
use crate::spec::table::{CommandTable, Entry};
use crate::spec::{AnswersAll, Flags};

/// Stands in a command for what is not known: no option and no number.
pub(super) const UNKNOWN: &[u8] = b"\0";

/// The command that a call means, if that can be told, and what is wrong with the call. `is_open`: there may be more arguments.
pub(super) fn find<'t, R>(
    table: &'t CommandTable<R>,
    argv: Argv<'_>,
    is_open: bool,
) -> (Option<&'t Entry<R>>, Option<String>) {
    let container = argv.get(0).and_then(|name| table.find(name));
    let is_known = argv.get(1).is_some_and(|sub| sub != UNKNOWN);
    if container.is_some_and(|container| !container.sub.is_empty()) && !is_known {
        return (None, None);
    }
    let Some(entry) = table.named_by(argv) else {
        let name = argv.iter().take(1 + usize::from(container.is_some())).map(lossy).collect::<Vec<_>>().join(" ");
        return (None, Some(format!("there is no command {name}")));
    };
    let name = shown(entry);
    let fault = if entry.command.flags.has(Flags::NOSCRIPT) {
        Some(format!("{name} can't be called from a script"))
    } else if !is_open && !entry.command.accepts(argv.len()) {
        Some(format!("{name} does not take so many arguments, or so few"))
    } else {
        None
    };
    (Some(entry), fault)
}

/// What is wrong with an argument where a command expects a key.
pub(super) fn key_fault<R>(entry: &Entry<R>, arg: &Value<'_>) -> Option<(Rule, String)> {
    let name = shown(entry);
    match arg {
        Value::Literal(key) => {
            let message = format!("the key '{}' of {name} is not declared: pass it in KEYS", lossy(key));
            Some((Rule::UndeclaredKey, message))
        }
        Value::Computed => {
            let message = format!("a key of {name} is computed, so nobody can know it before: pass it in KEYS");
            Some((Rule::ComputedKey, message))
        }
        Value::Reply { .. } => {
            let message = format!("a key of {name} was read from the data, so nobody can know it before");
            Some((Rule::ComputedKey, message))
        }
        Value::Arg(index) => {
            let index = index.map_or("...".to_owned(), |index| index.to_string());
            Some((Rule::ArgvAsKey, format!("ARGV[{index}] is a key of {name}: pass it in KEYS")))
        }
        Value::Spread(of) => key_fault(entry, of),
        _ => None,
    }
}

/// Bytes as text for people.
pub(super) fn lossy(bytes: &[u8]) -> Cow<'_, str> {
    String::from_utf8_lossy(bytes)
}

/// A command's name as people write it.
fn shown<R>(entry: &Entry<R>) -> String {
    entry.full_name.to_ascii_uppercase().replace('|', " ")
}

/// Whether a call answers as much as is stored: no option of it bounds that.
pub(super) fn reads_all(answers_all: AnswersAll, argv: Argv<'_>) -> bool {
    let has = |word: &str| argv.iter().any(|arg| arg.eq_ignore_ascii_case(word.as_bytes()));
    match answers_all {
        AnswersAll::Never => false,
        AnswersAll::Always => true,
        AnswersAll::Without(option) => !has(option),
        AnswersAll::ToTheLast => {
            !has("limit") && argv.get(3) == Some(b"-1") && argv.get(2).is_some_and(|from| !from.starts_with(b"-"))
        }
    }
}
