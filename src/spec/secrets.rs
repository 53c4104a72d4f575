//! Arguments hidden from MONITOR, SLOWLOG and other displays of calls, such as passwords.

use super::{Command, Secret};
use crate::config::Parameter;
use crate::resp::request::Argv;

/// The replacement shown for a secret, as in Redis.
pub(crate) const REDACTED: &[u8] = b"(redacted)";

/// Returns which arguments of a call of `command` are secret, by index; arguments past the end are not.
pub(crate) fn secrets_of<R>(command: &Command<R>, argv: Argv<'_>) -> Vec<bool> {
    if command.secrets.is_empty() {
        return Vec::new();
    }
    let mut is_secret = vec![false; argv.len()];
    for secret in command.secrets {
        let mut hide =
            |from: usize, count: usize| is_secret.iter_mut().skip(from).take(count).for_each(|it| *it = true);
        match *secret {
            Secret::From(first) => hide(first, usize::MAX),
            Secret::After { word, first, count } => {
                let is_word = |at: &usize| argv[*at].eq_ignore_ascii_case(word.as_bytes());
                (first..argv.len()).filter(is_word).for_each(|at| hide(at + 1, count));
            }
            // Resolved by the command table, which knows the other command.
            Secret::Call { .. } => {}
            Secret::Settings { first } => {
                // Wherever a name stands, for one value that is missing shifts all behind it.
                let names_secret = |at: &usize| Parameter::named(&argv[*at]).is_some_and(|named| named.is_secret);
                (first..argv.len()).filter(names_secret).for_each(|at| hide(at + 1, 1));
                // A name that is not known may be one that another server has for a password.
                let is_unknown = |at: &usize| Parameter::named(&argv[*at]).is_none();
                (first..argv.len()).step_by(2).filter(is_unknown).for_each(|at| hide(at + 1, 1));
            }
        }
    }
    is_secret
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resp::request::OwnedArgv;

    #[test]
    fn only_passwords_are_hidden() {
        const AUTH: &[Secret] = &[Secret::From(1)];
        const HELLO: &[Secret] = &[Secret::After { word: "auth", first: 1, count: 2 }];
        const SET: &[Secret] = &[Secret::Settings { first: 2 }];
        for (secrets, line, shown) in [
            (AUTH, "auth user word", "auth (redacted) (redacted)"),
            (AUTH, "auth", "auth"),
            (HELLO, "hello 3 AUTH u p SETNAME n", "hello 3 AUTH (redacted) (redacted) SETNAME n"),
            (HELLO, "hello 3 AUTH", "hello 3 AUTH"),
            (HELLO, "hello AUTH u p", "hello AUTH (redacted) (redacted)"),
            (HELLO, "hello 3 SETNAME auth", "hello 3 SETNAME auth"),
            (SET, "config set maxmemory 1 RequirePass x", "config set maxmemory 1 RequirePass (redacted)"),
            (SET, "config set maxmemory requirepass", "config set maxmemory requirepass"),
            (SET, "config set maxmemory requirepass x", "config set maxmemory requirepass (redacted)"),
            (SET, "config set primaryauth x maxmemory 1", "config set primaryauth (redacted) maxmemory 1"),
            (&[], "get auth", "get auth"),
        ] {
            let mut argv = OwnedArgv::default();
            line.split(' ').for_each(|word| argv.push(word.as_bytes()));
            let is_secret = secrets_of(&Command { secrets, ..Command::new(()) }, argv.as_argv());
            let show = |(at, arg)| if is_secret.get(at) == Some(&true) { REDACTED } else { arg };
            let words: Vec<&[u8]> = argv.as_argv().iter().enumerate().map(show).collect();
            assert_eq!(words.join(&b' '), shown.as_bytes(), "{line}");
        }
    }
}
