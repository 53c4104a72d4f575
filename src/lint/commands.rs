//! Commands that a script calls: [`Rule::BadCommand`], and the arguments passed as keys.

use std::borrow::Cow;

use super::value::Value;
use super::warning::Rule;
use crate::resp::request::Argv;
use crate::spec::table::{CommandTable, Entry};
use crate::spec::{AnswersAll, Flags};

/// Takes the place of an argument with an unknown value. It reads neither as an option nor as a number.
pub(super) const UNKNOWN: &[u8] = b"\0";

/// Returns the command that is called, if its name is known, and the fault of the call. `is_open`: there may be more
/// arguments.
pub(super) fn find<'t, R>(
    table: &'t CommandTable<R>,
    argv: Argv<'_>,
    is_open: bool,
) -> (Option<&'t Entry<R>>, Option<String>) {
    let container = argv.get(0).and_then(|name| table.find(name));
    let is_known = argv.get(1).is_some_and(|sub| sub != UNKNOWN);
    if container.is_some_and(|container| container.command.is_container()) && !is_known {
        return (None, None);
    }
    let Some(entry) = table.named_by(argv) else {
        let name = argv.iter().take(1 + usize::from(container.is_some())).map(lossy).collect::<Vec<_>>().join(" ");
        return (None, Some(format!("there is no command {name}")));
    };
    let name = shown(entry);
    let fault = if entry.command.flags.contains(Flags::NOSCRIPT) {
        Some(format!("{name} can't be called from a script"))
    } else if !is_open && !entry.command.accepts(argv.len()) {
        Some(format!("{name} does not accept this number of arguments"))
    } else {
        None
    };
    (Some(entry), fault)
}

/// Returns the fault of an argument that `entry` takes as a key.
pub(super) fn key_fault<R>(entry: &Entry<R>, arg: &Value<'_>) -> Option<(Rule, String)> {
    let name = shown(entry);
    match arg {
        Value::Literal(key) => {
            let message = format!("the key '{}' of {name} is not declared: pass it in KEYS", lossy(key));
            Some((Rule::UndeclaredKey, message))
        }
        Value::Computed => {
            let message = format!("a key of {name} is computed, so it can't be known in advance: pass it in KEYS");
            Some((Rule::ComputedKey, message))
        }
        Value::Reply { .. } => {
            let message = format!("a key of {name} was read from the data, so it can't be known in advance");
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

/// Bytes as readable text.
pub(super) fn lossy(bytes: &[u8]) -> Cow<'_, str> {
    String::from_utf8_lossy(bytes)
}

/// A command's name in capitals, with blanks.
fn shown<R>(entry: &Entry<R>) -> String {
    entry.full_name.to_ascii_uppercase().replace('|', " ")
}

/// Whether the reply of a call grows with the stored value: no option bounds it.
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
