//! The people who are signed in.
//!
//! A session has a connection to the engine that is signed in as its user, and on which nothing is asked. It is the
//! anchor: each call is made over a connection of its own that the engine gives the rights of the anchor, so nobody has
//! to keep the password. When the engine closes the anchor, the session is over: the user was deleted, or an operator
//! killed the client. It also ends when the user may no longer sign in by that password, of which only the hash is kept
//! that the engine has as well, when it was not used for [`SESSION_IDLE_MAX`], and after [`SESSION_MAX`].
//!
//! The browser has the name of the session in a [cookie](Cookie). The token is another hash of that name.

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use axum::http::HeaderMap;
use sha2::{Digest as _, Sha256};
use tokio::time::{Instant, interval_at};

use super::super::limits::{
    CALL_PATIENCE, SESSION_CHECK_EVERY, SESSION_IDLE_MAX, SESSION_MAX, SESSIONS_MAX, SESSIONS_OF_USER_MAX,
};
use super::cookie::{Cookie, Hash, hash_of, random_name};
use super::guard::{Refused, TOKEN};
use super::line::{Line, Lines};
use super::session::Session;
use crate::base::hex::hex;
use crate::net::inside::Like;

/// One who has signed in.
pub(super) struct Newcomer {
    pub(super) user: String,
    pub(super) anchor: Like,
    pub(super) address: SocketAddr,
    /// Whether the browser has come by HTTPS, which a proxy speaks for us.
    pub(super) is_secure: bool,
}

/// The cookie and the token for a browser that has signed in.
pub(super) struct Given {
    pub(super) cookie: String,
    pub(super) token: String,
}

/// See the file's header.
pub(super) struct Sessions {
    /// Browsers don't keep the cookies of two ports apart, so its name has the port.
    cookie: Cookie,
    lines: Arc<Lines>,
    all: Mutex<HashMap<Hash, Arc<Session>>>,
}

impl Sessions {
    pub(super) fn new(port: u16, lines: Arc<Lines>) -> Arc<Sessions> {
        Arc::new(Sessions { cookie: Cookie::new(format!("tidegate-{port}"), None), lines, all: Mutex::default() })
    }

    /// Begins a session, whose anchor is `line`.
    pub(super) fn begin(self: &Arc<Sessions>, newcomer: Newcomer, line: Line) -> io::Result<Given> {
        let name = random_name()?;
        let Newcomer { user, anchor, address, is_secure } = newcomer;
        let session = Arc::new(Session::new(user, anchor, address));
        let hash = hash_of(&name);
        {
            let mut all = self.all();
            let own = all.values().filter(|other| other.user == session.user).count();
            if own >= SESSIONS_OF_USER_MAX {
                end_idlest(&mut all, |other| other.user == session.user);
            } else if all.len() >= SESSIONS_MAX {
                end_idlest(&mut all, |_| true);
            }
            all.insert(hash, Arc::clone(&session));
        }
        tokio::spawn(Arc::clone(self).keep(hash, session, line));
        Ok(Given { cookie: self.cookie.set(&name, is_secure), token: token_of(&name) })
    }

    /// Returns the session of a request and its token.
    pub(super) fn of(&self, headers: &HeaderMap) -> Result<(Arc<Session>, String), Refused> {
        let name = self.cookie.value_in(headers).ok_or(Refused::SignedOut)?;
        let session = self.all().get(&hash_of(name)).cloned().ok_or(Refused::SignedOut)?;
        session.is_used();
        Ok((session, token_of(name)))
    }

    /// Returns the session of a request that changes something, for which it must bring the token.
    pub(super) fn of_change(&self, headers: &HeaderMap) -> Result<Arc<Session>, Refused> {
        let (session, token) = self.of(headers)?;
        let given = headers.get(TOKEN).map(|given| given.as_bytes()).unwrap_or_default();
        // Hashes, so that the time of the comparison says nothing.
        if Sha256::digest(given) != Sha256::digest(token) {
            return Err(Refused::Token);
        }
        Ok(session)
    }

    /// A cookie that makes the browser forget the session.
    pub(super) fn forgetful_cookie(&self, is_secure: bool) -> String {
        self.cookie.unset(is_secure)
    }

    /// Ends a session when its time has come.
    async fn keep(self: Arc<Sessions>, hash: Hash, session: Arc<Session>, mut line: Line) {
        let began = Instant::now();
        let mut checks = interval_at(began + SESSION_CHECK_EVERY, SESSION_CHECK_EVERY);
        let mut checked = began;
        loop {
            tokio::select! {
                () = session.is_over() => break,
                () = line.closed() => break,
                _ = checks.tick() => {}
            }
            if began.elapsed() >= SESSION_MAX || session.used().elapsed() >= SESSION_IDLE_MAX {
                break;
            }
            if session.used() > checked {
                checked = session.used();
                // The user may have been switched off, or have got another password. Then this ends the session.
                tokio::select! {
                    () = session.is_over() => break,
                    _ = session.connect(&self.lines, 0, Instant::now() + CALL_PATIENCE) => {}
                }
            }
        }
        self.all().remove(&hash);
        session.end();
    }

    fn all(&self) -> MutexGuard<'_, HashMap<Hash, Arc<Session>>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Ends the session that was idle for longest of those that are meant.
fn end_idlest(all: &mut HashMap<Hash, Arc<Session>>, is_meant: impl Fn(&Session) -> bool) {
    let meant = all.iter().filter(|(_, session)| is_meant(session));
    let idlest = meant.min_by_key(|(_, session)| session.used()).map(|(hash, _)| *hash);
    if let Some(session) = idlest.and_then(|hash| all.remove(&hash)) {
        session.end();
    }
}

fn token_of(name: &str) -> String {
    hex(&Sha256::new().chain_update("token of ").chain_update(name).finalize())
}
