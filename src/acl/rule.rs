//! Errors in access control rules, and the grouping of ACL SETUSER arguments into rules.

use crate::resp::request::Argv;

/// Reasons why a rule does not apply. The texts are those of Redis.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RuleError {
    /// No command or category has this name.
    #[error("Unknown command or category name in ACL")]
    UnknownCommand,
    /// The text is not a rule.
    #[error("Syntax error")]
    Syntax,
    /// A key pattern follows a rule that already allows all keys.
    #[error(
        "Adding a pattern after the * pattern (or the 'allkeys' flag) is not valid and does not have any effect. Try \
         'resetkeys' to start with an empty list of patterns"
    )]
    AllKeys,
    /// A channel pattern follows a rule that already allows all channels.
    #[error(
        "Adding a pattern after the * pattern (or the 'allchannels' flag) is not valid and does not have any effect. \
         Try 'resetchannels' to start with an empty list of channels"
    )]
    AllChannels,
    /// The user does not have the password to remove.
    #[error("The password you are trying to remove from the user does not exist")]
    NoSuchPassword,
    /// The password hash is malformed.
    #[error("The password hash must be exactly 64 characters and contain only lowercase hexadecimal characters")]
    BadHash,
    /// A first argument is given for a subcommand.
    #[error("Allowing first-arg of a subcommand is not supported")]
    FirstArgOfSubcommand,
    /// The database number exceeds that of any server. The text is Valkey's.
    #[error("The provided database ID is out of range")]
    DatabaseRange,
}

/// Joins the words of each parenthesized selector into one rule: `(~a*`, `+get)` becomes `(~a* +get)`. Fails with the
/// word whose parenthesis is not closed.
pub fn merge_selectors(words: Argv<'_>) -> Result<Vec<Vec<u8>>, Vec<u8>> {
    let mut rules = Vec::new();
    let mut open: Option<(usize, Vec<u8>)> = None;
    for (at, word) in words.iter().enumerate() {
        let mut rule = match open.take() {
            Some((first, mut rule)) => {
                rule.push(b' ');
                rule.extend_from_slice(word);
                (first, rule)
            }
            None => (at, word.to_vec()),
        };
        let is_open = rule.1.first() == Some(&b'(') && word.last() != Some(&b')');
        if is_open {
            open = Some(std::mem::take(&mut rule));
        } else {
            rules.push(rule.1);
        }
    }
    match open {
        Some((first, _)) => Err(words[first].to_vec()),
        None => Ok(rules),
    }
}

/// Returns whether a text is unsuitable as a user name, because a line of rules with it could not be read back, or
/// because it could control a terminal that displays it.
pub fn is_no_name(name: &[u8]) -> bool {
    name.is_empty() || has_spaces(name) || name.iter().any(u8::is_ascii_control)
}

/// Returns whether a name or pattern contains characters that would split a line of rules.
pub fn has_spaces(text: &[u8]) -> bool {
    text.iter().any(|byte| byte.is_ascii_whitespace() || matches!(byte, 0 | 0x0b))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resp::request::OwnedArgv;

    #[test]
    fn words_in_parentheses_are_one_rule() {
        let merge = |line: &str| {
            let mut argv = OwnedArgv::default();
            line.split(' ').for_each(|word| argv.push(word.as_bytes()));
            let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("it was text");
            merge_selectors(argv.as_argv()).map(|rules| rules.into_iter().map(text).collect::<Vec<_>>()).map_err(text)
        };
        assert_eq!(merge("on (~a* +get) +set"), Ok(vec!["on".to_owned(), "(~a* +get)".to_owned(), "+set".to_owned()]));
        assert_eq!(merge("(+get)"), Ok(vec!["(+get)".to_owned()]));
        assert_eq!(merge("on (~a* (+get"), Err("(~a*".to_owned()));
        assert_eq!(merge("+get)"), Ok(vec!["+get)".to_owned()]));
    }
}
