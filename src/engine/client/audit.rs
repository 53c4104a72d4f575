//! The audit: a line in the log for each refused sign-in and each change that somebody may have to account for, with
//! the client's address, its user, and the call without passwords.
//!
//! Which calls are changes of this kind is a fact of their [entries](crate::spec::Command::audited), and
//! [`dispatch::call`](crate::engine::run::dispatch::call), the only way to run a command, reports them here. So calls
//! of transactions and scripts have a line, too, also if the script is rolled back later. Failed calls have none.
//!
//! Each kind is logged at a place of its own, since the log limits the lines of each place: a client that is refused
//! thousands of times a second neither fills the disk nor hides what others do.

use std::fmt::{self, Write as _};

use crate::acl::users::{Acl, UserId};
use crate::base::os::logging::AUDIT;
use crate::engine::limits::AUDIT_NAME_MAX_BYTES;
use crate::engine::state::{CommandTable, Entry, Flow};
use crate::resp::request::Argv;
use crate::session::Session;
use crate::spec::Audited;
use crate::spec::error::excerpt;
use crate::spec::secrets::REDACTED;

/// Returns the name of a user as the audit shows it.
#[cold]
pub(in crate::engine) fn name_of(acl: &Acl, user: UserId) -> String {
    excerpt(acl.name(user), AUDIT_NAME_MAX_BYTES)
}

/// A call to report.
pub(in crate::engine) struct Call<'a> {
    pub(in crate::engine) table: &'a CommandTable,
    pub(in crate::engine) session: &'a Session,
    /// The user who made the call.
    pub(in crate::engine) user: String,
    pub(in crate::engine) entry: &'a Entry,
    pub(in crate::engine) argv: Argv<'a>,
}

impl Audited {
    /// Whether a call has just made its change, or begun it. Most do so before they wait.
    pub(in crate::engine) fn is_made(self, flow: &Flow, is_retry: bool) -> bool {
        match self {
            Audited::Settings => matches!(flow, Flow::Replied),
            Audited::Users | Audited::Deletion | Audited::Lock | Audited::End | Audited::Group | Audited::Handover => {
                !is_retry
            }
        }
    }
}

impl Call<'_> {
    /// Logs the call.
    #[cold]
    pub(in crate::engine) fn log(&self, audited: Audited) {
        macro_rules! log {
            ($message:literal) => {
                tracing::info!(
                    target: AUDIT,
                    client = self.session.key.id,
                    address = self.session.address,
                    user = self.user,
                    db = self.session.db,
                    call = %self,
                    $message
                )
            };
        }
        match audited {
            Audited::Users => log!("users changed"),
            Audited::Settings => log!("settings changed"),
            Audited::Deletion => log!("everything deleted"),
            Audited::Lock => log!("lock taken away"),
            Audited::End => log!("shutdown requested"),
            Audited::Group => log!("nodes of the group changed"),
            Audited::Handover => log!("the data changes hands"),
        }
    }
}

/// The words of the call, without secrets.
impl fmt::Display for Call<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let is_rule = self.entry.command.audited == Some(Audited::Users);
        let is_secret = if is_rule { Vec::new() } else { self.table.secrets_of(self.entry.command, self.argv) };
        for (at, word) in self.argv.iter().enumerate() {
            if at > 0 {
                f.write_char(' ')?;
            }
            match word.first() {
                // A rule about a password, or about its hash.
                Some(sign @ (b'>' | b'<' | b'#' | b'!')) if is_rule => {
                    f.write_char(char::from(*sign))?;
                    show(REDACTED, f)?;
                }
                _ if is_secret.get(at) == Some(&true) => show(REDACTED, f)?,
                _ => show(word, f)?,
            }
        }
        Ok(())
    }
}

/// Writes a word, in quotes if it could be taken for several words.
fn show(word: &[u8], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let is_plain = |byte: &u8| !byte.is_ascii_whitespace() && !byte.is_ascii_control() && *byte != b'"';
    let is_quoted = word.is_empty() || !word.iter().all(is_plain);
    if is_quoted {
        f.write_char('"')?;
    }
    // Piece by piece, since a word may be long and the log takes only the beginning.
    for chunk in word.utf8_chunks() {
        match is_quoted {
            true => write!(f, "{}", chunk.valid().escape_debug())?,
            false => f.write_str(chunk.valid())?,
        }
        if !chunk.invalid().is_empty() {
            f.write_char(char::REPLACEMENT_CHARACTER)?;
        }
    }
    if is_quoted { f.write_char('"') } else { Ok(()) }
}

/// Why a client was not signed in.
#[derive(Clone, Copy, Debug)]
pub(in crate::engine) enum NoSignIn {
    /// There is no such user.
    NoUser,
    /// The user is switched off.
    IsOff,
    /// The password is wrong.
    WrongPassword,
    /// No name in the certificate is one of a user.
    Certificate,
}

impl NoSignIn {
    fn reason(self) -> &'static str {
        match self {
            NoSignIn::NoUser => "there is no such user",
            NoSignIn::IsOff => "the user is off",
            NoSignIn::WrongPassword => "wrong password",
            NoSignIn::Certificate => "the certificate names no user that is on",
        }
    }
}

/// Logs that a client was not signed in as `user`.
#[cold]
pub(in crate::engine) fn not_signed_in(session: &Session, user: &[u8], why: NoSignIn) {
    tracing::info!(
        target: AUDIT,
        client = session.key.id,
        address = session.address,
        user = excerpt(user, AUDIT_NAME_MAX_BYTES),
        reason = why.reason(),
        "sign-in refused"
    );
}

/// Logs that protected mode did not let a client in.
#[cold]
pub(crate) fn not_let_in(address: &str) {
    tracing::info!(
        target: AUDIT,
        address,
        reason = "protected mode, and no password is set",
        "remote client refused"
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_that_looks_like_several_is_in_quotes() {
        struct Word<'a>(&'a [u8]);
        impl fmt::Display for Word<'_> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                show(self.0, f)
            }
        }
        for (word, shown) in [
            (&b"word"[..], "word"),
            (b"", "\"\""),
            (b"3600 1", "\"3600 1\""),
            (b"a\"b", "\"a\\\"b\""),
            (b"a\r\nb", "\"a\\r\\nb\""),
            (b"\xffk\xc3\xa4", "\u{fffd}k\u{e4}"),
        ] {
            assert_eq!(Word(word).to_string(), shown);
        }
    }
}
