//! The people who are signed in.
//!
//! A session has a connection to the engine that is signed in as its user, and on which nothing is asked. It is the
//! anchor: each call is made over a connection of its own that the engine gives the rights of the anchor, so nobody has
//! to keep the password. When the engine closes the anchor, the session is over: the user was deleted, or an operator
//! killed the client. A session also ends when it was not used for [`SESSION_IDLE_MAX`], and after [`SESSION_MAX`].
//!
//! The browser has the name of the session, 256 random bits, in a cookie. Here is only a hash of it, so no comparison
//! of bytes tells how much of a guess is right. The token is another hash of that name.

use std::collections::HashMap;
use std::io::{self, Read as _};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use axum::http::HeaderMap;
use axum::http::header::COOKIE;
use sha2::{Digest as _, Sha256};
use tokio::sync::{Semaphore, watch};
use tokio::time::{Instant, interval_at};

use super::super::limits::{CALLS_AT_A_TIME, SESSION_IDLE_MAX, SESSION_KEEP_EVERY, SESSION_MAX, SESSIONS_MAX};
use super::guard::{Refused, TOKEN};
use super::line::Line;

/// A hash of a session's name.
type Hash = [u8; 32];

/// One who is signed in.
pub(super) struct Session {
    /// The user's name, as it was given.
    pub(super) user: String,
    /// The id of the anchor.
    pub(super) client: u64,
    /// The address of the browser that signed in, which the session's connections have.
    pub(super) address: SocketAddr,
    /// Requests that may wait for the engine at a time.
    pub(super) calls: Semaphore,
    used: Mutex<Instant>,
    over: watch::Sender<bool>,
}

impl Session {
    /// Notes that the session is used.
    pub(super) fn is_used(&self) {
        *self.used.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
    }

    fn used(&self) -> Instant {
        *self.used.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends the session.
    pub(super) fn end(&self) {
        self.over.send_replace(true);
    }

    /// Waits until the session is over.
    pub(super) async fn is_over(&self) {
        // The value is here as long as the session.
        let _ = self.over.subscribe().wait_for(|over| *over).await;
    }
}

/// What the browser is given at a sign-in.
pub(super) struct Given {
    pub(super) cookie: String,
    pub(super) token: String,
}

/// See the file's header.
pub(super) struct Sessions {
    /// The name of the cookie. Browsers don't keep the cookies of two ports apart.
    cookie: String,
    all: Mutex<HashMap<Hash, Arc<Session>>>,
}

impl Sessions {
    pub(super) fn new(port: u16) -> Arc<Sessions> {
        Arc::new(Sessions { cookie: format!("tidegate-{port}"), all: Mutex::default() })
    }

    /// Begins a session of a user whose anchor, the client of this id, is `line`.
    pub(super) fn begin(
        self: &Arc<Sessions>,
        user: String,
        client: u64,
        address: SocketAddr,
        line: Line,
    ) -> io::Result<Given> {
        let name = random_name()?;
        let session = Arc::new(Session {
            user,
            client,
            address,
            calls: Semaphore::new(CALLS_AT_A_TIME),
            used: Mutex::new(Instant::now()),
            over: watch::Sender::new(false),
        });
        let mut all = self.all();
        if all.len() >= SESSIONS_MAX
            && let Some(idle) = all.values().min_by_key(|session| session.used())
        {
            idle.end();
        }
        let hash = hash_of(&name);
        all.insert(hash, Arc::clone(&session));
        tokio::spawn(Arc::clone(self).keep(hash, session, line));
        Ok(Given {
            cookie: format!("{}={name}; HttpOnly; SameSite=Strict; Path=/", self.cookie),
            token: token_of(&name),
        })
    }

    /// Returns the session of a request and its token.
    pub(super) fn of(&self, headers: &HeaderMap) -> Result<(Arc<Session>, String), Refused> {
        let name = self.name_in(headers).ok_or(Refused::SignedOut)?;
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
    pub(super) fn forgetful_cookie(&self) -> String {
        format!("{}=; HttpOnly; SameSite=Strict; Path=/; Max-Age=0", self.cookie)
    }

    fn name_in<'h>(&self, headers: &'h HeaderMap) -> Option<&'h str> {
        let cookies = headers.get_all(COOKIE).iter().filter_map(|field| field.to_str().ok());
        let mut pairs = cookies.flat_map(|cookies| cookies.split(';')).filter_map(|pair| pair.trim().split_once('='));
        pairs.find(|(cookie, _)| *cookie == self.cookie).map(|(_, name)| name)
    }

    /// Ends a session when its time has come.
    async fn keep(self: Arc<Sessions>, hash: Hash, session: Arc<Session>, mut line: Line) {
        let began = Instant::now();
        let mut checks = interval_at(began + SESSION_KEEP_EVERY, SESSION_KEEP_EVERY);
        let mut mentioned = began;
        loop {
            tokio::select! {
                () = session.is_over() => break,
                () = line.closed() => break,
                _ = checks.tick() => {}
            }
            if began.elapsed() >= SESSION_MAX || session.used().elapsed() >= SESSION_IDLE_MAX {
                break;
            }
            if session.used() > mentioned {
                mentioned = session.used();
                // The one call that every user may make, in any state of the server.
                line.mention(&vec![b"HELLO".to_vec()]);
            }
        }
        self.all().remove(&hash);
        session.end();
    }

    fn all(&self) -> MutexGuard<'_, HashMap<Hash, Arc<Session>>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A name that can't be guessed.
fn random_name() -> io::Result<String> {
    let mut bytes = [0; 32];
    std::fs::File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(hex(&bytes))
}

fn hash_of(name: &str) -> Hash {
    Sha256::digest(name).into()
}

fn token_of(name: &str) -> String {
    hex(&Sha256::new().chain_update("token of ").chain_update(name).finalize())
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
