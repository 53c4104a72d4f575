//! ACL files, with one user per line: `user NAME RULES...`. A file applies as a whole or not at all.

use std::collections::BTreeMap;
use std::path::Path;

use super::rule::{RuleError, is_no_name, merge_selectors};
use super::user::User;
use super::users::{Acl, DEFAULT_NAME};
use crate::resp::request::OwnedArgv;
use crate::spec::table::CommandTable;

/// Reads the users of the file at `path`. Errors use Redis' wording.
pub fn load<R>(path: &Path, table: &CommandTable<R>, all_channels: bool) -> Result<BTreeMap<Vec<u8>, User>, String> {
    let place = path.display().to_string();
    let text = std::fs::read(path).map_err(|error| format!("Error loading ACLs, opening file '{place}': {error}"))?;
    read(&text, &place, table, all_channels).map_err(|faults| {
        format!("{faults}WARNING: ACL errors detected, no change to the previously active ACL rules was performed")
    })
}

/// Formats all users as lines of a file.
pub fn write(acl: &Acl) -> Vec<u8> {
    let mut text = Vec::new();
    for (name, user) in acl.iter() {
        text.extend_from_slice(b"user ");
        text.extend_from_slice(name);
        text.push(b' ');
        text.extend_from_slice(&user.show());
        text.push(b'\n');
    }
    text
}

/// Parses the users of a file, adding an all-powerful `default` if the file has none. Fails with the faults of each
/// line, in which `place` names the file.
pub fn read<R>(
    text: &[u8],
    place: &str,
    table: &CommandTable<R>,
    all_channels: bool,
) -> Result<BTreeMap<Vec<u8>, User>, String> {
    let mut users = BTreeMap::from([(DEFAULT_NAME.to_vec(), User::all_powerful(table))]);
    let mut has_default = false;
    let mut faults = String::new();
    for (at, line) in text.split(|byte| *byte == b'\n').enumerate() {
        let words: Vec<&[u8]> = line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty()).collect();
        if words.is_empty() {
            continue;
        }
        match read_user(&words, table, all_channels) {
            Ok((name, user)) => {
                let is_again = if name == DEFAULT_NAME {
                    std::mem::replace(&mut has_default, true)
                } else {
                    users.contains_key(&name)
                };
                if is_again {
                    let name = String::from_utf8_lossy(&name);
                    faults.push_str(&format!("WARNING: Duplicate user '{name}' found on line {}. ", at + 1));
                }
                users.insert(name, user);
            }
            Err(fault) => fault.describe(&format!("{place}:{}", at + 1), &mut faults),
        }
    }
    if faults.is_empty() { Ok(users) } else { Err(faults) }
}

/// Faults of a user's line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The line does not begin with `user` and a name.
    NoUser,
    /// The name is not valid.
    Name(Vec<u8>),
    /// A rule opens a parenthesis that is never closed.
    Parenthesis(Vec<u8>),
    /// Rules that do not apply, each with the reason.
    Rules(Vec<(Vec<u8>, RuleError)>),
}

impl Fault {
    /// Appends the messages for a line's fault at `place`: all unknown names, but only the first of other faults.
    fn describe(&self, place: &str, faults: &mut String) {
        let lossy = |text: &[u8]| String::from_utf8_lossy(text).into_owned();
        match self {
            Fault::NoUser => {
                faults.push_str(&format!("{place} should start with user keyword followed by the username. "));
            }
            Fault::Name(name) => {
                faults.push_str(&format!("{place}: username '{}' contains invalid characters. ", lossy(name)));
            }
            Fault::Parenthesis(_) => {
                faults.push_str(&format!("{place}: Unmatched parenthesis in selector definition. "));
            }
            Fault::Rules(rules) => {
                let (unknown, others): (Vec<_>, Vec<_>) =
                    rules.iter().partition(|(_, error)| *error == RuleError::UnknownCommand);
                for (rule, error) in unknown {
                    faults.push_str(&format!("{place}: Error in applying operation '{}': {error}. ", lossy(rule)));
                }
                others.first().into_iter().for_each(|(_, error)| faults.push_str(&format!("{place}: {error}. ")));
            }
        }
    }
}

/// Builds a user from the words of its line.
pub fn read_user<R>(words: &[&[u8]], table: &CommandTable<R>, all_channels: bool) -> Result<(Vec<u8>, User), Fault> {
    let [b"user", name, rules @ ..] = words else { return Err(Fault::NoUser) };
    if is_no_name(name) {
        return Err(Fault::Name(name.to_vec()));
    }
    let mut argv = OwnedArgv::default();
    rules.iter().for_each(|rule| argv.push(rule));
    let rules = merge_selectors(argv.as_argv()).map_err(Fault::Parenthesis)?;
    let mut user = User::new(all_channels);
    let mut wrong = Vec::new();
    for rule in rules {
        if let Err(error) = user.apply(&rule, table, all_channels) {
            wrong.push((rule, error));
        }
    }
    if wrong.is_empty() { Ok((name.to_vec(), user)) } else { Err(Fault::Rules(wrong)) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    use crate::spec::{Command, Flags};

    const TOY: &[Command<()>] = &[Command { name: "get", ..Command::new(()) }];

    const COMMANDS: &[Command<()>] = &[
        Command { name: "get", flags: Flags::READONLY, ..Command::new(()) },
        Command { name: "select", ..Command::new(()) },
    ];

    #[test]
    fn saved_users_are_read_back() {
        let table = CommandTable::new(&[TOY]);
        let text = b"user a on >x ~a* +get (%R~b* +get)\n\nuser default off\n";
        let users = read(text, "f", &table, false).expect("they are right");
        let mut acl = Acl::new(&table);
        acl.replace(users.clone());
        assert_eq!(read(&write(&acl), "f", &table, false), Ok(users));
        assert!(!acl.is_open());
    }

    proptest! {
        /// Whatever rules were applied, a file with the resulting rules can be read back and means the same.
        #[test]
        fn any_accepted_rules_can_be_saved(
            rules in prop::collection::vec(prop::sample::select(vec![
                "on", "off", "nopass", ">x", "<x", "allkeys", "resetkeys", "~*", "~a*", "~", "~a)", "~(", "%R~*",
                "%W~*", "%RW~*", "%R~", "&*", "&a", "&", "resetchannels", "allchannels", "+@all", "-@all", "+get",
                "-get", "+@read", "-@read", "+select|0", "+select|a b", "+select|(", "+select|)", "+select|\t", "(~a)",
                "(~a) +get)", "(%R~* %W~* +get)", "db=0", "db=0,3", "alldbs", "resetdbs", "(db=1 ~a)", "(resetdbs)",
                "(+select|a) ~b)", "( )", "()", "clearselectors", "reset", "skip-sanitize-payload",
            ]), 0..12),
            all_channels: bool,
        ) {
            let table = CommandTable::new(&[COMMANDS]);
            let mut user = User::new(all_channels);
            for rule in rules {
                // Rules that do not apply change nothing.
                _ = user.apply(rule.as_bytes(), &table, all_channels);
            }
            let mut acl = Acl::new(&table);
            acl.put(b"u", user);
            let text = write(&acl);
            let mut again = Acl::new(&table);
            let users = read(&text, "f", &table, all_channels);
            prop_assert!(users.is_ok(), "{}: {users:?}", String::from_utf8_lossy(&text));
            again.replace(users.unwrap_or_default());
            let (again, text) = (write(&again), String::from_utf8_lossy(&text));
            prop_assert_eq!(String::from_utf8_lossy(&again), text);
        }
    }

    #[test]
    fn every_wrong_line_is_reported() {
        let table = CommandTable::new(&[TOY]);
        let text = b"user a on\nbogus\nuser a off\nuser b +nonesuch\nuser c (~a";
        assert_eq!(
            read(text, "f", &table, false),
            Err("f:2 should start with user keyword followed by the username. \
                 WARNING: Duplicate user 'a' found on line 3. \
                 f:4: Error in applying operation '+nonesuch': Unknown command or category name in ACL. \
                 f:5: Unmatched parenthesis in selector definition. "
                .to_owned())
        );
    }
}
