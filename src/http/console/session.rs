//! One who is signed in, and connections to the engine with the rights of the user.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::{Semaphore, watch};
use tokio::time::Instant;

use super::super::limits::CALLS_AT_A_TIME;
use super::line::{Line, LineError, Lines};
use super::reply::error_of;
use crate::net::inside::Like;

/// See the file's header.
pub(super) struct Session {
    /// The user's name, as it was given.
    pub(super) user: String,
    /// The client that signed in, whose rights the session's connections get.
    anchor: Like,
    /// The address of the browser that signed in, which the session's connections have.
    pub(super) address: SocketAddr,
    /// Requests at a time.
    pub(super) calls: Arc<Semaphore>,
    used: Mutex<Instant>,
    over: watch::Sender<bool>,
}

/// Why calls were not made.
pub(super) enum CallError {
    /// The session is over.
    Over,
    /// The engine does not serve it now.
    Refused(String),
    Line(LineError),
}

impl From<LineError> for CallError {
    fn from(error: LineError) -> CallError {
        CallError::Line(error)
    }
}

impl Session {
    pub(super) fn new(user: String, anchor: Like, address: SocketAddr) -> Session {
        Session {
            user,
            anchor,
            address,
            calls: Arc::new(Semaphore::new(CALLS_AT_A_TIME)),
            used: Mutex::new(Instant::now()),
            over: watch::Sender::new(false),
        }
    }

    /// Notes that the session is used.
    pub(super) fn is_used(&self) {
        *self.used.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
    }

    pub(super) fn used(&self) -> Instant {
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

    /// Connects to the engine with the rights of the user, in a database. Ends the session if the user no longer has
    /// any.
    pub(super) async fn connect(&self, lines: &Lines, db: u64, deadline: Instant) -> Result<Line, CallError> {
        let mut line = lines.open(&self.user, self.address, Some(self.anchor))?;
        let hello = line.hello(None, deadline).await?;
        if let Some(text) = error_of(&hello) {
            if text.starts_with("NOAUTH") {
                self.end();
                return Err(CallError::Over);
            }
            return Err(CallError::Refused(text.to_owned()));
        }
        if db != 0 {
            let select = vec![b"SELECT".to_vec(), db.to_string().into_bytes()];
            let selected = line.call(&[select], deadline).await?;
            if let Some(text) = selected.list.first().and_then(error_of) {
                return Err(CallError::Refused(text.to_owned()));
            }
        }
        Ok(line)
    }
}
