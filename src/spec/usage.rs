//! Errors that teach: for a wrong call of one of this server's own commands, what is missing and what the command
//! takes. Nobody knows these commands from elsewhere, and no client compares their errors to the last word. Each text
//! begins as Redis' own does. Everything is derived from the syntax that the table declares.

use super::error::Error;
use super::syntax::{self, Arg, Kind};
use super::{Command, Group};

impl<R> Command<R> {
    /// Whether the command is one of those that only this server has, for coordination.
    pub(crate) fn is_own(&self) -> bool {
        self.group == Group::Coordination
    }
}

/// Returns the form of a call: `LOCK.RELEASE key owner`.
pub(crate) fn form(full_name: &str, syntax: &str) -> String {
    let name = full_name.replace('|', " ").to_ascii_uppercase();
    format!("{name} {}", syntax::for_people(syntax)).trim_end().to_owned()
}

/// Returns the error for a call with `given` arguments after the names, if that number is wrong.
#[cold]
pub(crate) fn wrong_count(full_name: &str, syntax: &str, given: usize) -> Error {
    let missing = match syntax::parse(syntax).ok().and_then(|args| first_missing(&args, given)) {
        Some(name) => format!("{name} is missing in"),
        None => "there are too many for".to_owned(),
    };
    let form = form(full_name, syntax);
    Error::OwnArity(format!("ERR wrong number of arguments for '{full_name}' command: {missing} {form}").into())
}

/// Returns the error for a call whose arguments do not have the form of the command.
#[cold]
pub(crate) fn wrong_syntax(full_name: &str, syntax: &str) -> Error {
    Error::owned(format!("{}: the call should be {}", Error::Syntax, form(full_name, syntax)))
}

/// Returns the name of the first required argument for which `given` arguments do not suffice.
fn first_missing(args: &[Arg], given: usize) -> Option<String> {
    let mut needed = 0;
    let missing = args.iter().find(|arg| {
        needed += least(arg);
        needed > given
    });
    missing.map(|arg| arg.name.clone())
}

/// Returns how many arguments an item takes at least.
fn least(arg: &Arg) -> usize {
    let inside = match &arg.kind {
        _ if arg.optional => return 0,
        Kind::PureToken => return 1,
        Kind::OneOf(args) => args.iter().map(least).min().unwrap_or(0),
        Kind::Block(args) => args.iter().map(least).sum(),
        _ => 1,
    };
    inside + usize::from(arg.token.is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_missing_argument_is_named() {
        let syntax = "key [NX | XX] <PX milliseconds:integer | NONE>:lease (a b):pair... [x]";
        for (given, error) in [
            (0, "key is missing in"),
            (1, "lease is missing in"),
            (2, "pair is missing in"),
            (3, "pair is missing in"),
            (4, "there are too many for"),
        ] {
            let form = "A B key [NX | XX] <PX milliseconds | NONE> (a b)... [x]";
            let text = format!("ERR wrong number of arguments for 'a|b' command: {error} {form}");
            assert_eq!(wrong_count("a|b", syntax, given).to_string(), text);
        }
    }
}
