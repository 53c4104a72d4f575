//! The user that a session acts as, and the refusals that follow: [`acl`](crate::acl) decides; this file asks it,
//! records refusals, and applies changes of users to the sessions.

use super::audit::{NoSignIn, not_signed_in};
use super::line::describe_calling;
use crate::acl::check::{Denied, Place, also_reads, also_writes, check, reads_all_keys};
use crate::acl::file;
use crate::acl::file::{Fault, read_user};
use crate::acl::limits::ACL_LOG_MAX_TEXT_BYTES;
use crate::acl::log::{Case, Context, Reason};
use crate::acl::user::PasswordHash;
use crate::acl::users::{Acl, DEFAULT, UserId};
use crate::config::{AclPubsubDefault, Config};
use crate::engine::limits::ACL_LOG_MAX_NAME_BYTES;
use crate::engine::state::{Access, CommandTable, Connections, Entry, Rights};
use crate::keyspace::DbIndex;
use crate::resp::request::{Argv, abridge};
use crate::session::subscriptions::{Space, SubscriptionKind};
use crate::session::wire::Course;
use crate::session::{Restrictions, Session};
use crate::spec::error::Error;
use crate::spec::session_key::SessionKey;

const WRONG_PASSWORD: Error = Error::text("WRONGPASS invalid username-password pair or user is disabled.");

/// Logging in.
impl Access<'_> {
    /// Makes a session act as a user, if the password is right.
    pub fn log_in(&mut self, session: &mut Session, argv: Argv<'_>, name: &[u8], password: &[u8]) -> Result<(), Error> {
        match self.acl.find(name) {
            Some((id, user)) if user.accepts(password) => {
                session.become_user(self.acl, id, true);
                Ok(())
            }
            found => {
                let why = match found {
                    None => NoSignIn::NoUser,
                    Some((_, user)) if !user.is_on => NoSignIn::IsOff,
                    Some(_) => NoSignIn::WrongPassword,
                };
                not_signed_in(session, name, why);
                let object = argv.get(0).unwrap_or_default();
                let context = if session.transaction.is_some() { Context::Multi } else { Context::Toplevel };
                self.note_refusal(session, argv, Reason::Auth, context, object, name);
                Err(WRONG_PASSWORD)
            }
        }
    }

    /// Signs a client in by the names of its certificate: it acts as the first name that is a user, without a password.
    /// If none is a user, the client's user does not change and ACL LOG records the last name.
    pub fn sign_in_by_certificate(&mut self, session: &mut Session, names: &[&[u8]]) {
        let user = |name: &&[u8]| self.acl.find(name).filter(|(_, user)| user.is_on).map(|(id, _)| id);
        match (names.iter().find_map(user), names.last()) {
            (Some(user), _) => session.become_user(self.acl, user, true),
            (None, Some(name)) => {
                not_signed_in(session, name, NoSignIn::Certificate);
                self.note_refusal_of(session, "NULL", Reason::TlsCert, Context::Toplevel, b"", name);
            }
            (None, None) => {}
        }
    }
}

/// The user.
impl Session {
    /// Resets the session to the user it had when it connected.
    pub fn log_out(&mut self, acl: &Acl) {
        self.become_user(acl, DEFAULT, acl.is_open());
    }

    fn become_user(&mut self, acl: &Acl, user: UserId, authenticated: bool) {
        self.user = user;
        self.authenticated = authenticated;
        self.restrict_to_user(acl);
    }

    /// Sets the restrictions that follow from the session's user.
    pub(in crate::engine) fn restrict_to_user(&mut self, acl: &Acl) {
        let is_stranger = !self.authenticated && !acl.is_open();
        let is_limited = !acl.get(self.user).is_some_and(|user| user.may_do_everything());
        self.restrictions.set(Restrictions::UNAUTHENTICATED, is_stranger);
        self.restrictions.set(Restrictions::LIMITED, is_limited);
    }

    /// Whether the session must be closed, because its user is gone or may not read its channels.
    fn must_go(&self, acl: &Acl) -> bool {
        let Some(user) = acl.get(self.user) else { return true };
        if self.subscriptions.is_empty() {
            return false;
        }
        let may_listen = |kind, is_pattern| {
            self.subscriptions
                .of(kind)
                .all(|name| user.selectors().iter().any(|selector| selector.allows_channel(name, is_pattern)))
        };
        !(may_listen(SubscriptionKind::Channel(Space::Global), false)
            && may_listen(SubscriptionKind::Channel(Space::Sharded), false)
            && may_listen(SubscriptionKind::Pattern, true))
    }

    /// Returns the place of the session's next call: inside MULTI, the database of the last queued SELECT counts.
    pub fn place(&self, databases: u16) -> Place {
        let selected = self.transaction.as_ref().and_then(|transaction| transaction.selected);
        Place { db: selected.unwrap_or(self.db), databases }
    }
}

impl Acl {
    /// Makes the users that the configuration names, in its lines or in a file. Fails with a description of the error.
    pub fn configure_users(&mut self, config: &Config, table: &CommandTable) -> Result<(), String> {
        let all_channels = config.acl_pubsub_default == AclPubsubDefault::AllChannels;
        if config.aclfile.as_os_str().is_empty() {
            for (at, line) in config.users.iter().enumerate() {
                if let Some(name) =
                    line.first().filter(|name| config.users[..at].iter().any(|other| other.first() == Some(name)))
                {
                    let name = String::from_utf8_lossy(name);
                    return Err(format!(
                        "Error in user declaration '{name}': Duplicate user found. A user can only be defined once in \
                         config files"
                    ));
                }
                let words: Vec<&[u8]> = std::iter::once(&b"user"[..]).chain(line.iter().map(Vec::as_slice)).collect();
                let (name, user) = read_user(&words, table, all_channels).map_err(declaration_error)?;
                self.put(&name, user);
            }
            return Ok(());
        }
        if !config.users.is_empty() {
            return Err(
                "users are named both by lines of the configuration and by aclfile: one of the two may, but not both."
                    .to_owned(),
            );
        }
        let path = config.dir.join(&config.aclfile);
        self.replace(file::load(&path, table, all_channels)?);
        Ok(())
    }
}

impl Connections<'_> {
    /// Makes a session act as the user that another client acts as, which signed in by the password of this hash.
    /// Returns whether that client is still there, and could still sign in.
    pub fn act_like(&mut self, key: SessionKey, id: u64, password: &PasswordHash) -> bool {
        let other = self.clients.sessions.by_id(id).filter(|other| other.course() != Course::Close);
        let Some((user, authenticated)) = other.map(|other| (other.user, other.authenticated)) else { return false };
        if !self.acl.get(user).is_some_and(|user| user.accepts_hash(password)) {
            return false;
        }
        if let Some(session) = self.clients.sessions.get_mut(key) {
            session.become_user(self.acl, user, authenticated);
        }
        true
    }

    /// Applies changes of users to all sessions. Sessions whose user is gone are closed, and so are sessions subscribed
    /// to channels that their user may no longer read.
    pub fn users_changed(&mut self, current: &mut Session) {
        let must_go = self.clients.sessions.iter().filter(|session| session.must_go(self.acl));
        let gone: Vec<SessionKey> = must_go.map(|session| session.key).collect();
        gone.into_iter().for_each(|key| self.kill(key));
        if current.must_go(self.acl) {
            // The current session still gets the reply.
            self.close_soon(current);
        }
        for session in self.clients.sessions.iter_mut().chain(std::iter::once(current)) {
            session.restrict_to_user(self.acl);
        }
    }
}

/// The error text for a wrong line about a user in the configuration.
fn declaration_error(fault: Fault) -> String {
    let (what, why) = match fault {
        Fault::NoUser => return "Error in user declaration: a name is missing".to_owned(),
        Fault::Name(name) => (name, "Usernames can't contain spaces or null characters".to_owned()),
        Fault::Parenthesis(rule) => (rule, "Unmatched parenthesis in selector definition".to_owned()),
        Fault::Rules(rules) => {
            let first = rules.into_iter().next();
            first.map(|(rule, error)| (rule, error.to_string())).unwrap_or_default()
        }
    };
    format!("Error in user declaration '{}': {why}", String::from_utf8_lossy(&what))
}

/// Calls.
impl Rights<'_> {
    /// Returns the part of a call that is denied, if any. A session whose user is gone may do nothing.
    pub(in crate::engine) fn refused_to(self, session: &Session, entry: &Entry, argv: Argv<'_>) -> Option<Denied> {
        let Some(user) = self.acl.get(session.user) else { return Some(Denied::Command(0)) };
        check(user, self.table, entry, argv, session.place(self.databases)).err()
    }

    /// Whether a call may read keys whose names it builds from data (SORT BY and GET).
    pub fn may_read_any_key(self, session: &Session, entry: &Entry, argv: Argv<'_>) -> bool {
        !session.restrictions.contains(Restrictions::LIMITED)
            || self
                .acl
                .get(session.user)
                .is_some_and(|user| reads_all_keys(user, entry, argv, session.place(self.databases)))
    }

    /// Whether a call about all keys may show this key.
    pub fn may_show(self, session: &Session, entry: &Entry, argv: Argv<'_>, db: DbIndex, key: &[u8]) -> bool {
        let place = Place { db, ..session.place(self.databases) };
        !session.restrictions.contains(Restrictions::LIMITED)
            || self.acl.get(session.user).is_some_and(|user| also_reads(user, entry, argv, place, key))
    }

    /// Whether a call may create a value that writes these keys by itself: a stock its stream, a stream its dead
    /// letters.
    pub fn may_also_write(self, session: &Session, entry: &Entry, argv: Argv<'_>, keys: &[&[u8]]) -> bool {
        if keys.is_empty() || !session.restrictions.contains(Restrictions::LIMITED) {
            return true;
        }
        let user = self.acl.get(session.user);
        user.is_some_and(|user| also_writes(user, entry, argv, session.place(self.databases), keys))
    }
}

/// Refused calls.
impl Access<'_> {
    fn rights(&self) -> Rights<'_> {
        Rights { acl: self.acl, table: self.table, databases: self.config.databases }
    }

    /// Checks whether a session's user may make a call. A refusal is recorded and returned as the client's error.
    #[cold]
    pub(in crate::engine) fn admit_user(
        &mut self,
        session: &Session,
        entry: &Entry,
        argv: Argv<'_>,
        context: Context,
    ) -> Result<(), Error> {
        let Some(denied) = self.rights().refused_to(session, entry, argv) else { return Ok(()) };
        let text = self.note_denied(session, entry, argv, context, matches!(context, Context::Lua), denied);
        Err(Error::owned(match context {
            Context::Lua => format!("ERR ACL failure in script: {text}"),
            _ => format!("NOPERM {text}"),
        }))
    }

    /// Checks whether a queued call may still run when EXEC comes.
    #[cold]
    pub fn admit_queued(&mut self, session: &Session, entry: &Entry, argv: Argv<'_>) -> Result<(), Error> {
        let Some(denied) = self.rights().refused_to(session, entry, argv) else { return Ok(()) };
        self.note_denied(session, entry, argv, Context::Multi, true, denied);
        let reason = match denied {
            Denied::Database(_) => "no permission",
            Denied::Command(_) => "no permission to execute the command or subcommand",
            Denied::Key(_) => "no permission to touch the specified keys",
            Denied::Channel(_) => "no permission to access one of the channels used as arguments to the command",
        };
        Err(Error::owned(format!(
            "NOPERM ACLs rules changed between the moment the transaction was accumulated and the EXEC call. This \
             command is no longer allowed for the following reason: {reason}"
        )))
    }

    /// Records a refusal. If the call `is_inner`, the client itself called EXEC or a script, and ACL LOG shows that
    /// call.
    fn note_denied(
        &mut self,
        session: &Session,
        entry: &Entry,
        argv: Argv<'_>,
        context: Context,
        is_inner: bool,
        denied: Denied,
    ) -> String {
        let user = self.acl.name(session.user).to_vec();
        let named = match denied {
            Denied::Command(at) => self.table.named_at(entry, argv, at),
            _ => entry,
        };
        let text = refusal(&user, named, denied, None);
        let (reason, object) = match denied {
            Denied::Database(0) => (Reason::Database, entry.full_name.as_bytes()),
            Denied::Database(at) => (Reason::Database, argv.get(at).unwrap_or_default()),
            Denied::Command(_) => (Reason::Command, named.full_name.as_bytes()),
            Denied::Key(at) => (Reason::Key, argv.get(at).unwrap_or_default()),
            Denied::Channel(at) => (Reason::Channel, argv.get(at).unwrap_or_default()),
        };
        let outer = session.last_command.filter(|_| is_inner).map(|command| self.table.by_id(command));
        let command = outer.unwrap_or(entry).full_name.as_str();
        self.note_refusal_of(session, command, reason, context, object, &user);
        text
    }

    fn note_refusal(
        &mut self,
        session: &Session,
        argv: Argv<'_>,
        reason: Reason,
        context: Context,
        object: &[u8],
        user: &[u8],
    ) {
        let command = self.table.named_by(argv).map_or("NULL", |entry| &entry.full_name);
        self.note_refusal_of(session, command, reason, context, object, user);
    }

    fn note_refusal_of(
        &mut self,
        session: &Session,
        command: &str,
        reason: Reason,
        context: Context,
        object: &[u8],
        user: &[u8],
    ) {
        self.stats.refusals[reason as usize] += 1;
        let mut client = Vec::new();
        // Long names of a client that is refused again and again must not be copied each time.
        describe_calling(&mut client, self.acl, self.stats, session, command, ACL_LOG_MAX_NAME_BYTES);
        client.pop_if(|byte| *byte == b'\n');
        let case = Case {
            reason,
            context,
            object: abridge(object, ACL_LOG_MAX_TEXT_BYTES).into_owned(),
            user: user.to_vec(),
            client,
        };
        let now_ms = self.clock.now_ms();
        self.acl.log.note(case, now_ms, self.config.acllog_max_len);
    }
}

/// The error text of a refusal. `entry` is the command, if the command is denied; `object` is the requested object, if
/// it should be named.
pub(crate) fn refusal(user: &[u8], entry: &Entry, denied: Denied, object: Option<&[u8]>) -> String {
    let user = String::from_utf8_lossy(user);
    let object = object.map(String::from_utf8_lossy);
    match (denied, object) {
        (Denied::Database(_), Some(db)) => format!("User {user} has no permissions to access database {db}"),
        (Denied::Database(_), None) => "No permissions to access database".to_owned(),
        (Denied::Command(_), _) => format!("User {user} has no permissions to run the '{}' command", entry.full_name),
        (Denied::Key(_), Some(key)) => format!("User {user} has no permissions to access the '{key}' key"),
        (Denied::Key(_), None) => "No permissions to access a key".to_owned(),
        (Denied::Channel(_), Some(channel)) => {
            format!("User {user} has no permissions to access the '{channel}' channel")
        }
        (Denied::Channel(_), None) => "No permissions to access a channel".to_owned(),
    }
}
