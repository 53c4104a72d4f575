//! A user: whether and with which passwords it may log in, and its permissions.

use sha2::{Digest, Sha256};

use super::rule::RuleError;
use super::selector::Selector;
use crate::base::hex::hex;
use crate::spec::table::CommandTable;

/// The stored form of a password: its SHA-256 hash.
pub type PasswordHash = [u8; 32];

/// See the module's header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User {
    /// Clients may log in as this user.
    pub is_on: bool,
    /// Any password is accepted.
    pub no_password: bool,
    /// The `sanitize-payload` flag, kept only for display: payloads of RESTORE are always validated.
    sanitizes: bool,
    passwords: Vec<PasswordHash>,
    /// The first selector is the one changed by rules outside parentheses.
    selectors: Vec<Selector>,
}

impl User {
    /// Makes a user without permissions, the starting point of ACL SETUSER.
    pub fn new(all_channels: bool) -> User {
        let selectors = vec![Selector::new(all_channels)];
        User { is_on: false, no_password: false, sanitizes: true, passwords: Vec::new(), selectors }
    }

    /// Returns the bytes that the user holds.
    pub(super) fn mem_bytes(&self) -> usize {
        let selectors = self.selectors.iter().map(Selector::mem_bytes).sum::<usize>();
        size_of::<User>() + size_of_val(&self.passwords[..]) + selectors
    }

    /// Returns the user `default` of a server without a configuration: it may do everything and needs no password.
    pub fn all_powerful<R>(table: &CommandTable<R>) -> User {
        let mut user = User::new(true);
        (user.is_on, user.no_password) = (true, true);
        user.selectors[0].allow_everything(table);
        user
    }

    /// Applies one rule. An error changes nothing. `all_channels` is the default that `acl-pubsub-default` sets for new
    /// selectors.
    pub fn apply<R>(&mut self, rule: &[u8], table: &CommandTable<R>, all_channels: bool) -> Result<(), RuleError> {
        let is = |word: &str| rule.eq_ignore_ascii_case(word.as_bytes());
        if is("on") || is("off") {
            self.is_on = is("on");
        } else if is("nopass") || is("resetpass") {
            self.no_password = is("nopass");
            self.passwords.clear();
        } else if is("sanitize-payload") || is("skip-sanitize-payload") {
            self.sanitizes = is("sanitize-payload");
        } else if is("clearselectors") {
            self.selectors.truncate(1);
        } else if is("reset") {
            *self = User::new(all_channels);
        } else {
            match rule.split_first() {
                Some((b'>', password)) => self.add_password(hash(password)),
                Some((b'#', digits)) => self.add_password(parse_hash(digits)?),
                Some((b'<', password)) => self.remove_password(&hash(password))?,
                Some((b'!', digits)) => self.remove_password(&parse_hash(digits)?)?,
                Some((b'(', rest)) => self.add_selector(rest, table, all_channels)?,
                _ => self.selectors[0].apply(rule, table)?,
            }
        }
        Ok(())
    }

    fn add_password(&mut self, hash: PasswordHash) {
        if !self.passwords.contains(&hash) {
            self.passwords.push(hash);
        }
        self.no_password = false;
    }

    fn remove_password(&mut self, hash: &PasswordHash) -> Result<(), RuleError> {
        let at = self.passwords.iter().position(|other| other == hash).ok_or(RuleError::NoSuchPassword)?;
        self.passwords.remove(at);
        Ok(())
    }

    fn add_selector<R>(&mut self, rest: &[u8], table: &CommandTable<R>, all_channels: bool) -> Result<(), RuleError> {
        let inner = rest.strip_suffix(b")").ok_or(RuleError::Syntax)?;
        let mut selector = Selector::new(all_channels);
        for rule in inner.split(u8::is_ascii_whitespace).filter(|rule| !rule.is_empty()) {
            // When rules are read word by word, the selector would end at this word.
            if rule.ends_with(b")") {
                return Err(RuleError::Syntax);
            }
            selector.apply(rule, table)?;
        }
        self.selectors.push(selector);
        Ok(())
    }

    /// Applies all rules or none; fails with the rule that does not apply and the reason.
    pub fn apply_all<'r, R>(
        &mut self,
        rules: impl Iterator<Item = &'r [u8]>,
        table: &CommandTable<R>,
        all_channels: bool,
    ) -> Result<(), (Vec<u8>, RuleError)> {
        let mut changed = self.clone();
        for rule in rules {
            changed.apply(rule, table, all_channels).map_err(|error| (rule.to_vec(), error))?;
        }
        *self = changed;
        Ok(())
    }

    /// Returns whether a password is accepted. The time taken does not depend on how much of the password is right.
    pub fn accepts(&self, password: &[u8]) -> bool {
        self.is_on && (self.no_password || self.has_password(&hash(password)))
    }

    /// Returns whether the password of this hash is still accepted.
    pub fn accepts_hash(&self, password: &PasswordHash) -> bool {
        self.is_on && (self.no_password || self.has_password(password))
    }

    fn has_password(&self, given: &PasswordHash) -> bool {
        self.passwords.iter().fold(false, |found, hash| found | equal_in_constant_time(hash, given))
    }

    /// Returns whether nothing is forbidden to the user.
    pub fn may_do_everything(&self) -> bool {
        self.selectors.iter().any(Selector::allows_everything)
    }

    /// Returns the selectors, any one of which suffices to allow a call.
    pub fn selectors(&self) -> &[Selector] {
        &self.selectors
    }

    /// Returns the flags that ACL GETUSER shows.
    pub fn flags(&self) -> impl Iterator<Item = &'static str> {
        let sanitizes = if self.sanitizes { "sanitize-payload" } else { "skip-sanitize-payload" };
        let words =
            [Some(if self.is_on { "on" } else { "off" }), self.no_password.then_some("nopass"), Some(sanitizes)];
        words.into_iter().flatten()
    }

    /// Returns the password hashes in hexadecimal.
    pub fn passwords(&self) -> impl ExactSizeIterator<Item = String> {
        self.passwords.iter().map(|hash| hex(hash))
    }

    /// Returns all rules, from which the user can be rebuilt, in the form used by ACL LIST and files.
    pub fn show(&self) -> Vec<u8> {
        let mut text = self.flags().collect::<Vec<_>>().join(" ").into_bytes();
        for hash in self.passwords() {
            text.extend_from_slice(b" #");
            text.extend_from_slice(hash.as_bytes());
        }
        text.push(b' ');
        text.extend_from_slice(&self.selectors[0].show());
        for selector in &self.selectors[1..] {
            text.extend_from_slice(b" (");
            text.extend_from_slice(&selector.show());
            text.push(b')');
        }
        text
    }
}

fn hash(password: &[u8]) -> PasswordHash {
    Sha256::digest(password).into()
}

fn parse_hash(digits: &[u8]) -> Result<PasswordHash, RuleError> {
    let is_digit = |byte: &u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    if digits.len() != 64 || !digits.iter().all(is_digit) {
        return Err(RuleError::BadHash);
    }
    let value = |digit: u8| if digit.is_ascii_digit() { digit - b'0' } else { digit - b'a' + 10 };
    let mut hash = [0; 32];
    for (byte, pair) in hash.iter_mut().zip(digits.chunks_exact(2)) {
        *byte = value(pair[0]) << 4 | value(pair[1]);
    }
    Ok(hash)
}

fn equal_in_constant_time(a: &PasswordHash, b: &PasswordHash) -> bool {
    let differences = a.iter().zip(b).fold(0, |differences, (a, b)| differences | (a ^ b));
    std::hint::black_box(differences) == 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::{Command, Flags};

    const SUB: &[Command<()>] = &[
        Command { name: "get", flags: Flags::ADMIN, ..Command::new(()) },
        Command { name: "set", flags: Flags::ADMIN, ..Command::new(()) },
    ];
    const TOY: &[Command<()>] = &[
        Command { name: "get", flags: Flags::READONLY.union(Flags::FAST), ..Command::new(()) },
        Command { name: "set", flags: Flags::WRITE, ..Command::new(()) },
        Command { name: "select", flags: Flags::FAST, ..Command::new(()) },
        Command { name: "config", sub: SUB, ..Command::new(()) },
    ];

    fn user(rules: &str) -> Result<User, (String, RuleError)> {
        let mut user = User::new(false);
        let words = rules.split(';').filter(|rule| !rule.is_empty()).map(str::as_bytes);
        let text = |bytes| String::from_utf8(bytes).expect("it was text");
        user.apply_all(words, &CommandTable::new(&[TOY]), false).map_err(|(rule, error)| (text(rule), error))?;
        Ok(user)
    }

    #[test]
    fn rules_are_shown_in_their_shortest_form() {
        for (rules, shown) in [
            ("", "off sanitize-payload resetchannels -@all"),
            ("on;nopass;~*;&*;+@all", "on nopass sanitize-payload ~* &* +@all"),
            ("+get;+GET;-get", "off sanitize-payload resetchannels -@all -get"),
            ("+config|get;+config", "off sanitize-payload resetchannels -@all +config"),
            ("+config;-config|set", "off sanitize-payload resetchannels -@all +config -config|set"),
            ("+@all;-@admin;+config|get", "off sanitize-payload resetchannels +@all -@admin +config|get"),
            ("+get;-@all;+select|0;+select|1", "off sanitize-payload resetchannels -@all +select|0 +select|1"),
            ("~a*;%R~b*;%W~b*;%w~c;&x;&y", "off sanitize-payload ~a* ~b* %W~c resetchannels &x &y -@all"),
            ("%R", "off sanitize-payload %R~ resetchannels -@all"),
            ("%R~*;%W~*", "off sanitize-payload ~* resetchannels -@all"),
            ("%R~*;%W~*;~a", "off sanitize-payload %RW~* ~a resetchannels -@all"),
            ("~a;resetkeys;allkeys", "off sanitize-payload ~* resetchannels -@all"),
            ("(~a +get);(&*)", "off sanitize-payload resetchannels -@all (~a resetchannels -@all +get) (&* -@all)"),
            ("(~a);clearselectors", "off sanitize-payload resetchannels -@all"),
            ("on;+get;reset", "off sanitize-payload resetchannels -@all"),
        ] {
            let user = user(rules).unwrap_or_else(|error| panic!("{rules}: {error:?}"));
            assert_eq!(String::from_utf8_lossy(&user.show()), shown, "{rules}");
        }
    }

    #[test]
    fn wrong_rules_change_nothing() {
        for (rules, wrong, error) in [
            ("on;+nonesuch", "+nonesuch", RuleError::UnknownCommand),
            ("+@nonesuch", "+@nonesuch", RuleError::UnknownCommand),
            ("-select|0", "-select|0", RuleError::UnknownCommand),
            ("+config|nonesuch", "+config|nonesuch", RuleError::UnknownCommand),
            ("+config|get|a", "+config|get|a", RuleError::FirstArgOfSubcommand),
            ("+select|", "+select|", RuleError::Syntax),
            ("%~a", "%~a", RuleError::Syntax),
            ("%RR~a", "%RR~a", RuleError::Syntax),
            ("%Ra", "%Ra", RuleError::Syntax),
            ("%", "%", RuleError::Syntax),
            ("~a b", "~a b", RuleError::Syntax),
            ("allkeys;~a", "~a", RuleError::AllKeys),
            ("allchannels;&a", "&a", RuleError::AllChannels),
            ("<none", "<none", RuleError::NoSuchPassword),
            ("#12", "#12", RuleError::BadHash),
            ("(~a", "(~a", RuleError::Syntax),
            ("(on)", "(on)", RuleError::Syntax),
            ("+select|a b", "+select|a b", RuleError::Syntax),
            ("(~a) +get)", "(~a) +get)", RuleError::Syntax),
            ("bogus", "bogus", RuleError::Syntax),
        ] {
            assert_eq!(user(rules), Err((wrong.to_owned(), error)), "{rules}");
        }
    }

    #[test]
    fn passwords_are_kept_as_hashes() {
        let mut user = user("on;>a;>b").expect("rules");
        assert!(user.accepts(b"a") && user.accepts(b"b") && !user.accepts(b"c") && !user.accepts(b""));
        let of_a = "ca978112ca1bbdcafac231b39a23dc4da786eff8147c4e72b9807785afee48bb";
        assert_eq!(user.passwords().next().as_deref(), Some(of_a));
        let table = CommandTable::new(&[TOY]);
        user.apply(format!("!{of_a}").as_bytes(), &table, false).expect("it is there");
        assert!(!user.accepts(b"a") && user.accepts(b"b"));
        user.apply(b"off", &table, false).expect("a rule");
        assert!(!user.accepts(b"b"));
    }
}
